// apiary/tests/preempt/detail/eviction_cells_test.cpp - bounds of cells against trying every set.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/model/request.h>
#include <apiary/preempt/detail/eviction_cells.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <support/naive_gang.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

constexpr std::uint64_t no_price = eviction_cells<uniform_tree>::never;

struct celled_world {
  capacity_index<uniform_tree> capacities{uniform_tree{3, 3, 8}, node, 8};
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> allocations;
  std::vector<task_group> groups;

  explicit celled_world(std::uint64_t seed) {
    rng random(seed);
    std::vector<std::uint32_t> capacity(9);
    for (std::uint32_t& c : capacity) c = 1 + random.uniform(8);
    for (std::uint32_t j = random.uniform(8); j > 0; --j) {
      const auto first = static_cast<std::uint32_t>(allocations.size());
      for (std::uint32_t n = random.uniform(9), i = 1 + random.uniform(4); i > 0; --i) {
        n = (n + 1 + random.uniform(3)) % 9;
        const bool twice = std::any_of(allocations.begin() + first, allocations.end(),
                                       [&](const gpus_on_node& s) { return s.node == n; });
        if (capacity[n] == 0 || twice) continue;
        allocations.push_back({n, 1 + random.uniform(capacity[n])});
        capacity[n] -= allocations.back().gpus;
      }
      candidates.push_back(
          {random.uniform(30), first, static_cast<std::uint32_t>(allocations.size())});
    }
    for (std::uint32_t n = 0; n < 9; ++n) capacities.set(n, random.uniform(capacity[n] + 1));
    for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m)
      groups.push_back({1 + random.uniform(3), 1 + random.uniform(8)});
  }
  // The least cost of all sets that let the gang fit the cell; no_price if there is none.
  [[nodiscard]] std::uint64_t least(level_t l, std::uint32_t cell) const {
    std::uint64_t best = no_price;
    for (std::uint32_t set = 0; set < 1U << candidates.size(); ++set) {
      std::vector<std::uint32_t> left(capacities.free().begin(), capacities.free().end());
      std::uint64_t cost = 0;
      for (std::uint32_t j = 0; j < candidates.size(); ++j) {
        if ((set >> j & 1) == 0) continue;
        cost += candidates[j].cost;
        for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
          left[allocations[s].node] += allocations[s].gpus;
      }
      if (cost >= best) continue;
      leaf_counts there;
      for (const cell_id n : capacities.nodes(l, cell)) there.push_back(left[n.value]);
      if (fits_by_sets(there, tasks_of(groups))) best = cost;
    }
    return best;
  }
};

}  // namespace

TEST_CASE("eviction_cells: no set of victims costs less than the bound of its cell") {
  eviction_cells<uniform_tree> cells;
  std::uint32_t possible = 0;
  std::uint32_t impossible = 0;
  std::uint32_t tight = 0;
  for (std::uint64_t seed = 0; seed < scaled(3000U); ++seed) {
    CAPTURE(seed);
    const celled_world w(seed);
    const level_t l = node + static_cast<level_t>(seed % 3);
    CAPTURE(l);
    // Without steps the bounds are those of one size.
    const std::uint64_t max_steps = seed % 4 == 0 ? 0 : 100'000;
    cells.begin(w.capacities, l, w.candidates, w.allocations, w.groups, max_steps);
    REQUIRE(cells.bounds().size() == w.capacities.num_cells(l));
    for (std::uint32_t c = 0; c < cells.bounds().size(); ++c) {
      CAPTURE(c);
      const std::uint64_t least = w.least(l, c);
      REQUIRE(cells.bounds()[c] <= least);
      if (least == no_price) {
        impossible += cells.bounds()[c] == no_price ? 1U : 0U;
        continue;
      }
      possible += least > 0 ? 1U : 0U;
      tight += least > 0 && cells.bounds()[c] == least ? 1U : 0U;
    }
  }
  MESSAGE(tight, " of ", possible, " bounds are met, ", impossible,
          " cells known not to be enough");
  CHECK(possible > 0);
  CHECK(impossible > 0);
  CHECK(tight > 0);
}

