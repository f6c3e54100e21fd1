// apiary/gang_scheduler/detail/gang_planner.h - decides about a gang: where it runs, its victims, why it waits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_cost.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Decides about a gang. It changes the state only inside a call: node views are put back.
class gang_planner {
 public:
  using found = topology_fit<ragged_tree>::result;

  std::uint64_t budget = 100'000;
  gang_scheduler_types::cost_function cost{};
  std::map<std::uint32_t, disruption_budget> budgets{};  // by tenant

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
    if (state.has_candidate(r.priority) && preempt(state, view, r, now, to)) return;
    to.reason = reason(state, view, r.gang, refused);
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
  // The proof after fit() has answered does_not_fit, for the same arguments.
  [[nodiscard]] infeasibility_proof prove(const capacity_index<ragged_tree>& capacities,
                                          const topology_constraints& gang,
                                          std::span<const resources> hosts) {
    begin();
    const std::span<const resources> counted = hosted(gang) ? hosts : std::span<const resources>();
    return fit_(capacities, gang, counted).verdict == fit_verdict::does_not_fit
               ? fit_.explain(capacities, gang, counted)
               : infeasibility_proof{};
  }

  // Calls f while the view's whole nodes have only healthy GPUs. Cost: O(bad nodes), and f.
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
    search_ = topology_victim_search<ragged_tree>(budget);
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
  // What becomes free when a gang ends that uses `own` of the `used` on a node that has `has`. On an
  // overcommitted node the ends of several gangs free more than the sum.
  [[nodiscard]] static std::uint32_t freed(std::uint64_t own, std::uint64_t used,
                                           std::uint32_t has) noexcept {
    const std::uint64_t too_much = used > has ? used - has : 0;
    return own > too_much ? static_cast<std::uint32_t>(own - too_much) : 0;
  }
  // The running gangs of lower priority, with what they would give back on the nodes of the view.
  void list_candidates(scheduled_gangs& state, const node_view& view,
                       const gang_scheduler_types::request& r, time_ms now, bool with_hosts) {
    overcommitted_ = false;
    slots_.clear();
    candidates_.clear();
    allocations_.clear();
    freed_.clear();
    losses_.clear();
    for (const std::uint32_t slot : state.in_order()) {
      const scheduled_gangs::entry& e = state.at(slot);
      if (!e.is_candidate() || e.who.what.priority >= r.priority) continue;
      const auto first = static_cast<std::uint32_t>(allocations_.size());
      for (const scheduled_gangs::on_node& o : e.nodes) {
        const used_node& n = state.node(o.node);
        if (view.members[n.position] == 0 || n.bad) continue;
        const std::uint32_t mask = o.mask & n.healthy_gpus() & ~n.reserved;
        allocations_.push_back({n.position, static_cast<std::uint32_t>(std::popcount(mask))});
        if (!with_hosts) continue;
        overcommitted_ = overcommitted_ || n.cpu_milli > n.shape.host.cpu_milli ||
                         n.memory_mib > n.shape.host.memory_mib;
        freed_.push_back({freed(o.cpu_milli, n.cpu_milli, n.shape.host.cpu_milli),
                          freed(o.memory_mib, n.memory_mib, n.shape.host.memory_mib)});
      }
      const auto last = static_cast<std::uint32_t>(allocations_.size());
      if (first == last) continue;
      slots_.push_back(slot);
      candidates_.push_back({0, first, last});
      const auto run = static_cast<std::uint64_t>((std::max)(now - e.who.started, time_ms{0}));
      const std::uint64_t most = ~std::uint64_t{0} / (std::max)(e.who.gpus, std::uint64_t{1});
      losses_.push_back({static_cast<std::uint32_t>(e.who.what.priority) ^ (1U << 31),
                         e.who.gpus * (std::min)(run, most)});
    }
    if (cost) {
      for (std::size_t i = 0; i < slots_.size(); ++i)
        candidates_[i].cost =
            (std::min)(cost(state.at(slots_[i]).who, now), std::uint64_t{1} << 40);
    } else {
      const victim_cost costs(losses_);
      for (std::size_t i = 0; i < slots_.size(); ++i) candidates_[i].cost = costs(losses_[i]);
    }
  }
  // Finds victims. False if there are none, or if the search does not know.
  bool preempt(scheduled_gangs& state, node_view& view, const gang_scheduler_types::request& r,
               time_ms now, gang_scheduler_types::plan& to) {
    const bool with_hosts = hosted(r.gang);
    list_candidates(state, view, r, now, with_hosts);
    if (candidates_.empty()) return false;
    std::vector<disruption_budget> most;
    std::vector<std::uint32_t> groups;
    std::vector<std::uint32_t> gpus;
    if (!budgets.empty()) {
      std::map<std::uint32_t, std::uint32_t> group_of;
      for (const auto& [tenant, max] : budgets) {
        group_of.emplace(tenant, static_cast<std::uint32_t>(most.size()));
        most.push_back(max);
      }
      for (const std::uint32_t slot : slots_) {
        const auto at = group_of.find(state.at(slot).who.what.tenant.value);
        groups.push_back(at == group_of.end() ? ~std::uint32_t{0} : at->second);
        gpus.push_back(static_cast<std::uint32_t>(state.at(slot).who.gpus));
      }
    }
    const std::span<resources> hosts = with_hosts ? std::span(view.hosts) : std::span<resources>();
    begin();
    const victim_set set =
        search_(view.free, r.gang, candidates_, allocations_, hosts, freed_, {groups, most, gpus});
    if (set.verdict != fit_verdict::fits) return false;
    victims_.assign(set.victims.begin(), set.victims.end());
    std::uint64_t cost_of_victims = set.cost;
    const std::uint64_t lower_bound = set.lower_bound;
    // Victims that cost no more and allow a lower level, if the gang prefers one.
    const level_t last = (std::min)(r.gang.required, state.layout().num_levels());
    topology_constraints lower = r.gang;
    for (lower.required = r.gang.preferred; lower.required < last; ++lower.required) {
      if (lower.required >= level_with_victims(view, r.gang, hosts)) break;
      const victim_set other =
          search_(view.free, lower, candidates_, allocations_, hosts, freed_, {groups, most, gpus});
      if (other.verdict != fit_verdict::fits || other.cost > cost_of_victims) continue;
      victims_.swap(before_);
      victims_.assign(other.victims.begin(), other.victims.end());
      if (all_needed(view, r.gang, hosts)) {
        cost_of_victims = other.cost;
        break;
      }
      victims_.swap(before_);
    }
    extra_.assign(state.layout().num_positions(), 0);
    journal log;
    transaction tx(log);
    for (const std::uint32_t v : victims_) {
      journaled::evict_gang(tx, view.free, candidates_[v], allocations_, hosts, freed_);
      for (const scheduled_gangs::on_node& o : state.at(slots_[v]).nodes) {
        const used_node& n = state.node(o.node);
        if (view.members[n.position] != 0)
          extra_[n.position] |= o.mask & n.healthy_gpus() & ~n.reserved;
      }
    }
    const found then = fit(view.free, r.gang, hosts);
    if (then.verdict != fit_verdict::fits) return false;
    assign(state, r.gang, then.portions, to.tasks);
    to.result = victims_.empty() ? plan_result::bind : plan_result::preempt;
    to.level = then.level;
    to.cost = cost_of_victims;
    to.lower_bound = overcommitted_ ? 0 : lower_bound;
    for (const std::uint32_t v : victims_) to.victims.push_back(state.at(slots_[v]).who.what.job);
    return true;
  }
  // The lowest level from the preferred one on where the gang fits if the victims end, except victim
  // `without`; any_level: nowhere.
  [[nodiscard]] level_t level_with_victims(node_view& view, const topology_constraints& gang,
                                           std::span<resources> hosts,
                                           std::size_t without = ~std::size_t{0}) {
    journal log;
    transaction tx(log);
    for (std::size_t i = 0; i < victims_.size(); ++i)
      if (i != without)
        journaled::evict_gang(tx, view.free, candidates_[victims_[i]], allocations_, hosts, freed_);
    const found then = fit(view.free, gang, hosts);
    return then.verdict == fit_verdict::fits ? then.level : any_level;
  }
  [[nodiscard]] bool all_needed(node_view& view, const topology_constraints& gang,
                                std::span<resources> hosts) {
    for (std::size_t i = 0; i < victims_.size(); ++i)
      if (level_with_victims(view, gang, hosts, i) != any_level) return false;
    return true;
  }
  // Why a gang waits that does not fit (refused), or of which that is not known.
  wait_reason reason(const scheduled_gangs& state, node_view& view,
                     const topology_constraints& gang, bool refused) {
    const found idle = fit(view.whole, gang, view.whole_hosts);
    if (idle.verdict == fit_verdict::does_not_fit || idle.is_refused) return wait_reason::never;
    if (!refused || idle.verdict == fit_verdict::budget_ended) return wait_reason::undecided;
    if (state.bad_nodes().empty()) return wait_reason::busy;
    const fit_verdict healthy = with_healthy_nodes(
        state, view, [&] { return fit(view.whole, gang, view.whole_hosts).verdict; });
    if (healthy == fit_verdict::fits) return wait_reason::busy;
    return healthy == fit_verdict::does_not_fit ? wait_reason::unhealthy : wait_reason::undecided;
  }

  struct need {
    std::uint32_t node = 0;
    std::uint64_t cpu_milli = 0;
    std::uint64_t memory_mib = 0;
  };
  topology_fit<ragged_tree> fit_;
  topology_victim_search<ragged_tree> search_;
  std::uint64_t of_budget_ = 0;  // the budget of the two searches; 0: not set
  std::vector<need> needs_;
  std::vector<std::uint32_t> taken_;  // GPUs by position, 0 between calls
  std::vector<std::uint32_t> extra_;  // GPUs of victims by position, of the last preempt()
  std::vector<std::uint32_t> slots_;  // of the candidates
  std::vector<std::uint32_t> victims_;
  std::vector<std::uint32_t> before_;  // victims that another choice may replace
  bool overcommitted_ = false;  // freed_ counts too little where several victims are together
  std::vector<eviction_candidate> candidates_;
  std::vector<gpus_on_node> allocations_;
  std::vector<resources> freed_;
  std::vector<victim_cost::loss> losses_;
};

}  // namespace detail
APIARY_NAMESPACE_END
