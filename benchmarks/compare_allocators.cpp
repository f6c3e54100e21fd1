// apiary/benchmarks/compare_allocators.cpp - the allocators of cells of the library beside others.
// SPDX-License-Identifier: MIT
#include "allocator_bench.h"
#include "allocator_rivals.h"
#include "free_list_allocator.h"
#include "lazy_buddy_allocator.h"
#include <apiary/alloc/best_fit_allocator.h>
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>

#ifdef APIARY_HAS_JEMALLOC
#include <dlfcn.h>
#endif
#ifdef APIARY_HAS_MIMALLOC
#include <mimalloc.h>
#endif

namespace {

// The allocator with reservations: each cell is reserved before it is allocated.
class reserving {
 public:
  explicit reserving(const apiary::uniform_tree& tree) : cells_(tree) {}
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    if (!cells_.reserve(level, 1)) return std::nullopt;
    return cells_.allocate(level);
  }
  void release(apiary::cell_id c) {
    cells_.release(c);
    cells_.cancel_reservation(cells_.tree().level(c), 1);
  }

 private:
  apiary::reserving_buddy_allocator cells_;
};

}  // namespace

int main(int argc, char** argv) {
  using namespace apiary_bench;
  allocator_bench bench;
  bench.add<apiary_bench::lazy_buddy_allocator>("lazy buddy");
  bench.add<apiary::buddy_allocator>("buddy");
  bench.add<apiary_bench::free_list_allocator>("free lists");
  bench.add<apiary::best_fit_allocator>("best fit");
  bench.add<reserving>("reserving buddy");
  bench.add<fullest_rack_scan>("fullest rack", 4096);
  bench.add<buddy_tree>("binary tree");
  bench.add<leaf_bitmap>("bitmap", 65536);
  bench.add<apiary_bench::free_sets>("red-black tree");
  bench.add(
      "malloc", [](std::size_t n) { return std::malloc(n); }, [](void* p) { std::free(p); });
#ifdef APIARY_HAS_JEMALLOC
  // Its malloc, which is faster than its mallocx; `malloc` itself is the C library's.
  if (void* const jemalloc = dlopen("libjemalloc.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
    auto* const grant = reinterpret_cast<void* (*)(std::size_t)>(dlsym(jemalloc, "malloc"));
    auto* const release = reinterpret_cast<void (*)(void*)>(dlsym(jemalloc, "free"));
    bench.add("jemalloc", grant, release);
  } else {
    std::puts("libjemalloc.so.2 was not loaded and is left out\n");
  }
#else
  std::puts("jemalloc was not found and is left out\n");
#endif
#ifdef APIARY_HAS_MIMALLOC
  bench.add(
      "mimalloc", [](std::size_t n) { return mi_malloc(n); }, [](void* p) { mi_free(p); });
#else
  std::puts("mimalloc was not found and is left out\n");
#endif
  return bench.run(argc, argv);
}
