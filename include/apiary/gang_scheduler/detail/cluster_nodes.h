// apiary/gang_scheduler/detail/cluster_nodes.h - the nodes of a gang scheduler, by name.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/named_cells.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

// The nodes in the order of is_node_before, whatever joined or left before, and the tree of their
// cells. So ties of searches by position do not depend on the history. Position i is that of the
// i-th node; a cluster without nodes has one position.
// Cost: rebuild O(nodes * levels).
class cluster_layout {
 public:
  static constexpr std::uint32_t none = used_node::none;

  // level_names: of the levels above the nodes, the lowest first.
  explicit cluster_layout(std::vector<std::string> level_names)
      : cells_(level_names), level_names_(std::move(level_names)) {
    level_names_.insert(level_names_.begin(), "node");
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
  // The node at each position; none if the cluster has no nodes.
  [[nodiscard]] std::span<const std::uint32_t> order() const noexcept { return order_; }
  [[nodiscard]] std::uint32_t node_at(std::uint32_t position) const noexcept {
    return order_[position];
  }
  [[nodiscard]] std::uint32_t num_positions() const noexcept {
    return static_cast<std::uint32_t>(order_.size());
  }
  // The cells of the nodes. Nodes join and leave them; the tree is not changed.
  [[nodiscard]] const named_cells& cells() const noexcept { return cells_; }
  [[nodiscard]] named_cells& cells() noexcept { return cells_; }
  // Makes the tree anew with these nodes, which are in order.
  void rebuild(std::vector<std::uint32_t> nodes, const std::vector<used_node>& by_id) {
    order_ = std::move(nodes);
    const level_t top = num_levels();
    std::vector<std::vector<std::uint32_t>> fans(top);
    fans[0] = {0};
    // Adds a cell of level l, and one of each lower level in it.
    const auto add = [&](level_t l) {
      for (++fans[top - 1U - l].back(); l > 0; --l) fans[top - l].push_back(1);
    };
    for (std::size_t i = 0; i < order_.size(); ++i) {
      level_t l = static_cast<level_t>(top - 1);  // the highest one with a new cell
      while (i > 0 && l > 0 &&
             by_id[order_[i]].shape.cells[l - 1] == by_id[order_[i - 1]].shape.cells[l - 1])
        --l;
      add(l);
    }
    if (order_.empty()) {
      add(static_cast<level_t>(top - 1));
      order_ = {none};
    }
    tree_ = ragged_tree(fans);
  }

 private:
  named_cells cells_;
  std::vector<std::string> level_names_;  // from the nodes up
  ragged_tree tree_{std::vector<std::vector<std::uint32_t>>{{1}}};
  std::vector<std::uint32_t> order_;
};

// The nodes of a gang scheduler, and what its gangs use of them. Its functions do not check. A node
// that has joined has no position before refresh().
// Cost: of a change O(1); if a node leaves, takes the id of one that has left, or turns bad or
//       healthy, also one move of the list of such nodes. refresh and the next use of each filter
//       O(nodes) after nodes have changed, besides filter_views::view.
class cluster_nodes {
 public:
  static constexpr std::uint32_t none = used_node::none;

  cluster_nodes(const gang_cluster& cluster, std::uint64_t view_bytes)
      : layout_(cluster.levels), views_(view_bytes) {
    for (const gang_cluster::node& n : cluster.nodes) insert_node(num_ids(), n);
    refresh();
  }

