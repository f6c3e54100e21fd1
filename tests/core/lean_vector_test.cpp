// apiary/tests/core/lean_vector_test.cpp - the vector of plain values against std::vector.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/core/sort.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// A value whose default is not zero.
struct numbered {
  std::uint64_t number = 7;
  std::uint16_t more = 1;
  friend bool operator==(const numbered&, const numbered&) = default;
};

void check_equal(const detail::lean_vector<numbered>& is, const std::vector<numbered>& expected) {
  REQUIRE(is.size() == expected.size());
  REQUIRE(is.empty() == expected.empty());
  REQUIRE(is.capacity() >= is.size());
  REQUIRE(std::equal(is.begin(), is.end(), expected.begin(), expected.end()));
  for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(is[i] == expected[i]);
  if (expected.empty()) return;
  REQUIRE(is.front() == expected.front());
  REQUIRE(is.back() == expected.back());
}

}  // namespace

TEST_CASE("lean_vector is a std::vector in all that it has") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    detail::lean_vector<numbered> is;
    std::vector<numbered> expected;
    for (int i = 0; i < 200; ++i) {
      const numbered value{random.uniform(1000), 3};
      switch (random.uniform(16)) {
        case 0:
          is.clear();
          expected.clear();
          break;
        case 1: {
          const std::size_t n = random.uniform(40);
          is.resize(n);  // also after values were removed: new values are numbered()
          expected.resize(n);
          break;
        }
        case 2: {
          const std::size_t n = random.uniform(20);
          if (expected.empty()) break;
          const numbered own = expected.back();
          is.assign(n, is.back());  // a value of its own
          expected.assign(n, own);
          break;
        }
        case 3: {
          const std::vector<numbered> other(random.uniform(30), value);
          is.assign(other.data(), other.data() + other.size());
          expected = other;
          break;
        }
        case 4:
          if (expected.empty()) break;
          is.pop_back();
          expected.pop_back();
          break;
        case 5: {
          const std::size_t n = expected.size() / 2;
          is.erase_from(is.begin() + n);
          expected.resize(n);
          break;
        }
        case 6: {
          detail::lean_vector<numbered> other(3, value);
          is.swap(other);
          const std::vector<numbered> before = std::exchange(expected, {3, value});
          check_equal(other, before);
          REQUIRE((is == other) == (expected == before));
          break;
        }
        case 7: {
          const detail::lean_vector<numbered> other = is;  // a copy
          is.push_back(value);
          check_equal(other, expected);
          REQUIRE_FALSE(is == other);
          is = other;
          REQUIRE(is == other);
          break;
        }
        case 8: {
          detail::lean_vector<numbered> other(std::move(is));
          check_equal(is, {});  // NOLINT(bugprone-use-after-move)
          check_equal(other, expected);
          is = std::move(other);
          check_equal(other, {});  // NOLINT(bugprone-use-after-move)
          break;
        }
        case 9: {
          auto& same = is;
          is = same;
          is.reserve(random.uniform(100));
          break;
        }
        case 11: {
          const std::size_t n = random.uniform(9);
          const std::vector<numbered> other(random.uniform(5), value);
          is.append(n, is.empty() ? value : is.front());  // perhaps its own
          expected.insert(expected.end(), n, expected.empty() ? value : expected.front());
          is.append(other.data(), other.data() + other.size());
          expected.insert(expected.end(), other.begin(), other.end());
          is.resize(expected.size() / 3, value);
          expected.resize(expected.size() / 3, value);
          is.resize(expected.size() + n, value);
          expected.resize(expected.size() + n, value);
          break;
        }
        case 12:
          is = {value, {1, 2}};
          expected = {value, {1, 2}};
          is.assign(expected);
          break;
        case 10:
          REQUIRE(is.emplace_back() == expected.emplace_back());
          break;
        default:
          is.push_back(expected.empty() ? value : is[expected.size() / 2]);  // perhaps its own
          expected.push_back(expected.empty() ? value : expected[expected.size() / 2]);
          if (random.uniform(2) == 0) expected.back() = is.back() = value;
      }
      check_equal(is, expected);
    }
    detail::merge_sort(is,
                       [](const numbered& a, const numbered& b) { return a.number < b.number; });
    REQUIRE(std::is_sorted(is.begin(), is.end(), [](const numbered& a, const numbered& b) {
      return a.number < b.number;
    }));
  }
}
