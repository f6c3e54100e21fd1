// apiary/fgd/detail/eviction_bounds.h - what evictions on a node cost at least.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/preempt/shared_victim_search.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Lower bounds of what it costs to evict enough jobs of a node, one for each class of requests: no
// GPU, a fraction by eighths of a GPU, one GPU, and 2, 4, 8 or 16 whole GPUs (or up to the next
// class). They hold for all requests of the class, whatever CPU and memory these want: they count
// what is missing on the GPUs, and the cheapest job.
//
// Requires: the candidates use no more than the node has.
// Cost:     O(candidates * GPUs of the node).
class eviction_bounds {
 public:
  using candidate = shared_victim_search::candidate;
  // The bound of a node where no evictions are enough.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  // The number of classes.
  static constexpr std::uint32_t num_classes = 14;

  // The class of a request. Requires: task.valid().
  [[nodiscard]] static std::uint32_t class_of(const task_request& task) noexcept {
    if (!task.wants_gpu()) return 0;
    if (task.gpus == 1) return fractions + task.gpu_milli / eighth;
    return several - 2 + static_cast<std::uint32_t>(std::bit_width((std::min)(task.gpus, 16U)));
  }
  // The bound of a class.
  [[nodiscard]] std::uint64_t of(std::uint32_t request_class) const noexcept {
    return bounds_[request_class];
  }

  // The bounds for a node and the jobs on it that may be evicted.
  eviction_bounds(const node_state& node, std::span<const candidate> candidates) noexcept {
    bounds_.fill(never);
    if (!node.healthy) return;
    for (const candidate& c : candidates) least(bounds_[0], c.cost);
    std::array<gpu, max_gpus_per_node> gpus{};
    // The least cost to leave so many eighths of a GPU free by at most one eviction.
    by_eighths one;
    // The same by two evictions, if all evictions together leave as many free.
    by_eighths two;
    one.fill(never);
    two.fill(never);
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      gpus[i].free = node.gpu_left[i];
      if (gpus[i].free > 0) one[eighths(gpus[i].free)] = 0;
    }
    for (const candidate& c : candidates) {
      std::uint32_t used = 0;
      for (std::uint32_t i = 0; i < node.gpus; ++i) used += c.gpus[i] > 0 ? 1U : 0U;
      for (std::uint32_t i = 0; used > 0 && i < node.gpus; ++i) {
        if (c.gpus[i] == 0) continue;
        gpus[i].add(c.cost, c.gpus[i], used);
        least(one[eighths(std::uint32_t{node.gpu_left[i]} + c.gpus[i])], c.cost);
      }
    }
    std::uint64_t whole = never;
    std::array<std::uint64_t, max_gpus_per_node> fees{};  // of the GPUs that can be free, ascending
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      const gpu& here = gpus[i];
      if (here.second != never) least(two[eighths(here.free)], here.first + here.second);
      if (here.free < whole_gpu) continue;
      least(whole, here.all);
      std::uint32_t at = count++;
      for (; at > 0 && fees[at - 1] > here.fee; --at) fees[at] = fees[at - 1];
      fees[at] = here.fee;
    }
    set(fractions + whole_gpu / eighth, whole);
    for (std::uint32_t k = whole_gpu / eighth; k-- > 0;) {
      least(one[k], one[k + 1]);
      least(two[k], two[k + 1]);
      set(fractions + k, (std::min)(one[k], two[k]));
    }
    std::uint64_t sum = 0;
    std::uint32_t added = 0;
    for (std::uint32_t n = 2; n <= max_gpus_per_node; n *= 2) {
      for (; added < n && added < count; ++added) sum += fees[added];
      set(several - 2 + static_cast<std::uint32_t>(std::bit_width(n)), added == n ? sum : never);
    }
  }

 private:
  static constexpr std::uint32_t eighth = whole_gpu / 8;
  // Where bounds begin: 0 is the cost of the cheapest job, with or without GPU.
  static constexpr std::uint32_t fractions = 1;
  static constexpr std::uint32_t several = fractions + 9;
  static_assert(max_gpus_per_node <= 16 && several + 4 == num_classes);
  using by_eighths = std::array<std::uint64_t, 9>;

  // What evictions leave of a GPU, and what they cost.
  struct gpu {
    std::uint32_t free = 0;        // thousandths, if all end
    std::uint64_t first = never;   // the least cost of a job
    std::uint64_t second = never;  // of another one
    std::uint64_t all = 0;         // of all jobs
    std::uint64_t fee = 0;         // of all, each divided among its GPUs

    void add(std::uint64_t cost, std::uint32_t share, std::uint32_t used) noexcept {
      free += share;
      second = (std::min)(second, (std::max)(first, cost));
      first = (std::min)(first, cost);
      all += cost;
      fee += cost / used;
    }
  };

  [[nodiscard]] static std::size_t eighths(std::uint32_t milli) noexcept {
    return (std::min)(milli, std::uint32_t{whole_gpu}) / eighth;
  }
  static void least(std::uint64_t& known, std::uint64_t cost) noexcept {
    known = (std::min)(known, cost);
  }
  void set(std::uint32_t request_class, std::uint64_t bound) noexcept {
    bounds_[request_class] = (std::max)(bound, bounds_[0]);
  }

  std::array<std::uint64_t, num_classes> bounds_;
};

}  // namespace detail
APIARY_NAMESPACE_END
