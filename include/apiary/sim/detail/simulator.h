// apiary/sim/detail/simulator.h - one run of simulate(): the loop over all events.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/timer_queue.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/metric/buddy_fragmentation.h>
#include <apiary/metric/utilization.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/sim/detail/gpu_tenants.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Measures the fraction of idle GPUs that a job as large as the largest server cannot use; 0 while
// no GPU is idle. A server with f idle GPUs counts as a free cell of level f - 1.
// Model: the unusable free space index (metric/buddy_fragmentation.h), averaged over time.
// Cost:  O(1) per change; O(levels) if time has passed since the last call.
class idle_servers {
 public:
  static_assert(placement::max_gpus <= buddy_fragmentation::max_levels);
  // All GPUs are idle at time 0. Requires: at most placement::max_gpus GPUs each.
  explicit idle_servers(std::span<const std::uint32_t> gpus)
      : gpus_(gpus.begin(), gpus.end()), used_(gpus.size()), broken_(gpus.size()) {
    for (const std::uint32_t g : gpus_) {
      APIARY_ASSERT(g <= placement::max_gpus);
      largest_ = (std::max)(largest_, g);
      count(g, true);
    }
  }
  [[nodiscard]] std::size_t num_servers() const noexcept { return gpus_.size(); }
  // The server uses `more` GPUs more (fewer if negative) from `now` on. Requires: it has them.
  void use(node_id n, std::int64_t more, time_ms now) {
    APIARY_VERIFY(n.value < gpus_.size());
    std::uint32_t& used = used_[n.value];
    change(n, now, [&] { used = static_cast<std::uint32_t>(used + more); });
    APIARY_VERIFY(used <= gpus_[n.value]);
  }
  void set_health(node_id n, bool healthy, time_ms now) {
    change(n, now, [&] { broken_[n.value] = !healthy; });
  }
  // The fraction now.
  [[nodiscard]] double share() const noexcept {
    return largest_ == 0 ? 0 : cells_.unusable(static_cast<level_t>(largest_ - 1));
  }
  // The integral of the fraction from 0 to `now`. Requires: `now` is not before the last call's.
  [[nodiscard]] double area(time_ms now) const noexcept {
    return area_ + share() * static_cast<double>(now - now_);
  }

 private:
  [[nodiscard]] std::uint32_t idle(node_id n) const noexcept {  // 0 if the server is broken
    return broken_[n.value] ? 0 : gpus_[n.value] - used_[n.value];
  }
  void count(std::uint32_t idle, bool in) noexcept {
    if (idle == 0) return;
    cells_.free_cells[idle - 1] += in ? 1U : ~0U;
    cells_.free_leaves[idle - 1] = std::uint64_t{cells_.free_cells[idle - 1]} * idle;
  }
  template <class Change>
  void change(node_id n, time_ms now, Change&& make) {
    if (now != now_) {
      area_ = area(now);
      now_ = now;
    }
    count(idle(n), false);
    make();
    count(idle(n), true);
  }

  std::vector<std::uint32_t> gpus_;
  std::vector<std::uint32_t> used_;
  std::vector<bool> broken_;
  std::uint32_t largest_ = 0;
  buddy_fragmentation cells_{};  // without its member `largest`
  double area_ = 0.0;
  time_ms now_ = 0;
};

