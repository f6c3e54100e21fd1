// apiary/tests/hived/detail/victims_test.cpp - HiveD's victims against trying every set of gangs.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/victims.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <support/scale.h>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// One tenant that owns two racks of two nodes of four leaves.
hived_config one_tenant_config() {
  hived_config config;
  config.cell_types = {{.name = "NODE", .child_type = "GPU", .child_count = 4, .is_node = true},
                       {.name = "RACK", .child_type = "NODE", .child_count = 2}};
  for (const char* names : {"ab", "cd"}) {
    physical_cell_config rack{.type = "RACK"};
    for (int i = 0; i < 2; ++i)
      rack.children.push_back({.type = "NODE", .address = std::string(1, names[i])});
    config.physical_cells.push_back(rack);
  }
  config.virtual_clusters = {{.name = "t", .cells = {{.type = "RACK", .count = 2}}}};
  return config;
}
hived one_tenant() {
  auto made = hived::create(one_tenant_config());
  REQUIRE(made.ok());
  return *std::move(made);
}

gang_request random_request(std::uint32_t job, rng& random) {
  gang_request r{.job = job_id(job), .tenant = tenant_id(0)};
  r.priority = static_cast<std::int32_t>(random.uniform(4));
  for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
    r.groups.push_back({1 + random.uniform(2), 1 + random.uniform(4)});
  return r;
}

// A host's own, 0 for some.
std::uint64_t own_cost(const gang_record& gang) { return gang.request.job.value * 7919U % 11; }

// Gangs, priorities in sum, leaves; or a host's own.
using cost_t = std::tuple<std::size_t, std::int64_t, std::size_t>;
cost_t cost_of(const hived& scheduler, const std::vector<job_id>& victims, bool own) {
  cost_t cost{own ? 0 : victims.size(), 0, 0};
  for (const job_id v : victims) std::get<0>(cost) += own ? own_cost(*scheduler.find(v)) : 0;
  if (own) return cost;
  for (const job_id v : victims) {
    std::get<1>(cost) += scheduler.find(v)->request.priority + 1;
    for (const chain_leaf l : scheduler.find(v)->leaves)
      std::get<2>(cost) += l.leaf.valid() ? 1U : 0U;
  }
  return cost;
}

// The least cost of a set of these gangs whose end lets the gang bind; none if there is no such set.
template <class Cost>
std::optional<cost_t> least_cost(const hived& scheduler, const gang_request& request,
                                 const std::vector<job_id>& lower, const Cost& cost) {
  REQUIRE(lower.size() <= 16);
  std::optional<cost_t> least;
  for (std::uint32_t set = 0; set < 1U << lower.size(); ++set) {
    std::vector<job_id> victims;
    for (std::size_t i = 0; i < lower.size(); ++i)
      if ((set >> i & 1) != 0) victims.push_back(lower[i]);
    if (least && cost(victims) >= *least) continue;
    hived without = scheduler;
    for (const job_id v : victims) REQUIRE(without.finish(v).ok());
    const auto then = without.propose(request);
    REQUIRE(then.ok());
    if (then->result == plan_result::bind) least = cost(victims);
  }
  return least;
}

}  // namespace

