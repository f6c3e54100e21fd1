// apiary/gang_scheduler/detail/gang_explanation.h - sentences about plans, for people.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/cluster_nodes.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/named_cells.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>
#include <apiary/topology/cell_names.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The tasks of a gang that need least: whether an idle node can hold one of them does not take a
// look at every task group. Cost: O(groups * log) to make it; holds O(GPUs of the node * log
// groups).
class smallest_tasks {
 public:
  explicit smallest_tasks(const topology_constraints& gang) {
    for (const constrained_task_group& m : gang.groups)
      if (m.tasks > 0 && m.gpus < needs_.size()) needs_[m.gpus].push_back(m.host);
    for (lean_vector<resources>& of : needs_) {
      merge_sort(of, [](const resources& a, const resources& b) {
        return a.cpu_milli != b.cpu_milli ? a.cpu_milli < b.cpu_milli : a.memory_mib < b.memory_mib;
      });
      std::size_t kept = 0;  // a task that needs more of both than another one is left out
      for (const resources& host : of)
        if (kept == 0 || host.memory_mib < of[kept - 1].memory_mib) of[kept++] = host;
      of.resize(kept);
    }
  }
  // Whether the node can hold a task of the gang when it is idle.
  [[nodiscard]] bool holds(const gang_cluster::node& n) const {
    for (std::size_t gpus = 0; gpus <= n.gpus; ++gpus) {
      const auto after = std::upper_bound(
          needs_[gpus].begin(), needs_[gpus].end(), n.host.cpu_milli,
          [](std::uint32_t cpu, const resources& host) { return cpu < host.cpu_milli; });
      if (after != needs_[gpus].begin() && (after - 1)->memory_mib <= n.host.memory_mib)
        return true;
    }
    return false;
  }
  // The tasks that holds() searches among.
  [[nodiscard]] std::size_t size() const {
    std::size_t sum = 0;
    for (const lean_vector<resources>& of : needs_) sum += of.size();
    return sum;
  }

 private:
  // By GPUs of a task: CPU ascending, memory descending.
  std::array<lean_vector<resources>, gang_cluster::max_gpus + 1> needs_{};
};

// Nodes on which a gang may not run, only because of their taints.
struct tainted_nodes {
  std::vector<std::uint32_t> ids{};   // ascending
  std::vector<std::string> taints{};  // that the gang does not tolerate, ascending
  bool enough = false;                // it would start now if it tolerated them
};

// Puts a plan into words: names of nodes and cells, counts of tasks and GPUs.
class plan_text {
 public:
  plan_text(const scheduled_gangs& state, const gang_scheduler_types::request& r)
      : state_(state), r_(r) {}

