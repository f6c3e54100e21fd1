// apiary/tests/alloc/transaction_test.cpp - changes within a transaction, and their taking back.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/journal.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/rng.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

TEST_CASE("each function changes what the plain one changes, and a rollback changes it back") {
  const uniform_tree tree({2, 2, 2});
  buddy_allocator<uniform_tree> cells(tree);
  reserving_buddy_allocator safe(tree);
  priority_usage<uniform_tree> use(tree, 3);
  quota_ledger ledger(tree.num_levels());
  const tenant_id tenant = ledger.add_tenant();
  REQUIRE(cells.allocate_at(tree.at(0, 7)));
  REQUIRE(safe.reserve(0, 2));
  ledger.set_quota(tenant, 1, 2);
  REQUIRE(ledger.charge(tenant, 1));
  const auto cells_before = cells;
  const auto safe_before = safe;
  const auto use_before = use;
  const auto ledger_before = ledger;

  journal log;
  {
    transaction tx(log);
    CHECK(tx.allocate(cells, level_t{1}) == tree.at(1, 2));
    CHECK(tx.allocate_at(cells, tree.at(0, 0)));
    CHECK_FALSE(tx.allocate_at(cells, tree.at(2, 0)));
    tx.release(cells, tree.at(0, 7));
    CHECK(tx.allocate(safe, level_t{0}).has_value());
    CHECK(tx.assign(use, tree.at(0, 3), std::uint8_t{2}) == priority_usage<uniform_tree>::unused);
    CHECK(tx.charge(ledger, tenant, 1));
    CHECK_FALSE(tx.charge(ledger, tenant, 1));
    tx.refund(ledger, tenant, 1);
    tx.refund(ledger, tenant, 1);
    CHECK_FALSE(cells == cells_before);
    CHECK_FALSE(safe == safe_before);
    CHECK_FALSE(use == use_before);
    CHECK_FALSE(ledger == ledger_before);
  }
  CHECK(cells == cells_before);
  CHECK(safe == safe_before);
  CHECK(use == use_before);
  CHECK(ledger == ledger_before);
}

TEST_CASE("tasks on nodes are taken back in the reverse order, nested or not") {
  rng random(23);
  node_table nodes = apiary_test::random_nodes(random, 6);
  std::vector<std::pair<task_request, placement>> running;
  journal log;
  const std::uint32_t rounds = apiary_test::scaled(40000U);
  // Makes up to eight changes and ends them one way or the other.
  const auto some_changes = [&](auto&& self, std::uint32_t depth) -> void {
    const node_table before = nodes;
    const auto running_before = running;
    transaction tx(log);
    const std::uint32_t changes = random.uniform(8);
    for (std::uint32_t i = 0; i < changes; ++i) {
      const task_request task = apiary_test::random_task(random, i);
      const node_id n(random.uniform(nodes.size()));
      if (!running.empty() && random.uniform(2) == 0) {
        tx.remove(nodes, running.back().first, running.back().second);
        running.pop_back();
      } else if (nodes[n].fits(task)) {
        placement where{n, 0};
        if (task.wants_whole_gpus()) where.gpu_mask = nodes[n].first_free_gpus(task.gpus);
        if (task.wants_part_of_gpu()) where.gpu_mask = nodes[n].tightest_gpu(task.gpu_milli);
        tx.place(nodes, task, where);
        running.push_back({task, where});
      }
      if (depth < 3 && random.uniform(8) == 0) self(self, depth + 1);
    }
    if (random.uniform(2) == 0) {
      tx.commit();
    } else {
      tx.rollback();
      running = running_before;
      REQUIRE(nodes == before);
    }
  };
  for (std::uint32_t round = 0; round < rounds; ++round) some_changes(some_changes, 0);
}

TEST_CASE("after a rollback an allocator has what it had, and grants what it would have granted") {
  rng random(29);
  const uniform_tree tree({3, 2, 2, 4});
  const auto changes = [&](transaction& tx, buddy_allocator<uniform_tree>& cells,
                           std::vector<cell_id>& held) {
    for (std::uint32_t i = random.uniform(20); i > 0; --i) {
      const cell_id c(random.uniform(tree.num_cells()));
      if (!held.empty() && random.uniform(2) == 0) {
        std::swap(held[random.uniform(static_cast<std::uint32_t>(held.size()))], held.back());
        tx.release(cells, held.back());
        held.pop_back();
      } else if (random.uniform(3) == 0 ? tx.allocate_at(cells, c) : false) {
        held.push_back(c);
      } else if (const auto granted = tx.allocate(cells, static_cast<level_t>(random.uniform(4)))) {
        held.push_back(*granted);
      }
    }
  };
  journal log;
  for (std::uint32_t round = 0; round < apiary_test::scaled(2000U); ++round) {
    CAPTURE(round);
    buddy_allocator<uniform_tree> cells(tree);
    std::vector<cell_id> held;
    {
      transaction tx(log);
      changes(tx, cells, held);
      tx.commit();
    }
    buddy_allocator<uniform_tree> untouched = cells;
    {
      transaction tx(log);
      changes(tx, cells, held);
    }
    REQUIRE(cells == untouched);
    for (bool any = true; any;) {
      any = false;
      const auto l = static_cast<level_t>(random.uniform(4));
      for (level_t k = l;; --k) {
        const auto granted = untouched.allocate(k);
        REQUIRE(cells.allocate(k) == granted);
        any = any || granted;
        if (k == 0) break;
      }
    }
  }
}

}  // namespace
