// apiary/hived/detail/tenant_reader.h - reads the tenants of a HiveD configuration.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cell_types.h>
#include <apiary/hived/detail/chain_reader.h>
#include <apiary/hived/detail/name_index.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Reads the tenants of a configuration after its physical cells, and checks that the cluster has
// enough cells for all quotas. Cost: O(entries of the tenants + tenants * levels + cells / 64).
class hived_tenant_reader {
 public:
  std::vector<tenant_layout> tenants{};  // in the order of the configuration
  name_index tenant_of_name{};
  // Reads all tenants, sets the owner of each pinned cell in `cells`, and adds to `faults`.
  hived_tenant_reader(const hived_config& config, hived_chain_reader& cells,
                      document_faults& faults)
      : cells_(cells), faults_(faults), reserved_(cells.chains.size()) {
    for (const virtual_cluster_config& cluster : config.virtual_clusters) add_tenant(cluster);
    for (std::uint32_t c = 0; c < cells_.chains.size(); ++c)
      if (cells_.complete[c]) check_reservations(chain_id(c));
  }

 private:
  void add_tenant(const virtual_cluster_config& cluster) {
    const std::string path = text_of({"virtualClusters.", escaped(cluster.name)});
    const tenant_id tenant(static_cast<std::uint32_t>(tenants.size()));
    if (cluster.name.empty()) faults_.add({path}, {"a virtual cluster without name"});
    if (!tenant_of_name.add(cluster.name, tenant.value)) {
      faults_.add({path}, {"is defined twice"});
    }
    tenants.push_back({.name = cluster.name});
    for (const chain_layout& c : cells_.chains)
      tenants.back().quota.emplace_back(c.tree.num_levels());
    for (std::size_t i = 0; i < cluster.cells.size(); ++i) {
      add_quota(text_of({path, ".virtualCells[", i, "].cellType"}), cluster.cells[i]);
    }
    for (std::size_t i = 0; i < cluster.pinned_ids.size(); ++i) {
      own_pinned(text_of({path, ".pinnedCells[", i, "].pinnedCellId"}), cluster.pinned_ids[i],
                 tenant);
    }
  }
  // A quota of 32 bits overflows only if the sum in reserved_ is more than the chain can have.
  void add_quota(const std::string& path, const virtual_cell_config& cells) {
    const auto where = find_level(path, cells.type);
    if (!where) return;
    const auto [c, level] = *where;
    tenants.back().quota[c.value][level] += cells.count;
    reserved_[c.value][level] += cells.count;
  }
  // The chain and level of a qualified cell type, such as rack.node; nullopt if there is no such
  // type (a fault is added), or if its chain has faults.
  [[nodiscard]] std::optional<std::pair<chain_id, level_t>> find_level(const std::string& path,
                                                                       std::string_view type) {
    std::size_t dot = type.find('.');
    std::string_view part = type.substr(0, dot);
    const auto found = cells_.chain_of_type.find(part);
    if (!found) {
      faults_.add({path}, {type.empty() ? std::string("is missing") : no_chain(part, type)});
      return std::nullopt;
    }
    const chain_id chain(*found);
    if (!chain.valid()) return std::nullopt;
    const std::vector<std::string>& types = cells_.chains[chain.value].level_types;
    auto level = static_cast<level_t>(types.size() - 1);
    while (dot != std::string_view::npos) {
      type.remove_prefix(dot + 1);
      dot = type.find('.');
      part = type.substr(0, dot);
      if (level == 0 || part != types[level - 1]) {
        faults_.add({path}, {in_quotes(types[level]), " is not made of ", in_quotes(part)});
        return std::nullopt;
      }
      --level;
    }
    return std::pair(chain, level);
  }
  // Says that no physical cell is of type `first`, with which the qualified type starts, and which
  // qualified types end with it.
  [[nodiscard]] std::string no_chain(std::string_view first, std::string_view type) const {
    std::string text = text_of({"no physical cell is of type ", in_quotes(first)});
    if (first != type) text += text_of({", the first name of ", in_quotes(type)});
    const char* separator = "; write ";
    for (const chain_layout& chain : cells_.chains) {
      const std::vector<std::string>& types = chain.level_types;
      const auto at = std::find(types.begin(), types.end(), first);
      if (first.empty() || at == types.end()) continue;
      std::string qualified;
      for (auto above = types.end(); --above != at;) qualified += text_of({*above, "."});
      text += text_of({separator, in_quotes(qualified.append(type))});
      separator = " or ";
    }
    return text;
  }
  // Sets the owner of the pinned cell with this id, if there is one.
  void own_pinned(const std::string& path, const std::string& id, tenant_id tenant) {
    const auto found = cells_.pinned_of_id.find(id);
    if (id.empty()) {
      faults_.add({path}, {"is missing"});
    } else if (found) {
      tenant_id& owner = cells_.pinned[*found].tenant;
      if (owner.valid()) {
        faults_.add({path}, {in_quotes(id), " already belongs to virtual cluster ",
                             in_quotes(tenants[owner.value].name)});
      }
      owner = tenant;
    } else if (cells_.all_complete) {
      faults_.add({path}, {"no physical cell is pinned as ", in_quotes(id)});
    }
  }
  // Allocates the pinned cells and reserves the quotas, the largest cells first. Reports the first
  // quota that cannot be reserved.
  void check_reservations(chain_id c) {
    const chain_layout& in = cells_.chains[c.value];
    reserving_buddy_allocator free(in.tree);
    for (const pinned_layout& pin : cells_.pinned) {
      if (pin.chain != c || !pin.tenant.valid()) continue;
      if (!free.cells().enclosing_free_level(pin.cell)) continue;
      APIARY_VERIFY(free.reserve(in.tree.level(pin.cell), 1) && free.allocate_at(pin.cell));
    }
    for (level_t l = in.tree.num_levels(); l-- > 0;) {
      const std::uint64_t wanted = reserved_[c.value][l];
      const std::uint32_t left = free.splittable(l);
      if (wanted > left) {
        faults_.add({"virtualClusters"}, {wanted, " cells of type ", in_quotes(in.level_types[l]),
                                          " are requested; chain ", in_quotes(in.name), " has ",
                                          left, " besides pinned and larger cells"});
        return;
      }
      APIARY_VERIFY(free.reserve(l, static_cast<std::uint32_t>(wanted)));
    }
  }
  hived_chain_reader& cells_;
  document_faults& faults_;
  std::vector<std::array<std::uint64_t, uniform_tree::max_levels>> reserved_;  // [chain][level]
};

}  // namespace detail
APIARY_NAMESPACE_END
