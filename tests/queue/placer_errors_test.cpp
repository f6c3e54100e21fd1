// apiary/tests/queue/placer_errors_test.cpp - queues over placers that fail once, or that preempt.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/reservations.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// A server_placer whose next call for one job fails. no_commit is not for copies.
struct failing_placer : server_placer {
  static inline job_id no_proposal{};
  static inline job_id no_commit{};

  explicit failing_placer(const server_spec& servers)
      : server_placer(server_placer::create(servers).value()) {}
  failing_placer(const failing_placer& other) : server_placer(other), is_copy(true) {}
  failing_placer(failing_placer&&) = default;
  failing_placer& operator=(const failing_placer&) = delete;
  failing_placer& operator=(failing_placer&&) = default;
  ~failing_placer() = default;

  absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    if (r.job == no_proposal) {
      no_proposal = job_id();
      return absl::InternalError("no answer");
    }
    return server_placer::propose(r);
  }
  absl::Status commit(const job_request& r, const job_placement& where) {
    if (!is_copy && r.job == no_commit) {
      no_commit = job_id();
      return absl::InternalError("no start");
    }
    return server_placer::commit(r, where);
  }

 private:
  bool is_copy = false;
};
static_assert(JobPlacer<failing_placer>);

job_request job(std::uint32_t id, std::uint32_t gpus, time_ms estimate, std::int32_t priority = 0) {
  return {.job = job_id(id), .priority = priority, .gpus = gpus, .estimate = estimate};
}
// "+3" for a start of job 3, "-3" for its suspension; "!" for an error.
template <class Queue>
std::string said(Queue& queue, time_ms now) {
  std::vector<job_action> actions;
  std::string all = queue.decide(now, actions).ok() ? "" : "!";
  for (const job_action& a : actions) {
    all += a.what == job_action::verb::start ? '+' : '-';
    all += std::to_string(a.job.value);
  }
  return all;
}

}  // namespace

TEST_CASE(
    "easy_gpus: a job that failed to start is not taken to run at the time of the reservation") {
  batch_queue queue(failing_placer({.gpus = {4, 4, 1}}),
                    {.rule = batch_options::rules::easy_gpus, .aging = 1000});
  REQUIRE(queue.submit(job(1, 4, 200), 0).ok());
  REQUIRE(queue.submit(job(2, 2, 50), 0).ok());
  REQUIRE(queue.submit(job(3, 4, 100), 0).ok());   // waits for the server of job 2
  REQUIRE(queue.submit(job(4, 1, 1000), 0).ok());  // on the third server
  failing_placer::no_commit = job_id(4);
  CHECK(said(queue, 0) == "!+1+2");
  CHECK(!queue.reserved());  // nothing is known after an error
  REQUIRE(queue.submit(job(5, 1, 59, 9), 1).ok());
  CHECK(said(queue, 1) == "+5");  // where job 4 would run
  CHECK(queue.reserved() == reservation{job_id(3), 50, 0});
  REQUIRE(queue.finish(job_id(3), 2).ok());
  REQUIRE(queue.submit(job(6, 4, 10), 2).ok());
  CHECK(said(queue, 2) == "+4");  // beside job 2, until 1002
  CHECK(queue.reserved() == reservation{job_id(6), 200, 4});
}

TEST_CASE("conservative_queue: an error does not mean that jobs never fit on the healthy servers") {
  conservative_queue queue(failing_placer({.gpus = {2, 2}}));
  REQUIRE(queue.mark_bad(node_id(1), 0).ok());
  REQUIRE(queue.submit(job(1, 2, 100), 0).ok());
  failing_placer::no_proposal = job_id(1);
  CHECK(said(queue, 0) == "!");
  CHECK(said(queue, 1) == "+1");
}