TEST_CASE("no set of gangs whose end lets the gang fit costs less than the victims") {
  std::uint32_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed / 2);
    const bool own = seed % 2 == 1;
    hived scheduler = one_tenant();
    if (own) scheduler.set_victim_cost(own_cost);
    std::vector<job_id> running;
    for (std::uint32_t job = 0; job < 40; ++job) {
      const gang_request request = random_request(job, random);
      const std::uint64_t hash = scheduler.hash();
      const auto plan = scheduler.propose(request);
      REQUIRE(plan.ok());
      REQUIRE(scheduler.hash() == hash);
      std::vector<job_id> lower;
      for (const job_id j : running)
        if (scheduler.find(j)->request.priority < request.priority) lower.push_back(j);
      const auto cost = [&](const std::vector<job_id>& victims) {
        return cost_of(scheduler, victims, own);
      };
      const std::optional<cost_t> least = least_cost(scheduler, request, lower, cost);
      REQUIRE((plan->result != plan_result::wait) == least.has_value());
      if (!least) continue;
      REQUIRE(cost(plan->victims) == *least);
      preemptions += plan->result == plan_result::preempt ? 1U : 0U;
      REQUIRE(scheduler.commit(*plan).ok());
      for (const job_id v : plan->victims) {
        REQUIRE(scheduler.finish(v).ok());
        running.erase(std::find(running.begin(), running.end(), v));
      }
      if (plan->result == plan_result::preempt) {
        const auto again = scheduler.propose(request);
        REQUIRE(again.ok());
        REQUIRE(again->result == plan_result::bind);
        REQUIRE(scheduler.commit(*again).ok());
      }
      running.push_back(request.job);
      if (random.uniform(3) == 0) {  // a task ends
        const job_id j = running[random.uniform(static_cast<std::uint32_t>(running.size()))];
        const auto tasks = scheduler.tasks(*scheduler.find(j));
        const std::uint32_t t = random.uniform(static_cast<std::uint32_t>(tasks.size()));
        if (tasks[t].leaves != 0) REQUIRE(scheduler.finish_task(j, t).ok());
        if (scheduler.find(j) == nullptr) std::erase(running, j);
      }
      if (!running.empty() && random.uniform(3) == 0) {
        const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(running.size()));
        REQUIRE(scheduler.finish(running[i]).ok());
        running.erase(running.begin() + i);
      }
    }
  }
  CHECK(preemptions > scaled(600U));
}

// Of gangs that end for others already only the leaves count; with costs of a host's own nothing.
cost_t cost_beside(const hived& scheduler, const std::vector<job_id>& victims, bool own) {
  std::vector<job_id> more = victims;
  std::erase_if(more, [&](job_id v) { return scheduler.being_preempted(*scheduler.find(v)); });
  cost_t cost = cost_of(scheduler, more, own);
  std::get<2>(cost) = std::get<2>(cost_of(scheduler, victims, own));
  return cost;
}

TEST_CASE("what ends for another gang already costs nothing more") {
  hived scheduler = one_tenant();
  const auto ask = [&](std::uint32_t job, std::int32_t priority, task_group group) {
    const gang_request r{
        .job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {group}};
    const auto plan = scheduler.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(scheduler.commit(*plan).ok());
    return *plan;
  };
  REQUIRE(ask(1, 1, {1, 4}).result == plan_result::bind);
  REQUIRE(ask(2, 9, {3, 4}).result == plan_result::bind);
  REQUIRE(ask(3, 5, {1, 2}).victims == std::vector{job_id(1)});
  REQUIRE(scheduler.finish(job_id(2)).ok());
  REQUIRE(ask(4, 0, {3, 4}).result == plan_result::bind);
  // Gang 4 is lower, but half of gang 1's leaves come free anyway.
  CHECK(ask(5, 5, {1, 2}).victims == std::vector{job_id(1)});
  // Now nothing of it does any more.
  CHECK(ask(6, 5, {1, 2}).victims == std::vector{job_id(4)});
}

