// apiary/gandiva/time_sharing.h - runs jobs in time slices and migrates them, with any placer.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/queue/book.h>
#include <apiary/queue/kinds.h>
#include <apiary/queue/stop.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of time_sharing.
struct time_sharing_options {
  // Limits on the migrations of one decision.
  struct migration_limits {
    std::uint32_t jobs = 1;  // at most so many jobs migrate; 0: none
    std::uint32_t cost = 0;  // thousandths a GPU; a migration must lower the measure by more
    // Jobs that are tried, round robin; a BestMigrationPlacer looks at all jobs.
    std::uint32_t trials = 4;
  };
  // Options of one job.
  struct job_options {
    std::uint32_t weight = 1;  // the job gets time in proportion to it: 1, ..., 1000
    bool movable = true;       // whether the job may be migrated
  };
  time_ms quantum = 600'000;      // ms of a time slice; max_time: no job stops for another one
  migration_limits migrations{};  // limits on the migrations of one decision
  std::uint32_t max_wait = 10;    // a job starves after so many quanta; 0: never, as published
  // Jobs of whole GPUs share GPU-time: a job of g GPUs counts as one of weight 1000 * weight / g,
  // rounded down, but at least 1. False: jobs share time, whatever their GPUs, as published.
  bool shares_gpu_time = true;
};

// Runs jobs in time slices on what a placer places, and migrates them. For a JobPlacer it is a
// JobScheduler. gandiva_fgd, gandiva_hived, gandiva_gangs and gandiva_tasks are instances.
//
// A job that arrives starts at once if it fits. At each quantum, jobs that ran longer (relative to
// their weights) stop for jobs that ran less. The module's page says what a decision does.
//
// Guaranteed jobs (see GuaranteeingPlacer) start as soon as the placer can, by priority, then
// arrival, then id, and stop the jobs in their way. If they are jobs of whole GPUs, they run in
// time slices until then, as the same request with priority -1; such a job stays in its time slice
// when the placer could start it, until it is suspended.
// Causes:   a guaranteed job waits for quota while its tenant has fewer free GPUs than the job asks
//           for; another job waits for capacity while fewer GPUs are idle; else fragmentation.
// Model:    "Gandiva" (OSDI 2018), §3.2: suspend and resume, migration. Differs: time is shared
//           over the whole cluster by stride scheduling, not on each server by round robin; jobs
//           that starve come first.
// Bound:    a sliced job that would fit if no other sliced job ran waits at most max_wait + 2 + n
//           quanta, if n sliced jobs wait when it begins to wait; none if max_wait is 0.
// Requires: decide() is called at wake(), and after each moment at which a job was submitted or
//           ended or a node broke or was repaired.
// Cost:     O(log jobs) a call, and O(distinct weights + kinds that wait) for a job that arrives
//           (see Placer). decide: a proposal for each new job, the trials of migrations; if GPUs
//           became idle, a proposal for each kind that may fit. The first one of a quantum: for
//           each job that displaces others, and each kind that cannot, stops, starts and O(log
//           jobs) for each job that ran longer (or runs).
// Example:  examples/gandiva_gangs.cpp, examples/gandiva_tasks.cpp, examples/programs/simulate.cpp
template <Placer P>
class time_sharing {
  static constexpr bool has_owners = GuaranteeingPlacer<P>;
  static constexpr bool owners_share = has_owners && JobPlacer<P>;

 public:
  using request = typename P::request;                    // what jobs ask for
  using placement_type = typename P::placement_type;      // where they run
  using job_options = time_sharing_options::job_options;  // what the host says of one job
  // What the host must do; job_action for a JobPlacer.
  using action = std::conditional_t<JobPlacer<P>, job_action,
                                    detail::time_sharing_action<typename P::placement_type>>;
  // What a job does.
  enum class phase : std::uint8_t {
    wait,        // it does not run
    guaranteed,  // it runs as a guaranteed job
    sliced,      // it runs in a time slice
  };
  // All times are below this one.
  static constexpr time_ms end_of_time = detail::slice_end_of_time;

