// apiary/preempt/detail/unit_excerpt.h - one cell with its running gangs, as a cluster of its own.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/group_capacity.h>
#include <apiary/preempt/victim_set.h>

#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Copies one cell with what its nodes have free and with its running gangs, so that a search for the
// victims of some tasks reads this cell alone. A gang has there only its allocations in the cell, and
// its cost in full. Gangs that are evicted or protected are left out.
// Cost: O(nodes of the cell), and O(log) for each allocation there.
class unit_excerpt {
 public:
  // Cell c at height h, which shall hold so many tasks. tally: the budgets of all candidates.
  void begin(const group_capacity& cells, std::size_t h, std::uint32_t c, std::uint32_t tasks,
             std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> freed,
             disruption_tally& tally) {
    const auto [first, last] = cells.levels().nodes(h, c);
    copy_levels(cells.levels(), h, c, tasks);
    free_.clear();
    hosts_.clear();
    by_candidate_.clear();
    for (std::uint32_t n = first; n < last; ++n) {
      free_.push_back(cells.free(n));
      if (cells.hosted()) hosts_.push_back(cells.host(n));
      for (const group_capacity::item& i : cells.on(n))
        if (cells.runs(i.candidate)) by_candidate_.push_back({i.candidate, i.allocation});
    }
    keyed_number::sort(by_candidate_);
    ids_.clear();
    candidates_.clear();
    allocations_.clear();
    freed_.clear();
    for (const keyed_number& k : by_candidate_) {
      const auto j = static_cast<std::uint32_t>(k.key);
      const auto now = static_cast<std::uint32_t>(allocations_.size());
      if (ids_.empty() || ids_.back() != j) {
        ids_.push_back(j);
        candidates_.push_back({candidates[j].cost, now, now});
      }
      allocations_.push_back({allocations[k.number].node - first, allocations[k.number].gpus});
      if (cells.hosted()) freed_.push_back(freed[k.number]);
      ++candidates_.back().last;
    }
    tally_.begin(tally.subset(ids_), candidates_, allocations_);
  }
  [[nodiscard]] const eviction_levels& levels() const noexcept { return levels_; }
  [[nodiscard]] std::span<const std::uint32_t> free() const noexcept { return free_; }
  [[nodiscard]] std::span<const resources> hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::span<const eviction_candidate> candidates() const noexcept {
    return candidates_;
  }
  [[nodiscard]] std::span<const gpus_on_node> allocations() const noexcept { return allocations_; }
  [[nodiscard]] std::span<const resources> freed() const noexcept { return freed_; }
  [[nodiscard]] disruption_tally& tally() noexcept { return tally_; }
  // The candidates in the numbers of begin(), ascending.
  [[nodiscard]] std::span<const std::uint32_t> ids() const noexcept { return ids_; }
  // Nodes, candidates and allocations.
  [[nodiscard]] std::uint64_t entries() const noexcept {
    return free_.size() + candidates_.size() + allocations_.size();
  }

 private:
  void copy_levels(const eviction_levels& all, std::size_t h, std::uint32_t c,
                   std::uint32_t tasks) {
    levels_.levels.resize(h + 1);
    levels_.task = all.task;
    levels_.tasks = tasks;
    std::uint32_t first = c;
    std::uint32_t last = c + 1;
    std::uint32_t first_above = 0;
    for (std::size_t i = h + 1; i-- > 0;) {
      const eviction_levels::level& from = all.levels[i];
      eviction_levels::level& to = levels_.levels[i];
      to.step = from.step;
      to.most = from.most;
      to.above.clear();
      for (std::uint32_t k = first; k < last; ++k)
        to.above.push_back(i == h ? 0 : from.above[k] - first_above);
      to.first.clear();
      if (i == 0) return;
      for (std::uint32_t k = first; k <= last; ++k)
        to.first.push_back(from.first[k] - from.first[first]);
      first_above = first;
      last = from.first[last];
      first = from.first[first];
    }
  }

  eviction_levels levels_;
  lean_vector<std::uint32_t> free_;
  lean_vector<resources> hosts_;
  lean_vector<keyed_number> by_candidate_;  // allocations
  lean_vector<std::uint32_t> ids_;
  lean_vector<eviction_candidate> candidates_;
  lean_vector<gpus_on_node> allocations_;
  lean_vector<resources> freed_;
  disruption_tally tally_;
};

}  // namespace detail
APIARY_NAMESPACE_END
