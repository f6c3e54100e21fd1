// apiary/gang_scheduler/detail/candidate_gangs.h - the gangs that may be preempted, by slot, priority and cell.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/cell_gangs.h>
#include <apiary/gang_scheduler/detail/cluster_state.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/job.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The data about gangs that a search for victims reads, kept up to date while gangs start and end. A
// candidate is a gang that runs and that is not about to end for another gang.
// Cost: add_candidate and forget_candidate O(log priorities + nodes of the gang * levels).
class candidate_gangs : public cluster_state {
 public:
  // What a gang has on one node.
  struct on_node {
    std::uint32_t node = 0;
    std::uint32_t mask = 0;
    std::uint64_t cpu_milli = 0;
    std::uint64_t memory_mib = 0;
    friend bool operator==(const on_node&, const on_node&) = default;
  };
  // The values that decide the cost of a gang. They are stored apart because a search reads them for
  // many gangs.
  struct brief {
    std::uint64_t gpus = 0;
    time_ms started = 0;
    std::uint32_t nodes = 0;
    std::int32_t priority = 0;
    bool alive = false;
    bool is_candidate = false;
    friend bool operator==(const brief&, const brief&) = default;
  };
  // The candidates of one priority. Sums are modulo 2^64.
  struct priority_class {
    std::uint64_t gangs = 0;
    std::uint64_t nodes = 0;  // of all gangs, each gang apart
    std::uint64_t gpus = 0;
    std::uint64_t gpu_starts = 0;  // GPUs of a gang times its start
    friend bool operator==(const priority_class&, const priority_class&) = default;
  };
  using cluster_state::cluster_state;

  // The values that decide the cost of the gang in a slot.
  [[nodiscard]] const brief& brief_of(std::uint32_t slot) const noexcept { return briefs_[slot]; }
  // All slots are below this number.
  [[nodiscard]] std::uint32_t num_slots() const noexcept {
    return static_cast<std::uint32_t>(briefs_.size());
  }
  // The candidates by priority.
  [[nodiscard]] const std::map<std::int32_t, priority_class>& classes() const noexcept {
    return classes_;
  }
  // Whether a gang of lower priority runs and is not already ending.
  [[nodiscard]] bool has_candidate(std::int32_t below) const noexcept {
    return !classes_.empty() && classes_.begin()->first < below;
  }
  // The candidates of lower priority, and their nodes: what a search reads of them. Cost:
  // O(priorities).
  [[nodiscard]] std::uint64_t entries(std::int32_t below) const noexcept {
    std::uint64_t sum = 0;
    for (const auto& [priority, c] : classes_)
      if (priority < below) sum += c.gangs + c.nodes;
    return sum;
  }
  // An upper bound on the GPU-time that the candidates of lower priority have used: the sum of GPUs *
  // (now - started), where negative times count as 0. Cost: O(priorities), if all gangs so far
  // started before `now`.
  [[nodiscard]] std::uint64_t gpu_time(std::int32_t below, time_ms now) const {
    std::uint64_t sum = 0;
    std::uint64_t gpus = 0;
    for (const auto& [priority, c] : classes_) {
      if (priority >= below) break;
      sum += static_cast<std::uint64_t>(now) * c.gpus - c.gpu_starts;
      gpus += c.gpus;
    }
    if (last_start_ <= now && is_product_small(gpus, now)) return sum;
    sum = 0;
    for (const brief& b : briefs_)
      if (b.is_candidate && b.priority < below)
        sum += (std::min)(gpu_time_of(b, now), ~std::uint64_t{0} - sum);
    return sum;
  }
  // Whether gpu_time() may look at all gangs.
  [[nodiscard]] bool may_add_gpu_times(time_ms now) const noexcept {
    const std::uint64_t most_gpus = std::uint64_t{num_ids()} * gang_cluster::max_gpus;
    return last_start_ > now || !is_product_small(most_gpus, now);
  }
  [[nodiscard]] static std::uint64_t gpu_time_of(const brief& b, time_ms now) noexcept {
    if (b.started >= now) return 0;
    const std::uint64_t run =
        static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(b.started);
    if (run >> 32 == 0 && b.gpus >> 31 == 0) return b.gpus * run;  // a quotient takes longer
    const std::uint64_t most = ~std::uint64_t{0} / 2 / (std::max)(b.gpus, std::uint64_t{1});
    return b.gpus * (std::min)(run, most);
  }
  // The candidates in each cell of a level above the nodes. Cost: O(nodes of the cells that have
  // changed since the last call for this level); all the first time.
  [[nodiscard]] const cell_gangs& in_cells(level_t level) {
    if (of_layout_ != layout_version()) cells_.clear();
    of_layout_ = layout_version();
    cells_.resize(layout_.num_levels());
    cell_gangs& cells = cells_[level];
    if (!cells.active()) cells.begin(layout_.tree().cells(level).size());
    cells.refresh(
        [&](std::uint32_t c, std::vector<cell_gangs::gang>& to) { list_candidates(level, c, to); });
    return cells;
  }
  // Whether a cell is wrong that is not marked as changed.
  [[nodiscard]] bool has_wrong_cell() const {
    if (of_layout_ != layout_version()) return false;
    for (level_t l = 0; l < cells_.size(); ++l) {
      if (!cells_[l].active()) continue;
      cell_gangs again;
      again.begin(cells_[l].num_cells());
      again.refresh(
          [&](std::uint32_t c, std::vector<cell_gangs::gang>& to) { list_candidates(l, c, to); });
      for (std::uint32_t c = 0; c < again.num_cells(); ++c)
        if (!cells_[l].is_marked(c) && (!std::ranges::equal(cells_[l].in(c), again.in(c)) ||
                                        cells_[l].most(c) != again.most(c)))
          return true;
    }
    return false;
  }

