// apiary/compiled/hived.cpp - the bodies of HiveD, for the target apiary::compiled.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/audit_inl.h>
#include <apiary/hived/detail/hived_inl.h>
#include <apiary/hived/detail/hived_topology_fit.h>
#include <apiary/hived/detail/layout_inl.h>
#include <apiary/hived/detail/queries_inl.h>

#include <memory>

APIARY_NAMESPACE_BEGIN

std::unique_ptr<detail::constrained_search> detail::constraint_engine::make() {
  return std::make_unique<hived_topology_fit>();
}

APIARY_NAMESPACE_END
