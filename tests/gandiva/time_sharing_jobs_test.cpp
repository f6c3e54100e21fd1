// apiary/tests/gandiva/time_sharing_jobs_test.cpp - Gandiva over placers and HiveD, as a host drives it.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/scale.h"
#include <apiary/core/digest.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace time_sharing_jobs_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;
using verb = job_action::verb;

static_assert(JobScheduler<gandiva_with_placer<server_placer>>);
static_assert(JobScheduler<gandiva_fgd>);
static_assert(JobScheduler<gandiva_hived>);

fragmentation ones_and_fours() {
  return fragmentation(task_mix(
      {{{.gpus = 1, .gpu_milli = whole_gpu}, 1}, {{.gpus = 4, .gpu_milli = whole_gpu}, 1}}));
}
gandiva_with_placer<server_placer> by_best_fit(const server_spec& spec,
                                               const time_sharing_options& options) {
  return gandiva_with_placer<server_placer>::create(
             {server_placer::create(spec).value(), spec, ones_and_fours()}, options)
      .value();
}
gandiva_fgd by_fragmentation(const server_spec& spec, const time_sharing_options& options) {
  const fragmentation metric = ones_and_fours();
  auto placer =
      gpu_sharing_placer<fragmentation_gradient>::create(spec, fragmentation_gradient(metric))
          .value();
  return gandiva_fgd::create({std::move(placer), spec, metric}, options).value();
}
hived_placer cells_of_tenants(const gang_migration& moves = {}) {
  return hived_placer::create(apiary_test::two_racks(), true, moves).value();
}
gandiva_hived by_tenants(const time_sharing_options& options, const gang_migration& moves = {}) {
  return gandiva_hived::create(cells_of_tenants(moves), options).value();
}

job_request job_of(std::uint32_t tenant, std::uint32_t job, std::uint32_t gpus,
                   std::int32_t priority = 0) {
  return {.job = job_id(job), .tenant = tenant_id(tenant), .priority = priority, .gpus = gpus};
}
// "+3" for a start of job 3, "-3" for its suspension, ">3" for a migration.
template <class Queue>
std::string said(Queue& queue, time_ms now) {
  std::vector<job_action> actions;
  CHECK(queue.decide(now, actions).ok());
  std::string all;
  for (const job_action& a : actions) {
    all += a.what == verb::start ? '+' : a.what == verb::suspend ? '-' : '>';
    all += std::to_string(a.job.value);
  }
  return all;
}

