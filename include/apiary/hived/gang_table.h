// apiary/hived/gang_table.h - the gangs of a scheduler and where they are.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
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

// A gang among those of its cluster, the cheapest victims first: preempting gangs, low priorities, few
// live leaves; equals by job.
struct ranked_gang {
  bool runs = false;
  std::int32_t priority = 0;
  std::uint32_t leaves = 0;
  job_id job{};
  gang_slot slot{};
  friend constexpr auto operator<=>(const ranked_gang&, const ranked_gang&) noexcept = default;
};
[[nodiscard]] inline ranked_gang rank_of(const gang_record& gang, gang_slot slot) noexcept {
  const auto leaves = static_cast<std::uint32_t>(gang.count_live(0, gang.leaves.size()));
  return {gang.state == gang_state::allocated, gang.request.priority, leaves, gang.request.job,
          slot};
}

// Gangs by slot, by job, and by the cluster whose cells they have.
//
// Cost: add, remove, move, rank O(log gangs), and a hash look-up; add and rank also O(leaves of the
//       gang).
class gang_table {
 public:
  explicit gang_table(std::uint32_t clusters) : of_cluster_(clusters) {}

  gang_slot add(gang_record gang) {
    gang_slot slot;
    if (vacant_.empty()) {
      slot = gang_slot(static_cast<std::uint32_t>(gangs_.size()));
      gangs_.emplace_back();
      rank_.emplace_back();
    } else {
      slot = vacant_.back();
      vacant_.pop_back();
    }
    slots_.try_emplace(gang.request.job.value, slot);
    gangs_[slot.value] = std::move(gang);
    if (gangs_[slot.value].cluster.valid()) join(slot);
    return slot;
  }
  void remove(gang_slot slot) {
    gang_record& gang = gangs_[slot.value];
    slots_.erase(gang.request.job.value);
    if (gang.cluster.valid()) leave(slot);
    gang = gang_record();
    vacant_.push_back(slot);
  }
  // Gives the gang to another cluster, or to none.
  void move(gang_slot slot, vc_chain_id to) {
    if (gangs_[slot.value].cluster.valid()) leave(slot);
    gangs_[slot.value].cluster = to;
    if (to.valid()) join(slot);
  }

  [[nodiscard]] std::optional<gang_slot> find(job_id job) const {
    const auto found = slots_.find(job.value);
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] const gang_record& operator[](gang_slot s) const noexcept {
    return gangs_[s.value];
  }
  [[nodiscard]] gang_record& operator[](gang_slot s) noexcept { return gangs_[s.value]; }
  // To be called after a change of a gang's state or leaves.
  void rank(gang_slot slot) {
    if (!gangs_[slot.value].cluster.valid()) return;
    leave(slot);
    join(slot);
  }
  [[nodiscard]] const std::set<ranked_gang>& of_cluster(vc_chain_id c) const noexcept {
    return of_cluster_[c.value];
  }
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  // All gangs by ascending job. Cost: O(gangs log gangs).
  [[nodiscard]] std::vector<gang_slot> by_job() const {
    std::vector<gang_slot> all;
    all.reserve(slots_.size());
    for (const auto& [job, slot] : slots_) all.push_back(slot);
    std::sort(all.begin(), all.end(), [&](gang_slot a, gang_slot b) {
      return (*this)[a].request.job < (*this)[b].request.job;
    });
    return all;
  }

 private:
  void join(gang_slot slot) {
    rank_[slot.value] = rank_of(gangs_[slot.value], slot);
    of_cluster_[gangs_[slot.value].cluster.value].insert(rank_[slot.value]);
  }
  void leave(gang_slot slot) {
    of_cluster_[gangs_[slot.value].cluster.value].erase(rank_[slot.value]);
  }

  std::vector<gang_record> gangs_;  // of each slot
  std::vector<gang_slot> vacant_;
  absl::flat_hash_map<std::uint32_t, gang_slot> slots_;  // by job
  std::vector<std::set<ranked_gang>> of_cluster_;
  std::vector<ranked_gang> rank_;  // of each slot, as it is in of_cluster_
};

APIARY_NAMESPACE_END
