// apiary/alloc/journaled.h - changes of allocators, quotas and nodes that a transaction can undo.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/cell_allocator.h>
#include <apiary/alloc/fraction_pool.h>
#include <apiary/alloc/journal.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <cstdint>
#include <optional>

APIARY_NAMESPACE_BEGIN

namespace detail {

template <CellAllocator Allocator>
void take_again(Allocator& allocator, cell_id c) {
  const bool taken = allocator.allocate_at(c);
  APIARY_VERIFY(taken);
}
inline void reserve_again(reserving_buddy_allocator& allocator, cell_count reservations) {
  const bool reserved = allocator.reserve(reservations);
  APIARY_VERIFY(reserved);
}
inline void charge_again(quota_ledger& ledger, tenant_id tenant, level_t level) {
  const bool charged = ledger.charge(tenant, level);
  APIARY_VERIFY(charged);
}

}  // namespace detail

// Each function calls the member or free function of the same name and records in the transaction
// how to undo it. A rollback of the transaction undoes the change.
//
// Requires: the changed object does not move while the journal has records of it.
// Cost:     that of the call, and one record of 56 bytes.
// Example:  examples/what_if.cpp
namespace journaled {

// Allocates a cell. `what` are the arguments of the allocator's allocate: a level, or a
// cell_request with or without a cost. Returns nullopt, and records nothing, if the allocator has
// no such cell.
template <CellAllocator Allocator, class... What>
std::optional<cell_id> allocate(transaction& tx, Allocator& allocator, const What&... what) {
  const std::optional<cell_id> c = allocator.allocate(what...);
  if (c) tx.on_rollback<&Allocator::release>(allocator, *c);
  return c;
}
// Allocates the cell c itself. Returns whether it was allocated.
template <CellAllocator Allocator>
bool allocate_at(transaction& tx, Allocator& allocator, cell_id c) {
  if (!allocator.allocate_at(c)) return false;
  tx.on_rollback<&Allocator::release>(allocator, c);
  return true;
}
// Releases the live cell c.
template <CellAllocator Allocator>
void release(transaction& tx, Allocator& allocator, cell_id c) {
  allocator.release(c);
  tx.on_rollback<&detail::take_again<Allocator>>(allocator, c);
}

// Reserves more cells of a level. Returns whether they were reserved.
inline bool reserve(transaction& tx, reserving_buddy_allocator& allocator, cell_count more) {
  if (!allocator.reserve(more)) return false;
  tx.on_rollback<&reserving_buddy_allocator::cancel_reservation>(allocator, more);
  return true;
}
// Cancels reservations of a level. Requires: at least as many are reserved.
inline void cancel_reservation(transaction& tx, reserving_buddy_allocator& allocator,
                               cell_count reservations) {
  allocator.cancel_reservation(reservations);
  tx.on_rollback<&detail::reserve_again>(allocator, reservations);
}

// Assigns a leaf to a priority class. Returns the previous class.
template <CellTree Tree>
typename priority_usage<Tree>::class_t assign(transaction& tx, priority_usage<Tree>& use,
                                              cell_id leaf,
                                              typename priority_usage<Tree>::class_t to) {
  const auto from = use.assign(leaf, to);
  tx.on_rollback<&priority_usage<Tree>::assign>(use, leaf, from);
  return from;
}

// Charges one cell to the tenant's quota. Returns whether the quota had one left.
[[nodiscard]] inline bool charge(transaction& tx, quota_ledger& ledger, tenant_id tenant,
                                 level_t level) {
  if (!ledger.charge(tenant, level)) return false;
  tx.on_rollback<&quota_ledger::refund>(ledger, tenant, level);
  return true;
}
// Refunds one charged cell.
inline void refund(transaction& tx, quota_ledger& ledger, tenant_id tenant, level_t level) {
  ledger.refund(tenant, level);
  tx.on_rollback<&detail::charge_again>(ledger, tenant, level);
}
// Sets the tenant's quota at quota.level.
inline void set_quota(transaction& tx, quota_ledger& ledger, tenant_id tenant, cell_count quota) {
  const cell_count before{quota.level, ledger.quota(tenant, quota.level)};
  ledger.set_quota(tenant, quota);
  tx.on_rollback<&quota_ledger::set_quota>(ledger, tenant, before);
}

// Places a task on a node. Requires: can_place_task(nodes, task, where).
inline void place_task(transaction& tx, node_table& nodes, const task_request& task,
                       placement where) {
  apiary::place_task(nodes, task, where);
  tx.on_rollback<&apiary::remove_task>(nodes, task, where);
}
// Removes a placed task from its node.
inline void remove_task(transaction& tx, node_table& nodes, const task_request& task,
                        placement where) {
  apiary::remove_task(nodes, task, where);
  tx.on_rollback<&apiary::place_task>(nodes, task, where);
}

}  // namespace journaled

APIARY_NAMESPACE_END
