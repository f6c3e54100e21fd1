// apiary/tests/philly/philly_causes_test.cpp - why jobs waited, counted again from a log of events.
// SPDX-License-Identifier: MIT
#include "support/philly_loads.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/philly/philly.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// What a host of Philly can write down about it.
struct philly_entry {
  enum class kind : std::uint8_t {
    arrival,
    start,
    stop,      // preempted, or its server broke, or it failed: it waits again
    end,       // it is gone
    collects,  // `gpus` GPUs are held for a job that waits; until the next decision
    broken,    // a server of `gpus` GPUs
    repaired,
    decided,  // the last entry of a decision
  };
  time_ms at = 0;
  kind what = kind::arrival;
  job_id job{};
  std::uint32_t gpus = 0;
};

// Philly, with a log of all that happens.
struct logged_philly {
  philly scheduler;
  std::vector<std::uint32_t> servers;
  std::vector<philly_entry> log{};
  std::map<job_id, bool> runs{};

  using kind = philly_entry::kind;
  absl::Status submit(const job_request& r, time_ms t) {
    log.push_back({t, kind::arrival, r.job});
    runs[r.job] = false;
    return scheduler.submit(r, t);
  }
  absl::Status finish(job_id j, time_ms t) {
    log.push_back({t, kind::end, j});
    runs.erase(j);
    return scheduler.finish(j, t);
  }
  absl::StatusOr<bool> fail(job_id j, failure_class why, time_ms t) {
    APIARY_ASSIGN_OR_RETURN(const bool again, scheduler.fail(j, why, t));
    log.push_back({t, again ? kind::stop : kind::end, j});
    runs[j] = false;
    if (!again) runs.erase(j);
    return again;
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) {
    log.push_back({t, kind::broken, {}, servers[n.value]});
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> stopped, scheduler.mark_bad(n, t));
    for (const job_id job : stopped) note(job, kind::stop, t);
    return stopped;
  }
  absl::Status mark_healthy(node_id n, time_ms t) {
    log.push_back({t, kind::repaired, {}, servers[n.value]});
    return scheduler.mark_healthy(n, t);
  }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    APIARY_RETURN_IF_ERROR(scheduler.decide(t, actions));
    for (const job_action& a : actions)
      note(a.job, a.what == job_action::verb::start ? kind::start : kind::stop, t);
    for (const auto& [job, running] : runs) {
      const std::uint32_t held = running ? 0 : scheduler.find(job)->held;
      if (held > 0) log.push_back({t, kind::collects, job, held});
    }
    log.push_back({t, kind::decided, {}});
    return absl::OkStatus();
  }
  time_ms wake() const { return scheduler.wake(); }
  std::uint32_t total_gpus() const { return scheduler.total_gpus(); }
  void note(job_id job, kind what, time_ms t) {
    log.push_back({t, what, job});
    runs[job] = what == kind::start;
  }
};

// How long each job waited for which cause. Between two decisions a job waits for its quota if its
// tenant's running jobs have used it up, for capacity if it asks for more GPUs than neither run jobs nor
// are collected by other tenants, and otherwise because of fragmentation.
std::vector<delays> recount(const std::vector<philly_entry>& log,
                            const std::vector<timed_job>& jobs, const philly_options& options) {
  using kind = philly_entry::kind;
  std::vector<delays> waited(jobs.size());
  std::map<job_id, delay_cause> waiting;
  std::map<job_id, std::uint32_t> collected;
  std::vector<std::uint32_t> used(options.quotas.size(), 0);
  std::uint32_t idle = apiary_test::gpus_of(options.servers);
  time_ms last = 0;
  for (const philly_entry& e : log) {
    for (const auto& [job, cause] : waiting) waited[job.value][cause] += e.at - last;
    last = e.at;
    if (e.what == kind::broken) idle -= e.gpus;
    if (e.what == kind::repaired) idle += e.gpus;
    if (e.what == kind::collects) collected[e.job] = e.gpus;
    if (e.what == kind::decided) {
      for (auto& [job, cause] : waiting) {
        const job_request& r = jobs[job.value].request;
        std::uint32_t free = idle;
        for (const auto& [other, gpus] : collected)
          free -= jobs[other.value].request.tenant == r.tenant ? 0 : gpus;
        const bool exhausted = used[r.tenant.value] >= options.quotas[r.tenant.value];
        cause = exhausted ? delay_cause::quota
                          : (r.gpus > free ? delay_cause::capacity : delay_cause::fragmentation);
      }
      collected.clear();
    }
    if (!e.job.valid() || e.what == kind::collects) continue;
    const job_request& r = jobs[e.job.value].request;
    const bool waits = waiting.contains(e.job);
    if (e.what == kind::start) {
      used[r.tenant.value] += r.gpus;
      idle -= r.gpus;
      waiting.erase(e.job);
    } else {
      if (e.what != kind::arrival && !waits) {
        used[r.tenant.value] -= r.gpus;
        idle += r.gpus;
      }
      waiting[e.job] = delay_cause::capacity;
      if (e.what == kind::end) waiting.erase(e.job);
    }
  }
  return waited;
}

}  // namespace

TEST_CASE("philly: the causes of delay are those of a log of events, counted again") {
  delays all{};
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const philly_options options = apiary_test::random_philly(random);
    const std::vector<timed_job> jobs =
        apiary_test::philly_jobs(seed, 120, apiary_test::gpus_of(options.servers));
    logged_philly host{philly::create(options).value(), options.servers.gpus};
    const auto run = simulate(
        host, jobs, apiary_test::two_outages(),
        {.failures = apiary_test::random_failures(random, jobs)},
        [](const timed_job&, const job_placement&) { return full_speed; },
        [](const simulation_event&) {});
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    const std::vector<delays> expected = recount(host.log, jobs, options);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      REQUIRE(run->jobs[j].waited == expected[j]);
      all += expected[j];
    }
  }
  CHECK(all[delay_cause::quota] > 0);
  CHECK(all[delay_cause::capacity] > 0);
  CHECK(all[delay_cause::fragmentation] > 0);
}

// Within its quota although the quota has not enough GPUs left: what keeps the job is the cluster.
TEST_CASE("philly: a quota that is not used up is no cause of delay") {
  philly p = philly::create({.servers = {.gpus = {4, 4}, .servers_per_rack = 2}, .quotas = {4, 4}})
                 .value();
  std::vector<job_action> actions;
  const auto submit = [&](std::uint32_t job, std::uint32_t tenant, std::uint32_t gpus) {
    REQUIRE(p.submit({.job = job_id(job), .tenant = tenant_id(tenant), .gpus = gpus}, 0).ok());
    REQUIRE(p.decide(0, actions).ok());
  };
  submit(0, 0, 3);
  submit(1, 1, 4);
  submit(2, 0, 2);  // one GPU of the quota is left, and one GPU is idle
  CHECK(p.waited(job_id(2), 50)->by_cause == delays{{0, 50, 0, 0}}.by_cause);
  REQUIRE(p.finish(job_id(1), 50).ok());
  REQUIRE(p.decide(50, actions).ok());
  REQUIRE(actions.size() == 3);
  CHECK(actions[2].waited[delay_cause::capacity] == 50);
}
