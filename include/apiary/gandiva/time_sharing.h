// apiary/gandiva/time_sharing.h - time slices and migration for any scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/detail/slice_order.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Suspends, resumes and migrates the requests of any backend: gangs of a HiveD cluster
// (gandiva_gangs), tasks that share GPUs (gandiva_tasks). For jobs of whole GPUs use
// time_sharing_queue, which is a JobScheduler.
//
// The backend says which jobs run in time slices and which are prioritized (priority 0 or more). A
// new job starts at once if it can. The backend may stop other jobs for a prioritized one; they
// wait again and keep their progress. The module's page says what a tick does.
// Model:   "Gandiva" (OSDI 2018), §3.2: suspend and resume, migration. Differs: time is shared over
//          the whole cluster by stride scheduling, not on each server by round robin; jobs that
//          starve come first.
// Bound:   a sliced job that would fit if no other sliced job ran waits at most max_wait + 2 + n
//          quanta, if n sliced jobs wait when it begins to wait; none if max_wait is 0.
// Cost:    submit: one start and O(distinct weights + kinds of waiting jobs, see JobBackend).
//          finish takes the job out of a sorted list, O(running jobs): 7 % of an event on 100,000
//          GPUs, which takes three times as long as on 2,000, with more cache misses. A tick: the
//          migrations of the backend; after a change a start for each kind of prioritized jobs, and
//          of sliced jobs that idle GPUs may fit. The first one of a quantum: for each job that
//          displaces others, and each kind that cannot, stops, starts and O(log jobs) for each job
//          that ran longer (or runs).
// Example: examples/gandiva_gangs.cpp, examples/gandiva_tasks.cpp
template <TimeSharingBackend Backend>
class time_sharing {
 public:
  using request = typename Backend::request;  // what the backend places
  using action =
      detail::time_sharing_action<typename Backend::placement_type>;  // what the host must do
  using job_options = time_sharing_options::job_options;  // what the host says of one job
  // What a job does.
  enum class phase : std::uint8_t { waits, runs };
  // All times are below this one.
  static constexpr time_ms end_of_time = detail::slice_end_of_time;
  // kInvalidArgument: a quantum not above 0. kFailedPrecondition: a job runs on the backend.
  [[nodiscard]] static absl::StatusOr<time_sharing> create(Backend backend,
                                                           const time_sharing_options& options) {
    APIARY_RETURN_IF_ERROR(detail::check_period("quantum", options.quantum));
    if (!backend.empty())
      return absl::FailedPreconditionError("the backend runs jobs that were not submitted here");
    return time_sharing(std::move(backend), options);
  }
  // Submits a job. Appends what the host must do now: nothing if the job waits. kInvalidArgument: a
  // weight not in 1, ..., 1000, or a time before that of another call or not below end_of_time.
  // kAlreadyExists: the job exists. Other errors are the backend's. An error changes nothing.
  absl::Status submit(const request& r, const job_options& options, time_ms now,
                      std::vector<action>& actions) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    const job_id job = r.job;
    APIARY_RETURN_IF_ERROR(detail::check_slice_weight(job, options.weight));
    if (jobs_.contains(job.value))
      return absl::AlreadyExistsError(detail::name_of(job) + " exists already");
    ++round_;
    stopped_.clear();
    APIARY_ASSIGN_OR_RETURN(const bool runs, backend_.start(r, stopped_));
    now_ = now;
    const std::int64_t pass = least_pass();
    const std::uint32_t weight =
        options_.shares_gpu_time ? detail::gpu_time_weight(options.weight, r) : options.weight;
    record& added = jobs_.try_emplace(job.value, r, weight, options.movable, pass).first->second;
    if (runs) {
      started(added, actions);
    } else {
      wait(added);
    }
    end_call();
    return absl::OkStatus();
  }
  // Whether the job would start if it were submitted now. Requires: no job of its id runs.
  [[nodiscard]] bool may_start(const request& r) { return backend_.may_start(r); }
  // See JobBackend.
  [[nodiscard]] absl::Status check(const request& r) requires JobBackend<Backend> {
    return backend_.check(r);
  }
  // The job has ended or is cancelled. kNotFound: no such job. kInvalidArgument: as submit.
  absl::Status finish(job_id job, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError(detail::missing(job));
    now_ = now;
    const record& r = found->second;
    if (r.phase == phase::runs) {
      stops(r);
      backend_.stop(job);
      retry_sliced_ = retry_prioritized_ = true;
    } else {
      leave_queue(r);
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }
  // A bad node gets no new job; its jobs run until the host calls finish. kNotFound: no such node.
  absl::Status mark_bad(node_id n) { return mark(n, false); }
  // The node is repaired. kNotFound: there is no such node.
  absl::Status mark_healthy(node_id n) { return mark(n, true); }
  // Appends what the host must do, in order, at most one action for each job. The scheduler has
  // applied it already. Call tick() at wake(), and after each moment at which a job was submitted
  // or ended or a node was marked. kInvalidArgument: as submit.
  absl::Status tick(time_ms now, std::vector<action>& actions) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    now_ = now;
    ++round_;
    start_prioritized(actions);
    const bool new_slice = options_.quantum != max_time && now / options_.quantum != slice_;
    slice_ = now / options_.quantum;
    start_sliced(new_slice, actions);
    const bool moved = move(actions);
    if (moved) start_sliced(false, actions);
    end_call();
    again_ = moved || (!sliced_.empty() && num_slices_ > 0);  // else a new slice changes nothing
    return absl::OkStatus();
  }
  // When tick() must be called although nothing happens: at the next quantum while a job waits for
  // a time slice, or if the last tick migrated a job; in the next millisecond while a job waits
  // that may fit because that tick suspended or migrated jobs.
  [[nodiscard]] time_ms wake() const noexcept {
    if ((retry_sliced_ && !sliced_.empty()) || (retry_prioritized_ && !prioritized_.empty()))
      return now_ + 1;
    if (!again_ || options_.quantum == max_time) return max_time;
    return add_time(now_ / options_.quantum * options_.quantum, options_.quantum);
  }
  // What the job does; nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? std::nullopt : std::optional(found->second.phase);
  }
  // How long the job ran until the last call, divided by its weight (see shares_gpu_time), in units
  // of 1/0xfffff ms. A new job starts with the lowest pass of all jobs. Requires: there is such a
  // job.
  [[nodiscard]] std::int64_t pass(job_id job) const {
    const auto found = jobs_.find(job.value);
    APIARY_VERIFY(found != jobs_.end());
    return pass_of(found->second);
  }
  // Jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  // Jobs that wait.
  [[nodiscard]] std::size_t num_waiting() const noexcept {
    return sliced_.size() + prioritized_.size();
  }
  // Where the jobs run.
  [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

 private:
  struct record {
    record(const request& r, std::uint32_t w, bool m, std::int64_t p)
        : asked(r), weight(w), movable(m), pass(p) {}
    request asked;
    std::uint32_t weight;  // by which its time is divided
    bool movable;
    time_sharing::phase phase = phase::waits;
    bool ran = false;         // ever
    std::int64_t pass = 0;    // without its present run
    time_ms since = 0;        // when it last began to run, or to wait
    std::uint64_t round = 0;  // of its last action
  };
  time_sharing(Backend backend, const time_sharing_options& options)
      : backend_(std::move(backend)), options_(options) {}
  [[nodiscard]] bool is_sliced(const record& r) const { return backend_.priority(r.asked) < 0; }
  [[nodiscard]] std::int64_t pass_of(const record& r) const noexcept {
    return r.phase == phase::runs ? r.pass + detail::slice_pass(now_ - r.since, r.weight) : r.pass;
  }
  [[nodiscard]] std::int64_t least_pass() const {
    const std::optional<std::int64_t> runs = running_.least(now_);
    const std::optional<std::int64_t> waits = sliced_.least();
    return (std::min)(runs.value_or(waits.value_or(0)), waits.value_or(runs.value_or(0)));
  }
  // Of a prioritized job, in its queue.
  [[nodiscard]] std::int64_t key_of(const record& r) const {
    return -std::int64_t{backend_.priority(r.asked)};
  }
  void wait(record& r) {
    r.phase = phase::waits;
    r.since = now_;
    if (!is_sliced(r)) return prioritized_.insert(r.asked, key_of(r));
    sliced_.insert(r.asked, r.pass);
    by_wait_.insert({now_, r.asked.job.value, 0});
  }
  void leave_queue(const record& r) {
    if (!is_sliced(r)) return prioritized_.erase(r.asked, key_of(r));
    sliced_.erase(r.asked, r.pass);
    by_wait_.erase(r.since, r.asked.job.value);
  }

  void act(record& r, typename action::verb what, std::vector<action>& actions) {
    r.round = round_;
    actions.push_back({what, r.asked.job, {}});
    if (what != action::verb::suspend) actions.back().where = backend_.placement_of(r.asked.job);
  }
  void suspended(record& r, std::vector<action>& actions) {
    const std::int64_t pass = pass_of(r);
    stops(r);
    r.pass = pass;
    wait(r);
    retry_sliced_ = retry_prioritized_ = true;
    if (is_sliced(r)) suspended_round_ = round_;
    act(r, action::verb::suspend, actions);
  }
  // The job runs, and those in stopped_ do not. Requires: it is in no queue.
  void started(record& r, std::vector<action>& actions) {
    for (const job_id victim : stopped_) suspended(jobs_.at(victim.value), actions);
    if (is_sliced(r)) {
      ++num_slices_;
      running_.insert(r.asked.job, r.weight, r.pass, now_);
    } else {
      retry_prioritized_ = true;  // it may hold more than it needs
    }
    used_ += detail::counted_gpus(r.asked);
    if (r.movable && options_.migrations.jobs > 0) started_.push_back(r.asked.job);
    r.phase = phase::runs;
    r.since = now_;
    act(r, r.ran ? action::verb::resume : action::verb::start, actions);
    r.ran = true;
  }
  // Starts the job on the backend if it can; returns whether it runs. Call started() then.
  [[nodiscard]] bool start(const record& r) {
    stopped_.clear();
    const absl::StatusOr<bool> runs = backend_.start(r.asked, stopped_);
    APIARY_VERIFY(runs.ok());
    return *runs;
  }
  void start_from_queue(record& r, std::vector<action>& actions) {
    leave_queue(r);
    started(r, actions);
  }
  void stops(const record& r) {
    if (is_sliced(r)) {
      --num_slices_;
      running_.erase(r.asked.job, r.weight, r.pass, r.since);
    }
    used_ -= detail::counted_gpus(r.asked);
    detail::erase_sorted(movable_, r.asked.job);
  }
  // The jobs that started in this call of the host may migrate from the next one on.
  void end_call() {
    for (const job_id job : started_) detail::insert_sorted(movable_, job);
    started_.clear();
  }
  absl::Status mark(node_id n, bool healthy) {
    APIARY_RETURN_IF_ERROR(backend_.mark(n, healthy));
    retry_sliced_ = retry_prioritized_ = true;
    return absl::OkStatus();
  }

  void start_prioritized(std::vector<action>& actions) {
    if (!std::exchange(retry_prioritized_, false)) return;
    detail::failed_kinds failed;
    prioritized_.visit_all([&](job_id job) {
      record& r = jobs_.at(job.value);
      if (r.round == round_) return true;  // it was stopped in this tick
      if (start(r)) {
        start_from_queue(r, actions);
      } else {
        failed.add(r.asked);
      }
      return !failed.contains(r.asked);
    });
  }

  void start_sliced(bool new_slice, std::vector<action>& actions) {
    if (sliced_.empty() || (!std::exchange(retry_sliced_, false) && !new_slice)) return;
    longest_first others(*this, new_slice);
    detail::failed_kinds failed;  // later jobs of these kinds may stop fewer others, and fail too
    // Returns whether other jobs of its kind may run.
    const auto try_to_run = [&](record& r, bool any) {
      if (r.round == round_) return true;
      if (failed.contains(r.asked)) return false;
      if (missing_gpus(r) <= 0 && start(r)) {
        start_from_queue(r, actions);
        return true;
      }
      if (!displace(r, any, others, actions)) failed.add(r.asked);
      return !failed.contains(r.asked);
    };
    const time_ms max_wait = detail::starving_time(options_.max_wait, options_.quantum);
    for (const job_id job : detail::in_order(by_wait_, new_slice ? now_ - max_wait : -1))
      try_to_run(jobs_.at(job.value), true);
    sliced_.visit_all([&](job_id job) { return try_to_run(jobs_.at(job.value), false); });
    if (suspended_round_ == round_) retry_sliced_ = true;  // at the next tick
  }
  // GPUs that must become idle before the job can start; at most 0: none, as far as this is known.
  [[nodiscard]] std::int64_t missing_gpus([[maybe_unused]] const record& r) const {
    if constexpr (JobBackend<Backend>) return used_ + r.asked.gpus - backend_.total_gpus();
    return 0;
  }
  // The running sliced jobs without an action in this tick, the one that ran longest first. They
  // are read when they are needed; some of them may have stopped meanwhile.
  class longest_first {
   public:
    longest_first(time_sharing& all, bool reads) : all_(&all) {
      if (reads) order_.emplace(all.running_, all.now_);
    }
    // Job i of the order; null: there are not so many.
    [[nodiscard]] record* at(std::size_t i) {
      while (i >= jobs_.size() && order_ && read()) {
      }
      return i < jobs_.size() ? jobs_[i] : nullptr;
    }

   private:
    bool read() {
      ids_.clear();
      if (!order_->read(ids_)) return false;
      for (const job_id job : ids_) {
        record& r = all_->jobs_.at(job.value);
        if (r.phase == phase::runs && r.round != all_->round_) jobs_.push_back(&r);
      }
      return true;
    }
    time_sharing* all_;
    std::optional<detail::running_passes::descending> order_{};
    std::vector<record*> jobs_{};
    std::vector<job_id> ids_{};
  };
  // Suspends jobs that ran longer, or `any`, so that this job can run; none if it cannot run even
  // then. Returns whether it runs.
  bool displace(record& r, bool any, longest_first& others, std::vector<action>& actions) {
    std::int64_t missing = missing_gpus(r);
    const auto may_stop = [&](const record& other) { return any || pass_of(other) > r.pass; };
    std::int64_t at_most = 0;  // GPUs of the jobs that may stop
    for (std::size_t i = 0; at_most < missing; ++i) {
      const record* const other = others.at(i);
      if (other == nullptr || !may_stop(*other)) return false;
      if (other->phase == phase::runs) at_most += detail::counted_gpus(other->asked);
    }
    std::vector<std::pair<record*, typename Backend::placement_type>> moved;
    bool runs = false;
    for (std::size_t i = 0; !runs; ++i) {
      record* const other = others.at(i);
      if (other == nullptr || !may_stop(*other)) break;
      if (other->phase != phase::runs) continue;
      moved.emplace_back(other, backend_.stop(other->asked.job));
      missing -= detail::counted_gpus(other->asked);
      runs = missing <= 0 && start(r);
    }
    while (!moved.empty()) {
      if (!backend_.restart(moved.back().first->asked, moved.back().second)) {
        APIARY_VERIFY(runs);
        suspended(*moved.back().first, actions);
      }
      moved.pop_back();
    }
    if (runs) start_from_queue(r, actions);
    return runs;
  }
  // Whether any job migrated.
  bool move(std::vector<action>& actions) {
    if (options_.migrations.jobs == 0) return false;
    std::vector<job_id> moved;
    backend_.improve(movable_, options_.migrations, moved);
    for (const job_id job : moved) act(jobs_.at(job.value), action::verb::migrate, actions);
    if (!moved.empty()) retry_sliced_ = retry_prioritized_ = true;
    return !moved.empty();
  }

  Backend backend_;
  time_sharing_options options_;
  std::unordered_map<std::uint32_t, record> jobs_;
  detail::queues_by_kind sliced_;       // waiting jobs that run in time slices, by pass
  weighted_tree by_wait_;               // the same jobs, by when they began to wait
  detail::running_passes running_;      // running jobs that run in time slices
  detail::queues_by_kind prioritized_;  // waiting prioritized jobs, by key_of()
  std::size_t num_slices_ = 0;          // running jobs that run in time slices
  std::int64_t used_ = 0;               // GPUs of the running jobs, as counted_gpus()
  std::vector<job_id> movable_;         // running jobs that may migrate, ascending
  std::vector<job_id> started_;         // in this call, those that may migrate
  std::vector<job_id> stopped_;         // that the backend stopped for the job that starts
  time_ms now_ = 0;                     // of the last call
  std::int64_t slice_ = -1;             // the quantum of the last tick
  std::uint64_t round_ = 1;             // grows by 1 at each tick
  std::uint64_t suspended_round_ = 0;   // in which a sliced job was last suspended
  bool retry_sliced_ = false;           // whether a job in sliced_ may fit now
  bool retry_prioritized_ = false;      // whether a job in prioritized_ may fit now
  bool again_ = false;                  // whether a new slice may change something
};

APIARY_NAMESPACE_END
