// apiary/tests/fgd/price_score_test.cpp - the score by prices against a scan, and wrong arguments.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/kind_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/price_score.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

synthetic_trace small_trace(std::uint64_t seed) { return openb_like({.seed = seed, .nodes = 60}); }

price_score score_for(const synthetic_trace& trace, const price_options& options = {}) {
  const task_mix mix = task_mix::from_history(workload::kinds(trace.work.tasks), 100);
  return price_score::create(trace.nodes.nodes, mix, options).value();
}

// The best node by a scan of all of them.
std::optional<placement> scan(const node_table& nodes, price_score& score,
                              const task_request& task) {
  const price_score::prepared kind = score.prepare(nodes, task);
  std::optional<node_id> best;
  std::uint32_t most = 0;
  for (const node_id n : nodes.ids()) {
    if (!nodes[n].fits(task)) continue;
    const std::uint32_t here = score.score(nodes, n, task, kind);
    if (best && here <= most) continue;
    best = n;
    most = here;
  }
  if (!best) return std::nullopt;
  return placement{*best, score.gpu_mask(nodes, *best, task)};
}

// A task of the trace that requests up to half of its CPU less.
task_request task_of_a_rare_kind(const synthetic_trace& trace, rng& random) {
  const auto tasks = static_cast<std::uint32_t>(trace.work.tasks.size());
  task_request task = trace.work.tasks[random.uniform(tasks)].request;
  task.cpu_milli -= random.uniform(task.cpu_milli / 2 + 1);
  return task;
}

TEST_CASE("decisions are those of a scan with a score computed afresh") {
  const std::uint32_t runs = apiary_test::scaled(8U);
  for (std::uint32_t seed = 0; seed < runs; ++seed) {
    const synthetic_trace trace = small_trace(seed + 1);
    const price_score fresh = score_for(trace);
    auto scheduler =
        gpu_sharing_scheduler<price_score>::create(trace.nodes.nodes, score_for(trace)).value();
    rng random(seed);
    std::vector<job_id> running;
    for (std::uint32_t i = 0; i < 400; ++i) {
      CAPTURE(i);
      task_request task =
          trace.work.tasks[random.uniform(static_cast<std::uint32_t>(trace.work.tasks.size()))]
              .request;
      task.job = job_id(i);
      price_score naive = fresh;
      for (const node_id n : scheduler.nodes().ids()) naive.update(scheduler.nodes(), n);
      const task_plan plan = scheduler.propose(task).value();
      const std::optional<placement> expected = scan(scheduler.nodes(), naive, task);
      REQUIRE((plan.result == plan_result::bind) == expected.has_value());
      if (expected) {
        REQUIRE(plan.where == *expected);
        REQUIRE(scheduler.commit(task, plan).ok());
        running.push_back(task.job);
      }
      while (running.size() > 150 || (!running.empty() && random.uniform(3) == 0)) {
        std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))],
                  running.back());
        REQUIRE(scheduler.finish(running.back()).ok());
        running.pop_back();
      }
    }
  }
}

TEST_CASE("with thousands of kinds decisions by prices are those of a scan") {
  const std::uint32_t runs = apiary_test::scaled(6U);
  for (std::uint32_t seed = 0; seed < runs; ++seed) {
    const synthetic_trace trace = small_trace(seed + 1);
    price_score naive = score_for(trace, {.samples = 1 + seed % 2});
    using cache_type = detail::kind_scores<price_score>;
    node_table nodes = trace.nodes.nodes;
    for (const node_id n : nodes.ids()) naive.update(nodes, n);
    cache_type cache(nodes, naive);
    rng random(seed);
    std::vector<std::pair<task_request, placement>> running;
    std::uint32_t placed = 0;
    for (std::uint32_t i = 0; i < cache_type::max_kinds + 500; ++i) {
      CAPTURE(i);
      task_request task =
          trace.work.tasks[random.uniform(static_cast<std::uint32_t>(trace.work.tasks.size()))]
              .request;
      task.cpu_milli -= random.uniform(task.cpu_milli / 2 + 1);
      const std::optional<placement> where = cache.place(nodes, task, nullptr);
      REQUIRE(where == scan(nodes, naive, task));
      const auto change = [&](node_id n) {
        naive.update(nodes, n);
        cache.update(nodes, n);
      };
      if (where) {
        ++placed;
        nodes.place(task, *where);
        change(where->node);
        running.push_back({task, *where});
      }
      while (running.size() > 200 || (!running.empty() && random.uniform(3) == 0)) {
        std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))],
                  running.back());
        nodes.remove(running.back().first, running.back().second);
        change(running.back().second.node);
        running.pop_back();
      }
    }
    CHECK(placed > 500);
  }
}

