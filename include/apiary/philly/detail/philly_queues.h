// apiary/philly/detail/philly_queues.h - waiting jobs, a queue for each tenant and number of GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/philly/options.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cycle of a waiting job: it acquires, backs off and begins again, always with the same times.
struct philly_cycle {
  time_ms acquire = 1;
  time_ms backoff = 1;
  // The length of a cycle.
  [[nodiscard]] constexpr time_ms length() const noexcept { return acquire + backoff; }
  // When a job that began at `first` last began to acquire. Requires: first <= now, here and below.
  [[nodiscard]] constexpr time_ms begun(time_ms first, time_ms now) const noexcept {
    return now - (now - first) % length();
  }
  // Whether it acquires now.
  [[nodiscard]] constexpr bool acquires(time_ms first, time_ms now) const noexcept {
    return now - begun(first, now) < acquire;
  }
  // How many times it has stopped acquiring and backed off.
  [[nodiscard]] constexpr std::uint32_t tries(time_ms first, time_ms now) const noexcept {
    const time_ms whole = (now - first) / length();
    return static_cast<std::uint32_t>(acquires(first, now) ? whole : whole + 1);
  }
  // When it has backed off so many times and acquires again; at most max_time.
  [[nodiscard]] constexpr time_ms after(time_ms first, std::int64_t tries) const noexcept {
    return tries > (max_time - first) / length() ? max_time : first + tries * length();
  }
};

// The waiting jobs, in one queue for each tenant and number of GPUs. A job is stored under the
// moment of the cycle at which it began, so it does not move while it acquires and backs off. All
// jobs of a queue wait for the same cause, which one clock counts.
// Requires: a job began at or before now. Times and the length of the cycle are below 2^62.
// Cost:     O(log jobs) for each call; O(queues * log jobs) if it looks at all queues.
class philly_wait_queues {
 public:
  // A waiting job.
  struct entry {
    job_id job{};
    time_ms key = 0;
    std::uint32_t gpus = 0;
    job_locality locality = job_locality::packed;
  };
  // The moment when a job begins to acquire; job not valid: all jobs that begin at that moment.
  struct beginning {
    time_ms at = max_time;
    job_id job{};
  };

  explicit philly_wait_queues(philly_cycle cycle) : cycle_(cycle) {}
  [[nodiscard]] const philly_cycle& cycle() const noexcept { return cycle_; }

  // The job waits and acquires from now on. Returns the clock of its queue, for waited().
  delays enter(const job_request& r, time_ms key, job_locality locality, time_ms now) {
    job_queue& l = queues_[{r.tenant, r.gpus}];
    ++l.waiting;
    ++waiting_;
    l.jobs[index(locality)].insert({now % cycle_.length(), r.job.value, key});
    return l.clock.at(now);
  }
  // The job waits no more. Requires, here and below: it waits, with these arguments.
  void leave(const job_request& r, time_ms began, job_locality locality) {
    job_queue& l = queues_.at({r.tenant, r.gpus});
    --l.waiting;
    --waiting_;
    l.jobs[index(locality)].erase(began % cycle_.length(), r.job.value);
  }
  // The job waits at locality `to` from now on.
  void relax(const job_request& r, time_ms began, time_ms key, job_locality from, job_locality to) {
    job_queue& l = queues_.at({r.tenant, r.gpus});
    l.jobs[index(from)].erase(began % cycle_.length(), r.job.value);
    l.jobs[index(to)].insert({began % cycle_.length(), r.job.value, key});
  }
  // How long the job has waited, by cause, since it entered; entered: the result of enter().
  [[nodiscard]] delays waited(const job_request& r, const delays& entered, time_ms now) const {
    delays sum = queues_.at({r.tenant, r.gpus}).clock.at(now);
    return sum -= entered;
  }

