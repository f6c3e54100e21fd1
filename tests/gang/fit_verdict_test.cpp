// apiary/tests/gang/fit_verdict_test.cpp - steps are paid until more are asked for than are left.
// SPDX-License-Identifier: MIT
#include <apiary/gang/fit_verdict.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("step_budget: the last step can be had, and none after one too many was asked for") {
  step_budget b(10);
  CHECK(b.pay(4));
  CHECK(b.steps() == 4);
  CHECK(b.left() == 6);
  CHECK(b.pay(6));
  CHECK(!b.ended());  // all are taken, and that was enough
  CHECK(b.left() == 0);
  CHECK(b.pay(0));
  CHECK(!b.pay(1));
  CHECK(b.ended());
  CHECK(b.steps() == 10);
  CHECK(!b.pay(0));
}

TEST_CASE("step_budget: what cannot be paid counts as all that there was") {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  step_budget some(10);
  CHECK(some.pay(3));
  CHECK(!some.pay(most - 1));  // with the three it would be more than can be counted
  CHECK(some.ended());
  CHECK(some.steps() == 10);
  CHECK(some.left() == 0);
  CHECK(!some.pay(1));  // seven were left before
  step_budget all(most);
  CHECK(all.pay(most));
  CHECK(!all.ended());
  step_budget none;
  CHECK(none.pay(0));
  CHECK(!none.pay(1));
}

TEST_CASE("step_budget: what try_pay refuses is not taken") {
  step_budget b(10);
  CHECK(b.try_pay(4));
  CHECK(!b.try_pay(7));
  CHECK(b.steps() == 4);
  CHECK(b.left() == 6);
  CHECK(!b.ended());
  CHECK(b.try_pay(6));
  CHECK(!b.try_pay(1));
  CHECK(b.try_pay(0));
  CHECK(!b.try_pay(std::numeric_limits<std::uint64_t>::max()));
  CHECK(b.steps() == 10);
}
