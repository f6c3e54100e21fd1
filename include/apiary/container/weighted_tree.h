// apiary/container/weighted_tree.h - ordered items with weights and prefix sums.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/summed_tree.h>
#include <apiary/core/config.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

APIARY_NAMESPACE_BEGIN

// Items in order of key and then id, with weights: prefix sums, and the first item below a weight.
//
// Model:    a summed_tree. Equal calls make equal trees.
// Requires: no two items with equal key and id; weights >= 0. Sums saturate at 2^63 - 1.
// Cost:     every call O(log items) expected. Memory: 64 bytes for each item, for the largest
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
  [[nodiscard]] std::size_t size() const noexcept { return tree_.size(); }
  // Whether there is no item.
  [[nodiscard]] bool empty() const noexcept { return tree_.empty(); }
  // The sum of all weights.
  [[nodiscard]] std::int64_t sum() const noexcept { return sum_of(tree_.root()); }

  // Inserts an item.
  void insert(const item& added) {
    APIARY_ASSERT(added.weight >= 0);
    tree_.insert(added);
  }
  // Removes an item. Requires: there is an item with this key and id.
  void erase(std::int64_t key, std::uint32_t id) { tree_.erase({key, id, 0}); }

  // The first item; nullopt if there is none.
  [[nodiscard]] std::optional<item> first() const noexcept {
    return first_at_most((std::numeric_limits<std::int64_t>::max)());
  }
  // The first item whose weight is at most `limit`; nullopt if there is none.
  [[nodiscard]] std::optional<item> first_at_most(std::int64_t limit) const noexcept {
    std::uint32_t n = tree_.root();
    if (!has_at_most(n, limit)) return std::nullopt;
    while (true) {
      const auto& here = tree_[n];
      if (has_at_most(here.left, limit)) {
        n = here.left;
      } else if (here.at.weight <= limit) {
        return here.at;
      } else {
        n = here.right;
      }
    }
  }
  // The first item after this key and id whose weight is at most `limit`; nullopt if there is none.
  [[nodiscard]] std::optional<item> next_at_most(std::int64_t limit, std::int64_t key,
                                                 std::uint32_t id) const {
    const item* const found = tree_.first_after(
        {key, id, 0}, [limit](const totals& all) { return all.lightest.weight <= limit; },
        [limit](const item& i) { return i.weight <= limit; });
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  // The first item after this key and id. An item with them need not exist.
  [[nodiscard]] std::optional<item> next(std::int64_t key, std::uint32_t id) const noexcept {
    const item passed{key, id, 0};
    std::optional<item> found;
    for (std::uint32_t n = tree_.root(); n != none;) {
      const auto& here = tree_[n];
      const bool later = in_order::before(passed, here.at);
      if (later) found = here.at;
      n = later ? here.left : here.right;
    }
    return found;
  }
  // The last item before this key and id. An item with them need not exist.
  [[nodiscard]] std::optional<item> previous(std::int64_t key, std::uint32_t id) const noexcept {
    const item end{key, id, 0};
    std::optional<item> found;
    for (std::uint32_t n = tree_.root(); n != none;) {
      const auto& here = tree_[n];
      const bool earlier = in_order::before(here.at, end);
      if (earlier) found = here.at;
      n = earlier ? here.right : here.left;
    }
    return found;
  }
  // The item with the least weight, then id, with a key in [from, to]; nullopt if there is none.
  [[nodiscard]] std::optional<item> lightest(std::int64_t from, std::int64_t to) const noexcept {
    std::uint32_t n = tree_.root();
    while (n != none && (tree_[n].at.key < from || tree_[n].at.key > to)) {
      n = tree_[n].at.key < from ? tree_[n].right : tree_[n].left;
    }
    if (n == none) return std::nullopt;
    item best = tree_[n].at;
    const auto consider = [&](const item& one, std::uint32_t subtree) {
      if (lighter(one, best)) best = one;
      if (subtree != none && lighter(tree_[subtree].all.lightest, best))
        best = tree_[subtree].all.lightest;
    };
    for (std::uint32_t low = tree_[n].left; low != none;) {
      const auto& here = tree_[low];
      if (here.at.key >= from) consider(here.at, here.right);
      low = here.at.key >= from ? here.left : here.right;
    }
    for (std::uint32_t high = tree_[n].right; high != none;) {
      const auto& here = tree_[high];
      if (here.at.key <= to) consider(here.at, here.left);
      high = here.at.key <= to ? here.right : here.left;
    }
    return best;
  }
  // The sum of the weights of all items up to this key and id (without an id: up to this key).
  [[nodiscard]] std::int64_t sum_to(
      std::int64_t key,
      std::uint32_t id = (std::numeric_limits<std::uint32_t>::max)()) const noexcept {
    const item last{key, id, 0};
    std::int64_t sum = 0;
    for (std::uint32_t n = tree_.root(); n != none;) {
      const auto& here = tree_[n];
      if (in_order::before(last, here.at)) {
        n = here.left;
      } else {
        sum = plus(sum, plus(here.at.weight, sum_of(here.left)));
        n = here.right;
      }
    }
    return sum;
  }
  // The first item whose prefix sum is at least `sum`; nullopt if the total is less.
  [[nodiscard]] std::optional<reached> reach(std::int64_t sum) const noexcept {
    if (empty() || this->sum() < sum) return std::nullopt;
    std::int64_t passed = 0;
    std::uint32_t n = tree_.root();
    while (true) {
      const auto& here = tree_[n];
      const std::int64_t before_it = plus(passed, sum_of(here.left));
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
  struct totals {
    std::int64_t sum = 0;  // of the weights
    item lightest{};
  };
  struct in_order {
    using item = weighted_tree::item;
    using summary = totals;
    [[nodiscard]] static bool before(const item& a, const item& b) noexcept {
      return a.key != b.key ? a.key < b.key : a.id < b.id;
    }
    [[nodiscard]] static std::uint64_t number(const item& i) noexcept { return i.id; }
    [[nodiscard]] static totals sum(const totals* left, const item& i,
                                    const totals* right) noexcept {
      totals all{i.weight, i};
      for (const totals* const child : {left, right}) {
        if (child == nullptr) continue;
        all.sum = plus(all.sum, child->sum);
        if (lighter(child->lightest, all.lightest)) all.lightest = child->lightest;
      }
      return all;
    }
  };
  using tree = summed_tree<in_order>;
  static constexpr std::uint32_t none = tree::none;

  [[nodiscard]] static std::int64_t plus(std::int64_t a, std::int64_t b) noexcept {
    constexpr std::int64_t most = (std::numeric_limits<std::int64_t>::max)();
    return a > most - b ? most : a + b;
  }
  [[nodiscard]] static bool lighter(const item& a, const item& b) noexcept {
    return a.weight != b.weight ? a.weight < b.weight : a.id < b.id;
  }
  [[nodiscard]] std::int64_t sum_of(std::uint32_t n) const noexcept {
    return n == none ? 0 : tree_[n].all.sum;
  }
  [[nodiscard]] bool has_at_most(std::uint32_t n, std::int64_t limit) const noexcept {
    return n != none && tree_[n].all.lightest.weight <= limit;
  }

  tree tree_;
};

APIARY_NAMESPACE_END
