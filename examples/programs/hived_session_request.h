// Makes the gang_request of an event: tenant, leaf type, pinned cell and topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_event.h"
#include "hived_session_json.h"
#include "hived_session_words.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace example {

// The level of a cell type, which is the same in every chain that has the type; any_level for "".
// `leaf` is the leaf type of these chains; if it is empty, it is set.
inline absl::StatusOr<apiary::level_t> level_of(const apiary::hived_layout& layout,
                                                const std::string& type, std::string& leaf) {
  if (type.empty()) return apiary::any_level;
  for (const apiary::chain_layout& chain : layout.chains) {
    const auto found = std::find(chain.level_types.begin(), chain.level_types.end(), type);
    if (found == chain.level_types.end()) continue;
    if (leaf.empty()) leaf = chain.level_types[0];
    if (leaf != chain.level_types[0]) {
      return absl::InvalidArgumentError("cell type '" + type + "' is made of '" +
                                        chain.level_types[0] + "', not of '" + leaf + "'");
    }
    return static_cast<apiary::level_t>(found - chain.level_types.begin());
  }
  return unknown("cell type", type);
}
// The topology constraints of an event; `leaf` as for level_of.
inline absl::StatusOr<apiary::request_constraints> constraints_of(
    const apiary::hived_layout& layout, const session_event& e, std::string& leaf) {
  apiary::request_constraints constraints;
  APIARY_ASSIGN_OR_RETURN(constraints.required, level_of(layout, e.required, leaf));
  APIARY_ASSIGN_OR_RETURN(constraints.preferred, level_of(layout, e.preferred, leaf));
  const bool any =
      std::any_of(e.constraints.begin(), e.constraints.end(), [](const session_constraints& r) {
        return r.leader || !r.slices.empty() || !r.spread.empty();
      });
  for (const session_constraints& r : e.constraints) {
    if (!any) break;
    apiary::request_constraints::of_group& to = constraints.groups.emplace_back();
    to.leader = r.leader.value_or(apiary::no_task_group);
    for (const session_level& s : r.slices) {
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level, level_of(layout, s.type, leaf));
      to.slices.push_back({level, s.pods});
    }
    for (const session_level& s : r.spread) {
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level, level_of(layout, s.type, leaf));
      to.spread.push_back({level, s.pods});
    }
  }
  return constraints;
}

// The chains that an event names, or all but those that it excludes; empty: any. If the gang runs already,
// unknown names are left out.
inline absl::StatusOr<std::vector<std::uint32_t>> chains_of(const apiary::hived_layout& layout,
                                                            const session_event& e, bool runs) {
  const bool excludes = !e.excluded_chains.empty();
  const std::vector<std::string>& names = excludes ? e.excluded_chains : e.chains;
  if (excludes && !e.chains.empty())
    return absl::InvalidArgumentError("excludedChains: chains is given, too");
  std::vector<bool> named(layout.chains.size(), false);
  for (const std::string& name : names) {
    const auto chain = std::find_if(layout.chains.begin(), layout.chains.end(),
                                    [&](const auto& c) { return c.name == name; });
    if (chain == layout.chains.end() && !runs) return unknown("chain", name);
    if (chain != layout.chains.end())
      named[static_cast<std::size_t>(chain - layout.chains.begin())] = true;
  }
  std::vector<std::uint32_t> chains;
  for (std::uint32_t c = 0; !names.empty() && c < named.size(); ++c)
    if (named[c] != excludes) chains.push_back(c);
  if (chains.empty() && !names.empty() && !runs)
    return absl::InvalidArgumentError("excludedChains: no chain is left");
  return chains;
}

// The request of an event. If the gang runs already, its tenant may be missing in the configuration; the
// request then has no tenant.
inline absl::StatusOr<apiary::gang_request> request_of(const apiary::hived& scheduler,
                                                       const session_event& e, apiary::job_id job,
                                                       bool runs) {
  const apiary::hived_layout& layout = scheduler.layout();
  if (e.group.empty()) return missing("group");
  if (e.vc.empty()) return missing("vc");
  if (!e.priority) return missing("priority");
  if (e.members.empty()) return missing("members");
  apiary::gang_request r{.job = job, .priority = *e.priority, .groups = e.members, .lazy = e.lazy};
  std::string leaf = e.leaf_type;
  APIARY_ASSIGN_OR_RETURN(r.constraints, constraints_of(layout, e, leaf));
  if (const auto tenant = layout.find_tenant(e.vc)) r.tenant = *tenant;
  if (!r.tenant.valid() && !runs) return unknown("virtual cluster", e.vc);
  if (!leaf.empty()) {
    if (const auto type = scheduler.find_leaf_type(leaf)) r.leaf_type = *type;
    if (!r.leaf_type.valid() && !runs) return unknown("leaf type", leaf);
  }
  APIARY_ASSIGN_OR_RETURN(r.chains, chains_of(layout, e, runs));
  if (e.pinned.empty()) return r;
  r.pinned = layout.find_pinned(e.pinned);
  if (r.pinned && (!runs || layout.pinned[*r.pinned].tenant == r.tenant)) return r;
  if (!runs) return unknown("pinned cell", e.pinned);
  r.pinned.reset();
  r.tenant = apiary::tenant_id();
  return r;
}

