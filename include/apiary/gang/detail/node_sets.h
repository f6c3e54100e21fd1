// apiary/gang/detail/node_sets.h - tasks on sets of equal nodes, and two greedy ways to pack them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace detail
APIARY_NAMESPACE_END
