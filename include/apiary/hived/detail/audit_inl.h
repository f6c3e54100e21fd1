// apiary/hived/detail/audit_inl.h - bodies of hived/audit.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/snapshot_text.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Compares a scheduler with one that was restored from it.
class hived_comparison {
 public:
  hived_comparison(const hived_catalog& catalog, const hived_cells& is, const gang_table& gangs,
                   const hived_state& should)
      : layout_(catalog.layout()), is_(is), gangs_(gangs), should_(should) {}

  // The differences of the first cell, node and level that differ, in each chain and cluster.
  std::vector<violation> operator()() {
    for (std::uint32_t c = 0; c < is_.num_chains(); ++c) compare_chain(c);
    for (std::uint32_t c = 0; c < is_.num_clusters(); ++c) {
      compare_cluster(vc_chain_id(c));
      compare_order(vc_chain_id(c));
    }
    return std::move(found_);
  }

 private:
  struct field {
    const char* name;
    std::uint64_t value;
  };
  // Compares fields(cells, i) for i < n, up to the first difference; where(i) names what has them.
  template <class Where, class Fields>
  void compare(std::uint32_t n, const Where& where, const Fields& fields) {
    bool same = true;
    for (std::uint32_t i = 0; i < n && same; ++i) {
      const auto is = fields(is_, i);
      const auto should = fields(should_.cells(), i);
      for (std::size_t k = 0; k < is.size(); ++k) {
        if (is[k].value == should[k].value) continue;
        const std::string text = text_of({is[k].value, " instead of ", should[k].value});
        found_.push_back({is[k].name, text_of({where(i), ": ", text})});
        same = false;
      }
    }
  }
  void compare_chain(std::uint32_t c) {
    const chain_layout& layout = layout_.chains[c];
    const auto cell = [&](std::uint32_t i) { return text_of({layout.name, " cell ", i}); };
    const auto node = [&](std::uint32_t i) { return text_of({"node ", layout.node_names[i]}); };
    const auto level = [&](std::uint32_t i) { return text_of({layout.name, " level ", i}); };
    compare(layout.tree.num_cells(), cell, [&](const hived_cells& cells, std::uint32_t i) {
      const physical_chain& in = cells.chain(c);
      const cell_id p(i);
      std::uint64_t few = 0;  // bit n: in few_opportunistic(n)
      for (std::uint32_t n = 0; n < in.node_leaves(); ++n)
        few |= std::uint64_t{in.few_opportunistic(n).test(i)} << n;
      return std::array{field{"cluster bound to", in.owner(p).cluster.value},
                        field{"cell bound to", in.owner(p).cell.value},
                        field{"granted", in.cells().cells().is_live(p)},
                        field{"free", in.cells().cells().free_cells().test(i)},
                        field{"bad leaves", in.healthy().bad_leaves(p)},
                        field{"healthy", in.healthy().healthy(p)},
                        field{"opportunistic leaves", in.opportunistic_leaves(p)},
                        field{"guaranteed leaves", in.use().used(p, physical_chain::guaranteed)},
                        field{"few opportunistic leaves", few}};
    });
    compare(is_.chain(c).num_nodes(), node, [&](const hived_cells& cells, std::uint32_t n) {
      const physical_chain& in = cells.chain(c);
      return std::array{
          field{"idle leaves", in.idle(n)},
          field{"class of idle node", in.idle_nodes().class_of(node_id(in.from_end(n)))},
          field{"rack granted", in.granted(n)}};
    });
    compare(layout.tree.num_levels(), level, [&](const hived_cells& cells, std::uint32_t l) {
      const physical_chain& in = cells.chain(c);
      return std::array{field{"free cells", in.cells().free_count(l)},
                        field{"reserved cells", in.cells().reserved(l)},
                        field{"cells to split", in.cells().splittable(l)},
                        field{"cells left to tenants", cells.ledger(c).total_remaining()[l]},
                        field{"any bad", in.any_bad()}};
    });
    for (std::uint32_t t = 0; t < layout_.tenants.size(); ++t) {
      const auto owned = [&](std::uint32_t l) {
        return text_of({layout_.tenants[t].name, " in ", level(l)});
      };
      compare(layout.tree.num_levels(), owned, [&](const hived_cells& cells, std::uint32_t l) {
        return std::array{field{"quota", cells.ledger(c).quota(tenant_id(t), l)},
                          field{"quota in use", cells.ledger(c).allocated(tenant_id(t), l)}};
      });
    }
    for (const cell_id leaf : layout.tree.cells(0)) {
      const leaf_holders is = is_.chain(c).holders(leaf);
      const leaf_holders should = should_.cells().chain(c).holders(leaf);
      if (is == should) continue;
      found_.push_back(
          {"holders", text_of({cell(leaf.value), " of ", node(is_.chain(c).node_of(leaf)), ": ",
                               text(is), " instead of ", text(should)})});
      return;
    }
  }
  void compare_cluster(vc_chain_id c) {
    const virtual_cluster& of = is_.cluster(c);
    const std::string who =
        text_of({layout_.tenants[of.tenant().value].name, " (cluster ", c.value, ") "});
    const auto cell = [&](std::uint32_t i) { return text_of({who, "cell ", i}); };
    const auto node = [&](std::uint32_t i) { return text_of({who, "node ", i}); };
    const auto level = [&](std::uint32_t i) { return text_of({who, "level ", i}); };
    compare(of.tree().cells(0).first.value, cell, [&](const hived_cells& cells, std::uint32_t v) {
      return std::array{field{"leaves in use", cells.cluster(c).active(cell_id(v))}};
    });
    compare(of.num_nodes(), node, [&](const hived_cells& cells, std::uint32_t n) {
      const virtual_cluster& in = cells.cluster(c);
      return std::array{field{"free leaves", in.free(n)},
                        field{"class of node", in.free_nodes().class_of(node_id(n))}};
    });
    compare(of.tree().num_levels(), level, [&](const hived_cells& cells, std::uint32_t l) {
      return std::array{field{"unbound whole cell", cells.cluster(c).first_unbound_root(l).value}};
    });
  }
  // Compares the order in which gangs of a virtual cluster become victims.
  void compare_order(vc_chain_id c) {
    const auto& is = gangs_.of_cluster(c);
    const auto& should = should_.gangs().of_cluster(c);
    if (is == should) return;
    for (const auto* of : {&is, &should}) {
      for (const auto& [rank, slot] : *of) {
        const auto& other = of == &is ? should : is;
        if (const auto at = other.find(rank); at != other.end() && at->second == slot) continue;
        found_.push_back(
            {"order of victims", text_of({"cluster ", c.value, of == &is ? ": " : ": not ",
                                          hived_catalog::name(rank.job), " of priority ",
                                          rank.priority, ", ", rank.leaves, " leaves"})});
        return;
      }
    }
  }
  [[nodiscard]] std::string text(leaf_holders h) const {
    return text_of({"user ", text(h.user), h.guaranteed ? " (guaranteed)" : "", ", claimer ",
                    text(h.claimer)});
  }
  [[nodiscard]] std::string text(gang_slot s) const {
    for (const gang_slot known : gangs_.by_job())
      if (known == s) return hived_catalog::name(gangs_[s].request.job);
    return s.valid() ? text_of({"unknown slot ", s.value}) : std::string("no gang");
  }

