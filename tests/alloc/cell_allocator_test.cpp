// apiary/tests/alloc/cell_allocator_test.cpp - what is an allocator of cells and what is not.
// SPDX-License-Identifier: MIT
#include "support/archetypes.h"
#include <apiary/alloc/cell_allocator.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>

namespace {

using namespace apiary;

struct complete {
  std::optional<cell_id> allocate(level_t) { return std::nullopt; }
  bool allocate_at(cell_id) { return false; }
  void release(cell_id) {}
  std::uint32_t free_count(level_t) const { return 0; }
};
struct answers_with_a_bare_id : complete {
  cell_id allocate(level_t) { return {}; }
};
struct cannot_grant_a_given_cell : complete {
  void allocate_at(cell_id) {}
};
struct counts_only_when_mutable : complete {
  std::uint32_t free_count(level_t) { return 0; }
};
struct cannot_be_copied : complete {
  cannot_be_copied() = default;
  cannot_be_copied(const cannot_be_copied&) = delete;
  cannot_be_copied& operator=(const cannot_be_copied&) = delete;
};
static_assert(CellAllocator<complete>);
static_assert(CellAllocator<apiary_test::cell_allocator_archetype>);
static_assert(!CellAllocator<answers_with_a_bare_id>);
static_assert(!CellAllocator<cannot_grant_a_given_cell>);
static_assert(!CellAllocator<counts_only_when_mutable>);
static_assert(!CellAllocator<cannot_be_copied>);

TEST_CASE("a count of cells is none of the leaves unless it says more") {
  CHECK(cell_count{}.level == 0);
  CHECK(cell_count{}.count == 0);
  CHECK(cell_count{.level = 2, .count = 3}.count == 3);
}

}  // namespace
