// apiary/hived/detail/audit_gangs.h - checks the gangs of a HiveD scheduler, and a state that was read from a snapshot.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/audit_cells.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/hived/violation.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// table  a gang is found by its job, and only the list of its virtual cluster has it, once
inline void audit_table(audit_notes& notes) {
  std::vector<bool> seen(notes.known.size(), false);
  for (const gang_slot s : notes.all) {
    notes.expect(!seen[s.value], "table",
                 [&] { return "two jobs have slot " + audit_text(s.value); });
    seen[s.value] = true;
    notes.expect(notes.gangs.find(notes.gangs[s].request.job) == s, "table",
                 [&] { return notes.gang(s) + " is not found by its job"; });
  }
  std::vector<std::uint32_t> listed(notes.known.size(), 0);
  for (std::uint32_t c = 0; c < notes.cells.num_clusters(); ++c) {
    for (const auto& [rank, slot] : notes.gangs.of_cluster(vc_chain_id(c))) {
      const gang_slot s = slot;
      const bool right = notes.exists(s) && notes.gangs[s].cluster == vc_chain_id(c) &&
                         rank == gang_table::rank_of(notes.gangs[s]) && listed[s.value]++ == 0;
      notes.expect(right, "table",
                   [&] { return notes.gang(s) + " is listed in cluster " + audit_text(c); });
    }
  }
  for (const gang_slot s : notes.all) {
    notes.expect(!notes.gangs[s].guaranteed() || listed[s.value] == 1, "table", [&] {
      return notes.gang(s) + " is not listed in cluster " +
             audit_text(notes.gangs[s].cluster.value);
    });
  }
}

// claims  the claimer has a higher priority than the user; same tenant if the user is guaranteed
inline void audit_claim(audit_notes& notes, std::uint32_t c, cell_id at, leaf_holders h) {
  if (!notes.exists(h.user) || !notes.exists(h.claimer)) return;
  const gang_record& user = notes.gangs[h.user];
  const gang_record& claimer = notes.gangs[h.claimer];
  notes.expect(claimer.request.priority > user.effective_priority(), "claims", [&] {
    return notes.leaf(c, at) + ": " + notes.gang(h.claimer) + " of priority " +
           std::to_string(claimer.request.priority) + " claims it from " + notes.gang(h.user) +
           " of priority " + std::to_string(user.effective_priority());
  });
  notes.expect(!user.guaranteed() || user.request.tenant == claimer.request.tenant, "claims", [&] {
    return notes.leaf(c, at) + ": " + notes.gang(h.claimer) + " claims it from " +
           notes.gang(h.user) + ", a guaranteed one of another tenant";
  });
}

// once     no two gangs use the same leaf or claim the same leaf, and no gang has a leaf twice
// holders  each leaf has the user and the claimer that the gangs name, and no other
inline void audit_holders(audit_notes& notes) {
  std::vector<std::vector<leaf_holders>> expected;
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c)
    expected.emplace_back(notes.cells.chain(c).tree().num_leaves());
  for (const gang_slot s : notes.all) {
    for (const auto& [c, at] : notes.gangs[s].leaves) {
      if (!at.valid()) continue;
      leaf_holders& h = expected[c][notes.cells.chain(c).tree().index(at, 0)];
      gang_slot& holder = notes.gangs[s].state == gang_state::preempting ? h.claimer : h.user;
      notes.expect(!holder.valid(), "once", [&, c = c, at = at] {
        return notes.leaf(c, at) + ": " + notes.gang(holder) + " and " + notes.gang(s);
      });
      holder = s;
      if (notes.gangs[s].state == gang_state::allocated) h.guaranteed = notes.gangs[s].guaranteed();
    }
  }
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c) {
    const uniform_tree& tree = notes.cells.chain(c).tree();
    for (const cell_id at : tree.cells(0)) {
      const leaf_holders is = notes.cells.chain(c).holders(at);
      const leaf_holders should = expected[c][tree.index(at, 0)];
      notes.expect(is == should, "holders", [&] {
        return notes.leaf(c, at) + ": user " + notes.gang(is.user) +
               (is.guaranteed ? " (guaranteed)" : "") + ", claimer " + notes.gang(is.claimer) +
               "; by the gangs user " + notes.gang(should.user) +
               (should.guaranteed ? " (guaranteed)" : "") + ", claimer " +
               notes.gang(should.claimer);
      });
      audit_claim(notes, c, at, is);
    }
  }
}

