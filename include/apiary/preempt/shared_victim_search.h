// apiary/preempt/shared_victim_search.h - the jobs of a node to evict for a task that shares GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Finds the jobs of a node whose eviction costs least, so that a task fits there: a task with a
// fraction of a GPU, with whole GPUs, or without GPU. A job is evicted as a whole or not at all.
//
// A branch and bound search chooses the GPUs that the task gets, and covers what is missing of
// them, of CPU and of memory. If the budget ends, the answer is the best set so far, with a lower
// bound. Whether there is a set does not depend on the budget.
//
// Requires: the costs of all candidates add up to less than 2^63; what is left on the node and what
//           the candidates use there is not more than the node has.
// Cost:     O(candidates * log candidates) for the first set, which the search finds without going
//           back; for a fraction of a GPU the same for a bound for each other GPU. Then the search
//           ends when no other set can cost less, or with the budget of O(1) steps. What is read
//           again for other GPUs counts, too. The depth of the calls is at most the number of GPUs,
//           however many candidates there are.
// Example:  through preemptive_sharing_scheduler examples/shared_preemption.cpp
class shared_victim_search {
 public:
  // A job that may be evicted, and what it uses on the node.
  struct candidate {
    std::uint64_t cost = 0;                           // of its eviction
    resources host{};                                 // CPU and memory
    std::array<milli_gpu, max_gpus_per_node> gpus{};  // thousandths of each GPU
    friend bool operator==(const candidate&, const candidate&) noexcept = default;
  };
  // The answer. Its verdict is `fits` or `does_not_fit`.
  struct result : victim_set {
    std::uint32_t gpu_mask = 0;  // the GPUs that the task gets when the victims have ended
  };
  // Steps that a search may take, the first set included, unless the caller says otherwise.
  static constexpr std::uint64_t default_budget = 20'000;

  // A search that ends after so many steps, but not before it has found the first set.
  explicit shared_victim_search(std::uint64_t budget = default_budget) noexcept : budget_(budget) {}

  // The victims for the task among the candidates; valid until the next call. None, and cost 0, if
  // the task fits already. The task does not fit on a bad node. Requires: task.valid().
  [[nodiscard]] result operator()(const node_state& node, const task_request& task,
                                  std::span<const candidate> candidates) {
    APIARY_ASSERT(task.valid());
    candidates_ = candidates;
    forced_.assign(candidates.size(), 0);
    victims_.clear();
    taken_.clear();
    best_ = cut_ = victim_set::never;
    steps_ = 0;
    mask_ = 0;
    if (find_gpus(node, task)) {
      const amounts missing{0, above(task.cpu_milli, node.left.cpu_milli),
                            above(task.memory_mib, node.left.memory_mib)};
      if (task.wants_whole_gpus()) {
        find_fees();
        choose_gpus(0, task.gpus, 0, {missing, 0, 0});
      } else if (task.wants_gpu()) {
        find_floors();
        for (std::size_t g = 0; g < usable_.size() && usable_[g].fee < best_; ++g)
          cover(
              {{usable_[g].missing, missing[1], missing[2]}, 0, std::uint32_t{1} << usable_[g].gpu},
              usable_[g].gpu);
      } else {
        cover({missing, 0, 0}, 0);
      }
    }
    result found;
    found.verdict = best_ == victim_set::never ? fit_verdict::does_not_fit : fit_verdict::fits;
    detail::merge_sort(victims_);
    found.victims = victims_;
    found.cost = best_;
    found.lower_bound = (std::min)(best_, cut_);
    found.steps = steps_;
    found.gpu_mask = mask_;
    return found;
  }

 private:
  static constexpr std::size_t looks_in_a_step = 16;  // at candidates
  static constexpr std::size_t sorted_in_a_step = 2;  // items that may cover what is missing

  // Thousandths of one GPU, CPU, memory.
  using amounts = std::array<std::uint64_t, 3>;
  // A GPU that the task can get if enough candidates end.
  struct usable_gpu {
    std::uint64_t fee = 0;  // no set that frees it costs less; for whole GPUs, fees add up
    std::uint32_t gpu = 0;
    std::uint32_t missing = 0;  // thousandths
  };
  // Part of an answer: GPUs for the task, and candidates that must end for them.
  struct partial {
    amounts missing{};       // that is still to be covered
    std::uint64_t cost = 0;  // of the candidates that must end
    std::uint32_t mask = 0;  // of the GPUs
  };
  // A candidate that may help to cover what is missing.
  struct item {
    std::uint64_t cost = 0;
    amounts gives{};
    std::uint32_t index = 0;
  };
  // Of the items from one on.
  struct rest {
    amounts sum{};
    amounts most{};            // of one item
    std::uint64_t before = 0;  // cost of all items before it
    std::size_t after = 0;     // the next item that is not equal to it
  };
  // A set before its last item was taken.
  struct open_set {
    partial part{};
    std::size_t item = 0;
  };

