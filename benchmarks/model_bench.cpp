// apiary/benchmarks/model_bench.cpp - walks from leaves to roots, and marks of bad nodes.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;

namespace {

// The number of racks reaches the compiler only at run time.
std::vector<std::uint32_t> fan_outs(std::int64_t leaves) {
  std::vector<std::uint32_t> result{static_cast<std::uint32_t>(leaves) / 128, 16, 2, 2, 2};
  benchmark::DoNotOptimize(result.data());
  benchmark::ClobberMemory();
  return result;
}

// One multiplication by a reciprocal a step.
class reciprocal {
 public:
  explicit reciprocal(std::int64_t leaves) : tree(fan_outs(leaves)) {}
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const { return tree.parent(c, l); }
  uniform_tree tree;
};

// One load of parent[] a step.
class stored {
 public:
  explicit stored(std::int64_t leaves) : tree(table(fan_outs(leaves))) {}
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const { return tree.parent(c, l); }
  ragged_tree tree;

 private:
  static std::vector<std::vector<std::uint32_t>> table(const std::vector<std::uint32_t>& fan_outs) {
    std::vector<std::vector<std::uint32_t>> result;
    std::size_t width = 1;
    for (const std::uint32_t n : fan_outs) {
      result.emplace_back(width, n);
      width *= n;
    }
    return result;
  }
};

// One division by the machine a step.
class division {
 public:
  explicit division(std::int64_t leaves) : tree(fan_outs(leaves)) {
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      first_[l] = tree.cells(l).first.value;
      fan_out_[l] = tree.fan_out(l);
    }
    benchmark::DoNotOptimize(fan_out_);
  }
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const {
    if (l + 1 == tree.num_levels()) return cell_id();
    return cell_id(first_[l + 1] + (c.value - first_[l]) / fan_out_[l + 1]);
  }
  uniform_tree tree;

 private:
  std::array<std::uint32_t, uniform_tree::max_levels> first_{};
  std::array<std::uint32_t, uniform_tree::max_levels> fan_out_{};
};

// Counts a leaf in all cells above it, as every table of the library does.
template <class Parents>
void walk_to_root(benchmark::State& state) {
  const Parents parents(state.range(0));
  const auto& tree = parents.tree;
  std::vector<std::uint32_t> count(tree.num_cells(), 0);
  rng random(3);
  std::vector<cell_id> walks;
  for (int i = 0; i < 4096; ++i) walks.push_back(tree.at(0, random.uniform(tree.num_leaves())));
  std::uint32_t steps = 0;
  for (auto _ : state) {
    cell_id c = walks[steps++ % walks.size()];
    for (level_t l = 0; c.valid(); c = parents.parent(c, l++)) ++count[c.value];
  }
  std::uint32_t at_roots = 0;
  for (const cell_id root : tree.cells(tree.num_levels() - 1)) at_roots += count[root.value];
  if (at_roots != steps) state.SkipWithError("walks were lost");
}

void sizes(benchmark::internal::Benchmark* b) { b->RangeMultiplier(32)->Range(1024, 1'048'576); }

BENCHMARK(walk_to_root<reciprocal>)->Name("walk/uniform_reciprocal")->Apply(sizes);
BENCHMARK(walk_to_root<stored>)->Name("walk/ragged_stored_parent")->Apply(sizes);
BENCHMARK(walk_to_root<division>)->Name("walk/hardware_division")->Apply(sizes);

// A node of 8 leaves turns bad or healthy, and all cells know. The rival recounts the leaves of the
// cells above.
template <bool incremental>
void mark_node(benchmark::State& state) {
  const uniform_tree tree(fan_outs(state.range(0)));
  health<uniform_tree> good(tree);
  std::vector<char> bad(tree.num_cells(), 0);
  std::vector<std::uint32_t> bad_leaves(tree.num_cells(), 0);
  const level_t node = 3;
  rng random(5);
  std::uint32_t bad_nodes = 0;
  for (auto _ : state) {
    const cell_id c = tree.at(node, random.uniform(tree.cells(node).size()));
    if constexpr (incremental) {
      const bool was_good = good.healthy(c);
      was_good ? good.mark_bad(c) : good.mark_healthy(c);
      bad_nodes += was_good ? 1U : ~0U;
    } else {
      const bool was_good = bad_leaves[c.value] == 0;
      for (const cell_id leaf : tree.descendants(c, 0))
        bad[leaf.value] = static_cast<char>(was_good);
      level_t l = node;
      for (cell_id up = c; up.valid(); up = tree.parent(up, l++)) {
        bad_leaves[up.value] = 0;
        for (const cell_id leaf : tree.descendants(up, 0))
          bad_leaves[up.value] += bad[leaf.value] ? 1U : 0U;
      }
      bad_nodes += was_good ? 1U : ~0U;
    }
  }
  std::uint32_t counted = 0;
  for (const cell_id root : tree.cells(tree.num_levels() - 1))
    counted += incremental ? good.bad_leaves(root) : bad_leaves[root.value];
  if (counted != 8 * bad_nodes) state.SkipWithError("bad leaves were lost");
}

BENCHMARK(mark_node<true>)->Name("mark_node/incremental")->Apply(sizes);
BENCHMARK(mark_node<false>)->Name("mark_node/recount")->Apply(sizes);

}  // namespace
