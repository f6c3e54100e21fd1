// apiary/examples/programs/import/hived_cells.h - the cells of a cluster for HiveD, and HiveD's YAML as text.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../text/json.h"
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace example {

// Makes the physical cells of a HiveD cluster: one cell type for each shape of a rack, a block, ...
// HiveD's cells are uniform: all children of a cell have one type. Nodes without GPUs are left out.
class hived_cells {
 public:
  // A configuration without tenants. kInvalidArgument: the cells whose children differ, one on each
  // line, with what differs, and GPU models and levels with a dot, which HiveD reserves for paths.
  static absl::StatusOr<apiary::hived_config> of(const apiary::gang_cluster& cluster) {
    APIARY_RETURN_IF_ERROR(cluster.check());
    hived_cells all;
    std::map<std::string, cell> below;  // the cells of a level, by name
    std::vector<std::string> order;
    for (const auto& node : cluster.nodes) {
      if (node.gpus == 0) continue;
      order.push_back(node.name);
      below[node.name] = all.node_cell(node);
    }
    for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
      if (cluster.levels[l].find('.') != std::string::npos)
        all.add_fault("level \"", cluster.levels[l], no_dot);
      std::map<std::string, std::vector<std::string>> children;
      std::set<std::string> seen;
      std::vector<std::string> names;
      for (const auto& node : cluster.nodes) {
        if (node.gpus == 0) continue;
        std::vector<std::string>& in = children[node.cells[l]];
        if (in.empty()) names.push_back(node.cells[l]);
        const std::string& child = l == 0 ? node.name : node.cells[l - 1];
        if (seen.insert(child).second) in.push_back(child);
      }
      std::map<std::string, cell> here;
      for (const std::string& name : names)
        here[name] = all.upper_cell(cluster.levels[l], name, children[name], below);
      below = std::move(here);
      order = std::move(names);
    }
    if (!all.faults_.empty()) return absl::InvalidArgumentError(all.faults_);
    if (order.empty()) return absl::InvalidArgumentError("no node has GPUs");
    for (const std::string& name : order)
      all.config_.physical_cells.push_back(std::move(below[name]));
    return std::move(all.config_);
  }

 private:
  using cell = apiary::physical_cell_config;
  static constexpr const char* no_dot = "\": the names of HiveD's types of cells have no dot";

  template <class... Words>
  void add_fault(const Words&... words) {
    absl::StrAppend(&faults_, faults_.empty() ? "" : "\n", words...);
  }

  void add_type(const std::string& name, const std::string& child, std::size_t count,
                bool is_node) {
    if (known_.insert(name).second)
      config_.cell_types.push_back({.name = name,
                                    .child_type = child,
                                    .child_count = static_cast<std::uint32_t>(count),
                                    .is_node = is_node});
  }
  cell node_cell(const apiary::gang_cluster::node& node) {
    const std::string leaf = node.model.empty() ? "gpu" : node.model;
    // One fault for each model.
    if (leaf.find('.') != std::string::npos && known_.insert(leaf).second)
      add_fault("node \"", node.name, "\" has GPUs of model \"", leaf, no_dot);
    const std::string type = absl::StrCat(leaf, "-node-", node.gpus);
    add_type(type, leaf, node.gpus, true);
    return {.type = type, .address = node.name};
  }
  cell upper_cell(const std::string& level, const std::string& name,
                  const std::vector<std::string>& children,
                  const std::map<std::string, cell>& below) {
    cell all;
    for (const std::string& child : children) all.children.push_back(below.at(child));
    const std::string first = all.children[0].type;
    for (std::size_t c = 1; c < children.size(); ++c) {
      if (all.children[c].type == first) continue;
      add_fault(level, " \"", name, "\": \"", children[0], "\" is a ", first, ", \"", children[c],
                "\" a ", all.children[c].type, "; HiveD's cells have equal children");
      break;
    }
    all.type = absl::StrCat(first, "-", level, "-", children.size());
    add_type(all.type, first, children.size(), false);
    return all;
  }

  apiary::hived_config config_;
  std::string faults_;
  std::set<std::string> known_;  // types
};

// Writes one physical cell, and those in it.
inline void append_cell(const apiary::physical_cell_config& cell, std::string& to) {
  const char* comma = "";
  const auto field = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    absl::StrAppend(&to, comma, key, ": ", json_text(value));
    comma = ", ";
  };
  to += "{ ";
  field("cellType", cell.type);
  field("cellAddress", cell.address);
  field("pinnedCellId", cell.pinned_id);
  if (!cell.children.empty()) {
    absl::StrAppend(&to, comma, "cellChildren: [");
    for (const apiary::physical_cell_config& child : cell.children) {
      if (&child != &cell.children.front()) to += ", ";
      append_cell(child, to);
    }
    to += "]";
  }
  to += " }";
}

// The configuration as YAML that hived_yaml.h reads as the same configuration.
inline std::string hived_yaml_text(const apiary::hived_config& config) {
  std::string to = "physicalCluster:\n  cellTypes:\n";
  for (const apiary::cell_type_config& type : config.cell_types) {
    absl::StrAppend(&to, "    ", json_text(type.name), ": { ");
    if (!type.child_type.empty())
      absl::StrAppend(&to, "childCellType: ", json_text(type.child_type), ", ");
    absl::StrAppend(&to, "childCellNumber: ", type.child_count,
                    type.is_node ? ", isNodeLevel: true }\n" : " }\n");
  }
  to += "  physicalCells:\n";
  for (const apiary::physical_cell_config& cell : config.physical_cells) {
    to += "  - ";
    append_cell(cell, to);
    to += "\n";
  }
  if (!config.virtual_clusters.empty()) to += "virtualClusters:\n";
  for (const apiary::virtual_cluster_config& tenant : config.virtual_clusters) {
    absl::StrAppend(&to, "  ", json_text(tenant.name), ":\n");
    if (!tenant.cells.empty()) to += "    virtualCells:\n";
    for (const apiary::virtual_cell_config& cells : tenant.cells)
      absl::StrAppend(&to, "    - { cellType: ", json_text(cells.type),
                      ", cellNumber: ", cells.count, " }\n");
    if (!tenant.pinned_ids.empty()) to += "    pinnedCells:\n";
    for (const std::string& id : tenant.pinned_ids)
      absl::StrAppend(&to, "    - { pinnedCellId: ", json_text(id), " }\n");
  }
  return to;
}

}  // namespace example
