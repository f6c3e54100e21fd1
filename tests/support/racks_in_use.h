// apiary/tests/support/racks_in_use.h - racks of shared GPUs in use, and gangs that each want one of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace apiary_test {

// 1,100 tasks arrive at 128 nodes of eight GPUs in eight racks. Then come 40 gangs of six groups with CPU,
// each for one rack.
struct racks_in_use {
  using scheduler_type = apiary::gang_sharing_scheduler<apiary::fragmentation_gradient>;
  static constexpr std::uint32_t num_racks = 8, nodes_in_rack = 16;

  apiary::uniform_tree racks{num_racks, nodes_in_rack};
  scheduler_type scheduler = idle();
  std::vector<apiary::topology_constraints> gangs{};

  racks_in_use() {
    constexpr apiary::milli_gpu sizes[] = {250, 400, 500, 700, 1000};
    apiary::rng random(71);
    for (std::uint32_t job = 0; job < 1'100; ++job) {
      const apiary::task_request task{.job = apiary::job_id(job),
                                      .cpu_milli = 2'000 + random.uniform(8'000),
                                      .memory_mib = 4'096,
                                      .gpus = 1,
                                      .gpu_milli = sizes[random.uniform(5)]};
      const apiary::task_plan plan = scheduler.propose(task).value();
      if (plan.result == apiary::plan_result::bind)
        APIARY_VERIFY(scheduler.commit(task, plan).ok());
    }
    gangs.resize(40);
    for (apiary::topology_constraints& gang : gangs) {
      for (int m = 0; m < 6; ++m)
        gang.groups.push_back({.tasks = 1 + random.uniform(3),
                               .gpus = 1,
                               .host = {1'000 + random.uniform(6'000), 1'024},
                               .gpu_milli = sizes[random.uniform(5)]});
      gang.required = 1;
    }
  }

 private:
  [[nodiscard]] static scheduler_type idle() {
    apiary::node_table nodes;
    for (std::uint32_t n = 0; n < num_racks * nodes_in_rack; ++n)
      nodes.add({{96'000, 786'432}, 8, 0});
    const apiary::task_mix mix({{{.cpu_milli = 1, .gpus = 1, .gpu_milli = 500}, 6},
                                {{.cpu_milli = 2, .gpus = 1, .gpu_milli = 1000}, 4}});
    return scheduler_type::create(std::move(nodes),
                                  apiary::fragmentation_gradient(apiary::fragmentation(mix)))
        .value();
  }
};

}  // namespace apiary_test
