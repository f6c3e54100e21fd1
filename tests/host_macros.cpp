// apiary/tests/host_macros.cpp - a host's own APIARY_VERIFY and APIARY_ASSERT replace ours.
// SPDX-License-Identifier: MIT
namespace {
int verify_failures = 0;
int assert_failures = 0;
}  // namespace

#define APIARY_VERIFY(condition) \
  ((condition) ? static_cast<void>(0) : static_cast<void>(++verify_failures))
#define APIARY_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : static_cast<void>(++assert_failures))
#include <apiary/core/ids.h>

int main() {
  const apiary::id_range<apiary::cell_id> none;
  static_cast<void>(none[0]);
  APIARY_VERIFY(none.size() == 1);
  return verify_failures == 1 && assert_failures == 1 ? 0 : 1;
}
