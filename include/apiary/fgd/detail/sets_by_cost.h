// apiary/fgd/detail/sets_by_cost.h - the sets of some jobs in the order of what their eviction costs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Lists the sets of some jobs that are not empty, one by one, those that cost least first; of sets that
// cost the same, those with the fewest jobs first.
//
// Each set is made from one that costs no more and has no more jobs: either its last job, in the order of
// costs, follows the job that it replaces, or it is added after it.
//
// Requires: the costs of all jobs add up to less than 2^63.
// Cost:     next: O(log sets so far), and O(jobs of the set) for jobs(). Memory: 40 bytes for each set
//           so far.
class sets_by_cost {
 public:
  // A job, and what its eviction costs.
  struct job {
    std::uint64_t cost = 0;
    job_id id{};
  };

  explicit sets_by_cost(std::vector<job> jobs) : jobs_(std::move(jobs)) {
    merge_sort(jobs_, [](const job& a, const job& b) {
      return a.cost != b.cost ? a.cost < b.cost : a.id < b.id;
    });
    if (!jobs_.empty()) push({jobs_[0].cost, 1, 0, none});
  }
  // Goes to the first set, or to the next one. False: there is no other one.
  bool next() {
    if (open_.empty()) return false;
    std::pop_heap(open_.begin(), open_.end(),
                  [this](std::uint32_t a, std::uint32_t b) { return comes_after(a, b); });
    now_ = open_.back();
    open_.pop_back();
    const set at = sets_[now_];
    if (at.last + 1 == jobs_.size()) return true;
    const std::uint64_t cost = jobs_[at.last + 1].cost;
    push({at.cost - jobs_[at.last].cost + cost, at.size, at.last + 1, at.rest});
    push({at.cost + cost, at.size + 1, at.last + 1, now_});
    return true;
  }
  // What the present set costs. Requires: next() was true.
  [[nodiscard]] std::uint64_t cost() const noexcept { return sets_[now_].cost; }
  // The jobs of the present set, ascending. Requires: next() was true.
  [[nodiscard]] std::vector<job_id> jobs() const {
    std::vector<job_id> result;
    for (std::uint32_t s = now_; s != none; s = sets_[s].rest)
      result.push_back(jobs_[sets_[s].last].id);
    merge_sort(result);
    return result;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct set {
    std::uint64_t cost = 0;
    std::uint32_t size = 0;
    std::uint32_t last = 0;     // index of its last job
    std::uint32_t rest = none;  // the set of its other jobs
  };

  // Whether set b comes before set a: the order of the heap.
  [[nodiscard]] bool comes_after(std::uint32_t a, std::uint32_t b) const {
    if (sets_[a].cost != sets_[b].cost) return sets_[a].cost > sets_[b].cost;
    return sets_[a].size != sets_[b].size ? sets_[a].size > sets_[b].size : a > b;
  }
  void push(const set& s) {
    open_.push_back(static_cast<std::uint32_t>(sets_.size()));
    sets_.push_back(s);
    std::push_heap(open_.begin(), open_.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return comes_after(a, b); });
  }

  std::vector<job> jobs_;              // ascending by cost, then id
  std::vector<set> sets_{};            // all sets that were made
  std::vector<std::uint32_t> open_{};  // those to come, a heap
  std::uint32_t now_ = none;
};

}  // namespace detail
APIARY_NAMESPACE_END
