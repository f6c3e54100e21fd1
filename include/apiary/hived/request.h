// apiary/hived/request.h - what is asked of a scheduler of gangs, and what it answers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

using leaf_type_id = id<struct leaf_type_tag>;  // a model of GPU

inline constexpr std::int32_t opportunistic_priority = -1;
inline constexpr std::int32_t max_priority = 1000;

// Where the tasks of a member may be: its slices, spread and leader as in constrained_task_group.
struct group_constraints {
  std::vector<level_count> slices{};
  std::vector<level_count> spread{};
  std::uint32_t leader = no_task_group;
  friend bool operator==(const group_constraints&, const group_constraints&) = default;
};

// Where the tasks of a gang may stand to one another, as in topology_constraints. Levels are those of the
// cells of a chain, nodes or above: what they are in each that the request may use. Of a guaranteed
// gang they are levels of its tenant's cells: cells that are promised one by one are never in one
// cell of a higher level, wherever they are bound; but of a spread, cells of the hardware count.
struct request_constraints {
  level_t required = any_level;
  level_t preferred = any_level;
  std::vector<group_constraints> members{};  // of each member; none: without such rules

  [[nodiscard]] bool any() const noexcept {
    return required != any_level || preferred != any_level || !members.empty();
  }
  friend bool operator==(const request_constraints&, const request_constraints&) = default;
};

// A gang: its tasks are placed together or not at all.
struct gang_request {
  job_id job{};
  tenant_id tenant{};
  std::int32_t priority = 0;                  // -1: opportunistic; 0, ..., 1000: guaranteed
  std::vector<task_group> members{};          // tasks by size
  leaf_type_id leaf_type{};                   // not valid: any
  std::optional<std::uint32_t> pinned{};      // into this pinned cell of the tenant
  bool lazy = false;                          // may be preempted lazily
  const summary_bitset* suggested = nullptr;  // a bit a node; null: all nodes
  request_constraints rules{};                // where its tasks may stand to one another
};

// The gang of a request with its rules, as certificates speak of it: kinds are its members.
// Requires: rules for each member, or for none.
[[nodiscard]] inline topology_constraints constraints_of(const gang_request& request) {
  topology_constraints gang{.required = request.rules.required,
                            .preferred = request.rules.preferred};
  gang.members.reserve(request.members.size());
  for (const task_group& m : request.members)
    gang.members.push_back({.tasks = m.tasks, .gpus = m.gpus});
  for (std::size_t i = 0; i < request.rules.members.size(); ++i) {
    const group_constraints& rules = request.rules.members[i];
    gang.members[i].slices = rules.slices;
    gang.members[i].spread = rules.spread;
    gang.members[i].leader = rules.leader;
  }
  return gang;
}

// The leaves of one task: bit i for the i-th leaf of the node, from the left. That is a position,
// not a device index, which a configuration may choose; hived_layout::devices tells those. Empty: the
// task has ended.
struct task_place {
  node_id node{};
  std::uint64_t leaves = 0;
  friend constexpr bool operator==(task_place, task_place) noexcept = default;
};

enum class plan_result : std::uint8_t { bind, preempt, wait };

enum class wait_reason : std::uint8_t {
  never,          // not even with all of the tenant's cells empty, healthy and suggested
  busy,           // what is in use at its priority or above is in the way
  unhealthy,      // it would fit, were all hardware healthy
  not_suggested,  // not on the suggested nodes, but on others
  undecided,      // the search ended with its budget
};

// That a gang has no place in a chain: counted over its tenant's cells there, those of a pinned
// cell, or for an opportunistic gang over the chain. See refused_capacity in hived/queries.h.
struct chain_refusal {
  std::uint32_t chain = 0;
  infeasibility_proof why{};
  friend bool operator==(const chain_refusal&, const chain_refusal&) = default;
};

// Why a gang waits: counted over the nodes that it may use, leaves of lower priorities as free.
struct gang_wait {
  wait_reason reason = wait_reason::busy;
  std::optional<gang_fit::shortage> shortage{};  // what proves it; none: tasks of mixed sizes that
                                                 // do not go together, or rules
  std::uint32_t chain = 0;                       // whose cells that counts

  // If it is busy, or can never run: the proof, of each chain that the gang may use, in the order of
  // trying. Of a gang that is busy whatever is bad counts as well, of one that can never run all is
  // empty. None for other reasons, or if the search for it ended with its budget.
  std::vector<chain_refusal> proof{};

  // Of the chain that gives the reason; null: there is none.
  [[nodiscard]] const infeasibility_proof* why() const noexcept {
    for (const chain_refusal& r : proof)
      if (r.chain == chain) return &r.why;
    return nullptr;
  }
};

APIARY_NAMESPACE_END
