// apiary/explain/what_if.h - places and evicts gangs in a transaction, to see what fits then.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/tree.h>

#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

inline void assign_host(resources& host, resources free) noexcept { host = free; }

inline void set_host(transaction& tx, resources& host, resources free) {
  tx.on_rollback<&assign_host>(host, host);
  host = free;
}

}  // namespace detail

// These functions change the capacity index, and the free CPU and memory of hosts if they count,
// until the transaction is rolled back. Use one transaction for each alternative, or nest them.
//
// Requires: hosts: free CPU and memory of each node, or empty if they do not count; they stay at
//           their address while the transaction is open.
// Cost:     capacity_index::set for each node changed, now and when it is rolled back.
// Example:  on the page of the module
namespace journaled {

// Places a gang: takes the GPUs, CPU and memory of its tasks. portions: as topology_fit found them.
// Invalid: it aborts (APIARY_VERIFY) if a task needs more than its node has free, or if `hosts`
//          does not have one entry for each node.
template <CellTree Tree>
void place_gang(transaction& tx, capacity_index<Tree>& capacities, const topology_constraints& gang,
                std::span<const tasks_on_node> portions, std::span<resources> hosts = {}) {
  APIARY_VERIFY(hosts.empty() || hosts.size() == capacities.num_nodes());
  for (const tasks_on_node& p : portions) {
    const constrained_task_group& group = gang.groups[p.group];
    const std::uint64_t gpus = std::uint64_t{p.tasks} * group.gpus;
    APIARY_VERIFY(gpus <= capacities.free(p.node));
    tx.set(capacities, p.node, capacities.free(p.node) - static_cast<std::uint32_t>(gpus));
    if (hosts.empty()) continue;
    const resources left = hosts[p.node];
    const std::uint64_t cpu_milli = std::uint64_t{p.tasks} * group.host.cpu_milli;
    const std::uint64_t memory_mib = std::uint64_t{p.tasks} * group.host.memory_mib;
    APIARY_VERIFY(cpu_milli <= left.cpu_milli && memory_mib <= left.memory_mib);
    detail::set_host(tx, hosts[p.node],
                     {.cpu_milli = left.cpu_milli - static_cast<std::uint32_t>(cpu_milli),
                      .memory_mib = left.memory_mib - static_cast<std::uint32_t>(memory_mib)});
  }
}

// Evicts a gang: gives back the GPUs of its allocations, with the CPU and memory in `freed`.
// Requires: what a host has free and what it gets back is below 2^32 in sum.
// Invalid:  it aborts (APIARY_VERIFY) if an allocation has more GPUs than a node may have, if
//           `hosts` has neither no entries nor one for each node, or if `freed` does not have one
//           entry for each allocation (none if `hosts` is empty).
template <CellTree Tree>
void evict_gang(transaction& tx, capacity_index<Tree>& capacities, const eviction_candidate& gang,
                std::span<const gpus_on_node> allocations, std::span<resources> hosts = {},
                std::span<const resources> freed = {}) {
  APIARY_VERIFY(hosts.empty() ? freed.empty() : freed.size() == allocations.size());
  APIARY_VERIFY(hosts.empty() || hosts.size() == capacities.num_nodes());
  for (std::uint32_t a = gang.first; a < gang.last; ++a) {
    const auto [node, gpus] = allocations[a];
    APIARY_VERIFY(gpus <= capacities.max_free() - capacities.free(node));
    tx.set(capacities, node, capacities.free(node) + gpus);
    if (hosts.empty()) continue;
    resources left = hosts[node];
    left += freed[a];
    detail::set_host(tx, hosts[node], left);
  }
}

}  // namespace journaled

APIARY_NAMESPACE_END
