// apiary/hived/detail/hived_inl.h - bodies of hived/hived.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/healthy_free.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/move.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/planner.h>
#include <apiary/hived/detail/snapshot_text.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The state of a scheduler, and its buffers.
struct hived_core {
  explicit hived_core(hived_layout&& layout)
      : catalog(std::move(layout)), state(catalog.layout()) {}
  hived_core(const hived_core& other)
      : catalog(other.catalog),
        state(other.state),
        epoch(other.epoch),
        restored(other.restored),
        downgraded(other.downgraded) {
    planner->victim_cost() = other.planner->victim_cost();
  }

  hived_catalog catalog;
  hived_state state;
  std::unique_ptr<hived_planner> planner = std::make_unique<hived_planner>();  // cost and buffers
  std::uint64_t epoch = 0;         // number of changes, to recognize a stale plan
  std::vector<job_id> restored;    // gangs that the last change restored
  std::vector<job_id> downgraded;  // gangs that the last change, a recover(), downgraded
  std::vector<chain_leaf> scratch;
};

}  // namespace detail

APIARY_INLINE hived::hived(hived_layout layout)
    : core_(std::make_unique<detail::hived_core>(std::move(layout))) {}
APIARY_INLINE hived::hived(const hived& other)
    : core_(std::make_unique<detail::hived_core>(*other.core_)) {}
APIARY_INLINE hived::hived(hived&& other) noexcept = default;
APIARY_INLINE hived& hived::operator=(const hived& other) { return *this = hived(other); }
APIARY_INLINE hived& hived::operator=(hived&& other) noexcept = default;
APIARY_INLINE hived::~hived() = default;

APIARY_INLINE absl::StatusOr<hived> hived::create(const hived_config& config) {
  APIARY_ASSIGN_OR_RETURN(hived_layout layout, hived_layout::create(config));
  return hived(std::move(layout));
}

APIARY_INLINE void hived::set_victim_cost(gang_record::cost_function cost) {
  core_->planner->victim_cost() = std::move(cost);
}

APIARY_INLINE absl::StatusOr<gang_plan> hived::propose(const gang_request& request) {
  absl::StatusOr<gang_plan> plan = propose_unexplained(request);
  if (plan.ok() && plan->result == plan_result::wait)
    plan->wait = core_->planner->why(core_->catalog, core_->state, request);
  return plan;
}
APIARY_INLINE absl::StatusOr<gang_plan> hived::propose_unexplained(const gang_request& request) {
  const std::optional<gang_slot> slot = gangs().find(request.job);
  if (slot && gangs()[*slot].state == gang_state::allocated)
    return detail::error_of(absl::StatusCode::kAlreadyExists, {name(request.job), " runs already"});
  APIARY_RETURN_IF_ERROR(core_->catalog.check(request));
  APIARY_RETURN_IF_ERROR(core_->planner->consider(core_->catalog, cells(), request));
  absl::StatusOr<gang_plan> result = gang_plan();
  gang_plan& plan = *result;
  plan.stamp_ = gang_plan::stamp({core_->epoch, hash()});
  if (slot) {
    APIARY_RETURN_IF_ERROR(detail::hived_catalog::check_again(request, gangs()[*slot].request));
    if (is_placement_usable(gangs()[*slot], request.suggested)) {
      plan.placed_ = true;
      plan.request_.job = request.job;
      for (const gang_slot s : core_->state.ending_for(*slot))
        plan.victims.push_back(gangs()[s].request.job);
      describe(gangs()[*slot].leaves, request.groups, plan);
      return result;
    }
    plan.withdraws_ = true;
    plan.cancelled.push_back(request.job);
  }
  if (!core_->planner->find(core_->catalog, core_->state, request, slot)) {
    plan.request_.job = request.job;
    return result;
  }
  plan.request_ = request;
  plan.request_.suggested = nullptr;
  plan.place_ = core_->planner->place();
  core_->scratch.clear();
  for (const detail::bound_leaf& l : plan.place_.leaves)
    core_->scratch.push_back({plan.place_.chain, l.image});
  for (const gang_slot s : plan.place_.downgraded)
    (gangs()[s].request.lazy ? plan.downgraded : plan.victims).push_back(gangs()[s].request.job);
  describe(core_->scratch, request.groups, plan);
  for (const gang_slot s : plan.place_.cancelled) plan.cancelled.push_back(gangs()[s].request.job);
  detail::merge_sort(plan.downgraded);
  detail::merge_sort(plan.cancelled);
  return result;
}

