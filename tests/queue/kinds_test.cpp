// apiary/tests/queue/kinds_test.cpp - the queues by kind against one sorted list.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/kinds.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

using job_kinds = kind_queues<job_kind>;

job_kind kind_of_job(const job_request& r) { return job_placer_types::kind_of(r); }
delays enter_kind(job_kinds& queues, const job_request& r, std::int64_t key, time_ms now) {
  return queues.enter(kind_of_job(r), r.job, key, r.estimate, now);
}
delays leave_kind(job_kinds& queues, const job_request& r, std::int64_t key, const delays& entered,
                  time_ms now) {
  return queues.leave(kind_of_job(r), r.job, key, entered, now);
}

struct waiting_job {
  job_request request{};
  delays entered{};
  delays waited{};  // by a clock of its own
};
using sorted_jobs = std::map<std::pair<std::int64_t, std::uint32_t>, waiting_job>;  // by key and id

// The first job of the list, after the key and id `after`, that `may` accepts.
template <class May>
std::optional<std::uint32_t> first_in(const sorted_jobs& jobs, May&& may,
                                      std::pair<std::int64_t, std::uint32_t> after = {-1, 0}) {
  for (const auto& [at, job] : jobs)
    if (at > after && may(job.request)) return at.second;
  return std::nullopt;
}
// Of jobs of up to five GPUs and two demands.
std::size_t number_of_kind(const job_request& r) { return 2 * r.gpus + r.demand; }
std::optional<std::uint32_t> id_of(const std::optional<job_kinds::entry>& e) {
  if (!e) return std::nullopt;
  return e->job.value;
}

}  // namespace

TEST_CASE("kind_queues: the first job, with and without limits, and every job's delay") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    job_kinds queues;
    sorted_jobs jobs;
    std::array<delay_cause, 12> cause{};
    std::array<bool, 12> failed{};
    time_ms now = 0;
    for (std::uint32_t step = 0; step < 150; ++step) {
      const time_ms passed = random.uniform(4);
      now += passed;
      for (auto& [at, job] : jobs)
        job.waited.by_cause[static_cast<std::size_t>(cause[number_of_kind(job.request)])] += passed;
      if (jobs.empty() || random.uniform(3) > 0) {
        const job_request r{.job = job_id(step),
                            .gpus = 1 + random.uniform(5),
                            .estimate = 1 + random.uniform(20),
                            .demand = random.uniform(2)};
        const std::int64_t key = random.uniform(10);
        jobs[{key, step}] = {r, enter_kind(queues, r, key, now), {}};
      } else {
        auto leaves = jobs.begin();
        std::advance(leaves, random.uniform(static_cast<std::uint32_t>(jobs.size())));
        const auto& [at, job] = *leaves;
        REQUIRE(queues.waited(kind_of_job(job.request), job.entered, now) == job.waited);
        REQUIRE(leave_kind(queues, job.request, at.first, job.entered, now) == job.waited);
        const std::size_t k = number_of_kind(job.request);
        jobs.erase(leaves);
        const auto remains = [k](const job_request& r) { return number_of_kind(r) == k; };
        if (!first_in(jobs, remains))
          cause[k] = delay_cause::capacity;  // as of a kind not yet seen
      }
      REQUIRE(queues.size() == jobs.size());

      queues.begin_round();
      REQUIRE(id_of(queues.first()) == first_in(jobs, [](const auto&) { return true; }));
      failed = {};
      const std::uint32_t idle = random.uniform(6);
      if (!jobs.empty()) {
        const job_request& fails = jobs.begin()->second.request;
        failed[number_of_kind(fails)] = true;
        queues.fail(kind_of_job(fails));
      }
      const auto limit = [&](const job_kind& k, bool) {
        return time_ms{12} - k.gpus + 2 * time_ms{k.demand};
      };
      const auto fits = [&](const job_request& r) {
        return r.gpus <= idle && !failed[number_of_kind(r)];
      };
      REQUIRE(id_of(queues.first_that_may(idle)) == first_in(jobs, fits));
      REQUIRE(id_of(queues.first_that_may(idle, limit)) ==
              first_in(jobs, [&](const job_request& r) {
                return fits(r) && r.estimate <= limit(kind_of_job(r), false);
              }));

      queues.end_round(idle, delay_cause::order, now);
      for (const auto& [at, job] : jobs) {
        const std::size_t k = number_of_kind(job.request);
        cause[k] = job.request.gpus > idle ? delay_cause::capacity
                   : failed[k]             ? delay_cause::fragmentation
                                           : delay_cause::order;
      }
    }
  }
}

