// apiary/core/digits.h - whole numbers from text.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>
#include <optional>
#include <string_view>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The value of decimal digits; nullopt if the text is empty, has another character, or is a number
// above `most`. Requires: most < 2^60.
[[nodiscard]] constexpr std::optional<std::uint64_t> read_digits(
    std::string_view text, std::uint64_t most = ~std::uint32_t{0}) noexcept {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
    if (value > most) return std::nullopt;
  }
  return text.empty() ? std::nullopt : std::optional(value);
}

}  // namespace detail
APIARY_NAMESPACE_END
