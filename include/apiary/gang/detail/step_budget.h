// apiary/gang/detail/step_budget.h - the steps that a search may take.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A budget of steps. When a search asks for more steps than are left, the budget has ended and all
// steps count as taken.
class step_budget {
 public:
  // A budget of `most` steps.
  explicit step_budget(std::uint64_t most = 0) noexcept : most_(most) {}
  // Takes steps; false if the budget has ended.
  bool pay(std::uint64_t steps) noexcept {
    ended_ = ended_ || steps > left();
    steps_ = ended_ ? most_ : steps_ + steps;
    return !ended_;
  }
  // Whether more steps were asked for than there were.
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
