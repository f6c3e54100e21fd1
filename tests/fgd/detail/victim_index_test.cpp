// apiary/tests/fgd/detail/victim_index_test.cpp - the index of victims against a search on all nodes.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/victim_index.h>
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

// Nodes with two GPUs, and on each GPU a job that also uses half of the memory.
struct nodes_with_two_jobs {
  node_table table{};
  detail::victim_index index{0};

  [[nodiscard]] static node_shape shape(gpu_model model, std::uint32_t memory = 1000) {
    return {.host = {.cpu_milli = 1000, .memory_mib = memory}, .gpus = 2, .model = model};
  }
  [[nodiscard]] static task_request job(node_id n, std::uint32_t gpu) {
    return {.job = job_id(2 * n.value + gpu), .memory_mib = 500, .gpus = 1, .gpu_milli = whole_gpu};
  }
  void start_jobs(node_id n, std::uint64_t cost) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      const placement where{n, std::uint32_t{1} << i};
      table.place(job(n, i), where);
      index.add(job(n, i), where, 0, cost);
    }
  }
  // Adds a node. Each of its jobs costs this much.
  void add(std::uint64_t cost, gpu_model model = 0, std::uint32_t memory = 1000) {
    const node_id n = table.add(shape(model, memory));
    index.add_node();
    start_jobs(n, cost);
  }
  // Another node gets the id of this one.
  void replace(node_id n, std::uint64_t cost, gpu_model model) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      const placement where{n, std::uint32_t{1} << i};
      table.remove(job(n, i), where);
      index.remove(job(n, i), where, 0);
    }
    table.erase(n);
    table.insert(n, shape(model));
    index.touch(n);
    start_jobs(n, cost);
  }
  // Asks for victims for a task with a GPU and this much memory: above 500 for both jobs of a node.
  detail::victim_index::result find(std::uint32_t memory, model_set models = any_model) {
    return index.find(table,
                      {.memory_mib = memory, .gpus = 1, .gpu_milli = whole_gpu, .models = models},
                      1, nullptr);
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
        const auto found = nodes.index->find(nodes.table, task, priority, only).victims;
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
      CHECK(nodes.index->least_sum(nodes.table, task, 3, count) <= sum);
    }
    CHECK(nodes.index->least_sum(nodes.table, task, 3, 13) == detail::cost_tree::never);
  }
}

TEST_CASE(
    "a request that returns often gets bounds of its own, and the answers stay the least ones") {
  std::uint32_t found_some = 0;
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(6u); ++seed) {
    indexed_nodes nodes(seed, 40);
    std::vector<task_request> often;  // differ in what rounding drops
    for (int i = 0; i < 6; ++i) {
      task_request task{.cpu_milli = 1100 + nodes.random.uniform(2900),
                        .memory_mib = 1500 + nodes.random.uniform(2500),
                        .gpus = 1,
                        .gpu_milli = whole_gpu};
      if (i >= 2) task.gpu_milli = static_cast<milli_gpu>(500 + nodes.random.uniform(125));
      if (i % 2 == 1) task.models = 0b10;
      often.push_back(task);
    }
    for (std::uint32_t step = 0; step < 250; ++step) {
      for (std::uint32_t i = 0; i < 4; ++i) nodes.start(4 * step + i);
      while (nodes.tasks.size() > 150)
        nodes.end(nodes.random.uniform(static_cast<std::uint32_t>(nodes.tasks.size())));
      const task_request& task = often[nodes.random.uniform(6)];
      const std::uint32_t priority = 1 + nodes.random.uniform(2);
      if (nodes.fits_now(task, nullptr)) continue;
      const auto found = nodes.index->find(nodes.table, task, priority, nullptr).victims;
      const auto expected = nodes.naive(task, priority, nullptr);
      REQUIRE(found.has_value() == expected.has_value());
      if (!found) continue;
      ++found_some;
      REQUIRE(found->cost == expected->first);
      REQUIRE(found->lower_bound == found->cost);
      REQUIRE(found->where.node == expected->second);
    }
  }
  CHECK(found_some > apiary_test::scaled(300u));
}

