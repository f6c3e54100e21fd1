// apiary/tests/explain/proof_check_test.cpp - which proofs are accepted, true and changed ones.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/proof_mutations.h"
#include "support/scale.h"
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <type_traits>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

level_t proof_level(const test_cluster& cluster, const topology_constraints& gang) {
  return gang.required == any_level ? cluster.tree.num_levels() : gang.required;
}

// Whether every number is right, and no cell can hold enough.
bool is_right_refusal(const naive_cells& naive, const infeasibility_proof& why, std::uint32_t c) {
  const infeasibility_proof::refusal& r = why.cells[c];
  const naive_cells::counts tasks = naive.tasks();
  if (r.cell != c) return false;
  if (r.weighing != infeasibility_proof::listed) {
    if (r.weighing >= why.weighings.size() || !r.counts.empty()) return false;
    const infeasibility_proof::weighing& w = why.weighings[r.weighing];
    return r.most == naive.max_weight(w.weights, why.level, c) && r.most < w.needed;
  }
  std::set<naive_cells::counts> listed;
  std::size_t vectors = 0;
  for (std::size_t i = 0; i < r.counts.size(); i += tasks.size(), ++vectors) {
    naive_cells::counts v;
    for (std::size_t k = i; k < i + tasks.size() && k < r.counts.size(); ++k)
      v.push_back(r.counts[k]);
    listed.insert(v);
  }
  return r.most == 0 && listed.size() == vectors && listed == naive.greatest(why.level, c) &&
         !naive.held(why.level, c).contains(tasks);
}

bool is_right_proof(const test_cluster& cluster, const topology_constraints& gang,
                    const infeasibility_proof& why) {
  const naive_cells naive(cluster, gang);
  std::vector<std::uint32_t> kinds;
  for (const naive_kind& k : naive.kinds()) kinds.push_back(k.groups[0]);
  if (why.level != proof_level(cluster, gang) || why.groups != kinds) return false;
  if (why.node_level != node || why.tasks != naive.tasks()) return false;
  for (const std::uint32_t f : cluster.free)
    if (why.node_gpus > 0 && f > why.node_gpus) return false;
  for (const infeasibility_proof::weighing& w : why.weighings) {
    if (w.weights.size() != kinds.size()) return false;
    if (w.needed != naive_cells::weight(w.weights, naive.tasks())) return false;
  }
  if (why.cells.size() != naive.num_cells(why.level)) return false;
  for (std::uint32_t c = 0; c < why.cells.size(); ++c)
    if (!is_right_refusal(naive, why, c)) return false;
  return true;
}

// Some weighings, a refusal for each cell: by the last weighing that refuses it, or listed. All
// numbers are right, and it is a proof if no cell holds the gang.
infeasibility_proof some_proof(const test_cluster& cluster, const topology_constraints& gang,
                               rng& random) {
  const naive_cells naive(cluster, gang);
  infeasibility_proof why;
  why.level = proof_level(cluster, gang);
  why.node_level = node;
  why.node_gpus = random.uniform(8);
  for (const naive_kind& k : naive.kinds()) why.groups.push_back(k.groups[0]);
  why.tasks = naive.tasks();
  for (std::uint32_t n = 1 + random.uniform(3); n > 0; --n) {
    infeasibility_proof::weighing& w = why.weighings.emplace_back();
    const bool heavy = random.uniform(4) == 0;
    for (std::size_t k = 0; k < why.groups.size(); ++k)
      w.weights.push_back(heavy && random.uniform(2) == 0 ? ~random.uniform(4) : random.uniform(4));
    w.needed = naive_cells::weight(w.weights, naive.tasks());
  }
  for (std::uint32_t c = 0; c < naive.num_cells(why.level); ++c) {
    infeasibility_proof::refusal& r = why.cells.emplace_back();
    r.cell = c;
    for (std::uint32_t i = 0; i < why.weighings.size(); ++i) {
      const std::uint64_t most = naive.max_weight(why.weighings[i].weights, why.level, c);
      if (most >= why.weighings[i].needed || random.uniform(4) == 0) continue;
      r.weighing = i;
      r.most = most;
    }
    if (r.weighing != infeasibility_proof::listed) continue;
    for (const naive_cells::counts& v : naive.greatest(why.level, c))
      r.counts.insert(r.counts.begin(), v.begin(), v.end());
  }
  return why;
}

