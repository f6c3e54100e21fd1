// apiary/tests/sim/cluster_experiment_test.cpp - the published cluster experiment of Gandiva.
// SPDX-License-Identifier: MIT
#include <apiary/batch/batch_queue.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Two jobs of a model on a P40 do so many times what they do in time slices, by the utilisation of its
// GPU by one alone: the published pairs, both in thousandths.
constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 8> published_packing{{{87, 5126},
                                                                                    {141, 3603},
                                                                                    {616, 1465},
                                                                                    {668, 1395},
                                                                                    {762, 1167},
                                                                                    {872, 831},
                                                                                    {940, 874},
                                                                                    {989, 890}}};
// Between them on straight lines, and the same for two that differ, by their mean utilisation.
std::uint32_t packed_speed(std::uint32_t utilization) {
  auto above = published_packing.begin();
  while (above != published_packing.end() && above->first < utilization) ++above;
  if (above == published_packing.begin()) return above->second / 2;
  const auto below = above - 1;
  if (above == published_packing.end()) return below->second / 2;
  const double part = static_cast<double>(utilization - below->first) /
                      static_cast<double>(above->first - below->first);
  const double total =
      static_cast<double>(below->second) * (1 - part) + static_cast<double>(above->second) * part;
  return static_cast<std::uint32_t>(total / 2);
}

// Tells a scheduler that wants to know, at each quantum, how fast jobs run.
template <class Scheduler>
struct telling_host {
  Scheduler scheduler;
  std::vector<std::uint32_t> utilization{};
  std::map<job_id, std::uint32_t> speeds{};  // of those that run

  absl::Status submit(const job_request& r, time_ms t) { return scheduler.submit(r, t); }
  absl::Status finish(job_id j, time_ms t) { return scheduler.finish(j, t); }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) {
    return scheduler.mark_bad(n, t);
  }
  absl::Status mark_healthy(node_id n, time_ms t) { return scheduler.mark_healthy(n, t); }
  time_ms wake() const { return scheduler.wake(); }
  std::uint32_t total_gpus() const { return scheduler.total_gpus(); }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    if constexpr (std::is_same_v<Scheduler, gandiva>) {
      for (const auto& [job, speed] : speeds) {
        if (t % 60'000 != 0) break;
        REQUIRE(scheduler.report(job, {utilization[job.value], 1, speed}, t).ok());
      }
    }
    return scheduler.decide(t, actions);
  }
};

struct experiment_outcome {
  double seconds = 0;       // until a job has done 100 mini-batches, the mean over jobs
  double utilization = 0;   // of the GPUs by their jobs, until the last ends
  double longest_wait = 0;  // seconds without GPUs at a time, of any job under any seed
};

// 45 servers of 4 GPUs; 1,000 jobs arrive uniformly over two hours and take 30 to 45 GPU-minutes.
// Published without figures: that some want 2 or 4 GPUs, taken as 15 % each, and three classes of
// jobs as 30, 25 and 45 %, whose first 100 mini-batches are taken to last 48, 32 and 20 seconds, or
// `longer` times that, and which keep so many thousandths of a GPU busy when they run alone. The mean
// over five seeds.
template <class Make>
experiment_outcome experiment(Make&& make, const simulation_options& costs,
                              const std::array<std::uint32_t, 3>& utilization = {1000, 1000, 1000},
                              const std::array<std::uint32_t, 3>& sizes = {70, 15, 15},
                              std::int64_t longer = 1) {
  constexpr std::array<std::int64_t, 3> minibatches{48'000'000, 32'000'000, 20'000'000};
  double milliseconds = 0;
  double busy = 0;
  std::int64_t jobs = 0;
  time_ms longest = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const job_list list = generate_jobs({.seed = seed,
                                         .jobs = 1000,
                                         .window = 7'200'000,
                                         .shortest = 1'800'000,
                                         .longest = 2'700'000,
                                         .sizes = {{1, sizes[0]}, {2, sizes[1]}, {4, sizes[2]}}})
                              .value();
    rng random(seed);
    const server_spec servers{.gpus = std::vector<std::uint32_t>(45, 4)};
    telling_host<decltype(make(servers))> host{make(servers)};
    std::vector<std::int64_t> left;  // work until each has done its mini-batches
    for (std::size_t j = 0; j < list.jobs.size(); ++j) {
      const std::uint32_t draw = random.uniform(100);
      const std::size_t kind = draw < 30 ? 0 : draw < 55 ? 1 : 2;
      left.push_back(longer * minibatches[kind]);
      host.utilization.push_back(utilization[kind]);
    }
    std::vector<std::pair<std::int64_t, time_ms>> since(list.jobs.size());  // speed, from when
    double work = 0;                                                        // GPUs busy, times time
    std::vector<time_ms> waits_since(list.jobs.size());
    const auto watch = [&](const simulation_event& e) {
      const timed_job& job = list.jobs[e.job.value];
      using kind = simulation_event::kind;
      if (e.what == kind::arrival || e.what == kind::suspension) waits_since[e.job.value] = e.at;
      if (e.what == kind::start) longest = std::max(longest, e.at - waits_since[e.job.value]);
      if (e.what == kind::arrival) return;
      const auto [speed, from] = since[e.job.value];
      const std::int64_t done = std::max<time_ms>(0, e.at - from) * speed;
      std::int64_t& rest = left[e.job.value];
      if (rest > 0 && done >= rest) {
        milliseconds += static_cast<double>(from - job.arrival) +
                        static_cast<double>(rest) / static_cast<double>(speed);
        ++jobs;
      }
      rest -= done;
      work += static_cast<double>(done) / 1000 * job.request.gpus * host.utilization[e.job.value] /
              1000;
      since[e.job.value] = {e.speed, e.from};
      if (e.speed == 0) {
        host.speeds.erase(e.job);
      } else {
        host.speeds[e.job] = e.speed;
      }
    };
    const auto speed = [&](const timed_job& job, const job_placement&,
                           std::span<const job_id> others) -> std::uint32_t {
      if (others.empty()) return full_speed;
      return packed_speed(
          (host.utilization[job.request.job.value] + host.utilization[others[0].value]) / 2);
    };
    const auto run = simulate(host, list.jobs, {}, costs, speed, watch);
    REQUIRE(run.ok());
    busy += work / static_cast<double>(run->ended - list.jobs[0].arrival) / 180;
  }
  REQUIRE(jobs == 5000);
  return {milliseconds / 1000 / static_cast<double>(jobs), busy / 5,
          static_cast<double>(longest) / 1000};
}

