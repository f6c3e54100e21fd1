// apiary/gang/detail/infeasibility_proof_inl.h - bodies of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/detail/pareto_search.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {

// The largest combinations of tasks that nodes can hold; `nodes` has the number of nodes with 0, 1,
// ... free GPUs. Combinations with more tasks than the gang has count as those with as many.
class combinations_of_nodes {
 public:
  explicit combinations_of_nodes(std::span<const node_knapsack::task_size> sizes) : sizes_(sizes) {}
  // The front, sorted; nullopt: the budget ended.
  std::optional<pareto_front> operator()(std::span<const std::uint32_t> nodes) {
    pareto_front sum(sizes_.size());
    tasks_.assign(sizes_.size(), 0);
    sum.add(tasks_);
    for (std::size_t f = 1; f < nodes.size(); ++f) {
      pareto_front of_node(sizes_.size());
      if (nodes[f] > 0) list_node(of_node, 0, f);
      for (std::uint32_t n = 0; n < nodes[f]; ++n) {
        pareto_front next = add(sum, of_node);
        if (!steps_.pay(next.size() * sum.size())) return std::nullopt;
        if (sum.covers(next)) break;  // a node more adds nothing
        sum = std::move(next);
      }
    }
    sum.sort();
    return sum;
  }

 private:
  // Adds the combinations of tasks of the sizes from u on that fit on a node with free GPUs.
  void list_node(pareto_front& front, std::size_t u, std::size_t free) {
    if (u == sizes_.size()) {
      if (steps_.pay(front.size() + 1)) front.add(tasks_);
      return;
    }
    const std::size_t most = (std::min<std::size_t>)(sizes_[u].tasks, free / sizes_[u].gpus);
    for (std::size_t n = most + 1; n-- > 0 && !steps_.ended();) {
      tasks_[u] = static_cast<std::uint32_t>(n);
      list_node(front, u + 1, free - n * sizes_[u].gpus);
      if (u + 1 == sizes_.size()) break;  // the others hold less
    }
  }
  // All sums of a combination of each.
  pareto_front add(const pareto_front& a, const pareto_front& b) {
    pareto_front sums(sizes_.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size() && steps_.pay(sums.size() + 1); ++j) {
        for (std::size_t u = 0; u < sizes_.size(); ++u)
          tasks_[u] = a[i][u] + (std::min)(b[j][u], sizes_[u].tasks - a[i][u]);
        sums.add(tasks_);
      }
    }
    return sums;
  }

  std::span<const node_knapsack::task_size> sizes_;
  std::vector<std::uint32_t> tasks_;  // of each size
  step_budget steps_{1'000'000};
};

}  // namespace detail

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
  detail::node_knapsack knapsack;
  std::vector<std::uint32_t> weights(width, 0);  // of a task of each size
  // Whether the gang weighs more than the nodes hold; the proof then.
  const auto refuse = [&] {
    std::uint64_t needed = 0;
    for (std::size_t u = 0; u < width; ++u) needed += std::uint64_t{weights[u]} * sizes[u].tasks;
    knapsack.assign(sizes, std::vector<std::int64_t>(weights.begin(), weights.end()),
                    why.node_gpus);
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
  const auto held = detail::combinations_of_nodes(sizes)(nodes);
  if (held && !held->covers(why.tasks)) why.cells.push_back({0, listed, 0, held->values()});
  return why;
}

APIARY_NAMESPACE_END
