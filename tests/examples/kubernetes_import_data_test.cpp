// apiary/tests/examples/kubernetes_import_data_test.cpp - a node list as kubectl prints it.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/import/kubernetes_import.h"
#include "../../examples/programs/import/slurm_texts.h"
#include "support/data.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using example::kubernetes_reader;

namespace {

const std::string recorded_formats = apiary_test::data_folder("formats");

}  // namespace

TEST_CASE("kubectl get nodes -o json") {
  std::ifstream in(recorded_formats + "kubectl_get_nodes.json");
  REQUIRE(in.is_open());
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::vector<apiary_kubernetes::level_label> levels = {
      {"rack", "cloud.provider.com/topology-rack"}, {"block", "cloud.provider.com/topology-block"}};
  const auto nodes = kubernetes_reader::read(text, levels);
  REQUIRE_MESSAGE(nodes.ok(), nodes.status().ToString());
  REQUIRE(nodes->cluster.nodes.size() == 8);
  for (const auto& node : nodes->cluster.nodes) {
    CHECK(node.gpus == 8);
    CHECK(node.model == "Tesla-V100-SXM2-32GB");
  }
  CHECK(nodes->cluster.nodes[0].cells == std::vector<std::string>{"block0/rack0", "block0"});
  const auto again = kubernetes_reader::read(kubernetes_reader::write(*nodes), levels);
  REQUIRE(again.ok());
  CHECK(again->cluster.nodes == nodes->cluster.nodes);
  const auto texts = example::write_slurm(nodes->cluster);
  REQUIRE_MESSAGE(texts.ok(), texts.status().ToString());
  const auto read = example::read_slurm(texts->topology, texts->nodes);
  REQUIRE(read.ok());
  CHECK(read->nodes == nodes->cluster.nodes);
}
