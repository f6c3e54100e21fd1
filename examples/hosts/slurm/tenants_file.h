// apiary/examples/hosts/slurm/tenants_file.h - reads the quotas of tenants, and makes HiveD's configuration of them.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_records.h"
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace apiary_slurm {

// What an account owns: racks, and nodes beside them.
struct tenant_quota {
  std::string account{};
  std::string model{};  // of the GPUs; empty: the only one of the cluster
  std::uint32_t racks = 0;
  std::uint32_t nodes = 0;
  friend bool operator==(const tenant_quota&, const tenant_quota&) = default;
};

// Reads lines like "Account=red Racks=1 Nodes=2 Model=v100". An account may have several lines, one for
// each model, and one without racks and nodes: its jobs are guests. `#` begins a comment.
// kInvalidArgument: names the line and what is wrong with it.
[[nodiscard]] inline absl::StatusOr<std::vector<tenant_quota>> read_tenants(std::string_view text) {
  std::vector<tenant_quota> all;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = (std::min)(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix((std::min)(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const auto fault = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("tenants, line ", number, ": ", what));
    };
    tenant_quota one;
    bool any = false;
    std::string clean(line);
    for (char& c : clean)
      if (c == '\t' || c == '\r') c = ' ';
    for (const std::string_view word : words(clean, ' ')) {
      any = true;
      std::string_view value = word;
      const auto number_to = [&](std::uint32_t& to) { return read_number(value, to); };
      bool good = true;
      if (skip(value, "Account=")) {
        one.account = value;
      } else if (skip(value, "Model=")) {
        one.model = value;
      } else if (skip(value, "Racks=")) {
        good = number_to(one.racks);
      } else if (skip(value, "Nodes=")) {
        good = number_to(one.nodes);
      } else {
        return fault(absl::StrCat("\"", std::string(word),
                                  "\" is not known; known are Account, Racks, Nodes and Model"));
      }
      if (!good) return fault(absl::StrCat("\"", std::string(word), "\" has no number"));
    }
    if (!any) continue;
    if (one.account.empty()) return fault("it names no account");
    for (const tenant_quota& other : all)
      if (other.account == one.account && other.model == one.model)
        return fault(absl::StrCat("account ", one.account, " has a line for this model already"));
    all.push_back(std::move(one));
  }
  return all;
}

// HiveD's configuration: a chain for each GPU model, of racks with equal nodes; without switches, of
// nodes. Nodes without GPUs are left out, and so are levels above the racks. kInvalidArgument: two racks or
// nodes of a model differ, a model has a dot, which HiveD reserves for paths of cell types, or a quota
// has no such model or no racks. HiveD itself checks that the quotas fit into the cluster.
[[nodiscard]] inline absl::StatusOr<apiary::hived_config> configuration_of(
    const apiary::gang_cluster& cluster, const std::vector<tenant_quota>& tenants) {
  struct rack_of_model {
    std::string name{};
    std::uint32_t gpus = 0;  // of each node
    std::vector<std::string> nodes{};
  };
  std::map<std::string, std::vector<rack_of_model>> models;
  const bool has_racks = !cluster.levels.empty();
  for (const apiary::gang_cluster::node& node : cluster.nodes) {
    if (node.gpus == 0) continue;
    if (node.model.find('.') != std::string::npos)
      return absl::InvalidArgumentError(
          absl::StrCat("node ", node.name, " has GPUs of model ", node.model,
                       ": tenants need models without a dot, which separates types of cells"));
    std::vector<rack_of_model>& racks = models[node.model.empty() ? "gpu" : node.model];
    const std::string rack = has_racks ? node.cells[0] : "";
    auto at = racks.begin();
    while (at != racks.end() && at->name != rack) ++at;
    if (at == racks.end()) at = racks.insert(at, {.name = rack, .gpus = node.gpus});
    if (at->gpus != node.gpus)
      return absl::InvalidArgumentError(
          absl::StrCat("node ", node.name, " has ", node.gpus, " GPUs of model ", node.model,
                       ", node ", at->nodes[0], " has ", at->gpus, ": tenants need equal nodes"));
    at->nodes.push_back(node.name);
  }
  if (models.empty()) return absl::InvalidArgumentError("the cluster has no node with GPUs");

  apiary::hived_config config;
  for (const auto& [model, racks] : models) {
    const std::string node_type = absl::StrCat(model, "-node"),
                      rack_type = absl::StrCat(model, "-rack");
    const rack_of_model& first = racks[0];
    const auto per_rack = static_cast<std::uint32_t>(first.nodes.size());
    config.cell_types.push_back({node_type, model, first.gpus, true});
    if (has_racks) config.cell_types.push_back({rack_type, node_type, per_rack});
    for (const rack_of_model& rack : racks) {
      if (rack.gpus != first.gpus || (has_racks && rack.nodes.size() != per_rack))
        return absl::InvalidArgumentError(
            absl::StrCat("rack ", first.name, " has ", per_rack, " nodes with ", first.gpus,
                         " GPUs of model ", model, ", rack ", rack.name, " has ", rack.nodes.size(),
                         " with ", rack.gpus, ": tenants need equal racks"));
      std::vector<apiary::physical_cell_config> nodes;
      for (const std::string& node : rack.nodes) nodes.push_back({.address = node});
      if (has_racks) {
        config.physical_cells.push_back({.type = rack_type, .children = std::move(nodes)});
      } else {
        for (apiary::physical_cell_config& node : nodes) {
          node.type = node_type;
          config.physical_cells.push_back(std::move(node));
        }
      }
    }
  }
  for (const tenant_quota& quota : tenants) {
    std::string model = quota.model;
    if (model.empty()) {
      if (models.size() > 1 && quota.racks + quota.nodes > 0)
        return absl::InvalidArgumentError(absl::StrCat(
            "account ", quota.account, " names no model; the cluster has ", models.size()));
      model = models.begin()->first;
    }
    if (!models.contains(model))
      return absl::InvalidArgumentError(
          absl::StrCat("account ", quota.account, ": the cluster has no GPUs of model ", model));
    if (quota.racks > 0 && !has_racks)
      return absl::InvalidArgumentError(
          absl::StrCat("account ", quota.account, " owns racks; the cluster has no switches"));
    auto tenant = config.virtual_clusters.begin();
    while (tenant != config.virtual_clusters.end() && tenant->name != quota.account) ++tenant;
    if (tenant == config.virtual_clusters.end())
      tenant = config.virtual_clusters.insert(tenant, {.name = quota.account});
    const std::string rack_type = absl::StrCat(model, "-rack"),
                      node_type = absl::StrCat(model, "-node");
    if (quota.racks > 0) tenant->cells.push_back({rack_type, quota.racks});
    if (quota.nodes > 0)
      tenant->cells.push_back(
          {has_racks ? absl::StrCat(rack_type, ".", node_type) : node_type, quota.nodes});
  }
  return config;
}

}  // namespace apiary_slurm