TEST_CASE("time_sharing: what a host may send wrongly, and withdrawals") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  gandiva_fgd q = by_fragmentation({.gpus = {4, 4}}, {});
  CHECK(q.submit({.gpus = 1}, 0).code() == invalid);
  CHECK(q.submit(job_of(0, 0, 0), 0).code() == invalid);
  CHECK(q.submit(job_of(0, 0, 9), 0).code() == invalid);
  CHECK(q.submit(job_of(0, 0, 1), -1).code() == invalid);
  CHECK(q.submit(job_of(0, 0, 1), time_ms{1} << 43).code() == invalid);
  job_request heavy = job_of(0, 0, 1);
  for (const std::uint32_t weight : {0U, 1001U}) {
    heavy.weight = weight;
    CHECK(q.submit(heavy, 0).code() == invalid);
  }
  CHECK(q.finish(job_id(0), 0).code() == absl::StatusCode::kNotFound);
  CHECK(q.mark_bad(node_id(2), 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(q.mark_healthy(node_id(2), 0).code() == absl::StatusCode::kNotFound);
  CHECK(q.num_jobs() == 0);
  CHECK(q.submit(job_of(0, 0, 8), 0).ok());
  CHECK(q.finish(job_id(0), -1).code() == invalid);
  CHECK(q.mark_bad(node_id(0), -1).status().code() == invalid);
  CHECK(q.mark_healthy(node_id(0), time_ms{1} << 43).code() == invalid);
  std::vector<job_action> none;
  CHECK(q.decide(-1, none).code() == invalid);
  CHECK(none.empty());
  CHECK(q.num_jobs() == 1);
  CHECK(q.submit(job_of(0, 0, 8), 0).code() == absl::StatusCode::kAlreadyExists);
  CHECK(q.submit(job_of(0, 1, 8), 0).ok());
  CHECK(q.finish(job_id(0), 0).ok());  // before it was ever decided about
  CHECK(said(q, 0) == "+1");
  CHECK(q.submit(job_of(0, 2, 8), 1).ok());
  CHECK(said(q, 1) == "");
  CHECK(q.find(job_id(2)) == gandiva_fgd::phase::wait);
  CHECK(!q.find(job_id(0)));
  CHECK(q.finish(job_id(2), 2).ok());
  CHECK(q.finish(job_id(1), 2).ok());
  CHECK(said(q, 2) == "");
  CHECK(q.wake() == max_time);
  CHECK(q.idle_gpus() == 8);
}

TEST_CASE_TEMPLATE("time_sharing: six jobs on four GPUs get four sixths each of any 15 minutes",
                   Placer, server_placer, gpu_sharing_placer<fragmentation_gradient>) {
  auto q = [] {
    if constexpr (std::is_same_v<Placer, server_placer>)
      return by_best_fit({.gpus = {4}}, {.quantum = 60});
    else
      return by_fragmentation({.gpus = {4}}, {.quantum = 60});
  }();
  for (std::uint32_t job = 0; job < 6; ++job) REQUIRE(q.submit(job_of(0, job, 1), 0).ok());
  std::map<std::uint32_t, time_ms> had;
  std::map<std::uint32_t, time_ms> since;
  for (time_ms now = 0; now < 7200;) {
    std::vector<job_action> actions;
    REQUIRE(q.decide(now, actions).ok());
    for (const job_action& a : actions) {
      if (a.what == verb::suspend) {
        had[a.job.value] += now - since.at(a.job.value);
        since.erase(a.job.value);
      } else {
        since[a.job.value] = now;
      }
    }
    const time_ms next = q.wake();
    REQUIRE(next <= now + 60);
    if (now / 900 != next / 900) {
      for (std::uint32_t job = 0; job < 6; ++job) {
        if (since.contains(job)) had[job] += next - std::exchange(since[job], next);
        CHECK(had[job] >= 594);
        CHECK(had[job] <= 606);
        had[job] = 0;
      }
    }
    now = next;
  }
}

TEST_CASE(
    "time_sharing: guaranteed jobs start as they come, and share time slices while they "
    "cannot") {
  using phase = gandiva_hived::phase;
  gandiva_hived q = by_tenants({.quantum = 60});
  for (std::uint32_t job = 0; job < 3; ++job) REQUIRE(q.submit(job_of(0, job, 8), 0).ok());
  CHECK(said(q, 0) == "+0+1");  // the second is opportunistic, the third will have its time slice
  CHECK(q.find(job_id(0)) == phase::guaranteed);
  CHECK(q.find(job_id(1)) == phase::sliced);
  CHECK(said(q, 60) == "-1+2");
  REQUIRE(q.submit(job_of(1, 3, 4), 70).ok());  // b's own node: an opportunistic job stops
  CHECK(said(q, 70) == "-2+3");
  CHECK(q.find(job_id(3)) == phase::guaranteed);
  CHECK(said(q, 120) == "");
  REQUIRE(q.submit(job_of(2, 4, 4, -1), 130).ok());
  CHECK(said(q, 130) == "+4");
  REQUIRE(q.finish(job_id(0), 140).ok());
  CHECK(said(q, 140) == "+1");  // by right now, as it came first
  CHECK(q.find(job_id(1)) == phase::guaranteed);
  REQUIRE(q.submit(job_of(0, 5, 4, 9), 150).ok());
  CHECK(said(q, 150) == "-1+5");  // of higher priority, in a's cells
  CHECK(q.find(job_id(5)) == phase::guaranteed);
  CHECK(said(q, 180) == "-4+1");  // it has a time slice, on what a has left and another node
  CHECK(q.find(job_id(1)) == phase::sliced);
  REQUIRE(q.finish(job_id(3), 200).ok());
  REQUIRE(q.finish(job_id(5), 200).ok());
  CHECK(said(q, 200) == "+2");
  CHECK(q.find(job_id(2)) == phase::guaranteed);
  CHECK(said(q, 240) == "-1+4");  // a guaranteed job is not stopped for a time slice
}

TEST_CASE("time_sharing: a job on a broken server comes anew") {
  gandiva_with_placer<server_placer> q = by_best_fit({.gpus = {4, 4}}, {.quantum = 60});
  REQUIRE(q.submit(job_of(0, 0, 2), 0).ok());
  REQUIRE(q.submit(job_of(0, 1, 4), 0).ok());
  CHECK(said(q, 0) == "+0+1");
  CHECK(q.mark_bad(node_id(1), 5).value() == std::vector{job_id(1)});
  CHECK(q.mark_bad(node_id(1), 5).value().empty());
  CHECK(q.idle_gpus() == 2);
  CHECK(said(q, 5) == "");
  CHECK(q.mark_healthy(node_id(1), 65).ok());
  std::vector<job_action> actions;
  REQUIRE(q.decide(65, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].job == job_id(1));
  CHECK(actions[0].waited[delay_cause::capacity] == 60);
  CHECK(actions[0].waited.total() == 60);
  CHECK(q.idle_gpus() == 2);
}

// Counts how often it is asked for a placement.
struct counted_placer : measured_placer<server_placer> {
  std::shared_ptr<int> asked = std::make_shared<int>(0);
  explicit counted_placer(const server_spec& spec)
      : measured_placer<server_placer>(server_placer::create(spec).value(), spec,
                                       ones_and_fours()) {}
  absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    ++*asked;
    return measured_placer<server_placer>::propose(r);
  }
};

