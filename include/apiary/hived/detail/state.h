// apiary/hived/detail/state.h - the gangs of a HiveD scheduler and the leaves that they hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Stores the gangs of a HiveD scheduler and their cells, and carries out decisions on them without
// checks: adds and removes gangs, takes cells of the tenant from running gangs and gives them back.
// Model: HiveD (OSDI 2020) section 5; leaf_holders and gang_state are the states of both. Differs:
//        cells that a preemption has taken from lazy gangs are given back when it is cancelled.
// Cost:  O(leaves of the gang * levels * fan-out) for each call; also O(fan-out) for each unhealthy
//        cell in its whole cells. preempt_lazily repeats that for each gang of lower priority of
//        the cluster, unless a leaf is in a cell of another cluster.
class hived_state {
  friend class hived_snapshot_reader;

 public:
  explicit hived_state(const hived_layout& layout)
      : cells_(layout), gangs_(cells_.num_clusters()), hash_(layout.hash()) {}

  [[nodiscard]] const hived_cells& cells() const noexcept { return cells_; }
  // For a search, which must leave the cells as they were.
  [[nodiscard]] hived_cells& cells() noexcept { return cells_; }
  [[nodiscard]] const gang_table& gangs() const noexcept { return gangs_; }
  // A hash of the layout, the gangs and their cells.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_ ^ cells_.hash(); }
  // For a gang for which recover found no cells: downgrades running gangs of lower priority in its
  // virtual cluster that are not being preempted, cheapest first, until it fits; then restores
  // those that need not have been downgraded (all of them on failure). A gang with unknown levels
  // takes no cells from gangs with known levels. Returns whether the gang has cells; appends the
  // gangs that lost theirs to `lost`, by ascending job.
  bool preempt_lazily(gang_slot slot, std::span<const level_t> levels, std::vector<job_id>& lost) {
    const vc_chain_id cluster = cluster_for(gangs_[slot]);
    if (!cluster.valid()) return false;
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid() && is_in_cell_of_others(cluster, l)) return false;
    const std::int32_t priority = gangs_[slot].request.priority;
    const std::map<gang_table::ranked, gang_slot>& all = gangs_.of_cluster(cluster);
    std::vector<gang_slot> lower;
    for (auto at =
             all.lower_bound({.runs = true, .priority = gang_request::opportunistic_priority});
         at != all.end() && at->first.priority < priority; ++at) {
      const gang_record& gang = gangs_[at->second];
      if (at->first.leaves > 0 && (!levels.empty() || !gang.levels_known) && !being_preempted(gang))
        lower.push_back(at->second);
    }
    bool done = false;
    std::size_t downgraded = 0;
    while (!done && downgraded < lower.size()) {
      downgrade(lower[downgraded++]);
      done = upgrade(slot, levels);
    }
    while (downgraded-- > 0) {
      const std::vector<level_t> had = gangs_[lower[downgraded]].lost_levels;
      if (!upgrade(lower[downgraded], had)) lost.push_back(gangs_[lower[downgraded]].request.job);
    }
    merge_sort(lost);
    return done;
  }
  // Takes its tenant's cells from a guaranteed gang, which runs on and remembers their levels.
  void downgrade(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    forget(slot);
    gang.lost_levels = levels_of(gang);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.downgrade(l.chain, l.leaf);
    gangs_.move(slot, vc_chain_id());
    gang.downgraded = true;
    enter(slot);
  }
  // Gives the downgraded gangs among `jobs` free cells of their tenants where they run, by
  // descending priority, then by job, in whole cells of the levels that they had if possible.
  // Returns the jobs that got cells. `preempting`, if given, and gangs that have claimed a leaf of
  // another one record that one. Cost: also O(gangs without cells * leaves of gangs that record).
  std::vector<job_id> restore(std::vector<job_id> jobs,
                              std::optional<gang_slot> preempting = std::nullopt) {
    std::vector<gang_slot> slots;
    sort_unique(jobs);
    for (const job_id job : jobs) {
      const std::optional<gang_slot> slot = gangs_.find(job);
      if (slot && gangs_[*slot].downgraded) slots.push_back(*slot);
    }
    merge_sort(slots,
               [&](gang_slot a, gang_slot b) { return gangs_[a].rank() > gangs_[b].rank(); });
    std::vector<job_id> restored;
    std::erase_if(slots, [&](gang_slot s) {
      if (!upgrade(s, gangs_[s].lost_levels)) return false;
      restored.push_back(gangs_[s].request.job);
      return true;
    });
    for (const gang_slot s : slots) {
      const gang_record& gang = gangs_[s];
      if (preempting) record_victim(*preempting, gang.request.job);
      for (const chain_leaf& l : gang.leaves) {
        if (!l.leaf.valid()) continue;
        const gang_slot by = cells_.chain(l.chain).holders(l.leaf).claimer;
        if (by.valid()) record_victim(by, gang.request.job);
      }
    }
    return restored;
  }
  // As hived::being_preempted.
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
  // For each leaf the level of its tenant's whole cell around it, for a downgraded gang the level
  // it had. no_level for a leaf that does not exist; empty if the levels are unknown.
  [[nodiscard]] std::vector<level_t> levels_of(const gang_record& gang) const {
    if (!gang.guaranteed()) return gang.lost_levels;
    std::vector<level_t> levels;
    for (const chain_leaf& l : gang.leaves)
      levels.push_back(l.leaf.valid() ? cells_.whole_cell_level(l.chain, l.leaf)
                                      : hived_cells::no_level);
    return levels;
  }
  // Adds a gang. It runs on the leaves of `place`; if `preempting` is true, it claims these leaves
  // and waits until their users and the downgraded gangs that are not lazy have ended. Requires:
  // the gangs in place.cancelled and place.downgraded have been cancelled and downgraded. If one of
  // these is not lazy, it is in downgraded_victims, and `preempting` is true.
  gang_slot admit(gang_request request, const gang_placement& place, bool preempting,
                  std::vector<job_id> downgraded_victims) {
    gang_record gang;
    gang.request = std::move(request);
    gang.cluster = place.cluster;
    gang.state = preempting ? gang_state::preempting : gang_state::allocated;
    gang.downgraded_victims = std::move(downgraded_victims);
    gang.leaves.reserve(place.leaves.size());
    for (const bound_leaf& l : place.leaves) gang.leaves.push_back({place.chain, l.image});
    const gang_slot slot = gangs_.add(std::move(gang));
    if (place.cluster.valid())
      for (const bound_leaf& l : place.leaves) cells_.bind_leaf_at(place.cluster, l);
    digest all = begin_fact(slot);
    for (std::size_t at = 0; next_node(gangs_[slot].leaves, at);) {
      holders_.clear();
      for (const cell_id leaf : on_node_) {
        add_leaf({place.chain, leaf}, all);  // here it costs least time
        leaf_holders to = cells_.chain(place.chain).holders(leaf);
        if (preempting) {
          to.claimer = slot;
        } else {
          to = {slot, gang_slot(), place.cluster.valid()};
        }
        holders_.push_back(to);
      }
      cells_.hold_all(place.chain, on_node_, holders_);
    }
    if (place.cluster.valid()) bind_unhealthy(gangs_[slot]);
    end_fact(slot, all);
    for (const gang_slot s : place.downgraded)
      if (!gangs_[s].request.lazy) end_for(s, slot);
    return slot;
  }
  // Lets a preempting gang run on the leaves that it has claimed. Requires: their users have ended.
  void bind_reserved(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    forget(slot);
    for (std::size_t at = 0; next_node(gang.leaves, at);) {
      holders_.assign(on_node_.size(), {slot, gang_slot(), true});
      cells_.hold_all(gang.leaves[at - 1].chain, on_node_, holders_);
    }
    gang.state = gang_state::allocated;
    gangs_.rank(slot);
    gang.downgraded_victims.clear();
    enter(slot);
  }
  // Adds a gang that runs already on idle leaves; a leaf that is not valid does not exist.
  // `levels`: for each leaf the level of the whole cell that it had, tried first; empty: unknown.
  // Returns false if the gang runs as opportunistic because it got no cells of its tenant.
  bool recover(gang_record gang, std::span<const level_t> levels = {}) {
    gang.request.suggested = nullptr;
    const bool opportunistic = gang.request.priority < 0;
    gang.downgraded = !opportunistic;
    gang.levels_known = opportunistic || !levels.empty();
    if (!opportunistic) gang.lost_levels.assign(levels.begin(), levels.end());
    const gang_slot slot = gangs_.add(std::move(gang));
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), false});
    enter(slot);
    return opportunistic || upgrade(slot, levels);
  }
  // Releases the leaves first, ..., last-1 of a gang.
  void release(gang_slot slot, std::size_t first, std::size_t last) {
    gang_record& gang = gangs_[slot];
    forget(slot);
    give_up(gang, std::span(gang.leaves).subspan(first, last - first));
    for (std::size_t i = first; i < last; ++i) {
      if (!gang.leaves[i].leaf.valid()) continue;
      gang.leaves[i].leaf = cell_id();
      if (!gang.lost_levels.empty()) gang.lost_levels[i] = hived_cells::no_level;
    }
    std::erase_if(gang.missing, [&](const gang_record::missing_leaf& m) {
      return m.index >= first && m.index < last;
    });
    gangs_.rank(slot);
    enter(slot);
  }
  // Removes a gang and releases its leaves and claims.
  void drop(gang_slot slot) {
    forget(slot);
    give_up(gangs_[slot], gangs_[slot].leaves);
    gangs_.remove(slot);
  }
  // Removes a preempting gang. The gangs that it downgraded need not end for it any more; they are
  // appended to to_restore, for restore() after other gangs have got their leaves.
  void drop_preempting(gang_slot slot, std::vector<job_id>& to_restore) {
    for (const job_id job : gangs_[slot].downgraded_victims) to_restore.push_back(job);
    for (const gang_slot s : ending_for(slot)) end_for(s, gang_slot());
    drop(slot);
  }
  // Marks a leaf as healthy or bad. Returns whether that changed it.
  bool mark(chain_leaf l, bool good) { return cells_.mark(l.chain, l.leaf, good); }

 private:
  // Records that a gang must end for a preempting gang; not valid: it need not end.
  void end_for(gang_slot slot, gang_slot preempting) {
    forget(slot);
    gangs_[slot].ends_for = preempting;
    enter(slot);
  }
  // Gives a gang cells of its tenant where it runs: whole cells of these levels if possible, else
  // the highest that are free, else the lowest. Returns whether it has them.
  bool upgrade(gang_slot slot, std::span<const level_t> levels = {}) {
    gang_record& gang = gangs_[slot];
    const vc_chain_id cluster = cluster_for(gang);
    if (!cluster.valid()) return false;
    if (!(!levels.empty() && try_upgrade(gang, slot, cluster, true, levels)) &&
        !try_upgrade(gang, slot, cluster, true) && !try_upgrade(gang, slot, cluster, false))
      return false;
    forget(slot);
    gangs_.move(slot, cluster);
    gang.downgraded = false;
    gang.ends_for = gang_slot();
    gang.lost_levels.clear();
    enter(slot);
    return true;
  }
  // Binds the unhealthy cells in the gang's whole cells.
  void bind_unhealthy(const gang_record& gang) {
    cell_id done;
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      const physical_chain& chain = cells_.chain(l.chain);
      if (!chain.any_bad()) return;
      const virtual_cell at = chain.owner(l.leaf);
      done = cells_.bind_unhealthy(at.cluster, at.cell, done);
    }
  }
  // Takes a gang out of the hash. Call it before each change of the gang, enter() after it.
  void forget(gang_slot s) noexcept { hash_ ^= facts_[s.value]; }
  // Enters what the holders do not say about a gang, such as which leaf belongs to which task.
  void enter(gang_slot s) {
    digest all = begin_fact(s);
    for (const chain_leaf& l : gangs_[s].leaves) add_leaf(l.leaf.valid() ? l : chain_leaf(), all);
    end_fact(s, all);
  }
  // The same in three steps: add_leaf for each leaf in between.
  [[nodiscard]] digest begin_fact(gang_slot s) const noexcept {
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
    if (r.constraints.any()) add_constraints(*r.constraints, all);
    if (!r.chains.empty()) all.add(r.chains.size());
    for (const std::uint32_t c : r.chains) all.add(c);
    return all;
  }
  static void add_leaf(chain_leaf l, digest& all) noexcept {
    all.add((std::uint64_t{l.chain} << 32) | l.leaf.value);
  }
  void end_fact(gang_slot s, digest all) {
    const gang_record& gang = gangs_[s];
    for (const gang_record::missing_leaf& m : gang.missing)
      all.add(m.index).add(m.node).add(m.device);
    for (const job_id job : gang.downgraded_victims) all.add(job.value);
    for (const level_t l : gang.lost_levels) all.add(l);
    if (facts_.size() <= s.value) facts_.resize(std::size_t{s.value} + 1);
    facts_[s.value] = all.value();
    hash_ ^= all.value();
  }
  // Records that the gang of `job` is downgraded for a preempting gang.
  void record_victim(gang_slot preempting, job_id job) {
    std::vector<job_id>& victims = gangs_[preempting].downgraded_victims;
    const auto at = std::lower_bound(victims.begin(), victims.end(), job);
    if (at != victims.end() && *at == job) return;
    forget(preempting);
    victims.insert(at, job);
    enter(preempting);
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
  // Whether a leaf is in a cell that is bound to another cluster. Then no gang of this cluster can
  // free it.
  [[nodiscard]] bool is_in_cell_of_others(vc_chain_id cluster, chain_leaf at) const noexcept {
    const physical_chain& chain = cells_.chain(at.chain);
    cell_id p = at.leaf;
    for (level_t l = 0; p.valid() && !chain.owner(p).cell.valid(); ++l)
      p = chain.tree().parent(p, l);
    return p.valid() && chain.owner(p).cluster != cluster;
  }
  // One try of upgrade. On failure the cells are as before.
  bool try_upgrade(const gang_record& gang, gang_slot slot, vc_chain_id cluster, bool highest_first,
                   std::span<const level_t> levels = {}) {
    cells_.begin();
    for (std::size_t i = 0; i < gang.leaves.size(); ++i) {
      const chain_leaf l = gang.leaves[i];
      if (!l.leaf.valid()) continue;
      const level_t preferred = levels.empty() ? hived_cells::no_level : levels[i];
      if (!cells_.bind_any_leaf(cluster, l.leaf, highest_first, preferred)) {
        cells_.rollback();
        return false;
      }
      cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    }
    cells_.keep();
    bind_unhealthy(gang);
    return true;
  }
  static void add_constraints(const request_constraints& constraints, digest& all) noexcept {
    all.add((std::uint64_t{constraints.required} << 32) | constraints.preferred);
    for (const request_constraints::of_group& m : constraints.groups) {
      all.add((std::uint64_t{m.slices.size()} << 32) | m.leader).add(m.spread.size());
      for (const auto* counts : {&m.slices, &m.spread})
        for (const level_count& s : *counts) all.add((std::uint64_t{s.level} << 32) | s.tasks);
    }
  }
  // Sets on_node_ to the next valid leaves, from leaves[at] on, that are on one node and ascend,
  // and `at` to the index after them. Returns false if there are none.
  bool next_node(std::span<const chain_leaf> leaves, std::size_t& at) {
    on_node_.clear();
    while (at < leaves.size() && !leaves[at].leaf.valid()) ++at;
    if (at == leaves.size()) return false;
    const std::uint32_t c = leaves[at].chain;
    const physical_chain& chain = cells_.chain(c);
    const std::uint32_t end =
        chain.first_leaf(chain.node_of(leaves[at].leaf)).value + chain.node_leaves();
    do {
      on_node_.push_back(leaves[at++].leaf);
    } while (at < leaves.size() && leaves[at].chain == c && leaves[at].leaf > on_node_.back() &&
             leaves[at].leaf.value < end);
    return true;
  }
  // Releases some leaves of a gang, or its claims on them.
  void give_up(const gang_record& gang, std::span<const chain_leaf> leaves) {
    for (std::size_t at = 0; next_node(leaves, at);) {
      const std::uint32_t c = leaves[at - 1].chain;
      if (gang.state == gang_state::preempting) {
        for (const cell_id leaf : on_node_) cells_.unclaim(c, leaf);
      } else {
        cells_.release_all(c, on_node_);
      }
    }
  }

  hived_cells cells_;
  gang_table gangs_;
  std::uint64_t hash_;
  std::vector<std::uint64_t> facts_;  // of each gang, by slot: what is in hash_
  // Scratch memory, not part of the state: the leaves of one node, and their new holders.
  lean_vector<cell_id> on_node_;
  lean_vector<leaf_holders> holders_;
};

}  // namespace detail
APIARY_NAMESPACE_END
