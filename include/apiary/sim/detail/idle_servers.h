// apiary/sim/detail/idle_servers.h - fragmentation of idle GPUs over servers, over time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/metric/buddy_fragmentation.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Measures the fraction of idle GPUs that a job as large as the largest server cannot use; 0 while
// no GPU is idle. A server with f idle GPUs counts as a free cell of level f - 1.
// Model: the unusable free space index (metric/buddy_fragmentation.h), averaged over time.
// Cost:  O(1) per change; O(levels) if time has passed since the last call.
class idle_servers {
 public:
  static_assert(placement::max_gpus <= buddy_fragmentation::max_levels);
  // All GPUs are idle at time 0. Requires: at most placement::max_gpus GPUs each.
  explicit idle_servers(std::span<const std::uint32_t> gpus)
      : gpus_(gpus.begin(), gpus.end()), used_(gpus.size()), broken_(gpus.size()) {
    for (const std::uint32_t g : gpus_) {
      APIARY_ASSERT(g <= placement::max_gpus);
      largest_ = (std::max)(largest_, g);
      count(g, true);
    }
  }
  [[nodiscard]] std::size_t num_servers() const noexcept { return gpus_.size(); }
  // The server uses `more` GPUs more (fewer if negative) from `now` on. Requires: it has them.
  void use(node_id n, std::int64_t more, time_ms now) {
    APIARY_VERIFY(n.value < gpus_.size());
    std::uint32_t& used = used_[n.value];
    change(n, now, [&] { used = static_cast<std::uint32_t>(used + more); });
    APIARY_VERIFY(used <= gpus_[n.value]);
  }
  void set_health(node_id n, bool healthy, time_ms now) {
    change(n, now, [&] { broken_[n.value] = !healthy; });
  }
  // The fraction now.
  [[nodiscard]] double share() const noexcept {
    return largest_ == 0 ? 0 : cells_.unusable(static_cast<level_t>(largest_ - 1));
  }
  // The integral of the fraction from 0 to `now`. Requires: `now` is not before the last call's.
  [[nodiscard]] double area(time_ms now) const noexcept {
    return area_ + share() * static_cast<double>(now - now_);
  }

 private:
  [[nodiscard]] std::uint32_t idle(node_id n) const noexcept {  // 0 if the server is broken
    return broken_[n.value] ? 0 : gpus_[n.value] - used_[n.value];
  }
  void count(std::uint32_t idle, bool in) noexcept {
    if (idle == 0) return;
    cells_.free_cells[idle - 1] += in ? 1U : ~0U;
    cells_.free_leaves[idle - 1] = std::uint64_t{cells_.free_cells[idle - 1]} * idle;
  }
  template <class Change>
  void change(node_id n, time_ms now, Change&& make) {
    if (now != now_) {
      area_ = area(now);
      now_ = now;
    }
    count(idle(n), false);
    make();
    count(idle(n), true);
  }

  std::vector<std::uint32_t> gpus_;
  std::vector<std::uint32_t> used_;
  std::vector<bool> broken_;
  std::uint32_t largest_ = 0;
  buddy_fragmentation cells_{};  // without its member `largest`
  double area_ = 0.0;
  time_ms now_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
