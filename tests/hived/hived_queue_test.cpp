// apiary/tests/hived/hived_queue_test.cpp - jobs over time on tenants' cells, audited at each event.
// SPDX-License-Identifier: MIT
#include "support/forwarding_scheduler.h"
#include "support/hived_clusters.h"
#include "support/naive_hived_queue.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::two_racks;

namespace {

hived_queue queue_of(const hived_config& config, bool over_quota,
                     hived_queue::rules rule = hived_queue::rules::easy,
                     time_ms patience = 86'400'000) {
  auto made = hived_queue::create(config, over_quota, rule, patience);
  REQUIRE_MESSAGE(made.ok(), made.status().ToString());
  return *std::move(made);
}

job_request of_tenant(std::uint32_t tenant, std::uint32_t job, std::uint32_t gpus,
                      std::int32_t priority = 0) {
  return {.job = job_id(job), .tenant = tenant_id(tenant), .priority = priority, .gpus = gpus};
}

// "+3" for a start of job 3, "-3" for its suspension.
std::string said(hived_queue& queue, time_ms now) {
  std::vector<job_action> actions;
  CHECK(queue.decide(now, actions).ok());
  std::string all;
  for (const job_action& a : actions) {
    all += a.what == job_action::verb::start ? '+' : '-';
    all += std::to_string(a.job.value);
  }
  return all;
}

// Audits the cells below after every call, and looks after each decision whether it took all it
// could: what waits is asked for again, one by one, the order of those that started is counted out,
// and another decision at the same time does nothing.
struct audited_queue {
  hived_queue queue;
  bool over_quota = true;
  std::map<std::uint32_t, job_request> waiting{};
  std::map<std::uint32_t, job_request> running{};
  std::map<std::uint32_t, time_ms> came{};
  std::uint64_t opportunistic = 0;
  std::uint64_t suspensions = 0;
  std::uint64_t waits = 0;

  void audit_all() const { REQUIRE(apiary_test::faults_of(queue.scheduler()).empty()); }

  absl::Status submit(const job_request& r, time_ms t) {
    absl::Status status = queue.submit(r, t);
    audit_all();
    if (status.ok()) {
      waiting[r.job.value] = r;
      came[r.job.value] = t;
    }
    return status;
  }
  absl::Status finish(job_id j, time_ms t) {
    absl::Status status = queue.finish(j, t);
    audit_all();
    waiting.erase(j.value);
    running.erase(j.value);
    return status;
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) {
    absl::StatusOr<std::vector<job_id>> stopped = queue.mark_bad(n, t);
    audit_all();
    REQUIRE(stopped.ok());
    for (const job_id j : *stopped) waiting.insert(running.extract(j.value));
    return stopped;
  }
  absl::Status mark_healthy(node_id n, time_ms t) {
    absl::Status status = queue.mark_healthy(n, t);
    audit_all();
    return status;
  }
  time_ms wake() const { return queue.wake(); }
  std::uint32_t total_gpus() const { return queue.total_gpus(); }

  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    absl::Status status = queue.decide(now, actions);
    audit_all();
    for (const job_action& a : actions) {
      if (a.what == job_action::verb::suspend) {
        REQUIRE(running.contains(a.job.value));
        waiting.insert(running.extract(a.job.value));
        ++suspensions;
        continue;
      }
      REQUIRE(waiting.contains(a.job.value));
      running.insert(waiting.extract(a.job.value));
      std::uint32_t gpus = 0;
      std::set<node_id> nodes;
      for (const placement& p : a.where) {
        gpus += p.num_gpus();
        REQUIRE(nodes.insert(p.node).second);
      }
      REQUIRE(gpus == running.at(a.job.value).gpus);
    }
    check_phases();
    for (const auto& [job, r] : waiting) check_wait(r);
    std::vector<job_action> again;
    REQUIRE(queue.decide(now, again).ok());
    REQUIRE(again.empty());
    return status;
  }

  void check_phases() {
    std::uint32_t used = 0;
    REQUIRE(queue.num_jobs() == waiting.size() + running.size());
    REQUIRE(queue.scheduler().gangs().size() == running.size());
    for (const auto& [job, r] : running) {
      const gang_record* gang = queue.scheduler().find(r.job);
      REQUIRE(gang != nullptr);
      REQUIRE(gang->state == gang_state::allocated);
      REQUIRE_FALSE(gang->downgraded);
      const auto phase =
          gang->guaranteed() ? hived_queue::phase::guaranteed : hived_queue::phase::opportunistic;
      REQUIRE(queue.find(r.job) == phase);
      REQUIRE((r.priority >= 0 || !gang->guaranteed()));
      REQUIRE((r.priority < 0 || over_quota || gang->guaranteed()));
      opportunistic += gang->guaranteed() ? 0U : 1U;
      used += r.gpus;
    }
    std::uint32_t bad = 0;
    for (std::uint32_t c = 0; c < queue.scheduler().cells().num_chains(); ++c) {
      const physical_chain& chain = queue.scheduler().cells().chain(c);
      for (const cell_id leaf : chain.tree().cells(0))
        bad += chain.healthy().healthy(leaf) ? 0U : 1U;
    }
    REQUIRE(queue.idle_gpus() == queue.total_gpus() - bad - used);
  }
  // Whether another job of its tenant and priority waits, came before it, and fits into the cells.
  bool behind_first(const job_request& r) const {
    return std::any_of(waiting.begin(), waiting.end(), [&](const auto& entry) {
      const job_request& first = entry.second;
      return first.tenant == r.tenant && first.priority == r.priority &&
             std::pair(came.at(first.job.value), first.job) <
                 std::pair(came.at(r.job.value), r.job) &&
             queue.fits_cells(first.job) == true;
    });
  }
  void check_wait(const job_request& r) {
    REQUIRE(queue.find(r.job) == hived_queue::phase::wait);
    ++waits;
    std::uint32_t size = ~0U;
    for (const chain_layout& c : queue.scheduler().layout().chains)
      size = std::min(size, c.tree.leaves_per_cell(c.node_level));
    gang_request gang{.job = r.job, .tenant = r.tenant, .priority = r.priority};
    for (std::uint32_t left = r.gpus; left > 0; left -= std::min(left, size))
      gang.groups.push_back({1, std::min(left, size)});
    hived copy = queue.scheduler();
    if (r.priority >= 0 && !behind_first(r)) {
      const absl::StatusOr<gang_plan> plan = copy.propose(gang);
      REQUIRE((!plan.ok() || plan->result == plan_result::wait));
    }
    if (r.priority >= 0 && !over_quota) return;
    gang.priority = gang_request::opportunistic_priority;
    const absl::StatusOr<gang_plan> plan = copy.propose(gang);
    REQUIRE(plan.ok());
    REQUIRE(plan->result == plan_result::wait);
  }
};

