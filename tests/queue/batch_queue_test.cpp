// apiary/tests/queue/batch_queue_test.cpp - batch queues against a line of time, tick by tick.
// SPDX-License-Identifier: MIT
#include "support/forwarding_scheduler.h"
#include "support/naive_batch.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// Servers of one GPU each: any GPUs will do.
server_placer gpus_of_any_kind(std::uint32_t n) {
  return server_placer::create({.gpus = std::vector<std::uint32_t>(n, 1)}).value();
}

std::vector<timed_job> random_jobs(rng& random, std::uint32_t gpus, bool exact) {
  std::vector<timed_job> jobs(1 + random.uniform(14));
  const std::uint32_t spread = 1 + random.uniform(20);
  for (timed_job& j : jobs) {
    j.request.gpus = 1 + random.uniform(gpus);
    j.arrival = random.uniform(spread);
    j.duration = 1 + random.uniform(8);
    j.request.estimate = exact ? j.duration : j.duration + random.uniform(6);
  }
  job_list::number_by_arrival(jobs);
  return jobs;
}

template <class Scheduler>
std::vector<time_ms> starts(Scheduler& scheduler, const std::vector<timed_job>& jobs) {
  const absl::StatusOr<simulation_result> run = simulate(scheduler, jobs);
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  std::vector<time_ms> at;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const simulation_result::job_record& r = run->jobs[j];
    REQUIRE(r.ended == r.started + jobs[j].duration);
    REQUIRE(r.waited.total() == r.started - jobs[j].arrival);  // no delay without its cause
    at.push_back(r.started);
  }
  return at;
}

job_request wants(std::uint32_t job, std::uint32_t gpus, time_ms estimate,
                  std::int32_t priority = 0) {
  return {.job = job_id(job), .priority = priority, .gpus = gpus, .estimate = estimate};
}

std::vector<job_id> started(const std::vector<job_action>& actions) {
  std::vector<job_id> jobs;
  for (const job_action& a : actions) jobs.push_back(a.job);
  return jobs;
}

}  // namespace

TEST_CASE("batch_queue: fifo waits, backfill passes, easy passes unless it delays") {
  const auto after_three = [](batch_options::rules rule) {
    batch_queue queue(gpus_of_any_kind(4), {.rule = rule});
    std::vector<job_action> actions;
    CHECK(queue.submit(wants(0, 3, 10), 0).ok());
    CHECK(queue.submit(wants(1, 4, 10), 0).ok());
    CHECK(queue.submit(wants(2, 1, 11), 0).ok());
    CHECK(queue.submit(wants(3, 1, 10), 0).ok());
    CHECK(queue.decide(0, actions).ok());
    return started(actions);
  };
  CHECK(after_three(batch_options::rules::fifo) == std::vector{job_id(0)});
  CHECK(after_three(batch_options::rules::backfill) == std::vector{job_id(0), job_id(2)});
  CHECK(after_three(batch_options::rules::easy) == std::vector{job_id(0), job_id(3)});
}

TEST_CASE("batch_queue: a job that waits long enough is first, whatever the priorities") {
  batch_queue queue(gpus_of_any_kind(1), {.rule = batch_options::rules::fifo, .aging = 10});
  std::vector<job_action> actions;
  CHECK(queue.submit(wants(0, 1, max_time), 0).ok());
  CHECK(queue.decide(0, actions).ok());
  CHECK(queue.submit(wants(1, 1, max_time, 0), 1).ok());
  CHECK(queue.submit(wants(2, 1, max_time, 2), 20).ok());  // as if it had come at 0
  CHECK(queue.submit(wants(3, 1, max_time, 2), 22).ok());  // as if at 2
  for (std::uint32_t job = 0; job < 3; ++job) {
    CHECK(queue.finish(job == 0 ? job_id(0) : actions.back().job, 30).ok());
    CHECK(queue.decide(30, actions).ok());
  }
  CHECK(started(actions) == std::vector{job_id(0), job_id(2), job_id(1), job_id(3)});
}

