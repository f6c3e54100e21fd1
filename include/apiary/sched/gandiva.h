// apiary/sched/gandiva.h - servers that jobs of one size share, taking turns.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/core/weighted_tree.h>
#include <apiary/model/job_request.h>
#include <apiary/policy/time_slice.h>
#include <apiary/sched/server_placer.h>

#include <absl/container/flat_hash_map.h>
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
  server_spec servers{};    // `anywhere` of it does not count
  tick_t quantum = 60'000;  // turns change at its multiples
};

// Gives every job a server at once while there is one of its size, more jobs than GPUs if need be,
// and lets the jobs of such a server take turns (policy/time_slice.h).
//
// A server's load is the GPUs of its jobs, running or suspended; its affinity the GPUs that the first
// job on it wanted, 0 for an empty one. A job of g GPUs goes to
//   the least loaded server of affinity g, if it has g GPUs to spare; else
//   an empty server, whose affinity becomes g; else
//   servers that have g GPUs to spare, the tightest one or, together, those with the most; else
//   the least loaded server of affinity g, which is over-subscribed then; else it waits.
// Where a departure leaves GPUs to spare, and at each quantum, a suspended job of the most
// over-subscribed server moves in.
// A job over several servers runs without a break. From the next quantum on no job waits on its
// server for one of lower priority.
//
// Model:    "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI 2018), §3.2 reactive
//           mode and suspend-resume. Its packing, growing and background migration are not here.
// Requires: times >= 0 that never go back; decide() at wake() and after each moment at which
//           something was submitted, ended, broke or was repaired.
// Cost:     O(servers) a job that comes, moves or finds no server; at a quantum O(servers) and
//           O(jobs log jobs) of each over-subscribed server. Of jobs that wait without a server, one
//           of each number of GPUs is tried a decision.
// Example:  examples/job_queues.cpp
class gandiva {
 public:
  enum class phase : std::uint8_t { queued, suspended, run };
  struct standing {
    gandiva::phase phase = phase::queued;
    node_id server{};  // whose turns it takes; not valid when it waits or runs over several
    friend bool operator==(const standing&, const standing&) noexcept = default;
  };

  // kInvalidArgument: as check_servers(), or a quantum that is not above 0.
  [[nodiscard]] static absl::StatusOr<gandiva> create(const gandiva_options& options) {
    APIARY_RETURN_IF_ERROR(check_servers(options.servers));
    if (options.quantum <= 0) {
      return absl::InvalidArgumentError("quantum " + std::to_string(options.quantum));
    }
    return gandiva(options);
  }

