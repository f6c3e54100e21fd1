// apiary/tests/abort/disruption_groups.cpp - each candidate needs a group if there are disruption budgets.
// SPDX-License-Identifier: MIT
// EXPECT: groups.*does not hold
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/victim_set.h>

#include <cstdint>
#include <vector>

int main() {
  using namespace apiary;
  const std::vector<eviction_candidate> candidates{{1, 0, 0}, {1, 0, 0}};
  const std::vector<std::uint32_t> groups{0};
  const std::vector<disruption_budget> budgets{{.gangs = 1}};
  detail::disruption_tally tally;
  tally.begin({groups, budgets}, candidates, {});
  return tally.unlimited() ? 1 : 0;
}
