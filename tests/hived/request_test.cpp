// apiary/tests/hived/request_test.cpp - what a request and an answer are before they are filled.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>

#include <doctest/doctest.h>

#include <type_traits>

using namespace apiary;

static_assert(!std::is_convertible_v<leaf_type_id, node_id>);
static_assert(gang_request::opportunistic_priority < 0 && gang_request::max_priority == 1000);
static_assert(hived_placement{} == hived_placement{.node = node_id(), .leaves = 0});
static_assert(hived_placement{node_id(1), 1} != hived_placement{node_id(1), 2});

TEST_CASE("a request of nothing but a gang is guaranteed, of any type, anywhere, not lazy") {
  const gang_request r{.job = job_id(1), .tenant = tenant_id(2), .groups = {{1, 8}, {2, 1}}};
  CHECK(r.priority == 0);
  CHECK(!r.leaf_type.valid());
  CHECK(!r.pinned);
  CHECK(!r.lazy);
  CHECK(r.suggested == nullptr);
  CHECK(r.groups[1] == task_group{2, 1});
  CHECK(!gang_request{}.job.valid());
}

TEST_CASE("a wait says busy until it knows better") {
  CHECK(gang_wait{}.reason == wait_reason::busy);
  CHECK(!gang_wait{}.shortage);
}
