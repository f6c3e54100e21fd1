// apiary/tests/fgd/detail/kind_cache_test.cpp - thousands of kinds of request, placed by shared bounds.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/kind_cache.h>
#include <apiary/fgd/fgd.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

TEST_CASE("kind_cache: with thousands of kinds every decision is that of scoring every node") {
  const std::uint32_t events = apiary_test::scaled(20'000U);
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    node_table nodes = apiary_test::random_nodes(random, 70);
    auto scheduler = fgd::create(nodes, fragmentation_gradient(fragmentation(mix))).value();
    std::vector<job_id> running;
    std::uint32_t suggested_only = 0;
    for (std::uint32_t i = 0; i < events + 600; ++i) {
      CAPTURE(i);
      task_request task = apiary_test::random_task(random, i);
      task.cpu_milli = random.uniform(12'000);
      if (task.gpus == 1 && task.gpu_milli < whole_gpu)
        task.gpu_milli = random.uniform(2) == 0 ? 250 : 600;
      const task_plan plan = scheduler.propose(task).value();
      const std::optional<placement> expected =
          apiary_test::naive_fgd(mix, scheduler.nodes(), task);
      REQUIRE((plan.result == plan_result::bind) == expected.has_value());
      if (expected) {
        REQUIRE(plan.where == *expected);
        // Without the best node the second best.
        summary_bitset others(scheduler.nodes().size(), true);
        others.reset(plan.where.node.value);
        node_table rest = scheduler.nodes();
        rest[plan.where.node].healthy = false;
        const task_plan second = scheduler.propose(task, others).value();
        const std::optional<placement> next = apiary_test::naive_fgd(mix, rest, task);
        REQUIRE((second.result == plan_result::bind) == next.has_value());
        if (next) REQUIRE(second.where == *next);
        if (!next) REQUIRE(second.reason == wait_reason::not_suggested);
        suggested_only += next ? 0U : 1U;
        // On a few nodes only.
        summary_bitset few(scheduler.nodes().size());
        for (std::uint32_t n = random.uniform(8); n > 0; --n) few.set(random.uniform(70));
        for (const node_id n : rest.ids())
          rest[n].healthy = scheduler.nodes()[n].healthy && few.test(n.value);
        const task_plan third = scheduler.propose(task, few).value();
        const std::optional<placement> best = apiary_test::naive_fgd(mix, rest, task);
        REQUIRE((third.result == plan_result::bind) == best.has_value());
        if (best) REQUIRE(third.where == *best);
        REQUIRE(scheduler.commit(task, plan).ok());
        running.push_back(task.job);
      }
      while (!running.empty() && random.uniform(9) < (running.size() > 200 ? 8 : 3)) {
        std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))],
                  running.back());
        REQUIRE(scheduler.finish(running.back()).ok());
        running.pop_back();
      }
    }
    if (apiary_test::scale() >= 1) CHECK(suggested_only > 0);
  }
}

// Counts how often it scores a node.
struct counted_gradient : fragmentation_gradient {
  using fragmentation_gradient::fragmentation_gradient;
  static inline int scored = 0;
  std::uint32_t score(const node_table& nodes, node_id n, const task_request& task) const noexcept {
    ++scored;
    return fragmentation_gradient::score(nodes, n, task);
  }
};

