// apiary/tests/preempt/detail/lower_bound_test.cpp - lower bounds, and disruption budgets that are too small.
// SPDX-License-Identifier: MIT
#include <apiary/model/request.h>
#include <apiary/preempt/detail/slot_bounds.h>
#include <apiary/preempt/victim_set.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("victim_lower_bound: the cheapest slots, and as many gangs as they need") {
  // Node 0 has 2 free GPUs and lacks 6 for a slot of 8; node 1 is full.
  const std::vector<std::uint32_t> free{2, 0};
  const std::vector<eviction_candidate> candidates{{12, 0, 1}, {40, 1, 2}, {3, 2, 3}};
  const std::vector<gpus_on_node> allocations{{0, 6}, {1, 8}, {1, 0}};
  eviction_state state;
  victim_lower_bound bound;
  const auto of = [&](std::uint32_t tasks, std::uint32_t gpus) {
    const std::vector<task_group> asked{{tasks, gpus}};
    state.begin({}, free, candidates, allocations, asked);
    return bound(state, candidates);
  };
  CHECK(of(1, 8) == 12);
  CHECK(of(2, 8) == 52);
  CHECK(of(1, 4) == 4);  // 2 of 6 GPUs cost less than one gang, but no gang costs less than 3
  CHECK(of(1, 2) == 0);
}

TEST_CASE("victim_lower_bound: what tenants may lose is too little, by a count") {
  const std::vector<std::uint32_t> free{3, 0};
  const std::vector<eviction_candidate> candidates{{1, 0, 1}, {1, 1, 2}, {1, 2, 3}};
  const std::vector<gpus_on_node> allocations{{0, 5}, {1, 4}, {1, 4}};
  const std::vector<std::uint32_t> groups{0, 1, 1};
  const std::vector<task_group> asked{{1, 8}};
  eviction_state state;
  victim_lower_bound bound;
  const auto is_short_within_budgets = [&](const std::vector<disruption_budget>& most) {
    state.begin({}, free, candidates, allocations, asked);
    disruption_tally budgets;
    budgets.begin({groups, most}, candidates, allocations);
    return bound.is_short_within_budgets(state, candidates, allocations, budgets);
  };
  CHECK_FALSE(is_short_within_budgets({}));
  CHECK_FALSE(is_short_within_budgets({{.gangs = 0}, {.gangs = 2}}));
  CHECK_FALSE(is_short_within_budgets({{.gangs = 1}, {.gangs = 0}}));
  CHECK(is_short_within_budgets({{.gangs = 0}, {.gangs = 1}}));
  CHECK(is_short_within_budgets({{.gpus = 4}, {.gpus = 7}}));
  CHECK_FALSE(is_short_within_budgets({{.gpus = 5}, {.gpus = 0}}));
}