  // The first of the acquiring jobs, by key and id, for which may(tenant, gpus, locality) is true.
  template <class May>
  [[nodiscard]] std::optional<entry> first_that(time_ms now, May&& may) const {
    return first_of(queues_.begin(), queues_.end(), now, may);
  }
  // The same for the jobs of one tenant.
  template <class May>
  [[nodiscard]] std::optional<entry> first_that(tenant_id t, time_ms now, May&& may) const {
    return first_of(queues_.lower_bound({t, 0}), queues_.upper_bound({t, ~std::uint32_t{0}}), now,
                    may);
  }
  // The next moment after `after` when a job for which may(tenant, gpus, locality) is true begins
  // to acquire, and this job (the lowest id of several); `at` is max_time if there is none.
  template <class May>
  [[nodiscard]] beginning next(const beginning& after, May&& may) const {
    beginning first;
    for_each([&](tenant_id t, std::uint32_t gpus, job_locality l, const weighted_tree& jobs) {
      if (!may(t, gpus, l)) return;
      const beginning b = next_of(jobs, after);
      if (b.at < first.at || (b.at == first.at && b.job < first.job)) first = b;
    });
    return first;
  }
  // The next time after now when any job begins or stops to acquire; max_time if no job waits.
  [[nodiscard]] time_ms next_change(time_ms now) const {
    const auto any_job = [](tenant_id, std::uint32_t, job_locality) { return true; };
    const time_ms begins = next({now, {}}, any_job).at;
    if (begins == max_time) return max_time;
    // A job that stops acquiring begins again one backoff later.
    return (std::min)(begins, next({now + cycle_.backoff, {}}, any_job).at - cycle_.backoff);
  }
  // From now on the jobs of each queue wait because of cause(tenant, gpus).
  template <class Cause>
  void set_causes(Cause&& cause, time_ms now) {
    if (waiting_ == 0) return;
    for (auto& [of, l] : queues_) {
      if (l.waiting > 0) l.clock.set(cause(of.first, of.second), now);
    }
  }

 private:
  static constexpr std::size_t num_localities = 3;
  // The queue of one tenant and number of GPUs.
  struct job_queue {
    delay_clock clock{};
    std::size_t waiting = 0;
    // By the moment of the cycle at which they began; the weight is the key.
    std::array<weighted_tree, num_localities> jobs{};
  };
  using queues = std::map<std::pair<tenant_id, std::uint32_t>, job_queue>;  // by tenant and GPUs
  [[nodiscard]] static constexpr std::size_t index(job_locality l) noexcept {
    return static_cast<std::size_t>(l);
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    visit_queues(queues_.begin(), queues_.end(), visit);
  }
  template <class Visit>
  void visit_queues(queues::const_iterator at, queues::const_iterator end, Visit&& visit) const {
    if (waiting_ == 0) return;
    for (; at != end; ++at) {
      if (at->second.waiting == 0) continue;
      for (std::size_t i = 0; i < num_localities; ++i) {
        const weighted_tree& jobs = at->second.jobs[i];
        if (!jobs.empty())
          visit(at->first.first, at->first.second, static_cast<job_locality>(i), jobs);
      }
    }
  }
  template <class May>
  [[nodiscard]] std::optional<entry> first_of(queues::const_iterator at, queues::const_iterator end,
                                              time_ms now, May& may) const {
    std::optional<entry> best;
    visit_queues(
        at, end, [&](tenant_id t, std::uint32_t gpus, job_locality l, const weighted_tree& jobs) {
          if (!may(t, gpus, l)) return;
          const std::optional<weighted_tree::item> i = acquiring(jobs, now);
          if (!i || (best && std::pair(best->key, best->job.value) < std::pair(i->weight, i->id)))
            return;
          best = entry{job_id(i->id), i->weight, gpus, l};
        });
    return best;
  }
  // The first by key and id of the jobs that began a cycle less than cycle_.acquire ago.
  [[nodiscard]] std::optional<weighted_tree::item> acquiring(const weighted_tree& jobs,
                                                             time_ms now) const {
    const time_ms until = now % cycle_.length();
    const time_ms from = until - cycle_.acquire + 1;
    const std::optional<weighted_tree::item> here = jobs.lightest(from, until);
    if (from >= 0) return here;
    const std::optional<weighted_tree::item> before =
        jobs.lightest(from + cycle_.length(), cycle_.length());
    if (!here || !before) return here ? here : before;
    return std::pair(here->weight, here->id) < std::pair(before->weight, before->id) ? here
                                                                                     : before;
  }
  // The beginning of the next of these jobs. Requires: jobs are not empty.
  [[nodiscard]] beginning next_of(const weighted_tree& jobs, const beginning& after) const {
    const time_ms moment = after.at % cycle_.length();
    std::optional<weighted_tree::item> i = jobs.next(moment, after.job.value);
    const time_ms round = i ? 0 : cycle_.length();
    if (!i) i = jobs.first();
    return {after.at - moment + round + i->key, job_id(i->id)};
  }

  philly_cycle cycle_;
  queues queues_;
  std::size_t waiting_ = 0;  // in all queues
};

}  // namespace detail
APIARY_NAMESPACE_END
