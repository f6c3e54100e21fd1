// apiary/tests/examples/hived_yaml_test.cpp - HiveD's YAML, and every fault of shape in it.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/hived_yaml.h"

#include <apiary/core/ids.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

using namespace apiary;

namespace {

const std::string document = R"(# as users have it
kubeApiServerAddress: http://10.10.10.10:8080
physicalCluster:
  cellTypes:
    V100-PAIR: { childCellType: V100, childCellNumber: 2 }
    V100-NODE: { childCellType: V100-PAIR, childCellNumber: 2, isNodeLevel: true }
    V100-RACK: { childCellType: V100-NODE, childCellNumber: 2 }
  physicalCells:
  - cellType: V100-RACK
    cellChildren:
    - cellAddress: node-0
      cellChildren: [{ cellChildren: [{ cellAddress: 3 }, { cellAddress: 2 }] },
                     { cellChildren: [{ cellAddress: "1" }, { cellAddress: 0 }] }]
    - cellAddress: 10.0.0.1
      pinnedCellId: vc1-pinned
  - cellType: V100-RACK
    cellChildren: [{ cellAddress: node-2 }, { cellAddress: node-3 }]
virtualClusters:
  vc1:
    virtualCells:
    - { cellType: V100-RACK.V100-NODE, cellNumber: 2 }
    pinnedCells:
    - { pinnedCellId: vc1-pinned }
  vc2: {}
  vc3:
)";

std::string faults_of(const std::string& text) {
  const auto config = example::parse_hived_yaml(text);
  if (config.ok()) return "";
  CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

// Those of a document that has `text` for its physicalCells, in line 1.
std::string faults_of_cells(const std::string& text) {
  return faults_of("physicalCluster: { physicalCells: " + text + " }");
}

}  // namespace

TEST_CASE("a document is read as it stands") {
  const auto config = example::parse_hived_yaml(document);
  REQUIRE_MESSAGE(config.ok(), config.status().ToString());
  REQUIRE(config->cell_types.size() == 3);
  CHECK(config->cell_types[1].name == "V100-NODE");
  CHECK(config->cell_types[1].child_type == "V100-PAIR");
  CHECK(config->cell_types[1].child_count == 2);
  CHECK(config->cell_types[1].is_node);
  CHECK_FALSE(config->cell_types[2].is_node);
  REQUIRE(config->virtual_clusters.size() == 3);
  CHECK(config->virtual_clusters[0].pinned_ids[0] == "vc1-pinned");
  CHECK(config->virtual_clusters[2].name == "vc3");

  const auto layout = hived_layout::create(*config);
  REQUIRE_MESSAGE(layout.ok(), layout.status().ToString());
  CHECK(layout->num_nodes() == 4);
  CHECK(layout->device(node_id(0), 0) == 3);
  CHECK(layout->find_node("10.0.0.1") == node_id(1));
  CHECK(layout->tenants[0].quota[0][2] == 2);
}

TEST_CASE("JSON is read the same way, and so is a node of a larger document") {
  const std::string json =
      R"({"op":"config","physicalCluster":{"cellTypes":{"N":{"childCellType":"G",)"
      R"("childCellNumber":8,"isNodeLevel":true}},"physicalCells":[{"cellType":"N",)"
      R"("cellAddress":"n0"}]},"virtualClusters":{"A":{"virtualCells":[]}}})";
  const auto config = example::read_hived_yaml(YAML::Load("[" + json + "]")[0]);
  REQUIRE_MESSAGE(config.ok(), config.status().ToString());
  CHECK(hived_layout::create(*config).ok());
}