void change_proof(infeasibility_proof& why, rng& random) {
  const auto any_of = [&](auto& values) -> auto& {
    return values[random.uniform(static_cast<std::uint32_t>(values.size()))];
  };
  const auto shift = [&](auto& n) {
    const std::uint32_t how = random.uniform(3);
    n = how == 0 ? with_high_bit(n) : how == 1 ? n + 1 : n - 1;
  };
  const std::uint32_t what = random.uniform(16);
  if (what == 0) shift(why.level);
  if (what == 1 && !why.groups.empty()) shift(any_of(why.groups));
  if (what == 2) why.groups.push_back(0);
  if (what == 3) shift(any_of(why.weighings).needed);
  if (what == 4 && !why.groups.empty()) shift(any_of(any_of(why.weighings).weights));
  if (what == 5) any_of(why.weighings).weights.push_back(0);
  if (what == 6) why.weighings.pop_back();
  if (what == 7) why.cells.pop_back();
  if (what == 8) why.cells.push_back(why.cells.back());
  if (what == 13) shift(why.node_level);
  if (what == 14 && why.node_gpus > 0) --why.node_gpus;
  if (what == 15 && !why.tasks.empty()) shift(any_of(why.tasks));
  if (what > 8 && what < 13) {
    infeasibility_proof::refusal& r = any_of(why.cells);
    if (what == 9) shift(r.cell);
    if (what == 10) shift(r.most);
    if (what == 11) shift(r.weighing);
    if (what == 12 && !r.counts.empty()) shift(any_of(r.counts));
    if (what == 12 && r.counts.empty()) r.counts.assign(why.groups.size(), 0);
  }
}

}  // namespace

TEST_CASE("proof_check: accepted is what is right in every number, and nothing else") {
  std::size_t accepted = 0;
  std::size_t listed = 0;
  std::size_t changed = 0;
  for (std::uint64_t seed = 0; seed < scaled(1500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 1 + random.uniform(6);
    const test_cluster cluster = random_small_cells(random, most);
    topology_constraints gang = random_small_gang(random, most);
    if (random.uniform(4) > 0) gang.required = node + random.uniform(3);
    proof_check<ragged_tree> check(cluster.tree, node, cluster.free, cluster.hosts, gang);
    infeasibility_proof why = some_proof(cluster, gang, random);
    const bool right = is_right_proof(cluster, gang, why);
    CHECK(check(why) == right);
    accepted += right ? 1U : 0U;
    if (right)
      for (const infeasibility_proof::refusal& r : why.cells)
        listed += r.weighing == infeasibility_proof::listed ? 1U : 0U;
    for (int round = 0; round < 6; ++round) {
      infeasibility_proof other = why;
      change_proof(other, random);
      const bool still = is_right_proof(cluster, gang, other);
      CHECK(check(other) == still);
      changed += right && !still ? 1U : 0U;
    }
  }
  MESSAGE(accepted, " accepted, ", listed, " cells listed, ", changed, " refused when changed");
  CHECK(accepted > 0);
  CHECK(changed > 0);
  if (scale() >= 1) CHECK(listed > 100);
}

TEST_CASE("proof_check: a node holds whole slices, and what is said of slices is checked") {
  // On each of two nodes three GPUs are free, for slices of two: four of six tasks fit.
  capacity_index<uniform_tree> capacities(uniform_tree{1, 2, 4}, node, 4);
  const std::vector<std::uint32_t> free{3, 3};
  for (std::uint32_t n = 0; n < 2; ++n) capacities.set(n, free[n]);
  topology_constraints gang;
  gang.groups = {{.tasks = 6, .gpus = 1, .slices = {{node, 2}}}};
  topology_fit<uniform_tree> fit;
  REQUIRE(fit(capacities, gang).verdict == fit_verdict::does_not_fit);
  infeasibility_proof why = fit.explain(capacities, gang);
  REQUIRE(why.cells.size() == 1);
  CHECK(why.cells[0].most == 4);
  const uniform_tree& tree = capacities.tree();
  proof_check check(tree, node, std::span(free), std::span<const resources>(), gang);
  CHECK(check(why));
  REQUIRE(!why.gaps.empty());
  ++why.gaps[0].tasks;
  CHECK(!check(why));
  why.gaps[0].tasks -= 2;
  CHECK(!check(why));
  why.gaps.clear();  // nothing is said
  CHECK(check(why));
}

TEST_CASE("proof_check: numbers of 64 bits") {
  // As many tasks as a gang can have, with the greatest weight.
  const test_cluster cluster{ragged_tree({{2}, {2, 2}, {8, 8, 8, 8}}), {8, 3, 5, 0}, {}};
  constexpr std::uint64_t most = ~std::uint32_t{0};
  topology_constraints gang;
  gang.groups = {{.tasks = ~std::uint32_t{0} - 2, .gpus = 1, .spread = {{rack, 7}}},
                 {.tasks = 2, .gpus = 2}};
  gang.required = rack;
  proof_check<ragged_tree> check(cluster.tree, node, cluster.free, cluster.hosts, gang);
  infeasibility_proof why;
  why.level = rack;
  why.node_level = node;
  why.groups = {0, 1};
  why.tasks = {~std::uint32_t{0} - 2, 2};
  why.weighings = {{{~std::uint32_t{0}, ~std::uint32_t{0}}, most * most},
                   {{~std::uint32_t{0}, 0}, most * (most - 2)}};
  why.cells = {{0, 0, 9 * most, {}}, {1, 1, 5 * most, {}}};
  REQUIRE(check(why));
  for_each_mutation(why, [&](const infeasibility_proof& other) { CHECK(!check(other)); });
  why.cells = {{0, 1, 7 * most, {}}, {1, infeasibility_proof::listed, 0, {5, 0, 3, 1, 1, 2}}};
  REQUIRE(check(why));
  for_each_mutation(why, [&](const infeasibility_proof& other) { CHECK(!check(other)); });
}

TEST_CASE("proof_check: what a cell holds may be listed in any order, but once") {
  const test_cluster cluster{ragged_tree({{1}, {1}, {8}}), {8}, {{4, 4}}};
  topology_constraints gang;
  gang.groups = {{3, 1, {1, 0}}, {2, 2, {2, 0}}};
  proof_check<ragged_tree> check(cluster.tree, node, cluster.free, cluster.hosts, gang);
  infeasibility_proof why;
  why.level = 3;
  why.node_level = node;
  why.groups = {0, 1};
  why.tasks = {3, 2};
  why.cells = {{0, infeasibility_proof::listed, 0, {3, 0, 2, 1, 0, 2}}};
  CHECK(check(why));
  why.cells[0].counts = {0, 2, 3, 0, 2, 1};
  CHECK(check(why));
  why.cells[0].counts = {0, 2, 3, 0, 2, 1, 2, 1};
  CHECK(!check(why));
  why.cells[0].counts = {0, 2, 3, 0, 2, 1, 2};
  CHECK(!check(why));
  why.cells[0].counts = {0, 2, 3, 0};
  CHECK(!check(why));
  why.cells[0].counts = {};
  CHECK(!check(why));
}

TEST_CASE("proof_check: a fraction of more than a GPU, or of nothing, is whole GPUs") {
  const test_cluster cluster{ragged_tree({{1}, {1}, {8}}), {3}, {}};
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 2},
                 {.tasks = 1, .gpus = 2, .gpu_milli = 1'500},
                 {.tasks = 1, .gpus = 2, .gpu_milli = 0}};
  proof_check<ragged_tree> check(cluster.tree, node, cluster.free, cluster.hosts, gang);
  infeasibility_proof why;
  why.level = 3;
  why.node_level = node;
  why.groups = {0};
  why.tasks = {3};
  why.weighings = {{{1}, 3}};
  why.cells = {{0, 0, 1, {}}};
  CHECK(check(why));
}

