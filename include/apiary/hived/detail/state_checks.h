// apiary/hived/detail/state_checks.h - what a snapshot may violate in gangs and bindings.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Checks gangs and bindings that hived_snapshot_reader has read. It has checked what bindings and
// leaves require; what the scheduler computes from them, such as counts, cannot be wrong. Requires:
// the arguments outlive it. Cost: O(cells * levels + leaves of all gangs).
class hived_state_checks {
 public:
  // `used`: whether a slot has a gang.
  hived_state_checks(const hived_catalog& catalog, const hived_cells& cells,
                     const gang_table& gangs, const std::vector<bool>& used)
      : catalog_(catalog), cells_(cells), gangs_(gangs), used_(used) {}

  // The name of an invariant that does not hold, and where; empty: all hold. bad: all bad leaves.
  [[nodiscard]] std::string first_fault(std::span<const chain_leaf> bad) {
    for (std::size_t s = 0; s < used_.size(); ++s) {
      if (!used_[s]) continue;
      const gang_record& gang = gangs_[gang_slot(static_cast<std::uint32_t>(s))];
      check_cluster(gang);
      check_tasks(gang);
      check_record(gang);
      if (gang.state == gang_state::preempting) check_claims(gang);
    }
    for (std::uint32_t c = 0; c < cells_.num_clusters(); ++c) check_needed(vc_chain_id(c));
    check_bad(bad);
    return fault_;
  }
  // once  no two gangs use the same leaf or claim the same leaf, and no gang has a leaf twice
  [[nodiscard]] std::string held_twice(chain_leaf l, gang_slot one, gang_slot other) const {
    return text_of({"once: ", leaf_name(l), ": ", gang_name(one), " and ", gang_name(other)});
  }

