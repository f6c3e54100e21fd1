#!/bin/sh
# apiary/tests/mutate.sh - mutation tests: do the tests notice when the library is wrong?
# SPDX-License-Identifier: MIT
#
# sh tests/mutate.sh [--all] [--since=COMMIT | --sample] [--minutes=N] [--jobs=N] [MODULE...]
#                    [option of CMake...]
#
# tests/mutants/<module>.cmake lists the mutants of a module: small, realistic bugs. All are built into a
# copy of the library at once, as switches (tests/cmake/mutants.cmake). Then the tests of the module run
# once for each mutant, with short random walks. A mutant that no test notices survives. With --all, the
# survivors are tried with the tests of all other modules.
#
# Without a MODULE, all modules are tried. With --since, those are tried whose headers, tests or mutants
# have changed since the commit. If there are none, and with --sample, one module is tried, which the id
# of the checked-out commit chooses. The given minutes begin when the tests of the first module have been
# compiled and have passed, so at least one mutant is tried. After them no mutant is tried any more, and
# nothing is compiled; runs that have begun may last ten times as long as the tests without a mutant, and
# 40 seconds. There are as many jobs at a time as there are cores, unless their number is given.
#
# Lists the survivors, and ends with the line "N killed, N survived, N equivalent", and with 0 if each
# mutant that survived is marked as equivalent, none that was killed is, and at least one was tried. The
# build is kept in build/mutants, or where the environment variable APIARY_BUILD_DIR says.
set -eu
unset CDPATH  # with it, cd may go elsewhere
cd "$(dirname "$0")/.."

# give_up <why>: nothing was tried.
give_up() {
  echo "$1"
  echo "0 killed, 0 survived, 0 equivalent"
  exit 1
}

all=
jobs=$(nproc)
minutes=
since=
sample=
modules=
for argument in "$@"; do
  shift
  case $argument in
    --all) all=yes ;;
    --jobs=*) jobs=${argument#--jobs=} ;;
    --minutes=*) minutes=${argument#--minutes=} ;;
    --since=*) since=${argument#--since=} ;;
    --sample) sample=yes ;;
    -*) set -- "$@" "$argument" ;;
    *)
      [ -f "tests/mutants/$argument.cmake" ] || give_up "$argument is no module with mutants"
      case " $modules " in *" $argument "*) ;; *) modules="$modules $argument" ;; esac
      ;;
  esac
done
case $minutes in *[!0-9]* | 0*) give_up "--minutes=$minutes: this is no number from 1" ;; esac
every_module=$(sed -n 's/^\([a-z_]*\):.*/\1/p' tests/cmake/modules.txt)
[ ! -f tests/mutants/examples.cmake ] || every_module="$every_module
examples"
if [ -n "$since" ]; then
  changed=$(git diff --name-only "$since" -- include/apiary examples tests) || give_up "$since is no commit"
  for module in $every_module; do
    printf '%s\n' "$changed" |
      grep -q -e "^include/apiary/$module/.*\.h$" -e "^$module/.*\.h$" -e "^tests/$module/" -e "^tests/mutants/$module\.cmake$" ||
      continue
    case " $modules " in *" $module "*) ;; *) modules="$modules $module" ;; esac
  done
  [ -n "$modules" ] || { echo "no module has changed since $since"; sample=yes; }
fi
if [ -n "$sample" ]; then
  commit=$(git rev-parse --verify --quiet HEAD 2> /dev/null) || commit=0  # this may be no repository
  n=$((0x$(printf %.7s "$commit") % $(echo "$every_module" | wc -w) + 1))
  modules="$modules $(echo "$every_module" | sed -n "${n}p")"
  echo "a sample:$modules"
fi
modules=${modules:-$every_module}

build=${APIARY_BUILD_DIR:-build/mutants}
mkdir -p "$build"
build=$(cd "$build" && pwd)
mkdir -p "$build/logs"
sh tests/packages.sh g++ cmake ninja-build libabsl-dev doctest-dev libyaml-cpp-dev || give_up "packages are missing"
cmake -DSOURCE="$PWD" -DWORK="$build" -P tests/cmake/mutants.cmake || give_up "mutants are wrong"

# The warnings of compilers are those of the switches.
cmake -G Ninja -S "$build/tree" -B "$build/tree_build" -DAPIARY_QUICK=ON -DAPIARY_COMPILE_LONG=ON \
  -DAPIARY_BUILD_EXAMPLES=OFF -DAPIARY_BUILD_BENCHMARKS=OFF -DAPIARY_INSTALL=OFF -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-Og -w" "$@" \
  > "$build/configure.log" 2>&1 || { cat "$build/configure.log"; give_up "CMake failed"; }
