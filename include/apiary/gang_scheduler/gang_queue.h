// apiary/gang_scheduler/gang_queue.h - a queue of jobs over a gang scheduler, for the simulator.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/detail/job_division.h>
#include <apiary/gang_scheduler/detail/waiting_kinds.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a gang_queue.
struct gang_queue_options {
  using demand = gang_job_demand;  // what a job needs besides its number of GPUs
  // A job may start before the first waiting job if, by the estimates of the running jobs, this
  // does not delay the first one. If the first one waits for a bad node, every job that fits may
  // start. If it is undecided whether the first one can start when a job has ended, no job starts
  // that ends later.
  bool backfill = false;
  std::vector<demand> demands{};  // by job id; jobs from its end on need only GPUs
};

// Queues jobs over a gang_scheduler: higher priorities first, then in the order of submission. The
// first job that does not fit delays all jobs after it, unless backfilling lets them start. A job
// may suspend running jobs of lower priority, at least cost; these then wait again, in the same
// order.
//
// A job of n GPUs is a gang of tasks that each fill a node of the largest size among the nodes of
// its GPU models, and one task with the remaining GPUs; of smaller tasks if these do not fit even
// in the idle cluster. Each task has the CPU and memory of its GPUs (gang_queue_options::demand).
// No job runs on a node with taints. The first job waits for capacity if fewer GPUs are free on
// nodes without taints than it asks for, whatever their models are; otherwise for fragmentation.
// Bound: a job waits at most (k + 1) * T, where k jobs of no lower priority wait before it when it
//       begins to wait. Without backfilling, T is the longest run; with it the longest estimate,
//       and no job may run longer than its estimate. This holds while all nodes are healthy, no job
//       of higher priority arrives and no proposal is `undecided`, in submit and in decide.
// Cost: finish and mark_*: as in gang_scheduler; submit: one proposal for each size of tasks until
//       one may fit, so up to 32 for a job that never fits; decide: one proposal for each job that
//       starts and one for the first that does not. Jobs of equal tenant, priority, GPUs and demand
//       are of one kind. Backfilling adds O(kinds); after GPUs may have become free a proposal for
//       each kind and a trial for the first job: ends of running jobs, a proposal after each one
//       from which enough GPUs are free; and a trial for each kind that may delay it, again after
//       each start. At 80 % use an event costs 1.2 us on 2,000 GPUs and 2.9 on 100,000 (sim_bench,
//       growth/gang). No step reads more nodes or jobs: it takes 8,700 and 10,000 instructions. But
//       50 times as many jobs run: 10 and 43 of its accesses to memory miss a cache of 1 MiB
//       (counted by callgrind).
class gang_queue {
 public:
  // Starts with an empty queue. Requires: no gang runs.
  explicit gang_queue(gang_scheduler scheduler, gang_queue_options options = {})
      : scheduler_(std::move(scheduler)), options_(std::move(options)) {
    APIARY_VERIFY(scheduler_.num_gangs() == 0);
    const auto nodes = scheduler_.free_capacity(0);
    for (const gang_scheduler::cell_capacity& n : *nodes) {
      const auto gpus = static_cast<std::uint32_t>(n.gpus);
      const gang_cluster::node& node = *scheduler_.node(*scheduler_.find_node(n.name));
      total_ += gpus;
      if (!node.taints.empty()) tainted_free_ += n.free_gpus;
      if (node.taints.empty()) division_.add(node.model, gpus);
    }
  }

