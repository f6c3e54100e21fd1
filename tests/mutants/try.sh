#!/bin/sh
# apiary/tests/mutants/try.sh - runs the tests of one module with one mutant; tests/mutate.sh calls it.
# SPDX-License-Identifier: MIT
#
# sh try.sh BUILD MODULE SECONDS ID HEADER
#
# Runs first the tests of HEADER alone, which end sooner than all. Prints "ID killed" or "ID survived". A
# test that fails, crashes or takes longer than SECONDS kills the mutant. If the program does not start,
# prints why, and ends with 255. ID 0 is no mutant. If APIARY_MUTANTS_UNTIL is a time in seconds that has
# passed, prints "ID untried".
build=$1
module=$2
seconds=$3
export APIARY_MUTANT="$4"
if [ -n "${APIARY_MUTANTS_UNTIL:-}" ] && [ "$(date +%s)" -ge "$APIARY_MUTANTS_UNTIL" ]; then
  echo "$APIARY_MUTANT untried"
  exit
fi
ulimit -v 8000000  # kilobytes: a mutant may allocate without end

# passes ARGUMENT...: whether the tests that the arguments select pass.
passes() {
  timeout -k 5 "$seconds" "$build/tree_build/tests/${module}_tests" --abort-after=1 "$@" \
    > "$build/logs/$APIARY_MUTANT" 2>&1 && return
  status=$?
  case $status in
    125 | 126 | 127)
      cat "$build/logs/$APIARY_MUTANT"
      echo "the tests of $module do not start: status $status"
      exit 255
      ;;
  esac
  return "$status"
}

stem=$(basename "$5" .h)
stem=${stem%_inl}_test.cpp
if [ -n "$(find "$build/tree/tests/$module" -name "$stem")" ] &&
   ! passes "--source-file=*/$stem"; then
  echo "$APIARY_MUTANT killed"
elif passes; then
  echo "$APIARY_MUTANT survived"
else
  echo "$APIARY_MUTANT killed"
fi
