// apiary/fgd/detail/victim_index_inl.h - bodies of fgd/detail/victim_index.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/eviction_bounds.h>
#include <apiary/fgd/detail/victim_index.h>
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
#include <memory>
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

struct victim_index::body {
  explicit body(std::uint32_t nodes) {
    for (std::uint32_t n = 0; n < nodes; ++n) add_node();
  }
  void add_node() { touch(jobs_on_.push_back({})); }
  [[nodiscard]] std::uint32_t size() const noexcept { return jobs_on_.size(); }
  void touch(node_id n) {
    for (level& l : levels_) l.changed.add(n);
    changed_.add(n);
  }

  void add(const task_request& task, placement where, std::uint32_t priority, std::uint64_t cost) {
    jobs_on_[where.node].add(task, where.gpu_mask, priority, cost);
    touch(where.node);
  }
  void remove(const task_request& task, placement where, std::uint32_t priority) {
    jobs_on_[where.node].remove(task, where.gpu_mask, priority);
    touch(where.node);
  }

  void open(const node_table& nodes, const task_request& task, std::uint32_t priority,
            const summary_bitset* allowed) {
    task_ = task;
    priority_ = priority;
    allowed_ = allowed;
    changed_.clear();
    versions_.assign(size(), 0);
    cut_.clear();
    open_.clear();
    const std::vector<std::uint64_t>& bounds = bounds_of(nodes);
    for (std::uint32_t n = 0; n < size(); ++n)
      if (bounds[n] != never && may_run_on(nodes, node_id(n))) open_.push_back({bounds[n], n});
    std::make_heap(open_.begin(), open_.end(), comes_later);
    steps_ += size();
  }
  [[nodiscard]] std::optional<victims_on_node> least(const node_table& nodes,
                                                     std::uint64_t max_steps = never) {
    update(nodes);
    std::optional<victims_on_node> best;  // of the nodes that are searched now
    while (has_next()) {
      const candidate next = pop();
      const bool is_least = next.look() == how::exactly;
      if (is_least && best && best->where.node.value == next.node) {
        push(next);
        break;
      }
      const auto found = search(nodes, next, max_steps);
      if (found.verdict != fit_verdict::fits) continue;
      if (next.look() == how::by_bound) {
        push(next.again((std::max)(found.lower_bound, next.cost)));
        continue;
      }
      push(next.again(found.cost));
      if (found.lower_bound < found.cost) cut_.push_back(next.again(found.lower_bound));
      if (best &&
          std::pair{found.cost, node_id(next.node)} > std::pair{best->cost, best->where.node})
        continue;
      best.emplace();
      best->where = {node_id(next.node), found.gpu_mask};
      best->cost = found.cost;
      for (const std::uint32_t c : found.victims)
        best->victims.push_back(jobs_on_[node_id(next.node)].job(c));
      if (is_least) break;
    }
    if (!best) return best;
    best->lower_bound = best->cost;
    for (const candidate& c : cut_)
      if (is_current(c)) best->lower_bound = (std::min)(best->lower_bound, c.cost);
    sort_unique(best->victims);
    return best;
  }
  [[nodiscard]] std::uint64_t least_sum(const node_table& nodes, std::uint32_t count) {
    update(nodes);
    std::uint64_t sum = 0;
    std::vector<candidate> taken;
    while (taken.size() < count && has_next()) {
      const candidate next = pop();
      if (next.look() != how::by_bound) {
        sum += next.cost;
        taken.push_back(next);
        continue;
      }
      const auto found = search(nodes, next, never);
      if (found.verdict == fit_verdict::fits)
        push(next.again((std::max)(found.lower_bound, next.cost)));
    }
    for (const candidate& c : taken) push(c);
    return taken.size() == count ? sum : never;
  }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  // Nodes that have changed, each once.
  struct changed_nodes {
    std::vector<node_id> list{};
    std::vector<bool> is_listed{};  // by node

    void add(node_id n) {
      if (n.value >= is_listed.size()) is_listed.resize(n.value + std::size_t{1});
      if (is_listed[n.value]) return;
      is_listed[n.value] = true;
      list.push_back(n);
    }
    void clear() {
      for (const node_id n : list) is_listed[n.value] = false;
      list.clear();
    }
  };
  // What a task of one priority may evict.
  struct level {
    std::uint32_t priority = 0;
    std::uint64_t last_use = 0;
    std::array<std::vector<std::uint64_t>, eviction_bounds::num_classes> bounds{};  // by node
    changed_nodes changed{};  // since the bounds were computed
  };
  // How a node was looked at last.
  enum class how : std::uint8_t { by_bound, quickly, exactly };
  // A node, and what victims there cost at least; exactly: what those that were found cost.
  struct candidate {
    std::uint64_t cost = 0;
    std::uint32_t node = 0;
    std::uint32_t stamp = 0;  // the version of the node, and how it was looked at

    [[nodiscard]] how look() const noexcept { return static_cast<how>(stamp % version_step); }
    // The same node, looked at once more.
    [[nodiscard]] candidate again(std::uint64_t now) const noexcept {
      return {now, node, look() == how::exactly ? stamp : stamp + 1};
    }
  };
  static constexpr std::uint32_t version_step = 4;  // a power of two above all values of `how`
  // Orders a heap with the least cost first, then the lowest id.
  static constexpr auto comes_later = [](const candidate& a, const candidate& b) {
    return a.cost != b.cost ? a.cost > b.cost : a.node > b.node;
  };

