// apiary/gang/gang_fit.h - whether a gang fits, exactly, and on which nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>
#include <apiary/gang/detail/bin_packing_search.h>
#include <apiary/gang/detail/node_knapsack.h>
#include <apiary/gang/detail/step_budget.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Decides whether the tasks of a gang fit on classes of equal nodes, each task on one node, and on
// which nodes. It knows GPUs only: no topology, CPU or memory. The answer is exact unless the step
// budget ends.
//
// The largest tasks come first; each goes to the first node in use with enough free GPUs, otherwise
// to the first such class. If every size divides the next larger one, this is exact. For others,
// best fit and bin_packing_search follow, unless a count of slots refuses the gang (`shortage`): a
// node with f free GPUs holds tasks of s1, s2, ... only if floor(s1/t) + floor(s2/t) + ... is at
// most floor(f/t) for every t. If a short bin_packing_search does not decide, weight_search looks
// for weights that refuse the gang, and bin_packing_search follows with all steps. Its no may have
// neither a shortage nor weights.
//
// Model:    divisible sizes: Coffman, Garey, Johnson, "Bin packing with divisible item sizes" (J.
//           of Complexity 1987). Bounds: Fekete, Schepers, dual feasible functions (2001).
// Requires: task sizes from 1 to 64, at most 64 free GPUs on a node, fewer than 2^32 tasks.
// Cost:     O(groups * (log groups + classes) + sizes * (groups + classes) + nodes used), whatever
//           the number of tasks, if the first order succeeds or a count refuses the gang; otherwise
//           the budget on top. Memory: O(groups + classes + nodes used), 60 bytes a step at most.
class gang_fit {
 public:
  // The most GPUs of a node.
  static constexpr std::uint32_t max_gpus = detail::bin_packing_search::max_gpus;

  // A class of equal nodes: `nodes` nodes with `free` free GPUs each.
  struct node_class {
    std::uint32_t free = 0;   // free GPUs of each node
    std::uint32_t nodes = 0;  // how many nodes
  };
  // A node of a class with its portions. Nodes that hold the same tasks may name the same portions.
  struct used_node {
    std::uint32_t node_class = 0;  // index of the class
    std::uint32_t first = 0;       // its first portion
    std::uint32_t last = 0;        // the index after its last portion
  };
  // Tasks of a task group on a node.
  struct portion {
    std::uint32_t group = 0;  // index of the task group
    std::uint32_t tasks = 0;  // how many of its tasks
  };

  // What a search found. Spans are valid until the next call. `nodes` has equal nodes together.
  struct result {
    fit_verdict verdict = fit_verdict::does_not_fit;  // whether the gang fits
    std::span<const used_node> nodes{};               // the nodes that the gang uses
    std::span<const portion> portions{};              // what these nodes take
    // If counts of slots prove the no: the one with the smallest slots.
    std::optional<gpu_shortage> shortage{};
    // Of a task of each group, if weights prove the no: the gang weighs more than the nodes hold.
    std::span<const std::uint32_t> weights{};
    std::uint64_t steps = 0;  // steps of the searches, 0 if they were not needed
  };

