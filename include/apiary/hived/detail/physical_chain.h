// apiary/hived/detail/physical_chain.h - the physical cells of a chain and their state.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/priority_usage.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/container/fast_div.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/gang_record.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A cell of a virtual cluster; not valid by default.
struct virtual_cell {
  vc_chain_id cluster{};
  cell_id cell{};
  friend constexpr bool operator==(virtual_cell, virtual_cell) noexcept = default;
};

// The physical cells of one chain: which are granted to tenants and which are healthy, the virtual
// cell that each is bound to, the gangs that hold each leaf, and the nodes with idle leaves. A leaf
// is opportunistic if an opportunistic gang uses it. Requires: at most 64 leaves per node.
// Cost: hold O(levels); mark O(levels * leaves of a node); grant, revoke O(levels), and with
//       racks of up to 64 nodes also O(nodes of the cell and its rack). Memory: about 50 bytes per
//       leaf, and for each cell one bit per leaf of a node.
class physical_chain {
 public:
  // The classes of leaves in use().
  static constexpr priority_usage<uniform_tree>::class_t opportunistic = 0;
  static constexpr priority_usage<uniform_tree>::class_t guaranteed = 1;
  physical_chain(const uniform_tree& tree, level_t node_level)
      : cells_(tree),
        health_(tree),
        use_(tree, 2),
        holders_(tree.num_leaves()),
        owner_(tree.num_cells()),
        idle_(tree.cells(node_level).size()),
        granted_(tree.cells((std::min<level_t>)(node_level + 1, tree.num_levels() - 1)).size(),
                 false),
        few_opportunistic_(tree.leaves_per_cell(node_level),
                           summary_bitset(tree.num_cells(), true)),
        node_level_(node_level),
        node_of_(tree.leaves_per_cell(node_level)),
        rack_of_(node_level + 1 < tree.num_levels() ? tree.fan_out(node_level + 1) : 1),
        idle_nodes_(tree.cells(node_level).size(),
                    static_cast<node_index::class_t>(
                        idle_class(true, tree.leaves_per_cell(node_level), 0) + 1),
                    rack_size()) {
    APIARY_VERIFY(node_leaves() <= 64);
    for (level_t l = 0; l < tree.num_levels(); ++l) cell_sizes_.push_back(tree.leaves_per_cell(l));
    idle_.assign(idle_.size(), ~std::uint64_t{0} >> (64 - node_leaves()));
    for (std::uint32_t n = 0; n < num_nodes(); ++n) index_node(n);
  }

