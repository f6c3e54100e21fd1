// apiary/hived/detail/state.h - the gangs of a HiveD scheduler and the leaves that they hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/gang_place.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The gangs of a HiveD scheduler and the leaves that they hold. It carries out decisions that are
// made elsewhere, and does not check the calls of a host.
//
// Model: HiveD (OSDI 2020) section 5; leaf_holders and gang_state are the states of leaves and
//        gangs. Differs: cells that a preemption has taken from lazy gangs are given back when it
//        is cancelled.
// Cost:  O(leaves of the gang * levels * fan-out) for each call. On bad hardware also O(fan-out)
//        for each unhealthy cell in the whole cells of the gang, once for consecutive leaves in the
//        same whole cell. A call that gives a gang cells of its tenant where it runs (readmit,
//        oust, restore) also costs O(whole cells of the tenant) for each whole cell that the gang
//        lies in; oust does that as often as there are gangs of lower priority.
class hived_state {
 public:
  explicit hived_state(const hived_layout& layout)
      : cells_(layout), gangs_(cells_.num_clusters()), hash_(layout.hash()) {}

  // The cells of the cluster and of the tenants.
  [[nodiscard]] const hived_cells& cells() const noexcept { return cells_; }
  // The same for a search, which must leave the cells as they were.
  [[nodiscard]] hived_cells& cells() noexcept { return cells_; }
  // All gangs.
  [[nodiscard]] const gang_table& gangs() const noexcept { return gangs_; }
  // A hash of the layout, the gangs and their cells: equal states of equal layouts have equal
  // values.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_ ^ cells_.hash(); }

