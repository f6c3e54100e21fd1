// apiary/tests/gang_scheduler/detail/tasks_of_gang_test.cpp - tasks that share a cell, and equal tasks, case by case.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/tasks_of_gang.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tasks_of_gang_tests {
namespace {

using namespace apiary;
using detail::offered_node;
using detail::tasks_of_gang;

using mates = std::vector<std::pair<level_t, std::uint32_t>>;

// Task t is on node 100 + t. The levels and nodes of what must be near task t, without t itself.
mates mates_of(const topology_constraints& gang, std::uint32_t t) {
  const tasks_of_gang tasks(gang);
  std::vector<std::uint32_t> where(tasks.size());
  for (std::uint32_t i = 0; i < where.size(); ++i) where[i] = 100 + i;
  where[t] = tasks_of_gang::nowhere;
  mates found;
  tasks.for_each_mate(where, t, [&](level_t l, std::uint32_t p) { found.emplace_back(l, p); });
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

TEST_CASE("tasks_of_gang: tasks of a slice are in one cell; the last slice may be shorter") {
  const topology_constraints gang{
      .groups = {{.tasks = 1}, {.tasks = 5, .slices = {{1, 2}, {2, 4}}}}};
  CHECK(mates_of(gang, 0).empty());
  CHECK(mates_of(gang, 1) == mates{{1, 102}, {2, 102}, {2, 103}, {2, 104}});
  CHECK(mates_of(gang, 4) == mates{{1, 103}, {2, 101}, {2, 102}, {2, 103}});
  CHECK(mates_of(gang, 5).empty());  // alone in its slices
  const tasks_of_gang tasks(gang);
  CHECK(tasks.size() == 6);
  CHECK(tasks.group_index(0) == 0);
  CHECK(tasks.group_index(5) == 1);
  CHECK(tasks.group(5).tasks == 5);
  CHECK(tasks.are_equal(1, 2));
  CHECK(!tasks.are_equal(2, 3));  // another slice of level 1
  CHECK(!tasks.are_equal(0, 1));  // another group
}

TEST_CASE("tasks_of_gang: a leader is near its workers, and workers near each other") {
  // Two leaders with three workers each; group 2 has one task for each leader, on its node.
  const topology_constraints gang{.groups = {{.tasks = 2},
                                             {.tasks = 6, .leader = 0, .leader_level = 1},
                                             {.tasks = 2, .leader = 0}}};
  CHECK(mates_of(gang, 0) == mates{{0, 108}, {1, 102}, {1, 103}, {1, 104}});
  CHECK(mates_of(gang, 1) == mates{{0, 109}, {1, 105}, {1, 106}, {1, 107}});
  CHECK(mates_of(gang, 3) == mates{{1, 100}, {1, 102}, {1, 104}});
  CHECK(mates_of(gang, 9) == mates{{0, 101}});
  const tasks_of_gang tasks(gang);
  CHECK(!tasks.are_equal(0, 1));
  CHECK(!tasks.are_equal(2, 3));
}

TEST_CASE("tasks_of_gang: nodes where a task fits come first, the fullest of them") {
  const constrained_task_group task{.tasks = 1, .gpus = 2, .host = {4, 100}};
  const auto node = [](std::uint32_t free, resources host) {
    return offered_node{.free = free, .host = host};
  };
  CHECK(node(0b11, {4, 100}).fits(task));
  CHECK(!node(0b10, {4, 100}).fits(task));
  CHECK(!node(0b11, {3, 100}).fits(task));
  CHECK(!node(0b11, {4, 99}).fits(task));
  CHECK(node(0b11, {4, 100}).rank(task) < node(0b111, {4, 100}).rank(task));
  CHECK(node(~0U, {4, 100}).rank(task) < node(0b111, {}).rank(task));
  CHECK(node(0b111, {}).rank(task) < node(0b11, {}).rank(task));
  CHECK(offered_node::capacity(task, 0b11111, {100, 1'000}) == 2);
  CHECK(offered_node::capacity(task, 0b11111, {7, 1'000}) == 1);
  CHECK(offered_node::capacity(task, 0b11111, {100, 99}) == 0);
  CHECK(offered_node::capacity({.tasks = 1, .host = {3, 0}}, 0, {10, 0}) == 3);
  CHECK(offered_node::capacity({.tasks = 1}, 0, {}) == ~0U);
}

}  // namespace
}  // namespace tasks_of_gang_tests
