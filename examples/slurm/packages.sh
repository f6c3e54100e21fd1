#!/bin/sh
# apiary/examples/slurm/packages.sh - installs Slurm (Debian), without starting any service.
# SPDX-License-Identifier: MIT
set -eu
unset CDPATH
cd "$(dirname "$0")/../.."
policy=/usr/sbin/policy-rc.d
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
# Debian starts the service of a package that it installs, unless this file ends with 101.
if ! command -v slurmctld slurmd munged > /dev/null && [ ! -e "$policy" ] &&
  { [ -z "$sudo" ] || command -v sudo > /dev/null; }; then
  printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" > /dev/null
  $sudo chmod 755 "$policy"
  trap '$sudo rm -f "$policy"' EXIT
fi
sh tests/packages.sh g++ cmake ninja-build libabsl-dev slurmctld slurmd slurm-client \
  slurm-wlm-basic-plugins libslurm-dev munge
