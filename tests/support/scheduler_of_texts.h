// apiary/tests/support/scheduler_of_texts.h - a gang scheduler whose cluster is described as for Slurm.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../examples/programs/import/slurm_texts.h"
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <string_view>

namespace apiary_test {

// A scheduler of the cluster that a topology.conf and the node lines of a slurm.conf describe.
// Requires: the texts are right.
inline apiary::gang_scheduler scheduler_of(std::string_view topology, std::string_view nodes) {
  return apiary::gang_scheduler::create(example::read_slurm(topology, nodes).value()).value();
}

}  // namespace apiary_test
