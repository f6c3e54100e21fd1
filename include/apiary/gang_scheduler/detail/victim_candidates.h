// apiary/gang_scheduler/detail/victim_candidates.h - gangs that may be preempted, and their costs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/job.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_cost.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The disruption budgets of tenants. Cost: set O(tenants with a budget); index O(log).
class tenant_budgets {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // Sets the most that a tenant may lose.
  void set(std::uint32_t tenant, const disruption_budget& most) {
    if (index(tenant) == none) {
      std::size_t i = tenants_.size();
      tenants_.push_back(tenant);
      most_.push_back(most);
      for (; i > 0 && tenants_[i - 1] > tenant; --i) {
        std::swap(tenants_[i - 1], tenants_[i]);
        std::swap(most_[i - 1], most_[i]);
      }
    }
    most_[index(tenant)] = most;
  }
  [[nodiscard]] std::size_t size() const noexcept { return tenants_.size(); }
  // The index of a tenant in most(); none if it has no budget.
  [[nodiscard]] std::uint32_t index(std::uint32_t tenant) const {
    const auto at = std::lower_bound(tenants_.begin(), tenants_.end(), tenant);
    if (at == tenants_.end() || *at != tenant) return none;
    return static_cast<std::uint32_t>(at - tenants_.begin());
  }
  [[nodiscard]] std::span<const disruption_budget> most() const noexcept { return most_; }

 private:
  lean_vector<std::uint32_t> tenants_;  // ascending
  lean_vector<disruption_budget> most_;
};

// The candidates for a new gang: running gangs of lower priority, what the end of each one costs,
// and the disruption budgets that it counts against.
// Cost: begin O(priorities), and O(slots) without a cost function;
//       price has its steps. of() O(log), or a call of the cost function.
class candidate_costs {
 public:
  // The most that a candidate of the caller's cost function costs.
  static constexpr std::uint64_t max_cost = std::uint64_t{1} << 40;

  // The steps that begin() counts as.
  [[nodiscard]] static std::uint64_t price(const scheduled_gangs& state,
                                           const tenant_budgets& budgets) {
    return state.classes().size() / 12 + budgets.size() / 16 + state.num_slots() / 256;
  }
  // function: the cost of a gang; null: priority class, then gangs, then GPU-time. budgets: by
  // tenant. The arguments must not change while the costs are used.
  void begin(const scheduled_gangs& state, std::int32_t below, time_ms now,
             const gang_scheduler_types::cost_function& function, const tenant_budgets& budgets) {
    state_ = &state;
    below_ = below;
    now_ = now;
    function_ = &function;
    budgets_ = &budgets;
    costs_.reset();
    classes_.clear();
    if (function) return;
    for (const scheduled_gangs::priority_class& c : state.classes())
      if (c.priority < below) classes_.push_back({class_of(c.priority), c.gangs});
    costs_.emplace(classes_, state.gpu_time(below, now));
  }
  [[nodiscard]] bool is_candidate(std::uint32_t slot) const noexcept {
    const scheduled_gangs::brief& b = state_->brief_of(slot);
    return b.is_candidate && b.priority < below_;
  }
  [[nodiscard]] std::uint64_t of(std::uint32_t slot) const {
    if (!costs_) return (std::min)((*function_)(state_->at(slot).record, now_), max_cost);
    const scheduled_gangs::brief& b = state_->brief_of(slot);
    return (*costs_)({class_of(b.priority), scheduled_gangs::gpu_time_of(b, now_)});
  }
  // Whether the caller's function decides.
  [[nodiscard]] bool by_function() const noexcept { return !costs_; }
  // No candidate costs less; 0 if that is not known.
  [[nodiscard]] std::uint64_t least() const {
    return costs_ && !classes_.empty() ? (*costs_)({classes_[0].priority, 0}) : 0;
  }
  // How much longer it takes to read a candidate than its nodes alone: 0, 1 or 2 times as long.
  [[nodiscard]] std::uint64_t more_reading() const noexcept {
    return (by_function() ? 1U : 0U) + (budgets_->size() == 0 ? 0U : 1U);
  }

