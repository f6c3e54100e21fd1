// apiary/tests/support/last_fit.h - a score that chooses its node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/score_tree.h>
#include <apiary/fgd/baseline_scores.h>

#include <cstdint>

namespace apiary_test {

// Chooses the last candidate.
struct last_fit : apiary::best_fit {
  [[nodiscard]] std::uint32_t choose(const apiary::score_tree& candidates,
                                     const apiary::summary_bitset* allowed) const {
    std::uint32_t last = apiary::score_tree::npos;
    for (std::uint32_t n = 0; n < candidates.size(); ++n)
      if (candidates[n] > 0 && (allowed == nullptr || allowed->test(n))) last = n;
    return last;
  }
};

}  // namespace apiary_test