  // budget: the most steps of the searches; a step is about 0.1 microseconds.
  explicit gang_fit(std::uint64_t budget = 100'000) noexcept : budget_(budget) {}
  // Changes the step budget.
  void set_budget(std::uint64_t budget) noexcept { budget_ = budget; }

  // Searches for a packing. `classes` are in order of preference.
  result operator()(std::span<const node_class> classes, std::span<const task_group> groups) {
    const fit_verdict verdict = decide(classes, groups);
    return {verdict, nodes_, portions_, shortage_, weights_, steps_};
  }

 private:
  fit_verdict decide(std::span<const node_class> classes, std::span<const task_group> groups) {
    steps_ = 0;
    shortage_.reset();
    weights_.clear();
    nodes_.clear();
    portions_.clear();
    sort(groups);
    if (!pack_first(classes)) {
      shortage_ = find_shortage(classes);
      if (shortage_) return fit_verdict::does_not_fit;
      if (!pack_tightest(classes)) {
        const fit_verdict verdict = search(classes, groups.size());
        if (verdict != fit_verdict::fits) return verdict;
      }
    }
    list_nodes();
    return fit_verdict::fits;
  }
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
    std::uint32_t last_put = none;
  };
  struct put {
    portion what;
    std::uint32_t before = none;  // what was put there before
  };
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint64_t few_steps = 200;  // of bin_packing_search before weight_search
  void sort(std::span<const task_group> groups) {
    groups_.clear();
    for (std::uint32_t m = 0; m < groups.size(); ++m) {
      APIARY_ASSERT(groups[m].gpus >= 1 && groups[m].gpus <= max_gpus);
      if (groups[m].tasks == 0) continue;
      groups_.push_back({groups[m].gpus, groups[m].tasks, m});
    }
    detail::merge_sort(groups_,
                       [](const sized_group& a, const sized_group& b) { return a.gpus > b.gpus; });
  }
  void unpack(std::span<const node_class> classes) {
    node_sets_.clear();
    puts_.clear();
    for (std::uint32_t c = 0; c < classes.size(); ++c) {
      APIARY_ASSERT(classes[c].free <= max_gpus);
      node_sets_.push_back({c, classes[c].nodes, classes[c].free, none});
    }
    untouched_ = node_sets_.size();
  }
  // Puts `each` tasks of the group on each of `nodes` nodes of set p, which become a new set.
  void give(std::size_t p, std::uint32_t nodes, const sized_group& group, std::uint32_t each) {
    node_set after = node_sets_[p];
    after.nodes = nodes;
    after.left -= each * group.gpus;
    puts_.push_back({{group.index, each}, after.last_put});
    after.last_put = static_cast<std::uint32_t>(puts_.size() - 1);
    if (p >= untouched_ && nodes == node_sets_[p].nodes) {
      node_sets_[p] = after;
    } else {
      node_sets_[p].nodes -= nodes;
      node_sets_.push_back(after);
    }
  }
  // Puts as many tasks of the group as possible on node_set p, at most `tasks`. Returns the rest.
  std::uint32_t fill(std::size_t p, const sized_group& group, std::uint32_t tasks) {
    const std::uint32_t nodes = node_sets_[p].nodes;
    if (nodes == 0 || node_sets_[p].left < group.gpus) return tasks;
    const std::uint32_t each = node_sets_[p].left / group.gpus;
    const std::uint32_t whole = (std::min)(nodes, tasks / each);
    if (whole > 0) give(p, whole, group, each);
    tasks -= whole * each;
    if (tasks == 0 || whole == nodes) return tasks;
    give(p, 1, group, tasks);
    return 0;
  }
  bool pack_first(std::span<const node_class> classes) {
    unpack(classes);
    return pack_rest(0);
  }
  // Places the groups from first_group on, on what is left.
  bool pack_rest(std::size_t first_group) {
    std::size_t first = untouched_;  // no set in use before this one holds a task of the size
    for (std::size_t g = first_group; g < groups_.size(); ++g) {
      std::uint32_t tasks = groups_[g].tasks;
      const std::size_t end = node_sets_.size();
      if (g > first_group && groups_[g].gpus != groups_[g - 1].gpus) first = untouched_;
      while (first < end &&
             (node_sets_[first].nodes == 0 || node_sets_[first].left < groups_[g].gpus))
        ++first;
      for (std::size_t p = first; p < end && tasks > 0; ++p) tasks = fill(p, groups_[g], tasks);
      for (std::size_t p = 0; p < untouched_ && tasks > 0; ++p) tasks = fill(p, groups_[g], tasks);
      if (tasks > 0) return false;
    }
    return true;
  }
  // Best fit. A step is a look at 64 sets of nodes.
  bool pack_tightest(std::span<const node_class> classes) {
    unpack(classes);
    std::uint64_t looks = 64 * budget_ + 10'000;
    for (const sized_group& group : groups_) {
      std::uint32_t tasks = group.tasks;
      while (tasks > 0) {
        std::size_t best = node_sets_.size();
        if (looks < best) return false;
        looks -= best;
        const auto consider = [&](std::size_t p) {
          const node_set& at = node_sets_[p];
          if (at.nodes > 0 && at.left >= group.gpus &&
              (best == node_sets_.size() || at.left < node_sets_[best].left))
            best = p;
        };
        for (std::size_t p = untouched_; p < node_sets_.size(); ++p) consider(p);
        for (std::size_t p = 0; p < untouched_; ++p) consider(p);
        if (best == node_sets_.size()) return false;
        tasks = fill(best, group, tasks);
      }
    }
    return true;
  }
  [[nodiscard]] std::optional<gpu_shortage> find_shortage(
      std::span<const node_class> classes) const {
    std::array<std::uint64_t, max_gpus + 1> tasks{};  // of each size
    for (const sized_group& g : groups_) tasks[g.gpus] += g.tasks;
    for (std::uint32_t t = 1; t <= groups_.front().gpus; ++t) {
      gpu_shortage s{t, 0, 0};
      for (std::uint32_t g = t; g <= groups_.front().gpus; ++g) s.needed += tasks[g] * (g / t);
      for (const node_class& c : classes) s.present += std::uint64_t{c.nodes} * (c.free / t);
      if (s.present < s.needed) return s;
    }
    return std::nullopt;
  }
  fit_verdict search(std::span<const node_class> classes, std::size_t groups) {
    detail::bin_packing_search::histogram nodes{};
    for (const node_class& c : classes) {
      std::uint32_t& n = nodes[c.free];
      n = c.nodes < ~n ? n + c.nodes : ~std::uint32_t{0};
    }
    sizes_.clear();
    for (const sized_group& g : groups_) {
      if (sizes_.empty() || sizes_.back().gpus != g.gpus) sizes_.push_back({g.gpus, 0});
      sizes_.back().tasks += g.tasks;
    }
    fit_verdict verdict = search_(sizes_, nodes, (std::min)(budget_, few_steps));
    steps_ = search_.steps();
    if (verdict == fit_verdict::budget_ended && steps_ < budget_) {
      if (find_weights(nodes, groups)) return fit_verdict::does_not_fit;
      verdict = search_(sizes_, nodes, budget_ - steps_);
      steps_ += search_.steps();
    }
    if (verdict != fit_verdict::fits) return verdict;
    // Repeats the steps of the search on the node sets.
    unpack(classes);
    std::size_t group = 0;
    std::uint32_t tasks = 0;  // of the group, placed
    for (std::size_t i = 0; i < search_.decided(); ++i) {
      const auto step = [&](std::uint32_t u, std::uint32_t n) {
        const std::size_t end = node_sets_.size();
        for (std::size_t k = untouched_; k < end + untouched_ && n > 0; ++k) {
          const std::size_t p = k < end ? k : k - end;  // nodes in use first
          while (n > 0 && node_sets_[p].nodes > 0 && search_.usable(i, node_sets_[p].left) == u) {
            const sized_group& g = groups_[group];
            const std::uint32_t some = (std::min)({n, node_sets_[p].nodes, g.tasks - tasks});
            give(p, some, g, 1);
            n -= some;
            tasks += some;
            if (tasks == g.tasks) {
              ++group;
              tasks = 0;
            }
          }
        }
        APIARY_ASSERT(n == 0);
      };
      if (search_.exact(i) > 0) step(sizes_[i].gpus, search_.exact(i));
      for (std::uint32_t u = max_gpus; u > 0; --u)
        if (search_.steps(i)[u] > 0) step(u, search_.steps(i)[u]);
    }
    const bool packed = pack_rest(group);
    APIARY_VERIFY(packed);
    return fit_verdict::fits;
  }
  bool find_weights(std::span<const std::uint32_t> nodes, std::size_t groups) {
    weighed_.clear();
    for (const auto& s : sizes_) weighed_.push_back({.gpus = s.gpus, .tasks = s.tasks});
    detail::step_budget steps(budget_ - steps_);
    const fit_verdict verdict = weight_search_(weighed_, nodes, steps);
    steps_ += steps.steps();
    if (verdict != fit_verdict::does_not_fit) return false;
    weights_.assign(groups, 0);
    std::size_t size = 0;
    for (const sized_group& g : groups_) {
      while (sizes_[size].gpus != g.gpus) ++size;
      weights_[g.index] = weight_search_.weights()[size];
    }
    return true;
  }
  void list_nodes() {
    for (std::size_t p = untouched_; p < node_sets_.size(); ++p) {
      const auto first = static_cast<std::uint32_t>(portions_.size());
      for (std::uint32_t i = node_sets_[p].last_put; i != none; i = puts_[i].before)
        portions_.push_back(puts_[i].what);
      const auto last = static_cast<std::uint32_t>(portions_.size());
      nodes_.insert(nodes_.end(), node_sets_[p].nodes, {node_sets_[p].node_class, first, last});
    }
  }

  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::optional<gpu_shortage> shortage_;
  std::vector<std::uint32_t> weights_;
  std::vector<used_node> nodes_;
  std::vector<portion> portions_;
  std::vector<sized_group> groups_;  // task groups in descending order of size
  std::vector<node_set> node_sets_;
  std::size_t untouched_ = 0;  // the number of node sets that are classes
  std::vector<put> puts_;
  std::vector<detail::bin_packing_search::task_size> sizes_;
  detail::bin_packing_search search_;
  std::vector<detail::node_knapsack::task_size> weighed_;
  detail::weight_search weight_search_;
};

APIARY_NAMESPACE_END