TEST_CASE("on a full cluster of thousands of nodes decisions for rare kinds are those of a scan") {
  const synthetic_trace trace = openb_like({.seed = 8, .nodes = 4'200});
  price_score naive = score_for(trace, {.samples = 1});
  node_table nodes = trace.nodes.nodes;
  rng random(8);
  const auto arrive = [&] { return task_of_a_rare_kind(trace, random); };
  std::vector<std::pair<task_request, placement>> running;
  for (const node_id n : nodes.ids()) {
    for (int failed = 0; failed < 10;) {
      const task_request task = arrive();
      if (!nodes[n].fits(task)) {
        ++failed;
        continue;
      }
      std::uint32_t gpus = 0;
      if (task.wants_whole_gpus()) gpus = nodes[n].first_free_gpus(task.gpus);
      if (task.wants_part_of_gpu()) gpus = nodes[n].tightest_gpu(task.gpu_milli);
      nodes.place(task, {n, gpus});
      running.push_back({task, {n, gpus}});
    }
    naive.update(nodes, n);
  }
  detail::kind_scores<price_score> cache(nodes, naive);
  const auto change = [&](node_id n) {
    naive.update(nodes, n);
    cache.update(nodes, n);
  };
  std::uint32_t placed = 0;
  const std::uint32_t tasks = 200 + apiary_test::scaled(1'000U);
  for (std::uint32_t i = 0; i < tasks; ++i) {
    CAPTURE(i);
    const task_request task = arrive();
    const std::optional<placement> where = cache.place(nodes, task, nullptr);
    REQUIRE(where == scan(nodes, naive, task));
    if (where) {
      ++placed;
      nodes.place(task, *where);
      change(where->node);
      running.push_back({task, *where});
    }
    if (i % 2 == 0) continue;
    std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))], running.back());
    nodes.remove(running.back().first, running.back().second);
    change(running.back().second.node);
    running.pop_back();
  }
  CHECK(placed > tasks / 4);
  CHECK(placed < tasks);
}

