// apiary/tests/fgd/detail/gang_checks_test.cpp - which gangs and trees FGD refuses, and in which words.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/gang_checks.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

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

TEST_CASE("gang_checks: how many equal tasks a node can run now") {
  node_table nodes;
  const node_id n = nodes.add({.host = {.cpu_milli = 9000, .memory_mib = 90}, .gpus = 4});
  nodes.place({.gpus = 1, .gpu_milli = 600},
              {n, 1});  // 3,400 thousandths are left, three GPUs whole
  const auto count = [&](const task_request& task) {
    return detail::count_tasks(nodes[n], task, 1000);
  };
  CHECK(count({}) == 1000);
  CHECK(count({.cpu_milli = 1000}) == 9);
  CHECK(count({.cpu_milli = 1000, .memory_mib = 20}) == 4);
  CHECK(count({.gpus = 1, .gpu_milli = whole_gpu}) == 3);
  CHECK(count({.gpus = 2, .gpu_milli = whole_gpu}) == 1);
  CHECK(count({.cpu_milli = 5000, .gpus = 1, .gpu_milli = whole_gpu}) == 1);
  CHECK(count({.gpus = 1, .gpu_milli = 300}) == 10);
  CHECK(count({.gpus = 1, .gpu_milli = 400}) == 7);
  CHECK(count({.gpus = 1, .gpu_milli = 300, .models = 0b10}) == 0);
  CHECK(detail::count_tasks(nodes[n], {.gpus = 1, .gpu_milli = 300}, 6) == 6);
  nodes[n].healthy = false;
  CHECK(count({}) == 0);
}

TEST_CASE("gang_checks: counting proves why a gang waits for the nodes of its task groups") {
  node_table nodes;
  for (int n = 0; n < 3; ++n) nodes.add({.host = {.cpu_milli = 8000}, .gpus = 2});
  topology_constraints gang{.groups = {{.tasks = 3, .gpus = 1}, {.tasks = 1, .gpus = 2}}};
  std::vector<summary_bitset> sets(2, summary_bitset(3));
  const auto reason = [&] { return detail::reason_by_counting(nodes, gang, sets); };
  sets[1].set(2);
  CHECK(reason() == wait_reason::not_suggested);  // group 0 has no nodes
  sets[0].set(0);
  CHECK(reason() == wait_reason::not_suggested);
  sets[0].set(1);
  CHECK(reason() == wait_reason::undecided);
  gang.groups[0].tasks = 5;
  sets[0].set(2);
  CHECK(reason() == wait_reason::never);  // each group fits alone; together they need 7 of 6 GPUs
  gang.groups[0].tasks = 4;
  CHECK(reason() == wait_reason::undecided);
  const task_request runs{.job = job_id(1), .gpus = 1, .gpu_milli = 500};
  nodes.place(runs, {node_id(0), 1});
  CHECK(reason() == wait_reason::busy);
  nodes.remove(runs, {node_id(0), 1});
  nodes[node_id(0)].healthy = false;
  CHECK(reason() == wait_reason::unhealthy);
  gang.groups[0].tasks = 2;
  CHECK(reason() == wait_reason::undecided);
  nodes[node_id(2)].healthy = false;
  CHECK(reason() == wait_reason::unhealthy);  // group 1 has no healthy node
  gang.groups[1].tasks = 0;
  CHECK(reason() == wait_reason::undecided);
  nodes.erase(node_id(0));
  nodes.erase(node_id(1));
  CHECK(reason() == wait_reason::unhealthy);
  gang.groups[0].tasks = 3;
  CHECK(reason() == wait_reason::never);
}
