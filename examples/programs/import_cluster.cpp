// How do I use the files that describe my cluster? The program reads one of them, prints it as a
// description of apiary and a summary, or all faults, and checks that the description reads back the
// same. Without arguments it reads small samples.
// SPDX-License-Identifier: MIT
//
//   import_cluster slurm TOPOLOGY.CONF SLURM.CONF [GRES.CONF]   a file that you do not have: /dev/null
//   import_cluster slurm TOPOLOGY.YAML SLURM.CONF [GRES.CONF]   Slurm 25.05 and later
//   import_cluster kubernetes NODES.JSON [LABEL...]             `kubectl get nodes -o json`; labels that
//                                                               name racks, blocks, ..., the lowest first
//   import_cluster kubernetes NODES.JSON TOPOLOGY.YAML          the labels of a Topology of Kueue or KAI
//   import_cluster topograph MODEL.YAML GPUS [GPU-MODEL]        a model of Topograph; GPUs of each node
//   import_cluster nvidia-smi TOPO.TXT                          `nvidia-smi topo -m`
//   import_cluster hwloc TOPO.XML                               `lstopo --of xml`
//   import_cluster hived CONFIG.YAML                            HiveD's configuration
//
// With --hived as its last argument, it also prints physicalCluster for HiveD. If a YAML file has several
// topologies, --topology NAME says which one is meant.
#include "hived_yaml.h"
#include "import/hived_cells.h"
#include "import/hwloc_topology.h"
#include "import/kubernetes_import.h"
#include "import/kubernetes_topology.h"
#include "import/nvidia_topology.h"
#include "import/slurm_texts.h"
#include "import/slurm_topology_yaml.h"
#include "import/topograph_model.h"
#include <apiary/core/digits.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

using apiary::gang_cluster;

bool failed(const absl::Status& status) {
  if (!status.ok()) std::printf("refused:\n%s\n", std::string(status.message()).c_str());
  return !status.ok();
}

// Prints the faults of one file, then those of another one, if it has any. Returns the exit status.
int refuse(const absl::Status& first, const absl::Status& second) {
  failed(first);
  if (!second.ok()) std::printf("%s\n", std::string(second.message()).c_str());
  return 1;
}

// Prints nodes and GPUs, the cells of each level, and the models.
void print_summary(const gang_cluster& cluster, const std::vector<std::string>& unusable) {
  std::uint64_t gpus = 0;
  std::map<std::string, std::uint64_t> models;
  for (const gang_cluster::node& n : cluster.nodes) {
    gpus += n.gpus;
    if (n.gpus > 0) models[n.model.empty() ? "no model" : n.model] += n.gpus;
  }
  std::printf("summary: %zu nodes, %llu GPUs", cluster.nodes.size(),
              static_cast<unsigned long long>(gpus));
  for (const auto& [model, count] : models)
    std::printf("%s%llu of %s", model == models.begin()->first ? ": " : ", ",
                static_cast<unsigned long long>(count), model.c_str());
  std::printf("\n");
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    std::map<std::string, std::size_t> nodes;
    for (const gang_cluster::node& n : cluster.nodes) ++nodes[n.cells[l]];
    std::size_t least = cluster.nodes.size(), most = 0;
    for (const auto& [cell, count] : nodes) {
      least = (std::min)(least, count);
      most = (std::max)(most, count);
    }
    std::printf("level %s: %zu cells of %zu to %zu nodes\n", cluster.levels[l].c_str(),
                nodes.size(), least, most);
  }
  for (const std::string& node : unusable)
    std::printf("mark bad: %s (not ready, or cordoned)\n", node.c_str());
}

// Prints the description, and reads it again. Returns the exit status.
int show(const absl::StatusOr<gang_cluster>& cluster, const std::vector<std::string>& unusable,
         bool hived) {
  if (failed(cluster.status())) return 1;
  const auto texts = example::write_slurm(*cluster);
  if (failed(texts.status())) return 1;
  std::printf("%s%s", texts->topology.c_str(), texts->nodes.c_str());
  print_summary(*cluster, unusable);
  const auto again = example::read_slurm(texts->topology, texts->nodes);
  const bool same =
      again.ok() && again->levels == cluster->levels && again->nodes == cluster->nodes;
  std::printf("the description reads back %s\n", same ? "the same" : "differently");
  if (!same) return 1;
  if (!hived) return 0;
  const auto cells = example::hived_cells::of(*cluster);
  if (failed(cells.status())) return 1;
  std::printf("%s", example::hived_yaml_text(*cells).c_str());
  return 0;
}

