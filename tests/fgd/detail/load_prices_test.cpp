// apiary/tests/fgd/detail/load_prices_test.cpp - classes of nodes, and prices at the limits of their types.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/load_prices.h>
#include <apiary/fgd/detail/load_program.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace apiary;
using detail::expected_load;
using detail::load_prices;
using detail::load_program;
using detail::node_class;

TEST_CASE("equal nodes are one class, and many shapes are joined by their CPU") {
  node_table nodes;
  for (std::uint32_t i = 0; i < 100; ++i) nodes.add({{1000 * (i % 4), 0}, 2, 0});
  const task_mix mix({{{.cpu_milli = 500, .gpus = 1, .gpu_milli = 1000}, 3}});
  CHECK(expected_load(nodes, mix).classes().size() == 4);
  for (std::uint32_t i = 0; i < 1000; ++i) nodes.add({{4000 + i, 0}, 2, 0});
  const expected_load load(nodes, mix);
  CHECK(load.classes().size() <= expected_load::max_classes);
  double total = 0.0;
  for (const node_class& c : load.classes()) total += c.nodes;
  CHECK(total == 1100.0);
}

TEST_CASE("a program that is not solved gives no prices") {
  node_table nodes;
  nodes.add({{8000, 0}, 2, 0});
  const task_mix mix({{{.cpu_milli = 500, .gpus = 1, .gpu_milli = 1000}, 3}});
  const expected_load load(nodes, mix);
  CHECK(load.prices(load_program(load.classes(), load.kinds()), 90).ok());
  CHECK(load.prices(load_program(load.classes(), load.kinds(), 0), 90).status() ==
        absl::ResourceExhaustedError(
            "prices for a load of 90 %: the linear program is not solved after 0 steps; the limit "
            "is 64000 (classes of nodes: 1, kinds of tasks: 1)"));
}

TEST_CASE("what the largest tasks are worth does not overflow") {
  const auto prices_of = [](std::uint32_t cpu_milli, std::uint32_t gpus) {
    node_table nodes;
    for (std::uint32_t i = 0; i < 4; ++i) nodes.add({{UINT32_MAX, 0}, 8, 0});
    const task_mix mix({{{.cpu_milli = cpu_milli}, 1000},
                        {{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 500}, 5},
                        {{.cpu_milli = 1000, .gpus = gpus, .gpu_milli = 1000}, 1}});
    rng random(1);
    return expected_load(nodes, mix).sample(140.0, random).value();
  };
  // Four tasks with 10,000 cores fit, many more are expected: each earns 0.05 GPUs for each core.
  const load_prices least = prices_of(10'000'000, 2);
  CHECK(least.net_worth[0] == 500'000'000);
  CHECK(least.least_core_price == 50'000);
  for (const std::uint32_t cpu_milli : {10'000'001U, 60'000'000U, UINT32_MAX})
    CHECK(prices_of(cpu_milli, 2).net_worth == least.net_worth);
  // A task that fits on no node is worth nothing that anybody can earn.
  for (const std::int32_t worth : prices_of(1000, 4'000'000'000).net_worth) {
    CHECK(worth >= 0);
    CHECK(worth < 1'000'000'000);
  }
}

}  // namespace
