// apiary/gang_scheduler/detail/cluster_excerpt.h - the free capacity of a few cells, as a cluster of its own.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A copy of the free capacity of some cells of one level. If a gang must be in one cell of that level
// or of a lower one, the searches give the same answer for these cells here as in the cluster: the
// levels have the same numbers, and each higher level has one cell.
// Cost: begin O(nodes of the cells * GPUs of a node); to_local and to_global O(log cells).
class cluster_excerpt {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // cells: their positions in level l of the tree of `from`, ascending. hosts: CPU and memory of
  // each node, or empty.
  void begin(const capacity_index<ragged_tree>& from, std::span<const resources> hosts, level_t l,
             std::span<const std::uint32_t> cells) {
    const ragged_tree& tree = from.tree();
    ranges_.clear();
    std::uint32_t nodes = 0;
    for (const std::uint32_t c : cells) {
      const id_range<cell_id> inside = from.nodes(l, c);
      ranges_.push_back({inside.first.value, inside.last.value, nodes});
      nodes += inside.size();
    }
    fans_.assign(tree.num_levels(), {1});
    fans_[tree.num_levels() - 1 - l] = {static_cast<std::uint32_t>(cells.size())};
    row_.assign(cells.begin(), cells.end());
    for (level_t above = l; above > 0; --above) {
      std::vector<std::uint32_t>& fans = fans_[tree.num_levels() - above];
      fans.clear();
      below_.clear();
      for (const std::uint32_t c : row_) {
        const id_range<cell_id> inside = from.inside(above, c, above - 1);
        fans.push_back(inside.size());
        for (const cell_id i : inside) below_.push_back(i.value);
      }
      row_.swap(below_);
    }
    capacities_.emplace(ragged_tree(fans_), level_t{0}, from.max_free());
    hosts_.clear();
    for (const range& r : ranges_)
      for (std::uint32_t p = r.first; p < r.last; ++p) {
        capacities_->set(r.local + (p - r.first), from.free(p));
        if (!hosts.empty()) hosts_.push_back(hosts[p]);
      }
  }
  [[nodiscard]] capacity_index<ragged_tree>& capacities() noexcept { return *capacities_; }
  // Empty if CPU and memory do not count.
  [[nodiscard]] std::span<resources> hosts() noexcept { return hosts_; }
  // The number here of the node at a position of the cluster; none if it is not in the cells.
  [[nodiscard]] std::uint32_t to_local(std::uint32_t position) const noexcept {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), position,
                         [](std::uint32_t p, const range& r) { return p < r.first; });
    if (after == ranges_.begin() || position >= (after - 1)->last) return none;
    return (after - 1)->local + (position - (after - 1)->first);
  }
  // The position in the cluster of a node here.
  [[nodiscard]] std::uint32_t to_global(std::uint32_t node) const noexcept {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), node,
                         [](std::uint32_t n, const range& r) { return n < r.local; });
    return (after - 1)->first + (node - (after - 1)->local);
  }

 private:
  struct range {
    std::uint32_t first = 0;  // positions of the nodes of a cell
    std::uint32_t last = 0;
    std::uint32_t local = 0;  // the number of its first node here
  };

  std::vector<range> ranges_;
  std::vector<std::vector<std::uint32_t>> fans_;
  std::vector<std::uint32_t> row_;
  std::vector<std::uint32_t> below_;
  std::optional<capacity_index<ragged_tree>> capacities_;
  std::vector<resources> hosts_;
};

}  // namespace detail
APIARY_NAMESPACE_END
