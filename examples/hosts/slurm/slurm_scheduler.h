// apiary/examples/hosts/slurm/slurm_scheduler.h - decides about Slurm's jobs: what Slurm reports in, what to do out.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_records.h"
#include <apiary/model/job.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace apiary_slurm {

// One call of Slurm.
struct action {
  enum class kind : std::uint8_t {
    release,    // let a held job start on `nodes`
    requeue,    // end a running job; it comes back held
    take_back,  // hold a released job again
    comment,    // set the comment of a waiting job
  };
  kind what = kind::comment;
  std::uint32_t job = 0;
  std::vector<std::string> nodes{};  // of a release
  std::string comment{};             // the job's comment from now on; empty: unchanged
  std::string why{};                 // for the log
};

// Compares what Slurm reports with the gangs of a decider (gang_decider or tenant_decider), and returns
// the calls that are needed. A new one goes on where a killed one was: its first round recovers all gangs
// that run or are released, and drops those of a restored decider that Slurm no longer has.
template <class Decider>
class slurm_scheduler {
 public:
  // A released job that has not started for so long is taken back.
  static constexpr apiary::time_ms patience = 10'000;
  // A victim that still runs is requeued again, and a hold is repeated, after so long.
  static constexpr apiary::time_ms repeat = 2'000;
  // A requeued job waits for so long: slurmd refuses a job that starts again in the second in which it
  // was ended ("Job credential revoked"), and the job fails.
  static constexpr apiary::time_ms settle = 2'000;
  // The most explanations of a round; they cost more than decisions.
  static constexpr int max_explanations = 2;

  // A decision takes at most so many microseconds of CPU time.
  static constexpr double max_decision_us = 200;

  explicit slurm_scheduler(Decider decider) : decider_(std::move(decider)) {
    for (const auto& [job, nodes] : decider_.jobs()) known_[job] = {nodes, unknown};
    for (const std::string& node : decider_.unusable()) usable_[node] = false;
  }

  // What to do now. Call it with each new report, and once a second without one.
  [[nodiscard]] std::vector<action> round(const std::vector<node_record>& nodes,
                                          const std::vector<job_record>& jobs,
                                          apiary::time_ms now) {
    std::vector<action> todo;
    update_health(nodes);
    for (auto& [id, gang] : known_)
      if (gang.since == unknown) gang.since = now;
    std::map<std::uint32_t, const job_record*> by_id;
    for (const job_record& job : jobs) by_id[job.id] = &job;
    forget_gangs(by_id);
    // Running jobs first: if a released job is in the way of one, the released job gives way. The owners
    // among them first, for they get their own cells back.
    for (const bool owners : {true, false})
      for (const auto& [id, job] : by_id)
        if (job->phase == job_phase::running && !known_.contains(id) &&
            owners == (has_released_mark(job->comment) && priority_of(job->comment) >= 0))
          recover_running(*job, by_id, now);
    for (const auto& [id, job] : by_id)
      if (job->phase == job_phase::released) check_released(*job, now, todo);
    for (const auto& [id, job] : by_id)
      if (job->phase == job_phase::running && decider_.state(id) == gang_state::ends)
        once(action{.what = action::kind::requeue, .job = id, .why = "it is a victim"}, now, todo);
    decide(by_id, now, todo);
    return todo;
  }
  // Slurm has refused to release the job.
  void release_failed(std::uint32_t job) { forget(job); }

  [[nodiscard]] const Decider& decider() const noexcept { return decider_; }
  // The number of decisions, and the CPU time of the slowest one in microseconds.
  [[nodiscard]] std::uint64_t decisions() const noexcept { return decisions_; }
  [[nodiscard]] double slowest_us() const noexcept { return slowest_us_; }
  // The number of decisions that took more than max_decision_us.
  [[nodiscard]] std::uint64_t slow() const noexcept { return slow_; }
  // The job of the slowest decision, and its result.
  [[nodiscard]] const std::string& slowest() const noexcept { return slowest_; }

 private:
  // The CPU time of this thread in microseconds; libslurm has threads of its own.
  [[nodiscard]] static double cpu_us() noexcept {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
  }

  static constexpr apiary::time_ms unknown = -1;
  using node_names = std::vector<std::string>;
  struct known_gang {
    node_names nodes{};         // sorted
    apiary::time_ms since = 0;  // of its release, or of its recovery
  };

