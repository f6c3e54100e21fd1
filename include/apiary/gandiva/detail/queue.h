// apiary/gandiva/detail/queue.h - jobs that wait for a server under Gandiva, why, and which server they get.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs that wait for a server: one queue for each number of GPUs and priority, by arrival. All
// jobs of a queue wait for the same cause, so one clock a queue measures the delays of all its jobs.
// Cost: enter, leave O(log waiting jobs); the rest O(queues), callbacks excluded.
class gandiva_queue {
 public:
  // Adds a job that waits from now on.
  void enter(gandiva_job& r, time_ms now) {
    queue& q = queues_[key_of(r)];
    q.jobs.emplace(std::pair(r.key, r.request.job.value), r.request.job);
    r.entered = q.clock.at(now);
  }
  // Removes a waiting job, and adds the time that it waited to r.waited.
  void leave(gandiva_job& r, time_ms now) {
    const auto at = queues_.find(key_of(r));
    at->second.jobs.erase({r.key, r.request.job.value});
    r.waited += at->second.clock.at(now);
    r.waited -= r.entered;
    r.since = now;
    if (at->second.jobs.empty()) queues_.erase(at);
  }
  // Whether no job waits.
  [[nodiscard]] bool empty() const noexcept { return queues_.empty(); }
  // Calls place(job) by arrival; it returns whether the job left the queue. If a job stays, the
  // others of its queue are not tried.
  template <class Place>
  void place_all(Place&& place) {
    std::vector<queue_key> failed;  // ascending
    while (true) {
      const job_list::value_type* first = nullptr;
      queue_key wanted;
      for (const auto& [key, q] : queues_) {
        if (std::binary_search(failed.begin(), failed.end(), key)) continue;
        if (first != nullptr && first->first < q.jobs.begin()->first) continue;
        first = &*q.jobs.begin();
        wanted = key;
      }
      if (first == nullptr) return;
      if (!place(first->second)) insert_sorted(failed, wanted);
    }
  }
  // Sets the cause of each queue, from the number of idle GPUs.
  void explain(std::uint32_t idle, time_ms now) {
    for (auto& [key, q] : queues_) {
      q.clock.set(key.first > idle ? delay_cause::capacity : delay_cause::fragmentation, now);
    }
  }

 private:
  using job_list = std::map<std::pair<time_ms, std::uint32_t>, job_id>;  // by arrival, id
  struct queue {
    job_list jobs{};
    delay_clock clock{};
  };
  using queue_key = std::pair<std::uint32_t, std::int32_t>;  // GPUs, priority
  [[nodiscard]] static queue_key key_of(const gandiva_job& r) noexcept {
    return {r.request.gpus, r.request.priority};
  }
  std::map<queue_key, queue> queues_;
};

// Assigns queued jobs to servers by arrival, by the published rule (the module's page lists its cases).
// Cost: O(GPUs of a server * log64 servers) for each number of GPUs and priority.
inline void assign_queued(gandiva_jobs& jobs, gandiva_queue& queue, time_ms now) {
  const gandiva_servers& servers = jobs.servers();
  queue.place_all([&](job_id job) {
    gandiva_job& r = jobs.at(job);
    const std::uint32_t gpus = r.request.gpus;
    const node_id same = servers.least_loaded(gpus);
    node_id home = same;
    if (!same.valid() || servers.unsubscribed(same) < gpus) {
      home = servers.empty(gpus);
      if (!home.valid()) home = servers.tightest(gpus);
    }
    if (!home.valid()) {
      if (const gpus_by_server split = servers.spread(gpus); !split.empty()) {
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
  });
}

}  // namespace detail
APIARY_NAMESPACE_END
