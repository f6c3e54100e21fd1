// apiary/gang_scheduler/detail/cluster_layout.h - the order of nodes by name, and their positions in a tree that has unused ones.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <absl/functional/function_ref.h>

#include <algorithm>
#include <bit>
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

// Whether name a is before name b. Digits count as numbers, so "n9" is before "n10".
[[nodiscard]] inline bool is_name_before(std::string_view a, std::string_view b) noexcept {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  // The number that begins at i, without leading zeros; moves i behind it.
  const auto number = [&](std::string_view text, std::size_t& i) {
    while (i < text.size() && text[i] == '0') ++i;
    const std::size_t first = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return text.substr(first, i - first);
  };
  std::size_t i = 0;
  std::size_t k = 0;
  while (i < a.size() && k < b.size()) {
    if (is_digit(a[i]) && is_digit(b[k])) {
      const std::string_view x = number(a, i);
      const std::string_view y = number(b, k);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    } else if (a[i] != b[k]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
    } else {
      ++i;
      ++k;
    }
  }
  const bool is_end = i == a.size();
  return is_end && k == b.size() ? a < b : is_end;
}
// Whether node a is before node b: by their cells, the highest first, then by their names.
// Requires: both have a cell for each level.
[[nodiscard]] inline bool is_node_before(const gang_cluster::node& a,
                                         const gang_cluster::node& b) noexcept {
  for (std::size_t l = a.cells.size(); l-- > 0;)
    if (a.cells[l] != b.cells[l]) return is_name_before(a.cells[l], b.cells[l]);
  return is_name_before(a.name, b.name);
}

// Gives each node a position: a cell of level 0 of a tree whose upper cells have names. Positions
// are in the order of is_node_before, whatever joined or left before; so ties of searches by
// position do not depend on the history. Every cell has unused children between the others, at
// least an eighth of the number in use, so that nodes and racks can join without a new tree. If the
// tree has to be made anew before an eighth more nodes have joined, the next one has twice as many
// unused children, up to as many as a cell needs. shape_of(n) returns the gang_cluster::node n.
// Cost: add O(log children + gaps) if there is an unused child at the place of the node in the
//       order; otherwise neighbors move, O(log^2 children) of them in the mean; remove O(levels);
//       rebuild O(nodes * levels), and their log if they are not in order.
class cluster_layout {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // Returns the description of a node.
  using shape_function = absl::FunctionRef<const gang_cluster::node&(std::uint32_t n)>;
  // A node that gets another position.
  struct move {
    std::uint32_t node = 0;
    std::uint32_t from = none;  // none: the node is new
    std::uint32_t to = 0;
  };