TEST_CASE("batch_queue: by GPU-time the job with the least is first") {
  batch_queue queue(gpus_of_any_kind(4),
                    {.rule = batch_options::rules::fifo, .order = batch_options::orders::gpu_time});
  std::vector<job_action> actions;
  CHECK(queue.submit(wants(0, 4, max_time), 0).ok());
  CHECK(queue.decide(0, actions).ok());
  CHECK(queue.submit(wants(1, 4, 10), 1).ok());
  CHECK(queue.submit(wants(2, 1, 41), 1).ok());
  CHECK(queue.submit(wants(3, 2, 20), 2).ok());
  CHECK(queue.submit(wants(4, 3, 1), 3).ok());
  for (const std::uint32_t job : {0U, 4U, 1U}) {
    CHECK(queue.finish(job_id(job), 10).ok());
    CHECK(queue.decide(10, actions).ok());
  }
  CHECK(started(actions) == std::vector{job_id(0), job_id(4), job_id(1), job_id(3), job_id(2)});
}

TEST_CASE("batch_queue: why each job waited") {
  // Two servers of two GPUs.
  batch_queue queue(server_placer::create({.gpus = {2, 2}}).value(),
                    {.rule = batch_options::rules::easy});
  std::vector<job_action> actions;
  for (std::uint32_t job = 0; job < 4; ++job) CHECK(queue.submit(wants(job, 1, 100), 0).ok());
  CHECK(queue.decide(0, actions).ok());
  CHECK(queue.submit(wants(4, 2, 100), 5).ok());  // nothing is idle
  CHECK(queue.decide(5, actions).ok());
  CHECK(queue.finish(job_id(0), 10).ok());
  CHECK(queue.decide(10, actions).ok());
  CHECK(queue.finish(job_id(2), 17).ok());  // two are idle, on two servers
  CHECK(queue.decide(17, actions).ok());
  CHECK(queue.finish(job_id(1), 30).ok());
  CHECK(queue.decide(30, actions).ok());
  REQUIRE(actions.size() == 5);
  CHECK(actions[4].job == job_id(4));
  CHECK(actions[4].where == job_placement{{node_id(0), 3}});
  CHECK(actions[4].waited[delay_cause::capacity] == 12);
  CHECK(actions[4].waited[delay_cause::fragmentation] == 13);
  CHECK(actions[4].waited.total() == 25);
}

