#!/bin/sh
# apiary/examples/run.sh - installs what is missing (Debian, Ubuntu), builds and runs the main example.
# SPDX-License-Identifier: MIT
#
# sh examples/run.sh                        both programs of it: replay, then simulate
# sh examples/run.sh simulate argument...   simulate alone, with these arguments
# sh examples/run.sh replay argument...     replay alone; the word replay may be left out
# sh examples/run.sh --help                 these lines; "simulate --help" and "replay --help" list the options
#
# The output of the build goes to standard error, so that standard output is the programs'. The
# build is kept in build/examples, or where the environment variable APIARY_BUILD_DIR says: the
# checkout itself may be read-only then.
set -eu
unset CDPATH  # with it, cd may go elsewhere and say where
source=$(cd "$(dirname "$0")/.." && pwd)
build=${APIARY_BUILD_DIR:-$source/build/examples}

if [ "${1-}" = --help ]; then
  sed -n 's/^# \(sh examples.*\)/\1/p' "$source/examples/run.sh"
  exit
fi

{
  sh "$source/tests/packages.sh" g++ cmake ninja-build libabsl-dev gnuplot-nox
  # Without debug information, which takes a third of the time.
  cmake -G Ninja -S "$source" -B "$build" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 \
    -DAPIARY_BUILD_TESTS=OFF -DAPIARY_BUILD_BENCHMARKS=OFF
  cmake --build "$build" --target example_replay example_simulate
} >&2

if [ "${1-}" = simulate ]; then
  shift
  exec "$build/examples/simulate" "$@"
fi
[ "${1-}" = replay ] && shift && exec "$build/examples/replay" "$@"
[ $# -eq 0 ] || exec "$build/examples/replay" "$@"
"$build/examples/replay"
echo
exec "$build/examples/simulate"
