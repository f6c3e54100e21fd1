// apiary/examples/programs/import/topograph_model.h - the switches and blocks of a model of NVIDIA Topograph, and back.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../text/json.h"
#include "../strict_yaml.h"
#include "slurm_lines.h"
#include "slurm_texts.h"
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// A model of Topograph: a tree of switches, and blocks of nodes below them. Switches become levels; labels
// of switches and annotations of blocks (the accelerator domain) become labels of the nodes. A switch
// without nodes below it is left out.
class topograph_model : private strict_yaml {
 public:
  struct network_switch {
    std::string name{};
    std::vector<std::string> switches{};          // directly below it
    std::map<std::string, std::string> labels{};  // of all nodes below it
    std::size_t line = 0;                         // of the file; not compared
    friend bool operator==(const network_switch& a, const network_switch& b) {
      return a.name == b.name && a.switches == b.switches && a.labels == b.labels;
    }
  };
  struct block {
    std::string on{};                             // its switch; empty: none
    std::vector<std::string> nodes{};             // each a name or a list: n[1-16]
    std::map<std::string, std::string> labels{};  // "annotations" of the file
    std::size_t line = 0;                         // of the file; not compared
    friend bool operator==(const block& a, const block& b) {
      return a.on == b.on && a.nodes == b.nodes && a.labels == b.labels;
    }
  };

  // kInvalidArgument: faults of the structure, as strict_yaml lists them.
  static absl::StatusOr<topograph_model> read(const std::string& text) {
    topograph_model model;
    try {
      const YAML::Node document = YAML::Load(text);
      if (!document.IsMap())
        return absl::InvalidArgumentError(
            "document (line 1): a mapping with switches and blocks expected");
      model.read_all(document);
    } catch (const YAML::Exception& e) {
      return absl::InvalidArgumentError(std::string("model: ") + e.what());
    }
    if (!model.faults.empty()) return absl::InvalidArgumentError(model.faults);
    return model;
  }

  // The cluster, with so many GPUs of this model on each node: the file says neither.
  // kInvalidArgument: the faults, as read_slurm has them, with the lines of the model.
  [[nodiscard]] absl::StatusOr<apiary::gang_cluster> cluster(std::uint32_t gpus,
                                                             const std::string& model = "") const {
    if (const std::string why = slurm_lines::fault_of_name(model); !model.empty() && !why.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("model of the GPUs \"", model.substr(0, 40), "\": ", why));
    std::map<std::string, std::string>
        above;  // of a switch that is listed, the first that lists it
    for (const network_switch& one : switches_)
      for (const std::string& below : one.switches) above.emplace(below, one.name);
    std::map<std::string, const network_switch*> found;
    for (const network_switch& one : switches_) found.emplace(one.name, &one);
    std::map<std::string, std::string> nodes_of;  // of switches with blocks
    std::set<std::string> used;                   // switches with nodes below them
    for (const block& one : blocks_) {
      if (one.on.empty()) continue;
      std::string& list = nodes_of[one.on];
      for (const std::string& names : one.nodes)
        absl::StrAppend(&list, list.empty() ? "" : ",", names);
      std::size_t height = 1;
      for (std::string at = one.on;; at = above.at(at), ++height) {
        if (height == apiary::ragged_tree::max_levels)
          return absl::InvalidArgumentError(
              absl::StrCat("topology, line ", one.line, ": switch \"", one.on, "\" has more than ",
                           height - 2, " switches above it, or is below a ring of switches"));
        used.insert(at);
        if (!above.contains(at)) break;
      }
    }
    slurm_lines topology;
    for (const network_switch& one : switches_) {
      std::string list;
      for (const std::string& below : one.switches)
        if (used.contains(below)) absl::StrAppend(&list, list.empty() ? "" : ",", below);
      if (!list.empty()) topology.add(one.line, "SwitchName=", one.name, " Switches=", list);
      if (!list.empty() && nodes_of.contains(one.name))
        return absl::InvalidArgumentError(absl::StrCat(
            "topology, line ", one.line, ": switch \"", one.name,
            "\" has switches and blocks below it; nodes must all be below equally many switches"));
    }
    slurm_lines nodes;
    std::set<std::string> written;  // switches
    const std::string gres = absl::StrCat(" Gres=gpu:", model, model.empty() ? "" : ":", gpus);
    for (const block& one : blocks_) {
      std::map<std::string, std::string> labels = one.labels;
      for (std::string at = one.on; !at.empty();) {
        if (const auto here = found.find(at); here != found.end())
          labels.insert(here->second->labels.begin(), here->second->labels.end());
        const auto up = above.find(at);
        at = up == above.end() ? "" : up->second;
      }
      std::string words;
      for (const auto& [key, value] : labels)
        absl::StrAppend(&words, words.empty() ? " Labels=" : ",", key, "=", value);
      if (!one.on.empty() && written.insert(one.on).second)
        topology.add(one.line, "SwitchName=", one.on, " Nodes=", nodes_of.at(one.on));
      for (const std::string& list : one.nodes) {
        if (nodes.text().size() + words.size() > max_bytes)
          return absl::InvalidArgumentError(
              absl::StrCat("nodes, line ", one.line, ": the labels of all blocks have more than ",
                           max_bytes, " bytes"));
        nodes.add(one.line, "NodeName=", list, gres, words);
      }
    }
    auto all = read_slurm(topology.text(), nodes.text());
    if (all.ok()) return all;
    return nodes.with_lines("nodes", topology.with_lines("topology", all.status()));
  }

