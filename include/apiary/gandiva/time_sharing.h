// apiary/gandiva/time_sharing.h - Gandiva's turns and moves over any scheduler that knows no time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What the host is to do with a job.
template <class Place>
struct time_sharing_action {
  enum class verb : std::uint8_t {
    start,    // run it at `where`, for the first time
    suspend,  // stop it and keep its progress; it waits
    resume,   // run it at `where` from where it was suspended
    migrate,  // suspend it, and resume it at `where`
  };
  verb what = verb::start;
  job_id job{};
  Place where{};  // not of suspend
  friend bool operator==(const time_sharing_action&, const time_sharing_action&) = default;
};

struct time_sharing_options {
  time_ms quantum = 60'000;  // turns change once in each; forever: nobody is stopped for another
  move_limits moves{};       // a tick
};

// How a job takes part.
struct job_terms {
  std::uint32_t weight = 1;  // of its turns: 1, ..., 1000
  bool movable = true;       // whether it may be migrated
};

// Suspends, resumes and migrates the jobs of a scheduler underneath, as time goes by.
//
// A job that comes starts at once if it can. One served at once may have others stopped for it, as
// the scheduler underneath sees fit; they wait again, progress kept. Then a tick does, in this order,
// and with no job twice:
//   1. jobs that wait to be served at once start, the highest priority first, then by id, if a job
//      ended, stopped or moved or health changed since they were last tried;
//   2. jobs that wait for a turn resume in what is idle: whoever ran least for its weight first, then
//      by id. At the first tick of a quantum, those that ran more are suspended for one that finds
//      no room, whoever ran most (then the highest id) first, until it does; who is not in its way
//      after all runs on, and so do all if it finds no room even then;
//   3. the scheduler underneath moves jobs; if it did, those that wait for a turn look for room again.
// So a job that could run, were nobody else there who takes turns, never waits for ever: at each turn
// that passes it over, somebody runs who ran no more than it did. A job that comes begins as if it had
// run as long as whoever ran least.
//
// Model:   "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI 2018), §3.2: suspend
//          and resume, migration. Differs: turns are taken over the whole cluster, by stride, not a
//          server each by round robin.
// Cost:    submit one start and O(jobs); a tick with moves O(jobs) and what they cost underneath; a
//          turn O(jobs log jobs), and for each who waits as many stops and starts as there are jobs
//          that ran more, at most.
// Example: examples/gandiva_hived.cpp
template <TimeSharingBackend Backend>
class time_sharing {
 public:
  using request = typename Backend::request;
  using action = time_sharing_action<typename Backend::place>;
  enum class phase : std::uint8_t { waits, runs };
  static constexpr time_ms end_of_time = time_ms{1} << 43;  // times are below

  // kInvalidArgument: a quantum that is not above 0. kFailedPrecondition: something runs already.
  [[nodiscard]] static absl::StatusOr<time_sharing> create(Backend backend,
                                                           const time_sharing_options& options) {
    if (options.quantum <= 0)
      return absl::InvalidArgumentError("quantum " + std::to_string(options.quantum));
    if (!backend.empty())
      return absl::FailedPreconditionError("jobs run already that nobody submitted here");
    return time_sharing(std::move(backend), options);
  }