// Whether a name says that a file is YAML.
bool is_yaml(const std::string& file) { return file.ends_with(".yaml") || file.ends_with(".yml"); }

int show_yaml_topology(const std::string& yaml, const std::string& name, const std::string& nodes,
                       const std::string& gres, bool hived) {
  const auto file = example::slurm_topologies_yaml::read(yaml);
  const absl::Status of_nodes = example::read_slurm("", nodes, gres).status();
  if (!file.ok()) return refuse(file.status(), of_nodes);
  const auto topology = file->find(name);
  if (!topology.ok()) return refuse(topology.status(), of_nodes);
  const auto again = example::slurm_topologies_yaml::read(file->write());
  const bool same = again.ok() && again->all() == file->all();
  std::printf("topology %s; the file reads back %s\n", topology->name.c_str(),
              same ? "the same" : "differently");
  return show(topology->cluster(nodes, gres), {}, hived) + (same ? 0 : 1);
}

int show_kubernetes(const std::string& text,
                    const std::vector<apiary_kubernetes::level_label>& levels, bool hived) {
  auto nodes = example::kubernetes_reader::read(text, levels);
  if (failed(nodes.status())) return 1;
  return show(nodes->cluster, nodes->unusable, hived);
}

int show_kubernetes_topology(const std::string& nodes, const std::string& yaml,
                             const std::string& name, bool hived) {
  const auto topology = example::kubernetes_topologies::read(yaml, name);
  if (!topology.ok())
    return refuse(topology.status(), example::kubernetes_reader::read(nodes, {}).status());
  const auto again = example::kubernetes_topologies::read(topology->write());
  const bool same = again.ok() && *again == *topology;
  std::printf("Topology %s; it reads back %s\n", topology->name.c_str(),
              same ? "the same" : "differently");
  return show_kubernetes(nodes, topology->labels(), hived) + (same ? 0 : 1);
}

int show_topograph(const std::string& yaml, const std::string& gpus, const std::string& gpu_model,
                   bool hived) {
  const auto number = apiary::detail::read_digits(gpus, gang_cluster::max_gpus);
  if (!number) {
    std::printf("refused:\n\"%s\" is no number of GPUs from 0 to %u\n", gpus.c_str(),
                gang_cluster::max_gpus);
    return 1;
  }
  const auto model = example::topograph_model::read(yaml);
  if (failed(model.status())) return 1;
  const auto again = example::topograph_model::read(model->write());
  const bool same = again.ok() && *again == *model;
  std::printf("the model reads back %s\n", same ? "the same" : "differently");
  return show(model->cluster(static_cast<std::uint32_t>(*number), gpu_model), {}, hived) +
         (same ? 0 : 1);
}

// Prints the GPUs of a node as a tree, or without NVLink if that makes no tree.
template <class Source>
int show_gpus(const absl::StatusOr<Source>& from, const char* what) {
  if (failed(from.status())) return 1;
  auto spec = from->tree();
  if (!spec.ok()) {
    std::printf("with NVLink: %s\n", std::string(spec.status().message()).c_str());
    spec = from->tree(false);
    if (failed(spec.status())) return 1;
    std::printf("without NVLink:\n");
  }
  const auto tree = apiary::named_tree<apiary::ragged_tree>::create(*spec);
  if (failed(tree.status())) return 1;
  for (apiary::level_t l = tree->tree().num_levels(); l-- > 0;) {
    std::printf("%s:", tree->level_name(l).c_str());
    for (const apiary::cell_id c : tree->tree().cells(l))
      std::printf(" %s", tree->cell_name(c).c_str());
    std::printf("\n");
  }
  const auto again = Source::read(from->write());
  const bool same = again.ok() && *again == *from;
  std::printf("the %s reads back %s\n", what, same ? "the same" : "differently");
  return same ? 0 : 1;
}

int show_hived(const absl::StatusOr<apiary::hived_config>& config) {
  if (failed(config.status())) return 1;
  const auto layout = apiary::hived_layout::create(*config);
  if (failed(layout.status())) return 1;
  for (const apiary::chain_layout& chain : layout->chains)
    std::printf("chain %s: %u GPUs\n", chain.name.c_str(), chain.tree.num_leaves());
  const std::string text = example::hived_yaml_text(*config);
  const auto again = example::parse_hived_yaml(text);
  const bool same = again.ok() && example::hived_yaml_text(*again) == text;
  std::printf("%sthe configuration reads back %s\n", text.c_str(),
              same ? "the same" : "differently");
  return same ? 0 : 1;
}

