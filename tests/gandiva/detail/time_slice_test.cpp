// apiary/tests/gandiva/detail/time_slice_test.cpp - which jobs run in each quantum, and what each gets in the end.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/time_slice.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Quanta in which each job runs, one row a quantum.
std::vector<std::vector<bool>> slices(std::vector<sliced_job> jobs,
                                      const std::vector<std::uint32_t>& weights, std::uint32_t gpus,
                                      std::size_t quanta) {
  std::vector<std::vector<bool>> rows;
  for (std::size_t q = 0; q < quanta; ++q) {
    rows.emplace_back(jobs.size(), false);
    for (const std::size_t i : choose_slice(jobs, gpus)) {
      rows.back()[i] = true;
      jobs[i].pass += slice_pass(60'000, weights[i]);
    }
  }
  return rows;
}

std::vector<sliced_job> equal_jobs(std::size_t n) {
  std::vector<sliced_job> jobs(n);
  for (std::size_t i = 0; i < n; ++i) jobs[i].job = job_id(static_cast<std::uint32_t>(i));
  return jobs;
}

}  // namespace

TEST_CASE("time_slice: six jobs on four GPUs get four sixths each over any 15 minutes") {
  const auto rows = slices(equal_jobs(6), std::vector<std::uint32_t>(6, 1), 4, 600);
  for (std::size_t from = 0; from + 15 <= rows.size(); ++from) {
    for (std::size_t job = 0; job < 6; ++job) {
      int ran = 0;
      for (std::size_t q = from; q < from + 15; ++q) ran += rows[q][job] ? 1 : 0;
      REQUIRE(ran == 10);  // of 15 quanta of a minute
    }
  }
}

TEST_CASE("time_slice: time by weight, higher priorities before all others") {
  std::vector<sliced_job> jobs = equal_jobs(3);
  const auto rows = slices(jobs, {1, 2, 3}, 1, 600);
  std::vector<int> ran(3, 0);
  for (const auto& row : rows) {
    for (std::size_t j = 0; j < 3; ++j) ran[j] += row[j] ? 1 : 0;
  }
  CHECK(std::abs(ran[0] - 100) <= 1);
  CHECK(std::abs(ran[1] - 200) <= 1);
  CHECK(std::abs(ran[2] - 300) <= 1);
  jobs[1].priority = 1;
  jobs[1].pass = 1'000'000;
  CHECK(choose_slice(jobs, 1) == std::vector<std::size_t>{1});
  CHECK(choose_slice(jobs, 2) == std::vector<std::size_t>{0, 1});
}

TEST_CASE("time_slice: no job that fits is left out, and no job waits for ever") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 1 + random.uniform(8);
    std::vector<sliced_job> jobs = equal_jobs(1 + random.uniform(12));
    for (sliced_job& j : jobs) j.gpus = 1 + random.uniform(gpus);
    const std::vector<std::uint32_t> weights(jobs.size(), 1);
    const std::size_t quanta = 40 * jobs.size();
    const auto rows = slices(jobs, weights, gpus, quanta);
    std::vector<std::size_t> ran(jobs.size(), 0);
    for (const auto& row : rows) {
      std::uint32_t left = gpus;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (!row[j]) continue;
        REQUIRE(jobs[j].gpus <= left);
        left -= jobs[j].gpus;
        ++ran[j];
      }
      for (std::size_t j = 0; j < jobs.size(); ++j) REQUIRE((row[j] || jobs[j].gpus > left));
    }
    // In every so many quanta as there are jobs, the one with the least pass has run.
    const std::size_t least = *std::min_element(ran.begin(), ran.end());
    CHECK(least >= quanta / jobs.size() - 1);
  }
}
