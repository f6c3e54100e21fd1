// apiary/gandiva/detail/time_sharing_queue.h - Gandiva over any scheduler underneath, for jobs over time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/detail/job_adapter.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Drives introspection as the schedulers of jobs over time are driven, its actions being those of
// model/job.h. What jobs are to the scheduler underneath, their forms tell.
//
// A job that has a right to GPUs (on HiveD, to its tenant's cells) starts as soon as it can have
// them, whatever turn it is; while it cannot, it takes turns as the others do, and runs on so once
// it runs. Of those with a right whoever has the higher priority is first, then who came first, then
// the lower id. A job whose server breaks comes anew, but keeps its place among those with a right.
//
// Causes:   of a job with a right, quota while less is free of what its tenant has a right to than
//           it wants; of the others, capacity while fewer GPUs are idle; else fragmentation.
// Model:    "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI 2018), §3.2.
// Requires: decide() at wake() and after each moment at which something was submitted, ended, broke or
//           was repaired.
// Cost:     as introspection's calls, and O(lines), a line being a number of GPUs and, of jobs with a
//           right, a tenant: whether its first may start, if it may have what it has a right to since
//           it had not. mark_bad O(jobs).
// Example:  examples/simulate.cpp
template <TimeSharingBackend Backend, JobAdapter<Backend> Adapter>
class time_sharing_queue {
 public:
  enum class phase : std::uint8_t { wait, own, turn };  // own: on what it has a right to

  // kInvalidArgument, kFailedPrecondition: as introspection::create().
  [[nodiscard]] static absl::StatusOr<time_sharing_queue> create(
      Backend backend, Adapter adapter, const time_sharing_options& options) {
    APIARY_ASSIGN_OR_RETURN(auto scheduler,
                            time_sharing<Backend>::create(std::move(backend), options));
    return time_sharing_queue(std::move(scheduler), std::move(adapter));
  }

