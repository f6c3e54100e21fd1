// apiary/benchmarks/alloc_bench.cpp - granting and taking back cells, beside what it must beat.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/journal.h>
#include <apiary/alloc/node_index.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <vector>

using namespace apiary;

namespace {

constexpr std::uint32_t rack_leaves = 128;  // 16 nodes of 2 sockets of 2 pairs of 2 devices

// The number of racks reaches the compiler only at run time.
uniform_tree cluster(std::int64_t leaves) {
  auto racks = static_cast<std::uint32_t>(leaves) / rack_leaves;
  benchmark::DoNotOptimize(racks);
  return uniform_tree({racks, 16, 2, 2, 2});
}

// Free lists in vectors that are searched linearly: the shape of HiveD's own implementation.
class linear_lists {
 public:
  explicit linear_lists(const uniform_tree& tree) : tree_(tree), free_(tree.num_levels()) {
    for (const cell_id c : tree.cells(tree.num_levels() - 1)) free_.back().push_back(c);
  }
  std::optional<cell_id> allocate(level_t level) {
    level_t from = level;
    while (from < free_.size() && free_[from].empty()) ++from;
    if (from == free_.size()) return std::nullopt;
    cell_id c = free_[from].front();
    free_[from].erase(free_[from].begin());
    for (; from > level; --from) {
      const id_range<cell_id> parts = tree_.children(c, from);
      free_[from - 1].assign(parts.begin(), parts.end());
      free_[from - 1].erase(free_[from - 1].begin());
      c = parts.first;
    }
    return c;
  }
  void release(cell_id c) {
    level_t l = tree_.level(c);
    for (cell_id above = tree_.parent(c, l); above.valid(); above = tree_.parent(c, l)) {
      const id_range<cell_id> buddies = tree_.children(above, l + 1);
      for (const cell_id b : buddies) {
        if (b != c && std::find(free_[l].begin(), free_[l].end(), b) == free_[l].end()) {
          free_[l].push_back(c);
          return;
        }
      }
      std::erase_if(free_[l], [&](cell_id f) { return buddies.contains(f); });
      c = above;
      ++l;
    }
    free_[l].push_back(c);
  }

 private:
  uniform_tree tree_;
  std::vector<std::vector<cell_id>> free_;
};

// The C library's allocator, 16 bytes a leaf.
class heap {
 public:
  explicit heap(const uniform_tree& tree) : tree_(tree) {}
  std::optional<void*> allocate(level_t level) {
    void* p = std::malloc(std::size_t{16} * tree_.leaves_per_cell(level));
    benchmark::DoNotOptimize(p);
    return p;
  }
  void release(void* p) { std::free(p); }

 private:
  uniform_tree tree_;
};

// Keeps four fifths of the leaves granted: an iteration takes back random live cells until the next
// cell, of a random level, is within the load, and grants it; in the long run one release a grant.
template <class Allocator, class Handle>
class steady_load {
 public:
  explicit steady_load(const uniform_tree& tree)
      : allocator(tree), tree_(tree), limit_(tree.num_leaves() / 5 * 4) {
    live_.reserve(tree.num_leaves());
    while (used_ + rack_leaves <= limit_ && failures < 1000) step();
    for (int i = 0; i < 200'000; ++i) step();
    releases = grants = failures = 0;
  }
  ~steady_load() {
    while (!live_.empty()) take_back(live_.size() - 1);
  }
  steady_load(const steady_load&) = delete;
  steady_load& operator=(const steady_load&) = delete;

  void step() {
    const level_t level = random_.uniform(tree_.num_levels());
    const std::uint32_t size = tree_.leaves_per_cell(level);
    while (used_ + size > limit_) {
      take_back(random_.uniform(static_cast<std::uint32_t>(live_.size())));
      ++releases;
    }
    const std::optional<Handle> granted = allocator.allocate(level);
    if (!granted) {
      ++failures;
      return;
    }
    live_.push_back({*granted, size});
    used_ += size;
    ++grants;
  }

  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] bool consistent() const {
    std::uint32_t sum = 0;
    for (const entry& e : live_) sum += e.size;
    return sum == used_ && grants > 0;
  }

  Allocator allocator;
  std::uint64_t grants = 0;
  std::uint64_t releases = 0;
  std::uint64_t failures = 0;

 private:
  struct entry {
    Handle handle;
    std::uint32_t size;
  };

  void take_back(std::size_t i) {
    allocator.release(live_[i].handle);
    used_ -= live_[i].size;
    live_[i] = live_.back();
    live_.pop_back();
  }

  uniform_tree tree_;
  std::vector<entry> live_;
  std::uint32_t used_ = 0;
  std::uint32_t limit_;
  rng random_{2020};
};

// The racks that are whole and free, and the leaves that are free.
bool leaves_add_up(const buddy_allocator<uniform_tree>& allocator) {
  std::uint64_t leaves = 0;
  for (level_t l = 0; l < allocator.tree().num_levels(); ++l)
    leaves += std::uint64_t{allocator.free_count(l)} * allocator.tree().leaves_per_cell(l);
  for (const cell_id c : id_range<cell_id>{cell_id(0), cell_id(allocator.tree().num_cells())})
    if (allocator.is_live(c)) leaves += allocator.tree().descendants(c, 0).size();
  return leaves == allocator.tree().num_leaves();
}

template <class Allocator, class Handle>
void allocate_release(benchmark::State& state) {
  const uniform_tree tree = cluster(state.range(0));
  steady_load<Allocator, Handle> load(tree);
  for (auto _ : state) load.step();
  if (!load.consistent()) state.SkipWithError("the leaves in use do not add up");
  if constexpr (std::is_same_v<Allocator, buddy_allocator<uniform_tree>>) {
    if (!leaves_add_up(load.allocator)) state.SkipWithError("leaves were lost");
  }
  state.SetComplexityN(state.range(0));
  state.SetItemsProcessed(static_cast<std::int64_t>(load.grants));
  state.counters["live"] = static_cast<double>(load.live());
  state.counters["refused"] =
      static_cast<double>(load.failures) / static_cast<double>(load.failures + load.grants);
}

void sizes(benchmark::internal::Benchmark* b) {
  b->RangeMultiplier(4)->Range(1024, 1'048'576)->Complexity();
}

// The guarded allocator, every cell promised that will be asked for.
class guarded {
 public:
  explicit guarded(const uniform_tree& tree) : cells_(tree) {}
  std::optional<cell_id> allocate(level_t level) {
    if (!cells_.reserve(level, 1)) return std::nullopt;
    return cells_.allocate(level);
  }
  void release(cell_id c) {
    cells_.release(c);
    cells_.cancel_reservation(cells_.tree().level(c), 1);
  }

 private:
  reserving_buddy_allocator cells_;
};

BENCHMARK(allocate_release<buddy_allocator<uniform_tree>, cell_id>)
    ->Name("pair/buddy")
    ->Apply(sizes);
BENCHMARK(allocate_release<heap, void*>)->Name("pair/malloc")->Apply(sizes);
BENCHMARK(allocate_release<linear_lists, cell_id>)->Name("pair/linear_lists")->Apply(sizes);

BENCHMARK(allocate_release<guarded, cell_id>)->Name("pair/guarded")->Apply(sizes);

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
