// apiary/hived/layout.h - a checked HiveD configuration: chains as trees, tenants as quotas.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/statusor.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {
class hived_config_reader;
}  // namespace detail

// The cells of a cluster and the cells that each tenant owns, checked: every chain can reserve the
// quotas and pinned cells of all tenants at once. Nodes are numbered chain by chain. A host with
// devices in several chains has a node with its name in each of them. A leaf has a position in its
// node (0, 1, ...) and a device index, which the configuration may choose.
// Model:    HiveD (OSDI 2020) sections 3 and 4, in the format of hived/hived_config.h. Differs: all
//           faults are reported at once; quotas must fit beside the pinned cells; every node has a
//           name.
// Cost:     create O(cells of the configuration + cells of the trees / 64); the rest O(1), but
//           find_position O(leaves of a node) if the configuration chooses device indices.
// Example:  examples/hived_config.cpp
struct hived_layout {
  std::vector<chain_layout> chains{};    // by descending name, the order in which they are tried
  std::vector<pinned_layout> pinned{};   // in the order of the configuration
  std::vector<tenant_layout> tenants{};  // in the order of the configuration
  // Checks a configuration. kInvalidArgument: all faults, one per line, as "path: what is wrong".
  [[nodiscard]] static absl::StatusOr<hived_layout> create(const hived_config& config);
  // The number of nodes of all chains.
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(chain_of_node_.size());
  }
  // The node with this name, if there is one; of a host in several chains, the first.
  [[nodiscard]] std::optional<node_id> find_node(std::string_view name) const {
    return find<node_id>(nodes_, name);
  }
  // The next node of the same host, which is in another chain; after the last, the first. The node
  // itself if its host is in one chain. Requires: n < num_nodes().
  [[nodiscard]] node_id next_of_host(node_id n) const noexcept {
    APIARY_ASSERT(n.value < num_nodes());
    return next_of_host_[n.value];
  }
  // The tenant with this name, if there is one.
  [[nodiscard]] std::optional<tenant_id> find_tenant(std::string_view name) const {
    return find<tenant_id>(tenants_, name);
  }
  // The index in `pinned` of the cell with this pinned id, if there is one.
  [[nodiscard]] std::optional<std::uint32_t> find_pinned(std::string_view id) const {
    return find<std::uint32_t>(pinned_, id);
  }
  // The chain of a node. Requires: n < num_nodes().
  [[nodiscard]] chain_id chain_of(node_id n) const noexcept {
    APIARY_ASSERT(n.value < num_nodes());
    return chain_of_node_[n.value];
  }
  // A chain by its id.
  [[nodiscard]] const chain_layout& chain(chain_id c) const noexcept {
    APIARY_ASSERT(c.value < chains.size());
    return chains[c.value];
  }
  // The cell of a node in the tree of its chain.
  [[nodiscard]] cell_id node_cell(node_id n) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    return in.tree.at(in.node_level, n.value - in.first_node);
  }
  // The name of a node.
  [[nodiscard]] const std::string& node_name(node_id n) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    return in.node_names[n.value - in.first_node];
  }
  // The device index of the leaf at a position of the node. Requires: a valid position.
  [[nodiscard]] std::uint32_t device(node_id n, std::uint32_t position) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    const std::uint32_t leaves = in.tree.leaves_per_cell(in.node_level);
    APIARY_ASSERT(position < leaves);
    return in.device_of_leaf[(n.value - in.first_node) * leaves + position];
  }
  // The device indices of the leaves of a task of this configuration, by ascending position.
  [[nodiscard]] std::vector<std::uint32_t> devices(hived_placement task) const {
    std::vector<std::uint32_t> all;
    for (std::uint64_t left = task.leaves; left != 0; left &= left - 1)
      all.push_back(device(task.node, static_cast<std::uint32_t>(std::countr_zero(left))));
    return all;
  }
  // The position of the leaf with this device index; nullopt if the node has none.
  [[nodiscard]] std::optional<std::uint32_t> find_position(node_id n,
                                                           std::uint32_t index) const noexcept {
    const chain_layout& in = chain(chain_of(n));
    const std::uint32_t leaves = in.tree.leaves_per_cell(in.node_level);
    if (index < leaves && device(n, index) == index) return index;
    for (std::uint32_t position = 0; position < leaves; ++position)
      if (device(n, position) == index) return position;
    return std::nullopt;
  }
  // A hash over names, shapes, pinned cells and quotas. Cost: O(nodes + leaves + tenants * levels).
  [[nodiscard]] std::uint64_t hash() const noexcept;

 private:
  friend class detail::hived_config_reader;
  hived_layout() = default;

  template <class Id>
  [[nodiscard]] static std::optional<Id> find(const detail::name_index& all,
                                              std::string_view name) {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(Id(found->second));
  }

  detail::lean_vector<chain_id> chain_of_node_;
  detail::name_index nodes_;  // of a host in several chains, the first
  detail::name_index tenants_;
  detail::name_index pinned_;
  detail::lean_vector<node_id> next_of_host_;  // by node
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/layout_inl.h>
#endif
