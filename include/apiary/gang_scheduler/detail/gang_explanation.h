// apiary/gang_scheduler/detail/gang_explanation.h - sentences about plans, for people.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/cluster_nodes.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>
#include <apiary/topology/cell_names.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
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
    for (std::vector<resources>& of : needs_) {
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
    for (const std::vector<resources>& of : needs_) sum += of.size();
    return sum;
  }

 private:
  // By GPUs of a task: CPU ascending, memory descending.
  std::array<std::vector<resources>, gang_cluster::max_gpus + 1> needs_{};
};

// Which nodes a filter accepts if taints do not count. Cost: O(names * log) to make it.
class filter_but_taints {
 public:
  // The filter must outlive this object.
  explicit filter_but_taints(const node_filter& filter)
      : filter_(filter), names_(filter.nodes.names().begin(), filter.nodes.names().end()) {
    merge_sort(names_);
  }
  [[nodiscard]] bool accepts(const gang_cluster::node& n) const {
    return std::all_of(filter_.labels.begin(), filter_.labels.end(),
                       [&](const auto& label) { return node_view::has_label(n, label); }) &&
           (filter_.models.empty() || node_view::has(filter_.models, n.model)) &&
           (names_.empty() || std::binary_search(names_.begin(), names_.end(), n.name));
  }

 private:
  const node_filter& filter_;
  std::vector<std::string_view> names_;  // ascending
};

