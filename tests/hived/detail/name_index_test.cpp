// apiary/tests/hived/detail/name_index_test.cpp - names and their numbers, against std::map.
// SPDX-License-Identifier: MIT
#include <apiary/hived/detail/config_reader.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>

using namespace apiary;

TEST_CASE("names: the first number of each is kept") {
  detail::name_index index;
  CHECK_FALSE(index.find("a"));
  CHECK(index.add("a", 1));
  CHECK_FALSE(index.add("a", 2));
  CHECK(index.add("", 3));
  CHECK(index.find("a") == 1);
  CHECK(index.find("") == 3);
  CHECK_FALSE(index.find("b"));
  CHECK(index.size() == 2);
}

TEST_CASE("names: as a map, while it grows and in a copy") {
  detail::name_index index;
  std::map<std::string, std::uint32_t> known;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const std::string name = "n" + std::to_string(i * 7919 % 2003);
    CHECK(index.add(name, i) == known.try_emplace(name, i).second);
  }
  const detail::name_index copy = index;
  CHECK(copy.size() == known.size());
  for (const auto& [name, value] : known) CHECK(copy.find(name) == value);
  CHECK_FALSE(copy.find("n2003"));
}