TEST_CASE("a task with a fraction of a GPU gets the GPU that costs least") {
  const synthetic_trace trace = small_trace(3);
  price_score score = score_for(trace);
  node_table nodes;
  const node_id n = nodes.add({{96'000, 1 << 20}, 8, 0});
  rng random(5);
  for (std::uint32_t i = 0; i < apiary_test::scaled(2000U); ++i) {
    nodes[n].left.cpu_milli = 1000 * (20 + random.uniform(76));
    for (std::uint32_t g = 0; g < 8; ++g)
      nodes[n].gpu_left[g] =
          static_cast<milli_gpu>(random.uniform(3) == 0 ? 1000 : 10 * random.uniform(101));
    task_request task{.cpu_milli = 1000 * random.uniform(20), .gpus = 1};
    task.gpu_milli = static_cast<milli_gpu>(10 + 10 * random.uniform(99));
    if (!nodes[n].fits(task)) continue;
    score.update(nodes, n);
    const auto cost_on = [&](std::uint32_t g) {
      node_state after = nodes[n];
      after.left -= task.host();
      after.gpu_left[g] = static_cast<milli_gpu>(after.gpu_left[g] - task.gpu_milli);
      return score.cost(nodes[n], after);
    };
    const std::uint32_t mask = score.gpu_mask(nodes, n, task);
    std::uint32_t chosen = 0;
    while (mask >> chosen != 1) ++chosen;
    for (std::uint32_t g = 0; g < 8; ++g) {
      if (nodes[n].gpu_left[g] < task.gpu_milli) continue;
      REQUIRE(cost_on(chosen) <= cost_on(g) + 1);  // a division rounds
    }
  }
}

TEST_CASE("prices place more than FGD on a full cluster") {
  const synthetic_trace trace =
      openb_like({.seed = 2, .nodes = apiary_test::is_quick() ? 200U : 600U});
  const auto used = [&](auto scheduler) {
    const decisions answers = replay(scheduler, trace.work).value();
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < answers.size(); ++i)
      if (answers[i]) sum += trace.work.tasks[trace.work.arrivals[i]].request.total_gpu_milli();
    return sum;
  };
  const std::vector<task_kind> history = workload::kinds(trace.work.tasks);
  const node_table& nodes = trace.nodes.nodes;
  CHECK(used(gpu_sharing_scheduler<price_score>::create(nodes, score_for(trace)).value()) >
        used(fgd::create(nodes,
                         fragmentation_gradient(fragmentation(task_mix::from_history(history))))
                 .value()));
}

TEST_CASE("a gang is placed at least cost by prices") {
  const synthetic_trace trace = small_trace(1);
  auto scheduler =
      gang_sharing_scheduler<price_score>::create(trace.nodes.nodes, score_for(trace)).value();
  topology_constraints gang;
  gang.groups.push_back({.tasks = 3, .gpus = 2});
  const auto plan = scheduler.propose(gang);
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::bind);
  CHECK(plan->placements.size() == 3);
}

TEST_CASE("extreme mixes and clusters get prices") {
  constexpr std::uint32_t cpus[] = {0, 1, 1000, 96'000, 10'000'000, UINT32_MAX};
  constexpr std::uint32_t gpus[] = {0, 1, 1, 2, 8, 16, 17, 4'000'000'000};
  constexpr std::uint32_t weights[] = {1, 1, 100, 100'000'000};
  const std::uint32_t mixes = apiary_test::scaled(60U);
  for (std::uint32_t seed = 0; seed < mixes; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    node_table nodes;
    for (std::uint32_t n = 0; n < 1 + seed % 20; ++n)
      nodes.add({{cpus[random.uniform(6)], 0},
                 1 + random.uniform(16),
                 static_cast<gpu_model>(random.uniform(3))});
    std::vector<std::pair<task_kind, std::uint32_t>> kinds = {
        {{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 300}, 1}};
    for (std::uint32_t m = 0; m < seed % 30; ++m) {
      task_kind kind{.cpu_milli = cpus[random.uniform(6)], .gpus = gpus[random.uniform(8)]};
      kind.gpu_milli = static_cast<milli_gpu>(kind.gpus == 1 ? 1 + random.uniform(1000) : 1000);
      if (random.uniform(3) == 0) kind.models = 1U << random.uniform(4);
      kinds.push_back({kind, weights[random.uniform(4)]});
    }
    const std::uint32_t load = 1 + random.uniform(10'000);
    const auto score =
        price_score::create(nodes, task_mix(kinds),
                            {.samples = 1, .least_load_percent = load, .most_load_percent = load});
    REQUIRE_MESSAGE(score.ok(), std::string(score.status().message()));
    for (const node_id n : nodes.ids()) {
      node_state full = nodes[n];
      full.left = {};
      full.gpu_left = {};
      // At most 0.05 GPUs for each of 10,000 cores, and the GPUs.
      const std::int64_t cost = score->cost(nodes[n], full);
      REQUIRE(cost > -17'000'000);
      REQUIRE(cost < 600'000'000);
    }
  }
}

TEST_CASE(
    "of nodes that join after the prices were made, none costs more for its id than the last") {
  const synthetic_trace trace = small_trace(1);
  price_score score = score_for(trace);
  node_table nodes = trace.nodes.nodes;
  std::uint32_t first = 0;
  while (nodes.shape(node_id(first)).gpus == 0) ++first;
  const node_shape shape = nodes.shape(node_id(first));
  while (nodes.size() < 20'000) nodes.add(shape);
  const task_request task{.cpu_milli = 1000, .gpus = 1, .gpu_milli = whole_gpu};
  const price_score::prepared kind = score.prepare(nodes, task);
  const auto score_of = [&](std::uint32_t n) {
    score.update(nodes, node_id(n));
    return score.score(nodes, node_id(n), task, kind);
  };
  const std::uint32_t last = score_of(trace.nodes.nodes.size());
  CHECK(last > 0);
  CHECK(last < score_of(first));
  CHECK(score_of(19'999) == last);
}

TEST_CASE("wrong arguments of prices are errors") {
  const synthetic_trace trace = small_trace(1);
  const node_table& nodes = trace.nodes.nodes;
  const task_mix mix = task_mix::from_history(workload::kinds(trace.work.tasks), 100);
  const auto refused = [&](const node_table& n, const task_mix& m, const price_options& o,
                           const std::string& why) {
    const auto score = price_score::create(n, m, o);
    CHECK(score.status() == absl::InvalidArgumentError(why));
  };
  refused(nodes, task_mix(), {}, "prices need a mix with tasks that request a GPU");
  refused(nodes, task_mix({{{.cpu_milli = 1000}, 5}}), {},
          "prices need a mix with tasks that request a GPU");
  node_table no_gpus;
  refused(no_gpus, mix, {}, "prices need a cluster with a GPU");
  no_gpus.add({{1000, 1000}, 0, 0});
  refused(no_gpus, mix, {}, "prices need a cluster with a GPU");
  refused(nodes, mix, {.samples = 0}, "prices from 0 samples; there can be 1 to 16");
  refused(nodes, mix, {.samples = 17}, "prices from 17 samples; there can be 1 to 16");
  refused(nodes, mix, {.least_load_percent = 0},
          "prices for loads of 0 to 140 %; loads can be 1 to 10,000 %");
  refused(nodes, mix, {.least_load_percent = 100, .most_load_percent = 90},
          "prices for loads of 100 to 90 %; loads can be 1 to 10,000 %");
  refused(nodes, mix, {.order_weight = 1001},
          "a weight of 1001 thousandths of a GPU; the limit is 1,000");
  CHECK(price_score::create(nodes, mix, {.samples = 1}).ok());
}

TEST_CASE("a learner makes prices of the tasks that have arrived, less and less often") {
  node_table nodes;
  for (int n = 0; n < 6; ++n) nodes.add({{.cpu_milli = 32'000, .memory_mib = 1}, 4});
  const task_request one{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 300};
  const task_request two{.cpu_milli = 9000, .gpus = 2, .gpu_milli = whole_gpu};
  const price_options options{.samples = 1, .seed = 5};
  price_learner learner(64, options);
  CHECK(learner.first(nodes).ok());
  recent_mix recent(64);
  std::vector<std::uint32_t> made;
  std::uint32_t right = 0;
  for (std::uint32_t i = 1; i <= 20'000; ++i) {
    const task_request& task = i % 3 == 0 ? two : one;
    recent.add({task.cpu_milli, task.gpus, task.gpu_milli, task.models});
    const std::optional<price_score> prices = learner.arrive(nodes, task);
    if (!prices) continue;
    made.push_back(i);
    // The score is that of the mix.
    const auto expected = price_score::create(nodes, recent.mix(), options);
    REQUIRE(expected.ok());
    node_state after = nodes[node_id(0)];
    after.left.cpu_milli -= two.cpu_milli;
    after.gpu_left[0] = after.gpu_left[1] = 0;
    const std::int64_t cost = prices->cost(nodes[node_id(0)], after);
    right += cost == expected->cost(nodes[node_id(0)], after) ? 1U : 0U;
  }
  CHECK(right == made.size());
  const std::vector<std::uint32_t> times{32,   64,   128,  256,  512,  1024, 2048,
                                         3072, 4096, 5120, 6144, 7168, 8192};
  REQUIRE(made.size() == 6 + 15 + 3);
  for (std::size_t i = 0; i < times.size(); ++i) CHECK(made[i] == times[i]);
  CHECK(made[made.size() - 4] == 16'384);
  CHECK(made[made.size() - 3] == 16'384 + 1024);
  CHECK(made.back() == 16'384 + 1024 + 1088 + 1156);
}

TEST_CASE("a learner makes no prices before a task has requested a GPU, and none without GPUs") {
  node_table nodes;
  nodes.add({{.cpu_milli = 32'000, .memory_mib = 1}, 4});
  price_learner learner;
  for (int i = 0; i < 100; ++i) CHECK(!learner.arrive(nodes, {.cpu_milli = 1000}));
  const task_request one{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 300};
  int made = 0;
  for (int i = 0; i < 100; ++i) made += learner.arrive(nodes, one) ? 1 : 0;
  CHECK(made == 1);  // after 128 arrivals
  node_table without;
  without.add({{.cpu_milli = 32'000, .memory_mib = 1}, 0});
  CHECK(learner.first(without).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a learner ignores tasks that are not valid") {
  node_table nodes;
  nodes.add({{.cpu_milli = 32'000, .memory_mib = 1}, 4});
  price_learner learner;
  const task_request one{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 300};
  for (const task_request& wrong :
       {task_request{.gpus = 2, .gpu_milli = 300}, task_request{.gpus = 1, .gpu_milli = 0},
        task_request{.gpus = 1, .gpu_milli = 1001}}) {
    REQUIRE(!wrong.valid());
    for (int i = 0; i < 40; ++i) CHECK(!learner.arrive(nodes, wrong));
  }
  for (int i = 1; i <= 64; ++i)
    CHECK(learner.arrive(nodes, one).has_value() == (i == 32 || i == 64));
}

}  // namespace
