// apiary/tests/preempt/shared_victim_search_test.cpp - victims on a node, against all sets of jobs.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/model/node_table.h>
#include <apiary/preempt/shared_victim_search.h>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

using shared_candidate = shared_victim_search::candidate;

// A node on which tasks run, and the candidates among them.
struct shared_node {
  node_table table{};
  std::vector<shared_candidate> candidates{};

  [[nodiscard]] const node_state& state() const { return table[node_id(0)]; }
  // The node when the candidates of the set have ended.
  [[nodiscard]] node_state without(std::uint64_t set) const {
    node_state node = state();
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      if ((set >> c & 1) == 0) continue;
      node.left += candidates[c].host;
      for (std::size_t i = 0; i < max_gpus_per_node; ++i)
        node.gpu_left[i] = static_cast<milli_gpu>(node.gpu_left[i] + candidates[c].gpus[i]);
    }
    return node;
  }
  [[nodiscard]] std::uint64_t cost_of(std::uint64_t set) const {
    std::uint64_t cost = 0;
    for (std::size_t c = 0; c < candidates.size(); ++c)
      if ((set >> c & 1) != 0) cost += candidates[c].cost;
    return cost;
  }
  // The least cost of a set without which the task fits; nullopt: there is none.
  [[nodiscard]] std::optional<std::uint64_t> least_cost(const task_request& task) const {
    std::optional<std::uint64_t> least;
    for (std::uint64_t set = 0; set >> candidates.size() == 0; ++set)
      if (without(set).fits(task) && (!least || cost_of(set) < *least)) least = cost_of(set);
    return least;
  }
};

task_request random_shared_task(rng& random, std::uint32_t gpus) {
  task_request task{.cpu_milli = random.uniform(5) * 1000, .memory_mib = random.uniform(4) * 100};
  if (random.uniform(8) == 0 || gpus == 0) return task;
  task.gpus = random.uniform(2) == 0 ? 1 : 1 + random.uniform(gpus);
  task.gpu_milli = whole_gpu;
  if (task.gpus == 1 && random.uniform(3) > 0)
    task.gpu_milli = static_cast<milli_gpu>(50 * (1 + random.uniform(19)));
  task.models = random.uniform(4) == 0 ? 0b01 : 0b11;
  return task;
}

// A node that is nearly full of tasks; at most `most` of them are candidates, some of which have
// two tasks on the node.
shared_node random_shared_node(rng& random, std::size_t most) {
  shared_node result;
  const std::uint32_t gpus = random.uniform(10) == 0 ? 0 : 1 + random.uniform(4);
  result.table.add({.host = {.cpu_milli = 4000 + random.uniform(30) * 1000,
                             .memory_mib = 300 + random.uniform(20) * 100},
                    .gpus = gpus,
                    .model = static_cast<gpu_model>(random.uniform(2))});
  const std::uint32_t costs = random.uniform(2) == 0 ? 2 : 100;
  for (int tries = 0; tries < 30; ++tries) {
    const task_request task = random_shared_task(random, gpus);
    if (!result.state().fits(task)) continue;
    const placement where{node_id(0), task.wants_part_of_gpu()
                                          ? result.state().tightest_gpu(task.gpu_milli)
                                          : result.state().first_free_gpus(task.gpus)};
    result.table.place(task, where);
    if (random.uniform(5) == 0) continue;
    const bool joins = !result.candidates.empty() && random.uniform(6) == 0;
    if (!joins && result.candidates.size() == most) continue;
    if (!joins) result.candidates.push_back({.cost = random.uniform(costs)});
    result.candidates.back().host += task.host();
    for (std::size_t i = 0; i < max_gpus_per_node; ++i)
      if ((where.gpu_mask >> i & 1) != 0)
        result.candidates.back().gpus[i] =
            static_cast<milli_gpu>(result.candidates.back().gpus[i] + task.gpu_milli);
  }
  return result;
}

