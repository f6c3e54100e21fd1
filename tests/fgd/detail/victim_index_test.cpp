// apiary/tests/fgd/detail/victim_index_test.cpp - the index of victims against a search on all nodes.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/victim_index.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/node_table.h>
#include <apiary/preempt/shared_victim_search.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// Nodes, an index, and a plain list of what runs.
struct indexed_nodes {
  struct one {
    task_request request{};
    placement where{};
    std::uint32_t priority = 0;
    std::uint64_t cost = 0;
  };
  rng random;
  node_table table{};
  std::optional<detail::victim_index> index{};
  std::vector<one> tasks{};
  std::uint32_t priorities = 3;  // of the jobs

  indexed_nodes(std::uint64_t seed, std::uint32_t nodes) : random(seed) {
    for (std::uint32_t n = 0; n < nodes; ++n)
      table.add({.host = {.cpu_milli = 4000 + random.uniform(20) * 1000, .memory_mib = 4096},
                 .gpus = random.uniform(5),
                 .model = static_cast<gpu_model>(random.uniform(2))});
    index.emplace(nodes);
  }
  task_request any_request() {
    task_request task{.cpu_milli = random.uniform(9) * 500, .memory_mib = random.uniform(900)};
    if (random.uniform(9) == 0) return task;
    task.gpus = random.uniform(2) == 0 ? 1 : 1 + random.uniform(4);
    task.gpu_milli = whole_gpu;
    if (task.gpus == 1 && random.uniform(3) > 0)
      task.gpu_milli = static_cast<milli_gpu>(1 + random.uniform(999));
    task.models = random.uniform(3) == 0 ? 0b10 : 0b11;
    return task;
  }
  void start(std::uint32_t job) {
    one added{any_request(),
              {node_id(random.uniform(table.size())), 0},
              random.uniform(priorities),
              random.uniform(50)};
    const node_state& node = table[added.where.node];
    if (!node.fits(added.request)) return;
    added.where.gpu_mask = added.request.wants_part_of_gpu()
                               ? node.tightest_gpu(added.request.gpu_milli)
                               : node.first_free_gpus(added.request.gpus);
    added.request.job = job_id(job);
    table.place(added.request, added.where);
    index->add(added.request, added.where, added.priority, added.cost);
    tasks.push_back(added);
  }
  void end(std::size_t t) {
    table.remove(tasks[t].request, tasks[t].where);
    index->remove(tasks[t].request, tasks[t].where, tasks[t].priority);
    tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(t));
  }
  [[nodiscard]] bool fits_now(const task_request& task, const summary_bitset* allowed) const {
    for (const node_id n : table.ids())
      if ((allowed == nullptr || allowed->test(n.value)) && table[n].fits(task)) return true;
    return false;
  }
  // The least cost and the first node with it, by a search on each node.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, node_id>> naive(
      const task_request& task, std::uint32_t priority, const summary_bitset* allowed) const {
    std::optional<std::pair<std::uint64_t, node_id>> best;
    for (const node_id n : table.ids()) {
      if (allowed != nullptr && !allowed->test(n.value)) continue;
      std::vector<shared_victim_search::candidate> candidates;
      for (const one& t : tasks) {
        if (t.where.node != n || t.priority >= priority) continue;
        shared_victim_search::candidate c{.cost = t.cost, .host = t.request.host()};
        for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
          if ((t.where.gpu_mask >> i & 1) != 0) c.gpus[i] = t.request.gpu_milli;
        candidates.push_back(c);
      }
      shared_victim_search search;
      const auto found = search(table[n], task, candidates);
      if (found.verdict != fit_verdict::fits) continue;
      if (!best || found.cost < best->first) best = {found.cost, n};
    }
    return best;
  }
};

// A node with random jobs, some of which may be evicted.
struct bounded_node {
  node_table table{};
  std::vector<shared_victim_search::candidate> candidates{};

