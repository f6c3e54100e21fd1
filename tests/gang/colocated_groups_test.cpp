// apiary/tests/gang/colocated_groups_test.cpp - task groups as the searches count them.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

topology_constraints leaders_and_workers(std::uint32_t leaders, std::uint32_t workers) {
  topology_constraints gang;
  gang.groups = {{leaders, 1}, {workers, 2}};
  gang.groups[1].leader = 0;
  return gang;
}

}  // namespace

TEST_CASE("colocated_groups: what a task needs with those it leads is never less than it is") {
  constexpr std::uint32_t many = std::uint32_t{1} << 29;
  topology_constraints gang = leaders_and_workers(1, many);
  for (int i = 0; i < 5; ++i) {
    gang.groups[1].host = {std::uint32_t{1} << 31, std::uint32_t{1} << 31};
    gang.groups.push_back(gang.groups[1]);
  }
  REQUIRE(gang.valid(node, block + 1));
  colocated_groups groups;
  groups.assign(gang, node, block + 1);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].gpus == colocated_groups::max_gpus);
  CHECK(groups[0].cpu_milli == colocated_groups::max_host);
  CHECK(groups[0].memory_mib == colocated_groups::max_host);
}

TEST_CASE("colocated_groups: kinds, needs and limits are those that the constraints say") {
  constexpr level_t top = block + 1;
  std::size_t constrained = 0;
  std::size_t joined = 0;
  colocated_groups groups;  // the same one for all: assign() leaves nothing behind
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const topology_constraints gang = random_small_gang(random, 6);
    REQUIRE(gang.valid(node, block + 1));
    const test_cluster cluster = random_small_cells(random, 6);
    const naive_cells naive(cluster, gang);
    groups.assign(gang, node, top);
    REQUIRE(groups.size() == naive.kinds().size());
    std::vector<std::uint32_t> group_of(gang.groups.size(), no_task_group);
    level_t lowest = any_level;
    bool hosted = false;
    for (std::uint32_t u = 0; u < groups.size(); ++u) {
      const naive_kind& kind = naive.kinds()[u];
      for (const std::uint32_t m : kind.groups) group_of[m] = u;
      joined += kind.groups.size() - 1;
      CHECK(groups[u].first_group == kind.groups[0]);
      CHECK(groups[u].tasks == kind.tasks);
      CHECK(groups[u].gpus == kind.leaves);
      CHECK(groups[u].cpu_milli == kind.cpu);
      CHECK(groups[u].memory_mib == kind.memory);
      CHECK(groups[u].constrained == naive.lowest_constraint(kind.groups[0]));
      lowest = std::min(lowest, groups[u].constrained);
      hosted = hosted || kind.cpu > 0 || kind.memory > 0;
      constrained += groups[u].constrained == any_level ? 0U : 1U;
      for (level_t l = node; l <= top; ++l) {
        CAPTURE(l);
        const auto limit = groups.at(u, l);
        CHECK(limit.most == naive.bound(u, l, kind.tasks));
        for (std::uint32_t n = 0; n <= kind.tasks; ++n)
          CHECK((n % limit.step == 0 && n <= limit.most) == naive.may(u, l, n));
        for (std::uint32_t n = 0; n <= kind.tasks + 2; ++n)
          CHECK(groups.bound(u, l, n) == naive.bound(u, l, n));
        CHECK(groups.bound(u, l, ~std::uint64_t{0}) == limit.most);
      }
    }
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) CHECK(groups.group_of(m) == group_of[m]);
    CHECK(groups.lowest_constraint() == lowest);
    CHECK(groups.hosted() == hosted);
  }
  CHECK(constrained > 0);
  if (scale() >= 1) CHECK(joined > 10);
}

