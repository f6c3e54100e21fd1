// apiary/gang_scheduler/detail/cluster_layout.h - the positions of nodes in a tree that has unused ones.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Gives each node a position: a cell of level 0 of a tree whose upper cells have names. Every cell
// has unused children, at least an eighth of the number in use, so that nodes and racks can join
// without a new tree. If a new tree is needed before an eighth more nodes have joined, it has twice
// as many unused children, but at most as many as are in use.
// Cost: add O(children of the cells that contain the node), remove O(levels); rebuild O(nodes).
class cluster_layout {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // level_names: of the levels above the nodes, the lowest first.
  explicit cluster_layout(std::vector<std::string> level_names)
      : level_names_(std::move(level_names)) {
    level_names_.insert(level_names_.begin(), "node");
    rebuild({}, [](std::uint32_t) -> const std::vector<std::string>& { std::abort(); });
  }
  [[nodiscard]] const ragged_tree& tree() const noexcept { return tree_; }
  [[nodiscard]] level_t num_levels() const noexcept {
    return static_cast<level_t>(level_names_.size());
  }
  // The name of a level; "cluster" for num_levels().
  [[nodiscard]] std::string_view level_name(level_t l) const noexcept {
    return l < level_names_.size() ? std::string_view(level_names_[l]) : "cluster";
  }
  [[nodiscard]] std::span<const std::string> level_names() const noexcept { return level_names_; }
  // The name of the cell at a position of level l > 0; empty if it is unused.
  [[nodiscard]] const std::string& cell_name(level_t l, std::uint32_t c) const noexcept {
    return levels_[l].names[c];
  }
  // The node at a position; none if it is unused.
  [[nodiscard]] std::uint32_t node_at(std::uint32_t position) const noexcept {
    return node_at_[position];
  }
  [[nodiscard]] std::uint32_t num_positions() const noexcept {
    return static_cast<std::uint32_t>(node_at_.size());
  }
  // In words why a node cannot be in these cells; empty if it can.
  [[nodiscard]] std::string fault(std::span<const std::string> cells) const {
    for (level_t l = 1; l + 1 < num_levels(); ++l) {
      const auto at = levels_[l].by_name.find(cells[l - 1]);
      if (at == levels_[l].by_name.end()) continue;
      const std::string& above = levels_[l + 1].names[parent(l, at->second)];
      if (above != cells[l])
        return level_names_[l] + " \"" + cells[l - 1] + "\" is in " + level_names_[l + 1] + " \"" +
               above + "\", not in \"" + cells[l] + '"';
    }
    return {};
  }

