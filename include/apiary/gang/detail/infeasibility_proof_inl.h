// apiary/gang/detail/infeasibility_proof_inl.h - bodies of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/pareto_search.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE infeasibility_proof
infeasibility_proof::of_nodes(std::span<const std::uint32_t> nodes,
                              std::span<const task_group> groups, level_t node_level, level_t top) {
  infeasibility_proof why;
  why.level = top;
  why.node_level = node_level;
  why.node_gpus = nodes.empty() ? 0 : static_cast<std::uint32_t>(nodes.size() - 1);
  detail::lean_vector<detail::node_knapsack::task_size> sizes;
  std::uint32_t largest = 0;
  for (std::uint32_t m = 0; m < groups.size(); ++m) {
    if (groups[m].tasks == 0) continue;
    std::size_t u = 0;
    while (u < sizes.size() && sizes[u].gpus != groups[m].gpus) ++u;
    if (u == sizes.size()) {
      sizes.push_back({.gpus = groups[m].gpus, .tasks = 0});
      why.groups.push_back(m);
      why.tasks.push_back(0);
    }
    sizes[u].tasks += groups[m].tasks;
    why.tasks[u] = sizes[u].tasks;
    largest = (std::max)(largest, groups[m].gpus);
  }
  const std::size_t width = sizes.size();
  if (width == 0) return why;
  detail::node_knapsack knapsack;
  std::vector<std::uint32_t> weights(width, 0);  // of a task of each size
  detail::lean_vector<std::int64_t> by_size;     // the same
  // Whether the gang weighs more than the nodes hold; the proof then.
  const auto refuse = [&] {
    std::uint64_t needed = 0;
    for (std::size_t u = 0; u < width; ++u) needed += std::uint64_t{weights[u]} * sizes[u].tasks;
    by_size.clear();
    for (const std::uint32_t weight : weights) by_size.push_back(weight);
    knapsack.assign(sizes, by_size, why.node_gpus);
    std::uint64_t most = 0;
    for (std::size_t f = 0; f < nodes.size(); ++f)
      most += nodes[f] * static_cast<std::uint64_t>(knapsack.best()[f]);
    if (most >= needed) return false;
    why.weighings.push_back({weights, needed});
    why.cells.push_back({0, 0, most, {}});
    return true;
  };
  for (std::size_t u = 0; u < width; ++u) {
    weights.assign(width, 0);
    weights[u] = 1;
    if (refuse()) return why;
  }
  for (std::uint32_t i = 0; width > 1 && i < largest; ++i) {
    for (std::size_t u = 0; u < width; ++u)
      weights[u] = sizes[u].gpus / (i == 0 ? 1 : largest + 1 - i);
    if (refuse()) return why;
  }
  detail::weight_search search;
  detail::step_budget steps(100'000);
  if (search(sizes, nodes, steps) == fit_verdict::does_not_fit) {
    weights.assign(search.weights().begin(), search.weights().end());
    APIARY_VERIFY(refuse());
    return why;
  }
  // The largest combinations of tasks, from a cluster of such nodes; more than tasks add nothing.
  topology_constraints gang;
  std::uint32_t tasks = 0;
  for (std::size_t u = 0; u < width; ++u) {
    gang.groups.push_back({.tasks = why.tasks[u], .gpus = sizes[u].gpus});
    tasks += why.tasks[u];
  }
  std::vector<std::uint32_t> free;
  for (std::uint32_t f = 1; f < nodes.size(); ++f)
    free.insert(free.end(), (std::min)(nodes[f], tasks), f);
  capacity_index<uniform_tree> index(
      uniform_tree{static_cast<std::uint32_t>(free.size()), why.node_gpus}, 1, why.node_gpus);
  for (std::uint32_t n = 0; n < free.size(); ++n) index.set(n, free[n]);
  colocated_groups merged;
  merged.assign(gang, 1, index.top());
  detail::pareto_search<uniform_tree> held;
  held.begin(index, merged, {});
  if (held.make(index.top(), 0, 1'000'000) && !held.holds_gang())
    why.cells.push_back({0, listed, 0, held.front().values()});
  return why;
}

APIARY_NAMESPACE_END
