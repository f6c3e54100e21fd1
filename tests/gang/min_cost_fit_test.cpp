// apiary/tests/gang/min_cost_fit_test.cpp - the least of all assignments, by random costs.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/cost_tables.h>
#include <apiary/gang/min_cost_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <support/levels.h>
#include <support/naive_constraints.h>
#include <support/scale.h>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

using vector_of_counts = std::vector<std::uint32_t>;

// Costs drawn by class and counts, some negative: nothing about them can be guessed.
class drawn_costs {
 public:
  drawn_costs(const test_cluster& cluster, const topology_constraints& gang, std::uint64_t seed)
      : world_(cluster), seed_(seed) {
    groups_.assign(gang, node, cluster.tree.num_levels());
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> known;
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      const resources host = cluster.hosts.empty() ? resources{} : cluster.hosts[n];
      const auto [at, is_new] =
          known.try_emplace({cluster.free[n], host.cpu_milli, host.memory_mib},
                            static_cast<std::uint32_t>(known.size()));
      if (is_new) first_of_.push_back(n);
      classes.push_back(at->second);
    }
  }
  std::optional<std::int64_t> operator()(std::uint32_t node_class,
                                         std::span<const std::uint32_t> counts) const {
    const std::uint32_t n = first_of_[node_class];
    std::uint64_t leaves = 0;
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    std::uint64_t key = seed_ * 31 + node_class;
    for (std::size_t u = 0; u < counts.size(); ++u) {
      leaves += std::uint64_t{counts[u]} * groups_[u].gpus;
      cpu += counts[u] * groups_[u].cpu_milli;
      memory += counts[u] * groups_[u].memory_mib;
      key = key * 31 + counts[u];
    }
    if (leaves > world_.free[n]) return std::nullopt;
    if (!world_.hosts.empty() &&
        (cpu > world_.hosts[n].cpu_milli || memory > world_.hosts[n].memory_mib))
      return std::nullopt;
    return static_cast<std::int64_t>(rng(key).uniform(200)) - 80;
  }
  // Of a whole assignment.
  std::int64_t of(const assignment& nodes) const {
    std::map<std::uint32_t, vector_of_counts> on_node;
    for (std::uint32_t m = 0; m < nodes.size(); ++m) {
      if (groups_.group_of(m) == no_task_group) continue;
      for (const std::uint32_t n : nodes[m]) {
        on_node[n].resize(groups_.size());
        ++on_node[n][groups_.group_of(m)];
      }
    }
    std::int64_t sum = 0;
    for (const auto& [n, counts] : on_node) sum += (*this)(classes[n], counts).value();
    return sum;
  }

  std::vector<std::uint32_t> classes;

 private:
  const test_cluster& world_;
  std::uint64_t seed_;
  colocated_groups groups_;
  std::vector<std::uint32_t> first_of_;  // a node of each class
};

// The least cost of all assignments of tasks to nodes, nullopt if none satisfies the constraints.
class least_by_assigning {
 public:
  least_by_assigning(const test_cluster& cluster, const topology_constraints& gang,
                     const drawn_costs& costs)
      : world_(cluster), gang_(gang), costs_(costs) {}

  std::optional<std::int64_t> operator()(level_t within) {
    best_.reset();
    begun_.assign(gang_.groups.size(), {});
    left_ = world_.free;
    within_ = within;
    assign(0);
    return best_;
  }

 private:
  void assign(std::size_t group) {
    if (group == gang_.groups.size()) {
      if (!meets_constraints(world_, gang_, begun_, within_)) return;
      const std::int64_t cost = costs_.of(begun_);
      if (!best_ || cost < *best_) best_ = cost;
      return;
    }
    const constrained_task_group& m = gang_.groups[group];
    if (begun_[group].size() == m.tasks) return assign(group + 1);
    for (std::uint32_t n = begun_[group].empty() ? 0 : begun_[group].back(); n < world_.num_nodes();
         ++n) {
      if (left_[n] < m.gpus) continue;
      left_[n] -= m.gpus;
      begun_[group].push_back(n);
      assign(group);
      begun_[group].pop_back();
      left_[n] += m.gpus;
    }
  }

  const test_cluster& world_;
  const topology_constraints& gang_;
  const drawn_costs& costs_;
  level_t within_ = 0;
  assignment begun_;
  std::vector<std::uint32_t> left_;
  std::optional<std::int64_t> best_;
};

