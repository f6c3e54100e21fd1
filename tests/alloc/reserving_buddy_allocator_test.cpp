// apiary/tests/alloc/reserving_buddy_allocator_test.cpp - no legal request is ever refused.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <support/brute_force_guard.h>
#include <support/cell_allocator_suite.h>
#include <support/scale.h>
#include <unordered_set>
#include <vector>

using namespace apiary;

namespace {

uniform_tree random_tree(rng& random, std::uint32_t most_leaves) {
  std::vector<std::uint32_t> fan_outs;
  std::uint32_t leaves = 1;
  for (std::uint32_t levels = 1 + random.uniform(5); levels > 0; --levels) {
    const std::uint32_t largest = most_leaves / leaves;
    fan_outs.push_back(1 + random.uniform(largest < 6 ? largest : 6));
    leaves *= fan_outs.back();
  }
  return uniform_tree(fan_outs);
}

// Reserves cells of random levels, a few at a time, until `tries` of the calls failed.
void reserve_at_random(reserving_buddy_allocator& cells, rng& random, int tries) {
  while (tries > 0) {
    const level_t level = random.uniform(cells.tree().num_levels());
    if (!cells.reserve(level, 1 + random.uniform(3))) --tries;
  }
}

std::vector<std::uint32_t> reservations(const reserving_buddy_allocator& cells) {
  std::vector<std::uint32_t> result;
  for (level_t l = 0; l < cells.tree().num_levels(); ++l) result.push_back(cells.reserved(l));
  return result;
}

}  // namespace

TEST_CASE("no request within a tenant's quota is refused, ten million times") {
  rng random(17);
  std::uint64_t grants = 0;
  const auto target = apiary_test::scaled<std::uint64_t>(10'000'000);
  for (std::uint64_t operations = 0, round = 0; operations < target; ++round) {
    CAPTURE(round);
    const uniform_tree tree = random_tree(random, 200);
    reserving_buddy_allocator cells(tree);
    reserve_at_random(cells, random, 5);
    quota_ledger ledger(tree.num_levels());
    const std::uint32_t tenants = 1 + random.uniform(4);
    for (std::uint32_t t = 0; t < tenants; ++t) ledger.add_tenant();
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      std::uint32_t left = cells.reserved(l);
      for (std::uint32_t t = 0; t < tenants; ++t) {
        const std::uint32_t share = t + 1 == tenants ? left : random.uniform(left + 1);
        ledger.set_quota(tenant_id(t), l, share);
        left -= share;
      }
    }
    struct grant {
      cell_id cell;
      tenant_id tenant;
    };
    std::vector<grant> live;
    std::vector<std::uint32_t> costs(tree.num_cells());
    for (std::uint32_t& n : costs) n = random.uniform(8);
    const auto cost = [&](cell_id c) { return costs[c.value]; };
    for (int step = 0; step < 20'000; ++step, ++operations) {
      if (random.uniform(2) == 0 && !live.empty()) {
        const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(live.size()));
        cells.release(live[i].cell);
        ledger.refund(live[i].tenant, tree.level(live[i].cell));
        live[i] = live.back();
        live.pop_back();
      } else {
        const tenant_id tenant(random.uniform(tenants));
        const level_t level = random.uniform(tree.num_levels());
        std::optional<cell_id> c;
        if (ledger.charge(tenant, level)) {
          // Any choice of the free cell keeps the reservations: first, cheapest, arbitrary.
          const std::uint32_t how = random.uniform(3);
          const cell_id any = tree.at(level, random.uniform(tree.cells(level).size()));
          if (how == 0 && cells.allocate_at(any)) {
            c = any;
          } else {
            c = how == 1 ? cells.allocate({.level = level}, cost) : cells.allocate(level);
          }
          if (!c) FAIL("a legal request was refused");
          live.push_back({*c, tenant});
          ++grants;
        }
      }
      if (!cells.invariant_holds()) FAIL("the invariant does not hold");
    }
    for (level_t l = 0; l < tree.num_levels(); ++l)
      REQUIRE(ledger.total_remaining()[l] == cells.reserved(l));
  }
  CHECK(grants > target / 10);
}

