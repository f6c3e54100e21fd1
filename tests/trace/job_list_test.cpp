// apiary/tests/trace/job_list_test.cpp - generated jobs: sizes, times and numbers.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

using namespace apiary;

TEST_CASE("job_generator: each size as often as its weight says, one of weight 0 never") {
  const job_list list =
      generate_jobs({.jobs = 4000, .sizes = {{1, 1}, {2, 0}, {4, 2}, {8, 1}, {16, 0}}}).value();
  std::map<std::uint32_t, int> count;
  for (const timed_job& j : list.jobs) ++count[j.request.gpus];
  CHECK(count.size() == 3);
  CHECK(count[1] == doctest::Approx(1000).epsilon(0.1));
  CHECK(count[4] == doctest::Approx(2000).epsilon(0.1));
  CHECK(count[8] == doctest::Approx(1000).epsilon(0.1));
}

TEST_CASE("job_generator: a job has at least its GPU time") {
  const job_list list =
      generate_jobs({.jobs = 100, .shortest = 10, .longest = 10, .sizes = {{3, 1}}}).value();
  for (const timed_job& j : list.jobs) CHECK(j.duration == 4);  // 10 / 3, rounded up
}

TEST_CASE("job_list: jobs that arrive at once keep their order") {
  std::vector<timed_job> jobs;
  for (std::uint32_t i = 0; i < 40; ++i) jobs.push_back({{.gpus = i}, i < 20 ? 5 : 3, 1});
  job_list::number_by_arrival(jobs);
  for (std::uint32_t i = 0; i < 40; ++i) {
    CHECK(jobs[i].request.job == job_id(i));
    CHECK(jobs[i].request.gpus == (i + 20) % 40);
  }
}