test_cluster few_nodes(rng& random) {
  std::vector<std::uint32_t> racks(1 + random.uniform(2));
  std::uint32_t nodes = 0;
  for (std::uint32_t& r : racks) nodes += r = 1 + random.uniform(3);
  test_cluster cluster{ragged_tree({{static_cast<std::uint32_t>(racks.size())},
                                    racks,
                                    std::vector<std::uint32_t>(nodes, 4)}),
                       {},
                       {}};
  for (std::uint32_t n = 0; n < nodes; ++n) cluster.free.push_back(random.uniform(5));
  if (random.uniform(3) == 0)
    for (std::uint32_t n = 0; n < nodes; ++n)
      cluster.hosts.push_back({random.uniform(6), 1 + random.uniform(4)});
  return cluster;
}

topology_constraints few_tasks(rng& random) {
  topology_constraints gang;
  std::uint32_t left = 5;
  for (std::uint32_t m = 0; m < 3 && left > 0; ++m) {
    constrained_task_group group{1 + random.uniform(left), random.uniform(4)};
    left -= group.tasks;
    if (random.uniform(3) == 0) group.host = {random.uniform(3), random.uniform(2)};
    const level_t l = node + random.uniform(2);
    switch (random.uniform(5)) {
      case 0:
        group.spread = {{l, 1 + random.uniform(2)}};
        break;
      case 1:
        group.slices = {{l, group.tasks % 2 == 0 ? 2U : 1U}};
        break;
      case 2:
        if (m > 0 && group.tasks % gang.groups[0].tasks == 0) group.leader = 0;
        break;
      default:
        break;
    }
    gang.groups.push_back(group);
  }
  if (random.uniform(2) == 0) gang.required = node + random.uniform(2);
  if (random.uniform(2) == 0) gang.preferred = node + random.uniform(2);
  return gang;
}

// Checks every task of a result against the constraints; returns the cost of the placement.
std::int64_t cost_of_answer(const test_cluster& cluster, const topology_constraints& gang,
                            const drawn_costs& costs,
                            const min_cost_fit<ragged_tree>::result& found) {
  REQUIRE(is_valid_placement(cluster, gang, found));
  assignment nodes(gang.groups.size());
  for (const tasks_on_node& p : found.portions)
    nodes[p.group].insert(nodes[p.group].end(), p.tasks, p.node);
  return costs.of(nodes);
}

}  // namespace

TEST_CASE("the least cost of all assignments, under every constraint") {
  const int rounds = scaled(20'000);
  int fitting = 0;
  int better = 0;
  min_cost_fit<ragged_tree> fit;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const test_cluster cluster = few_nodes(random);
    const topology_constraints gang = few_tasks(random);
    if (!gang.valid(node, cluster.tree.num_levels())) continue;
    const drawn_costs costs(cluster, gang, static_cast<std::uint64_t>(round));
    const auto found = fit(cluster.tree, node, gang, costs.classes, costs);
    const fit_verdict verdict = found.verdict;
    least_by_assigning naive(cluster, gang, costs);
    const level_t last = std::min(gang.required, cluster.tree.num_levels());
    std::optional<std::int64_t> least;
    level_t l = std::min(gang.preferred, last);
    for (; l <= last && !least; ++l) least = naive(l);
    REQUIRE(verdict == (least ? fit_verdict::fits : fit_verdict::does_not_fit));
    if (!least) continue;
    ++fitting;
    REQUIRE(found.level == l - 1);
    REQUIRE(found.cost == *least);
    REQUIRE(found.is_least);
    REQUIRE(found.is_lowest);
    REQUIRE(cost_of_answer(cluster, gang, costs, found) == *least);
    // Another level may cost less: the level comes first.
    better += l <= last && naive(last).value_or(*least) < *least ? 1 : 0;
  }
  MESSAGE(fitting, " of ", rounds, " fit; ", better, " would cost less at a higher level");
  if (scale() >= 1) {
    CHECK(fitting > rounds / 4);
    CHECK(better > 100);
  }
}

// With 1,000 groups a question reads 1,000 numbers, and a step pays for at most so many of them.
TEST_CASE("min_cost_fit: a question takes as many steps as it reads groups") {
  constexpr std::uint32_t nodes = 64;
  constexpr std::uint64_t reads_of_a_step = 16;
  const ragged_tree tree({{1}, {nodes}, std::vector<std::uint32_t>(nodes, 4)});
  std::vector<std::uint32_t> classes(nodes);
  for (std::uint32_t n = 0; n < nodes; ++n) classes[n] = n;
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 1'000; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {1 + i, 0}});
  std::uint64_t reads = 0;
  const auto cost = [&](std::uint32_t, std::span<const std::uint32_t> counts) {
    reads += counts.size();
    std::uint32_t tasks = 0;
    for (const std::uint32_t n : counts) tasks += n;
    return tasks <= 4 ? std::optional<std::int64_t>(tasks) : std::nullopt;
  };
  for (const std::uint64_t budget : {1'000U, 100'000U, 10'000'000U}) {
    CAPTURE(budget);
    reads = 0;
    min_cost_fit<ragged_tree> fit(budget);
    const auto found = fit(tree, node, gang, classes, cost);
    CHECK(found.verdict == fit_verdict::budget_ended);
    CHECK(found.steps <= budget);
    CHECK(reads <= reads_of_a_step * found.steps);
  }
}

