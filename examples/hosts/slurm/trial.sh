#!/bin/sh
# apiary/examples/hosts/slurm/trial.sh - a hundred gang jobs on a real Slurm, with failures; checks every start.
# SPDX-License-Identifier: MIT
#
# sh trial.sh PROGRAM           the scheduler that CMake builds: build/examples/hosts/slurm/slurm_scheduler
# sh trial.sh PROGRAM tenants   the accounts red and blue own a rack each (HiveD)
#
# The option --untimed before PROGRAM judges no times: for programs with sanitizers.
#
# Ends with 0 if every job has completed once, every start was on the nodes of the last decision, no start
# happened twice, no call touched the job that Slurm decides about, a job that was cancelled between its
# decision and its release has not started, owners have preempted guests, no audit found a fault, at most
# three of some thousand decisions took more than 200 microseconds of CPU time, and none more than a
# millisecond; with 77 where Slurm is not installed.
set -u
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
timed=1
[ "$1" != --untimed ] || { timed=0; shift; }
program=$1
mode=${2-}
. "$here/cluster.sh"
need_slurm

scheduler=
end_scheduler() { [ -z "$scheduler" ] || end_processes "$scheduler"; }
tidy_up_at_end end_scheduler

fail() {
  echo "FAILED: $1"
  echo "the last lines of the scheduler:"
  tail -n 5 "$folder/scheduler.log"
  squeue
  exit 2
}
# start_scheduler <option...>
start_scheduler() {
  if [ -n "$mode" ]; then set -- --tenants "$folder/tenants" --state "$folder/tenants.state" "$@"; fi
  start scheduler "$folder/scheduler.log" "$program" "$@"
}
kill_scheduler() {
  kill -9 "$scheduler"
  wait "$scheduler" 2> /dev/null
  scheduler=
  kills=$((kills + 1))
}
# load <priority> <account> <seconds> <option...>: submits a held job.
load() {
  priority=$1 account=$2 seconds=$3
  shift 3
  sbatch --parsable -H -o /dev/null -J gang --comment="priority=$priority" --account="$account" "$@" \
    "$folder/job" "$seconds" >> "$folder/submitted" || fail "sbatch refuses a job"
}
# seen <text>: whether the scheduler's log has a line with it.
seen() { grep -q "$1" "$folder/scheduler.log"; }
starts() { wc -l < "$folder/starts"; }
# after <starts>: waits for so many starts.
after() {
  until [ "$(starts)" -ge "$1" ]; do
    patience=$((patience - 1))
    [ "$patience" -gt 0 ] || fail "fewer than $1 starts"
    sleep 0.05
  done
}
patience=2400
kills=0
folder=$(folder_for_cluster) || exit 3
begin=$(date +%s%3N)
printf '%s\n' 'Account=red Racks=1' 'Account=blue Racks=1' 'Account=guest  # owns nothing' > "$folder/tenants"

start_cluster "$folder" || fail "Slurm does not start"
printf '%s\n' '#!/bin/sh' \
  "echo \$(date +%s%3N) start \$SLURM_JOB_ID \$SLURM_JOB_NODELIST \${SLURM_RESTART_COUNT:-0} >> \"$folder/starts\"" \
  'sleep "$1"' > "$folder/job"
: > "$folder/starts"
echo "eight slurmd run after $(($(date +%s%3N) - begin)) ms"

# A job that is released onto a node that drains: it must be taken back and start elsewhere.
scontrol update nodename=n7 state=drain reason=test
load 5 red 1 -N1 --gpus-per-node=8
stuck=$(head -n 1 "$folder/submitted")
scontrol update jobid="$stuck" reqnodelist=n7 comment='priority=5; released' && scontrol release "$stuck"
start_scheduler --delay 300
after 1
scontrol update nodename=n7 state=resume
# A job that is cancelled between its decision and its release.
cancelled=$(sbatch --parsable -H -o /dev/null --account=red -N1 --gpus-per-node=8 "$folder/job" 1) ||
  fail "sbatch refuses a job"
wait_until 10 seen " release $cancelled " || fail "no decision about job $cancelled"
scancel "$cancelled"
wait_until 10 seen " error release $cancelled " || fail "the release of the cancelled job is no error"
kill "$scheduler"
wait "$scheduler" || { scheduler=; fail "the scheduler ends with an error"; }
start_scheduler

# Guests fill the cluster; then come the gangs of two owners, and preempt them.
i=0
while [ $i -lt 12 ]; do
  load -1 guest 2 -N$((i % 2 + 1)) --gpus-per-node=$((i % 3 * 2 + 4))
  i=$((i + 1))
done
after 7
# A job that Slurm decides about itself: it waits for its begin and its node, and starts there.
own=$(sbatch --parsable -o /dev/null --begin=now+2 -N1 -w n3 --gpus-per-node=8 "$folder/job" 1) ||
  fail "sbatch refuses a job"
# A job that is larger than a rack, which is all that its account owns, waits for ever, and says so.
never=$(sbatch --parsable -H -o /dev/null --account=red -N5 --gpus-per-node=8 --switches=1 "$folder/job" 1)
i=0
while [ $i -lt 87 ]; do
  account=red
  [ $((i % 2)) -eq 0 ] || account=blue
  case $((i % 8)) in
    0) load 5 $account 1 -N2 --gpus-per-node=8 ;;
    1) load 5 $account 0.5 -N1 --gpus-per-node=4 ;;
    2) load 6 $account 0.5 -N4 --gpus-per-node=4 --switches=1 ;;
    3) load 5 $account 1 -N1 --gpus-per-node=8 ;;
    4) load 5 $account 0.5 -N1 --gpus-per-node=2 ;;
    5) load 5 $account 0.5 -N3 --gpus-per-node=2 --switches=1 ;;
    6) load -1 guest 1 -N1 --gpus-per-node=2 ;;
    7) load 7 $account 0.5 -N2 --gpus-per-node=4 --switches=1 ;;
  esac
  i=$((i + 1))
  # Failures, while jobs arrive, wait and run.
  case $i in
    20) kill_scheduler; start_scheduler ;;
    30) scontrol update nodename=n2 state=down reason=test ;;
    40) scontrol update nodename=n5 state=down reason=test ;;
    50) kill_scheduler ;;
    55) scontrol update nodename=n2 state=resume; start_scheduler ;;
    60)
      wait_until 20 grep -q " start $own " "$folder/starts"
      kill "$slurmctld"; wait "$slurmctld" 2> /dev/null; start_slurmctld; wait_until 20 squeue
      ;;
    70) scontrol update nodename=n5 state=resume ;;
  esac
