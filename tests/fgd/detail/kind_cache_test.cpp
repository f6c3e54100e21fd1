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

// Tasks that arrive in a random cluster and end. Decisions are compared with scoring every node.
struct random_play {
  rng random;
  task_mix mix = apiary_test::random_mix(random);
  fgd scheduler;
  std::vector<job_id> running{};

  random_play(std::uint32_t seed, std::uint32_t nodes)
      : random(seed),
        scheduler(fgd::create(apiary_test::random_nodes(random, nodes),
                              fragmentation_gradient(fragmentation(mix)))
                      .value()) {}
  // The plan for the task is that of scoring every node.
  task_plan expect_naive(const task_request& task) {
    const task_plan plan = scheduler.propose(task).value();
    const std::optional<placement> expected = apiary_test::naive_fgd(mix, scheduler.nodes(), task);
    REQUIRE((plan.result == plan_result::bind) == expected.has_value());
    if (expected) REQUIRE(plan.where == *expected);
    return plan;
  }
  void start(const task_request& task, const task_plan& plan) {
    if (plan.result != plan_result::bind) return;
    REQUIRE(scheduler.commit(task, plan).ok());
    running.push_back(task.job);
  }
  void end_one() {
    if (running.empty()) return;
    std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))], running.back());
    REQUIRE(scheduler.finish(running.back()).ok());
    running.pop_back();
  }
};

TEST_CASE("kind_cache: with thousands of kinds every decision is that of scoring every node") {
  const std::uint32_t events = apiary_test::scaled(20'000U);
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    random_play play(seed, 70);
    rng& random = play.random;
    std::uint32_t suggested_only = 0;
    for (std::uint32_t i = 0; i < events + 600; ++i) {
      CAPTURE(i);
      task_request task = apiary_test::random_task(random, i);
      task.cpu_milli = random.uniform(12'000);
      if (task.gpus == 1 && task.gpu_milli < whole_gpu)
        task.gpu_milli = random.uniform(2) == 0 ? 250 : 600;
      const task_plan plan = play.expect_naive(task);
      if (plan.result == plan_result::bind) {
        // Without the best node the second best.
        summary_bitset others(play.scheduler.nodes().size(), true);
        others.reset(plan.where.node.value);
        node_table rest = play.scheduler.nodes();
        rest[plan.where.node].healthy = false;
        const task_plan second = play.scheduler.propose(task, others).value();
        const std::optional<placement> next = apiary_test::naive_fgd(play.mix, rest, task);
        REQUIRE((second.result == plan_result::bind) == next.has_value());
        if (next) REQUIRE(second.where == *next);
        if (!next) REQUIRE(second.reason == wait_reason::not_suggested);
        suggested_only += next ? 0U : 1U;
        // On a few nodes only.
        summary_bitset few(play.scheduler.nodes().size());
        for (std::uint32_t n = random.uniform(8); n > 0; --n) few.set(random.uniform(70));
        for (const node_id n : rest.ids())
          rest[n].healthy = play.scheduler.nodes()[n].healthy && few.test(n.value);
        const task_plan third = play.scheduler.propose(task, few).value();
        const std::optional<placement> best = apiary_test::naive_fgd(play.mix, rest, task);
        REQUIRE((third.result == plan_result::bind) == best.has_value());
        if (best) REQUIRE(third.where == *best);
        play.start(task, plan);
      }
      while (!play.running.empty() && random.uniform(9) < (play.running.size() > 200 ? 8 : 3))
        play.end_one();
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
    random_play play(seed, 300);
    for (std::uint32_t i = 0; i < events + 900; ++i) {
      CAPTURE(i);
      task_request task = apiary_test::random_task(play.random, i);
      task.cpu_milli = play.random.uniform(40'000);
      task.memory_mib = seed == 0 ? 0 : 1'024 * play.random.uniform(48);
      if (seed == 0 && play.random.uniform(2) == 0)
        task = {.job = task.job, .cpu_milli = task.cpu_milli};
      play.start(task, i < 900 ? play.scheduler.propose(task).value() : play.expect_naive(task));
      if (i % 8 == 0) play.end_one();
    }
  }
}

TEST_CASE(
    "kind_cache: on a full cluster a kind is not scored if less than it asks for fits nowhere") {
  rng random(2);
  node_table nodes = apiary_test::random_nodes(random, 1'200);
  const task_mix mix = apiary_test::random_mix(random);
  detail::kind_cache<counted_gradient> cache(nodes, counted_gradient(fragmentation(mix)));
  const auto arrive = [&](bool starts) {
    task_request task = apiary_test::random_task(random, 0);
    task.cpu_milli += random.uniform(1'000);
    const std::optional<placement> where = cache.place(nodes, task, nullptr);
    bool fits = false;
    for (const node_id n : nodes.ids()) fits = fits || nodes[n].fits(task);
    REQUIRE(where.has_value() == fits);
    if (where && starts) {
      nodes.place(task, *where);
      cache.update(nodes, where->node);
    }
    return fits;
  };
  for (std::uint32_t waiting = 0; waiting < 300;) waiting = arrive(true) ? 0 : waiting + 1;
  for (int i = 0; i < 300; ++i) (void)arrive(false);
  counted_gradient::scored = 0;
  std::uint32_t fitted = 0;
  for (int i = 0; i < 3'000; ++i) fitted += arrive(false) ? 1U : 0U;
  CHECK(fitted < 100);
  CHECK(counted_gradient::scored <= 200 * static_cast<int>(fitted) + 300);
  // A task ends: those that fit there are placed, and the others are still not scored.
  nodes[node_id(7)] = {};
  nodes[node_id(7)].left = {.cpu_milli = 9'000, .memory_mib = 9'000};
  cache.update(nodes, node_id(7));
  CHECK(cache.place(nodes, {.cpu_milli = 8'999, .memory_mib = 8'999}, nullptr));
  counted_gradient::scored = 0;
  for (std::uint32_t cpu = 9'001; cpu < 9'101; ++cpu)
    CHECK(!cache.place(nodes, {.cpu_milli = cpu, .memory_mib = 8'999}, nullptr));
  CHECK(counted_gradient::scored == 0);
}

TEST_CASE("kind_cache: for a task that bounds do not decide, few nodes are scored in vain") {
  poor_nodes cluster(300, 500);
  // All nodes are scored as bounds of 4,096, then some for the task, then all for it.
  const int by_bounds = poor_nodes::cache_type::max_scored;
  CHECK(cluster.times_scored(5'999) <= 1'000 + by_bounds);
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
