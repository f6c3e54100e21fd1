// apiary/tests/compile_fail/constraints_without_search.cpp - HiveD's constraints need their header.
// SPDX-License-Identifier: MIT
// EXPECT: include apiary/hived/constraints.h to set constraints
#if !BAD
#include <apiary/hived/constraints.h>
#endif
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>

apiary::gang_request in_one_rack(apiary::job_id job) {
  return {.job = job, .groups = {{2, 4}}, .constraints = {{.required = 2}}};
}