  [[nodiscard]] static std::uint64_t above(std::uint64_t wanted, std::uint64_t left) noexcept {
    return wanted > left ? wanted - left : 0;
  }
  [[nodiscard]] static bool covered(const amounts& missing) noexcept {
    return (missing[0] | missing[1] | missing[2]) == 0;
  }

  // Lists the usable GPUs. Returns whether the task would fit without all candidates.
  bool find_gpus(const node_state& node, const task_request& task) {
    usable_.clear();
    if (!node.healthy || (task.wants_gpu() && !node.accessible(task.models))) return false;
    std::uint64_t cpu = node.left.cpu_milli;
    std::uint64_t memory = node.left.memory_mib;
    std::array<std::uint32_t, max_gpus_per_node> gpus{};
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) gpus[i] = node.gpu_left[i];
    for (const candidate& c : candidates_) {
      cpu += c.host.cpu_milli;
      memory += c.host.memory_mib;
      for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) gpus[i] += c.gpus[i];
    }
    if (cpu < task.cpu_milli || memory < task.memory_mib) return false;
    if (!task.wants_gpu()) return true;
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      if (gpus[i] < task.gpu_milli) continue;
      const std::uint64_t missing = above(task.gpu_milli, node.gpu_left[i]);
      usable_.push_back({0, i, static_cast<std::uint32_t>(missing)});
    }
    return usable_.size() >= task.gpus;
  }

  // The fee of a GPU of which something is missing: the cheapest candidate on it. Sorts by that.
  void find_floors() {
    for (usable_gpu& g : usable_) {
      if (g.missing == 0) continue;
      g.fee = victim_set::never;
      for (const candidate& c : candidates_)
        if (c.gpus[g.gpu] > 0) g.fee = (std::min)(g.fee, c.cost);
    }
    sort_usable();
  }
  // Divides the cost of each candidate among the usable GPUs that it uses, and sorts them by that.
  void find_fees() {
    for (const candidate& c : candidates_) {
      std::uint64_t used = 0;
      for (const usable_gpu& g : usable_) used += c.gpus[g.gpu] > 0 ? 1U : 0U;
      if (used == 0) continue;
      for (usable_gpu& g : usable_)
        if (c.gpus[g.gpu] > 0) g.fee += c.cost / used;
    }
    sort_usable();
    fees_.assign(1, 0);
    for (const usable_gpu& g : usable_) fees_.push_back(fees_.back() + g.fee);
  }
  void sort_usable() {
    detail::merge_sort(usable_, [](const usable_gpu& a, const usable_gpu& b) {
      return a.fee != b.fee ? a.fee < b.fee : a.gpu < b.gpu;
    });
  }
  // Chooses `count` more whole GPUs from usable_[from] on; those chosen have fees of `paid`.
  void choose_gpus(std::size_t from, std::uint32_t count, std::uint64_t paid, const partial& part) {
    const std::uint64_t bound = (std::max)(part.cost, paid + fees_[from + count] - fees_[from]);
    if (bound >= best_ || ended(bound)) return;
    if (count == 0) return cover(part, 0);
    const std::uint32_t gpu = usable_[from].gpu;
    partial with = part;
    with.mask |= std::uint32_t{1} << gpu;
    const std::size_t mark = taken_.size();
    steps_ += candidates_.size() / looks_in_a_step;
    for (std::uint32_t c = 0; c < candidates_.size(); ++c) {
      if (candidates_[c].gpus[gpu] == 0 || forced_[c] != 0) continue;
      forced_[c] = 1;
      taken_.push_back(c);
      with.cost += candidates_[c].cost;
      with.missing[1] = above(with.missing[1], candidates_[c].host.cpu_milli);
      with.missing[2] = above(with.missing[2], candidates_[c].host.memory_mib);
    }
    choose_gpus(from + 1, count - 1, paid + usable_[from].fee, with);
    for (; taken_.size() > mark; taken_.pop_back()) forced_[taken_.back()] = 0;
    if (usable_.size() - from > count) choose_gpus(from + 1, count, paid, part);
  }

  // Covers what is missing with candidates that do not have to end anyway.
  void cover(const partial& part, std::uint32_t gpu) {
    if (part.cost >= best_) return;
    if (covered(part.missing)) return take(part.cost, part.mask);
    items_.clear();
    for (std::uint32_t c = 0; c < candidates_.size(); ++c) {
      if (forced_[c] != 0) continue;
      const candidate& from = candidates_[c];
      item one{from.cost, {from.gpus[gpu], from.host.cpu_milli, from.host.memory_mib}, c};
      std::uint64_t helps = 0;
      for (std::size_t d = 0; d < 3; ++d)
        helps |= one.gives[d] = (std::min)(one.gives[d], part.missing[d]);
      if (helps != 0) items_.push_back(one);
    }
    steps_ += candidates_.size() / looks_in_a_step + items_.size() / sorted_in_a_step;
    detail::merge_sort(items_, [](const item& a, const item& b) {
      return a.cost != b.cost ? a.cost < b.cost : a.gives > b.gives;
    });
    rests_.assign(items_.size() + 1, {});
    for (std::size_t j = items_.size(); j-- > 0;) {
      const bool is_equal = j + 1 < items_.size() && items_[j].cost == items_[j + 1].cost &&
                            items_[j].gives == items_[j + 1].gives;
      rests_[j].after = is_equal ? rests_[j + 1].after : j + 1;
      for (std::size_t d = 0; d < 3; ++d) {
        rests_[j].sum[d] = rests_[j + 1].sum[d] + items_[j].gives[d];
        rests_[j].most[d] = (std::max)(rests_[j + 1].most[d], items_[j].gives[d]);
      }
    }
    for (std::size_t j = 0; j < items_.size(); ++j)
      rests_[j + 1].before = rests_[j].before + items_[j].cost;
    cover_with_items(part);
  }
  // The same with the items, by a depth-first search: each item is taken or left. The search keeps
  // its own stack, because a set may be as large as the number of jobs on the node.
  void cover_with_items(partial part) {
    open_.clear();
    std::size_t j = 0;
    while (true) {
      bool helps = false;
      if (is_open(j, part)) {
        const item& next = items_[j];
        partial with = part;
        with.cost += next.cost;
        for (std::size_t d = 0; d < 3; ++d) {
          helps = helps || (part.missing[d] > 0 && next.gives[d] > 0);
          with.missing[d] = above(part.missing[d], next.gives[d]);
        }
        if (helps) {
          open_.push_back({part, j});
          taken_.push_back(next.index);
          part = with;
        }
      } else {
        if (open_.empty()) return;
        part = open_.back().part;
        j = open_.back().item;
        open_.pop_back();
        taken_.pop_back();
      }
      // Without this item: then without those that are equal to it, too.
      j = helps ? j + 1 : rests_[j].after;
    }
  }
  // Whether items from number j on may complete the set, for less than the best one costs. Keeps
  // the set if it is complete.
  bool is_open(std::size_t j, const partial& part) {
    if (covered(part.missing)) {
      take(part.cost, part.mask);
      return false;
    }
    std::size_t needed = 0;  // items at least
    for (std::size_t d = 0; d < 3; ++d) {
      if (part.missing[d] == 0) continue;
      if (rests_[j].sum[d] < part.missing[d]) return false;
      needed = (std::max)(
          needed,
          static_cast<std::size_t>((part.missing[d] + rests_[j].most[d] - 1) / rests_[j].most[d]));
    }
    const std::uint64_t bound = part.cost + rests_[j + needed].before - rests_[j].before;
    return bound < best_ && !ended(bound);
  }

  // Counts a step. Returns whether the budget has ended; then sets of at least this cost are not
  // tried. Until there is a set, each step leads to it: at most one for each GPU and for each
  // candidate.
  bool ended(std::uint64_t bound) noexcept {
    if (best_ == victim_set::never || steps_ < budget_) {
      ++steps_;
      return false;
    }
    cut_ = (std::min)(cut_, bound);
    return true;
  }
  // Keeps the candidates taken so far as the best set.
  void take(std::uint64_t cost, std::uint32_t mask) {
    if (cost >= best_) return;
    best_ = cost;
    mask_ = mask;
    victims_ = taken_;
  }

  std::uint64_t budget_;
  std::span<const candidate> candidates_{};
  std::vector<usable_gpu> usable_{};
  detail::lean_vector<std::uint64_t> fees_{};   // sums of the fees of the first usable GPUs
  detail::lean_vector<std::uint8_t> forced_{};  // by candidate: it must end for the chosen GPUs
  detail::lean_vector<std::uint32_t> taken_{};  // the candidates of the set that is tried
  std::vector<item> items_{};
  std::vector<rest> rests_{};
  std::vector<open_set> open_{};                  // by item taken; the stack of the search
  detail::lean_vector<std::uint32_t> victims_{};  // the best set
  std::uint64_t best_ = 0;                        // its cost
  std::uint64_t cut_ = 0;                         // no set that was not tried costs less
  std::uint64_t steps_ = 0;
  std::uint32_t mask_ = 0;
};

APIARY_NAMESPACE_END
