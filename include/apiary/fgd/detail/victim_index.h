// apiary/fgd/detail/victim_index.h - the node where it costs least to make a task fit by evictions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/eviction_bounds.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/preempt/shared_victim_search.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs on a node that may be evicted, and what each of them uses there.
//
// Cost: add, remove: O(jobs on the node). The others: O(log jobs). Memory: 60 bytes for each job.
class evictable_jobs {
 public:
  using candidate = shared_victim_search::candidate;

  // A task of a job with this priority and cost runs on these GPUs.
  void add(const task_request& task, std::uint32_t gpu_mask, std::uint32_t priority,
           std::uint64_t cost) {
    const std::size_t at = position(priority, task.job);
    if (at == owners_.size() || owners_[at].job != task.job) {
      const auto offset = static_cast<std::ptrdiff_t>(at);
      owners_.insert(owners_.begin() + offset, {priority, 0, task.job});
      candidates_.insert(candidates_.begin() + offset, {.cost = cost});
    }
    ++owners_[at].tasks;
    candidates_[at].host += task.host();
    for (std::uint32_t mask = gpu_mask; mask != 0; mask &= mask - 1) {
      milli_gpu& used = candidates_[at].gpus[static_cast<std::size_t>(std::countr_zero(mask))];
      used = static_cast<milli_gpu>(used + task.gpu_milli);
    }
  }
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, std::uint32_t gpu_mask, std::uint32_t priority) {
    const std::size_t at = position(priority, task.job);
    APIARY_ASSERT(at < owners_.size() && owners_[at].job == task.job);
    candidates_[at].host -= task.host();
    for (std::uint32_t mask = gpu_mask; mask != 0; mask &= mask - 1) {
      milli_gpu& used = candidates_[at].gpus[static_cast<std::size_t>(std::countr_zero(mask))];
      used = static_cast<milli_gpu>(used - task.gpu_milli);
    }
    if (--owners_[at].tasks > 0) return;
    const auto offset = static_cast<std::ptrdiff_t>(at);
    owners_.erase(owners_.begin() + offset);
    candidates_.erase(candidates_.begin() + offset);
  }

  // The jobs of priorities below this one.
  [[nodiscard]] std::span<const candidate> below(std::uint32_t priority) const {
    return std::span(candidates_).first(position(priority, job_id(0)));
  }
  // The job of candidate `number`.
  [[nodiscard]] job_id job(std::size_t number) const noexcept { return owners_[number].job; }

 private:
  // A job, and how many of its tasks are on the node.
  struct owner {
    std::uint32_t priority = 0;
    std::uint32_t tasks = 0;
    job_id job{};
  };

  // Where the job is, or would be.
  [[nodiscard]] std::size_t position(std::uint32_t priority, job_id job) const {
    const auto at = std::lower_bound(owners_.begin(), owners_.end(), std::pair{priority, job},
                                     [](const owner& a, const std::pair<std::uint32_t, job_id>& b) {
                                       return std::pair{a.priority, a.job} < b;
                                     });
    return static_cast<std::size_t>(at - owners_.begin());
  }

  std::vector<owner> owners_{};          // by priority and id
  std::vector<candidate> candidates_{};  // what each owner uses
};

// The victims for a task, all on one node.
struct victims_on_node {
  placement where{};  // where the task runs when they have ended
  std::vector<job_id> victims{};
  std::uint64_t cost = 0;         // of the victims
  std::uint64_t lower_bound = 0;  // no victims anywhere cost less
};

// Knows the jobs on each node that may be evicted, and the eviction_bounds of each node. A search
// takes the nodes in the order of these bounds, and searches each of them exactly until no other
// node can cost less.
//
// Requires: touch() is called after each change of a node, and of the jobs on it.
// Cost:     find: O(nodes) for a look at the bounds, then a search on each node of which the bound
//           is not above the least cost; and eviction_bounds for each node that changed since the
//           last find for this priority. Those of max_levels priorities are kept. Memory: 116 bytes
//           a node and priority, 60 a job on a node.
class victim_index {
 public:
  // The cost of a node where no evictions are enough.
  static constexpr std::uint64_t never = eviction_bounds::never;
  // The most priorities for which bounds of each node are kept.
  static constexpr std::size_t max_levels = 16;

  // So many nodes, without jobs.
  explicit victim_index(std::uint32_t nodes) {
    for (std::uint32_t n = 0; n < nodes; ++n) add_node();
  }
  // Adds the next node.
  void add_node() { touch(jobs_on_.push_back({})); }
  // The number of nodes, those that were removed included.
  [[nodiscard]] std::uint32_t size() const noexcept { return jobs_on_.size(); }
  // Node n has changed.
  void touch(node_id n) {
    for (level& l : levels_) l.changed(n);
  }

