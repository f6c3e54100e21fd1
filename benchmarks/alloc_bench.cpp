// apiary/benchmarks/alloc_bench.cpp - cells, usage and nodes, beside what they must beat.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/journal.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

using namespace apiary;
using apiary::detail::node_index;

namespace {

constexpr std::uint32_t rack_leaves = 128;  // 16 nodes of 2 sockets of 2 pairs of 2 devices

// The number of racks reaches the compiler only at run time.
uniform_tree cluster(std::int64_t leaves) {
  auto racks = static_cast<std::uint32_t>(leaves) / rack_leaves;
  benchmark::DoNotOptimize(racks);
  return uniform_tree({racks, 16, 2, 2, 2});
}

void sizes(benchmark::internal::Benchmark* b) {
  b->RangeMultiplier(4)->Range(1024, 1'048'576)->Complexity();
}

// A busy cluster, every eighth node of it bad: a node is granted among the healthy ones, and taken
// back. The rival asks a predicate about every free cell.
template <bool by_bitset>
void allocate_healthy(benchmark::State& state) {
  const uniform_tree tree = cluster(state.range(0));
  const level_t node = 3;
  buddy_allocator<uniform_tree> cells(tree);
  health<uniform_tree> good(tree);
  rng random(9);
  // Only nodes of the last rack are free and healthy; its first one is taken.
  const cell_id last = tree.at(4, tree.cells(4).size() - 1);
  for (const cell_id c : tree.cells(node)) {
    if (tree.parent(c, node) == last) continue;
    if (random.uniform(8) == 0) {
      good.mark_bad(c);
    } else {
      cells.allocate_at(c);
    }
  }
  cells.allocate_at(tree.children(last, 4)[0]);
  const std::uint32_t free_before = cells.free_count(node);
  std::uint64_t granted = 0;
  std::uint64_t rounds = 0;
  for (auto _ : state) {
    std::optional<cell_id> c;
    if constexpr (by_bitset) {
      c = cells.allocate({.level = node, .usable = &good.usable()});
    } else {
      c = cells.allocate({.level = node}, [&](cell_id f) { return good.healthy(f) ? 0U : 1U; });
    }
    granted += c && good.healthy(*c) && tree.parent(*c, node) == last ? 1U : 0U;
    cells.release(*c);
    ++rounds;
  }
  if (granted != rounds || cells.free_count(node) != free_before)
    state.SkipWithError("a bad node was granted");
  state.SetComplexityN(state.range(0));
}

BENCHMARK(allocate_healthy<true>)->Name("healthy_node/bitsets")->Apply(sizes);
BENCHMARK(allocate_healthy<false>)->Name("healthy_node/predicate")->Apply(sizes);

// What if eight nodes were granted? Tried on the state and rolled back, or tried on a copy.
template <bool by_journal>
void what_if(benchmark::State& state) {
  const uniform_tree tree = cluster(state.range(0));
  buddy_allocator<uniform_tree> cells(tree);
  priority_usage<uniform_tree> use(tree, 4);
  rng random(11);
  for (std::uint32_t i = 0; i < tree.cells(3).size() / 2; ++i)
    cells.allocate_at(tree.at(3, random.uniform(tree.cells(3).size())));
  const buddy_allocator<uniform_tree> before = cells;
  const auto try_nodes = [&](auto&& grant, auto&& assign_leaf) {
    std::uint64_t sum = 0;
    for (int i = 0; i < 8; ++i) {
      const cell_id c = *grant();
      for (const cell_id leaf : tree.descendants(c, 0)) assign_leaf(leaf);
      sum += tree.index(c, 3);
    }
    return sum;
  };
  std::uint64_t sum = 0;
  std::uint64_t rounds = 0;
  journal log;
  for (auto _ : state) {
    if constexpr (by_journal) {
      transaction tx(log);
      sum += try_nodes([&] { return tx.allocate(cells, level_t{3}); },
                       [&](cell_id leaf) { tx.assign(use, leaf, 2); });
    } else {
      buddy_allocator<uniform_tree> copy = cells;
      priority_usage<uniform_tree> use_copy = use;
      sum += try_nodes([&] { return copy.allocate(3); },
                       [&](cell_id leaf) { use_copy.assign(leaf, 2); });
    }
    ++rounds;
  }
  transaction tx(log);
  const std::uint64_t once = try_nodes([&] { return tx.allocate(cells, level_t{3}); },
                                       [&](cell_id leaf) { tx.assign(use, leaf, 2); });
  tx.rollback();
  if (sum != rounds * once || !(cells == before)) state.SkipWithError("the state was changed");
  state.SetComplexityN(state.range(0));
}

BENCHMARK(what_if<true>)->Name("what_if/journal")->Apply(sizes);
BENCHMARK(what_if<false>)->Name("what_if/copy")->Apply(sizes);

// A leaf changes hands: counts of four classes on the way to the root. The rival is HiveD's shape,
// a map from priority to count in each cell.
class map_usage {
 public:
  explicit map_usage(const uniform_tree& tree) : tree_(tree), used_(tree.num_cells()) {}
  void assign(cell_id leaf, int from, int to) {
    level_t l = 0;
    for (cell_id c = leaf; c.valid(); c = tree_.parent(c, l++)) {
      std::map<int, std::uint32_t>& used = used_[c.value];
      if (from >= 0 && --used[from] == 0) used.erase(from);
      if (to >= 0) ++used[to];
    }
  }
  [[nodiscard]] std::uint32_t used(cell_id c, int k) { return used_[c.value][k]; }

