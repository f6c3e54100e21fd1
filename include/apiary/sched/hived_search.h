// apiary/sched/hived_search.h - where a guaranteed gang goes in its tenant's cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/node_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/on_demand.h>
#include <apiary/model/health.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/gang_placer.h>
#include <apiary/sched/gang_place.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived_cells.h>
#include <apiary/sched/hived_eviction.h>
#include <apiary/sched/hived_guests.h>
#include <apiary/sched/hived_rooms.h>
#include <apiary/sched/hived_ruled_fit.h>
#include <apiary/sched/hived_supply.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches places for guaranteed gangs; leaves everything as it was.
//
// Model:   HiveD (OSDI 2020) section 3.3: first in the tenant's own virtual cluster, then mapped
//          to physical cells. Differs: complete (gang_fit); of gangs to preempt, the set of
//          least cost (hived_eviction).
//          Under a filter, or on bad hardware, what fits depends on which whole cells a tenant is
//          granted: the best for pieces of each size are tried, then all ways, within a budget.
//          There, lower gangs of the tenant may give its cells back, so that these can be bound
//          elsewhere: few, those whose preemption is cancelled and lazy ones, which run on; only if
//          these do not suffice others, which end although the place is not on their leaves.
//          Under rules hived_ruled_fit decides instead of gang_fit, as exactly. Where a spread depends on
//          how whole cells are bound, they are bound apart (bind_apart), and a no is not certain.
// Cost:    as gang_placer (or hived_ruled_fit) and hived_cells::place for each node and leaf used. A
//          gang that fits only by preemption costs hived_eviction more, a request with a filter, or one
//          that meets bad hardware where it would have gone, O(cells of the tenant) and, where the ways
//          to bind them matter, up to the budget for those more; where it waits although the tenant's
//          cells would do if repaired or suggested, that once or twice more, and for each gang that gives
//          cells back a few tries.
class hived_search {
 public:
  // Among the cells of a cluster. `usable` filters leaves; null: all healthy ones. `restarted`: a
  // preempting gang whose claims count as gone. Whether a place was found.
  bool guaranteed(hived_cells& cells, const gang_table& gangs, const gang_request& request,
                  cluster_id c, bool preempting, const health<uniform_tree>* usable,
                  std::optional<gang_slot> restarted) {
    const question q{gangs, request, c, preempting, restarted};
    const physical_chain& chain = cells.chain(cells.cluster(c).chain());
    bool found = false;
    if (usable != nullptr) {
      found = try_filtered(cells, q, *usable);
    } else {
      // Under a spread other bindings might do, or spare lazy gangs, on good hardware, too.
      const bool apart = is_spread_over_whole_cells(cells.cluster(c), request.rules);
      found = try_guaranteed(cells, q, nullptr, 1);
      if (!apart && (found || (mapped_ && !chain.any_bad()))) return found;
      if (!found && !mapped_) found = try_filtered(cells, q, chain.healthy());
      usable = &chain.healthy();
    }
    if (!preempting || (found && num_ended(chain, gangs) == 0)) return found;
    return try_yielding(cells, q, *usable, found);
  }

