// apiary/tests/gandiva/detail/relocation_test.cpp - no job starves under higher priorities; weights, delays.
// SPDX-License-Identifier: MIT
#include "support/gandiva_scene.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/gandiva/detail/pack_trials.h>
#include <apiary/gandiva/gandiva.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace gandiva_relocation_tests {
namespace {

using namespace apiary;

// A host that keeps its requests and the answers.
struct host {
  gandiva scheduler;
  std::map<job_id, job_request> jobs{};
  std::vector<job_action> actions{};

  explicit host(const gandiva_options& options) : scheduler(gandiva::create(options).value()) {}
  explicit host(std::vector<std::uint32_t> gpus)
      : host(gandiva_options{.servers = {.gpus = std::move(gpus)}, .quantum = 60}) {}

  void submit(const job_request& r, time_ms now) {
    REQUIRE(scheduler.submit(r, now).ok());
    jobs[r.job] = r;
  }
  void finish(std::uint32_t job, time_ms now) {
    REQUIRE(scheduler.finish(job_id(job), now).ok());
    jobs.erase(job_id(job));
  }
  void decide(time_ms now) {
    actions.clear();
    REQUIRE(scheduler.decide(now, actions).ok());
    REQUIRE(scheduler.wake() > now);
  }
  void come(std::uint32_t job, std::uint32_t gpus, time_ms now, std::int32_t priority = 0) {
    submit({.job = job_id(job), .priority = priority, .gpus = gpus}, now);
    decide(now);
  }
  [[nodiscard]] bool runs(std::uint32_t job) const {
    return scheduler.find(job_id(job))->phase == gandiva::phase::run;
  }
  [[nodiscard]] std::uint32_t server(std::uint32_t job) const {
    return scheduler.find(job_id(job))->server.value;
  }
  // How long the job whose action is in the last decision had waited.
  [[nodiscard]] delays waited(std::uint32_t job) const {
    for (const job_action& a : actions) {
      if (a.job == job_id(job)) return a.waited;
    }
    FAIL("no action");
    return {};
  }

  [[nodiscard]] bool acted(job_id job) const {
    return std::any_of(actions.begin(), actions.end(),
                       [&](const job_action& a) { return a.job == job; });
  }
  // GPUs of the server that jobs over several have.
  [[nodiscard]] std::uint32_t pinned(node_id n) const {
    std::uint32_t sum = 0;
    for (std::uint32_t d = 0; d < scheduler.pool().gpus(n); ++d) {
      const job_id owner = scheduler.pool().owner(n, d);
      sum += owner.valid() && !scheduler.find(owner)->server.valid() ? 1U : 0U;
    }
    return sum;
  }
  // By the words: whether those of higher priority leave the job its GPUs there.
  [[nodiscard]] bool gets_slices(const job_request& r, node_id n) const {
    std::uint32_t wanted = r.gpus + pinned(n);
    for (const auto& [job, other] : jobs) {
      if (scheduler.find(job)->server == n && other.priority > r.priority) wanted += other.gpus;
    }
    return wanted <= scheduler.pool().gpus(n);
  }
  // No job waits under higher priorities that would get time slices elsewhere.
  void nobody_starves() const {
    for (const auto& [job, r] : jobs) {
      const gandiva::standing s = *scheduler.find(job);
      if (s.phase != gandiva::phase::suspended || gets_slices(r, s.server)) continue;
      if (acted(job)) continue;  // suspended just now
      for (const node_id n : scheduler.pool().servers()) {
        const std::uint32_t affinity = scheduler.affinity(n);
        if (affinity == 0 || affinity + pinned(n) > scheduler.pool().gpus(n)) continue;
        REQUIRE(!gets_slices(r, n));
      }
    }
  }
};

}  // namespace

TEST_CASE("gandiva: on a server full of higher priority a job moves to where it gets time slices") {
  host h({1, 1});
  h.come(0, 1, 1, 5);
  h.come(1, 1, 2);
  h.come(2, 1, 3);
  CHECK(h.server(0) == 0);
  CHECK(h.server(1) == 1);
  CHECK(h.server(2) == 0);
  std::map<std::uint32_t, int> quanta;
  for (time_ms now = 60; now <= 600; now += 60) {
    h.decide(now);
    for (std::uint32_t job = 0; job < 3; ++job) quanta[job] += h.runs(job) ? 1 : 0;
  }
  CHECK(h.server(2) == 1);
  CHECK(quanta[0] == 10);
  CHECK(quanta[1] == 5);
  CHECK(quanta[2] == 5);
}

