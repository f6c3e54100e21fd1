// apiary/policy/remedy.h - what would let a gang fit: nodes to be freed or healed.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/alloc/room_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/resources.h>
#include <apiary/model/tree.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/ruled_fit.h>
#include <apiary/policy/what_if.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches nodes that would let a gang fit if they were wholly free: emptied, or healed. In each of
// the cells that the gang may have that are closest to enough pieces of its largest tasks, nodes are
// freed, those first that give a piece for the fewest leaves, until the gang fits; then those that
// turn out not to be needed are given back. The answer is the cell where the fewest leaves are
// freed. None of its nodes can be spared, but cheaper sets may exist.
//
// All is tried on the rooms themselves and taken back.
// Requires: CPU and memory count as they are; capacity: leaves of each node.
// Invalid:  a capacity below what the node has free or above rooms.most(), or not one for each
//           node, aborts (APIARY_VERIFY).
// Cost:     O(nodes); for each cell tried O(nodes of the cell * log) and ruled_fit for each node
//           freed.
// Example:  examples/what_would_it_take.cpp
template <CellTree Tree>
class remedy_search {
 public:
  explicit remedy_search(std::uint32_t cells_tried = 8, std::uint64_t budget = 100'000) noexcept
      : cells_tried_(cells_tried), fit_(budget) {}

  // Whether there is a remedy in the cells tried; none is needed when the gang fits.
  bool operator()(room_index<Tree>& rooms, const gang_rules& gang,
                  std::span<const std::uint32_t> capacity, std::span<const resources> hosts = {}) {
    APIARY_VERIFY(capacity.size() == rooms.num_nodes());
    for (std::uint32_t n = 0; n < capacity.size(); ++n)
      APIARY_VERIFY(rooms.free(n) <= capacity[n] && capacity[n] <= rooms.most());
    nodes_.clear();
    leaves_ = 0;
    if (fit_(rooms, gang, hosts) == fit_verdict::fits) return true;
    bool found = false;
    const level_t l = gang.required == any_level ? rooms.top() : gang.required;
    for (const std::uint32_t c : closest(rooms, gang, l)) {
      if (!free_in(rooms, gang, l, c, capacity, hosts)) continue;
      std::uint64_t leaves = 0;
      for (const std::uint32_t n : freed_) leaves += capacity[n] - rooms.free(n);
      if (found && leaves >= leaves_) continue;
      found = true;
      leaves_ = leaves;
      cell_ = c;
      nodes_ = freed_;
    }
    std::sort(nodes_.begin(), nodes_.end());
    return found;
  }

  // After a yes: the nodes to free, ascending; the leaves on them that are not free; the cell of the
  // required level they are in, by its place.
  [[nodiscard]] std::span<const std::uint32_t> nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::uint64_t leaves() const noexcept { return leaves_; }
  [[nodiscard]] std::uint32_t cell() const noexcept { return cell_; }

 private:
  // The cells with most pieces of the largest tasks, at most cells_tried.
  [[nodiscard]] std::vector<std::uint32_t> closest(const room_index<Tree>& rooms,
                                                   const gang_rules& gang, level_t l) {
    size_ = 1;
    for (const ruled_member& m : gang.members) size_ = std::max(size_, m.leaves);
    std::vector<std::uint32_t> cells(rooms.num_cells(l));
    for (std::uint32_t c = 0; c < cells.size(); ++c) cells[c] = c;
    const auto pieces = [&](std::uint32_t c) -> std::uint32_t {
      if (l == rooms.node_level()) return rooms.free(c);
      return size_ > rooms.most() ? 0 : rooms.pieces(l, size_)[c];
    };
    std::stable_sort(cells.begin(), cells.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return pieces(a) > pieces(b); });
    if (cells.size() > cells_tried_) cells.resize(cells_tried_);
    return cells;
  }

  bool free_in(room_index<Tree>& rooms, const gang_rules& gang, level_t l, std::uint32_t c,
               std::span<const std::uint32_t> capacity, std::span<const resources> hosts) {
    // By leaves freed for each piece gained; what gains none comes last.
    using rank = std::pair<std::uint32_t, std::uint32_t>;
    std::vector<rank> order;
    for (const cell_id i : rooms.nodes(l, c)) {
      const std::uint32_t n = i.value;
      const std::uint32_t more = capacity[n] - rooms.free(n);
      if (more == 0) continue;
      const std::uint32_t gain = capacity[n] / size_ - rooms.free(n) / size_;
      order.emplace_back(gain == 0 ? 1'000'000 + more : more * 1'000 / gain, n);
    }
    std::sort(order.begin(), order.end());
    freed_.clear();
    std::vector<std::uint32_t> before;
    transaction tx(log_);
    bool fits = false;
    for (const rank& r : order) {
      freed_.push_back(r.second);
      before.push_back(rooms.free(r.second));
      set(tx, rooms, r.second, capacity[r.second]);
      fits = fit_(rooms, gang, hosts) == fit_verdict::fits;
      if (fits) break;
    }
    if (!fits) return false;
    for (std::size_t i = freed_.size(); i-- > 0;) {
      const std::uint32_t n = freed_[i];
      transaction back(log_);
      set(back, rooms, n, before[i]);
      if (fit_(rooms, gang, hosts) != fit_verdict::fits) continue;
      back.commit();
      freed_.erase(freed_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return true;
  }

  std::uint32_t cells_tried_;
  ruled_fit<Tree> fit_;
  journal log_;
  std::uint32_t size_ = 1;  // leaves of the largest tasks
  std::vector<std::uint32_t> freed_;
  std::vector<std::uint32_t> nodes_;
  std::uint64_t leaves_ = 0;
  std::uint32_t cell_ = 0;
};

APIARY_NAMESPACE_END
