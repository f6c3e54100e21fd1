// apiary/gang/detail/infeasibility_proof_inl.h - bodies of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/node_knapsack.h>
#include <apiary/gang/detail/step_budget.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {

APIARY_INLINE task_needs needs_of(const topology_constraints& gang, std::uint32_t group) {
  task_needs all;
  for (const constrained_task_group& m : gang.groups) {
    if (&m != &gang.groups[group] && !(m.on_node_of_leader() && m.leader == group)) continue;
    const std::uint64_t each = m.tasks / gang.groups[group].tasks;
    all.gpus += m.gpus * each;
    all.milli += m.gpus * each * (m.shared() > 0 ? m.shared() : whole_gpu);
    all.cpu_milli += m.host.cpu_milli * each;
    all.memory_mib += m.host.memory_mib * each;
  }
  return all;
}

}  // namespace detail

APIARY_INLINE infeasibility_proof::reason infeasibility_proof::main_reason() const {
  std::vector<reason> reasons(weighings.size() + 1);
  for (const refusal& r : cells) {
    const bool by_list = r.weighing == listed;
    reason& at = reasons[by_list ? weighings.size() : r.weighing];
    const std::uint64_t missing = by_list ? 0 : weighings[r.weighing].needed - r.most;
    if (at.cells++ > 0 && missing >= at.missing) continue;
    at.weighing = r.weighing;
    at.best = r.cell;
    at.missing = missing;
  }
  reason first = reasons[0];
  for (const reason& s : reasons)
    if (s.cells > first.cells) first = s;
  return first;
}

APIARY_INLINE infeasibility_proof
infeasibility_proof::of_nodes(std::span<const std::uint32_t> nodes, const colocated_groups& groups,
                              level_t node_level, level_t top) {
  infeasibility_proof why;
  why.level = top;
  why.node_level = node_level;
  why.node_gpus = nodes.empty() ? 0 : static_cast<std::uint32_t>(nodes.size() - 1);
  for (std::size_t u = 0; u < groups.size(); ++u) {
    why.groups.push_back(groups[u].first_group);
    why.tasks.push_back(groups[u].tasks);
  }
  const std::size_t width = groups.size();
  std::uint32_t largest = 0;
  for (std::size_t u = 0; u < width; ++u) largest = (std::max)(largest, groups[u].gpus);
  std::vector<std::uint64_t> best;  // on a node with 0, 1, ... free GPUs
  weighing what;
  for (std::size_t i = 0; i < width + (width > 1 ? largest : 0); ++i) {
    what = {std::vector<std::uint32_t>(width, 0), 0};
    best.assign(nodes.size(), 0);
    for (std::size_t u = 0; u < width; ++u) {
      const auto slot = static_cast<std::uint32_t>(i <= width ? 1 : largest + 1 + width - i);
      const std::uint32_t weight = i >= width ? groups[u].gpus / slot : u == i ? 1 : 0;
      what.weights[u] = weight;
      what.needed += std::uint64_t{weight} * groups[u].tasks;
      if (weight == 0) continue;
      const std::size_t gpus = groups[u].gpus;
      for (std::size_t f = best.size(); f-- > gpus;) {
        for (std::size_t n = 1; n <= groups[u].tasks && n * gpus <= f; ++n)
          best[f] = (std::max)(best[f], best[f - n * gpus] + n * weight);
      }
    }
    std::uint64_t most = 0;
    for (std::size_t f = 0; f < nodes.size(); ++f) most += nodes[f] * best[f];
    if (most >= what.needed) continue;
    why.weighings.push_back(std::move(what));
    why.cells.push_back({0, 0, most, {}});
    return why;
  }
  std::vector<detail::node_knapsack::task_size> sizes;
  for (std::size_t u = 0; u < width; ++u)
    sizes.push_back({.gpus = groups[u].gpus, .tasks = groups[u].tasks});
  detail::weight_search search;
  detail::step_budget steps(100'000);
  if (search(sizes, nodes, steps) != fit_verdict::does_not_fit) return why;
  what = {{search.weights().begin(), search.weights().end()}, 0};
  const std::vector<std::int64_t> weights(search.weights().begin(), search.weights().end());
  for (std::size_t u = 0; u < width; ++u)
    what.needed += std::uint64_t{what.weights[u]} * sizes[u].tasks;
  detail::node_knapsack knapsack;
  knapsack.assign(sizes, weights, nodes.size() - 1);
  std::uint64_t most = 0;
  for (std::size_t f = 0; f < nodes.size(); ++f)
    most += nodes[f] * static_cast<std::uint64_t>(knapsack.best()[f]);
  why.weighings.push_back(std::move(what));
  why.cells.push_back({0, 0, most, {}});
  return why;
}

APIARY_NAMESPACE_END