unset APIARY_MUTANT
APIARY_TEST_SCALE=${APIARY_TEST_SCALE:-0.05}
export APIARY_TEST_SCALE

# in_time: whether the given minutes have not passed; they have not begun before the deadline is set.
in_time() {
  [ -z "$deadline" ] || [ "$(date +%s)" -lt "$deadline" ]
}

# prepare <module>: builds its tests, and runs them without a mutant, but otherwise as with one; sets limit
# to the seconds that a run with a mutant may take. Fails if the time passes before the tests are built.
prepare() {
  in_time || return 1
  patience=
  [ -z "$deadline" ] || patience="timeout $((deadline - $(date +%s) + 1))"
  if ! $patience cmake --build "$build/tree_build" -j "$jobs" --target "$1_tests" > "$build/$1.log" 2>&1; then
    in_time || return 1
    cat "$build/$1.log"
    give_up "the tests of $1 do not compile"
  fi
  began=$(date +%s)
  [ "$(sh tests/mutants/try.sh "$build" "$1" 3600 0 none)" = "0 survived" ] ||
    { cat "$build/logs/0"; give_up "the tests of $1 fail without a mutant"; }
  limit=$((5 * ($(date +%s) - began) + 20))
}

# try <module> <file> <deadline>: tries the mutants of the file with the tests of the module, until the
# deadline, if there is one; the lines of those that survive remain in $build/survivors, of those that are
# not tried in $build/untried.
try() {
  cut -d '|' -f 1,4 "$2" | tr '|' '\n' |
    APIARY_MUTANTS_UNTIL=$3 xargs -r -P "$jobs" -n 2 sh tests/mutants/try.sh "$build" "$1" "$limit" \
      > "$build/tried" || { cat "$build/tried"; give_up "the mutants of $1 cannot be tried"; }
  for fate in survived untried; do
    sed -n "s/ $fate\$/|/p" "$build/tried" > "$build/ids"
    grep -F -f "$build/ids" "$2" > "$build/$fate" || :
  done
}

deadline=
tried=0
killed=0
survived=0
equivalent=0
wrong=0
for module in $modules; do
  module_began=$(date +%s)
  if ! prepare "$module"; then
    echo "$module: not tried, for $minutes minutes have passed"
    continue
  fi
  [ -z "$minutes" ] || deadline=${deadline:-$(($(date +%s) + 60 * minutes))}
  awk -F '|' -v module="$module" '$2 == module' "$build/mutants.txt" > "$build/mutants_of_module"
  try "$module" "$build/mutants_of_module" "$deadline"
  cp "$build/untried" "$build/left_out"
  if [ -n "$all" ]; then
    for other in $every_module; do
      [ "$other" != "$module" ] && [ -s "$build/survived" ] && prepare "$other" || continue
      cp "$build/survived" "$build/left"
      try "$other" "$build/left" "$deadline"
      cat "$build/untried" >> "$build/survived"
      grep -v -F -f "$build/survived" "$build/left" |
        sed "s/^[^|]*|\([^|]*\)|\([^|]*\)|.*/noticed only by the tests of $other: \1 \2/" || :
    done
  fi
  n=$(wc -l < "$build/mutants_of_module")
  late=$(wc -l < "$build/left_out")
  left=$(awk -F '|' '$5 == ""' "$build/survived" | wc -l)
  same=$(awk -F '|' '$5 != ""' "$build/survived" | wc -l)
  awk -F '|' '$5 == "" { print "survived: " $2 " " $3 " (" $4 "): " $6 }' "$build/survived"
  cat "$build/survived" "$build/left_out" |
    awk -F '|' '!second { lives[$1]; next } $5 != "" && !($1 in lives) {
      print "killed, but marked as equivalent: " $2 " " $3 }' - second=1 "$build/mutants_of_module" \
    > "$build/wrong"
  cat "$build/wrong"
  wrong=$((wrong + $(wc -l < "$build/wrong")))
  [ "$late" -eq 0 ] || echo "$module: $late not tried, for $minutes minutes have passed"
  echo "$module: $((n - left - same - late)) killed, $left survived, $same equivalent;" \
    "$(($(date +%s) - module_began)) s"
  tried=$((tried + n - late))
  killed=$((killed + n - left - same - late))
  survived=$((survived + left))
  equivalent=$((equivalent + same))
done
echo "$killed killed, $survived survived, $equivalent equivalent"
[ $((survived + wrong)) -eq 0 ] && [ "$tried" -gt 0 ]
