// apiary/tests/hived/detail/node_choice_test.cpp - gangs on the GPUs of nodes: all of them, once, in few
// racks.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <support/naive_gang.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Nodes of eight leaves in two sockets of two pairs, four nodes a rack, indexed by how many leaves
// are free.
struct racked_nodes {
  static constexpr std::uint32_t size = 8;
  static constexpr std::uint32_t rack = 4;
  const std::vector<std::uint32_t> cell_sizes{1, 2, 4, 8};
  std::vector<std::uint64_t> free;
  node_index index;
  std::vector<indexed_class> classes;

  racked_nodes(std::vector<std::uint64_t> masks, bool fullest_first)
      : free(std::move(masks)), index(static_cast<std::uint32_t>(free.size()), size + 1, rack) {
    for (std::uint32_t n = 0; n < free.size(); ++n)
      index.assign(node_id(n), static_cast<node_index::class_t>(std::popcount(free[n])));
    for (std::uint32_t f = 1; f <= size; ++f)
      classes.push_back({static_cast<node_index::class_t>(f), f});
    if (!fullest_first) std::reverse(classes.begin(), classes.end());
  }
};

using gang_t = std::vector<task_group>;

// Places the gang if it fits; its leaves, of all tasks.
std::vector<cell_id> place(node_choice& placer, const racked_nodes& c, const gang_t& gang) {
  if (placer.fit(c.index, c.classes, gang).verdict != fit_verdict::fits) return {};
  placer.choose_nodes(c.index, rack_choice::fullest);
  std::vector<node_gpus> nodes;
  for (const std::uint32_t n : placer.nodes())
    nodes.push_back({c.free[n], c.free[n], cell_id(n * racked_nodes::size), c.cell_sizes});
  const std::span<const cell_id> leaves = placer.choose_gpus_of(nodes, gang);
  return {leaves.begin(), leaves.end()};
}

// The nodes of the tasks, after it has been checked that each is on one node, and that all leaves
// are free and given once.
std::vector<std::uint32_t> nodes_of_tasks(const racked_nodes& c, const gang_t& gang,
                                          const std::vector<cell_id>& leaves) {
  std::vector<std::uint32_t> nodes;
  std::set<cell_id> taken;
  std::size_t i = 0;
  for (const task_group& m : gang) {
    for (std::uint32_t t = 0; t < m.tasks; ++t) {
      REQUIRE(i + m.gpus <= leaves.size());
      nodes.push_back(leaves[i].value / racked_nodes::size);
      for (std::uint32_t k = 0; k < m.gpus; ++k, ++i) {
        REQUIRE(leaves[i].value / racked_nodes::size == nodes.back());
        REQUIRE((c.free[nodes.back()] >> (leaves[i].value % racked_nodes::size) & 1) != 0);
        REQUIRE(taken.insert(leaves[i]).second);
      }
    }
  }
  REQUIRE(i == leaves.size());
  return nodes;
}

}  // namespace

TEST_CASE("every yes is a placement, every no is one of all ways to pack") {
  rng random(17);
  node_choice placer;
  int yes = 0;
  const int rounds = apiary_test::scaled(3000);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::uint64_t> masks(1 + random.uniform(10));
    for (std::uint64_t& m : masks) m = random.uniform(3) == 0 ? 0xff : random.uniform(256);
    const racked_nodes c(masks, random.uniform(2) == 0);
    gang_t gang(1 + random.uniform(3));
    for (task_group& m : gang) m = {random.uniform(4), 1 + random.uniform(6)};
    std::vector<std::uint32_t> free;
    for (const std::uint64_t m : masks)
      free.push_back(static_cast<std::uint32_t>(std::popcount(m)));
    const apiary_test::leaf_counts tasks = apiary_test::tasks_of(gang);
    const bool fits = placer.fit(c.index, c.classes, gang).verdict == fit_verdict::fits;
    REQUIRE(fits == apiary_test::fits_by_sets(free, tasks));
    if (!fits) continue;
    ++yes;
    const std::vector<std::uint32_t> nodes = nodes_of_tasks(c, gang, place(placer, c, gang));
    REQUIRE(nodes.size() == tasks.size());
    const std::set<std::uint32_t> distinct(placer.nodes().begin(), placer.nodes().end());
    REQUIRE(distinct.size() == placer.nodes().size());
    REQUIRE(distinct == std::set<std::uint32_t>(nodes.begin(), nodes.end()));
  }
  CHECK(yes > rounds / 4);
  CHECK(yes < rounds);
}

