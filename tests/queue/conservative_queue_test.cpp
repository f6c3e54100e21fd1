// apiary/tests/queue/conservative_queue_test.cpp - reservations: made, kept, moved up, and lost.
// SPDX-License-Identifier: MIT
#include "support/naive_conservative_queue.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace {

using namespace apiary;
using jobs_by_start = std::vector<job_id>;

// Four servers of one GPU: any will do.
struct reserved_line {
  conservative_queue<server_placer> queue{server_placer::create({.gpus = {1, 1, 1, 1}}).value()};

  void submit(std::uint32_t job, std::uint32_t gpus, time_ms estimate, time_ms now) {
    REQUIRE(queue.submit({.job = job_id(job), .gpus = gpus, .estimate = estimate}, now).ok());
  }
  void finish(std::uint32_t job, time_ms now) { REQUIRE(queue.finish(job_id(job), now).ok()); }
  // Those that start.
  jobs_by_start decide(time_ms now) {
    std::vector<job_action> actions;
    REQUIRE(queue.decide(now, actions).ok());
    jobs_by_start started;
    for (const job_action& a : actions) {
      REQUIRE(a.what == job_action::verb::start);
      started.push_back(a.job);
    }
    return started;
  }
  [[nodiscard]] std::optional<time_ms> at(std::uint32_t job) const {
    return queue.reserved(job_id(job));
  }
};

TEST_CASE("conservative_queue: each job has the earliest start that delays no job before it") {
  reserved_line line;
  line.submit(1, 4, 10, 0);
  line.submit(2, 2, 5, 0);
  line.submit(3, 2, 10, 0);
  line.submit(4, 4, 1, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(1)});
  CHECK(line.at(1) == std::nullopt);
  CHECK(line.at(2) == 10);
  CHECK(line.at(3) == 10);
  CHECK(line.at(4) == 20);
  CHECK(line.at(9) == std::nullopt);
  CHECK(line.queue.wake() == 10);
  CHECK(line.queue.num_waiting() == 3);
  CHECK(line.queue.num_running() == 1);
  // Beside 3, behind 2, until 4 begins: the first fits, the second would delay 4.
  line.submit(5, 2, 5, 1);
  line.submit(6, 2, 6, 1);
  CHECK(line.decide(1).empty());
  CHECK(line.at(5) == 15);
  CHECK(line.at(6) == 21);
  CHECK(line.at(4) == 20);
}

TEST_CASE("conservative_queue: of jobs that arrive together, the lower id is first") {
  reserved_line line;
  line.submit(0, 4, 10, 0);
  line.submit(2, 4, 10, 0);
  line.submit(1, 4, 10, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(0)});
  CHECK(line.at(1) == 10);
  CHECK(line.at(2) == 20);
  // So it stays when all reservations are made again, because 0 runs longer than its estimate.
  CHECK(line.decide(10).empty());
  CHECK(line.at(1) == 20);
  CHECK(line.at(2) == 30);
}

TEST_CASE("conservative_queue: when a job ends early, or is withdrawn, those behind it move up") {
  reserved_line line;
  line.submit(1, 4, 10, 0);
  line.submit(2, 2, 5, 0);
  line.submit(3, 4, 1, 0);
  line.submit(4, 2, 5, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(1)});
  CHECK(line.at(2) == 10);
  CHECK(line.at(3) == 15);
  CHECK(line.at(4) == 10);
  line.finish(1, 4);
  CHECK(line.decide(4) == jobs_by_start{job_id(2), job_id(4)});
  CHECK(line.at(3) == 9);
  line.submit(5, 1, 1, 4);
  CHECK(line.decide(4).empty());
  CHECK(line.at(5) == 10);
  line.finish(3, 5);  // it never ran
  line.finish(4, 5);
  CHECK(line.decide(5) == jobs_by_start{job_id(5)});
  CHECK(line.queue.wake() == max_time);  // no job waits
}