TEST_CASE("kind_queues: within a round jobs come and go, kinds fail and delay, idle GPUs change") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    job_kinds queues;
    sorted_jobs jobs;
    std::uint32_t next_id = 0;
    const auto add = [&] {
      const job_request r{.job = job_id(next_id++),
                          .gpus = 1 + random.uniform(5),
                          .estimate = 1 + random.uniform(20),
                          .demand = random.uniform(2)};
      const std::int64_t key = random.uniform(10);
      jobs[{key, r.job.value}] = {r, enter_kind(queues, r, key, 0), {}};
    };
    for (std::uint32_t round = 0; round < 10; ++round) {
      while (jobs.size() < 8) add();
      queues.begin_round();
      std::array<bool, 12> failed{};
      std::array<bool, 12> delays{};
      std::pair<std::int64_t, std::uint32_t> passed{-1, 0};
      std::uint32_t idle = 6;
      time_ms most = 25;  // the limit of kinds with two GPUs or more; it falls
      for (std::uint32_t step = 0; step < 25; ++step) {
        const auto limit = [&](const job_kind& k, bool delaying) {
          return (std::min)(delaying ? time_ms{8} : max_time, k.gpus > 1 ? most : max_time);
        };
        const auto found = queues.first_that_may(idle, limit);
        const auto may = [&](const job_request& r) {
          const std::size_t k = number_of_kind(r);
          return r.gpus <= idle && !failed[k] && r.estimate <= limit(kind_of_job(r), delays[k]);
        };
        REQUIRE(id_of(found) == first_in(jobs, may, passed));
        const std::uint32_t what = random.uniform(8);
        if (what == 0) add();
        if (what == 1) idle = random.uniform(7);
        if (what == 2) most -= random.uniform(4);
        if (what == 3) {
          if (found && random.uniform(3) == 0) {
            queues.forget_delays_after(*found);
            passed = {found->key, found->job.value};
          } else {
            queues.forget_delays();
          }
          delays = {};
        }
        if (!found || what < 4) continue;
        const auto at = jobs.find({found->key, found->job.value});
        const auto& [key, job] = *at;
        const std::size_t k = number_of_kind(job.request);
        if (what == 4) {
          queues.fail(kind_of_job(job.request));
          failed[k] = true;
        } else if (what == 5) {
          if (!std::exchange(delays[k], true)) queues.delay(kind_of_job(job.request));
        } else {
          leave_kind(queues, job.request, key.first, job.entered, 0);
          jobs.erase(at);
          const auto remains = [k](const job_request& r) { return number_of_kind(r) == k; };
          if (!first_in(jobs, remains)) failed[k] = delays[k] = false;
        }
      }
      queues.end_round(idle, delay_cause::order, 0);
    }
  }
}

TEST_CASE("kind_queues: of thousands of kinds a round passes each that fails once") {
  const std::uint32_t kinds = 3000;
  job_kinds queues;
  const auto request = [](std::uint32_t job) {
    return job_request{.job = job_id(job), .gpus = 1, .estimate = 1, .demand = job};
  };
  std::uint64_t looks = 0;
  const auto limit = [&](const auto&...) {
    ++looks;
    return max_time;
  };
  std::vector<delays> entered;
  for (std::uint32_t job = 0; job < kinds; ++job)
    entered.push_back(enter_kind(queues, request(job), job, 0));
  queues.begin_round();
  std::uint32_t passed = 0;
  while (const auto next = queues.first_that_may(1, limit)) {
    REQUIRE(next->job.value == passed);
    queues.fail(kind_of_job(request(passed++)));
  }
  CHECK(passed == kinds);
  CHECK(looks <= 2 * kinds);
  queues.end_round(1, delay_cause::order, 0);

  for (std::uint32_t job = 1; job < kinds; ++job)
    leave_kind(queues, request(job), job, entered[job], 0);
  queues.begin_round();
  looks = 0;
  CHECK(id_of(queues.first_that_may(1, limit)) == 0U);
  CHECK(looks <= 2);
}

TEST_CASE("kind_queues: a visit in order skips the rest of a queue whose job may not") {
  job_kinds queues;
  const auto add = [&](std::uint32_t job, std::uint32_t gpus, std::int64_t key) {
    enter_kind(queues, {.job = job_id(job), .gpus = gpus}, key, 0);
  };
  CHECK(!queues.least());
  add(1, 2, 5);
  add(2, 1, 5);
  add(3, 2, 6);
  add(4, 1, 9);
  add(5, 4, 7);
  add(6, 1, 20);
  CHECK(queues.least() == 5);
  const auto visited = [&](std::uint32_t refused) {
    std::vector<std::uint32_t> ids;
    queues.visit_in_order([&](const job_kinds::entry& e) {
      if (e.job.value != refused) ids.push_back(e.job.value);
      return e.job.value != refused;
    });
    return ids;
  };
  using ids = std::vector<std::uint32_t>;
  CHECK(visited(0) == ids{1, 2, 3, 5, 4, 6});
  CHECK(visited(1) == ids{2, 5, 4, 6});  // job 3 is behind job 1
  CHECK(visited(4) == ids{1, 2, 3, 5});  // job 6 is behind job 4

  ids seen;  // jobs leave, and one enters, while they are visited
  queues.visit_in_order([&](const job_kinds::entry& e) {
    seen.push_back(e.job.value);
    queues.leave(e.kind, e.job, e.key, {}, 0);
    if (e.job == job_id(5)) add(7, 1, 10);
    return true;
  });
  CHECK(seen == ids{1, 2, 3, 5, 4, 7, 6});
  CHECK(queues.empty());
}
