// apiary/benchmarks/allocator_loads.h - six loads on an allocator of cells, and what they do to it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace apiary_bench {

// Requests of random sizes that arrive on a cluster and leave again.
struct cell_load {
  struct size {
    std::uint32_t leaves;
    std::uint32_t weight;
  };
  std::string name;
  std::uint32_t use = 80;     // percentage of the leaves that may be allocated
  std::vector<size> sizes;    // empty: each level is as likely as any other
  std::uint32_t burst = 1;    // cells of one level that arrive, and leave, together
  bool every_second = false;  // begins with a cluster in which every second leaf is allocated
};

// The sizes of Philly's jobs are those of its trace with 82,247 jobs; the sizes of openb are whole
// GPUs of its 7,064 tasks, where a fraction counts as one. With "powers" each size has the same
// number of GPUs.
inline std::vector<cell_load> cell_loads() {
  return {
      {"uniform", 80, {}},
      {"philly",
       90,
       {{1, 76627}, {2, 1818}, {4, 1870}, {8, 1643}, {16, 206}, {32, 74}, {64, 6}, {128, 3}}},
      {"openb", 90, {{1, 6989}, {2, 16}, {4, 15}, {8, 44}}},
      {"powers", 90, {{1, 128}, {2, 64}, {4, 32}, {8, 16}, {16, 8}, {32, 4}, {64, 2}, {128, 1}}},
      {"every second", 50, {{1, 1}}, 1, true},
      {"bursty", 95, {}, 32},
  };
}

// Cells of which shape: racks of 16 nodes of 2 sockets of 2 pairs, fan-outs 2 or 8 below racks of 512
// leaves, or racks and nodes that differ in size.
enum class tree_shape : std::uint8_t { racks, twos, eights, ragged };

