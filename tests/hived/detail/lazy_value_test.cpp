// apiary/tests/hived/detail/lazy_value_test.cpp - made at the first use, copied with the owner.
// SPDX-License-Identifier: MIT
#include <apiary/hived/detail/lazy_value.h>

#include <doctest/doctest.h>

#include <array>
#include <utility>

TEST_CASE("a value on demand is made once and copied as a value") {
  apiary::detail::lazy_value<std::array<int, 1000>> a;
  CHECK(sizeof(a) < 100);
  apiary::detail::lazy_value<std::array<int, 1000>> nothing = a;
  (*a)[7] = 3;
  CHECK((*a)[7] == 3);
  auto b = a;
  (*b)[7] = 4;
  CHECK(a->at(7) == 3);
  auto c = std::move(b);
  CHECK((*c)[7] == 4);
  CHECK((*nothing)[7] == 0);
}
