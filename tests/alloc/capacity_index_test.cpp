// apiary/tests/alloc/capacity_index_test.cpp - counts by cell against counting node by node.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// Everything the index says, from `free` alone.
template <CellTree Tree>
void check(const capacity_index<Tree>& capacities, const std::vector<std::uint32_t>& free) {
  const Tree& tree = capacities.tree();
  const level_t node_level = capacities.node_level();
  const auto in_cell = [&](std::uint32_t n, level_t l, std::uint32_t c) {
    return l == tree.num_levels() ||
           tree.ancestor(tree.cells(node_level)[n], l) == tree.cells(l)[c];
  };
  REQUIRE(capacities.num_nodes() == free.size());
  for (level_t l = node_level + 1; l <= capacities.top(); ++l) {
    for (std::uint32_t c = 0; c < capacities.num_cells(l); ++c) {
      std::vector<std::uint32_t> nodes(capacities.max_free() + 1);
      for (std::uint32_t n = 0; n < free.size(); ++n) {
        REQUIRE(capacities.nodes(l, c).contains(cell_id(n)) == in_cell(n, l, c));
        if (in_cell(n, l, c)) ++nodes[free[n]];
      }
      for (std::uint32_t f = 0; f <= capacities.max_free(); ++f)
        REQUIRE(capacities.histogram(l, c)[f] == nodes[f]);
      for (std::uint32_t t = 1; t <= capacities.max_free(); ++t) {
        std::uint32_t pieces = 0;
        for (std::uint32_t f = 0; f <= capacities.max_free(); ++f) pieces += nodes[f] * (f / t);
        REQUIRE(capacities.slots(l, t)[c] == pieces);
      }
    }
  }
  for (std::uint32_t f = 0; f <= capacities.max_free(); ++f) {
    std::uint32_t first = summary_bitset::npos;
    for (auto n = static_cast<std::uint32_t>(free.size()); n-- > 0;) {
      if (free[n] == f) first = n;
      REQUIRE(capacities.first_node(f, n) == first);
    }
  }
}

template <CellTree Tree>
void play(const Tree& tree, level_t node_level, std::uint32_t most, std::uint64_t seed) {
  CAPTURE(seed);
  rng random(seed);
  capacity_index<Tree> capacities(tree, node_level, most);
  std::vector<std::uint32_t> free(capacities.num_nodes(), 0);
  journal log;
  check(capacities, free);
  for (int step = 0; step < 30; ++step) {
    const std::uint32_t n = random.uniform(capacities.num_nodes());
    const std::uint32_t to = random.uniform(most + 1);
    REQUIRE(capacities.set(n, to) == free[n]);
    free[n] = to;
    if (step % 7 == 6) {
      for (std::uint32_t& f : free) f = random.uniform(most + 1);
      capacities.assign(free);
    }
    {
      transaction tx(log);
      for (int i = 0; i < 5; ++i)
        tx.set(capacities, random.uniform(capacities.num_nodes()), random.uniform(most + 1));
    }
    check(capacities, free);
  }
}

}  // namespace

TEST_CASE("counts of cells are those of their nodes, and are taken back") {
  const int rounds = scaled(20);
  for (int round = 0; round < rounds; ++round) {
    const auto seed = static_cast<std::uint64_t>(round);
    play(uniform_tree{2, 3, 4, 8}, 1, 8, seed);
    play(uniform_tree{5, 4}, 1, 4, seed);
    play(uniform_tree{1, 2, 70, 2, 2}, 2, 4, seed);
    play(ragged_tree({{2}, {1, 3}, {4, 2, 2, 2}}), 1, 4, seed);
    play(ragged_tree({{2}, {1, 3}, {1, 1, 5, 2}, {1, 2, 3, 1, 1, 1, 1, 2, 3}}), 1, 64, seed);
  }
}
