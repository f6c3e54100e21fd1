// apiary/hived/detail/search.h - places a gang on the cells of its tenant, or on idle leaves.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/guest_choice.h>
#include <apiary/hived/detail/leaf_view.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/victims.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/model/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds out why a gang waits: whether it would fit if the cluster were empty or repaired, or has
// too few leaves however whole cells are granted; proves that it does not fit.
// Cost: as count_leaves, and gang_fit; more where the functions say so.
class hived_refusal {
 public:
  // Whether the gang may fit, without its topology constraints, on the leaves that count for `at`;
  // false is certain, and shortage() may have a count that proves it.
  bool may_count(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
                 const refused_chain& at) {
    count_nodes(cells, gangs, request, at);
    counts_.clear();
    for (std::uint32_t f = 0; f < nodes_.size(); ++f) counts_.push_back({f, nodes_[f]});
    const gang_fit::result packed = count_fit_(counts_, request.groups);
    shortage_ = packed.shortage;
    return packed.verdict != fit_verdict::does_not_fit;
  }
  [[nodiscard]] const std::optional<gpu_shortage>& shortage() const noexcept { return shortage_; }
  // A proof that a gang does not fit without its topology constraints, from all nodes by their free
  // leaves (infeasibility_proof::of_nodes); nullopt: the budget ended. Requires: it does not fit.
  std::optional<infeasibility_proof> operator()(const hived_cells& cells, const gang_table& gangs,
                                                const gang_request& request,
                                                const refused_chain& at) {
    const physical_chain& chain = cells.chain(at.chain);
    count_nodes(cells, gangs, request, at);
    infeasibility_proof proof = infeasibility_proof::of_nodes(
        nodes_, request.groups, chain.node_level(), chain.tree().num_levels());
    if (proof.cells.empty()) return std::nullopt;
    return proof;
  }
  // A count that the gang exceeds however the unbound whole cells are granted, if there is one.
  // Arguments as in hived_search. Requires: gangs whose cells count as gone have lost them.
  // Cost: O(leaves of the tenant), and grant_ranking for each task size.
  [[nodiscard]] std::optional<gpu_shortage> shortage_for_any_binding(
      hived_cells& cells, const gang_table& gangs, const gang_request& request, vc_chain_id c,
      bool preempting, const health<uniform_tree>& usable) {
    const virtual_cluster& cluster = cells.cluster(c);
    const physical_chain& chain = cells.chain(cluster.chain());
    const auto counts = [&](cell_id leaf) {
      if (!usable.healthy(leaf)) return false;
      const gang_slot holder = chain.holders(leaf).holder();
      return !holder.valid() || (preempting && gangs[holder].request.priority < request.priority);
    };
    free_.clear();  // of each node of a bound whole cell
    for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
      for (const cell_id root : cluster.tree().roots(l)) {
        const cell_id image = cluster.image(root);
        if (!image.valid()) continue;
        for (const cell_id node :
             chain.tree().descendants(image, (std::min)(l, chain.node_level()))) {
          free_.push_back(0);
          for (const cell_id leaf : chain.tree().descendants(node, 0))
            free_.back() += counts(leaf) ? 1U : 0U;
        }
      }
    }
    std::uint64_t sizes = 1;  // bit s-1: count how often s leaves fit on a node
    for (const task_group& m : request.groups) sizes |= std::uint64_t{1} << (m.gpus - 1);
    for (; sizes != 0; sizes &= sizes - 1) {
      const auto task_gpus = static_cast<std::uint32_t>(std::countr_zero(sizes)) + 1;
      gpu_shortage count{task_gpus, 0, cells.max_tasks_in_unbound(c, usable, task_gpus)};
      for (const task_group& m : request.groups)
        count.needed += std::uint64_t{m.tasks} * (m.gpus / task_gpus);
      for (const std::uint32_t f : free_) count.present += f / task_gpus;
      if (count.present < count.needed) return count;
    }
    return std::nullopt;
  }

 private:
  // Counts in nodes_ the nodes with 0, 1, ... leaves that count for `at`.
  void count_nodes(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
                   const refused_chain& at) {
    count_leaves(cells, gangs, request, at, free_);
    nodes_.assign(std::size_t{cells.chain(at.chain).node_leaves()} + 1, 0);
    for (const std::uint32_t f : free_) ++nodes_[f];
  }
  lean_vector<std::uint32_t> free_;           // leaves that count, one entry for each node
  lean_vector<std::uint32_t> nodes_;          // number of nodes with 0, 1, ... such leaves
  lean_vector<gang_fit::node_class> counts_;  // the same as classes
  gang_fit count_fit_;
  std::optional<gpu_shortage> shortage_;  // of may_count
};

