// apiary/tests/preempt/victim_cost_test.cpp - costs of sets of gangs, against comparing the sets.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/preempt/victim_cost.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// Gangs of each class, the highest first, and then GPU-time: smaller is better.
using set_loss = std::pair<std::vector<std::uint32_t>, std::uint64_t>;
set_loss loss_of(const std::vector<victim_cost::loss>& gangs, std::size_t set) {
  std::map<std::uint32_t, std::uint32_t, std::greater<>> by_class;
  set_loss loss;
  for (std::size_t j = 0; j < gangs.size(); ++j) {
    by_class[gangs[j].priority] += static_cast<std::uint32_t>(set >> j & 1);
    if ((set >> j & 1) != 0) loss.second += gangs[j].gpu_time;
  }
  for (const auto& [priority, number] : by_class) loss.first.push_back(number);
  return loss;
}
std::uint64_t cost_of(const std::vector<victim_cost::loss>& gangs, const victim_cost& cost,
                      std::size_t set) {
  std::uint64_t sum = 0;
  for (std::size_t j = 0; j < gangs.size(); ++j)
    if ((set >> j & 1) != 0) sum += cost(gangs[j]);
  return sum;
}

}  // namespace

TEST_CASE("victim_cost: sets are in the order of classes, numbers and GPU-time") {
  for (std::uint64_t seed = 0; seed < scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<victim_cost::loss> gangs(1 + random.uniform(7));
    for (victim_cost::loss& g : gangs) g = {random.uniform(3) * 1'000'000'000, random.uniform(9)};
    const victim_cost cost(gangs);
    CHECK(cost.time_shift() == 0);
    const std::size_t sets = std::size_t{1} << gangs.size();
    for (std::size_t a = 0; a < sets; ++a) {
      const std::size_t b = random.uniform(static_cast<std::uint32_t>(sets));
      const set_loss one = loss_of(gangs, a);
      const set_loss other = loss_of(gangs, b);
      REQUIRE((cost_of(gangs, cost, a) < cost_of(gangs, cost, b)) == (one < other));
    }
    REQUIRE(cost_of(gangs, cost, sets - 1) < std::uint64_t{1} << 63);
    // The sizes of the classes give the same costs.
    std::map<std::uint32_t, std::uint64_t> numbers;
    std::uint64_t time = 0;
    for (const victim_cost::loss& g : gangs) {
      ++numbers[g.priority];
      time += g.gpu_time;
    }
    std::vector<victim_cost::class_size> classes;
    for (const auto& [priority, number] : numbers) classes.push_back({priority, number});
    const victim_cost by_class(classes, time);
    for (const victim_cost::loss& g : gangs) REQUIRE(by_class(g) == cost(g));
  }
  // A sum beyond the range is rounded.
  const victim_cost::class_size two[] = {{0, 3}, {1, 2}};
  const victim_cost rounded(two, ~std::uint64_t{0});
  CHECK(rounded.time_shift() > 0);
  CHECK(rounded({1, 0}) > 3 * rounded({0, 0}) + (~std::uint64_t{0} >> rounded.time_shift()));
}

TEST_CASE("victim_cost: what exceeds the range is left out, the least important first") {
  // Large GPU-times are rounded.
  std::vector<victim_cost::loss> gangs{{1, ~std::uint64_t{0}}, {0, ~std::uint64_t{0}}, {0, 1}};
  const victim_cost rounded(gangs);
  CHECK(rounded.time_shift() > 0);
  CHECK(rounded.num_classes() == 2);
  CHECK(rounded(gangs[0]) > rounded(gangs[1]) + rounded(gangs[2]));
  CHECK(rounded(gangs[1]) > rounded(gangs[2]));
  CHECK(cost_of(gangs, rounded, 7) < std::uint64_t{1} << 63);

  // As the header says: 31 million with 20,000 gangs in three classes.
  gangs.clear();
  for (std::uint32_t j = 0; j < 20'000; ++j) gangs.push_back({j % 3, j < 2 ? 15'500'000U : 0});
  CHECK(victim_cost(gangs).time_shift() == 0);
  gangs[0].gpu_time = 16'000'000;
  CHECK(victim_cost(gangs).time_shift() == 1);

  // Too many classes: the lowest count as one; a gang of a higher class costs more than all below.
  gangs.clear();
  for (std::uint32_t j = 0; j < 20'000; ++j) gangs.push_back({j % 100, j});
  const victim_cost merged(gangs);
  CHECK(merged.num_classes() < 100);
  CHECK(merged.num_classes() > 3);
  CHECK(merged({0, 5}) == merged({1, 5}));
  CHECK(merged({98, 0}) < merged({99, 0}));
  std::uint64_t all = 0;
  for (const victim_cost::loss& g : gangs)
    if (g.priority < 99) all += merged(g);
  CHECK(all < merged({99, 0}));
  for (const victim_cost::loss& g : gangs)
    if (g.priority == 99) all += merged(g);
  CHECK(all < std::uint64_t{1} << 63);
  CHECK(victim_cost({}).num_classes() == 0);
}

TEST_CASE("victim_cost: GPU-times beyond the range count for nothing") {
  std::vector<victim_cost::loss> gangs;
  for (std::uint32_t p = 0; p < 63; ++p) gangs.push_back({.priority = p, .gpu_time = p});
  gangs[5].gpu_time = std::uint64_t{1} << 63;
  const victim_cost cost(gangs);
  CHECK(cost.time_shift() == 64);
  CHECK(cost(gangs[5]) > cost(gangs[4]));
  CHECK(cost(gangs[6]) > cost(gangs[5]));
}