// A file that cannot be read is an error of the operating system.
absl::StatusOr<std::string> text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return absl::NotFoundError(file + ": cannot be read");
  return text;
}

constexpr const char* topology =
    "SwitchName=rack0 Nodes=n[0-1]\nSwitchName=rack1 Nodes=n[2-4]\nSwitchName=spine "
    "Switches=rack[0-1]\n";
constexpr const char* nodes =
    "ClusterName=demo\nNodeName=DEFAULT CPUs=96 RealMemory=1031000\nNodeName=n[0-1] Gres=gpu:8\n"
    "NodeName=n[2-4] Gres=gpu:4 Feature=ib\nPartitionName=all Nodes=n[0-4] Default=YES\n";
constexpr const char* gres =
    "AutoDetect=off\nNodeName=n[0-1] Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"
    "NodeName=n[2-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n";
constexpr const char* wrong_nodes =
    "NodeName=n[0-1] Gres=gpu:8\nNodeName=n2 Gres=gpu:many\n"
    "NodeName=n[3-4] Gres=mps:100\n";
constexpr const char* node_list = R"({"items": [
 {"metadata": {"name": "a0", "labels": {"example.com/rack": "r0", "nvidia.com/gpu.product": "H100"}},
  "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "95500m", "memory": "1055000Mi"},
             "conditions": [{"type": "Ready", "status": "True"}]}},
 {"metadata": {"name": "a1", "labels": {"nvidia.com/gpu.product": "H100"}},
  "spec": {"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]},
  "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "95500m", "memory": "1055000Mi"},
             "conditions": [{"type": "Ready", "status": "False"}]}}]})";
constexpr const char* wrong_list = R"({"items": [
 {"metadata": {"name": "a0"}, "status": {"allocatable": {"nvidia.com/gpu": "eight"}}},
 {"metadata": {"name": "a1", "labels": {"rack": 7}}, "status": {"allocatable": {"memory": "1 TB"}}}]})";
constexpr const char* matrix =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tSYS\tSYS\t0-23\t0\n"
    "GPU1\tNV4\t X \tSYS\tSYS\t0-23\t0\nGPU2\tSYS\tSYS\t X \tNV4\t24-47\t1\n"
    "GPU3\tSYS\tSYS\tNV4\t X \t24-47\t1\n";
constexpr const char* topologies =
    "- topology: fast\n  cluster_default: true\n  tree:\n    switches:\n"
    "    - {switch: spine, children: 'rack[0-1]'}\n    - {switch: rack0, nodes: 'n[0-1]'}\n"
    "    - {switch: rack1, nodes: 'n[2-4]'}\n- {topology: any, flat: true}\n";
constexpr const char* wrong_topologies =
    "- topology: fast\n  block:\n    block_sizes: [4, many]\n    blocks:\n    - nodes: n[0-3]\n"
    "    - {block: b1, children: n4}\n";
constexpr const char* topology_manifest =
    "apiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata: {name: default}\nspec:\n"
    "  levels:\n  - {nodeLabel: example.com/rack, alias: cabinet}\n"
    "  - nodeLabel: kubernetes.io/hostname\n";
constexpr const char* model =
    "switches:\n  core: {switches: [leaf1, leaf2, leaf3], labels: {zone: z1}}\nblocks:\n"
    "- {switch: leaf1, nodes: ['n[1-3]'], annotations: {accelerator: nvl1}}\n"
    "- {switch: leaf2, nodes: [n4, n5], annotations: {accelerator: nvl2}}\n";
constexpr const char* lstopo =
    "<topology version=\"2.0\">\n<object type=\"Machine\" nodeset=\"0x3\">\n"
    "<object type=\"Package\" nodeset=\"0x1\">"
    "<object type=\"PCIDev\" pci_type=\"0302 [10de:2330]\">"
    "<object type=\"OSDev\" gp_index=\"7\" name=\"nvml0\" subtype=\"NVML\"/></object>"
    "<object type=\"PCIDev\" pci_type=\"0302 [10de:2330]\">"
    "<object type=\"OSDev\" gp_index=\"8\" name=\"nvml1\" subtype=\"NVML\"/></object></object>\n"
    "<object type=\"Package\" nodeset=\"0x2\">"
    "<object type=\"PCIDev\" pci_type=\"0302 [10de:2330]\">"
    "<object type=\"OSDev\" gp_index=\"9\" name=\"nvml2\" subtype=\"NVML\"/></object></object>\n"
    "</object>\n<distances2 type=\"OSDev\" indexing=\"gp\" name=\"NVLinkBandwidth\">"
    "<indexes>7 8 9 </indexes><u64values>9 5 0 5 9 0 0 0 9</u64values></distances2>\n</topology>\n";

