// apiary/tests/examples/published_fragmentation_test.cpp - the classes of fragmentation, row by row.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/published_fragmentation.h"

#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/metric/fragmentation.h>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace apiary;
using example::published_fragmentation;

// 3000 m of CPU; devices 1000, 400.
node_state example_node() {
  node_state node;
  node.left.cpu_milli = 3000;
  node.gpus = 2;
  node.gpu_left = {1000, 400};
  return node;
}

published_fragmentation::amounts classes_for(const task_kind& kind) {
  return published_fragmentation(task_mix({{kind, 1}})).classes(example_node());
}

TEST_CASE("each row of the table of classes") {
  CHECK(classes_for({.cpu_milli = 3000}).xl == 1400);
  CHECK(classes_for({.cpu_milli = 3001}).xr == 1400);
  CHECK(classes_for({.cpu_milli = 1, .gpus = 1, .gpu_milli = 1, .models = 2}).na == 1400);
  const published_fragmentation::amounts fits =
      classes_for({.cpu_milli = 3000, .gpus = 1, .gpu_milli = 401});
  CHECK(fits.q3 == 1000);
  CHECK(fits.q2 == 400);
  CHECK(fits.fragmentation() == 400);
  CHECK(classes_for({.cpu_milli = 3001, .gpus = 1, .gpu_milli = 400}).q4 == 1400);
  CHECK(classes_for({.cpu_milli = 3000, .gpus = 2, .gpu_milli = 1000}).q2 == 1400);
  CHECK(classes_for({.cpu_milli = 3001, .gpus = 2, .gpu_milli = 1000}).q1 == 1400);
}

TEST_CASE("the classes of a node sum to what is left, and to the exact form but for rounding") {
  const std::uint32_t mixes = apiary_test::scaled(200U);
  for (std::uint32_t seed = 0; seed < mixes; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    const published_fragmentation published(mix);
    const fragmentation exact(mix);
    for (int i = 0; i < 100; ++i) {
      node_table nodes;
      const node_id n = nodes.add(apiary_test::random_shape(random));
      for (std::uint32_t d = 0; d < nodes[n].gpus; ++d) {
        nodes[n].gpu_left[d] = static_cast<milli_gpu>(random.uniform(1001));
      }
      nodes[n].left.cpu_milli = random.uniform(12000);
      const published_fragmentation::amounts c = published.classes(nodes[n]);
      REQUIRE(c.fragmentation() + c.q3 ==
              doctest::Approx(nodes[n].total_gpu_left()).epsilon(1e-12));
      REQUIRE(c.fragmentation() == doctest::Approx(exact(nodes[n])).epsilon(1e-12));
    }
  }
}

}  // namespace
