// apiary/tests/hived/detail/refusal_test.cpp - what a gang would find, against counting every leaf.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_play.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/search.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::hived_play;

// Whether tasks of equal size fit, were all leaves healthy: every leaf of every node is looked at.
bool naive_repaired(const physical_chain& chain, task_group tasks) {
  std::uint32_t fitting = 0;
  for (const cell_id node : chain.tree().cells(chain.node_level())) {
    std::uint32_t idle = 0;
    for (const cell_id leaf : chain.tree().descendants(node, 0)) idle += chain.holders(leaf).idle();
    fitting += idle / tasks.gpus;
  }
  return fitting >= tasks.tasks;
}
bool naive_repaired(const hived& h, vc_chain_id c, std::int32_t priority,
                    std::optional<gang_slot> restarted, task_group tasks) {
  const virtual_cluster& cluster = h.cells().cluster(c);
  const physical_chain& chain = h.cells().chain(cluster.chain());
  std::uint32_t fitting = 0;
  for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
    std::uint32_t free = 0;
    for (std::uint32_t i = 0; i < cluster.range_of_node(n).leaves; ++i) {
      const cell_id image = cluster.image(cell_id(cluster.first_leaf(n).value + i));
      if (!image.valid()) {
        ++free;
        continue;
      }
      const leaf_holders h_at = chain.holders(image);
      const bool claimed = h_at.claimer.valid() && h_at.claimer != restarted;
      const gang_slot holder = claimed ? h_at.claimer : h_at.guaranteed ? h_at.user : gang_slot();
      if (!holder.valid() || h.gangs()[holder].request.priority < priority) ++free;
    }
    fitting += free / tasks.gpus;
  }
  return fitting >= tasks.tasks;
}

TEST_CASE("what repaired hardware would hold is what counting every leaf says") {
  std::uint64_t asked = 0;
  std::uint64_t fit = 0;
  const std::uint64_t runs = apiary_test::scaled(std::uint64_t{300});
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(7'000 + run);
    const hived_config config = apiary_test::random_cluster(random);
    hived_play host(config, random(),
                    {.gangs = 50, .ends = 8, .tasks = 10, .pursued = 20, .marks = 25});
    hived_refusal refusal;
    for (int step = 0; step < 120; ++step) {
      host.step();
      if (step % 4 != 0) continue;
      const hived& h = host.scheduler;
      for (std::uint32_t c = 0; c < h.cells().num_chains(); ++c) {
        const physical_chain& chain = h.cells().chain(c);
        for (std::uint32_t size = 1; size <= chain.node_leaves(); ++size) {
          gang_request r;
          r.groups = {{1 + random.uniform(6), size}};
          const bool expected = naive_repaired(chain, r.groups[0]);
          REQUIRE(refusal.may_count(h.cells(), h.gangs(), r, {c}) == expected);
          ++asked;
          fit += expected ? 1U : 0U;
        }
      }
      for (std::uint32_t c = 0; c < h.cells().num_clusters(); ++c) {
        const vc_chain_id at(c);
        std::vector<std::optional<gang_slot>> restarts = {std::nullopt};
        for (const auto& [g, slot] : h.gangs().of_cluster(at))
          if (!g.runs) restarts.emplace_back(slot);
        for (const std::optional<gang_slot> restarted : restarts) {
          gang_request r;
          r.priority = static_cast<std::int32_t>(random.uniform(5));
          r.groups = {{1 + random.uniform(6), 1 + random.uniform(4)}};
          const bool expected = naive_repaired(h, at, r.priority, restarted, r.groups[0]);
          const std::uint32_t chain = h.cells().cluster(at).chain();
          REQUIRE(refusal.may_count(h.cells(), h.gangs(), r,
                                    {chain, at, wait_reason::busy, restarted}) == expected);
          ++asked;
          fit += expected ? 1U : 0U;
        }
      }
    }
  }
  MESSAGE("asked " << asked << ", fit " << fit);
  CHECK((fit > 0 && fit < asked));
}

}  // namespace
