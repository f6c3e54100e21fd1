// apiary/gang_scheduler/detail/gang_scheduler_inl.h - bodies of gang_scheduler/gang_scheduler.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/gang_cluster_inl.h>
#include <apiary/gang_scheduler/detail/gang_explanation.h>
#include <apiary/gang_scheduler/detail/gang_planner.h>
#include <apiary/gang_scheduler/detail/gang_scheduler_core.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/task_replacement.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE gang_scheduler::gang_scheduler(
    std::unique_ptr<detail::gang_scheduler_core> core) noexcept
    : core_(std::move(core)) {}
APIARY_INLINE gang_scheduler::gang_scheduler(const gang_scheduler& other)
    : core_(std::make_unique<detail::gang_scheduler_core>(*other.core_)) {
  core_->state.end_trials();
  core_->trial = nullptr;
}
APIARY_INLINE gang_scheduler::gang_scheduler(gang_scheduler&& other) noexcept = default;
APIARY_INLINE gang_scheduler& gang_scheduler::operator=(const gang_scheduler& other) {
  if (this != &other) *this = gang_scheduler(other);
  return *this;
}
APIARY_INLINE gang_scheduler& gang_scheduler::operator=(gang_scheduler&& other) noexcept = default;
APIARY_INLINE gang_scheduler::~gang_scheduler() = default;

APIARY_INLINE absl::StatusOr<gang_scheduler> gang_scheduler::create(const gang_cluster& cluster) {
  APIARY_RETURN_IF_ERROR(cluster.check());
  return gang_scheduler(std::make_unique<detail::gang_scheduler_core>(cluster));
}

