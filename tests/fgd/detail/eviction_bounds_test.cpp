// apiary/tests/fgd/detail/eviction_bounds_test.cpp - bounds of eviction costs against exact searches.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/eviction_bounds.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/node_table.h>
#include <apiary/preempt/shared_victim_search.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using apiary::detail::eviction_bounds;

// A node with random jobs, some of which may be evicted.
struct bounded_node {
  apiary::node_table table{};
  std::vector<eviction_bounds::candidate> candidates{};

  bounded_node(apiary::rng& random, std::uint32_t cost_bits) {
    using namespace apiary;
    const node_id n = table.add({.host = {.cpu_milli = 40'000}, .gpus = random.uniform(9)});
    for (std::uint32_t j = 0; j < 2 + random.uniform(30); ++j) {
      task_request task{.cpu_milli = random.uniform(4000), .gpus = 1, .gpu_milli = whole_gpu};
      const std::uint32_t what = random.uniform(6);
      if (what == 0) task.gpus = 1 + random.uniform(4);
      if (what > 1) task.gpu_milli = static_cast<milli_gpu>(1 + random.uniform(999));
      if (what == 5) task = {.cpu_milli = task.cpu_milli};
      if (!table[n].fits(task)) continue;
      const std::uint32_t mask = task.wants_part_of_gpu() ? table[n].tightest_gpu(task.gpu_milli)
                                                          : table[n].first_free_gpus(task.gpus);
      table.place(task, {n, mask});
      if (random.uniform(4) == 0) continue;  // of a higher priority
      eviction_bounds::candidate c{.cost = random.uniform(50), .host = task.host()};
      c.cost = (c.cost << cost_bits) + (cost_bits > 0 ? random.uniform(1000) : 0);
      for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
        if ((mask >> i & 1) != 0) c.gpus[i] = task.gpu_milli;
      if (!candidates.empty() && random.uniform(5) == 0) {  // another task of the same job
        candidates.back().host += c.host;
        for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
          candidates.back().gpus[i] = static_cast<milli_gpu>(candidates.back().gpus[i] + c.gpus[i]);
      } else {
        candidates.push_back(c);
      }
    }
  }
  [[nodiscard]] const apiary::node_state& state() const { return table[apiary::node_id(0)]; }
  [[nodiscard]] eviction_bounds bounds() const { return {state(), candidates}; }
};

}  // namespace

TEST_CASE("bounds of eviction costs are not above the least costs, and mostly equal to them") {
  using namespace apiary;
  std::uint32_t questions = 0;
  std::uint32_t equal = 0;
  std::uint32_t whole = 0;
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(400u); ++seed) {
    rng random(seed);
    const bounded_node node(random, seed % 3 == 0 ? 40 : 0);
    const eviction_bounds bounds = node.bounds();
    for (int i = 0; i < 60; ++i) {
      task_request task{.cpu_milli = random.uniform(2) * 3000, .gpus = 1, .gpu_milli = whole_gpu};
      const std::uint32_t what = random.uniform(4);
      if (what == 0) task.gpus = 1 + random.uniform(8);
      if (what > 1) task.gpu_milli = static_cast<milli_gpu>(1 + random.uniform(999));
      if (random.uniform(12) == 0) task = {.cpu_milli = 30'000};
      if (node.state().fits(task)) continue;
      shared_victim_search search;
      const auto exact = search(node.state(), task, node.candidates);
      const std::uint64_t bound = bounds.of(eviction_bounds::class_of(task));
      if (exact.verdict != fit_verdict::fits) continue;
      REQUIRE(bound <= exact.cost);
      ++questions;
      equal += exact.cost == bound ? 1U : 0U;
      if (!task.wants_whole_gpus() || task.gpus != 1 || task.cpu_milli != 0) continue;
      ++whole;
      CHECK(exact.cost == bound);
    }
  }
  CHECK(whole > apiary_test::scaled(200u));
  CHECK(equal * 2 > questions);
}

TEST_CASE("no evictions on a bad node are enough") {
  using namespace apiary;
  rng random(3);
  bounded_node node(random, 0);
  while (node.state().gpus == 0 || node.candidates.empty()) node = bounded_node(random, 0);
  node.table[node_id(0)].healthy = false;
  const eviction_bounds bounds = node.bounds();
  for (std::uint32_t c = 0; c < eviction_bounds::num_classes; ++c)
    CHECK(bounds.of(c) == eviction_bounds::never);
}

TEST_CASE("each request has the class of the greatest one that is not above it") {
  using namespace apiary;
  const auto gpus = [](std::uint32_t n) {
    return eviction_bounds::class_of({.gpus = n, .gpu_milli = whole_gpu});
  };
  const auto part = [](milli_gpu milli) {
    return eviction_bounds::class_of({.gpus = 1, .gpu_milli = milli});
  };
  CHECK(eviction_bounds::class_of({.cpu_milli = 1}) == 0);
  CHECK(part(1) == part(124));
  CHECK(part(125) == part(124) + 1);
  CHECK(part(999) == part(875));
  CHECK(gpus(1) == part(999) + 1);
  CHECK(gpus(3) == gpus(2));
  CHECK(gpus(7) == gpus(4));
  CHECK(gpus(15) == gpus(8));
  CHECK(gpus(16) == gpus(8) + 1);
  CHECK(gpus(17) == gpus(16));
}
