// apiary/alloc/node_index.h - nodes by class, taken from as few racks as possible.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/fast_div.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Nodes 0, ..., nodes-1, each in one class or in none; a class is for instance "so many leaves free
// and so many used". Node i stands in group (rack) i / group_size; the last group may be short.
//
// Model:    one summary_bitset of (class, node); a second one of (class, nodes that the group lacks
//           to be all of that class, group), whose members in ascending order are the groups of a
//           class, the fullest first. It has no more bits than the first.
// Requires: classes * nodes (rounded up to whole groups) < 2^32 - 64, nodes < 2^31.
// Cost:     assign O(log64 of that product), usually a word of each of six places; pick O(log64) a
//           node and a group taken; the others O(1) or O(log64). 2.03 bits a node and class, a
//           byte a group and class (four where groups have more than 255 nodes), 2 bytes a node.
class node_index {
 public:
  using class_t = std::uint16_t;
  static constexpr class_t none = 0xffff;

  // Every node is in no class. Requires: group_size > 0.
  node_index(std::uint32_t nodes, class_t classes, std::uint32_t group_size)
      : group_of_(group_size),
        groups_(nodes / group_size + (nodes % group_size != 0 ? 1 : 0)),
        span_(groups_ * group_size),
        class_of_(nodes, none),
        counts_(classes) {
    APIARY_VERIFY(std::uint64_t{groups_} * group_size * classes < summary_bitset::npos - 63);
    members_ = summary_bitset(span_ * classes);
    by_fullness_ = summary_bitset(span_ * classes);
    const std::size_t cells = std::size_t{groups_} * classes;
    group_size > 255 ? large_.resize(cells) : small_.resize(cells);
  }

  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(class_of_.size());
  }
  [[nodiscard]] class_t num_classes() const noexcept {
    return static_cast<class_t>(counts_.size());
  }
  [[nodiscard]] std::uint32_t group_of(node_id node) const noexcept {
    return group_of_.quotient(node.value);
  }
  [[nodiscard]] class_t class_of(node_id node) const noexcept {
    APIARY_ASSERT(node.value < num_nodes());
    return class_of_[node.value];
  }
  // How many nodes are in class c; of each class.
  [[nodiscard]] std::uint32_t count(class_t c) const noexcept {
    APIARY_ASSERT(c < num_classes());
    return counts_[c];
  }
  [[nodiscard]] std::span<const std::uint32_t> counts() const noexcept { return counts_; }

  // The lowest node of class c, not valid when there is none.
  [[nodiscard]] node_id first(class_t c) const noexcept {
    return count(c) == 0 ? node_id() : node_id(members_.find_next(span_ * c) - span_ * c);
  }

  // Puts the node in a class, or in none; what it was in.
  class_t assign(node_id node, class_t to) noexcept {
    APIARY_ASSERT(node.value < num_nodes() && (to < num_classes() || to == none));
    const class_t from = class_of_[node.value];
    if (from == to) return from;
    class_of_[node.value] = to;
    const std::uint32_t group = group_of(node);
    if (from != none) {
      --counts_[from];
      members_.reset(span_ * from + node.value);
      const std::uint32_t n = in_group(from, group);
      by_fullness_.reset(key(from, group, n));
      if (n > 1) by_fullness_.set(key(from, group, n - 1));
      set_in_group(from, group, n - 1);
    }
    if (to != none) {
      ++counts_[to];
      members_.set(span_ * to + node.value);
      const std::uint32_t n = in_group(to, group);
      if (n > 0) by_fullness_.reset(key(to, group, n));
      by_fullness_.set(key(to, group, n + 1));
      set_in_group(to, group, n + 1);
    }
    return from;
  }

  // Calls sink(node_id) for n nodes of class c in as few groups as hold n of them: the fullest
  // group first (of equally full ones the lowest), its nodes in ascending order. A single node is
  // the lowest of the class.
  // Requires: n <= count(c); sink does not change the index.
  template <class Sink>
  void pick(class_t c, std::uint32_t n, Sink&& sink) const {
    if (n == 1) {
      APIARY_ASSERT(count(c) > 0);
      sink(first(c));
    } else {
      pick_groups(c, n, sink, [](std::uint32_t k, std::uint32_t) { return k; });
    }
  }
  // The same in as few groups, but what does not need a whole group more comes from the one with
  // the fewest nodes that are enough (of equal ones the lowest), so that fuller ones stay full.
  template <class Sink>
  void pick_tightly(class_t c, std::uint32_t n, Sink&& sink) const {
    const std::uint32_t base = span_ * c;
    pick_groups(c, n, sink, [&](std::uint32_t k, std::uint32_t left) {
      if (left >= in_group(c, (k - base) % groups_)) return k;
      const std::uint32_t row = base + (group_of_.divisor() - left) * groups_;  // just enough
      const std::uint32_t last = by_fullness_.find_prev(row + groups_ - 1);
      return by_fullness_.find_next(std::max(k, last - (last - base) % groups_));
    });
  }

  // As pick, for n nodes of either class, in as few groups as hold n of them if no group has nodes
  // of both: next comes the fullest group of class c if no other is fuller or it is enough for the
  // rest, otherwise that of the other class. A single node is of class c if there is one.
  // Requires: n <= count(c) + count(other), c and other differ.
  template <class Sink>
  void pick_either(class_t c, class_t other, std::uint32_t n, Sink&& sink) const {
    APIARY_ASSERT(n <= count(c) + count(other));
    if (n == 1) return sink(first(count(c) > 0 ? c : other));
    std::uint32_t k = by_fullness_.find_next(span_ * c);
    std::uint32_t also = by_fullness_.find_next(span_ * other);
    while (n > 0) {
      const std::uint32_t there = size_at(other, also);
      const bool at_c = size_at(c, k) >= std::max(1U, std::min(n, there));
      std::uint32_t& at = at_c ? k : also;
      const class_t from = at_c ? c : other;
      n -= take(from, (at - span_ * from) % groups_, n, sink);
      at = by_fullness_.find_next(at + 1);
    }
  }

  // Bytes on the heap.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return members_.memory_bytes() + by_fullness_.memory_bytes() + small_.capacity() +
           (large_.capacity() + counts_.capacity()) * sizeof(std::uint32_t) +
           class_of_.capacity() * sizeof(class_t);
  }

  // All else follows from the class of each node.
  friend bool operator==(const node_index& a, const node_index& b) noexcept {
    return a.class_of_ == b.class_of_ && a.counts_.size() == b.counts_.size() &&
           a.group_of_.divisor() == b.group_of_.divisor();
  }

 private:
  // Takes groups in the order of by_fullness_ until n nodes are taken; choose(k, left) may prefer
  // another one to that at k when `left` nodes are still to be taken.
  template <class Sink, class Choose>
  void pick_groups(class_t c, std::uint32_t n, Sink& sink, Choose choose) const {
    APIARY_ASSERT(n <= count(c));
    const std::uint32_t base = span_ * c;
    for (std::uint32_t k = base; n > 0; ++k) {
      k = choose(by_fullness_.find_next(k), n);
      n -= take(c, (k - base) % groups_, n, sink);
    }
  }
  // Takes up to n nodes of class c in a group; how many.
  template <class Sink>
  std::uint32_t take(class_t c, std::uint32_t group, std::uint32_t n, Sink& sink) const {
    const std::uint32_t taken = std::min(in_group(c, group), n);
    std::uint32_t i = span_ * c + group * group_of_.divisor();
    for (std::uint32_t t = 0; t < taken; ++t, ++i) {
      i = members_.find_next(i);
      sink(node_id(i - span_ * c));
    }
    return taken;
  }
  // Nodes of class c in the group that stands there in by_fullness_; 0 if it is of another class.
  [[nodiscard]] std::uint32_t size_at(class_t c, std::uint32_t k) const noexcept {
    const std::uint32_t base = span_ * c;
    return k - base < span_ ? group_of_.divisor() - (k - base) / groups_ : 0;
  }
  // Where the group stands in by_fullness_ with n > 0 nodes of class c.
  [[nodiscard]] std::uint32_t key(class_t c, std::uint32_t group, std::uint32_t n) const noexcept {
    return span_ * c + (group_of_.divisor() - n) * groups_ + group;
  }
  [[nodiscard]] std::uint32_t in_group(class_t c, std::uint32_t group) const noexcept {
    const std::size_t at = std::size_t{group} * counts_.size() + c;
    return small_.empty() ? large_[at] : small_[at];
  }
  void set_in_group(class_t c, std::uint32_t group, std::uint32_t n) noexcept {
    const std::size_t at = std::size_t{group} * counts_.size() + c;
    if (small_.empty()) {
      large_[at] = n;
    } else {
      small_[at] = static_cast<std::uint8_t>(n);
    }
  }

  fast_div group_of_;
  std::uint32_t groups_;
  std::uint32_t span_;                 // nodes of all groups, were they whole
  std::vector<class_t> class_of_;      // of each node
  std::vector<std::uint32_t> counts_;  // nodes in each class
  summary_bitset members_;             // span_ * class + node
  summary_bitset by_fullness_;         // span_ * class + lacking nodes * groups_ + group
  std::vector<std::uint8_t> small_;    // nodes by group and class, one of the two
  std::vector<std::uint32_t> large_;
};

APIARY_NAMESPACE_END
