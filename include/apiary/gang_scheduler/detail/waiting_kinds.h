// apiary/gang_scheduler/detail/waiting_kinds.h - waiting jobs by kind: one failure counts for all.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/summed_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The waiting jobs of a queue by kind. Jobs of one kind differ only in their ids and estimates: if
// one of them does not fit, none does until GPUs become free; if one of them would delay the first
// job of the queue because it runs too long, so would all others that run too long, until another
// job starts. Kinds are numbers from 0 on.
// Cost: insert, erase O(log jobs); retry O(kinds that do not fit); visit O(kinds with jobs), and
//       O(log jobs) for each job that is tried and, for each job that starts, each kind that
//       delays.
class waiting_kinds {
 public:
  using order_key = std::pair<std::int64_t, std::uint64_t>;  // ascending; the second is unique
  // What came of a job that was tried.
  enum class outcome : std::uint8_t { started, does_not_fit, would_delay };

  void insert(std::uint32_t n, const order_key& key, time_ms estimate) {
    if (n >= kinds_.size()) kinds_.resize(n + std::size_t{1});
    if (kinds_[n].jobs.empty()) {
      kinds_[n].at = waiting_.size();
      waiting_.push_back(n);
    }
    kinds_[n].jobs.insert({key, estimate});
  }
  // Requires: it was inserted.
  void erase(std::uint32_t n, const order_key& key) {
    kinds_[n].jobs.erase({key});
    if (!kinds_[n].jobs.empty()) return;
    const std::size_t at = kinds_[n].at;
    waiting_[at] = waiting_.back();
    kinds_[waiting_[at]].at = at;
    waiting_.pop_back();
  }
  // GPUs may have become free: every kind may fit.
  void retry() {
    for (const std::uint32_t n : failed_) kinds_[n].failed = false;
    failed_.clear();
    forget_delays();
  }
  // Another job is the first one, or it starts at another time: no kind is known to delay it.
  void forget_delays() {
    for (const std::uint32_t n : delaying_) kinds_[n].delays = false;
    delaying_.clear();
  }
  // Tries the jobs after `first`, in order, but those of kinds that do not fit, and those of kinds
  // that delay whose estimates are above `longest`. try_job(key) returns a StatusOr<outcome>; it
  // erases a job that started.
  template <class Try>
  [[nodiscard]] absl::Status visit(const order_key& first, time_ms longest, Try&& try_job) {
    offers_.clear();
    for (const std::uint32_t n : waiting_) offer(n, first, longest);
    while (!offers_.empty()) {
      std::pop_heap(offers_.begin(), offers_.end(), later);
      const auto [key, n] = offers_.back();
      offers_.pop_back();
      if (kinds_[n].next != key) continue;  // another job of the kind was offered since
      APIARY_ASSIGN_OR_RETURN(const outcome came, try_job(key));
      if (came == outcome::would_delay && !std::exchange(kinds_[n].delays, true))
        delaying_.push_back(n);
      if (came == outcome::started) {
        const std::vector<std::uint32_t> again = delaying_;
        forget_delays();
        for (const std::uint32_t other : again) offer(other, key, longest);
      }
      if (came == outcome::does_not_fit && !std::exchange(kinds_[n].failed, true))
        failed_.push_back(n);
      offer(n, key, longest);
    }
    return absl::OkStatus();
  }

 private:
  struct by_order {
    struct item {
      order_key key{};
      time_ms estimate = 0;
    };
    struct summary {
      time_ms shortest = max_time;
    };
    [[nodiscard]] static bool before(const item& a, const item& b) noexcept {
      return a.key < b.key;
    }
    [[nodiscard]] static std::uint64_t number(const item& i) noexcept { return i.key.second; }
    [[nodiscard]] static summary sum(const summary* left, const item& i,
                                     const summary* right) noexcept {
      summary all{i.estimate};
      if (left != nullptr) all.shortest = (std::min)(all.shortest, left->shortest);
      if (right != nullptr) all.shortest = (std::min)(all.shortest, right->shortest);
      return all;
    }
  };
  struct kind {
    summed_tree<by_order> jobs{};
    std::size_t at = 0;               // its index in waiting_, if it has jobs
    bool failed = false;              // none fits; it is in failed_
    bool delays = false;              // it is in delaying_
    std::optional<order_key> next{};  // the job that is offered
  };
  struct job_offer {
    order_key key{};
    std::uint32_t kind = 0;
  };
  [[nodiscard]] static bool later(const job_offer& a, const job_offer& b) noexcept {
    return a.key > b.key;
  }
  // Offers the first job of the kind after `passed` that may start.
  void offer(std::uint32_t n, const order_key& passed, time_ms longest) {
    kind& k = kinds_[n];
    k.next.reset();
    if (k.failed || k.jobs.empty()) return;
    const time_ms limit = k.delays ? longest : max_time;
    const auto* const found = k.jobs.first_after(
        {passed}, [limit](const by_order::summary& all) { return all.shortest <= limit; },
        [limit](const by_order::item& i) { return i.estimate <= limit; });
    if (found == nullptr) return;
    k.next = found->key;
    offers_.push_back({found->key, n});
    std::push_heap(offers_.begin(), offers_.end(), later);
  }

  std::vector<kind> kinds_;
  std::vector<std::uint32_t> waiting_;   // kinds with jobs, in any order
  std::vector<std::uint32_t> failed_;    // kinds
  std::vector<std::uint32_t> delaying_;  // kinds
  std::vector<job_offer> offers_;        // of visit(), as a heap: the first job on top
};

}  // namespace detail
APIARY_NAMESPACE_END
