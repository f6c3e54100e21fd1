// apiary/benchmarks/core_bench.cpp - finding members of sets, beside what it must beat.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

using namespace apiary;

namespace {

constexpr std::uint32_t none = summary_bitset::npos;

// A sorted tree of nodes.
class ordered_set {
 public:
  explicit ordered_set(std::uint32_t) {}
  void set(std::uint32_t i) { members_.insert(i); }
  void reset(std::uint32_t i) { members_.erase(i); }
  [[nodiscard]] std::uint32_t find_next(std::uint32_t i) const {
    const auto found = members_.lower_bound(i);
    return found == members_.end() ? none : *found;
  }

 private:
  std::set<std::uint32_t> members_;
};

// A byte a number, searched one after the other.
class plain_scan {
 public:
  explicit plain_scan(std::uint32_t size) : member_(size, 0) {}
  void set(std::uint32_t i) { member_[i] = 1; }
  void reset(std::uint32_t i) { member_[i] = 0; }
  [[nodiscard]] std::uint32_t find_next(std::uint32_t i) const {
    while (i < member_.size() && member_[i] == 0) ++i;
    return i < member_.size() ? i : none;
  }

 private:
  std::vector<unsigned char> member_;
};

// One member of 1024: finds the next one from a random place, and moves it to another.
template <class Set>
void find_and_move(benchmark::State& state) {
  auto size = static_cast<std::uint32_t>(state.range(0));
  benchmark::DoNotOptimize(size);
  Set set(size);
  rng random(7);
  std::uint64_t members = 0;
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < size / 1024; ++i) {
    const std::uint32_t at = i * 1024 + random.uniform(1024);
    set.set(at);
    sum += at;
    ++members;
  }
  for (auto _ : state) {
    std::uint32_t at = set.find_next(random.uniform(size));
    if (at == none) at = set.find_next(0);
    set.reset(at);
    std::uint32_t to = random.uniform(size);
    while (set.find_next(to) == to) to = random.uniform(size);
    set.set(to);
    sum += to - std::uint64_t{at};
  }
  std::uint64_t sum_left = 0;
  std::uint64_t members_left = 0;
  for (std::uint32_t i = set.find_next(0); i != none; i = set.find_next(i + 1)) {
    sum_left += i;
    ++members_left;
  }
  if (sum_left != sum || members_left != members) state.SkipWithError("members were lost");
  state.SetComplexityN(state.range(0));
}

void sizes(benchmark::internal::Benchmark* b) {
  b->RangeMultiplier(8)->Range(4096, 2'097'152)->Complexity();
}

BENCHMARK(find_and_move<summary_bitset>)->Name("sparse_set/summary_bitset")->Apply(sizes);
BENCHMARK(find_and_move<ordered_set>)->Name("sparse_set/std_set")->Apply(sizes);
BENCHMARK(find_and_move<plain_scan>)->Name("sparse_set/plain_scan")->Apply(sizes);

// The least member of both of two sets that have a word in 16 in common and no member but one: a
// filter over free cells. The rival asks the filter for each member.
template <bool word_by_word>
void first_of_both(benchmark::State& state) {
  auto size = static_cast<std::uint32_t>(state.range(0));
  benchmark::DoNotOptimize(size);
  summary_bitset a(size);
  summary_bitset b(size);
  for (std::uint32_t i = 0; i < size; i += 64) {
    a.set_range(i, i + 32);
    if (i % 1024 == 0) b.set_range(i + 32, i + 64);
  }
  b.set(size - 64);
  std::uint64_t found = 0;
  std::uint64_t rounds = 0;
  for (auto _ : state) {
    std::uint32_t at = 0;
    if constexpr (word_by_word) {
      at = find_next_of_both(a, b, 0, a.size());
    } else {
      for (at = a.find_first(); at != none && !b.test(at);) at = a.find_next(at + 1);
    }
    found += at;
    ++rounds;
  }
  if (found != rounds * (size - 64)) state.SkipWithError("the common member was not found");
  state.SetComplexityN(state.range(0));
}

BENCHMARK(first_of_both<true>)->Name("filter/two_bitsets")->Apply(sizes);
BENCHMARK(first_of_both<false>)->Name("filter/predicate")->Apply(sizes);

}  // namespace
