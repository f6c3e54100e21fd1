// apiary/tests/philly/philly_test.cpp - every edge of the state machine by a virtual clock, quotas,
// preemption, and every second of delay with its cause, over either pool.
// SPDX-License-Identifier: MIT
#include "support/philly_loads.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/philly/philly.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Four servers of four GPUs in two racks, one tenant with all of them; times in seconds.
philly_options small_philly() {
  return {.servers = {.gpus = {4, 4, 4, 4}, .servers_per_rack = 2},
          .quotas = {16},
          .acquire_time = 150,
          .backoff_time = 120,
          .max_tries = 1};
}

// A scheduler and what it did, by job.
struct philly_host {
  philly scheduler;
  std::map<std::uint32_t, job_action> last{};

  explicit philly_host(const philly_options& options)
      : scheduler(philly::create(options).value()) {}

  void submit(std::uint32_t job, std::uint32_t gpus, time_ms now, std::uint32_t tenant = 0) {
    const absl::Status status =
        scheduler.submit({.job = job_id(job), .tenant = tenant_id(tenant), .gpus = gpus}, now);
    REQUIRE_MESSAGE(status.ok(), status.ToString());
    decide(now);
  }
  void finish(std::uint32_t job, time_ms now) {
    REQUIRE(scheduler.finish(job_id(job), now).ok());
    decide(now);
  }
  void decide(time_ms now) {
    std::vector<job_action> actions;
    REQUIRE(scheduler.decide(now, actions).ok());
    for (job_action& a : actions) last[a.job.value] = std::move(a);
    REQUIRE(scheduler.wake() > now);
  }
  [[nodiscard]] philly::standing at(std::uint32_t job) const {
    return scheduler.find(job_id(job)).value();
  }
  [[nodiscard]] const job_placement& where(std::uint32_t job) const { return last.at(job).where; }
};

// A GPU of every server is taken by jobs 0, 1, 2, 3: no whole server is idle.
philly_host one_taken_of_each(const philly_options& options) {
  philly_host m(options);
  for (std::uint32_t job = 0; job < 4; ++job) m.submit(job, 4, 0);
  for (std::uint32_t job = 0; job < 4; ++job) {
    m.finish(job, 0);
    m.submit(job, 4, 0);
    m.finish(job, 0);
  }
  for (std::uint32_t job = 0; job < 4; ++job) m.submit(10 + job, 3, 0);
  for (std::uint32_t job = 0; job < 4; ++job) m.submit(job, 1, 0);
  for (std::uint32_t job = 0; job < 4; ++job) m.finish(10 + job, 0);
  for (std::uint32_t n = 0; n < 4; ++n) REQUIRE(m.scheduler.pool().idle(node_id(n)) == 3);
  return m;
}

}  // namespace

