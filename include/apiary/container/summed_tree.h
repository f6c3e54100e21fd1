// apiary/container/summed_tree.h - items in order, with a summary of each subtree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Items in order, with a summary of each subtree, so that a search can skip whole subtrees.
//
// Traits::item                     an item; its order does not change while it is in the tree
// Traits::summary                  what a search needs to know about the items of a subtree
// Traits::before(a, b)             the order: of two different items, exactly one is before the
// other Traits::number(item)             a number of the item, from which its priority is hashed
// Traits::sum(left, item, right)   the summary of a subtree; null: there is no such child
//
// Model: a treap (Seidel, Aragon, "Randomized search trees", Algorithmica 1996). Its priorities are
//        a hash of the numbers of the items, so equal calls make equal trees.
// Cost:  insert, erase, edit O(log items) expected.
template <class Traits>
class summed_tree {
 public:
  // What the tree holds.
  using item = typename Traits::item;
  // What is kept of each subtree.
  using summary = typename Traits::summary;
  // No node.
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // A node of the tree.
  struct node {
    item at{};                   // its item
    summary all{};               // of this node and both children
    std::uint32_t left = none;   // the child with the items before it
    std::uint32_t right = none;  // the child with the items after it
  };

  // The number of items.
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size() - free_.size(); }
  // Whether there is no item.
  [[nodiscard]] bool empty() const noexcept { return root_ == none; }
  // The root; none if the tree is empty.
  [[nodiscard]] std::uint32_t root() const noexcept { return root_; }
  // Node n. Requires: n is the root, or a child of a node.
  [[nodiscard]] const node& operator[](std::uint32_t n) const noexcept { return nodes_[n]; }

  // The item of this order; null: there is none.
  [[nodiscard]] const item* find(const item& which) const noexcept {
    std::uint32_t n = root_;
    while (n != none) {
      const node& here = nodes_[n];
      const bool lower = Traits::before(which, here.at);
      if (!lower && !Traits::before(here.at, which)) return &here.at;
      n = lower ? here.left : here.right;
    }
    return nullptr;
  }

  // Inserts an item. Requires: the item is not in the tree.
  void insert(const item& added) {
    std::uint32_t n;
    if (free_.empty()) {
      n = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      n = free_.back();
      free_.pop_back();
    }
    nodes_[n] = {added, {}, none, none};
    update(n);
    const auto [low, high] = split(root_, added);
    root_ = merge(merge(low, n), high);
  }
  // Removes an item. Requires: the item is in the tree.
  void erase(const item& gone) { root_ = without(root_, gone); }
  // Calls change(item) for the item of this order; returns whether there is one.
  template <class Change>
  bool edit(const item& which, Change&& change) {
    return edit_in(root_, which, change);
  }
  // The first item after `passed` for which may(item); null if there is none. any(summary) is false
  // only if may() is false for all items of the subtree. Cost: as many nodes as any() lets pass.
  template <class Any, class May>
  [[nodiscard]] const item* first_after(const item& passed, Any&& any, May&& may) const {
    return first_in(root_, passed, any, may);
  }

 private:
  [[nodiscard]] static std::uint64_t rank(const item& i) noexcept {
    std::uint64_t z = (Traits::number(i) + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    return z ^ (z >> 31);
  }
  [[nodiscard]] const summary* all_of(std::uint32_t n) const noexcept {
    return n == none ? nullptr : &nodes_[n].all;
  }
  // Makes the summary of node n. Returns n.
  std::uint32_t update(std::uint32_t n) noexcept {
    node& here = nodes_[n];
    here.all = Traits::sum(all_of(here.left), here.at, all_of(here.right));
    return n;
  }
  // Splits the subtree n into the items before `at` and the others.
  std::pair<std::uint32_t, std::uint32_t> split(std::uint32_t n, const item& at) noexcept {
    if (n == none) return {none, none};
    if (Traits::before(nodes_[n].at, at)) {
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
    if (Traits::before(gone, here.at)) {
      here.left = without(here.left, gone);
    } else if (Traits::before(here.at, gone)) {
      here.right = without(here.right, gone);
    } else {
      free_.push_back(n);
      return merge(here.left, here.right);
    }
    return update(n);
  }
  template <class Change>
  bool edit_in(std::uint32_t n, const item& which, Change& change) {
    if (n == none) return false;
    node& here = nodes_[n];
    bool found = true;
    if (Traits::before(which, here.at)) {
      found = edit_in(here.left, which, change);
    } else if (Traits::before(here.at, which)) {
      found = edit_in(here.right, which, change);
    } else {
      change(here.at);
    }
    if (found) update(n);
    return found;
  }
  template <class Any, class May>
  [[nodiscard]] const item* first_in(std::uint32_t n, const item& passed, Any& any,
                                     May& may) const {
    if (n == none || !any(nodes_[n].all)) return nullptr;
    const node& here = nodes_[n];
    if (Traits::before(passed, here.at)) {
      if (const item* const found = first_in(here.left, passed, any, may)) return found;
      if (may(here.at)) return &here.at;
    }
    return first_in(here.right, passed, any, may);
  }

  std::vector<node> nodes_;
  std::vector<std::uint32_t> free_;  // of nodes_
  std::uint32_t root_ = none;
};

APIARY_NAMESPACE_END