 private:
  // Keeps the first fault.
  void fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  [[nodiscard]] bool exists(gang_slot s) const noexcept {
    return s.value < used_.size() && used_[s.value];
  }
  [[nodiscard]] std::string gang_name(gang_slot s) const {
    return exists(s) ? hived_catalog::name(gangs_[s].request.job)
                     : "unknown slot " + std::to_string(s.value);
  }
  [[nodiscard]] std::string leaf_name(chain_leaf l) const {
    const hived_placement at = catalog_.placement_of(l);
    return text_of(
        {"leaf ", std::countr_zero(at.leaves), " of node ", catalog_.layout().node_name(at.node)});
  }
  // own cells  a guaranteed gang has the virtual cluster of its tenant or of its pinned cell
  void check_cluster(const gang_record& g) {
    if (!g.guaranteed()) return;
    const gang_request& r = g.request;
    const virtual_cluster& cluster = cells_.cluster(g.cluster);
    if (cluster.tenant() == r.tenant &&
        g.cluster == (r.pinned ? cells_.cluster_of_pinned(*r.pinned)
                               : cells_.cluster_of(r.tenant, cluster.chain())))
      return;
    fail(text_of({"own cells: ", hived_catalog::name(r.job), " of tenant ", r.tenant.value,
                  " has cells of cluster ", g.cluster.value}));
  }
  // tasks    a gang has a leaf. All leaves of a task are on one node. A task has all its leaves,
  //          missing ones included, or none if it has ended; in a recovered gang it may have fewer
  // missing  a missing leaf is not in the configuration, and its index is that of a leaf that is
  //          not valid; the indices ascend, each occurs once
  // type     a gang that was neither recovered nor moved is on leaves of the type that it asks for
  void check_tasks(const gang_record& g) {
    const std::string name = hived_catalog::name(g.request.job);
    std::size_t next = 0;
    for (const gang_record::missing_leaf& m : g.missing) {
      if (m.index < next || m.index >= g.leaves.size() || g.leaves[m.index].leaf.valid() ||
          catalog_.find_leaf(m.node, m.device).leaf.valid()) {
        fail(text_of({"missing: ", name, ": missing leaf ", m.index, " is device ", m.device,
                      " of node ", m.node}));
        return;
      }
      next = std::size_t{m.index} + 1;
    }
    if (g.missing.empty() && g.count_live(0, g.leaves.size()) == 0)
      fail("tasks: " + name + " has no leaf");
    std::uint32_t task = 0;
    std::size_t lost = 0;  // of g.missing, in the tasks before
    g.for_each_task([&](const task_group& m, std::uint32_t first, std::uint32_t last) {
      std::size_t n = g.count_live(first, last);
      for (; lost < g.missing.size() && g.missing[lost].index < last; ++lost) ++n;
      if (n != 0 && n != m.gpus && !g.recovered)
        fail(text_of({"tasks: ", name, ": task ", task, " has ", n, " leaves of ", m.gpus}));
      node_id node;
      for (std::uint32_t i = first; i < last; ++i) {
        const chain_leaf l = g.leaves[i];
        if (!l.leaf.valid()) continue;
        const node_id here = catalog_.placement_of(l).node;
        if (node.valid() && here != node)
          fail(text_of({"tasks: ", name, ": task ", task, " on two nodes"}));
        node = here;
        const leaf_type_id type = g.request.leaf_type;
        if (type.valid() && !g.recovered && !g.moved && catalog_.type_of(l.chain) != type)
          fail(text_of({"type: ", name, ": ", leaf_name(l), " is of type ",
                        catalog_.name(catalog_.type_of(l.chain))}));
      }
      ++task;
    });
  }
  // class       a gang has no virtual cluster if and only if it is opportunistic or downgraded. No
  //             gang is both
  // preempting  only a preempting gang has downgraded victims, by ascending job
  // levels      only a downgraded gang has lost levels: one for each leaf, or none
  // ending      a gang that must end for another one runs downgraded; the other one is preempting
  //             and lists it
  void check_record(const gang_record& g) {
    const std::string name = hived_catalog::name(g.request.job);
    const bool opportunistic = g.request.priority < 0;
    if (g.guaranteed() ? opportunistic || g.downgraded : opportunistic == g.downgraded) {
      fail(text_of({"class: ", name, " of priority ", g.request.priority,
                    g.downgraded ? ", downgraded, " : " ", g.guaranteed() ? "has" : "has no",
                    " cluster"}));
    }
    const std::vector<job_id>& jobs = g.downgraded_victims;
    if (g.state == gang_state::allocated && !jobs.empty()) fail("preempting: " + name);
    const auto falling = [](job_id a, job_id b) { return a >= b; };
    if (std::adjacent_find(jobs.begin(), jobs.end(), falling) != jobs.end())
      fail("preempting: " + name + ": its downgraded victims do not ascend");
    if (!g.lost_levels.empty() && !g.downgraded) {
      fail(text_of({"levels: ", name, " has ", g.lost_levels.size(), " lost levels and ",
                    g.leaves.size(), " leaves"}));
    }
    if (!g.ends_for.valid()) return;
    if (g.state == gang_state::allocated && g.downgraded && exists(g.ends_for)) {
      const gang_record& by = gangs_[g.ends_for];
      const std::vector<job_id>& victims = by.downgraded_victims;
      if (by.state == gang_state::preempting &&
          std::find(victims.begin(), victims.end(), g.request.job) != victims.end())
        return;
    }
    fail("ending: " + name + " must end for " + gang_name(g.ends_for));
  }
  // claims  the claimer has a higher priority than the user; same tenant if the user is guaranteed
  void check_claims(const gang_record& g) {
    for (const chain_leaf& l : g.leaves) {
      if (!l.leaf.valid()) continue;
      const gang_slot slot = cells_.chain(l.chain).holders(l.leaf).user;
      if (!slot.valid()) continue;
      const gang_record& user = gangs_[slot];
      if (g.request.priority > user.effective_priority() &&
          (!user.guaranteed() || user.request.tenant == g.request.tenant))
        continue;
      fail(text_of({"claims: ", leaf_name(l), ": ", hived_catalog::name(g.request.job),
                    " of priority ", g.request.priority, " claims it from ", gang_name(slot),
                    " of priority ", user.effective_priority(),
                    user.guaranteed() ? ", a guaranteed one of tenant " : " of tenant ",
                    user.request.tenant.value}));
    }
  }
  // needless  a bound cell has a leaf in use, is a pinned root, or is unhealthy in a bound cell
  void check_needed(vc_chain_id c) {
    const virtual_cluster& cluster = cells_.cluster(c);
    const physical_chain& chain = cells_.chain(cluster.chain());
    for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
      for (const cell_id v : cluster.tree().cells(l)) {
        const cell_id p = cluster.image(v);
        if (!p.valid() || (l == 0 ? chain.holders(p).taken() : cluster.active(v) > 0)) continue;
        if (cluster.tree().parent(v, l).valid() ? !chain.healthy().healthy(p) : cells_.is_pinned(c))
          continue;
        const hived_layout& layout = catalog_.layout();
        fail(text_of({"needless: ", layout.tenants[cluster.tenant().value].name, " (cluster ",
                      c.value, ") cell ", v.value, " of level ", l, ", bound to ",
                      layout.chains[cluster.chain()].name, " cell ", p.value}));
      }
    }
  }
  // hidden  every unhealthy cell inside a bound cell is bound
  void check_bad(std::span<const chain_leaf> bad_leaves) {
    for (const chain_leaf& bad : bad_leaves) {
      const physical_chain& chain = cells_.chain(bad.chain);
      cell_id p = bad.leaf;
      for (level_t l = 0; p.valid(); ++l) {
        const cell_id above = chain.tree().parent(p, l);
        if (above.valid() && chain.owner(above).cell.valid() && !chain.owner(p).cell.valid()) {
          fail(text_of({"hidden: ", catalog_.layout().chains[bad.chain].name, " cell ", p.value,
                        " is unhealthy and not bound, the cell above is"}));
        }
        p = above;
      }
    }
  }

  const hived_catalog& catalog_;
  const hived_cells& cells_;
  const gang_table& gangs_;
  const std::vector<bool>& used_;
  std::string fault_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
