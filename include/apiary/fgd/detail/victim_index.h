// apiary/fgd/detail/victim_index.h - the node where it costs least to make a task fit by evictions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/cost_tree.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/preempt/shared_victim_search.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Knows the jobs on each node that may be evicted, and for kinds of request a lower bound of what the
// eviction of enough of them costs on each node. A search takes the nodes in the order of these
// bounds, and searches each of them exactly until no other node can cost less. After a change of a node,
// its bound is the cost of the cheapest job there, until a search comes to it.
//
// A kind has a priority, and its request is rounded down: CPU to powers of four, fractions to eighths of
// a GPU, memory to none, and it accepts all models. So what evictions cost for it is a bound for all
// requests of the kind.
//
// Requires: touch() is called after each change of a node, and of the jobs on it.
// Cost:     find: O(1) for each change of a node since the last search for this kind, and one or two
//           searches of each node whose bound is not above the least cost, at most max_nodes once
//           victims are found; without victims, of each node with a bound. O(nodes), too, for a kind
//           or a priority that is new or was replaced: max_kinds and max_levels are kept at a time.
//           Nodes whose bound is low, but which are not allowed or have other models than the task
//           wants, are read at each find; if at most an eighth of the nodes is allowed, only these
//           are read. As a bound does not know memory, each find searches the nodes again on which
//           evictions free too little of it. Memory: 10 bytes for each node and kind, 8 for each node
//           and priority, 72 for each job on a node.
class victim_index {
 public:
  // The most kinds with bounds.
  static constexpr std::size_t max_kinds = 128;
  // The most priorities for which the cheapest job of each node is kept.
  static constexpr std::size_t max_levels = 16;
  // After so many nodes, a search ends if it has found victims.
  static constexpr std::uint32_t max_nodes = 1024;

  // The victims for a task, all on one node.
  struct answer {
    placement where{};  // where the task runs when they have ended
    std::vector<job_id> victims{};
    std::uint64_t cost = 0;         // of the victims
    std::uint64_t lower_bound = 0;  // no victims anywhere cost less
  };

