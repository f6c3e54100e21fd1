// apiary/hived/detail/victims.h - which gangs lose their cells so that another one fits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/guest_choice.h>
#include <apiary/hived/detail/leaf_view.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/preempt/victim_search.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Chooses the victims of least cost (victim_search) among the gangs of lower priority in a virtual
// cluster, and frees their leaves tentatively. The cost is the number of running gangs, then the
// sum of their priorities, then the number of their leaves; exact for up to 1,047 victims with up
// to 2^20 leaves together. A preempting gang costs less than any running gang. A gang that ends
// anyway, because another gang has claimed some of its leaves, costs only its leaves. If the host
// sets costs (victim_cost), both cost nothing.
// Cost: if one of the 32 cheapest gangs is enough alone, O(leaves of these gangs) and gang_fit for
//       each; otherwise O(leaves of the tenant's gangs of lower priority) and victim_search.
class hived_victims {
 public:
  // Chooses victims and frees their leaves, so that the gang fits in the view. `nodes`: the nodes
  // of the view by free leaves.
  fit_verdict preempt(hived_cells& cells, const gang_table& gangs, const gang_request& request,
                      vc_chain_id c, const leaf_view& view, const node_index& nodes) {
    freed_.clear();
    if (const auto one = cheapest_alone(gangs, request, c, view, nodes)) {
      free_gang(cells, gangs, *one, request.priority, view);
      return fit_verdict::fits;
    }
    list_candidates(cells, gangs, request.priority, c);
    others_.assign(nodes.counts());
    list_gpus_of_candidates(gangs, request.priority, view);
    for (gpus_on_node& g : gpus_of_candidates_) g.node = entry(g.node, view);
    for (const std::uint32_t n : named_) entry_[n] = none;
    named_.clear();
    list_classes(others_);
    const victim_set found =
        search_(classes_, free_, candidates_, gpus_of_candidates_, request.groups);
    shortage_ = found.shortage;
    return free_victims(cells, gangs, found, request.priority, view);
  }
  // The same under topology constraints, after `constrained` said no.
  fit_verdict preempt_under_constraints(hived_cells& cells, const gang_table& gangs,
                                        const gang_request& request, vc_chain_id c,
                                        constrained_search& constrained, const leaf_view& view) {
    freed_.clear();
    list_candidates(cells, gangs, request.priority, c);
    list_gpus_of_candidates(gangs, request.priority, view);
    const victim_set found = constrained.victims(candidates_, gpus_of_candidates_);
    return free_victims(cells, gangs, found, request.priority, view);
  }
  // The cost of ending a gang, as in preempt().
  [[nodiscard]] std::uint64_t cost_of_ending(const hived_cells& cells,
                                             const gang_record& gang) const {
    const bool ends = gang.ends_for.valid() || gang.claimed(cells);  // anyway
    const bool runs = gang.state == gang_state::allocated;
    if (cost_ != nullptr) return runs && !ends ? (std::min)(cost_(gang), max_cost) : 0;
    const std::uint64_t leaves = gang.count_live(0, gang.leaves.size());
    if (ends) return leaves;
    const std::uint64_t priority = static_cast<std::uint64_t>(gang.request.priority) + 1;
    return (runs ? max_cost : 0) + (priority << 20) + leaves;
  }
  // Lower bounds of that cost. While a gang is preempting, another one may end anyway.
  [[nodiscard]] guest_fates::least_cost least_cost_of_ending(const hived_cells& cells,
                                                             const gang_table& gangs) const {
    if (cost_ != nullptr) return {};
    for (std::uint32_t c = 0; c < cells.num_clusters(); ++c) {
      const auto& all = gangs.of_cluster(vc_chain_id(c));
      if (!all.empty() && !all.begin()->first.runs) return {.gang = 0, .leaf = 1};
    }
    return {.gang = max_cost, .leaf = 1};
  }
  // The cost of ending a gang that the host has set; empty: the default cost.
  [[nodiscard]] gang_record::cost_function& victim_cost() noexcept { return cost_; }
  // Restores the holders of the freed leaves, in reverse: a leaf that one victim uses and another
  // has claimed was freed twice.
  void restore_leaves(hived_cells& cells) {
    for (; !freed_.empty(); freed_.pop_back()) {
      const auto& [l, holders] = freed_.back();
      cells.hold(l.chain, l.leaf, holders);
    }
  }
  // A count that proves that the last victim_search had no answer, if there is one.
  [[nodiscard]] const std::optional<gpu_shortage>& shortage() const noexcept { return shortage_; }
  // The gangs of lower priority in a virtual cluster, by the cost of taking their cells: preempting
  // gangs and lazy gangs, then gangs that end anyway, then gangs that must end; within each the
  // order of gang_table::ranked.
  [[nodiscard]] static lean_vector<gang_slot> gangs_of_lower_priority(const hived_cells& cells,
                                                                      const gang_table& gangs,
                                                                      vc_chain_id c,
                                                                      std::int32_t priority) {
    lean_vector<gang_slot> all;
    lean_vector<gang_slot> end_anyway;
    lean_vector<gang_slot> others;
    for (const auto& [g, slot] : gangs.of_cluster(c)) {
      if (g.runs && g.priority >= priority) break;
      if (g.priority >= priority) continue;
      const gang_record& gang = gangs[slot];
      (!must_end(gang) ? all : gang.claimed(cells) ? end_anyway : others).push_back(slot);
    }
    all.append(end_anyway.begin(), end_anyway.end());
    all.append(others.begin(), others.end());
    return all;
  }
  // Whether a gang gives up its tenant's cells only by ending.
  [[nodiscard]] static bool must_end(const gang_record& gang) noexcept {
    return gang.state == gang_state::allocated && !gang.request.lazy;
  }
  // Chooses few gangs that are enough, so that none of them can be left out; the last gang chosen
  // comes as early in the list as possible, then the last but one, and so on. After 64 tries it
  // takes the best answer so far. suffice(span) says whether some gangs are enough; then more gangs
  // must be enough, too. The answer is the last span for which it returned true. Returns whether
  // all gangs are enough. Cost: O(log n) calls for each gang chosen, at most 65 in all.
  template <class F>
  static bool choose_few(std::span<const gang_slot> gangs, F&& suffice) {
    if (!suffice(gangs)) return false;
    lean_vector<gang_slot> needed;
    lean_vector<gang_slot> some;
    std::size_t enough = gangs.size();  // the first `enough` and the needed ones are enough
    for (int tries = 64; enough > 0; needed.push_back(gangs[--enough])) {
      for (std::size_t few = 0; few < enough;) {  // fewer than `few` are not enough
        if (tries-- == 0) return true;
        const std::size_t half = few + (enough - few) / 2;
        some = needed;
        some.append(gangs.data(), gangs.data() + half);
        if (suffice(std::span<const gang_slot>(some))) {
          enough = half;
        } else {
          few = half + 1;
        }
      }
      if (enough == 0) break;
    }
    return true;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint64_t max_cost = std::uint64_t{1} << 40;  // of a gang that runs
  // Lists the gangs of lower priority and their costs, by job.
  void list_candidates(const hived_cells& cells, const gang_table& gangs, std::int32_t priority,
                       vc_chain_id c) {
    slots_.clear();
    for (const auto& [g, slot] : gangs.of_cluster(c)) {
      if (g.runs && g.priority >= priority) break;
      if (g.priority < priority) slots_.push_back(slot);
    }
    merge_sort(slots_, [&](gang_slot a, gang_slot b) {
      return gangs[a].request.job < gangs[b].request.job;
    });
    candidates_.clear();
    gpus_of_candidates_.clear();
    free_.clear();
    for (const gang_slot s : slots_) candidates_.push_back({cost_of_ending(cells, gangs[s]), 0, 0});
  }
  // For a tenant without preempting gangs: the first of the 32 cheapest gangs that is enough alone;
  // no set of victims costs less. nullopt if there is none, or if the host sets costs.
  std::optional<gang_slot> cheapest_alone(const gang_table& gangs, const gang_request& request,
                                          vc_chain_id c, const leaf_view& view,
                                          const node_index& nodes) {
    std::size_t tries = 32;
    for (const auto& [g, slot] : gangs.of_cluster(c)) {
      if (cost_ || !g.runs || g.priority >= request.priority || tries-- == 0) break;
      list_gpus_of_gang(gangs, slot, request.priority, view);
      others_.assign(nodes.counts());
      for (const auto& [node, gpus] : gpus_of_gang_) {
        const std::uint32_t before = view.count(node);
        if (before > 0) --others_[before];
        ++others_[before + gpus];
      }
      list_classes(others_);
      if (fit_(classes_, request.groups).verdict == fit_verdict::fits) return slot;
    }
    return std::nullopt;
  }
  // The classes of nodes with free leaves. counts[f]: the nodes with f of them.
  void list_classes(std::span<const std::uint32_t> counts) {
    classes_.clear();
    for (std::uint32_t f = 1; f < counts.size(); ++f)
      if (counts[f] > 0) classes_.push_back({f, counts[f]});
  }
  // Lists the leaves that each candidate frees on each node of the cluster.
  void list_gpus_of_candidates(const gang_table& gangs, std::int32_t priority,
                               const leaf_view& view) {
    for (std::size_t j = 0; j < slots_.size(); ++j) {
      list_gpus_of_gang(gangs, slots_[j], priority, view);
      candidates_[j].first = static_cast<std::uint32_t>(gpus_of_candidates_.size());
      gpus_of_candidates_.append(gpus_of_gang_.begin(), gpus_of_gang_.end());
      candidates_[j].last = static_cast<std::uint32_t>(gpus_of_candidates_.size());
    }
  }
  // The leaves that are available once the gang is gone, by node of the cluster, ascending.
  void list_gpus_of_gang(const gang_table& gangs, gang_slot slot, std::int32_t priority,
                         const leaf_view& view) {
    at_.clear();
    for (const chain_leaf l : gangs[slot].leaves)
      if (l.leaf.valid() && becomes_available(gangs, slot, l.leaf, priority, view))
        at_.push_back(view.cluster().node_of(view.chain().owner(l.leaf).cell));
    merge_sort(at_);
    gpus_of_gang_.clear();
    for (const std::uint32_t n : at_) {
      if (gpus_of_gang_.empty() || gpus_of_gang_.back().node != n) gpus_of_gang_.push_back({n, 0});
      ++gpus_of_gang_.back().gpus;
    }
  }
  // Frees the leaves of the victims tentatively, if there are victims that are enough.
  fit_verdict free_victims(hived_cells& cells, const gang_table& gangs, const victim_set& found,
                           std::int32_t priority, const leaf_view& view) {
    if (found.verdict != fit_verdict::fits) return found.verdict;
    for (const std::uint32_t j : found.victims) free_gang(cells, gangs, slots_[j], priority, view);
    return fit_verdict::fits;
  }
  void free_gang(hived_cells& cells, const gang_table& gangs, gang_slot slot, std::int32_t priority,
                 const leaf_view& view) {
    for (const chain_leaf l : gangs[slot].leaves) {
      if (!l.leaf.valid() || !becomes_available(gangs, slot, l.leaf, priority, view)) continue;
      freed_.push_back({l, view.chain().holders(l.leaf)});
      cells.hold(l.chain, l.leaf, leaf_holders());
    }
  }
  // Whether the leaf is available once this gang is gone; a leaf in use and claimed is its user's.
  [[nodiscard]] static bool becomes_available(const gang_table& gangs, gang_slot slot, cell_id leaf,
                                              std::int32_t priority,
                                              const leaf_view& view) noexcept {
    const leaf_holders h = view.chain().holders(leaf);
    if (!view.usable().healthy(leaf) || (h.guaranteed ? h.user : h.claimer) != slot) return false;
    return !h.claimer.valid() || gangs[h.claimer].request.priority < priority;
  }
  // The position of a node in free_, added if it is new.
  std::uint32_t entry(std::uint32_t node, const leaf_view& view) {
    if (entry_.size() <= node) entry_.resize(node + 1, none);
    if (entry_[node] != none) return entry_[node];
    entry_[node] = static_cast<std::uint32_t>(free_.size());
    named_.push_back(node);
    free_.push_back(view.count(node));
    --others_[free_.back()];
    return entry_[node];
  }
  gang_record::cost_function cost_;
  victim_search search_;
  std::optional<gpu_shortage> shortage_;  // of the last search of search_
  gang_fit fit_;
  lean_vector<gang_slot> slots_;
  lean_vector<eviction_candidate> candidates_;  // for each slot
  lean_vector<gpus_on_node> gpus_of_candidates_;
  lean_vector<std::uint32_t> free_;   // for each listed node
  lean_vector<std::uint32_t> entry_;  // for each node of the cluster its position in free_
  lean_vector<std::uint32_t> named_;
  lean_vector<std::uint32_t> at_;
  lean_vector<gpus_on_node> gpus_of_gang_;
  lean_vector<std::uint32_t> others_;  // nodes by free leaves, without the listed nodes
  lean_vector<gang_fit::node_class> classes_;
  lean_vector<std::pair<chain_leaf, leaf_holders>> freed_;
};

}  // namespace detail
APIARY_NAMESPACE_END
