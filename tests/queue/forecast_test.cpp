// apiary/tests/queue/forecast_test.cpp - EASY with reserved GPUs or by trial, against new copies of the placer.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/reservations.h>
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

// EASY with a reservation of particular GPUs, or by trial: at each decision it finds the time of the first
// job on a copy of the placer on which it ends the running jobs one after the other.
struct naive_easy {
  struct record {
    job_request request{};
    time_ms key = 0;
    bool running = false;
    time_ms ends = 0;
  };
  server_placer placer;
  std::uint32_t num_servers = 0;
  bool by_trial = false;
  std::map<std::uint32_t, record> jobs{};
  std::optional<reservation> reserved{};
  std::uint64_t delayed = 0;   // jobs that would have delayed the first one
  std::uint64_t overtook = 0;  // jobs that started before it

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
    bool fits = false;
    reserved = {first.job, max_time, 0};
    std::multimap<time_ms, job_id> ends;
    for (const auto& [id, r] : jobs) {
      if (r.running) ends.emplace(std::max(now, r.ends), r.request.job);
    }
    for (auto end = ends.begin(); end != ends.end() && !fits;) {
      const time_ms at = end->first;
      for (; end != ends.end() && end->first == at; ++end) REQUIRE(then.finish(end->second).ok());
      const auto where = then.propose(first).value();
      fits = where.has_value();
      if (!fits) continue;
      REQUIRE(then.commit(first, *where).ok());
      reserved = {first.job, at, then.idle_gpus()};
    }
    const std::size_t started = actions.size();
    by_trial ? try_each(first, fits, ends, now, actions) : fill_beside(then, now, actions);
    overtook += actions.size() - started;
  }
  // Starts jobs that leave the GPUs of the first one idle on `then`.
  void fill_beside(server_placer& then, time_ms now, std::vector<job_action>& actions) {
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
            ++delayed;
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
  // Starts jobs, each tried once, beside which the first one fits at its time, if it has one.
  void try_each(const job_request& first, bool has_time,
                const std::multimap<time_ms, job_id>& running, time_ms now,
                std::vector<job_action>& actions) {
    std::vector<std::pair<time_ms, job_id>> ends(running.begin(), running.end());
    for (record* const r : waiting()) {
      const auto where = placer.propose(r->request).value();
      if (!where) continue;
      const time_ms end = add_time(now, r->request.estimate);
      if (has_time && (end > reserved->at || end == max_time)) {
        server_placer beside = placer;
        REQUIRE(beside.commit(r->request, *where).ok());
        for (const auto& [at, job] : ends)
          if (at <= reserved->at) REQUIRE(beside.finish(job).ok());
        const bool fits = beside.propose(first).value().has_value();
        delayed += fits ? 0U : 1U;
        if (!fits) continue;
      }
      start(*r, *where, now, actions);
      ends.emplace_back(end, r->request.job);
    }
  }
};

// Jobs that end early, on time and late, or have no estimate; withdrawals; ids that come again; broken
// servers; calls without a decision in between. check() is called after each decision.
template <class Queue, class Check>
void same_starts(rng& random, Queue queue, naive_easy& naive, Check&& check) {
  std::map<std::uint32_t, time_ms> ends;  // of running jobs
  const bool exact = random.uniform(3) == 0;
  const std::uint32_t longest = 1 + random.uniform(40);
  const std::uint32_t most = (std::min)(1 + random.uniform(8), naive.placer.total_gpus());
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
          .gpus = 1 + random.uniform(random.uniform(3) == 0 ? naive.placer.total_gpus() : most),
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
      const node_id n(random.uniform(naive.num_servers));
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
    check(queue);
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
// The naive queue of up to six servers.
naive_easy on_servers(rng& random, bool by_trial) {
  std::vector<std::uint32_t> servers(1 + random.uniform(6));
  for (std::uint32_t& gpus : servers) gpus = 1 + random.uniform(4);
  const auto num_servers = static_cast<std::uint32_t>(servers.size());
  const bool anywhere = random.uniform(4) == 0;
  return {server_placer::create({.gpus = std::move(servers), .anywhere = anywhere}).value(),
          num_servers, by_trial};
}

}  // namespace

TEST_CASE("placer_forecast: easy_gpus starts the same jobs as with a new copy at each decision") {
  std::uint64_t reservations = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    naive_easy naive = on_servers(random, false);
    same_starts(random, batch_queue(naive.placer, {.rule = batch_options::rules::easy_gpus}), naive,
                [&](const auto& queue) {
                  REQUIRE(queue.reserved() == naive.reserved);
                  reservations += naive.reserved ? 1U : 0U;
                });
  }
  CHECK(reservations > 0);
}

TEST_CASE("easy_beside: starts the jobs that a queue starts that tries every job on copies") {
  std::uint64_t delayed = 0;
  std::uint64_t overtook = 0;
  for (std::uint64_t seed = 0; seed < std::max(200U, apiary_test::scaled(600U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    naive_easy naive = on_servers(random, true);
    same_starts(random, job_queue(naive.placer, arrival_order(), easy_beside<server_placer>()),
                naive, [](const auto&) {});
    delayed += naive.delayed;
    overtook += naive.overtook;
  }
  CHECK(delayed > 0);
  CHECK(overtook > 0);
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
