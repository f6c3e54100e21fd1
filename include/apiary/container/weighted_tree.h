// apiary/container/weighted_tree.h - ordered items with weights and prefix sums.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Items in order of key and then id, with weights: prefix sums, and the first item below a weight.
//
// Model:    a treap (Seidel, Aragon, "Randomized search trees", Algorithmica 1996). Its priorities
//           are a hash of the ids, so equal calls make equal trees.
// Requires: no two items with equal key and id; weights >= 0. Sums saturate at 2^63 - 1.
// Cost:     every call O(log items) expected. Memory: 60 bytes for each item, for the largest
//           number of items so far.
class weighted_tree {
 public:
  // A key, an id that makes it unique, and a weight.
  struct item {
    std::int64_t key = 0;     // orders the items
    std::uint32_t id = 0;     // orders items with equal keys
    std::int64_t weight = 0;  // what the sums add up
    friend constexpr bool operator==(const item&, const item&) noexcept = default;
  };
  // An item and the sum of the weights of all items up to and including it.
  struct reached {
    item at{};             // the item
    std::int64_t sum = 0;  // sum of the weights up to and including the item
  };

  // The number of items.
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size() - free_.size(); }
  // Whether there is no item.
  [[nodiscard]] bool empty() const noexcept { return root_ == none; }
  // The sum of all weights.
  [[nodiscard]] std::int64_t sum() const noexcept { return root_ == none ? 0 : nodes_[root_].sum; }

  // Inserts an item.
  void insert(const item& added) {
    APIARY_ASSERT(added.weight >= 0);
    std::uint32_t n;
    if (free_.empty()) {
      n = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      n = free_.back();
      free_.pop_back();
    }
    nodes_[n] = {added, added.weight, added.weight, n, none, none};
    const auto [low, high] = split(root_, added);
    root_ = merge(merge(low, n), high);
  }
  // Removes an item. Requires: there is an item with this key and id.
  void erase(std::int64_t key, std::uint32_t id) { root_ = without(root_, item{key, id, 0}); }

  // The first item; nullopt if there is none.
  [[nodiscard]] std::optional<item> first() const noexcept {
    return first_at_most((std::numeric_limits<std::int64_t>::max)());
  }
  // The first item whose weight is at most `limit`; nullopt if there is none.
  [[nodiscard]] std::optional<item> first_at_most(std::int64_t limit) const noexcept {
    std::uint32_t n = root_;
    if (n == none || nodes_[n].least > limit) return std::nullopt;
    while (true) {
      const node& here = nodes_[n];
      if (here.left != none && nodes_[here.left].least <= limit) {
        n = here.left;
      } else if (here.at.weight <= limit) {
        return here.at;
      } else {
        n = here.right;
      }
    }
  }
  // The first item after this key and id. An item with them need not exist.
  [[nodiscard]] std::optional<item> next(std::int64_t key, std::uint32_t id) const noexcept {
    const item passed{key, id, 0};
    std::optional<item> found;
    for (std::uint32_t n = root_; n != none;) {
      const bool later = before(passed, nodes_[n].at);
      if (later) found = nodes_[n].at;
      n = later ? nodes_[n].left : nodes_[n].right;
    }
    return found;
  }
  // The last item before this key and id. An item with them need not exist.
  [[nodiscard]] std::optional<item> previous(std::int64_t key, std::uint32_t id) const noexcept {
    const item end{key, id, 0};
    std::optional<item> found;
    for (std::uint32_t n = root_; n != none;) {
      const bool earlier = before(nodes_[n].at, end);
      if (earlier) found = nodes_[n].at;
      n = earlier ? nodes_[n].right : nodes_[n].left;
    }
    return found;
  }
  // The item with the least weight, then id, with a key in [from, to]; nullopt if there is none.
  [[nodiscard]] std::optional<item> lightest(std::int64_t from, std::int64_t to) const noexcept {
    std::uint32_t n = root_;
    while (n != none && (nodes_[n].at.key < from || nodes_[n].at.key > to)) {
      n = nodes_[n].at.key < from ? nodes_[n].right : nodes_[n].left;
    }
    if (n == none) return std::nullopt;
    std::uint32_t best = n;
    const auto consider = [&](std::uint32_t one, std::uint32_t subtree) {
      if (lighter(one, best)) best = one;
      if (subtree != none && lighter(nodes_[subtree].lightest, best))
        best = nodes_[subtree].lightest;
    };
    for (std::uint32_t low = nodes_[n].left; low != none;) {
      const node& here = nodes_[low];
      if (here.at.key >= from) consider(low, here.right);
      low = here.at.key >= from ? here.left : here.right;
    }
    for (std::uint32_t high = nodes_[n].right; high != none;) {
      const node& here = nodes_[high];
      if (here.at.key <= to) consider(high, here.left);
      high = here.at.key <= to ? here.right : here.left;
    }
    return nodes_[best].at;
  }
  // The sum of the weights of all items up to this key and id (without an id: up to this key).
  [[nodiscard]] std::int64_t sum_to(
      std::int64_t key,
      std::uint32_t id = (std::numeric_limits<std::uint32_t>::max)()) const noexcept {
    const item last{key, id, 0};
    std::int64_t sum = 0;
    for (std::uint32_t n = root_; n != none;) {
      const node& here = nodes_[n];
      if (before(last, here.at)) {
        n = here.left;
      } else {
        sum = plus(sum, plus(here.at.weight, here.left == none ? 0 : nodes_[here.left].sum));
        n = here.right;
      }
    }
    return sum;
  }
  // The first item whose prefix sum is at least `sum`; nullopt if the total is less.
  [[nodiscard]] std::optional<reached> reach(std::int64_t sum) const noexcept {
    if (root_ == none || nodes_[root_].sum < sum) return std::nullopt;
    std::int64_t passed = 0;
    std::uint32_t n = root_;
    while (true) {
      const node& here = nodes_[n];
      const std::int64_t before_it = plus(passed, here.left == none ? 0 : nodes_[here.left].sum);
      const std::int64_t with_it = plus(before_it, here.at.weight);
      if (here.left != none && before_it >= sum) {
        n = here.left;
      } else if (with_it >= sum || here.right == none) {
        return reached{here.at, with_it};
      } else {
        passed = with_it;
        n = here.right;
      }
    }
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct node {
    item at{};
    std::int64_t least = 0;         // the least weight in this subtree
    std::int64_t sum = 0;           // of the weights in this subtree
    std::uint32_t lightest = none;  // item of this subtree
    std::uint32_t left = none;
    std::uint32_t right = none;
  };

  [[nodiscard]] static std::int64_t plus(std::int64_t a, std::int64_t b) noexcept {
    constexpr std::int64_t most = (std::numeric_limits<std::int64_t>::max)();
    return a > most - b ? most : a + b;
  }
  [[nodiscard]] static bool before(const item& a, const item& b) noexcept {
    return a.key != b.key ? a.key < b.key : a.id < b.id;
  }
  [[nodiscard]] bool lighter(std::uint32_t a, std::uint32_t b) const noexcept {
    const item& i = nodes_[a].at;
    const item& j = nodes_[b].at;
    return i.weight != j.weight ? i.weight < j.weight : i.id < j.id;
  }
  [[nodiscard]] static std::uint64_t rank(const item& i) noexcept {
    std::uint64_t z = (std::uint64_t{i.id} + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    return z ^ (z >> 31);
  }

  // Recomputes the sums of node n. Returns n.
  std::uint32_t update(std::uint32_t n) noexcept {
    node& here = nodes_[n];
    here.sum = here.at.weight;
    here.lightest = n;
    for (const std::uint32_t child : {here.left, here.right}) {
      if (child == none) continue;
      here.sum = plus(here.sum, nodes_[child].sum);
      if (lighter(nodes_[child].lightest, here.lightest)) here.lightest = nodes_[child].lightest;
    }
    here.least = nodes_[here.lightest].at.weight;
    return n;
  }
  // Splits the subtree n into the items before `at` and the others.
  std::pair<std::uint32_t, std::uint32_t> split(std::uint32_t n, const item& at) noexcept {
    if (n == none) return {none, none};
    if (before(nodes_[n].at, at)) {
      const auto [low, high] = split(nodes_[n].right, at);
      nodes_[n].right = low;
      return {update(n), high};
    }
    const auto [low, high] = split(nodes_[n].left, at);
    nodes_[n].left = high;
    return {low, update(n)};
  }
  // Merges two subtrees. Requires: all items of a are before all items of b.
  std::uint32_t merge(std::uint32_t a, std::uint32_t b) noexcept {
    if (a == none) return b;
    if (b == none) return a;
    if (rank(nodes_[a].at) > rank(nodes_[b].at)) {
      nodes_[a].right = merge(nodes_[a].right, b);
      return update(a);
    }
    nodes_[b].left = merge(a, nodes_[b].left);
    return update(b);
  }
  std::uint32_t without(std::uint32_t n, const item& gone) {
    APIARY_VERIFY(n != none);
    node& here = nodes_[n];
    if (before(gone, here.at)) {
      here.left = without(here.left, gone);
    } else if (before(here.at, gone)) {
      here.right = without(here.right, gone);
    } else {
      free_.push_back(n);
      return merge(here.left, here.right);
    }
    return update(n);
  }

  std::vector<node> nodes_;
  std::vector<std::uint32_t> free_;  // of nodes_
  std::uint32_t root_ = none;
};

APIARY_NAMESPACE_END
