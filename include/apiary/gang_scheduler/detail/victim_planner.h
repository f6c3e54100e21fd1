// apiary/gang_scheduler/detail/victim_planner.h - the victims of a gang that does not fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/cell_gangs.h>
#include <apiary/gang_scheduler/detail/cluster_excerpt.h>
#include <apiary/gang_scheduler/detail/gang_allocations.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_bounds.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
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
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds the victims of a gang at least cost. If the gang must be in one rack, or in one cell of a
// higher level, cells are searched in ascending order of lower bounds on the cost, some at a time,
// until no bound is below the cost of the best set. Otherwise one gang may be enough: the cheapest
// gangs are tried alone. If none of them is enough, the cluster is searched as a whole.
// Cost: with a required level O(cells of the level) and O(nodes) of the cells whose bounds are below
//       the cost; the cost function, if there is one, is asked about all candidates. Without:
//       O(the most gangs that have run at once) if one gang is enough and the costs are the default
//       ones; otherwise, if the budget pays for it, O(nodes + candidates + their nodes), and
//       topology_victim_search.
class victim_planner {
 public:
  static constexpr std::uint64_t never = victim_set::never;

  gang_scheduler_types::cost_function cost_function{};
  std::map<std::uint32_t, disruption_budget> budgets{};  // by tenant

