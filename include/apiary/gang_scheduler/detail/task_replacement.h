// apiary/gang_scheduler/detail/task_replacement.h - where the tasks of a running gang go that lost their node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Places the tasks of a gang that are on bad nodes or GPUs, while its other tasks stay where they
// are. It tries every node for every task, the fullest first, and skips nodes that are equal to one
// that failed. Exact unless the budget ends.
// Cost: a step for each node that is looked at; O(nodes of the view + tasks) to begin.
class task_replacement {
 public:
  // Requires: `gang` is as it was proposed; `accepts` has a 1 for each position that it accepts.
  task_replacement(const scheduled_gangs& state, const scheduled_gangs::entry& gang,
                   const std::vector<unsigned char>& accepts, std::uint64_t budget)
      : state_(state), gang_(gang.who), budget_(budget) {
    const std::vector<constrained_task_group>& groups = gang_.what.gang.groups;
    for (std::uint32_t m = 0; m < groups.size(); ++m) {
      first_.push_back(static_cast<std::uint32_t>(group_of_.size()));
      group_of_.resize(group_of_.size() + groups[m].tasks, m);
    }
    where_.assign(group_of_.size(), none);
    for (std::uint32_t t = 0; t < group_of_.size(); ++t) {
      const placement& p = gang_.tasks[t];
      const used_node& n = state.node(p.node.value);
      if (n.bad || (p.gpu_mask & n.bad_gpus) != 0) {
        failed_.push_back(t);
      } else {
        where_[t] = n.position;
        add_to_spread(t, 1);
      }
    }
    nodes_.resize(state.layout().num_positions());
    for (std::uint32_t p = 0; p < nodes_.size(); ++p) {
      const std::uint32_t id = state.layout().node_at(p);
      if (id == cluster_layout::none || accepts[p] == 0 || state.node(id).bad) continue;
      const used_node& n = state.node(id);
      nodes_[p] = {n.free_gpus(), n.healthy_gpus(), 0, n.free_host(), n.shape.host, true};
    }
    for (std::uint32_t t = 0; t < group_of_.size(); ++t) {
      const used_node& n = state.node(gang_.tasks[t].node.value);
      node& at = nodes_[n.position];
      const resources& own = groups[group_of_[t]].host;
      if (!at.usable) continue;
      if (where_[t] == none) {  // it gives back what it has
        at.free |= gang_.tasks[t].gpu_mask & n.healthy_gpus();
        at.host.cpu_milli = (std::min)(n.shape.host.cpu_milli, at.host.cpu_milli + own.cpu_milli);
        at.host.memory_mib =
            (std::min)(n.shape.host.memory_mib, at.host.memory_mib + own.memory_mib);
      } else {
        at.whole &= ~gang_.tasks[t].gpu_mask;
        at.whole_host.cpu_milli -= (std::min)(at.whole_host.cpu_milli, own.cpu_milli);
        at.whole_host.memory_mib -= (std::min)(at.whole_host.memory_mib, own.memory_mib);
      }
      at.own = true;
    }
    for (node& at : nodes_) at.idle = at.whole;
    banned_.assign(nodes_.size(), 0);
  }