  bounded_node(rng& random, std::uint32_t cost_bits) {
    const node_id n = table.add({.host = {.cpu_milli = 40'000}, .gpus = random.uniform(9)});
    for (std::uint32_t j = 0; j < 2 + random.uniform(30); ++j) {
      task_request task{.cpu_milli = random.uniform(4000), .gpus = 1, .gpu_milli = whole_gpu};
      const std::uint32_t what = random.uniform(6);
      if (what == 0) task.gpus = 1 + random.uniform(4);
      if (what > 1) task.gpu_milli = static_cast<milli_gpu>(1 + random.uniform(999));
      if (what == 5) task = {.cpu_milli = task.cpu_milli};
      if (!table[n].fits(task)) continue;
      const std::uint32_t mask = task.wants_part_of_gpu() ? table[n].tightest_gpu(task.gpu_milli)
                                                          : table[n].first_free_gpus(task.gpus);
      table.place(task, {n, mask});
      if (random.uniform(4) == 0) continue;  // of a higher priority
      shared_victim_search::candidate c{.cost = random.uniform(50), .host = task.host()};
      c.cost = (c.cost << cost_bits) + (cost_bits > 0 ? random.uniform(1000) : 0);
      for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
        if ((mask >> i & 1) != 0) c.gpus[i] = task.gpu_milli;
      if (!candidates.empty() && random.uniform(5) == 0) {  // another task of the same job
        candidates.back().host += c.host;
        for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
          candidates.back().gpus[i] = static_cast<milli_gpu>(candidates.back().gpus[i] + c.gpus[i]);
      } else {
        candidates.push_back(c);
      }
    }
  }
  [[nodiscard]] const node_state& state() const { return table[node_id(0)]; }
  [[nodiscard]] std::uint64_t bound(const task_request& task) const {
    return detail::least_eviction_cost(state(), task, candidates);
  }
};

}  // namespace

TEST_CASE("the index of victims finds the least cost, and the first node with it") {
  std::uint32_t found_some = 0;
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(60u); ++seed) {
    indexed_nodes nodes(seed, 1 + seed % 40);
    for (std::uint32_t step = 0; step < 400; ++step) {
      const std::uint32_t what = nodes.random.uniform(10);
      if (what < 6) {
        for (std::uint32_t i = 0; i < 5; ++i) nodes.start(5 * step + i);
      } else if (what == 6 && !nodes.tasks.empty()) {
        nodes.end(nodes.random.uniform(static_cast<std::uint32_t>(nodes.tasks.size())));
      } else if (what == 7) {
        const node_id n(nodes.random.uniform(nodes.table.size()));
        nodes.table[n].healthy = !nodes.table[n].healthy;
        nodes.index->touch(n);
      } else {
        const task_request task = nodes.any_request();
        const std::uint32_t priority = nodes.random.uniform(4);
        summary_bitset allowed(nodes.table.size());
        const std::uint32_t one_of = nodes.random.uniform(2) == 0 ? 2 : 16;  // few or many nodes
        for (std::uint32_t n = 0; n < allowed.size(); ++n)
          if (nodes.random.uniform(one_of) == 0) allowed.set(n);
        const summary_bitset* only = nodes.random.uniform(3) == 0 ? &allowed : nullptr;
        if (nodes.fits_now(task, only)) continue;
        nodes.index->open(task, priority, only);
        const auto found = nodes.index->least(nodes.table);
        const auto expected = nodes.naive(task, priority, only);
        REQUIRE(found.has_value() == expected.has_value());
        if (!found) continue;
        REQUIRE(found->cost == expected->first);
        REQUIRE(found->lower_bound == found->cost);
        CHECK(found->where.node == expected->second);
        CHECK(std::is_sorted(found->victims.begin(), found->victims.end()));
        std::uint64_t cost = 0;
        for (const job_id victim : found->victims)
          for (const auto& t : nodes.tasks)
            if (t.request.job == victim) cost += t.cost;
        CHECK(cost == found->cost);
        ++found_some;
      }
    }
  }
  CHECK(found_some > apiary_test::scaled(500u));
}

TEST_CASE("the least sum of bounds never exceeds what victims on different nodes cost") {
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(100u); ++seed) {
    indexed_nodes nodes(seed, 12);
    for (std::uint32_t j = 0; j < 200; ++j) nodes.start(j);
    const task_request task = nodes.any_request();
    if (nodes.fits_now(task, nullptr)) continue;
    std::vector<std::uint64_t> costs;
    for (std::uint32_t n = 0; n < 12; ++n) {
      summary_bitset only(12);
      only.set(n);
      if (const auto found = nodes.naive(task, 3, &only)) costs.push_back(found->first);
    }
    std::sort(costs.begin(), costs.end());
    std::uint64_t sum = 0;
    for (std::uint32_t count = 1; count <= costs.size(); ++count) {
      sum += costs[count - 1];
      nodes.index->open(task, 3, nullptr);
      CHECK(nodes.index->least_sum(nodes.table, count) <= sum);
    }
    nodes.index->open(task, 3, nullptr);
    CHECK(nodes.index->least_sum(nodes.table, 13) == detail::victim_index::never);
  }
}

