// apiary/tests/support/naive_conservative_queue.h - conservative backfilling that tries every job again.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace apiary_test {

// The rules of queue/conservative_queue.h: whenever reservations may move, every waiting job in order
// gives up its reservation and takes the earliest, until none has moved. The free GPUs are counted anew
// from all jobs each time. `depth`: jobs get reservations until so many have one; 0: all. A job that
// does not fit on the healthy servers when no job runs has none. It reports no delays. Requires: calls
// that conservative_queue takes.
class naive_conservative_queue {
 public:
  using time_ms = apiary::time_ms;
  using job_id = apiary::job_id;

  explicit naive_conservative_queue(apiary::server_placer placer, std::size_t depth = 0)
      : placer_(std::move(placer)), depth_(depth) {}

  absl::Status submit(const apiary::job_request& r, time_ms now) {
    jobs_[r.job.value] = {r, now};
    return absl::OkStatus();
  }
  absl::Status finish(job_id job, time_ms now) {
    const record& r = jobs_.at(job.value);
    moved_ = moved_ || !r.running || now < r.ends;
    if (r.running) APIARY_RETURN_IF_ERROR(placer_.finish(job));
    jobs_.erase(job.value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(apiary::node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(placer_.mark_bad(n));
    const std::vector<job_id> stopped = placer_.jobs_on(n);
    for (const job_id job : stopped) {
      APIARY_RETURN_IF_ERROR(placer_.finish(job));
      jobs_.at(job.value).running = jobs_.at(job.value).may_reserve = false;
      jobs_.at(job.value).reserved = apiary::max_time;
    }
    rebuild_ = bad_.insert(n).second || rebuild_;
    return stopped;
  }
  absl::Status mark_healthy(apiary::node_id n, time_ms /*now*/) {
    rebuild_ = bad_.erase(n) > 0 || rebuild_;
    return placer_.mark_healthy(n);
  }
  absl::Status decide(time_ms now, std::vector<apiary::job_action>& actions) {
    for (auto& [id, r] : jobs_) {
      const bool late = r.running ? r.ends <= now : r.reserved < now;
      if (late && r.running) r.ends = apiary::add_time(now, std::max<time_ms>(1, now - r.started));
      rebuild_ = rebuild_ || late;
    }
    if (rebuild_) {
      for (record* const r : in_order()) {
        r->reserved = apiary::max_time;
        r->may_reserve = false;
      }
      moved_ = false;
    }
    if (moved_) admit();
    while (std::exchange(moved_, false)) {
      for (record* const r : in_order()) {
        if (!r->may_reserve) continue;
        const time_ms before = std::exchange(r->reserved, apiary::max_time);
        reserve(*r, now);
        moved_ = moved_ || r->reserved != before;
      }
    }
    rebuild_ = false;
    reserve_more(now);
    while (true) {
      record* next = first_reserved(now);
      if (next == nullptr) {
        reserve_more(now);
        next = first_reserved(now);
        if (next == nullptr) return absl::OkStatus();
      }
      APIARY_ASSIGN_OR_RETURN(const auto where, placer_.propose(next->request));
      if (!where) {
        next->reserved = apiary::max_time;
        const time_ms change = next_change(now);
        if (change != apiary::max_time) reserve(*next, change);
        moved_ = true;
        continue;
      }
      APIARY_RETURN_IF_ERROR(placer_.commit(next->request, *where));
      next->running = true;
      next->started = now;
      next->ends = apiary::add_time(now, length(*next));
      actions.push_back({apiary::job_action::verb::start, next->request.job, *where, {}});
    }
  }
  [[nodiscard]] time_ms wake() const {
    time_ms next = apiary::max_time;
    bool waits = false;
    for (const auto& [id, r] : jobs_) {
      waits = waits || !r.running;
      next = std::min(next, r.running ? r.ends : r.reserved);
    }
    return waits ? next : apiary::max_time;
  }
  [[nodiscard]] std::optional<time_ms> reserved(job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end() || found->second.running) return std::nullopt;
    return found->second.reserved;
  }
  [[nodiscard]] std::uint32_t total_gpus() const { return placer_.total_gpus(); }

 private:
  struct record {
    apiary::job_request request{};
    time_ms key = 0;
    time_ms reserved = apiary::max_time;
    bool may_reserve = false;
    bool running = false;
    time_ms started = 0;
    time_ms ends = 0;  // by the estimate
  };
  [[nodiscard]] static time_ms length(const record& r) {
    return std::max<time_ms>(1, r.request.estimate);
  }
  // The jobs that wait.
  [[nodiscard]] std::vector<record*> in_order() {
    std::vector<record*> order;
    for (auto& [id, r] : jobs_) {
      if (!r.running) order.push_back(&r);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const record* a, const record* b) { return a->key < b->key; });
    return order;
  }
  // Whether the job fits on the healthy servers when no job runs.
  [[nodiscard]] bool fits_idle(const record& r) const {
    apiary::server_placer idle = placer_;
    for (const auto& [id, other] : jobs_) {
      if (other.running) idle.finish(job_id(id)).IgnoreError();
    }
    return idle.propose(r.request).value().has_value();
  }
  [[nodiscard]] std::size_t num_reserved() const {
    return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [](const auto& j) {
      return !j.second.running && j.second.reserved != apiary::max_time;
    }));
  }
  // The first jobs that may have a reservation, until so many have one if each of these gets one.
  void admit() {
    std::size_t reserved = num_reserved();
    for (record* const r : in_order()) {
      if (depth_ != 0 && reserved >= depth_) return;
      if (r->may_reserve || !fits_idle(*r)) continue;
      r->may_reserve = true;
      ++reserved;
    }
  }
  // Reservations for the first jobs that have not tried to get one, until so many have one.
  void reserve_more(time_ms now) {
    for (record* const r : in_order()) {
      if (depth_ != 0 && num_reserved() >= depth_) return;
      if (r->may_reserve || !fits_idle(*r)) continue;
      r->may_reserve = true;
      reserve(*r, now);
    }
  }
  [[nodiscard]] record* first_reserved(time_ms now) {
    record* first = nullptr;
    for (auto& [id, r] : jobs_) {
      if (r.running || r.reserved > now) continue;
      if (first == nullptr || r.reserved < first->reserved) first = &r;
    }
    return first;
  }
  // By how much the number of free GPUs changes when.
  [[nodiscard]] std::map<time_ms, std::int64_t> changes() const {
    std::map<time_ms, std::int64_t> at;
    for (const auto& [id, r] : jobs_) {
      const std::int64_t gpus = r.request.gpus;
      if (r.running) {
        at[r.ends] += gpus;
      } else if (r.reserved != apiary::max_time) {
        at[r.reserved] -= gpus;
        at[apiary::add_time(r.reserved, length(r))] += gpus;
      }
    }
    std::erase_if(at, [](const auto& c) { return c.second == 0 || c.first == apiary::max_time; });
    return at;
  }
  [[nodiscard]] time_ms next_change(time_ms now) const {
    const std::map<time_ms, std::int64_t> at = changes();
    const auto next = at.upper_bound(now);
    return next == at.end() ? apiary::max_time : next->first;
  }
  // The earliest time from `from` on when enough GPUs are free for long enough.
  void reserve(record& r, time_ms from) const {
    const std::map<time_ms, std::int64_t> at = changes();
    std::int64_t free = placer_.idle_gpus();
    auto next = at.begin();
    for (; next != at.end() && next->first <= from; ++next) free += next->second;
    time_ms start = free >= r.request.gpus ? from : apiary::max_time;
    for (; next != at.end(); ++next) {
      if (start != apiary::max_time && next->first >= apiary::add_time(start, length(r))) break;
      free += next->second;
      if (free < r.request.gpus) start = apiary::max_time;
      if (free >= r.request.gpus && start == apiary::max_time) start = next->first;
    }
    r.reserved = start;
  }

  apiary::server_placer placer_;
  std::map<std::uint32_t, record> jobs_;
  std::size_t depth_;
  std::set<apiary::node_id> bad_;
  bool moved_ = false;
  bool rebuild_ = false;
};

}  // namespace apiary_test
