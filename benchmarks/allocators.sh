#!/bin/sh
# apiary/benchmarks/allocators.sh - measures all allocators of cells; renews the tables and the picture of the pages.
# SPDX-License-Identifier: MIT
#
# sh benchmarks/allocators.sh               builds compare_allocators, runs it, renews the pages
# sh benchmarks/allocators.sh argument...   builds it, runs it with more arguments (--quick, to try it);
#                                           leaves the pages alone
#
# A line of a page that is the title of a printed table is followed by this table. The build is kept in
# build/bench, or where the environment variable APIARY_BUILD_DIR says, and with arguments the picture, too.
# Let the machine do nothing else.
set -eu
unset CDPATH
source=$(cd "$(dirname "$0")/.." && pwd)
build=${APIARY_BUILD_DIR:-$source/build/bench}

cmake -G Ninja -S "$source" -B "$build" -DAPIARY_BUILD_TESTS=OFF -DAPIARY_BUILD_EXAMPLES=OFF >&2
cmake --build "$build" --target compare_allocators >&2
picture=$source/.github/allocators.svg
[ $# -eq 0 ] || picture=$build/allocators.svg
"$build/benchmarks/compare_allocators" --times --requests 200000 --picture "$picture" "$@" \
  > "$build/allocators.txt"
cat "$build/allocators.txt"
[ $# -eq 0 ] || { echo "the pages stay as they are; the picture: $picture" >&2; exit; }

for page in benchmarks/README.md include/apiary/alloc/README.md; do
  awk '
    FNR == NR { if (/^\|/) tables[title] = tables[title] $0 "\n"; else if ($0 != "") title = $0; next }
    $0 in tables { print; wanted = $0; next }
    wanted != "" && /^\|/ { if (!printed[wanted]++) printf "%s", tables[wanted]; next }
    $0 != "" { wanted = "" }
    { print }' "$build/allocators.txt" "$source/$page" > "$build/page.md"
  cp "$build/page.md" "$source/$page"
  echo "renewed: $page" >&2
done
