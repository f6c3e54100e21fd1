// apiary/tests/trace/job_list_test.cpp - generated jobs: sizes, times and numbers.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <cmath>
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

TEST_CASE("generate_jobs: lognormal times have their median, deviation and bounds") {
  constexpr time_ms median = 600'000;
  const job_list list = generate_jobs({.jobs = 20'000,
                                       .shortest = 1000,
                                       .longest = 100'000'000,
                                       .per_gpu = true,
                                       .median = median,
                                       .sigma_milli = 1500,
                                       .sizes = {{2, 1}}})
                            .value();
  double sum = 0;
  double squares = 0;
  std::size_t above = 0;
  for (const timed_job& j : list.jobs) {
    REQUIRE(j.duration >= 1000);
    REQUIRE(j.duration <= 100'000'000);
    const double logarithm = std::log(static_cast<double>(j.duration) / median);
    sum += logarithm;
    squares += logarithm * logarithm;
    above += logarithm > 3.0 ? 1U : 0U;  // two deviations
  }
  const double jobs = 20'000;
  CHECK(std::abs(sum / jobs) < 0.04);
  CHECK(std::sqrt(squares / jobs) == doctest::Approx(1.5).epsilon(0.02));
  CHECK(static_cast<double>(above) / jobs == doctest::Approx(0.0228).epsilon(0.1));
  rng random(1);
  CHECK(detail::lognormal_time(random, 1000, 0) == 1000);
  CHECK_FALSE(generate_jobs({.median = -1}).ok());
  CHECK_FALSE(generate_jobs({.median = 1, .sigma_milli = 10'001}).ok());
}