// own cells  a guaranteed gang has only leaves in the virtual cluster of its tenant or pinned cell
inline void audit_own_cells(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  const bool known = g.cluster.value < notes.cells.num_clusters();
  const std::uint32_t c = known ? notes.cells.cluster(g.cluster).chain() : 0;
  const bool own = known && notes.cells.cluster(g.cluster).tenant() == g.request.tenant &&
                   (g.request.pinned ? notes.cells.cluster_of_pinned(*g.request.pinned) == g.cluster
                                     : notes.cells.cluster_of(g.request.tenant, c) == g.cluster);
  if (!own) {
    notes.report("own cells", notes.gang(s) + " of tenant " + audit_text(g.request.tenant.value) +
                                  " has cells of cluster " + audit_text(g.cluster.value));
    return;
  }
  for (const chain_leaf& l : g.leaves) {
    if (!l.leaf.valid()) continue;
    const vc_chain_id owner = notes.cells.chain(l.chain).owner(l.leaf).cluster;
    notes.expect(l.chain == c && owner == g.cluster, "own cells", [&] {
      return notes.gang(s) + " of cluster " + audit_text(g.cluster.value) + ": " +
             notes.leaf(l.chain, l.leaf) + " is bound to " +
             (owner.valid() ? "cluster " + audit_text(owner.value) : "nothing");
    });
  }
}

// Whether a gang that must end for another one runs downgraded, and the other gang is preempting
// and lists it in downgraded_victims.
[[nodiscard]] inline bool is_listed_by_preemptor(const audit_notes& notes, const gang_record& g) {
  if (g.state != gang_state::allocated || !g.downgraded || !notes.exists(g.ends_for)) return false;
  const gang_record& by = notes.gangs[g.ends_for];
  const std::vector<job_id>& jobs = by.downgraded_victims;
  return by.state == gang_state::preempting &&
         std::find(jobs.begin(), jobs.end(), g.request.job) != jobs.end();
}

// Whether the configuration has this leaf.
[[nodiscard]] inline bool has_device(const hived_layout& layout,
                                     const gang_record::missing_leaf& m) {
  const auto first = layout.find_node(m.node);
  if (!first) return false;
  node_id n = *first;
  do {
    if (layout.find_position(n, m.device)) return true;
    n = layout.next_of_host(n);
  } while (n != *first);
  return false;
}

// missing  a missing leaf is not in the configuration, and its index is that of a leaf that is not
//          valid; the indices ascend, each occurs once
inline void audit_missing(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  std::size_t next = 0;
  for (const gang_record::missing_leaf& m : g.missing) {
    const bool in_place =
        m.index >= next && m.index < g.leaves.size() && !g.leaves[m.index].leaf.valid();
    notes.expect(in_place && !has_device(notes.layout, m), "missing", [&] {
      return notes.gang(s) + ": missing leaf " + audit_text(m.index) + " is device " +
             audit_text(m.device) + " of node " + m.node;
    });
    next = std::size_t{m.index} + 1;
  }
}

// type  a gang that was neither recovered nor moved is on leaves of the type that it asks for
inline void audit_type(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  if (!g.request.leaf_type.valid() || g.recovered || g.moved) return;
  std::vector<std::string> types;  // by id: in the order of the chains
  std::vector<std::size_t> of_chain;
  for (const chain_layout& chain : notes.layout.chains) {
    const auto known = std::find(types.begin(), types.end(), chain.level_types[0]);
    of_chain.push_back(static_cast<std::size_t>(known - types.begin()));
    if (known == types.end()) types.push_back(chain.level_types[0]);
  }
  for (const chain_leaf& l : g.leaves) {
    notes.expect(!l.leaf.valid() || of_chain[l.chain] == g.request.leaf_type.value, "type", [&] {
      return notes.gang(s) + ": " + notes.leaf(l.chain, l.leaf) + " is of type " +
             types[of_chain[l.chain]];
    });
  }
}

