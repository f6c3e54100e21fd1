// apiary/tests/sim/simulate_speed_test.cpp - jobs side by side, moved and resized, tick by tick.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

using verb = job_action::verb;

// Does at random whatever a scheduler may do, at each multiple of 7, and notes it down.
struct restless {
  struct note {
    time_ms at = 0;
    job_action action{};
  };
  rng random;
  std::set<job_id> waiting{};
  std::map<job_id, job_placement> running{};
  std::vector<note> notes{};
  time_ms last = 0;

  absl::Status submit(const job_request& r, time_ms) {
    waiting.insert(r.job);
    return absl::OkStatus();
  }
  absl::Status finish(job_id j, time_ms) {
    running.erase(j);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id, time_ms) { return std::vector<job_id>(); }
  absl::Status mark_healthy(node_id, time_ms) { return absl::OkStatus(); }
  time_ms wake() const { return (last / 7 + 1) * 7; }
  std::uint32_t total_gpus() const { return 6; }
  // Some GPUs of one or two of two servers of three.
  job_placement any_place() {
    job_placement where;
    for (std::uint32_t n = 0; n < 2; ++n) {
      const std::uint32_t mask = random.uniform(8);
      if (mask != 0) where.push_back({node_id(n), mask});
    }
    if (where.empty()) where.push_back({node_id(0), 1});
    return where;
  }
  // Whether no other job has one of these GPUs that the job does not have.
  bool is_free(const job_placement& where, job_id but) const {
    const auto has = [&](job_id job, placement gpu) {
      const auto it = running.find(job);
      return it != running.end() &&
             std::any_of(it->second.begin(), it->second.end(), [&](const placement& p) {
               return p.node == gpu.node && (p.gpu_mask & gpu.gpu_mask) != 0;
             });
    };
    for (const placement& p : where) {
      for (std::uint32_t mask = p.gpu_mask; mask != 0; mask &= mask - 1) {
        const placement gpu{p.node, mask & -mask};
        if (has(but, gpu)) continue;
        for (const auto& [job, other] : running) {
          if (has(job, gpu)) return false;
        }
      }
    }
    return true;
  }
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    last = now;
    if (now % 7 != 0) return absl::OkStatus();
    std::vector<job_id> jobs(waiting.begin(), waiting.end());
    for (const auto& [job, where] : running) jobs.push_back(job);
    random.shuffle(jobs);
    for (const job_id job : jobs) {
      job_action a{.job = job};
      if (waiting.erase(job) == 1) {
        a.where = any_place();
        a.what = random.uniform(2) == 0 && is_free(a.where, job) ? verb::start : verb::pack;
        running[job] = a.where;
      } else if (const std::uint32_t what = random.uniform(5); what == 0) {
        a.what = random.uniform(2) == 0 ? verb::suspend : verb::unpack;
        running.erase(job);
        waiting.insert(job);
      } else if (what < 3) {
        a.where = any_place();
        a.what = what == 1 || !is_free(a.where, job) ? verb::migrate
                 : random.uniform(2) == 0            ? verb::grow
                                                     : verb::shrink;
        running[job] = a.where;
      } else {
        continue;
      }
      actions.push_back(a);
      notes.push_back({now, a});
    }
    return absl::OkStatus();
  }
};
static_assert(JobScheduler<restless>);

std::uint32_t speed_of(const timed_job& job, const job_placement& where, std::size_t others) {
  std::uint32_t gpus = 0;
  for (const placement& p : where) gpus += p.num_gpus();
  return (200 + 130 * gpus + 7 * job.request.job.value) / static_cast<std::uint32_t>(others + 1);
}

// What has been noted down, one tick after the other: when jobs end, and GPUs in use over time.
struct tick_by_tick {
  std::map<std::uint32_t, time_ms> ends{};
  std::uint64_t in_use = 0;

  tick_by_tick(const std::vector<timed_job>& jobs, const std::vector<restless::note>& notes,
               const simulation_options& options) {
    struct state {
      job_placement where{};
      time_ms from = 0;
      std::int64_t done = 0;
    };
    std::map<std::uint32_t, state> all;
    std::size_t next = 0;
    for (time_ms now = 0; ends.size() < jobs.size(); ++now) {
      for (; next < notes.size() && notes[next].at == now; ++next) {
        const job_action& a = notes[next].action;
        state& s = all[a.job.value];
        const time_ms cost = a.what == verb::migrate ? options.migration_cost : options.start_cost;
        const bool runs = !s.where.empty();
        s.from = runs ? std::max(s.from, now + cost) : now + cost;
        s.where = a.where;
      }
      std::set<std::pair<std::uint32_t, std::uint32_t>> devices;
      std::vector<std::uint32_t> done;
      for (auto& [job, s] : all) {
        std::set<std::uint32_t> others;
        for (const placement& p : s.where) {
          for (std::uint32_t d = 0; d < 3; ++d) {
            if ((p.gpu_mask >> d & 1) == 0) continue;
            devices.emplace(p.node.value, d);
            for (const auto& [other, o] : all) {
              for (const placement& q : o.where) {
                if (other != job && q.node == p.node && (q.gpu_mask >> d & 1) != 0)
                  others.insert(other);
              }
            }
          }
        }
        if (s.where.empty() || now < s.from) continue;
        s.done += speed_of(jobs[job], s.where, others.size());
        if (s.done >= jobs[job].duration * full_speed) done.push_back(job);
      }
      for (const std::uint32_t job : done) {
        ends[job] = now + 1;
        all.erase(job);
      }
      in_use += devices.size();
    }
  }
};

}  // namespace

