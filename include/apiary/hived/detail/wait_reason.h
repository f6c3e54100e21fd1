// apiary/hived/detail/wait_reason.h - whether a gang that waits would fit under other conditions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds out why a gang waits: whether it would fit if the cluster were empty or repaired, and
// whether it has too few leaves for any choice of whole cells.
//
// Cost: fits_empty as gang_fit; fits_repaired see there; shortage_anyhow O(leaves of the tenant),
//       and grant_ranking for each task size.
class hived_wait_reason {
 public:
  // Whether the gang would fit in the cells of a tenant, or in a chain, if nothing were in use and
  // all leaves were healthy.
  bool fits_empty(const virtual_cluster& cluster, std::span<const task_group> groups) {
    counts_.clear();
    for (const virtual_cluster::node_range& r : cluster.node_ranges())
      counts_.push_back({r.leaves, r.nodes});
    return fits(groups);
  }
  bool fits_empty(const physical_chain& chain, std::span<const task_group> groups) {
    counts_.assign(1, {chain.node_leaves(), chain.num_nodes()});
    return fits(groups);
  }

  // Whether the gang would fit if all leaves were healthy: as an opportunistic gang in a chain, or
  // as a guaranteed gang in the cells of its tenant.
  // Cost: O(leaves of a node, squared, + cells of the highest level), and O(levels * fan-out) for
  //       each bad leaf of the chain; in the cells of a tenant also O(leaves of the tenant's gangs
  //       of lower priority).
  bool fits_repaired(const physical_chain& chain, std::span<const task_group> groups) {
    clear_counts();
    const std::span<const std::uint32_t> nodes = chain.guest_nodes().counts();
    for (const bool granted : {false, true}) {
      for (std::uint32_t guests = 0; guests < chain.node_leaves(); ++guests) {
        for (std::uint32_t idle = 1; guests + idle <= chain.node_leaves(); ++idle)
          counts_[idle].nodes += nodes[chain.guest_class(granted, guests, idle)];
      }
    }
    more_.clear();
    for_each_bad_leaf(chain, [&](cell_id leaf) {
      if (chain.holders(leaf).idle()) more_.push_back(chain.node_of(leaf));
    });
    add_more([&](std::uint32_t n) { return chain.idle(n); });
    return fits(groups);
  }
  // `restarted`: a preempting gang whose claims count as gone, as in hived_search.
  bool fits_repaired(const hived_cells& cells, const gang_table& gangs, const gang_request& request,
                     vc_chain_id c, std::optional<gang_slot> restarted) {
    const virtual_cluster& cluster = cells.cluster(c);
    clear_counts();
    const std::span<const std::uint32_t> nodes = cluster.free_nodes().counts();
    for (std::uint32_t f = 1; f < nodes.size(); ++f) counts_[f].nodes = nodes[f];
    more_.clear();
    for_each_leaf_to_be_had(cells, gangs, request, c, restarted,
                            [&](std::uint32_t n) { more_.push_back(n); });
    merge_sort(more_);
    add_more([&](std::uint32_t n) { return cluster.free(n); });
    return fits(request.groups);
  }

  // After one of these returned false: a count that proves it, if there is one.
  [[nodiscard]] const std::optional<gang_fit::shortage>& cut() const noexcept { return cut_; }

  // A count that the gang exceeds however the whole cells that are not bound yet are granted, if
  // there is one. The other arguments are as in hived_search. Requires: gangs whose cells count as
  // gone have lost them already.
  [[nodiscard]] std::optional<gang_fit::shortage> shortage_anyhow(
      hived_cells& cells, const gang_table& gangs, const gang_request& request, vc_chain_id c,
      bool preempting, const health<uniform_tree>& usable) {
    const virtual_cluster& cluster = cells.cluster(c);
    const physical_chain& chain = cells.chain(cluster.chain());
    list_bound_nodes(cluster, chain, [&](cell_id leaf) {
      if (!usable.healthy(leaf)) return false;
      const gang_slot holder = chain.holders(leaf).holder();
      return !holder.valid() || (preempting && gangs[holder].request.priority < request.priority);
    });
    std::uint64_t sizes = 1;  // bit s-1: count how often s leaves fit on a node
    for (const task_group& m : request.groups) sizes |= std::uint64_t{1} << (m.gpus - 1);
    for (; sizes != 0; sizes &= sizes - 1) {
      const auto piece = static_cast<std::uint32_t>(std::countr_zero(sizes)) + 1;
      gang_fit::shortage count{piece, 0, cells.most_pieces(c, usable, piece)};
      for (const task_group& m : request.groups)
        count.needed += std::uint64_t{m.tasks} * (m.gpus / piece);
      for (const node_class& k : counts_)
        count.present += std::uint64_t{k.nodes} * (k.free / piece);
      if (count.present < count.needed) return count;
    }
    return std::nullopt;
  }

 private:
  void clear_counts() {
    counts_.clear();
    for (std::uint32_t f = 0; f <= gang_fit::max_gpus; ++f) counts_.push_back({f, 0});
  }
  // Adds one leaf to the counts for each node in more_. Requires: more_ is ascending. free(n): the
  // leaves of node n that are counted already.
  template <class Free>
  void add_more(const Free& free) {
    for (std::size_t i = 0, next = 0; i < more_.size(); i = next) {
      while (next < more_.size() && more_[next] == more_[i]) ++next;
      const auto before = static_cast<std::uint32_t>(std::popcount(free(more_[i])));
      if (before > 0) --counts_[before].nodes;
      ++counts_[before + (next - i)].nodes;
    }
  }
  // Counts the nodes of bound whole cells by the number of leaves for which counts(leaf) is true.
  template <class Counts>
  void list_bound_nodes(const virtual_cluster& cluster, const physical_chain& chain,
                        const Counts& counts) {
    clear_counts();
    for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
      for (const cell_id root : cluster.tree().roots(l)) {
        const cell_id image = cluster.image(root);
        if (!image.valid()) continue;
        for (const cell_id node :
             chain.tree().descendants(image, (std::min)(l, chain.node_level()))) {
          std::uint32_t free = 0;
          for (const cell_id leaf : chain.tree().descendants(node, 0))
            free += counts(leaf) ? 1U : 0U;
          ++counts_[free].nodes;
        }
      }
    }
  }
  // Whether the gang may fit the counts: false only with a proof that it does not.
  bool fits(std::span<const task_group> groups) {
    const gang_fit::result packed = fit_(counts_, groups);
    cut_ = packed.cut;
    return packed.verdict != fit_verdict::does_not_fit;
  }

  gang_fit fit_;
  std::optional<gang_fit::shortage> cut_;
  std::vector<node_class> counts_;
  std::vector<std::uint32_t> more_;  // the node of each leaf to be added
};

}  // namespace detail
APIARY_NAMESPACE_END
