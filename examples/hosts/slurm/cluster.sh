# apiary/examples/hosts/slurm/cluster.sh - a Slurm cluster of eight nodes on one machine, for scripts that read this file.
# SPDX-License-Identifier: MIT
#
# Nodes n0 to n7 with eight GPUs each (links to /dev/null), racks rack0 (n0 to n3) and rack1. All files are
# in one folder, all daemons listen on 127.0.0.1 alone and run as the caller, without systemd and cgroups.
#
# need_slurm               ends the script with 77 where Slurm is not installed
# tidy_up_at_end COMMAND   at the end of the script, also after Ctrl-C: runs the command, stops the cluster and
#                          removes $folder; keeps it if the exit status is 1 or 2, which mean a failed trial
# folder_for_cluster       makes a new folder and prints its name
# start_cluster FOLDER     starts munged, slurmctld and eight slurmd; sets SLURM_CONF; 1 if they do not start
# start_slurmctld          starts slurmctld again after `kill $slurmctld`
# stop_cluster             cancels all jobs and ends the daemons
PATH=$PATH:/usr/sbin:/sbin
folder= munged= slurmctld= slurmds=

need_slurm() {
  for tool in slurmctld slurmd munged sbatch scontrol; do
    command -v $tool > /dev/null || { echo "skipped: no $tool; see examples/hosts/slurm/README.md"; exit 77; }
  done
}

tidy_up_at_end() {
  at_end=$1
  trap tidy_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}
tidy_up() {
  status=$?
  trap '' HUP INT TERM
  $at_end
  stop_cluster
  case $status in
    1 | 2) echo "all files are kept in $folder" ;;
    *) [ -z "$folder" ] || rm -rf "$folder" ;;
  esac
  exit "$status"
}