  [[nodiscard]] const uniform_tree& tree() const noexcept { return cells_.tree(); }
  [[nodiscard]] level_t node_level() const noexcept { return node_level_; }
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(idle_.size());
  }
  [[nodiscard]] std::uint32_t node_leaves() const noexcept { return node_of_.divisor(); }
  // The leaves of a cell of the levels 0, ..., top.
  [[nodiscard]] std::span<const std::uint32_t> cell_sizes(level_t top) const noexcept {
    return {cell_sizes_.data(), std::size_t{top} + 1};
  }
  [[nodiscard]] cell_id node_cell(std::uint32_t node) const noexcept {
    return tree().at(node_level_, node);
  }
  // Nodes of a cell of the level above the nodes; all nodes, if there is no such level.
  [[nodiscard]] std::uint32_t rack_size() const noexcept {
    return node_level_ + 1 < tree().num_levels() ? tree().fan_out(node_level_ + 1) : num_nodes();
  }
  [[nodiscard]] cell_id first_leaf(std::uint32_t node) const noexcept {
    return tree().at(0, node * node_leaves());
  }
  [[nodiscard]] std::uint32_t node_of(cell_id leaf) const noexcept {
    return node_of_.quotient(tree().index(leaf, 0));
  }
  [[nodiscard]] leaf_holders holders(cell_id leaf) const noexcept {
    return holders_[tree().index(leaf, 0)];
  }
  void hold(cell_id leaf, leaf_holders to) noexcept { hold_all({&leaf, 1}, {&to, 1}); }
  // The same for several leaves of one node, ascending. Cost: O(cells around them) if all change
  // alike.
  void hold_all(std::span<const cell_id> leaves, std::span<const leaf_holders> to) noexcept {
    const auto before = use_.class_of(leaves.front());
    const auto after = class_of(to.front());
    bool alike = true;
    for (std::size_t i = 0; i < leaves.size(); ++i)
      alike = alike && use_.class_of(leaves[i]) == before && class_of(to[i]) == after;
    if (!alike) {
      for (std::size_t i = 0; i < leaves.size(); ++i) hold(leaves[i], to[i]);
      return;
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) holders_[tree().index(leaves[i], 0)] = to[i];
    if (before == after) return;
    use_.assign_all(leaves, after);
    if (before == opportunistic || after == opportunistic)
      count_opportunistic(leaves, after == opportunistic);
    refresh_node(leaves);
  }

  [[nodiscard]] const health<uniform_tree>& healthy() const noexcept { return health_; }
  // Marks a leaf as healthy or bad. Returns whether that changed it.
  bool mark(cell_id leaf, bool good) noexcept {
    if ((good ? health_.mark_healthy(leaf) : health_.mark_bad(leaf)) == 0) return false;
    if (good) {
      --bad_;
    } else {
      ++bad_;
    }
    refresh_cells(leaf);
    refresh_node({&leaf, 1});
    return true;
  }
  [[nodiscard]] bool any_bad() const noexcept { return bad_ > 0; }
  // Healthy cells of all levels with at most `most` opportunistic leaves, by id. Requires:
  // most < node_leaves().
  [[nodiscard]] const summary_bitset& few_opportunistic(std::uint32_t most) const noexcept {
    return few_opportunistic_[most];
  }
  // Healthy cells of all levels without opportunistic leaves, by id.
  [[nodiscard]] const summary_bitset& without_opportunistic() const noexcept {
    return few_opportunistic_[0];
  }
  // How many leaves of each cell are in use, by class.
  [[nodiscard]] const priority_usage<uniform_tree>& use() const noexcept { return use_; }
  // The number of opportunistic leaves of c.
  [[nodiscard]] std::uint32_t opportunistic_leaves(cell_id c) const noexcept {
    return use_.used(c, opportunistic);
  }
  // The number of leaves of c, a cell of level l, that no gang uses; bad ones count.
  [[nodiscard]] std::uint32_t unused(cell_id c, level_t l) const noexcept {
    return tree().leaves_per_cell(l) - use_.used(c, opportunistic) - use_.used(c, guaranteed);
  }
  // The virtual cell that c is bound to; not valid: c is unbound.
  [[nodiscard]] virtual_cell owner(cell_id c) const noexcept { return owner_[c.value]; }
  void set_owner(cell_id c, virtual_cell to) noexcept { owner_[c.value] = to; }

  [[nodiscard]] reserving_buddy_allocator& cells() noexcept { return cells_; }
  // Grants a whole cell to a tenant. Returns whether that was possible. revoke() ends the grant.
  bool grant(cell_id c) noexcept {
    if (!cells_.allocate_at(c)) return false;
    refresh_granted(c);
    return true;
  }
  void revoke(cell_id c) noexcept {
    cells_.release(c);
    refresh_granted(c);
  }
  [[nodiscard]] const reserving_buddy_allocator& cells() const noexcept { return cells_; }
  // The healthy leaves of a node that no gang holds: bit i stands for the i-th leaf.
  [[nodiscard]] std::uint64_t idle(std::uint32_t node) const noexcept { return idle_[node]; }
  // The nodes with idle leaves by idle_class, numbered from the end (from_end): opportunistic
  // tasks get the last nodes first, because tenants are granted the first cells first.
  [[nodiscard]] const node_index& idle_nodes() const noexcept { return idle_nodes_; }
  // Converts a node to its number in idle_nodes(), and such a number to the node.
  [[nodiscard]] std::uint32_t from_end(std::uint32_t node) const noexcept {
    return num_nodes() - 1 - node;
  }
  // The class of nodes with so many opportunistic and idle leaves. `granted`: in a rack with
  // granted cells.
  [[nodiscard]] node_index::class_t idle_class(bool granted, std::uint32_t opportunistic_count,
                                               std::uint32_t idle_count) const noexcept {
    // One row for each number of opportunistic leaves; each row is one shorter than the row before.
    const std::uint32_t rows = node_leaves() + 1;
    return static_cast<node_index::class_t>(
        (granted ? rows * (rows + 1) / 2 : 0) + opportunistic_count * rows -
        (opportunistic_count == 0 ? 0 : opportunistic_count * (opportunistic_count - 1) / 2) +
        idle_count);
  }
  // Whether the rack of the node, a cell in it or a cell around it is granted to a tenant; false if
  // a rack has more than 64 nodes.
  [[nodiscard]] bool granted(std::uint32_t node) const noexcept {
    return granted_[rack_of_.quotient(node)];
  }

  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return cells_.memory_bytes() + health_.memory_bytes() +
           few_opportunistic_.size() *
               (sizeof(summary_bitset) + without_opportunistic().memory_bytes()) +
           use_.memory_bytes() + holders_.capacity() * sizeof(leaf_holders) +
           owner_.capacity() * sizeof(virtual_cell) + idle_.capacity() * sizeof(std::uint64_t) +
           granted_.capacity() + idle_nodes_.memory_bytes();
  }

 private:
  // Updates few_opportunistic_ for leaves of one node and the cells around them, after all of them
  // have become opportunistic (added) or have ceased to be.
  void count_opportunistic(std::span<const cell_id> leaves, bool added) noexcept {
    const auto size = static_cast<std::uint32_t>(few_opportunistic_.size());
    const auto refresh = [&](cell_id c, std::uint32_t count) {
      const std::uint32_t now = opportunistic_leaves(c);
      const std::uint32_t fewer = added ? now - count : now;
      const bool few = !added && health_.healthy(c);
      for (std::uint32_t most = fewer; most < (std::min)(fewer + count, size); ++most)
        few_opportunistic_[most].assign(c.value, few);
    };
    for (const cell_id leaf : leaves) refresh(leaf, 1);
    for_each_ancestor(tree(), leaves, refresh);
  }
  // The same after the health of a leaf has changed.
  void refresh_cells(cell_id c) noexcept {
    for (level_t l = 0; c.valid(); c = tree().parent(c, l++)) {
      for (std::size_t most = opportunistic_leaves(c); most < few_opportunistic_.size(); ++most)
        few_opportunistic_[most].assign(c.value, health_.healthy(c));
    }
  }
  // Updates idle_ and idle_nodes_ after a change of leaves of one node.
  void refresh_node(std::span<const cell_id> leaves) noexcept {
    const std::uint32_t node = node_of(leaves.front());
    const cell_id first = first_leaf(node);
    std::uint64_t changed = 0;
    std::uint64_t idle = 0;
    for (const cell_id leaf : leaves) {
      const std::uint64_t bit = std::uint64_t{1} << (leaf.value - first.value);
      changed |= bit;
      if (holders(leaf).idle() && health_.healthy(leaf)) idle |= bit;
    }
    idle_[node] = (idle_[node] & ~changed) | idle;
    index_node(node);
  }
  [[nodiscard]] static priority_usage<uniform_tree>::class_t class_of(leaf_holders h) noexcept {
    return h.taken()        ? guaranteed
           : h.user.valid() ? opportunistic
                            : priority_usage<uniform_tree>::unused;
  }
  void index_node(std::uint32_t node) noexcept {
    const auto idle_count = static_cast<std::uint32_t>(std::popcount(idle_[node]));
    idle_nodes_.assign(
        node_id(from_end(node)),
        idle_count == 0
            ? node_index::none
            : idle_class(granted(node), opportunistic_leaves(node_cell(node)), idle_count));
  }
  static constexpr std::uint32_t max_rack = 64;  // nodes of a rack for which granted_ is kept
  [[nodiscard]] level_t rack_level() const noexcept {
    return (std::min<level_t>)(node_level_ + 1, tree().num_levels() - 1);
  }
  // Updates granted_ after c was granted or revoked: for the racks in c, or for the rack of c.
  void refresh_granted(cell_id c) noexcept {
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
  lean_vector<leaf_holders> holders_;              // one for each leaf
  lean_vector<virtual_cell> owner_;                // one for each cell
  lean_vector<std::uint64_t> idle_;                // one for each node
  lean_vector<bool> granted_;                      // one for each rack
  std::vector<summary_bitset> few_opportunistic_;  // healthy cells with at most 0, 1, ... of them
  std::uint32_t bad_ = 0;                          // number of bad leaves
  level_t node_level_;
  fast_div node_of_;  // leaves of a node
  fast_div rack_of_;  // nodes of a rack; 1: there are no racks
  node_index idle_nodes_;
  lean_vector<std::uint32_t> cell_sizes_;  // by level
};