 private:
  uniform_tree tree_;
  std::vector<std::map<int, std::uint32_t>> used_;
};

template <bool by_table>
void assign_leaf(benchmark::State& state) {
  const uniform_tree tree = cluster(state.range(0));
  using table = priority_usage<uniform_tree>;
  table counts(tree, 4);
  map_usage maps(tree);
  std::vector<int> owner(tree.num_leaves(), -1);
  rng random(13);
  for (auto _ : state) {
    const std::uint32_t i = random.uniform(tree.num_leaves());
    const int to = static_cast<int>(random.uniform(5)) - 1;
    if constexpr (by_table) {
      counts.assign(tree.at(0, i), to < 0 ? table::unused : static_cast<table::class_t>(to));
    } else {
      maps.assign(tree.at(0, i), owner[i], to);
    }
    owner[i] = to;
  }
  for (int k = 0; k < 4; ++k) {
    std::uint32_t used = 0;
    for (const cell_id root : tree.cells(4))
      used += by_table ? counts.used(root, static_cast<table::class_t>(k)) : maps.used(root, k);
    if (used != static_cast<std::uint32_t>(std::count(owner.begin(), owner.end(), k)))
      state.SkipWithError("leaves were lost");
  }
}

BENCHMARK(assign_leaf<true>)->Name("usage/table")->RangeMultiplier(32)->Range(1024, 1'048'576);
BENCHMARK(assign_leaf<false>)
    ->Name("usage/map_a_cell")
    ->RangeMultiplier(32)
    ->Range(1024, 1'048'576);

// Nodes of eight devices in racks of sixteen, by (free, used) devices: 45 classes.
constexpr std::uint32_t rack_nodes = 16;
constexpr node_index::class_t node_classes = 45;

// A set of nodes for each class; racks are counted when they are wanted.
class node_sets {
 public:
  node_sets(std::uint32_t nodes, std::uint32_t classes, std::uint32_t group_size)
      : group_size_(group_size),
        class_of_(nodes, node_index::none),
        nodes_(classes),
        in_group_(nodes / group_size + 1) {}
  void assign(node_id n, node_index::class_t to) {
    node_index::class_t& at = class_of_[n.value];
    if (at == to) return;
    if (at != node_index::none) nodes_[at].erase(n.value);
    at = to;
    nodes_[to].insert(n.value);
  }
  [[nodiscard]] std::uint32_t count(node_index::class_t c) const {
    return static_cast<std::uint32_t>(nodes_[c].size());
  }
  template <class Sink>
  void pick(node_index::class_t c, std::uint32_t n, Sink&& sink) {
    std::fill(in_group_.begin(), in_group_.end(), 0);
    for (const std::uint32_t i : nodes_[c]) ++in_group_[i / group_size_];
    while (n > 0) {
      const auto fullest = std::max_element(in_group_.begin(), in_group_.end());
      const auto group = static_cast<std::uint32_t>(fullest - in_group_.begin());
      for (auto i = nodes_[c].lower_bound(group * group_size_); *fullest > 0 && n > 0; ++i, --n) {
        sink(node_id(*i));
        --*fullest;
      }
      *fullest = 0;
    }
  }

