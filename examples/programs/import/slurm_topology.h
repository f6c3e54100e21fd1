// apiary/examples/programs/import/slurm_topology.h - reads switches and blocks of Slurm's topology.conf.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_reader.h"
#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace example {

// A switch or block of a topology.conf.
struct slurm_switch {
  static constexpr std::size_t none = ~std::size_t{0};
  std::string name;
  std::size_t level = 0;     // 1: it lists nodes
  std::uint32_t line = 0;    // that describes it
  std::size_t above = none;  // the number of the switch that lists it
};

// What a topology.conf says.
struct slurm_topology {
  std::vector<slurm_switch> switches{};
  std::unordered_map<std::string, std::size_t> number_of{};  // of a switch, by name
  std::unordered_map<std::string, std::size_t> leaf_of{};    // the number of a node's switch
  std::vector<std::string> levels{};                         // the lowest first

  // The switches above a node, the lowest first.
  [[nodiscard]] std::vector<std::string> above(const std::string& node) const {
    std::vector<std::string> all;
    const auto leaf = leaf_of.find(node);
    for (std::size_t at = leaf == leaf_of.end() ? slurm_switch::none : leaf->second;
         at != slurm_switch::none; at = switches[at].above)
      all.push_back(switches[at].name);
    return all;
  }
};

// The name of level l, from 1, if the description gives none.
[[nodiscard]] inline std::string default_level_name(std::size_t l) {
  return l == 1 ? "rack" : l == 2 ? "block" : absl::StrCat("level", l);
}

// Reads a topology.conf.
class slurm_topology_reader {
 public:
  // kInvalidArgument: the faults, each with its line, or with the switch.
  [[nodiscard]] static absl::StatusOr<slurm_topology> read(std::string_view text) {
    slurm_topology_reader reader(text);
    read_lines(reader.from_, reader.faults_,
               [&](const slurm_reader::line& line) { return reader.read_line(line); });
    APIARY_RETURN_IF_ERROR(reader.faults_.status());
    APIARY_RETURN_IF_ERROR(reader.blocks_.empty() ? reader.connect() : reader.join_blocks());
    APIARY_RETURN_IF_ERROR(reader.name_levels());
    return std::move(reader.all_);
  }

 private:
  explicit slurm_topology_reader(std::string_view text) : from_(text, "topology") {}

