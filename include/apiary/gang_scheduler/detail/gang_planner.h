// apiary/gang_scheduler/detail/gang_planner.h - where a gang runs, its victims, or why it waits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/budgeted_fit.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_candidates.h>
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
//
// All searches of a call share one budget of steps, which also pays for what they read
// (step_prices). A search gets at most half of the budget, so that the next one is not left without
// steps: whether the gang fits now, its victims, and why it waits. An eighth is kept for the last
// one, or to place the gang where its victims were. A preferred level gets the steps that are left
// when the gang has been decided without it.
class gang_planner {
 public:
  using found = budgeted_fit::found;

  std::uint64_t budget = 200'000;
  victim_planner victims{};

  // Fills result, tasks, level, victims, reason and steps of a plan. It sets the levels of the
  // request back before it returns. Requires: the request is checked.
  void operator()(scheduled_gangs& state, gang_scheduler_types::request& r, time_ms now,
                  gang_scheduler_types::plan& to) {
    begin();
    to.reason = wait_reason::undecided;
    if (steps_.try_pay(step_prices::of_gang(r.gang))) {
      const level_t required = r.gang.required;
      const level_t preferred = r.gang.preferred;
      const level_t last = (std::min)(required, state.layout().num_levels());
      r.gang.preferred = any_level;
      decide(state, r, now, to);
      if (preferred < last) allow_lower_level(state, r, preferred, last, now, to);
      r.gang.required = required;
      r.gang.preferred = preferred;
    }
    to.steps = steps_.steps();
  }
  // Whether CPU and memory count for the gang.
  [[nodiscard]] static bool hosted(const topology_constraints& gang) noexcept {
    return step_prices::hosted(gang);
  }
  // Whether the gang fits, and where, on a budget of its own.
  found fit(const capacity_index<ragged_tree>& capacities, const topology_constraints& gang,
            std::span<const resources> hosts) {
    begin();
    return fit(capacities, gang, hosts, half());
  }
  // The proof after fit() has answered does_not_fit, for the same arguments.
  [[nodiscard]] infeasibility_proof prove(const capacity_index<ragged_tree>& capacities,
                                          const topology_constraints& gang,
                                          std::span<const resources> hosts) {
    return fit_.prove(capacities, gang, hosted(gang) ? hosts : std::span<const resources>(),
                      half());
  }

  // Calls f while bad GPUs are not counted in the view's whole nodes. Cost: O(bad nodes), and f.
  template <class F>
  auto with_healthy_nodes(const scheduled_gangs& state, node_view& view, const F& f) {
    const auto count = [&](bool all) {
      for (const std::uint32_t id : state.nodes().bad_nodes()) {
        const used_node& n = state.node(id);
        if (view.members[n.position] == 0) continue;
        const std::uint32_t gpus = all ? n.all_gpus() : n.healthy_gpus();
        view.whole.set(n.position, static_cast<std::uint32_t>(std::popcount(gpus)));
        view.whole_hosts[n.position] = all || !n.bad ? n.shape.host : resources{};
      }
    };
    count(false);
    const auto answer = f();
    count(true);
    return answer;
  }