TEST_CASE(
    "colocated_groups: slices of a leader and of those it leads come together in whole ones") {
  topology_constraints gang = leaders_and_workers(12, 24);
  gang.groups[0].slices = {{rack, 4}};
  gang.groups[1].slices = {{rack, 12}};
  gang.groups[1].spread = {{block, 17}};
  REQUIRE(gang.valid(node, block + 1));
  colocated_groups groups;
  groups.assign(gang, node, block + 1);
  CHECK(groups.at(0, node).step == 1);
  CHECK(groups.at(0, rack).step == 12);  // 4 leaders make a slice, 6 make one of workers
  CHECK(groups.at(0, block).step == 12);
  CHECK(groups.at(0, block).most == 0);  // 8 leaders would be, of which no slices are made
  CHECK(groups.at(0, rack).most == 0);
  gang.groups[1].spread = {{block, 24}};
  groups.assign(gang, node, block + 1);
  CHECK(groups.at(0, node).most == 12);
}

TEST_CASE("colocated_groups: fractions and models of GPUs of a task and those it leads") {
  topology_constraints gang = leaders_and_workers(2, 4);
  gang.groups[0].gpu_milli = 300;
  gang.groups[0].models = 0b0111;
  gang.groups[1].gpu_milli = 500;
  gang.groups[1].models = 0b1110;
  gang.groups.push_back({2, 0});  // takes no GPU, so it asks for none
  gang.groups[2].leader = 0;
  gang.groups[2].gpu_milli = 100;
  gang.groups[2].models = 0b1000;
  colocated_groups groups;
  groups.assign(gang, node, block);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].fractions == detail::lean_vector<milli_gpu>{500, 500, 300});
  CHECK(groups[0].models == 0b0110);
  CHECK(gang.groups[0].shared() == 300);
  CHECK(gang.groups[2].shared() == 0);
  gang.groups[0].gpu_milli = whole_gpu;
  CHECK(gang.groups[0].shared() == 0);
}

TEST_CASE("colocated_groups: those that differ in anything are not of one kind") {
  const constrained_task_group plain{2, 1, {3, 4}};
  std::vector<constrained_task_group> others(7, plain);
  others[1].gpus = 2;
  others[2].host.cpu_milli = 4;
  others[3].host.memory_mib = 5;
  others[4].gpu_milli = 500;
  others[5].models = 1;
  others[6].spread = {{rack, 2}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    topology_constraints gang;
    gang.groups = {plain, others[i]};
    colocated_groups groups;
    groups.assign(gang, node, block);
    CHECK(groups.size() == (i == 0 ? 1 : 2));
    CHECK(groups[0].tasks == (i == 0 ? 4 : 2));
    CHECK(groups.at(0, rack).most == groups[0].tasks);
  }
}

TEST_CASE("colocated_groups: equal groups are merged, however many there are") {
  rng random(51);
  colocated_groups groups;
  for (std::uint32_t round = 0; round < scaled(50U); ++round) {
    topology_constraints gang;
    for (std::uint32_t m = 0; m < 400; ++m)
      gang.groups.push_back({.tasks = random.uniform(3),
                             .gpus = random.uniform(4),
                             .host = {random.uniform(8), random.uniform(8)}});
    groups.assign(gang, node, block + 1);
    std::vector<std::uint32_t> first;  // of each merged group
    std::vector<std::uint32_t> tasks;
    for (std::uint32_t m = 0; m < 400; ++m) {
      if (gang.groups[m].tasks == 0) {
        REQUIRE(groups.group_of(m) == no_task_group);
        continue;
      }
      std::size_t u = 0;
      while (u < first.size() && !(gang.groups[first[u]].gpus == gang.groups[m].gpus &&
                                   gang.groups[first[u]].host == gang.groups[m].host))
        ++u;
      if (u == first.size()) {
        first.push_back(m);
        tasks.push_back(0);
      }
      tasks[u] += gang.groups[m].tasks;
      REQUIRE(groups.group_of(m) == u);
    }
    REQUIRE(groups.size() == first.size());
    for (std::size_t u = 0; u < first.size(); ++u) {
      REQUIRE(groups[u].first_group == first[u]);
      REQUIRE(groups[u].tasks == tasks[u]);
    }
  }
}
