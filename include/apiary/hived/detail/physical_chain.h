// apiary/hived/detail/physical_chain.h - who holds which leaf of a chain, and what follows from it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/node_index.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/ids.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A cell of a virtual cluster.
struct virtual_cell {
  vc_chain_id cluster{};
  cell_id cell{};
  friend constexpr bool operator==(virtual_cell, virtual_cell) noexcept = default;
};

// The physical side of one chain: its allocator of tenants' cells, health, holders of leaves, the
// virtual cell that each cell is bound to, and where opportunistic tasks may go.
//
// Requires: at most 64 leaves a node.
// Cost:     hold O(levels), mark O(levels * leaves of a node); grant, take_back O(levels), and with
//           racks of up to 64 nodes O(nodes of the cell and its rack); about 50 bytes a leaf, and a
//           bit for each cell and leaf of a node.
class physical_chain {
 public:
  static constexpr priority_usage<uniform_tree>::class_t opportunistic = 0;
  static constexpr priority_usage<uniform_tree>::class_t guaranteed = 1;

  physical_chain(const uniform_tree& tree, level_t node_level)
      : cells_(tree),
        health_(tree),
        use_(tree, 2),
        holders_(tree.num_leaves()),
        owner_(tree.num_cells()),
        idle_(tree.cells(node_level).size(), low_bits(tree.leaves_per_cell(node_level))),
        granted_(tree.cells((std::min<level_t>)(node_level + 1, tree.num_levels() - 1)).size(),
                 false),
        node_level_(node_level),
        guests_(tree.cells(node_level).size(),
                static_cast<node_index::class_t>(
                    guest_class(true, tree.leaves_per_cell(node_level), 0) + 1),
                rack_size()) {
    APIARY_VERIFY(node_leaves() <= 64);
    few_guests_.assign(node_leaves(), summary_bitset(tree.num_cells(), true));
    for (std::uint32_t n = 0; n < num_nodes(); ++n) index_node(n);
  }