static_assert(JobScheduler<hived_queue> && JobScheduler<audited_queue>);

// Jobs that the cluster can hold, numbered by arrival.
std::vector<timed_job> jobs_for(const hived_queue& queue, rng& random, std::uint32_t count,
                                std::uint32_t priorities) {
  hived_queue probe = queue;
  const auto tenants = static_cast<std::uint32_t>(queue.scheduler().layout().tenants.size());
  std::vector<timed_job> jobs;
  const std::uint32_t most = 1 + random.uniform(queue.total_gpus());
  const std::uint32_t spread = 1 + random.uniform(60);
  const std::uint32_t estimates = random.uniform(3);  // 0: none
  for (std::uint32_t i = 0; i < count; ++i) {
    timed_job job;
    job.request = of_tenant(random.uniform(tenants), i, 1 + random.uniform(most),
                            static_cast<std::int32_t>(random.uniform(priorities)) - 1);
    job.arrival = random.uniform(spread);
    job.duration = 1 + random.uniform(20);
    if (estimates == 1) job.request.estimate = job.duration + random.uniform(10);
    if (estimates == 2) job.request.estimate = random.uniform(25);  // too short, too
    if (probe.submit(job.request, 0).ok()) jobs.push_back(job);
  }
  job_list::number_by_arrival(jobs);
  return jobs;
}

// Counts the jobs that wait longer than the bound of the header. Jobs are numbered by arrival, have
// equal priorities and fit into their tenant's cells.
struct waits_of_tenants : apiary_test::forwarding_scheduler<hived_queue> {
  time_ms longest = 0;      // the longest estimate of a job of the list
  time_ms longest_run = 0;  // that a job of the list runs
  int late = 0;
  int late_by_runs = 0;  // those that wait longer than the bound would be with the longest run
  int suspended = 0;
  struct wait {
    job_request request{};
    time_ms since = 0;
    time_ms jobs = 1;  // for so many jobs, one after the other, it may have to wait
  };
  std::map<std::uint32_t, job_request> jobs{};
  std::map<std::uint32_t, wait> waiting{};

  void begin(const job_request& r, time_ms now) {
    wait added{r, now};
    for (auto& [job, other] : waiting) {
      if (other.request.tenant != r.tenant) continue;
      (job < r.job.value ? added.jobs : other.jobs) += job < r.job.value ? 1 : 2;
    }
    waiting[r.job.value] = added;
  }
  absl::Status submit(const job_request& r, time_ms t) {
    jobs[r.job.value] = r;
    begin(r, t);
    return scheduler.submit(r, t);
  }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    absl::Status status = scheduler.decide(t, actions);
    for (const job_action& a : actions) {
      if (a.what == job_action::verb::suspend) {
        ++suspended;
        begin(jobs.at(a.job.value), t);
      } else {
        const wait& w = waiting.at(a.job.value);
        late += t - w.since > w.jobs * longest ? 1 : 0;
        late_by_runs += t - w.since > w.jobs * longest_run ? 1 : 0;
        waiting.erase(a.job.value);
      }
    }
    return status;
  }
};

}  // namespace

TEST_CASE("hived_queue: guaranteed jobs start first; a suspended job keeps its arrival") {
  hived_queue queue = queue_of(two_racks(), true);
  CHECK(queue.total_gpus() == 16);
  CHECK(queue.submit(of_tenant(1, 0, 16), 0).ok());  // more than b's cells: opportunistic
  CHECK(said(queue, 0) == "+0");
  CHECK(queue.find(job_id(0)) == hived_queue::phase::opportunistic);
  CHECK(queue.submit(of_tenant(1, 1, 4, -1), 5).ok());
  CHECK(said(queue, 5).empty());
  CHECK(queue.submit(of_tenant(0, 2, 1), 10).ok());
  CHECK(said(queue, 10) == "-0+2+1");  // job 0 came before, but does not fit any more
  CHECK(queue.find(job_id(2)) == hived_queue::phase::guaranteed);
  CHECK(queue.finish(job_id(1), 20).ok());
  CHECK(said(queue, 20).empty());
  CHECK(queue.finish(job_id(2), 30).ok());
  CHECK(said(queue, 30) == "+0");
  CHECK(queue.idle_gpus() == 0);
}

