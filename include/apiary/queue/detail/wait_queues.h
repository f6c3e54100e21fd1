// apiary/queue/detail/wait_queues.h - waiting jobs, in order, with a queue for each number of GPUs and
// demand.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The waiting jobs in order, in one queue for each kind (GPU count and demand): they all fit or none
// does, and they wait for the same cause, which one clock counts.
// Cost: a call O(log waiting jobs); begin_round, end_round and the first call of first_that_may in a
//       round also O(kinds that wait). first_that_may passes a kind of which no job may start once in
//       a round, in O(log waiting jobs). Memory for each kind that waits: for the largest number of
//       its jobs that waited at once since it last had none.
class wait_queues {
 public:
  // GPUs and job_request::demand.
  struct kind {
    std::uint32_t gpus = 0;
    std::uint32_t demand = 0;
    explicit kind(const job_request& r) noexcept : gpus(r.gpus), demand(r.demand) {}
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  // A position in the order: the lower key first, among equals the lower id.
  struct entry {
    job_id job{};
    std::int64_t key = 0;
    std::uint32_t gpus = 0;
  };

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // The GPUs that all waiting jobs ask for.
  [[nodiscard]] std::uint64_t gpus() const noexcept { return gpus_; }

  // The job waits from now on. Returns the clock of its queue, which leave() needs.
  delays enter(const job_request& r, std::int64_t key, time_ms now) {
    job_queue& l = queues_[kind(r)];
    l.jobs.insert({key, r.job.value, r.estimate});
    ++size_;
    gpus_ += r.gpus;
    if (offered_) offer(kind(r), l);
    return l.clock.at(now);
  }
  // The job waits no more. Returns its delays. Requires: its key, and what enter() returned.
  delays leave(const job_request& r, std::int64_t key, const delays& entered, time_ms now) {
    const auto found = queues_.find(kind(r));
    found->second.jobs.erase(key, r.job.value);
    --size_;
    gpus_ -= r.gpus;
    delays waited = found->second.clock.at(now);
    if (found->second.jobs.empty()) queues_.erase(found);
    return waited -= entered;
  }
  // How long it has waited so far, by cause. Requires: as leave().
  [[nodiscard]] delays waited(const job_request& r, const delays& entered, time_ms now) const {
    delays sum = queues_.at(kind(r)).clock.at(now);
    return sum -= entered;
  }

