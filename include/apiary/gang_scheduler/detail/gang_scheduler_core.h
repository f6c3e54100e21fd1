// apiary/gang_scheduler/detail/gang_scheduler_core.h - a gang scheduler, its state and checks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/cluster_nodes.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/gang_explanation.h>
#include <apiary/gang_scheduler/detail/gang_planner.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_planner.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Builds a second state from the nodes and the gangs, as after a restart, and compares what is
// kept.
class gang_audit {
 public:
  explicit gang_audit(const scheduled_gangs& state)
      : original_(state), state_(state), again_(description(state)) {
    state_.refresh();
  }

  [[nodiscard]] std::vector<std::string> operator()() {
    recover();
    if (found_.empty()) {
      compare_nodes();
      compare_gangs();
      compare_views();
    }
    return std::move(found_);
  }

 private:
  template <class... Words>
  void expect(bool holds, const Words&... words) {
    if (!holds) found_.push_back(absl::StrCat(words...));
  }
  // The nodes in the order of their ids.
  [[nodiscard]] static gang_cluster description(const scheduled_gangs& state) {
    gang_cluster all;
    const auto levels = state.layout().level_names().subspan(1);
    all.levels.assign(levels.begin(), levels.end());
    for (std::uint32_t id = 0; id < state.nodes().num_ids(); ++id)
      if (state.node(id).present) all.nodes.push_back(state.node(id).shape);
    return all;
  }
  // Puts the gangs into the second state; only if no GPU is given out twice.
  void recover() {
    std::vector<std::uint32_t> taken[2];
    for (std::uint32_t id = 0; id < state_.nodes().num_ids(); ++id) {
      new_id_.push_back(static_cast<std::uint32_t>(ids_.size()));
      if (!state_.node(id).present) continue;
      ids_.push_back(id);
      again_.set_health(new_id_.back(), state_.node(id).bad, state_.node(id).bad_gpus);
    }
    for (std::vector<std::uint32_t>& of : taken) of.resize(ids_.size());
    for (const bool preempting : {false, true}) {
      for (std::uint32_t slot = 0; slot < state_.num_slots(); ++slot) {
        if (!state_.at(slot).alive || state_.at(slot).record.preempting != preempting) continue;
        gang_scheduler_types::running_gang gang = state_.at(slot).record;
        const std::string job = gang.what.job.text();
        expect(state_.slot_of(gang.what.job) == slot, "job ", job, " is not found");
        for (const job_key& v : gang.victims) {
          const std::uint32_t of = state_.slot_of(v);
          expect(preempting && of != scheduled_gangs::none &&
                     state_.at(of).record.ends_for == std::optional(gang.what.job),
                 "job ", job, " has a victim that does not end for it");
        }
        gang.ends_for.reset();
        gang.gpus = 0;
        for (placement& p : gang.tasks) {
          p.node = node_id(new_id_[p.node.value]);
          std::uint32_t& mask = taken[preempting ? 1 : 0][p.node.value];
          expect((mask & p.gpu_mask) == 0, "job ", job, " has GPUs of another gang");
          mask |= p.gpu_mask;
          gang.gpus += p.num_gpus();
        }
        if (found_.empty()) again_.insert(std::move(gang));
      }
    }
  }
  void compare_nodes() {
    const cluster_layout& layout = state_.layout();
    const cluster_nodes& nodes = state_.nodes();
    expect(nodes.num_nodes() == ids_.size(), ids_.size(), " nodes have ", nodes.num_nodes(),
           " names");
    expect(nodes.free_gpus() == again_.nodes().free_gpus(), again_.nodes().free_gpus(),
           " GPUs are free, not ", nodes.free_gpus());
    std::vector<std::uint32_t> bad;
    for (const std::uint32_t i : again_.nodes().bad_nodes()) bad.push_back(ids_[i]);
    expect(nodes.bad_nodes() == bad, "other nodes are listed as bad");
    for (std::uint32_t i = 0; i < ids_.size(); ++i) {
      const std::uint32_t id = ids_[i];
      const used_node& n = state_.node(id);
      const used_node& a = again_.node(i);
      expect(n.used == a.used && n.reserved == a.reserved && n.cpu_milli == a.cpu_milli &&
                 n.memory_mib == a.memory_mib && n.gangs.size() == a.gangs.size(),
             "node ", id, " has other gangs");
      expect((n.used & ~n.all_gpus()) == 0, "node ", id, " has gangs on GPUs that do not exist");
      expect(n.counted == a.counted, "node ", id, " has other free GPUs");
      expect(nodes.find_node(n.shape.name) == std::optional(id), "node ", id, " has no name");
      expect(layout.node_at(n.position) == id, "node ", id, " is not at its position");
      std::uint32_t c = n.position;
      for (level_t l = 1; l < layout.num_levels(); ++l) {
        c = layout.tree().index(layout.tree().parent(layout.tree().at(l - 1, c), l - 1), l);
        expect(nodes.cell_name(l, c) == n.shape.cells[l - 1], "node ", id,
               " is in another cell of level ", l);
      }
      most_gpus_ = (std::max)(most_gpus_, n.shape.gpus);
    }
    std::vector<std::uint32_t> order = nodes.in_order();
    expect(std::ranges::equal(order, layout.order().first(order.size())), "nodes are out of order");
    for (std::uint32_t& id : order) id = new_id_[id];
    expect(order == again_.nodes().in_order(), "nodes are in another order after a restart");
    expect(nodes.next_id() == nodes.num_ids() || !state_.node(nodes.next_id()).present,
           "the next id is not free");
  }
  void compare_gangs() {
    expect(state_.num_gangs() == again_.num_gangs(), again_.num_gangs(), " gangs are found as ",
           state_.num_gangs());
    for (std::uint32_t slot = 0; slot < state_.num_slots() && found_.empty(); ++slot) {
      const scheduled_gangs::entry& e = state_.at(slot);
      expect(e.alive == state_.brief_of(slot).alive, "slot ", slot, " has a gang, or has none");
      if (!e.alive) continue;
      const std::uint32_t other = again_.slot_of(e.record.what.job);
      const scheduled_gangs::entry& a = again_.at(other);
      const std::string job = e.record.what.job.text();
      expect(e.record.victims == a.record.victims && e.record.ends_for == a.record.ends_for, "job ",
             job, " ends for another gang, or other gangs for it");
      expect(e.record.gpus == a.record.gpus && e.nodes.size() == a.nodes.size(), "job ", job,
             " has other nodes");
      expect(e.hash == a.hash, "job ", job, " has the hash of another gang");
      expect(state_.brief_of(slot) == again_.brief_of(other), "job ", job,
             " has another cost as a victim");
    }
    const auto order = state_.in_order();
    expect(order.size() == state_.num_gangs() && state_.is_sorted(order), "gangs are out of order");
    expect(state_.hash() == again_.hash(), "the hash of the state is another one");
    expect(state_.classes() == again_.classes(), "the candidates by priority are others");
    scheduled_gangs listed = state_;
    listed.forget_cells();
    for (level_t l = 1; l < state_.layout().num_levels(); ++l)
      expect(state_.in_cells(l) == listed.in_cells(l), "a cell of level ", l,
             " has other candidates");
  }
  void compare_views() {
    for (const std::unique_ptr<node_view>& kept : original_.nodes().views()) {
      node_view v = *kept;
      if (!original_.nodes().take_over(v)) continue;
      node_view fresh(v.filter, state_.layout().tree(), most_gpus_);
      for (const std::uint32_t id : ids_) {
        const used_node& n = state_.node(id);
        if (!fresh.accepts(n.shape)) continue;
        ++fresh.num_members;
        fresh.members[n.position] = 1;
        fresh.free.set(n.position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));
        fresh.whole.set(n.position, n.shape.gpus);
        fresh.hosts[n.position] = n.free_host();
        fresh.whole_hosts[n.position] = n.shape.host;
      }
      expect(v.members == fresh.members && v.num_members == fresh.num_members &&
                 v.hosts == fresh.hosts && v.whole_hosts == fresh.whole_hosts &&
                 same(v.free, fresh.free) && same(v.whole, fresh.whole),
             "the index of a filter for ", v.filter.text(), " differs");
    }
  }
  [[nodiscard]] static bool same(const capacity_index<ragged_tree>& a,
                                 const capacity_index<ragged_tree>& b) {
    if (a.max_free() != b.max_free() || !std::ranges::equal(a.free(), b.free())) return false;
    for (level_t l = 1; l <= a.top(); ++l) {
      for (std::uint32_t c = 0; c < a.num_cells(l); ++c)
        if (!std::ranges::equal(a.histogram(l, c), b.histogram(l, c))) return false;
      for (std::uint32_t t = 1; t <= a.max_free(); ++t)
        if (!std::ranges::equal(a.slots(l, t), b.slots(l, t))) return false;
    }
    return true;
  }

  const scheduled_gangs& original_;
  scheduled_gangs state_;              // a copy, ready for a decision
  scheduled_gangs again_;              // its ids are the indices of ids_
  std::vector<std::uint32_t> ids_;     // of the nodes, ascending
  std::vector<std::uint32_t> new_id_;  // by id
  std::uint32_t most_gpus_ = 1;
  std::vector<std::string> found_;
};

