// apiary/topology/named_tree.h - cell trees with names, built from a user's description.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digits.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The description of a chain, which is one tree of a cluster. Its levels are listed from the top,
// for example {"v100", {{"rack", {2}}, {"node", {4}}, {"gpu", {8}}}}. A heterogeneous cluster has
// several chains.
struct chain_spec {
  // The description of one level.
  struct level {
    std::string name{};  // for example "node"
    // How many cells of this level are in each cell of the level above (for the top level: in the
    // chain): one number for all, or one for each cell of the level above, from left to right.
    std::vector<std::uint32_t> fan_outs{};
    // The names of all cells, from left to right. Empty: the i-th cell of level "gpu" is "gpu-i".
    std::vector<std::string> cell_names{};
  };
  std::string name{};           // for example "v100"
  std::vector<level> levels{};  // from the top level down
};

namespace detail {

// Collects errors in a description, to report them together.
class fault_list {
 public:
  void add(const std::string& place, const std::string& fault) {
    if (!text_.empty()) text_ += "; ";
    text_ += place + ": " + fault;
    ++size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] absl::Status status() const {
    return size_ == 0 ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
  std::size_t size_ = 0;
};

[[nodiscard]] inline std::string place_of(const chain_spec& chain) {
  return "chain '" + chain.name + '\'';
}
[[nodiscard]] inline std::string place_of(const chain_spec& chain, const chain_spec::level& level) {
  return place_of(chain) + ", level '" + level.name + '\'';
}

// Checks the numbers of a chain.
inline void check_shape(const chain_spec& spec, level_t max_levels, bool must_be_uniform,
                        fault_list& faults) {
  if (spec.levels.empty()) faults.add(place_of(spec), "no levels");
  if (spec.levels.size() > max_levels) {
    faults.add(place_of(spec), std::to_string(spec.levels.size()) + " levels (the limit is " +
                                   std::to_string(max_levels) + ')');
  }
  std::uint64_t above = 1;  // cells of the level above; 0: unknown, because of a fault
  std::uint64_t cells = 0;
  for (const chain_spec::level& level : spec.levels) {
    const std::string place = place_of(spec, level);
    const std::size_t faults_before = faults.size();
    const std::vector<std::uint32_t>& fan_outs = level.fan_outs;
    std::uint64_t sum = 0;
    bool differ = false;
    for (std::size_t i = 0; i < fan_outs.size(); ++i) {
      if (fan_outs[i] == 0) faults.add(place, "fan-out " + std::to_string(i) + " is 0");
      sum += fan_outs[i];
      differ = differ || fan_outs[i] != fan_outs[0];
    }
    if (fan_outs.empty()) faults.add(place, "no fan-out");
    if (differ && must_be_uniform) faults.add(place, "fan-outs differ in a uniform tree");
    if (fan_outs.size() > 1 && above != 0 && fan_outs.size() != above) {
      faults.add(place, std::to_string(fan_outs.size()) + " fan-outs, but the level above has " +
                            std::to_string(above) + " cells");
    }
    const bool known = above != 0 && faults.size() == faults_before;
    above = !known ? 0 : fan_outs.size() == 1 ? above * fan_outs[0] : sum;  // below 2^63
    cells += above;
    if (cells >= std::uint64_t{1} << 31) {
      faults.add(place, "more than 2^31 - 1 cells in total");
      return;
    }
    if (above != 0 && !level.cell_names.empty() && level.cell_names.size() != above) {
      faults.add(place, std::to_string(level.cell_names.size()) + " cell names for " +
                            std::to_string(above) + " cells");
    }
  }
}

}  // namespace detail

// A uniform_tree or ragged_tree whose levels and cells have names, for example from a configuration
// file. Cost: queries by name or level O(levels + length of the name).
//
// Example: examples/cell_trees.cpp
template <CellTree Tree>
requires std::same_as<Tree, uniform_tree> || std::same_as<Tree, ragged_tree>
class named_tree {
 public:
  // Builds the tree. kInvalidArgument, with every fault of the description and where it is.
  [[nodiscard]] static absl::StatusOr<named_tree> create(const chain_spec& spec) {
    detail::fault_list faults;
    check(spec, faults);
    APIARY_RETURN_IF_ERROR(faults.status());
    return named_tree(spec);
  }

