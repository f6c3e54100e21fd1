// apiary/queue/suspending_queue.h - a queue that suspends and migrates jobs, and bounds each wait.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/book.h>
#include <apiary/queue/detail/run_queues.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/stop.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a suspending_queue.
struct suspending_options {
  // Jobs are chosen at the first decide() from each multiple of it on; 0: at each decide().
  time_ms quantum = 600'000;
  // A job that has waited so long without a break starves; max_time: none does. Requires: max_time
  // if the quantum is 0.
  time_ms patience = max_time;
  time_ms slice = 600'000;  // how long a job that starves runs before all others
  bool migrates = false;    // whether running jobs move to make GPUs of one server idle
  bool stops_on_arrival =
      true;  // whether a new job stops others at once, not only at the next choice
  // An order that needs estimates only: a job whose server breaks keeps its work in whole intervals
  // of this length, in ms; 0: it keeps nothing. The time that starts and migrations cost counts as
  // work here, and in all orders as time that the job has run (the module's page).
  time_ms checkpoint_interval = 0;
};

// A queue that suspends and, if it is to, migrates jobs, and bounds their waits.
//
// A job that does not fit makes jobs after it in the order stop, the last one first, until it fits
// on idle GPUs; those of them that are not in its way continue, and others continue elsewhere if
// they fit. If that is not enough although as many GPUs are idle as it needs, smaller jobs migrate.
// Both happen at multiples of the quantum; a job that arrives also stops others at once, if it is
// to. Between them each job that fits starts, in order.
//
// A job that has waited for `patience` starves: it comes before all other jobs until it has run for
// `slice`; among jobs that starve, the one that has waited longest comes first.
//
// Bound:    while all servers are healthy, a job waits at most patience + quantum + k * (slice +
//           quantum) at a time. k counts the jobs that waited, or ran their slice, when it began to
//           wait. Jobs that arrive later do not matter. Without a patience there is no bound.
// Model:    the slices of jobs that starve are ours; the orders are those of service_order.
// Requires: times >= 0 that never decrease; GPUs * time below 2^62; decide() at wake() and after
//           each time at which a job was submitted or ended, or a server broke or was repaired. A
//           job makes progress from its start on, and keeps it when it is suspended.
// Cost:     a decide() between choices: as job_queue, and O(max_stops) steps of O(log jobs) if
//           a job that arrives does not fit. A choice: as many for each kind that waits, and
//           for a job that starves as many as jobs run, because the bound must hold.
// Example:  examples/job_queues.cpp; queue/policies.h has names for the usual combinations
template <JobPlacer P, class Order = service_order>
class suspending_queue {
 public:
  // A job that does not starve makes at most so many jobs stop.
  static constexpr std::size_t max_stops = 1000;

  // A queue over a placer on which no job runs. Requires: quantum >= 0, slice > 0, patience >= 0,
  // checkpoint_interval >= 0.
  explicit suspending_queue(P placer, Order order = Order(), suspending_options options = {})
      : jobs_(std::move(placer)),
        order_(std::move(order)),
        options_(options),
        running_(order_.thresholds()) {
    APIARY_ASSERT(options_.quantum >= 0 && options_.slice > 0 && options_.patience >= 0 &&
                  options_.checkpoint_interval >= 0);
    APIARY_ASSERT(options_.quantum > 0 || options_.patience == max_time);
  }