TEST_CASE("batch_queue: wrong requests of the host, and jobs cancelled while they wait") {
  batch_queue queue(gpus_of_any_kind(2));
  std::vector<job_action> actions;
  CHECK(queue.submit(wants(0, 3, 1), 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit(wants(0, 0, 1), 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit(wants(0, 1, -1), 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit({}, 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.finish(job_id(0), 0).code() == absl::StatusCode::kNotFound);
  CHECK(queue.mark_bad(node_id(2), 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(queue.submit(wants(0, 1, 1), 0).ok());
  CHECK(queue.submit(wants(0, 1, 1), 0).code() == absl::StatusCode::kAlreadyExists);
  CHECK(queue.finish(job_id(0), 1).ok());  // before it started
  CHECK(queue.decide(1, actions).ok());
  CHECK(actions.empty());
  CHECK(queue.num_waiting() == 0);
}

TEST_CASE("batch_queue: every start is that of the naive queue, and delays no reservation") {
  const std::uint64_t seeds = apiary_test::scaled(1500U);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 1 + random.uniform(8);
    const std::vector<timed_job> jobs = random_jobs(random, gpus, seed % 2 == 0);
    const std::map<batch_options::rules, apiary_test::naive_rule> rules{
        {batch_options::rules::fifo, apiary_test::naive_rule::fifo},
        {batch_options::rules::backfill, apiary_test::naive_rule::backfill},
        {batch_options::rules::easy, apiary_test::naive_rule::easy}};
    for (const auto& [rule, naive] : rules) {
      const auto number = static_cast<int>(naive);
      CAPTURE(number);
      batch_queue queue(gpus_of_any_kind(gpus), {.rule = rule});
      REQUIRE(starts(queue, jobs) == apiary_test::naive_starts(naive, gpus, jobs));
    }
    conservative_queue queue(gpus_of_any_kind(gpus));
    REQUIRE(starts(queue, jobs) ==
            apiary_test::naive_starts(apiary_test::naive_rule::conservative, gpus, jobs));
  }
}

namespace {

// A queue whose promises are written down: once the first one (easy) or any one (conservative) has
// been given a start, it must not be later.
template <class Queue>
struct reserved : apiary_test::forwarding_scheduler<Queue> {
  std::map<std::uint32_t, time_ms> by{};
  std::uint64_t kept = 0;

  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    Queue& queue = this->scheduler;
    absl::Status status = queue.decide(now, actions);
    for (const job_action& a : actions) {
      const auto reserve = by.find(a.job.value);
      if (reserve == by.end()) continue;
      CHECK(now <= reserve->second);
      ++kept;
    }
    const auto note = [&](job_id job, time_ms at) {
      const auto [known, is_new] = by.try_emplace(job.value, at);
      CHECK(at <= known->second);
      known->second = at;
    };
    if constexpr (requires { queue.reserved(); }) {
      if (queue.reserved()) note(queue.reserved()->job, queue.reserved()->at);
    } else {
      for (std::uint32_t job = 0; job < 40; ++job) {
        if (const auto at = queue.reserved(job_id(job))) note(job_id(job), *at);
      }
    }
    return status;
  }
};

}  // namespace

TEST_CASE("batch_queue: easy keeps the first job's reservation, conservative that of every job") {
  std::uint64_t kept = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(3000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 1 + random.uniform(12);
    const std::vector<timed_job> jobs = random_jobs(random, gpus, false);
    reserved<batch_queue<server_placer>> easy{
        {batch_queue(gpus_of_any_kind(gpus), {.rule = batch_options::rules::easy})}};
    REQUIRE(simulate(easy, jobs).ok());
    reserved<conservative_queue<server_placer>> all{{conservative_queue(gpus_of_any_kind(gpus))}};
    REQUIRE(simulate(all, jobs).ok());
    kept += easy.kept + all.kept;
  }
  CHECK(kept > 0);
}

TEST_CASE("batch_queue: easy reserves a number of GPUs, easy_gpus particular ones") {
  // Of two servers of two GPUs each has one idle, and the first will be whole first, at 10.
  const auto split = [](batch_options::rules rule) {
    batch_queue queue(server_placer::create({.gpus = {2, 2}}).value(), {.rule = rule});
    std::vector<job_action> actions;
    for (std::uint32_t job = 0; job < 4; ++job)
      CHECK(queue.submit(wants(job, 1, job == 0 ? 10 : 50), 0).ok());
    CHECK(queue.decide(0, actions).ok());
    CHECK(queue.finish(job_id(1), 1).ok());
    CHECK(queue.finish(job_id(3), 1).ok());
    CHECK(queue.submit(wants(4, 2, 5), 1).ok());
    CHECK(queue.submit(wants(5, 1, 100), 1).ok());
    CHECK(queue.submit(wants(6, 1, 9), 1).ok());
    actions.clear();
    CHECK(queue.decide(1, actions).ok());
    return std::pair(queue.reserved()->at, started(actions));
  };
  CHECK(split(batch_options::rules::easy) == std::pair(time_ms{1}, std::vector<job_id>{}));
  const std::vector around{job_id(6), job_id(5)};  // the last is then sent to the other server
  CHECK(split(batch_options::rules::easy_gpus) == std::pair(time_ms{10}, around));
}

namespace {

// Whether easy_gpus reserves the first time at which the first job fits, asked tick by tick.
struct earliest_places : apiary_test::forwarding_scheduler<batch_queue<server_placer>> {
  std::map<std::uint32_t, std::pair<job_request, time_ms>> ends{};  // of running jobs
  std::map<std::uint32_t, job_request> waiting{};

  absl::Status submit(const job_request& r, time_ms t) {
    waiting[r.job.value] = r;
    return scheduler.submit(r, t);
  }
  absl::Status finish(job_id j, time_ms t) {
    ends.erase(j.value);
    return scheduler.finish(j, t);
  }
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    absl::Status status = scheduler.decide(now, actions);
    for (const job_action& a : actions) {
      const job_request r = waiting.extract(a.job.value).mapped();
      ends[a.job.value] = {r, now + r.estimate};
    }
    if (!scheduler.reserved()) return status;
    const job_request& first = waiting.at(scheduler.reserved()->job.value);
    REQUIRE(first.job.value == waiting.begin()->first);
    for (time_ms at = now;; ++at) {
      server_placer then = scheduler.placer();
      for (const auto& [job, end] : ends) {
        if (end.second <= at) REQUIRE(then.finish(job_id(job)).ok());
      }
      if (!then.propose(first).value()) continue;
      REQUIRE(scheduler.reserved()->at == at);
      return status;
    }
  }
};

}  // namespace

TEST_CASE("batch_queue: easy_gpus reserves the earliest time at which the first job fits") {
  std::uint64_t kept = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(1500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const server_spec spec{.gpus = std::vector<std::uint32_t>(1 + random.uniform(4), 4),
                           .servers_per_rack = 2,
                           .anywhere = random.uniform(4) == 0};
    const auto total = static_cast<std::uint32_t>(spec.gpus.size() * 4);
    const std::vector<timed_job> jobs = random_jobs(random, total, seed % 2 == 0);
    const batch_queue queue(server_placer::create(spec).value(),
                            {.rule = batch_options::rules::easy_gpus});
    reserved<batch_queue<server_placer>> easy{{queue}};
    REQUIRE(simulate(easy, jobs).ok());
    kept += easy.kept;
    earliest_places earliest{{queue}};
    REQUIRE(simulate(earliest, jobs).ok());
  }
  CHECK(kept > 0);
}

namespace {

// GPUs of any kind; demand d needs d % spares GPUs that stay idle beside those that the job takes.
struct sparing_placer : server_placer {
  std::uint32_t spares = 1;
  std::uint64_t proposals = 0;

  sparing_placer(std::uint32_t gpus, std::uint32_t n)
      : server_placer(gpus_of_any_kind(gpus)), spares(n) {}
  [[nodiscard]] std::uint32_t needs(const job_request& r) const {
    return r.gpus + r.demand % spares;
  }
  [[nodiscard]] absl::Status check(const job_request& r) const {
    return server_placer::check({.job = r.job, .gpus = needs(r)});
  }
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    ++proposals;
    if (needs(r) > idle_gpus()) return std::optional<job_placement>();
    return server_placer::propose(r);
  }
};

// The rules of batch_queue by looking at each waiting job, by its id, and at each tick.
struct queue_by_jobs {
  batch_options::rules rule;
  sparing_placer placer;
  std::map<std::uint32_t, job_request> waiting{};
  std::map<std::uint32_t, time_ms> ends{};  // of running jobs, by the estimates

  // The placer when the jobs that end until then, by the estimates, have ended.
  [[nodiscard]] sparing_placer at(time_ms then) const {
    sparing_placer after = placer;
    for (const auto& [job, end] : ends)
      if (end <= then) REQUIRE(after.finish(job_id(job)).ok());
    return after;
  }
  void start(const job_request& r, const job_placement& where, time_ms now,
             std::vector<job_id>& started) {
    REQUIRE(placer.commit(r, where).ok());
    ends[r.job.value] = now + r.estimate;
    started.push_back(r.job);
    waiting.erase(r.job.value);
  }
  [[nodiscard]] std::vector<job_id> decide(time_ms now) {
    std::vector<job_id> started;
    while (!waiting.empty()) {
      const job_request r = waiting.begin()->second;
      const auto where = placer.propose(r).value();
      if (!where) break;
      start(r, *where, now, started);
    }
    if (waiting.empty() || rule == batch_options::rules::fifo) return started;
    const job_request first = waiting.begin()->second;
    time_ms from = now;  // of the reservation
    if (rule == batch_options::rules::easy)
      while (at(from).idle_gpus() < first.gpus) ++from;
    if (rule == batch_options::rules::easy_gpus)
      while (!at(from).propose(first).value()) ++from;
    sparing_placer then = at(from);
    std::uint32_t extra = then.idle_gpus() - first.gpus;
    if (rule == batch_options::rules::easy_gpus)
      REQUIRE(then.commit(first, *then.propose(first).value()).ok());
    for (bool again = true; again;) {
      again = false;
      for (const auto& [id, job] : std::map(waiting)) {
        const auto where = placer.propose(job).value();
        if (id == first.job.value || !where) continue;
        const bool ends_before = now + job.estimate <= from;
        if (!ends_before && rule == batch_options::rules::easy) {
          if (job.gpus > extra) continue;
          extra -= job.gpus;
        }
        if (!ends_before && rule == batch_options::rules::easy_gpus &&
            !then.commit(job, *where).ok())
          continue;
        start(job, *where, now, started);
        again = true;
        break;
      }
    }
    return started;
  }
};

}  // namespace

TEST_CASE("batch_queue: with demands, every start is that of a look at each waiting job") {
  std::uint64_t overtook = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    for (const batch_options::rules rule :
         {batch_options::rules::fifo, batch_options::rules::backfill, batch_options::rules::easy,
          batch_options::rules::easy_gpus}) {
      CAPTURE(seed);
      const auto number = static_cast<int>(rule);
      CAPTURE(number);
      rng random(seed);
      const sparing_placer placer(10, 1 + random.uniform(5));
      batch_queue queue(placer, {.rule = rule});
      queue_by_jobs naive{rule, placer};
      std::map<std::uint32_t, time_ms> ends;  // of running jobs
      std::map<std::uint32_t, time_ms> runs;
      std::uint32_t id = 0;
      for (time_ms now = 0; now < 40 || queue.num_running() + queue.num_waiting() > 0; ++now) {
        REQUIRE(now < 4000);
        for (auto i = ends.begin(); i != ends.end();) {
          if (i->second > now) {
            ++i;
            continue;
          }
          REQUIRE(queue.finish(job_id(i->first), now).ok());
          REQUIRE(naive.placer.finish(job_id(i->first)).ok());
          naive.ends.erase(i->first);
          i = ends.erase(i);
        }
        for (std::uint32_t more = now < 40 ? random.uniform(3) : 0; more > 0; --more, ++id) {
          job_request r = wants(id, 1 + random.uniform(6), 1 + random.uniform(12));
          r.demand = random.uniform(30);
          REQUIRE(queue.submit(r, now).ok());
          naive.waiting[id] = r;
          runs[id] = 1 + random.uniform(static_cast<std::uint32_t>(r.estimate));
        }
        std::vector<job_action> actions;
        REQUIRE(queue.decide(now, actions).ok());
        REQUIRE(started(actions) == naive.decide(now));
        for (const job_action& a : actions) {
          ends[a.job.value] = now + runs[a.job.value];
          if (!naive.waiting.empty() && naive.waiting.begin()->first < a.job.value) ++overtook;
        }
      }
    }
  }
  CHECK(overtook > 0);
}

TEST_CASE("batch_queue: of thousands of demands, each that does not start is proposed once") {
  const std::uint32_t kinds = 4000;
  // Of 8 GPUs one is idle. The first job waits for `gpus` idle ones; others fit, or do not.
  const auto proposals = [&](batch_options::rules rule, std::uint32_t gpus, bool fit) {
    batch_queue queue(sparing_placer(8, 2), {.rule = rule});
    std::vector<job_action> actions;
    CHECK(queue.submit(wants(0, 7, 10), 0).ok());
    CHECK(queue.submit(wants(1, gpus, 10), 0).ok());
    for (std::uint32_t job = 2; job < kinds + 2; ++job) {
      job_request r = wants(job, 1, 20);
      r.demand = 2 * job + (fit ? 0 : 1);
      CHECK(queue.submit(r, 0).ok());
    }
    CHECK(queue.submit(wants(kinds + 2, 1, 10), 0).ok());
    CHECK(queue.decide(0, actions).ok());
    CHECK(started(actions) == std::vector{job_id(0), job_id(kinds + 2)});
    return queue.placer().proposals;
  };
  CHECK(proposals(batch_options::rules::backfill, 2, false) == kinds + 2);
  CHECK(proposals(batch_options::rules::easy, 7, false) == kinds + 2);
  CHECK(proposals(batch_options::rules::easy_gpus, 8, false) == kinds + 2);
  CHECK(proposals(batch_options::rules::easy_gpus, 8, true) == kinds + 2);  // all but one delay it
}

namespace {

// A placer that counts its copies.
class counted_copies : public server_placer {
 public:
  counted_copies(server_placer placer, int& count)
      : server_placer(std::move(placer)), count_(&count) {}
  counted_copies(const counted_copies& other) : server_placer(other), count_(other.count_) {
    ++*count_;
  }
  counted_copies(counted_copies&&) = default;
  counted_copies& operator=(const counted_copies&) = delete;
  counted_copies& operator=(counted_copies&&) = delete;
  ~counted_copies() = default;

 private:
  int* count_;
};

// The copies of the placer at an outage, and then if the same server is marked bad, and healthy, again
// and again.
template <class Make>
std::pair<int, int> copies_at_outages(Make&& make) {
  int copies = 0;
  auto queue = make(counted_copies(server_placer::create({.gpus = {4, 4}}).value(), copies));
  std::vector<job_action> actions;
  time_ms now = 0;
  // Returns the copies that a decision now makes.
  const auto decide = [&] {
    const int before = copies;
    REQUIRE(queue.decide(now++, actions).ok());
    return copies - before;
  };
  for (const std::uint32_t gpus : {4U, 4U, 8U, 3U, 2U})
    REQUIRE(
        queue
            .submit(wants(gpus + static_cast<std::uint32_t>(queue.num_waiting()) * 10, gpus, 100),
                    0)
            .ok());
  decide();
  REQUIRE(queue.num_running() == 2);
  REQUIRE(queue.mark_bad(node_id(1), now).value().size() == 1);
  const int first = decide();
  int again = 0;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(queue.mark_bad(node_id(1), now).value().empty());
    again += decide();
  }
  REQUIRE(queue.mark_healthy(node_id(1), now).ok());
  decide();
  for (const std::uint32_t server : {1U, 0U, 1U}) {
    REQUIRE(queue.mark_healthy(node_id(server), now).ok());
    again += decide();
  }
  return {first, again};
}

}  // namespace

