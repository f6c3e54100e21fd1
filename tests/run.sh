#!/bin/sh
# apiary/tests/run.sh - installs what is missing (Debian, Ubuntu), builds everything, runs all tests.
# SPDX-License-Identifier: MIT
#
# sh tests/run.sh [option of CMake...]
#
# Ends with the line "N passed, N failed", before it "N skipped" if any were, and with 0 when none
# failed. The build is kept in build/tests, or where the environment variable APIARY_BUILD_DIR says.
set -eu
unset CDPATH  # with it, cd may go elsewhere
cd "$(dirname "$0")/.."
build=${APIARY_BUILD_DIR:-build/tests}

if command -v dpkg-query > /dev/null; then
  missing=
  for package in g++ cmake ninja-build libabsl-dev libbenchmark-dev doctest-dev gnuplot-nox \
    libyaml-cpp-dev; do
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' ||
      missing="$missing $package"
  done
  if [ -n "$missing" ]; then
    sudo=$(command -v sudo || true)
    [ "$(id -u)" -ne 0 ] || sudo=
    $sudo apt-get -q update
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing
  fi
fi

# Without debug information, and optimised a little, for compiling is what takes the time: benchmarks
# choose for themselves.
if ! { cmake -G Ninja -S . -B "$build" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 "$@" && cmake --build "$build"; }; then
  echo "the build failed"
  echo "0 passed, 1 failed"
  exit 1
fi

report=$PWD/$build/report.xml
case $build in /*) report=$build/report.xml ;; esac
rm -f "$report"
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --output-junit "$report" && status=0 ||
  status=$?

# How many tests the report counts as $1.
count() {
  sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n 1
}
if [ ! -s "$report" ] || [ "$(count tests)" -eq 0 ]; then
  echo "no test ran"
  echo "0 passed, 1 failed"
  exit 1
fi
# A test that could not be run is for the report a skipped one, but no test said that it skips.
unrun=$(sed -n '/<skipped message="SKIP_/d; /<skipped /p' "$report" | wc -l)
failed=$(($(count failures) + unrun))
skipped=$(($(count skipped) + $(count disabled) - unrun))
passed=$(($(count tests) - failed - skipped))
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
