// Reads a configuration of the open-source HiveD, in YAML or JSON, into apiary::hived_config. To be
// copied, with strict_yaml.h; needs only yaml-cpp. It reports all faults of the structure of the document,
// with path and line; apiary::hived_layout::create checks the values. Fields that the open-source scheduler
// accepts and ignores, too, are warnings.
// SPDX-License-Identifier: MIT
#pragma once

#include "strict_yaml.h"
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// Reads one document.
class hived_yaml_reader : public strict_yaml {
 public:
  apiary::hived_config config{};
  std::vector<std::string> warnings{};  // "path: what has no effect"

  // Reads virtualClusters and physicalCluster; ignores other fields of the document. If it is a
  // Kubernetes ConfigMap, reads the text in its data.
  void read(const YAML::Node& document) {
    if (document.IsMap() && !document["physicalCluster"] && document["data"] &&
        document["data"].IsMap()) {
      for (const auto& entry : document["data"]) {
        if (!entry.second.IsScalar()) continue;
        const YAML::Node file = YAML::Load(entry.second.Scalar());
        if (file.IsMap() && file["physicalCluster"]) return read(file);
      }
    }
    entries(document, "", [this](auto& top, auto& node, auto& path) {
      if (top == "virtualClusters") return read_tenants(node, path);
      if (top != "physicalCluster") return true;
      return entries(node, path, [this](auto& key, auto& n, auto& p) {
        if (key == "cellTypes") return read_types(n, p);
        if (key == "skuTypes" || key == "gpuTypes") return warn(p, "has no effect");
        return key == "physicalCells" && read_cells(n, p, max_depth, config.physical_cells);
      });
    });
  }

 private:
  static constexpr int max_depth = 16;  // YAML aliases can make cells that contain themselves

  bool warn(const std::string& path, const std::string& what) {
    warnings.push_back(path + ": " + what);
    return true;
  }

  bool read_types(const YAML::Node& node, const std::string& path) {
    return entries(node, path, [this](auto& name, auto& body, auto& place) {
      apiary::cell_type_config& type = config.cell_types.emplace_back();
      type.name = name;
      return entries(body, place, [&](auto& key, auto& n, auto& p) {
        if (key == "childCellType") return text(n, p, type.child_type);
        if (key == "childCellNumber") return number(n, p, type.child_count);
        return key == "isNodeLevel" && truth(n, p, type.is_node);
      });
    });
  }

  bool read_cells(const YAML::Node& node, const std::string& path, int depth,
                  std::vector<apiary::physical_cell_config>& cells) {
    if (depth == 0) return fault(node, path, "is nested too deeply");
    return items(node, path, [&](const YAML::Node& body, const std::string& place) {
      apiary::physical_cell_config& cell = cells.emplace_back();
      entries(body, place, [&](auto& key, auto& n, auto& p) {
        if (key == "cellType") return text(n, p, cell.type);
        if (key == "cellAddress") {  // perhaps with its path, as in the annotations of pods
          text(n, p, cell.address);
          cell.address.erase(0, cell.address.rfind('/') + 1);
          return true;
        }
        if (key == "pinnedCellId") return text(n, p, cell.pinned_id);
        return key == "cellChildren" && read_cells(n, p, depth - 1, cell.children);
      });
    });
  }

  bool read_tenants(const YAML::Node& node, const std::string& path) {
    return entries(node, path, [this](auto& name, auto& body, auto& place) {
      apiary::virtual_cluster_config& tenant = config.virtual_clusters.emplace_back();
      tenant.name = name;
      const auto read_quota = [&](const YAML::Node& quota, const std::string& at) {
        apiary::virtual_cell_config& cells = tenant.cells.emplace_back();
        if (quota.IsMap() && !quota["cellNumber"]) fault(quota, at, "cellNumber is missing");
        entries(quota, at, [&](auto& key, auto& n, auto& p) {
          if (key == "cellType") return text(n, p, cells.type);
          return key == "cellNumber" && number(n, p, cells.count);
        });
      };
      const auto read_pinned = [&](const YAML::Node& pinned, const std::string& at) {
        std::string& id = tenant.pinned_ids.emplace_back();
        entries(pinned, at, [&](auto& key, auto& n, auto& p) {
          return key == "pinnedCellId" && text(n, p, id);
        });
      };
      return entries(body, place, [&](auto& key, auto& n, auto& p) {
        if (key == "virtualCells") return items(n, p, read_quota);
        return key == "pinnedCells" && items(n, p, read_pinned);
      });
    });
  }
};

// Of several documents in one text, the first that has a configuration.
inline YAML::Node hived_document(const std::string& text) {
  const std::vector<YAML::Node> all = YAML::LoadAll(text);
  for (const YAML::Node& one : all)
    if (all.size() > 1 && one.IsMap() && (one["physicalCluster"] || one["data"])) return one;
  return all.empty() ? YAML::Node() : all.front();
}

// Reads the configuration from the YAML::Node that `load` returns; catches yaml-cpp's exceptions.
// Sets the warnings if they are wanted.
// kInvalidArgument: faults, at most 20, one on each line, as "path (line N): what is wrong".
template <class Load>
absl::StatusOr<apiary::hived_config> read_hived_yaml_from(const std::string& name, Load load,
                                                          std::vector<std::string>* warnings) {
  try {
    hived_yaml_reader reader;
    reader.read(load());
    if (!reader.faults.empty()) return absl::InvalidArgumentError(reader.faults);
    if (warnings != nullptr) *warnings = std::move(reader.warnings);
    return std::move(reader.config);
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(name + ": " + e.what());
  }
}
inline absl::StatusOr<apiary::hived_config> read_hived_yaml(
    const YAML::Node& document, std::vector<std::string>* warnings = nullptr) {
  return read_hived_yaml_from(
      "document", [&] { return document; }, warnings);
}
inline absl::StatusOr<apiary::hived_config> parse_hived_yaml(
    const std::string& text, std::vector<std::string>* warnings = nullptr) {
  return read_hived_yaml_from(
      "document", [&] { return hived_document(text); }, warnings);
}
// The same for a file. Also kNotFound, kPermissionDenied, ...: the file cannot be read.
inline absl::StatusOr<apiary::hived_config> load_hived_yaml(
    const std::string& file, std::vector<std::string>* warnings = nullptr) {
  std::FILE* const in = std::fopen(file.c_str(), "rb");
  if (in == nullptr) return absl::ErrnoToStatus(errno, file);
  std::string text;
  char buffer[4096];
  std::size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof buffer, in)) > 0) text.append(buffer, n);
  const int error = std::ferror(in) != 0 ? errno : 0;
  std::fclose(in);
  if (error != 0) return absl::ErrnoToStatus(error, file);
  return read_hived_yaml_from(
      file, [&] { return hived_document(text); }, warnings);
}

}  // namespace example
