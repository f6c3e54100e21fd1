// apiary/hived/hived_config.h - the configuration of a cluster and its tenants.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

APIARY_NAMESPACE_BEGIN

// These structs have the schema of the open-source scheduler (microsoft/hivedscheduler); comments
// give its field names. hived_layout::create checks them.
// Example: examples/hived_config.cpp

// A cell type and its children. A type that occurs only as a child is a leaf: a GPU.
struct cell_type_config {
  std::string name{};             // the name of the type
  std::string child_type{};       // childCellType
  std::uint32_t child_count = 0;  // childCellNumber
  bool is_node = false;           // isNodeLevel
};

// A physical cell. If no children are listed, all exist.
struct physical_cell_config {
  std::string type{};       // cellType; a child may leave it out
  std::string address{};    // cellAddress: a node's name, a device's index in its node
  std::string pinned_id{};  // pinnedCellId; empty: not pinned
  std::vector<physical_cell_config> children{};  // cellChildren: none, or all of them
};

// Cells that a tenant owns, wherever they are: "RACK.NODE" is any node of a rack.
struct virtual_cell_config {
  std::string type{};       // cellType, qualified: from a type of physicalCells down
  std::uint32_t count = 0;  // cellNumber
};

// A tenant and its cells.
struct virtual_cluster_config {
  std::string name{};                        // the name of the tenant
  std::vector<virtual_cell_config> cells{};  // virtualCells
  std::vector<std::string> pinned_ids{};     // pinnedCells
};

// The whole configuration.
struct hived_config {
  std::vector<cell_type_config> cell_types{};              // physicalCluster.cellTypes
  std::vector<physical_cell_config> physical_cells{};      // physicalCluster.physicalCells
  std::vector<virtual_cluster_config> virtual_clusters{};  // virtualClusters
};

// What hived::reconfigure() did to the gangs.
struct hived_reconfiguration {
  std::vector<job_id> downgraded{};  // lost their guaranteed cells, run as opportunistic
  std::vector<job_id> restored{};    // got lost guaranteed cells back
  std::vector<job_id> cancelled{};   // were preempting, must be proposed again
  std::vector<job_id> shrunk{};      // run on, but some leaves no longer exist
  std::vector<job_id> gone{};        // no leaf exists any more; forgotten
};

using chain_id = id<struct chain_tag>;  // a chain (all cells of one root type)

// A chain: all physical cells of one root type, as trees in the order of the configuration.
struct chain_layout {
  static constexpr std::uint32_t max_node_leaves = 64;  // the bits of hived_placement::leaves

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

namespace detail {
struct name_hash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>()(name);
  }
};
using name_index = std::unordered_map<std::string, std::uint32_t, name_hash, std::equal_to<>>;
}  // namespace detail
APIARY_NAMESPACE_END
