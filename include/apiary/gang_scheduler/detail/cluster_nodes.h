// apiary/gang_scheduler/detail/cluster_nodes.h - the nodes of a gang scheduler, with an index for each filter.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The nodes of a gang scheduler, and what its gangs use of them. Its functions do not check.
// Cost: of a change: capacity_index::set, and in insert_node for each node that moves; O(nodes) if
//       the layout is made anew, or if the most GPUs of a node are others than before.
class cluster_nodes {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  cluster_nodes(const gang_cluster& cluster, std::uint64_t view_bytes)
      : layout_(cluster.levels), views_(view_bytes) {
    std::vector<std::uint32_t> ids;
    for (const gang_cluster::node& n : cluster.nodes) {
      const auto id = static_cast<std::uint32_t>(nodes_.size());
      used_node& added = nodes_.emplace_back();
      added.shape = n;
      added.name_hash = used_node::hash_of_name(n.name);
      by_name_.emplace(n.name, id);
      hash_ += added.hash();
      ++with_gpus_[n.gpus];
      count_free(added);
      ids.push_back(id);
    }
    set_max_free();
    make_layout(std::move(ids));
    views_.begin(source());
  }

  [[nodiscard]] const cluster_layout& layout() const noexcept { return layout_; }
  // Whether there is a node with this id.
  [[nodiscard]] bool has_node(node_id n) const noexcept {
    return n.value < nodes_.size() && nodes_[n.value].present();
  }
  [[nodiscard]] std::size_t num_nodes() const noexcept { return by_name_.size(); }
  // Whether any node has a GPU, good or bad.
  [[nodiscard]] bool has_gpus() const noexcept { return max_free_ > 1 || with_gpus_[1] > 0; }
  // Requires: n is below num_ids(); a node that is not present has no gangs.
  [[nodiscard]] const used_node& node(std::uint32_t n) const noexcept { return nodes_[n]; }
  [[nodiscard]] std::uint32_t num_ids() const noexcept {
    return static_cast<std::uint32_t>(nodes_.size());
  }
  [[nodiscard]] std::optional<std::uint32_t> find_node(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? std::nullopt : std::optional(at->second);
  }
  // Changes when nodes get other positions.
  [[nodiscard]] std::uint64_t layout_version() const noexcept { return layout_version_; }
  // The nodes that are bad or have a bad GPU, ascending.
  [[nodiscard]] const std::set<std::uint32_t>& bad_nodes() const noexcept { return bad_; }
  // The lowest id that no node has.
  [[nodiscard]] std::uint32_t next_id() const noexcept {
    return free_ids_.empty() ? num_ids() : *free_ids_.begin();
  }
  // The free GPUs of all nodes.
  [[nodiscard]] std::uint64_t free_gpus() const noexcept { return free_gpus_; }
  // The sum of the hashes of all nodes.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  // The view of a filter, made if it is new. A reference is valid until the next call.
  node_view& view(const node_filter& filter) { return views_.view(filter, source()); }
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
  // The view of the default filter, then those of other filters, as they were used last.
  [[nodiscard]] std::span<const node_view> views() const noexcept { return views_.all(); }
  // A view as it is when it is used again.
  [[nodiscard]] node_view up_to_date(node_view v) const {
    views_.bring_up_to_date(v, source());
    return v;
  }

  // Adds a node that is idle and healthy. Requires: layout().fault(shape.cells) is empty; the id
  // and the name are free.
  void insert_node(std::uint32_t id, const gang_cluster::node& shape) {
    if (id == nodes_.size()) {
      nodes_.emplace_back();
    } else {
      free_ids_.erase(id);
    }
    used_node& n = nodes_[id];
    n.shape = shape;
    n.name_hash = used_node::hash_of_name(shape.name);
    by_name_.emplace(shape.name, id);
    hash_ += n.hash();
    ++with_gpus_[shape.gpus];
    count_free(n);
    bool remake = set_max_free();
    if (layout_.add(id, shapes{nodes_})) {
      if (layout_.cells_moved()) ++layout_version_;
      for (const cluster_layout::move& m : layout_.moves()) {
        nodes_[m.node].position = m.to;
      }
      if (!remake) {
        for (const cluster_layout::move& m : layout_.moves()) {
          if (m.from != none) views_.change_node(m.from, source());
          views_.change_node(m.to, source());
        }
      }
    } else {
      layout_.leave_more_unused();
      std::vector<std::uint32_t> ids = layout_.nodes();
      const auto before = [&](std::uint32_t a, std::uint32_t b) {
        return is_node_before(nodes_[a].shape, nodes_[b].shape);
      };
      ids.insert(std::upper_bound(ids.begin(), ids.end(), id, before), id);
      make_layout(std::move(ids));
      remake = true;
    }
    if (remake) views_.change_layout(source());
  }
  // Removes a node. Requires: no gang is on it.
  void erase_node(std::uint32_t id) {
    set_health(id, false, 0);
    used_node& n = nodes_[id];
    const std::uint32_t position = n.position;
    layout_.remove(position);
    by_name_.erase(n.shape.name);
    ++removed_;
    hash_ -= n.hash();
    --with_gpus_[n.shape.gpus];
    free_gpus_ -= n.counted;
    n = {};
    free_ids_.insert(id);
    bool remake = set_max_free();
    if (layout_.is_too_large()) {
      make_layout(layout_.nodes());
      remake = true;
    }
    if (remake) {
      views_.change_layout(source());
    } else {
      views_.change_node(position, source());
    }
  }
  // Changes the GPUs, CPU and memory of a node. Requires: its gangs do not use more.
  void resize_node(std::uint32_t id, std::uint32_t gpus, resources host) {
    used_node& n = nodes_[id];
    hash_ -= n.hash();
    --with_gpus_[n.shape.gpus];
    n.shape.gpus = gpus;
    n.shape.host = host;
    ++with_gpus_[gpus];
    hash_ += n.hash();
    count_free(n);
    if (set_max_free()) {
      views_.change_layout(source());
    } else {
      views_.change_node(n.position, source());
    }
  }
  void set_health(std::uint32_t id, bool bad, std::uint32_t bad_gpus) {
    used_node& n = nodes_[id];
    if (n.bad == bad && n.bad_gpus == bad_gpus) return;
    hash_ -= n.hash();
    n.bad = bad;
    n.bad_gpus = bad_gpus;
    if (bad || bad_gpus != 0) {
      bad_.insert(id);
    } else {
      bad_.erase(id);
    }
    hash_ += n.hash();
    change_use(n);
  }