TEST_CASE(
    "suspending_queue: a job that was stopped in vain and is not put back waits, and is reported") {
  preemptive_queue queue(failing_placer({.gpus = {2, 2}}),
                         {.rule = preemptive_options::rules::shortest_remaining});
  REQUIRE(queue.submit(job(1, 1, 500), 0).ok());
  REQUIRE(queue.submit(job(2, 1, 50), 0).ok());
  CHECK(said(queue, 0) == "+1+2");  // on one server
  REQUIRE(queue.submit(job(3, 1, 50), 1).ok());
  CHECK(said(queue, 1) == "+3");
  // Without job 1, each server has one idle GPU.
  REQUIRE(queue.submit(job(4, 2, 60), 2).ok());
  failing_placer::no_commit = job_id(1);
  CHECK(said(queue, 2) == "!-1");
  REQUIRE(queue.finish(job_id(2), 10).ok());
  CHECK(said(queue, 10) == "+1+4");
  CHECK(queue.finish(job_id(1), 40).ok());
}

TEST_CASE(
    "easy_by_count: a job that overtakes suspends no other, which would be the first one then") {
  const gang_cluster cluster{.nodes = {{.name = "n", .gpus = 8}}};
  job_queue queue(gang_placer::create(cluster, {.preempts = true}).value(), arrival_order(),
                  easy_by_count());
  REQUIRE(queue.submit(job(1, 5, 1000), 0).ok());
  REQUIRE(queue.submit(job(2, 2, 50, 9), 0).ok());
  REQUIRE(queue.submit(job(3, 8, 10), 0).ok());
  CHECK(said(queue, 0) == "+1+2");
  CHECK(queue.reservations().reserved() == reservation{job_id(3), 1000, 0});
  REQUIRE(queue.submit(job(4, 4, 40, 5), 1).ok());  // it would suspend job 1
  REQUIRE(queue.submit(job(5, 1, 900), 1).ok());
  CHECK(said(queue, 1) == "+5");
  CHECK(queue.reservations().reserved() == reservation{job_id(3), 1000, 0});

  // As many GPUs as it needs are idle, but on two nodes.
  const gang_cluster two{.nodes = {{.name = "a", .gpus = 2}, {.name = "b", .gpus = 2}}};
  job_queue split(gang_placer::create(two, {.preempts = true}).value(), arrival_order(),
                  easy_by_count());
  for (const std::uint32_t id : {1U, 2U, 3U}) REQUIRE(split.submit(job(id, 1, 1000), 0).ok());
  CHECK(said(split, 0) == "+1+2+3");
  REQUIRE(split.finish(job_id(1), 1).ok());
  REQUIRE(split.submit(job(4, 4, 10), 1).ok());
  REQUIRE(split.submit(job(5, 2, 50, 9), 1).ok());
  CHECK(said(split, 1).empty());
}

namespace {

// Counts the proposals, and fails at one of them.
struct counted_placer : gang_placer {
  static inline int proposals = 0;
  static inline int fails_at = 0;
  static inline bool fails_to_commit = false;
  absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    ++proposals;
    return gang_placer::propose(r);
  }
  absl::StatusOr<placer_answer<job_placement>> propose_preempting(const job_request& r) {
    if (++proposals == fails_at) return absl::InternalError("no answer");
    return gang_placer::propose_preempting(r);
  }
  absl::Status commit(const job_request& r, const job_placement& where) {
    if (std::exchange(fails_to_commit, false)) return absl::InternalError("no start");
    return gang_placer::commit(r, where);
  }
};
static_assert(PreemptingPlacer<counted_placer>);

}  // namespace

TEST_CASE(
    "job_queue: each job that starts is proposed once, whether jobs may be suspended or not") {
  const gang_cluster cluster{.nodes = {{.name = "n", .gpus = 8}}};
  for (const bool preempts : {false, true}) {
    CAPTURE(preempts);
    counted_placer::proposals = 0;
    job_queue queue(counted_placer{gang_placer::create(cluster, {.preempts = preempts}).value()},
                    arrival_order(), first_fit());
    for (const std::uint32_t id : {1U, 2U, 3U}) REQUIRE(queue.submit(job(id, 2, 10), 0).ok());
    CHECK(said(queue, 0) == "+1+2+3");
    CHECK(counted_placer::proposals == 3);
  }
}

