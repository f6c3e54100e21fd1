// apiary/gang/detail/bin_packing.h - packs tasks of mixed sizes on classes of nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/fit_verdict.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Nodes by class and by the tasks that they have been given: equal nodes are one set. Sets of nodes
// without tasks come first, one for each class. Tasks are not taken back.
// Cost: give O(1), pack_first O(sizes * (groups + sets)), pack_tightest O(sets) for each set used.
class node_sets {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // A task group.
  struct sized_group {
    std::uint32_t gpus = 0;
    std::uint32_t tasks = 0;
    std::uint32_t index = 0;  // of the task group
  };
  // Equal nodes: of one class, with the same tasks and `left` free GPUs. Untouched ones come first.
  struct node_set {
    std::uint32_t node_class = 0;
    std::uint32_t nodes = 0;
    std::uint32_t left = 0;
    std::uint32_t last_put = none;  // index of what was put there last
  };
  [[nodiscard]] std::size_t size() const noexcept { return sets_.size(); }
  [[nodiscard]] const node_set& operator[](std::size_t p) const noexcept { return sets_[p]; }
  // The number of sets of nodes without tasks.
  [[nodiscard]] std::size_t untouched() const noexcept { return untouched_; }
  // Calls use(group, tasks) for what each node of set p has been given, the last first.
  template <class Use>
  void for_each_put(std::size_t p, const Use& use) const {
    for (std::uint32_t i = sets_[p].last_put; i != none; i = puts_[i].before)
      use(puts_[i].group, puts_[i].tasks);
  }
  // Begins with nodes of these classes without tasks.
  template <class NodeClass>
  void assign(std::span<const NodeClass> classes) {
    sets_.clear();
    puts_.clear();
    for (std::uint32_t c = 0; c < classes.size(); ++c) {
      sets_.push_back({c, classes[c].nodes, classes[c].free, none});
    }
    untouched_ = sets_.size();
  }
  // Puts `each` tasks of the group on each of `nodes` nodes of set p, which become a new set unless
  // they are all of a set in use. Returns their set.
  std::size_t give(std::size_t p, std::uint32_t nodes, const sized_group& group,
                   std::uint32_t each) {
    node_set after = sets_[p];
    after.nodes = nodes;
    after.left -= each * group.gpus;
    puts_.push_back({group.index, each, after.last_put});
    after.last_put = static_cast<std::uint32_t>(puts_.size() - 1);
    if (p >= untouched_ && nodes == sets_[p].nodes) {
      sets_[p] = after;
      return p;
    }
    sets_[p].nodes -= nodes;
    sets_.push_back(after);
    return sets_.size() - 1;
  }
  // First fit: places the groups from first_group on. Requires: descending sizes.
  bool pack_first(std::span<const sized_group> groups, std::size_t first_group = 0) {
    std::size_t first = untouched_;  // no set in use before this one holds a task of the size
    for (std::size_t g = first_group; g < groups.size(); ++g) {
      std::uint32_t tasks = groups[g].tasks;
      const std::size_t end = sets_.size();
      if (g > first_group && groups[g].gpus != groups[g - 1].gpus) first = untouched_;
      while (first < end && (sets_[first].nodes == 0 || sets_[first].left < groups[g].gpus))
        ++first;
      for (std::size_t p = first; p < end && tasks > 0; ++p) tasks = fill(p, groups[g], tasks);
      for (std::size_t p = 0; p < untouched_ && tasks > 0; ++p) tasks = fill(p, groups[g], tasks);
      if (tasks > 0) return false;
    }
    return true;
  }
  // Best fit. False also after so many looks at sets. Leaves in `looks` how many of them remain.
  bool pack_tightest(std::span<const sized_group> groups, std::uint64_t& looks) {
    for (const sized_group& group : groups) {
      std::uint32_t tasks = group.tasks;
      while (tasks > 0) {
        std::size_t best = sets_.size();
        if (looks < best) return false;
        looks -= best;
        const auto consider = [&](std::size_t p) {
          const node_set& at = sets_[p];
          if (at.nodes > 0 && at.left >= group.gpus &&
              (best == sets_.size() || at.left < sets_[best].left))
            best = p;
        };
        for (std::size_t p = untouched_; p < sets_.size(); ++p) consider(p);
        for (std::size_t p = 0; p < untouched_; ++p) consider(p);
        if (best == sets_.size()) return false;
        tasks = fill(best, group, tasks);
      }
    }
    return true;
  }

