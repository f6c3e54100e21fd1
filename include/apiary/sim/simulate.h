// apiary/sim/simulate.h - lets jobs take their time under any scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/core/timer_queue.h>
#include <apiary/metric/utilization.h>
#include <apiary/model/job_request.h>
#include <apiary/model/plan.h>
#include <apiary/sim/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A scheduler of jobs over time, as a host embeds it.
//
// | expression              | meaning                                                        |
// |-------------------------|----------------------------------------------------------------|
// | s.submit(r, t)          | a job has come; an error, and no change, if it cannot be       |
// | s.finish(j, t)          | a job has ended                                                |
// | s.mark_bad(n, t)        | a server broke; the jobs that stopped, which wait again        |
// | s.mark_healthy(n, t)    | it is repaired                                                 |
// | s.decide(t, actions)    | appends what the host is to do now                             |
// | s.wake()                | when decide wants to be called although nothing happens: later |
// |                         | than the last decide, or forever                               |
// | s.total_gpus()          | GPUs of the cluster                                            |
template <class S>
concept JobScheduler = requires(S& s, const S& constant, const job_request& r, job_id j, node_id n,
                                tick_t t, std::vector<job_action>& actions) {
  { s.submit(r, t) } -> std::same_as<absl::Status>;
  { s.finish(j, t) } -> std::same_as<absl::Status>;
  { s.mark_bad(n, t) } -> std::same_as<absl::StatusOr<std::vector<job_id>>>;
  { s.mark_healthy(n, t) } -> std::same_as<absl::Status>;
  { s.decide(t, actions) } -> std::same_as<absl::Status>;
  { constant.wake() } -> std::same_as<tick_t>;
  { constant.total_gpus() } -> std::same_as<std::uint32_t>;
};

// What things cost, and how long to go on.
struct simulation_options {
  tick_t start_cost = 0;   // from a job's start until it makes progress, every time
  tick_t checkpoint = 0;   // a broken server loses the work since the last whole multiple of it
                           // done; 0: all of it
  tick_t until = forever;  // ends then, whatever still runs
};

// A thousand means full speed.
inline constexpr std::uint32_t full_speed = 1000;

// What happened, as the observer sees it.
struct simulation_event {
  enum class kind : std::uint8_t { arrival, start, suspension, end, breakdown, failure, repair };
  kind what = kind::arrival;
  tick_t at = 0;
  job_id job{};             // not for failure and repair of a server
  node_id node{};           // only for those
  std::uint32_t gpus = 0;   // that the job has
  std::uint32_t nodes = 0;  // over which it runs
};

struct simulation {
  std::vector<job_record> jobs{};
  utilization gpus{0};  // GPUs that jobs have
  tick_t ended = 0;     // the last event
  std::uint64_t events = 0;
  std::uint64_t decisions = 0;  // calls of decide
  digest log{};                 // of all events with their places, in order
};

namespace detail {

// One run; see simulate().
template <class Scheduler, class Speed, class Observer>
class simulator {
 public:
  simulator(Scheduler& scheduler, std::span<const timed_job> jobs,
            const simulation_options& options, Speed& speed, Observer& observe)
      : scheduler_(scheduler), jobs_(jobs), options_(options), speed_(speed), observe_(observe) {
    out_.jobs.resize(jobs.size());
    state_.resize(jobs.size());
    out_.gpus = utilization(scheduler.total_gpus());
  }