  // Whether the budget of its tenant allows the end of this gang alone.
  [[nodiscard]] bool is_within_budget(std::uint32_t slot) const {
    if (budgets_->size() == 0) return true;
    const std::uint32_t group = group_of(slot);
    if (group == tenant_budgets::none) return true;
    const disruption_budget& most = budgets_->most()[group];
    return most.gangs > 0 && most.gpus >= state_->at(slot).record.gpus;
  }
  // The disruption budgets of these candidates. The spans are valid until the next call.
  [[nodiscard]] disruption_budgets limits(std::span<const std::uint32_t> slots) {
    if (budgets_->size() == 0) return {};
    groups_.clear();
    gpus_.clear();
    for (const std::uint32_t slot : slots) {
      groups_.push_back(group_of(slot));
      gpus_.push_back(static_cast<std::uint32_t>(state_->at(slot).record.gpus));
    }
    return {groups_, budgets_->most(), gpus_};
  }

 private:
  [[nodiscard]] static std::uint32_t class_of(std::int32_t priority) noexcept {
    return static_cast<std::uint32_t>(priority) ^ (1U << 31);
  }
  // The index of its tenant among those with a budget.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t slot) const {
    return budgets_->index(state_->at(slot).record.what.tenant.value);
  }

  const scheduled_gangs* state_ = nullptr;
  std::int32_t below_ = 0;
  time_ms now_ = 0;
  const gang_scheduler_types::cost_function* function_ = nullptr;
  lean_vector<victim_cost::class_size> classes_;  // of candidates
  std::optional<victim_cost> costs_;              // without a cost function
  const tenant_budgets* budgets_ = nullptr;
  std::vector<std::uint32_t> groups_;  // of each candidate
  std::vector<std::uint32_t> gpus_;    // of each candidate
};

// A copy of the free capacity of some cells of one level. If a gang must be in one cell of that
// level or of a lower one, the searches give the same answer for these cells here as in the
// cluster: the levels have the same numbers, and each higher level has one cell.
// Cost: begin O(nodes of the cells * GPUs of a node); to_local and to_global O(log cells).
class cluster_excerpt {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // cells: their positions in level l of the tree of `from`, ascending. hosts: CPU and memory of
  // each node, or empty.
  void begin(const capacity_index<ragged_tree>& from, std::span<const resources> hosts, level_t l,
             std::span<const std::uint32_t> cells) {
    const ragged_tree& tree = from.tree();
    ranges_.clear();
    std::uint32_t nodes = 0;
    for (const std::uint32_t c : cells) {
      const id_range<cell_id> inside = from.nodes(l, c);
      ranges_.push_back({inside.first.value, inside.last.value, nodes});
      nodes += inside.size();
    }
    fans_.assign(tree.num_levels(), {1});
    fans_[tree.num_levels() - 1 - l] = {static_cast<std::uint32_t>(cells.size())};
    row_.assign(cells.begin(), cells.end());
    for (level_t above = l; above > 0; --above) {
      std::vector<std::uint32_t>& fans = fans_[tree.num_levels() - above];
      fans.clear();
      below_.clear();
      for (const std::uint32_t c : row_) {
        const id_range<cell_id> inside = from.inside(above, c, above - 1);
        fans.push_back(inside.size());
        for (const cell_id i : inside) below_.push_back(i.value);
      }
      row_.swap(below_);
    }
    capacities_.emplace(ragged_tree(fans_), level_t{0}, from.max_free());
    hosts_.clear();
    free_.clear();
    for (const range& r : ranges_) {
      const std::span<const std::uint32_t> free = from.free().subspan(r.first, r.last - r.first);
      free_.insert(free_.end(), free.begin(), free.end());
      for (std::uint32_t p = r.first; p < r.last && !hosts.empty(); ++p) hosts_.push_back(hosts[p]);
    }
    capacities_->assign(free_);
  }
  [[nodiscard]] capacity_index<ragged_tree>& capacities() noexcept { return *capacities_; }
  // Empty if CPU and memory do not count.
  [[nodiscard]] std::span<resources> hosts() noexcept { return hosts_; }
  // The number here of the node at a position of the cluster; none if it is not in the cells.
  [[nodiscard]] std::uint32_t to_local(std::uint32_t position) const noexcept {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), position,
                         [](std::uint32_t p, const range& r) { return p < r.first; });
    if (after == ranges_.begin() || position >= (after - 1)->last) return none;
    return (after - 1)->local + (position - (after - 1)->first);
  }
  // The position in the cluster of a node here.
  [[nodiscard]] std::uint32_t to_global(std::uint32_t node) const noexcept {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), node,
                         [](std::uint32_t n, const range& r) { return n < r.local; });
    return (after - 1)->first + (node - (after - 1)->local);
  }

 private:
  struct range {
    std::uint32_t first = 0;  // positions of the nodes of a cell
    std::uint32_t last = 0;
    std::uint32_t local = 0;  // the number of its first node here
  };

  lean_vector<range> ranges_;
  std::vector<std::vector<std::uint32_t>> fans_;
  std::vector<std::uint32_t> row_;
  std::vector<std::uint32_t> below_;
  std::optional<capacity_index<ragged_tree>> capacities_;
  std::vector<std::uint32_t> free_;
  lean_vector<resources> hosts_;
};