 private:
  std::uint32_t group_size_;
  std::vector<node_index::class_t> class_of_;
  std::vector<std::set<std::uint32_t>> nodes_;
  std::vector<std::uint32_t> in_group_;
};

// Random classes, each node in one.
template <class Index>
Index busy_index(std::uint32_t nodes) {
  Index index(nodes, node_classes, rack_nodes);
  rng random(21);
  for (std::uint32_t i = 0; i < nodes; ++i)
    index.assign(node_id(i), static_cast<node_index::class_t>(random.uniform(node_classes)));
  return index;
}

// A node's free or used devices change.
template <class Index>
void assign_node(benchmark::State& state) {
  const auto nodes = static_cast<std::uint32_t>(state.range(0)) / 8;
  auto index = busy_index<Index>(nodes);
  rng random(22);
  for (auto _ : state) {
    const std::uint64_t dice = random();
    index.assign(node_id(static_cast<std::uint32_t>((dice & 0xffffffff) * nodes >> 32)),
                 static_cast<node_index::class_t>((dice >> 32) * node_classes >> 32));
  }
  std::uint32_t sum = 0;
  for (node_index::class_t c = 0; c < node_classes; ++c) sum += index.count(c);
  if (sum != nodes) state.SkipWithError("nodes were lost");
}

// Eight nodes of one class.
template <class Index>
void pick_nodes(benchmark::State& state) {
  const auto nodes = static_cast<std::uint32_t>(state.range(0)) / 8;
  auto index = busy_index<Index>(nodes);
  std::uint64_t sum = 0;
  std::uint64_t rounds = 0;
  node_index::class_t c = 0;
  const auto n = [&] { return std::min(8U, index.count(c)); };
  for (auto _ : state) {
    index.pick(c, n(), [&](node_id i) { sum += i.value + 1; });
    c = static_cast<node_index::class_t>(c + 1 < node_classes ? c + 1 : 0);
    ++rounds;
  }
  node_sets rival = busy_index<node_sets>(nodes);
  std::uint64_t all = 0;
  std::uint64_t some = 0;
  for (c = 0; c < node_classes; ++c) {
    rival.pick(c, n(), [&](node_id i) { all += i.value + 1; });
    if (c + 1U == rounds % node_classes) some = all;
  }
  if (sum != rounds / node_classes * all + some) state.SkipWithError("other nodes were picked");
}

void cluster_sizes(benchmark::internal::Benchmark* b) {
  b->RangeMultiplier(10)->Range(1000, 1'000'000);
}

BENCHMARK(assign_node<node_index>)->Name("nodes/assign/index")->Apply(cluster_sizes);
BENCHMARK(assign_node<node_sets>)->Name("nodes/assign/std_set")->Apply(cluster_sizes);
BENCHMARK(pick_nodes<node_index>)->Name("nodes/pick/index")->Apply(cluster_sizes);
BENCHMARK(pick_nodes<node_sets>)->Name("nodes/pick/std_set")->Apply(cluster_sizes);

}  // namespace
