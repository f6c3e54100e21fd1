// apiary/gang_scheduler/detail/step_prices.h - the steps that a decision takes for what it reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// How many steps of a budget the work of a decision counts as that is not a step of a search. A step
// takes at most a microsecond, whatever the gang and the cluster are. Prices are rounded down, so that
// work on a small gang in a small cluster is free.
struct step_prices {
  // To check and copy a gang.
  [[nodiscard]] static std::uint64_t of_gang(const topology_constraints& gang) noexcept {
    return gang.groups.size() / 32;
  }
  // To write the placements of its tasks. Cost: O(groups).
  [[nodiscard]] static std::uint64_t of_placements(const topology_constraints& gang,
                                                   std::uint64_t nodes) noexcept {
    std::uint64_t looks = 0;
    for (const constrained_task_group& m : gang.groups)
      looks +=
          std::uint64_t{m.tasks} * (1 + m.gpus / 8) + 4 * (std::min)(std::uint64_t{m.tasks}, nodes);
    return looks / 32;
  }
  // What topology_fit reads besides its own steps: the task groups, and at each level that it tries the
  // cells, or the nodes if more than the number of GPUs decides what fits. Cost: O(groups).
  [[nodiscard]] static std::uint64_t of_fit(const capacity_index<ragged_tree>& capacities,
                                            const topology_constraints& gang,
                                            bool with_hosts) noexcept {
    const auto by_node = [](const constrained_task_group& m) {
      return m.gpus == 0 || m.leader != no_task_group;
    };
    const bool nodes = with_hosts || std::any_of(gang.groups.begin(), gang.groups.end(), by_node);
    const bool below = !only_gpus(gang);
    const level_t last = (std::min)(gang.required, capacities.top());
    std::uint64_t looks = 0;
    for (level_t l = (std::min)(gang.preferred, last); l <= last; ++l) {
      if (nodes) {
        looks += std::uint64_t{capacities.num_nodes()} * (l == 0 ? 8 : 2);
      } else if (l > 0) {
        looks += std::uint64_t{capacities.num_cells(below ? 1 : l)} * capacities.max_free();
      }
    }
    return gang.groups.size() / 12 + looks / 1'024;
  }
  // Whether all tasks need GPUs, and have no constraints of their own.
  [[nodiscard]] static bool only_gpus(const topology_constraints& gang) noexcept {
    return std::all_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
      return m.gpus > 0 && m.slices.empty() && m.spread.empty() && m.leader == no_task_group;
    });
  }
  // Whether CPU and memory count for the gang.
  [[nodiscard]] static bool hosted(const topology_constraints& gang) noexcept {
    return std::any_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
      return m.tasks > 0 && !(m.host == resources{});
    });
  }
  // To copy so many nodes into a cluster of their own.
  [[nodiscard]] static std::uint64_t of_excerpt(std::uint64_t nodes) noexcept { return nodes / 8; }
  // To evict gangs from so many nodes, and to take that back; or to change nodes twice.
  [[nodiscard]] static std::uint64_t of_changes(std::uint64_t nodes) noexcept { return nodes / 4; }
};

}  // namespace detail
APIARY_NAMESPACE_END