// kInvalidArgument: as simulate().
[[nodiscard]] inline absl::Status check_simulation(std::span<const timed_job> jobs,
                                                   std::span<const outage> outages,
                                                   const simulation_options& options,
                                                   std::uint32_t total_gpus) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const timed_job& j = jobs[i];
    if (j.request.job.value == i && j.duration >= 0 && j.duration < time_ms{1} << 53 &&
        j.arrival >= (i == 0 ? 0 : jobs[i - 1].arrival))
      continue;
    return absl::InvalidArgumentError(
        "job " + std::to_string(i) + ": numbered " + std::to_string(j.request.job.value) +
        ", arrival " + std::to_string(j.arrival) + ", duration " + std::to_string(j.duration) +
        "; ids must follow the order of arrival, from 0, and durations must be 0 to 2^53 - 1");
  }
  std::map<node_id, time_ms> broken;  // until when each server was last broken
  for (std::size_t i = 0; i < outages.size(); ++i) {
    const outage& o = outages[i];
    if (o.from >= o.until || o.from < (i == 0 ? 0 : outages[i - 1].from)) {
      return absl::InvalidArgumentError(
          "outage " + std::to_string(i) + ": from " + std::to_string(o.from) + " until " +
          std::to_string(o.until) + "; outages must be in order of their begin, and end later");
    }
    time_ms& until = broken[o.node];
    if (o.from < until) {
      return absl::InvalidArgumentError("outage " + std::to_string(i) + ": server " +
                                        std::to_string(o.node.value) + " breaks at " +
                                        std::to_string(o.from) + ", but it is broken until " +
                                        std::to_string(until));
    }
    until = o.until;
  }
  if (options.start_cost < 0)
    return absl::InvalidArgumentError("a start costs " + std::to_string(options.start_cost) +
                                      " ms; it must cost at least 0");
  if (options.checkpoint_interval < 0)
    return absl::InvalidArgumentError("a job saves its progress every " +
                                      std::to_string(options.checkpoint_interval) +
                                      " ms; the interval must be at least 0");
  if (options.migration_cost < 0)
    return absl::InvalidArgumentError("a migration costs " +
                                      std::to_string(options.migration_cost) +
                                      " ms; it must cost at least 0");
  for (std::size_t i = 0; i < options.failures.size(); ++i) {
    const simulation_options::job_failure& f = options.failures[i];
    if (f.job.value < jobs.size() && f.at >= 0 && (i == 0 || options.failures[i - 1].job <= f.job))
      continue;
    return absl::InvalidArgumentError("failure " + std::to_string(i) + ": of job " +
                                      std::to_string(f.job.value) + " at " + std::to_string(f.at) +
                                      "; failures must be in order of jobs below " +
                                      std::to_string(jobs.size()) + ", and at 0 or later");
  }
  const std::vector<std::uint32_t>& servers = options.servers;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    all += servers[i];
    if (servers[i] <= placement::max_gpus) continue;
    return absl::InvalidArgumentError("server " + std::to_string(i) + " has " +
                                      std::to_string(servers[i]) + " GPUs; the limit is " +
                                      std::to_string(placement::max_gpus));
  }
  if (servers.empty() || all == total_gpus) return absl::OkStatus();
  return absl::InvalidArgumentError("the servers have " + std::to_string(all) +
                                    " GPUs; the scheduler has " + std::to_string(total_gpus));
}

// Why the job cannot run on so many GPUs; empty: it can.
[[nodiscard]] inline std::string wrong_gpus(const job_request& r, std::uint64_t gpus) {
  const std::uint32_t most = (std::max)(r.gpus, r.max_gpus);
  if (gpus >= r.gpus && gpus <= most) return {};
  const std::string range = most > r.gpus ? " to " + std::to_string(most) : "";
  return "it asks for " + std::to_string(r.gpus) + range + " GPUs, and `where` has " +
         std::to_string(gpus);
}

// The scheduler, as functions of any JobScheduler, and the functions of the caller of simulate().
struct simulated_calls {
  absl::FunctionRef<absl::Status(const job_request&, time_ms)> submit;
  absl::FunctionRef<absl::Status(job_id, time_ms)> finish;
  // Whether the job waits again; nullopt: the scheduler does not decide that.
  absl::FunctionRef<absl::StatusOr<std::optional<bool>>(job_id, failure_class, time_ms)> fail;
  absl::FunctionRef<absl::StatusOr<std::vector<job_id>>(node_id, time_ms)> mark_bad;
  absl::FunctionRef<absl::Status(node_id, time_ms)> mark_healthy;
  absl::FunctionRef<absl::Status(time_ms, std::vector<job_action>&)> decide;
  absl::FunctionRef<time_ms()> wake;
  // The last argument: the other jobs on the same GPUs; empty if they do not matter.
  absl::FunctionRef<std::uint32_t(const timed_job&, const job_placement&, std::span<const job_id>)>
      speed;
  // With the GPUs that the job has, or had until this event.
  absl::FunctionRef<void(const simulation_event&, const job_placement&)> observe;
};

