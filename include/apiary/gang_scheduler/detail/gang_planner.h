// apiary/gang_scheduler/detail/gang_planner.h - decides about a gang: where it runs, its victims, why it waits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/cluster_excerpt.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_planner.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Decides about a gang. It changes the state only inside a call: node views are put back.
class gang_planner {
 public:
  using found = topology_fit<ragged_tree>::result;

  std::uint64_t budget = 100'000;
  victim_planner victims{};

  // Fills result, tasks, level, victims and reason of a plan. Requires: the request is checked.
  void operator()(scheduled_gangs& state, const gang_scheduler_types::request& r, time_ms now,
                  gang_scheduler_types::plan& to) {
    node_view& view = state.view(r.filter);
    const found now_free = fit(view.free, r.gang, view.hosts);
    if (now_free.verdict == fit_verdict::fits) {
      to.result = plan_result::bind;
      to.level = now_free.level;
      assign(state, r.gang, now_free.portions, to.tasks);
      return;
    }
    const bool refused = now_free.verdict == fit_verdict::does_not_fit || now_free.is_refused;
    const bool searches = state.has_candidate(r.priority);
    if (searches && preempt(state, view, r, refused, now, to)) return;
    to.reason = reason(state, view, r.gang, refused && !(searches && victims.budget_ended()));
    if (r.filter.nodes.empty()) return;
    node_filter without_list = r.filter;
    without_list.nodes = {};
    const node_view& others = state.view(without_list);
    if (fit(others.free, r.gang, others.hosts).verdict == fit_verdict::fits)
      to.reason = wait_reason::not_suggested;
  }
  // Whether CPU and memory count for the gang.
  [[nodiscard]] static bool hosted(const topology_constraints& gang) noexcept {
    return std::any_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
      return m.tasks > 0 && !(m.host == resources{});
    });
  }
  // Whether the gang fits, and where. CPU and memory are looked at only where the gang would run;
  // if they do not suffice there, on all nodes.
  found fit(const capacity_index<ragged_tree>& capacities, const topology_constraints& gang,
            std::span<const resources> hosts) {
    begin();
    const found without = fit_(capacities, gang);
    if (!hosted(gang) || without.verdict == fit_verdict::does_not_fit) return without;
    if (without.verdict == fit_verdict::fits && suffice(gang, without.portions, hosts))
      return without;
    return fit_(capacities, gang, hosts);
  }
  // The proof after fit() has answered does_not_fit, for the same arguments. `absent`: as in
  // topology_fit::explain.
  [[nodiscard]] infeasibility_proof prove(const capacity_index<ragged_tree>& capacities,
                                          const topology_constraints& gang,
                                          std::span<const resources> hosts,
                                          std::span<const std::uint32_t> absent) {
    begin();
    const std::span<const resources> counted = hosted(gang) ? hosts : std::span<const resources>();
    return fit_(capacities, gang, counted).verdict == fit_verdict::does_not_fit
               ? fit_.explain(capacities, gang, counted, absent)
               : infeasibility_proof{};
  }

  // Calls f while bad GPUs are not counted in the view's whole nodes. Cost: O(bad nodes), and f.
  template <class F>
  auto with_healthy_nodes(const scheduled_gangs& state, node_view& view, const F& f) {
    for (const std::uint32_t id : state.bad_nodes()) {
      const used_node& n = state.node(id);
      if (view.members[n.position] == 0) continue;
      view.whole.set(n.position, static_cast<std::uint32_t>(std::popcount(n.healthy_gpus())));
      if (n.bad) view.whole_hosts[n.position] = {};
    }
    const auto answer = f();
    for (const std::uint32_t id : state.bad_nodes()) {
      const used_node& n = state.node(id);
      if (view.members[n.position] != 0) view.update(n.position, &n);
    }
    return answer;
  }

 private:
  void begin() {
    if (of_budget_ == budget) return;
    of_budget_ = budget;
    fit_ = topology_fit<ragged_tree>(budget);
  }
  [[nodiscard]] bool suffice(const topology_constraints& gang,
                             std::span<const tasks_on_node> portions,
                             std::span<const resources> hosts) {
    struct sums {
      std::uint64_t cpu_milli = 0;
      std::uint64_t memory_mib = 0;
    };
    needs_.clear();
    for (const tasks_on_node& p : portions) {
      const resources& each = gang.groups[p.group].host;
      needs_.push_back({p.node, std::uint64_t{p.tasks} * each.cpu_milli,
                        std::uint64_t{p.tasks} * each.memory_mib});
    }
    const auto before = [](const need& a, const need& b) { return a.node < b.node; };
    if (!std::is_sorted(needs_.begin(), needs_.end(), before))
      std::sort(needs_.begin(), needs_.end(), before);
    sums all;
    for (std::size_t i = 0; i < needs_.size(); ++i) {
      if (i == 0 || needs_[i].node != needs_[i - 1].node) all = {};
      all.cpu_milli += needs_[i].cpu_milli;
      all.memory_mib += needs_[i].memory_mib;
      const resources& has = hosts[needs_[i].node];
      if (all.cpu_milli > has.cpu_milli || all.memory_mib > has.memory_mib) return false;
    }
    return true;
  }
  // GPUs for the tasks: free ones first, then those of victims (extra_), the lowest first.
  void assign(const scheduled_gangs& state, const topology_constraints& gang,
              std::span<const tasks_on_node> portions, std::vector<placement>& tasks) {
    taken_.resize(state.layout().num_positions());
    extra_.resize(state.layout().num_positions());
    for (const tasks_on_node& p : portions) {
      const std::uint32_t id = state.layout().node_at(p.node);
      const std::uint32_t free = state.node(id).free_gpus();
      for (std::uint32_t t = 0; t < p.tasks; ++t) {
        std::uint32_t mask = 0;
        for (std::uint32_t g = 0; g < gang.groups[p.group].gpus; ++g) {
          std::uint32_t left = free & ~taken_[p.node];
          if (left == 0) left = extra_[p.node] & ~taken_[p.node];
          APIARY_VERIFY(left != 0);
          mask |= left & (0 - left);
          taken_[p.node] |= left & (0 - left);
        }
        tasks.push_back({node_id(id), mask});
      }
    }
    for (const tasks_on_node& p : portions) taken_[p.node] = 0;
  }
  // Finds victims. False if there are none, or if the search does not know.
  bool preempt(scheduled_gangs& state, node_view& view, const gang_scheduler_types::request& r,
               bool refused, time_ms now, gang_scheduler_types::plan& to) {
    const bool with_hosts = hosted(r.gang);
    const std::span<resources> hosts = with_hosts ? std::span(view.hosts) : std::span<resources>();
    if (!victims(state, view, r, refused, with_hosts, now, budget)) return false;
    chosen_.assign(victims.victims().begin(), victims.victims().end());
    to.cost = victims.cost();
    to.lower_bound = victims.lower_bound();
    const level_t last = (std::min)(r.gang.required, state.layout().num_levels());
    const bool prefers = r.gang.preferred < last;
    if (prefers) allow_lower_level(state, view, r, now, to);
    bool is_placed = false;
    extra_.resize(state.layout().num_positions());
    set_extra(state, view, true);
    cluster_excerpt* const in = prefers ? nullptr : victims.excerpt();
    if (in != nullptr) {
      is_placed = place(state, r.gang, in->capacities(), in->hosts(), in, to);
    } else {
      journal log;
      transaction tx(log);
      victims.evict(tx, chosen_);
      is_placed = place(state, r.gang, view.free, hosts, nullptr, to);
    }
    set_extra(state, view, false);
    if (!is_placed) return false;
    to.result = chosen_.empty() ? plan_result::bind : plan_result::preempt;
    for (const std::uint32_t v : chosen_) to.victims.push_back(state.at(v).record.what.job);
    return true;
  }
  // If the gang prefers a level: chooses other victims that cost no more and allow a lower level.
  void allow_lower_level(scheduled_gangs& state, node_view& view,
                         const gang_scheduler_types::request& r, time_ms now,
                         gang_scheduler_types::plan& to) {
    const level_t last = (std::min)(r.gang.required, state.layout().num_levels());
    gang_scheduler_types::request lower = r;
    for (lower.gang.required = r.gang.preferred; lower.gang.required < last;
         ++lower.gang.required) {
      if (lower.gang.required >= level_without(view, r.gang, chosen_)) return;
      if (!victims(state, view, lower, false, hosted(r.gang), now, budget) ||
          victims.cost() > to.cost)
        continue;
      const std::vector<std::uint32_t> others(victims.victims().begin(), victims.victims().end());
      if (!all_needed(view, r.gang, others)) continue;
      chosen_ = others;
      to.cost = victims.cost();
      return;
    }
  }
  // The lowest level from the preferred one on where the gang fits without these gangs; any_level:
  // nowhere.
  [[nodiscard]] level_t level_without(node_view& view, const topology_constraints& gang,
                                      std::span<const std::uint32_t> gangs) {
    journal log;
    transaction tx(log);
    victims.evict(tx, gangs);
    const found then = fit(view.free, gang, view.hosts);
    return then.verdict == fit_verdict::fits ? then.level : any_level;
  }
  [[nodiscard]] bool all_needed(node_view& view, const topology_constraints& gang,
                                const std::vector<std::uint32_t>& gangs) {
    for (std::size_t i = 0; i < gangs.size(); ++i) {
      std::vector<std::uint32_t> fewer = gangs;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (level_without(view, gang, fewer) != any_level) return false;
    }
    return true;
  }
  // Places the gang on what is free without the victims.
  bool place(const scheduled_gangs& state, const topology_constraints& gang,
             const capacity_index<ragged_tree>& capacities, std::span<const resources> hosts,
             const cluster_excerpt* in, gang_scheduler_types::plan& to) {
    const found then = fit(capacities, gang, hosts);
    if (then.verdict != fit_verdict::fits) return false;
    portions_.assign(then.portions.begin(), then.portions.end());
    if (in != nullptr)
      for (tasks_on_node& p : portions_) p.node = in->to_global(p.node);
    assign(state, gang, portions_, to.tasks);
    to.level = then.level;
    return true;
  }
  // Lists the GPUs of the victims in extra_, or clears them.
  void set_extra(const scheduled_gangs& state, const node_view& view, bool to) {
    for (const std::uint32_t v : chosen_)
      for (const scheduled_gangs::on_node& o : state.at(v).nodes) {
        const scheduled_gangs::usable_node& n = state.usable(o.node);
        if (!to) {
          extra_[n.position] = 0;
        } else if (view.members[n.position] != 0) {
          extra_[n.position] |= o.mask & n.gpus;
        }
      }
  }
  // Whether the gang fits on whole nodes. The cell that has most is tried alone at first.
  found fit_whole(node_view& view, const topology_constraints& gang) {
    const level_t level = (std::max)(gang.required, level_t{1});
    if (level < view.whole.top()) {
      std::uint32_t size = 1;
      for (const constrained_task_group& m : gang.groups)
        if (m.tasks > 0) size = (std::max)(size, m.gpus);
      if (size > view.whole.max_free()) return {};
      const std::span<const std::uint32_t> slots = view.whole.slots(level, size);
      const auto best = std::max_element(slots.begin(), slots.end());
      const std::uint32_t cell = static_cast<std::uint32_t>(best - slots.begin());
      excerpt_.begin(view.whole,
                     hosted(gang) ? std::span<const resources>(view.whole_hosts)
                                  : std::span<const resources>(),
                     level, {&cell, 1});
      const found alone = fit(excerpt_.capacities(), gang, excerpt_.hosts());
      if (alone.verdict == fit_verdict::fits) return alone;
    }
    return fit(view.whole, gang, view.whole_hosts);
  }
  // Why the gang waits. refused: it is proved that the gang does not fit now.
  wait_reason reason(const scheduled_gangs& state, node_view& view,
                     const topology_constraints& gang, bool refused) {
    const found idle = fit_whole(view, gang);
    if (idle.verdict == fit_verdict::does_not_fit || idle.is_refused) return wait_reason::never;
    if (!refused || idle.verdict == fit_verdict::budget_ended) return wait_reason::undecided;
    if (state.bad_nodes().empty()) return wait_reason::busy;
    const fit_verdict healthy =
        with_healthy_nodes(state, view, [&] { return fit_whole(view, gang).verdict; });
    if (healthy == fit_verdict::fits) return wait_reason::busy;
    return healthy == fit_verdict::does_not_fit ? wait_reason::unhealthy : wait_reason::undecided;
  }

  struct need {
    std::uint32_t node = 0;
    std::uint64_t cpu_milli = 0;
    std::uint64_t memory_mib = 0;
  };
  topology_fit<ragged_tree> fit_;
  std::uint64_t of_budget_ = 0;  // the budget of the search; 0: not set
  std::vector<need> needs_;
  std::vector<std::uint32_t> taken_;   // GPUs by position, 0 between calls
  std::vector<std::uint32_t> extra_;   // GPUs of victims by position, 0 between calls
  std::vector<std::uint32_t> chosen_;  // victims
  std::vector<tasks_on_node> portions_;
  cluster_excerpt excerpt_;
};

}  // namespace detail
APIARY_NAMESPACE_END
