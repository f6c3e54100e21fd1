// apiary/examples/hosts/slurm/gang_decider.h - decides about Slurm's jobs with a gang_scheduler, without tenants.
// SPDX-License-Identifier: MIT
#pragma once

#include "../lowest_free_gpus.h"
#include "slurm_records.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace apiary_slurm {

// Answers slurm_scheduler's questions: which nodes a job gets, which jobs end for it, why it waits.
class gang_decider {
 public:
  // The steps of a decision; a gang that needs more waits, `undecided`.
  static constexpr std::uint64_t decision_steps = 1'000;
  // The steps of the decision that an explanation explains.
  static constexpr std::uint64_t explanation_steps = 40'000;

  explicit gang_decider(apiary::gang_scheduler cluster) : cluster_(std::move(cluster)) {
    cluster_.set_step_budget(decision_steps);
  }

  // The jobs that it knows before it has seen a report: none.
  [[nodiscard]] static std::map<std::uint32_t, std::vector<std::string>> jobs() { return {}; }
  // The nodes that it knows as unusable before it has seen a report: none.
  [[nodiscard]] static std::vector<std::string> unusable() { return {}; }
  // What a file keeps for a restart: nothing, Slurm's report says enough.
  [[nodiscard]] static std::string snapshot() { return {}; }
  // The node may be used, or not.
  void mark(const std::string& node, bool usable) {
    const auto id = cluster_.find_node(node);
    if (id.ok()) (usable ? cluster_.mark_healthy(*id) : cluster_.mark_bad(*id)).IgnoreError();
  }
  [[nodiscard]] gang_state state(std::uint32_t job) const {
    const apiary::gang_scheduler::running_gang* const gang = cluster_.find(key(job));
    if (gang == nullptr) return gang_state::none;
    if (gang->preempting) return gang_state::preempting;
    return gang->ends_for ? gang_state::ends : gang_state::runs;
  }
  void finish(std::uint32_t job) { cluster_.finish(key(job)).IgnoreError(); }
  [[nodiscard]] std::vector<std::uint32_t> jobs_on(const std::string& node) const {
    std::vector<std::uint32_t> jobs;
    const auto id = cluster_.find_node(node);
    if (!id.ok()) return jobs;
    for (const apiary::job_key& job : cluster_.jobs_on(*id)) jobs.push_back(number(job));
    return jobs;
  }

  // Adds a job that runs or is released; false: its GPUs are in use, or its record cannot be read.
  bool recover(const job_record& job, apiary::time_ms now) {
    const auto gang = job.phase == job_phase::running ? running_request_of(job) : request_of(job);
    if (!gang.ok()) return false;
    std::vector<apiary::placement> tasks;
    for (const std::string& name : job.nodes) {
      const auto node = cluster_.find_node(name);
      if (!node.ok()) return false;
      const std::size_t group = (std::min)(tasks.size(), gang->gang.groups.size() - 1);
      const auto mask = lowest_free_gpus(cluster_, *node, gang->gang.groups[group].gpus, tasks);
      if (!mask) return false;
      tasks.push_back({*node, *mask});
    }
    return !tasks.empty() && cluster_.recover(*gang, tasks, now).ok();
  }

