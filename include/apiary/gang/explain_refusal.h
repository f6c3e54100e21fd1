// apiary/gang/explain_refusal.h - builds the proof that a gang does not fit, with few reasons.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/detail/capacity_count.h>
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

// Weighings that count the tasks of each group, then slots of each size, the largest first.
template <CellTree Tree>
[[nodiscard]] std::vector<weighed_cells> weigh_cells(const capacity_index<Tree>& capacities,
                                                     const colocated_groups& groups,
                                                     std::span<const resources> hosts, level_t l) {
  std::vector<weighed_cells> all;
  detail::capacity_count<Tree> count(capacities, groups, hosts);
  const auto weigh = [&](const std::vector<std::uint32_t>& weights) {
    infeasibility_proof::weighing what{weights, 0};
    for (std::size_t u = 0; u < groups.size(); ++u)
      what.needed += std::uint64_t{weights[u]} * groups[u].tasks;
    all.push_back({std::move(what), count.borne(weights, l)});
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
  return all;
}

// Chooses, again and again, the weighing that refuses most of the remaining cells. Cells that no
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

}  // namespace detail

// Proves with few reasons that a gang fits no cell of level l. A search calls it; callers usually
// use topology_fit::explain.
//
// Requires: `listed` contains every cell that no weighing refuses, in any order.
// Cost:     O(nodes * groups * GPUs of a node) and O(cells * (groups + GPUs of a node)^2).
template <CellTree Tree>
[[nodiscard]] infeasibility_proof explain_refusal(
    const capacity_index<Tree>& capacities, const colocated_groups& groups,
    std::span<const resources> hosts, level_t l,
    std::span<const infeasibility_proof::refusal> listed) {
  return detail::fewest_reasons(l, capacities.num_cells(l), groups,
                                detail::weigh_cells(capacities, groups, hosts, l), listed);
}

// Proves that a gang without constraints does not fit the whole cluster, from the number of nodes
// with 0, 1, ... free GPUs. It uses the first weighing that refuses: tasks of one group before
// slots, large slots before small ones. The proof has no cells if no weighing refuses; then the
// proof would need a list of what the cluster can hold.
//
// Requires: groups without constraints, CPU and memory; `top` is the level above the roots.
// Cost:     O(GPUs of a task * groups * GPUs of a node * tasks on a node).
[[nodiscard]] inline infeasibility_proof explain_refusal(std::span<const std::uint32_t> nodes,
                                                         const colocated_groups& groups,
                                                         level_t top) {
  infeasibility_proof why;
  why.level = top;
  for (std::size_t u = 0; u < groups.size(); ++u) why.groups.push_back(groups[u].first_group);
  const std::size_t kinds = groups.size();
  std::uint32_t largest = 0;
  for (std::size_t u = 0; u < kinds; ++u) largest = (std::max)(largest, groups[u].gpus);
  std::vector<std::uint64_t> best;  // on a node with 0, 1, ... free GPUs
  infeasibility_proof::weighing what;
  for (std::size_t i = 0; i < kinds + (kinds > 1 ? largest : 0); ++i) {
    what = {std::vector<std::uint32_t>(kinds, 0), 0};
    best.assign(nodes.size(), 0);
    for (std::size_t u = 0; u < kinds; ++u) {
      const auto piece = static_cast<std::uint32_t>(largest + kinds - i);
      const std::uint32_t weight = i >= kinds ? groups[u].gpus / piece : u == i ? 1 : 0;
      what.weights[u] = weight;
      what.needed += std::uint64_t{weight} * groups[u].tasks;
      if (weight == 0) continue;
      const std::size_t leaves = groups[u].gpus;
      for (std::size_t f = best.size(); f-- > leaves;) {
        for (std::size_t n = 1; n <= groups[u].tasks && n * leaves <= f; ++n)
          best[f] = (std::max)(best[f], best[f - n * leaves] + n * weight);
      }
    }
    std::uint64_t most = 0;
    for (std::size_t f = 0; f < nodes.size(); ++f) most += nodes[f] * best[f];
    if (most >= what.needed) continue;
    why.weighings.push_back(std::move(what));
    why.cells.push_back({0, 0, most, {}});
    break;
  }
  return why;
}

APIARY_NAMESPACE_END