TEST_CASE("time_sharing: a node that is marked again as it is makes no job try again") {
  counted_placer placer({.gpus = {2, 2, 2}});
  const std::shared_ptr<int> asked = placer.asked;
  auto q = time_sharing<counted_placer>::create(std::move(placer),
                                                {.quantum = 60, .migrations = {.jobs = 0}})
               .value();
  REQUIRE(q.mark_bad(node_id(1), 0).ok());
  REQUIRE(q.submit(job_of(0, 0, 2), 0).ok());
  REQUIRE(q.submit(job_of(0, 1, 1), 0).ok());
  REQUIRE(q.submit(job_of(0, 2, 1), 0).ok());
  REQUIRE(q.submit(job_of(0, 3, 2), 0).ok());
  CHECK(said(q, 0) == "+0+1+2");
  REQUIRE(q.mark_healthy(node_id(2), 1).ok());
  CHECK(said(q, 1) == "");
  const int before = *asked;
  for (time_ms now = 2; now < 10; ++now) {
    CHECK(q.mark_bad(node_id(1), now).value().empty());
    CHECK(q.mark_healthy(node_id(2), now).ok());
    CHECK(said(q, now) == "");
    CHECK(q.wake() == 60);
  }
  CHECK(*asked == before);
  CHECK(q.mark_bad(node_id(1), 5).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(q.mark_healthy(node_id(1), 10).ok());
  CHECK(said(q, 10) == "+3");
}

// A placer that is not available once, after some proposals.
template <class P>
struct placer_that_fails : P {
  int proposals;
  placer_that_fails(P inner, int proposals_before)
      : P(std::move(inner)), proposals(proposals_before) {}
  absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    if (proposals-- == 0) return absl::UnavailableError("the placer does not answer");
    return P::propose(r);
  }
  absl::StatusOr<placer_answer<job_placement>> propose_preempting(const job_request& r) requires
      PreemptingPlacer<P> {
    if (proposals-- == 0) return absl::UnavailableError("the placer does not answer");
    return P::propose_preempting(r);
  }
};

