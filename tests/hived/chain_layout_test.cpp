// apiary/tests/hived/chain_layout_test.cpp - physical cells as trees, and every fault in them.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <support/hived_documents.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::faults_of;
using apiary_test::named;
using apiary_test::rack;
using apiary_test::small_cluster;

namespace {

using devices = std::vector<std::uint32_t>;
const std::string cells = "physicalCluster.physicalCells";

// The small cluster without tenants, and one entry of it.
struct document {
  hived_config config = small_cluster();
  physical_cell_config& n0 = config.physical_cells[0].children[0];

  document() { config.virtual_clusters.clear(); }
  [[nodiscard]] std::string faults() const { return faults_of(config); }
};

// Writes the pairs of a node down, its devices with these addresses.
void write_devices(physical_cell_config& node, const std::vector<std::string>& addresses) {
  node.children.assign(2, {});
  for (std::size_t i = 0; i < addresses.size(); ++i)
    node.children[i / 2].children.push_back(named(addresses[i]));
}

}  // namespace

TEST_CASE("cells of a type are one chain, in the order of the document") {
  const hived_layout read = *hived_layout::create(small_cluster());
  REQUIRE(read.chains.size() == 2);

  const chain_layout& racks = read.chains[0];
  CHECK(racks.name == "RACK");
  CHECK(racks.level_types == std::vector<std::string>{"GPU", "PAIR", "NODE", "RACK"});
  CHECK(racks.tree.num_levels() == 4);
  CHECK(racks.tree.num_leaves() == 16);
  CHECK(racks.node_level == 2);
  CHECK(racks.first_node == 0);
  CHECK(racks.node_names == std::vector<std::string>{"n0", "n1", "n2", "n3"});
  CHECK(racks.device_of_leaf == devices{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});

  const chain_layout& boxes = read.chains[1];
  CHECK(boxes.name == "BOX");
  CHECK(boxes.tree.num_levels() == 2);
  CHECK(boxes.node_level == 1);
  CHECK(boxes.first_node == 4);
  CHECK(boxes.node_names == std::vector<std::string>{"b0", "b1"});

  REQUIRE(read.pinned.size() == 1);
  CHECK(read.pinned[0].id == "mine");
  CHECK(read.pinned[0].chain == chain_id(0));
  CHECK(read.pinned[0].cell == racks.tree.at(2, 1));
  CHECK(read.pinned[0].tenant == tenant_id(0));
}

TEST_CASE("device addresses may be chosen; others count by position") {
  document d;
  write_devices(d.n0, {"7", "0", "", "3"});
  const auto chosen = hived_layout::create(d.config);
  REQUIRE(chosen.ok());
  const std::vector<std::uint32_t>& of_leaf = chosen->chains[0].device_of_leaf;
  CHECK(devices(of_leaf.begin(), of_leaf.begin() + 5) == devices{7, 0, 2, 3, 0});
}

TEST_CASE("device addresses are different numbers") {
  document d;
  const std::string pairs = cells + "[0].cellChildren[0].cellChildren";
  write_devices(d.n0, {"1", "", "x", "0"});
  CHECK(d.faults() == pairs + "[0].cellChildren[1].cellAddress: device 1 is in this node twice\n" +
                          pairs + "[1].cellChildren[0].cellAddress: \"x\" is not a device index");
  for (const std::string text : {"-1", "1x", " 1", "4294967296", "0x1", "1.0"}) {
    CAPTURE(text);
    write_devices(d.n0, {text, "1", "2", "3"});
    CHECK(d.faults() ==
          pairs + "[0].cellChildren[0].cellAddress: \"" + text + "\" is not a device index");
  }
  // A pair that is not written down has the devices of its positions.
  d.n0.children = {{.children = {named("2"), named("3")}}, {}};
  CHECK(d.faults() == pairs + "[1].cellAddress: device 2 is in this node twice\n" + pairs +
                          "[1].cellAddress: device 3 is in this node twice");
}

TEST_CASE("every node has a name, and its own") {
  document d;
  d.n0.address = "";
  d.config.physical_cells[3].address = "n3";
  CHECK(d.faults() == cells + "[0].cellChildren[0].cellAddress: a node without name\n" +
                          "physicalCluster.physicalCells: device 0 of node \"n3\" is in chain "
                          "\"RACK\" and in chain \"BOX\"; two gangs could get it: give each its "
                          "cellAddress");
  document unwritten;
  unwritten.config.physical_cells[2].children.clear();
  CHECK(unwritten.faults() ==
        cells + "[2].cellChildren: is missing; it holds the names of the nodes");
}

