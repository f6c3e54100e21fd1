// apiary/tests/examples/published_fragmentation_gradient_test.cpp - the score with published
// rounding, by hand.
// SPDX-License-Identifier: MIT

#include "../../examples/programs/published_fragmentation.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

namespace {

using namespace apiary;
using example::published_fragmentation_gradient;

TEST_CASE("the score is the sigmoid of the change, for each device the better one") {
  // Only whole devices are of use: F = what is left of devices in use.
  published_fragmentation_gradient gradient{task_mix({{{.gpus = 1, .gpu_milli = 1000}, 1}})};
  node_table nodes;
  const node_id n = nodes.add({{1000, 1000}, 3, 0});
  nodes[n].gpu_left = {1000, 600, 600};
  gradient.update(nodes, n);
  const task_request task{.gpus = 1, .gpu_milli = 600};
  // On a used device F falls by 600, on the free one it rises by 400.
  CHECK(gradient.score(nodes, n, task) == static_cast<std::uint32_t>(100 / (1 + std::exp(-0.6))));
  CHECK(gradient.gpu_mask(nodes, n, task) == 0b010);
  nodes[n].gpu_left = {1000, 500, 500};
  gradient.update(nodes, n);
  CHECK(gradient.score(nodes, n, task) == static_cast<std::uint32_t>(100 / (1 + std::exp(0.4))));
  CHECK(gradient.gpu_mask(nodes, n, task) == 0b001);
}

TEST_CASE("of devices with equal scores the first is taken") {
  published_fragmentation_gradient gradient{task_mix({{{.gpus = 1, .gpu_milli = 1000}, 1}})};
  node_table nodes;
  const node_id n = nodes.add({{1000, 1000}, 2, 0});
  nodes[n].gpu_left = {600, 700};
  gradient.update(nodes, n);
  CHECK(gradient.gpu_mask(nodes, n, {.gpus = 1, .gpu_milli = 100}) == 0b01);
}

TEST_CASE("whole devices are the first free ones, and a task without GPUs takes none") {
  published_fragmentation_gradient gradient{
      task_mix({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 1000}, 1}})};
  node_table nodes;
  const node_id n = nodes.add({{8000, 1000}, 3, 0});
  nodes[n].gpu_left = {600, 1000, 1000};
  gradient.update(nodes, n);
  CHECK(gradient.gpu_mask(nodes, n, {.gpus = 2, .gpu_milli = 1000}) == 0b110);
  CHECK(gradient.score(nodes, n, {.gpus = 2, .gpu_milli = 1000}) == 50);
  CHECK(gradient.gpu_mask(nodes, n, {.cpu_milli = 5000}) == 0);
  // Without the CPU for it the two free devices are lost.
  CHECK(gradient.score(nodes, n, {.cpu_milli = 5000}) ==
        static_cast<std::uint32_t>(100 / (1 + std::exp(2.0))));
}

}  // namespace
