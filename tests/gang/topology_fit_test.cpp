// apiary/tests/gang/topology_fit_test.cpp - gangs under constraints against trying every assignment.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <support/levels.h>
#include <support/naive_constraints.h>
#include <support/proof_mutations.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

using fit_t = topology_fit<ragged_tree>;

capacity_index<ragged_tree> capacity_of(const test_cluster& cluster, std::uint32_t most) {
  capacity_index<ragged_tree> capacities(cluster.tree, node, most);
  for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) capacities.set(n, cluster.free[n]);
  return capacities;
}

bool accepted(const test_cluster& cluster, const topology_constraints& gang,
              const infeasibility_proof& why) {
  return proof_check(cluster.tree, node, cluster.free, cluster.hosts, gang)(why);
}

// What is known of all questions of a test.
struct counters {
  std::uint64_t asked = 0;
  std::uint64_t fits = 0;
  std::uint64_t listed = 0;
  std::uint64_t mutations = 0;
};

// Asks, and compares with the level at which the gang fits first, top + 1 if at none.
void check(fit_t& fit, const capacity_index<ragged_tree>& capacities, const test_cluster& cluster,
           const topology_constraints& gang, level_t first, bool mutate, counters& seen) {
  const level_t last = std::min(gang.required, capacities.top());
  const auto found = fit(capacities, gang, cluster.hosts);
  const fit_verdict verdict = found.verdict;
  ++seen.asked;
  REQUIRE(verdict == (first <= last ? fit_verdict::fits : fit_verdict::does_not_fit));
  if (verdict == fit_verdict::fits) {
    ++seen.fits;
    REQUIRE(found.level == first);
    REQUIRE(found.is_lowest);
    REQUIRE(is_valid_placement(cluster, gang, found));
    if (!mutate || gang.groups.empty()) return;
    // What proves a no where nothing is free proves none here.
    const capacity_index<ragged_tree> empty(cluster.tree, node, capacities.max_free());
    if (fit(empty, gang).verdict == fit_verdict::fits) return;  // tasks without leaves
    REQUIRE(!accepted(cluster, gang, fit.explain(empty, gang)));
    return;
  }
  REQUIRE(found.portions.empty());
  const infeasibility_proof why = fit.explain(capacities, gang, cluster.hosts);
  REQUIRE(accepted(cluster, gang, why));
  REQUIRE(!why.text(gang, {"leaf", "node", "rack", "block"}).empty());
  for (const infeasibility_proof::refusal& r : why.cells)
    seen.listed += r.weighing == infeasibility_proof::listed ? 1 : 0;
  if (!mutate) return;
  for_each_mutation(why, [&](const infeasibility_proof& other) {
    ++seen.mutations;
    REQUIRE(!accepted(cluster, gang, other));
  });
}

// The first level from the preferred one to the required one at which `fits` says yes.
level_t first_level(const topology_constraints& gang, level_t top,
                    const std::function<bool(level_t)>& fits) {
  const level_t last = std::min(gang.required, top);
  level_t l = std::min(gang.preferred, last);
  while (l <= last && !fits(l)) ++l;
  return l <= last ? l : top + 1;
}

// Gangs of at most four tasks of 1 to 4 leaves: one task group a size.
std::vector<topology_constraints> small_gangs() {
  std::vector<topology_constraints> gangs;
  for (std::uint32_t code = 0; code < 5 * 5 * 5 * 5; ++code) {
    const std::uint32_t tasks[] = {code % 5, code / 5 % 5, code / 25 % 5, code / 125};
    if (tasks[0] + tasks[1] + tasks[2] + tasks[3] > 4) continue;
    topology_constraints gang;
    for (std::uint32_t size = 1; size <= 4; ++size)
      if (tasks[size - 1] > 0) gang.groups.push_back({tasks[size - 1], size});
    gangs.push_back(gang);
  }
  return gangs;
}

// Every kind of constraint on a gang.
std::vector<topology_constraints> with_rules(const topology_constraints& plain) {
  std::vector<topology_constraints> all{plain};
  const auto add = [&](const std::function<void(topology_constraints&)>& change) {
    topology_constraints gang = plain;
    change(gang);
    if (gang.valid(node, block)) all.push_back(gang);
  };
  for (const level_t l : {node, rack}) {
    add([&](topology_constraints& g) { g.required = l; });
    add([&](topology_constraints& g) { g.preferred = l; });
    for (const std::uint32_t k : {1U, 2U}) {
      const auto spread = [&](topology_constraints& g) {
        for (constrained_task_group& m : g.groups) m.spread = {{l, k}};
      };
      add(spread);
      add([&](topology_constraints& g) {
        spread(g);
        g.required = rack;
      });
    }
    add([&](topology_constraints& g) {
      for (constrained_task_group& m : g.groups) m.slices = {{l, m.tasks % 2 == 0 ? 2U : 1U}};
    });
  }
  add([&](topology_constraints& g) { g.required = rack, g.preferred = node; });
  add([&](topology_constraints& g) {
    for (constrained_task_group& m : g.groups)
      m.slices = {{rack, m.tasks}, {node, m.tasks % 2 == 0 ? 2U : 1U}};
  });
  add([&](topology_constraints& g) {
    for (constrained_task_group& m : g.groups) {
      m.slices = {{rack, m.tasks % 2 == 0 ? 2U : 1U}};
      m.spread = {{node, 1}};
    }
  });
  if (plain.groups.size() < 2) return all;
  const auto lead = [](topology_constraints& g) {
    for (std::uint32_t m = 1; m < g.groups.size(); ++m)
      if (g.groups[m].tasks % g.groups[0].tasks == 0) g.groups[m].leader = 0;
  };
  add(lead);
  add([&](topology_constraints& g) {
    lead(g);
    g.required = rack;
    g.groups[0].spread = {{node, 1}};
  });
  add([&](topology_constraints& g) {
    lead(g);
    g.groups[1].spread = {{rack, 2}};
  });
  return all;
}

}  // namespace

