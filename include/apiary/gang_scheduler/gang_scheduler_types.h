// apiary/gang_scheduler/gang_scheduler_types.h - what a gang scheduler takes and returns.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Names a job as its host does: by a number below 2^64, or by a text that is not empty. Numbers
// come before texts in the order of keys. The number 7 and the text "7" are different keys.
class job_key {
 public:
  // Names no job, as an empty text.
  job_key() = default;
  // A number. A negative one names no job, as an empty text.
  template <std::integral Number>
  job_key(Number number) noexcept
      : is_text_(is_negative(number)), number_(is_text_ ? 0 : static_cast<std::uint64_t>(number)) {}
  // A text. An empty text is not a valid key.
  job_key(std::string text) : is_text_(true), text_(std::move(text)) {}
  // A text.
  job_key(std::string_view text) : job_key(std::string(text)) {}
  // A text. Requires: text is not null.
  job_key(const char* text) : job_key(std::string(text)) {}

  // Whether it names a job: false for an empty text, a negative number, or a key by default.
  [[nodiscard]] bool valid() const noexcept { return !is_text_ || !text_.empty(); }
  // Whether it is a text.
  [[nodiscard]] bool is_text() const noexcept { return is_text_; }
  // The number; 0 for a text.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  // The number in decimal, or the text.
  [[nodiscard]] std::string text() const { return is_text_ ? text_ : std::to_string(number_); }
  // A hash, the same on every platform. Cost: O(length of the text).
  [[nodiscard]] std::uint64_t hash() const noexcept {
    return is_text_ ? digest().add(text_).value() : digest().add(number_).value();
  }
  friend auto operator<=>(const job_key&, const job_key&) = default;
  friend bool operator==(const job_key&, const job_key&) = default;

 private:
  template <class Number>
  [[nodiscard]] static constexpr bool is_negative(Number number) noexcept {
    if constexpr (std::signed_integral<Number>) return number < 0;
    return false;
  }

  bool is_text_ = true;
  std::uint64_t number_ = 0;
  std::string text_;
};

class gang_scheduler;  // gang_scheduler/gang_scheduler.h
namespace detail {
class gang_scheduler_core;  // the state of a scheduler
}  // namespace detail

// The member types of gang_scheduler: gang_scheduler::request, gang_scheduler::plan, ...
struct gang_scheduler_types {
  // A gang that asks to run.
  struct request {
    job_key job{};                // the host's id of the gang
    tenant_id tenant{};           // whose gang it is; disruption budgets are for each tenant
    std::int32_t priority = 0;    // it may preempt running gangs of lower priority
    topology_constraints gang{};  // task groups and constraints
    node_filter filter{};         // the nodes that it accepts
    friend bool operator==(const request&, const request&) = default;
  };
  // A gang that runs, or that has reserved GPUs and waits for the end of its victims.
  struct running_gang {
    request what{};                     // as proposed
    std::vector<placement> tasks{};     // of each task, in the order of the task groups
    level_t level = any_level;          // as in its plan; any_level if recovered
    time_ms started = 0;                // the time of the proposal
    bool preempting = false;            // it waits for the end of `victims`
    std::set<job_key> victims{};        // those that have ended are removed
    std::optional<job_key> ends_for{};  // the preempting gang whose victim it is
    std::uint64_t gpus = 0;             // GPUs of all tasks
  };
  // The answer of propose():
  //   bind     `tasks` says where each task runs
  //   preempt  commit reserves the GPUs in `tasks`; the host ends the victims and proposes again
  //   wait     `reason` says why; explain() says more
  class plan {
   public:
    plan_result result = plan_result::wait;  // bind, preempt or wait
    std::vector<placement> tasks{};          // in the order of the task groups
    level_t level = any_level;               // the gang is in one cell of this level; the
                                             // number of levels: in the whole cluster
    std::vector<job_key> victims{};          // gangs to end, ascending
    std::uint64_t cost = 0;                  // of the victims; 0 if the gang has reserved GPUs
    std::uint64_t lower_bound = 0;           // no set of victims costs less; 0: not known
    wait_reason reason = wait_reason::busy;  // if the result is wait
    std::uint64_t steps = 0;                 // of the step budget that the proposal has used
    // Of propose_replacement(): the tasks that `tasks` has placements for, as indices.
    std::vector<std::uint32_t> replaced{};

   private:
    friend class gang_scheduler;
    friend class detail::gang_scheduler_core;
    request request_{};
    time_ms now_ = 0;
    std::uint64_t epoch_ = 0;
    std::uint64_t hash_ = 0;
  };
  // Why a gang waits, and what would help.
  struct explanation {
    gang_scheduler_types::plan plan{};  // as propose() answers
    // Of `busy` and `never`, if the search has one. A shorter last slice is a task group of its
    // own. Cells are numbered as in gang_scheduler::free_capacity.
    std::optional<infeasibility_proof> proof{};
    std::vector<blocking_resource> blocking{};  // explain/blocking_resource.h
    std::vector<node_id> nodes_to_free{};       // the gang would fit if they were idle, healthy
    std::uint64_t gpus_to_free = 0;             // their GPUs that are not free now, nor its own
    std::string text{};                         // a sentence for people
  };
  // Capacity of a cell, for example of a rack.
  struct cell_capacity {
    std::string name{};            // of the cell
    std::uint32_t nodes = 0;       // nodes in it
    std::uint32_t free_nodes = 0;  // healthy nodes with GPUs, all of them free
    std::uint64_t gpus = 0;        // GPUs in it
    std::uint64_t free_gpus = 0;   // healthy GPUs that no gang uses or has reserved
    friend bool operator==(const cell_capacity&, const cell_capacity&) = default;
  };
  // The cost of ending a gang at a time; costs above 2^40 count as 2^40. It must not throw, and
  // must not call the scheduler.
  using cost_function = std::function<std::uint64_t(const running_gang& gang, time_ms now)>;

  // The most tasks of a gang, and the most task groups.
  static constexpr std::uint32_t max_tasks = 1'000'000;
  // The most node filters that keep their index: those that were used last. They are fewer, but at
  // least 32, if the indexes take more than 1 GiB.
  static constexpr std::uint32_t max_filters = 1'024;
};

APIARY_NAMESPACE_END