TEST_CASE("hived_queue: without lending guaranteed jobs stay on their tenant's cells") {
  hived_queue queue = queue_of(two_racks(), false);
  CHECK(queue.submit(of_tenant(1, 0, 5), 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit(of_tenant(1, 0, 3), 0).ok());
  CHECK(queue.submit(of_tenant(1, 1, 2), 0).ok());
  CHECK(queue.submit(of_tenant(1, 2, 1), 0).ok());
  CHECK(said(queue, 0) == "+0+2");  // a job that fits overtakes
  CHECK(queue.finish(job_id(0), 10).ok());
  CHECK(said(queue, 10) == "+1");
}

TEST_CASE("hived_queue: a job suspends lower priorities of its tenant only") {
  hived_queue queue = queue_of(two_racks(), false, hived_queue::rules::first_fit);
  CHECK(queue.submit(of_tenant(1, 0, 4, 1), 0).ok());
  CHECK(queue.submit(of_tenant(0, 1, 8, 0), 0).ok());
  CHECK(said(queue, 0) == "+1+0");
  CHECK(queue.submit(of_tenant(1, 2, 2, 1), 1).ok());
  CHECK(said(queue, 1).empty());  // the same priority waits
  CHECK(queue.submit(of_tenant(1, 3, 1, 1000), 2).ok());
  CHECK(said(queue, 2) == "-0+3+2");
  CHECK(queue.find(job_id(1)) == hived_queue::phase::guaranteed);
  // A queue whose first job did not fit is tried again once a job of its tenant has been stopped.
  CHECK(queue.submit(of_tenant(1, 4, 1, 0), 3).ok());
  CHECK(said(queue, 3) == "+4");
}

TEST_CASE("hived_queue: small jobs do not overtake a large one again and again") {
  const auto starts = [](hived_queue::rules rule, time_ms estimate) {
    // At each moment a job of 1 GPU comes, for 3 ms; the fourth job takes the whole cell of 4 GPUs.
    hived_queue queue = queue_of(two_racks(), false, rule);
    std::vector<timed_job> jobs;
    for (std::uint32_t i = 0; i < 40; ++i) {
      timed_job job;
      job.request = of_tenant(1, i, i == 3 ? 4 : 1);
      job.request.estimate = estimate;
      job.arrival = i;
      job.duration = 3;
      jobs.push_back(job);
    }
    return simulate(queue, jobs).value().jobs[3].started;
  };
  CHECK(starts(hived_queue::rules::first_fit, 3) == 42);
  CHECK(starts(hived_queue::rules::first_fit, max_time) == 42);
  CHECK(starts(hived_queue::rules::easy, 3) == 5);
  CHECK(starts(hived_queue::rules::easy, max_time) == 5);
  CHECK(starts(hived_queue::rules::easy, 0) == 5);  // too short: all exceed it
}

namespace {

// Watches jobs that can only run on idle GPUs. None of them may wait when `patience` has passed and
// each job that ran or came before it has ended, and should have ended by its estimate, if it has one.
struct watched_idle_waits : apiary_test::forwarding_scheduler<hived_queue> {
  struct waiting_job {
    time_ms estimate = 0;
    time_ms came = 0;
    time_ms since = 0;
    std::optional<std::set<job_id>> before{};  // once it starves: those that had not ended
  };
  time_ms patience = 0;
  std::map<job_id, waiting_job> waiting{};
  std::map<job_id, time_ms> running{};  // when they came
  std::map<job_id, time_ms> due{};      // of those that have started: the ends by their estimates
  std::uint64_t starved = 0;
  std::uint64_t late = 0;
  std::uint64_t late_by_runs =
      0;  // those that wait when the others have ended, whatever the estimates

  absl::Status submit(const job_request& r, time_ms now) {
    waiting[r.job] = {r.estimate, now, now, std::nullopt};
    return scheduler.submit(r, now);
  }
  absl::Status finish(job_id job, time_ms now) {
    running.erase(job);
    return scheduler.finish(job, now);
  }
  [[nodiscard]] bool has_ended(job_id job) const {
    return !waiting.contains(job) && !running.contains(job);
  }
  // By its estimate.
  [[nodiscard]] bool should_have_ended(job_id job, time_ms now) const {
    return due.at(job) <= now || due.at(job) == max_time;
  }
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    for (auto& [job, w] : waiting) {
      if (w.before || now - w.since < patience) continue;
      ++starved;
      w.before.emplace();
      for (const auto& [other, came] : running) w.before->insert(other);
      for (const auto& [other, o] : waiting)
        if (std::pair(o.came, other) < std::pair(w.came, job)) w.before->insert(other);
    }
    const absl::Status status = scheduler.decide(now, actions);
    for (const job_action& a : actions) {
      REQUIRE(a.what == job_action::verb::start);
      running[a.job] = waiting.at(a.job).came;
      due[a.job] = add_time(now, waiting.at(a.job).estimate);
      waiting.erase(a.job);
    }
    for (const auto& [job, w] : waiting) {
      if (!w.before) continue;
      const auto all = [&before = *w.before](auto&& f) {
        return std::all_of(before.begin(), before.end(), f);
      };
      if (!all([&](job_id other) { return has_ended(other); })) continue;
      ++late_by_runs;
      if (all([&](job_id other) { return should_have_ended(other, now); })) ++late;
    }
    return status;
  }
};

}  // namespace

