// apiary/gang_scheduler/gang_cluster.h - the description of a cluster: nodes in racks, with labels.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/resources.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A list of node names for a node_filter. Copies share it: a list that is made once costs O(1) in
// each further request, however long it is.
class node_names {
 public:
  // No names.
  node_names() = default;
  // These names.
  node_names(std::vector<std::string> names)
      : list_(names.empty() ? nullptr : std::make_shared<const list>(std::move(names))) {}
  // These names.
  node_names(std::initializer_list<std::string> names)
      : node_names(std::vector<std::string>(names)) {}

  // Whether there are no names.
  [[nodiscard]] bool empty() const noexcept { return list_ == nullptr; }
  // The names, in the order that was given.
  [[nodiscard]] std::span<const std::string> names() const noexcept {
    return list_ == nullptr ? std::span<const std::string>() : list_->names;
  }
  // A hash of the names in their order. Cost: O(1).
  [[nodiscard]] std::uint64_t hash() const noexcept { return list_ == nullptr ? 0 : list_->hash; }
  // Cost: O(1) if one is a copy of the other, or if they differ; otherwise O(names).
  friend bool operator==(const node_names& a, const node_names& b) {
    return a.list_ == b.list_ || (a.list_ && b.list_ && a.list_->hash == b.list_->hash &&
                                  a.list_->names == b.list_->names);
  }

 private:
  struct list {
    explicit list(std::vector<std::string> all) : names(std::move(all)) {
      digest d;
      for (const std::string& name : names) d.add(name);
      hash = d.value();
    }
    std::vector<std::string> names;
    std::uint64_t hash = 0;
  };
  std::shared_ptr<const list> list_;
};

// Which nodes a gang accepts. A default filter accepts every node without taints.
struct node_filter {
  std::vector<std::string> labels{};       // all of them: "key=value", or "key" for any value
  std::vector<std::string> models{};       // one of these GPU models; empty: any
  node_names nodes{};                      // one of these names; empty: any
  std::vector<std::string> tolerations{};  // the node may have these taints
  friend bool operator==(const node_filter&, const node_filter&) = default;

  // A text for people: `nodes with label "zone=a" and model "h100"`; "nodes" if it accepts all.
  [[nodiscard]] std::string text() const;
};

// Describes a cluster for gang_scheduler: its nodes, and the cells (racks, blocks, ...) that
// contain them. Fill it from your own inventory; examples/programs/import/ has readers of several
// formats.
struct gang_cluster {
  // The most GPUs of a node.
  static constexpr std::uint32_t max_gpus = 32;

  // One node.
  struct node {
    std::string name{};                 // unique in the cluster
    std::vector<std::string> cells{};   // its cell of each level above the nodes, the lowest first
    std::uint32_t gpus = 0;             // at most max_gpus
    resources host{};                   // CPU and memory
    std::string model{};                // GPU model; may be empty
    std::vector<std::string> labels{};  // "key=value"
    std::vector<std::string> taints{};  // gangs that do not tolerate all of them avoid the node
    friend bool operator==(const node&, const node&) = default;
  };

  std::vector<std::string> levels{};  // names of the levels above the nodes, the lowest first
  std::vector<node> nodes{};          // the nodes

  // OK, or kInvalidArgument with the first fault: an empty name or one that is used twice, more
  // than 9 levels, a level named "node" or "cluster", a node without a cell for each level, a cell
  // in two cells of the level above, or too many GPUs.
  [[nodiscard]] absl::Status check() const;

  // Takes a tree with names and a table of nodes: node i is the i-th cell of level node_level. The
  // model of a node is its number in the table. kInvalidArgument: no such level, or another number
  // of cells than of nodes.
  template <CellTree Tree>
  [[nodiscard]] static absl::StatusOr<gang_cluster> of(const named_tree<Tree>& tree,
                                                       level_t node_level,
                                                       const node_table& table) {
    const Tree& cells = tree.tree();
    if (node_level >= cells.num_levels() || cells.cells(node_level).size() != table.size())
      return absl::InvalidArgumentError("level " + std::to_string(node_level) +
                                        " of the tree does not have one cell for each of the " +
                                        std::to_string(table.size()) + " nodes");
    gang_cluster all;
    for (level_t l = node_level + 1; l < cells.num_levels(); ++l)
      all.levels.push_back(tree.level_name(l));
    for (const node_id n : table.ids()) {
      const node_shape& shape = table.shape(n);
      cell_id at = cells.cells(node_level)[n.value];
      node one{.name = tree.cell_name(at), .gpus = shape.gpus, .host = shape.host};
      if (shape.gpus > 0) one.model = std::to_string(shape.model);
      for (level_t l = node_level + 1; l < cells.num_levels(); ++l) {
        at = cells.parent(at, l - 1);
        one.cells.push_back(tree.cell_name(at));
      }
      all.nodes.push_back(std::move(one));
    }
    return all;
  }
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/gang_scheduler/detail/gang_cluster_inl.h>
#endif
