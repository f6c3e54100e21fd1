// apiary/hived/hived_queue.h - jobs over time on tenants' cells, and as guests on what is idle.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

struct hived_queue_options {
  // A guaranteed job for which its tenant has no cells left may run as a guest, on what is idle.
  bool lend = true;
};

// Decides which job starts when on a HiveD cluster, and who gives way. A job is a gang as hived_jobs
// makes it.
//
// Guaranteed jobs (priority 0 to 1000) start on their tenant's cells as soon as these have room for
// them: they suspend lower ones of the tenant and guests of all. What is idle then goes to guests:
// opportunistic jobs (priority -1) and, if that is lent, guaranteed ones that still wait. Whoever is
// suspended waits again at his old place; a guest runs on as one, also when his tenant's cells would
// have room. Whoever fits starts, so that a large job may be passed for ever.
//
// Order:    on a tenant's cells by priority, then by arrival, then by job id. Among guests: of those
//           who are first so of their tenant and number of GPUs, who came first, then by job id.
// Causes:   quota for a guaranteed job while fewer of its tenant's cells are free than it wants,
//           capacity for an opportunistic one while fewer GPUs are idle; else fragmentation, as on
//           bad hardware.
// Model:    "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI 2020), §3. The
//           order inside a tenant and that guaranteed jobs may be guests are chosen here.
// Requires: times in [0, 2^52) that never go back; decide() after each moment at which something was
//           submitted, ended, broke or was repaired.
// Cost:     submit, finish O(log jobs + lines of a tenant), a line being a number of GPUs that jobs
//           ask for; decide a search of the lines and hived::propose for each job that starts, and
//           for each line that may have room since it had none. On bad hardware every line may.
// Example:  examples/job_queues.cpp
class hived_queue {
 public:
  enum class phase : std::uint8_t { wait, own, guest };  // own: on its tenant's cells

