// apiary/tests/sim/cluster_experiment_test.cpp - the published cluster experiment of Gandiva.
// SPDX-License-Identifier: MIT
#include "support/cluster_experiment.h"

#include <apiary/gandiva/gandiva.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>

using namespace apiary;

namespace {

using apiary_test::cluster_experiment;
using apiary_test::experiment_outcome;

template <class Make>
experiment_outcome experiment(const cluster_experiment& e, Make&& make) {
  const absl::StatusOr<experiment_outcome> out = apiary_test::run_experiment(e, make);
  REQUIRE_MESSAGE(out.ok(), out.status().ToString());
  REQUIRE(out->jobs == 5000);
  return *out;
}

auto batch_of(batch_options::rules rule) {
  return [rule](const server_spec& servers) {
    return batch_queue(server_placer::create(servers).value(), {.rule = rule});
  };
}
const auto backfill = batch_of(batch_options::rules::backfill);

auto gandiva_of(bool packs) {
  return [packs](const server_spec& servers) {
    return gandiva::create({.servers = servers, .packs = packs, .migrates = packs}).value();
  };
}
// With packing and migration. Suspension and resumption, and migration, take what the longest
// published ones do.
experiment_outcome shared(cluster_experiment e) {
  e.costs = {.start_cost = 1000, .migration_cost = 2000};
  return experiment(e, gandiva_of(true));
}

}  // namespace

TEST_CASE("cluster experiment: first come first served, strictly and with backfill") {
  const double with_backfill = experiment({}, backfill).seconds;
  CAPTURE(with_backfill);
  CHECK(std::abs(with_backfill - 2203) < 0.03 * 2203);  // published
  const double strict = experiment({}, batch_of(batch_options::rules::fifo)).seconds;
  CAPTURE(strict);
  CHECK(std::abs(strict - 2625) < 0.03 * 2625);
}

TEST_CASE("cluster experiment: time slices, each start for two seconds") {
  const double slices =  // two seconds: a migration, the longest published
      experiment({.costs = {.start_cost = 2000}}, gandiva_of(false)).seconds;
  CAPTURE(slices);
  CHECK(std::abs(slices - 70.9) < 0.03 * 70.9);  // published, with packing: 498
}

TEST_CASE("cluster experiment: waits without a bound, for several mixes of sizes") {
  struct measured {
    std::array<std::uint32_t, 3> sizes{};
    double published = 0;  // seconds
  };
  for (const measured& m :
       {measured{{80, 10, 10}, 71.7}, measured{{70, 15, 15}, 70.9}, measured{{50, 25, 25}, 74.6}}) {
    CAPTURE(m.sizes[0]);
    const cluster_experiment mix{.sizes = m.sizes, .costs = {.start_cost = 2000}};
    const experiment_outcome published = experiment(mix, gandiva_of(false));
    CAPTURE(published.longest_wait);
    CAPTURE(published.seconds);
    CHECK(published.longest_wait > 40 * 60);
    CHECK(std::abs(published.seconds - m.published) < 0.03 * m.published);
  }
}

// How busy the jobs of each class keep a GPU is not published. It is set so that first come first
// served with backfill uses the published 50.1 % of the GPUs, in three ways; what Gandiva makes of
// that follows.
TEST_CASE("cluster experiment: packing and migration use the published share of the GPUs") {
  const std::array<std::array<std::uint32_t, 3>, 3> ways{
      {{546, 546, 546}, {420, 520, 642}, {891, 594, 297}}};
  for (const std::array<std::uint32_t, 3>& utilization : ways) {
    CAPTURE(utilization[0]);
    const double before = experiment({.utilization = utilization}, backfill).utilization;
    CAPTURE(before);
    CHECK(std::abs(before - 0.501) < 0.002);
    const experiment_outcome after = shared({.utilization = utilization});
    CAPTURE(after.utilization);
    CAPTURE(after.seconds);
    CHECK(std::abs(after.utilization - 0.628) < 0.03);    // published
    CHECK(std::abs(after.seconds - 64.6) < 0.04 * 64.6);  // published: 498
  }
}

