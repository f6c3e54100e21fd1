// apiary/gandiva/detail/slice_order.h - which waiting jobs time sharing tries to start.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs of the queue whose keys are at most `last`, in order.
[[nodiscard]] inline std::vector<job_id> in_order(const weighted_tree& queue,
                                                  std::int64_t last = max_time) {
  std::vector<job_id> jobs;
  for (auto at = queue.first(); at && at->key <= last; at = queue.next(at->key, at->id))
    jobs.emplace_back(at->id);
  return jobs;
}

// The kind of a request: jobs of one tenant and priority with equally many GPUs are of one kind (see
// JobBackend). Other requests have no kinds.
using request_kind = std::tuple<std::uint32_t, std::int32_t, std::uint32_t>;
[[nodiscard]] inline request_kind kind_of(const job_request& r) noexcept {
  return {r.tenant.value, r.priority, r.gpus};
}
template <class Request>
[[nodiscard]] request_kind kind_of(const Request& /*r*/) noexcept {
  return {};
}

// The kinds of requests that could not start. A request without a kind is not recorded.
class failed_kinds {
 public:
  [[nodiscard]] bool contains(const job_request& r) const {
    return std::binary_search(kinds_.begin(), kinds_.end(), kind_of(r));
  }
  void add(const job_request& r) { insert_sorted(kinds_, kind_of(r)); }
  template <class Request>
  [[nodiscard]] static bool contains(const Request& /*r*/) noexcept {
    return false;
  }
  template <class Request>
  static void add(const Request& /*r*/) noexcept {}

 private:
  std::vector<request_kind> kinds_;  // ascending
};

// Waiting jobs in order of a key, for sliced jobs their pass, then of id, in one queue for each kind of
// waiting jobs.
// Cost: insert, erase O(log jobs); least O(kinds); a visit O(kinds + log jobs).
class queues_by_kind {
 public:
  template <class Request>
  void insert(const Request& r, std::int64_t key) {
    queues_[kind_of(r)].insert({key, r.job.value, 0});
    ++size_;
  }
  // Requires: it was inserted with this key.
  template <class Request>
  void erase(const Request& r, std::int64_t key) {
    const auto jobs = queues_.find(kind_of(r));
    jobs->second.erase(key, r.job.value);
    if (jobs->second.empty()) queues_.erase(jobs);
    --size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // The least key; nullopt: no job waits.
  [[nodiscard]] std::optional<std::int64_t> least() const noexcept {
    std::optional<std::int64_t> key;
    for (const auto& [kind, jobs] : queues_) {
      const std::int64_t first = jobs.first()->key;
      key = (std::min)(key.value_or(first), first);
    }
    return key;
  }
  // Calls visit(job) for the jobs in order; after it returned false, for no other job of this kind.
  // visit may insert and erase jobs; a job that it inserts may be visited.
  template <class Visit>
  void visit_all(Visit&& visit) {
    std::vector<std::pair<request_kind, weighted_tree::item>> nexts;  // one for each kind
    for (const auto& [kind, jobs] : queues_) nexts.emplace_back(kind, *jobs.first());
    while (!nexts.empty()) {
      const auto at =
          std::min_element(nexts.begin(), nexts.end(), [](const auto& a, const auto& b) {
            return std::pair(a.second.key, a.second.id) < std::pair(b.second.key, b.second.id);
          });
      const weighted_tree::item job = at->second;
      const bool goes_on = visit(job_id(job.id));
      const auto jobs = queues_.find(at->first);  // none: the visit erased the last job
      const bool has_more = goes_on && jobs != queues_.end();
      const auto next = has_more ? jobs->second.next(job.key, job.id) : std::nullopt;
      if (next) {
        at->second = *next;
      } else {
        nexts.erase(at);
      }
    }
  }

 private:
  std::map<request_kind, weighted_tree> queues_;  // by key
  std::size_t size_ = 0;
};

// The passes of running jobs, which grow with time.
// Cost: insert, erase O(log jobs); least O(distinct weights).
class running_passes {
 public:
  // A job runs from `since` on and had this pass then. Requires: weight > 0, 0 <= since < 2^43.
  void insert(std::uint32_t weight, std::int64_t pass, time_ms since) {
    ++by_weight_[weight][entry_of(weight, pass, since)];
  }
  // Requires: a job was inserted with these.
  void erase(std::uint32_t weight, std::int64_t pass, time_ms since) {
    const auto jobs = by_weight_.find(weight);
    const auto at = jobs->second.find(entry_of(weight, pass, since));
    if (--at->second == 0) jobs->second.erase(at);
    if (jobs->second.empty()) by_weight_.erase(jobs);
  }
  // The least pass at this time; nullopt: no job runs. Requires: now is not before any `since`.
  [[nodiscard]] std::optional<std::int64_t> least(time_ms now) const {
    std::optional<std::int64_t> pass;
    for (const auto& [weight, jobs] : by_weight_) {
      const auto& [base, rest] = jobs.begin()->first;
      const std::int64_t at = base + (now * slice_pass_unit + rest) / weight;
      pass = (std::min)(pass.value_or(at), at);
    }
    return pass;
  }

 private:
  // The pass is first + (now * slice_pass_unit + second) / weight, rounded down; second is in
  // (-weight, 0]. So of equal weights the least entry has the least pass at any time.
  using entry = std::pair<std::int64_t, std::int64_t>;
  [[nodiscard]] static entry entry_of(std::uint32_t weight, std::int64_t pass,
                                      time_ms since) noexcept {
    const std::int64_t had = since * slice_pass_unit;
    return {pass - had / weight, -(had % weight)};
  }
  std::map<std::uint32_t, std::map<entry, std::uint32_t>> by_weight_;  // how many jobs
};

// GPUs without which a request cannot run; 0 for requests that are no jobs of whole GPUs.
[[nodiscard]] inline std::int64_t counted_gpus(const job_request& r) noexcept { return r.gpus; }
template <class Request>
[[nodiscard]] std::int64_t counted_gpus(const Request& /*r*/) noexcept {
  return 0;
}

// The weight by which the time of a job is divided if jobs share GPU-time: 1000 * weight / GPUs, at
// least 1. Requests that are no jobs of whole GPUs keep their weight.
[[nodiscard]] inline std::uint32_t gpu_time_weight(std::uint32_t weight,
                                                   const job_request& r) noexcept {
  return (std::max)(1U, weight * 1000 / (std::max)(1U, r.gpus));
}
template <class Request>
[[nodiscard]] std::uint32_t gpu_time_weight(std::uint32_t weight, const Request& /*r*/) noexcept {
  return weight;
}

}  // namespace detail
APIARY_NAMESPACE_END