  // A job arrives. kInvalidArgument: no id, no GPU, an estimate below 0, a job that can never run,
  // or a task with 2^32 units of CPU or memory or more. kAlreadyExists: a job with this id waits or
  // runs.
  absl::Status submit(const job_request& job, time_ms now) {
    if (!job.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    const std::string name = detail::name_of(job.job);
    if (jobs_.contains(job.job.value)) return absl::AlreadyExistsError(name + " exists already");
    if (job.gpus == 0) return absl::InvalidArgumentError(name + " asks for 0 GPUs");
    if (job.estimate < 0)
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has an estimate of ", job.estimate, " ms; it must not be below 0"));
    const gang_queue_options::demand& each = demand_of(job.job);
    APIARY_RETURN_IF_ERROR(division_.check_products(job, each.per_gpu, each.models));
    gang_scheduler::request gang;
    const bool enough = division_.has(job.gpus, each.models);
    bool fits = false;
    for (std::uint32_t size = enough ? division_.task_gpus(job.gpus, each.models) : 0;
         size > 0 && !fits; --size) {
      gang = detail::job_division::gang_of(job, size, each.per_gpu, each.models);
      APIARY_ASSIGN_OR_RETURN(const gang_scheduler::plan plan, scheduler_.propose(gang, now));
      fits = plan.result != plan_result::wait || plan.reason != wait_reason::never;
    }
    if (!fits) return division_.never_fits(job, each.per_gpu, each.models, total_);
    const order_key key{~static_cast<std::int64_t>(job.priority), submitted_++};
    entry& e = jobs_[job.job.value];
    e = {.key = key, .gpus = job.gpus, .kind = kind_of(job), .estimate = job.estimate};
    wait(e, std::move(gang), now);
    return absl::OkStatus();
  }
  // The job has ended or is cancelled. kNotFound: there is no such job.
  absl::Status finish(job_id job, time_ms) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError(detail::missing(job));
    const entry& e = found->second;
    if (const auto waits = waiting_.find(e.key); waits != waiting_.end()) {
      kinds_.erase(e.kind, e.key);
      waiting_.erase(waits);
    } else {
      APIARY_RETURN_IF_ERROR(scheduler_.finish(job.value));
      forget_end(e);
      gpus_may_be_free();
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }
  // A node failed: its jobs stop and wait again. kNotFound: there is no such node.
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id node, time_ms now) {
    const std::uint64_t free = scheduler_.free_gpus();
    APIARY_RETURN_IF_ERROR(scheduler_.mark_bad(node));
    count_tainted(node, free);
    std::vector<job_id> stopped;
    for (const job_key& job : scheduler_.jobs_on(node)) {
      stopped.push_back(id_of(job));
      APIARY_RETURN_IF_ERROR(stop(job, now));
    }
    gpus_may_be_free();
    return stopped;
  }
  // The node is healthy again. kNotFound: there is no such node.
  absl::Status mark_healthy(node_id node, time_ms) {
    const std::uint64_t free = scheduler_.free_gpus();
    APIARY_RETURN_IF_ERROR(scheduler_.mark_healthy(node));
    count_tainted(node, free);
    gpus_may_be_free();
    return absl::OkStatus();
  }