  static node_names sorted(node_names names) {
    std::sort(names.begin(), names.end());
    return names;
  }
  void forget(std::uint32_t job) {
    decider_.finish(job);
    known_.erase(job);
  }
  // Adds a call, unless the same one was made a moment ago.
  void once(action call, apiary::time_ms now, std::vector<action>& todo) {
    const auto [at, added] = called_.try_emplace({call.job, call.what}, now);
    if (!added && now - at->second < repeat) return;
    at->second = now;
    todo.push_back(std::move(call));
  }

  void update_health(const std::vector<node_record>& nodes) {
    for (const node_record& node : nodes) {
      const auto [at, added] = usable_.try_emplace(node.name, true);
      if (at->second == node.usable) continue;
      at->second = node.usable;
      decider_.mark(node.name, node.usable);
    }
  }
  // Ends the gangs of jobs that have ended or are held again, and of jobs on other nodes than decided.
  void forget_gangs(const std::map<std::uint32_t, const job_record*>& by_id) {
    std::vector<std::uint32_t> gone;
    for (const auto& [id, gang] : known_) {
      const auto at = by_id.find(id);
      const job_phase phase = at == by_id.end() ? job_phase::ended : at->second->phase;
      const bool preempting = decider_.state(id) == gang_state::preempting;
      bool stays = phase == job_phase::ending && !preempting;
      if (phase == job_phase::held) stays = preempting;
      if (phase == job_phase::running || phase == job_phase::released)
        stays = !preempting && sorted(at->second->nodes) == gang.nodes;
      if (!stays) gone.push_back(id);
    }
    for (const std::uint32_t id : gone) forget(id);
    std::erase_if(called_, [&](const auto& call) {
      const auto at = by_id.find(call.first.first);
      return at == by_id.end() || at->second->phase == job_phase::held;
    });
    std::erase_if(held_since_, [&](const auto& one) {
      const auto at = by_id.find(one.first);
      return at == by_id.end() || at->second->phase != job_phase::held;
    });
    std::erase_if(explained_, [&](const auto& one) { return !by_id.contains(one.first); });
  }

  // Adds a job that has nodes.
  bool recover(const job_record& job, apiary::time_ms now) {
    if (!decider_.recover(job, now)) return false;
    known_[job.id] = {sorted(job.nodes), now};
    return true;
  }
  // The GPUs of a running job may be in use by released jobs; then these end.
  void recover_running(const job_record& job,
                       const std::map<std::uint32_t, const job_record*>& by_id,
                       apiary::time_ms now) {
    if (job.nodes.empty() || recover(job, now)) return;
    for (const std::string& name : job.nodes) {
      for (const std::uint32_t id : decider_.jobs_on(name)) {
        const auto at = by_id.find(id);
        if (at == by_id.end() || at->second->phase == job_phase::released ||
            at->second->phase == job_phase::held)
          forget(id);
      }
    }
    recover(job, now);
  }
  void check_released(const job_record& job, apiary::time_ms now, std::vector<action>& todo) {
    std::string why;
    if (!known_.contains(job.id)) {
      if (!needs_of(job).ok()) return;  // its request was changed after the release
      if (job.nodes.size() != job.num_nodes || !recover(job, now)) why = "its GPUs are in use";
    }
    for (const std::string& name : job.nodes)
      if (const auto at = usable_.find(name); at != usable_.end() && !at->second)
        why = absl::StrCat("node ", name, " is bad");
    if (job.stuck) why = "Slurm cannot start it";
    if (known_.contains(job.id)) {
      if (now - known_[job.id].since > patience) why = "it does not start";
      if (decider_.state(job.id) == gang_state::ends) why = "it is a victim";
    }
    if (why.empty()) return;
    once({.what = action::kind::take_back, .job = job.id, .why = std::move(why)}, now, todo);
  }

