// apiary/tests/examples/topology_import_test.cpp - Slurm's topology.yaml, Topologies of Kueue and KAI, models of
// Topograph, and hwloc's XML: what they say, back and forth, and all faults.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/import/hwloc_topology.h"
#include "../../examples/programs/import/kubernetes_topology.h"
#include "../../examples/programs/import/slurm_texts.h"
#include "../../examples/programs/import/slurm_topology_yaml.h"
#include "../../examples/programs/import/topograph_model.h"
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <support/scale.h>
#include <vector>

using apiary::gang_cluster;
using example::hwloc_topology;
using example::kubernetes_topologies;
using example::slurm_lines;
using example::slurm_topologies_yaml;
using example::topograph_model;

namespace topology_import {

using strings = std::vector<std::string>;

const std::string three_topologies =
    "---\n"
    "# Slurm 25.05\n"
    "- topology: network\n"
    "  cluster_default: true\n"
    "  tree:\n"
    "    switches:\n"
    "    - switch: spine\n"
    "      children: s[1-2]\n"
    "    - switch: s1\n"
    "      nodes: n[01-02]\n"
    "    - switch: s2\n"
    "      nodes: n[03-04],login\n"
    "- topology: nvlink\n"
    "  block:\n"
    "    block_sizes: [2, 4]\n"
    "    blocks:\n"
    "    - block: b1\n"
    "      nodes: n[01-02]\n"
    "    - block: b2\n"
    "      nodes: n[03-04]\n"
    "- topology: any\n"
    "  cluster_default: false\n"
    "  flat: true\n";
constexpr const char* four_nodes = "NodeName=n[01-04] Gres=gpu:8";
constexpr const char* five_nodes = "NodeName=n[01-04] Gres=gpu:8\nNodeName=login";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

// The description reads back the same.
void check_description(const gang_cluster& cluster) {
  const auto texts = example::write_slurm(cluster);
  REQUIRE_MESSAGE(texts.ok(), texts.status().ToString());
  const auto again = example::read_slurm(texts->topology, texts->nodes);
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(again->levels == cluster.levels);
  CHECK(again->nodes == cluster.nodes);
}

gang_cluster topology_cluster(const std::string& text, const std::string& name, const char* nodes) {
  const auto file = slurm_topologies_yaml::read(text);
  REQUIRE_MESSAGE(file.ok(), file.status().ToString());
  const auto again = slurm_topologies_yaml::read(file->write());
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(again->all() == file->all());
  const auto topology = file->find(name);
  REQUIRE_MESSAGE(topology.ok(), topology.status().ToString());
  const auto cluster = topology->cluster(nodes);
  REQUIRE_MESSAGE(cluster.ok(), cluster.status().ToString());
  check_description(*cluster);
  return *cluster;
}

// What read() or cluster() refuses, with the topology of the file that is found without a name.
std::string topology_fault(const std::string& text, const char* nodes = four_nodes) {
  const auto file = slurm_topologies_yaml::read(text);
  if (!file.ok()) return std::string(file.status().message());
  const auto topology = file->find();
  if (!topology.ok()) return std::string(topology.status().message());
  return std::string(topology->cluster(nodes).status().message());
}

const std::string small_model =
    "# two leaf switches\n"
    "switches:\n"
    "  core:\n"
    "    labels: {region: west, zone: outer}\n"
    "    switches: [leaf1, leaf2, empty]\n"
    "  leaf1:\n"
    "    labels: {zone: z1}\n"
    "blocks:\n"
    "- switch: leaf1\n"
    "  nodes: ['n[1-2]', n5]\n"
    "  annotations:\n"
    "    accelerator.topology.test/domain: nvl1\n"
    "- switch: leaf2\n"
    "  nodes: [n3]\n"
    "- switch: leaf2\n"
    "  nodes: [n4]\n";

std::string model_fault(const std::string& text) {
  const auto model = topograph_model::read(text);
  if (!model.ok()) return std::string(model.status().message());
  return std::string(model->cluster(8).status().message());
}

// One object of hwloc, with what it contains.
std::string object(const std::string& attributes, const std::string& inside = "") {
  return "<object " + attributes + ">\n" + inside + "</object>\n";
}
std::string gpu(const std::string& number) {
  return object(
      "type=\"PCIDev\" pci_busid=\"0000:0" + number + ":00.0\" pci_type=\"0302 [10de:2330]\"",
      "<object type=\"OSDev\" gp_index=\"1" + number + "\" name=\"cuda" + number +
          "\" subtype=\"CUDA\"/>\n<object type=\"OSDev\" gp_index=\"2" + number + "\" name=\"nvml" +
          number + "\" subtype=\"NVML\"/>\n");
}
const std::string host = "type=\"Bridge\" bridge_type=\"0-1\"";
const std::string pci = "type=\"Bridge\" bridge_type=\"1-1\"";
// Two packages: 0 and 1 on one PCI switch, 2 on another one, 3 on another host bridge, 4 and 5 apart.
const std::string six_gpus =
    "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\">\n" +
    object("type=\"Machine\" nodeset=\"0x00000003\"",
           object("type=\"Package\" nodeset=\"0x00000001\"",
                  "<info name=\"CPUModel\" value=\"A &amp; B &lt;1&gt;\"/>\n"
                  "<object type=\"NUMANode\" nodeset=\"0x1\"/>\n" +
                      object(host, object(pci, object(pci, object(pci, gpu("0")) +
                                                               object(pci, gpu("1"))) +
                                                   object(pci, object(pci, gpu("2"))))) +
                      object(host, gpu("3"))) +
               object("type=\"Package\" nodeset=\"0x00000002\"",
                      object(host, gpu("4")) + object(host, gpu("5")) +
                          object(host, object("type=\"PCIDev\" pci_type=\"0200 [15b3:1021]\"")))) +
    "</topology>\n";

std::string with_links(const std::string& name, const std::string& indexes,
                       const std::string& values) {
  return changed(six_gpus, "</topology>",
                 "<distances2hetero nbobjs=\"2\" kind=\"25\" name=\"" + name +
                     "\">\n<indexes length=\"9\">" + indexes +
                     "</indexes>\n<u64values length=\"9\">" + values +
                     "</u64values>\n</distances2hetero>\n</topology>");
}

hwloc_topology gpus_of(const std::string& text) {
  const auto node = hwloc_topology::read(text);
  REQUIRE_MESSAGE(node.ok(), node.status().ToString());
  const auto again = hwloc_topology::read(node->write());
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(*again == *node);
  return *node;
}

strings level_names(const apiary::chain_spec& spec) {
  strings names;
  for (const auto& level : spec.levels) names.push_back(level.name);
  return names;
}

std::string hwloc_fault(const std::string& text) {
  return std::string(hwloc_topology::read(text).status().message());
}

}  // namespace topology_import

