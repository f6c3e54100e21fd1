// apiary/hived/draw.h - draws a HiveD cluster as text: which gang uses which leaf.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/hived/hived.h>

#include <cstddef>
#include <string>

APIARY_NAMESPACE_BEGIN

// Draws racks, nodes and leaves in ASCII, in lines of at most `width` characters (at least 40),
// then the tenants with their gangs (job, priority, state, leaves) and a legend. A node or
// larger cell names the tenant that owns it now; ".." is an idle leaf. Adjacent idle cells, and
// nodes and gangs that look alike, are summarized.
// Cost:    O(leaves + gangs * chains + tenants * chains), and a sort of the gangs.
// Example: examples/hived_guarantee.cpp
[[nodiscard]] std::string draw(const hived& h, std::size_t width = 100);

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/draw_inl.h>
#endif
