// apiary/batch/detail/wait_queues.h - waiting jobs, in order, with a queue for each number of GPUs and
// demand.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The waiting jobs in order, in one queue for each kind (GPU count and demand): they all fit or none
// does, and they wait for the same cause, which one clock counts.
// Cost: a call O(log waiting jobs), plus O(queues) where it looks at all queues. Memory for the
//       largest number of jobs that waited at once, and for each kind seen so far.
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
    return l.clock.at(now);
  }
  // The job waits no more. Returns its delays. Requires: its key, and what enter() returned.
  delays leave(const job_request& r, std::int64_t key, const delays& entered, time_ms now) {
    job_queue& l = queues_[kind(r)];
    l.jobs.erase(key, r.job.value);
    --size_;
    gpus_ -= r.gpus;
    delays waited = l.clock.at(now);
    return waited -= entered;
  }
  // How long it has waited so far, by cause. Requires: as leave().
  [[nodiscard]] delays waited(const job_request& r, const delays& entered, time_ms now) const {
    delays sum = queues_.at(kind(r)).clock.at(now);
    return sum -= entered;
  }

  // The first job; nullopt if none waits.
  [[nodiscard]] std::optional<entry> first() const { return first_where(any_queue, no_limit); }
  // The first job with at most `idle` GPUs and an estimate <= limit(kind), in a queue not failed.
  template <class Limit>
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle, Limit&& limit) const {
    return first_where(
        [&](const kind& k, const job_queue& l) { return k.gpus <= idle && !l.failed; }, limit);
  }
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle) const {
    return first_that_may(idle, no_limit);
  }

  // Begins a round, in which no queue has failed yet.
  void begin_round() noexcept {
    for (auto& [k, l] : queues_) l.failed = false;
  }
  // Jobs of the kind of this one do not fit.
  void fail(const job_request& r) { queues_[kind(r)].failed = true; }
  // Sets why jobs wait: capacity (more GPUs than idle), fragmentation (failed), or `otherwise`.
  void end_round(std::uint32_t idle, delay_cause otherwise, time_ms now) {
    for (auto& [k, l] : queues_) {
      if (l.jobs.empty()) continue;
      l.clock.set(cause_of(k.gpus, l, idle, otherwise), now);
    }
  }

 private:
  struct job_queue {
    weighted_tree jobs{};  // with their estimates as weights
    delay_clock clock{};
    bool failed = false;
  };

 public:
  // Visits the jobs of all queues in order. Requires: the queues do not change meanwhile.
  class walk {
   public:
    explicit walk(const wait_queues& all) {
      for (const auto& [k, l] : all.queues_) {
        if (!l.jobs.empty()) cursors_.push_back({&l.jobs, k.gpus, l.jobs.first()});
      }
    }
    // The next job before `end` for which may(entry). If not, the rest of its queue is skipped.
    template <class May>
    std::optional<entry> next_before(const entry& end, May&& may) {
      while (true) {
        cursor* best = nullptr;
        for (cursor& c : cursors_) {
          if (!c.next || !before(*c.next, end.key, end.job)) continue;
          if (best == nullptr || before(*c.next, best->next->key, job_id(best->next->id)))
            best = &c;
        }
        if (best == nullptr) return std::nullopt;
        const entry found{job_id(best->next->id), best->next->key, best->gpus};
        if (may(found)) {
          best->next = best->jobs->next(found.key, found.job.value);
          return found;
        }
        best->next.reset();
      }
    }

   private:
    struct cursor {
      const weighted_tree* jobs;
      std::uint32_t gpus;
      std::optional<weighted_tree::item> next;
    };
    std::vector<cursor> cursors_;
  };

 private:
  [[nodiscard]] static bool before(const weighted_tree::item& i, std::int64_t key,
                                   job_id job) noexcept {
    return i.key != key ? i.key < key : i.id < job.value;
  }
  static constexpr auto any_queue = [](const kind&, const job_queue&) { return true; };
  static constexpr auto no_limit = [](const kind&) { return max_time; };

  [[nodiscard]] static delay_cause cause_of(std::uint32_t gpus, const job_queue& l,
                                            std::uint32_t idle, delay_cause otherwise) noexcept {
    if (gpus > idle) return delay_cause::capacity;
    return l.failed ? delay_cause::fragmentation : otherwise;
  }
  template <class Choose, class Limit>
  [[nodiscard]] std::optional<entry> first_where(Choose&& choose, Limit&& limit) const {
    std::optional<entry> best;
    for (const auto& [k, l] : queues_) {
      if (!choose(k, l)) continue;
      const std::optional<weighted_tree::item> i = l.jobs.first_at_most(limit(k));
      if (!i || (best && !before(*i, best->key, best->job))) continue;
      best = entry{job_id(i->id), i->key, k.gpus};
    }
    return best;
  }

  std::map<kind, job_queue> queues_;
  std::size_t size_ = 0;
  std::uint64_t gpus_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