TEST_CASE(
    "every gang of four tasks under every constraint on every cluster of four nodes of four") {
  const std::vector<std::vector<std::uint32_t>> clusters = {
      {1}, {2}, {1, 1}, {3}, {2, 1}, {1, 1, 1}, {4}, {3, 1}, {2, 2}, {2, 1, 1}, {1, 1, 1, 1}};
  std::vector<topology_constraints> gangs;
  for (const topology_constraints& gang : small_gangs())
    for (const topology_constraints& constrained : with_rules(gang)) gangs.push_back(constrained);
  counters seen;
  std::uint64_t number = 0;
  const auto every = static_cast<std::uint64_t>(std::max(1.0, 1.0 / scale()));
  fit_t fit;
  for (const std::vector<std::uint32_t>& racks : clusters) {
    std::uint32_t nodes = 0;
    for (const std::uint32_t n : racks) nodes += n;
    test_cluster cluster{ragged_tree({{static_cast<std::uint32_t>(racks.size())},
                                      racks,
                                      std::vector<std::uint32_t>(nodes, 4)}),
                         std::vector<std::uint32_t>(nodes, 0),
                         {}};
    for (bool more = true; more;) {
      // Nodes of a rack in ascending order: the others are the same.
      bool first = true;
      for (std::uint32_t n = 1; n < nodes; ++n)
        first = first && (cluster.cell(n, rack) != cluster.cell(n - 1, rack) ||
                          cluster.free[n - 1] <= cluster.free[n]);
      if (first) {
        const capacity_index<ragged_tree> capacities = capacity_of(cluster, 4);
        for (std::size_t g = 0; g < gangs.size(); ++g) {
          if (++number % every != 0) continue;
          CAPTURE(g);
          const level_t level = first_level(gangs[g], capacities.top(), [&](level_t l) {
            return fits_by_assigning(cluster, gangs[g], l);
          });
          check(fit, capacities, cluster, gangs[g], level, number % 7 == 0, seen);
        }
      }
      std::uint32_t n = 0;
      while (n < nodes && cluster.free[n] == 4) cluster.free[n++] = 0;
      more = n < nodes;
      if (more) ++cluster.free[n];
    }
  }
  MESSAGE(seen.asked, " asked, ", seen.fits, " fit, ", seen.listed, " cells listed, ",
          seen.mutations, " mutations");
  CHECK(seen.fits > seen.asked / 20);
  CHECK(seen.fits < seen.asked - seen.asked / 20);
}

namespace {

// What all tasks of an assignment under the constraints take of each of three nodes, and the lowest level
// with a cell that holds them.
struct taken_of_nodes {
  std::array<std::uint32_t, 3> leaves{};
  std::array<std::uint32_t, 3> cpu{};
  level_t level = 0;
};

// Of all assignments; each of them fits `plenty`.
void list_assignments(const test_cluster& plenty, const topology_constraints& gang,
                      assignment& begun, std::size_t group, std::vector<taken_of_nodes>& found) {
  if (group < gang.groups.size()) {
    std::vector<std::uint32_t>& nodes = begun[group];
    if (nodes.size() == gang.groups[group].tasks)
      return list_assignments(plenty, gang, begun, group + 1, found);
    for (std::uint32_t n = nodes.empty() ? 0 : nodes.back(); n < 3; ++n) {
      nodes.push_back(n);
      list_assignments(plenty, gang, begun, group, found);
      nodes.pop_back();
    }
    return;
  }
  taken_of_nodes taken;
  for (taken.level = node; !meets_constraints(plenty, gang, begun, taken.level); ++taken.level)
    if (taken.level == plenty.tree.num_levels()) return;
  for (std::size_t m = 0; m < begun.size(); ++m) {
    for (const std::uint32_t n : begun[m]) {
      taken.leaves[n] += gang.groups[m].gpus;
      taken.cpu[n] += gang.groups[m].host.cpu_milli;
    }
  }
  found.push_back(taken);
}

// The lowest level at which the gang fits, above the top if at none.
level_t lowest_level(const test_cluster& cluster, const std::vector<taken_of_nodes>& assignments) {
  level_t lowest = cluster.tree.num_levels() + 1;
  for (const taken_of_nodes& taken : assignments) {
    bool fits = true;
    for (std::uint32_t n = 0; n < 3; ++n)
      fits =
          fits && taken.leaves[n] <= cluster.free[n] && taken.cpu[n] <= cluster.hosts[n].cpu_milli;
    if (fits) lowest = std::min(lowest, taken.level);
  }
  return lowest;
}

// All that three nodes can have left of two GPUs and two CPUs, in racks of so many nodes; nodes of
// a rack, and racks of one node, in ascending order: the others are the same.
std::vector<test_cluster> clusters_of_three(const std::vector<std::uint32_t>& racks) {
  test_cluster cluster{
      ragged_tree({{static_cast<std::uint32_t>(racks.size())}, racks, {2, 2, 2}}), {0, 0, 0}, {}};
  cluster.hosts.resize(3);
  std::vector<test_cluster> all;
  for (std::uint32_t code = 0; code < 9 * 9 * 9; ++code) {
    const std::array<std::uint32_t, 3> left{code % 9, code / 9 % 9, code / 81};
    bool first = true;
    for (std::uint32_t n = 1; n < 3; ++n)
      first = first && (left[n - 1] <= left[n] ||
                        (racks.size() == 2 && cluster.cell(n, rack) != cluster.cell(n - 1, rack)));
    if (!first) continue;
    for (std::uint32_t n = 0; n < 3; ++n) {
      cluster.free[n] = left[n] % 3;
      cluster.hosts[n].cpu_milli = left[n] / 3;
    }
    all.push_back(cluster);
  }
  return all;
}

// Up to three tasks of 0 to 2 leaves and 0 or 1 CPU, under every kind of constraint.
std::vector<constrained_task_group> hosted_members() {
  std::vector<constrained_task_group> all;
  for (std::uint32_t leaves = 0; leaves <= 2; ++leaves) {
    for (std::uint32_t cpu = 0; cpu <= 1; ++cpu) {
      for (std::uint32_t tasks = 1; tasks <= 3; ++tasks) {
        const constrained_task_group plain{tasks, leaves, {cpu, 0}};
        all.push_back(plain);
        if (tasks == 1) continue;
        for (const level_t l : {node, rack}) {
          for (std::uint32_t k = 1; k < tasks; ++k) {
            all.push_back(plain);
            all.back().spread = {{l, k}};
          }
          all.push_back(plain);
          all.back().slices = {{l, tasks}};
        }
        all.push_back(plain);
        all.back().slices = {{rack, tasks}};
        all.back().spread = {{node, 1}};
      }
    }
  }
  return all;
}

// Of one or two of these task groups with up to four tasks, perhaps one the leader of the other.
std::vector<topology_constraints> hosted_gangs() {
  std::vector<topology_constraints> gangs;
  const std::vector<constrained_task_group> groups = hosted_members();
  const auto add = [&](const topology_constraints& gang) {
    if (!gang.valid(node, block)) return;
    gangs.push_back(gang);
    gangs.back().preferred = node;
    const std::array<level_t, 3> required{any_level, rack, node};
    gangs.back().required = required[gangs.size() % 3];
  };
  for (std::size_t a = 0; a < groups.size(); ++a) {
    topology_constraints gang;
    gang.groups = {groups[a]};
    add(gang);
    for (std::size_t b = 0; b < groups.size(); ++b) {
      gang.groups = {groups[a], groups[b]};
      if (groups[a].tasks + groups[b].tasks > 4) continue;
      if (a <= b) add(gang);
      gang.groups[1].leader = 0;
      add(gang);
    }
  }
  return gangs;
}

}  // namespace

