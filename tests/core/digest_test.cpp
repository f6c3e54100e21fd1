// apiary/tests/core/digest_test.cpp - what differs, in words or in order, differs in its digest.
// SPDX-License-Identifier: MIT
#include <apiary/core/digest.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using apiary::digest;

TEST_CASE("values are the same on every platform") {
  static_assert(digest().value() == 0);
  // The first output of splitmix64 with seed 0.
  static_assert(digest().add(std::uint64_t{0}).value() == 0xe220a8397b1dcdafU);
  static_assert(digest().add("a").value() ==
                digest().add(std::uint64_t{1}).add(std::uint64_t{'a'}).value());
  CHECK(digest().add("a name of a node").value() == digest()
                                                        .add(std::uint64_t{16})
                                                        .add(std::uint64_t{0x61206e616d65206fU})
                                                        .add(std::uint64_t{0x662061206e6f6465U})
                                                        .value());
}

TEST_CASE("short sequences of words have different digests") {
  std::set<std::uint64_t> seen;
  std::uint64_t sequences = 0;
  const auto go_on = [&](auto&& self, digest so_far, int left) -> void {
    seen.insert(so_far.value());
    ++sequences;
    if (left == 0) return;
    for (std::uint64_t word = 0; word < 8; ++word) self(self, digest(so_far).add(word), left - 1);
  };
  go_on(go_on, digest(), 5);
  CHECK(sequences == 37'449);
  CHECK(seen.size() == sequences);
}

TEST_CASE("sequences of texts do not run into each other") {
  std::set<std::uint64_t> seen;
  std::size_t sequences = 0;
  const auto is_new = [&](const std::vector<std::string_view>& texts) {
    digest all;
    for (const std::string_view text : texts) all.add(text);
    seen.insert(all.value());
    return seen.size() == ++sequences;
  };
  using std::string_view;
  for (const auto& texts : std::vector<std::vector<string_view>>{{"ab", "c"},
                                                                 {"a", "bc"},
                                                                 {"abc"},
                                                                 {"abc", ""},
                                                                 {"", "abc"},
                                                                 {""},
                                                                 {"", ""},
                                                                 {string_view("\0", 1)},
                                                                 {string_view("\0\0", 2)},
                                                                 {"12345678"},
                                                                 {"123456789"},
                                                                 {"12345678", "9"},
                                                                 {string_view("12345678\0", 9)},
                                                                 {"\xff"},
                                                                 {"\x7f"}}) {
    CHECK(is_new(texts));
  }
}