TEST_CASE("topology.yaml: a tree, blocks and a flat topology in one file") {
  using namespace topology_import;
  const gang_cluster tree = topology_cluster(three_topologies, "", five_nodes);
  CHECK(tree.levels == strings{"rack", "block"});
  REQUIRE(tree.nodes.size() == 5);
  CHECK(tree.nodes[0].cells == strings{"s1", "spine"});
  CHECK(tree.nodes[4].cells == strings{"s2", "spine"});
  const gang_cluster blocks = topology_cluster(three_topologies, "nvlink", four_nodes);
  CHECK(blocks.levels == strings{"block", "block4"});
  CHECK(blocks.nodes[2].cells[0] == "b2");
  CHECK(topology_cluster(three_topologies, "any", four_nodes).levels.empty());
  // The only topology needs no cluster_default; YAML may be JSON, all in one line.
  CHECK(topology_cluster(
            R"([{"topology": "t", "tree": {"switches": [{"switch": "s", "nodes": "n[01-04]"}]}}])",
            "", four_nodes)
            .levels == strings{"rack"});
  CHECK(topology_cluster("- topology: t\n  flat: {alpha_step_rank: true}\n", "", four_nodes)
            .levels.empty());
  // The same as the topology.conf with the same switches.
  const auto conf = example::read_slurm(
      "SwitchName=spine Switches=s[1-2]\nSwitchName=s1 Nodes=n[01-02]\nSwitchName=s2 "
      "Nodes=n[03-04],login",
      five_nodes);
  REQUIRE(conf.ok());
  CHECK(conf->nodes == tree.nodes);
}

TEST_CASE("topology.yaml: which topology is meant") {
  using namespace topology_import;
  const std::string none =
      changed(three_topologies, "cluster_default: true", "cluster_default: false");
  CHECK(topology_fault(none) ==
        "no topology has \"cluster_default: true\"; name one of network, nvlink, any");
  const auto file = slurm_topologies_yaml::read(three_topologies);
  REQUIRE(file.ok());
  CHECK(file->find("any")->type == "flat");
  CHECK(std::string(file->find("ring").status().message()) ==
        "no topology has the name \"ring\"; the file has network, nvlink, any");
  // The first one with cluster_default counts.
  CHECK(
      topology_cluster(changed(three_topologies, "cluster_default: false", "cluster_default: true"),
                       "", five_nodes)
          .levels.size() == 2);
  CHECK(topology_fault("[]") == "the file has no topology");
  // A type that cannot be described is refused when it is meant.
  const std::string ring = "- topology: r\n  ring: {}\n";
  CHECK(topology_fault(ring) ==
        "topology, line 1: topology \"r\" is of type \"ring\", not tree, block or flat");
  CHECK(topology_cluster(three_topologies + ring, "nvlink", four_nodes).levels.size() == 2);
  const std::string odd = "- topology: r\n  'a: b': {}\n";
  CHECK(topology_cluster(three_topologies + odd, "nvlink", four_nodes).levels.size() == 2);
}