// With 40 groups there are no tables, and the steps do not pay for a try in the large rack.
TEST_CASE("min_cost_fit: a try that is not made takes no steps, and a smaller rack is tried") {
  const auto cost = [&](std::uint32_t, std::span<const std::uint32_t> counts) {
    std::uint32_t tasks = 0;
    for (const std::uint32_t n : counts) tasks += n;
    return tasks <= 4 ? std::optional<std::int64_t>(tasks) : std::nullopt;
  };
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 40; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {1 + i, 0}});
  gang.required = rack;
  constexpr std::uint64_t budget =
      20'000;  // less than 12 steps for each group and each of 100 nodes
  for (const bool has_small_rack : {false, true}) {
    CAPTURE(has_small_rack);
    const std::uint32_t nodes = has_small_rack ? 112 : 100;
    const std::vector<std::uint32_t> racks =
        has_small_rack ? std::vector<std::uint32_t>{100, 12} : std::vector<std::uint32_t>{100};
    const ragged_tree tree(
        {{static_cast<std::uint32_t>(racks.size())}, racks, std::vector<std::uint32_t>(nodes, 4)});
    const std::vector<std::uint32_t> classes(nodes, 0);
    min_cost_fit<ragged_tree> fit(budget);
    const auto found = fit(tree, node, gang, classes, cost);
    CHECK(found.verdict == (has_small_rack ? fit_verdict::fits : fit_verdict::budget_ended));
    CHECK(found.steps < budget);
    if (has_small_rack) CHECK(found.cell == 1);
  }
}