  // Appends what the host must do now.
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    while (!waiting_.empty()) {
      const auto first = waiting_.begin();
      APIARY_ASSIGN_OR_RETURN(gang_scheduler::plan plan, scheduler_.propose(first->second, now));
      if (plan.result == plan_result::wait) {
        hold_up(first->first, now);
        return options_.backfill ? backfill(now, actions) : absl::OkStatus();
      }
      APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
      if (plan.result == plan_result::preempt) {
        for (const job_key& victim : plan.victims) {
          actions.push_back({.what = job_action::verb::suspend, .job = id_of(victim)});
          APIARY_RETURN_IF_ERROR(stop(victim, now));
        }
        APIARY_ASSIGN_OR_RETURN(plan, scheduler_.propose(first->second, now));
        APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
      }
      start(first, plan, now, actions);
      reserved_.reset();
    }
    return absl::OkStatus();
  }
  // It decides only when something happens.
  [[nodiscard]] time_ms wake() const noexcept { return max_time; }
  // GPUs of the cluster, also those of nodes with taints.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return total_; }
  // The scheduler, for questions.
  [[nodiscard]] const gang_scheduler& scheduler() const noexcept { return scheduler_; }

 private:
  using order_key = detail::waiting_kinds::order_key;  // ascending: the first job first
  struct entry {
    order_key key{};
    std::uint32_t gpus = 0;
    std::uint32_t kind = 0;  // see detail::waiting_kinds
    time_ms estimate = max_time;
    time_ms ends = max_time;  // by the estimate, if it runs
    delay_clock clock{};
    delays before{};  // what the clock showed when the job began to wait
    void begin(time_ms now) {
      clock.set(delay_cause::order, now);
      before = clock.at(now);
    }
    [[nodiscard]] delays waited(time_ms now) const {
      delays sum = clock.at(now);
      sum -= before;
      return sum;
    }
  };
  // When the first waiting job can start if the running jobs end by their estimates.
  struct reservation {
    order_key job{};
    std::optional<time_ms> at{};  // nullopt: not even after all
    std::uint64_t free = 0;       // GPUs then, before it starts
  };

  using waiting_jobs = std::map<order_key, gang_scheduler::request>;

  // The job that asks for this gang.
  [[nodiscard]] entry& entry_of(const gang_scheduler::request& gang) {
    return jobs_.find(id_of(gang.job).value)->second;
  }
  void wait(entry& e, gang_scheduler::request gang, time_ms now) {
    e.begin(now);
    kinds_.insert(e.kind, e.key, e.estimate);
    waiting_.emplace(e.key, std::move(gang));
  }
  void start(waiting_jobs::iterator job, const gang_scheduler::plan& plan, time_ms now,
             std::vector<job_action>& actions) {
    const job_id id = id_of(job->second.job);
    entry& e = entry_of(job->second);
    e.ends = add_time(now, e.estimate);
    actions.push_back({.job = id, .where = detail::by_node(plan.tasks), .waited = e.waited(now)});
    kinds_.erase(e.kind, e.key);
    ends_.try_emplace({e.ends, e.key}, id.value);
    ++running_[e.key.first];
    waiting_.erase(job);
  }
  // A job that ran has ended or stops.
  void forget_end(const entry& e) {
    ends_.erase({e.ends, e.key});
    const auto same = running_.find(e.key.first);
    if (--same->second == 0) running_.erase(same);
  }
  // After a node has turned bad or healthy. free: the GPUs that were free before.
  void count_tainted(node_id node, std::uint64_t free) {
    if (!scheduler_.node(node)->taints.empty()) tainted_free_ += scheduler_.free_gpus() - free;
  }
  // The GPUs that are free for jobs.
  [[nodiscard]] std::uint64_t free_gpus(const gang_scheduler& scheduler) const {
    return scheduler.free_gpus() - tainted_free_;
  }
  void gpus_may_be_free() {
    reserved_.reset();
    kinds_.retry();
  }
  // Starts jobs behind the first one, in order, that do not delay it.
  absl::Status backfill(time_ms now, std::vector<job_action>& actions) {
    const order_key first = waiting_.begin()->first;
    if (!reserved_ || reserved_->job != first || (reserved_->at && *reserved_->at <= now)) {
      reserve(now);
      kinds_.forget_delays();
    }
    const std::optional<time_ms> at = reserved_->at;
    using outcome = detail::waiting_kinds::outcome;
    const auto try_job = [&](const order_key& key) -> absl::StatusOr<outcome> {
      const auto job = waiting_.find(key);
      const entry& e = entry_of(job->second);
      APIARY_ASSIGN_OR_RETURN(const gang_scheduler::plan plan,
                              scheduler_.propose(job->second, now));
      if (plan.result != plan_result::bind) return outcome::does_not_fit;
      const time_ms end = add_time(now, e.estimate);
      if (at && (end == max_time || end > *at)) {
        if (would_delay(plan, key, e.gpus)) return outcome::would_delay;
        if (end > *at) reserved_->free -= e.gpus;
      }
      APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
      start(job, plan, now, actions);
      return outcome::started;
    };
    return kinds_.visit(first, at ? *at - now : max_time, try_job);
  }
  // Whether a running job has a lower priority than jobs with this key.
  [[nodiscard]] bool may_suspend(const order_key& key) const noexcept {
    return !running_.empty() && running_.rbegin()->first > key.first;
  }
  // Finds out when the first waiting job can start. Jobs that should have ended are taken to end
  // now.
  void reserve(time_ms now) {
    const auto& [key, gang] = *waiting_.begin();
    const std::uint32_t gpus = entry_of(gang).gpus;
    reserved_ = {.job = key};
    scheduler_.what_if([&](gang_scheduler& trial) {
      for (auto end = ends_.begin(); end != ends_.end() && !reserved_->at;) {
        const time_ms at = (std::max)(end->first.first, now);
        for (; end != ends_.end() && end->first.first <= at; ++end)
          trial.finish(end->second).IgnoreError();
        reserved_->free = free_gpus(trial);
        if (reserved_->free < gpus && !may_suspend(reserved_->job)) continue;
        if (can_start(trial, waiting_.begin()->second, at).value_or(true)) reserved_->at = at;
      }
    });
  }
  // Whether the first job cannot start at its reserved time if the plan of another job is applied
  // now.
  bool would_delay(const gang_scheduler::plan& other, const order_key& key, std::uint32_t gpus) {
    const gang_scheduler::request& first = waiting_.begin()->second;
    if (key.first == reserved_->job.first && !may_suspend(reserved_->job) &&
        reserved_->free < std::uint64_t{entry_of(first).gpus} + gpus)
      return true;
    const time_ms at = *reserved_->at;
    bool starts = false;
    scheduler_.what_if([&](gang_scheduler& trial) {
      if (!trial.commit(other).ok()) return;
      for (auto end = ends_.begin(); end != ends_.end() && end->first.first <= at; ++end)
        trial.finish(end->second).IgnoreError();
      starts = can_start(trial, first, at).value_or(false);
    });
    return !starts;
  }
  // nullopt: it is not known, because the steps ended.
  static std::optional<bool> can_start(gang_scheduler& trial, const gang_scheduler::request& job,
                                       time_ms at) {
    const auto plan = trial.propose(job, at);
    if (!plan.ok() || plan->result != plan_result::wait) return plan.ok();
    return plan->reason == wait_reason::undecided ? std::nullopt : std::optional(false);
  }
  // All keys of this queue are numbers below 2^32.
  [[nodiscard]] static job_id id_of(const job_key& job) {
    return job_id(static_cast<std::uint32_t>(job.number()));
  }
  // Priority, tenant (it may have a disruption budget), GPUs, CPU and memory beside each GPU,
  // models.
  using kind_key = std::tuple<std::int32_t, tenant_id, std::uint32_t, std::uint32_t, std::uint32_t,
                              std::vector<std::string>>;
  [[nodiscard]] std::uint32_t kind_of(const job_request& job) {
    const auto& [per_gpu, models] = demand_of(job.job);
    const auto [cpu, memory] = per_gpu;
    kind_key key{job.priority, job.tenant, job.gpus, cpu, memory, models};
    const auto number = static_cast<std::uint32_t>(kind_numbers_.size());
    return kind_numbers_.try_emplace(std::move(key), number).first->second;
  }
  [[nodiscard]] const gang_queue_options::demand& demand_of(job_id job) const noexcept {
    return job.value < options_.demands.size() ? options_.demands[job.value] : only_gpus_;
  }
  // A running job stops and waits again.
  absl::Status stop(const job_key& job, time_ms now) {
    gang_scheduler::request gang = scheduler_.find(job)->what;
    APIARY_RETURN_IF_ERROR(scheduler_.finish(job));
    entry& e = entry_of(gang);
    forget_end(e);
    wait(e, std::move(gang), now);
    gpus_may_be_free();
    return absl::OkStatus();
  }
  // Records that the first job waits for GPUs. The job that did so before now waits for jobs.
  void hold_up(const order_key& key, time_ms now) {
    const auto before = waiting_.find(held_up_);
    if (before != waiting_.end() && held_up_ != key)
      entry_of(before->second).clock.set(delay_cause::order, now);
    held_up_ = key;
    entry& e = entry_of(waiting_.find(key)->second);
    const std::uint64_t free = free_gpus(scheduler_);
    e.clock.set(free < e.gpus ? delay_cause::capacity : delay_cause::fragmentation, now);
  }

  gang_scheduler scheduler_;
  gang_queue_options options_;
  gang_queue_options::demand only_gpus_{};  // of jobs without a demand
  std::uint32_t total_ = 0;
  std::uint64_t tainted_free_ = 0;  // GPUs of nodes with taints; no job runs there
  detail::job_division division_;   // for the nodes without taints
  std::uint64_t submitted_ = 0;
  order_key held_up_{};  // the job that waited for GPUs last
  // The jobs that wait or run, by id. Those that wait also with their gangs, by position.
  std::unordered_map<std::uint32_t, entry> jobs_;
  waiting_jobs waiting_;
  // Of running jobs, how many there are by the first number of the key; ids by end and position.
  std::map<std::int64_t, std::uint32_t> running_;
  std::map<std::pair<time_ms, order_key>, std::uint32_t> ends_;
  std::map<kind_key, std::uint32_t> kind_numbers_;
  detail::waiting_kinds kinds_;          // the waiting jobs again
  std::optional<reservation> reserved_;  // of the first one, if it is known
};
static_assert(JobScheduler<gang_queue>);

APIARY_NAMESPACE_END
