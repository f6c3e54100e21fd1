// apiary/tests/gandiva/backend_test.cpp - what a backend must have, and which jobs it tries to migrate.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/backend.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace gandiva_backend_tests {
namespace {

using namespace apiary;

// Has everything that the tables of the header list. A placement is a number.
struct smallest_backend {
  using request = job_request;
  using placement_type = int;
  [[nodiscard]] std::int32_t priority(const request&) const { return -1; }
  absl::StatusOr<bool> start(const request&, std::vector<job_id>&) { return false; }
  bool may_start(const request&) { return false; }
  placement_type stop(job_id) { return 0; }
  bool restart(const request&, placement_type) { return true; }
  [[nodiscard]] placement_type placement_of(job_id) const { return 0; }
  void improve(std::span<const job_id>, const time_sharing_options::migration_limits&,
               std::vector<job_id>&) {}
  absl::Status mark(node_id, bool) { return absl::OkStatus(); }
  [[nodiscard]] bool empty() const { return true; }
};
struct backend_of_jobs : smallest_backend {
  absl::Status check(const request&) { return absl::OkStatus(); }
  [[nodiscard]] job_placement job_placement_of(placement_type) const { return {}; }
  [[nodiscard]] std::uint32_t entitled_gpus(tenant_id) const { return 0; }
  [[nodiscard]] std::uint32_t gpus(node_id) const { return 0; }
  [[nodiscard]] std::uint32_t total_gpus() const { return 0; }
};
struct reads_no_priority : smallest_backend {
  std::int32_t priority(const request&) { return -1; }  // not const
};
struct ends_without_placement : smallest_backend {
  void stop(job_id) {}
};
struct other_requests : backend_of_jobs {
  struct request {
    job_id job{};
  };
};

static_assert(TimeSharingBackend<smallest_backend>);
static_assert(!JobBackend<smallest_backend>);
static_assert(JobBackend<backend_of_jobs>);
static_assert(!TimeSharingBackend<reads_no_priority>);
static_assert(!TimeSharingBackend<ends_without_placement>);
static_assert(!JobBackend<other_requests>);

TEST_CASE("migrate_round_robin: jobs take turns, also while others come and go") {
  std::uint64_t stopped_early = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<job_id> movable;
    job_id next{};
    if (random.uniform(2) == 0) next = job_id(random.uniform(12));
    for (int call = 0; call < 12; ++call) {
      CAPTURE(call);
      for (int change = 0; change < 2; ++change) {
        const job_id job(random.uniform(12));
        const auto at = std::lower_bound(movable.begin(), movable.end(), job);
        if (at != movable.end() && *at == job)
          movable.erase(at);
        else
          movable.insert(at, job);
      }
      const std::uint32_t trials = random.uniform(6);
      const std::uint32_t limit = random.uniform(4);
      const std::uint64_t willing = random();                    // a bit for each job
      std::vector<job_id> moved(random.uniform(2), job_id(99));  // those of before count
      // By the words: the jobs from `next` on, then those before it, each at most once.
      std::deque<job_id> turn(movable.begin(), movable.end());
      for (std::size_t n = turn.size(); n > 0 && turn.front() < next; --n) {
        turn.push_back(turn.front());
        turn.pop_front();
      }
      std::vector<job_id> tried;
      std::vector<job_id> expected = moved;
      job_id behind = next;
      while (!turn.empty() && tried.size() < trials && expected.size() < limit) {
        tried.push_back(turn.front());
        turn.pop_front();
        if ((willing >> tried.back().value & 1) != 0) expected.push_back(tried.back());
        behind = job_id(tried.back().value + 1);
      }
      stopped_early += tried.size() < trials && !turn.empty() ? 1U : 0U;
      std::vector<job_id> asked;
      detail::migrate_round_robin(movable, trials, limit, next, moved, [&](job_id job) {
        asked.push_back(job);
        return (willing >> job.value & 1) != 0;
      });
      REQUIRE(asked == tried);
      REQUIRE(moved == expected);
      REQUIRE(next == behind);
    }
  }
  CHECK(stopped_early > 0);
}

}  // namespace
}  // namespace gandiva_backend_tests
