#!/bin/sh
# apiary/examples/hosts/slurm/run.sh - installs what is missing (Debian), builds the scheduler, runs the trials.
# SPDX-License-Identifier: MIT
#
# sh examples/hosts/slurm/run.sh
#
# Starts a Slurm cluster of eight nodes on this machine: for a trial without tenants and one with them (see
# trial.sh), and for sweeps of simulations as job arrays (see job_array.sh). The build is kept in
# build/examples, or where the environment variable APIARY_BUILD_DIR says.
set -eu
unset CDPATH
source=$(cd "$(dirname "$0")/../../.." && pwd)
build=${APIARY_BUILD_DIR:-$source/build/examples}

{
  sh "$source/examples/hosts/slurm/packages.sh"
  cmake -G Ninja -S "$source" -B "$build" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 \
    -DAPIARY_BUILD_TESTS=OFF -DAPIARY_BUILD_BENCHMARKS=OFF
  cmake --build "$build" --target example_slurm_scheduler example_simulate example_replay
} >&2
for mode in "" tenants; do
  sh "$source/examples/hosts/slurm/trial.sh" "$build/examples/hosts/slurm/slurm_scheduler" $mode
done
sh "$source/examples/hosts/slurm/job_array.sh" "$build/examples/simulate" "$build/examples/replay"
