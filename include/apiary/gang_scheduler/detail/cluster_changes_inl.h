// apiary/gang_scheduler/detail/cluster_changes_inl.h - bodies of gang_scheduler: nodes, questions, audit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang_scheduler/detail/gang_audit.h>
#include <apiary/gang_scheduler/detail/gang_cluster_inl.h>
#include <apiary/gang_scheduler/detail/gang_scheduler_inl.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

[[nodiscard]] inline absl::Status set_health(gang_scheduler_core& core, node_id node,
                                             std::optional<std::uint32_t> gpu, bool bad) {
  APIARY_RETURN_IF_ERROR(core.check(node));
  const used_node& n = core.state.node(node.value);
  std::uint32_t bad_gpus = n.bad_gpus;
  if (gpu) {
    if (*gpu >= n.shape.gpus)
      return absl::NotFoundError(absl::StrCat("node \"", n.shape.name, "\" has ", n.shape.gpus,
                                              " GPUs, so no GPU ", *gpu));
    const std::uint32_t bit = std::uint32_t{1} << *gpu;
    bad_gpus = bad ? bad_gpus | bit : bad_gpus & ~bit;
  }
  core.state.set_health(node.value, gpu ? n.bad : bad, bad_gpus);
  core.state.next_epoch();
  return absl::OkStatus();
}

}  // namespace detail

APIARY_INLINE absl::Status gang_scheduler::mark_bad(node_id node,
                                                    std::optional<std::uint32_t> gpu) {
  return detail::set_health(*core_, node, gpu, true);
}
APIARY_INLINE absl::Status gang_scheduler::mark_healthy(node_id node,
                                                        std::optional<std::uint32_t> gpu) {
  return detail::set_health(*core_, node, gpu, false);
}
APIARY_INLINE absl::StatusOr<node_id> gang_scheduler::add_node(const gang_cluster::node& node) {
  detail::scheduled_gangs& state = core_->state;
  APIARY_RETURN_IF_ERROR(detail::check_node(node, state.layout().level_names().subspan(1)));
  if (state.find_node(node.name))
    return absl::AlreadyExistsError(absl::StrCat("node \"", node.name, "\" exists already"));
  const std::string fault = state.layout().fault(node.cells);
  if (!fault.empty())
    return absl::InvalidArgumentError(absl::StrCat("node \"", node.name, "\": ", fault));
  const std::uint32_t id = state.next_id();
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
  if (core_->trials > 0)
    core_->undo.emplace_back(
        [before = std::move(now)](detail::victim_planner& v) { v.cost_function = before; });
  now = std::move(cost);
  core_->state.next_epoch();
}
APIARY_INLINE void gang_scheduler::set_disruption_budget(tenant_id tenant,
                                                         const disruption_budget& budget) {
  auto& budgets = core_->planner.victims.budgets;
  const auto [at, is_new] = budgets.try_emplace(tenant.value, budget);
  if (core_->trials > 0)
    core_->undo.emplace_back(
        [tenant, is_new = is_new, before = at->second](detail::victim_planner& v) {
          if (is_new) {
            v.budgets.erase(tenant.value);
          } else {
            v.budgets[tenant.value] = before;
          }
        });
  at->second = budget;
  core_->state.next_epoch();
}
APIARY_INLINE void gang_scheduler::set_step_budget(std::uint64_t steps) {
  core_->planner.budget = std::clamp(steps, std::uint64_t{1}, detail::step_budget::limit);
}
APIARY_INLINE void gang_scheduler::what_if(absl::FunctionRef<void(gang_scheduler&)> trial) {
  // Takes back what the trial has set, when it ends or throws.
  struct settings {
    detail::gang_scheduler_core& core;
    std::size_t mark;
    std::uint64_t steps;
    ~settings() {
      --core.trials;
      for (; core.undo.size() > mark; core.undo.pop_back()) core.undo.back()(core.planner.victims);
      core.planner.budget = steps;
    }
  };
  const settings before{*core_, core_->undo.size(), core_->planner.budget};
  ++core_->trials;
  core_->state.try_out([&] { trial(*this); });
}

APIARY_INLINE absl::StatusOr<level_t> gang_scheduler::find_level(std::string_view name) const {
  for (level_t l = 0; l < core_->state.layout().num_levels(); ++l)
    if (core_->state.layout().level_name(l) == name) return l;
  return absl::NotFoundError(absl::StrCat("there is no level \"", std::string(name), "\""));
}
APIARY_INLINE absl::StatusOr<node_id> gang_scheduler::find_node(std::string_view name) const {
  if (const auto n = core_->state.find_node(std::string(name))) return node_id(*n);
  return absl::NotFoundError(absl::StrCat("there is no node \"", std::string(name), "\""));
}
APIARY_INLINE const gang_cluster::node* gang_scheduler::node(node_id n) const {
  return core_->state.has_node(n) ? &core_->state.node(n.value).shape : nullptr;
}
APIARY_INLINE const gang_scheduler::running_gang* gang_scheduler::find(const job_key& job) const {
  const std::uint32_t slot = core_->state.slot_of(job);
  return slot == detail::scheduled_gangs::none ? nullptr : &core_->state.at(slot).record;
}
APIARY_INLINE std::vector<job_key> gang_scheduler::jobs_on(node_id n) const {
  std::vector<job_key> jobs;
  if (!core_->state.has_node(n)) return jobs;
  for (const detail::used_node::gang_here& g : core_->state.node(n.value).gangs)
    jobs.push_back(core_->state.at(g.slot).record.what.job);
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}
APIARY_INLINE absl::StatusOr<std::vector<gang_scheduler::cell_capacity>>
gang_scheduler::free_capacity(level_t level) const {
  const detail::cluster_layout& layout = core_->state.layout();
  if (level >= layout.num_levels())
    return absl::NotFoundError(absl::StrCat("there is no level ", level, "; the cluster has ",
                                            layout.num_levels(), " levels"));
  std::vector<cell_capacity> cells;
  for (std::uint32_t c = 0; c < layout.tree().cells(level).size(); ++c) {
    cell_capacity cell;
    for (const cell_id p : detail::positions_inside(layout.tree(), level, c, 0)) {
      if (layout.node_at(p.value) == detail::cluster_layout::none) continue;
      const detail::used_node& n = core_->state.node(layout.node_at(p.value));
      cell.name = level == 0 ? n.shape.name : n.shape.cells[level - 1];
      const auto free = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
      ++cell.nodes;
      cell.free_nodes += n.shape.gpus > 0 && free == n.shape.gpus ? 1U : 0U;
      cell.gpus += n.shape.gpus;
      cell.free_gpus += free;
    }
    if (cell.nodes > 0) cells.push_back(std::move(cell));
  }
  return cells;
}
APIARY_INLINE std::uint64_t gang_scheduler::free_gpus() const noexcept {
  return core_->state.free_gpus();
}
APIARY_INLINE std::uint32_t gang_scheduler::num_gangs() const noexcept {
  return core_->state.num_gangs();
}
APIARY_INLINE std::uint64_t gang_scheduler::hash() const noexcept { return core_->state.hash(); }
APIARY_INLINE std::vector<std::string> gang_scheduler::audit() const {
  return detail::gang_audit(core_->state)();
}

APIARY_NAMESPACE_END
