// apiary/gandiva/detail/slice_order.h - which waiting jobs time sharing tries to start.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/summed_tree.h>
#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs of the queue whose keys are at most `last`, in order.
[[nodiscard]] inline std::vector<job_id> in_order(const weighted_tree& queue,
                                                  std::int64_t last = max_time) {
  std::vector<job_id> jobs;
  for (auto at = queue.first(); at && at->key <= last; at = queue.next(at->key, at->id))
    jobs.emplace_back(at->id);
  return jobs;
}

// The kind of a request: jobs of one tenant and priority with equally many GPUs are of one kind
// (see JobBackend). Other requests have no kinds.
using request_kind = std::tuple<std::uint32_t, std::int32_t, std::uint32_t>;
[[nodiscard]] inline request_kind kind_of(const job_request& r) noexcept {
  return {r.tenant.value, r.priority, r.gpus};
}
template <class Request>
[[nodiscard]] request_kind kind_of(const Request& /*r*/) noexcept {
  return {};
}

// The kinds of requests that could not start. A request without a kind is not recorded.
class failed_kinds {
 public:
  [[nodiscard]] bool contains(const job_request& r) const {
    return std::binary_search(kinds_.begin(), kinds_.end(), kind_of(r));
  }
  void add(const job_request& r) { insert_sorted(kinds_, kind_of(r)); }
  template <class Request>
  [[nodiscard]] static bool contains(const Request& /*r*/) noexcept {
    return false;
  }
  template <class Request>
  static void add(const Request& /*r*/) noexcept {}

 private:
  std::vector<request_kind> kinds_;  // ascending
};

// Waiting jobs in order of a key, for sliced jobs their pass, then of id, in one queue for each
// kind of waiting jobs.
// Cost: insert, erase O(log jobs); least O(kinds); a visit O(kinds + log jobs).
class queues_by_kind {
 public:
  template <class Request>
  void insert(const Request& r, std::int64_t key) {
    queues_[kind_of(r)].insert({key, r.job.value, 0});
    ++size_;
  }
  // Requires: it was inserted with this key.
  template <class Request>
  void erase(const Request& r, std::int64_t key) {
    const auto jobs = queues_.find(kind_of(r));
    jobs->second.erase(key, r.job.value);
    if (jobs->second.empty()) queues_.erase(jobs);
    --size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // The least key; nullopt: no job waits.
  [[nodiscard]] std::optional<std::int64_t> least() const noexcept {
    std::optional<std::int64_t> key;
    for (const auto& [kind, jobs] : queues_) {
      const std::int64_t first = jobs.first()->key;
      key = (std::min)(key.value_or(first), first);
    }
    return key;
  }
  // Calls visit(job) for the jobs in order; after it returned false, for no other job of this kind.
  // visit may insert and erase jobs; a job that it inserts may be visited.
  template <class Visit>
  void visit_all(Visit&& visit) {
    std::vector<std::pair<request_kind, weighted_tree::item>> nexts;  // one for each kind
    for (const auto& [kind, jobs] : queues_) nexts.emplace_back(kind, *jobs.first());
    while (!nexts.empty()) {
      const auto at =
          std::min_element(nexts.begin(), nexts.end(), [](const auto& a, const auto& b) {
            return std::pair(a.second.key, a.second.id) < std::pair(b.second.key, b.second.id);
          });
      const weighted_tree::item job = at->second;
      const bool goes_on = visit(job_id(job.id));
      const auto jobs = queues_.find(at->first);  // none: the visit erased the last job
      const bool has_more = goes_on && jobs != queues_.end();
      const auto next = has_more ? jobs->second.next(job.key, job.id) : std::nullopt;
      if (next) {
        at->second = *next;
      } else {
        nexts.erase(at);
      }
    }
  }

 private:
  std::map<request_kind, weighted_tree> queues_;  // by key
  std::size_t size_ = 0;
};

// The passes of running jobs, which grow with time.
// Cost: insert, erase O(log jobs); least O(distinct weights).
class running_passes {
  // The pass is base + (now * slice_pass_unit + rest) / weight, rounded down; rest is in (-weight,
  // 0]. So of equal weights the least entry has the least pass at any time.
  struct entry {
    std::int64_t base = 0;
    std::int64_t rest = 0;
    job_id job{};
  };
  struct by_pass {
    using item = entry;
    struct summary {};
    [[nodiscard]] static bool before(const entry& a, const entry& b) noexcept {
      if (a.base != b.base) return a.base < b.base;
      return a.rest != b.rest ? a.rest < b.rest : a.job < b.job;
    }
    [[nodiscard]] static std::uint64_t number(const entry& e) noexcept { return e.job.value; }
    [[nodiscard]] static summary sum(const summary* /*left*/, const entry& /*e*/,
                                     const summary* /*right*/) noexcept {
      return {};
    }
  };
  using tree = summed_tree<by_pass>;
  // The last entry before `end`, or the last one of all; null: there is none.
  [[nodiscard]] static const entry* last(const tree& jobs, const entry* end = nullptr) noexcept {
    const entry* found = nullptr;
    for (std::uint32_t n = jobs.root(); n != tree::none;) {
      const bool passed = end != nullptr && !by_pass::before(jobs[n].at, *end);
      if (!passed) found = &jobs[n].at;
      n = passed ? jobs[n].left : jobs[n].right;
    }
    return found;
  }
  [[nodiscard]] static std::int64_t pass_of(const entry& e, std::uint32_t weight,
                                            time_ms now) noexcept {
    return e.base + (now * slice_pass_unit + e.rest) / weight;
  }

