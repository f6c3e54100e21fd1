// apiary/model/plan.h - what a scheduler decides about a request.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/placement.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// What happens to a request when its plan is committed.
enum class plan_result : std::uint8_t {
  bind,     // it runs at the placement in the plan
  preempt,  // it gets the GPUs in the plan once the victims in the plan have ended
  wait,     // it cannot run now; the plan has the reason
};

// Why a request waits. `never` holds until a node joins or gets more, or the configuration changes:
// a host need not try again before. Every other reason may be gone at the next try.
enum class wait_reason : std::uint8_t {
  never,      // it would not fit even if the cluster (or its tenant's quota) were idle and healthy
  busy,       // running work is in the way
  unhealthy,  // it would fit if all nodes and GPUs were healthy
  not_suggested,  // it fits on other nodes, not on the suggested ones
  undecided,      // the search used up its budget before it found an answer
};

// The reason as a clause for a user: "it would fit if all nodes and GPUs were healthy".
[[nodiscard]] constexpr const char* wait_reason_text(wait_reason reason) noexcept {
  switch (reason) {
    case wait_reason::never:
      return "it would not fit even if all that it may use were idle and healthy";
    case wait_reason::busy:
      return "other gangs or tasks use what it needs";
    case wait_reason::unhealthy:
      return "it would fit if all nodes and GPUs were healthy";
    case wait_reason::not_suggested:
      return "it would fit, but not on the suggested nodes";
    case wait_reason::undecided:
      return "the search used up its budget before it found an answer";
  }
  return "";
}

// The decision about one task.
struct task_plan {
  plan_result result = plan_result::wait;  // bind or wait
  placement where{};                       // if the result is bind
  wait_reason reason = wait_reason::busy;  // if the result is wait
  friend constexpr bool operator==(const task_plan&, const task_plan&) noexcept = default;
};

APIARY_NAMESPACE_END
