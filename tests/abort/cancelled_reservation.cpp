// apiary/tests/abort/cancelled_reservation.cpp - cancelling more reservations than there are.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: count <= reserved_\[level\] does not hold
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/topology/uniform_tree.h>

int main() {
  apiary::reserving_buddy_allocator cells(apiary::uniform_tree({2, 4}));
  if (!cells.reserve(1, 1)) return 1;
  cells.cancel_reservation(1, 2);
  return 0;
}
