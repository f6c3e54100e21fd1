// How do I write a queue and run it in the simulator? This queue is first come first served, but a
// job of one GPU may pass a larger job that has waited for less than 30 minutes.
// SPDX-License-Identifier: MIT
#include <apiary/core/status.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

using namespace apiary;

constexpr time_ms patience = 1'800'000;

// The queue keeps each job, and since when it waits; in order of arrival, because the ids are.
struct express_queue {
  server_placer servers;
  std::map<job_id, std::pair<job_request, time_ms>> waiting{}, running{};
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    time_ms blocked = max_time;  // since when the first job waits that does not fit
    for (auto at = waiting.begin(); at != waiting.end();) {
      const auto [job, since] = (at++)->second;
      if (blocked != max_time && (job.gpus > 1 || now - blocked >= patience)) continue;
      APIARY_ASSIGN_OR_RETURN(const auto where, servers.propose(job));
      if (!where) blocked = std::min(blocked, since);
      if (!where) continue;
      APIARY_RETURN_IF_ERROR(servers.commit(job, *where));
      actions.push_back({.job = job.job, .where = *where});
      actions.back().waited[delay_cause::capacity] = now - since;  // all of it has one cause here
      running.insert(waiting.extract(job.job));
    }
    return absl::OkStatus();
  }
  absl::Status submit(const job_request& job, time_ms now) {
    if (!job.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    APIARY_RETURN_IF_ERROR(servers.check(job));
    waiting[job.job] = {job, now};
    return absl::OkStatus();
  }
  absl::Status finish(job_id job, time_ms) {
    if (waiting.erase(job) > 0) return absl::OkStatus();  // it is cancelled
    running.erase(job);
    return servers.finish(job);
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id server, time_ms now) {
    const std::vector<job_id> stopped = servers.jobs_on(server);
    for (const job_id job : stopped) APIARY_RETURN_IF_ERROR(servers.finish(job));
    for (const job_id job : stopped) waiting[job] = {running.extract(job).mapped().first, now};
    APIARY_RETURN_IF_ERROR(servers.mark_bad(server));
    return stopped;
  }
  absl::Status mark_healthy(node_id server, time_ms) { return servers.mark_healthy(server); }
  time_ms wake() const { return max_time; }  // decides only when something happens
  std::uint32_t total_gpus() const { return servers.total_gpus(); }
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
  run("express_queue", express_queue{servers}, jobs);
}
