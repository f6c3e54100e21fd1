// apiary/tests/support/naive_hived.h - whether a HiveD tenant could place a gang at all, by trying.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_constraints.h"
#include "support/naive_gang.h"
#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace apiary_test {

// All that a guaranteed gang could get of a cluster. What is tried:
//
//   The whole cells of the cluster that are bound stay where they are, other than those in which
//   only the gang itself and gangs of lower priority have something: where some leaf of the chain
//   will not do, these count as not bound. Each of those not bound goes to any physical cell of its
//   level that is free or part of a free one, as long as the reservations of all other clusters of the
//   chain can still be kept.
//   In them the gang may have every leaf that is healthy and on a suggested node, unless a gang of
//   the same priority or a higher one uses or has claimed it. Opportunistic tasks and gangs of
//   lower priority do not count. A task is on one physical node, inside one whole cell.
//
// Cost: exponential in the cells that are not bound.
class naive_tenant {
 public:
  naive_tenant(const apiary::hived& scheduler, const apiary::gang_request& request,
               apiary::vc_chain_id cluster)
      : scheduler_(scheduler),
        request_(request),
        cluster_(scheduler.cells().cluster(cluster)),
        chain_(scheduler.cells().chain(cluster_.chain())),
        tree_(chain_.tree()),
        occupied_(tree_.num_leaves()) {
    for (apiary::level_t l = 0; l < tree_.num_levels(); ++l)
      for (const apiary::cell_id p : tree_.cells(l))
        if (chain_.cells().cells().is_live(p)) occupy(p, true);
    others_.assign(tree_.num_levels(), 0);
    for (apiary::level_t l = 0; l < tree_.num_levels(); ++l)
      others_[l] = chain_.cells().reserved(l);
    bool all_will_do = true;
    for (const apiary::cell_id leaf : tree_.cells(0)) all_will_do = all_will_do && will_do(leaf);
    const bool stay = all_will_do || scheduler.cells().is_pinned(cluster);
    for (apiary::level_t l = tree_.num_levels(); l-- > 0;) {
      for (const apiary::cell_id root : cluster_.tree().roots(l)) {
        const apiary::cell_id image = cluster_.image(root);
        if (image.valid() && (stay || !can_be_emptied(image))) {
          add_leaves(image, l);
          continue;
        }
        unbound_.push_back(l);
        if (image.valid()) {
          occupy(image, false);
        } else {
          --others_[l];
        }
      }
    }
  }

  [[nodiscard]] std::size_t unbound() const noexcept { return unbound_.size(); }

  // Whether the gang fits for some choice of cells.
  [[nodiscard]] bool fits() {
    if (request_.constraints.any()) {
      return try_cells(0, 0, [&] {
        return fits_in_whole_cells(tree_, chain_.node_level(), whole_, available_, request_);
      });
    }
    const leaf_counts tasks = tasks_of(request_.groups);
    return try_cells(0, 0, [&] { return fits_by_sets(available_, tasks); });
  }
  // Whether, for every choice of cells, the gang needs more slots of so many leaves than there are.
  [[nodiscard]] bool proven_by(const apiary::gpu_shortage& shortage) {
    std::uint64_t needed = 0;
    for (const std::uint32_t leaves : tasks_of(request_.groups)) needed += leaves / shortage.gpus;
    if (needed != shortage.needed || shortage.present >= needed) return false;
    return !try_cells(0, 0, [&] {
      std::uint64_t present = 0;
      for (const std::uint32_t free : available_) present += free / shortage.gpus;
      return present >= needed;
    });
  }
  // The number of slots of so many leaves, if nothing is unbound or all hardware is healthy.
  [[nodiscard]] std::uint64_t slots(std::uint32_t leaves) {
    std::uint64_t present = 0;
    static_cast<void>(try_cells(0, 0, [&] {
      for (const std::uint32_t free : available_) present += free / leaves;
      return true;
    }));
    return present;
  }

