#!/bin/sh
# apiary/examples/hosts/slurm/packages.sh - installs Slurm (Debian), without starting any service.
# SPDX-License-Identifier: MIT
#
# Needs root or sudo only where a package is missing. Debian starts the service of a package that it
# installs, unless /usr/sbin/policy-rc.d ends with 101. The script writes this file, unless there is one,
# and removes it at its end, also after Ctrl-C.
set -eu
unset CDPATH
cd "$(dirname "$0")/../../.."
policy=/usr/sbin/policy-rc.d
mark='written by examples/hosts/slurm/packages.sh'
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo

# Whether the packages with services are installed.
services_installed() {
  for package in slurmctld slurmd munge; do
    dpkg-query -W -f='${Status}' $package 2> /dev/null | grep -q 'ok installed' || return 1
  done
}
# Whether packages can be installed here.
may_install() {
  command -v dpkg-query > /dev/null && { [ -z "$sudo" ] || command -v sudo > /dev/null; }
}
# Removes the file if it is this script's, also that of a run that was killed.
remove_policy() {
  if grep -qs "$mark" "$policy"; then $sudo rm -f "$policy"; fi
}

trap remove_policy EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if may_install && ! services_installed && [ ! -e "$policy" ]; then
  # -C: never over another file
  $sudo sh -c 'set -C; umask 022; printf "#!/bin/sh\n# %s\nexit 101\n" "$2" > "$1" && chmod 755 "$1"' \
    sh "$policy" "$mark"
fi
sh tests/packages.sh g++ cmake ninja-build libabsl-dev slurmctld slurmd slurm-client \
  slurm-wlm-basic-plugins libslurm-dev munge
