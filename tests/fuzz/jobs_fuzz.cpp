// apiary/tests/fuzz/jobs_fuzz.cpp - whatever job lists the readers accept can be simulated.
// SPDX-License-Identifier: MIT
//
// The input is a list of jobs: the Standard Workload Format behind a first line "swf", or else rows
// with a header line. Of what is read, the first jobs that fit are run on eight servers of four
// GPUs through every queue; each must end them all, keep the GPUs' time, and explain every wait.
#include <apiary/core/config.h>
#include <apiary/core/status.h>
#include <apiary/model/job_request.h>
#include <apiary/sched/batch_queue.h>
#include <apiary/sched/conservative_queue.h>
#include <apiary/sched/gandiva.h>
#include <apiary/sched/philly.h>
#include <apiary/sched/preemptive_queue.h>
#include <apiary/sched/server_placer.h>
#include <apiary/sim/job_list.h>
#include <apiary/sim/job_metrics.h>
#include <apiary/sim/line_reader.h>
#include <apiary/sim/philly_reader.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/swf_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

constexpr std::size_t most_jobs = 64;

// A status that a user could act on: it says where.
void check_fault(const absl::Status& status) {
  APIARY_VERIFY(std::string(status.message()).starts_with("jobs:"));
  APIARY_VERIFY(status.code() == absl::StatusCode::kInvalidArgument ||
                status.code() == absl::StatusCode::kOutOfRange);
}

template <class Scheduler>
void run(absl::StatusOr<Scheduler> scheduler, const std::vector<timed_job>& jobs) {
  APIARY_VERIFY(scheduler.ok());
  const absl::StatusOr<simulation> done = simulate(*scheduler, jobs);
  APIARY_VERIFY(done.ok());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const job_record& r = done->jobs[i];
    APIARY_VERIFY(r.ended != forever && r.started >= jobs[i].arrival);
    APIARY_VERIFY(r.ended - jobs[i].arrival == jobs[i].duration + r.waited.total());
  }
  const job_metrics m = metrics_of(*done, jobs);
  APIARY_VERIFY(m.ended == jobs.size() && m.unended == 0);
  APIARY_VERIFY(m.utilization >= 0 && m.utilization <= 1.0 + 1e-9);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view swf = "swf\n";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<job_list> list = text.starts_with(swf)
                                            ? read_swf(line_reader("jobs", text.substr(swf.size())))
                                            : read_philly(line_reader("jobs", text));
  if (!list.ok()) {
    check_fault(list.status());
    return 0;
  }
  const server_spec servers{.gpus = std::vector<std::uint32_t>(8, 4), .servers_per_rack = 4};
  const auto tenants = static_cast<std::uint32_t>(std::min<std::size_t>(list->tenants.size(), 32));
  tick_t longest = 1;
  std::vector<timed_job> jobs;
  for (const timed_job& job : list->jobs) {
    APIARY_VERIFY(job.request.tenant.value < list->tenants.size());
    APIARY_VERIFY(job.arrival >= (jobs.empty() ? 0 : jobs.back().arrival));
    APIARY_VERIFY(job.duration > 0 && job.duration <= job.request.estimate);
    if (job.request.gpus > 32 || job.request.tenant.value >= tenants) continue;
    if (jobs.size() == most_jobs) continue;
    jobs.push_back(job);
    longest = std::max(longest, job.arrival + job.duration);
  }
  number_by_arrival(jobs);
  const tick_t turn = longest / 16 + 1;  // few turns, however long the jobs

  const absl::StatusOr<server_placer> placer = server_placer::create(servers);
  APIARY_VERIFY(placer.ok());
  for (const batch_rule rule : {batch_rule::fifo, batch_rule::backfill, batch_rule::easy})
    run<batch_queue<server_placer>>(batch_queue(*placer, {.rule = rule}), jobs);
  run<conservative_queue<server_placer>>(conservative_queue(*placer), jobs);
  for (const preemptive_rule rule :
       {preemptive_rule::least_attained, preemptive_rule::shortest_remaining}) {
    run<preemptive_queue<server_placer>>(preemptive_queue(*placer, {.rule = rule, .quantum = turn}),
                                         jobs);
  }
  run(philly::create({.servers = servers,
                      .quotas = std::vector<std::uint32_t>(tenants, 32 / tenants),
                      .acquire_time = turn,
                      .backoff_time = turn}),
      jobs);
  run(gandiva::create({.servers = servers, .quantum = turn}), jobs);
  return 0;
}