TEST_CASE("time_sharing: after an error of the placer no job is lost") {
  using placer = placer_that_fails<measured_placer<server_placer>>;
  const server_spec spec{.gpus = {2, 2, 2}};
  auto q =
      time_sharing<placer>::create(
          placer({server_placer::create(spec).value(), spec, ones_and_fours()}, 2), {.quantum = 60})
          .value();
  for (std::uint32_t job = 0; job < 7; ++job) REQUIRE(q.submit(job_of(0, job, 1), 0).ok());
  REQUIRE(q.finish(job_id(3), 0).ok());
  std::vector<job_action> actions;
  CHECK(q.decide(0, actions).code() == absl::StatusCode::kUnavailable);  // for job 2
  CHECK(actions.empty());
  for (const std::uint32_t job : {0U, 5U}) CHECK(q.finish(job_id(job), 1).ok());
  CHECK(q.submit(job_of(0, 0, 1), 1).ok());
  CHECK(q.num_jobs() == 5);
  CHECK(said(q, 1) == "+1+2+4+6+0");
  for (std::uint32_t job = 0; job < 7; ++job)
    CHECK(q.finish(job_id(job), 2).ok() == (job != 3 && job != 5));
  CHECK(said(q, 2) == "");
  CHECK(q.idle_gpus() == 6);
}

TEST_CASE("time_sharing: a guaranteed job that the placer fails to place gets time slices") {
  using placer = placer_that_fails<hived_placer>;
  auto q = time_sharing<placer>::create(placer(cells_of_tenants(), 0), {.quantum = 60}).value();
  using phase = decltype(q)::phase;
  REQUIRE(q.submit(job_of(0, 0, 8), 0).ok());
  std::vector<job_action> actions;
  CHECK(q.decide(0, actions).code() == absl::StatusCode::kUnavailable);
  REQUIRE(
      q.submit(job_of(0, 1, 8, 1), 1).ok());  // it starts first, and its tenant has no more GPUs
  CHECK(said(q, 1) == "+1+0");
  CHECK(q.find(job_id(0)) == phase::sliced);
  CHECK(q.find(job_id(1)) == phase::guaranteed);
}

TEST_CASE("time_sharing: a node that is marked bad again stops the jobs that run there") {
  struct late_placer : measured_placer<server_placer> {  // it goes on to place jobs on the node
    explicit late_placer(measured_placer<server_placer> inner)
        : measured_placer<server_placer>(std::move(inner)) {}
    absl::Status mark_bad(node_id) { return absl::OkStatus(); }
  };
  const server_spec spec{.gpus = {2, 2}};
  auto q = time_sharing<late_placer>::create(
               late_placer({server_placer::create(spec).value(), spec, ones_and_fours()}),
               {.quantum = 60})
               .value();
  CHECK(q.mark_bad(node_id(0), 0).value().empty());
  REQUIRE(q.submit(job_of(0, 0, 2), 0).ok());
  CHECK(said(q, 0) == "+0");
  CHECK(q.mark_bad(node_id(0), 1).value() == std::vector{job_id(0)});
  CHECK(q.find(job_id(0)) == decltype(q)::phase::wait);
  CHECK(q.idle_gpus() == 4);  // as the placer says
  CHECK(q.mark_bad(node_id(0), 1).value().empty());
}

TEST_CASE("time_sharing: jobs that leave before a decision do not change the order") {
  auto q = by_best_fit({.gpus = {1}}, {.quantum = 60});
  for (const std::uint32_t job : {5U, 4U, 3U, 2U}) REQUIRE(q.submit(job_of(0, job, 1), 0).ok());
  for (const std::uint32_t job : {5U, 3U}) REQUIRE(q.finish(job_id(job), 0).ok());
  for (const std::uint32_t job : {3U, 5U, 7U}) REQUIRE(q.submit(job_of(0, job, 1), 0).ok());
  REQUIRE(q.finish(job_id(7), 0).ok());
  CHECK(said(q, 0) == "+4");  // the first that has not left
  for (const std::uint32_t job : {4U, 3U}) REQUIRE(q.finish(job_id(job), 1).ok());
  REQUIRE(q.submit(job_of(0, 6, 1), 1).ok());
  REQUIRE(q.submit(job_of(0, 3, 1), 1).ok());
  REQUIRE(q.finish(job_id(6), 1).ok());
  CHECK(said(q, 1) == "+3");
  CHECK(q.num_jobs() == 3);
}