TEST_CASE(
    "batch queues: a server that is marked bad or healthy again costs no copy of the placer") {
  CHECK(copies_at_outages([](counted_copies placer) {
          return batch_queue(std::move(placer), {.rule = batch_options::rules::easy_gpus});
        }) == std::pair(1, 0));
  CHECK(copies_at_outages([](counted_copies placer) {
          return conservative_queue(std::move(placer));
        }) == std::pair(1, 0));
}

TEST_CASE("batch_queue: with broken servers and wrong estimates, every job ends") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const server_spec spec{.gpus = std::vector<std::uint32_t>(2 + random.uniform(4), 4),
                           .servers_per_rack = 2,
                           .anywhere = random.uniform(2) == 0};
    std::vector<timed_job> jobs = random_jobs(random, 8, false);
    for (timed_job& j : jobs) j.request.estimate = 1 + random.uniform(10);
    std::vector<outage> outages;
    for (time_ms at = 0; at < 40; at += 1 + random.uniform(15)) {
      outages.push_back({node_id(random.uniform(2)), at, at + 1});  // one tick: never twice at once
    }
    const auto slow = [](const timed_job&, const job_placement& where) -> std::uint32_t {
      return full_speed / static_cast<std::uint32_t>(where.size());
    };
    const auto all_ended = [&](auto&& queue) {
      std::uint64_t hash = 0;
      for (int again = 0; again < 2; ++again) {
        auto copy = queue;
        const auto run = simulate(copy, jobs, outages, {.start_cost = 1, .checkpoint_interval = 2},
                                  slow, [](const simulation_event&) {});
        REQUIRE_MESSAGE(run.ok(), run.status().ToString());
        for (std::size_t j = 0; j < jobs.size(); ++j) {
          const simulation_result::job_record& r = run->jobs[j];
          REQUIRE(r.ended != max_time);
          REQUIRE(r.ended - jobs[j].arrival >= r.waited.total() + jobs[j].duration + r.lost);
        }
        REQUIRE(copy.num_running() + copy.num_waiting() == 0);
        REQUIRE((again == 0 || hash == run->log.value()));
        hash = run->log.value();
      }
    };
    const server_placer placer = server_placer::create(spec).value();
    for (const batch_options::rules rule :
         {batch_options::rules::fifo, batch_options::rules::backfill, batch_options::rules::easy,
          batch_options::rules::easy_gpus})
      all_ended(batch_queue(placer, {.rule = rule}));
    all_ended(conservative_queue(placer));
  }
}

