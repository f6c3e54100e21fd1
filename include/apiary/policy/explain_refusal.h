// apiary/policy/explain_refusal.h - the certificate of a gang that does not fit, in few reasons.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/room_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/resources.h>
#include <apiary/model/tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/room_count.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {

// A weighing, and what each cell of a level bears.
struct weighed_cells {
  certificate::weighing what;
  std::vector<std::uint64_t> most;
};

// Places for each kind, and pieces of each size, the largest first.
template <CellTree Tree>
[[nodiscard]] std::vector<weighed_cells> weigh_cells(const room_index<Tree>& rooms,
                                                     const gang_units& units,
                                                     std::span<const resources> hosts, level_t l) {
  std::vector<weighed_cells> all;
  room_count<Tree> count(rooms, units, hosts);
  const auto weigh = [&](const std::vector<std::uint32_t>& weights) {
    certificate::weighing what{weights, 0};
    for (std::size_t u = 0; u < units.size(); ++u)
      what.needed += std::uint64_t{weights[u]} * units[u].tasks;
    all.push_back({std::move(what), count.borne(weights, l)});
  };
  std::vector<std::uint32_t> weights(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    weights.assign(units.size(), 0);
    weights[u] = 1;
    weigh(weights);
  }
  for (std::uint32_t t = rooms.most(); units.size() > 1 && t > 0; --t) {
    for (std::size_t u = 0; u < units.size(); ++u) weights[u] = units[u].leaves / t;
    weigh(weights);
  }
  return all;
}

}  // namespace detail

// Why the gang fits no cell of level l: again and again the weighing that refuses most of the cells
// that are left; for those that none refuses, what they can hold, from `listed`.
//
// Requires: every cell that no weighing refuses is listed, in ascending order or not.
// Cost:     O(nodes * kinds * leaves of a node) and O(cells * (kinds + leaves of a node)^2).
template <CellTree Tree>
[[nodiscard]] certificate explain_refusal(const room_index<Tree>& rooms, const gang_units& units,
                                          std::span<const resources> hosts, level_t l,
                                          std::span<const certificate::refusal> listed) {
  certificate why;
  why.level = l;
  why.cells.resize(rooms.num_cells(l));
  for (std::uint32_t c = 0; c < why.cells.size(); ++c) why.cells[c].cell = c;
  for (const certificate::refusal& r : listed) why.cells[r.cell].counts = r.counts;
  for (std::size_t u = 0; u < units.size(); ++u) why.kinds.push_back(units[u].member);
  const std::vector<detail::weighed_cells> tried = detail::weigh_cells(rooms, units, hosts, l);
  const auto refuses = [](const detail::weighed_cells& w, const certificate::refusal& r) {
    return r.weighing == certificate::listed && w.most[r.cell] < w.what.needed;
  };
  while (true) {
    std::size_t best = 0;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      std::size_t n = 0;
      for (const certificate::refusal& r : why.cells)
        if (refuses(tried[i], r)) ++n;
      if (n <= refused) continue;
      refused = n;
      best = i;
    }
    if (refused == 0) break;
    const auto index = static_cast<std::uint32_t>(why.weighings.size());
    for (certificate::refusal& r : why.cells)
      if (refuses(tried[best], r)) r = {r.cell, index, tried[best].most[r.cell], {}};
    why.weighings.push_back(tried[best].what);
  }
  for (const certificate::refusal& r : why.cells)
    APIARY_VERIFY(r.weighing != certificate::listed || !r.counts.empty());
  return why;
}

APIARY_NAMESPACE_END