TEST_CASE("eviction_cells: a gang in two cells costs as much in each of them") {
  capacity_index<uniform_tree> capacities(uniform_tree{3, 1, 8}, node, 8);
  const std::vector<gpus_on_node> allocations{{0, 8}, {1, 8}, {2, 8}};
  const std::vector<eviction_candidate> candidates{{16, 0, 2}, {8, 2, 3}};
  const std::vector<task_group> groups{{1, 8}};
  eviction_cells<uniform_tree> cells;
  cells.begin(capacities, rack, candidates, allocations, groups, 100'000);
  CHECK(std::vector<std::uint64_t>(cells.bounds().begin(), cells.bounds().end()) ==
        std::vector<std::uint64_t>{16, 16, 8});
}

TEST_CASE("eviction_cells: tasks are listed by their GPUs, each number once") {
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 4},
                 {.tasks = 3},
                 {.tasks = 1, .gpus = 2},
                 {.tasks = 0, .gpus = 9},
                 {.tasks = 5, .gpus = 4}};
  detail::lean_vector<task_group> to{{7, 7}};
  REQUIRE(eviction_cells<uniform_tree>::list_groups(gang, 8, to));
  REQUIRE(to.size() == 2);
  CHECK(to[0].tasks == 7);
  CHECK(to[0].gpus == 4);
  CHECK(to[1].tasks == 1);
  CHECK(to[1].gpus == 2);
  CHECK(!eviction_cells<uniform_tree>::list_groups(gang, 3, to));
}

TEST_CASE("eviction_cells: what select() reads and further bounds count as steps") {
  // A gang on each of 960 nodes in two racks, and one on all of them.
  capacity_index<uniform_tree> capacities(uniform_tree{2, 480, 8}, node, 8);
  std::vector<gpus_on_node> allocations;
  std::vector<eviction_candidate> candidates;
  for (std::uint32_t n = 0; n < 960; ++n) {
    allocations.push_back({n, 4});
    candidates.push_back({5, n, n + 1});
  }
  for (std::uint32_t n = 0; n < 960; ++n) allocations.push_back({n, 4});
  candidates.push_back({9, 960, 1'920});
  const std::vector<task_group> groups{{480, 8}, {3, 4}};
  eviction_cells<uniform_tree> cells;
  cells.begin(capacities, rack, candidates, allocations, groups, 0);
  const std::uint64_t of_one_size = cells.take_steps();
  const std::vector<std::uint64_t> bounds(cells.bounds().begin(), cells.bounds().end());
  CHECK(bounds[0] > 0);
  cells.begin(capacities, rack, candidates, allocations, groups, 1'000);
  CHECK(cells.take_steps() >= of_one_size + 960 / 2 / 48);
  CHECK(cells.bounds()[0] >= bounds[0]);
  cells.select(1);
  CHECK(cells.take_steps() >= (480 + 480 + 960) / 48);
  CHECK(cells.take_steps() == 0);
}

TEST_CASE("eviction_cells: a cell has the gangs there, with their allocations there") {
  eviction_cells<uniform_tree> cells;
  for (std::uint64_t seed = 0; seed < scaled(1000U); ++seed) {
    CAPTURE(seed);
    const celled_world w(seed);
    const level_t l = node + static_cast<level_t>(seed % 3);
    cells.begin(w.capacities, l, w.candidates, w.allocations, w.groups, 100'000);
    for (std::uint32_t c = 0; c < w.capacities.num_cells(l); ++c) {
      cells.select(c);
      const id_range<cell_id> nodes = w.capacities.nodes(l, c);
      REQUIRE(cells.free().size() == nodes.size());
      for (std::uint32_t n = 0; n < nodes.size(); ++n)
        REQUIRE(cells.free()[n] == w.capacities.free(nodes.first.value + n));
      REQUIRE(cells.ids().size() == cells.candidates().size());
      std::size_t i = 0;
      std::size_t listed = 0;
      for (std::uint32_t j = 0; j < w.candidates.size(); ++j) {
        std::vector<gpus_on_node> there;
        for (std::uint32_t s = w.candidates[j].first; s < w.candidates[j].last; ++s)
          if (nodes.contains(cell_id(w.allocations[s].node))) there.push_back(w.allocations[s]);
        if (i == cells.ids().size() || cells.ids()[i] != j) {
          REQUIRE(there.empty());
          continue;
        }
        const eviction_candidate& at = cells.candidates()[i++];
        REQUIRE(at.cost == w.candidates[j].cost);
        REQUIRE(at.last - at.first == there.size());
        for (std::size_t s = 0; s < there.size(); ++s, ++listed) {
          const gpus_on_node& share = cells.allocations()[at.first + s];
          REQUIRE(share.node + nodes.first.value == there[s].node);
          REQUIRE(share.gpus == there[s].gpus);
        }
      }
      REQUIRE(i == cells.ids().size());
      REQUIRE(listed == cells.allocations().size());
    }
  }
}
