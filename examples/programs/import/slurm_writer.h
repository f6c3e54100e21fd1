// apiary/examples/programs/import/slurm_writer.h - writes a description of a cluster in Slurm's format.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_topology.h"
#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace example {

// "n[1-3,07],m": the names as slurm_reader::names reads them.
[[nodiscard]] inline std::string slurm_name_list(std::span<const std::string_view> names) {
  std::string text;
  std::string_view prefix;  // of the ranges that are open
  bool open = false;
  const auto split = [](std::string_view name) {
    std::size_t at = name.size();
    while (at > 0 && name.size() - at < 9 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
    return at;
  };
  for (std::size_t i = 0; i < names.size();) {
    const std::size_t at = split(names[i]);
    const std::string_view digits = names[i].substr(at);
    std::size_t end = i + 1;  // of the run that starts here
    const std::optional<std::uint64_t> first = apiary::detail::read_digits(digits);
    for (std::uint64_t next = first.value_or(0) + 1; first && end < names.size(); ++end, ++next) {
      std::string number = std::to_string(next);
      if (number.size() < digits.size()) number.insert(0, digits.size() - number.size(), '0');
      if (names[end] != absl::StrCat(std::string(names[i].substr(0, at)), number)) break;
    }
    const bool same = open && first && names[i].substr(0, at) == prefix;
    const bool opens =
        same || (first && (end > i + 1 || (i + 1 < names.size() && split(names[i + 1]) == at &&
                                           at < names[i + 1].size() &&
                                           names[i + 1].substr(0, at) == names[i].substr(0, at))));
    if (open && !same) text += ']';
    if (i > 0) text += ',';
    if (opens && !same) absl::StrAppend(&text, std::string(names[i].substr(0, at)), "[");
    absl::StrAppend(&text, std::string(opens ? digits : names[i]));
    if (opens && end > i + 1) absl::StrAppend(&text, "-", std::string(names[end - 1].substr(at)));
    open = opens;
    prefix = names[i].substr(0, at);
    i = opens ? end : i + 1;
  }
  return open ? text + ']' : text;
}

// Two texts that read_slurm() reads as one cluster.
struct slurm_texts {
  std::string topology{};  // lines SwitchName=...; other names of levels follow Level=
  std::string nodes{};     // lines NodeName=...
};

// Writes the two texts that read_slurm() reads.
class slurm_writer {
 public:
  // kInvalidArgument: what these texts cannot say.
  [[nodiscard]] static absl::StatusOr<slurm_texts> write(const apiary::gang_cluster& cluster) {
    APIARY_RETURN_IF_ERROR(cluster.check());
    slurm_texts to;
    APIARY_RETURN_IF_ERROR(write_topology(cluster, to.topology));
    APIARY_RETURN_IF_ERROR(write_nodes(cluster, to.nodes));
    return to;
  }

 private:
  template <class... Words>
  [[nodiscard]] static absl::Status fault(const Words&... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  }
  // Whether the text can be a word of a list; names of nodes and cells cannot have brackets.
  [[nodiscard]] static bool is_word(std::string_view text, bool is_name) {
    return !text.empty() && text.back() != '\\' &&
           std::none_of(text.begin(), text.end(), [&](char c) {
             return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '#' || c == ',' ||
                    (is_name && (c == '[' || c == ']'));
           });
  }

  static absl::Status write_topology(const apiary::gang_cluster& cluster, std::string& to) {
    if (cluster.nodes.empty() && !cluster.levels.empty())
      return fault("the cluster has no nodes, so its ", cluster.levels[0], "s cannot be written");
    std::unordered_map<std::string_view, std::size_t> level_of;  // of a cell
    for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
      const std::string& level = cluster.levels[l];
      if (!is_word(level, true))
        return fault("the level name \"", level, "\" has a space, \", #, a comma or a bracket");
      std::vector<std::string_view> cells;                                     // as they come first
      std::unordered_map<std::string_view, std::vector<std::string_view>> in;  // what is in each
      std::unordered_map<std::string_view, bool> seen;                         // what is in one
      for (const apiary::gang_cluster::node& n : cluster.nodes) {
        const std::string_view cell = n.cells[l];
        const std::string_view below = l == 0 ? n.name : n.cells[l - 1];
        std::vector<std::string_view>& list = in[cell];
        if (list.empty()) {
          cells.push_back(cell);
          if (!is_word(cell, true))
            return fault(level, " \"", std::string(cell),
                         "\" has a space, \", #, a comma or a bracket in its name");
          if (!level_of.emplace(cell, l).second)
            return fault("a ", cluster.levels[level_of[cell]], " and a ", level,
                         " have the name \"", std::string(cell), "\"");
        }
        if (seen.emplace(below, true).second) list.push_back(below);
      }
      for (const std::string_view cell : cells) {
        absl::StrAppend(&to, "SwitchName=", std::string(cell));
        if (level != default_level_name(l + 1)) absl::StrAppend(&to, " Level=", level);
        absl::StrAppend(&to, l == 0 ? " Nodes=" : " Switches=", slurm_name_list(in[cell]), "\n");
      }
    }
    return absl::OkStatus();
  }

  static absl::Status write_nodes(const apiary::gang_cluster& cluster, std::string& to) {
    std::vector<std::string_view> names;  // of nodes with the same values
    std::string values;
    const auto write = [&] {
      if (!names.empty()) absl::StrAppend(&to, "NodeName=", slurm_name_list(names), values, "\n");
      names.clear();
    };
    for (const apiary::gang_cluster::node& n : cluster.nodes) {
      if (!is_word(n.name, true) || n.name == "DEFAULT")
        return fault("node \"", n.name,
                     "\" has a space, \", #, a comma or a bracket in its name, or is \"DEFAULT\"");
      std::string of_node;
      APIARY_RETURN_IF_ERROR(write_values(n, of_node));
      if (of_node != values) write();
      values = of_node;
      names.push_back(n.name);
    }
    write();
    return absl::OkStatus();
  }

  static absl::Status write_values(const apiary::gang_cluster::node& n, std::string& to) {
    if (n.gpus > 0 || !n.model.empty()) {
      if (!n.model.empty() && !is_word(n.model, false))
        return fault("node \"", n.name, "\": the model \"", n.model,
                     "\" has a space, \", # or a comma");
      absl::StrAppend(&to, " Gres=gpu:", n.model, n.model.empty() ? "" : ":", n.gpus);
    }
    if (n.host.cpu_milli > 4'000'000'000)
      return fault("node \"", n.name, "\" has more than 4000000 CPUs");
    if (n.host.cpu_milli > 0) {
      absl::StrAppend(&to, " CPUs=", n.host.cpu_milli / 1000);
      if (n.host.cpu_milli % 1000 != 0) {
        std::string decimals = std::to_string(1000 + n.host.cpu_milli % 1000).substr(1);
        decimals.erase(decimals.find_last_not_of('0') + 1);
        absl::StrAppend(&to, ".", decimals);
      }
    }
    if (n.host.memory_mib > 0) absl::StrAppend(&to, " RealMemory=", n.host.memory_mib);
    APIARY_RETURN_IF_ERROR(write_words(n, "Labels", n.labels, to));
    return write_words(n, "Taints", n.taints, to);
  }

  static absl::Status write_words(const apiary::gang_cluster::node& n, const char* key,
                                  std::span<const std::string> words, std::string& to) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!is_word(words[i], false))
        return fault("node \"", n.name, "\": \"", words[i], "\" of ", key,
                     " is empty, or has a space, \", # or a comma");
      absl::StrAppend(&to, i == 0 ? absl::StrCat(" ", key, "=") : ",", words[i]);
    }
    return absl::OkStatus();
  }
};

}  // namespace example
