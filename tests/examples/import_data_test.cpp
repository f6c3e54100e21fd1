// apiary/tests/examples/import_data_test.cpp - descriptions of clusters as tools write them.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/hived_yaml.h"
#include "../../examples/programs/import/hived_cells.h"
#include "../../examples/programs/import/hwloc_topology.h"
#include "../../examples/programs/import/kubernetes_topology.h"
#include "../../examples/programs/import/nvidia_topology.h"
#include "../../examples/programs/import/slurm_texts.h"
#include "../../examples/programs/import/topograph_model.h"
#include "support/data.h"
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using apiary::gang_cluster;
using example::nvidia_topology;

namespace {

const std::string formats_folder = apiary_test::data_folder("formats");
const std::string slurm_folder = apiary_test::data_folder("slurm");

std::string sample_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE_MESSAGE(in.is_open(), file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void check_sample(const absl::StatusOr<gang_cluster>& cluster, std::uint32_t gpus) {
  REQUIRE_MESSAGE(cluster.ok(), cluster.status().ToString());
  CHECK(cluster->levels == std::vector<std::string>{"rack", "block"});
  REQUIRE(cluster->nodes.size() == 8);
  CHECK(cluster->nodes[7].cells == std::vector<std::string>{"rack1", "spine"});
  for (const auto& node : cluster->nodes) {
    CHECK(node.gpus == gpus);
    CHECK(node.model == "v100");
  }
  const auto texts = example::write_slurm(*cluster);
  REQUIRE(texts.ok());
  const auto again = example::read_slurm(texts->topology, texts->nodes);
  REQUIRE(again.ok());
  CHECK(again->levels == cluster->levels);
  CHECK(again->nodes == cluster->nodes);
  const auto cells = example::hived_cells::of(*cluster);
  REQUIRE(cells.ok());
  const auto config = example::parse_hived_yaml(example::hived_yaml_text(*cells));
  REQUIRE(config.ok());
  CHECK(apiary::hived_layout::create(*config)->num_nodes() == 8);
}

}  // namespace

TEST_CASE("Slurm's files") {
  check_sample(example::read_slurm(sample_text(formats_folder + "topology.conf"), "",
                                   sample_text(formats_folder + "gres.conf")),
               8);
  for (const char* version : {"debian12/", "debian13/"}) {
    const std::string folder = slurm_folder + version;
    check_sample(
        example::read_slurm(sample_text(folder + "topology.conf"),
                            sample_text(folder + "slurm.conf"), sample_text(folder + "gres.conf")),
        8);
  }
}

TEST_CASE("nvidia-smi topo -m of three nodes") {
  const auto read = [](const char* name) {
    auto matrix =
        nvidia_topology::read(sample_text(formats_folder + "nvidia_smi_topo_" + name + ".txt"));
    REQUIRE_MESSAGE(matrix.ok(), matrix.status().ToString());
    CHECK(matrix->num_gpus() == 8);
    CHECK(*nvidia_topology::read(matrix->write()) == *matrix);
    return *matrix;
  };
  const auto flat = read("a100_nvswitch").tree();
  REQUIRE(flat.ok());
  CHECK(flat->levels.size() == 2);
  const auto halves = read("a100_nvswitch").tree(false);
  REQUIRE(halves.ok());
  CHECK(halves->levels[1].name == "numa");

  const auto pcie = read("pcie").tree();
  REQUIRE(pcie.ok());
  std::vector<std::string> names;
  for (const auto& level : pcie->levels) names.push_back(level.name);
  CHECK(names == std::vector<std::string>{"node", "phb", "pix", "gpu"});
  CHECK(pcie->levels[2].fan_outs == std::vector<std::uint32_t>{2, 2});
  CHECK(apiary::named_tree<apiary::ragged_tree>::create(*pcie).ok());

  CHECK(std::string(read("dgx1").tree().status().message()) ==
        "the links make no tree: NV1 between GPU0 and GPU1, NV2 between GPU1 and GPU5, but SYS "
        "between "
        "GPU0 and GPU5; islands without NVLink may be possible");
  const auto dgx = read("dgx1").tree(false);
  REQUIRE(dgx.ok());
  CHECK(dgx->levels[1].name == "numa");
  CHECK(dgx->levels[2].fan_outs == std::vector<std::uint32_t>{4, 4});
}

TEST_CASE("hwloc's XML of a node with four GPUs") {
  const auto node =
      example::hwloc_topology::read(sample_text(formats_folder + "power8gpudistances.xml"));
  REQUIRE_MESSAGE(node.ok(), node.status().ToString());
  CHECK(node->num_gpus() == 4);
  const auto again = example::hwloc_topology::read(node->write());
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(*again == *node);
  for (const bool use_links : {true, false}) {
    const auto spec = node->tree(use_links);
    REQUIRE(spec.ok());
    REQUIRE(spec->levels.size() == 3);
    CHECK(spec->levels[1].name == (use_links ? "nvlink" : "numa"));
    CHECK(spec->levels[2].fan_outs == std::vector<std::uint32_t>{2, 2});
    CHECK(spec->levels[2].cell_names ==
          std::vector<std::string>{"nvml0", "nvml1", "nvml2", "nvml3"});
  }
}

TEST_CASE("Kueue's Topology among other manifests") {
  const auto topology =
      example::kubernetes_topologies::read(sample_text(formats_folder + "kueue_tas.yaml"));
  REQUIRE_MESSAGE(topology.ok(), topology.status().ToString());
  const auto levels = topology->labels();
  REQUIRE(levels.size() == 2);
  CHECK(levels[0].label == "cloud.provider.com/topology-rack");
  CHECK(levels[1].name == "topology-block");
  const auto again = example::kubernetes_topologies::read(topology->write());
  REQUIRE(again.ok());
  CHECK(*again == *topology);
}

TEST_CASE("models of Topograph") {
  const auto read = [](const char* name, std::size_t nodes, std::vector<std::size_t> cells) {
    CAPTURE(name);
    const auto model =
        example::topograph_model::read(sample_text(formats_folder + "topograph_" + name + ".yaml"));
    REQUIRE_MESSAGE(model.ok(), model.status().ToString());
    const auto again = example::topograph_model::read(model->write());
    REQUIRE_MESSAGE(again.ok(), again.status().ToString());
    CHECK(*again == *model);
    const auto cluster = model->cluster(4, "gb200");
    REQUIRE_MESSAGE(cluster.ok(), cluster.status().ToString());
    CHECK(cluster->nodes.size() == nodes);
    REQUIRE(cluster->levels.size() == cells.size());
    for (std::size_t l = 0; l < cells.size(); ++l) {
      std::vector<std::string> names;
      for (const auto& node : cluster->nodes)
        if (std::find(names.begin(), names.end(), node.cells[l]) == names.end())
          names.push_back(node.cells[l]);
      CHECK(names.size() == cells[l]);
    }
    const auto texts = example::write_slurm(*cluster);
    REQUIRE(texts.ok());
    const auto description = example::read_slurm(texts->topology, texts->nodes);
    REQUIRE(description.ok());
    CHECK(description->nodes == cluster->nodes);
    return *cluster;
  };
  read("small-tree", 6, {2, 1});
  const gang_cluster medium = read("medium", 8, {4, 2, 1});
  CHECK(medium.nodes[0].labels == std::vector<std::string>{"accelerator.topology.test/domain=nvl1",
                                                           "topology.kubernetes.io/region=us-west",
                                                           "topology.kubernetes.io/zone=zone1"});
  read("nvl72", 72, {4, 2, 1});
}
