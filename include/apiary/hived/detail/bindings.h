// apiary/hived/detail/bindings.h - virtual and physical cells, and which are bound to each other.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/uniform_tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Stores all cells of a HiveD scheduler, the gangs that hold each leaf, and the bindings between
// virtual and physical cells. hived_cells decides the changes; this class applies them, records
// those after begin(), and undoes them with rollback(). Pinned cells are always bound.
// Cost: O(levels) per change; binding or unbinding a whole cell also O(nodes of the cell).
class hived_bindings {
 public:
  explicit hived_bindings(const hived_layout& layout) {
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
  [[nodiscard]] bool is_pinned(vc_chain_id c) const noexcept { return pinned_[c.value]; }
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
    if (recording_)
      log_.on_rollback<&hived_bindings::hold_now>(*this, chain, leaf, chains_[chain].holders(leaf));
    hold_now(chain, leaf, to);
  }
  // The same for several leaves of one node, ascending; to(i) are the holders of the i-th, which
  // may depend on those that it has. Cost: O(cells around them) if all change alike and changes are
  // not recorded.
  template <class To>
  void hold_all(std::uint32_t c, std::span<const cell_id> leaves, const To& to) {
    physical_chain& chain = chains_[c];
    bool alike = !recording_;
    const bool was = chain.holders(leaves.front()).taken();
    const bool is = to(0).taken();
    std::uint64_t facts = 0;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const leaf_holders from = chain.holders(leaves[i]);
      const leaf_holders next = to(i);
      alike = alike && from.taken() == was && next.taken() == is;
      facts ^= fact_of(c, leaves[i], from) ^ fact_of(c, leaves[i], next);
    }
    if (!alike) {
      for (std::size_t i = 0; i < leaves.size(); ++i) hold(c, leaves[i], to(i));
      return;
    }
    hash_ ^= facts;
    chain.hold_all(leaves, to);
    if (was == is) return;
    for (std::size_t i = 0; i < leaves.size();) {
      const virtual_cell owner = chain.owner(leaves[i]);
      APIARY_VERIFY(owner.cell.valid());
      virtual_cluster& cluster = clusters_[owner.cluster.value];
      const cell_id end = cluster.end_of_node(cluster.node_of(owner.cell));
      std::array<cell_id, 64> cells;
      std::size_t n = 0;
      std::uint64_t usable = 0;
      virtual_cell at = owner;
      do {
        cells[n] = at.cell;
        if (!is && chain.healthy().healthy(leaves[i])) usable |= std::uint64_t{1} << n;
        ++n;
        if (++i < leaves.size()) at = chain.owner(leaves[i]);
      } while (i < leaves.size() && at.cluster == owner.cluster && at.cell > cells[n - 1] &&
               at.cell < end);
      cluster.set_all_active({cells.data(), n}, is);
      cluster.set_all_usable({cells.data(), n}, usable);
    }
  }
  // Binds a virtual cell of level l to a physical cell; a whole cell (a root) is granted to the
  // tenant. Requires: neither cell is bound; the physical cell of a whole cell can be granted.
  void bind(vc_chain_id c, cell_id v, level_t l, cell_id p) {
    if (recording_) log_.on_rollback<&hived_bindings::unbind_now>(*this, c, v, l, p);
    bind_now(c, v, l, p);
  }
  // Unbinds a virtual cell of level l. Requires: it is bound, and no cell inside it is bound.
  void unbind(vc_chain_id c, cell_id v, level_t l) {
    const cell_id p = clusters_[c.value].image(v);
    if (recording_) log_.on_rollback<&hived_bindings::bind_now>(*this, c, v, l, p);
    unbind_now(c, v, l, p);
  }
  // Marks a leaf healthy or bad. Returns whether its health changed. Not recorded.
  bool mark(std::uint32_t c, cell_id leaf, bool good) {
    physical_chain& chain = chains_[c];
    if (!chain.mark(leaf, good)) return false;
    hash_ ^= fact(fact_bad, c, leaf.value, 0, 0);
    if (const virtual_cell owner = chain.owner(leaf); owner.cell.valid())
      clusters_[owner.cluster.value].set_usable(owner.cell, good && !chain.holders(leaf).taken());
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
    clusters_.emplace_back(tenant, chain, layout.chains[chain].tree,
                           layout.chains[chain].node_level, quota);
    pinned_.push_back(false);
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
    physical_chain& chain = chains_[c];
    const leaf_holders from = chain.holders(leaf);
    chain.hold(leaf, to);
    hash_ ^= fact_of(c, leaf, from) ^ fact_of(c, leaf, to);
    if (from.taken() == to.taken()) return;
    const virtual_cell owner = chain.owner(leaf);
    APIARY_VERIFY(owner.cell.valid());
    clusters_[owner.cluster.value].set_active(owner.cell, to.taken());
    clusters_[owner.cluster.value].set_usable(owner.cell,
                                              !to.taken() && chain.healthy().healthy(leaf));
  }
  void bind_now(vc_chain_id c, cell_id v, level_t l, cell_id p) {
    virtual_cluster& cluster = clusters_[c.value];
    physical_chain& chain = chains_[cluster.chain()];
    APIARY_VERIFY(!cluster.image(v).valid() && !chain.owner(p).cell.valid());
    if (!cluster.tree().parent(v, l).valid()) {
      APIARY_VERIFY(chain.grant(p));
      APIARY_VERIFY(pinned_[c.value] || ledgers_[cluster.chain()].charge(cluster.tenant(), l));
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

  std::vector<physical_chain> chains_;
  std::vector<quota_ledger> ledgers_;  // by chain
  std::vector<virtual_cluster> clusters_;
  std::vector<bool> pinned_;                      // by cluster
  lean_vector<vc_chain_id> clusters_of_tenants_;  // for each chain, one entry per tenant
  lean_vector<vc_chain_id> clusters_of_pinned_;
  journal log_;
  bool recording_ = false;
  std::uint64_t hash_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
