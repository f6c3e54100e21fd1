// apiary/queue/stop.h - stops jobs until another one fits, and puts back those that need not stop.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where a job fits, and the jobs that have to stop for it.
template <class Where>
struct freed_place {
  Where where{};
  std::vector<job_id> stopped{};  // the last one that was stopped first
};

// Stops running jobs one by one until a waiting job fits, starts it, and puts back the stopped jobs
// that are not in its way, the last one first. nullopt: it does not fit after all that may stop,
// and all of them run again where they ran. An error of a call leaves every job where it was, too.
//
// | call        | meaning                                                                    |
// |-------------|----------------------------------------------------------------------------|
// | next()      | the job to stop next; an id that is not valid: no more may stop            |
// | stop(j)     | a Status: j does not run any more                                          |
// | fits()      | StatusOr<optional<placement>>: where the waiting job fits now. It is asked |
// |             | after each stop                                                            |
// | start(w)    | a Status: the waiting job runs at w                                        |
// | put_back(j) | whether j runs again where it ran; false, and no change, if that is taken. |
// |             | Requires: it succeeds if all jobs stopped before j still run               |
template <class Next, class Stop, class Fits, class Start, class PutBack>
[[nodiscard]] auto stop_until_fits(Next&& next, Stop&& stop, Fits&& fits, Start&& start,
                                   PutBack&& put_back) {
  using where = typename std::remove_cvref_t<decltype(*fits())>::value_type;
  using result = absl::StatusOr<std::optional<freed_place<where>>>;
  std::vector<job_id> stopped;
  const auto put_all_back = [&] {
    std::reverse(stopped.begin(), stopped.end());
    std::erase_if(stopped, put_back);
  };
  const auto try_all = [&]() -> absl::StatusOr<std::optional<where>> {
    while (true) {
      const job_id job = next();
      if (!job.valid()) return std::nullopt;
      APIARY_RETURN_IF_ERROR(stop(job));
      stopped.push_back(job);
      APIARY_ASSIGN_OR_RETURN(std::optional<where> found, fits());
      if (!found) continue;
      APIARY_RETURN_IF_ERROR(start(*found));
      return found;
    }
  };
  absl::StatusOr<std::optional<where>> found = try_all();
  put_all_back();
  if (!found.ok()) return result(found.status());
  if (!*found) return result(std::nullopt);
  return result(freed_place<where>{**std::move(found), std::move(stopped)});
}

APIARY_NAMESPACE_END