TEST_CASE("philly: what is no cluster and no job") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  const auto code = [](auto&& change) {
    philly_options options = small_philly();
    change(options);
    return philly::create(options).status().code();
  };
  CHECK(code([](philly_options&) {}) == absl::StatusCode::kOk);
  CHECK(code([](philly_options& o) { o.servers.gpus = {}; }) == invalid);
  CHECK(code([](philly_options& o) { o.quotas = {}; }) == invalid);
  CHECK(code([](philly_options& o) { o.quotas = {16, 1}; }) == invalid);
  CHECK(code([](philly_options& o) { o.acquire_time = 0; }) == invalid);
  CHECK(code([](philly_options& o) { o.backoff_time = -1; }) == invalid);
  CHECK(code([](philly_options& o) { o.preempt_percent = 101; }) == invalid);
  CHECK(code([](philly_options& o) { o.preempt_percent = 100; }) == absl::StatusCode::kOk);
  philly p = philly::create(small_philly()).value();
  CHECK(p.submit({.tenant = tenant_id(0)}, 0).code() == invalid);
  CHECK(p.submit({.job = job_id(0)}, 0).code() == invalid);
  CHECK(p.submit({.job = job_id(0), .tenant = tenant_id(1)}, 0).code() == invalid);
  CHECK(p.submit({.job = job_id(0), .tenant = tenant_id(0), .gpus = 0}, 0).code() == invalid);
  CHECK(p.submit({.job = job_id(0), .tenant = tenant_id(0), .gpus = 17}, 0).code() == invalid);
  CHECK(p.submit({.job = job_id(0), .tenant = tenant_id(0)}, 0).ok());
  CHECK(p.submit({.job = job_id(0), .tenant = tenant_id(0)}, 0).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(p.finish(job_id(1), 0).code() == absl::StatusCode::kNotFound);
  CHECK(p.fail(job_id(0), philly::failure::transient, 0).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(p.mark_bad(node_id(4), 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(p.mark_healthy(node_id(4), 0).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("philly: small_philly jobs are packed, large ones go to the least occupied rack") {
  philly_host m(small_philly());
  m.submit(0, 1, 0);
  m.submit(1, 2, 0);
  CHECK(m.where(0) == job_placement{{node_id(0), 1}});
  CHECK(m.where(1) == job_placement{{node_id(0), 6}});
  m.submit(2, 5, 0);
  CHECK(m.where(2) == job_placement{{node_id(2), 15}, {node_id(3), 1}});
}

TEST_CASE("philly: ACQUIRE to RUN when all is collected within the time") {
  philly_host m = one_taken_of_each(small_philly());
  m.submit(20, 8, 10);  // whole servers of a rack: it collects three GPUs of two
  CHECK(m.at(20) == philly::standing{philly::phase::acquire, job_locality::packed, 0, 6});
  CHECK(m.scheduler.pool().idle() == 6);
  m.finish(0, 60);  // what falls idle there is its own
  CHECK(m.at(20).held == 7);
  CHECK(m.scheduler.wake() == 160);
  m.submit(21, 7, 70);  // passes by: it does not fit, and collects nothing
  CHECK(m.at(21).held == 0);
  m.finish(1, 159);
  CHECK(m.at(20) == philly::standing{philly::phase::run, job_locality::packed, 0, 8});
  CHECK(m.where(20) == job_placement{{node_id(0), 15}, {node_id(1), 15}});
  CHECK(m.last.at(20).waited.total() == 149);
}

TEST_CASE("philly: ACQUIRE to BACKOFF at the time, everything released, and back") {
  philly_host m = one_taken_of_each(small_philly());
  m.submit(20, 8, 10);
  m.decide(159);
  CHECK(m.at(20).phase == philly::phase::acquire);
  m.decide(160);
  CHECK(m.at(20) == philly::standing{philly::phase::backoff, job_locality::packed, 1, 0});
  CHECK(m.scheduler.pool().idle() == 12);
  m.finish(0, 170);
  m.finish(1, 170);  // it would fit, but it backs off
  CHECK(m.at(20).phase == philly::phase::backoff);
  m.decide(279);
  CHECK(m.at(20).phase == philly::phase::backoff);
  m.decide(280);
  CHECK(m.at(20) == philly::standing{philly::phase::run, job_locality::packed, 1, 8});
  CHECK(m.last.at(20).waited[delay_cause::fragmentation] == 270);
}

TEST_CASE("philly: locality relaxes step by step, after more tries than allowed") {
  philly_host m = one_taken_of_each(small_philly());
  m.submit(20, 8, 0);
  std::vector<philly::standing> seen;
  for (time_ms now = 0; now <= 2000; ++now) {
    if (m.scheduler.wake() == now) m.decide(now);
    const philly::standing s = m.at(20);
    if (seen.empty() || !(seen.back() == s)) seen.push_back(s);
    if (s.phase == philly::phase::run) {
      // Two cycles of 270 s at each of two localities.
      CHECK(now == 4 * 270);
      break;
    }
  }
  const std::vector<philly::standing> expected{
      {philly::phase::acquire, job_locality::packed, 0, 6},
      {philly::phase::backoff, job_locality::packed, 1, 0},
      {philly::phase::acquire, job_locality::packed, 1, 6},
      {philly::phase::backoff, job_locality::packed, 2, 0},
      {philly::phase::acquire, job_locality::one_rack, 0, 6},
      {philly::phase::backoff, job_locality::one_rack, 1, 0},
      {philly::phase::acquire, job_locality::one_rack, 1, 6},
      {philly::phase::backoff, job_locality::one_rack, 2, 0},
      {philly::phase::run, job_locality::anywhere, 0, 8}};
  CHECK(seen == expected);
  CHECK(m.where(20).size() == 3);
}

TEST_CASE("philly: a job that never relaxes waits for a rack") {
  philly_options options = small_philly();
  options.max_tries = philly_options::no_limit;
  philly_host m = one_taken_of_each(options);
  m.submit(20, 8, 0);
  for (time_ms now = m.scheduler.wake(); now < 100'000; now = m.scheduler.wake()) m.decide(now);
  CHECK(m.at(20).locality == job_locality::packed);
  CHECK(m.at(20).tries > 300);
  CHECK(m.scheduler.waited(job_id(20), 100'000)->total() == 100'000);
}

TEST_CASE("philly: idle GPUs are for all, jobs within quota come first, delays have their causes") {
  philly_options options = small_philly();
  options.quotas = {12, 4};
  options.preempt_percent.reset();
  philly_host m(options);
  for (std::uint32_t job = 0; job < 4; ++job) m.submit(job, 4, 0, 1);
  CHECK(m.scheduler.used(tenant_id(1)) == 16);  // beyond the quota
  m.submit(4, 4, 10, 1);                        // beyond its quota
  m.submit(5, 4, 20, 0);                        // within
  m.finish(0, 50);
  CHECK(m.at(5).phase == philly::phase::run);  // came later, but within quota
  CHECK(m.last.at(5).waited[delay_cause::capacity] == 30);
  CHECK(m.at(4).phase == philly::phase::acquire);
  m.finish(1, 60);
  CHECK(m.at(4).phase == philly::phase::run);
  CHECK(m.last.at(4).waited[delay_cause::quota] == 50);
  CHECK(m.last.at(4).waited.total() == 50);
}

TEST_CASE("philly: preemption from 90 % of use, the last started of those beyond quota first") {
  for (const std::uint32_t taken : {14U, 15U, 16U}) {
    CAPTURE(taken);
    philly_options options = small_philly();
    options.quotas = {8, 8};
    philly_host m(options);
    m.submit(0, 4, 0, 1);
    m.submit(1, 4, 1, 1);
    m.submit(2, 4, 2, 1);
    m.submit(3, taken - 12, 3, 1);
    m.submit(4, 4, 10, 0);
    if (taken == 14) {  // 87.5 %
      CHECK(m.at(4).phase == philly::phase::acquire);
      CHECK(m.at(3).phase == philly::phase::run);
    } else {
      CHECK(m.at(4).phase == philly::phase::run);
      CHECK(m.last.at(3).what == job_action::verb::suspend);
      CHECK(m.at(3).phase == philly::phase::acquire);  // waits again
      CHECK(m.at(2).phase == philly::phase::run);
      m.submit(5, 4, 11, 0);
      CHECK(m.at(5).phase == philly::phase::run);
      CHECK(m.at(2).phase == philly::phase::acquire);
      m.submit(6, 4, 12, 0);  // beyond quota now: no job stops for it
      CHECK(m.at(6).phase == philly::phase::acquire);
      CHECK(m.at(1).phase == philly::phase::run);
    }
  }
}

TEST_CASE("philly: no job is suspended for nothing") {
  for (const std::uint32_t quota : {8U, 4U}) {
    philly_options options = small_philly();
    options.quotas = {8, quota};
    philly_host m(options);
    for (std::uint32_t job = 0; job < 4; ++job) m.submit(job, 4, job, 1);
    m.finish(1, 5);
    m.submit(11, 4, 6, 1);
    m.submit(20, 8, 20, 0);  // two servers of a rack
    const bool fits = quota == 4;
    // Of those beyond the quota, 11 and 3 were started last: not in one rack. With 2 there is one,
    // and 11 stays.
    CHECK(m.at(20).phase == (fits ? philly::phase::run : philly::phase::acquire));
    CHECK(m.at(11).phase == philly::phase::run);
    CHECK(m.at(3).phase == (fits ? philly::phase::acquire : philly::phase::run));
    CHECK(m.at(2).phase == (fits ? philly::phase::acquire : philly::phase::run));
    CHECK(m.at(0).phase == philly::phase::run);
  }
}

TEST_CASE("philly: what a tenant collects makes none of its running jobs a victim") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4, 4}, .servers_per_rack = 3};
  options.quotas = {4, 8};
  philly_host m(options);
  m.submit(0, 3, 0, 1);
  m.submit(1, 3, 1, 1);
  m.submit(2, 3, 2, 0);
  m.submit(3, 2, 3, 1);  // within quota, and on one server: it collects the last GPU of the first
  m.submit(4, 1, 4, 1);
  m.submit(5, 1, 5, 1);  // tenant 1 runs just what its quota is, and has one GPU more
  REQUIRE(m.at(3).held == 1);
  REQUIRE(m.scheduler.used(tenant_id(1)) == 9);
  REQUIRE(m.scheduler.pool().idle() == 0);
  m.submit(6, 1, 10, 0);
  CHECK(m.at(6).phase == philly::phase::acquire);
  for (const std::uint32_t job : {0U, 1U, 4U, 5U}) CHECK(m.at(job).phase == philly::phase::run);
}

TEST_CASE("philly: what the collector wants is no quota for others of its tenant") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4}, .servers_per_rack = 2};
  options.quotas = {3, 5, 0};
  options.preempt_percent.reset();
  philly_host m(options);
  m.submit(0, 3, 0, 1);
  for (std::uint32_t job = 1; job <= 5; ++job)
    m.submit(job, 1, job, 2);  // beyond the quota, the first beside 0
  m.submit(6, 2, 6, 1);
  m.finish(1, 7);
  REQUIRE(m.at(6).held == 1);
  m.submit(7, 1, 10, 1);  // with 6 it would be beyond the quota
  m.submit(8, 1, 20, 0);  // within
  m.finish(2, 30);
  CHECK(m.at(8).phase == philly::phase::run);
  CHECK(m.at(7).phase == philly::phase::acquire);
  m.finish(3, 40);  // beyond the quota
  CHECK(m.at(7).phase == philly::phase::run);
}

TEST_CASE("philly: no job beyond its quota starts that would be preempted at once") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4, 4, 4, 4}, .servers_per_rack = 5};
  options.quotas = {8, 12};
  philly_host m(options);
  for (std::uint32_t job = 0; job < 3; ++job) m.submit(job, 4, job, 1);
  m.submit(3, 2, 3, 1);  // beyond the quota
  m.submit(4, 4, 4, 0);
  REQUIRE(m.scheduler.pool().idle(node_id(3)) == 2);
  // A job beyond its tenant's quota that would fit, and one within it that does not.
  REQUIRE(m.scheduler.submit({.job = job_id(5), .tenant = tenant_id(1), .gpus = 2}, 10).ok());
  REQUIRE(m.scheduler.submit({.job = job_id(6), .tenant = tenant_id(0), .gpus = 4}, 10).ok());
  std::vector<job_action> actions;
  REQUIRE(m.scheduler.decide(10, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[0] == job_action{job_action::verb::suspend, job_id(3), {}, {}});
  CHECK(actions[1].what == job_action::verb::start);
  CHECK(actions[1].job == job_id(6));
  CHECK(m.at(5).phase == philly::phase::acquire);
}

