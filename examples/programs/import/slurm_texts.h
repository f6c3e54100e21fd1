// apiary/examples/programs/import/slurm_texts.h - a cluster described in the formats of Slurm's topology.conf, slurm.conf, gres.conf.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_nodes.h"
#include "slurm_reader.h"
#include "slurm_topology.h"
#include "slurm_writer.h"
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace example {

// Puts nodes below the switches of a topology. `at` says which line describes a node.
// kInvalidArgument: nodes that are described twice, that are not below one switch of each level, or that
// only the topology has.
template <class At>
[[nodiscard]] absl::Status put_below_switches(const slurm_topology& topology, const At& at,
                                              std::vector<apiary::gang_cluster::node>& nodes) {
  slurm_faults faults;
  const auto fault = [&](const auto&... words) {
    faults.ok(absl::InvalidArgumentError(absl::StrCat(words...)));
  };
  std::unordered_map<std::string_view, std::size_t> number_of;
  std::size_t below_switches = 0;
  std::uint64_t copied = 0;  // bytes of names of switches
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    apiary::gang_cluster::node& one = nodes[n];
    const auto [first, is_new] = number_of.emplace(one.name, n);
    if (!is_new) {
      fault(at(n), ": node \"", one.name, "\" is described twice, first in ", at(first->second));
      continue;
    }
    std::vector<std::string> cells = topology.above(one.name);
    below_switches += cells.empty() ? 0U : 1U;
    for (const std::string& cell : cells) copied += cell.size();
    if (copied > slurm_reader::max_copied) {
      fault(at(n), ": the nodes up to here need more than ", slurm_reader::max_copied,
            " bytes for the names of their switches");
      return faults.status();
    }
    if (cells.size() == topology.levels.size())
      one.cells = std::move(cells);
    else if (cells.empty())
      fault(at(n), ": node \"", one.name, "\" is in no switch of the topology");
    else
      fault(at(n), ": node \"", one.name, "\" is below ", cells.size(),
            cells.size() == 1 ? " switch" : " switches", "; the topology has ",
            topology.levels.size(), " levels of switches");
  }
  if (below_switches == topology.leaf_of.size()) return faults.status();
  std::vector<std::string_view> missing;
  for (const auto& [name, leaf] : topology.leaf_of)
    if (number_of.find(name) == number_of.end()) missing.push_back(name);
  std::sort(missing.begin(), missing.end());
  for (const std::string_view name : missing) {
    const slurm_switch& leaf = topology.switches[topology.leaf_of.at(std::string(name))];
    fault("topology, line ", leaf.line, ": node \"", std::string(name), "\" of switch \"",
          leaf.name, "\" has no NodeName line");
  }
  return faults.status();
}

// Reads texts in the formats of Slurm's topology.conf, slurm.conf and gres.conf. Switches that list
// nodes are racks, switches above them blocks, then level3, level4, ...; an empty topology has no
// racks. With the block topology, blocks are the lowest level, and each further number of
// BlockSizes is a level: block36 for 36 nodes. The page of the examples lists the keys that are read.
// If `nodes` is empty, the gres.conf describes the nodes.
// kInvalidArgument: the faults of all texts, one on each line, each with its line and what is wrong.
[[nodiscard]] inline absl::StatusOr<apiary::gang_cluster> read_slurm(std::string_view topology,
                                                                     std::string_view nodes,
                                                                     std::string_view gres = {}) {
  absl::StatusOr<slurm_topology> above = slurm_topology_reader::read(topology);
  slurm_node_reader from(nodes);
  absl::StatusOr<std::vector<apiary::gang_cluster::node>> described = from.read();
  absl::Status faults = faults_of_both(above.status(), described.status());
  if (!gres.empty())
    faults = faults_of_both(faults,
                            slurm_gres_reader::read(gres, described.ok() ? &*described : nullptr));
  APIARY_RETURN_IF_ERROR(faults);
  apiary::gang_cluster all;
  all.nodes = *std::move(described);
  const auto at = [&](std::size_t n) {
    return n < from.lines().size() ? absl::StrCat("nodes, line ", from.lines()[n])
                                   : std::string("gres");
  };
  APIARY_RETURN_IF_ERROR(put_below_switches(*above, at, all.nodes));
  all.levels = std::move(above->levels);
  APIARY_RETURN_IF_ERROR(all.check());
  return all;
}

// Writes a cluster as two texts that read_slurm() reads as the same cluster.
// kInvalidArgument: see gang_cluster::check; or a text that cannot be written, for example a name with
// a space or a comma, or one name for a rack and a block.
[[nodiscard]] inline absl::StatusOr<slurm_texts> write_slurm(const apiary::gang_cluster& cluster) {
  return slurm_writer::write(cluster);
}

}  // namespace example
