// apiary/gang_scheduler/detail/filter_views.h - an index of the nodes that each filter accepts.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct gang_here {
    std::uint32_t slot = 0;
    std::uint32_t mask = 0;
    friend bool operator==(const gang_here&, const gang_here&) = default;
  };
  // A search for victims reads what comes first of many nodes.
  std::uint32_t position = none;  // in the order of names; none: it has joined since that was made
  std::uint32_t bad_gpus = 0;     // masks of GPUs
  std::uint32_t used = 0;         // by running gangs
  std::uint32_t reserved = 0;     // by preempting gangs
  bool bad = false;
  bool present = false;  // there is such a node
  gang_cluster::node shape{};
  std::uint64_t name_hash = 0;
  std::uint64_t cpu_milli = 0;   // of all gangs here
  std::uint64_t memory_mib = 0;  // of all gangs here
  std::uint32_t counted = 0;     // its free GPUs in the sum of all nodes
  lean_vector<gang_here> gangs{};

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
  std::uint64_t seen = 0;            // the number of changes that it shows
  std::uint64_t known = 0;           // the names existed at this number of removed nodes
  std::vector<std::string> names{};  // of filter.nodes, ascending
  capacity_index<ragged_tree> free;
  capacity_index<ragged_tree> whole;
  lean_vector<resources> hosts{};
  lean_vector<resources> whole_hosts{};
  lean_vector<unsigned char> members{};
  std::uint32_t num_members = 0;
  std::uint64_t bytes = 0;  // of memory, about

  node_view(node_filter of, const ragged_tree& tree, std::uint32_t max_free)
      : filter(std::move(of)),
        key(hash_of(filter)),
        names(sorted_names(filter)),
        free(tree, 0, max_free),
        whole(tree, 0, max_free),
        hosts(free.num_nodes()),
        whole_hosts(free.num_nodes()),
        members(free.num_nodes()),
        bytes(free.num_nodes() * (std::uint64_t{50} + max_free) + names.size() * 64) {}
  [[nodiscard]] static std::uint64_t hash_of(const node_filter& filter) noexcept {
    digest d;
    for (const auto* texts : {&filter.labels, &filter.models, &filter.tolerations}) {
      d.add(texts->size());
      for (const std::string& text : *texts) d.add(text);
    }
    return d.add(filter.nodes.hash()).value();
  }
  [[nodiscard]] bool accepts(const gang_cluster::node& n) const {
    return tolerates(filter, n.taints) && accepts_but_taints(filter, names, n);
  }
  // The names that a filter lists, ascending.
  [[nodiscard]] static std::vector<std::string> sorted_names(const node_filter& filter) {
    std::vector<std::string> names(filter.nodes.names().begin(), filter.nodes.names().end());
    merge_sort(names);
    return names;
  }
  // Whether a filter with these sorted_names() accepts the node if taints do not count.
  [[nodiscard]] static bool accepts_but_taints(const node_filter& filter,
                                               const std::vector<std::string>& names,
                                               const gang_cluster::node& n) {
    for (const std::string& label : filter.labels)
      if (!has_label(n, label)) return false;
    return (filter.models.empty() || has(filter.models, n.model)) &&
           (names.empty() || std::binary_search(names.begin(), names.end(), n.name));
  }
  // Whether the node has the label of a filter: "key=value", or "key" for any value.
  [[nodiscard]] static bool has_label(const gang_cluster::node& n, const std::string& label) {
    const bool any_value = label.find('=') == std::string::npos;
    for (const std::string& l : n.labels)
      if (l == label || (any_value && std::string_view(l).substr(0, l.find('=')) == label))
        return true;
    return false;
  }
  // Whether a filter tolerates all these taints of a node.
  [[nodiscard]] static bool tolerates(const node_filter& filter,
                                      const std::vector<std::string>& taints) {
    for (const std::string& taint : taints)
      if (!has(filter.tolerations, taint)) return false;
    return true;
  }
  [[nodiscard]] static bool has(const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  // The use or the health of a node has changed.
  void update_use(const used_node& n) {
    if (members[n.position] == 0) return;
    free.set(n.position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));
    hosts[n.position] = n.free_host();
  }
};

// Keeps a view of each node filter. A view is brought up to date when it is used: a list has the
// nodes whose use has changed. If there are too many filters, the one that was not used for the
// longest time is dropped.
// Cost: of a change O(1). view: O(filters), and that of the changes since its last use; O(nodes) if
//       the filter is new, the order of nodes was made anew, or if the nodes that have changed
//       since are more than a quarter of all, and 1,024.
class filter_views {
 public:
  // So many filters are kept, however much memory they take.
  static constexpr std::uint32_t min_filters = 32;
  // The memory of the views of a scheduler.
  static constexpr std::uint64_t default_bytes = std::uint64_t{1} << 30;
  // What views show.
  struct source {
    const ragged_tree& tree;
    std::span<const std::uint32_t> order;  // the id of the node at each position
    const std::vector<used_node>& nodes;   // by id
    std::uint32_t max_free = 1;            // the most GPUs of a node, at least 1
  };

