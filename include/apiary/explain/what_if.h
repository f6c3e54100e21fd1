// apiary/explain/what_if.h - gangs placed and evicted to see what fits then, and taken back.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/gang/gang_portion.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/eviction_candidate.h>
#include <apiary/topology/tree.h>

#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN

// All of this changes the rooms themselves, and what hosts have left where CPU and memory count,
// until the transaction is rolled back. Several alternatives are transactions one after the other;
// one on top of another is a transaction inside.
//
// Requires: hosts of each node, or nothing if they do not count; they stay where they are while the
//           transaction is open.
// Cost:     for each node changed as capacity_index::set, now and when it is taken back.

namespace detail {

inline void put(resources& host, resources left) noexcept { host = left; }

}  // namespace detail

// Sets what a host has left.
inline void set(transaction& tx, resources& host, resources left) {
  tx.on_rollback<&detail::put>(host, host);
  host = left;
}

// Takes what a placement takes: leaves, CPU and memory.
// Invalid: more than a node has left, or hosts that are not one for each node, abort (APIARY_VERIFY).
template <CellTree Tree>
void take(transaction& tx, capacity_index<Tree>& capacities, const topology_constraints& gang,
          std::span<const gang_portion> portions, std::span<resources> hosts = {}) {
  APIARY_VERIFY(hosts.empty() || hosts.size() == capacities.num_nodes());
  for (const gang_portion& p : portions) {
    const constrained_task_group& member = gang.members[p.member];
    const std::uint64_t leaves = std::uint64_t{p.tasks} * member.gpus;
    APIARY_VERIFY(leaves <= capacities.free(p.node));
    journaled::set_free(tx, capacities, p.node,
                        capacities.free(p.node) - static_cast<std::uint32_t>(leaves));
    if (hosts.empty()) continue;
    const resources left = hosts[p.node];
    const std::uint64_t cpu_milli = std::uint64_t{p.tasks} * member.host.cpu_milli;
    const std::uint64_t memory_mib = std::uint64_t{p.tasks} * member.host.memory_mib;
    APIARY_VERIFY(cpu_milli <= left.cpu_milli && memory_mib <= left.memory_mib);
    set(tx, hosts[p.node],
        {.cpu_milli = left.cpu_milli - static_cast<std::uint32_t>(cpu_milli),
         .memory_mib = left.memory_mib - static_cast<std::uint32_t>(memory_mib)});
  }
}

// Gives back what a running gang has: the leaves of its shares, and freed with each of them.
// Requires: what a host has left and gets is below 2^32 in sum.
// Invalid:  more leaves than a node may have, hosts that are not one for each node, hosts without
//           what each share gives back, or this alone, abort (APIARY_VERIFY).
template <CellTree Tree>
void evict(transaction& tx, capacity_index<Tree>& capacities, const eviction_candidate& gang,
           std::span<const gpus_on_node> shares, std::span<resources> hosts = {},
           std::span<const resources> freed = {}) {
  APIARY_VERIFY(hosts.empty() ? freed.empty() : freed.size() == shares.size());
  APIARY_VERIFY(hosts.empty() || hosts.size() == capacities.num_nodes());
  for (std::uint32_t s = gang.first; s < gang.last; ++s) {
    const auto [node, leaves] = shares[s];
    APIARY_VERIFY(leaves <= capacities.max_free() - capacities.free(node));
    journaled::set_free(tx, capacities, node, capacities.free(node) + leaves);
    if (hosts.empty()) continue;
    resources left = hosts[node];
    left += freed[s];
    set(tx, hosts[node], left);
  }
}

APIARY_NAMESPACE_END
