// apiary/tests/gandiva/packing_test.cpp - the published decisions, and every pair tried once.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/packing.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;

// Mini-batches a second times ten, two of each model in time slices and packed on one GPU.
TEST_CASE("pack: the eight published pairs, five kept and three undone") {
  const std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t, bool>> published{
      {"VAE", 818, 4193, true},      {"SuperResolution", 403, 1452, true},
      {"RHN", 101, 148, true},       {"SCRNN", 167, 233, true},
      {"MI-LSTM", 222, 259, true},   {"LSTM", 638, 530, false},
      {"ResNet-50", 103, 90, false}, {"ResNext-50", 836, 744, false}};
  for (const auto& [model, sliced, packed, kept] : published) {
    const std::string name = model;
    CAPTURE(name);
    CHECK(pair_packing::pays(packed, sliced) == kept);
  }
  CHECK(!pair_packing::pays(100, 100));  // nothing won
}

TEST_CASE("pack: least utilisation first, where the memory fits") {
  const std::vector<pair_packing::job_profile> jobs{
      {job_id(1), 600, 4}, {job_id(2), 90, 9}, {job_id(3), 90, 2}};
  const std::vector<pair_packing::gpu_profile> gpus{{7, 800, 16}, {8, 150, 8}, {9, 150, 8}};
  pair_packing trials;
  CHECK(trials.next(jobs, gpus) == pair_packing::candidate{job_id(2), 7});  // too large for 8 and 9
  trials.fail({job_id(2), 7});
  std::vector<pair_packing::candidate> order;
  while (const std::optional<pair_packing::candidate> t = trials.next(jobs, gpus)) {
    order.push_back(*t);
    trials.fail(*t);
  }
  CHECK(order == std::vector<pair_packing::candidate>{{job_id(3), 8},
                                                      {job_id(3), 9},
                                                      {job_id(3), 7},
                                                      {job_id(1), 8},
                                                      {job_id(1), 9},
                                                      {job_id(1), 7}});
  trials.forget_gpu(9);
  CHECK(trials.next(jobs, gpus) == pair_packing::candidate{job_id(3), 9});
  trials.forget(job_id(2));
  CHECK(trials.next(jobs, gpus) == pair_packing::candidate{job_id(2), 7});
}

TEST_CASE("pack: every pair that fits is tried exactly once, the best of those left first") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<pair_packing::job_profile> jobs(random.uniform(8));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i] = {job_id(static_cast<std::uint32_t>(i)), random.uniform(4), random.uniform(6)};
    }
    std::vector<pair_packing::gpu_profile> gpus(random.uniform(8));
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      gpus[i] = {static_cast<std::uint32_t>(i), random.uniform(4), random.uniform(6)};
    }
    // All pairs in the order of a set.
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> left;
    for (const pair_packing::job_profile& j : jobs) {
      for (const pair_packing::gpu_profile& g : gpus) {
        if (j.memory <= g.memory_left)
          left.emplace(j.utilization, j.job.value, g.utilization, g.gpu);
      }
    }
    random.shuffle(jobs);
    random.shuffle(gpus);
    pair_packing trials;
    while (const std::optional<pair_packing::candidate> t = trials.next(jobs, gpus)) {
      REQUIRE(!left.empty());
      REQUIRE(std::get<1>(*left.begin()) == t->job.value);
      REQUIRE(std::get<3>(*left.begin()) == t->gpu);
      left.erase(left.begin());
      trials.fail(*t);
    }
    REQUIRE(left.empty());
  }
}
