// apiary/tests/gandiva/starvation_test.cpp - no job waits longer than the bound that its scheduler states.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/hived/config.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace starvation_tests {
namespace {

using namespace apiary;

constexpr time_ms quantum = 60;
constexpr std::uint32_t max_wait = 4;
constexpr std::int32_t opportunistic = -1;  // the priority of all jobs, for HiveD
using sliced_servers = gandiva_with_placer<server_placer>;

gandiva servers_of(const std::vector<std::uint32_t>& gpus, std::uint32_t wait, bool all_on) {
  return gandiva::create({.servers = {.gpus = gpus},
                          .quantum = quantum,
                          .max_wait = wait,
                          .migrates = all_on,
                          .migration_cost = 2,
                          .grows = all_on,
                          .idle_period = 30})
      .value();
}
sliced_servers placer_of(const std::vector<std::uint32_t>& gpus, std::uint32_t wait) {
  const server_spec spec{.gpus = gpus};
  const fragmentation metric(task_mix({{{.gpus = 1, .gpu_milli = whole_gpu}, 1}}));
  return sliced_servers::create({server_placer::create(spec).value(), spec, metric},
                                {.quantum = quantum, .migrations = {.jobs = 1}, .max_wait = wait})
      .value();
}
// The nodes have equally many GPUs. Its jobs are opportunistic.
gandiva_hived cells_of(const std::vector<std::uint32_t>& gpus, std::uint32_t wait) {
  const auto nodes = static_cast<std::uint32_t>(gpus.size());
  hived_config config;
  config.cell_types = {{"NODE", "GPU", gpus[0], true}, {"RACK", "NODE", nodes}};
  config.physical_cells = {{.type = "RACK"}};
  for (std::uint32_t n = 0; n < nodes; ++n)
    config.physical_cells[0].children.push_back({.address = "n" + std::to_string(n)});
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}}}};
  return gandiva_hived::create(hived_job_backend::create(config).value(),
                               {.quantum = quantum, .migrations = {.jobs = 1}, .max_wait = wait})
      .value();
}

struct any_scheduler {
  any_scheduler() = default;
  any_scheduler(const any_scheduler&) = delete;
  any_scheduler& operator=(const any_scheduler&) = delete;
  virtual ~any_scheduler() = default;
  virtual void submit(const job_request& r, time_ms now) = 0;
  virtual void finish(job_id job, time_ms now) = 0;
  virtual std::vector<job_action> decide(time_ms now) = 0;
  [[nodiscard]] virtual time_ms wake() const = 0;
};
template <class Scheduler>
struct scheduler_of final : any_scheduler {
  explicit scheduler_of(Scheduler s) : inner(std::move(s)) {}
  Scheduler inner;
  void submit(const job_request& r, time_ms now) override {
    const absl::Status status = inner.submit(r, now);
    REQUIRE_MESSAGE(status.ok(), status.ToString());
  }
  void finish(job_id job, time_ms now) override { REQUIRE(inner.finish(job, now).ok()); }
  std::vector<job_action> decide(time_ms now) override {
    std::vector<job_action> actions;
    REQUIRE(inner.decide(now, actions).ok());
    return actions;
  }
  [[nodiscard]] time_ms wake() const override { return inner.wake(); }
};

// Sends jobs so that others wait, and measures how long these wait.
class adversary {
 public:
  enum class attack : std::uint8_t {
    each_quantum,  // at each quantum as many jobs of one GPU as there are GPUs; each runs a quantum
    replaces,      // when a job ends, another of its size arrives
    at_random,
  };
  // pins: the scheduler is `gandiva`, which does not suspend jobs that run on several servers; otherwise
  // it is a time_sharing. Each has a bound of its own.
  adversary(std::unique_ptr<any_scheduler> s, bool pins, const std::vector<std::uint32_t>& gpus,
            std::uint64_t seed)
      : scheduler_(std::move(s)),
        pins_(pins),
        random_(seed),
        attack_(static_cast<attack>(random_.uniform(3))) {
    for (const std::uint32_t g : gpus) {
      total_ += g;
      largest_ = std::max(largest_, g);
    }
    descends_ = random_.uniform(2) == 0;
    wide_ = random_.uniform(2) == 0 ? total_ : largest_;
  }
  // The waits that lasted longer than the bound.
  int late = 0;
  std::uint64_t waits = 0;

