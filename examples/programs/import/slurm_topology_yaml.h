// apiary/examples/programs/import/slurm_topology_yaml.h - the topologies of Slurm's topology.yaml (25.05 and later), and back.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../text/json.h"
#include "../strict_yaml.h"
#include "slurm_lines.h"
#include "slurm_texts.h"
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// One topology of the file.
struct slurm_topology_yaml {
  // A switch or a block.
  struct part {
    std::string name{};
    std::string nodes{};     // a list of names, as in Slurm's files: n[1-16]
    std::string children{};  // a list of switches
    std::size_t line = 0;    // of the file; not compared
    friend bool operator==(const part& a, const part& b) {
      return a.name == b.name && a.nodes == b.nodes && a.children == b.children;
    }
  };
  std::string name{};
  std::string type{};  // tree, block or flat; cluster() refuses others
  bool cluster_default = false;
  std::vector<part> parts{};                 // of a tree, its switches; of blocks, the blocks
  std::vector<std::uint32_t> block_sizes{};  // of blocks
  std::size_t sizes_line = 0;                // of block_sizes; not compared
  std::size_t line = 0;                      // of the topology; not compared
  friend bool operator==(const slurm_topology_yaml& a, const slurm_topology_yaml& b) {
    return a.name == b.name && a.type == b.type && a.cluster_default == b.cluster_default &&
           a.parts == b.parts && a.block_sizes == b.block_sizes;
  }
  [[nodiscard]] static bool is_known(const std::string& type) {
    return type == "tree" || type == "block" || type == "flat";
  }

  // The cluster: this topology, with the nodes of a slurm.conf and a gres.conf.
  // kInvalidArgument: the faults, as read_slurm has them, with the lines of the topology.yaml.
  [[nodiscard]] absl::StatusOr<apiary::gang_cluster> cluster(std::string_view nodes,
                                                             std::string_view gres = {}) const {
    if (!is_known(type))
      return absl::InvalidArgumentError(absl::StrCat("topology, line ", line, ": topology \"", name,
                                                     "\" is of type \"", type,
                                                     "\", not tree, block or flat"));
    slurm_lines lines;
    for (const part& p : parts) {
      std::string words = absl::StrCat(type == "tree" ? "SwitchName=" : "BlockName=", p.name);
      if (!p.nodes.empty()) absl::StrAppend(&words, " Nodes=", p.nodes);
      if (!p.children.empty()) absl::StrAppend(&words, " Switches=", p.children);
      lines.add(p.line, words);
    }
    std::string sizes;
    for (const std::uint32_t size : block_sizes)
      absl::StrAppend(&sizes, sizes.empty() ? "" : ",", size);
    if (!sizes.empty()) lines.add(sizes_line, "BlockSizes=", sizes);
    auto all = read_slurm(lines.text(), nodes, gres);
    if (!all.ok()) return lines.with_lines("topology", all.status());
    return all;
  }
};

// All topologies of a file.
class slurm_topologies_yaml : private strict_yaml {
 public:
  // kInvalidArgument: faults of the structure, as strict_yaml lists them.
  static absl::StatusOr<slurm_topologies_yaml> read(const std::string& text) {
    slurm_topologies_yaml reader;
    try {
      const std::vector<YAML::Node> documents = YAML::LoadAll(text);
      if (documents.size() == 1 && documents[0].IsSequence())
        reader.read_all(documents[0]);
      else
        return absl::InvalidArgumentError(documents.size() > 1
                                              ? "a second document (line " +
                                                    std::to_string(line_of(documents[1])) +
                                                    "): one list of topologies expected"
                                              : "document (line 1): a list of topologies expected");
    } catch (const YAML::Exception& e) {
      return absl::InvalidArgumentError(std::string("topology: ") + e.what());
    }
    if (!reader.faults.empty()) return absl::InvalidArgumentError(reader.faults);
    return reader;
  }

