// apiary/hived/detail/planner.h - places a gang in one of its chains, or says why it waits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/status.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/search.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/model/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Tries the chains that a request may use one after another, first all without preemption, then all
// with preemption. Task groups of equal size are merged, except under topology constraints.
// Cost: as hived_search for each chain; with suggested nodes O(nodes) more. why():
//       hived_refusal::may_count on bad hardware, and with a proof hived_refusal for each chain.
class hived_planner {
 public:
  [[nodiscard]] gang_record::cost_function& victim_cost() noexcept { return search_.victim_cost(); }
  // Chooses the chains that a request may use and where its topology constraints are valid.
  // Requires: hived_catalog::check accepts it. kFailedPrecondition: the tenant has no cells that it
  // may use. kInvalidArgument: its constraints are valid in none of these chains.
  absl::Status consider(const hived_catalog& catalog, const hived_cells& cells,
                        const gang_request& r) {
    chains_.clear();
    clusters_.clear();
    std::string invalid;  // why the constraints are not valid
    for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
      if (r.leaf_type.valid() && catalog.type_of(c) != r.leaf_type) continue;
      if (!r.chains.empty() && std::find(r.chains.begin(), r.chains.end(), c) == r.chains.end())
        continue;
      vc_chain_id cluster;
      if (r.pinned) {
        if (catalog.layout().pinned[*r.pinned].chain.value != c) continue;
        cluster = cells.cluster_of_pinned(*r.pinned);
      } else if (r.priority >= 0) {
        cluster = cells.cluster_of(r.tenant, c);
        if (!cluster.valid()) continue;
      }
      if (r.constraints.any()) {
        const physical_chain& chain = cells.chain(c);
        std::string here = constrained_(r).fault(r, chain.node_level(), chain.tree().num_levels());
        if (here.empty() && r.priority >= 0) here = spread_fault(catalog, cells, r, cluster);
        if (invalid.empty()) invalid = here;
        if (!here.empty()) continue;
      }
      clusters_.push_back(cluster);
      chains_.push_back(c);
    }
    if (chains_.empty() && !invalid.empty())
      return error_of(absl::StatusCode::kInvalidArgument,
                      {hived_catalog::name(r.job), ": ", invalid});
    if (chains_.empty()) {
      const bool typed = r.leaf_type.valid();
      return error_of(
          absl::StatusCode::kFailedPrecondition,
          {hived_catalog::name(r.job), ": tenant ", catalog.layout().tenants[r.tenant.value].name,
           " has no cells", typed ? " of type " : "", typed ? catalog.name(r.leaf_type) : "",
           r.chains.empty() ? "" : " in the chains that the gang names"});
    }
    return absl::OkStatus();
  }
  // Searches these chains; returns whether it found a placement. `restarted`: a preempting gang
  // that proposes again; its claims count as gone.
  bool find(const hived_catalog& catalog, hived_state& state, const gang_request& r,
            std::optional<gang_slot> restarted) {
    if (r.constraints.any()) {
      groups_ = r.groups;
    } else {
      merge(r.groups);
    }
    merged_ = groups_.size() < r.groups.size();
    if (!merged_) return search(catalog, state, r, restarted);
    gang_request by_size = r;
    by_size.groups = groups_;
    if (!search(catalog, state, by_size, restarted)) return false;
    reorder(r.groups);
    return true;
  }
  // The placement that find() found, in the order of the task groups of the request.
  [[nodiscard]] const gang_placement& place() const noexcept {
    return merged_ ? place_ : search_.place();
  }
  // After find() returned false: why the gang waits. May call find() again. The chain and shortage
  // are of the first chain that gives the reason, for `never` of that with the most leaves.
  [[nodiscard]] gang_wait why(const hived_catalog& catalog, hived_state& state, gang_request r) {
    const std::vector<task_group> asked = std::exchange(r.groups, groups_);
    gang_wait wait{.reason = wait_reason::never};
    const bool undecided = undecided_ && !(r.constraints.any() && is_refused(state, r));
    bool repaired = false;
    std::uint32_t most = 0;
    std::size_t index = 0;  // of the chain that gives the reason
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const physical_chain& chain = state.cells().chain(chains_[i]);
      if (!may_fit(state, r, i, wait_reason::never)) {
        const std::uint32_t leaves = num_leaves(state.cells(), i);
        if (wait.reason == wait_reason::never && leaves > most) {
          most = leaves;
          index = i;
        }
        continue;
      }
      if (wait.reason == wait_reason::never) index = i;
      wait.reason = wait_reason::busy;
      if (repaired || !chain.any_bad()) continue;
      repaired = may_fit(state, r, i, wait_reason::busy);
      if (repaired) index = i;
    }
    wait.shortage = shortages_[index];
    wait.chain = chains_[index];
    if (wait.reason == wait_reason::busy) {
      if (repaired) wait.reason = wait_reason::unhealthy;
      if (undecided) {
        wait.reason = wait_reason::undecided;
      } else if (r.suggested != nullptr) {
        r.suggested = nullptr;
        if (find(catalog, state, r, restarted_)) {
          wait.reason = wait_reason::not_suggested;
        } else if (undecided_ && !(r.constraints.any() && is_refused(state, r))) {
          wait.reason = wait_reason::undecided;
        }
      }
    }
    if (wait.reason == wait_reason::never || wait.reason == wait_reason::busy)
      prove(state, r, asked, wait);
    return wait;
  }

 private:
  // Why a spread of the constraints is not possible on the cells of the tenant; empty if it is.
  [[nodiscard]] static std::string spread_fault(const hived_catalog& catalog,
                                                const hived_cells& cells, const gang_request& r,
                                                vc_chain_id c) {
    const level_t level = spread_over_whole_cells(cells.cluster(c), r);
    if (level == any_level) return {};
    std::uint32_t below = 0;
    for (level_t l = 0; l < level; ++l) below += cells.cluster(c).tree().roots(l).size();
    return absl::StrCat("anti-affinity at level ", level, ": tenant ",
                        catalog.layout().tenants[r.tenant.value].name, " has ", below,
                        " cells below that level, and several of them may lie in one cell of it; "
                        "a tenant needs cells of that level for it");
  }
  // The search of find(), for the task groups in groups_.
  bool search(const hived_catalog& catalog, hived_state& state, const gang_request& r,
              std::optional<gang_slot> restarted) {
    restarted_ = restarted;
    undecided_ = false;
    shortages_.assign(chains_.size(), std::nullopt);
    const bool filtered = r.suggested != nullptr && !r.suggested->all();
    for (const bool preempting : {false, true}) {
      if (preempting && r.priority < 0) break;
      for (std::size_t i = 0; i < chains_.size(); ++i) {
        bool found = search_in(state, r, i, preempting, nullptr);
        const bool decided = search_.verdict() != fit_verdict::budget_ended;
        if (filtered && (found ? !is_suggested(catalog, state, i, *r.suggested) : !decided)) {
          const health<uniform_tree> usable =
              suggested_leaves(catalog, state.cells(), chains_[i], *r.suggested);
          found = search_in(state, r, i, preempting, &usable);
        }
        if (found) return true;
        shortages_[i] = search_.shortage();
        undecided_ = undecided_ || search_.verdict() == fit_verdict::budget_ended;
      }
    }
    return false;
  }
  bool search_in(hived_state& state, const gang_request& r, std::size_t i, bool preempting,
                 const health<uniform_tree>* usable) {
    if (r.priority < 0) return search_.opportunistic(state.cells(), r, chains_[i], usable);
    return search_.guaranteed(state.cells(), state.gangs(), r, clusters_[i], preempting, usable,
                              restarted_);
  }
  // Whether all nodes of the placement found in the i-th chain are suggested.
  [[nodiscard]] bool is_suggested(const hived_catalog& catalog, const hived_state& state,
                                  std::size_t i, const summary_bitset& suggested) const {
    const physical_chain& chain = state.cells().chain(chains_[i]);
    const std::uint32_t first = catalog.layout().chains[chains_[i]].first_node;
    const lean_vector<bound_leaf>& leaves = search_.place().leaves;
    return std::all_of(leaves.begin(), leaves.end(), [&](const bound_leaf& l) {
      return suggested.test(first + chain.node_of(l.image));
    });
  }
  [[nodiscard]] refused_chain at(std::size_t i, wait_reason reason) const {
    return {chains_[i], clusters_[i], reason, restarted_};
  }
  // Whether the gang may fit in the i-th chain if all leaves are healthy, for `never` also idle.
  [[nodiscard]] bool may_fit(const hived_state& state, const gang_request& r, std::size_t i,
                             wait_reason reason) {
    const refused_chain here = at(i, reason);
    if (!r.constraints.any()) return refusal_.may_count(state.cells(), state.gangs(), r, here);
    return constrained_(r).may_fit(state.cells(), state.gangs(), r, here);
  }
  // Whether the gang certainly fits in no chain, even with bad and not suggested hardware.
  [[nodiscard]] bool is_refused(const hived_state& state, const gang_request& r) {
    for (std::size_t i = 0; i < chains_.size(); ++i)
      if (may_fit(state, r, i, wait_reason::busy)) return false;
    return true;
  }
  // Adds one proof for each chain, or none if one chain has none, for the task groups `asked`.
  void prove(const hived_state& state, const gang_request& r, std::span<const task_group> asked,
             gang_wait& wait) {
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const refused_chain here = at(i, wait.reason);
      auto found = r.constraints.any()
                       ? constrained_(r).prove(state.cells(), state.gangs(), r, here)
                       : refusal_(state.cells(), state.gangs(), r, here);
      if (!found) return wait.proof.clear();
      for (std::uint32_t& kind : found->groups) {
        if (r.constraints.any()) break;  // groups were not merged
        const std::uint32_t leaves = r.groups[kind].gpus;
        for (kind = 0; asked[kind].gpus != leaves;) ++kind;
      }
      wait.proof.push_back({chains_[i], std::move(*found)});
    }
  }
  // Merges task groups of equal size into groups_, in the order of the first group of each size.
  void merge(std::span<const task_group> groups) {
    groups_.clear();
    first_.fill(none);
    for (const task_group& m : groups) {
      if (first_[m.gpus - 1] == none) {
        first_[m.gpus - 1] = static_cast<std::uint32_t>(groups_.size());
        groups_.push_back({0, m.gpus});
      }
      groups_[first_[m.gpus - 1]].tasks += m.tasks;
    }
  }
  // Sets place_ to the placement found for groups_, in the order of the original task groups.
  void reorder(std::span<const task_group> groups) {
    place_ = search_.place();
    std::uint32_t next = 0;
    for (const task_group& m : groups_) {
      first_[m.gpus - 1] = next;
      next += m.tasks * m.gpus;
    }
    auto to = place_.leaves.begin();
    for (const task_group& m : groups) {
      const std::uint32_t n = m.tasks * m.gpus;
      to = std::copy_n(search_.place().leaves.begin() + first_[m.gpus - 1], n, to);
      first_[m.gpus - 1] += n;
    }
  }
  // The leaves of the i-th chain that the gang may use; all of them if it is opportunistic.
  [[nodiscard]] std::uint32_t num_leaves(const hived_cells& cells, std::size_t i) const noexcept {
    return clusters_[i].valid() ? cells.cluster(clusters_[i]).tree().num_leaves()
                                : cells.chain(chains_[i]).tree().num_leaves();
  }
  // The healthy leaves of a chain on suggested nodes.
  [[nodiscard]] static health<uniform_tree> suggested_leaves(const hived_catalog& catalog,
                                                             const hived_cells& cells,
                                                             std::uint32_t c,
                                                             const summary_bitset& suggested) {
    const physical_chain& chain = cells.chain(c);
    health<uniform_tree> usable(chain.tree(), false);
    for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
      if (!suggested.test(catalog.layout().chains[c].first_node + n)) continue;
      usable.mark_healthy(chain.node_cell(n));
      if (chain.healthy().healthy(chain.node_cell(n))) continue;
      for (const cell_id leaf : chain.tree().descendants(chain.node_cell(n), 0))
        if (!chain.healthy().healthy(leaf)) usable.mark_bad(leaf);
    }
    return usable;
  }
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  hived_search search_;
  hived_refusal refusal_;
  lazy_constrained_search constrained_;
  std::optional<gang_slot> restarted_;  // of the last find()
  bool undecided_ = false;              // a search ended with its budget
  bool merged_ = false;                 // groups_ has fewer groups than the request
  std::vector<task_group> groups_;      // task groups of the request, merged by size
  std::array<std::uint32_t, gang_fit::max_gpus> first_{};  // by size - 1
  gang_placement place_;                                   // if merged_
  lean_vector<std::uint32_t> chains_;  // chains of the request, in the order of the search
  lean_vector<vc_chain_id> clusters_;  // one for each of chains_; not valid: opportunistic
  lean_vector<std::optional<gpu_shortage>> shortages_;  // one for each chain, of the last search
};

}  // namespace detail
APIARY_NAMESPACE_END
