// apiary/tests/hived/detail/node_index_test.cpp - nodes by class and rack against a plain array.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/node_index.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

using class_t = node_index::class_t;

std::vector<std::uint32_t> picked(const node_index& index, class_t c, std::uint32_t n) {
  std::vector<std::uint32_t> nodes;
  index.pick(c, n, [&](node_id i) { nodes.push_back(i.value); });
  return nodes;
}

std::vector<std::uint32_t> picked_tightly(const node_index& index, class_t c, std::uint32_t n) {
  std::vector<std::uint32_t> nodes;
  index.pick_tightly(c, n, [&](node_id i) { nodes.push_back(i.value); });
  return nodes;
}

// The nodes of class c in each group.
std::vector<std::vector<std::uint32_t>> by_group(const std::vector<class_t>& classes,
                                                 std::uint32_t group_size, class_t c) {
  std::vector<std::vector<std::uint32_t>> groups(classes.size() / group_size + 1);
  for (std::uint32_t i = 0; i < classes.size(); ++i)
    if (classes[i] == c) groups[i / group_size].push_back(i);
  return groups;
}

// Whole groups, the fullest first, while they are needed whole; then the smallest that is enough.
std::vector<std::uint32_t> picked_tightly(const std::vector<class_t>& classes,
                                          std::uint32_t group_size, class_t c, std::uint32_t n) {
  auto groups = by_group(classes, group_size, c);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<std::uint32_t> nodes;
  auto next = groups.begin();
  for (; n > 0 && n >= next->size(); ++next) {
    nodes.insert(nodes.end(), next->begin(), next->end());
    n -= static_cast<std::uint32_t>(next->size());
  }
  auto best = next;
  for (auto g = next; g != groups.end() && g->size() >= n; ++g)
    if (g->size() < best->size()) best = g;
  if (n > 0) nodes.insert(nodes.end(), best->begin(), best->begin() + n);
  return nodes;
}

// The same from an array of classes: counts by group are sorted, groups looked through.
std::vector<std::uint32_t> picked(const std::vector<class_t>& classes, std::uint32_t group_size,
                                  class_t c, std::uint32_t n) {
  auto groups = by_group(classes, group_size, c);
  if (n > 1) {
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }
  std::vector<std::uint32_t> nodes;
  for (const auto& group : groups) nodes.insert(nodes.end(), group.begin(), group.end());
  nodes.resize(n);
  return nodes;
}

void check_against_array(std::uint32_t size, class_t classes, std::uint32_t group_size,
                         std::uint64_t seed, int steps) {
  CAPTURE(size);
  CAPTURE(classes);
  CAPTURE(group_size);
  CAPTURE(seed);
  rng random(seed);
  node_index index(size, classes, group_size);
  std::vector<class_t> naive(size, node_index::none);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const std::uint32_t i = random.uniform(size);
    const std::uint32_t dice = random.uniform(classes + 1U);
    const class_t to = dice == classes ? node_index::none : static_cast<class_t>(dice);
    REQUIRE(index.class_of(node_id(i)) == naive[i]);
    REQUIRE(index.assign(node_id(i), to) == naive[i]);
    naive[i] = to;
    REQUIRE(index.group_of(node_id(i)) == i / group_size);
    const auto c = static_cast<class_t>(random.uniform(classes));
    const auto count = static_cast<std::uint32_t>(std::count(naive.begin(), naive.end(), c));
    REQUIRE(index.count(c) == count);
    REQUIRE(index.counts()[c] == count);
    const auto lowest = std::find(naive.begin(), naive.end(), c);
    if (count == 0) {
      REQUIRE_FALSE(index.first(c).valid());
    } else {
      REQUIRE(index.first(c).value == static_cast<std::uint32_t>(lowest - naive.begin()));
    }
    const std::uint32_t n = random.uniform(count + 1);
    REQUIRE(picked(index, c, n) == picked(naive, group_size, c, n));
    REQUIRE(picked_tightly(index, c, n) == picked_tightly(naive, group_size, c, n));
  }
  node_index rebuilt(size, classes, group_size);
  for (std::uint32_t i = size; i-- > 0;) rebuilt.assign(node_id(i), naive[i]);
  CHECK(rebuilt == index);
  rebuilt.assign(node_id(0), naive[0] == 0 ? node_index::none : class_t{0});
  CHECK_FALSE(rebuilt == index);
}

}  // namespace

TEST_CASE("nodes come from the fullest racks, one node is the lowest") {
  node_index racks(12, 2, 4);
  for (const std::uint32_t i : {1U, 2U, 4U, 5U, 7U, 8U, 9U, 10U}) racks.assign(node_id(i), 1);
  CHECK(picked(racks, 1, 1) == std::vector<std::uint32_t>{1});
  CHECK(picked(racks, 1, 2) == std::vector<std::uint32_t>{4, 5});
  CHECK(picked(racks, 1, 4) == std::vector<std::uint32_t>{4, 5, 7, 8});
  CHECK(picked(racks, 1, 0).empty());
  CHECK(picked_tightly(racks, 1, 1) == std::vector<std::uint32_t>{1});
  CHECK(picked_tightly(racks, 1, 4) == std::vector<std::uint32_t>{4, 5, 7, 1});
  CHECK(racks.first(1) == node_id(1));
  CHECK_FALSE(racks.first(0).valid());
  racks.assign(node_id(0), 1);
  racks.assign(node_id(3), 1);
  CHECK(picked(racks, 1, 2) == std::vector<std::uint32_t>{0, 1});
  CHECK(racks.assign(node_id(3), 0) == 1);
  CHECK(racks.count(1) == 9);
  CHECK(racks.count(0) == 1);
}