TEST_CASE("each fault of shape has its path and line") {
  CHECK(faults_of("[]") == "document (line 1): a mapping expected");
  CHECK(faults_of("text") == "document (line 1): a mapping expected");
  CHECK(faults_of("[a]: b") == "document (line 1): a name expected");
  CHECK(faults_of("virtualClusters: 3") == "virtualClusters (line 1): a mapping expected");
  CHECK(faults_of("physicalCluster:\n  cells: []") ==
        "physicalCluster.cells (line 2): is not a field here");
  CHECK(faults_of_cells("{}") == "physicalCluster.physicalCells (line 1): a list expected");
  CHECK(faults_of_cells("[{ cellAddress: [1] }]") ==
        "physicalCluster.physicalCells[0].cellAddress (line 1): a text expected");
  CHECK(
      faults_of_cells("[{ cellChildren: [{}, { cellAdress: a }] }]") ==
      "physicalCluster.physicalCells[0].cellChildren[1].cellAdress (line 1): is not a field here");
  CHECK(faults_of_cells("[{ cellAddress: a, cellAddress: b }]") ==
        "physicalCluster.physicalCells[0].cellAddress (line 1): is given twice");
  CHECK(faults_of("virtualClusters: { a: {}, a: {} }") ==
        "virtualClusters.a (line 1): is given twice");
  CHECK(faults_of("virtualClusters: { a: { virtualCells: [{ cellType: N }] } }") ==
        "virtualClusters.a.virtualCells[0] (line 1): cellNumber is missing");
  CHECK(faults_of("virtualClusters: { a: { pinnedCells: [p] } }") ==
        "virtualClusters.a.pinnedCells[0] (line 1): a mapping expected");
  CHECK(faults_of("physicalCluster: { cellTypes: { N: { isNodeLevel: 1 } } }") ==
        "physicalCluster.cellTypes.N.isNodeLevel (line 1): true or false expected");
}

TEST_CASE("numbers are whole, not negative and not too large") {
  for (const std::string text :
       {"-1", "1.5", "two", "4294967296", "1e3", "''", "[1]", "", "0x10"}) {
    CAPTURE(text);
    CHECK(faults_of("physicalCluster:\n  cellTypes:\n    N:\n      childCellNumber: " + text) ==
          "physicalCluster.cellTypes.N.childCellNumber (line 4): a whole number from 0 to "
          "4294967295 expected");
  }
}

TEST_CASE("all faults come at once") {
  CHECK(faults_of("physicalCluster:\n  cellTypes: []\n  physicalCells:\n  - 1\n  - x: 2\n"
                  "virtualClusters:\n  a:\n    virtualCells: {}\n") ==
        "physicalCluster.cellTypes (line 2): a mapping expected\n"
        "physicalCluster.physicalCells[0] (line 4): a mapping expected\n"
        "physicalCluster.physicalCells[1].x (line 5): is not a field here\n"
        "virtualClusters.a.virtualCells (line 8): a list expected");
}

