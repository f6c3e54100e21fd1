// apiary/batch/job_placer.h - the concept of what a scheduler of jobs over time stands on.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <concepts>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Knows where jobs go and who runs where, and nothing of time. A copy of it is asked what would be.
//
// (p: a placer, r: a request, w: a place proposed for r, j: a job, n: a server)
// | expression        | meaning                                                          |
// |-------------------|------------------------------------------------------------------|
// | p.check(r)        | whether r would fit, were everything idle and healthy;           |
// |                   | kInvalidArgument if not                                          |
// | p.propose(r)      | where r would go now; nothing is taken. kResourceExhausted, with |
// |                   | an empty message: nowhere now. Of two requests for equally many  |
// |                   | GPUs both fit or neither                                         |
// | p.commit(r, w)    | r.job runs at w; an error, and no change, if it cannot           |
// | p.finish(j)       | j runs no more; kNotFound if it did not                          |
// | p.mark_bad(n)     | n gets nothing new; what runs there runs on. kNotFound           |
// | p.mark_healthy(n) | it does again                                                    |
// | p.jobs_on(n)      | who runs on n, each once, ascending                              |
// | p.idle_gpus()     | idle GPUs that are healthy                                       |
// | p.total_gpus()    | all GPUs, bad ones included                                      |
template <class P>
concept JobPlacer = std::copy_constructible<P> &&
    requires(P& p, const P& constant, const job_request& r, const job_placement& w, job_id j,
             node_id n) {
  { constant.check(r) } -> std::same_as<absl::Status>;
  { p.propose(r) } -> std::same_as<absl::StatusOr<job_placement>>;
  { p.commit(r, w) } -> std::same_as<absl::Status>;
  { p.finish(j) } -> std::same_as<absl::Status>;
  { p.mark_bad(n) } -> std::same_as<absl::Status>;
  { p.mark_healthy(n) } -> std::same_as<absl::Status>;
  { constant.jobs_on(n) } -> std::same_as<std::vector<job_id>>;
  { constant.idle_gpus() } -> std::same_as<std::uint32_t>;
  { constant.total_gpus() } -> std::same_as<std::uint32_t>;
};

APIARY_NAMESPACE_END
