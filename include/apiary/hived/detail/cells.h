// apiary/hived/detail/cells.h - virtual and physical cells, and which are bound to each other.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Stores all cells of a HiveD scheduler, the gangs that hold each leaf, and the bindings between
// virtual and physical cells: binds the virtual cells of tenants when leaves come into use, and
// unbinds them when no leaf is in use any more. Pinned cells are always bound. It does not know
// gangs. It records changes after begin(), and rollback() undoes them.
// Model: HiveD (OSDI 2020) sections 3 and 4. The reserving_buddy_allocator of the chain grants
//        whole cells (roots). Differs: an unhealthy child of a bound cell is bound as well, so that
//        for every unbound virtual cell inside a bound one there is a healthy physical cell. A
//        doomed cell that is not in use is not bound; a search binds whole cells only tentatively
//        (bind_whole_cells).
// Cost:  hold, bind, unbind O(levels); bind_leaf and release O(levels * fan-out). If a whole
//        cell is bound or unbound, also O(nodes of the cell), and for bind_leaf choose_whole_cell.
class hived_cells {
 public:
  explicit hived_cells(const hived_layout& layout) {
    for (std::size_t c = 0; c < layout.chains.size(); ++c) {
      const chain_layout& chain = layout.chains[c];
      chains_.emplace_back(chain.tree, chain.node_level);
      ledgers_.emplace_back(chain.tree.num_levels());
      for (const tenant_layout& tenant : layout.tenants) {
        const tenant_id id = ledgers_.back().add_tenant();
        vc_chain_id& of_tenant = clusters_of_tenants_.emplace_back();
        bool any = false;
        for (level_t l = 0; l < chain.tree.num_levels(); ++l) {
          if (tenant.quota[c][l] == 0) continue;
          any = true;
          APIARY_VERIFY(chains_[c].cells().reserve(l, tenant.quota[c][l]));
          ledgers_[c].set_quota(id, l, tenant.quota[c][l]);
        }
        if (any)
          of_tenant = add_cluster(id, static_cast<std::uint32_t>(c), layout, tenant.quota[c]);
      }
    }
    first_pinned_ = num_clusters();
    // Pinned cells are reserved and granted last: feasibility has been checked with all of them.
    for (const pinned_layout& pinned : layout.pinned) {
      clusters_of_pinned_.emplace_back();
      if (pinned.tenant.valid())
        APIARY_VERIFY(chains_[pinned.chain.value].cells().reserve(
            chains_[pinned.chain.value].tree().level(pinned.cell), 1));
    }
    for (std::size_t i = 0; i < layout.pinned.size(); ++i) {
      const pinned_layout& pinned = layout.pinned[i];
      if (!pinned.tenant.valid()) continue;
      const level_t level = chains_[pinned.chain.value].tree().level(pinned.cell);
      lean_vector<std::uint32_t> quota(chains_[pinned.chain.value].tree().num_levels(), 0);
      quota[level] = 1;
      const vc_chain_id added = add_cluster(pinned.tenant, pinned.chain.value, layout, quota);
      clusters_of_pinned_[i] = added;
      const cell_id root = clusters_[added.value].tree().roots(level).first;
      bind_now(added, root, level, pinned.cell);
    }
  }

