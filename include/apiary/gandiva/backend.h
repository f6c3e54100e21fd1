// apiary/gandiva/backend.h - what time sharing needs from the scheduler that places jobs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of time_sharing and time_sharing_queue.
struct time_sharing_options {
  // Limits on the migrations of one tick.
  struct migration_limits {
    std::uint32_t jobs = 1;  // at most so many jobs migrate; 0: none
    std::uint32_t cost = 0;  // thousandths a GPU; a migration must lower the measure by more
  };
  // Options of one job.
  struct job_options {
    std::uint32_t weight = 1;  // the job gets time in proportion to it: 1, ..., 1000
    bool movable = true;       // whether the job may be migrated
  };
  time_ms quantum = 600'000;      // ms of a time slice; max_time: no job stops for another one
  migration_limits migrations{};  // limits on the migrations of one tick
  std::uint32_t max_wait = 10;    // a job starves after so many quanta; 0: never, as published
  // Jobs of whole GPUs share GPU-time: a job of g GPUs counts as one of weight 1000 * weight / g,
  // rounded down, but at least 1. False: jobs share time, whatever their GPUs, as published.
  bool shares_gpu_time = true;
};

// A scheduler that places requests and does not know time; time_sharing adds slices and migration.
//
// (g: a backend, r: a request, w: a placement, j: a job, n: a node)
// | expression           | meaning                                                            |
// |----------------------|--------------------------------------------------------------------|
// | r.job                | the id of the job                                                  |
// | g.priority(r)        | below 0: the job runs in time slices. From 0 up: the job runs      |
// |                      | until it ends; a higher number starts first, and only a job of a   |
// |                      | higher number may stop it                                          |
// | g.start(r, stopped)  | starts r if it can and says whether it did; appends the jobs that  |
// |                      | it stopped for r: none if r runs in time slices. An error, always  |
// |                      | the same for the same request: r can never run; the message should |
// |                      | name r.job. If start(r) has once returned true or false, it never  |
// |                      | returns an error for r, or APIARY_VERIFY may end the program       |
// | g.may_start(r)       | whether start(r) would succeed now; changes nothing                |
// | g.stop(j)            | stops the running job j; returns where it ran                      |
// | g.restart(r, w)      | runs r again at w, where it ran before stop(); false if another    |
// |                      | job took w. Stopping jobs and restarting them in reverse order     |
// |                      | changes nothing                                                    |
// | g.placement_of(j)    | where the running job j runs                                       |
// | g.improve(jobs, limits, moved) | migrates some of `jobs` (running, ascending), each at    |
// |                      | most once, so that each migration lowers the backend's measure;    |
// |                      | appends the jobs that migrated                                     |
// | g.mark(n, healthy)   | a bad node n gets no new job; kNotFound: there is no such node     |
// | g.empty()            | whether no job runs                                                |
template <class G>
concept TimeSharingBackend = requires(G& g, const G& constant, const typename G::request& r,
                                      const typename G::placement_type& w, job_id j, node_id n,
                                      std::span<const job_id> jobs,
                                      const time_sharing_options::migration_limits& limits,
                                      std::vector<job_id>& appended) {
  { r.job } -> std::convertible_to<job_id>;
  { constant.priority(r) } -> std::same_as<std::int32_t>;
  { g.start(r, appended) } -> std::same_as<absl::StatusOr<bool>>;
  { g.may_start(r) } -> std::same_as<bool>;
  { g.stop(j) } -> std::same_as<typename G::placement_type>;
  { g.restart(r, w) } -> std::same_as<bool>;
  { constant.placement_of(j) } -> std::same_as<typename G::placement_type>;
  { g.improve(jobs, limits, appended) } -> std::same_as<void>;
  { g.mark(n, true) } -> std::same_as<absl::Status>;
  { constant.empty() } -> std::same_as<bool>;
};

// A backend whose requests are jobs of whole GPUs. time_sharing_queue makes a JobScheduler of it.
// Jobs of one tenant and priority with equally many GPUs are of one kind: start() succeeds for all
// of them or for none. After a job failed to start, time sharing does not try others of its kind at
// once. If g.priority(r) is 0 or more, r is a guaranteed job: it may start on GPUs that its tenant
// is entitled to. The same request with priority -1 runs in time slices.
//
// (g: a backend, r: a job_request, w: a placement, t: a tenant, n: a node)
// | expression            | meaning                                                           |
// |-----------------------|-------------------------------------------------------------------|
// | g.check(r)            | an error if r would not run on an idle and healthy cluster        |
// | g.job_placement_of(w) | w as a job_placement: nodes in ascending order, each once         |
// | g.entitled_gpus(t)    | GPUs that tenant t is entitled to                                 |
// | g.gpus(n)             | GPUs of node n. Requires: there is such a node                    |
// | g.total_gpus()        | GPUs of the cluster, those of bad nodes included                  |
template <class G>
concept JobBackend = TimeSharingBackend<G> && std::same_as<typename G::request, job_request> &&
    requires(G& g, const G& constant, const job_request& r, const typename G::placement_type& w,
             tenant_id t, node_id n) {
  { g.check(r) } -> std::same_as<absl::Status>;
  { constant.job_placement_of(w) } -> std::convertible_to<job_placement>;
  { constant.entitled_gpus(t) } -> std::same_as<std::uint32_t>;
  { constant.gpus(n) } -> std::same_as<std::uint32_t>;
  { constant.total_gpus() } -> std::same_as<std::uint32_t>;
};

namespace detail {

// Tries `trials` jobs a call, round robin from job `next` on, until `limit` jobs have migrated.
// Afterwards `next` is behind the last job tried. try_migration(job) says whether the job migrated.
template <class Move>
void migrate_round_robin(std::span<const job_id> movable, std::uint32_t trials, std::uint32_t limit,
                         job_id& next, std::vector<job_id>& moved, Move&& try_migration) {
  const auto first = static_cast<std::size_t>(
      std::lower_bound(movable.begin(), movable.end(), next) - movable.begin());
  trials = static_cast<std::uint32_t>((std::min<std::size_t>)(movable.size(), trials));
  for (std::size_t i = 0; i < trials && moved.size() < limit; ++i) {
    const job_id job = movable[(first + i) % movable.size()];
    if (try_migration(job)) moved.push_back(job);
    next = job_id(job.value + 1);
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
