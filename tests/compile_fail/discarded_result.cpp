// apiary/tests/compile_fail/discarded_result.cpp - a query whose answer is not read is a mistake.
// SPDX-License-Identifier: MIT
// EXPECT: nodiscard
#include <apiary/container/bitset.h>

#pragma GCC diagnostic error "-Wunused-result"

bool any(const apiary::summary_bitset& set) {
#if BAD
  set.any();
#endif
  return set.any();
}