// Nodes on which a gang may not run, only because of their taints.
struct tainted_nodes {
  std::vector<std::uint32_t> ids{};  // ascending
  std::set<std::string> taints{};    // that the gang does not tolerate
  bool enough = false;               // it would start now if it tolerated them
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
    return quotes ? absl::StrCat("\"", text, "\"") : text;
  }
  // The sentence for an explanation whose other fields are set.
  // `accepts_none`: the filter accepts no node of the cluster. `tainted`: not_tolerated(), or none.
  [[nodiscard]] std::string operator()(const gang_scheduler_types::explanation& e,
                                       bool accepts_none, const tainted_nodes& tainted = {}) const {
    const std::string job = absl::StrCat("job ", name(r_.job));
    const gang_scheduler_types::plan& plan = e.plan;
    switch (plan.result) {
      case plan_result::bind:
        return absl::StrCat(job, " can start now on ", where(plan));
      case plan_result::preempt: {
        const bool reserved = state_.slot_of(r_.job) != scheduled_gangs::none;
        std::vector<std::string> victims;
        for (const job_key& v : plan.victims) victims.push_back(name(v));
        return absl::StrCat(
            job, " can start on ", where(plan), " when ", counted_list("job", victims),
            victims.size() == 1 ? " has" : " have", " been preempted",
            plan.cost == plan.lower_bound && !reserved ? "; no other choice costs less" : "");
      }
      case plan_result::wait:
        break;
    }
    const std::string remedy = remedy_of(e);
    const std::string why = accepts_none ? filter_fault(tainted)
                            : e.proof    ? reason_of(*e.proof, e.blocking, tainted)
                                         : "";
    switch (plan.reason) {
      case wait_reason::never:
        return absl::StrCat(job, " can never start in this cluster, even if it is idle",
                            why.empty() ? "" : ": ", why);
      case wait_reason::unhealthy:
        return absl::StrCat(job, " waits: too many nodes or GPUs are bad", bad_hardware(e), remedy);
      case wait_reason::undecided:
        return absl::StrCat(job,
                            " waits: it is not known whether it fits, because the search "
                            "reached its step budget");
      default:
        return absl::StrCat(job, " waits", why.empty() ? "" : ": ", why, remedy,
                            plan.reason == wait_reason::not_suggested
                                ? "; without the list of nodes it would start now"
                                : "");
    }
  }

  // The nodes on which the gang may run but for their taints, if one of its tasks fits there when
  // they are idle. Cost: O(nodes * log (names + task groups) + task groups * log).
  [[nodiscard]] tainted_nodes not_tolerated() const {
    tainted_nodes found;
    const filter_but_taints filter(r_.filter);
    const smallest_tasks tasks(r_.gang);
    for (std::uint32_t id = 0; id < state_.nodes().num_ids(); ++id) {
      const gang_cluster::node& shape = state_.node(id).shape;
      if (!state_.node(id).present || node_view::tolerates(r_.filter, shape.taints) ||
          !filter.accepts(shape) || !tasks.holds(shape))
        continue;
      found.ids.push_back(id);
      for (const std::string& taint : shape.taints)
        if (!node_view::has(r_.filter.tolerations, taint)) found.taints.insert(taint);
    }
    return found;
  }

  // The sentence for an explanation of propose_replacement().
  [[nodiscard]] std::string of_replacement(const gang_scheduler_types::explanation& e,
                                           const gang_scheduler_types::running_gang& gang) const {
    const gang_scheduler_types::plan& plan = e.plan;
    std::vector<std::uint32_t> from;
    for (const std::uint32_t t : plan.replaced) from.push_back(gang.tasks[t].node.value);
    const std::string job = absl::StrCat("job ", name(r_.job));
    const std::string tasks =
        absl::StrCat(count(plan.replaced.size(), "task"), " from ", nodes(from));
    if (plan.result == plan_result::bind) {
      std::vector<std::uint32_t> to;
      for (const placement& p : plan.tasks) to.push_back(p.node.value);
      return absl::StrCat(job, " can move ", tasks, " to ", nodes(to), " now");
    }
    if (plan.reason == wait_reason::undecided)
      return absl::StrCat("it is not known whether ", job, " can move ", tasks,
                          ", because the search reached its step budget");
    std::string text = absl::StrCat(job, " cannot move ", tasks, " now");
    const cluster_layout& layout = state_.layout();
    const level_t l = r_.gang.required;
    if (l > 0 && l < layout.num_levels() && plan.replaced.size() < gang.tasks.size()) {
      std::size_t stays = 0;  // the first task that does
      while (stays < plan.replaced.size() && plan.replaced[stays] == stays) ++stays;
      absl::StrAppend(&text, ": its other tasks are in ", std::string(layout.level_name(l)), " ",
                      state_.node(gang.tasks[stays].node.value).shape.cells[l - 1],
                      ", and it must stay in one ", std::string(layout.level_name(l)));
    }
    if (plan.reason == wait_reason::unhealthy)
      return absl::StrCat(text, "; it could if ", nodes(from), " were healthy again");
    std::vector<std::uint32_t> to_free;
    for (const node_id n : e.nodes_to_free) to_free.push_back(n.value);
    return absl::StrCat(text, "; it could if ", nodes(to_free), " were free (",
                        e.gpus_to_free == 0 ? "the GPUs are free, but CPU or memory is not"
                                            : count(e.gpus_to_free, "more GPU"),
                        ")");
  }

 private:
  // ": in rack r2, 1 of 4 nodes is bad, and 2 GPUs of the others", of the nodes that it may run on.
  // It names the cell of the nodes to repair if the gang must be in one cell.
  [[nodiscard]] std::string bad_hardware(const gang_scheduler_types::explanation& e) const {
    const cluster_layout& layout = state_.layout();
    const level_t l = r_.gang.required;
    const bool in_cell = l < layout.num_levels();
    if (in_cell && (l == 0 || e.nodes_to_free.empty())) return "";
    const std::string* const cell =
        in_cell ? &state_.node(e.nodes_to_free[0].value).shape.cells[l - 1] : nullptr;
    std::uint64_t all = 0;
    std::uint64_t bad = 0;
    std::uint64_t gpus = 0;  // bad ones on other nodes
    const filter_but_taints filter(r_.filter);
    for (std::uint32_t id = 0; id < state_.nodes().num_ids(); ++id) {
      const used_node& n = state_.node(id);
      if (!n.present || (in_cell && n.shape.cells[l - 1] != *cell) ||
          !node_view::tolerates(r_.filter, n.shape.taints) || !filter.accepts(n.shape))
        continue;
      ++all;
      if (n.bad) ++bad;
      if (!n.bad) gpus += static_cast<std::uint64_t>(std::popcount(n.bad_gpus & n.all_gpus()));
    }
    if (bad == 0 && gpus == 0) return "";
    const std::string where =
        in_cell ? absl::StrCat(": in ", std::string(layout.level_name(l)), " ", *cell, ", ")
                : std::string(": ");
    if (bad == 0)
      return absl::StrCat(where, count(gpus, "GPU"), " of ", count(all, "node"),
                          gpus == 1 ? " is bad" : " are bad");
    return absl::StrCat(
        where, bad, " of ", count(all, "node"), bad == 1 ? " is bad" : " are bad",
        gpus == 0 ? "" : absl::StrCat(", and ", count(gpus, "GPU"), " of the others"));
  }
  [[nodiscard]] static std::string count(std::uint64_t n, const char* what) {
    return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
  }
  // "node n1", "nodes n1 and n2"; more than eight names are counted.
  [[nodiscard]] static std::string counted_list(const char* what,
                                                const std::vector<std::string>& names) {
    if (names.size() <= 8)
      return absl::StrCat(what, names.size() == 1 ? " " : "s ", listing(names));
    const std::vector<std::string> first(names.begin(), names.begin() + 7);
    std::string text = absl::StrCat(what, "s ", first[0]);
    for (std::size_t i = 1; i < first.size(); ++i) absl::StrAppend(&text, ", ", first[i]);
    return absl::StrCat(text, " and ", names.size() - 7, " more");
  }
  [[nodiscard]] std::string nodes(std::vector<std::uint32_t> ids) const {
    merge_sort(ids, [&](std::uint32_t a, std::uint32_t b) {
      return state_.node(a).position < state_.node(b).position;
    });
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<std::string> names;
    for (const std::uint32_t n : ids) names.push_back(state_.node(n).shape.name);
    return counted_list("node", names);
  }
  // "nodes n1 and n2 in rack r1"
  [[nodiscard]] std::string where(const gang_scheduler_types::plan& plan) const {
    std::vector<std::uint32_t> ids;
    for (const placement& p : plan.tasks) ids.push_back(p.node.value);
    const cluster_layout& layout = state_.layout();
    std::string text = nodes(ids);
    if (plan.level > 0 && plan.level < layout.num_levels())
      absl::StrAppend(&text, " in ", std::string(layout.level_name(plan.level)), " ",
                      state_.node(ids[0]).shape.cells[plan.level - 1]);
    return text;
  }
  // Whether a node meets the condition.
  template <class Condition>
  [[nodiscard]] bool any_node(const Condition& meets) const {
    for (std::uint32_t n = 0; n < state_.nodes().num_ids(); ++n)
      if (state_.node(n).present && meets(state_.node(n).shape)) return true;
    return false;
  }
  // `no node has label "zone=z"`. Requires: the filter accepts no node.
  [[nodiscard]] std::string filter_fault(const tainted_nodes& others) const {
    const node_filter& filter = r_.filter;
    if (state_.nodes().num_nodes() == 0) return "the cluster has no nodes";
    for (const std::string& label : filter.labels)
      if (!any_node([&](const auto& n) { return node_view::has_label(n, label); }))
        return absl::StrCat("no node has label \"", label, "\"");
    std::string models;
    for (const std::string& model : filter.models)
      absl::StrAppend(&models, models.empty() ? "\"" : " or \"", model, "\"");
    if (!models.empty() &&
        !any_node([&](const auto& n) { return node_view::has(filter.models, n.model); }))
      return absl::StrCat("no node has GPU model ", models);
    const bool tainted =
        any_node([&](const auto& n) { return !node_view::tolerates(filter, n.taints); });
    return absl::StrCat("it may run only on ", filter.text(), tainted ? without_taints() : "",
                        "; there are none", not_tolerated(others));
  }
  // "the gang needs 4 free nodes of 8 GPUs in one rack; rack r2 has the most: 3"
  [[nodiscard]] std::string reason_of(const infeasibility_proof& why,
                                      std::span<const blocking_resource> blocking,
                                      const tainted_nodes& others) const {
    const bool wants_gpus = std::any_of(r_.gang.groups.begin(), r_.gang.groups.end(),
                                        [](const auto& group) { return group.gpus > 0; });
    if (wants_gpus && !state_.nodes().has_gpus()) return "the cluster has no GPUs";
    const cluster_layout& layout = state_.layout();
    const auto name = [&](level_t l, std::uint32_t position) -> std::string {
      if (l > 0) return std::string(state_.nodes().cell_name(l, position));
      const std::uint32_t node = layout.node_at(position);
      return node == cluster_layout::none ? "" : state_.node(node).shape.name;
    };
    const cell_names names({layout.level_names().begin(), layout.level_names().end()}, name);
    const std::string text = why.text(r_.gang, names, blocking);
    if (others.ids.empty() && r_.filter == node_filter{}) return text;
    return absl::StrCat(text, "; it may run only on ", r_.filter.text(),
                        others.ids.empty() ? "" : without_taints(), not_tolerated(others));
  }
  [[nodiscard]] const char* without_taints() const {
    return r_.filter.tolerations.empty() ? " without taints" : " without other taints";
  }
  // `: 4 idle nodes of 8 GPUs have the taint "maint", which it does not tolerate`
  [[nodiscard]] std::string not_tolerated(const tainted_nodes& others) const {
    if (others.ids.empty()) return "";
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
    std::string text = count(found, idle == found ? "idle node" : "node");
    if (idle > 0 && idle < found) absl::StrAppend(&text, " (", idle, " idle)");
    if (gpus > 0)
      absl::StrAppend(&text, equal ? " of " : " with ", count(gpus / (equal ? found : 1), "GPU"));
    std::vector<std::string> quoted;
    for (const std::string& taint : others.taints)
      quoted.push_back(absl::StrCat("\"", taint, "\""));
    return absl::StrCat(": ", text, found == 1 ? " has the " : " have the ",
                        counted_list("taint", quoted), ", which it does not tolerate",
                        !others.enough ? ""
                        : quoted.size() == 1
                            ? "; if it tolerated this taint, it would start now"
                            : "; if it tolerated these taints, it would start now");
  }
  // "; it would fit if nodes n3 and n5 were free (12 more GPUs)"
  [[nodiscard]] std::string remedy_of(const gang_scheduler_types::explanation& e) const {
    std::vector<std::uint32_t> to_free;
    std::vector<std::uint32_t> to_repair;
    for (const node_id n : e.nodes_to_free)
      (state_.node(n.value).bad || state_.node(n.value).bad_gpus != 0 ? to_repair : to_free)
          .push_back(n.value);
    std::string text;
    if (!to_free.empty()) text = absl::StrCat("; it would fit if ", nodes(to_free), " were free");
    if (!to_repair.empty())
      absl::StrAppend(&text, text.empty() ? "; it would fit if " : " and ", nodes(to_repair),
                      " were healthy and free");
    if (!text.empty())
      absl::StrAppend(&text, " (",
                      e.gpus_to_free > 0 ? count(e.gpus_to_free, "more GPU")
                                         : "the GPUs are free, but CPU or memory is not",
                      ")");
    return text;
  }

  const scheduled_gangs& state_;
  const gang_scheduler_types::request& r_;
};

}  // namespace detail
APIARY_NAMESPACE_END