TEST_CASE("simulate: whatever happens to a job, its speeds sum up to its work") {
  std::uint64_t moved = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    restless scheduler{.random = rng(seed)};
    std::vector<timed_job> jobs;
    for (std::uint32_t j = 0; j < 5; ++j) {
      jobs.push_back(
          {{.job = job_id(j), .max_gpus = 6}, 11 * time_ms{j}, 20 + scheduler.random.uniform(80)});
    }
    const simulation_options options{.start_cost = scheduler.random.uniform(12),
                                     .migration_cost = scheduler.random.uniform(20)};
    std::map<std::uint32_t, std::pair<std::uint32_t, time_ms>> at;  // speed, and since when
    std::vector<std::int64_t> work(jobs.size(), 0);
    const auto run = simulate(
        scheduler, jobs, {}, options,
        [](const timed_job& job, const job_placement& where, std::span<const job_id> others) {
          return speed_of(job, where, others.size());
        },
        [&](const simulation_event& e) {
          if (e.what == simulation_event::kind::arrival) return;
          const auto [speed, from] = at[e.job.value];
          work[e.job.value] += std::max<time_ms>(0, e.at - from) * speed;
          at[e.job.value] = {e.speed, e.from};
        });
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    const tick_by_tick expected(jobs, scheduler.notes, options);
    for (std::uint32_t j = 0; j < jobs.size(); ++j) {
      CAPTURE(j);
      REQUIRE(run->jobs[j].ended == expected.ends.at(j));
      // The observer can count it as well: all the work, and less than one tick more.
      REQUIRE(work[j] >= jobs[j].duration * full_speed);
      REQUIRE(work[j] < jobs[j].duration * full_speed + 2000);
      moved += run->jobs[j].migrated + run->jobs[j].resized;
    }
    REQUIRE(run->gpus.area(static_cast<std::uint64_t>(run->ended)) == expected.in_use);
  }
  CHECK(moved > 0);
}

TEST_CASE("simulate: two jobs side by side, one after the other has gone") {
  struct pair_of_jobs {
    time_ms last = 0;
    absl::Status submit(const job_request&, time_ms) { return absl::OkStatus(); }
    absl::Status finish(job_id, time_ms) { return absl::OkStatus(); }
    absl::StatusOr<std::vector<job_id>> mark_bad(node_id, time_ms) { return std::vector<job_id>(); }
    absl::Status mark_healthy(node_id, time_ms) { return absl::OkStatus(); }
    time_ms wake() const { return last < 40 ? 40 : max_time; }
    std::uint32_t total_gpus() const { return 1; }
    absl::Status decide(time_ms now, std::vector<job_action>& actions) {
      if (now == 0) actions.push_back({verb::start, job_id(0), {{node_id(0), 1}}, {}});
      if (now == 40) actions.push_back({verb::pack, job_id(1), {{node_id(0), 1}}, {}});
      last = now;
      return absl::OkStatus();
    }
  };
  const std::vector<timed_job> jobs{{{.job = job_id(0)}, 0, 100}, {{.job = job_id(1)}, 0, 90}};
  pair_of_jobs scheduler;
  std::vector<std::pair<time_ms, std::uint32_t>> speeds;
  const auto run = simulate(
      scheduler, jobs, {}, {},
      [](const timed_job&, const job_placement&, std::span<const job_id> others) -> std::uint32_t {
        return others.empty() ? 1000 : 600;
      },
      [&](const simulation_event& e) {
        if (e.what == simulation_event::kind::speed_change) speeds.emplace_back(e.at, e.speed);
      });
  REQUIRE(run.ok());
  CHECK(run->jobs[0].ended == 140);  // 40 ticks alone, 60 at 0.6
  CHECK(run->jobs[1].ended == 170);  // 100 ticks at 0.6, 30 alone
  CHECK(speeds == std::vector<std::pair<time_ms, std::uint32_t>>{{40, 600}, {140, 1000}});
  CHECK(run->gpus.area(170) == 170);
}
