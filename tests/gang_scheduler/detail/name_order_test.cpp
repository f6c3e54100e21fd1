// apiary/tests/gang_scheduler/detail/name_order_test.cpp - the order of names, against a list of letters and numbers.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/detail/cluster_nodes.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace name_order_tests {
namespace {

using apiary::gang_cluster;
using apiary::detail::is_name_before;
using apiary::detail::is_node_before;

// The letters of a name, and each of its numbers as one element that stands where digits stand.
std::vector<std::pair<unsigned, std::uint64_t>> elements_of(const std::string& name) {
  std::vector<std::pair<unsigned, std::uint64_t>> elements;
  bool in_number = false;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) {
      elements.emplace_back(static_cast<unsigned char>(c), 0);
    } else if (in_number) {
      elements.back().second = elements.back().second * 10 + static_cast<std::uint64_t>(c - '0');
    } else {
      elements.emplace_back('0', static_cast<std::uint64_t>(c - '0'));
    }
    in_number = is_digit;
  }
  return elements;
}

TEST_CASE("name_order: all names of up to three characters are in the order of their elements") {
  const std::string characters = "-019a\xc3";
  std::vector<std::string> names{""};
  for (std::size_t i = 0; names[i].size() < 3; ++i)
    for (const char c : characters) names.push_back(names[i] + c);
  std::vector<std::pair<std::vector<std::pair<unsigned, std::uint64_t>>, std::string>> keys;
  for (const std::string& name : names) keys.emplace_back(elements_of(name), name);
  REQUIRE(names.size() == 1 + 6 + 36 + 216);
  std::size_t wrong = 0;
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = 0; b < names.size(); ++b)
      wrong += is_name_before(names[a], names[b]) == (keys[a] < keys[b]) ? 0U : 1U;
  CHECK(wrong == 0);
}

TEST_CASE("name_order: numbers may have more digits than an integer") {
  const std::string many(30, '9');
  CHECK(is_name_before("n" + many + "-a", "n1" + many + "-a"));
  CHECK(!is_name_before("n1" + many + "-a", "n" + many + "-a"));
  CHECK(is_name_before("n0" + many + "-a", "n" + many + "-b"));
  CHECK(is_name_before("n0" + many, "n" + many));  // equal numbers: as texts
  CHECK(!is_name_before("n" + many, "n0" + many));
  CHECK(!is_name_before(many, many));
}

TEST_CASE("name_order: nodes by their highest cells first, then by name") {
  const auto node = [](const char* name, const char* rack, const char* block) {
    return gang_cluster::node{.name = name, .cells = {rack, block}};
  };
  CHECK(is_node_before(node("n9", "r9", "b2"), node("n1", "r1", "b10")));
  CHECK(is_node_before(node("n9", "r2", "b2"), node("n1", "r10", "b2")));
  CHECK(is_node_before(node("n9", "r2", "b2"), node("n10", "r2", "b2")));
  CHECK(!is_node_before(node("n10", "r2", "b2"), node("n9", "r2", "b2")));
  CHECK(!is_node_before(node("n9", "r2", "b2"), node("n9", "r2", "b2")));
  CHECK(is_node_before({.name = "n9"}, {.name = "n10"}));
}

}  // namespace
}  // namespace name_order_tests
