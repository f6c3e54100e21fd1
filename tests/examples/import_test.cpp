// apiary/tests/examples/import_test.cpp - the GPUs of a node as a tree, and the cells of a cluster for HiveD.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/hived_yaml.h"
#include "../../examples/programs/import/hived_cells.h"
#include "../../examples/programs/import/nvidia_topology.h"
#include "../../examples/programs/import/slurm_texts.h"
#include <apiary/core/rng.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <support/scale.h>
#include <utility>
#include <vector>

using apiary::gang_cluster;
using example::nvidia_topology;

namespace {

// Pairs by NVLink, halves by NUMA node; a network card, and the codes that underline the header.
const std::string matrix_of_four =
    "\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tSYS\tNV4\tSYS\tNODE\t0-23\t0\t\tN/A\r\n"
    "GPU1\tSYS\t X \tSYS\tNV4\tSYS\t24-47\t1\t\tN/A\n"
    "GPU2\tNV4\tSYS\t X \tSYS\tNODE\t0-23\t0\t\tN/A\n"
    "GPU3\tSYS\tNV4\tSYS\t X \tSYS\t24-47\t1\t\tN/A\n"
    "NIC0\tNODE\tSYS\tNODE\tSYS\t X \n\nLegend:\n\n  X    = Self\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("the links of GPUs make a tree") {
  const auto matrix = nvidia_topology::read(matrix_of_four);
  REQUIRE_MESSAGE(matrix.ok(), matrix.status().ToString());
  CHECK(matrix->num_gpus() == 4);
  const auto again = nvidia_topology::read(matrix->write());
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(*again == *matrix);
  for (const bool use_nvlink : {true, false}) {
    const auto spec = matrix->tree(use_nvlink);
    REQUIRE(spec.ok());
    REQUIRE(spec->levels.size() == 3);
    CHECK(spec->levels[1].name == (use_nvlink ? "nvlink" : "numa"));
    CHECK(spec->levels[1].fan_outs == std::vector<std::uint32_t>{2});
    CHECK(spec->levels[2].fan_outs == std::vector<std::uint32_t>{2, 2});
    CHECK(spec->levels[2].cell_names == std::vector<std::string>{"GPU0", "GPU2", "GPU1", "GPU3"});
    CHECK(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
  }
  const auto flat = nvidia_topology::read("GPU0 GPU1\nGPU0 X NV12\nGPU1 NV12 X\n");
  REQUIRE(flat.ok());
  CHECK(flat->tree()->levels.size() == 2);
  CHECK(
      std::string(flat->tree(false).status().message()) ==
      "without NVLink: the text does not say how else GPU0 and GPU1 are connected; it has no NUMA "
      "Affinity");
}

TEST_CASE("islands of different sizes, inside one another") {
  const auto matrix = nvidia_topology::read(
      "GPU0 GPU1 GPU2 GPU3 GPU4\nGPU0 X PHB PIX SYS SYS\nGPU1 PHB X PHB SYS SYS\n"
      "GPU2 PIX PHB X SYS SYS\nGPU3 SYS SYS SYS X NODE\nGPU4 SYS SYS SYS NODE X\n");
  REQUIRE_MESSAGE(matrix.ok(), matrix.status().ToString());
  const auto spec = matrix->tree();
  REQUIRE(spec.ok());
  std::vector<std::string> names;
  for (const auto& level : spec->levels) names.push_back(level.name);
  CHECK(names == std::vector<std::string>{"node", "numa", "phb", "pix", "gpu"});
  CHECK(spec->levels[1].fan_outs == std::vector<std::uint32_t>{2});
  CHECK(spec->levels[2].fan_outs == std::vector<std::uint32_t>{1, 2});
  CHECK(spec->levels[3].fan_outs == std::vector<std::uint32_t>{2, 1, 1});
  CHECK(spec->levels[4].fan_outs == std::vector<std::uint32_t>{2, 1, 1, 1});
  CHECK(spec->levels[4].cell_names ==
        std::vector<std::string>{"GPU0", "GPU2", "GPU1", "GPU3", "GPU4"});
  CHECK(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
}

TEST_CASE("a matrix that is wrong or no tree is refused") {
  const auto fault = [](const std::string& text) {
    return std::string(nvidia_topology::read(text).status().message());
  };
  CHECK(fault("") == "line 1: no header with GPU0, GPU1, ...");
  CHECK(fault("\nNIC0 X\n") == "line 2: a header with GPU0, GPU1, ... expected");
  CHECK(fault("GPU0 GPU0") == "line 1: GPU0 has two columns");
  CHECK(fault(replaced(matrix_of_four, "GPU1\tSYS\t X ", "GPU1\tSYS\tNV4")) ==
        "line 3: \"NV4\" is no link from GPU1 to GPU1");
  CHECK(fault(replaced(matrix_of_four, "GPU1\tSYS\t X \tSYS", "GPU1\tSYS\t X \tNVX")) ==
        "line 3: \"NVX\" is no link from GPU1 to GPU2");
  CHECK(fault(replaced(matrix_of_four, "GPU1\tSYS", "GPU1\tPIX")) ==
        "line 3: GPU1 has a link \"PIX\" to GPU0; line 2 says \"SYS\"");
  CHECK(fault("GPU0 GPU1\nGPU0 X") == "line 2: 1 links; the header has 2");
  CHECK(fault("GPU0 GPU1\nGPU0 X NV#\nGPU1 NV# X\n") ==
        "line 2: \"NV#\" is no link from GPU0 to GPU1");
  CHECK(fault("GPU0\nGPU0 X\nGPU0 X") == "line 3: GPU0 has two rows");
  CHECK(fault("GPU0\nGPU1 X") == "line 2: GPU1 has no column");
  CHECK(fault("GPU0 GPU1\nGPU0 X SYS\n") == "line 3: GPU1 has no row");
  std::string many;
  for (int i = 0; i < 65; ++i) many += "GPU" + std::to_string(i) + ' ';
  CHECK(fault(many) == "line 1: 65 GPUs; the limit is 64");
  const auto chain =
      nvidia_topology::read("GPU0 GPU1 GPU2\nGPU0 X NV1 SYS\nGPU1 NV1 X NV2\nGPU2 SYS NV2 X\n");
  REQUIRE(chain.ok());
  CHECK(std::string(chain->tree().status().message()) ==
        "the links make no tree: NV1 between GPU0 and GPU1, NV2 between GPU1 and GPU2, but SYS "
        "between "
        "GPU0 and GPU2; islands without NVLink may be possible");
}

TEST_CASE("corrupted matrices do no harm") {
  apiary::rng random(4);
  constexpr std::string_view bytes = "GPUXNVSYIH0123\t\n \x1b";
  for (int round = 0; round < apiary_test::scaled(3000); ++round) {
    std::string text = matrix_of_four;
    for (int times = 0; times < 4; ++times) {
      const std::size_t at = random.uniform(static_cast<std::uint32_t>(text.size()));
      if (random() % 3 == 0)
        text.erase(at, random.uniform(30));
      else
        text[at] = bytes[random.uniform(static_cast<std::uint32_t>(bytes.size()))];
      if (text.empty()) text = "G";
    }
    const auto matrix = nvidia_topology::read(text);
    if (!matrix.ok()) {
      CHECK(matrix.status().message().substr(0, 5) == "line ");
      continue;
    }
    const auto again = nvidia_topology::read(matrix->write());
    CHECK((again.ok() && again->num_gpus() == matrix->num_gpus()));
    for (const bool use_nvlink : {true, false}) {
      const auto spec = matrix->tree(use_nvlink);
      if (spec.ok()) CHECK(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
    }
  }
}

TEST_CASE("cells for HiveD: one type for each shape") {
  const auto cluster = example::read_slurm(
      "SwitchName=r0 Nodes=n[0-1],login\nSwitchName=r1 Nodes=n[2-3]\nSwitchName=r2 Nodes=n[4-6]",
      "NodeName=n[0-3] Gres=gpu:a100:8\nNodeName=n[4-6] Gres=gpu:4\nNodeName=login");
  REQUIRE(cluster.ok());
  const auto cells = example::hived_cells::of(*cluster);
  REQUIRE_MESSAGE(cells.ok(), cells.status().ToString());
  const auto config = example::parse_hived_yaml(example::hived_yaml_text(*cells));
  REQUIRE_MESSAGE(config.ok(), config.status().ToString());
  REQUIRE(config->cell_types.size() == 4);
  CHECK(config->cell_types[2].name == "a100-node-8-rack-2");
  const auto layout = apiary::hived_layout::create(*config);
  REQUIRE_MESSAGE(layout.ok(), layout.status().ToString());
  CHECK(layout->num_nodes() == 7);
  CHECK(layout->chains.size() == 2);
}

TEST_CASE("cells that HiveD cannot have are refused by name") {
  const auto fault = [](const char* topology, const char* nodes) {
    const auto cluster = example::read_slurm(topology, nodes);
    REQUIRE(cluster.ok());
    return std::string(example::hived_cells::of(*cluster).status().message());
  };
  CHECK(
      fault("SwitchName=r0 Nodes=a,b\nSwitchName=r1 Nodes=c,d",
            "NodeName=a,c Gres=gpu:8\nNodeName=b,d Gres=gpu:4") ==
      "rack \"r0\": \"a\" is a gpu-node-8, \"b\" a gpu-node-4; HiveD's cells have equal children\n"
      "rack \"r1\": \"c\" is a gpu-node-8, \"d\" a gpu-node-4; HiveD's cells have equal children");
  CHECK(
      fault("SwitchName=r0 Nodes=a\nSwitchName=r1 Nodes=b,c\nSwitchName=s Switches=r[0-1]",
            "NodeName=a,b,c Gres=gpu:8") ==
      "block \"s\": \"r0\" is a gpu-node-8-rack-1, \"r1\" a gpu-node-8-rack-2; HiveD's cells have "
      "equal children");
  CHECK(fault("", "NodeName=a") == "no node has GPUs");
  CHECK(fault("SwitchName=r0 Level=row.1 Nodes=a,b", "NodeName=a,b Gres=gpu:a100_1g.5gb:8") ==
        "node \"a\" has GPUs of model \"a100_1g.5gb\": the names of HiveD's types of cells have no "
        "dot\nlevel \"row.1\": the names of HiveD's types of cells have no dot");
}

namespace {

bool same_cells(const std::vector<apiary::physical_cell_config>& a,
                const std::vector<apiary::physical_cell_config>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.type == y.type && x.address == y.address && x.pinned_id == y.pinned_id &&
           same_cells(x.children, y.children);
  });
}
bool same_config(const apiary::hived_config& a, const apiary::hived_config& b) {
  const auto types = [](const auto& x, const auto& y) {
    return x.name == y.name && x.child_type == y.child_type && x.child_count == y.child_count &&
           x.is_node == y.is_node;
  };
  const auto cells = [](const auto& x, const auto& y) {
    return x.type == y.type && x.count == y.count;
  };
  const auto tenants = [&](const auto& x, const auto& y) {
    return x.name == y.name && x.pinned_ids == y.pinned_ids &&
           std::equal(x.cells.begin(), x.cells.end(), y.cells.begin(), y.cells.end(), cells);
  };
  return std::equal(a.cell_types.begin(), a.cell_types.end(), b.cell_types.begin(),
                    b.cell_types.end(), types) &&
         same_cells(a.physical_cells, b.physical_cells) &&
         std::equal(a.virtual_clusters.begin(), a.virtual_clusters.end(),
                    b.virtual_clusters.begin(), b.virtual_clusters.end(), tenants);
}

}  // namespace

TEST_CASE("HiveD's YAML, written, reads back the same") {
  std::size_t read = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(APIARY_SOURCE_DIR "/tests/examples/configurations")) {
    CAPTURE(entry.path().string());
    const auto config = example::load_hived_yaml(entry.path().string());
    if (!config.ok()) continue;
    ++read;
    const auto again = example::parse_hived_yaml(example::hived_yaml_text(*config));
    REQUIRE_MESSAGE(again.ok(), again.status().ToString());
    CHECK(same_config(*config, *again));
  }
  CHECK(read > 0);
  const apiary::hived_config odd{
      .cell_types = {{"a: \"b\"", "", 0, false}, {"- c", "{d}", 4'294'967'295, true}},
      .physical_cells = {{.pinned_id = "#", .children = {{}, {.address = "1"}}}},
      .virtual_clusters = {{.name = "none"}, {"x", {{"", 0}, {"y", 2}}, {"", "p"}}}};
  const auto again = example::parse_hived_yaml(example::hived_yaml_text(odd));
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(same_config(odd, *again));
}
