// apiary/hived/draw.h - a HiveD cluster as text: who has which leaf, at which priority.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/hived/hived.h>

#include <cstddef>
#include <string>

APIARY_NAMESPACE_BEGIN

// Racks, nodes and leaves, in lines of at most `width` characters (not less than 40), ASCII. A leaf
// is the letter of its user's tenant and the last digit of the job, or .. for an idle one; beside
// nodes and larger cells stands the tenant whose whole cell they are now. What is below a node with
// "next" is claimed by preempting gangs. Then the tenants, each with its gangs: job, priority, state
// and leaves; and what the signs that were used mean. Idle cells side by side, and nodes and gangs
// that look the same, are summed up.
//
// Cost:    O(leaves + gangs * chains + tenants * chains), and a sort of the gangs.
// Example: examples/hived_guarantee.cpp
[[nodiscard]] std::string draw(const hived& h, std::size_t width = 100);

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/draw_inl.h>
#endif
