// apiary/hived/detail/state.h - the gangs of a HiveD scheduler and the leaves that they hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/gang_placement.h>
#include <apiary/hived/detail/guarantees.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Carries out decisions on the gangs of a HiveD scheduler and their leaves, without checks.
// Model: HiveD (OSDI 2020) section 5; leaf_holders and gang_state are the states of both.
// Cost:  as hived_guarantees.
class hived_state : public hived_guarantees {
 public:
  using hived_guarantees::hived_guarantees;
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
    const leaf_holders user{slot, gang_slot(), place.cluster.valid()};
    digest all = begin_fact(slot);
    for_each_node(gangs_[slot].leaves, [&](std::uint32_t c, std::span<const cell_id> leaves) {
      for (const cell_id leaf : leaves) add_leaf({c, leaf}, all);  // here it costs least time
      const physical_chain& chain = cells_.chain(c);
      if (!preempting) return cells_.hold_all(c, leaves, [&](std::size_t) { return user; });
      cells_.hold_all(c, leaves, [&](std::size_t i) {
        leaf_holders to = chain.holders(leaves[i]);
        to.claimer = slot;
        return to;
      });
    });
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
    const leaf_holders user{slot, gang_slot(), true};
    for_each_node(gang.leaves, [&](std::uint32_t c, std::span<const cell_id> leaves) {
      cells_.hold_all(c, leaves, [&](std::size_t) { return user; });
    });
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
  // Merges the gang `other` into a gang, as its last tasks. Requires: both gangs run, no gang has
  // claimed their leaves, and both have cells of the same virtual cluster or both have none.
  void join(gang_slot slot, gang_slot other) {
    forget(slot);
    forget(other);
    gang_record& gang = gangs_[slot];
    const gang_record joining = gangs_[other];
    const auto before = static_cast<std::uint32_t>(gang.leaves.size());
    for (const chain_leaf& l : joining.leaves) {
      gang.leaves.push_back(l);
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), gang.guaranteed()});
    }
    for (gang_record::missing_leaf m : joining.missing) {
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
    enter(slot);
  }
  // Releases the leaves first, ..., last-1 of a gang.
  void release(gang_slot slot, std::size_t first, std::size_t last) {
    gang_record& gang = gangs_[slot];
    forget(slot);
    for (std::size_t i = first; i < last; ++i) {
      if (!gang.leaves[i].leaf.valid()) continue;
      release_leaf(gang, gang.leaves[i]);
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
    for_each_node(gangs_[slot].leaves, [&](std::uint32_t c, std::span<const cell_id> leaves) {
      if (gangs_[slot].state != gang_state::preempting) return cells_.release_all(c, leaves);
      for (const cell_id leaf : leaves) cells_.unclaim(c, leaf);
    });
    gangs_.remove(slot);
  }
  // Removes a preempting gang. The gangs that it downgraded need not end for it any more; they are
  // appended to to_restore, for restore() after other gangs have got their leaves.
  void drop_preempting(gang_slot slot, std::vector<job_id>& to_restore) {
    const std::vector<job_id>& jobs = gangs_[slot].downgraded_victims;
    to_restore.insert(to_restore.end(), jobs.begin(), jobs.end());
    for (const gang_slot s : ending_for(slot)) end_for(s, gang_slot());
    drop(slot);
  }
  // Marks a leaf as healthy or bad. Returns whether that changed it.
  bool mark(chain_leaf l, bool good) { return cells_.mark(l.chain, l.leaf, good); }

 private:
  // Adds the topology constraints of `more` to r, with task groups and leaders numbered as after
  // the merge. Requires: the task groups are not merged yet.
  static void join(gang_request& r, const gang_request& more) {
    if (r.constraints->groups.empty() && more.constraints->groups.empty()) return;
    if (!r.constraints.any()) r.constraints.make_search_ = more.constraints.make_search_;
    std::vector<request_constraints::of_group>& all = r.constraints.values_.groups;
    all.resize(r.groups.size());
    for (request_constraints::of_group constraints : more.constraints->groups) {
      if (constraints.leader != no_task_group)
        constraints.leader += static_cast<std::uint32_t>(r.groups.size());
      all.push_back(std::move(constraints));
    }
    all.resize(r.groups.size() + more.groups.size());
  }
  // Calls f(chain, leaves) for the leaves of each node, ascending; several times for a node if they
  // are not.
  template <class F>
  void for_each_node(const std::vector<chain_leaf>& leaves, const F& f) const {
    std::array<cell_id, 64> on_node;  // a node has no more leaves
    for (std::size_t i = 0; i < leaves.size();) {
      const chain_leaf l = leaves[i++];
      if (!l.leaf.valid()) continue;
      const physical_chain& chain = cells_.chain(l.chain);
      const std::uint32_t node = chain.node_of(l.leaf);
      const std::uint32_t end = chain.first_leaf(node).value + chain.node_leaves();
      on_node[0] = l.leaf;
      std::size_t n = 1;
      for (; i < leaves.size() && leaves[i].chain == l.chain && leaves[i].leaf > on_node[n - 1] &&
             leaves[i].leaf.value < end;
           ++i)
        on_node[n++] = leaves[i].leaf;
      f(l.chain, std::span<const cell_id>(on_node.data(), n));
    }
  }
  void release_leaf(const gang_record& gang, chain_leaf l) {
    if (gang.state == gang_state::preempting) {
      cells_.unclaim(l.chain, l.leaf);
    } else {
      cells_.release(l.chain, l.leaf);
    }
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