  absl::Status read_line(const slurm_reader::line& line) {
    std::string name;
    std::string level;
    bool is_block = false;
    std::vector<std::string> nodes;
    std::vector<std::string> below;
    for (const auto& [key, value] : line) {
      if (key == "switchname" || key == "blockname") {
        name = value;
        is_block = key == "blockname";
      } else if (key == "nodes") {
        APIARY_ASSIGN_OR_RETURN(nodes, from_.names(value));
      } else if (key == "switches") {
        APIARY_ASSIGN_OR_RETURN(below, from_.names(value));
      } else if (key == "level") {
        level = value;
      } else if (key == "blocksizes") {
        return read_sizes(value);
      } else if (key != "linkspeed") {
        return from_.fault(absl::StrCat(
            "unknown key \"", key, "\"",
            key == "nodename" ? "; the topology is the first text, the nodes are the second" : ""));
      }
    }
    if (name.empty()) return from_.fault("no SwitchName");
    if (is_block ? !upper_.empty() || all_.switches.size() != blocks_.size() : !blocks_.empty())
      return from_.fault("a topology has either switches or blocks");
    if (is_block && (nodes.empty() || !below.empty()))
      return from_.fault(absl::StrCat("block \"", name, "\" needs Nodes, and no Switches"));
    if (nodes.empty() == below.empty())
      return from_.fault(absl::StrCat("switch \"", name, "\" needs either Nodes or Switches"));
    if (!all_.number_of.emplace(name, all_.switches.size()).second)
      return from_.fault(
          absl::StrCat(is_block ? "block" : "switch", " \"", name, "\" is described twice"));
    if (is_block) blocks_.push_back(nodes.size());
    const std::size_t number = all_.switches.size();
    all_.switches.push_back(
        {name, nodes.empty() ? std::size_t{0} : std::size_t{1}, from_.number()});
    if (!level.empty()) level_names_.emplace_back(number, level);
    for (const std::string& n : nodes) {
      const auto [at, is_new] = all_.leaf_of.emplace(n, number);
      if (is_new) continue;
      const std::string kind = is_block ? "block" : "switch";
      return from_.fault(
          at->second == number
              ? absl::StrCat("node \"", n, "\" is listed twice in the ", kind)
              : absl::StrCat("node \"", n, "\" is in two ", kind, is_block ? "s" : "es"));
    }
    if (!below.empty()) upper_.emplace_back(number, std::move(below));
    return absl::OkStatus();
  }
  absl::Status read_sizes(std::string_view list) {
    if (!sizes_.empty()) return from_.fault("BlockSizes is given twice");
    sizes_line_ = from_.number();
    for (const std::string& word : slurm_reader::words(list)) {
      const std::optional<std::uint64_t> size = apiary::detail::read_digits(word);
      const std::uint64_t times = size && !sizes_.empty() ? *size / sizes_[0] : 1;
      if (!size || *size == 0 || (!sizes_.empty() && *size <= sizes_.back()) ||
          (times & (times - 1)) != 0 || (!sizes_.empty() && *size % sizes_[0] != 0))
        return from_.fault(absl::StrCat("\"BlockSizes=", std::string(list),
                                        "\" is not a list of numbers, each the "
                                        "first one times a larger power of two"));
      if (sizes_.size() + 1 == apiary::ragged_tree::max_levels)
        return from_.fault(absl::StrCat("BlockSizes has more than ",
                                        apiary::ragged_tree::max_levels - 1, " numbers"));
      sizes_.push_back(*size);
    }
    return sizes_.empty() ? from_.fault("BlockSizes is empty") : absl::OkStatus();
  }

  // Tells each switch which one is above it, and at which level it is.
  absl::Status connect() {
    if (!sizes_.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("topology, line ", sizes_line_, ": BlockSizes without blocks"));
    for (const auto& [number, below] : upper_) {
      for (const std::string& b : below) {
        const auto at = all_.number_of.find(b);
        if (at != all_.number_of.end() && at->second != number &&
            all_.switches[at->second].above == slurm_switch::none)
          all_.switches[at->second].above = number;
        else
          faults_.ok(fault(number, absl::StrCat(" lists switch \"", b,
                                                "\", which is not described, is in another "
                                                "switch, or is the same")));
      }
    }
    APIARY_RETURN_IF_ERROR(faults_.status());
    // A level is known when those of all switches below are. Each pass decides at least the next level
    // as a whole, so there are at most apiary::ragged_tree::max_levels passes.
    for (std::size_t decided = 1; decided > 0;) {
      decided = 0;
      for (const auto& [number, below] : upper_) {
        slurm_switch& at = all_.switches[number];
        std::size_t lowest = ~std::size_t{0};
        std::size_t highest = 0;
        for (const std::string& b : below) {
          lowest = (std::min)(lowest, all_.switches[all_.number_of.at(b)].level);
          highest = (std::max)(highest, all_.switches[all_.number_of.at(b)].level);
        }
        if (at.level > 0 || lowest == 0) continue;
        if (lowest != highest) return fault(number, " lists switches of different heights");
        at.level = lowest + 1;
        if (at.level >= apiary::ragged_tree::max_levels)
          return fault(number,
                       absl::StrCat(" is at level ", at.level, " above the nodes; the limit is ",
                                    apiary::ragged_tree::max_levels - 1));
        ++decided;
      }
    }
    return absl::OkStatus();
  }