  void run(time_ms until) {
    for (std::uint32_t i = 0; i < total_; ++i) submit(1, 1 + random_.uniform(5 * quantum));
    decide();
    while (!jobs_.empty()) {
      const time_ms before = now_;
      now_ = next_event(until);
      REQUIRE(now_ > before);
      end_jobs(now_ < until);
      if (now_ < until) arrivals();
      decide();
      // Under the published rule, jobs may wait until the last other one has ended.
      REQUIRE(now_ < 100 * until);
    }
  }

 private:
  struct job {
    std::uint32_t gpus = 1;
    time_ms left = 0;
    time_ms since = 0;        // when it began to run, or to wait
    std::size_t servers = 0;  // on which it runs; 0: it waits
    time_ms latest =
        max_time;  // when it must run; known when it begins to wait, or once it starves
    bool is_late = false;
  };
  void submit(std::uint32_t gpus, time_ms duration) {
    const job_id id(descends_ ? 1'000'000 - next_ : next_);
    ++next_;
    jobs_[id] = {.gpus = gpus, .left = duration, .since = now_};
    scheduler_->submit({.job = id, .tenant = tenant_id(0), .priority = opportunistic, .gpus = gpus},
                       now_);
  }
  [[nodiscard]] time_ms next_event(time_ms until) const {
    time_ms next = std::min(scheduler_->wake(), now_ < until ? next_arrival_ : max_time);
    for (const auto& [id, j] : jobs_)
      if (j.servers > 0) next = std::min(next, j.since + j.left);
    return next;
  }
  void end_jobs(bool may_replace) {
    std::vector<job_id> ended;
    for (const auto& [id, j] : jobs_)
      if (j.servers > 0 && j.since + j.left == now_) ended.push_back(id);
    for (const job_id id : ended) {
      const std::uint32_t gpus = jobs_.at(id).gpus;
      jobs_.erase(id);
      scheduler_->finish(id, now_);
      if (may_replace && attack_ == attack::replaces) submit(gpus, 1 + random_.uniform(90));
    }
  }
  void arrivals() {
    if (now_ < next_arrival_) return;
    const bool at_random = attack_ == attack::at_random;
    if (attack_ == attack::each_quantum)
      for (std::uint32_t i = 0; i < total_; ++i) submit(1, quantum);
    if (at_random) submit(1 + random_.uniform(largest_), 1 + random_.uniform(200));
    if (random_.uniform(8) == 0) submit(1 + random_.uniform(wide_), 1 + random_.uniform(300));
    next_arrival_ = at_random ? now_ + 1 + random_.uniform(40) : (now_ / quantum + 1) * quantum;
  }
  void decide() {
    for (const job_action& a : scheduler_->decide(now_)) {
      job& j = jobs_.at(a.job);
      if (a.where.empty()) j.latest = max_time;
      const bool ran = j.servers > 0;
      const bool runs = !a.where.empty();
      if (ran) j.left -= now_ - j.since;
      if (!ran && runs) {
        ++waits;
        j.latest = max_time;
        j.is_late = false;
      }
      j.since = now_;
      j.servers = a.where.size();
    }
    std::uint32_t waiting = 0;
    for (const auto& [id, j] : jobs_) waiting += j.servers == 0 ? 1U : 0U;
    for (auto& [id, j] : jobs_) {
      if (j.servers > 0 || (pins_ && now_ < j.since + max_wait * quantum)) continue;
      if (j.latest == max_time) {
        j.latest = pins_ ? latest(j) : j.since + (max_wait + 2 + (waiting - 1)) * quantum;
      }
      if (now_ > j.latest && !std::exchange(j.is_late, true)) ++late;
    }
  }
  // The bound of `gandiva`, max_wait quanta after the job began to wait. Jobs that wait may run on
  // several servers later.
  [[nodiscard]] time_ms latest(const job& waiting) const {
    time_ms at = waiting.since + (max_wait + 2) * quantum;
    for (const auto& [id, j] : jobs_) {
      at += quantum;
      if (j.servers > 1) at += j.left - (now_ - j.since);
      if (j.servers == 0 && j.gpus > 1) at += j.left;
    }
    return at;
  }

