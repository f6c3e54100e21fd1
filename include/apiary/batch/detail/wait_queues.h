// apiary/batch/detail/wait_queues.h - jobs that wait, in order, a line for each number of GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What fits for one job fits for all that want as many GPUs, so who is next is asked of lines, not
// of jobs; and what keeps the jobs of a line waiting is the same for all of them, so that one clock
// a line tells every job's delay by cause.
//
// Cost: a call O(log jobs waiting) and, where it looks at all lines, O(lines): numbers of GPUs that
//       jobs ever asked for. Memory for as many jobs as waited at once.
class wait_queues {
 public:
  // A place in the order: the lower key first, of equal ones the lower id.
  struct entry {
    job_id job{};
    std::int64_t key = 0;
    std::uint32_t gpus = 0;
  };

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // That all of them want together.
  [[nodiscard]] std::uint64_t gpus() const noexcept { return gpus_; }

  // The job waits from now on; the reading of its line's clock, which leave() wants back.
  delays enter(const job_request& r, std::int64_t key, time_ms now) {
    line& l = queues_[r.gpus];
    l.jobs.insert({key, r.job.value, r.estimate});
    ++size_;
    gpus_ += r.gpus;
    return l.clock.at(now);
  }
  // It does not wait any more; how long it has since it entered, by cause.
  // Requires: it waits with that key and entered at that reading.
  delays leave(const job_request& r, std::int64_t key, const delays& entered, time_ms now) {
    line& l = queues_[r.gpus];
    l.jobs.erase(key, r.job.value);
    --size_;
    gpus_ -= r.gpus;
    delays waited = l.clock.at(now);
    return waited -= entered;
  }
  // As leave(), without leaving.
  [[nodiscard]] delays waited(std::uint32_t gpus, const delays& entered, time_ms now) const {
    delays sum = queues_.at(gpus).clock.at(now);
    return sum -= entered;
  }

  // The first of all.
  [[nodiscard]] std::optional<entry> first() const { return first_where(any_line, no_limit); }
  // The first of all jobs of up to `idle` GPUs whose line has not failed in this round and whose
  // estimate is at most limit(gpus).
  template <class Limit>
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle, Limit&& limit) const {
    return first_where([&](std::uint32_t gpus, const line& l) { return gpus <= idle && !l.failed; },
                       limit);
  }
  [[nodiscard]] std::optional<entry> first_that_may(std::uint32_t idle) const {
    return first_that_may(idle, no_limit);
  }

  // A round: which lines were tried and found no place.
  void begin_round() noexcept {
    for (auto& [gpus, l] : queues_) l.failed = false;
  }
  void fail(std::uint32_t gpus) { queues_[gpus].failed = true; }
  // The round is over: sets the cause of every line that has jobs. A line that failed, or more GPUs
  // than are idle, explain themselves; `otherwise` is what keeps the rest.
  void end_round(std::uint32_t idle, delay_cause otherwise, time_ms now) {
    for (auto& [gpus, l] : queues_) {
      if (l.jobs.empty()) continue;
      l.clock.set(cause_of(gpus, l, idle, otherwise), now);
    }
  }
  // What end_round() would say of a line.
  [[nodiscard]] delay_cause cause_of(std::uint32_t gpus, std::uint32_t idle,
                                     delay_cause otherwise) const {
    return cause_of(gpus, queues_.at(gpus), idle, otherwise);
  }

 private:
  struct line {
    weighted_tree jobs{};  // weighed by their estimates
    delay_clock clock{};
    bool failed = false;
  };

 public:
  // Goes through the jobs of all lines in order. Requires: the lines do not change meanwhile.
  class walk {
   public:
    explicit walk(const wait_queues& lines) {
      for (const auto& [gpus, l] : lines.queues_) {
        if (!l.jobs.empty()) cursors_.push_back({&l.jobs, gpus, l.jobs.first()});
      }
    }
    // The next job before `end` for which may(entry); a line of which one may not is passed over for
    // good.
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
  static constexpr auto any_line = [](std::uint32_t, const line&) { return true; };
  static constexpr auto no_limit = [](std::uint32_t) { return forever; };

  [[nodiscard]] static delay_cause cause_of(std::uint32_t gpus, const line& l, std::uint32_t idle,
                                            delay_cause otherwise) noexcept {
    if (gpus > idle) return delay_cause::capacity;
    return l.failed ? delay_cause::fragmentation : otherwise;
  }
  template <class Choose, class Limit>
  [[nodiscard]] std::optional<entry> first_where(Choose&& choose, Limit&& limit) const {
    std::optional<entry> best;
    for (const auto& [gpus, l] : queues_) {
      if (!choose(gpus, l)) continue;
      const std::optional<weighted_tree::item> i = l.jobs.first_at_most(limit(gpus));
      if (!i || (best && !before(*i, best->key, best->job))) continue;
      best = entry{job_id(i->id), i->key, gpus};
    }
    return best;
  }

  std::map<std::uint32_t, line> queues_;  // by number of GPUs
  std::size_t size_ = 0;
  std::uint64_t gpus_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