APIARY_INLINE absl::StatusOr<gang_scheduler::plan> gang_scheduler::propose(const request& gang,
                                                                           time_ms now) {
  const std::uint32_t slot = core_->state.slot_of(gang.job);
  if (slot == detail::scheduled_gangs::none) {
    APIARY_RETURN_IF_ERROR(core_->check(gang));
  } else if (!core_->state.at(slot).record.preempting) {
    return absl::AlreadyExistsError(absl::StrCat(core_->name(gang.job), " runs already"));
  } else if (!(core_->state.at(slot).record.what == gang)) {
    return absl::InvalidArgumentError(absl::StrCat(
        core_->name(gang.job), " has reserved GPUs for another request; finish it first"));
  }
  return core_->decide(gang, now);
}
APIARY_INLINE absl::Status gang_scheduler::commit(const plan& decided) {
  detail::scheduled_gangs& state = core_->state;
  const auto name = [&] { return core_->name(decided.request_.job); };
  if (decided.request_.gang.groups.empty() || decided.epoch_ != state.epoch() ||
      decided.hash_ != state.hash())
    return absl::AbortedError(absl::StrCat(name(), ": the state has changed since the proposal"));
  if (decided.result == plan_result::wait)
    return absl::FailedPreconditionError(absl::StrCat(name(), " has to wait"));
  if (!decided.replaced.empty()) return commit_replacement(decided);
  const std::uint32_t slot = state.slot_of(decided.request_.job);
  if (slot != detail::scheduled_gangs::none) {
    if (!state.at(slot).record.preempting ||
        (decided.result == plan_result::bind) != state.at(slot).record.victims.empty())
      return absl::InvalidArgumentError(absl::StrCat(name(), ": the plan was changed"));
    if (decided.result == plan_result::bind) {
      state.set_preempting(slot, false, decided.now_);
      state.next_epoch();
    }
    return absl::OkStatus();
  }
  running_gang gang{.what = decided.request_, .tasks = decided.tasks, .started = decided.now_};
  gang.level = decided.level;
  if (decided.result == plan_result::preempt) {
    gang.preempting = true;
    gang.victims = {decided.victims.begin(), decided.victims.end()};
  }
  std::vector<std::uint32_t> slots;  // of the victims
  for (std::size_t i = 0; gang.preempting && i < decided.victims.size(); ++i) {
    slots.push_back(state.slot_of(decided.victims[i]));
    if (slots.back() == detail::scheduled_gangs::none || !state.at(slots.back()).is_candidate() ||
        (i > 0 && !(decided.victims[i - 1] < decided.victims[i])))
      return absl::InvalidArgumentError(absl::StrCat(name(), ": the plan was changed"));
  }
  detail::merge_sort(slots);
  const auto usable = [&](const detail::used_node& n) {
    std::uint32_t mask = n.free_gpus();
    for (const detail::used_node::gang_here& g : n.gangs)
      if (std::binary_search(slots.begin(), slots.end(), g.slot))
        mask |= g.mask & n.healthy_gpus() & ~n.reserved;
    return mask;
  };
  if (!core_->check(gang.what, gang.tasks, usable).ok())
    return absl::InvalidArgumentError(absl::StrCat(name(), ": the plan was changed"));
  for (const placement& p : gang.tasks) gang.gpus += p.num_gpus();
  state.insert(std::move(gang));
  state.next_epoch();
  return absl::OkStatus();
}
APIARY_INLINE absl::Status gang_scheduler::finish(const job_key& job) {
  const std::uint32_t slot = core_->state.slot_of(job);
  if (slot == detail::scheduled_gangs::none)
    return absl::NotFoundError(absl::StrCat(core_->name(job), " does not run"));
  core_->state.erase(slot);
  core_->state.next_epoch();
  return absl::OkStatus();
}
APIARY_INLINE absl::StatusOr<gang_scheduler::explanation> gang_scheduler::explain(
    const request& gang, time_ms now) {
  explanation e;
  detail::scheduled_gangs& state = core_->state;
  state.refresh();
  APIARY_ASSIGN_OR_RETURN(e.plan, propose(gang, now));
  detail::gang_planner& planner = core_->planner;
  request r = e.plan.request_;
  bool accepts_none = false;
  if (detail::has_short_slice(r.gang)) r.gang = detail::with_whole_slices(r.gang);
  if (e.plan.result == plan_result::wait && e.plan.reason != wait_reason::undecided &&
      state.slot_of(r.job) == detail::scheduled_gangs::none) {
    detail::node_view& view = state.view(r.filter);
    const bool never = e.plan.reason == wait_reason::never;
    accepts_none = view.num_members == 0;
    const capacity_index<ragged_tree>& capacities = never ? view.whole : view.free;
    const std::span<const resources> hosts = never ? view.whole_hosts : view.hosts;
    if (e.plan.reason != wait_reason::unhealthy) {
      infeasibility_proof proof = planner.prove(capacities, r.gang, hosts);
      if (!proof.cells.empty()) e.proof = std::move(proof);
      e.blocking = blocking_resources(r.gang, [&](const topology_constraints& other) {
        return planner.fit(capacities, other, hosts).verdict;
      });
    }
    if (!never) {
      const bool hosted = detail::gang_planner::hosted(r.gang);
      const std::vector<std::uint32_t> whole(view.whole.free().begin(), view.whole.free().end());
      unblock_search<ragged_tree> search(5 *
                                         (std::min)(planner.budget, detail::step_budget::limit));
      const auto remedy = search(
          view.free, r.gang, whole,
          hosted ? std::span<const resources>(view.hosts) : std::span<const resources>(),
          hosted ? std::span<const resources>(view.whole_hosts) : std::span<const resources>());
      if (remedy.verdict == fit_verdict::fits) {
        for (const std::uint32_t p : remedy.nodes)
          e.nodes_to_free.push_back(node_id(state.layout().node_at(p)));
        detail::merge_sort(e.nodes_to_free);
        e.gpus_to_free = remedy.gpus;
      }
    }
  }
  detail::plan_text text(state, r);
  detail::tainted_nodes tainted;
  if (e.proof || accepts_none) tainted = text.not_tolerated();
  if (!tainted.ids.empty()) {
    // A filter that tolerates them would replace the view of another.
    detail::node_view& view = state.view(r.filter);
    journal log;
    transaction tx(log);
    for (const std::uint32_t id : tainted.ids) {
      const detail::used_node& n = state.node(id);
      tx.set(view.free, n.position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));
      detail::set_host(tx, view.hosts[n.position], n.free_host());
    }
    tainted.enough = planner.fit(view.free, r.gang, view.hosts).verdict == fit_verdict::fits;
  }
  e.text = text(e, accepts_none, tainted);
  return e;
}
APIARY_INLINE absl::Status gang_scheduler::recover(const request& gang,
                                                   std::span<const placement> tasks,
                                                   time_ms started) {
  detail::scheduled_gangs& state = core_->state;
  if (state.slot_of(gang.job) != detail::scheduled_gangs::none)
    return absl::AlreadyExistsError(absl::StrCat(core_->name(gang.job), " runs already"));
  APIARY_RETURN_IF_ERROR(core_->check(gang, true));
  APIARY_RETURN_IF_ERROR(core_->check(gang, tasks, [](const detail::used_node& n) {
    return n.all_gpus() & ~n.used & ~n.reserved;
  }));
  running_gang record{.what = gang, .tasks = {tasks.begin(), tasks.end()}, .started = started};
  for (const placement& p : tasks) record.gpus += p.num_gpus();
  state.insert(std::move(record));
  state.next_epoch();
  return absl::OkStatus();
}

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
    if (t >= gang.tasks.size() || !state.nodes().has_node(p.node) ||
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

APIARY_INLINE absl::Status gang_scheduler::mark_bad(node_id node,
                                                    std::optional<std::uint32_t> gpu) {
  return core_->set_health(node, gpu, true);
}
APIARY_INLINE absl::Status gang_scheduler::mark_healthy(node_id node,
                                                        std::optional<std::uint32_t> gpu) {
  return core_->set_health(node, gpu, false);
}
APIARY_INLINE absl::StatusOr<node_id> gang_scheduler::add_node(const gang_cluster::node& node) {
  detail::scheduled_gangs& state = core_->state;
  APIARY_RETURN_IF_ERROR(detail::check_node(node, state.layout().level_names().subspan(1)));
  if (state.nodes().find_node(node.name))
    return absl::AlreadyExistsError(absl::StrCat("node \"", node.name, "\" exists already"));
  const std::string fault = state.layout().cells().fault(node.cells);
  if (!fault.empty())
    return absl::InvalidArgumentError(absl::StrCat("node \"", node.name, "\": ", fault));
  const std::uint32_t id = state.nodes().next_id();
  state.insert_node(id, node);
  state.next_epoch();
  return node_id(id);
}
APIARY_INLINE absl::Status gang_scheduler::remove_node(node_id node) {
  APIARY_RETURN_IF_ERROR(core_->check(node));
  const detail::used_node& n = core_->state.node(node.value);
  if (!n.gangs.empty())
    return absl::FailedPreconditionError(
        absl::StrCat("node \"", n.shape.name, "\": ", n.gangs.size(), " gangs run on it"));
  core_->state.erase_node(node.value);
  core_->state.next_epoch();
  return absl::OkStatus();
}
APIARY_INLINE absl::Status gang_scheduler::resize_node(node_id node, std::uint32_t gpus,
                                                       resources host) {
  APIARY_RETURN_IF_ERROR(core_->check(node));
  const detail::used_node& n = core_->state.node(node.value);
  if (gpus > gang_cluster::max_gpus)
    return absl::InvalidArgumentError(absl::StrCat("node \"", n.shape.name, "\" cannot have ", gpus,
                                                   " GPUs; the limit is ", gang_cluster::max_gpus));
  const auto last = static_cast<std::uint64_t>(std::bit_width(n.used | n.reserved));
  if (last > gpus || n.cpu_milli > host.cpu_milli || n.memory_mib > host.memory_mib)
    return absl::FailedPreconditionError(
        absl::StrCat("node \"", n.shape.name, "\": its gangs use GPUs below ", last, ", ",
                     n.cpu_milli, " thousandths of a CPU and ", n.memory_mib, " MiB"));
  const std::uint32_t kept = gpus == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << gpus) - 1;
  core_->state.set_health(node.value, n.bad, n.bad_gpus & kept);
  core_->state.resize_node(node.value, gpus, host);
  core_->state.next_epoch();
  return absl::OkStatus();
}

