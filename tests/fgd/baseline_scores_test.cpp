// apiary/tests/fgd/baseline_scores_test.cpp - the published policies, by hand.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/baseline_scores.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace {

using namespace apiary;

node_table one_node(std::uint32_t cpu_milli, std::initializer_list<milli_gpu> left) {
  node_table nodes;
  const node_id n = nodes.add({{cpu_milli, 1 << 20}, static_cast<std::uint32_t>(left.size()), 0});
  std::uint32_t i = 0;
  for (const milli_gpu l : left) nodes[n].gpu_left[i++] = l;
  return nodes;
}

const node_id n(0);

TEST_CASE("best_fit rises as less is left") {
  const node_table nodes = one_node(64000, {1000, 500});
  // 1 - (62720 / 128000 / 2 + 1000 / 8000 / 2) = 0.6925
  CHECK(best_fit{}.score(nodes, n, {.cpu_milli = 1280, .gpus = 1, .gpu_milli = 500}) == 69);
  CHECK(best_fit{}.score(nodes, n, {.cpu_milli = 64000, .gpus = 1, .gpu_milli = 500}) == 93);
  const node_table huge = one_node(1000000, {1000});
  CHECK(best_fit{}.score(huge, n, {.cpu_milli = 1}) == 0);
}

TEST_CASE("dot_prod falls with the product of what is left and what is asked") {
  const node_table nodes = one_node(64000, {1000, 1000, 1000, 1000});
  CHECK(dot_prod{}.score(nodes, n, {}) == 100);
  // 1 - (0.5 * 0.25 + 0.5 * 0.5) / 2 = 0.8125
  CHECK(dot_prod{}.score(nodes, n, {.cpu_milli = 32000, .gpus = 4, .gpu_milli = 1000}) == 81);
  // Amounts whose product is near 2^64.
  const node_table huge = one_node(~0U, {1000, 1000, 1000});
  for (const std::uint32_t gpus : {1U, 2U, 3U})
    CHECK(dot_prod{}.score(huge, n, {.cpu_milli = ~0U, .gpus = gpus, .gpu_milli = 1000}) == 0);
}

TEST_CASE("gpu_packing prefers shared devices, then free devices, then free nodes") {
  const task_request part{.gpus = 1, .gpu_milli = 300};
  const task_request two{.gpus = 2, .gpu_milli = 1000};
  CHECK(gpu_packing{}.score(one_node(1, {1000, 1000}), n, {.cpu_milli = 1}) == 0);
  CHECK(gpu_packing{}.score(one_node(1, {1000, 1000}), n, part) == 31);
  CHECK(gpu_packing{}.score(one_node(1, {1000, 200, 1000}), n, part) == 49);
  CHECK(gpu_packing{}.score(one_node(1, {1000, 200, 1000}), n, two) == 48);
  CHECK(gpu_packing{}.score(one_node(1, {1000, 350, 999}), n, part) == 97);  // 100 - 35 / 10
  CHECK(gpu_packing{}.score(one_node(1, {1000, 999}), n, part) == 91);
}

TEST_CASE("gpu_clustering keeps tasks of one size together") {
  const task_request part{.gpus = 1, .gpu_milli = 300};
  const task_request one{.gpus = 1, .gpu_milli = 1000};
  node_table nodes = one_node(1, {1000, 1000, 1000, 1000});
  CHECK(gpu_clustering{}.score(nodes, n, {.cpu_milli = 1}) == 0);
  CHECK(gpu_clustering{}.score(nodes, n, part) == 12 + 25);  // 25 * 4000 / 8000
  nodes[n].task_sizes |= 1;
  CHECK(gpu_clustering{}.score(nodes, n, part) == 12 + 75);
  CHECK(gpu_clustering{}.score(nodes, n, one) == 12);
  nodes[n].task_sizes |= 2;
  CHECK(gpu_clustering{}.score(nodes, n, part) == 12 + 50);
  CHECK(gpu_clustering{}.score(nodes, n, one) == 12 + 50);
}

TEST_CASE(
    "devices of the baselines: the tightest for a share, the first free ones for whole GPUs") {
  const node_table nodes = one_node(1, {1000, 400, 1000, 300});
  CHECK(best_fit{}.gpu_mask(nodes, n, {}) == 0);
  CHECK(best_fit{}.gpu_mask(nodes, n, {.gpus = 1, .gpu_milli = 350}) == 0b0010);
  CHECK(best_fit{}.gpu_mask(nodes, n, {.gpus = 2, .gpu_milli = 1000}) == 0b0101);
}

TEST_CASE("random_fit takes every device that fits, and no other") {
  const node_table nodes = one_node(1, {1000, 400, 900, 300});
  random_fit random(5);
  std::vector<int> taken(16);
  for (int i = 0; i < 3000; ++i) ++taken[random.gpu_mask(nodes, n, {.gpus = 1, .gpu_milli = 400})];
  for (const std::uint32_t mask : {1U, 2U, 4U}) {
    CHECK(taken[mask] > 850);
    CHECK(taken[mask] < 1150);
  }
  CHECK(random.gpu_mask(nodes, n, {.gpus = 1, .gpu_milli = 1000}) == 1);
  CHECK(random.gpu_mask(nodes, n, {}) == 0);
}

}  // namespace