  // After a search that found one.
  [[nodiscard]] const gang_place& place() const noexcept { return place_; }
  // After one that did not.
  [[nodiscard]] fit_verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] const std::optional<gang_fit::shortage>& cut() const noexcept { return cut_; }

 private:
  // Of ways to grant whole cells, so many candidates for them, and nodes of the tenant then, are
  // looked at, at most; to grant one counts as much as to look at a few.
  static constexpr std::uint64_t grant_budget = 65536;
  static constexpr std::uint64_t grant_cost = 16;

  [[nodiscard]] static std::uint32_t ones(std::uint64_t mask) noexcept {
    return static_cast<std::uint32_t>(std::popcount(mask));
  }
  bool fits(const virtual_cluster& cluster, const health<uniform_tree>* usable,
            std::span<const gang_member> members) {
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
    verdict_ =
        placer_.fits(usable != nullptr ? *filtered_ : cluster.free_nodes(), classes_, members);
    cut_ = placer_.fit().cut();
    return verdict_ == fit_verdict::fits;
  }

  // What is asked among the cells of a cluster.
  struct question {
    const gang_table& gangs;
    const gang_request& request;
    cluster_id cluster;
    bool preempting;
    std::optional<gang_slot> restarted;
  };
  // Whether the gang fits under its rules. Where a spread depends on it, all whole cells that may be
  // used are bound.
  bool fits_by_rules(const hived_cells& cells, const question& q,
                     const health<uniform_tree>* usable, bool as_bound) {
    const virtual_cluster& cluster = cells.cluster(q.cluster);
    const auto free = [&](std::uint32_t n) { return ones(usable_leaves(cluster, n, usable)); };
    cut_.reset();
    verdict_ = as_bound ? ruled_->as_bound(cells, q.cluster, q.request, free)
                        : ruled_->in_cluster(cells, q.cluster, q.request, free);
    return verdict_ == fit_verdict::fits;
  }
  // With all ways to grant whole cells, as far as the budget reaches.
  bool try_filtered(hived_cells& cells, const question& q, const health<uniform_tree>& usable) {
    apart_ = is_spread_over_whole_cells(cells.cluster(q.cluster), q.request.rules);
    const bool done = apart_ && try_guaranteed(cells, q, &usable, 1);
    apart_ = false;
    if (done) return true;
    if (try_guaranteed(cells, q, &usable, 1)) return true;
    if (whole_.all_usable || whole_.bound == 0) return false;
    cells.begin();
    take_cells_back(cells, q);
    cut_ = supply_.shortage_anyhow(cells, q.gangs, q.request, q.cluster, q.preempting, usable);
    cells.rollback();
    if (cut_ || !supply_.fits_empty(cells.cluster(q.cluster), q.request.members)) {
      verdict_ = fit_verdict::does_not_fit;
      return false;
    }
    bool undecided = verdict_ == fit_verdict::budget_ended;
    const std::size_t unbound = whole_.bound;
    std::uint64_t tried = 0;  // bit s-1 for pieces of s leaves
    for (const gang_member& m : q.request.members) {
      const std::uint64_t bit = std::uint64_t{1} << (m.leaves - 1);
      if (m.leaves == 1 || (tried & bit) != 0) continue;
      tried |= bit;
      if (try_guaranteed(cells, q, &usable, m.leaves)) return true;
      undecided = undecided || verdict_ == fit_verdict::budget_ended;
    }
    // All ways to grant whole cells, counted through like the digits of a number.
    skips_.assign(unbound, 0);
    bool more = true;
    again_ = false;
    for (std::uint64_t left = grant_budget; more && left > 0;) {
      if (try_guaranteed(cells, q, &usable, 1)) {
        skips_.clear();
        again_ = false;
        return true;
      }
      again_ = true;
      std::uint64_t cost = grant_cost * whole_.bound + whole_.visited;
      if (whole_.complete || q.request.rules.any()) cost += cells.cluster(q.cluster).num_nodes();
      if (q.request.rules.any()) cost += ruled_->steps();
      left -= std::min(left, cost);
      undecided = undecided || verdict_ == fit_verdict::budget_ended;
      const std::size_t digits = whole_.complete ? unbound : whole_.bound;
      more = digits > 0;
      if (more) ++skips_[digits - 1];
      std::fill(skips_.begin() + static_cast<std::ptrdiff_t>(digits), skips_.end(), 0);
    }
    skips_.clear();
    again_ = false;
    verdict_ = undecided || more ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
    cut_.reset();
    return false;
  }
  // Tries once more, after gangs of lower priority have given their tenant's cells back: cells that
  // will do may be bound in their stead; few of them. If nothing was found, with all ways to bind
  // cells then, and with such as must end only where the others do not suffice. Otherwise these are
  // lazy ones in the way of the place found and such as preempt for leaves that will not do; it is
  // kept unless fewer gangs end then.
  bool try_yielding(hived_cells& cells, const question& q, const health<uniform_tree>& usable,
                    bool found) {
    const physical_chain& chain = cells.chain(cells.cluster(q.cluster).chain());
    std::vector<gang_slot> lower =
        hived_eviction::lower_ones(cells, q.gangs, q.cluster, q.request.priority);
    if (found)
      std::erase_if(lower, [&](gang_slot s) { return !in_the_way(chain, q.gangs[s], s, usable); });
    if (lower.empty() || (!found && cells.is_pinned(q.cluster))) return found;
    if (!found && !supply_.fits_repaired(cells, q.gangs, q.request, q.cluster, q.restarted)) {
      verdict_ = fit_verdict::does_not_fit;
      cut_ = supply_.cut();
      return false;
    }
    gang_place best = place_;
    std::size_t most = found ? num_ended(chain, q.gangs) - 1 : ~std::size_t{0};
    const auto give_way = [&](std::size_t n) {  // some of the first n of them
      return hived_eviction::choose_few(std::span(lower).first(n),
                                        [&](std::span<const gang_slot> some) {
                                          yielding_.assign(some.begin(), some.end());
                                          bool good = try_guaranteed(cells, q, &usable, 1);
                                          if (!good && !found && some.size() == n)
                                            good = try_filtered(cells, q, usable);
                                          yielding_.clear();
                                          const std::size_t ended = num_ended(chain, q.gangs);
                                          if (!good || ended > most) return false;
                                          most = ended;
                                          best = place_;
                                          return true;
                                        });
    };
    const auto ending = std::find_if(lower.begin(), lower.end(), [&](gang_slot s) {
      return hived_eviction::must_end(q.gangs[s]);
    });
    const auto others = static_cast<std::size_t>(ending - lower.begin());
    const bool better =
        (others > 0 && give_way(others)) || (others < lower.size() && give_way(lower.size()));
    found = better || found;
    place_ = std::move(best);
    if (found) verdict_ = fit_verdict::fits;
    return found;
  }
  // Of a gang that gives its tenant's cells back without ending: whether fewer might end if it does,
  // where the place is.
  [[nodiscard]] bool in_the_way(const physical_chain& chain, const gang_record& gang,
                                gang_slot slot, const health<uniform_tree>& usable) const noexcept {
    if (hived_eviction::must_end(gang)) return false;
    if (gang.state == gang_state::preempting) {
      return std::any_of(gang.leaves.begin(), gang.leaves.end(), [&](const chain_leaf& l) {
        return l.leaf.valid() && !usable.healthy(l.leaf);
      });
    }
    return std::any_of(place_.leaves.begin(), place_.leaves.end(),
                       [&](const bound_leaf& l) { return chain.holders(l.image).user == slot; });
  }
  // How many gangs must end for the place.
  [[nodiscard]] std::size_t num_ended(const physical_chain& chain, const gang_table& gangs) {
    ended_.clear();
    for (const bound_leaf& l : place_.leaves)
      if (chain.holders(l.image).user.valid()) ended_.push_back(chain.holders(l.image).user);
    for (const gang_slot s : place_.downgraded)
      if (hived_eviction::must_end(gangs[s])) ended_.push_back(s);
    std::sort(ended_.begin(), ended_.end());
    return static_cast<std::size_t>(std::unique(ended_.begin(), ended_.end()) - ended_.begin());
  }
  // With a filter, whole cells are bound for pieces of `piece` leaves (hived_cells).
  bool try_guaranteed(hived_cells& cells, const question& q, const health<uniform_tree>* usable,
                      std::uint32_t piece) {
    const gang_table& gangs = q.gangs;
    const gang_request& request = q.request;
    const cluster_id c = q.cluster;
    const virtual_cluster& cluster = cells.cluster(c);
    const physical_chain& chain = cells.chain(cluster.chain());
    mapped_ = true;
    whole_ = {};
    place_ = {};
    place_.cluster = c;
    place_.chain = cluster.chain();
    cells.begin();
    take_cells_back(cells, q);
    const bool ruled = request.rules.any();
    const bool spread = ruled && is_spread_over_whole_cells(cluster, request.rules);
    if (spread && (usable == nullptr || apart_))
      bind_apart(cells, c, request, usable != nullptr ? *usable : chain.healthy());
    if (usable != nullptr) whole_ = cells.bind_everything(c, *usable, piece, skips_, again_);
    if (!whole_.complete) {
      verdict_ = fit_verdict::does_not_fit;
      cells.rollback();
      return false;
    }
    bool fit =
        ruled ? fits_by_rules(cells, q, usable, spread) : fits(cluster, usable, request.members);
    const bool evicting = !fit && q.preempting;
    const auto free = [&](std::uint32_t n) { return ones(usable_leaves(cluster, n, usable)); };
    if (evicting && ruled) {
      verdict_ = eviction_.lift_by_rules(cells, gangs, request, c, *ruled_, free, usable, spread);
      fit = verdict_ == fit_verdict::fits && fits_by_rules(cells, q, usable, spread);
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
    if (!ruled) {
      placer_.choose_nodes(usable != nullptr ? *filtered_ : cluster.free_nodes(),
                           rack_choice::tightest);
    }
    const std::span<const std::uint32_t> chosen = ruled ? ruled_->nodes() : placer_.nodes();
    sizes_.assign(chain.tree());
    nodes_.clear();
    for (const std::uint32_t n : chosen) {
      nodes_.push_back({usable_leaves(cluster, n, usable), 0, cluster.first_leaf(n),
                        sizes_.up_to(cluster.range_of_node(n).level)});
    }
    if (evicting) eviction_.put_back(cells);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      nodes_[i].preferred = nodes_[i].available & cluster.free(chosen[i]);
    const std::vector<cell_id>& leaves = ruled ? ruled_->choose_leaves_of(nodes_, request.members)
                                               : placer_.choose_leaves_of(nodes_, request.members);

    for (const gang_slot s : yielding_)
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

  // Cancels the preempting gangs that have one of these leaves, and takes the cells of lazy users.
  // Where a filter holds, or a spread depends on the bindings, nothing is moved away: lazy users are preempted where they are, other than
  // in try_yielding.
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
  // Of the gangs that yield in this try, and of the one that is restarted.
  void take_cells_back(hived_cells& cells, const question& q) const {
    for (const gang_slot s : yielding_) {
      if (q.gangs[s].state == gang_state::preempting) {
        give_up(cells, q.gangs[s], false);
      } else {
        demote(cells, q.gangs[s]);
      }
    }
    if (q.restarted) give_up(cells, q.gangs[*q.restarted], false);
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
  on_demand<hived_ruled_fit> ruled_;
  hived_eviction eviction_;
  hived_supply supply_;
  std::optional<gang_fit::shortage> cut_;
  fit_verdict verdict_ = fit_verdict::fits;
  bool mapped_ = true;              // every leaf found a physical one
  hived_cells::whole_cells whole_;  // with a filter, how they were bound
  std::vector<std::uint32_t> skips_;
  std::vector<gang_slot> yielding_;  // give their tenant's cells back in this try
  std::vector<gang_slot> ended_;
  bool apart_ = false;  // for a spread, whole cells are bound apart in this try
  bool again_ = false;  // the last try differs in nothing but skips_
  gang_place place_;
  std::vector<indexed_class> classes_;
  std::vector<node_leaves> nodes_;
  std::optional<node_index> filtered_;
  level_sizes sizes_;
};

APIARY_NAMESPACE_END
