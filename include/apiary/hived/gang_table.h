// apiary/hived/gang_table.h - the gangs of a HiveD scheduler, by slot, job and virtual cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/gang_record.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// All gangs of a scheduler, found by slot, by job, and by the virtual cluster whose cells they use.
// Cost: O(log gangs) and a hash look-up for each change; add, rank also O(leaves of the gang).
class gang_table {
 public:
  // Orders the gangs of a virtual cluster as victims, cheapest first: preempting gangs, then low
  // priorities, then few leaves; ties go by job id.
  struct ranked {
    bool runs = false;          // false: it is preempting and does not run yet
    std::int32_t priority = 0;  // its priority
    std::uint32_t leaves = 0;   // how many leaves it has
    job_id job{};               // its job
    friend constexpr auto operator<=>(const ranked&, const ranked&) noexcept = default;
  };
  // The key of a gang. Cost: O(leaves of the gang).
  [[nodiscard]] static ranked rank_of(const gang_record& gang) noexcept {
    const auto leaves = static_cast<std::uint32_t>(gang.count_live(0, gang.leaves.size()));
    return {gang.state == gang_state::allocated, gang.request.priority, leaves, gang.request.job};
  }
  // An empty table for this number of virtual clusters.
  explicit gang_table(std::uint32_t clusters) : of_cluster_(clusters) {}
  // Adds a gang and returns its slot.
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
  // Removes the gang of a slot.
  void remove(gang_slot slot) {
    gang_record& gang = gangs_[slot.value];
    slots_.erase(gang.request.job.value);
    if (gang.cluster.valid()) leave(slot);
    gang = gang_record();
    vacant_.push_back(slot);
  }
  // Moves the gang to another virtual cluster, or to none.
  void move(gang_slot slot, vc_chain_id to) {
    if (gangs_[slot.value].cluster.valid()) leave(slot);
    gangs_[slot.value].cluster = to;
    if (to.valid()) join(slot);
  }
  // The slot of a job, if the job is in the table.
  [[nodiscard]] std::optional<gang_slot> find(job_id job) const {
    const auto found = slots_.find(job.value);
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }
  // The gang of a slot.
  [[nodiscard]] const gang_record& operator[](gang_slot s) const noexcept {
    return gangs_[s.value];
  }
  // The gang of a slot, to change.
  [[nodiscard]] gang_record& operator[](gang_slot s) noexcept { return gangs_[s.value]; }
  // Call after a change of the state or the leaves of a gang.
  void rank(gang_slot slot) {
    if (!gangs_[slot.value].cluster.valid()) return;
    leave(slot);
    join(slot);
  }
  // The gangs of a virtual cluster and their slots, cheapest victim first.
  [[nodiscard]] const std::map<ranked, gang_slot>& of_cluster(vc_chain_id c) const noexcept {
    return of_cluster_[c.value];
  }
  // The slots without a gang; the last one is used next.
  [[nodiscard]] const std::vector<gang_slot>& vacant() const noexcept { return vacant_; }
  // Sets the slots without a gang, in this order. Requires: an empty table; all slots from 0 on.
  void set_vacant(std::vector<gang_slot> slots) {
    gangs_.resize(slots.size());
    rank_.resize(slots.size());
    vacant_ = std::move(slots);
  }
  // The number of gangs.
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  // All gangs by ascending job. Cost: O(gangs log gangs).
  [[nodiscard]] std::vector<gang_slot> by_job() const {
    std::vector<gang_slot> all;
    all.reserve(slots_.size());
    for (const auto& [job, slot] : slots_) all.push_back(slot);
    detail::merge_sort(all, [&](gang_slot a, gang_slot b) {
      return (*this)[a].request.job < (*this)[b].request.job;
    });
    return all;
  }

 private:
  void join(gang_slot slot) {
    rank_[slot.value] = rank_of(gangs_[slot.value]);
    of_cluster_[gangs_[slot.value].cluster.value].emplace(rank_[slot.value], slot);
  }
  void leave(gang_slot slot) {
    of_cluster_[gangs_[slot.value].cluster.value].erase(rank_[slot.value]);
  }

  std::vector<gang_record> gangs_;  // by slot
  std::vector<gang_slot> vacant_;
  std::unordered_map<std::uint32_t, gang_slot> slots_;  // by job
  std::vector<std::map<ranked, gang_slot>> of_cluster_;
  detail::lean_vector<ranked> rank_;  // by slot, the key in of_cluster_
};

APIARY_NAMESPACE_END
