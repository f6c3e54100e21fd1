// apiary/hived/detail/attempt.h - one try to place a guaranteed gang in its tenant's cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/node_index.h>
#include <apiary/core/ids.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/gang_placer.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/gang_place.h>
#include <apiary/hived/detail/lazy_value.h>
#include <apiary/hived/detail/topology_fit.h>
#include <apiary/hived/detail/victims.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What is asked among the cells of a cluster.
struct hived_search_input {
  const gang_table& gangs;
  const gang_request& request;
  vc_chain_id cluster;
  bool preempting = false;
  std::optional<gang_slot> restarted{};  // a preempting gang whose claims count as gone
};

// How one try is made.
struct hived_search_options {
  // Which leaves will do; all whole cells are then bound first. Null: all healthy ones, and cells
  // are bound for the leaves that are chosen.
  const health<uniform_tree>* usable = nullptr;
  // Whole cells are bound for pieces of so many leaves, passing over some cells; again: nothing
  // but these has changed since the last try (hived_cells::bind_everything).
  std::uint32_t piece = 1;
  std::span<const std::uint32_t> skips{};
  bool again = false;
  bool apart = false;                     // for a spread, they are bound apart first (bind_apart)
  std::span<const gang_slot> yielding{};  // give their tenant's cells back before
};

// Tries to place a gang once, for one way to bind whole cells; leaves everything as it was.
//
// The gang goes on free nodes of the cluster, or, preempting, on those of victims, too
// (hived_victims), and from there to physical leaves.
// Cost: as gang_placer (or hived_topology_fit), and hived_cells::place for each node and leaf used;
//       hived_victims where it fits only by preemption; with a filter O(cells of the tenant).
class hived_search_step {
 public:
  // Whether a place was found.
  bool operator()(hived_cells& cells, const hived_search_input& q,
                  const hived_search_options& how) {
    const gang_table& gangs = q.gangs;
    const gang_request& request = q.request;
    const vc_chain_id c = q.cluster;
    const virtual_cluster& cluster = cells.cluster(c);
    const physical_chain& chain = cells.chain(cluster.chain());
    const health<uniform_tree>* const usable = how.usable;
    mapped_ = true;
    whole_ = {};
    cut_.reset();
    place_ = {};
    place_.cluster = c;
    place_.chain = cluster.chain();
    cells.begin();
    take_cells_back(cells, q, how.yielding);
    const bool constrained = request.rules.any();
    const bool spread = constrained && is_spread_over_whole_cells(cluster, request.rules);
    if (spread && (usable == nullptr || how.apart))
      bind_apart(cells, c, request, usable != nullptr ? *usable : chain.healthy());
    if (usable != nullptr)
      whole_ = cells.bind_everything(c, *usable, how.piece, how.skips, how.again);
    if (!whole_.complete) {
      verdict_ = fit_verdict::does_not_fit;
      cells.rollback();
      return false;
    }
    bool fit = constrained ? fits_by_constraints(cells, q, usable, spread)
                           : fits(cluster, usable, request.members);
    const bool evicting = !fit && q.preempting;
    const auto free = [&](std::uint32_t n) { return ones(usable_leaves(cluster, n, usable)); };
    if (evicting && constrained) {
      verdict_ = eviction_.lift_by_constraints(cells, gangs, request, c, *constrained_, free,
                                               usable, spread);
      fit = verdict_ == fit_verdict::fits && fits_by_constraints(cells, q, usable, spread);
    } else if (evicting) {
      verdict_ =
          eviction_.lift(cells, gangs, request, c,
                         usable != nullptr ? *filtered_ : cluster.free_nodes(), free, usable);
      cut_ = eviction_.cut();
      fit = verdict_ == fit_verdict::fits && fits(cluster, usable, request.members);
    }
    if (!fit) {
      // Whole cells bound in other places might do.
      if (spread) verdict_ = fit_verdict::budget_ended;
      cells.rollback();
      return false;
    }
    if (!constrained) {
      placer_.choose_nodes(usable != nullptr ? *filtered_ : cluster.free_nodes(),
                           rack_choice::tightest);
    }
    const std::span<const std::uint32_t> chosen =
        constrained ? constrained_->nodes() : placer_.nodes();
    sizes_.assign(chain.tree());
    nodes_.clear();
    for (const std::uint32_t n : chosen) {
      nodes_.push_back({usable_leaves(cluster, n, usable), 0, cluster.first_leaf(n),
                        sizes_.up_to(cluster.range_of_node(n).level)});
    }
    if (evicting) eviction_.put_back(cells);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      nodes_[i].preferred = nodes_[i].available & cluster.free(chosen[i]);
    const std::vector<cell_id>& leaves =
        constrained ? constrained_->choose_leaves_of(nodes_, request.members)
                    : placer_.choose_leaves_of(nodes_, request.members);

    for (const gang_slot s : how.yielding)
      (gangs[s].state == gang_state::preempting ? place_.cancelled : place_.downgraded)
          .push_back(s);
    make_room(cells, gangs, cluster, leaves, usable == nullptr && !spread);
    for (const cell_id leaf : leaves) {
      std::optional<cell_id> image = cluster.image(leaf);
      if (!image->valid()) image = cells.place(c, leaf);
      if (!image) {
        mapped_ = false;
        cells.rollback();
        return false;
      }
      place_.leaves.push_back({leaf, *image});
    }
    cells.rollback();
    return true;
  }

