// apiary/tests/sim/simulate_test.cpp - jobs over time: speeds, costs, breakdowns, the log's hash.
// SPDX-License-Identifier: MIT
#include <apiary/core/status.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <support/forwarding_scheduler.h>
#include <support/scale.h>
#include <support/skip.h>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

server_placer servers(std::vector<std::uint32_t> gpus, bool anywhere = false) {
  return server_placer::create({.gpus = std::move(gpus), .anywhere = anywhere}).value();
}

timed_job job(std::uint32_t number, std::uint32_t gpus, time_ms arrival, time_ms duration) {
  return {{.job = job_id(number), .gpus = gpus, .estimate = duration}, arrival, duration};
}

constexpr auto at_full_speed = [](const timed_job&, const job_placement&) { return full_speed; };
constexpr auto unseen = [](const simulation_event&) {};

// Starts every job on the same GPU at once, the second one packed onto the first.
struct two_on_one_gpu {
  std::vector<job_id> waiting{};
  bool first = true;

  absl::Status submit(const job_request& r, time_ms /*now*/) {
    waiting.push_back(r.job);
    return absl::OkStatus();
  }
  absl::Status finish(job_id /*job*/, time_ms /*now*/) { return absl::OkStatus(); }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id /*n*/, time_ms /*now*/) {
    return std::vector<job_id>{};
  }
  absl::Status mark_healthy(node_id /*n*/, time_ms /*now*/) { return absl::OkStatus(); }
  absl::Status decide(time_ms /*now*/, std::vector<job_action>& actions) {
    for (const job_id j : waiting) {
      actions.push_back({first ? job_action::verb::start : job_action::verb::pack,
                         j,
                         job_placement{{node_id(0), 1}},
                         {}});
      first = false;
    }
    waiting.clear();
    return absl::OkStatus();
  }
  [[nodiscard]] time_ms wake() const { return max_time; }
  [[nodiscard]] std::uint32_t total_gpus() const { return 1; }
};

}  // namespace

TEST_CASE("simulate: jobs without duration end when they have started") {
  std::vector<timed_job> jobs{job(0, 2, 0, 10), job(1, 2, 3, 0), job(2, 1, 3, 0), job(3, 1, 20, 0)};
  for (timed_job& j : jobs) j.request.tenant = tenant_id(0);
  const auto check = [&](auto queue) {
    const auto run = simulate(queue, jobs);
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    for (std::size_t j = 1; j < jobs.size(); ++j) {
      CAPTURE(j);
      CHECK(run->jobs[j].ended == run->jobs[j].started);
    }
    CHECK(run->jobs[3].ended == 20);
    const job_metrics m = metrics_of(*run, jobs);
    CHECK(m.ended == 4);
  };
  const server_placer placer = servers({2});
  for (const batch_options::rules rule :
       {batch_options::rules::fifo, batch_options::rules::backfill, batch_options::rules::easy,
        batch_options::rules::easy_gpus})
    check(batch_queue(placer, {.rule = rule}));
  check(conservative_queue(placer));
  for (const preemptive_options::rules rule :
       {preemptive_options::rules::least_attained, preemptive_options::rules::shortest_remaining})
    check(preemptive_queue(placer, {.rule = rule}));
  check(philly::create({.servers = {.gpus = {2}}, .quotas = {2}}).value());
  check(gandiva::create({.servers = {.gpus = {2}}}).value());
}