  // The tasks on bad nodes or GPUs, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& failed() const noexcept { return failed_; }
  // Searches nodes for them; at most `to_free` nodes are taken as idle.
  fit_verdict operator()(std::size_t to_free) {
    const topology_constraints& gang = gang_.what.gang;
    const level_t top = state_.layout().num_levels();
    const level_t last = (std::min)(gang.required, top);
    steps_ = 0;
    to_free_ = to_free;
    for (level_ = (std::min)(gang.preferred, last); level_ <= last; ++level_) {
      stays_in_.reset();
      bool one = true;
      for (const std::uint32_t p : where_) {
        if (p == none) continue;
        one = one && (!stays_in_ || *stays_in_ == cell(p, level_));
        stays_in_ = cell(p, level_);
      }
      if (!one) continue;
      if (place(0)) return fit_verdict::fits;
      if (steps_ > budget_) return fit_verdict::budget_ended;
    }
    return fit_verdict::does_not_fit;
  }
  // After a yes: the level of the cell that has the whole gang, the new placements in the order of
  // failed(), the nodes that would have to be idle, and the GPUs of them that are not free.
  [[nodiscard]] level_t level() const noexcept { return level_; }
  [[nodiscard]] const std::vector<placement>& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const std::vector<node_id>& nodes_to_free() const noexcept { return freed_; }
  [[nodiscard]] std::uint64_t gpus_to_free() const noexcept { return gpus_to_free_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct node {
    std::uint32_t free = 0;   // masks of GPUs
    std::uint32_t whole = 0;  // if all other gangs on it end
    std::uint32_t idle = 0;   // `whole` before any task was placed
    resources host{};
    resources whole_host{};
    bool usable = false;
    bool own = false;  // a task of the gang is or was here, or is placed here
    bool freed = false;
  };
  [[nodiscard]] const constrained_task_group& group(std::uint32_t t) const {
    return gang_.what.gang.groups[group_of_[t]];
  }
  [[nodiscard]] std::uint32_t cell(std::uint32_t position, level_t l) const {
    const ragged_tree& tree = state_.layout().tree();
    if (l == state_.layout().num_levels()) return 0;
    return tree.index(tree.ancestor(tree.cells(0)[position], l), l);
  }
  void add_to_spread(std::uint32_t t, std::uint32_t more) {
    for (const level_count& s : group(t).spread)
      spread_[{group_of_[t], s.level, cell(where_[t], s.level)}] += more;
  }
  // Calls f(level, position) for each task that has a node and must be in one cell of the level with
  // task t.
  template <class F>
  void for_each_mate(std::uint32_t t, const F& f) const {
    const std::uint32_t m = group_of_[t];
    const std::uint32_t i = t - first_[m];
    const auto range = [&](std::uint32_t of, std::uint32_t from, std::uint32_t size, level_t l) {
      const std::uint32_t end = (std::min)(from + size, gang_.what.gang.groups[of].tasks);
      for (std::uint32_t k = from; k < end; ++k)
        if (where_[first_[of] + k] != none) f(l, where_[first_[of] + k]);
    };
    for (const level_count& s : group(t).slices) range(m, i / s.tasks * s.tasks, s.tasks, s.level);
    const std::vector<constrained_task_group>& groups = gang_.what.gang.groups;
    const std::uint32_t leaders = group(t).leader == no_task_group ? m : group(t).leader;
    const std::uint32_t replica = i / (group(t).tasks / groups[leaders].tasks);
    for (std::uint32_t o = 0; o < groups.size(); ++o) {
      if (groups[o].leader != leaders || groups[o].tasks == 0) continue;
      if (leaders != m && o != m) continue;
      const level_t l = groups[o].on_node_of_leader() ? 0 : groups[o].leader_level;
      const std::uint32_t each = groups[o].tasks / groups[leaders].tasks;
      range(leaders, replica, 1, l);
      range(o, replica * each, each, l);
    }
  }
  [[nodiscard]] bool place(std::size_t k) {
    if (k == failed_.size()) {
      collect();
      return true;
    }
    const std::uint32_t t = failed_[k];
    // The lowest cell that the tasks with a node leave to this one.
    level_t l = state_.layout().num_levels();
    std::uint32_t c = 0;
    const auto pin = [&](level_t at, std::uint32_t position) {
      if (at >= l) return;
      l = at;
      c = cell(position, at);
    };
    if (stays_in_) {
      l = level_;
      c = *stays_in_;
    } else if (k > 0) {
      pin(level_, where_[failed_[0]]);
    }
    for_each_mate(t, pin);
    std::vector<std::array<std::uint32_t, 2>> order;
    for (const cell_id p : positions_inside(state_.layout().tree(), l, c, 0))
      if (nodes_[p.value].usable) order.push_back({rank(nodes_[p.value], group(t)), p.value});
    std::sort(order.begin(), order.end());
    // A node that failed for this task fails for the later tasks that are equal to it, too.
    std::vector<std::array<std::uint32_t, 7>> failed;
    std::vector<std::uint32_t> banned;
    const std::uint32_t run = run_of(k) + 1;
    bool placed = false;
    for (const auto& [by, p] : order) {
      if (placed || ++steps_ > budget_) break;
      if (banned_[p] == run) continue;
      const node& at = nodes_[p];
      const std::array<std::uint32_t, 7> kind{static_cast<std::uint32_t>(std::popcount(at.free)),
                                              static_cast<std::uint32_t>(std::popcount(at.whole)),
                                              at.host.cpu_milli,
                                              at.host.memory_mib,
                                              at.whole_host.cpu_milli,
                                              at.whole_host.memory_mib,
                                              cell(p, 1)};
      const bool has_equals = !at.own && !at.freed;
      const bool known =
          has_equals && std::find(failed.begin(), failed.end(), kind) != failed.end();
      placed = !known && try_node(k, p);
      if (has_equals && !known) failed.push_back(kind);
      if (banned_[p] != 0) continue;
      banned_[p] = run;
      banned.push_back(p);
    }
    for (const std::uint32_t p : banned) banned_[p] = 0;
    return placed;
  }
  // Nodes where the task fits come first, the fullest of them; then those with most free GPUs.
  [[nodiscard]] static std::uint32_t rank(const node& at, const constrained_task_group& task) {
    const auto free = static_cast<std::uint32_t>(std::popcount(at.free));
    return free >= task.gpus && task.host.fits_in(at.host) ? free : 64 - free;
  }
  // The first of the failed tasks up to number k that are all equal: of one group without leaders,
  // in the same slices.
  [[nodiscard]] std::uint32_t run_of(std::size_t k) const {
    const std::uint32_t m = group_of_[failed_[k]];
    for (const constrained_task_group& o : gang_.what.gang.groups)
      if (group(failed_[k]).leader != no_task_group || o.leader == m)
        return static_cast<std::uint32_t>(k);
    const auto same = [&](std::uint32_t other) {
      bool all = group_of_[other] == m;
      for (const level_count& s : group(failed_[k]).slices)
        all = all && (other - first_[m]) / s.tasks == (failed_[k] - first_[m]) / s.tasks;
      return all;
    };
    while (k > 0 && same(failed_[k - 1])) --k;
    return static_cast<std::uint32_t>(k);
  }
  [[nodiscard]] bool try_node(std::size_t k, std::uint32_t p) {
    const std::uint32_t t = failed_[k];
    const constrained_task_group& task = group(t);
    bool allowed = true;
    for_each_mate(t, [&](level_t l, std::uint32_t other) {
      allowed = allowed && cell(other, l) == cell(p, l);
    });
    for (const level_count& s : task.spread) {
      const auto at = spread_.find({group_of_[t], s.level, cell(p, s.level)});
      allowed = allowed && (at == spread_.end() ? 0 : at->second) < s.tasks;
    }
    if (!allowed) return false;
    const node before = nodes_[p];
    node& at = nodes_[p];
    const auto fits = [&] {
      return static_cast<std::uint32_t>(std::popcount(at.free)) >= task.gpus &&
             task.host.fits_in(at.host);
    };
    if (!fits() && !at.freed && to_free_ > 0) {
      at.freed = true;
      at.free = at.whole;
      at.host = at.whole_host;
    }
    if (!fits()) {
      nodes_[p] = before;
      return false;
    }
    for (std::uint32_t g = 0; g < task.gpus; ++g) {
      at.whole &= ~(at.free & (0 - at.free));
      at.free &= at.free - 1;
    }
    for (resources* const left : {&at.host, &at.whole_host}) {
      left->cpu_milli -= (std::min)(left->cpu_milli, task.host.cpu_milli);
      left->memory_mib -= (std::min)(left->memory_mib, task.host.memory_mib);
    }
    at.own = true;
    if (at.freed && !before.freed) --to_free_;
    where_[t] = p;
    add_to_spread(t, 1);
    const bool placed = place(k + 1);
    add_to_spread(t, ~std::uint32_t{0});
    where_[t] = none;
    if (nodes_[p].freed && !before.freed) ++to_free_;
    nodes_[p] = before;
    return placed;
  }
  // Keeps the nodes that the tasks have now.
  void collect() {
    tasks_.clear();
    freed_.clear();
    gpus_to_free_ = 0;
    std::map<std::uint32_t, std::uint32_t> left;  // GPUs of the nodes that are not taken
    for (const std::uint32_t t : failed_) {
      const std::uint32_t p = where_[t];
      const std::uint32_t id = state_.layout().node_at(p);
      if (left.find(p) == left.end()) left[p] = free_before(p);
      std::uint32_t mask = 0;
      for (std::uint32_t g = 0; g < group(t).gpus; ++g) {
        mask |= left[p] & (0 - left[p]);
        left[p] &= left[p] - 1;
      }
      tasks_.push_back({node_id(id), mask});
      if (!nodes_[p].freed || std::find(freed_.begin(), freed_.end(), node_id(id)) != freed_.end())
        continue;
      freed_.emplace_back(id);
      gpus_to_free_ +=
          static_cast<std::uint64_t>(std::popcount(nodes_[p].idle & ~state_.node(id).free_gpus()));
    }
    std::sort(freed_.begin(), freed_.end());
  }
  // The GPUs that the tasks could take on a node before any of them was placed.
  [[nodiscard]] std::uint32_t free_before(std::uint32_t p) const {
    const used_node& n = state_.node(state_.layout().node_at(p));
    if (nodes_[p].freed) return nodes_[p].idle;
    std::uint32_t mask = n.free_gpus();
    for (const std::uint32_t t : failed_)
      if (gang_.tasks[t].node == node_id(state_.layout().node_at(p)))
        mask |= gang_.tasks[t].gpu_mask & n.healthy_gpus();
    return mask;
  }

  using cell_of_group = std::array<std::uint32_t, 3>;  // task group, level, cell

  const scheduled_gangs& state_;
  const gang_scheduler_types::running_gang& gang_;
  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::size_t to_free_ = 0;
  level_t level_ = 0;
  std::optional<std::uint32_t> stays_in_;  // the cell of level_ with the tasks that stay
  std::vector<std::uint32_t> first_;       // task of each group
  std::vector<std::uint32_t> group_of_;    // each task
  std::vector<std::uint32_t> failed_;
  std::vector<std::uint32_t> where_;   // position of each task; none: it has no node now
  std::vector<node> nodes_;            // by position
  std::vector<std::uint32_t> banned_;  // by position: 1 + the first of the equal tasks; 0: none
  std::map<cell_of_group, std::uint32_t> spread_;
  std::vector<placement> tasks_;
  std::vector<node_id> freed_;
  std::uint64_t gpus_to_free_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
