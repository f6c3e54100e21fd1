// apiary/tests/explain/blocking_resource_test.cpp - what blocks a gang, against every set of requirements.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/gang/detail/bin_packing.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE("blocking_resources: without these the gang fits, without any fewer it does not") {
  constexpr blocking_resource all[] = {blocking_resource::memory, blocking_resource::cpu,
                                       blocking_resource::models, blocking_resource::slices,
                                       blocking_resource::spread};
  std::size_t named[6] = {};
  std::size_t several = 0;
  for (std::uint64_t seed = 0; seed < scaled(3000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 2 + random.uniform(6);
    const test_cluster cluster = random_small_cells(random, most);
    topology_constraints gang = random_small_gang(random, std::min(most, 3U));
    gang.required = rack;
    const auto capacities = capacities_of_cells(cluster, most);
    topology_fit<ragged_tree> fit;
    const auto verdict = [&](const topology_constraints& g) {
      return fit(capacities, g, cluster.hosts).verdict;
    };
    if (verdict(gang) == fit_verdict::fits) continue;
    const std::vector<blocking_resource> blocking = blocking_resources(gang, verdict);
    const auto fits_without = [&](const std::vector<blocking_resource>& demands) {
      topology_constraints less = gang;
      for (const blocking_resource d : demands) detail::drop_requirement(less, d);
      return verdict(less) == fit_verdict::fits;
    };
    for (const blocking_resource d : blocking) ++named[static_cast<std::size_t>(d)];
    several += blocking.size() > 1 ? 1U : 0U;
    if (blocking.empty() || blocking[0] == blocking_resource::gpus) {
      REQUIRE(!fits_without({std::begin(all), std::end(all)}));
      topology_constraints less = gang;
      bool had = false;
      for (const blocking_resource d : all) had = detail::drop_requirement(less, d) || had;
      REQUIRE(blocking.empty() == !had);
      continue;
    }
    REQUIRE(fits_without(blocking));
    for (std::size_t i = 0; i < blocking.size(); ++i) {
      std::vector<blocking_resource> fewer = blocking;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      REQUIRE(!fits_without(fewer));
    }
  }
  if (scale() < 1) return;
  for (const blocking_resource d :
       {blocking_resource::memory, blocking_resource::cpu, blocking_resource::slices,
        blocking_resource::spread, blocking_resource::gpus})
    CHECK(named[static_cast<std::size_t>(d)] > 0);
  CHECK(several > 0);
}

TEST_CASE("blocking_resources: nothing is blamed if the verdict is not known") {
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {1, 1}}};
  CHECK(blocking_resources(gang, [](const topology_constraints&) {
          return fit_verdict::budget_ended;
        }).empty());
  gang.groups[0].host = {};
  CHECK(blocking_resources(gang, [](const topology_constraints&) {
          return fit_verdict::fits;
        }).empty());
}
