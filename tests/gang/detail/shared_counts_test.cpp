// apiary/tests/gang/detail/shared_counts_test.cpp - tasks on a node with shared GPUs, counted by placing them.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/shared_capacity.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace counted_shares {
namespace {

std::uint32_t placed(const node_state& n, const colocated_groups::group& group, std::uint32_t left);

// The most tasks if one more has its whole GPUs and first fractions: tries every device for the next.
std::uint32_t placed_with(const node_state& n, const colocated_groups::group& group,
                          std::size_t share, std::uint32_t left) {
  if (share == group.fractions.size()) return 1 + placed(n, group, left - 1);
  std::uint32_t most = 0;
  for (std::uint32_t d = 0; d < n.gpus; ++d) {
    if (n.gpu_left[d] < group.fractions[share]) continue;
    node_state then = n;
    then.gpu_left[d] = static_cast<milli_gpu>(n.gpu_left[d] - group.fractions[share]);
    most = std::max(most, placed_with(then, group, share + 1, left));
  }
  return most;
}
std::uint32_t placed(const node_state& n, const colocated_groups::group& group,
                     std::uint32_t left) {
  if (left == 0 || !n.healthy || group.cpu_milli > n.left.cpu_milli ||
      group.memory_mib > n.left.memory_mib)
    return 0;
  if (group.gpus > 0 && (group.models >> n.model & 1) == 0) return 0;
  node_state then = n;
  then.left.cpu_milli -= static_cast<std::uint32_t>(group.cpu_milli);
  then.left.memory_mib -= static_cast<std::uint32_t>(group.memory_mib);
  std::size_t whole = group.gpus - group.fractions.size();
  for (std::uint32_t d = 0; d < n.gpus && whole > 0; ++d) {
    if (then.gpu_left[d] < whole_gpu) continue;
    then.gpu_left[d] = 0;  // one is as good as another
    --whole;
  }
  return whole > 0 ? 0 : placed_with(then, group, 0, left);
}

TEST_CASE("max_units: never less than can be placed; as many for whole GPUs, one share, or none") {
  std::size_t exact = 0;
  std::size_t above = 0;
  for (std::uint64_t seed = 0; seed < scaled(20'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const auto tenths = [&](std::uint32_t most) {
      return static_cast<milli_gpu>(100 * random.uniform(most + 1));
    };
    node_state n;
    n.gpus = static_cast<std::uint8_t>(random.uniform(4));
    n.healthy = random.uniform(8) > 0;
    n.model = static_cast<gpu_model>(random.uniform(2));
    n.left = {random.uniform(10), random.uniform(10)};
    for (std::uint32_t d = 0; d < n.gpus; ++d)
      n.gpu_left[d] = random.uniform(2) == 0 ? milli_gpu{whole_gpu} : tenths(10);
    topology_constraints gang;
    gang.groups = {{.tasks = 1 + random.uniform(3),
                    .gpus = random.uniform(3),
                    .host = {random.uniform(4), random.uniform(4)}}};
    if (random.uniform(2) == 0) gang.groups[0].gpu_milli = static_cast<milli_gpu>(100 + tenths(8));
    if (gang.groups[0].shared() > 0) gang.groups[0].gpus = 1;
    if (random.uniform(2) == 0) {
      const std::uint32_t tasks = gang.groups[0].tasks * random.uniform(3);
      gang.groups.push_back({.tasks = tasks, .gpus = 1, .leader = 0});
      if (random.uniform(3) > 0) gang.groups[1].gpu_milli = static_cast<milli_gpu>(100 + tenths(8));
    }
    if (random.uniform(3) == 0) gang.groups[0].models = 1;
    colocated_groups groups;
    groups.assign(gang, node, block);
    REQUIRE(groups.size() == 1);
    const std::uint32_t said = max_units(n, groups[0]);
    const std::uint32_t most = placed(n, groups[0], groups[0].tasks);
    REQUIRE(said >= most);
    REQUIRE(said <= groups[0].tasks);
    if (is_counted_exactly(groups[0])) {
      REQUIRE(said == most);
      exact += most > 0 ? 1U : 0U;
    } else {
      above += said > most ? 1U : 0U;
    }
  }
  CHECK(exact > 0);
  CHECK(above > 0);  // else more could be called exact
}

}  // namespace
}  // namespace counted_shares
