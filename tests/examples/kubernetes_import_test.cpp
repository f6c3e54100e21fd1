// apiary/tests/examples/kubernetes_import_test.cpp - nodes of Kubernetes as a description, and back.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/import/kubernetes_import.h"

#include "../../examples/programs/import/slurm_texts.h"
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <support/scale.h>
#include <vector>

using example::kubernetes_reader;

namespace {

const std::vector<apiary_kubernetes::level_label> racks_and_blocks = {{"rack", "x.com/rack"},
                                                                      {"block", "x.com/block"}};

// Node a has all labels, b no rack, c none and no GPUs.
const std::string node_list = R"({"kind": "List", "items": [
 {"metadata": {"name": "a", "labels": {"x.com/rack": "r0", "x.com/block": "b0", "empty": "",
                                       "nvidia.com/gpu.product": "H100"}},
  "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "95500m", "memory": "1055000Ki"},
             "conditions": [{"type": "Ready", "status": "True"}]}},
 {"metadata": {"name": "b", "labels": {"x.com/block": "b0"}},
  "spec": {"taints": [{"key": "team", "value": "v", "effect": "NoSchedule"},
                      {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
  "status": {"allocatable": {"nvidia.com/gpu": 4, "cpu": "1.5", "memory": "2G"},
             "conditions": [{"type": "Ready", "status": "Unknown"}]}},
 {"metadata": {"name": "c"}, "spec": {"unschedulable": true},
  "status": {"allocatable": {}, "conditions": [{"type": "Ready", "status": "True"}]}}]})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Written as JSON and as a description, the nodes read back the same.
void check_round_trips(const example::kubernetes_nodes& nodes,
                       const std::vector<apiary_kubernetes::level_label>& levels) {
  const auto again = kubernetes_reader::read(kubernetes_reader::write(nodes), levels);
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(again->cluster.nodes == nodes.cluster.nodes);
  CHECK(again->cluster.levels == nodes.cluster.levels);
  CHECK(again->unusable == nodes.unusable);
  const auto texts = example::write_slurm(nodes.cluster);
  REQUIRE_MESSAGE(texts.ok(), texts.status().ToString());
  const auto read = example::read_slurm(texts->topology, texts->nodes);
  REQUIRE_MESSAGE(read.ok(), read.status().ToString());
  CHECK(read->nodes == nodes.cluster.nodes);
  CHECK(read->levels == nodes.cluster.levels);
}

}  // namespace

