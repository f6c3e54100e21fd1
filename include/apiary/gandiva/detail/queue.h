// apiary/gandiva/detail/queue.h - jobs that wait for a server under Gandiva, and which one they get.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/job.h>
#include <apiary/queue/kinds.h>

#include <compare>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs that wait for a server, by arrival. Those with as many GPUs and the same priority are of
// one kind (queue/kinds.h).
// Cost: enter, leave O(log waiting jobs); the rest O(kinds), callbacks excluded.
class gandiva_queue {
 public:
  // Adds a job that waits from now on.
  void enter(gandiva_job& r, time_ms now) {
    r.entered = waiting_.enter(kind_of(r), r.request.job, r.key, 0, now);
  }
  // Removes a waiting job, and adds the time that it waited to r.waited.
  void leave(gandiva_job& r, time_ms now) {
    r.waited += waiting_.leave(kind_of(r), r.request.job, r.key, r.entered, now);
    r.since = now;
  }
  // Whether no job waits.
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  // Calls place(job) by arrival; it returns whether the job left the queue. If a job stays, the
  // others of its kind are not tried.
  template <class Place>
  void place_all(Place&& place) {
    waiting_.visit_in_order([&](const auto& next) { return place(next.job); });
  }
  // Sets the cause of each kind, from the number of idle GPUs.
  void explain(std::uint32_t idle, time_ms now) {
    waiting_.set_causes(
        [&](const kind& k, bool) {
          return k.gpus > idle ? delay_cause::capacity : delay_cause::fragmentation;
        },
        now);
  }

 private:
  struct kind {
    std::uint32_t gpus = 0;
    std::int32_t priority = 0;
    friend constexpr auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  [[nodiscard]] static kind kind_of(const gandiva_job& r) noexcept {
    return {r.request.gpus, r.request.priority};
  }
  kind_queues<kind> waiting_;
};

// Assigns queued jobs to servers by arrival, by the published rule (see the module's page).
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
