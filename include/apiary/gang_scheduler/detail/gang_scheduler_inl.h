// apiary/gang_scheduler/detail/gang_scheduler_inl.h - bodies of gang_scheduler/gang_scheduler.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/gang_explanation.h>
#include <apiary/gang_scheduler/detail/gang_planner.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/short_slices.h>
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
namespace detail {

// The state of a scheduler, and the buffers of its searches.
class gang_scheduler_core {
 public:
  explicit gang_scheduler_core(const gang_cluster& cluster) : state(cluster) {}

  scheduled_gangs state;
  gang_planner planner;
  std::uint32_t trials = 0;  // calls of what_if() that have not ended
  // How to take back what trials changed of the costs and budgets of victims, the oldest first.
  std::vector<std::function<void(victim_planner&)>> undo;

  [[nodiscard]] static std::string name(const job_key& job) {
    return job.valid() ? absl::StrCat("job ", plan_text::name(job)) : "a gang without job id";
  }
  // Whether a request is right. Nodes that its filter names need not exist if it runs already: they
  // may have left since it started.
  [[nodiscard]] absl::Status check(const gang_scheduler::request& r, bool runs = false) {
    if (!r.job.valid())
      return absl::InvalidArgumentError(
          "a gang needs a job id: a number that is not negative, or a text that is not empty");
    const auto fault = [&](const auto&... words) {
      return absl::InvalidArgumentError(absl::StrCat(name(r.job), ": ", words...));
    };
    if (r.gang.groups.size() > gang_scheduler::max_tasks)
      return fault("the gang has ", r.gang.groups.size(), " task groups; the limit is ",
                   gang_scheduler::max_tasks);
    std::uint64_t tasks = 0;
    for (std::size_t m = 0; m < r.gang.groups.size(); ++m) {
      const constrained_task_group& group = r.gang.groups[m];
      tasks += group.tasks;
      if (group.shared() > 0)
        return fault("task group ", m, " asks for ", group.gpu_milli,
                     " thousandths of a GPU; only whole GPUs can be scheduled");
      if (group.models != any_model)
        return fault("task group ", m, " has GPU models; name them in the filter");
      if (group.gpus > gang_cluster::max_gpus)
        return fault("a task of task group ", m, " asks for ", group.gpus,
                     " GPUs; a node has at most ", gang_cluster::max_gpus);
      if (group.gpus == 0 && group.host == resources{})
        return fault("a task of task group ", m, " asks for no GPU, CPU or memory");
    }
    if (tasks == 0) return fault("the gang has no tasks");
    if (tasks > gang_scheduler::max_tasks)
      return fault("the gang has ", tasks, " tasks; the limit is ", gang_scheduler::max_tasks);
    const std::string wrong =
        has_short_slice(r.gang)
            ? with_whole_slices(r.gang, false).fault(0, state.layout().num_levels())
            : r.gang.fault(0, state.layout().num_levels());
    if (!wrong.empty()) return fault(wrong);
    if (const std::string* const unknown = runs ? nullptr : state.unknown_name(r.filter))
      return absl::NotFoundError(absl::StrCat(name(r.job), ": the filter names node \"", *unknown,
                                              "\", which does not exist"));
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status check(node_id n) const {
    if (state.has_node(n)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("there is no node ", n.value));
  }
  // Whether tasks match the request, and are on nodes and GPUs that exist. `usable` returns the
  // GPUs of a node that they may use.
  template <class Usable>
  [[nodiscard]] absl::Status check(const gang_scheduler::request& r,
                                   std::span<const placement> tasks, const Usable& usable) const {
    std::size_t t = 0;
    for (const constrained_task_group& group : r.gang.groups) {
      for (std::uint32_t i = 0; i < group.tasks; ++i, ++t) {
        if (t >= tasks.size() || !state.has_node(tasks[t].node) ||
            tasks[t].num_gpus() != group.gpus ||
            (tasks[t].gpu_mask & ~state.node(tasks[t].node.value).all_gpus()) != 0)
          return absl::InvalidArgumentError(absl::StrCat(
              name(r.job), ": task ", t, " has no placement on ", group.gpus, " GPUs of a node"));
      }
    }
    if (t != tasks.size())
      return absl::InvalidArgumentError(
          absl::StrCat(name(r.job), ": ", tasks.size(), " placements for ", t, " tasks"));
    std::uint64_t gpus = 0;
    for (const scheduled_gangs::on_node& o : scheduled_gangs::nodes_of(r.gang, tasks)) {
      gpus += static_cast<std::uint64_t>(std::popcount(o.mask));
      const std::uint32_t not_usable = o.mask & ~usable(state.node(o.node));
      if (not_usable != 0)
        return absl::FailedPreconditionError(
            absl::StrCat(name(r.job), ": GPU ", std::countr_zero(not_usable), " of node \"",
                         state.node(o.node).shape.name, "\" is in use"));
    }
    for (const placement& p : tasks) gpus -= p.num_gpus();
    if (gpus != 0)
      return absl::InvalidArgumentError(absl::StrCat(name(r.job), ": two tasks have one GPU"));
    return absl::OkStatus();
  }
  // Decides about a checked request.
  [[nodiscard]] gang_scheduler::plan decide(const gang_scheduler::request& r, time_ms now) {
    gang_scheduler::plan to;
    to.epoch_ = state.epoch();
    to.hash_ = state.hash();
    to.now_ = now;
    const std::uint32_t slot = state.slot_of(r.job);
    if (slot == scheduled_gangs::none) {
      to.request_ = r;
      if (!has_short_slice(r.gang)) {
        planner(state, to.request_, now, to);
      } else {
        gang_scheduler::request whole = r;
        whole.gang = with_whole_slices(r.gang);
        planner(state, whole, now, to);
      }
      return to;
    }
    const gang_scheduler::running_gang& gang = state.at(slot).record;
    to.request_ = gang.what;
    for (const scheduled_gangs::on_node& o : state.at(slot).nodes) {
      const used_node& n = state.node(o.node);
      if (!n.bad && (o.mask & ~n.healthy_gpus()) == 0) continue;
      to.reason = wait_reason::unhealthy;
      return to;
    }
    to.result = gang.victims.empty() ? plan_result::bind : plan_result::preempt;
    to.tasks = gang.tasks;
    to.victims.assign(gang.victims.begin(), gang.victims.end());
    to.level = gang.level;
    return to;
  }
};

}  // namespace detail

APIARY_INLINE gang_scheduler::gang_scheduler(
    std::unique_ptr<detail::gang_scheduler_core> core) noexcept
    : core_(std::move(core)) {}
APIARY_INLINE gang_scheduler::gang_scheduler(const gang_scheduler& other)
    : core_(std::make_unique<detail::gang_scheduler_core>(*other.core_)) {
  core_->state.end_trials();
  core_->trials = 0;
  core_->undo.clear();
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
  std::sort(slots.begin(), slots.end());
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
  APIARY_ASSIGN_OR_RETURN(e.plan, propose(gang, now));
  detail::scheduled_gangs& state = core_->state;
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
    const std::vector<resources>& hosts = never ? view.whole_hosts : view.hosts;
    if (e.plan.reason != wait_reason::unhealthy) {
      const level_t level = (std::min)(r.gang.required, state.layout().num_levels());
      infeasibility_proof proof =
          planner.prove(capacities, r.gang, hosts, detail::unused_cells(state.layout(), level));
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
        std::sort(e.nodes_to_free.begin(), e.nodes_to_free.end());
        e.gpus_to_free = remedy.gpus;
      }
    }
  }
  const detail::plan_text text(state, r);
  detail::tainted_nodes tainted;
  if (e.proof || accepts_none) tainted = text.not_tolerated();
  if (!tainted.ids.empty()) {
    // A copy of the view with these nodes. A filter that tolerates them would replace the view of another.
    const detail::node_view& view = state.view(r.filter);
    capacity_index<ragged_tree> free = view.free;
    std::vector<resources> hosts = view.hosts;
    for (const std::uint32_t id : tainted.ids) {
      const detail::used_node& n = state.node(id);
      free.set(n.position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));
      hosts[n.position] = n.free_host();
    }
    tainted.enough = planner.fit(free, r.gang, hosts).verdict == fit_verdict::fits;
  }
  e.text = text(e, accepts_none, tainted);
  if (e.proof) detail::leave_out_unused_cells(state.layout(), *e.proof);
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

APIARY_NAMESPACE_END

#include <apiary/gang_scheduler/detail/cluster_changes_inl.h>
#include <apiary/gang_scheduler/detail/replacement_inl.h>
