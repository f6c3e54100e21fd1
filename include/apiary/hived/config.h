// apiary/hived/config.h - a cluster and its tenants, as users of HiveD write them down.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The schema of the open-source scheduler (microsoft/hivedscheduler), field by field; the names of
// that schema stand behind the fields. Nothing is checked here: hived/layout.h does.
// Example: examples/hived_config.cpp

// A type of cell and what it is made of. A type that is only named as a child is a leaf: a device.
struct cell_type_config {
  std::string name{};
  std::string child_type{};       // childCellType
  std::uint32_t child_count = 0;  // childCellNumber
  bool is_node = false;           // isNodeLevel
};

// A cell that exists. Children that are not written down exist all the same.
struct physical_cell_config {
  std::string type{};       // cellType; a child may leave it out
  std::string address{};    // cellAddress: a node's name, a device's index in its node
  std::string pinned_id{};  // pinnedCellId; empty: not pinned
  std::vector<physical_cell_config> children{};  // cellChildren: none, or all of them
};

// Cells that a tenant owns wherever they are: "RACK.NODE" is any node of the racks.
struct virtual_cell_config {
  std::string type{};       // cellType, qualified: from a type of physicalCells down
  std::uint32_t count = 0;  // cellNumber
};

struct virtual_cluster_config {
  std::string name{};
  std::vector<virtual_cell_config> cells{};  // virtualCells
  std::vector<std::string> pinned_ids{};     // pinnedCells
};

struct hived_config {
  std::vector<cell_type_config> cell_types{};              // physicalCluster.cellTypes
  std::vector<physical_cell_config> physical_cells{};      // physicalCluster.physicalCells
  std::vector<virtual_cluster_config> virtual_clusters{};  // virtualClusters
};

APIARY_NAMESPACE_END
