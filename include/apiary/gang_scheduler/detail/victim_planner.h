// apiary/gang_scheduler/detail/victim_planner.h - the victims of a gang that does not fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/budgeted_fit.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_candidates.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds the victims of a gang at least cost. If the gang must be in one rack, or in one cell of a
// higher level, cells are searched in ascending order of lower bounds on the cost, some at a time,
// until no bound is below the cost of the best set. Otherwise one gang may be enough: the cheapest
// gangs are tried alone. If none of them is enough, the cluster is searched as a whole.
//
// All of it is within one budget of steps. What it reads counts: bounds of cells, the candidates
// and nodes that it lists, the gangs that it tries alone, besides the steps of
// topology_victim_search. What the budget does not pay for is not read; the bound of a cell is then
// the cost of so many of the cheapest gangs as it needs at least.
// Cost: the budget, and bringing the lists of gangs up to date: O(nodes of what has changed since
//       the last search), all the first time. Memory: O(nodes + gangs).
class victim_planner {
 public:
  static constexpr std::uint64_t never = victim_set::never;

  gang_scheduler_types::cost_function cost_function{};
  tenant_budgets budgets{};

  // Whether it has found a set of victims; it may be empty if the gang fits. refused: it is certain
  // that the gang does not fit now. budget: the most steps of the call; search_budget: the most of
  // them that topology_victim_search may take.
  bool operator()(scheduled_gangs& state, node_view& view, const gang_scheduler_types::request& r,
                  bool refused, bool with_hosts, time_ms now, std::uint64_t budget,
                  std::uint64_t search_budget = never) {
    budget_ = budget;
    search_budget_ = search_budget;
    steps_ = 0;
    searched_ = 0;
    lower_bound_ = 0;
    state_ = &state;
    view_ = &view;
    request_ = &r;
    hosts_ = with_hosts ? std::span(view.hosts) : std::span<resources>();
    list_.begin(state, view, hosts_);
    victims_.clear();
    cells_of_victims_.clear();
    cost_ = never;
    level_ = (std::max)(r.gang.required, level_t{1});
    in_cells_ = level_ < state.layout().num_levels();
    budget_ended_ = !pay(candidate_costs::price(state, budgets) + r.gang.groups.size() / 16);
    if (budget_ended_) return false;
    costs_.begin(state, r.priority, now, cost_function, budgets);
    if (in_cells_) {
      search_cells();
      if (!refused) lower_bound_ = 0;  // cells without candidates are not searched
    } else if (!refused || !find_one_gang()) {
      search_cluster();
    }
    if (refused) lower_bound_ = (std::max)(lower_bound_, costs_.least());  // one gang ends
    lower_bound_ = list_.overcommitted() ? 0 : (std::min)(lower_bound_, cost_);
    return cost_ != never;
  }
  // The slots of the victims, in ascending order of their jobs.
  [[nodiscard]] std::span<const std::uint32_t> victims() const noexcept { return victims_; }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  // Whether it has found no set, but not looked everywhere.
  [[nodiscard]] bool budget_ended() const noexcept { return budget_ended_ && cost_ == never; }
  // No set costs less.
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return lower_bound_; }
  // After a search that found victims: whether cells were searched, not the cluster as a whole, and
  // the nodes of the cells of the victims.
  [[nodiscard]] bool in_cells() const noexcept { return in_cells_; }
  [[nodiscard]] std::uint64_t excerpt_nodes() const {
    std::uint64_t nodes = 0;
    for (const std::uint32_t c : cells_of_victims_) nodes += view_->free.nodes(level_, c).size();
    return nodes;
  }
  // These cells, with the victims evicted. Requires: in_cells().
  [[nodiscard]] cluster_excerpt& excerpt() {
    excerpt_.begin(view_->free, hosts_, level_, cells_of_victims_);
    list_.clear();
    for (const std::uint32_t slot : victims_) list_.add(slot, costs_, &excerpt_);
    list_.evict(excerpt_);
    return excerpt_;
  }
  // Evicts these gangs from the view of the last search.
  void evict(transaction& tx, std::span<const std::uint32_t> slots) {
    list_.clear();
    for (const std::uint32_t slot : slots) list_.add(slot, costs_);
    list_.evict(tx);
  }

 private:
  [[nodiscard]] std::uint64_t left() const { return budget_ - (std::min)(budget_, steps_); }
  // The steps that the searches of topology_victim_search may still take.
  [[nodiscard]] std::uint64_t search_left() const {
    return (std::min)(left(), search_budget_ - (std::min)(search_budget_, searched_));
  }
  bool pay(std::uint64_t steps) noexcept {
    if (steps > left()) return false;
    steps_ += steps;
    return true;
  }

  // Counts the steps of a search, and keeps its set if it costs less than the best one so far. All
  // sets that it could have found cost at least `least`.
  bool keep(const victim_set& set, std::uint64_t least = 0) {
    steps_ += set.steps;
    searched_ += set.steps;
    if (set.verdict != fit_verdict::does_not_fit)
      lower_bound_ = (std::min)(lower_bound_, (std::max)(set.lower_bound, least));
    budget_ended_ = budget_ended_ || set.verdict == fit_verdict::budget_ended;
    if (set.verdict != fit_verdict::fits || set.cost >= cost_) return false;
    cost_ = set.cost;
    victims_.clear();
    for (const std::uint32_t i : set.victims) victims_.push_back(list_.slots()[i]);
    return true;
  }
  // Whether the cheapest gang that is enough alone is known and costs at most as much as any two
  // gangs. The cheapest gangs are tried one after the other; of equal ones, that of the first job.
  // It takes an eighth of the budget; the last gang that is tried may take another eighth.
  // Requires: it is certain that the gang does not fit now.
  bool find_one_gang() {
    const std::uint64_t eighth = budget_ / 8;
    // The steps that each gang counts as, besides those of topology_fit.
    const topology_constraints& asked = request_->gang;
    const bool reads_nodes = !hosts_.empty() || !step_prices::only_gpus(asked);
    const std::uint64_t each =
        (std::max<std::uint64_t>)(128, reads_nodes ? view_->free.num_nodes() / 16 : 0) +
        asked.groups.size() / 8;
    if (costs_.by_function() || costs_.least() == 0 || each > eighth) return false;
    bounds_.begin(view_->free, view_->free.top(), asked);
    if (!bounds_.lacks_slots(0)) return false;  // all gangs may be enough
    // The eighth does not pay for this: which gangs are tried must not depend on how many ran once.
    if (!pay(state_->num_slots() / slots_of_a_step)) return false;
    const std::uint64_t used = try_alone(eighth, each);
    steps_ += used;
    return cost_ != never;
  }
  // Tries gangs alone, and keeps the first that is enough. Returns the steps that it took.
  std::uint64_t try_alone(std::uint64_t eighth, std::uint64_t each) {
    alone_.clear();
    std::uint64_t cost = never;  // of the gangs in equal_
    for (std::uint32_t slot = 0; slot < state_->num_slots(); ++slot) {
      const scheduled_gangs::brief& b = state_->brief_of(slot);
      if (!costs_.is_candidate(slot) || !bounds_.may_be_enough(0, b.gpus, b.nodes)) continue;
      const std::uint64_t of_gang = costs_.of(slot);
      if (of_gang <= 2 * costs_.least()) alone_.push_back({of_gang, slot});
      cost = (std::min)(cost, of_gang);
    }
    keyed_number* const equal = std::partition(
        alone_.begin(), alone_.end(), [&](const keyed_number& k) { return k.key != cost; });
    std::uint64_t used = static_cast<std::uint64_t>(equal - alone_.begin()) / 64;
    equal_.clear();
    // A list that is cut off has used the eighth: none of its gangs is tried.
    for (const keyed_number* at = equal;
         at != alone_.end() && used + equal_.size() / 16 + each <= eighth; ++at)
      equal_.push_back(state_->ordered(at->number));
    used += equal_.size() / 16;
    alone_.erase_from(equal);
    keyed_number::make_heap(alone_);
    const auto later = [&](const auto& a, const auto& b) { return state_->is_before(b, a); };
    topology_constraints gang = request_->gang;
    gang.preferred = any_level;
    fit_.set_budget(eighth);
    std::make_heap(equal_.begin(), equal_.end(), later);
    for (bool known = true; known && used + each <= eighth;) {
      if (equal_.empty()) {
        if (alone_.empty()) break;
        cost = alone_.front().key;
        while (!alone_.empty() && alone_.front().key == cost &&
               used + equal_.size() / 8 + each <= eighth)
          equal_.push_back(state_->ordered(keyed_number::pop(alone_).number));
        used += equal_.size() / 8;
        std::make_heap(equal_.begin(), equal_.end(), later);
      }
      std::pop_heap(equal_.begin(), equal_.end(), later);
      const std::uint32_t one = equal_.back().slot;
      equal_.pop_back();
      if (!costs_.is_within_budget(one)) {
        used += 3;  // to take it from the heap
        continue;
      }
      const std::uint64_t price = each + step_prices::of_changes(state_->brief_of(one).nodes);
      if (used + price > eighth) break;
      journal log;
      transaction tx(log);
      evict(tx, {&one, 1});
      const auto then = fit_(view_->free, gang, hosts_);
      used += price + then.steps;
      known = then.verdict == fit_verdict::does_not_fit || then.is_refused;
      if (then.verdict != fit_verdict::fits) continue;
      victims_.assign(1, one);
      cost_ = lower_bound_ = cost;
      break;
    }
    return used;
  }
  void search_cluster() {
    const std::uint64_t gangs = state_->entries(request_->priority);
    const std::uint64_t entries = state_->nodes().num_nodes() + gangs;
    const std::uint64_t price = state_->num_slots() / 12 + gangs / (hosts_.empty() ? 32 : 16) +
                                costs_.more_reading() * gangs / 16;
    budget_ended_ = !pay(price) || !search_.can_read(entries, search_left());
    if (budget_ended_) return;
    lower_bound_ = never;
    list_.clear();
    // Reading takes at most three times one step for 48 entries.
    search_.set_budget((std::min)(left(), search_left() + entries / 16));
    for (const scheduled_gangs::ordered_gang& g : state_->in_order())
      if (costs_.is_candidate(g.slot)) list_.add(g.slot, costs_);
    if (!list_.empty()) keep(search(view_->free, hosts_));
  }

  victim_set search(capacity_index<ragged_tree>& capacities, std::span<const resources> hosts) {
    return search_(capacities, request_->gang, list_.candidates(), list_.allocations(), hosts,
                   list_.freed(), costs_.limits(list_.slots()));
  }
  void search_cells() {
    bounds_.begin(view_->free, level_, request_->gang);
    const std::uint64_t cells = view_->free.num_cells(level_);
    budget_ended_ = !pay(cells * (2 + 2 * bounds_.num_sizes()) / 128);
    if (budget_ended_) return;
    lower_bound_ = never;
    const cell_gangs& gangs = state_->in_cells(level_);
    fewest_.resize(gangs.num_cells());
    for (std::uint32_t c = 0; c < gangs.num_cells(); ++c)
      fewest_[c] = static_cast<unsigned char>(bounds_.fewest(c, gangs.most(c)));
    const std::uint64_t each = costs_.least();
    std::size_t batch = 2;  // cells that are searched together
    for (std::uint64_t n = 0; n <= cell_gangs::few + 1 && each * n < cost_; ++n) {
      order_.clear();
      for (std::uint32_t c = 0; c < gangs.num_cells(); ++c) {
        if (fewest_[c] != n) continue;
        const std::uint64_t bound = bound_of(c, gangs.in(c), each * n);
        if (bound < cost_) order_.push_back({bound, c});
      }
      keyed_number::make_heap(order_);
      while (!order_.empty() && order_.front().key < cost_) {
        cells_.clear();
        const std::uint64_t least = order_.front().key;
        std::uint64_t read = 0;    // gangs, and their nodes in these cells
        std::uint64_t listed = 0;  // gangs, each once, and all their nodes
        std::uint64_t nodes = 0;   // of the cells
        ++batch_;
        while (!order_.empty() && order_.front().key < cost_ && cells_.size() < batch) {
          const std::uint32_t c = order_.front().number;
          const std::uint64_t nodes_here = view_->free.nodes(level_, c).size();
          const std::uint64_t more = entries_not_listed(gangs.in(c));
          if (!affords(read + gangs.entries(c), listed + more, nodes + nodes_here)) break;
          listed += more;
          read += gangs.entries(c);
          nodes += nodes_here;
          cells_.push_back(c);
          keyed_number::pop(order_);
        }
        if (cells_.empty()) {
          lower_bound_ = (std::min)({lower_bound_, order_.front().key, each * (n + 1)});
          budget_ended_ = true;
          return;
        }
        steps_ += price_of(listed, nodes);
        merge_sort(cells_);
        search_some(gangs, least);
        batch = (std::min)(batch * 4, most_cells);
      }
    }
  }
  // Gangs that are in no other cell of the batch, and all their nodes.
  [[nodiscard]] std::uint64_t entries_not_listed(std::span<const cell_gangs::gang> gangs) {
    std::uint64_t sum = 0;
    if (in_batch_.size() < state_->num_slots()) in_batch_.resize(state_->num_slots(), 0);
    for (const cell_gangs::gang& g : gangs) {
      if (in_batch_[g.slot] == batch_) continue;
      in_batch_[g.slot] = batch_;
      sum += 1 + std::uint64_t{state_->brief_of(g.slot).nodes};
    }
    return sum;
  }
  // The steps to list so many gangs and their nodes, and to copy so many nodes.
  [[nodiscard]] std::uint64_t price_of(std::uint64_t entries, std::uint64_t nodes) const {
    return (1 + costs_.more_reading()) * entries / 16 + step_prices::of_excerpt(nodes);
  }
  // Whether the budget pays for them, and for a search that reads so many of them.
  [[nodiscard]] bool affords(std::uint64_t read, std::uint64_t listed, std::uint64_t nodes) const {
    const std::uint64_t price = price_of(listed, nodes);
    if (price >= left() || search_left() == 0) return false;
    const std::uint64_t rest = (std::min)(left() - price, search_left());
    return search_.can_read(read + nodes, request_->gang.groups.size() > 1 ? rest / 3 : rest);
  }
  // A lower bound on the cost of the victims in a cell; it is `least` if a better one takes more
  // than half of the steps that are left.
  [[nodiscard]] std::uint64_t bound_of(std::uint32_t cell, std::span<const cell_gangs::gang> gangs,
                                       std::uint64_t least) {
    const std::uint64_t looks = gangs.size() * (1 + bounds_.num_sizes() + costs_.more_reading());
    if (looks / 24 > left() / 2) return least;
    pay(looks / 24);
    of_cell_.clear();
    for (const cell_gangs::gang& g : gangs)
      if (costs_.is_candidate(g.slot))
        of_cell_.push_back({costs_.by_function() ? 0 : state_->brief_of(g.slot).priority, g.gpus,
                            g.nodes, costs_.of(g.slot)});
    return of_cell_.empty() ? never : bounds_.cost(cell, of_cell_);
  }
  // Searches the cells in cells_. `least`: the least of their bounds.
  void search_some(const cell_gangs& gangs, std::uint64_t least) {
    in_order_.clear();
    for (const std::uint32_t c : cells_)
      for (const cell_gangs::gang& g : gangs.in(c))
        if (costs_.is_candidate(g.slot)) in_order_.push_back(state_->ordered(g.slot));
    excerpt_.begin(view_->free, hosts_, level_, cells_);
    state_->sort(in_order_);
    list_.clear();
    for (std::size_t i = 0; i < in_order_.size(); ++i)
      if (i == 0 || in_order_[i].slot != in_order_[i - 1].slot)
        list_.add(in_order_[i].slot, costs_, &excerpt_);
    if (list_.empty()) return;
    search_.set_budget(search_left());
    const victim_set set = search(excerpt_.capacities(), excerpt_.hosts());
    if (!keep(set, least)) return;
    // The gang fits in a cell with victims.
    nodes_.clear();
    for (const std::uint32_t i : set.victims)
      for (std::uint32_t a = list_.candidates()[i].first; a < list_.candidates()[i].last; ++a)
        nodes_.push_back(excerpt_.to_global(list_.allocations()[a].node));
    merge_sort(nodes_);
    cells_of_victims_.clear();
    for (const std::uint32_t c : cells_) {
      const id_range<cell_id> inside = view_->free.nodes(level_, c);
      const auto first = std::lower_bound(nodes_.begin(), nodes_.end(), inside.first.value);
      if (nodes_.empty() || (first != nodes_.end() && *first < inside.last.value))
        cells_of_victims_.push_back(c);
    }
  }

  static constexpr std::size_t most_cells = 512;         // of a batch
  static constexpr std::uint32_t slots_of_a_step = 256;  // that are read
  scheduled_gangs* state_ = nullptr;
  node_view* view_ = nullptr;
  const gang_scheduler_types::request* request_ = nullptr;
  std::span<resources> hosts_;  // empty if CPU and memory do not count
  level_t level_ = 0;           // of the cells
  bool in_cells_ = false;       // cells are searched, not the cluster as a whole
  std::uint64_t budget_ = 0;
  std::uint64_t search_budget_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t searched_ = 0;  // the steps of search_
  topology_victim_search<ragged_tree> search_;
  topology_fit<ragged_tree> fit_;                     // with one gang evicted
  lean_vector<keyed_number> alone_;                   // gangs that may be enough alone, their costs
  lean_vector<scheduled_gangs::ordered_gang> equal_;  // those that cost the same
  candidate_costs costs_;
  listed_candidates list_;
  victim_bounds bounds_;
  lean_vector<victim_bounds::candidate> of_cell_;
  lean_vector<unsigned char> fewest_;    // victims, of each cell
  lean_vector<keyed_number> order_;      // cells with their bounds
  lean_vector<std::uint64_t> in_batch_;  // by slot: the last batch that the gang was in
  std::uint64_t batch_ = 0;
  std::vector<std::uint32_t> cells_;  // that are searched now
  lean_vector<scheduled_gangs::ordered_gang> in_order_;
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
