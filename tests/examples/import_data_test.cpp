// apiary/tests/examples/import_data_test.cpp - descriptions of clusters as tools write them.
// SPDX-License-Identifier: MIT
#include "../../examples/hived_yaml.h"
#include "../../examples/import/hived_cells.h"
#include "../../examples/import/nvidia_topology.h"
#include "support/data.h"
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

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
  const auto texts = cluster->write();
  REQUIRE(texts.ok());
  const auto again = gang_cluster::parse(texts->topology, texts->nodes);
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
  check_sample(gang_cluster::parse(sample_text(formats_folder + "topology.conf"), "",
                                   sample_text(formats_folder + "gres.conf")),
               8);
  for (const char* version : {"debian12/", "debian13/"}) {
    const std::string folder = slurm_folder + version;
    check_sample(
        gang_cluster::parse(sample_text(folder + "topology.conf"),
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
    CHECK(*nvidia_topology::read(matrix->text()) == *matrix);
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
