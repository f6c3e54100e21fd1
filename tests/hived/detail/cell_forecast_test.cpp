// apiary/tests/hived/detail/cell_forecast_test.cpp - what fits when gangs end, against a scheduler.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/detail/cell_forecast.h>
#include <apiary/hived/hived.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

struct forecast_gang {
  job_id job{};
  std::int32_t priority = 0;
  forecast_moment ends{};
  gang_nodes nodes{};
};

// Gangs of tenant 0 on a random cluster, with the forecast of their ends.
struct forecast_scene {
  hived scheduler;
  cell_forecast forecast;
  std::uint32_t size = ~0U;  // leaves of the smallest node
  std::vector<forecast_gang> running{};
  std::uint32_t fresh = 0;

  explicit forecast_scene(rng& random)
      : scheduler(hived::create(apiary_test::random_cluster(random)).value()),
        forecast(scheduler.cells(), tenant_id(0)) {
    for (const chain_layout& c : scheduler.layout().chains)
      size = std::min(size, c.tree.leaves_per_cell(c.node_level));
  }
  [[nodiscard]] std::vector<task_group> groups_of(std::uint32_t gpus) const {
    std::vector<task_group> groups;
    if (gpus >= size) groups.push_back({gpus / size, size});
    if (gpus % size != 0) groups.push_back({1, gpus % size});
    return groups;
  }
  // A gang starts if it fits without suspending another one.
  void try_start(rng& random, std::uint32_t most) {
    const gang_request r{.job = job_id(fresh),
                         .tenant = tenant_id(0),
                         .priority = static_cast<std::int32_t>(random.uniform(3)),
                         .groups = groups_of(1 + random.uniform(most))};
    const auto plan = scheduler.propose(r);
    if (!plan.ok() || plan->result != plan_result::bind) return;
    REQUIRE(scheduler.commit(*plan).ok());
    const time_ms at = random.uniform(4) == 0 ? max_time : time_ms{random.uniform(12)};
    forecast_gang g{r.job, r.priority, forecast_moment::end_of(at, fresh++),
                    gang_nodes::of(scheduler.cells(), *scheduler.find(r.job))};
    std::uint64_t leaves = 0;
    for (const gang_nodes::use& u : g.nodes.uses) leaves += u.leaves;
    REQUIRE(leaves == scheduler.find(r.job)->leaves.size());
    forecast.start(g.job, g.priority, g.ends, g.nodes);
    running.push_back(g);
  }
  void stop(std::size_t i) {
    REQUIRE(scheduler.finish(running[i].job).ok());
    forecast.stop(running[i].job, running[i].ends, running[i].nodes);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
  }
  [[nodiscard]] static bool binds(hived& then, const std::vector<task_group>& groups) {
    const auto plan = then.propose({.job = job_id(1000), .tenant = tenant_id(0), .groups = groups});
    return plan.ok() && plan->result == plan_result::bind;
  }
  // The first moment at which the gang binds, asked after each end.
  [[nodiscard]] std::optional<forecast_moment> first_bind(std::int32_t priority,
                                                          const std::vector<task_group>& groups) {
    hived then = scheduler;
    std::sort(running.begin(), running.end(),
              [](const forecast_gang& a, const forecast_gang& b) { return a.ends < b.ends; });
    for (const forecast_gang& g : running) {
      if (g.priority < priority) REQUIRE(then.finish(g.job).ok());
    }
    if (binds(then, groups)) return forecast_moment::now();
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (running[i].priority >= priority) REQUIRE(then.finish(running[i].job).ok());
      if (i + 1 < running.size() && running[i + 1].ends == running[i].ends) continue;
      if (binds(then, groups)) return running[i].ends;
    }
    return std::nullopt;
  }
};

// Calls f(random, scene, most) for many clusters; gangs are to start with 1, ..., most GPUs.
template <class F>
void for_scenes(const F& f) {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    forecast_scene scene(random);
    f(random, scene, 1 + random.uniform(3 * scene.size));
  }
}

}  // namespace

TEST_CASE(
    "cell_forecast: the leaves of a gang on each node are the same in any order of its leaves") {
  std::uint64_t mixed = 0;
  for_scenes([&](rng& random, forecast_scene& scene, std::uint32_t most) {
    for (std::uint32_t i = 0; i < 6; ++i) scene.try_start(random, most);
    for (const forecast_gang& g : scene.running) {
      gang_record gang = *scene.scheduler.find(g.job);
      for (std::size_t i = gang.leaves.size(); i > 1; --i)
        std::swap(gang.leaves[i - 1], gang.leaves[random.uniform(static_cast<std::uint32_t>(i))]);
      REQUIRE(gang_nodes::of(scene.scheduler.cells(), gang).uses == g.nodes.uses);
      mixed += g.nodes.uses.size() > 1 && gang.leaves.size() > 2 ? 1U : 0U;
    }
  });
  CHECK(mixed > 0);
}