APIARY_INLINE void gang_scheduler::set_victim_cost(cost_function cost) {
  cost_function& now = core_->planner.victims.cost_function;
  if (core_->trial != nullptr && !core_->trial->cost) core_->trial->cost.emplace(std::move(now));
  now = std::move(cost);
  core_->state.next_epoch();
}
APIARY_INLINE void gang_scheduler::set_disruption_budget(tenant_id tenant,
                                                         const disruption_budget& budget) {
  detail::tenant_budgets& budgets = core_->planner.victims.budgets;
  if (core_->trial != nullptr && !core_->trial->budgets) core_->trial->budgets = budgets;
  budgets.set(tenant.value, budget);
  core_->state.next_epoch();
}
APIARY_INLINE void gang_scheduler::set_step_budget(std::uint64_t steps) {
  core_->planner.budget = std::clamp(steps, std::uint64_t{1}, detail::step_budget::limit);
}
APIARY_INLINE void gang_scheduler::what_if(absl::FunctionRef<void(gang_scheduler&)> trial) {
  // Takes back what the trial has set, when it ends or throws.
  struct settings {
    detail::gang_scheduler_core& core;
    detail::trial_settings* outer;
    std::uint64_t steps;
    detail::trial_settings before{};
    ~settings() {
      detail::gang_planner& planner = core.planner;
      core.trial = outer;
      planner.budget = steps;
      if (before.cost) planner.victims.cost_function.swap(*before.cost);
      if (before.budgets) planner.victims.budgets = std::move(*before.budgets);
    }
  };
  settings open{*core_, core_->trial, core_->planner.budget};
  core_->trial = &open.before;
  core_->state.try_out([&] { trial(*this); });
}

