// The gang that both schedulers of gangs take from Python.
// SPDX-License-Identifier: MIT
#pragma once

#include "bindings.h"
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace apiary_python {

// A gang: `groups` lists how many tasks want how many GPUs.
struct gang {
  std::uint32_t job = 0;
  std::string tenant{};
  std::int32_t priority = 0;
  std::vector<apiary::task_group> groups{};
  std::vector<apiary::resources> host{};  // of each task, by group
  std::optional<std::string> required{};  // all tasks in one cell of this level
  std::uint32_t max_per_node = 0;         // tasks of a group on a node; 0: no limit
  std::string model{};                    // of the GPUs; empty: any

  // The number of tasks of all groups.
  [[nodiscard]] std::size_t tasks() const noexcept {
    std::size_t all = 0;
    for (const apiary::task_group& group : groups) all += group.tasks;
    return all;
  }
};

// The ids of jobs as a list.
template <class Jobs, class Number>
[[nodiscard]] std::vector<std::uint64_t> numbers_of(const Jobs& jobs, Number number) {
  std::vector<std::uint64_t> all;
  for (const auto& job : jobs) all.push_back(number(job));
  return all;
}

}  // namespace apiary_python
