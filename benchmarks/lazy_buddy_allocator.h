// apiary/benchmarks/lazy_buddy_allocator.h - allocates cells and merges them as late as possible.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace apiary_bench {

using apiary::cell_id;
using apiary::CellTree;
using apiary::id_range;
using apiary::level_t;

// Allocates aligned blocks of GPUs (cells of a tree of at most 32 levels): of the level's free cells
// the one that became free last. It merges free cells only when a larger cell is requested and none
// is free. Use it where only speed counts: it splits and merges less than the other allocators. It
// may allocate the GPUs of one node again and again although other nodes are broken already.
//
// Model:    lazy buddy systems (Lee, Barkley, "A watermark-based lazy buddy system", 1989). Differs:
//           arbitrary fan-out; nothing is merged before it is needed.
// Cost:     release O(levels + fan-out). allocate and allocate_at O(levels * fan-out), amortized over
//           all calls; one call may merge all free cells, and allocate_at always merges all that can
//           be merged. Memory: 1 byte a cell; for each level 32 bytes, and at most 16 times the most
//           free cells that it ever had; at most 8 for each cell above level 0. It never shrinks.
// Invalid:  release of a cell that is not live aborts (APIARY_VERIFY).
// Example:  benchmarks/compare_allocators.cpp
template <CellTree Tree>
class lazy_buddy_allocator {
 public:
  // At first all cells are free; the first one of the top level is the next to be allocated.
  explicit lazy_buddy_allocator(Tree tree) : tree_(std::move(tree)), states_(tree_.num_cells()) {
    APIARY_VERIFY(tree_.num_levels() <= lists_.size());
    const id_range<cell_id> roots = tree_.cells(top());
    for (std::uint32_t i = roots.size(); i-- > 0;) push(top(), roots[i]);
  }

  // Allocates a cell of the level; merges smaller ones or splits a larger one if there is none.
  // nullopt if each cell of the level has a leaf in a live cell.
  std::optional<cell_id> allocate(level_t level) {
    APIARY_ASSERT(level <= top());
    cell_id c = pop(level);
    if (!c.valid()) c = merge_or_split(level);
    if (!c.valid()) return std::nullopt;
    states_[c.value] = state::live;
    return c;
  }
  // Allocates c if no leaf of it is in a live cell. Returns whether it did. Merges what it can.
  bool allocate_at(cell_id c) {
    merge();
    const std::optional<level_t> from = enclosing_free_level(c);
    if (!from) return false;
    cell_id above = tree_.ancestor(c, *from);
    for (level_t l = *from; above != c; --l) {
      states_[above.value] = state::inside;
      const cell_id keep = tree_.ancestor(c, l - 1);
      const id_range<cell_id> parts = tree_.children(above, l);
      for (std::uint32_t i = parts.size(); i-- > 0;)
        if (parts[i] != keep) push(l - 1, parts[i]);
      above = keep;
    }
    states_[c.value] = state::live;
    return true;
  }
  // Releases the live cell c.
  void release(cell_id c) {
    APIARY_VERIFY(c.value < tree_.num_cells() && is_live(c));
    add(tree_.level(c), c);
  }
  // Merges all cells that can be merged.
  void merge() {
    for (level_t l = 1; l <= top(); ++l) merge_into(l);
  }