 private:
  struct put {
    std::uint32_t group = 0;
    std::uint32_t tasks = 0;
    std::uint32_t before = none;  // what was put there before
  };
  // Puts as many tasks of the group as possible on node_set p, at most `tasks`. Returns the rest.
  std::uint32_t fill(std::size_t p, const sized_group& group, std::uint32_t tasks) {
    const std::uint32_t nodes = sets_[p].nodes;
    if (nodes == 0 || sets_[p].left < group.gpus) return tasks;
    const std::uint32_t each = sets_[p].left / group.gpus;
    const std::uint32_t whole = (std::min)(nodes, tasks / each);
    if (whole > 0) give(p, whole, group, each);
    tasks -= whole * each;
    if (tasks == 0 || whole == nodes) return tasks;
    give(p, 1, group, tasks);
    return 0;
  }

  lean_vector<node_set> sets_;
  std::size_t untouched_ = 0;
  lean_vector<put> puts_;
};

// Puts the same tasks on each of `nodes` nodes of set p: tasks[i] tasks of size sizes[i], or fewer
// if fewer are left. It takes the tasks of a size from one group of this size after another.
// groups: a vector in any order, with `gpus` and `tasks`; the tasks that it puts are subtracted
// from `tasks`. give(p, nodes, group, each): puts `each` tasks on each of `nodes` nodes of set p.
// Returns the set of these nodes.
// Cost: O(groups * (sizes + groups of a size)).
template <class Groups, class Size, class Give>
void put_combinations(std::size_t p, std::uint32_t nodes, std::span<const Size> sizes,
                      std::span<const std::int64_t> tasks, Groups& groups, const Give& give) {
  lean_vector<std::pair<std::size_t, std::uint32_t>> sets;
  sets.push_back({p, nodes});
  lean_vector<std::pair<std::size_t, std::uint32_t>> next;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto each = static_cast<std::uint32_t>(tasks[i]);
    if (each == 0) continue;
    auto group = groups.begin();
    const auto find_group = [&] {
      while (group != groups.end() && (group->gpus != sizes[i].gpus || group->tasks == 0)) ++group;
      return group != groups.end();
    };
    next.clear();
    for (const auto& [set, count] : sets) {
      std::uint32_t left = count;
      while (left > 0 && find_group()) {
        const std::uint32_t whole = (std::min)(left, group->tasks / each);
        if (whole > 0) {
          next.push_back({give(set, whole, *group, each), whole});
          group->tasks -= whole * each;
          left -= whole;
          continue;
        }
        std::size_t one = set;  // a node that takes tasks of several groups
        for (std::uint32_t missing = each; missing > 0 && find_group();) {
          const std::uint32_t some = (std::min)(missing, group->tasks);
          one = give(one, 1, *group, some);
          group->tasks -= some;
          missing -= some;
        }
        next.push_back({one, 1});
        --left;
      }
      if (left > 0) next.push_back({set, left});
    }
    sets.swap(next);
  }
}

// Branch and bound over histograms of nodes by free GPUs. It decides which nodes take tasks of the
// largest size, then of the next one, until the remaining sizes divide one another (gang_fit).
//   * Free GPUs are rounded down to a sum of remaining sizes (`usable`). Equal nodes beyond the
//     number of tasks are ignored.
//   * A node that takes several equal tasks goes down in equal steps. For each count of free GPUs,
//     highest first, the search decides how many nodes step down: few first (best fit).
//   * If a task leaves nothing usable on a node, the task may go there: in any packing, swap it
//     with all tasks that the node holds.
//   * For each remaining size t: a task of s GPUs holds floor(s / t) slots of t GPUs, a node with f
//     free GPUs at most floor(f / t).
//   * A failure at the beginning of a size is remembered, until another one overwrites it.
// Requires: sizes are distinct, in descending order, at most 64, and each has tasks.
// Cost:     at most `budget` steps of O(64); beginning a size takes O(64 sizes). Memory: 0.6 KB for
//           each size and at most 8 MB of failures.
class bin_packing_search {
 public:
  static constexpr std::uint32_t max_gpus = 64;
  using histogram = std::array<std::uint32_t, max_gpus + 1>;  // nodes by free GPUs
  struct task_size {
    std::uint32_t gpus = 0;
    std::uint32_t tasks = 0;
  };

