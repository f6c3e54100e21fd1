// apiary/hived/detail/merge_checks.h - whether a running gang may be merged into another one.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether the leaves of both gangs are in one chain, and in cells of one virtual cluster.
[[nodiscard]] inline bool in_one_chain(const gang_record& gang, const gang_record& by) noexcept {
  std::optional<std::uint32_t> chain;
  for (const gang_record* g : {&gang, &by}) {
    for (const chain_leaf& l : g->leaves) {
      if (!l.leaf.valid()) continue;
      if (chain.value_or(l.chain) != l.chain) return false;
      chain = l.chain;
    }
  }
  return gang.cluster == by.cluster;
}
// Whether the running gang `by` may be merged into `gang`, with the errors of hived::grow. Does not
// check for preemptors, nor for the required level (are_in_required_cell).
[[nodiscard]] inline absl::Status can_merge(const gang_record& gang, const gang_record& by) {
  const gang_request& r = gang.request;
  const gang_request& more = by.request;
  if (r.job == more.job)
    return error_of(absl::StatusCode::kInvalidArgument,
                    {hived_catalog::name(r.job), " cannot be merged with itself"});
  std::uint64_t tasks = 0;
  for (const gang_record* g : {&gang, &by}) {
    const std::string which = hived_catalog::name(g->request.job);
    if (g->state == gang_state::preempting)
      return error_of(absl::StatusCode::kFailedPrecondition,
                      {which, " is preempting and does not run yet"});
    if (g->downgraded)
      return error_of(absl::StatusCode::kFailedPrecondition,
                      {which, " has lost its tenant's cells"});
    for (const task_group& m : g->request.groups) tasks += m.tasks;
  }
  const char* differ = r.tenant != more.tenant                                 ? "tenant"
                       : r.priority != more.priority                           ? "priority"
                       : r.leaf_type != more.leaf_type                         ? "type of leaf"
                       : r.chains != more.chains                               ? "chains"
                       : r.pinned != more.pinned                               ? "pinned cell"
                       : r.lazy != more.lazy                                   ? "lazy preemption"
                       : !in_one_chain(gang, by)                               ? "chain"
                       : r.constraints->required != more.constraints->required ? "required level"
                                                                               : nullptr;
  if (differ != nullptr) {
    return error_of(absl::StatusCode::kFailedPrecondition,
                    {hived_catalog::name(r.job), " and ", hived_catalog::name(more.job),
                     " differ in their ", differ});
  }
  if (tasks > hived_catalog::max_tasks) {
    return error_of(absl::StatusCode::kInvalidArgument,
                    {hived_catalog::name(r.job), " would have ", tasks,
                     " tasks, ended ones included; the limit is ", hived_catalog::max_tasks});
  }
  return absl::OkStatus();
}
// kFailedPrecondition: the gangs do not lie in one cell of the level that `gang` requires.
[[nodiscard]] inline absl::Status are_in_required_cell(const hived_layout& layout,
                                                       const gang_record& gang,
                                                       const gang_record& by) {
  const level_t required = gang.request.constraints->required;
  std::optional<chain_leaf> cell;
  for (const gang_record* g : {&gang, &by}) {
    for (const chain_leaf& l : g->leaves) {
      if (required == any_level || !l.leaf.valid()) continue;
      const uniform_tree& tree = layout.chains[l.chain].tree;
      const chain_leaf in{
          l.chain, required < tree.num_levels() ? tree.ancestor(l.leaf, required) : cell_id()};
      if (!cell) cell = in;
      if (*cell == in) continue;
      return error_of(
          absl::StatusCode::kFailedPrecondition,
          {hived_catalog::name(gang.request.job), " and ", hived_catalog::name(by.request.job),
           " are not in one cell of level ", required, ", which they require"});
    }
  }
  return absl::OkStatus();
}

}  // namespace detail
APIARY_NAMESPACE_END
