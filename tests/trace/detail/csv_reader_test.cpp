// apiary/tests/trace/detail/csv_reader_test.cpp - columns by name, numbers of full width.
// SPDX-License-Identifier: MIT
#include <apiary/trace/line_reader.h>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

using namespace apiary;
using namespace apiary::detail;

namespace {

constexpr std::array<csv_column, 3> columns{{{"a"}, {"b"}, {"c", false}}};

absl::StatusOr<csv_reader> reader(std::string_view text) {
  return csv_reader::create(line_reader("t", text), columns);
}

std::string fault(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// What reading `text` as the number in column a of the first row comes to.
absl::StatusOr<std::uint32_t> number(std::string_view text) {
  const std::string all = "b,a\n0," + std::string(text) + "\n";
  auto csv = reader(all);
  REQUIRE(csv.ok());
  REQUIRE(csv->next().value());
  return csv->number(0);
}

}  // namespace

TEST_CASE("columns are found by name in any order and others are passed over") {
  auto csv = reader("x,b,y,a\n1,2,3,4\n5,,7,8\n");
  REQUIRE(csv.ok());
  REQUIRE(csv->next().value());
  CHECK((*csv)[0] == "4");
  CHECK((*csv)[1] == "2");
  CHECK((*csv)[2].empty());
  CHECK(csv->lines().number() == 2);
  REQUIRE(csv->next().value());
  CHECK((*csv)[1].empty());
  CHECK_FALSE(csv->next().value());
}

TEST_CASE("faults of the header line") {
  CHECK(fault(reader("").status()) == "t: the file is empty");
  CHECK(fault(reader("\n").status()) == "t: the file is empty");
  CHECK(fault(reader("a,c\n").status()) == "t:1: no column \"b\"");
  CHECK(fault(reader("A,b\n").status()) == "t:1: no column \"a\"");
  CHECK(fault(reader("a,b,a\n").status()) == "t:1: two columns \"a\"");
  CHECK(fault(reader("a,b,c,c\n").status()) == "t:1: two columns \"c\"");
  CHECK(fault(reader("x,a,b,x\n").status()) == "t:1: two columns \"x\"");
  CHECK(fault(reader("a,,b,\n").status()) == "t:1: two columns \"\"");
  CHECK(fault(reader("a,\"b\"\n").status()) == "t:1: quotes are not supported");
}

TEST_CASE("faults of a row") {
  const auto row = [](std::string_view text) {
    const std::string all = "a,b\n1,2\n" + std::string(text);
    auto csv = reader(all);
    REQUIRE(csv.ok());
    REQUIRE(csv->next().value());
    return fault(csv->next().status());
  };
  CHECK(row("1\n") == "t:3: 1 fields; the header line has 2");
  CHECK(row("1,2,3\n") == "t:3: 3 fields; the header line has 2");
  CHECK(row("1,\"2\"\n") == "t:3: quotes are not supported");
  CHECK(row("\n1,2\n") == "t:3: the line is blank");
}

TEST_CASE("numbers are decimal digits within 32 bits and nothing else") {
  CHECK(number("0").value() == 0);
  CHECK(number("007").value() == 7);
  CHECK(number("4294967295").value() == 4294967295U);
  for (const char* text : {"4294967296", "99999999999999999999999", "-1", "-0", "+1", " 1", "1 ",
                           "1.0", "1e3", "0x10", "", "one", "1;", "nan"}) {
    CAPTURE(text);
    CHECK(fault(number(text).status()) ==
          "t:2: a is " + line_reader::quoted(text) + ", not a whole number from 0 to 4294967295");
  }
}

TEST_CASE("a number may have a limit") {
  auto csv = reader("a,b\n16,17\n");
  REQUIRE(csv.ok());
  REQUIRE(csv->next().value());
  CHECK(csv->number(0, 16).value() == 16);
  CHECK(fault(csv->number(1, 16).status()) == "t:2: b is \"17\", not a whole number from 0 to 16");
}

TEST_CASE("a name is not empty and has no spaces") {
  auto csv = reader("a,b,c\nx-1,,a b\n");
  REQUIRE(csv.ok());
  REQUIRE(csv->next().value());
  CHECK(csv->name(0).value() == "x-1");
  CHECK(fault(csv->name(1).status()) == "t:2: b is \"\", not a name without spaces");
  CHECK(fault(csv->name(2).status()) == "t:2: c is \"a b\", not a name without spaces");
}