TEST_CASE("topology.yaml: each fault has its line") {
  using namespace topology_import;
  CHECK(topology_fault("") == "document (line 1): a list of topologies expected");
  CHECK(topology_fault("tree: {}") == "document (line 1): a list of topologies expected");
  CHECK(topology_fault("- topology: a\n  flat: true\n---\n- b\n") ==
        "a second document (line 4): one list of topologies expected");
  CHECK(topology_fault("- [\n").substr(0, 21) == "topology: yaml-cpp: e");
  CHECK(topology_fault(
            "- topology: a\n- flat: true\n- topology: a\n  flat: true\n  tree: {}\n- 7\n") ==
        "[0] (line 1): tree, block or flat is missing\n"
        "[1] (line 2): no name: topology is missing\n"
        "[2].tree (line 5): a topology has one type; it is flat already\n"
        "[2] (line 3): the topology of line 1 has the name \"a\", too\n"
        "[3] (line 6): a mapping expected\n"
        "[3] (line 6): no name: topology is missing\n"
        "[3] (line 6): tree, block or flat is missing");
  CHECK(topology_fault("- topology: a\n  flat: false\n  cluster_default: maybe\n") ==
        "[0].flat (line 2): true expected\n"
        "[0].cluster_default (line 3): true or false expected");
  CHECK(topology_fault(
            "- topology: a\n  block:\n    block_sizes: [4, many]\n    blocks:\n    - nodes: "
            "n[01-02]\n"
            "    - {block: b, children: s1}\n    - {block: 'a b', nodes: 'n # 1'}\n    "
            "switches: []\n") ==
        "[0].block.block_sizes[1] (line 3): a whole number from 0 to 4294967295 expected\n"
        "[0].block.blocks[0] (line 5): block is missing\n"
        "[0].block.blocks[1].children (line 6): is not a field here\n"
        "[0].block.blocks[1] (line 6): nodes is missing\n"
        "[0].block.blocks[2].block (line 7): a name without a space, \", #, a comma or a bracket "
        "expected\n"
        "[0].block.blocks[2].nodes (line 7): is empty, or has a space, \", # or a backslash at its "
        "end\n"
        "[0].block.switches (line 8): is not a field here");
  CHECK(topology_fault("- topology: a\n  tree:\n    switches:\n    - switch: s\n") ==
        "[0].tree.switches[0] (line 4): needs either nodes or children");
  // A list is missing; an unknown field of a flat topology; a list where one name must be.
  CHECK(topology_fault("- {topology: a, tree: {}}\n- {topology: b, tree: }\n- {topology: c, tree: "
                       "{switches: }}\n"
                       "- {topology: d, block: {block_sizes: [2]}}\n- {topology: e, tree: "
                       "{switches: []}}\n") ==
        "[0].tree (line 1): switches is missing or empty\n"
        "[1].tree (line 2): switches is missing or empty\n"
        "[2].tree (line 3): switches is missing or empty\n"
        "[3].block (line 4): blocks is missing or empty\n"
        "[4].tree (line 5): switches is missing or empty");
  CHECK(topology_fault("- {topology: a, flat: {bogus: 1}}\n- {topology: b, flat: {alpha_step_rank: "
                       "many}}\n") ==
        "[0].flat.bogus (line 1): is not a field here\n"
        "[1].flat.alpha_step_rank (line 2): true or false expected");
  CHECK(topology_fault("- topology: a\n  tree:\n    switches:\n    - {switch: 's[1-2]', nodes: "
                       "'n[01-04]'}\n") ==
        "[0].tree.switches[0].switch (line 4): a name without a space, \", #, a comma or a bracket "
        "expected");
  // Faults of the topology have the lines of the YAML, those of the nodes their own.
  CHECK(topology_fault(changed(three_topologies, "n[03-04],login", "n[02-04]")) ==
        "topology, line 11: node \"n02\" is in two switches");
  CHECK(topology_fault(changed(three_topologies, "switch: s2", "switch: s1")) ==
        "topology, line 11: switch \"s1\" is described twice");
  CHECK(topology_fault(
            changed(changed(three_topologies, "n[01-02]", "n[01-"), "n[03-04]", "n[4-3]")) ==
        "topology, line 9: the list \"n[01-\" lacks a \"]\"\n"
        "topology, line 11: the list \"n[4-3],login\" has a range that is not a number or two in "
        "ascending "
        "order");
  CHECK(topology_fault("- topology: a\n  block:\n    blocks:\n    - {block: b, nodes: 'n[01-04]'}\n"
                       "    block_sizes: [3, 7]\n") ==
        "topology, line 5: \"BlockSizes=3,7\" is not a list of numbers, each the first one times a "
        "larger "
        "power of two");
  CHECK(topology_fault(three_topologies, "NodeName=n[01-04],login Gres=gpu:8\nNodeName=x") ==
        "nodes, line 2: node \"x\" is in no switch of the topology");
}

TEST_CASE("lines of a text that stand for lines of another one") {
  slurm_lines lines;
  lines.add(7, "a");
  lines.add(5, "b ", 1);
  CHECK(lines.text() == "a\nb 1\n");
  const auto mapped = [&](const char* text) {
    return std::string(lines.with_lines("t", absl::InvalidArgumentError(text)).message());
  };
  CHECK(mapped("t, line 2: x\nt, line 1: y: t, line 1: z\nu, line 1: v\n2 more faults") ==
        "t, line 5: x\nt, line 7: y: t, line 1: z\nu, line 1: v\n2 more faults");
  CHECK(mapped("t, line 3: x\nt, line 0: x\nt, line: x\nt, line 2") ==
        "t, line 3: x\nt, line 0: x\nt, line: x\nt, line 5");
  CHECK(mapped("t, line 2: x, first in t, line 1\nu, line 2: t, line 1\nt, line 1: t, line 3") ==
        "t, line 5: x, first in t, line 7\nu, line 2: t, line 7\nt, line 7: t, line 3");
  CHECK(lines.with_lines("t", absl::OkStatus()).ok());
}

