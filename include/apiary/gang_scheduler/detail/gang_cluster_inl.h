// apiary/gang_scheduler/detail/gang_cluster_inl.h - bodies of gang_scheduler/gang_cluster.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/detail/slurm_reader.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/topology/ragged_tree.h>

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
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// "a" or "a, b or c", each in quotes.
[[nodiscard]] inline std::string one_of(std::span<const std::string> names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == names.size() ? last : ", ", "\"", names[i], "\"");
  return text;
}

// Sets one value of a node from its key.
[[nodiscard]] inline absl::Status read_value(const slurm_reader& from, const std::string& key,
                                             const std::string& value, gang_cluster::node& to) {
  constexpr std::string_view skipped[] = {"nodeaddr", "nodehostname",   "port",           "state",
                                          "sockets",  "corespersocket", "threadspercore", "boards",
                                          "tmpdisk",  "weight",         "procs",          "reason"};
  std::uint64_t number = 0;
  const auto count = [&](std::string_view text, std::uint64_t most) {
    const std::optional<std::uint64_t> read = read_digits(text, most);
    number = read.value_or(0);
    return read
               ? absl::OkStatus()
               : from.fault(absl::StrCat("\"", key, "=", value, "\" is not a number up to ", most));
  };
  if (key == "gres") {
    const std::size_t colon = value.rfind(':');
    const std::optional<std::uint64_t> gpus =
        value.rfind("gpu:", 0) != 0
            ? std::nullopt
            : read_digits(std::string_view(value).substr(colon + 1), gang_cluster::max_gpus);
    if (!gpus)
      return from.fault(absl::StrCat("\"gres=", value,
                                     "\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT up to ",
                                     gang_cluster::max_gpus));
    to.model = colon > 3 ? value.substr(4, colon - 4) : "";
    to.gpus = static_cast<std::uint32_t>(*gpus);
  } else if (key == "cpus") {
    APIARY_RETURN_IF_ERROR(count(value, 4'000'000));
    to.host.cpu_milli = static_cast<std::uint32_t>(number * 1000);
  } else if (key == "realmemory") {
    APIARY_RETURN_IF_ERROR(count(value, ~std::uint32_t{0}));
    to.host.memory_mib = static_cast<std::uint32_t>(number);
  } else if (key == "labels" || key == "feature" || key == "features") {
    for (std::string& label : slurm_reader::words(value)) to.labels.push_back(std::move(label));
  } else if (key == "taints") {
    for (std::string& taint : slurm_reader::words(value)) to.taints.push_back(std::move(taint));
  } else {
    for (const std::string_view other : skipped)
      if (key == other) return absl::OkStatus();
    return from.fault(absl::StrCat("unknown key \"", key, "\"",
                                   key == "gpus" ? "; 8 GPUs are written Gres=gpu:8" : ""));
  }
  return absl::OkStatus();
}

// Adds the values that the line does not set itself.
inline void add_defaults(const slurm_reader::line& defaults, slurm_reader::line& to) {
  const std::size_t own = to.size();
  for (const auto& value : defaults) {
    const auto last = to.begin() + static_cast<std::ptrdiff_t>(own);
    if (std::none_of(to.begin(), last, [&](const auto& v) { return v.first == value.first; }))
      to.push_back(value);
  }
}