TEST_CASE("children are all written down, with the right type") {
  document d;
  d.config.physical_cells[2] = rack({named("n2"), named("n3"), named("n4")});
  d.n0.type = "BOX";
  write_devices(d.n0, {"0", "1", "2"});
  d.n0.children[0].children[0].children = {named("0")};
  d.config.physical_cells[0].children[1].type = "NODE";
  CHECK(d.faults() ==
        cells + "[0].cellChildren[0].cellType: \"BOX\" instead of \"NODE\"\n" + cells +
            "[0].cellChildren[0].cellChildren[0].cellChildren[0].cellChildren: 1 cells instead of "
            "0 in a cell of type \"GPU\"\n" +
            cells +
            "[0].cellChildren[0].cellChildren[1].cellChildren: 1 cells instead of 2 in a cell of "
            "type \"PAIR\"\n" +
            cells + "[2].cellChildren: 3 cells instead of 2 in a cell of type \"RACK\"");
}

TEST_CASE("pinned cells are apart and have names of their own") {
  document d;
  d.config.physical_cells[0].pinned_id = "outer";
  d.config.physical_cells[3].pinned_id = "mine";
  CHECK(d.faults() == cells + "[0].cellChildren[1].pinnedCellId: inside a pinned cell\n" + cells +
                          "[3].pinnedCellId: \"mine\" already pins another cell");
}

TEST_CASE("a type that cannot be a chain is reported at its first cell, and once") {
  document d;
  d.config.physical_cells[0].type = "RUCK";
  d.config.physical_cells[2].type = "RUCK";
  d.config.physical_cells.push_back({});
  d.config.physical_cells.push_back({.type = "PAIR"});
  CHECK(d.faults() ==
        cells + "[0].cellType: \"RUCK\" is not one of the cellTypes\n" + cells +
            "[5].cellType: \"PAIR\" has 0 node levels instead of one; it ends at \"GPU\", "
            "which is not one of the cellTypes\n" +
            cells + "[4].cellType: is missing");
  d.config.physical_cells.clear();
  CHECK(d.faults() == cells + ": no cells");
}

TEST_CASE("trees that would be too large are refused before they are made") {
  document d;
  d.config.cell_types.push_back({.name = "ROW", .child_type = "RACK", .child_count = 70'000'000});
  d.config.physical_cells.push_back({.type = "ROW"});
  CHECK(d.faults() == cells + "[4].cellChildren: is missing; it holds the names of the nodes");
  d.config.cell_types.back().child_count = 150'000'000;
  CHECK(d.faults() == cells + "[4].cellType: more than 2^31 - 1 cells in total");
  d.config.cell_types.back().child_count = ~0U;
  CHECK(d.faults() == cells + "[4].cellType: more than 2^31 - 1 cells in total");
}

TEST_CASE("more nodes of a chain than can be numbered by class are refused") {
  document d;
  d.config.cell_types.push_back(
      {.name = "LARGE", .child_type = "GPU", .child_count = 64, .is_node = true});
  d.config.cell_types.push_back({.name = "HALL", .child_type = "LARGE", .child_count = 1'002'000});
  d.config.physical_cells.push_back({.type = "HALL"});
  CHECK(d.faults() == cells +
                          "[4].cellType: chain \"HALL\": 1002000 nodes of 64 leaf cells; the "
                          "limit is 1001157 nodes");
  d.config.cell_types.back().child_count = 1'001'158;
  CHECK(d.faults().find("1001158 nodes") != std::string::npos);
  d.config.cell_types.back().child_count = 1'001'157;
  CHECK(d.faults() == cells + "[4].cellChildren: is missing; it holds the names of the nodes");
  // Both together.
  d.config.physical_cells.push_back({.type = "HALL"});
  CHECK(d.faults().find("2002314 nodes") != std::string::npos);
  // Those of a chain apart.
  d.config.physical_cells.pop_back();
  d.config.cell_types.push_back({.name = "WARD", .child_type = "LARGE", .child_count = 1'000'000});
  d.config.physical_cells.push_back({.type = "WARD"});
  CHECK(d.faults().find("limit") == std::string::npos);
}

TEST_CASE("the limit is that of physical_chain's classes") {
  for (std::uint32_t leaves = 1; leaves <= 64; ++leaves) {
    const physical_chain chain(uniform_tree({2, leaves}), 1);
    CHECK(chain.idle_nodes().num_classes() == (leaves + 1) * (leaves + 2));
  }
}
