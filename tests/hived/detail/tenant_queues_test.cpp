// apiary/tests/hived/detail/tenant_queues_test.cpp - the order of waiting jobs against a sorted list.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/detail/tenant_queues.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

job_request waiting_job(std::uint32_t job, std::uint32_t tenant, std::uint32_t gpus,
                        std::int32_t priority, time_ms estimate = max_time) {
  return {.job = job_id(job),
          .tenant = tenant_id(tenant),
          .priority = priority,
          .gpus = gpus,
          .estimate = estimate};
}

}  // namespace

TEST_CASE("tenant_queues: rounds and idle GPUs, against sorted lists") {
  struct entry {
    job_request request{};
    time_ms arrival = 0;
  };
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    tenant_queues queues;
    std::vector<entry> jobs;
    for (std::uint32_t j = 0; j < 40; ++j) {
      const auto priority = static_cast<std::int32_t>(random.uniform(4)) - 1;
      const entry e{waiting_job(j, random.uniform(2), 1 + random.uniform(4), priority),
                    random.uniform(10)};
      queues.enter(e.request, e.arrival, e.request.gpus != 3);
      jobs.push_back(e);
      if (random.uniform(4) != 0) continue;
      const std::uint32_t gone = random.uniform(static_cast<std::uint32_t>(jobs.size()));
      queues.leave(jobs[gone].request, jobs[gone].arrival, 0);
      jobs.erase(jobs.begin() + gone);
    }
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::int32_t>> kinds;
    for (const entry& e : jobs)
      kinds.emplace(e.request.tenant.value, e.request.gpus, e.request.priority);
    REQUIRE(queues.size() == kinds.size());
    for (const std::uint32_t t : {0U, 1U}) {
      std::vector<std::tuple<std::int32_t, time_ms, std::uint32_t, std::uint32_t>> order;
      for (const entry& e : jobs) {
        if (e.request.tenant.value == t && e.request.priority >= 0 && e.request.gpus != 3)
          order.emplace_back(-e.request.priority, e.arrival, e.request.job.value, e.request.gpus);
      }
      std::sort(order.begin(), order.end());
      queues.begin_round(tenant_id(t));
      for (const auto& [rank, arrival, job, gpus] : order) {
        if (queues.of(waiting_job(job, t, gpus, -rank)).done) continue;
        REQUIRE(queues.next_on_cells(tenant_id(t), 0) == job_id(job));
        queues.of(waiting_job(job, t, gpus, -rank)).done = true;
      }
      CHECK_FALSE(queues.next_on_cells(tenant_id(t), 0).has_value());
    }
    for (const bool guaranteed : {false, true}) {
      std::map<std::tuple<std::uint32_t, bool, std::uint32_t>,
               std::tuple<std::int32_t, time_ms, std::uint32_t>>
          firsts;
      for (const entry& e : jobs) {
        const bool own = e.request.priority >= 0;
        if (own && !guaranteed) continue;
        const std::tuple at(-e.request.priority, e.arrival, e.request.job.value);
        const auto [first, fresh] =
            firsts.try_emplace({e.request.tenant.value, own, e.request.gpus}, at);
        if (!fresh) first->second = std::min(first->second, at);
      }
      for (std::uint32_t most = 0; most < 5; ++most) {
        std::optional<std::pair<time_ms, std::uint32_t>> best;
        for (const auto& [key, first] : firsts) {
          const std::pair at(std::get<1>(first), std::get<2>(first));
          if (std::get<2>(key) <= most && (!best || at < *best)) best = at;
        }
        const std::optional<job_id> next = queues.next_on_idle(most, guaranteed);
        REQUIRE(next.has_value() == best.has_value());
        if (best) REQUIRE(*next == job_id(best->second));
      }
    }
  }
}

TEST_CASE("tenant_queues: what is known of a queue") {
  tenant_queues queues;
  const job_request small = waiting_job(0, 0, 1, 1);
  const job_request large = waiting_job(1, 0, 4, 1);
  const job_request low = waiting_job(2, 0, 4, 0);
  const job_request high = waiting_job(3, 0, 8, 2);
  const job_request other = waiting_job(4, 1, 8, 0);
  for (const job_request& r : {small, large, low, high, other}) {
    CHECK(queues.enter(r, 5, true));
  }
  queues.set_full(large, false);
  CHECK(queues.of(large).full);
  CHECK_FALSE(queues.of(low).full);
  queues.set_full(large, true);
  CHECK(queues.of(low).full);
  CHECK_FALSE(queues.of(small).full);  // smaller
  CHECK_FALSE(queues.of(high).full);   // may suspend more
  CHECK_FALSE(queues.of(other).full);
  CHECK_FALSE(queues.enter(waiting_job(5, 0, 4, 1), 6, true));  // after one that does not fit
  CHECK(queues.enter(waiting_job(6, 0, 4, 1), 4, true));
  queues.retry(tenant_id(1));
  CHECK(queues.of(low).full);
  queues.retry(tenant_id(0));
  CHECK_FALSE(queues.of(low).full);
}

