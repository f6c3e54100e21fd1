// apiary/gandiva/gandiva.h - servers that jobs of one size share, taking turns.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/gandiva/detail/moves.h>
#include <apiary/gandiva/detail/packing.h>
#include <apiary/gandiva/detail/queue.h>
#include <apiary/gandiva/detail/relocation.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/gandiva/packing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

struct gandiva_options {
  server_spec servers{};     // `anywhere` of it does not count
  time_ms quantum = 60'000;  // turns change at its multiples, or with the first decide() behind

  bool packs = false;                            // two jobs on one GPU where that pays
  std::uint64_t gpu_memory = ~std::uint64_t{0};  // of each GPU, in the unit of job_sample

  bool migrates = false;          // running jobs move
  time_ms migration_cost = 2000;  // what one loses by that ...
  std::uint32_t max_loss = 50;    // ... of the time since it moved last, in thousandths, at most
  std::uint32_t threshold = 3;    // servers with so many GPUs to spare are emptied ...
  task_mix typical{};             // so that more of what is free is of use to these; empty: to all

  bool grows = false;            // jobs get idle GPUs of their server, up to max_gpus ...
  time_ms idle_period = 60'000;  // ... when nothing has changed on it for so long
};

// Gives every job a server at once while there is one of its size, more jobs than GPUs if need be,
// and lets the jobs of such a server take turns (gandiva/detail/time_slice.h). If asked to, it then looks
// at what came of it, and packs, migrates, grows and shrinks jobs.
//
// A server's load is the GPUs of its jobs, running or suspended, a packed job's not; its affinity
// the GPUs that the first job on it wanted, 0 for an empty one. A job of g GPUs goes to
//   the least loaded server of affinity g, if it has g GPUs to spare; else
//   an empty server, whose affinity becomes g; else
//   servers that have g GPUs to spare, the tightest one or, together, those with the most; else
//   the least loaded server of affinity g, which is over-subscribed then; else it waits.
// Where GPUs are to spare, a suspended job of the most over-subscribed server moves in; and if a
// server is full of work of higher priority, one without a turn moves to where it gets turns.
// A job over several servers runs without a break. From the next quantum on no job waits on its
// server for one of lower priority.
//
// A decision has one action a job at most. What comes first has it: what helps waiting jobs goes
// before what helps running ones.
//   1. at a quantum: packing that does not pay is undone (gandiva/detail/packing.h)
//   2. waiting jobs are placed, by arrival; suspended ones move to where there is room or, at a
//      quantum, a turn (gandiva/detail/relocation.h)
//   3. turns; who starts takes back what others have grown by; at a quantum a packing is tried
//   4. packed jobs get GPUs of their own where there is room
//   5. after departures: jobs over several servers come together (gandiva/detail/moves.h)
//   6. at a quantum: servers with many GPUs to spare are emptied
//   7. jobs grow
//
// Model:    "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI 2018), §3.2.
// Differs:  two jobs a GPU at most, of one server; fairness and priorities as in gandiva/detail/time_slice.h.
// Requires: times >= 0 that never go back, no two of them 2^43 apart; decide() at wake() (a turn
//           comes late if that does) and after each moment at which something was submitted, ended,
//           broke or was repaired.
// Delays:   by cause: for want of GPUs (capacity), of a place for them (fragmentation), of a turn
//           (order).
// Cost:     O(log servers + jobs of the server) a job that comes, moves or ends and O(numbers of
//           GPUs asked for) a decision; at a quantum O(jobs log jobs) of each over-subscribed
//           server. The costs of packing, migration and growth stand there.
// Example:  examples/job_queues.cpp
class gandiva {
 public:
  using phase = detail::gandiva_phase;
  struct standing {
    gandiva::phase phase = phase::queued;
    node_id server{};  // whose turns it takes; not valid when it waits or runs over several
    job_id beside{};   // with whom it is packed; not valid: with nobody
    friend bool operator==(const standing&, const standing&) noexcept = default;
  };

  // kInvalidArgument: as check_servers(), a time that is not above 0 (a cost: below 0), a loss of 0
  // or more than all, a threshold of 0.
  [[nodiscard]] static absl::StatusOr<gandiva> create(const gandiva_options& options) {
    APIARY_RETURN_IF_ERROR(check_servers(options.servers));
    if (options.quantum <= 0) {
      return absl::InvalidArgumentError("quantum " + std::to_string(options.quantum));
    }
    if (options.idle_period <= 0) {
      return absl::InvalidArgumentError("idle period " + std::to_string(options.idle_period));
    }
    if (options.migration_cost < 0 || options.migration_cost > forever / 1000 ||
        options.max_loss == 0 || options.max_loss > 1000 || options.threshold == 0) {
      return absl::InvalidArgumentError("migration cost " + std::to_string(options.migration_cost) +
                                        ", most loss " + std::to_string(options.max_loss) +
                                        ", threshold " + std::to_string(options.threshold));
    }
    return gandiva(options);
  }