TEST_CASE("Topology of Kueue and KAI: levels from labels") {
  using namespace topology_import;
  const std::string manifests =
      "kind: ResourceFlavor\nmetadata: {name: default}\n---\n"
      "apiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata: {name: default, uid: "
      "7}\nspec:\n"
      "  levels:\n  - nodeLabel: cloud.example.com/block\n  - {nodeLabel: example.com/rack, alias: "
      "cabinet}\n"
      "  - {nodeLabel: other.example.com/block}\n  - nodeLabel: kubernetes.io/hostname\nstatus: "
      "{}\n";
  const auto topology = kubernetes_topologies::read(manifests);
  REQUIRE_MESSAGE(topology.ok(), topology.status().ToString());
  CHECK(topology->name == "default");
  CHECK(topology->api == "kai.scheduler/v1alpha1");
  CHECK(topology->levels.size() == 4);
  const auto labels = topology->labels();
  REQUIRE(labels.size() == 3);
  CHECK(labels[0].name == "block");
  CHECK(labels[0].label == "other.example.com/block");
  CHECK(labels[1].name == "cabinet");
  CHECK(labels[1].label == "example.com/rack");
  CHECK(labels[2].name == "cloud.example.com/block");  // "block" is taken
  const auto again = kubernetes_topologies::read(topology->write());
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(*again == *topology);

  // A list, as kubectl prints it; of several Topologies, the one with the name.
  const std::string list =
      "kind: List\nitems:\n- kind: Pod\n- {kind: Topology, metadata: {name: a}, spec: {levels: "
      "[{nodeLabel: x}]}}\n"
      "- {kind: Topology, metadata: {name: b}, spec: {levels: [{nodeLabel: example.com/node}]}}\n";
  CHECK(kubernetes_topologies::read(list, "a")->labels()[0].name == "x");
  CHECK(kubernetes_topologies::read(list, "b")->labels()[0].name == "example.com/node");
  const auto fault = [](const std::string& text, const std::string& name = "") {
    return std::string(kubernetes_topologies::read(text, name).status().message());
  };
  // Names differ, whatever the labels and aliases.
  const auto names = [](const std::string& levels) {
    const auto one = kubernetes_topologies::read(
        "{kind: Topology, metadata: {name: a}, spec: {levels: [" + levels + "]}}");
    REQUIRE_MESSAGE(one.ok(), one.status().ToString());
    strings all;
    for (const auto& level : one->labels()) all.insert(all.begin(), level.name);
    return all;
  };
  CHECK(names("{nodeLabel: x/rack, alias: block}, {nodeLabel: x/block}") ==
        strings{"block", "x/block"});
  CHECK(names("{nodeLabel: x/block}, {nodeLabel: x/rack, alias: block}") ==
        strings{"x/block", "block"});
  CHECK(names("{nodeLabel: rack}, {nodeLabel: a/rack}") == strings{"rack-2", "rack"});
  CHECK(names("{nodeLabel: a/rack}, {nodeLabel: rack}") == strings{"a/rack", "rack"});
  CHECK(names("{nodeLabel: x/node}, {nodeLabel: node}, {nodeLabel: y, alias: node-2}") ==
        strings{"x/node", "node-3", "node-2"});
  CHECK(names("{nodeLabel: x/}, {nodeLabel: y, alias: x/}") == strings{"x/-2", "x/"});
  CHECK(fault("kind: Topology\nmetadata: {name: a}\nspec:\n  levels:\n  - {nodeLabel: x, alias: "
              "node}\n  - {nodeLabel: y, alias: cluster}\n") ==
        "spec.levels[0] (line 5): the alias \"node\" is reserved\n"
        "spec.levels[1] (line 6): the alias \"cluster\" is reserved\n"
        "spec.levels (line 1): a list of levels expected");
  CHECK(fault("kind: Pod\n---\nkind: TopologyList\n") == "items (line 3): is missing");
  CHECK(fault(list) == "2 Topologies; name one of a, b");
  CHECK(fault(list, "c") == "no Topology has the name \"c\"; the file has a, b");
  CHECK(fault("kind: Pod") == "no manifest is of kind Topology");
  CHECK(fault("") == "no manifest is of kind Topology");
  CHECK(fault("[").substr(0, 19) == "Topology: yaml-cpp:");
  CHECK(fault("kind: Topology\nspec:\n  levels: rack\n") ==
        "spec.levels (line 3): a list expected\nmetadata.name (line 1): is missing\n"
        "spec.levels (line 1): a list of levels expected");
  CHECK(fault("kind: Topology\nmetadata:\n  name: a\nspec:\n  levels:\n  - nodeLabel: "
              "kubernetes.io/hostname\n"
              "  - nodeLabel: rack\n  - nodeLabel: rack\n  - {label: x}\n  - nodeLabel: [y]\n  "
              "level: 3\n") ==
        "spec.levels[1] (line 7): a level below kubernetes.io/hostname, which is a node itself\n"
        "spec.levels[2] (line 8): the label or the alias is that of a level before\n"
        "spec.levels[3].label (line 9): is not a field here\n"
        "spec.levels[3] (line 9): nodeLabel is missing\n"
        "spec.levels[4].nodeLabel (line 10): a text expected\n"
        "spec.levels[4] (line 10): nodeLabel is missing\n"
        "spec.level (line 11): is not a field here");
  std::string many = "kind: Topology\nmetadata: {name: a}\nspec:\n  levels:\n";
  for (int l = 0; l < 17; ++l) many += "  - nodeLabel: l" + std::to_string(l) + "\n";
  CHECK(fault(many) == "spec.levels[16] (line 21): more than 16 levels");
}

