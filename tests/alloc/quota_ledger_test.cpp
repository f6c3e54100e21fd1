// apiary/tests/alloc/quota_ledger_test.cpp - quotas, and what of them is forced onto bad cells.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace apiary;

TEST_CASE("charges stop at the quota and totals are the sums over tenants") {
  rng random(4);
  constexpr level_t levels = 3;
  constexpr std::uint32_t tenants = 4;
  quota_ledger ledger(levels);
  std::map<std::pair<std::uint32_t, level_t>, std::pair<std::uint32_t, std::uint32_t>> expected;
  for (std::uint32_t t = 0; t < tenants; ++t) REQUIRE(ledger.add_tenant() == tenant_id(t));
  for (int step = 0; step < 20'000; ++step) {
    const std::uint32_t t = random.uniform(tenants);
    const level_t l = random.uniform(levels);
    auto& [quota, allocated] = expected[{t, l}];
    switch (random.uniform(4)) {
      case 0:
        quota = allocated + random.uniform(6);
        ledger.set_quota(tenant_id(t), l, quota);
        break;
      case 1:
        if (allocated == 0) break;
        --allocated;
        ledger.refund(tenant_id(t), l);
        break;
      default:
        REQUIRE(ledger.charge(tenant_id(t), l) == (allocated < quota));
        if (allocated < quota) ++allocated;
    }
    std::array<std::uint64_t, levels> total{};
    for (const auto& [where, counts] : expected) {
      const tenant_id tenant(where.first);
      REQUIRE(ledger.quota(tenant, where.second) == counts.first);
      REQUIRE(ledger.allocated(tenant, where.second) == counts.second);
      REQUIRE(ledger.remaining(tenant, where.second) == counts.first - counts.second);
      total[where.second] += counts.first - counts.second;
    }
    REQUIRE(std::equal(total.begin(), total.end(), ledger.total_remaining().begin()));
  }
}

TEST_CASE("quotas beyond 2^32 in all do not look like none") {
  quota_ledger ledger(1);
  constexpr std::uint32_t half = std::uint32_t{1} << 31;
  const tenant_id a = ledger.add_tenant();
  ledger.set_quota(a, 0, half);
  ledger.set_quota(ledger.add_tenant(), 0, half);
  CHECK(ledger.total_remaining()[0] == std::uint64_t{1} << 32);
  CHECK_FALSE(reserving_buddy_allocator::can_reserve(
      uniform_tree({8}), std::vector<std::uint32_t>{8}, ledger.total_remaining()));
  REQUIRE(ledger.charge(a, 0));
  ledger.set_quota(a, 0, 1);
  CHECK(ledger.total_remaining()[0] == half);
}

TEST_CASE("cells are doomed only as far as the counts force it") {
  quota_ledger ledger(2);
  const tenant_id a = ledger.add_tenant();
  const tenant_id b = ledger.add_tenant();
  ledger.set_quota(a, 1, 3);
  ledger.set_quota(b, 1, 1);
  CHECK(ledger.doomed(a, 1, 3) == 0);
  CHECK(ledger.doomed(a, 1, 1) == 2);
  CHECK(ledger.doomed(b, 1, 1) == 0);
  CHECK(ledger.doomed(b, 1, 0) == 1);
  REQUIRE(ledger.charge(a, 1));
  CHECK(ledger.doomed(a, 1, 1) == 1);
  CHECK(ledger.doomed(a, 0, 0) == 0);
}