  // The decision about a held job. It changes nothing. An error's message is for the job's user.
  [[nodiscard]] absl::StatusOr<decision> propose(const job_record& job, apiary::time_ms now) {
    auto gang = request_of(job);
    if (!gang.ok()) return gang.status();
    const apiary::gang_scheduler::running_gang* const reserved = cluster_.find(gang->job);
    if (reserved != nullptr && reserved->preempting && !(reserved->what == *gang))
      return decision{.withdraws = true};  // its request was changed while its victims end
    auto plan = cluster_.propose(*gang, now);
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    decision answer{.result = plan_.result};
    if (plan_.result == apiary::plan_result::bind) {
      for (const apiary::placement& task : plan_.tasks)
        answer.nodes.push_back(cluster_.node(task.node)->name);
      std::sort(answer.nodes.begin(), answer.nodes.end());
    }
    for (const apiary::job_key& victim : plan_.victims) answer.victims.push_back(number(victim));
    // A node that it has reserved is bad.
    answer.withdraws =
        plan_.result == apiary::plan_result::wait && plan_.reason == apiary::wait_reason::unhealthy;
    return answer;
  }
  // Applies the last decision.
  [[nodiscard]] bool commit() { return cluster_.commit(plan_).ok(); }
  // What the comment of a job keeps for a restart: nothing, its nodes say enough.
  [[nodiscard]] static std::string cells_of(std::uint32_t) { return {}; }
  // Why the job of the last decision waits, and what would help. Costs more than the decision.
  [[nodiscard]] std::string explain(const job_record& job, apiary::time_ms now) {
    const auto gang = request_of(job);
    if (!gang.ok()) return std::string(gang.status().message());
    cluster_.set_step_budget(explanation_steps);
    const auto answer = cluster_.explain(*gang, now);
    cluster_.set_step_budget(decision_steps);
    return answer.ok() ? answer->text : "";
  }

  [[nodiscard]] const apiary::gang_scheduler& cluster() const noexcept { return cluster_; }
  [[nodiscard]] std::uint64_t hash() const { return cluster_.hash(); }
  [[nodiscard]] std::vector<std::string> audit() const { return cluster_.audit(); }

 private:
  static apiary::job_key key(std::uint32_t job) { return std::uint64_t{job}; }
  static std::uint32_t number(const apiary::job_key& job) {
    return static_cast<std::uint32_t>(job.number());
  }

  // The gang that a held or released job asks for.
  [[nodiscard]] absl::StatusOr<apiary::gang_scheduler::request> request_of(
      const job_record& job) const {
    const auto needs = needs_of(job);
    if (!needs.ok()) return needs.status();
    apiary::gang_scheduler::request asked{.job = key(job.id), .priority = needs->priority};
    asked.gang.groups = {{.tasks = needs->nodes,
                          .gpus = needs->gpus,
                          .host = {.cpu_milli = needs->cpus * 1000},
                          .spread = {{.level = 0, .tasks = 1}}}};
    if (needs->one_rack) {
      const absl::StatusOr<apiary::level_t> rack = cluster_.find_level("rack");
      if (!rack.ok()) return absl::UnimplementedError("--switches=1: the cluster has no switches");
      asked.gang.required = *rack;
    }
    for (const std::string_view feature : needs->features)
      asked.filter.labels.emplace_back(feature);
    return asked;
  }
  // The gang of a running job: one task on each of its nodes, with the GPUs that Slurm gave it. A job that
  // this scheduler has not released gets the highest priority, so it is never a victim.
  // kInvalidArgument: the records of its nodes and GPUs do not match.
  [[nodiscard]] static absl::StatusOr<apiary::gang_scheduler::request> running_request_of(
      const job_record& job) {
    apiary::gang_scheduler::request runs{
        .job = key(job.id),
        .priority = has_released_mark(job.comment) ? priority_of(job.comment)
                                                   : (std::numeric_limits<std::int32_t>::max)()};
    const auto nodes = static_cast<std::uint32_t>(job.nodes.size());
    const std::uint32_t cpus = nodes == 0 ? 0 : (job.cpus + nodes - 1) / nodes;
    for (std::uint32_t i = 0; i < nodes; ++i) {
      const std::optional<std::uint32_t> gpus = gpus_on(job, i);
      if (!gpus)
        return absl::InvalidArgumentError(absl::StrCat("job ", job.id, ": ", job.gres_detail[i]));
      runs.gang.groups.push_back({.tasks = 1, .gpus = *gpus, .host = {.cpu_milli = cpus * 1000}});
    }
    return runs;
  }

  apiary::gang_scheduler cluster_;
  apiary::gang_scheduler::plan plan_;
};

}  // namespace apiary_slurm
