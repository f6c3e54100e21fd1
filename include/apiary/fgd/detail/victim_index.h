// apiary/fgd/detail/victim_index.h - the node where it costs least to make a task fit by evictions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/shared_victim_search.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A lower bound on the cost of victims on a node that let the task fit there; the greatest number
// if no victims are enough. It counts what is missing on the GPUs, and the cheapest job.
// Requires: task.valid(), and it does not fit now; the candidates use no more than the node has.
// Cost:     O(candidates * GPUs of the node).
[[nodiscard]] inline std::uint64_t least_eviction_cost(
    const node_state& node, const task_request& task,
    std::span<const shared_victim_search::candidate> candidates) noexcept {
  constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  if (!node.healthy || candidates.empty()) return never;
  // What evictions leave of a GPU, and what they cost.
  struct gpu {
    std::uint32_t free = 0;        // thousandths, if all end
    std::uint64_t enough = never;  // the least cost of a job that is enough alone
    std::uint64_t first = never;   // the least cost of a job
    std::uint64_t second = never;  // of another one
    std::uint64_t all = 0;         // of all jobs
    std::uint64_t fee = 0;         // of all, each divided among its GPUs
  };
  std::array<gpu, max_gpus_per_node> gpus;
  for (std::uint32_t i = 0; i < node.gpus; ++i) gpus[i].free = node.gpu_left[i];
  std::uint64_t cheapest = never;
  resources host = node.left;
  for (const shared_victim_search::candidate& c : candidates) {
    cheapest = (std::min)(cheapest, c.cost);
    host += c.host;
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < node.gpus; ++i) used += c.gpus[i] > 0 ? 1U : 0U;
    for (std::uint32_t i = 0; used > 0 && i < node.gpus; ++i) {
      if (c.gpus[i] == 0) continue;
      gpu& here = gpus[i];
      if (std::uint32_t{node.gpu_left[i]} + c.gpus[i] >= task.gpu_milli)
        here.enough = (std::min)(here.enough, c.cost);
      here.free += c.gpus[i];
      here.second = (std::min)(here.second, (std::max)(here.first, c.cost));
      here.first = (std::min)(here.first, c.cost);
      here.all += c.cost;
      here.fee += used == 1 ? c.cost : c.cost / used;
    }
  }
  if (!task.host().fits_in(host)) return never;
  std::array<std::uint64_t, max_gpus_per_node> costs;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < node.gpus; ++i) {
    const gpu& here = gpus[i];
    if (here.free < task.gpu_milli) continue;
    std::uint64_t cost = 0;
    if (node.gpu_left[i] >= task.gpu_milli) {
      cost = 0;
    } else if (task.gpus > 1) {
      cost = here.fee;
    } else if (task.gpu_milli == whole_gpu) {
      cost = here.all;
    } else {
      cost = (std::min)(here.enough, here.second == never ? never : here.first + here.second);
    }
    costs[count++] = cost;
  }
  if (count < task.gpus) return never;
  std::nth_element(costs.begin(), costs.begin() + task.gpus, costs.begin() + count);
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < task.gpus; ++i) sum += costs[i];
  return (std::max)(cheapest, sum);
}

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
  // The least cost of a job of any priority; the greatest number if there is none.
  [[nodiscard]] std::uint64_t least_cost() const noexcept {
    std::uint64_t least = (std::numeric_limits<std::uint64_t>::max)();
    for (const candidate& c : candidates_) least = (std::min)(least, c.cost);
    return least;
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

// Knows the jobs on each node that may be evicted. A search takes the nodes in the order of what
// the cheapest job there costs, replaces that by least_eviction_cost(), and searches nodes exactly
// until no other node can cost less. It may go on after nodes have changed: it then reads only
// these again.
//
// Requires: touch() is called after each change of a node, and of the jobs on it.
// Cost:     open: O(nodes). least: O(log nodes) for each node that changed since the last call;
//           O(jobs * GPUs) of each node with a job that costs no more than the victims; and a
//           search on each node of which the bound is not above the least cost, unless it was
//           searched since open() and has not changed. Memory: 33 bytes a node, 60 a job on a
//           node.
class victim_index {
 public:
  // The cost of a node where no evictions are enough.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  // So many nodes, without jobs.
  explicit victim_index(std::uint32_t nodes) {
    for (std::uint32_t n = 0; n < nodes; ++n) add_node();
  }
  // Adds the next node.
  void add_node() {
    cheapest_.push_back(never);
    touch(jobs_on_.push_back({}));
  }
  // The number of nodes, those that were removed included.
  [[nodiscard]] std::uint32_t size() const noexcept { return jobs_on_.size(); }
  // Node n has changed.
  void touch(node_id n) { changed_.add(n); }

  // A task of a job with this priority and cost may be evicted from now on.
  void add(const task_request& task, placement where, std::uint32_t priority, std::uint64_t cost) {
    jobs_on_[where.node].add(task, where.gpu_mask, priority, cost);
    cheapest_[where.node] = jobs_on_[where.node].least_cost();
    touch(where.node);
  }
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, placement where, std::uint32_t priority) {
    jobs_on_[where.node].remove(task, where.gpu_mask, priority);
    cheapest_[where.node] = jobs_on_[where.node].least_cost();
    touch(where.node);
  }

  // Starts a search for victims of priorities below this one for a task, on the nodes of `allowed`
  // if that is not null. Requires: task.valid(); `allowed` lives as long as the search; no node is
  // added before its end.
  void open(const task_request& task, std::uint32_t priority, const summary_bitset* allowed) {
    task_ = task;
    priority_ = priority;
    allowed_ = allowed;
    changed_.clear();
    versions_.assign(size(), 0);
    cut_.clear();
    open_.clear();
    for (const node_id n : jobs_on_.ids()) list(n);
    std::make_heap(open_.begin(), open_.end(), comes_later);
    steps_ += size();
  }
  // The victims that cost least now; nullopt if there are none. Of nodes that cost the same it
  // takes the lowest id. When steps() is `max_steps` or more, it searches nodes in few steps:
  // victims may then cost more than others on the same node. Requires: the task fits on no node of
  // the search.
  [[nodiscard]] std::optional<victims_on_node> least(const node_table& nodes,
                                                     std::uint64_t max_steps = never) {
    update();
    std::optional<victims_on_node> best;  // of the nodes that are searched now
    while (has_next(nodes)) {
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
  // The least sum of the bounds of `count` nodes; never if fewer nodes can run the task. Requires:
  // no least() since open(); the task fits on no node of the search.
  [[nodiscard]] std::uint64_t least_sum(const node_table& nodes, std::uint32_t count) {
    update();
    std::uint64_t sum = 0;
    std::vector<candidate> taken;
    while (taken.size() < count && has_next(nodes)) {
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
  // What all searches have taken: one for each node that open() reads, for each node that has
  // changed since, and for each step of a search on a node.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
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
  // How a node was looked at last.
  enum class how : std::uint8_t { by_cost, by_bound, quickly, exactly };
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

  // Appends the node to open_ if it has jobs and is allowed. Returns whether it has.
  bool list(node_id n) {
    if (cheapest_[n] == never || (allowed_ != nullptr && !allowed_->test(n.value))) return false;
    open_.push_back({cheapest_[n], n.value, versions_[n.value]});
    return true;
  }
  // Nodes that have changed are as they were opened.
  void update() {
    for (const node_id n : changed_.list) {
      versions_[n.value] += version_step;
      if (list(n)) std::push_heap(open_.begin(), open_.end(), comes_later);
    }
    steps_ += changed_.list.size();
    changed_.clear();
  }
  // Whether the node has not changed since.
  [[nodiscard]] bool is_current(const candidate& c) const {
    return (c.stamp ^ versions_[c.node]) < version_step;
  }
  // Whether there is a candidate to pop(); it is_current(), and was looked at by its bound.
  [[nodiscard]] bool has_next(const node_table& nodes) {
    while (!open_.empty()) {
      if (is_current(open_.front()) && open_.front().look() != how::by_cost) return true;
      const candidate next = pop();
      const node_id n(next.node);
      if (!is_current(next) || (task_.wants_gpu() && !nodes[n].accessible(task_.models))) continue;
      const std::uint64_t cost = least_eviction_cost(nodes[n], task_, jobs_on_[n].below(priority_));
      if (cost != never) push(next.again(cost));
    }
    return false;
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
  dense_map<node_id, std::uint64_t> cheapest_{};  // job of any priority
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

}  // namespace detail
APIARY_NAMESPACE_END
