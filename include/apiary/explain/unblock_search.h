// apiary/explain/unblock_search.h - which nodes to free or repair, so that a waiting gang fits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/explain/detail/node_freeing.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/min_cost_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/topology/cell_names.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The answer of unblock_search: nodes to free so that a gang fits, also as a sentence.
struct unblock_set {
  // fits:         the gang fits with these nodes free; no nodes if it fits now.
  // does_not_fit: the gang does not fit even if all nodes are wholly free.
  // budget_ended: it is not known.
  fit_verdict verdict = fit_verdict::budget_ended;
  std::span<const std::uint32_t> nodes{};  // ascending; valid until the next call
  std::uint64_t gpus = 0;                  // GPUs of these nodes that are not free now
  level_t node_level = 0;                  // the level of the nodes
  level_t level = 0;                       // the level that the gang requires
  std::uint32_t cell = 0;                  // position of their cell in that level
  bool is_least = false;    // no other set has fewer GPUs that are not free; false if not known
  bool all_needed = true;   // the gang does not fit without any one of them; false if not known
  std::uint64_t steps = 0;  // steps of the budget that were used

  // A sentence for users: "the gang would fit if nodes n3 and n9 in rack r7 were free (12 more
  // GPUs)".
  [[nodiscard]] std::string text(const cell_names& names) const {
    if (verdict == fit_verdict::does_not_fit)
      return "the gang does not fit even if all nodes are free";
    if (verdict == fit_verdict::budget_ended) return "it is not known which nodes to free";
    if (nodes.empty()) return "the gang fits now";
    const std::string where = names.cell(level, cell);
    const bool is_whole = level == node_level || where.starts_with("the ");
    return "the gang would fit if " + names.cells(node_level, nodes) +
           (is_whole ? "" : " in " + where) + " were free (" +
           (gpus > 0 ? std::to_string(gpus) + (gpus == 1 ? " more GPU)" : " more GPUs)")
                     : "the GPUs are free, but CPU or memory is not)");
  }
};

// Finds nodes to free: if they were emptied or repaired, a waiting gang would fit. It looks for the
// set in which the fewest GPUs are in use. Use it to tell a user or an operator what would help.
//
// It computes the least set exactly (min_cost_fit) if half of the budget is enough for that: not
// for more than some tens of kinds of tasks. Otherwise it calls topology_victim_search with each
// node as a candidate. If that finds no set, either, it begins with all nodes that the gang would
// take if all were free. Then it removes nodes that are not needed from the set. It changes the
// capacity index while it runs, and restores it.
//
// Requires: gang.valid(). The level that the gang prefers does not count.
// Invalid:  aborts (APIARY_VERIFY) if a capacity is below what the node has free or above
//           capacities.max_free(), or if a node has none; CPU and memory likewise.
// Cost:     O(nodes * log + task groups), and the budget; a step takes at most 0.1 microseconds.
// Example:  explain/README.md; through gang_scheduler examples/what_would_it_take.cpp
template <CellTree Tree>
class unblock_search {
 public:
  // budget: the most steps that one call may take.
  explicit unblock_search(std::uint64_t budget = 1'000'000) noexcept
      : budget_((std::min)(budget, detail::step_budget::limit)),
        least_(budget_ / 2 * detail::sums_of_a_step),
        victims_(budget_ / 4) {}