  const hived_layout& layout_;
  const hived_cells& is_;
  const gang_table& gangs_;
  const hived_state& should_;
  std::vector<violation> found_{};
};

// Whether each gang is found by its job, and no two have one slot. The text names one for which
// that does not hold; empty: there is none.
[[nodiscard]] inline std::string fault_of(const gang_table& gangs) {
  gang_slot last;
  for (const gang_slot s : gangs.by_job()) {
    const std::string name = hived_catalog::name(gangs[s].request.job);
    if (s == last) return text_of({name, ": two jobs have its slot ", s.value});
    if (gangs.find(gangs[s].request.job) != s) return name + " is not found by its job";
    last = s;
  }
  return {};
}

// Audits a state. The restored one is in `should`.
[[nodiscard]] inline std::vector<violation> audit(const hived_catalog& catalog,
                                                  const hived_cells& cells, const gang_table& gangs,
                                                  hived_state& should) {
  if (std::string fault = fault_of(gangs); !fault.empty()) return {{"table", std::move(fault)}};
  const std::string text = hived_snapshot_writer::body(cells, gangs);
  const absl::Status status = hived_snapshot_reader::read_body(text, catalog, should);
  if (!status.ok()) return {{"state", std::string(status.message())}};
  return hived_comparison(catalog, cells, gangs, should)();
}

}  // namespace detail

APIARY_INLINE std::vector<violation> audit(const hived& scheduler) {
  detail::hived_state again(scheduler.layout());
  std::vector<violation> found =
      detail::audit(scheduler.catalog(), scheduler.cells(), scheduler.gangs(), again);
  if (found.empty() && again.hash() != scheduler.hash())
    found.push_back({"hash", detail::text_of({scheduler.hash(), " instead of ", again.hash()})});
  return found;
}

APIARY_INLINE std::vector<violation> detail::audit(const hived_catalog& catalog,
                                                   const hived_cells& cells,
                                                   const gang_table& gangs) {
  hived_state again(catalog.layout());
  return audit(catalog, cells, gangs, again);
}

APIARY_NAMESPACE_END
