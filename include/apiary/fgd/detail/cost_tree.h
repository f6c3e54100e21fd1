// apiary/fgd/detail/cost_tree.h - costs by index, and the indices in ascending order of cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Keeps a cost for each index 0, ..., size-1.
//
// Model: a tournament tree of fan-out 8: a block of costs is one cache line.
// Cost:  set O(log8 size) at most; grow amortized O(1) for each index. Memory: 64/7 bytes for each.
class cost_tree {
 public:
  // The cost of an index that is no candidate.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  // An index and its cost.
  struct entry {
    std::uint64_t cost = never;
    std::uint32_t index = 0;
  };

  // A tree with the cost `never` for each index.
  explicit cost_tree(std::uint32_t size = 0) : levels_(1) { grow(size); }
  // The number of indices.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(levels_[0].size());
  }
  // The cost of an index.
  [[nodiscard]] std::uint64_t operator[](std::uint32_t i) const noexcept { return levels_[0][i]; }
  // Adds indices with the cost `never` up to this size.
  void grow(std::uint32_t size) {
    if (size <= this->size()) return;
    levels_[0].resize(size, never);
    for (std::size_t l = 1; l < levels_.size() || levels_[l - 1].size() > fan_out; ++l) {
      if (l == levels_.size()) levels_.emplace_back();
      const std::size_t known = levels_[l].size();
      levels_[l].resize((levels_[l - 1].size() + fan_out - 1) / fan_out, never);
      for (std::size_t i = known; i < levels_[l].size(); ++i) levels_[l][i] = least_below(l, i);
    }
  }
  // Sets the cost of an index.
  void set(std::uint32_t i, std::uint64_t cost) noexcept {
    levels_[0][i] = cost;
    std::size_t at = i;
    for (std::size_t l = 1; l < levels_.size(); ++l) {
      at /= fan_out;
      const std::uint64_t least = least_below(l, at);
      if (levels_[l][at] == least) return;
      levels_[l][at] = least;
    }
  }

  // The index with the least cost, the lowest one if several have it; nullopt if all costs are `never`.
  [[nodiscard]] std::optional<entry> least() const noexcept {
    std::size_t level = levels_.size() - 1;
    std::uint64_t cost = never;
    std::size_t at = 0;
    for (std::size_t i = 0; i < levels_[level].size(); ++i) {
      if (levels_[level][i] >= cost) continue;
      cost = levels_[level][i];
      at = i;
    }
    if (cost == never) return std::nullopt;
    while (level-- > 0) {
      at *= fan_out;
      while (levels_[level][at] != cost) ++at;
    }
    return entry{cost, static_cast<std::uint32_t>(at)};
  }
  // Loads the cost of an index into the cache. Does not wait for it.
  void prefetch(std::uint32_t i) const noexcept {
    __builtin_prefetch(&levels_[0][i], 1);
    if (levels_.size() > 1) __builtin_prefetch(&levels_[1][i / fan_out], 1);
  }

  // Walks through the indices of a tree in ascending order of (cost, index), without those of the cost
  // `never`. Costs may rise meanwhile, by change().
  //
  // Requires: finish() ends the walk before the tree is used otherwise.
  // Cost:     each call O(log8 size) costs; with `only`, a heap of these indices.
  class walk {
   public:
    // Starts at the least cost of the tree.
    void start(cost_tree& tree) {
      tree_ = &tree;
      is_part_ = false;
    }
    // Starts at the least cost of the indices in `only`, and returns no others. Cost: O(indices).
    void start(cost_tree& tree, const summary_bitset& only) {
      tree_ = &tree;
      is_part_ = true;
      part_.clear();
      for (std::uint32_t i = only.find_first(); i < tree.size(); i = only.find_next(i + 1))
        if (tree[i] != never) part_.push_back({tree[i], i});
      std::make_heap(part_.begin(), part_.end(), later);
    }
    // The next entry; nullopt if there is none. It stays the next one until drop() or change().
    [[nodiscard]] std::optional<entry> next() const {
      if (!is_part_) return tree_->least();
      if (part_.empty()) return std::nullopt;
      return part_.front();
    }
    // Leaves out the next entry, which is e, until the walk is finished.
    void drop(const entry& e) {
      if (is_part_) return pop();
      dropped_.push_back(e);
      tree_->set(e.index, never);
    }
    // Changes the cost of the next entry, which is e. Requires: the cost does not fall.
    void change(const entry& e, std::uint64_t cost) {
      tree_->set(e.index, cost);
      if (!is_part_) return;
      pop();
      if (cost == never) return;
      part_.push_back({cost, e.index});
      std::push_heap(part_.begin(), part_.end(), later);
    }
    // The tree has the costs of the entries again that were dropped.
    void finish() {
      for (const entry& e : dropped_) tree_->set(e.index, e.cost);
      dropped_.clear();
    }

   private:
    static constexpr auto later = [](const entry& a, const entry& b) {
      return a.cost != b.cost ? a.cost > b.cost : a.index > b.index;
    };
    void pop() {
      std::pop_heap(part_.begin(), part_.end(), later);
      part_.pop_back();
    }

    cost_tree* tree_ = nullptr;
    bool is_part_ = false;
    std::vector<entry> part_{};  // a heap
    std::vector<entry> dropped_{};
  };

 private:
  static constexpr std::size_t fan_out = 8;

  // The least cost of a block of the level below.
  [[nodiscard]] std::uint64_t least_below(std::size_t level, std::size_t i) const noexcept {
    const std::vector<std::uint64_t>& below = levels_[level - 1];
    std::uint64_t least = never;
    const std::size_t end = (std::min)((i + 1) * fan_out, below.size());
    for (std::size_t c = i * fan_out; c < end; ++c) least = (std::min)(least, below[c]);
    return least;
  }

  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace detail
APIARY_NAMESPACE_END