  // Free cells of level l that are not inside a larger free cell. Cells that can be merged count as
  // they are. Cost: O(cells of the level).
  [[nodiscard]] std::uint32_t free_count(level_t l) const noexcept {
    std::uint32_t n = 0;
    for (const cell_id c : tree_.cells(l)) n += is_free(c) ? 1U : 0U;
    return n;
  }
  // The level of the free cell that is c or contains c; nullopt if there is none.
  [[nodiscard]] std::optional<level_t> enclosing_free_level(cell_id c) const noexcept {
    return apiary::detail::enclosing_free_level(tree_, c,
                                                [this](cell_id above) { return is_free(above); });
  }
  // Whether c itself was allocated and not released.
  [[nodiscard]] bool is_live(cell_id c) const noexcept { return states_[c.value] == state::live; }
  // Whether c is free and not inside a larger free cell.
  [[nodiscard]] bool is_free(cell_id c) const noexcept { return states_[c.value] == state::free; }
  // The tree whose cells are allocated.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // Bytes on the heap, without the tree.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    std::size_t cells = 0;
    for (const std::vector<cell_id>& list : lists_) cells += list.capacity();
    for (const std::vector<cell_id>& queue : complete_) cells += queue.capacity();
    return states_.capacity() * sizeof(state) + cells * sizeof(cell_id);
  }

 private:
  // `inside` a larger free or live cell, or split; `complete`: split, and in complete_.
  enum class state : std::uint8_t { inside, free, live, complete };

  [[nodiscard]] level_t top() const noexcept { return tree_.num_levels() - 1; }
  [[nodiscard]] bool all_free(id_range<cell_id> cells) const noexcept {
    for (const cell_id c : cells)
      if (!is_free(c)) return false;
    return true;
  }

  // Makes c of level l free.
  void push(level_t l, cell_id c) {
    states_[c.value] = state::free;
    std::vector<cell_id>& list = lists_[l];
    if (list.size() == list.capacity()) tidy(list);
    list.push_back(c);
  }
  // The cell of level l that became free last, which is no longer free then; not valid: none.
  cell_id pop(level_t l) noexcept {
    std::vector<cell_id>& list = lists_[l];
    while (!list.empty()) {
      const cell_id c = list.back();
      list.pop_back();
      if (!is_free(c)) continue;
      states_[c.value] = state::inside;
#if defined(__GNUC__)
      if (!list.empty()) __builtin_prefetch(&states_[list.back().value], 1);  // the next one
#endif
      return c;
    }
    return cell_id();
  }
  // Makes c of level l free; remembers its parent if all children of the parent are free now.
  void add(level_t l, cell_id c) {
    push(l, c);
    const cell_id above = tree_.parent(c, l);
    if (!above.valid() || !all_free(tree_.children(above, l + 1))) return;
    if (states_[above.value] == state::complete) return;
    states_[above.value] = state::complete;
    complete_[l + 1].push_back(above);
  }
  // Merges children into free cells of level l.
  void merge_into(level_t l) {
    while (!complete_[l].empty()) {
      const cell_id c = complete_[l].back();
      complete_[l].pop_back();
      const id_range<cell_id> parts = tree_.children(c, l);
      if (all_free(parts)) {
        for (const cell_id p : parts) states_[p.value] = state::inside;
        add(l, c);
      } else {
        states_[c.value] = state::inside;
      }
    }
  }
  // Takes a cell of the level, of which none is free, by merging and splitting; not valid: none.
  [[gnu::noinline]] cell_id merge_or_split(level_t level) {
    for (level_t l = 1; l <= level; ++l) merge_into(l);
    level_t l = level;
    cell_id c = pop(l);
    while (!c.valid()) {
      if (++l > top()) return cell_id();
      merge_into(l);
      c = pop(l);
    }
    for (; l > level; --l) {
      const id_range<cell_id> parts = tree_.children(c, l);
      c = parts.first;
      for (std::uint32_t i = parts.size(); i-- > 1;) push(l - 1, parts[i]);
    }
    return c;
  }
  // Removes the entries of a full list that do not count, and enlarges it if few were removed.
  [[gnu::noinline]] void tidy(std::vector<cell_id>& list) {
    std::size_t to = list.size();
    for (std::size_t i = list.size(); i-- > 0;) {
      if (!is_free(list[i])) continue;
      states_[list[i].value] = state::complete;  // further entries of this cell do not count
      list[--to] = list[i];
    }
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(to));
    for (const cell_id c : list) states_[c.value] = state::free;
    if (2 * list.size() >= list.capacity()) list.reserve(2 * list.capacity() + 8);
  }

  Tree tree_;
  std::vector<state> states_;  // of each cell
  // Of each level: its free cells in the order in which they became free. An entry counts if its
  // cell is free and has no later entry.
  std::array<std::vector<cell_id>, 32> lists_{};
  std::array<std::vector<cell_id>, 32> complete_{};  // of each level: all children were free once
};

}  // namespace apiary_bench
