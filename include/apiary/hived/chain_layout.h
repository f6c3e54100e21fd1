// apiary/hived/chain_layout.h - the physical cells of a HiveD configuration, as trees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

using chain_id = id<struct chain_tag>;  // a chain of a hived_layout

// All physical cells of one type, with all they are made of: a tree whose roots they are, in the
// order of the document.
struct chain_layout {
  std::string name{};  // the type of the roots
  uniform_tree tree{1};
  std::vector<std::string> level_types{};  // from the leaf up
  level_t node_level = 0;
  std::uint32_t first_node = 0;                 // the node_id of the leftmost node
  std::vector<std::string> node_names{};        // from left to right
  std::vector<std::uint32_t> device_of_leaf{};  // its index in its node, from left to right
};

// A cell that the document pins, for a tenant or for nobody.
struct pinned_layout {
  std::string id{};
  chain_id chain{};
  cell_id cell{};
  tenant_id tenant{};  // not valid: nobody's, a cell as any other
};

// What is promised to a tenant, pinned cells apart.
struct tenant_layout {
  std::string name{};
  std::vector<std::vector<std::uint32_t>> quota{};  // cells by chain and level
};

APIARY_NAMESPACE_END
