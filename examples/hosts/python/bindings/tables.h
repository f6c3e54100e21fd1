// The tables of nodes and tasks that Python fills and reads as arrays.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <cstdint>
#include <string>
#include <vector>

namespace apiary_python {

// Nodes; their names if they come from a file.
struct named_nodes {
  apiary::node_table nodes{};
  std::vector<std::string> names{};
};

// Tasks in order of arrival. Names are those of a file.
struct task_table {
  std::vector<apiary::task_request> requests{};
  std::vector<std::uint32_t> specs{};  // as apiary::task_kind::spec
  std::vector<std::string> names{};
};

}  // namespace apiary_python
