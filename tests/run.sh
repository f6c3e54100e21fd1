#!/bin/sh
# apiary/tests/run.sh - installs what is missing (Debian, Ubuntu), builds the tests and runs them.
# SPDX-License-Identifier: MIT
#
# sh tests/run.sh [option of CMake...]             the quick run
# sh tests/run.sh --all [option of CMake...]       everything
# sh tests/run.sh MODULE... [option of CMake...]   the tests of these modules: sh tests/run.sh hived
#
# The quick run is to end within five minutes on two cores, and within one when nothing has changed. It
# compiles many files as one, with -Og: without optimisation the tests run five times as long, with -O1
# they take half as long again to compile. It parses the headers of others once, and compiles HiveD
# once. Random tests run at 5 % of their length. It leaves out the benchmarks, the tests that read
# public traces, the compilation of each header alone, and the few examples and tests that take longest
# to compile or run; --all does these, too, at full length. The tests of the module kubernetes need
# cpp-httplib and nlohmann-json: they run with --all, and where this module is named.
#
# Ends with the line "N passed, N failed", before it "N skipped" if any were, and with 0 when none
# failed. The build is kept in build/tests, or where the environment variable APIARY_BUILD_DIR says: the
# checkout itself may be read-only then. --all compiles only what a quick run in the same directory has
# not, and HiveD again, optimised.
set -eu
unset CDPATH  # with it, cd may go elsewhere
cd "$(dirname "$0")/.."

# give_up <why>: no test ran.
give_up() {
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}

all=
targets=
tests=
kubernetes=
for argument in "$@"; do
  shift
  case $argument in
    --all) all=yes ;;
    -*) set -- "$@" "$argument" ;;
    *)
      [ -n "$(find "tests/$argument" -name '*_test.cpp' 2> /dev/null)" ] ||
        give_up "$argument is no folder of tests/ with tests, and no option"
      [ "$argument" != kubernetes ] || kubernetes=ON
      targets="$targets ${argument}_tests"
      tests="${tests:+$tests|}$argument"
      ;;
  esac
done

build=${APIARY_BUILD_DIR:-build/tests}
# Without debug information, and optimised a little, for compiling is what takes the time: benchmarks
# choose for themselves.
set -- -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-Og "$@"
http='pkgconf libcpp-httplib-dev nlohmann-json3-dev'
if [ -n "$all" ]; then
  more="$http libbenchmark-dev curl pybind11-dev python3-dev python3-numpy python3-pip"
  set -- -DAPIARY_QUICK=OFF -DAPIARY_BUILD_BENCHMARKS=ON "$@"
else
  more=${kubernetes:+$http}
  set -- -DAPIARY_QUICK=ON -DAPIARY_COMPILE_LONG=${kubernetes:-OFF} -DAPIARY_BUILD_BENCHMARKS=OFF "$@"
  APIARY_TEST_SCALE=${APIARY_TEST_SCALE:-0.05}
  export APIARY_TEST_SCALE
fi

sh tests/packages.sh g++ cmake ninja-build libabsl-dev doctest-dev gnuplot-nox libyaml-cpp-dev \
  $more || give_up "packages are missing"

if ! { cmake -G Ninja -S . -B "$build" "$@" && cmake --build "$build" ${targets:+--target $targets}; }; then
  give_up "the build failed"
fi

report=$PWD/$build/report.xml
case $build in /*) report=$build/report.xml ;; esac
rm -f "$report"
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --output-junit "$report" \
  ${tests:+-R "^($tests)\."} && status=0 || status=$?

# How many tests the report counts as $1.
count() {
  sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n 1
}
[ -s "$report" ] && [ "$(count tests)" -gt 0 ] || give_up "no test ran"
# A test that could not be run is for the report a skipped one, but no test said that it skips.
unrun=$(sed -n '/<skipped message="SKIP_/d; /<skipped /p' "$report" | wc -l)
failed=$(($(count failures) + unrun))
skipped=$(($(count skipped) + $(count disabled) - unrun))
passed=$(($(count tests) - failed - skipped))
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
