// apiary/gang_scheduler/detail/filter_views.h - the views of the node filters that were used last.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Keeps a view of each node filter. The view of the default filter is always up to date. The others
// are brought up to date when they are used: a list has the positions that have changed. If there are
// too many filters, the one that was not used for the longest time is dropped.
// Cost: of a change: that of the default view, and O(1) amortized. view: O(1), and that of the changes since its
//       last use; O(nodes) if the filter is new, the layout was made anew, or more than a quarter of
//       the positions, and 1,024, have changed.
class filter_views {
 public:
  // So many filters are kept, however much memory they take.
  static constexpr std::uint32_t min_filters = 32;
  // What views show.
  struct source {
    const cluster_layout& layout;
    const std::vector<used_node>& nodes;  // by id
    std::uint32_t max_free = 1;           // the most GPUs of a node, at least 1
  };

  // most_bytes: more than min_filters are kept only if their views take less memory.
  explicit filter_views(std::uint64_t most_bytes = std::uint64_t{1} << 30)
      : most_bytes_(most_bytes) {}

  // Makes the view of the default filter. It is the first call.
  void begin(const source& from) {
    views_.push_back(made({}, from));
    links_.emplace_back();
  }
  // The view of the default filter, then those of other filters, which may show an earlier state.
  [[nodiscard]] std::span<const node_view> all() const noexcept { return views_; }
  // The view of a filter; null if there is none. It may show an earlier state.
  [[nodiscard]] node_view* find(const node_filter& filter) {
    const std::uint32_t i = index_of(filter);
    return i == 0 ? nullptr : &views_[i];
  }
  // The view of a filter, made if it is new. A reference is valid until the next call.
  [[nodiscard]] node_view& view(const node_filter& filter, const source& from) {
    if (filter == node_filter{}) return views_[0];
    std::uint32_t i = index_of(filter);
    if (i == 0) {
      i = static_cast<std::uint32_t>(views_.size());
      views_.push_back(made(filter, from));
      links_.emplace_back();
      by_key_.emplace(views_[i].key, i);
      bytes_ += views_[i].bytes;
    } else {
      unlink(i);
      views_[i].filter.nodes = filter.nodes;  // so that the next comparison with this list is fast
      bytes_ -= views_[i].bytes;
      bring_up_to_date(views_[i], from);
      bytes_ += views_[i].bytes;
    }
    link(i);
    while (is_full()) drop(links_[0].newer);
    return views_[links_[0].older];
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
  // The filters in a ring, by their last use: after [0] comes the one that was used last.
  struct neighbors {
    std::uint32_t newer = 0;
    std::uint32_t older = 0;
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
  [[nodiscard]] std::uint32_t index_of(const node_filter& filter) const {
    const auto [first, last] = by_key_.equal_range(node_view::hash_of(filter));
    for (auto at = first; at != last; ++at)
      if (views_[at->second].filter == filter) return at->second;
    return 0;
  }
  [[nodiscard]] bool is_full() const noexcept {
    const std::size_t kept = views_.size() - 1;
    return kept > gang_scheduler_types::max_filters || (kept > min_filters && bytes_ > most_bytes_);
  }
  void link(std::uint32_t i) noexcept {
    const std::uint32_t second = links_[0].older;
    links_[i] = {0, second};
    links_[0].older = links_[second].newer = i;
  }
  void unlink(std::uint32_t i) noexcept {
    links_[links_[i].newer].older = links_[i].older;
    links_[links_[i].older].newer = links_[i].newer;
  }
  [[nodiscard]] auto entry_of(std::uint32_t i) {
    auto at = by_key_.equal_range(views_[i].key).first;
    while (at->second != i) ++at;
    return at;
  }
  // Drops the view i. The last view gets its index.
  void drop(std::uint32_t i) {
    const auto last = static_cast<std::uint32_t>(views_.size() - 1);
    unlink(i);
    by_key_.erase(entry_of(i));
    bytes_ -= views_[i].bytes;
    if (i != last) {
      entry_of(last)->second = i;
      views_[i] = std::move(views_[last]);
      links_[i] = links_[last];
      links_[links_[i].newer].older = links_[links_[i].older].newer = i;
    }
    views_.pop_back();
    links_.pop_back();
  }

  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;       // of all views but [0]
  std::vector<node_view> views_;  // [0]: of the filter that accepts nodes without taints
  std::vector<neighbors> links_;  // by index of views_
  std::unordered_multimap<std::uint64_t, std::uint32_t> by_key_;  // but [0]
  std::uint64_t layout_ = 0;                                      // how often it was made anew
  std::vector<std::uint32_t> changes_;  // a position times 2; and one if another node is there
  std::uint64_t dropped_ = 0;           // changes before the first one in the list
};

}  // namespace detail
APIARY_NAMESPACE_END