  // Blocks that follow one another make the cells of the further BlockSizes.
  absl::Status join_blocks() {
    for (std::size_t b = 0; b < blocks_.size() && !sizes_.empty(); ++b) {
      if (blocks_[b] < sizes_[0])
        faults_.ok(fault(b, absl::StrCat(" has ", blocks_[b], " nodes; the first of BlockSizes is ",
                                         sizes_[0])));
    }
    APIARY_RETURN_IF_ERROR(faults_.status());
    names_of_level_.emplace_back("block");
    const std::size_t num_blocks = blocks_.size();
    std::size_t below = 0;  // the first cell of the level below
    for (std::size_t s = 1; s < sizes_.size(); ++s) {
      const std::size_t first = all_.switches.size();
      const auto blocks = static_cast<std::size_t>(sizes_[s] / sizes_[0]);
      const auto blocks_below = static_cast<std::size_t>(sizes_[s - 1] / sizes_[0]);
      names_of_level_.push_back(absl::StrCat("block", sizes_[s]));
      for (std::size_t from = 0; from < num_blocks; from += blocks) {
        const auto last_of = [&](std::size_t f) { return (std::min)(f + blocks, num_blocks) - 1; };
        const std::size_t last = last_of(from);
        const std::string name = absl::StrCat(names_of_level_.back(), ":", all_.switches[from].name,
                                              "-", all_.switches[last].name);
        const auto [at, is_new] = all_.number_of.emplace(name, all_.switches.size());
        if (!is_new && at->second < num_blocks)
          return fault(at->second, " has a name that is reserved");
        if (!is_new) {  // for example a to b-c, and a-b to c
          const std::size_t other = (at->second - first) * blocks;
          return absl::InvalidArgumentError(absl::StrCat(
              "topology, line ", sizes_line_, ": the name \"", name, "\" would stand for blocks ",
              names_of(other, last_of(other)), " and for blocks ", names_of(from, last),
              "; rename one of these blocks"));
        }
        for (std::size_t b = from / blocks_below; b <= last / blocks_below; ++b)
          all_.switches[below + b].above = at->second;
        all_.switches.push_back({name, s + 1, sizes_line_});
      }
      below = first;
    }
    return absl::OkStatus();
  }

  // `"a" to "b"`
  [[nodiscard]] std::string names_of(std::size_t first, std::size_t last) const {
    return absl::StrCat("\"", all_.switches[first].name, "\" to \"", all_.switches[last].name,
                        "\"");
  }

  absl::Status name_levels() {
    for (const slurm_switch& s : all_.switches) {
      if (s.level == 0) return fault(all_.number_of.at(s.name), " is above itself");
      while (all_.levels.size() < s.level) {
        const std::size_t l = all_.levels.size();
        all_.levels.push_back(l < names_of_level_.size() ? names_of_level_[l]
                                                         : default_level_name(l + 1));
      }
    }
    std::vector<bool> named(all_.levels.size(), false);
    for (const auto& [s, name] : level_names_) {
      const std::size_t l = all_.switches[s].level - 1;
      if (named[l] && all_.levels[l] != name)
        return fault(s, absl::StrCat(" has level \"", name, "\", others of its height have \"",
                                     all_.levels[l], "\""));
      named[l] = true;
      all_.levels[l] = name;
    }
    return absl::OkStatus();
  }

  // A fault of a switch or block.
  [[nodiscard]] absl::Status fault(std::size_t number, const std::string& what) const {
    const slurm_switch& at = all_.switches[number];
    return absl::InvalidArgumentError(absl::StrCat("topology, line ", at.line,
                                                   blocks_.empty() ? ": switch \"" : ": block \"",
                                                   at.name, "\"", what));
  }

  slurm_reader from_;
  slurm_faults faults_;
  slurm_topology all_;
  std::vector<std::pair<std::size_t, std::vector<std::string>>> upper_;  // switches above switches
  std::vector<std::pair<std::size_t, std::string>> level_names_;         // of some switches
  std::vector<std::size_t> blocks_;   // the nodes of each block; blocks are the first switches
  std::vector<std::uint64_t> sizes_;  // BlockSizes
  std::uint32_t sizes_line_ = 0;
  std::vector<std::string> names_of_level_;  // of blocks
};

}  // namespace example
