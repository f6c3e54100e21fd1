// apiary/tests/fgd/detail/preempting_jobs_test.cpp - preempting jobs and their victims, against a plain map.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/preempting_jobs.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace preempting_jobs_tests {
namespace {

using namespace apiary;
using detail::preempting_job;
using detail::preempting_jobs;
using detail::running_task;

TEST_CASE("preempting_jobs: victims end one by one, and are free again with their preemptor") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    preempting_jobs jobs;
    std::map<job_id, std::vector<job_id>> expected;  // ascending
    const auto preemptor_of = [&](job_id job) {
      return std::find_if(expected.begin(), expected.end(), [&](const auto& p) {
        return std::binary_search(p.second.begin(), p.second.end(), job);
      });
    };
    for (int step = 0; step < 60; ++step) {
      CAPTURE(step);
      const job_id job(random.uniform(20));
      const job_id preemptor(100 + random.uniform(4));
      if (random.uniform(2) == 0) {
        const auto of = preemptor_of(job);
        REQUIRE(jobs.ended(job) == (of != expected.end()));
        if (of != expected.end()) std::erase(of->second, job);
      } else if (expected.contains(preemptor)) {
        jobs.remove(preemptor);
        expected.erase(preemptor);
      } else {
        std::vector<job_id> victims;
        for (std::uint32_t v = 0; v < 20; ++v)
          if (random.uniform(4) == 0 && preemptor_of(job_id(v)) == expected.end())
            victims.emplace_back(v);
        jobs.add(preemptor, {.victims = victims, .lower_bound = seed});
        expected[preemptor] = std::move(victims);
      }
      REQUIRE(jobs.size() == expected.size());
      for (std::uint32_t v = 0; v < 20; ++v)
        REQUIRE(jobs.is_victim(job_id(v)) == (preemptor_of(job_id(v)) != expected.end()));
      for (std::uint32_t p = 100; p < 104; ++p) {
        const preempting_job* const found = jobs.find(job_id(p));
        REQUIRE((found != nullptr) == expected.contains(job_id(p)));
        if (found != nullptr) REQUIRE(found->victims == expected.at(job_id(p)));
      }
    }
  }
}

TEST_CASE("preempting_jobs: which requests and tasks are the same") {
  const task_request cpu{.cpu_milli = 500};
  const task_request gpu{.cpu_milli = 500, .gpus = 1, .gpu_milli = 500};
  const auto changed = [](task_request r, auto change) {
    change(r);
    return r;
  };
  using detail::same_request;
  CHECK(same_request(gpu, changed(gpu, [](task_request& r) { r.job = job_id(7); })));
  CHECK(!same_request(gpu, changed(gpu, [](task_request& r) { r.gpu_milli = 501; })));
  CHECK(!same_request(gpu, changed(gpu, [](task_request& r) { r.models = 1; })));
  CHECK(!same_request(gpu, changed(gpu, [](task_request& r) { r.memory_mib = 1; })));
  CHECK(!same_request(gpu, cpu));
  // Without GPUs, neither the fraction nor the models count.
  CHECK(same_request(cpu, changed(cpu, [](task_request& r) { r.models = 1; })));
  CHECK(same_request(cpu, changed(cpu, [](task_request& r) { r.gpu_milli = 1; })));

  const running_task first{gpu, {node_id(0), 1}, 0};
  const running_task second{cpu, {node_id(1), 0}, 1};
  using detail::same_tasks;
  CHECK(same_tasks({first, second}, {first, second}));
  CHECK(!same_tasks({first, second}, {second, first}));
  CHECK(!same_tasks({first, second}, {first}));
  CHECK(!same_tasks({first}, {{gpu, {node_id(0), 2}, 0}}));
  CHECK(!same_tasks({first}, {{gpu, {node_id(0), 1}, 1}}));

  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {.cpu_milli = 500}, .gpu_milli = 500},
                 {.tasks = 1, .host = {.cpu_milli = 500}}};
  using detail::same_requests;
  CHECK(same_requests({first, first, second}, gang));
  CHECK(same_requests({first, second, first}, gang));
  CHECK(!same_requests({first, second}, gang));                       // too few
  CHECK(!same_requests({first, first, first, second}, gang));         // too many
  CHECK(!same_requests({first, first, {cpu, {}, 2}}, gang));          // of no group
  CHECK(!same_requests({first, first, {gpu, {}, 1}}, gang));          // another request
  CHECK(!same_requests({first, first, second, {cpu, {}, 1}}, gang));  // one more
}

}  // namespace
}  // namespace preempting_jobs_tests