TEST_CASE(
    "every gang of two task groups with constraints of their own on every three nodes with CPU") {
  const std::vector<topology_constraints> gangs = hosted_gangs();
  counters seen;
  std::uint64_t number = 0;
  const auto every = static_cast<std::uint64_t>(std::max(1.0, 1.0 / scale()));
  fit_t fit;
  for (const std::vector<std::uint32_t>& racks :
       std::vector<std::vector<std::uint32_t>>{{3}, {2, 1}, {1, 1, 1}}) {
    const std::vector<test_cluster> clusters = clusters_of_three(racks);
    std::vector<capacity_index<ragged_tree>> capacities;
    for (const test_cluster& cluster : clusters) capacities.push_back(capacity_of(cluster, 2));
    test_cluster plenty = clusters[0];
    plenty.free.assign(3, 100);
    plenty.hosts.clear();
    for (std::size_t g = 0; g < gangs.size(); ++g) {
      CAPTURE(g);
      assignment begun(gangs[g].groups.size());
      std::vector<taken_of_nodes> assignments;
      list_assignments(plenty, gangs[g], begun, 0, assignments);
      // What does not fit the last cluster, where nothing is taken, fits none.
      const bool never = lowest_level(clusters.back(), assignments) > capacities[0].top();
      for (std::size_t w = never ? clusters.size() - 1 : 0; w < clusters.size(); ++w) {
        if (++number % every != 0) continue;
        CAPTURE(w);
        const level_t lowest = lowest_level(clusters[w], assignments);
        check(fit, capacities[w], clusters[w], gangs[g], lowest, number % 31 == 0, seen);
      }
    }
  }
  MESSAGE(seen.asked, " asked, ", seen.fits, " fit, ", seen.listed, " cells listed, ",
          seen.mutations, " mutations");
  CHECK(seen.fits > seen.asked / 20);
  CHECK(seen.fits < seen.asked - seen.asked / 20);
}

namespace {

test_cluster random_test_cluster(rng& random, std::uint32_t most) {
  const std::uint32_t blocks = 1 + random.uniform(2);
  std::vector<std::uint32_t> racks(blocks);
  std::vector<std::uint32_t> nodes;
  std::uint32_t total = 0;
  for (std::uint32_t& r : racks) {
    r = 1 + random.uniform(3);
    for (std::uint32_t i = 0; i < r; ++i) {
      nodes.push_back(1 + random.uniform(3));
      total += nodes.back();
    }
  }
  test_cluster cluster{
      ragged_tree({{blocks}, racks, nodes, std::vector<std::uint32_t>(total, most)}), {}, {}};
  const std::uint32_t busy = random.uniform(4);
  for (std::uint32_t n = 0; n < total; ++n)
    cluster.free.push_back(random.uniform(4) < busy ? random.uniform(most + 1)
                                                    : most - random.uniform(most / 2 + 1));
  if (random.uniform(3) == 0) {
    for (std::uint32_t n = 0; n < total; ++n)
      cluster.hosts.push_back({random.uniform(9), random.uniform(9)});
  }
  return cluster;
}

topology_constraints random_gang(rng& random, std::uint32_t most) {
  topology_constraints gang;
  const std::uint32_t groups = 1 + random.uniform(3);
  for (std::uint32_t m = 0; m < groups; ++m) {
    constrained_task_group group{1 + random.uniform(random.uniform(3) == 0 ? 9 : 4),
                                 random.uniform(8) == 0 ? 0 : 1 + random.uniform(most)};
    if (random.uniform(3) == 0) group.host = {random.uniform(4), random.uniform(4)};
    const level_t l = node + random.uniform(3);
    switch (random.uniform(6)) {
      case 0:
        group.spread = {{l, 1 + random.uniform(4)}};
        break;
      case 1:
        group.slices = {{l, 1 + random.uniform(group.tasks)}};
        break;
      case 2:
        group.tasks = 4 * (1 + random.uniform(2));
        group.slices = {{rack, 2}, {block, 4}};
        if (random.uniform(2) == 0) group.spread = {{node, 1 + random.uniform(2)}};
        break;
      case 3:
        if (m > 0) group.leader = random.uniform(m);
        break;
      default:
        break;
    }
    if (random.uniform(4) == 0)
      group.spread.push_back({node + random.uniform(3), 1 + random.uniform(6)});
    for (const level_count& s : group.slices)
      if (group.tasks % s.tasks != 0) group.tasks = s.tasks;
    if (m > 0 && random.uniform(4) == 0) {
      group = gang.groups[random.uniform(m)];
      if (random.uniform(2) == 0) group.tasks = 1 + random.uniform(4);
    }
    gang.groups.push_back(group);
  }
  if (random.uniform(2) == 0) gang.required = node + random.uniform(3);
  if (random.uniform(3) == 0) gang.preferred = node + random.uniform(3);
  return gang;
}

}  // namespace

TEST_CASE("random gangs under random constraints against going from node to node") {
  counters seen;
  fit_t fit(10'000'000);
  const int rounds = scaled(20'000);
  std::vector<std::pair<topology_constraints, infeasibility_proof>> before;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const std::uint32_t most = random.uniform(2) == 0 ? 8 : 4 + random.uniform(7);
    const test_cluster cluster = random_test_cluster(random, most);
    const topology_constraints gang = random_gang(random, most);
    if (!gang.valid(node, 4)) continue;
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, most);
    node_after_node naive(cluster, gang);
    const level_t first = first_level(gang, capacities.top(), [&](level_t l) { return naive(l); });
    check(fit, capacities, cluster, gang, first, round % 16 == 0, seen);
  }
  MESSAGE(seen.asked, " asked, ", seen.fits, " fit, ", seen.listed, " cells listed, ",
          seen.mutations, " mutations");
  if (scale() >= 1) {
    CHECK(seen.fits > seen.asked / 10);
    CHECK(seen.fits < seen.asked - seen.asked / 10);
    CHECK(seen.listed > 20);
  }
}

