// apiary/fgd/detail/victim_index.h - the node where it costs least to make a task fit by evictions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/cost_tree.h>
#include <apiary/fgd/detail/evictable_jobs.h>
#include <apiary/fgd/detail/eviction_bounds.h>
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

// The victims for a task, all on one node.
struct victims_on_node {
  placement where{};  // where the task runs when they have ended
  std::vector<job_id> victims{};
  std::uint64_t cost = 0;         // of the victims
  std::uint64_t lower_bound = 0;  // no victims anywhere cost less
};

// Knows the jobs on each node that may be evicted, and for kinds of request a lower bound of what the
// eviction of enough of them costs on each node. A search takes the nodes in the order of these
// bounds, and searches each of them exactly until no other node can cost less. After a change of a
// node, its bound is what eviction_bounds knows, until a search for the kind comes to it.
//
// A kind has a priority, and its request is rounded down: CPU to powers of four, fractions to eighths of
// a GPU, memory to none, and it accepts all models. So what evictions cost for it is a bound for all
// requests of the kind. If these bounds are too low for a request on many nodes, in one search or in
// several, the index makes a kind for this request alone, without rounding. The answer is the same.
//
// Requires: touch() is called after each change of a node, and of the jobs on it.
// Cost:     find: O(1) for each change of a node since the last search for this kind. It improves
//           the bound of a node at most twice after each change of the node, if the bound is not
//           above the least cost. Then it searches each node whose bound is not above the least
//           cost. If these are more than max_nodes, it makes the kind of the request alone, the
//           bounds of which are higher. O(nodes) for a kind or a priority that is new or was
//           replaced: max_kinds, max_own_kinds and max_levels are kept at a time. If at most an
//           eighth of the nodes is allowed, it reads only these; otherwise each find reads the nodes
//           that are not allowed and cost less. If the kind is rounded, each find also reads the
//           nodes of other models that cost less.
//           Memory: 10 bytes a node and kind, 64 a node and priority, 72 a job on a node.
class victim_index {
 public:
  // The most rounded kinds with bounds.
  static constexpr std::size_t max_kinds = 128;
  // The most requests with kinds of their own.
  static constexpr std::size_t max_own_kinds = 64;
  // The most priorities for which bounds of each node are kept.
  static constexpr std::size_t max_levels = 16;
  // So many nodes are searched by the bounds of a rounded kind.
  static constexpr std::uint32_t max_nodes = 1024;

  // What find() returns.
  struct result {
    std::optional<victims_on_node> victims{};
    bool is_own = false;      // the kind was that of the request alone
    std::uint64_t steps = 0;  // how many bounds it read in ascending order
  };