TEST_CASE("Topograph: switches are levels, labels and annotations are labels of nodes") {
  using namespace topology_import;
  const auto model = topograph_model::read(small_model);
  REQUIRE_MESSAGE(model.ok(), model.status().ToString());
  const auto again = topograph_model::read(model->write());
  REQUIRE_MESSAGE(again.ok(), again.status().ToString());
  CHECK(*again == *model);
  CHECK(model->switches().size() == 2);
  CHECK(model->blocks().size() == 3);
  const auto cluster = model->cluster(4, "gb200");
  REQUIRE_MESSAGE(cluster.ok(), cluster.status().ToString());
  check_description(*cluster);
  CHECK(cluster->levels == strings{"rack", "block"});
  REQUIRE(cluster->nodes.size() == 5);
  const auto& first = cluster->nodes[0];
  CHECK(first.name == "n1");
  CHECK(first.gpus == 4);
  CHECK(first.model == "gb200");
  CHECK(first.cells == strings{"leaf1", "core"});
  CHECK(first.labels == strings{"accelerator.topology.test/domain=nvl1", "region=west", "zone=z1"});
  CHECK(cluster->nodes[2].name == "n5");
  CHECK(cluster->nodes[4].name == "n4");
  CHECK(cluster->nodes[4].cells == strings{"leaf2", "core"});
  CHECK(cluster->nodes[4].labels == strings{"region=west", "zone=outer"});
  // Without switches there are no levels.
  const auto flat = topograph_model::read("blocks:\n- nodes: [a, b]\n");
  REQUIRE(flat.ok());
  CHECK(flat->cluster(8)->levels.empty());
  CHECK(
      std::string(flat->cluster(8, "h100 a").status().message()) ==
      "model of the GPUs \"h100 a\": a name without a space, \", #, a comma or a bracket expected");
}

TEST_CASE("Topograph: each fault has its line") {
  using namespace topology_import;
  CHECK(model_fault("- a") == "document (line 1): a mapping with switches and blocks expected");
  CHECK(model_fault("[").substr(0, 16) == "model: yaml-cpp:");
  CHECK(model_fault("switches:\n  'a b': {switches: ['c[1-2]'], metadata: {}}\nnodes: {}\nblocks:\n"
                    "- switch: 'x,y'\n- nodes: ['', {}]\n  annotations: {'k=': v, key: 'a b'}\n") ==
        "switches.a b (line 2): a name without a space, \", #, a comma or a bracket expected\n"
        "switches.a b.switches[0] (line 2): a name without a space, \", #, a comma or a bracket "
        "expected\n"
        "switches.a b.metadata (line 2): is not a field here\n"
        "nodes (line 3): is not a field here\n"
        "blocks[0].switch (line 5): a name without a space, \", #, a comma or a bracket expected\n"
        "blocks[0] (line 5): nodes is missing\n"
        "blocks[1].nodes[0] (line 6): is empty, or has a space, \", # or a backslash at its end\n"
        "blocks[1].nodes[1] (line 6): a text expected\n"
        "blocks[1].annotations.k= (line 7): a key without \"=\", and no space, \", # or comma "
        "expected\n"
        "blocks[1].annotations.key (line 7): a key without \"=\", and no space, \", # or comma "
        "expected");
  // A node twice, a node without a switch, a switch in two others, switches and blocks below one switch.
  CHECK(model_fault(changed(small_model, "[n4]", "[n3]")) ==
        "topology, line 13: node \"n3\" is listed twice in the switch");
  CHECK(model_fault("blocks:\n- {nodes: ['a[1-2]']}\n- {nodes: [a2]}\n") ==
        "nodes, line 3: node \"a2\" is described twice, first in nodes, line 2");
  CHECK(model_fault(small_model + "- nodes: [cpu]\n") ==
        "nodes, line 17: node \"cpu\" is in no switch of the topology");
  CHECK(
      model_fault(changed(small_model, "  leaf1:\n", "  other: {switches: [leaf1]}\n  leaf1:\n")) ==
      "topology, line 6: switch \"other\" lists switch \"leaf1\", which is not described, is in "
      "another "
      "switch, or "
      "is the same");
  CHECK(model_fault(changed(small_model, "switch: leaf2", "switch: core")) ==
        "topology, line 4: switch \"core\" has switches and blocks below it; nodes must all be "
        "below equally "
        "many switches");
  CHECK(model_fault("switches:\n  a: {switches: [b]}\n  b: {switches: [a]}\nblocks:\n- {switch: "
                    "a, nodes: [n]}\n") ==
        "topology, line 5: switch \"a\" has more than 8 switches above it, or is below a ring of "
        "switches");
  // Slurm takes the name DEFAULT for default values of the lines below.
  CHECK(model_fault(
            "blocks:\n- {nodes: [DEFAULT, a], annotations: {x: y}}\n- {nodes: ['b,DEFAULT']}\n"
            "- {switch: DEFAULT, nodes: [DEFAULT0]}\n") ==
        "blocks[0].nodes[0] (line 2): DEFAULT is no name: in Slurm it means default values\n"
        "blocks[1].nodes[0] (line 3): DEFAULT is no name: in Slurm it means default values\n"
        "blocks[2].switch (line 4): DEFAULT is no name: in Slurm it means default values");
}