// Checks that the task fits on the GPUs of the answer when its victims have ended, and that the cost
// is theirs. Returns the set.
std::uint64_t checked_set(const shared_node& node, const task_request& task,
                          const shared_victim_search::result& found) {
  std::uint64_t set = 0;
  for (const std::uint32_t c : found.victims) {
    REQUIRE(c < node.candidates.size());
    REQUIRE((set >> c) == 0);  // ascending
    set |= std::uint64_t{1} << c;
  }
  CHECK(node.cost_of(set) == found.cost);
  CHECK(found.lower_bound <= found.cost);
  node_state after = node.without(set);
  CHECK(after.fits(task));
  CHECK(static_cast<std::uint32_t>(std::popcount(found.gpu_mask)) == task.gpus);
  for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
    if ((found.gpu_mask >> i & 1) != 0) CHECK(after.gpu_left[i] >= task.gpu_milli);
  return set;
}

}  // namespace

TEST_CASE("victims on a node with shared GPUs cost as little as any set does") {
  rng random(1);
  shared_victim_search search;
  shared_victim_search hurried(0);  // the first set
  std::uint32_t with_victims = 0;
  std::uint32_t without = 0;
  std::uint32_t cut = 0;
  for (std::uint32_t i = 0; i < scaled(20'000u); ++i) {
    const shared_node node = random_shared_node(random, 9);
    const task_request task = random_shared_task(random, 4);
    const std::optional<std::uint64_t> least = node.least_cost(task);
    const auto found = search(node.state(), task, node.candidates);
    REQUIRE(found.verdict == (least ? fit_verdict::fits : fit_verdict::does_not_fit));
    const auto first = hurried(node.state(), task, node.candidates);
    REQUIRE(first.verdict == found.verdict);
    if (!least) {
      CHECK(found.victims.empty());
      CHECK(found.cost == victim_set::never);
      continue;
    }
    const auto again = search(node.state(), task, node.candidates);
    CHECK(checked_set(node, task, again) >= 0);
    REQUIRE(again.cost == *least);
    CHECK(again.lower_bound == *least);
    const auto quick = hurried(node.state(), task, node.candidates);
    checked_set(node, task, quick);
    CHECK(quick.lower_bound <= *least);
    CHECK(quick.steps <= 8 + 4 * node.candidates.size());
    ++(again.victims.empty() ? without : with_victims);
    cut += quick.lower_bound < quick.cost ? 1U : 0U;
  }
  CHECK(with_victims > scaled(2'000u));
  CHECK(without > scaled(1'000u));
  CHECK(cut > scaled(300u));
}

TEST_CASE("a task gets no GPUs of a bad node, nor of another model, however many jobs end") {
  shared_node node;
  node.table.add({.host = {.cpu_milli = 8000}, .gpus = 1, .model = 3});
  const task_request runs{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 600};
  node.table.place(runs, {node_id(0), 1});
  node.candidates = {{.cost = 7, .host = runs.host(), .gpus = {600}}};
  shared_victim_search search;
  task_request task{.gpus = 1, .gpu_milli = whole_gpu};
  CHECK(search(node.state(), task, node.candidates).cost == 7);
  task.models = 0b0111;
  CHECK(search(node.state(), task, node.candidates).verdict == fit_verdict::does_not_fit);
  task.models = any_model;
  node.table[node_id(0)].healthy = false;
  CHECK(search(node.state(), task, node.candidates).verdict == fit_verdict::does_not_fit);
}

TEST_CASE("a search with a hundred equal jobs on a GPU takes few steps") {
  shared_node node;
  node.table.add({.host = {.cpu_milli = 200'000}, .gpus = 2});
  for (std::uint32_t j = 0; j < 200; ++j) {
    const task_request runs{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 10};
    const std::uint32_t gpu = j % 2;
    node.table.place(runs, {node_id(0), std::uint32_t{1} << gpu});
    shared_candidate one{.cost = 3, .host = runs.host()};
    one.gpus[gpu] = 10;
    node.candidates.push_back(one);
  }
  shared_victim_search search;
  const auto part = search(node.state(), {.gpus = 1, .gpu_milli = 450}, node.candidates);
  CHECK(part.cost == 135);
  CHECK(part.lower_bound == 135);
  CHECK(part.steps < 1000);
  const auto two = search(node.state(), {.gpus = 2, .gpu_milli = whole_gpu}, node.candidates);
  CHECK(two.cost == 600);
  CHECK(two.lower_bound == 600);
}

TEST_CASE("a search with a hundred thousand small jobs that must all end needs no deep stack") {
  shared_node node;
  node.table.add({.host = {.cpu_milli = 100'000}});
  node.table.place({.cpu_milli = 100'000}, {node_id(0), 0});
  node.candidates.assign(100'000, {.cost = 2, .host = {.cpu_milli = 1}});
  shared_victim_search search;
  const auto all = search(node.state(), {.cpu_milli = 100'000}, node.candidates);
  CHECK(all.cost == 200'000);
  CHECK(all.lower_bound == 200'000);
  CHECK(all.victims.size() == 100'000);
  const auto half = search(node.state(), {.cpu_milli = 50'000}, node.candidates);
  CHECK(half.victims.size() == 50'000);
  CHECK(half.steps < 60'000 + 100'000 / 16 + 100'000 / 2);  // what is read counts
}

TEST_CASE("a search ends with its budget, whichever GPUs it chooses, with a valid bound") {
  // Sixteen GPUs with a large and a small job on each, and CPU is short: many choices of eight GPUs.
  shared_node node;
  node.table.add({.host = {.cpu_milli = 100'000}, .gpus = 16});
  rng random(5);
  for (std::uint32_t gpu = 0; gpu < 16; ++gpu) {
    for (const milli_gpu milli : {milli_gpu{700}, milli_gpu{300}}) {
      const task_request runs{
          .cpu_milli = 1000 + random.uniform(4000), .gpus = 1, .gpu_milli = milli};
      if (!node.state().fits(runs)) continue;
      node.table.place(runs, {node_id(0), std::uint32_t{1} << gpu});
      shared_candidate one{.cost = 50 + random.uniform(20), .host = runs.host()};
      one.gpus[gpu] = milli;
      node.candidates.push_back(one);
    }
  }
  const std::uint32_t left = node.state().left.cpu_milli;
  const task_request task{.cpu_milli = left + 60'000, .gpus = 8, .gpu_milli = whole_gpu};
  shared_victim_search thorough(~std::uint64_t{0});
  const auto least = thorough(node.state(), task, node.candidates);
  REQUIRE(least.verdict == fit_verdict::fits);
  const std::uint64_t cost = least.cost;
  REQUIRE(least.lower_bound == cost);
  REQUIRE(least.steps > 20'000);
  std::uint64_t before = victim_set::never;
  for (const std::uint64_t budget : {0U, 100U, 1'000U, 20'000U}) {
    CAPTURE(budget);
    shared_victim_search search(budget);
    const auto found = search(node.state(), task, node.candidates);
    checked_set(node, task, found);
    CHECK(found.cost >= cost);
    CHECK(found.lower_bound <= cost);
    CHECK(found.cost <= before);
    before = found.cost;
    // The first set takes a step for each GPU and candidate; what is read at the end is over the budget.
    CHECK(found.steps <= budget + 2 * (16 + node.candidates.size()));
  }
  const task_request part{.cpu_milli = left + 60'000, .gpus = 1, .gpu_milli = 650};
  for (const std::uint64_t budget : {0U, 100U, 1'000U, 20'000U}) {
    CAPTURE(budget);
    shared_victim_search search(budget);
    const auto found = search(node.state(), part, node.candidates);
    checked_set(node, part, found);
    CHECK(found.steps <= budget + 16 * node.candidates.size());  // a bound for each GPU
    CHECK(found.steps > 4 * node.candidates.size());             // what is read for it counts
  }
}
