// apiary/gang_scheduler/detail/gang_cluster_inl.h - bodies of gang_scheduler/gang_cluster.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/status.h>
#include <apiary/gang_scheduler/detail/named_cells.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether a node alone is described as it must be. levels: the names of the levels above the nodes.
[[nodiscard]] inline absl::Status check_node(const gang_cluster::node& n,
                                             std::span<const std::string> levels) {
  const auto fault = [](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  };
  if (n.name.empty()) return fault("a node has no name");
  if (n.gpus > gang_cluster::max_gpus)
    return fault("node \"", n.name, "\" has ", n.gpus, " GPUs; the limit is ",
                 gang_cluster::max_gpus);
  if (n.cells.size() != levels.size())
    return fault("node \"", n.name, "\" names ", n.cells.size(), " cells; the cluster has ",
                 levels.size(), " levels above the nodes");
  for (std::size_t l = 0; l < levels.size(); ++l)
    if (n.cells[l].empty()) return fault("node \"", n.name, "\" has no name for its ", levels[l]);
  return absl::OkStatus();
}

}  // namespace detail

APIARY_INLINE std::string node_filter::text() const {
  std::string text =
      nodes.empty() ? "nodes" : absl::StrCat("nodes ", detail::one_of(nodes.names(), " or "));
  if (nodes.names().size() > 3) text = absl::StrCat("a list of ", nodes.names().size(), " nodes");
  if (!labels.empty()) absl::StrAppend(&text, " with label ", detail::one_of(labels, " and "));
  if (!models.empty())
    absl::StrAppend(&text, labels.empty() ? " with GPU model " : " and GPU model ",
                    detail::one_of(models, " or "));
  if (!tolerations.empty())
    absl::StrAppend(&text, " (taint ", detail::one_of(tolerations, " and "), " is tolerated)");
  return text;
}

APIARY_INLINE absl::Status gang_cluster::check() const {
  const auto fault = [](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  };
  if (levels.size() >= ragged_tree::max_levels)
    return fault(levels.size(), " levels above the nodes; the limit is ",
                 ragged_tree::max_levels - 1);
  for (auto level = levels.begin(); level != levels.end(); ++level) {
    if (level->empty() || *level == "node" || *level == "cluster" ||
        std::find(levels.begin(), level, *level) != level)
      return fault("level name \"", *level, "\" is empty, used twice or reserved");
  }
  std::unordered_map<std::string, std::uint32_t> by_name;
  detail::named_cells cells(levels);
  for (const node& n : nodes) {
    APIARY_RETURN_IF_ERROR(detail::check_node(n, levels));
    if (!by_name.emplace(n.name, 0).second)
      return fault("node \"", n.name, "\" is described twice");
    if (const std::string wrong = cells.fault(n.cells); !wrong.empty())
      return fault("node \"", n.name, "\": ", wrong);
    cells.join(n.cells);
  }
  return absl::OkStatus();
}

APIARY_NAMESPACE_END