TEST_CASE("conservative_queue: when a job is withdrawn and nothing else happens, others move up") {
  reserved_line line;
  line.submit(1, 4, 10, 0);
  line.submit(2, 4, 5, 0);
  line.submit(3, 4, 1, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(1)});
  CHECK(line.at(3) == 15);
  line.finish(2, 1);  // it never ran
  CHECK(line.decide(1).empty());
  CHECK(line.at(3) == 10);
}

TEST_CASE("conservative_queue: a job that moves up lets an earlier one move up, too") {
  reserved_line line;
  line.submit(1, 2, 10, 0);
  line.submit(2, 2, 20, 0);
  line.submit(3, 4, 5, 0);   // after both
  line.submit(4, 2, 10, 0);  // between the end of 1 and the start of 3
  CHECK(line.decide(0) == jobs_by_start{job_id(1), job_id(2)});
  CHECK(line.at(3) == 20);
  CHECK(line.at(4) == 10);
  line.finish(2, 4);  // 3 cannot move before 4 has
  CHECK(line.decide(4) == jobs_by_start{job_id(4)});
  CHECK(line.at(3) == 14);
}

TEST_CASE("conservative_queue: a job beyond its estimate is taken to run as long again") {
  reserved_line line;
  line.submit(1, 4, 10, 0);
  line.submit(2, 1, 5, 0);
  line.decide(0);
  CHECK(line.queue.wake() == 10);
  CHECK(line.decide(10).empty());
  CHECK(line.at(2) == 20);
  CHECK(line.queue.wake() == 20);
  line.finish(1, 12);
  CHECK(line.decide(12) == jobs_by_start{job_id(2)});
}

TEST_CASE("conservative_queue: the jobs of a broken server wait again, at their old position") {
  reserved_line line;
  line.submit(1, 1, 10, 0);
  line.submit(2, 3, 10, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(1), job_id(2)});
  line.submit(3, 2, 4, 1);
  line.submit(4, 4, 4, 1);
  CHECK(line.decide(1).empty());
  CHECK(line.at(3) == 10);
  CHECK(line.at(4) == 14);
  REQUIRE(line.queue.placer().jobs_on(node_id(3)) == jobs_by_start{job_id(2)});
  const auto stopped = line.queue.mark_bad(node_id(3), 2);
  REQUIRE(stopped.ok());
  CHECK(*stopped == jobs_by_start{job_id(2)});
  // 2 comes before 3, which is not in its way; no four servers are left for 4.
  CHECK(line.decide(2) == jobs_by_start{job_id(3)});
  CHECK(line.at(2) == 10);
  CHECK(line.at(4) == max_time);
  REQUIRE(line.queue.mark_healthy(node_id(3), 3).ok());
  CHECK(line.decide(3).empty());
  CHECK(line.at(2) == 6);
  CHECK(line.at(4) == 16);
}

TEST_CASE("conservative_queue: jobs beyond the depth have no reservation and do not start") {
  reserved_line line{conservative_queue<server_placer>(
      server_placer::create({.gpus = {1, 1, 1, 1}}).value(), {.depth = 2})};
  line.submit(1, 3, 10, 0);
  line.submit(2, 4, 10, 0);
  line.submit(3, 4, 10, 0);
  line.submit(4, 1, 10, 0);  // would fit beside 1
  CHECK(line.decide(0) == jobs_by_start{job_id(1)});
  CHECK(line.at(2) == 10);
  CHECK(line.at(3) == 20);
  CHECK(line.at(4) == max_time);
  CHECK(line.queue.wake() == 10);
  line.finish(3, 1);  // withdrawn: 4 may have a reservation instead
  CHECK(line.decide(1).empty());
  CHECK(line.at(4) == 20);
  line.submit(5, 1, 9, 1);
  line.finish(4, 1);
  CHECK(line.decide(1) == jobs_by_start{job_id(5)});
  // When a job starts, the next one gets a reservation at once, and may start, too.
  line.submit(6, 4, 10, 2);
  line.submit(7, 1, 10, 2);
  line.submit(8, 4, 10, 2);
  CHECK(line.decide(2).empty());
  CHECK(line.at(7) == max_time);
  line.finish(1, 10);
  line.finish(5, 10);
  CHECK(line.decide(10) == jobs_by_start{job_id(2)});
  CHECK(line.at(6) == 20);
  CHECK(line.at(7) == 30);
  CHECK(line.at(8) == max_time);
}