  // The tree.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // The name of the chain.
  [[nodiscard]] const std::string& chain_name() const noexcept { return chain_name_; }
  // The name of level l. Requires: l is a level of the tree.
  [[nodiscard]] const std::string& level_name(level_t l) const noexcept {
    APIARY_ASSERT(l < tree_.num_levels());
    return levels_[l].name;
  }
  // The name of cell c. Requires: c is a cell of the tree.
  [[nodiscard]] std::string cell_name(cell_id c) const {
    const level_t l = tree_.level(c);
    const std::uint32_t i = tree_.index(c, l);
    if (!levels_[l].cell_names.empty()) return levels_[l].cell_names[i];
    return levels_[l].name + '-' + std::to_string(i);
  }
  // The level with this name; nullopt if there is none.
  [[nodiscard]] std::optional<level_t> find_level(std::string_view name) const noexcept {
    for (level_t l = 0; l < tree_.num_levels(); ++l)
      if (levels_[l].name == name) return l;
    return std::nullopt;
  }
  // The cell with this name; nullopt if there is none.
  [[nodiscard]] std::optional<cell_id> find_cell(std::string_view name) const {
    if (const auto given = given_names_.find(std::string(name)); given != given_names_.end())
      return given->second;
    const std::optional<running_name> parts = split(name);
    if (!parts) return std::nullopt;
    const std::optional<level_t> l = find_level(parts->level);
    if (!l || !levels_[*l].cell_names.empty()) return std::nullopt;
    const id_range<cell_id> cells = tree_.cells(*l);
    if (parts->index >= cells.size()) return std::nullopt;
    return cells[parts->index];
  }

 private:
  struct named_level {
    std::string name;
    std::vector<std::string> cell_names;  // empty: generated names
  };
  // A generated name such as "gpu-17", split.
  struct running_name {
    std::string_view level;
    std::uint32_t index = 0;
  };

  // Requires: check found no fault.
  explicit named_tree(const chain_spec& spec)
      : tree_(make_tree(spec)), chain_name_(spec.name), levels_(spec.levels.size()) {
    for (level_t l = 0; l < tree_.num_levels(); ++l) {
      const chain_spec::level& level = spec.levels[tree_.num_levels() - 1 - l];
      levels_[l] = {level.name, level.cell_names};
      for (std::uint32_t i = 0; i < level.cell_names.size(); ++i)
        given_names_.emplace(level.cell_names[i], tree_.at(l, i));
    }
  }

  [[nodiscard]] static Tree make_tree(const chain_spec& spec) {
    if constexpr (std::same_as<Tree, uniform_tree>) {
      std::vector<std::uint32_t> fan_outs;
      for (const chain_spec::level& level : spec.levels) fan_outs.push_back(level.fan_outs[0]);
      return Tree(fan_outs);
    } else {
      std::vector<std::vector<std::uint32_t>> fan_outs;
      std::size_t width = 1;
      for (const chain_spec::level& level : spec.levels) {
        fan_outs.push_back(level.fan_outs);
        if (level.fan_outs.size() == 1) fan_outs.back().resize(width, level.fan_outs[0]);
        width = 0;
        for (const std::uint32_t n : fan_outs.back()) width += n;
      }
      return Tree(fan_outs);
    }
  }

  static void check(const chain_spec& spec, detail::fault_list& faults) {
    detail::check_shape(spec, Tree::max_levels, std::same_as<Tree, uniform_tree>, faults);
    if (spec.name.empty()) faults.add(detail::place_of(spec), "no name");
    std::unordered_map<std::string_view, bool> generated;  // level -> it has generated names
    for (const chain_spec::level& level : spec.levels) {
      const std::string place = detail::place_of(spec, level);
      if (level.name.empty()) faults.add(place, "no name");
      const auto [at, is_new] = generated.emplace(level.name, level.cell_names.empty());
      if (is_new) continue;
      faults.add(place, "name used twice");
      at->second = at->second || level.cell_names.empty();
    }
    std::unordered_map<std::string_view, std::string_view> level_of;  // cell -> level
    for (const chain_spec::level& level : spec.levels) {
      const std::string place = detail::place_of(spec, level);
      for (const std::string& name : level.cell_names) {
        if (name.empty()) {
          faults.add(place, "a cell without name");
        } else if (!level_of.emplace(name, level.name).second) {
          faults.add(place, "cell name '" + name + "' used twice");
        } else if (const auto parts = split(name)) {
          const auto at = generated.find(parts->level);
          if (at == generated.end() || !at->second) continue;
          faults.add(place, "cell name '" + name + "' is reserved for level '" +
                                std::string(parts->level) + '\'');
        }
      }
    }
  }

  // nullopt if the name does not end in '-' and a number as std::to_string writes it.
  [[nodiscard]] static std::optional<running_name> split(std::string_view name) noexcept {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const std::string_view digits = name.substr(dash + 1);
    const std::optional<std::uint64_t> index = detail::read_digits(digits);
    if (!index || (digits[0] == '0' && digits.size() > 1)) return std::nullopt;
    return running_name{name.substr(0, dash), static_cast<std::uint32_t>(*index)};
  }

  Tree tree_;
  std::string chain_name_;
  std::vector<named_level> levels_;  // from the leaves up
  std::unordered_map<std::string, cell_id> given_names_;
};

APIARY_NAMESPACE_END