  [[nodiscard]] std::uint32_t num_chains() const noexcept {
    return static_cast<std::uint32_t>(chains_.size());
  }
  [[nodiscard]] const physical_chain& chain(std::uint32_t c) const noexcept { return chains_[c]; }
  // The whole cells of each tenant that are granted in a chain.
  [[nodiscard]] const quota_ledger& ledger(std::uint32_t c) const noexcept { return ledgers_[c]; }
  [[nodiscard]] std::uint32_t num_clusters() const noexcept {
    return static_cast<std::uint32_t>(clusters_.size());
  }
  [[nodiscard]] const virtual_cluster& cluster(vc_chain_id c) const noexcept {
    return clusters_[c.value];
  }
  // The virtual cluster of a tenant in a chain, or of a pinned cell; not valid: there is none.
  [[nodiscard]] vc_chain_id cluster_of(tenant_id tenant, std::uint32_t chain) const noexcept {
    const std::size_t tenants = clusters_of_tenants_.size() / chains_.size();
    return clusters_of_tenants_[chain * tenants + tenant.value];
  }
  [[nodiscard]] vc_chain_id cluster_of_pinned(std::uint32_t pinned) const noexcept {
    return clusters_of_pinned_[pinned];
  }
  [[nodiscard]] bool is_pinned(vc_chain_id c) const noexcept { return c.value >= first_pinned_; }
  // The level of the whole cell that a physical leaf lies in. Requires: it lies in one.
  [[nodiscard]] level_t whole_cell_level(std::uint32_t chain, cell_id leaf) const noexcept {
    const virtual_cell owner = chains_[chain].owner(leaf);
    const quota_tree& tree = cluster(owner.cluster).tree();
    level_t level = 0;
    for (cell_id v = tree.parent(owner.cell, 0); v.valid(); v = tree.parent(v, level)) ++level;
    return level;
  }
  // A hash over everything that decisions depend on.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  // begin() starts to record changes; rollback() undoes all changes since then, keep() keeps them.
  void begin() noexcept { recording_ = true; }
  void rollback() {
    recording_ = false;
    log_.rollback(0);
  }
  [[nodiscard]] bool is_recording() const noexcept { return recording_; }
  // Between begin() and rollback(): rollback_to(position()) undoes the changes since position().
  [[nodiscard]] journal::mark_type position() const noexcept { return log_.mark(); }
  void rollback_to(journal::mark_type mark) { log_.rollback(mark); }
  void keep() noexcept {
    recording_ = false;
    log_.commit();
  }
  // Sets the holders of a leaf. Requires: a leaf that becomes taken is bound.
  void hold(std::uint32_t chain, cell_id leaf, leaf_holders to) {
    hold_all(chain, {&leaf, 1}, {&to, 1});
  }
  // The same for several leaves of one node, ascending. Indexes each node once.
  void hold_all(std::uint32_t c, std::span<const cell_id> leaves,
                std::span<const leaf_holders> to) {
    if (recording_) {
      for (const cell_id leaf : leaves)
        log_.on_rollback<&hived_cells::hold_now>(*this, c, leaf, chains_[c].holders(leaf));
    }
    hold_all_now(c, leaves, to);
  }
  // Binds a virtual cell of level l to a physical cell; a whole cell (a root) is granted to the
  // tenant. Requires: neither cell is bound; the physical cell of a whole cell can be granted.
  void bind(vc_chain_id c, cell_id v, level_t l, cell_id p) {
    if (recording_) log_.on_rollback<&hived_cells::unbind_now>(*this, c, v, l, p);
    bind_now(c, v, l, p);
  }
  // Unbinds a virtual cell of level l. Requires: it is bound, and no cell inside it is bound.
  void unbind(vc_chain_id c, cell_id v, level_t l) {
    const cell_id p = clusters_[c.value].image(v);
    if (recording_) log_.on_rollback<&hived_cells::bind_now>(*this, c, v, l, p);
    unbind_now(c, v, l, p);
  }
  // Marks a leaf healthy or bad, and binds nothing (see mark). Returns whether its health changed.
  // Not recorded.
  bool set_health(std::uint32_t c, cell_id leaf, bool good) {
    physical_chain& chain = chains_[c];
    if (!chain.mark(leaf, good)) return false;
    hash_ ^= fact(fact_bad, c, leaf.value, 0, 0);
    if (const virtual_cell owner = chain.owner(leaf); owner.cell.valid())
      clusters_[owner.cluster.value].set_usable(owner.cell, good && !chain.holders(leaf).taken());
    return true;
  }

