// apiary/hived/detail/topology_fit.h - places gangs under topology constraints.
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
#include <apiary/hived/detail/capacity_trees.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/gang_placer.h>
#include <apiary/hived/detail/leaf_view.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Binds the unbound whole cells on which a spread depends, of each level at most as many as the
// gang has tasks: each to a usable cell whose enclosing cell at the level of the lowest spread
// above has the fewest available leaves of the tenant; ties go to the fewest
// opportunistic leaves, then to the first cell. For a search, which rolls it back.
// Cost: O(cells of the level * levels) for each whole cell, O(cells of the chain), tree_as_bound.
inline void bind_apart(hived_cells& cells, vc_chain_id c, const gang_request& request,
                       const health<uniform_tree>& usable) {
  const virtual_cluster& cluster = cells.cluster(c);
  const physical_chain& chain = cells.chain(cluster.chain());
  const uniform_tree& tree = chain.tree();
  const leaf_view view(cells, c, &usable);
  std::vector<std::uint32_t> has(tree.num_cells(), 0);  // available leaves in each cell
  const auto add = [&](cell_id p, level_t l, std::uint32_t leaves) {
    for (; p.valid(); p = tree.parent(p, l++)) has[p.value] += leaves;
  };
  for (const bound_tree::node& n : tree_as_bound(cluster, chain).nodes) {
    if (!n.at.valid()) continue;
    add(tree.ancestor(n.at, n.whole), n.whole, view.count(n.number));
  }
  std::uint64_t tasks = 0;
  for (const task_group& m : request.groups) tasks += m.tasks;
  for (level_t l = tree.num_levels(); l-- > 0;) {
    const level_t over = spread_above(*request.constraints, l);
    if (over == any_level) continue;
    cells.bind_some(c, l, tasks, [&] {
      cell_id best;
      std::pair<std::uint32_t, std::uint32_t> least{};
      for (const cell_id p : tree.cells(l)) {
        if (!usable.healthy(p) || !chain.cells().can_allocate_at(p)) continue;
        const std::pair cost(has[tree.ancestor(p, over).value], chain.opportunistic_leaves(p));
        if (best.valid() && cost >= least) continue;
        best = p;
        least = cost;
      }
      if (best.valid()) add(best, l, tree.leaves_per_cell(l));
      return best;
    });
  }
}
// Places gangs under topology constraints exactly (topology_fit), on the nodes of a leaf_view, and
// searches victims for them (topology_victim_search). The
// nodes of a tenant lie in the tenant's cells (tree_of) or, if a spread depends on bindings, where
// they are bound (tree_as_bound). Then an unbound node in a whole cell below the level of a spread
// is not used, and of several nodes on one physical node only one under a spread over nodes.
// Cost: O(nodes of the cluster or chain), capacity_index::set for each node that has changed since
//       the last search there, and topology_fit. The first search of a cluster or chain, and every
//       search as bound, costs O(cells) more.
class hived_topology_fit : public constrained_search {
 public:
  [[nodiscard]] std::string fault(const gang_request& request, level_t node_level,
                                  level_t num_levels) const override {
    return constraints_of(request).fault(node_level, num_levels);
  }
  void bind_apart(hived_cells& cells, vc_chain_id c, const gang_request& request,
                  const health<uniform_tree>& usable) const override {
    detail::bind_apart(cells, c, request, usable);
  }
  fit_verdict fit(const leaf_view& view, const gang_request& request) override {
    order_.clear();
    unused_.clear();
    if (known_.size() <= view.key()) known_.resize(view.key() + 1);
    std::optional<capacities_type>& capacities = known_[view.key()];
    if (!capacities)
      capacities.emplace(view.guaranteed() ? tree_of(view.cluster()) : tree_of(view.chain()),
                         view.chain().node_level(), view.chain().node_leaves());
    for (std::uint32_t n = 0; n < capacities->num_nodes(); ++n) capacities->set(n, view.count(n));
    return decide(*capacities, request);
  }
  fit_verdict as_bound(const leaf_view& view, const gang_request& request) override {
    set_capacities_as_bound(view, request, {});
    return decide(*bound_, request);
  }
  // Sets capacities() to the nodes as they are bound: for as_bound, and before victims are
  // searched. Of several nodes on one physical node the one with the largest
  // after_preemption[n] counts (its leaves once all possible victims have ended), then the
  // one with the most available leaves.
  void set_capacities_as_bound(const leaf_view& view, const gang_request& request,
                               std::span<const std::uint32_t> after_preemption) override {
    const physical_chain& chain = view.chain();
    const bound_tree tree = tree_as_bound(view.cluster(), chain);
    bound_.emplace(tree.tree, chain.node_level(), chain.node_leaves());
    order_.clear();
    unused_.assign(tree.nodes.size(), false);
    std::uint32_t best = 0;  // of the nodes on one physical node, the one that counts
    cell_id last;            // that physical node
    for (std::uint32_t n = 0; n < tree.nodes.size(); ++n) {
      const bound_tree::node& at = tree.nodes[n];
      order_.push_back(at.number);
      const level_t over = spread_above(*request.constraints, at.whole);
      unused_[n] = over != any_level && !at.at.valid();
      if (unused_[n]) continue;
      bound_->set(n, view.count(at.number));
      if (over != chain.node_level()) continue;
      const cell_id node = chain.tree().ancestor(at.at, over);
      if (node != last) {
        best = n;
        last = node;
        continue;
      }
      const auto rank = [&](std::uint32_t i) {
        const std::uint32_t number = order_[i];
        return std::pair(after_preemption.empty() ? view.count(number) : after_preemption[number],
                         bound_->free(i));
      };
      const std::uint32_t other = rank(n) > rank(best) ? std::exchange(best, n) : n;
      bound_->set(other, 0);
      unused_[other] = true;
    }
  }
  [[nodiscard]] lean_vector<std::uint32_t> positions_of_nodes() const override {
    lean_vector<std::uint32_t> places(capacities_->num_nodes(), unused_node);
    for (std::uint32_t i = 0; i < places.size(); ++i)
      if (unused_.empty() || !unused_[i]) places[order_.empty() ? i : order_[i]] = i;
    return places;
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

  // If bindings matter, physical cells may satisfy slices, too. Cost: also O(cells of the tenant, or
  // of the chain).
  bool may_fit(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
               const refused_chain& at) override {
    topology_constraints gang = constraints_of(request);
    if (at.cluster.valid() &&
        is_spread_over_whole_cells(cells.cluster(at.cluster), *request.constraints)) {
      for (constrained_task_group& m : gang.groups) m.slices.clear();
    }
    return refusing_(capacities_in(cells, gangs, request, at), gang).verdict !=
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
    by_node_.assign(found.portions.begin(), found.portions.end());
    merge_sort(by_node_,
               [](const tasks_on_node& a, const tasks_on_node& b) { return a.node < b.node; });
    for (std::size_t p = 0; p < by_node_.size(); ++p) {
      if (p > 0 && by_node_[p].node == by_node_[p - 1].node) continue;
      const std::uint32_t n = by_node_[p].node;
      nodes_.push_back(order_.empty() ? n : order_[n]);
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
  std::optional<capacities_type> bound_;
  capacities_type* capacities_ = nullptr;
  std::vector<std::uint32_t> order_;  // for each node of the capacities its number; empty: the same
  std::vector<bool> unused_;          // for each of them, whether it is not used; empty: all are
  std::vector<std::uint32_t> nodes_;
  std::vector<tasks_on_node> by_node_;
  std::vector<std::size_t> first_;  // for each node used its first portion; and the end
  std::vector<gang_fit::portion> portions_;
  gpus_of_tasks tasks_;
};

}  // namespace detail
APIARY_NAMESPACE_END
