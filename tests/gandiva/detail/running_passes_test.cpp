// apiary/tests/gandiva/detail/running_passes_test.cpp - the order of running jobs; time sharing tries one job of each kind.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace running_passes_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;

// Counts how often it is asked for a placement.
struct counting_placer : server_placer {
  counting_placer(server_placer p, std::shared_ptr<int> c)
      : server_placer(std::move(p)), count(std::move(c)) {}
  absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    ++*count;
    return server_placer::propose(r);
  }
  std::shared_ptr<int> count;
};

TEST_CASE("time_sharing: of waiting jobs of equally many GPUs, one is tried if none can start") {
  const server_spec spec{.gpus = {4}};
  const fragmentation metric(task_mix({{{.gpus = 1, .gpu_milli = whole_gpu}, 1}}));
  const auto count = std::make_shared<int>(0);
  using placer = measured_placer<counting_placer>;
  auto s = time_sharing<placer>::create(
               placer(counting_placer(server_placer::create(spec).value(), count), spec, metric),
               {.quantum = 60, .migrations = {.jobs = 0}, .max_wait = 2})
               .value();
  std::vector<time_sharing<placer>::action> actions;
  for (std::uint32_t job = 0; job < 104; ++job) {
    const std::uint32_t gpus = job < 4 || job % 2 == 0 ? 1 : 2;
    REQUIRE(s.submit({.job = job_id(job), .gpus = gpus}, {}, 0, actions).ok());
  }
  CHECK(s.num_waiting() == 100);
  const auto asked = [&](time_ms now) {
    *count = 0;
    actions.clear();
    REQUIRE(s.decide(now, actions).ok());
    return *count;
  };
  asked(0);
  REQUIRE(s.finish(job_id(0), 10).ok());
  CHECK(asked(10) == 1);  // a job of one GPU starts, and no GPU is idle for any other
  CHECK(actions.size() == 1);
  // Jobs that never ran displace the four that ran. Each of them is tried before and after.
  CHECK(asked(60) <= 12);
  CHECK(actions.size() > 4);
  for (time_ms now = 120; now <= 600; now += 60) CHECK(asked(now) <= 24);  // with jobs that starve
}

TEST_CASE("time_sharing: of jobs for which enough GPUs are idle, but apart, one is tried") {
  const server_spec spec{.gpus = {2, 2}};
  const fragmentation metric(task_mix({{{.gpus = 1, .gpu_milli = whole_gpu}, 1}}));
  const auto count = std::make_shared<int>(0);
  using placer = measured_placer<counting_placer>;
  auto s = time_sharing<placer>::create(
               placer(counting_placer(server_placer::create(spec).value(), count), spec, metric),
               {.quantum = 60, .migrations = {.jobs = 0}})
               .value();
  std::vector<time_sharing<placer>::action> actions;
  for (std::uint32_t job = 0; job < 14; ++job)
    REQUIRE(s.submit({.job = job_id(job), .gpus = job < 4 ? 1U : 2U}, {}, 0, actions).ok());
  REQUIRE(s.decide(0, actions).ok());
  for (const std::uint32_t job : {0U, 2U}) REQUIRE(s.finish(job_id(job), 10).ok());
  *count = 0;
  actions.clear();
  REQUIRE(s.decide(10, actions).ok());
  CHECK(*count == 1);
  CHECK(actions.empty());
}

TEST_CASE("running_passes: the least pass of the jobs that run, and their order, at each time") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    struct run {
      std::uint32_t weight;
      std::int64_t pass;
      time_ms since;
    };
    running_passes passes;
    std::map<std::uint32_t, run> naive;
    time_ms now = random.uniform(2) == 0 ? 0 : slice_end_of_time - 2000;
    for (std::uint32_t step = 0; step < 60; ++step) {
      now += random.uniform(30);
      if (random.uniform(3) > 0 || naive.empty()) {
        // Jobs of one weight whose passes differ by less than a millisecond, too.
        const run r{1 + random.uniform(3) * random.uniform(2) * 333,
                    std::int64_t{random.uniform(3)}, now};
        passes.insert(job_id(step), r.weight, r.pass, r.since);
        naive[step] = r;
      } else {
        const auto gone =
            std::next(naive.begin(), random.uniform(static_cast<std::uint32_t>(naive.size())));
        passes.erase(job_id(gone->first), gone->second.weight, gone->second.pass,
                     gone->second.since);
        naive.erase(gone);
      }
      std::optional<std::int64_t> least;
      std::vector<std::pair<std::int64_t, job_id>> order;
      for (const auto& [job, r] : naive) {
        const std::int64_t pass = r.pass + (now - r.since) * 1'048'575 / r.weight;
        least = std::min(least.value_or(pass), pass);
        order.emplace_back(pass, job);
      }
      REQUIRE(passes.least(now) == least);
      std::sort(order.rbegin(), order.rend());
      const std::vector<job_id> read = passes.descending(now);
      REQUIRE(read.size() == order.size());
      for (std::size_t i = 0; i < read.size(); ++i) REQUIRE(read[i] == order[i].second);
      REQUIRE(passes.empty() == naive.empty());
    }
  }
}

TEST_CASE(
    "gpu_time_weight: in proportion to the weight and to the inverse of the GPUs, at least 1") {
  const auto weight = [](std::uint32_t of_job, std::uint32_t gpus) {
    return gpu_time_weight(of_job, gpus);
  };
  CHECK(weight(1, 1) == 1000);
  CHECK(weight(1, 8) == 125);
  CHECK(weight(3, 8) == 375);
  CHECK(weight(1000, 1) == 1'000'000);
  CHECK(weight(1, 1000) == 1);
  CHECK(weight(1, 5000) == 1);
}

}  // namespace
}  // namespace running_passes_tests
