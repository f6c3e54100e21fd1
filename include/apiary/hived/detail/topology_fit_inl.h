// apiary/hived/detail/topology_fit_inl.h - bodies of hived/detail/constraint_engine.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/hived/detail/constrained_search.h>
#include <apiary/hived/detail/constraint_engine.h>
#include <apiary/hived/detail/hived_topology_fit.h>

#include <memory>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE std::unique_ptr<detail::constrained_search> detail::constraint_engine::make() {
  return std::make_unique<hived_topology_fit>();
}

APIARY_NAMESPACE_END