// Chooses the physical cell for a whole cell of a tenant: a healthy cell of the level that can be
// granted, if there is one. The first cell without opportunistic leaves comes first, then the cells
// with the fewest of them among those in the smallest free cells.
// Cost: as reserving_buddy_allocator::find with a bitset, for each number of opportunistic leaves
//       below the leaves of a node; above the nodes O(cells of the level) if all cells have many.
[[nodiscard]] inline std::optional<cell_id> choose_whole_cell(const physical_chain& chain,
                                                              level_t l) {
  const reserving_buddy_allocator& cells = chain.cells();
  if (const auto c = cells.find({.level = l, .usable = &chain.without_opportunistic()})) return c;
  const summary_bitset* const healthy = &chain.healthy().usable();
  const auto any = cells.find({.level = l, .usable = healthy});
  if (!any) return any;
  const level_t from = *cells.cells().enclosing_free_level(*any);
  for (std::uint32_t most = 1; most < chain.node_leaves(); ++most) {
    const summary_bitset* const few = &chain.few_opportunistic(most);
    if (const auto c = cells.find({.level = l, .highest = from, .usable = few})) return c;
  }
  if (l <= chain.node_level()) return any;
  return cells.find({.level = l, .highest = from, .usable = healthy},
                    [&](cell_id c) { return chain.opportunistic_leaves(c); });
}
// Chooses the physical cell for a child of a bound cell: the first unbound cell with the fewest
// opportunistic leaves among the physical cell's children. Requires: a child is unbound
// (APIARY_VERIFY). Cost: O(children).
[[nodiscard]] inline cell_id choose_child_cell(const physical_chain& chain,
                                               id_range<cell_id> children) noexcept {
  cell_id best;
  std::uint32_t least = 0;
  for (const cell_id p : children) {
    if (chain.owner(p).cell.valid()) continue;
    const std::uint32_t opportunistic = chain.opportunistic_leaves(p);
    if (best.valid() && opportunistic >= least) continue;
    best = p;
    least = opportunistic;
    if (least == 0) break;
  }
  APIARY_VERIFY(best.valid());
  return best;
}

