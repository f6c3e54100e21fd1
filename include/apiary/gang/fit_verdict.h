// apiary/gang/fit_verdict.h - the verdict of a search for a placement, and its steps.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The answer of every search for a placement: the gang fits, it does not fit (which is proved), or
// the step budget ended before the search knew.
enum class fit_verdict : std::uint8_t { fits, does_not_fit, budget_ended };

// A proof of does_not_fit: in slots of `gpus` GPUs, the gang needs more than all nodes have.
struct gpu_shortage {
  std::uint32_t gpus = 0;     // GPUs of a slot
  std::uint64_t needed = 0;   // sum of tasks * floor(GPUs of the task / gpus)
  std::uint64_t present = 0;  // sum of nodes * floor(free / gpus)
};

namespace detail {

// A budget of steps. When a search must have more steps than are left, the budget has ended and all
// steps count as taken.
class step_budget {
 public:
  // Products with small numbers of a budget up to here are below 2^64.
  static constexpr std::uint64_t limit = std::uint64_t{1} << 56;

  // A budget of `most` steps.
  explicit step_budget(std::uint64_t most = 0) noexcept : most_(most) {}
  // Takes steps; false if the budget has ended.
  bool pay(std::uint64_t steps) noexcept {
    ended_ = ended_ || steps > left();
    steps_ = ended_ ? most_ : steps_ + steps;
    return !ended_;
  }
  // Takes steps if there are so many; otherwise it takes none and returns false.
  bool try_pay(std::uint64_t steps) noexcept {
    if (steps > left()) return false;
    steps_ += steps;
    return true;
  }
  // Whether more steps had to be taken than there were.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t left() const noexcept { return most_ - steps_; }

 private:
  std::uint64_t most_;
  std::uint64_t steps_ = 0;
  bool ended_ = false;
};

}  // namespace detail
APIARY_NAMESPACE_END