TEST_CASE("simulate: a wrong estimate and a negative cost are errors") {
  std::vector<timed_job> jobs{job(0, 1, 0, 10)};
  const auto run = [&](time_ms start_cost) {
    conservative_queue queue(servers({4}));
    return simulate(queue, jobs, {}, {.start_cost = start_cost}, at_full_speed, unseen).status();
  };
  CHECK(run(-1) == absl::InvalidArgumentError("a start costs -1 ms; it must cost at least 0"));
  conservative_queue queue(servers({4}));
  CHECK(simulate(queue, jobs, {}, {.migration_cost = -1}, at_full_speed, unseen).status() ==
        absl::InvalidArgumentError("a migration costs -1 ms; it must cost at least 0"));
  jobs[0].request.estimate = -5;
  CHECK(run(0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(1000) == run(0));
}

// Without the cost in the estimate, every job would run longer than reserved.
TEST_CASE("simulate: what a start costs is in the estimate, so reservations are kept") {
  const std::vector<timed_job> jobs{job(0, 2, 0, 10), job(1, 4, 1, 10), job(2, 2, 2, 7),
                                    job(3, 2, 3, 8)};
  batch_queue easy(servers({4}), {.rule = batch_options::rules::easy});
  conservative_queue all(servers({4}));
  const auto check = [&](auto& queue) {
    const auto run = simulate(queue, jobs, {}, {.start_cost = 3}, at_full_speed, unseen);
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    CHECK(run->jobs[0].ended == 13);
    CHECK(run->jobs[1].started == 13);  // 2 does not end before, 3 would not either
    CHECK(run->jobs[2].started == 2);
    CHECK(run->jobs[3].started == 26);
  };
  check(easy);
  check(all);
}

TEST_CASE("simulate: a job over two servers is slower, a start costs time") {
  const std::vector<timed_job> jobs{job(0, 3, 0, 100), job(1, 4, 5, 100)};
  batch_queue queue(servers({4, 4}, true), {.rule = batch_options::rules::fifo});
  const auto speed = [](const timed_job&, const job_placement& where) -> std::uint32_t {
    return where.size() == 1 ? 1000 : 300;
  };
  std::vector<simulation_event> log;
  const auto run = simulate(queue, jobs, {}, {.start_cost = 7}, speed,
                            [&](const simulation_event& e) { log.push_back(e); });
  REQUIRE(run.ok());
  CHECK(run->jobs[0].ended == 107);
  CHECK(run->jobs[1].ended == 5 + 107);
  CHECK(run->events == log.size());
  REQUIRE(log.size() == 6);
  CHECK(log[1].what == simulation_event::kind::start);
  CHECK(log[1].gpus == 3);
  CHECK(log[1].nodes == 1);
  CHECK(log[5].what == simulation_event::kind::end);
  const std::vector<timed_job> two_servers{job(0, 6, 0, 100)};
  batch_queue alone(servers({4, 4}, true));
  const auto slow = simulate(alone, two_servers, {}, {}, speed, unseen);
  CHECK(slow->jobs[0].ended == 334);  // the last tick is not full
}

TEST_CASE("simulate: a breakdown costs the work since the last checkpoint") {
  const std::vector<timed_job> jobs{job(0, 4, 0, 100), job(1, 4, 0, 100)};
  const std::vector<outage> outages{{node_id(0), 70, 90}};
  for (const time_ms checkpoint : {time_ms{0}, time_ms{30}, time_ms{35}}) {
    batch_queue queue(servers({4, 4}));
    const auto run =
        simulate(queue, jobs, outages, {.checkpoint_interval = checkpoint}, at_full_speed, unseen);
    REQUIRE(run.ok());
    const time_ms lost = checkpoint == 0 ? 70 : checkpoint == 30 ? 10 : 0;
    CHECK(run->jobs[0].lost == lost);
    CHECK(run->jobs[0].broken == 1);
    CHECK(run->jobs[0].waited.total() == 20);  // for the repair
    CHECK(run->jobs[0].ended == 120 + lost);
    CHECK(run->jobs[1].ended == 100);
    CHECK(run->gpus.area(static_cast<std::uint64_t>(run->ended)) ==
          static_cast<std::uint64_t>(4 * (200 + lost)));
  }
}

TEST_CASE("simulate: at equal times ends come before arrivals, and nothing waits for nothing") {
  const std::vector<timed_job> jobs{job(0, 4, 0, 10), job(1, 4, 10, 10)};
  batch_queue queue(servers({4}));
  const simulation_result run = simulate(queue, jobs).value();
  CHECK(run.jobs[1].waited.total() == 0);
  CHECK(run.ended == 20);
  CHECK(run.gpus.mean(20) == 1.0);
}

TEST_CASE("simulate: a job that can never go on is left, and time can be cut") {
  const std::vector<timed_job> jobs{job(0, 4, 0, 10), job(1, 4, 3, 10)};
  batch_queue queue(servers({4}));
  const std::vector<outage> for_ever{{node_id(0), 12, max_time}};
  const auto run = simulate(queue, jobs, for_ever, {}, at_full_speed, unseen);
  REQUIRE(run.ok());
  CHECK(run->jobs[0].ended == 10);
  CHECK(run->jobs[1].ended == max_time);
  CHECK(run->jobs[1].started == 10);
  CHECK(metrics_of(*run, jobs).unended == 1);
  batch_queue again(servers({4}));
  const auto cut = simulate(again, jobs, {}, {.until = 9}, at_full_speed, unseen);
  CHECK(cut->ended == 3);
}

TEST_CASE("simulate: a job has started when it started first, not when it started again") {
  const std::vector<timed_job> jobs{job(0, 4, 3, 100)};
  const std::vector<outage> outages{{node_id(0), 20, 30}};
  batch_queue queue(servers({4}));
  const auto run = simulate(queue, jobs, outages, {}, at_full_speed, unseen);
  REQUIRE(run.ok());
  CHECK(run->jobs[0].broken == 1);
  CHECK(run->jobs[0].started == 3);
  CHECK(run->jobs[0].ended == 130);
}

TEST_CASE("simulate: a job that waited twice waited for both times") {
  const std::vector<timed_job> jobs{job(0, 4, 0, 10), job(1, 4, 0, 100)};
  const std::vector<outage> outages{{node_id(0), 20, 25}};
  batch_queue queue(servers({4}));
  const auto run = simulate(queue, jobs, outages, {}, at_full_speed, unseen);
  REQUIRE(run.ok());
  CHECK(run->jobs[1].waited.total() == 10 + 5);
  // Figures of some sizes are those of jobs from the smallest to the largest of them.
  const auto ended = [&](std::uint32_t min, std::uint32_t max) {
    return metrics_of(*run, jobs, min, max).ended;
  };
  CHECK(ended(4, 4) == 2);
  CHECK(ended(0, 3) == 0);
  CHECK(ended(5, 9) == 0);
}

TEST_CASE("simulate: what happens at the last time happens") {
  const std::vector<timed_job> jobs{job(0, 4, 0, 10), job(1, 4, 3, 10)};
  for (const time_ms until : {time_ms{9}, time_ms{10}}) {
    batch_queue queue(servers({4}));
    const auto run = simulate(queue, jobs, {}, {.until = until}, at_full_speed, unseen);
    REQUIRE(run.ok());
    CHECK(run->jobs[0].ended == (until == 10 ? 10 : max_time));
    CHECK(run->jobs[1].started == (until == 10 ? 10 : max_time));
  }
}

TEST_CASE("simulate: a speed that stays the same beside new neighbours is no event") {
  for (const std::uint32_t packed : {1000U, 500U}) {
    CAPTURE(packed);
    two_on_one_gpu scheduler;
    const std::vector<timed_job> jobs{job(0, 1, 0, 10), job(1, 1, 2, 10)};
    const auto speed = [&](const timed_job&, const job_placement&,
                           std::span<const job_id> others) -> std::uint32_t {
      return others.empty() ? 1000 : packed;
    };
    std::size_t changes = 0;
    const auto run = simulate(scheduler, jobs, {}, {}, speed, [&](const simulation_event& e) {
      changes += e.what == simulation_event::kind::speed_change ? 1U : 0U;
    });
    REQUIRE(run.ok());
    CHECK(changes == (packed == 1000 ? 0 : 2));  // the second comes, the first leaves
  }
}

TEST_CASE("simulate: what it refuses") {
  const auto code = [](const std::vector<timed_job>& jobs, const std::vector<outage>& outages) {
    batch_queue queue(servers({4}));
    return simulate(queue, jobs, outages, {}, at_full_speed, unseen).status().code();
  };
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(code({job(1, 1, 0, 1)}, {}) == invalid);
  CHECK(code({job(0, 1, 5, 1), job(1, 1, 4, 1)}, {}) == invalid);
  CHECK(code({job(0, 1, 0, -1)}, {}) == invalid);
  CHECK(code({job(0, 1, -1, 1)}, {}) == invalid);
  CHECK(code({job(0, 5, 0, 1)}, {}) == invalid);  // the scheduler does
  CHECK(code({job(0, 1, 0, 1)}, {{node_id(0), 5, 5}}) == invalid);
  CHECK(code({job(0, 1, 0, 1)}, {{node_id(0), 5, 6}, {node_id(0), 4, 5}}) == invalid);
  CHECK(code({job(0, 1, 0, 1)}, {{node_id(7), 0, 6}}) == absl::StatusCode::kNotFound);
}

TEST_CASE("simulate: a server that is broken does not break, and is broken until it is repaired") {
  batch_queue queue(servers({4, 4}));
  const std::vector<timed_job> jobs{job(0, 4, 0, 10)};
  const auto run = [&](const std::vector<outage>& outages) {
    batch_queue fresh(servers({4, 4}));
    return simulate(fresh, jobs, outages, {}, at_full_speed, unseen);
  };
  const std::vector<outage> twice{
      {node_id(1), 1, 5}, {node_id(0), 2, 100}, {node_id(1), 5, 6}, {node_id(0), 30, 31}};
  CHECK(run(twice).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(twice).status().message() ==
        "outage 3: server 0 breaks at 30, but it is broken until 100");
  const std::vector<outage> in_turn{{node_id(0), 2, 5}, {node_id(1), 2, 5}, {node_id(0), 5, 7}};
  const auto done = run(in_turn);
  REQUIRE_MESSAGE(done.ok(), done.status().ToString());
  CHECK(done->jobs[0].ended == 15);  // again from 5 on, on the other one
  CHECK(run({{node_id(0), 2, max_time}, {node_id(0), 9, 10}}).status().message() ==
        "outage 1: server 0 breaks at 9, but it is broken until " + std::to_string(max_time));
}

TEST_CASE("simulate: a scheduler that wants to be woken now, for ever, is an error") {
  struct restless : apiary_test::forwarding_scheduler<batch_queue<server_placer>> {
    time_ms now = 0;
    time_ms behind = 0;
    absl::Status decide(time_ms t, std::vector<job_action>& actions) {
      now = t;
      return scheduler.decide(t, actions);
    }
    time_ms wake() const { return now + behind; }
  };
  const std::vector<timed_job> jobs{job(0, 4, 0, 10)};
  for (const time_ms behind : {-1, 0, 1}) {
    restless scheduler{{batch_queue(servers({4}))}, 0, behind};
    const auto run = simulate(scheduler, jobs);
    CHECK(run.ok() == (behind == 1));
    if (run.ok()) continue;
    CHECK(run.status().code() == absl::StatusCode::kInternal);
    CHECK(run.status().message() == "the scheduler asks to be called at " + std::to_string(behind) +
                                        ", which is not after " + std::to_string(behind));
  }
}

TEST_CASE("simulate: an action that cannot be carried out is an error of the scheduler") {
  // A queue whose first decisions are given.
  struct scripted {
    std::vector<std::vector<job_action>> script{};
    std::vector<job_id> stopped{};
    std::size_t decisions = 0;
    absl::Status submit(const job_request& /*r*/, time_ms /*t*/) { return absl::OkStatus(); }
    absl::Status finish(job_id /*j*/, time_ms /*t*/) { return absl::OkStatus(); }
    absl::StatusOr<std::vector<job_id>> mark_bad(node_id /*n*/, time_ms /*t*/) { return stopped; }
    absl::Status mark_healthy(node_id /*n*/, time_ms /*t*/) { return absl::OkStatus(); }
    absl::Status decide(time_ms /*t*/, std::vector<job_action>& actions) {
      if (decisions < script.size()) actions = script[decisions];
      ++decisions;
      return absl::OkStatus();
    }
    [[nodiscard]] time_ms wake() const { return max_time; }
    [[nodiscard]] std::uint32_t total_gpus() const { return 4; }
  };
  using verb = job_action::verb;
  const auto action = [](verb what, std::uint32_t j, std::uint32_t server, std::uint32_t mask) {
    return job_action{what, job_id(j), {{node_id(server), mask}}, {}};
  };
  const job_action start = action(verb::start, 0, 0, 1);
  const job_action suspend{verb::suspend, job_id(0), {}, {}};
  const std::vector<timed_job> jobs{job(0, 1, 0, 10), job(1, 1, 5, 10)};
  const auto error = [&](std::vector<std::vector<job_action>> script,
                         std::vector<job_id> stopped = {}, std::vector<outage> outages = {}) {
    scripted scheduler{std::move(script), std::move(stopped)};
    const auto run = simulate(scheduler, jobs, outages, {.servers = {2, 2}}, at_full_speed, unseen);
    if (run.ok()) return std::string();
    CHECK(run.status().code() == absl::StatusCode::kInternal);
    return std::string(run.status().message());
  };
  CHECK(error({{start}}).empty());
  CHECK(error({{start, suspend, start}}).empty());
  CHECK(error({{start, start}}) == "the scheduler starts job 0 at 0, but it runs already");
  CHECK(error({{suspend}}) == "the scheduler suspends job 0 at 0, but it does not run");
  CHECK(error({{action(verb::grow, 0, 0, 3)}}) ==
        "the scheduler grows job 0 at 0, but it does not run");
  CHECK(error({{action(verb::start, 1, 0, 1)}}) ==
        "the scheduler starts job 1 at 0, but it has not arrived");
  CHECK(error({{action(verb::start, 99'999, 0, 1)}}) ==
        "the scheduler starts job 99999 at 0, but it has not arrived");
  CHECK(error({{start}, {}, {start}}) == "the scheduler starts job 0 at 10, but it has ended");
  CHECK(error({{{verb::start, job_id(0), {}, {}}}}) ==
        "the scheduler starts job 0 at 0, but `where` is empty");
  CHECK(error({{action(verb::start, 0, 77, 1)}}) ==
        "the scheduler starts job 0 at 0, but there is no server 77");
  CHECK(error({{action(verb::start, 0, 1, 4)}}) ==
        "the scheduler starts job 0 at 0, but server 1 has no GPUs 4 (as bits)");
  CHECK(error({{action(verb::start, 0, 1, 0)}}) ==
        "the scheduler starts job 0 at 0, but server 1 has no GPUs 0 (as bits)");
  CHECK(error({{start}}, {job_id(1)}, {{node_id(0), 3, 4}}) ==
        "the scheduler stops job 1 at 3, but it does not run");
  CHECK(error({{start}}, {job_id(7)}, {{node_id(0), 3, 4}}) ==
        "the scheduler stops job 7 at 3, but it does not run");
  CHECK(error({{start}}, {job_id(0)}, {{node_id(0), 3, 4}}).empty());
  CHECK(error({{start}}, {}, {{node_id(0), 3, 4}}) ==
        "the scheduler does not stop job 0 at 3, but server 0 is broken");
  CHECK(error({{}, {start}}, {}, {{node_id(0), 3, 4}}) ==
        "the scheduler starts job 0 at 3, but server 0 is broken");
  CHECK(error({{}, {}, {start}}, {}, {{node_id(0), 3, 4}}).empty());  // it is repaired
  CHECK(error({{start}, {action(verb::migrate, 0, 1, 1)}}, {}, {{node_id(1), 3, 4}}) ==
        "the scheduler migrates job 0 at 3, but server 1 is broken");
  CHECK(error({{action(verb::start, 0, 0, 3)}}) ==
        "the scheduler starts job 0 at 0, but it asks for 1 GPUs, and `where` has 2");
  const job_action twice{verb::start, job_id(0), {{node_id(0), 1}, {node_id(0), 1}}, {}};
  CHECK(error({{twice}}) ==
        "the scheduler starts job 0 at 0, but it asks for 1 GPUs, and `where` has 2");
}

namespace {

// A scheduler whose actions at 0, 1, ... are given.
struct timed_script {
  std::vector<std::vector<job_action>> script{};
  std::uint32_t gpus = 4;
  time_ms last = -1;
  absl::Status submit(const job_request& /*r*/, time_ms /*t*/) { return absl::OkStatus(); }
  absl::Status finish(job_id /*j*/, time_ms /*t*/) { return absl::OkStatus(); }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id /*n*/, time_ms /*t*/) {
    return std::vector<job_id>{};
  }
  absl::Status mark_healthy(node_id /*n*/, time_ms /*t*/) { return absl::OkStatus(); }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    last = t;
    if (static_cast<std::size_t>(t) < script.size()) actions = script[static_cast<std::size_t>(t)];
    return absl::OkStatus();
  }
  [[nodiscard]] time_ms wake() const {
    return last + 1 < static_cast<time_ms>(script.size()) ? last + 1 : max_time;
  }
  [[nodiscard]] std::uint32_t total_gpus() const { return gpus; }
};

}  // namespace

TEST_CASE("simulate: two jobs have a GPU only if one of them came to share it") {
  using verb = job_action::verb;
  const auto action = [](verb what, std::uint32_t j, std::uint32_t server, std::uint32_t mask) {
    return job_action{what, job_id(j), {{node_id(server), mask}}, {}};
  };
  std::vector<timed_job> jobs{job(0, 1, 0, 10), job(1, 1, 0, 10), job(2, 1, 0, 10),
                              job(3, 1, 0, 10), job(4, 2, 0, 10)};
  jobs[4].request.max_gpus = 4;
  const auto error = [&](const std::vector<std::vector<job_action>>& script) {
    std::vector<std::string> messages;  // whether or not the simulator knows the servers
    for (const std::vector<std::uint32_t>& known :
         {std::vector{4U}, std::vector<std::uint32_t>{}}) {
      timed_script scheduler{script};
      const auto run = simulate(scheduler, jobs, {}, {.servers = known}, at_full_speed, unseen);
      CHECK((run.ok() || run.status().code() == absl::StatusCode::kInternal));
      messages.emplace_back(run.status().message());
    }
    CHECK(messages[0] == messages[1]);
    return messages[1];
  };
  const auto start = [&](std::uint32_t j, std::uint32_t mask) {
    return action(verb::start, j, 0, mask);
  };
  const job_action suspend{verb::suspend, job_id(0), {}, {}};
  CHECK(error({{start(0, 1), start(1, 2), start(2, 4), start(3, 8)}}).empty());
  CHECK(error({{start(0, 1), start(1, 1)}}) ==
        "the scheduler gives GPUs to job 1 at 0, but job 0 has GPUs 1 (as bits) of server 0");
  CHECK(error({{start(4, 6)}, {start(1, 4)}}) ==
        "the scheduler gives GPUs to job 1 at 1, but job 4 has GPUs 4 (as bits) of server 0");
  CHECK(
      error({{{verb::start, job_id(4), {{node_id(0), 3}, {node_id(0), 6}}, {}}}}) ==
      "the scheduler gives GPUs to job 4 at 0, but `where` has GPUs 2 (as bits) of server 0 twice");
  // What counts is the end of a decision.
  CHECK(error({{start(0, 1)}, {start(1, 1), suspend}}).empty());
  CHECK(error({{start(0, 1)}, {start(1, 1), action(verb::migrate, 0, 0, 2)}}).empty());
  // Jobs that are packed or migrate share GPUs; a third one that starts there does not.
  const job_action packed = action(verb::pack, 1, 0, 1);
  CHECK(error({{start(0, 1), packed}}).empty());
  CHECK(error({{packed, start(0, 1)}}).empty());
  CHECK(error({{start(0, 1), start(1, 2)}, {action(verb::migrate, 1, 0, 1)}}).empty());
  CHECK(error({{start(0, 1), packed}, {start(2, 1)}}) ==
        "the scheduler gives GPUs to job 2 at 1, but job 0 has GPUs 1 (as bits) of server 0");
  // When the other one leaves, a job that was packed has its GPU alone, and so has one that was
  // packed onto an idle GPU.
  CHECK(error({{start(0, 1), packed}, {suspend}, {start(2, 1)}}) ==
        "the scheduler gives GPUs to job 2 at 2, but job 1 has GPUs 1 (as bits) of server 0");
  CHECK(error({{start(0, 1), packed}, {suspend, start(2, 1)}}) ==
        "the scheduler gives GPUs to job 2 at 1, but job 1 has GPUs 1 (as bits) of server 0");
  CHECK(error({{packed}, {start(2, 1)}}) ==
        "the scheduler gives GPUs to job 2 at 1, but job 1 has GPUs 1 (as bits) of server 0");
  // So it is if the other one leaves last.
  const std::string second =
      "the scheduler gives GPUs to job 2 at 1, but job 1 has GPUs 1 (as bits) of server 0";
  const job_action away = action(verb::migrate, 0, 0, 2);
  CHECK(error({{start(0, 1), packed}, {start(2, 1), suspend}}) == second);
  CHECK(error({{start(0, 1), packed}, {away, start(2, 1)}}) == second);
  CHECK(error({{start(0, 1), packed}, {start(2, 1), away}}) == second);
  const job_action next = action(verb::pack, 2, 0, 1);  // job 1 has the GPU, and job 2 shares it
  CHECK(error({{start(0, 1), packed}, {suspend, next}, {start(3, 1)}}) ==
        "the scheduler gives GPUs to job 3 at 2, but job 1 has GPUs 1 (as bits) of server 0");
  CHECK(error({{start(0, 1), packed}, {next, suspend}, {start(3, 1)}}) ==
        "the scheduler gives GPUs to job 3 at 2, but job 1 has GPUs 1 (as bits) of server 0");
  // A job that shares GPUs grows and shrinks beside the other one, whichever of them came to share.
  const job_action grow = action(verb::grow, 4, 0, 7);
  const job_action shrink = action(verb::shrink, 4, 0, 3);
  const job_action beside = action(verb::pack, 4, 0, 3);
  CHECK(error({{start(4, 3), packed}, {grow}, {shrink}, {grow}}).empty());
  CHECK(error({{start(0, 1), beside}, {grow}, {shrink}, {grow}}).empty());
  CHECK(error({{start(0, 1), beside, grow}}).empty());
  // It does not share the GPUs that it gets.
  const std::string third =
      "the scheduler gives GPUs to job 4 at 1, but job 2 has GPUs 4 (as bits) of server 0";
  CHECK(error({{start(4, 3), packed, start(2, 4)}, {grow}}) == third);
  CHECK(error({{start(0, 1), beside, start(2, 4)}, {grow}}) == third);
  CHECK(error({{start(0, 1), beside}, {grow}, {start(2, 4)}}) ==
        "the scheduler gives GPUs to job 2 at 2, but job 4 has GPUs 4 (as bits) of server 0");
  // The one that it leaves has its GPU alone.
  const job_action off = action(verb::shrink, 4, 0, 6);
  CHECK(error({{start(4, 3), packed}, {off, start(2, 1)}}) == second);
  CHECK(error({{start(4, 3), packed}, {start(2, 1), off}}) == second);
  // A job has the GPUs that it asks for.
  CHECK(error({{start(4, 1)}}) ==
        "the scheduler starts job 4 at 0, but it asks for 2 to 4 GPUs, and `where` has 1");
  CHECK(error({{start(4, 3)}, {action(verb::grow, 4, 0, 15)}, {action(verb::shrink, 4, 0, 7)}})
            .empty());
  CHECK(error({{start(4, 15)}, {action(verb::shrink, 4, 0, 8)}}) ==
        "the scheduler shrinks job 4 at 1, but it asks for 2 to 4 GPUs, and `where` has 1");
  CHECK(error({{start(0, 1)}, {action(verb::migrate, 0, 0, 3)}}) ==
        "the scheduler migrates job 0 at 1, but it asks for 1 GPUs, and `where` has 2");
  timed_script wide{{{start(0, 1), action(verb::start, 1, 9, 1)}}, 1};
  CHECK(simulate(wide, jobs).status() ==
        absl::InternalError("the scheduler uses 2 GPUs at 0, but it has 1"));
}

TEST_CASE("simulate: costs and intervals without limit, and negative ones") {
  const std::vector<timed_job> jobs{job(0, 4, 5, 100), job(1, 4, 6, 100)};
  const std::vector<outage> outages{{node_id(0), 70, 90}};
  const auto run = [&](const simulation_options& options) {
    batch_queue queue(servers({4, 4}));
    return simulate(queue, jobs, outages, options, at_full_speed, unseen);
  };
  CHECK(run({.checkpoint_interval = -1}).status() ==
        absl::InvalidArgumentError(
            "a job saves its progress every -1 ms; the interval must be at least 0"));
  for (const time_ms never : {max_time, max_time / 1000 + 1, max_time / 1000}) {
    CAPTURE(never);
    const auto loses = run({.checkpoint_interval = never});
    REQUIRE(loses.ok());
    CHECK(loses->jobs[0].lost == 65);  // as with an interval of 0
    CHECK(loses->jobs[0].ended == 190);
    const auto stuck = run({.start_cost = never});
    REQUIRE(stuck.ok());
    CHECK(stuck->jobs[0].lost == 0);
    CHECK(stuck->jobs[1].started == 6);
    CHECK((stuck->jobs[1].ended == max_time || stuck->jobs[1].ended == 6 + never + 100));
    CHECK((stuck->jobs[1].ended == max_time) == (never == max_time));
  }
  for (const time_ms cost : {max_time, max_time - 1, time_ms{7}}) {
    timed_script moves{{{{job_action::verb::start, job_id(0), {{node_id(0), 1}}, {}}},
                        {{job_action::verb::migrate, job_id(0), {{node_id(0), 2}}, {}}}}};
    const std::vector<timed_job> one{job(0, 1, 0, 10)};
    const auto moved = simulate(moves, one, {}, {.migration_cost = cost}, at_full_speed, unseen);
    REQUIRE(moved.ok());
    CHECK(moved->jobs[0].migrated == 1);
    CHECK(moved->jobs[0].ended == (cost == 7 ? 17 : max_time));
  }
  const std::vector<timed_job> long_one{job(0, 1, 0, time_ms{1} << 53)};
  batch_queue queue(servers({4}));
  CHECK(simulate(queue, long_one).status() ==
        absl::InvalidArgumentError(
            "job 0: numbered 0, arrival 0, duration 9007199254740992; ids must follow the order of "
            "arrival, from 0, and durations must be 0 to 2^53 - 1"));
}

// The digests change when the events of a scheduler do: then that is what a change did, and they are
// set anew on purpose. They are the same for every compiler.
namespace {

// The digest of 2,000 jobs and 20 outages under a queue.
template <class Queue>
std::uint64_t golden_log(Queue queue) {
  const job_list list = generate_jobs({.seed = 7,
                                       .jobs = 2000,
                                       .tenants = 3,
                                       .window = 100'000,
                                       .shortest = 500,
                                       .longest = 5000,
                                       .sizes = {{1, 60}, {2, 20}, {4, 15}, {12, 5}}})
                            .value();
  std::vector<outage> outages;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const time_ms from = time_ms{i} * 4000;
    outages.push_back({node_id(i % 8), from, from + 3500});
  }
  const auto run = simulate(queue, list.jobs, outages, {.start_cost = 3}, at_full_speed, unseen);
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  return run->log.value();
}

}  // namespace

TEST_CASE("simulate: the same seed gives the same events everywhere") {
  const server_placer placer = servers(std::vector<std::uint32_t>(8, 4));
  CHECK(golden_log(batch_queue(placer, {.rule = batch_options::rules::fifo})) ==
        6697537732906514376U);
  CHECK(golden_log(batch_queue(placer, {.rule = batch_options::rules::backfill})) ==
        5470474834603502331U);
  CHECK(golden_log(batch_queue(placer, {.rule = batch_options::rules::easy})) ==
        2154292414674327952U);
  CHECK(golden_log(preemptive_queue(placer, {.rule = preemptive_options::rules::least_attained,
                                             .quantum = 600})) == 6281508443615470931U);
  CHECK(golden_log(
            preemptive_queue(placer, {.rule = preemptive_options::rules::shortest_remaining})) ==
        12083577162304289574U);
}

TEST_CASE("simulate: the same seed gives the same events everywhere, conservative backfilling") {
  if (apiary_test::is_quick()) return apiary_test::skip("takes minutes without optimisation");
  const server_placer placer = servers(std::vector<std::uint32_t>(8, 4));
  CHECK(golden_log(conservative_queue(placer)) == 1439293903423817653U);
}

namespace {

// Gandiva as a host has it that measures: what a job needs follows from its number.
struct measured : apiary_test::forwarding_scheduler<gandiva> {
  std::vector<job_id> jobs{};
  std::array<std::uint32_t, 7> counts{};  // of actions by kind

  absl::Status submit(const job_request& r, time_ms t) {
    jobs.push_back(r.job);
    return scheduler.submit(r, t);
  }
  absl::Status finish(job_id j, time_ms t) {
    std::erase(jobs, j);
    return scheduler.finish(j, t);
  }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    for (const job_id j : jobs) {
      const gandiva::standing s = *scheduler.find(j);
      if (s.phase != gandiva::phase::run) continue;
      const std::uint32_t busy = 100 + j.value * 37 % 900;
      const std::uint32_t both = busy + (s.beside.valid() ? 100 + s.beside.value * 37 % 900 : 0);
      const std::uint64_t rate = 800'000 / std::max(1000U, both);
      APIARY_RETURN_IF_ERROR(
          scheduler.report(j, {busy, 10 + j.value * 53 % 60, s.beside.valid() ? rate : 1000}, t));
    }
    absl::Status status = scheduler.decide(t, actions);
    for (const job_action& a : actions) ++counts[static_cast<std::size_t>(a.what)];
    return status;
  }
};

// Two racks of four nodes of four GPUs; three tenants own a half, a quarter and an eighth.
hived_config three_tenants() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  for (std::uint32_t n = 0; n < 8; ++n) {
    if (n % 4 == 0) config.physical_cells.push_back({.type = "RACK"});
    config.physical_cells.back().children.push_back({.address = "n" + std::to_string(n)});
  }
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK.NODE", 4}}},
                             {.name = "b", .cells = {{"RACK.NODE", 2}}},
                             {.name = "c", .cells = {{"RACK.NODE", 1}}}};
  return config;
}

}  // namespace

