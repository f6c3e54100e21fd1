// apiary/hived/detail/leaf_view.h - the leaves that a search may give to a gang, node by node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The leaves that a search may give to a gang: for a guaranteed gang the free leaves of its virtual
// cluster that are not bound to unusable hardware, for an opportunistic gang the idle usable leaves
// of a chain. It refers to the cells as they are when it is asked.
// Cost: O(1) for a node; with a filter O(leaves of the node).
class leaf_view {
 public:
  // `usable` says which physical leaves may be used; null: all healthy ones.
  leaf_view(const hived_cells& cells, vc_chain_id c, const health<uniform_tree>* usable) noexcept
      : cluster_(&cells.cluster(c)),
        chain_(&cells.chain(cluster_->chain())),
        usable_(usable),
        key_(c.value) {}
  leaf_view(const hived_cells& cells, std::uint32_t chain,
            const health<uniform_tree>* usable) noexcept
      : chain_(&cells.chain(chain)), usable_(usable), key_(cells.num_clusters() + chain) {}

  [[nodiscard]] const physical_chain& chain() const noexcept { return *chain_; }
  // Requires: a view of a virtual cluster.
  [[nodiscard]] const virtual_cluster& cluster() const noexcept { return *cluster_; }
  [[nodiscard]] bool guaranteed() const noexcept { return cluster_ != nullptr; }
  [[nodiscard]] bool filtered() const noexcept { return usable_ != nullptr; }
  // The filter, or the healthy leaves of the chain.
  [[nodiscard]] const health<uniform_tree>& usable() const noexcept {
    return usable_ != nullptr ? *usable_ : chain_->healthy();
  }
  // Equal for views of the same cells; below the number of virtual clusters and chains together.
  [[nodiscard]] std::uint32_t key() const noexcept { return key_; }
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return guaranteed() ? cluster_->num_nodes() : chain_->num_nodes();
  }
  // The leaves of a node that the gang may get; bit i is its i-th leaf.
  [[nodiscard]] std::uint64_t leaves(std::uint32_t node) const noexcept {
    std::uint64_t left = guaranteed() ? cluster_->free(node) : chain_->idle(node);
    if (usable_ == nullptr) return left;
    const cell_id first = first_leaf(node);
    for (std::uint64_t m = left; m != 0; m &= m - 1) {
      cell_id leaf(first.value + static_cast<std::uint32_t>(std::countr_zero(m)));
      if (guaranteed()) leaf = cluster_->image(leaf);
      if (leaf.valid() && !usable_->healthy(leaf)) left &= ~(m & -m);
    }
    return left;
  }
  [[nodiscard]] std::uint32_t count(std::uint32_t node) const noexcept {
    return static_cast<std::uint32_t>(std::popcount(leaves(node)));
  }
  // The node as leaves are chosen on it.
  [[nodiscard]] node_gpus gpus(std::uint32_t node) const noexcept {
    const std::uint64_t available = leaves(node);
    const level_t level = guaranteed() ? cluster_->range_of_node(node).level : chain_->node_level();
    return {available, available, first_leaf(node), chain_->cell_sizes(level)};
  }
  // The nodes by class, without the filter. A node has the number position(node) there.
  [[nodiscard]] const node_index& nodes() const noexcept {
    return guaranteed() ? cluster_->free_nodes() : chain_->idle_nodes();
  }
  [[nodiscard]] std::uint32_t position(std::uint32_t node) const noexcept {
    return guaranteed() ? node : chain_->from_end(node);
  }
  // The same with the filter. Cost: O(nodes).
  [[nodiscard]] node_index filtered_nodes() const {
    node_index index(num_nodes(), nodes().num_classes(),
                     guaranteed() ? cluster_->rack_size() : chain_->rack_size());
    for (std::uint32_t n = 0; n < num_nodes(); ++n) {
      const std::uint32_t free = count(n);
      if (guaranteed()) {
        index.assign(node_id(n), static_cast<node_index::class_t>(free));
      } else if (free > 0) {
        index.assign(node_id(position(n)),
                     chain_->idle_class(chain_->granted(n),
                                        chain_->opportunistic_leaves(chain_->node_cell(n)), free));
      }
    }
    return index;
  }
  // The classes of nodes() in order of preference: few free leaves for guaranteed gangs; for
  // opportunistic gangs the most opportunistic leaves, then the most idle leaves.
  void list_classes(lean_vector<indexed_class>& classes) const {
    classes.clear();
    const std::uint32_t size = chain_->node_leaves();
    if (guaranteed()) {
      for (std::uint32_t f = 1; f <= size; ++f)
        classes.push_back({static_cast<node_index::class_t>(f), f});
      return;
    }
    for (std::uint32_t opportunistic = size; opportunistic-- > 0;) {
      for (std::uint32_t idle = size - opportunistic; idle > 0; --idle) {
        classes.push_back({chain_->idle_class(false, opportunistic, idle), idle,
                           chain_->idle_class(true, opportunistic, idle)});
      }
    }
  }

 private:
  [[nodiscard]] cell_id first_leaf(std::uint32_t node) const noexcept {
    return guaranteed() ? cluster_->first_leaf(node) : chain_->first_leaf(node);
  }

  const virtual_cluster* cluster_ = nullptr;  // null: the gang is opportunistic
  const physical_chain* chain_;
  const health<uniform_tree>* usable_;
  std::uint32_t key_;
};

}  // namespace detail
APIARY_NAMESPACE_END
