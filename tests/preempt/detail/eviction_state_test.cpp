// apiary/tests/preempt/detail/eviction_state_test.cpp - free GPUs, against counting everything again.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/preempt/detail/eviction_states.h>
#include <apiary/preempt/victim_set.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Nodes, and gangs on them that may be evicted.
struct evictable_world {
  std::vector<gang_fit::node_class> others;
  std::vector<std::uint32_t> free;
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> allocations;
  std::vector<task_group> groups;

  // GPUs of a candidate on a node.
  [[nodiscard]] std::uint32_t gpus(std::size_t j, std::size_t node) const {
    std::uint32_t sum = 0;
    for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
      if (allocations[s].node == node) sum += allocations[s].gpus;
    return sum;
  }
  // Free GPUs of a node without the evicted candidates.
  [[nodiscard]] std::uint32_t free_without(const std::vector<bool>& evicted,
                                           std::size_t node) const {
    std::uint32_t sum = free[node];
    for (std::size_t j = 0; j < candidates.size(); ++j)
      if (evicted[j]) sum += gpus(j, node);
    return sum;
  }
  [[nodiscard]] eviction_state::histogram nodes_without(const std::vector<bool>& evicted) const {
    eviction_state::histogram nodes{};
    for (const gang_fit::node_class& c : others) nodes[c.free] += c.nodes;
    for (std::size_t n = 0; n < free.size(); ++n) ++nodes[free_without(evicted, n)];
    return nodes;
  }
};

evictable_world random_evictable_world(rng& random) {
  evictable_world w;
  for (std::uint32_t n = random.uniform(3); n > 0; --n)
    w.others.push_back({random.uniform(65), random.uniform(5)});
  std::vector<std::uint32_t> capacity(1 + random.uniform(6));
  for (std::uint32_t& c : capacity) {
    const std::uint32_t size = random.uniform(8) == 0 ? 64 : 8;
    w.free.push_back(random.uniform(size / 2 + 1));
    c = size - w.free.back();
  }
  for (std::uint32_t j = random.uniform(8); j > 0; --j) {
    eviction_candidate& c = w.candidates.emplace_back();
    c.cost = random.uniform(10'000'000);
    c.first = static_cast<std::uint32_t>(w.allocations.size());
    for (std::uint32_t n = 0; n < capacity.size(); ++n) {
      const std::uint32_t gpus = random.uniform(std::min(capacity[n], 5U) + 1);
      if (gpus == 0) continue;
      w.allocations.push_back({n, gpus});
      capacity[n] -= gpus;
    }
    c.last = static_cast<std::uint32_t>(w.allocations.size());
  }
  for (std::uint32_t m = random.uniform(5); m > 0; --m)
    w.groups.push_back({1 + random.uniform(4), 1 + random.uniform(9)});
  return w;
}

void check_eviction_prices(const eviction_state& state, const evictable_world& w) {
  std::vector<std::uint32_t> gpus_of(w.candidates.size());
  for (std::size_t j = 0; j < w.candidates.size(); ++j) {
    for (std::size_t n = 0; n < w.free.size(); ++n) gpus_of[j] += w.gpus(j, n);
    const std::uint32_t gpus = std::max(gpus_of[j], 1U);
    const auto& price = state.price(static_cast<std::uint32_t>(j));
    CHECK(price.cost == w.candidates[j].cost / gpus);
    CHECK(price.gang == eviction_state::one_gang / gpus);
  }
  REQUIRE(state.nodes().size() == w.free.size());
  for (std::uint32_t n = 0; n < w.free.size(); ++n) {
    const eviction_state::node_sums& at = state.nodes()[n];
    std::uint64_t cost = 0;
    std::uint64_t gpus_cost = 0;
    std::uint64_t gpus_gang = 0;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> there;
    for (std::size_t j = w.candidates.size(); j-- > 0;) {
      const std::uint32_t gpus = w.gpus(j, n);
      if (gpus == 0) continue;
      cost += w.candidates[j].cost;
      gpus_cost += w.candidates[j].cost / gpus_of[j] * gpus;
      gpus_gang += std::uint64_t{eviction_state::one_gang / gpus_of[j]} * gpus;
      there.emplace_back(static_cast<std::uint32_t>(j), gpus);
    }
    CHECK(at.cost == cost);
    CHECK(at.gpus_cost == gpus_cost);
    CHECK(at.gpus_gang == gpus_gang);
    CHECK(at.free == w.free[n]);
    CHECK(at.gpus == w.free_without(std::vector<bool>(w.candidates.size(), true), n));
    std::vector<std::pair<std::uint32_t, std::uint32_t>> visited;
    state.for_each_on(n,
                      [&](std::uint32_t j, std::uint32_t gpus) { visited.emplace_back(j, gpus); });
    CHECK(visited == there);
  }
}

