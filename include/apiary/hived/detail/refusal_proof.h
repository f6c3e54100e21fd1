// apiary/hived/detail/refusal_proof.h - proves that a gang does not fit in a chain.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/gang/explain_refusal.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/topology/ragged_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Proves that a gang does not fit in a chain. Without topology constraints it uses one weighing of all
// nodes, found from the number of nodes with 0, 1, ... free leaves (explain_refusal). If no weighing
// refuses the gang, the proof lists everything that fits. Under topology constraints it is the proof of
// topology_fit.
//
// Cost: as count_leaves and explain_refusal; if no weighing refuses the gang, or under topology
//       constraints, topology_fit and O(cells * leaves of a node).
class hived_refusal_proof {
 public:
  // The proof; nullopt: the search for it ended with its budget. Requires: the gang does not fit.
  std::optional<infeasibility_proof> operator()(const hived_cells& cells, const gang_table& gangs,
                                                const gang_request& request,
                                                const refused_chain& at) {
    const topology_constraints gang = constraints_of(request);
    if (!request.constraints.any()) {
      const physical_chain& chain = cells.chain(at.chain);
      const level_t top = chain.tree().num_levels();
      count_leaves(cells, gangs, request, at, free_);
      nodes_.assign(std::size_t{chain.node_leaves()} + 1, 0);
      for (const std::uint32_t f : free_) ++nodes_[f];
      units_.assign(gang, chain.node_level(), top);
      infeasibility_proof weighed = explain_refusal(nodes_, units_, top);
      if (!weighed.cells.empty()) return weighed;
    }
    const capacity_index<ragged_tree> index = rooms_in(cells, gangs, request, at);
    if (fit_(index, gang).verdict != fit_verdict::does_not_fit) return std::nullopt;
    return fit_.explain(index, gang);
  }
  // Whether a gang fits under its topology constraints on the leaves that count for `at`.
  // Cost: O(cells of the tenant, or of the chain), count_leaves and topology_fit.
  [[nodiscard]] fit_verdict fits(const hived_cells& cells, const gang_table& gangs,
                                 const gang_request& request, const refused_chain& at) {
    return fit_(rooms_in(cells, gangs, request, at), constraints_of(request)).verdict;
  }

 private:
  // The cells of the chain or the tenant, with the leaves of each node that count.
  [[nodiscard]] static capacity_index<ragged_tree> rooms_in(const hived_cells& cells,
                                                            const gang_table& gangs,
                                                            const gang_request& request,
                                                            const refused_chain& at) {
    const gang_capacity capacities = capacity_of(cells, gangs, request, at);
    capacity_index<ragged_tree> index(capacities.tree, capacities.node_level,
                                      cells.chain(at.chain).node_leaves());
    for (std::uint32_t n = 0; n < capacities.free.size(); ++n) index.set(n, capacities.free[n]);
    return index;
  }

  std::vector<std::uint32_t> free_;   // leaves that count, one entry for each node
  std::vector<std::uint32_t> nodes_;  // number of nodes with 0, 1, ... such leaves
  colocated_groups units_;
  topology_fit<ragged_tree> fit_;
};

}  // namespace detail
APIARY_NAMESPACE_END
