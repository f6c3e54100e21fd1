// apiary/gang/gang_fit.h - whether a gang fits, exactly, and on which nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/detail/bin_packing.h>
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

APIARY_NAMESPACE_BEGIN

// Decides whether the tasks of a gang fit on classes of equal nodes, each task on one node, and on
// which nodes. It knows GPUs only: no topology, CPU or memory. The answer is exact unless the step
// budget ends.
//
// 1. First fit: the largest tasks come first; each goes to the first node in use that has enough
//    free GPUs, otherwise to a node of the first such class. This is exact if every size divides
//    the next larger one.
// 2. For other sizes a count of slots may refuse the gang (`shortage`): a node with f free GPUs
//    holds tasks of s1, s2, ... only if floor(s1/t) + floor(s2/t) + ... is at most floor(f/t) for
//    every t. Otherwise best fit and a short bin_packing_search follow.
// 3. weight_search looks for weights that refuse the gang. Its linear program also places most
//    tasks of a large gang: the solution is rounded down to whole nodes, and the remaining tasks
//    are searched.
// 4. bin_packing_search takes the remaining steps. If it refuses the gang, there may be neither a
//    shortage nor weights.
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
    // If counts of slots prove that the gang does not fit: the count with the smallest slots.
    std::optional<gpu_shortage> shortage{};
    // If weights prove that the gang does not fit: the weight of a task of each group. The gang
    // weighs more than the nodes can hold.
    std::span<const std::uint32_t> weights{};
    // Steps of the searches, and of best fit: one for 256 looks at nodes. 0 if they were not
    // needed.
    std::uint64_t steps = 0;
  };

  // budget: the most steps of the searches; a step is about 0.1 microseconds.
  explicit gang_fit(std::uint64_t budget = 100'000) noexcept { set_budget(budget); }
  // Changes the step budget.
  void set_budget(std::uint64_t budget) noexcept {
    budget_ = (std::min)(budget, detail::step_budget::limit);
  }

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
    unpack(classes);
    if (!sets_.pack_first(groups_)) {
      shortage_ = find_shortage(classes);
      if (shortage_) return fit_verdict::does_not_fit;
      unpack(classes);
      std::uint64_t looks = 64 * budget_ + free_looks;
      const bool packed = sets_.pack_tightest(groups_, looks);
      steps_ = (std::min)((64 * budget_ + free_looks - looks) / looks_of_a_step, budget_);
      if (!packed) {
        const fit_verdict verdict = search(classes, groups.size());
        if (verdict != fit_verdict::fits) return verdict;
      }
    }
    list_nodes();
    return fit_verdict::fits;
  }
  using sized_group = detail::node_sets::sized_group;
  static constexpr std::uint64_t few_steps = 200;     // of bin_packing_search before weight_search
  static constexpr std::uint64_t more_steps = 5'000;  // and before pack_combinations
  // Best fit looks at so many sets of nodes, and at 64 more for each step of the budget.
  static constexpr std::uint64_t free_looks = 10'000;
  static constexpr std::uint64_t looks_of_a_step = 256;  // of best fit
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
    APIARY_ASSERT(std::all_of(classes.begin(), classes.end(),
                              [](const node_class& c) { return c.free <= max_gpus; }));
    sets_.assign(classes);
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
    unpack(classes);
    fit_verdict verdict = search_sets(few_steps);
    if (verdict == fit_verdict::budget_ended && steps_ < budget_) {
      const fit_verdict by_weights = weigh(groups);
      if (by_weights == fit_verdict::does_not_fit) return by_weights;
      verdict = search_sets(more_steps);
      if (verdict != fit_verdict::budget_ended) return replay(verdict);
      for (std::uint32_t fewer = 0; by_weights == fit_verdict::fits && fewer < 8; ++fewer)
        if (pack_combinations(classes, fewer)) return fit_verdict::fits;
      unpack(classes);
      verdict = search_sets(budget_);
    }
    return replay(verdict);
  }
  // Searches a packing on the node sets as they are.
  fit_verdict search_sets(std::uint64_t most_steps) {
    nodes_by_free_.fill(0);
    for (std::size_t p = 0; p < sets_.size(); ++p) {
      std::uint32_t& n = nodes_by_free_[sets_[p].left];
      n = sets_[p].nodes < ~n ? n + sets_[p].nodes : ~std::uint32_t{0};
    }
    sizes_.clear();
    for (const sized_group& g : groups_) {
      if (sizes_.empty() || sizes_.back().gpus != g.gpus) sizes_.push_back({g.gpus, 0});
      sizes_.back().tasks += g.tasks;
    }
    const fit_verdict verdict =
        search_(sizes_, nodes_by_free_, (std::min)(budget_ - steps_, most_steps));
    steps_ += search_.steps();
    return verdict;
  }
  // Puts the combinations of the linear program on whole nodes, each on `fewer` nodes less than in
  // its solution. Then it packs or searches the other tasks. Requires: there is a solution.
  bool pack_combinations(std::span<const node_class> classes, std::uint32_t fewer) {
    const detail::lean_vector<sized_group> all = groups_;
    bool packed = false;
    for (int searched = 0; searched < 2 && !packed && steps_ < budget_; ++searched) {
      ++steps_;
      unpack(classes);
      groups_ = all;
      weight_search_.for_each_combination([&](std::uint32_t free, std::uint32_t nodes,
                                              std::span<const std::int64_t> tasks) {
        nodes -= (std::min)(nodes, fewer);
        for (std::size_t p = 0; p < sets_.untouched() && nodes > 0; ++p) {
          if (sets_[p].left != free) continue;
          const std::uint32_t some = (std::min)(nodes, sets_[p].nodes);
          detail::put_combinations(p, some, std::span(std::as_const(weighed_)), tasks, groups_,
                                   [&](std::size_t set, std::uint32_t n, const sized_group& g,
                                       std::uint32_t each) { return sets_.give(set, n, g, each); });
          nodes -= some;
        }
      });
      groups_.erase_from(std::remove_if(groups_.begin(), groups_.end(),
                                        [](const sized_group& g) { return g.tasks == 0; }));
      if (groups_.empty()) {
        packed = true;
      } else if (searched == 0) {
        packed = sets_.pack_first(groups_);
      } else {
        packed = replay(search_sets(more_steps)) == fit_verdict::fits;
      }
    }
    groups_ = all;
    return packed;
  }
  // Repeats the steps of the search on the node sets, if it found a packing. Returns the verdict.
  fit_verdict replay(fit_verdict verdict) {
    if (verdict != fit_verdict::fits) return verdict;
    std::size_t group = 0;
    std::uint32_t tasks = 0;  // of the group, placed
    for (std::size_t i = 0; i < search_.decided(); ++i) {
      const auto step = [&](std::uint32_t u, std::uint32_t n) {
        const std::size_t end = sets_.size();
        for (std::size_t k = sets_.untouched(); k < end + sets_.untouched() && n > 0; ++k) {
          const std::size_t p = k < end ? k : k - end;  // nodes in use first
          while (n > 0 && sets_[p].nodes > 0 && search_.usable(i, sets_[p].left) == u) {
            const sized_group& g = groups_[group];
            const std::uint32_t some = (std::min)({n, sets_[p].nodes, g.tasks - tasks});
            sets_.give(p, some, g, 1);
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
    const bool packed = sets_.pack_first(groups_, group);
    APIARY_VERIFY(packed);
    return fit_verdict::fits;
  }
  // Searches for weights that refuse the gang; `fits` if there are none.
  fit_verdict weigh(std::size_t groups) {
    weighed_.clear();
    for (const auto& s : sizes_) weighed_.push_back({.gpus = s.gpus, .tasks = s.tasks});
    detail::step_budget steps(budget_ - steps_);
    const fit_verdict verdict = weight_search_(weighed_, nodes_by_free_, steps);
    steps_ += steps.steps();
    if (verdict != fit_verdict::does_not_fit) return verdict;
    weights_.assign(groups, 0);
    std::size_t size = 0;
    for (const sized_group& g : groups_) {
      while (sizes_[size].gpus != g.gpus) ++size;
      weights_[g.index] = weight_search_.weights()[size];
    }
    return verdict;
  }
  void list_nodes() {
    for (std::size_t p = sets_.untouched(); p < sets_.size(); ++p) {
      const auto first = static_cast<std::uint32_t>(portions_.size());
      sets_.for_each_put(p, [&](std::uint32_t group, std::uint32_t tasks) {
        portions_.push_back({group, tasks});
      });
      const auto last = static_cast<std::uint32_t>(portions_.size());
      for (std::uint32_t n = 0; n < sets_[p].nodes; ++n)
        nodes_.push_back({sets_[p].node_class, first, last});
    }
  }

  std::uint64_t budget_ = 0;
  std::uint64_t steps_ = 0;
  std::optional<gpu_shortage> shortage_;
  detail::lean_vector<std::uint32_t> weights_;
  detail::lean_vector<used_node> nodes_;
  detail::lean_vector<portion> portions_;
  detail::lean_vector<sized_group> groups_;  // task groups in descending order of size
  detail::node_sets sets_;
  detail::lean_vector<detail::bin_packing_search::task_size> sizes_;
  detail::bin_packing_search search_;
  detail::bin_packing_search::histogram nodes_by_free_{};
  detail::lean_vector<detail::node_knapsack::task_size> weighed_;
  detail::weight_search weight_search_;
};

APIARY_NAMESPACE_END
