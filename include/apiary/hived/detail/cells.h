// apiary/hived/detail/cells.h - binds virtual cells to physical cells while they are in use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/bindings.h>
#include <apiary/hived/detail/cell_choice.h>
#include <apiary/hived/detail/gang_placement.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/layout.h>
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

// Binds the virtual cells of tenants to physical cells when leaves come into use, and unbinds them
// when no leaf is in use any more. It does not know gangs.
// Model: HiveD (OSDI 2020) sections 3 and 4. The reserving_buddy_allocator of the chain grants
//        whole cells (roots). Differs: an unhealthy child of a bound cell is bound as well, so that
//        for every unbound virtual cell inside a bound one there is a healthy physical cell. A
//        doomed cell that is not in use is not bound; a search binds whole cells only tentatively
//        (bind_whole_cells).
// Cost:  hold, bind_leaf and unbind_leaf O(levels * fan-out). If a whole cell is bound or unbound,
//        also O(nodes of the cell), and for bind_leaf choose_whole_cell.
class hived_cells : private hived_bindings {
  using bindings = hived_bindings;
  friend class hived_snapshot_reader;

 public:
  explicit hived_cells(const hived_layout& layout) : bindings(layout) {}
  using bindings::begin;
  using bindings::chain;
  using bindings::cluster;
  using bindings::cluster_of;
  using bindings::cluster_of_pinned;
  using bindings::hash;
  using bindings::hold;
  using bindings::hold_all;
  using bindings::is_pinned;
  using bindings::keep;
  using bindings::ledger;
  using bindings::memory_bytes;
  using bindings::num_chains;
  using bindings::num_clusters;
  using bindings::position;
  using bindings::rollback;
  using bindings::rollback_to;
  using bindings::whole_cell_level;
  // Binds a virtual leaf, and the unbound cells above it, to healthy physical cells: at each level
  // to the one with the fewest opportunistic leaves. Returns the physical leaf. Returns nullopt and
  // binds nothing if no healthy whole cell can be granted.
  std::optional<cell_id> bind_leaf(vc_chain_id c, cell_id leaf) {
    const virtual_cluster& cluster = bindings::cluster(c);
    const physical_chain& chain = bindings::chain(cluster.chain());
    const cell_id v = find_bound_ancestor(cluster, leaf);
    auto l = static_cast<level_t>(path_.size());
    cell_id image;
    if (v.valid()) {
      image = cluster.image(v);
    } else {
      const std::optional<cell_id> root = choose_whole_cell(chain, --l);
      if (!root) return std::nullopt;
      image = *root;
      bind(c, path_.back(), l, image);
      path_.pop_back();
    }
    while (!path_.empty()) {
      image = choose_child_cell(chain, chain.tree().children(image, l));
      bind(c, path_.back(), --l, image);
      path_.pop_back();
    }
    return image;
  }
  // Binds at.leaf to the physical leaf at.image, and the unbound cells above to those above it.
  // Requires: the lowest bound cells above both leaves are bound to each other; if there are none,
  // the whole cell can be granted.
  void bind_leaf_at(vc_chain_id c, bound_leaf at) {
    const virtual_cluster& cluster = bindings::cluster(c);
    find_bound_ancestor(cluster, at.leaf);
    for (auto l = static_cast<level_t>(path_.size()); l-- > 1;)
      bind(c, path_[l], l, bindings::chain(cluster.chain()).tree().ancestor(at.image, l));
    if (!path_.empty()) bind(c, at.leaf, 0, at.image);
  }

  // Binds an unbound whole cell to p, which can be granted. For searches, which must undo it.
  void bind_whole(vc_chain_id c, cell_id root, level_t l, cell_id p) { bind(c, root, l, p); }