// Checks one gang, with all checks above that concern one gang.
// tasks       a gang has a leaf. All leaves of a task are on one node. A task has all its leaves,
//             missing ones included, or none if it has ended; in a recovered gang it may have fewer
// class       a gang has no virtual cluster if and only if it is opportunistic or downgraded. No
//             gang is both
// levels      only a downgraded gang has lost levels: one for each leaf, or none
// preempting  a preempting gang is guaranteed; only a preempting gang has downgraded victims, by
//             ascending job
// ending      is_listed_by_preemptor holds for each gang that must end for another gang
inline void audit_gang(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  std::size_t asked = 0;
  for (const task_group& m : g.request.groups) asked += std::size_t{m.tasks} * m.gpus;
  if (g.leaves.size() != asked) {
    notes.report("tasks", notes.gang(s) + " lists " + audit_text(g.leaves.size()) +
                              " leaves; its tasks have " + audit_text(asked));
    return;
  }
  bool any = !g.missing.empty();
  std::vector<bool> named(g.leaves.size(), false);  // whether a missing leaf has this index
  for (const gang_record::missing_leaf& m : g.missing)
    if (m.index < named.size()) named[m.index] = true;
  std::uint32_t task = 0;
  g.for_each_task([&](const task_group& m, std::uint32_t first, std::uint32_t last) {
    std::uint32_t n = 0;
    chain_leaf one;
    bool together = true;
    for (std::uint32_t i = first; i < last; ++i) {
      if (!g.leaves[i].leaf.valid()) continue;
      if (n++ == 0) one = g.leaves[i];
      together = together && g.leaves[i].chain == one.chain &&
                 notes.cells.chain(one.chain).node_of(g.leaves[i].leaf) ==
                     notes.cells.chain(one.chain).node_of(one.leaf);
    }
    any = any || n > 0;
    for (std::uint32_t i = first; i < last; ++i) n += named[i] ? 1U : 0U;
    notes.expect(together, "tasks",
                 [&] { return notes.gang(s) + ": task " + audit_text(task) + " on two nodes"; });
    notes.expect(n == 0 || n == m.gpus || g.recovered, "tasks", [&] {
      return notes.gang(s) + ": task " + audit_text(task) + " has " + audit_text(n) +
             " leaves of " + audit_text(m.gpus);
    });
    ++task;
  });
  notes.expect(any, "tasks", [&] { return notes.gang(s) + " has no leaf"; });
  audit_missing(notes, s);
  audit_type(notes, s);
  const bool opportunistic = g.request.priority < 0;
  notes.expect(g.guaranteed() ? !opportunistic && !g.downgraded : opportunistic != g.downgraded,
               "class", [&] {
                 return notes.gang(s) + " of priority " + std::to_string(g.request.priority) +
                        (g.downgraded ? ", downgraded, " : " ") +
                        (g.guaranteed() ? "has" : "has no") + " cluster";
               });
  notes.expect(g.state == gang_state::allocated ? g.downgraded_victims.empty() : g.guaranteed(),
               "preempting", [&] { return notes.gang(s); });
  const std::vector<job_id>& jobs = g.downgraded_victims;
  const auto falling = [](job_id a, job_id b) { return a >= b; };
  notes.expect(std::adjacent_find(jobs.begin(), jobs.end(), falling) == jobs.end(), "preempting",
               [&] { return notes.gang(s) + ": its downgraded victims do not ascend"; });
  const std::size_t levels = g.lost_levels.size();
  notes.expect(levels == 0 || (g.downgraded && levels == asked), "levels", [&] {
    return notes.gang(s) + (g.downgraded ? ", downgraded, has " : " has ") + audit_text(levels) +
           " lost levels and " + audit_text(asked) + " leaves";
  });
  notes.expect(!g.ends_for.valid() || is_listed_by_preemptor(notes, g), "ending",
               [&] { return notes.gang(s) + " must end for " + notes.gang(g.ends_for); });
  if (g.guaranteed()) audit_own_cells(notes, s);
}

// Checks all gangs. Cost: O(leaves of the chains and of the gangs * levels).
inline void audit_gangs(audit_notes& notes) {
  audit_table(notes);
  audit_holders(notes);
  for (const gang_slot s : notes.all) audit_gang(notes, s);
}

// Checks the invariants of gangs and bindings. The other ones of audit() concern counts and quotas,
// which the scheduler computes from these; a text cannot make them wrong.
// Cost: O(cells * levels + leaves of all gangs * levels), and a sort of the gangs.
[[nodiscard]] inline std::vector<violation> audit_snapshot(const hived_layout& layout,
                                                           const hived_cells& cells,
                                                           const gang_table& gangs) {
  audit_notes notes(layout, cells, gangs);
  audit_gangs(notes);
  for (std::uint32_t i = 0; i < cells.num_clusters(); ++i) {
    const vc_chain_id c(i);
    audit_images(notes, c, count_active(cells, c));
  }
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c)
    audit_owners(notes, c, count_leaves(cells.chain(c)));
  return std::move(notes.found);
}

}  // namespace detail
APIARY_NAMESPACE_END