TEST_CASE("philly: a job that has just collected all is no victim in the same decision") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4, 4}, .servers_per_rack = 3};
  options.quotas = {4, 8, 0};
  philly_host m(options);
  m.submit(0, 2, 0, 2);
  m.submit(1, 1, 1, 2);
  m.submit(2, 3, 2, 1);
  m.submit(3, 3, 3, 1);
  m.submit(4, 2, 4, 1);  // collects beside 0 and 1
  m.submit(5, 1, 5, 1);
  m.submit(6, 1, 6, 1);
  REQUIRE(m.at(4).held == 1);
  REQUIRE(m.scheduler.pool().idle() == 0);
  REQUIRE(m.scheduler.finish(job_id(1), 10).ok());
  REQUIRE(m.scheduler.submit({.job = job_id(7), .tenant = tenant_id(0), .gpus = 1}, 10).ok());
  std::vector<job_action> actions;
  REQUIRE(m.scheduler.decide(10, actions).ok());
  REQUIRE(actions.size() == 3);
  CHECK(actions[0].job == job_id(4));
  CHECK(actions[1] == job_action{job_action::verb::suspend, job_id(6), {}, {}});
  CHECK(actions[2].job == job_id(7));
}

TEST_CASE("philly: broken servers are neither used nor to be used") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4, 4, 4, 4}, .servers_per_rack = 5};
  options.quotas = {8, 8};
  for (const std::uint32_t last : {2U, 4U}) {
    CAPTURE(last);
    philly_host m(options);
    for (const std::uint32_t n : {3U, 4U}) REQUIRE(m.scheduler.mark_bad(node_id(n), 0).ok());
    m.submit(0, 4, 0, 1);
    m.submit(1, 4, 1, 1);
    m.submit(2, last, 2, 1);  // beyond the quota
    m.submit(3, 4, 10, 0);
    // 10 of 12 are too few, though only 2 of 20 are idle.
    CHECK(m.at(2).phase == (last == 2 ? philly::phase::run : philly::phase::acquire));
    CHECK(m.at(3).phase == (last == 2 ? philly::phase::acquire : philly::phase::run));
  }
}

