// apiary/alloc/journaled.h - grants, usage, quotas and nodes changed within a transaction.
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

// What the member or free function of the same name does, within a transaction: it is undone when
// the transaction is rolled back.
namespace journaled {

// what: a level, or a cell_request with or without a cost.
template <CellAllocator Allocator, class... What>
std::optional<cell_id> allocate(transaction& tx, Allocator& allocator, const What&... what) {
  const std::optional<cell_id> c = allocator.allocate(what...);
  if (c) tx.on_rollback<&Allocator::release>(allocator, *c);
  return c;
}
template <CellAllocator Allocator>
bool allocate_at(transaction& tx, Allocator& allocator, cell_id c) {
  if (!allocator.allocate_at(c)) return false;
  tx.on_rollback<&Allocator::release>(allocator, c);
  return true;
}
template <CellAllocator Allocator>
void release(transaction& tx, Allocator& allocator, cell_id c) {
  allocator.release(c);
  tx.on_rollback<&detail::take_again<Allocator>>(allocator, c);
}

inline bool reserve(transaction& tx, reserving_buddy_allocator& allocator, cell_count more) {
  if (!allocator.reserve(more)) return false;
  tx.on_rollback<&reserving_buddy_allocator::cancel_reservation>(allocator, more);
  return true;
}
inline void cancel_reservation(transaction& tx, reserving_buddy_allocator& allocator,
                               cell_count reservations) {
  allocator.cancel_reservation(reservations);
  tx.on_rollback<&detail::reserve_again>(allocator, reservations);
}

template <CellTree Tree>
typename priority_usage<Tree>::class_t assign(transaction& tx, priority_usage<Tree>& use,
                                              cell_id leaf,
                                              typename priority_usage<Tree>::class_t to) {
  const auto from = use.assign(leaf, to);
  tx.on_rollback<&priority_usage<Tree>::assign>(use, leaf, from);
  return from;
}

[[nodiscard]] inline bool charge(transaction& tx, quota_ledger& ledger, tenant_id tenant,
                                 level_t level) {
  if (!ledger.charge(tenant, level)) return false;
  tx.on_rollback<&quota_ledger::refund>(ledger, tenant, level);
  return true;
}
inline void refund(transaction& tx, quota_ledger& ledger, tenant_id tenant, level_t level) {
  ledger.refund(tenant, level);
  tx.on_rollback<&detail::charge_again>(ledger, tenant, level);
}
inline void set_quota(transaction& tx, quota_ledger& ledger, tenant_id tenant, cell_count quota) {
  const cell_count before{quota.level, ledger.quota(tenant, quota.level)};
  ledger.set_quota(tenant, quota);
  tx.on_rollback<&quota_ledger::set_quota>(ledger, tenant, before);
}

inline void place_task(transaction& tx, node_table& nodes, const task_request& task,
                       placement where) {
  apiary::place_task(nodes, task, where);
  tx.on_rollback<&apiary::remove_task>(nodes, task, where);
}
inline void remove_task(transaction& tx, node_table& nodes, const task_request& task,
                        placement where) {
  apiary::remove_task(nodes, task, where);
  tx.on_rollback<&apiary::place_task>(nodes, task, where);
}

}  // namespace journaled

APIARY_NAMESPACE_END
