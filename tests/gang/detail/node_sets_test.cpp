// apiary/tests/gang/detail/node_sets_test.cpp - sets of equal nodes against single nodes.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/detail/bin_packing.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;
using apiary::detail::node_sets;

namespace {

struct class_of_nodes {
  std::uint32_t nodes = 0;
  std::uint32_t free = 0;
};
using groups_of_tasks = std::vector<node_sets::sized_group>;

// Every set has what its nodes were given, and all sets together have the nodes of each class.
// Returns the tasks of each group.
std::vector<std::uint32_t> placed(const node_sets& sets, const std::vector<class_of_nodes>& classes,
                                  const groups_of_tasks& groups) {
  std::vector<std::uint32_t> tasks(groups.size());
  std::vector<std::uint32_t> nodes(classes.size());
  for (std::size_t p = 0; p < sets.size(); ++p) {
    std::uint32_t used = 0;
    sets.for_each_put(p, [&](std::uint32_t group, std::uint32_t each) {
      REQUIRE(each > 0);
      tasks[group] += each * sets[p].nodes;
      used += each * groups[group].gpus;
    });
    const class_of_nodes& of = classes[sets[p].node_class];
    REQUIRE(sets[p].left + used == of.free);
    if (p < sets.untouched()) REQUIRE(used == 0);
    nodes[sets[p].node_class] += sets[p].nodes;
  }
  for (std::size_t c = 0; c < classes.size(); ++c) REQUIRE(nodes[c] == classes[c].nodes);
  return tasks;
}

// Whether single nodes hold the tasks, by trying.
bool fit(std::vector<std::uint32_t>& free, const std::vector<std::uint32_t>& tasks,
         std::size_t from = 0) {
  if (from == tasks.size()) return true;
  std::vector<std::uint32_t> tried;
  for (std::uint32_t& f : free) {
    if (f < tasks[from] || std::find(tried.begin(), tried.end(), f) != tried.end()) continue;
    tried.push_back(f);
    f -= tasks[from];
    const bool fits = fit(free, tasks, from + 1);
    f += tasks[from];
    if (fits) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("node_sets: what is packed is on nodes that have the GPUs, and is all of the gang") {
  rng random(9);
  std::uint32_t packed = 0;
  std::uint32_t missed = 0;
  std::uint32_t none = 0;
  for (std::uint32_t round = 0; round < scaled(20'000U); ++round) {
    CAPTURE(round);
    std::vector<class_of_nodes> classes(1 + random.uniform(3));
    std::vector<std::uint32_t> free;
    for (class_of_nodes& c : classes) {
      c = {1 + random.uniform(3), 1 + random.uniform(8)};
      free.insert(free.end(), c.nodes, c.free);
    }
    groups_of_tasks groups(1 + random.uniform(3));
    for (auto& g : groups) g = {1 + random.uniform(6), 1 + random.uniform(4), 0};
    std::sort(groups.begin(), groups.end(), [](auto a, auto b) { return a.gpus > b.gpus; });
    std::vector<std::uint32_t> tasks;  // GPUs of each
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      groups[g].index = g;
      tasks.insert(tasks.end(), groups[g].tasks, groups[g].gpus);
    }
    const bool fits = fit(free, tasks);
    for (const bool tightest : {false, true}) {
      CAPTURE(tightest);
      node_sets sets;
      sets.assign(std::span<const class_of_nodes>(classes));
      std::uint64_t looks = 1'000'000;
      const bool found = tightest ? sets.pack_tightest(groups, looks) : sets.pack_first(groups);
      const std::vector<std::uint32_t> has = placed(sets, classes, groups);
      for (std::size_t g = 0; g < groups.size(); ++g)
        REQUIRE((found ? has[g] == groups[g].tasks : has[g] <= groups[g].tasks));
      if (found) REQUIRE(fits);
      if (groups.size() == 1) REQUIRE(found == fits);  // with one size no choice is wrong
      packed += found ? 1U : 0U;
      missed += !found && fits ? 1U : 0U;
      none += fits ? 0U : 1U;
    }
  }
  MESSAGE(packed, " packed, ", missed, " fit and were missed, ", none, " do not fit");
  CHECK(packed > 20 * missed);
  CHECK(none > 0);
}

TEST_CASE("node_sets: nodes in use come first; best fit takes the node with the least left") {
  const std::vector<class_of_nodes> classes{{1, 8}, {1, 4}};
  const groups_of_tasks groups{{5, 1, 0}, {3, 1, 1}};
  node_sets sets;
  sets.assign(std::span<const class_of_nodes>(classes));
  REQUIRE(sets.pack_first(groups));  // both on the node of 8
  CHECK(sets[1].nodes == 1);
  const groups_of_tasks other{{3, 1, 0}};
  sets.assign(std::span<const class_of_nodes>(classes));
  std::uint64_t looks = 100;
  REQUIRE(sets.pack_tightest(other, looks));  // on the node of 4
  CHECK(looks < 100);
  CHECK(sets[0].nodes == 1);
  CHECK(sets[1].nodes == 0);
  sets.assign(std::span<const class_of_nodes>(classes));
  looks = 1;
  CHECK_FALSE(sets.pack_tightest(other, looks));  // it may not look at both
}
