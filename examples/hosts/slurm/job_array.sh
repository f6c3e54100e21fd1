#!/bin/sh
# apiary/examples/hosts/slurm/job_array.sh - a sweep of simulate and of replay as job arrays of a real Slurm.
# SPDX-License-Identifier: MIT
#
# sh job_array.sh SIMULATE REPLAY   the two programs that CMake builds: build/examples/examples/simulate ...
#
# Submits one array for each program; each element runs one line of the file of runs, and all elements
# append to one CSV file while others do. Then the program runs the same file on this machine alone, two
# runs at a time. Ends with 0 if each array has written the header once and one row for each run, and the
# rows are those of this machine; with 77 where Slurm is not installed.
set -u
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
simulate=$1
replay=$2
. "$here/cluster.sh"
need_slurm
tidy_up_at_end :

fail() {
  echo "FAILED: $1"
  exit 2
}
folder=$(folder_for_cluster) || exit 3
start_cluster "$folder" || fail "Slurm does not start"

# ended_array ID: no element of the array waits or runs.
ended_array() { left=$(timeout 5 squeue -h -j "$1" -o %T) && [ -z "$left" ]; }

# sweep NAME PROGRAM: the lines of $folder/NAME.runs.
sweep() {
  runs=$folder/$1.runs
  results=$folder/$1.csv
  # Lines that begin with # are no runs; elements are numbered from 0, as the runs are.
  count=$(grep -c '^[^#]' "$runs")
  # Four processors for each element, so that the elements are on several nodes.
  id=$(sbatch --parsable -c 4 -J "$1" -o "$folder/$1.%a.out" --array=0-$((count - 1)) \
    --wrap "exec \"$2\" --sweep \"$runs\" --results \"$results\" --index \$SLURM_ARRAY_TASK_ID") ||
    fail "sbatch refuses the array"
  wait_until 120 ended_array "$id" || fail "the array of $1 does not end"
  cat "$folder/$1".*.out  # what an element that failed has said
  "$2" --sweep "$runs" --results "$folder/$1.alone.csv" -j 2 || fail "the sweep of $1 on this machine"
  nodes=$(sed -n "s/.*JobId=.* Name=$1 .*JobState=COMPLETED .*NodeList=\([^ ]*\) .*/\1/p" "$folder/log/jobcomp")
  elements=$(echo "$nodes" | wc -l)
  used=$(echo "$nodes" | sort -u | wc -l)
  header=$(head -n 1 "$results")
  echo "$1: $count runs, $elements elements completed on $used nodes, $(($(wc -l < "$results") - 1)) rows"
  [ "$used" -gt 1 ] || fail "all elements ran on one node"
  [ "$elements" -eq "$count" ] || fail "an element did not complete"
  [ "$(grep -cxF "$header" "$results")" -eq 1 ] || fail "the header is there more than once"
  sort "$results" > "$folder/rows"
  sort "$folder/$1.alone.csv" | cmp "$folder/rows" - || fail "the rows differ from those of this machine"
  # The run is the number in front: each number once.
  [ "$(sed 1d "$results" | cut -d, -f1 | sort -n | uniq | wc -l)" -eq "$count" ] || fail "a run has no row"
}

{
  echo "# policies, quanta and traces"
  for seed in 1 2 3 4; do
    echo "--policy backfill --seed $seed"
    echo "--policy las --seed $seed --quantum 300"
    echo "--policy las --seed $seed --quantum 1200"
    echo "--policy bounded --seed $seed --quantum 300"
  done
} > "$folder/simulate.runs"
for policy in prices fgd best_fit random; do
  for seed in 1 2; do echo "--policy $policy --seed $seed"; done
done > "$folder/replay.runs"
sweep simulate "$simulate"
sweep replay "$replay"