// Servers of two GPUs, one of four; at most one job has a reservation.
struct depth_of_one : reserved_line {
  depth_of_one()
      : reserved_line{conservative_queue<server_placer>(
            server_placer::create({.gpus = {2, 2, 4}}).value(), {.depth = 1})} {}
};

TEST_CASE("conservative_queue: jobs that wait for a repair do not fill the depth") {
  depth_of_one line;
  REQUIRE(line.queue.mark_bad(node_id(2), 0).ok());
  line.submit(1, 8, 10, 0);  // more GPUs than are healthy
  line.submit(2, 4, 10, 0);  // as many as are healthy, but on two servers
  line.submit(3, 3, 10, 0);
  line.submit(4, 2, 10, 0);
  line.submit(5, 2, 10, 0);
  line.submit(6, 2, 10, 0);
  line.submit(7, 2, 10, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(4), job_id(5)});
  CHECK(line.at(1) == max_time);
  CHECK(line.at(2) == max_time);
  CHECK(line.at(3) == max_time);
  CHECK(line.at(6) == 10);
  CHECK(line.at(7) == max_time);
  line.finish(2, 1);  // withdrawn
  CHECK(line.decide(1).empty());
  CHECK(line.at(7) == max_time);
  REQUIRE(line.queue.mark_healthy(node_id(2), 2).ok());
  CHECK(line.decide(2).empty());
  CHECK(line.at(1) == 10);  // the first in the order again
  CHECK(line.at(6) == max_time);
}

TEST_CASE("conservative_queue: jobs that follow one without an estimate do not fill the depth") {
  depth_of_one line;
  line.submit(1, 4, max_time, 0);
  line.submit(2, 8, 10, 0);  // never, by the estimates
  line.submit(3, 7, 10, 0);
  line.submit(4, 2, 10, 0);
  line.submit(5, 4, 10, 0);
  line.submit(6, 2, 10, 0);
  CHECK(line.decide(0) == jobs_by_start{job_id(1), job_id(4)});
  CHECK(line.at(2) == max_time);
  CHECK(line.at(3) == max_time);
  CHECK(line.at(5) == 10);  // the only known start
  CHECK(line.at(6) == max_time);
  // The starts of both jobs become known: there are more reservations than the depth.
  line.finish(1, 5);
  CHECK(line.decide(5) == jobs_by_start{job_id(5)});
  CHECK(line.at(2) == 15);
  CHECK(line.at(3) == 25);
  CHECK(line.at(6) == max_time);
}

TEST_CASE("conservative_queue: what is wrong is refused with a reason") {
  reserved_line line;
  using absl::StatusCode;
  const auto refused = [&](const job_request& r) { return line.queue.submit(r, 0).code(); };
  CHECK(refused({.gpus = 1, .estimate = 1}) == StatusCode::kInvalidArgument);
  CHECK(refused({.job = job_id(1), .gpus = 1, .estimate = -1}) == StatusCode::kInvalidArgument);
  CHECK(refused({.job = job_id(1), .gpus = 5, .estimate = 1}) == StatusCode::kInvalidArgument);
  line.submit(1, 1, 1, 0);
  CHECK(refused({.job = job_id(1), .gpus = 1, .estimate = 1}) == StatusCode::kAlreadyExists);
  CHECK(line.queue.finish(job_id(2), 0).code() == StatusCode::kNotFound);
  CHECK(line.queue.mark_bad(node_id(4), 0).status().code() == StatusCode::kNotFound);
  CHECK(line.queue.mark_healthy(node_id(4), 0).code() == StatusCode::kNotFound);
  CHECK(line.queue.num_waiting() == 1);
  CHECK(line.queue.total_gpus() == 4);
}

// A queue and the naive one, with the same jobs and the same host.
struct two_queues {
  conservative_queue<server_placer> fast;
  apiary_test::naive_conservative_queue naive;
  bool exact;                                    // jobs run to their estimates
  std::map<std::uint32_t, time_ms> ends{};       // when each job ends; max_time: it waits
  std::map<std::uint32_t, time_ms> estimates{};  // of all jobs so far