  // Requires, for positions: refresh() was called after the last change of a node.
  [[nodiscard]] const cluster_layout& layout() const noexcept { return layout_; }
  // The name of the cell at a position of level l > 0; empty if the cluster has no nodes.
  [[nodiscard]] std::string_view cell_name(level_t l, std::uint32_t c) const {
    const id_range<cell_id> inside = positions_inside(layout_.tree(), l, c, 0);
    const std::uint32_t id = layout_.node_at(inside.first.value);
    return id == none ? std::string_view() : nodes_[id].shape.cells[l - 1];
  }
  // Whether there is a node with this id.
  [[nodiscard]] bool has_node(node_id n) const noexcept {
    return n.value < nodes_.size() && nodes_[n.value].present;
  }
  [[nodiscard]] std::size_t num_nodes() const noexcept { return by_name_.size(); }
  // Whether any node has a GPU, good or bad. Requires: as layout().
  [[nodiscard]] bool has_gpus() const noexcept { return most_gpus_ > 0; }
  // Requires: n is below num_ids(); a node that is not present has no gangs.
  [[nodiscard]] const used_node& node(std::uint32_t n) const noexcept { return nodes_[n]; }
  [[nodiscard]] std::uint32_t num_ids() const noexcept {
    return static_cast<std::uint32_t>(nodes_.size());
  }
  [[nodiscard]] std::optional<std::uint32_t> find_node(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? std::nullopt : std::optional(at->second);
  }
  // The nodes in the order of is_node_before. Cost: O(nodes), and the log of those that have joined
  // since refresh().
  [[nodiscard]] std::vector<std::uint32_t> in_order() const {
    std::vector<std::uint32_t> stay;
    for (std::uint32_t p = 0; p < layout_.num_positions(); ++p) {
      const std::uint32_t id = layout_.node_at(p);
      if (id != none && nodes_[id].position == p) stay.push_back(id);
    }
    if (stay.size() == num_nodes()) return stay;
    std::vector<std::uint32_t> joined;
    for (std::uint32_t id = 0; stay.size() + joined.size() < num_nodes(); ++id)
      if (nodes_[id].present && nodes_[id].position == none) joined.push_back(id);
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return is_node_before(nodes_[a].shape, nodes_[b].shape);
    };
    merge_sort(joined, before);
    std::vector<std::uint32_t> all;
    all.reserve(num_nodes());
    auto rest = stay.begin();
    for (const std::uint32_t id : joined) {
      const auto at = std::upper_bound(rest, stay.end(), id, before);
      all.insert(all.end(), rest, at);
      all.push_back(id);
      rest = at;
    }
    all.insert(all.end(), rest, stay.end());
    return all;
  }
  // Changes when nodes may get other positions.
  [[nodiscard]] std::uint64_t layout_version() const noexcept { return layout_version_; }
  // The nodes that are bad or have a bad GPU, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& bad_nodes() const noexcept { return bad_; }
  // The lowest id that no node has.
  [[nodiscard]] std::uint32_t next_id() const noexcept {
    return free_ids_.empty() ? num_ids() : free_ids_.front();
  }
  // The free GPUs of all nodes.
  [[nodiscard]] std::uint64_t free_gpus() const noexcept { return free_gpus_; }
  // The sum of the hashes of all nodes.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  // Gives each node its position, if nodes have changed.
  void refresh() {
    if (!std::exchange(is_stale_, false)) return;
    layout_.rebuild(in_order(), nodes_);
    most_gpus_ = 0;
    for (std::uint32_t p = 0; p < layout_.num_positions(); ++p) {
      if (layout_.node_at(p) == none) continue;
      nodes_[layout_.node_at(p)].position = p;
      most_gpus_ = (std::max)(most_gpus_, nodes_[layout_.node_at(p)].shape.gpus);
    }
    views_.change_nodes(num_nodes());
  }
  // The view of a filter, made if it is new, after refresh(). A reference is valid until the next
  // call.
  node_view& view(const node_filter& filter) {
    refresh();
    return views_.view(filter, source());
  }
  // The first name in the filter that no node has; null if there is none.
  // Cost: O(1) if the filter has a view and no node has been removed since the last call for it.
  [[nodiscard]] const std::string* unknown_name(const node_filter& filter) {
    if (filter.nodes.empty()) return nullptr;
    node_view* const found = views_.find(filter);
    if (found != nullptr && found->known == removed_) return nullptr;
    for (const std::string& name : filter.nodes.names())
      if (!by_name_.contains(name)) return &name;
    if (found != nullptr) found->known = removed_;
    return nullptr;
  }
  // The views of filters, as they were used last.
  [[nodiscard]] std::span<const std::unique_ptr<node_view>> views() const noexcept {
    return views_.all();
  }
  // Brings a copy of one of the views up to date. Returns false if its next use makes it anew.
  [[nodiscard]] bool take_over(node_view& v) const {
    return !is_stale_ && views_.take_over(v, source());
  }

