// apiary/alloc/priority_usage.h - how many leaves of each cell every priority class uses.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps which priority class uses each leaf, and how many leaves of each cell every class uses. A
// higher class can preempt a lower one. HiveD uses class 0 for opportunistic tasks.
//
// Requires: 1 to 255 classes.
// Cost:     assign O(levels * distance of the two classes); queries O(1), free_at O(levels).
//           Memory: 4 * classes bytes for each cell above the leaves, 1 byte for each leaf.
template <CellTree Tree>
class priority_usage {
 public:
  // A priority class, or unused.
  using class_t = std::uint8_t;
  // The value for a leaf that no class uses.
  static constexpr class_t unused = 255;

  // No leaf is in use. Classes are 0, ..., classes - 1.
  priority_usage(Tree tree, class_t classes)
      : tree_(std::move(tree)),
        classes_(classes),
        first_leaf_(tree_.cells(0).first.value),
        at_least_(std::size_t{first_leaf_} * classes),
        class_of_(tree_.num_cells() - first_leaf_, unused) {
    APIARY_VERIFY(classes >= 1);
  }

  // Assigns the leaf to a class, or to none (`unused`). Returns the previous class.
  class_t assign(cell_id leaf, class_t to) noexcept {
    APIARY_ASSERT(leaf.value >= first_leaf_ && leaf.value < tree_.num_cells());
    APIARY_ASSERT(to < classes_ || to == unused);
    class_t& at = class_of_[leaf.value - first_leaf_];
    const class_t from = at;
    at = to;
    // The counts of the classes in [low, high) change by one.
    const unsigned before = end(from);
    const unsigned after = end(to);
    const unsigned low = before < after ? before : after;
    const unsigned high = before < after ? after : before;
    const std::uint32_t step = before < after ? 1U : ~0U;
    level_t l = 0;
    for (cell_id c = tree_.parent(leaf, l); c.valid() && low < high; c = tree_.parent(c, l)) {
      std::uint32_t* const row = &at_least_[std::size_t{c.value} * classes_];
      for (unsigned k = low; k < high; ++k) row[k] += step;
      ++l;
    }
    return from;
  }

  // Assigns several leaves to a class, or to none. Requires: ascending leaves that are all in the
  // same class, or in none; at most 64. Cost: O(cells around one of them).
  void assign_all(std::span<const cell_id> leaves, class_t to) noexcept {
    if (leaves.empty()) return;
    const unsigned was = end(class_of(leaves.front()));
    const unsigned is = end(to);
    for (const cell_id leaf : leaves) {
      APIARY_ASSERT(end(class_of(leaf)) == was);
      class_of_[leaf.value - first_leaf_] = to;
    }
    detail::for_each_ancestor(tree_, leaves, [&](cell_id c, std::uint32_t count) {
      std::uint32_t* const counts = &at_least_[std::size_t{c.value} * classes_];
      for (unsigned k = was; k < is; ++k) counts[k] += count;
      for (unsigned k = is; k < was; ++k) counts[k] -= count;
    });
  }

  // The class that uses the leaf, or unused.
  [[nodiscard]] class_t class_of(cell_id leaf) const noexcept {
    APIARY_ASSERT(leaf.value >= first_leaf_ && leaf.value < tree_.num_cells());
    return class_of_[leaf.value - first_leaf_];
  }
  // Leaves of c that class k uses.
  [[nodiscard]] std::uint32_t used(cell_id c, class_t k) const noexcept {
    APIARY_ASSERT(k < classes_);
    return used_at_least(c, k) -
           (k + 1 < classes_ ? used_at_least(c, static_cast<class_t>(k + 1)) : 0);
  }
  // Leaves of c that class k or a higher class uses.
  [[nodiscard]] std::uint32_t used_at_least(cell_id c, class_t k) const noexcept {
    APIARY_ASSERT(k < classes_ && c.value < tree_.num_cells());
    if (c.value < first_leaf_) return at_least_[std::size_t{c.value} * classes_ + k];
    return end(class_of_[c.value - first_leaf_]) > k ? 1 : 0;
  }
  // Leaves of c that class k may use: unused ones and those of lower classes.
  [[nodiscard]] std::uint32_t free_at(cell_id c, class_t k) const noexcept {
    return tree_.descendants(c, 0).size() - used_at_least(c, k);
  }

  // The number of classes.
  [[nodiscard]] class_t num_classes() const noexcept { return classes_; }
  // The tree of the leaves.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // Bytes on the heap, without the tree.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return at_least_.capacity() * sizeof(std::uint32_t) + class_of_.capacity() * sizeof(class_t);
  }
  // Requires: usage of the same tree.
  friend bool operator==(const priority_usage& a, const priority_usage& b) noexcept {
    return a.classes_ == b.classes_ && a.class_of_ == b.class_of_ && a.at_least_ == b.at_least_;
  }

 private:
  // A leaf of class k counts for all classes below this value.
  static constexpr unsigned end(class_t k) noexcept { return k == unused ? 0U : k + 1U; }
  Tree tree_;
  class_t classes_;
  std::uint32_t first_leaf_;
  std::vector<std::uint32_t> at_least_;    // of each cell above the leaves, `classes_` counts
  detail::lean_vector<class_t> class_of_;  // of each leaf
};

APIARY_NAMESPACE_END
