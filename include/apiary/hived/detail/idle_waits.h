// apiary/hived/detail/idle_waits.h - which waiting jobs of hived_queue starve.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The waiting jobs that can only run on idle GPUs, and when running jobs end. A waiting job starves
// when it has waited for `patience`.
// Cost: enter, leave, begin_run, end_run O(log jobs); longest_beside O(jobs that end);
//       first_starving O(log jobs) for each job that has begun to starve. On bad hardware it looks
//       at jobs that starve until one would fit, and each number of GPUs costs a copy of the
//       cluster after each change of health.
class idle_waits {
 public:
  using time_and_id = std::pair<time_ms, std::uint32_t>;

  // Requires: patience >= 0.
  idle_waits(time_ms patience, std::uint32_t nodes) : patience_(patience), bad_(nodes, false) {}

  // kInvalidArgument: it is negative.
  [[nodiscard]] static absl::Status check_patience(time_ms patience) {
    if (patience >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError("a patience of " + std::to_string(patience) +
                                      " ms; it must be at least 0");
  }
  [[nodiscard]] bool is_bad(node_id n) const { return bad_[n.value]; }
  void set_health(node_id n, bool good) {
    bad_[n.value] = !good;
    any_bad_ = std::find(bad_.begin(), bad_.end(), true) != bad_.end();
    fits_.clear();
  }
  // The job waits from now on. Requires: it did not wait; now is not below 0.
  void enter(const job_request& r, time_ms arrival, time_ms now) {
    jobs_[r.job.value] = {r, arrival, now};
    patient_.try_emplace({now, r.job.value}, r.job);
  }
  // The job does not wait any more, or it never did.
  void leave(job_id job) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return;
    starving_.erase({found->second.arrival, job.value});
    patient_.erase({found->second.since, job.value});
    jobs_.erase(found);
  }
  // The job runs, or does not any more.
  void begin_run(const job_request& r, time_ms now) {
    const time_ms end = add_time(now, r.estimate);
    running_[r.job.value] = end;
    ends_.try_emplace({end, r.job.value}, r.gpus);
  }
  void end_run(job_id job) {
    const auto found = running_.find(job.value);
    ends_.erase({found->second, job.value});
    running_.erase(found);
  }
  // How long jobs may run that start now beside a job that needs more than the idle GPUs: until
  // enough running jobs have ended, by their estimates. -1: none may start.
  [[nodiscard]] time_ms longest_beside(std::uint32_t gpus, std::uint32_t idle, time_ms now) const {
    for (auto at = ends_.begin(); at != ends_.end() && gpus > idle; ++at) {
      idle += at->second;
      const time_ms end = at->first.first;
      if (gpus <= idle && end > now && end != max_time) return end - now;
    }
    return -1;
  }
  // The first job by arrival and id that starves now and would fit on the healthy hardware, with
  // its arrival; nullopt: there is none.
  [[nodiscard]] std::optional<time_and_id> first_starving(time_ms now, const hived_jobs& gangs) {
    while (!patient_.empty() && now - patient_.begin()->first.first >= patience_) {
      const job_id job = patient_.begin()->second;
      starving_.try_emplace({jobs_.at(job.value).arrival, job.value}, job);
      patient_.erase(patient_.begin());
    }
    for (const auto& [at, job] : starving_) {
      if (fits(jobs_.at(job.value).request, gangs)) return at;
    }
    return std::nullopt;
  }

 private:
  struct wait {
    job_request request{};
    time_ms arrival = 0;
    time_ms since = 0;
  };
  [[nodiscard]] bool fits(const job_request& r, const hived_jobs& gangs) {
    if (!any_bad_) return true;
    const auto [known, is_new] = fits_.try_emplace(r.gpus);
    if (is_new) known->second = gangs.fits_without(r, bad_);
    return known->second;
  }

  time_ms patience_;
  std::vector<bool> bad_;  // nodes
  bool any_bad_ = false;
  std::map<std::uint32_t, bool> fits_;  // by GPUs, since the last change of health
  std::unordered_map<std::uint32_t, wait> jobs_;
  std::unordered_map<std::uint32_t, time_ms> running_;  // when they end, by their estimates
  std::map<time_and_id, std::uint32_t> ends_;           // the same with their GPUs
  std::map<time_and_id, job_id> patient_;   // those that do not starve, by the begin of their wait
  std::map<time_and_id, job_id> starving_;  // the others, by arrival
};

}  // namespace detail
APIARY_NAMESPACE_END
