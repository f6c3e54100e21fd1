#!/bin/sh
# apiary/examples/hosts/kubernetes/run.sh - installs what is missing (Debian), builds the extender, shows its answers.
# SPDX-License-Identifier: MIT
#
# sh examples/hosts/kubernetes/run.sh
#
# Needs no Kubernetes: see replay.sh. The build is kept in build/examples, or where the environment variable
# APIARY_BUILD_DIR says.
set -eu
unset CDPATH
source=$(cd "$(dirname "$0")/../../.." && pwd)
build=${APIARY_BUILD_DIR:-$source/build/examples}

{
  (cd "$source" && sh tests/packages.sh g++ cmake ninja-build libabsl-dev libcpp-httplib-dev \
    pkgconf curl)
  cmake -G Ninja -S "$source" -B "$build" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 \
    -DAPIARY_BUILD_TESTS=OFF -DAPIARY_BUILD_BENCHMARKS=OFF
  cmake --build "$build" --target example_kubernetes_extender
} >&2
exec sh "$source/examples/hosts/kubernetes/replay.sh" "$build/examples/hosts/kubernetes/kubernetes_extender"
