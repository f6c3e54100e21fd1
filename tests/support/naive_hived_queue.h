// apiary/tests/support/naive_hived_queue.h - a slow HiveD queue that proposes every waiting job again.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/hived/layout.h>
#include <apiary/model/job.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace apiary_test {

// The order of hived/hived_queue.h without queues: after each change it sorts all waiting jobs and
// proposes them again. When the first job will start, and whether another one delays it, it finds out
// on copies of the scheduler in which gangs have ended. It reports no delays.
// Requires: calls that hived_queue takes; under rules::easy no bad hardware.
class naive_hived_queue {
 public:
  using time_ms = apiary::time_ms;

  naive_hived_queue(apiary::hived scheduler, bool over_quota,
                    apiary::hived_queue::rules rule = apiary::hived_queue::rules::easy,
                    time_ms patience = 86'400'000)
      : scheduler_(std::move(scheduler)),
        empty_(scheduler_),
        over_quota_(over_quota),
        rule_(rule),
        patience_(patience) {
    for (const apiary::chain_layout& c : scheduler_.layout().chains) {
      task_gpus_ = std::min(task_gpus_, c.tree.leaves_per_cell(c.node_level));
      total_ += c.tree.num_leaves();
    }
  }

  absl::Status submit(const apiary::job_request& r, time_ms now) {
    waiting_.push_back({.request = r, .came = now, .since = now});
    return absl::OkStatus();
  }
  absl::Status finish(apiary::job_id job, time_ms /*now*/) {
    if (running_.erase(job.value) == 1) return scheduler_.finish(job);
    std::erase_if(waiting_, [&](const record& r) { return r.request.job == job; });
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<apiary::job_id>> mark_bad(apiary::node_id n, time_ms now) {
    if (absl::Status bad = scheduler_.mark_bad(n); !bad.ok()) return bad;
    if (absl::Status bad = empty_.mark_bad(n); !bad.ok()) return bad;
    std::vector<apiary::job_id> stopped;
    for (const auto& [job, r] : running_) {
      const bool there = std::any_of(r.place.begin(), r.place.end(),
                                     [&](apiary::placement p) { return p.node == n; });
      if (there) stopped.push_back(apiary::job_id(job));
    }
    for (const apiary::job_id job : stopped) suspend(job, now);
    return stopped;
  }
  absl::Status mark_healthy(apiary::node_id n, time_ms /*now*/) {
    if (absl::Status good = empty_.mark_healthy(n); !good.ok()) return good;
    return scheduler_.mark_healthy(n);
  }

  // How often a job that starved kept others from idle GPUs.
  [[nodiscard]] std::uint64_t starved() const { return starved_; }
  // How often a job would have started without the reservation of the first job.
  [[nodiscard]] std::uint64_t held_back() const { return held_back_; }

  absl::Status decide(time_ms now, std::vector<apiary::job_action>& actions) {
    const auto tenants = static_cast<std::uint32_t>(scheduler_.layout().tenants.size());
    do {
      for (bool again = true; again;) {
        again = false;
        for (std::uint32_t t = 0; t < tenants; ++t) {
          if (start_own(t, now, actions)) again = true;
        }
      }
    } while (start_guest(now, actions));
    return absl::OkStatus();
  }
  [[nodiscard]] time_ms wake() const { return apiary::max_time; }
  [[nodiscard]] std::uint32_t total_gpus() const { return total_; }

 private:
  struct record {
    apiary::job_request request{};
    time_ms came = 0;
    time_ms since = 0;  // it waits since then
    apiary::job_placement place{};
    bool guest = false;
    time_ms ends = 0;          // by its estimate
    std::uint64_t number = 0;  // how many jobs started before it
  };
  enum class answer : std::uint8_t { started, full, delays_first };
  // The first job that does not fit, and when it will.
  struct reservation {
    record first{};
    time_ms at = 0;
    std::vector<record> ended{};  // by then
  };

  // Tries the guaranteed jobs of the tenant, always the first in order that has not failed. After each
  // suspension it forgets under `easy` what has failed, and tries all of them again. Returns whether
  // one started.
  bool start_own(std::uint32_t tenant, time_ms now, std::vector<apiary::job_action>& actions) {
    const auto order = [](const record& r) {
      return std::tuple(-r.request.priority, r.came, r.request.job);
    };
    bool any = false;
    std::set<apiary::job_id> failed;
    std::set<std::pair<std::int32_t, std::uint32_t>> full;  // priority and GPUs
    std::optional<reservation> first;
    while (true) {
      std::optional<record> next;
      for (const record& r : waiting_) {
        if (r.request.tenant.value != tenant || r.request.priority < 0) continue;
        if (failed.contains(r.request.job) || full.contains({r.request.priority, r.request.gpus}))
          continue;
        if (!next || order(r) < order(*next)) next = r;
      }
      if (!next) return any;
      if (first && first->first.request.priority != next->request.priority) first.reset();
      const std::size_t waited = waiting_.size();
      const answer done = start(*next, false, now, actions, first ? &*first : nullptr);
      any = any || done == answer::started;
      if (rule_ == apiary::hived_queue::rules::easy && done == answer::started &&
          waiting_.size() >= waited) {
        failed.clear();
        full.clear();
        first.reset();
      }
      if (done == answer::delays_first) failed.insert(next->request.job);
      if (done != answer::full) continue;
      full.emplace(next->request.priority, next->request.gpus);
      if (!first) first = reserve(*next);
    }
  }
  // Whether the first job fits after these have ended.
  bool fits_after(apiary::hived scheduler, const record& first,
                  const std::vector<record>& ended) const {
    for (const record& r : ended) (void)scheduler.finish(r.request.job);
    const auto plan = scheduler.propose(gang_of(first.request, first.request.priority));
    return plan.ok() && plan->result != apiary::plan_result::wait;  // it may suspend guests
  }
  std::optional<reservation> reserve(const record& first) const {
    if (rule_ == apiary::hived_queue::rules::first_fit) return std::nullopt;
    std::vector<record> ended;  // and the jobs that the first one suspends
    std::vector<record> others;
    for (const auto& [job, r] : running_) {
      if (r.guest || r.request.tenant != first.request.tenant) continue;
      (r.request.priority < first.request.priority ? ended : others).push_back(r);
    }
    std::sort(others.begin(), others.end(), [](const record& a, const record& b) {
      return std::pair(a.ends, a.number) < std::pair(b.ends, b.number);
    });
    if (fits_after(scheduler_, first, ended)) return std::nullopt;
    for (std::size_t i = 0; i < others.size(); ++i) {
      ended.push_back(others[i]);
      const time_ms at = others[i].ends;
      if (i + 1 < others.size() && others[i + 1].ends == at && at != apiary::max_time) continue;
      if (fits_after(scheduler_, first, ended)) return reservation{first, at, ended};
    }
    return std::nullopt;
  }
  // The same for jobs that may run as opportunistic: the first of each tenant and size, by arrival.
  bool start_guest(time_ms now, std::vector<apiary::job_action>& actions) {
    std::vector<record> order;
    for (const record& r : waiting_) {
      if (r.request.priority < 0 || over_quota_) order.push_back(r);
    }
    std::sort(order.begin(), order.end(), [](const record& a, const record& b) {
      return std::tuple(-a.request.priority, a.came, a.request.job) <
             std::tuple(-b.request.priority, b.came, b.request.job);
    });
    std::vector<record> later = order;  // jobs that may start before one that starves
    const auto sort = [](std::vector<record>& jobs) {
      std::set<std::tuple<std::uint32_t, bool, std::uint32_t>> seen;
      std::erase_if(jobs, [&](const record& r) {
        return !seen.emplace(r.request.tenant.value, r.request.priority < 0, r.request.gpus).second;
      });
      std::sort(jobs.begin(), jobs.end(), [](const record& a, const record& b) {
        return std::pair(a.came, a.request.job) < std::pair(b.came, b.request.job);
      });
    };
    sort(order);
    // Of those that need idle GPUs, have waited too long and would fit in the idle cluster, the first.
    std::optional<record> starving;
    for (const record& r : waiting_) {
      const bool needs_idle =
          r.request.priority < 0 || !fits_idle(r.request, r.request.priority, false);
      if (!needs_idle || now - r.since < patience_ || !fits_idle(r.request, -1, true)) continue;
      if (!starving ||
          std::pair(r.came, r.request.job) < std::pair(starving->came, starving->request.job))
        starving = r;
    }
    if (starving) {
      const std::size_t all = order.size();
      std::erase_if(order, [&](const record& r) {
        return std::pair(r.came, r.request.job) >= std::pair(starving->came, starving->request.job);
      });
      starved_ += all > order.size() + 1 ? 1U : 0U;
      order.push_back(*starving);
      const time_ms by = enough_idle(starving->request.gpus, now);
      std::erase_if(later, [&](const record& r) {
        return by == now || by == apiary::max_time || r.request.estimate > by - now;
      });
      sort(later);
      order.insert(order.end(), later.begin(), later.end());
    }
    return std::any_of(order.begin(), order.end(), [&](const record& r) {
      return start(r, true, now, actions) == answer::started;
    });
  }
  // When so many GPUs are idle, if each job ends by its estimate, and those that are late end now.
  time_ms enough_idle(std::uint32_t gpus, time_ms now) const {
    std::uint32_t idle = 0;
    for (std::uint32_t c = 0; c < scheduler_.cells().num_chains(); ++c) {
      const apiary::detail::physical_chain& chain = scheduler_.cells().chain(c);
      for (const apiary::cell_id leaf : chain.tree().cells(0))
        idle += chain.healthy().healthy(leaf) ? 1U : 0U;
    }
    std::vector<std::pair<time_ms, std::uint32_t>> ends;
    for (const auto& [job, r] : running_) {
      idle -= r.request.gpus;
      ends.emplace_back(std::max(r.ends, now), r.request.gpus);
    }
    if (idle >= gpus) return now;
    std::sort(ends.begin(), ends.end());
    for (const auto& [end, more] : ends) {
      idle += more;
      if (idle >= gpus) return end;
    }
    return apiary::max_time;
  }
  // Whether the job would fit, with this priority, if no other one ran: on the healthy hardware, or on
  // all.
  bool fits_idle(const apiary::job_request& r, std::int32_t priority, bool healthy) const {
    apiary::hived idle = empty_;
    for (std::uint32_t n = 0; !healthy && n < idle.layout().num_nodes(); ++n)
      (void)idle.mark_healthy(apiary::node_id(n));
    const auto plan = idle.propose(gang_of(r, priority));
    return plan.ok() && plan->result == apiary::plan_result::bind;
  }

  apiary::gang_request gang_of(const apiary::job_request& r, std::int32_t priority) const {
    apiary::gang_request gang{.job = r.job, .tenant = r.tenant, .priority = priority};
    const std::uint32_t whole = r.gpus / task_gpus_;
    const std::uint32_t rest = r.gpus % task_gpus_;
    if (whole > 0) gang.groups.push_back({whole, task_gpus_});
    if (rest > 0) gang.groups.push_back({1, rest});
    return gang;
  }
  answer start(const record& r, bool as_guest, time_ms now,
               std::vector<apiary::job_action>& actions, const reservation* first = nullptr) {
    const apiary::gang_request gang = gang_of(
        r.request, as_guest ? apiary::gang_request::opportunistic_priority : r.request.priority);
    record started = r;
    started.guest = as_guest;
    started.ends = apiary::add_time(now, r.request.estimate);
    started.number = ++starts_;
    absl::StatusOr<apiary::gang_plan> plan = scheduler_.propose(gang);
    if (!plan.ok() || plan->result == apiary::plan_result::wait) return answer::full;
    if (first != nullptr && (started.ends > first->at || started.ends == apiary::max_time)) {
      apiary::hived after = scheduler_;
      (void)after.commit(*plan);
      for (const apiary::job_id victim : plan->victims) (void)after.finish(victim);
      (void)after.commit(
          after.propose(gang).value_or(apiary::gang_plan()));  // if there were victims
      std::vector<record> ended = first->ended;
      for (const auto& [job, other] : running_) {  // those that have started since, too
        if (!other.guest && other.request.tenant == r.request.tenant && other.ends <= first->at &&
            other.ends != apiary::max_time)
          ended.push_back(other);
      }
      if (!fits_after(std::move(after), first->first, ended)) {
        ++held_back_;
        return answer::delays_first;
      }
    }
    if (!scheduler_.commit(*plan).ok()) return answer::full;
    if (plan->result == apiary::plan_result::preempt) {
      for (const apiary::job_id victim : plan->victims) {
        suspend(victim, now);
        actions.push_back({apiary::job_action::verb::suspend, victim, {}, {}});
      }
      plan = scheduler_.propose(gang);
      if (!plan.ok() || !scheduler_.commit(*plan).ok()) return answer::full;
    }
    std::map<apiary::node_id, std::uint32_t> masks;
    for (const apiary::hived_placement& t : plan->tasks)
      masks[t.node] |= static_cast<std::uint32_t>(t.leaves);
    std::erase_if(waiting_, [&](const record& w) { return w.request.job == started.request.job; });
    for (const auto& [node, mask] : masks) started.place.push_back({node, mask});
    actions.push_back({apiary::job_action::verb::start, started.request.job, started.place, {}});
    running_.emplace(started.request.job.value, std::move(started));
    return answer::started;
  }
  void suspend(apiary::job_id job, time_ms now) {
    (void)scheduler_.finish(job);
    record stopped = running_.extract(job.value).mapped();
    stopped.place.clear();
    stopped.since = now;
    waiting_.push_back(std::move(stopped));
  }

  apiary::hived scheduler_;
  apiary::hived empty_;  // with the same hardware
  bool over_quota_;
  apiary::hived_queue::rules rule_;
  time_ms patience_;
  std::uint64_t starved_ = 0;
  std::uint64_t held_back_ = 0;
  std::uint64_t starts_ = 0;
  std::uint32_t task_gpus_ = ~std::uint32_t{0};
  std::uint32_t total_ = 0;
  std::vector<record> waiting_;
  std::map<std::uint32_t, record> running_;
};

}  // namespace apiary_test
