// apiary/hived/hived_queue.h - the job scheduler of a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/tenant_cells.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/hived_placer.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/queue/book.h>
#include <apiary/queue/forecast.h>
#include <apiary/queue/kinds.h>
#include <apiary/queue/stop.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The JobScheduler of a HiveD cluster: starts and suspends jobs, which are gangs made by
// hived_jobs.
//
// A guaranteed job (priority 0 to 1000) starts on its tenant's cells as soon as it fits there. It
// suspends jobs of lower priority of its tenant, and opportunistic jobs of all tenants. Idle GPUs
// then go to opportunistic jobs: jobs of priority -1 and, with over_quota, guaranteed jobs that
// wait; they stay opportunistic while they run. A suspended job waits again and keeps its arrival.
// Order:    on a tenant's cells, jobs start by priority, then arrival, then job id; a later job of
//           the same priority overtakes the first one that does not fit only if it does not delay
//           it, by the estimates (EASY); with rules::first_fit each job that fits overtakes. On
//           idle GPUs, jobs start by arrival, then id: of each tenant and number of GPUs only the
//           first job by priority. A job that can only run there (of priority -1, or larger than
//           its tenant's cells) starves when it has waited for `patience` without a break: then
//           jobs that came later start on idle GPUs only if they end, by the estimates, before it
//           can start.
// Bound:    a guaranteed job that fits into its tenant's cells waits at most (k + 1 + 2 s) * T at a
//           time. k jobs of its tenant wait before it when it begins to wait, s times one of those
//           before it is suspended on idle GPUs while it waits, and T is the tenant's longest
//           estimate. This holds while hardware is healthy, no job runs longer than its estimate,
//           no job of higher priority of its tenant waits or arrives, and under rules::easy. A job
//           that can only run on idle GPUs waits at most `patience`, and then until each job that
//           runs or came before it has ended, and should have ended by its estimate. This holds
//           while no tenant starts a job on its cells, hardware is healthy and no job runs longer
//           than its estimate.
// Causes:   a guaranteed job waits for order if it must not overtake; for quota while its tenant
//           has fewer free GPUs than the job asks for; an opportunistic job for order if it must
//           not overtake one that starves, for capacity while fewer are idle; else for
//           fragmentation.
// Model:    "HiveD" (OSDI 2020), §3. The order inside a tenant, over_quota and patience are ours.
// Limits:   bad hardware is not foreseen: a first job that has enough cells, but bad ones, is
//           overtaken. Jobs without estimates are taken to end in the order of their starts.
// Requires: times in [0, 2^52) that never decrease; decide() after each moment with another call.
// Cost:     submit, finish O(log jobs + queues of the tenant), one for each number of GPUs and
//           priority. decide: a walk over all queues; for each tenant with a change a propose for
//           each start and each queue that may fit again; a reservation takes O(nodes of the job)
//           for each job of the tenant that has started or ended since, or whose end its time
//           passes (detail/tenant_cells.h), and O(nodes and jobs of the tenant) on bad hardware.
// Example:  examples/job_queues.cpp
class hived_queue {
 public:
  // What a job does.
  enum class phase : std::uint8_t {
    wait,           // it does not run
    guaranteed,     // it runs on its tenant's cells
    opportunistic,  // it runs on idle GPUs; a guaranteed job may suspend it
  };
  // Which jobs of a tenant may overtake its first waiting job.
  enum class rules : std::uint8_t {
    easy,       // those that do not delay it
    first_fit,  // all that fit
  };
  // kInvalidArgument: a fault of the configuration, a node with over 32 leaves, the limit of
  // placements, a host in two chains, or a negative patience. With over_quota, guaranteed jobs may
  // also run as opportunistic on idle GPUs. With a patience of max_time no job starves.
  [[nodiscard]] static absl::StatusOr<hived_queue> create(const hived_config& config,
                                                          bool over_quota = true,
                                                          rules rule = rules::easy,
                                                          time_ms patience = 86'400'000) {
    if (patience < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("a patience of ", patience, " ms; it must be at least 0"));
    APIARY_ASSIGN_OR_RETURN(hived_placer placer, hived_placer::create(config, over_quota));
    return hived_queue(std::move(placer), rule, patience);
  }
  // Submits a job. kInvalidArgument: no job id, 0 GPUs, a time, estimate or priority out of range,
  // or more GPUs than fit (see fits_cells). kNotFound: no such tenant. kAlreadyExists: this job id
  // exists. kFailedPrecondition: the tenant has no cells, and over_quota is off.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (now < 0 || now >= time_ms{1} << time_bits)
      return absl::InvalidArgumentError(absl::StrCat(
          detail::name_of(r.job), " is submitted at time ", now, "; times are 0 to 2^52 - 1"));
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, r.estimate));
    added->key = std::int64_t{gang_request::max_priority - r.priority} << time_bits | now;
    enter(*added, now);
    return absl::OkStatus();
  }
  // The job has ended or is cancelled. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r));
    } else {
      leave(*r, now);
      tenant_of(*r).forecast.withdrawn();
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }
  // The node is broken: its jobs, returned ascending, stop and wait again. kNotFound: no such node.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> stopped,
                            jobs_.mark_bad(n, [&](record& r) { return stop_and_wait(r, now); }));
    if (jobs_.servers_changed()) hardware_changed();
    return stopped;
  }
  // The node is repaired. kNotFound: there is no such node.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(jobs_.mark_healthy(n));
    if (jobs_.servers_changed()) hardware_changed();
    return absl::OkStatus();
  }
  // Appends suspensions and starts, in order; it has applied them already. Fails only if hived
  // fails.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    for (bool again = true; again;) {
      again = false;  // a suspended job may fit into its own tenant's cells
      for (std::uint32_t t = 0; t < tenants_.size(); ++t) {
        if (!std::exchange(tenants_[t].changed, false)) continue;
        APIARY_ASSIGN_OR_RETURN(const bool started, fill_cells(tenant_id(t), now, actions));
        tenants_[t].changed = started;
        again = again || started;
      }
      while (!again) {
        const std::optional<job_id> next = next_on_idle(now);
        if (!next) break;
        record& r = jobs_[*next];
        APIARY_ASSIGN_OR_RETURN(const answer got, start(r, phase::opportunistic, now, actions));
        if (got == answer::full) too_large_ = r.request.gpus;
        again = tenants_[r.request.tenant.value].changed;  // the job had held others back
      }
    }
    set_causes(now);
    return absl::OkStatus();
  }
  // Never: decide() need not be called while nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return max_time; }
  // What the job does; nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const record* const r = jobs_.look_up(job);
    return r == nullptr ? std::nullopt : std::optional(r->phase);
  }
  // Whether the job fits into its tenant's empty cells, or only runs on idle GPUs. nullopt: no job.
  [[nodiscard]] std::optional<bool> fits_cells(job_id job) const {
    const record* const r = jobs_.look_up(job);
    if (r == nullptr) return std::nullopt;
    return !r->kind.only_idle;
  }
  // Jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept {
    return jobs_.num_running() + jobs_.queues().size();
  }
  // GPUs of the cluster, those of bad nodes included.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // Healthy GPUs that no job uses.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return placer().idle_gpus(); }
  // The scheduler that places the jobs.
  [[nodiscard]] const hived& scheduler() const noexcept { return placer().scheduler(); }

 private:
  using kind = hived_placer::kind;
  using tenant_cells = detail::tenant_cells;
  using position = std::pair<std::int64_t, std::uint32_t>;  // key or time, then id
  static constexpr int time_bits = 52;                      // of the arrival in a key
  static constexpr std::uint32_t no_limit = (std::numeric_limits<std::uint32_t>::max)();
  static constexpr time_ms unmoved = (std::numeric_limits<time_ms>::min)();
  // Jobs without an estimate end from then on, one after the other.
  static constexpr time_ms never_ends = max_time - (time_ms{1} << time_bits);

  // A job on its tenant's cells; a record for placer_forecast.
  struct own_job {
    tenant_cells::request request{};
    tenant_cells::placement_type where{};
    time_ms ends = 0;
    bool still_runs = false;
  };
  struct record : booked_job<hived_placer> {
    hived_queue::phase phase = phase::wait;
    time_ms since = 0;  // it waits since then
    time_ms ends = 0;   // by its estimate, if it runs; see never_ends
    own_job own{};      // if it runs on its tenant's cells
  };
  // The first job that waits on its tenant's cells, and when it will start by the estimates.
  struct reservation {
    tenant_cells::request first{};
    time_ms at = 0;
  };
  struct tenant_state {
    explicit tenant_state(tenant_cells empty) : cells(std::move(empty)) {}
    bool changed = true;    // a job may start on its cells
    bool measures = false;  // hardware has changed since the last reservation
    std::set<kind> full{};  // jobs did not fit into its cells, and nothing has changed since
    std::set<kind> held{};  // jobs fitted in the last round, but must not overtake
    tenant_cells cells;     // with the jobs on them
    weighted_tree ends{};   // of these jobs, with their GPUs as weights
    placer_forecast<tenant_cells> forecast{};
  };
  enum class answer : std::uint8_t { started, full, delays_first };

  hived_queue(hived_placer placer, rules rule, time_ms patience)
      : jobs_(std::move(placer)), rule_(rule), patience_(patience) {
    for (std::uint32_t t = 0; t < this->placer().jobs().num_tenants(); ++t)
      tenants_.emplace_back(tenant_cells(scheduler().cells(), tenant_id(t)));
  }

  [[nodiscard]] const hived_placer& placer() const noexcept { return jobs_.placer(); }
  [[nodiscard]] tenant_state& tenant_of(const record& r) {
    return tenants_[r.request.tenant.value];
  }
  [[nodiscard]] static time_ms arrival_of(std::int64_t key) noexcept {
    return key & ((std::int64_t{1} << time_bits) - 1);
  }

  // The job waits from now on.
  void enter(record& r, time_ms now) {
    const position at(r.key, r.request.job.value);
    r.phase = phase::wait;
    r.since = now;
    jobs_.wait(r, now);
    if (r.kind.only_idle) {
      patient_.insert({now, at.second});
      return;
    }
    tenant_state& t = tenant_of(r);
    if (at < tried_) passed_over_ = true;
    // A job of a full kind counts only if it is the first one, for which GPUs are reserved.
    if (!is_full(t, r.kind) || jobs_.queues().jobs_of(r.kind)->first()->id == at.second)
      t.changed = true;
  }
  // The job waits no longer. Returns how long it waited, by cause.
  delays leave(const record& r, time_ms now) {
    tenant_state& t = tenant_of(r);
    if (r.kind.only_idle) {
      patient_.erase({r.since, r.request.job.value});
      starving_.erase({arrival_of(r.key), r.request.job.value});
    } else if (is_full(t, r.kind) && !t.held.empty()) {
      t.changed = true;  // it may be why they wait
    }
    return jobs_.leave(r, now);
  }
  // Stops the job; its GPUs are idle then.
  [[nodiscard]] absl::Status stop(record& r) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    too_large_ = no_limit;
    tenant_state& t = tenant_of(r);
    if (r.phase == phase::guaranteed) {
      t.ends.erase(r.ends, r.request.job.value);
      t.forecast.ended(r.request.job, r.own, unmoved);
      t.cells.give(r.own.where);
    } else {
      ends_.erase(r.ends, r.request.job.value);
    }
    if (!placer().healthy()) {
      retry_all();
    } else if (r.phase == phase::guaranteed) {
      retry(t);
    }
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status stop_and_wait(record& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(stop(r));
    enter(r, now);
    return absl::OkStatus();
  }
  // The tenant's jobs may fit into its cells now.
  static void retry(tenant_state& t) {
    t.full.clear();
    t.changed = true;
  }
  void retry_all() {
    for (tenant_state& t : tenants_) retry(t);
  }
  void hardware_changed() {
    too_large_ = no_limit;
    fits_healthy_.clear();
    for (tenant_state& t : tenants_) t.measures = true;
    retry_all();
  }
  // Whether jobs of this kind are known not to fit into their tenant's cells: on healthy hardware
  // also because smaller ones of at least their priority do not.
  [[nodiscard]] bool is_full(const tenant_state& t, const kind& k) const {
    if (!placer().healthy()) return t.full.contains(k);
    return std::any_of(t.full.begin(), t.full.end(), [&](const kind& full) {
      return full.gpus <= k.gpus && full.minus_priority <= k.minus_priority;
    });
  }

  // The longest estimate with which a job that starts now ends by then.
  [[nodiscard]] static time_ms longest_until(time_ms at, time_ms now) noexcept {
    return at >= never_ends ? max_time - 1 : at - now;
  }
  // Starts the tenant's jobs that fit into its cells and may overtake. Returns whether any has
  // started.
  [[nodiscard]] absl::StatusOr<bool> fill_cells(tenant_id tenant, time_ms now,
                                                std::vector<job_action>& actions) {
    tenant_state& t = tenants_[tenant.value];
    bool any = false;
    std::optional<reservation> first;  // of the first job that waits, of the current priority
    const auto begin = [&] {
      jobs_.queues().begin_round();
      t.held.clear();
      passed_over_ = false;
      first.reset();
    };
    const auto longest = [&](const kind& k, bool held) -> time_ms {
      if (k.tenant != tenant || k.only_idle) return -1;
      if (!held) return max_time;
      return first && -k.minus_priority == first->first.priority ? longest_until(first->at, now)
                                                                 : -1;
    };
    begin();
    while (const auto next = jobs_.queues().first_that_may(no_limit, longest)) {
      record& r = jobs_[next->job];
      tried_ = {next->key, next->job.value};
      if (first && first->first.priority != r.request.priority) first.reset();
      if (!is_full(t, next->kind)) {
        const bool late = first && r.estimate > longest_until(first->at, now);
        APIARY_ASSIGN_OR_RETURN(
            const answer done, start(r, phase::guaranteed, now, actions, late ? &*first : nullptr));
        any = any || done == answer::started;
        if (passed_over_ && rule_ == rules::easy) begin();
        if (done == answer::delays_first) {
          t.held.insert(next->kind);
          jobs_.queues().delay(next->kind);
        }
        if (done != answer::full) continue;
        t.full.insert(next->kind);
      }
      jobs_.queues().fail(next->kind);
      if (!first) {
        APIARY_ASSIGN_OR_RETURN(first, reserve(t, r.request));
      }
    }
    return any;
  }
  // When the job will fit into the tenant's cells, by the estimates. nullopt: only hardware is bad.
  [[nodiscard]] absl::StatusOr<std::optional<reservation>> reserve(tenant_state& t,
                                                                   const job_request& r) {
    if (rule_ == rules::first_fit) return std::nullopt;
    if (std::exchange(t.measures, !placer().healthy()) && t.cells.measure(scheduler().cells()))
      t.forecast.forget();
    const tenant_cells::request first = request_of(r);
    const auto of = [&](job_id job) -> own_job* {
      record* const found = jobs_.look_up(job);
      return found == nullptr || found->phase != phase::guaranteed ? nullptr : &found->own;
    };
    const auto copy = [&] {
      tenant_cells made = t.cells;
      for (auto i = t.ends.first(); i; i = t.ends.next(i->key, i->id)) {
        const own_job& own = jobs_[job_id(i->id)].own;
        (void)made.commit(own.request, own.where);  // it does not fail
      }
      return made;
    };
    APIARY_ASSIGN_OR_RETURN(const std::optional<time_ms> at,
                            t.forecast.first_fit(copy, first, unmoved, unmoved, t.ends, of));
    if (!at || *at == unmoved) return std::nullopt;
    return reservation{first, *at};
  }
  [[nodiscard]] tenant_cells::request request_of(const job_request& r) const {
    return tenant_cells::request_of(r.job, r.priority, r.gpus, placer().jobs().task_gpus());
  }
  // Starts the job and suspends those in its way, if it fits and does not delay `first` (if not
  // null).
  [[nodiscard]] absl::StatusOr<answer> start(record& r, hived_queue::phase as, time_ms now,
                                             std::vector<job_action>& actions,
                                             const reservation* first = nullptr) {
    const job_id job = r.request.job;
    hived_placer& below = jobs_.placer();
    tenant_state& t = tenant_of(r);
    job_request asked = r.request;
    if (as == phase::opportunistic) asked.priority = gang_request::opportunistic_priority;
    APIARY_ASSIGN_OR_RETURN(placer_answer<job_placement> plan, below.propose_preempting(asked));
    if (plan.result == plan_result::wait) return answer::full;
    const bool preempts = plan.result == plan_result::preempt;
    APIARY_RETURN_IF_ERROR(preempts ? below.reserve(job) : below.commit(asked, plan.where));
    own_job own;
    if (as == phase::guaranteed) {
      own.request = request_of(r.request);
      own.where = t.cells.nodes_of(scheduler().cells(), *scheduler().find(job));
    }
    if (first != nullptr) {
      APIARY_ASSIGN_OR_RETURN(own.still_runs,
                              t.forecast.fits_beside(first->first, own.request, own.where));
      if (!own.still_runs) {
        APIARY_RETURN_IF_ERROR(below.finish(job));
        return answer::delays_first;
      }
    }
    if (preempts) {
      const auto suspend = [&](job_id victim) -> absl::Status {
        APIARY_RETURN_IF_ERROR(stop_and_wait(jobs_[victim], now));
        actions.push_back({job_action::verb::suspend, victim, {}, {}});
        return absl::OkStatus();
      };
      APIARY_ASSIGN_OR_RETURN(plan, place_after(below, asked, plan.victims, suspend));
      APIARY_VERIFY(plan.result == plan_result::bind);
      APIARY_RETURN_IF_ERROR(below.commit(asked, plan.where));
    }
    r.running = true;
    const delays waited = leave(r, now);
    r.phase = as;
    r.ends = add_time(now, r.estimate);
    r.ends = r.ends == max_time ? never_ends + ++starts_ : (std::min)(r.ends, never_ends);
    (as == phase::guaranteed ? t.ends : ends_).insert({r.ends, job.value, r.request.gpus});
    if (as == phase::guaranteed) {
      t.cells.take(own.where);
      t.forecast.started(job);
      own.ends = r.ends;
      r.own = std::move(own);
    }
    actions.push_back({job_action::verb::start, job, std::move(plan.where), waited});
    return answer::started;
  }

  [[nodiscard]] std::uint32_t most_on_idle() const noexcept {
    return (std::min)(idle_gpus(), too_large_ - 1);
  }
  // The next job that may start on idle GPUs; beside one that starves only jobs that end before it
  // starts.
  [[nodiscard]] std::optional<job_id> next_on_idle(time_ms now) {
    const std::optional<position> end = first_starving(now);
    const std::optional<job_id> next = first_on_idle(end, max_time);
    if (next || !end) return next;
    const std::uint32_t gpus = jobs_[job_id(end->second)].request.gpus;
    if (gpus <= most_on_idle()) return job_id(end->second);
    return first_on_idle({}, longest_beside(gpus, now));
  }
  // The first job by arrival and id of at most so many GPUs, of the first jobs by priority of each
  // tenant and number of GPUs. Only jobs before `end`, and with estimates of at most `longest`.
  [[nodiscard]] std::optional<job_id> first_on_idle(const std::optional<position>& end,
                                                    time_ms longest) const {
    const std::uint32_t most = most_on_idle();
    const bool over_quota = placer().jobs().over_quota();
    std::optional<position> best = end;
    std::optional<std::tuple<tenant_id, bool, std::uint32_t>> passed;
    jobs_.queues().visit_kinds([&](const kind& k, const weighted_tree& jobs) {
      const bool guaranteed = k.minus_priority <= 0;
      if (k.gpus > most || (guaranteed && !over_quota)) return;
      const std::optional<weighted_tree::item> first = jobs.first_at_most(longest);
      const std::tuple size(k.tenant, guaranteed, k.gpus);
      if (!first || std::exchange(passed, size) == size) return;
      const position at(arrival_of(first->key), first->id);
      if (!best || at < *best) best = at;
    });
    return best != end ? std::optional(job_id(best->second)) : std::nullopt;
  }
  // The first job by arrival and id that starves now and would fit on the healthy hardware, with
  // its arrival; nullopt: there is none.
  [[nodiscard]] std::optional<position> first_starving(time_ms now) {
    while (!patient_.empty() && now - patient_.begin()->first >= patience_) {
      const std::uint32_t job = patient_.begin()->second;
      starving_.insert({arrival_of(jobs_[job_id(job)].key), job});
      patient_.erase(patient_.begin());
    }
    for (const position& at : starving_) {
      if (placer().healthy()) return at;
      const job_request& r = jobs_[job_id(at.second)].request;
      const auto [known, is_new] = fits_healthy_.try_emplace(r.gpus);
      if (is_new) known->second = placer().fits_healthy(r);
      if (known->second) return at;
    }
    return std::nullopt;
  }
  // How long jobs may run that start now beside a job that needs more than the idle GPUs: until
  // enough running jobs have ended, by their estimates. -1: none may start.
  [[nodiscard]] time_ms longest_beside(std::uint32_t gpus, time_ms now) const {
    if (gpus <= idle_gpus()) return -1;
    std::int64_t idle = idle_gpus();
    std::optional<time_ms> end;  // of the jobs that are taken to have ended
    while (idle < gpus) {
      std::optional<time_ms> next;
      const auto look_at = [&](const weighted_tree& ends) {
        const auto first = end ? ends.next(*end, no_limit) : ends.first();
        if (first && (!next || first->key < *next)) next = first->key;
      };
      look_at(ends_);
      for (const tenant_state& t : tenants_) look_at(t.ends);
      if (!next) return -1;
      end = next;
      idle = idle_gpus() + ends_.sum_to(*end);
      for (const tenant_state& t : tenants_) idle += t.ends.sum_to(*end);
    }
    return *end <= now || *end > never_ends ? -1 : *end - now;
  }
  void set_causes(time_ms now) {
    const bool starves = first_starving(now).has_value();
    const auto cause = [&](const kind& k, bool /*failed*/) {
      const tenant_state& t = tenants_[k.tenant.value];
      const bool opportunistic = k.minus_priority > 0;
      if (t.held.contains(k) && !is_full(t, k)) return delay_cause::order;
      if (opportunistic && k.gpus <= most_on_idle() && starves) return delay_cause::order;
      const std::uint32_t free = opportunistic ? idle_gpus() : placer().entitled_gpus(k.tenant);
      if (k.gpus <= free) return delay_cause::fragmentation;
      return opportunistic ? delay_cause::capacity : delay_cause::quota;
    };
    jobs_.queues().set_causes(cause, now);
  }

  job_book<hived_placer, record> jobs_;
  rules rule_;
  time_ms patience_;
  std::vector<tenant_state> tenants_;
  std::int64_t starts_ = 0;
  // The job that was tried last on its tenant's cells, and whether one has come to wait since that
  // precedes it.
  position tried_{};
  bool passed_over_ = false;
  std::uint32_t too_large_ = no_limit;  // so many GPUs fit nowhere as opportunistic
  weighted_tree ends_;                  // of the jobs on idle GPUs, with their GPUs as weights
  // The jobs that can only run on idle GPUs: those that do not starve, by the begin of their wait,
  // and the others, by arrival.
  std::set<position> patient_;
  std::set<position> starving_;
  std::map<std::uint32_t, bool> fits_healthy_;  // by GPUs, since the last change of health
};

static_assert(JobScheduler<hived_queue>);

APIARY_NAMESPACE_END