TEST_CASE(
    "simulate: the same for Gandiva with everything on and for HiveD's queue, servers breaking") {
  job_list list = generate_jobs({.seed = 11,
                                 .jobs = 1500,
                                 .tenants = 3,
                                 .window = 100'000,
                                 .shortest = 500,
                                 .longest = 5000,
                                 .sizes = {{1, 60}, {2, 20}, {4, 15}, {12, 5}}})
                      .value();
  for (timed_job& j : list.jobs) {
    j.request.max_gpus = j.request.gpus + j.request.job.value % 3;
    j.request.priority = j.request.job.value % 5 == 0 ? 1 : 0;
    j.request.weight = 1 + j.request.job.value % 2;
  }
  std::vector<outage> outages;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const time_ms from = time_ms{i} * 4000;
    outages.push_back({node_id(i % 8), from, from + 3500});
  }
  const auto hash = [&](auto& scheduler, const std::vector<outage>& broken) {
    const auto run = simulate(scheduler, list.jobs, broken,
                              {.start_cost = 3, .checkpoint_interval = 100, .migration_cost = 6},
                              at_full_speed, unseen);
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    return run->log.value();
  };
  const auto all_on = [] {
    return measured{{gandiva::create({.servers = {.gpus = std::vector<std::uint32_t>(8, 4)},
                                      .quantum = 600,
                                      .packs = true,
                                      .gpu_memory = 100,
                                      .migrates = true,
                                      .migration_cost = 6,
                                      .grows = true,
                                      .idle_period = 300})
                         .value()}};
  };
  measured whole = all_on();
  CHECK(hash(whole, {}) == 5672162868530682252U);
  measured breaking = all_on();
  CHECK(hash(breaking, outages) == 11178375280124928701U);
  for (std::size_t what = 0; what < 7; ++what) {
    CAPTURE(what);
    CHECK(whole.counts[what] > 0);
    CHECK(breaking.counts[what] > 0);
  }
  gandiva sliced =
      gandiva::create({.servers = {.gpus = std::vector<std::uint32_t>(8, 4)}, .quantum = 600})
          .value();
  CHECK(hash(sliced, outages) == 4711288585049458448U);
  hived_queue lending = hived_queue::create(three_tenants()).value();
  CHECK(hash(lending, outages) == 7279615460365585289U);
}

