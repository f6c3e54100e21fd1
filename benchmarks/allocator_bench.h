// apiary/benchmarks/allocator_bench.h - compares allocators of cells: time, memory, fragmentation.
// SPDX-License-Identifier: MIT
#pragma once

#include "allocator_loads.h"
#include "allocator_plot.h"
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

// Grants nothing: what the measurement itself takes.
template <apiary::CellTree Tree>
class no_allocator {
 public:
  explicit no_allocator(const Tree&) {}
  std::optional<apiary::cell_id> allocate(apiary::level_t level) { return apiary::cell_id(level); }
  void release(apiary::cell_id) {}
};

// Objects instead of cells: 16 bytes for each leaf.
template <class Grant, class Release>
class object_allocator {
 public:
  object_allocator(const apiary::uniform_tree& tree, Grant grant, Release take_back)
      : leaves_(leaves_per_level(tree)), grant_(grant), release_(take_back) {}
  auto allocate(apiary::level_t level) {
    return std::optional(grant_(std::size_t{16} * leaves_[level]));
  }
  template <class Object>
  void release(Object object) {
    release_(object);
  }

 private:
  std::vector<std::uint32_t> leaves_;
  Grant grant_;
  Release release_;
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
    entries_.push_back(std::move(e));
  }
  // The same for a class for uniform trees only: My(tree).
  template <class My>
  void add(const std::string& name, std::uint32_t max_leaves = ~std::uint32_t{0}) {
    entries_.push_back(uniform_entry<My>(name, max_leaves));
  }
  // Two functions for objects, such as malloc and free: only their time is compared.
  // grant(bytes) returns the object that release(object) takes.
  template <class Grant, class Release>
  void add(const std::string& name, Grant grant, Release release) {
    using objects = object_allocator<Grant, Release>;
    entry e;
    e.name = name;
    e.start = [grant, release](const apiary::uniform_tree& tree, const cell_load& load) {
      return std::make_unique<run_of<objects>>(tree, load, grant, release);
    };
    entries_.push_back(std::move(e));
  }

  // Prints the quality of the choices; with --times also times and memory. --leaves N: the largest
  // cluster that is timed, 1,024 to 16,777,216. --picture FILE: also draws it (needs gnuplot).
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
      } else if (option == "--picture" && i + 1 < argc) {
        picture = argv[++i];
      } else {
        std::fprintf(stderr, "usage: %s [--times] [--leaves N] [--picture FILE.svg] [--quick]\n",
                     argv[0]);
        return 2;
      }
    }
    if (max_leaves_ < 1024 || max_leaves_ > 1U << 24) {
      std::fprintf(stderr, "--leaves %u: it must be 1,024 to 16,777,216\n", max_leaves_);
      return 2;
    }
    print_quality(quick_ ? 1000 : times ? 200'000 : 4000);
    if (!times && picture.empty()) return 0;
    entry nothing = uniform_entry<no_allocator<apiary::uniform_tree>>("(no allocator)", ~0U);
    nothing.judge_uniform = nullptr;
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
    std::function<cell_quality(const apiary::uniform_tree&, const cell_load&, std::uint32_t)>
        judge_uniform;
    std::function<cell_quality(const apiary::ragged_tree&, const cell_load&, std::uint32_t)>
        judge_ragged;
  };

  template <class Allocator>
  class run_of final : public timed_run {
   public:
    template <class... Args>
    run_of(const apiary::uniform_tree& tree, const cell_load& load, Args... args)
        : before_(heap_bytes()),
          allocator_(tree, args...),
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
    load_run<apiary::uniform_tree, Allocator> run_;
  };
  using runs = std::vector<std::unique_ptr<timed_run>>;

  template <class My>
  static entry uniform_entry(const std::string& name, std::uint32_t max_leaves) {
    entry e;
    e.name = name;
    e.max_leaves = max_leaves;
    e.start = [](const apiary::uniform_tree& tree, const cell_load& load) {
      return std::make_unique<run_of<My>>(tree, load);
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
      std::printf("%s; refused %% / whole racks %% / largest free cell in leaves\n%-20s",
                  names[static_cast<int>(shape)], "");
      for (const cell_load& load : cell_loads()) std::printf(" %22s", load.name.c_str());
      std::printf("\n");
      for (const entry& e : entries_) {
        if (shape == tree_shape::ragged ? !e.judge_ragged : !e.judge_uniform) continue;
        std::printf("%-20s", e.name.c_str());
        for (const cell_load& load : cell_loads()) {
          const cell_quality q = shape == tree_shape::ragged
                                     ? e.judge_ragged(ragged_cells(leaves), load, steps)
                                     : e.judge_uniform(uniform_cells(shape, leaves), load, steps);
          std::printf("   %5.2f / %4.1f / %5.1f", static_cast<double>(q.refused) / 1e4,
                      static_cast<double>(q.whole_racks) / 1e4,
                      static_cast<double>(q.largest) / 10);
        }
        std::printf("\n");
      }
      std::printf("\n");
    }
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
        all[i]->steps(quick_ ? 100 : 10'000);
        measured[i].push_back(nanoseconds(*all[i], quick_ ? 1000 : 40'000));
      }
    }
    std::vector<double> result;
    for (const std::vector<double>& m : measured)
      result.push_back(m.empty() ? 0 : quantile(m, 0.25));
    return result;
  }

  void print_table(const std::string& title, const std::vector<std::string>& columns,
                   const std::vector<std::vector<double>>& by_column) const {
    std::printf("%s\n%-20s", title.c_str(), "");
    for (const std::string& c : columns) std::printf(" %12s", c.c_str());
    std::printf("\n");
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      std::printf("%-20s", entries_[i].name.c_str());
      for (const std::vector<double>& column : by_column)
        column[i] > 0 ? std::printf(" %12.1f", column[i]) : std::printf(" %12s", "-");
      std::printf("\n");
    }
    std::printf("\n");
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
    }
    print_table("ns for one allocate and release, uniform levels, by leaves", columns, time);
    print_table("bytes for each leaf", columns, memory);
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
    std::vector<std::string> columns;
    std::vector<std::vector<double>> time;
    for (const tree_shape shape : {tree_shape::racks, tree_shape::twos, tree_shape::eights}) {
      for (const cell_load& load : cell_loads()) {
        constexpr const char* names[] = {"", " /2", " /8"};
        columns.push_back(load.name + names[static_cast<int>(shape)]);
        time.push_back(
            times(start_all(uniform_cells(shape, std::min(1U << 20, max_leaves_)), load)));
      }
    }
    print_table("ns for one allocate and release, " + timed_leaves() +
                    " leaves, by load; fan-outs 2 and 8: /2, /8",
                columns, time);
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
    print_table("ns for one allocate and release, each timed alone, " + timed_leaves() + " leaves",
                {"p50", "p99", "p99.9", "cold, p50"}, columns);
  }

  [[nodiscard]] std::string timed_leaves() const {
    return std::to_string(std::min(1U << 20, max_leaves_));
  }

  std::vector<entry> entries_;
  std::uint32_t max_leaves_ = 1 << 20;
  bool quick_ = false;
};

}  // namespace apiary_bench