  // kInvalidArgument: every fault of the configuration, or a node with more leaf cells than the 32
  // that a placement can name.
  [[nodiscard]] static absl::StatusOr<hived_queue> create(const hived_config& config,
                                                          hived_queue_options options = {}) {
    APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
    APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler, options.lend));
    return hived_queue(std::move(scheduler), std::move(jobs));
  }

  // kInvalidArgument: no job id, no GPUs, a time or a priority that cannot be, or a job that would
  // not fit were everything idle and healthy. kNotFound: no such tenant. kFailedPrecondition: the
  // tenant has no cells and nothing is lent. kAlreadyExists: a job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (now < 0 || now >= time_ms{1} << time_bits)
      return absl::InvalidArgumentError(name(r.job) + " comes at " + std::to_string(now));
    if (jobs_.contains(r.job.value))
      return absl::AlreadyExistsError(name(r.job) + " is here already");
    APIARY_ASSIGN_OR_RETURN(const bool own, adapter_.fits_own(r));
    queues_[key_of(r)].fits_own = own;
    record& added = jobs_[r.job.value];
    added.request = r;
    added.key = std::int64_t{max_priority - r.priority} << time_bits | now;
    enter(added, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    if (found->second.phase == phase::wait) {
      leave(found->second, now);
    } else {
      APIARY_RETURN_IF_ERROR(stop(found->second));
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }

  // The node is broken: what runs there stops and waits again. The jobs that stopped, ascending.
  // kNotFound: no such node.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(scheduler_.mark_bad(n));
    const chain_id c = scheduler_.layout().chain_of(n);
    const detail::physical_chain& chain = scheduler_.cells().chain(c.value);
    std::vector<job_id> stopped;
    for (const cell_id leaf : leaves(chain.tree(), scheduler_.layout().node_cell(n))) {
      const gang_slot user = chain.holders(leaf).user;
      if (user.valid()) stopped.push_back(scheduler_.gangs()[user].request.job);
    }
    std::sort(stopped.begin(), stopped.end());
    stopped.erase(std::unique(stopped.begin(), stopped.end()), stopped.end());
    for (const job_id job : stopped) {
      record& r = jobs_.at(job.value);
      APIARY_RETURN_IF_ERROR(stop(r));
      enter(r, now);
    }
    set_health(n, false);
    return stopped;
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(scheduler_.mark_healthy(n));
    set_health(n, true);
    return absl::OkStatus();
  }

  // Suspends and starts: appends to `actions`, which the host carries out in order; all are taken
  // here already. An error only where the scheduler below answers one.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    for (bool again = true; again;) {
      again = false;  // guests of a tenant before may have been suspended, and have room there
      for (std::uint32_t t = 0; t < used_by_.size(); ++t) {
        while (line* next = first_line(tenant_id(t))) {
          const job_id job(next->jobs.first()->id);
          APIARY_ASSIGN_OR_RETURN(next->failed, start(job, phase::own, now, actions));
          again = again || !next->failed;
        }
      }
    }
    while (const std::optional<job_id> next = first_guest()) {
      const std::uint32_t gpus = jobs_.at(next->value).request.gpus;
      APIARY_ASSIGN_OR_RETURN(const bool failed, start(*next, phase::guest, now, actions));
      if (failed) no_place_.push_back(gpus);
    }
    for (auto& [of, l] : queues_) {
      if (!l.jobs.empty()) l.clock.set(cause_of(of), now);
    }
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return forever; }

  // nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? std::nullopt : std::optional(found->second.phase);
  }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return adapter_.total_gpus(); }
  // GPUs that are healthy and nobody's.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept {
    return total_gpus() - bad_gpus_ - used_;
  }
  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }

 private:
  static constexpr int time_bits = 52;

  struct record {
    job_request request{};
    std::int64_t key = 0;
    delays entered{};  // reading of the line's clock
    hived_queue::phase phase = phase::wait;
  };
  // Guaranteed jobs of a tenant, or its opportunistic ones, that want as many GPUs.
  struct line {
    weighted_tree jobs{};
    delay_clock clock{};
    bool fits_own = false;  // in the tenant's cells, were they empty
    bool failed = false;    // the first found no room there, and nothing has changed since
  };
  using line_key = std::tuple<std::uint32_t, bool, std::uint32_t>;  // tenant, opportunistic, GPUs

  hived_queue(hived scheduler, hived_jobs adapter)
      : adapter_(std::move(adapter)), scheduler_(std::move(scheduler)) {
    bad_.assign(scheduler_.layout().num_nodes(), false);
    used_by_.resize(adapter_.num_tenants());
  }

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] static line_key key_of(const job_request& r) {
    return {r.tenant.value, r.priority < 0, r.gpus};
  }

  // The job waits from now on.
  void enter(record& r, time_ms now) {
    line& l = queues_.at(key_of(r.request));
    l.jobs.insert({r.key, r.request.job.value, 0});
    if (l.jobs.first()->id == r.request.job.value) l.failed = false;
    r.phase = phase::wait;
    r.entered = l.clock.at(now);
  }
  // It does not any more; how long it has, by cause.
  delays leave(const record& r, time_ms now) {
    line& l = queues_.at(key_of(r.request));
    l.jobs.erase(r.key, r.request.job.value);
    delays waited = l.clock.at(now);
    return waited -= r.entered;
  }
  // Takes the job off its GPUs.
  [[nodiscard]] absl::Status stop(const record& r) {
    APIARY_RETURN_IF_ERROR(scheduler_.finish(r.request.job));
    used_ -= r.request.gpus;
    if (r.phase == phase::own) used_by_[r.request.tenant.value] -= r.request.gpus;
    no_place_.clear();
    if (r.phase == phase::own || bad_gpus_ > 0) retry(r.request.tenant);
    return absl::OkStatus();
  }
  // There may be room in the tenant's cells; on bad hardware in everyone's.
  void retry(tenant_id t) {
    for (auto& [of, l] : queues_) {
      if (std::get<0>(of) == t.value || bad_gpus_ > 0) l.failed = false;
    }
  }
  void set_health(node_id n, bool good) {
    const std::uint32_t gpus = adapter_.gpus(n);
    if (bad_[n.value] == !good) return;
    bad_[n.value] = !good;
    bad_gpus_ = good ? bad_gpus_ - gpus : bad_gpus_ + gpus;
    no_place_.clear();
    for (auto& [of, l] : queues_) l.failed = false;
  }

  // Of the lines whose first may have room in the tenant's cells, that of the very first; null: none.
  [[nodiscard]] line* first_line(tenant_id t) {
    line* best = nullptr;
    std::optional<weighted_tree::item> least;
    auto at = queues_.lower_bound({t.value, false, 0});
    for (; at != queues_.end() && std::get<0>(at->first) == t.value; ++at) {
      line& l = at->second;
      if (!l.fits_own || l.failed) continue;
      const std::optional<weighted_tree::item> first = l.jobs.first();
      if (!first || (least && std::pair(least->key, least->id) < std::pair(first->key, first->id)))
        continue;
      best = &l;
      least = first;
    }
    return best;
  }
  // Who is next of those that may be guests; nullopt: nobody.
  [[nodiscard]] std::optional<job_id> first_guest() const {
    std::optional<std::pair<time_ms, std::uint32_t>> best;
    for (const auto& [of, l] : queues_) {
      const auto& [t, opportunistic, gpus] = of;
      if ((!opportunistic && !adapter_.lends()) || gpus > idle_gpus() ||
          std::find(no_place_.begin(), no_place_.end(), gpus) != no_place_.end())
        continue;
      const std::optional<weighted_tree::item> first = l.jobs.first();
      if (!first) continue;
      const std::pair at(first->key & ((std::int64_t{1} << time_bits) - 1), first->id);
      if (!best || at < *best) best = at;
    }
    return best ? std::optional(job_id(best->second)) : std::nullopt;
  }

  // Starts the job, whoever is in its way being suspended; whether there is no room.
  [[nodiscard]] absl::StatusOr<bool> start(job_id job, hived_queue::phase as, time_ms now,
                                           std::vector<job_action>& actions) {
    record& r = jobs_.at(job.value);
    const gang_request gang =
        as == phase::guest ? adapter_.guest_gang(r.request) : adapter_.own_gang(r.request);
    APIARY_ASSIGN_OR_RETURN(gang_plan plan, scheduler_.propose(gang));
    if (plan.result == plan_result::wait) return true;
    APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
    if (plan.result == plan_result::preempt) {
      for (const job_id victim : plan.victims) {
        record& v = jobs_.at(victim.value);
        APIARY_RETURN_IF_ERROR(stop(v));
        enter(v, now);
        actions.push_back({job_action::verb::suspend, victim, {}, {}});
      }
      APIARY_ASSIGN_OR_RETURN(plan, scheduler_.propose(gang));
      APIARY_VERIFY(plan.result == plan_result::bind);
      APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
    }
    const delays waited = leave(r, now);
    r.phase = as;
    used_ += r.request.gpus;
    if (as == phase::own) used_by_[r.request.tenant.value] += r.request.gpus;
    actions.push_back({job_action::verb::start, job, hived_jobs::place(plan.tasks), waited});
    return false;
  }

  [[nodiscard]] delay_cause cause_of(const line_key& of) const {
    const auto& [t, opportunistic, gpus] = of;
    const std::uint32_t free =
        opportunistic ? idle_gpus() : adapter_.owned(tenant_id(t)) - used_by_[t];
    if (gpus <= free) return delay_cause::fragmentation;
    return opportunistic ? delay_cause::capacity : delay_cause::quota;
  }

  hived_jobs adapter_;
  hived scheduler_;
  std::uint32_t used_ = 0;  // GPUs
  std::uint32_t bad_gpus_ = 0;
  std::vector<bool> bad_;               // nodes
  std::vector<std::uint32_t> used_by_;  // of a tenant's cells, by its jobs
  std::map<line_key, line> queues_;
  std::vector<std::uint32_t> no_place_;  // numbers of GPUs for which there is none for guests
  absl::flat_hash_map<std::uint32_t, record> jobs_;
};

APIARY_NAMESPACE_END