TEST_CASE("job_metrics: percentiles by nearest rank, sums by cause") {
  std::vector<time_ms> values;
  for (time_ms v = 1; v <= 200; ++v) values.push_back(v);
  CHECK(job_metrics::time_summary::percentile(values, 0) == 1);
  CHECK(job_metrics::time_summary::percentile(values, 50) == 100);
  CHECK(job_metrics::time_summary::percentile(values, 99) == 198);
  CHECK(job_metrics::time_summary::percentile(values, 100) == 200);
  CHECK(job_metrics::time_summary::of(values).mean == 100.5);
  CHECK(job_metrics::time_summary::of({}).max == 0);
  const std::vector<timed_job> jobs{job(0, 4, 10, 10), job(1, 4, 10, 10), job(2, 1, 10, 5)};
  batch_queue queue(servers({4}), {.rule = batch_options::rules::fifo});
  const simulation_result run = simulate(queue, jobs).value();
  const job_metrics all = metrics_of(run, jobs);
  CHECK(all.ended == 3);
  CHECK(all.makespan == 25);
  CHECK(all.completion.mean == doctest::Approx((10 + 20 + 25) / 3.0));
  CHECK(all.delay.max == 20);
  CHECK(all.by_cause[delay_cause::capacity] == 30);
  CHECK(all.utilization == doctest::Approx((40 + 40 + 5) / 100.0));
  const job_metrics large = metrics_of(run, jobs, 2);
  CHECK(large.ended == 2);
  CHECK(large.by_cause.total() == 10);
}