  // A job has come. Appends what the host is to do now: nothing, if the job waits.
  // kInvalidArgument: a weight of 0 or above 1000, or a time before that of another call, or not below
  // end_of_time. kAlreadyExists: a job of this id is here. Else the error of the scheduler
  // underneath. Whatever it is, nothing has changed.
  absl::Status submit(const request& r, const job_terms& terms, time_ms now,
                      std::vector<action>& actions) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    const job_id job = r.job;
    if (terms.weight == 0 || terms.weight > 1000)
      return absl::InvalidArgumentError(name(job) + " has weight " + std::to_string(terms.weight));
    if (jobs_.contains(job.value)) return absl::AlreadyExistsError(name(job) + " is here already");
    ++round_;
    stopped_.clear();
    APIARY_ASSIGN_OR_RETURN(const bool runs, backend_.start(r, stopped_));
    now_ = now;
    const std::int64_t pass = least_pass();
    record& added = jobs_.try_emplace(job.value, r, terms, pass).first->second;
    if (runs) {
      started(added, actions);
    } else {
      wait(added);
    }
    return absl::OkStatus();
  }

  // Whether a job of this request would start, were it submitted now. Requires: none of its id runs.
  [[nodiscard]] bool may_start(const request& r) { return backend_.may_start(r); }

  // The job has ended, or is withdrawn. kNotFound: there is no such job. kInvalidArgument: as submit.
  absl::Status finish(job_id job, time_ms now) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    now_ = now;
    const record& r = found->second;
    if (r.phase == phase::runs) {
      if (takes_turns(r)) --takers_;
      backend_.stop(job);
      room_ = urgent_ = true;
    } else {
      line_of(r).erase(key_of(r), job.value);
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }

  // A bad node gets nothing new; what runs there runs on, until the host says that it has ended.
  // kNotFound: no such node.
  absl::Status mark_bad(node_id n) { return mark(n, false); }
  absl::Status mark_healthy(node_id n) { return mark(n, true); }

  // Appends what the host is to do, one action a job, in order; all are taken here already. To be
  // called at wake(), and whenever something was submitted, ended or marked. kInvalidArgument: as
  // submit.
  absl::Status tick(time_ms now, std::vector<action>& actions) {
    APIARY_RETURN_IF_ERROR(check_time(now));
    now_ = now;
    ++round_;
    serve(actions);
    const bool turn = options_.quantum != forever && now / options_.quantum != turn_;
    turn_ = now / options_.quantum;
    take_turns(turn, actions);
    const bool moved = move(actions);
    if (moved) take_turns(false, actions);
    again_ = moved || (!turns_.empty() && takers_ > 0);  // else a turn changes nothing
    return absl::OkStatus();
  }
  // When tick() wants to be called although nothing happens: with the next quantum, while somebody
  // waits for a turn that another has, or the last tick moved a job; the next moment, while somebody waits who may find
  // room after what that tick suspended or moved.
  [[nodiscard]] time_ms wake() const noexcept {
    if ((room_ && !turns_.empty()) || (urgent_ && !served_.empty())) return now_ + 1;
    if (!again_ || options_.quantum == forever) return forever;
    return later_by(now_ / options_.quantum * options_.quantum, options_.quantum);
  }

  // nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? std::nullopt : std::optional(found->second.phase);
  }
  // What the job ran until the last call, over its weight, as slice_pass(), from that of whoever had
  // least when it came. Requires: there is such a job.
  [[nodiscard]] std::int64_t pass(job_id job) const {
    const auto found = jobs_.find(job.value);
    APIARY_VERIFY(found != jobs_.end());
    return pass_of(found->second);
  }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  [[nodiscard]] std::size_t num_waiting() const noexcept { return turns_.size() + served_.size(); }
  [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

 private:
  struct record {
    record(const request& r, const job_terms& t, std::int64_t p) : asked(r), terms(t), pass(p) {}
    request asked;
    job_terms terms;
    time_sharing::phase phase = phase::waits;
    bool ran = false;         // ever
    std::int64_t pass = 0;    // without what it runs now
    time_ms since = 0;        // when it last began to run
    std::uint64_t round = 0;  // of its last action
  };

  time_sharing(Backend backend, const time_sharing_options& options)
      : backend_(std::move(backend)), options_(options) {}

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] absl::Status check_time(time_ms now) const {
    if (now >= now_ && now < end_of_time) return absl::OkStatus();
    return absl::InvalidArgumentError("time " + std::to_string(now) + " after " +
                                      std::to_string(now_) + ", and times are below " +
                                      std::to_string(end_of_time));
  }
  [[nodiscard]] bool takes_turns(const record& r) const { return backend_.priority(r.asked) < 0; }
  [[nodiscard]] std::int64_t pass_of(const record& r) const noexcept {
    return r.phase == phase::runs ? r.pass + detail::slice_pass(now_ - r.since, r.terms.weight)
                                  : r.pass;
  }
  [[nodiscard]] std::int64_t least_pass() const {
    std::optional<std::int64_t> least;
    if (const auto first = turns_.first()) least = first->key;
    for (const auto& [job, r] : jobs_) {
      if (r.phase == phase::runs && takes_turns(r))
        least = std::min(least.value_or(pass_of(r)), pass_of(r));
    }
    return least.value_or(0);
  }

  // Where a job waits, and its place there.
  [[nodiscard]] weighted_tree& line_of(const record& r) {
    return takes_turns(r) ? turns_ : served_;
  }
  [[nodiscard]] std::int64_t key_of(const record& r) const {
    return takes_turns(r) ? r.pass : -std::int64_t{backend_.priority(r.asked)};
  }
  void wait(record& r) {
    r.phase = phase::waits;
    line_of(r).insert({key_of(r), r.asked.job.value, 0});
  }

  void act(record& r, typename action::verb what, std::vector<action>& actions) {
    r.round = round_;
    actions.push_back({what, r.asked.job, {}});
    if (what != action::verb::suspend) actions.back().where = backend_.place_of(r.asked.job);
  }
  void suspended(record& r, std::vector<action>& actions) {
    r.pass = pass_of(r);
    if (takes_turns(r)) --takers_;
    wait(r);
    room_ = urgent_ = true;
    act(r, action::verb::suspend, actions);
  }
  // It runs, and those in stopped_ do not. Requires: it stands in no line.
  void started(record& r, std::vector<action>& actions) {
    for (const job_id victim : stopped_) suspended(jobs_.at(victim.value), actions);
    if (takes_turns(r)) {
      ++takers_;
    } else {
      urgent_ = true;  // it may have been given more than it needs
    }
    r.phase = phase::runs;
    r.since = now_;
    act(r, r.ran ? action::verb::resume : action::verb::start, actions);
    r.ran = true;
  }
  // Whether it runs now; nothing is written down yet.
  [[nodiscard]] bool start(const record& r) {
    stopped_.clear();
    const absl::StatusOr<bool> runs = backend_.start(r.asked, stopped_);
    APIARY_VERIFY(runs.ok());
    return *runs;
  }
  void start_from_line(record& r, std::vector<action>& actions) {
    line_of(r).erase(key_of(r), r.asked.job.value);
    started(r, actions);
  }
  [[nodiscard]] static std::vector<job_id> in_order(const weighted_tree& line) {
    std::vector<job_id> jobs;
    for (auto at = line.first(); at; at = line.next(at->key, at->id)) jobs.emplace_back(at->id);
    return jobs;
  }

  absl::Status mark(node_id n, bool healthy) {
    APIARY_RETURN_IF_ERROR(backend_.mark(n, healthy));
    room_ = urgent_ = true;
    return absl::OkStatus();
  }

  void serve(std::vector<action>& actions) {
    if (!std::exchange(urgent_, false)) return;
    for (const job_id job : in_order(served_)) {
      record& r = jobs_.at(job.value);
      if (r.round == round_) {
        urgent_ = true;  // at the next tick
      } else if (start(r)) {
        start_from_line(r, actions);
      }
    }
  }

  void take_turns(bool turn, std::vector<action>& actions) {
    if (turns_.empty() || (!std::exchange(room_, false) && !turn)) return;
    std::vector<record*> others;  // who runs, whoever ran most first
    for (auto& [job, r] : jobs_) {
      if (turn && r.phase == phase::runs && r.round != round_ && takes_turns(r))
        others.push_back(&r);
    }
    std::sort(others.begin(), others.end(), [&](const record* a, const record* b) {
      const std::int64_t ran_a = pass_of(*a);
      const std::int64_t ran_b = pass_of(*b);
      return ran_a != ran_b ? ran_a > ran_b : a->asked.job > b->asked.job;
    });
    for (const job_id job : in_order(turns_)) {
      record& r = jobs_.at(job.value);
      if (r.round == round_) {
        room_ = true;  // at the next tick
      } else if (start(r)) {
        start_from_line(r, actions);
      } else if (turn) {
        displace(r, others, actions);
      }
    }
  }
  // Suspends some who ran more, so that the job can run; nobody, if it cannot even then.
  void displace(record& r, std::span<record* const> others, std::vector<action>& actions) {
    std::vector<std::pair<record*, typename Backend::place>> moved;
    bool runs = false;
    for (record* other : others) {
      if (runs || pass_of(*other) <= r.pass) break;
      if (other->phase != phase::runs) continue;
      moved.emplace_back(other, backend_.stop(other->asked.job));
      runs = start(r);
    }
    while (!moved.empty()) {
      if (!backend_.restart(moved.back().first->asked, moved.back().second)) {
        APIARY_VERIFY(runs);
        suspended(*moved.back().first, actions);
      }
      moved.pop_back();
    }
    if (runs) start_from_line(r, actions);
  }

  // Whether any did.
  bool move(std::vector<action>& actions) {
    if (options_.moves.moves == 0) return false;
    std::vector<job_id> movable;
    for (const auto& [job, r] : jobs_) {
      if (r.phase == phase::runs && r.terms.movable && r.round != round_) movable.emplace_back(job);
    }
    std::sort(movable.begin(), movable.end());
    std::vector<job_id> moved;
    backend_.improve(movable, options_.moves, moved);
    for (const job_id job : moved) act(jobs_.at(job.value), action::verb::migrate, actions);
    if (!moved.empty()) room_ = urgent_ = true;
    return !moved.empty();
  }

  Backend backend_;
  time_sharing_options options_;
  absl::flat_hash_map<std::uint32_t, record> jobs_;
  weighted_tree turns_;          // who waits for a turn, by pass
  weighted_tree served_;         // who waits to be served at once, by priority
  std::size_t takers_ = 0;       // jobs that run and take turns
  std::vector<job_id> stopped_;  // for whoever starts
  time_ms now_ = 0;              // of the last call
  std::int64_t turn_ = -1;       // the quantum of the last tick
  std::uint64_t round_ = 1;      // of actions: one a tick
  bool room_ = false;            // whether who waits for a turn may find room
  bool urgent_ = false;          // whether who is served at once may
  bool again_ = false;
};

APIARY_NAMESPACE_END
