// apiary/tests/support/hived_names.h - what runs where in a HiveD cluster, by the names of devices.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

using device_name = std::pair<std::string, std::uint32_t>;  // node and index
using task_devices = std::set<device_name>;                 // of a task; none: it has ended

[[nodiscard]] inline task_devices devices_of(const apiary::hived& h, apiary::hived_placement at) {
  task_devices all;
  for (std::uint64_t m = at.leaves; m != 0; m &= m - 1) {
    const auto position = static_cast<std::uint32_t>(std::countr_zero(m));
    all.insert({h.layout().node_name(at.node), h.layout().device(at.node, position)});
  }
  return all;
}
[[nodiscard]] inline std::vector<task_devices> devices_of(
    const apiary::hived& h, const std::vector<apiary::hived_placement>& tasks) {
  std::vector<task_devices> all;
  for (const apiary::hived_placement at : tasks) all.push_back(devices_of(h, at));
  return all;
}
// Of every task of a gang, in order.
[[nodiscard]] inline std::vector<task_devices> devices_of(const apiary::hived& h,
                                                          const apiary::gang_record& gang) {
  return devices_of(h, h.tasks(gang));
}
[[nodiscard]] inline std::set<device_name> all_devices(const apiary::hived& h) {
  std::set<device_name> all;
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n) {
    const apiary::node_id node(n);
    const apiary::chain_layout& in = h.layout().chain(h.layout().chain_of(node));
    for (std::uint32_t i = 0; i < in.tree.leaves_per_cell(in.node_level); ++i)
      all.insert({h.layout().node_name(node), h.layout().device(node, i)});
  }
  return all;
}
// Of each task the devices that are there.
[[nodiscard]] inline std::vector<task_devices> those_there(std::vector<task_devices> tasks,
                                                           const std::set<device_name>& present) {
  for (task_devices& task : tasks)
    std::erase_if(task, [&](const device_name& d) { return !present.contains(d); });
  return tasks;
}
// Whether a device of a task is left.
[[nodiscard]] inline bool any_device(const std::vector<task_devices>& tasks) {
  return std::any_of(tasks.begin(), tasks.end(), [](const auto& task) { return !task.empty(); });
}

// The places of tasks in a configuration; devices that are not there are left out.
[[nodiscard]] inline std::vector<apiary::hived_placement> placements_of(
    const apiary::hived& h, const std::vector<task_devices>& tasks) {
  std::vector<apiary::hived_placement> all;
  for (const task_devices& task : tasks) {
    apiary::hived_placement& at = all.emplace_back();
    for (const auto& [name, index] : task) {
      const apiary::chain_leaf leaf = h.catalog().find_leaf(name, index);
      if (!leaf.leaf.valid()) continue;
      const apiary::hived_placement there = h.catalog().placement_of(leaf);
      at.node = there.node;
      at.leaves |= there.leaves;
    }
  }
  return all;
}

// Marks in one scheduler what is bad in another one of the same configuration.
inline void copy_health(const apiary::hived& from, apiary::hived& to) {
  for (std::uint32_t n = 0; n < from.layout().num_nodes(); ++n) {
    const apiary::node_id node(n);
    const apiary::chain_id c = from.layout().chain_of(node);
    const auto inside = from.layout().chain(c).tree.descendants(from.layout().node_cell(node), 0);
    for (std::uint32_t i = 0; i < inside.size(); ++i) {
      if (!from.cells().chain(c.value).healthy().healthy(inside[i]))
        REQUIRE(to.mark_bad(node, i).ok());
    }
  }
}

}  // namespace apiary_test