TEST_CASE("job_generator: what was asked for, and the same for the same seed") {
  const job_generator spec{.seed = 3,
                           .jobs = 4000,
                           .tenants = 4,
                           .window = 1000,
                           .shortest = 100,
                           .longest = 300,
                           .sizes = {{1, 3}, {4, 1}}};
  const job_list list = generate_jobs(spec).value();
  REQUIRE(list.jobs.size() == 4000);
  std::uint32_t ones = 0;
  double arrivals = 0;
  for (std::size_t i = 0; i < list.jobs.size(); ++i) {
    const timed_job& j = list.jobs[i];
    CHECK(j.request.job.value == i);
    CHECK((i == 0 || list.jobs[i - 1].arrival <= j.arrival));
    const time_ms lowest = j.request.gpus == 1 ? 100 : 25;
    CHECK((j.duration >= lowest && j.duration <= 3 * lowest));
    CHECK(j.request.tenant.value < 4);
    ones += j.request.gpus == 1 ? 1 : 0;
    arrivals += static_cast<double>(j.arrival);
  }
  CHECK(std::abs(ones / 4000.0 - 0.75) < 0.03);
  CHECK(std::abs(arrivals / 4000 - 499.5) < 25);
  const job_list again = generate_jobs(spec).value();
  for (std::size_t i = 0; i < list.jobs.size(); ++i) {
    REQUIRE(again.jobs[i].duration == list.jobs[i].duration);
    REQUIRE(again.jobs[i].arrival == list.jobs[i].arrival);
  }
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(generate_jobs({.sizes = {}}).status().code() == invalid);
  CHECK(generate_jobs({.sizes = {{0, 1}}}).status().code() == invalid);
  CHECK(generate_jobs({.sizes = {{1, 0}}}).status().code() == invalid);
  CHECK(generate_jobs({.window = 0}).status().code() == invalid);
  CHECK(generate_jobs({.shortest = 2}).status().code() == invalid);
  CHECK(generate_jobs({.tenants = 0}).status().code() == invalid);
}

