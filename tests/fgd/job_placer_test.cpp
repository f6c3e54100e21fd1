// apiary/tests/fgd/job_placer_test.cpp - what the concept accepts, and what both placers keep to.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

struct without_jobs_on : server_placer {
  std::vector<job_id> jobs_on(node_id) const = delete;
};
struct with_signed_idle : server_placer {
  [[nodiscard]] int idle_gpus() const noexcept { return 0; }
};
static_assert(JobPlacer<server_placer> && !JobPlacer<without_jobs_on> &&
              !JobPlacer<with_signed_idle> && !JobPlacer<int>);

// Jobs start and end at random. A proposal changes nothing, equal GPU counts get equal answers, and
// idle GPUs are all GPUs but those of the jobs that run.
template <JobPlacer Placer>
void check_placer(Placer placer, std::uint64_t seed) {
  rng random(seed);
  std::vector<std::pair<job_id, std::uint32_t>> running;
  std::uint32_t used = 0;
  for (std::uint32_t step = 0; step < 200; ++step) {
    const job_request r{.job = job_id(step), .gpus = 1 + random.uniform(10)};
    REQUIRE(placer.check(r).ok());
    const auto first = placer.propose(r).value();
    REQUIRE(placer.idle_gpus() == placer.total_gpus() - used);
    REQUIRE(placer.propose({.job = job_id(9999), .gpus = r.gpus}).value() == first);
    if (first) {
      std::uint32_t gpus = 0;
      for (const placement& p : *first) gpus += p.num_gpus();
      REQUIRE(gpus == r.gpus);
      REQUIRE(placer.commit(r, *first).ok());
      REQUIRE(!placer.commit(r, *first).ok());
      for (const placement& p : *first) {
        const std::vector<job_id> jobs = placer.jobs_on(p.node);
        REQUIRE(std::find(jobs.begin(), jobs.end(), r.job) != jobs.end());
      }
      running.emplace_back(r.job, r.gpus);
      used += r.gpus;
    } else {
      REQUIRE(!running.empty());
      const std::uint32_t ends = random.uniform(static_cast<std::uint32_t>(running.size()));
      used -= running[ends].second;
      REQUIRE(placer.finish(running[ends].first).ok());
      REQUIRE(!placer.finish(running[ends].first).ok());
      running.erase(running.begin() + ends);
    }
  }
}

}  // namespace

TEST_CASE("job_placer: a proposal changes nothing and fits what is idle") {
  const server_spec spec{.gpus = {4, 2, 8, 4}, .anywhere = true};
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(20U); ++seed) {
    CAPTURE(seed);
    check_placer(server_placer::create(spec).value(), seed);
    check_placer(gpu_sharing_placer<best_fit>::create(spec, {}).value(), seed);
  }
}
