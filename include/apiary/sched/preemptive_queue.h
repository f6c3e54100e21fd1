// apiary/sched/preemptive_queue.h - jobs that give way to those that matter more just now.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/core/weighted_tree.h>
#include <apiary/model/job_request.h>
#include <apiary/sched/job_placer.h>
#include <apiary/sched/wait_lines.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

enum class preemptive_rule : std::uint8_t {
  shortest_remaining,  // the least GPUs times estimated time that is left
  least_attained,      // the least GPUs times time had so far
};

struct preemptive_options {
  preemptive_rule rule = preemptive_rule::least_attained;
  tick_t quantum = 1;  // of least_attained: who runs is chosen again at its multiples
};

// Lets those jobs run that come first in the order of their GPU-time: in that order each that fits
// into what the earlier ones leave of the cluster, the others are suspended. Shortest remaining
// chooses at each event; least attained at the multiples of its quantum, and between them only
// starts what fits beside those that run.
//
// Order:    by GPU-time, then by job id.
// Model:    Gu et al., "Tiresias" (NSDI 2019), the two-dimensional orders without queues.
// Requires: times >= 0 that never go back; GPUs times time below 2^62; decide() at wake() and after
//           each moment at which something was submitted, ended, broke or was repaired. A job makes
//           progress from the moment it is started.
// Cost:     choosing O(jobs running) steps of O(log jobs + lines), whatever waits; the rest as
//           sched/batch_queue.h.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class preemptive_queue {
 public:
  // Requires: options.quantum > 0.
  explicit preemptive_queue(Placer placer, preemptive_options options = {})
      : placer_(std::move(placer)), options_(options) {
    APIARY_ASSERT(options.quantum > 0);
  }

  // kInvalidArgument: no job id, it fits not even into the empty cluster, or for shortest_remaining
  // an estimate that is negative or missing. kAlreadyExists: a job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, tick_t now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (by_remaining() && (r.estimate < 0 || r.estimate == forever)) {
      return absl::InvalidArgumentError(name(r.job) + ": estimate " + std::to_string(r.estimate));
    }
    APIARY_RETURN_IF_ERROR(placer_.check(r));
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return absl::AlreadyExistsError(name(r.job) + " is here already");
    at->second.request = r;
    wait(at->second, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, tick_t now) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    record& r = found->second;
    if (r.running) {
      APIARY_RETURN_IF_ERROR(stop(r, now));
    } else {
      lines_.leave(r.request, r.key, r.entered, now);
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }

  // The server is broken: what runs there stops and waits again. The jobs that stopped, ascending.
  // kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, tick_t now) {
    APIARY_RETURN_IF_ERROR(placer_.mark_bad(n));
    std::vector<job_id> stopped = placer_.jobs_on(n);
    for (const job_id job : stopped) {
      APIARY_RETURN_IF_ERROR(stop(jobs_.at(job.value), now));
      wait(jobs_.at(job.value), now);
    }
    return stopped;
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, tick_t /*now*/) {
    return placer_.mark_healthy(n);
  }

  // Suspends and starts: appends to `actions`, which the host carries out in order; all are taken
  // here already. An error only where the placer answers one of its own.
  [[nodiscard]] absl::Status decide(tick_t now, std::vector<job_action>& actions) {
    lines_.begin_round();
    const bool choose = by_remaining() || now % options_.quantum == 0;
    if (choose && running_gpus_ > 0 && lines_.gpus() > placer_.idle_gpus()) {
      APIARY_RETURN_IF_ERROR(suspend_all_but_first(now, actions));
    }
    while (const auto next = lines_.first_that_may(placer_.idle_gpus())) {
      APIARY_RETURN_IF_ERROR(start(*next, now, actions));
    }
    lines_.end_round(placer_.idle_gpus(), delay_cause::order, now);
    now_ = now;
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens: at the next multiple of the quantum
  // if somebody waits.
  [[nodiscard]] tick_t wake() const noexcept {
    if (by_remaining() || lines_.empty() || running_gpus_ == 0) return forever;
    return (now_ / options_.quantum + 1) * options_.quantum;
  }

  [[nodiscard]] std::size_t num_waiting() const noexcept { return lines_.size(); }
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.size() - lines_.size(); }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer_.total_gpus(); }
  [[nodiscard]] const Placer& placer() const noexcept { return placer_; }

 private:
  struct record {
    job_request request{};
    std::int64_t key = 0;  // of those that wait: their GPU-time
    delays entered{};      // reading of the line's clock
    tick_t had = 0;        // time that it ran before it was last started
    tick_t started = 0;    // the last time
    bool running = false;
  };

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] bool by_remaining() const noexcept {
    return options_.rule == preemptive_rule::shortest_remaining;
  }

  [[nodiscard]] std::int64_t key_of(const record& r, tick_t now) const noexcept {
    const tick_t had = r.had + (r.running ? now - r.started : 0);
    const tick_t counts = by_remaining() ? std::max<tick_t>(0, r.request.estimate - had) : had;
    return counts * r.request.gpus;
  }
  void wait(record& r, tick_t now) {
    r.key = key_of(r, now);
    r.entered = lines_.enter(r.request, r.key, now);
  }
  [[nodiscard]] absl::Status stop(record& r, tick_t now) {
    APIARY_RETURN_IF_ERROR(placer_.finish(r.request.job));
    r.had += now - r.started;
    r.running = false;
    running_gpus_ -= r.request.gpus;
    running_.erase(r.request.job.value, r.request.job.value);
    return absl::OkStatus();
  }

  // Suspends those that run but are not among the first that fit together.
  [[nodiscard]] absl::Status suspend_all_but_first(tick_t now, std::vector<job_action>& actions) {
    weighted_tree by_key;
    for (auto at = running_.first(); at; at = running_.next(at->key, at->id)) {
      by_key.insert({key_of(jobs_.at(at->id), now), at->id, at->weight});
    }
    std::uint32_t left = placer_.idle_gpus() + running_gpus_;
    wait_lines::walk waiting(lines_);
    std::vector<std::uint32_t> last;  // who does not fit
    for (auto at = by_key.first(); at; at = by_key.next(at->key, at->id)) {
      const wait_lines::entry runs{job_id(at->id), at->key, static_cast<std::uint32_t>(at->weight)};
      while (const auto earlier = waiting.next_before(runs, left)) left -= earlier->gpus;
      if (runs.gpus <= left) {
        left -= runs.gpus;
      } else {
        last.push_back(at->id);
      }
    }
    for (const std::uint32_t job : last) {
      APIARY_RETURN_IF_ERROR(stop(jobs_.at(job), now));
      wait(jobs_.at(job), now);
      actions.push_back({job_action::verb::suspend, job_id(job), {}, {}});
    }
    return absl::OkStatus();
  }
  // Starts the job if it has a place; otherwise its line has failed.
  [[nodiscard]] absl::Status start(const wait_lines::entry& e, tick_t now,
                                   std::vector<job_action>& actions) {
    record& r = jobs_.at(e.job.value);
    absl::StatusOr<job_place> place = placer_.propose(r.request);
    if (absl::IsResourceExhausted(place.status())) {
      lines_.fail(e.gpus);
      return absl::OkStatus();
    }
    APIARY_RETURN_IF_ERROR(place.status());
    APIARY_RETURN_IF_ERROR(placer_.commit(r.request, *place));
    const delays waited = lines_.leave(r.request, r.key, r.entered, now);
    r.running = true;
    r.started = now;
    running_gpus_ += e.gpus;
    running_.insert({e.job.value, e.job.value, e.gpus});
    actions.push_back({job_action::verb::start, e.job, *std::move(place), waited});
    return absl::OkStatus();
  }

  Placer placer_;
  preemptive_options options_;
  absl::flat_hash_map<std::uint32_t, record> jobs_;
  wait_lines lines_;
  weighted_tree running_;  // by job id, weighed by GPUs
  std::uint32_t running_gpus_ = 0;
  tick_t now_ = 0;  // of the last decide()
};

APIARY_NAMESPACE_END
