// apiary/queue/kinds.h - waiting jobs in order, with a queue for each kind of job.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The waiting jobs in order of a key, then of id, in one queue for each kind of job (see Placer).
// All jobs of a kind fit or none does, so a queue tries one job of a kind and knows about all; and
// they wait for the same cause, which one clock counts.
//
// A decision is a round: begin_round(), then first_that_may() again and again, with fail() and
// delay() for kinds that cannot start, then end_round().
// Requires: Kind is ordered, and k.gpus says how many idle GPUs a job of kind k needs at least.
// Cost: a call O(log waiting jobs); begin_round, end_round and the first call of first_that_may in
//       a round also O(kinds that wait). first_that_may passes a kind of which no job may start
//       once in a round, in O(log waiting jobs). Memory for each kind that waits: for the largest
//       number of its jobs that waited at once since it last had none.
template <class Kind>
class kind_queues {
 public:
  // A position in the order: the lower key first, among equals the lower id.
  struct entry {
    job_id job{};          // the job
    std::int64_t key = 0;  // its key
    Kind kind{};           // its kind
  };

  // Waiting jobs.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // Whether no job waits.
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // The GPUs that all waiting jobs ask for.
  [[nodiscard]] std::uint64_t gpus() const noexcept { return gpus_; }

  // The job waits from now on. Returns the clock of its queue, which leave() needs.
  delays enter(const Kind& kind, job_id job, std::int64_t key, time_ms estimate, time_ms now) {
    job_queue& q = queues_[kind];
    q.jobs.insert({key, job.value, estimate});
    ++size_;
    gpus_ += kind.gpus;
    if (offered_) offer(kind, q);
    return q.clock.at(now);
  }
  // The job waits no more. Returns its delays. Requires: it entered with this kind and key;
  // `entered` is what enter() returned.
  delays leave(const Kind& kind, job_id job, std::int64_t key, const delays& entered, time_ms now) {
    const auto found = queues_.find(kind);
    found->second.jobs.erase(key, job.value);
    --size_;
    gpus_ -= kind.gpus;
    delays waited = found->second.clock.at(now);
    if (found->second.jobs.empty()) queues_.erase(found);
    return waited -= entered;
  }
  // How long it has waited so far, by cause. Requires: as leave().
  [[nodiscard]] delays waited(const Kind& kind, const delays& entered, time_ms now) const {
    delays sum = queues_.at(kind).clock.at(now);
    return sum -= entered;
  }
  // The least key; nullopt: no job waits. Cost: O(kinds).
  [[nodiscard]] std::optional<std::int64_t> least() const noexcept {
    std::optional<std::int64_t> key;
    for (const auto& [kind, q] : queues_) {
      const std::int64_t first = q.jobs.first()->key;
      key = (std::min)(key.value_or(first), first);
    }
    return key;
  }

