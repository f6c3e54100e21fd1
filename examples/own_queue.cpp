// How do I write a queue and run it in the simulator? This queue is first come first served, but a
// job of one GPU may pass a larger job that has waited for less than 30 minutes.
// SPDX-License-Identifier: MIT
#include <apiary/batch/batch_queue.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/status.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;

class express_queue {
 public:
  static constexpr time_ms patience = 1'800'000;

  explicit express_queue(server_placer servers) : servers_(std::move(servers)) {}

  absl::Status submit(const job_request& job, time_ms now) {
    APIARY_RETURN_IF_ERROR(servers_.check(job));
    waiting_.push_back({job, now});
    return absl::OkStatus();
  }
  absl::Status finish(job_id job, time_ms) {
    running_.erase(job);
    return servers_.finish(job);
  }
  // The jobs on a broken server wait again, before all others.
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id server, time_ms now) {
    APIARY_RETURN_IF_ERROR(servers_.mark_bad(server));
    std::vector<job_id> stopped = servers_.jobs_on(server);
    for (const job_id job : stopped) {
      waiting_.push_front({running_.at(job), now});
      APIARY_RETURN_IF_ERROR(finish(job, now));
    }
    return stopped;
  }
  absl::Status mark_healthy(node_id server, time_ms) { return servers_.mark_healthy(server); }

  // The queue itself: starts every job that may start now.
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    time_ms blocked_since = max_time;  // of the first job that does not fit
    for (auto e = waiting_.begin(); e != waiting_.end();) {
      const bool may_pass = e->job.gpus == 1 && now - blocked_since < patience;
      if (blocked_since != max_time && !may_pass) {
        ++e;
        continue;
      }
      APIARY_ASSIGN_OR_RETURN(const std::optional<job_placement> where, servers_.propose(e->job));
      if (!where) {
        blocked_since = std::min(blocked_since, e->since);
        ++e;
        continue;
      }
      APIARY_RETURN_IF_ERROR(servers_.commit(e->job, *where));
      actions.push_back({.job = e->job.job, .where = *where});
      // all of it as capacity; `delay_clock` (model/job.h) tells order and fragmentation apart
      actions.back().waited[delay_cause::capacity] = now - e->since;
      running_[e->job.job] = e->job;
      e = waiting_.erase(e);
    }
    return absl::OkStatus();
  }
  time_ms wake() const { return max_time; }  // decides only when something happens
  std::uint32_t total_gpus() const { return servers_.total_gpus(); }

 private:
  struct entry {
    job_request job;
    time_ms since;
  };
  server_placer servers_;
  std::deque<entry> waiting_;
  std::map<job_id, job_request> running_;
};
static_assert(JobScheduler<express_queue>);

template <JobScheduler Scheduler>
void run(const char* name, Scheduler scheduler, const std::vector<timed_job>& jobs) {
  const auto result = simulate(scheduler, jobs);
  if (!result.ok()) return;
  const auto mean_wait = [&](std::uint32_t fewest, std::uint32_t most) {
    return metrics_of(*result, jobs, fewest, most).delay.mean / 60'000;
  };
  std::printf("%-13s %5.1f min  %5.1f min\n", name, mean_wait(1, 1), mean_wait(2, 8));
}

int main() {
  std::vector<timed_job> jobs;  // a job every five minutes; every third one takes all 8 GPUs
  for (std::uint32_t i = 0; i < 12; ++i) {
    jobs.push_back({.request = {.job = job_id(i), .gpus = i % 3 == 1 ? 8U : 1U},
                    .arrival = i * 300'000,
                    .duration = i % 3 == 1 ? 600'000 : 900'000});
  }
  const auto servers = server_placer::create({.gpus = {4, 4}}).value();
  std::printf("mean wait      of 1 GPU  of 8 GPUs\n");
  run("FIFO", batch_queue(servers, {.rule = batch_options::rules::fifo}), jobs);
  run("express_queue", express_queue(servers), jobs);
}