APIARY_INLINE absl::Status hived::commit(const gang_plan& plan) {
  if (!plan.request_.job.valid()) return absl::AbortedError("the plan is not one of propose()");
  if (!plan.stamp_.is({core_->epoch, hash()}))
    return detail::error_of(
        absl::StatusCode::kAborted,
        {name(plan.request_.job), ": the plan is stale, or from another scheduler"});
  if (plan.decided_ == plan_result::wait) {
    if (plan.withdraws_) return cancel(plan.request_.job);
    return absl::FailedPreconditionError("a plan to wait cannot be committed");
  }
  begin_change();
  const bool preempting = plan.decided_ == plan_result::preempt;
  if (plan.placed_) {
    if (!preempting) core_->state.bind_reserved(*gangs().find(plan.request_.job));
    return absl::OkStatus();
  }
  std::vector<job_id> to_restore;
  std::vector<job_id> downgraded;
  if (plan.withdraws_) core_->state.drop_preempting(*gangs().find(plan.request_.job), to_restore);
  for (const gang_slot s : plan.place_.cancelled) core_->state.drop_preempting(s, to_restore);
  for (const gang_slot s : plan.place_.downgraded) {
    core_->state.downgrade(s);
    if (preempting) downgraded.push_back(gangs()[s].request.job);
  }
  detail::merge_sort(downgraded);
  const gang_slot slot =
      core_->state.admit(plan.request_, plan.place_, preempting, std::move(downgraded));
  core_->restored =
      core_->state.restore(std::move(to_restore), preempting ? std::optional(slot) : std::nullopt);
  return absl::OkStatus();
}

APIARY_INLINE absl::Status hived::cancel(job_id job) {
  APIARY_ASSIGN_OR_RETURN(const gang_slot slot, existing(job));
  if (gangs()[slot].state != gang_state::preempting)
    return detail::error_of(absl::StatusCode::kFailedPrecondition,
                            {name(job), " runs; it is not preempting"});
  begin_change();
  std::vector<job_id> to_restore;
  core_->state.drop_preempting(slot, to_restore);
  core_->restored = core_->state.restore(std::move(to_restore));
  return absl::OkStatus();
}

APIARY_INLINE absl::Status hived::finish(job_id job) {
  APIARY_ASSIGN_OR_RETURN(const gang_slot slot, existing(job));
  if (gangs()[slot].state == gang_state::preempting) return cancel(job);
  begin_change();
  core_->state.drop(slot);
  return absl::OkStatus();
}

APIARY_INLINE absl::Status hived::finish_task(job_id job, std::uint32_t task) {
  APIARY_ASSIGN_OR_RETURN(const gang_slot slot, existing(job));
  const gang_record& gang = gangs()[slot];
  const auto [from, to] = gang.leaves_of(task);
  const std::size_t ending = gang.count_live(from, to);
  if (ending == 0 && !gang.misses(from, to)) {
    return detail::error_of(absl::StatusCode::kNotFound,
                            {name(job), " has no task ", task, " (any more)"});
  }
  const bool last = ending == gang.count_live(0, gang.leaves.size()) && !gang.misses(0, from) &&
                    !gang.misses(to, gang.leaves.size());
  if (last) return finish(job);
  begin_change();
  core_->state.release(slot, from, to);
  return absl::OkStatus();
}

APIARY_INLINE absl::Status hived::mark_bad(node_id node, std::optional<std::uint32_t> position) {
  return mark(node, position, false);
}