TEST_CASE(
    "with bad, healed and suggested nodes, a request fails only if no safe usable cell exists") {
  rng random(23);
  std::uint64_t refused = 0;
  const auto target = apiary_test::scaled<std::uint64_t>(1'000'000);
  for (std::uint64_t operations = 0, round = 0; operations < target; ++round) {
    CAPTURE(round);
    const uniform_tree tree = random_tree(random, 40);
    const apiary_test::brute_force_guard guard(tree);
    reserving_buddy_allocator cells(tree);
    reserve_at_random(cells, random, 1 + static_cast<int>(random.uniform(8)));
    health good(tree);
    std::vector<cell_id> live;
    std::uint64_t taken = 0;
    for (int step = 0; step < 400; ++step, ++operations) {
      const cell_id any(random.uniform(tree.num_cells()));
      switch (random.uniform(6)) {
        case 0:
          good.mark_bad(any);
          break;
        case 1:
          good.mark_healthy(any);
          break;
        case 2:
          if (!live.empty()) {
            const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(live.size()));
            cells.release(live[i]);
            taken &= ~guard.mask(live[i]);
            live[i] = live.back();
            live.pop_back();
          }
          break;
        default: {
          const level_t level = random.uniform(tree.num_levels());
          summary_bitset usable = good.usable();
          if (random.uniform(2) == 0) {
            health suggested(tree, false);
            for (int i = 0; i < 4; ++i)
              suggested.mark_healthy(cell_id(random.uniform(tree.num_cells())));
            usable &= suggested.usable();
          }
          std::vector<cell_id> safe = guard.safe_cells(level, taken, reservations(cells));
          std::erase_if(safe, [&](cell_id c) { return !usable.test(c.value); });
          const std::optional<cell_id> expected = cells.find({.level = level, .usable = &usable});
          const std::optional<cell_id> c = cells.allocate({.level = level, .usable = &usable});
          REQUIRE(c == expected);
          REQUIRE(c.has_value() == !safe.empty());
          refused += c ? 0U : 1U;
          if (!c) break;
          REQUIRE(std::find(safe.begin(), safe.end(), *c) != safe.end());
          live.push_back(*c);
          taken |= guard.mask(*c);
        }
      }
      REQUIRE(guard.invariant(taken, reservations(cells)));
      REQUIRE(cells.invariant_holds());
    }
  }
  CHECK(refused > target / 20);
}

namespace {

// What every sequence of operations can lead to: from each reachable state, every operation with
// every filter, judged by brute force. States that were seen are not entered again, so that
// sequences of any length are covered.
struct exploration {
  std::uint64_t states = 0;
  std::uint64_t requests = 0;
};

void explore(const uniform_tree& tree, const std::vector<std::uint32_t>& reserved,
             const std::vector<summary_bitset>& filters, const std::vector<std::uint64_t>& allowed,
             exploration& seen) {
  const apiary_test::brute_force_guard guard(tree);
  reserving_buddy_allocator start(tree);
  for (level_t l = 0; l < tree.num_levels(); ++l) REQUIRE(start.reserve(l, reserved[l]));
  std::deque<reserving_buddy_allocator> open{start};
  std::unordered_set<std::uint64_t> visited{0};
  const auto key = [&](const reserving_buddy_allocator& cells) {
    std::uint64_t bits = 0;
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i)
      bits |= std::uint64_t{cells.cells().is_live(cell_id(i))} << i;
    return bits;
  };
  const auto enter = [&](const reserving_buddy_allocator& cells) {
    if (visited.insert(key(cells)).second) open.push_back(cells);
  };
  while (!open.empty()) {
    const reserving_buddy_allocator cells = open.front();
    open.pop_front();
    ++seen.states;
    std::uint64_t taken = 0;
    std::vector<cell_id> live;
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      if (!cells.cells().is_live(cell_id(i))) continue;
      live.push_back(cell_id(i));
      taken |= guard.mask(cell_id(i));
    }
    const std::vector<std::uint32_t> reserved = reservations(cells);
    if (!guard.invariant(taken, reserved) || !cells.invariant_holds())
      FAIL("the invariant does not hold");
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      const std::vector<cell_id> safe = guard.safe_cells(l, taken, reserved);
      if ((reserved[l] > 0) == safe.empty()) FAIL("the theorem does not hold");
      std::uint64_t safe_bits = 0;
      for (const cell_id c : safe) safe_bits |= std::uint64_t{1} << c.value;
      for (std::size_t w = 0; w < filters.size(); ++w) {
        const std::optional<cell_id> c = cells.find({.level = l, .usable = &filters[w]});
        bool possible = false;
        for (const cell_id s : safe) possible = possible || (guard.mask(s) & ~allowed[w]) == 0;
        if (c.has_value() != possible)
          FAIL("a safe usable cell was missed, or an unsafe one taken");
        if (c && ((safe_bits >> c->value & 1) == 0 || (guard.mask(*c) & ~allowed[w]) != 0))
          FAIL("an unsafe or unusable cell was taken");
        ++seen.requests;
      }
      reserving_buddy_allocator next = cells;
      if (next.allocate(l).has_value() != (reserved[l] > 0)) FAIL("a legal request was refused");
      for (const cell_id c : tree.cells(l)) {
        next = cells;
        const bool granted = next.allocate_at(c);
        if (granted != ((safe_bits >> c.value & 1) != 0)) FAIL("allocate_at misjudged");
        if (!granted && next != cells) FAIL("a refusal changed the state");
        if (granted) enter(next);
      }
      std::vector<std::uint32_t> more = reserved;
      ++more[l];
      next = cells;
      if (next.reserve(l, 1) != guard.invariant(taken, more)) FAIL("reservation misjudged");
    }
    for (const cell_id c : live) {
      reserving_buddy_allocator next = cells;
      next.release(c);
      enter(next);
    }
  }
}

}  // namespace

