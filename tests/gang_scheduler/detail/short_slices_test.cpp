// apiary/tests/gang_scheduler/detail/short_slices_test.cpp - short last slices as groups of their own.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/gang_scheduler_core.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace short_slices_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;

// Where the slices of a level end, if the groups have these tasks one after the other.
std::vector<std::uint32_t> ends_of_slices(const std::vector<constrained_task_group>& groups,
                                          level_t level) {
  std::vector<std::uint32_t> ends;
  std::uint32_t before = 0;
  for (const constrained_task_group& g : groups) {
    for (const level_count& s : g.slices) {
      if (s.level != level) continue;
      for (std::uint32_t at = 0; at < g.tasks; at += s.tasks)
        ends.push_back(before + std::min(at + s.tasks, g.tasks));
    }
    before += g.tasks;
  }
  return ends;
}
const level_count& highest(const constrained_task_group& g) {
  return *std::max_element(
      g.slices.begin(), g.slices.end(),
      [](const level_count& a, const level_count& b) { return a.level < b.level; });
}
// A group keeps its short slice if it is bound to other groups or tasks, or if the tasks that remain
// behind its whole slices do not consist of whole slices of the lower levels.
bool stays(const topology_constraints& gang, std::uint32_t i) {
  const constrained_task_group& g = gang.groups[i];
  const bool leads = std::any_of(gang.groups.begin(), gang.groups.end(),
                                 [&](const constrained_task_group& m) { return m.leader == i; });
  if (g.slices.empty() || leads || g.leader != no_task_group || !g.spread.empty()) return true;
  const level_count top = highest(g);
  const std::uint32_t rest = g.tasks % top.tasks;
  return rest == 0 || std::any_of(g.slices.begin(), g.slices.end(), [&](const level_count& s) {
           return s.tasks != top.tasks && rest % s.tasks != 0;
         });
}

TEST_CASE("short_slices: 10 tasks in slices of 4 are 8 tasks in slices of 4, and 2 in one of 2") {
  const topology_constraints gang{.groups = {{.tasks = 10, .gpus = 8, .slices = {{1, 4}}}},
                                  .required = 2};
  CHECK(has_short_slice(gang));
  const topology_constraints split = with_whole_slices(gang);
  REQUIRE(split.groups.size() == 2);
  CHECK(split.required == 2);
  CHECK(split.groups[0].tasks == 8);
  CHECK(split.groups[0].slices == std::vector<level_count>{{1, 4}});
  CHECK(split.groups[1].tasks == 2);
  CHECK(split.groups[1].gpus == 8);
  CHECK(split.groups[1].slices == std::vector<level_count>{{1, 2}});
  CHECK(!has_short_slice(split));
  CHECK(!has_short_slice(topology_constraints{.groups = {{.tasks = 8, .slices = {{1, 4}}}}}));
  CHECK(!has_short_slice(topology_constraints{.groups = {{.tasks = 8}}}));
}

TEST_CASE("short_slices: 10 tasks in slices of 4 at two levels are 4, 4 and 2, too") {
  for (const bool lower_first : {true, false}) {
    topology_constraints gang{.groups = {{.tasks = 10, .gpus = 8, .slices = {{1, 4}, {2, 4}}}}};
    if (!lower_first) std::swap(gang.groups[0].slices[0], gang.groups[0].slices[1]);
    const topology_constraints split = with_whole_slices(gang);
    CHECK(split.fault(0, 3) == "");
    REQUIRE(split.groups.size() == 2);
    CHECK(split.groups[0].tasks == 8);
    CHECK(split.groups[0].slices == gang.groups[0].slices);
    CHECK(split.groups[1].tasks == 2);
    for (const level_count& s : split.groups[1].slices) CHECK(s.tasks == 2);
  }
}

TEST_CASE("short_slices: random gangs keep their tasks, their slices and their leaders") {
  std::size_t divided = 0;
  std::size_t kept = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(20'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    topology_constraints gang;
    for (std::uint32_t i = 1 + random.uniform(3); i > 0; --i) {
      constrained_task_group g;
      g.tasks = 1 + random.uniform(20);
      g.gpus = static_cast<std::uint32_t>(gang.groups.size()) + 1;  // tells the groups apart
      const std::uint32_t low = 1 + random.uniform(4);
      const std::uint32_t levels = random.uniform(3);
      if (levels > 0) g.slices.push_back({1, low});
      if (levels > 1) g.slices.push_back({2, low * (1 + random.uniform(3))});
      if (levels > 1 && random.uniform(2) == 0) std::swap(g.slices[0], g.slices[1]);
      if (random.uniform(6) == 0) g.spread.push_back({1, 3});
      if (!gang.groups.empty() && random.uniform(5) == 0) g.leader = 0;
      gang.groups.push_back(std::move(g));
    }
    const topology_constraints split = with_whole_slices(gang);
    const topology_constraints whole = with_whole_slices(gang, false);
    REQUIRE(whole.groups.size() == gang.groups.size());
    REQUIRE(std::is_sorted(split.groups.begin(), split.groups.end(),
                           [](const auto& a, const auto& b) { return a.gpus < b.gpus; }));
    for (std::uint32_t i = 0; i < gang.groups.size(); ++i) {
      CAPTURE(i);
      const constrained_task_group& g = gang.groups[i];
      std::vector<constrained_task_group> now;
      for (const constrained_task_group& m : split.groups)
        if (m.gpus == g.gpus) now.push_back(m);
      REQUIRE(now.size() == (stays(gang, i) ? 1 : 2));
      REQUIRE(whole.groups[i].tasks == now[0].tasks);
      std::uint32_t tasks = 0;
      for (const constrained_task_group& m : now) {
        tasks += m.tasks;
        REQUIRE(m.spread == g.spread);
        REQUIRE((m.leader == no_task_group) == (g.leader == no_task_group));
        if (g.leader != no_task_group)
          REQUIRE(split.groups[m.leader].gpus == gang.groups[g.leader].gpus);
      }
      REQUIRE(tasks == g.tasks);
      for (level_t l = 1; l <= 2; ++l) {
        REQUIRE(ends_of_slices(now, l) == ends_of_slices({g}, l));
      }
      if (now.size() == 1) {
        kept += has_short_slice({.groups = {g}}) ? 1U : 0U;
        continue;
      }
      ++divided;
      REQUIRE(!has_short_slice({.groups = {now[1]}}));
      REQUIRE(highest(now[1]).tasks == now[1].tasks);
    }
  }
  CHECK(divided > 0);
  CHECK(kept > 0);
}

}  // namespace
}  // namespace short_slices_tests
