// apiary/tests/support/hived_state_text.h - what a scheduler's state is and allows; restarts.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/queries.h>
#include <apiary/topology/tree.h>

#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace apiary_test {

// Appends what the gangs have, what is bound to what, and what is bad: equal for two states of one
// configuration if they are the same but for the slots that gangs are kept in. Requires: the names
// of nodes differ in their last sign.
inline void add_state(const apiary::hived& state, const std::vector<apiary::gang_request>& gangs,
                      std::vector<std::uint32_t>& text) {
  const auto put = [&](auto... values) { (text.push_back(values), ...); };
  const auto job = [&](apiary::gang_slot s) {
    return s.valid() ? state.gangs()[s].request.job.value : ~std::uint32_t{0};
  };
  for (const apiary::gang_request& r : gangs) {
    const apiary::gang_record* gang = state.find(r.job);
    put(gang == nullptr ? 8U
                        : (gang->state == apiary::gang_state::preempting ? 2U : 0U) +
                              (gang->downgraded ? 1U : 0U) + (gang->levels_known ? 0U : 4U));
    if (gang == nullptr) continue;
    put(gang->cluster.value, static_cast<std::uint32_t>(gang->request.groups.size()));
    for (const apiary::task_group& m : gang->request.groups) put(m.tasks, m.gpus);
    for (const apiary::chain_leaf& l : gang->leaves) put(l.chain, l.leaf.value);
    for (const apiary::gang_record::missing_leaf& m : gang->missing)
      put(m.index, m.device, static_cast<std::uint32_t>(m.node.back()));
    for (const apiary::job_id by : gang->downgraded_victims) put(by.value);
    put(job(gang->ends_for), static_cast<std::uint32_t>(gang->lost_levels.size()));
    for (const apiary::level_t l : gang->lost_levels) put(l);
  }
  for (std::uint32_t c = 0; c < state.cells().num_chains(); ++c) {
    const apiary::detail::physical_chain& chain = state.cells().chain(c);
    for (const apiary::cell_id leaf : chain.tree().cells(0)) {
      const apiary::detail::leaf_holders h = chain.holders(leaf);
      put(job(h.user), job(h.claimer),
          (h.guaranteed ? 1U : 0U) + (chain.healthy().healthy(leaf) ? 2U : 0U));
    }
    for (std::uint32_t p = 0; p < chain.tree().num_cells(); ++p) {
      const apiary::detail::virtual_cell owner = chain.owner(apiary::cell_id(p));
      put(owner.cluster.value, owner.cell.value);
    }
  }
}

// Of a node, or of one leaf of it.
[[nodiscard]] inline bool is_healthy(const apiary::hived& state, apiary::node_id node,
                                     std::optional<std::uint32_t> position) {
  const apiary::detail::physical_chain& chain =
      state.cells().chain(state.layout().chain_of(node).value);
  const apiary::cell_id cell = state.layout().node_cell(node);
  if (!position) return chain.healthy().healthy(cell);
  return chain.healthy().healthy(chain.tree().descendants(cell, 0)[*position]);
}

// `fresh` after a restart: bad hardware is marked, and running gangs are recovered, those with cells
// of their tenant first, with or without the levels of their whole cells. With levels each of these
// gangs gets its cells again.
[[nodiscard]] inline apiary::hived restarted(const apiary::hived& old, apiary::hived fresh,
                                             bool with_levels) {
  const apiary::hived_layout& layout = old.layout();
  for (std::uint32_t n = 0; n < layout.num_nodes(); ++n) {
    const apiary::node_id node(n);
    const std::uint32_t size = old.cells().chain(layout.chain_of(node).value).node_leaves();
    for (std::uint32_t p = 0; p < size; ++p)
      if (!is_healthy(old, node, p)) REQUIRE(fresh.mark_bad(node, p).ok());
  }
  for (const bool own : {true, false}) {
    for (const apiary::gang_slot s : old.gangs().by_job()) {
      const apiary::gang_record& gang = old.gangs()[s];
      const bool there =
          gang.state == apiary::gang_state::allocated && gang.count_live(0, gang.leaves.size()) > 0;
      if (!there || gang.guaranteed() != own) continue;
      std::vector<apiary::level_t> levels;
      if (with_levels) levels = apiary::hived_queries::whole_cell_levels(old, gang);
      const auto has_cells = fresh.recover(gang.request, old.tasks(gang), levels);
      if (!has_cells.ok()) REQUIRE(has_cells.ok());
      if (own && with_levels && !*has_cells) REQUIRE(*has_cells);
    }
  }
  return fresh;
}

}  // namespace apiary_test