TEST_CASE(
    "hived_queue: narrow jobs on idle GPUs do not keep out a wide one for longer than stated") {
  // One node of 4 GPUs, a job of one GPU for 300 s every minute, and one of 4 GPUs at second 1. The
  // jobs are opportunistic, or of a tenant without cells.
  hived_config node;
  node.cell_types = {{"NODE", "GPU", 4, true}};
  node.physical_cells = {{.type = "NODE", .address = "n0"}};
  node.virtual_clusters = {{.name = "all", .cells = {{"NODE", 1}}}, {.name = "none", .cells = {}}};
  for (const std::uint32_t tenant : {0U, 1U}) {
    CAPTURE(tenant);
    const auto starts = [&](time_ms patience) {
      std::vector<timed_job> jobs;
      for (std::uint32_t j = 0; j < 200; ++j)
        jobs.push_back({of_tenant(tenant, j, j == 1 ? 4 : 1, tenant == 0 ? -1 : 0),
                        j == 1 ? 1000 : 60'000 * time_ms{j == 0 ? 0 : j - 1}, 300'000});
      hived_queue queue = queue_of(node, true, hived_queue::rules::easy, patience);
      const auto run = simulate(queue, jobs);
      REQUIRE_MESSAGE(run.ok(), run.status().ToString());
      return run->jobs[1].started;
    };
    CHECK(starts(max_time) > 198 * 60'000);  // after all others
    // The next job that would start before it after its patience waits for it.
    CHECK(starts(0) == 300'000);
    CHECK(starts(3'600'000) <= 1000 + 3'600'000 + 300'000);
    CHECK(starts(3'600'000) > 1000 + 3'600'000);
  }
}

TEST_CASE("hived_queue: whatever arrives, a job on idle GPUs waits no longer than the bound") {
  std::uint64_t starved = 0;
  std::uint64_t late = 0;
  std::uint64_t late_by_runs = 0;
  for (std::uint64_t seed = 0; seed < std::max(60U, apiary_test::scaled(300U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const time_ms patience = random.uniform(60);
    // A job of 1 to 16 GPUs of any tenant; the last tenant has no cells.
    std::vector<timed_job> jobs;
    const std::uint32_t gap = 1 + random.uniform(4);
    const std::uint32_t most = 1 + random.uniform(4);
    const auto add = [&](std::uint32_t gpus, time_ms at, time_ms duration) {
      const bool guaranteed = random.uniform(3) == 0;
      jobs.push_back({of_tenant(guaranteed ? 2 : random.uniform(3), 0, gpus, guaranteed ? 0 : -1),
                      at, duration});
    };
    for (std::uint32_t wide = 1 + random.uniform(4); wide > 0; --wide) {
      const std::uint32_t gpus = 1 + random.uniform(16);
      const time_ms at = random.uniform(30);
      add(gpus, at, 20 + random.uniform(80));
    }
    for (time_ms t = 0; t < 400; t += gap) {
      const std::uint32_t gpus = 1 + random.uniform(most);
      add(gpus, t, 2 + random.uniform(8 * gap));
    }
    // Estimates are exact, missing, or exact or too long.
    for (timed_job& j : jobs) {
      if (seed % 3 != 1) j.request.estimate = j.duration;
      if (seed % 3 == 2 && random.uniform(2) == 0) j.request.estimate += random.uniform(200);
    }
    job_list::number_by_arrival(jobs);
    for (const bool bounded : {true, false}) {
      watched_idle_waits watch{
          {queue_of(two_racks(), true, hived_queue::rules::easy, bounded ? patience : max_time)},
          patience};
      const auto run = simulate(watch, jobs);
      REQUIRE_MESSAGE(run.ok(), run.status().ToString());
      REQUIRE((!bounded || watch.late == 0));
      REQUIRE((!bounded || seed % 3 == 2 || watch.late_by_runs == 0));
      starved += bounded ? watch.starved : 0;
      late_by_runs += bounded ? watch.late_by_runs : 0;
      late += watch.late;
    }
  }
  CHECK(starved > 0);
  CHECK(late_by_runs > 0);
  CHECK(late > 0);  // without patience
}

TEST_CASE("hived_queue: a starving job for which hardware is bad keeps nothing from idle GPUs") {
  hived_queue queue = queue_of(two_racks(), true, hived_queue::rules::easy, 10);
  REQUIRE(queue.submit(of_tenant(0, 0, 4, -1), 0).ok());
  REQUIRE(queue.submit(of_tenant(0, 1, 16, -1), 0).ok());
  std::vector<job_action> actions;
  REQUIRE(queue.decide(0, actions).ok());
  REQUIRE(actions.size() == 1);
  const node_id other(actions[0].where[0].node.value == 3 ? 0 : 3);
  REQUIRE(queue.mark_bad(other, 5).ok());
  REQUIRE(queue.submit(of_tenant(0, 2, 4, -1), 20).ok());
  CHECK(said(queue, 20) == "+2");
  REQUIRE(queue.mark_healthy(other, 30).ok());
  REQUIRE(queue.submit(of_tenant(0, 3, 4, -1), 30).ok());
  CHECK(said(queue, 30).empty());  // now it would fit
  REQUIRE(queue.submit(of_tenant(0, 4, 4), 35).ok());
  CHECK(said(queue, 35) == "+4");  // on its tenant's cells
  for (const std::uint32_t job : {0U, 2U, 4U}) REQUIRE(queue.finish(job_id(job), 40).ok());
  CHECK(said(queue, 40) == "+1");
  REQUIRE(queue.finish(job_id(1), 50).ok());
  actions.clear();
  REQUIRE(queue.decide(50, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].job == job_id(3));
  // Until 40 it had to wait for job 1 although GPUs were idle, then for job 1 to end.
  CHECK(actions[0].waited == delays{{0, 10, 0, 10}});
  CHECK(hived_queue::create(two_racks(), true, hived_queue::rules::easy, -1).status() ==
        absl::InvalidArgumentError("a patience of -1 ms; it must be at least 0"));
}

TEST_CASE("hived_queue: a job overtakes if it ends in time, or if the first job fits beside it") {
  const auto with = [](job_request r, time_ms estimate) {
    r.estimate = estimate;
    return r;
  };
  hived_queue queue = queue_of(two_racks(), false);  // a: two nodes of four GPUs
  CHECK(queue.submit(with(of_tenant(0, 0, 3), 10), 0).ok());
  CHECK(queue.submit(with(of_tenant(0, 1, 3), 20), 0).ok());
  CHECK(said(queue, 0) == "+0+1");
  CHECK(queue.submit(with(of_tenant(0, 2, 4), 5), 1).ok());   // from 10 on, instead of job 0
  CHECK(queue.submit(with(of_tenant(0, 3, 1), 10), 1).ok());  // ends at 11: not beside job 0
  CHECK(queue.submit(with(of_tenant(0, 4, 1), 10), 1).ok());
  CHECK(queue.submit(with(of_tenant(0, 5, 1), 9), 1).ok());  // ends at 10
  CHECK(said(queue, 1) == "+5+3");  // only the GPU beside job 1 is left for job 3, none for job 4
  CHECK(queue.finish(job_id(0), 10).ok());
  CHECK(queue.finish(job_id(5), 10).ok());
  CHECK(said(queue, 10) == "+2");
  std::vector<job_action> actions;
  CHECK(queue.finish(job_id(2), 15).ok());
  CHECK(queue.decide(15, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].job == job_id(4));
  CHECK(actions[0].waited == delays{{14, 0, 0, 0}});
}

TEST_CASE("hived_queue: a reservation stays while many jobs suspend others in one decision") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 32, true}};
  config.physical_cells = {{.type = "NODE", .address = "n"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}};
  hived_queue queue = queue_of(config, false);
  const auto submit = [&](std::uint32_t id, std::uint32_t gpus, std::int32_t priority,
                          time_ms estimate) {
    job_request r = of_tenant(0, id, gpus, priority);
    r.estimate = estimate;
    REQUIRE(queue.submit(r, 0).ok());
  };
  submit(1, 1, 9, 1000);
  for (std::uint32_t id = 2; id <= 32; ++id) submit(id, 1, 0, 5000);
  REQUIRE(!said(queue, 0).empty());
  submit(40, 32, 5, 100);  // waits for job 1
  for (std::uint32_t id = 41; id <= 60; ++id) submit(id, 1, 5, 10);
  submit(61, 1, 5, 2000);  // would delay job 40
  submit(62, 1, 5, 10);
  const std::string all = said(queue, 0);
  CHECK(all.find("+60") != std::string::npos);
  CHECK(all.find("+61") == std::string::npos);
  CHECK(all.find("+62") != std::string::npos);
}

TEST_CASE("hived_queue: all jobs that end at the same time count as ended") {
  hived_queue queue = queue_of(two_racks(), false);
  for (const std::uint32_t job : {0U, 1U}) {
    job_request r = of_tenant(0, job, 3 + job);
    r.estimate = 10;
    CHECK(queue.submit(r, 0).ok());
  }
  CHECK(said(queue, 0) == "+0+1");
  CHECK(queue.submit(of_tenant(0, 2, 4), 1).ok());  // from 10 on, on either node
  CHECK(queue.submit(of_tenant(0, 3, 1), 1).ok());  // beside job 0, until after 10
  CHECK(said(queue, 1) == "+3");
}

TEST_CASE("hived_queue: jobs without an estimate are taken to end one after the other") {
  hived_queue queue = queue_of(two_racks(), false);  // a: two nodes of four GPUs
  CHECK(queue.submit(of_tenant(0, 0, 3), 0).ok());
  CHECK(queue.submit(of_tenant(0, 1, 4), 0).ok());
  CHECK(said(queue, 0) == "+0+1");
  CHECK(queue.submit(of_tenant(0, 2, 4), 1).ok());  // in place of job 0, which began first
  CHECK(queue.submit(of_tenant(0, 3, 1), 1).ok());  // only beside job 0
  CHECK(said(queue, 1).empty());
  CHECK(queue.finish(job_id(1), 2).ok());
  CHECK(said(queue, 2) == "+2+3");
}

TEST_CASE("hived_queue: a job is held back only while a job of its priority waits before it") {
  const auto with = [](job_request r, time_ms estimate) {
    r.estimate = estimate;
    return r;
  };
  for (const std::int32_t first : {0, 1}) {
    hived_queue queue = queue_of(two_racks(), false);
    CHECK(queue.submit(with(of_tenant(0, 0, 3, 1), 10), 0).ok());
    CHECK(queue.submit(with(of_tenant(0, 1, 4, 1), 20), 0).ok());
    CHECK(said(queue, 0) == "+0+1");
    CHECK(queue.submit(with(of_tenant(0, 2, 8, first), 5), 1).ok());  // from 20 on
    CHECK(queue.submit(with(of_tenant(0, 3, 1, 0), 30), 1).ok());
    if (first == 1) {  // the first job may suspend it
      CHECK(said(queue, 1) == "+3");
      CHECK(queue.finish(job_id(0), 2).ok());
      CHECK(queue.finish(job_id(1), 2).ok());
      CHECK(said(queue, 2) == "-3+2");
      continue;
    }
    CHECK(said(queue, 1).empty());
    CHECK(said(queue, 2).empty());
    CHECK(queue.finish(job_id(2), 3).ok());  // withdrawn
    std::vector<job_action> actions;
    CHECK(queue.decide(4, actions).ok());
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].job == job_id(3));
    CHECK(actions[0].waited == delays{{0, 0, 0, 3}});
  }
}

