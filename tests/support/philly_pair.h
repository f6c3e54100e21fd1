// apiary/tests/support/philly_pair.h - two Philly schedulers under one host, which must do the same.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace apiary_test {

// The naive scheduler is called at each of its moments, the other one when it asks for it or something
// happens.
template <class Fast, class Naive>
struct philly_pair {
  Fast fast;
  Naive naive;
  std::size_t alone = 0;  // calls that only the naive one wanted

  void submit(const apiary::job_request& r, apiary::time_ms now) {
    REQUIRE(fast.submit(r, now).ok());
    REQUIRE(naive.submit(r, now).ok());
  }
  void finish(apiary::job_id job, apiary::time_ms now) {
    REQUIRE(fast.finish(job, now).ok());
    REQUIRE(naive.finish(job, now).ok());
  }
  // Whether the job waits again.
  bool fail(apiary::job_id job, apiary::failure_class why, apiary::time_ms now) {
    const bool again = fast.fail(job, why, now).value();
    REQUIRE(again == naive.fail(job, why, now).value());
    return again;
  }
  // The jobs that stopped.
  std::vector<apiary::job_id> set_health(apiary::node_id n, bool good, apiary::time_ms now) {
    if (good) {
      REQUIRE(fast.mark_healthy(n, now).ok());
      REQUIRE(naive.mark_healthy(n, now).ok());
      return {};
    }
    std::vector<apiary::job_id> stopped = fast.mark_bad(n, now).value();
    REQUIRE(stopped == naive.mark_bad(n, now).value());
    return stopped;
  }
  std::vector<apiary::job_action> decide(apiary::time_ms now) {
    std::vector<apiary::job_action> a;
    std::vector<apiary::job_action> b;
    REQUIRE(fast.decide(now, a).ok());
    REQUIRE(naive.decide(now, b).ok());
    REQUIRE(a == b);
    REQUIRE(fast.wake() > now);
    return a;
  }
  // Goes on to before `end`; calls decide_both(now) where both are to decide.
  template <class Decide>
  void go_on_until(apiary::time_ms end, Decide&& decide_both) {
    while (naive.wake() < end) {
      const apiary::time_ms now = naive.wake();
      REQUIRE(fast.wake() >= now);
      if (fast.wake() == now) {
        decide_both(now);
        continue;
      }
      std::vector<apiary::job_action> none;
      REQUIRE(naive.decide(now, none).ok());
      REQUIRE(none.empty());
      ++alone;
    }
    REQUIRE(fast.wake() >= end);
  }
};

}  // namespace apiary_test