TEST_CASE("philly: failures are retried by their class") {
  philly_options options = small_philly();
  options.max_retries = 2;
  philly_host m(options);
  const auto fails = [&](std::uint32_t job, philly::failure why, time_ms now) {
    const absl::StatusOr<bool> again = m.scheduler.fail(job_id(job), why, now);
    REQUIRE(again.ok());
    m.decide(now);
    return *again;
  };
  m.submit(0, 4, 0);
  for (time_ms now = 1; now < 50; ++now) CHECK(fails(0, philly::failure::transient, now));
  CHECK(!fails(0, philly::failure::permanent, 50));
  CHECK(!m.scheduler.find(job_id(0)));
  m.submit(1, 4, 60);
  CHECK(fails(1, philly::failure::unknown, 61));
  CHECK(fails(1, philly::failure::unknown, 62));
  CHECK(!fails(1, philly::failure::unknown, 63));
  CHECK(m.scheduler.pool().idle() == 16);
}

TEST_CASE("philly: a broken server stops its jobs and what is collected there") {
  philly_host m = one_taken_of_each(small_philly());
  m.submit(20, 8, 10);
  const auto stopped = m.scheduler.mark_bad(node_id(0), 20);
  CHECK(stopped.value() == std::vector{job_id(0)});
  CHECK(m.at(20).held == 0);
  m.decide(20);
  CHECK(m.at(0).phase == philly::phase::run);  // elsewhere
  CHECK(m.scheduler.mark_healthy(node_id(0), 30).ok());
  m.decide(30);
}

