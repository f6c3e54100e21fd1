// apiary/tests/gang_scheduler/detail/cluster_nodes_test.cpp - positions of nodes while they join and leave.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/cluster_nodes.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace cluster_nodes_tests {
namespace {

using namespace apiary;
using detail::cluster_layout;
using detail::cluster_nodes;

// The nodes that are there, in order, by a sort of their own.
std::vector<std::uint32_t> sorted(const cluster_nodes& nodes) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < nodes.num_ids(); ++id)
    if (nodes.has_node(node_id(id))) ids.push_back(id);
  std::sort(ids.begin(), ids.end(), [&](std::uint32_t a, std::uint32_t b) {
    return detail::is_node_before(nodes.node(a).shape, nodes.node(b).shape);
  });
  return ids;
}

// Whether the layout has these nodes, and a cell for each name and no others.
void check_layout(const cluster_nodes& nodes, const std::vector<std::uint32_t>& ids) {
  const cluster_layout& layout = nodes.layout();
  REQUIRE(layout.num_positions() == std::max<std::size_t>(ids.size(), 1));
  REQUIRE(layout.num_positions() == layout.tree().cells(0).size());
  std::vector<std::map<std::uint32_t, std::string>> names(layout.num_levels());
  for (std::uint32_t p = 0; p < ids.size(); ++p) {
    REQUIRE(layout.node_at(p) == ids[p]);
    REQUIRE(nodes.node(ids[p]).position == p);
    std::uint32_t c = p;
    for (level_t l = 1; l < layout.num_levels(); ++l) {
      c = layout.tree().index(layout.tree().parent(layout.tree().at(l - 1, c), l - 1), l);
      const std::string& name = nodes.node(ids[p]).shape.cells[l - 1];
      REQUIRE(names[l].try_emplace(c, name).first->second == name);
      REQUIRE(nodes.cell_name(l, c) == name);
    }
  }
  for (level_t l = 1; l < layout.num_levels(); ++l) {
    std::set<std::string> different;
    for (const auto& [c, name] : names[l]) different.insert(name);
    REQUIRE(different.size() == names[l].size());
    REQUIRE(layout.tree().cells(l).size() == std::max<std::size_t>(names[l].size(), 1));
  }
}

TEST_CASE("cluster_nodes: nodes are in order, whatever joined and left since the last decision") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(60U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    cluster_nodes nodes({.levels = {"rack", "row"}}, detail::filter_views::default_bytes);
    check_layout(nodes, {});
    CHECK(nodes.cell_name(2, 0).empty());
    const std::uint32_t racks = 1 + random.uniform(12);
    const std::uint32_t leaving = random.uniform(4);
    const std::uint32_t rarely = 1 + random.uniform(20);
    for (std::uint32_t step = 0; step < 200; ++step) {
      CAPTURE(step);
      const std::vector<std::uint32_t> before = sorted(nodes);
      const bool empties = step >= 150 && leaving == 0;
      if (!before.empty() && (empties || random.uniform(4) < leaving)) {
        nodes.erase_node(before[random.uniform(static_cast<std::uint32_t>(before.size()))]);
      } else {
        const std::uint32_t rack = random.uniform(racks);
        nodes.insert_node(nodes.next_id(),  // often that of a node that has left
                          {.name = "n" + std::to_string(random.uniform(1000) * 1000 + step),
                           .cells = {"r" + std::to_string(rack), "w" + std::to_string(rack % 3)}});
      }
      REQUIRE(nodes.in_order() == sorted(nodes));
      if (random.uniform(rarely) > 0) continue;
      nodes.refresh();
      REQUIRE(nodes.in_order() == sorted(nodes));
      check_layout(nodes, sorted(nodes));
    }
  }
}

TEST_CASE("cluster_nodes: a cell cannot be in two cells") {
  cluster_nodes nodes({.levels = {"rack", "row"}}, detail::filter_views::default_bytes);
  const cluster_layout& layout = nodes.layout();
  CHECK(layout.num_levels() == 3);
  CHECK(layout.level_name(0) == "node");
  CHECK(layout.level_name(2) == "row");
  CHECK(layout.level_name(3) == "cluster");
  nodes.insert_node(0, {.name = "n", .cells = {"r", "w"}});
  nodes.insert_node(1, {.name = "m", .cells = {"r", "w"}});
  const auto fault = [&](std::string rack, std::string row) {
    return layout.cells().fault(std::vector<std::string>{std::move(rack), std::move(row)});
  };
  for (std::uint32_t id = 0; id < 2; ++id) {
    CHECK(fault("r", "w").empty());
    CHECK(fault("s", "x").empty());
    CHECK(fault("r", "x") == "rack \"r\" is in row \"w\", not in \"x\"");
    nodes.erase_node(id);
  }
  CHECK(fault("r", "x").empty());
}

}  // namespace
}  // namespace cluster_nodes_tests
