// apiary/hived/detail/refusal.h - whether and why a waiting gang does not fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds out why a gang waits: whether it would fit if the cluster were empty or repaired, or has
// too few leaves however whole cells are granted; proves that it does not fit.
// Cost: as count_leaves, and gang_fit; more where the functions say so.
class hived_refusal {
 public:
  // Whether the gang may fit, without its topology constraints, on the leaves that count for `at`;
  // false is certain, and shortage() may have a count that proves it.
  bool may_count(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
                 const refused_chain& at) {
    count_nodes(cells, gangs, request, at);
    counts_.clear();
    for (std::uint32_t f = 0; f < nodes_.size(); ++f) counts_.push_back({f, nodes_[f]});
    const gang_fit::result packed = count_fit_(counts_, request.groups);
    shortage_ = packed.shortage;
    return packed.verdict != fit_verdict::does_not_fit;
  }
  [[nodiscard]] const std::optional<gpu_shortage>& shortage() const noexcept { return shortage_; }
  // A proof that a gang does not fit without its topology constraints, from all nodes by their free
  // leaves (infeasibility_proof::of_nodes); nullopt: the budget ended. Requires: it does not fit.
  std::optional<infeasibility_proof> operator()(const hived_cells& cells, const gang_table& gangs,
                                                const gang_request& request,
                                                const refused_chain& at) {
    const physical_chain& chain = cells.chain(at.chain);
    count_nodes(cells, gangs, request, at);
    infeasibility_proof proof = infeasibility_proof::of_nodes(
        nodes_, request.groups, chain.node_level(), chain.tree().num_levels());
    if (proof.cells.empty()) return std::nullopt;
    return proof;
  }
  // A count that the gang exceeds however the unbound whole cells are granted, if there is one.
  // Arguments as in hived_search. Requires: gangs whose cells count as gone have lost them.
  // Cost: O(leaves of the tenant), and grant_ranking for each task size.
  [[nodiscard]] std::optional<gpu_shortage> shortage_for_any_binding(
      hived_cells& cells, const gang_table& gangs, const gang_request& request, vc_chain_id c,
      bool preempting, const health<uniform_tree>& usable) {
    const virtual_cluster& cluster = cells.cluster(c);
    const physical_chain& chain = cells.chain(cluster.chain());
    const auto counts = [&](cell_id leaf) {
      if (!usable.healthy(leaf)) return false;
      const gang_slot holder = chain.holders(leaf).holder();
      return !holder.valid() || (preempting && gangs[holder].request.priority < request.priority);
    };
    free_.clear();  // of each node of a bound whole cell
    for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
      for (const cell_id root : cluster.tree().roots(l)) {
        const cell_id image = cluster.image(root);
        if (!image.valid()) continue;
        for (const cell_id node :
             chain.tree().descendants(image, (std::min)(l, chain.node_level()))) {
          free_.push_back(0);
          for (const cell_id leaf : chain.tree().descendants(node, 0))
            free_.back() += counts(leaf) ? 1U : 0U;
        }
      }
    }
    std::uint64_t sizes = 1;  // bit s-1: count how often s leaves fit on a node
    for (const task_group& m : request.groups) sizes |= std::uint64_t{1} << (m.gpus - 1);
    for (; sizes != 0; sizes &= sizes - 1) {
      const auto task_gpus = static_cast<std::uint32_t>(std::countr_zero(sizes)) + 1;
      gpu_shortage count{task_gpus, 0, cells.max_tasks_in_unbound(c, usable, task_gpus)};
      for (const task_group& m : request.groups)
        count.needed += std::uint64_t{m.tasks} * (m.gpus / task_gpus);
      for (const std::uint32_t f : free_) count.present += f / task_gpus;
      if (count.present < count.needed) return count;
    }
    return std::nullopt;
  }

 private:
  // Counts in nodes_ the nodes with 0, 1, ... leaves that count for `at`.
  void count_nodes(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
                   const refused_chain& at) {
    count_leaves(cells, gangs, request, at, free_);
    nodes_.assign(std::size_t{cells.chain(at.chain).node_leaves()} + 1, 0);
    for (const std::uint32_t f : free_) ++nodes_[f];
  }
  lean_vector<std::uint32_t> free_;           // leaves that count, one entry for each node
  lean_vector<std::uint32_t> nodes_;          // number of nodes with 0, 1, ... such leaves
  lean_vector<gang_fit::node_class> counts_;  // the same as classes
  gang_fit count_fit_;
  std::optional<gpu_shortage> shortage_;  // of may_count
};

}  // namespace detail
APIARY_NAMESPACE_END
