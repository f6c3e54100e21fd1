// apiary/tests/fuzz/cluster_fuzz.cpp - whatever files describe a cluster, a description reads back the same.
// SPDX-License-Identifier: MIT
//
// A text that begins with "{" is read as nodes of Kubernetes, with a tab as the output of nvidia-smi, with "<" as
// hwloc's XML, else as Slurm's topology, nodes and gres, with "====\n" between. What is read is valid, and
// written and read again, it is the same.
#include "../../examples/programs/import/hived_cells.h"
#include "../../examples/programs/import/hwloc_topology.h"
#include "../../examples/programs/import/kubernetes_import.h"
#include "../../examples/programs/import/nvidia_topology.h"
#include "../../examples/programs/import/slurm_texts.h"
#include <apiary/core/config.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using apiary::gang_cluster;

namespace {

void check_description(const gang_cluster& cluster) {
  APIARY_VERIFY(cluster.check().ok());
  if (cluster.nodes.size() > 2000) return;
  const auto texts = example::write_slurm(cluster);
  const auto cells = example::hived_cells::of(cluster);
  APIARY_VERIFY(cells.ok() || !cells.status().message().empty());
  if (!texts.ok()) return;
  const auto again = example::read_slurm(texts->topology, texts->nodes);
  APIARY_VERIFY(again.ok());
  APIARY_VERIFY(again->levels == cluster.levels && again->nodes == cluster.nodes);
}

void read_slurm(std::string_view rest) {
  constexpr std::string_view separator = "====\n";
  std::array<std::string_view, 3> texts;
  for (std::string_view& text : texts) {
    const std::size_t end = rest.find(separator);
    text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + separator.size());
  }
  // Ranges of many names are slow, and nothing new.
  std::size_t digits = 0;
  for (const std::string_view text : texts)
    for (const char c : text) {
      digits = c >= '0' && c <= '9' ? digits + 1 : 0;
      if (digits > 3) return;
    }
  const auto cluster = example::read_slurm(texts[0], texts[1], texts[2]);
  if (cluster.ok()) return check_description(*cluster);
  APIARY_VERIFY(cluster.status().code() == absl::StatusCode::kInvalidArgument);
}

void read_kubernetes(const std::string& text) {
  const std::vector<apiary_kubernetes::level_label> levels = {{"rack", "rack"}, {"block", "block"}};
  const auto nodes = example::kubernetes_reader::read(text, levels);
  if (!nodes.ok()) return;
  check_description(nodes->cluster);
  const auto again =
      example::kubernetes_reader::read(example::kubernetes_reader::write(*nodes), levels);
  APIARY_VERIFY(again.ok());
  APIARY_VERIFY(again->cluster.nodes == nodes->cluster.nodes && again->unusable == nodes->unusable);
}

void read_nvidia(std::string_view text) {
  const auto matrix = example::nvidia_topology::read(text);
  if (!matrix.ok()) return;
  const auto again = example::nvidia_topology::read(matrix->write());
  APIARY_VERIFY(again.ok() && again->num_gpus() == matrix->num_gpus());
  for (const bool use_nvlink : {true, false}) {
    const auto spec = matrix->tree(use_nvlink);
    APIARY_VERIFY(spec.ok() || spec.status().code() == absl::StatusCode::kInvalidArgument);
    if (spec.ok()) APIARY_VERIFY(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
  }
}

void read_hwloc(std::string_view text) {
  const auto node = example::hwloc_topology::read(text);
  if (!node.ok()) return;
  const auto again = example::hwloc_topology::read(node->write());
  APIARY_VERIFY(again.ok() && *again == *node);
  for (const bool use_links : {true, false}) {
    const auto spec = node->tree(use_links);
    APIARY_VERIFY(spec.ok() || spec.status().code() == absl::StatusCode::kInvalidArgument);
    if (spec.ok()) APIARY_VERIFY(apiary::named_tree<apiary::ragged_tree>::create(*spec).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.substr(0, 1) == "{") {
    read_kubernetes(std::string(text));
  } else if (text.substr(0, 1) == "\t") {
    read_nvidia(text);
  } else if (text.substr(0, 1) == "<") {
    read_hwloc(text);
  } else {
    read_slurm(text);
  }
  return 0;
}
