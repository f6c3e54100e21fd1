// apiary/gandiva/time_sharing_queue.h - the job scheduler that suspends, resumes and migrates jobs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/detail/slice_waits.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A JobScheduler that runs jobs of whole GPUs in time slices and migrates them; a JobBackend places
// them. gandiva_fgd and gandiva_hived are of this class.
//
// A guaranteed job starts, at any time, as soon as it fits on GPUs that its tenant is entitled to:
// by priority, then arrival, then id. Until then it runs in time slices, as the other jobs do; if
// it runs when such GPUs become free, it stays in its time slice until it is suspended. A job whose
// node breaks waits again and keeps its arrival.
// Causes:   a guaranteed job waits for quota while its tenant has fewer free GPUs than the job asks
//           for; another job waits for capacity while fewer GPUs are idle; else fragmentation.
// Model:    "Gandiva" (OSDI 2018), §3.2.
// Requires: decide() is called at wake(), and after each moment at which a job was submitted or
//           ended or a node broke or was repaired.
// Cost:     that of time_sharing, and O(queues): one for each number of GPUs and, for guaranteed
//           jobs, tenant; one may_start for each queue whose first may fit now. A node that breaks
//           costs O(its GPUs) steps of these; marking a node again as it is costs O(1).
// Example:  examples/programs/simulate.cpp
template <JobBackend Backend>
class time_sharing_queue {
 public:
  // What a job does.
  enum class phase : std::uint8_t {
    wait,        // it does not run
    guaranteed,  // it runs on GPUs that its tenant is entitled to
    sliced,      // it runs in a time slice
  };
  // Errors as time_sharing::create.
  [[nodiscard]] static absl::StatusOr<time_sharing_queue> create(
      Backend backend, const time_sharing_options& options) {
    APIARY_ASSIGN_OR_RETURN(auto scheduler,
                            time_sharing<Backend>::create(std::move(backend), options));
    return time_sharing_queue(std::move(scheduler));
  }
  // Each call returns kInvalidArgument for a time before that of another call, or not below
  // time_sharing::end_of_time. An error changes nothing, unless decide() returns one of the
  // backend.

