// apiary/tests/model/resources_test.cpp - amounts and their order.
// SPDX-License-Identifier: MIT
#include <apiary/model/resources.h>

#include <doctest/doctest.h>

namespace {

using namespace apiary;

TEST_CASE("a demand fits only if each of its amounts does") {
  const resources node{4000, 8192};
  CHECK(fits(resources{4000, 8192}, node));
  CHECK(fits(resources{}, resources{}));
  CHECK_FALSE(fits(resources{4001, 0}, node));
  CHECK_FALSE(fits(resources{0, 8193}, node));
  // Neither of two amounts may be more than the other.
  CHECK_FALSE(fits(resources{5000, 1}, resources{1, 5000}));
  CHECK_FALSE(fits(resources{1, 5000}, resources{5000, 1}));
}

TEST_CASE("taking and giving are inverse") {
  resources left{4000, 8192};
  left -= {1500, 100};
  CHECK(left == resources{2500, 8092});
  left += {1500, 100};
  CHECK(left == resources{4000, 8192});
}

}  // namespace
