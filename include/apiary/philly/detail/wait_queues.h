// apiary/philly/detail/wait_queues.h - jobs that wait, a line a tenant and number of GPUs.
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

// A job that waits acquires, backs off and begins again, always in the same time.
struct philly_cycle {
  time_ms acquire = 1;
  time_ms backoff = 1;

  [[nodiscard]] constexpr time_ms length() const noexcept { return acquire + backoff; }
  // When who began at `first` last began to acquire. Requires: first <= now, here and below.
  [[nodiscard]] constexpr time_ms begun(time_ms first, time_ms now) const noexcept {
    return now - (now - first) % length();
  }
  [[nodiscard]] constexpr bool acquires(time_ms first, time_ms now) const noexcept {
    return now - begun(first, now) < acquire;
  }
  // How often it has ended in a backoff.
  [[nodiscard]] constexpr std::uint32_t tries(time_ms first, time_ms now) const noexcept {
    const time_ms whole = (now - first) / length();
    return static_cast<std::uint32_t>(acquires(first, now) ? whole : whole + 1);
  }
  // When it will have so often, and begins again; forever if that is beyond time.
  [[nodiscard]] constexpr time_ms after(time_ms first, std::int64_t tries) const noexcept {
    return tries > (forever - first) / length() ? forever : first + tries * length();
  }
};

// Who acquires is told by the clock alone: a job stands at the moment of its cycle at which it
// began, so that nobody is moved while jobs only acquire and back off. Why the jobs of a line wait is
// the same for all of them: one clock a line tells every job's delay by cause.
//
// Requires: a job's times: it began at or before now. Times and length of the cycle below 2^62.
// Cost:     O(log jobs) a call, O(lines log jobs) where it looks at all of them.
class philly_wait_queues {
 public:
  struct entry {
    job_id job{};
    time_ms key = 0;
    std::uint32_t gpus = 0;
    job_locality locality = job_locality::packed;
  };
  // That a job begins to acquire; not valid: all that do so at that moment.
  struct beginning {
    time_ms at = forever;
    job_id job{};
  };

  explicit philly_wait_queues(philly_cycle cycle) : cycle_(cycle) {}

  [[nodiscard]] const philly_cycle& cycle() const noexcept { return cycle_; }

  // The job waits from now on, which is its beginning; the reading of its line's clock, which
  // waited() wants back.
  delays enter(const job_request& r, time_ms key, job_locality locality, time_ms now) {
    line& l = queues_[{r.tenant, r.gpus}];
    ++l.waiting;
    ++waiting_;
    l.jobs[index(locality)].insert({now % cycle_.length(), r.job.value, key});
    return l.clock.at(now);
  }
  // It waits no more. Requires, here and below: it waits, with these.
  void leave(const job_request& r, time_ms began, job_locality locality) {
    line& l = queues_.at({r.tenant, r.gpus});
    --l.waiting;
    --waiting_;
    l.jobs[index(locality)].erase(began % cycle_.length(), r.job.value);
  }
  void relax(const job_request& r, time_ms began, time_ms key, job_locality from, job_locality to) {
    line& l = queues_.at({r.tenant, r.gpus});
    l.jobs[index(from)].erase(began % cycle_.length(), r.job.value);
    l.jobs[index(to)].insert({began % cycle_.length(), r.job.value, key});
  }
  // How long it has waited since it entered at that reading.
  [[nodiscard]] delays waited(const job_request& r, const delays& entered, time_ms now) const {
    delays sum = queues_.at({r.tenant, r.gpus}).clock.at(now);
    return sum -= entered;
  }

  // The first of those that acquire, by key and id, for which may(tenant, gpus, locality).
  template <class May>
  [[nodiscard]] std::optional<entry> first_that(time_ms now, May&& may) const {
    return first_of(queues_.begin(), queues_.end(), now, may);
  }
  // The same of one tenant's.
  template <class May>
  [[nodiscard]] std::optional<entry> first_that(tenant_id t, time_ms now, May&& may) const {
    return first_of(queues_.lower_bound({t, 0}), queues_.upper_bound({t, ~std::uint32_t{0}}), now,
                    may);
  }
  // Who begins to acquire next after that beginning, the lowest id of those who do so at once, and
  // for which may(tenant, gpus, locality); at forever: nobody.
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
  // When anyone begins or ends to acquire next after now; forever: nobody waits.
  [[nodiscard]] time_ms next_change(time_ms now) const {
    const auto anyone = [](tenant_id, std::uint32_t, job_locality) { return true; };
    const time_ms begins = next({now, {}}, anyone).at;
    if (begins == forever) return forever;
    // Who ends to acquire begins again a backoff later.
    return (std::min)(begins, next({now + cycle_.backoff, {}}, anyone).at - cycle_.backoff);
  }
  // From now on the jobs of each line wait because of cause(tenant, gpus).
  template <class Cause>
  void set_causes(Cause&& cause, time_ms now) {
    if (waiting_ == 0) return;
    for (auto& [of, l] : queues_) {
      if (l.waiting > 0) l.clock.set(cause(of.first, of.second), now);
    }
  }

 private:
  struct line {
    delay_clock clock{};
    std::size_t waiting = 0;
    // By the moment of the cycle, weighed by their keys.
    std::array<weighted_tree, num_job_localities> jobs{};
  };
  using lines = std::map<std::pair<tenant_id, std::uint32_t>, line>;  // by tenant and GPUs

  [[nodiscard]] static constexpr std::size_t index(job_locality l) noexcept {
    return static_cast<std::size_t>(l);
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    visit_lines(queues_.begin(), queues_.end(), visit);
  }
  template <class Visit>
  void visit_lines(lines::const_iterator at, lines::const_iterator end, Visit&& visit) const {
    if (waiting_ == 0) return;
    for (; at != end; ++at) {
      if (at->second.waiting == 0) continue;
      for (std::size_t i = 0; i < num_job_localities; ++i) {
        const weighted_tree& jobs = at->second.jobs[i];
        if (!jobs.empty())
          visit(at->first.first, at->first.second, static_cast<job_locality>(i), jobs);
      }
    }
  }
  template <class May>
  [[nodiscard]] std::optional<entry> first_of(lines::const_iterator at, lines::const_iterator end,
                                              time_ms now, May& may) const {
    std::optional<entry> best;
    visit_lines(
        at, end, [&](tenant_id t, std::uint32_t gpus, job_locality l, const weighted_tree& jobs) {
          if (!may(t, gpus, l)) return;
          const std::optional<weighted_tree::item> i = acquiring(jobs, now);
          if (!i || (best && std::pair(best->key, best->job.value) < std::pair(i->weight, i->id)))
            return;
          best = entry{job_id(i->id), i->weight, gpus, l};
        });
    return best;
  }
  // The first by key and id of those that began less than acquire_time ago.
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
  // Requires: jobs are not empty.
  [[nodiscard]] beginning next_of(const weighted_tree& jobs, const beginning& after) const {
    const time_ms moment = after.at % cycle_.length();
    std::optional<weighted_tree::item> i = jobs.next(moment, after.job.value);
    const time_ms round = i ? 0 : cycle_.length();
    if (!i) i = jobs.first();
    return {after.at - moment + round + i->key, job_id(i->id)};
  }

  philly_cycle cycle_;
  lines queues_;
  std::size_t waiting_ = 0;  // in all lines
};

}  // namespace detail
APIARY_NAMESPACE_END