TEST_CASE("job_metrics: migrations, resizes, lost work, and how scattered idle GPUs were") {
  const std::vector<timed_job> jobs{job(0, 3, 10, 10), job(1, 4, 10, 20), job(2, 1, 15, 10)};
  const std::vector<outage> outages{{node_id(1), 12, 20}};
  batch_queue queue(servers({4, 4, 4}));
  const auto run = simulate(queue, jobs, outages, {.servers = {4, 4, 4}}, at_full_speed, unseen);
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  const job_metrics m = metrics_of(*run, jobs);
  CHECK(m.breakdowns == 1);
  CHECK(m.lost == 2);
  CHECK(m.migrations == 0);
  CHECK(m.resizes == 0);
  CHECK(m.makespan == 22);
  // Idle, and of it not on a whole server: 10 to 12 and 12 to 15 one, and the third server's or not;
  // 15 to 20 nothing; 20 to 25 four and three; 25 to 32 four and four, whole.
  const double area = 2 * (1.0 / 5) + 3 * 1.0 + 5 * 0.0 + 5 * (3.0 / 7) + 7 * 0.0;
  CHECK(m.fragmentation == doctest::Approx(area / 22));
  CHECK(metrics_of(*run, jobs, 4).fragmentation == m.fragmentation);
  batch_queue again(servers({4, 4, 4}));
  CHECK(metrics_of(simulate(again, jobs).value(), jobs).fragmentation == 0);
  const auto message = [&](const std::vector<std::uint32_t>& gpus) {
    batch_queue fresh(servers({4, 4, 4}));
    return std::string(
        simulate(fresh, jobs, {}, {.servers = gpus}, at_full_speed, unseen).status().message());
  };
  CHECK(message({4, 4}) == "the servers have 8 GPUs; the scheduler has 12");
  CHECK(message({4, 33}) == "server 1 has 33 GPUs; the limit is 32");
}
