// apiary/tests/gang/detail/bin_packing_search_test.cpp - the search, against every node tried for every task.
// SPDX-License-Identifier: MIT
#include "support/naive_gang.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/detail/bin_packing.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

using searched_sizes = std::vector<bin_packing_search::task_size>;

bin_packing_search::histogram histogram_of(const leaf_counts& free) {
  bin_packing_search::histogram nodes{};
  for (const std::uint32_t f : free) ++nodes[f];
  return nodes;
}

leaf_counts tasks_of_sizes(std::span<const bin_packing_search::task_size> sizes) {
  leaf_counts tasks;
  for (const auto& s : sizes) tasks.insert(tasks.end(), s.tasks, s.gpus);
  return tasks;
}

// The largest sum of sizes up to f, each taken as often as one likes.
std::uint32_t largest_sum(std::span<const bin_packing_search::task_size> sizes, std::uint32_t f) {
  std::vector<bool> sum(f + 1, false);
  sum[0] = true;
  std::uint32_t largest = 0;
  for (std::uint32_t n = 1; n <= f; ++n) {
    for (const auto& s : sizes)
      if (s.gpus <= n && sum[n - s.gpus]) sum[n] = true;
    if (sum[n]) largest = n;
  }
  return largest;
}

// Whether the steps that the search tells can be taken as it says, and the sizes left divide one
// another and fit what the nodes have then.
bool is_way(const bin_packing_search& search, const searched_sizes& sizes, leaf_counts free) {
  const std::span<const bin_packing_search::task_size> all(sizes);
  if (search.decided() > sizes.size()) return false;
  for (std::size_t i = 0; i < search.decided(); ++i) {
    std::uint32_t taken = 0;
    const auto take = [&](std::uint32_t usable, std::uint32_t n) {
      for (std::uint32_t& f : free) {
        if (n == 0 || search.usable(i, f) != usable) continue;
        if (f < sizes[i].gpus) return false;
        f -= sizes[i].gpus;
        --n;
        ++taken;
      }
      return n == 0;
    };
    for (std::uint32_t f = 0; f <= 64; ++f)
      if (search.usable(i, f) != largest_sum(all.subspan(i), f)) return false;
    if (!take(sizes[i].gpus, search.exact(i))) return false;
    for (std::uint32_t u = bin_packing_search::max_gpus + 1; u-- > 0;)
      if (!take(u, search.steps(i)[u])) return false;
    if (taken != sizes[i].tasks) return false;
  }
  const auto rest = all.subspan(search.decided());
  for (std::size_t i = 0; i + 1 < rest.size(); ++i)
    if (rest[i].gpus % rest[i + 1].gpus != 0) return false;
  // Sizes that divide one another: the largest first, each on the first node where it fits.
  for (const std::uint32_t task : tasks_of_sizes(rest)) {
    const auto holds = [&](std::uint32_t f) { return f >= task; };
    const auto at = std::find_if(free.begin(), free.end(), holds);
    if (at == free.end()) return false;
    *at -= task;
  }
  return true;
}

void check_search(bin_packing_search& search, const searched_sizes& sizes,
                  const leaf_counts& free) {
  CAPTURE(free);
  const leaf_counts tasks = tasks_of_sizes(sizes);
  CAPTURE(tasks);
  const bool fits = fits_by_sets(free, tasks);
  const bin_packing_search::histogram nodes = histogram_of(free);
  const fit_verdict found = search(sizes, nodes, 1'000'000);
  REQUIRE(found == (fits ? fit_verdict::fits : fit_verdict::does_not_fit));
  if (fits) REQUIRE(is_way(search, sizes, free));
  // Less budget changes nothing but the end; what it needed is enough.
  const std::uint64_t needed = search.steps();
  REQUIRE(search(sizes, nodes, needed) == found);
  if (needed == 0) return;
  REQUIRE(search(sizes, nodes, needed - 1) == fit_verdict::budget_ended);
  REQUIRE(search.steps() == needed - 1);
}

}  // namespace

TEST_CASE("bin_packing_search: every few nodes and every few tasks") {
  constexpr std::uint32_t largest = 7;
  bin_packing_search search;  // the same one for all: a search leaves nothing behind
  std::size_t round = 0;
  const std::size_t every = scale() >= 1 ? 1 : 7;
  for (std::uint32_t a = 1; a <= largest; ++a) {
    for (std::uint32_t b = 1; b < a; ++b) {
      for (std::uint32_t c = 0; c < b; ++c) {
        searched_sizes sizes{{a, 2}, {b, 1}};
        if (c > 0) sizes.push_back({c, 2});
        if ((a + b + c) % 2 == 0) std::swap(sizes[0].tasks, sizes[1].tasks);
        for (std::uint32_t f = 0; f <= 9; ++f)
          for (std::uint32_t g = f; g <= 9; ++g)
            for (std::uint32_t h = g; h <= 9; ++h)
              if (++round % every == 0) check_search(search, sizes, {f, g, h});
      }
    }
  }
}

