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

  // Walks through the indices of a tree in ascending order of (cost, index), without those of the cost
  // `never`. Requires: only costs of indices that it has returned change. Cost: a step O(log8 size) costs and a heap.
  class walk {
   public:
    // Starts at the least cost of the tree.
    void start(const cost_tree& tree) {
      tree_ = &tree;
      most_ = never - 1;
      heap_.clear();
      const std::size_t top = tree.levels_.size() - 1;
      for (std::size_t i = 0; i < tree.levels_[top].size(); ++i) push(top, i);
    }
    // Starts at the least cost of the indices in `only`, and returns no others. Cost: O(indices).
    void start(const cost_tree& tree, const summary_bitset& only) {
      tree_ = &tree;
      most_ = never - 1;
      heap_.clear();
      for (std::uint32_t i = only.find_first(); i < tree.size(); i = only.find_next(i + 1))
        push(0, i);
    }
    // The next entry; nullopt if there is none.
    [[nodiscard]] std::optional<entry> next() {
      while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const block top = heap_.back();
        heap_.pop_back();
        if (top.level == 0) return entry{top.cost, top.first};
        const std::size_t child = top.index * fan_out;
        const std::size_t level = top.level - std::size_t{1};
        const std::size_t end = (std::min)(child + fan_out, tree_->levels_[level].size());
        for (std::size_t i = child; i < end; ++i) push(level, i);
      }
      return std::nullopt;
    }
    // Leaves out the indices of costs above this one from now on; some may still be returned.
    void limit(std::uint64_t most) noexcept { most_ = most; }
    // Returns an index again, when the walk comes to this cost.
    void again(entry e) {
      heap_.push_back({e.cost, e.index, e.index, 0});
      std::push_heap(heap_.begin(), heap_.end(), later);
    }

   private:
    // A part of the tree that was not walked through yet.
    struct block {
      std::uint64_t cost = 0;   // its least cost
      std::size_t index = 0;    // in its level
      std::uint32_t first = 0;  // its first index of the tree
      std::uint32_t level = 0;
    };
    static constexpr auto later = [](const block& a, const block& b) {
      return a.cost != b.cost ? a.cost > b.cost : a.first > b.first;
    };
    void push(std::size_t level, std::size_t i) {
      const std::uint64_t cost = tree_->levels_[level][i];
      if (cost > most_) return;
      std::size_t first = i;
      for (std::size_t l = 0; l < level; ++l) first *= fan_out;
      heap_.push_back(
          {cost, i, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(level)});
      std::push_heap(heap_.begin(), heap_.end(), later);
    }

    const cost_tree* tree_ = nullptr;
    std::uint64_t most_ = never - 1;
    std::vector<block> heap_{};
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
