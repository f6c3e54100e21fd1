// apiary/tests/hived/restored_test.cpp - restored gangs are named.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/queries.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// The gangs among these that have cells of their tenant now.
std::vector<job_id> owners_among(const hived& h, const std::vector<job_id>& gangs) {
  std::vector<job_id> owners;
  for (const job_id job : gangs)
    if (h.find(job) != nullptr && h.find(job)->guaranteed()) owners.push_back(job);
  return owners;
}
std::vector<job_id> downgraded_gangs(const hived& h) {
  std::vector<job_id> jobs;
  for (const gang_slot s : h.gangs().by_job())
    if (h.gangs()[s].downgraded) jobs.push_back(h.gangs()[s].request.job);
  return jobs;
}
std::vector<job_id> by_id(std::vector<job_id> jobs) {
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

// Two nodes of two pairs; a tenant's cells.
hived two_nodes(std::vector<virtual_cell_config> cells) {
  hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2, false}, {"NODE", "PAIR", 2, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "t", .cells = std::move(cells)}};
  auto made = hived::create(config);
  REQUIRE(made.ok());
  return *std::move(made);
}
plan_result ask(hived& h, std::uint32_t job, std::int32_t priority,
                std::vector<task_group> groups) {
  const auto plan = h.propose({.job = job_id(job),
                               .tenant = tenant_id(0),
                               .priority = priority,
                               .groups = std::move(groups),
                               .lazy = true});
  REQUIRE(plan.ok());
  if (plan->result != plan_result::wait) REQUIRE(h.commit(*plan).ok());
  return plan->result;
}

TEST_CASE("a restored gang has whole cells of the same levels as before, for all its leaves") {
  {
    hived h = two_nodes({{"NODE", 1}, {"NODE.PAIR", 1}, {"NODE.PAIR.GPU", 1}});
    REQUIRE(ask(h, 1, 1, {{1, 2}, {1, 4}}) == plan_result::bind);
    REQUIRE(ask(h, 2, gang_request::opportunistic_priority, {{1, 2}}) == plan_result::bind);
    const std::uint64_t before = h.hash();
    REQUIRE(ask(h, 3, 5, {{1, 4}}) == plan_result::preempt);
    CHECK(!h.find(job_id(1))->guaranteed());
    REQUIRE(h.cancel(job_id(3)).ok());
    CHECK(h.restored() == std::vector{job_id(1)});
    CHECK(h.hash() == before);
    CHECK(ask(h, 4, 0, {{1, 4}}) == plan_result::wait);
  }
  // One that had a pair leaves the node to others.
  hived h = two_nodes({{"NODE", 1}, {"NODE.PAIR", 1}});
  REQUIRE(ask(h, 1, 1, {{1, 4}}) == plan_result::bind);
  REQUIRE(ask(h, 2, 1, {{1, 2}}) == plan_result::bind);
  REQUIRE(h.finish(job_id(1)).ok());
  REQUIRE(ask(h, 3, gang_request::opportunistic_priority, {{3, 2}}) == plan_result::bind);
  REQUIRE(ask(h, 4, 5, {{1, 4}, {1, 2}}) == plan_result::preempt);
  REQUIRE(h.cancel(job_id(4)).ok());
  CHECK(h.restored() == std::vector{job_id(2)});
  CHECK(hived_queries::whole_cell_levels(h, *h.find(job_id(2))) == std::vector<level_t>{1, 1});
  CHECK(ask(h, 5, 1, {{1, 4}}) == plan_result::preempt);
}

// A host whose gangs come, are withdrawn and end, task by task or at once, on hardware that breaks;
// after each change the gangs named are those that were downgraded before it and are not now.
struct watchful_host {
  hived h;
  rng random;
  std::size_t restored = 0;
  std::uint32_t next = 0;

  watchful_host(const hived_config& config, std::uint64_t seed)
      : h(*hived::create(config)), random(seed) {}

