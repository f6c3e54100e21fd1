// apiary/tests/gang_scheduler/detail/cell_gangs_test.cpp - the gangs of each cell, against listing them anew.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/cell_gangs.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE(
    "cell_gangs: each gang once, the most of one, two, ... gangs, and changes of marked cells") {
  for (std::uint64_t seed = 0; seed < scaled(std::uint64_t{1'000}); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::vector<cell_gangs::gang>> listed(3);
    cell_gangs cells;
    cells.begin(3);
    for (int round = 0; round < 4; ++round) {
      for (std::uint32_t c = 0; c < 3; ++c) {
        if (round > 0 && random.uniform(2) == 0) continue;
        listed[c].clear();
        for (std::uint32_t i = random.uniform(14); i > 0; --i)
          listed[c].push_back({random.uniform(10), 1 + random.uniform(8), 1});
        cells.mark(c);
      }
      cells.refresh([&](std::uint32_t c, std::vector<cell_gangs::gang>& to) { to = listed[c]; });
      for (std::uint32_t c = 0; c < 3; ++c) {
        REQUIRE(!cells.is_marked(c));
        std::vector<cell_gangs::gang> naive;
        for (std::uint32_t slot = 0; slot < 10; ++slot) {
          cell_gangs::gang sum{slot, 0, 0};
          for (const cell_gangs::gang& g : listed[c])
            if (g.slot == slot) sum.gpus += g.gpus, sum.nodes += g.nodes;
          if (sum.nodes > 0) naive.push_back(sum);
        }
        REQUIRE(std::ranges::equal(cells.in(c), naive));
        std::vector<std::uint32_t> gpus;
        std::vector<std::uint32_t> nodes;
        for (const cell_gangs::gang& g : naive) {
          gpus.push_back(g.gpus);
          nodes.push_back(g.nodes);
        }
        std::sort(gpus.rbegin(), gpus.rend());
        std::sort(nodes.rbegin(), nodes.rend());
        std::uint32_t all_gpus = 0;
        std::uint32_t all_nodes = 0;
        for (std::size_t k = 0; k < std::max(gpus.size(), cell_gangs::few); ++k) {
          all_gpus += k < gpus.size() ? gpus[k] : 0;
          all_nodes += k < nodes.size() ? nodes[k] : 0;
          if (k >= cell_gangs::few) continue;
          REQUIRE(cells.most(c).gpus[k] == all_gpus);
          REQUIRE(cells.most(c).nodes[k] == all_nodes);
        }
        REQUIRE(cells.most(c).gpus[cell_gangs::few] == all_gpus);
        REQUIRE(cells.most(c).nodes[cell_gangs::few] == all_nodes);
      }
    }
  }
}