  // A job arrives. kInvalidArgument: no job id, a negative estimate, or the job would not fit in an
  // idle cluster; for an order that needs estimates also no estimate, or GPUs * estimate not below
  // 2^62. kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (order_.needs_estimates() && r.estimate > most_gpu_time / (std::max<time_ms>)(1, r.gpus)) {
      return absl::InvalidArgumentError(absl::StrCat(detail::name_of(r.job), ": an estimate of ",
                                                     r.estimate, " on ", r.gpus,
                                                     " GPUs is not below 2^62 of GPU-time"));
    }
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, r.estimate));
    added->since = now;
    wait(*added, now);
    arrived_ = true;
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(jobs_.stop(*r));
      unlist(*r);
    } else {
      leave(*r, now);
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }

  // The server is broken. Its jobs wait again; for an order that needs estimates their work since
  // the last checkpoint is to be done again. Returns them, ascending. kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    return jobs_.mark_bad(n, [&](record& r) {
      APIARY_RETURN_IF_ERROR(jobs_.stop(r));
      pause(r, now, true);
      return absl::OkStatus();
    });
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    return jobs_.mark_healthy(n);
  }

  // Suspends, migrates and starts jobs. Appends the actions to `actions`: suspensions, then the
  // rest, each in order of job id. The queue has applied them already. An error only if the placer
  // returns one; the actions up to then are appended, and no job is lost.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    running_.shift_to(order_.shift(now));
    const bool choose = options_.quantum == 0 || now % options_.quantum == 0 || now >= next_choice_;
    if (choose) starve(now);
    const bool stops = (std::exchange(arrived_, false) && options_.stops_on_arrival) || choose;
    jobs_.queues().begin_round();
    const absl::Status done = choose_jobs(choose, stops, now);
    report(actions);
    jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    // While no job runs, none can stop: a job that waits then waits for a server.
    const bool chooses = num_waiting() > 0 && num_running() > 0 && options_.quantum > 0;
    next_choice_ =
        chooses ? add_time(now / options_.quantum * options_.quantum, options_.quantum) : max_time;
    return done;
  }
  // When decide() must be called: at the next multiple of the quantum if jobs wait and jobs run.
  [[nodiscard]] time_ms wake() const noexcept { return next_choice_; }
  // The number of waiting jobs.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.queues().size(); }
  // The number of running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // The placer, with the jobs that run.
  [[nodiscard]] const P& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : booked_job<P>, service {
    time_ms since = 0;       // it waits since then; while it starves, the begin of that wait
    time_ms owed = 0;        // what is left of its slice
    bool starves = false;    // it comes before all that do not
    job_placement where{};   // where it runs or last ran
    delays waited{};         // of the current wait, before it starved; when it starts, all of it
    bool touched = false;    // this decide() has stopped, moved or started it
    bool ran = false;        // it ran before this decide()
    job_placement ran_at{};  // where
  };
  using time_and_id = std::pair<time_ms, std::uint32_t>;
  static constexpr time_ms most_gpu_time = (time_ms{1} << 62) - 1;

  [[nodiscard]] static time_and_id turn_of(const record& r) noexcept {
    return {r.since, r.request.job.value};
  }
  [[nodiscard]] static time_and_id slice_end(const record& r) noexcept {
    return {add_time(r.started, r.owed), r.request.job.value};
  }
  [[nodiscard]] std::int64_t level_of(const record& r) const noexcept {
    return order_.level(r.request, r);
  }

  // The job is among the running ones of its kind, or is not any more.
  void list(const record& r) {
    if (!r.starves) return running_.insert(r.request.job, r.request.gpus, level_of(r));
    turns_.insert(turn_of(r));
    slices_.insert(slice_end(r));
  }
  void unlist(const record& r) {
    if (!r.starves) return running_.erase(r.request.job, r.request.gpus, level_of(r));
    turns_.erase(turn_of(r));
    slices_.erase(slice_end(r));
  }
  // The job waits from now on, with the key of its kind.
  void wait(record& r, time_ms now) {
    if (r.starves) {
      r.key = r.since - most_gpu_time;  // before all others
    } else {
      r.key = order_.waiting(r.request, r);
      waits_.insert(turn_of(r));
    }
    jobs_.wait(r, now);
  }
  // The job does not wait any more; adds up how long it has waited.
  void leave(record& r, time_ms now) {
    if (!r.starves) waits_.erase(turn_of(r));
    r.waited += jobs_.leave(r, now);
  }
  // A job that has been stopped in the placer waits. `broke`: its server broke.
  void pause(record& r, time_ms now, bool broke = false) {
    unlist(r);
    r.had += now - r.started;
    if (broke) r.lost = r.had - detail::kept_work(r.had - r.lost, options_.checkpoint_interval);
    r.owed -= now - r.started;
    r.starves = r.starves && r.owed > 0;
    if (!r.starves) r.since = now;
    r.waited = {};
    wait(r, now);
  }
  // A job that waited has been put at `where` in the placer.
  void begin(record& r, const job_placement& where, time_ms now) {
    touch(r, false);
    leave(r, now);
    r.where = where;
    r.started = now;
    list(r);
  }
  void touch(record& r, bool runs) {
    if (std::exchange(r.touched, true)) return;
    r.ran = runs;
    r.ran_at = r.where;
    touched_.push_back(r.request.job);
  }

  // Jobs that have run their slice starve no more; those that have waited for `patience` do.
  void starve(time_ms now) {
    while (!slices_.empty() && slices_.begin()->first <= now) {
      record& r = jobs_[job_id(slices_.begin()->second)];
      unlist(r);
      r.starves = false;
      list(r);
    }
    while (!waits_.empty() && waits_.begin()->first <= now - options_.patience) {
      record& r = jobs_[job_id(waits_.begin()->second)];
      leave(r, now);
      r.starves = true;
      r.owed = options_.slice;
      wait(r, now);
    }
  }

  [[nodiscard]] absl::Status choose_jobs(bool choose, bool stops, time_ms now) {
    while (const auto next = jobs_.queues().first_that_may(stops ? placer().total_gpus()
                                                                 : placer().idle_gpus())) {
      record& r = jobs_[next->job];
      APIARY_ASSIGN_OR_RETURN(const std::optional<job_placement> where, jobs_.propose(r));
      bool started = where && jobs_.put(r, *where).ok();
      if (started) {
        begin(r, *where, now);
      } else if (choose || (stops && r.had == 0 && r.since == now)) {
        APIARY_ASSIGN_OR_RETURN(started, stop_for(r, now));
        if (!started && choose && options_.migrates) {
          APIARY_ASSIGN_OR_RETURN(started, migrate_for(r, now));
        }
      }
      if (!started) jobs_.queues().fail(r.kind);
    }
    return absl::OkStatus();
  }
  // Stops running jobs in the placer until `r` fits, while next() is a job, and puts `r` there.
  template <class Next>
  [[nodiscard]] freed_place<job_placement> free_place(record& r, Next&& next) {
    std::size_t stops = 0;
    return stop_until_fits(
        [&]() -> job_id { return !r.starves && stops++ == max_stops ? job_id() : next(); },
        [&](job_id job) { return jobs_.stop(jobs_[job]); },
        [&]() -> absl::StatusOr<std::optional<job_placement>> {
          if (placer().idle_gpus() < r.request.gpus) return std::nullopt;
          return jobs_.propose(r);
        },
        [&](const job_placement& where) { return jobs_.put(r, where); },
        [&](job_id job) { return put_back(job); });
  }
  // A job that was stopped in the placer runs again where it ran.
  [[nodiscard]] absl::Status put_back(job_id job) {
    record& r = jobs_[job];
    return jobs_.put(r, r.where);
  }
  // Jobs that were stopped in the placer wait.
  void suspend(const std::vector<job_id>& stopped, time_ms now) {
    for (const job_id job : stopped) {
      touch(jobs_[job], true);
      pause(jobs_[job], now);
    }
  }
  // Starts a waiting job on GPUs of jobs after it in the order. Returns whether it has started.
  [[nodiscard]] absl::StatusOr<bool> stop_for(record& r, time_ms now) {
    if (!r.starves &&
        placer().idle_gpus() + running_.gpus() - running_.gpus_before(r.key, r.request.job) <
            r.request.gpus)
      return false;
    detail::run_queues::walk_back back(running_);
    std::optional<detail::run_queues::entry> last = back.next();
    auto turn = turns_.rbegin();
    // The last job of all that is after r and was not returned yet.
    const auto next = [&]() -> job_id {
      if (last &&
          (r.starves || r.key < last->key || (r.key == last->key && r.request.job < last->job))) {
        const job_id job = last->job;
        last = back.next();
        return job;
      }
      if (!r.starves || turn == turns_.rend() || *turn < turn_of(r)) return {};
      return job_id((turn++)->second);
    };
    const freed_place<job_placement> place = free_place(r, next);
    if (place.where.ok() && *place.where) begin(r, **place.where, now);
    suspend(place.stopped, now);
    APIARY_RETURN_IF_ERROR(place.where.status());
    return place.where->has_value();
  }
  // Starts a waiting job on GPUs that smaller jobs leave for others. Returns whether it has
  // started.
  [[nodiscard]] absl::StatusOr<bool> migrate_for(record& r, time_ms now) {
    if (placer().idle_gpus() < r.request.gpus) return false;
    detail::run_queues::walk_back back(running_);
    const auto next = [&]() -> job_id {
      while (const auto last = back.next()) {
        if (last->gpus < r.request.gpus) return last->job;
      }
      return {};
    };
    const freed_place<job_placement> place = free_place(r, next);
    if (!place.where.ok() || !*place.where) {
      suspend(place.stopped, now);
      APIARY_RETURN_IF_ERROR(place.where.status());
      return false;
    }
    std::vector<job_id> moves = place.stopped;
    std::stable_sort(moves.begin(), moves.end(), [&](job_id a, job_id b) {
      return jobs_[a].request.gpus > jobs_[b].request.gpus;
    });
    std::vector<job_placement> to;  // of the first jobs
    const absl::StatusOr<bool> all_fit = place_all(moves, to);
    if (!all_fit.ok() || !*all_fit) {
      for (std::size_t i = 0; i < to.size(); ++i) APIARY_VERIFY(jobs_.stop(jobs_[moves[i]]).ok());
      APIARY_VERIFY(jobs_.stop(r).ok());
      for (const job_id job : place.stopped) APIARY_VERIFY(put_back(job).ok());
      return all_fit;
    }
    begin(r, **place.where, now);
    for (std::size_t i = 0; i < to.size(); ++i) {
      touch(jobs_[moves[i]], true);
      jobs_[moves[i]].where = std::move(to[i]);
    }
    return true;
  }
  // Runs the jobs somewhere, the first ones first. Returns whether all fit; `to` says where they
  // run.
  [[nodiscard]] absl::StatusOr<bool> place_all(const std::vector<job_id>& moves,
                                               std::vector<job_placement>& to) {
    for (const job_id job : moves) {
      APIARY_ASSIGN_OR_RETURN(std::optional<job_placement> at, jobs_.propose(jobs_[job]));
      if (!at || !jobs_.put(jobs_[job], *at).ok()) return false;
      to.push_back(*std::move(at));
    }
    return true;
  }

  // The actions of all jobs that this decide() has touched.
  void report(std::vector<job_action>& actions) {
    using verb = job_action::verb;
    std::sort(touched_.begin(), touched_.end());
    const auto moved = [](const record& r) { return r.ran && r.running && r.where != r.ran_at; };
    for (const job_id job : touched_) {
      const record& r = jobs_[job];
      if ((r.ran && !r.running) || (moved(r) && !options_.migrates))
        actions.push_back({verb::suspend, job, {}, {}});
    }
    for (const job_id job : touched_) {
      record& r = jobs_[job];
      r.touched = false;
      if (!r.running || (r.ran && !moved(r))) continue;
      const bool migrates = r.ran && options_.migrates;
      actions.push_back({migrates ? verb::migrate : verb::start, job, r.where,
                         migrates ? delays{} : std::exchange(r.waited, {})});
    }
    touched_.clear();
  }

  job_book<P, record> jobs_;
  Order order_;
  suspending_options options_;
  detail::run_queues running_;    // jobs that do not starve
  std::set<time_and_id> turns_;   // running jobs that starve, by the begin of their wait
  std::set<time_and_id> slices_;  // the same by the end of their slice
  std::set<time_and_id> waits_;   // waiting jobs that do not starve, by the begin of their wait
  std::vector<job_id> touched_;
  bool arrived_ = false;            // since the last decide()
  time_ms next_choice_ = max_time;  // as of the last decide()
};

APIARY_NAMESPACE_END