  std::unique_ptr<any_scheduler> scheduler_;
  bool pins_;
  rng random_;
  attack attack_;
  std::uint32_t total_ = 0;
  std::uint32_t largest_ = 0;
  std::uint32_t wide_ = 0;  // GPUs of the largest job
  bool descends_ = false;   // later jobs have lower ids
  std::uint32_t next_ = 0;
  time_ms now_ = 0;
  time_ms next_arrival_ = quantum;
  std::map<job_id, job> jobs_{};
};

template <class Scheduler>
std::unique_ptr<any_scheduler> boxed(Scheduler s) {
  return std::make_unique<scheduler_of<Scheduler>>(std::move(s));
}

TEST_CASE(
    "gandiva, and time sharing: no job waits longer than the bound, which the published rule does "
    "not keep") {
  std::array<int, 4> published{};
  std::array<std::uint64_t, 4> waits{};
  for (std::uint64_t seed = 0; seed < std::max(80U, apiary_test::scaled(400U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(4));
    for (std::uint32_t& g : gpus) g = 1 + random.uniform(4);
    const std::uint32_t kind = random.uniform(4);
    if (kind == 3) std::fill(gpus.begin(), gpus.end(), gpus[0]);
    CAPTURE(kind);
    const auto late = [&](std::uint32_t wait) {
      adversary host(kind == 0   ? boxed(placer_of(gpus, wait))
                     : kind == 1 ? boxed(servers_of(gpus, wait, true))
                     : kind == 2 ? boxed(servers_of(gpus, wait, false))
                                 : boxed(cells_of(gpus, wait)),
                     kind == 1 || kind == 2, gpus, seed);
      host.run(60 * quantum);
      waits[kind] += host.waits;
      return host.late;
    };
    REQUIRE(late(max_wait) == 0);
    published[kind] += late(0);
  }
  for (std::size_t kind = 0; kind < waits.size(); ++kind) {
    CAPTURE(kind);
    CHECK(published[kind] > 0);
    CHECK(waits[kind] > 0);
  }
}

// One server of 4 GPUs, a job of one GPU for 300 s every minute, and one of 4 GPUs at second 1.
template <class Make>
std::pair<time_ms, time_ms> wide_job_and_last(Make&& make) {
  std::vector<timed_job> jobs;
  for (std::uint32_t minute = 0; minute < 200; ++minute) {
    if (minute == 1) {
      jobs.push_back(
          {.request = {.job = job_id(1), .gpus = 4}, .arrival = 1000, .duration = 600'000});
    }
    jobs.push_back({.request = {.job = job_id(static_cast<std::uint32_t>(jobs.size()))},
                    .arrival = 60'000 * time_ms{minute},
                    .duration = 300'000});
  }
  auto scheduler = make();
  const auto run = simulate(
      scheduler, jobs, {}, {}, [](const timed_job&, const job_placement&) { return full_speed; },
      [](const simulation_event&) {});
  REQUIRE(run.ok());
  time_ms last = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j)
    if (j != 1) last = std::max(last, run->jobs[j].ended);
  return {run->jobs[1].started, last};
}

TEST_CASE("gandiva: jobs of one GPU do not keep a job of four from their server") {
  const auto published = wide_job_and_last([] {
    return gandiva::create({.servers = {.gpus = {4}}, .quantum = 60'000, .max_wait = 0}).value();
  });
  CHECK(published.first == published.second);
  for (const std::uint32_t wait : {1U, 5U, 10U}) {
    CAPTURE(wait);
    const auto [started, last] = wide_job_and_last([&] {
      return gandiva::create({.servers = {.gpus = {4}}, .quantum = 60'000, .max_wait = wait})
          .value();
    });
    CHECK(started == 60'000 * (time_ms{wait} + 1));
  }
}

TEST_CASE("time_sharing: jobs that come and end with each quantum do not keep out a wide one") {
  for (const std::uint32_t wait : {0U, 3U}) {
    CAPTURE(wait);
    sliced_servers q = placer_of({4}, wait);
    std::uint32_t next = 0;
    time_ms wide_starts = max_time;
    std::vector<job_id> running;
    for (time_ms now = 0; now < 30 * quantum; now += quantum) {
      for (const job_id job : running) REQUIRE(q.finish(job, now).ok());
      for (int i = 0; i < 4; ++i) REQUIRE(q.submit({.job = job_id(next++)}, now).ok());
      if (now == 2 * quantum) REQUIRE(q.submit({.job = job_id(1000), .gpus = 4}, now).ok());
      running.clear();
      std::vector<job_action> actions;
      REQUIRE(q.decide(now, actions).ok());
      for (std::uint32_t job = 0; job < next; ++job)
        if (q.find(job_id(job)) == sliced_servers::phase::sliced) running.emplace_back(job);
      if (q.find(job_id(1000)) == sliced_servers::phase::sliced)
        wide_starts = std::min(wide_starts, now);
    }
    CHECK((wide_starts <= 5 * quantum) == (wait > 0));
  }
}

TEST_CASE("gandiva: for a job wider than a server the fewest servers are emptied, and jobs go on") {
  gandiva g =
      gandiva::create({.servers = {.gpus = {4, 4, 4}}, .quantum = 60, .max_wait = 2}).value();
  std::vector<job_action> actions;
  const auto decide = [&](time_ms now) {
    actions.clear();
    REQUIRE(g.decide(now, actions).ok());
  };
  for (std::uint32_t job = 0; job < 12; ++job) REQUIRE(g.submit({.job = job_id(job)}, 0).ok());
  REQUIRE(g.submit({.job = job_id(20), .gpus = 8}, 0).ok());
  decide(0);
  decide(60);
  CHECK(g.find(job_id(20))->phase == gandiva::phase::queued);
  REQUIRE(g.submit({.job = job_id(21), .gpus = 2}, 61).ok());
  decide(61);
  CHECK(g.find(job_id(21))->phase == gandiva::phase::queued);
  decide(120);
  CHECK(g.find(job_id(20))->phase == gandiva::phase::run);
  CHECK(!g.find(job_id(20))->server.valid());
  // The jobs of the two servers now share the third one.
  for (std::uint32_t job = 0; job < 12; ++job) CHECK(g.find(job_id(job))->server == node_id(2));
  std::map<std::uint32_t, int> quanta;
  for (time_ms now = 180; now < 180 + 60 * 30; now += 60) {
    decide(now);
    for (std::uint32_t job = 0; job < 12; ++job)
      quanta[job] += g.find(job_id(job))->phase == gandiva::phase::run ? 1 : 0;
    CHECK(g.find(job_id(20))->phase == gandiva::phase::run);
  }
  for (const auto& [job, n] : quanta) CHECK(n >= 5);
  CHECK(g.find(job_id(21))->phase != gandiva::phase::queued);
}

TEST_CASE("gandiva: what held a job back is forgotten when it is gone") {
  gandiva g = gandiva::create({.servers = {.gpus = {2, 2}}, .quantum = 60, .max_wait = 1}).value();
  std::vector<job_action> actions;
  for (const std::uint32_t job : {0U, 1U})
    REQUIRE(g.submit({.job = job_id(job), .gpus = 2}, 0).ok());
  REQUIRE(g.submit({.job = job_id(2), .gpus = 3}, 0).ok());
  REQUIRE(g.decide(0, actions).ok());
  REQUIRE(g.submit({.job = job_id(3), .gpus = 4}, 50).ok());
  REQUIRE(g.decide(60, actions).ok());
  // The job of three GPUs runs on both servers, and the other two get no time slices there.
  CHECK(g.find(job_id(2))->phase == gandiva::phase::run);
  CHECK(g.find(job_id(0))->phase == gandiva::phase::suspended);
  for (const std::uint32_t job : {0U, 1U, 2U}) REQUIRE(g.finish(job_id(job), 100).ok());
  REQUIRE(g.decide(100, actions).ok());
  CHECK(g.find(job_id(3))->phase == gandiva::phase::run);
}

TEST_CASE("gandiva: servers are emptied for a job with more GPUs than any server may have") {
  gandiva g = servers_of({max_gpus_per_node, max_gpus_per_node}, max_wait, false);
  std::vector<job_action> actions;
  for (std::uint32_t job = 0; job < 2 * max_gpus_per_node; ++job)
    REQUIRE(g.submit({.job = job_id(job)}, 0).ok());
  REQUIRE(g.decide(0, actions).ok());
  const job_id wide(1000);
  REQUIRE(g.submit({.job = wide, .gpus = max_gpus_per_node + 1}, 0).ok());
  for (time_ms now = 0; now <= max_wait * quantum; now += quantum) {
    CHECK(g.find(wide)->phase == gandiva::phase::queued);
    REQUIRE(g.decide(now, actions).ok());
  }
  CHECK(g.find(wide)->phase == gandiva::phase::run);
}

TEST_CASE("gandiva: a job for which too few servers are healthy does not ask for decisions") {
  gandiva g = servers_of({4, 4}, max_wait, false);
  REQUIRE(g.mark_bad(node_id(1), 0).ok());
  REQUIRE(g.submit({.job = job_id(0)}, 0).ok());
  REQUIRE(g.submit({.job = job_id(1), .gpus = 8}, 0).ok());
  std::vector<job_action> actions;
  REQUIRE(g.decide(0, actions).ok());
  CHECK(g.wake() == quantum);  // what runs may have to stop for it
  REQUIRE(g.finish(job_id(0), 10).ok());
  REQUIRE(g.decide(10, actions).ok());
  CHECK(g.wake() == max_time);
  REQUIRE(g.mark_healthy(node_id(1), 5000).ok());
  REQUIRE(g.decide(5000, actions).ok());
  CHECK(g.find(job_id(1))->phase == gandiva::phase::run);
}

// Two servers of 2 GPUs, all in use. A job of 2 GPUs shares a server, and one of 4 GPUs waits for both.
// Both begin to wait at once and starve after a quantum; the one with the lower id comes first.
TEST_CASE("gandiva: a job that starves leaves alone the server of one that waits longer") {
  for (const bool wide_first : {false, true}) {
    CAPTURE(wide_first);
    const job_id wide(wide_first ? 2 : 3);
    const job_id sharing(wide_first ? 3 : 2);
    gandiva g =
        gandiva::create({.servers = {.gpus = {2, 2}}, .quantum = 60, .max_wait = 1}).value();
    for (const job_id job : {job_id(0), job_id(1), sharing})
      REQUIRE(g.submit({.job = job, .gpus = 2}, 0).ok());
    REQUIRE(g.submit({.job = wide, .gpus = 4}, 0).ok());
    std::vector<job_action> actions;
    REQUIRE(g.decide(0, actions).ok());
    CHECK(g.find(sharing)->phase == gandiva::phase::suspended);
    CHECK(g.find(sharing)->server == node_id(0));
    CHECK(g.find(wide)->phase == gandiva::phase::queued);
    REQUIRE(g.decide(60, actions).ok());
    CHECK(g.find(sharing)->phase == (wide_first ? gandiva::phase::suspended : gandiva::phase::run));
    CHECK(g.find(wide)->phase == (wide_first ? gandiva::phase::run : gandiva::phase::queued));
    // The job that the other one displaced waits since then, and not longer than the wide one.
    REQUIRE(g.decide(120, actions).ok());
    CHECK(g.find(sharing)->phase == gandiva::phase::suspended);
    CHECK(g.find(wide)->phase == gandiva::phase::run);
  }
}

TEST_CASE("gandiva: no server is emptied of higher priorities") {
  gandiva g = gandiva::create({.servers = {.gpus = {4, 4}}, .quantum = 60, .max_wait = 2}).value();
  for (std::uint32_t job = 0; job < 8; ++job)
    REQUIRE(g.submit({.job = job_id(job), .priority = job < 4 ? 1 : 0}, 0).ok());
  REQUIRE(g.submit({.job = job_id(8), .gpus = 4}, 0).ok());
  REQUIRE(g.submit({.job = job_id(9), .gpus = 8}, 0).ok());
  std::vector<job_action> actions;
  for (time_ms now = 0; now < 6000; now += 60) REQUIRE(g.decide(now, actions).ok());
  CHECK(g.find(job_id(8))->server == g.find(job_id(7))->server);
  CHECK(g.find(job_id(9))->phase == gandiva::phase::queued);
  for (std::uint32_t job = 0; job < 4; ++job)
    CHECK(g.find(job_id(job))->phase == gandiva::phase::run);
}

}  // namespace
}  // namespace starvation_tests