namespace {

// What must hold after every decision, counted from the servers and the jobs.
void audit(const philly& p, const std::vector<job_request>& jobs,
           const std::vector<std::uint32_t>& quotas) {
  std::map<std::uint32_t, std::uint32_t> has;
  std::uint32_t idle = 0;
  for (const node_id n : p.pool().servers()) {
    for (std::uint32_t d = 0; d < p.pool().gpus(n); ++d) {
      const job_id owner = p.pool().owner(n, d);
      if (owner.valid()) ++has[owner.value];
      idle += !owner.valid() && p.pool().healthy(n) ? 1U : 0U;
    }
  }
  REQUIRE(p.pool().idle() == idle);
  std::vector<std::uint32_t> used(quotas.size(), 0);
  std::vector<std::uint32_t> collectors(quotas.size(), 0);
  std::size_t counted = 0;
  for (const job_request& r : jobs) {
    const std::optional<philly::standing> s = p.find(r.job);
    if (!s) {
      REQUIRE(!has.contains(r.job.value));
      continue;
    }
    ++counted;
    REQUIRE(s->held == (has.contains(r.job.value) ? has[r.job.value] : 0));
    if (s->phase == philly::phase::run) REQUIRE(s->held == r.gpus);
    if (s->phase == philly::phase::backoff) REQUIRE(s->held == 0);
    if (s->phase == philly::phase::acquire) REQUIRE(s->held < r.gpus);
    used[r.tenant.value] += s->held;
    collectors[r.tenant.value] += s->phase == philly::phase::acquire && s->held > 0 ? 1U : 0U;
  }
  REQUIRE(counted == p.num_jobs());
  for (std::uint32_t t = 0; t < quotas.size(); ++t) {
    REQUIRE(p.used(tenant_id(t)) == used[t]);
    REQUIRE(collectors[t] <= 1);
  }
}

// Audits a scheduler whenever it has decided.
struct audited {
  philly p;
  std::vector<std::uint32_t> quotas;
  std::vector<job_request> jobs{};
  std::uint64_t preemptions = 0;