// One run of simulate().
class simulator {
 public:
  // neighbours_matter: whether the speed of a job depends on the other jobs on its GPUs.
  simulator(const simulated_calls& calls, std::uint32_t total_gpus, std::span<const timed_job> jobs,
            const simulation_options& options, bool neighbours_matter)
      : calls_(calls),
        jobs_(jobs),
        options_(options),
        total_gpus_(total_gpus),
        neighbours_matter_(neighbours_matter),
        idle_(options.servers) {
    out_.jobs.resize(jobs.size());
    state_.resize(jobs.size());
    out_.gpus = utilization(total_gpus);
    const auto& failures = options_.failures;
    if (failures.empty()) return;
    next_failure_.resize(jobs.size(), failures.size());
    unknown_.resize(jobs.size());
    for (std::size_t i = failures.size(); i-- > 0;) next_failure_[failures[i].job.value] = i;
  }

  [[nodiscard]] absl::StatusOr<simulation_result> run(std::span<const outage> outages) {
    std::vector<std::pair<time_ms, std::size_t>> repairs;
    for (std::size_t i = 0; i < outages.size(); ++i) repairs.emplace_back(outages[i].until, i);
    std::sort(repairs.begin(), repairs.end());
    time_ms decided = -1;  // the time of the last decision
    std::size_t arrived = 0;
    std::size_t broken = 0;
    std::size_t repaired = 0;
    while (true) {
      time_ms now = calls_.wake();
      if (now <= decided) {
        return absl::InternalError("the scheduler asks to be called at " + std::to_string(now) +
                                   ", which is not after " + std::to_string(decided));
      }
      if (!ends_.empty()) now = (std::min)(now, ends_.first().at);
      if (arrived < jobs_.size()) now = (std::min)(now, jobs_[arrived].arrival);
      if (broken < outages.size()) now = (std::min)(now, outages[broken].from);
      if (repaired < repairs.size()) now = (std::min)(now, repairs[repaired].first);
      if (now == max_time || now > options_.until || (unended_ == 0 && arrived == jobs_.size()))
        break;
      while (!ends_.empty() && ends_.first().at == now)
        APIARY_RETURN_IF_ERROR(end(job_id(ends_.pop().id), now));
      for (; repaired < repairs.size() && repairs[repaired].first == now; ++repaired) {
        const node_id n = outages[repairs[repaired].second].node;
        APIARY_RETURN_IF_ERROR(calls_.mark_healthy(n, now));
        erase_sorted(broken_, n);
        if (n.value < idle_.num_servers()) idle_.set_health(n, true, now);
        record({simulation_event::kind::repair, now, {}, n}, {});
      }
      for (; broken < outages.size() && outages[broken].from == now; ++broken)
        APIARY_RETURN_IF_ERROR(fail(outages[broken].node, now));
      for (; arrived < jobs_.size() && jobs_[arrived].arrival == now; ++arrived) {
        APIARY_RETURN_IF_ERROR(submit(arrived, now));
        ++unended_;
        record({simulation_event::kind::arrival, now, jobs_[arrived].request.job}, {});
      }
      actions_.clear();
      APIARY_RETURN_IF_ERROR(calls_.decide(now, actions_));
      ++out_.decisions;
      decided = now;
      for (const job_action& action : actions_) {
        APIARY_RETURN_IF_ERROR(check(action, now));
        carry_out(action, now);
      }
      APIARY_RETURN_IF_ERROR(check_shares(now));
      if (neighbours_matter_) change_speeds(now);
    }
    out_.scattered = idle_.area(out_.ended);
    return std::move(out_);
  }

 private:
  // Work is counted in milliseconds at full speed, times full_speed.
  struct progress {
    std::int64_t done = 0;
    time_ms since = 0;  // the job makes progress from this time on
    std::uint32_t speed = 0;
    std::uint32_t gpus = 0;
    job_placement where{};  // empty while the job does not run
  };

