// apiary/gang/detail/refusal_reasons.h - builds the proof that a gang does not fit, with few reasons.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/cell_weighings.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A weighing, and the weight that each cell of a level can hold.
struct weighed_cells {
  infeasibility_proof::weighing what;
  std::vector<std::uint64_t> most;
};

// Weighings that refuse a cell: they count the tasks of each group, then slots of each size, the
// largest first, then come those of the search.
template <CellTree Tree>
[[nodiscard]] std::vector<weighed_cells> weigh_cells(const capacity_index<Tree>& capacities,
                                                     const colocated_groups& groups,
                                                     std::span<const resources> hosts, level_t l,
                                                     const cell_weighings<Tree>& found) {
  std::vector<weighed_cells> all;
  capacity_count<Tree> count(capacities, groups, hosts);
  const auto weigh = [&](const std::vector<std::uint32_t>& weights) {
    infeasibility_proof::weighing what{weights, 0};
    for (std::size_t u = 0; u < groups.size(); ++u)
      what.needed += std::uint64_t{weights[u]} * groups[u].tasks;
    std::vector<std::uint64_t> most = count.max_weights(weights, l);
    const auto refuses = [&](std::uint64_t m) { return m < what.needed; };
    if (std::any_of(most.begin(), most.end(), refuses))
      all.push_back({std::move(what), std::move(most)});
  };
  std::vector<std::uint32_t> weights(groups.size());
  for (std::size_t u = 0; u < groups.size(); ++u) {
    weights.assign(groups.size(), 0);
    weights[u] = 1;
    weigh(weights);
  }
  for (std::uint32_t t = capacities.max_free(); groups.size() > 1 && t > 0; --t) {
    for (std::size_t u = 0; u < groups.size(); ++u) weights[u] = groups[u].gpus / t;
    weigh(weights);
  }
  for (const auto& w : found.all()) weigh(w.weights);
  return all;
}

// Chooses repeatedly the weighing that refuses most of the remaining cells. Cells that no
// weighing refuses get the list of what they can hold, from `listed`. Cost: O(cells * weighings^2).
[[nodiscard]] inline infeasibility_proof fewest_reasons(
    level_t l, std::uint32_t cells, const colocated_groups& groups,
    const std::vector<weighed_cells>& tried, std::span<const infeasibility_proof::refusal> listed) {
  infeasibility_proof why;
  why.level = l;
  why.cells.resize(cells);
  for (std::uint32_t c = 0; c < cells; ++c) why.cells[c].cell = c;
  for (const infeasibility_proof::refusal& r : listed) why.cells[r.cell].counts = r.counts;
  for (std::size_t u = 0; u < groups.size(); ++u) why.groups.push_back(groups[u].first_group);
  const auto refuses = [](const weighed_cells& w, const infeasibility_proof::refusal& r) {
    return r.weighing == infeasibility_proof::listed && w.most[r.cell] < w.what.needed;
  };
  while (true) {
    std::size_t best = 0;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      std::size_t n = 0;
      for (const infeasibility_proof::refusal& r : why.cells)
        if (refuses(tried[i], r)) ++n;
      if (n <= refused) continue;
      refused = n;
      best = i;
    }
    if (refused == 0) break;
    const auto index = static_cast<std::uint32_t>(why.weighings.size());
    for (infeasibility_proof::refusal& r : why.cells)
      if (refuses(tried[best], r)) r = {r.cell, index, tried[best].most[r.cell], {}};
    why.weighings.push_back(tried[best].what);
  }
  for (const infeasibility_proof::refusal& r : why.cells)
    APIARY_VERIFY(r.weighing != infeasibility_proof::listed || !r.counts.empty());
  return why;
}

// Proves with few reasons that a gang fits no cell of level l.
// Requires: `found` has no weighings, or those of the search over the same arguments; `listed`
//           contains every cell that no weighing refuses, in any order.
// Cost:     O(nodes * groups * GPUs of a node) and O(cells * (groups + GPUs of a node)^2).
template <CellTree Tree>
[[nodiscard]] infeasibility_proof explain_refusal(
    const capacity_index<Tree>& capacities, const colocated_groups& groups,
    std::span<const resources> hosts, level_t l, const cell_weighings<Tree>& found,
    std::span<const infeasibility_proof::refusal> listed) {
  return fewest_reasons(l, capacities.num_cells(l), groups,
                        weigh_cells(capacities, groups, hosts, l, found), listed);
}

}  // namespace detail
APIARY_NAMESPACE_END
