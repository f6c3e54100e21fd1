// apiary/gang_scheduler/detail/named_cells.h - the cells of a described cluster, by name.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// "a" or "a, b or c", each in quotes.
[[nodiscard]] inline std::string one_of(std::span<const std::string> names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == names.size() ? last : ", ", "\"", names[i], "\"");
  return text;
}

// Which cells of each level there are, and in which cell of the next level each of them is.
// Cost: O(levels) each.
class named_cells {
 public:
  // levels: the names of the levels above the nodes, the lowest first.
  explicit named_cells(std::vector<std::string> levels)
      : levels_(std::move(levels)), cells_(levels_.size()) {}

  // In words why a node cannot be in these cells; empty if it can.
  [[nodiscard]] std::string fault(std::span<const std::string> cells) const {
    for (std::size_t l = 0; l + 1 < cells.size(); ++l) {
      const auto at = cells_[l].find(cells[l]);
      if (at != cells_[l].end() && at->second.above != cells[l + 1])
        return absl::StrCat(levels_[l], " \"", cells[l], "\" is in ", levels_[l + 1], " \"",
                            at->second.above, "\", not in \"", cells[l + 1], "\"");
    }
    return {};
  }
  // A node joins these cells, or leaves them.
  void join(std::span<const std::string> cells) {
    for (std::size_t l = 0; l < cells.size(); ++l) {
      cell& c = cells_[l][cells[l]];
      if (c.nodes++ == 0 && l + 1 < cells.size()) c.above = cells[l + 1];
    }
  }
  void leave(std::span<const std::string> cells) {
    for (std::size_t l = 0; l < cells.size(); ++l) {
      const auto at = cells_[l].find(cells[l]);
      if (--at->second.nodes == 0) cells_[l].erase(at);
    }
  }

 private:
  struct cell {
    std::uint32_t nodes = 0;
    std::string above{};  // the cell of the next level that it is in
  };
  std::vector<std::string> levels_;
  std::vector<std::unordered_map<std::string, cell>> cells_;  // by level, by name
};

}  // namespace detail
APIARY_NAMESPACE_END