 private:
  void occupy(apiary::cell_id p, bool now) {
    for (const apiary::cell_id leaf : tree_.descendants(p, 0))
      occupied_[tree_.index(leaf, 0)] = now;
  }
  [[nodiscard]] bool is_free(apiary::cell_id p) const {
    for (const apiary::cell_id leaf : tree_.descendants(p, 0))
      if (occupied_[tree_.index(leaf, 0)]) return false;
    return true;
  }
  [[nodiscard]] bool will_do(apiary::cell_id leaf) const {
    const std::uint32_t first = scheduler_.layout().chains[cluster_.chain()].first_node;
    return chain_.healthy().healthy(leaf) &&
           (request_.suggested == nullptr ||
            request_.suggested->test(first + chain_.node_of(leaf)));
  }
  // Whether no gang of its priority or above uses or has claimed the leaf.
  [[nodiscard]] bool can_be_freed(apiary::cell_id leaf) const {
    const apiary::detail::leaf_holders h = chain_.holders(leaf);
    const apiary::gang_slot holder = h.claimer.valid() ? h.claimer
                                     : h.guaranteed    ? h.user
                                                       : apiary::gang_slot();
    return !holder.valid() || holder == scheduler_.gangs().find(request_.job) ||
           scheduler_.gangs()[holder].request.priority < request_.priority;
  }
  // Whether no other tenant has a leaf of it, once gangs of lower priority have ended.
  [[nodiscard]] bool can_be_emptied(apiary::cell_id p) const {
    for (const apiary::cell_id leaf : tree_.descendants(p, 0))
      if (!can_be_freed(leaf)) return false;
    return true;
  }
  // Appends the leaves of a whole cell to what is available, a number a node.
  void add_leaves(apiary::cell_id p, apiary::level_t l) {
    whole_.push_back(l);
    const apiary::level_t node = chain_.node_level() < l ? chain_.node_level() : l;
    for (const apiary::cell_id n : tree_.descendants(p, node)) {
      available_.push_back(0);
      for (const apiary::cell_id leaf : tree_.descendants(n, 0))
        available_.back() += will_do(leaf) && can_be_freed(leaf) ? 1U : 0U;
    }
  }
  // Whether all cells reserved for others fit into what is not occupied.
  [[nodiscard]] bool others_fit() const {
    std::int64_t left = 0;  // free cells, in larger ones, too, beyond what is reserved
    for (apiary::level_t l = tree_.num_levels(); l-- > 0;) {
      if (l + 1 < tree_.num_levels()) left *= tree_.fan_out(l + 1);
      for (const apiary::cell_id p : tree_.cells(l)) {
        const apiary::cell_id above = tree_.parent(p, l);
        if (is_free(p) && !(above.valid() && is_free(above))) ++left;
      }
      left -= others_[l];
      if (left < 0) return false;
    }
    return true;
  }
  // Gives cells to all unbound ones from the i-th on, those of one level in ascending order, until
  // `found` is satisfied.
  template <class F>
  [[nodiscard]] bool try_cells(std::size_t i, std::uint32_t from, const F& found) {
    if (i == unbound_.size()) return others_fit() && found();
    const apiary::level_t l = unbound_[i];
    const apiary::id_range<apiary::cell_id> level = tree_.cells(l);
    for (std::uint32_t k = from; k < level.size(); ++k) {
      if (!is_free(level[k])) continue;
      const std::size_t before = available_.size();
      occupy(level[k], true);
      add_leaves(level[k], l);
      const bool same = i + 1 < unbound_.size() && unbound_[i + 1] == l;
      const bool done = try_cells(i + 1, same ? k + 1 : 0, found);
      available_.resize(before);
      whole_.pop_back();
      occupy(level[k], false);
      if (done) return true;
    }
    return false;
  }

  const apiary::hived& scheduler_;
  const apiary::gang_request& request_;
  const apiary::detail::virtual_cluster& cluster_;
  const apiary::detail::physical_chain& chain_;
  const apiary::uniform_tree& tree_;
  std::vector<bool> occupied_;              // leaves
  std::vector<std::uint32_t> others_{};     // reservations of each level
  std::vector<apiary::level_t> unbound_{};  // descending
  leaf_counts available_{};                 // of each node
  std::vector<apiary::level_t> whole_{};    // of each whole cell with nodes there, its level
};

// The clusters that a guaranteed gang may use.
[[nodiscard]] inline std::vector<apiary::vc_chain_id> clusters_for(const apiary::hived& scheduler,
                                                                   const apiary::gang_request& r) {
  std::vector<apiary::vc_chain_id> all;
  for (std::uint32_t c = 0; c < scheduler.cells().num_chains(); ++c) {
    const auto& types = scheduler.layout().chains[c].level_types;
    if (r.leaf_type.valid() && scheduler.find_leaf_type(types[0]) != r.leaf_type) continue;
    apiary::vc_chain_id cluster = scheduler.cells().cluster_of(r.tenant, c);
    if (r.pinned) {
      cluster = scheduler.layout().pinned[*r.pinned].chain.value == c
                    ? scheduler.cells().cluster_of_pinned(*r.pinned)
                    : apiary::vc_chain_id();
    }
    if (cluster.valid()) all.push_back(cluster);
  }
  return all;
}

}  // namespace apiary_test
