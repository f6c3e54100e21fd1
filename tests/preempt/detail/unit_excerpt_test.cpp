// apiary/tests/preempt/detail/unit_excerpt_test.cpp - a cell as a cluster of its own, against the whole cluster.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/group_capacity.h>
#include <apiary/preempt/detail/read_levels.h>
#include <apiary/preempt/detail/unit_excerpt.h>
#include <apiary/preempt/victim_set.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <support/levels.h>
#include <support/scale.h>
#include <support/victim_loads.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

TEST_CASE("a cell alone has the gangs and the capacity that it has in the cluster") {
  for (std::uint64_t seed = 0; seed < scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    victim_load in = random_victim_load(seed, 100, static_cast<victim_gang>(seed % victim_gangs));
    colocated_groups groups;
    groups.assign(in.gang, node, in.capacities.top());
    detail::eviction_levels levels;
    detail::read_levels(in.capacities, in.capacities.top(), groups, 0, levels);
    const std::span<const resources> hosts(in.hosts.data(), in.hosted ? in.hosts.size() : 0);
    detail::group_capacity cells;
    cells.begin(levels, in.capacities.free(), hosts, in.candidates, in.allocations, in.freed);
    std::vector<std::uint32_t> tenants;
    const std::vector<disruption_budget> limits{{.gangs = 1}, {.gangs = 2}};
    for (std::uint32_t j = 0; j < in.candidates.size(); ++j) {
      tenants.push_back(random.uniform(3));  // 2: without a limit
      const std::uint32_t state = random.uniform(8);
      if (state == 0) cells.set_evicted(j, true);
      if (state == 1) cells.set_protected(j, true);
    }
    detail::disruption_tally tally;
    tally.begin({tenants, limits, {}}, in.candidates, in.allocations);

    const std::size_t h = 1 + random.uniform(static_cast<std::uint32_t>(levels.root()));
    const std::uint32_t c = random.uniform(levels.num_cells(h));
    detail::unit_excerpt excerpt;
    excerpt.begin(cells, h, c, 8, in.candidates, in.allocations, in.freed, tally);

    // Its gangs, in the order of their numbers, with what they have there.
    const auto [first, last] = levels.nodes(h, c);
    std::size_t gang = 0;
    for (std::uint32_t j = 0; j < in.candidates.size(); ++j) {
      std::vector<gpus_on_node> there;
      for (std::uint32_t a = in.candidates[j].first; a < in.candidates[j].last; ++a)
        if (in.allocations[a].node >= first && in.allocations[a].node < last)
          there.push_back({in.allocations[a].node - first, in.allocations[a].gpus});
      if (there.empty() || !cells.runs(j)) continue;
      REQUIRE(gang < excerpt.ids().size());
      CHECK(excerpt.ids()[gang] == j);
      const eviction_candidate& copy = excerpt.candidates()[gang++];
      CHECK(copy.cost == in.candidates[j].cost);
      REQUIRE(copy.last - copy.first == there.size());
      for (std::size_t i = 0; i < there.size(); ++i) {
        CHECK(excerpt.allocations()[copy.first + i].node == there[i].node);
        CHECK(excerpt.allocations()[copy.first + i].gpus == there[i].gpus);
      }
    }
    CHECK(gang == excerpt.ids().size());
    CHECK(excerpt.entries() == last - first + gang + excerpt.allocations().size());

    // Evictions change its capacity as they do in the cluster, and count against the same budgets.
    detail::group_capacity alone;
    alone.begin(excerpt.levels(), excerpt.free(), excerpt.hosts(), excerpt.candidates(),
                excerpt.allocations(), excerpt.freed());
    CHECK(alone.levels().tasks == 8);
    CHECK(alone.capacity(h, 0) == cells.capacity(h, c));
    std::uint32_t lost[3] = {};
    for (std::uint32_t i = 0; i < excerpt.ids().size(); ++i) {
      const std::uint32_t j = excerpt.ids()[i];
      alone.set_evicted(i, true);
      cells.set_evicted(j, true);
      CHECK(alone.capacity(h, 0) == cells.capacity(h, c));
      ++lost[tenants[j]];
      CHECK(excerpt.tally().add_victim(i) == (lost[0] <= 1 && lost[1] <= 2));
    }
  }
}