// A list of gangs as the searches of preempt/ read them. Cost: add O(nodes of the gang), in an
// excerpt O(nodes of the gang * log cells).
class listed_candidates {
 public:
  // Begins with a view of the state. hosts: those of the view, or empty if CPU and memory do not
  // count.
  void begin(const scheduled_gangs& state, node_view& view, std::span<resources> hosts) {
    state_ = &state;
    view_ = &view;
    hosts_ = hosts;
    overcommitted_ = false;
    clear();
  }
  void clear() {
    slots_.clear();
    candidates_.clear();
    allocations_.clear();
    freed_.clear();
  }
  // Appends a gang with what it would give back on the nodes of the view; of the excerpt, if any.
  void add(std::uint32_t slot, const candidate_costs& costs, const cluster_excerpt* in = nullptr) {
    const auto first = static_cast<std::uint32_t>(allocations_.size());
    for (const scheduled_gangs::on_node& o : state_->at(slot).nodes) {
      const used_node& n = state_->node(o.node);
      const std::uint32_t node = in == nullptr ? n.position : in->to_local(n.position);
      if (node == cluster_excerpt::none || view_->members[n.position] == 0) continue;
      const auto gpus = static_cast<std::uint32_t>(std::popcount(o.mask & n.usable_gpus()));
      if (hosts_.empty()) {
        if (gpus > 0) allocations_.push_back({node, gpus});
        continue;
      }
      if (n.bad) continue;
      allocations_.push_back({node, gpus});
      const resources& has = n.shape.host;
      overcommitted_ =
          overcommitted_ || n.cpu_milli > has.cpu_milli || n.memory_mib > has.memory_mib;
      freed_.push_back({used_node::freed(o.cpu_milli, n.cpu_milli, has.cpu_milli),
                        used_node::freed(o.memory_mib, n.memory_mib, has.memory_mib)});
    }
    const auto last = static_cast<std::uint32_t>(allocations_.size());
    if (first == last) return;
    slots_.push_back(slot);
    candidates_.push_back({costs.of(slot), first, last});
  }
  // Evicts the gangs from the view.
  void evict(transaction& tx) const {
    for (const eviction_candidate& c : candidates_)
      journaled::evict_gang(tx, view_->free, c, allocations_, hosts_, freed_);
  }
  // Evicts the gangs from the excerpt to whose nodes they were added.
  void evict(cluster_excerpt& from) const {
    for (std::size_t a = 0; a < allocations_.size(); ++a) {
      const auto [node, gpus] = allocations_[a];
      from.capacities().set(node, from.capacities().free(node) + gpus);
      if (!hosts_.empty()) from.hosts()[node] += freed_[a];
    }
  }

