// apiary/hived/detail/cell_types.h - what the cells of each type of a configuration are made of.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/status.h>
#include <apiary/hived/hived_config.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Collects the faults of a configuration document, one per line, as "path: what is wrong".
class document_faults {
 public:
  void add(std::initializer_list<absl::AlphaNum> path, std::initializer_list<absl::AlphaNum> what) {
    if (!text_.empty()) text_ += '\n';
    text_ += text_of(path) + ": " + text_of(what);
  }
  // OK if there is no fault. kInvalidArgument: lists all faults.
  [[nodiscard]] absl::Status status() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

// A name as error messages show it, on one line: with C escapes; bytes beyond ASCII stay.
[[nodiscard]] inline std::string escaped(std::string_view name) {
  return absl::Utf8SafeCEscape(std::string(name));
}
// The escaped name in double quotes.
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  return text_of({"\"", escaped(name), "\""});
}

// The levels of a cell, and how many children a cell of each level has.
struct cell_shape {
  std::vector<std::string> types{};       // of each level, from the leaf up
  std::vector<std::uint32_t> fan_outs{};  // number of children, from the cell itself down
  level_t node_level = 0;
};

// Finds the levels and children of each cell type. Requires: the types outlive it. Cost: O(types);
// shape_of O(levels). Model: hierarchical uniform composability, HiveD (OSDI 2020) section 3.
class hived_cell_types {
 public:
  // Adds these faults: a type without name, child type or number of children; a dot in a name; a
  // type that is defined twice, or that contains itself.
  hived_cell_types(std::span<const cell_type_config> types, document_faults& faults)
      : types_(types), cyclic_(types.size(), false) {
    for (std::uint32_t i = 0; i < types.size(); ++i) {
      const cell_type_config& type = types[i];
      const std::string path = path_of(type);
      if (type.name.empty()) faults.add({path}, {"a cell type without name"});
      if (has_dot(type.name)) faults.add({path}, {"has a dot in its name; dots separate types"});
      if (type.child_type.empty()) faults.add({path, ".childCellType"}, {"is missing"});
      if (has_dot(type.child_type)) {
        faults.add({path, ".childCellType"}, {"has a dot in its name; dots separate types"});
      }
      if (type.child_count == 0) faults.add({path, ".childCellNumber"}, {"is 0 or missing"});
      if (!index_.try_emplace(type.name, i).second) faults.add({path}, {"is defined twice"});
    }
    find_cycles(faults);
  }
  // The levels and children of a cell of type `top`; nullopt if they have a fault. Adds, with
  // `path`, the faults that the constructor has not: `top` is unknown or a leaf, more levels than a
  // tree can have, not exactly one node level, or a node with too many leaves.
  [[nodiscard]] std::optional<cell_shape> shape_of(const std::string& top, const std::string& path,
                                                   document_faults& faults) const {
    lean_vector<std::uint32_t> down;
    for (std::uint32_t i = find(top); i != none; i = find(types_[i].child_type)) {
      const cell_type_config& type = types_[i];
      if (cyclic_[i] || type.child_count == 0 || type.child_type.empty()) return std::nullopt;
      if (down.size() + 1 == uniform_tree::max_levels) {
        faults.add({path},
                   {in_quotes(top), " has more than ", uniform_tree::max_levels, " levels"});
        return std::nullopt;
      }
      down.push_back(i);
    }
    if (down.empty()) {
      if (top.empty()) {
        faults.add({path}, {"is missing"});
      } else {
        faults.add({path}, {in_quotes(top), " is not one of the cellTypes"});
      }
      return std::nullopt;
    }
    cell_shape shape;
    shape.types.push_back(types_[down.back()].child_type);
    std::uint32_t node_levels = 0;
    std::uint64_t leaves = 1;  // of a cell of this level, at most limit + 1
    std::uint64_t leaves_of_node = 0;
    for (std::size_t i = down.size(); i-- > 0;) {
      const cell_type_config& type = types_[down[i]];
      leaves =
          (std::min<std::uint64_t>)(leaves * type.child_count, chain_layout::max_node_leaves + 1);
      shape.types.push_back(type.name);
      if (!type.is_node) continue;
      ++node_levels;
      leaves_of_node = leaves;
      shape.node_level = static_cast<level_t>(down.size() - i);
    }
    for (const std::uint32_t i : down) shape.fan_outs.push_back(types_[i].child_count);
    if (node_levels != 1) {
      std::string end;
      if (node_levels == 0) {
        end = text_of(
            {"; it ends at ", in_quotes(shape.types[0]), ", which is not one of the cellTypes"});
      }
      faults.add({path},
                 {in_quotes(top), " has ", node_levels, " node levels instead of one", end});
      return std::nullopt;
    }
    if (leaves_of_node > chain_layout::max_node_leaves) {
      faults.add({path}, {"the nodes in ", in_quotes(top), " have more than ",
                          chain_layout::max_node_leaves, " leaf cells"});
      return std::nullopt;
    }
    return shape;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  [[nodiscard]] static std::string path_of(const cell_type_config& type) {
    return text_of({"physicalCluster.cellTypes.", escaped(type.name)});
  }
  [[nodiscard]] static bool has_dot(const std::string& name) {
    return name.find('.') != std::string::npos;
  }
  // The index of the first type with this name, or none.
  [[nodiscard]] std::uint32_t find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? none : found->second;
  }
  // Walks down from each type through types not visited before; one that meets itself is a cycle.
  void find_cycles(document_faults& faults) {
    lean_vector<std::uint32_t> walk_of(types_.size(), none);  // the walk that visited each type
    for (std::uint32_t walk = 0; walk < types_.size(); ++walk) {
      std::uint32_t i = find(types_[walk].name);
      for (; i != none && walk_of[i] == none; i = find(types_[i].child_type)) walk_of[i] = walk;
      if (i == none || walk_of[i] != walk || cyclic_[i]) continue;
      faults.add({path_of(types_[i])}, {"contains itself"});
      for (; !cyclic_[i]; i = find(types_[i].child_type)) cyclic_[i] = true;
    }
  }

  std::span<const cell_type_config> types_;
  name_index index_;
  lean_vector<bool> cyclic_;  // whether each type contains itself
};

}  // namespace detail
APIARY_NAMESPACE_END
