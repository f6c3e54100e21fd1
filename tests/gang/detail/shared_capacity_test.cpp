// apiary/tests/gang/detail/shared_capacity_test.cpp - what nodes with shared GPUs hold, by trying every device.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
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
#include <optional>
#include <span>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// Differs for most ways to put shares on devices; in which order these stand does not matter.
std::int64_t cost_of_change(const node_state& before, const node_state& after) {
  std::int64_t cost = std::int64_t{before.left.cpu_milli} - after.left.cpu_milli;
  for (const milli_gpu left : after.gpu_left) cost += std::int64_t{left} * left / 1000;
  return cost;
}

// The least cost of this number of tasks of each group on a node, by trying every device with free
// capacity for each task.
class every_way {
 public:
  every_way(const node_state& node, const colocated_groups& groups)
      : before_(node), groups_(groups) {}

  std::optional<std::int64_t> operator()(std::vector<std::uint32_t> counts) {
    best_.reset();
    node_state node = before_;
    for (std::size_t u = 0; u < counts.size(); ++u) {
      const colocated_groups::group& group = groups_[u];
      if (!node.healthy || counts[u] > groups_.at(u, 0).most) return std::nullopt;
      if (counts[u] > 0 && group.gpus > 0 && !node.accessible(group.models)) return std::nullopt;
      const std::uint64_t cpu = counts[u] * group.cpu_milli;
      const std::uint64_t memory = counts[u] * group.memory_mib;
      if (cpu > node.left.cpu_milli || memory > node.left.memory_mib) return std::nullopt;
      node.left -= {static_cast<std::uint32_t>(cpu), static_cast<std::uint32_t>(memory)};
    }
    parts_.clear();
    for (std::size_t u = 0; u < counts.size(); ++u) {
      for (std::uint32_t i = 0; i < counts[u]; ++i) {
        parts_.insert(parts_.end(), groups_[u].gpus - groups_[u].fractions.size(), whole_gpu);
        parts_.insert(parts_.end(), groups_[u].fractions.begin(), groups_[u].fractions.end());
      }
    }
    put(node, 0);
    return best_;
  }

 private:
  void put(node_state& node, std::size_t i) {
    if (i == parts_.size()) {
      const std::int64_t cost = cost_of_change(before_, node);
      if (!best_ || cost < *best_) best_ = cost;
      return;
    }
    for (std::uint32_t d = 0; d < node.gpus; ++d) {
      if (node.gpu_left[d] < parts_[i]) continue;
      node.gpu_left[d] = static_cast<milli_gpu>(node.gpu_left[d] - parts_[i]);
      put(node, i + 1);
      node.gpu_left[d] = static_cast<milli_gpu>(node.gpu_left[d] + parts_[i]);
    }
  }

  const node_state& before_;
  const colocated_groups& groups_;
  std::vector<milli_gpu> parts_;
  std::optional<std::int64_t> best_;
};

node_table table_of_few(rng& random) {
  node_table nodes;
  for (std::uint32_t n = 1 + random.uniform(4); n > 0; --n) {
    const node_id id = nodes.add({.host = {4000, 4000},
                                  .gpus = random.uniform(4),
                                  .model = static_cast<gpu_model>(random.uniform(2))});
    node_state& node = nodes[id];
    node.healthy = random.uniform(8) != 0;
    node.left.cpu_milli = 1000 * random.uniform(5);
    for (std::uint32_t d = 0; d < node.gpus; ++d)
      node.gpu_left[d] = static_cast<milli_gpu>(250 * random.uniform(5));
  }
  return nodes;
}
topology_constraints gang_of_shares(rng& random) {
  topology_constraints gang;
  for (std::uint32_t m = 1 + random.uniform(3); m > 0; --m) {
    constrained_task_group group{.tasks = 1 + random.uniform(2), .gpus = random.uniform(3)};
    group.host.cpu_milli = 1000 * random.uniform(2);
    if (group.gpus == 1) group.gpu_milli = static_cast<milli_gpu>(150 + 150 * random.uniform(4));
    if (random.uniform(4) == 0) group.models = 2;
    if (!gang.groups.empty() && random.uniform(3) == 0) {
      group.leader = 0;
      group.tasks = gang.groups[0].tasks;
    }
    gang.groups.push_back(group);
  }
  return gang;
}
// The next vector of at most this number of tasks of each group; false after the last one.
bool count_on(std::vector<std::uint32_t>& counts, const colocated_groups& groups) {
  for (std::size_t u = 0; u < counts.size(); ++u) {
    if (counts[u]++ < groups[u].tasks) return true;
    counts[u] = 0;
  }
  return false;
}
// Checks that what the tasks take can be taken in this order, and has that cost.
void check_taken(const node_state& before, std::span<const shared_capacity::taken> all,
                 const colocated_groups& groups, std::span<const std::uint32_t> counts,
                 std::int64_t cost) {
  node_state node = before;
  for (const shared_capacity::taken& t : all) {
    REQUIRE(t.device < node.gpus);
    REQUIRE(node.gpu_left[t.device] >= t.milli);
    node.gpu_left[t.device] = static_cast<milli_gpu>(node.gpu_left[t.device] - t.milli);
  }
  std::size_t parts = 0;
  for (std::size_t u = 0; u < counts.size(); ++u) {
    parts += std::size_t{counts[u]} * groups[u].gpus;
    node.left.cpu_milli -= counts[u] * static_cast<std::uint32_t>(groups[u].cpu_milli);
  }
  REQUIRE(all.size() == parts);
  REQUIRE(cost_of_change(before, node) == cost);
}