TEST_CASE("every sequence of operations on every tree of up to 8 leaves and 3 levels is safe") {
  // Sequences of any length: the exploration ends only when no operation leads anywhere new.
  std::vector<std::vector<std::uint32_t>> shapes;
  for (std::uint32_t a = 1; a <= 8; ++a) {
    shapes.push_back({a});
    for (std::uint32_t b = 1; a * b <= 8; ++b) {
      shapes.push_back({a, b});
      for (std::uint32_t c = 1; a * b * c <= 8; ++c) shapes.push_back({a, b, c});
    }
  }
  exploration seen;
  std::size_t shape_number = 0;
  for (const std::vector<std::uint32_t>& shape : shapes) {
    CAPTURE(shape_number++);
    const uniform_tree tree(shape);
    // Every set of usable leaves: bad nodes, healed ones and host filters are all of this kind.
    const std::uint32_t n = tree.num_leaves();
    std::vector<summary_bitset> filters;
    std::vector<std::uint64_t> allowed;
    for (std::uint64_t w = 0; w < std::uint64_t{1} << n; ++w) {
      health state(tree, false);
      for (const cell_id leaf : tree.cells(0))
        if ((w >> tree.index(leaf, 0) & 1) != 0) state.mark_healthy(leaf);
      filters.push_back(state.usable());
      allowed.push_back(w);
    }
    // Every reservation that is feasible.
    std::vector<std::uint32_t> reserved(tree.num_levels(), 0);
    const apiary_test::brute_force_guard guard(tree);
    const auto step =
        apiary_test::scale() < 1.0 ? static_cast<std::uint32_t>(1.0 / apiary_test::scale()) : 1U;
    std::uint32_t number = 0;
    while (true) {
      if (guard.invariant(0, reserved) && number++ % step == 0)
        explore(tree, reserved, filters, allowed, seen);
      level_t l = 0;
      while (l < tree.num_levels() && reserved[l] == tree.cells(l).size()) reserved[l++] = 0;
      if (l == tree.num_levels()) break;
      ++reserved[l];
    }
  }
  MESSAGE(seen.states, " states, ", seen.requests, " filtered requests");
  CHECK(seen.states > 1000);
}

namespace {

// An allocator with so many reservations that it behaves like any other, except that a level without
// reservations has no capacity.
reserving_buddy_allocator one_reservation_per_level(const uniform_tree& tree) {
  reserving_buddy_allocator cells(tree);
  for (level_t l = 0; l < tree.num_levels(); ++l) REQUIRE(cells.reserve(l, 2));
  return cells;
}

}  // namespace

TEST_CASE("the guarded allocator behaves as a cell allocator") {
  rng random(3);
  const uniform_tree tree({4, 3, 2, 2});
  apiary_test::check_cell_allocator(one_reservation_per_level(tree), tree, random,
                                    apiary_test::scaled(5000));
}

TEST_CASE("a bad cell is not avoided at the cost of another reservation") {
  const uniform_tree tree({2, 4});  // racks 0 and 1 of four nodes
  reserving_buddy_allocator cells(tree);
  REQUIRE(cells.reserve(1, 1));
  REQUIRE(cells.reserve(0, 4));
  CHECK_FALSE(cells.reserve(0, 1));
  REQUIRE(cells.allocate_at(tree.at(0, 0)));  // rack 0 is split now
  health good(tree);
  for (const std::uint32_t i : {1U, 2U, 3U}) good.mark_bad(tree.at(0, i));
  CHECK_FALSE(cells.allocate({.level = 0, .usable = &good.usable()}).has_value());
  CHECK_FALSE(cells.allocate_at(tree.at(0, 4)));
  CHECK(cells.allocate(0) == tree.at(0, 1));
  cells.cancel_reservation(1, 1);
  CHECK(cells.allocate({.level = 0, .usable = &good.usable()}) == tree.at(0, 4));
  CHECK(cells.splittable(1) == 0);
  CHECK(cells.splittable(0) == 4);
}

TEST_CASE("without a reservation nothing is found, with a cost or without") {
  const uniform_tree tree({2, 4});
  reserving_buddy_allocator cells(tree);
  REQUIRE(cells.reserve(1, 1));
  const auto cost = [](cell_id c) { return c.value; };
  CHECK_FALSE(cells.find({.level = 0}).has_value());
  CHECK_FALSE(cells.find({.level = 0}, cost).has_value());
  CHECK_FALSE(cells.allocate({.level = 0}, cost).has_value());
  REQUIRE(cells.reserve(0, 1));
  CHECK(cells.find({.level = 0}, cost) == cells.find({.level = 0}));
}
