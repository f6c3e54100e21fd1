// apiary/tests/fgd/detail/fragmentation_migrations_test.cpp - the best move of one task, against trying all.
// SPDX-License-Identifier: MIT
#include "support/naive_migrations.h"
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/fragmentation_migrations.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

constexpr node_shape two_gpus{{16000, 16384}, 2, 0};

task_request part_of_gpu(milli_gpu milli) {
  return {.job = job_id(0), .cpu_milli = 1000, .gpus = 1, .gpu_milli = milli};
}

}  // namespace

TEST_CASE("two halves on two GPUs of a node go together where whole GPUs are asked for") {
  const fragmentation metric(task_mix({{{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 1000}, 1}}));
  node_table nodes;
  nodes.add(two_gpus);
  std::vector<placed_request> tasks = {{part_of_gpu(500), {node_id(0), 1}},
                                       {part_of_gpu(500), {node_id(0), 2}}};
  for (const placed_request& t : tasks) nodes.place(t.task, t.where);
  fragmentation_migrations moves(metric);
  // 1000 thousandths less, for half a GPU moved.
  CHECK(moves.best(nodes, tasks, 1999) == fragmentation_migration{0, {node_id(0), 2}, 1000});
  CHECK(!moves.best(nodes, tasks, 2000));
  CHECK(!moves.best(nodes, {}, 0));
}

TEST_CASE("an empty mix moves nothing") {
  node_table nodes;
  nodes.add(two_gpus);
  nodes.add(two_gpus);
  const placed_request t{part_of_gpu(500), {node_id(0), 1}};
  nodes.place(t.task, t.where);
  fragmentation_migrations moves{fragmentation(task_mix())};
  CHECK(!moves.best(nodes, std::vector{t}, 0));
}

TEST_CASE("random clusters: the move that trying all of them finds, until none is left") {
  std::uint64_t moved = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    node_table nodes = apiary_test::random_nodes(random, 1 + random.uniform(5));
    fragmentation_migrations moves{fragmentation(mix)};
    std::vector<placed_request> tasks;
    for (std::uint32_t round = 0; round < 12; ++round) {
      // Some tasks start wherever they fit; some end; health changes.
      for (std::uint32_t j = 0; j < 6; ++j) {
        const task_request task = apiary_test::random_task(random, j);
        const node_id n(random.uniform(nodes.size()));
        if (!nodes[n].fits(task)) continue;
        std::uint32_t mask = task.wants_gpu() ? nodes[n].first_free_gpus(0) : 0;
        for (std::uint32_t d = 0, left = task.gpus; d < nodes[n].gpus && left > 0; ++d) {
          const std::uint32_t at = (d + round) % nodes[n].gpus;
          if (nodes[n].gpu_left[at] < task.gpu_milli) continue;
          mask |= 1U << at;
          --left;
        }
        tasks.push_back({task, {n, mask}});
        nodes.place(task, {n, mask});
        moves.update(n);
      }
      if (!tasks.empty() && random.uniform(2) == 0) {
        const auto i =
            static_cast<std::ptrdiff_t>(random.uniform(static_cast<std::uint32_t>(tasks.size())));
        nodes.remove(tasks[static_cast<std::size_t>(i)].task,
                     tasks[static_cast<std::size_t>(i)].where);
        moves.update(tasks[static_cast<std::size_t>(i)].where.node);
        tasks.erase(tasks.begin() + i);
      }
      const node_id sick(random.uniform(nodes.size()));
      nodes[sick].healthy = random.uniform(3) != 0;
      moves.update(sick);
      const std::uint32_t cost = random.uniform(2) * random.uniform(800);
      for (std::uint32_t i = 0; i < 40; ++i) {
        const auto found = moves.best(nodes, tasks, cost);
        REQUIRE(found == apiary_test::naive_best_move(mix, nodes, tasks, cost));
        if (!found) break;
        placed_request& t = tasks[found->task];
        const node_id from = t.where.node;
        nodes.remove(t.task, t.where);
        t.where = found->to;
        REQUIRE(nodes.can_place(t.task, t.where));
        nodes.place(t.task, t.where);
        moves.update(from);
        moves.update(t.where.node);
        ++moved;
      }
    }
  }
  CHECK(moved > 0);
}
