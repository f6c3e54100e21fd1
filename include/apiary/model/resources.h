// apiary/model/resources.h - amounts of CPU and memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// An amount of CPU, in thousandths of a core, and memory, in MiB.
struct resources {
  std::uint32_t cpu_milli = 0;   // thousandths of a core
  std::uint32_t memory_mib = 0;  // MiB

  // Adds both amounts.
  constexpr resources& operator+=(resources r) noexcept {
    cpu_milli += r.cpu_milli;
    memory_mib += r.memory_mib;
    return *this;
  }
  // Requires: r.fits_in(*this).
  constexpr resources& operator-=(resources r) noexcept {
    APIARY_ASSERT(r.cpu_milli <= cpu_milli && r.memory_mib <= memory_mib);
    cpu_milli -= r.cpu_milli;
    memory_mib -= r.memory_mib;
    return *this;
  }
  // Whether `available` has at least as much of each resource. It is a partial order only.
  [[nodiscard]] constexpr bool fits_in(resources available) const noexcept {
    return cpu_milli <= available.cpu_milli && memory_mib <= available.memory_mib;
  }
  friend constexpr bool operator==(resources, resources) noexcept = default;
};

APIARY_NAMESPACE_END