  // kInvalidArgument: a quantum not above 0. kFailedPrecondition: not all GPUs of the placer are
  // idle on healthy servers.
  [[nodiscard]] static absl::StatusOr<time_sharing> create(P placer,
                                                           const time_sharing_options& options) {
    APIARY_RETURN_IF_ERROR(detail::check_period("quantum", options.quantum));
    if (placer.idle_gpus() == placer.total_gpus()) return time_sharing(std::move(placer), options);
    return absl::FailedPreconditionError(
        "jobs run on the placer that were not submitted here, or a server is bad");
  }
  // Each call returns kInvalidArgument for a time before that of another call, or not below
  // end_of_time. An error changes nothing, unless decide(), or a submit() that starts jobs, returns
  // one of the placer.

  // A job arrives. kInvalidArgument: no job id, a weight that is not in 1, ..., 1000, or as the
  // placer's check(), whose other errors are returned, too. kAlreadyExists: the job exists.
  [[nodiscard]] absl::Status submit(const request& r, time_ms now) {
    if constexpr (JobPlacer<P>) return add(r, {.weight = r.weight}, now);
    return add(r, {}, now);
  }
  // The same. The job, and the others that have arrived, start at once if they fit; appends what
  // the host must do now, as decide().
  absl::Status submit(const request& r, const job_options& options, time_ms now,
                      std::vector<action>& actions) {
    APIARY_RETURN_IF_ERROR(add(r, options, now));
    APIARY_RETURN_IF_ERROR(admit());
    report(actions);
    return absl::OkStatus();
  }
  // The job has ended or is cancelled. kNotFound: there is no such job.
  absl::Status finish(job_id job, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    now_ = now;
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r));
    } else {
      leave_queues(*r);
    }
    if (r->acted) std::erase(acted_, job);  // decide() failed
    jobs_.forget(job);
    return absl::OkStatus();
  }
  // The node is broken: its jobs stop, arrive again and are returned, ascending. kNotFound: there
  // is no such node.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    const time_ms before = std::exchange(now_, now);
    absl::StatusOr<std::vector<job_id>> stopped = jobs_.mark_bad(n, [&](record& r) -> absl::Status {
      APIARY_RETURN_IF_ERROR(stop(r));
      r.told.reset();
      arrive(r);
      return absl::OkStatus();
    });
    if (!stopped.ok()) now_ = before;
    if (stopped.ok() && jobs_.servers_changed()) retry_all();
    return stopped;
  }
  // The node is repaired. kNotFound: there is no such node.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    APIARY_RETURN_IF_ERROR(mark_healthy(n));
    now_ = now;
    return absl::OkStatus();
  }
  // The node gets no new job; its jobs run until the host calls finish(). kNotFound: no such node.
  absl::Status mark_bad(node_id n) requires(!JobPlacer<P>) {
    retry_all();
    return jobs_.placer().mark_bad(n);
  }
  // The same as mark_healthy(n, now).
  absl::Status mark_healthy(node_id n) {
    APIARY_RETURN_IF_ERROR(jobs_.mark_healthy(n));
    retry_all();
    return absl::OkStatus();
  }

  // Appends what the host must do, in order, at most one action a job: for jobs of whole GPUs all
  // suspensions, then migrations, then starts. The scheduler has applied it already. An error of
  // the placer ends the decision. The jobs that started before it run, and the next call that
  // succeeds appends their actions. Each call fails in the same way while the placer returns this
  // error and the host does not finish() its job.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<action>& actions) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    now_ = now;
    if constexpr (owners_share) APIARY_RETURN_IF_ERROR(start_owners());
    APIARY_RETURN_IF_ERROR(admit());
    const absl::StatusOr<bool> moved = tick();
    end_step();
    APIARY_RETURN_IF_ERROR(moved.status());
    again_ = *moved || (!sliced().empty() && !running_.empty());  // else a slice changes nothing
    if constexpr (owners_share) {
      APIARY_RETURN_IF_ERROR(start_owners());
      APIARY_RETURN_IF_ERROR(admit());
    }
    report(actions);
    if constexpr (JobPlacer<P>) {
      sliced().end_round(idle_gpus(), delay_cause::fragmentation, now);
      if constexpr (has_owners) {
        const auto cause = [&](const typename P::kind& kind, bool) {
          return kind.gpus > placer().entitled_gpus(kind.tenant) ? delay_cause::quota
                                                                 : delay_cause::fragmentation;
        };
        owners_.set_causes(cause, now);
      }
    }
    return absl::OkStatus();
  }
  // When decide() must be called although nothing happens: at the next quantum while a job waits
  // for a time slice, or if the last decision migrated a job; in the next millisecond while a job
  // waits that may fit because that decision suspended or migrated jobs.
  [[nodiscard]] time_ms wake() const noexcept {
    if ((retry_sliced_ && !sliced().empty()) || (retry_owners_ && !owners_.empty()))
      return now_ + 1;
    if (!again_ || options_.quantum == max_time) return max_time;
    return add_time(now_ / options_.quantum * options_.quantum, options_.quantum);
  }

  // Whether the job would start if it were submitted now: a guaranteed one by right, not in a time
  // slice. Requires: no job of its id runs.
  [[nodiscard]] bool may_start(const request& r) {
    if (!r.job.valid() || !jobs_.placer().check(r).ok()) return false;
    if constexpr (has_owners) {
      const auto answer = jobs_.placer().propose_preempting(r);
      return answer.ok() && answer->result != plan_result::wait;
    }
    const auto where = jobs_.placer().propose(r);
    return where.ok() && where->has_value();
  }
  // What the job does; nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const record* const r = jobs_.look_up(job);
    if (r == nullptr) return std::nullopt;
    if (!r->running) return phase::wait;
    return r->entitled ? phase::guaranteed : phase::sliced;
  }
  // Where the job runs. Requires: it runs.
  [[nodiscard]] const placement_type& placement_of(job_id job) const {
    const record* const r = jobs_.look_up(job);
    APIARY_VERIFY(r != nullptr && r->running);
    return r->where;
  }
  // How long the job ran until the last call, divided by its weight (see shares_gpu_time), in units
  // of 1/0xfffff ms. A new job starts with the lowest pass of all jobs. Requires: there is such a
  // job.
  [[nodiscard]] std::int64_t pass(job_id job) const {
    const record* const r = jobs_.look_up(job);
    APIARY_VERIFY(r != nullptr);
    return pass_of(*r);
  }
  // Jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  // Jobs that wait.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.size() - num_running_; }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const { return placer().total_gpus(); }
  // Idle GPUs on healthy servers.
  [[nodiscard]] std::uint32_t idle_gpus() const { return placer().idle_gpus(); }
  // Where the jobs run.
  [[nodiscard]] const P& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : booked_job<P> {
    bool movable = true;
    bool owner = false;        // a guaranteed job
    bool entitled = false;     // it runs as one
    bool fresh = false;        // it started in this step, see end_step()
    bool acted = false;        // it is in acted_
    bool ran = false;          // ever, as the host knows
    std::uint32_t weight = 1;  // by which its time is divided
    std::int32_t priority = 0;
    std::uint64_t position = 0;  // in arrived_; 0: it is not there
    std::int64_t pass = 0;       // without its present run
    time_ms arrival = 0;
    time_ms since = 0;                     // when it last began to run, or to wait for a slice
    typename P::kind by_right{};           // its kind in owners_
    delays by_right_entered{};             // the clock of this kind when it began to wait
    placement_type where{};                // where it runs, or last ran
    std::optional<placement_type> told{};  // where it runs as the host knows
    delays waited{};                       // of the current wait, in earlier queues
  };
  using waits = std::set<std::pair<time_ms, job_id>>;
  time_sharing(P placer, const time_sharing_options& options)
      : jobs_(std::move(placer)), options_(options) {}
  // The waiting jobs that run in time slices, by pass.
  [[nodiscard]] auto& sliced() noexcept { return jobs_.queues(); }
  [[nodiscard]] const auto& sliced() const noexcept { return jobs_.queues(); }
  [[nodiscard]] std::int64_t pass_of(const record& r) const noexcept {
    return r.running ? r.pass + detail::slice_pass(now_ - r.since, r.weight) : r.pass;
  }
  [[nodiscard]] std::int64_t least_pass() const {
    const std::optional<std::int64_t> runs = running_.least(now_);
    const std::optional<std::int64_t> next = sliced().least();
    return (std::min)(runs.value_or(next.value_or(0)), next.value_or(runs.value_or(0)));
  }

  absl::Status add(const request& r, const job_options& options, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    APIARY_RETURN_IF_ERROR(detail::check_slice_weight(r.job, options.weight));
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, max_time));
    now_ = added->arrival = now;
    added->movable = options.movable && options_.migrations.jobs > 0;
    added->weight = options.weight;
    if constexpr (std::same_as<request, job_request>) {
      if (options_.shares_gpu_time) added->weight = detail::gpu_time_weight(options.weight, r.gpus);
    }
    if constexpr (has_owners) {
      added->priority = r.priority;
      added->owner = added->priority >= 0;
      added->by_right = added->kind;
      entitle(*added, false);
      if constexpr (owners_share) added->kind = placer().kind_of(added->request);
    }
    arrive(*added);
    return absl::OkStatus();
  }
  // What the job asks for from now on: to run by right, or in a time slice.
  void entitle(record& r, bool by_right) noexcept {
    r.entitled = by_right;
    if constexpr (owners_share) r.request.priority = by_right ? r.priority : -1;
  }
  // The job will be tried by admit().
  void arrive(record& r) {
    if (owners_share && r.owner) wait_by_right(r);
    r.position = ++last_position_;
    arrived_.emplace(r.position, r.request.job);
  }
  void wait_by_right(record& r) {
    r.by_right_entered = owners_.enter(r.by_right, r.request.job, owner_key(r), max_time, now_);
    retry_owners_ = retry_owners_ || owners_share;
  }
  // By priority, then arrival.
  [[nodiscard]] static std::int64_t owner_key(const record& r) noexcept {
    return r.arrival - r.priority * end_of_time;
  }
  // The job that does not run, and has arrived before, waits for a slice, or to start by right.
  void wait(record& r) {
    if (!owners_share && r.owner) return wait_by_right(r);
    r.since = now_;
    r.key = r.pass;
    jobs_.wait(r, now_);
    waits_.emplace(now_, r.request.job);
  }
  // The job waits in no queue any more. Requires: it did.
  void leave_queues(record& r) {
    const bool arrived = r.position != 0;
    if (arrived) arrived_.erase(std::exchange(r.position, 0));
    if (r.owner && (owners_share || !arrived)) {
      r.waited += owners_.leave(r.by_right, r.request.job, owner_key(r), r.by_right_entered, now_);
    }
    if (arrived || (r.owner && !owners_share)) return;
    waits_.erase({r.since, r.request.job});
    const delays waited = jobs_.leave(r, now_);
    if (!r.owner) r.waited += waited;
  }

  void act(record& r) {
    if (!std::exchange(r.acted, true)) acted_.push_back(r.request.job);
  }
  // The placer runs the job at `where` from now on. Requires: it waited.
  void begun(record& r, placement_type where) {
    leave_queues(r);
    r.where = std::move(where);
    r.since = now_;
    r.fresh = true;
    fresh_.push_back(r.request.job);
    ++num_running_;
    used_ += r.kind.gpus;
    if (!r.entitled) {
      running_.insert(r.request.job, r.weight, r.pass, now_);
    } else if (!owners_share) {
      retry_owners_ = true;  // it may hold more than it needs
    }
    act(r);
  }
  // The placer does not run the job any more. It waits in no queue yet.
  void ended(record& r) {
    if (!r.entitled) running_.erase(r.request.job, r.weight, r.pass, r.since);
    r.pass += detail::slice_pass(now_ - r.since, r.weight);
    movable_.erase(r.request.job);
    --num_running_;
    used_ -= r.kind.gpus;
    became_idle(r);
    entitle(r, false);
  }
  [[nodiscard]] absl::Status stop(record& r) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    ended(r);
    return absl::OkStatus();
  }
  // Jobs may fit on GPUs that this one had: a guaranteed job of whole GPUs only if it is of the
  // same tenant and this one had them by right, or if servers are bad.
  void became_idle(const record& r) {
    retry_sliced_ = true;
    if constexpr (owners_share) {
      if (used_ + idle_gpus() < total_gpus()) return retry_all();
      if (!r.entitled) return;
      owners_.retry([&](const auto& kind) { return kind.tenant == r.request.tenant; });
    }
    retry_owners_ = true;
  }
  // All jobs may fit.
  void retry_all() {
    retry_sliced_ = retry_owners_ = true;
    owners_.retry([](const auto& /*kind*/) { return true; });
  }
  // The job, which the placer does not run any more, waits: from the end of this step on.
  void suspend(record& r) {
    const bool arrives = owners_share && r.entitled;
    ended(r);
    if (arrives) {
      arrive(r);
    } else {
      suspended_.push_back(r.request.job);
    }
    act(r);
  }
  // Ends a step: a tick, or the start of one job before or after it. Jobs that started may migrate
  // or be suspended from now on, and those that were suspended may start.
  void end_step() {
    for (const job_id job : fresh_) {
      record& r = jobs_[job];
      r.fresh = false;
      if (r.running && r.movable) movable_.insert(job);
    }
    fresh_.clear();
    for (const job_id job : suspended_) {
      record& r = jobs_[job];
      if (owners_share && r.owner) wait_by_right(r);
      wait(r);
    }
    if (!suspended_.empty()) retry_sliced_ = true;
    suspended_.clear();
  }

  // Starts a job that waits, without stopping others. Returns whether it runs.
  [[nodiscard]] absl::StatusOr<bool> start(record& r) {
    if (r.kind.gpus > idle_gpus()) return false;
    APIARY_ASSIGN_OR_RETURN(std::optional<placement_type> where, jobs_.propose(r));
    if (!where) return false;
    APIARY_RETURN_IF_ERROR(jobs_.put(r, *where));
    begun(r, *std::move(where));
    return true;
  }
  // Starts a guaranteed job that waits; the jobs in its way stop. Returns whether it runs.
  [[nodiscard]] absl::StatusOr<bool> start_by_right(record& r) requires has_owners {
    entitle(r, true);
    auto answer = jobs_.placer().propose_preempting(r.request);
    if (!answer.ok() || answer->result == plan_result::wait) {
      entitle(r, false);
      APIARY_RETURN_IF_ERROR(answer.status());
      return false;
    }
    if (answer->result == plan_result::preempt) {
      APIARY_VERIFY(jobs_.placer().reserve(r.request.job).ok());
      const std::vector<job_id> victims = std::move(answer->victims);
      answer = place_after(jobs_.placer(), r.request, victims, [&](job_id victim) {
        APIARY_VERIFY(jobs_.stop(jobs_[victim]).ok());
        suspend(jobs_[victim]);
        return absl::OkStatus();
      });
      APIARY_VERIFY(answer.ok());
    }
    APIARY_VERIFY(answer->result == plan_result::bind && jobs_.put(r, answer->where).ok());
    begun(r, std::move(answer->where));
    return true;
  }
  // Starts the guaranteed jobs that can start by right.
  [[nodiscard]] absl::Status start_owners() requires has_owners {
    if (!std::exchange(retry_owners_, false)) return absl::OkStatus();
    if (!owners_share) owners_.begin_round();
    while (const auto first = owners_.first()) {
      const absl::StatusOr<bool> runs = start_by_right(jobs_[first->job]);
      if (!runs.ok()) retry_owners_ = true;
      APIARY_RETURN_IF_ERROR(runs.status());
      if (!*runs) {
        owners_.fail(first->kind);
      } else if (owners_share) {
        end_step();
        retry_owners_ = false;  // the jobs that may fit now are those of this loop
      }
    }
    return absl::OkStatus();
  }
  // Tries to start the jobs that have arrived; those that do not fit wait.
  [[nodiscard]] absl::Status admit() {
    while (!arrived_.empty()) {
      record& r = jobs_[arrived_.begin()->second];
      r.pass = least_pass();
      bool runs = false;
      if constexpr (has_owners && !owners_share) {
        APIARY_ASSIGN_OR_RETURN(runs, r.owner ? start_by_right(r) : start(r));
      } else {
        APIARY_ASSIGN_OR_RETURN(runs, start(r));
      }
      if (!runs) {
        arrived_.erase(std::exchange(r.position, 0));
        wait(r);
      }
      end_step();
    }
    return absl::OkStatus();
  }

  // Starts waiting jobs, at a new quantum in place of jobs that ran longer, and migrates jobs.
  // Returns whether any migrated.
  [[nodiscard]] absl::StatusOr<bool> tick() {
    const bool new_slice = options_.quantum != max_time && now_ / options_.quantum != slice_;
    slice_ = now_ / options_.quantum;
    if constexpr (has_owners && !owners_share) APIARY_RETURN_IF_ERROR(start_owners());
    APIARY_RETURN_IF_ERROR(run_slices(new_slice));
    APIARY_ASSIGN_OR_RETURN(const bool moved, migrate());
    if (moved) APIARY_RETURN_IF_ERROR(run_slices(false));
    return moved;
  }
  [[nodiscard]] absl::Status run_slices(bool new_slice) {
    if (sliced().empty() || (!std::exchange(retry_sliced_, false) && !new_slice))
      return absl::OkStatus();
    std::optional<std::vector<job_id>> others;  // that run, the one that ran longest first
    sliced().begin_round();
    const auto try_to_run = [&](record& r, bool starves) -> absl::Status {
      APIARY_ASSIGN_OR_RETURN(bool runs, start(r));
      if (!runs && new_slice) {
        if (!others) others = running_.descending(now_);
        APIARY_ASSIGN_OR_RETURN(runs, displace(r, starves, *others));
      }
      if (!runs) sliced().fail(r.kind);  // a later one may stop fewer others, and fails, too
      return absl::OkStatus();
    };
    if (new_slice) {
      const time_ms max_wait = detail::starving_time(options_.max_wait, options_.quantum);
      std::vector<job_id> starving;
      for (const auto& [since, job] : waits_) {
        if (since > now_ - max_wait) break;
        starving.push_back(job);
      }
      for (const job_id job : starving) {
        record& r = jobs_[job];
        if (!sliced().failed(r.kind)) APIARY_RETURN_IF_ERROR(try_to_run(r, true));
      }
    }
    constexpr std::uint32_t any = (std::numeric_limits<std::uint32_t>::max)();
    while (const auto next = sliced().first_that_may(new_slice ? any : idle_gpus()))
      APIARY_RETURN_IF_ERROR(try_to_run(jobs_[next->job], false));
    return absl::OkStatus();
  }
  // Suspends jobs that ran longer, or `any`, but none that started in this step, so that this job
  // can run; none if it cannot run even then. Returns whether it runs.
  [[nodiscard]] absl::StatusOr<bool> displace(record& r, bool any,
                                              const std::vector<job_id>& others) {
    // The first job from job i on that may stop; i is behind it afterwards.
    const auto next = [&](std::size_t& i) -> record* {
      while (i < others.size()) {
        record& other = jobs_[others[i]];
        if (!any && pass_of(other) <= r.pass) break;
        ++i;
        if (other.running && !other.fresh) return &other;
      }
      return nullptr;
    };
    std::size_t at = 0;
    for (std::int64_t gpus = idle_gpus(); gpus < r.kind.gpus;) {
      const record* const other = next(at);
      if (other == nullptr) return false;
      gpus += other->kind.gpus;
    }
    at = 0;
    auto place = stop_until_fits(
        [&] {
          const record* const other = next(at);
          return other == nullptr ? job_id() : other->request.job;
        },
        [&](job_id job) { return jobs_.stop(jobs_[job]); },
        [&]() -> absl::StatusOr<std::optional<placement_type>> {
          if (r.kind.gpus > idle_gpus()) return std::nullopt;
          return jobs_.propose(r);
        },
        [&](const placement_type& where) { return jobs_.put(r, where); },
        [&](job_id job) { return jobs_.put(jobs_[job], jobs_[job].where); });
    for (const job_id job : place.stopped) suspend(jobs_[job]);
    APIARY_RETURN_IF_ERROR(place.where.status());
    if (!*place.where) return false;
    begun(r, **std::move(place.where));
    return true;
  }

  // Returns whether any job migrated.
  [[nodiscard]] absl::StatusOr<bool> migrate() {
    const std::uint32_t limit = options_.migrations.jobs;
    std::uint32_t moved = 0;
    if constexpr (MeasuredPlacer<P>) {
      auto at = movable_.lower_bound(next_);
      const std::size_t trials =
          (std::min<std::size_t>)(options_.migrations.trials, movable_.size());
      for (std::size_t i = 0; i < trials && moved < limit; ++i) {
        if (at == movable_.end()) at = movable_.begin();
        record& r = jobs_[*at];
        next_ = job_id(at->value + 1);
        ++at;
        APIARY_ASSIGN_OR_RETURN(const bool moves, try_migration(r));
        if (moves) ++moved;
      }
    } else if constexpr (BestMigrationPlacer<P>) {
      std::vector<typename P::running_request> jobs;
      for (const job_id job : movable_) jobs.push_back({jobs_[job].request, jobs_[job].where});
      for (; moved < limit; ++moved) {
        const auto best = jobs_.placer().best_migration(jobs, options_.migrations.cost);
        if (!best) break;
        record& r = jobs_[jobs[best->task].task.job];
        jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(best->task));
        APIARY_RETURN_IF_ERROR(jobs_.stop(r));
        APIARY_VERIFY(jobs_.put(r, best->to).ok());
        migrated(r, best->to);
      }
    }
    return moved > 0;
  }
  void migrated(record& r, placement_type to) {
    r.where = std::move(to);
    act(r);
    became_idle(r);
  }
  // Migrates the job if that gains enough. Returns whether it did.
  [[nodiscard]] absl::StatusOr<bool> try_migration(record& r) requires MeasuredPlacer<P> {
    const job_id job = r.request.job;
    const auto pays = [&](const P& without, const std::optional<placement_type>& to) {
      return to && without.gain(r.request, r.where, *to) > options_.migrations.cost;
    };
    if (!placer().may_migrate(job)) return false;
    if (r.entitled) {  // to come back might change what it holds: try it on a copy
      P trial = placer();
      APIARY_RETURN_IF_ERROR(trial.finish(job));
      APIARY_ASSIGN_OR_RETURN(const auto to, trial.propose(r.request));
      if (!pays(trial, to)) return false;
    }
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    absl::StatusOr<std::optional<placement_type>> to = jobs_.propose(r);
    const bool moves = to.ok() && pays(placer(), *to);
    APIARY_VERIFY(jobs_.put(r, moves ? **to : r.where).ok());
    APIARY_RETURN_IF_ERROR(to.status());
    if (moves) migrated(r, **std::move(to));
    return moves;
  }

  // Appends an action for each job whose state differs from what the host knows.
  void report(std::vector<action>& actions) {
    using verb = typename action::verb;
    const auto first = static_cast<std::ptrdiff_t>(actions.size());
    for (const job_id job : acted_) {
      record& r = jobs_[job];
      r.acted = false;
      const bool ran = r.told.has_value();
      if (r.running ? ran && *r.told == r.where : !ran) continue;
      action& a = actions.emplace_back();
      a.job = job;
      a.what = !r.running ? verb::suspend : ran ? verb::migrate : verb::start;
      r.told.reset();
      if (!r.running) continue;
      r.told = a.where = r.where;
      if constexpr (JobPlacer<P>) {
        if (!ran) a.waited = std::exchange(r.waited, {});
      } else {
        if (!ran && std::exchange(r.ran, true)) a.what = verb::resume;
      }
    }
    acted_.clear();
    if constexpr (JobPlacer<P>) {
      const auto rank = [](const action& a) {
        return a.what == verb::suspend ? 0 : a.what == verb::migrate ? 1 : 2;
      };
      std::stable_sort(actions.begin() + first, actions.end(),
                       [&](const action& a, const action& b) { return rank(a) < rank(b); });
    }
  }

  job_book<P, record> jobs_;  // and the waiting jobs that run in time slices, by pass
  time_sharing_options options_;
  kind_queues<typename P::kind> owners_;     // guaranteed jobs that do not run by right
  std::map<std::uint64_t, job_id> arrived_;  // jobs that were not tried yet, in order
  std::uint64_t last_position_ = 0;          // in arrived_
  waits waits_;                              // for a time slice, by when they began to wait
  detail::running_passes running_;           // running jobs that run in time slices
  std::size_t num_running_ = 0;              // jobs
  std::uint32_t used_ = 0;                   // GPUs of the running jobs
  std::set<job_id> movable_;                 // running jobs that may migrate
  job_id next_{0};                           // the next one to try
  std::vector<job_id> fresh_;                // that started in this step
  std::vector<job_id> suspended_;            // in this step
  std::vector<job_id> acted_;                // with changes that the host does not know yet
  time_ms now_ = 0;                          // of the last call
  std::int64_t slice_ = -1;                  // the quantum of the last decision
  bool retry_sliced_ = false;                // whether a job may fit that waits for a time slice
  bool retry_owners_ = false;                // whether a job in owners_ may fit now
  bool again_ = false;                       // whether a new slice may change something
};

APIARY_NAMESPACE_END
