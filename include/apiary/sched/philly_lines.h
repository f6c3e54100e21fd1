// apiary/sched/philly_lines.h - jobs that wait, a line a tenant and number of GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/weighted_tree.h>
#include <apiary/model/job_request.h>
#include <apiary/sched/philly_options.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

APIARY_NAMESPACE_BEGIN

// Why the jobs of a line wait is the same for all of them: one clock a line tells every job's delay
// by cause. Of those that wait, the ones that acquire stand in order, by locality.
//
// Cost: O(log jobs) a call, O(lines) where it looks at all of them.
class philly_lines {
 public:
  struct entry {
    job_id job{};
    tick_t key = 0;
    std::uint32_t gpus = 0;
    job_locality locality = job_locality::packed;
  };

  // The job waits from now on; the reading of its line's clock, which waited() wants back.
  delays enter(const job_request& r, tick_t now) {
    line& l = lines_[{r.tenant, r.gpus}];
    ++l.waiting;
    return l.clock.at(now);
  }
  void leave(const job_request& r) { --lines_.at({r.tenant, r.gpus}).waiting; }
  // How long it has waited since it entered at that reading. Requires: it waits.
  [[nodiscard]] delays waited(const job_request& r, const delays& entered, tick_t now) const {
    delays sum = lines_.at({r.tenant, r.gpus}).clock.at(now);
    return sum -= entered;
  }
  // The waiting job begins or ends to acquire.
  void acquire(const job_request& r, tick_t key, job_locality locality, bool begins) {
    weighted_tree& jobs = lines_.at({r.tenant, r.gpus}).acquiring[index(locality)];
    begins ? jobs.insert({key, r.job.value, 0}) : jobs.erase(key, r.job.value);
  }

  // The first of those that acquire, by key and id, for which may(tenant, gpus, locality).
  template <class May>
  [[nodiscard]] std::optional<entry> first_that(May&& may) const {
    return first_of(lines_.begin(), lines_.end(), may);
  }
  // The same of one tenant's.
  template <class May>
  [[nodiscard]] std::optional<entry> first_that(tenant_id t, May&& may) const {
    return first_of(lines_.lower_bound({t, 0}), lines_.upper_bound({t, ~std::uint32_t{0}}), may);
  }
  // From now on the jobs of each line wait because of cause(tenant, gpus).
  template <class Cause>
  void set_causes(Cause&& cause, tick_t now) {
    for (auto& [of, l] : lines_) {
      if (l.waiting > 0) l.clock.set(cause(of.first, of.second), now);
    }
  }

 private:
  struct line {
    delay_clock clock{};
    std::size_t waiting = 0;
    std::array<weighted_tree, num_job_localities> acquiring{};
  };
  using lines = std::map<std::pair<tenant_id, std::uint32_t>, line>;  // by tenant and GPUs

  [[nodiscard]] static constexpr std::size_t index(job_locality l) noexcept {
    return static_cast<std::size_t>(l);
  }
  template <class May>
  [[nodiscard]] static std::optional<entry> first_of(lines::const_iterator at,
                                                     lines::const_iterator end, May& may) {
    std::optional<entry> best;
    for (; at != end; ++at) {
      const auto& [tenant, gpus] = at->first;
      if (at->second.waiting == 0) continue;
      for (std::size_t i = 0; i < num_job_localities; ++i) {
        const std::optional<weighted_tree::item> first = at->second.acquiring[i].first();
        if (!first) continue;
        if (best &&
            (best->key != first->key ? best->key < first->key : best->job.value < first->id))
          continue;
        const auto locality = static_cast<job_locality>(i);
        if (may(tenant, gpus, locality))
          best = entry{job_id(first->id), first->key, gpus, locality};
      }
    }
    return best;
  }

  lines lines_;
};

APIARY_NAMESPACE_END