// Whether a group of the gang has slices that do not divide its tasks.
[[nodiscard]] inline bool has_short_slice(const topology_constraints& gang) noexcept {
  return std::any_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
    return std::any_of(m.slices.begin(), m.slices.end(),
                       [&](const level_count& s) { return s.tasks > 0 && m.tasks % s.tasks != 0; });
  });
}

// The same gang with each such group divided into two: its whole slices, and the remaining tasks.
// The remaining tasks are one slice of the highest level on which the group has slices, and of each
// lower level whose slices are equally large. The tasks keep their order. Two kinds of groups stay
// as they are, and fault() refuses them: a group with anti-affinity, a leader or tasks that it
// leads, and a group whose remaining tasks have a short slice at a lower level. with_rests: if
// false, the remaining tasks are left out, so that the groups keep their indices.
[[nodiscard]] inline topology_constraints with_whole_slices(const topology_constraints& gang,
                                                            bool with_rests = true) {
  topology_constraints split = gang;
  split.groups.clear();
  std::vector<std::uint32_t> new_index;
  lean_vector<unsigned char> leads(gang.groups.size());
  for (const constrained_task_group& m : gang.groups)
    if (m.leader < leads.size()) leads[m.leader] = 1;
  for (std::uint32_t i = 0; i < gang.groups.size(); ++i) {
    const constrained_task_group& m = gang.groups[i];
    new_index.push_back(static_cast<std::uint32_t>(split.groups.size()));
    split.groups.push_back(m);
    level_count largest;
    for (const level_count& s : m.slices)
      if (s.tasks > largest.tasks) largest = s;
    const std::uint32_t rest = largest.tasks > 0 ? m.tasks % largest.tasks : 0;
    if (rest == 0 || !m.spread.empty() || m.leader != no_task_group || leads[i] != 0) continue;
    constrained_task_group last = m;
    last.tasks = rest;
    for (level_count& s : last.slices)
      if (s.tasks == largest.tasks) s.tasks = rest;
    topology_constraints alone;
    alone.groups = {last};
    if (has_short_slice(alone)) continue;
    split.groups.back().tasks -= rest;
    if (with_rests) split.groups.push_back(std::move(last));
  }
  for (constrained_task_group& m : split.groups)
    if (m.leader < new_index.size()) m.leader = new_index[m.leader];
  return split;
}

// What a call of what_if() has to set back, if its trial sets it.
struct trial_settings {
  std::optional<gang_scheduler_types::cost_function> cost{};
  std::optional<tenant_budgets> budgets{};
};

// The state of a scheduler, and the buffers of its searches.
class gang_scheduler_core {
 public:
  explicit gang_scheduler_core(const gang_cluster& cluster) : state(cluster) {}

  scheduled_gangs state;
  gang_planner planner;
  trial_settings* trial = nullptr;  // of the innermost call of what_if() that has not ended

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
  [[nodiscard]] absl::Status check(
      const gang_scheduler_types::request& r, std::span<const placement> tasks,
      absl::FunctionRef<std::uint32_t(const used_node&)> usable) const {
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
