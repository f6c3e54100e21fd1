// apiary/tests/compile_fail/id_from_number.cpp - a number becomes an id only when asked to.
// SPDX-License-Identifier: MIT
// EXPECT: could not convert|no viable conversion
#include <apiary/core/ids.h>

apiary::job_id next(unsigned number) {
#if BAD
  return number;
#else
  return apiary::job_id(number);
#endif
}