  // Gives node n an unused position in these cells. Returns it, or none if all are in use.
  // Requires: fault(cells) is empty.
  std::uint32_t add(std::uint32_t n, std::span<const std::string> cells) {
    level_t l = 1;
    std::uint32_t c = 0;
    for (; l < num_levels(); ++l) {
      const auto at = levels_[l].by_name.find(cells[l - 1]);
      if (at == levels_[l].by_name.end()) continue;
      c = at->second;
      break;
    }
    std::vector<std::uint32_t> named;  // unused cells that get a name, from the top
    for (; l > 0; --l) {
      const id_range<cell_id> below = positions_inside(tree_, l, c, l - 1);
      c = none;
      for (const cell_id i : below) {
        const bool unused = l == 1 ? node_at_[i.value] == none : levels_[l - 1].nodes[i.value] == 0;
        if (!unused) continue;
        c = i.value;
        break;
      }
      if (c == none) return none;
      if (l > 1) named.push_back(c);
    }
    for (std::size_t i = 0; i < named.size(); ++i) {
      const std::size_t at = named.size() - i;
      levels_[at].names[named[i]] = cells[at - 1];
      levels_[at].by_name.emplace(cells[at - 1], named[i]);
    }
    node_at_[c] = n;
    count(c, true);
    ++joined_;
    return c;
  }
  // Gives node n the position that it had before. Returns whether this is still possible.
  // Requires: the position is one of this tree; fault(cells) is empty.
  bool put_back(std::uint32_t n, std::uint32_t position, std::span<const std::string> cells) {
    if (node_at_[position] != none) return false;
    std::uint32_t c = position;
    for (level_t l = 1; l < num_levels(); ++l) {
      c = parent(l - 1, c);
      const auto at = levels_[l].by_name.find(cells[l - 1]);
      const bool is_free = at == levels_[l].by_name.end() && levels_[l].nodes[c] == 0;
      if (!is_free && (at == levels_[l].by_name.end() || at->second != c)) return false;
    }
    c = position;
    for (level_t l = 1; l < num_levels(); ++l) {
      c = parent(l - 1, c);
      if (levels_[l].nodes[c] > 0) continue;
      levels_[l].names[c] = cells[l - 1];
      levels_[l].by_name.emplace(cells[l - 1], c);
    }
    node_at_[position] = n;
    count(position, true);
    return true;
  }
  // Called before rebuild() if a cell has no unused child.
  void leave_more_unused() {
    if (joined_ < num_nodes_ / 8) unused_eighths_ = (std::min)(2 * unused_eighths_, std::size_t{8});
  }
  // Makes a position unused, and the cells above it that have no other node.
  void remove(std::uint32_t position) {
    node_at_[position] = none;
    count(position, false);
  }
  // Makes the tree anew with these nodes, in this order within their cells. cells_of(node) returns
  // the names of the cells of a node.
  template <class CellsOf>
  void rebuild(const std::vector<std::uint32_t>& nodes, const CellsOf& cells_of) {
    const level_t top = num_levels();
    num_nodes_ = nodes.size();
    joined_ = 0;
    // The cells of each level by their first node, with their children; [top] is one cell.
    std::vector<std::vector<cell>> all(top + std::size_t{1});
    all[top].push_back({});
    std::vector<std::unordered_map<std::string_view, std::uint32_t>> numbers(top);
    for (const std::uint32_t n : nodes) {
      std::uint32_t above = 0;
      for (level_t l = top - 1; l > 0; --l) {
        const std::string& name = cells_of(n)[l - 1];
        const auto [at, is_new] =
            numbers[l].emplace(name, static_cast<std::uint32_t>(all[l].size()));
        if (is_new) {
          all[l + 1][above].children.push_back(at->second);
          all[l].push_back({name, {}});
        }
        above = at->second;
      }
      all[1][above].children.push_back(n);
    }
    std::vector<std::vector<std::uint32_t>> fan_outs;
    std::vector<level> levels(top);
    std::vector<std::uint32_t> row{0};  // the cells of a level, by position; none: unused
    for (level_t l = top; l > 0; --l) {
      std::size_t most = 0;  // children of a cell
      for (const cell& c : all[l]) most = (std::max)(most, c.children.size());
      std::vector<std::uint32_t>& fans = fan_outs.emplace_back();
      std::vector<std::uint32_t> below;
      for (const std::uint32_t c : row) {
        const std::size_t used = c == none ? 0 : all[l][c].children.size();
        const std::size_t width = c == none ? with_unused(most) : with_unused(used);
        fans.push_back(static_cast<std::uint32_t>(width));
        if (c != none)
          below.insert(below.end(), all[l][c].children.begin(), all[l][c].children.end());
        below.resize(below.size() + width - used, none);
      }
      row = std::move(below);
      if (l == 1) break;
      level& at = levels[l - 1];
      at.names.resize(row.size());
      at.nodes.resize(row.size());
      for (std::uint32_t c = 0; c < row.size(); ++c) {
        if (row[c] == none) continue;
        at.names[c] = all[l - 1][row[c]].name;
        at.by_name.emplace(at.names[c], c);
      }
    }
    tree_ = ragged_tree(fan_outs);
    levels_ = std::move(levels);
    node_at_ = std::move(row);
    for (std::uint32_t p = 0; p < node_at_.size(); ++p)
      if (node_at_[p] != none) count(p, true);
  }

 private:
  struct cell {
    std::string name{};
    std::vector<std::uint32_t> children{};
  };
  struct level {
    std::vector<std::string> names;    // by position
    std::vector<std::uint32_t> nodes;  // in each cell
    std::unordered_map<std::string, std::uint32_t> by_name;
  };
  [[nodiscard]] std::size_t with_unused(std::size_t n) const noexcept {
    return n + 1 + n * unused_eighths_ / 8;
  }
  [[nodiscard]] std::uint32_t parent(level_t l, std::uint32_t c) const noexcept {
    return tree_.index(tree_.parent(tree_.at(l, c), l), l + 1);
  }
  void count(std::uint32_t c, bool more) {
    for (level_t l = 1; l < num_levels(); ++l) {
      c = parent(l - 1, c);
      levels_[l].nodes[c] += more ? 1U : ~0U;
      if (levels_[l].nodes[c] > 0) continue;
      levels_[l].by_name.erase(levels_[l].names[c]);
      levels_[l].names[c].clear();
    }
  }

  std::vector<std::string> level_names_;  // from the nodes up
  ragged_tree tree_{std::vector<std::vector<std::uint32_t>>{{1}}};
  std::vector<level> levels_;  // by level; [0] is empty
  std::vector<std::uint32_t> node_at_;
  std::size_t unused_eighths_ =
      1;                       // unused children of a cell, in eighths of those in use, and one
  std::size_t num_nodes_ = 0;  // when the tree was made
  std::size_t joined_ = 0;     // nodes since then
};

}  // namespace detail
APIARY_NAMESPACE_END
