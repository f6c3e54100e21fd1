// apiary/hived/layout.h - a checked HiveD cluster: chains as trees, tenants as counts of cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cell_types.h>
#include <apiary/hived/request.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What is promised to a tenant, pinned cells apart.
struct tenant_layout {
  std::string name{};
  std::vector<std::vector<std::uint32_t>> quota{};  // cells by chain and level
};

namespace detail {

// Reads the tenants of a document whose physical cells are read, and tests that what is promised
// to them can be kept.
//
// Cost: O(entries of the tenants + tenants * levels + cells / 64).
class hived_tenant_reader {
 public:
  std::vector<tenant_layout> tenants{};  // in the order of the document
  absl::flat_hash_map<std::string, tenant_id> tenant_of_name{};

  // Enters the owners of the pinned cells.
  hived_tenant_reader(const hived_config& config, hived_chain_reader& cells,
                      detail::document_faults& faults)
      : cells_(cells), faults_(faults), reserved_(cells.chains.size()) {
    for (const virtual_cluster_config& cluster : config.virtual_clusters) add_tenant(cluster);
    for (std::uint32_t c = 0; c < cells_.chains.size(); ++c)
      if (cells_.complete[c]) check_reservations(chain_id(c));
  }

 private:
  void add_tenant(const virtual_cluster_config& cluster) {
    const std::string path = "virtualClusters." + detail::escaped(cluster.name);
    const tenant_id tenant(static_cast<std::uint32_t>(tenants.size()));
    if (cluster.name.empty()) faults_.add(path, "a virtual cluster without name");
    if (!tenant_of_name.try_emplace(cluster.name, tenant).second) {
      faults_.add(path, "is defined twice");
    }
    tenants.push_back({.name = cluster.name});
    for (const chain_layout& c : cells_.chains)
      tenants.back().quota.emplace_back(c.tree.num_levels());
    for (std::size_t i = 0; i < cluster.cells.size(); ++i) {
      add_quota(path + ".virtualCells[" + std::to_string(i) + "].cellType", cluster.cells[i]);
    }
    for (std::size_t i = 0; i < cluster.pinned_ids.size(); ++i) {
      own_pinned(path + ".pinnedCells[" + std::to_string(i) + "].pinnedCellId",
                 cluster.pinned_ids[i], tenant);
    }
  }

  // Quotas of 32 bits overflow only where the sums in reserved_ are too many to be kept.
  void add_quota(const std::string& path, const virtual_cell_config& cells) {
    const auto where = find_level(path, cells.type);
    if (!where) return;
    const auto [c, level] = *where;
    tenants.back().quota[c.value][level] += cells.count;
    reserved_[c.value][level] += cells.count;
  }

  // The chain and level of a qualified type; nullopt when there is no such, or when its chain has
  // faults.
  [[nodiscard]] std::optional<std::pair<chain_id, level_t>> find_level(const std::string& path,
                                                                       std::string_view type) {
    std::size_t dot = type.find('.');
    std::string_view part = type.substr(0, dot);
    const auto found = cells_.chain_of_type.find(part);
    if (found == cells_.chain_of_type.end()) {
      faults_.add(path, type.empty() ? "is missing"
                                     : "no physical cell is of type " + detail::in_quotes(part) +
                                           ", the first part of " + detail::in_quotes(type));
      return std::nullopt;
    }
    if (!found->second.valid()) return std::nullopt;
    const std::vector<std::string>& types = cells_.chains[found->second.value].level_types;
    auto level = static_cast<level_t>(types.size() - 1);
    while (dot != std::string_view::npos) {
      type.remove_prefix(dot + 1);
      dot = type.find('.');
      part = type.substr(0, dot);
      if (level == 0 || part != types[level - 1]) {
        faults_.add(path,
                    detail::in_quotes(types[level]) + " is not made of " + detail::in_quotes(part));
        return std::nullopt;
      }
      --level;
    }
    return std::pair(found->second, level);
  }