namespace {

test_cluster two_racks(const std::vector<std::uint32_t>& free) {
  return {ragged_tree({{2}, {4, 4}, std::vector<std::uint32_t>(8, 8)}), free, {}};
}

}  // namespace

TEST_CASE("whole cells are left whole, or few nodes are used") {
  const test_cluster cluster = two_racks({8, 8, 8, 8, 4, 4, 4, 0});
  const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
  topology_constraints gang;
  gang.groups = {{2, 4}};
  gang.required = rack;
  fit_t tight;
  const auto found = tight(capacities, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cell == 1);
  fit_t few(1000, gang_objective::fewest_nodes);
  const auto dense = few(capacities, gang);
  REQUIRE(dense.verdict == fit_verdict::fits);
  CHECK(dense.cell == 0);
  CHECK(dense.portions.size() == 1);
}

TEST_CASE("random replicas, each in one cell, against going from node to node") {
  counters seen;
  fit_t fit(10'000'000);
  std::uint64_t split = 0;  // would fit if replicas could be split
  const int rounds = scaled(12'000);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const std::uint32_t most = 1 + random.uniform(5);
    const test_cluster cluster = random_test_cluster(random, most);
    topology_constraints gang;
    const std::uint32_t replicas = 1 + random.uniform(4);
    gang.groups.push_back({replicas, random.uniform(3)});
    if (gang.groups[0].gpus == 0 || random.uniform(2) == 0)
      gang.groups[0].host = {1 + random.uniform(2), random.uniform(2)};
    for (std::uint32_t m = 0; m < 1 + random.uniform(2); ++m) {
      constrained_task_group& led = gang.groups.emplace_back(
          constrained_task_group{replicas * (1 + random.uniform(3)), 1 + random.uniform(most)});
      led.leader = 0;
      led.leader_level = random.uniform(8) == 0 ? any_level : rack + random.uniform(2);
      if (random.uniform(5) == 0) led.slices = {{rack + random.uniform(2), 2}};
      if (random.uniform(5) == 0) led.spread = {{node + random.uniform(3), 1 + random.uniform(4)}};
    }
    if (random.uniform(4) == 0)
      gang.groups.push_back({1 + random.uniform(3), 1 + random.uniform(most)});
    if (random.uniform(3) == 0) gang.required = node + random.uniform(3);
    if (random.uniform(3) == 0) gang.preferred = node + random.uniform(3);
    if (!gang.valid(node, 4)) continue;
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, most);
    node_after_node naive(cluster, gang);
    const level_t first = first_level(gang, capacities.top(), [&](level_t l) { return naive(l); });
    check(fit, capacities, cluster, gang, first, round % 16 == 0, seen);
    if (first <= capacities.top()) continue;
    for (std::size_t m = 1; m < gang.groups.size(); ++m)
      if (!gang.groups[m].on_node_of_leader()) gang.groups[m].leader = no_task_group;
    for (std::size_t m = 1; m < gang.groups.size(); ++m)
      if (gang.groups[m].leader == no_task_group) gang.groups[m].leader_level = any_level;
    split += fit(capacities, gang, cluster.hosts).verdict == fit_verdict::fits ? 1U : 0U;
  }
  MESSAGE(seen.asked, " asked, ", seen.fits, " fit, ", seen.listed, " cells listed, ",
          seen.mutations, " mutations, ", split, " would fit if replicas could be split");
  if (scale() >= 1) {
    CHECK(seen.fits > seen.asked / 10);
    CHECK(seen.fits < seen.asked - seen.asked / 10);
    CHECK(split > 50);
  }
}

TEST_CASE("topology_fit: the fewest nodes are the fullest ones first") {
  capacity_index<uniform_tree> capacities(uniform_tree{3, 4}, 1, 4);
  for (const std::uint32_t n : {0U, 1U}) capacities.set(n, 2);
  capacities.set(2, 4);
  topology_constraints gang;
  gang.groups = {{2, 2}};
  topology_fit<uniform_tree> few(1000, gang_objective::fewest_nodes);
  const auto dense = few(capacities, gang);
  REQUIRE(dense.verdict == fit_verdict::fits);
  REQUIRE(dense.portions.size() == 1);
  CHECK(dense.portions[0].node == 2);
  topology_fit<uniform_tree> whole(1000);
  CHECK(whole(capacities, gang).portions.size() == 2);
}

