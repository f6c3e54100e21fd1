// apiary/tests/gandiva/measured_placer_test.cpp - jobs over any placer move where that lowers a measure.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_placer.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/plan.h>
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace measured_placer_tests {
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

template <class Placer>
gandiva_with_placer<Placer> sharing_of(const server_spec& spec, const fragmentation& metric,
                                       const time_sharing_options::migration_limits& limits) {
  return gandiva_with_placer<Placer>::create({placer_of<Placer>(spec, metric), spec, metric},
                                             {.quantum = max_time, .migrations = limits})
      .value();
}

TEST_CASE_TEMPLATE("measured_placer: on a departure jobs come together, and only if that pays",
                   Placer, server_placer, fgd_placer) {
  const server_spec spec{.gpus = {4, 4}};
  const fragmentation metric(mix_of({{4, 1}}));
  for (const std::uint32_t cost : {1000U, 999U}) {
    auto q = sharing_of<Placer>(spec, metric, {.jobs = 4, .cost = 2 * cost});
    std::vector<job_action> actions;
    for (std::uint32_t job = 0; job < 4; ++job)
      REQUIRE(q.submit(job_of(job, 2), {}, 0, actions).ok());
    CHECK(actions.size() == 4);
    CHECK(!q.may_start(job_of(4, 1)));
    const node_id first = q.placement_of(job_id(0))[0].node;
    for (const std::uint32_t job : {1U, 2U}) REQUIRE(q.finish(job_id(job), 1).ok());
    REQUIRE(q.placement_of(job_id(3))[0].node != first);
    // A move makes four idle GPUs of use to a job of four: two GPUs a GPU moved.
    actions.clear();
    REQUIRE(q.decide(1, actions).ok());
    CHECK(actions.size() == (cost == 999 ? 1 : 0));
    for (const job_action& a : actions) {
      CHECK(a.what == job_action::verb::migrate);
      CHECK(a.job == job_id(0));
    }
    CHECK((q.placement_of(job_id(0))[0].node == first) == actions.empty());
  }
}

TEST_CASE("measured_placer: a job over two servers gains most by one, whatever that fragments") {
  const server_spec spec{.gpus = {4, 4, 4}};
  const fragmentation metric(mix_of({{1, 1}}));
  measured_placer<server_placer> g(server_placer::create(spec).value(), spec, metric);
  const job_placement apart{{node_id(0), 3}, {node_id(1), 3}};
  REQUIRE(g.commit(job_of(0, 4), apart).ok());
  REQUIRE(!g.commit(job_of(1, 4), {{node_id(1), 2}, {node_id(2), 7}}).ok());
  REQUIRE(g.finish(job_id(0)).ok());
  const job_placement together = g.propose(job_of(0, 4)).value().value();
  CHECK(together == job_placement{{node_id(0), 15}});
  CHECK(g.gain(job_of(0, 4), apart, together) == INT64_MAX);
  CHECK(g.gain(job_of(0, 4), together, apart) == 0);
  CHECK(g.gain(job_of(0, 4), together, {{node_id(2), 15}}) == 0);
}

TEST_CASE(
    "measured_placer: a gain is what the measure falls by for each GPU, whatever the weights") {
  const server_spec spec{.gpus = {4, 4}};
  const fragmentation metric(mix_of({{4, ~std::uint32_t{0}}}));
  measured_placer<server_placer> g(server_placer::create(spec).value(), spec, metric);
  REQUIRE(g.commit(job_of(1, 2), {{node_id(1), 3}}).ok());
  CHECK(g.gain(job_of(0, 2), {{node_id(0), 3}}, {{node_id(1), 12}}) == 2000);
  const fragmentation thirds(mix_of({{4, 1}, {1, 2}}));
  measured_placer<server_placer> h(server_placer::create(spec).value(), spec, thirds);
  REQUIRE(h.commit(job_of(1, 2), {{node_id(1), 3}}).ok());
  CHECK(h.gain(job_of(0, 2), {{node_id(0), 3}}, {{node_id(1), 12}}) == 667);  // rounded up
}

TEST_CASE("measured_placer: a price above all that can be counted is never paid") {
  const server_spec spec{.gpus = {4, 4}};
  for (const std::uint32_t cost : {1999U, 2000U, 1U << 31, ~std::uint32_t{0}}) {
    const fragmentation metric(mix_of({{4, ~std::uint32_t{0}}}));
    auto q = sharing_of<server_placer>(spec, metric, {.jobs = 1, .cost = cost});
    std::vector<job_action> actions;
    for (std::uint32_t job = 0; job < 4; ++job)
      REQUIRE(q.submit(job_of(job, 2), {}, 0, actions).ok());
    for (const std::uint32_t job : {1U, 2U}) REQUIRE(q.finish(job_id(job), 1).ok());
    actions.clear();
    REQUIRE(q.decide(1, actions).ok());
    CHECK(actions.empty() == (cost != 1999));  // two GPUs for each GPU moved
  }
}

TEST_CASE("measured_placer: a job that only reserved its GPUs gives them up") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}};
  const server_spec spec{.gpus = {4}};
  measured_placer<hived_placer> placer(hived_placer::create(config).value(), spec,
                                       fragmentation(mix_of({{1, 1}})));
  job_request guest = job_of(0, 4);
  guest.tenant = tenant_id(0);
  guest.priority = -1;
  const job_placement all = placer.propose(guest).value().value();
  REQUIRE(placer.commit(guest, all).ok());
  job_request owner = job_of(1, 4);
  owner.tenant = tenant_id(0);
  CHECK(placer.propose_preempting(owner).value().result == plan_result::preempt);
  REQUIRE(placer.reserve(job_id(1)).ok());
  CHECK(placer.finish(job_id(1)).ok());
  CHECK(placer.finish(job_id(0)).ok());
  CHECK(placer.propose(owner).value() == all);
}

