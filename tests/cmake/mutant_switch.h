// apiary/tests/cmake/mutant_switch.h - which mutant runs; only copies of the library include it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <type_traits>

namespace apiary_mutants {

// The id in the environment variable APIARY_MUTANT, hexadecimal; 0 for none.
inline const unsigned long active = [] {
  const char* const id = std::getenv("APIARY_MUTANT");
  return id == nullptr ? 0UL : std::strtoul(id, nullptr, 16);
}();

}  // namespace apiary_mutants

// Whether the mutant with this id runs. Constants are those of the library.
#if defined(__GNUC__)
[[gnu::always_inline]]
#endif
constexpr bool
apiary_mutant(unsigned long id) noexcept {
  return !std::is_constant_evaluated() && apiary_mutants::active == id;
}