TEST_CASE("hived_queue: a job that is suspended does not end the reservation of a lower priority") {
  const auto with = [](job_request r, time_ms estimate) {
    r.estimate = estimate;
    return r;
  };
  using phase = hived_queue::phase;
  hived_queue queue = queue_of(two_racks(), true);
  CHECK(queue.submit(with(of_tenant(0, 0, 4, 6), 100), 0).ok());
  CHECK(queue.submit(of_tenant(1, 1, 4), 0).ok());
  CHECK(said(queue, 0) == "+0+1");
  CHECK(queue.submit(of_tenant(0, 2, 8, 5), 1).ok());
  CHECK(said(queue, 1) == "+2");
  CHECK(queue.find(job_id(2)) == phase::opportunistic);
  CHECK(queue.submit(of_tenant(0, 3, 8), 2).ok());  // from 100 on
  CHECK(said(queue, 2).empty());
  CHECK(queue.submit(with(of_tenant(0, 4, 1), 50), 3).ok());    // ends before 100
  CHECK(queue.submit(with(of_tenant(0, 5, 3), 1000), 3).ok());  // does not
  CHECK(said(queue, 3) == "-2+4+5");
  CHECK(queue.find(job_id(4)) == phase::guaranteed);
  CHECK(queue.find(job_id(5)) == phase::opportunistic);  // it must not delay job 3
  CHECK(queue.finish(job_id(4), 53).ok());
  CHECK(queue.finish(job_id(2), 53).ok());
  CHECK(said(queue, 53).empty());
  CHECK(queue.finish(job_id(0), 100).ok());
  CHECK(said(queue, 100) == "+3");
}

