// apiary/gandiva/gandiva.h - over-subscribed servers whose jobs run in time slices.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/gandiva/detail/pack_trials.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/gandiva/packing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/server_spec.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of gandiva. Times are in milliseconds.
struct gandiva_options {
  server_spec servers{};     // the cluster; `anywhere` is ignored
  time_ms quantum = 60'000;  // length of a time slice; slices change at its multiples
  bool packs = false;        // packs two jobs on one GPU where that pays
  std::uint64_t gpu_memory = ~std::uint64_t{0};  // of each GPU, in the unit of pair_packing::sample
  bool migrates = false;                         // migrates running jobs
  time_ms migration_cost = 2000;                 // time that a job loses by a migration
  std::uint32_t max_loss =
      50;  // thousandths of the time since the last one that a migration may cost
  std::uint32_t threshold = 3;   // servers with at least so many unsubscribed GPUs are emptied
  task_mix typical{};            // tasks that free GPUs should fit; empty: jobs of all sizes
  bool grows = false;            // gives a job idle GPUs of its server, up to max_gpus
  time_ms idle_period = 60'000;  // a job grows after nothing changed on its server for so long
};

// Gandiva: starts every job on a server at once, with more jobs than GPUs if necessary, and runs
// the jobs of such a server in time slices. Options add packing, migration, growing and shrinking.
// The module's page defines load, affinity and unsubscribed GPUs, and lists its steps.
// Model:    "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI 2018), §3.2.
//           Differs: at most two jobs on a GPU, of one server; stride scheduling, not round robin.
// Requires: times >= 0 that never decrease, all within 2^43 ms; decide() is called at wake()
//           (otherwise time slices change late) and after each moment at which a job was submitted
//           or ended or a server broke or was repaired.
// Bound:    none: a job may wait for as long as jobs of other sizes use the servers. A host that
//           needs a bound uses gandiva_with_placer (gandiva/gandiva_fgd.h) and its max_wait.
// Causes:   a job waits for capacity, fragmentation (GPUs apart) or order (its time slice).
// Cost:     a job that arrives, migrates or ends O(log servers + jobs of the server); a decision
//           O(distinct numbers of GPUs and priorities); a quantum O(jobs log jobs) per
//           over-subscribed server. If jobs get no time slices where they are, the quantum also
//           costs O(jobs of over-subscribed servers), and O(servers) for each such job that
//           migrates and for each number of GPUs and priority that has no better server. With
//           migration, a departure also reads the jobs on several servers that could run on fewer,
//           if GPUs are unsubscribed; between slices no other step reads jobs everywhere.
//           benchmarks/README.md has the time of an event on 2,000 to 100,000 GPUs.
// Example:  examples/gandiva.cpp
class gandiva {
 public:
  // queued: waits for a server; suspended: waits for a time slice on its server; run: runs.
  using phase = detail::gandiva_phase;
  // What a job does, and where.
  struct standing {
    gandiva::phase phase = phase::queued;  // what the job does
    node_id server{};  // its server; not valid if it is queued or runs on several servers
    job_id beside{};   // the job it is packed with; not valid: none
    friend bool operator==(const standing&, const standing&) noexcept = default;
  };
  // kInvalidArgument: as servers.check(); a quantum or idle period that is not above 0; a migration
  // cost below 0; a max_loss that is not in 1, ..., 1000; a threshold of 0.
  [[nodiscard]] static absl::StatusOr<gandiva> create(const gandiva_options& options) {
    APIARY_RETURN_IF_ERROR(options.servers.check());
    APIARY_RETURN_IF_ERROR(detail::check_period("quantum", options.quantum));
    APIARY_RETURN_IF_ERROR(detail::check_period("idle period", options.idle_period));
    if (options.migration_cost < 0 || options.migration_cost > max_time / 1000 ||
        options.max_loss == 0 || options.max_loss > 1000 || options.threshold == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "migration cost ", options.migration_cost, " ms, max_loss ", options.max_loss,
          ", threshold ", options.threshold,
          "; the cost must not be below 0, max_loss must be 1 to 1000, the threshold above 0"));
    }
    return gandiva(options);
  }
  // Submits a job. kInvalidArgument: no job id, 0 GPUs or more than the cluster has, a weight that
  // is not in 1, ..., 1000. kAlreadyExists: there is a job of this id.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.gpus == 0 || r.gpus > total_gpus()) {
      return absl::InvalidArgumentError(detail::name_of(r.job) + " requests " +
                                        std::to_string(r.gpus) + " GPUs; the cluster has " +
                                        std::to_string(total_gpus()));
    }
    APIARY_RETURN_IF_ERROR(detail::check_slice_weight(r.job, r.weight));
    if (jobs_.find(r.job) != nullptr) {
      return absl::AlreadyExistsError(detail::name_of(r.job) + " exists already");
    }
    queue_.enter(jobs_.add(r, now), now);
    return absl::OkStatus();
  }
  // The job has ended or is cancelled. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    detail::gandiva_job* const r = jobs_.find(job);
    if (r == nullptr) return absl::NotFoundError(detail::missing(job));
    if (r->phase == phase::queued) {
      queue_.leave(*r, now);
    } else {
      leave(*r, now);
    }
    jobs_.erase(job);
    departed_ = true;
    return absl::OkStatus();
  }
  // Reports measurements of a running job since it last started or its packing changed; only
  // packing uses them. kNotFound: no such job. kFailedPrecondition: the job does not run.
  // kInvalidArgument: a rate of 0, or of 2^53 or more.
  [[nodiscard]] absl::Status report(job_id job, const pair_packing::sample& sample,
                                    time_ms /*now*/) {
    detail::gandiva_job* const r = jobs_.find(job);
    if (r == nullptr) return absl::NotFoundError(detail::missing(job));
    if (!r->runs()) return absl::FailedPreconditionError(detail::name_of(job) + " does not run");
    if (sample.rate == 0 || sample.rate >> 53 != 0) {
      return absl::InvalidArgumentError(detail::name_of(job) + ": a rate of " +
                                        std::to_string(sample.rate));
    }
    if (r->packed()) {
      r->packed_rate = sample.rate;
    } else {
      r->alone = sample;
    }
    return absl::OkStatus();
  }
  // The server is broken: its jobs stop and wait for another one. Returns the jobs that ran,
  // ascending. kNotFound: there is no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    if (n.value >= pool().num_servers()) return no_such(n);
    std::vector<job_id> ran;
    if (!pool().healthy(n)) return ran;
    jobs_.set_health(n, false);
    std::vector<job_id> here = jobs_.servers().jobs(n);
    std::copy_if(here.begin(), here.end(), std::back_inserter(ran),
                 [&](job_id job) { return jobs_.at(job).runs(); });
    std::stable_partition(here.begin(), here.end(),
                          [&](job_id job) { return jobs_.at(job).leader.valid(); });
    for (const job_id job : here) {
      detail::gandiva_job& r = jobs_.at(job);
      leave(r, now);
      queue_.enter(r, now);
    }
    return ran;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    if (n.value >= pool().num_servers()) return no_such(n);
    if (pool().healthy(n)) return absl::OkStatus();
    jobs_.set_health(n, true);
    departed_ = true;
    return absl::OkStatus();
  }
  // Appends the actions that the host must carry out, in order, at most one for each job. The
  // scheduler has applied them already.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    const bool new_slice = now % options_.quantum == 0 || now >= next_slice_;
    jobs_.begin(now, actions);
    if (options_.packs && new_slice) packing_.judge(jobs_);
    detail::assign_queued(jobs_, queue_, now);
    detail::gandiva_relocation::into_unsubscribed(jobs_, packing_);
    if (new_slice) detail::gandiva_relocation::from_held(jobs_, packing_);
    for (const node_id n : again_) jobs_.touch(n);
    again_.clear();
    std::vector<node_id> touched = jobs_.take_touched();
    for (const node_id n : touched) {
      if (!new_slice || !jobs_.servers().over_subscribed(n)) run_slice(n, false, now);
    }
    const summary_bitset& over = jobs_.servers().over();
    for (std::uint32_t n = over.find_first(); new_slice && n != summary_bitset::npos;
         n = over.find_next(n + 1)) {
      run_slice(node_id(n), true, now);
    }
    if (options_.packs) packing_.separate(jobs_);
    if (options_.migrates && departed_) migration_.consolidate(jobs_, now);
    may_migrate_ = may_migrate_ || !touched.empty();
    if (options_.migrates && may_migrate_ && new_slice)
      may_migrate_ = migration_.defragment(jobs_, now);
    if (options_.grows) {
      for (const node_id n : jobs_.take_touched()) touched.push_back(n);
      for (const node_id n : touched) growth_.watch(jobs_, n, now);
      growth_.grow(jobs_, now);
    }
    queue_.explain(pool().idle(), now);
    departed_ = false;
    jobs_.end();
    const bool slices = !over.none() || !jobs_.followers().empty() || !again_.empty() ||
                        (options_.migrates && may_migrate_);
    next_slice_ =
        slices ? add_time(now / options_.quantum * options_.quantum, options_.quantum) : max_time;
    return absl::OkStatus();
  }
  // When decide() must be called although nothing happens: when jobs may grow; at the next quantum
  // while a server is over-subscribed, jobs are packed, or running jobs may migrate.
  [[nodiscard]] time_ms wake() const noexcept { return (std::min)(growth_.next(), next_slice_); }
  // What the job does, and where; nullopt: there is no such job.
  [[nodiscard]] std::optional<standing> find(job_id job) const {
    const detail::gandiva_job* const r = jobs_.find(job);
    if (r == nullptr) return std::nullopt;
    return standing{r->phase, r->home, r->leader.valid() ? r->leader : r->follower};
  }
  // GPUs that the server's jobs asked for. Requires: there is such a server.
  [[nodiscard]] std::uint32_t load(node_id n) const noexcept { return jobs_.servers().load(n); }
  // GPUs that the first job of the server asked for; 0: no job is on it. Requires: as load().
  [[nodiscard]] std::uint32_t affinity(node_id n) const noexcept {
    return jobs_.servers().affinity(n);
  }
  // GPUs of all servers, broken ones included.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool().total(); }
  // The GPUs and the jobs that hold them; of two packed jobs only the leader holds GPUs.
  [[nodiscard]] const server_pool& pool() const noexcept { return jobs_.pool(); }
  // Jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }

 private:
  explicit gandiva(const gandiva_options& options)
      : options_(options),
        jobs_(options.servers.gpus, options.servers.servers_per_rack),
        packing_(options.packs ? options.servers.gpus.size() : 0, options.gpu_memory),
        migration_(options.threshold, options.migration_cost * 1000 / options.max_loss,
                   options.typical.total_weight() == 0
                       ? detail::migration_gains()
                       : detail::migration_gains(fragmentation(options.typical))),
        growth_(options.idle_period) {}
  [[nodiscard]] static absl::Status no_such(node_id n) {
    return absl::NotFoundError("there is no server " + std::to_string(n.value));
  }
  void leave(detail::gandiva_job& r, time_ms now) {
    packing_.forget(r);
    jobs_.leave(r, now);
  }
  // Starts jobs for a server's next time slice. `anew`: chooses among all its jobs and suspends the
  // others; otherwise only among jobs that do not run, on GPUs that are idle or that jobs have
  // grown into. A job that this decision has stopped waits for the next decision.
  void run_slice(node_id n, bool anew, time_ms now) {
    if (!pool().healthy(n)) return;
    std::uint32_t gpus = anew ? pool().gpus(n) - jobs_.servers().pinned(n) : pool().idle(n);
    if (!anew && options_.grows) {
      for (const detail::elastic_job& j : jobs_.elastic(n)) gpus += j.has - j.asked;
    }
    if (gpus == 0 && !options_.packs) return;  // no job can start, and none was stopped before
    candidates_.clear();
    records_.clear();
    runs_.clear();
    waits_.clear();
    for (const job_id job : jobs_.servers().jobs(n)) {
      detail::gandiva_job& r = jobs_.at(job);
      if (r.home != n || r.leader.valid() || (r.runs() && !anew)) continue;
      if (!r.runs() && jobs_.acted(r)) {
        again_.push_back(n);
        continue;
      }
      const time_ms ran = r.runs() ? now - r.since : 0;
      candidates_.push_back({job, r.request.gpus, r.request.priority,
                             r.pass + detail::slice_pass(ran, r.request.weight)});
      records_.push_back(&r);
    }
    if (candidates_.empty()) return;
    const std::vector<std::size_t> chosen = detail::choose_slice(candidates_, gpus);
    for (std::size_t i = 0, c = 0; i < candidates_.size(); ++i) {
      const bool runs = c < chosen.size() && chosen[c] == i;
      c += runs ? 1U : 0U;
      (runs ? runs_ : waits_).push_back(records_[i]);
    }
    detail::gandiva_job* leader = nullptr;
    detail::gandiva_job* follower = nullptr;
    if (const auto trial =
            anew && options_.packs ? packing_.choose(jobs_, n, waits_, runs_) : std::nullopt) {
      std::tie(follower, leader) = *trial;
      if (follower->runs() && !leader->runs()) std::swap(leader, follower);  // saves a start
    }
    for (detail::gandiva_job* const r : waits_) {
      if (r->runs() && r != leader && r != follower) jobs_.suspend(*r);
    }
    if (leader != nullptr && leader->runs()) {
      jobs_.pack(*leader, *follower);
      leader = nullptr;
    }
    for (detail::gandiva_job* const r : runs_) {
      if (r->runs()) continue;
      jobs_.free_grown(n, r->request.gpus);
      jobs_.start(*r, {pool().pick_idle(n, r->request.gpus)});
    }
    if (leader != nullptr) jobs_.pack(*leader, *follower);
  }

  gandiva_options options_;
  detail::gandiva_jobs jobs_;
  detail::gandiva_packing packing_;
  detail::gandiva_migration migration_;
  detail::gandiva_growth growth_;
  detail::gandiva_queue queue_;
  std::vector<node_id> again_;  // servers with a job that may start, but not in the same decision
  bool departed_ = false;       // a job ended or a server was repaired since the last decide()
  bool may_migrate_ = false;    // running jobs may be able to migrate
  time_ms next_slice_ = max_time;               // when the next time slice starts
  std::vector<detail::sliced_job> candidates_;  // scratch of run_slice(), as the next
  std::vector<detail::gandiva_job*> records_, runs_, waits_;
};

static_assert(JobScheduler<gandiva>);

APIARY_NAMESPACE_END
