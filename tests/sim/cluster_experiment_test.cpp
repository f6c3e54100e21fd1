// apiary/tests/sim/cluster_experiment_test.cpp - the published cluster experiment of Gandiva.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/sched/batch_queue.h>
#include <apiary/sched/gandiva.h>
#include <apiary/sched/server_placer.h>
#include <apiary/sim/job_generator.h>
#include <apiary/sim/job_list.h>
#include <apiary/sim/simulate.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;

namespace {

// 45 servers of 4 GPUs; 1,000 jobs arrive uniformly over two hours and take 30 to 45 GPU-minutes.
// Published without figures: that some want 2 or 4 GPUs, taken as 15 % each, and three classes of
// jobs as 30, 25 and 45 %, whose first 100 mini-batches are taken to last 48, 32 and 20 seconds.
// Seconds until a job has done 100 mini-batches, the mean over jobs and five seeds.
template <class Make>
double seconds_to_100_minibatches(Make&& make, tick_t start_cost) {
  tick_t sum = 0;
  std::int64_t jobs = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const job_list list = generate_jobs({.seed = seed,
                                         .jobs = 1000,
                                         .window = 7'200'000,
                                         .shortest = 1'800'000,
                                         .longest = 2'700'000,
                                         .sizes = {{1, 70}, {2, 15}, {4, 15}}})
                              .value();
    rng random(seed);
    std::vector<tick_t> left;  // until each has done its mini-batches
    for (std::size_t j = 0; j < list.jobs.size(); ++j) {
      const std::uint32_t draw = random.uniform(100);
      left.push_back(draw < 30 ? 48'000 : draw < 55 ? 32'000 : 20'000);
    }
    std::vector<tick_t> since(list.jobs.size(), 0);
    const auto watch = [&](const simulation_event& e) {
      using kind = simulation_event::kind;
      if (e.what == kind::start) since[e.job.value] = e.at + start_cost;
      if (e.what != kind::suspension && e.what != kind::end) return;
      tick_t& rest = left[e.job.value];
      const tick_t ran = e.at - since[e.job.value];
      if (rest > 0 && ran >= rest) {
        sum += since[e.job.value] + rest - list.jobs[e.job.value].arrival;
        ++jobs;
      }
      rest -= ran;
    };
    auto scheduler = make(server_spec{.gpus = std::vector<std::uint32_t>(45, 4)});
    REQUIRE(simulate(
                scheduler, list.jobs, {}, {.start_cost = start_cost},
                [](const timed_job&, const job_place&) { return full_speed; }, watch)
                .ok());
  }
  REQUIRE(jobs == 5000);
  return static_cast<double>(sum) / 1000 / static_cast<double>(jobs);
}

auto batch_of(batch_rule rule) {
  return [rule](const server_spec& servers) {
    return batch_queue(server_placer::create(servers).value(), {.rule = rule});
  };
}

}  // namespace

TEST_CASE("cluster experiment: first come first served, strictly and with backfill") {
  const double backfill = seconds_to_100_minibatches(batch_of(batch_rule::backfill), 0);
  CAPTURE(backfill);
  CHECK(std::abs(backfill - 2203) < 0.03 * 2203);  // published
  const double strict = seconds_to_100_minibatches(batch_of(batch_rule::fifo), 0);
  CAPTURE(strict);
  CHECK(std::abs(strict - 2625) < 0.03 * 2625);
}

TEST_CASE("cluster experiment: taking turns, each start for two seconds") {
  const auto make = [](const server_spec& servers) {
    return gandiva::create({.servers = servers}).value();
  };
  const double turns =
      seconds_to_100_minibatches(make, 2000);  // a migration, the dearest published
  CAPTURE(turns);
  CHECK(turns <= 498);  // published, with packing
  CHECK(turns > 31);    // the mini-batches alone
}