done
echo "all jobs are submitted after $(($(date +%s%3N) - begin)) ms"
after 70
kill_scheduler
start_scheduler
# leaks: after its restart, slurmctld 22.05 may count GPUs as in use on nodes where nothing runs, until it
# restarts once more. The scheduler avoids these nodes; if no rack has four others, gangs of four wait.
leaks() {
  scontrol -d -o show nodes | grep ' State=IDLE ' | grep -q 'GresUsed=gpu:[^ ]*:[1-9]'
}
while [ "$(squeue -h | wc -l)" -gt 1 ]; do
  patience=$((patience - 1))
  [ "$patience" -gt 0 ] || fail "jobs are left"
  sleep 0.05
  if no_jobs && leaks && sleep 2 && no_jobs && leaks; then
    echo "slurmctld restarts, for it counts GPUs of idle nodes as in use"
    kill "$slurmctld"; wait "$slurmctld" 2> /dev/null; start_slurmctld; wait_until 20 squeue
  fi
done
why=$(squeue -h -j "$never" -o %k)
scancel "$never"
kill "$scheduler"
wait "$scheduler" || { scheduler=; fail "the scheduler ends with an error"; }
scheduler=
took=$(($(date +%s%3N) - begin))

# Each start against the last decision before it; each completion against the last start.
sort -s -n -k 1,1 "$folder/scheduler.log" "$folder/starts" > "$folder/events"
awk -v took="$took" -v kills="$kills" -v why="$why" -v own="$own" -v cancelled="$cancelled" \
  -v mode="$mode" -v timed="$timed" -v file="$folder/submitted" '
  FILENAME == file { jobs[$1] = 1; n++; next }
  FILENAME ~ /events$/ && $2 == "start" && $3 == own { own_starts = own_starts " " $4; actual[own] = $4; next }
  FILENAME ~ /events$/ && $2 ~ /^(release|requeue|take_back|comment)$/ && $3 == own { touched++; print "touched:", $0 }
  FILENAME ~ /events$/ && $2 == "release" { decided[$3] = $4; decisions++ }
  FILENAME ~ /events$/ && $2 == "requeue" { requeues++ }
  FILENAME ~ /events$/ && $2 == "take_back" { taken++ }
  FILENAME ~ /events$/ && $2 == "slowest" && $3 > slowest { slowest = $3; slow = $5 " " $6 " " $7 }
  FILENAME ~ /events$/ && $2 == "slow" { slow_ones++ }
  FILENAME ~ /events$/ && $2 == "audit" { faults++; print "audit:", $0 }
  FILENAME ~ /events$/ && $2 == "start" && $3 == cancelled { wrong++; print "the cancelled job has started" }
  FILENAME ~ /events$/ && $2 == "start" {
    starts++
    actual[$3] = $4
    if (seen[$3, $5]++) { twice++; print "job", $3, "started twice" }
    if (decided[$3] != $4) { wrong++; print "job", $3, "decided", decided[$3], "started on", $4 }
    runs[$3]++
  }
  FILENAME ~ /jobcomp$/ {
    delete field
    for (i = 1; i <= NF; i++) { at = index($i, "="); field[substr($i, 1, at - 1)] = substr($i, at + 1) }
    if (field["JobState"] != "COMPLETED") next
    id = field["JobId"]
    completed[id]++
    if (field["NodeList"] != actual[id]) { wrong++; print "job", id, "completed on", field["NodeList"] }
    last[id] = field["NodeList"]
  }
  END {
    print "job   decided     completed on  starts"
    for (id = 1; id < 200; id++) if (id in jobs) {
      printf "%-5d %-11s %-13s %d\n", id, decided[id], last[id], runs[id]
      if (completed[id] != 1) { lost++; print "job", id, "completed", completed[id] + 0, "times" }
    }
    printf "%d jobs, %d starts, %d of them not on the decided nodes, %d twice, %d jobs lost\n", n, starts, wrong, twice, lost
    printf "%d requeues, %d releases taken back, the scheduler killed %d times, %d audit faults\n", requeues, taken, kills, faults
    printf "the job that is too large: %s\n", why
    printf "the job that Slurm decides about: started on%s, completed on %s\n", own_starts, last[own]
    printf "slowest decision %d us of CPU time (%s), the whole run %.1f s\n", slowest, slow, took / 1000
    if (slow_ones > 0) printf "%d decisions took more than 200 us\n", slow_ones
    if (timed && (slow_ones > 3 || slowest > 1000)) exit 1
    if (wrong + twice + lost + faults > 0 || n != 100 || kills != 3) exit 1
    if (requeues == 0 || why !~ /can never start|would not fit even/) exit 1
    if (mode != "" && why !~ /account red/) exit 1
    if (touched > 0 || own_starts != " n3" || last[own] != "n3") exit 1
  }' "$folder/submitted" "$folder/events" "$folder/log/jobcomp" || exit 1