TEST_CASE("job_queue: a job that does not start after others were suspended reserves no GPUs") {
  const gang_cluster cluster{.nodes = {{.name = "n", .gpus = 8}}};
  for (const bool fails_to_commit : {false, true}) {
    CAPTURE(fails_to_commit);
    job_queue queue(counted_placer{gang_placer::create(cluster, {.preempts = true}).value()},
                    priority_order(), no_backfill());
    REQUIRE(queue.submit(job(1, 8, 10), 0).ok());
    CHECK(said(queue, 0) == "+1");
    REQUIRE(queue.submit(job(2, 6, 10, 9), 1).ok());
    counted_placer::fails_to_commit = fails_to_commit;
    if (!fails_to_commit) counted_placer::fails_at = counted_placer::proposals + 2;
    CHECK(said(queue, 1) == "!-1");
    REQUIRE(queue.finish(job_id(2), 2).ok());
    CHECK(said(queue, 2) == "+1");
  }
}

TEST_CASE("easy_beside: the first job counts on GPUs of jobs that it may suspend") {
  const gang_cluster cluster{.nodes = {{.name = "a", .gpus = 4}, {.name = "b", .gpus = 4}}};
  for (const std::int32_t priority : {0, 1}) {
    job_queue queue(gang_placer::create(cluster, {.preempts = true}).value(), priority_order(),
                    easy_beside<gang_placer>());
    REQUIRE(queue.submit(job(0, 4, 10, 1), 0).ok());
    REQUIRE(queue.submit(job(1, 8, 10, 1), 0).ok());          // waits for job 0
    REQUIRE(queue.submit(job(2, 4, 100, priority), 0).ok());  // would run on then
    CHECK(said(queue, 0) == (priority == 0 ? "+0+2" : "+0"));
  }
}

