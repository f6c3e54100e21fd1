// apiary/philly/detail/victims.h - which of some running jobs must go so that another has a place.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/philly/options.h>
#include <apiary/philly/server_pool_concept.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

struct philly_candidate {
  job_id job{};
  time_ms started = 0;
  job_placement place{};
};

// Indices of the candidates that make a place for so many GPUs when they go; empty when not even all
// of them do. Candidates go in order until there is a place; then, the last first, each stays after
// all that is not needed: of the answer none can be left out.
//
// Requires: the candidates run at their places. `places` is as before in the end.
// Cost:     O(candidates) places looked for.
template <ServerPool Pool>
[[nodiscard]] std::vector<std::size_t> choose_victims(locality_places<Pool>& places,
                                                      std::span<const philly_candidate> candidates,
                                                      std::uint32_t gpus, job_locality locality) {
  std::size_t n = 0;
  bool fits = false;
  while (n < candidates.size() && !fits) {
    places.give(candidates[n++].place);
    fits = !places.look(gpus, locality).empty();
  }
  std::vector<std::size_t> victims;
  while (n > 0) {
    --n;
    places.take(candidates[n].job, candidates[n].place);
    if (!fits || !places.look(gpus, locality).empty()) continue;
    places.give(candidates[n].place);
    victims.push_back(n);
  }
  for (const std::size_t i : victims) places.take(candidates[i].job, candidates[i].place);
  return victims;
}

}  // namespace detail
APIARY_NAMESPACE_END