// The objectives are exact for one task size: the rack with the fewest free GPUs of those that hold the
// gang, or the fewest nodes of any rack; of equal racks the first.
TEST_CASE("topology_fit: tasks of one size go to the best rack of all") {
  int placed = 0;
  int differ = 0;
  topology_fit<uniform_tree> whole(1'000'000);
  topology_fit<uniform_tree> few(1'000'000, gang_objective::fewest_nodes);
  for (std::uint64_t seed = 0; seed < scaled(std::uint64_t{20'000}); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t racks = 1 + random.uniform(4);
    const std::uint32_t width = 1 + random.uniform(5);
    capacity_index<uniform_tree> capacities(uniform_tree{racks, width, 8}, node, 8);
    for (std::uint32_t n = 0; n < racks * width; ++n) capacities.set(n, random.uniform(9));
    topology_constraints gang;
    gang.groups = {{1 + random.uniform(8), 1 + random.uniform(8)}};
    gang.required = rack;
    const auto [tasks, gpus] = std::pair(gang.groups[0].tasks, gang.groups[0].gpus);
    using keyed = std::pair<std::uint32_t, std::uint32_t>;
    std::optional<keyed> least_free;   // and the rack
    std::optional<keyed> least_nodes;  // and the free GPUs of the rack
    for (std::uint32_t r = 0; r < racks; ++r) {
      std::vector<std::uint32_t> holds;
      std::uint32_t free = 0;
      for (std::uint32_t n = r * width; n < (r + 1) * width; ++n) {
        holds.push_back(capacities.free(n) / gpus);
        free += capacities.free(n);
      }
      std::sort(holds.rbegin(), holds.rend());
      std::uint32_t held = 0;
      std::uint32_t nodes = 0;
      while (held < tasks && nodes < holds.size()) held += holds[nodes++];
      if (held < tasks) continue;
      least_free = std::min(least_free.value_or(keyed(free, r)), keyed(free, r));
      least_nodes = std::min(least_nodes.value_or(keyed(nodes, free)), keyed(nodes, free));
    }
    const auto tight = whole(capacities, gang);
    REQUIRE((tight.verdict == fit_verdict::fits) == least_free.has_value());
    if (!least_free) continue;
    ++placed;
    REQUIRE(tight.cell == least_free->second);
    const auto dense = few(capacities, gang);
    REQUIRE(dense.verdict == fit_verdict::fits);
    REQUIRE(dense.portions.size() == least_nodes->first);
    std::uint32_t free = 0;
    for (std::uint32_t n = dense.cell * width; n < (dense.cell + 1) * width; ++n)
      free += capacities.free(n);
    REQUIRE(free == least_nodes->second);
    differ += tight.cell == dense.cell ? 0 : 1;
  }
  CHECK(placed > scaled(1'000));
  CHECK(differ > 0);
}

TEST_CASE("a leader and its workers, slices and spread in the answer") {
  const test_cluster cluster = two_racks({8, 8, 8, 8, 8, 8, 4, 4});
  const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
  topology_constraints gang;
  gang.groups = {{4, 2}, {8, 3}};
  gang.groups[1].leader = 0;
  gang.groups[0].slices = {{rack, 2}};
  gang.groups[1].spread = {{node, 2}};
  fit_t fit;
  const auto found = fit(capacities, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(is_valid_placement(cluster, gang, found));
  for (const tasks_on_node& p : found.portions) CHECK(p.tasks == (p.group == 0 ? 1 : 2));
  gang.preferred = rack;
  const auto next = fit(capacities, gang);
  REQUIRE(next.verdict == fit_verdict::fits);
  CHECK(next.level == rack);
  CHECK(next.cell == 0);
}

TEST_CASE("gangs of nothing fit, tasks larger than any node never do") {
  const test_cluster cluster = two_racks({8, 8, 8, 8, 8, 8, 4, 4});
  const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
  topology_constraints gang;
  fit_t fit;
  CHECK(fit(capacities, gang).verdict == fit_verdict::fits);
  gang.groups = {{0, 3}};
  gang.required = rack;
  const auto found = fit(capacities, gang);
  CHECK(found.verdict == fit_verdict::fits);
  CHECK(found.portions.empty());
  gang.groups = {{1, 9}, {1, 1}};
  REQUIRE(fit(capacities, gang).verdict == fit_verdict::does_not_fit);
  CHECK(accepted(cluster, gang, fit.explain(capacities, gang)));
}

TEST_CASE("many sizes with nothing in common end within the budget, and no no is wrong") {
  const int rounds = scaled(40);
  int ended = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    constexpr std::uint32_t nodes = 12;
    test_cluster cluster{ragged_tree({{1}, {nodes}, std::vector<std::uint32_t>(nodes, 64)}),
                         std::vector<std::uint32_t>(nodes, 64),
                         {}};
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, 64);
    // Nodes cut into three tasks each: it fits, but that is hard to see.
    topology_constraints gang;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      const std::uint32_t a = 14 + random.uniform(16);
      const std::uint32_t b = 14 + random.uniform(16);
      for (const std::uint32_t leaves : {a, b, 64 - a - b}) gang.groups.push_back({1, leaves});
    }
    if (round % 2 == 0) gang.groups[0].spread = {{rack, 1}};
    fit_t fit(20'000);
    const auto found = fit(capacities, gang);
    const fit_verdict verdict = found.verdict;
    REQUIRE(verdict != fit_verdict::does_not_fit);
    REQUIRE(found.steps <= 20'000);
    if (verdict == fit_verdict::fits) REQUIRE(is_valid_placement(cluster, gang, found));
    ended += verdict == fit_verdict::budget_ended ? 1 : 0;
  }
  MESSAGE(ended, " of ", rounds, " ended");
  if (scale() >= 1) CHECK(ended > 5);
}

TEST_CASE("where the budget ends at a lower level, a higher one may do") {
  // A rack in which every leaf is needed, by tasks of many sizes, and another that holds them.
  int higher = 0;
  const int rounds = scaled(40);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    constexpr std::uint32_t nodes = 10;
    test_cluster cluster{ragged_tree({{2}, {nodes, 1}, std::vector<std::uint32_t>(nodes + 1, 64)}),
                         std::vector<std::uint32_t>(nodes + 1, 64),
                         {}};
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, 64);
    topology_constraints gang;
    gang.preferred = rack;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      const std::uint32_t a = 14 + random.uniform(16);
      const std::uint32_t b = 14 + random.uniform(16);
      for (const std::uint32_t leaves : {a, b, 64 - a - b}) gang.groups.push_back({1, leaves});
    }
    fit_t fit(2'000);
    const auto found = fit(capacities, gang);
    if (found.verdict != fit_verdict::fits) continue;
    REQUIRE(is_valid_placement(cluster, gang, found));
    REQUIRE(found.is_lowest == (found.level == rack));
    higher += found.level == block ? 1 : 0;
  }
  MESSAGE(higher, " of ", rounds, " at the higher level");
  if (scale() >= 1) CHECK(higher > 0);
}

TEST_CASE("a rack that is hard to decide keeps no gang from an easy one, nor from a higher level") {
  // The first rack has least free leaves, and every one is needed by tasks of many sizes.
  const int rounds = scaled(40);
  int easy = 0;
  int higher = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    constexpr std::uint32_t nodes = 10;
    const std::uint32_t others = round % 2 == 0 ? nodes + 4 : 1;
    test_cluster cluster{
        ragged_tree({{2}, {nodes, others}, std::vector<std::uint32_t>(nodes + others, 64)}),
        std::vector<std::uint32_t>(nodes + others, 64),
        {}};
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, 64);
    topology_constraints gang;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      const std::uint32_t a = 14 + random.uniform(16);
      const std::uint32_t b = 14 + random.uniform(16);
      for (const std::uint32_t leaves : {a, b, 64 - a - b})
        gang.groups.push_back({.tasks = 1, .gpus = leaves, .spread = {{node, 1}}});
    }
    (round % 2 == 0 ? gang.required : gang.preferred) = rack;
    fit_t fit(100'000);
    const auto found = fit(capacities, gang);
    REQUIRE(found.verdict == fit_verdict::fits);
    REQUIRE(is_valid_placement(cluster, gang, found));
    REQUIRE(found.steps <= 100'000);
    easy += found.level == rack && found.cell == 1 ? 1 : 0;
    higher += found.level == block ? 1 : 0;
  }
  if (scale() >= 1) {
    CHECK(easy > 0);
    CHECK(higher > 0);
  }
}

TEST_CASE("with CPU for all, one kind of task goes where it goes without hosts") {
  for (int round = 0; round < scaled(2'000); ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    test_cluster cluster = random_test_cluster(random, 8);
    cluster.hosts.clear();
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
    topology_constraints gang;
    gang.groups = {{1 + random.uniform(8), 1 + random.uniform(4)}};
    if (random.uniform(2) == 0) gang.required = rack;
    const gang_objective objective =
        random.uniform(2) == 0 ? gang_objective::whole_cells : gang_objective::fewest_nodes;
    fit_t plain(1000, objective);
    fit_t hosted(1000, objective);
    const auto found = plain(capacities, gang);
    const fit_verdict verdict = found.verdict;
    cluster.hosts.assign(cluster.num_nodes(), {1000, 1000});
    gang.groups[0].host = {1, 1};
    const auto again = hosted(capacities, gang, cluster.hosts);
    REQUIRE(again.verdict == verdict);
    if (verdict != fit_verdict::fits) continue;
    REQUIRE(again.cell == found.cell);
    if (objective == gang_objective::whole_cells)
      REQUIRE(std::equal(found.portions.begin(), found.portions.end(), again.portions.begin(),
                         again.portions.end()));
    REQUIRE(again.portions.size() <= found.portions.size());
  }
}

TEST_CASE("gangs of billions of tasks are refused, and the proof can be counted again") {
  counters seen;
  fit_t fit;
  for (int round = 0; round < scaled(3'000); ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const test_cluster cluster = random_test_cluster(random, 8);
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
    topology_constraints gang = random_gang(random, 8);
    for (constrained_task_group& m : gang.groups) m.gpus = std::max(m.gpus, 1U);
    gang.groups.push_back({.tasks = (1U << (26 + random.uniform(6))) - 100 + random.uniform(100),
                           .gpus = 1 + random.uniform(8)});
    constrained_task_group& many = gang.groups.back();
    if (random.uniform(2) == 0) many.host = {1, random.uniform(2)};
    if (random.uniform(3) == 0) many.spread = {{rack + random.uniform(2), ~random.uniform(9)}};
    if (random.uniform(3) == 0 && gang.groups[0].leader == no_task_group) {
      many.tasks -= many.tasks % gang.groups[0].tasks;
      many.leader = 0;
    }
    if (!gang.valid(node, 4)) continue;
    check(fit, capacities, cluster, gang, capacities.top() + 1, true, seen);
  }
  MESSAGE(seen.asked, " asked, ", seen.listed, " cells listed, ", seen.mutations, " mutations");
}

TEST_CASE("tasks that take nothing change nothing, however many they are") {
  int asked = 0;
  int ended = 0;
  fit_t fit(10'000'000);
  for (int round = 0; round < scaled(30'000); ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const test_cluster cluster = random_test_cluster(random, 8);
    topology_constraints gang = random_gang(random, 8);
    if (!gang.valid(node, 4)) continue;
    const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
    const auto found = fit(capacities, gang, cluster.hosts);
    const fit_verdict verdict = found.verdict;
    const level_t level = found.level;
    constexpr std::uint32_t many = 3U << 30;
    gang.groups.push_back({.tasks = many});
    if (random.uniform(2) == 0) gang.groups.back().spread = {{node + random.uniform(3), many}};
    if (random.uniform(4) == 0) gang.groups.back().slices = {{node + random.uniform(3), many / 3}};
    const auto next = fit(capacities, gang, cluster.hosts);
    const fit_verdict beside = next.verdict;
    ++asked;
    ended += beside == fit_verdict::budget_ended ? 1 : 0;
    if (beside == fit_verdict::budget_ended) continue;  // beside others that take no leaves
    REQUIRE(beside == verdict);
    if (verdict == fit_verdict::fits) REQUIRE(next.level == level);
  }
  MESSAGE(ended, " of ", asked, " ended");
  CHECK(ended * 100 <= asked);
}

TEST_CASE("small tasks fill what is broken: with CPU, spread over racks, and beside another kind") {
  const test_cluster cluster = {ragged_tree({{1}, {10}, std::vector<std::uint32_t>(10, 8)}),
                                {8, 8, 1, 1, 1, 1, 1, 1, 1, 1},
                                std::vector<resources>(10, {64, 64})};
  const capacity_index<ragged_tree> capacities = capacity_of(cluster, 8);
  topology_constraints gang;
  const auto whole_nodes_used = [&] {
    fit_t fit;
    const auto found = fit(capacities, gang, cluster.hosts);
    REQUIRE(found.verdict == fit_verdict::fits);
    REQUIRE(is_valid_placement(cluster, gang, found));
    std::set<std::uint32_t> used;
    for (const tasks_on_node& p : found.portions)
      if (cluster.free[p.node] == 8) used.insert(p.node);
    return used.size();
  };
  gang.groups = {{.tasks = 8, .gpus = 1}};
  CHECK(whole_nodes_used() == 0);
  gang.groups[0].host = {1, 0};
  CHECK(whole_nodes_used() == 0);
  gang.groups[0].host = {};
  gang.groups[0].spread = {{rack, 8}};
  CHECK(whole_nodes_used() == 0);
  gang.groups[0] = {.tasks = 6, .gpus = 1, .host = {1, 0}};
  gang.groups.push_back({.tasks = 2, .gpus = 1, .host = {2, 0}});
  CHECK(whole_nodes_used() == 0);
  gang.groups[1] = {.tasks = 1, .gpus = 6, .host = {2, 0}};
  CHECK(whole_nodes_used() == 1);
}

TEST_CASE("what is certain is said, though the list that proves it is longer than the budget") {
  // Fractions of the nodes would hold the gang, so no weights refuse it.
  const std::vector<std::uint32_t> free{35, 35, 37, 37, 37, 37};
  const test_cluster cluster{ragged_tree({{1}, {6}, free}), free, {}};
  const capacity_index<ragged_tree> capacities = capacity_of(cluster, 37);
  topology_constraints gang;
  gang.groups = {{3, 22}, {5, 16}, {4, 12}, {4, 5}};
  fit_t much(100'000'000);
  const auto found = much(capacities, gang);
  REQUIRE(found.verdict == fit_verdict::does_not_fit);
  CHECK(found.is_refused);
  const infeasibility_proof why = much.explain(capacities, gang);
  REQUIRE(why.cells[0].weighing == infeasibility_proof::listed);
  CHECK(accepted(cluster, gang, why));
  int certain = 0;
  for (std::uint64_t budget = 1; budget < 2 * found.steps; budget *= 2) {
    fit_t little(budget);
    const auto early = little(capacities, gang);
    const fit_verdict verdict = early.verdict;
    REQUIRE(verdict != fit_verdict::fits);
    REQUIRE(early.steps <= budget);
    certain += verdict == fit_verdict::budget_ended && early.is_refused ? 1 : 0;
  }
  CHECK(certain > 0);
  gang.groups[0].tasks = 2;
  const auto next = much(capacities, gang);
  REQUIRE(next.verdict == fit_verdict::fits);
  CHECK(!next.is_refused);
}

TEST_CASE("topology_fit: weights of a linear program refuse a gang, and are its proof") {
  // 4 free GPUs hold 4, 6 hold 4 or 5, 8 hold 4 + 4 or 5: weights 1 and 2.
  capacity_index<uniform_tree> mixed(uniform_tree{3072, 8}, 1, 8);
  for (std::uint32_t n = 0; n < 3072; ++n) mixed.set(n, 4 + n % 3 * 2);
  topology_constraints gang;
  gang.groups = {{.tasks = 2049, .gpus = 4}, {.tasks = 1536, .gpus = 5}};
  topology_fit<uniform_tree> fit(1'000);
  REQUIRE(fit(mixed, gang).verdict == fit_verdict::does_not_fit);
  const infeasibility_proof anywhere = fit.explain(mixed, gang);
  CHECK(anywhere.weighings[0].weights == std::vector<std::uint32_t>{1, 2});
  CHECK(proof_check(mixed.tree(), 1, mixed.free(), {}, gang)(anywhere));
  gang.groups[0].tasks = 2048;
  CHECK(fit(mixed, gang).verdict == fit_verdict::fits);
  // One weighing refuses all 8,192 idle racks; with another weight, each with CPU.
  capacity_index<uniform_tree> idle(uniform_tree{8192, 16, 8}, 1, 8);
  for (std::uint32_t n = 0; n < idle.num_nodes(); ++n) idle.set(n, 8);
  gang.groups = {{.tasks = 16, .gpus = 5}, {.tasks = 1, .gpus = 4}};
  gang.required = 2;
  fit = topology_fit<uniform_tree>(10'000);
  REQUIRE(fit(idle, gang).verdict == fit_verdict::does_not_fit);
  const infeasibility_proof in_rack = fit.explain(idle, gang);
  CHECK(in_rack.weighings.size() == 1);
  CHECK(proof_check(idle.tree(), 1, idle.free(), {}, gang)(in_rack));
}

TEST_CASE("topology_fit: weights refuse a gang under constraints and with CPU, too") {
  // A slice of two tasks of 3 GPUs takes 6 on one node, and then no task of 4 fits beside it.
  capacity_index<uniform_tree> capacities(uniform_tree{2, 40, 8}, 1, 8);
  for (std::uint32_t n = 0; n < 80; ++n) capacities.set(n, 8);
  const std::vector<resources> hosts(80, resources{64'000, 0});
  topology_constraints gang;
  gang.groups = {{.tasks = 40, .gpus = 3, .host = {1'000, 0}, .slices = {{1, 2}}},
                 {.tasks = 41, .gpus = 4, .host = {2'000, 0}},
                 {.tasks = 1, .gpus = 1, .host = {3'000, 0}, .spread = {{1, 1}}}};
  gang.required = 2;
  topology_fit<uniform_tree> fit(20'000);
  REQUIRE(fit(capacities, gang, hosts).verdict == fit_verdict::does_not_fit);
  const infeasibility_proof why = fit.explain(capacities, gang, hosts);
  CHECK(why.cells[0].weighing != infeasibility_proof::listed);
  CHECK(proof_check(capacities.tree(), 1, capacities.free(), hosts, gang)(why));
  gang.groups[1].tasks = 40;
  CHECK(fit(capacities, gang, hosts).verdict == fit_verdict::fits);
}

TEST_CASE("topology_fit: counts of a cell beyond 32 bits are no fewer") {
  // The GPUs fit as 5 + 2 and 3 + 3 alone, which only the search finds; of the last kind each of the
  // two nodes could hold most.
  capacity_index<uniform_tree> capacities(uniform_tree{2, 8}, 1, 8);
  capacities.set(0, 7);
  capacities.set(1, 6);
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 5}, {.tasks = 2, .gpus = 3}, {.tasks = 1, .gpus = 2}};
  gang.groups.push_back({.tasks = 4'000'000'000, .spread = {{1, 2'900'000'000}}});
  topology_fit<uniform_tree> fit;
  CHECK(fit(capacities, gang).verdict == fit_verdict::fits);
}

TEST_CASE("topology_fit: fewest nodes where a spread leaves GPUs of a node unused") {
  capacity_index<uniform_tree> capacities(uniform_tree{2, 4, 8}, 1, 8);
  constexpr std::uint32_t free[] = {4, 1, 1, 0, 4, 4, 0, 0};
  for (std::uint32_t n = 0; n < 8; ++n) capacities.set(n, free[n]);
  topology_constraints gang;
  gang.groups = {{.tasks = 4, .gpus = 1, .spread = {{1, 2}}}};
  gang.required = 2;
  topology_fit<uniform_tree> fit(1000, gang_objective::fewest_nodes);
  const auto found = fit(capacities, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cell == 1);
  CHECK(found.portions.size() == 2);
}

TEST_CASE("topology_fit: many groups with CPU on an idle cluster are placed node after node") {
  capacity_index<uniform_tree> capacities(uniform_tree{112, 7, 16, 8}, 1, 8);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  const std::vector<resources> hosts(capacities.num_nodes(), resources{96'000, 786'432});
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 20; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {1'000 + 100 * i, 0}});
  topology_fit<uniform_tree> fit;
  const auto found = fit(capacities, gang, hosts);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.portions.size() == 20);
  CHECK(found.steps < 10'000);
  // Node after node with CPU that is scarce: three tasks to a node.
  std::vector<resources> scarce(capacities.num_nodes(), resources{6'500, 0});
  const auto next = fit(capacities, gang, scarce);
  REQUIRE(next.verdict == fit_verdict::fits);
  std::vector<std::uint32_t> cpu(capacities.num_nodes(), 0);
  for (const tasks_on_node& p : next.portions) cpu[p.node] += gang.groups[p.group].host.cpu_milli;
  CHECK(*std::max_element(cpu.begin(), cpu.end()) <= 6'500);
}

TEST_CASE("topology_fit: a thousand tasks that differ in CPU fit into an idle cluster") {
  capacity_index<uniform_tree> capacities(uniform_tree{112, 7, 16, 8}, 1, 8);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  const std::vector<resources> hosts(capacities.num_nodes(), resources{96'000, 786'432});
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 1'000; ++i)  // 1 to 24 CPUs in no order
    gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {1'000 + i * 617 % 1'000 * 23, 1'024}});
  topology_fit<uniform_tree> fit(100'000);
  for (const bool sizes : {false, true}) {
    for (std::uint32_t i = 0; i < 1'000 && sizes; ++i) gang.groups[i].gpus = 1 + i % 8;
    const auto found = fit(capacities, gang, hosts);
    REQUIRE(found.verdict == fit_verdict::fits);
    CHECK(found.steps < 50'000);
    std::vector<std::uint32_t> cpu(capacities.num_nodes(), 0);
    std::vector<std::uint32_t> gpus(capacities.num_nodes(), 0);
    for (const tasks_on_node& p : found.portions) {
      cpu[p.node] += p.tasks * gang.groups[p.group].host.cpu_milli;
      gpus[p.node] += p.tasks * gang.groups[p.group].gpus;
    }
    CHECK(found.portions.size() == 1'000);
    CHECK(*std::max_element(cpu.begin(), cpu.end()) <= 96'000);
    CHECK(*std::max_element(gpus.begin(), gpus.end()) <= 8);
  }
}

TEST_CASE("topology_fit: with few steps, few nodes are looked at, and no no is wrong") {
  // 64 racks of 32 nodes. Of the three kinds, the last one fits on no node.
  capacity_index<uniform_tree> capacities(uniform_tree{64, 32, 8}, 1, 8);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  const std::vector<resources> hosts(capacities.num_nodes(), resources{8'000, 0});
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 1, .host = {2'000, 0}},
                 {.tasks = 3, .gpus = 1, .host = {2'500, 0}},
                 {.tasks = 1, .gpus = 1, .host = {9'000, 0}}};
  for (const level_t l : {level_t{2}, any_level}) {
    gang.required = l;
    topology_fit<uniform_tree> few(100);  // the count of the third kind costs 32 steps
    CHECK(few(capacities, gang, hosts).verdict == fit_verdict::budget_ended);
    CHECK(few(capacities, gang, hosts).steps <= 100);
    topology_fit<uniform_tree> enough(1'000);
    CHECK(enough(capacities, gang, hosts).verdict == fit_verdict::does_not_fit);
  }
  // Each task fits on each node, but not all on one.
  gang.required = 1;
  gang.groups[2].host.cpu_milli = 1'000;
  topology_fit<uniform_tree> few(100);
  CHECK(few(capacities, gang, hosts).verdict == fit_verdict::budget_ended);
  CHECK(few(capacities, gang, hosts).steps <= 100);
  topology_fit<uniform_tree> enough(100'000);
  CHECK(enough(capacities, gang, hosts).verdict == fit_verdict::does_not_fit);
}

TEST_CASE("topology_fit: counts of many groups are paid from the budget, and its end is no no") {
  capacity_index<uniform_tree> capacities(uniform_tree{512, 16, 8}, 1, 8);
  std::vector<resources> hosts;
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) {
    capacities.set(n, 8);
    hosts.push_back({4'000 + n % 7 * 1'000, 0});
  }
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 300; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 1 + i % 8, .host = {1'000 + i, 0}});
  for (const level_t l : {level_t{1}, level_t{2}, any_level}) {
    gang.required = l;
    for (const std::uint64_t budget : {0U, 1U, 10U, 100U, 1'000U, 10'000U}) {
      topology_fit<uniform_tree> fit(budget);
      const auto found = fit(capacities, gang, hosts);
      CHECK(found.steps <= budget);
      if (found.verdict == fit_verdict::does_not_fit) CHECK(l != any_level);
    }
    topology_fit<uniform_tree> fit;
    CHECK((fit(capacities, gang, hosts).verdict == fit_verdict::fits) == (l == any_level));
  }
  // 10,000 groups that differ, and the same without CPU.
  gang.required = any_level;
  gang.groups.clear();
  for (std::uint32_t i = 0; i < 10'000; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 1 + i % 8, .host = {1 + i % 5'000, 0}});
  topology_fit<uniform_tree> fit;
  CHECK(fit(capacities, gang).verdict == fit_verdict::fits);
}

TEST_CASE("topology_fit: several large groups under constraints fit into a large busy cluster") {
  capacity_index<uniform_tree> capacities(uniform_tree{784, 16, 8}, 1, 8);
  rng random(3);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n)
    capacities.set(n, random.uniform(3) == 0 ? 8 : random.uniform(9));
  topology_constraints gang;
  gang.groups = {{.tasks = 62, .gpus = 7, .spread = {{2, 4}}},
                 {.tasks = 180, .gpus = 4, .slices = {{2, 10}}},
                 {.tasks = 30, .gpus = 3},
                 {.tasks = 165, .gpus = 2, .spread = {{1, 1}}}};
  topology_fit<uniform_tree> fit(100'000);
  const auto found = fit(capacities, gang);
  CHECK(found.steps <= 100'000);
  REQUIRE(found.verdict == fit_verdict::fits);
  std::vector<std::uint32_t> used(capacities.num_nodes(), 0);
  std::vector<std::uint32_t> tasks(gang.groups.size(), 0);
  for (const tasks_on_node& p : found.portions) {
    used[p.node] += p.tasks * gang.groups[p.group].gpus;
    tasks[p.group] += p.tasks;
  }
  for (std::uint32_t n = 0; n < used.size(); ++n) REQUIRE(used[n] <= capacities.free(n));
  for (std::size_t m = 0; m < tasks.size(); ++m) CHECK(tasks[m] == gang.groups[m].tasks);
}
