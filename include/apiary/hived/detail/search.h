// apiary/hived/detail/search.h - where a guaranteed gang goes in its tenant's cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/attempt.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/gang_place.h>
#include <apiary/hived/detail/topology_fit.h>
#include <apiary/hived/detail/victims.h>
#include <apiary/hived/detail/wait_reason.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Searches places for guaranteed gangs; leaves everything as it was.
//
// Model:   HiveD (OSDI 2020) section 3.3: first in the tenant's own virtual cluster, then mapped
//          to physical cells. Differs: complete (gang_fit); of gangs to preempt, the set of
//          least cost (hived_victims).
//          Under a filter, or on bad hardware, what fits depends on which whole cells a tenant is
//          granted: the best for pieces of each size are tried, then all ways, within a budget.
//          There, lower gangs of the tenant may give its cells back, so that these can be bound
//          elsewhere: few, those whose preemption is cancelled and lazy ones, which run on; only if
//          these do not suffice others, which end although the place is not on their leaves.
//          Under rules hived_topology_fit decides instead of gang_fit, as exactly. Where a spread depends on
//          how whole cells are bound, they are bound apart (bind_apart), and a no is not certain.
// Cost:    as gang_placer (or hived_topology_fit) and hived_cells::place for each node and leaf used. A
//          gang that fits only by preemption costs hived_victims more, a request with a filter, or one
//          that meets bad hardware where it would have gone, O(cells of the tenant) and, where the ways
//          to bind them matter, up to the budget for those more; where it waits although the tenant's
//          cells would do if repaired or suggested, that once or twice more, and for each gang that gives
//          cells back a few tries.
class hived_search {
 public:
  // Among the cells of a cluster. `usable` filters leaves; null: all healthy ones. `restarted`: a
  // preempting gang whose claims count as gone. Whether a place was found.
  bool guaranteed(hived_cells& cells, const gang_table& gangs, const gang_request& request,
                  vc_chain_id c, bool preempting, const health<uniform_tree>* usable,
                  std::optional<gang_slot> restarted) {
    const hived_search_input q{gangs, request, c, preempting, restarted};
    const physical_chain& chain = cells.chain(cells.cluster(c).chain());
    bool found = false;
    if (usable != nullptr) {
      found = try_filtered(cells, q, *usable);
    } else {
      // Under a spread other bindings might do, or spare lazy gangs, on good hardware, too.
      const bool apart = is_spread_over_whole_cells(cells.cluster(c), request.rules);
      found = attempt(cells, q, {});
      if (!apart && (found || (attempt_.mapped() && !chain.any_bad()))) return found;
      if (!found && !attempt_.mapped()) found = try_filtered(cells, q, chain.healthy());
      usable = &chain.healthy();
    }
    if (!preempting || (found && num_ended(chain, gangs) == 0)) return found;
    return try_yielding(cells, q, *usable, found);
  }

  [[nodiscard]] gang_cost& victim_cost() noexcept { return attempt_.victim_cost(); }
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

