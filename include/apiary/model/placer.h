// apiary/model/placer.h - the concept of a component that says where a job runs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <compare>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A component that decides where jobs run. A queue decides when: each queue of the library works
// with each placer. A queue copies the placer to ask what would happen later.
//
// (p: a placer, r: a request, w: a placement of r, j: a job, n: a server)
//
// | expression or type | meaning                                                                  |
// |--------------------|--------------------------------------------------------------------------|
// | P::request         | what a job asks for, with its id as r.job; job_request in all queues     |
// | P::placement_type  | where a job runs; job_placement for the simulator                        |
// | P::kind            | ordered. Requests of one kind all fit, or none does; k.gpus is the least |
// |                    | number of idle GPUs that one of them needs                               |
// | p.kind_of(r)       | the kind of r. It does not change                                        |
// | p.check(r)         | kInvalidArgument if r would not fit in an idle, healthy cluster          |
// | p.propose(r)       | where r would run now beside all jobs that run; nullopt: it does not fit |
// |                    | now. Changes nothing                                                     |
// | p.commit(r, w)     | r.job runs at w, which was proposed, or where it ran before; an error,   |
// |                    | and no change, if it cannot. On bad servers it may be refused            |
// | p.finish(j)        | j has ended; kNotFound if it did not run                                 |
// | p.mark_bad(n)      | n gets no new job; its jobs continue. kNotFound: no such server          |
// | p.mark_healthy(n)  | n gets new jobs again. kNotFound: no such server                         |
// | p.jobs_on(n)       | the jobs that run on n, each once, ascending                             |
// | p.idle_gpus()      | idle GPUs on healthy servers                                             |
// | p.total_gpus()     | all GPUs, including those on bad servers                                 |
//
// Example: queue/server_placer.h; examples/programs/simulate_placer.h
template <class P>
concept Placer = std::copy_constructible<P> && std::totally_ordered<typename P::kind> &&
    requires(P& p, const P& constant, const typename P::request& r,
             const typename P::placement_type& w, const typename P::kind& k, job_id j, node_id n) {
  { r.job } -> std::convertible_to<job_id>;
  { k.gpus } -> std::convertible_to<std::uint32_t>;
  { constant.kind_of(r) } -> std::same_as<typename P::kind>;
  { p.check(r) } -> std::same_as<absl::Status>;
  { p.propose(r) } -> std::same_as<absl::StatusOr<std::optional<typename P::placement_type>>>;
  { p.commit(r, w) } -> std::same_as<absl::Status>;
  { p.finish(j) } -> std::same_as<absl::Status>;
  { p.mark_bad(n) } -> std::same_as<absl::Status>;
  { p.mark_healthy(n) } -> std::same_as<absl::Status>;
  { constant.jobs_on(n) } -> std::same_as<std::vector<job_id>>;
  { constant.idle_gpus() } -> std::same_as<std::uint32_t>;
  { constant.total_gpus() } -> std::same_as<std::uint32_t>;
};

// A placer of whole jobs: JobScheduler's requests and placements.
template <class P>
concept JobPlacer = Placer<P> && std::same_as<typename P::request, job_request> &&
    std::same_as<typename P::placement_type, job_placement>;

// What a placer answers that may stop jobs for another one.
template <class Placement>
struct placer_answer {
  plan_result result = plan_result::wait;  // bind: it fits now; preempt: after the victims; or wait
  Placement where{};                       // if it fits now
  std::vector<job_id> victims{};           // running jobs without which it fits
  bool undecided = false;  // it waits because a search ended before it knew whether the job fits
};

// A placer that knows which jobs must give way to others, because of priorities or of what tenants
// own.
//
// (p: a placer, r: a request, j: a job, t: a time)
// | expression              | meaning                                                            |
// |-------------------------|--------------------------------------------------------------------|
// | p.propose_preempting(r) | as p.propose(r), and if r does not fit now, the jobs that must end |
// |                         | first                                                              |
// | p.reserve(j)            | propose_preempting() has just named victims for job j: its GPUs    |
// |                         | are kept for it until they have ended, when propose_preempting()   |
// |                         | finds them; finish(j) gives them up                                |
// | p.set_time(t)           | optional, for placers that count how long jobs run: it is t now    |
template <class P>
concept PreemptingPlacer = Placer<P> && requires(P& p, const typename P::request& r, job_id j) {
  {
    p.propose_preempting(r)
    } -> std::same_as<absl::StatusOr<placer_answer<typename P::placement_type>>>;
  { p.reserve(j) } -> std::same_as<absl::Status>;
};

// A PreemptingPlacer some of whose jobs are guaranteed: those whose priority is not below 0. Only a
// guaranteed job of a higher priority stops such a job. For jobs of whole GPUs, time_sharing also
// needs p.entitled_gpus(t): the GPUs of tenant t that no guaranteed job has.
//
// (r: a request)
// | expression    | meaning                                                                      |
// |---------------|------------------------------------------------------------------------------|
// | P::guarantees | true                                                                         |
// | r.priority    | its priority                                                                 |
template <class P>
concept GuaranteeingPlacer = PreemptingPlacer<P> && P::guarantees &&
    requires(const typename P::request& r) {
  { r.priority } -> std::convertible_to<std::int32_t>;
};

// A placer that measures what a migration gains: a job is stopped and proposed again, and migrates
// if the gain is enough.
//
// (p: a placer, r: a request that does not run, from, to: placements of r, j: a running job)
// | expression          | meaning                                                            |
// |---------------------|--------------------------------------------------------------------|
// | p.may_migrate(j)    | whether the job may be tried                                       |
// | p.gain(r, from, to) | by how much its measure falls if r runs at `to`, which was just    |
// |                     | proposed, and not at `from`, in thousandths for each GPU of r,     |
// |                     | rounded up                                                         |
template <class P>
concept MeasuredPlacer = Placer<P> && requires(const P& p, const typename P::request& r,
                                               const typename P::placement_type& w, job_id j) {
  { p.may_migrate(j) } -> std::same_as<bool>;
  { p.gain(r, w, w) } -> std::same_as<std::int64_t>;
};

// A placer that finds the best migration itself.
//
// (p: a placer, jobs: a span of P::running_request, each {task, where})
// | expression                   | meaning                                                       |
// |------------------------------|---------------------------------------------------------------|
// | p.best_migration(jobs, cost) | an optional {task, to}: the index of the job whose migration  |
// |                              | gains most, if that is more than `cost` thousandths a GPU     |
template <class P>
concept BestMigrationPlacer = Placer<P> &&
    requires(P& p, std::span<const typename P::running_request> jobs, std::uint32_t cost) {
  { p.best_migration(jobs, cost)->to } -> std::convertible_to<typename P::placement_type>;
};

// The kind of a job for placers that know nothing but its GPUs and its demand.
struct job_kind {
  std::uint32_t gpus = 0;    // as job_request::gpus
  std::uint32_t demand = 0;  // as job_request::demand
  friend constexpr auto operator<=>(const job_kind&, const job_kind&) noexcept = default;
};

// What such a placer derives from: the types of Placer, and kind_of.
struct job_placer_types {
  using request = job_request;           // see Placer
  using placement_type = job_placement;  // see Placer
  using kind = job_kind;                 // see Placer
  // See Placer.
  [[nodiscard]] static job_kind kind_of(const job_request& r) noexcept {
    return {r.gpus, r.demand};
  }
};

APIARY_NAMESPACE_END