  // Searches the nodes. The answer is valid until the next call.
  //   capacity       GPUs of each node when it is wholly free
  //   hosts          free CPU and memory of each node, or empty if they do not count
  //   host_capacity  CPU and memory of each node when it is wholly free, or empty if freeing a node
  //                  does not change them
  unblock_set operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
                         std::span<const std::uint32_t> capacity,
                         std::span<const resources> hosts = {},
                         std::span<const resources> host_capacity = {}) {
    APIARY_VERIFY(capacity.size() == capacities.num_nodes());
    APIARY_VERIFY(hosts.empty() ? host_capacity.empty() : hosts.size() == capacity.size());
    APIARY_VERIFY(host_capacity.empty() || host_capacity.size() == capacity.size());
    for (std::uint32_t n = 0; n < capacity.size(); ++n) {
      APIARY_VERIFY(capacities.free(n) <= capacity[n] && capacity[n] <= capacities.max_free());
      APIARY_VERIFY(host_capacity.empty() || hosts[n].fits_in(host_capacity[n]));
    }
    begin(capacities, gang, capacity, hosts, host_capacity);
    best_.verdict = try_fit();
    best_.cell = placed_in_;
    best_.is_least = best_.verdict == fit_verdict::fits;
    if (best_.verdict != fit_verdict::fits) best_.verdict = search();
    best_.nodes = nodes_;
    best_.steps = steps_;
    return best_;
  }

 private:
  using node_free = detail::node_free;

  void begin(capacity_index<Tree>& capacities, const topology_constraints& gang,
             std::span<const std::uint32_t> capacity, std::span<const resources> hosts,
             std::span<const resources> host_capacity) {
    capacities_ = &capacities;
    gang_ = gang;
    gang_.preferred = any_level;
    hosts_.assign(hosts);
    frees_host_ = !host_capacity.empty();
    level_ = gang.required == any_level ? capacities.top() : gang.required;
    groups_.assign(gang, capacities.node_level(), capacities.top());
    by_node_ = !hosts.empty() || groups_.lowest_constraint() != any_level;
    now_.clear();
    whole_.clear();
    for (std::uint32_t n = 0; n < capacity.size(); ++n) {
      now_.push_back({capacities.free(n), hosts.empty() ? resources{} : hosts[n]});
      whole_.push_back({capacity[n], frees_host_ ? host_capacity[n] : now_[n].host});
    }
    fit_.set_budget(budget_ / 2);
    nodes_.clear();
    best_ = {};
    best_.node_level = capacities.node_level();
    best_.level = level_;
    placed_in_ = 0;
    steps_ = 0;
  }

  // What keeps a set, in ascending order of what it costs: fewer GPUs, then fewer nodes.
  [[nodiscard]] std::uint64_t cost_of(std::uint32_t n) const {
    return detail::cost_of_freeing(now_[n], whole_[n], now_.size());
  }
  [[nodiscard]] bool pay(std::uint64_t steps) noexcept {
    if (steps > budget_ - steps_) return false;
    steps_ += steps;
    return true;
  }
  // What topology_fit looks at outside its budget: task groups, and nodes or classes of nodes in
  // cells.
  [[nodiscard]] std::uint64_t fit_steps() const {
    const std::uint64_t looks = by_node_ ? now_.size() / 4 : 0;
    return 1 + looks + capacities_->num_cells(level_) / 4 + gang_.groups.size() / 2;
  }
  [[nodiscard]] bool affords_fit() const { return fit_steps() <= budget_ - steps_; }
  // The verdict for the nodes as they are; after a yes, placed_ has the nodes of the gang.
  fit_verdict try_fit() {
    if (!pay(fit_steps())) return fit_verdict::budget_ended;
    const auto found = fit_(*capacities_, gang_, hosts_);
    steps_ += (std::min)(found.steps, budget_ - steps_);
    if (found.verdict != fit_verdict::fits) return found.verdict;
    placed_in_ = found.cell;
    placed_.clear();
    for (const tasks_on_node& p : found.portions) placed_.push_back(p.node);
    detail::merge_sort(placed_);
    return found.verdict;
  }

  fit_verdict search() {
    found_ = false;
    cost_ = 0;
    fit_verdict verdict = search_least();
    if (verdict == fit_verdict::does_not_fit || found_) return verdict;
    const bool has_greedy = verdict == fit_verdict::fits;
    const std::vector<std::uint32_t> greedy = has_greedy ? enough_ : std::vector<std::uint32_t>{};
    const std::uint32_t greedy_in = enough_in_;
    verdict = search_victims();
    if (verdict == fit_verdict::does_not_fit || found_) return verdict;
    // Each fit has enough for some greedy tries, and at most an eighth of the budget; more than for
    // such tries only if that does not decide whether the gang fits at all.
    std::uint64_t of_fit =
        (std::min)(budget_ / 8, 1'000 + std::uint64_t{20} * groups_.size() * now_.size());
    fit_.set_budget(of_fit);
    if (verdict == fit_verdict::fits) give_back(enough_, enough_in_);
    if (has_greedy) give_back(greedy, greedy_in);
    if (found_) return fit_verdict::fits;
    verdict = free_all();
    while (verdict == fit_verdict::budget_ended && of_fit < budget_ / 8 && affords_fit()) {
      of_fit = (std::min)(8 * of_fit, budget_ / 8);
      fit_.set_budget(of_fit);
      verdict = free_all();
    }
    if (verdict == fit_verdict::fits) give_back(enough_, enough_in_);
    return verdict;
  }
  // By dynamic programming over the tasks: exact, or nothing is known.
  fit_verdict search_least() {
    if (!affords_least()) return fit_verdict::budget_ended;
    detail::classes_of_nodes(now_, whole_, classes_, class_nodes_);
    const detail::freeing_cost cost{&groups_, now_, whole_, class_nodes_, hosts_.empty()};
    const auto found =
        least_(capacities_->tree(), capacities_->node_level(), gang_, classes_, cost);
    steps_ += (std::min)(found.steps / detail::sums_of_a_step, budget_ - steps_);
    if (found.verdict != fit_verdict::fits) return found.verdict;
    if (!groups_.links().empty()) return fit_verdict::budget_ended;  // it may have split replicas
    cost.nodes_to_free(groups_, gang_, found.portions, classes_, enough_);
    enough_in_ = found.cell;
    best_.is_least = found.is_least;
    if (found.is_least) keep(enough_, enough_in_, true);
    return fit_verdict::fits;
  }
  // Whether min_cost_fit has enough steps for its tables, or to read all and for one greedy try.
  [[nodiscard]] bool affords_least() const {
    const std::uint64_t most = least_.budget();
    std::uint64_t vectors = 1;
    for (std::size_t u = 0; u < groups_.size() && vectors <= most; ++u)
      vectors *= std::uint64_t{groups_[u].tasks} + 1;
    if (vectors <= most) return true;
    std::uint64_t smallest = now_.size();
    for (std::uint32_t c = 0; c < capacities_->num_cells(level_); ++c) {
      const id_range<cell_id> nodes = capacities_->nodes(level_, c);
      if (std::any_of(nodes.begin(), nodes.end(),
                      [&](cell_id n) { return whole_[n.value] != node_free{}; }))
        smallest = (std::min<std::uint64_t>)(smallest, nodes.size());
    }
    const std::uint64_t to_read = now_.size() * groups_.size() / 2;
    return to_read + min_cost_fit<Tree>::greedy_steps(smallest, groups_.size()) <= most;
  }
  // Each node is one gang to evict.
  fit_verdict search_victims() {
    candidates_.clear();
    allocations_.clear();
    freed_.clear();
    for (std::uint32_t n = 0; n < now_.size(); ++n) {
      if (now_[n] == whole_[n]) continue;
      const auto at = static_cast<std::uint32_t>(allocations_.size());
      candidates_.push_back({cost_of(n), at, at + 1});
      allocations_.push_back({n, whole_[n].gpus - now_[n].gpus});
      if (hosts_.empty()) continue;
      freed_.push_back(whole_[n].host);
      freed_.back() -= now_[n].host;
    }
    victims_.set_budget((std::min)(budget_ / 4, budget_ - steps_));
    const victim_set found =
        victims_(*capacities_, gang_, candidates_, allocations_, hosts_, freed_);
    steps_ += found.steps;
    if (found.verdict != fit_verdict::fits) return found.verdict;
    enough_.clear();
    for (const std::uint32_t v : found.victims) enough_.push_back(allocations_[v].node);
    enough_in_ = cell_of(enough_);
    best_.is_least = found.cost == found.lower_bound;
    if (best_.is_least) keep(enough_, enough_in_, true);
    return fit_verdict::fits;
  }
  // The verdict with all nodes wholly free; after a yes, enough_ has those that the gang then uses.
  fit_verdict free_all() {
    if (!affords_fit()) return fit_verdict::budget_ended;
    transaction tx(log_);
    for (std::uint32_t n = 0; n < now_.size(); ++n)
      if (now_[n] != whole_[n]) set_node(tx, n, whole_[n]);
    const fit_verdict verdict = try_fit();
    if (verdict != fit_verdict::fits) return verdict;
    enough_.clear();
    for (const std::uint32_t n : placed_)
      if (now_[n] != whole_[n]) enough_.push_back(n);
    enough_.erase(std::unique(enough_.begin(), enough_.end()), enough_.end());
    enough_in_ = placed_in_;
    return verdict;
  }
  // Keeps these nodes, with which the gang fits, without those that are not needed, the most
  // expensive first. A node that is needed now stays needed with fewer nodes.
  void give_back(std::span<const std::uint32_t> enough, std::uint32_t cell) {
    detail::lean_vector<keyed_number> by_cost;
    transaction tx(log_);
    for (const std::uint32_t n : enough) {
      set_node(tx, n, whole_[n]);
      by_cost.push_back({~cost_of(n), n});
    }
    keyed_number::sort(by_cost);
    std::vector<std::uint32_t> needed;
    bool all_needed = true;
    for (const auto& [rank, n] : by_cost) {
      transaction back(log_);
      set_node(back, n, now_[n]);
      const fit_verdict verdict = try_fit();
      if (verdict == fit_verdict::fits) {
        back.commit();
        continue;
      }
      all_needed = all_needed && verdict == fit_verdict::does_not_fit;
      needed.push_back(n);
    }
    keep(needed, cell, all_needed);
  }
  // Keeps these nodes if they cost less than what was found before.
  void keep(std::span<const std::uint32_t> nodes, std::uint32_t cell, bool all_needed) {
    std::uint64_t cost = 0;
    std::uint64_t gpus = 0;
    for (const std::uint32_t n : nodes) {
      cost += cost_of(n);
      gpus += whole_[n].gpus - now_[n].gpus;
    }
    if (found_ && cost >= cost_) return;
    found_ = true;
    cost_ = cost;
    nodes_.assign(nodes.begin(), nodes.end());
    detail::merge_sort(nodes_);
    best_.gpus = gpus;
    best_.cell = cell;
    best_.all_needed = all_needed;
  }
  // A step pays for this and for the rollback.
  void set_node(transaction& tx, std::uint32_t n, const node_free& to) {
    steps_ += (std::min)(std::uint64_t{1}, budget_ - steps_);
    tx.set(*capacities_, n, to.gpus);
    if (frees_host_) detail::set_host(tx, hosts_[n], to.host);
  }
  [[nodiscard]] std::uint32_t cell_of(std::span<const std::uint32_t> nodes) const {
    std::uint32_t cell = 0;
    while (!nodes.empty() && !capacities_->nodes(level_, cell).contains(cell_id(nodes[0]))) ++cell;
    return cell;
  }

  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  topology_fit<Tree> fit_;
  min_cost_fit<Tree> least_;
  topology_victim_search<Tree> victims_;
  journal log_;
  capacity_index<Tree>* capacities_ = nullptr;
  topology_constraints gang_;
  colocated_groups groups_;
  level_t level_ = 0;
  bool by_node_ = false;     // CPU, memory or constraints below the required level count
  bool frees_host_ = false;  // a freed node gives CPU and memory back
  detail::lean_vector<node_free> now_;
  detail::lean_vector<node_free> whole_;
  detail::lean_vector<resources> hosts_;    // as the nodes are
  std::vector<std::uint32_t> classes_;      // of each node
  std::vector<std::uint32_t> class_nodes_;  // a node of each class
  detail::lean_vector<eviction_candidate> candidates_;
  detail::lean_vector<gpus_on_node> allocations_;
  detail::lean_vector<resources> freed_;
  std::vector<std::uint32_t> placed_;  // nodes that the gang takes, ascending
  std::uint32_t placed_in_ = 0;        // their cell
  std::vector<std::uint32_t> enough_;  // nodes with which the gang fits
  std::uint32_t enough_in_ = 0;        // their cell
  bool found_ = false;
  std::uint64_t cost_ = 0;  // of nodes_
  std::vector<std::uint32_t> nodes_;
  unblock_set best_;
};

APIARY_NAMESPACE_END