TEST_CASE("hived_queue: a first job that starts on idle GPUs lets those that it held back start") {
  const auto with = [](job_request r, time_ms estimate) {
    r.estimate = estimate;
    return r;
  };
  using phase = hived_queue::phase;
  hived_queue queue = queue_of(two_racks(), true);
  CHECK(queue.submit(of_tenant(2, 0, 8, -1), 0).ok());  // the two nodes that are not a's
  CHECK(said(queue, 0) == "+0");
  CHECK(queue.submit(with(of_tenant(0, 1, 3), 10), 1).ok());
  CHECK(queue.submit(with(of_tenant(0, 2, 3), 20), 1).ok());
  CHECK(queue.submit(of_tenant(2, 3, 1, -1), 1).ok());  // beside them
  CHECK(queue.submit(of_tenant(2, 4, 1, -1), 1).ok());
  CHECK(said(queue, 1) == "+1+2+3+4");
  CHECK(queue.idle_gpus() == 0);
  CHECK(queue.submit(with(of_tenant(0, 5, 8), 50), 2).ok());   // from 20 on
  CHECK(queue.submit(with(of_tenant(0, 6, 1), 100), 2).ok());  // must not overtake it
  CHECK(queue.submit(with(of_tenant(0, 7, 1), 90), 2).ok());
  CHECK(said(queue, 2).empty());
  CHECK(queue.finish(job_id(0), 5).ok());
  const std::string now = said(queue, 5);  // both suspend an opportunistic job
  CHECK((now == "+5-3+6-4+7" || now == "+5-4+6-3+7"));
  CHECK(queue.find(job_id(5)) == phase::opportunistic);
  CHECK(queue.find(job_id(6)) == phase::guaranteed);
  CHECK(queue.find(job_id(7)) == phase::guaranteed);
  CHECK(said(queue, 5).empty());
}

TEST_CASE("hived_queue: a job that has to wait for bad hardware is overtaken") {
  hived_queue queue = queue_of(two_racks(), false);
  for (const std::uint32_t node : {0U, 2U, 3U}) CHECK(queue.mark_bad(node_id(node), 0).ok());
  CHECK(queue.submit(of_tenant(0, 0, 8), 1).ok());
  CHECK(queue.submit(of_tenant(0, 1, 2), 1).ok());
  CHECK(said(queue, 1) == "+1");
  for (const std::uint32_t node : {0U, 2U, 3U}) CHECK(queue.mark_healthy(node_id(node), 2).ok());
  CHECK(queue.submit(of_tenant(0, 2, 2), 2).ok());
  CHECK(said(queue, 2).empty());
  CHECK(queue.finish(job_id(1), 3).ok());
  CHECK(said(queue, 3) == "+0");
}

TEST_CASE("hived_queue: a reservation does not count on bad hardware in a bound cell") {
  const auto with = [](job_request r, time_ms estimate) {
    r.estimate = estimate;
    return r;
  };
  hived_config config = two_racks();
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}}}};
  hived_queue queue = queue_of(config, false);
  CHECK(queue.submit(with(of_tenant(0, 0, 2), 10), 0).ok());
  std::vector<job_action> actions;
  CHECK(queue.decide(0, actions).ok());
  REQUIRE(actions.size() == 1);
  const node_id used = actions[0].where[0].node;
  CHECK(queue.mark_bad(node_id(used.value ^ 1U), 1).ok());    // the other node of its rack
  CHECK(queue.submit(with(of_tenant(0, 1, 4), 5), 1).ok());   // from 10 on
  CHECK(queue.submit(with(of_tenant(0, 2, 2), 20), 1).ok());  // would delay it
  CHECK(queue.submit(with(of_tenant(0, 3, 1), 9), 1).ok());
  CHECK(said(queue, 1) == "+3");
  CHECK(queue.mark_healthy(node_id(used.value ^ 1U), 2).ok());
  CHECK(said(queue, 2) == "+1");
}

TEST_CASE("hived_queue: a job larger than its tenant's cells is refused, or runs on idle GPUs") {
  hived_queue lends = queue_of(two_racks(), true);
  CHECK(lends.submit(of_tenant(1, 0, 5), 0).ok());
  CHECK(lends.submit(of_tenant(1, 1, 4), 0).ok());
  CHECK(lends.fits_cells(job_id(0)) == false);
  CHECK(lends.fits_cells(job_id(1)) == true);
  CHECK_FALSE(lends.fits_cells(job_id(2)).has_value());
  CHECK(said(lends, 0) == "+1+0");
  CHECK(lends.find(job_id(0)) == hived_queue::phase::opportunistic);
  hived_queue keeps = queue_of(two_racks(), false);
  CHECK(keeps.submit(of_tenant(1, 0, 5), 0).message() ==
        "job 0 requests 5 GPUs; they do not fit into the 4 GPUs of the cells of tenant \"b\" even "
        "when all are free");
  CHECK(lends.submit(of_tenant(1, 2, 17), 0).message() ==
        "job 2 requests 17 GPUs; they do not fit into the 16 GPUs of the cluster even when all are "
        "free");
}

