// apiary/tests/abort/assert.cpp - a caller's bug stops our own programs, which keep asserts on.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: i < size_ does not hold
#include <apiary/container/bitset.h>

int main(int argc, char** /*argv*/) {
  const apiary::summary_bitset set(64);
  return set.test(63U + static_cast<unsigned>(argc)) ? 2 : 0;
}
