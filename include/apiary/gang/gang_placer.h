// apiary/gang/gang_placer.h - which leaves of which nodes a gang gets.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/node_index.h>
#include <apiary/core/ids.h>
#include <apiary/gang/detail/device_choice.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The leaves of a node that can be had: bit i for the i-th.
struct node_leaves {
  std::uint64_t available = 0;
  std::uint64_t preferred = 0;  // those without a preemption
  cell_id first{};
  std::span<const std::uint32_t> cell_sizes{};  // leaves of a cell, from the leaf up to the node
};

// Collects the leaves of tasks, node after node (leaf_choice), in the order of the members of a gang:
// those of each member one task after another.
class leaves_of_tasks {
 public:
  void begin(std::span<const task_group> members) {
    next_.clear();
    std::uint32_t total = 0;
    for (const task_group& m : members) {
      next_.push_back(total);
      total += m.tasks * m.gpus;
    }
    leaves_.resize(total);
  }
  // The next tasks of some members take leaves of a node, the largest first.
  void take(const node_leaves& node, std::span<const gang_fit::portion> portions,
            std::span<const task_group> members) {
    portions_.assign(portions.begin(), portions.end());
    if (portions_.size() > 1) {
      std::stable_sort(portions_.begin(), portions_.end(), [&](const auto& a, const auto& b) {
        return members[a.member].gpus > members[b.member].gpus;
      });
    }
    std::uint64_t available = node.available;
    std::uint64_t preferred = node.preferred;
    for (const gang_fit::portion& p : portions_) {
      for (std::uint32_t t = 0; t < p.tasks; ++t) {
        std::uint64_t mask =
            detail::choose_leaves(available, preferred, members[p.member].gpus, node.cell_sizes);
        available &= ~mask;
        preferred &= ~mask;
        for (; mask != 0; mask &= mask - 1) {
          leaves_[next_[p.member]++] =
              cell_id(node.first.value + static_cast<std::uint32_t>(std::countr_zero(mask)));
        }
      }
    }
  }
  [[nodiscard]] const std::vector<cell_id>& leaves() const noexcept { return leaves_; }

 private:
  std::vector<std::uint32_t> next_;  // of each member, where its next leaf goes
  std::vector<gang_fit::portion> portions_;
  std::vector<cell_id> leaves_;
};

// A class of an index of nodes: all its nodes have `free` leaves that can be had. Those of class
// `otherwise`, if there is one, have as many and are taken where that saves racks (pick_either).
struct indexed_class {
  node_index::class_t index = 0;
  std::uint32_t free = 0;
  node_index::class_t otherwise = node_index::none;
};

// Of racks that each have enough nodes for what is left of a gang: the one that has most, or the one
// that has fewest, which keeps fuller ones full.
enum class rack_choice : std::uint8_t { fullest, tightest };

// Places all tasks of a gang, or none: exact (gang_fit), on the nodes of the classes that come
// first, of equal nodes in the fewest racks (node_index), in each node close together
// (leaf_choice).
//
// Model: HiveD (OSDI 2020) section 3.3, "buddy cell" placement inside a virtual cluster.
//        Differs: complete, knows of racks, and polynomial inside a node.
// Cost:  as gang_fit, node_index::pick and choose_leaves together; nothing else grows with the
//        cluster.
class gang_placer {
 public:
  // Whether the gang fits on nodes of these classes, given in order of preference.
  // Node indices of the result are not yet chosen. Valid until the next call.
  const gang_fit::result& fit(const node_index& nodes, std::span<const indexed_class> classes,
                              std::span<const task_group> members) {
    classes_.clear();
    indices_.clear();
    for (const indexed_class& c : classes) {
      const std::uint32_t also = c.otherwise == node_index::none ? 0 : nodes.count(c.otherwise);
      const std::uint32_t all = nodes.count(c.index) + also;
      if (all == 0) continue;
      classes_.push_back({c.free, all});
      indices_.push_back(c);
    }
    return packed_ = fit_(classes_, members);
  }
  // After fits() said yes: chooses nodes. The index must be the same as then.
  void choose_nodes(const node_index& nodes, rack_choice racks) {
    const std::span<const gang_fit::used_node> used = packed_.nodes;
    chosen_.resize(used.size());
    order_.resize(used.size());
    for (std::uint32_t i = 0; i < used.size(); ++i) order_[i] = i;
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return used[a].node_class < used[b].node_class;
    });
    for (std::size_t i = 0; i < order_.size();) {
      const std::uint32_t node_class = used[order_[i]].node_class;
      std::size_t end = i;
      while (end < order_.size() && used[order_[end]].node_class == node_class) ++end;
      const auto n = static_cast<std::uint32_t>(end - i);
      const auto sink = [&](node_id node) { chosen_[order_[i++]] = node.value; };
      const indexed_class& c = indices_[node_class];
      if (c.otherwise != node_index::none && nodes.count(c.otherwise) > 0) {
        nodes.pick_either(c.index, c.otherwise, n, sink);
      } else if (racks == rack_choice::tightest) {
        nodes.pick_tightly(c.index, n, sink);
      } else {
        nodes.pick(c.index, n, sink);
      }
    }
  }
  // The nodes chosen.
  [[nodiscard]] std::span<const std::uint32_t> nodes() const noexcept { return chosen_; }

  // After choose_nodes: chooses leaves of these nodes, one entry each; in order of the members,
  // each member's tasks one after another.
  const std::vector<cell_id>& choose_leaves_of(std::span<const node_leaves> nodes,
                                               std::span<const task_group> members) {
    APIARY_ASSERT(nodes.size() == chosen_.size());
    tasks_.begin(members);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const gang_fit::used_node& used = packed_.nodes[i];
      tasks_.take(nodes[i], packed_.portions.subspan(used.first, used.last - used.first), members);
    }
    return tasks_.leaves();
  }

 private:
  gang_fit fit_;
  gang_fit::result packed_;
  std::vector<node_class> classes_;
  std::vector<indexed_class> indices_;  // of each entry of classes_
  std::vector<std::uint32_t> chosen_;   // of each node of fit_, which one it is
  std::vector<std::uint32_t> order_;
  leaves_of_tasks tasks_;
};

APIARY_NAMESPACE_END
