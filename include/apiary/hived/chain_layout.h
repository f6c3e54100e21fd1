// apiary/hived/chain_layout.h - the physical cells of a HiveD configuration, as trees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

using chain_id = id<struct chain_tag>;  // a chain (all cells of one root type)

// A chain: all physical cells of one root type, as trees in the order of the configuration.
struct chain_layout {
  std::string name{};                           // the type of the roots
  uniform_tree tree{1};                         // the cells
  std::vector<std::string> level_types{};       // from the leaves up
  level_t node_level = 0;                       // level of the nodes
  std::uint32_t first_node = 0;                 // the node_id of the first node
  std::vector<std::string> node_names{};        // in order
  std::vector<std::uint32_t> device_of_leaf{};  // device index of each leaf in its node
};

// A cell that the configuration pins.
struct pinned_layout {
  std::string id{};    // its name in the configuration
  chain_id chain{};    // the chain of the cell
  cell_id cell{};      // the physical cell
  tenant_id tenant{};  // not valid: pinned for no tenant, an ordinary cell
};

// The cells that a tenant owns, without its pinned cells.
struct tenant_layout {
  std::string name{};                               // the name of the tenant
  std::vector<std::vector<std::uint32_t>> quota{};  // number of cells by chain and level
};

APIARY_NAMESPACE_END
