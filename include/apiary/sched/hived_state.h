// apiary/sched/hived_state.h - gangs on cells: how they come, go, and change places.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived_cells.h>
#include <apiary/sched/hived_layout.h>
#include <apiary/sched/hived_search.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The gangs of a HiveD scheduler together with the leaves that they have. It does what is decided
// elsewhere and checks nothing that a host sends.
//
// Model: HiveD (OSDI 2020) section 5; the states of leaves and gangs as in leaf_holders and
//        gang_state. Differs: what a preemption has taken from lazy gangs is given back when it is
//        withdrawn.
// Cost:  O(leaves of the gang * levels) a call.
class hived_state {
 public:
  explicit hived_state(const hived_layout& layout)
      : cells_(layout), gangs_(cells_.num_clusters()), hash_(layout.hash()) {}

  [[nodiscard]] const hived_cells& cells() const noexcept { return cells_; }
  // For searching, which leaves them as they were.
  [[nodiscard]] hived_cells& cells() noexcept { return cells_; }
  [[nodiscard]] const gang_table& gangs() const noexcept { return gangs_; }
  // Over the layout, the gangs and their cells: equal states of equal layouts, equal values.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_ ^ cells_.hash(); }

  // A gang comes to a place: it runs there, or claims the leaves while their users end. Requires:
  // of the place, cancelled and downgraded gangs are so already.
  gang_slot admit(gang_request request, const gang_place& place, bool preempting,
                  std::vector<job_id> downgraded_by) {
    gang_record gang;
    gang.request = std::move(request);
    gang.cluster = place.cluster;
    gang.state = preempting ? gang_state::preempting : gang_state::allocated;
    gang.downgraded_by = std::move(downgraded_by);
    for (const bound_leaf& l : place.leaves) gang.leaves.push_back({place.chain, l.image});
    const gang_slot slot = gangs_.add(std::move(gang));
    for (const bound_leaf& l : place.leaves) {
      if (l.leaf.valid()) cells_.place_at(place.cluster, l);
      leaf_holders to{slot, gang_slot(), l.leaf.valid()};
      if (preempting) {
        to = cells_.chain(place.chain).holders(l.image);
        to.claimer = slot;
      }
      cells_.hold(place.chain, l.image, to);
    }
    if (place.cluster.valid() && cells_.chain(place.chain).any_bad())
      for (const bound_leaf& l : place.leaves) cells_.reveal(place.cluster, l.leaf);
    hash_ ^= fact(slot);
    return slot;
  }
  // A preempting gang runs where its leaves are. Requires: their users have ended.
  void bind_reserved(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    gang.state = gang_state::allocated;
    gang.downgraded_by.clear();
    hash_ ^= fact(slot);
  }
  // A gang that runs already; those of its leaves that are not valid are not there. Requires: the
  // others are idle. Whether it has its tenant's cells, if it should; otherwise it runs on as
  // opportunistic.
  bool readmit(const gang_request& request, std::vector<chain_leaf> leaves) {
    gang_record gang;
    gang.request = request;
    gang.request.suggested = nullptr;
    gang.leaves = std::move(leaves);
    gang.downgraded = request.priority >= 0;
    gang.recovered = true;
    const gang_slot slot = gangs_.add(std::move(gang));
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), false});
    hash_ ^= fact(slot);
    return request.priority < 0 || upgrade(slot);
  }

  // Some leaves of a gang are its own no more: first, ..., last-1 of them.
  void release(gang_slot slot, std::uint32_t first, std::uint32_t last) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (std::uint32_t i = first; i < last; ++i) {
      if (!gang.leaves[i].leaf.valid()) continue;
      let_go(gang, gang.leaves[i]);
      gang.leaves[i].leaf = cell_id();
    }
    hash_ ^= fact(slot);
  }
  void drop(gang_slot slot) {
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) let_go(gangs_[slot], l);
    gangs_.remove(slot);
  }
  // The gangs that it downgraded may be restored when its leaves are settled.
  void drop_preempting(gang_slot slot, std::vector<job_id>& to_restore) {
    const std::vector<job_id>& jobs = gangs_[slot].downgraded_by;
    to_restore.insert(to_restore.end(), jobs.begin(), jobs.end());
    drop(slot);
  }
  void downgrade(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.demote(l.chain, l.leaf);
    gangs_.move(slot, cluster_id());
    gang.downgraded = true;
    hash_ ^= fact(slot);
  }
  // Gives a downgraded gang its tenant's cells back if it can have them where it runs.
  void restore(job_id job) {
    const std::optional<gang_slot> slot = gangs_.find(job);
    if (slot && gangs_[*slot].downgraded) upgrade(*slot);
  }
  // Whether that changed it.
  bool mark(chain_leaf l, bool good) { return cells_.mark(l.chain, l.leaf, good); }

 private:
  void let_go(const gang_record& gang, chain_leaf l) {
    if (gang.state == gang_state::preempting) {
      cells_.unclaim(l.chain, l.leaf);
    } else {
      cells_.unuse(l.chain, l.leaf);
    }
  }
  bool upgrade(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    std::uint32_t c = ~std::uint32_t{0};
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (c != ~std::uint32_t{0} && l.chain != c) return false;
      c = l.chain;
    }
    if (c == ~std::uint32_t{0} || !gang.request.tenant.valid()) return false;
    cluster_id cluster = cells_.cluster_of(gang.request.tenant, c);
    if (gang.request.pinned) cluster = cells_.cluster_of_pinned(*gang.request.pinned);
    if (!cluster.valid() || cells_.cluster(cluster).chain() != c) return false;
    for (const bool highest_first : {true, false}) {
      if (!adopt(gang, slot, cluster, highest_first)) continue;
      hash_ ^= fact(slot);
      gangs_.move(slot, cluster);
      gang.downgraded = false;
      hash_ ^= fact(slot);
      return true;
    }
    return false;
  }
  bool adopt(const gang_record& gang, gang_slot slot, cluster_id cluster, bool highest_first) {
    cells_.begin();
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (!cells_.adopt(cluster, l.leaf, highest_first)) {
        cells_.rollback();
        return false;
      }
      cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    }
    cells_.keep();
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.reveal(cluster, cells_.chain(l.chain).owner(l.leaf).cell);
    return true;
  }
  // What of a gang the leaves' holders do not say, as which leaf is which task's.
  [[nodiscard]] std::uint64_t fact(gang_slot s) const noexcept {
    const gang_record& gang = gangs_[s];
    const gang_request& r = gang.request;
    digest all;
    all.add((std::uint64_t{r.job.value} << 32) | s.value).add(r.tenant.value);
    all.add(static_cast<std::uint64_t>(r.priority) + 1).add(r.leaf_type.value);
    all.add(r.pinned ? *r.pinned + std::uint64_t{1} : 0);
    all.add((gang.state == gang_state::preempting ? 4U : 0U) | (gang.downgraded ? 2U : 0U) |
            (r.lazy ? 1U : 0U));
    all.add(r.members.size());
    for (const gang_member& m : r.members) all.add((std::uint64_t{m.tasks} << 32) | m.leaves);
    for (const chain_leaf& l : gang.leaves) {
      const chain_leaf at = l.leaf.valid() ? l : chain_leaf();
      all.add((std::uint64_t{at.chain} << 32) | at.leaf.value);
    }
    for (const job_id job : gang.downgraded_by) all.add(job.value);
    return all.value();
  }

  hived_cells cells_;
  gang_table gangs_;
  std::uint64_t hash_;
};

APIARY_NAMESPACE_END