// A search: a gang, and the virtual cluster in which it is to be placed.
struct hived_search_input {
  hived_cells& cells;
  const gang_table& gangs;
  const gang_request& request;
  vc_chain_id cluster;
  bool preempting = false;               // whether gangs of lower priority may be preempted
  std::optional<gang_slot> restarted{};  // a preempting gang; its claims count as free
};

// The options of one attempt.
struct hived_search_options {
  // The leaves that may be used; all whole cells are then bound before the search. Null: all
  // healthy leaves, and cells are bound only for the leaves that are chosen.
  const health<uniform_tree>* usable = nullptr;
  // For hived_cells::bind_whole_cells: it prefers cells where many tasks of `task_gpus` leaves
  // fit, and passes over `skips` cells. again: only the skips have changed.
  std::uint32_t task_gpus = 1;
  std::span<const std::uint32_t> skips{};
  bool again = false;
  std::span<const gang_slot> yielding{};  // these gangs lose their guaranteed cells first
};

// Finds placements for gangs. Each call leaves cells and gangs as they were.
// Model: HiveD (OSDI 2020) section 3.3: decides in the virtual cluster of the tenant first, then
//        maps to physical cells. Differs: complete (gang_fit; under topology constraints
//        hived_topology_fit), and preempts the set of gangs of least cost (hived_victims).
// With a filter, or on bad hardware, the answer depends on which whole cells the tenant is granted.
// The search tries the cells that are best for each task size, then all ways to grant whole cells,
// within a budget. Then it lets few gangs of the tenant with lower priority give up cells, so that
// these can be bound elsewhere: preempting gangs, which are cancelled, and lazy gangs, which keep
// running as opportunistic; if they do not suffice, others, which must end.
// Cost: as node_choice (or hived_topology_fit), and hived_cells::bind_leaf for each node and leaf
//       used; hived_victims for a preemption. With a filter or bad hardware also O(cells of the
//       tenant) and, if bindings matter, up to the budget; once or twice more if only bad or not
//       suggested nodes are missing, and a few tries for each gang that gives up cells.
class hived_search {
 public:
  // Searches the cells of virtual cluster `c`; returns whether it found a placement. `usable`: the
  // leaves that may be used; null: all healthy ones. `restarted`: a preempting gang that proposes
  // again; its claims count as gone.
  bool guaranteed(hived_cells& cells, const gang_table& gangs, const gang_request& request,
                  vc_chain_id c, bool preempting, const health<uniform_tree>* usable,
                  std::optional<gang_slot> restarted) {
    const hived_search_input q{cells, gangs, request, c, preempting, restarted};
    const physical_chain& chain = cells.chain(cells.cluster(c).chain());
    bool found = false;
    if (usable != nullptr) {
      found = try_filtered(q, *usable);
    } else {
      found = attempt(q, {});
      if (found || (mapped_ && !chain.any_bad())) return found;
      if (!found && !mapped_) found = try_filtered(q, chain.healthy());
      usable = &chain.healthy();
    }
    if (!preempting || (found && num_ended(chain, gangs) == 0)) return found;
    return try_yielding(q, *usable, found);
  }
  // The same for an opportunistic gang, on the idle leaves of chain `c`. Nodes with the most
  // opportunistic leaves come first; ties: the most idle leaves, then (unless that takes more
  // racks) racks without granted cells, then the last nodes. hived_topology_fit for constraints.
  // Model: HiveD (OSDI 2020) section 3.3: opportunistic tasks are packed together, away from
  //        guaranteed tasks. Differs: complete (gang_fit), and avoids racks with granted cells.
  // Cost:  as node_choice, and O((leaves of a node)^2); with a filter O(nodes) more.
  bool opportunistic(const hived_cells& cells, const gang_request& request, std::uint32_t c,
                     const health<uniform_tree>* usable) {
    const leaf_view view(cells, c, usable);
    if (!fits(view, request)) return false;
    choose_nodes(view, request);
    place_.cluster = vc_chain_id();
    place_.chain = c;
    place_.leaves.clear();
    place_.cancelled.clear();
    place_.downgraded.clear();
    for (const cell_id leaf : choose_gpus(request)) place_.leaves.push_back({cell_id(), leaf});
    return true;
  }
  // Tries once to place a gang in its virtual cluster, for one way to bind whole cells: chooses
  // free virtual leaves, or leaves of victims, then maps them to physical leaves. Returns whether
  // it has found a placement; only then it changes place_.
  bool attempt(const hived_search_input& q, const hived_search_options& how) {
    hived_cells& cells = q.cells;
    const gang_table& gangs = q.gangs;
    const gang_request& request = q.request;
    const vc_chain_id c = q.cluster;
    const virtual_cluster& cluster = cells.cluster(c);
    const health<uniform_tree>* const usable = how.usable;
    const leaf_view view(cells, c, usable);
    mapped_ = true;
    whole_ = {};
    shortage_.reset();
    next_.leaves.clear();
    next_.cancelled.clear();
    next_.downgraded.clear();
    next_.cluster = c;
    next_.chain = cluster.chain();
    cells.begin();
    release_yielding(q, how.yielding);
    const bool constrained = request.constraints.any();
    if (usable != nullptr)
      whole_ = cells.bind_whole_cells(c, *usable, how.task_gpus, how.skips, how.again);
    if (!whole_.complete) {
      verdict_ = fit_verdict::does_not_fit;
      cells.rollback();
      return false;
    }
    bool fit = fits(view, request);
    const bool evicting = !fit && q.preempting;
    if (evicting) {
      verdict_ = constrained ? victims_.preempt_under_constraints(cells, gangs, request, c,
                                                                  constrained_(request), view)
                             : victims_.preempt(cells, gangs, request, c, view, nodes(view));
      if (!constrained) shortage_ = victims_.shortage();
      fit = verdict_ == fit_verdict::fits && fits(view, request);
    }
    if (!fit) {
      cells.rollback();
      return false;
    }
    choose_nodes(view, request);
    if (evicting) {
      victims_.restore_leaves(cells);
      for (std::size_t i = 0; i < nodes_.size(); ++i)
        nodes_[i].preferred &= cluster.free(chosen_[i]);
    }
    const lean_vector<cell_id>& leaves = choose_gpus(request);

    for (const gang_slot s : how.yielding)
      (gangs[s].state == gang_state::preempting ? next_.cancelled : next_.downgraded).push_back(s);
    preempt_holders(cells, gangs, cluster, leaves, usable == nullptr);
    if (!map(cells, c, leaves)) {
      mapped_ = false;
      cells.rollback();
      return false;
    }
    spare_guests(cells, gangs);
    cells.rollback();
    std::swap(place_, next_);
    return true;
  }
  // The cost of ending a gang; hived::set_victim_cost sets it.
  [[nodiscard]] gang_record::cost_function& victim_cost() noexcept {
    return victims_.victim_cost();
  }
  // After a search that found a placement.
  [[nodiscard]] const gang_placement& place() const noexcept { return place_; }
  // After a search that found none: the verdict, and a count that is too small, if there is one.
  [[nodiscard]] fit_verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] const std::optional<gpu_shortage>& shortage() const noexcept { return shortage_; }

 private:
  // The budget for trying all ways to grant whole cells: one unit for one candidate cell, node of
  // the tenant or step of topology_fit, grant_cost units for one granted cell.
  static constexpr std::uint64_t grant_budget = 65536;
  static constexpr std::uint64_t grant_cost = 16;

  // Tries all ways to grant whole cells, as far as the budget allows.
  bool try_filtered(const hived_search_input& q, const health<uniform_tree>& usable,
                    std::span<const gang_slot> yielding = {}) {
    hived_search_options way{.usable = &usable, .yielding = yielding};
    if (attempt(q, way)) return true;
    if (whole_.all_usable || whole_.bound == 0) return false;
    q.cells.begin();
    release_yielding(q, yielding);
    shortage_ = refusal_.shortage_for_any_binding(q.cells, q.gangs, q.request, q.cluster,
                                                  q.preempting, usable);
    q.cells.rollback();
    if (shortage_ || !refusal_.may_count(q.cells, q.gangs, q.request, at(q, wait_reason::never))) {
      verdict_ = fit_verdict::does_not_fit;
      return false;
    }
    bool undecided = verdict_ == fit_verdict::budget_ended;
    const std::size_t unbound = whole_.bound;
    std::uint64_t tried = 0;  // bit s-1: tasks of s leaves
    for (const task_group& m : q.request.groups) {
      const std::uint64_t bit = std::uint64_t{1} << (m.gpus - 1);
      if (m.gpus == 1 || (tried & bit) != 0) continue;
      tried |= bit;
      way.task_gpus = m.gpus;
      if (attempt(q, way)) return true;
      undecided = undecided || verdict_ == fit_verdict::budget_ended;
    }
    // Enumerates all ways to grant whole q.cells, like the digits of a number.
    lean_vector<std::uint32_t> skips(unbound, 0);
    way.task_gpus = 1;
    way.skips = skips;
    bool more = true;
    for (std::uint64_t left = grant_budget; more && left > 0; way.again = true) {
      if (attempt(q, way)) return true;
      std::uint64_t cost = grant_cost * whole_.bound + whole_.visited;
      if (whole_.complete || q.request.constraints.any())
        cost += q.cells.cluster(q.cluster).num_nodes();
      if (q.request.constraints.any()) cost += constrained_(q.request).steps();
      left -= (std::min)(left, cost);
      undecided = undecided || verdict_ == fit_verdict::budget_ended;
      const std::size_t digits = whole_.complete ? unbound : whole_.bound;
      more = digits > 0;
      if (more) ++skips[digits - 1];
      std::fill(skips.begin() + static_cast<std::ptrdiff_t>(digits), skips.end(), 0);
    }
    verdict_ = undecided || more ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
    shortage_.reset();
    return false;
  }
  // Tries again after a few gangs of lower priority have given up cells, so that usable cells can
  // be bound instead. Without a placement so far (`found` is false) it tries all bindings, and
  // gangs that must end give up cells only if the others do not suffice. With one, only lazy gangs
  // on its leaves and preempting gangs that have claimed unusable leaves give up cells, and another
  // placement must end fewer gangs.
  bool try_yielding(const hived_search_input& q, const health<uniform_tree>& usable, bool found) {
    const physical_chain& chain = q.cells.chain(q.cells.cluster(q.cluster).chain());
    lean_vector<gang_slot> lower =
        hived_victims::gangs_of_lower_priority(q.cells, q.gangs, q.cluster, q.request.priority);
    if (found)
      lower.erase_from(std::remove_if(lower.begin(), lower.end(), [&](gang_slot s) {
        return !may_give_up_cells(chain, q.gangs[s], s, usable);
      }));
    if (lower.empty() || (!found && q.cells.is_pinned(q.cluster))) return found;
    if (!found && !refusal_.may_count(q.cells, q.gangs, q.request, at(q, wait_reason::busy))) {
      verdict_ = fit_verdict::does_not_fit;
      shortage_ = refusal_.shortage();
      return false;
    }
    gang_placement best = place_;
    std::size_t most = found ? num_ended(chain, q.gangs) - 1 : ~std::size_t{0};
    const auto try_first = [&](std::size_t n) {  // choose among the first n gangs
      const auto accept = [&](bool good) {
        if (!good || num_ended(chain, q.gangs) > most) return false;
        most = num_ended(chain, q.gangs);
        best = place_;
        return true;
      };
      const auto suffice = [&](std::span<const gang_slot> some) {
        const bool good = accept(attempt(q, {.usable = &usable, .yielding = some}));
        if (good || found || some.size() < n) return good;
        return accept(try_filtered(q, usable, some));
      };
      return hived_victims::choose_few(std::span(lower).first(n), suffice);
    };
    const auto runs_on = [&](gang_slot s) { return !hived_victims::must_end(q.gangs[s]); };
    // gangs_of_lower_priority() puts them first.
    const auto others =
        static_cast<std::size_t>(std::count_if(lower.begin(), lower.end(), runs_on));
    found = (others > 0 && try_first(others)) ||
            (others < lower.size() && try_first(lower.size())) || found;
    place_ = std::move(best);
    if (found) verdict_ = fit_verdict::fits;
    return found;
  }
  // Whether fewer gangs may have to end for place_ if this gang gives up cells and need not end.
  [[nodiscard]] bool may_give_up_cells(const physical_chain& chain, const gang_record& gang,
                                       gang_slot slot,
                                       const health<uniform_tree>& usable) const noexcept {
    if (hived_victims::must_end(gang)) return false;
    if (gang.state == gang_state::preempting) {
      return std::any_of(gang.leaves.begin(), gang.leaves.end(), [&](const chain_leaf& l) {
        return l.leaf.valid() && !usable.healthy(l.leaf);
      });
    }
    return std::any_of(place_.leaves.begin(), place_.leaves.end(),
                       [&](const bound_leaf& l) { return chain.holders(l.image).user == slot; });
  }
  [[nodiscard]] static refused_chain at(const hived_search_input& q, wait_reason reason) noexcept {
    return {q.cells.cluster(q.cluster).chain(), q.cluster, reason, q.restarted};
  }
  // How many gangs must end for place_.
  [[nodiscard]] std::size_t num_ended(const physical_chain& chain, const gang_table& gangs) {
    ended_.clear();
    for (const bound_leaf& l : place_.leaves)
      if (chain.holders(l.image).user.valid()) ended_.push_back(chain.holders(l.image).user);
    for (const gang_slot s : place_.downgraded)
      if (hived_victims::must_end(gangs[s])) ended_.push_back(s);
    merge_sort(ended_);
    return static_cast<std::size_t>(std::unique(ended_.begin(), ended_.end()) - ended_.begin());
  }
  // Releases the cells or claims of the yielding gangs, and the claims of the restarted gang.
  static void release_yielding(const hived_search_input& q, std::span<const gang_slot> yielding) {
    for (const gang_slot s : yielding) {
      if (q.gangs[s].state == gang_state::preempting) {
        unclaim(q.cells, q.gangs[s], false);
      } else {
        downgrade(q.cells, q.gangs[s]);
      }
    }
    if (q.restarted) unclaim(q.cells, q.gangs[*q.restarted], false);
  }
  // Binds the virtual leaves that are not bound. Returns whether that is possible.
  bool map(hived_cells& cells, vc_chain_id c, const lean_vector<cell_id>& leaves) {
    before_map_ = cells.position();
    fixed_.clear();
    for (const cell_id leaf : leaves) {
      std::optional<cell_id> image = cells.cluster(c).image(leaf);
      fixed_.push_back(image->valid());
      if (!image->valid()) image = cells.bind_leaf(c, leaf);
      if (!image) return false;
      next_.leaves.push_back({leaf, *image});
    }
    return true;
  }
  // If gangs must end on leaves that map() has bound, tries to bind others.
  void spare_guests(hived_cells& cells, const gang_table& gangs) {
    const physical_chain& chain = cells.chain(next_.chain);
    bool ends = false;
    for (std::size_t i = 0; i < fixed_.size() && !ends; ++i)
      ends = !fixed_[i] && chain.holders(next_.leaves[i].image).user.valid();
    if (!ends) return;
    cells.rollback_to(before_map_);
    ending_.clear();
    for (const gang_slot s : next_.downgraded)
      if (hived_victims::must_end(gangs[s])) ending_.push_back(s);
    guests_(cells, next_.cluster, next_.leaves, fixed_, ending_,
            victims_.least_cost_of_ending(cells, gangs),
            [&](gang_slot s) { return victims_.cost_of_ending(cells, gangs[s]); });
  }
  // Whether the gang fits.
  bool fits(const leaf_view& view, const gang_request& request) {
    if (request.constraints.any()) {
      shortage_.reset();
      verdict_ = constrained_(request).fit(view, request);
      return verdict_ == fit_verdict::fits;
    }
    if (view.filtered()) filtered_ = view.filtered_nodes();
    view.list_classes(classes_);
    const gang_fit::result& packed = placer_.fit(nodes(view), classes_, request.groups);
    verdict_ = packed.verdict;
    shortage_ = packed.shortage;
    return verdict_ == fit_verdict::fits;
  }
  // The nodes of the view by class. Requires: fits() was asked about the view.
  [[nodiscard]] const node_index& nodes(const leaf_view& view) const noexcept {
    return view.filtered() ? *filtered_ : view.nodes();
  }
  // After fits() returned true: chooses nodes.
  void choose_nodes(const leaf_view& view, const gang_request& request) {
    if (request.constraints.any()) {
      const std::span<const std::uint32_t> nodes = constrained_(request).nodes();
      chosen_.assign(nodes);
    } else {
      placer_.choose_nodes(nodes(view),
                           view.guaranteed() ? rack_choice::tightest : rack_choice::fullest);
      chosen_.assign(placer_.nodes());
      for (std::uint32_t& n : chosen_) n = view.position(n);
    }
    nodes_.clear();
    for (const std::uint32_t n : chosen_) nodes_.push_back(view.gpus(n));
  }
  [[nodiscard]] const lean_vector<cell_id>& choose_gpus(const gang_request& request) {
    return request.constraints.any() ? constrained_(request).choose_gpus_of(nodes_, request.groups)
                                     : placer_.choose_gpus_of(nodes_, request.groups);
  }
  // Cancels the preempting gangs that have claimed one of these leaves. `lazily`: also downgrades
  // the lazy gangs on them; false if all bindings must stay (with a filter).
  void preempt_holders(hived_cells& cells, const gang_table& gangs, const virtual_cluster& cluster,
                       const lean_vector<cell_id>& leaves, bool lazily) {
    const physical_chain& chain = cells.chain(cluster.chain());
    for (const cell_id leaf : leaves) {
      const cell_id image = cluster.image(leaf);
      if (!image.valid()) continue;
      const gang_slot claimer = chain.holders(image).claimer;
      if (!claimer.valid()) continue;
      next_.cancelled.push_back(claimer);
      unclaim(cells, gangs[claimer], !lazily);
    }
    if (!lazily) return;
    for (const cell_id leaf : leaves) {
      const cell_id image = cluster.image(leaf);
      if (!image.valid()) continue;
      const leaf_holders holders = chain.holders(image);
      if (!holders.user.valid() || !holders.guaranteed) continue;
      const gang_record& user = gangs[holders.user];
      if (!user.request.lazy) continue;
      next_.downgraded.push_back(holders.user);
      downgrade(cells, user);
    }
  }
  static void downgrade(hived_cells& cells, const gang_record& gang) {
    for (const chain_leaf l : gang.leaves)
      if (l.leaf.valid()) cells.downgrade(l.chain, l.leaf);
  }
  // Removes the claims of a preempting gang. With `stay`, its virtual cells stay bound.
  static void unclaim(hived_cells& cells, const gang_record& gang, bool stay) {
    for (const chain_leaf l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (!stay) {
        cells.unclaim(l.chain, l.leaf);
        continue;
      }
      leaf_holders h = cells.chain(l.chain).holders(l.leaf);
      h.claimer = gang_slot();
      cells.hold(l.chain, l.leaf, h);
    }
  }

  node_choice placer_;
  lazy_constrained_search constrained_;
  hived_victims victims_;
  guest_choice guests_;
  hived_refusal refusal_;
  std::optional<gpu_shortage> shortage_;  // of the last attempt, as the next four
  fit_verdict verdict_ = fit_verdict::fits;
  bool mapped_ = true;                    // every virtual leaf got a physical leaf
  hived_cells::bound_whole_cells whole_;  // with a filter
  gang_placement next_;
  gang_placement place_;  // of the last attempt that found one
  lean_vector<indexed_class> classes_;
  lean_vector<std::uint32_t> chosen_;  // nodes of the view
  lean_vector<node_gpus> nodes_;       // for each of them
  std::optional<node_index> filtered_;
  std::size_t before_map_ = 0;  // the position in the log
  lean_vector<bool> fixed_;     // for each leaf of next_: it was bound before map()
  lean_vector<gang_slot> ending_;
  lean_vector<gang_slot> ended_;
};

}  // namespace detail
APIARY_NAMESPACE_END