  fit_verdict operator()(std::span<const task_size> sizes, const histogram& nodes,
                         std::uint64_t budget) {
    begin(sizes, budget);
    if (sizes.empty()) return fit_verdict::fits;
    enter(0, nodes);
    return search(0);
  }
  // After `fits`, for each size i from 0 to decided()-1: first exact(i) nodes with usable(i, free)
  // equal to size i take a task; then, for each u in descending order, steps(i)[u] nodes with
  // usable(i, free) == u take one.
  [[nodiscard]] std::size_t decided() const noexcept { return decided_; }
  [[nodiscard]] std::uint32_t usable(std::size_t i, std::uint32_t free) const noexcept {
    return levels_[i].usable[free];
  }
  [[nodiscard]] std::uint32_t exact(std::size_t i) const noexcept { return levels_[i].exact; }
  [[nodiscard]] const histogram& steps(std::size_t i) const noexcept { return levels_[i].steps; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  struct level {
    task_size size;
    std::uint32_t tasks_left;                       // of this size and smaller ones
    std::uint64_t gpus_left;                        // their GPUs
    std::array<std::uint8_t, max_gpus + 1> usable;  // the largest sum of these sizes up to f
    histogram nodes;                                // by usable GPUs, at most tasks_left
    histogram steps;                                // taken from there
    std::uint32_t exact;
  };
  void begin(std::span<const task_size> sizes, std::uint64_t budget) {
    budget_ = budget;
    steps_ = 0;
    decided_ = 0;
    levels_.resize(sizes.size());
    for (std::size_t i = sizes.size(); i-- > 0;) {
      level& at = levels_[i];
      at.size = sizes[i];
      at.tasks_left = at.size.tasks;
      at.gpus_left = std::uint64_t{at.size.gpus} * at.size.tasks;
      at.usable.fill(0);
      if (i + 1 < sizes.size()) {
        APIARY_ASSERT(at.size.gpus > sizes[i + 1].gpus);
        at.tasks_left += levels_[i + 1].tasks_left;
        at.gpus_left += levels_[i + 1].gpus_left;
        at.usable = levels_[i + 1].usable;
      }
      for (std::uint32_t f = at.size.gpus; f <= max_gpus; ++f) {
        const std::uint32_t with = at.size.gpus + at.usable[f - at.size.gpus];
        if (with > at.usable[f]) at.usable[f] = static_cast<std::uint8_t>(with);
      }
    }
    dividing_ = sizes.size();
    while (dividing_ > 0 &&
           (dividing_ == sizes.size() || sizes[dividing_ - 1].gpus % sizes[dividing_].gpus == 0))
      --dividing_;
    failed_.assign(1, 0);
    failed_at_.fill(0);
  }
  // The nodes at the beginning of size i.
  void enter(std::size_t i, const histogram& before) noexcept {
    level& at = levels_[i];
    at.nodes.fill(0);
    at.steps.fill(0);
    for (std::uint32_t f = 1; f <= max_gpus; ++f) {
      std::uint32_t& n = at.nodes[at.usable[f]];
      n = before[f] < at.tasks_left - n ? n + before[f] : at.tasks_left;
    }
    at.nodes[0] = 0;
  }
  fit_verdict search(std::size_t i) {
    if (!enough(i)) return fit_verdict::does_not_fit;
    if (i >= dividing_) {
      decided_ = i;
      return fit_verdict::fits;
    }
    if (has_failed(i)) return fit_verdict::does_not_fit;
    level& at = levels_[i];
    std::uint32_t& whole = at.nodes[at.size.gpus];
    at.exact = whole < at.size.tasks ? whole : at.size.tasks;
    whole -= at.exact;
    const fit_verdict verdict = place(i, max_gpus, at.size.tasks - at.exact);
    if (verdict != fit_verdict::does_not_fit) return verdict;
    whole += at.exact;
    remember_failure(i);
    return verdict;
  }
  // Places n tasks of size i on nodes with at most u usable GPUs.
  fit_verdict place(std::size_t i, std::uint32_t u, std::uint32_t n) {
    level& at = levels_[i];
    if (n == 0) {
      enter(i + 1, at.nodes);
      return search(i + 1);
    }
    const std::uint32_t size = at.size.gpus;
    while (u >= size && at.nodes[u] == 0) --u;
    if (u < size) return fit_verdict::does_not_fit;
    std::uint64_t below = 0;  // tasks that nodes with fewer GPUs can take
    for (std::uint32_t f = size; f < u; ++f)
      if (at.nodes[f] != 0) below += std::uint64_t{at.nodes[f]} * (f / size);
    const std::uint32_t each = u / size;
    const std::uint32_t most = at.nodes[u] < n ? at.nodes[u] : n;
    const std::uint64_t least = below < n ? (n - below + each - 1) / each : 0;
    std::uint32_t& to = at.nodes[at.usable[u - size]];
    for (std::uint64_t step = least; step <= most; ++step) {
      if (steps_ == budget_) return fit_verdict::budget_ended;
      ++steps_;
      const auto x = static_cast<std::uint32_t>(step);
      at.nodes[u] -= x;
      to += x;
      at.steps[u] = x;
      const fit_verdict verdict = place(i, u - 1, n - x);
      if (verdict != fit_verdict::does_not_fit) return verdict;
      at.nodes[u] += x;
      to -= x;
      at.steps[u] = 0;
    }
    return fit_verdict::does_not_fit;
  }
  // The necessary conditions for sizes i and below.
  [[nodiscard]] bool enough(std::size_t i) const noexcept {
    const level& at = levels_[i];
    std::uint64_t free = 0;
    for (std::uint32_t u = 1; u <= max_gpus; ++u) free += std::uint64_t{at.nodes[u]} * u;
    if (free < at.gpus_left) return false;
    for (std::size_t k = i; k < levels_.size(); ++k) {
      const std::uint32_t t = levels_[k].size.gpus;
      std::uint64_t needed = 0;
      for (std::size_t j = i; j <= k; ++j)
        needed += std::uint64_t{levels_[j].size.tasks} * (levels_[j].size.gpus / t);
      for (std::uint32_t u = max_gpus; u >= t && needed > 0; --u) {
        const std::uint64_t there = at.nodes[u] == 0 ? 0 : std::uint64_t{at.nodes[u]} * (u / t);
        needed -= there < needed ? there : needed;
      }
      if (needed > 0) return false;
    }
    return true;
  }
  // Writes the state at size i to key_. Returns its index in failed_at_.
  std::size_t find_key(std::size_t i) {
    key_.assign(1, i);
    std::uint64_t hash = i;
    for (std::uint32_t u = 1; u <= max_gpus; ++u) {
      if (levels_[i].nodes[u] == 0) continue;
      key_.push_back(std::uint64_t{u} << 32 | levels_[i].nodes[u]);
      hash = (hash ^ key_.back()) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash % failed_at_.size());
  }
  [[nodiscard]] bool has_failed(std::size_t i) {
    std::size_t at = failed_at_[find_key(i)];
    if (at == 0 || failed_[at] != key_.size()) return false;
    for (const std::uint64_t word : key_)
      if (failed_[++at] != word) return false;
    return true;
  }
  void remember_failure(std::size_t i) {
    const std::size_t slot = find_key(i);
    if (failed_.size() > max_failed) {
      failed_.assign(1, 0);
      failed_at_.fill(0);
    }
    failed_at_[slot] = static_cast<std::uint32_t>(failed_.size());
    failed_.push_back(key_.size());
    failed_.append(key_.begin(), key_.end());
  }

  static constexpr std::size_t max_failed = 1'000'000;

  lean_vector<level> levels_;
  std::size_t dividing_ = 0;  // from here on the sizes divide one another
  std::size_t decided_ = 0;
  std::uint64_t budget_ = 0;
  std::uint64_t steps_ = 0;
  lean_vector<std::uint64_t> key_;
  lean_vector<std::uint64_t> failed_;            // lengths and keys
  std::array<std::uint32_t, 4096> failed_at_{};  // where the last one with this hash begins
};

}  // namespace detail
APIARY_NAMESPACE_END
