// apiary/hived/detail/hived_topology_fit.h - places gangs under topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/leaf_view.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/model/request.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Places gangs under topology constraints exactly (topology_fit), on the nodes of a leaf_view, and
// searches victims for them (topology_victim_search). The nodes of a tenant lie in the tenant's
// cells (tree_of). Requires: no spread depends on bindings (spread_over_whole_cells).
// Cost: O(nodes of the cluster or chain), capacity_index::set for each node that has changed since
//       the last search there, and topology_fit. The first search of a cluster or chain costs
//       O(cells) more.
class hived_topology_fit : public constrained_search {
 public:
  [[nodiscard]] std::string fault(const gang_request& request, level_t node_level,
                                  level_t num_levels) const override {
    return constraints_of(request).fault(node_level, num_levels);
  }
  fit_verdict fit(const leaf_view& view, const gang_request& request) override {
    if (known_.size() <= view.key()) known_.resize(view.key() + 1);
    std::optional<capacities_type>& capacities = known_[view.key()];
    if (!capacities)
      capacities.emplace(view.guaranteed() ? tree_of(view.cluster()) : tree_of(view.chain()),
                         view.chain().node_level(), view.chain().node_leaves());
    for (std::uint32_t n = 0; n < capacities->num_nodes(); ++n) capacities->set(n, view.count(n));
    return decide(*capacities, request);
  }
  victim_set victims(std::span<const eviction_candidate> candidates,
                     std::span<const gpus_on_node> allocations) override {
    return victims_(*capacities_, gang_, candidates, allocations);
  }
  [[nodiscard]] std::uint64_t steps() const noexcept override { return steps_; }
  [[nodiscard]] std::span<const std::uint32_t> nodes() const noexcept override { return nodes_; }
  const lean_vector<cell_id>& choose_gpus_of(std::span<const node_gpus> nodes,
                                             std::span<const task_group> groups) override {
    tasks_.begin(groups);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      portions_.clear();
      for (std::size_t p = first_[i]; p < first_[i + 1]; ++p)
        portions_.push_back({by_node_[p].group, by_node_[p].tasks});
      tasks_.take(nodes[i], portions_, groups);
    }
    return tasks_.gpus();
  }

  // Cost: topology_fit and O(cells of the tenant, or of the chain).
  bool may_fit(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
               const refused_chain& at) override {
    return refusing_(capacities_in(cells, gangs, request, at), constraints_of(request)).verdict !=
           fit_verdict::does_not_fit;
  }
  // Cost: topology_fit and O(cells * leaves of a node).
  std::optional<infeasibility_proof> prove(const hived_cells& cells, const gang_table& gangs,
                                           const gang_request& request,
                                           const refused_chain& at) override {
    const topology_constraints gang = constraints_of(request);
    const capacities_type index = capacities_in(cells, gangs, request, at);
    if (refusing_(index, gang).verdict != fit_verdict::does_not_fit) return std::nullopt;
    return refusing_.explain(index, gang);
  }

 private:
  using capacities_type = capacity_index<ragged_tree>;
  // The cells of the chain or the tenant, with the leaves of each node that count.
  [[nodiscard]] static capacities_type capacities_in(const hived_cells& cells,
                                                     const gang_table& gangs,
                                                     const gang_request& request,
                                                     const refused_chain& at) {
    const gang_capacity capacities = capacity_of(cells, gangs, request, at);
    capacities_type index(capacities.tree, capacities.node_level,
                          cells.chain(at.chain).node_leaves());
    for (std::uint32_t n = 0; n < capacities.free.size(); ++n) index.set(n, capacities.free[n]);
    return index;
  }
  fit_verdict decide(capacities_type& capacities, const gang_request& request) {
    capacities_ = &capacities;
    gang_ = constraints_of(request);
    const topology_fit<ragged_tree>::result found = fit_(capacities, gang_);
    steps_ = found.steps;
    nodes_.clear();
    first_.clear();
    if (found.verdict != fit_verdict::fits) return found.verdict;
    by_node_.assign(found.portions);
    merge_sort(by_node_,
               [](const tasks_on_node& a, const tasks_on_node& b) { return a.node < b.node; });
    for (std::size_t p = 0; p < by_node_.size(); ++p) {
      if (p > 0 && by_node_[p].node == by_node_[p - 1].node) continue;
      const std::uint32_t n = by_node_[p].node;
      nodes_.push_back(n);
      first_.push_back(p);
    }
    first_.push_back(by_node_.size());
    return found.verdict;
  }
  topology_fit<ragged_tree> fit_;
  topology_fit<ragged_tree> refusing_;  // of may_fit and prove
  topology_victim_search<ragged_tree> victims_;
  std::uint64_t steps_ = 0;
  topology_constraints gang_;
  std::vector<std::optional<capacities_type>> known_;  // by leaf_view::key(), if it was searched
  capacities_type* capacities_ = nullptr;
  std::vector<std::uint32_t> nodes_;
  lean_vector<tasks_on_node> by_node_;
  std::vector<std::size_t> first_;  // for each node used its first portion; and the end
  std::vector<gang_fit::portion> portions_;
  gpus_of_tasks tasks_;
};

}  // namespace detail
APIARY_NAMESPACE_END