TEST_CASE("conservative_queue: a late start uses its GPUs until it ends, and releases them once") {
  conservative_queue queue(server_placer::create({.gpus = {4}}).value());
  std::vector<job_action> actions;
  const auto submit = [&](std::uint32_t job, time_ms estimate, time_ms now) {
    REQUIRE(queue.submit({.job = job_id(job), .gpus = 4, .estimate = estimate}, now).ok());
  };
  submit(0, 5, 0);
  submit(1, 10, 0);
  REQUIRE(queue.decide(0, actions).ok());
  CHECK(queue.reserved(job_id(1)) == 5);
  REQUIRE(queue.finish(job_id(0), 5).ok());
  REQUIRE(queue.decide(8, actions).ok());
  CHECK(actions.size() == 2);
  submit(2, 3, 8);
  submit(3, 7, 8);
  REQUIRE(queue.decide(8, actions).ok());
  CHECK(queue.reserved(job_id(2)) == 18);
  CHECK(queue.reserved(job_id(3)) == 21);
  REQUIRE(queue.finish(job_id(1), 12).ok());
  REQUIRE(queue.decide(12, actions).ok());
  CHECK(!queue.reserved(job_id(2)));
  CHECK(queue.reserved(job_id(3)) == 15);
}

TEST_CASE("conservative_queue: a late start delays no job that arrived before") {
  conservative_queue queue(
      server_placer::create({.gpus = std::vector<std::uint32_t>(4, 1)}).value());
  std::vector<job_action> actions;
  const auto submit = [&](std::uint32_t job, std::uint32_t gpus, time_ms estimate) {
    REQUIRE(queue.submit({.job = job_id(job), .gpus = gpus, .estimate = estimate}, 0).ok());
  };
  submit(0, 2, 15);
  submit(1, 2, 5);
  submit(2, 4, 10);
  submit(3, 2, 10);  // fits in front of job 2, just
  REQUIRE(queue.decide(0, actions).ok());
  CHECK(queue.reserved(job_id(2)) == 15);
  CHECK(queue.reserved(job_id(3)) == 5);
  REQUIRE(queue.finish(job_id(1), 5).ok());
  REQUIRE(queue.decide(6, actions).ok());
  CHECK(queue.reserved(job_id(2)) == 15);
  CHECK(queue.reserved(job_id(3)) == 25);
}

