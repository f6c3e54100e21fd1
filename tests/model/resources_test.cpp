// apiary/tests/model/resources_test.cpp - amounts and their order.
// SPDX-License-Identifier: MIT
#include <apiary/model/resources.h>

#include <doctest/doctest.h>

namespace {

using namespace apiary;

TEST_CASE("a demand fits only if each of its amounts does") {
  const resources node{4000, 8192};
  CHECK(resources{4000, 8192}.fits_in(node));
  CHECK(resources{}.fits_in(resources{}));
  CHECK_FALSE(resources{4001, 0}.fits_in(node));
  CHECK_FALSE(resources{0, 8193}.fits_in(node));
  // Neither of two amounts may be more than the other.
  CHECK_FALSE(resources{5000, 1}.fits_in(resources{1, 5000}));
  CHECK_FALSE(resources{1, 5000}.fits_in(resources{5000, 1}));
}

TEST_CASE("taking and giving are inverse") {
  resources left{4000, 8192};
  left -= {1500, 100};
  CHECK(left == resources{2500, 8092});
  left += {1500, 100};
  CHECK(left == resources{4000, 8192});
}

}  // namespace