TEST_CASE("easy_beside: before a first job that is undecided only those start that end in time") {
  const gang_cluster cluster{.nodes = {{.name = "a", .gpus = 6, .host = {.cpu_milli = 7'000}},
                                       {.name = "b", .gpus = 2, .host = {.cpu_milli = 5'000}},
                                       {.name = "c", .gpus = 5, .host = {.cpu_milli = 6'000}}}};
  gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  scheduler.set_step_budget(8);
  gang_placer_options options{.demands = {{}, {.per_gpu = {.cpu_milli = 500}}}, .preempts = true};
  job_queue queue(gang_placer(scheduler, options), priority_order(), easy_beside<gang_placer>());
  REQUIRE(queue.submit(job(0, 7, 100), 0).ok());
  CHECK(said(queue, 0) == "+0");
  job_request wide = job(1, 10, 10);
  wide.demand = 1;
  REQUIRE(queue.submit(wide, 1).ok());
  REQUIRE(queue.submit(job(2, 3, 1'000), 2).ok());
  REQUIRE(queue.submit(job(3, 3, 50), 3).ok());
  CHECK(said(queue, 4) == "+3");
}

namespace {

struct strict_order : no_backfill {
  static constexpr bool only_first_waits_for_gpus = true;
};

}  // namespace

TEST_CASE("job_queue: after an error the first job waits for what it waited for before") {
  const gang_cluster cluster{.nodes = {{.name = "n", .gpus = 8}}};
  job_queue queue(counted_placer{gang_placer::create(cluster).value()}, arrival_order(),
                  strict_order());
  for (const std::uint32_t id : {1U, 2U}) REQUIRE(queue.submit(job(id, 8, 10), 0).ok());
  CHECK(said(queue, 0) == "+1");
  counted_placer::fails_at = counted_placer::proposals + 1;
  CHECK(said(queue, 10) == "!");
  CHECK(said(queue, 20).empty());
  REQUIRE(queue.finish(job_id(1), 30).ok());
  std::vector<job_action> actions;
  REQUIRE(queue.decide(30, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].waited[delay_cause::capacity] == 30);
  CHECK(actions[0].waited[delay_cause::order] == 0);
}

TEST_CASE("job_queue: with some reservations only the first job waits for GPUs") {
  job_queue queue(server_placer::create({.gpus = {2, 2}}).value(), priority_order(),
                  strict_order());
  std::vector<job_action> actions;
  const auto waits = [&](std::uint32_t of, time_ms now) {
    actions.clear();
    REQUIRE(queue.decide(now, actions).ok());
    for (const job_action& a : actions)
      if (a.job == job_id(of)) return a.waited;
    return delays{};
  };
  for (const std::uint32_t id : {1U, 2U, 3U}) REQUIRE(queue.submit(job(id, 1, 10), 0).ok());
  REQUIRE(queue.submit(job(4, 2, 10, -1), 0).ok());  // too few GPUs are idle, later they are split
  REQUIRE(queue.submit(job(5, 2, 10, -2), 0).ok());
  waits(0, 0);
  REQUIRE(queue.finish(job_id(1), 30).ok());
  waits(0, 30);
  REQUIRE(queue.finish(job_id(2), 50).ok());
  delays fourth = waits(4, 50);
  CHECK(fourth[delay_cause::capacity] == 30);
  CHECK(fourth[delay_cause::fragmentation] == 20);
  CHECK(fourth[delay_cause::order] == 0);
  REQUIRE(queue.finish(job_id(4), 60).ok());
  delays fifth = waits(5, 60);
  CHECK(fifth[delay_cause::order] == 50);
  CHECK(fifth[delay_cause::capacity] == 10);

  // The first job is cancelled, and another one comes with its id.
  REQUIRE(queue.submit(job(6, 4, 10), 60).ok());
  waits(0, 60);
  REQUIRE(queue.finish(job_id(6), 70).ok());
  REQUIRE(queue.submit(job(6, 1, 10), 80).ok());
  CHECK(waits(6, 80) == delays{});
}

namespace {

// Weighted tenants as in examples/own_queue.cpp, all of weight 1.
struct fair_tenants {
  std::map<tenant_id, std::int64_t> next{};
  std::int64_t reached = 0;
  std::int64_t position(const job_request& r, time_ms) {
    std::int64_t& at = next[r.tenant];
    return at = std::max(at, reached) + r.gpus;
  }
  void started(std::int64_t position) { reached = std::max(reached, position); }
};
static_assert(JobOrder<fair_tenants>);

}  // namespace

TEST_CASE(
    "job_queue: an order knows which jobs start, so a tenant that comes late gets its share only") {
  job_queue queue(server_placer::create({.gpus = {1}}).value(), fair_tenants(), no_backfill());
  std::uint32_t id = 0;
  const auto submit = [&](std::uint32_t tenant, std::uint32_t count, time_ms now) {
    for (; count > 0; --count)
      REQUIRE(
          queue.submit({.job = job_id(id++), .tenant = tenant_id(tenant), .gpus = 1}, now).ok());
  };
  std::vector<job_action> actions;
  const auto run = [&](time_ms from, time_ms until) {
    for (time_ms now = from; now < until; ++now) {
      REQUIRE(queue.decide(now, actions).ok());
      REQUIRE(queue.finish(actions.back().job, now + 1).ok());
    }
  };
  submit(0, 30, 0);
  run(0, 10);
  submit(1, 10, 10);  // jobs 30 to 39
  run(10, 20);
  const auto of_second = std::count_if(actions.begin() + 10, actions.end(),
                                       [](const job_action& a) { return a.job.value >= 30; });
  CHECK(of_second == 5);
}