  // A task of a job with this priority and cost may be evicted from now on.
  void add(const task_request& task, placement where, std::uint32_t priority, std::uint64_t cost) {
    jobs_on_[where.node].add(task, where.gpu_mask, priority, cost);
    touch(where.node);
  }
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, placement where, std::uint32_t priority) {
    jobs_on_[where.node].remove(task, where.gpu_mask, priority);
    touch(where.node);
  }

  // The least victims of priorities below this one for the task, on a node of `allowed` if that is
  // not null; nullopt if there are none. Of nodes that cost the same it takes the lowest id.
  // Requires: task.valid(); the task fits on no such node now.
  [[nodiscard]] std::optional<victims_on_node> find(const node_table& nodes,
                                                    const task_request& task,
                                                    std::uint32_t priority,
                                                    const summary_bitset* allowed) {
    open(nodes, task, priority, allowed);
    std::optional<victims_on_node> best;
    std::uint64_t bound = never;  // of the nodes that were searched
    while (!open_.empty()) {
      const candidate next = pop();
      if (best && std::pair{next.cost, next.node} > std::pair{best->cost, best->where.node}) break;
      if (refine(nodes, task, priority, next)) continue;
      const auto found = search_(nodes[next.node], task, jobs_on_[next.node].below(priority));
      if (found.verdict != fit_verdict::fits) continue;
      bound = (std::min)(bound, found.lower_bound);
      if (best && std::pair{found.cost, next.node} > std::pair{best->cost, best->where.node})
        continue;
      best.emplace();
      best->where = {next.node, found.gpu_mask};
      best->cost = found.cost;
      for (const std::uint32_t c : found.victims)
        best->victims.push_back(jobs_on_[next.node].job(c));
    }
    if (best) {
      best->lower_bound = (std::min)(bound, best->cost);
      sort_unique(best->victims);
    }
    return best;
  }
  // The least sum of the bounds of `count` nodes; never if fewer nodes can run the task.
  // Requires: task.valid(); the task fits on no node now.
  [[nodiscard]] std::uint64_t least_sum(const node_table& nodes, const task_request& task,
                                        std::uint32_t priority, std::uint32_t count) {
    open(nodes, task, priority, nullptr);
    std::uint64_t sum = 0;
    while (count > 0 && !open_.empty()) {
      const candidate next = pop();
      if (refine(nodes, task, priority, next)) continue;
      sum += next.cost;
      --count;
    }
    return count == 0 ? sum : never;
  }

 private:
  // What a task of one priority may evict.
  struct level {
    std::uint32_t priority = 0;
    std::uint64_t last_use = 0;
    std::array<std::vector<std::uint64_t>, eviction_bounds::num_classes> bounds{};  // by node
    std::vector<node_id> to_update{};  // nodes that have changed, each once
    std::vector<bool> is_old{};        // by node

    void changed(node_id n) {
      if (n.value >= is_old.size()) is_old.resize(n.value + std::size_t{1});
      if (is_old[n.value]) return;
      is_old[n.value] = true;
      to_update.push_back(n);
    }
  };
  // A node, and what victims there cost at least: by its bound, or by a search.
  struct candidate {
    std::uint64_t cost = 0;
    node_id node{};
    bool is_searched = false;
  };
  // Orders a heap with the least cost first, then the lowest id.
  static constexpr auto comes_later = [](const candidate& a, const candidate& b) {
    return a.cost != b.cost ? a.cost > b.cost : a.node > b.node;
  };

  // The bounds for this priority, up to date.
  [[nodiscard]] const level& level_of(const node_table& nodes, std::uint32_t priority) {
    auto found = std::find_if(levels_.begin(), levels_.end(),
                              [&](const level& l) { return l.priority == priority; });
    if (found == levels_.end()) {
      if (levels_.size() < max_levels) {
        found = levels_.emplace(levels_.end());
      } else {
        found = std::min_element(
            levels_.begin(), levels_.end(),
            [](const level& a, const level& b) { return a.last_use < b.last_use; });
      }
      found->priority = priority;
      for (const node_id n : jobs_on_.ids()) found->changed(n);
    }
    found->last_use = ++uses_;
    for (std::vector<std::uint64_t>& of_class : found->bounds) of_class.resize(size(), never);
    for (const node_id n : found->to_update) {
      const eviction_bounds now(nodes[n], jobs_on_[n].below(priority));
      for (std::uint32_t c = 0; c < found->bounds.size(); ++c)
        found->bounds[c][n.value] = now.of(c);
      found->is_old[n.value] = false;
    }
    found->to_update.clear();
    return *found;
  }
  // Starts a search: all nodes that may have victims are in the heap, by their bounds.
  void open(const node_table& nodes, const task_request& task, std::uint32_t priority,
            const summary_bitset* allowed) {
    const std::vector<std::uint64_t>& bounds =
        level_of(nodes, priority).bounds[eviction_bounds::class_of(task)];
    const bool any = !task.wants_gpu() || task.models == any_model;
    open_.clear();
    for (std::uint32_t n = 0; n < size(); ++n) {
      if (bounds[n] == never || (allowed != nullptr && !allowed->test(n))) continue;
      if (any || nodes[node_id(n)].accessible(task.models))
        open_.push_back({bounds[n], node_id(n)});
    }
    std::make_heap(open_.begin(), open_.end(), comes_later);
  }
  // Takes the candidate that costs least from the heap.
  [[nodiscard]] candidate pop() {
    std::pop_heap(open_.begin(), open_.end(), comes_later);
    const candidate next = open_.back();
    open_.pop_back();
    return next;
  }
  // If the candidate was not searched, searches in few steps, and puts it back at what victims cost
  // at least by this search, if there are any. Returns whether it was not searched.
  bool refine(const node_table& nodes, const task_request& task, std::uint32_t priority,
              const candidate& c) {
    if (c.is_searched) return false;
    const auto found = quick_search_(nodes[c.node], task, jobs_on_[c.node].below(priority));
    if (found.verdict != fit_verdict::fits) return true;
    open_.push_back({(std::max)(found.lower_bound, c.cost), c.node, true});
    std::push_heap(open_.begin(), open_.end(), comes_later);
    return true;
  }

  dense_map<node_id, evictable_jobs> jobs_on_{};
  std::vector<level> levels_{};
  std::uint64_t uses_ = 0;
  std::vector<candidate> open_{};  // a heap
  shared_victim_search search_{};
  shared_victim_search quick_search_{16};
};

}  // namespace detail
APIARY_NAMESPACE_END