  two_queues(const server_placer& placer, bool to_estimates, std::size_t depth)
      : fast(placer, {.depth = depth}), naive(placer, depth), exact(to_estimates) {}
  // The next time when a queue asks for a call or a job ends.
  [[nodiscard]] time_ms next() const {
    time_ms at = fast.wake();
    for (const auto& [job, end] : ends) at = std::min(at, end);
    return at;
  }
  // Returns how many jobs wait.
  std::size_t decide(time_ms now, rng& random) {
    std::vector<job_action> a;
    std::vector<job_action> b;
    REQUIRE(fast.decide(now, a).ok());
    REQUIRE(naive.decide(now, b).ok());
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      REQUIRE(a[i].job == b[i].job);
      REQUIRE(a[i].where == b[i].where);
      const time_ms estimate = estimates.at(a[i].job.value);
      ends[a[i].job.value] =
          now + (exact && estimate != max_time ? estimate : 1 + random.uniform(40));
    }
    for (const auto& [job, end] : ends)
      REQUIRE(fast.reserved(job_id(job)) == naive.reserved(job_id(job)));
    REQUIRE(fast.wake() == naive.wake());
    return fast.num_waiting();
  }
  void finish(std::uint32_t job, time_ms now) {
    REQUIRE(fast.finish(job_id(job), now).ok());
    REQUIRE(naive.finish(job_id(job), now).ok());
    ends.erase(job);
  }
};

// Servers on which jobs that are counted to fit may not fit, estimates that are too long, too short or
// missing, withdrawals, broken servers, a host that is late at times, and at times few reservations.
TEST_CASE("conservative_queue: every start and reservation is that of the naive queue") {
  std::size_t waited = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> servers(1 + random.uniform(5));
    for (std::uint32_t& gpus : servers) gpus = 1 + random.uniform(4);
    const server_placer placer =
        server_placer::create({.gpus = servers, .anywhere = random.uniform(3) == 0}).value();
    const bool exact = random.uniform(3) == 0;
    two_queues both(placer, exact, static_cast<std::size_t>(seed % 3 == 2 ? 1 + seed / 3 % 5 : 0));
    const std::uint32_t longest = 1 + random.uniform(60);
    const bool late = random.uniform(4) == 0;
    time_ms now = 0;
    std::uint32_t fresh = 0;
    for (int step = 0; step < 150; ++step) {
      CAPTURE(step);
      const time_ms due = both.next();
      now = late || due > now + 9 ? now + random.uniform(10) : std::max(now, due);
      for (const auto& [job, end] : std::map(both.ends)) {
        if (end <= now) both.finish(job, now);
      }
      const std::uint32_t event = random.uniform(20);
      for (std::uint32_t i = random.uniform(4); i > 0 && event < 16 && both.ends.size() < 40; --i) {
        const time_ms estimate = random.uniform(30) == 0 ? max_time : random.uniform(longest);
        const job_request r{.job = job_id(fresh++ ^ 1U),  // not in order
                            .gpus = 1 + random.uniform(placer.total_gpus()),
                            .estimate = estimate};
        REQUIRE(both.fast.submit(r, now).ok());
        REQUIRE(both.naive.submit(r, now).ok());
        both.ends[r.job.value] = max_time;
        both.estimates[r.job.value] = estimate;
      }
      if (event == 16 && !both.ends.empty()) both.finish(both.ends.begin()->first, now);
      if (event > 17) {
        const node_id n(random.uniform(static_cast<std::uint32_t>(servers.size())));
        if (event == 18) {
          const auto stopped = both.fast.mark_bad(n, now);
          REQUIRE(stopped.value() == both.naive.mark_bad(n, now).value());
          for (const job_id job : *stopped) both.ends[job.value] = max_time;
        } else {
          REQUIRE(both.fast.mark_healthy(n, now).ok());
          REQUIRE(both.naive.mark_healthy(n, now).ok());
        }
      }
      waited += both.decide(now, random);
    }
  }
  CHECK(waited > 0);
}

}  // namespace