TEST_CASE("gandiva: to unsubscribed GPUs, the job moves that ran least") {
  apiary_test::gandiva_scene s;
  s.running(1, 4, node_id(0));
  s.running(4, 2, node_id(1));
  s.settled(2, 2, node_id(0));
  s.settled(3, 2, node_id(0));
  s.at(2).pass = 10;
  s.at(3).pass = 5;
  detail::gandiva_packing packing(2, 100);
  detail::gandiva_relocation::into_unsubscribed(s.jobs, packing);
  CHECK(s.at(2).home == node_id(0));
  CHECK(s.at(3).home == node_id(1));
}

TEST_CASE("gandiva: a job under higher priorities prefers servers of its size, the least loaded") {
  host h({2, 2, 2, 2});
  h.come(0, 2, 1, 5);
  h.come(1, 2, 2);
  h.come(2, 2, 3, 1);
  h.come(3, 1, 4);
  h.come(4, 1, 5);
  h.come(5, 2, 6);  // to server 0, and 6 and 7 to the next ones
  h.come(6, 2, 7);
  h.come(7, 2, 8);
  CHECK(h.server(5) == 0);
  CHECK(h.server(6) == 1);
  CHECK(h.server(7) == 2);
  h.decide(60);  // 5 and 7 leave for server 1: there is less on server 3, but jobs of another size
  CHECK(h.server(5) == 1);
  CHECK(h.server(6) == 1);
  CHECK(h.server(7) == 1);
  h.nobody_starves();
  host mixed({2, 2});
  mixed.come(0, 2, 1, 5);
  mixed.come(1, 1, 2);
  mixed.come(2, 1, 3);
  mixed.come(3, 2, 4);
  CHECK(mixed.server(3) == 0);
  mixed.decide(60);  // there is none of its size
  CHECK(mixed.server(3) == 1);
  int quanta = 0;
  for (time_ms now = 120; now <= 1200; now += 60) {
    mixed.decide(now);
    quanta += mixed.runs(3) ? 1 : 0;
  }
  CHECK(quanta >= 9);
}

TEST_CASE("gandiva: random priorities: no job starves where a server has time slices for it") {
  std::uint64_t moved = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(5));
    for (std::uint32_t& g : gpus) g = 1 + random.uniform(4);
    host h(gpus);
    time_ms now = 0;
    for (std::uint32_t next = 0; next < 60; ++next) {
      const std::uint32_t wanted = 1 + random.uniform(3);
      if (wanted <= h.scheduler.total_gpus()) {
        h.submit({.job = job_id(next),
                  .priority = static_cast<std::int32_t>(random.uniform(4)),
                  .gpus = wanted},
                 now);
      }
      if (random.uniform(3) == 0 && !h.jobs.empty()) {
        const auto n = random.uniform(static_cast<std::uint32_t>(h.jobs.size()));
        h.finish(std::next(h.jobs.begin(), n)->first.value, now);
      }
      std::map<job_id, node_id> before;
      for (const auto& [job, r] : h.jobs) before[job] = h.scheduler.find(job)->server;
      h.decide(now);
      for (const auto& [job, n] : before)
        moved += n.valid() && h.scheduler.find(job)->server != n ? 1U : 0U;
      if (now % 60 == 0) h.nobody_starves();
      now += random.uniform(3) == 0 ? 60 - now % 60 : random.uniform(20);
    }
    for (now += 60 - now % 60; !h.jobs.empty(); now += 60) {
      h.decide(now);
      h.nobody_starves();
      if (now % 300 == 0) h.finish(h.jobs.begin()->first.value, now);
    }
  }
  CHECK(moved > 0);
}

