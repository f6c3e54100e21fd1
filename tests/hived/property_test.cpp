// apiary/tests/hived/property_test.cpp - HiveD under random events, audited.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_play.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/hived.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace {

using namespace apiary;
using apiary_test::hived_play;

void play(std::uint64_t runs, std::uint64_t events, const hived_play::habits& habits,
          std::uint64_t first_seed) {
  hived_play::counts all;
  for (std::uint64_t run = 0; run < runs; ++run) {
    rng random(first_seed + run);
    hived_config config = apiary_test::random_cluster(random);
    if (run % 4 == 3) apiary_test::share_hosts(config, random);
    hived_play host(config, random(), habits);
    const std::uint64_t fresh = host.scheduler.hash();
    for (std::uint64_t i = 0; i < events; ++i) {
      CAPTURE(first_seed + run);
      CAPTURE(i);
      host.step();
      REQUIRE(apiary_test::faults_of(host.scheduler) == "");
      if (i % 16 == 0) REQUIRE(apiary_test::faults_of(audit(host.scheduler)) == "");
    }
    host.tidy_up();
    CAPTURE(first_seed + run);
    REQUIRE(apiary_test::faults_of(host.scheduler) == "");
    REQUIRE(host.scheduler.hash() == fresh);
    all.events += host.seen.events;
    all.bound += host.seen.bound;
    all.preempting += host.seen.preempting;
    all.waiting += host.seen.waiting;
    all.cancelled += host.seen.cancelled;
    all.downgraded += host.seen.downgraded;
    all.refused += host.seen.refused;
    all.regained += host.seen.regained;
    all.ending += host.seen.ending;
  }
  MESSAGE("events " << all.events << ", bound " << all.bound << ", preempting " << all.preempting
                    << ", waiting " << all.waiting << ", cancelled " << all.cancelled
                    << ", downgraded " << all.downgraded << ", restored " << all.regained
                    << ", to end for cells " << all.ending << ", refused " << all.refused);
  if (habits.marks > 0) CHECK(all.ending * 10'000 >= all.events);
}

TEST_CASE("every invariant holds after every event, and at the end nothing is left") {
  play(apiary_test::scaled(std::uint64_t{1000}), 700, {}, 1);
}

TEST_CASE("every invariant holds with many preemptions and with bad hardware all the time") {
  play(apiary_test::scaled(std::uint64_t{300}), 700,
       {.gangs = 50, .ends = 8, .tasks = 10, .pursued = 25, .marks = 25, .misuses = 1}, 100'000);
}

TEST_CASE("every invariant holds on healthy hardware") {
  play(apiary_test::scaled(std::uint64_t{150}), 700,
       {.gangs = 50, .ends = 20, .tasks = 5, .pursued = 20, .marks = 0, .suggested = false},
       200'000);
}

// Sixteen racks of four nodes of eight leaves, two of them pinned.
hived_config large_cluster() {
  hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2, false},
                       {"SOCKET", "PAIR", 2, false},
                       {"NODE", "SOCKET", 2, true},
                       {"RACK", "NODE", 4, false}};
  for (int r = 0; r < 16; ++r) {
    physical_cell_config rack{.type = "RACK"};
    for (int n = 0; n < 4; ++n)
      rack.children.push_back({.address = std::to_string(r) + "-" + std::to_string(n)});
    config.physical_cells.push_back(rack);
  }
  config.physical_cells[3].children[2].pinned_id = "node";
  config.physical_cells[7].pinned_id = "rack";
  config.virtual_clusters = {
      {.name = "a", .cells = {{"RACK", 6}, {"RACK.NODE", 3}}, .pinned_ids = {"node"}},
      {.name = "b", .cells = {{"RACK", 3}, {"RACK.NODE", 8}}, .pinned_ids = {"rack"}},
      {.name = "c", .cells = {{"RACK.NODE.SOCKET", 6}, {"RACK.NODE", 4}, {"RACK", 1}}}};
  return config;
}

TEST_CASE("every invariant holds in a cluster of 512 leaves, checked now and then") {
  hived_play host(large_cluster(), 1, {});
  const std::uint64_t fresh = host.scheduler.hash();
  const auto events = apiary_test::scaled(std::uint64_t{100'000});
  for (std::uint64_t i = 0; i < events; ++i) {
    CAPTURE(i);
    host.step();
    if (i % 50 == 0) REQUIRE(apiary_test::faults_of(host.scheduler) == "");
  }
  host.tidy_up();
  REQUIRE(apiary_test::faults_of(host.scheduler) == "");
  REQUIRE(host.scheduler.hash() == fresh);
}

}  // namespace
