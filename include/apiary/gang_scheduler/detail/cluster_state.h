// apiary/gang_scheduler/detail/cluster_state.h - the nodes of a gang scheduler, with an index for each filter.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/gang_allocations.h>
#include <apiary/gang_scheduler/detail/id_set.h>
#include <apiary/gang_scheduler/detail/name_order.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The nodes of a gang scheduler. Its functions do not check; while a trial is open they record how
// to undo what they do.
// Cost: of a change: capacity_index::set, and in insert_node for each node that moves; O(nodes) if the
//       layout is made anew, or if the most GPUs of a node are others than before.
class cluster_state {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  explicit cluster_state(const gang_cluster& cluster) : layout_(cluster.levels) {
    std::vector<std::uint32_t> ids;
    for (const gang_cluster::node& n : cluster.nodes) {
      const auto id = static_cast<std::uint32_t>(nodes_.size());
      used_node& added = nodes_.emplace_back();
      added.shape = n;
      added.name_hash = used_node::hash_of_name(n.name);
      by_name_.emplace(n.name, id);
      hash_ += added.hash();
      ++with_gpus_[n.gpus];
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
  // Where a node is, and which of its GPUs its gangs can give back: what a search of victims reads of
  // many nodes.
  struct usable_node {
    std::uint32_t position = none;
    std::uint32_t gpus = 0;  // healthy and not reserved
    friend bool operator==(const usable_node&, const usable_node&) = default;
  };
  // Requires: as node().
  [[nodiscard]] const usable_node& usable(std::uint32_t n) const noexcept { return usable_[n]; }
  // Changes when nodes get other positions.
  [[nodiscard]] std::uint64_t layout_version() const noexcept { return layout_version_; }
  // The nodes that are bad or have a bad GPU, ascending.
  [[nodiscard]] const id_set& bad_nodes() const noexcept { return bad_; }
  // The lowest id that no node has.
  [[nodiscard]] std::uint32_t next_id() const noexcept {
    return free_ids_.empty() ? num_ids() : free_ids_.front();
  }
  // The free GPUs of all nodes.
  [[nodiscard]] std::uint64_t free_gpus() const noexcept { return free_gpus_; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  // What was proposed before is out of date. An epoch of a trial is never that of a later state.
  void next_epoch() noexcept { epoch_ = ++last_epoch_; }

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
    bool remake = set_max_free();
    usable_.resize(nodes_.size());
    if (layout_.add(id, shapes{nodes_})) {
      if (layout_.cells_moved()) ++layout_version_;
      for (const cluster_layout::move& m : layout_.moves()) {
        nodes_[m.node].position = m.to;
        set_usable(m.node);
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
    on_undo([id](cluster_state& s) { s.erase_node(id); });
  }
  // Removes a node. Requires: no gang is on it.
  void erase_node(std::uint32_t id) {
    set_health(id, false, 0);
    used_node& n = nodes_[id];
    if (trials_ > 0) on_undo([id, shape = n.shape](cluster_state& s) { s.insert_node(id, shape); });
    const std::uint32_t position = n.position;
    layout_.remove(position);
    by_name_.erase(n.shape.name);
    ++removed_;
    hash_ -= n.hash();
    --with_gpus_[n.shape.gpus];
    free_gpus_ -= n.counted;
    n = {};
    usable_[id] = {};
    free_ids_.insert(id);
    bool remake = set_max_free();
    if (layout_.is_too_large()) {
      make_layout(layout_.nodes());
      remake = true;
    }
    remake ? views_.change_layout(source()) : views_.change_node(position, source());
  }
  // Changes the GPUs, CPU and memory of a node. Requires: its gangs do not use more.
  void resize_node(std::uint32_t id, std::uint32_t gpus, resources host) {
    used_node& n = nodes_[id];
    on_undo([id, before = n.shape.gpus, host_before = n.shape.host](cluster_state& s) {
      s.resize_node(id, before, host_before);
    });
    hash_ -= n.hash();
    --with_gpus_[n.shape.gpus];
    n.shape.gpus = gpus;
    n.shape.host = host;
    ++with_gpus_[gpus];
    hash_ += n.hash();
    set_usable(id);
    set_max_free() ? views_.change_layout(source()) : views_.change_node(n.position, source());
  }
  void set_health(std::uint32_t id, bool bad, std::uint32_t bad_gpus) {
    used_node& n = nodes_[id];
    if (n.bad == bad && n.bad_gpus == bad_gpus) return;
    on_undo(
        [id, was = n.bad, gpus = n.bad_gpus](cluster_state& s) { s.set_health(id, was, gpus); });
    hash_ -= n.hash();
    n.bad = bad;
    n.bad_gpus = bad_gpus;
    bad || bad_gpus != 0 ? bad_.insert(id) : bad_.erase(id);
    hash_ += n.hash();
    changed(id);
  }

 protected:
  [[nodiscard]] filter_views::source source() const noexcept {
    return {layout_, nodes_, max_free_};
  }
  template <class F>
  void on_undo(F&& f) {
    if (trials_ > 0) undo_.push_back(std::forward<F>(f));
  }
  // Returns the shape of a node by its id.
  struct shapes {
    const std::vector<used_node>& nodes;
    const gang_cluster::node& operator()(std::uint32_t n) const noexcept { return nodes[n].shape; }
  };
  void make_layout(std::vector<std::uint32_t> ids) {
    layout_.rebuild(std::move(ids), shapes{nodes_});
    ++layout_version_;
    usable_.resize(nodes_.size());
    for (std::uint32_t p = 0; p < layout_.num_positions(); ++p) {
      if (layout_.node_at(p) == none) continue;
      nodes_[layout_.node_at(p)].position = p;
      set_usable(layout_.node_at(p));
    }
  }
  // The most GPUs of a node may be others. Returns whether they are.
  bool set_max_free() {
    std::uint32_t most = gang_cluster::max_gpus;
    while (most > 1 && with_gpus_[most] == 0) --most;
    return std::exchange(max_free_, most) != most;
  }
  void set_usable(std::uint32_t id) {
    used_node& n = nodes_[id];
    free_gpus_ -= n.counted;
    n.counted = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
    free_gpus_ += n.counted;
    const usable_node now{n.position, n.healthy_gpus() & ~n.reserved};
    if (usable_[id] == now) return;
    usable_[id] = now;
    for (const used_node::gang_here& g : n.gangs) allocations_.mark(g.slot);
  }
  void changed(std::uint32_t id) {
    set_usable(id);
    views_.change_use(nodes_[id].position, source());
  }

  using undo_function = std::function<void(cluster_state&)>;

  // Undoes what was recorded after `mark`.
  void roll_back(std::size_t mark) {
    const std::uint32_t open = std::exchange(trials_, 0);
    while (undo_.size() > mark) {
      const undo_function undo = std::move(undo_.back());
      undo_.pop_back();
      undo(*this);
    }
    trials_ = open;
  }

  cluster_layout layout_;
  std::uint64_t layout_version_ = 0;
  std::vector<used_node> nodes_;     // by id
  std::vector<usable_node> usable_;  // by id
  gang_allocations allocations_;     // of the gangs that may be preempted
  id_set free_ids_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  std::uint32_t max_free_ = 1;  // the most GPUs of a node, at least 1
  std::array<std::uint32_t, gang_cluster::max_gpus + 1> with_gpus_{};  // nodes by their GPUs
  id_set bad_;  // nodes that are bad or have a bad GPU
  filter_views views_;
  std::uint64_t removed_ = 1;  // nodes so far, and one
  std::uint64_t free_gpus_ = 0;
  std::uint64_t hash_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t last_epoch_ = 0;  // trials included
  std::uint32_t trials_ = 0;
  std::vector<undo_function> undo_;
};

}  // namespace detail
APIARY_NAMESPACE_END
