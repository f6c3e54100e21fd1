// apiary/gang_scheduler/detail/gang_scheduler_core.h - the state of a gang scheduler, and the checks of its requests.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/gang_explanation.h>
#include <apiary/gang_scheduler/detail/gang_planner.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/short_slices.h>
#include <apiary/gang_scheduler/detail/victim_planner.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
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
  [[nodiscard]] absl::Status check(const gang_scheduler_types::request& r, bool runs = false) {
    if (!r.job.valid())
      return absl::InvalidArgumentError(
          "a gang needs a job id: a number that is not negative, or a text that is not empty");
    const auto fault = [&](const auto&... words) {
      return absl::InvalidArgumentError(absl::StrCat(name(r.job), ": ", words...));
    };
    if (r.gang.groups.size() > gang_scheduler_types::max_tasks)
      return fault("the gang has ", r.gang.groups.size(), " task groups; the limit is ",
                   gang_scheduler_types::max_tasks);
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
    if (tasks > gang_scheduler_types::max_tasks)
      return fault("the gang has ", tasks, " tasks; the limit is ",
                   gang_scheduler_types::max_tasks);
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
    if (state.nodes().has_node(n)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("there is no node ", n.value));
  }
  // Whether tasks match the request, and are on nodes and GPUs that exist. `usable` returns the
  // GPUs of a node that they may use.
  template <class Usable>
  [[nodiscard]] absl::Status check(const gang_scheduler_types::request& r,
                                   std::span<const placement> tasks, const Usable& usable) const {
    std::size_t t = 0;
    for (const constrained_task_group& group : r.gang.groups) {
      for (std::uint32_t i = 0; i < group.tasks; ++i, ++t) {
        if (t >= tasks.size() || !state.nodes().has_node(tasks[t].node) ||
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
  [[nodiscard]] gang_scheduler_types::plan decide(const gang_scheduler_types::request& r,
                                                  time_ms now) {
    gang_scheduler_types::plan to;
    to.epoch_ = state.epoch();
    to.hash_ = state.hash();
    to.now_ = now;
    const std::uint32_t slot = state.slot_of(r.job);
    if (slot == scheduled_gangs::none) {
      to.request_ = r;
      if (!has_short_slice(r.gang)) {
        planner(state, to.request_, now, to);
      } else {
        gang_scheduler_types::request whole = r;
        whole.gang = with_whole_slices(r.gang);
        planner(state, whole, now, to);
      }
      return to;
    }
    const gang_scheduler_types::running_gang& gang = state.at(slot).record;
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
  // Marks a node, or one of its GPUs, bad or healthy.
  [[nodiscard]] absl::Status set_health(node_id node, std::optional<std::uint32_t> gpu, bool bad) {
    APIARY_RETURN_IF_ERROR(check(node));
    const used_node& n = state.node(node.value);
    std::uint32_t bad_gpus = n.bad_gpus;
    if (gpu) {
      if (*gpu >= n.shape.gpus)
        return absl::NotFoundError(absl::StrCat("node \"", n.shape.name, "\" has ", n.shape.gpus,
                                                " GPUs, so no GPU ", *gpu));
      const std::uint32_t bit = std::uint32_t{1} << *gpu;
      bad_gpus = bad ? bad_gpus | bit : bad_gpus & ~bit;
    }
    state.set_health(node.value, gpu ? n.bad : bad, bad_gpus);
    state.next_epoch();
    return absl::OkStatus();
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
