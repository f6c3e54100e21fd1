// apiary/tests/philly/detail/philly_queues_test.cpp - waiting jobs of Philly, against a list that is scanned.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/philly/detail/philly_queues.h>
#include <apiary/philly/options.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace philly_wait_queues_tests {
namespace {

using namespace apiary;
using detail::philly_cycle;
using detail::philly_wait_queues;

TEST_CASE("philly_cycle: as a job that acquires and backs off, millisecond by millisecond") {
  for (time_ms acquire = 1; acquire <= 4; ++acquire)
    for (time_ms backoff = 1; backoff <= 4; ++backoff)
      for (const time_ms first : {0, 3, 11}) {
        const philly_cycle cycle{acquire, backoff};
        REQUIRE(cycle.length() == acquire + backoff);
        time_ms begun = first;
        std::uint32_t tries = 0;
        bool acquires = true;
        for (time_ms now = first; now < first + 40; ++now) {
          CAPTURE(now);
          if (acquires && now == begun + acquire) {
            acquires = false;
            ++tries;
          } else if (now == begun + acquire + backoff) {
            acquires = true;
            begun = now;
            REQUIRE(cycle.after(first, tries) == now);
          }
          REQUIRE(cycle.acquires(first, now) == acquires);
          REQUIRE(cycle.begun(first, now) == begun);
          REQUIRE(cycle.tries(first, now) == tries);
        }
        REQUIRE(cycle.after(first, 0) == first);
        const time_ms most = (max_time - first) / cycle.length();
        REQUIRE(cycle.after(first, most) == first + most * cycle.length());
        REQUIRE(cycle.after(first, most + 1) == max_time);
        REQUIRE(cycle.after(first, max_time) == max_time);
      }
}

// A waiting job as the naive list has it.
struct waiting {
  job_request request{};
  time_ms key = 0;
  job_locality locality = job_locality::packed;
  time_ms began = 0;
  delays entered{};
  delays waited{};
  delay_cause cause = delay_cause::capacity;
};

TEST_CASE("philly_wait_queues: random jobs, as a scan of all jobs says") {
  std::size_t found_first = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const philly_cycle cycle{1 + random.uniform(6), 1 + random.uniform(6)};
    philly_wait_queues queues(cycle);
    std::vector<waiting> all;  // by id
    time_ms now = random.uniform(10);
    for (std::uint32_t step = 0; step < 60; ++step) {
      CAPTURE(step);
      const time_ms passed = random.uniform(4);
      now += passed;
      for (waiting& w : all) w.waited[w.cause] += passed;
      const std::uint32_t what = random.uniform(4);
      if (what < 2 || all.empty()) {
        waiting w;
        w.request = {.job = job_id(step),
                     .tenant = tenant_id(random.uniform(2)),
                     .gpus = 1 + random.uniform(2)};
        w.key = random.uniform(5);
        w.locality = static_cast<job_locality>(random.uniform(3));
        w.began = now;
        w.entered = queues.enter(w.request, w.key, w.locality, now);
        all.push_back(std::move(w));
      } else {
        const auto at = all.begin() + static_cast<std::ptrdiff_t>(
                                          random.uniform(static_cast<std::uint32_t>(all.size())));
        REQUIRE(queues.waited(at->request, at->entered, now) == at->waited);
        if (what == 2) {
          const auto to = static_cast<job_locality>(random.uniform(3));
          queues.relax(at->request, at->began, at->key, at->locality, to);
          at->locality = to;
        } else {
          queues.leave(at->request, at->began, at->locality);
          all.erase(at);
        }
      }
      const auto cause = [&](tenant_id t, std::uint32_t gpus) {
        return static_cast<delay_cause>((seed + step / 3 + t.value + gpus) % 4);
      };
      queues.set_causes(cause, now);
      for (waiting& w : all) w.cause = cause(w.request.tenant, w.request.gpus);

      const std::uint32_t allowed = random.uniform(1U << 12);
      const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality l) {
        return (allowed >> (t.value * 6 + (gpus - 1) * 3 + static_cast<std::uint32_t>(l)) & 1) != 0;
      };
      const auto is_allowed = [&](const waiting& w) {
        return may(w.request.tenant, w.request.gpus, w.locality);
      };
      const auto check_first = [&](std::optional<philly_wait_queues::entry> first,
                                   std::optional<tenant_id> of) {
        const waiting* best = nullptr;
        for (const waiting& w : all) {
          if (!is_allowed(w) || (of && w.request.tenant != *of)) continue;
          if (!cycle.acquires(w.began, now)) continue;
          if (best == nullptr || w.key < best->key) best = &w;
        }
        REQUIRE(first.has_value() == (best != nullptr));
        if (best == nullptr) return;
        ++found_first;
        REQUIRE(first->job == best->request.job);
        REQUIRE(first->key == best->key);
        REQUIRE(first->gpus == best->request.gpus);
        REQUIRE(first->locality == best->locality);
      };
      check_first(queues.first_that(now, may), std::nullopt);
      for (const tenant_id t : {tenant_id(0), tenant_id(1)})
        check_first(queues.first_that(t, now, may), t);

      philly_wait_queues::beginning after{now, {}};
      for (int i = 0; i < 5; ++i) {
        philly_wait_queues::beginning expected;
        for (time_ms t = after.at; t <= after.at + cycle.length() && !expected.job.valid(); ++t)
          for (const waiting& w : all)
            if (is_allowed(w) && (t - w.began) % cycle.length() == 0 && !expected.job.valid() &&
                std::pair(after.at, after.job) < std::pair(t, w.request.job))
              expected = {t, w.request.job};
        const philly_wait_queues::beginning next = queues.next(after, may);
        REQUIRE(next.at == expected.at);
        REQUIRE(next.job == expected.job);
        if (next.at == max_time) break;
        after = next;
      }
      time_ms change = max_time;
      for (time_ms t = now + 1; t <= now + cycle.length() && change == max_time; ++t)
        for (const waiting& w : all)
          if (cycle.acquires(w.began, t) != cycle.acquires(w.began, t - 1)) change = t;
      REQUIRE(queues.next_change(now) == change);
    }
  }
  CHECK(found_first > 0);
}

}  // namespace
}  // namespace philly_wait_queues_tests
