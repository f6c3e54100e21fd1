// apiary/hived/gang_record.h - a gang inside HiveD, with its state and leaves.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/gang_request.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

using gang_slot = id<struct gang_slot_tag>;          // the slot of a gang in gang_table
using vc_chain_id = id<struct virtual_cluster_tag>;  // the cells of one tenant in one chain

namespace detail {

// The gangs that hold a leaf: one that runs on it, a preempting gang that has reserved it, or both.
struct leaf_holders {
  gang_slot user{};         // the gang that runs on it
  gang_slot claimer{};      // the preempting gang that has reserved it
  bool guaranteed = false;  // the running gang uses it as a cell of its tenant

  // Whether no gang runs on it or has reserved it.
  [[nodiscard]] constexpr bool idle() const noexcept { return !user.valid() && !claimer.valid(); }
  // Whether the leaf is in use as a cell of a tenant.
  [[nodiscard]] constexpr bool taken() const noexcept { return claimer.valid() || guaranteed; }
  // The gang for which the leaf is taken; a gang that has reserved it comes first.
  [[nodiscard]] constexpr gang_slot holder() const noexcept {
    return claimer.valid() ? claimer : guaranteed ? user : gang_slot();
  }
  friend constexpr bool operator==(leaf_holders, leaf_holders) noexcept = default;
};

// A leaf of a virtual cluster and the physical leaf it is bound to.
struct bound_leaf {
  cell_id leaf{};   // not valid: an opportunistic gang has no virtual leaves
  cell_id image{};  // the physical leaf
  friend constexpr bool operator==(bound_leaf, bound_leaf) noexcept = default;
};

// A placement of a gang, and the gangs that lose leaves or cells for it.
struct gang_placement {
  vc_chain_id cluster{};  // not valid: the gang is opportunistic
  std::uint32_t chain = 0;
  lean_vector<bound_leaf> leaves{};     // of all tasks, in the order of the task groups
  lean_vector<gang_slot> cancelled{};   // preempting gangs of lower priority that lose their claims
  lean_vector<gang_slot> downgraded{};  // lose their tenant's cells; those not lazy must end
};

}  // namespace detail

// A physical leaf and its chain.
struct chain_leaf {
  std::uint32_t chain = 0;  // index of the chain
  cell_id leaf{};           // not valid: the task has ended, or the leaf no longer exists
  friend constexpr auto operator<=>(chain_leaf, chain_leaf) noexcept = default;
};

// allocated: the tasks run. preempting: the gang has reserved its leaves and waits for the victims.
enum class gang_state : std::uint8_t { allocated, preempting };

// A gang, as hived::find() returns it.
struct gang_record {
  // A leaf of a gang that the configuration lacks, by the names of its node and device.
  struct missing_leaf {
    std::uint32_t index = 0;   // in gang_record::leaves
    std::string node{};        // name of its node
    std::uint32_t device = 0;  // index of its device in the node
    friend bool operator==(const missing_leaf&, const missing_leaf&) = default;
  };
  // The cost of ending a running gang. It must not throw, and must not call the scheduler.
  using cost_function = std::function<std::uint64_t(const gang_record&)>;

  gang_request request{};                    // without the suggested nodes
  gang_state state = gang_state::allocated;  // allocated or preempting
  bool downgraded = false;                   // lost its guaranteed cells, runs as opportunistic
  bool recovered = false;                    // added by recover(): some leaves may be missing
  bool moved = false;                        // reconfigured: it may run on leaves of another type
  bool levels_known = true;  // false: recovered without levels; yields to gangs with levels
  gang_slot ends_for{};      // the preempting gang that took its cells and waits for its end
  vc_chain_id cluster{};     // whose cells it uses; not valid: opportunistic
  std::vector<chain_leaf> leaves{};  // of all tasks, in the order of the task groups
  // Of a downgraded gang: the level of the whole cell around each leaf; empty: unknown.
  std::vector<level_t> lost_levels{};
  std::vector<missing_leaf> missing{};  // leaves outside the configuration, by index
  // Of a preempting gang: the gangs that it downgraded. They may get their cells back.
  std::vector<job_id> downgraded_victims{};

  // Whether it uses cells of its tenant.
  [[nodiscard]] bool guaranteed() const noexcept { return cluster.valid(); }
  // The priority that counts when another gang wants its leaves.
  [[nodiscard]] std::int32_t effective_priority() const noexcept {
    return guaranteed() ? request.priority : gang_request::opportunistic_priority;
  }
  // Orders gangs that want the same cells back: guaranteed first, then by priority, then by job id.
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> rank() const noexcept {
    return {effective_priority(), request.priority};
  }
  // The leaves of a task as a range [first, second) of `leaves`; empty if there is no such task.
  [[nodiscard]] std::pair<std::size_t, std::size_t> leaves_of(std::uint32_t task) const noexcept {
    std::size_t first = 0;
    for (const task_group& m : request.groups) {
      if (task < m.tasks) {
        first += std::size_t{task} * m.gpus;
        return {first, first + m.gpus};
      }
      task -= m.tasks;
      first += std::size_t{m.tasks} * m.gpus;
    }
    return {0, 0};
  }
  // How many of the leaves first, ..., last-1 exist.
  [[nodiscard]] std::size_t count_live(std::size_t first, std::size_t last) const noexcept {
    std::size_t live = 0;
    for (std::size_t i = first; i < last; ++i) live += leaves[i].leaf.valid() ? 1U : 0U;
    return live;
  }
  // Whether one of the leaves first, ..., last-1 is outside the configuration.
  [[nodiscard]] bool misses(std::size_t first, std::size_t last) const noexcept {
    return std::any_of(missing.begin(), missing.end(),
                       [&](const missing_leaf& m) { return m.index >= first && m.index < last; });
  }
  // Whether the gang runs and another gang has claimed one of its leaves.
  template <class Cells>
  [[nodiscard]] bool claimed(const Cells& cells) const noexcept {
    return state == gang_state::allocated &&
           std::any_of(leaves.begin(), leaves.end(), [&](const chain_leaf& l) {
             return l.leaf.valid() && cells.chain(l.chain).holders(l.leaf).claimer.valid();
           });
  }
  // Calls f(task group, first, last) for each task; its leaves are first, ..., last-1.
  template <class F>
  void for_each_task(F&& f) const {
    std::uint32_t first = 0;
    for (const task_group& m : request.groups) {
      for (std::uint32_t t = 0; t < m.tasks; ++t, first += m.gpus) f(m, first, first + m.gpus);
    }
  }
};

APIARY_NAMESPACE_END