 public:
  // A job runs from `since` on and had this pass then. Requires: weight > 0, 0 <= since < 2^43.
  void insert(job_id job, std::uint32_t weight, std::int64_t pass, time_ms since) {
    by_weight_[weight].insert(entry_of(job, weight, pass, since));
  }
  // Requires: the job was inserted with these.
  void erase(job_id job, std::uint32_t weight, std::int64_t pass, time_ms since) {
    const auto jobs = by_weight_.find(weight);
    jobs->second.erase(entry_of(job, weight, pass, since));
    if (jobs->second.empty()) by_weight_.erase(jobs);
  }
  // The least pass at this time; nullopt: no job runs. Requires: now is not before any `since`.
  [[nodiscard]] std::optional<std::int64_t> least(time_ms now) const {
    std::optional<std::int64_t> pass;
    for (const auto& [weight, jobs] : by_weight_) {
      std::uint32_t first = jobs.root();
      while (jobs[first].left != tree::none) first = jobs[first].left;
      const std::int64_t at = pass_of(jobs[first].at, weight, now);
      pass = (std::min)(pass.value_or(at), at);
    }
    return pass;
  }

  // Reads the jobs in order of their passes at one time, the highest first, then of their ids, the
  // highest first. Jobs may be inserted and erased meanwhile: an erased job may still be read, an
  // inserted one may be left out. Cost: for each job O(distinct weights + log jobs).
  class descending {
   public:
    descending(const running_passes& jobs, time_ms now) : jobs_(&jobs), now_(now) {
      for (const auto& [weight, some] : jobs.by_weight_) nexts_.emplace_back(weight, *last(some));
    }
    // Appends the next jobs, all that have the next pass. Returns whether there is one.
    bool read(std::vector<job_id>& to) {
      if (nexts_.empty()) return false;
      std::int64_t pass = pass_at(nexts_.front());
      for (const next& n : nexts_) pass = (std::max)(pass, pass_at(n));
      const auto first = static_cast<std::ptrdiff_t>(to.size());
      for (std::size_t i = 0; i < nexts_.size();) {
        bool has_more = true;
        while (has_more && pass_at(nexts_[i]) == pass) {
          to.push_back(nexts_[i].second.job);
          has_more = advance(nexts_[i]);
        }
        if (has_more) {
          ++i;
        } else {
          nexts_[i] = nexts_.back();
          nexts_.pop_back();
        }
      }
      std::sort(to.begin() + first, to.end(), [](job_id a, job_id b) { return a > b; });
      return true;
    }

   private:
    using next = std::pair<std::uint32_t, entry>;  // of a weight, the job that is read next
    [[nodiscard]] std::int64_t pass_at(const next& n) const noexcept {
      return pass_of(n.second, n.first, now_);
    }
    [[nodiscard]] bool advance(next& n) const {
      const auto jobs = jobs_->by_weight_.find(n.first);
      if (jobs == jobs_->by_weight_.end()) return false;
      const entry* const before = last(jobs->second, &n.second);
      if (before != nullptr) n.second = *before;
      return before != nullptr;
    }

    const running_passes* jobs_;
    time_ms now_;
    std::vector<next> nexts_{};
  };

 private:
  [[nodiscard]] static entry entry_of(job_id job, std::uint32_t weight, std::int64_t pass,
                                      time_ms since) noexcept {
    const std::int64_t had = since * slice_pass_unit;
    return {pass - had / weight, -(had % weight), job};
  }
  std::map<std::uint32_t, tree> by_weight_;
};

// GPUs without which a request cannot run; 0 for requests that are no jobs of whole GPUs.
[[nodiscard]] inline std::int64_t counted_gpus(const job_request& r) noexcept { return r.gpus; }
template <class Request>
[[nodiscard]] std::int64_t counted_gpus(const Request& /*r*/) noexcept {
  return 0;
}

// The weight by which the time of a job is divided if jobs share GPU-time: 1000 * weight / GPUs, at
// least 1. Requests that are no jobs of whole GPUs keep their weight.
[[nodiscard]] inline std::uint32_t gpu_time_weight(std::uint32_t weight,
                                                   const job_request& r) noexcept {
  return (std::max)(1U, weight * 1000 / (std::max)(1U, r.gpus));
}
template <class Request>
[[nodiscard]] std::uint32_t gpu_time_weight(std::uint32_t weight, const Request& /*r*/) noexcept {
  return weight;
}

}  // namespace detail
APIARY_NAMESPACE_END