TEST_CASE("with other preemptions under way, no set of gangs costs less than the victims") {
  std::uint32_t beside = 0;   // preemptions beside others
  std::uint32_t sharing = 0;  // for which a gang ends that ended already
  for (std::uint64_t seed = 0; seed < scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed / 2);
    const bool own = seed % 2 == 1;
    hived scheduler = one_tenant();
    if (own) scheduler.set_victim_cost(own_cost);
    std::vector<gang_request> in_flight;
    for (std::uint32_t job = 0; job < 40; ++job) {
      CAPTURE(job);
      gang_request request = random_request(job, random);
      const bool high = random.uniform(3) == 0;
      if (high) {
        request.priority = 5;
        request.groups = {{1, 1 + random.uniform(3)}};
      }
      const auto plan = scheduler.propose(request);
      REQUIRE(plan.ok());
      std::vector<job_id> lower;
      for (const gang_slot s : scheduler.gangs().by_job()) {
        const gang_record& gang = scheduler.gangs()[s];
        if (gang.request.priority < request.priority) lower.push_back(gang.request.job);
      }
      const auto cost = [&](const std::vector<job_id>& victims) {
        return cost_beside(scheduler, victims, own);
      };
      const std::optional<cost_t> least = least_cost(scheduler, request, lower, cost);
      REQUIRE((plan->result != plan_result::wait) == least.has_value());
      if (!least) continue;
      REQUIRE(plan->cancelled.empty());
      REQUIRE(cost(plan->victims) == *least);
      if (plan->result == plan_result::preempt && !high) continue;
      if (plan->result == plan_result::preempt) {
        beside += in_flight.empty() ? 0U : 1U;
        const auto ends = [&](job_id v) { return scheduler.being_preempted(*scheduler.find(v)); };
        sharing += std::any_of(plan->victims.begin(), plan->victims.end(), ends) ? 1U : 0U;
        in_flight.push_back(request);
      }
      REQUIRE(scheduler.commit(*plan).ok());
      if (in_flight.size() == 3) {  // all victims end, all run, and some end
        for (const gang_request& r : in_flight) {
          const auto again = scheduler.propose(r);
          REQUIRE(again.ok());
          for (const job_id v : again->victims) REQUIRE(scheduler.finish(v).ok());
        }
        for (const gang_request& r : in_flight) {
          const auto again = scheduler.propose(r);
          REQUIRE(again.ok());
          REQUIRE(again->result == plan_result::bind);
          REQUIRE(scheduler.commit(*again).ok());
          if (random.uniform(3) > 0) REQUIRE(scheduler.finish(r.job).ok());
        }
        in_flight.clear();
      }
    }
  }
  CHECK(beside > scaled(600U));
  CHECK(sharing > scaled(200U));
}

TEST_CASE("costs of a host's own are as large as they like, and stay when the cluster changes") {
  hived scheduler = one_tenant();
  const auto ask = [&](std::uint32_t job, std::int32_t priority, task_group group) {
    const auto plan = scheduler.propose(
        {.job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {group}});
    REQUIRE(plan.ok());
    if (plan->result == plan_result::bind) REQUIRE(scheduler.commit(*plan).ok());
    return plan->victims;
  };
  for (const std::uint32_t job : {1U, 2U, 3U, 4U}) REQUIRE(ask(job, 0, {1, 4}).empty());
  const std::uint64_t before = scheduler.hash();
  CHECK(ask(9, 1, {1, 4}) == std::vector{job_id(1)});
  // All but the third are beyond what counts.
  scheduler.set_victim_cost([](const gang_record& gang) {
    return gang.request.job == job_id(3) ? 1 : ~std::uint64_t{0};
  });
  CHECK(ask(9, 1, {1, 4}) == std::vector{job_id(3)});
  CHECK(ask(9, 1, {4, 4}).size() == 4);
  CHECK(scheduler.hash() == before);
  REQUIRE(scheduler.reconfigure(one_tenant_config()).ok());
  CHECK(ask(9, 1, {1, 4}) == std::vector{job_id(3)});
  scheduler.set_victim_cost({});
  CHECK(ask(9, 1, {1, 4}) == std::vector{job_id(1)});
}

TEST_CASE("choose_few finds the gangs that are enough only together") {
  for (std::uint32_t n = 1; n <= 8; ++n) {
    std::vector<gang_slot> all;
    for (std::uint32_t i = 0; i < n; ++i) all.push_back(gang_slot(i));
    for (std::uint32_t needed = 1; needed < 2U << n; ++needed) {
      std::uint32_t chosen = 0;
      const bool found = hived_victims::choose_few(all, [&](std::span<const gang_slot> some) {
        std::uint32_t have = 0;
        for (const gang_slot s : some) have |= 1U << s.value;
        if ((have & needed) != needed) return false;
        chosen = have;
        return true;
      });
      REQUIRE(found == (needed < 1U << n));
      REQUIRE(chosen == (found ? needed : 0));
    }
  }
}