TEST_CASE("time_sharing: while no job runs in time slices, no quantum is waited for") {
  gandiva_with_placer<server_placer> q = by_best_fit({.gpus = {4}}, {.quantum = 60});
  REQUIRE(q.mark_bad(node_id(0), 0).ok());
  REQUIRE(q.submit(job_of(0, 0, 4), 0).ok());
  CHECK(said(q, 0) == "");
  CHECK(q.wake() == max_time);  // it waits for the server, and no other has a time slice
  REQUIRE(q.mark_healthy(node_id(0), 10).ok());
  CHECK(said(q, 10) == "+0");
  CHECK(q.wake() == max_time);
  REQUIRE(q.submit(job_of(0, 1, 4), 20).ok());
  CHECK(said(q, 20) == "");
  CHECK(q.wake() == 60);
  CHECK(said(q, 60) == "-0+1");
  CHECK(said(q, 61) == "");
  CHECK(q.wake() == 120);  // whoever was suspended waits for whoever runs
  REQUIRE(q.mark_bad(node_id(0), 70).ok());
  CHECK(said(q, 70) == "");
  CHECK(q.wake() == max_time);
}

TEST_CASE("time_sharing: jobs share GPU-time, or time by the published rule") {
  for (const bool shares_gpu_time : {true, false}) {
    CAPTURE(shares_gpu_time);
    auto q = by_best_fit({.gpus = {4}},
                         {.quantum = 60, .max_wait = 0, .shares_gpu_time = shares_gpu_time});
    for (std::uint32_t job = 0; job < 5; ++job)
      REQUIRE(q.submit(job_of(0, job, job == 0 ? 4 : 1), 0).ok());
    std::array<int, 5> quanta{};
    for (time_ms now = 0; now < 50 * 60; now += 60) {
      std::vector<job_action> actions;
      REQUIRE(q.decide(now, actions).ok());
      for (std::uint32_t job = 0; job < 5; ++job)
        quanta[job] += q.find(job_id(job)) == gandiva_with_placer<server_placer>::phase::sliced;
    }
    // Each of the five has a fifth of the GPU-time, or the job of four GPUs has half of the time.
    CHECK(quanta[0] == (shares_gpu_time ? 10 : 25));
    for (std::size_t job = 1; job < 5; ++job) CHECK(quanta[job] == 50 - quanta[0]);
  }
}

TEST_CASE("time_sharing: a guaranteed job starts where another one migrated away") {
  using phase = gandiva_hived::phase;
  hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2}, {"NODE", "PAIR", 2, true}, {"RACK", "NODE", 2}};
  config.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}}};
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}}}, {.name = "none", .cells = {}}};
  gandiva_hived q =
      gandiva_hived::create(hived_placer::create(config, true, {.guaranteed = true}).value(),
                            {.quantum = 60, .migrations = {4, 0}})
          .value();
  const auto comes = [&](const job_request& r, time_ms now) {
    REQUIRE(q.submit(r, now).ok());
    return said(q, now);
  };
  CHECK(comes(job_of(0, 0, 1), 0) == "+0");
  CHECK(comes(job_of(0, 1, 3), 0) == "+1");
  CHECK(comes(job_of(0, 2, 1), 0) == "+2");  // on the other node
  CHECK(comes(job_of(1, 3, 2, -1), 0) == "+3");
  CHECK(comes(job_of(0, 4, 4), 0) == "");
  REQUIRE(q.finish(job_id(0), 10).ok());
  // Job 4 is asked before the tick in which job 2 moves, and only the opportunistic job is in its way then.
  CHECK(said(q, 10) == "-3>2+4");
  CHECK(q.find(job_id(4)) == phase::guaranteed);
}

