// apiary/tests/gandiva/placer_backend_test.cpp - jobs over any placer move where that lowers a measure.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace ground_of_placer {
namespace {

using namespace apiary;
using namespace apiary::detail;
using fgd_placer = gpu_sharing_placer<fragmentation_gradient>;
using kinds_of_jobs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // GPUs, weight

task_mix mix_of(const kinds_of_jobs& kinds) {
  std::vector<std::pair<task_kind, std::uint32_t>> tasks;
  for (const auto& [gpus, weight] : kinds)
    tasks.push_back({{.gpus = gpus, .gpu_milli = whole_gpu}, weight});
  return task_mix(tasks);
}
job_request job_of(std::uint32_t job, std::uint32_t gpus) {
  return {.job = job_id(job), .gpus = gpus};
}
template <class Placer>
Placer placer_of(const server_spec& spec, const fragmentation& metric) {
  if constexpr (std::is_same_v<Placer, server_placer>)
    return server_placer::create(spec).value();
  else
    return fgd_placer::create(spec, fragmentation_gradient(metric)).value();
}

// GPUs that are idle and no job of the mix can use, times the weights: counted GPU by GPU.
std::int64_t naive_fragmentation(const std::vector<std::uint32_t>& idle,
                                 const kinds_of_jobs& kinds) {
  std::int64_t sum = 0;
  for (const std::uint32_t mask : idle) {
    const int free = std::popcount(mask);
    for (const auto& [gpus, weight] : kinds)
      if (free < static_cast<int>(gpus)) sum += std::int64_t{weight} * free;
  }
  return sum;
}

TEST_CASE_TEMPLATE("placer_backend: on a departure jobs come together, and only if that pays",
                   Placer, server_placer, fgd_placer) {
  const server_spec spec{.gpus = {4, 4}};
  const fragmentation metric(mix_of({{4, 1}}));
  for (const std::uint32_t cost : {1000U, 999U}) {
    placer_backend<Placer> g(placer_of<Placer>(spec, metric), spec, metric);
    CHECK(g.empty());
    std::vector<job_id> stopped;
    for (std::uint32_t job = 0; job < 4; ++job) REQUIRE(g.start(job_of(job, 2), stopped).value());
    CHECK(!g.may_start(job_of(4, 1)));
    CHECK(!g.start(job_of(4, 1), stopped).value());
    const node_id first = g.placement_of(job_id(0))[0].node;
    g.stop(job_id(1));
    g.stop(job_id(2));
    REQUIRE(g.placement_of(job_id(3))[0].node != first);
    // A move makes four idle GPUs of use to a job of four: two GPUs a GPU moved.
    std::vector<job_id> moved;
    g.improve(std::vector{job_id(0), job_id(3)}, {.jobs = 4, .cost = 2 * cost}, moved);
    CHECK(moved == (cost == 999 ? std::vector{job_id(0)} : std::vector<job_id>()));
    CHECK((g.placement_of(job_id(0))[0].node == first) == moved.empty());
    CHECK(stopped.empty());
  }
}

TEST_CASE("placer_backend: a job over two servers moves to one, whatever that fragments") {
  const server_spec spec{.gpus = {4, 4, 4}};
  const fragmentation metric(mix_of({{1, 1}}));
  placer_backend<server_placer> g(server_placer::create(spec).value(), spec, metric);
  REQUIRE(g.restart(job_of(0, 4), {{node_id(0), 3}, {node_id(1), 3}}));
  REQUIRE(!g.restart(job_of(1, 4), {{node_id(1), 2}, {node_id(2), 7}}));
  std::vector<job_id> moved;
  g.improve(std::vector{job_id(0)}, {.jobs = 1, .cost = 1000}, moved);
  CHECK(moved == std::vector{job_id(0)});
  CHECK(g.placement_of(job_id(0)) == job_placement{{node_id(0), 15}});
}

TEST_CASE("placer_backend: a price above all that can be counted is never paid") {
  const server_spec spec{.gpus = {4, 4}};
  for (const std::uint32_t cost : {1999U, 2000U, 1U << 31, ~std::uint32_t{0}}) {
    const fragmentation metric(mix_of({{4, ~std::uint32_t{0}}}));
    placer_backend<server_placer> g(server_placer::create(spec).value(), spec, metric);
    REQUIRE(g.restart(job_of(0, 2), {{node_id(0), 3}}));
    REQUIRE(g.restart(job_of(1, 2), {{node_id(1), 3}}));
    std::vector<job_id> moved;
    g.improve(std::vector{job_id(0)}, {.jobs = 1, .cost = cost}, moved);
    CHECK(moved.empty() == (cost != 1999));  // two GPUs for each GPU moved
  }
}

TEST_CASE("placer_backend: a job on a server that broke may run on there") {
  const server_spec spec{.gpus = {2, 2}};
  const fragmentation metric(mix_of({{1, 1}}));
  placer_backend<server_placer> g(server_placer::create(spec).value(), spec, metric);
  REQUIRE(g.restart(job_of(0, 1), {{node_id(0), 1}}));
  CHECK(g.mark(node_id(0), false).ok());
  CHECK(g.mark(node_id(2), false).code() == absl::StatusCode::kNotFound);
  const job_placement was = g.stop(job_id(0));
  CHECK(g.restart(job_of(0, 1), was));
  CHECK(g.placement_of(job_id(0)) == was);
  std::vector<job_id> stopped;
  CHECK(!g.start(job_of(1, 5), stopped).ok());
  CHECK(g.start(job_of(1, 2), stopped).value());
  CHECK(!g.may_start(job_of(2, 1)));
  CHECK(g.mark(node_id(0), true).ok());
  CHECK(g.may_start(job_of(2, 1)));
  CHECK(g.start({.gpus = 1}, stopped).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(!g.may_start({.gpus = 1}));  // it has no id, which the placer would not mind
}

TEST_CASE_TEMPLATE(
    "placer_backend: each move is the placer's answer and lowers the measure, counted", Placer,
    server_placer, fgd_placer) {
  std::uint64_t moves = 0;
  std::uint64_t stays = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    server_spec spec{.anywhere = true};
    std::vector<std::uint32_t> idle;
    for (std::uint32_t n = 0; n < 2 + random.uniform(4); ++n) {
      spec.gpus.push_back(1 + random.uniform(8));
      idle.push_back((1U << spec.gpus.back()) - 1);
    }
    kinds_of_jobs kinds;
    for (std::uint32_t k = 0; k < 1 + random.uniform(3); ++k)
      kinds.emplace_back(1 + random.uniform(8), 1 + random.uniform(9));
    const fragmentation metric(mix_of(kinds));
    const std::uint32_t trials = 1 + random.uniform(4);
    placer_backend<Placer> g(placer_of<Placer>(spec, metric), spec, metric, trials);
    std::map<job_id, std::pair<job_request, job_placement>> jobs;
    job_id next{0};
    const auto take = [&](const job_placement& where) {
      for (const placement& p : where) idle[p.node.value] ^= p.gpu_mask;
    };
    for (std::uint32_t step = 0; step < 60; ++step) {
      if (random.uniform(2) == 0 && !jobs.empty()) {
        const auto at =
            std::next(jobs.begin(), random.uniform(static_cast<std::uint32_t>(jobs.size())));
        REQUIRE(g.stop(at->first) == at->second.second);
        take(at->second.second);
        jobs.erase(at);
      } else {
        const job_request r = job_of(step, 1 + random.uniform(8));
        std::vector<job_id> stopped;
        const bool may = g.may_start(r);
        const auto runs = g.start(r, stopped);
        REQUIRE((runs.ok() && *runs) == may);
        REQUIRE(stopped.empty());
        if (may) {
          jobs[r.job] = {r, g.placement_of(r.job)};
          take(jobs[r.job].second);
        }
      }
      std::vector<job_id> movable;
      for (const auto& [job, of] : jobs)
        if (random.uniform(4) != 0) movable.push_back(job);
      const time_sharing_options::migration_limits limits{random.uniform(4),
                                                          random.uniform(2) * random.uniform(2000)};
      Placer placer = g.placer();
      std::vector<job_id> expected;
      std::size_t at = 0;
      while (at < movable.size() && movable[at] < next) ++at;
      for (std::size_t i = 0; i < std::min<std::size_t>(trials, movable.size()); ++i) {
        if (expected.size() == limits.jobs) break;
        const job_id job = movable[(at + i) % movable.size()];
        next = job_id(job.value + 1);
        auto& [r, from] = jobs.at(job);
        const std::int64_t before = naive_fragmentation(idle, kinds);
        REQUIRE(placer.finish(job).ok());
        const job_placement to = placer.propose(r).value().value();
        take(from);
        take(to);
        const std::int64_t gain = before - naive_fragmentation(idle, kinds);
        std::int64_t weights = 0;
        for (const auto& [gpus, weight] : kinds) weights += weight;
        const bool pays = to.size() < from.size() || (to.size() == from.size() &&
                                                      gain * 1000 > weights * limits.cost * r.gpus);
        if (pays) {
          expected.push_back(job);
          from = to;
        } else {
          take(to);
          take(from);
        }
        REQUIRE(placer.commit(r, from).ok());
        (pays ? moves : stays) += 1;
      }
      std::vector<job_id> moved;
      g.improve(movable, limits, moved);
      REQUIRE(moved == expected);
      for (const auto& [job, of] : jobs) REQUIRE(g.placement_of(job) == of.second);
      for (std::uint32_t n = 0; n < idle.size(); ++n) {
        std::uint32_t mask = 0;
        for (std::uint32_t d = 0; d < spec.gpus[n]; ++d)
          mask |= g.nodes()[node_id(n)].gpu_left[d] == whole_gpu ? 1U << d : 0U;
        REQUIRE(mask == idle[n]);
      }
      REQUIRE(g.empty() == jobs.empty());
    }
  }
  CHECK(moves > 0);
  CHECK(stays > 0);
}

}  // namespace
}  // namespace ground_of_placer