TEST_CASE("tenant_queues: the first job that ends in time") {
  tenant_queues queues;
  for (std::uint32_t j = 0; j < 4; ++j) {
    const job_request r = waiting_job(j, 0, 1, 0, j == 3 ? max_time : 10 - 3 * time_ms{j});
    queues.enter(r, j, true);
  }
  queues.begin_round(tenant_id(0));
  CHECK(queues.next_on_cells(tenant_id(0), 100) == job_id(0));
  const job_request any = waiting_job(0, 0, 1, 0);
  queues.of(any).ends_by = 107;
  CHECK(queues.next_on_cells(tenant_id(0), 100) == job_id(1));
  CHECK(queues.next_on_cells(tenant_id(0), 101) == job_id(2));
  CHECK_FALSE(queues.next_on_cells(tenant_id(0), 104).has_value());
  queues.of(any).ends_by = max_time;
  CHECK(queues.next_on_cells(tenant_id(0), 104) == job_id(0));
  for (std::uint32_t j = 0; j < 3; ++j)
    queues.leave(waiting_job(j, 0, 1, 0, 10 - 3 * time_ms{j}), j, 104);
  CHECK_FALSE(queues.next_on_cells(tenant_id(0), 104).has_value());  // no estimate
  CHECK(tenant_queues::ends_by(waiting_job(0, 0, 1, 0, 5), 15, 10));
  CHECK_FALSE(tenant_queues::ends_by(waiting_job(0, 0, 1, 0, 5), 15, 11));
  CHECK(tenant_queues::ends_by(waiting_job(0, 0, 1, 0, 5), max_time, 11));
  CHECK_FALSE(tenant_queues::ends_by(waiting_job(0, 0, 1, 0), max_time, 11));
  queues.begin_round(tenant_id(0));
  CHECK(queues.next_on_cells(tenant_id(0), 104) == job_id(3));
  queues.set_causes(
      104, [](tenant_id, bool opportunistic, std::uint32_t gpus, const tenant_queues::queue&) {
        CHECK_FALSE(opportunistic);
        CHECK(gpus == 1);
        return delay_cause::order;
      });
  CHECK(queues.of(any).clock.cause() == delay_cause::order);
}

TEST_CASE("tenant_queues: a job holds others back if it did not fit, and they must not overtake") {
  tenant_queues queues;
  const job_request first = waiting_job(0, 0, 8, 1);
  const job_request small = waiting_job(1, 0, 1, 1);
  const job_request low = waiting_job(2, 0, 2, 0);
  const job_request other = waiting_job(3, 1, 1, 1);
  for (const job_request& r : {first, small, low, other}) queues.enter(r, 5, true);
  queues.of(small).ends_by = 9;
  CHECK_FALSE(queues.holds_back(first));  // not tried yet
  queues.set_full(first, true);
  CHECK(queues.holds_back(first));
  CHECK_FALSE(queues.holds_back(small));
  queues.set_full(low, false);
  CHECK_FALSE(queues.holds_back(low));  // another priority
  queues.set_full(other, false);
  CHECK_FALSE(queues.holds_back(other));  // another tenant
  queues.set_full(small, false);
  CHECK_FALSE(queues.holds_back(first));  // the other one does not fit, either
  queues.retry(tenant_id(0));
  queues.set_full(first, false);
  CHECK(queues.holds_back(first));
  queues.begin_round(tenant_id(0));
  CHECK_FALSE(queues.holds_back(first));
}

TEST_CASE("tenant_queues: a job that comes to wait before the one that was tried last") {
  tenant_queues queues;
  const job_request low = waiting_job(5, 0, 1, 0);
  queues.enter(low, 5, true);
  queues.begin_round(tenant_id(0));
  queues.enter(waiting_job(0, 0, 2, 1), 0, true);
  CHECK_FALSE(queues.passed_over());  // nothing was tried yet
  queues.leave(waiting_job(0, 0, 2, 1), 0, 0);
  CHECK(queues.next_on_cells(tenant_id(0), 5) == job_id(5));
  queues.enter(waiting_job(6, 0, 2, 0), 5, true);   // after it
  queues.enter(waiting_job(7, 1, 2, 1), 5, true);   // of another tenant
  queues.enter(waiting_job(8, 0, 9, 1), 5, false);  // too large for the tenant's cells
  CHECK_FALSE(queues.passed_over());
  SUBCASE("by priority") { queues.enter(waiting_job(9, 0, 2, 1), 9, true); }
  SUBCASE("by arrival") { queues.enter(waiting_job(9, 0, 2, 0), 4, true); }
  SUBCASE("by id") { queues.enter(waiting_job(4, 0, 2, 0), 5, true); }
  CHECK(queues.passed_over());
  queues.begin_round(tenant_id(0));
  CHECK_FALSE(queues.passed_over());
}

TEST_CASE("tenant_queues: the clock of a queue runs while a job waits in it") {
  tenant_queues queues;
  const job_request a = waiting_job(0, 0, 1, 0);
  const job_request b = waiting_job(1, 0, 1, 0);
  const auto set = [&](delay_cause cause, time_ms now) {
    queues.set_causes(
        now, [&](tenant_id, bool, std::uint32_t, const tenant_queues::queue&) { return cause; });
  };
  const auto waited = [](delays until, const delays& since) { return until -= since; };
  queues.enter(a, 10, true);
  const delays a_entered = queues.of(a).clock.at(10);
  set(delay_cause::quota, 10);
  queues.enter(b, 13, true);
  const delays b_entered = queues.of(b).clock.at(13);
  set(delay_cause::order, 14);
  CHECK(waited(queues.leave(a, 10, 20), a_entered).total() == 10);
  const delays of_b = waited(queues.leave(b, 13, 25), b_entered);
  CHECK(of_b[delay_cause::quota] == 1);
  CHECK(of_b[delay_cause::order] == 11);
  CHECK(queues.size() == 0);
  queues.enter(a, 30, true);  // a queue of its own again
  CHECK(queues.size() == 1);
  const delays entered_again = queues.of(a).clock.at(30);
  CHECK(waited(queues.leave(a, 30, 32), entered_again).total() == 2);
}
