// apiary/tests/explain/detail/checked_nodes_test.cpp - what tasks leave free on a node, by trying every GPU.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("checked_nodes: a task's needs are those of all that it leads") {
  checked_task t;
  t.add({.gpus = 2, .host = {100, 10}, .models = 6}, 3);
  t.add({.gpus = 1, .host = {1, 0}, .gpu_milli = 300, .models = 12}, 2);
  t.add({.gpus = 1, .gpu_milli = 200}, 1);
  t.add({.gpus = 0, .host = {1000, 1000}, .models = 1}, 1);  // without a GPU any model is allowed
  t.add({.gpus = 1, .models = 1}, 0);
  CHECK(t.gpus == 9);
  CHECK(t.cpu == 1302);
  CHECK(t.memory == 1030);
  CHECK(t.fractions == std::vector<milli_gpu>{200, 300, 300});
  CHECK(t.models == 4);
  // More fractions than any node can hold are not stored one by one.
  checked_task many;
  many.add({.gpus = 1, .gpu_milli = 1}, 1'000'000'000);
  CHECK(many.gpus == 1'000'000'000);
  CHECK(many.fractions.size() == std::size_t{max_gpus_per_node} * whole_gpu + 1);
}

TEST_CASE("checked_nodes: whole GPUs, with hosts and without") {
  const std::vector<std::uint32_t> free = {4, 0, 8};
  const std::vector<resources> hosts = {{1000, 10}, {2000, 20}, {500, 5}};
  const auto left_beside = [](const checked_whole_gpus& nodes, const checked_task& t,
                              const checked_whole_gpus::node_free& r) {
    std::vector<checked_whole_gpus::node_free> left;
    nodes.place(t, r, [&](const checked_whole_gpus::node_free& after) { left.push_back(after); });
    return left;
  };
  using capacities = std::vector<checked_whole_gpus::node_free>;
  const checked_whole_gpus bare{free, {}};
  REQUIRE(bare.size() == 3);
  const checked_task t{.gpus = 3, .cpu = 600, .memory = 6};
  CHECK(left_beside(bare, t, bare.of(0)) == capacities{{1, 0, 0}});
  CHECK(left_beside(bare, t, bare.of(1)).empty());
  CHECK(left_beside(bare, t, bare.of(2)) == capacities{{5, 0, 0}});
  const checked_whole_gpus hosted{free, hosts};
  CHECK(left_beside(hosted, t, hosted.of(0)) == capacities{{1, 400, 4}});
  CHECK(left_beside(hosted, t, hosted.of(2)).empty());  // too little CPU
  checked_task modest = t;
  modest.cpu = 500;
  CHECK(left_beside(hosted, modest, hosted.of(2)).empty());  // too little memory
  modest.memory = 5;
  CHECK(left_beside(hosted, modest, hosted.of(2)) == capacities{{5, 0, 0}});
  // Weighed together with others, a task counts by its GPUs.
  checked_whole_gpus::node_free anything = hosted.of(2);
  checked_whole_gpus::ignore_host(anything);
  CHECK(left_beside(hosted, t, anything).size() == 1);
}

using device_array = std::array<milli_gpu, max_gpus_per_node>;

// All that can be free on the GPUs, ascending, after these fractions are placed on any of them.
std::set<device_array> left_by_trying(device_array left, std::vector<milli_gpu> parts) {
  std::set<device_array> all;
  const std::function<void(std::size_t)> put = [&](std::size_t i) {
    if (i == parts.size()) {
      device_array sorted = left;
      std::sort(sorted.begin(), sorted.end());
      all.insert(sorted);
      return;
    }
    for (milli_gpu& device : left) {
      if (device < parts[i]) continue;
      device = static_cast<milli_gpu>(device - parts[i]);
      put(i + 1);
      device = static_cast<milli_gpu>(device + parts[i]);
    }
  };
  put(0);
  return all;
}

TEST_CASE("checked_nodes: fractions of GPUs in every way that differs, each once") {
  std::uint64_t ways = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{10'000}); ++run) {
    CAPTURE(run);
    rng random(run);
    node_table table;
    table.add({.host = {1000, 1000},
               .gpus = random.uniform(5),
               .model = static_cast<gpu_model>(random.uniform(3))});
    node_state& node = table[node_id(0)];
    node.healthy = random.uniform(8) != 0;
    for (std::uint32_t d = 0; d < node.gpus; ++d)
      node.gpu_left[d] = static_cast<milli_gpu>(250 * random.uniform(5));
    checked_task t;
    for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m) {
      constrained_task_group group{.gpus = random.uniform(3), .host = {300 * random.uniform(3), 1}};
      if (group.gpus == 1) {  // what is left on a GPU is a multiple of 250
        const std::uint32_t unit = random.uniform(2) == 0 ? 200 : 250;
        group.gpu_milli = static_cast<milli_gpu>(unit * (1 + random.uniform(3)));
      }
      if (random.uniform(3) == 0) group.models = 3;
      t.add(group, 1 + random.uniform(2));
    }
    std::vector<milli_gpu> parts(t.gpus - t.fractions.size(), whole_gpu);
    parts.insert(parts.end(), t.fractions.begin(), t.fractions.end());
    std::set<device_array> expected;
    const bool usable = node.healthy && t.cpu <= 1000 && (t.gpus == 0 || node.accessible(t.models));
    if (usable) expected = left_by_trying(node.gpu_left, parts);

    const checked_shared_gpus nodes{&table};
    REQUIRE(nodes.size() == 1);
    std::set<device_array> found;
    nodes.place(t, nodes.of(0), [&](const checked_shared_gpus::node_free& after) {
      REQUIRE(after.cpu == 1000 - t.cpu);
      REQUIRE(after.memory == 1000 - t.memory);
      REQUIRE(found.insert(after.left).second);
    });
    REQUIRE(found == expected);
    ways += found.size();
    refused += found.empty() ? 1U : 0U;
  }
  CHECK(ways > apiary_test::scaled(std::uint64_t{1'000}));
  CHECK(refused > apiary_test::scaled(std::uint64_t{1'000}));
}

}  // namespace