TEST_CASE("the index answers as an array does") {
  const auto steps = [](int n) { return apiary_test::scaled(n); };
  for (const std::uint32_t size : {1U, 2U, 63U, 64U, 65U, 200U, 1000U}) {
    for (const std::uint32_t group_size : {1U, 3U, 16U, 64U, 100U, 1500U})
      check_against_array(size, 3, group_size, size + group_size, steps(400));
  }
  check_against_array(500, 45, 16, 7, steps(2000));
  check_against_array(200, 2145, 8, 8, steps(500));
  check_against_array(4097, 2, 64, 9, steps(1000));
}

TEST_CASE("counts of racks are exact above 255 nodes") {
  check_against_array(3000, 1, 700, 1, apiary_test::scaled(3000));
  node_index racks(1024, 1, 512);
  for (std::uint32_t i = 0; i < 300; ++i) racks.assign(node_id(i), 0);
  for (std::uint32_t i = 512; i < 813; ++i) racks.assign(node_id(i), 0);
  CHECK(picked(racks, 0, 301).back() == 812);  // 301 there, 300 in the first
  CHECK(picked(racks, 0, 301).front() == 512);
}

// The fewest of these groups that hold n nodes.
std::uint32_t fewest_groups(const std::vector<std::uint32_t>& there, std::uint32_t n) {
  auto fewest = static_cast<std::uint32_t>(there.size()) + 1;
  for (std::uint32_t set = 0; set < 1U << there.size(); ++set) {
    std::uint32_t held = 0;
    std::uint32_t used = 0;
    for (std::uint32_t g = 0; g < there.size(); ++g) {
      held += (set >> g & 1) != 0 ? there[g] : 0;
      used += set >> g & 1;
    }
    if (held >= n) fewest = std::min(fewest, used);
  }
  return fewest;
}
std::size_t groups_of(std::vector<std::uint32_t> nodes, std::uint32_t group_size) {
  for (std::uint32_t& i : nodes) i /= group_size;
  std::sort(nodes.begin(), nodes.end());
  return static_cast<std::size_t>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
}

TEST_CASE("no choice of groups is smaller than that of pick") {
  rng random(5);
  for (int round = 0; round < apiary_test::scaled(500); ++round) {
    CAPTURE(round);
    const std::uint32_t group_size = 1 + random.uniform(5);
    const std::uint32_t groups = 1 + random.uniform(8);
    node_index index(groups * group_size, 2, group_size);
    std::vector<std::uint32_t> there(groups);     // of either class
    std::vector<std::uint32_t> of_first(groups);  // of class 0
    for (std::uint32_t g = 0; g < groups; ++g) {
      const auto c = static_cast<class_t>(random.uniform(2));
      for (std::uint32_t i = g * group_size; i < (g + 1) * group_size; ++i) {
        if (random.uniform(2) == 0) continue;
        index.assign(node_id(i), c);
        ++there[g];
        if (c == 0) ++of_first[g];
      }
    }
    for (std::uint32_t n = 0; n <= index.count(0); ++n)
      REQUIRE(groups_of(picked(index, 0, n), group_size) == fewest_groups(of_first, n));
    for (std::uint32_t n = 0; n <= index.count(0) + index.count(1); ++n) {
      std::vector<std::uint32_t> nodes;
      index.pick_either(0, 1, n, [&](node_id i) { nodes.push_back(i.value); });
      std::set<std::uint32_t> different(nodes.begin(), nodes.end());
      REQUIRE(different.size() == n);
      REQUIRE(groups_of(nodes, group_size) == fewest_groups(there, n));
      std::uint32_t others = 0;
      for (const std::uint32_t i : nodes) {
        REQUIRE(index.class_of(node_id(i)) <= 1);
        others += index.class_of(node_id(i));
      }
      if (fewest_groups(of_first, n) <= 1) REQUIRE(others == 0);
    }
  }
}

TEST_CASE("a group of the first class that is enough for the rest comes before a fuller one") {
  node_index index(12, 2, 4);
  for (const std::uint32_t n : {0U, 1U}) index.assign(node_id(n), 0);
  for (const std::uint32_t n : {4U, 5U, 6U}) index.assign(node_id(n), 1);
  for (const std::uint32_t n : {2U, 3U, 5U}) {
    std::vector<std::uint32_t> nodes;
    index.pick_either(0, 1, n, [&](node_id i) { nodes.push_back(i.value); });
    CAPTURE(n);
    CHECK(nodes.front() == (n == 2 ? 0 : 4));
    CHECK(nodes.size() == n);
  }
}

TEST_CASE("a hundred thousand nodes in 45 classes need two bits a node and class") {
  const std::size_t nodes = 125'000;
  const node_index index(nodes, 45, 16);
  const std::size_t bits = nodes * 45 * 2;
  const std::size_t counts = nodes / 16 * 45;
  CHECK(index.memory_bytes() <= (bits + bits / 60) / 8 + counts + 2 * nodes + 1000);
}