  // So many nodes, without jobs.
  explicit victim_index(std::uint32_t nodes) {
    for (std::uint32_t n = 0; n < nodes; ++n) add_node();
  }
  // Adds the next node.
  void add_node() {
    const node_id n = jobs_on_.push_back({});
    for (level& l : levels_) {
      l.bounds.emplace_back();
      set_least(l, n);
    }
    touch(n);
  }
  // The number of nodes, those that were removed included.
  [[nodiscard]] std::uint32_t size() const noexcept { return jobs_on_.size(); }
  // Node n has changed.
  void touch(node_id n) {
    for (level& l : levels_) l.bounds[n.value].forget();
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
    jobs_on_[where.node].add(task, where.gpu_mask, priority, cost);
    set_least(where.node);
    touch(where.node);
  }
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, placement where, std::uint32_t priority) {
    jobs_on_[where.node].remove(task, where.gpu_mask, priority);
    set_least(where.node);
    touch(where.node);
  }

  // The least victims of priorities below this one for the task, on a node of `allowed` if that is
  // not null; nullopt if there are none. Of nodes that cost the same it takes the lowest id.
  // Requires: task.valid(); the task fits on no such node now.
  [[nodiscard]] result find(const node_table& nodes, const task_request& task,
                            std::uint32_t priority, const summary_bitset* allowed) {
    kind& bounds = bounds_of(nodes, task, priority);
    if (allowed != nullptr && std::size_t{8} * allowed->count() <= size()) {
      walk_.start(bounds.costs, *allowed);
    } else {
      walk_.start(bounds.costs);
    }
    result to{.is_own = bounds.is_own};
    std::optional<victims_on_node>& best = to.victims;
    std::uint64_t bound = cost_tree::never;  // of the nodes that were searched
    std::uint32_t tried = 0;
    std::uint32_t too_low = 0;  // nodes on which the bound of the kind was too low
    for (std::optional<cost_tree::entry> next = walk_.next(); next; next = walk_.next()) {
      ++to.steps;
      const node_id n(next->index);
      const std::uint64_t at_least = cost_of(*next);
      if (best && at_least > best->cost) break;
      // Once the bound of a search is the least cost, so are all that follow, and their ids are higher.
      const bool is_later = best && at_least == best->cost && n > best->where.node;
      if (is_later && is_searched(*next)) break;
      const bool suits = !task.wants_gpu() || nodes[n].accessible(task.models);
      if (!suits && bounds.is_own) {
        walk_.change(*next, cost_tree::never);  // until the node changes
        continue;
      }
      if ((allowed != nullptr && !allowed->test(n.value)) || !suits) {
        too_low += suits ? 0U : 1U;
        walk_.drop(*next);
        continue;
      }
      if (refine(nodes, bounds, *next)) continue;
      if (!bounds.is_own && ++tried > max_nodes) {
        walk_.finish();
        count_too_low(task, priority, enough_too_low());
        return find(nodes, task, priority, allowed);
      }
      walk_.drop(*next);
      const auto found = search_(nodes[n], task, jobs_on_[n].below(priority));
      if (found.verdict != fit_verdict::fits || found.cost > at_least) ++too_low;
      if (found.verdict != fit_verdict::fits) continue;
      bound = (std::min)(bound, found.lower_bound);
      if (best && (found.cost > best->cost || (found.cost == best->cost && n > best->where.node)))
        continue;
      if (!best) best.emplace();
      best->where = {n, found.gpu_mask};
      best->cost = found.cost;
      best->victims.clear();
      for (const std::uint32_t c : found.victims) best->victims.push_back(jobs_on_[n].job(c));
    }
    walk_.finish();
    if (too_low > 0 && !bounds.is_own) count_too_low(task, priority, too_low);
    if (best) {
      best->lower_bound = (std::min)(bound, best->cost);
      sort_unique(best->victims);
    }
    return to;
  }
  // The least sum of the bounds of `count` nodes; never if fewer nodes can run the task.
  // Requires: task.valid(); the task fits on no node now.
  [[nodiscard]] std::uint64_t least_sum(const node_table& nodes, const task_request& task,
                                        std::uint32_t priority, std::uint32_t count) {
    kind& bounds = bounds_of(nodes, task, priority);
    walk_.start(bounds.costs);
    std::uint64_t sum = 0;
    std::uint32_t i = 0;
    while (i < count) {
      const std::optional<cost_tree::entry> next = walk_.next();
      if (!next) break;
      if (refine(nodes, bounds, *next)) continue;
      walk_.drop(*next);
      sum += cost_of(*next);
      ++i;
    }
    walk_.finish();
    return i == count ? sum : cost_tree::never;
  }

 private:
  // What a task of one priority may evict.
  struct level {
    std::uint32_t priority = 0;
    std::vector<eviction_bounds> bounds{};  // by node
    std::uint64_t last_use = 0;
  };
  struct kind {
    task_request request{};  // of the bounds
    std::uint32_t priority = 0;
    std::uint32_t request_class = 0;  // of eviction_bounds
    bool is_own = false;              // the request is not rounded
    bool is_new = true;               // the costs are not known
    // By node: twice a bound, and one more if it is the bound of a search on the node.
    cost_tree costs{};
    std::uint64_t seen = 0;  // what is before this position of the log is in the costs
    std::uint64_t last_use = 0;
    eviction_bounds* nodes = nullptr;  // those of its level; found anew at each search
  };
  // A request that shares a kind with others, and on how many nodes the kind's bound was too low for it.
  struct shared_request {
    task_request request{};
    std::uint32_t priority = 0;
    std::uint64_t nodes_too_low = 0;
  };
  static constexpr std::size_t max_shared_requests = 64;
  static constexpr std::size_t ahead = 12;  // nodes that are loaded at a time

  [[nodiscard]] static task_request rounded(const task_request& task) noexcept {
    const std::uint32_t cpu = std::bit_floor(task.cpu_milli);
    task_request kind{.cpu_milli = (cpu & 0x55555555) != 0 ? cpu : cpu / 2};
    if (!task.wants_gpu()) return kind;
    kind.gpus = task.gpus;
    kind.gpu_milli = (std::max)(static_cast<milli_gpu>(task.gpu_milli / 125 * 125), milli_gpu{1});
    return kind;
  }
  // Whether two requests want the same. A request without GPU accepts all models.
  [[nodiscard]] static bool same(const task_request& a, const task_request& b) noexcept {
    return a.host() == b.host() && a.gpus == b.gpus &&
           (a.gpus == 0 || (a.gpu_milli == b.gpu_milli && a.models == b.models));
  }
  // The cost in the tree for a bound that is not that of a search.
  [[nodiscard]] static std::uint64_t entry_cost(std::uint64_t bound) noexcept {
    return bound == eviction_bounds::never ? cost_tree::never : 2 * bound;
  }
  // What a node costs at least.
  [[nodiscard]] static std::uint64_t cost_of(const cost_tree::entry& e) noexcept {
    return e.cost / 2;
  }
  // Whether the cost is that of a search.
  [[nodiscard]] static bool is_searched(const cost_tree::entry& e) noexcept {
    return e.cost % 2 != 0;
  }
  // If the entry, the next one of the walk, is not the bound of a search on the node, finds a greater
  // bound. Returns whether it did.
  bool refine(const node_table& nodes, const kind& of, const cost_tree::entry& e) {
    if (is_searched(e)) return false;
    const node_id n(e.index);
    eviction_bounds& here = of.nodes[n.value];
    if (!here.known()) here.fill(nodes[n], jobs_on_[n].below(of.priority));
    std::uint64_t cost = entry_cost(here.of(of.request_class));
    if (cost <= e.cost) {
      const auto found = quick_search_(nodes[n], of.request, jobs_on_[n].below(of.priority));
      cost = found.verdict == fit_verdict::fits ? 2 * (std::max)(found.lower_bound, cost_of(e)) + 1
                                                : cost_tree::never;
    }
    walk_.change(e, cost);
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
      found->bounds.resize(size());
      for (const node_id n : jobs_on_.ids()) set_least(*found, n);
    }
    found->last_use = uses_;
    return *found;
  }
  void set_least(level& of, node_id n) {
    of.bounds[n.value].reset(jobs_on_[n].least_below(of.priority));
  }
  // The jobs on node n have changed.
  void set_least(node_id n) {
    for (level& l : levels_) set_least(l, n);
  }
  [[nodiscard]] std::uint64_t end_of_log() const noexcept { return start_of_log_ + log_.size(); }
  // The bounds for tasks like this one, up to date.
  [[nodiscard]] kind& bounds_of(const node_table& nodes, const task_request& task,
                                std::uint32_t priority) {
    kind& found = kind_of(task, priority);
    found.last_use = ++uses_;
    found.nodes = level_of(priority).bounds.data();
    const auto update = [&](node_id n) {
      found.costs.set(n.value, entry_cost(found.nodes[n.value].of(found.request_class)));
    };
    found.costs.grow(nodes.size());
    if (found.is_new || found.seen < start_of_log_) {
      for (const node_id n : nodes.ids()) update(n);
    } else {
      // Most costs are not in the cache: the loads of some nodes run side by side.
      const auto load = [&](std::size_t i) {
        if (i >= log_.size()) return;
        found.costs.prefetch(log_[i].value);
        __builtin_prefetch(&found.nodes[log_[i].value]);
      };
      const auto seen = static_cast<std::size_t>(found.seen - start_of_log_);
      for (std::size_t i = seen; i < seen + ahead; ++i) load(i);
      for (std::size_t i = seen; i < log_.size(); ++i) {
        load(i + ahead);
        update(log_[i]);
      }
    }
    found.is_new = false;
    found.seen = last_read_ = end_of_log();
    return found;
  }
  // The kind of the task: its own one, if it has one or now gets one; otherwise the rounded one.
  [[nodiscard]] kind& kind_of(const task_request& task, std::uint32_t priority) {
    const task_request request = rounded(task);
    kind* found = nullptr;
    for (kind& k : kinds_) {
      if (k.priority != priority || !same(k.request, k.is_own ? task : request)) continue;
      found = &k;
      if (k.is_own) return k;
    }
    const auto shared = find_shared(task, priority);
    const bool own = shared != shared_.end() && shared->nodes_too_low >= enough_too_low();
    if (own) shared_.erase(shared);
    if (own || found == nullptr) found = &new_kind(own);
    if (found->is_new) {
      found->request = own ? task : request;
      found->priority = priority;
      found->request_class = eviction_bounds::class_of(task);
    }
    return *found;
  }
  // A kind to fill: one more, or in place of the one that was not used for the longest time.
  [[nodiscard]] kind& new_kind(bool own) {
    const auto alike =
        std::count_if(kinds_.begin(), kinds_.end(), [&](const kind& k) { return k.is_own == own; });
    kind* to = nullptr;
    if (static_cast<std::size_t>(alike) < (own ? max_own_kinds : max_kinds)) {
      to = &kinds_.emplace_back();
    } else {
      for (kind& k : kinds_)
        if (k.is_own == own && (to == nullptr || k.last_use < to->last_use)) to = &k;
      *to = {};
    }
    to->is_own = own;
    return *to;
  }
  // So many searches take longer than to make a kind.
  [[nodiscard]] std::uint64_t enough_too_low() const noexcept { return size() / 64 + 65; }
  [[nodiscard]] std::vector<shared_request>::iterator find_shared(const task_request& task,
                                                                  std::uint32_t priority) {
    return std::find_if(shared_.begin(), shared_.end(), [&](const shared_request& r) {
      return r.priority == priority && same(r.request, task);
    });
  }
  // A search for the task came to so many nodes that a kind of its own would have passed over.
  void count_too_low(const task_request& task, std::uint32_t priority, std::uint64_t nodes) {
    auto found = find_shared(task, priority);
    // A request takes over the count of the one that it replaces. Otherwise requests that replace each
    // other would never count enough. Of equal counts, it takes over that of the oldest one.
    if (found == shared_.end() && shared_.size() == max_shared_requests)
      found = std::min_element(shared_.begin(), shared_.end(),
                               [](const shared_request& a, const shared_request& b) {
                                 return a.nodes_too_low < b.nodes_too_low;
                               });
    std::uint64_t count = nodes;
    if (found != shared_.end()) {
      count += found->nodes_too_low;
      shared_.erase(found);
    }
    shared_.push_back({task, priority, (std::min)(count, enough_too_low())});
  }

  std::vector<node_id> log_{};  // nodes in the order of their changes; the first ones are dropped
  std::uint64_t start_of_log_ = 0;  // how many were dropped
  std::uint64_t last_read_ = 0;     // a kind has seen what is before this position
  std::vector<level> levels_{};
  dense_map<node_id, evictable_jobs> jobs_on_{};
  std::vector<kind> kinds_{};
  std::vector<shared_request> shared_{};  // in the order of their last counts
  std::uint64_t uses_ = 0;
  cost_tree::walk walk_{};
  shared_victim_search search_{};
  shared_victim_search quick_search_{16};
};

}  // namespace detail
APIARY_NAMESPACE_END