TEST_CASE("tasks of whole nodes get as few racks as any choice of idle nodes") {
  rng random(23);
  node_choice placer;
  for (int round = 0; round < apiary_test::scaled(500); ++round) {
    std::vector<std::uint64_t> masks(std::size_t{4} * (1 + random.uniform(6)));
    for (std::uint64_t& m : masks) m = random.uniform(2) == 0 ? 0xff : 0;
    const racked_nodes c(masks, true);
    std::vector<std::uint32_t> in_rack(masks.size() / racked_nodes::rack, 0);
    for (std::size_t n = 0; n < masks.size(); ++n)
      if (masks[n] != 0) ++in_rack[n / racked_nodes::rack];
    const std::uint32_t idle = c.index.count(racked_nodes::size);
    if (idle == 0) continue;
    const std::uint32_t tasks = 1 + random.uniform(idle);
    const gang_t gang{{tasks, racked_nodes::size}};
    std::set<std::uint32_t> racks;
    for (const std::uint32_t n : nodes_of_tasks(c, gang, place(placer, c, gang)))
      racks.insert(n / racked_nodes::rack);
    std::sort(in_rack.rbegin(), in_rack.rend());
    std::uint32_t least = 0;
    for (std::uint32_t there = 0; there < tasks; there += in_rack[least++]) {
    }
    CHECK(racks.size() == least);
  }
}

TEST_CASE("classes in the order given, task groups in the order asked, leaves close together") {
  node_choice placer;
  const racked_nodes c({0xff, 0b1111'0110, 0xff, 0b0011'0000}, true);
  const gang_t gang{{2, 2}, {1, 4}};
  const std::vector<cell_id> leaves = place(placer, c, gang);
  REQUIRE(leaves.size() == 8);
  // The largest task first: node 3 has two leaves only, node 1 is next.
  CHECK(leaves[4].value == 8 + 4);
  CHECK(leaves[7].value == 8 + 7);
  CHECK(nodes_of_tasks(c, gang, leaves) == std::vector<std::uint32_t>{1, 3, 1});
  // Those without a preemption are preferred to those with.
  const gang_t one{{1, 2}};
  REQUIRE(placer.fit(c.index, c.classes, one).verdict == fit_verdict::fits);
  placer.choose_nodes(c.index, rack_choice::fullest);
  REQUIRE(placer.nodes().size() == 1);
  CHECK(placer.nodes()[0] == 3);
  const std::vector<node_gpus> nodes{{0b1111, 0b1100, cell_id(24), c.cell_sizes}};
  CHECK(placer.choose_gpus_of(nodes, one) ==
        detail::lean_vector<cell_id>{cell_id(26), cell_id(27)});
}

TEST_CASE("classes that are not given are not used") {
  node_choice placer;
  const racked_nodes c({0xff, 0x0f}, true);
  const std::vector<indexed_class> small{{4, 4}};
  const gang_fit::result too_large = placer.fit(c.index, small, gang_t{{1, 8}});
  CHECK(too_large.verdict == fit_verdict::does_not_fit);
  REQUIRE(too_large.shortage);
  CHECK(placer.fit(c.index, small, gang_t{{2, 2}}).verdict == fit_verdict::fits);
  placer.choose_nodes(c.index, rack_choice::fullest);
  CHECK(placer.nodes().size() == 1);
  CHECK(placer.nodes()[0] == 1);
}