TEST_CASE("Topograph: long chains of switches") {
  using namespace topology_import;
  const auto chain = [](int length, bool on_each) {
    std::string switches = "switches:\n";
    std::string blocks = "blocks:\n";
    for (int s = 0; s < length; ++s) {
      const std::string name = "s" + std::to_string(s);
      switches += "  " + name + ": {labels: {l" + name + ": v}" +
                  (s == 0 ? "" : ", switches: [s" + std::to_string(s - 1) + "]") + "}\n";
      if (s == 0 || on_each) blocks += "- {switch: " + name + ", nodes: [n" + name + "]}\n";
    }
    return switches + blocks;
  };
  const auto most = topograph_model::read(chain(9, false));
  REQUIRE_MESSAGE(most.ok(), most.status().ToString());
  const auto cluster = most->cluster(8);
  REQUIRE_MESSAGE(cluster.ok(), cluster.status().ToString());
  CHECK(cluster->levels.size() == 9);
  CHECK(cluster->nodes[0].labels.size() == 9);
  CHECK(model_fault(chain(10, false)) ==
        "topology, line 13: switch \"s0\" has more than 8 switches above it, or is below a ring of "
        "switches");
  // This took 8 s when each block walked up to the top.
  CHECK(
      model_fault(chain(4000, true)) ==
      "topology, line 4003: switch \"s0\" has more than 8 switches above it, or is below a ring of "
      "switches");
  // Labels are written for each block.
  std::string wide = "switches:\n  s: {labels: {l: " + std::string(1 << 20, 'v') + "}}\nblocks:\n";
  for (int b = 0; b < 100; ++b) wide += "- {switch: s, nodes: [n" + std::to_string(b) + "]}\n";
  CHECK(model_fault(wide) ==
        "nodes, line 67: the labels of all blocks have more than 67108864 bytes");
}

