// apiary/gang_scheduler/detail/task_replacement.h - new nodes for the tasks of a gang that lost their nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/tasks_of_gang.h>
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
// that failed. It is exact unless the budget ends.
// Cost: O(nodes of the view + tasks); then a step for each node that it tries, and one for every 32
//       nodes that it lists.
class task_replacement {
 public:
  // The most tasks that are placed. A gang that has lost more should be proposed as a new gang.
  static constexpr std::size_t max_tasks = 1'000;

  // Requires: `gang` is as it was proposed; `accepts` has a 1 for each position that it accepts.
  task_replacement(const scheduled_gangs& state, const scheduled_gangs::entry& gang,
                   const std::vector<unsigned char>& accepts, std::uint64_t budget)
      : state_(state), gang_(gang.record), budget_(budget), tasks_of_(gang.record.what.gang) {
    where_.assign(tasks_of_.size(), none);
    for (std::uint32_t t = 0; t < tasks_of_.size(); ++t) {
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
    struct sums {
      std::uint64_t cpu_milli = 0;
      std::uint64_t memory_mib = 0;
    };
    std::map<std::uint32_t, sums> given_back;  // by node
    for (std::uint32_t t = 0; t < tasks_of_.size(); ++t) {
      const used_node& n = state.node(gang_.tasks[t].node.value);
      node& at = nodes_[n.position];
      const resources& own = tasks_of_.group(t).host;
      if (!at.usable) continue;
      if (where_[t] == none) {  // it gives back what it has
        at.free |= gang_.tasks[t].gpu_mask & n.healthy_gpus();
        sums& back = given_back[gang_.tasks[t].node.value];
        back.cpu_milli += own.cpu_milli;
        back.memory_mib += own.memory_mib;
      } else {
        at.whole &= ~gang_.tasks[t].gpu_mask;
        at.whole_host.cpu_milli -= (std::min)(at.whole_host.cpu_milli, own.cpu_milli);
        at.whole_host.memory_mib -= (std::min)(at.whole_host.memory_mib, own.memory_mib);
      }
      at.own = true;
    }
    for (const auto& [id, back] : given_back) {
      const used_node& n = state.node(id);
      nodes_[n.position].host = used_node::left_of(n.shape.host, n.cpu_milli - back.cpu_milli,
                                                   n.memory_mib - back.memory_mib);
    }
    for (node& at : nodes_) at.idle = at.whole;
    for (std::uint32_t k = 0; k < failed_.size(); ++k) {
      const bool equal = k > 0 && tasks_of_.are_equal(failed_[k - 1], failed_[k]);
      run_.push_back(equal ? run_.back() : k);
      end_of_run_.resize(k + std::size_t{1});
      end_of_run_[run_.back()] = k + 1;
    }
    banned_.assign(nodes_.size(), 0);
  }

  // The tasks on bad nodes or GPUs, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& failed() const noexcept { return failed_; }
  // Searches nodes for them; at most `to_free` nodes are taken as idle. Each level below the required
  // one may take half of the steps that are left.
  fit_verdict operator()(std::size_t to_free) {
    const topology_constraints& gang = gang_.what.gang;
    const level_t top = state_.layout().num_levels();
    const level_t last = (std::min)(gang.required, top);
    if (failed_.size() > max_tasks) return fit_verdict::budget_ended;
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
      limit_ = level_ < last ? steps_ + (budget_ - (std::min)(steps_, budget_)) / 2 : budget_;
      if (place(0, nullptr)) return fit_verdict::fits;
      if (level_ == last && steps_ > limit_) return fit_verdict::budget_ended;
    }
    return fit_verdict::does_not_fit;
  }
  // If it fits: the level of the cell that contains the whole gang, the new placements in the order
  // of failed(), the nodes that would have to be idle, and the GPUs that other gangs use there.
  [[nodiscard]] level_t level() const noexcept { return level_; }
  [[nodiscard]] const std::vector<placement>& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const std::vector<node_id>& nodes_to_free() const noexcept { return freed_; }
  [[nodiscard]] std::uint64_t gpus_to_free() const noexcept { return gpus_to_free_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  using node = offered_node;
  [[nodiscard]] std::uint32_t cell(std::uint32_t position, level_t l) const {
    const ragged_tree& tree = state_.layout().tree();
    if (l == state_.layout().num_levels()) return 0;
    return tree.index(tree.ancestor(tree.cells(0)[position], l), l);
  }
  void add_to_spread(std::uint32_t t, std::uint32_t more) {
    for (const level_count& s : tasks_of_.group(t).spread)
      spread_[{tasks_of_.group_index(t), s.level, cell(where_[t], s.level)}] += more;
  }
  // A cell that a task must be in.
  struct pin {
    level_t level = 0;
    std::uint32_t cell = 0;
    friend bool operator==(const pin&, const pin&) = default;
  };
  // The nodes of a cell in the order in which tasks try them, and where that stands.
  struct candidates {
    pin in{};
    std::vector<std::array<std::uint32_t, 2>> nodes{};
    std::size_t next = 0;
  };
  // Places the failed tasks from number k on. `before`: the candidates of the task before.
  [[nodiscard]] bool place(std::size_t k, candidates* before) {
    if (k == failed_.size()) {
      collect();
      return true;
    }
    const std::uint32_t t = failed_[k];
    // The cells that the tasks with a node leave to this one.
    std::vector<pin> pins;
    std::uint64_t looks = 0;
    const auto add_pin = [&](level_t l, std::uint32_t position) {
      const pin at{l, cell(position, l)};
      if (++looks % 32 == 0) ++steps_;
      if (std::find(pins.begin(), pins.end(), at) == pins.end()) pins.push_back(at);
    };
    if (stays_in_) {
      pins.push_back({level_, *stays_in_});
    } else if (k > 0) {
      add_pin(level_, where_[failed_[0]]);
    }
    tasks_of_.for_each_mate(where_, t, add_pin);
    pin lowest{state_.layout().num_levels(), 0};
    for (const pin& at : pins)
      if (at.level < lowest.level) lowest = at;
    // A node that failed for this task fails for the later tasks that are equal to it, too.
    const std::uint32_t run = run_[k] + 1;
    candidates own;
    candidates& all = run <= k && before->in == lowest ? *before : own;
    if (&all == &own) list_candidates(lowest, tasks_of_.group(t), own);
    if (most_tasks(all, tasks_of_.group(t)) < end_of_run_[run_[k]] - k) return false;
    std::map<std::array<std::uint32_t, 7>, bool> failed;
    std::vector<std::uint32_t> banned;
    bool placed = false;
    for (std::size_t i = all.next; i < all.nodes.size(); ++i) {
      all.next = i;
      const std::uint32_t p = all.nodes[i][1];
      if (placed || ++steps_ > limit_) break;
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
      const bool known = has_equals && !failed.try_emplace(kind, true).second;
      placed = !known && try_node(k, p, pins, all);
      if (banned_[p] != 0) continue;
      banned_[p] = run;
      banned.push_back(p);
    }
    for (const std::uint32_t p : banned) banned_[p] = 0;
    return placed;
  }
  void list_candidates(pin in, const constrained_task_group& task, candidates& to) {
    to.in = in;
    for (const cell_id p : positions_inside(state_.layout().tree(), in.level, in.cell, 0))
      if (nodes_[p.value].usable) to.nodes.push_back({nodes_[p.value].rank(task), p.value});
    std::sort(to.nodes.begin(), to.nodes.end());
    steps_ += to.nodes.size() / 32;
  }
  // A bound on the tasks like this one that the candidates can hold.
  [[nodiscard]] std::uint64_t most_tasks(const candidates& of, const constrained_task_group& task) {
    steps_ += (of.nodes.size() - of.next) / 32;
    std::uint64_t sum = 0;
    std::uint32_t gain = 0;  // the most that an idle node would add
    for (std::size_t i = of.next; i < of.nodes.size(); ++i) {
      const node& at = nodes_[of.nodes[i][1]];
      const std::uint32_t now = node::capacity(task, at.free, at.host);
      sum += now;
      if (to_free_ > 0 && !at.freed)
        gain =
            (std::max)(gain, (std::max)(now, node::capacity(task, at.whole, at.whole_host)) - now);
    }
    return sum + std::uint64_t{gain} * to_free_;
  }
  [[nodiscard]] bool try_node(std::size_t k, std::uint32_t p, const std::vector<pin>& pins,
                              candidates& all) {
    const std::uint32_t t = failed_[k];
    const constrained_task_group& task = tasks_of_.group(t);
    bool allowed = std::all_of(pins.begin(), pins.end(),
                               [&](const pin& at) { return cell(p, at.level) == at.cell; });
    for (const level_count& s : task.spread) {
      const auto at = spread_.find({tasks_of_.group_index(t), s.level, cell(p, s.level)});
      allowed = allowed && (at == spread_.end() ? 0 : at->second) < s.tasks;
    }
    if (!allowed) return false;
    const node before = nodes_[p];
    node& at = nodes_[p];
    if (!at.fits(task) && !at.freed && to_free_ > 0) {
      at.freed = true;
      at.free = at.whole;
      at.host = at.whole_host;
    }
    if (!at.fits(task)) {
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
    const std::size_t next = all.next;
    const bool placed = place(k + 1, &all);
    all.next = next;
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
      for (std::uint32_t g = 0; g < tasks_of_.group(t).gpus; ++g) {
        mask |= left[p] & (0 - left[p]);
        left[p] &= left[p] - 1;
      }
      tasks_.push_back({node_id(id), mask});
      if (!nodes_[p].freed || std::find(freed_.begin(), freed_.end(), node_id(id)) != freed_.end())
        continue;
      freed_.emplace_back(id);
      gpus_to_free_ += static_cast<std::uint64_t>(std::popcount(nodes_[p].idle & ~with_own(p)));
    }
    std::sort(freed_.begin(), freed_.end());
  }
  // The free GPUs of a node and those that the failed tasks give back.
  [[nodiscard]] std::uint32_t with_own(std::uint32_t p) const {
    const node_id id(state_.layout().node_at(p));
    const used_node& n = state_.node(id.value);
    std::uint32_t mask = n.free_gpus();
    for (const std::uint32_t t : failed_)
      if (gang_.tasks[t].node == id) mask |= gang_.tasks[t].gpu_mask & n.healthy_gpus();
    return mask;
  }
  // The GPUs that the tasks could take on a node before any of them was placed.
  [[nodiscard]] std::uint32_t free_before(std::uint32_t p) const {
    return nodes_[p].freed ? nodes_[p].idle : with_own(p);
  }

  using cell_of_group = std::array<std::uint32_t, 3>;  // task group, level, cell

  const scheduled_gangs& state_;
  const gang_scheduler_types::running_gang& gang_;
  std::uint64_t budget_;
  std::uint64_t limit_ = 0;  // steps until the end of the level
  std::uint64_t steps_ = 0;
  std::size_t to_free_ = 0;
  level_t level_ = 0;
  std::optional<std::uint32_t> stays_in_;  // the cell of level_ with the tasks that stay
  tasks_of_gang tasks_of_;
  std::vector<std::uint32_t> failed_;
  std::vector<std::uint32_t> run_;         // of each failed task, the first of the equal ones
  std::vector<std::uint32_t> end_of_run_;  // of each first one, the number after the last
  std::vector<std::uint32_t> where_;       // position of each task; none: it has no node now
  std::vector<node> nodes_;                // by position
  std::vector<std::uint32_t> banned_;      // by position: 1 + the first of the equal tasks; 0: none
  std::map<cell_of_group, std::uint32_t> spread_;
  std::vector<placement> tasks_;
  std::vector<node_id> freed_;
  std::uint64_t gpus_to_free_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