TEST_CASE("hived_queue: why each waited") {
  hived_queue queue = queue_of(two_racks(), false);
  std::vector<job_action> actions;
  CHECK(queue.submit(of_tenant(0, 0, 3), 0).ok());
  CHECK(queue.submit(of_tenant(0, 1, 3), 0).ok());
  CHECK(queue.submit(of_tenant(0, 2, 3), 0).ok());
  CHECK(queue.submit(of_tenant(0, 3, 2), 0).ok());  // two are free, on two nodes
  CHECK(queue.submit(of_tenant(2, 4, 12, -1), 0).ok());
  CHECK(queue.decide(0, actions).ok());
  CHECK(actions.size() == 2);
  CHECK(queue.finish(job_id(0), 10).ok());
  CHECK(queue.decide(10, actions).ok());
  CHECK(queue.finish(job_id(1), 25).ok());
  CHECK(queue.decide(25, actions).ok());
  CHECK(queue.finish(job_id(2), 40).ok());
  CHECK(queue.finish(job_id(3), 40).ok());
  CHECK(queue.decide(40, actions).ok());
  REQUIRE(actions.size() == 5);
  CHECK(actions[2].job == job_id(2));
  CHECK(actions[2].waited == delays{{10, 0, 0, 0}});
  CHECK(actions[3].job == job_id(3));
  CHECK(actions[3].waited == delays{{0, 0, 25, 0}});
  CHECK(actions[4].job == job_id(4));
  CHECK(actions[4].waited == delays{{0, 40, 0, 0}});
}

TEST_CASE("hived_queue: what a host may send wrongly, and withdrawals") {
  using code = absl::StatusCode;
  hived_queue queue = queue_of(two_racks(), true);
  const std::uint64_t hash = queue.scheduler().hash();
  CHECK(queue.submit({}, 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 0), 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 17), 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, ~0U), 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 17, -1), 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 1, -2), 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 1, 1001), 0).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 1), -1).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(0, 0, 1), time_ms{1} << 52).code() == code::kInvalidArgument);
  CHECK(queue.submit(of_tenant(3, 0, 1), 0).code() == code::kNotFound);
  CHECK(queue.finish(job_id(0), 0).code() == code::kNotFound);
  CHECK(queue.mark_bad(node_id(4), 0).status().code() == code::kNotFound);
  CHECK(queue.mark_healthy(node_id(4), 0).code() == code::kNotFound);
  CHECK(queue.num_jobs() == 0);
  CHECK(queue.scheduler().hash() == hash);
  CHECK(queue.submit(of_tenant(2, 0, 1), 0).ok());  // no cells of its own: opportunistic
  CHECK(queue.submit(of_tenant(2, 0, 1), 0).code() == code::kAlreadyExists);
  CHECK(queue.finish(job_id(0), 1).ok());  // before it started
  CHECK(said(queue, 1).empty());
  CHECK_FALSE(queue.find(job_id(0)));
  hived_queue strict = queue_of(two_racks(), false);
  CHECK(strict.submit(of_tenant(2, 0, 1), 0).code() == code::kFailedPrecondition);
  CHECK(strict.submit(of_tenant(2, 0, 1, -1), 0).ok());
  CHECK(hived_queue::create({}).status().code() == code::kInvalidArgument);
  hived_config wide;
  wide.cell_types = {{"NODE", "GPU", 33, true}};
  wide.physical_cells = {{.type = "NODE", .address = "n0"}};
  wide.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}};
  CHECK(hived_queue::create(wide).status().message() ==
        "nodes of NODE have 33 leaf cells, more than 32");
  wide.cell_types[0].child_count = 32;
  CHECK(queue_of(wide, false).total_gpus() == 32);
}

TEST_CASE("hived_queue: audited at each event; no job waits that fits; all jobs end") {
  std::uint64_t opportunistic = 0;
  std::uint64_t suspensions = 0;
  std::uint64_t waits = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool over_quota = random.uniform(2) == 0;
    const hived_queue fresh = queue_of(apiary_test::random_cluster(random), over_quota);
    const std::vector<timed_job> jobs =
        jobs_for(fresh, random, 5 + random.uniform(40), 1 + random.uniform(4));
    std::vector<outage> outages;
    const std::uint32_t nodes = fresh.scheduler().layout().num_nodes();
    for (time_ms at = 1; seed % 2 == 1 && at < 80; at += 1 + random.uniform(20)) {
      outages.push_back({node_id(random.uniform(nodes)), at, at + 1});  // never twice at once
    }
    std::uint64_t hash = 0;
    for (int again = 0; again < 2; ++again) {
      audited_queue audited{fresh, over_quota};
      const absl::StatusOr<simulation_result> run = simulate(
          audited, jobs, outages, {},
          [](const timed_job&, const job_placement&) { return full_speed; },
          [](const simulation_event&) {});
      REQUIRE_MESSAGE(run.ok(), run.status().ToString());
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        const simulation_result::job_record& r = run->jobs[j];
        REQUIRE(r.ended != max_time);
        // No delay without its cause, suspended or not.
        REQUIRE(r.ended - jobs[j].arrival == r.waited.total() + jobs[j].duration + r.lost);
      }
      REQUIRE(audited.queue.num_jobs() == 0);
      if (outages.empty()) REQUIRE(audited.queue.idle_gpus() == audited.total_gpus());
      opportunistic += audited.opportunistic;
      suspensions += audited.suspensions;
      waits += audited.waits;
      REQUIRE((again == 0 || hash == run->log.value()));
      hash = run->log.value();
    }
  }
  CHECK(opportunistic > 0);
  CHECK(suspensions > 0);
  CHECK(waits > 0);
}