int show_samples() {
  std::printf("Slurm, topology.conf, slurm.conf and gres.conf:\n");
  int status = show(example::read_slurm(topology, nodes, gres), {}, false);
  std::printf("\nSlurm, blocks, for HiveD as well:\n");
  status += show(example::read_slurm("BlockName=b0 Nodes=n[0-1]\nBlockName=b1 Nodes=n[2-3]\n"
                                     "BlockSizes=2,4",
                                     "NodeName=n[0-3] Gres=gpu:gb200:4"),
                 {}, true);
  std::printf("\nSlurm, with faults:\n");
  show(example::read_slurm("SwitchName=rack0 Nodes=n[0-1", wrong_nodes), {}, false);
  std::printf("\nSlurm, topology.yaml:\n");
  status += show_yaml_topology(topologies, "", nodes, gres, false);
  std::printf("\nSlurm, topology.yaml, with faults:\n");
  show_yaml_topology(wrong_topologies, "", wrong_nodes, "", false);
  std::printf("\nKubernetes, racks from a label:\n");
  status += show_kubernetes(node_list, example::named_levels({"example.com/rack"}), false);
  std::printf("\nKubernetes, racks from a Topology:\n");
  status += show_kubernetes_topology(node_list, topology_manifest, "", false);
  std::printf("\nKubernetes, with faults:\n");
  show_kubernetes(wrong_list, example::named_levels({"rack"}), false);
  std::printf("\nTopograph, a model:\n");
  status += show_topograph(model, "8", "h100", false);
  std::printf("\nnvidia-smi topo -m:\n");
  status += show_gpus(example::nvidia_topology::read(matrix), "matrix");
  std::printf("\nhwloc, lstopo --of xml:\n");
  return status + show_gpus(example::hwloc_topology::read(lstopo), "file");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return show_samples();
  const bool hived = words.back() == "--hived";
  if (hived) words.pop_back();
  std::string name;  // of a topology
  const bool named = words.size() >= 2 && words[words.size() - 2] == "--topology";
  if (named) {
    name = words.back();
    words.resize(words.size() - 2);
  }
  const std::string kind = words.empty() ? "" : words[0];
  const bool has_topology = kind == "kubernetes" && words.size() == 3 && is_yaml(words[2]);
  if (named && !has_topology && !(kind == "slurm" && words.size() >= 3 && is_yaml(words[1]))) {
    std::fputs("--topology is for a topology in YAML, of Slurm or Kubernetes\n", stderr);
    return 2;
  }
  if (hived && kind != "slurm" && kind != "kubernetes" && kind != "topograph") {
    std::fputs("--hived is for slurm, kubernetes and topograph\n", stderr);
    return 2;
  }
  const std::size_t files = kind == "slurm" ? (std::min)(words.size(), std::size_t{4}) - 1
                            : has_topology  ? 2
                                            : 1;
  std::vector<std::string> texts;
  for (std::size_t i = 1; i <= files && i < words.size(); ++i) {
    const auto text = text_of(words[i]);
    if (failed(text.status())) return 1;
    texts.push_back(*text);
  }
  texts.resize((std::max)(texts.size(), std::size_t{3}));
  if (kind == "slurm" && words.size() >= 3 && words.size() <= 4) {
    if (is_yaml(words[1])) return show_yaml_topology(texts[0], name, texts[1], texts[2], hived);
    return show(example::read_slurm(texts[0], texts[1], texts[2]), {}, hived);
  }
  if (has_topology) return show_kubernetes_topology(texts[0], texts[1], name, hived);
  if (kind == "kubernetes" && words.size() >= 2)
    return show_kubernetes(texts[0], example::named_levels({words.begin() + 2, words.end()}),
                           hived);
  if (kind == "topograph" && words.size() >= 3 && words.size() <= 4)
    return show_topograph(texts[0], words[2], words.size() == 4 ? words[3] : "", hived);
  if (kind == "nvidia-smi" && words.size() == 2)
    return show_gpus(example::nvidia_topology::read(texts[0]), "matrix");
  if (kind == "hwloc" && words.size() == 2)
    return show_gpus(example::hwloc_topology::read(texts[0]), "file");
  if (kind == "hived" && words.size() == 2) return show_hived(example::parse_hived_yaml(texts[0]));
  std::fputs("the comment at the top of import_cluster.cpp says how to call it\n", stderr);
  return 2;
}