TEST_CASE("kind_cache: a new kind does not score all nodes, a frequent one has its own scores") {
  rng random(1);
  const node_table nodes = apiary_test::random_nodes(random, 2'000);
  const task_mix mix = apiary_test::random_mix(random);
  detail::kind_cache<counted_gradient> cache(nodes, counted_gradient(fragmentation(mix)));
  const auto times_scored = [&](std::uint32_t cpu) {
    counted_gradient::scored = 0;
    const task_request task{.cpu_milli = cpu, .gpus = 1, .gpu_milli = 500};
    CHECK(cache.place(nodes, task, nullptr) == apiary_test::naive_fgd(mix, nodes, task));
    return counted_gradient::scored;
  };
  using cache_type = detail::kind_cache<counted_gradient>;
  for (std::uint32_t cpu = 0; cpu < cache_type::kinds_before_bounds; ++cpu)
    CHECK(times_scored(cpu) > 500);
  CHECK(times_scored(1024) > 500);  // its number is round
  for (std::uint32_t cpu = 1025; cpu < 1200; ++cpu) CHECK(times_scored(cpu) <= 64);
  CHECK(times_scored(100) == 0);  // it has scores of its own, and nothing has changed
}

// A cache of a cluster where tasks of half a GPU with up to 5,000 of CPU have equal scores on all nodes,
// and others a lower score on the first `poor` nodes. It has as many kinds as get scores of their own.
struct poor_nodes {
  using cache_type = detail::kind_cache<counted_gradient>;
  task_mix mix{{{{.cpu_milli = 5'000, .gpus = 1, .gpu_milli = 500}, 1}}};
  node_table nodes;
  cache_type cache;

  poor_nodes(std::uint32_t poor, std::uint32_t all)
      : nodes(nodes_of(poor, all)), cache(nodes, counted_gradient(fragmentation(mix))) {
    for (std::uint32_t i = 0; i < cache_type::kinds_before_bounds; ++i)  // they fit nowhere
      CHECK(!cache.place(nodes, {.cpu_milli = 100'000 + i}, nullptr));
  }
  static node_table nodes_of(std::uint32_t poor, std::uint32_t all) {
    node_table nodes;
    for (std::uint32_t n = 0; n < all; ++n) nodes.add({{n < poor ? 10'000U : 64'000U, 0}, 1, 0});
    return nodes;
  }
  int times_scored(std::uint32_t cpu) {
    counted_gradient::scored = 0;
    const task_request task{.cpu_milli = cpu, .gpus = 1, .gpu_milli = 500};
    CHECK(cache.place(nodes, task, nullptr) == apiary_test::naive_fgd(mix, nodes, task));
    return counted_gradient::scored;
  }
};

TEST_CASE("kind_cache: if the bounds for a new kind are too high, kinds like it get better ones") {
  poor_nodes cluster(1'500, 2'000);
  // The bounds of 4,096 are made. By these all nodes are equally good, so the task gets its own scores.
  CHECK(cluster.times_scored(5'999) >= 4'000);
  CHECK(cluster.times_scored(5'998) >= 2'000);  // the bounds of 5,120 are made
  for (std::uint32_t cpu = 5'121; cpu < 5'500; cpu += 9) CHECK(cluster.times_scored(cpu) <= 64);
  for (std::uint32_t cpu = 4'097; cpu < 4'300; cpu += 9) CHECK(cluster.times_scored(cpu) <= 64);
}

TEST_CASE("kind_cache: on a large cluster more nodes may be scored for a new kind") {
  poor_nodes cluster(100, 20'000);
  CHECK(cluster.times_scored(4'097) >= 20'000);  // the bounds of 4,096 are made
  CHECK(cluster.times_scored(5'100) <= 400);     // by these, 100 others are better
}

TEST_CASE("kind_cache: where few nodes have enough CPU or memory, only these are scored") {
  using cache_type = detail::kind_cache<counted_gradient>;
  const task_mix mix({{{.cpu_milli = 5'000, .gpus = 1, .gpu_milli = 500}, 1}});
  for (const bool cpu_is_scarce : {true, false}) {
    CAPTURE(cpu_is_scarce);
    node_table nodes;
    const auto add = [&](std::uint32_t scarce) {
      nodes.add({cpu_is_scarce ? resources{scarce, 64'000} : resources{64'000, scarce}, 1, 0});
    };
    for (std::uint32_t n = 0; n < 1'970; ++n) add(4'100 + n % 1'700);
    for (std::uint32_t n = 0; n < 30; ++n) add(5'900 + 10 * n);
    cache_type cache(nodes, counted_gradient(fragmentation(mix)));
    for (std::uint32_t i = 0; i < cache_type::kinds_before_bounds; ++i)  // they fit nowhere
      CHECK(!cache.place(nodes, {.cpu_milli = 100'000 + i}, nullptr));
    const auto times_scored = [&](std::uint32_t cpu, const summary_bitset* allowed) {
      counted_gradient::scored = 0;
      const task_request task{.cpu_milli = cpu, .memory_mib = cpu, .gpus = 1, .gpu_milli = 500};
      node_table rest = nodes;
      for (const node_id n : rest.ids())
        rest[n].healthy = allowed == nullptr || allowed->test(n.value);
      CHECK(cache.place(nodes, task, allowed) == apiary_test::naive_fgd(mix, rest, task));
      return counted_gradient::scored;
    };
    CHECK(times_scored(6'000, nullptr) <= 2'100);  // the bounds of 4,096 are made
    for (std::uint32_t cpu = 5'890; cpu < 6'140; cpu += 4) CHECK(times_scored(cpu, nullptr) <= 64);
    summary_bitset odd(2'000);
    for (std::uint32_t n = 1; n < 2'000; n += 2) odd.set(n);
    for (std::uint32_t cpu = 5'891; cpu < 6'140; cpu += 8) CHECK(times_scored(cpu, &odd) <= 64);
    for (std::uint32_t cpu = 4'097; cpu < 6'300; cpu += 61) (void)times_scored(cpu, nullptr);
  }
}

TEST_CASE("kind_cache: on a full cluster decisions for new kinds are those of scoring every node") {
  const std::uint32_t events = apiary_test::scaled(3'000U);
  for (std::uint32_t seed = 0; seed < 2; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    auto scheduler = fgd::create(apiary_test::random_nodes(random, 300),
                                 fragmentation_gradient(fragmentation(mix)))
                         .value();
    std::vector<job_id> running;
    for (std::uint32_t i = 0; i < events + 900; ++i) {
      task_request task = apiary_test::random_task(random, i);
      task.cpu_milli = random.uniform(40'000);
      task.memory_mib = seed == 0 ? 0 : 1'024 * random.uniform(48);
      if (seed == 0 && random.uniform(2) == 0)
        task = {.job = task.job, .cpu_milli = task.cpu_milli};
      const task_plan plan = scheduler.propose(task).value();
      if (i >= 900) {
        CAPTURE(i);
        const std::optional<placement> expected =
            apiary_test::naive_fgd(mix, scheduler.nodes(), task);
        REQUIRE((plan.result == plan_result::bind) == expected.has_value());
        if (expected) REQUIRE(plan.where == *expected);
      }
      if (plan.result == plan_result::bind) {
        REQUIRE(scheduler.commit(task, plan).ok());
        running.push_back(task.job);
      }
      if (i % 8 != 0 || running.empty()) continue;
      std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))],
                running.back());
      REQUIRE(scheduler.finish(running.back()).ok());
      running.pop_back();
    }
  }
}

TEST_CASE("kind_cache: for a rare kind only the nodes are scored that the host suggests, if few") {
  rng random(1);
  const node_table nodes = apiary_test::random_nodes(random, 2'000);
  const task_mix mix = apiary_test::random_mix(random);
  using cache_type = detail::kind_cache<counted_gradient>;
  cache_type cache(nodes, counted_gradient(fragmentation(mix)));
  for (std::uint32_t cpu = 0; cpu < cache_type::kinds_before_bounds; ++cpu)
    CHECK(cache.place(nodes, {.cpu_milli = cpu, .gpus = 1, .gpu_milli = 500}, nullptr));
  const auto times_scored = [&](std::uint32_t cpu, std::uint32_t suggested) {
    summary_bitset allowed(nodes.size());
    while (allowed.count() < suggested) allowed.set(random.uniform(nodes.size()));
    node_table rest = nodes;
    for (const node_id n : rest.ids()) rest[n].healthy = allowed.test(n.value);
    const task_request task{.cpu_milli = cpu, .gpus = 1, .gpu_milli = 500};
    counted_gradient::scored = 0;
    const std::optional<placement> where = cache.place(nodes, task, &allowed);
    const int scored = counted_gradient::scored;
    CHECK(where == apiary_test::naive_fgd(mix, rest, task));
    return scored;
  };
  for (std::uint32_t cpu = 5'000; cpu < 5'050; ++cpu) CHECK(times_scored(cpu, 5) <= 5);
  CHECK(times_scored(4'096, 5) <= 5);  // its number is round
  CHECK(times_scored(5'050, 0) == 0);
  CHECK(times_scored(5'051, cache_type::max_scored) <= 64);
  CHECK(times_scored(100, 5) == 0);  // it has scores of its own, and nothing has changed
}

}  // namespace