  [[nodiscard]] absl::StatusOr<simulation> run(std::span<const outage> outages) {
    std::vector<std::pair<tick_t, std::size_t>> repairs;
    for (std::size_t i = 0; i < outages.size(); ++i) repairs.emplace_back(outages[i].until, i);
    std::sort(repairs.begin(), repairs.end());
    std::size_t arrived = 0;
    std::size_t broken = 0;
    std::size_t repaired = 0;
    while (true) {
      tick_t now = scheduler_.wake();
      if (!ends_.empty()) now = std::min(now, ends_.first().at);
      if (arrived < jobs_.size()) now = std::min(now, jobs_[arrived].arrival);
      if (broken < outages.size()) now = std::min(now, outages[broken].from);
      if (repaired < repairs.size()) now = std::min(now, repairs[repaired].first);
      if (now == forever || now > options_.until || (unended_ == 0 && arrived == jobs_.size()))
        break;
      while (!ends_.empty() && ends_.first().at == now) {
        APIARY_RETURN_IF_ERROR(end(job_id(ends_.pop().id), now));
      }
      for (; repaired < repairs.size() && repairs[repaired].first == now; ++repaired) {
        const node_id n = outages[repairs[repaired].second].node;
        APIARY_RETURN_IF_ERROR(scheduler_.mark_healthy(n, now));
        record({simulation_event::kind::repair, now, {}, n}, {});
      }
      for (; broken < outages.size() && outages[broken].from == now; ++broken) {
        APIARY_RETURN_IF_ERROR(fail(outages[broken].node, now));
      }
      for (; arrived < jobs_.size() && jobs_[arrived].arrival == now; ++arrived) {
        APIARY_RETURN_IF_ERROR(scheduler_.submit(jobs_[arrived].request, now));
        ++unended_;
        record({simulation_event::kind::arrival, now, jobs_[arrived].request.job}, {});
      }
      actions_.clear();
      APIARY_RETURN_IF_ERROR(scheduler_.decide(now, actions_));
      ++out_.decisions;
      for (const job_action& action : actions_) {
        if (action.what == job_action::verb::start) {
          start(action, now);
        } else {
          ++out_.jobs[action.job.value].suspended;
          stop(action.job, now, simulation_event::kind::suspension);
        }
      }
    }
    return std::move(out_);
  }

 private:
  // Work is counted in ticks at full speed, times full_speed.
  struct progress {
    std::int64_t done = 0;
    tick_t since = 0;  // when it last began to make progress
    std::uint32_t speed = 0;
    std::uint32_t gpus = 0;
    std::uint32_t nodes = 0;
  };

  void record(const simulation_event& e, const job_place& place) {
    ++out_.events;
    out_.ended = e.at;
    out_.log.add(static_cast<std::uint64_t>(e.at)).add(static_cast<std::uint64_t>(e.what));
    out_.log.add(std::uint64_t{e.job.value} << 32 | e.node.value);
    for (const placement& p : place) {
      out_.log.add(std::uint64_t{p.node.value} << 32 | p.device_mask);
    }
    observe_(e);
  }
  void use(std::uint32_t gpus, bool more, tick_t now) noexcept {
    used_ = more ? used_ + gpus : used_ - gpus;
    out_.gpus.set(static_cast<std::uint64_t>(now), used_);
  }

  void start(const job_action& action, tick_t now) {
    progress& p = state_[action.job.value];
    job_record& r = out_.jobs[action.job.value];
    APIARY_VERIFY(p.speed == 0 && r.ended == forever);
    const timed_job& job = jobs_[action.job.value];
    p.speed = speed_(job, action.place);
    APIARY_VERIFY(p.speed > 0);
    p.nodes = static_cast<std::uint32_t>(action.place.size());
    p.gpus = 0;
    for (const placement& part : action.place) p.gpus += part.num_devices();
    p.since = now + options_.start_cost;
    if (r.started == forever) r.started = now;
    r.waited += action.waited;
    const std::int64_t left = job.duration * full_speed - p.done;
    ends_.set(action.job.value, p.since + (left + p.speed - 1) / p.speed);
    use(p.gpus, true, now);
    record({simulation_event::kind::start, now, action.job, {}, p.gpus, p.nodes}, action.place);
  }
  void stop(job_id job, tick_t now, simulation_event::kind why) {
    progress& p = state_[job.value];
    APIARY_VERIFY(p.speed > 0);
    ends_.cancel(job.value);
    p.done += std::max<tick_t>(0, now - p.since) * p.speed;
    p.speed = 0;
    use(p.gpus, false, now);
    record({why, now, job, {}, p.gpus, p.nodes}, {});
  }
  [[nodiscard]] absl::Status end(job_id job, tick_t now) {
    stop(job, now, simulation_event::kind::end);
    out_.jobs[job.value].ended = now;
    --unended_;
    return scheduler_.finish(job, now);
  }
  [[nodiscard]] absl::Status fail(node_id n, tick_t now) {
    record({simulation_event::kind::failure, now, {}, n}, {});
    APIARY_ASSIGN_OR_RETURN(const std::vector<job_id> stopped, scheduler_.mark_bad(n, now));
    for (const job_id job : stopped) {
      progress& p = state_[job.value];
      stop(job, now, simulation_event::kind::breakdown);
      const std::int64_t step = options_.checkpoint * full_speed;
      const std::int64_t kept = step == 0 ? 0 : p.done / step * step;
      out_.jobs[job.value].lost += (p.done - kept) / full_speed;
      ++out_.jobs[job.value].broken;
      p.done = kept;
    }
    return absl::OkStatus();
  }

