// apiary/gang_scheduler/detail/filter_views.h - nodes and what uses them, and an index of those that each node filter accepts.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/sort.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What a gang has on one node.
struct gang_on_node {
  std::uint32_t node = 0;
  std::uint32_t mask = 0;
  std::uint64_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  friend bool operator==(const gang_on_node&, const gang_on_node&) = default;
};

// A node with what uses it.
struct used_node {
  struct gang_here {
    std::uint32_t slot = 0;
    std::uint32_t mask = 0;
    friend bool operator==(const gang_here&, const gang_here&) = default;
  };
  // A search for victims reads what comes first of many nodes.
  std::uint32_t position = ~std::uint32_t{0};  // all bits set: there is no such node
  std::uint32_t bad_gpus = 0;                  // masks of GPUs
  std::uint32_t used = 0;                      // by running gangs
  std::uint32_t reserved = 0;                  // by preempting gangs
  bool bad = false;
  gang_cluster::node shape{};
  std::uint64_t name_hash = 0;
  std::uint64_t cpu_milli = 0;   // of all gangs here
  std::uint64_t memory_mib = 0;  // of all gangs here
  std::uint32_t counted = 0;     // its free GPUs in the sum of all nodes
  std::vector<gang_here> gangs{};

  [[nodiscard]] bool present() const noexcept { return position != ~std::uint32_t{0}; }
  [[nodiscard]] std::uint32_t all_gpus() const noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{1} << shape.gpus) - 1);
  }
  [[nodiscard]] std::uint32_t healthy_gpus() const noexcept {
    return bad ? 0 : all_gpus() & ~bad_gpus;
  }
  [[nodiscard]] std::uint32_t free_gpus() const noexcept {
    return healthy_gpus() & ~used & ~reserved;
  }
  // The GPUs that its gangs give back when they end.
  [[nodiscard]] std::uint32_t usable_gpus() const noexcept { return healthy_gpus() & ~reserved; }
  [[nodiscard]] resources free_host() const noexcept {
    return bad ? resources{} : left_of(shape.host, cpu_milli, memory_mib);
  }
  // What is left of CPU and memory when so much is in use; none if it is more.
  [[nodiscard]] static resources left_of(const resources& host, std::uint64_t cpu,
                                         std::uint64_t memory) noexcept {
    const auto rest = [](std::uint32_t of, std::uint64_t in_use) {
      return in_use < of ? static_cast<std::uint32_t>(of - in_use) : 0U;
    };
    return {rest(host.cpu_milli, cpu), rest(host.memory_mib, memory)};
  }
  // What becomes free on a node with `has` when a gang ends that uses `own` of the `used` there. If
  // a node is overcommitted, several gangs together free more than the sum of these values.
  [[nodiscard]] static std::uint32_t freed(std::uint64_t own, std::uint64_t used,
                                           std::uint32_t has) noexcept {
    const std::uint64_t too_much = used > has ? used - has : 0;
    return own > too_much ? static_cast<std::uint32_t>(own - too_much) : 0;
  }
  [[nodiscard]] static std::uint64_t hash_of_name(const std::string& name) noexcept {
    return digest().add(name).value();
  }
  [[nodiscard]] std::uint64_t hash() const noexcept {
    digest d;
    d.add(name_hash).add(shape.gpus).add(shape.host.cpu_milli).add(shape.host.memory_mib);
    d.add(shape.model).add(bad ? 1 : 0).add(bad_gpus);
    for (const auto* texts : {&shape.cells, &shape.labels, &shape.taints}) {
      d.add(texts->size());
      for (const std::string& text : *texts) d.add(text);
    }
    return d.value();
  }
};

// The nodes that a filter accepts, by position: free GPUs, CPU and memory, and what they have when
// idle and healthy. Other positions have nothing.
struct node_view {
  node_filter filter;
  std::uint64_t key = 0;             // hash of the filter
  std::uint64_t layout = 0;          // how often the layout had been made anew
  std::uint64_t seen = 0;            // the number of changes that it shows
  std::uint64_t known = 0;           // the names existed at this number of removed nodes
  std::vector<std::string> names{};  // of filter.nodes, ascending
  capacity_index<ragged_tree> free;
  capacity_index<ragged_tree> whole;
  std::vector<resources> hosts{};
  std::vector<resources> whole_hosts{};
  std::vector<unsigned char> members{};
  std::uint32_t num_members = 0;
  std::uint64_t bytes = 0;  // of memory, about