  // kInvalidArgument: no job id, no GPUs or more than there are, a weight of 0 or above 1000.
  // kAlreadyExists: a job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.gpus == 0 || r.gpus > total_gpus()) {
      return absl::InvalidArgumentError(name(r.job) + " wants " + std::to_string(r.gpus) +
                                        " GPUs of " + std::to_string(total_gpus()));
    }
    if (r.weight == 0 || r.weight > 1000) {
      return absl::InvalidArgumentError(name(r.job) + " has weight " + std::to_string(r.weight));
    }
    if (jobs_.find(r.job) != nullptr) {
      return absl::AlreadyExistsError(name(r.job) + " is here already");
    }
    queue_.enter(jobs_.add(r, now), now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    detail::gandiva_job* const r = jobs_.find(job);
    if (r == nullptr) return absl::NotFoundError("there is no " + name(job));
    if (r->phase == phase::queued) {
      queue_.leave(*r, now);
    } else {
      leave(*r, now);
    }
    jobs_.erase(job);
    departed_ = true;
    return absl::OkStatus();
  }

  // What the host measured of a running job since it last started, or since another was packed
  // beside it or left. Only packing wants to know. kNotFound: there is no such job.
  // kFailedPrecondition: it does not run. kInvalidArgument: a rate of 0, or one of 2^53 or more.
  [[nodiscard]] absl::Status report(job_id job, const job_sample& sample, time_ms /*now*/) {
    detail::gandiva_job* const r = jobs_.find(job);
    if (r == nullptr) return absl::NotFoundError("there is no " + name(job));
    if (!r->runs()) return absl::FailedPreconditionError(name(job) + " does not run");
    if (sample.rate == 0 || sample.rate >> 53 != 0) {
      return absl::InvalidArgumentError(name(job) + ": a rate of " + std::to_string(sample.rate));
    }
    if (r->packed()) {
      r->packed_rate = sample.rate;
    } else {
      r->alone = sample;
    }
    return absl::OkStatus();
  }

  // The server is broken: its jobs stop and look for another. Those that ran, ascending.
  // kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    if (n.value >= pool().num_servers()) return no_such(n);
    jobs_.set_health(n, false);
    std::vector<job_id> here = jobs_.servers().jobs(n);
    std::vector<job_id> ran;
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
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    if (n.value >= pool().num_servers()) return no_such(n);
    jobs_.set_health(n, true);
    departed_ = true;
    return absl::OkStatus();
  }

  // Appends to `actions` what the host is to do, one action a job at most, in order; all are taken
  // here already.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    const bool turn = now % options_.quantum == 0 || now >= turn_at_;
    const auto leaves = [&](const detail::gandiva_job& r) { forget(r); };
    jobs_.begin(now, actions);
    if (options_.packs && turn) packing_.judge(jobs_);
    queue_.place_all([&](job_id job) { return assign(jobs_.at(job), now); });
    detail::gandiva_relocation::into_room(jobs_, leaves);
    if (turn) detail::gandiva_relocation::from_higher(jobs_, leaves);
    for (const node_id n : again_) jobs_.touch(n);
    again_.clear();
    std::vector<node_id> touched = jobs_.take_touched();
    for (const node_id n : touched) {
      if (!turn || !jobs_.servers().over_subscribed(n)) take_turns(n, false, now);
    }
    const summary_bitset& over = jobs_.servers().over();
    for (std::uint32_t n = over.find_first(); turn && n != summary_bitset::npos;
         n = over.find_next(n + 1)) {
      take_turns(node_id(n), true, now);
    }
    if (options_.packs) packing_.separate(jobs_);
    if (options_.migrates && departed_) migration_.gather(jobs_, now);
    restless_ = restless_ || !touched.empty();
    if (options_.migrates && restless_ && turn) restless_ = migration_.defragment(jobs_, now);
    if (options_.grows) {
      for (const node_id n : jobs_.take_touched()) touched.push_back(n);
      for (const node_id n : touched) growth_.watch(jobs_, n, now);
      growth_.grow(jobs_, now);
    }
    queue_.explain(pool().idle(), now);
    departed_ = false;
    jobs_.end();
    const bool turns = !over.none() || !jobs_.guests().empty() || !again_.empty() ||
                       (options_.migrates && restless_);
    turn_at_ =
        turns ? later_by(now / options_.quantum * options_.quantum, options_.quantum) : forever;
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens: at the next multiple of the quantum
  // while a server is over-subscribed, jobs are packed or running ones may move, and when jobs may
  // grow.
  [[nodiscard]] time_ms wake() const noexcept { return (std::min)(growth_.next(), turn_at_); }

  // nullopt: there is no such job.
  [[nodiscard]] std::optional<standing> find(job_id job) const {
    const detail::gandiva_job* const r = jobs_.find(job);
    if (r == nullptr) return std::nullopt;
    return standing{r->phase, r->home, r->leader.valid() ? r->leader : r->guest};
  }
  // Requires: there is such a server.
  [[nodiscard]] std::uint32_t load(node_id n) const noexcept { return jobs_.servers().load(n); }
  [[nodiscard]] std::uint32_t affinity(node_id n) const noexcept {
    return jobs_.servers().affinity(n);
  }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool().total(); }
  // Of two packed jobs one has the GPUs.
  [[nodiscard]] const server_pool& pool() const noexcept { return jobs_.pool(); }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }

 private:
  explicit gandiva(const gandiva_options& options)
      : options_(options),
        jobs_(options.servers.gpus, options.servers.servers_per_rack),
        packing_(options.packs ? options.servers.gpus.size() : 0, options.gpu_memory),
        migration_(options.threshold, options.migration_cost * 1000 / options.max_loss,
                   options.typical.total_weight() == 0
                       ? detail::move_gains()
                       : detail::move_gains(fragmentation(options.typical))),
        growth_(options.idle_period) {}

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] static absl::Status no_such(node_id n) {
    return absl::NotFoundError("there is no server " + std::to_string(n.value));
  }

  void leave(detail::gandiva_job& r, time_ms now) {
    forget(r);
    jobs_.leave(r, now);
  }
  void forget(const detail::gandiva_job& r) {
    if (options_.packs && r.home.valid()) packing_.forget(r.home, r.request.job);
  }

  // Gives a job that waits for a server one; whether there is one.
  bool assign(detail::gandiva_job& r, time_ms now) {
    const detail::gandiva_servers& servers = jobs_.servers();
    const std::uint32_t gpus = r.request.gpus;
    const node_id same = servers.least_loaded(gpus);
    node_id home = same;
    if (!same.valid() || servers.spare(same) < gpus) {
      home = servers.empty(gpus);
      if (!home.valid()) home = servers.tightest(gpus);
    }
    if (!home.valid()) {
      if (const auto parts = servers.spread(gpus); !parts.empty()) {
        queue_.leave(r, now);
        job_placement place;
        for (const auto& [n, k] : parts) {
          jobs_.make_room(n, k);
          place.push_back(pool().pick_idle(n, k));
        }
        std::sort(place.begin(), place.end(),
                  [](placement a, placement b) { return a.node < b.node; });
        jobs_.start_wide(r, std::move(place));
        return true;
      }
      home = same;
    }
    if (!home.valid()) return false;
    queue_.leave(r, now);
    jobs_.settle(r, home);
    return true;
  }

  // Starts those whose turn it is on a server; `anew`: of all its jobs, the others are suspended;
  // else of those that do not run, on what is idle or only grown into. A job that this decision has
  // stopped waits for the next one.
  void take_turns(node_id n, bool anew, time_ms now) {
    if (!pool().healthy(n)) return;
    std::uint32_t gpus = anew ? pool().gpus(n) - jobs_.servers().pinned(n) : pool().idle(n);
    if (!anew && options_.grows) {
      for (const detail::elastic_job& j : jobs_.elastic(n)) gpus += j.has - j.asked;
    }
    if (gpus == 0 && !options_.packs) return;  // nobody can start, and nobody was stopped before
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
    detail::gandiva_job* guest = nullptr;
    if (const auto trial =
            anew && options_.packs ? packing_.choose(jobs_, n, waits_, runs_) : std::nullopt) {
      leader = runs_[trial->second];
      guest = waits_[trial->first];
      if (guest->runs() && !leader->runs()) std::swap(leader, guest);  // rather than start that
    }
    for (detail::gandiva_job* const r : waits_) {
      if (r->runs() && r != leader && r != guest) jobs_.suspend(*r);
    }
    if (leader != nullptr && leader->runs()) {
      jobs_.pack(*leader, *guest);
      leader = nullptr;
    }
    for (detail::gandiva_job* const r : runs_) {
      if (r->runs()) continue;
      jobs_.make_room(n, r->request.gpus);
      jobs_.start(*r, {pool().pick_idle(n, r->request.gpus)});
    }
    if (leader != nullptr) jobs_.pack(*leader, *guest);
  }

  gandiva_options options_;
  detail::gandiva_jobs jobs_;
  detail::gandiva_packing packing_;
  detail::gandiva_migration migration_;
  detail::gandiva_growth growth_;
  detail::gandiva_queue queue_;
  std::vector<node_id> again_;  // servers with a job that is to start, but not in the same decision
  bool departed_ = false;       // something ended or was repaired since the last decide()
  bool restless_ = false;       // running jobs may be able to move
  time_ms turn_at_ = forever;   // when the last decide() wanted the next turn
  std::vector<detail::sliced_job> candidates_;  // scratch of take_turns(), as the next
  std::vector<detail::gandiva_job*> records_, runs_, waits_;
};

APIARY_NAMESPACE_END