  // The model as YAML that read() reads as the same model.
  [[nodiscard]] std::string write() const {
    std::string to = switches_.empty() ? "switches: {}\n" : "switches:\n";
    for (const network_switch& one : switches_) {
      absl::StrAppend(&to, "  ", json_text(one.name), ": {");
      write_labels(one.labels, "labels", to);
      write_names(one.switches, "switches", to);
      to += "}\n";
    }
    to += blocks_.empty() ? "blocks: []\n" : "blocks:\n";
    for (const block& one : blocks_) {
      absl::StrAppend(&to, "- {");
      if (!one.on.empty()) absl::StrAppend(&to, "switch: ", json_text(one.on));
      write_names(one.nodes, "nodes", to);
      write_labels(one.labels, "annotations", to);
      to += "}\n";
    }
    return to;
  }
  [[nodiscard]] const std::vector<network_switch>& switches() const noexcept { return switches_; }
  [[nodiscard]] const std::vector<block>& blocks() const noexcept { return blocks_; }
  friend bool operator==(const topograph_model& a, const topograph_model& b) {
    return a.switches_ == b.switches_ && a.blocks_ == b.blocks_;
  }

 private:
  void read_all(const YAML::Node& document) {
    entries(document, "", [this](auto& top, auto& body, auto& path) {
      if (top == "switches")
        return entries(body, path, [this](auto& name, auto& one, auto& at) {
          network_switch& to = switches_.emplace_back();
          to.name = name;
          to.line = line_of(one);
          if (const std::string why = slurm_lines::fault_of_name(name); !why.empty())
            fault(one, at, why);
          return entries(one, at, [&](auto& key, auto& n, auto& p) {
            if (key == "labels") return read_labels(n, p, to.labels);
            return key == "switches" &&
                   items(n, p, [&](const YAML::Node& item, const std::string& i) {
                     word(item, i, true, to.switches.emplace_back());
                   });
          });
        });
      return top == "blocks" &&
             items(body, path, [this](const YAML::Node& one, const std::string& at) {
               block& to = blocks_.emplace_back();
               to.line = line_of(one);
               entries(one, at, [&](auto& key, auto& n, auto& p) {
                 if (key == "switch") return word(n, p, true, to.on);
                 if (key == "annotations") return read_labels(n, p, to.labels);
                 return key == "nodes" &&
                        items(n, p, [&](const YAML::Node& item, const std::string& i) {
                          word(item, i, false, to.nodes.emplace_back());
                        });
               });
               if (to.nodes.empty()) fault(one, at, "nodes is missing");
             });
    });
  }
  bool read_labels(const YAML::Node& map, const std::string& path,
                   std::map<std::string, std::string>& to) {
    return entries(map, path, [&](auto& key, auto& n, auto& p) {
      std::string& value = to[key];
      text(n, p, value);
      const std::string both = key + value;
      if (key.find('=') != std::string::npos || both.find(',') != std::string::npos ||
          !slurm_lines::is_word(both))
        fault(n, p, "a key without \"=\", and no space, \", # or comma expected");
      return true;
    });
  }
  // A name, or a list of names.
  bool word(const YAML::Node& node, const std::string& path, bool one, std::string& to) {
    text(node, path, to);
    if (!node.IsScalar()) return true;
    const std::string why = one ? slurm_lines::fault_of_name(to) : slurm_lines::fault_of_list(to);
    return why.empty() || fault(node, path, why);
  }

  static void write_labels(const std::map<std::string, std::string>& labels, const char* key,
                           std::string& to) {
    if (labels.empty()) return;
    absl::StrAppend(&to, to.back() == '{' ? "" : ", ", key, ": {");
    for (const auto& [name, value] : labels)
      absl::StrAppend(&to, to.back() == '{' ? "" : ", ", json_text(name), ": ", json_text(value));
    to += '}';
  }
  static void write_names(const std::vector<std::string>& names, const char* key, std::string& to) {
    if (names.empty()) return;
    absl::StrAppend(&to, to.back() == '{' ? "" : ", ", key, ": [");
    for (const std::string& name : names)
      absl::StrAppend(&to, to.back() == '[' ? "" : ", ", json_text(name));
    to += ']';
  }

  // Of the lines for gang_cluster: labels are written for each block.
  static constexpr std::size_t max_bytes = std::size_t{64} << 20;
  std::vector<network_switch> switches_;
  std::vector<block> blocks_;
};

}  // namespace example