  void own_pinned(const std::string& path, const std::string& id, tenant_id tenant) {
    const auto found = cells_.pinned_of_id.find(id);
    if (id.empty()) {
      faults_.add(path, "is missing");
    } else if (found != cells_.pinned_of_id.end()) {
      tenant_id& owner = cells_.pinned[found->second].tenant;
      if (owner.valid()) {
        faults_.add(path, detail::in_quotes(id) + " belongs to virtual cluster " +
                              detail::in_quotes(tenants[owner.value].name) + " already");
      }
      owner = tenant;
    } else if (cells_.all_complete) {
      faults_.add(path, "no physical cell is pinned as " + detail::in_quotes(id));
    }
  }

  // Takes the tenants' pinned cells and promises the rest, largest first:
  // the first promise that cannot be kept is of a level that has too few cells.
  void check_reservations(chain_id c) {
    const chain_layout& in = cells_.chains[c.value];
    reserving_buddy_allocator free(in.tree);
    for (const pinned_layout& pin : cells_.pinned) {
      if (pin.chain != c || !pin.tenant.valid()) continue;
      if (!free.cells().enclosing_free_level(pin.cell)) continue;
      APIARY_VERIFY(free.reserve({in.tree.level(pin.cell), 1}) && free.allocate_at(pin.cell));
    }
    for (level_t l = in.tree.num_levels(); l-- > 0;) {
      const std::uint64_t wanted = reserved_[c.value][l];
      const std::uint32_t left = free.splittable(l);
      if (wanted > left) {
        faults_.add("virtualClusters",
                    "chain " + detail::in_quotes(in.name) + ": " + std::to_string(wanted) +
                        " of type " + detail::in_quotes(in.level_types[l]) + " are promised, " +
                        std::to_string(left) +
                        " are there beside pinned cells and larger promised ones");
        return;
      }
      APIARY_VERIFY(free.reserve({l, static_cast<std::uint32_t>(wanted)}));
    }
  }

  hived_chain_reader& cells_;
  detail::document_faults& faults_;
  std::vector<std::array<std::uint64_t, uniform_tree::max_levels>> reserved_;  // [chain][level]
};

}  // namespace detail

// The cluster of a configuration and who was promised what of it. Nodes are numbered chain after
// chain, from left to right; a leaf has a position in its node, from the left, and a device index,
// which the document may choose.
//
// Safety: on each chain a reserving_buddy_allocator can promise all quotas and all tenants' pinned
//         cells, and then grant each pinned cell.
//
// Model:    HiveD (OSDI 2020) sections 3 and 4; the format of the open-source scheduler, as
//           hived/config.h. Differs: all faults are found at once; quotas must fit beside the pinned
//           cells; every node has a name.
// Cost:     create O(cells of the document + cells of the trees / 64); all else O(1) if it does not
//           say otherwise, find_position O(leaves of a node) where the document chose the device
//           indices.
// Example:  examples/hived_config.cpp
struct hived_layout {
  std::vector<chain_layout> chains{};    // in descending order of name, the order of trying them
  std::vector<pinned_layout> pinned{};   // in the order of the document
  std::vector<tenant_layout> tenants{};  // in the order of the document

