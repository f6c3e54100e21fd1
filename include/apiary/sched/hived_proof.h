// apiary/sched/hived_proof.h - the certificate of a gang that has no place in a chain.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/room_index.h>
#include <apiary/core/ids.h>
#include <apiary/model/ragged_tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/explain_refusal.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/ruled_fit.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived_cells.h>
#include <apiary/sched/hived_rooms.h>
#include <apiary/sched/physical_chain.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Proves that a gang does not fit in a chain: by a weighing of all its nodes, found from how many
// have how many leaves free; where none refuses it, by all that fits. Under rules as ruled_fit explains
// it.
//
// Cost: as count_free and explain_refusal; where no weighing refuses it, or under rules, ruled_fit and
//       O(cells * leaves of a node).
class hived_proof {
 public:
  // nullopt: the search for one ended with its budget. Requires: the gang does not fit.
  std::optional<certificate> operator()(const hived_cells& cells, const gang_table& gangs,
                                        const gang_request& request, const refused_chain& at) {
    const gang_rules gang = rules_of(request);
    if (!request.rules.any()) {
      const physical_chain& chain = cells.chain(at.chain);
      const level_t top = chain.tree().num_levels();
      count_leaves(cells, gangs, request, at, free_);
      nodes_.assign(std::size_t{chain.node_leaves()} + 1, 0);
      for (const std::uint32_t f : free_) ++nodes_[f];
      units_.assign(gang, chain.node_level(), top);
      certificate weighed = explain_refusal(nodes_, units_, top);
      if (!weighed.cells.empty()) return weighed;
    }
    const room_index<ragged_tree> index = rooms_in(cells, gangs, request, at);
    if (fit_(index, gang) != fit_verdict::does_not_fit) return std::nullopt;
    return fit_.explain(index, gang);
  }
  // Whether a gang fits under its rules where `at` counts the leaves.
  // Cost: O(cells of the tenant, or of the chain), count_leaves and ruled_fit.
  [[nodiscard]] fit_verdict fits(const hived_cells& cells, const gang_table& gangs,
                                 const gang_request& request, const refused_chain& at) {
    return fit_(rooms_in(cells, gangs, request, at), rules_of(request));
  }

 private:
  [[nodiscard]] static room_index<ragged_tree> rooms_in(const hived_cells& cells,
                                                        const gang_table& gangs,
                                                        const gang_request& request,
                                                        const refused_chain& at) {
    const gang_rooms rooms = rooms_of(cells, gangs, request, at);
    room_index<ragged_tree> index(rooms.tree, rooms.node_level,
                                  cells.chain(at.chain).node_leaves());
    for (std::uint32_t n = 0; n < rooms.free.size(); ++n) index.set(n, rooms.free[n]);
    return index;
  }

  std::vector<std::uint32_t> free_;   // of each node
  std::vector<std::uint32_t> nodes_;  // with 0, 1, ... free
  gang_units units_;
  ruled_fit<ragged_tree> fit_;
};

APIARY_NAMESPACE_END