APIARY_INLINE absl::Status hived::mark_healthy(node_id node,
                                               std::optional<std::uint32_t> position) {
  return mark(node, position, true);
}

APIARY_INLINE absl::StatusOr<bool> hived::recover(
    const gang_request& request, std::span<const hived_placement> tasks,
    std::span<const level_t> whole_cells, std::span<const gang_record::missing_leaf> missing) {
  APIARY_RETURN_IF_ERROR(core_->catalog.check(request, true));
  if (gangs().find(request.job))
    return detail::error_of(absl::StatusCode::kAlreadyExists,
                            {name(request.job), " exists already"});
  APIARY_ASSIGN_OR_RETURN(std::vector<chain_leaf> leaves,
                          core_->catalog.find_leaves(request, tasks));
  APIARY_ASSIGN_OR_RETURN(
      const std::vector<level_t> levels,
      detail::hived_catalog::levels_of_leaves(request.job, leaves, whole_cells));
  bool any = false;
  for (const chain_leaf& l : leaves) {
    if (!l.leaf.valid()) continue;
    any = true;
    if (cells().chain(l.chain).holders(l.leaf).idle()) continue;
    const hived_placement at = core_->catalog.placement_of(l);
    return detail::error_of(absl::StatusCode::kFailedPrecondition,
                            {name(request.job), ": leaf cell ", std::countr_zero(at.leaves),
                             " of node ", layout().node_name(at.node), " is in use"});
  }
  if (!any)
    return detail::error_of(absl::StatusCode::kInvalidArgument,
                            {name(request.job), " has no leaf cells"});
  APIARY_RETURN_IF_ERROR(core_->catalog.check_missing(request.job, leaves, missing));
  begin_change();
  gang_record gang{.request = request,
                   .recovered = true,
                   .leaves = std::move(leaves),
                   .missing = {missing.begin(), missing.end()}};
  return core_->state.recover(std::move(gang), levels) ||
         core_->state.preempt_lazily(*gangs().find(request.job), levels, core_->downgraded);
}

APIARY_INLINE absl::StatusOr<hived_reconfiguration> hived::reconfigure(const hived_config& config) {
  APIARY_ASSIGN_OR_RETURN(hived next, create(config));
  next.core_->epoch = core_->epoch + 1;
  detail::hived_move move(core_->catalog, core_->state, next.core_->catalog, next.core_->state);
  hived_reconfiguration report = move.carry_over();
  if (move.split()) {
    return detail::error_of(absl::StatusCode::kInvalidArgument,
                            {name(*move.split()), ": the devices of one task are in two chains"});
  }
  next.set_victim_cost(core_->planner->victim_cost());
  core_->catalog = std::move(next.core_->catalog);
  core_->state = std::move(next.core_->state);
  core_->planner = std::move(next.core_->planner);
  core_->epoch = next.core_->epoch;
  core_->restored.clear();
  core_->downgraded.clear();
  return report;
}
APIARY_INLINE std::string hived::snapshot() const {
  return detail::hived_snapshot_writer::write(cells(), gangs(), layout().hash(), hash());
}

APIARY_INLINE absl::Status hived::restore(std::string_view snapshot) {
  detail::hived_state state(layout());
  APIARY_RETURN_IF_ERROR(detail::hived_snapshot_reader::read(snapshot, core_->catalog, state));
  begin_change();
  core_->state = std::move(state);
  return absl::OkStatus();
}

APIARY_INLINE const hived_layout& hived::layout() const noexcept { return core_->catalog.layout(); }

APIARY_INLINE const detail::hived_catalog& hived::catalog() const noexcept {
  return core_->catalog;
}

APIARY_INLINE const detail::hived_cells& hived::cells() const noexcept {
  return core_->state.cells();
}
APIARY_INLINE const gang_table& hived::gangs() const noexcept { return core_->state.gangs(); }

APIARY_INLINE std::optional<leaf_type_id> hived::find_leaf_type(
    std::string_view type) const noexcept {
  return core_->catalog.find_leaf_type(type);
}

