// apiary/queue/stop.h - stops jobs until another one fits, or those that a placer names.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where a job runs now, and the jobs that do not run any more.
template <class Where>
struct freed_place {
  // nullopt: the job does not fit after all that may stop. An error: a call has failed.
  absl::StatusOr<std::optional<Where>> where{};
  // The last one that was stopped first. If the job does not run, only jobs that could not be put
  // back.
  std::vector<job_id> stopped{};
};

// Stops running jobs one by one until a waiting job fits, starts it, and puts back the stopped jobs
// that are not in its way, the last one first. If it does not fit, or a call fails, all of them run
// again where they ran.
//
// | call        | meaning                                                                    |
// |-------------|----------------------------------------------------------------------------|
// | next()      | the job to stop next; an id that is not valid: no more may stop            |
// | stop(j)     | a Status: j does not run any more                                          |
// | fits()      | StatusOr<optional<placement>>: where the waiting job fits now. It is asked |
// |             | after each stop                                                            |
// | start(w)    | a Status: the waiting job runs at w                                        |
// | put_back(j) | a Status: j runs again where it ran; an error, and no change, if that is   |
// |             | taken. It is expected to succeed if all jobs stopped before j still run    |
template <class Next, class Stop, class Fits, class Start, class PutBack>
[[nodiscard]] auto stop_until_fits(Next&& next, Stop&& stop, Fits&& fits, Start&& start,
                                   PutBack&& put_back) {
  using where = typename std::remove_cvref_t<decltype(*fits())>::value_type;
  freed_place<where> place;
  const auto try_all = [&]() -> absl::StatusOr<std::optional<where>> {
    while (true) {
      const job_id job = next();
      if (!job.valid()) return std::nullopt;
      APIARY_RETURN_IF_ERROR(stop(job));
      place.stopped.push_back(job);
      APIARY_ASSIGN_OR_RETURN(std::optional<where> found, fits());
      if (!found) continue;
      APIARY_RETURN_IF_ERROR(start(*found));
      return found;
    }
  };
  place.where = try_all();
  std::reverse(place.stopped.begin(), place.stopped.end());
  std::erase_if(place.stopped, [&](job_id job) {
    const absl::Status done = put_back(job);
    if (!done.ok() && place.where.ok() && !*place.where) place.where = done;
    return done.ok();
  });
  return place;
}

// Stops the jobs that a placer has named for a waiting one with stop(job), a Status, and proposes
// the waiting job again. If it does not fit then, or a call fails, its GPUs are given up; the jobs
// that have stopped do not run again. Requires: the placer has just reserved the GPUs.
template <PreemptingPlacer P, class Stop>
[[nodiscard]] absl::StatusOr<placer_answer<typename P::placement_type>> place_after(
    P& placer, const typename P::request& r, std::span<const job_id> victims, Stop&& stop) {
  const auto try_all = [&]() -> absl::StatusOr<placer_answer<typename P::placement_type>> {
    for (const job_id victim : victims) APIARY_RETURN_IF_ERROR(stop(victim));
    return placer.propose_preempting(r);
  };
  auto answer = try_all();
  if (!answer.ok() || answer->result != plan_result::bind) (void)placer.finish(r.job);
  return answer;
}

APIARY_NAMESPACE_END