TEST_CASE("measured_placer: what a job may start on while a server is bad") {
  const server_spec spec{.gpus = {2, 2}};
  const fragmentation metric(mix_of({{1, 1}}));
  auto q = sharing_of<server_placer>(spec, metric, {});
  std::vector<job_action> actions;
  REQUIRE(q.submit(job_of(0, 1), {}, 0, actions).ok());
  CHECK(q.mark_bad(node_id(0), 0).value() == std::vector{job_id(0)});
  CHECK(q.mark_bad(node_id(2), 0).status().code() == absl::StatusCode::kNotFound);
  REQUIRE(q.decide(0, actions).ok());
  CHECK(q.placement_of(job_id(0)) == job_placement{{node_id(1), 1}});
  CHECK(!q.may_start(job_of(1, 5)));
  CHECK(!q.may_start(job_of(1, 2)));
  CHECK(q.may_start(job_of(1, 1)));
  CHECK(!q.may_start({.gpus = 1}));  // it has no id, which the placer would not mind
  CHECK(q.mark_healthy(node_id(0), 1).ok());
  CHECK(q.may_start(job_of(1, 2)));
}

TEST_CASE_TEMPLATE(
    "measured_placer: each move is the placer's answer and lowers the measure, counted, and jobs "
    "take turns",
    Placer, server_placer, fgd_placer) {
  std::uint64_t moves = 0;
  std::uint64_t stays = 0;
  std::uint64_t stopped_early = 0;
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
    const time_sharing_options::migration_limits limits{
        random.uniform(4), random.uniform(2) * random.uniform(2000), trials};
    auto q = sharing_of<Placer>(spec, metric, limits);
    std::map<job_id, std::pair<job_request, job_placement>> jobs;
    std::set<job_id> fixed;  // jobs that may not migrate
    job_id next{0};
    const auto take = [&](const job_placement& where) {
      for (const placement& p : where) idle[p.node.value] ^= p.gpu_mask;
    };
    for (std::uint32_t step = 0; step < 60; ++step) {
      std::vector<job_action> actions;
      if (random.uniform(2) == 0 && !jobs.empty()) {
        const auto at =
            std::next(jobs.begin(), random.uniform(static_cast<std::uint32_t>(jobs.size())));
        REQUIRE(q.placement_of(at->first) == at->second.second);
        REQUIRE(q.finish(at->first, step).ok());
        take(at->second.second);
        jobs.erase(at);
      } else {
        // Ids do not ascend.
        const job_request r = job_of(step * 7 % 61, 1 + random.uniform(8));
        if (q.may_start(r)) {
          if (random.uniform(4) == 0) fixed.insert(r.job);
          REQUIRE(q.submit(r, {.movable = !fixed.contains(r.job)}, step, actions).ok());
          REQUIRE(actions.size() == 1);
          REQUIRE(actions[0].what == job_action::verb::start);
          jobs[r.job] = {r, actions[0].where};
          take(jobs[r.job].second);
        }
      }
      // By the words: the jobs from `next` on, then those before it, each at most once.
      std::vector<job_id> movable;
      for (const auto& [job, of] : jobs)
        if (!fixed.contains(job)) movable.push_back(job);
      Placer placer = q.placer().below();
      std::vector<job_id> expected;
      std::size_t at = 0;
      while (at < movable.size() && movable[at] < next) ++at;
      for (std::size_t i = 0; i < std::min<std::size_t>(trials, movable.size()); ++i) {
        stopped_early += expected.size() == limits.jobs ? 1U : 0U;
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
      actions.clear();
      REQUIRE(q.decide(step, actions).ok());
      std::vector<job_id> moved;
      for (const job_action& a : actions) {
        REQUIRE(a.what == job_action::verb::migrate);
        moved.push_back(a.job);
      }
      REQUIRE(moved == expected);
      for (const auto& [job, of] : jobs) REQUIRE(q.placement_of(job) == of.second);
      for (std::uint32_t n = 0; n < idle.size(); ++n) {
        std::uint32_t mask = 0;
        for (std::uint32_t d = 0; d < spec.gpus[n]; ++d)
          mask |= q.placer().nodes()[node_id(n)].gpu_left[d] == whole_gpu ? 1U << d : 0U;
        REQUIRE(mask == idle[n]);
      }
    }
  }
  CHECK(moves > 0);
  CHECK(stays > 0);
  CHECK(stopped_early > 0);
}

}  // namespace
}  // namespace measured_placer_tests