auto batch_of(batch_options::rules rule) {
  return [rule](const server_spec& servers) {
    return batch_queue(server_placer::create(servers).value(), {.rule = rule});
  };
}

}  // namespace

TEST_CASE("cluster experiment: first come first served, strictly and with backfill") {
  const double backfill = experiment(batch_of(batch_options::rules::backfill), {}).seconds;
  CAPTURE(backfill);
  CHECK(std::abs(backfill - 2203) < 0.03 * 2203);  // published
  const double strict = experiment(batch_of(batch_options::rules::fifo), {}).seconds;
  CAPTURE(strict);
  CHECK(std::abs(strict - 2625) < 0.03 * 2625);
}

// Unless a test says otherwise, Gandiva runs by its published rule: the waits of jobs have no bound.
TEST_CASE("cluster experiment: time slices, each start for two seconds") {
  const auto make = [](const server_spec& servers) {
    return gandiva::create({.servers = servers, .max_wait = 0}).value();
  };
  const double turns =  // a migration, the dearest published
      experiment(make, {.start_cost = 2000}).seconds;
  CAPTURE(turns);
  CHECK(turns <= 498);  // published, with packing
  CHECK(turns > 31);    // the mini-batches alone
}

TEST_CASE("cluster experiment: a bound on waits, for several mixes of sizes") {
  const auto with = [](std::uint32_t max_wait) {
    return [max_wait](const server_spec& servers) {
      return gandiva::create({.servers = servers, .max_wait = max_wait}).value();
    };
  };
  for (const std::array<std::uint32_t, 3>& sizes :
       {std::array{80U, 10U, 10U}, std::array{70U, 15U, 15U}, std::array{50U, 25U, 25U}}) {
    CAPTURE(sizes[0]);
    const simulation_options costs{.start_cost = 2000};
    const experiment_outcome bounded = experiment(with(10), costs, {1000, 1000, 1000}, sizes);
    CAPTURE(bounded.longest_wait);
    CAPTURE(bounded.seconds);
    CHECK(bounded.longest_wait <= 40 * 60);
    CHECK(bounded.seconds <= 498);  // published
    const experiment_outcome published = experiment(with(0), costs, {1000, 1000, 1000}, sizes);
    CAPTURE(published.longest_wait);
    CAPTURE(published.seconds);
    CHECK(published.longest_wait > 40 * 60);
  }
}

// How busy the jobs of each class keep a GPU is not published. It is set so that first come first
// served with backfill uses the published 50.1 % of the GPUs, in three ways; what Gandiva makes of
// that follows. Suspension and resumption, and migration, take what the dearest published ones do.
TEST_CASE("cluster experiment: packing and migration use the published share of the GPUs") {
  const std::array<std::array<std::uint32_t, 3>, 3> ways{
      {{546, 546, 546}, {420, 520, 642}, {891, 594, 297}}};
  const auto make = [](const server_spec& servers) {
    return gandiva::create({.servers = servers, .max_wait = 0, .packs = true, .migrates = true})
        .value();
  };
  for (const std::array<std::uint32_t, 3>& utilization : ways) {
    CAPTURE(utilization[0]);
    const double before =
        experiment(batch_of(batch_options::rules::backfill), {}, utilization).utilization;
    CAPTURE(before);
    CHECK(std::abs(before - 0.501) < 0.002);
    const experiment_outcome after =
        experiment(make, {.start_cost = 1000, .migration_cost = 2000}, utilization);
    CAPTURE(after.utilization);
    CAPTURE(after.seconds);
    CHECK(std::abs(after.utilization - 0.628) < 0.03);  // published
    CHECK(after.seconds <= 498);                        // published
  }
}

// How long 100 mini-batches take alone is not published either, and decides the time under Gandiva:
// about 1.5 jobs share a GPU. The factor 9 (2.8 seconds for a mini-batch, the mean of the classes)
// is fitted to the two published times. With it they are 12 % higher and 9 % lower than published.
TEST_CASE("cluster experiment: one factor for all mini-batches, fitted to both published times") {
  const std::array<std::uint32_t, 3> utilization{546, 546, 546};
  const std::array<std::uint32_t, 3> sizes{70, 15, 15};
  const double backfill =
      experiment(batch_of(batch_options::rules::backfill), {}, utilization, sizes, 9).seconds;
  CAPTURE(backfill);
  CHECK(std::abs(backfill - 2203) < 0.15 * 2203);  // published
  const auto make = [](const server_spec& servers) {
    return gandiva::create({.servers = servers, .max_wait = 0, .packs = true, .migrates = true})
        .value();
  };
  const double shared =
      experiment(make, {.start_cost = 1000, .migration_cost = 2000}, utilization, sizes, 9).seconds;
  CAPTURE(shared);
  CHECK(std::abs(shared - 498) < 0.15 * 498);  // published
}
