// apiary/hived/detail/attempt.h - one attempt to place a gang.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/guest_choice.h>
#include <apiary/hived/detail/leaf_view.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/detail/victims.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A search: a gang, and the virtual cluster in which it is to be placed.
struct hived_search_input {
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

// Tries once to place a gang, for one way to bind whole cells; the cells stay as they were. Chooses
// free virtual leaves, or leaves of victims (hived_victims), then maps them to physical leaves.
// Cost: as node_choice (hived_topology_fit under topology constraints), hived_cells::bind_leaf for
//       each node and leaf, hived_victims for a preemption; with a filter O(cells of the tenant).
class hived_search_step {
 public:
  // Makes one attempt. Returns whether it has found a placement.
  bool operator()(hived_cells& cells, const hived_search_input& q,
                  const hived_search_options& how) {
    const gang_table& gangs = q.gangs;
    const gang_request& request = q.request;
    const vc_chain_id c = q.cluster;
    const virtual_cluster& cluster = cells.cluster(c);
    const health<uniform_tree>* const usable = how.usable;
    const leaf_view view(cells, c, usable);
    mapped_ = true;
    whole_ = {};
    shortage_.reset();
    place_ = {};
    place_.cluster = c;
    place_.chain = cluster.chain();
    cells.begin();
    release_yielding(cells, q, how.yielding);
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
      verdict_ = constrained ? eviction_.preempt_under_constraints(cells, gangs, request, c,
                                                                   constrained_(request), view)
                             : eviction_.preempt(cells, gangs, request, c, view, nodes(view));
      if (!constrained) shortage_ = eviction_.shortage();
      fit = verdict_ == fit_verdict::fits && fits(view, request);
    }
    if (!fit) {
      cells.rollback();
      return false;
    }
    choose_nodes(view, request);
    if (evicting) {
      eviction_.restore_leaves(cells);
      for (std::size_t i = 0; i < nodes_.size(); ++i)
        nodes_[i].preferred &= cluster.free(chosen_[i]);
    }
    const lean_vector<cell_id>& leaves = choose_gpus(request);

    for (const gang_slot s : how.yielding)
      (gangs[s].state == gang_state::preempting ? place_.cancelled : place_.downgraded)
          .push_back(s);
    preempt_holders(cells, gangs, cluster, leaves, usable == nullptr);
    if (!map(cells, c, leaves)) {
      mapped_ = false;
      cells.rollback();
      return false;
    }
    spare_guests(cells, gangs);
    cells.rollback();
    return true;
  }
  // The same for an opportunistic gang, on the idle leaves of chain `c`. Nodes with the most
  // opportunistic leaves come first; ties: the most idle leaves, then (unless that takes more
  // racks) racks without granted cells, then the last nodes. hived_topology_fit for constraints.
  // Model: HiveD (OSDI 2020) section 3.3: opportunistic tasks are packed together, away from
  //        guaranteed tasks. Differs: complete (gang_fit), and avoids racks with granted cells.
  // Cost:  as node_choice, and O((leaves of a node)^2); with a filter O(nodes) more.
  bool opportunistic(const hived_cells& cells, const gang_request& request, std::uint32_t c,
                     const health<uniform_tree>* usable) {
    place_ = {};
    place_.chain = c;
    const leaf_view view(cells, c, usable);
    if (!fits(view, request)) return false;
    choose_nodes(view, request);
    for (const cell_id leaf : choose_gpus(request)) place_.leaves.push_back({cell_id(), leaf});
    return true;
  }
  // The cost of ending a gang; hived::set_victim_cost sets it.
  [[nodiscard]] gang_record::cost_function& victim_cost() noexcept {
    return eviction_.victim_cost();
  }
  // Moves the placement out. Requires: the last attempt has found one. Call it once per attempt.
  [[nodiscard]] gang_placement take_placement() noexcept { return std::move(place_); }
  // The last attempt: its verdict, and the task size that was short.
  [[nodiscard]] fit_verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] const std::optional<gpu_shortage>& shortage() const noexcept { return shortage_; }
  // The last attempt: whether every virtual leaf got a physical leaf; with a filter, how whole
  // cells were bound; under topology constraints, the steps of the search.
  [[nodiscard]] bool mapped() const noexcept { return mapped_; }
  [[nodiscard]] const hived_cells::bound_whole_cells& whole() const noexcept { return whole_; }
  [[nodiscard]] std::uint64_t topology_steps(const gang_request& request) {
    return constrained_(request).steps();
  }
  // Releases the cells or claims of the yielding gangs, and the claims of the restarted gang.
  static void release_yielding(hived_cells& cells, const hived_search_input& q,
                               std::span<const gang_slot> yielding) {
    for (const gang_slot s : yielding) {
      if (q.gangs[s].state == gang_state::preempting) {
        unclaim(cells, q.gangs[s], false);
      } else {
        downgrade(cells, q.gangs[s]);
      }
    }
    if (q.restarted) unclaim(cells, q.gangs[*q.restarted], false);
  }

 private:
  // Binds the virtual leaves that are not bound. Returns whether that is possible.
  bool map(hived_cells& cells, vc_chain_id c, const lean_vector<cell_id>& leaves) {
    before_map_ = cells.position();
    fixed_.clear();
    for (const cell_id leaf : leaves) {
      std::optional<cell_id> image = cells.cluster(c).image(leaf);
      fixed_.push_back(image->valid());
      if (!image->valid()) image = cells.bind_leaf(c, leaf);
      if (!image) return false;
      place_.leaves.push_back({leaf, *image});
    }
    return true;
  }
  // If gangs must end on leaves that map() has bound, tries to bind others.
  void spare_guests(hived_cells& cells, const gang_table& gangs) {
    const physical_chain& chain = cells.chain(place_.chain);
    bool ends = false;
    for (std::size_t i = 0; i < fixed_.size() && !ends; ++i)
      ends = !fixed_[i] && chain.holders(place_.leaves[i].image).user.valid();
    if (!ends) return;
    cells.rollback_to(before_map_);
    ending_.clear();
    for (const gang_slot s : place_.downgraded)
      if (hived_victims::must_end(gangs[s])) ending_.push_back(s);
    guests_(cells, place_.cluster, place_.leaves, fixed_, ending_,
            eviction_.least_cost_of_ending(cells, gangs),
            [&](gang_slot s) { return eviction_.cost_of_ending(cells, gangs[s]); });
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
    sizes_.assign(view.chain().tree());
    nodes_.clear();
    for (const std::uint32_t n : chosen_) nodes_.push_back(view.gpus(n, sizes_));
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
      place_.cancelled.push_back(claimer);
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
      place_.downgraded.push_back(holders.user);
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
  hived_victims eviction_;
  guest_choice guests_;
  std::optional<gpu_shortage> shortage_;
  fit_verdict verdict_ = fit_verdict::fits;
  bool mapped_ = true;
  hived_cells::bound_whole_cells whole_;
  gang_placement place_;
  lean_vector<indexed_class> classes_;
  lean_vector<std::uint32_t> chosen_;  // nodes of the view
  lean_vector<node_gpus> nodes_;       // for each of them
  std::optional<node_index> filtered_;
  level_sizes sizes_;
  std::size_t before_map_ = 0;  // the position in the log
  lean_vector<bool> fixed_;     // for each leaf of place_: it was bound before map()
  lean_vector<gang_slot> ending_;
};

}  // namespace detail
APIARY_NAMESPACE_END
