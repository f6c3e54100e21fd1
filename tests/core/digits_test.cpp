// apiary/tests/core/digits_test.cpp - whole numbers from text, with their limits.
// SPDX-License-Identifier: MIT
#include <apiary/core/digits.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>

using apiary::detail::read_digits;

TEST_CASE("read_digits: every number up to the limit, no other text") {
  for (std::uint64_t limit : {0U, 9U, 10U, 1234U}) {
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::optional<std::uint64_t> expected = i <= limit ? std::optional(i) : std::nullopt;
      REQUIRE(read_digits(std::to_string(i), limit) == expected);
      REQUIRE(read_digits("00" + std::to_string(i), limit) == expected);
    }
  }
  CHECK(read_digits("4294967295") == 4294967295U);
  CHECK(!read_digits("4294967296"));
  CHECK(!read_digits("18446744073709551617"));
  CHECK(!read_digits("1" + std::string(100, '0')));
  for (const char* const text : {"", " 1", "1 ", "+1", "-1", "1.0", "0x1", "a", "1:", "1/"})
    CHECK(!read_digits(text));
}