  node_view(node_filter of, const ragged_tree& tree, std::uint32_t max_free)
      : filter(std::move(of)),
        key(hash_of(filter)),
        names(filter.nodes.names().begin(), filter.nodes.names().end()),
        free(tree, 0, max_free),
        whole(tree, 0, max_free),
        hosts(free.num_nodes()),
        whole_hosts(free.num_nodes()),
        members(free.num_nodes()),
        bytes(free.num_nodes() * (std::uint64_t{50} + max_free) + names.size() * 64) {
    merge_sort(names);
  }
  [[nodiscard]] static std::uint64_t hash_of(const node_filter& filter) noexcept {
    digest d;
    for (const auto* texts : {&filter.labels, &filter.models, &filter.tolerations}) {
      d.add(texts->size());
      for (const std::string& text : *texts) d.add(text);
    }
    return d.add(filter.nodes.hash()).value();
  }
  [[nodiscard]] bool accepts(const gang_cluster::node& n) const {
    return std::all_of(filter.labels.begin(), filter.labels.end(),
                       [&](const std::string& label) { return has_label(n, label); }) &&
           tolerates(filter, n.taints) && (filter.models.empty() || has(filter.models, n.model)) &&
           (names.empty() || std::binary_search(names.begin(), names.end(), n.name));
  }
  // Whether the node has the label of a filter: "key=value", or "key" for any value.
  [[nodiscard]] static bool has_label(const gang_cluster::node& n, const std::string& label) {
    return std::any_of(n.labels.begin(), n.labels.end(), [&](std::string_view l) {
      return l == label ||
             (label.find('=') == std::string::npos && l.substr(0, l.find('=')) == label);
    });
  }
  // Whether a filter tolerates all these taints of a node.
  [[nodiscard]] static bool tolerates(const node_filter& filter,
                                      const std::vector<std::string>& taints) {
    return std::all_of(taints.begin(), taints.end(),
                       [&](const std::string& taint) { return has(filter.tolerations, taint); });
  }
  [[nodiscard]] static bool has(const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  // Takes over what the node has and has free; it is at this position and a member, or none is.
  void update(std::uint32_t position, const used_node* n) {
    num_members += (n == nullptr ? 0U : 1U) - members[position];
    if (n == nullptr) {
      members[position] = 0;
      free.set(position, 0);
      whole.set(position, 0);
      hosts[position] = whole_hosts[position] = {};
      return;
    }
    members[position] = 1;
    whole.set(position, n->shape.gpus);
    whole_hosts[position] = n->shape.host;
    update_use(position, *n);
  }
  // The same if only the use or the health of the node has changed.
  void update_use(std::uint32_t position, const used_node& n) {
    if (members[position] == 0) return;
    free.set(position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));
    hosts[position] = n.free_host();
  }
};

// Keeps a view of each node filter. The view of the default filter is always up to date. The others
// are brought up to date when they are used: a list has the positions that have changed. If there
// are too many filters, the one that was not used for the longest time is dropped.
// Cost: of a change: that of the default view, and O(1) amortized. view: O(filters), and that of
//       the changes since its last use; O(nodes) if the filter is new, the layout was made anew, or
//       more than a quarter of the positions, and 1,024, have changed.
class filter_views {
 public:
  // So many filters are kept, however much memory they take.
  static constexpr std::uint32_t min_filters = 32;
  // The memory of the views of a scheduler.
  static constexpr std::uint64_t default_bytes = std::uint64_t{1} << 30;
  // What views show.
  struct source {
    const cluster_layout& layout;
    const std::vector<used_node>& nodes;  // by id
    std::uint32_t max_free = 1;           // the most GPUs of a node, at least 1
  };

  // most_bytes: more than min_filters are kept only if their views take less memory.
  explicit filter_views(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}