  // The first job of a kind with at most `idle` GPUs that has not failed, and with an estimate of
  // at most limit(kind, delays); `delays`: delay() was called for the kind. Requires: within a
  // round, the limit of a kind does not rise, except by forget_delays().
  template <class Limit>
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle, Limit&& limit) {
    if (!offered_ || idle > *offered_) offer_all(idle, limit);
    offered_ = idle;
    while (!offers_.empty()) {
      const job_offer top = offers_.front();
      const auto found = queues_.find(top.of);
      std::optional<weighted_tree::item> next;
      if (found != queues_.end() && found->second.next == top.job) {
        job_queue& q = found->second;
        if (top.of.gpus <= idle && !q.failed) next = next_of(q, limit(top.of, q.delays));
        if (next == top.job) return entry{job_id(next->id), next->key, top.of};
        q.next = next;
      }
      std::pop_heap(offers_.begin(), offers_.end(), later);
      offers_.pop_back();
      if (next) push({*next, top.of});
    }
    return std::nullopt;
  }
  // The same without a limit.
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle) {
    return first_that_may(idle, [](const Kind&, bool) { return max_time; });
  }
  // The first job in a queue not failed.
  [[nodiscard]] std::optional<entry> first() {
    return first_that_may((std::numeric_limits<std::uint32_t>::max)());
  }
  // Calls visit(entry) for the jobs in order; after it returned false, for no other job of that
  // kind. visit may let jobs enter and leave; a job that enters may be visited. Not within a round.
  template <class Visit>
  void visit_in_order(Visit&& visit) {
    std::vector<job_offer> nexts;  // one for each kind; a heap
    for (const auto& [kind, q] : queues_) nexts.push_back({*q.jobs.first(), kind});
    std::make_heap(nexts.begin(), nexts.end(), later);
    while (!nexts.empty()) {
      std::pop_heap(nexts.begin(), nexts.end(), later);
      const auto [job, kind] = nexts.back();
      nexts.pop_back();
      if (!visit(entry{job_id(job.id), job.key, kind})) continue;
      const auto found = queues_.find(kind);  // none: its last job has left
      if (found == queues_.end()) continue;
      const std::optional<weighted_tree::item> next = found->second.jobs.next(job.key, job.id);
      if (!next) continue;
      nexts.push_back({*next, kind});
      std::push_heap(nexts.begin(), nexts.end(), later);
    }
  }

  // The waiting jobs of a kind, with their keys, and their estimates as weights; null: none waits.
  [[nodiscard]] const weighted_tree* jobs_of(const Kind& kind) const {
    const auto found = queues_.find(kind);
    return found == queues_.end() ? nullptr : &found->second.jobs;
  }
  // Calls visit(kind, jobs_of(kind)) for each kind that waits, in order of the kinds.
  template <class Visit>
  void visit_kinds(Visit&& visit) const {
    for (const auto& [kind, q] : queues_) visit(kind, q.jobs);
  }

  // Begins a round, in which no kind has failed yet and none delays.
  void begin_round() noexcept {
    for (auto& [kind, q] : queues_) q.failed = q.delays = false;
    delaying_.clear();
    passed_.reset();
    offered_.reset();
  }
  // Jobs of the kind do not fit. Requires: one waits.
  void fail(const Kind& kind) { queues_.at(kind).failed = true; }
  // Jobs of the kinds for which which(kind) is true may fit again. A queue may use this in place of
  // begin_round(), so that kinds stay failed over rounds.
  template <class Which>
  void retry(Which&& which) {
    for (auto& [kind, q] : queues_) {
      if (!q.failed || !which(kind)) continue;
      q.failed = false;
      if (offered_) offer(kind, q);
    }
  }
  // Whether fail() was called for the kind in this round. Requires: one waits.
  [[nodiscard]] bool failed(const Kind& kind) const { return queues_.at(kind).failed; }
  // Jobs of the kind would delay another job until forget_delays(). Requires: one waits.
  void delay(const Kind& kind) {
    queues_.at(kind).delays = true;
    delaying_.push_back(kind);
  }
  // No kind is known to delay another job.
  void forget_delays() {
    for (const Kind& kind : delaying_) {
      const auto found = queues_.find(kind);
      if (found == queues_.end()) continue;
      found->second.delays = false;
      offer(kind, found->second);
    }
    delaying_.clear();
  }
  // The same; and from now on first_that_may() in this round finds only jobs after this one.
  void forget_delays_after(const entry& e) {
    passed_ = weighted_tree::item{e.key, e.job.value, 0};
    forget_delays();
  }
  // Ends a round: from now on jobs wait because of cause(kind, failed).
  template <class Cause>
  void set_causes(Cause&& cause, time_ms now) {
    for (auto& [kind, q] : queues_) q.clock.set(cause(kind, q.failed), now);
    offered_.reset();
  }
  // The same: capacity (more GPUs than idle), fragmentation (failed), or `otherwise`.
  void end_round(std::uint32_t idle, delay_cause otherwise, time_ms now) {
    const auto cause = [&](const Kind& kind, bool failed) {
      if (kind.gpus > idle) return delay_cause::capacity;
      return failed ? delay_cause::fragmentation : otherwise;
    };
    set_causes(cause, now);
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
    Kind of;
  };

  [[nodiscard]] static bool later(const job_offer& a, const job_offer& b) noexcept {
    return a.job.key != b.job.key ? a.job.key > b.job.key : a.job.id > b.job.id;
  }
  void push(const job_offer& added) {
    offers_.push_back(added);
    std::push_heap(offers_.begin(), offers_.end(), later);
  }
  // The first job of the queue that is offered, with at most this estimate.
  [[nodiscard]] std::optional<weighted_tree::item> next_of(const job_queue& q,
                                                           time_ms longest) const {
    return passed_ ? q.jobs.next_at_most(longest, passed_->key, passed_->id)
                   : q.jobs.first_at_most(longest);
  }
  // Offers the first job of the kind.
  void offer(const Kind& kind, job_queue& q) {
    const std::optional<weighted_tree::item> first = next_of(q, max_time);
    if (!first || q.next == first) return;
    q.next = first;
    push({*first, kind});
  }
  // Offers of each kind the first job that may start; see first_that_may.
  template <class Limit>
  void offer_all(std::uint32_t idle, Limit& limit) {
    offers_.clear();
    for (auto& [kind, q] : queues_) {
      q.next.reset();
      if (kind.gpus > idle || q.failed) continue;
      q.next = next_of(q, limit(kind, q.delays));
      if (q.next) offers_.push_back({*q.next, kind});
    }
    std::make_heap(offers_.begin(), offers_.end(), later);
  }

  std::map<Kind, job_queue> queues_;      // of kinds that wait
  std::vector<job_offer> offers_;         // of this round, as a heap: the first job on top
  std::optional<std::uint32_t> offered_;  // the idle GPUs at the last call; nullopt: no offers yet
  std::optional<weighted_tree::item> passed_;  // jobs up to it are not offered in this round
  std::vector<Kind> delaying_;
  std::size_t size_ = 0;
  std::uint64_t gpus_ = 0;
};

APIARY_NAMESPACE_END