APIARY_INLINE absl::StatusOr<level_t> gang_scheduler::find_level(std::string_view name) const {
  for (level_t l = 0; l < core_->state.layout().num_levels(); ++l)
    if (core_->state.layout().level_name(l) == name) return l;
  return absl::NotFoundError(absl::StrCat("there is no level \"", std::string(name), "\""));
}
APIARY_INLINE absl::StatusOr<node_id> gang_scheduler::find_node(std::string_view name) const {
  if (const auto n = core_->state.nodes().find_node(std::string(name))) return node_id(*n);
  return absl::NotFoundError(absl::StrCat("there is no node \"", std::string(name), "\""));
}
APIARY_INLINE const gang_cluster::node* gang_scheduler::node(node_id n) const {
  return core_->state.nodes().has_node(n) ? &core_->state.node(n.value).shape : nullptr;
}
APIARY_INLINE const gang_scheduler::running_gang* gang_scheduler::find(const job_key& job) const {
  const std::uint32_t slot = core_->state.slot_of(job);
  return slot == detail::scheduled_gangs::none ? nullptr : &core_->state.at(slot).record;
}
APIARY_INLINE std::vector<job_key> gang_scheduler::jobs_on(node_id n) const {
  std::vector<job_key> jobs;
  if (!core_->state.nodes().has_node(n)) return jobs;
  for (const detail::used_node::gang_here& g : core_->state.node(n.value).gangs)
    jobs.push_back(core_->state.at(g.slot).record.what.job);
  detail::merge_sort(jobs);
  return jobs;
}
APIARY_INLINE absl::StatusOr<std::vector<gang_scheduler::cell_capacity>>
gang_scheduler::free_capacity(level_t level) const {
  const detail::cluster_layout& layout = core_->state.layout();
  if (level >= layout.num_levels())
    return absl::NotFoundError(absl::StrCat("there is no level ", level, "; the cluster has ",
                                            layout.num_levels(), " levels"));
  std::vector<cell_capacity> cells;
  for (const std::uint32_t id : core_->state.nodes().in_order()) {
    const detail::used_node& n = core_->state.node(id);
    const std::string& name = level == 0 ? n.shape.name : n.shape.cells[level - 1];
    if (cells.empty() || cells.back().name != name) cells.push_back({.name = name});
    const auto free = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
    cell_capacity& cell = cells.back();
    ++cell.nodes;
    cell.free_nodes += n.shape.gpus > 0 && free == n.shape.gpus ? 1U : 0U;
    cell.gpus += n.shape.gpus;
    cell.free_gpus += free;
  }
  return cells;
}
APIARY_INLINE std::uint64_t gang_scheduler::free_gpus() const noexcept {
  return core_->state.nodes().free_gpus();
}
APIARY_INLINE std::uint32_t gang_scheduler::num_gangs() const noexcept {
  return core_->state.num_gangs();
}
APIARY_INLINE std::uint64_t gang_scheduler::hash() const noexcept { return core_->state.hash(); }
APIARY_INLINE std::vector<std::string> gang_scheduler::audit() const {
  return detail::gang_audit(core_->state)();
}

APIARY_NAMESPACE_END
