// apiary/preempt/detail/unit_tables.h - the cheapest gangs to evict in a cell, for each task count.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/model/resources.h>
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

// The cells of a cluster from the nodes (height 0) up to those in which a gang must be, with the
// limits of one group of equal tasks.
struct eviction_levels {
  struct level {
    std::uint32_t step = 1;              // a cell holds a multiple of this many tasks
    std::uint32_t most = 0;              // and at most so many
    lean_vector<std::uint32_t> first{};  // the first child of each cell, and one after the last
    lean_vector<std::uint32_t> above{};  // the cell of the next level that each cell is in
  };
  std::vector<level> levels;
  node_amounts task;
  std::uint32_t tasks = 0;

  [[nodiscard]] std::size_t root() const noexcept { return levels.size() - 1; }
  [[nodiscard]] std::uint32_t num_cells(std::size_t h) const noexcept {
    return static_cast<std::uint32_t>(h == 0 ? levels[0].above.size() : levels[h].first.size() - 1);
  }
  [[nodiscard]] std::uint32_t bound(std::size_t h, std::uint64_t n) const noexcept {
    const auto fewer = static_cast<std::uint32_t>((std::min<std::uint64_t>)(n, levels[h].most));
    return levels[h].step == 1 ? fewer : fewer - fewer % levels[h].step;
  }
  // The nodes of a cell: from `first` up to, without, `second`.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> nodes(std::size_t h,
                                                              std::uint32_t c) const noexcept {
    std::uint32_t first = c;
    std::uint32_t last = c + 1;
    for (; h > 0; --h) {
      first = levels[h].first[first];
      last = levels[h].first[last];
    }
    return {first, last};
  }
  // The levels of a capacity_index from the nodes to level `top`, and the limits of the only one of
  // the colocated_groups.
  template <class Capacities, class Groups>
  void assign(const Capacities& capacities, level_t top, const Groups& groups) {
    const level_t node_level = capacities.node_level();
    levels.resize(std::size_t{top - node_level} + 1);
    task = {groups[0].gpus, groups[0].cpu_milli, groups[0].memory_mib};
    tasks = groups[0].tasks;
    for (level_t l = node_level; l <= top; ++l) {
      level& at = levels[l - node_level];
      at.step = groups.at(0, l).step;
      at.most = groups.at(0, l).most;
      at.above.resize(capacities.num_cells(l));
      at.first.clear();
      if (l == node_level) continue;
      level& below = levels[l - node_level - 1];
      for (std::uint32_t c = 0; c < capacities.num_cells(l); ++c) {
        const id_range<cell_id> children = capacities.inside(l, c, l - 1);
        at.first.push_back(children.first.value);
        for (const cell_id i : children) below.above[i.value] = c;
      }
      at.first.push_back(capacities.num_cells(l - 1));
    }
  }
  // Nodes without a tree, in cells of 16, for tasks without constraints.
  void assign(std::uint32_t num_nodes, std::uint32_t gpus, std::uint32_t num_tasks) {
    levels.assign(3, {1, num_tasks, {}, {}});
    task = {gpus, 0, 0};
    tasks = num_tasks;
    for (std::uint32_t n = 0; n < num_nodes; ++n) {
      if (n % 16 == 0) levels[1].first.push_back(n);
      levels[0].above.push_back(n / 16);
    }
    levels[1].above.assign(levels[1].first.size(), 0);
    levels[2].first = {0, static_cast<std::uint32_t>(levels[1].first.size())};
    levels[1].first.push_back(num_nodes);
  }
};

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
    states_.assign(candidates.size(), state::running);
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
    return levels_->bound(levels_->root(), most_[levels_->root()][root]);
  }
  // The root cell of a node.
  [[nodiscard]] std::uint32_t root_of(std::uint32_t node) const noexcept {
    std::uint32_t c = node;
    for (std::size_t h = 0; h < levels_->root(); ++h) c = levels_->levels[h].above[c];
    return c;
  }
  // A gang that runs, is evicted, or must not be evicted.
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return states_[j] == state::gone; }
  [[nodiscard]] bool running(std::uint32_t j) const noexcept {
    return states_[j] == state::running;
  }
  void set_evicted(std::uint32_t j, bool to) {
    if (evicted(j) == to) return;
    states_[j] = to ? state::gone : state::running;
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
  void set_protected(std::uint32_t j, bool to) noexcept {
    states_[j] = to ? state::kept : state::running;
  }
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

  [[nodiscard]] const eviction_levels& levels() const noexcept { return *levels_; }
  [[nodiscard]] std::span<const eviction_candidate> candidates() const noexcept {
    return candidates_;
  }
  [[nodiscard]] std::span<const gpus_on_node> allocations() const noexcept { return allocations_; }
  // What a task needs of what counts.
  [[nodiscard]] const node_amounts& task() const noexcept { return task_; }
  [[nodiscard]] bool hosted() const noexcept { return hosted_; }
  // The tasks on a node now, and if all candidates were evicted.
  [[nodiscard]] std::uint32_t tasks_on(std::uint32_t n) const noexcept {
    return static_cast<std::uint32_t>(capacity_[0][n]);
  }
  [[nodiscard]] std::uint32_t most_on(std::uint32_t n) const noexcept {
    return static_cast<std::uint32_t>(most_[0][n]);
  }
  // What a node has free.
  [[nodiscard]] node_amounts amounts(std::uint32_t n) const noexcept {
    if (!hosted_) return {free_[n], 0, 0};
    return {free_[n], hosts_[n].cpu_milli, hosts_[n].memory_mib};
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
  // Operations since begin(), each of some nanoseconds; the classes that read this one add theirs.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }
  void add_work(std::uint64_t operations) noexcept { work_ += operations; }

 private:
  enum class state : std::uint8_t { running, gone, kept };
  // Lists the allocations by node.
  void list_by_node() {
    first_on_.assign(free_.size() + 1, 0);
    candidate_of_.resize(allocations_.size());
    for (std::uint32_t j = 0; j < candidates_.size(); ++j)
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
        ++first_on_[allocations_[a].node];
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
    capacity_.resize(levels_->levels.size());
    most_.resize(capacity_.size());
    for (std::size_t h = 0; h < capacity_.size(); ++h) {
      capacity_[h].assign(levels_->num_cells(h), 0);
      most_[h].assign(levels_->num_cells(h), 0);
    }
    for (std::uint32_t n = 0; n < free_.size(); ++n) {
      node_amounts all = amounts(n);
      capacity_[0][n] = node_capacity(all);
      for (const item& i : on(n)) all += freed_by(i);
      most_[0][n] = node_capacity(all);
    }
    for (std::size_t h = 1; h < capacity_.size(); ++h)
      for (std::uint32_t c = 0; c < capacity_[h - 1].size(); ++c) {
        const std::uint32_t above = levels_->levels[h - 1].above[c];
        capacity_[h][above] += levels_->bound(h - 1, capacity_[h - 1][c]);
        most_[h][above] += levels_->bound(h - 1, most_[h - 1][c]);
      }
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

  const eviction_levels* levels_ = nullptr;
  node_amounts task_;
  std::array<std::uint32_t, 65> of_gpus_{};  // tasks on a node by free GPUs, if not hosted
  bool hosted_ = false;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  std::span<const resources> freed_;
  lean_vector<std::uint32_t> free_;
  lean_vector<resources> hosts_;
  lean_vector<state> states_;                         // of each candidate
  lean_vector<std::uint32_t> first_on_;               // of each node
  lean_vector<item> on_;                              // by node
  lean_vector<std::uint32_t> candidate_of_;           // of each allocation
  std::vector<lean_vector<std::uint64_t>> capacity_;  // by height and cell, without its own limit
  std::vector<lean_vector<std::uint64_t>> most_;      // as capacity_, if all candidates are evicted
  std::uint64_t work_ = 0;
};

// Computes for a cell the least cost of evictions for each capacity. The cost of a gang is either
// split among its allocations: then the costs of several cells add up to a lower bound.
//
// In a cell directly above the nodes, gangs on several nodes connect these nodes. For each set of
// connected nodes the search tries all subsets of the few largest of these gangs, and solves a
// knapsack of the other gangs on each node. The table of any other cell is the sum of the tables of
// its children.
// Requires: as group_costs.
// Cost:     table O(nodes of the cell * 2^connecting gangs * (GPUs of a node)^2) and O(tasks^2).
class unit_tables {
 public:
  // costs: of each allocation. Requires: both stay where they are.
  void begin(group_capacity& in, std::span<const std::uint64_t> costs) {
    in_ = &in;
    costs_ = costs;
    most_work_ = never;
  }
  // cost[s]: the least cost of evictions after which the cell holds s times the step of its level,
  // for each s that is possible. False if work() would exceed the limit; then the table is empty,
  // and work() is the limit.
  [[nodiscard]] bool table(std::size_t h, std::uint32_t c, lean_vector<std::uint64_t>& cost) {
    const bool solved =
        h == 1 ? solve_lowest(c, none, cost, nullptr) : solve_inner(h, c, none, cost, nullptr);
    if (!solved) cost.clear();
    return solved;
  }
  // Appends the allocations that table() has counted for `steps`. It may have counted only some of
  // the allocations of a gang. False, and some of them, if work() would exceed the limit.
  bool append_evictions(std::size_t h, std::uint32_t c, std::uint32_t steps,
                        lean_vector<std::uint32_t>& to) {
    lean_vector<std::uint64_t> cost;
    return h == 1 ? solve_lowest(c, steps, cost, &to) : solve_inner(h, c, steps, cost, &to);
  }
  // Tables end where work() would exceed this number.
  void limit_work(std::uint64_t most) noexcept { most_work_ = most; }

 private:
  static constexpr std::uint64_t never = group_capacity::never;
  using item = group_capacity::item;
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct local_gang {
    std::uint32_t candidate = 0;
    std::uint32_t nodes = 0;       // in the cell
    std::uint32_t first_node = 0;  // the first of them
    std::uint32_t tried = none;    // position among the gangs of which all subsets are tried
    std::uint64_t cost = 0;        // in the cell
  };
  struct local_item {
    std::uint32_t gang = 0;  // position in gangs_
    item what;
  };
  // Nodes of a cell that gangs connect.
  struct component {
    lean_vector<std::uint32_t> nodes;
    lean_vector<std::uint32_t> tried;  // gangs of which all subsets are tried
    lean_vector<std::uint64_t> cost;
    lean_vector<std::uint32_t> subset;  // of `tried`, for each cost
  };

  static constexpr std::size_t max_tried = 5;          // gangs of which all subsets are tried
  static constexpr std::size_t max_solved_nodes = 64;  // nodes times subsets of a component

  using table_choice = lean_vector<std::uint32_t>;

  static std::uint64_t add(std::uint64_t a, std::uint64_t b) noexcept {
    return a + b < a ? never : a + b;
  }
  // Whether so much more work is within the limit. If not, all work up to the limit is done.
  [[nodiscard]] bool may_work(std::uint64_t more) noexcept {
    const std::uint64_t now = in_->work();
    if (now <= most_work_ && more <= most_work_ - now) return true;
    if (now < most_work_) in_->add_work(most_work_ - now);
    return false;
  }
  // sum[k] = the least of sum[k - i] + part[i], for k up to `most`. False: beyond the limit.
  [[nodiscard]] bool add_table(lean_vector<std::uint64_t>& sum, std::span<const std::uint64_t> part,
                               std::size_t most, table_choice* choice) {
    if (part.size() == 1 && part[0] == 0 && choice == nullptr) return true;
    const std::size_t size = (std::min)(most + 1, sum.size() + part.size() - 1);
    const std::uint64_t more = std::uint64_t{(std::min)(size, sum.size())} * part.size();
    if (!may_work(more)) return false;
    next_.assign(size, never);
    if (choice != nullptr) choice->assign(size, 0);
    for (std::size_t i = 0; i < part.size(); ++i)
      for (std::size_t k = 0; k < sum.size() && k + i < size; ++k) {
        const std::uint64_t cost = add(sum[k], part[i]);
        if (cost >= next_[k + i]) continue;
        next_[k + i] = cost;
        if (choice != nullptr) (*choice)[k + i] = static_cast<std::uint32_t>(i);
      }
    in_->add_work(more);
    sum.swap(next_);
    return true;
  }
  [[nodiscard]] std::uint32_t steps_per_step(std::size_t h) const noexcept {
    return in_->levels().levels[h].step / in_->levels().levels[h - 1].step;
  }
  void take_steps(std::size_t h, const lean_vector<std::uint64_t>& sum,
                  lean_vector<std::uint64_t>& cost) const {
    const std::size_t each = steps_per_step(h);
    cost.clear();
    for (std::size_t s = 0; s < sum.size(); s += each) cost.push_back(sum[s]);
  }
  // Cells above the lowest: sums of their children. If `steps` is not none, appends the victims.
  [[nodiscard]] bool solve_inner(std::size_t h, std::uint32_t c, std::uint32_t steps,
                                 lean_vector<std::uint64_t>& cost,
                                 lean_vector<std::uint32_t>* victims) {
    const std::uint32_t first = in_->levels().levels[h].first[c];
    const std::uint32_t last = in_->levels().levels[h].first[c + 1];
    const std::size_t most = in_->levels().levels[h].most / in_->levels().levels[h - 1].step;
    lean_vector<std::uint64_t> sum{0};
    lean_vector<std::uint64_t> part;
    std::vector<table_choice> choices(victims == nullptr ? 0 : last - first);
    for (std::uint32_t i = first; i < last; ++i) {
      if (!table(h - 1, i, part) ||
          !add_table(sum, part, most, victims == nullptr ? nullptr : &choices[i - first]))
        return false;
    }
    take_steps(h, sum, cost);
    if (victims == nullptr) return true;
    std::size_t k = std::size_t{steps} * steps_per_step(h);
    for (std::uint32_t i = last; i-- > first;) {
      const std::uint32_t here = choices[i - first][k];
      k -= here;
      if (here > 0 && !append_evictions(h - 1, i, here, *victims)) return false;
    }
    return true;
  }
  // Solves one node if the gangs in the subset are evicted.
  [[nodiscard]] bool solve_node(std::uint32_t first, std::uint32_t n, std::uint32_t subset) {
    if (!may_work(0)) return false;
    node_amounts left = in_->amounts(first + n);
    node_gangs_.clear();
    for (std::uint32_t i = first_item_[n]; i < first_item_[n + 1]; ++i) {
      const local_gang& g = gangs_[items_[i].gang];
      const item& what = items_[i].what;
      if (g.tried != none) {
        if ((subset >> g.tried & 1) != 0) left += in_->freed_by(what);
        continue;
      }
      node_gangs_.push_back({costs_[what.allocation], in_->freed_by(what)});
    }
    const eviction_levels::level& at = in_->levels().levels[0];
    const bool solved = node_.solve(left, node_gangs_, in_->task(), at.step, at.most, in_->hosted(),
                                    most_work_ - in_->work());
    in_->add_work(node_.take_work());
    return solved || may_work(most_work_);
  }
  [[nodiscard]] bool solve_component(std::uint32_t first, component& at, std::size_t most) {
    at.cost.clear();
    at.subset.clear();
    for (std::uint32_t subset = 0; subset < 1U << at.tried.size(); ++subset) {
      std::uint64_t base = 0;
      for (std::size_t t = 0; t < at.tried.size(); ++t)
        if ((subset >> t & 1) != 0) base += gangs_[at.tried[t]].cost;
      sum_.assign(1, base);
      for (const std::uint32_t n : at.nodes) {
        if (!solve_node(first, n, subset) || !add_table(sum_, node_.cost(), most, nullptr))
          return false;
      }
      for (std::uint32_t k = 0; k < sum_.size(); ++k) keep_solution(at, k, sum_[k], subset);
    }
    return true;
  }
  static void keep_solution(component& at, std::uint32_t k, std::uint64_t cost,
                            std::uint32_t subset) {
    if (k >= at.cost.size()) {
      at.cost.resize(k + 1, never);
      at.subset.resize(k + 1, 0);
    }
    if (cost >= at.cost[k]) return;
    at.cost[k] = cost;
    at.subset[k] = subset;
  }
  // Fills sum_ with the costs of the nodes of a component if the subset is evicted, and choices_
  // and sets_ with the gangs that are evicted on each node.
  [[nodiscard]] bool sum_nodes_with_choices(std::uint32_t first, const component& at,
                                            std::uint32_t subset, std::size_t most) {
    if (choices_.size() < at.nodes.size()) {
      choices_.resize(at.nodes.size());
      sets_.resize(at.nodes.size());
    }
    sum_.assign(1, 0);
    for (std::size_t i = 0; i < at.nodes.size(); ++i) {
      if (!solve_node(first, at.nodes[i], subset)) return false;
      sets_[i].clear();
      for (std::size_t k = 0; k < node_.cost().size(); ++k) sets_[i].push_back(node_.set(k));
      if (!add_table(sum_, node_.cost(), most, &choices_[i])) return false;
    }
    return true;
  }
  // After sum_nodes_with_choices(): calls use(item) for each item that is evicted for capacity k.
  template <class Use>
  void for_each_evicted(const component& at, std::size_t k, const Use& use) {
    for (std::size_t i = at.nodes.size(); i-- > 0;) {
      const std::uint32_t here = choices_[i][k];
      k -= here;
      std::uint64_t set = here == 0 ? 0 : sets_[i][here];
      const std::uint32_t n = at.nodes[i];
      for (std::uint32_t t = first_item_[n]; set != 0 && t < first_item_[n + 1]; ++t) {
        if (gangs_[items_[t].gang].tried != none) continue;
        if ((set & 1) != 0) use(items_[t]);
        set >>= 1;
      }
    }
  }
  // A cell directly above the nodes.
  [[nodiscard]] bool solve_lowest(std::uint32_t c, std::uint32_t steps,
                                  lean_vector<std::uint64_t>& cost,
                                  lean_vector<std::uint32_t>* victims) {
    const std::uint32_t first = in_->levels().levels[1].first[c];
    list_gangs(first, in_->levels().levels[1].first[c + 1]);
    list_components();
    const std::size_t most = in_->levels().levels[1].most / in_->levels().levels[0].step;
    lean_vector<std::uint64_t> sum{0};
    std::vector<table_choice> choices(victims == nullptr ? 0 : num_components_);
    for (std::size_t i = 0; i < num_components_; ++i) {
      if (!solve_component(first, components_[i], most) ||
          !add_table(sum, components_[i].cost, most, victims == nullptr ? nullptr : &choices[i]))
        return false;
    }
    take_steps(1, sum, cost);
    if (victims == nullptr) return true;
    std::size_t k = std::size_t{steps} * steps_per_step(1);
    for (std::size_t i = num_components_; i-- > 0;) {
      const std::uint32_t here = choices[i][k];
      k -= here;
      if (here > 0 && !append_evictions_of(first, components_[i], here, most, *victims))
        return false;
    }
    return true;
  }
  [[nodiscard]] bool append_evictions_of(std::uint32_t first, const component& at, std::uint32_t k,
                                         std::size_t most, lean_vector<std::uint32_t>& to) {
    const std::uint32_t subset = at.subset[k];
    for (std::size_t t = 0; t < at.tried.size(); ++t)
      if ((subset >> t & 1) != 0)
        for (const local_item& i : items_)
          if (i.gang == at.tried[t]) to.push_back(i.what.allocation);
    if (!sum_nodes_with_choices(first, at, subset, most)) return false;
    for_each_evicted(at, k, [&](const local_item& i) { to.push_back(i.what.allocation); });
    return true;
  }

  // The gangs on these nodes.
  void list_gangs(std::uint32_t first, std::uint32_t last) {
    items_.clear();
    gangs_.clear();
    first_item_.clear();
    joined_.clear();
    local_of_.resize(in_->candidates().size(), none);
    for (std::uint32_t n = first; n < last; ++n) {
      first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
      joined_.push_back(n - first);
      if (in_->most_on(n) == in_->tasks_on(n)) continue;  // no eviction helps
      for (const item& on_node : in_->on(n)) {
        const std::uint32_t j = on_node.candidate;
        if (!in_->running(j) || (!in_->hosted() && on_node.gpus == 0)) continue;
        if (local_of_[j] == none) {
          local_of_[j] = static_cast<std::uint32_t>(gangs_.size());
          gangs_.push_back({j, 0, n - first, none, 0});
        }
        local_gang& g = gangs_[local_of_[j]];
        ++g.nodes;
        g.cost += costs_[on_node.allocation];
        items_.push_back({local_of_[j], on_node});
        const std::uint32_t x = representative(g.first_node);
        const std::uint32_t y = representative(n - first);
        joined_[(std::max)(x, y)] = (std::min)(x, y);
      }
    }
    first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
    for (const local_gang& g : gangs_) local_of_[g.candidate] = none;
    in_->add_work(items_.size() + joined_.size());
  }
  // The components of the nodes; in each, of which gangs all subsets are tried.
  void list_components() {
    num_components_ = 0;
    component_of_.assign(joined_.size(), none);
    for (std::uint32_t n = 0; n < joined_.size(); ++n) {
      const std::uint32_t r = representative(n);
      if (component_of_[r] == none) {
        component_of_[r] = static_cast<std::uint32_t>(num_components_++);
        if (components_.size() < num_components_) components_.emplace_back();
        components_[component_of_[r]].nodes.clear();
        components_[component_of_[r]].tried.clear();
      }
      component_of_[n] = component_of_[r];
      components_[component_of_[n]].nodes.push_back(n);
    }
    for (std::uint32_t g = 0; g < gangs_.size(); ++g)
      if (gangs_[g].nodes > 1) components_[component_of_[gangs_[g].first_node]].tried.push_back(g);
    for (std::size_t i = 0; i < num_components_; ++i) {
      component& at = components_[i];
      std::size_t tried = 0;
      while (tried < max_tried && tried < at.tried.size() &&
             (at.nodes.size() << tried) < max_solved_nodes)
        ++tried;
      if (tried < at.tried.size())
        std::sort(at.tried.begin(), at.tried.end(), [&](std::uint32_t a, std::uint32_t b) {
          return gangs_[a].nodes != gangs_[b].nodes ? gangs_[a].nodes > gangs_[b].nodes : a < b;
        });
      at.tried.resize(tried);
      for (std::uint32_t t = 0; t < tried; ++t) gangs_[at.tried[t]].tried = t;
    }
  }

  [[nodiscard]] std::uint32_t representative(std::uint32_t n) noexcept {
    while (joined_[n] != n) n = joined_[n] = joined_[joined_[n]];
    return n;
  }

  group_capacity* in_ = nullptr;
  std::span<const std::uint64_t> costs_;
  lean_vector<local_gang> gangs_;
  lean_vector<local_item> items_;
  lean_vector<std::uint32_t> first_item_;  // of each node of the cell
  std::vector<component> components_;
  std::size_t num_components_ = 0;

  lean_vector<std::uint32_t> local_of_;  // of each candidate
  lean_vector<std::uint32_t> joined_;
  lean_vector<std::uint32_t> component_of_;
  lean_vector<std::uint64_t> next_;
  lean_vector<std::uint64_t> sum_;
  node_evictions node_;
  lean_vector<node_evictions::gang> node_gangs_;
  std::vector<table_choice> choices_;             // of each node of a component
  std::vector<lean_vector<std::uint64_t>> sets_;  // of each node of a component, by capacity
  std::uint64_t most_work_ = never;
};

}  // namespace detail
APIARY_NAMESPACE_END
