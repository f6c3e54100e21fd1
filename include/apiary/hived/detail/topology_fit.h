// apiary/hived/detail/topology_fit.h - where a gang under rules goes in a tenant's cells, or in a chain.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/gang_placer.h>
#include <apiary/gang/gang_portion.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The lowest level above l for which the rules have a spread; any_level: there is none.
[[nodiscard]] inline level_t spread_above(const request_constraints& rules, level_t l) noexcept {
  level_t lowest = any_level;
  for (const group_constraints& m : rules.members)
    for (const level_count& s : m.spread)
      if (s.level > l) lowest = (std::min)(lowest, s.level);
  return lowest;
}
// Whether it matters for a spread where a tenant's whole cells are bound: it has several below the
// level of one, and these may lie in one physical cell of that level.
[[nodiscard]] inline bool is_spread_over_whole_cells(const virtual_cluster& cluster,
                                                     const request_constraints& rules) noexcept {
  if (rules.required != any_level) return false;  // all is in one whole cell, wherever it is bound
  std::uint32_t below = 0;
  for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
    below += cluster.tree().roots(l).size();
    if (below > 1) return spread_above(rules, l) != any_level;
  }
  return false;
}
// Binds unbound whole cells for which that matters, as many of each level as the gang has tasks: each
// to a usable one in the cell of the level of the lowest spread above it where the tenant has fewest
// leaves that can be had, of such to one with fewest guests, of such to the first. For searching.
// Cost: O(cells of the level * levels) for each, O(cells of the chain), and tree_as_bound.
inline void bind_apart(hived_cells& cells, vc_chain_id c, const gang_request& request,
                       const health<uniform_tree>& usable) {
  const virtual_cluster& cluster = cells.cluster(c);
  const physical_chain& chain = cells.chain(cluster.chain());
  const uniform_tree& tree = chain.tree();
  std::vector<std::uint32_t> has(tree.num_cells(), 0);  // leaves to be had in each cell
  const auto add = [&](cell_id p, level_t l, std::uint32_t leaves) {
    for (; p.valid(); p = tree.parent(p, l++)) has[p.value] += leaves;
  };
  for (const bound_tree::node& n : tree_as_bound(cluster, chain).nodes) {
    if (!n.at.valid()) continue;
    add(tree.ancestor(n.at, n.whole), n.whole,
        static_cast<std::uint32_t>(std::popcount(usable_leaves(cluster, n.number, &usable))));
  }
  std::uint64_t tasks = 0;
  for (const task_group& m : request.members) tasks += m.tasks;
  for (level_t l = tree.num_levels(); l-- > 0;) {
    const level_t over = spread_above(request.rules, l);
    if (over == any_level) continue;
    cells.bind_some(c, l, tasks, [&] {
      cell_id best;
      std::pair<std::uint32_t, std::uint32_t> least{};
      for (const cell_id p : tree.cells(l)) {
        if (!usable.healthy(p) || !chain.cells().can_allocate_at(p)) continue;
        const std::pair cost(has[tree.ancestor(p, over).value], chain.guests(p));
        if (best.valid() && cost >= least) continue;
        best = p;
        least = cost;
      }
      if (best.valid()) add(best, l, tree.leaves_per_cell(l));
      return best;
    });
  }
}

// Places gangs under rules on nodes with so many leaves to be had: exact (topology_fit).
//
// A tenant's nodes stand in its own cells, as in a cluster of its own (tree_of); those of a chain in
// the cells of the chain. Where a spread depends on where whole cells are bound, nodes stand as these
// are bound (tree_as_bound): those not bound are then not used, and under a spread over nodes one of
// several that share a physical node.
//
// Keeps a capacity_index for each cluster and chain asked about, brought up to date at each question.
// Cost: O(nodes of the cluster or chain), as capacity_index::set for each node that has changed, and
//       topology_fit; the first question about each, and every one as bound, O(cells) more.
class hived_topology_fit {
 public:
  using room = capacity_index<ragged_tree>;
  static constexpr std::uint32_t no_place = ~std::uint32_t{0};

