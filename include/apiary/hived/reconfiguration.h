// apiary/hived/reconfiguration.h - what a change of the configuration did to the gangs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <vector>

APIARY_NAMESPACE_BEGIN

// What hived::reconfigure() did to the gangs.
struct hived_reconfiguration {
  std::vector<job_id> downgraded{};  // lost their guaranteed cells, run as opportunistic
  std::vector<job_id> restored{};    // got lost guaranteed cells back
  std::vector<job_id> cancelled{};   // were preempting, must be proposed again
  std::vector<job_id> shrunk{};      // run on, but some leaves no longer exist
  std::vector<job_id> gone{};        // no leaf exists any more; forgotten
};

APIARY_NAMESPACE_END
