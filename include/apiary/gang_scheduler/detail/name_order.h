// apiary/gang_scheduler/detail/name_order.h - the order of names and of nodes that decides ties.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <cstddef>
#include <string_view>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether name a is before name b. Digits count as numbers, so "n9" is before "n10".
[[nodiscard]] inline bool is_name_before(std::string_view a, std::string_view b) noexcept {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  // The number that begins at i, without leading zeros; moves i behind it.
  const auto number = [&](std::string_view text, std::size_t& i) {
    while (i < text.size() && text[i] == '0') ++i;
    const std::size_t first = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return text.substr(first, i - first);
  };
  std::size_t i = 0;
  std::size_t k = 0;
  while (i < a.size() && k < b.size()) {
    if (is_digit(a[i]) && is_digit(b[k])) {
      const std::string_view x = number(a, i);
      const std::string_view y = number(b, k);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    } else if (a[i] != b[k]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
    } else {
      ++i;
      ++k;
    }
  }
  const bool is_end = i == a.size();
  return is_end && k == b.size() ? a < b : is_end;
}
// Whether node a is before node b: by their cells, the highest first, then by their names.
// Requires: both have a cell for each level.
[[nodiscard]] inline bool is_node_before(const gang_cluster::node& a,
                                         const gang_cluster::node& b) noexcept {
  for (std::size_t l = a.cells.size(); l-- > 0;)
    if (a.cells[l] != b.cells[l]) return is_name_before(a.cells[l], b.cells[l]);
  return is_name_before(a.name, b.name);
}

}  // namespace detail
APIARY_NAMESPACE_END
