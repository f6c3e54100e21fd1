// apiary/hived/detail/state.h - gangs on cells: how they come, go, and change places.
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

// The gangs of a HiveD scheduler together with the leaves that they have. It does what is decided
// elsewhere and checks nothing that a host sends.
//
// Model: HiveD (OSDI 2020) section 5; the states of leaves and gangs as in leaf_holders and
//        gang_state. Differs: what a preemption has taken from lazy gangs is given back when it is
//        withdrawn.
// Cost:  O(leaves of the gang * levels * fan-out) a call, and on bad hardware O(fan-out) for each
//        unhealthy cell in the whole cells of the gang, once for tasks in the same. For a gang that
//        is given its tenant's cells where it runs (readmit, oust, restore) also O(whole cells of
//        the tenant) for each that it lies in; oust as often as there are lower gangs.
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

  // A gang comes to a place: it runs there, or claims the leaves while their users end, and those of
  // the downgraded gangs that are not lazy. Requires: of the place, cancelled and downgraded gangs
  // are so already; those not lazy are among the downgraded victims, and it preempts.
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
  // A preempting gang runs where its leaves are. Requires: their users have ended.
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
  // A gang that runs already, with its request, leaves, missing ones, and how it came; those of its
  // leaves that are not valid are not there. Requires: the others are idle. Whether it has its
  // tenant's cells, if it should; otherwise it runs on as opportunistic. levels: of each leaf the
  // level of the whole cell that it had, which is tried first; empty: not known.
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
  // After readmit that found no cells: gives it those of lower gangs that run in the same cells and
  // that nobody preempts. One after another loses them, the cheapest first, until that succeeds;
  // those who need not have lost them get them back, as all do if it fails. A gang whose levels are
  // not known takes none from those whose are, or who never had to be readmitted.
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
  // The tasks of another gang become the last ones of a gang, and that other gang is no more.
  // Requires: both run, nobody claims their leaves, and both have cells of the same cluster, or both
  // of none.
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
    const std::vector<task_group>& members = joining.request.members;
    join(gang.request, joining.request);
    gang.request.members.insert(gang.request.members.end(), members.begin(), members.end());
    gang.recovered = gang.recovered || joining.recovered;
    gang.moved = gang.moved || joining.moved;
    gang.levels_known = gang.levels_known || joining.levels_known;
    gangs_.remove(other);
    gangs_.rank(slot);
    hash_ ^= fact(slot);
  }

  // Some leaves of a gang are its own no more: first, ..., last-1 of them.
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
  void drop(gang_slot slot) {
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) let_go(gangs_[slot], l);
    gangs_.remove(slot);
  }
  // The gangs that it downgraded need not end for it any more, and may be restored when its leaves
  // are settled.
  void drop_preempting(gang_slot slot, std::vector<job_id>& to_restore) {
    const std::vector<job_id>& jobs = gangs_[slot].downgraded_victims;
    to_restore.insert(to_restore.end(), jobs.begin(), jobs.end());
    for (const gang_slot s : ending_for(slot)) end_for(s, gang_slot());
    drop(slot);
  }
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
  // Gives those of the gangs that are downgraded their tenants' cells back as far as they can have
  // them where they run, whole cells of the levels that they had if possible, by descending
  // priority, then by job. Those who cannot are remembered as downgraded for each gang that may be
  // in the way: the preempting one, if named, and those that have claimed a leaf of theirs. The
  // jobs of those who can. Cost: O(gangs that cannot * leaves of those remembered for) besides.
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
  // Whether another gang has claimed a leaf of it, or has its tenant's cells and waits for its end.
  [[nodiscard]] bool being_preempted(const gang_record& gang) const noexcept {
    return gang.ends_for.valid() || gang.claimed(cells_);
  }
  // The gangs that a preempting one waits for, having their tenant's cells, in the order of jobs.
  [[nodiscard]] std::vector<gang_slot> ending_for(gang_slot preempting) const {
    std::vector<gang_slot> ending;
    for (const job_id job : gangs_[preempting].downgraded_victims) {
      const std::optional<gang_slot> s = gangs_.find(job);
      if (s && gangs_[*s].ends_for == preempting) ending.push_back(*s);
    }
    return ending;
  }
  // Of each leaf of a gang the level of the whole cell of its tenant that it lies in, or lay in if the
  // gang is downgraded, no_level of one that is not there; none if it is not known.
  [[nodiscard]] std::vector<level_t> levels_of(const gang_record& gang) const {
    if (!gang.guaranteed()) return gang.lost;
    std::vector<level_t> levels;
    for (const chain_leaf& l : gang.leaves)
      levels.push_back(l.leaf.valid() ? cells_.whole_cell_level(l.chain, l.leaf)
                                      : hived_cells::no_level);
    return levels;
  }
  // Whether that changed it.
  bool mark(chain_leaf l, bool good) { return cells_.mark(l.chain, l.leaf, good); }

 private:
  // The rules of the members of both, as they will be numbered. Requires: these are not joined yet.
  static void join(gang_request& r, const gang_request& more) {
    if (r.rules.members.empty() && more.rules.members.empty()) return;
    r.rules.members.resize(r.members.size());
    for (group_constraints rules : more.rules.members) {
      if (rules.leader != no_task_group)
        rules.leader += static_cast<std::uint32_t>(r.members.size());
      r.rules.members.push_back(std::move(rules));
    }
    r.rules.members.resize(r.members.size() + more.members.size());
  }
  void let_go(const gang_record& gang, chain_leaf l) {
    if (gang.state == gang_state::preempting) {
      cells_.unclaim(l.chain, l.leaf);
    } else {
      cells_.unuse(l.chain, l.leaf);
    }
  }
  // A gang is downgraded for a preempting one.
  void remember(gang_slot preempting, job_id job) {
    std::vector<job_id>& victims = gangs_[preempting].downgraded_victims;
    const auto at = std::lower_bound(victims.begin(), victims.end(), job);
    if (at != victims.end() && *at == job) return;
    hash_ ^= fact(preempting);
    victims.insert(at, job);
    hash_ ^= fact(preempting);
  }
  void end_for(gang_slot slot, gang_slot preempting) {
    hash_ ^= fact(slot);
    gangs_[slot].ends_for = preempting;
    hash_ ^= fact(slot);
  }
  // Whose cells the gang can have where it runs; not valid: nobody's.
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
  // Shows the tenant what is unhealthy in the whole cells in which the gang has its leaves.
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
  // What of a gang the leaves' holders do not say, as which leaf is which task's.
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
    all.add(r.members.size());
    for (const task_group& m : r.members) all.add((std::uint64_t{m.tasks} << 32) | m.gpus);
    if (r.rules.any()) add_constraints(r.rules, all);
    for (const chain_leaf& l : gang.leaves) {
      const chain_leaf at = l.leaf.valid() ? l : chain_leaf();
      all.add((std::uint64_t{at.chain} << 32) | at.leaf.value);
    }
    for (const missing_leaf& m : gang.missing) all.add(m.index).add(m.node).add(m.device);
    for (const job_id job : gang.downgraded_victims) all.add(job.value);
    for (const level_t l : gang.lost) all.add(l);
    return all.value();
  }

  static void add_constraints(const request_constraints& rules, digest& all) noexcept {
    all.add((std::uint64_t{rules.required} << 32) | rules.preferred);
    for (const group_constraints& m : rules.members) {
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