 protected:
  // Gang `slot` runs, and may be preempted if it is a candidate.
  void add_candidate(std::uint32_t slot, const brief& gang, std::span<const on_node> nodes) {
    if (slot >= briefs_.size()) briefs_.resize(slot + std::size_t{1});
    briefs_[slot] = gang;
    allocations_.mark(slot);
    if (gang.is_candidate) count(gang, nodes, true);
  }
  void forget_candidate(std::uint32_t slot, std::span<const on_node> nodes) {
    if (briefs_[slot].is_candidate) count(briefs_[slot], nodes, false);
    briefs_[slot].is_candidate = false;
    allocations_.mark(slot);
  }

 private:
  void count(const brief& b, std::span<const on_node> nodes, bool more) {
    const auto at = classes_.try_emplace(b.priority).first;
    const auto add = [&](std::uint64_t& sum, std::uint64_t n) { sum += more ? n : 0 - n; };
    add(at->second.gangs, 1);
    add(at->second.nodes, b.nodes);
    add(at->second.gpus, b.gpus);
    add(at->second.gpu_starts, b.gpus * static_cast<std::uint64_t>(b.started));
    if (at->second.gangs == 0) classes_.erase(at);
    first_start_ = (std::min)(first_start_, b.started);
    last_start_ = (std::max)(last_start_, b.started);
    if (of_layout_ != layout_version()) return;
    for (const on_node& o : nodes) {
      std::uint32_t c = usable(o.node).position;
      for (level_t l = 1; l < cells_.size(); ++l) {
        c = layout_.tree().index(layout_.tree().parent(layout_.tree().at(l - 1, c), l - 1), l);
        if (cells_[l].active()) cells_[l].mark(c);
      }
    }
  }
  // Whether so many GPUs since the first start are a GPU-time that a sum can hold.
  [[nodiscard]] bool is_product_small(std::uint64_t gpus, time_ms now) const noexcept {
    const std::uint64_t longest =
        static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(first_start_);
    constexpr std::uint64_t most = ~std::uint64_t{0} / 2;
    return gpus == 0 || longest <= most / gpus;
  }
  void list_candidates(level_t level, std::uint32_t c, std::vector<cell_gangs::gang>& to) const {
    for (const cell_id p : positions_inside(layout_.tree(), level, c, 0)) {
      const std::uint32_t id = layout_.node_at(p.value);
      if (id == none) continue;
      for (const used_node::gang_here& g : nodes_[id].gangs)
        if (briefs_[g.slot].is_candidate)
          to.push_back({g.slot, static_cast<std::uint32_t>(std::popcount(g.mask)), 1});
    }
  }

 protected:
  std::vector<brief> briefs_;  // by slot

 private:
  std::map<std::int32_t, priority_class> classes_;
  time_ms first_start_ = (std::numeric_limits<time_ms>::max)();  // of all candidates so far
  time_ms last_start_ = (std::numeric_limits<time_ms>::min)();
  std::vector<cell_gangs> cells_;  // by level; of the layout of_layout_
  std::uint64_t of_layout_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
