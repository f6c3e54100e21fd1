// apiary/preempt/detail/group_capacity.h - what cells hold of one group of tasks while gangs are evicted.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/node_evictions.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Keeps the capacity of each cell for the tasks of one group while gangs are evicted.
// Requires: as victim_search.
// Cost:     begin O(nodes + allocations + candidates); set_evicted O(allocations of the gang *
//           levels).
class group_capacity {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  void begin(const eviction_levels& levels, std::span<const std::uint32_t> free,
             std::span<const resources> hosts, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> freed) {
    levels_ = &levels;
    hosted_ = !hosts.empty() && (levels.task.cpu_milli > 0 || levels.task.memory_mib > 0);
    candidates_ = candidates;
    allocations_ = allocations;
    freed_ = freed;
    free_.assign(free);
    hosts_.assign(hosts.data(), hosts.data() + (hosted_ ? hosts.size() : 0));
    task_ = levels.task;
    if (!hosted_) task_.cpu_milli = task_.memory_mib = 0;
    for (std::uint32_t f = 0; f < of_gpus_.size(); ++f)
      of_gpus_[f] = levels.bound(0, node_amounts{f, 0, 0}.holds(task_, levels.levels[0].most));
    states_.assign(candidates.size(), running);
    work_ = 0;
    list_by_node();
    sum_capacities();
  }
  [[nodiscard]] std::uint32_t capacity(std::size_t h, std::uint32_t c) const noexcept {
    return levels_->bound(h, capacity_[h][c]);
  }
  // The same if the level of the cell itself had no limits.
  [[nodiscard]] std::uint64_t unlimited_capacity(std::size_t h, std::uint32_t c) const noexcept {
    return capacity_[h][c];
  }
  // The capacity of a root cell if all candidates were evicted.
  [[nodiscard]] std::uint32_t most_capacity(std::uint32_t root) const noexcept {
    return most_capacity_[root];
  }
  // The root cell of a node.
  [[nodiscard]] std::uint32_t root_of(std::uint32_t node) const noexcept {
    std::uint32_t c = node;
    for (std::size_t h = 0; h < levels_->root(); ++h) c = levels_->levels[h].above[c];
    return c;
  }
  // A gang that runs, is evicted, or must not be evicted.
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return states_[j] == gone; }
  void set_evicted(std::uint32_t j, bool to) {
    if (evicted(j) == to) return;
    states_[j] = to ? gone : running;
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
      const std::uint32_t n = allocations_[a].node;
      free_[n] = to ? free_[n] + allocations_[a].gpus : free_[n] - allocations_[a].gpus;
      if (hosted_) {
        if (to) {
          hosts_[n] += freed_[a];
        } else {
          hosts_[n] -= freed_[a];
        }
      }
      change(n);
    }
    work_ += candidates_[j].last - candidates_[j].first;
  }
  void set_protected(std::uint32_t j, bool to) noexcept { states_[j] = to ? kept : running; }
  // What a gang has on a node.
  struct item {
    std::uint32_t allocation = 0;
    std::uint32_t candidate = 0;
    std::uint32_t gpus = 0;
  };
  [[nodiscard]] std::span<const item> on(std::uint32_t node) const noexcept {
    return std::span(on_).subspan(first_on_[node], first_on_[node + 1] - first_on_[node]);
  }
  [[nodiscard]] std::uint32_t candidate_of(std::uint32_t a) const noexcept {
    return candidate_of_[a];
  }
  // The allocations of all candidates.
  [[nodiscard]] std::size_t num_allocations() const noexcept { return on_.size(); }

 protected:
  enum state : std::uint8_t { running, gone, kept };
  [[nodiscard]] node_amounts amounts(std::uint32_t n) const noexcept {
    if (!hosted_) return {free_[n], 0, 0};
    return {free_[n], hosts_[n].cpu_milli, hosts_[n].memory_mib};
  }
  // The same if all candidates were evicted.
  [[nodiscard]] node_amounts most_amounts(std::uint32_t n) const noexcept {
    if (!hosted_) return {most_free_[n], 0, 0};
    return {most_free_[n], most_hosts_[n].cpu_milli, most_hosts_[n].memory_mib};
  }
  [[nodiscard]] node_amounts freed_by(const item& i) const noexcept {
    if (!hosted_) return {i.gpus, 0, 0};
    return {i.gpus, freed_[i.allocation].cpu_milli, freed_[i.allocation].memory_mib};
  }
  [[nodiscard]] std::uint32_t node_capacity(const node_amounts& left) const noexcept {
    if (!hosted_ && left.gpus < of_gpus_.size())
      return of_gpus_[static_cast<std::size_t>(left.gpus)];
    return levels_->bound(0, left.holds(task_, levels_->levels[0].most));
  }

  const eviction_levels* levels_ = nullptr;
  node_amounts task_;
  std::array<std::uint32_t, 65> of_gpus_{};  // tasks on a node by free GPUs, if not hosted
  bool hosted_ = false;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  std::span<const resources> freed_;
  lean_vector<std::uint32_t> free_;
  lean_vector<resources> hosts_;
  lean_vector<std::uint32_t> most_free_;              // of each node, if all candidates are evicted
  lean_vector<resources> most_hosts_;                 // the same
  lean_vector<std::uint8_t> states_;                  // of each candidate
  lean_vector<std::uint32_t> first_on_;               // of each node
  lean_vector<item> on_;                              // by node
  lean_vector<std::uint32_t> candidate_of_;           // of each allocation
  std::vector<lean_vector<std::uint64_t>> capacity_;  // by height and cell, without its own limit
  lean_vector<std::uint32_t> most_of_node_;
  lean_vector<std::uint8_t> gains_;           // of each node: 1 if evictions add capacity
  lean_vector<std::uint32_t> most_capacity_;  // of each root cell
  std::uint64_t work_ = 0;

 private:
  // Lists the allocations by node, and sums up what they free.
  void list_by_node() {
    first_on_.assign(free_.size() + 1, 0);
    most_free_ = free_;
    most_hosts_ = hosts_;
    candidate_of_.resize(allocations_.size());
    for (std::uint32_t j = 0; j < candidates_.size(); ++j)
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
        const auto [n, gpus] = allocations_[a];
        ++first_on_[n];
        most_free_[n] += gpus;
        if (hosted_) most_hosts_[n] += freed_[a];
        candidate_of_[a] = j;
      }
    std::uint32_t sum = 0;
    for (std::uint32_t& f : first_on_) sum = f += sum;
    on_.resize(sum);
    for (std::uint32_t j = static_cast<std::uint32_t>(candidates_.size()); j-- > 0;)
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
        on_[--first_on_[allocations_[a].node]] = {a, j, allocations_[a].gpus};
  }
  void sum_capacities() {
    most_of_node_.resize(free_.size());
    gains_.resize(free_.size());
    capacity_.resize(levels_->levels.size());
    most_.resize(capacity_.size());
    for (std::size_t h = 0; h < capacity_.size(); ++h) {
      capacity_[h].assign(levels_->num_cells(h), 0);
      most_[h].assign(h == 0 && levels_->root() > 0 ? 0 : levels_->num_cells(h), 0);
    }
    const bool has_cells = levels_->root() > 0;
    const std::uint32_t* const cell = levels_->levels[0].above.data();
    const std::span<std::uint64_t> sums = has_cells ? capacity_[1] : capacity_[0];
    const std::span<std::uint64_t> most_sums = has_cells ? most_[1] : most_[0];
    const std::span<std::uint64_t> of_node = capacity_[0];
    const std::span<std::uint32_t> most_of_node = most_of_node_;
    const std::span<std::uint8_t> gains = gains_;
    for (std::uint32_t n = 0; n < of_node.size(); ++n) {
      const std::uint32_t now = node_capacity(amounts(n));
      const std::uint32_t most = node_capacity(most_amounts(n));
      of_node[n] = now;
      most_of_node[n] = most;
      gains[n] = most > now ? 1 : 0;
      if (has_cells) sums[cell[n]] += now;
      most_sums[has_cells ? cell[n] : n] += most;
    }
    for (std::size_t h = 2; h < capacity_.size(); ++h)
      for (std::uint32_t c = 0; c < capacity_[h - 1].size(); ++c) {
        const std::uint32_t above = levels_->levels[h - 1].above[c];
        capacity_[h][above] += levels_->bound(h - 1, capacity_[h - 1][c]);
        most_[h][above] += levels_->bound(h - 1, most_[h - 1][c]);
      }
    most_capacity_.clear();
    for (const std::uint64_t m : most_[levels_->root()])
      most_capacity_.push_back(levels_->bound(levels_->root(), m));
  }
  void change(std::uint32_t n) {
    std::uint64_t to = node_capacity(amounts(n));
    std::uint32_t c = n;
    for (std::size_t h = 0;; ++h) {
      const std::uint32_t before = levels_->bound(h, capacity_[h][c]);
      capacity_[h][c] = to;
      const std::uint32_t after = levels_->bound(h, to);
      if (before == after || h == levels_->root()) return;
      c = levels_->levels[h].above[c];
      to = capacity_[h + 1][c] + after - before;
    }
  }

  std::vector<lean_vector<std::uint64_t>> most_;  // as capacity_, if all candidates are evicted
};

}  // namespace detail
APIARY_NAMESPACE_END