  Scheduler& scheduler_;
  std::span<const timed_job> jobs_;
  simulation_options options_;
  Speed& speed_;
  Observer& observe_;
  simulation out_;
  std::vector<progress> state_;
  timer_queue ends_;  // of running jobs
  std::vector<job_action> actions_;
  std::uint64_t used_ = 0;   // GPUs
  std::size_t unended_ = 0;  // jobs that have come and not ended
};

}  // namespace detail

// Runs jobs under a scheduler until all have ended, or nothing more can happen.
//
// At equal times jobs end first, then servers are repaired, then others break, then jobs come; each
// in the order of ids or of the list; then the scheduler decides once. So the events and their digest
// follow from the arguments alone.
//
// speed(job, place) -> std::uint32_t: how fast the job runs there, in thousandths of full speed, not
// 0. observe(event) is called for each event.
//
// Returns kInvalidArgument for jobs that are not numbered by arrival, have a negative time or no
// duration, or for outages that are not in order of `from` or end before they begin; else the first
// error of the scheduler.
// Requires: durations below 2^53 / 1000; no job and no time went through the scheduler before.
// Cost:     O(log jobs running) an event beside the scheduler's own; about 120 bytes a job.
template <JobScheduler Scheduler, class Speed, class Observer>
[[nodiscard]] absl::StatusOr<simulation> simulate(Scheduler& scheduler,
                                                  std::span<const timed_job> jobs,
                                                  std::span<const outage> outages,
                                                  const simulation_options& options, Speed&& speed,
                                                  Observer&& observe) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const timed_job& j = jobs[i];
    if (j.request.job.value == i && j.duration > 0 &&
        j.arrival >= (i == 0 ? 0 : jobs[i - 1].arrival))
      continue;
    return absl::InvalidArgumentError(
        "job " + std::to_string(i) + ": numbered " + std::to_string(j.request.job.value) +
        ", arrival " + std::to_string(j.arrival) + ", duration " + std::to_string(j.duration) +
        "; jobs are numbered by arrival, from time 0, and take time");
  }
  for (std::size_t i = 0; i < outages.size(); ++i) {
    const outage& o = outages[i];
    if (o.from < o.until && o.from >= (i == 0 ? 0 : outages[i - 1].from)) continue;
    return absl::InvalidArgumentError("outage " + std::to_string(i) + ": from " +
                                      std::to_string(o.from) + " until " + std::to_string(o.until) +
                                      "; outages are ordered and take time");
  }
  return detail::simulator(scheduler, jobs, options, speed, observe).run(outages);
}

// The same without failures, everybody at full speed.
template <JobScheduler Scheduler>
[[nodiscard]] absl::StatusOr<simulation> simulate(Scheduler& scheduler,
                                                  std::span<const timed_job> jobs) {
  return simulate(
      scheduler, jobs, {}, {}, [](const timed_job&, const job_place&) { return full_speed; },
      [](const simulation_event&) {});
}

APIARY_NAMESPACE_END
