// apiary/batch/job_placer.h - the concept of a component that says where a job runs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A component that decides where jobs run; the queues in batch/ decide when. A queue copies the
// placer to ask what would happen later.
// (p: a placer, r: a request, w: a placement proposed for r, j: a job, n: a server)
// | expression        | meaning                                                          |
// |-------------------|------------------------------------------------------------------|
// | p.check(r)        | kInvalidArgument if r would not fit in an idle, healthy cluster  |
// | p.propose(r)      | where r would run now; nullopt: it does not fit now. Changes     |
// |                   | nothing. Requests of equal GPUs and demand all fit, or none does |
// | p.commit(r, w)    | r.job runs at w; an error, and no change, if it cannot           |
// | p.finish(j)       | j has ended; kNotFound if it did not run                         |
// | p.mark_bad(n)     | n gets no new job; its jobs continue. kNotFound: no such server  |
// | p.mark_healthy(n) | n gets new jobs again. kNotFound: no such server                 |
// | p.jobs_on(n)      | the jobs that run on n, each once, ascending                     |
// | p.idle_gpus()     | idle GPUs on healthy servers                                     |
// | p.total_gpus()    | all GPUs, including those on bad servers                         |
template <class P>
concept JobPlacer = std::copy_constructible<P> &&
    requires(P& p, const P& constant, const job_request& r, const job_placement& w, job_id j,
             node_id n) {
  { constant.check(r) } -> std::same_as<absl::Status>;
  { p.propose(r) } -> std::same_as<absl::StatusOr<std::optional<job_placement>>>;
  { p.commit(r, w) } -> std::same_as<absl::Status>;
  { p.finish(j) } -> std::same_as<absl::Status>;
  { p.mark_bad(n) } -> std::same_as<absl::Status>;
  { p.mark_healthy(n) } -> std::same_as<absl::Status>;
  { constant.jobs_on(n) } -> std::same_as<std::vector<job_id>>;
  { constant.idle_gpus() } -> std::same_as<std::uint32_t>;
  { constant.total_gpus() } -> std::same_as<std::uint32_t>;
};

APIARY_NAMESPACE_END
