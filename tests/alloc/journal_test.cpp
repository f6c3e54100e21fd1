// apiary/tests/alloc/journal_test.cpp - what is rolled back was never there.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/journal.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <support/archetypes.h>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <type_traits>
#include <vector>

using namespace apiary;

namespace {

static_assert(!std::is_copy_constructible_v<transaction>);

struct text {
  std::string value;
  void append(char a, std::uint64_t b, char c) { value += a + std::to_string(b) + c; }
};
void append_digit(text& t, double d) { t.value += std::to_string(static_cast<int>(d)); }

// Everything that a transaction may touch.
struct state {
  buddy_allocator<ragged_tree> cells;
  reserving_buddy_allocator guarded;
  priority_usage<ragged_tree> use;
  quota_ledger quotas;

  state(const ragged_tree& ragged, const uniform_tree& uniform)
      : cells(ragged), guarded(uniform), use(ragged, 4), quotas(uniform.num_levels()) {
    const std::array<tenant_id, 2> tenants{quotas.add_tenant(), quotas.add_tenant()};
    for (level_t l = 0; l < uniform.num_levels(); ++l) {
      REQUIRE(guarded.reserve(l, 1));
      for (const tenant_id tenant : tenants) quotas.set_quota(tenant, l, 3);
    }
  }
  friend bool operator==(const state&, const state&) = default;
};

template <CellTree Tree>
std::optional<cell_id> some_live(const buddy_allocator<Tree>& cells, rng& random) {
  const std::uint32_t n = cells.tree().num_cells();
  const std::uint32_t from = random.uniform(n);
  for (std::uint32_t i = 0; i < n; ++i)
    if (const cell_id c((from + i) % n); cells.is_live(c)) return c;
  return std::nullopt;
}

void change_something(transaction& tx, state& s, rng& random) {
  const uniform_tree& tree = s.guarded.tree();
  const level_t level = random.uniform(tree.num_levels());
  const tenant_id tenant(random.uniform(2));
  const cell_id any(random.uniform(s.cells.tree().num_cells()));
  switch (random.uniform(11)) {
    case 0:
      tx.allocate(s.cells, random.uniform(s.cells.tree().num_levels()));
      break;
    case 1:
      tx.allocate(s.cells, cell_request{.level = random.uniform(s.cells.tree().num_levels())},
                  [](cell_id c) { return c.value % 3; });
      break;
    case 2:
      tx.allocate_at(s.cells, any);
      break;
    case 3:
    case 4:
      if (const auto c = some_live(s.cells, random)) tx.release(s.cells, *c);
      break;
    case 5:
      tx.allocate(s.guarded, level);
      break;
    case 6:
      tx.allocate_at(s.guarded, cell_id(random.uniform(tree.num_cells())));
      break;
    case 7:
      if (const auto c = some_live(s.guarded.cells(), random)) tx.release(s.guarded, *c);
      break;
    case 8: {
      const id_range<cell_id> all = s.use.tree().cells(0);
      const std::uint32_t k = random.uniform(5);
      tx.assign(s.use, all[random.uniform(all.size())],
                k == 4 ? priority_usage<ragged_tree>::unused : static_cast<std::uint8_t>(k));
      break;
    }
    case 9:
      static_cast<void>(tx.charge(s.quotas, tenant, level));
      break;
    default:
      if (s.quotas.allocated(tenant, level) > 0) tx.refund(s.quotas, tenant, level);
  }
}

// Cells that are like those of `before`, and find the same ones: what makes that fast lies outside
// of the comparison.
template <class Allocator>
bool finds_the_same(const Allocator& cells, const Allocator& before) {
  const auto third = [](cell_id c) { return c.value % 3; };
  for (level_t l = 0; l < cells.tree().num_levels(); ++l) {
    for (level_t highest = l; highest < cells.tree().num_levels(); ++highest) {
      const cell_request request{.level = l, .highest = highest};
      if (cells.find(request) != before.find(request)) return false;
      if (cells.find(request, third) != before.find(request, third)) return false;
    }
  }
  return true;
}
bool is_as(const state& s, const state& before) {
  return s == before && finds_the_same(s.cells, before.cells) &&
         finds_the_same(s.guarded, before.guarded);
}

// A transaction of random changes and random transactions inside it.
void tentative(journal& log, state& s, rng& random, int depth, std::uint64_t& changes) {
  const state before = s;
  std::optional<state> committed;
  {
    transaction tx(log);
    for (std::uint32_t i = random.uniform(40); i > 0; --i) {
      if (depth < 4 && random.uniform(20) == 0) {
        tentative(log, s, random, depth + 1, changes);
      } else {
        change_something(tx, s, random);
        ++changes;
      }
    }
    switch (random.uniform(3)) {
      case 0:
        committed = s;
        tx.commit();
        break;
      case 1:
        tx.rollback();
        REQUIRE(is_as(s, before));
        break;
      default:
        break;  // the end of the scope rolls back
    }
  }
  REQUIRE(is_as(s, committed ? *committed : before));
}

}  // namespace