  static constexpr level_t no_level = ~level_t{0};  // not known, or no preference
  // Binds a virtual leaf of the cluster to this physical leaf and returns it; nullopt: no leaf can
  // be bound to it. If no cell above the leaf is bound, first binds a whole cell: of the preferred
  // level if one can be granted, otherwise of the highest (or the lowest) level possible.
  // Cost: O(levels * fan-out).
  std::optional<cell_id> bind_any_leaf(vc_chain_id c, cell_id image, bool highest_first,
                                       level_t preferred = no_level) {
    const virtual_cluster& cluster = bindings::cluster(c);
    const physical_chain& chain = bindings::chain(cluster.chain());
    level_t l = 0;
    cell_id p = image;
    while (p.valid() && !chain.owner(p).cell.valid()) p = chain.tree().parent(p, l++);
    cell_id v;
    if (p.valid()) {
      if (chain.owner(p).cluster != c || chain.holders(image).taken()) return std::nullopt;
      v = chain.owner(p).cell;
    } else {
      const level_t levels = chain.tree().num_levels();
      const auto find_whole = [&](level_t level) {
        l = level;
        p = chain.tree().ancestor(image, l);
        if (chain.cells().can_allocate_at(p)) v = cluster.first_unbound_root(l);
      };
      if (preferred < levels) find_whole(preferred);
      for (level_t k = 0; k < levels && !v.valid(); ++k)
        find_whole(highest_first ? levels - 1 - k : k);
      if (!v.valid()) return std::nullopt;
      bind(c, v, l, p);
    }
    while (l > 0) {
      v = cluster.first_unbound(cluster.tree().children(v, l));
      p = chain.tree().ancestor(image, --l);
      bind(c, v, l, p);
    }
    return v;
  }
  // release: the running gang gives up the leaf. unclaim: the preempting gang gives up its claim.
  // downgrade: the running gang becomes opportunistic. A leaf that is no longer taken is unbound.
  void release(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = bindings::chain(chain).holders(leaf);
    set_holders(chain, leaf, {gang_slot(), h.claimer, false});
  }
  void unclaim(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = bindings::chain(chain).holders(leaf);
    set_holders(chain, leaf, {h.user, gang_slot(), h.guaranteed});
  }
  void downgrade(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = bindings::chain(chain).holders(leaf);
    set_holders(chain, leaf, {h.user, h.claimer, false});
  }
  // As release(), for leaves of one node, ascending. Cost: O(cells around them) if all hardware of
  // the chain is healthy and changes are not recorded.
  void release_all(std::uint32_t c, std::span<const cell_id> leaves) {
    const physical_chain& chain = bindings::chain(c);
    if (chain.any_bad() || is_recording()) {
      for (const cell_id leaf : leaves) release(c, leaf);
      return;
    }
    released_.clear();
    for (const cell_id leaf : leaves) {
      const leaf_holders h = chain.holders(leaf);
      if (h.taken() && !h.claimer.valid()) released_.push_back(chain.owner(leaf));
    }
    hold_all(c, leaves, [&](std::size_t i) {
      return leaf_holders{gang_slot(), chain.holders(leaves[i]).claimer, false};
    });
    for (std::size_t i = 0; i < released_.size();) {
      const vc_chain_id cluster = released_[i].cluster;
      path_.clear();
      for (; i < released_.size() && released_[i].cluster == cluster; ++i)
        path_.push_back(released_[i].cell);
      merge_sort(path_);
      unbind_inactive(cluster);
    }
  }
  // Unbinds a virtual leaf that is no longer taken, and the cells above it without a taken leaf.
  // Unhealthy cells stay bound while the cell above them is bound; pinned cells stay bound.
  void unbind_leaf(vc_chain_id c, cell_id leaf) {
    const virtual_cluster& cluster = bindings::cluster(c);
    const physical_chain& chain = bindings::chain(cluster.chain());
    path_.assign(1, leaf);
    cell_id above = cluster.tree().parent(leaf, 0);
    for (level_t l = 1; above.valid() && cluster.active(above) == 0; ++l) {
      path_.push_back(above);
      above = cluster.tree().parent(above, l);
    }
    const bool whole = !above.valid() && !is_pinned(c);
    if (!above.valid() && is_pinned(c)) path_.pop_back();
    for (level_t l = 0; l < path_.size(); ++l) {
      if (chain.healthy().healthy(cluster.image(path_[l]))) {
        unbind(c, path_[l], l);
      } else if (whole) {
        const auto top = static_cast<level_t>(path_.size() - 1);
        unbind_subtree(c, path_[top], top);
        break;
      }
    }
  }
  // Call after bind_leaf_at and bind_any_leaf: binds the unhealthy cells inside the whole cell of
  // this virtual leaf, unless it is the whole cell `done`. Then there is a healthy physical cell
  // for every unbound virtual cell inside it. Returns the whole cell.
  // Cost: O(levels), and O(fan-out) for each unhealthy cell in the whole cell.
  cell_id bind_unhealthy(vc_chain_id c, cell_id leaf, cell_id done = cell_id()) {
    const quota_tree& tree = bindings::cluster(c).tree();
    level_t l = 0;
    for (cell_id above = tree.parent(leaf, l); above.valid(); above = tree.parent(leaf, ++l))
      leaf = above;
    if (leaf != done)
      bind_unusable(c, leaf, l, bindings::chain(bindings::cluster(c).chain()).healthy());
    return leaf;
  }
  // The result of bind_whole_cells.
  struct bound_whole_cells {
    bool all_usable = true;     // all leaves of the cluster are usable
    std::size_t bound = 0;      // whole cells that were not bound before
    std::uint64_t visited = 0;  // candidates that were ranked or checked
    bool complete = true;       // every whole cell could be bound
  };
  // Binds all whole cells of the cluster to the cells that grant_ranking puts first, and binds the
  // unusable cells in them. Then there is a usable physical cell for every unbound virtual cell,
  // whatever the filter. For searches only: the caller must undo it (rollback).
  // `task_gpus`: grant_ranking counts how many tasks of this size fit. `skips`: the i-th whole cell
  // that is bound skips skips[i] cells of the ranking (grant_ranking::next). A search can reach
  // every binding that matters by its choice of skips; without skips every whole cell can be bound.
  // `again`: only the skips have changed since the last call, so a level keeps its ranking if the
  // same cells are bound above it.
  // Cost: O(cells of the cluster), and grant_ranking if there are skips, or if a whole cell finds
  //       no usable cell without opportunistic leaves.
  bound_whole_cells bind_whole_cells(vc_chain_id c, const health<uniform_tree>& usable,
                                     std::uint32_t task_gpus,
                                     std::span<const std::uint32_t> skips = {},
                                     bool again = false) {
    const virtual_cluster& cluster = bindings::cluster(c);
    const physical_chain& chain = bindings::chain(cluster.chain());
    bound_whole_cells done;
    rankings_.resize(chain.tree().num_levels());
    skipped_.resize(skips.size(), 0);
    for (level_t l = cluster.tree().num_levels(); l-- > 0;) {
      grant_ranking& ranked = rankings_[l];
      bool ranking = false;
      for (const cell_id root : cluster.tree().roots(l)) {
        if (!cluster.image(root).valid()) {
          std::optional<cell_id> to;
          if (!ranking) {
            if (skips.empty()) to = chain.cells().find({.level = l, .usable = &usable.usable()});
            ranking = !to || chain.opportunistic_leaves(*to) > 0;
            if (ranking && again) {
              ranked.restart();
            } else if (ranking) {
              done.visited += ranked(chain, l, usable, task_gpus).size();
            }
          }
          if (ranking) {
            const std::uint32_t skip = done.bound < skips.size() ? skips[done.bound] : 0;
            const std::size_t before = ranked.visited();
            to = ranked.next(chain, usable, skip);
            done.visited += ranked.visited() - before;
            if (done.bound < skips.size()) {
              again = again && skipped_[done.bound] == skip;
              skipped_[done.bound] = skip;
            }
          }
          if (!to->valid()) {
            APIARY_VERIFY(!skips.empty());
            done.complete = false;
            return done;
          }
          ++done.bound;
          bind(c, root, l, *to);
        }
        done.all_usable = done.all_usable && usable.healthy(cluster.image(root));
        bind_unusable(c, root, l, usable);
      }
    }
    return done;
  }
  // An upper bound on how many tasks of `task_gpus` leaves fit in the unbound whole cells.
  [[nodiscard]] std::uint64_t max_tasks_in_unbound(vc_chain_id c,
                                                   const health<uniform_tree>& usable,
                                                   std::uint32_t task_gpus) {
    const virtual_cluster& cluster = bindings::cluster(c);
    std::uint64_t tasks = 0;
    rankings_.resize(1);
    grant_ranking& ranked = rankings_[0];
    for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
      std::size_t unbound = 0;
      for (const cell_id root : cluster.tree().roots(l))
        unbound += cluster.image(root).valid() ? 0U : 1U;
      if (unbound == 0) continue;
      for (const grant_candidate& best :
           ranked(bindings::chain(cluster.chain()), l, usable, task_gpus).first(unbound))
        tasks += best.tasks;
    }
    return tasks;
  }
  // Marks a leaf healthy or bad; returns whether its health changed. Binds a bad leaf in a bound
  // cell, and unbinds what was bound only because it was unhealthy.
  bool mark(std::uint32_t c, cell_id leaf, bool good) {
    if (!bindings::mark(c, leaf, good)) return false;
    const physical_chain& chain = bindings::chain(c);
    cell_id p = leaf;
    level_t l = 0;
    if (good) {
      while (p.valid() && chain.healthy().healthy(p) && need_not_be_bound(chain, p, l)) {
        unbind(chain.owner(p).cluster, chain.owner(p).cell, l);
        p = chain.tree().parent(p, l++);
      }
      return true;
    }
    while (p.valid() && !chain.owner(p).cell.valid()) p = chain.tree().parent(p, l++);
    if (p.valid() && l > 0)
      bind_unusable(chain.owner(p).cluster, chain.owner(p).cell, l, chain.healthy());
    return true;
  }

 private:
  // Unbinds the leaves in path_, ascending, and the cells above them without a taken leaf.
  // Requires: the leaves are not taken; all hardware of the chain is healthy.
  void unbind_inactive(vc_chain_id c) {
    const virtual_cluster& cluster = bindings::cluster(c);
    for (level_t l = 0; !path_.empty(); ++l) {
      std::size_t above = 0;
      for (const cell_id v : path_) {
        const cell_id parent = cluster.tree().parent(v, l);
        if (parent.valid() || !is_pinned(c)) unbind(c, v, l);
        if (!parent.valid() || cluster.active(parent) > 0) continue;
        if (above == 0 || path_[above - 1] != parent) path_[above++] = parent;
      }
      path_.resize(above);
    }
  }
  // The lowest bound cell at or above a virtual leaf, if any; path_ gets the unbound ones below it.
  cell_id find_bound_ancestor(const virtual_cluster& cluster, cell_id leaf) {
    path_.clear();
    cell_id v = leaf;
    for (level_t l = 0; v.valid() && !cluster.image(v).valid(); ++l) {
      path_.push_back(v);
      v = cluster.tree().parent(v, l);
    }
    return v;
  }
  // Sets the holders of a leaf, and unbinds it if it is no longer taken.
  void set_holders(std::uint32_t chain, cell_id leaf, leaf_holders to) {
    const bool was_taken = bindings::chain(chain).holders(leaf).taken();
    hold(chain, leaf, to);
    if (!was_taken || to.taken()) return;
    const virtual_cell owner = bindings::chain(chain).owner(leaf);
    unbind_leaf(owner.cluster, owner.cell);
  }
  // Unbinds a virtual cell and all bound cells inside it.
  void unbind_subtree(vc_chain_id c, cell_id v, level_t l) {
    for (const cell_id child : bindings::cluster(c).tree().children(v, l))
      if (bindings::cluster(c).image(child).valid()) unbind_subtree(c, child, l - 1);
    unbind(c, v, l);
  }
  // Binds the unusable cells inside a bound cell, at all levels below it.
  void bind_unusable(vc_chain_id c, cell_id v, level_t l, const health<uniform_tree>& usable) {
    const virtual_cluster& cluster = bindings::cluster(c);
    const physical_chain& chain = bindings::chain(cluster.chain());
    if (l == 0 || usable.healthy(cluster.image(v))) return;
    for (const cell_id child : chain.tree().children(cluster.image(v), l)) {
      if (usable.healthy(child)) continue;
      if (!chain.owner(child).cell.valid()) {
        const id_range<cell_id> children = cluster.tree().children(v, l);
        std::uint32_t last = children.size() - 1;
        while (cluster.image(children[last]).valid()) --last;
        bind(c, children[last], l - 1, child);
      }
      bind_unusable(c, chain.owner(child).cell, l - 1, usable);
    }
  }
  // Whether p is bound, has no taken leaf and is no whole cell. Then it need not be bound while it
  // is healthy.
  [[nodiscard]] bool need_not_be_bound(const physical_chain& chain, cell_id p,
                                       level_t l) const noexcept {
    const virtual_cell owner = chain.owner(p);
    if (!owner.cell.valid()) return false;
    const virtual_cluster& cluster = bindings::cluster(owner.cluster);
    if (!cluster.tree().parent(owner.cell, l).valid()) return false;
    return l == 0 ? !chain.holders(p).taken() : cluster.active(owner.cell) == 0;
  }
  // Scratch memory, not part of the state. bind_whole_cells reuses its rankings if `again`.
  lean_vector<cell_id> path_;
  lean_vector<virtual_cell> released_;
  std::vector<grant_ranking> rankings_;  // by level
  lean_vector<std::uint32_t> skipped_;   // bind_whole_cells: for each whole cell bound
};

}  // namespace detail
APIARY_NAMESPACE_END
