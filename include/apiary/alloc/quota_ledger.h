// apiary/alloc/quota_ledger.h - quota and use of cells, by tenant and level.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps, for every tenant and level, a quota of cells (r) and how many of them are in use (a). It
// only counts. reserving_buddy_allocator tells whether all quotas can be used together.
//
// Model:   HiveD (OSDI 2020) section 4: the allocator reserves the sum of r - a over all tenants.
// Cost:    O(1) a call; 8 bytes a tenant and level.
// Invalid: refunding what is not in use aborts (APIARY_VERIFY).
// Example: examples/quota_feasibility.cpp
class quota_ledger {
 public:
  // A ledger without tenants for trees of `num_levels` levels.
  explicit quota_ledger(level_t num_levels)
      : levels_(num_levels), total_remaining_(num_levels, 0) {}

  // Adds a tenant without quota.
  tenant_id add_tenant() {
    const tenant_id tenant(num_tenants());
    entries_.resize(entries_.size() + levels_);
    ++tenants_;
    return tenant;
  }
  // Sets the tenant's quota of cells of the level. Requires: quota >= allocated(tenant, level).
  void set_quota(tenant_id tenant, level_t level, std::uint32_t quota) noexcept {
    entry& e = at(tenant, level);
    APIARY_VERIFY(quota >= e.allocated);
    total_remaining_[level] += quota;
    total_remaining_[level] -= e.quota;
    e.quota = quota;
  }

  // Charges one cell of the level if the quota has one left. Returns whether it had.
  [[nodiscard]] bool charge(tenant_id tenant, level_t level) noexcept {
    entry& e = at(tenant, level);
    if (e.allocated == e.quota) return false;
    ++e.allocated;
    --total_remaining_[level];
    return true;
  }
  // Returns one charged cell of the level to the quota. Requires: allocated(tenant, level) > 0.
  void refund(tenant_id tenant, level_t level) noexcept {
    entry& e = at(tenant, level);
    APIARY_VERIFY(e.allocated > 0);
    --e.allocated;
    ++total_remaining_[level];
  }

  // The quota of cells of the level.
  [[nodiscard]] std::uint32_t quota(tenant_id tenant, level_t level) const noexcept {
    return at(tenant, level).quota;
  }
  // How many cells of the level are in use.
  [[nodiscard]] std::uint32_t allocated(tenant_id tenant, level_t level) const noexcept {
    return at(tenant, level).allocated;
  }
  // quota - allocated.
  [[nodiscard]] std::uint32_t remaining(tenant_id tenant, level_t level) const noexcept {
    return at(tenant, level).quota - at(tenant, level).allocated;
  }
  // The sum of remaining over all tenants, by level: what can_reserve of the allocator tests.
  [[nodiscard]] std::span<const std::uint64_t> total_remaining() const noexcept {
    return total_remaining_;
  }

  // How many of the tenant's remaining cells of the level must at least be on bad hardware if only
  // `healthy` free cells of that level are healthy (alloc/healthy_free.h keeps that count).
  [[nodiscard]] std::uint32_t doomed(tenant_id tenant, level_t level,
                                     std::uint32_t healthy) const noexcept {
    const std::uint32_t left = remaining(tenant, level);
    return left > healthy ? left - healthy : 0;
  }

  // The number of tenants.
  [[nodiscard]] std::uint32_t num_tenants() const noexcept { return tenants_; }
  // The number of levels with a quota.
  [[nodiscard]] level_t num_levels() const noexcept { return levels_; }
  friend bool operator==(const quota_ledger&, const quota_ledger&) = default;

 private:
  struct entry {
    std::uint32_t quota = 0;
    std::uint32_t allocated = 0;
    friend bool operator==(const entry&, const entry&) = default;
  };

  [[nodiscard]] entry& at(tenant_id tenant, level_t level) noexcept {
    APIARY_ASSERT(tenant.value < tenants_ && level < levels_);
    return entries_[std::size_t{tenant.value} * levels_ + level];
  }
  [[nodiscard]] const entry& at(tenant_id tenant, level_t level) const noexcept {
    APIARY_ASSERT(tenant.value < tenants_ && level < levels_);
    return entries_[std::size_t{tenant.value} * levels_ + level];
  }

  level_t levels_;
  std::uint32_t tenants_ = 0;
  detail::lean_vector<entry> entries_;          // of each tenant, a row of levels
  std::vector<std::uint64_t> total_remaining_;  // 64 bits: quotas may exceed what exists
};

APIARY_NAMESPACE_END