  [[nodiscard]] bool empty() const noexcept { return candidates_.empty(); }
  [[nodiscard]] std::span<const std::uint32_t> slots() const noexcept { return slots_; }
  [[nodiscard]] std::span<const eviction_candidate> candidates() const noexcept {
    return candidates_;
  }
  [[nodiscard]] std::span<const gpus_on_node> allocations() const noexcept { return allocations_; }
  // CPU and memory of each allocation; empty if they do not count.
  [[nodiscard]] std::span<const resources> freed() const noexcept { return freed_; }
  // Whether freed() counts too little where several victims are together, since begin().
  [[nodiscard]] bool overcommitted() const noexcept { return overcommitted_; }

 private:
  const scheduled_gangs* state_ = nullptr;
  node_view* view_ = nullptr;
  std::span<resources> hosts_;
  bool overcommitted_ = false;
  std::vector<std::uint32_t> slots_;
  lean_vector<eviction_candidate> candidates_;
  lean_vector<gpus_on_node> allocations_;
  lean_vector<resources> freed_;
};

// Lower bounds on the cost of the victims of a gang that must be in one cell of a level. For each
// task size t, the cell lacks D slots of t GPUs. A running gang with G GPUs on N nodes gives back
// at most N * floor(max / t) slots, and at most floor((G + N * (t - 1)) / t).
// Cost: begin O(groups + sizes); fewest, lacks_slots and may_be_enough O(sizes); cost O(sizes *
//       gangs of the cell * log).
class victim_bounds {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  // A gang in the cell that may be preempted.
  struct candidate {
    std::int32_t priority = 0;  // a gang costs at least as much as one of a lower priority, or all
                                // have the same priority here
    std::uint32_t gpus = 0;     // in the cell
    std::uint32_t nodes = 0;    // in the cell
    std::uint64_t cost = 0;
  };

  void begin(const capacity_index<ragged_tree>& free, level_t level,
             const topology_constraints& gang) {
    free_ = &free;
    level_ = level;
    std::array<std::uint64_t, 65> tasks{};  // by GPUs of a task
    for (const constrained_task_group& m : gang.groups)
      tasks[(std::min<std::size_t>)(m.gpus, tasks.size() - 1)] += m.tasks;
    sizes_.clear();
    for (std::uint32_t t = 1; t <= free.max_free(); ++t) {
      if (t > 1 && tasks[t] == 0) continue;
      sizes_.push_back({t, 0});
      for (std::uint32_t gpus = t; gpus < tasks.size(); ++gpus)
        sizes_.back().slots += tasks[gpus] * (gpus / t);
    }
  }
  // The sizes of slots that it counts.
  [[nodiscard]] std::size_t num_sizes() const noexcept { return sizes_.size(); }
  // No fewer victims are enough in this cell; more than cell_gangs::few if all are not.
  [[nodiscard]] std::size_t fewest(std::uint32_t cell, const cell_gangs::sums& most) const {
    std::size_t victims = 0;
    for (const size_needed& s : sizes_) {
      const std::uint64_t missing = missing_slots(s, cell);
      const auto slots = [&](std::size_t k) { return gain(s, most.gpus[k], most.nodes[k]); };
      if (missing == 0) continue;
      if (slots(cell_gangs::few) < missing) return cell_gangs::few + 2;
      std::size_t k = 0;
      while (k < cell_gangs::few && slots(k) < missing) ++k;
      victims = (std::max)(victims, k + 1);
    }
    return victims;
  }
  // Whether the cell lacks slots of a size.
  [[nodiscard]] bool lacks_slots(std::uint32_t cell) const {
    return std::any_of(sizes_.begin(), sizes_.end(),
                       [&](const size_needed& s) { return missing_slots(s, cell) > 0; });
  }
  // Whether one gang with so many GPUs on so many nodes may be enough.
  [[nodiscard]] bool may_be_enough(std::uint32_t cell, std::uint64_t gpus,
                                   std::uint64_t nodes) const {
    return std::all_of(sizes_.begin(), sizes_.end(), [&](const size_needed& s) {
      return gain(s, gpus, nodes) >= missing_slots(s, cell);
    });
  }
  // No set of victims in this cell costs less; never: there is none. Reorders the gangs.
  [[nodiscard]] std::uint64_t cost(std::uint32_t cell, lean_vector<candidate>& gangs) {
    merge_sort(gangs,
               [](const candidate& a, const candidate& b) { return a.priority < b.priority; });
    std::uint64_t bound = 0;
    for (const size_needed& s : sizes_) {
      const std::uint64_t missing = missing_slots(s, cell);
      if (missing > 0) bound = (std::max)(bound, cost_of(s, missing, gangs));
    }
    return bound;
  }

