// apiary/hived/detail/cell_types.h - the cell types of a HiveD configuration, checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/name_index.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What is wrong with a document, a line each: "path: what".
class document_faults {
 public:
  void add(const std::string& path, const std::string& what) {
    if (!text_.empty()) text_ += '\n';
    text_ += path + ": " + what;
  }
  // kInvalidArgument with all of them.
  [[nodiscard]] absl::Status status() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

// A name from a document, as messages show it: on one line, whatever is in it. Marks and control
// characters as C writes them, in octal if need be; what is not ASCII as it is.
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
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  return '"' + escaped(name) + '"';
}

// What a cell is made of, level by level.
struct cell_shape {
  std::vector<std::string> types{};       // from the leaf up
  std::vector<std::uint32_t> fan_outs{};  // children, from the cell itself down
  level_t node_level = 0;
};

// Finds what each type is made of.
//
// Model:    hierarchical uniform composability, HiveD (OSDI 2020) section 3.
// Requires: the types outlive it.
// Cost:     O(types); shape_of O(levels).
class hived_cell_types {
 public:
  // As many leaves of a node as a 64-bit mask has bits.
  static constexpr std::uint32_t max_leaves_per_node = 64;

  // Adds to the faults: types without name, child or children, defined twice or made of themselves.
  hived_cell_types(std::span<const cell_type_config> types, document_faults& faults) {
    for (const cell_type_config& type : types) {
      const std::string path = path_of(type);
      if (type.name.empty()) faults.add(path, "a cell type without name");
      if (has_dot(type.name)) faults.add(path, "a dot in its name, where dots separate types");
      if (type.child_type.empty()) faults.add(path + ".childCellType", "is missing");
      if (has_dot(type.child_type)) {
        faults.add(path + ".childCellType", "a dot in its name, where dots separate types");
      }
      if (type.child_count == 0) faults.add(path + ".childCellNumber", "is 0 or missing");
      if (index_.add(type.name, static_cast<std::uint32_t>(types_.size()))) {
        types_.push_back({&type});
      } else {
        faults.add(path, "is defined twice");
      }
    }
    find_cycles(types, faults);
  }

  // What a cell of type `top` is made of; nullopt when there is a fault in it, added to `faults`
  // with `path` if it was not when the types were read: `top` is unknown or a leaf, there are more
  // levels than a tree can have, not one node level, or more leaves in a node than possible.
  [[nodiscard]] std::optional<cell_shape> shape_of(const std::string& top, const std::string& path,
                                                   document_faults& faults) const {
    std::vector<const cell_type_config*> down;
    for (const entry* at = find(top); at != nullptr; at = find(down.back()->child_type)) {
      const cell_type_config& type = *at->type;
      if (at->cyclic || type.child_count == 0 || type.child_type.empty()) return std::nullopt;
      if (down.size() + 1 == uniform_tree::max_levels) {
        faults.add(path, in_quotes(top) + " has more than " +
                             std::to_string(uniform_tree::max_levels) + " levels");
        return std::nullopt;
      }
      down.push_back(&type);
    }
    if (down.empty()) {
      faults.add(path,
                 top.empty() ? "is missing" : in_quotes(top) + " is not one of the cellTypes");
      return std::nullopt;
    }

    cell_shape shape;
    shape.types.push_back(down.back()->child_type);
    std::uint32_t node_levels = 0;
    std::uint64_t leaves = 1;  // of a cell of the level, or more than a node may have
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
      faults.add(path, in_quotes(top) + " has " + std::to_string(node_levels) +
                           " node levels instead of one");
      return std::nullopt;
    }
    if (leaves_of_node > max_leaves_per_node) {
      faults.add(path, "the nodes in " + in_quotes(top) + " have more than " +
                           std::to_string(max_leaves_per_node) + " leaf cells");
      return std::nullopt;
    }
    return shape;
  }

 private:
  struct entry {
    const cell_type_config* type = nullptr;
    std::uint32_t walk = 0;  // the walk of find_cycles that passed here
    bool cyclic = false;     // is part of itself
  };

  [[nodiscard]] static std::string path_of(const cell_type_config& type) {
    return "physicalCluster.cellTypes." + escaped(type.name);
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

  // Walks down from each type through types not seen before: who meets itself is on a cycle.
  void find_cycles(std::span<const cell_type_config> types, document_faults& faults) {
    std::uint32_t walk = 0;
    for (const cell_type_config& type : types) {
      ++walk;
      entry* at = find(type.name);
      for (; at != nullptr && at->walk == 0; at = find(at->type->child_type)) at->walk = walk;
      if (at == nullptr || at->walk != walk || at->cyclic) continue;
      faults.add(path_of(*at->type), "is made of itself");
      for (; !at->cyclic; at = find(at->type->child_type)) at->cyclic = true;
    }
  }

  name_index index_;
  std::vector<entry> types_;
};

}  // namespace detail
APIARY_NAMESPACE_END