  // The first job with at most `idle` GPUs and an estimate <= limit(kind, delays), in a queue not
  // failed. Requires: within a round, the limit of a kind does not rise, except by forget_delays().
  template <class Limit>
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle, Limit&& limit) {
    if (!offered_ || idle > *offered_) offer_all(idle, limit);
    offered_ = idle;
    while (!offers_.empty()) {
      const job_offer top = offers_.front();
      const auto found = queues_.find(top.of);
      std::optional<weighted_tree::item> next;
      if (found != queues_.end() && found->second.next == top.job) {
        job_queue& l = found->second;
        if (top.of.gpus <= idle && !l.failed) next = l.jobs.first_at_most(limit(top.of, l.delays));
        if (next == top.job) return entry{job_id(next->id), next->key, top.of.gpus};
        l.next = next;
      }
      std::pop_heap(offers_.begin(), offers_.end(), later);
      offers_.pop_back();
      if (next) push({*next, top.of});
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle) {
    return first_that_may(idle, [](const kind&, bool) { return max_time; });
  }
  // The first job in a queue not failed.
  [[nodiscard]] std::optional<entry> first() {
    return first_that_may((std::numeric_limits<std::uint32_t>::max)());
  }

  // Begins a round, in which no queue has failed yet and none delays.
  void begin_round() noexcept {
    for (auto& [k, l] : queues_) l.failed = l.delays = false;
    delaying_.clear();
    offered_.reset();
  }
  // Jobs of the kind of this one do not fit. Requires: it waits.
  void fail(const job_request& r) { queues_.at(kind(r)).failed = true; }
  // Jobs of the kind of this one, which waits, would delay another job until forget_delays().
  void delay(const job_request& r) {
    queues_.at(kind(r)).delays = true;
    delaying_.emplace_back(r);
  }
  // No kind is known to delay another job.
  void forget_delays() {
    for (const kind& k : delaying_) {
      const auto found = queues_.find(k);
      if (found == queues_.end()) continue;
      found->second.delays = false;
      offer(k, found->second);
    }
    delaying_.clear();
  }
  // Sets why jobs wait: capacity (more GPUs than idle), fragmentation (failed), or `otherwise`.
  void end_round(std::uint32_t idle, delay_cause otherwise, time_ms now) {
    for (auto& [k, l] : queues_) l.clock.set(cause_of(k.gpus, l, idle, otherwise), now);
    offered_.reset();
  }

 private:
  struct job_queue {
    weighted_tree jobs{};  // with their estimates as weights
    delay_clock clock{};
    bool failed = false;
    bool delays = false;                        // it is in delaying_
    std::optional<weighted_tree::item> next{};  // the job that is offered in this round
  };
  struct job_offer {
    weighted_tree::item job{};
    kind of;
  };

 public:
  // Visits the jobs of all queues in order. Requires: the queues do not change meanwhile.
  class walk {
   public:
    explicit walk(const wait_queues& all) {
      for (const auto& [k, l] : all.queues_) cursors_.push_back({*l.jobs.first(), &l.jobs, k.gpus});
      std::make_heap(cursors_.begin(), cursors_.end(), after);
    }
    // The next job before `end` for which may(entry). If not, the rest of its queue is skipped.
    template <class May>
    std::optional<entry> next_before(const entry& end, May&& may) {
      while (!cursors_.empty() && before(cursors_.front().next, end.key, end.job)) {
        std::pop_heap(cursors_.begin(), cursors_.end(), after);
        cursor& c = cursors_.back();
        const entry found{job_id(c.next.id), c.next.key, c.gpus};
        const bool chosen = may(found);
        const auto next = chosen ? c.jobs->next(found.key, found.job.value) : std::nullopt;
        if (next) {
          c.next = *next;
          std::push_heap(cursors_.begin(), cursors_.end(), after);
        } else {
          cursors_.pop_back();
        }
        if (chosen) return found;
      }
      return std::nullopt;
    }

   private:
    struct cursor {
      weighted_tree::item next{};
      const weighted_tree* jobs = nullptr;
      std::uint32_t gpus = 0;
    };
    [[nodiscard]] static bool after(const cursor& a, const cursor& b) noexcept {
      return before(b.next, a.next.key, job_id(a.next.id));
    }
    std::vector<cursor> cursors_;  // a heap: the first job on top
  };

 private:
  [[nodiscard]] static bool before(const weighted_tree::item& i, std::int64_t key,
                                   job_id job) noexcept {
    return i.key != key ? i.key < key : i.id < job.value;
  }
  [[nodiscard]] static delay_cause cause_of(std::uint32_t gpus, const job_queue& l,
                                            std::uint32_t idle, delay_cause otherwise) noexcept {
    if (gpus > idle) return delay_cause::capacity;
    return l.failed ? delay_cause::fragmentation : otherwise;
  }
  [[nodiscard]] static bool later(const job_offer& a, const job_offer& b) noexcept {
    return before(b.job, a.job.key, job_id(a.job.id));
  }
  void push(const job_offer& added) {
    offers_.push_back(added);
    std::push_heap(offers_.begin(), offers_.end(), later);
  }
  // Offers the first job of the kind.
  void offer(const kind& k, job_queue& l) {
    const std::optional<weighted_tree::item> first = l.jobs.first();
    if (l.next == first) return;
    l.next = first;
    push({*first, k});
  }
  // Offers of each kind the first job that may start; see first_that_may.
  template <class Limit>
  void offer_all(std::uint32_t idle, Limit& limit) {
    offers_.clear();
    for (auto& [k, l] : queues_) {
      l.next.reset();
      if (k.gpus > idle || l.failed) continue;
      l.next = l.jobs.first_at_most(limit(k, l.delays));
      if (l.next) offers_.push_back({*l.next, k});
    }
    std::make_heap(offers_.begin(), offers_.end(), later);
  }

  std::map<kind, job_queue> queues_;      // of kinds that wait
  std::vector<job_offer> offers_;         // of this round, as a heap: the first job on top
  std::optional<std::uint32_t> offered_;  // the idle GPUs at the last call; nullopt: no offers yet
  std::vector<kind> delaying_;
  std::size_t size_ = 0;
  std::uint64_t gpus_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
