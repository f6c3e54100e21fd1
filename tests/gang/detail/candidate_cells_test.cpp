// apiary/tests/gang/detail/candidate_cells_test.cpp - which cells no count refuses, and their order.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/candidate_cells.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace cells_to_try {
namespace {

// How many of the emptiest nodes hold so many tasks of one size, as the constraints allow on a node, or so
// many leaves.
std::uint64_t nodes_needed(std::vector<std::uint32_t> free, const colocated_groups& groups,
                           std::uint64_t leaves) {
  std::sort(free.begin(), free.end(), std::greater<>());
  const bool one = groups.size() == 1 && groups[0].gpus > 0;
  std::uint64_t left = one ? groups[0].tasks : leaves;
  std::uint64_t needed = 0;
  for (const std::uint32_t f : free) {
    const std::uint64_t here = one ? groups.bound(0, node, f / groups[0].gpus) : f;
    if (left == 0 || here == 0) break;
    left -= std::min(left, here);
    ++needed;
  }
  return needed;
}

TEST_CASE("candidate_cells: none that holds the gang is left out, and the best comes first") {
  std::size_t refused = 0;
  std::size_t exact = 0;
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 1 + random.uniform(8);
    const test_cluster cluster = random_small_cells(random, most);
    const topology_constraints gang = random_small_gang(random, std::min(most + 1, 4U));
    const naive_cells naive(cluster, gang);
    const auto capacities = capacities_of_cells(cluster, most);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    group_sizes sizes;
    sizes.assign(groups, !cluster.hosts.empty());
    candidate_cells<ragged_tree> cells;
    for (level_t l = rack; l <= capacities.top(); ++l) {
      for (const auto objective : {gang_objective::whole_cells, gang_objective::fewest_nodes}) {
        step_budget steps(1'000'000);
        cells.assign(capacities, groups, sizes, cluster.hosts, l, objective, steps);
        std::set<std::uint32_t> listed;
        std::vector<std::vector<std::uint64_t>> order;
        while (!cells.empty()) {
          const std::uint32_t c = cells.next();
          REQUIRE(listed.insert(c).second);
          std::vector<std::uint32_t> free;
          std::uint64_t sum = 0;
          for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
            if (cluster.cell(n, l) != c) continue;
            free.push_back(cluster.free[n]);
            sum += cluster.free[n];
          }
          std::vector<std::uint64_t>& key = order.emplace_back();
          if (objective == gang_objective::fewest_nodes)
            key.push_back(nodes_needed(free, groups, sizes.gpus));
          key.push_back(sum);
          key.push_back(c);
        }
        REQUIRE(std::is_sorted(order.begin(), order.end()));
        for (std::uint32_t c = 0; c < naive.num_cells(l); ++c) {
          const bool fits = naive.held(l, c).contains(naive.tasks());
          REQUIRE((!fits || listed.contains(c)));
          refused += listed.contains(c) ? 0U : 1U;
          // One kind, or sizes that divide one another and no constraints: slots and capacity decide,
          // a task apart that is larger than any node.
          const bool decided =
              sizes.constrained ? groups.size() == 1
                                : sizes.largest <= most && (groups.size() == 1 || sizes.dividing);
          if (!decided) continue;
          REQUIRE(fits == listed.contains(c));
          exact += fits ? 1U : 0U;
        }
      }
    }
  }
  CHECK(refused > 0);
  CHECK(exact > 0);
}

TEST_CASE("group_sizes: sums, what divides what, and whether a host has it all") {
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 2, .host = {5, 7}}, {.tasks = 1, .gpus = 4}};
  colocated_groups groups;
  const auto sizes = [&](bool with_hosts) {
    groups.assign(gang, node, block);
    group_sizes is;
    is.assign(groups, with_hosts);
    return is;
  };
  const group_sizes hosted = sizes(true);
  CHECK(hosted.largest == 4);
  CHECK(hosted.gpus == 10);
  CHECK(hosted.dividing);
  CHECK(hosted.constrained);
  const std::vector<resources> hosts{{15, 21}, {14, 21}, {15, 20}};
  CHECK(hosted.fit_host(hosts, 0));
  CHECK(!hosted.fit_host(hosts, 1));
  CHECK(!hosted.fit_host(hosts, 2));
  CHECK(hosted.fit_host({}, 3));
  CHECK(!sizes(false).constrained);  // what no host has does not count
  CHECK(sizes(false).fit_host(hosts, 1));
  gang.groups.push_back({.tasks = 1, .gpus = 3});
  CHECK(!sizes(false).dividing);
  CHECK(!sizes(false).constrained);
  gang.groups[2] = {.tasks = 1, .gpus = 0};
  CHECK(!sizes(false).dividing);
  CHECK(sizes(false).constrained);
  gang.groups[2] = {.tasks = 2, .gpus = 1, .spread = {{node, 1}}};
  CHECK(sizes(false).dividing);
  CHECK(sizes(false).constrained);
}

}  // namespace
}  // namespace cells_to_try
