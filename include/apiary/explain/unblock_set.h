// apiary/explain/unblock_set.h - the nodes to free, as unblock_search finds them, and as a sentence.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/topology/cell_names.h>

#include <cstdint>
#include <span>
#include <string>

APIARY_NAMESPACE_BEGIN

// The answer of unblock_search: nodes to free so that a gang fits.
struct unblock_set {
  // fits:         the gang fits with these nodes free; no nodes if it fits now.
  // does_not_fit: the gang does not fit even if all nodes are wholly free.
  // budget_ended: it is not known.
  fit_verdict verdict = fit_verdict::budget_ended;
  std::span<const std::uint32_t> nodes{};  // ascending; valid until the next call
  std::uint64_t gpus = 0;                  // GPUs of these nodes that are not free now
  level_t node_level = 0;                  // the level of the nodes
  level_t level = 0;                       // the level that the gang requires
  std::uint32_t cell = 0;                  // position of their cell in that level
  bool is_least = false;    // no other set has fewer GPUs that are not free; false if not known
  bool all_needed = true;   // the gang does not fit without any one of them; false if not known
  std::uint64_t steps = 0;  // steps of the budget that were used

  // A sentence for users: "the gang would fit if nodes n3 and n9 in rack r7 were free (12 more
  // GPUs)".
  [[nodiscard]] std::string text(const cell_names& names) const {
    if (verdict == fit_verdict::does_not_fit)
      return "the gang does not fit even if all nodes are free";
    if (verdict == fit_verdict::budget_ended) return "it is not known which nodes to free";
    if (nodes.empty()) return "the gang fits now";
    const std::string where = names.cell(level, cell);
    const bool is_whole = level == node_level || where.starts_with("the ");
    return "the gang would fit if " + names.cells(node_level, nodes) +
           (is_whole ? "" : " in " + where) + " were free (" +
           (gpus > 0 ? std::to_string(gpus) + (gpus == 1 ? " more GPU)" : " more GPUs)")
                     : "the GPUs are free, but CPU or memory is not)");
  }
};

APIARY_NAMESPACE_END
