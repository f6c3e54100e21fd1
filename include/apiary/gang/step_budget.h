// apiary/gang/step_budget.h - steps that a search may take.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// So many steps; once more are asked for than are left it has ended, and all count as taken.
class step_budget {
 public:
  explicit step_budget(std::uint64_t most = 0) noexcept : most_(most) {}

  bool pay(std::uint64_t steps) noexcept {
    ended_ = ended_ || steps > left();
    steps_ = ended_ ? most_ : steps_ + steps;
    return !ended_;
  }
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t left() const noexcept { return most_ - steps_; }

 private:
  std::uint64_t most_;
  std::uint64_t steps_ = 0;
  bool ended_ = false;
};

APIARY_NAMESPACE_END