  absl::Status submit(const job_request& r, time_ms t) {
    jobs.push_back(r);
    return p.submit(r, t);
  }
  absl::Status finish(job_id j, time_ms t) { return p.finish(j, t); }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) { return p.mark_bad(n, t); }
  absl::Status mark_healthy(node_id n, time_ms t) { return p.mark_healthy(n, t); }
  time_ms wake() const { return p.wake(); }
  std::uint32_t total_gpus() const { return p.total_gpus(); }
  // Preemptions: of each tenant that loses jobs, more runs than its quota until the last of them; it
  // stops for a job within its quota; a job that started in this decision is not suspended in it.
  void check_preemptions(std::vector<std::uint32_t> running,
                         const std::vector<job_action>& actions) {
    std::set<job_id> started;
    std::map<std::uint32_t, std::vector<std::uint32_t>> lost;  // by tenant, GPUs of its jobs
    for (const job_action& a : actions) {
      const job_request& r = jobs[a.job.value];
      if (a.what == job_action::verb::suspend) {
        REQUIRE(!started.contains(a.job));
        lost[r.tenant.value].push_back(r.gpus);
        continue;
      }
      started.insert(a.job);
      running[r.tenant.value] += r.gpus;
      for (const auto& [t, gpus] : lost) {
        REQUIRE(running[t] > quotas[t]);
        for (const std::uint32_t g : gpus) running[t] -= g;
        REQUIRE(running[t] + *std::max_element(gpus.begin(), gpus.end()) > quotas[t]);
      }
      if (!lost.empty()) REQUIRE(running[r.tenant.value] <= quotas[r.tenant.value]);
      preemptions += lost.empty() ? 0U : 1U;
      lost.clear();
    }
    REQUIRE(lost.empty());
  }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    std::vector<std::uint32_t> running(quotas.size(), 0);
    for (const job_request& r : jobs) {
      const std::optional<philly::standing> s = p.find(r.job);
      if (s && s->phase == philly::phase::run) running[r.tenant.value] += r.gpus;
    }
    absl::Status status = p.decide(t, actions);
    audit(p, jobs, quotas);
    check_preemptions(std::move(running), actions);
    for (const job_action& a : actions) {
      if (a.what != job_action::verb::start) continue;
      // A placement obeys the locality that its job had.
      const std::optional<philly::standing> s = p.find(a.job);
      if (!s || s->locality == job_locality::anywhere) continue;
      const job_request& r = jobs[a.job.value];
      const auto rack = [&](node_id n) { return p.pool().rack_of(n); };
      bool fits_a_rack = false;
      for (std::uint32_t i = 0; i < p.pool().num_racks(); ++i)
        fits_a_rack = fits_a_rack || p.pool().total(i) >= r.gpus;
      if (fits_a_rack) CHECK(rack(a.where.front().node) == rack(a.where.back().node));
    }
    return status;
  }
};

}  // namespace

