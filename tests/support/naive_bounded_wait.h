// apiary/tests/support/naive_bounded_wait.h - bounded_wait_queue, as a sort of all jobs at each step.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/status.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>

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

// Tries everything on copies of the placer. Its delays have one cause.
class naive_bounded_wait {
 public:
  naive_bounded_wait(apiary::server_placer placer, apiary::bounded_wait_options options)
      : placer_(std::move(placer)), options_(options) {}

  absl::Status submit(const apiary::job_request& r, apiary::time_ms now) {
    APIARY_RETURN_IF_ERROR(placer_.check(r));
    jobs_[r.job] = {.request = r, .since = now, .waits_from = now};
    arrived_ = true;
    return absl::OkStatus();
  }
  absl::Status finish(apiary::job_id job, apiary::time_ms) {
    if (jobs_.at(job).runs) APIARY_RETURN_IF_ERROR(placer_.finish(job));
    jobs_.erase(job);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<apiary::job_id>> mark_bad(apiary::node_id n, apiary::time_ms now) {
    APIARY_RETURN_IF_ERROR(placer_.mark_bad(n));
    std::vector<apiary::job_id> stopped = placer_.jobs_on(n);
    for (const apiary::job_id job : stopped) {
      APIARY_RETURN_IF_ERROR(placer_.finish(job));
      state& j = jobs_.at(job);
      pause(j, now);
      const apiary::time_ms interval = options_.checkpoint_interval;
      j.done = interval == 0 ? 0 : j.done / interval * interval;
    }
    return stopped;
  }
  absl::Status mark_healthy(apiary::node_id n, apiary::time_ms) { return placer_.mark_healthy(n); }

  absl::Status decide(apiary::time_ms now, std::vector<apiary::job_action>& actions) {
    const bool choose = now % options_.quantum == 0 || now >= wake_;
    for (auto& [id, j] : jobs_) {
      if (choose && j.runs && j.starves && j.started + j.owed <= now) {
        j.starves = false;
      } else if (choose && !j.runs && !j.starves && now - j.since >= options_.patience) {
        j.starves = true;
        j.owed = options_.slice;
      }
    }
    const std::map<apiary::job_id, state> before = jobs_;
    const bool stops = choose || std::exchange(arrived_, false);
    arrived_ = false;
    std::set<std::uint32_t> failed;
    while (true) {
      const std::vector<apiary::job_id> order = in_order(now);
      const auto next = std::find_if(order.begin(), order.end(), [&](apiary::job_id id) {
        const state& j = jobs_.at(id);
        return !j.runs && !failed.contains(j.request.gpus) &&
               (stops || j.request.gpus <= placer_.idle_gpus());
      });
      if (next == order.end()) break;
      state& j = jobs_.at(*next);
      std::vector<apiary::job_id> later;  // that run, the last one first
      std::vector<apiary::job_id> smaller;
      for (auto at = order.rbegin(); at != order.rend(); ++at) {
        if (!jobs_.at(*at).runs) continue;
        if (std::find(next, order.end(), *at) != order.end()) later.push_back(*at);
        if (!jobs_.at(*at).starves && jobs_.at(*at).request.gpus < j.request.gpus)
          smaller.push_back(*at);
      }
      if (start(j, {}, now, false)) continue;
      if ((choose || (j.had == 0 && j.since == now)) && start(j, later, now, false)) continue;
      if (choose && options_.migrates && start(j, smaller, now, true)) continue;
      failed.insert(j.request.gpus);
    }
    report(before, now, actions);
    const bool waits =
        std::any_of(jobs_.begin(), jobs_.end(), [](const auto& j) { return !j.second.runs; });
    wake_ = waits ? (now / options_.quantum + 1) * options_.quantum : apiary::max_time;
    return absl::OkStatus();
  }
  apiary::time_ms wake() const { return wake_; }
  std::uint32_t total_gpus() const { return placer_.total_gpus(); }

 private:
  struct state {
    apiary::job_request request{};
    apiary::time_ms had = 0;
    apiary::time_ms done = 0;  // of it, what no breakdown has undone
    apiary::time_ms started = 0;
    apiary::time_ms since = 0;
    apiary::time_ms waits_from = 0;
    apiary::time_ms owed = 0;
    bool starves = false;
    bool runs = false;
    apiary::job_placement where{};
  };

  std::vector<apiary::job_id> in_order(apiary::time_ms now) const {
    std::vector<std::tuple<int, std::int64_t, apiary::job_id>> keys;
    for (const auto& [id, j] : jobs_) {
      const apiary::time_ms runs = j.runs ? now - j.started : 0;
      const apiary::time_ms time =
          options_.order == apiary::bounded_wait_options::orders::attained
              ? j.had + runs
              : std::max<apiary::time_ms>(0, j.request.estimate - j.done - runs);
      keys.emplace_back(j.starves ? 0 : 1, j.starves ? j.since : time * j.request.gpus, id);
    }
    std::sort(keys.begin(), keys.end());
    std::vector<apiary::job_id> order;
    for (const auto& key : keys) order.push_back(std::get<2>(key));
    return order;
  }
  void pause(state& j, apiary::time_ms now) {
    j.runs = false;
    j.had += now - j.started;
    j.done += now - j.started;
    j.owed -= now - j.started;
    if (j.owed <= 0) j.starves = false;
    if (!j.starves) j.since = now;
    j.waits_from = now;
  }
  // Starts the job after the fewest of these jobs, from the first on, have stopped. The last of them
  // goes back first; those that cannot must all find other GPUs if `move`, else they wait.
  bool start(state& j, const std::vector<apiary::job_id>& others, apiary::time_ms now, bool move) {
    if (placer_.idle_gpus() < j.request.gpus && move) return false;
    for (std::size_t n = others.empty() ? 0 : 1; n <= others.size(); ++n) {
      apiary::server_placer trial = placer_;
      for (std::size_t i = 0; i < n; ++i) {
        if (!trial.finish(others[i]).ok()) return false;
      }
      const auto where = trial.propose(j.request).value();
      if (!where) continue;
      if (!trial.commit(j.request, *where).ok()) return false;
      std::vector<apiary::job_id> displaced;
      for (std::size_t i = n; i-- > 0;) {
        const state& other = jobs_.at(others[i]);
        if (!trial.commit(other.request, other.where).ok()) displaced.push_back(others[i]);
      }
      std::map<apiary::job_id, apiary::job_placement> to;
      if (move) {
        std::stable_sort(displaced.begin(), displaced.end(), [&](auto a, auto b) {
          return jobs_.at(a).request.gpus > jobs_.at(b).request.gpus;
        });
        for (const apiary::job_id id : displaced) {
          const auto at = trial.propose(jobs_.at(id).request).value();
          if (!at || !trial.commit(jobs_.at(id).request, *at).ok()) return false;
          to[id] = *at;
        }
      }
      placer_ = trial;
      j.runs = true;
      j.where = *where;
      j.started = now;
      for (const apiary::job_id id : displaced) {
        if (move) {
          jobs_.at(id).where = to.at(id);
        } else {
          pause(jobs_.at(id), now);
        }
      }
      return true;
    }
    return false;
  }
  void report(const std::map<apiary::job_id, state>& before, apiary::time_ms now,
              std::vector<apiary::job_action>& actions) const {
    using verb = apiary::job_action::verb;
    std::vector<apiary::job_action> starts;
    for (const auto& [id, j] : jobs_) {
      const state& b = before.at(id);
      const bool moved = b.runs && j.runs && b.where != j.where;
      if ((b.runs && !j.runs) || (moved && !options_.migrates))
        actions.push_back({verb::suspend, id, {}, {}});
      if (!j.runs || (b.runs && !moved)) continue;
      starts.push_back({moved && options_.migrates ? verb::migrate : verb::start, id, j.where, {}});
      if (!b.runs) starts.back().waited[apiary::delay_cause::capacity] = now - b.waits_from;
    }
    actions.insert(actions.end(), starts.begin(), starts.end());
  }

  apiary::server_placer placer_;
  apiary::bounded_wait_options options_;
  std::map<apiary::job_id, state> jobs_;
  apiary::time_ms wake_ = apiary::max_time;
  bool arrived_ = false;
};

}  // namespace apiary_test
