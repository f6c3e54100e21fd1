// apiary/hived/detail/node_index.h - nodes by class, picked from as few racks as possible.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/fast_div.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds n nodes of a class in the fewest racks. Each of the nodes 0, ..., nodes-1 is in one class
// or in none; a class is for example "4 leaves free and 2 used". Node i is in group (rack)
// i / group_size; the last group may be smaller.
//
// Requires: classes * nodes (rounded up to whole groups) < 2^32 - 64, nodes < 2^31.
// Cost:     assign O(log64 of that product), usually six words; pick O(log64) for each node and
//           group picked; the others O(1) or O(log64). Memory: 2.03 bits for each node and class,
//           1 byte for each group and class (4 if groups have more than 255 nodes), 2 bytes a node.
class node_index {
 public:
  // A class of nodes: 0, ..., classes-1, or none.
  using class_t = std::uint16_t;
  // No class.
  static constexpr class_t none = 0xffff;

  // At first no node is in a class. Requires: group_size > 0.
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

  // The number of nodes.
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(class_of_.size());
  }
  // The number of classes.
  [[nodiscard]] class_t num_classes() const noexcept {
    return static_cast<class_t>(counts_.size());
  }
  // The group (rack) of the node.
  [[nodiscard]] std::uint32_t group_of(node_id node) const noexcept {
    return group_of_.quotient(node.value);
  }
  // The class of the node, or none.
  [[nodiscard]] class_t class_of(node_id node) const noexcept {
    APIARY_ASSERT(node.value < num_nodes());
    return class_of_[node.value];
  }
  // How many nodes are in class c.
  [[nodiscard]] std::uint32_t count(class_t c) const noexcept {
    APIARY_ASSERT(c < num_classes());
    return counts_[c];
  }
  // How many nodes are in each class.
  [[nodiscard]] std::span<const std::uint32_t> counts() const noexcept { return counts_; }
  // The lowest node of class c; not valid if there is none.
  [[nodiscard]] node_id first(class_t c) const noexcept {
    return count(c) == 0 ? node_id() : node_id(members_.find_next(span_ * c) - span_ * c);
  }

  // Moves the node to a class, or to none. Returns the previous class.
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

  // Calls sink(node_id) for n nodes of class c in the fewest groups: the fullest group first (ties:
  // the lowest group), its nodes ascending. If n is 1, it is the lowest node of the class.
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
  // As pick, but the last group is the emptiest that is enough (ties: lowest): others stay full.
  template <class Sink>
  void pick_tightly(class_t c, std::uint32_t n, Sink&& sink) const {
    const std::uint32_t base = span_ * c;
    pick_groups(c, n, sink, [&](std::uint32_t k, std::uint32_t left) {
      if (left >= in_group(c, (k - base) % groups_)) return k;
      const std::uint32_t row = base + (group_of_.divisor() - left) * groups_;  // just enough
      const std::uint32_t last = by_fullness_.find_prev(row + groups_ - 1);
      return by_fullness_.find_next((std::max)(k, last - (last - base) % groups_));
    });
  }

  // As pick, for n nodes of either class. The number of groups is minimal if no group has nodes of
  // both classes. The next group is the fullest of class c if none of the other class is fuller or
  // if it is enough for the rest; otherwise the fullest of the other class.
  // Requires: n <= count(c) + count(other), c and other differ.
  template <class Sink>
  void pick_either(class_t c, class_t other, std::uint32_t n, Sink&& sink) const {
    APIARY_ASSERT(n <= count(c) + count(other));
    if (n == 1) return sink(first(count(c) > 0 ? c : other));
    std::uint32_t k = by_fullness_.find_next(span_ * c);
    std::uint32_t also = by_fullness_.find_next(span_ * other);
    while (n > 0) {
      const std::uint32_t there = size_at(other, also);
      const bool at_c = size_at(c, k) >= (std::max)(1U, (std::min)(n, there));
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
  // The class of each node determines everything else.
  friend bool operator==(const node_index& a, const node_index& b) noexcept {
    return a.class_of_ == b.class_of_ && a.counts_.size() == b.counts_.size() &&
           a.group_of_.divisor() == b.group_of_.divisor();
  }

 private:
  // Picks n nodes from groups in the order of by_fullness_; choose(k, left) may replace group k.
  template <class Sink, class Choose>
  void pick_groups(class_t c, std::uint32_t n, Sink& sink, Choose choose) const {
    APIARY_ASSERT(n <= count(c));
    const std::uint32_t base = span_ * c;
    for (std::uint32_t k = base; n > 0; ++k) {
      k = choose(by_fullness_.find_next(k), n);
      n -= take(c, (k - base) % groups_, n, sink);
    }
  }
  // Picks up to n nodes of class c in a group. Returns how many.
  template <class Sink>
  std::uint32_t take(class_t c, std::uint32_t group, std::uint32_t n, Sink& sink) const {
    const std::uint32_t taken = (std::min)(in_group(c, group), n);
    std::uint32_t i = span_ * c + group * group_of_.divisor();
    for (std::uint32_t t = 0; t < taken; ++t, ++i) {
      i = members_.find_next(i);
      sink(node_id(i - span_ * c));
    }
    return taken;
  }
  // Nodes of class c in the group at position k of by_fullness_; 0 if k belongs to another class.
  [[nodiscard]] std::uint32_t size_at(class_t c, std::uint32_t k) const noexcept {
    const std::uint32_t base = span_ * c;
    return k - base < span_ ? group_of_.divisor() - (k - base) / groups_ : 0;
  }
  // The position in by_fullness_ of a group with n > 0 nodes of class c.
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
  std::uint32_t span_;                     // nodes if all groups were full
  detail::lean_vector<class_t> class_of_;  // of each node
  std::vector<std::uint32_t> counts_;      // nodes in each class
  summary_bitset members_;                 // span_ * class + node
  summary_bitset by_fullness_;             // span_ * class + missing nodes * groups_ + group
  std::vector<std::uint8_t> small_;        // nodes by group and class; only one of the two is used
  std::vector<std::uint32_t> large_;
};

}  // namespace detail
APIARY_NAMESPACE_END
