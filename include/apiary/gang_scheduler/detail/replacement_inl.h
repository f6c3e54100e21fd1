// apiary/gang_scheduler/detail/replacement_inl.h - bodies of gang_scheduler that replace failed nodes of gangs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/status.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang_scheduler/detail/gang_explanation.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/task_replacement.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE absl::StatusOr<gang_scheduler::explanation> gang_scheduler::find_replacement(
    const job_key& job, bool explains) {
  detail::scheduled_gangs& state = core_->state;
  const std::uint32_t slot = state.slot_of(job);
  if (slot == detail::scheduled_gangs::none)
    return absl::NotFoundError(absl::StrCat(core_->name(job), " does not run"));
  const running_gang& gang = state.at(slot).record;
  if (gang.preempting || gang.ends_for)
    return absl::FailedPreconditionError(absl::StrCat(
        core_->name(job), gang.preempting ? " does not run yet" : " ends for another gang"));
  const std::uint64_t budget = core_->planner.budget;
  detail::task_replacement search(state, state.at(slot), state.view(gang.what.filter).members,
                                  budget);
  if (search.failed().empty())
    return absl::FailedPreconditionError(
        absl::StrCat(core_->name(job), " has no task on a bad node or a bad GPU"));
  explanation e;
  plan& to = e.plan;
  to.request_ = gang.what;
  to.epoch_ = state.epoch();
  to.hash_ = state.hash();
  to.replaced = search.failed();
  const auto keep_nodes_to_free = [&] {
    e.nodes_to_free = search.nodes_to_free();
    e.gpus_to_free = search.gpus_to_free();
  };
  fit_verdict verdict = search(0, budget / 2);
  if (verdict == fit_verdict::fits) {
    to.result = plan_result::bind;
    to.level = search.level();
    to.tasks = search.tasks();
  } else {
    if (verdict == fit_verdict::does_not_fit) verdict = search(to.replaced.size(), budget / 2);
    to.reason = verdict == fit_verdict::fits           ? wait_reason::busy
                : verdict == fit_verdict::does_not_fit ? wait_reason::unhealthy
                                                       : wait_reason::undecided;
    if (verdict == fit_verdict::fits) keep_nodes_to_free();
  }
  to.steps = search.steps();
  // The fewest nodes to free. Each search may take half of the steps that are left.
  for (std::size_t n = 1; explains && n < e.nodes_to_free.size();) {
    const std::size_t middle = n + (e.nodes_to_free.size() - n) / 2;
    if (search(middle, search.left() / 2) == fit_verdict::fits) {
      keep_nodes_to_free();
    } else {
      n = middle + 1;
    }
  }
  if (explains) e.text = detail::plan_text(state, gang.what).of_replacement(e, gang);
  return e;
}
APIARY_INLINE absl::StatusOr<gang_scheduler::explanation> gang_scheduler::explain_replacement(
    const job_key& job) {
  return find_replacement(job, true);
}
APIARY_INLINE absl::StatusOr<gang_scheduler::plan> gang_scheduler::propose_replacement(
    const job_key& job) {
  APIARY_ASSIGN_OR_RETURN(explanation e, find_replacement(job, false));
  return std::move(e.plan);
}
APIARY_INLINE absl::Status gang_scheduler::commit_replacement(const plan& decided) {
  detail::scheduled_gangs& state = core_->state;
  const job_key& job = decided.request_.job;
  const auto changed = [&] {
    return absl::InvalidArgumentError(absl::StrCat(core_->name(job), ": the plan was changed"));
  };
  const std::uint32_t slot = state.slot_of(job);
  if (slot == detail::scheduled_gangs::none || !state.at(slot).is_candidate() ||
      decided.result != plan_result::bind || decided.tasks.size() != decided.replaced.size())
    return changed();
  const detail::scheduled_gangs::entry& entry = state.at(slot);
  running_gang gang = entry.record;
  for (std::size_t i = 0; i < decided.replaced.size(); ++i) {
    const std::uint32_t t = decided.replaced[i];
    const placement& p = decided.tasks[i];
    if (t >= gang.tasks.size() || !state.has_node(p.node) ||
        (p.gpu_mask & ~state.node(p.node.value).healthy_gpus()) != 0 ||
        state.node(p.node.value).bad)
      return changed();
    gang.tasks[t] = p;
  }
  // The gang may keep its own GPUs, bad ones as well.
  const auto usable = [&](const detail::used_node& n) {
    std::uint32_t mask = n.free_gpus();
    for (const detail::used_node::gang_here& g : n.gangs)
      if (g.slot == slot) mask |= g.mask;
    return mask & ~n.reserved;
  };
  if (!core_->check(gang.what, gang.tasks, usable).ok()) return changed();
  gang.level = decided.level;
  state.erase(slot);
  state.insert(std::move(gang));
  state.next_epoch();
  return absl::OkStatus();
}

APIARY_NAMESPACE_END
