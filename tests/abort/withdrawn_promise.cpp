// apiary/tests/abort/withdrawn_promise.cpp - more promises are taken back than were made.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: promises\.count <= promised_\[promises\.level\] does not hold
#include <apiary/alloc/safe_buddy_allocator.h>
#include <apiary/model/uniform_tree.h>

int main() {
  apiary::safe_buddy_allocator cells(apiary::uniform_tree({2, 4}));
  if (!cells.promise({.level = 1, .count = 1})) return 1;
  cells.withdraw({.level = 1, .count = 2});
  return 0;
}