TEST_CASE("a find reads at most three bounds if nothing has changed since the last one") {
  nodes_with_two_jobs nodes;
  for (std::uint32_t n = 0; n < 500; ++n) nodes.add(n == 0 ? 1 : 2);  // a bound is at most 2
  for (std::uint32_t round = 0; round < 5; ++round) {
    const auto found = nodes.find(700);
    REQUIRE(found.victims);
    CHECK(found.victims->cost == 2);
    CHECK(found.victims->where.node == node_id(0));
    if (round > 0) CHECK(found.steps <= 3);
  }
  for (std::uint32_t n = 100; n < 110; ++n) nodes.index.touch(node_id(n));
  auto found = nodes.find(700);
  CHECK(found.victims->cost == 2);
  CHECK(found.steps <= 23);
  found = nodes.find(700);
  CHECK(found.victims->cost == 2);
  CHECK(found.steps <= 3);
}

TEST_CASE("a request finds the least victims at once, though bounds are too low on many nodes") {
  // The request needs the memory of both jobs of a node, but on the last node that of one is enough.
  const std::uint32_t count = detail::victim_index::max_nodes + 200;
  nodes_with_two_jobs nodes;
  for (std::uint32_t n = 0; n < count; ++n) nodes.add(10);
  nodes.add(15, 0, 1100);
  for (int times = 0; times < 2; ++times) {
    const auto found = nodes.find(600);
    REQUIRE(found.victims.has_value());
    CHECK(found.victims->where.node == node_id(count));
    CHECK(found.victims->cost == 15);
    CHECK(found.victims->lower_bound == 15);
    CHECK(found.is_own);
  }
  // Without the cheap node, both jobs of the first node.
  nodes.replace(node_id(count), 30, 0);
  const auto found = nodes.find(600);
  REQUIRE(found.victims.has_value());
  CHECK(found.victims->where.node == node_id(0));
  CHECK(found.victims->cost == 20);
  CHECK(found.victims->lower_bound == 20);
}

TEST_CASE("a request that returns does not read the nodes of other models again") {
  nodes_with_two_jobs nodes;
  for (std::uint32_t n = 0; n < 500; ++n) nodes.add(1, 0);
  nodes.add(5, 1);
  CHECK(nodes.find(500, 0b10).steps >= 500);
  for (std::uint32_t round = 0; round < 4; ++round) {
    const auto found = nodes.find(500, 0b10);
    REQUIRE(found.victims);
    CHECK(found.victims->cost == 5);
    CHECK(found.victims->where.node == node_id(500));
    CHECK(found.is_own);
    if (round > 0) CHECK(found.steps <= 3);
  }
  // A node that has changed is read again: once, or until it has victims.
  for (std::uint32_t n = 100; n < 110; ++n) nodes.index.touch(node_id(n));
  CHECK(nodes.find(500, 0b10).steps <= 13);
  CHECK(nodes.find(500, 0b10).steps <= 3);
  nodes.replace(node_id(7), 1, 1);
  CHECK(nodes.find(500, 0b10).victims->where.node == node_id(7));
  CHECK(nodes.find(500, 0b01).victims->where.node == node_id(0));
}

TEST_CASE("two requests that return get bounds of their own, whatever was asked before") {
  nodes_with_two_jobs nodes;
  for (std::uint32_t n = 0; n < 500; ++n) nodes.add(n < 30 ? 1 : 2);
  // Each of many requests finds 30 bounds too low, twice: not enough for bounds of its own.
  for (std::uint32_t round = 0; round < 2; ++round)
    for (std::uint32_t r = 0; r < 64; ++r) CHECK(!nodes.find(600 + r).is_own);
  CHECK(nodes.find(700).steps >= 30);
  std::uint32_t own = 0;
  for (std::uint32_t round = 0; round < 6; ++round) {
    for (const std::uint32_t memory : {700U, 701U}) {
      const auto found = nodes.find(memory);
      REQUIRE(found.victims);
      CHECK(found.victims->cost == 2);
      CHECK(found.victims->where.node == node_id(0));
      own += found.is_own ? 1U : 0U;
      if (round == 5) CHECK(found.steps <= 3);
    }
  }
  CHECK(own >= 5);
}