// The calls of any time_sharing of jobs, so that the host below is compiled once.
enum class phase : std::uint8_t { wait, guaranteed, sliced };
struct any_queue {
  using jobs_by_id = std::map<job_id, job_request>;
  using places_by_id = std::map<job_id, job_placement>;
  any_queue() = default;
  any_queue(const any_queue&) = delete;
  any_queue& operator=(const any_queue&) = delete;
  virtual ~any_queue() = default;
  virtual absl::Status submit(const job_request& r, time_ms t) = 0;
  virtual absl::Status finish(job_id j, time_ms t) = 0;
  virtual absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) = 0;
  virtual absl::Status mark_healthy(node_id n, time_ms t) = 0;
  virtual absl::Status decide(time_ms now, std::vector<job_action>& actions) = 0;
  [[nodiscard]] virtual time_ms wake() const = 0;
  [[nodiscard]] virtual std::uint32_t total_gpus() const = 0;
  [[nodiscard]] virtual std::size_t num_jobs() const = 0;
  [[nodiscard]] virtual phase find(job_id j) const = 0;
  // No job waits that fits, unless it is asked again in the next millisecond.
  virtual void check_waiting(const jobs_by_id& jobs, const places_by_id& running,
                             time_ms now) const = 0;
};
template <class Queue>
struct queue_of final : any_queue {
  explicit queue_of(Queue q) : queue(std::move(q)) {}
  Queue queue;
  absl::Status submit(const job_request& r, time_ms t) override { return queue.submit(r, t); }
  absl::Status finish(job_id j, time_ms t) override { return queue.finish(j, t); }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) override {
    return queue.mark_bad(n, t);
  }
  absl::Status mark_healthy(node_id n, time_ms t) override { return queue.mark_healthy(n, t); }
  absl::Status decide(time_ms now, std::vector<job_action>& actions) override {
    return queue.decide(now, actions);
  }
  [[nodiscard]] time_ms wake() const override { return queue.wake(); }
  [[nodiscard]] std::uint32_t total_gpus() const override { return queue.total_gpus(); }
  [[nodiscard]] std::size_t num_jobs() const override { return queue.num_jobs(); }
  [[nodiscard]] phase find(job_id j) const override { return static_cast<phase>(*queue.find(j)); }
  void check_waiting(const jobs_by_id& jobs, const places_by_id& running,
                     time_ms now) const override {
    if constexpr (std::is_same_v<Queue, gandiva_hived>) {
      const hived& h = queue.placer().scheduler();
      REQUIRE(apiary_test::faults_of(h) == "");
      hived alone = h;  // guaranteed jobs alone: no other has kept one of them waiting
      hived all = h;
      for (const auto& [job, where] : running)
        if (find(job) == phase::sliced) REQUIRE(alone.finish(job).ok());
      hived_jobs adapter = hived_jobs::create(alone).value();
      for (const auto& [job, r] : jobs) {
        if (running.contains(job)) continue;
        if (r.priority >= 0) {
          const auto own = alone.propose(adapter.gang_of(r));
          REQUIRE((!own.ok() || own->result == plan_result::wait));
        }
        if (queue.wake() > now + 1)
          REQUIRE(all.propose(adapter.opportunistic_gang(r))->result == plan_result::wait);
      }
    } else {
      auto placer = queue.placer().below();
      REQUIRE(placer.idle_gpus() == queue.idle_gpus());
      for (const auto& [job, r] : jobs) {
        if (!running.contains(job) && queue.wake() > now + 1)
          REQUIRE_FALSE(placer.propose(r).value().has_value());
      }
    }
  }
};
static_assert(static_cast<phase>(gandiva_hived::phase::guaranteed) == phase::guaranteed &&
              static_cast<phase>(gandiva_hived::phase::sliced) == phase::sliced);

// What a host sees and the scheduler says of itself are held against each other after each call.
struct careful_host {
  any_queue& queue;
  bool thorough = true;  // checks at each decision that no job waits that could run
  std::map<job_id, job_request> jobs{};
  std::map<job_id, job_placement> running{};
  std::map<job_id, time_ms> waits_since{};
  std::set<node_id> bad{};
  std::array<std::uint64_t, 3> done{};  // starts, suspensions, migrations
  std::uint64_t owners = 0;