  // Makes the view of the default filter. It is the first call.
  void begin(const source& from) {
    views_.push_back(made({}, from));
    used_.emplace_back();
  }
  // The view of the default filter, then those of other filters, which may show an earlier state.
  [[nodiscard]] std::span<const node_view> all() const noexcept { return views_; }
  // The view of a filter; null if there is none. It may show an earlier state.
  [[nodiscard]] node_view* find(const node_filter& filter) {
    const std::size_t i = index_of(filter);
    return i == 0 ? nullptr : &views_[i];
  }
  // The view of a filter, made if it is new. A reference is valid until the next call.
  [[nodiscard]] node_view& view(const node_filter& filter, const source& from) {
    if (filter == node_filter{}) return views_[0];
    std::size_t i = index_of(filter);
    if (i == 0) {
      i = views_.size();
      views_.push_back(made(filter, from));
      used_.push_back({views_[i].key, 0});
    } else {
      views_[i].filter.nodes = filter.nodes;  // so that the next comparison with this list is fast
      bytes_ -= views_[i].bytes;
      bring_up_to_date(views_[i], from);
    }
    bytes_ += views_[i].bytes;
    used_[i].last = ++uses_;
    while (is_full()) {
      const std::size_t oldest = oldest_view();
      bytes_ -= views_[oldest].bytes;
      views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(oldest));
      used_.erase(used_.begin() + static_cast<std::ptrdiff_t>(oldest));
      if (oldest < i) --i;
    }
    return views_[i];
  }
  // Takes over what has changed since the view was used last.
  void bring_up_to_date(node_view& v, const source& from) const {
    if (v.layout != layout_ || v.seen < dropped_) {
      const std::uint64_t known = v.known;
      v = made(std::move(v.filter), from);
      v.known = known;
      return;
    }
    for (auto i = static_cast<std::size_t>(v.seen - dropped_); i < changes_.size(); ++i) {
      const std::uint32_t position = changes_[i] / 2;
      const std::uint32_t id = from.layout.node_at(position);
      const bool is_node = id != cluster_layout::none;
      if (changes_[i] % 2 == 0) {
        if (is_node) v.update_use(position, from.nodes[id]);
      } else if (is_node && v.accepts(from.nodes[id].shape)) {
        v.update(position, &from.nodes[id]);
      } else if (v.members[position] != 0) {
        v.update(position, nullptr);
      }
    }
    v.seen = dropped_ + changes_.size();
  }

  // The use or the health of the node at a position has changed.
  void change_use(std::uint32_t position, const source& from) { change(position * 2, from); }
  // Another node is at a position, or none, or the node has other GPUs, CPU or memory.
  void change_node(std::uint32_t position, const source& from) { change(position * 2 + 1, from); }
  // The layout was made anew, or the most GPUs of a node are others than before.
  void change_layout(const source& from) {
    ++layout_;
    dropped_ += changes_.size();
    changes_.clear();
    bring_up_to_date(views_[0], from);
  }

 private:
  // What is read of a view to find it, or to drop it.
  struct use {
    std::uint64_t key = 0;   // hash of the filter
    std::uint64_t last = 0;  // the number of its last use
  };

  [[nodiscard]] node_view made(node_filter filter, const source& from) const {
    node_view v(std::move(filter), from.layout.tree(), from.max_free);
    for (std::uint32_t p = 0; p < from.layout.num_positions(); ++p) {
      if (from.layout.node_at(p) == cluster_layout::none) continue;
      const used_node& n = from.nodes[from.layout.node_at(p)];
      if (v.accepts(n.shape)) v.update(p, &n);
    }
    v.layout = layout_;
    v.seen = dropped_ + changes_.size();
    return v;
  }
  void change(std::uint32_t what, const source& from) {
    changes_.push_back(what);
    bring_up_to_date(views_[0], from);
    std::size_t drops = 0;
    if (views_.size() == 1) {
      drops = changes_.size();
    } else if (changes_.size() > from.layout.num_positions() / 4 + std::size_t{1'024}) {
      drops = changes_.size() / 2;
    }
    changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(drops));
    dropped_ += drops;
  }
  // 0: the filter has no view.
  [[nodiscard]] std::size_t index_of(const node_filter& filter) const {
    const std::uint64_t key = node_view::hash_of(filter);
    for (std::size_t i = 1; i < used_.size(); ++i)
      if (used_[i].key == key && views_[i].filter == filter) return i;
    return 0;
  }
  [[nodiscard]] std::size_t oldest_view() const {
    std::size_t oldest = 1;
    for (std::size_t i = 2; i < used_.size(); ++i)
      if (used_[i].last < used_[oldest].last) oldest = i;
    return oldest;
  }
  [[nodiscard]] bool is_full() const noexcept {
    const std::size_t kept = views_.size() - 1;
    return kept > gang_scheduler_types::max_filters || (kept > min_filters && bytes_ > most_bytes_);
  }

  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;       // of all views but [0]
  std::vector<node_view> views_;  // [0]: of the filter that accepts nodes without taints
  std::vector<use> used_;         // of each view
  std::uint64_t uses_ = 0;
  std::uint64_t layout_ = 0;            // how often it was made anew
  std::vector<std::uint32_t> changes_;  // a position times 2; and one if another node is there
  std::uint64_t dropped_ = 0;           // changes before the first one in the list
};

}  // namespace detail
APIARY_NAMESPACE_END
