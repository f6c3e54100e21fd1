// apiary/tests/core/config_test.cpp - version, namespace, assertion macros.
// SPDX-License-Identifier: MIT
#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

namespace {

static_assert(std::is_same_v<apiary::cell_id, apiary::v0_2::cell_id>);

TEST_CASE("the macros tell the version of the project") {
  const std::string version = std::to_string(APIARY_VERSION_MAJOR) + "." +
                              std::to_string(APIARY_VERSION_MINOR) + "." +
                              std::to_string(APIARY_VERSION_PATCH);
  CHECK(version == APIARY_PROJECT_VERSION);
}

TEST_CASE("our own programs keep their asserts") {
#ifdef NDEBUG
  FAIL("NDEBUG is defined");
#endif
  int evaluated = 0;
  APIARY_ASSERT(++evaluated > 0);
  CHECK(evaluated == 1);
  APIARY_VERIFY(++evaluated > 0);
  CHECK(evaluated == 2);
}

}  // namespace
