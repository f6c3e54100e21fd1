// apiary/benchmarks/allocator_bench.h - compares allocators of cells: time, memory, fragmentation.
// SPDX-License-Identifier: MIT
#pragma once

#include "allocator_adapters.h"
#include "allocator_loads.h"
#include "allocator_plot.h"
#include "allocator_table.h"
#include "free_list_allocator.h"
#include "lazy_buddy_allocator.h"
#include <apiary/alloc/best_fit_allocator.h>
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace apiary_bench {

// Bytes on the heap of the C library; 0 where it does not say.
inline std::size_t heap_bytes() {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

// An allocator under one load, without its type.
class timed_run {
 public:
  virtual ~timed_run() = default;
  virtual void steps(std::uint32_t n) = 0;
  std::size_t bytes = 0;  // of the allocator when the cluster has its use; 0: not known
};

// The allocators of a comparison. `run` prints the tables.
class allocator_bench {
 public:
  // A class template: My<Tree>(tree) has allocate(level), which returns an optional<cell_id>, and
  // release(cell). `max_leaves` is the largest cluster that it is fast enough for.
  template <template <class> class My>
  void add(const std::string& name, std::uint32_t max_leaves = ~std::uint32_t{0}) {
    entry e = uniform_entry<My<apiary::uniform_tree>>(name, max_leaves);
    e.judge_ragged = &judge<apiary::ragged_tree, My<apiary::ragged_tree>>;
    e.start_ragged = [](const apiary::ragged_tree& tree, const cell_load& load) {
      return std::make_unique<run_of<apiary::ragged_tree, My<apiary::ragged_tree>>>(tree, load);
    };
    entries_.push_back(std::move(e));
  }
  // The same for a class for uniform trees only: My(tree).
  template <class My>
  void add(const std::string& name, std::uint32_t max_leaves = ~std::uint32_t{0}) {
    entries_.push_back(uniform_entry<My>(name, max_leaves));
  }
  // Two functions for objects, such as malloc and free: only their time is compared, below that of
  // the others, because they choose no cells. grant(bytes) returns the object that release(object)
  // takes.
  template <class Grant, class Release>
  void add(const std::string& name, Grant grant, Release release) {
    using objects = object_allocator<Grant, Release>;
    entry e;
    e.name = name;
    e.start = [grant, release](const apiary::uniform_tree& tree, const cell_load& load) {
      return std::make_unique<run_of<apiary::uniform_tree, objects>>(tree, load, grant, release);
    };
    entries_.push_back(std::move(e));
  }

  // Prints the quality of the choices; with --times also times and memory. --requests N: requests
  // for each figure of the quality. --leaves N: the largest cluster that is timed, 1,024 to
  // 16,777,216. --picture FILE: also draws it (needs gnuplot).
  // Returns the exit code.
  int run(int argc, char** argv) {
    bool times = false;
    std::string picture;
    for (int i = 1; i < argc; ++i) {
      const std::string_view option = argv[i];
      if (option == "--times") {
        times = true;
      } else if (option == "--quick") {
        quick_ = true;
      } else if (option == "--leaves" && i + 1 < argc) {
        max_leaves_ = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
      } else if (option == "--requests" && i + 1 < argc) {
        requests_ = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
      } else if (option == "--picture" && i + 1 < argc) {
        picture = argv[++i];
      } else {
        std::fprintf(stderr,
                     "usage: %s [--times] [--requests N] [--leaves N] [--picture FILE.svg]"
                     " [--quick]\n",
                     argv[0]);
        return 2;
      }
    }
    if (max_leaves_ < 1024 || max_leaves_ > 1U << 24) {
      std::fprintf(stderr, "--leaves %u: it must be 1,024 to 16,777,216\n", max_leaves_);
      return 2;
    }
#if !defined(NDEBUG) || (defined(__GNUC__) && !defined(__OPTIMIZE__))
    if (times || !picture.empty())
      std::puts("Compiled with asserts or without -O2: all times are too long.\n");
#endif
    print_quality(quick_ ? 1000 : requests_);
    if (!times && picture.empty()) return 0;
    entry nothing = uniform_entry<no_allocator<apiary::uniform_tree>>("(no allocator)", ~0U);
    nothing.judge_uniform = nullptr;
    nothing.start_ragged = [](const apiary::ragged_tree& tree, const cell_load& load) {
      return std::make_unique<run_of<apiary::ragged_tree, no_allocator<apiary::ragged_tree>>>(tree,
                                                                                              load);
    };
    entries_.push_back(std::move(nothing));
    const std::vector<curve> by_size = print_times_by_size();
    if (times) print_times_by_load();
    if (times) print_percentiles();
    entries_.pop_back();
    if (picture.empty()) return 0;
    return draw(by_size, refusals_by_use(), picture) ? 0 : 1;
  }

 private:
  struct entry {
    std::string name;
    std::uint32_t max_leaves = ~std::uint32_t{0};
    std::function<std::unique_ptr<timed_run>(const apiary::uniform_tree&, const cell_load&)> start;
    std::function<std::unique_ptr<timed_run>(const apiary::ragged_tree&, const cell_load&)>
        start_ragged;
    std::function<cell_quality(const apiary::uniform_tree&, const cell_load&, std::uint32_t)>
        judge_uniform;
    std::function<cell_quality(const apiary::ragged_tree&, const cell_load&, std::uint32_t)>
        judge_ragged;
  };

  template <apiary::CellTree Tree, class Allocator>
  class run_of final : public timed_run {
   public:
    template <class... Args>
    run_of(const Tree& tree, const cell_load& load, Args... args)
        : before_(heap_bytes()),
          allocator_{tree, args...},
          made_(heap_bytes()),
          run_(tree, load, allocator_) {
      const std::size_t start = heap_bytes();
      run_.fill();
      bytes = made_ - before_ + heap_bytes() - start;
    }
    ~run_of() override { run_.release_all(); }
    void steps(std::uint32_t n) override {
      for (; n > 0; --n) run_.step();
    }

   private:
    std::size_t before_;
    Allocator allocator_;
    std::size_t made_;
    load_run<Tree, Allocator> run_;
  };
  using runs = std::vector<std::unique_ptr<timed_run>>;

  template <class My>
  static entry uniform_entry(const std::string& name, std::uint32_t max_leaves) {
    entry e;
    e.name = name;
    e.max_leaves = max_leaves;
    e.start = [](const apiary::uniform_tree& tree, const cell_load& load) {
      return std::make_unique<run_of<apiary::uniform_tree, My>>(tree, load);
    };
    e.judge_uniform = &judge<apiary::uniform_tree, My>;
    return e;
  }

  void print_quality(std::uint32_t steps) const {
    const std::uint32_t leaves = 4096;
    for (const tree_shape shape :
         {tree_shape::racks, tree_shape::twos, tree_shape::eights, tree_shape::ragged}) {
      constexpr const char* names[] = {
          "racks of 128 leaves: 16 nodes of 8", "racks of 512 leaves, fan-out 2",
          "racks of 512 leaves, fan-out 8", "racks and nodes of different sizes"};
      table t;
      t.title =
          std::string(
              "Refused requests in % / whole racks in % / leaves of the largest free cell; ") +
          names[static_cast<int>(shape)] + "; " + std::to_string(steps) + " requests";
      for (const cell_load& load : cell_loads()) t.columns.push_back(load.name);
      for (const entry& e : entries_) {
        if (shape == tree_shape::ragged ? !e.judge_ragged : !e.judge_uniform) continue;
        t.rows.push_back({e.name});
        for (const cell_load& load : cell_loads()) {
          const cell_quality q = shape == tree_shape::ragged
                                     ? e.judge_ragged(ragged_cells(leaves), load, steps)
                                     : e.judge_uniform(uniform_cells(shape, leaves), load, steps);
          t.rows.back().push_back(decimal(static_cast<double>(q.refused) / 1e4, 2) + " / " +
                                  decimal(static_cast<double>(q.whole_racks) / 1e4, 1) + " / " +
                                  decimal(static_cast<double>(q.largest) / 10, 1));
        }
      }
      print(t);
    }
  }

  [[nodiscard]] runs start_ragged(const apiary::ragged_tree& tree, const cell_load& load) const {
    runs all;
    for (const entry& e : entries_)
      all.push_back(e.start_ragged && tree.num_leaves() <= e.max_leaves ? e.start_ragged(tree, load)
                                                                        : nullptr);
    return all;
  }
  [[nodiscard]] runs start_all(const apiary::uniform_tree& tree, const cell_load& load) const {
    runs all;
    for (const entry& e : entries_)
      all.push_back(e.start && tree.num_leaves() <= e.max_leaves ? e.start(tree, load) : nullptr);
    return all;
  }
  static double nanoseconds(timed_run& one, std::uint32_t steps) {
    const auto start = std::chrono::steady_clock::now();
    one.steps(steps);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    return took.count() / steps;
  }
  // The value below which a part of the measurements lies: what other programs do to the machine
  // makes the others larger.
  static double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(static_cast<double>(values.size() - 1) * part)];
  }
  // The times of a step of each allocator: lower quartiles of rounds in which they take turns, each
  // with a start that is not measured, because the others have replaced the contents of the caches.
  [[nodiscard]] std::vector<double> times(const runs& all) const {
    std::vector<std::vector<double>> measured(all.size());
    for (int round = 0; round < (quick_ ? 1 : 24); ++round) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i]) continue;
        // A slow allocator takes fewer steps, so that its round does not take long.
        const double slow = nanoseconds(*all[i], quick_ ? 100 : 1000);
        const auto steps =
            quick_ ? 1000 : static_cast<std::uint32_t>(std::min(40'000.0, 2e7 / slow));
        all[i]->steps(steps / 4);
        measured[i].push_back(nanoseconds(*all[i], std::max(1U, steps)));
      }
    }
    std::vector<double> result;
    for (const std::vector<double>& m : measured)
      result.push_back(m.empty() ? 0 : quantile(m, 0.25));
    return result;
  }

  // Prints numbers of each allocator, by column. With `compare`, two more rows: the fastest of those
  // that choose cells, and how far the first row is from it. Objects come last.
  void print_table(const std::string& title, const std::vector<std::string>& columns,
                   const std::vector<std::vector<double>>& by_column, int digits,
                   bool compare) const {
    table t{title, columns, {}};
    std::vector<std::string> names{"fastest of these"};
    std::vector<std::string> ratios{entries_[0].name + " / fastest"};
    for (const std::vector<double>& column : by_column) {
      std::size_t best = 0;
      for (std::size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].judge_uniform && column[i] > 0 && column[i] < column[best]) best = i;
      names.push_back(entries_[best].name);
      ratios.push_back(column[best] > 0 ? decimal(column[0] / column[best], 2) : "-");
    }
    const auto add = [&](bool cells) {
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        if ((entries_[i].judge_uniform != nullptr) != cells) continue;
        t.rows.push_back({entries_[i].name});
        for (const std::vector<double>& column : by_column)
          t.rows.back().push_back(column[i] > 0 ? decimal(column[i], digits) : "-");
      }
    };
    add(true);
    if (compare) t.rows.insert(t.rows.end(), {names, ratios});
    add(false);
    print(t);
  }
  std::vector<curve> print_times_by_size() const {
    std::vector<std::string> columns;
    std::vector<std::vector<double>> time;
    std::vector<std::vector<double>> memory;
    for (std::uint64_t leaves = 1024; leaves <= max_leaves_;
         leaves *= leaves < 1U << 20 ? 4U : 16U) {
      const runs all = start_all(
          uniform_cells(tree_shape::racks, static_cast<std::uint32_t>(leaves)), cell_loads()[0]);
      columns.push_back(std::to_string(leaves));
      time.push_back(times(all));
      memory.emplace_back();
      for (const auto& r : all)
        memory.back().push_back(r ? static_cast<double>(r->bytes) / static_cast<double>(leaves)
                                  : 0.0);
      for (std::size_t i = 0; i < all.size(); ++i)
        if (!entries_[i].judge_uniform) memory.back()[i] = 0;  // of objects: they are the memory
    }
    print_table("Nanoseconds for one allocate and release under the uniform load, by leaves",
                columns, time, 1, true);
    print_table("Bytes for each leaf under the uniform load, by leaves", columns, memory, 1, false);
    std::vector<curve> curves;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      curves.push_back({entries_[i].name, {}});
      for (std::size_t k = 0; k < columns.size(); ++k)
        if (time[k][i] > 0) curves.back().points.emplace_back(std::stod(columns[k]), time[k][i]);
    }
    return curves;
  }
  // The percentage of the requests that are refused, by the percentage of the leaves in use.
  [[nodiscard]] std::vector<curve> refusals_by_use() const {
    std::vector<curve> curves;
    for (const entry& e : entries_) {
      curves.push_back({e.name, {}});
      for (std::uint32_t use = 80; use <= 98 && e.judge_uniform; use += 2) {
        cell_load load = cell_loads()[3];
        load.use = use;
        const cell_quality q =
            e.judge_uniform(uniform_cells(tree_shape::racks, 4096), load, quick_ ? 1000 : 40'000);
        curves.back().points.emplace_back(use, static_cast<double>(q.refused) / 1e4);
      }
    }
    return curves;
  }
  void print_times_by_load() const {
    const std::uint32_t leaves = std::min(1U << 20, max_leaves_);
    for (const tree_shape shape :
         {tree_shape::racks, tree_shape::twos, tree_shape::eights, tree_shape::ragged}) {
      constexpr const char* names[] = {"racks of 128 leaves: 16 nodes of 8", "fan-out 2",
                                       "fan-out 8", "racks and nodes of different sizes"};
      std::vector<std::string> columns;
      std::vector<std::vector<double>> time;
      for (const cell_load& load : cell_loads()) {
        columns.push_back(load.name);
        time.push_back(times(shape == tree_shape::ragged
                                 ? start_ragged(ragged_cells(leaves), load)
                                 : start_all(uniform_cells(shape, leaves), load)));
      }
      print_table("Nanoseconds for one allocate and release, " + timed_leaves() +
                      " leaves, by load; " + names[static_cast<int>(shape)],
                  columns, time, 1, true);
    }
  }
  void print_percentiles() const {
    const runs all = start_all(uniform_cells(tree_shape::racks, std::min(1U << 20, max_leaves_)),
                               cell_loads()[0]);
    std::vector<std::vector<double>> columns(4, std::vector<double>(all.size()));
    std::vector<std::vector<double>> cold(all.size());
    std::vector<char> touched(std::size_t{64} << 20);
    for (int round = 0; round < (quick_ ? 1 : 50); ++round) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i]) continue;
        for (std::size_t at = 0; at < touched.size(); at += 64) ++touched[at];
        cold[i].push_back(nanoseconds(*all[i], 1));
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i]) continue;
      std::vector<double> each;
      for (int n = 0; n < (quick_ ? 1000 : 200'000); ++n) each.push_back(nanoseconds(*all[i], 1));
      columns[0][i] = quantile(each, 0.5);
      columns[1][i] = quantile(each, 0.99);
      columns[2][i] = quantile(each, 0.999);
      columns[3][i] = quantile(cold[i], 0.5);
    }
    print_table("Nanoseconds for one request with the releases that it needs, each timed alone, " +
                    timed_leaves() + " leaves",
                {"p50", "p99", "p99.9", "cold, p50"}, columns, 0, false);
  }

  [[nodiscard]] std::string timed_leaves() const {
    return std::to_string(std::min(1U << 20, max_leaves_));
  }

  std::vector<entry> entries_;
  std::uint32_t max_leaves_ = 1 << 20;
  std::uint32_t requests_ = 4000;
  bool quick_ = false;
};

// Compares My<Tree> with the allocators of the library. Returns the exit code of main.
template <template <class> class My>
int compare(const std::string& name, int argc, char** argv) {
  allocator_bench bench;
  bench.add<My>(name);
  bench.add<apiary::buddy_allocator>("buddy");
  bench.add<apiary::best_fit_allocator>("best fit");
  bench.add<lazy_buddy_allocator>("lazy buddy");
  bench.add<free_list_allocator>("free lists");
  return bench.run(argc, argv);
}

}  // namespace apiary_bench
