// apiary/tests/gang/detail/pareto_front_test.cpp - fronts against the list of all that was added.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/detail/pareto_search.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

using count_vector = std::vector<std::uint32_t>;

bool covers_each(const count_vector& a, const count_vector& b) {
  bool all = true;
  for (std::size_t k = 0; k < a.size(); ++k) all = all && a[k] >= b[k];
  return all;
}

// Those of all that no other one of all covers, ascending.
std::vector<count_vector> greatest_of(const std::vector<count_vector>& all) {
  std::set<count_vector> greatest;
  for (const count_vector& v : all) {
    bool covered = false;
    for (const count_vector& w : all) covered = covered || (w != v && covers_each(w, v));
    if (!covered) greatest.insert(v);
  }
  return {greatest.begin(), greatest.end()};
}

std::vector<count_vector> vectors_of(const pareto_front& front) {
  std::vector<count_vector> all;
  for (std::size_t i = 0; i < front.size(); ++i) all.emplace_back(front[i].begin(), front[i].end());
  return all;
}

// All vectors with counts below `end`.
std::vector<count_vector> count_vectors_below(std::size_t width, std::uint32_t end) {
  std::vector<count_vector> all{count_vector(width, 0)};
  while (true) {
    count_vector v = all.back();
    std::size_t k = 0;
    while (k < width && v[k] + 1 == end) v[k++] = 0;
    if (k == width) return all;
    ++v[k];
    all.push_back(v);
  }
}

pareto_front front_of_all(std::size_t width, const std::vector<count_vector>& all) {
  pareto_front front(width);
  for (const count_vector& v : all) front.add(v);
  return front;
}

}  // namespace

TEST_CASE("pareto_front: the greatest of three vectors, whatever they are") {
  const std::vector<count_vector> known = count_vectors_below(2, 3);
  REQUIRE(known.size() == 9);
  for (const count_vector& a : known) {
    for (const count_vector& b : known) {
      for (const count_vector& c : known) {
        const std::vector<count_vector> added{a, b, c};
        pareto_front front = front_of_all(2, added);
        // What was there first stays first.
        const std::vector<count_vector> unsorted = vectors_of(front);
        for (std::size_t i = 0; i + 1 < unsorted.size(); ++i) {
          const auto first = std::find(added.begin(), added.end(), unsorted[i]);
          REQUIRE(first < std::find(added.begin(), added.end(), unsorted[i + 1]));
        }
        front.sort();
        REQUIRE(vectors_of(front) == greatest_of(added));
        REQUIRE(front.values().size() == 2 * front.size());
        for (const count_vector& v : known) {
          const bool covered = covers_each(a, v) || covers_each(b, v) || covers_each(c, v);
          REQUIRE(front.covers(v) == covered);
        }
      }
    }
  }
}

TEST_CASE("pareto_front: fronts of the same vectors in any order are equal once sorted") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::size_t width = 1 + random.uniform(5);
    std::vector<count_vector> added(random.uniform(40), count_vector(width));
    for (count_vector& v : added)
      for (std::uint32_t& n : v) n = random.uniform(6);
    pareto_front front = front_of_all(width, added);
    std::vector<count_vector> others = added;
    random.shuffle(others);
    pareto_front same = front_of_all(width, others);
    CHECK(front.covers(same));
    CHECK(same.covers(front));
    front.sort();
    same.sort();
    CHECK(front == same);
    CHECK(vectors_of(front) == greatest_of(added));
    // With one vector changed it covers the other front if and only if each of those is covered.
    if (others.empty()) continue;
    for (std::uint32_t& n : others[0]) n = random.uniform(6);
    const pareto_front changed = front_of_all(width, others);
    bool all = true;
    for (const count_vector& v : added) {
      bool covered = false;
      for (const count_vector& w : others) covered = covered || covers_each(w, v);
      all = all && covered;
    }
    CHECK(changed.covers(front) == all);
  }
}

TEST_CASE("pareto_front: nothing covers only nothing") {
  const pareto_front empty(3);
  CHECK(empty.size() == 0);
  CHECK(empty.covers(pareto_front(3)));
  CHECK(!empty.covers(count_vector{0, 0, 0}));
  const pareto_front origin = front_of_all(3, {{0, 0, 0}});
  CHECK(origin.covers(count_vector{0, 0, 0}));
  CHECK(!origin.covers(count_vector{0, 0, 1}));
  CHECK(origin.covers(empty));
  CHECK(!empty.covers(origin));
}
