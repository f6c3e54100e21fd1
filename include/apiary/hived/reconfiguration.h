// apiary/hived/reconfiguration.h - what becomes of gangs in another configuration.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <vector>

APIARY_NAMESPACE_BEGIN

// What became of the gangs in a new configuration.
struct hived_reconfiguration {
  std::vector<job_id> downgraded{};  // lost their tenant's cells, run on as opportunistic
  std::vector<job_id> restored{};    // had lost them before, and have them again
  std::vector<job_id> cancelled{};   // were preempting, wait again
  std::vector<job_id> shrunk{};      // run on, but some of their leaves exist no more
  std::vector<job_id> gone{};        // none of their leaves exists any more, they are forgotten
};

APIARY_NAMESPACE_END
