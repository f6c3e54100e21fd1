// apiary/tests/gang/detail/class_vectors_test.cpp - what nodes of a class hold, against asking for everything.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/cost_tables.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace vectors_of_classes {
namespace {

using counts = std::vector<std::uint32_t>;

// Classes by free GPUs; a vector costs what is left, times its groups.
struct leaf_classes {
  const colocated_groups* groups = nullptr;
  std::vector<std::uint32_t> leaves{};

  std::optional<std::int64_t> operator()(std::uint32_t c, class_vectors::counts v) const {
    std::uint64_t sum = 0;
    std::int64_t kinds = 0;
    for (std::size_t u = 0; u < v.size(); ++u) {
      sum += std::uint64_t{v[u]} * (*groups)[u].gpus;
      kinds += v[u] > 0 ? 1 : 0;
    }
    if (sum > leaves[c]) return std::nullopt;
    return static_cast<std::int64_t>(leaves[c] - sum) * kinds;
  }
};

// All vectors but 0 that the constraints of nodes allow and a class can hold, with their costs.
std::map<counts, std::int64_t> all_of(const colocated_groups& groups, const leaf_classes& cost,
                                      std::uint32_t c) {
  std::map<counts, std::int64_t> all;
  counts v(groups.size(), 0);
  while (true) {
    std::size_t u = 0;
    while (u < v.size() && v[u] == groups[u].tasks) v[u++] = 0;
    if (u == v.size()) return all;
    ++v[u];
    bool allowed = true;
    for (std::size_t k = 0; k < v.size(); ++k)
      allowed = allowed && v[k] <= groups.at(k, node).most && v[k] % groups.at(k, node).step == 0;
    const auto is = cost(c, v);
    if (allowed && is) all[v] = *is;
  }
}

TEST_CASE("class_vectors: every vector that fits, once, and its cost; the most of each kind") {
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const topology_constraints gang = random_small_gang(random, 4);
    colocated_groups groups;
    groups.assign(gang, node, block + 1);
    leaf_classes cost{&groups};
    for (std::uint32_t c = 0; c < 1 + random.uniform(3); ++c)
      cost.leaves.push_back(random.uniform(13));
    const auto classes = static_cast<std::uint32_t>(cost.leaves.size());
    class_vectors vectors;
    step_budget steps(1'000'000);
    REQUIRE(vectors.ask_alone(groups, node, classes, cost, steps));
    REQUIRE(vectors.ask_all(cost, steps));
    counts weights;
    for (std::size_t u = 0; u < groups.size(); ++u) weights.push_back(random.uniform(5));
    for (std::uint32_t c = 0; c < classes; ++c) {
      for (std::uint32_t u = 0; u < groups.size(); ++u) {
        counts one(groups.size(), 0);  // the constraints' steps aside
        while (one[u] < groups.at(u, node).most) {
          ++one[u];
          if (cost(c, one)) continue;
          --one[u];
          break;
        }
        REQUIRE(vectors.alone(c, u) == one[u]);
      }
      std::map<counts, std::int64_t> said;
      std::uint64_t heaviest = 0;
      for (std::size_t i = 0; i < vectors.size(c); ++i) {
        const auto v = vectors.vector(c, i);
        REQUIRE(said.emplace(counts(v.begin(), v.end()), vectors.cost(c, i)).second);
      }
      REQUIRE(said == all_of(groups, cost, c));
      for (const auto& [v, is] : said)
        heaviest = std::max(heaviest, naive_cells::weight(weights, v));
      REQUIRE(vectors.max_weight(c, weights) == heaviest);
    }
    // With as many steps as it took it is done, with one less it is not.
    const std::uint64_t needed = steps.steps();
    step_budget enough(needed);
    REQUIRE(vectors.ask_alone(groups, node, classes, cost, enough));
    REQUIRE(vectors.ask_all(cost, enough));
    if (needed == 0) continue;
    step_budget few(needed - 1);
    REQUIRE(!(vectors.ask_alone(groups, node, classes, cost, few) && vectors.ask_all(cost, few)));
  }
}

// leaf_classes that also counts tasks.
struct counting_classes : leaf_classes {
  std::uint32_t most(std::uint32_t c, class_vectors::counts v, std::size_t u,
                     std::uint32_t limit) const {
    REQUIRE(v.empty());
    const std::uint32_t each = (*groups)[u].gpus;
    return each == 0 ? limit : std::min(limit, leaves[c] / each);
  }
};

TEST_CASE("class_vectors: a cost that counts tasks gives the same, for fewer steps") {
  std::uint64_t saved = 0;
  for (std::uint64_t seed = 0; seed < scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const topology_constraints gang = random_small_gang(random, 4);
    colocated_groups groups;
    groups.assign(gang, node, block + 1);
    counting_classes cost;
    cost.groups = &groups;
    for (std::uint32_t c = 0; c < 3; ++c) cost.leaves.push_back(random.uniform(13));
    class_vectors asked;
    class_vectors counted;
    step_budget steps(1'000'000);
    step_budget fewer(1'000'000);
    REQUIRE(asked.ask_alone(groups, node, 3, static_cast<const leaf_classes&>(cost), steps));
    REQUIRE(counted.ask_alone(groups, node, 3, cost, fewer));
    for (std::uint32_t c = 0; c < 3; ++c)
      for (std::size_t u = 0; u < groups.size(); ++u)
        REQUIRE(asked.alone(c, u) == counted.alone(c, u));
    REQUIRE(fewer.steps() <= steps.steps());
    saved += steps.steps() - fewer.steps();
  }
  CHECK(saved > 0);
}

}  // namespace
}  // namespace vectors_of_classes
