// apiary/tests/queue/job_ids_test.cpp - hosts number jobs as they like: the highest ids mean and cost
// what low ones do.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/gang_scheduler/gang_queue.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

constexpr std::uint32_t jobs_to_number = 150;
constexpr std::uint32_t highest_id = std::numeric_limits<std::uint32_t>::max() - 1;

// What a scheduler of four servers of four GPUs does when its jobs are numbered from
// `first` on: its actions, and the jobs that a broken server stops as suspended, as if numbered from 0.
template <class Scheduler>
std::vector<job_action> actions_with_ids(Scheduler scheduler, std::uint32_t first) {
  rng random(11);
  std::vector<job_action> all;
  const auto decide = [&](time_ms now) {
    std::vector<job_action> actions;
    REQUIRE(scheduler.decide(now, actions).ok());
    for (job_action& a : actions) {
      a.job.value -= first;
      all.push_back(std::move(a));
    }
  };
  std::vector<std::uint32_t> here;
  std::uint32_t fresh = 0;
  time_ms now = 0;
  while (fresh < jobs_to_number || !here.empty()) {
    now += random.uniform(4);
    while (scheduler.wake() < now) decide(scheduler.wake());
    const std::uint32_t event = random.uniform(20);
    if (event < 9 && fresh < jobs_to_number) {
      const job_request r{.job = job_id(first + fresh),
                          .tenant = tenant_id(random.uniform(2)),
                          .priority = static_cast<std::int32_t>(random.uniform(3)),
                          .gpus = 1U << random.uniform(4),
                          .estimate = 1 + random.uniform(30),
                          .max_gpus = 4};
      here.push_back(fresh++);
      REQUIRE(scheduler.submit(r, now).ok());
      CHECK(scheduler.submit(r, now).code() == absl::StatusCode::kAlreadyExists);
    } else if (event < 18 && !here.empty()) {
      const std::size_t i = random.uniform(static_cast<std::uint32_t>(here.size()));
      REQUIRE(scheduler.finish(job_id(first + here[i]), now).ok());
      CHECK(scheduler.finish(job_id(first + here[i]), now).code() == absl::StatusCode::kNotFound);
      here.erase(here.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (event == 18) {
      const absl::StatusOr<std::vector<job_id>> stopped =
          scheduler.mark_bad(node_id(random.uniform(4)), now);
      REQUIRE(stopped.ok());
      for (const job_id job : *stopped)
        all.push_back({job_action::verb::suspend, job_id(job.value - first), {}, {}});
    } else {
      REQUIRE(scheduler.mark_healthy(node_id(random.uniform(4)), now).ok());
    }
    decide(now);
  }
  return all;
}

template <class Scheduler>
void check_ids(Scheduler scheduler) {
  const std::vector<job_action> low = actions_with_ids(scheduler, 0);
  CHECK(low.size() >= jobs_to_number / 2);
  CHECK((actions_with_ids(scheduler, highest_id - jobs_to_number + 1) == low));
  const job_request none{.job = job_id(highest_id + 1), .tenant = tenant_id(0), .estimate = 1};
  CHECK(scheduler.submit(none, 0).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace

TEST_CASE("jobs numbered up to the highest id: every queue over time decides as with low ids") {
  const server_spec servers{.gpus = {4, 4, 4, 4}, .servers_per_rack = 2};
  const server_placer placer = server_placer::create(servers).value();
  for (const batch_options::rules rule :
       {batch_options::rules::fifo, batch_options::rules::backfill, batch_options::rules::easy,
        batch_options::rules::easy_gpus})
    check_ids(batch_queue(placer, {.rule = rule}));
  check_ids(conservative_queue(placer));
  for (const preemptive_options::rules rule :
       {preemptive_options::rules::shortest_remaining, preemptive_options::rules::least_attained})
    check_ids(preemptive_queue(placer, {.rule = rule, .quantum = 7}));
  for (const bounded_wait_options::orders order :
       {bounded_wait_options::orders::attained, bounded_wait_options::orders::remaining})
    check_ids(
        bounded_wait_queue(placer, {.order = order, .quantum = 7, .patience = 20, .slice = 5}));
  check_ids(philly::create({.servers = servers,
                            .quotas = {6, 10},
                            .acquire_time = 15,
                            .backoff_time = 12,
                            .max_tries = 1})
                .value());
  check_ids(gandiva::create({.servers = servers,
                             .quantum = 6,
                             .packs = true,
                             .migrates = true,
                             .migration_cost = 1,
                             .grows = true,
                             .idle_period = 5})
                .value());
  hived_config cells;
  cells.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  cells.physical_cells = {{.type = "RACK"}};
  for (const char* const node : {"n0", "n1", "n2", "n3"})
    cells.physical_cells[0].children.push_back({.address = node});
  cells.virtual_clusters = {{.name = "a", .cells = {{"RACK.NODE", 2}}},
                            {.name = "b", .cells = {{"RACK.NODE", 2}}}};
  check_ids(hived_queue::create(cells).value());
  gang_cluster cluster;
  for (const char* const node : {"n0", "n1", "n2", "n3"})
    cluster.nodes.push_back({.name = node, .gpus = 4});
  for (const bool backfill : {false, true})
    check_ids(gang_queue(gang_scheduler::create(cluster).value(), {.backfill = backfill}));
}