  absl::Status submit(const job_request& r, time_ms t) {
    jobs[r.job] = r;
    waits_since[r.job] = t;
    return queue.submit(r, t);
  }
  absl::Status finish(job_id j, time_ms t) {
    running.erase(j);
    jobs.erase(j);
    return queue.finish(j, t);
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) {
    bad.insert(n);
    std::vector<job_id> here;
    for (const auto& [job, where] : running) {
      if (std::any_of(where.begin(), where.end(), [&](placement p) { return p.node == n; }))
        here.push_back(job);
    }
    auto stopped = queue.mark_bad(n, t);
    REQUIRE(stopped.ok());
    REQUIRE(*stopped == here);
    for (const job_id job : here) {
      running.erase(job);
      waits_since[job] = t;
    }
    return stopped;
  }
  absl::Status mark_healthy(node_id n, time_ms t) {
    bad.erase(n);
    return queue.mark_healthy(n, t);
  }
  time_ms wake() const { return queue.wake(); }
  std::uint32_t total_gpus() const { return queue.total_gpus(); }

  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    REQUIRE(queue.decide(now, actions).ok());
    std::set<job_id> acted;
    verb last = verb::suspend;
    for (const job_action& a : actions) {
      REQUIRE(acted.insert(a.job).second);
      const auto order = [](verb v) { return v == verb::suspend ? 0 : v == verb::migrate ? 1 : 2; };
      REQUIRE(order(last) <= order(a.what));
      last = a.what;
      if (a.what == verb::start) {
        REQUIRE(!running.contains(a.job));
        REQUIRE(a.waited.total() == now - waits_since.at(a.job));
        running[a.job] = a.where;
        ++done[0];
        continue;
      }
      REQUIRE(running.contains(a.job));
      if (a.what == verb::suspend) {
        running.erase(a.job);
        waits_since[a.job] = now;
        ++done[1];
      } else {
        REQUIRE(running.at(a.job) != a.where);
        running.at(a.job) = a.where;
        ++done[2];
      }
    }
    std::map<node_id, std::uint32_t> taken;
    bool sound = true;
    for (const auto& [job, where] : running) {
      std::uint32_t gpus = 0;
      for (const placement& p : where) {
        sound = sound && !bad.contains(p.node) && (taken[p.node] & p.gpu_mask) == 0;
        taken[p.node] |= p.gpu_mask;
        gpus += p.num_gpus();
      }
      sound = sound && gpus == jobs.at(job).gpus;
    }
    REQUIRE(sound);
    REQUIRE(queue.num_jobs() == jobs.size());
    REQUIRE(queue.wake() > now);
    for (const auto& [job, r] : jobs) {
      REQUIRE((queue.find(job) == phase::wait) == !running.contains(job));
      owners += queue.find(job) == phase::guaranteed ? 1U : 0U;
    }
    if (thorough) queue.check_waiting(jobs, running, now);
    return absl::OkStatus();
  }
};

struct random_jobs {
  std::vector<timed_job> jobs{};
  std::vector<outage> outages{};

  random_jobs(rng& random, std::uint32_t servers, std::uint32_t most, std::uint32_t tenants) {
    for (std::uint32_t i = 0; i < 40; ++i) {
      timed_job j;
      const std::uint32_t tenant = random.uniform(tenants);
      const std::uint32_t gpus = 1 + random.uniform(1 + random.uniform(most));
      j.request = job_of(tenant, i, gpus, static_cast<std::int32_t>(random.uniform(4)) - 1);
      if (j.request.tenant == tenant_id(2)) j.request.priority = -1;
      j.request.weight = 1 + random.uniform(3);
      j.arrival = random.uniform(400);
      j.duration = 1 + random.uniform(120);
      jobs.push_back(j);
    }
    job_list::number_by_arrival(jobs);
    time_ms from = 0;
    for (std::uint32_t i = 0; i < random.uniform(4); ++i) {
      from += 1 + random.uniform(200);
      outages.push_back({node_id(random.uniform(servers)), from, from + 1 + random.uniform(90)});
      from = outages.back().until;
    }
  }
};