  // So many nodes, without jobs.
  explicit victim_index(std::uint32_t nodes) {
    for (std::uint32_t n = 0; n < nodes; ++n) add_node();
  }
  // Adds the next node.
  void add_node() {
    const node_id n = jobs_on_.push_back({});
    for (level& l : levels_) l.least.push_back(cost_tree::never);
    touch(n);
  }
  // The number of nodes, those that were removed included.
  [[nodiscard]] std::uint32_t size() const noexcept { return jobs_on_.size(); }
  // Node n has changed.
  void touch(node_id n) {
    if (end_of_log() > last_read_ && log_.back() == n)
      return;  // no kind knows of its change before
    log_.push_back(n);
    if (log_.size() <= 2 * std::size_t{size()} + 64) return;
    const std::size_t half = log_.size() / 2;
    log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(half));
    start_of_log_ += half;
  }

  // A task of a job with this priority and cost may be evicted from now on.
  void add(const task_request& task, placement where, std::uint32_t priority, std::uint64_t cost) {
    node_jobs& here = jobs_on_[where.node];
    const std::size_t at = here.position(priority, task.job);
    if (at == here.owners.size() || here.owners[at].job != task.job) {
      const auto offset = static_cast<std::ptrdiff_t>(at);
      here.owners.insert(here.owners.begin() + offset, {priority, 0, task.job, 0});
      here.candidates.insert(here.candidates.begin() + offset, {.cost = cost});
    }
    ++here.owners[at].tasks;
    here.find_least(at);
    here.candidates[at].host += task.host();
    for (std::uint32_t mask = where.gpu_mask; mask != 0; mask &= mask - 1) {
      milli_gpu& used = here.candidates[at].gpus[static_cast<std::size_t>(std::countr_zero(mask))];
      used = static_cast<milli_gpu>(used + task.gpu_milli);
    }
    set_least(where.node);
    touch(where.node);
  }
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, placement where, std::uint32_t priority) {
    node_jobs& here = jobs_on_[where.node];
    const std::size_t at = here.position(priority, task.job);
    APIARY_ASSERT(at < here.owners.size() && here.owners[at].job == task.job);
    here.candidates[at].host -= task.host();
    for (std::uint32_t mask = where.gpu_mask; mask != 0; mask &= mask - 1) {
      milli_gpu& used = here.candidates[at].gpus[static_cast<std::size_t>(std::countr_zero(mask))];
      used = static_cast<milli_gpu>(used - task.gpu_milli);
    }
    if (--here.owners[at].tasks == 0) {
      const auto offset = static_cast<std::ptrdiff_t>(at);
      here.owners.erase(here.owners.begin() + offset);
      here.candidates.erase(here.candidates.begin() + offset);
      here.find_least(at);
    }
    set_least(where.node);
    touch(where.node);
  }

  // The least victims of priorities below this one for the task, on a node of `allowed` if that is
  // not null; nullopt if there are none. Of nodes that cost the same it takes the lowest id.
  // Requires: task.valid(); the task fits on no such node now.
  [[nodiscard]] std::optional<answer> find(const node_table& nodes, const task_request& task,
                                           std::uint32_t priority, const summary_bitset* allowed) {
    kind& bounds = bounds_of(nodes, task, priority);
    if (allowed != nullptr && std::size_t{8} * allowed->count() <= size()) {
      walk_.start(bounds.costs, *allowed);
    } else {
      walk_.start(bounds.costs);
    }
    std::optional<answer> best;
    std::uint64_t bound = cost_tree::never;
    std::uint32_t tried = 0;
    while (const std::optional<cost_tree::entry> next = walk_.next()) {
      const node_id n(next->index);
      const std::uint64_t at_least = cost_of(*next);
      if (best && at_least > best->cost) break;
      if (best && at_least == best->cost && n > best->where.node) {
        if (is_searched(*next)) break;  // so are all others of this cost, and their ids are higher
        continue;
      }
      if (allowed != nullptr && !allowed->test(n.value)) continue;
      if (task.wants_gpu() && !nodes[n].accessible(task.models)) continue;
      if (refine(nodes, bounds, *next)) continue;
      if (best && tried >= max_nodes) {
        bound = (std::min)(bound, at_least);
        break;
      }
      ++tried;
      const auto found = search_(nodes[n], task, candidates(n, priority));
      if (found.verdict != fit_verdict::fits) continue;
      bound = (std::min)(bound, found.lower_bound);
      if (best && (found.cost > best->cost || (found.cost == best->cost && n > best->where.node)))
        continue;
      if (!best) best.emplace();
      best->where = {n, found.gpu_mask};
      best->cost = found.cost;
      walk_.limit(2 * found.cost + 1);
      best->victims.clear();
      for (const std::uint32_t c : found.victims)
        best->victims.push_back(jobs_on_[n].owners[c].job);
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
    kind& bounds = bounds_of(nodes, task, priority);
    walk_.start(bounds.costs);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count;) {
      const std::optional<cost_tree::entry> next = walk_.next();
      if (!next) return cost_tree::never;
      if (refine(nodes, bounds, *next)) continue;
      sum += cost_of(*next);
      ++i;
    }
    return sum;
  }

 private:
  // A job on a node, and how many of its tasks are there.
  struct owner {
    std::uint32_t priority = 0;
    std::uint32_t tasks = 0;
    job_id job{};
    std::uint64_t least = 0;  // of its cost and the costs of those before it
  };
  // The jobs on a node, by priority and id.
  struct node_jobs {
    std::vector<owner> owners{};
    std::vector<shared_victim_search::candidate> candidates{};  // what each owner uses
    // Where the job is, or would be.
    [[nodiscard]] std::size_t position(std::uint32_t priority, job_id job) const {
      const auto at =
          std::lower_bound(owners.begin(), owners.end(), std::pair{priority, job},
                           [](const owner& a, const std::pair<std::uint32_t, job_id>& b) {
                             return std::pair{a.priority, a.job} < b;
                           });
      return static_cast<std::size_t>(at - owners.begin());
    }
    // Computes `least` again from owner number `at` on.
    void find_least(std::size_t at) {
      for (; at < owners.size(); ++at) {
        owners[at].least = candidates[at].cost;
        if (at > 0) owners[at].least = (std::min)(owners[at].least, owners[at - 1].least);
      }
    }
  };
  // What a task of one priority may evict.
  struct level {
    std::uint32_t priority = 0;
    std::vector<std::uint64_t>
        least{};  // by node, the cost of the cheapest job; never: there is none
    std::uint64_t last_use = 0;
  };
  struct kind {
    task_request request{};  // rounded down
    std::uint32_t priority = 0;
    // By node: twice a bound, and one more if it is the bound of a search on the node; otherwise it is
    // the cost of the cheapest job there.
    cost_tree costs{};
    std::uint64_t seen = 0;  // what is before this position of the log is in the costs
    bool is_new = true;      // nothing is
    std::uint64_t last_use = 0;
  };

  [[nodiscard]] static task_request rounded(const task_request& task) noexcept {
    const std::uint32_t cpu = std::bit_floor(task.cpu_milli);
    task_request kind{.cpu_milli = (cpu & 0x55555555) != 0 ? cpu : cpu / 2};
    if (!task.wants_gpu()) return kind;
    kind.gpus = task.gpus;
    kind.gpu_milli = (std::max)(static_cast<milli_gpu>(task.gpu_milli / 125 * 125), milli_gpu{1});
    return kind;
  }
  [[nodiscard]] static bool same(const task_request& a, const task_request& b) noexcept {
    return a.cpu_milli == b.cpu_milli && a.gpus == b.gpus && a.gpu_milli == b.gpu_milli;
  }
  // The jobs on the node that a task of this priority may evict.
  [[nodiscard]] std::span<const shared_victim_search::candidate> candidates(
      node_id n, std::uint32_t priority) const {
    return std::span(jobs_on_[n].candidates).first(jobs_on_[n].position(priority, job_id(0)));
  }
  // What a node costs at least.
  [[nodiscard]] static std::uint64_t cost_of(const cost_tree::entry& e) noexcept {
    return e.cost / 2;
  }
  // Whether the cost is that of a search.
  [[nodiscard]] static bool is_searched(const cost_tree::entry& e) noexcept {
    return e.cost % 2 != 0;
  }
  // If a search on the node of the entry was not made for the kind, makes it, and lets the walk return
  // the node again at the new bound. Returns whether it did.
  bool refine(const node_table& nodes, kind& of, const cost_tree::entry& e) {
    if (is_searched(e)) return false;
    const node_id n(e.index);
    const auto found = quick_search_(nodes[n], of.request, candidates(n, of.priority));
    std::uint64_t cost = cost_tree::never;
    if (found.verdict == fit_verdict::fits)
      cost = 2 * (std::max)(found.lower_bound, cost_of(e)) + 1;
    of.costs.set(n.value, cost);
    if (cost != cost_tree::never) walk_.again({cost, n.value});
    return true;
  }
  // The level of this priority.
  [[nodiscard]] level& level_of(std::uint32_t priority) {
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
      found->least.resize(size());
      for (const node_id n : jobs_on_.ids()) set_least(*found, n);
    }
    found->last_use = uses_;
    return *found;
  }
  void set_least(level& of, node_id n) {
    const std::size_t jobs = jobs_on_[n].position(of.priority, job_id(0));
    of.least[n.value] = jobs > 0 ? jobs_on_[n].owners[jobs - 1].least : cost_tree::never;
  }
  // The jobs on node n have changed.
  void set_least(node_id n) {
    for (level& l : levels_) set_least(l, n);
  }
  [[nodiscard]] std::uint64_t end_of_log() const noexcept { return start_of_log_ + log_.size(); }
  // The bounds for tasks like this one, up to date.
  [[nodiscard]] kind& bounds_of(const node_table& nodes, const task_request& task,
                                std::uint32_t priority) {
    const task_request request = rounded(task);
    auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const kind& k) {
      return k.priority == priority && same(k.request, request);
    });
    if (found == kinds_.end()) {
      if (kinds_.size() < max_kinds) {
        found = kinds_.emplace(kinds_.end());
      } else {
        found = std::min_element(kinds_.begin(), kinds_.end(), [](const kind& a, const kind& b) {
          return a.last_use < b.last_use;
        });
      }
      *found = {.request = request, .priority = priority};
    }
    found->last_use = ++uses_;
    const std::vector<std::uint64_t>& least = level_of(priority).least;
    const auto update = [&](node_id n) {
      const std::uint64_t cost = least[n.value];
      found->costs.set(n.value, cost == cost_tree::never ? cost : 2 * cost);
    };
    found->costs.grow(nodes.size());
    if (found->is_new || found->seen < start_of_log_) {
      for (const node_id n : nodes.ids()) update(n);
    } else {
      const auto seen = static_cast<std::size_t>(found->seen - start_of_log_);
      for (std::size_t i = seen; i < log_.size(); ++i) update(log_[i]);
    }
    found->is_new = false;
    found->seen = last_read_ = end_of_log();
    return *found;
  }

  std::vector<node_id> log_{};  // nodes in the order of their changes; the first ones are dropped
  std::uint64_t start_of_log_ = 0;  // how many were dropped
  std::uint64_t last_read_ = 0;     // a kind has seen what is before this position
  std::vector<level> levels_{};
  dense_map<node_id, node_jobs> jobs_on_{};
  std::vector<kind> kinds_{};
  std::uint64_t uses_ = 0;
  cost_tree::walk walk_{};
  shared_victim_search search_{};
  shared_victim_search quick_search_{16};
};

}  // namespace detail
APIARY_NAMESPACE_END