// What is promised and what runs, by the estimates, must fit at every moment, however late the host.
TEST_CASE("conservative_queue: late hosts: never more GPUs reserved than there are") {
  std::uint64_t waited = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 1 + random.uniform(6);
    conservative_queue queue(
        server_placer::create({.gpus = std::vector<std::uint32_t>(gpus, 1)}).value());
    struct known {
      std::uint32_t gpus = 0;
      time_ms estimate = 0;
      time_ms runs = 0;  // that it really does
      time_ms started = -1;
    };
    std::map<std::uint32_t, known> jobs;
    time_ms now = 0;
    for (std::uint32_t next = 0; next < 40 || !jobs.empty(); ++next) {
      REQUIRE(next < 4000);
      if (next < 40) {
        const time_ms estimate = 1 + random.uniform(12);
        jobs[next] = {1 + random.uniform(gpus), estimate,
                      1 + random.uniform(static_cast<std::uint32_t>(estimate))};
        REQUIRE(
            queue.submit({.job = job_id(next), .gpus = jobs[next].gpus, .estimate = estimate}, now)
                .ok());
      }
      std::vector<job_action> actions;
      REQUIRE(queue.decide(now, actions).ok());
      for (const job_action& a : actions) jobs[a.job.value].started = now;
      REQUIRE(queue.wake() > now);
      std::map<time_ms, std::int64_t> steps;
      for (const auto& [job, j] : jobs) {
        const auto reserved = queue.reserved(job_id(job));
        REQUIRE(reserved.has_value() == (j.started < 0));
        const time_ms from = reserved.value_or(j.started);
        REQUIRE((!reserved || from > now));
        waited += reserved ? 1U : 0U;
        if (from == max_time) continue;
        steps[from] += j.gpus;
        steps[from + j.estimate] -= j.gpus;
      }
      std::int64_t used = 0;
      for (const auto& [at, more] : steps) REQUIRE((used += more) <= gpus);
      time_ms last = std::min(queue.wake(), now + 5);
      for (const auto& [job, j] : jobs)
        if (j.started >= 0) last = std::min(last, j.started + j.runs);
      now = std::max(now + 1, last + random.uniform(3));
      for (auto at = jobs.begin(); at != jobs.end();) {
        const known& j = at->second;
        const bool ends = j.started >= 0 && j.started + j.runs <= now;
        if (ends) REQUIRE(queue.finish(job_id(at->first), now).ok());
        at = ends ? jobs.erase(at) : std::next(at);
      }
    }
  }
  CHECK(waited > 0);
}