TEST_CASE("proof_check: needs that no node can meet count as the same") {
  const test_cluster cluster{ragged_tree({{1}, {1}, {8}}), {3}, {}};
  constexpr std::uint32_t many = std::uint32_t{1} << 30;
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1},
                 {.tasks = many, .gpus = many, .host = {many, 0}, .leader = 0},
                 {.tasks = 1, .gpus = 1},
                 {.tasks = many / 2, .gpus = many, .host = {many / 2, 0}, .leader = 2}};
  proof_check<ragged_tree> check(cluster.tree, node, cluster.free, cluster.hosts, gang);
  infeasibility_proof why;
  why.level = 3;
  why.node_level = node;
  why.groups = {0};
  why.tasks = {2};
  why.weighings = {{{1}, 2}};
  why.cells = {{0, 0, 0, {}}};
  CHECK(check(why));
}

namespace {

using whole_nodes = proof_check<ragged_tree>;
template <class Gang>
constexpr bool can_be_checked =
    std::is_constructible_v<whole_nodes, const ragged_tree&, level_t,
                            std::span<const std::uint32_t>, std::span<const resources>, Gang>;
static_assert(can_be_checked<const topology_constraints&>);
static_assert(!can_be_checked<topology_constraints>);  // it would be gone when the check is made
static_assert(!can_be_checked<const topology_constraints>);

}  // namespace

TEST_CASE("proof_check: nothing proves that a gang of nothing does not fit") {
  const test_cluster cluster{ragged_tree({{1}, {1}, {8}}), {0}, {}};
  topology_constraints gang;
  gang.groups = {{0, 4}};
  proof_check<ragged_tree> check(cluster.tree, node, cluster.free, cluster.hosts, gang);
  infeasibility_proof why;
  why.level = 3;
  why.node_level = node;
  why.weighings = {{{}, 0}};
  why.cells = {{0, 0, 0, {}}};
  CHECK(!check(why));
  why.cells = {{0, infeasibility_proof::listed, 0, {}}};
  CHECK(!check(why));
}

TEST_CASE("proof_check: the weight of a cell may be more than 64 bits") {
  // A gang that one node could hold. Weighed with 2^32 - 1 the nodes hold 2^64 and more; cut to
  // 64 bits that would be less than the gang needs.
  const uniform_tree tree{65'537};
  topology_constraints gang;
  gang.groups = {{.tasks = 65'536}};
  const std::vector<std::uint32_t> free(65'537, 1);
  proof_check check(tree, 0, free, {}, gang);
  infeasibility_proof why;
  why.level = 1;
  why.groups = {0};
  why.tasks = {65'536};
  why.weighings.push_back({{4'294'967'295}, 281'474'976'645'120});
  why.cells.push_back({0, 0, 281'466'386'710'530, {}});
  CHECK(!check(why));
}
