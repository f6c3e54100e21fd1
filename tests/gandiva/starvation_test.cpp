// apiary/tests/gandiva/starvation_test.cpp - no job waits longer than the bound that its scheduler states.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/hived/hived_config.h>
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
  return gandiva_hived::create(hived_placer::create(config, true).value(),
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
  adversary(std::unique_ptr<any_scheduler> s, const std::vector<std::uint32_t>& gpus,
            std::uint64_t seed)
      : scheduler_(std::move(s)), random_(seed), attack_(static_cast<attack>(random_.uniform(3))) {
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
    time_ms since = 0;          // when it began to run, or to wait
    std::size_t servers = 0;    // on which it runs; 0: it waits
    time_ms latest = max_time;  // when it must run; known when it begins to wait
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
      if (j.servers > 0) continue;
      if (j.latest == max_time) j.latest = j.since + (max_wait + 2 + (waiting - 1)) * quantum;
      if (now_ > j.latest && !std::exchange(j.is_late, true)) ++late;
    }
  }

  std::unique_ptr<any_scheduler> scheduler_;
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
    "time sharing: no job waits longer than the bound, which the published rule does not keep") {
  std::array<int, 2> published{};
  std::array<std::uint64_t, 2> waits{};
  for (std::uint64_t seed = 0; seed < std::max(80U, apiary_test::scaled(400U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(4));
    for (std::uint32_t& g : gpus) g = 1 + random.uniform(4);
    const std::uint32_t kind = random.uniform(2);
    if (kind == 1) std::fill(gpus.begin(), gpus.end(), gpus[0]);
    CAPTURE(kind);
    const auto late = [&](std::uint32_t wait) {
      adversary host(kind == 0 ? boxed(placer_of(gpus, wait)) : boxed(cells_of(gpus, wait)), gpus,
                     seed);
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

}  // namespace
}  // namespace starvation_tests
