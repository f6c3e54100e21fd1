// apiary/hived/gang_record.h - a gang of a HiveD scheduler, and where it is.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/ids.h>
#include <apiary/hived/request.h>
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

// A physical leaf of any chain.
struct chain_leaf {
  std::uint32_t chain = 0;
  cell_id leaf{};  // not valid: its task has ended, or it exists no more
  friend constexpr auto operator<=>(chain_leaf, chain_leaf) noexcept = default;
};

// A leaf of a gang that the configuration does not have, by the names of its node and device.
struct missing_leaf {
  std::uint32_t index = 0;  // in gang_record::leaves
  std::string node{};
  std::uint32_t device = 0;
  friend bool operator==(const missing_leaf&, const missing_leaf&) = default;
};

// allocated: its tasks run. preempting: its leaves are claimed and their users are to end.
enum class gang_state : std::uint8_t { allocated, preempting };

struct gang_record {
  gang_request request{};  // without suggested nodes
  gang_state state = gang_state::allocated;
  bool downgraded = false;                   // lost its tenant's cells, runs on as opportunistic
  bool recovered = false;                    // ran before the scheduler did: it may lack leaves
  bool moved = false;                        // came from another configuration: what runs there now
                                             // may be on leaves of another type
  bool levels_known = true;                  // not if it came back without the levels of its whole
                                             // cells: others with theirs come first (oust)
  gang_slot ends_for{};                      // a preempting gang that has its tenant's cells and
                                             // waits for its end, on whatever leaves
  vc_chain_id cluster{};                     // whose cells it has; not valid: it is opportunistic
  std::vector<chain_leaf> leaves{};          // of all tasks, in the order of the members
  std::vector<level_t> lost{};               // of a downgraded gang: of each leaf the level of the
                                             // whole cell that it lay in; empty: not known
  std::vector<missing_leaf> missing{};       // where it runs, too, by ascending index
  std::vector<job_id> downgraded_victims{};  // of a preempting gang: who was downgraded for it, or
                                             // for one that is withdrawn, and may have its cells
                                             // back when this one is

  [[nodiscard]] bool guaranteed() const noexcept { return cluster.valid(); }
  // As what it counts when another gang wants its leaves.
  [[nodiscard]] std::int32_t effective_priority() const noexcept {
    return guaranteed() ? request.priority : opportunistic_priority;
  }
  // Of two gangs that want the same cells back the one of the higher rank comes first: whoever has
  // its tenant's cells, then the higher priority; equals go by job.
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> rank() const noexcept {
    return {effective_priority(), request.priority};
  }
  // The leaves of a task as a range [first, second) of `leaves`; empty: it has no such task.
  [[nodiscard]] std::pair<std::size_t, std::size_t> leaves_of(std::uint32_t task) const noexcept {
    std::size_t first = 0;
    for (const task_group& m : request.members) {
      if (task < m.tasks) {
        first += std::size_t{task} * m.gpus;
        return {first, first + m.gpus};
      }
      task -= m.tasks;
      first += std::size_t{m.tasks} * m.gpus;
    }
    return {0, 0};
  }
  // How many of leaves first, ..., last-1 are there.
  [[nodiscard]] std::size_t count_live(std::size_t first, std::size_t last) const noexcept {
    std::size_t live = 0;
    for (std::size_t i = first; i < last; ++i) live += leaves[i].leaf.valid() ? 1U : 0U;
    return live;
  }
  // Whether one of leaves first, ..., last-1 runs where the configuration has nothing.
  [[nodiscard]] bool misses(std::size_t first, std::size_t last) const noexcept {
    return std::any_of(missing.begin(), missing.end(),
                       [&](const missing_leaf& m) { return m.index >= first && m.index < last; });
  }
  // Whether it runs and another gang has claimed a leaf of it, as the leaves' holders say.
  template <class Cells>
  [[nodiscard]] bool claimed(const Cells& cells) const noexcept {
    return state == gang_state::allocated &&
           std::any_of(leaves.begin(), leaves.end(), [&](const chain_leaf& l) {
             return l.leaf.valid() && cells.chain(l.chain).holders(l.leaf).claimer.valid();
           });
  }
  // Calls f(member, first, last) for each task: its leaves are first, ..., last-1.
  template <class F>
  void for_each_task(F&& f) const {
    std::uint32_t first = 0;
    for (const task_group& m : request.members) {
      for (std::uint32_t t = 0; t < m.tasks; ++t, first += m.gpus) f(m, first, first + m.gpus);
    }
  }
};

// What it costs to end a gang that runs. It must not throw, nor ask the scheduler.
using gang_cost = std::function<std::uint64_t(const gang_record&)>;

APIARY_NAMESPACE_END