TEST_CASE("philly: random loads: books that balance, every job ends, every second has its cause") {
  std::uint64_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(150U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const philly_options options = apiary_test::random_philly(random);
    const std::vector<timed_job> jobs =
        apiary_test::philly_jobs(seed, 60, apiary_test::gpus_of(options.servers));
    std::vector<outage> outages;
    for (std::uint32_t n = 0; n < 2; ++n) {
      const time_ms from = random.uniform(300);
      outages.push_back({node_id(n), from, from + 50});
    }
    std::sort(outages.begin(), outages.end(),
              [](const outage& a, const outage& b) { return a.from < b.from; });
    audited scheduler{philly::create(options).value(), options.quotas};
    const auto run = simulate(
        scheduler, jobs, outages, {}, [](const timed_job&, const job_placement&) { return 1000U; },
        [](const simulation_event&) {});
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const simulation_result::job_record& r = run->jobs[j];
      REQUIRE(r.ended != max_time);
      REQUIRE(r.ended == jobs[j].arrival + r.waited.total() + jobs[j].duration + r.lost);
      REQUIRE(r.waited[delay_cause::order] == 0);
    }
    REQUIRE(scheduler.p.num_jobs() == 0);
    preemptions += scheduler.preemptions;
  }
  CHECK(preemptions > 0);
}

TEST_CASE("philly: a job within its quota since this moment preempts as its cycle begins") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4, 4, 4}, .servers_per_rack = 4};
  options.quotas = {8, 8};
  options.preempt_percent = 50;
  philly_host m(options);
  m.submit(0, 4, 0, 0);
  m.submit(1, 12, 1, 1);  // beyond the quota
  m.submit(2, 8, 10, 0);  // beyond it beside job 0
  REQUIRE(m.at(2).held == 0);
  REQUIRE(m.scheduler.wake() > 280);
  m.finish(0, 280);  // the second cycle of job 2 begins; the last decision was when it came
  CHECK(m.at(2).phase == philly::phase::run);
  CHECK(m.at(1).phase == philly::phase::acquire);
}

TEST_CASE("philly: GPUs that a collector gives up start a job in the same decision") {
  philly_options options = small_philly();
  options.servers = {.gpus = {4, 4, 4, 4, 4, 4}, .servers_per_rack = 3};
  options.quotas = {8, 8, 8};
  options.preempt_percent.reset();
  philly_host m(options);
  m.submit(0, 8, 0, 1);  // servers 0 and 1
  m.submit(1, 3, 0, 2);  // server 2 ...
  m.submit(2, 1, 0, 2);  // ... and its last GPU
  m.submit(3, 4, 0, 2);  // server 3
  m.submit(4, 1, 0, 2);  // server 4
  m.finish(2, 0);
  m.submit(5, 11, 1, 1);  // beyond the quota: it does not collect
  m.submit(6, 8, 2, 0);   // collects three GPUs of server 4, and server 5
  REQUIRE(m.at(6).held == 7);
  m.submit(7, 1, 3, 0);  // on server 2; beyond the quota, as job 6 now is
  REQUIRE(m.at(7).phase == philly::phase::run);
  REQUIRE(m.scheduler.finish(job_id(0), 10).ok());
  m.finish(3, 10);
  // Job 5 comes first and fits into no rack. Then job 6 starts in the first rack, and job 5 in the other.
  CHECK(m.where(6) == job_placement{{node_id(0), 15}, {node_id(1), 15}});
  REQUIRE(m.at(5).phase == philly::phase::run);
  CHECK(m.where(5) == job_placement{{node_id(3), 15}, {node_id(4), 14}, {node_id(5), 15}});
}
