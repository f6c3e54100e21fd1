// apiary/tests/abort/score_too_high.cpp - a score above the greatest that the concept allows.
// SPDX-License-Identifier: MIT
// EXPECT: score <= max_score does not hold
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/detail/kind_scores.h>

#include <cstdint>

using namespace apiary;

struct boastful : tightest_gpus {
  std::uint32_t score(const node_table&, node_id, const task_request&) const {
    return max_score + 1;
  }
};

int main() {
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 1000}});
  detail::kind_scores<boastful> placer(nodes, boastful{});
  return placer.place(nodes, {.cpu_milli = 1}, nullptr) ? 0 : 1;
}