// The first name, in the order of the alphabet, that a switch lists and no node has.
[[nodiscard]] inline std::string undescribed_node(
    std::span<const gang_cluster::node> nodes,
    const std::unordered_map<std::string, std::string>& leaf_of) {
  std::vector<std::string_view> described;
  for (const gang_cluster::node& n : nodes) described.push_back(n.name);
  std::sort(described.begin(), described.end());
  std::string first;
  for (const auto& [name, leaf] : leaf_of)
    if (!std::binary_search(described.begin(), described.end(), std::string_view(name)) &&
        (first.empty() || name < first))
      first = name;
  return first;
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
  std::unordered_map<std::string_view, const node*> node_of;  // by name
  std::vector<std::unordered_map<std::string_view, std::string_view>> above(levels.size());
  for (const node& n : nodes) {
    if (n.name.empty() || !node_of.emplace(n.name, &n).second)
      return fault("node name \"", n.name, "\" is empty or used twice");
    if (n.gpus > max_gpus)
      return fault("node \"", n.name, "\" has ", n.gpus, " GPUs; the limit is ", max_gpus);
    if (n.cells.size() != levels.size())
      return fault("node \"", n.name, "\" names ", n.cells.size(), " cells; the cluster has ",
                   levels.size(), " levels above the nodes");
    for (std::size_t l = 0; l < levels.size(); ++l) {
      const std::string_view up = l + 1 < levels.size() ? n.cells[l + 1] : std::string_view();
      if (n.cells[l].empty()) return fault("node \"", n.name, "\" has no name for its ", levels[l]);
      const auto [at, is_new] = above[l].emplace(n.cells[l], up);
      if (!is_new && at->second != up)
        return fault("node \"", n.name, "\": ", levels[l], " \"", n.cells[l], "\" is in ",
                     levels[l + 1], " \"", std::string(at->second), "\", not in \"",
                     std::string(up), "\"");
    }
  }
  return absl::OkStatus();
}

APIARY_INLINE absl::StatusOr<gang_cluster> gang_cluster::parse(std::string_view topology,
                                                               std::string_view node_list) {
  std::vector<detail::slurm_switch> switches;
  std::unordered_map<std::string, std::size_t> number_of;
  std::unordered_map<std::string, std::string> leaf_of;
  APIARY_RETURN_IF_ERROR(detail::read_switches(topology, switches, number_of, leaf_of));
  gang_cluster all;
  for (const detail::slurm_switch& s : switches) {
    while (all.levels.size() < s.level) {
      const std::size_t l = all.levels.size() + 1;
      all.levels.push_back(l == 1 ? "rack" : l == 2 ? "block" : absl::StrCat("level", l));
    }
    if (s.level == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("topology: switch \"", s.name, "\" is above itself"));
  }
  detail::slurm_reader from(node_list, "nodes");
  detail::slurm_reader::line line;
  detail::slurm_reader::line defaults;  // of the lines "NodeName=DEFAULT ..." so far
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, from.next(line));
    if (!more) break;
    node one;
    std::vector<std::string> names;
    detail::add_defaults(defaults, line);
    for (const auto& [key, value] : line) {
      if (key == "nodename") {
        APIARY_ASSIGN_OR_RETURN(names, from.names(value));
      } else {
        APIARY_RETURN_IF_ERROR(detail::read_value(from, key, value, one));
      }
    }
    if (names.empty()) return from.fault("no NodeName");
    if (names.size() == 1 && names[0] == "DEFAULT") {
      std::erase_if(line, [](const auto& value) { return value.first == "nodename"; });
      defaults = line;
      continue;
    }
    for (std::string& name : names) {
      one.cells.clear();
      const auto leaf = leaf_of.find(name);
      for (std::string at = leaf == leaf_of.end() ? "" : leaf->second; !at.empty();
           at = switches[number_of.at(at)].above)
        one.cells.push_back(at);
      if (one.cells.size() != all.levels.size())
        return from.fault(one.cells.empty()
                              ? absl::StrCat("node \"", name, "\" is in no switch of the topology")
                              : absl::StrCat("node \"", name, "\" is below ", one.cells.size(),
                                             one.cells.size() == 1 ? " switch" : " switches",
                                             "; the topology has ", all.levels.size(),
                                             " levels of switches"));
      one.name = std::move(name);
      all.nodes.push_back(one);
    }
  }
  APIARY_RETURN_IF_ERROR(all.check());
  if (leaf_of.size() > all.nodes.size()) {
    const std::string name = detail::undescribed_node(all.nodes, leaf_of);
    return absl::InvalidArgumentError(absl::StrCat("topology: node \"", name, "\" of switch \"",
                                                   leaf_of.at(name), "\" has no NodeName line"));
  }
  return all;
}

APIARY_NAMESPACE_END