  // The topology with this name. Without a name, the first one with cluster_default, or the only one.
  // kInvalidArgument: there is no such topology; the message has the names of all.
  [[nodiscard]] absl::StatusOr<slurm_topology_yaml> find(const std::string& name = "") const {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) {
      return name.empty() ? one.cluster_default || all_.size() == 1 : one.name == name;
    });
    if (found != all_.end()) return *found;
    if (all_.empty()) return absl::InvalidArgumentError("the file has no topology");
    std::string names;
    for (const slurm_topology_yaml& one : all_)
      absl::StrAppend(&names, names.empty() ? "" : ", ", one.name);
    return absl::InvalidArgumentError(
        name.empty()
            ? absl::StrCat("no topology has \"cluster_default: true\"; name one of ", names)
            : absl::StrCat("no topology has the name \"", name, "\"; the file has ", names));
  }

  // The file as text that read() reads as the same topologies.
  [[nodiscard]] std::string write() const {
    std::string to;
    for (const slurm_topology_yaml& one : all_) {
      absl::StrAppend(&to, "- topology: ", json_text(one.name),
                      "\n  cluster_default: ", one.cluster_default ? "true" : "false", "\n  ",
                      slurm_topology_yaml::is_known(one.type) ? one.type : json_text(one.type),
                      ":");
      if (one.type != "tree" && one.type != "block") to += " true\n";
      if (one.type == "block") to += "\n    block_sizes: [";
      for (const std::uint32_t& size : one.block_sizes)
        absl::StrAppend(&to, &size == one.block_sizes.data() ? "" : ", ", size);
      if (one.type == "block") to += "]\n    blocks:";
      if (one.type == "tree") to += "\n    switches:";
      for (const slurm_topology_yaml::part& p : one.parts) {
        absl::StrAppend(&to, "\n    - ",
                        one.type == "tree" ? "switch: " : "block: ", json_text(p.name));
        if (!p.children.empty()) absl::StrAppend(&to, "\n      children: ", json_text(p.children));
        if (!p.nodes.empty()) absl::StrAppend(&to, "\n      nodes: ", json_text(p.nodes));
      }
      if (to.back() != '\n') to += '\n';
    }
    return to;
  }
  [[nodiscard]] const std::vector<slurm_topology_yaml>& all() const noexcept { return all_; }

 private:
  void read_all(const YAML::Node& document) {
    items(document, "", [this](const YAML::Node& body, const std::string& path) {
      slurm_topology_yaml& one = all_.emplace_back();
      one.line = line_of(body);
      entries(body, path, [&](auto& key, auto& n, auto& p) {
        if (key == "topology") return text(n, p, one.name);
        if (key == "cluster_default") return truth(n, p, one.cluster_default);
        if (!one.type.empty())
          return fault(n, p, "a topology has one type; it is " + one.type + " already");
        one.type = key;
        if (key == "tree") return read_parts(n, p, "switches", "switch", one);
        if (key == "block") return read_parts(n, p, "blocks", "block", one);
        if (key != "flat") return true;
        bool flag = true;
        if (n.IsMap())
          return entries(n, p, [&](auto& field, auto& value, auto& at) {
            return field == "alpha_step_rank" && truth(value, at, flag);
          });
        truth(n, p, flag);
        return flag || fault(n, p, "true expected");
      });
      if (one.name.empty()) fault(body, path, "no name: topology is missing");
      if (one.type.empty()) fault(body, path, "tree, block or flat is missing");
      const auto [before, is_new] = line_of_name_.emplace(one.name, one.line);
      if (!is_new && !one.name.empty())
        fault(body, path,
              "the topology of line " + std::to_string(before->second) + " has the name \"" +
                  one.name + "\", too");
    });
  }
  bool read_parts(const YAML::Node& body, const std::string& path, const char* list,
                  const char* name, slurm_topology_yaml& to) {
    const std::size_t before = faults.size();
    entries(body, path, [&](auto& key, auto& n, auto& p) {
      if (key == "block_sizes" && to.type == "block") {
        to.sizes_line = line_of(n);
        return items(n, p, [&](const YAML::Node& size, const std::string& at) {
          number(size, at, to.block_sizes.emplace_back());
        });
      }
      return key == list && items(n, p, [&](const YAML::Node& item, const std::string& at) {
               slurm_topology_yaml::part& part = to.parts.emplace_back();
               part.line = line_of(item);
               entries(item, at, [&](auto& field, auto& value, auto& place) {
                 if (field == name) return word(value, place, true, part.name);
                 if (field == "nodes") return word(value, place, false, part.nodes);
                 return field == "children" && to.type == "tree" &&
                        word(value, place, false, part.children);
               });
               if (part.name.empty())
                 return void(fault(item, at, std::string(name) + " is missing"));
               if (part.nodes.empty() == part.children.empty())
                 fault(item, at,
                       to.type == "block" ? "nodes is missing" : "needs either nodes or children");
             });
    });
    if (to.parts.empty() && faults.size() == before)
      fault(body, path, std::string(list) + " is missing or empty");
    return true;
  }
  // A name, or a list of names.
  bool word(const YAML::Node& node, const std::string& path, bool one, std::string& value) {
    text(node, path, value);
    if (!node.IsScalar()) return true;
    const std::string why =
        one ? slurm_lines::fault_of_name(value) : slurm_lines::fault_of_list(value);
    if (why.empty()) return true;
    value = "?";  // one fault is enough
    return fault(node, path, why);
  }

  std::vector<slurm_topology_yaml> all_;
  std::map<std::string, std::size_t> line_of_name_;
};

}  // namespace example