TEST_CASE("cell_forecast: a gang fits from the moment on at which a scheduler binds it") {
  std::uint64_t now = 0;
  std::uint64_t later = 0;
  std::uint64_t never = 0;
  for_scenes([&](rng& random, forecast_scene& scene, std::uint32_t most) {
    for (std::uint32_t step = 0; step < 40; ++step) {
      CAPTURE(step);
      if (random.uniform(4) == 0 && !scene.running.empty()) {
        scene.stop(random.uniform(static_cast<std::uint32_t>(scene.running.size())));
      } else {
        scene.try_start(random, most);
      }
      if (random.uniform(3) != 0) continue;
      const auto priority = static_cast<std::int32_t>(random.uniform(4));
      const std::vector<task_group> groups = scene.groups_of(1 + random.uniform(4 * scene.size));
      const auto first = scene.forecast.first_fit(cell_forecast::gang(priority, groups));
      REQUIRE(first == scene.first_bind(priority, groups));
      ++(!first ? never : *first == forecast_moment::now() ? now : later);
    }
  });
  CHECK(now > 0);
  CHECK(later > 0);
  CHECK(never > 0);
}

TEST_CASE("cell_forecast: a gang fits beside another one if a scheduler binds both") {
  std::uint64_t fits = 0;
  std::uint64_t fits_not = 0;
  for_scenes([&](rng& random, forecast_scene& scene, std::uint32_t most) {
    for (std::uint32_t i = 0; i < 20; ++i) scene.try_start(random, most);
    for (std::uint32_t times = 0; times < 10; ++times) {
      const gang_request other{
          .job = job_id(999), .tenant = tenant_id(0), .groups = scene.groups_of(1 + times)};
      const auto plan = scene.scheduler.propose(other);
      if (!plan.ok() || plan->result != plan_result::bind) break;
      hived then = scene.scheduler;
      REQUIRE(then.commit(*plan).ok());
      const gang_nodes beside = gang_nodes::of(then.cells(), *then.find(other.job));
      const auto moment = forecast_moment::end_of(random.uniform(12), 0);
      for (const forecast_gang& g : scene.running) {
        if (g.ends <= moment) REQUIRE(then.finish(g.job).ok());
      }
      const std::vector<task_group> groups = scene.groups_of(1 + random.uniform(4 * scene.size));
      const bool binds = forecast_scene::binds(then, groups);
      REQUIRE(scene.forecast.fits_beside(cell_forecast::gang(0, groups), moment, beside) == binds);
      ++(binds ? fits : fits_not);
    }
  });
  CHECK(fits > 0);
  CHECK(fits_not > 0);
}

TEST_CASE("cell_forecast: more kinds of questions than trees are kept are answered alike") {
  rng random(1);
  forecast_scene scene(random);
  for (std::uint32_t i = 0; i < 20; ++i) scene.try_start(random, 4);
  for (std::int32_t priority = 0; priority < 200; ++priority) {
    const std::vector<task_group> groups =
        scene.groups_of(1 + static_cast<std::uint32_t>(priority) % scene.size);
    const std::int32_t asked = priority % 67;
    REQUIRE(scene.forecast.first_fit(cell_forecast::gang(asked, groups)) ==
            scene.first_bind(asked, groups));
  }
}

TEST_CASE("cell_forecast: of more than 32 kinds of questions, the trees of the last 32 are kept") {
  rng random(1);
  forecast_scene scene(random);
  std::vector<std::int32_t> last;  // the kinds that were asked last; the last one is at the end
  std::uint64_t misses = 0;
  std::uint64_t trees = 0;  // of one kind: one for each chain
  for (std::uint32_t question = 0; question < 2000; ++question) {
    // Ten frequent kinds, and many rare ones.
    const auto priority =
        static_cast<std::int32_t>(random.uniform(3) > 0 ? random.uniform(10) : random.uniform(40));
    const std::vector<task_group> groups = {{1, 1}};
    REQUIRE(scene.forecast.first_fit(cell_forecast::gang(priority, groups)).has_value());
    const auto at = std::find(last.begin(), last.end(), priority);
    misses += at == last.end() ? 1U : 0U;
    if (at != last.end()) {
      last.erase(at);
    } else if (last.size() == 32) {
      last.erase(last.begin());
    }
    last.push_back(priority);
    if (question == 0) trees = scene.forecast.trees_made();
    REQUIRE(scene.forecast.trees_made() == misses * trees);
  }
  CHECK(trees > 0);
  CHECK(misses > 100);
  CHECK(misses < 400);
}
