// apiary/tests/topology/cell_names_test.cpp - names of levels and cells, from a list, a tree or a function.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/topology/cell_names.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack, whole };

}  // namespace

TEST_CASE("cell_names: levels with names, cells with numbers") {
  const cell_names names{"gpu", "node", "rack"};
  CHECK(names.level(rack) == "rack");
  CHECK(names.level(whole) == "cluster");
  CHECK(names.level(7) == "level 7");
  CHECK(names.levels(rack) == "racks");
  CHECK(names.count(1, node) == "1 node");
  CHECK(names.count(0, node) == "0 nodes");
  CHECK(names.cell(rack, 3) == "rack 3");
  CHECK(names.cell(whole, 0) == "the cluster");
  const std::vector<std::uint32_t> nodes = {1, 2, 5, 9};
  CHECK(names.cells(node, {nodes.data(), 1}) == "node 1");
  CHECK(names.cells(node, {nodes.data(), 2}) == "nodes 1 and 2");
  CHECK(names.cells(node, nodes) == "nodes 1, 2, 5 and 9");
  CHECK(names.cells(node, nodes, 2) == "nodes 1, 2 and 2 more");
  CHECK(cell_names({"NVLink switch", "box"}, "virtual cluster").levels(0) == "NVLink switches");
  CHECK(cell_names({"NVLink switch", "box"}, "virtual cluster").levels(1) == "boxes");
  CHECK(cell_names(std::vector<std::string>{"gpu"}, "virtual cluster").cell(1, 0) ==
        "the virtual cluster");
}

TEST_CASE("cell_names: names of a tree; a name that begins with the level stands alone") {
  const auto tree = named_tree<uniform_tree>::create(
      {"v100", {{"rack", {2}, {"east", "west"}}, {"node", {2}}, {"gpu", {4}}}});
  REQUIRE(tree.ok());
  const cell_names names(*tree);
  const std::vector<std::uint32_t> both = {0, 1};
  CHECK(names.level(node) == "node");
  CHECK(names.cell(rack, 1) == "rack west");
  CHECK(names.cells(rack, both) == "racks east and west");
  CHECK(names.cell(node, 3) == "node-3");
  CHECK(names.cells(node, both) == "node-0 and node-1");
  CHECK(names.cell(whole, 0) == "the cluster");
}

TEST_CASE("cell_names: names by a function") {
  const auto name = [](level_t l, std::uint32_t position) {
    return (l == rack ? "r" : "n") + std::to_string(100 + position);
  };
  const cell_names names({"gpu", "node", "rack"}, name);
  const std::vector<std::uint32_t> nodes = {12, 18};
  CHECK(names.cells(node, nodes) == "nodes n112 and n118");
  CHECK(names.cell(rack, 7) == "rack r107");
}