  // most_bytes: more than min_filters are kept only if their views take less memory.
  explicit filter_views(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}
  // A copy has no views.
  filter_views(const filter_views& other)
      : most_bytes_(other.most_bytes_), most_changes_(other.most_changes_) {}
  filter_views& operator=(const filter_views&) = delete;

  // The views; they may show an earlier state.
  [[nodiscard]] std::span<const std::unique_ptr<node_view>> all() const noexcept { return views_; }
  // The view of a filter; null if there is none. It may show an earlier state.
  [[nodiscard]] node_view* find(const node_filter& filter) {
    const std::size_t i = index_of(filter, node_view::hash_of(filter));
    return i < views_.size() ? views_[i].get() : nullptr;
  }
  // The view of a filter, made if it is new. A reference is valid until the next call.
  [[nodiscard]] node_view& view(const node_filter& filter, const source& from) {
    const std::uint64_t key = node_view::hash_of(filter);
    std::size_t i = index_of(filter, key);
    std::uint64_t known = 0;
    if (i == views_.size()) {
      views_.emplace_back();
      used_.push_back({key, 0});
    } else {
      bytes_ -= views_[i]->bytes;
      known = views_[i]->known;
    }
    if (views_[i] == nullptr || views_[i]->seen < dropped_) {
      views_[i] = made(filter, from);
      views_[i]->known = known;
    } else {
      views_[i]->filter.nodes = filter.nodes;  // so that the next comparison with this list is fast
      take_over(*views_[i], from);
    }
    bytes_ += views_[i]->bytes;
    used_[i].last = ++uses_;
    while (is_full()) {
      const auto oldest = static_cast<std::size_t>(
          std::min_element(used_.begin(), used_.end(),
                           [](const use& a, const use& b) { return a.last < b.last; }) -
          used_.begin());
      bytes_ -= views_[oldest]->bytes;
      views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(oldest));
      std::copy(used_.begin() + oldest + 1, used_.end(), used_.begin() + oldest);
      used_.pop_back();
      if (oldest < i) --i;
    }
    return *views_[i];
  }
  // Takes over what has changed since the view was used last. Returns whether all of it is known;
  // if not, its next use makes it anew.
  bool take_over(node_view& v, const source& from) const {
    if (v.seen < dropped_) return false;
    for (auto i = static_cast<std::size_t>(v.seen - dropped_); i < changes_.size(); ++i)
      v.update_use(from.nodes[changes_[i]]);
    v.seen = dropped_ + changes_.size();
    return true;
  }

  // The use or the health of a node has changed.
  void change_use(std::uint32_t id) {
    if (changes_.size() >= most_changes_) forget_changes();
    changes_.push_back(id);
  }
  // The order of so many nodes was made anew, or what they have when idle is something else.
  void change_nodes(std::size_t nodes) {
    forget_changes();
    ++dropped_;  // no view shows this
    most_changes_ = nodes / 4 + 1'024;
  }

 private:
  // What is read of a view to find it, or to drop it.
  struct use {
    std::uint64_t key = 0;   // hash of the filter
    std::uint64_t last = 0;  // the number of its last use
  };

  // The index of the view of a filter; the number of views if there is none.
  [[nodiscard]] std::size_t index_of(const node_filter& filter, std::uint64_t key) const {
    std::size_t i = 0;
    while (i < used_.size() && !(used_[i].key == key && views_[i]->filter == filter)) ++i;
    return i;
  }
  [[nodiscard]] std::unique_ptr<node_view> made(const node_filter& filter,
                                                const source& from) const {
    auto to = std::make_unique<node_view>(filter, from.tree, from.max_free);
    node_view& v = *to;
    std::vector<std::uint32_t> free(from.order.size());
    std::vector<std::uint32_t> whole(from.order.size());
    for (std::uint32_t p = 0; p < from.order.size(); ++p) {
      if (from.order[p] == used_node::none) continue;
      const used_node& n = from.nodes[from.order[p]];
      if (!v.accepts(n.shape)) continue;
      ++v.num_members;
      v.members[p] = 1;
      free[p] = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
      whole[p] = n.shape.gpus;
      v.hosts[p] = n.free_host();
      v.whole_hosts[p] = n.shape.host;
    }
    v.free.assign(free);
    v.whole.assign(whole);
    v.seen = dropped_ + changes_.size();
    return to;
  }
  void forget_changes() {
    dropped_ += changes_.size();
    changes_.clear();
  }
  [[nodiscard]] bool is_full() const noexcept {
    return views_.size() > gang_scheduler_types::max_filters ||
           (views_.size() > min_filters && bytes_ > most_bytes_);
  }

  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;  // of all views
  std::vector<std::unique_ptr<node_view>> views_;
  lean_vector<use> used_;  // of each view
  std::uint64_t uses_ = 0;
  std::vector<std::uint32_t> changes_;  // ids of nodes
  std::size_t most_changes_ = 0;
  std::uint64_t dropped_ = 0;  // changes before the first one in the list
};

}  // namespace detail
APIARY_NAMESPACE_END
