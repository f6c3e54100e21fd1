// apiary/gang_scheduler/detail/cell_gangs.h - the gangs in each cell of a level, and the greatest sums of a few.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The gangs of each cell of one level. refresh() lists them again for the cells that have changed.
// Cost: mark O(1); refresh O(nodes and gangs of the changed cells), of all cells the first time.
class cell_gangs {
 public:
  struct gang {
    std::uint32_t slot = 0;
    std::uint32_t gpus = 0;   // in the cell
    std::uint32_t nodes = 0;  // in the cell
    friend bool operator==(const gang&, const gang&) = default;
  };
  // The most GPUs, and the most nodes, that 1, ..., few gangs have in a cell; [few]: all gangs.
  static constexpr std::size_t few = 7;
  struct sums {
    std::array<std::uint32_t, few + 1> gpus{};
    std::array<std::uint32_t, few + 1> nodes{};
    friend bool operator==(const sums&, const sums&) = default;
  };

  // Whether begin() has been called.
  [[nodiscard]] bool active() const noexcept { return !sums_.empty(); }
  // All cells have changed.
  void begin(std::uint32_t cells) {
    gangs_.assign(cells, {});
    sums_.assign(cells, {});
    is_marked_.assign(cells, 1);
    marked_.clear();
    for (std::uint32_t c = 0; c < cells; ++c) marked_.push_back(c);
  }
  // The cell has changed.
  void mark(std::uint32_t c) {
    if (is_marked_[c] != 0) return;
    is_marked_[c] = 1;
    marked_.push_back(c);
  }
  [[nodiscard]] bool is_marked(std::uint32_t c) const noexcept { return is_marked_[c] != 0; }
  // list(c, gangs) appends the gangs of cell c, once for each of their nodes.
  template <class List>
  void refresh(const List& list) {
    for (const std::uint32_t c : marked_) {
      is_marked_[c] = 0;
      gangs_[c].clear();
      list(c, gangs_[c]);
      join(gangs_[c]);
      sums_[c] = sums_of(gangs_[c]);
    }
    marked_.clear();
  }
  [[nodiscard]] std::uint32_t num_cells() const noexcept {
    return static_cast<std::uint32_t>(sums_.size());
  }
  [[nodiscard]] std::span<const gang> in(std::uint32_t c) const noexcept { return gangs_[c]; }
  [[nodiscard]] const sums& most(std::uint32_t c) const noexcept { return sums_[c]; }
  // The gangs of a cell, and their nodes there: what a search reads of them.
  [[nodiscard]] std::uint64_t entries(std::uint32_t c) const noexcept {
    return gangs_[c].size() + std::uint64_t{sums_[c].nodes[few]};
  }

 private:
  // One entry for each gang, in the order of slots.
  static void join(std::vector<gang>& gangs) {
    std::sort(gangs.begin(), gangs.end(),
              [](const gang& a, const gang& b) { return a.slot < b.slot; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < gangs.size(); ++i) {
      if (kept > 0 && gangs[kept - 1].slot == gangs[i].slot) {
        gangs[kept - 1].gpus += gangs[i].gpus;
        gangs[kept - 1].nodes += gangs[i].nodes;
      } else {
        gangs[kept++] = gangs[i];
      }
    }
    gangs.resize(kept);
  }
  [[nodiscard]] static sums sums_of(std::span<const gang> gangs) {
    sums at;
    add_up(gangs, &gang::gpus, at.gpus);
    add_up(gangs, &gang::nodes, at.nodes);
    return at;
  }
  static void add_up(std::span<const gang> gangs, std::uint32_t gang::*number,
                     std::array<std::uint32_t, few + 1>& sums) {
    std::array<std::uint32_t, few> greatest{};  // descending
    for (const gang& g : gangs) {
      sums[few] += g.*number;
      std::uint32_t n = g.*number;
      for (std::uint32_t& at : greatest)
        if (n > at) std::swap(n, at);
    }
    std::uint32_t sum = 0;
    for (std::size_t k = 0; k < few; ++k) sums[k] = sum += greatest[k];
  }

  std::vector<std::vector<gang>> gangs_;  // by cell
  std::vector<sums> sums_;                // by cell
  std::vector<unsigned char> is_marked_;  // by cell
  std::vector<std::uint32_t> marked_;
};

}  // namespace detail
APIARY_NAMESPACE_END