  // Here and below kInvalidArgument, too: a time before that of another call, or not below
  // introspection's end_of_time. Whatever the error is, nothing has changed.
  //
  // kInvalidArgument: no job id, a weight of 0 or above 1000. kAlreadyExists: a job of this id is
  // here. Else what the forms answer.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.weight == 0 || r.weight > 1000)
      return absl::InvalidArgumentError(name(r.job) + " has weight " + std::to_string(r.weight));
    if (jobs_.contains(r.job.value))
      return absl::AlreadyExistsError(name(r.job) + " is here already");
    APIARY_RETURN_IF_ERROR(adapter_.check(backend(), r));
    now_ = now;
    record& added = jobs_[r.job.value];
    added.request = r;
    added.right = backend().priority(adapter_.own(r)) >= 0;
    added.came = now;
    begin_to_wait(added);
    added.entered = line_of(added).clock.at(now);
    outside_.push_back(r.job);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    now_ = now;
    record& r = found->second;
    if (r.place.empty()) {
      end_waiting(r);
    } else {
      leave_place(r);
    }
    APIARY_RETURN_IF_ERROR(take_out(r, now));
    std::erase(outside_, job);
    jobs_.erase(found);
    return absl::OkStatus();
  }

  // The node is broken: what runs there stops and waits again. The jobs that stopped, ascending.
  // kNotFound: no such node.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    APIARY_RETURN_IF_ERROR(scheduler_.mark_bad(n));
    now_ = now;
    set_health(n, false);
    std::vector<job_id> stopped;
    for (const auto& [job, r] : jobs_) {
      if (std::any_of(r.place.begin(), r.place.end(), [&](placement p) { return p.node == n; }))
        stopped.emplace_back(job);
    }
    std::sort(stopped.begin(), stopped.end());
    for (const job_id job : stopped) {
      record& r = jobs_.at(job.value);
      leave_place(r);
      begin_to_wait(r);
      r.told.clear();
      r.entered = line_of(r).clock.at(now);
      APIARY_RETURN_IF_ERROR(take_out(r, now));
      outside_.push_back(job);
    }
    return stopped;
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    APIARY_RETURN_IF_ERROR(scheduler_.mark_healthy(n));
    now_ = now;
    set_health(n, true);
    return absl::OkStatus();
  }

  // Appends to `actions` what the host is to do, one action a job at most: first who stops, then who
  // moves, all together, then who starts; all are taken here already.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    now_ = now;
    APIARY_RETURN_IF_ERROR(start_with_right(now));
    APIARY_RETURN_IF_ERROR(enter_others(now));
    done_.clear();
    APIARY_RETURN_IF_ERROR(scheduler_.tick(now, done_));
    APIARY_RETURN_IF_ERROR(carry_over(now));
    APIARY_RETURN_IF_ERROR(start_with_right(now));
    APIARY_RETURN_IF_ERROR(enter_others(now));
    tell(now, actions);
    for (auto& [of, l] : queues_) {
      if (!l.jobs.empty()) l.clock.set(cause_of(of), now);
    }
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return scheduler_.wake(); }

  // nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return std::nullopt;
    if (found->second.place.empty()) return phase::wait;
    return found->second.owner ? phase::own : phase::turn;
  }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  [[nodiscard]] std::uint32_t total_gpus() const { return adapter_.total_gpus(backend()); }
  // GPUs that are healthy and nobody's.
  [[nodiscard]] std::uint32_t idle_gpus() const { return total_gpus() - bad_gpus_ - used_; }
  [[nodiscard]] const time_sharing<Backend>& scheduler() const noexcept { return scheduler_; }
  [[nodiscard]] const Backend& backend() const noexcept { return scheduler_.backend(); }

 private:
  struct record {
    job_request request{};
    time_ms came = 0;
    bool right = false;     // it has one, some time
    bool owner = false;     // it runs on what it has a right to
    bool inside = false;    // introspection knows it
    bool acted = false;     // it is in acted_
    job_placement place{};  // empty: it waits
    job_placement told{};   // the same as far as the host knows
    delays entered{};       // reading of the line's clock when it began to wait, for the host
  };
  // Jobs that want as many GPUs, and those with a right are of one tenant.
  struct line {
    weighted_tree jobs{};  // that wait
    delay_clock clock{};
    bool failed = false;  // the first could not start by right, and nothing has changed since
  };
  using line_key = std::tuple<bool, std::uint32_t, std::uint32_t>;  // right, tenant, GPUs

  time_sharing_queue(time_sharing<Backend> scheduler, Adapter adapter)
      : scheduler_(std::move(scheduler)), adapter_(std::move(adapter)) {}

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] absl::Status check_time(time_ms now) const {
    if (now >= now_ && now < time_sharing<Backend>::end_of_time) return absl::OkStatus();
    return absl::InvalidArgumentError("time " + std::to_string(now) + " after " +
                                      std::to_string(now_) + ", and times are below " +
                                      std::to_string(time_sharing<Backend>::end_of_time));
  }
  [[nodiscard]] static line_key line_key_of(const record& r) {
    return {r.right, r.right ? r.request.tenant.value : 0, r.request.gpus};
  }
  [[nodiscard]] line& line_of(const record& r) { return queues_[line_key_of(r)]; }
  [[nodiscard]] static std::int64_t order_of(const record& r) noexcept {
    return r.right ? r.came - r.request.priority * time_sharing<Backend>::end_of_time : r.came;
  }
  void begin_to_wait(const record& r) {
    line& l = line_of(r);
    l.jobs.insert({order_of(r), r.request.job.value, 0});
    if (l.jobs.first()->id == r.request.job.value) l.failed = false;
  }
  void end_waiting(const record& r) {
    line& l = line_of(r);
    if (l.jobs.first()->id == r.request.job.value) l.failed = false;
    l.jobs.erase(order_of(r), r.request.job.value);
  }
  void take_place(record& r, const job_placement& place) {
    end_waiting(r);
    r.place = place;
    used_ += r.request.gpus;
    if (r.owner) used_by_[r.request.tenant.value] += r.request.gpus;
  }
  // There may be room now in what the job's tenant has a right to; on bad hardware in everyone's.
  void retry(const record& r) {
    for (auto& [of, l] : queues_) {
      if (bad_gpus_ > 0 || (r.owner && std::get<1>(of) == r.request.tenant.value)) l.failed = false;
    }
  }
  void leave_place(record& r) {
    r.place.clear();
    used_ -= r.request.gpus;
    if (r.owner) used_by_[r.request.tenant.value] -= r.request.gpus;
    retry(r);
    r.owner = false;
  }
  [[nodiscard]] absl::Status take_out(record& r, time_ms now) {
    if (!std::exchange(r.inside, false)) return absl::OkStatus();
    return scheduler_.finish(r.request.job, now);
  }
  void set_health(node_id n, bool good) {
    if (n.value >= bad_.size()) bad_.resize(n.value + std::size_t{1}, false);
    if (bad_[n.value] == !good) return;
    bad_[n.value] = !good;
    const std::uint32_t gpus = adapter_.gpus(backend(), n);
    bad_gpus_ = good ? bad_gpus_ - gpus : bad_gpus_ + gpus;
    for (auto& [of, l] : queues_) l.failed = false;
  }

  // Of the lines whose first may have what it has a right to, that of the very first; null: none.
  [[nodiscard]] line* first_line() {
    line* best = nullptr;
    std::optional<weighted_tree::item> least;
    for (auto at = queues_.lower_bound({true, 0, 0}); at != queues_.end(); ++at) {
      line& l = at->second;
      if (l.failed) continue;
      const std::optional<weighted_tree::item> first = l.jobs.first();
      if (!first || (least && std::pair(least->key, least->id) < std::pair(first->key, first->id)))
        continue;
      best = &l;
      least = first;
    }
    return best;
  }
  // Starts who can have what they have a right to.
  [[nodiscard]] absl::Status start_with_right(time_ms now) {
    while (line* const next = first_line()) {
      record& r = jobs_.at(next->jobs.first()->id);
      const typename Backend::request asked = adapter_.own(r.request);
      next->failed = !scheduler_.may_start(asked);
      if (next->failed) continue;
      if (!r.inside) std::erase(outside_, r.request.job);
      APIARY_RETURN_IF_ERROR(take_out(r, now));
      r.owner = true;
      APIARY_RETURN_IF_ERROR(enter(r, asked, now));
    }
    return absl::OkStatus();
  }
  // Lets all others take turns.
  [[nodiscard]] absl::Status enter_others(time_ms now) {
    for (const job_id job : std::exchange(outside_, {})) {
      record& r = jobs_.at(job.value);
      APIARY_RETURN_IF_ERROR(enter(r, adapter_.turn(r.request), now));
    }
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status enter(record& r, const typename Backend::request& as, time_ms now) {
    done_.clear();
    APIARY_RETURN_IF_ERROR(scheduler_.submit(as, {.weight = r.request.weight}, now, done_));
    r.inside = true;
    return carry_over(now);
  }
  // Writes down what introspection has done.
  [[nodiscard]] absl::Status carry_over(time_ms now) {
    using verb = typename time_sharing<Backend>::action::verb;
    for (const auto& a : done_) {
      record& r = jobs_.at(a.job.value);
      if (!std::exchange(r.acted, true)) acted_.push_back(a.job);
      if (a.what == verb::migrate) {
        r.place = adapter_.place(a.where);
        retry(r);
      } else if (a.what != verb::suspend) {
        take_place(r, adapter_.place(a.where));
      } else {
        const bool owned = r.owner;
        leave_place(r);
        begin_to_wait(r);
        if (!owned) continue;
        APIARY_RETURN_IF_ERROR(take_out(r, now));
        outside_.push_back(a.job);
      }
    }
    return absl::OkStatus();
  }

  // What came of all that for the host.
  void tell(time_ms now, std::vector<job_action>& actions) {
    for (const job_id job : acted_) {
      record& r = jobs_.at(job.value);
      r.acted = false;
      if (r.told.empty() || !r.place.empty()) continue;
      actions.push_back({job_action::verb::suspend, job, {}, {}});
      r.entered = line_of(r).clock.at(now);
      r.told.clear();
    }
    for (const bool starts : {false, true}) {
      for (const job_id job : acted_) {
        record& r = jobs_.at(job.value);
        if (r.told == r.place || r.told.empty() != starts) continue;
        delays waited;
        if (starts) {
          waited = line_of(r).clock.at(now);
          waited -= r.entered;
        }
        const auto what = starts ? job_action::verb::start : job_action::verb::migrate;
        actions.push_back({what, job, r.place, waited});
        r.told = r.place;
      }
    }
    acted_.clear();
  }
  [[nodiscard]] delay_cause cause_of(const line_key& of) const {
    const auto& [right, tenant, gpus] = of;
    if (right) {
      const auto used = used_by_.find(tenant);
      const std::uint32_t free = adapter_.owned(backend(), tenant_id(tenant)) -
                                 (used == used_by_.end() ? 0 : used->second);
      return gpus > free ? delay_cause::quota : delay_cause::fragmentation;
    }
    return gpus > idle_gpus() ? delay_cause::capacity : delay_cause::fragmentation;
  }

  time_sharing<Backend> scheduler_;
  Adapter adapter_;
  absl::flat_hash_map<std::uint32_t, record> jobs_;
  std::map<line_key, line> queues_;
  std::vector<job_id> outside_;  // introspection does not know them yet
  std::vector<job_id> acted_;    // something was done with them that the host does not know
  std::vector<typename time_sharing<Backend>::action> done_;
  std::map<std::uint32_t, std::uint32_t> used_by_;  // GPUs of owners, by tenant
  std::uint32_t used_ = 0;                          // GPUs
  std::uint32_t bad_gpus_ = 0;
  std::vector<bool> bad_;  // nodes
  time_ms now_ = 0;        // of the last call
};

}  // namespace detail
APIARY_NAMESPACE_END
