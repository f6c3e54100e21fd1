// Finds the nodes, devices and gangs that events name, and replaces ids by names in messages.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_event.h"
#include "hived_session_json.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace example {

inline absl::Status missing(const std::string& field) {
  return absl::InvalidArgumentError(field + ": is missing");
}
inline absl::Status unknown(const std::string& what, const std::string& name) {
  return absl::NotFoundError("there is no " + what + ' ' + json_text(name));
}
// The error with the names of gangs instead of their ids, where each gang is first mentioned.
inline absl::Status by_name(const absl::Status& status,
                            std::vector<std::pair<apiary::job_id, std::string>> gangs) {
  const std::string message(status.message());
  const std::string word = "gang ";
  std::string named;
  std::size_t done = 0;
  for (std::size_t at = message.find(word); at != std::string::npos;
       at = message.find(word, done)) {
    const std::size_t digits = at + word.size();
    std::uint32_t id = 0;
    const char* const last = message.data() + message.size();
    const std::from_chars_result read = std::from_chars(message.data() + digits, last, id);
    const auto gang = std::find_if(gangs.begin(), gangs.end(), [&](const auto& g) {
      return read.ec == std::errc() && g.first.value == id;
    });
    named.append(message, done, digits - done);
    done = digits;
    if (gang == gangs.end()) continue;
    named += json_text(gang->second);
    done = static_cast<std::size_t>(read.ptr - message.data());
    gangs.erase(gang);
  }
  named.append(message, done);
  return {status.code(), named};
}

inline std::uint64_t num_tasks(const std::vector<apiary::task_group>& members) {
  std::uint64_t n = 0;
  for (const apiary::task_group& m : members) n += m.tasks;
  return n;
}
inline absl::StatusOr<apiary::node_id> node_of(const apiary::hived_layout& layout,
                                               const std::string& name) {
  if (name.empty()) return missing("node");
  const auto node = layout.find_node(name);
  if (!node) return unknown("node", name);
  return *node;
}
// The node of a host where most of these devices are: a host in several chains has several nodes.
inline std::optional<apiary::node_id> node_with(const apiary::hived_layout& layout,
                                                const std::string& name,
                                                const std::vector<std::uint32_t>& devices) {
  const auto first = layout.find_node(name);
  if (!first) return std::nullopt;
  const auto found_in = [&](apiary::node_id n) {
    return std::count_if(devices.begin(), devices.end(), [&](std::uint32_t device) {
      return layout.find_position(n, device).has_value();
    });
  };
  apiary::node_id best = *first;
  for (auto n = layout.next_of_host(*first); n != *first; n = layout.next_of_host(n))
    if (found_in(n) > found_in(best)) best = n;
  return best;
}
// The nodes with these names. Unknown names are ignored, because they may belong to another scheduler.
inline apiary::summary_bitset nodes_of(const apiary::hived_layout& layout,
                                       const std::vector<std::string>& names) {
  apiary::summary_bitset nodes(layout.num_nodes());
  for (const std::string& name : names) {
    const auto first = layout.find_node(name);
    if (!first) continue;
    nodes.set(first->value);
    for (auto n = layout.next_of_host(*first); n != *first; n = layout.next_of_host(n))
      nodes.set(n.value);
  }
  return nodes;
}

// Converts pods to tasks. Nodes and devices that the configuration lacks are left out.
inline absl::StatusOr<std::vector<apiary::hived_placement>> placements_of(
    const apiary::hived_layout& layout, const std::vector<session_place>& pods) {
  std::vector<apiary::hived_placement> tasks;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    apiary::hived_placement& task = tasks.emplace_back();
    const auto node = node_with(layout, pods[i].node, pods[i].devices);
    if (!node) continue;
    task.node = *node;
    for (const std::uint32_t device : pods[i].devices) {
      const auto position = layout.find_position(*node, device);
      if (!position) continue;
      const std::uint64_t bit = std::uint64_t{1} << *position;
      if ((task.leaves & bit) != 0) {
        return absl::InvalidArgumentError("pods[" + std::to_string(i) + "].devices: " +
                                          std::to_string(device) + " appears twice");
      }
      task.leaves |= bit;
    }
  }
  return tasks;
}
// The devices of pods that the configuration lacks, for hived::recover; those with a node only.
// Requires: tasks = placements_of(layout, pods); as many pods as the members have.
inline std::vector<apiary::gang_record::missing_leaf> missing_of(
    const apiary::hived_layout& layout, const std::vector<apiary::task_group>& members,
    const std::vector<session_place>& pods, const std::vector<apiary::hived_placement>& tasks) {
  std::vector<apiary::gang_record::missing_leaf> missing;
  std::size_t t = 0;
  std::uint32_t first = 0;
  for (const apiary::task_group& m : members) {
    for (std::uint32_t i = 0; i < m.tasks; ++i, ++t, first += m.gpus) {
      const auto node = node_with(layout, pods[t].node, pods[t].devices);
      auto next = first + static_cast<std::uint32_t>(std::popcount(tasks[t].leaves));
      for (const std::uint32_t device : pods[t].devices) {
        const bool there = node && layout.find_position(*node, device);
        if (!there && next < first + m.gpus && !pods[t].node.empty())
          missing.push_back({next++, pods[t].node, device});
      }
    }
  }
  return missing;
}
// The levels of the whole cells around the devices of placements_of, for each task by position; empty if
// the host gives none.
inline absl::StatusOr<std::vector<apiary::level_t>> levels_of(
    const apiary::hived_layout& layout, const std::vector<session_place>& pods) {
  std::vector<apiary::level_t> levels;
  if (std::all_of(pods.begin(), pods.end(),
                  [](const session_place& pod) { return pod.whole_cells.empty(); }))
    return levels;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const session_place& pod = pods[i];
    if (pod.devices.empty()) continue;
    const std::string path = "pods[" + std::to_string(i) + "].wholeCell";
    const std::size_t known = pod.whole_cells.size();
    if (known == 0) return missing(path);
    if (known != 1 && known != pod.devices.size()) {
      return absl::InvalidArgumentError(path + ": " + std::to_string(known) + " levels for " +
                                        std::to_string(pod.devices.size()) + " devices");
    }
    const auto node = node_with(layout, pod.node, pod.devices);
    if (!node) continue;
    std::vector<std::pair<std::uint32_t, apiary::level_t>> by_position;
    for (std::size_t d = 0; d < pod.devices.size(); ++d) {
      if (const auto position = layout.find_position(*node, pod.devices[d]))
        by_position.emplace_back(*position, pod.whole_cells[known == 1 ? 0 : d]);
    }
    std::sort(by_position.begin(), by_position.end());
    for (const auto& [position, level] : by_position) levels.push_back(level);
  }
  return levels;
}

}  // namespace example