TEST_CASE("bounds of eviction costs are not above the least costs, and mostly equal to them") {
  std::uint32_t questions = 0;
  std::uint32_t equal = 0;
  std::uint32_t whole = 0;
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(400u); ++seed) {
    rng random(seed);
    const bounded_node node(random, seed % 3 == 0 ? 40 : 0);
    for (int i = 0; i < 60; ++i) {
      task_request task{.cpu_milli = random.uniform(2) * 3000, .gpus = 1, .gpu_milli = whole_gpu};
      const std::uint32_t what = random.uniform(4);
      if (what == 0) task.gpus = 1 + random.uniform(8);
      if (what > 1) task.gpu_milli = static_cast<milli_gpu>(1 + random.uniform(999));
      if (random.uniform(12) == 0) task = {.cpu_milli = 30'000};
      if (node.state().fits(task)) continue;
      shared_victim_search search;
      const auto exact = search(node.state(), task, node.candidates);
      const std::uint64_t bound = node.bound(task);
      if (exact.verdict != fit_verdict::fits) continue;
      REQUIRE(bound <= exact.cost);
      ++questions;
      equal += exact.cost == bound ? 1U : 0U;
      if (!task.wants_whole_gpus() || task.gpus != 1 || task.cpu_milli != 0) continue;
      ++whole;
      CHECK(exact.cost == bound);
    }
  }
  CHECK(whole > apiary_test::scaled(200u));
  CHECK(equal * 2 > questions);
}

TEST_CASE("no evictions on a bad node are enough") {
  rng random(3);
  bounded_node node(random, 0);
  while (node.state().gpus == 0 || node.candidates.empty()) node = bounded_node(random, 0);
  node.table[node_id(0)].healthy = false;
  CHECK(node.bound({.cpu_milli = 50'000}) == detail::victim_index::never);
  CHECK(node.bound({.gpus = 1, .gpu_milli = whole_gpu}) == detail::victim_index::never);
}

TEST_CASE("many priorities leave nothing behind for one another") {
  std::uint32_t found_some = 0;
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(8u); ++seed) {
    indexed_nodes nodes(seed, 24);
    nodes.priorities = 40;
    std::uint32_t job = 0;
    while (job < 300) nodes.start(job++);
    for (std::uint32_t k = 0; k < 600; ++k) {
      for (int i = 0; i < 2; ++i) nodes.start(job++);
      while (nodes.tasks.size() > 140)
        nodes.end(nodes.random.uniform(static_cast<std::uint32_t>(nodes.tasks.size())));
      const task_request task = nodes.any_request();
      const std::uint32_t priority = 1 + k % 40;
      if (nodes.fits_now(task, nullptr)) continue;
      nodes.index->open(task, priority, nullptr);
      const auto found = nodes.index->least(nodes.table);
      const auto expected = nodes.naive(task, priority, nullptr);
      REQUIRE(found.has_value() == expected.has_value());
      if (!expected) continue;
      ++found_some;
      REQUIRE(found->cost == expected->first);
      REQUIRE(found->where.node == expected->second);
    }
  }
  CHECK(found_some > apiary_test::scaled(500u));
}
