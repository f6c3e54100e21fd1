// apiary/gandiva/detail/slice_order.h - which waiting jobs time sharing tries to start.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
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

// The kinds of requests that could not start. Jobs of one tenant and priority with equally many GPUs
// are of one kind (see JobBackend). Every other request is of its own kind, and not recorded.
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
  using kind = std::tuple<std::uint32_t, std::int32_t, std::uint32_t>;  // tenant, priority, GPUs
  [[nodiscard]] static kind kind_of(const job_request& r) noexcept {
    return {r.tenant.value, r.priority, r.gpus};
  }
  std::vector<kind> kinds_;  // ascending
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
