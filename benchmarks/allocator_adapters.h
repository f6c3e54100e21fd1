// apiary/benchmarks/allocator_adapters.h - objects, and nothing, as allocators; a helper for your own.
// SPDX-License-Identifier: MIT
#pragma once

#include "allocator_loads.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace apiary_bench {

// The leaves that an allocator of your own has granted: all that a simple one has to store.
template <apiary::CellTree Tree>
class used_leaves {
 public:
  explicit used_leaves(const Tree& tree) : tree_(tree), used_(tree.num_cells()) {}
  // Marks the leaves of c as used if none of them is. Returns whether it did.
  bool take(apiary::cell_id c) {
    const auto leaves = tree_.descendants(c, 0);
    if (used_.count_of(leaves.first.value, leaves.last.value) > 0) return false;
    used_.set_range(leaves.first.value, leaves.last.value);
    return true;
  }
  // Marks the leaves of c as not used.
  void give_back(apiary::cell_id c) {
    const auto leaves = tree_.descendants(c, 0);
    used_.reset_range(leaves.first.value, leaves.last.value);
  }

 private:
  Tree tree_;
  apiary::summary_bitset used_;  // by the value of the id
};

// Grants nothing: what the measurement itself takes.
template <apiary::CellTree Tree>
class no_allocator {
 public:
  explicit no_allocator(const Tree&) {}
  std::optional<apiary::cell_id> allocate(apiary::level_t level) { return apiary::cell_id(level); }
  void release(apiary::cell_id) {}
};

// Objects instead of cells: 16 bytes for each leaf.
template <class Grant, class Release>
class object_allocator {
 public:
  object_allocator(const apiary::uniform_tree& tree, Grant grant, Release take_back)
      : leaves_(leaves_per_level(tree)), grant_(grant), release_(take_back) {}
  auto allocate(apiary::level_t level) {
    return std::optional(grant_(std::size_t{16} * leaves_[level]));
  }
  template <class Object>
  void release(Object object) {
    release_(object);
  }

 private:
  std::vector<std::uint32_t> leaves_;
  Grant grant_;
  Release release_;
};

}  // namespace apiary_bench