  // Adds a node that is idle and healthy. Requires: layout().cells().fault(shape.cells) is empty;
  // the id and the name are free.
  void insert_node(std::uint32_t id, const gang_cluster::node& shape) {
    if (id == nodes_.size()) {
      nodes_.emplace_back();
    } else {
      erase_sorted(free_ids_, id);
    }
    used_node& n = nodes_[id];
    n.present = true;
    n.shape = shape;
    n.name_hash = used_node::hash_of_name(shape.name);
    by_name_.emplace(shape.name, id);
    layout_.cells().join(shape.cells);
    hash_ += n.hash();
    count_free(n);
    change_nodes();
  }
  // Removes a node. Requires: no gang is on it.
  void erase_node(std::uint32_t id) {
    set_health(id, false, 0);
    used_node& n = nodes_[id];
    layout_.cells().leave(n.shape.cells);
    by_name_.erase(n.shape.name);
    ++removed_;
    hash_ -= n.hash();
    free_gpus_ -= n.counted;
    n = {};
    insert_sorted(free_ids_, id);
    change_nodes();
  }
  // Changes the GPUs, CPU and memory of a node. Requires: its gangs do not use more.
  void resize_node(std::uint32_t id, std::uint32_t gpus, resources host) {
    used_node& n = nodes_[id];
    hash_ -= n.hash();
    n.shape.gpus = gpus;
    n.shape.host = host;
    hash_ += n.hash();
    count_free(n);
    change_nodes();
  }
  void set_health(std::uint32_t id, bool bad, std::uint32_t bad_gpus) {
    used_node& n = nodes_[id];
    if (n.bad == bad && n.bad_gpus == bad_gpus) return;
    const bool was_bad = n.bad || n.bad_gpus != 0;
    const bool is_bad = bad || bad_gpus != 0;
    hash_ -= n.hash();
    n.bad = bad;
    n.bad_gpus = bad_gpus;
    if (is_bad != was_bad) {
      if (is_bad) insert_sorted(bad_, id);
      if (was_bad) erase_sorted(bad_, id);
    }
    hash_ += n.hash();
    change_use(id);
  }

  // The gang in a slot takes this of a node; reserved: it waits for the end of its victims.
  // Requires: no other gang has taken these GPUs in the same way.
  void take(std::uint32_t slot, const gang_on_node& what, bool reserved) {
    used_node& n = nodes_[what.node];
    use(n, what, reserved, true);
    n.gangs.push_back({slot, what.mask});
    change_use(what.node);
  }
  // It gives it back. Requires: it has it.
  void give_back(std::uint32_t slot, const gang_on_node& what, bool reserved) {
    used_node& n = nodes_[what.node];
    use(n, what, reserved, false);
    const auto is_it = [&](const used_node::gang_here& g) { return g.slot == slot; };
    *std::find_if(n.gangs.begin(), n.gangs.end(), is_it) = n.gangs.back();
    n.gangs.pop_back();
    change_use(what.node);
  }
  // What a gang has taken is reserved from now on, or is not. Requires: it was not, or was.
  void set_reserved(const gang_on_node& what, bool reserved) {
    use(nodes_[what.node], what, !reserved, false);
    use(nodes_[what.node], what, reserved, true);
  }

 private:
  [[nodiscard]] filter_views::source source() const noexcept {
    return {layout_.tree(), layout_.order(), nodes_, (std::max)(most_gpus_, 1U)};
  }
  void change_nodes() {
    is_stale_ = true;
    ++layout_version_;
  }
  void count_free(used_node& n) {
    free_gpus_ -= n.counted;
    n.counted = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
    free_gpus_ += n.counted;
  }
  void change_use(std::uint32_t id) {
    count_free(nodes_[id]);
    if (!is_stale_) views_.change_use(id);
  }
  static void use(used_node& n, const gang_on_node& what, bool reserved, bool more) {
    std::uint32_t& mask = reserved ? n.reserved : n.used;
    APIARY_VERIFY((mask & what.mask) == (more ? 0 : what.mask));
    mask ^= what.mask;
    n.cpu_milli += more ? what.cpu_milli : 0 - what.cpu_milli;
    n.memory_mib += more ? what.memory_mib : 0 - what.memory_mib;
  }

  cluster_layout layout_;
  bool is_stale_ = true;  // nodes have changed since the layout was made
  std::uint64_t layout_version_ = 0;
  std::vector<used_node> nodes_;         // by id
  std::vector<std::uint32_t> free_ids_;  // ascending
  std::unordered_map<std::string, std::uint32_t> by_name_;
  std::uint32_t most_gpus_ = 0;     // of a node
  std::vector<std::uint32_t> bad_;  // nodes that are bad or have a bad GPU, ascending
  filter_views views_;
  std::uint64_t removed_ = 1;  // nodes so far, and one
  std::uint64_t free_gpus_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