  // kInvalidArgument: no job id, no GPUs or more than there are. kAlreadyExists: a job of this id is
  // here.
  [[nodiscard]] absl::Status submit(const job_request& r, tick_t now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.gpus == 0 || r.gpus > pool_.total()) {
      return absl::InvalidArgumentError(name(r.job) + " wants " + std::to_string(r.gpus) +
                                        " GPUs of " + std::to_string(pool_.total()));
    }
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return absl::AlreadyExistsError(name(r.job) + " is here already");
    at->second.request = r;
    at->second.key = at->second.since = now;
    queue_.insert({now, r.job.value, 0});
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, tick_t now) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    record& r = found->second;
    if (r.phase == phase::queued) {
      queue_.erase(r.key, job.value);
    } else {
      leave(r, now);
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }

  // The server is broken: its jobs stop and look for another. Those that ran, ascending.
  // kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, tick_t now) {
    if (n.value >= servers_.size()) return no_such(n);
    pool_.set_health(n, false);
    std::vector<job_id> ran;
    for (const job_id job : std::vector<job_id>(servers_[n.value].jobs)) {
      record& r = jobs_.at(job.value);
      if (r.phase == phase::run) ran.push_back(job);
      leave(r, now);
      r.phase = phase::queued;
      queue_.insert({r.key, job.value, 0});
    }
    return ran;
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, tick_t /*now*/) {
    if (n.value >= servers_.size()) return no_such(n);
    pool_.set_health(n, true);
    touched_.push_back(n);
    return absl::OkStatus();
  }

  // Appends to `actions` what the host is to do, one action a job at most, in order; all are taken
  // here already.
  [[nodiscard]] absl::Status decide(tick_t now, std::vector<job_action>& actions) {
    const bool turn = now % options_.quantum == 0;
    std::vector<std::uint32_t> none;  // numbers of GPUs without a server
    for (auto at = queue_.first(); at; at = queue_.next(at->key, at->id)) {
      record& r = jobs_.at(at->id);
      if (std::find(none.begin(), none.end(), r.request.gpus) != none.end()) continue;
      if (!assign(r, now, actions)) none.push_back(r.request.gpus);
    }
    for (const node_id n : pool_.servers()) {
      if (turn && over_ > 0 && spare(n) > 0) touched_.push_back(n);
    }
    for (std::size_t i = 0; i < touched_.size(); ++i) {  // may grow
      while (move_to(touched_[i])) continue;
    }
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const node_id n : touched_) {
      if (!turn || !over_subscribed(n)) take_turns(n, false, now, actions);
    }
    for (const node_id n : pool_.servers()) {
      if (turn && over_subscribed(n)) take_turns(n, true, now, actions);
    }
    touched_.clear();
    now_ = now;
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens: at the next multiple of the quantum
  // while a server is over-subscribed.
  [[nodiscard]] tick_t wake() const noexcept {
    if (over_ == 0) return forever;
    return (now_ / options_.quantum + 1) * options_.quantum;
  }

  // nullopt: there is no such job.
  [[nodiscard]] std::optional<standing> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return std::nullopt;
    return standing{found->second.phase, found->second.home};
  }
  // Requires: there is such a server.
  [[nodiscard]] std::uint32_t load(node_id n) const noexcept { return servers_[n.value].load; }
  [[nodiscard]] std::uint32_t affinity(node_id n) const noexcept {
    return servers_[n.value].affinity;
  }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool_.total(); }
  [[nodiscard]] const server_pool& pool() const noexcept { return pool_; }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }

 private:
  struct record {
    job_request request{};
    tick_t key = 0;  // when it came
    gandiva::phase phase = phase::queued;
    node_id home{};
    job_place place{};      // while it runs
    std::int64_t pass = 0;  // slice_pass(), without what it runs now
    tick_t since = 0;       // when it last began to run or to wait
  };
  struct server {
    std::vector<job_id> jobs{};  // ascending, those over several servers included
    std::uint32_t load = 0;
    std::uint32_t pinned = 0;  // of it, of jobs over several servers
    std::uint32_t affinity = 0;
  };

  explicit gandiva(const gandiva_options& options)
      : options_(options),
        pool_(options.servers.gpus, options.servers.servers_per_rack),
        servers_(options.servers.gpus.size()) {}

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] static absl::Status no_such(node_id n) {
    return absl::NotFoundError("there is no server " + std::to_string(n.value));
  }
  [[nodiscard]] bool over_subscribed(node_id n) const noexcept { return load(n) > pool_.gpus(n); }
  // GPUs that nobody on the server has, in turns or at once; 0 for a bad one.
  [[nodiscard]] std::uint32_t spare(node_id n) const noexcept {
    return pool_.healthy(n) && !over_subscribed(n) ? pool_.gpus(n) - load(n) : 0;
  }

  void join(record& r, node_id n, std::uint32_t gpus, bool pins) {
    server& s = servers_[n.value];
    const bool was = over_subscribed(n);
    if (s.jobs.empty()) s.affinity = r.request.gpus;
    s.jobs.insert(std::lower_bound(s.jobs.begin(), s.jobs.end(), r.request.job), r.request.job);
    s.load += gpus;
    s.pinned += pins ? gpus : 0;
    over_ += over_subscribed(n) && !was ? 1U : 0U;
    touched_.push_back(n);
  }
  void part(const record& r, node_id n, std::uint32_t gpus, bool pins) {
    server& s = servers_[n.value];
    const bool was = over_subscribed(n);
    s.jobs.erase(std::lower_bound(s.jobs.begin(), s.jobs.end(), r.request.job));
    s.load -= gpus;
    s.pinned -= pins ? gpus : 0;
    if (s.jobs.empty()) s.affinity = 0;
    over_ -= was && !over_subscribed(n) ? 1U : 0U;
    touched_.push_back(n);
  }
  // Stops the job, if it runs.
  void stop(record& r, tick_t now) {
    if (r.phase != phase::run) return;
    pool_.give(r.place);
    r.pass += slice_pass(now - r.since, 1);
    r.phase = phase::suspended;
    r.since = now;
  }
  void run(record& r, job_place place, tick_t now, std::vector<job_action>& actions) {
    pool_.take(r.request.job, place);
    delays waited;
    waited[delay_cause::capacity] = now - r.since;
    actions.push_back({job_action::verb::start, r.request.job, place, waited});
    r.place = std::move(place);
    r.phase = phase::run;
    r.since = now;
  }
  // Takes the job off its servers.
  void leave(record& r, tick_t now) {
    stop(r, now);
    if (r.home.valid()) {
      part(r, r.home, r.request.gpus, false);
    } else {
      for (const placement& p : r.place) part(r, p.node, p.num_devices(), true);
    }
    r.home = {};
    r.place.clear();
  }

  void settle(record& r, node_id n) {
    std::optional<std::int64_t> least;
    for (const job_id job : servers_[n.value].jobs) {
      const record& other = jobs_.at(job.value);
      if (other.home == n && (!least || other.pass < *least)) least = other.pass;
    }
    r.pass = least.value_or(0);
    r.home = n;
    r.phase = phase::suspended;
    join(r, n, r.request.gpus, false);
  }
  // Finds servers for a queued job; whether there are any.
  bool assign(record& r, tick_t now, std::vector<job_action>& actions) {
    const std::uint32_t gpus = r.request.gpus;
    node_id same;
    node_id empty;
    node_id tight;
    for (const node_id n : pool_.servers()) {
      const server& s = servers_[n.value];
      if (!pool_.healthy(n) || pool_.gpus(n) < gpus) continue;
      if (s.affinity == gpus && s.pinned + gpus <= pool_.gpus(n) &&
          (!same.valid() || load(n) < load(same)))
        same = n;
      if (s.affinity == 0 && !empty.valid()) empty = n;
      if (spare(n) >= gpus && (!tight.valid() || spare(n) < spare(tight))) tight = n;
    }
    node_id home = empty.valid() ? empty : tight;
    if (same.valid() && spare(same) >= gpus) home = same;
    job_place wide;
    if (!home.valid()) {
      wide = spread(gpus);
      if (wide.empty()) home = same;
    }
    if (!home.valid() && wide.empty()) return false;
    queue_.erase(r.key, r.request.job.value);
    if (home.valid()) {
      settle(r, home);
    } else {
      for (const placement& p : wide) join(r, p.node, p.num_devices(), true);
      run(r, std::move(wide), now, actions);
    }
    return true;
  }
  // GPUs to spare of the servers that have the most; empty when all have too few.
  [[nodiscard]] job_place spread(std::uint32_t gpus) const {
    std::vector<node_id> order;
    for (const node_id n : pool_.servers()) {
      if (spare(n) > 0) order.push_back(n);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](node_id a, node_id b) { return spare(a) > spare(b); });
    job_place place;
    for (const node_id n : order) {
      const std::uint32_t k = std::min(gpus, spare(n));
      if (k > 0) place.push_back(pool_.part(n, k));
      gpus -= k;
    }
    if (gpus > 0) place.clear();
    std::sort(place.begin(), place.end(), [](placement a, placement b) { return a.node < b.node; });
    return place;
  }

  // Moves a suspended job of the most over-subscribed server that has one small enough to the
  // server; whether there was one.
  bool move_to(node_id to) {
    if (over_ == 0 || spare(to) == 0) return false;
    record* best = nullptr;
    std::uint32_t excess = 0;
    for (const node_id n : pool_.servers()) {
      if (!over_subscribed(n) || load(n) - pool_.gpus(n) <= excess) continue;
      record* here = nullptr;
      for (const job_id job : servers_[n.value].jobs) {
        record& r = jobs_.at(job.value);
        if (r.phase != phase::suspended || r.request.gpus > spare(to)) continue;
        if (here == nullptr || r.pass < here->pass) here = &r;
      }
      if (here == nullptr) continue;
      best = here;
      excess = load(n) - pool_.gpus(n);
    }
    if (best == nullptr) return false;
    part(*best, best->home, best->request.gpus, false);
    settle(*best, to);
    return true;
  }

  // Starts those whose turn it is on a server; `anew`: of all its jobs, the others are suspended;
  // else of those that do not run, on what is idle.
  void take_turns(node_id n, bool anew, tick_t now, std::vector<job_action>& actions) {
    if (!pool_.healthy(n)) return;
    const server& s = servers_[n.value];
    std::vector<sliced_job> candidates;
    for (const job_id job : s.jobs) {
      const record& r = jobs_.at(job.value);
      if (!r.home.valid() || (!anew && r.phase == phase::run)) continue;
      const tick_t ran = r.phase == phase::run ? now - r.since : 0;
      candidates.push_back({job, r.request.gpus, r.request.priority, r.pass + slice_pass(ran, 1)});
    }
    const std::uint32_t gpus = anew ? pool_.gpus(n) - s.pinned : pool_.idle(n);
    const std::vector<std::size_t> chosen = choose_slice(candidates, gpus);
    for (std::size_t i = 0, c = 0; anew && i < candidates.size(); ++i) {
      if (c < chosen.size() && chosen[c] == i) {
        ++c;
        continue;
      }
      record& r = jobs_.at(candidates[i].job.value);
      if (r.phase != phase::run) continue;
      stop(r, now);
      r.place.clear();
      actions.push_back({job_action::verb::suspend, r.request.job, {}, {}});
    }
    for (const std::size_t i : chosen) {
      record& r = jobs_.at(candidates[i].job.value);
      if (r.phase != phase::run) run(r, {pool_.part(n, r.request.gpus)}, now, actions);
    }
  }

  gandiva_options options_;
  server_pool pool_;
  std::vector<server> servers_;
  absl::flat_hash_map<std::uint32_t, record> jobs_;
  weighted_tree queue_;           // jobs without a server, by arrival
  std::vector<node_id> touched_;  // servers whose jobs changed since the last decide()
  std::size_t over_ = 0;          // over-subscribed servers
  tick_t now_ = 0;                // of the last decide()
};

APIARY_NAMESPACE_END
