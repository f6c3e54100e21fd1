// apiary/gang_scheduler/detail/task_replacement.h - new nodes for the tasks that lost theirs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
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

// What a node offers to tasks that look for one.
struct offered_node {
  std::uint32_t free = 0;   // masks of GPUs
  std::uint32_t whole = 0;  // if all other gangs on it end
  std::uint32_t idle = 0;   // `whole` before any task was placed
  std::uint32_t start = 0;  // `free` before any task was placed
  resources host{};
  resources whole_host{};
  bool usable = false;
  bool own = false;    // a task of the gang is or was here, or is placed here
  bool freed = false;  // the other gangs on it are taken as ended

  [[nodiscard]] bool fits(const constrained_task_group& task) const noexcept {
    return static_cast<std::uint32_t>(std::popcount(free)) >= task.gpus && task.host.fits_in(host);
  }
  // Nodes where the task fits come first, the fullest of them; then those with most free GPUs.
  [[nodiscard]] std::uint32_t rank(const constrained_task_group& task) const noexcept {
    const auto gpus = static_cast<std::uint32_t>(std::popcount(free));
    return fits(task) ? gpus : 64 - gpus;
  }
  // How many such tasks these GPUs, CPU and memory are enough for.
  [[nodiscard]] static std::uint32_t capacity(const constrained_task_group& task,
                                              std::uint32_t mask, const resources& has) noexcept {
    std::uint32_t n = ~std::uint32_t{0};
    if (task.gpus > 0) n = static_cast<std::uint32_t>(std::popcount(mask)) / task.gpus;
    if (task.host.cpu_milli > 0) n = (std::min)(n, has.cpu_milli / task.host.cpu_milli);
    if (task.host.memory_mib > 0) n = (std::min)(n, has.memory_mib / task.host.memory_mib);
    return n;
  }
};

// The tasks of a gang by number, in the order of the task groups. Requires: the gang outlives it.
// Cost: O(tasks + groups) to make it; are_equal O(slices); for_each_mate O(mates, groups with the
//       same leader group).
class tasks_of_gang {
 public:
  static constexpr std::uint32_t nowhere = ~std::uint32_t{0};

  explicit tasks_of_gang(const topology_constraints& gang) : gang_(gang) {
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) {
      first_.push_back(size());
      group_of_.resize(group_of_.size() + gang.groups[m].tasks, m);
    }
    first_worker_.assign(gang.groups.size(), no_task_group);
    next_worker_.assign(gang.groups.size(), no_task_group);
    for (std::uint32_t m = static_cast<std::uint32_t>(gang.groups.size()); m-- > 0;) {
      if (gang.groups[m].leader == no_task_group) continue;
      next_worker_[m] = first_worker_[gang.groups[m].leader];
      first_worker_[gang.groups[m].leader] = m;
    }
  }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(group_of_.size());
  }
  [[nodiscard]] std::uint32_t group_index(std::uint32_t t) const { return group_of_[t]; }
  [[nodiscard]] const constrained_task_group& group(std::uint32_t t) const {
    return gang_.groups[group_of_[t]];
  }
  // Calls f(level, position) for each task that has a node and must be in one cell of the level
  // with task t.
  template <class F>
  void for_each_mate(const std::vector<std::uint32_t>& where, std::uint32_t t, const F& f) const {
    const std::uint32_t m = group_of_[t];
    const std::uint32_t i = t - first_[m];
    const auto range = [&](std::uint32_t of, std::uint32_t from, std::uint32_t size, level_t l) {
      const std::uint32_t end = (std::min)(from + size, gang_.groups[of].tasks);
      for (std::uint32_t k = from; k < end; ++k)
        if (where[first_[of] + k] != nowhere) f(l, where[first_[of] + k]);
    };
    for (const level_count& s : group(t).slices) range(m, i / s.tasks * s.tasks, s.tasks, s.level);
    const std::vector<constrained_task_group>& groups = gang_.groups;
    const std::uint32_t leaders = group(t).leader == no_task_group ? m : group(t).leader;
    const std::uint32_t replica = i / (group(t).tasks / groups[leaders].tasks);
    const auto workers = [&](std::uint32_t o) {
      if (groups[o].tasks == 0) return;
      const level_t l = groups[o].on_node_of_leader() ? 0 : groups[o].leader_level;
      const std::uint32_t each = groups[o].tasks / groups[leaders].tasks;
      range(leaders, replica, 1, l);
      range(o, replica * each, each, l);
    };
    if (leaders != m) return workers(m);
    for (std::uint32_t o = first_worker_[m]; o != no_task_group; o = next_worker_[o]) workers(o);
  }
  // Whether two tasks are equal: of one group without leaders, in the same slices.
  [[nodiscard]] bool are_equal(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t m = group_of_[a];
    bool equal =
        group_of_[b] == m && group(a).leader == no_task_group && first_worker_[m] == no_task_group;
    for (const level_count& s : group(a).slices)
      equal = equal && (a - first_[m]) / s.tasks == (b - first_[m]) / s.tasks;
    return equal;
  }

 private:
  const topology_constraints& gang_;
  std::vector<std::uint32_t> first_;     // task of each group
  std::vector<std::uint32_t> group_of_;  // each task
  // Of each group: the first of its groups of workers; of these: the next one of the same leaders.
  std::vector<std::uint32_t> first_worker_;
  std::vector<std::uint32_t> next_worker_;
};

