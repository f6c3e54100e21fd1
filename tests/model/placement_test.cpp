// apiary/tests/model/placement_test.cpp - placements as values.
// SPDX-License-Identifier: MIT
#include <apiary/model/placement.h>

#include <doctest/doctest.h>

#include <type_traits>

namespace {

using namespace apiary;

static_assert(sizeof(placement) == 8 && std::is_trivially_copyable_v<placement>);

TEST_CASE("a placement counts its devices and compares by value") {
  CHECK(placement{node_id(3), 0b1011}.num_gpus() == 3);
  CHECK(placement{node_id(3), 0}.num_gpus() == 0);
  CHECK(placement{node_id(3), 1} == placement{node_id(3), 1});
  CHECK(placement{node_id(3), 1} != placement{node_id(4), 1});
  CHECK(placement{node_id(3), 1} != placement{node_id(3), 2});
  CHECK_FALSE(placement{}.node.valid());
}

}  // namespace