void check_eviction_counts(const eviction_state& state, const evictable_world& w,
                           const std::vector<bool>& evicted) {
  for (std::uint32_t j = 0; j < evicted.size(); ++j) CHECK(state.evicted(j) == evicted[j]);
  for (std::uint32_t n = 0; n < w.free.size(); ++n)
    CHECK(state.free(n) == w.free_without(evicted, n));
  const eviction_state::histogram nodes = w.nodes_without(evicted);
  CHECK(state.by_free() == nodes);
  CHECK(state.all_evicted() == w.nodes_without(std::vector<bool>(evicted.size(), true)));
  std::vector<std::uint32_t> sizes;
  for (const task_group& m : w.groups)
    if (std::find(sizes.begin(), sizes.end(), m.gpus) == sizes.end()) sizes.push_back(m.gpus);
  REQUIRE(state.slots().size() == sizes.size());
  bool is_short = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::uint64_t needed = 0;
    for (const task_group& m : w.groups)
      for (std::uint32_t t = 0; t < m.tasks; ++t) needed += m.gpus / sizes[i];
    std::uint64_t present = 0;
    for (std::uint32_t f = 0; f < nodes.size(); ++f)
      for (std::uint32_t n = 0; n < nodes[f]; ++n) present += f / sizes[i];
    CHECK(state.slots()[i].size == sizes[i]);
    CHECK(state.slots()[i].needed == needed);
    CHECK(state.slots()[i].present == present);
    is_short = is_short || present < needed;
  }
  CHECK(state.is_short_of_slots() == is_short);
}

}  // namespace

TEST_CASE("eviction_state: counts and prices are those of everything counted again") {
  eviction_state state;  // the same one for all: begin() leaves nothing behind
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const evictable_world w = random_evictable_world(random);
    state.begin(w.others, w.free, w.candidates, w.allocations, w.groups);
    check_eviction_prices(state, w);
    std::vector<bool> evicted(w.candidates.size(), false);
    std::vector<std::uint32_t> tried;
    check_eviction_counts(state, w, evicted);
    for (int step = 0; step < 20 && !evicted.empty(); ++step) {
      const std::uint32_t j = random.uniform(static_cast<std::uint32_t>(evicted.size()));
      switch (random.uniform(5)) {
        case 0:
          state.reprieve_all();
          for (const std::uint32_t k : tried) evicted[k] = false;
          tried.clear();
          break;
        case 1:
          state.set_evicted(j, false);
          evicted[j] = false;
          break;
        default:
          state.evict(j);
          if (!evicted[j]) tried.push_back(j);
          evicted[j] = true;
      }
      CHECK(std::vector(state.tried().begin(), state.tried().end()) == tried);
      check_eviction_counts(state, w, evicted);
    }
  }
}

TEST_CASE(
    "eviction_state: candidates not evicted by evict() stay evicted when the others are "
    "reprieved") {
  const std::vector<std::uint32_t> free{0, 1};
  const std::vector<eviction_candidate> candidates{{10, 0, 1}, {20, 1, 2}};
  const std::vector<gpus_on_node> allocations{{0, 4}, {1, 4}};
  eviction_state state;
  state.begin({}, free, candidates, allocations, {});
  state.set_evicted(0, true);
  state.set_evicted(0, true);
  state.evict(0);
  state.evict(1);
  CHECK(std::vector(state.tried().begin(), state.tried().end()) == std::vector<std::uint32_t>{1});
  state.reprieve_all();
  CHECK(state.evicted(0));
  CHECK(!state.evicted(1));
  CHECK(state.free(0) == 4);
  CHECK(state.free(1) == 1);
  CHECK(!state.is_short_of_slots());
}

TEST_CASE("eviction_state: slots decide exactly if the task sizes divide one another") {
  eviction_state state;
  for (std::uint32_t a = 1; a <= 12; ++a) {
    for (std::uint32_t b = 1; b <= 12; ++b) {
      for (std::uint32_t c = 1; c <= 12; ++c) {
        const std::vector<task_group> groups{{1, a}, {2, b}, {1, c}};
        std::vector<std::uint32_t> sizes{a, b, c};
        std::sort(sizes.begin(), sizes.end());
        state.begin({}, {}, {}, {}, groups);
        CHECK(state.slots_decide() == (sizes[1] % sizes[0] == 0 && sizes[2] % sizes[1] == 0));
      }
    }
  }
  state.begin({}, {}, {}, {}, {});
  CHECK(state.slots_decide());
  CHECK(state.slots().empty());
}
