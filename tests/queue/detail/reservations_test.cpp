// apiary/tests/queue/detail/reservations_test.cpp - reservations against a slow version that tries every job.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/queue/detail/reservations.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace reservations_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;

// The same by its words: the free GPUs of each millisecond are counted anew for every question.
struct naive_reservations {
  static constexpr time_ms end = 160;  // all jobs but endless ones have ended before
  struct running_job {
    time_ms until = 0;
    std::uint32_t gpus = 0;
  };
  std::int64_t gpus = 0;
  time_ms now = 0;
  std::vector<reserved_job> jobs{};  // in order
  std::vector<running_job> running{};

  [[nodiscard]] std::vector<std::int64_t> free() const {
    std::vector<std::int64_t> at(end, gpus);
    const auto take = [&](time_ms from, time_ms until, std::int64_t some) {
      for (time_ms t = from; t < std::min(until, end); ++t) at[static_cast<std::size_t>(t)] -= some;
    };
    for (const running_job& r : running) take(0, r.until, r.gpus);
    for (const reserved_job& r : jobs) take(r.reserved, add_time(r.reserved, r.length), r.gpus);
    return at;
  }
  // The earliest time for a job without a reservation.
  [[nodiscard]] time_ms earliest(time_ms from, const reserved_job& r) const {
    const std::vector<std::int64_t> at = free();
    for (time_ms t = from; t < end; ++t) {
      time_ms until = t;
      while (until < std::min(add_time(t, r.length), end) &&
             at[static_cast<std::size_t>(until)] >= r.gpus)
        ++until;
      if (until == std::min(add_time(t, r.length), end)) return t;
    }
    return max_time;
  }
  [[nodiscard]] time_ms next_change() const {
    const std::vector<std::int64_t> at = free();
    for (auto t = static_cast<std::size_t>(now) + 1; t < at.size(); ++t)
      if (at[t] != at[t - 1]) return static_cast<time_ms>(t);
    return max_time;
  }
  reserved_job& insert(reserved_job r) {
    r.reserved = max_time;
    return *jobs.insert(std::upper_bound(jobs.begin(), jobs.end(), r, reserved_job::before), r);
  }
  void add(const reserved_job& r) {
    reserved_job& added = insert(r);
    added.reserved = earliest(now, added);
  }
  void move_up(const std::vector<reserved_job>& added) {
    for (const reserved_job& r : added) insert(r);
    for (bool moved = true; moved;) {
      moved = false;
      for (reserved_job& r : jobs) {
        const time_ms before = std::exchange(r.reserved, max_time);
        r.reserved = earliest(now, r);
        moved = moved || r.reserved != before;
      }
    }
  }
  void postpone(reserved_job& r) {
    r.reserved = max_time;
    const time_ms change = next_change();
    if (change != max_time) r.reserved = earliest(change, r);
  }
  [[nodiscard]] std::optional<std::pair<time_ms, std::uint32_t>> first() const {
    std::optional<std::pair<time_ms, std::uint32_t>> least;
    for (const reserved_job& r : jobs)
      if (r.reserved != max_time && (!least || std::pair(r.reserved, r.job.value) < *least))
        least = {r.reserved, r.job.value};
    return least;
  }
};

void require_same(const reservations& fast, const naive_reservations& slow) {
  for (const reserved_job& r : slow.jobs) {
    CAPTURE(r.job.value);
    REQUIRE(fast.find(r) == r.reserved);
  }
  const auto first = fast.first();
  REQUIRE(first.has_value() == slow.first().has_value());
  if (first) REQUIRE(std::pair(first->key, first->id) == *slow.first());
}

TEST_CASE(
    "reservations: every job has the earliest time that the others leave, as in a slow version") {
  std::uint64_t moved = 0;
  std::uint64_t postponed = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(1'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    naive_reservations slow{.gpus = 1 + random.uniform(6)};
    reservations fast(slow.gpus);
    std::uint32_t next_id = 0;
    bool freed = false;
    for (slow.now = 0; slow.now < 30; ++slow.now) {
      CAPTURE(slow.now);
      const time_ms now = slow.now;
      std::erase_if(slow.running, [&](const auto& r) { return r.until <= now; });
      for (auto& r : slow.running) {
        if (random.uniform(4) > 0) continue;
        fast.give(now, r.until, r.gpus);
        r.until = now;
        freed = true;
      }
      if (!slow.jobs.empty() && random.uniform(5) == 0) {
        const auto at =
            slow.jobs.begin() + random.uniform(static_cast<std::uint32_t>(slow.jobs.size()));
        fast.cancel(*at);
        REQUIRE(!fast.find(*at));
        slow.jobs.erase(at);
        freed = true;
      }
      std::vector<reserved_job> added;
      for (std::uint32_t n = random.uniform(3); n > 0 && slow.jobs.size() + added.size() < 10; --n)
        added.push_back({.key = std::int64_t{random.uniform(8)} - 4,
                         .job = job_id(next_id++),
                         .gpus = 1 + random.uniform(static_cast<std::uint32_t>(slow.gpus) + 1),
                         .length = random.uniform(12) == 0 ? max_time : 1 + random.uniform(8)});
      std::sort(added.begin(), added.end(), reserved_job::before);
      fast.forget_before(now);
      const std::vector<reserved_job> before = slow.jobs;
      if (freed) {
        fast.move_up(added);
        slow.move_up(added);
      } else {
        for (const reserved_job& r : added) {
          fast.add(r, now);
          slow.add(r);
        }
      }
      freed = false;
      for (const reserved_job& r : before) moved += *fast.find(r) < r.reserved ? 1U : 0U;
      require_same(fast, slow);
      for (auto first = fast.first(); first && first->key == now; first = fast.first()) {
        const auto is = [&](const reserved_job& r) { return r.job.value == first->id; };
        const auto at = std::find_if(slow.jobs.begin(), slow.jobs.end(), is);
        REQUIRE(at != slow.jobs.end());
        if (random.uniform(4) == 0) {
          fast.postpone(*at, now);
          slow.postpone(*at);
          freed = true;
          ++postponed;
        } else {
          fast.start(*at);
          slow.running.push_back({add_time(now, at->length), at->gpus});
          slow.jobs.erase(at);
        }
        require_same(fast, slow);
      }
    }
  }
  CHECK(moved > 0);
  CHECK(postponed > 0);
}

TEST_CASE(
    "reservations: a job that moves up frees its old time for others, in the same round or the "
    "next") {
  reservations all(2);
  const reserved_job a{.key = 1, .job = job_id(0), .gpus = 2, .length = 10};
  const reserved_job b{.key = 2, .job = job_id(1), .gpus = 2, .length = 20};
  const reserved_job c{.key = 3, .job = job_id(2), .gpus = 1, .length = 5};
  for (const reserved_job& r : {a, b, c}) all.add(r, 0);
  CHECK(all.find(a) == 0);
  CHECK(all.find(b) == 10);
  CHECK(all.find(c) == 30);
  all.start(a);
  all.give(4, 10, 2);  // it ends early
  all.forget_before(4);
  all.move_up({});
  CHECK(all.find(b) == 4);
  CHECK(all.find(c) == 24);
  all.cancel(b);
  all.forget_freed();
  all.move_up({});  // nothing is known to be free
  CHECK(all.find(c) == 24);
  CHECK(!all.find(b));
}

}  // namespace
}  // namespace reservations_tests
