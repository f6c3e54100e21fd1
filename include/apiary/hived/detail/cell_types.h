// apiary/hived/detail/cell_types.h - checks the cell types of a HiveD configuration.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/name_index.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
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

// A name as error messages show it, on one line. Quotes, backslashes and control characters become
// C escapes (octal where C has no letter); bytes beyond ASCII stay.
[[nodiscard]] inline std::string escaped(std::string_view name) {
  constexpr std::string_view marks = "\n\r\t\"'\\";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (const std::size_t at = marks.find(c); at != std::string_view::npos) {
      out += '\\';
      out += "nrt\"'\\"[at];
    } else if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += '\\';
      for (const int shift : {6, 3, 0}) out += static_cast<char>('0' + (byte >> shift & 7));
    }
  }
  return out;
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

// Finds the levels and children of each cell type, which must outlive this object. Cost: O(types);
// shape_of O(levels). Model: hierarchical uniform composability, HiveD (OSDI 2020) section 3.
class hived_cell_types {
 public:
  // The leaves of a node are the bits of a 64-bit mask.
  static constexpr std::uint32_t max_leaves_per_node = 64;
  // Adds these faults: a type without name, child type or number of children; a dot in a name; a
  // type that is defined twice, or that contains itself.
  hived_cell_types(std::span<const cell_type_config> types, document_faults& faults) {
    for (const cell_type_config& type : types) {
      const std::string path = path_of(type);
      if (type.name.empty()) faults.add({path}, {"a cell type without name"});
      if (has_dot(type.name)) faults.add({path}, {"has a dot in its name; dots separate types"});
      if (type.child_type.empty()) faults.add({path, ".childCellType"}, {"is missing"});
      if (has_dot(type.child_type)) {
        faults.add({path, ".childCellType"}, {"has a dot in its name; dots separate types"});
      }
      if (type.child_count == 0) faults.add({path, ".childCellNumber"}, {"is 0 or missing"});
      if (index_.add(type.name, static_cast<std::uint32_t>(types_.size()))) {
        types_.push_back({&type});
      } else {
        faults.add({path}, {"is defined twice"});
      }
    }
    find_cycles(types, faults);
  }
  // The levels and children of a cell of type `top`; nullopt if they have a fault. Adds, with
  // `path`, the faults that the constructor has not: `top` is unknown or a leaf, more levels than a
  // tree can have, not exactly one node level, or a node with too many leaves.
  [[nodiscard]] std::optional<cell_shape> shape_of(const std::string& top, const std::string& path,
                                                   document_faults& faults) const {
    lean_vector<const cell_type_config*> down;
    for (const entry* at = find(top); at != nullptr; at = find(down.back()->child_type)) {
      const cell_type_config& type = *at->type;
      if (at->cyclic || type.child_count == 0 || type.child_type.empty()) return std::nullopt;
      if (down.size() + 1 == uniform_tree::max_levels) {
        faults.add({path},
                   {in_quotes(top), " has more than ", uniform_tree::max_levels, " levels"});
        return std::nullopt;
      }
      down.push_back(&type);
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
    shape.types.push_back(down.back()->child_type);
    std::uint32_t node_levels = 0;
    std::uint64_t leaves = 1;  // of a cell of this level, at most limit + 1
    std::uint64_t leaves_of_node = 0;
    for (std::size_t i = down.size(); i-- > 0;) {
      leaves = (std::min<std::uint64_t>)(leaves * down[i]->child_count, max_leaves_per_node + 1);
      shape.types.push_back(down[i]->name);
      if (!down[i]->is_node) continue;
      ++node_levels;
      leaves_of_node = leaves;
      shape.node_level = static_cast<level_t>(down.size() - i);
    }
    for (const cell_type_config* type : down) shape.fan_outs.push_back(type->child_count);
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
    if (leaves_of_node > max_leaves_per_node) {
      faults.add({path}, {"the nodes in ", in_quotes(top), " have more than ", max_leaves_per_node,
                          " leaf cells"});
      return std::nullopt;
    }
    return shape;
  }

 private:
  struct entry {
    const cell_type_config* type = nullptr;
    std::uint32_t walk = 0;  // the number of the find_cycles walk that visited it
    bool cyclic = false;     // contains itself
  };
  [[nodiscard]] static std::string path_of(const cell_type_config& type) {
    return text_of({"physicalCluster.cellTypes.", escaped(type.name)});
  }
  [[nodiscard]] static bool has_dot(const std::string& name) {
    return name.find('.') != std::string::npos;
  }
  [[nodiscard]] const entry* find(const std::string& name) const {
    const std::optional<std::uint32_t> found = index_.find(name);
    return found ? &types_[*found] : nullptr;
  }
  [[nodiscard]] entry* find(const std::string& name) {
    const std::optional<std::uint32_t> found = index_.find(name);
    return found ? &types_[*found] : nullptr;
  }
  // Walks down from each type through types not visited before; one that meets itself is a cycle.
  void find_cycles(std::span<const cell_type_config> types, document_faults& faults) {
    std::uint32_t walk = 0;
    for (const cell_type_config& type : types) {
      ++walk;
      entry* at = find(type.name);
      for (; at != nullptr && at->walk == 0; at = find(at->type->child_type)) at->walk = walk;
      if (at == nullptr || at->walk != walk || at->cyclic) continue;
      faults.add({path_of(*at->type)}, {"contains itself"});
      for (; !at->cyclic; at = find(at->type->child_type)) at->cyclic = true;
    }
  }

  name_index index_;
  lean_vector<entry> types_;
};

}  // namespace detail
APIARY_NAMESPACE_END
