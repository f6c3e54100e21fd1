// apiary/tests/fgd/fragmentation_gradient_test.cpp - the exact score against the definition.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/published_fragmentation.h"
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/fragmentation_gradient.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace {

using namespace apiary;
using namespace example;

node_state random_state(rng& random) {
  node_state node;
  node.left = {1000 * random.uniform(20), 1 << 20};
  node.model = static_cast<gpu_model>(random.uniform(3));
  node.gpus = static_cast<std::uint8_t>(random.uniform(9));
  for (std::uint32_t d = 0; d < node.gpus; ++d) {
    node.gpu_left[d] =
        static_cast<milli_gpu>(random.uniform(3) == 0 ? 1000 : 50 * random.uniform(21));
  }
  return node;
}

TEST_CASE("score and devices are those of the definition") {
  const std::uint32_t mixes = apiary_test::scaled(400U);
  for (std::uint32_t seed = 0; seed < mixes; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    fragmentation_gradient gradient{fragmentation(mix)};
    node_table nodes;
    const node_id n = nodes.add({{0, 0}, 8, 0});
    for (std::uint32_t i = 0; i < 300; ++i) {
      CAPTURE(i);
      nodes[n] = random_state(random);
      const task_request task = apiary_test::random_task(random, i);
      if (!nodes[n].fits(task)) continue;
      gradient.update(nodes, n);
      const apiary_test::scored expected = apiary_test::score_node(mix, nodes, n, task);
      REQUIRE(gradient.score(nodes, n, task) == static_cast<std::uint32_t>(expected.score));
      REQUIRE(gradient.gpu_mask(nodes, n, task) == expected.where.gpu_mask);
    }
  }
}

TEST_CASE(
    "a placement that changes no fragmentation scores 50, better ones more, worse ones less") {
  // Tasks of half a device: taking half of a free device costs nothing, a small one from a half
  // destroys it, and taking what is too small to use removes fragmentation.
  fragmentation_gradient gradient{fragmentation(task_mix({{{.gpus = 1, .gpu_milli = 500}, 1}}))};
  node_table nodes;
  const node_id n = nodes.add({{0, 0}, 1, 0});
  const auto score = [&](milli_gpu left, milli_gpu taken) {
    nodes[n].gpu_left[0] = left;
    gradient.update(nodes, n);
    return gradient.score(nodes, n, {.gpus = 1, .gpu_milli = taken});
  };
  CHECK(score(1000, 500) == 50);
  CHECK(score(500, 100) < 50);
  CHECK(score(400, 400) > 50);
}

TEST_CASE("equal scores on several devices go to the first of them") {
  fragmentation_gradient gradient{fragmentation(task_mix({{{.gpus = 1, .gpu_milli = 500}, 1}}))};
  node_table nodes;
  const node_id n = nodes.add({{0, 0}, 3, 0});
  nodes[n].gpu_left = {300, 1000, 1000};
  gradient.update(nodes, n);
  CHECK(gradient.gpu_mask(nodes, n, {.gpus = 1, .gpu_milli = 400}) == 0b010);
  CHECK(gradient.gpu_mask(nodes, n, {.gpus = 1, .gpu_milli = 300}) == 0b001);
}

TEST_CASE("permuted devices give the same score and a choice that is as good") {
  rng random(3);
  const task_mix mix = apiary_test::random_mix(random);
  fragmentation_gradient gradient{fragmentation(mix)};
  node_table nodes;
  const node_id a = nodes.add({{0, 0}, 8, 0});
  const node_id b = nodes.add({{0, 0}, 8, 0});
  int shares = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    CAPTURE(i);
    nodes[a] = random_state(random);
    const task_request task = apiary_test::random_task(random, i);
    if (!nodes[a].fits(task)) continue;
    nodes[b] = nodes[a];
    const int last = nodes[a].gpus - 1;
    std::reverse(nodes[b].gpu_left.begin(), nodes[b].gpu_left.begin() + last + 1);
    gradient.update(nodes, a);
    gradient.update(nodes, b);
    const std::uint32_t score = gradient.score(nodes, a, task);
    REQUIRE(score == gradient.score(nodes, b, task));
    // Another device where several have that score: the first one is taken on both.
    for (const node_id n : {a, b}) {
      const std::uint32_t chosen = gradient.gpu_mask(nodes, n, task);
      REQUIRE(apiary_test::score_devices(mix, nodes[n], task, chosen) == static_cast<int>(score));
    }
    shares += task.wants_part_of_gpu() ? 1 : 0;
  }
  CHECK(shares > 100);
}

TEST_CASE("the published rounding differs by one at most, and only where doubles do") {
  const std::uint32_t mixes = apiary_test::scaled(200U);
  for (std::uint32_t seed = 0; seed < mixes; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    fragmentation_gradient exact{fragmentation(mix)};
    published_fragmentation_gradient published{mix};
    node_table nodes;
    const node_id n = nodes.add({{0, 0}, 8, 0});
    for (std::uint32_t i = 0; i < 200; ++i) {
      nodes[n] = random_state(random);
      const task_request task = apiary_test::random_task(random, i);
      if (!nodes[n].fits(task)) continue;
      exact.update(nodes, n);
      published.update(nodes, n);
      const std::uint32_t e = exact.score(nodes, n, task);
      const std::uint32_t p = published.score(nodes, n, task);
      REQUIRE((p == e || (e == 50 && p == 49)));
    }
  }
}

}  // namespace
