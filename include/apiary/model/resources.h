// apiary/model/resources.h - amounts of what a node lends besides its GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// CPU in thousandths of a core and memory in MiB.
struct resources {
  std::uint32_t cpu_milli = 0;
  std::uint32_t memory_mib = 0;

  constexpr resources& operator+=(resources r) noexcept {
    cpu_milli += r.cpu_milli;
    memory_mib += r.memory_mib;
    return *this;
  }
  // Requires: fits(r, *this).
  constexpr resources& operator-=(resources r) noexcept {
    APIARY_ASSERT(r.cpu_milli <= cpu_milli && r.memory_mib <= memory_mib);
    cpu_milli -= r.cpu_milli;
    memory_mib -= r.memory_mib;
    return *this;
  }
  friend constexpr bool operator==(resources, resources) noexcept = default;
};

// Whether `available` has at least as much of everything as `demand`: a partial order only.
[[nodiscard]] constexpr bool fits(resources demand, resources available) noexcept {
  return demand.cpu_milli <= available.cpu_milli && demand.memory_mib <= available.memory_mib;
}

APIARY_NAMESPACE_END