TEST_CASE("the budget ends without an answer, or with one that may not be the least") {
  constexpr std::uint32_t nodes = 64;
  test_cluster cluster{ragged_tree({{1}, {nodes}, std::vector<std::uint32_t>(nodes, 4)}), {}, {}};
  for (std::uint32_t n = 0; n < nodes; ++n) cluster.free.push_back(1 + n % 4);
  topology_constraints gang;
  gang.groups = {{10, 1}, {10, 2}, {10, 3}};
  const drawn_costs costs(cluster, gang, 5);
  min_cost_fit<ragged_tree> all(100'000'000);
  const auto best = all(cluster.tree, node, gang, costs.classes, costs);
  REQUIRE(best.verdict == fit_verdict::fits);
  CHECK(best.is_least);
  CHECK(cost_of_answer(cluster, gang, costs, best) == best.cost);
  CHECK(best.steps > 1000);
  min_cost_fit<ragged_tree> none(0);
  const auto nothing = none(cluster.tree, node, gang, costs.classes, costs);
  REQUIRE(nothing.verdict == fit_verdict::budget_ended);
  CHECK(nothing.portions.empty());
  // One kind after the other finds some placement.
  for (const std::uint64_t budget : {best.steps - 1, std::uint64_t{10'000}}) {
    min_cost_fit<ragged_tree> some(budget);
    const auto greedy = some(cluster.tree, node, gang, costs.classes, costs);
    REQUIRE(greedy.verdict == fit_verdict::fits);
    CHECK(!greedy.is_least);
    CHECK(greedy.steps <= budget);
    CHECK(greedy.cost >= best.cost);
    CHECK(cost_of_answer(cluster, gang, costs, greedy) == greedy.cost);
  }
  // Two racks, the first of them within the budget.
  const test_cluster two{
      ragged_tree({{2}, {4, 4}, std::vector<std::uint32_t>(8, 4)}), {4, 3, 2, 1, 4, 4, 4, 4}, {}};
  gang.groups = {{2, 1}, {2, 2}};
  gang.required = rack;
  const drawn_costs drawn(two, gang, 5);
  const auto both = all(two.tree, node, gang, drawn.classes, drawn);
  REQUIRE(both.verdict == fit_verdict::fits);
  min_cost_fit<ragged_tree> some(both.steps - 1);
  const auto first = some(two.tree, node, gang, drawn.classes, drawn);
  REQUIRE(first.verdict == fit_verdict::fits);
  CHECK(!first.is_least);
  CHECK(first.cell == 0);
  CHECK(cost_of_answer(two, gang, drawn, first) == first.cost);
}

TEST_CASE(
    "groups one after another under every constraint: a yes has a placement, a no is certain") {
  int placed = 0;
  int ended = 0;
  for (int round = 0; round < scaled(10'000); ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const test_cluster cluster = few_nodes(random);
    const topology_constraints gang = few_tasks(random);
    if (!gang.valid(node, cluster.tree.num_levels())) continue;
    const drawn_costs costs(cluster, gang, static_cast<std::uint64_t>(round));
    min_cost_fit<ragged_tree> all;
    const auto best = all(cluster.tree, node, gang, costs.classes, costs);
    min_cost_fit<ragged_tree> some(random.uniform(600));
    const auto greedy = some(cluster.tree, node, gang, costs.classes, costs);
    const fit_verdict verdict = greedy.verdict;
    if (verdict == fit_verdict::budget_ended) {
      ++ended;
      continue;
    }
    REQUIRE(verdict == best.verdict);
    if (verdict != fit_verdict::fits) continue;
    REQUIRE(cost_of_answer(cluster, gang, costs, greedy) == greedy.cost);
    if (greedy.is_lowest) REQUIRE(greedy.level == best.level);
    if (greedy.level == best.level) REQUIRE(greedy.cost >= best.cost);
    if (greedy.is_least && greedy.level == best.level) REQUIRE(greedy.cost == best.cost);
    placed += greedy.is_least ? 0 : 1;
  }
  MESSAGE(placed, " placed without comparing all, ", ended, " ended");
  CHECK(placed > 0);
  CHECK(ended > 0);
}

TEST_CASE("gangs of nothing cost nothing") {
  const test_cluster cluster{ragged_tree({{1}, {1}, {4}}), {4}, {}};
  topology_constraints gang;
  gang.groups = {{0, 3}};
  const drawn_costs costs(cluster, gang, 1);
  min_cost_fit<ragged_tree> fit;
  const auto found = fit(cluster.tree, node, gang, costs.classes, costs);
  CHECK(found.verdict == fit_verdict::fits);
  CHECK(found.portions.empty());
  CHECK(found.cost == 0);
}

TEST_CASE("numbers of vectors add up, and say when a sum is too great") {
  topology_constraints gang;
  gang.groups = {{2, 1}, {3, 2}, {1, 3}};
  colocated_groups groups;
  groups.assign(gang, node, 4);
  mixed_radix numbers;
  REQUIRE(numbers.assign(groups, 100));
  REQUIRE(numbers.size() == 3 * 4 * 2);
  CHECK(!numbers.assign(groups, 23));
  REQUIRE(numbers.assign(groups, 24));
  for (std::uint32_t v = 0; v < numbers.size(); ++v) {
    for (std::uint32_t w = 0; w < numbers.size(); ++w) {
      bool fits = true;
      for (std::size_t u = 0; u < 3; ++u)
        fits = fits && numbers[v][u] + numbers[w][u] <= groups[u].tasks;
      REQUIRE(numbers.have_sum(v, w) == fits);
      for (std::size_t u = 0; u < 3 && fits; ++u)
        REQUIRE(numbers[v + w][u] == numbers[v][u] + numbers[w][u]);
    }
  }
}

TEST_CASE("min_cost_fit: of equal costs the first rack, and there the first node") {
  const ragged_tree tree({{2}, {2, 2}, {4, 4, 4, 4}});
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 4}};
  gang.required = rack;
  // Two classes of equal cost: the nodes are not all alike.
  const std::vector<std::uint32_t> classes{0, 1, 0, 1};
  const auto cost = [](std::uint32_t, std::span<const std::uint32_t> counts) {
    return counts[0] <= 1 ? std::optional(std::int64_t{counts[0]}) : std::nullopt;
  };
  min_cost_fit<ragged_tree> fit;
  const auto found = fit(tree, node, gang, classes, cost);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cell == 0);
  REQUIRE(found.portions.size() == 1);
  CHECK(found.portions[0].node == 0);
}

TEST_CASE("min_cost_fit: without the exact search, the cheapest of the orders of groups") {
  // The first group is expensive on node 0, where it goes if it comes first. The others cost nothing,
  // but there are too many of them for the exact search.
  const ragged_tree tree({{1}, {2}, {4, 4}});
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 2, .host = {1, 0}}, {.tasks = 1, .gpus = 1, .host = {2, 0}}};
  for (std::uint32_t i = 0; i < 8; ++i)
    gang.groups.push_back({.tasks = 5, .gpus = 0, .host = {0, 1 + i}});
  gang.required = rack;
  const std::vector<std::uint32_t> classes{0, 1};
  const auto cost = [](std::uint32_t node_class, std::span<const std::uint32_t> counts) {
    if (counts[0] + counts[1] > 1) return std::optional<std::int64_t>();
    return std::optional(std::int64_t{node_class == 0 ? 10 * counts[0] : 5 * counts[1]});
  };
  min_cost_fit<ragged_tree> fit(20'000);
  const auto found = fit(tree, node, gang, classes, cost);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(!found.is_least);
  CHECK(found.cost == 0);
}
