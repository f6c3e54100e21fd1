// apiary/sched/hived_cells.h - tenants' virtual cells, bound to physical ones while in use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/core/ids.h>
#include <apiary/model/health.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/sched/hived_layout.h>
#include <apiary/sched/physical_chain.h>
#include <apiary/sched/virtual_cluster.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A leaf of a virtual cluster and the physical leaf it is bound to.
struct bound_leaf {
  cell_id leaf{};  // not valid: an opportunistic gang's, that has no virtual one
  cell_id image{};
  friend constexpr bool operator==(bound_leaf, bound_leaf) noexcept = default;
};

// All cells of a HiveD scheduler: which gang has which leaf, and which virtual cell is which
// physical one. It knows no gang and decides nothing but which equal cell to take.
//
// Model:     HiveD (OSDI 2020) sections 3 and 4. A virtual cell is bound while something in it is
//            in use; whole cells (roots) are allocated from the chain's safe_buddy_allocator.
// Differs:   an unhealthy part of a bound cell is bound as well, so that the tenant's own view
//            knows of it and every other unbound virtual cell stands for a healthy physical one.
//            What is not in use is never bound for being doomed; searching does without
//            (bind_everything), and doomed() only counts.
// Tentative: between begin and rollback, changes are recorded and taken back.
// Cost:      hold, place, vacate O(levels * fan-out). place binds the first whole cell without
//            guests, found by bitset; only where every one has guests it looks at all for the fewest.
class hived_cells {
 public:
  explicit hived_cells(const hived_layout& layout) {
    for (std::size_t c = 0; c < layout.chains.size(); ++c) {
      const chain_layout& chain = layout.chains[c];
      chains_.emplace_back(chain.tree, chain.node_level);
      ledgers_.emplace_back(chain.tree.num_levels());
      for (const tenant_layout& tenant : layout.tenants) {
        const tenant_id id = ledgers_.back().add_tenant();
        cluster_id& of_tenant = clusters_of_tenants_.emplace_back();
        bool any = false;
        for (level_t l = 0; l < chain.tree.num_levels(); ++l) {
          if (tenant.quota[c][l] == 0) continue;
          any = true;
          APIARY_VERIFY(chains_[c].cells().promise({l, tenant.quota[c][l]}));
          ledgers_[c].set_quota(id, {l, tenant.quota[c][l]});
        }
        if (any)
          of_tenant = add_cluster(id, static_cast<std::uint32_t>(c), layout, tenant.quota[c]);
      }
    }
    // Pinned cells are promised and granted last: feasibility has been checked with all of them.
    for (const pinned_layout& pinned : layout.pinned) {
      clusters_of_pinned_.emplace_back();
      if (pinned.tenant.valid())
        APIARY_VERIFY(chain(pinned).cells().promise({chain(pinned).tree().level(pinned.cell), 1}));
    }
    for (std::size_t i = 0; i < layout.pinned.size(); ++i) {
      const pinned_layout& pinned = layout.pinned[i];
      if (!pinned.tenant.valid()) continue;
      const level_t level = chain(pinned).tree().level(pinned.cell);
      std::vector<std::uint32_t> quota(chain(pinned).tree().num_levels(), 0);
      quota[level] = 1;
      const cluster_id added = add_cluster(pinned.tenant, pinned.chain.value, layout, quota);
      pinned_[added.value] = true;
      clusters_of_pinned_[i] = added;
      const cell_id root = clusters_[added.value].tree().roots(level).first;
      bind_now(added, root, level, pinned.cell);
    }
  }