// Places the tasks of a gang that are on bad nodes or GPUs, while its other tasks stay where they
// are. It tries every node for every task, the fullest first, and skips nodes that are equal to one
// that failed. It is exact unless the budget ends. All searches share the budget.
// Cost: O(tasks) to make it. Then a step for each node that it tries, for every 32 tasks, for every
//       16 nodes of the cluster and, for each run of equal tasks, for every 32 nodes that it lists.
class task_replacement {
 public:
  // The most tasks that are placed. A gang that has lost more should be proposed as a new gang.
  static constexpr std::size_t max_tasks = 1'000;

  // Requires: `gang` is as it was proposed; `accepts` has a 1 for each position that it accepts.
  task_replacement(const scheduled_gangs& state, const scheduled_gangs::entry& gang,
                   const lean_vector<unsigned char>& accepts, std::uint64_t budget)
      : state_(state),
        gang_(gang.record),
        accepts_(accepts),
        budget_(budget),
        steps_((gang.record.tasks.size() + gang.record.what.gang.groups.size()) / 32),
        tasks_of_(gang.record.what.gang) {
    where_.assign(tasks_of_.size(), none);
    for (std::uint32_t t = 0; t < tasks_of_.size(); ++t) {
      const placement& p = gang_.tasks[t];
      const used_node& n = state.node(p.node.value);
      if (n.bad || (p.gpu_mask & n.bad_gpus) != 0) {
        failed_.push_back(t);
      } else {
        where_[t] = n.position;
      }
    }
  }