  void record(const simulation_event& e, const job_placement& where) {
    ++out_.events;
    out_.ended = e.at;
    out_.log.add(static_cast<std::uint64_t>(e.at)).add(static_cast<std::uint64_t>(e.what));
    out_.log.add(std::uint64_t{e.job.value} << 32 | e.node.value);
    for (const placement& p : where) {
      out_.log.add(std::uint64_t{p.node.value} << 32 | p.gpu_mask);
    }
    calls_.observe(e, e.job.valid() ? state_[e.job.value].where : where);
  }
  void record(simulation_event::kind what, job_id job, time_ms now, const job_placement& where,
              bool retried = false) {
    const progress& p = state_[job.value];
    const auto nodes = static_cast<std::uint32_t>(p.where.size());
    record({what, now, job, {}, p.gpus, nodes, p.speed, p.since, retried}, where);
  }
  // Adds the job to the GPUs of its placement, or removes it from them.
  void occupy(job_id job, bool comes, time_ms now, tenancy how = tenancy::alone) {
    progress& p = state_[job.value];
    p.gpus = 0;
    const auto changed = [&](job_id other) {
      if (neighbours_matter_) new_neighbours_.push_back(other);
    };
    for (const placement& at : p.where) {
      p.gpus += at.num_gpus();
      const std::uint32_t alone =
          comes ? tenants_.put(job, at, how, changed) : tenants_.remove(job, at, how, changed);
      used_ = comes ? used_ + alone : used_ - alone;
      if (idle_.num_servers() > 0)
        idle_.use(at.node, comes ? std::int64_t{alone} : -std::int64_t{alone}, now);
    }
    out_.gpus.set(static_cast<std::uint64_t>(now), used_);
  }
  // The speed of the job on its GPUs, beside the other jobs there.
  [[nodiscard]] std::uint32_t speed_of(job_id job) {
    const job_placement& where = state_[job.value].where;
    neighbours_.clear();
    if (neighbours_matter_) {
      for (const placement& at : where)
        tenants_.others(job, at, [&](job_id other) { neighbours_.push_back(other); });
      sort_unique(neighbours_);
    }
    const std::uint32_t speed = calls_.speed(jobs_[job.value], where, neighbours_);
    APIARY_VERIFY(speed > 0);
    return speed;
  }

