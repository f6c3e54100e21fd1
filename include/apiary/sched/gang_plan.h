// apiary/sched/gang_plan.h - what is asked of a scheduler of gangs, and what it answers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/gang_rules.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

using leaf_type_id = id<struct leaf_type_tag>;  // a model of GPU

inline constexpr std::int32_t opportunistic_priority = -1;
inline constexpr std::int32_t max_priority = 1000;

// A gang: its tasks are placed together or not at all.
struct gang_request {
  job_id job{};
  tenant_id tenant{};
  std::int32_t priority = 0;                  // -1: opportunistic; 0, ..., 1000: guaranteed
  std::vector<gang_member> members{};         // tasks by size
  leaf_type_id leaf_type{};                   // not valid: any
  std::optional<std::uint32_t> pinned{};      // into this pinned cell of the tenant
  bool lazy = false;                          // may be preempted lazily
  const summary_bitset* suggested = nullptr;  // a bit a node; null: all nodes
};

// The gang of a request as certificates speak of it: kinds are its members.
[[nodiscard]] inline gang_rules rules_of(const gang_request& request) {
  gang_rules gang;
  gang.members.reserve(request.members.size());
  for (const gang_member& m : request.members)
    gang.members.push_back({.tasks = m.tasks, .leaves = m.leaves});
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

enum class outcome : std::uint8_t { bind, preempt, wait };

enum class wait_reason : std::uint8_t {
  never,          // not even with all of the tenant's cells empty, healthy and suggested
  busy,           // what is in use at its priority or above is in the way
  unhealthy,      // it would fit, were all hardware healthy
  not_suggested,  // it would fit on other nodes than those suggested
  undecided,      // the search ended with its budget
};

// That a gang has no place in a chain: counted over its tenant's cells there, those of a pinned
// cell, or for an opportunistic gang over the chain. See refused_rooms in hived_queries.h.
struct chain_refusal {
  std::uint32_t chain = 0;
  certificate why{};
  friend bool operator==(const chain_refusal&, const chain_refusal&) = default;
};

// Why a gang waits: counted over the nodes that it may use, leaves of lower priorities as free.
struct gang_wait {
  wait_reason reason = wait_reason::busy;
  std::optional<gang_fit::shortage> shortage{};  // what proves it; none: tasks of mixed sizes that
                                                 // do not go together
  std::uint32_t chain = 0;                       // whose cells that counts

  // If it is busy, or can never run: the proof, of each chain that the gang may use, in the order of
  // trying. Of a gang that is busy whatever is bad counts as well, of one that can never run all is
  // empty. None for other reasons, or if the search for it ended with its budget.
  std::vector<chain_refusal> proof{};

  // Of the chain that gives the reason; null: there is none.
  [[nodiscard]] const certificate* why() const noexcept {
    for (const chain_refusal& r : proof)
      if (r.chain == chain) return &r.why;
    return nullptr;
  }
};

APIARY_NAMESPACE_END
