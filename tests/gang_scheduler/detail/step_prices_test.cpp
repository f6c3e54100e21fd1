// apiary/tests/gang_scheduler/detail/step_prices_test.cpp - prices grow with what is read, and small work is free.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/step_prices.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace step_prices_tests {
namespace {

using namespace apiary;
using detail::step_prices;

TEST_CASE("step_prices: of a fit by groups, cells and nodes at each level") {
  const capacity_index<ragged_tree> nodes(ragged_tree({{4}, {128, 128, 128, 128}}), 0, 8);
  topology_constraints gang{.groups = {{.tasks = 1, .gpus = 8}}};
  const auto price = [&](bool hosts = false) { return step_prices::of_fit(nodes, gang, hosts); };
  CHECK(price() == 0);
  CHECK(price(true) == 1);  // 512 nodes, once
  gang.preferred = 1;
  CHECK(price(true) == 2);
  gang.preferred = 0;
  CHECK(price(true) == 6);
  CHECK(price() == 0);
  gang.groups[0].slices = {{1, 1}};
  CHECK(price() == 0);  // racks
  gang.groups[0].gpus = 0;
  CHECK(price() == 6);
  gang = {.groups = {{.tasks = 1, .gpus = 1}, {.tasks = 1, .gpus = 1, .leader = 0}}};
  CHECK(price() == 1);
  gang.groups.assign(120, {.tasks = 1, .gpus = 1});
  CHECK(price() == 10);
  const capacity_index<ragged_tree> racks(
      ragged_tree({{1'024}, std::vector<std::uint32_t>(1'024, 1)}), 0, 8);
  gang = {.groups = {{.tasks = 1, .gpus = 8}}, .required = 1};
  CHECK(step_prices::of_fit(racks, gang, false) == 8);
}

TEST_CASE("step_prices: of a gang, its placements, and changes") {
  topology_constraints gang{.groups = {{.tasks = 16, .gpus = 8}}};
  CHECK(step_prices::of_gang(gang) == 0);
  CHECK(step_prices::of_placements(gang, 100) == 3);  // 16 * (2 + 4) / 32
  CHECK(step_prices::of_placements(gang, 1) == 1);
  gang.groups.resize(64);
  CHECK(step_prices::of_gang(gang) == 2);
  gang.groups[0].tasks = 1'000'000;
  CHECK(step_prices::of_placements(gang, 10) < 100'000);  // within the default budget
  CHECK(step_prices::of_excerpt(80) == 10);
  CHECK(step_prices::of_changes(80) == 20);
  CHECK(!step_prices::hosted(gang));
  gang.groups[63] = {.tasks = 1, .gpus = 1, .host = {1, 0}};
  CHECK(step_prices::hosted(gang));
  gang.groups[63].tasks = 0;
  CHECK(!step_prices::hosted(gang));
}

}  // namespace
}  // namespace step_prices_tests