TEST_CASE("a new kind for one request replaces the one that was not used for the longest time") {
  nodes_with_two_jobs nodes;
  for (std::uint32_t n = 0; n < 100; ++n) nodes.add(1);
  const auto is_own = [&](std::uint32_t memory) {
    const auto found = nodes.find(memory);
    REQUIRE(found.victims);
    CHECK(found.victims->cost == (memory > 500 ? 2 : 1));
    CHECK(found.victims->where.node == node_id(0));
    return found.is_own;
  };
  CHECK(!is_own(999));
  CHECK(is_own(999));
  const std::uint32_t others = detail::victim_index::max_own_kinds + 16;
  for (std::uint32_t r = 0; r < others; ++r) {
    CHECK(!is_own(600 + r));  // finds 100 bounds too low
    CHECK(is_own(600 + r));
    CHECK(is_own(999));
    CHECK(!is_own(r));  // one job is enough, as for the rounded kind
  }
  CHECK(is_own(600 + others - 1));
  CHECK(!is_own(600));
}

TEST_CASE("kinds and priorities that are replaced leave no bounds behind") {
  std::uint32_t found_some = 0;
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(8u); ++seed) {
    indexed_nodes nodes(seed, 24);
    nodes.priorities = 40;
    std::uint32_t job = 0;
    // Returns whether the request has a kind of its own.
    const auto compare = [&](const task_request& task, std::uint32_t priority) {
      for (int i = 0; i < 2; ++i) nodes.start(job++);
      while (nodes.tasks.size() > 140)
        nodes.end(nodes.random.uniform(static_cast<std::uint32_t>(nodes.tasks.size())));
      if (nodes.fits_now(task, nullptr)) return false;
      const auto found = nodes.index->find(nodes.table, task, priority, nullptr);
      const auto expected = nodes.naive(task, priority, nullptr);
      REQUIRE(found.victims.has_value() == expected.has_value());
      if (!expected) return found.is_own;
      ++found_some;
      REQUIRE(found.victims->cost == expected->first);
      REQUIRE(found.victims->where.node == expected->second);
      return found.is_own;
    };
    while (job < 300) nodes.start(job++);
    std::size_t made_own = 0;
    for (std::uint32_t round = 0; round < 3; ++round) {
      // Twice as many rounded kinds as are kept, of more priorities than are kept.
      for (std::uint32_t k = 0; k < 2 * detail::victim_index::max_kinds; ++k) {
        task_request task{.cpu_milli = 8000U >> (k / 40 % 2 * 2), .gpus = 1 + k / 80 % 4};
        task.gpu_milli = whole_gpu;
        compare(task, 1 + k % 40);
      }
      // More requests that round to the same: each of them returns until it has a kind of its own.
      for (std::uint32_t k = 0; k < detail::victim_index::max_own_kinds + 16; ++k) {
        const task_request task{.cpu_milli = 5000 + 100 * k,
                                .memory_mib = 1500 + 31 * k,
                                .gpus = 1,
                                .gpu_milli = static_cast<milli_gpu>(500 + k),
                                .models = k % 2 == 0 ? 0b10U : 0b11U};
        const std::uint32_t priority = 10 + k % 4 * 10;
        if (compare(task, priority)) continue;
        for (int i = 0; i < 48; ++i) {
          if (!compare(task, priority)) continue;
          ++made_own;
          break;
        }
      }
    }
    CHECK(made_own > detail::victim_index::max_own_kinds);  // so some were replaced
  }
  CHECK(found_some > apiary_test::scaled(2000u));
}