  // The key of a job; a text of digits in quotes: it is another key than the number.
  [[nodiscard]] static std::string name(const job_key& job) {
    const std::string text = job.text();
    const bool quotes = job.is_text() && std::all_of(text.begin(), text.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    return quotes ? '"' + text + '"' : text;
  }
  // The sentence for an explanation whose other fields are set.
  // `accepts_none`: the filter accepts no node of the cluster. `tainted`: not_tolerated(), or none.
  [[nodiscard]] std::string operator()(const gang_scheduler_types::explanation& e,
                                       bool accepts_none, const tainted_nodes& tainted = {}) {
    const gang_scheduler_types::plan& plan = e.plan;
    text_ << "job " << name(r_.job);
    if (plan.result != plan_result::wait) {
      text_ << (plan.result == plan_result::bind ? " can start now on " : " can start on ");
      where(plan);
      if (plan.result == plan_result::preempt) victims(plan);
      return std::move(text_.text);
    }
    const auto why = [&] {
      if (!accepts_none && !e.proof) return;
      text_ << ": ";
      if (accepts_none) return filter_fault(tainted);
      reason_of(*e.proof, e.blocking, tainted);
    };
    switch (plan.reason) {
      case wait_reason::never:
        text_ << " can never start in this cluster, even if it is idle";
        why();
        break;
      case wait_reason::unhealthy:
        text_ << " waits: too many nodes or GPUs are bad";
        bad_hardware(e);
        remedy(e);
        break;
      case wait_reason::undecided:
        text_ << " waits: it is not known whether it fits, because the search reached its step "
                 "budget";
        break;
      default:
        text_ << " waits";
        why();
        remedy(e);
        if (plan.reason == wait_reason::not_suggested)
          text_ << "; without the list of nodes it would start now";
    }
    return std::move(text_.text);
  }

  // The nodes on which the gang may run but for their taints, if one of its tasks fits there when
  // they are idle. Cost: O(nodes * log (names + task groups) + task groups * log).
  [[nodiscard]] tainted_nodes not_tolerated() const {
    tainted_nodes found;
    const std::vector<std::string> names = node_view::sorted_names(r_.filter);
    const smallest_tasks tasks(r_.gang);
    for (std::uint32_t id = 0; id < state_.nodes().num_ids(); ++id) {
      const gang_cluster::node& shape = state_.node(id).shape;
      if (!state_.node(id).present || node_view::tolerates(r_.filter, shape.taints) ||
          !node_view::accepts_but_taints(r_.filter, names, shape) || !tasks.holds(shape))
        continue;
      found.ids.push_back(id);
      for (const std::string& taint : shape.taints)
        if (!node_view::has(r_.filter.tolerations, taint) && !node_view::has(found.taints, taint))
          found.taints.push_back(taint);
    }
    merge_sort(found.taints);
    return found;
  }

  // The sentence for an explanation of propose_replacement().
  [[nodiscard]] std::string of_replacement(const gang_scheduler_types::explanation& e,
                                           const gang_scheduler_types::running_gang& gang) {
    const gang_scheduler_types::plan& plan = e.plan;
    std::vector<std::uint32_t> from;
    for (const std::uint32_t t : plan.replaced) from.push_back(gang.tasks[t].node.value);
    const bool undecided =
        plan.result != plan_result::bind && plan.reason == wait_reason::undecided;
    text_ << (undecided ? "it is not known whether job " : "job ") << name(r_.job)
          << (plan.result == plan_result::bind || undecided ? " can move " : " cannot move ");
    count(plan.replaced.size(), "task");
    text_ << " from ";
    nodes(from);
    if (undecided) {
      text_ << ", because the search reached its step budget";
      return std::move(text_.text);
    }
    if (plan.result == plan_result::bind) {
      std::vector<std::uint32_t> to;
      for (const placement& p : plan.tasks) to.push_back(p.node.value);
      text_ << " to ";
      nodes(to);
    }
    text_ << " now";
    if (plan.result == plan_result::bind) return std::move(text_.text);
    const cluster_layout& layout = state_.layout();
    const level_t l = r_.gang.required;
    if (l > 0 && l < layout.num_levels() && plan.replaced.size() < gang.tasks.size()) {
      std::size_t stays = 0;  // the first task that does
      while (stays < plan.replaced.size() && plan.replaced[stays] == stays) ++stays;
      text_ << ": its other tasks are in " << layout.level_name(l) << " "
            << state_.node(gang.tasks[stays].node.value).shape.cells[l - 1]
            << ", and it must stay in one " << layout.level_name(l);
    }
    text_ << "; it could if ";
    if (plan.reason == wait_reason::unhealthy) {
      nodes(from);
      text_ << " were healthy again";
    } else {
      std::vector<std::uint32_t> to_free;
      for (const node_id n : e.nodes_to_free) to_free.push_back(n.value);
      nodes(to_free);
      text_ << " were free";
      gpus_to_free(e);
    }
    return std::move(text_.text);
  }

 private:
  // " when job a has been preempted"
  void victims(const gang_scheduler_types::plan& plan) {
    std::vector<std::string> names;
    for (const job_key& v : plan.victims) names.push_back(name(v));
    text_ << " when ";
    counted_list("job", names);
    text_ << (names.size() == 1 ? " has" : " have") << " been preempted";
    if (plan.cost == plan.lower_bound && state_.slot_of(r_.job) == scheduled_gangs::none)
      text_ << "; no other choice costs less";
  }
  // ": in rack r2, 1 of 4 nodes is bad, and 2 GPUs of the others", of the nodes that it may run on.
  // It names the cell of the nodes to repair if the gang must be in one cell.
  void bad_hardware(const gang_scheduler_types::explanation& e) {
    const cluster_layout& layout = state_.layout();
    const level_t l = r_.gang.required;
    const bool in_cell = l < layout.num_levels();
    if (in_cell && (l == 0 || e.nodes_to_free.empty())) return;
    const std::string* const cell =
        in_cell ? &state_.node(e.nodes_to_free[0].value).shape.cells[l - 1] : nullptr;
    std::uint64_t all = 0;
    std::uint64_t bad = 0;
    std::uint64_t gpus = 0;  // bad ones on other nodes
    const std::vector<std::string> names = node_view::sorted_names(r_.filter);
    for (std::uint32_t id = 0; id < state_.nodes().num_ids(); ++id) {
      const used_node& n = state_.node(id);
      if (!n.present || (in_cell && n.shape.cells[l - 1] != *cell) ||
          !node_view::tolerates(r_.filter, n.shape.taints) ||
          !node_view::accepts_but_taints(r_.filter, names, n.shape))
        continue;
      ++all;
      if (n.bad) ++bad;
      if (!n.bad) gpus += static_cast<std::uint64_t>(std::popcount(n.bad_gpus & n.all_gpus()));
    }
    if (bad == 0 && gpus == 0) return;
    text_ << ": ";
    if (in_cell) text_ << "in " << layout.level_name(l) << " " << *cell << ", ";
    if (bad == 0) count(gpus, "GPU");
    if (bad > 0) text_ << bad;
    text_ << " of ";
    count(all, "node");
    text_ << ((bad == 0 ? gpus : bad) == 1 ? " is bad" : " are bad");
    if (bad == 0 || gpus == 0) return;
    text_ << ", and ";
    count(gpus, "GPU");
    text_ << " of the others";
  }
  void count(std::uint64_t n, const char* what) {
    text_ << n << " " << what << (n == 1 ? "" : "s");
  }
  // "node n1", "nodes n1 and n2"; more than eight names are counted.
  void counted_list(const char* what, const std::vector<std::string>& names) {
    text_ << what << (names.size() == 1 ? " " : "s ");
    const std::size_t shown = names.size() <= 8 ? names.size() : 7;
    word_list words(text_);
    for (std::size_t i = 0; i < shown; ++i) words.next() << names[i];
    if (shown == names.size()) {
      words.end();
    } else {
      text_ << " and " << names.size() - shown << " more";
    }
  }
  void nodes(std::vector<std::uint32_t> ids) {
    merge_sort(ids, [&](std::uint32_t a, std::uint32_t b) {
      return state_.node(a).position < state_.node(b).position;
    });
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<std::string> names;
    for (const std::uint32_t n : ids) names.push_back(state_.node(n).shape.name);
    counted_list("node", names);
  }
  // "nodes n1 and n2 in rack r1"
  void where(const gang_scheduler_types::plan& plan) {
    std::vector<std::uint32_t> ids;
    for (const placement& p : plan.tasks) ids.push_back(p.node.value);
    nodes(ids);
    const cluster_layout& layout = state_.layout();
    if (plan.level > 0 && plan.level < layout.num_levels())
      text_ << " in " << layout.level_name(plan.level) << " "
            << state_.node(ids[0]).shape.cells[plan.level - 1];
  }
  // Whether a node meets the condition.
  template <class Condition>
  [[nodiscard]] bool any_node(const Condition& meets) const {
    for (std::uint32_t n = 0; n < state_.nodes().num_ids(); ++n)
      if (state_.node(n).present && meets(state_.node(n).shape)) return true;
    return false;
  }
  // `no node has label "zone=z"`. Requires: the filter accepts no node.
  void filter_fault(const tainted_nodes& others) {
    const node_filter& filter = r_.filter;
    if (state_.nodes().num_nodes() == 0) {
      text_ << "the cluster has no nodes";
      return;
    }
    for (const std::string& label : filter.labels) {
      if (any_node([&](const auto& n) { return node_view::has_label(n, label); })) continue;
      text_ << "no node has label \"" << label << "\"";
      return;
    }
    if (!filter.models.empty() &&
        !any_node([&](const auto& n) { return node_view::has(filter.models, n.model); })) {
      text_ << "no node has GPU model " << one_of(filter.models, " or ");
      return;
    }
    const bool tainted =
        any_node([&](const auto& n) { return !node_view::tolerates(filter, n.taints); });
    text_ << "it may run only on " << filter.text() << (tainted ? without_taints() : "")
          << "; there are none";
    not_tolerated(others);
  }
  // "the gang needs 4 free nodes of 8 GPUs in one rack; rack r2 has the most: 3"
  void reason_of(const infeasibility_proof& why, std::span<const blocking_resource> blocking,
                 const tainted_nodes& others) {
    const bool wants_gpus = std::any_of(r_.gang.groups.begin(), r_.gang.groups.end(),
                                        [](const auto& group) { return group.gpus > 0; });
    if (wants_gpus && !state_.nodes().has_gpus()) {
      text_ << "the cluster has no GPUs";
      return;
    }
    const cluster_layout& layout = state_.layout();
    const auto name = [&](level_t l, std::uint32_t position) -> std::string {
      if (l > 0) return std::string(state_.nodes().cell_name(l, position));
      const std::uint32_t node = layout.node_at(position);
      return node == cluster_layout::none ? "" : state_.node(node).shape.name;
    };
    const cell_names names({layout.level_names().begin(), layout.level_names().end()}, name);
    text_ << why.text(r_.gang, names, blocking);
    if (others.ids.empty() && r_.filter == node_filter{}) return;
    text_ << "; it may run only on " << r_.filter.text()
          << (others.ids.empty() ? "" : without_taints());
    not_tolerated(others);
  }
  [[nodiscard]] const char* without_taints() const {
    return r_.filter.tolerations.empty() ? " without taints" : " without other taints";
  }
  // `: 4 idle nodes of 8 GPUs have the taint "maint", which it does not tolerate`
  void not_tolerated(const tainted_nodes& others) {
    if (others.ids.empty()) return;
    const std::size_t found = others.ids.size();
    std::uint64_t idle = 0;
    std::uint64_t gpus = 0;
    bool equal = true;
    for (const std::uint32_t id : others.ids) {
      const used_node& n = state_.node(id);
      equal = equal && n.shape.gpus == state_.node(others.ids[0]).shape.gpus;
      gpus += n.shape.gpus;
      if (n.gangs.empty() && n.healthy_gpus() == n.all_gpus() && !n.bad) ++idle;
    }
    text_ << ": ";
    count(found, idle == found ? "idle node" : "node");
    if (idle > 0 && idle < found) text_ << " (" << idle << " idle)";
    if (gpus > 0) {
      text_ << (equal ? " of " : " with ");
      count(gpus / (equal ? found : 1), "GPU");
    }
    text_ << (found == 1 ? " has the " : " have the ");
    std::vector<std::string> quoted;
    for (const std::string& taint : others.taints) quoted.push_back('"' + taint + '"');
    counted_list("taint", quoted);
    text_ << ", which it does not tolerate";
    if (others.enough)
      text_ << "; if it tolerated " << (quoted.size() == 1 ? "this taint" : "these taints")
            << ", it would start now";
  }
  // "; it would fit if nodes n3 and n5 were free (12 more GPUs)"
  void remedy(const gang_scheduler_types::explanation& e) {
    std::vector<std::uint32_t> to_free;
    std::vector<std::uint32_t> to_repair;
    for (const node_id n : e.nodes_to_free)
      (state_.node(n.value).bad || state_.node(n.value).bad_gpus != 0 ? to_repair : to_free)
          .push_back(n.value);
    if (e.nodes_to_free.empty()) return;
    text_ << "; it would fit if ";
    if (!to_free.empty()) {
      nodes(to_free);
      text_ << " were free";
    }
    if (!to_repair.empty()) {
      text_ << (to_free.empty() ? "" : " and ");
      nodes(to_repair);
      text_ << " were healthy and free";
    }
    gpus_to_free(e);
  }
  // " (12 more GPUs)"
  void gpus_to_free(const gang_scheduler_types::explanation& e) {
    text_ << " (";
    if (e.gpus_to_free > 0) {
      count(e.gpus_to_free, "more GPU");
    } else {
      text_ << "the GPUs are free, but CPU or memory is not";
    }
    text_ << ")";
  }

  const scheduled_gangs& state_;
  const gang_scheduler_types::request& r_;
  growing_text text_;
};

}  // namespace detail
APIARY_NAMESPACE_END