  // The gang in a slot takes this of a node; reserved: it waits for the end of its victims.
  // Requires: no other gang has taken these GPUs in the same way.
  void take(std::uint32_t slot, const gang_on_node& what, bool reserved) {
    used_node& n = nodes_[what.node];
    use(n, what, reserved, true);
    n.gangs.push_back({slot, what.mask});
    change_use(n);
  }
  // It gives it back. Requires: it has it.
  void give_back(std::uint32_t slot, const gang_on_node& what, bool reserved) {
    used_node& n = nodes_[what.node];
    use(n, what, reserved, false);
    const auto is_it = [&](const used_node::gang_here& g) { return g.slot == slot; };
    *std::find_if(n.gangs.begin(), n.gangs.end(), is_it) = n.gangs.back();
    n.gangs.pop_back();
    change_use(n);
  }
  // What a gang has taken is reserved from now on, or is not. Requires: it was not, or was.
  void set_reserved(const gang_on_node& what, bool reserved) {
    use(nodes_[what.node], what, !reserved, false);
    use(nodes_[what.node], what, reserved, true);
  }

 private:
  [[nodiscard]] filter_views::source source() const noexcept {
    return {layout_, nodes_, max_free_};
  }
  // Returns the shape of a node by its id.
  struct shapes {
    const std::vector<used_node>& nodes;
    const gang_cluster::node& operator()(std::uint32_t n) const noexcept { return nodes[n].shape; }
  };
  void make_layout(std::vector<std::uint32_t> ids) {
    layout_.rebuild(std::move(ids), shapes{nodes_});
    ++layout_version_;
    for (std::uint32_t p = 0; p < layout_.num_positions(); ++p) {
      if (layout_.node_at(p) == none) continue;
      nodes_[layout_.node_at(p)].position = p;
    }
  }
  // The most GPUs of a node may be others. Returns whether they are.
  bool set_max_free() {
    std::uint32_t most = gang_cluster::max_gpus;
    while (most > 1 && with_gpus_[most] == 0) --most;
    return std::exchange(max_free_, most) != most;
  }
  void count_free(used_node& n) {
    free_gpus_ -= n.counted;
    n.counted = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
    free_gpus_ += n.counted;
  }
  void change_use(used_node& n) {
    count_free(n);
    views_.change_use(n.position, source());
  }
  static void use(used_node& n, const gang_on_node& what, bool reserved, bool more) {
    std::uint32_t& mask = reserved ? n.reserved : n.used;
    APIARY_VERIFY((mask & what.mask) == (more ? 0 : what.mask));
    mask ^= what.mask;
    n.cpu_milli += more ? what.cpu_milli : 0 - what.cpu_milli;
    n.memory_mib += more ? what.memory_mib : 0 - what.memory_mib;
  }

  cluster_layout layout_;
  std::uint64_t layout_version_ = 0;
  std::vector<used_node> nodes_;  // by id
  std::set<std::uint32_t> free_ids_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  std::uint32_t max_free_ = 1;  // the most GPUs of a node, at least 1
  std::array<std::uint32_t, gang_cluster::max_gpus + 1> with_gpus_{};  // nodes by their GPUs
  std::set<std::uint32_t> bad_;  // nodes that are bad or have a bad GPU
  filter_views views_;
  std::uint64_t removed_ = 1;  // nodes so far, and one
  std::uint64_t free_gpus_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
