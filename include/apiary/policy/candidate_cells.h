// apiary/policy/candidate_cells.h - the cells of a level that no count refuses, the best first.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/room_index.h>
#include <apiary/core/config.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/model/tree.h>
#include <apiary/policy/cell_parts.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/room_count.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The units of a gang as tasks of so many leaves.
struct unit_sizes {
  std::vector<gang_member> members{};  // a kind each
  std::uint32_t largest = 0;
  std::uint64_t leaves = 0;  // of the whole gang, as the others
  std::uint64_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  bool ruled = false;     // more than leaves count
  bool dividing = false;  // the sizes divide one another

  void assign(const gang_units& units, bool with_hosts) {
    *this = {};
    bool without_leaves = false;
    for (std::size_t u = 0; u < units.size(); ++u) {
      members.push_back({.tasks = units[u].tasks, .leaves = units[u].leaves});
      largest = std::max(largest, units[u].leaves);
      leaves += std::uint64_t{units[u].tasks} * units[u].leaves;
      if (with_hosts) {
        cpu_milli += units[u].tasks * units[u].cpu_milli;
        memory_mib += units[u].tasks * units[u].memory_mib;
      }
      without_leaves = without_leaves || units[u].leaves == 0;
    }
    ruled = units.lowest_rule() != any_level || without_leaves || (units.hosted() && with_hosts);
    dividing = true;
    for (const gang_member& a : members)
      for (const gang_member& b : members)
        dividing = dividing && a.leaves > 0 && b.leaves > 0 &&
                   (a.leaves % b.leaves == 0 || b.leaves % a.leaves == 0);
  }
  // Whether a node has CPU and memory for all of it.
  [[nodiscard]] bool fit_host(std::span<const resources> hosts, std::uint32_t node) const noexcept {
    return hosts.empty() ||
           (cpu_milli <= hosts[node].cpu_milli && memory_mib <= hosts[node].memory_mib);
  }
};

// The cells of a level above the nodes that have the pieces for all sizes of a gang and, under
// rules, room for each kind alone. In the order of the objective: least free leaves first, or
// fewest nodes that the gang needs, the emptiest counted first.
//
// Cost: assign O(cells of the level * sizes), under rules as room_count for each kind; next O(log).
template <CellTree Tree>
class candidate_cells {
 public:
  // All but the level stays as it is while cells are asked for.
  void assign(const room_index<Tree>& rooms, const gang_units& units, const unit_sizes& sizes,
              std::span<const resources> hosts, level_t l, gang_objective objective) {
    APIARY_ASSERT(l > rooms.node_level());
    possible_.assign(rooms.num_cells(l), 1);
    for (std::uint32_t t = 1; t <= sizes.largest && t <= rooms.most(); ++t) {
      const auto same = [&](const gang_member& m) { return m.leaves == t; };
      if (sizes.dividing && std::none_of(sizes.members.begin(), sizes.members.end(), same))
        continue;
      std::uint64_t needed = 0;
      for (const gang_member& m : sizes.members) needed += std::uint64_t{m.tasks} * (m.leaves / t);
      const std::span<const std::uint32_t> pieces = rooms.pieces(l, t);
      for (std::size_t c = 0; c < pieces.size(); ++c)
        possible_[c] = static_cast<unsigned char>(possible_[c] & (pieces[c] >= needed ? 1 : 0));
    }
    counts_.clear();
    for (std::size_t u = 0; sizes.ruled && u < units.size(); ++u) {
      counts_.emplace_back(rooms, units, hosts);
      const std::span<const std::uint32_t> room = counts_[u].count(u, l);
      for (std::size_t c = 0; c < room.size(); ++c)
        if (room[c] < units[u].tasks) possible_[c] = 0;
    }
    heap_.clear();
    for (std::uint32_t c = 0; c < possible_.size(); ++c)
      if (possible_[c] != 0) heap_.emplace_back(rank(rooms, units, sizes, l, c, objective), c);
    std::make_heap(heap_.begin(), heap_.end(), later);
  }

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  // Takes out the best one left, of equals the first. Requires: !empty().
  std::uint32_t next() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const std::uint32_t cell = heap_.back().second;
    heap_.pop_back();
    return cell;
  }
  // Room for kind u. Requires: rules.
  [[nodiscard]] const room_count<Tree>& count(std::size_t u) const noexcept { return counts_[u]; }

 private:
  using ranked_cell = std::pair<std::uint64_t, std::uint32_t>;
  static bool later(const ranked_cell& a, const ranked_cell& b) noexcept { return a > b; }
  [[nodiscard]] static std::uint64_t rank(const room_index<Tree>& rooms, const gang_units& units,
                                          const unit_sizes& sizes, level_t l, std::uint32_t c,
                                          gang_objective objective) {
    const std::uint64_t free = rooms.free(l, c);
    if (objective == gang_objective::whole_cells) return free;
    const bool one = units.size() == 1 && units[0].leaves > 0;
    const std::span<const std::uint32_t> nodes = rooms.histogram(l, c);
    std::uint64_t left = one ? units[0].tasks : sizes.leaves;
    std::uint64_t used = 0;
    for (std::size_t f = nodes.size(); f-- > 1 && left > 0;) {
      const std::uint64_t each = one ? units.bound(0, rooms.node_level(), f / units[0].leaves) : f;
      if (each == 0) break;
      const std::uint64_t n = std::min<std::uint64_t>(nodes[f], (left + each - 1) / each);
      used += n;
      left -= std::min(left, n * each);
    }
    return used << 32 | free;
  }

  std::vector<unsigned char> possible_;
  std::vector<room_count<Tree>> counts_;  // of each kind
  std::vector<ranked_cell> heap_;         // rank and cell
};

APIARY_NAMESPACE_END
