// apiary/gang/gang_portion.h - the tasks of a gang on each node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A number of tasks of a task group on a node. `member` is the index of the task group.
struct gang_portion {
  std::uint32_t node = 0;    // index of the node
  std::uint32_t member = 0;  // index of the task group
  std::uint32_t tasks = 0;   // how many of its tasks
  friend bool operator==(const gang_portion&, const gang_portion&) = default;
};

// Sorts portions by task group, then node, and merges those of one group on one node.
inline void sort_portions(std::vector<gang_portion>& portions) {
  std::sort(portions.begin(), portions.end(), [](const gang_portion& a, const gang_portion& b) {
    return a.member != b.member ? a.member < b.member : a.node < b.node;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < portions.size(); ++i) {
    if (kept > 0 && portions[kept - 1].member == portions[i].member &&
        portions[kept - 1].node == portions[i].node) {
      portions[kept - 1].tasks += portions[i].tasks;
    } else {
      portions[kept++] = portions[i];
    }
  }
  portions.resize(kept);
}

// Turns portions of co-located groups into portions of task groups: the tasks of merged task groups
// follow one after another, each in the order of the nodes, together with the tasks that they lead.
// The result is sorted.
//
// Requires: the portions name co-located groups as members and contain every task once; `groups`
//           are those of `gang`.
// Cost:     O(portions * (log portions + groups)).
inline void portions_of_members(const topology_constraints& gang, const colocated_groups& groups,
                                std::vector<gang_portion>& portions,
                                std::vector<gang_portion>& scratch) {
  sort_portions(portions);
  scratch.swap(portions);
  portions.clear();
  const auto put = [&](std::uint32_t node, std::uint32_t leader, std::uint32_t n) {
    portions.push_back({node, leader, n});
    for (std::uint32_t m = 0; m < gang.members.size(); ++m) {
      if (gang.members[m].leader != leader || gang.members[m].tasks == 0) continue;
      portions.push_back({node, m, n * (gang.members[m].tasks / gang.members[leader].tasks)});
    }
  };
  std::uint32_t member = 0;
  std::uint32_t done = 0;  // of its tasks
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    const std::uint32_t kind = scratch[i].member;
    if (i == 0 || scratch[i - 1].member != kind) {
      member = groups[kind].member;
      done = 0;
    }
    for (std::uint32_t left = scratch[i].tasks; left > 0;) {
      while (groups.group_of(member) != kind || done == gang.members[member].tasks) {
        ++member;
        done = 0;
      }
      const std::uint32_t n = (std::min)(left, gang.members[member].tasks - done);
      put(scratch[i].node, member, n);
      done += n;
      left -= n;
    }
  }
  sort_portions(portions);
}

APIARY_NAMESPACE_END
