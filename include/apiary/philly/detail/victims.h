// apiary/philly/detail/victims.h - which running jobs must stop so that another one fits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/philly/detail/locality_search.h>
#include <apiary/philly/options.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A running job that may be preempted.
struct philly_candidate {
  job_id job{};
  time_ms started = 0;
  job_placement where{};
};

// Indices of the candidates that must stop so that a job with `gpus` GPUs fits; empty if it does
// not fit even without all. Removes candidates in order until the job fits; then puts back, from
// the last one on, each one that is not needed. At the end `search` is unchanged.
// Requires: the candidates run at their placements. Cost: O(candidates) searches for a placement.
template <ServerPool Pool>
[[nodiscard]] std::vector<std::size_t> choose_victims(locality_search<Pool>& search,
                                                      std::span<const philly_candidate> candidates,
                                                      std::uint32_t gpus, job_locality locality) {
  std::size_t n = 0;
  bool fits = false;
  while (n < candidates.size() && !fits) {
    search.give(candidates[n++].where);
    fits = !search.look(gpus, locality).empty();
  }
  std::vector<std::size_t> victims;
  while (n > 0) {
    --n;
    search.take(candidates[n].job, candidates[n].where);
    if (!fits || !search.look(gpus, locality).empty()) continue;
    search.give(candidates[n].where);
    victims.push_back(n);
  }
  for (const std::size_t i : victims) search.take(candidates[i].job, candidates[i].where);
  return victims;
}

}  // namespace detail
APIARY_NAMESPACE_END