  // level_names: of the levels above the nodes, the lowest first.
  explicit cluster_layout(std::vector<std::string> level_names)
      : level_names_(std::move(level_names)) {
    level_names_.insert(level_names_.begin(), "node");
    rebuild({}, [](std::uint32_t) -> const gang_cluster::node& { std::abort(); });
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
  // The nodes in the order of their positions.
  [[nodiscard]] std::vector<std::uint32_t> nodes() const {
    std::vector<std::uint32_t> all;
    for (const std::uint32_t n : node_at_)
      if (n != none) all.push_back(n);
    return all;
  }
  // Whether a cell has no nodes, and is no node.
  [[nodiscard]] bool is_unused(level_t l, std::uint32_t c) const noexcept {
    return l == 0 ? node_at_[c] == none : levels_[l].nodes[c] == 0;
  }
  // The most positions that so many nodes have when the tree is made.
  [[nodiscard]] std::size_t most_positions(std::size_t nodes) const noexcept {
    return nodes * (3 + 2 * std::size_t{num_levels()}) + 1;
  }
  // Whether so many nodes have left that a new tree is worth its cost.
  [[nodiscard]] bool is_too_large() const noexcept {
    return num_positions() > 64 + 2 * most_positions(present_);
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

  // Gives node n its position; others may move. Returns false, and does nothing, if there are too
  // few unused positions: then leave_more_unused() and rebuild() are next.
  // Requires: fault(cells of n) is empty.
  bool add(std::uint32_t n, shape_function shape_of) {
    const gang_cluster::node& node = shape_of(n);
    level_t above = 1;  // the lowest level where the node has a cell already
    std::uint32_t cell = 0;
    for (; above < num_levels(); ++above) {
      const auto at = levels_[above].by_name.find(node.cells[above - 1]);
      if (at == levels_[above].by_name.end()) continue;
      cell = at->second;
      break;
    }
    const auto l = static_cast<level_t>(above - 1);
    const id_range<cell_id> children = positions_inside(tree_, above, cell, l);
    const std::uint32_t first = children.first.value;
    const std::uint32_t last = children.last.value;
    const std::string& name = l == 0 ? node.name : node.cells[l - 1];
    const auto is_before = [&](std::uint32_t c) {
      return is_name_before(l == 0 ? shape_of(node_at_[c]).name : levels_[l].names[c], name);
    };
    // All children before `at` are before the new one.
    std::uint32_t at = first;
    for (std::uint32_t end = last; at < end;) {
      const std::uint32_t middle = at + (end - at) / 2;
      std::uint32_t used = middle;
      while (used < end && is_unused(l, used)) ++used;
      if (used < end && is_before(used)) {
        at = used + 1;
      } else {
        end = middle;
      }
    }
    std::uint32_t gap = at;
    std::uint32_t end_of_gap = at;
    while (gap > first && is_unused(l, gap - 1)) --gap;
    while (end_of_gap < last && is_unused(l, end_of_gap)) ++end_of_gap;
    if (gap < end_of_gap) {
      if (end_of_gap < last) gap += (end_of_gap - gap) / 2;
      if (l > 0) return spread(l, gap, gap + 1, gap, n, shape_of);
      moves_.assign(1, {n, none, gap});
      cells_moved_ = false;
      put(moves_[0], shape_of);
      ++joined_;
      return true;
    }
    // The fewest neighbors, in a window with an unused child, and in a large one with some more.
    const auto height = static_cast<std::size_t>(std::bit_width((last - first) / min_window)) + 1;
    for (std::size_t h = 0;; ++h) {
      const std::uint32_t size = min_window << h;
      const std::uint32_t from = first + ((std::min)(at, last - 1) - first) / size * size;
      const std::uint32_t to = last - from > size ? from + size : last;
      std::size_t unused = 0;
      for (std::uint32_t c = from; c < to; ++c) unused += is_unused(l, c) ? 1U : 0U;
      const bool all = from == first && to == last;
      const bool enough = all || (unused - 1) * 16 * height >= (to - from) * h;
      if (unused > 0 && enough && spread(l, from, to, at, n, shape_of)) return true;
      if (all) return false;
    }
  }
  // After add(): the nodes that have other positions now, and whether cells of nodes have moved.
  [[nodiscard]] std::span<const move> moves() const noexcept { return moves_; }
  [[nodiscard]] bool cells_moved() const noexcept { return cells_moved_; }
  // A cell has no unused child, so rebuild() is next.
  void leave_more_unused() {
    if (joined_ < num_nodes_ / 8) unused_eighths_ = (std::min)(2 * unused_eighths_, std::size_t{8});
  }
  // Makes a position unused, and the cells above that have no other node.
  void remove(std::uint32_t position) {
    node_at_[position] = none;
    --present_;
    std::uint32_t c = position;
    for (level_t l = 1; l < num_levels(); ++l) {
      c = parent(l - 1, c);
      if (--levels_[l].nodes[c] > 0) continue;
      levels_[l].by_name.erase(levels_[l].names[c]);
      levels_[l].names[c].clear();
    }
  }
  // Makes the tree anew with these nodes.
  void rebuild(std::vector<std::uint32_t> nodes, shape_function shape_of) {
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return is_node_before(shape_of(a), shape_of(b));
    };
    if (!std::is_sorted(nodes.begin(), nodes.end(), before)) merge_sort(nodes, before);
    const level_t top = num_levels();
    num_nodes_ = nodes.size();
    joined_ = 0;
    present_ = 0;
    std::vector<std::vector<std::uint32_t>> fan_outs;
    std::vector<level> levels(top);
    std::vector<std::span<const std::uint32_t>> row{nodes};  // of each cell; none: it is unused
    std::vector<std::vector<std::span<const std::uint32_t>>> children;
    for (level_t l = top; l > 0; --l) {
      children.clear();
      std::size_t used = 0;
      std::size_t most = 1;
      std::size_t unused_cells = 0;
      for (const std::span<const std::uint32_t> cell : row) {
        children.push_back(split(l - 1, cell, shape_of));
        used += children.back().size();
        most = (std::max)(most, children.back().size());
        unused_cells += cell.empty() ? 1U : 0U;
      }
      // Unused cells are as wide as the widest one, but together not wider than twice the others.
      const std::size_t unused_width =
          std::clamp(2 * used / (std::max)(unused_cells, std::size_t{1}), std::size_t{1}, most);
      std::vector<std::uint32_t>& fans = fan_outs.emplace_back();
      row.clear();
      for (const std::vector<std::span<const std::uint32_t>>& of : children) {
        const std::size_t first = row.size();
        const std::size_t width =
            of.empty() ? unused_width : of.size() + 1 + of.size() * unused_eighths_ / 8;
        fans.push_back(static_cast<std::uint32_t>(width));
        row.resize(first + width);
        for (std::size_t i = 0; i < of.size(); ++i) row[first + i * width / of.size()] = of[i];
      }
      levels[l - std::size_t{1}].names.resize(l == 1 ? 0 : row.size());
      levels[l - std::size_t{1}].nodes.resize(l == 1 ? 0 : row.size());
    }
    tree_ = ragged_tree(fan_outs);
    levels_ = std::move(levels);
    node_at_.assign(row.size(), none);
    placed_.clear();
    const auto cells = static_cast<level_t>(top - 1);
    const id_range<cell_id> all = positions_inside(tree_, top, 0, cells);
    APIARY_VERIFY(assign(cells, all.first.value, all.last.value, nodes, shape_of));
    for (const move& m : placed_) put(m, shape_of);
  }

 private:
  static constexpr std::uint32_t min_window = 8;
  struct level {
    std::vector<std::string> names;    // by position
    std::vector<std::uint32_t> nodes;  // in each cell
    std::unordered_map<std::string, std::uint32_t> by_name;
  };
  [[nodiscard]] std::uint32_t parent(level_t l, std::uint32_t c) const noexcept {
    return tree_.index(tree_.parent(tree_.at(l, c), l), l + 1);
  }
  // The nodes of each cell of level l; they are in order, and in one cell of the level above.
  [[nodiscard]] static std::vector<std::span<const std::uint32_t>> split(
      level_t l, std::span<const std::uint32_t> nodes, shape_function shape_of) {
    std::vector<std::span<const std::uint32_t>> cells;
    for (std::size_t first = 0; first < nodes.size();) {
      std::size_t end = first + 1;
      while (l > 0 && end < nodes.size() &&
             shape_of(nodes[end]).cells[l - 1] == shape_of(nodes[first]).cells[l - 1])
        ++end;
      cells.push_back(nodes.subspan(first, end - first));
      first = end;
    }
    return cells;
  }
  // Appends positions of these nodes to placed_: in the cells first, ..., last - 1 of level l.
  // False if they are too narrow.
  [[nodiscard]] bool assign(level_t l, std::uint32_t first, std::uint32_t last,
                            std::span<const std::uint32_t> nodes, shape_function shape_of) {
    const std::vector<std::span<const std::uint32_t>> cells = split(l, nodes, shape_of);
    std::uint32_t next = first;
    for (std::size_t i = 0; i < cells.size(); ++i, ++next) {
      const std::uint64_t even = std::uint64_t{last - first} * i / cells.size();
      next = (std::max)(next, first + static_cast<std::uint32_t>(even));
      const std::size_t mark = placed_.size();
      for (;; ++next) {
        if (next + (cells.size() - i) > last) return false;
        if (l == 0) {
          placed_.push_back({cells[i][0], none, next});
          break;
        }
        const id_range<cell_id> in = positions_inside(tree_, l, next, l - 1);
        if (assign(l - 1, in.first.value, in.last.value, cells[i], shape_of)) break;
        placed_.resize(mark);
      }
    }
    return true;
  }
  // Moves the nodes in the cells first, ..., last - 1 of level l so that node n joins them, in
  // cells before that at `at`.
  [[nodiscard]] bool spread(level_t l, std::uint32_t first, std::uint32_t last, std::uint32_t at,
                            std::uint32_t n, shape_function shape_of) {
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> from;
    const auto add_new = [&] {
      nodes.push_back(n);
      from.push_back(none);
    };
    for (std::uint32_t c = first; c < last; ++c) {
      if (c == at) add_new();
      for (const cell_id p : positions_inside(tree_, l, c, 0)) {
        if (node_at_[p.value] == none) continue;
        nodes.push_back(node_at_[p.value]);
        from.push_back(p.value);
      }
    }
    if (at == last) add_new();
    placed_.clear();
    if (!assign(l, first, last, nodes, shape_of)) return false;
    moves_.clear();
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (placed_[i].to != from[i]) moves_.push_back({nodes[i], from[i], placed_[i].to});
    cells_moved_ = l > 0 && moves_.size() > 1;
    for (const move& m : moves_)
      if (m.from != none) remove(m.from);
    for (const move& m : moves_) put(m, shape_of);
    ++joined_;
    return true;
  }
  void put(const move& m, shape_function shape_of) {
    node_at_[m.to] = m.node;
    ++present_;
    std::uint32_t c = m.to;
    for (level_t l = 1; l < num_levels(); ++l) {
      c = parent(l - 1, c);
      if (levels_[l].nodes[c]++ > 0) continue;
      levels_[l].names[c] = shape_of(m.node).cells[l - 1];
      levels_[l].by_name.emplace(levels_[l].names[c], c);
    }
  }

  std::vector<std::string> level_names_;  // from the nodes up
  ragged_tree tree_{std::vector<std::vector<std::uint32_t>>{{1}}};
  std::vector<level> levels_;  // by level; [0] is empty
  std::vector<std::uint32_t> node_at_;
  std::vector<move> placed_;
  std::vector<move> moves_;
  bool cells_moved_ = false;
  std::size_t unused_eighths_ = 1;  // unused children of a cell, besides one, by the others
  std::size_t num_nodes_ = 0;       // when the tree was made
  std::size_t joined_ = 0;          // nodes since then
  std::size_t present_ = 0;         // nodes now
};

}  // namespace detail
APIARY_NAMESPACE_END