// The types of cells that the constraints of an event name.
inline std::vector<std::string> types_in(const session_event& e) {
  std::vector<std::string> types{e.required, e.preferred};
  for (const session_constraints& constraints : e.constraints) {
    for (const session_level& s : constraints.slices) types.push_back(s.type);
    for (const session_level& s : constraints.spread) types.push_back(s.type);
  }
  std::erase(types, "");
  return types;
}
// Whether the gang may use a chain, and its constraints are valid there.
inline bool are_constraints_valid_in(const apiary::hived& scheduler, const apiary::gang_request& r,
                                     std::uint32_t c) {
  const apiary::hived_layout& layout = scheduler.layout();
  if (r.leaf_type.valid() && scheduler.catalog().type_of(c) != r.leaf_type) return false;
  if (r.pinned && layout.pinned[*r.pinned].chain.value != c) return false;
  if (!r.chains.empty() && std::find(r.chains.begin(), r.chains.end(), c) == r.chains.end())
    return false;
  const bool own = !r.pinned && r.priority >= 0;
  if (own && !scheduler.cells().cluster_of(r.tenant, c).valid()) return false;
  const apiary::chain_layout& chain = layout.chains[c];
  return apiary::constraints_of(r).valid(chain.node_level, chain.tree.num_levels());
}
// kInvalidArgument: a constraint names a cell type, and in a chain that the gang may use, another type
// has the same level.
inline absl::Status check_types(const apiary::hived& scheduler, const session_event& e,
                                const apiary::gang_request& r) {
  const std::vector<std::string> types = types_in(e);
  const std::vector<apiary::chain_layout>& chains = scheduler.layout().chains;
  for (std::uint32_t c = 0; c < chains.size(); ++c) {
    if (types.empty() || !are_constraints_valid_in(scheduler, r, c)) continue;
    for (const std::string& type : types) {
      std::string leaf;
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level,
                              level_of(scheduler.layout(), type, leaf));
      const std::string& here = chains[c].level_types[level];
      if (here == type) continue;
      return absl::InvalidArgumentError(
          "cell type '" + type + "' is of level " + std::to_string(level) + ", which is '" + here +
          "' in chain '" + chains[c].level_types.back() + "', and the gang may use that");
    }
  }
  return absl::OkStatus();
}

// The request of an event that places a gang. Its cell types must mean the same level in all chains that
// the gang may use.
inline absl::StatusOr<apiary::gang_request> request_to_place(const apiary::hived& scheduler,
                                                             const session_event& e,
                                                             apiary::job_id job) {
  APIARY_ASSIGN_OR_RETURN(apiary::gang_request r, request_of(scheduler, e, job, false));
  APIARY_RETURN_IF_ERROR(check_types(scheduler, e, r));
  return r;
}

// The request of an event whose gang runs already. Constraints are left out if the configuration lacks
// their cell type, or has it with another leaf type.
inline absl::StatusOr<apiary::gang_request> request_of_running(const apiary::hived& scheduler,
                                                               session_event e,
                                                               apiary::job_id job) {
  std::string leaf = e.leaf_type;
  const auto lost = [&](const std::string& type) {
    return !level_of(scheduler.layout(), type, leaf).ok();
  };
  const auto lost_level = [&](const session_level& s) { return lost(s.type); };
  if (lost(e.required)) e.required.clear();
  if (lost(e.preferred)) e.preferred.clear();
  for (session_constraints& constraints : e.constraints) {
    std::erase_if(constraints.slices, lost_level);
    std::erase_if(constraints.spread, lost_level);
  }
  return request_of(scheduler, e, job, true);
}

}  // namespace example