  // Decides about the held jobs: the highest priority first, then in the order of submission.
  void decide(const std::map<std::uint32_t, const job_record*>& by_id, apiary::time_ms now,
              std::vector<action>& todo) {
    std::vector<const job_record*> waiting;
    for (const auto& [id, job] : by_id)
      if (job->phase == job_phase::held) waiting.push_back(job);
    std::stable_sort(waiting.begin(), waiting.end(), [](const job_record* a, const job_record* b) {
      return priority_of(a->comment) > priority_of(b->comment);
    });
    int explanations = 0;
    for (const job_record* job : waiting) {
      if (job->restarts > 0 && now - held_since_.try_emplace(job->id, now).first->second < settle)
        continue;
      // Whether it waits for the end of its victims.
      const bool preempts = decider_.state(job->id) == gang_state::preempting;
      const std::uint64_t before = decider_.hash();
      double us = 0;
      const auto plan = measured(us, [&] { return decider_.propose(*job, now); });
      const bool applied =
          plan.ok() && (plan->result == apiary::plan_result::bind ||
                        (plan->result == apiary::plan_result::preempt && !preempts));
      if (applied) {
        const double begin = cpu_us();
        if (!decider_.commit()) continue;
        us += cpu_us() - begin;
      }
      count(*job, plan, us);
      if (!plan.ok()) {
        comment(*job, std::string(plan.status().message()), todo);
      } else if (applied && plan->result == apiary::plan_result::bind) {
        release(*job, *plan, us, now, todo);
      } else if (applied) {
        preempt(*job, *plan, by_id, now, todo);
      } else if (preempts) {
        if (plan->withdraws) forget(job->id);  // decide anew in the next round
      } else if (explanations < max_explanations && explained_[job->id].first != before) {
        ++explanations;
        explained_[job->id].first = before;
        const std::string why = decider_.explain(*job, now);
        if (!why.empty()) comment(*job, why, todo);
      }
    }
  }
  // Asks, and adds the CPU time in microseconds. Interrupts and pages that are read count as time of the
  // thread; so what takes long is asked once more, and the shorter time counts. The answers are equal.
  template <class Ask>
  static auto measured(double& us, const Ask& ask) {
    double begin = cpu_us();
    auto answer = ask();
    double took = cpu_us() - begin;
    if (took > max_decision_us) {
      begin = cpu_us();
      answer = ask();
      took = (std::min)(took, cpu_us() - begin);
    }
    us += took;
    return answer;
  }
  void count(const job_record& job, const absl::StatusOr<decision>& plan, double us) {
    ++decisions_;
    if (us > max_decision_us) ++slow_;
    if (us <= slowest_us_) return;
    slowest_us_ = us;
    slowest_ = absl::StrCat("job ", job.id,
                            !plan.ok()                                  ? " error"
                            : plan->result == apiary::plan_result::wait ? " wait"
                            : plan->result == apiary::plan_result::bind ? " bind"
                                                                        : " preempt");
  }
  void release(const job_record& job, const decision& plan, double us, apiary::time_ms now,
               std::vector<action>& todo) {
    known_[job.id] = {plan.nodes, now};
    explained_.erase(job.id);
    todo.push_back(
        {.what = action::kind::release,
         .job = job.id,
         .nodes = plan.nodes,
         .comment = released_comment(priority_of(job.comment), decider_.cells_of(job.id)),
         .why = absl::StrCat("decided in ", us, " us")});
  }
  void preempt(const job_record& job, const decision& plan,
               const std::map<std::uint32_t, const job_record*>& by_id, apiary::time_ms now,
               std::vector<action>& todo) {
    known_[job.id] = {{}, now};
    for (const std::uint32_t victim : plan.victims) {
      const auto at = by_id.find(victim);
      const bool runs = at != by_id.end() && at->second->phase == job_phase::running;
      once({.what = runs ? action::kind::requeue : action::kind::take_back,
            .job = victim,
            .why = absl::StrCat("it is a victim of job ", job.id)},
           now, todo);
    }
    comment(job, absl::StrCat("waits for the end of jobs ", absl::StrJoin(plan.victims, ", ")),
            todo);
  }
  void comment(const job_record& job, const std::string& text, std::vector<action>& todo) {
    std::string whole = comment_with(priority_of(job.comment), text);
    auto& [hash, last] = explained_[job.id];
    if (whole == job.comment || whole == last) return;
    last = whole;
    todo.push_back({.what = action::kind::comment, .job = job.id, .comment = std::move(whole)});
  }

  Decider decider_;
  std::map<std::uint32_t, known_gang> known_;  // preempting gangs have no nodes
  std::map<std::string, bool> usable_;
  std::map<std::pair<std::uint32_t, action::kind>, apiary::time_ms> called_;
  std::map<std::uint32_t, std::pair<std::uint64_t, std::string>> explained_;  // hash, comment
  std::map<std::uint32_t, apiary::time_ms> held_since_;                       // of requeued jobs
  std::uint64_t decisions_ = 0;
  std::uint64_t slow_ = 0;
  double slowest_us_ = 0;
  std::string slowest_;
};

}  // namespace apiary_slurm