  // The tasks on bad nodes or GPUs, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& failed() const noexcept { return failed_; }
  // The steps of the budget that it has taken, and those that are left.
  [[nodiscard]] std::uint64_t steps() const noexcept { return (std::min)(steps_, budget_); }
  [[nodiscard]] std::uint64_t left() const noexcept { return budget_ - steps(); }
  // Searches nodes for them, with at most so many steps of those that are left; at most `to_free`
  // nodes are taken as idle. Each level below the required one may take half of these steps.
  fit_verdict operator()(std::size_t to_free, std::uint64_t most) {
    const topology_constraints& gang = gang_.what.gang;
    const level_t top = state_.layout().num_levels();
    const level_t last = (std::min)(gang.required, top);
    if (failed_.size() > max_tasks || !read()) return fit_verdict::budget_ended;
    const std::uint64_t end = steps() + (std::min)(most, left());
    to_free_ = to_free;
    for (level_ = (std::min)(gang.preferred, last); level_ <= last; ++level_) {
      if (stays_[level_].several) continue;
      limit_ = level_ < last ? steps_ + (end - (std::min)(steps_, end)) / 2 : end;
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
  // Reads the tasks that stay, and the nodes, if that was not done. False if the steps are not
  // enough.
  [[nodiscard]] bool read() {
    if (!nodes_.empty()) return true;
    const level_t top = state_.layout().num_levels();
    const std::uint64_t price =
        std::uint64_t{tasks_of_.size()} * (top + 1) / 32 + state_.layout().num_positions() / 16;
    if (price > left()) return false;
    steps_ += price;
    stays_.resize(top + std::size_t{1});
    for (std::uint32_t t = 0; t < tasks_of_.size(); ++t) {
      if (where_[t] == none) continue;
      add_to_spread(t, 1);
      for (level_t l = 0; l <= top; ++l) {
        const std::uint32_t in = cell(where_[t], l);
        stays_[l].several = stays_[l].several || (stays_[l].cell && *stays_[l].cell != in);
        stays_[l].cell = in;
      }
    }
    for (std::uint32_t k = 0; k < failed_.size(); ++k) {
      const bool equal = k > 0 && tasks_of_.are_equal(failed_[k - 1], failed_[k]);
      run_.push_back(equal ? run_.back() : k);
      end_of_run_.resize(k + std::size_t{1});
      end_of_run_[run_.back()] = k + 1;
    }
    read_nodes();
    banned_.assign(nodes_.size(), 0);
    return true;
  }
  void read_nodes() {
    nodes_.resize(state_.layout().num_positions());
    for (std::uint32_t p = 0; p < nodes_.size(); ++p) {
      const std::uint32_t id = state_.layout().node_at(p);
      if (accepts_[p] == 0 || state_.node(id).bad) continue;
      const used_node& n = state_.node(id);
      nodes_[p] = {n.free_gpus(), n.healthy_gpus(), 0, 0, n.free_host(), n.shape.host, true};
    }
    struct sums {
      std::uint64_t cpu_milli = 0;
      std::uint64_t memory_mib = 0;
    };
    std::map<std::uint32_t, sums> given_back;  // by node
    for (std::uint32_t t = 0; t < tasks_of_.size(); ++t) {
      const used_node& n = state_.node(gang_.tasks[t].node.value);
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
      const used_node& n = state_.node(id);
      nodes_[n.position].host = used_node::left_of(n.shape.host, n.cpu_milli - back.cpu_milli,
                                                   n.memory_mib - back.memory_mib);
    }
    for (node& at : nodes_) {
      at.idle = at.whole;
      at.start = at.free;
    }
  }
  // A cell that a task must be in.
  struct pin {
    level_t level = 0;
    std::uint32_t cell = 0;
    friend bool operator==(const pin&, const pin&) = default;
  };
  // The cells of one level with the tasks that stay.
  struct cells_of_tasks {
    std::optional<std::uint32_t> cell{};  // nullopt: none
    bool several = false;
  };
  // The nodes of a cell in the order in which tasks try them, and where that stands.
  struct candidates {
    pin in{};
    std::vector<std::uint32_t> nodes{};
    std::size_t next = 0;
    std::uint64_t sum = 0;   // of the tasks that the nodes from `next` on can hold
    std::uint32_t gain = 0;  // the most tasks that an idle node would add
  };
  // Places the failed tasks from number k on. `before`: the candidates of the task before.
  [[nodiscard]] bool place(std::size_t k, candidates* before) {
    if (k == failed_.size()) {
      collect();
      return true;
    }
    const std::uint32_t t = failed_[k];
    const constrained_task_group& task = tasks_of_.group(t);
    // By level: the cell that the tasks with a node leave to this one.
    std::vector<std::uint32_t> pins(stays_.size(), none);
    bool possible = true;
    std::uint64_t looks = 0;
    const auto add_pin = [&](level_t l, std::uint32_t position) {
      const std::uint32_t in = cell(position, l);
      if (++looks % 32 == 0) ++steps_;
      possible = possible && (pins[l] == none || pins[l] == in);
      pins[l] = in;
    };
    if (stays_[level_].cell) {
      pins[level_] = *stays_[level_].cell;
    } else if (k > 0) {
      add_pin(level_, where_[failed_[0]]);
    }
    tasks_of_.for_each_mate(where_, t, add_pin);
    if (!possible) return false;
    pin lowest{0, 0};
    while (lowest.level < state_.layout().num_levels() && pins[lowest.level] == none)
      ++lowest.level;
    if (pins[lowest.level] != none) lowest.cell = pins[lowest.level];
    // A node that failed for this task fails for the later tasks that are equal to it, too.
    const std::uint32_t run = run_[k] + 1;
    candidates own;
    candidates& all = run <= k && before->in == lowest ? *before : own;
    if (&all == &own && !list_candidates(lowest, task, own)) return false;
    if (all.sum + std::uint64_t{all.gain} * to_free_ < end_of_run_[run_[k]] - k) return false;
    std::map<std::array<std::uint32_t, 7>, bool> failed;
    std::vector<std::uint32_t> banned;
    bool placed = false;
    for (std::size_t i = all.next; i < all.nodes.size() && !placed && ++steps_ <= limit_; ++i) {
      all.next = i;
      const std::uint32_t p = all.nodes[i];
      const node& at = nodes_[p];
      if (banned_[p] != run) {
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
        if (banned_[p] == 0) {
          banned_[p] = run;
          banned.push_back(p);
        }
      }
      all.sum -= node::capacity(task, at.free, at.host);
    }
    for (const std::uint32_t p : banned) banned_[p] = 0;
    return placed;
  }
  // Lists the usable nodes of a cell by rank, then by position. False if the steps are not enough.
  [[nodiscard]] bool list_candidates(pin in, const constrained_task_group& task, candidates& to) {
    const auto inside = positions_inside(state_.layout().tree(), in.level, in.cell, 0);
    const std::uint64_t price = inside.size() / 32;
    if (steps_ + price > limit_) {
      steps_ = (std::max)(steps_, limit_ + 1);
      return false;
    }
    steps_ += price;
    to.in = in;
    std::array<std::uint32_t, 66>
        ranks{};  // of each rank, plus one: its nodes; then where they start
    for (const cell_id p : inside) {
      const node& at = nodes_[p.value];
      if (!at.usable) continue;
      ++ranks[at.rank(task) + 1];
      const std::uint32_t now = node::capacity(task, at.free, at.host);
      to.sum += now;
      if (at.freed) continue;
      const std::uint32_t idle = node::capacity(task, at.whole, at.whole_host);
      to.gain = (std::max)(to.gain, (std::max)(now, idle) - now);
    }
    for (std::size_t r = 1; r < ranks.size(); ++r) ranks[r] += ranks[r - 1];
    to.nodes.resize(ranks.back());
    for (const cell_id p : inside)
      if (nodes_[p.value].usable) to.nodes[ranks[nodes_[p.value].rank(task)]++] = p.value;
    return true;
  }
  [[nodiscard]] bool try_node(std::size_t k, std::uint32_t p,
                              const std::vector<std::uint32_t>& pins, candidates& all) {
    const std::uint32_t t = failed_[k];
    const constrained_task_group& task = tasks_of_.group(t);
    bool allowed = true;
    for (level_t l = 0; l < pins.size(); ++l)
      allowed = allowed && (pins[l] == none || cell(p, l) == pins[l]);
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
    const std::uint64_t sum = all.sum;
    all.sum += node::capacity(task, at.free, at.host);
    all.sum -= node::capacity(task, before.free, before.host);
    const bool placed = place(k + 1, &all);
    all.next = next;
    all.sum = sum;
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
      const node& at = nodes_[p];
      const node_id id(state_.layout().node_at(p));
      const auto [of_node, is_first] = left.try_emplace(p, at.freed ? at.idle : at.start);
      std::uint32_t mask = 0;
      for (std::uint32_t g = 0; g < tasks_of_.group(t).gpus; ++g) {
        mask |= of_node->second & (0 - of_node->second);
        of_node->second &= of_node->second - 1;
      }
      tasks_.push_back({id, mask});
      if (!at.freed || !is_first) continue;
      freed_.push_back(id);
      gpus_to_free_ += static_cast<std::uint64_t>(std::popcount(at.idle & ~at.start));
    }
    merge_sort(freed_);
  }

  using cell_of_group = std::array<std::uint32_t, 3>;  // task group, level, cell

  const scheduled_gangs& state_;
  const gang_scheduler_types::running_gang& gang_;
  const lean_vector<unsigned char>& accepts_;
  std::uint64_t budget_;
  std::uint64_t steps_;
  std::uint64_t limit_ = 0;  // steps until the end of the level
  std::size_t to_free_ = 0;
  level_t level_ = 0;
  tasks_of_gang tasks_of_;
  std::vector<cells_of_tasks> stays_;  // by level
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