  // Submits a job. kInvalidArgument: no job id, or a weight that is not in 1, ..., 1000.
  // kAlreadyExists: there is a job of this id. Other errors are those of the backend's check().
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    APIARY_RETURN_IF_ERROR(detail::check_slice_weight(r.job, r.weight));
    if (jobs_.contains(r.job.value))
      return absl::AlreadyExistsError(detail::name_of(r.job) + " exists already");
    APIARY_RETURN_IF_ERROR(scheduler_.check(r));
    now_ = now;
    record& added = jobs_[r.job.value];
    added.request = r;
    added.guaranteed = backend().priority(r) >= 0;
    added.arrival = now;
    queues_.enter(added);
    added.entered = queues_.clock(added, now);
    wait_outside(added);
    return absl::OkStatus();
  }
  // The job has ended or is cancelled. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError(detail::missing(job));
    now_ = now;
    record& r = found->second;
    if (r.where.empty()) {
      queues_.leave(r);
    } else {
      release(r);
    }
    APIARY_RETURN_IF_ERROR(take_out(r, now));
    leave_outside(r);
    if (r.acted) acted_.erase(std::find(acted_.begin(), acted_.end(), job));  // decide() failed
    jobs_.erase(found);
    return absl::OkStatus();
  }
  // The node is broken: its jobs stop, wait and are returned, ascending. kNotFound: no such node.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    APIARY_RETURN_IF_ERROR(set_health(n, false));
    now_ = now;
    std::vector<job_id> stopped;
    if (n.value < jobs_on_.size()) stopped = jobs_on_[n.value];
    for (const job_id job : stopped) {
      record& r = jobs_.at(job.value);
      release(r);
      queues_.enter(r);
      r.reported.clear();
      r.entered = queues_.clock(r, now);
      APIARY_RETURN_IF_ERROR(take_out(r, now));
      wait_outside(r);
    }
    return stopped;
  }
  // The node is repaired. kNotFound: there is no such node.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    APIARY_RETURN_IF_ERROR(set_health(n, true));
    now_ = now;
    return absl::OkStatus();
  }
  // Appends the actions of the host, at most one a job: all suspensions, then migrations, then
  // starts. The scheduler has applied them already. An error of Backend::start() ends the decision.
  // The jobs that started before it run, and the next call that succeeds appends their actions.
  // Each call fails in the same way while the backend returns this error and the host does not
  // finish() its job.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    APIARY_RETURN_IF_ERROR(detail::check_slice_time(now, now_));
    now_ = now;
    APIARY_RETURN_IF_ERROR(start_guaranteed(now));
    APIARY_RETURN_IF_ERROR(enter_others(now));
    done_.clear();
    APIARY_RETURN_IF_ERROR(scheduler_.tick(now, done_));
    APIARY_RETURN_IF_ERROR(record_actions(now));
    APIARY_RETURN_IF_ERROR(start_guaranteed(now));
    APIARY_RETURN_IF_ERROR(enter_others(now));
    report(now, actions);
    queues_.set_causes([&](const auto& queue) { return cause_of(queue); }, now);
    return absl::OkStatus();
  }
  // When decide() must be called although nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return scheduler_.wake(); }
  // What the job does; nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return std::nullopt;
    if (found->second.where.empty()) return phase::wait;
    return found->second.entitled ? phase::guaranteed : phase::sliced;
  }
  // Jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  // GPUs of the cluster, those of bad nodes included.
  [[nodiscard]] std::uint32_t total_gpus() const { return backend().total_gpus(); }
  // Healthy GPUs that no job uses.
  [[nodiscard]] std::uint32_t idle_gpus() const { return total_gpus() - bad_gpus_ - used_; }
  // Where the jobs run.
  [[nodiscard]] const Backend& backend() const noexcept { return scheduler_.backend(); }

 private:
  enum class health : std::uint8_t { unknown, good, bad };  // unknown: the host never marked it
  static constexpr std::size_t not_outside = ~std::size_t{0};
  struct record : detail::queued_job {
    bool entitled = false;               // it runs on GPUs that its tenant is entitled to
    bool inside = false;                 // time_sharing knows it
    bool acted = false;                  // it is in acted_
    std::size_t position = not_outside;  // in outside_
    job_placement where{};               // empty: it waits
    job_placement reported{};            // the same, as the host knows it
    delays entered{};  // reading of its queue's clock when it began to wait, for the host
  };
  explicit time_sharing_queue(time_sharing<Backend> scheduler) : scheduler_(std::move(scheduler)) {}
  void wait_outside(record& r) {
    r.position = outside_.size();
    outside_.push_back(r.request.job);
  }
  // Nothing if it is not in outside_.
  void leave_outside(record& r) {
    if (r.position != not_outside) outside_[std::exchange(r.position, not_outside)] = {};
  }
  // The job runs at `where` now; empty: nowhere.
  void put(record& r, job_placement where) {
    for (const placement& p : r.where) detail::erase_sorted(jobs_on_[p.node.value], r.request.job);
    r.where = std::move(where);
    for (const placement& p : r.where) {
      if (p.node.value >= jobs_on_.size()) jobs_on_.resize(p.node.value + std::size_t{1});
      detail::insert_sorted(jobs_on_[p.node.value], r.request.job);
    }
  }
  void occupy(record& r, job_placement where) {
    queues_.leave(r);
    put(r, std::move(where));
    used_ += r.request.gpus;
    if (r.entitled) used_by_[r.request.tenant.value] += r.request.gpus;
  }
  // GPUs are free: lets queues of the tenant try again; while a node is bad, all queues.
  void retry(const record& r) {
    if (bad_gpus_ > 0) return queues_.retry(std::nullopt);
    if (r.entitled) queues_.retry(r.request.tenant);
  }
  void release(record& r) {
    put(r, {});
    used_ -= r.request.gpus;
    if (r.entitled) used_by_[r.request.tenant.value] -= r.request.gpus;
    retry(r);
    r.entitled = false;
  }
  [[nodiscard]] absl::Status take_out(record& r, time_ms now) {
    if (!std::exchange(r.inside, false)) return absl::OkStatus();
    return scheduler_.finish(r.request.job, now);
  }
  // Nothing if the node is known to be so.
  [[nodiscard]] absl::Status set_health(node_id n, bool good) {
    const health wanted = good ? health::good : health::bad;
    const health was = n.value < health_.size() ? health_[n.value] : health::unknown;
    if (was == wanted) return absl::OkStatus();
    APIARY_RETURN_IF_ERROR(good ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n));
    if (n.value >= health_.size()) health_.resize(n.value + std::size_t{1}, health::unknown);
    health_[n.value] = wanted;
    if (was == health::unknown && good) return absl::OkStatus();
    const std::uint32_t gpus = backend().gpus(n);
    bad_gpus_ = good ? bad_gpus_ - gpus : bad_gpus_ + gpus;
    queues_.retry(std::nullopt);
    return absl::OkStatus();
  }
  // Starts the guaranteed jobs that can have GPUs of their tenant.
  [[nodiscard]] absl::Status start_guaranteed(time_ms now) {
    while (const std::optional<job_id> next = queues_.first_guaranteed()) {
      record& r = jobs_.at(next->value);
      if (!scheduler_.may_start(r.request)) {
        queues_.fail(r);
        continue;
      }
      leave_outside(r);
      APIARY_RETURN_IF_ERROR(take_out(r, now));
      r.entitled = true;
      if (absl::Status entered = enter(r, r.request, now); !entered.ok()) {
        r.entitled = false;
        wait_outside(r);
        return entered;
      }
    }
    return absl::OkStatus();
  }
  // Submits the other jobs to time sharing, to run in time slices. After an error the job that it
  // is about and those behind it are in outside_, in their order.
  [[nodiscard]] absl::Status enter_others(time_ms now) {
    const std::vector<job_id> jobs = std::exchange(outside_, {});
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!jobs[i].valid()) continue;  // it left
      record& r = jobs_.at(jobs[i].value);
      r.position = not_outside;
      job_request sliced = r.request;
      if (r.guaranteed) sliced.priority = -1;
      absl::Status entered = enter(r, sliced, now);
      if (entered.ok()) continue;
      for (; i < jobs.size(); ++i)
        if (jobs[i].valid()) wait_outside(jobs_.at(jobs[i].value));
      return entered;
    }
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status enter(record& r, const job_request& as, time_ms now) {
    done_.clear();
    APIARY_RETURN_IF_ERROR(scheduler_.submit(as, {.weight = as.weight}, now, done_));
    r.inside = true;
    return record_actions(now);
  }
  // Records what time sharing has done.
  [[nodiscard]] absl::Status record_actions(time_ms now) {
    using verb = typename time_sharing<Backend>::action::verb;
    for (const auto& a : done_) {
      record& r = jobs_.at(a.job.value);
      if (!std::exchange(r.acted, true)) acted_.push_back(a.job);
      if (a.what == verb::migrate) {
        put(r, backend().job_placement_of(a.where));
        retry(r);
      } else if (a.what != verb::suspend) {
        occupy(r, backend().job_placement_of(a.where));
      } else {
        const bool was_entitled = r.entitled;
        release(r);
        queues_.enter(r);
        if (!was_entitled) continue;
        APIARY_RETURN_IF_ERROR(take_out(r, now));
        wait_outside(r);
      }
    }
    return absl::OkStatus();
  }
  // Appends one action for each job whose state differs from what the host knows.
  void report(time_ms now, std::vector<job_action>& actions) {
    for (const job_id job : acted_) {
      record& r = jobs_.at(job.value);
      r.acted = false;
      if (r.reported.empty() || !r.where.empty()) continue;
      actions.push_back({job_action::verb::suspend, job, {}, {}});
      r.entered = queues_.clock(r, now);
      r.reported.clear();
    }
    for (const bool starts : {false, true}) {
      for (const job_id job : acted_) {
        record& r = jobs_.at(job.value);
        if (r.reported == r.where || r.reported.empty() != starts) continue;
        delays waited;
        if (starts) {
          waited = queues_.clock(r, now);
          waited -= r.entered;
        }
        const auto what = starts ? job_action::verb::start : job_action::verb::migrate;
        actions.push_back({what, job, r.where, waited});
        r.reported = r.where;
      }
    }
    acted_.clear();
  }
  [[nodiscard]] delay_cause cause_of(const detail::time_sharing_wait_queues::key& queue) const {
    const auto& [guaranteed, tenant, gpus] = queue;
    if (guaranteed) {
      const auto used = used_by_.find(tenant);
      const std::uint32_t free =
          backend().entitled_gpus(tenant_id(tenant)) - (used == used_by_.end() ? 0 : used->second);
      return gpus > free ? delay_cause::quota : delay_cause::fragmentation;
    }
    return gpus > idle_gpus() ? delay_cause::capacity : delay_cause::fragmentation;
  }

  time_sharing<Backend> scheduler_;
  std::unordered_map<std::uint32_t, record> jobs_;
  detail::time_sharing_wait_queues queues_;
  std::vector<job_id> outside_;  // jobs that time_sharing does not know yet; not valid: it left
  std::vector<std::vector<job_id>> jobs_on_;  // running jobs by node, ascending
  std::vector<job_id> acted_;                 // jobs with changes that the host does not know yet
  std::vector<typename time_sharing<Backend>::action> done_;
  std::map<std::uint32_t, std::uint32_t> used_by_;  // GPUs of entitled jobs, by tenant
  std::uint32_t used_ = 0;                          // GPUs
  std::uint32_t bad_gpus_ = 0;
  std::vector<health> health_;  // of nodes
  time_ms now_ = 0;             // of the last call
};

APIARY_NAMESPACE_END
