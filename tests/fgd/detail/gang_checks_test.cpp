// apiary/tests/fgd/detail/gang_checks_test.cpp - which gangs and trees FGD refuses, and in which words.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <string>

using namespace apiary;

TEST_CASE("gang_checks: tasks are valid, and not too many") {
  topology_constraints gang{.groups = {{.tasks = 3, .gpus = 1, .gpu_milli = 500}}};
  CHECK(detail::check_tasks(gang).ok());
  gang.groups.push_back({.tasks = 1, .gpus = 2, .gpu_milli = 500});
  const absl::Status two_halves = detail::check_tasks(gang);
  CHECK(two_halves.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(two_halves.message())
            .starts_with("task group 1: 2 GPUs with 500/1000 of each; "));
  gang.groups[1] = {.tasks = detail::max_gang_tasks - 3, .gpus = 1};
  CHECK(detail::check_tasks(gang).ok());
  ++gang.groups[1].tasks;
  CHECK(detail::check_tasks(gang) ==
        absl::InvalidArgumentError("a gang has 1000001 tasks; the limit is 1000000"));
}

TEST_CASE("gang_checks: a gang, its tree and the nodes match") {
  const uniform_tree tree{2, 3};  // racks of nodes
  topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1}, {.tasks = 4, .gpus = 1}}};
  CHECK(detail::check_gang(gang, tree, 0, 6).ok());
  CHECK(detail::check_gang(gang, tree, 2, 6) ==
        absl::InvalidArgumentError("node level 2 in a tree with 2 levels"));
  CHECK(detail::check_gang(gang, tree, 0, 5) ==
        absl::InvalidArgumentError("level 0 of the tree has 6 cells for 5 nodes"));
  gang.groups[1].leader = 0;
  CHECK(detail::check_gang(gang, tree, 0, 6).ok());
  gang.groups[1].leader_level = 1;
  CHECK(detail::check_gang(gang, tree, 0, 6) ==
        absl::InvalidArgumentError("task group 1 has a leader level; FGD places workers only on "
                                   "the node of their leader"));
  gang.groups[1].leader_level = any_level;
  gang.required = 2;
  CHECK(detail::check_gang(gang, tree, 0, 6) ==
        absl::InvalidArgumentError("the gang requires level 2; the levels are 0 to 1"));
  gang = {.groups = {{.tasks = 1, .gpus = 1, .gpu_milli = 1001}}};
  CHECK(detail::check_gang(gang, tree, 0, 6).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("gang_checks: tasks are independent without slices, anti-affinity and leaders") {
  topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1}, {.tasks = 2, .gpus = 1}},
                            .required = 1};
  CHECK(detail::tasks_are_independent(gang));
  gang.groups[1].slices = {{1, 2}};
  CHECK(!detail::tasks_are_independent(gang));
  gang.groups[1] = {.tasks = 2, .gpus = 1, .spread = {{0, 1}}};
  CHECK(!detail::tasks_are_independent(gang));
  gang.groups[1] = {.tasks = 2, .gpus = 1, .leader = 0};
  CHECK(!detail::tasks_are_independent(gang));
}