TEST_CASE("gandiva: time slices by weight, and what is no weight") {
  host h({2});
  h.submit({.job = job_id(0), .gpus = 2, .weight = 3}, 0);
  h.submit({.job = job_id(1), .gpus = 2}, 0);
  h.submit({.job = job_id(2), .gpus = 2, .weight = 2}, 0);
  std::map<std::uint32_t, int> quanta;
  for (time_ms now = 0; now < 600 * time_ms{60}; now += 60) {
    h.decide(now);
    for (std::uint32_t job = 0; job < 3; ++job) quanta[job] += h.runs(job) ? 1 : 0;
  }
  CHECK(quanta[0] == 300);
  CHECK(quanta[1] == 100);
  CHECK(quanta[2] == 200);
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(h.scheduler.submit({.job = job_id(3), .weight = 0}, 0).code() == invalid);
  CHECK(h.scheduler.submit({.job = job_id(3), .weight = 1001}, 0).code() == invalid);
  CHECK(h.scheduler.submit({.job = job_id(3), .weight = 1000}, 36'000).ok());
  CHECK(h.scheduler.num_jobs() == 4);
}

TEST_CASE("gandiva: a host that is always late gives time slices all the same") {
  for (const std::uint32_t max_late : {1U, 7U, 59U}) {
    CAPTURE(max_late);
    host h({4});
    rng random(max_late);
    for (std::uint32_t job = 0; job < 6; ++job) h.submit({.job = job_id(job)}, 1);
    std::map<std::uint32_t, time_ms> had;
    time_ms now = 1;
    int changed = 0;
    h.decide(now);
    for (int round = 0; round < 600; ++round) {
      REQUIRE(h.scheduler.wake() == (now / 60 + 1) * 60);
      const time_ms next = h.scheduler.wake() + 1 + random.uniform(max_late);
      for (std::uint32_t job = 0; job < 6; ++job) had[job] += h.runs(job) ? next - now : 0;
      now = next;
      h.decide(now);
      changed += h.actions.empty() ? 0 : 1;
    }
    CHECK(changed > 300);
    for (const auto& [job, time] : had) CHECK(std::abs(time * 6 - now * 4) < 6 * 4 * 120);
  }
}

TEST_CASE("gandiva: a job waits for capacity, fragmentation or its time slice") {
  host h({2, 2});
  h.come(0, 2, 1);
  h.come(1, 2, 2);
  h.come(2, 2, 3);  // suspended from the first
  h.decide(60);
  CHECK(h.waited(2)[delay_cause::order] == 57);
  CHECK(h.waited(2).total() == 57);
  h.finish(1, 61);
  h.finish(2, 61);
  h.decide(61);
  CHECK(h.waited(0)[delay_cause::order] == 1);
  // A job of one server's GPUs and one of the other's: three want both, and there is no such server.
  h.come(3, 3, 70);
  CHECK(h.scheduler.find(job_id(3))->phase == gandiva::phase::queued);
  h.come(4, 1, 75);
  h.come(5, 1, 80);
  h.finish(4, 90);
  h.decide(90);
  h.finish(0, 100);
  h.decide(100);
  CHECK(h.waited(3)[delay_cause::fragmentation] == 0);
  CHECK(h.waited(3)[delay_cause::capacity] == 30);
  // Two GPUs idle on a server that is over-subscribed, and nothing to unsubscribed.
  host two({3, 4});
  two.come(0, 2, 0);
  two.come(1, 4, 0);
  two.come(2, 2, 0);
  CHECK(two.server(2) == 0);
  CHECK(two.scheduler.pool().idle() == 1);
  two.come(3, 1, 5);  // 1 GPU is idle, but not to unsubscribed
  two.come(4, 3, 6);  // too few are
  CHECK(two.scheduler.find(job_id(3))->phase == gandiva::phase::queued);
  two.finish(0, 20);
  two.finish(2, 20);
  two.decide(20);
  CHECK(two.waited(3)[delay_cause::fragmentation] == 15);
  CHECK(two.waited(3).total() == 15);
  CHECK(two.scheduler.mark_bad(node_id(0), 30).ok());
  two.decide(30);
  CHECK(two.scheduler.mark_healthy(node_id(0), 45).ok());
  two.decide(45);
  CHECK(two.waited(3)[delay_cause::capacity] == 15);
  CHECK(two.waited(3).total() == 15);
}

}  // namespace gandiva_relocation_tests