inline apiary::uniform_tree uniform_cells(tree_shape shape, std::uint32_t leaves) {
  if (shape == tree_shape::twos)
    return apiary::uniform_tree({leaves / 512, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  if (shape == tree_shape::eights) return apiary::uniform_tree({leaves / 512, 8, 8, 8});
  return apiary::uniform_tree({leaves / 128, 16, 2, 2, 2});
}
// Racks of 12 to 20 nodes; a node has 2 to 4 pairs.
inline apiary::ragged_tree ragged_cells(std::uint32_t leaves) {
  apiary::rng random(8);
  std::vector<std::uint32_t> racks;
  std::vector<std::uint32_t> nodes;
  std::uint32_t made = 0;
  while (made < leaves) {
    racks.push_back(12 + random.uniform(9));
    for (std::uint32_t n = racks.back(); n > 0; --n) {
      nodes.push_back(2 + random.uniform(3));
      made += 2 * nodes.back();
    }
  }
  return apiary::ragged_tree({{static_cast<std::uint32_t>(racks.size())},
                              racks,
                              nodes,
                              std::vector<std::uint32_t>(made / 2, 2)});
}

// The most leaves of a cell of each level, among its first cells.
template <apiary::CellTree Tree>
std::vector<std::uint32_t> leaves_per_level(const Tree& tree) {
  std::vector<std::uint32_t> leaves(tree.num_levels());
  for (apiary::level_t l = 0; l < tree.num_levels(); ++l)
    for (std::uint32_t i = 0; i < std::min(tree.cells(l).size(), 4096U); ++i)
      leaves[l] = std::max(leaves[l], tree.descendants(tree.cells(l)[i], 0).size());
  return leaves;
}

// Applies a load to an allocator of the tree's cells (or of objects as large).
template <apiary::CellTree Tree, class Allocator>
class load_run {
 public:
  load_run(const Tree& tree, const cell_load& load, Allocator& allocator)
      : allocator_(allocator),
        load_(load),
        num_leaves_(tree.cells(0).size()),
        limit_(static_cast<std::uint32_t>(std::uint64_t{num_leaves_} * load.use / 100)),
        leaves_(leaves_per_level(tree)) {
    choose_levels();
    live_.reserve(num_leaves_);
  }

  // Brings the cluster to its use.
  void fill() {
    if (load_.every_second) {
      for (std::uint32_t i = 0; i < num_leaves_; ++i) request(0);
      for (std::size_t i = live_.size(); i-- > 0;)
        if (i % 2 == 1) take_back(i, 1);
      return;
    }
    const std::uint32_t largest = leaves_.back();
    for (std::uint32_t failed = 0; used_ + largest <= limit_ && failed < 1000;)
      failed += request(next_level()) ? 0U : 1U;
    for (std::size_t i = 0; i < std::max<std::size_t>(2000, live_.size()); ++i) step();
  }
  // One request, and before it as many releases as it needs: one on average.
  void step() {
    if (load_.every_second) {
      if (!live_.empty())  // an allocator may refuse everything
        take_back(random_.uniform(static_cast<std::uint32_t>(live_.size())), 1);
      request(0);
      return;
    }
    const apiary::level_t level = next_level();
    while (used_ + leaves_[level] > limit_) {
      const auto bursts = static_cast<std::uint32_t>((live_.size() - 1) / load_.burst + 1);
      take_back(std::size_t{random_.uniform(bursts)} * load_.burst, load_.burst);
    }
    request(level);
  }
  // A request that is taken back at once: for the load that consists of leaves alone.
  void probe() {
    const auto above = static_cast<std::uint32_t>(leaves_.size() - 1);
    if (request(1 + random_.uniform(above))) take_back(live_.size() - 1, 1);
  }
  void release_all() {
    while (!live_.empty()) take_back(live_.size() - 1, 1);
  }
  [[nodiscard]] bool probes() const { return load_.every_second && leaves_.size() > 1; }
  [[nodiscard]] std::size_t live() const { return live_.size(); }

 private:
  using handle = typename decltype(std::declval<Allocator&>().allocate(0))::value_type;
  struct entry {
    handle granted;
    std::uint32_t leaves;
  };

  // A table of levels in random order: cheaper than to draw a size each time.
  void choose_levels() {
    std::uint64_t total = 0;
    for (const cell_load::size& s : load_.sizes) total += s.weight;
    apiary::rng random(5);
    levels_.resize(num_levels_drawn);
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      if (load_.sizes.empty()) {
        levels_[i] = static_cast<std::uint8_t>(i % leaves_.size());
        continue;
      }
      std::uint64_t point = (2 * i + 1) * total / (2 * levels_.size());  // a quantile
      std::size_t s = 0;
      while (point >= load_.sizes[s].weight) point -= load_.sizes[s++].weight;
      while (levels_[i] + 1U < leaves_.size() && leaves_[levels_[i]] < load_.sizes[s].leaves)
        ++levels_[i];
    }
    random.shuffle(levels_);
  }
  apiary::level_t next_level() {
    if (arrived_++ % load_.burst == 0) level_ = levels_[random_() % num_levels_drawn];
    return level_;
  }
  bool request(apiary::level_t level) {
    const auto granted = allocator_.allocate(level);
    if (!granted) return false;
    std::uint32_t leaves = leaves_[level];
    if constexpr (requires { allocator_.leaves(*granted); }) leaves = allocator_.leaves(*granted);
    live_.push_back({*granted, leaves});
    used_ += leaves;
    return true;
  }
  // Releases the cells i, ..., i+n-1, or as many as there are; the last ones move there.
  void take_back(std::size_t i, std::size_t n) {
    for (std::size_t k = std::min(i + n, live_.size()); k-- > i;) {
      allocator_.release(live_[k].granted);
      used_ -= live_[k].leaves;
      live_[k] = live_.back();
      live_.pop_back();
    }
  }

  static constexpr std::size_t num_levels_drawn = 4096;
  Allocator& allocator_;
  cell_load load_;
  std::uint32_t num_leaves_;
  std::uint32_t limit_;
  std::vector<std::uint32_t> leaves_;  // of a cell of each level
  std::vector<std::uint8_t> levels_;   // of the requests that arrive
  std::vector<entry> live_;
  std::uint32_t used_ = 0;
  std::uint64_t arrived_ = 0;
  apiary::level_t level_ = 0;
  apiary::rng random_{2020};
};

// What an allocator's choices do to the cluster, in millionths and leaves: means over all requests.
struct cell_quality {
  std::uint64_t refused = 0;      // requests refused although enough leaves were free, 1e-6
  std::uint64_t largest = 0;      // leaves of the largest free cell, 1e-1
  std::uint64_t whole_racks = 0;  // cells of the top level without an allocated leaf, 1e-6 of all
};

// Checks and counts what an allocator grants. Ends the program if a cell is granted twice.
template <apiary::CellTree Tree, class Allocator>
class watched_allocator {
 public:
  watched_allocator(const Tree& tree, Allocator& allocator)
      : tree_(tree),
        allocator_(allocator),
        taken_(tree.num_cells()),
        empty_(tree.num_levels()),
        leaves_(leaves_per_level(tree)),
        free_leaves_(tree.cells(0).size()) {
    for (apiary::level_t l = 0; l < tree.num_levels(); ++l) empty_[l] = tree.cells(l).size();
  }
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    const std::optional<apiary::cell_id> c = allocator_.allocate(level);
    if (c && (c->value >= tree_.num_cells() || tree_.level(*c) != level || !is_empty(*c))) {
      std::fprintf(stderr, "a request for level %u got cell %u, which is of level %u or in use\n",
                   level, c->value, c->value < tree_.num_cells() ? tree_.level(*c) : 0);
      std::exit(1);
    }
    ++requests_;
    if (c) {
      mark(*c, level, 1);
    } else if (free_leaves_ >= leaves_[level]) {
      ++refused_;
    }
    apiary::level_t largest = tree_.num_levels();
    while (largest > 0 && empty_[largest - 1] == 0) --largest;
    largest_ += largest == 0 ? 0 : leaves_[largest - 1];
    whole_ += empty_.back();
    return c;
  }
  void release(apiary::cell_id c) {
    mark(c, tree_.level(c), -1);
    allocator_.release(c);
  }
  [[nodiscard]] std::uint32_t leaves(apiary::cell_id c) const {
    return tree_.descendants(c, 0).size();
  }
  // Forgets what was counted so far.
  void restart() { requests_ = refused_ = largest_ = whole_ = 0; }
  [[nodiscard]] cell_quality quality() const {
    const std::uint64_t n = std::max<std::uint64_t>(1, requests_);
    const std::uint64_t racks = tree_.cells(tree_.num_levels() - 1).size();
    return {refused_ * 1'000'000 / n, largest_ * 10 / n, whole_ * 1'000'000 / n / racks};
  }

 private:
  // Live cells inside c make taken_[c] positive; a live cell that contains c does so for itself.
  [[nodiscard]] bool is_empty(apiary::cell_id c) const {
    if (taken_[c.value] != 0) return false;
    for (apiary::level_t l = tree_.level(c); c.valid(); c = tree_.parent(c, l++))
      if (taken_[c.value] == whole) return false;
    return true;
  }
  // Adds (sign 1) or removes the live cell c.
  void mark(apiary::cell_id c, apiary::level_t level, int sign) {
    for (apiary::level_t l = 0; l <= level; ++l) {
      const std::uint32_t inside = tree_.descendants(c, l).size();
      empty_[l] += sign > 0 ? 0 - inside : inside;
      if (l == 0) free_leaves_ += sign > 0 ? 0 - inside : inside;
    }
    taken_[c.value] = sign > 0 ? whole : 0;
    for (apiary::cell_id above = tree_.parent(c, level); above.valid();
         above = tree_.parent(above, ++level)) {
      if (sign > 0 && taken_[above.value]++ == 0) --empty_[level + 1];
      if (sign < 0 && --taken_[above.value] == 0) ++empty_[level + 1];
    }
  }

  static constexpr std::uint32_t whole = ~std::uint32_t{0};
  Tree tree_;
  Allocator& allocator_;
  std::vector<std::uint32_t> taken_;   // live cells inside each cell; `whole` for a live cell
  std::vector<std::uint32_t> empty_;   // cells of each level without an allocated leaf
  std::vector<std::uint32_t> leaves_;  // of a cell of each level
  std::uint32_t free_leaves_;
  std::uint64_t requests_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t largest_ = 0;
  std::uint64_t whole_ = 0;
};

// Runs a load and says what the allocator did to the cluster.
template <apiary::CellTree Tree, class Allocator>
cell_quality judge(const Tree& tree, const cell_load& load, std::uint32_t steps) {
  Allocator allocator{tree};
  watched_allocator<Tree, Allocator> watched(tree, allocator);
  load_run<Tree, watched_allocator<Tree, Allocator>> run(tree, load, watched);
  run.fill();
  watched.restart();
  for (std::uint32_t i = 0; i < steps; ++i) {
    run.step();
    if (run.probes()) run.probe();
  }
  const cell_quality result = watched.quality();
  run.release_all();
  return result;
}

}  // namespace apiary_bench