# In /tmp if TMPDIR cannot be used: Slurm reads no list of files with spaces in their names, and the name of
# a socket has at most 107 bytes.
folder_for_cluster() {
  parent=${TMPDIR:-/tmp}
  case $parent in
    *[!A-Za-z0-9_./-]*) parent=/tmp ;;
    /*) [ "${#parent}" -le 60 ] || parent=/tmp ;;
    *) parent=/tmp ;;
  esac
  mktemp -d "$parent/apiary-slurm.XXXXXX"
}

# start <variable> <log> <command...>: starts a program apart from the terminal, so that Ctrl-C ends the
# script alone; its process id is in the variable.
start() {
  started_as=$1
  started_log=$2
  shift 2
  setsid "$@" >> "$started_log" 2>&1 < /dev/null &
  eval "$started_as=$!"
}

# Ten free ports of the loopback device; the first one in the variable port.
find_ports() {
  port=$((20000 + $$ % 997 * 10))
  while :; do
    free=yes
    for n in 0 1 2 3 4 5 6 7 8 9; do
      if grep -qi ":$(printf %04X $((port + n))) [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2> /dev/null; then
        free=
      fi
    done
    [ -z "$free" ] || return 0
    port=$((port + 10))
    [ "$port" -lt 32000 ] || port=20000
  done
}

write_configuration() {
  user=$(id -un)
  sed -e "s|@FOLDER@|$cluster|g" -e "s|@USER@|$user|g" -e "s|@HOST@|$(hostname -s)|g" \
    -e "s|@PORT@|$port|g" -e "s|@PORT1@|$((port + 1))|g" -e "s|@PORT8@|$((port + 8))|g" \
    "$here/slurm.conf.in" > "$cluster/slurm.conf"
  mkdir -p "$cluster/dev"
  for n in 0 1 2 3 4 5 6 7; do ln -sf /dev/null "$cluster/dev/gpu$n"; done
  printf '%s\n' AutoDetect=off "NodeName=n[0-7] Name=gpu Type=v100 File=$cluster/dev/gpu[0-7]" > "$cluster/gres.conf"
  printf '%s\n' 'SwitchName=rack0 Nodes=n[0-3]' 'SwitchName=rack1 Nodes=n[4-7]' \
    'SwitchName=spine Switches=rack[0-1]' > "$cluster/topology.conf"
  case $(slurmctld -V) in
    *' 2'[0-2].*) echo 'CgroupAutomount=no' ;;
    *) echo 'CgroupPlugin=disabled' ;;
  esac > "$cluster/cgroup.conf"
}

start_slurmctld() {
  start slurmctld "$cluster/log/slurmctld" slurmctld -D -f "$SLURM_CONF" ${1-}
}

# wait_until <seconds> <command...>: until the command succeeds; 1 if it does not in this time.
wait_until() {
  wait_end=$(($(date +%s) + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ "$(date +%s)" -lt "$wait_end" ] || return 1
    sleep 0.1
  done
}
# Without slurmctld, the tools of Slurm wait for minutes.
all_idle() { [ "$(timeout 5 sinfo -h -o '%T %D')" = 'idle 8' ]; }
no_jobs() { [ -z "$(timeout 5 squeue -h -t running,completing,suspended)" ]; }

start_cluster() {
  cluster=$1
  munged= slurmctld= slurmds=
  mkdir -p "$cluster/log" "$cluster/state" "$cluster/spool" "$cluster/run"
  chmod 755 "$cluster"
  find_ports
  write_configuration
  SLURM_CONF=$cluster/slurm.conf
  export SLURM_CONF
  mkdir -m 700 -p "$cluster/munge"
  (umask 077 && dd if=/dev/urandom of="$cluster/munge/key" bs=1024 count=1 2> /dev/null)
  mkdir -m 755 -p "$cluster/socket"
  start munged "$cluster/log/munged" munged -F --force --key-file="$cluster/munge/key" \
    --socket="$cluster/socket/munge" --pid-file="$cluster/run/munged.pid" \
    --log-file="$cluster/log/munged.log" --seed-file="$cluster/munge/seed"
  wait_until 10 test -S "$cluster/socket/munge" || return 1
  start_slurmctld -c
  for n in 0 1 2 3 4 5 6 7; do
    start one "$cluster/log/slurmd.n$n" slurmd -D -c -f "$SLURM_CONF" -N "n$n"
    slurmds="$slurmds $one"
  done
  wait_until 30 all_idle && return 0
  echo "the nodes are not idle; the last lines of slurmctld and of slurmd n0:"
  tail -q -n 4 "$cluster/log/slurmctld" "$cluster/log/slurmd.n0"
  return 1
}

# Ends processes of this shell: asks, and insists after five seconds.
end_processes() {
  [ $# -gt 0 ] || return 0  # without a process, wait would wait for all
  kill "$@" 2> /dev/null
  wait_until 5 none_runs "$@" || kill -9 "$@" 2> /dev/null
  wait "$@" 2> /dev/null
}
none_runs() {
  for process in "$@"; do
    case $(cat "/proc/$process/stat" 2> /dev/null) in '' | *') Z '*) ;; *) return 1 ;; esac
  done
}
# The processes of jobs and daemons that are left; each has the configuration of this cluster in its
# environment.
left_behind() {
  for process in /proc/[0-9]*; do
    if grep -qzx "SLURM_CONF=$SLURM_CONF" "$process/environ" 2> /dev/null; then
      case $(cat "$process/comm") in slurmctld | slurmd | slurmstepd | slurm_script) echo "${process#/proc/}" ;; esac
    fi
  done
}

stop_cluster() {
  [ -n "$munged" ] || return 0
  if [ -n "$slurmctld" ]; then
    timeout -k 1 5 scancel -u "$(id -un)" 2> /dev/null && wait_until 5 no_jobs
  fi
  end_processes $slurmds $slurmctld
  left=$(left_behind)
  [ -z "$left" ] || kill -9 $left 2> /dev/null
  end_processes "$munged"
  munged=
}