  // kInternal: an error of the scheduler.
  [[nodiscard]] static absl::Status wrong(const std::string& what, job_id job, time_ms now,
                                          const std::string& why) {
    return absl::InternalError("the scheduler " + what + " job " + std::to_string(job.value) +
                               " at " + std::to_string(now) + ", but " + why);
  }
  // Whether the action can be carried out.
  [[nodiscard]] absl::Status check(const job_action& action, time_ms now) const {
    using verb = job_action::verb;
    static constexpr const char* names[] = {"starts",   "suspends", "packs",  "unpacks",
                                            "migrates", "grows",    "shrinks"};
    const auto fault = [&](const std::string& why) {
      return wrong(names[static_cast<std::size_t>(action.what)], action.job, now, why);
    };
    if (action.job.value >= jobs_.size() || jobs_[action.job.value].arrival > now)
      return fault("it has not arrived");
    if (out_.jobs[action.job.value].ended != max_time) return fault("it has ended");
    const bool runs = state_[action.job.value].speed > 0;
    if (runs == (action.what == verb::start || action.what == verb::pack))
      return fault(runs ? "it runs already" : "it does not run");
    if (action.what == verb::suspend || action.what == verb::unpack) return absl::OkStatus();
    if (action.where.empty()) return fault("`where` is empty");
    std::uint64_t gpus_there = 0;
    for (const placement& at : action.where) {
      const std::vector<std::uint32_t>& servers = options_.servers;
      if (!at.node.valid() || (!servers.empty() && at.node.value >= servers.size()))
        return fault("there is no server " + std::to_string(at.node.value));
      const std::uint32_t gpus = servers.empty() ? placement::max_gpus : servers[at.node.value];
      if (at.gpu_mask == 0 || std::uint64_t{at.gpu_mask} >> gpus != 0)
        return fault("server " + std::to_string(at.node.value) + " has no GPUs " +
                     std::to_string(at.gpu_mask) + " (as bits)");
      if (std::binary_search(broken_.begin(), broken_.end(), at.node))
        return fault("server " + std::to_string(at.node.value) + " is broken");
      gpus_there += at.num_gpus();
    }
    const std::string why = wrong_gpus(jobs_[action.job.value].request, gpus_there);
    return why.empty() ? absl::OkStatus() : fault(why);
  }
  // Whether the decision has given GPUs twice, or more of them than there are.
  [[nodiscard]] absl::Status check_shares(time_ms now) {
    if (const std::optional<gpu_tenants::conflict> twice = tenants_.check())
      return wrong("gives GPUs to", twice->job, now, twice->text());
    if (used_ <= total_gpus_) return absl::OkStatus();
    return absl::InternalError("the scheduler uses " + std::to_string(used_) + " GPUs at " +
                               std::to_string(now) + ", but it has " + std::to_string(total_gpus_));
  }
  // Requires: check().
  void carry_out(const job_action& action, time_ms now) {
    using verb = job_action::verb;
    simulation_result::job_record& r = out_.jobs[action.job.value];
    switch (action.what) {
      case verb::start:
      case verb::pack:
        return start(action, now);
      case verb::suspend:
      case verb::unpack:
        ++r.suspended;
        return stop(action.job, now, simulation_event::kind::suspension);
      case verb::migrate:
        ++r.migrated;
        return go_on(action, now, options_.migration_cost, simulation_event::kind::migration);
      case verb::grow:
      case verb::shrink:
        ++r.resized;
        return go_on(action, now, options_.start_cost, simulation_event::kind::resize);
    }
  }
  [[nodiscard]] absl::Status submit(std::size_t job, time_ms now) {
    job_request r = jobs_[job].request;
    const time_ms kept = r.estimate == max_time ? 0 : state_[job].done / full_speed;
    if (r.estimate >= 0)
      r.estimate = add_time((std::max<time_ms>)(0, r.estimate - kept), options_.start_cost);
    return calls_.submit(r, now);
  }
  // The failure that the job has before its end; null: none.
  [[nodiscard]] const simulation_options::job_failure* next_failure(job_id job) const {
    if (next_failure_.empty()) return nullptr;
    const std::size_t at = next_failure_[job.value];
    if (at == options_.failures.size()) return nullptr;
    const simulation_options::job_failure& f = options_.failures[at];
    return f.job == job && f.at < jobs_[job.value].duration ? &f : nullptr;
  }
  // Adds up the work done until now. From now on the job runs at `speed`, after `pause`.
  void set_speed(job_id job, std::uint32_t speed, time_ms pause, time_ms now) {
    progress& p = state_[job.value];
    p.done += (std::max<time_ms>)(0, now - p.since) * p.speed;
    p.since = (std::max)(p.since, add_time(now, pause));
    p.speed = speed;
    const simulation_options::job_failure* const failure = next_failure(job);
    const time_ms until = failure != nullptr ? failure->at : jobs_[job.value].duration;
    const std::int64_t left = (std::max<std::int64_t>)(0, until * full_speed - p.done);
    ends_.set(job.value, add_time(p.since, (left + speed - 1) / speed));
  }
  void start(const job_action& action, time_ms now) {
    progress& p = state_[action.job.value];
    simulation_result::job_record& r = out_.jobs[action.job.value];
    APIARY_VERIFY(p.speed == 0 && r.ended == max_time);
    p.where = action.where;
    const bool packed = action.what == job_action::verb::pack;
    occupy(action.job, true, now, packed ? tenancy::shared : tenancy::alone);
    p.since = now;
    set_speed(action.job, speed_of(action.job), options_.start_cost, now);
    if (r.started == max_time) r.started = now;
    r.waited += action.waited;
    record(simulation_event::kind::start, action.job, now, action.where);
  }
  void go_on(const job_action& action, time_ms now, time_ms pause, simulation_event::kind what) {
    progress& p = state_[action.job.value];
    APIARY_VERIFY(p.speed > 0);
    const auto how = what == simulation_event::kind::resize ? tenancy::resized : tenancy::shared;
    occupy(action.job, false, now, how);
    p.where = action.where;
    occupy(action.job, true, now, how);
    set_speed(action.job, speed_of(action.job), pause, now);
    record(what, action.job, now, action.where);
  }
  // Gives a new speed to the jobs whose neighbours on their GPUs changed.
  void change_speeds(time_ms now) {
    sort_unique(new_neighbours_);
    for (const job_id job : new_neighbours_) {
      if (state_[job.value].speed == 0) continue;
      const std::uint32_t speed = speed_of(job);
      if (speed == state_[job.value].speed) continue;
      set_speed(job, speed, 0, now);
      record(simulation_event::kind::speed_change, job, now, {});
    }
    new_neighbours_.clear();
  }
  void stop(job_id job, time_ms now, simulation_event::kind why, bool retried = false) {
    progress& p = state_[job.value];
    APIARY_VERIFY(p.speed > 0);
    ends_.cancel(job.value);
    p.done += (std::max<time_ms>)(0, now - p.since) * p.speed;
    p.speed = 0;
    occupy(job, false, now);
    record(why, job, now, {}, retried);
    p.where.clear();
  }
  // The job has done all its work, or has come to its next failure.
  [[nodiscard]] absl::Status end(job_id job, time_ms now) {
    const simulation_options::job_failure* const failure = next_failure(job);
    if (failure != nullptr) return fail(job, *failure, now);
    stop(job, now, simulation_event::kind::end);
    out_.jobs[job.value].ended = now;
    --unended_;
    return calls_.finish(job, now);
  }
  [[nodiscard]] absl::Status fail(job_id job, const simulation_options::job_failure& failure,
                                  time_ms now) {
    APIARY_ASSIGN_OR_RETURN(const std::optional<bool> decided, calls_.fail(job, failure.why, now));
    const bool retried = decided.value_or(is_retried(failure));
    stop(job, now, simulation_event::kind::job_failure, retried);
    if (!decided) APIARY_RETURN_IF_ERROR(calls_.finish(job, now));
    simulation_result::job_record& r = out_.jobs[job.value];
    ++r.failed;
    if (!retried) {
      r.given_up = true;
      r.ended = now;
      --unended_;
      return absl::OkStatus();
    }
    unknown_[job.value] += failure.why == failure_class::unknown ? 1U : 0U;
    ++next_failure_[job.value];
    lose_work(job);
    return decided ? absl::OkStatus() : submit(job.value, now);
  }
  // Whether the job is submitted again after this failure, its next one.
  [[nodiscard]] bool is_retried(const simulation_options::job_failure& failure) const {
    if (failure.why != failure_class::unknown) return failure.why == failure_class::transient;
    return unknown_[failure.job.value] < options_.max_retries;
  }
  // The job loses the work since its last checkpoint.
  void lose_work(job_id job) {
    progress& p = state_[job.value];
    const time_ms interval = (std::min)(options_.checkpoint_interval, max_time / full_speed);
    const std::int64_t step = interval * full_speed;
    const std::int64_t kept = step == 0 ? 0 : p.done / step * step;
    out_.jobs[job.value].lost += (p.done - kept) / full_speed;
    p.done = kept;
  }
  [[nodiscard]] absl::Status fail(node_id n, time_ms now) {
    record({simulation_event::kind::failure, now, {}, n}, {});
    APIARY_ASSIGN_OR_RETURN(const std::vector<job_id> stopped, calls_.mark_bad(n, now));
    if (n.value < idle_.num_servers()) idle_.set_health(n, false, now);
    for (const job_id job : stopped) {
      if (job.value >= jobs_.size() || state_[job.value].speed == 0)
        return wrong("stops", job, now, "it does not run");
      stop(job, now, simulation_event::kind::breakdown);
      ++out_.jobs[job.value].broken;
      lose_work(job);
    }
    insert_sorted(broken_, n);
    if (const job_id left = tenants_.any_on(n); left.valid())
      return wrong("does not stop", left, now, "server " + std::to_string(n.value) + " is broken");
    return absl::OkStatus();
  }

  simulated_calls calls_;
  std::span<const timed_job> jobs_;
  simulation_options options_;
  std::uint64_t total_gpus_;
  bool neighbours_matter_;
  idle_servers idle_;
  simulation_result out_;
  std::vector<progress> state_;
  timer_queue ends_;  // when running jobs end
  std::vector<job_action> actions_;
  gpu_tenants tenants_;
  std::vector<node_id> broken_;            // servers, ascending
  std::vector<job_id> new_neighbours_;     // jobs whose neighbours changed
  std::vector<job_id> neighbours_;         // scratch
  std::vector<std::size_t> next_failure_;  // of each job; empty: no job fails
  std::vector<std::uint32_t> unknown_;     // failures of unknown kind that each job has had
  std::uint64_t used_ = 0;                 // GPUs
  std::size_t unended_ = 0;                // jobs that arrived and have not ended
};

}  // namespace detail
APIARY_NAMESPACE_END
