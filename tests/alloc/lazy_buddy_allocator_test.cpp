// apiary/tests/alloc/lazy_buddy_allocator_test.cpp - lazy merging against plain definitions.
// SPDX-License-Identifier: MIT
#include "../../benchmarks/lazy_buddy_allocator.h"

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <support/cell_allocator_suite.h>
#include <support/naive_allocator.h>
#include <utility>
#include <vector>

using namespace apiary;
using apiary_bench::lazy_buddy_allocator;

namespace {

// A lazy allocator; what is asked about its free cells is answered by a copy that has merged them.
template <CellTree Tree>
class merged_when_asked {
 public:
  explicit merged_when_asked(Tree tree) : lazy_(std::move(tree)) {}
  std::optional<cell_id> allocate(level_t level) { return changed().allocate(level); }
  bool allocate_at(cell_id c) { return changed().allocate_at(c); }
  void release(cell_id c) { changed().release(c); }
  [[nodiscard]] std::uint32_t free_count(level_t l) const { return merged().free_count(l); }
  [[nodiscard]] std::optional<level_t> enclosing_free_level(cell_id c) const {
    return merged().enclosing_free_level(c);
  }
  [[nodiscard]] bool is_live(cell_id c) const { return lazy_.is_live(c); }
  [[nodiscard]] const Tree& tree() const { return lazy_.tree(); }
  friend bool operator==(const merged_when_asked& a, const merged_when_asked& b) {
    for (std::uint32_t i = 0; i < a.tree().num_cells(); ++i)
      if (a.is_live(cell_id(i)) != b.is_live(cell_id(i)) ||
          a.merged().is_free(cell_id(i)) != b.merged().is_free(cell_id(i)))
        return false;
    return true;
  }

 private:
  lazy_buddy_allocator<Tree>& changed() {
    merged_.reset();
    return lazy_;
  }
  [[nodiscard]] const lazy_buddy_allocator<Tree>& merged() const {
    if (!merged_) {
      merged_ = lazy_;
      merged_->merge();
    }
    return *merged_;
  }
  lazy_buddy_allocator<Tree> lazy_;
  mutable std::optional<lazy_buddy_allocator<Tree>> merged_;
};

}  // namespace

TEST_CASE("lazy merging behaves as a cell allocator") {
  rng random(51);
  apiary_test::check_on_several_trees([](const auto& tree) { return merged_when_asked(tree); },
                                      random);
}

// The definition: any cell without a live leaf, whenever there is one.
TEST_CASE("lazy merging keeps the state of the definition") {
  rng random(52);
  const auto check = [&](const auto& tree, int steps) {
    merged_when_asked lazy(tree);
    apiary_test::naive_allocator slow(tree);
    apiary_test::check_against_definition(lazy, slow, random, steps,
                                          [&](level_t, cell_id c) { return slow.is_empty(c); });
  };
  apiary_test::for_trees_of_every_form(check, random);
}

TEST_CASE("lazy merging loses no leaf in ten million operations") {
  rng random(53);
  apiary_test::check_many_operations<merged_when_asked<uniform_tree>>(random);
}

TEST_CASE("the cell that became free last is allocated, and merged only for a larger request") {
  const uniform_tree tree({2, 2, 2});  // cells 0-1, 2-5, 6-13
  lazy_buddy_allocator a(tree);
  CHECK(a.allocate(0) == cell_id(6));
  CHECK(a.allocate(0) == cell_id(7));
  CHECK(a.allocate(0) == cell_id(8));
  a.release(cell_id(7));
  a.release(cell_id(6));
  a.release(cell_id(8));
  CHECK(a.free_count(0) == 4);  // 6, 7, 8, 9
  CHECK(a.free_count(2) == 1);
  CHECK_FALSE(a.enclosing_free_level(cell_id(2)).has_value());
  CHECK(a.allocate(0) == cell_id(8));
  CHECK(a.allocate(1) == cell_id(2));  // 6 and 7 are merged before cell 1 is split
  CHECK(a.free_count(0) == 1);
  CHECK(a.free_count(2) == 1);
  a.release(cell_id(8));
  a.release(cell_id(2));
  a.merge();
  CHECK(a.free_count(0) == 0);
  CHECK(a.free_count(2) == 2);
}

TEST_CASE("the lists of lazy merging do not grow without end") {
  const uniform_tree tree({2, 4, 4});
  lazy_buddy_allocator a(tree);
  std::vector<cell_id> live;
  std::size_t largest = 0;
  for (int round = 0; round < 3000; ++round) {
    // Leaves come and go in one order or the other; then all are merged.
    const level_t level = round % 3 == 2 ? 2 : 0;
    while (const auto c = a.allocate(level)) live.push_back(*c);
    if (round % 3 == 1) std::swap(live.front(), live[5]);
    for (const cell_id c : live) a.release(c);
    live.clear();
    for (int i = 0; i < 10; ++i) a.release(*a.allocate(0));
    if (round == 100) largest = a.memory_bytes();
  }
  CHECK(a.memory_bytes() <= largest);
  // The same cells are split and merged, and no request empties a list.
  const cell_id leaf = tree.cells(0).first;
  for (int round = 0; round < 3000; ++round) {
    REQUIRE(a.allocate_at(leaf));
    REQUIRE(a.allocate_at(cell_id(leaf.value + 1)));
    a.release(leaf);
    a.release(cell_id(leaf.value + 1));
  }
  CHECK(a.memory_bytes() <= tree.num_cells() * (1 + 16 + 8));
}