namespace {

// Whether a figure is within a quarter of the published one, or nearer.
bool near(double figure, double published, double fraction = 0.25) {
  return std::abs(figure - published) <= published * fraction;
}
constexpr std::array<std::uint32_t, 3> usual{546, 546, 546};

}  // namespace

// What the time under Gandiva consists of, and how many jobs share a GPU.
TEST_CASE(
    "cluster experiment: a job waits for its first time slice, and is hardly interrupted then") {
  const experiment_outcome here = shared({.utilization = usual});
  CAPTURE(here.first_wait);
  CAPTURE(here.seconds);
  CHECK(here.first_wait > 25);  // half of a time slice, as jobs start at their boundaries
  CHECK(here.first_wait < 40);
  CHECK(std::abs(here.alone - 31.2) < 0.1);
  CHECK(here.seconds - here.first_wait - here.alone < 2);
  CAPTURE(here.requested);
  CHECK(here.requested > 2.7);
  CHECK(here.requested < 3.1);
  CAPTURE(here.requested_at_start);
  CHECK(here.requested_at_start > 2.0);
  CHECK(here.requested_at_start < 2.4);
}

// The page says which assumptions cannot be the reason for the published 498 s, because they do not
// lead there, or because other published figures then differ by more than a quarter.
TEST_CASE("cluster experiment: what is not the reason for the published time") {
  SUBCASE("the length of mini-batches: at the published rates it is shorter still") {
    CHECK(shared({.minibatches = {1200, 2500, 10'000}, .utilization = usual}).seconds < 50);
  }
  SUBCASE("starts that take half of each time slice") {
    cluster_experiment e{.utilization = usual};
    e.costs = {.start_cost = 30'000, .migration_cost = 30'000};
    const experiment_outcome out = experiment(e, gandiva_of(true));
    CAPTURE(out.seconds);
    CHECK(out.seconds < 498.0 / 4);
  }
  SUBCASE("the order of the time slices") {
    const double last = shared({.utilization = usual, .last_in_round = true}).seconds;
    CAPTURE(last);
    CHECK(last > 120);
    CHECK(last < 498.0 / 2);
  }
  SUBCASE("the sizes of the jobs") {
    CHECK(shared({.sizes = {50, 25, 25}, .utilization = usual}).seconds < 100);
    CHECK(shared({.sizes = {100, 0, 0}, .utilization = usual}).seconds < 100);
  }
  SUBCASE("jobs that take 30 to 45 minutes whatever their size: with backfill they wait too long") {
    const cluster_experiment e{.utilization = usual, .per_gpu = true};
    CHECK(shared(e).seconds < 100);
    CHECK(experiment(e, backfill).seconds > 2 * 2203);
  }
  SUBCASE("five minutes on the GPUs, added to each job: with backfill jobs wait too long") {
    const cluster_experiment e{.utilization = usual, .setup = 300'000};
    CHECK(near(shared(e).seconds, 498));
    CHECK(!near(experiment(e, backfill).seconds, 2203));
  }
}

// Assumptions that lead to all published figures within a quarter; how near is bounded for each.
// The first contradicts the published rates of mini-batches; no published figure decides among the
// others.
TEST_CASE("cluster experiment: what may be the reason for the published time") {
  cluster_experiment e{.utilization = usual};
  double fraction = 0.2;
  SUBCASE("mini-batches take nine times as long: 2.8 seconds, the mean of the classes") {
    for (time_ms& time : e.minibatches) time *= 9;
    fraction = 0.15;
  }
  SUBCASE("the first 300 seconds of a job on its GPUs are no mini-batches") {
    for (time_ms& time : e.minibatches) time += 300'000;
    fraction = 0.15;
  }
  SUBCASE("a job has no GPUs for its first 400 seconds") { e.container = 400'000; }
  SUBCASE("at most three jobs share a GPU") { e.over_subscription = 300; }
  const experiment_outcome out = shared(e);
  CAPTURE(out.seconds);
  CAPTURE(out.utilization);
  CHECK(near(out.seconds, 498, fraction));
  CHECK(near(out.utilization, 0.628, 0.1));
  e.over_subscription = 0;
  const double before = experiment(e, backfill).seconds;
  CAPTURE(before);
  CHECK(near(before, 2203, fraction));
}