  // Tries once; a place that is found is place_.
  bool attempt(hived_cells& cells, const hived_search_input& q, const hived_search_options& how) {
    const bool found = attempt_(cells, q, how);
    verdict_ = attempt_.verdict();
    cut_ = attempt_.cut();
    if (found) place_ = attempt_.take_place();
    return found;
  }
  // With all ways to grant whole cells, as far as the budget reaches.
  bool try_filtered(hived_cells& cells, const hived_search_input& q,
                    const health<uniform_tree>& usable, std::span<const gang_slot> yielding = {}) {
    hived_search_options way{.usable = &usable, .yielding = yielding};
    way.apart = is_spread_over_whole_cells(cells.cluster(q.cluster), q.request.rules);
    if (way.apart && attempt(cells, q, way)) return true;
    way.apart = false;
    if (attempt(cells, q, way)) return true;
    const hived_cells::whole_cells& whole = attempt_.whole();
    if (whole.all_usable || whole.bound == 0) return false;
    cells.begin();
    hived_search_step::take_cells_back(cells, q, yielding);
    cut_ = supply_.shortage_anyhow(cells, q.gangs, q.request, q.cluster, q.preempting, usable);
    cells.rollback();
    if (cut_ || !supply_.fits_empty(cells.cluster(q.cluster), q.request.members)) {
      verdict_ = fit_verdict::does_not_fit;
      return false;
    }
    bool undecided = verdict_ == fit_verdict::budget_ended;
    const std::size_t unbound = whole.bound;
    std::uint64_t tried = 0;  // bit s-1 for pieces of s leaves
    for (const task_group& m : q.request.members) {
      const std::uint64_t bit = std::uint64_t{1} << (m.gpus - 1);
      if (m.gpus == 1 || (tried & bit) != 0) continue;
      tried |= bit;
      way.piece = m.gpus;
      if (attempt(cells, q, way)) return true;
      undecided = undecided || verdict_ == fit_verdict::budget_ended;
    }
    // All ways to grant whole cells, counted through like the digits of a number.
    std::vector<std::uint32_t> skips(unbound, 0);
    way.piece = 1;
    way.skips = skips;
    bool more = true;
    for (std::uint64_t left = grant_budget; more && left > 0; way.again = true) {
      if (attempt(cells, q, way)) return true;
      std::uint64_t cost = grant_cost * whole.bound + whole.visited;
      if (whole.complete || q.request.rules.any()) cost += cells.cluster(q.cluster).num_nodes();
      if (q.request.rules.any()) cost += attempt_.topology_steps();
      left -= (std::min)(left, cost);
      undecided = undecided || verdict_ == fit_verdict::budget_ended;
      const std::size_t digits = whole.complete ? unbound : whole.bound;
      more = digits > 0;
      if (more) ++skips[digits - 1];
      std::fill(skips.begin() + static_cast<std::ptrdiff_t>(digits), skips.end(), 0);
    }
    verdict_ = undecided || more ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
    cut_.reset();
    return false;
  }
  // Tries once more, after gangs of lower priority have given their tenant's cells back: cells that
  // will do may be bound in their stead; few of them. If nothing was found, with all ways to bind
  // cells then, and with such as must end only where the others do not suffice. Otherwise these are
  // lazy ones in the way of the place found and such as preempt for leaves that will not do; it is
  // kept unless fewer gangs end then.
  bool try_yielding(hived_cells& cells, const hived_search_input& q,
                    const health<uniform_tree>& usable, bool found) {
    const physical_chain& chain = cells.chain(cells.cluster(q.cluster).chain());
    std::vector<gang_slot> lower =
        hived_victims::lower_ones(cells, q.gangs, q.cluster, q.request.priority);
    if (found)
      std::erase_if(lower, [&](gang_slot s) { return !in_the_way(chain, q.gangs[s], s, usable); });
    if (lower.empty() || (!found && cells.is_pinned(q.cluster))) return found;
    if (!found && !supply_.fits_repaired(cells, q.gangs, q.request, q.cluster, q.restarted)) {
      verdict_ = fit_verdict::does_not_fit;
      cut_ = supply_.cut();
      return false;
    }
    const bool spread = is_spread_over_whole_cells(cells.cluster(q.cluster), q.request.rules);
    gang_place best = place_;
    std::size_t most = found ? num_ended(chain, q.gangs) - 1 : ~std::size_t{0};
    const auto give_way = [&](std::size_t n) {  // some of the first n of them
      const auto take = [&](bool good) {
        if (!good || num_ended(chain, q.gangs) > most) return false;
        most = num_ended(chain, q.gangs);
        best = place_;
        return true;
      };
      const auto suffice = [&](std::span<const gang_slot> some) {
        hived_search_options way{.usable = &usable, .apart = true, .yielding = some};
        bool good = spread && take(attempt(cells, q, way));
        way.apart = false;
        if (!good || most > 0) good = take(attempt(cells, q, way)) || good;
        if (good || found || some.size() < n) return good;
        return take(try_filtered(cells, q, usable, some));
      };
      return hived_victims::choose_few(std::span(lower).first(n), suffice);
    };
    const auto runs_on = [&](gang_slot s) { return !hived_victims::must_end(q.gangs[s]); };
    const auto others =
        static_cast<std::size_t>(std::count_if(lower.begin(), lower.end(), runs_on));  // the first
    found = (others > 0 && give_way(others)) || (others < lower.size() && give_way(lower.size())) ||
            found;
    place_ = std::move(best);
    if (found) verdict_ = fit_verdict::fits;
    return found;
  }
  // Of a gang that gives its tenant's cells back without ending: whether fewer might end if it does,
  // where the place is.
  [[nodiscard]] bool in_the_way(const physical_chain& chain, const gang_record& gang,
                                gang_slot slot, const health<uniform_tree>& usable) const noexcept {
    if (hived_victims::must_end(gang)) return false;
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
      if (hived_victims::must_end(gangs[s])) ended_.push_back(s);
    std::sort(ended_.begin(), ended_.end());
    return static_cast<std::size_t>(std::unique(ended_.begin(), ended_.end()) - ended_.begin());
  }

  hived_search_step attempt_;
  hived_wait_reason supply_;
  std::optional<gang_fit::shortage> cut_;
  fit_verdict verdict_ = fit_verdict::fits;
  gang_place place_;
  std::vector<gang_slot> ended_;
};

}  // namespace detail
APIARY_NAMESPACE_END