  [[nodiscard]] std::uint32_t num_chains() const noexcept {
    return static_cast<std::uint32_t>(chains_.size());
  }
  [[nodiscard]] const physical_chain& chain(std::uint32_t c) const noexcept { return chains_[c]; }
  [[nodiscard]] const quota_ledger& ledger(std::uint32_t c) const noexcept { return ledgers_[c]; }
  [[nodiscard]] std::uint32_t num_clusters() const noexcept {
    return static_cast<std::uint32_t>(clusters_.size());
  }
  [[nodiscard]] const virtual_cluster& cluster(cluster_id c) const noexcept {
    return clusters_[c.value];
  }
  // The cells of a tenant in a chain, and those of a pinned cell; not valid: there are none.
  [[nodiscard]] cluster_id cluster_of(tenant_id tenant, std::uint32_t chain) const noexcept {
    const std::size_t tenants = clusters_of_tenants_.size() / chains_.size();
    return clusters_of_tenants_[chain * tenants + tenant.value];
  }
  [[nodiscard]] cluster_id cluster_of_pinned(std::uint32_t pinned) const noexcept {
    return clusters_of_pinned_[pinned];
  }
  [[nodiscard]] bool is_pinned(cluster_id c) const noexcept { return pinned_[c.value]; }
  // Over everything that decisions depend on; equal states, equal values.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  // Begins to record changes; rollback takes back all since then, keep leaves them.
  void begin() noexcept { recording_ = true; }
  void rollback() {
    recording_ = false;
    log_.rollback(0);
  }
  void keep() noexcept {
    recording_ = false;
    log_.commit();
  }

  // Gives a leaf to other holders. Requires: a leaf to be taken is bound.
  void hold(std::uint32_t chain, cell_id leaf, leaf_holders to) {
    if (recording_)
      log_.on_rollback<&hived_cells::hold_now>(*this, chain, leaf, chains_[chain].holders(leaf));
    hold_now(chain, leaf, to);
  }

