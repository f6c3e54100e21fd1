// apiary/hived/detail/constrained_search.h - a search under topology constraints, for HiveD.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/leaf_view.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/model/request.h>
#include <apiary/preempt/victim_set.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The lowest level for which a task group of the gang has a spread (anti-affinity) that depends on
// bindings: the tenant has several whole cells below that level, these may lie in one physical cell
// of it, and the group has more tasks than may run there. any_level: there is none.
[[nodiscard]] inline level_t spread_over_whole_cells(const virtual_cluster& cluster,
                                                     const gang_request& request) noexcept {
  const request_constraints& constraints = *request.constraints;
  if (constraints.required != any_level) return any_level;  // all tasks are in one whole cell
  level_t lowest = any_level;
  for (std::size_t m = 0; m < constraints.groups.size(); ++m) {
    for (const level_count& s : constraints.groups[m].spread) {
      if (s.tasks >= request.groups[m].tasks || s.level >= lowest) continue;
      std::uint32_t below = 0;
      for (level_t l = 0; l < s.level; ++l) below += cluster.tree().roots(l).size();
      if (below > 1) lowest = s.level;
    }
  }
  return lowest;
}

// A search for gangs under topology constraints (hived_topology_fit). Only programs that include
// hived/constraints.h, or link apiary::compiled, have one; the rest of HiveD knows this interface.
class constrained_search {
 public:
  constrained_search() = default;
  constrained_search(const constrained_search&) = delete;
  constrained_search& operator=(const constrained_search&) = delete;
  virtual ~constrained_search() = default;
  // Why the constraints are not valid in a tree with these levels; empty if they are valid.
  [[nodiscard]] virtual std::string fault(const gang_request& request, level_t node_level,
                                          level_t num_levels) const = 0;
  // Whether the gang fits on the leaves of the view.
  virtual fit_verdict fit(const leaf_view& view, const gang_request& request) = 0;
  // After fit() said no: the victims of least cost for the same view and gang. Allocations name
  // the nodes of the view.
  virtual victim_set victims(std::span<const eviction_candidate> candidates,
                             std::span<const gpus_on_node> allocations) = 0;
  // After `fits`: the nodes used, numbered as in the cluster or chain.
  [[nodiscard]] virtual std::span<const std::uint32_t> nodes() const noexcept = 0;
  // Chooses leaves for all tasks, by group; slices are consecutive tasks. nodes[i]: of nodes()[i].
  virtual const lean_vector<cell_id>& choose_gpus_of(std::span<const node_gpus> nodes,
                                                     std::span<const task_group> groups) = 0;
  // The steps of the last fit().
  [[nodiscard]] virtual std::uint64_t steps() const noexcept = 0;
  // Whether the gang may fit on the leaves that count for `at`; false is certain.
  virtual bool may_fit(const hived_cells& cells, const gang_table& gangs,
                       const gang_request& request, const refused_chain& at) = 0;
  // A proof that the gang does not fit there; nullopt: the budget ended.
  virtual std::optional<infeasibility_proof> prove(const hived_cells& cells,
                                                   const gang_table& gangs,
                                                   const gang_request& request,
                                                   const refused_chain& at) = 0;
};

// A search that is constructed for the first request with constraints.
class lazy_constrained_search {
 public:
  // Requires: the request has constraints, or an earlier one had.
  constrained_search& operator()(const gang_request& request) {
    if (search_ == nullptr) search_ = request.constraints.make_search_();
    return *search_;
  }

 private:
  std::unique_ptr<constrained_search> search_;
};

}  // namespace detail
APIARY_NAMESPACE_END
