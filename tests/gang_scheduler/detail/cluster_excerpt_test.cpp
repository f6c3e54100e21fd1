// apiary/tests/gang_scheduler/detail/cluster_excerpt_test.cpp - a copy of some cells, against the cells of the cluster.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/cluster_excerpt.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

namespace cluster_excerpt_tests {
namespace {

using namespace apiary;
using detail::cluster_excerpt;

TEST_CASE("cluster_excerpt: the cells have the same capacities, and nodes are found both ways") {
  cluster_excerpt excerpt;  // one for all clusters
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(1'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::vector<std::uint32_t>> fan_outs;
    std::uint32_t width = 1;
    for (std::uint32_t levels = 1 + random.uniform(4); levels > 0; --levels) {
      std::vector<std::uint32_t>& fans = fan_outs.emplace_back();
      std::uint32_t below = 0;
      for (std::uint32_t c = 0; c < width; ++c) below += fans.emplace_back(1 + random.uniform(3));
      width = below;
    }
    capacity_index<ragged_tree> whole(ragged_tree(fan_outs), 0, 1 + random.uniform(8));
    std::vector<resources> hosts;
    for (std::uint32_t p = 0; p < width; ++p) {
      whole.set(p, random.uniform(whole.max_free() + 1));
      hosts.push_back({.cpu_milli = random.uniform(100), .memory_mib = p});
    }
    const bool with_hosts = random.uniform(2) == 0;
    const level_t level = random.uniform(whole.top());
    std::vector<std::uint32_t> cells;
    for (std::uint32_t c = 0; c < whole.num_cells(level); ++c)
      if (random.uniform(2) == 0) cells.push_back(c);
    if (cells.empty()) cells.push_back(random.uniform(whole.num_cells(level)));

    excerpt.begin(whole, with_hosts ? hosts : std::vector<resources>(), level, cells);
    const capacity_index<ragged_tree>& copy = excerpt.capacities();
    REQUIRE(copy.top() == whole.top());
    REQUIRE(copy.max_free() == whole.max_free());
    REQUIRE(excerpt.hosts().size() == (with_hosts ? copy.num_nodes() : 0));
    std::vector<bool> is_inside(width);
    std::uint32_t local = 0;
    for (const std::uint32_t c : cells)
      for (const cell_id n : whole.nodes(level, c)) {
        is_inside[n.value] = true;
        REQUIRE(excerpt.to_local(n.value) == local);
        REQUIRE(excerpt.to_global(local) == n.value);
        REQUIRE(copy.free(local) == whole.free(n.value));
        if (with_hosts) REQUIRE(excerpt.hosts()[local] == hosts[n.value]);
        ++local;
      }
    REQUIRE(copy.num_nodes() == local);
    for (std::uint32_t p = 0; p < width; ++p)
      if (!is_inside[p]) REQUIRE(excerpt.to_local(p) == cluster_excerpt::none);

    for (level_t l = 1; l <= whole.top(); ++l) {
      CAPTURE(l);
      for (std::uint32_t t = 1; t <= whole.max_free(); ++t) {
        std::vector<std::uint32_t> expected;
        std::uint32_t sum = 0;
        for (const std::uint32_t c : cells) {
          if (l <= level) {
            for (const cell_id i : whole.inside(level, c, l))
              expected.push_back(whole.slots(l, t)[i.value]);
          } else {
            for (const cell_id n : whole.nodes(level, c)) sum += whole.free(n.value) / t;
          }
        }
        if (l > level) expected.push_back(sum);
        const auto slots = copy.slots(l, t);
        REQUIRE(std::vector<std::uint32_t>(slots.begin(), slots.end()) == expected);
      }
    }
  }
}

}  // namespace
}  // namespace cluster_excerpt_tests