TEST_CASE("hived_queue: starts equal those of proposing every waiting job again") {
  std::uint64_t held_back = 0;
  std::uint64_t starved = 0;
  for (std::uint64_t seed = 0; seed < std::max(60U, apiary_test::scaled(400U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool over_quota = random.uniform(2) == 0;
    const bool breaks = seed % 4 == 1;
    const auto rule = breaks ? hived_queue::rules::first_fit : hived_queue::rules::easy;
    const time_ms patience = seed % 3 == 0 ? max_time : random.uniform(20);
    hived_queue fast = queue_of(apiary_test::random_cluster(random), over_quota, rule, patience);
    apiary_test::naive_hived_queue naive(fast.scheduler(), over_quota, rule, patience);
    const std::uint32_t priorities = 1 + random.uniform(4);
    const std::uint32_t count = 5 + random.uniform(40);
    const std::vector<timed_job> jobs = jobs_for(fast, random, count, priorities);
    std::vector<outage> outages;
    if (breaks) outages = {{node_id(0), 5, 12}, {node_id(0), 20, 25}};
    const auto run = [&](auto& scheduler) {
      return simulate(
                 scheduler, jobs, outages, {},
                 [](const timed_job&, const job_placement&) { return full_speed; },
                 [](const simulation_event&) {})
          .value();
    };
    const simulation_result a = run(fast);
    const simulation_result b = run(naive);
    REQUIRE(a.log.value() == b.log.value());
    REQUIRE(a.events == b.events);
    held_back += naive.held_back();
    starved += naive.starved();
  }
  CHECK(held_back > 0);
  CHECK(starved > 0);
}

TEST_CASE("hived_queue: guaranteed jobs start as in a cluster of the tenant's own") {
  std::uint64_t compared = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const hived_queue fresh = queue_of(apiary_test::random_cluster(random), false);
    const std::vector<timed_job> jobs = jobs_for(fresh, random, 40, 2 + random.uniform(3));
    const auto starts = [&](const std::vector<timed_job>& list) {
      hived_queue queue = fresh;
      const absl::StatusOr<simulation_result> run = simulate(queue, list);
      REQUIRE_MESSAGE(run.ok(), run.status().ToString());
      return run->jobs;
    };
    const std::vector<simulation_result::job_record> together = starts(jobs);
    for (std::uint32_t t = 0; t < fresh.scheduler().layout().tenants.size(); ++t) {
      std::vector<timed_job> alone;
      std::vector<std::size_t> index;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (jobs[j].request.tenant.value != t || jobs[j].request.priority < 0) continue;
        alone.push_back(jobs[j]);
        alone.back().request.job = job_id(static_cast<std::uint32_t>(index.size()));
        index.push_back(j);
      }
      if (alone.empty()) continue;
      const std::vector<simulation_result::job_record> own = starts(alone);
      for (std::size_t i = 0; i < index.size(); ++i) {
        REQUIRE(own[i].started == together[index[i]].started);
        REQUIRE(own[i].ended == together[index[i]].ended);
        REQUIRE(own[i].suspended == together[index[i]].suspended);
        REQUIRE(own[i].waited == together[index[i]].waited);
        ++compared;
      }
    }
  }
  CHECK(compared > 0);
}

TEST_CASE("hived_queue: whatever arrives, a job waits no longer than the bound") {
  int late_first_fit = 0;
  int late_by_runs = 0;
  int suspended = 0;
  for (std::uint64_t seed = 0; seed < std::max(60U, apiary_test::scaled(300U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    // Streams of small jobs that ask for more than their tenant has, and some large ones. Estimates are
    // exact or too long.
    const time_ms gap = 1 + random.uniform(4);
    const time_ms length = 8 * gap + random.uniform(40);
    const std::uint32_t most = 1 + random.uniform(4);
    std::vector<timed_job> jobs;
    for (time_ms t = 0; t < 400; t += gap) {
      const std::uint32_t tenant = random.uniform(2);
      const std::uint32_t cells = tenant == 0 ? 8 : 4;
      const std::uint32_t gpus = 1 + random.uniform(random.uniform(12) == 0 ? cells : most);
      jobs.push_back(
          {of_tenant(tenant, 0, gpus), t, 1 + random.uniform(static_cast<std::uint32_t>(length))});
    }
    const std::uint32_t slack = seed / 2 % 2 == 0 ? 0 : random.uniform(1000);
    time_ms longest = 0;
    for (timed_job& j : jobs) {
      j.request.estimate = j.duration + random.uniform(1 + slack);
      longest = std::max(longest, j.request.estimate);
    }
    job_list::number_by_arrival(jobs);
    for (const auto rule : {hived_queue::rules::easy, hived_queue::rules::first_fit}) {
      waits_of_tenants host{{queue_of(two_racks(), seed % 2 == 0, rule)}};
      host.longest = longest;
      host.longest_run = length;
      const absl::StatusOr<simulation_result> run = simulate(host, jobs);
      REQUIRE_MESSAGE(run.ok(), run.status().ToString());
      REQUIRE(host.waiting.empty());
      if (rule == hived_queue::rules::easy) {
        REQUIRE(host.late == 0);
        late_by_runs += host.late_by_runs;
        suspended += host.suspended;
      } else {
        late_first_fit += host.late;
      }
    }
  }
  CHECK(late_first_fit > 0);
  CHECK(late_by_runs > 0);
  CHECK(suspended > 0);
}
