// apiary/hived/gang_request.h - what a gang asks HiveD for, and the reasons why it may wait.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

using leaf_type_id = id<struct leaf_type_tag>;  // a GPU model of the configuration

// Topology constraints of a gang, as in topology_constraints; levels are nodes or above. For a
// guaranteed gang they refer to virtual cells: cells that a tenant owns one by one are never in one
// larger cell. Anti-affinity (spread) refers to physical cells: at a level below which the tenant
// owns several cells one by one it is refused, because these can share a physical cell.
struct request_constraints {
  // Topology constraints of one task group.
  struct of_group {
    std::vector<level_count> slices{};     // as in constrained_task_group
    std::vector<level_count> spread{};     // as in constrained_task_group
    std::uint32_t leader = no_task_group;  // as in constrained_task_group
    friend bool operator==(const of_group&, const of_group&) = default;
  };

  level_t required = any_level;    // as in topology_constraints
  level_t preferred = any_level;   // as in topology_constraints
  std::vector<of_group> groups{};  // by task group; empty: none

  // Whether there is a constraint.
  [[nodiscard]] bool any() const noexcept {
    return required != any_level || preferred != any_level || !groups.empty();
  }
  friend bool operator==(const request_constraints&, const request_constraints&) = default;
};

namespace detail {
class constrained_search;  // hived/detail/constrained_search.h
class hived_catalog;
class hived_snapshot_reader;
class lazy_constrained_search;
struct constraint_engine;  // hived/constraints.h

// Constructs the search under topology constraints.
using constrained_search_maker = std::unique_ptr<constrained_search> (*)();

template <class Constraints>
struct engine_of {
  using type = constraint_engine;  // found when it is used: it may be incomplete before
};
// The maker, or an error of the compiler if the search was not included.
template <class Constraints>
[[nodiscard]] constexpr constrained_search_maker search_for() noexcept {
  if constexpr (requires { sizeof(typename engine_of<Constraints>::type); }) {
    return &engine_of<Constraints>::type::make;
  } else {
    static_assert(!sizeof(Constraints*), "include apiary/hived/constraints.h to set constraints");
    return nullptr;
  }
}

}  // namespace detail

// The topology constraints of a request, none by default: `gang.constraints = {.required = rack}`,
// or gang_request{.constraints = {{.required = rack}}}. A program that sets them includes
// hived/constraints.h; others do not compile the search under constraints.
class optional_constraints {
 public:
  // No constraints.
  optional_constraints() = default;
  // These constraints.
  template <class Constraints = request_constraints>
  requires std::same_as<Constraints, request_constraints> optional_constraints(
      Constraints constraints)
      : values_(std::move(constraints)), make_search_(detail::search_for<Constraints>()) {}
  // Sets these constraints.
  template <class Constraints = request_constraints>
  requires std::same_as<Constraints, request_constraints> optional_constraints& operator=(
      Constraints constraints) {
    edit<Constraints>() = std::move(constraints);
    return *this;
  }
  // The constraints, to change them.
  template <class Constraints = request_constraints>
  [[nodiscard]] Constraints& edit() noexcept {
    make_search_ = detail::search_for<Constraints>();
    return values_;
  }

  // Whether there is a constraint.
  [[nodiscard]] bool any() const noexcept { return values_.any(); }
  // The constraints, to read them.
  [[nodiscard]] const request_constraints& operator*() const noexcept { return values_; }
  [[nodiscard]] const request_constraints* operator->() const noexcept { return &values_; }
  friend bool operator==(const optional_constraints& a, const optional_constraints& b) {
    return a.values_ == b.values_;
  }

 private:
  friend class detail::hived_catalog;
  friend class detail::hived_snapshot_reader;
  friend class detail::lazy_constrained_search;
  request_constraints values_{};
  // Not null if there is a constraint, except in the gangs of a snapshot.
  detail::constrained_search_maker make_search_ = nullptr;
};

// A gang: all its tasks are placed, or none is.
struct gang_request {
  static constexpr std::int32_t opportunistic_priority = -1;  // of gangs without guarantee
  static constexpr std::int32_t max_priority = 1000;          // of guaranteed gangs

  job_id job{};                               // id of the gang
  tenant_id tenant{};                         // the tenant that asks
  std::int32_t priority = 0;                  // -1: opportunistic; 0, ..., 1000: guaranteed
  std::vector<task_group> groups{};           // the task groups
  leaf_type_id leaf_type{};                   // not valid: any leaf type
  std::optional<std::uint32_t> pinned{};      // only in this pinned cell of the tenant
  bool lazy = false;                          // a preempted gang keeps running as opportunistic
  const summary_bitset* suggested = nullptr;  // one bit per node; null: all nodes
  optional_constraints constraints{};         // topology constraints
  std::vector<std::uint32_t> chains{};        // only in these chains; empty: in every chain
};

// The task groups and topology constraints of a request, as proofs refer to them. Requires:
// constraints for every task group, or for none.
[[nodiscard]] inline topology_constraints constraints_of(const gang_request& request) {
  const request_constraints& asked = *request.constraints;
  topology_constraints gang{.required = asked.required, .preferred = asked.preferred};
  gang.groups.reserve(request.groups.size());
  for (const task_group& m : request.groups)
    gang.groups.push_back({.tasks = m.tasks, .gpus = m.gpus});
  for (std::size_t i = 0; i < asked.groups.size(); ++i) {
    const request_constraints::of_group& constraints = asked.groups[i];
    gang.groups[i].slices = constraints.slices;
    gang.groups[i].spread = constraints.spread;
    gang.groups[i].leader = constraints.leader;
  }
  return gang;
}

// The leaves of one task by position in the node (see hived_layout::devices); none if it has ended.
struct hived_placement {
  node_id node{};            // the node
  std::uint64_t leaves = 0;  // bit i: the i-th leaf of the node
  friend constexpr bool operator==(hived_placement, hived_placement) noexcept = default;
};

// Why a gang waits. Leaves that gangs of lower priority use count as free.
struct gang_wait {
  // A proof that a gang does not fit in one chain: in the tenant's cells there, in the pinned cell
  // or, if it is opportunistic, in the whole chain. hived_queries::refused_capacity gives the
  // capacity counted.
  struct chain_refusal {
    std::uint32_t chain = 0;    // index of the chain
    infeasibility_proof why{};  // the proof
    friend bool operator==(const chain_refusal&, const chain_refusal&) = default;
  };

  wait_reason reason = wait_reason::busy;  // the kind of reason
  // The task size that is short; none if sizes do not pack together, or for constraints.
  std::optional<gpu_shortage> shortage{};
  std::uint32_t chain = 0;  // the chain that gives the reason
  // For `busy` and `never`: a proof for each chain that the gang may use, in the order of trial;
  // empty if the budget of the proof search ended. A proof of `busy` counts bad leaves as usable,
  // one of `never` counts all leaves as free.
  std::vector<chain_refusal> proof{};

  // The proof for the chain that gives the reason; null if there is none.
  [[nodiscard]] const infeasibility_proof* why() const noexcept {
    for (const chain_refusal& r : proof)
      if (r.chain == chain) return &r.why;
    return nullptr;
  }
};

APIARY_NAMESPACE_END

#ifdef APIARY_COMPILED
#include <apiary/hived/constraints.h>
#endif
