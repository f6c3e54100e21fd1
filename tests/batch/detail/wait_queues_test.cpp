// apiary/tests/batch/detail/wait_queues_test.cpp - the queues by GPU count and demand against one sorted list.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/batch/detail/wait_queues.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;
using detail::wait_queues;

namespace {

struct waiting_job {
  job_request request{};
  delays entered{};
  delays waited{};  // by a clock of its own
};
using sorted_jobs = std::map<std::pair<std::int64_t, std::uint32_t>, waiting_job>;  // by key and id

// The first job of the list that `may` accepts.
template <class May>
std::optional<std::uint32_t> first_in(const sorted_jobs& jobs, May&& may) {
  for (const auto& [at, job] : jobs)
    if (may(job.request)) return at.second;
  return std::nullopt;
}
// Of jobs of up to five GPUs and two demands.
std::size_t number_of_kind(const job_request& r) { return 2 * r.gpus + r.demand; }
std::optional<std::uint32_t> id_of(const std::optional<wait_queues::entry>& e) {
  if (!e) return std::nullopt;
  return e->job.value;
}

}  // namespace

TEST_CASE("wait_queues: the first job, with and without limits, and every job's delay") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    wait_queues queues;
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
        jobs[{key, step}] = {r, queues.enter(r, key, now), {}};
      } else {
        auto leaves = jobs.begin();
        std::advance(leaves, random.uniform(static_cast<std::uint32_t>(jobs.size())));
        const auto& [at, job] = *leaves;
        REQUIRE(queues.waited(job.request, job.entered, now) == job.waited);
        REQUIRE(queues.leave(job.request, at.first, job.entered, now) == job.waited);
        jobs.erase(leaves);
      }
      REQUIRE(queues.size() == jobs.size());
      REQUIRE(id_of(queues.first()) == first_in(jobs, [](const auto&) { return true; }));

      queues.begin_round();
      failed = {};
      const std::uint32_t idle = random.uniform(6);
      const job_request fails{.gpus = 1 + random.uniform(5), .demand = random.uniform(2)};
      failed[number_of_kind(fails)] = true;
      queues.fail(fails);
      const auto limit = [&](const wait_queues::kind& k) {
        return time_ms{12} - k.gpus + 2 * time_ms{k.demand};
      };
      const auto fits = [&](const job_request& r) {
        return r.gpus <= idle && !failed[number_of_kind(r)];
      };
      REQUIRE(id_of(queues.first_that_may(idle)) == first_in(jobs, fits));
      REQUIRE(id_of(queues.first_that_may(idle, limit)) ==
              first_in(jobs, [&](const job_request& r) {
                return fits(r) && r.estimate <= limit(wait_queues::kind(r));
              }));

      queues.end_round(idle, delay_cause::order, now);
      // A queue without jobs keeps its cause.
      for (const auto& [at, job] : jobs) {
        const std::size_t k = number_of_kind(job.request);
        cause[k] = job.request.gpus > idle ? delay_cause::capacity
                   : failed[k]             ? delay_cause::fragmentation
                                           : delay_cause::order;
      }
    }
  }
}

TEST_CASE("wait_queues: a walk in order skips the rest of a queue whose job may not") {
  wait_queues queues;
  const auto add = [&](std::uint32_t job, std::uint32_t gpus, std::int64_t key) {
    queues.enter({.job = job_id(job), .gpus = gpus}, key, 0);
  };
  add(1, 2, 5);
  add(2, 1, 5);
  add(3, 2, 6);
  add(4, 1, 9);
  add(5, 4, 7);
  add(6, 1, 20);
  const auto walked = [&](std::int64_t end, std::uint32_t refused) {
    wait_queues::walk walk(queues);
    std::vector<std::uint32_t> ids;
    const auto may = [&](const wait_queues::entry& e) { return e.job.value != refused; };
    while (const auto e = walk.next_before({.job = job_id(0), .key = end}, may))
      ids.push_back(e->job.value);
    return ids;
  };
  using ids = std::vector<std::uint32_t>;
  CHECK(walked(100, 0) == ids{1, 2, 3, 5, 4, 6});
  CHECK(walked(9, 0) == ids{1, 2, 3, 5});    // the end has the lower id: job 4 is not before it
  CHECK(walked(100, 1) == ids{2, 5, 4, 6});  // job 3 is behind job 1
  CHECK(walked(100, 4) == ids{1, 2, 3, 5});  // job 6 is behind job 4
}