TEST_CASE("what is no YAML, and no file, is a fault and not an exception") {
  CHECK(faults_of("a: [").find("document: ") == 0);
  CHECK(faults_of("{a: b}}").find("document: ") == 0);
  CHECK(faults_of("a: *b").find("document: ") == 0);
  CHECK(faults_of(std::string(100'000, '[')).find("document: ") == 0);
  const auto none = example::load_hived_yaml("no/such/file.yaml");
  CHECK(none.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(none.status().message()) == "no/such/file.yaml: No such file or directory");
  const auto folder = example::load_hived_yaml("/");
  CHECK(std::string(folder.status().message()) == "/: Is a directory");
}

TEST_CASE("cells that contain themselves end") {
  const std::string faults = faults_of_cells("&cells [{ cellChildren: *cells }]");
  CHECK(faults.find("is nested too deeply") != std::string::npos);
  CHECK(std::count(faults.begin(), faults.end(), '\n') == 0);
  std::string wide = "&cells [{ cellChildren: *cells }";
  for (int i = 0; i < 30; ++i) wide += ", { cellChildren: *cells }";
  CHECK(faults_of_cells(wide + "]").find("too many entries") != std::string::npos);
}

TEST_CASE("what aliases make of few lines is counted each time") {
  const auto all_have = [](int tenants, int cells) {
    std::string text = "virtualClusters:\n  t0:\n    virtualCells: &cells [";
    for (int i = 0; i < cells; ++i) text += "{cellType: N, cellNumber: 0},";
    text += "]\n";
    for (int i = 1; i < tenants; ++i) {
      const std::string name = "  t" + std::to_string(i);
      text += name + ":\n    virtualCells: *cells\n";
    }
    return faults_of(text);
  };
  CHECK(all_have(30, 1000) == "");
  const std::string faults = all_have(700, 1000);
  CHECK(faults.find("too many entries") != std::string::npos);
  CHECK(std::count(faults.begin(), faults.end(), '\n') == 0);
}

TEST_CASE("any part of a document is read or refused") {
  for (std::size_t n = 0; n < document.size(); ++n) {
    const auto config = example::parse_hived_yaml(document.substr(0, n));
    if (config.ok()) static_cast<void>(hived_layout::create(*config));
    std::string changed = document;
    for (const char c : {'[', '}', ':', '&', '*', '\0', '-', '\n'}) {
      changed[n] = c;
      const auto other = example::parse_hived_yaml(changed);
      if (other.ok()) static_cast<void>(hived_layout::create(*other));
    }
  }
}

TEST_CASE("a configuration in a ConfigMap, between other documents; addresses with their path") {
  const auto plain = example::parse_hived_yaml(document);
  REQUIRE(plain.ok());
  std::string indented;
  for (std::size_t from = 0; from < document.size();) {
    const std::size_t end = document.find('\n', from) + 1;
    indented += "    " + document.substr(from, end - from);
    from = end;
  }
  const std::string map =
      "apiVersion: v1\nkind: ConfigMap\ndata:\n  other.yaml: \"[\"\n"
      "  hivedscheduler.yaml: |\n" +
      indented;
  const std::string good = map.substr(0, map.find("  other")) + map.substr(map.find("  hivedsch"));
  for (const std::string& text :
       {good, "kind: Service\n---\n" + good + "---\nkind: Deployment\n"}) {
    const auto config = example::parse_hived_yaml(text);
    REQUIRE_MESSAGE(config.ok(), config.status().ToString());
    CHECK(config->cell_types.size() == 3);
    CHECK(hived_layout::create(*config)->hash() == hived_layout::create(*plain)->hash());
  }
  CHECK(faults_of(map).find("document: ") == 0);

  const auto paths = example::parse_hived_yaml(
      "physicalCluster:\n  cellTypes: { N: { childCellType: G, childCellNumber: 2, isNodeLevel: "
      "true "
      "} }\n  physicalCells:\n  - { cellType: N, cellAddress: 3/10.0.0.2, cellChildren: "
      "[{ cellAddress: 3/10.0.0.2/1 }, { cellAddress: 3/10.0.0.2/0 }] }\n");
  REQUIRE_MESSAGE(paths.ok(), paths.status().ToString());
  const auto layout = hived_layout::create(*paths);  // without tenants
  REQUIRE_MESSAGE(layout.ok(), layout.status().ToString());
  CHECK(layout->node_name(node_id(0)) == "10.0.0.2");
  CHECK(layout->device(node_id(0), 0) == 1);
}

TEST_CASE(
    "fields that the open-source scheduler ignores are warnings; shapes that users have load") {
  std::size_t files = 0;
  std::size_t warned = 0;
  std::size_t shared = 0;  // nodes of a host in two chains
  for (const auto& entry : std::filesystem::directory_iterator(std::string(APIARY_SOURCE_DIR) +
                                                               "/tests/examples/configurations")) {
    const std::string file = entry.path().string();
    CAPTURE(file);
    std::vector<std::string> warnings;
    const auto config = example::load_hived_yaml(file, &warnings);
    REQUIRE_MESSAGE(config.ok(), config.status().ToString());
    const auto layout = hived_layout::create(*config);
    REQUIRE_MESSAGE(layout.ok(), layout.status().ToString());
    ++files;
    for (std::uint32_t n = 0; n < layout->num_nodes(); ++n) {
      if (layout->next_of_host(node_id(n)) == node_id(n)) continue;
      CHECK(layout->node_name(node_id(n)) == "both");
      const bool k4 = layout->chain(layout->chain_of(node_id(n))).name == "K4-NODE";
      CHECK(layout->device(node_id(n), 0) == (k4 ? 8U : 0U));
      ++shared;
    }
    if (warnings.empty()) continue;
    ++warned;
    CHECK(warnings.size() == 1);
    CHECK(warnings[0].ends_with("Types: has no effect"));
  }
  CHECK(files == 12);
  CHECK(warned == 10);
  CHECK(shared == 2);
}
