// apiary/tests/queue/forecast_test.cpp - EASY with reserved GPUs, against a new copy of
// the placer at each decision.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// EASY with a reservation of particular GPUs, which it finds at each decision on a copy of the placer on
// which it ends the running jobs one after the other.
struct copied_easy_gpus {
  struct record {
    job_request request{};
    time_ms key = 0;
    bool running = false;
    time_ms ends = 0;
  };
  server_placer placer;
  std::map<std::uint32_t, record> jobs{};
  std::optional<batch_queue<server_placer>::reservation> reserved{};

  [[nodiscard]] std::vector<record*> waiting() {
    std::vector<record*> all;
    for (auto& [id, r] : jobs) {
      if (!r.running) all.push_back(&r);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const record* a, const record* b) { return a->key < b->key; });
    return all;
  }
  void start(record& r, const job_placement& where, time_ms now, std::vector<job_action>& actions) {
    REQUIRE(placer.commit(r.request, where).ok());
    r.running = true;
    r.ends = add_time(now, r.request.estimate);
    actions.push_back({job_action::verb::start, r.request.job, where, {}});
  }
  void stop(record& r) {
    REQUIRE(placer.finish(r.request.job).ok());
    r.running = false;
  }
  void finish(job_id job) {
    if (jobs.at(job.value).running) stop(jobs.at(job.value));
    jobs.erase(job.value);
  }
  void decide(time_ms now, std::vector<job_action>& actions) {
    reserved.reset();
    while (true) {
      const std::vector<record*> order = waiting();
      if (order.empty()) return;
      const auto where = placer.propose(order[0]->request).value();
      if (!where) break;
      start(*order[0], *where, now, actions);
    }
    const job_request first = waiting()[0]->request;
    server_placer then = placer;
    reserved = {first.job, max_time, 0};
    std::multimap<time_ms, job_id> ends;
    for (const auto& [id, r] : jobs) {
      if (r.running) ends.emplace(std::max(now, r.ends), r.request.job);
    }
    for (auto end = ends.begin(); end != ends.end();) {
      const time_ms at = end->first;
      for (; end != ends.end() && end->first == at; ++end) REQUIRE(then.finish(end->second).ok());
      const auto where = then.propose(first).value();
      if (!where) continue;
      REQUIRE(then.commit(first, *where).ok());
      reserved = {first.job, at, then.idle_gpus()};
      break;
    }
    std::set<std::uint32_t> full;
    std::set<std::uint32_t> in_the_way;
    for (bool again = true; again;) {
      again = false;
      for (record* const r : waiting()) {
        const std::uint32_t gpus = r->request.gpus;
        if (full.contains(gpus)) continue;
        if (in_the_way.contains(gpus) && r->request.estimate > reserved->at - now) continue;
        const auto where = placer.propose(r->request).value();
        if (!where) {
          full.insert(gpus);
          continue;
        }
        if (add_time(now, r->request.estimate) > reserved->at) {
          if (!then.commit(r->request, *where).ok()) {
            in_the_way.insert(gpus);
            continue;
          }
          reserved->extra_gpus = then.idle_gpus();
        }
        start(*r, *where, now, actions);
        in_the_way.clear();
        again = true;
        break;
      }
    }
  }
};

}  // namespace

// Jobs that end early, on time and late, or have no estimate; withdrawals; ids that come again; broken
// servers; calls without a decision in between.
TEST_CASE("placer_forecast: easy_gpus starts the same jobs as with a new copy at each decision") {
  std::uint64_t reservations = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> servers(1 + random.uniform(6));
    for (std::uint32_t& gpus : servers) gpus = 1 + random.uniform(4);
    const server_placer placer =
        server_placer::create({.gpus = servers, .anywhere = random.uniform(4) == 0}).value();
    batch_queue queue(placer, {.rule = batch_options::rules::easy_gpus});
    copied_easy_gpus naive{placer};
    std::map<std::uint32_t, time_ms> ends;  // of running jobs
    const bool exact = random.uniform(3) == 0;
    const std::uint32_t longest = 1 + random.uniform(40);
    time_ms now = 0;
    std::uint32_t fresh = 0;
    for (int step = 0; step < 200; ++step) {
      CAPTURE(step);
      now += random.uniform(3);
      for (const auto& [job, end] : std::map(ends)) {
        if (end > now) continue;
        REQUIRE(queue.finish(job_id(job), now).ok());
        naive.finish(job_id(job));
        ends.erase(job);
      }
      const std::uint32_t event = random.uniform(40);
      for (std::uint32_t i = random.uniform(3); i > 0 && naive.jobs.size() < 40; --i) {
        const job_request r{
            .job = job_id(fresh++ % 64),
            .gpus = 1 + random.uniform(placer.total_gpus()),
            .estimate = random.uniform(30) == 0 ? max_time : time_ms{random.uniform(longest)}};
        if (naive.jobs.contains(r.job.value)) continue;
        REQUIRE(queue.submit(r, now).ok());
        naive.jobs[r.job.value] = {r, now};
      }
      if (event < 4 && !naive.jobs.empty()) {
        auto at = naive.jobs.begin();
        std::advance(at, random.uniform(static_cast<std::uint32_t>(naive.jobs.size())));
        const job_id job(at->first);
        REQUIRE(queue.finish(job, now).ok());
        naive.finish(job);
        ends.erase(job.value);
      }
      if (event == 4 || event == 5) {
        const node_id n(random.uniform(static_cast<std::uint32_t>(servers.size())));
        if (event == 4) {
          const auto stopped = queue.mark_bad(n, now);
          REQUIRE(naive.placer.mark_bad(n).ok());
          REQUIRE(stopped.value() == naive.placer.jobs_on(n));
          for (const job_id job : *stopped) {
            naive.stop(naive.jobs.at(job.value));
            ends.erase(job.value);
          }
        } else {
          REQUIRE(queue.mark_healthy(n, now).ok());
          REQUIRE(naive.placer.mark_healthy(n).ok());
        }
      }
      if (event > 34) continue;  // the host decides later
      std::vector<job_action> a;
      std::vector<job_action> b;
      REQUIRE(queue.decide(now, a).ok());
      naive.decide(now, b);
      REQUIRE(queue.reserved() == naive.reserved);
      reservations += naive.reserved ? 1U : 0U;
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        REQUIRE(a[i].job == b[i].job);
        REQUIRE(a[i].where == b[i].where);
        const time_ms estimate = naive.jobs.at(a[i].job.value).request.estimate;
        ends[a[i].job.value] =
            now + (exact && estimate != max_time ? estimate : time_ms{1} + random.uniform(40));
      }
    }
  }
  CHECK(reservations > 0);
}

TEST_CASE("placer_forecast: a job that comes again as a smaller one is reserved anew") {
  batch_queue queue(server_placer::create({.gpus = {2, 2}}).value(),
                    {.rule = batch_options::rules::easy_gpus});
  std::vector<job_action> actions;
  const auto submit = [&](std::uint32_t job, std::uint32_t gpus, time_ms estimate, time_ms now) {
    REQUIRE(queue.submit({.job = job_id(job), .gpus = gpus, .estimate = estimate}, now).ok());
  };
  submit(0, 2, 10, 0);
  submit(1, 2, 20, 0);
  submit(2, 4, 5, 0);
  REQUIRE(queue.decide(0, actions).ok());
  CHECK(queue.reserved()->at == 20);
  REQUIRE(queue.finish(job_id(2), 1).ok());
  submit(2, 2, 5, 1);
  REQUIRE(queue.decide(1, actions).ok());
  CHECK(queue.reserved()->at == 10);
}
