// apiary/gandiva/detail/assignment.h - which servers Gandiva gives to the jobs that wait for one.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/available_gpus.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/queue.h>
#include <apiary/gandiva/detail/relocation.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Assigns queued jobs to servers by the published rule (the module's page lists its cases). If that
// rule has no server for a job that starves, empties servers for it. While such a job stays queued, no
// job of its priority or below that comes after it starts on several servers: these jobs would hold
// their GPUs until they end.
// Cost: place_all O(GPUs of a server * log64 servers) for each number of GPUs and priority, and
//       gandiva_relocation::emptied at a quantum for a job that starves, O(jobs of the server) for each
//       server of several that it gets.
class gandiva_assignment {
 public:
  // max_wait: after so long without GPUs a job starves; max_time: never.
  explicit gandiva_assignment(time_ms max_wait) : max_wait_(max_wait) {}
  // Since when the job waits, if it starves; max_time: it does not.
  [[nodiscard]] time_ms starves(const gandiva_job& r, time_ms now) const noexcept {
    if (r.runs() || add_time(r.waits_since(), max_wait_) > now) return max_time;
    return r.waits_since();
  }
  // The job as one that may run in the next time slice of its server.
  [[nodiscard]] sliced_job candidate(const gandiva_job& r, time_ms now) const noexcept {
    const time_ms ran = r.runs() ? now - r.since : 0;
    return {r.request.job, r.request.gpus, r.request.priority,
            r.pass + slice_pass(ran, r.request.weight), starves(r, now)};
  }
  // Assigns jobs by arrival. `blocked`: up to this priority no job starts on several servers.
  void place_all(gandiva_jobs& jobs, gandiva_queue& queue, bool new_slice, std::int64_t blocked,
                 time_ms now) const {
    gandiva_available_by_priority available;
    queue.place_all([&](job_id job) {
      gandiva_job& r = jobs.at(job);
      const bool several = r.request.priority > blocked;
      if (assign(jobs, queue, r, several, now)) return true;
      if (starves(r, now) == max_time || r.request.gpus > jobs.pool().usable()) return false;
      if (new_slice && empty_servers(jobs, queue, r, several, available, now)) return true;
      blocked = (std::max)(blocked, std::int64_t{r.request.priority});
      return false;
    });
  }

 private:
  // Assigns a job to a server, or to `several`, by the published rule; false: there is none for it.
  static bool assign(gandiva_jobs& jobs, gandiva_queue& queue, gandiva_job& r, bool several,
                     time_ms now) {
    const gandiva_servers& servers = jobs.servers();
    const std::uint32_t gpus = r.request.gpus;
    const node_id same = servers.least_loaded(gpus);
    node_id home = same;
    if (!same.valid() || servers.unsubscribed(same) < gpus) {
      home = servers.empty(gpus);
      if (!home.valid()) home = servers.tightest(gpus);
    }
    if (!home.valid()) {
      if (const auto split = several ? servers.spread(gpus) : gpus_by_server(); !split.empty()) {
        queue.leave(r, now);
        jobs.start_multi_server(r, split);
        return true;
      }
      home = same;
    }
    if (!home.valid()) return false;
    queue.leave(r, now);
    jobs.settle(r, home);
    return true;
  }
  // Gives a job that starves one server, where it gets time slices, or GPUs of several.
  bool empty_servers(gandiva_jobs& jobs, gandiva_queue& queue, gandiva_job& r, bool several,
                     gandiva_available_by_priority& available, time_ms now) const {
    const gpus_by_server on = gandiva_relocation::emptied(jobs, r, several, available);
    if (on.empty()) return false;
    queue.leave(r, now);
    if (on.size() == 1) {
      jobs.settle(r, on[0].first);
      return true;
    }
    for (const auto& [n, gpus] : on) make_idle(jobs, n, gpus, now);
    jobs.start_multi_server(r, on);
    return true;
  }
  // Suspends the running jobs of the server that would not run in a time slice if so many of its GPUs
  // were taken. Then so many are idle, or were only added to jobs. Requires: emptied() returned them.
  void make_idle(gandiva_jobs& jobs, node_id n, std::uint32_t gpus, time_ms now) const {
    std::vector<sliced_job> candidates;
    for (const job_id job : jobs.servers().jobs(n)) {
      const gandiva_job& r = jobs.at(job);
      if (r.home != n || r.leader.valid() || (!r.runs() && jobs.acted(r))) continue;
      candidates.push_back(candidate(r, now));
    }
    const std::vector<std::size_t> runs =
        choose_slice(candidates, jobs.pool().gpus(n) - jobs.servers().pinned(n) - gpus);
    for (std::size_t i = 0, next = 0; i < candidates.size(); ++i) {
      if (next < runs.size() && runs[next] == i) {
        ++next;
      } else if (gandiva_job& r = jobs.at(candidates[i].job); r.runs()) {
        jobs.suspend(r);
      }
    }
  }

  time_ms max_wait_;
};

}  // namespace detail
APIARY_NAMESPACE_END