TEST_CASE("a node list is read, and reads back the same") {
  const auto nodes = kubernetes_reader::read(node_list, racks_and_blocks);
  REQUIRE_MESSAGE(nodes.ok(), nodes.status().ToString());
  const std::vector<apiary::gang_cluster::node> expected = {
      {.name = "a",
       .cells = {"b0/r0", "b0"},
       .gpus = 8,
       .host = {.cpu_milli = 95'500, .memory_mib = 1030},
       .model = "H100",
       .labels = {"empty=", "nvidia.com/gpu.product=H100", "x.com/block=b0", "x.com/rack=r0"}},
      {.name = "b",
       .cells = {"b0/b", "b0"},
       .gpus = 4,
       .host = {.cpu_milli = 1500, .memory_mib = 1907},
       .labels = {"x.com/block=b0"},
       .taints = {"team=v:NoSchedule"}},
      {.name = "c", .cells = {"c/c", "c"}}};
  CHECK(nodes->cluster.nodes == expected);
  CHECK(nodes->unusable == std::vector<std::string>{"b", "c"});
  check_round_trips(*nodes, racks_and_blocks);
  const auto flat = kubernetes_reader::read(node_list, {});
  REQUIRE(flat.ok());
  check_round_trips(*flat, {});
  const auto alone = kubernetes_reader::read(
      R"({"kind":"Node","metadata":{"name":"a"},"status":{"allocatable":{}}})", {});
  REQUIRE(alone.ok());
  CHECK(alone->cluster.nodes.size() == 1);
}

TEST_CASE("each fault of a node list has its place") {
  const auto fault = [](const std::string& text) {
    return std::string(kubernetes_reader::read(text, racks_and_blocks).status().message());
  };
  CHECK(fault("{\n\n\"items\": [}") == "line 3: no JSON, byte 14: a value expected");
  CHECK(fault("{\"items\": [1e999]}") == "items[0]: an object expected");
  CHECK(fault("[]") == "items: a list of nodes expected");
  CHECK(fault(R"({"items": [7]})") == "items[0]: an object expected");
  CHECK(fault(with(node_list, R"("8")", R"("eight")")) ==
        "items[0]: node a: nvidia.com/gpu: \"eight\" is no number from 0 to 32");
  CHECK(fault(with(node_list, R"("8")", "33")) ==
        "items[0]: node a: nvidia.com/gpu: \"33\" is no number from 0 to 32");
  CHECK(fault(with(node_list, R"("95500m")", R"("95 cores")")) ==
        "items[0].status.allocatable.cpu: \"95 cores\" is no quantity, or too large");
  CHECK(fault(with(node_list, R"("1055000Ki")", R"("9999999999Ti")")) ==
        "items[0].status.allocatable.memory: \"9999999999Ti\" is no quantity, or too large");
  CHECK(fault(with(node_list, R"("empty": "")", R"("empty": 7)")) ==
        "items[0].metadata.labels[\"empty\"]: a text expected");
  CHECK(fault(with(node_list, R"("empty": "")", R"("e=f": "")")) ==
        "items[0].metadata.labels[\"e=f\"]: a key without \"=\" expected");
  CHECK(fault(with(node_list, R"("effect": "NoSchedule")", R"("effect": "a:PreferNoSchedule")")) ==
        "items[1].spec.taints[0].effect: a text without \"=\" and \":\" expected");
  CHECK(fault(with(node_list, R"("x.com/rack": "r0")", R"("x.com/rack": "")")) ==
        "items[0].metadata.labels: node a is left out: its label \"x.com/rack\" is empty");
  CHECK(fault(with(node_list, R"("name": "c")", R"("name": "a")")) ==
        "items[2].metadata.name: \"a\" is the name of items[0], too");
  CHECK(fault(with(node_list, R"("name": "c")", R"("nam": "c")")) ==
        "items[2]: a node has no metadata.name");
  CHECK(fault(with(node_list, R"("unschedulable": true)", R"("unschedulable": "yes")")) ==
        "items[2].spec.unschedulable: true or false expected");
  CHECK(fault(R"({"items":[{"metadata":[],"spec":{"taints":[{"key":1}]}},{"status":{)"
              R"("conditions":{},"allocatable":{}},"metadata":{"labels":[]}}]})") ==
        "items[0].metadata: an object expected\n"
        "items[0].spec.taints[0].key: a text expected\n"
        "items[0].spec.taints[0].effect: a text expected\n"
        "items[0].status.allocatable: an object expected\n"
        "items[1].metadata.labels: an object expected\n"
        "items[1].status.conditions: a list expected");
}

TEST_CASE("corrupted node lists do no harm") {
  apiary::rng random(5);
  constexpr std::string_view bytes = "{}[]\":,0189mKi \\\n";
  for (int round = 0; round < apiary_test::scaled(4000); ++round) {
    std::string text = node_list;
    for (int times = 0; times < 3; ++times) {
      const std::size_t at = random.uniform(static_cast<std::uint32_t>(text.size()));
      if (random() % 4 == 0)
        text.erase(at, random.uniform(8));
      else
        text[at] = bytes[random.uniform(static_cast<std::uint32_t>(bytes.size()))];
      if (text.empty()) text = "{";
    }
    const auto nodes = kubernetes_reader::read(text, racks_and_blocks);
    if (!nodes.ok()) {
      CHECK(!nodes.status().message().empty());
      continue;
    }
    const auto again = kubernetes_reader::read(kubernetes_reader::write(*nodes), racks_and_blocks);
    REQUIRE_MESSAGE(again.ok(), again.status().ToString());
    CHECK(again->cluster.nodes == nodes->cluster.nodes);
  }
}