APIARY_INLINE std::uint64_t hived::hash() const noexcept { return core_->state.hash(); }
APIARY_INLINE const gang_record* hived::find(job_id job) const {
  const auto slot = gangs().find(job);
  return slot ? &gangs()[*slot] : nullptr;
}

APIARY_INLINE const std::vector<job_id>& hived::restored() const noexcept {
  return core_->restored;
}
APIARY_INLINE const std::vector<job_id>& hived::downgraded() const noexcept {
  return core_->downgraded;
}
APIARY_INLINE bool hived::being_preempted(const gang_record& gang) const noexcept {
  return core_->state.being_preempted(gang);
}

APIARY_INLINE std::vector<hived_placement> hived::tasks(const gang_record& gang) const {
  std::vector<hived_placement> all;
  core_->catalog.list_tasks(gang.leaves, gang.request.groups, all);
  return all;
}

APIARY_INLINE absl::StatusOr<std::uint32_t> hived::doomed(tenant_id tenant, chain_id chain,
                                                          level_t level) const {
  APIARY_RETURN_IF_ERROR(core_->catalog.exists(tenant));
  APIARY_RETURN_IF_ERROR(core_->catalog.exists(chain, level));
  const detail::physical_chain& at = cells().chain(chain.value);
  const healthy_free<uniform_tree> healthy(at.cells().cells(), at.healthy());
  return cells().ledger(chain.value).doomed(tenant, level, healthy.count(level));
}
APIARY_INLINE std::size_t hived::memory_bytes() const noexcept { return cells().memory_bytes(); }
APIARY_INLINE std::string hived::name(job_id job) { return detail::hived_catalog::name(job); }

APIARY_INLINE absl::StatusOr<gang_slot> hived::existing(job_id job) const {
  const std::optional<gang_slot> slot = gangs().find(job);
  if (!slot) return absl::NotFoundError(detail::missing(job, "gang"));
  return *slot;
}

APIARY_INLINE void hived::begin_change() noexcept {
  ++core_->epoch;
  core_->restored.clear();
  core_->downgraded.clear();
}

APIARY_INLINE bool hived::is_placement_usable(const gang_record& gang,
                                              const summary_bitset* suggested) const {
  return std::all_of(gang.leaves.begin(), gang.leaves.end(), [&](const chain_leaf& l) {
    return !l.leaf.valid() ||
           (cells().chain(l.chain).healthy().healthy(l.leaf) &&
            (suggested == nullptr || suggested->test(core_->catalog.placement_of(l).node.value)));
  });
}

APIARY_INLINE void hived::describe(std::span<const chain_leaf> leaves,
                                   std::span<const task_group> groups, gang_plan& plan) const {
  core_->catalog.list_tasks(leaves, groups, plan.tasks);
  for (const auto& [c, leaf] : leaves) {
    if (!leaf.valid()) continue;
    const gang_slot user = cells().chain(c).holders(leaf).user;
    if (user.valid()) plan.victims.push_back(gangs()[user].request.job);
  }
  detail::sort_unique(plan.victims);
  plan.result = plan.victims.empty() ? plan_result::bind : plan_result::preempt;
  plan.decided_ = plan.result;
}

APIARY_INLINE absl::Status hived::mark(node_id node, std::optional<std::uint32_t> position,
                                       bool good) {
  APIARY_RETURN_IF_ERROR(core_->catalog.exists(node, position.value_or(0)));
  bool changed = false;
  node_id n = node;
  do {
    const std::uint32_t c = layout().chain_of(n).value;
    const id_range<cell_id> all = cells().chain(c).tree().descendants(layout().node_cell(n), 0);
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (position && *position != i) continue;
      changed = core_->state.mark({c, all[i]}, good) || changed;
    }
    n = layout().next_of_host(n);
  } while (!position && n != node);
  if (changed) begin_change();
  return absl::OkStatus();
}

APIARY_NAMESPACE_END
