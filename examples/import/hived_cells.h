// apiary/examples/import/hived_cells.h - the cells of a cluster as HiveD's YAML describes them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace example {

// Writes physicalCluster of HiveD's YAML: one cell type for each shape of a rack, a block, ... HiveD's
// cells are uniform: all children of a cell have one type. Nodes without GPUs are left out.
class hived_cells {
 public:
  // kInvalidArgument: the cells whose children differ, one on each line, with what differs.
  static absl::StatusOr<std::string> write(const apiary::gang_cluster& cluster) {
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
      std::map<std::string, std::vector<std::string>> children;
      std::vector<std::string> names;
      for (const auto& node : cluster.nodes) {
        if (node.gpus == 0) continue;
        std::vector<std::string>& in = children[node.cells[l]];
        if (in.empty()) names.push_back(node.cells[l]);
        const std::string& child = l == 0 ? node.name : node.cells[l - 1];
        if (std::find(in.begin(), in.end(), child) == in.end()) in.push_back(child);
      }
      std::map<std::string, cell> here;
      for (const std::string& name : names)
        here[name] = all.upper_cell(cluster.levels[l], name, children[name], below);
      below = std::move(here);
      order = std::move(names);
    }
    if (!all.faults_.empty()) return absl::InvalidArgumentError(all.faults_);
    if (order.empty()) return absl::InvalidArgumentError("no node has GPUs");
    std::string cells;
    for (const std::string& name : order) print(below[name], "  ", cells);
    return absl::StrCat("physicalCluster:\n  cellTypes:\n", all.types_, "  physicalCells:\n",
                        cells);
  }

 private:
  struct cell {
    std::string type{};
    std::string address{};  // of a node
    std::vector<cell> children{};
  };

  static std::string quoted(const std::string& text) {
    std::string all = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') all += '\\';
      all += c;
    }
    return all + '"';
  }
  void add_type(const std::string& name, const std::string& child, std::size_t count,
                bool is_node) {
    if (known_.insert(name).second)
      absl::StrAppend(&types_, "    ", quoted(name), ": { childCellType: ", quoted(child),
                      ", childCellNumber: ", count, is_node ? ", isNodeLevel: true }\n" : " }\n");
  }

  cell node_cell(const apiary::gang_cluster::node& node) {
    const std::string leaf = node.model.empty() ? "gpu" : node.model;
    const std::string type = absl::StrCat(leaf, "-node-", node.gpus);
    add_type(type, leaf, node.gpus, true);
    return {.type = type, .address = node.name};
  }
  cell upper_cell(const std::string& level, const std::string& name,
                  const std::vector<std::string>& children,
                  const std::map<std::string, cell>& below) {
    cell all;
    for (const std::string& child : children) all.children.push_back(below.at(child));
    const std::string& first = all.children[0].type;
    for (std::size_t c = 1; c < children.size(); ++c) {
      if (all.children[c].type == first) continue;
      absl::StrAppend(&faults_, faults_.empty() ? "" : "\n", level, " ", quoted(name), ": ",
                      quoted(children[0]), " is a ", first, ", ", quoted(children[c]), " a ",
                      all.children[c].type, "; HiveD's cells have equal children");
      break;
    }
    all.type = absl::StrCat(first, "-", level, "-", children.size());
    add_type(all.type, first, children.size(), false);
    return all;
  }
  static void print(const cell& from, const std::string& indent, std::string& to) {
    absl::StrAppend(&to, indent, "- cellType: ", quoted(from.type), "\n");
    if (!from.address.empty())
      absl::StrAppend(&to, indent, "  cellAddress: ", quoted(from.address), "\n");
    if (!from.children.empty()) absl::StrAppend(&to, indent, "  cellChildren:\n");
    for (const cell& child : from.children) print(child, indent + "  ", to);
  }

  std::string types_;
  std::string faults_;
  std::set<std::string> known_;  // types
};

}  // namespace example