  // kInvalidArgument with every fault found, a line each: "path in the document: what".
  [[nodiscard]] static absl::StatusOr<hived_layout> create(const hived_config& config) {
    detail::document_faults faults;
    detail::hived_chain_reader cells(config, faults);
    detail::hived_tenant_reader owners(config, cells, faults);
    APIARY_RETURN_IF_ERROR(faults.status());
    return hived_layout(std::move(cells), std::move(owners));
  }

  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(chain_of_node_.size());
  }
  // nullopt when there is none of this name.
  [[nodiscard]] std::optional<node_id> find_node(std::string_view name) const {
    return find(nodes_, name);
  }
  [[nodiscard]] std::optional<tenant_id> find_tenant(std::string_view name) const {
    return find(tenants_, name);
  }
  // Its index in `pinned`.
  [[nodiscard]] std::optional<std::uint32_t> find_pinned(std::string_view id) const {
    return find(pinned_, id);
  }

  // Requires: n < num_nodes().
  [[nodiscard]] chain_id chain_of(node_id n) const noexcept {
    APIARY_ASSERT(n.value < num_nodes());
    return chain_of_node_[n.value];
  }
  [[nodiscard]] const chain_layout& chain(chain_id c) const noexcept {
    APIARY_ASSERT(c.value < chains.size());
    return chains[c.value];
  }
  // The cell of its chain that the node is, and its name.
  [[nodiscard]] cell_id node_cell(node_id n) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    return in.tree.at(in.node_level, n.value - in.first_node);
  }
  [[nodiscard]] const std::string& node_name(node_id n) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    return in.node_names[n.value - in.first_node];
  }
  // The device index of the leaf at a position in the node. Requires: a position in the node.
  [[nodiscard]] std::uint32_t device(node_id n, std::uint32_t position) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    const std::uint32_t leaves = in.tree.leaves_per_cell(in.node_level);
    APIARY_ASSERT(position < leaves);
    return in.device_of_leaf[(n.value - in.first_node) * leaves + position];
  }
  // The device indices of a task's leaves, by ascending position: with the name of its node, where it
  // runs. None: the task has ended. Requires: a task of this configuration, or one that has ended.
  [[nodiscard]] std::vector<std::uint32_t> devices(task_place task) const {
    std::vector<std::uint32_t> all;
    for (std::uint64_t left = task.leaves; left != 0; left &= left - 1)
      all.push_back(device(task.node, static_cast<std::uint32_t>(std::countr_zero(left))));
    return all;
  }
  // The position of the leaf of that device index; nullopt when the node has none.
  [[nodiscard]] std::optional<std::uint32_t> find_position(node_id n,
                                                           std::uint32_t index) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    const std::uint32_t leaves = in.tree.leaves_per_cell(in.node_level);
    if (index < leaves && device(n, index) == index) return index;
    for (std::uint32_t position = 0; position < leaves; ++position)
      if (device(n, position) == index) return position;
    return std::nullopt;
  }

  // Over all names and shapes, what is pinned and what is promised: equal layouts, equal values.
  // Cost: O(nodes + leaves + tenants * levels).
  [[nodiscard]] std::uint64_t hash() const noexcept {
    digest all;
    all.add(chains.size());
    for (const chain_layout& in : chains) {
      all.add(in.name).add(in.tree.num_levels()).add(in.node_level);
      for (level_t l = 0; l < in.tree.num_levels(); ++l)
        all.add(in.tree.cells(l).size()).add(in.level_types[l]);
      for (const std::string& node : in.node_names) all.add(node);
      for (const std::uint32_t device : in.device_of_leaf) all.add(device);
    }
    all.add(pinned.size());
    for (const pinned_layout& pin : pinned)
      all.add(pin.id).add(pin.chain.value).add(pin.cell.value).add(pin.tenant.value);
    for (const tenant_layout& tenant : tenants) {
      all.add(tenant.name);
      for (const std::vector<std::uint32_t>& cells : tenant.quota)
        for (const std::uint32_t count : cells) all.add(count);
    }
    return all.value();
  }

 private:
  hived_layout(detail::hived_chain_reader cells, detail::hived_tenant_reader owners)
      : chains(std::move(cells.chains)),
        pinned(std::move(cells.pinned)),
        tenants(std::move(owners.tenants)),
        nodes_(std::move(cells.node_of_name)),
        tenants_(std::move(owners.tenant_of_name)),
        pinned_(std::move(cells.pinned_of_id)) {
    for (std::uint32_t c = 0; c < chains.size(); ++c)
      chain_of_node_.insert(chain_of_node_.end(), chains[c].node_names.size(), chain_id(c));
  }

  template <class T>
  using by_name = absl::flat_hash_map<std::string, T>;
  template <class T>
  [[nodiscard]] static std::optional<T> find(const by_name<T>& all, std::string_view name) {
    const auto found = all.find(to_absl(name));
    return found == all.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<chain_id> chain_of_node_;
  by_name<node_id> nodes_;
  by_name<tenant_id> tenants_;
  by_name<std::uint32_t> pinned_;
};

APIARY_NAMESPACE_END
