// apiary/hived/plan.h - what a HiveD scheduler answers, to be carried out or dropped.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/gang_place.h>
#include <apiary/hived/request.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What hived::propose answers, for hived::commit.
//
//   bind     `tasks` says where each task runs
//   preempt  these leaves become the gang's once the victims have ended: after commit the host ends
//            them and proposes again
//   wait     `wait` says why
//
// Once a plan is committed, also one to preempt, `downgraded` gangs count as opportunistic, and so
// do victims that end for their tenant's cells alone, as where hardware is bad. They have these cells
// back only if the gang that took them is withdrawn or cancelled before it runs, and the cells are
// then still to be had. If they are not, such a victim need not end either and runs on as
// opportunistic.
//
// The public part is a report: nothing written there changes what commit does. What was moved from
// cannot be committed, a copy can.
class gang_plan {
 public:
  plan_result result = plan_result::wait;
  std::vector<task_place> tasks{};   // in the order of the members
  std::vector<job_id> victims{};     // whole gangs, ascending
  std::vector<job_id> downgraded{};  // lose their tenant's cells at once, run on as opportunistic
  std::vector<job_id> cancelled{};   // preempting gangs that give way, back to waiting
  gang_wait wait{};

 private:
  friend class hived;

  // Of the scheduler that proposed it: its epoch, and the hash of its state then.
  struct origin {
    std::uint64_t epoch = 0;
    std::uint64_t hash = 0;
    friend bool operator==(const origin&, const origin&) = default;
  };
  // An origin, or none: by default, and after it was moved from.
  class stamp {
   public:
    stamp() = default;
    explicit stamp(origin of) : of_(of) {}
    stamp(const stamp&) = default;
    stamp(stamp&& other) noexcept : of_(std::exchange(other.of_, std::nullopt)) {}
    stamp& operator=(const stamp&) = default;
    stamp& operator=(stamp&& other) noexcept {
      of_ = other.of_;
      other.of_.reset();
      return *this;
    }
    ~stamp() = default;
    [[nodiscard]] bool is(const origin& of) const noexcept { return of_ == of; }

   private:
    std::optional<origin> of_{};
  };

  stamp stamp_{};
  plan_result decided_ = plan_result::wait;  // the result as it was proposed
  bool withdraws_ = false;                   // what it decides ends the gang's own preemption
  bool placed_ = false;                      // a preempting gang's place stays as it is
  gang_request request_{};  // of a plan to wait, and of one that is placed: the job alone
  detail::gang_place place_{};
};

APIARY_NAMESPACE_END