TEST_CASE("shared_capacity: every vector that fits, at its least cost, and no other") {
  std::uint64_t fitting = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{4'000}); ++run) {
    CAPTURE(run);
    rng random(run);
    const node_table nodes = table_of_few(random);
    const topology_constraints gang = gang_of_shares(random);
    colocated_groups groups;
    groups.assign(gang, 0, 1);
    shared_capacity capacities;
    REQUIRE(capacities.assign(nodes, groups, 0, 1'000'000, cost_of_change));
    REQUIRE(capacities.classes().size() == nodes.size());
    for (const node_id n : nodes.ids()) {
      every_way naive(nodes[n], groups);
      const std::uint32_t of_class = capacities.classes()[n.value];
      for (std::vector<std::uint32_t> counts(groups.size(), 0); count_on(counts, groups);) {
        const std::optional<std::int64_t> cost = capacities(of_class, counts);
        REQUIRE(cost == naive(counts));
        ++(cost ? fitting : refused);
        if (cost)
          check_taken(nodes[n], capacities.devices(nodes, n, counts), groups, counts, *cost);
      }
    }
  }
  CHECK(fitting > apiary_test::scaled(std::uint64_t{1'000}));
  CHECK(refused > apiary_test::scaled(std::uint64_t{1'000}));
}

TEST_CASE("shared_capacity: nodes that have the same left are of one class") {
  node_table nodes;
  for (int i = 0; i < 4; ++i) nodes.add({.host = {1000, 1000}, .gpus = 2, .model = 1});
  nodes[node_id(0)].gpu_left[0] = 500;
  nodes[node_id(1)].gpu_left[1] = 500;  // the other device
  nodes[node_id(2)].gpu_left[0] = 500;
  nodes[node_id(2)].left.cpu_milli = 999;
  nodes[node_id(3)].gpu_left[0] = 500;
  nodes[node_id(3)].healthy = false;
  colocated_groups groups;
  groups.assign({.groups = {{.tasks = 1, .gpus = 1, .gpu_milli = 500}}}, 0, 1);
  shared_capacity capacities;
  REQUIRE(capacities.assign(nodes, groups, 0, 1'000, cost_of_change));
  CHECK(capacities.classes()[0] == capacities.classes()[1]);
  CHECK(capacities.classes()[0] != capacities.classes()[2]);
  CHECK(capacities.classes()[0] != capacities.classes()[3]);
  const std::vector<std::uint32_t> one = {1};
  CHECK(!capacities(capacities.classes()[3], one));
  // Each on the device of its own node that leaves the two alike: that is cheaper.
  for (const std::uint32_t n : {0U, 1U}) {
    const auto taken = capacities.devices(nodes, node_id(n), one);
    REQUIRE(taken.size() == 1);
    CHECK(nodes[node_id(n)].gpu_left[taken[0].device] == 1000);
  }
}

TEST_CASE("shared_capacity: says so when its budget ends") {
  node_table nodes;
  nodes.add({.host = {}, .gpus = 8});
  colocated_groups groups;
  groups.assign({.groups = {{.tasks = 8, .gpus = 1, .gpu_milli = 300}}}, 0, 1);
  shared_capacity capacities;
  REQUIRE(capacities.assign(nodes, groups, 0, 1'000'000, cost_of_change));
  const std::uint64_t steps = capacities.steps();
  CHECK(steps > 8);
  CHECK(capacities.assign(nodes, groups, 0, steps, cost_of_change));
  CHECK(!capacities.assign(nodes, groups, 0, steps - 1, cost_of_change));
  // Vectors of more than 64 bits have no numbers.
  topology_constraints large;
  for (std::uint32_t cpu = 1; cpu <= 4; ++cpu)
    large.groups.push_back({.tasks = 1'000'000, .host = {cpu, 0}});
  groups.assign(large, 0, 1);
  CHECK(!capacities.assign(nodes, groups, 0, ~std::uint64_t{0}, cost_of_change));
}

}  // namespace
