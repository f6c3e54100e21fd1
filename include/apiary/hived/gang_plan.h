// apiary/hived/gang_plan.h - the answer of HiveD to a request; the host commits or drops it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The answer of hived::propose(), to be passed to hived::commit() or dropped. The results:
//   bind     `tasks` says where each task runs
//   preempt  commit reserves the leaves in `tasks`; the host ends the victims and proposes again
//   wait     `wait` says why
// After a commit, `downgraded` gangs are opportunistic, and so are victims that end only because
// the gang needs their tenant's cells. If the preemptor is cancelled before it runs, they get these
// cells back if the cells are still free; otherwise such a victim keeps running as opportunistic.
// The public fields are a report: commit() ignores changes to them, and fails after a move.
class gang_plan {
 public:
  plan_result result = plan_result::wait;  // bind, preempt or wait
  std::vector<hived_placement> tasks{};    // in the order of the task groups
  std::vector<job_id> victims{};           // gangs to end, ascending
  std::vector<job_id> downgraded{};        // keep running, as opportunistic
  std::vector<job_id> cancelled{};         // preempting gangs that lose their reservation
  gang_wait wait{};                        // why, if the result is wait

 private:
  friend class hived;

  // The epoch and the state hash of the scheduler that proposed the plan.
  struct origin {
    std::uint64_t epoch = 0;
    std::uint64_t hash = 0;
    friend bool operator==(const origin&, const origin&) = default;
  };
  // An origin, or none (by default and after a move).
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
  plan_result decided_ = plan_result::wait;  // `result` as proposed
  bool withdraws_ = false;                   // the commit ends the preemption of the gang itself
  bool placed_ = false;                      // a preempting gang keeps its placement
  gang_request request_{};                   // only the job, if result is wait or placed_
  detail::gang_placement place_{};
};

APIARY_NAMESPACE_END
