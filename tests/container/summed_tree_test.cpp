// apiary/tests/container/summed_tree_test.cpp - items in order, against a list that is scanned.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/summed_tree.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>

namespace {

using namespace apiary;

struct by_key {
  struct item {
    std::uint32_t key = 0;
    std::uint32_t value = 0;
  };
  using summary = std::uint32_t;  // the largest value
  static bool before(const item& a, const item& b) { return a.key < b.key; }
  static std::uint64_t number(const item& i) { return i.key; }
  static summary sum(const summary* left, const item& i, const summary* right) {
    return std::max({left == nullptr ? 0 : *left, i.value, right == nullptr ? 0 : *right});
  }
};

TEST_CASE("summed_tree: the first item after another with a value large enough is that of a scan") {
  rng random(5);
  summed_tree<by_key> tree;
  std::map<std::uint32_t, std::uint32_t> list;
  const int steps = apiary_test::scaled(20'000);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const by_key::item one{random.uniform(60), random.uniform(1000)};
    const bool there = list.contains(one.key);
    switch (random.uniform(3)) {
      case 0:
        if (!there) tree.insert(one);
        list.insert({one.key, one.value});
        break;
      case 1:
        if (there) tree.erase(one);
        list.erase(one.key);
        break;
      default:
        REQUIRE(tree.edit(one, [&](by_key::item& i) { i.value = one.value; }) == there);
        if (there) list[one.key] = one.value;
    }
    REQUIRE(tree.empty() == list.empty());
    const by_key::item passed{random.uniform(60), 0};
    const by_key::item* const found = tree.find(passed);
    REQUIRE((found != nullptr) == list.contains(passed.key));
    if (found != nullptr) REQUIRE(found->value == list[passed.key]);
    const std::uint32_t least = random.uniform(1000);
    const by_key::item* const next = tree.first_after(
        passed, [&](std::uint32_t most) { return most >= least; },
        [&](const by_key::item& i) { return i.value >= least; });
    auto expected = list.upper_bound(passed.key);
    while (expected != list.end() && expected->second < least) ++expected;
    REQUIRE((next != nullptr) == (expected != list.end()));
    if (next != nullptr) REQUIRE(next->key == expected->first);
  }
}

}  // namespace
