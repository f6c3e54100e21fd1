// apiary/gang/tasks_on_node.h - the tasks of a gang on each node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The tasks of one task group on one node.
struct tasks_on_node {
  std::uint32_t node = 0;   // index of the node
  std::uint32_t group = 0;  // index of the task group
  std::uint32_t tasks = 0;  // how many of its tasks
  friend bool operator==(const tasks_on_node&, const tasks_on_node&) = default;
};

APIARY_NAMESPACE_END