TEST_CASE(
    "nested transactions over cells, usage and quotas roll back to the copy, a million changes") {
  rng random(51);
  journal log;
  const auto target = apiary_test::scaled<std::uint64_t>(1'000'000);
  std::uint64_t changes = 0;
  for (std::uint64_t round = 0; changes < target; ++round) {
    CAPTURE(round);
    state s(ragged_tree(apiary_test::random_table(random, 4, 40)), uniform_tree({3, 2, 2, 2}));
    for (int i = 0; i < 200; ++i) tentative(log, s, random, 0, changes);
    REQUIRE(log.mark() == 0);
  }
}

TEST_CASE("undo functions are called last first, with their own arguments") {
  journal log;
  text t;
  log.on_rollback<&text::append>(t, 'a', std::uint64_t{7}, 'b');
  const journal::mark_type mark = log.mark();
  log.on_rollback<&append_digit>(t, 3.0);
  log.on_rollback<&text::append>(t, 'x', std::uint64_t{1} << 40, 'y');
  log.rollback(mark);
  CHECK(t.value == "x1099511627776y3");
  CHECK(log.mark() == mark);
  log.rollback(0);
  CHECK(t.value == "x1099511627776y3a7b");
}

TEST_CASE("what an inner transaction committed goes with the outer one") {
  journal log;
  text t;
  {
    transaction outer(log);
    outer.on_rollback<&append_digit>(t, 1.0);
    {
      transaction inner(log);
      inner.on_rollback<&append_digit>(t, 2.0);
      inner.commit();
    }
    CHECK(t.value.empty());
    { const transaction abandoned(log); }
    CHECK(t.value.empty());
  }
  CHECK(t.value == "21");
  {
    transaction outer(log);
    outer.on_rollback<&append_digit>(t, 5.0);
    outer.commit();
  }
  log.rollback(0);
  CHECK(t.value == "21");
}

TEST_CASE("what a transaction committed goes with what was recorded before it") {
  journal log;
  text t;
  log.on_rollback<&append_digit>(t, 1.0);
  const journal::mark_type mark = log.mark();
  {
    transaction tx(log);
    tx.on_rollback<&append_digit>(t, 2.0);
    tx.commit();
  }
  CHECK(log.mark() == 2);
  {
    transaction tx(log);
    tx.on_rollback<&append_digit>(t, 3.0);
  }
  CHECK(t.value == "3");
  log.on_rollback<&append_digit>(t, 4.0);
  log.rollback(mark);
  CHECK(t.value == "342");
  {
    transaction outer(log);
    {
      transaction inner(log);
      inner.on_rollback<&append_digit>(t, 5.0);
      inner.commit();
    }
    outer.commit();
  }
  log.rollback(0);
  CHECK(t.value == "34251");
  log.on_rollback<&append_digit>(t, 6.0);
  log.commit();
  log.rollback(0);
  CHECK(t.value == "34251");
}