  // Over a tenant's cells; free(n): the leaves of node n of its cluster that can be had.
  template <class Free>
  fit_verdict in_cluster(const hived_cells& cells, vc_chain_id c, const gang_request& request,
                         const Free& free) {
    const virtual_cluster& cluster = cells.cluster(c);
    order_.clear();
    barred_.clear();
    if (clusters_.size() <= c.value) clusters_.resize(c.value + 1);
    std::optional<room>& capacities = clusters_[c.value];
    if (!capacities)
      capacities.emplace(tree_of(cluster), cluster.node_level(),
                         cells.chain(cluster.chain()).node_leaves());
    for (std::uint32_t n = 0; n < capacities->num_nodes(); ++n) capacities->set(n, free(n));
    return decide(*capacities, request);
  }
  // The same as its whole cells are bound now; does_not_fit is then said of these bindings alone.
  template <class Free>
  fit_verdict as_bound(const hived_cells& cells, vc_chain_id c, const gang_request& request,
                       const Free& free) {
    stand_as_bound(cells, c, request, free, free);
    return decide(*bound_, request);
  }
  // After as_bound said no, before victims are sought on the rooms: of several nodes on one
  // physical node the one counts of which most could be had once all who may have to go are gone,
  // could(n); of such the one with most to be had now.
  template <class Free, class Could>
  void stand_as_bound(const hived_cells& cells, vc_chain_id c, const gang_request& request,
                      const Free& free, const Could& could) {
    const virtual_cluster& cluster = cells.cluster(c);
    const physical_chain& chain = cells.chain(cluster.chain());
    const bound_tree tree = tree_as_bound(cluster, chain);
    bound_.emplace(tree.tree, chain.node_level(), chain.node_leaves());
    order_.clear();
    barred_.assign(tree.nodes.size(), false);
    std::uint32_t best = 0;  // of the nodes on one physical node
    cell_id last;            // that physical node
    for (std::uint32_t n = 0; n < tree.nodes.size(); ++n) {
      const bound_tree::node& at = tree.nodes[n];
      order_.push_back(at.number);
      const level_t over = spread_above(request.rules, at.whole);
      barred_[n] = over != any_level && !at.at.valid();
      if (barred_[n]) continue;
      bound_->set(n, free(at.number));
      if (over != chain.node_level()) continue;
      const cell_id node = chain.tree().ancestor(at.at, over);
      if (node != last) {
        best = n;
        last = node;
        continue;
      }
      const auto rank = [&](std::uint32_t i) {
        return std::pair(could(order_[i]), bound_->free(i));
      };
      const std::uint32_t other = rank(n) > rank(best) ? std::exchange(best, n) : n;
      bound_->set(other, 0);
      barred_[other] = true;
    }
  }
  // Over a chain, for opportunistic gangs.
  template <class Free>
  fit_verdict in_chain(const physical_chain& chain, std::uint32_t c, const gang_request& request,
                       const Free& free) {
    order_.clear();
    barred_.clear();
    if (chains_.size() <= c) chains_.resize(c + 1);
    std::optional<room>& capacities = chains_[c];
    if (!capacities) capacities.emplace(tree_of(chain), chain.node_level(), chain.node_leaves());
    for (std::uint32_t n = 0; n < capacities->num_nodes(); ++n) capacities->set(n, free(n));
    return decide(*capacities, request);
  }

  // Of the last question: the rooms, for trying, the gang, and the place of each node of the cluster
  // among those of the rooms; no_place: it is not used.
  [[nodiscard]] room& capacities() noexcept { return *capacities_; }
  [[nodiscard]] const topology_constraints& gang() const noexcept { return gang_; }
  [[nodiscard]] std::vector<std::uint32_t> places_of_nodes() const {
    std::vector<std::uint32_t> places(capacities_->num_nodes(), no_place);
    for (std::uint32_t i = 0; i < places.size(); ++i)
      if (barred_.empty() || !barred_[i]) places[order_.empty() ? i : order_[i]] = i;
    return places;
  }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  // After `fits`: the nodes used, as numbered in the cluster or chain.
  [[nodiscard]] std::span<const std::uint32_t> nodes() const noexcept { return nodes_; }
  // Leaves of these nodes, one entry each; in the order of the members, each member's tasks one after
  // another, so that slices are consecutive tasks.
  const std::vector<cell_id>& choose_leaves_of(std::span<const node_leaves> nodes,
                                               std::span<const task_group> members) {
    tasks_.begin(members);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      portions_.clear();
      for (std::size_t p = first_[i]; p < first_[i + 1]; ++p)
        portions_.push_back({by_node_[p].member, by_node_[p].tasks});
      tasks_.take(nodes[i], portions_, members);
    }
    return tasks_.leaves();
  }

 private:
  fit_verdict decide(room& capacities, const gang_request& request) {
    capacities_ = &capacities;
    gang_ = constraints_of(request);
    const topology_fit<ragged_tree>::result found = fit_(capacities, gang_);
    steps_ = found.steps;
    nodes_.clear();
    first_.clear();
    if (found.verdict != fit_verdict::fits) return found.verdict;
    by_node_.assign(found.portions.begin(), found.portions.end());
    std::stable_sort(by_node_.begin(), by_node_.end(),
                     [](const gang_portion& a, const gang_portion& b) { return a.node < b.node; });
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
  std::uint64_t steps_ = 0;
  topology_constraints gang_;
  std::vector<std::optional<room>> clusters_;  // of each cluster, where asked
  std::vector<std::optional<room>> chains_;    // of each chain, where asked
  std::optional<room> bound_;
  room* capacities_ = nullptr;
  std::vector<std::uint32_t> order_;  // of each node of the rooms, which one it is; none: the same
  std::vector<bool> barred_;          // of each, whether it is not used; none: all are
  std::vector<std::uint32_t> nodes_;
  std::vector<gang_portion> by_node_;
  std::vector<std::size_t> first_;  // of each node used, its first portion there, and the end
  std::vector<gang_fit::portion> portions_;
  leaves_of_tasks tasks_;
};

}  // namespace detail
APIARY_NAMESPACE_END