  [[nodiscard]] const uniform_tree& tree() const noexcept { return cells_.tree(); }
  [[nodiscard]] level_t node_level() const noexcept { return node_level_; }
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(idle_.size());
  }
  [[nodiscard]] std::uint32_t node_leaves() const noexcept {
    return tree().leaves_per_cell(node_level_);
  }
  [[nodiscard]] cell_id node_cell(std::uint32_t node) const noexcept {
    return tree().at(node_level_, node);
  }
  // Nodes of a cell of the level above the nodes.
  [[nodiscard]] std::uint32_t rack_size() const noexcept {
    return node_level_ + 1 < tree().num_levels() ? tree().fan_out(node_level_ + 1) : num_nodes();
  }
  [[nodiscard]] cell_id first_leaf(std::uint32_t node) const noexcept {
    return tree().at(0, node * node_leaves());
  }
  [[nodiscard]] std::uint32_t node_of(cell_id leaf) const noexcept {
    return tree().index(tree().ancestor(leaf, node_level_), node_level_);
  }

  [[nodiscard]] leaf_holders holders(cell_id leaf) const noexcept {
    return holders_[tree().index(leaf, 0)];
  }
  void hold(cell_id leaf, leaf_holders to) noexcept {
    leaf_holders& at = holders_[tree().index(leaf, 0)];
    const bool was_idle = at.idle();
    at = to;
    const auto after = to.taken()        ? guaranteed
                       : to.user.valid() ? opportunistic
                                         : priority_usage<uniform_tree>::unused;
    const auto before = use_.assign(leaf, after);
    if (before == after && was_idle == to.idle()) return;
    if (before != after && (before == opportunistic || after == opportunistic))
      count_guest(leaf, after == opportunistic);
    refresh_node(leaf);
  }

  [[nodiscard]] const health<uniform_tree>& healthy() const noexcept { return health_; }
  // Whether that changed it.
  bool mark(cell_id leaf, bool good) noexcept {
    if ((good ? health_.mark_healthy(leaf) : health_.mark_bad(leaf)) == 0) return false;
    if (good) {
      --bad_;
    } else {
      ++bad_;
    }
    show_health(leaf);
    refresh_node(leaf);
    return true;
  }
  [[nodiscard]] bool any_bad() const noexcept { return bad_ > 0; }

  // Healthy cells with at most so many opportunistic leaves, fewer than a node has, of all levels,
  // by the value of their ids.
  [[nodiscard]] const summary_bitset& few_guests(std::uint32_t most) const noexcept {
    return few_guests_[most];
  }
  // Of these those with none.
  [[nodiscard]] const summary_bitset& quiet() const noexcept { return few_guests_[0]; }
  [[nodiscard]] const priority_usage<uniform_tree>& use() const noexcept { return use_; }
  // Leaves of c with an opportunistic task.
  [[nodiscard]] std::uint32_t guests(cell_id c) const noexcept {
    return use_.used(c, opportunistic);
  }

  [[nodiscard]] virtual_cell owner(cell_id c) const noexcept { return owner_[c.value]; }
  void set_owner(cell_id c, virtual_cell to) noexcept { owner_[c.value] = to; }

  [[nodiscard]] reserving_buddy_allocator& cells() noexcept { return cells_; }
  // Grants a whole cell to a tenant; whether it could be. take_back ends that.
  bool grant(cell_id c) noexcept {
    if (!cells_.allocate_at(c)) return false;
    show_granted(c);
    return true;
  }
  void take_back(cell_id c) noexcept {
    cells_.release(c);
    show_granted(c);
  }
  [[nodiscard]] const reserving_buddy_allocator& cells() const noexcept { return cells_; }

  // Leaves of a node that are healthy and nobody's, bit i for its i-th.
  [[nodiscard]] std::uint64_t idle(std::uint32_t node) const noexcept { return idle_[node]; }
  // Nodes with idle leaves by guest_class, each under its number counted from the end: guests go to
  // the last nodes first, tenants' cells are granted from the first ones on.
  [[nodiscard]] const node_index& guest_nodes() const noexcept { return guests_; }
  // The number of a node in guest_nodes(), and the node of such a number.
  [[nodiscard]] std::uint32_t from_end(std::uint32_t node) const noexcept {
    return num_nodes() - 1 - node;
  }
  // The class of nodes with so many opportunistic and so many idle leaves, in racks of which a tenant
  // has been granted something, or not.
  [[nodiscard]] node_index::class_t guest_class(bool granted, std::uint32_t guest_leaves,
                                                std::uint32_t idle_leaves) const noexcept {
    // One row for each number of guests, shorter by one each.
    const std::uint32_t rows = node_leaves() + 1;
    return static_cast<node_index::class_t>(
        (granted ? rows * (rows + 1) / 2 : 0) + guest_leaves * rows -
        (guest_leaves == 0 ? 0 : guest_leaves * (guest_leaves - 1) / 2) + idle_leaves);
  }
  // Whether a cell in the node's rack, or one that holds it, is granted to a tenant. It is looked
  // after for racks of at most 64 nodes, and never so in larger ones.
  [[nodiscard]] bool granted(std::uint32_t node) const noexcept {
    return granted_[tree().index(tree().ancestor(node_cell(node), rack_level()), rack_level())];
  }

  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return cells_.memory_bytes() + health_.memory_bytes() +
           few_guests_.size() * (sizeof(summary_bitset) + quiet().memory_bytes()) +
           use_.memory_bytes() + holders_.capacity() * sizeof(leaf_holders) +
           owner_.capacity() * sizeof(virtual_cell) + idle_.capacity() * sizeof(std::uint64_t) +
           granted_.capacity() / 8 + guests_.memory_bytes();
  }

 private:
  // After a guest has come to a leaf, or gone: the cells around have one more than before, or had.
  void count_guest(cell_id c, bool came) noexcept {
    for (level_t l = 0; c.valid(); c = tree().parent(c, l++)) {
      const std::uint32_t fewer = guests(c) - (came ? 1U : 0U);
      if (fewer >= few_guests_.size()) return;
      few_guests_[fewer].assign(c.value, !came && health_.healthy(c));
    }
  }
  // After a change of a leaf's health.
  void show_health(cell_id c) noexcept {
    for (level_t l = 0; c.valid(); c = tree().parent(c, l++)) {
      for (std::size_t most = guests(c); most < few_guests_.size(); ++most)
        few_guests_[most].assign(c.value, health_.healthy(c));
    }
  }
  void refresh_node(cell_id leaf) noexcept {
    const std::uint32_t node = node_of(leaf);
    const std::uint64_t bit = std::uint64_t{1} << (leaf.value - first_leaf(node).value);
    if (holders(leaf).idle() && health_.healthy(leaf)) {
      idle_[node] |= bit;
    } else {
      idle_[node] &= ~bit;
    }
    index_node(node);
  }
  void index_node(std::uint32_t node) noexcept {
    const auto idle_leaves = static_cast<std::uint32_t>(std::popcount(idle_[node]));
    guests_.assign(node_id(from_end(node)),
                   idle_leaves == 0
                       ? node_index::none
                       : guest_class(granted(node), guests(node_cell(node)), idle_leaves));
  }
  static constexpr std::uint32_t max_rack = 64;  // nodes of racks whose grants guests look at

  [[nodiscard]] level_t rack_level() const noexcept {
    return (std::min<level_t>)(node_level_ + 1, tree().num_levels() - 1);
  }
  // After a change of c: of the racks in it, or of its own.
  void show_granted(cell_id c) noexcept {
    if (rack_size() > max_rack) return;
    const level_t rack_level = this->rack_level();
    const level_t l = tree().level(c);
    const cell_id top = l < rack_level ? tree().ancestor(c, rack_level) : c;
    for (const cell_id rack : tree().descendants(top, rack_level)) {
      const std::uint32_t r = tree().index(rack, rack_level);
      const bool now = !cells_.cells().enclosing_free_level(rack);
      if (granted_[r] == now) continue;
      granted_[r] = now;
      for (const cell_id node : tree().descendants(rack, node_level_))
        index_node(tree().index(node, node_level_));
    }
  }

  reserving_buddy_allocator cells_;
  health<uniform_tree> health_;
  priority_usage<uniform_tree> use_;
  std::vector<leaf_holders> holders_;       // of each leaf
  std::vector<virtual_cell> owner_;         // of each cell
  std::vector<std::uint64_t> idle_;         // of each node
  std::vector<bool> granted_;               // of each rack
  std::vector<summary_bitset> few_guests_;  // healthy cells with at most 0, 1, ... guests
  std::uint32_t bad_ = 0;                   // leaves
  level_t node_level_;
  node_index guests_;
};

}  // namespace detail
APIARY_NAMESPACE_END