  // The bounds for the search, up to date, by node.
  [[nodiscard]] const std::vector<std::uint64_t>& bounds_of(const node_table& nodes) {
    auto found = std::find_if(levels_.begin(), levels_.end(),
                              [&](const level& l) { return l.priority == priority_; });
    if (found == levels_.end()) {
      if (levels_.size() < max_levels) {
        found = levels_.emplace(levels_.end());
      } else {
        found = std::min_element(
            levels_.begin(), levels_.end(),
            [](const level& a, const level& b) { return a.last_use < b.last_use; });
      }
      found->priority = priority_;
      for (const node_id n : jobs_on_.ids()) found->changed.add(n);
    }
    found->last_use = ++uses_;
    for (std::vector<std::uint64_t>& of_class : found->bounds) of_class.resize(size(), never);
    for (const node_id n : found->changed.list) {
      const eviction_bounds now(nodes[n], jobs_on_[n].below(priority_));
      for (std::uint32_t c = 0; c < found->bounds.size(); ++c)
        found->bounds[c][n.value] = now.of(c);
    }
    found->changed.clear();
    return found->bounds[eviction_bounds::class_of(task_)];
  }
  [[nodiscard]] bool may_run_on(const node_table& nodes, node_id n) const {
    if (allowed_ != nullptr && !allowed_->test(n.value)) return false;
    return !task_.wants_gpu() || task_.models == any_model || nodes[n].accessible(task_.models);
  }
  // Nodes that have changed are as they were opened.
  void update(const node_table& nodes) {
    if (changed_.list.empty()) return;
    const std::vector<std::uint64_t>& bounds = bounds_of(nodes);
    for (const node_id n : changed_.list) {
      versions_[n.value] += version_step;
      if (bounds[n.value] != never && may_run_on(nodes, n))
        push({bounds[n.value], n.value, versions_[n.value]});
    }
    steps_ += changed_.list.size();
    changed_.clear();
  }
  // Whether the node has not changed since.
  [[nodiscard]] bool is_current(const candidate& c) const {
    return (c.stamp ^ versions_[c.node]) < version_step;
  }
  // Whether there is a candidate to pop(); it is_current().
  [[nodiscard]] bool has_next() {
    while (!open_.empty() && !is_current(open_.front())) static_cast<void>(pop());
    return !open_.empty();
  }
  // Takes the candidate that costs least from the heap.
  candidate pop() {
    std::pop_heap(open_.begin(), open_.end(), comes_later);
    const candidate next = open_.back();
    open_.pop_back();
    return next;
  }
  void push(const candidate& c) {
    open_.push_back(c);
    std::push_heap(open_.begin(), open_.end(), comes_later);
  }
  // Victims on the node of a candidate: in few steps if it was not looked at, or `max_steps` are
  // over.
  [[nodiscard]] shared_victim_search::result search(const node_table& nodes, const candidate& c,
                                                    std::uint64_t max_steps) {
    const bool few = c.look() == how::by_bound || steps_ >= max_steps;
    const auto found = (few ? quick_search_ : search_)(nodes[node_id(c.node)], task_,
                                                       jobs_on_[node_id(c.node)].below(priority_));
    steps_ += 1 + found.steps;
    return found;
  }

  dense_map<node_id, evictable_jobs> jobs_on_{};
  std::vector<level> levels_{};
  std::uint64_t uses_ = 0;
  std::uint64_t steps_ = 0;
  // The search.
  task_request task_{};
  std::uint32_t priority_ = 0;
  const summary_bitset* allowed_ = nullptr;
  changed_nodes changed_{};                // since open(), or the last update()
  std::vector<std::uint32_t> versions_{};  // by node: how often it has changed
  std::vector<candidate> open_{};          // a heap
  std::vector<candidate> cut_{};           // searched exactly, but not to the end: their bounds
  shared_victim_search search_{};
  shared_victim_search quick_search_{16};
};

APIARY_INLINE victim_index::victim_index(std::uint32_t nodes)
    : body_(std::make_unique<body>(nodes)) {}
APIARY_INLINE victim_index::victim_index(const victim_index& other)
    : body_(std::make_unique<body>(*other.body_)) {}
APIARY_INLINE victim_index::victim_index(victim_index&& other) noexcept = default;
APIARY_INLINE victim_index& victim_index::operator=(victim_index other) noexcept {
  body_ = std::move(other.body_);
  return *this;
}
APIARY_INLINE victim_index::~victim_index() = default;
APIARY_INLINE void victim_index::add_node() { body_->add_node(); }
APIARY_INLINE std::uint32_t victim_index::size() const noexcept { return body_->size(); }
APIARY_INLINE void victim_index::touch(node_id n) { body_->touch(n); }
APIARY_INLINE void victim_index::add(const task_request& task, placement where,
                                     std::uint32_t priority, std::uint64_t cost) {
  body_->add(task, where, priority, cost);
}
APIARY_INLINE void victim_index::remove(const task_request& task, placement where,
                                        std::uint32_t priority) {
  body_->remove(task, where, priority);
}
APIARY_INLINE void victim_index::open(const node_table& nodes, const task_request& task,
                                      std::uint32_t priority, const summary_bitset* allowed) {
  body_->open(nodes, task, priority, allowed);
}
APIARY_INLINE std::optional<victims_on_node> victim_index::least(const node_table& nodes,
                                                                 std::uint64_t max_steps) {
  return body_->least(nodes, max_steps);
}
APIARY_INLINE std::uint64_t victim_index::least_sum(const node_table& nodes, std::uint32_t count) {
  return body_->least_sum(nodes, count);
}
APIARY_INLINE std::uint64_t victim_index::steps() const noexcept { return body_->steps(); }

}  // namespace detail
APIARY_NAMESPACE_END