 private:
  void begin() { steps_ = step_budget(budget); }
  // The most steps of one search.
  [[nodiscard]] std::uint64_t half() const { return (std::max)(budget / 2, std::uint64_t{1}); }
  // What a search may take so that an eighth remains.
  [[nodiscard]] std::uint64_t spendable() const {
    return steps_.left() - (std::min)(steps_.left(), budget / 8);
  }
  void decide(scheduled_gangs& state, const gang_scheduler_types::request& r, time_ms now,
              gang_scheduler_types::plan& to) {
    node_view& view = state.view(r.filter);
    const found now_free = fit(view.free, r.gang, view.hosts, half());
    if (now_free.verdict == fit_verdict::fits) {
      refused_ = false;
      return bind(state, r.gang, now_free, to);
    }
    refused_ = now_free.verdict == fit_verdict::does_not_fit || now_free.is_refused;
    undecided_ = !refused_;
    if (state.has_candidate(r.priority) && preempt(state, view, r, now, to)) return;
    to.cost = to.lower_bound = 0;  // the victims that were found may not be enough
    to.reason = reason(state, view, r.gang, !undecided_);
    if (undecided_ || r.filter.nodes.empty()) return;
    node_filter without_list = r.filter;
    without_list.nodes = {};
    const node_view& others = state.view(without_list);
    const found elsewhere = fit(others.free, r.gang, others.hosts, half());
    if (elsewhere.verdict == fit_verdict::fits) to.reason = wait_reason::not_suggested;
  }
  // Places the gang on GPUs that are free.
  void bind(const scheduled_gangs& state, const topology_constraints& gang, const found& where,
            gang_scheduler_types::plan& to) {
    to.result = plan_result::bind;
    to.level = where.level;
    to.victims.clear();
    to.cost = to.lower_bound = 0;
    assign(state, gang, where.portions, to.tasks);
  }
  // Whether the gang fits, and where, with at most so many steps.
  found fit(const capacity_index<ragged_tree>& capacities, const topology_constraints& gang,
            std::span<const resources> hosts, std::uint64_t most) {
    return fit_(capacities, gang, hosts, most, steps_);
  }
  // GPUs for the tasks: free ones first, then those of victims (extra_), the lowest first.
  void assign(const scheduled_gangs& state, const topology_constraints& gang,
              std::span<const tasks_on_node> portions, std::vector<placement>& tasks) {
    std::size_t size = 0;
    for (const tasks_on_node& p : portions) size += p.tasks;
    tasks.clear();
    tasks.reserve(size);
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
  // Finds victims. False if there are none, or if the search does not know; then undecided_ is
  // true.
  bool preempt(scheduled_gangs& state, node_view& view, const gang_scheduler_types::request& r,
               time_ms now, gang_scheduler_types::plan& to) {
    const bool is_found = find_victims(state, view, r, refused_, now);
    undecided_ = undecided_ || victims.budget_ended();
    if (!is_found) return false;
    undecided_ = true;  // until the gang is placed
    chosen_.assign(victims.victims().begin(), victims.victims().end());
    to.cost = victims.cost();
    to.lower_bound = victims.lower_bound();
    // A large excerpt takes longer to make than a look at all nodes.
    const bool by_excerpt =
        victims.in_cells() && (victims.excerpt_nodes() <= few_nodes(view.free) || !refused_);
    return place_at_victims(state, view, r.gang, by_excerpt, to);
  }
  // Places the gang where chosen_ run, which end. by_excerpt: in the cells of the last search.
  bool place_at_victims(const scheduled_gangs& state, node_view& view,
                        const topology_constraints& gang, bool by_excerpt,
                        gang_scheduler_types::plan& to) {
    if (!steps_.try_pay(eviction(state, chosen_) +
                        (by_excerpt ? step_prices::of_excerpt(victims.excerpt_nodes()) : 0)))
      return false;
    bool is_placed = false;
    extra_.resize(state.layout().num_positions());
    set_extra(state, view, true);
    if (by_excerpt) {
      cluster_excerpt& in = victims.excerpt();
      is_placed = place(state, gang, in.capacities(), in.hosts(), &in, to);
    } else {
      journal log;
      transaction tx(log);
      victims.evict(tx, chosen_);
      is_placed = place(state, gang, view.free, view.hosts, nullptr, to);
    }
    set_extra(state, view, false);
    if (!is_placed) return false;
    to.result = chosen_.empty() ? plan_result::bind : plan_result::preempt;
    to.victims.clear();
    for (const std::uint32_t v : chosen_) to.victims.push_back(state.at(v).record.what.job);
    return true;
  }
  bool find_victims(scheduled_gangs& state, node_view& view, const gang_scheduler_types::request& r,
                    bool refused, time_ms now) {
    const std::uint64_t to_place = step_prices::of_placements(r.gang, view.free.num_nodes());
    const std::uint64_t most = spendable() - (std::min)(spendable(), to_place);
    const bool is_found = victims(state, view, r, refused, hosted(r.gang), now, most, half());
    steps_.pay(victims.steps());
    return is_found;
  }
  // The steps to evict gangs and to take that back.
  [[nodiscard]] static std::uint64_t eviction(const scheduled_gangs& state,
                                              std::span<const std::uint32_t> gangs) {
    std::uint64_t nodes = 0;
    for (const std::uint32_t slot : gangs) nodes += state.brief_of(slot).nodes;
    return step_prices::of_changes(nodes);
  }
  [[nodiscard]] static std::uint64_t few_nodes(const capacity_index<ragged_tree>& capacities) {
    return 512 + capacities.num_nodes() / 32;
  }
  // Changes the plan if the gang can be in one cell of a level below `last`: it fits now, or where
  // its victims run, or where other victims run that cost no more. Others are chosen only if it is
  // certain that each of them is needed.
  void allow_lower_level(scheduled_gangs& state, gang_scheduler_types::request& r,
                         level_t preferred, level_t last, time_ms now,
                         gang_scheduler_types::plan& to) {
    const level_t required = r.gang.required;
    const auto at_levels = [&](level_t from, level_t to_level) -> const topology_constraints& {
      r.gang.preferred = from;
      r.gang.required = to_level;
      return r.gang;
    };
    node_view& view = state.view(r.filter);
    at_levels(preferred, last - 1);
    if (!refused_) {
      const found lower = fit(view.free, r.gang, view.hosts, half());
      if (lower.verdict == fit_verdict::fits) return bind(state, r.gang, lower, to);
    }
    if (to.result != plan_result::preempt) return;
    const level_t end = place_at_victims(state, view, r.gang, false, to) ? to.level : last;
    for (level_t l = preferred; l < end && spendable() > 0; ++l) {
      at_levels(l, l);
      if (!find_victims(state, view, r, false, now) || victims.cost() > to.cost) continue;
      chosen_.assign(victims.victims().begin(), victims.victims().end());
      if (!all_needed(state, view, at_levels(any_level, required))) continue;
      if (place_at_victims(state, view, at_levels(l, l), false, to)) to.cost = victims.cost();
      return;
    }
  }
  // Whether the gang fits without these gangs, so that an eighth of the budget remains.
  found fit_without(const scheduled_gangs& state, node_view& view, const topology_constraints& gang,
                    std::span<const std::uint32_t> gangs) {
    const std::uint64_t most = spendable();
    const std::uint64_t price = eviction(state, gangs);
    found then;
    then.verdict = fit_verdict::budget_ended;
    if (price >= most) return then;
    steps_.pay(price);
    journal log;
    transaction tx(log);
    victims.evict(tx, gangs);
    return fit(view.free, gang, view.hosts, (std::min)(most - price, half()));
  }
  // Whether the gang certainly does not fit if one of chosen_ stays, whichever it is.
  [[nodiscard]] bool all_needed(const scheduled_gangs& state, node_view& view,
                                const topology_constraints& gang) {
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      std::vector<std::uint32_t> fewer = chosen_;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const found then = fit_without(state, view, gang, fewer);
      if (then.verdict != fit_verdict::does_not_fit && !then.is_refused) return false;
    }
    return true;
  }
  // Places the gang on what is free without the victims.
  bool place(const scheduled_gangs& state, const topology_constraints& gang,
             const capacity_index<ragged_tree>& capacities, std::span<const resources> hosts,
             const cluster_excerpt* in, gang_scheduler_types::plan& to) {
    const found then = fit(capacities, gang, hosts, half());
    if (then.verdict != fit_verdict::fits) return false;
    portions_.assign(then.portions);
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
        const used_node& n = state.node(o.node);
        if (!to) {
          extra_[n.position] = 0;
        } else if (view.members[n.position] != 0) {
          extra_[n.position] |= o.mask & n.usable_gpus();
        }
      }
  }
  // Whether the gang fits on whole nodes, with half of the steps that are left. The cell that has
  // most is tried alone at first, if it is small.
  found fit_whole(node_view& view, const topology_constraints& gang) {
    const level_t level = (std::max)(gang.required, level_t{1});
    const std::span<const resources> hosts =
        hosted(gang) ? std::span<const resources>(view.whole_hosts) : std::span<const resources>();
    if (level < view.whole.top()) {
      std::uint32_t size = 1;
      for (const constrained_task_group& m : gang.groups)
        if (m.tasks > 0) size = (std::max)(size, m.gpus);
      if (size > view.whole.max_free()) return {};
      const std::span<const std::uint32_t> slots = view.whole.slots(level, size);
      const auto best = std::max_element(slots.begin(), slots.end());
      const std::uint32_t cell = static_cast<std::uint32_t>(best - slots.begin());
      const std::uint32_t nodes = view.whole.nodes(level, cell).size();
      if (nodes <= few_nodes(view.whole) && steps_.try_pay(step_prices::of_excerpt(nodes))) {
        excerpt_.begin(view.whole, hosts, level, {&cell, 1});
        const found alone = fit(excerpt_.capacities(), gang, excerpt_.hosts(), some());
        if (alone.verdict == fit_verdict::fits) return alone;
      }
    }
    return fit(view.whole, gang, hosts, some());
  }
  [[nodiscard]] std::uint64_t some() const {
    return (std::min)(half(), steps_.left() - steps_.left() / 2);
  }
  // Why the gang waits. refused: it is proved that the gang does not fit now.
  wait_reason reason(const scheduled_gangs& state, node_view& view,
                     const topology_constraints& gang, bool refused) {
    const found idle = fit_whole(view, gang);
    if (idle.verdict == fit_verdict::does_not_fit || idle.is_refused) return wait_reason::never;
    if (!refused || idle.verdict == fit_verdict::budget_ended) return wait_reason::undecided;
    if (state.nodes().bad_nodes().empty()) return wait_reason::busy;
    if (!steps_.try_pay(2 * step_prices::of_changes(state.nodes().bad_nodes().size())))
      return wait_reason::undecided;
    const fit_verdict healthy =
        with_healthy_nodes(state, view, [&] { return fit_whole(view, gang).verdict; });
    if (healthy == fit_verdict::fits) return wait_reason::busy;
    return healthy == fit_verdict::does_not_fit ? wait_reason::unhealthy : wait_reason::undecided;
  }

  budgeted_fit fit_;
  step_budget steps_;       // of this call
  bool refused_ = false;    // the gang does not fit now
  bool undecided_ = false;  // a search did not decide whether the gang fits, or about victims
  std::vector<std::uint32_t> taken_;   // GPUs by position, 0 between calls
  std::vector<std::uint32_t> extra_;   // GPUs of victims by position, 0 between calls
  std::vector<std::uint32_t> chosen_;  // victims
  lean_vector<tasks_on_node> portions_;
  cluster_excerpt excerpt_;
};

}  // namespace detail
APIARY_NAMESPACE_END
