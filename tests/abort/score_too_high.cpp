// apiary/tests/abort/score_too_high.cpp - a score above the greatest that the concept allows.
// SPDX-License-Identifier: MIT
// EXPECT: score <= max_score does not hold
#include <apiary/policy/baseline_scores.h>
#include <apiary/policy/gradient_placer.h>

#include <cstdint>

using namespace apiary;

struct boastful : tightest_devices {
  std::uint32_t score(const node_table&, node_id, const share&) const { return max_score + 1; }
};

int main() {
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 1000}});
  gradient_placer<boastful> placer(nodes, boastful{});
  return placer.place(nodes, placer.prepare(nodes, share{.cpu_milli = 1})) ? 0 : 1;
}
