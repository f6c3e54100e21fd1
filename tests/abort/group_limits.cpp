// apiary/tests/abort/group_limits.cpp - each candidate has a group where groups are limited.
// SPDX-License-Identifier: MIT
// EXPECT: groups.*does not hold
#include <apiary/policy/eviction_state.h>
#include <apiary/policy/group_limits.h>

#include <cstdint>
#include <vector>

int main() {
  using namespace apiary;
  const std::vector<eviction_candidate> candidates{{1, 0, 0}, {1, 0, 0}};
  const std::vector<std::uint32_t> groups{0};
  const std::vector<victim_limit> most{{.gangs = 1}};
  group_tally tally;
  tally.begin({groups, most}, candidates, {});
  return tally.empty() ? 1 : 0;
}