  template <class Change>
  void watch(const Change& change) {
    const std::vector<job_id> before = downgraded_gangs(h);
    REQUIRE(change().ok());
    REQUIRE(by_id(h.restored()) == owners_among(h, before));
    for (std::size_t i = 1; i < h.restored().size(); ++i) {
      const gang_request& a = h.find(h.restored()[i - 1])->request;
      const gang_request& b = h.find(h.restored()[i])->request;
      REQUIRE((a.priority > b.priority || (a.priority == b.priority && a.job < b.job)));
    }
    restored += h.restored().size();
  }
  void ask(const gang_request& r) {
    const std::vector<job_id> before = h.restored();
    const auto plan = h.propose(r);
    REQUIRE(h.restored() == before);
    if (!plan.ok() || (plan->result == plan_result::wait && plan->cancelled.empty())) return;
    watch([&] { return h.commit(*plan); });
  }
  void step() {
    const std::vector<gang_slot> all = h.gangs().by_job();
    if (all.empty() || random.uniform(2) == 0) {
      gang_request r = apiary_test::random_gang(h.layout(), job_id(next++), random);
      r.lazy = true;
      return ask(r);
    }
    const gang_record& gang =
        h.gangs()[all[random.uniform(static_cast<std::uint32_t>(all.size()))]];
    const job_id job = gang.request.job;
    if (gang.state == gang_state::preempting) {
      if (random.uniform(2) == 0) return ask(gang_request(gang.request));
      return watch([&] { return h.cancel(job); });
    }
    const node_id node(random.uniform(h.layout().num_nodes()));
    const std::vector<hived_placement> tasks = h.tasks(gang);
    const auto task = random.uniform(static_cast<std::uint32_t>(tasks.size()));
    switch (random.uniform(4)) {
      case 0:
        return watch([&] { return h.finish(job); });
      case 1:
        if (tasks[task].leaves == 0) return;
        return watch([&] { return h.finish_task(job, task); });
      case 2:
        return mark(node, false);
      default:
        return mark(node, true);
    }
  }
  void mark(node_id node, bool good) {
    const std::uint64_t hash = h.hash();
    const std::vector<job_id> before = h.restored();
    REQUIRE((good ? h.mark_healthy(node) : h.mark_bad(node)).ok());
    REQUIRE(h.restored() == (h.hash() == hash ? before : std::vector<job_id>()));
  }
};

TEST_CASE("restored() names the gangs that got their cells back, and no others") {
  std::size_t restored = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{4'000}); ++run) {
    CAPTURE(run);
    rng random(run);
    watchful_host host(apiary_test::random_cluster(random), random());
    for (int i = 0; i < 100; ++i) host.step();
    restored += host.restored;
  }
  MESSAGE(restored << " gangs had their tenant's cells back");
  CHECK(restored > apiary_test::scaled(std::size_t{100}));
}

TEST_CASE("where another gang has claimed its leaves, a gang has its cells back after that one") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (const char* name : {"n0", "n1", "n2", "n3"})
    config.physical_cells.push_back({.type = "NODE", .address = name});
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 2}}},
                             {.name = "b", .cells = {{"NODE", 1}}}};
  for (const bool lazy : {true, false}) {
    CAPTURE(lazy);
    hived h = *hived::create(config);
    const auto run = [&](std::uint32_t job, std::uint32_t tenant, std::int32_t priority,
                         std::uint32_t tasks, std::vector<std::uint32_t> on) {
      summary_bitset nodes(4, false);
      for (const std::uint32_t n : on) nodes.set(n);
      const auto plan = h.propose({.job = job_id(job),
                                   .tenant = tenant_id(tenant),
                                   .priority = priority,
                                   .groups = {{tasks, 4}},
                                   .lazy = lazy,
                                   .suggested = &nodes});
      REQUIRE(plan.ok());
      REQUIRE(plan->result != plan_result::wait);
      REQUIRE(h.commit(*plan).ok());
      return *plan;
    };
    run(1, 0, 0, 2, {0, 1});
    run(2, 1, -1, 2, {2, 3});
    CHECK(run(3, 0, 5, 2, {2, 3}).result == plan_result::preempt);
    CHECK(h.find(job_id(1))->downgraded);
    CHECK(run(4, 1, 0, 1, {1}).victims == std::vector<job_id>{job_id(1)});
    REQUIRE(h.cancel(job_id(3)).ok());
    CHECK(h.restored().empty());
    CHECK(h.find(job_id(1))->downgraded);
    REQUIRE(h.cancel(job_id(4)).ok());
    CHECK(h.restored() == std::vector<job_id>{job_id(1)});
    CHECK(h.find(job_id(1))->guaranteed());
    CHECK(audit(h).empty());
  }
}

TEST_CASE("what a gang took that ran is not given back when it ends") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}};
  hived h = *hived::create(config);
  for (const bool lazy : {true, false}) {
    const auto plan = h.propose({.job = job_id(lazy ? 1U : 2U),
                                 .tenant = tenant_id(0),
                                 .priority = lazy ? 0 : 5,
                                 .groups = {{1, 4}},
                                 .lazy = lazy});
    REQUIRE((plan.ok() && plan->result == plan_result::bind));
    REQUIRE(h.commit(*plan).ok());
    CHECK(h.restored().empty());
  }
  CHECK(downgraded_gangs(h) == std::vector<job_id>{job_id(1)});
  REQUIRE(h.finish(job_id(2)).ok());
  CHECK(h.restored().empty());
  CHECK(downgraded_gangs(h) == std::vector<job_id>{job_id(1)});
}

}  // namespace