  // Binds a virtual leaf, and the unbound cells above it, to healthy physical cells: at each level
  // to the one with the fewest opportunistic leaves. Returns the physical leaf. Returns nullopt and
  // binds nothing if no healthy whole cell can be granted.
  std::optional<cell_id> bind_leaf(vc_chain_id c, cell_id leaf) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
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
    const virtual_cluster& cluster = clusters_[c.value];
    find_bound_ancestor(cluster, at.leaf);
    for (auto l = static_cast<level_t>(path_.size()); l-- > 1;)
      bind(c, path_[l], l, chains_[cluster.chain()].tree().ancestor(at.image, l));
    if (!path_.empty()) bind(c, at.leaf, 0, at.image);
  }

  static constexpr level_t no_level = ~level_t{0};  // not known, or no preference
  // Binds a virtual leaf of the cluster to this physical leaf and returns it; nullopt: no leaf can
  // be bound to it. If no cell above the leaf is bound, first binds a whole cell: of the preferred
  // level if one can be granted, otherwise of the highest (or the lowest) level possible.
  // Cost: O(levels * fan-out).
  std::optional<cell_id> bind_any_leaf(vc_chain_id c, cell_id image, bool highest_first,
                                       level_t preferred = no_level) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
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
  // downgrade: the running gang becomes opportunistic. A leaf that is no longer taken is unbound,
  // and so are the cells above it without a taken leaf. Unhealthy cells stay bound while the cell
  // above them is bound; pinned cells stay bound.
  void release(std::uint32_t chain, cell_id leaf) { release_all(chain, {&leaf, 1}); }
  void unclaim(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = chains_[chain].holders(leaf);
    left_.assign(1, {h.user, gang_slot(), h.guaranteed});
    leave(chain, {&leaf, 1});
  }
  void downgrade(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = chains_[chain].holders(leaf);
    left_.assign(1, {h.user, h.claimer, false});
    leave(chain, {&leaf, 1});
  }
  // As release(), for leaves of one node, ascending. Cost: O(cells around them).
  void release_all(std::uint32_t chain, std::span<const cell_id> leaves) {
    left_.clear();
    for (const cell_id leaf : leaves)
      left_.push_back({gang_slot(), chains_[chain].holders(leaf).claimer, false});
    leave(chain, leaves);
  }
  // Call after bind_leaf_at and bind_any_leaf: binds the unhealthy cells inside the whole cell of
  // this virtual leaf, unless it is the whole cell `done`. Then there is a healthy physical cell
  // for every unbound virtual cell inside it. Returns the whole cell.
  // Cost: O(levels), and O(fan-out) for each unhealthy cell in the whole cell.
  cell_id bind_unhealthy(vc_chain_id c, cell_id leaf, cell_id done = cell_id()) {
    const quota_tree& tree = clusters_[c.value].tree();
    level_t l = 0;
    for (cell_id above = tree.parent(leaf, l); above.valid(); above = tree.parent(leaf, ++l))
      leaf = above;
    if (leaf != done) bind_unusable(c, leaf, l, chains_[clusters_[c.value].chain()].healthy());
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
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
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
    const virtual_cluster& cluster = clusters_[c.value];
    std::uint64_t tasks = 0;
    rankings_.resize(1);
    grant_ranking& ranked = rankings_[0];
    for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
      std::size_t unbound = 0;
      for (const cell_id root : cluster.tree().roots(l))
        unbound += cluster.image(root).valid() ? 0U : 1U;
      if (unbound == 0) continue;
      for (const grant_candidate& best :
           ranked(chains_[cluster.chain()], l, usable, task_gpus).first(unbound))
        tasks += best.tasks;
    }
    return tasks;
  }
  // Marks a leaf healthy or bad; returns whether its health changed. Binds a bad leaf in a bound
  // cell, and unbinds what was bound only because it was unhealthy.
  bool mark(std::uint32_t c, cell_id leaf, bool good) {
    if (!set_health(c, leaf, good)) return false;
    const physical_chain& chain = chains_[c];
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
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    std::size_t n = 0;
    for (const physical_chain& chain : chains_) n += sizeof(chain) + chain.memory_bytes();
    for (const virtual_cluster& cluster : clusters_) n += sizeof(cluster) + cluster.memory_bytes();
    return n;
  }

 private:
  enum fact_kind : std::uint32_t { fact_holders, fact_bound, fact_bad };
  vc_chain_id add_cluster(tenant_id tenant, std::uint32_t chain, const hived_layout& layout,
                          std::span<const std::uint32_t> quota) {
    const chain_layout& in = layout.chains[chain];
    clusters_.push_back(virtual_cluster(tenant, chain, in.tree, in.node_level, quota));
    return vc_chain_id(num_clusters() - 1);
  }
  // The hash is the XOR of one pseudorandom word per fact.
  [[nodiscard]] static constexpr std::uint64_t fact(fact_kind kind, std::uint32_t a,
                                                    std::uint32_t b, std::uint32_t c,
                                                    std::uint32_t d) noexcept {
    std::uint64_t z = (std::uint64_t{kind} << 60) ^ (std::uint64_t{a} << 32) ^ b;
    z = mix(z + 0x9e3779b97f4a7c15U);
    return mix(z ^ (std::uint64_t{c} << 32) ^ d);
  }
  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  [[nodiscard]] static constexpr std::uint64_t fact_of(std::uint32_t chain, cell_id leaf,
                                                       leaf_holders h) noexcept {
    if (h.idle()) return 0;
    return fact(fact_holders, chain * 2 + (h.guaranteed ? 1 : 0), leaf.value, h.user.value,
                h.claimer.value);
  }

  void hold_now(std::uint32_t c, cell_id leaf, leaf_holders to) {
    hold_all_now(c, {&leaf, 1}, {&to, 1});
  }
  void hold_all_now(std::uint32_t c, std::span<const cell_id> leaves,
                    std::span<const leaf_holders> to) {
    physical_chain& chain = chains_[c];
    virtual_cluster* cluster = nullptr;  // of the leaf before
    std::uint32_t node = 0;              // in this cluster
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const leaf_holders from = chain.holders(leaves[i]);
      const leaf_holders next = to[i];
      hash_ ^= fact_of(c, leaves[i], from) ^ fact_of(c, leaves[i], next);
      if (from.taken() == next.taken()) continue;
      const virtual_cell owner = chain.owner(leaves[i]);
      APIARY_VERIFY(owner.cell.valid());
      virtual_cluster& its = clusters_[owner.cluster.value];
      const std::uint32_t its_node = its.node_of(owner.cell);
      if (cluster != nullptr && (cluster != &its || node != its_node)) cluster->index_node(node);
      cluster = &its;
      node = its_node;
      its.set_active(owner.cell, next.taken());
      its.set_free(node, owner.cell, !next.taken() && chain.healthy().healthy(leaves[i]));
    }
    if (cluster != nullptr) cluster->index_node(node);
    chain.hold_all(leaves, to);
  }
  void bind_now(vc_chain_id c, cell_id v, level_t l, cell_id p) {
    virtual_cluster& cluster = clusters_[c.value];
    physical_chain& chain = chains_[cluster.chain()];
    APIARY_VERIFY(!cluster.image(v).valid() && !chain.owner(p).cell.valid());
    if (!cluster.tree().parent(v, l).valid()) {
      APIARY_VERIFY(chain.grant(p));
      APIARY_VERIFY(is_pinned(c) || ledgers_[cluster.chain()].charge(cluster.tenant(), l));
      cluster.set_root_bound(v, true);
    }
    cluster.set_image(v, p);
    chain.set_owner(p, {c, v});
    hash_ ^= fact(fact_bound, c.value, v.value, p.value, 0);
    if (l == 0 && !chain.healthy().healthy(p)) cluster.set_usable(v, false);
  }
  void unbind_now(vc_chain_id c, cell_id v, level_t l, cell_id p) {
    virtual_cluster& cluster = clusters_[c.value];
    physical_chain& chain = chains_[cluster.chain()];
    APIARY_VERIFY(cluster.image(v) == p);
    cluster.set_image(v, cell_id());
    chain.set_owner(p, virtual_cell());
    hash_ ^= fact(fact_bound, c.value, v.value, p.value, 0);
    if (l == 0 && !chain.healthy().healthy(p)) cluster.set_usable(v, true);
    if (cluster.tree().parent(v, l).valid()) return;
    chain.revoke(p);
    cluster.set_root_bound(v, false);
    ledgers_[cluster.chain()].refund(cluster.tenant(), l);
  }

  // Sets the holders of leaves of one node, ascending, to left_; unbinds those no longer taken.
  void leave(std::uint32_t c, std::span<const cell_id> leaves) {
    released_.clear();
    for (std::size_t i = 0; i < leaves.size(); ++i)
      if (chains_[c].holders(leaves[i]).taken() && !left_[i].taken())
        released_.push_back(chains_[c].owner(leaves[i]));
    hold_all(c, leaves, left_);
    for (std::size_t i = 0; i < released_.size();) {
      const vc_chain_id cluster = released_[i].cluster;
      path_.clear();
      for (; i < released_.size() && released_[i].cluster == cluster; ++i)
        path_.push_back(released_[i].cell);
      merge_sort(path_);
      unbind_inactive(cluster);
    }
  }
  // Unbinds the leaves in path_, ascending, and the cells above them without a taken leaf.
  // Requires: the leaves are not taken.
  void unbind_inactive(vc_chain_id c) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
    for (level_t l = 0; !path_.empty(); ++l) {
      std::size_t above = 0;
      for (const cell_id v : path_) {
        const cell_id parent = cluster.tree().parent(v, l);
        if (!chain.any_bad() || chain.healthy().healthy(cluster.image(v))) {
          if (parent.valid() || !is_pinned(c)) unbind(c, v, l);
        } else if (!parent.valid() && !is_pinned(c)) {
          unbind_subtree(c, v, l);
        }
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
  // Unbinds a virtual cell and all bound cells inside it.
  void unbind_subtree(vc_chain_id c, cell_id v, level_t l) {
    for (const cell_id child : clusters_[c.value].tree().children(v, l))
      if (clusters_[c.value].image(child).valid()) unbind_subtree(c, child, l - 1);
    unbind(c, v, l);
  }
  // Binds the unusable cells inside a bound cell, at all levels below it.
  void bind_unusable(vc_chain_id c, cell_id v, level_t l, const health<uniform_tree>& usable) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
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
    const virtual_cluster& cluster = clusters_[owner.cluster.value];
    if (!cluster.tree().parent(owner.cell, l).valid()) return false;
    return l == 0 ? !chain.holders(p).taken() : cluster.active(owner.cell) == 0;
  }

  std::vector<physical_chain> chains_;
  std::vector<quota_ledger> ledgers_;  // by chain
  std::vector<virtual_cluster> clusters_;
  std::uint32_t first_pinned_ = 0;                // the clusters from here on are pinned cells
  lean_vector<vc_chain_id> clusters_of_tenants_;  // for each chain, one entry per tenant
  lean_vector<vc_chain_id> clusters_of_pinned_;
  journal log_;
  bool recording_ = false;
  std::uint64_t hash_ = 0;
  // Scratch memory, not part of the state. bind_whole_cells reuses its rankings if `again`.
  lean_vector<cell_id> path_;
  lean_vector<virtual_cell> released_;
  lean_vector<leaf_holders> left_;
  std::vector<grant_ranking> rankings_;  // by level
  lean_vector<std::uint32_t> skipped_;   // bind_whole_cells: for each whole cell bound
};

}  // namespace detail
APIARY_NAMESPACE_END
