// apiary/gandiva/detail/queue.h - jobs that wait for a server under Gandiva, and why.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/model/job.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A line for each number of GPUs, by arrival. What keeps one job of a line waiting keeps all of it,
// so that one clock a line tells every job's delay by cause.
//
// Cost: enter, leave O(log jobs waiting); the rest O(numbers of GPUs asked for) beside what it calls.
class gandiva_queue {
 public:
  // The job waits from now on.
  void enter(gandiva_job& r, time_ms now) {
    line& l = queues_[r.request.gpus];
    l.jobs.emplace(r.key, r.request.job.value);
    r.entered = l.clock.at(now);
  }
  // It does not any more; how long it has is added to r.waited. Requires: it waits.
  void leave(gandiva_job& r, time_ms now) {
    const auto at = queues_.find(r.request.gpus);
    at->second.jobs.erase({r.key, r.request.job.value});
    r.waited += at->second.clock.at(now);
    r.waited -= r.entered;
    r.since = now;
    if (at->second.jobs.empty()) queues_.erase(at);
  }
  // Calls place(job), which says whether the job has left, for the jobs by arrival; of each number of
  // GPUs until one stays.
  template <class Place>
  void place_all(Place&& place) {
    std::set<std::uint32_t> failed;
    while (true) {
      std::optional<std::pair<time_ms, std::uint32_t>> first;
      std::uint32_t wanted = 0;
      for (const auto& [gpus, l] : queues_) {
        if (failed.contains(gpus) || (first && *first < *l.jobs.begin())) continue;
        first = *l.jobs.begin();
        wanted = gpus;
      }
      if (!first) return;
      if (!place(job_id(first->second))) failed.insert(wanted);
    }
  }
  // With so many GPUs idle those who still wait do so for want of GPUs, or of a place for them.
  void explain(std::uint32_t idle, time_ms now) {
    for (auto& [gpus, l] : queues_) {
      l.clock.set(gpus > idle ? delay_cause::capacity : delay_cause::fragmentation, now);
    }
  }

 private:
  struct line {
    std::set<std::pair<time_ms, std::uint32_t>> jobs{};  // when they came, ids
    delay_clock clock{};
  };
  std::map<std::uint32_t, line> queues_;  // by GPUs
};

}  // namespace detail
APIARY_NAMESPACE_END