  [[nodiscard]] gang_cost& victim_cost() noexcept { return eviction_.victim_cost(); }
  // After one that found a place, once.
  [[nodiscard]] gang_place take_place() noexcept { return std::move(place_); }
  // Of the last one: what is known of the fit, and what was too little.
  [[nodiscard]] fit_verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] const std::optional<gang_fit::shortage>& cut() const noexcept { return cut_; }
  // Whether every leaf found a physical one; how whole cells were bound, with a filter; steps of
  // topology_fit, under rules.
  [[nodiscard]] bool mapped() const noexcept { return mapped_; }
  [[nodiscard]] const hived_cells::whole_cells& whole() const noexcept { return whole_; }
  [[nodiscard]] std::uint64_t topology_steps() { return constrained_->steps(); }

  // Takes the cells of the gangs that yield, and of the one that is restarted.
  static void take_cells_back(hived_cells& cells, const hived_search_input& q,
                              std::span<const gang_slot> yielding) {
    for (const gang_slot s : yielding) {
      if (q.gangs[s].state == gang_state::preempting) {
        give_up(cells, q.gangs[s], false);
      } else {
        demote(cells, q.gangs[s]);
      }
    }
    if (q.restarted) give_up(cells, q.gangs[*q.restarted], false);
  }

 private:
  [[nodiscard]] static std::uint32_t ones(std::uint64_t mask) noexcept {
    return static_cast<std::uint32_t>(std::popcount(mask));
  }
  bool fits(const virtual_cluster& cluster, const health<uniform_tree>* usable,
            std::span<const task_group> members) {
    const auto size = std::uint32_t{cluster.free_nodes().num_classes()} - 1;
    if (usable != nullptr) {
      filtered_.emplace(cluster.num_nodes(), cluster.free_nodes().num_classes(),
                        cluster.rack_size());
      for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
        filtered_->assign(
            node_id(n), static_cast<node_index::class_t>(ones(usable_leaves(cluster, n, usable))));
      }
    }
    classes_.clear();
    for (std::uint32_t f = 1; f <= size; ++f)
      classes_.push_back({static_cast<node_index::class_t>(f), f});
    const gang_fit::result& packed =
        placer_.fit(usable != nullptr ? *filtered_ : cluster.free_nodes(), classes_, members);
    verdict_ = packed.verdict;
    cut_ = packed.cut;
    return verdict_ == fit_verdict::fits;
  }

  // Whether the gang fits under its rules. Where a spread depends on it, all whole cells that may
  // be used are bound.
  bool fits_by_constraints(const hived_cells& cells, const hived_search_input& q,
                           const health<uniform_tree>* usable, bool as_bound) {
    const virtual_cluster& cluster = cells.cluster(q.cluster);
    const auto free = [&](std::uint32_t n) { return ones(usable_leaves(cluster, n, usable)); };
    cut_.reset();
    verdict_ = as_bound ? constrained_->as_bound(cells, q.cluster, q.request, free)
                        : constrained_->in_cluster(cells, q.cluster, q.request, free);
    return verdict_ == fit_verdict::fits;
  }

  // Cancels the preempting gangs that have one of these leaves, and takes the cells of lazy users.
  // Where a filter holds, or a spread depends on the bindings, nothing is moved away: lazy users
  // are then preempted where they are, but for those that yield.
  void make_room(hived_cells& cells, const gang_table& gangs, const virtual_cluster& cluster,
                 const std::vector<cell_id>& leaves, bool lazily) {
    const physical_chain& chain = cells.chain(cluster.chain());
    for (const cell_id leaf : leaves) {
      const cell_id image = cluster.image(leaf);
      if (!image.valid()) continue;
      const gang_slot claimer = chain.holders(image).claimer;
      if (!claimer.valid()) continue;
      place_.cancelled.push_back(claimer);
      give_up(cells, gangs[claimer], !lazily);
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
      demote(cells, user);
    }
  }
  static void demote(hived_cells& cells, const gang_record& gang) {
    for (const chain_leaf l : gang.leaves)
      if (l.leaf.valid()) cells.demote(l.chain, l.leaf);
  }
  // Takes a preempting gang's claims; with `stay`, what they are bound to stays bound.
  static void give_up(hived_cells& cells, const gang_record& gang, bool stay) {
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

  gang_placer placer_;
  lazy_value<hived_topology_fit> constrained_;
  hived_victims eviction_;
  std::optional<gang_fit::shortage> cut_;
  fit_verdict verdict_ = fit_verdict::fits;
  bool mapped_ = true;
  hived_cells::whole_cells whole_;
  gang_place place_;
  std::vector<indexed_class> classes_;
  std::vector<node_leaves> nodes_;
  std::optional<node_index> filtered_;
  level_sizes sizes_;
};

}  // namespace detail
APIARY_NAMESPACE_END
