// apiary/tests/support/naive_hived_queue.h - a slow HiveD queue that proposes every waiting job again.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace apiary_test {

// The order of hived/hived_queue.h without queues: after each change it sorts all waiting jobs and
// proposes them again. It reports no delays.
// Requires: calls that hived_queue takes.
class naive_hived_queue {
 public:
  using time_ms = apiary::time_ms;

  naive_hived_queue(apiary::hived scheduler, bool over_quota)
      : scheduler_(std::move(scheduler)), over_quota_(over_quota) {
    for (const apiary::chain_layout& c : scheduler_.layout().chains) {
      task_gpus_ = std::min(task_gpus_, c.tree.leaves_per_cell(c.node_level));
      total_ += c.tree.num_leaves();
    }
  }

  absl::Status submit(const apiary::job_request& r, time_ms now) {
    waiting_.push_back({r, now});
    return absl::OkStatus();
  }
  absl::Status finish(apiary::job_id job, time_ms /*now*/) {
    if (running_.erase(job.value) == 1) return scheduler_.finish(job);
    std::erase_if(waiting_, [&](const record& r) { return r.request.job == job; });
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<apiary::job_id>> mark_bad(apiary::node_id n, time_ms /*now*/) {
    if (absl::Status bad = scheduler_.mark_bad(n); !bad.ok()) return bad;
    std::vector<apiary::job_id> stopped;
    for (const auto& [job, r] : running_) {
      const bool there = std::any_of(r.place.begin(), r.place.end(),
                                     [&](apiary::placement p) { return p.node == n; });
      if (there) stopped.push_back(apiary::job_id(job));
    }
    for (const apiary::job_id job : stopped) suspend(job);
    return stopped;
  }
  absl::Status mark_healthy(apiary::node_id n, time_ms /*now*/) {
    return scheduler_.mark_healthy(n);
  }

  absl::Status decide(time_ms /*now*/, std::vector<apiary::job_action>& actions) {
    const auto tenants = static_cast<std::uint32_t>(scheduler_.layout().tenants.size());
    for (bool again = true; again;) {
      again = false;
      for (std::uint32_t t = 0; t < tenants; ++t) {
        while (start_own(t, actions)) again = true;
      }
    }
    while (start_guest(actions)) continue;
    return absl::OkStatus();
  }
  [[nodiscard]] time_ms wake() const { return apiary::max_time; }
  [[nodiscard]] std::uint32_t total_gpus() const { return total_; }

 private:
  struct record {
    apiary::job_request request{};
    time_ms came = 0;
    apiary::job_placement place{};
  };

  // Starts the first guaranteed job of the tenant that fits into its cells. Returns whether there is one.
  bool start_own(std::uint32_t tenant, std::vector<apiary::job_action>& actions) {
    std::vector<record> order;
    for (const record& r : waiting_) {
      if (r.request.tenant.value == tenant && r.request.priority >= 0) order.push_back(r);
    }
    std::sort(order.begin(), order.end(), [](const record& a, const record& b) {
      return std::tuple(-a.request.priority, a.came, a.request.job) <
             std::tuple(-b.request.priority, b.came, b.request.job);
    });
    return std::any_of(order.begin(), order.end(),
                       [&](const record& r) { return start(r, false, actions); });
  }
  // The same for jobs that may run as opportunistic: the first of each tenant and size, by arrival.
  bool start_guest(std::vector<apiary::job_action>& actions) {
    std::vector<record> order;
    for (const record& r : waiting_) {
      if (r.request.priority < 0 || over_quota_) order.push_back(r);
    }
    std::sort(order.begin(), order.end(), [](const record& a, const record& b) {
      return std::tuple(-a.request.priority, a.came, a.request.job) <
             std::tuple(-b.request.priority, b.came, b.request.job);
    });
    std::set<std::tuple<std::uint32_t, bool, std::uint32_t>> seen;
    std::erase_if(order, [&](const record& r) {
      return !seen.emplace(r.request.tenant.value, r.request.priority < 0, r.request.gpus).second;
    });
    std::sort(order.begin(), order.end(), [](const record& a, const record& b) {
      return std::pair(a.came, a.request.job) < std::pair(b.came, b.request.job);
    });
    return std::any_of(order.begin(), order.end(),
                       [&](const record& r) { return start(r, true, actions); });
  }

  bool start(const record& r, bool as_guest, std::vector<apiary::job_action>& actions) {
    apiary::gang_request gang{
        .job = r.request.job,
        .tenant = r.request.tenant,
        .priority = as_guest ? apiary::gang_request::opportunistic_priority : r.request.priority};
    const std::uint32_t whole = r.request.gpus / task_gpus_;
    const std::uint32_t rest = r.request.gpus % task_gpus_;
    if (whole > 0) gang.groups.push_back({whole, task_gpus_});
    if (rest > 0) gang.groups.push_back({1, rest});
    absl::StatusOr<apiary::gang_plan> plan = scheduler_.propose(gang);
    if (!plan.ok() || plan->result == apiary::plan_result::wait) return false;
    if (!scheduler_.commit(*plan).ok()) return false;
    if (plan->result == apiary::plan_result::preempt) {
      for (const apiary::job_id victim : plan->victims) {
        suspend(victim);
        actions.push_back({apiary::job_action::verb::suspend, victim, {}, {}});
      }
      plan = scheduler_.propose(gang);
      if (!plan.ok() || !scheduler_.commit(*plan).ok()) return false;
    }
    std::map<apiary::node_id, std::uint32_t> masks;
    for (const apiary::hived_placement& t : plan->tasks)
      masks[t.node] |= static_cast<std::uint32_t>(t.leaves);
    record started = r;
    std::erase_if(waiting_, [&](const record& w) { return w.request.job == started.request.job; });
    for (const auto& [node, mask] : masks) started.place.push_back({node, mask});
    actions.push_back({apiary::job_action::verb::start, started.request.job, started.place, {}});
    running_.emplace(started.request.job.value, std::move(started));
    return true;
  }
  void suspend(apiary::job_id job) {
    (void)scheduler_.finish(job);
    record stopped = running_.extract(job.value).mapped();
    stopped.place.clear();
    waiting_.push_back(std::move(stopped));
  }

  apiary::hived scheduler_;
  bool over_quota_;
  std::uint32_t task_gpus_ = ~std::uint32_t{0};
  std::uint32_t total_ = 0;
  std::vector<record> waiting_;
  std::map<std::uint32_t, record> running_;
};

}  // namespace apiary_test
