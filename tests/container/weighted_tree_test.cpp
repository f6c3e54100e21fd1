// apiary/tests/container/weighted_tree_test.cpp - a treap with weights against a sorted list.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/weighted_tree.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

using namespace apiary;

namespace {

using item = weighted_tree::item;

// The same as a list, sorted again for each question.
struct naive_line {
  std::vector<item> items{};

  [[nodiscard]] std::vector<item> sorted() const {
    std::vector<item> s = items;
    std::sort(s.begin(), s.end(), [](const item& a, const item& b) {
      return a.key != b.key ? a.key < b.key : a.id < b.id;
    });
    return s;
  }
  [[nodiscard]] std::optional<item> first_at_most(std::int64_t limit) const {
    for (const item& i : sorted()) {
      if (i.weight <= limit) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<item> next(std::int64_t key, std::uint32_t id) const {
    for (const item& i : sorted()) {
      if (i.key > key || (i.key == key && i.id > id)) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<item> next_at_most(std::int64_t limit, std::int64_t key,
                                                 std::uint32_t id) const {
    for (const item& i : sorted()) {
      if (i.weight <= limit && (i.key > key || (i.key == key && i.id > id))) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<item> lightest(std::int64_t from, std::int64_t to) const {
    std::optional<item> best;
    for (const item& i : items) {
      if (i.key < from || i.key > to) continue;
      if (!best || i.weight < best->weight || (i.weight == best->weight && i.id < best->id))
        best = i;
    }
    return best;
  }
  [[nodiscard]] std::optional<item> previous(std::int64_t key, std::uint32_t id) const {
    std::optional<item> last;
    for (const item& i : sorted()) {
      if (i.key < key || (i.key == key && i.id < id)) last = i;
    }
    return last;
  }
  [[nodiscard]] std::int64_t sum_to(std::int64_t key) const {
    std::int64_t sum = 0;
    for (const item& i : items) sum += i.key <= key ? i.weight : 0;
    return sum;
  }
  [[nodiscard]] std::int64_t sum_to(std::int64_t key, std::uint32_t id) const {
    std::int64_t sum = 0;
    for (const item& i : items) sum += i.key < key || (i.key == key && i.id <= id) ? i.weight : 0;
    return sum;
  }
  [[nodiscard]] std::optional<weighted_tree::reached> reach(std::int64_t sum) const {
    std::int64_t passed = 0;
    for (const item& i : sorted()) {
      passed += i.weight;
      if (passed >= sum) return weighted_tree::reached{i, passed};
    }
    return std::nullopt;
  }
};

}  // namespace

TEST_CASE("weighted_tree: an empty one finds nothing") {
  const weighted_tree tree;
  CHECK(tree.empty());
  CHECK(tree.sum() == 0);
  CHECK(!tree.first());
  CHECK(!tree.first_at_most(5));
  CHECK(!tree.next(0, 0));
  CHECK(!tree.previous(9, 9));
  CHECK(!tree.reach(0));
  CHECK(!tree.lightest(0, 9));
}

TEST_CASE("weighted_tree: items in order, equal keys by id") {
  weighted_tree tree;
  tree.insert({7, 2, 10});
  tree.insert({3, 9, 40});
  tree.insert({7, 1, 20});
  CHECK(tree.first() == item{3, 9, 40});
  CHECK(tree.next(3, 9) == item{7, 1, 20});
  CHECK(tree.next(7, 1) == item{7, 2, 10});
  CHECK(!tree.next(7, 2));
  CHECK(tree.previous(7, 2) == item{7, 1, 20});
  CHECK(!tree.previous(3, 9));
  CHECK(tree.first_at_most(20) == item{7, 1, 20});
  CHECK(tree.first_at_most(19) == item{7, 2, 10});
  CHECK(tree.reach(41)->at == item{7, 1, 20});
  CHECK(tree.reach(41)->sum == 60);
  CHECK(!tree.reach(71));
  CHECK(tree.lightest(3, 7) == item{7, 2, 10});
  CHECK(tree.lightest(0, 6) == item{3, 9, 40});
  CHECK(!tree.lightest(4, 6));
  CHECK(!tree.lightest(7, 3));
}

TEST_CASE("weighted_tree: sums stop at the largest number") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  weighted_tree tree;
  tree.insert({1, 1, 5});
  tree.insert({2, 2, most});
  tree.insert({3, 3, most});
  CHECK(tree.sum() == most);
  CHECK(tree.sum_to(1) == 5);
  CHECK(tree.sum_to(9) == most);
  CHECK(tree.reach(most)->at == item{2, 2, most});
}

TEST_CASE("weighted_tree: random changes as in a sorted list") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    weighted_tree tree;
    naive_line line;
    const std::uint32_t keys = 1 + random.uniform(20);
    for (std::uint32_t step = 0; step < 400; ++step) {
      if (line.items.empty() || random.uniform(5) < 3) {
        const item added{random.uniform(keys), step, random.uniform(8)};
        tree.insert(added);
        line.items.push_back(added);
      } else {
        const std::size_t gone = random.uniform(static_cast<std::uint32_t>(line.items.size()));
        tree.erase(line.items[gone].key, line.items[gone].id);
        line.items.erase(line.items.begin() + static_cast<std::ptrdiff_t>(gone));
      }
      const std::int64_t limit = random.uniform(8);
      const std::int64_t key = random.uniform(keys);
      const std::uint32_t id = random.uniform(step + 1);
      const std::int64_t sum = random.uniform(800);
      REQUIRE(tree.size() == line.items.size());
      REQUIRE(tree.first() == line.first_at_most(8));
      REQUIRE(tree.first_at_most(limit) == line.first_at_most(limit));
      REQUIRE(tree.next(key, id) == line.next(key, id));
      REQUIRE(tree.next_at_most(limit, key, id) == line.next_at_most(limit, key, id));
      const std::int64_t until = random.uniform(keys);
      REQUIRE(tree.lightest(key, until) == line.lightest(key, until));
      REQUIRE(tree.previous(key, id) == line.previous(key, id));
      REQUIRE(tree.sum_to(key, id) == line.sum_to(key, id));
      REQUIRE(tree.sum_to(key) == line.sum_to(key));
      REQUIRE(tree.sum() == line.sum_to(keys));
      const auto got = tree.reach(sum);
      const auto wanted = line.reach(sum);
      REQUIRE(got.has_value() == wanted.has_value());
      if (got) {
        REQUIRE(got->at == wanted->at);
        REQUIRE(got->sum == wanted->sum);
      }
    }
  }
}