// A cell that can be granted.
struct grant_candidate {
  std::uint32_t tasks = 0;     // usable leaves / task_gpus, rounded down, summed over its nodes
  std::uint32_t unusable = 0;  // leaves
  std::uint32_t opportunistic = 0;  // leaves with an opportunistic task
  cell_id cell{};
};

// Ranks the cells of a level that can be granted (reserving_buddy_allocator): first the cell that
// can hold the most tasks of `task_gpus` leaves. Ties: most usable leaves, then fewest
// opportunistic leaves, then the smallest enclosing free cell, then the lowest id.
// Cost: O(n log n) for n cells of the level, and O(nodes in them); next O(levels) for each cell.
class grant_ranking {
 public:
  // The cells, best first; the span is valid until the next call. Requires: task_gpus > 0.
  std::span<const grant_candidate> operator()(const physical_chain& chain, level_t level,
                                              const health<uniform_tree>& usable,
                                              std::uint32_t task_gpus) {
    const uniform_tree& tree = chain.tree();
    const summary_bitset& free = chain.cells().cells().free_cells();
    const level_t at = (std::min)(level, chain.node_level());
    const std::uint32_t size = tree.leaves_per_cell(at);
    ranked_.clear();
    next_ = 0;
    for (level_t from = level; from <= chain.cells().highest_safe(level); ++from) {
      const id_range<cell_id> all = tree.cells(from);
      for (std::uint32_t f = free.find_next(all.first.value); f < all.last.value;
           f = free.find_next(f + 1)) {
        for (const cell_id cell : tree.descendants(cell_id(f), level)) {
          std::uint32_t tasks = 0;
          for (const cell_id node : tree.descendants(cell, at))
            tasks += (size - usable.bad_leaves(node)) / task_gpus;
          ranked_.push_back(
              {tasks, usable.bad_leaves(cell), chain.opportunistic_leaves(cell), cell});
        }
      }
    }
    merge_sort(ranked_, [](const grant_candidate& a, const grant_candidate& b) {
      return std::tie(b.tasks, a.unusable, a.opportunistic) <
             std::tie(a.tasks, b.unusable, b.opportunistic);
    });
    return ranked_;
  }
  // Starts again with the best cell. Requires: a rollback has made the ranked cells free again.
  void restart() noexcept { next_ = 0; }
  // How many cells of the ranking next() has looked at.
  [[nodiscard]] std::size_t visited() const noexcept { return next_; }
  // The next cell that can still be granted, after `skip` such cells; not valid: none is left.
  // Cells in completely usable free cells of one level are equal: all of them count as one skip.
  cell_id next(const physical_chain& chain, const health<uniform_tree>& usable,
               std::uint32_t skip) noexcept {
    const reserving_buddy_allocator& cells = chain.cells();
    std::uint64_t passed = 0;  // bit l: a cell in a usable free cell of level l was skipped
    for (; next_ < ranked_.size(); ++next_) {
      const cell_id cell = ranked_[next_].cell;
      if (!cells.can_allocate_at(cell)) continue;
      const level_t from = *cells.cells().enclosing_free_level(cell);
      const bool whole = usable.healthy(chain.tree().ancestor(cell, from));
      if (whole && (passed >> from & 1U) != 0) continue;
      if (skip == 0) return ranked_[next_++].cell;
      --skip;
      if (whole) passed |= std::uint64_t{1} << from;
    }
    return cell_id();
  }

 private:
  lean_vector<grant_candidate> ranked_;
  std::size_t next_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
