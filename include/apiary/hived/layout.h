// apiary/hived/layout.h - a checked HiveD cluster: chains as trees, tenants as counts of cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/name_index.h>
#include <apiary/hived/request.h>

#include <absl/status/statusor.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {
class hived_chain_reader;
class hived_tenant_reader;
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
  [[nodiscard]] static absl::StatusOr<hived_layout> create(const hived_config& config);

  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(chain_of_node_.size());
  }
  // nullopt when there is none of this name.
  [[nodiscard]] std::optional<node_id> find_node(std::string_view name) const {
    return find<node_id>(nodes_, name);
  }
  [[nodiscard]] std::optional<tenant_id> find_tenant(std::string_view name) const {
    return find<tenant_id>(tenants_, name);
  }
  // Its index in `pinned`.
  [[nodiscard]] std::optional<std::uint32_t> find_pinned(std::string_view id) const {
    return pinned_.find(id);
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
  [[nodiscard]] std::uint64_t hash() const noexcept;

 private:
  hived_layout(detail::hived_chain_reader cells, detail::hived_tenant_reader owners);

  template <class Id>
  [[nodiscard]] static std::optional<Id> find(const detail::name_index& all,
                                              std::string_view name) {
    const std::optional<std::uint32_t> found = all.find(name);
    return found ? std::optional(Id(*found)) : std::nullopt;
  }

  std::vector<chain_id> chain_of_node_;
  detail::name_index nodes_;
  detail::name_index tenants_;
  detail::name_index pinned_;
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/layout_inl.h>
#endif
