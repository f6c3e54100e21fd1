// apiary/hived/detail/move.h - moves running gangs into another configuration.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived_config.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Moves all gangs and all bad hardware of a scheduler into a scheduler with another configuration.
// Model: HiveD (OSDI 2020) section 5. Nodes are equal by name, leaves by node and device index.
// Cost:  O((leaves of both clusters + leaves of all gangs) * levels), and a sort of the gangs.
class hived_move {
 public:
  hived_move(const hived_catalog& from, const hived_state& before, const hived_catalog& to,
             hived_state& after)
      : from_(from), before_(before), to_(to), after_(after) {}
  // Does what hived::reconfigure says. Requires: `after` has no gangs and no bad hardware.
  [[nodiscard]] hived_reconfiguration carry_over() {
    move_health();
    std::vector<gang_slot> order = before_.gangs().by_job();
    merge_sort(order, [&](gang_slot a, gang_slot b) {
      return before_.gangs()[a].rank() > before_.gangs()[b].rank();
    });
    hived_reconfiguration report;
    for (const gang_slot s : order) move(before_.gangs()[s], report);
    return report;
  }
  // After carry_over: a gang one of whose tasks would be in two chains, because its devices are of
  // one host and the new configuration has them in different ones; it was not moved.
  [[nodiscard]] std::optional<job_id> split() const noexcept { return split_; }

 private:
  // Whether all leaves of each task are on one node of the new configuration.
  [[nodiscard]] bool on_one_node(const gang_record& gang,
                                 std::span<const chain_leaf> leaves) const {
    bool all = true;
    gang.for_each_task([&](const task_group&, std::uint32_t first, std::uint32_t last) {
      std::optional<node_id> node;
      for (std::uint32_t i = first; i < last; ++i) {
        if (!leaves[i].leaf.valid()) continue;
        const node_id here = to_.placement_of(leaves[i]).node;
        all = all && node.value_or(here) == here;
        node = here;
      }
    });
    return all;
  }
  void move_health() {
    for (std::uint32_t c = 0; c < before_.cells().num_chains(); ++c) {
      const physical_chain& chain = before_.cells().chain(c);
      if (!chain.any_bad()) continue;
      for (const cell_id leaf : chain.tree().cells(0)) {
        if (chain.healthy().healthy(leaf)) continue;
        const chain_leaf there = to_.find_leaf(from_, {c, leaf});
        if (there.leaf.valid()) after_.mark(there, false);
      }
    }
  }
  void move(const gang_record& gang, hived_reconfiguration& report) {
    const job_id job = gang.request.job;
    if (gang.state == gang_state::preempting) {
      report.cancelled.push_back(job);
      return;
    }
    std::vector<chain_leaf> leaves(gang.leaves.size());
    std::vector<gang_record::missing_leaf> missing;
    std::size_t found = 0;
    const auto put = [&](gang_record::missing_leaf names, chain_leaf there) {
      leaves[names.index] = there;
      found += there.leaf.valid() ? 1U : 0U;
      if (!there.leaf.valid()) missing.push_back(std::move(names));
    };
    for (std::uint32_t i = 0; i < leaves.size(); ++i) {
      if (!gang.leaves[i].leaf.valid()) continue;
      const hived_placement at = from_.placement_of(gang.leaves[i]);
      put({i, std::string(from_.layout().node_name(at.node)), from_.device_of(at)},
          to_.find_leaf(from_, gang.leaves[i]));
    }
    const bool lost = !missing.empty();
    for (const gang_record::missing_leaf& m : gang.missing) put(m, to_.find_leaf(m.node, m.device));
    if (found == 0) {
      report.gone.push_back(job);
      return;
    }
    if (!on_one_node(gang, leaves)) {
      split_ = job;
      return;
    }
    if (lost) report.shrunk.push_back(job);
    merge_sort(missing, [](const gang_record::missing_leaf& a, const gang_record::missing_leaf& b) {
      return a.index < b.index;
    });
    gang_record moved{.request = to_.translate(from_, gang.request),
                      .recovered = gang.recovered,
                      .moved = true,
                      .leaves = std::move(leaves),
                      .missing = std::move(missing)};
    const bool own = after_.recover(std::move(moved), before_.levels_of(gang));
    if (!own && gang.guaranteed()) report.downgraded.push_back(job);
    if (own && gang.downgraded) report.restored.push_back(job);
  }

  const hived_catalog& from_;
  const hived_state& before_;
  const hived_catalog& to_;
  hived_state& after_;
  std::optional<job_id> split_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
