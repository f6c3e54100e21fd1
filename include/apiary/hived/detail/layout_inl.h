// apiary/hived/detail/layout_inl.h - bodies of hived/layout.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/config_reader.h>
#include <apiary/hived/layout.h>

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE absl::StatusOr<hived_layout> hived_layout::create(const hived_config& config) {
  detail::document_faults faults;
  detail::hived_config_reader read(config, faults);
  APIARY_RETURN_IF_ERROR(faults.status());
  return hived_layout(std::move(read));
}

APIARY_INLINE std::uint64_t hived_layout::hash() const noexcept {
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

APIARY_INLINE hived_layout::hived_layout(detail::hived_config_reader read)
    : chains(std::move(read.chains)),
      pinned(std::move(read.pinned)),
      tenants(std::move(read.tenants)),
      nodes_(std::move(read.node_of_name)),
      tenants_(std::move(read.tenant_of_name)),
      pinned_(std::move(read.pinned_of_id)),
      next_of_host_(std::move(read.next_of_host)) {
  for (std::uint32_t c = 0; c < chains.size(); ++c)
    chain_of_node_.insert(chain_of_node_.end(), chains[c].node_names.size(), chain_id(c));
}

APIARY_NAMESPACE_END
