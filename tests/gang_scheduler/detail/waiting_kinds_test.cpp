// apiary/tests/gang_scheduler/detail/waiting_kinds_test.cpp - which waiting jobs are tried, and how often.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/waiting_kinds.h>

#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace waiting_kinds_tests {
namespace {

using namespace apiary;
using kinds = detail::waiting_kinds;
using key = kinds::order_key;

struct waiting_job {
  std::uint32_t kind = 0;
  time_ms estimate = 0;
};
// Jobs of kind k need k + 1 of the free GPUs. A job that is longer than `longest` delays the first one
// if fewer than `kept` GPUs would be left.
struct gpu_count {
  std::map<key, waiting_job> waiting{};
  std::uint32_t free = 0, kept = 0;
  time_ms longest = 0;

  [[nodiscard]] kinds::outcome outcome_of(const waiting_job& j) const {
    if (j.kind + 1 > free) return kinds::outcome::does_not_fit;
    if (j.estimate > longest && free < kept + j.kind + 1) return kinds::outcome::would_delay;
    return kinds::outcome::started;
  }
};

TEST_CASE("waiting_kinds: the same jobs start as if every job were tried") {
  std::uint64_t delayed = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    kinds fast;
    gpu_count slow;
    std::uint64_t submitted = 0;
    for (int round = 0; round < 20; ++round) {
      for (std::uint32_t n = random.uniform(8); n > 0; --n) {
        const key at{random.uniform(2), submitted++};
        const waiting_job j{random.uniform(4), random.uniform(10)};
        slow.waiting[at] = j;
        fast.insert(j.kind, at, j.estimate);
      }
      if (random.uniform(2) == 0) {
        slow.free += random.uniform(6);
        slow.kept = random.uniform(4);
        slow.longest = random.uniform(10);
        fast.retry();
      } else if (random.uniform(2) == 0) {
        slow.kept = random.uniform(4);
        slow.longest = random.uniform(10);
        fast.forget_delays();
      }
      if (slow.waiting.empty()) continue;
      gpu_count copy = slow;
      const key first = slow.waiting.begin()->first;
      std::vector<key> expected;
      for (auto next = ++slow.waiting.begin(); next != slow.waiting.end();) {
        const auto job = next++;
        const kinds::outcome came = slow.outcome_of(job->second);
        delayed += came == kinds::outcome::would_delay ? 1U : 0U;
        if (came != kinds::outcome::started) continue;
        expected.push_back(job->first);
        slow.free -= job->second.kind + 1;
        slow.waiting.erase(job);
      }
      std::vector<key> started;
      const auto try_job = [&](const key& at) -> absl::StatusOr<kinds::outcome> {
        const waiting_job j = copy.waiting.at(at);
        const kinds::outcome came = copy.outcome_of(j);
        if (came == kinds::outcome::started) {
          started.push_back(at);
          copy.free -= j.kind + 1;
          copy.waiting.erase(at);
          fast.erase(j.kind, at);
        }
        return came;
      };
      REQUIRE(fast.visit(first, slow.longest, try_job).ok());
      REQUIRE(started == expected);
    }
  }
  CHECK(delayed > 0);
}

TEST_CASE("waiting_kinds: one job of a kind is tried until something changes") {
  kinds waiting;
  for (std::uint32_t i = 0; i < 300; ++i) waiting.insert(i % 3, {0, i}, 10);
  std::map<std::uint64_t, std::uint32_t> tries;
  // Kind 0 does not fit, kind 1 would delay the first job.
  const auto try_job = [&](const key& at) -> absl::StatusOr<kinds::outcome> {
    ++tries[at.second % 3];
    if (at.second % 3 < 2)
      return at.second % 3 == 0 ? kinds::outcome::does_not_fit : kinds::outcome::would_delay;
    if (at.second > 20) return kinds::outcome::does_not_fit;
    waiting.erase(2, at);
    return kinds::outcome::started;
  };
  const auto counts = [&](time_ms longest) {
    tries.clear();
    REQUIRE(waiting.visit({0, 0}, longest, try_job).ok());
    return std::vector<std::uint32_t>{tries[0], tries[1], tries[2]};
  };
  // Jobs 2, 5, ..., 20 start, and after each one kind 1 is tried again; 23 does not fit.
  CHECK(counts(9) == std::vector<std::uint32_t>{1, 8, 8});
  CHECK(counts(9) == std::vector<std::uint32_t>{0, 0, 0});
  waiting.forget_delays();
  CHECK(counts(9) == std::vector<std::uint32_t>{0, 1, 0});
  waiting.insert(1, {0, 301}, 9);  // short enough
  CHECK(counts(9) == std::vector<std::uint32_t>{0, 1, 0});
  waiting.retry();
  CHECK(counts(9) == std::vector<std::uint32_t>{1, 2, 1});
}

TEST_CASE("waiting_kinds: an error ends the visit") {
  kinds waiting;
  waiting.insert(0, {0, 0}, 1);
  waiting.insert(0, {0, 1}, 1);
  const auto fails = [](const key&) -> absl::StatusOr<kinds::outcome> {
    return absl::InternalError("broken");
  };
  CHECK(waiting.visit({0, 0}, 1, fails).message() == "broken");
}

}  // namespace
}  // namespace waiting_kinds_tests