  // Binds a virtual leaf, and what is unbound above it, to the best physical one: healthy, and of
  // such the one whose cells have the fewest guests, level by level. nullopt, and partly bound:
  // no whole healthy cell is to be had.
  std::optional<cell_id> place(cluster_id c, cell_id leaf) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
    path_.clear();  // the unbound ones, lowest first
    cell_id v = leaf;
    level_t l = 0;
    while (v.valid() && !cluster.image(v).valid()) {
      path_.push_back(v);
      v = cluster.tree().parent(v, l++);
    }
    cell_id image;
    if (v.valid()) {
      image = cluster.image(v);
    } else {
      const std::optional<cell_id> root = find_root(chain, --l);
      if (!root) return std::nullopt;
      image = *root;
      bind(c, path_.back(), l, image);
      path_.pop_back();
    }
    while (!path_.empty()) {
      image = fewest_guests(chain, chain.tree().children(image, l));
      bind(c, path_.back(), --l, image);
      path_.pop_back();
    }
    return image;
  }

  // Binds a virtual leaf, and what is unbound above it, to this physical one. Requires: that the
  // lowest bound cells above both are each other's, and that a whole cell can be granted if none.
  void place_at(cluster_id c, bound_leaf at) {
    const virtual_cluster& cluster = clusters_[c.value];
    path_.clear();
    cell_id v = at.leaf;
    for (level_t l = 0; v.valid() && !cluster.image(v).valid(); ++l) {
      path_.push_back(v);
      v = cluster.tree().parent(v, l);
    }
    for (auto l = static_cast<level_t>(path_.size()); l-- > 0;)
      bind(c, path_[l], l, chains_[cluster.chain()].tree().ancestor(at.image, l));
  }

  // Binds any virtual leaf of the cluster to this physical one, whole cells of the highest level
  // (or the lowest) first if none is bound above it. nullopt: the cluster has none for it.
  std::optional<cell_id> adopt(cluster_id c, cell_id image, bool highest_first) {
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
      for (level_t k = 0; k < levels && !v.valid(); ++k) {
        l = highest_first ? levels - 1 - k : k;
        p = chain.tree().ancestor(image, l);
        if (!chain.cells().can_allocate_at(p)) continue;
        v = first_unbound(cluster, cluster.tree().roots(l));
      }
      if (!v.valid()) return std::nullopt;
      bind(c, v, l, p);
    }
    while (l > 0) {
      v = first_unbound(cluster, cluster.tree().children(v, l));
      p = chain.tree().ancestor(image, --l);
      bind(c, v, l, p);
    }
    return v;
  }

  // The user of a leaf goes, or its claim does, or it becomes an opportunistic gang's; the tenant's
  // cell is then vacated if nobody has it.
  void unuse(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = chains_[chain].holders(leaf);
    release(chain, leaf, {gang_slot(), h.claimer, false});
  }
  void unclaim(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = chains_[chain].holders(leaf);
    release(chain, leaf, {h.user, gang_slot(), h.guaranteed});
  }
  void demote(std::uint32_t chain, cell_id leaf) {
    const leaf_holders h = chains_[chain].holders(leaf);
    release(chain, leaf, {h.user, h.claimer, false});
  }

  // Unbinds a virtual leaf that is not taken any more, and what is above it and now empty; what is
  // unhealthy stays while the cell above it is bound.
  void vacate(cluster_id c, cell_id leaf) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
    path_.assign(1, leaf);
    cell_id above = cluster.tree().parent(leaf, 0);
    for (level_t l = 1; above.valid() && cluster.active(above) == 0; ++l) {
      path_.push_back(above);
      above = cluster.tree().parent(above, l);
    }
    const bool whole = !above.valid() && !pinned_[c.value];
    if (!above.valid() && pinned_[c.value]) path_.pop_back();
    for (level_t l = 0; l < path_.size(); ++l) {
      if (chain.healthy().healthy(cluster.image(path_[l]))) {
        unbind(c, path_[l], l);
      } else if (whole) {
        const auto top = static_cast<level_t>(path_.size() - 1);
        unbind_with_parts(c, path_[top], top);
        break;
      }
    }
  }

  // After place_at and adopt: shows the tenant what is unhealthy in the whole cell of this leaf.
  void reveal(cluster_id c, cell_id leaf) {
    const quota_tree& tree = clusters_[c.value].tree();
    level_t l = 0;
    for (cell_id above = tree.parent(leaf, l); above.valid(); above = tree.parent(leaf, ++l))
      leaf = above;
    reveal(c, leaf, l, chains_[clusters_[c.value].chain()].healthy());
  }

  // Binds all whole cells of the cluster, to those that can be granted whose nodes have the most
  // usable leaves, counted in pieces of `piece` leaves of one node, and what is unusable in them.
  // Then every unbound cell stands for a usable one, whatever the filter. For searching, before a
  // rollback. Whether all are wholly usable. Cost: O(cells of the cluster), and of the chain if not
  // all are without guests.
  bool bind_everything(cluster_id c, const health<uniform_tree>& usable, std::uint32_t piece) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
    bool all = true;
    for (level_t l = cluster.tree().num_levels(); l-- > 0;) {
      bool ranked = false;
      std::size_t next = 0;
      for (const cell_id root : cluster.tree().roots(l)) {
        if (!cluster.image(root).valid()) {
          std::optional<cell_id> to;
          if (!ranked) {
            to = chain.cells().find({.level = l, .usable = &usable.usable()});
            ranked = !to || chain.guests(*to) > 0;
            if (ranked) rank(chain, l, usable, piece);
          }
          if (ranked) {
            while (next < ranked_.size() && !chain.cells().can_allocate_at(ranked_[next].cell))
              ++next;
            APIARY_VERIFY(next < ranked_.size());
            to = ranked_[next++].cell;
          }
          bind(c, root, l, *to);
        }
        all = all && usable.healthy(cluster.image(root));
        reveal(c, root, l, usable);
      }
    }
    return all;
  }

  // Marks a leaf; whether that changed it.
  bool mark(std::uint32_t c, cell_id leaf, bool good) {
    physical_chain& chain = chains_[c];
    if (!chain.mark(leaf, good)) return false;
    hash_ ^= fact(fact_bad, c, leaf.value, 0, 0);
    cell_id p = leaf;
    level_t l = 0;
    if (const virtual_cell owner = chain.owner(leaf); owner.cell.valid())
      clusters_[owner.cluster.value].show(owner.cell, good && !chain.holders(leaf).taken());
    if (good) {
      while (p.valid() && chain.healthy().healthy(p) && is_spare(chain, p, l)) {
        unbind(chain.owner(p).cluster, chain.owner(p).cell, l);
        p = chain.tree().parent(p, l++);
      }
      return true;
    }
    while (p.valid() && !chain.owner(p).cell.valid()) p = chain.tree().parent(p, l++);
    if (p.valid() && l > 0) reveal(chain.owner(p).cluster, chain.owner(p).cell, l, chain.healthy());
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
  // A cell that can be granted.
  struct candidate {
    std::uint32_t pieces = 0;
    std::uint32_t unusable = 0;  // leaves
    std::uint32_t guests = 0;
    cell_id cell{};
  };

  [[nodiscard]] const physical_chain& chain(const pinned_layout& p) const noexcept {
    return chains_[p.chain.value];
  }
  [[nodiscard]] physical_chain& chain(const pinned_layout& p) noexcept {
    return chains_[p.chain.value];
  }
  cluster_id add_cluster(tenant_id tenant, std::uint32_t chain, const hived_layout& layout,
                         std::span<const std::uint32_t> quota) {
    clusters_.emplace_back(tenant, chain, layout.chains[chain].tree,
                           layout.chains[chain].node_level, quota);
    pinned_.push_back(false);
    return cluster_id(num_clusters() - 1);
  }

  // The hash is the sum modulo 2 of a random word for each fact.
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

  void release(std::uint32_t chain, cell_id leaf, leaf_holders to) {
    const bool was_taken = chains_[chain].holders(leaf).taken();
    hold(chain, leaf, to);
    if (!was_taken || to.taken()) return;
    const virtual_cell owner = chains_[chain].owner(leaf);
    vacate(owner.cluster, owner.cell);
  }
  void hold_now(std::uint32_t c, cell_id leaf, leaf_holders to) {
    physical_chain& chain = chains_[c];
    const leaf_holders from = chain.holders(leaf);
    chain.hold(leaf, to);
    hash_ ^= fact_of(c, leaf, from) ^ fact_of(c, leaf, to);
    if (from.taken() == to.taken()) return;
    const virtual_cell owner = chain.owner(leaf);
    APIARY_VERIFY(owner.cell.valid());
    clusters_[owner.cluster.value].take(owner.cell, to.taken());
    clusters_[owner.cluster.value].show(owner.cell, !to.taken() && chain.healthy().healthy(leaf));
  }
  void bind(cluster_id c, cell_id v, level_t l, cell_id p) {
    if (recording_) log_.on_rollback<&hived_cells::unbind_now>(*this, c, v, l, p);
    bind_now(c, v, l, p);
  }
  void unbind(cluster_id c, cell_id v, level_t l) {
    const cell_id p = clusters_[c.value].image(v);
    if (recording_) log_.on_rollback<&hived_cells::bind_now>(*this, c, v, l, p);
    unbind_now(c, v, l, p);
  }
  void bind_now(cluster_id c, cell_id v, level_t l, cell_id p) {
    virtual_cluster& cluster = clusters_[c.value];
    physical_chain& chain = chains_[cluster.chain()];
    APIARY_VERIFY(!cluster.image(v).valid() && !chain.owner(p).cell.valid());
    if (!cluster.tree().parent(v, l).valid()) {
      APIARY_VERIFY(chain.grant(p));
      APIARY_VERIFY(pinned_[c.value] || ledgers_[cluster.chain()].charge(cluster.tenant(), l));
    }
    cluster.set_image(v, p);
    chain.set_owner(p, {c, v});
    hash_ ^= fact(fact_bound, c.value, v.value, p.value, 0);
    if (l == 0) cluster.show(v, chain.healthy().healthy(p));
  }
  void unbind_now(cluster_id c, cell_id v, level_t l, cell_id p) {
    virtual_cluster& cluster = clusters_[c.value];
    physical_chain& chain = chains_[cluster.chain()];
    APIARY_VERIFY(cluster.image(v) == p);
    cluster.set_image(v, cell_id());
    chain.set_owner(p, virtual_cell());
    hash_ ^= fact(fact_bound, c.value, v.value, p.value, 0);
    if (l == 0) cluster.show(v, true);
    if (cluster.tree().parent(v, l).valid()) return;
    chain.take_back(p);
    ledgers_[cluster.chain()].refund(cluster.tenant(), l);
  }
  void unbind_with_parts(cluster_id c, cell_id v, level_t l) {
    for (const cell_id part : clusters_[c.value].tree().children(v, l))
      if (clusters_[c.value].image(part).valid()) unbind_with_parts(c, part, l - 1);
    unbind(c, v, l);
  }

  // Binds the unusable parts of a bound cell, and theirs.
  void reveal(cluster_id c, cell_id v, level_t l, const health<uniform_tree>& usable) {
    const virtual_cluster& cluster = clusters_[c.value];
    const physical_chain& chain = chains_[cluster.chain()];
    if (l == 0 || usable.healthy(cluster.image(v))) return;
    for (const cell_id part : chain.tree().children(cluster.image(v), l)) {
      if (usable.healthy(part)) continue;
      if (!chain.owner(part).cell.valid()) {
        const id_range<cell_id> parts = cluster.tree().children(v, l);
        std::uint32_t last = parts.size() - 1;
        while (cluster.image(parts[last]).valid()) --last;
        bind(c, parts[last], l - 1, part);
      }
      reveal(c, chain.owner(part).cell, l - 1, usable);
    }
  }

  // Whether p is bound without need, were it healthy.
  [[nodiscard]] bool is_spare(const physical_chain& chain, cell_id p, level_t l) const noexcept {
    const virtual_cell owner = chain.owner(p);
    if (!owner.cell.valid()) return false;
    const virtual_cluster& cluster = clusters_[owner.cluster.value];
    if (!cluster.tree().parent(owner.cell, l).valid()) return false;
    return l == 0 ? !chain.holders(p).taken() : cluster.active(owner.cell) == 0;
  }

  [[nodiscard]] static std::optional<cell_id> find_root(const physical_chain& chain, level_t l) {
    if (const auto quiet = chain.cells().find({.level = l, .usable = &chain.quiet()})) return quiet;
    return chain.cells().find({.level = l, .usable = &chain.healthy().usable()},
                              [&](cell_id c) { return chain.guests(c); });
  }
  [[nodiscard]] static cell_id fewest_guests(const physical_chain& chain,
                                             id_range<cell_id> parts) noexcept {
    cell_id best;
    std::uint32_t least = 0;
    for (const cell_id p : parts) {
      if (chain.owner(p).cell.valid()) continue;
      const std::uint32_t guests = chain.guests(p);
      if (best.valid() && guests >= least) continue;
      best = p;
      least = guests;
      if (least == 0) break;
    }
    APIARY_VERIFY(best.valid());
    return best;
  }
  [[nodiscard]] static cell_id first_unbound(const virtual_cluster& cluster,
                                             id_range<cell_id> cells) noexcept {
    for (const cell_id c : cells)
      if (!cluster.image(c).valid()) return c;
    return cell_id();
  }
  // Lists the cells of a level that can be granted: those with most usable pieces of a node, of
  // these with most usable leaves, of these with fewest guests, of these the smallest first.
  void rank(const physical_chain& chain, level_t l, const health<uniform_tree>& usable,
            std::uint32_t piece) {
    const uniform_tree& tree = chain.tree();
    const summary_bitset& free = chain.cells().cells().free_cells();
    const level_t at = std::min(l, chain.node_level());
    const std::uint32_t size = tree.leaves_per_cell(at);
    ranked_.clear();
    for (level_t from = l; from <= chain.cells().highest_safe(l); ++from) {
      const id_range<cell_id> level = tree.cells(from);
      for (std::uint32_t f = free.find_next(level.first.value); f < level.last.value;
           f = free.find_next(f + 1)) {
        for (const cell_id cell : tree.descendants(cell_id(f), l)) {
          std::uint32_t pieces = 0;
          for (const cell_id node : tree.descendants(cell, at))
            pieces += (size - usable.bad_leaves(node)) / piece;
          ranked_.push_back({pieces, usable.bad_leaves(cell), chain.guests(cell), cell});
        }
      }
    }
    std::stable_sort(ranked_.begin(), ranked_.end(), [](const candidate& a, const candidate& b) {
      return std::tie(b.pieces, a.unusable, a.guests) < std::tie(a.pieces, b.unusable, b.guests);
    });
  }

  std::vector<physical_chain> chains_;
  std::vector<quota_ledger> ledgers_;  // of each chain
  std::vector<virtual_cluster> clusters_;
  std::vector<bool> pinned_;                     // of each cluster
  std::vector<cluster_id> clusters_of_tenants_;  // of each chain, a row of tenants
  std::vector<cluster_id> clusters_of_pinned_;
  std::vector<cell_id> path_;      // scratch
  std::vector<candidate> ranked_;  // scratch
  journal log_;
  bool recording_ = false;
  std::uint64_t hash_ = 0;
};

APIARY_NAMESPACE_END
