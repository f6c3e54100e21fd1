// apiary/fgd/detail/eviction_bounds.h - what evictions on a node cost at least, by the requested GPUs.
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

// Lower bounds of what it costs to evict enough jobs of a node, one for each class of requests: no GPU,
// a fraction by eighths of a GPU, one GPU, and 2, 4, 8 or 16 whole GPUs (or up to the next class).
// They hold for all requests of the class, whatever CPU and memory these want: they count what is
// missing on the GPUs, and the cheapest job.
//
// A bound is kept in 32 bits: costs from 2^27 on are rounded down to 27 binary digits.
//
// Cost: fill: O(candidates * GPUs of the node). Memory: 64 bytes.
class alignas(64) eviction_bounds {
 public:
  using candidate = shared_victim_search::candidate;
  // The bound of a node where no evictions are enough.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  // The class of a request. Requires: task.valid().
  [[nodiscard]] static std::uint32_t class_of(const task_request& task) noexcept {
    if (!task.wants_gpu()) return 0;
    if (task.gpus == 1) return fractions + task.gpu_milli / eighth;
    return several - 2 + static_cast<std::uint32_t>(std::bit_width((std::min)(task.gpus, 16U)));
  }

  // The cheapest job costs this much; never: there is none. Other bounds are not known.
  void reset(std::uint64_t least) noexcept {
    bounds_[0] = packed(least);
    forget();
  }
  // The node has changed: only the cost of the cheapest job is known.
  void forget() noexcept { bounds_[filled] = 0; }
  // Whether the bounds of all classes are known.
  [[nodiscard]] bool known() const noexcept { return bounds_[filled] != 0; }
  // The bound of a class: until the bounds are known, the cost of the cheapest job.
  [[nodiscard]] std::uint64_t of(std::uint32_t request_class) const noexcept {
    return unpacked(bounds_[known() ? request_class : 0]);
  }

  // Computes the bounds. Requires: reset() got the least cost of the candidates, and these use no more
  // than the node has.
  void fill(const node_state& node, std::span<const candidate> candidates) noexcept {
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
    if (!node.healthy) std::fill_n(bounds_.begin() + 1, filled - 1, packed(never));
    bounds_[filled] = 1;
  }

 private:
  static constexpr std::uint32_t eighth = whole_gpu / 8;
  // Where bounds begin: 0 is the cost of the cheapest job.
  static constexpr std::uint32_t fractions = 1;
  static constexpr std::uint32_t several = fractions + 9;
  static constexpr std::uint32_t filled = 15;  // 1: the bounds are known
  static_assert(max_gpus_per_node <= 16 && several + 4 <= filled);
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
    bounds_[request_class] = (std::max)(packed(bound), bounds_[0]);
  }
  // A number that rises with the cost, and what it stands for: not more than the cost.
  static constexpr std::uint32_t digits = 27;
  [[nodiscard]] static std::uint32_t packed(std::uint64_t cost) noexcept {
    if (cost == never) return (std::numeric_limits<std::uint32_t>::max)();
    const auto width = static_cast<std::uint32_t>(std::bit_width(cost));
    const std::uint32_t shift = width > digits ? width - digits : 0;
    return (shift << (digits - 1)) + static_cast<std::uint32_t>(cost >> shift);
  }
  [[nodiscard]] static std::uint64_t unpacked(std::uint32_t bound) noexcept {
    if (bound == (std::numeric_limits<std::uint32_t>::max)()) return never;
    const std::uint32_t steps = bound >> (digits - 1);
    const std::uint32_t shift = steps > 1 ? steps - 1 : 0;
    return std::uint64_t{bound - (shift << (digits - 1))} << shift;
  }

  std::array<std::uint32_t, 16> bounds_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