  // Whether it has found a set of victims; it may be empty if the gang fits. refused: it is certain
  // that the gang does not fit now.
  bool operator()(scheduled_gangs& state, node_view& view, const gang_scheduler_types::request& r,
                  bool refused, bool with_hosts, time_ms now, std::uint64_t budget) {
    budget_ = budget;
    steps_ = 0;
    state_ = &state;
    view_ = &view;
    request_ = &r;
    now_ = now;
    hosts_ = with_hosts ? std::span(view.hosts) : std::span<resources>();
    begin_costs();
    overcommitted_ = false;
    victims_.clear();
    cells_of_victims_.clear();
    cost_ = lower_bound_ = never;
    budget_ended_ = false;
    level_ = (std::max)(r.gang.required, level_t{1});
    in_cells_ = level_ < state.layout().num_levels();
    if (in_cells_) {
      search_cells();
      if (!refused) lower_bound_ = 0;  // cells without candidates are not searched
    } else if (!refused || !find_one_gang()) {
      search_cluster();
    }
    lower_bound_ = overcommitted_ ? 0 : (std::min)(lower_bound_, cost_);
    return cost_ != never;
  }
  // The slots of the victims, in ascending order of their jobs.
  [[nodiscard]] std::span<const std::uint32_t> victims() const noexcept { return victims_; }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }
  // The steps of the last call.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  // Whether it has found no set, but not looked everywhere.
  [[nodiscard]] bool budget_ended() const noexcept { return budget_ended_ && cost_ == never; }
  // No set costs less.
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return lower_bound_; }
  // After a search that found victims: their cells, with the victims evicted; null if the cluster was
  // searched as a whole.
  [[nodiscard]] cluster_excerpt* excerpt() {
    if (!in_cells_) return nullptr;
    excerpt_.begin(view_->free, hosts_, level_, cells_of_victims_);
    begin_list();
    for (const std::uint32_t slot : victims_) list(slot, &excerpt_);
    for (std::size_t a = 0; a < allocations_.size(); ++a) {
      const auto [node, gpus] = allocations_[a];
      excerpt_.capacities().set(node, excerpt_.capacities().free(node) + gpus);
      if (!hosts_.empty()) excerpt_.hosts()[node] += freed_[a];
    }
    return &excerpt_;
  }
  // Evicts these gangs from the view of the last search.
  void evict(transaction& tx, std::span<const std::uint32_t> slots) {
    begin_list();
    for (const std::uint32_t slot : slots) list(slot, nullptr);
    for (const eviction_candidate& c : candidates_)
      journaled::evict_gang(tx, view_->free, c, allocations_, hosts_, freed_);
  }

 private:
  [[nodiscard]] std::uint64_t left() const { return budget_ - (std::min)(budget_, steps_); }
  [[nodiscard]] bool is_candidate(std::uint32_t slot) const noexcept {
    const scheduled_gangs::brief& b = state_->brief_of(slot);
    return b.is_candidate && b.priority < request_->priority;
  }
  [[nodiscard]] static std::uint32_t class_of(std::int32_t priority) noexcept {
    return static_cast<std::uint32_t>(priority) ^ (1U << 31);
  }
  void begin_costs() {
    costs_.reset();
    if (cost_function) return;
    classes_.clear();
    for (const auto& [priority, c] : state_->classes())
      if (priority < request_->priority) classes_.push_back({class_of(priority), c.gangs});
    costs_.emplace(classes_, state_->gpu_time(request_->priority, now_));
  }
  [[nodiscard]] std::uint64_t cost_of(std::uint32_t slot) const {
    if (cost_function)
      return (std::min)(cost_function(state_->at(slot).record, now_), std::uint64_t{1} << 40);
    const scheduled_gangs::brief& b = state_->brief_of(slot);
    return (*costs_)({class_of(b.priority), scheduled_gangs::gpu_time_of(b, now_)});
  }

  void begin_list() {
    slots_.clear();
    candidates_.clear();
    allocations_.clear();
    freed_.clear();
  }
  // Appends a gang with what it would give back on the nodes of the view; of the excerpt, if any.
  void list(std::uint32_t slot, const cluster_excerpt* in) {
    const auto first = static_cast<std::uint32_t>(allocations_.size());
    for (const scheduled_gangs::on_node& o : state_->at(slot).nodes) {
      const scheduled_gangs::usable_node& n = state_->usable(o.node);
      const std::uint32_t node = in == nullptr ? n.position : in->to_local(n.position);
      if (node == cluster_excerpt::none || view_->members[n.position] == 0) continue;
      const auto gpus = static_cast<std::uint32_t>(std::popcount(o.mask & n.gpus));
      if (hosts_.empty()) {
        if (gpus > 0) allocations_.push_back({node, gpus});
        continue;
      }
      const used_node& full = state_->node(o.node);
      if (full.bad) continue;
      allocations_.push_back({node, gpus});
      const resources& has = full.shape.host;
      overcommitted_ =
          overcommitted_ || full.cpu_milli > has.cpu_milli || full.memory_mib > has.memory_mib;
      freed_.push_back({used_node::freed(o.cpu_milli, full.cpu_milli, has.cpu_milli),
                        used_node::freed(o.memory_mib, full.memory_mib, has.memory_mib)});
    }
    const auto last = static_cast<std::uint32_t>(allocations_.size());
    if (first == last) return;
    slots_.push_back(slot);
    candidates_.push_back({cost_of(slot), first, last});
  }
  // The disruption budgets of the candidates.
  [[nodiscard]] disruption_budgets limits() {
    if (budgets.empty()) return {};
    most_.clear();
    groups_.clear();
    gpus_.clear();
    std::map<std::uint32_t, std::uint32_t> group_of;
    for (const auto& [tenant, max] : budgets) {
      group_of.emplace(tenant, static_cast<std::uint32_t>(most_.size()));
      most_.push_back(max);
    }
    for (const std::uint32_t slot : slots_) {
      const auto at = group_of.find(state_->at(slot).record.what.tenant.value);
      groups_.push_back(at == group_of.end() ? ~std::uint32_t{0} : at->second);
      gpus_.push_back(static_cast<std::uint32_t>(state_->at(slot).record.gpus));
    }
    return {groups_, most_, gpus_};
  }
  // Counts the steps of a search, and keeps its set if it costs less than the best one.
  bool keep(const victim_set& set) {
    steps_ += set.steps;
    lower_bound_ = (std::min)(lower_bound_,
                              set.verdict == fit_verdict::does_not_fit ? never : set.lower_bound);
    budget_ended_ = budget_ended_ || set.verdict == fit_verdict::budget_ended;
    if (set.verdict != fit_verdict::fits || set.cost >= cost_) return false;
    cost_ = set.cost;
    victims_.clear();
    for (const std::uint32_t i : set.victims) victims_.push_back(slots_[i]);
    return true;
  }
  // Finds the cheapest gang that is enough alone, if no other set can cost less: it costs at most as
  // much as any two gangs. False if there is none, or if an eighth of the budget does not suffice to
  // know it; the last gang that it tries may take another eighth. Requires: the gang does not fit now.
  bool find_one_gang() {
    const std::uint64_t eighth = budget_ / 8;
    // The steps that each gang counts as, besides those of topology_fit.
    const bool reads_nodes = !hosts_.empty() || !victim_bounds::only_gpus(request_->gang);
    const std::uint32_t each = (std::max)(128U, reads_nodes ? view_->free.num_nodes() / 16 : 0);
    std::uint64_t used = state_->num_slots() / slots_of_a_step;
    if (cost_function || classes_.empty() || used + each > eighth) return false;
    const std::uint64_t two = 2 * (*costs_)({classes_[0].priority, 0});
    bounds_.begin(view_->free, view_->free.top(), request_->gang);
    if (!bounds_.lacks_slots(0)) return false;  // all gangs may be enough
    alone_.clear();
    for (std::uint32_t slot = 0; slot < state_->num_slots(); ++slot) {
      const scheduled_gangs::brief& b = state_->brief_of(slot);
      if (!is_candidate(slot) || !bounds_.may_be_enough(0, b.gpus, b.nodes)) continue;
      const std::uint64_t cost = cost_of(slot);
      if (cost <= two && is_within_budget(slot)) alone_.push_back({cost, slot});
    }
    const auto later = [&](const keyed_number& a, const keyed_number& b) {
      if (a.key != b.key) return a.key > b.key;
      return state_->is_before(state_->ordered(b.number), state_->ordered(a.number));
    };
    std::make_heap(alone_.begin(), alone_.end(), later);
    topology_constraints gang = request_->gang;
    gang.preferred = any_level;
    fit_.set_budget(eighth);
    for (bool known = true; known && !alone_.empty() && used + each <= eighth;) {
      std::pop_heap(alone_.begin(), alone_.end(), later);
      const keyed_number one = alone_.back();
      alone_.pop_back();
      journal log;
      transaction tx(log);
      evict(tx, {&one.number, 1});
      const auto then = fit_(view_->free, gang, hosts_);
      used += each + then.steps;
      known = then.verdict == fit_verdict::does_not_fit || then.is_refused;
      if (then.verdict != fit_verdict::fits) continue;
      victims_.assign(1, one.number);
      cost_ = lower_bound_ = one.key;
    }
    steps_ += used;
    return cost_ != never;
  }
  [[nodiscard]] bool is_within_budget(std::uint32_t slot) const {
    const gang_scheduler_types::running_gang& gang = state_->at(slot).record;
    const auto at = budgets.find(gang.what.tenant.value);
    return at == budgets.end() || (at->second.gangs > 0 && at->second.gpus >= gang.gpus);
  }
  // The filter accepts all nodes, so the list of allocations is the one that the state keeps.
  void search_all_nodes() {
    const gang_allocations& lists = state_->allocations();
    for (const scheduled_gangs::ordered_gang& g : state_->in_order()) {
      if (!is_candidate(g.slot)) continue;
      const auto [first, last] = lists.of(g.slot);
      if (first == last) continue;
      slots_.push_back(g.slot);
      candidates_.push_back({cost_of(g.slot), first, last});
    }
    if (candidates_.empty()) return;
    keep(search_(view_->free, request_->gang, candidates_, lists.all(), limits()));
  }
  void search_cluster() {
    const std::uint64_t entries = state_->num_nodes() + state_->entries(request_->priority);
    budget_ended_ = !search_.can_read(entries, left());
    if (budget_ended_) return;
    begin_list();
    search_.set_budget(left());
    if (hosts_.empty() && view_->num_members == state_->num_nodes()) return search_all_nodes();
    for (const scheduled_gangs::ordered_gang& g : state_->in_order())
      if (is_candidate(g.slot)) list(g.slot, nullptr);
    if (candidates_.empty()) return;
    keep(search_(view_->free, request_->gang, candidates_, allocations_, hosts_, freed_, limits()));
  }

  void search_cells() {
    const cell_gangs& gangs = state_->in_cells(level_);
    bounds_.begin(view_->free, level_, request_->gang);
    fewest_.resize(gangs.num_cells());
    for (std::uint32_t c = 0; c < gangs.num_cells(); ++c)
      fewest_[c] = static_cast<unsigned char>(bounds_.fewest(c, gangs.most(c)));
    // No candidate costs less.
    const std::uint64_t each =
        costs_ && !classes_.empty() ? (*costs_)({classes_[0].priority, 0}) : 0;
    std::uint64_t read = 0;  // gangs, their nodes, and nodes
    std::size_t batch = 2;   // cells that are searched together
    for (std::uint64_t n = 0; n <= cell_gangs::few + 1 && each * n < cost_; ++n) {
      order_.clear();
      for (std::uint32_t c = 0; c < gangs.num_cells(); ++c) {
        if (fewest_[c] != n) continue;
        const std::uint64_t bound = bound_of(c, gangs.in(c));
        if (bound < cost_) order_.push_back({bound, c});
      }
      keyed_number::sort(order_);
      for (std::size_t i = 0; i < order_.size() && order_[i].key < cost_;) {
        cells_.clear();
        for (; i < order_.size() && order_[i].key < cost_ && cells_.size() < batch; ++i) {
          const std::uint32_t c = order_[i].number;
          const std::uint64_t entries = gangs.entries(c) + view_->free.nodes(level_, c).size();
          if (left() == 0 || !search_.can_read(read + entries, budget_)) break;
          read += entries;
          cells_.push_back(c);
        }
        if (cells_.empty()) {
          lower_bound_ = (std::min)({lower_bound_, order_[i].key, each * (n + 1)});
          budget_ended_ = true;
          return;
        }
        std::sort(cells_.begin(), cells_.end());
        search_some(gangs);
        batch = (std::min)(batch * 4, most_cells);
      }
    }
  }
  [[nodiscard]] std::uint64_t bound_of(std::uint32_t cell,
                                       std::span<const cell_gangs::gang> gangs) {
    of_cell_.clear();
    for (const cell_gangs::gang& g : gangs)
      if (is_candidate(g.slot))
        of_cell_.push_back({cost_function ? 0 : state_->brief_of(g.slot).priority, g.gpus, g.nodes,
                            cost_of(g.slot)});
    return of_cell_.empty() ? never : bounds_.cost(cell, of_cell_);
  }
  // Searches the cells in cells_.
  void search_some(const cell_gangs& gangs) {
    in_order_.clear();
    for (const std::uint32_t c : cells_)
      for (const cell_gangs::gang& g : gangs.in(c))
        if (is_candidate(g.slot)) in_order_.push_back(state_->ordered(g.slot));
    std::sort(in_order_.begin(), in_order_.end(),
              [&](const auto& a, const auto& b) { return state_->is_before(a, b); });
    excerpt_.begin(view_->free, hosts_, level_, cells_);
    begin_list();
    std::uint32_t last = ~std::uint32_t{0};
    for (const scheduled_gangs::ordered_gang& g : in_order_) {
      if (g.slot != last) list(g.slot, &excerpt_);
      last = g.slot;
    }
    if (candidates_.empty()) return;
    search_.set_budget(left());
    const victim_set set = search_(excerpt_.capacities(), request_->gang, candidates_, allocations_,
                                   excerpt_.hosts(), freed_, limits());
    if (!keep(set)) return;
    // The gang fits in a cell with victims.
    nodes_.clear();
    for (const std::uint32_t i : set.victims)
      for (std::uint32_t a = candidates_[i].first; a < candidates_[i].last; ++a)
        nodes_.push_back(excerpt_.to_global(allocations_[a].node));
    cells_of_victims_.clear();
    for (const std::uint32_t c : cells_) {
      const id_range<cell_id> nodes = view_->free.nodes(level_, c);
      if (nodes_.empty() || std::any_of(nodes_.begin(), nodes_.end(), [&](std::uint32_t n) {
            return nodes.contains(cell_id(n));
          }))
        cells_of_victims_.push_back(c);
    }
  }

  static constexpr std::size_t most_cells = 512;         // of a batch
  static constexpr std::uint32_t slots_of_a_step = 256;  // that are read for gangs alone

  scheduled_gangs* state_ = nullptr;
  node_view* view_ = nullptr;
  const gang_scheduler_types::request* request_ = nullptr;
  time_ms now_ = 0;
  std::span<resources> hosts_;  // empty if CPU and memory do not count
  level_t level_ = 0;           // of the cells
  bool in_cells_ = false;       // cells are searched, not the cluster as a whole
  std::uint64_t budget_ = 0;
  std::uint64_t steps_ = 0;
  topology_victim_search<ragged_tree> search_;
  topology_fit<ragged_tree> fit_;                 // of one gang's victims
  std::vector<victim_cost::class_size> classes_;  // of candidates
  std::optional<victim_cost> costs_;              // without a cost function
  bool overcommitted_ = false;        // freed_ counts too little where several victims are together
  std::vector<std::uint32_t> slots_;  // of the candidates
  std::vector<eviction_candidate> candidates_;
  std::vector<gpus_on_node> allocations_;
  std::vector<resources> freed_;
  std::vector<disruption_budget> most_;
  std::vector<std::uint32_t> groups_;  // of each candidate
  std::vector<std::uint32_t> gpus_;    // of each candidate
  victim_bounds bounds_;
  std::vector<victim_bounds::candidate> of_cell_;
  std::vector<unsigned char> fewest_;  // victims, of each cell
  std::vector<keyed_number> order_;    // cells with their bounds
  std::vector<keyed_number> alone_;    // gangs that may be enough alone, with their costs
  std::vector<std::uint32_t> cells_;   // that are searched now
  std::vector<scheduled_gangs::ordered_gang> in_order_;
  cluster_excerpt excerpt_;
  std::vector<std::uint32_t> nodes_;  // of the victims
  std::vector<std::uint32_t> victims_;
  std::vector<std::uint32_t> cells_of_victims_;
  std::uint64_t cost_ = never;
  std::uint64_t lower_bound_ = 0;
  bool budget_ended_ = false;  // somewhere
};

}  // namespace detail
APIARY_NAMESPACE_END