TEST_CASE("bin_packing_search: random gangs on nodes of up to 64 leaves") {
  bin_packing_search search;
  std::size_t fit = 0;
  const std::size_t rounds = scaled(std::size_t{1500});
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = random.uniform(3) == 0 ? 64 : 12;
    std::vector<std::uint32_t> leaves;
    for (std::uint32_t n = 1 + random.uniform(5); n > 0; --n)
      leaves.push_back(1 + random.uniform(most));
    std::sort(leaves.begin(), leaves.end(), std::greater<>());
    leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
    searched_sizes sizes;
    std::uint32_t total = 0;
    std::uint32_t tasks = 0;
    for (const std::uint32_t l : leaves) {
      sizes.push_back({l, 1 + random.uniform(3)});
      if (tasks + sizes.back().tasks > 10) sizes.back().tasks = 1;
      tasks += sizes.back().tasks;
      total += l * sizes.back().tasks;
    }
    // About as many free leaves as are needed.
    leaf_counts free;
    for (std::uint32_t sum = 0; sum < total + random.uniform(most);) {
      free.push_back(random.uniform(most + 1));
      sum += std::max(free.back(), 1U);
    }
    check_search(search, sizes, free);
    fit += fits_by_sets(free, tasks_of_sizes(sizes)) ? 1U : 0U;
  }
  if (scale() < 1) return;
  CHECK(fit > rounds / 20);
  CHECK(fit < rounds - rounds / 20);
}

TEST_CASE("bin_packing_search: nodes that were filled to the last leaf can be filled so again") {
  bin_packing_search search;
  std::size_t found = 0;
  const std::size_t rounds = scaled(std::size_t{300});
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    searched_sizes sizes;
    for (std::uint32_t l = 19; l >= 4; --l)
      if (random.uniform(5) < 2) sizes.push_back({l, 0});
    if (sizes.empty()) continue;
    leaf_counts free(4 + random.uniform(14), 0);
    for (std::uint32_t& f : free) {
      while (true) {
        auto& size = sizes[random.uniform(static_cast<std::uint32_t>(sizes.size()))];
        if (f + size.gpus > 64) break;
        f += size.gpus;
        ++size.tasks;
      }
    }
    std::erase_if(sizes, [](const bin_packing_search::task_size& s) { return s.tasks == 0; });
    const fit_verdict verdict = search(sizes, histogram_of(free), 60'000);
    REQUIRE(verdict != fit_verdict::does_not_fit);
    if (verdict != fit_verdict::fits) continue;
    REQUIRE(is_way(search, sizes, free));
    ++found;
  }
  MESSAGE(found, " of ", rounds, " found");
  CHECK(found > 0);
}

TEST_CASE("bin_packing_search: a state is not taken for one that failed and has the same hash") {
  // 17 + 5, 17 + 6 and 7 + 7 + 4 + 4 fit. An earlier failure is remembered in the same entry as a
  // state on the way there.
  const searched_sizes sizes{{17, 2}, {7, 2}, {6, 1}, {5, 1}, {4, 2}};
  bin_packing_search search;
  check_search(search, sizes, {22, 22, 23});
}

TEST_CASE("bin_packing_search: no tasks fit anywhere, no nodes hold any") {
  bin_packing_search search;
  const bin_packing_search::histogram no_nodes{};
  CHECK(search({}, no_nodes, 0) == fit_verdict::fits);
  CHECK(search.decided() == 0);
  const searched_sizes one{{1, 1}};
  CHECK(search(one, no_nodes, 0) == fit_verdict::does_not_fit);
  CHECK(search(one, histogram_of({0, 0}), 0) == fit_verdict::does_not_fit);
  CHECK(search(one, histogram_of({0, 1}), 0) == fit_verdict::fits);
  CHECK(search.steps() == 0);
}

TEST_CASE("bin_packing_search: thousands of millions of nodes and tasks") {
  bin_packing_search search;
  bin_packing_search::histogram nodes{};
  nodes[8] = 2'000'000'000;
  const searched_sizes fit{{5, 2'000'000'000}, {3, 2'000'000'000}};
  CHECK(search(fit, nodes, 1000) == fit_verdict::fits);
  const searched_sizes one_more{{5, 2'000'000'000}, {3, 2'000'000'001}};
  CHECK(search(one_more, nodes, 1000) == fit_verdict::does_not_fit);
  // 3 * 1500000000 tasks go to the nodes of 10.
  nodes.fill(0);
  nodes[11] = 1;
  nodes[10] = 1'500'000'000;
  const searched_sizes threes{{3, 4'000'000'000}, {2, 1}};
  CHECK(search(threes, nodes, 1000) == fit_verdict::fits);
}
