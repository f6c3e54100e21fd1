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