  // Adds a gang. It runs on the leaves of `place`; if `preempting` is true, it claims these leaves
  // and waits until their users and the downgraded gangs that are not lazy have ended.
  // Requires: the gangs in place.cancelled and place.downgraded have been cancelled and downgraded
  //           already. If a downgraded gang is not lazy it is listed in downgraded_victims, and
  //           `preempting` is true.
  gang_slot admit(gang_request request, const gang_place& place, bool preempting,
                  std::vector<job_id> downgraded_victims) {
    gang_record gang;
    gang.request = std::move(request);
    gang.cluster = place.cluster;
    gang.state = preempting ? gang_state::preempting : gang_state::allocated;
    gang.downgraded_victims = std::move(downgraded_victims);
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
    if (place.cluster.valid()) reveal(gangs_[slot]);
    hash_ ^= fact(slot);
    for (const gang_slot s : place.downgraded)
      if (!gangs_[s].request.lazy) end_for(s, slot);
    return slot;
  }
  // Lets a preempting gang run on the leaves that it has claimed. Requires: their users have ended.
  void bind_reserved(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    gang.state = gang_state::allocated;
    gangs_.rank(slot);
    gang.downgraded_victims.clear();
    hash_ ^= fact(slot);
  }
  // Adds a gang that runs already, with its request, its leaves, its missing leaves, and whether it
  // was recovered or moved. A leaf that is not valid does not exist. Returns false if the gang
  // should have cells of its tenant and got none: then it runs as opportunistic.
  // Requires: the leaves that are valid are idle. `levels`: for each leaf the level of the whole
  //           cell that it had, which is tried first; empty: unknown.
  bool readmit(gang_record gang, std::span<const level_t> levels = {}) {
    gang.request.suggested = nullptr;
    const bool opportunistic = gang.request.priority < 0;
    gang.downgraded = !opportunistic;
    gang.levels_known = opportunistic || !levels.empty();
    if (!opportunistic) gang.lost.assign(levels.begin(), levels.end());
    const gang_slot slot = gangs_.add(std::move(gang));
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), false});
    hash_ ^= fact(slot);
    return opportunistic || upgrade(slot, levels);
  }
  // For a gang for which readmit found no cells: takes them from gangs of lower priority that run
  // in the same virtual cluster and that no gang preempts. Downgrades these gangs, cheapest first,
  // until the gang fits; then restores every gang that need not have been downgraded. On failure it
  // restores all of them. A gang whose levels are unknown takes no cells from gangs whose levels
  // are known, nor from gangs that never had to be readmitted. Returns whether the gang has cells.
  bool oust(gang_slot slot, std::span<const level_t> levels) {
    const vc_chain_id cluster = cluster_for(gangs_[slot]);
    if (!cluster.valid()) return false;
    struct lower_gang {
      gang_slot slot{};
      std::vector<level_t> levels{};
    };
    std::vector<lower_gang> lower;
    for (const ranked_gang& g : gangs_.of_cluster(cluster)) {
      const gang_record& gang = gangs_[g.slot];
      if (!g.runs || g.leaves == 0 || g.priority >= gangs_[slot].request.priority) continue;
      if ((!levels.empty() || !gang.levels_known) && !being_preempted(gang))
        lower.push_back({g.slot, levels_of(gang)});
    }
    bool done = false;
    std::size_t ousted = 0;
    while (!done && ousted < lower.size()) {
      downgrade(lower[ousted++].slot);
      done = upgrade(slot, levels);
    }
    while (ousted-- > 0) upgrade(lower[ousted].slot, lower[ousted].levels);
    return done;
  }
  // Merges the gang `other` into a gang: its tasks become the last tasks of the gang, and `other`
  // exists no more. Requires: both gangs run, no gang has claimed their leaves, and both have cells
  // of the same virtual cluster, or both have none.
  void join(gang_slot slot, gang_slot other) {
    hash_ ^= fact(slot) ^ fact(other);
    gang_record& gang = gangs_[slot];
    const gang_record joining = gangs_[other];
    const auto before = static_cast<std::uint32_t>(gang.leaves.size());
    for (const chain_leaf& l : joining.leaves) {
      gang.leaves.push_back(l);
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), gang.guaranteed()});
    }
    for (missing_leaf m : joining.missing) {
      m.index += before;
      gang.missing.push_back(std::move(m));
    }
    const std::vector<task_group>& groups = joining.request.groups;
    join(gang.request, joining.request);
    gang.request.groups.insert(gang.request.groups.end(), groups.begin(), groups.end());
    gang.recovered = gang.recovered || joining.recovered;
    gang.moved = gang.moved || joining.moved;
    gang.levels_known = gang.levels_known || joining.levels_known;
    gangs_.remove(other);
    gangs_.rank(slot);
    hash_ ^= fact(slot);
  }

  // Releases the leaves first, ..., last-1 of a gang.
  void release(gang_slot slot, std::size_t first, std::size_t last) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (std::size_t i = first; i < last; ++i) {
      if (!gang.leaves[i].leaf.valid()) continue;
      let_go(gang, gang.leaves[i]);
      gang.leaves[i].leaf = cell_id();
      if (!gang.lost.empty()) gang.lost[i] = hived_cells::no_level;
    }
    std::erase_if(gang.missing,
                  [&](const missing_leaf& m) { return m.index >= first && m.index < last; });
    gangs_.rank(slot);
    hash_ ^= fact(slot);
  }
  // Removes a gang and releases its leaves and claims.
  void drop(gang_slot slot) {
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) let_go(gangs_[slot], l);
    gangs_.remove(slot);
  }
  // Removes a preempting gang. The gangs that it downgraded need not end for it any more. They are
  // appended to to_restore, so that the caller can restore them when the leaves of the preempting
  // gang are settled.
  void drop_preempting(gang_slot slot, std::vector<job_id>& to_restore) {
    const std::vector<job_id>& jobs = gangs_[slot].downgraded_victims;
    to_restore.insert(to_restore.end(), jobs.begin(), jobs.end());
    for (const gang_slot s : ending_for(slot)) end_for(s, gang_slot());
    drop(slot);
  }
  // Takes the cells of its tenant from a guaranteed gang: it keeps running as opportunistic, and
  // remembers the levels of its whole cells.
  void downgrade(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    gang.lost = levels_of(gang);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.demote(l.chain, l.leaf);
    gangs_.move(slot, vc_chain_id());
    gang.downgraded = true;
    hash_ ^= fact(slot);
  }
  // Gives the downgraded gangs among `jobs` cells of their tenants where they run, as far as such
  // cells are free: by descending priority, then by job, and in whole cells of the levels that they
  // had if possible. Returns the jobs that got cells. A gang that got none is recorded as
  // downgraded by each gang that may be in the way: by `preempting`, if it is given, and by the
  // gangs that have claimed a leaf of it.
  // Cost: also O(gangs that get no cells * leaves of the gangs that record them).
  std::vector<job_id> restore(std::vector<job_id> jobs,
                              std::optional<gang_slot> preempting = std::nullopt) {
    std::vector<gang_slot> slots;
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    for (const job_id job : jobs) {
      const std::optional<gang_slot> slot = gangs_.find(job);
      if (slot && gangs_[*slot].downgraded) slots.push_back(*slot);
    }
    std::stable_sort(slots.begin(), slots.end(),
                     [&](gang_slot a, gang_slot b) { return gangs_[a].rank() > gangs_[b].rank(); });
    std::vector<job_id> restored;
    std::erase_if(slots, [&](gang_slot s) {
      if (!upgrade(s, gangs_[s].lost)) return false;
      restored.push_back(gangs_[s].request.job);
      return true;
    });
    for (const gang_slot s : slots) {
      const gang_record& gang = gangs_[s];
      if (preempting) remember(*preempting, gang.request.job);
      for (const chain_leaf& l : gang.leaves) {
        if (!l.leaf.valid()) continue;
        const gang_slot by = cells_.chain(l.chain).holders(l.leaf).claimer;
        if (by.valid()) remember(by, gang.request.job);
      }
    }
    return restored;
  }
  // Whether another gang has claimed a leaf of this gang, or has taken the cells of its tenant and
  // waits for its end.
  [[nodiscard]] bool being_preempted(const gang_record& gang) const noexcept {
    return gang.ends_for.valid() || gang.claimed(cells_);
  }
  // The gangs whose cells a preempting gang has taken and for whose end it waits, by ascending job.
  [[nodiscard]] std::vector<gang_slot> ending_for(gang_slot preempting) const {
    std::vector<gang_slot> ending;
    for (const job_id job : gangs_[preempting].downgraded_victims) {
      const std::optional<gang_slot> s = gangs_.find(job);
      if (s && gangs_[*s].ends_for == preempting) ending.push_back(*s);
    }
    return ending;
  }
  // For each leaf of a gang the level of the whole cell of its tenant around it. If the gang is
  // downgraded: of the whole cell that was around it. no_level for a leaf that does not exist;
  // empty if the levels are unknown.
  [[nodiscard]] std::vector<level_t> levels_of(const gang_record& gang) const {
    if (!gang.guaranteed()) return gang.lost;
    std::vector<level_t> levels;
    for (const chain_leaf& l : gang.leaves)
      levels.push_back(l.leaf.valid() ? cells_.whole_cell_level(l.chain, l.leaf)
                                      : hived_cells::no_level);
    return levels;
  }
  // Marks a leaf as healthy or bad. Returns whether that changed it.
  bool mark(chain_leaf l, bool good) { return cells_.mark(l.chain, l.leaf, good); }

 private:
  // Adds the topology constraints of `more` to r, with task groups and leaders numbered as after
  // the merge. Requires: the task groups are not merged yet.
  static void join(gang_request& r, const gang_request& more) {
    if (r.constraints.groups.empty() && more.constraints.groups.empty()) return;
    r.constraints.groups.resize(r.groups.size());
    for (group_constraints constraints : more.constraints.groups) {
      if (constraints.leader != no_task_group)
        constraints.leader += static_cast<std::uint32_t>(r.groups.size());
      r.constraints.groups.push_back(std::move(constraints));
    }
    r.constraints.groups.resize(r.groups.size() + more.groups.size());
  }
  // Releases one leaf: the claim of a preempting gang, or the use of a running one.
  void let_go(const gang_record& gang, chain_leaf l) {
    if (gang.state == gang_state::preempting) {
      cells_.unclaim(l.chain, l.leaf);
    } else {
      cells_.unuse(l.chain, l.leaf);
    }
  }
  // Records that the gang of `job` is downgraded for a preempting gang.
  void remember(gang_slot preempting, job_id job) {
    std::vector<job_id>& victims = gangs_[preempting].downgraded_victims;
    const auto at = std::lower_bound(victims.begin(), victims.end(), job);
    if (at != victims.end() && *at == job) return;
    hash_ ^= fact(preempting);
    victims.insert(at, job);
    hash_ ^= fact(preempting);
  }
  // Records that a gang must end for a preempting gang; not valid: it need not end.
  void end_for(gang_slot slot, gang_slot preempting) {
    hash_ ^= fact(slot);
    gangs_[slot].ends_for = preempting;
    hash_ ^= fact(slot);
  }
  // The virtual cluster whose cells the gang can use where it runs; not valid: none.
  [[nodiscard]] vc_chain_id cluster_for(const gang_record& gang) const {
    std::uint32_t c = ~std::uint32_t{0};
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (c != ~std::uint32_t{0} && l.chain != c) return {};
      c = l.chain;
    }
    if (c == ~std::uint32_t{0} || !gang.request.tenant.valid()) return {};
    vc_chain_id cluster = cells_.cluster_of(gang.request.tenant, c);
    if (gang.request.pinned) cluster = cells_.cluster_of_pinned(*gang.request.pinned);
    return cluster.valid() && cells_.cluster(cluster).chain() == c ? cluster : vc_chain_id();
  }
  // Gives a gang cells of its tenant where it runs: whole cells of these levels if possible, else
  // the highest that are free, else the lowest. Returns whether it has them.
  bool upgrade(gang_slot slot, std::span<const level_t> levels = {}) {
    gang_record& gang = gangs_[slot];
    const vc_chain_id cluster = cluster_for(gang);
    if (!cluster.valid()) return false;
    if (!(!levels.empty() && adopt(gang, slot, cluster, true, levels)) &&
        !adopt(gang, slot, cluster, true) && !adopt(gang, slot, cluster, false))
      return false;
    hash_ ^= fact(slot);
    gangs_.move(slot, cluster);
    gang.downgraded = false;
    gang.ends_for = gang_slot();
    gang.lost.clear();
    hash_ ^= fact(slot);
    return true;
  }
  // One try of upgrade. On failure the cells are as before.
  bool adopt(const gang_record& gang, gang_slot slot, vc_chain_id cluster, bool highest_first,
             std::span<const level_t> levels = {}) {
    cells_.begin();
    for (std::size_t i = 0; i < gang.leaves.size(); ++i) {
      const chain_leaf l = gang.leaves[i];
      if (!l.leaf.valid()) continue;
      const level_t preferred = levels.empty() ? hived_cells::no_level : levels[i];
      if (!cells_.adopt(cluster, l.leaf, highest_first, preferred)) {
        cells_.rollback();
        return false;
      }
      cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    }
    cells_.keep();
    reveal(gang);
    return true;
  }
  // Binds the unhealthy cells in the whole cells in which the gang has leaves, so that the tenant
  // has them in its view.
  void reveal(const gang_record& gang) {
    cell_id shown;
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      const physical_chain& chain = cells_.chain(l.chain);
      if (!chain.any_bad()) return;
      const virtual_cell at = chain.owner(l.leaf);
      shown = cells_.reveal(at.cluster, at.cell, shown);
    }
  }
  // A hash of what the holders of the leaves do not say about a gang, such as which leaf belongs to
  // which task.
  [[nodiscard]] std::uint64_t fact(gang_slot s) const noexcept {
    const gang_record& gang = gangs_[s];
    const gang_request& r = gang.request;
    digest all;
    all.add((std::uint64_t{r.job.value} << 32) | s.value).add(r.tenant.value);
    all.add(static_cast<std::uint64_t>(r.priority) + 1).add(r.leaf_type.value);
    all.add(r.pinned ? *r.pinned + std::uint64_t{1} : 0);
    all.add((gang.levels_known ? 0U : 8U) | (gang.state == gang_state::preempting ? 4U : 0U) |
            (gang.downgraded ? 2U : 0U) | (r.lazy ? 1U : 0U));
    if (gang.ends_for.valid()) all.add(gang.ends_for.value + std::uint64_t{1});
    all.add(r.groups.size());
    for (const task_group& m : r.groups) all.add((std::uint64_t{m.tasks} << 32) | m.gpus);
    if (r.constraints.any()) add_constraints(r.constraints, all);
    for (const chain_leaf& l : gang.leaves) {
      const chain_leaf at = l.leaf.valid() ? l : chain_leaf();
      all.add((std::uint64_t{at.chain} << 32) | at.leaf.value);
    }
    for (const missing_leaf& m : gang.missing) all.add(m.index).add(m.node).add(m.device);
    for (const job_id job : gang.downgraded_victims) all.add(job.value);
    for (const level_t l : gang.lost) all.add(l);
    return all.value();
  }

  static void add_constraints(const request_constraints& constraints, digest& all) noexcept {
    all.add((std::uint64_t{constraints.required} << 32) | constraints.preferred);
    for (const group_constraints& m : constraints.groups) {
      all.add((std::uint64_t{m.slices.size()} << 32) | m.leader).add(m.spread.size());
      for (const auto* counts : {&m.slices, &m.spread})
        for (const level_count& s : *counts) all.add((std::uint64_t{s.level} << 32) | s.tasks);
    }
  }

  hived_cells cells_;
  gang_table gangs_;
  std::uint64_t hash_;
};

}  // namespace detail
APIARY_NAMESPACE_END