// Twice, by two fresh hosts; the log of events.
using queue_maker = std::function<std::unique_ptr<any_queue>()>;
std::uint64_t play(rng& random, std::uint32_t servers, std::uint32_t most, std::uint32_t tenants,
                   std::array<std::uint64_t, 4>& done, const queue_maker& make) {
  const random_jobs list(random, servers, most, tenants);
  std::uint64_t first = 0;
  for (int twice = 0; twice < 2; ++twice) {
    const std::unique_ptr<any_queue> queue = make();
    careful_host host{*queue, twice == 0 || !apiary_test::is_quick()};
    const auto run = simulate(
        host, list.jobs, list.outages, {.start_cost = 1, .migration_cost = 2},
        [](const timed_job&, const job_placement&) { return full_speed; },
        [](const simulation_event&) {});
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    for (const simulation_result::job_record& r : run->jobs) REQUIRE(r.ended != max_time);
    REQUIRE(queue->num_jobs() == 0);
    if (twice == 0) {
      first = run->log.value();
      for (std::size_t i = 0; i < 3; ++i) done[i] += host.done[i];
      done[3] += host.owners;
    }
    REQUIRE(run->log.value() == first);
  }
  return first;
}
template <class Queue>
std::unique_ptr<any_queue> boxed(Queue queue) {
  return std::make_unique<queue_of<Queue>>(std::move(queue));
}

// The logs of the published rule, under the first ten seeds. Set anew on purpose when decisions
// change; the same for every compiler.
TEST_CASE("time_sharing: random loads over placers: all invariants, all end, twice the same") {
  digest log;
  std::array<std::uint64_t, 4> done{};
  for (std::uint64_t seed = 0; seed < std::max<std::uint64_t>(14, apiary_test::scaled(100U));
       ++seed) {
    CAPTURE(seed);
    rng random(seed);
    server_spec spec;
    for (std::uint32_t n = 0; n < 2 + random.uniform(4); ++n)
      spec.gpus.push_back(n == 0 ? 8 : 4 + 4 * random.uniform(2));
    time_sharing_options options{5 + random.uniform(40), {random.uniform(4), random.uniform(300)}};
    options.max_wait = seed < 10 ? 0 : 3;
    options.shares_gpu_time = seed >= 10;
    const auto servers = static_cast<std::uint32_t>(spec.gpus.size());
    const std::uint64_t a =
        play(random, servers, 12, 1, done, [&] { return boxed(by_best_fit(spec, options)); });
    const std::uint64_t b =
        play(random, servers, 12, 1, done, [&] { return boxed(by_fragmentation(spec, options)); });
    if (seed < 10) log.add(a).add(b);
  }
  CHECK(std::all_of(done.begin(), done.begin() + 3, [](std::uint64_t n) { return n > 0; }));
  CHECK(log.value() == 14167754921312157900U);
}

TEST_CASE(
    "time_sharing: random loads on HiveD: audited, no opportunistic job delays a guaranteed "
    "one") {
  digest log;
  std::array<std::uint64_t, 4> done{};
  for (std::uint64_t seed = 0; seed < std::max<std::uint64_t>(14, apiary_test::scaled(100U));
       ++seed) {
    CAPTURE(seed);
    rng random(seed);
    time_sharing_options options{5 + random.uniform(40), {random.uniform(4), random.uniform(300)}};
    options.max_wait = seed < 10 ? 0 : 3;
    options.shares_gpu_time = seed >= 10;
    const gang_migration moves{
        random.uniform(2) == 0 ? gang_migration::metric::broken : gang_migration::metric::spread,
        random.uniform(2) == 0};
    options.migrations.trials = 1 + random.uniform(4);
    const std::uint64_t a =
        play(random, 4, 9, 3, done, [&] { return boxed(by_tenants(options, moves)); });
    if (seed < 10) log.add(a);
  }
  CHECK(std::all_of(done.begin(), done.end(), [](std::uint64_t n) { return n > 0; }));
  CHECK(log.value() == 16039579679632432926U);
}

}  // namespace
}  // namespace time_sharing_jobs_tests
