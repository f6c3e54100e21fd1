// apiary/topology/cell_names.h - how sentences for users call the levels and cells of a tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The names of levels and cells, for sentences that explain a decision: "rack r7", "nodes n1 and
// n2". The names come from a named_tree or from a function; without them cells have numbers, "rack
// 3". Cells are given by their positions in the level. The level above the last one is the cluster.
//
// Requires: a named tree or a function outlives the object.
// Example:  examples/shared_gang.cpp
class cell_names {
 public:
  // Levels from the lowest up, for example {"gpu", "node", "rack"}; cells have numbers.
  cell_names(std::initializer_list<const char*> levels) : levels_(levels.begin(), levels.end()) {}
  // The same; `whole` is the name of the cluster.
  explicit cell_names(std::vector<std::string> levels, std::string whole = "cluster")
      : levels_(std::move(levels)), whole_(std::move(whole)) {}
  // The names of a named_tree, or of another class with these functions.
  template <class Named>
  requires requires(const Named& names, level_t l) {
    names.level_name(l);
    names.cell_name(names.tree().cells(l)[0]);
  }
  explicit cell_names(const Named& names, std::string whole = "cluster")
      : whole_(std::move(whole)), source_(&names), name_(&name_in_tree<Named>) {
    for (level_t l = 0; l < names.tree().num_levels(); ++l) levels_.push_back(names.level_name(l));
  }
  // Names by a function: name(level, position) -> std::string.
  template <class Function>
  requires requires(const Function& name, level_t l) { name(l, std::uint32_t{0}).size(); }
  cell_names(std::vector<std::string> levels, const Function& name, std::string whole = "cluster")
      : levels_(std::move(levels)),
        whole_(std::move(whole)),
        source_(&name),
        name_(&name_by_function<Function>) {}

  // The name of a level: "rack", "cluster" or, if it has none, "level 5".
  [[nodiscard]] std::string level(level_t l) const {
    if (l == levels_.size()) return whole_;
    return l < levels_.size() ? levels_[l] : "level " + std::to_string(l);
  }
  // Several cells of a level: "racks".
  [[nodiscard]] std::string levels(level_t l) const {
    const std::string name = level(l);
    const char end = name.empty() ? ' ' : name.back();
    return name + (end == 's' || end == 'x' || end == 'z' || end == 'h' ? "es" : "s");
  }
  // So many cells of a level: "1 rack", "3 racks".
  [[nodiscard]] std::string count(std::uint64_t n, level_t l) const {
    return std::to_string(n) + ' ' + (n == 1 ? level(l) : levels(l));
  }
  // A cell with its level: "rack r7", "rack 3" or "the cluster".
  [[nodiscard]] std::string cell(level_t l, std::uint32_t position) const {
    if (l >= levels_.size()) return "the " + level(l);
    std::string name = name_of(l, position);
    return is_prefix(level(l), name) ? name : level(l) + ' ' + name;
  }
  // Cells of a level: "node n1", "nodes n1 and n2", "nodes 0, 1, 2 and 40 more".
  [[nodiscard]] std::string cells(level_t l, std::span<const std::uint32_t> positions,
                                  std::size_t most = 10) const {
    if (positions.size() == 1) return cell(l, positions[0]);
    const std::size_t shown = positions.size() <= most ? positions.size() : most;
    std::string text;
    for (std::size_t i = 0; i < shown; ++i) {
      const std::string name = name_of(l, positions[i]);
      if (i == 0 && !is_prefix(level(l), name)) text = levels(l) + ' ';
      text += (i == 0 ? "" : i + 1 == positions.size() ? " and " : ", ") + name;
    }
    if (shown < positions.size())
      text += " and " + std::to_string(positions.size() - shown) + " more";
    return text;
  }

 private:
  template <class Named>
  static std::string name_in_tree(const void* names, level_t l, std::uint32_t position) {
    const Named& named = *static_cast<const Named*>(names);
    return std::string(named.cell_name(named.tree().cells(l)[position]));
  }
  template <class Function>
  static std::string name_by_function(const void* name, level_t l, std::uint32_t position) {
    return std::string((*static_cast<const Function*>(name))(l, position));
  }
  static bool is_prefix(std::string_view prefix, std::string_view of) {
    return of.substr(0, prefix.size()) == prefix;
  }
  [[nodiscard]] std::string name_of(level_t l, std::uint32_t position) const {
    return name_ == nullptr ? std::to_string(position) : name_(source_, l, position);
  }

  std::vector<std::string> levels_;
  std::string whole_ = "cluster";
  const void* source_ = nullptr;  // a named tree or a function
  std::string (*name_)(const void* source, level_t l, std::uint32_t position) = nullptr;
};

APIARY_NAMESPACE_END
