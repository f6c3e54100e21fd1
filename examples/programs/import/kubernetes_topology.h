// apiary/examples/programs/import/kubernetes_topology.h - the levels of a Topology of Kueue or KAI, and back.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../hosts/kubernetes/kubernetes_records.h"
#include "../../text/json.h"
#include "../strict_yaml.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// Gives each level a name of its own. A level with an alias is called that; aliases must differ. Another
// level is called by the text behind the last "/" of its label, by the whole label, or by the label with a
// number: the first of these that is not taken. "node" and "cluster" are reserved.
inline std::vector<apiary_kubernetes::level_label> named_levels(
    const std::vector<std::string>& labels, const std::vector<std::string>& aliases = {}) {
  std::vector<apiary_kubernetes::level_label> all;
  std::set<std::string> taken = {"", "node", "cluster"};
  for (std::size_t l = 0; l < labels.size(); ++l) {
    all.push_back({l < aliases.size() ? aliases[l] : "", labels[l]});
    taken.insert(all.back().name);
  }
  for (apiary_kubernetes::level_label& one : all) {
    if (!one.name.empty()) continue;
    one.name = one.label.substr(one.label.rfind('/') + 1);
    if (taken.contains(one.name)) one.name = one.label;
    for (int number = 2; taken.contains(one.name); ++number)
      one.name = absl::StrCat(one.label, "-", number);
    taken.insert(one.name);
  }
  return all;
}

// A Topology: the labels of nodes that name their block, rack, ...
struct kubernetes_topology {
  struct level {
    std::string label{};
    std::string alias{};  // KAI's name for the level; may be empty
    friend bool operator==(const level&, const level&) = default;
  };
  std::string api{};            // for example kueue.x-k8s.io/v1beta2
  std::string name{};           // of the Topology
  std::vector<level> levels{};  // the widest first
  friend bool operator==(const kubernetes_topology&, const kubernetes_topology&) = default;

  // The label of a node's own name; it can only be the last level.
  static constexpr const char* host_label = "kubernetes.io/hostname";

  // The levels above the nodes, the lowest first, as kubernetes_reader wants them.
  [[nodiscard]] std::vector<apiary_kubernetes::level_label> labels() const {
    std::vector<std::string> texts;
    std::vector<std::string> aliases;
    for (auto at = levels.rbegin(); at != levels.rend(); ++at) {
      if (at->label == host_label) continue;
      texts.push_back(at->label);
      aliases.push_back(at->alias);
    }
    return named_levels(texts, aliases);
  }

  // As YAML that kubernetes_topologies::read() reads as this Topology.
  [[nodiscard]] std::string write() const {
    std::string to = absl::StrCat("apiVersion: ", json_text(api),
                                  "\nkind: Topology\nmetadata:\n  name: ", json_text(name),
                                  "\nspec:\n  levels:\n");
    for (const level& one : levels) {
      absl::StrAppend(&to, "  - nodeLabel: ", json_text(one.label), "\n");
      if (!one.alias.empty()) absl::StrAppend(&to, "    alias: ", json_text(one.alias), "\n");
    }
    return to;
  }
};

// Reads the Topologies of a file of manifests, or of `kubectl get topologies -o yaml`. Other manifests of
// the file are skipped.
class kubernetes_topologies : private strict_yaml {
 public:
  // The Topology with this name, or the only one.
  // kInvalidArgument: faults as strict_yaml lists them, or there is no such Topology.
  static absl::StatusOr<kubernetes_topology> read(const std::string& text,
                                                  const std::string& name = "") {
    kubernetes_topologies reader;
    try {
      for (const YAML::Node& document : YAML::LoadAll(text)) reader.read_manifest(document, "");
    } catch (const YAML::Exception& e) {
      return absl::InvalidArgumentError(std::string("Topology: ") + e.what());
    }
    if (!reader.faults.empty()) return absl::InvalidArgumentError(reader.faults);
    std::vector<const kubernetes_topology*> found;
    std::string names;
    for (const kubernetes_topology& one : reader.all_) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", one.name);
      if (name.empty() || one.name == name) found.push_back(&one);
    }
    if (found.size() == 1) return *found.front();
    if (names.empty()) return absl::InvalidArgumentError("no manifest is of kind Topology");
    return absl::InvalidArgumentError(
        found.empty()
            ? absl::StrCat("no Topology has the name \"", name, "\"; the file has ", names)
            : absl::StrCat(found.size(), " Topologies; name one of ", names));
  }

 private:
  void read_manifest(const YAML::Node& manifest, const std::string& path) {
    if (!manifest.IsMap()) return;
    const std::string before = path.empty() ? "" : path + ".";
    const YAML::Node kind = manifest["kind"];
    if (!kind.IsDefined() || !kind.IsScalar()) return;
    if (kind.Scalar() == "List" || kind.Scalar() == "TopologyList") {
      const YAML::Node list = manifest["items"];
      if (!list.IsDefined()) return void(fault(manifest, before + "items", "is missing"));
      items(list, before + "items", [this](const YAML::Node& item, const std::string& at) {
        // A list has no lists in it.
        if (item.IsMap() && item["kind"] && item["kind"].IsScalar() &&
            item["kind"].Scalar() == "Topology")
          read_manifest(item, at);
      });
      return;
    }
    if (kind.Scalar() != "Topology") return;
    kubernetes_topology& one = all_.emplace_back();
    entries(manifest, path, [&](auto& key, auto& n, auto& p) {
      if (key == "apiVersion") return text(n, p, one.api);
      if (key == "metadata")
        return entries(n, p, [&](auto& field, auto& value, auto& at) {
          return field != "name" || text(value, at, one.name);
        });
      if (key == "spec")
        return entries(n, p, [&](auto& field, auto& value, auto& at) {
          return field == "levels" && read_levels(value, at, one);
        });
      return true;
    });
    if (one.name.empty()) fault(manifest, before + "metadata.name", "is missing");
    if (one.levels.empty()) fault(manifest, before + "spec.levels", "a list of levels expected");
  }
  bool read_levels(const YAML::Node& list, const std::string& path, kubernetes_topology& to) {
    return items(list, path, [&](const YAML::Node& item, const std::string& at) {
      if (!to.levels.empty() && to.levels.back().label == kubernetes_topology::host_label)
        fault(item, at,
              absl::StrCat("a level below ", kubernetes_topology::host_label,
                           ", which is a node itself"));
      kubernetes_topology::level level;
      entries(item, at, [&](auto& key, auto& n, auto& p) {
        if (key == "nodeLabel") return text(n, p, level.label);
        return key == "alias" && text(n, p, level.alias);
      });
      if (level.label.empty()) return void(fault(item, at, "nodeLabel is missing"));
      if (level.alias == "node" || level.alias == "cluster")
        return void(fault(item, at, absl::StrCat("the alias \"", level.alias, "\" is reserved")));
      for (const kubernetes_topology::level& before : to.levels)
        if (before.label == level.label || (!level.alias.empty() && before.alias == level.alias))
          return void(
              fault(item, at, absl::StrCat("the label or the alias is that of a level before")));
      if (to.levels.size() == max_levels)
        return void(fault(item, at, absl::StrCat("more than ", max_levels, " levels")));
      to.levels.push_back(std::move(level));
    });
  }

  // As many as KAI takes.
  static constexpr std::size_t max_levels = 16;
  std::vector<kubernetes_topology> all_;
};

}  // namespace example