TEST_CASE("aliases of YAML that repeat long names and texts") {
  using namespace topology_import;
  const std::string name(100'000, 'k');
  std::string aliases;
  for (int i = 0; i < 40'000; ++i) aliases += "- *m\n";
  const std::string names = model_fault("blocks:\n- &m {? \"" + name + "\" : 1}\n" + aliases);
  CHECK(names.size() < 40 * name.size());
  CHECK(names.substr(names.rfind('\n') + 1) == "1242 more faults");
  CHECK(names.find("\nblocks[631] (line 2): the entries have too many bytes\n") !=
        std::string::npos);
  CHECK(model_fault("blocks:\n- &m {nodes: [\"" + name + "\"]}\n" + aliases) ==
        "blocks[671].nodes (line 2): the entries have too many bytes");
  // The first 20 faults are listed, and the others counted.
  std::string many = "blocks:\n";
  for (int i = 0; i < 21; ++i) many += "- {nodes: ['']}\n";
  const std::string faults = model_fault(many);
  CHECK(std::count(faults.begin(), faults.end(), '\n') == 20);
  CHECK(faults.substr(faults.rfind('\n')) == "\n1 more fault");
  CHECK(std::count(faults.begin(), faults.end(), '[') == 40);
}

TEST_CASE("hwloc: bridges, packages and links make a tree") {
  using namespace topology_import;
  const hwloc_topology plain = gpus_of(six_gpus);
  CHECK(plain.num_gpus() == 6);
  const auto spec = plain.tree();
  REQUIRE_MESSAGE(spec.ok(), spec.status().ToString());
  CHECK(level_names(*spec) == strings{"node", "numa", "pxb", "pix", "gpu"});
  CHECK(spec->levels[1].fan_outs == std::vector<std::uint32_t>{2});
  CHECK(spec->levels.back().cell_names ==
        strings{"nvml0", "nvml1", "nvml2", "nvml3", "nvml4", "nvml5"});
  CHECK(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
}

TEST_CASE("hwloc: links between GPUs, and through switches of NVLink") {
  using namespace topology_import;
  const std::string pairs = with_links("NVLinkBandwidth", "OSDev:20 OSDev:21 OSDev:24 OSDev:15",
                                       "9 7 0 0 7 9 0 0 0 0 9 7 0 0 7 9");
  const hwloc_topology node = gpus_of(pairs);
  const auto spec = node.tree();
  REQUIRE_MESSAGE(spec.ok(), spec.status().ToString());
  CHECK(spec->levels.size() == 5);
  CHECK(level_names(*spec)[3] == "nvlink");  // 0 and 1, 4 and 5
  CHECK(node.tree(false)->levels[3].name == "pix");
  CHECK(node == gpus_of(changed(pairs, "NVLinkBandwidth", "XGMIBandwidth")));
  CHECK(!(node == gpus_of(six_gpus)));
  // A matrix of one type names its objects by gp_index; others are skipped.
  CHECK(node == gpus_of(changed(changed(changed(pairs, "distances2hetero",
                                                "distances2 type=\"OSDev\" indexing=\"gp\""),
                                        "</distances2hetero>", "</distances2>"),
                                "OSDev:20 OSDev:21 OSDev:24 OSDev:15", "20 21 24 15")));
  CHECK(gpus_of(six_gpus) == gpus_of(with_links("NUMALatency", "0 1", "10 40")));

  // All GPUs have links to the switch, which is a PCI device, and one to a package, which connects nothing.
  const std::string switched = changed(
      with_links("NVLinkBandwidth", "OSDev:20 OSDev:21 OSDev:22 OSDev:23 PCIDev:77 Package:88",
                 "9 0 0 0 5 5  0 9 0 0 5 5  0 0 9 0 5 5  0 0 0 9 0 5  5 5 5 0 9 0  5 5 5 5 0 9"),
      "<object type=\"Package\" nodeset=\"0x00000002\">",
      "<object type=\"Package\" gp_index=\"88\" nodeset=\"0x00000002\"><object type=\"PCIDev\" "
      "gp_index=\"77\" pci_type=\"0680 [10de:22a3]\"/>");
  const auto island = gpus_of(switched).tree();
  REQUIRE_MESSAGE(island.ok(), island.status().ToString());
  REQUIRE(level_names(*island) == strings{"node", "numa", "nvlink", "gpu"});
  CHECK(island->levels[3].fan_outs == std::vector<std::uint32_t>{3, 1, 1, 1});
  // Links in a chain make no tree.
  CHECK(std::string(gpus_of(with_links("NVLinkBandwidth", "OSDev:20 OSDev:24 OSDev:25",
                                       "9 7 0 7 9 7 0 7 9"))
                        .tree()
                        .status()
                        .message()) ==
        "the links make no tree: NV# between nvml0 and nvml4, NV# between nvml4 and nvml5, but SYS "
        "between "
        "nvml0 and nvml5; islands without NVLink may be possible");
}

TEST_CASE("hwloc: what is a GPU, and its name") {
  using namespace topology_import;
  const auto alone = [](const std::string& inside) {
    return "<topology>" + object("type=\"Machine\"", inside) + "</topology>";
  };
  const auto names = [&](const std::string& inside) {
    return gpus_of(alone(inside)).tree()->levels.back().cell_names;
  };
  const std::string device = "type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=";
  CHECK(names(object(device + "\"0302 [10de:20b0]\"")) == strings{"0000:01:00.0"});
  CHECK(names(object(device + "\"1200 [1002:74a1]\"",
                     "<object type=\"OSDev\" name=\"rsmi0\" subtype=\"RSMI\"/>")) ==
        strings{"rsmi0"});
  const std::string no_name = object("type=\"PCIDev\" pci_type=\"0302 [10de:20b0]\"");
  CHECK(names(no_name) == strings{"GPU0"});
  const std::string named = changed(no_name, "pci_type", "pci_busid=\"GPU0\" pci_type");
  CHECK(names(no_name + no_name + named) == strings{"GPU1", "GPU2", "GPU0"});
  // A display is no GPU unless a program knows it; tiles of a GPU are parts of it.
  CHECK(names(object(device + "\"0300 [8086:56c0]\"",
                     object("type=\"OSDev\" name=\"ze0\" subtype=\"LevelZero\"",
                            "<object type=\"OSDev\" name=\"ze0.0\" subtype=\"LevelZero\"/>"))) ==
        strings{"ze0"});
  CHECK(names("<object type='OSDev' name='cuda0' subtype='CUDA'/>") == strings{"cuda0"});
  const std::string display =
      object(device + "\"0300 [1a03:2000]\"", "<object type=\"OSDev\" name=\"card0\"/>");
  CHECK(hwloc_fault(alone(display)) ==
        "the file has no GPU: no PCI device of class 0302 or 1200, and no OSDev of NVML, RSMI, "
        "LevelZero or "
        "CUDA");
  // Without sets of NUMA nodes, GPUs of one package are in one, those of two packages are not.
  const auto two = gpus_of(alone(object("type=\"Package\"", gpu("0") + gpu("1")) +
                                 object("type=\"Package\"", gpu("2"))));
  CHECK(two.tree()->levels[1].name == "numa");
}

TEST_CASE("hwloc: each fault has its line") {
  using namespace topology_import;
  CHECK(hwloc_fault("").substr(0, 19) == "the file has no GPU");
  CHECK(hwloc_fault("<a>\n<b>\n") == "line 3: <b> does not end");
  CHECK(hwloc_fault("<a>\n</b>") == "line 2: </b> ends <a>");
  CHECK(hwloc_fault("\n</a>") == "line 2: </a> ends nothing");
  CHECK(hwloc_fault("<a\n") == "line 1: a tag does not end");
  CHECK(hwloc_fault("<>") == "line 1: a tag has no name");
  CHECK(hwloc_fault("<a>\n<!-- ->") == "line 2: \"<!--\" does not end");
  CHECK(hwloc_fault("<a b>") == "line 1: <a>: \"b\" has no value");
  CHECK(hwloc_fault("<a b=c>") == "line 1: <a>: the value of \"b\" is not in quotes");
  CHECK(hwloc_fault("<a b=\"&nbsp;\">") == "line 1: <a>: \"b\" has an unknown entity");
  CHECK(hwloc_fault("<a b=\"1\" b='2'>") == "line 1: <a>: \"b\" is given twice");
  std::string deep;
  for (int i = 0; i < 101; ++i) deep += "<a>\n";
  CHECK(hwloc_fault(deep) == "line 101: elements are nested more than 100 deep");
  CHECK(hwloc_fault("<topology>\n<object/>") == "line 2: an object has no type");
  CHECK(
      hwloc_fault(changed(six_gpus, "nvml1", "nvml0")).find(": two GPUs have the name \"nvml0\"") !=
      std::string::npos);
  std::string many = "<topology>\n";
  for (int i = 0; i < 65; ++i) many += "<object type=\"PCIDev\" pci_type=\"0302\"/>\n";
  CHECK(hwloc_fault(many + "</topology>") == "line 66: more than 64 GPUs");
  const auto links = [](const std::string& indexes, const std::string& values) {
    const std::string fault = hwloc_fault(with_links("NVLinkBandwidth", indexes, values));
    return fault.substr(fault.find(':') + 2);
  };
  CHECK(links("OSDev:20 OSDev:99", "") ==
        "the matrix of links names \"OSDev:99\", which is no object");
  CHECK(links(std::string(1000, 'x'), "").size() < 150);
  CHECK(links("OSDev:20 OSDev:21", "1 2 3") == "the matrix of links has 3 values for 2 objects");
  CHECK(links("OSDev:20", "-1") == "the matrix of links has a value \"-1\", which is no number");
  CHECK(hwloc_fault(changed(with_links("NVLinkBandwidth", "", ""), "distances2hetero",
                            "distances2 type=\"OSDev\" indexing=\"os\""))
            .find("the matrix of links names objects by \"os\", not by \"gp\"") !=
        std::string::npos);
  const std::string twice = with_links("NVLinkBandwidth", "", "");
  const std::size_t at = twice.find("<distances2hetero");
  CHECK(hwloc_fault(twice.substr(0, twice.find("</topology>")) + twice.substr(at))
            .find("a second matrix of links; that of line ") != std::string::npos);
}

TEST_CASE("corrupted topologies do no harm") {
  using namespace topology_import;
  apiary::rng random(21);
  const std::string texts[] = {
      three_topologies, small_model,
      "kind: Topology\nmetadata: {name: a}\nspec:\n  levels:\n  - {nodeLabel: x/rack, alias: r}\n",
      with_links("NVLinkBandwidth", "OSDev:20 OSDev:21 OSDev:24 OSDev:15",
                 "9 7 0 0 7 9 0 0 0 0 9 7 0 0 7 9")};
  constexpr std::string_view bytes = "<>/=\"'&[]{},:- \nn01#\\x\t";
  int read = 0;
  for (int round = 0; round < apiary_test::scaled(4000); ++round) {
    const std::size_t kind = static_cast<std::size_t>(round) % 4;
    std::string text = texts[kind];
    for (std::uint32_t times = random.uniform(3); times > 0 && !text.empty(); --times) {
      const std::size_t at = random.uniform(static_cast<std::uint32_t>(text.size()));
      if (random() % 2 == 0)
        text.erase(at, 1 + random.uniform(20));
      else
        text[at] = bytes[random.uniform(static_cast<std::uint32_t>(bytes.size()))];
    }
    CAPTURE(text);
    if (kind == 0) {
      const auto file = slurm_topologies_yaml::read(text);
      if (!file.ok()) continue;
      const auto again = slurm_topologies_yaml::read(file->write());
      REQUIRE_MESSAGE(again.ok(), again.status().ToString());
      CHECK(again->all() == file->all());
      for (const auto& one : file->all()) {
        const auto cluster = one.cluster(five_nodes);
        if (cluster.ok() && example::write_slurm(*cluster).ok()) check_description(*cluster);
        CHECK((cluster.ok() || !cluster.status().message().empty()));
      }
    } else if (kind == 1) {
      const auto model = topograph_model::read(text);
      if (!model.ok()) continue;
      const auto again = topograph_model::read(model->write());
      REQUIRE_MESSAGE(again.ok(), again.status().ToString());
      CHECK(*again == *model);
      const auto cluster = model->cluster(8);
      if (cluster.ok() && example::write_slurm(*cluster).ok()) check_description(*cluster);
    } else if (kind == 2) {
      const auto topology = kubernetes_topologies::read(text);
      if (!topology.ok()) continue;
      const auto again = kubernetes_topologies::read(topology->write());
      REQUIRE_MESSAGE(again.ok(), again.status().ToString());
      CHECK(*again == *topology);
    } else {
      const auto node = hwloc_topology::read(text);
      if (!node.ok()) continue;
      const auto again = hwloc_topology::read(node->write());
      REQUIRE_MESSAGE(again.ok(), again.status().ToString());
      CHECK(*again == *node);
      for (const bool use_links : {true, false})
        if (const auto spec = node->tree(use_links); spec.ok())
          CHECK(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
    }
    ++read;
  }
  CHECK(read > 0);
}
