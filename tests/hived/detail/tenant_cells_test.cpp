// apiary/tests/hived/detail/tenant_cells_test.cpp - what fits when gangs end, against a scheduler.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/scale.h"
#include <apiary/container/weighted_tree.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/tenant_cells.h>
#include <apiary/hived/hived.h>
#include <apiary/queue/forecast.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// A gang that runs; a record for placer_forecast.
struct forecast_gang {
  tenant_cells::request request{};
  tenant_cells::placement_type where{};
  time_ms ends = 0;
  bool still_runs = false;
};

// Gangs of tenant 0 on a random cluster, with the forecast of their ends.
struct forecast_scene {
  static constexpr time_ms now = std::numeric_limits<time_ms>::min();
  hived scheduler;
  tenant_cells cells;
  placer_forecast<tenant_cells> forecast{};
  weighted_tree ends{};
  std::uint32_t size = ~0U;  // leaves of the smallest node
  std::map<std::uint32_t, forecast_gang> running{};
  std::uint32_t fresh = 0;

  explicit forecast_scene(rng& random)
      : scheduler(hived::create(apiary_test::random_cluster(random)).value()),
        cells(scheduler.cells(), tenant_id(0)) {
    for (const chain_layout& c : scheduler.layout().chains)
      size = std::min(size, c.tree.leaves_per_cell(c.node_level));
  }
  [[nodiscard]] std::vector<task_group> groups_of(std::uint32_t gpus) const {
    std::vector<task_group> groups;
    if (gpus >= size) groups.push_back({gpus / size, size});
    if (gpus % size != 0) groups.push_back({1, gpus % size});
    return groups;
  }
  [[nodiscard]] tenant_cells::request request_of(job_id job, std::int32_t priority,
                                                 std::uint32_t gpus) const {
    return tenant_cells::request_of(job, priority, gpus, size);
  }
  // A gang starts if it fits without suspending another one.
  void try_start(rng& random, std::uint32_t most) {
    const std::uint32_t gpus = 1 + random.uniform(most);
    const gang_request r{.job = job_id(fresh),
                         .tenant = tenant_id(0),
                         .priority = static_cast<std::int32_t>(random.uniform(3)),
                         .groups = groups_of(gpus)};
    const auto plan = scheduler.propose(r);
    if (!plan.ok() || plan->result != plan_result::bind) return;
    REQUIRE(scheduler.commit(*plan).ok());
    const forecast_gang g{request_of(r.job, r.priority, gpus),
                          cells.nodes_of(scheduler.cells(), *scheduler.find(r.job)),
                          random.uniform(12)};
    std::uint64_t leaves = 0;
    for (const tenant_cells::use& u : g.where) leaves += u.leaves;
    REQUIRE(leaves == scheduler.find(r.job)->leaves.size());
    ends.insert({g.ends, r.job.value, 1});
    running[fresh++] = g;
    forecast.started(r.job);
  }
  void stop_any(rng& random) {
    auto at = running.begin();
    std::advance(at, random.uniform(static_cast<std::uint32_t>(running.size())));
    const job_id job(at->first);
    REQUIRE(scheduler.finish(job).ok());
    ends.erase(at->second.ends, job.value);
    forecast.ended(job, at->second, now);
    running.erase(at);
  }
  [[nodiscard]] std::optional<time_ms> first_fit(const tenant_cells::request& r) {
    const auto of = [&](job_id job) {
      const auto found = running.find(job.value);
      return found == running.end() ? nullptr : &found->second;
    };
    forecast.withdrawn();  // the last job of this id
    const auto copy = [&] {
      tenant_cells made = cells;
      for (const auto& [job, g] : running) REQUIRE(made.commit(g.request, g.where).ok());
      return made;
    };
    return forecast.first_fit(copy, r, now, now, ends, of).value();
  }
  [[nodiscard]] static bool binds(hived& then, const std::vector<task_group>& groups) {
    const auto plan = then.propose({.job = job_id(1000), .tenant = tenant_id(0), .groups = groups});
    return plan.ok() && plan->result == plan_result::bind;
  }
  // The first time at which the gang binds, asked after each end. `then`: with gangs that end later.
  [[nodiscard]] std::optional<time_ms> first_bind(std::int32_t priority,
                                                  const std::vector<task_group>& groups,
                                                  hived& then) {
    for (const auto& [job, g] : running) {
      if (g.request.priority < priority) REQUIRE(then.finish(job_id(job)).ok());
    }
    if (binds(then, groups)) return now;
    for (auto end = ends.first(); end; end = ends.next(end->key, end->id)) {
      if (running.at(end->id).request.priority >= priority)
        REQUIRE(then.finish(job_id(end->id)).ok());
      const auto next = ends.next(end->key, end->id);
      if (next && next->key == end->key) continue;
      if (binds(then, groups)) return end->key;
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
    "tenant_cells: the leaves of a gang on each node are the same in any order of its leaves") {
  std::uint64_t mixed = 0;
  for_scenes([&](rng& random, forecast_scene& scene, std::uint32_t most) {
    for (std::uint32_t i = 0; i < 6; ++i) scene.try_start(random, most);
    for (const auto& [job, g] : scene.running) {
      gang_record gang = *scene.scheduler.find(job_id(job));
      for (std::size_t i = gang.leaves.size(); i > 1; --i)
        std::swap(gang.leaves[i - 1], gang.leaves[random.uniform(static_cast<std::uint32_t>(i))]);
      REQUIRE(scene.cells.nodes_of(scene.scheduler.cells(), gang) == g.where);
      mixed += g.where.size() > 1 && gang.leaves.size() > 2 ? 1U : 0U;
    }
  });
  CHECK(mixed > 0);
}

TEST_CASE("tenant_cells: a gang fits, beside others or not, from when on a scheduler binds it") {
  std::uint64_t now = 0;
  std::uint64_t later = 0;
  std::uint64_t never = 0;
  std::uint64_t fits = 0;
  std::uint64_t fits_not = 0;
  for_scenes([&](rng& random, forecast_scene& scene, std::uint32_t most) {
    for (std::uint32_t step = 0; step < 40; ++step) {
      CAPTURE(step);
      if (random.uniform(4) == 0 && !scene.running.empty()) {
        scene.stop_any(random);
      } else {
        scene.try_start(random, most);
      }
      if (random.uniform(3) != 0) continue;
      // More priorities than are kept.
      const auto priority =
          static_cast<std::int32_t>(random.uniform(random.uniform(8) > 0 ? 4 : 40));
      const std::uint32_t gpus = 1 + random.uniform(4 * scene.size);
      const std::vector<task_group> groups = scene.groups_of(gpus);
      const tenant_cells::request r = scene.request_of(job_id(1000), priority, gpus);
      hived then = scene.scheduler;
      const std::optional<time_ms> first = scene.first_fit(r);
      REQUIRE(first == scene.first_bind(priority, groups, then));
      ++(!first ? never : *first == forecast_scene::now ? now : later);
      if (!first) continue;
      // Another gang that a scheduler places now, and that still runs then.
      const std::uint32_t beside = 1 + random.uniform(most);
      const gang_request other{
          .job = job_id(999), .tenant = tenant_id(0), .groups = scene.groups_of(beside)};
      const auto plan = scene.scheduler.propose(other);
      if (!plan.ok() || plan->result != plan_result::bind || priority > 0) continue;
      then = scene.scheduler;
      REQUIRE(then.commit(*plan).ok());
      const auto where = scene.cells.nodes_of(then.cells(), *then.find(other.job));
      for (const auto& [job, g] : scene.running) {
        if (g.ends <= *first) REQUIRE(then.finish(job_id(job)).ok());
      }
      const bool binds = forecast_scene::binds(then, groups);
      const tenant_cells::request added = scene.request_of(other.job, 0, beside);
      REQUIRE(scene.forecast.fits_beside(r, added, where).value() == binds);
      if (binds) REQUIRE(scene.forecast.finish(other.job).ok());
      ++(binds ? fits : fits_not);
    }
  });
  CHECK(now > 0);
  CHECK(later > 0);
  CHECK(never > 0);
  CHECK(fits > 0);
  CHECK(fits_not > 0);
}
