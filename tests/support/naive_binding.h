// apiary/tests/support/naive_binding.h - the fewest gangs that must end for some virtual cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/hived.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace apiary_test {

// Tries every binding of the cells that a preempting gang has bound, for the same virtual leaves.
// A cell counts as bound before if it has a leaf that another gang of the tenant has, or of a
// victim of the tenant.
class naive_binding {
 public:
  // `after`: the scheduler in which the gang preempts. Its hardware is healthy.
  naive_binding(const apiary::hived& after, const apiary::gang_record& gang)
      : c_(gang.cluster),
        cluster_(after.cells().cluster(gang.cluster)),
        chain_(after.cells().chain(cluster_.chain())),
        free_(chain_.cells()) {
    const apiary::detail::quota_tree& tree = cluster_.tree();
    for (const apiary::chain_leaf& l : gang.leaves) {
      const apiary::detail::leaf_holders h = chain_.holders(l.leaf);
      if (h.user.valid()) (h.guaranteed ? own_ : guests_).insert(h.user.value);
      if (h.user.valid() && h.guaranteed) continue;
      apiary::cell_id v = chain_.owner(l.leaf).cell;
      for (apiary::level_t k = 0; v.valid(); v = tree.parent(v, k++)) ++wanted_[v.value];
    }
    const bool pinned = after.cells().is_pinned(gang.cluster);
    for (auto& [id, leaves] : wanted_) {
      const apiary::cell_id v(id);
      const apiary::level_t l = tree.level(v);
      const bool root = !tree.parent(v, l).valid();
      if (l > 0 && cluster_.active(v) > leaves) continue;
      if (root && pinned) continue;
      moved_.insert(id);
      if (root) free_.release(cluster_.image(v));
    }
    for (const std::uint32_t id : moved_) {
      const apiary::cell_id v(id);
      const apiary::cell_id above = tree.parent(v, tree.level(v));
      if (!above.valid() || !moved_.contains(above.value)) add(v, -1);
    }
    images_.resize(cells_.size());
    best_ = guests_.size() + 1;
    try_from(0);
  }
  [[nodiscard]] std::size_t own() const noexcept { return own_.size(); }
  [[nodiscard]] std::size_t guests() const noexcept { return guests_.size(); }
  // The least number of guests that must end; at most guests(), if it is found.
  [[nodiscard]] std::size_t least() const noexcept { return best_; }
  [[nodiscard]] bool complete() const noexcept { return steps_ > 0; }

 private:
  struct moved_cell {
    apiary::cell_id cell{};
    apiary::level_t level = 0;
    int parent = -1;  // in cells_
    bool full = false;
  };
  void add(apiary::cell_id v, int parent) {
    const apiary::detail::quota_tree& tree = cluster_.tree();
    const apiary::level_t l = tree.level(v);
    const bool full = wanted_[v.value] == tree.leaves_per_cell(l);
    cells_.push_back({v, l, parent, full});
    if (full) return;
    const int at = static_cast<int>(cells_.size()) - 1;
    for (const apiary::cell_id child : tree.children(v, l))
      if (wanted_.contains(child.value)) add(child, at);
  }
  // Whether a cell of the gang or of another one that stays where it is has p.
  [[nodiscard]] bool is_taken(apiary::cell_id p, std::size_t before) const {
    const apiary::detail::virtual_cell owner = chain_.owner(p);
    if (owner.cell.valid() && (owner.cluster != c_ || !moved_.contains(owner.cell.value)))
      return true;
    const auto end = images_.begin() + static_cast<std::ptrdiff_t>(before);
    return std::find(images_.begin(), end, p) != end;
  }
  void try_from(std::size_t i) {
    if (ended_.size() >= best_ || steps_ == 0) return;
    --steps_;
    if (i == cells_.size()) {
      best_ = ended_.size();
      return;
    }
    const moved_cell& cell = cells_[i];
    const apiary::cell_id above = cluster_.tree().parent(cell.cell, cell.level);
    if (!above.valid()) {
      for (const apiary::cell_id p : chain_.tree().cells(cell.level)) {
        if (!free_.allocate_at(p)) continue;
        try_at(i, p);
        free_.release(p);
      }
      return;
    }
    const apiary::cell_id in =
        cell.parent < 0 ? cluster_.image(above) : images_[std::size_t(cell.parent)];
    // Full cells beside one another are equal: they take cells in order.
    const bool twin = i > 0 && cell.full && cells_[i - 1].full &&
                      cells_[i - 1].level == cell.level &&
                      cluster_.tree().parent(cells_[i - 1].cell, cell.level) == above;
    for (const apiary::cell_id p : chain_.tree().children(in, cell.level + 1)) {
      if (is_taken(p, i) || (twin && p < images_[i - 1])) continue;
      try_at(i, p);
    }
  }
  void try_at(std::size_t i, apiary::cell_id p) {
    images_[i] = p;
    std::vector<std::uint32_t> added;
    if (cells_[i].full) {
      for (const apiary::cell_id leaf : chain_.tree().descendants(p, 0)) {
        const apiary::gang_slot user = chain_.holders(leaf).user;
        if (user.valid() && !own_.contains(user.value) && ended_.insert(user.value).second)
          added.push_back(user.value);
      }
    }
    try_from(i + 1);
    for (const std::uint32_t s : added) ended_.erase(s);
  }

  apiary::vc_chain_id c_;
  const apiary::detail::virtual_cluster& cluster_;
  const apiary::detail::physical_chain& chain_;
  apiary::reserving_buddy_allocator free_;
  std::set<std::uint32_t> own_, guests_, ended_;
  std::map<std::uint32_t, std::uint32_t> wanted_;  // virtual cells: leaves of the gang that are new
  std::set<std::uint32_t> moved_;                  // virtual cells that may be bound elsewhere
  std::vector<moved_cell> cells_;
  std::vector<apiary::cell_id> images_;
  std::size_t best_ = 0;
  std::size_t steps_ = 300'000;
};

}  // namespace apiary_test