 private:
  struct size_needed {
    std::uint32_t size = 1;
    std::uint64_t slots = 0;
  };
  [[nodiscard]] std::uint64_t missing_slots(const size_needed& s, std::uint32_t cell) const {
    const std::uint32_t present = free_->slots(level_, s.size)[cell];
    return s.slots > present ? s.slots - present : 0;
  }
  [[nodiscard]] std::uint64_t gain(const size_needed& s, std::uint64_t gpus,
                                   std::uint64_t nodes) const noexcept {
    if (s.size == 1) return gpus;
    return (std::min)(nodes * (free_->max_free() / s.size), (gpus + nodes * (s.size - 1)) / s.size);
  }
  // All gangs of low priorities are not enough: so many of the others are needed.
  [[nodiscard]] std::uint64_t cost_of(const size_needed& s, std::uint64_t missing,
                                      std::span<const candidate> gangs) {
    std::size_t first = 0;  // the first gang of the lowest priority that is needed
    std::uint64_t lower = 0;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < gangs.size() && sum < missing; ++i) {
      if (gangs[i].priority != gangs[first].priority) {
        first = i;
        lower = sum;
      }
      sum += gain(s, gangs[i].gpus, gangs[i].nodes);
    }
    if (sum < missing) return never;
    const std::span<const candidate> others = gangs.subspan(first);
    gains_.clear();
    for (const candidate& g : others) gains_.push_back(gain(s, g.gpus, g.nodes));
    merge_sort(gains_);
    std::size_t n = 0;  // fewer than n + 1 others are not enough
    sum = lower;
    for (; sum + gains_[gains_.size() - 1 - n] < missing; ++n) sum += gains_[gains_.size() - 1 - n];
    // Exactly n + 1 others: then each of them gives at least this much. Or more of them.
    return (std::min)(cheapest(s, others, n + 1, missing - sum), cheapest(s, others, n + 2, 0));
  }
  // The sum of the n lowest costs of gangs that give so many slots; never if there are fewer.
  [[nodiscard]] std::uint64_t cheapest(const size_needed& s, std::span<const candidate> gangs,
                                       std::size_t n, std::uint64_t at_least) {
    costs_.clear();
    for (const candidate& g : gangs)
      if (gain(s, g.gpus, g.nodes) >= at_least) costs_.push_back(g.cost);
    if (costs_.size() < n) return never;
    std::nth_element(costs_.begin(), costs_.begin() + (n - 1), costs_.end());
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += costs_[i];
    return sum;
  }

  const capacity_index<ragged_tree>* free_ = nullptr;
  level_t level_ = 1;
  lean_vector<size_needed> sizes_;
  lean_vector<std::uint64_t> gains_;
  lean_vector<std::uint64_t> costs_;
};

}  // namespace detail
APIARY_NAMESPACE_END
