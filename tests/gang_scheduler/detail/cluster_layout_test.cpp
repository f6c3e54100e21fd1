// apiary/tests/gang_scheduler/detail/cluster_layout_test.cpp - positions of nodes while they join and leave.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace cluster_layout_tests {
namespace {

using namespace apiary;
using detail::cluster_layout;

// Nodes in racks and rows, and the position that the layout said each one has.
struct scene {
  cluster_layout layout{{"rack", "row"}};
  std::vector<gang_cluster::node> shapes{};  // by id
  std::map<std::uint32_t, std::uint32_t> at{};
  std::uint32_t rebuilt = 0;

  [[nodiscard]] auto shape_of() const {
    return [this](std::uint32_t n) -> const gang_cluster::node& { return shapes[n]; };
  }
  [[nodiscard]] std::uint32_t cell_of(level_t l, std::uint32_t position) const {
    const auto& tree = layout.tree();
    std::uint32_t c = position;
    for (level_t below = 0; below < l; ++below)
      c = tree.index(tree.parent(tree.at(below, c), below), below + 1);
    return c;
  }
  void rebuild(std::vector<std::uint32_t> ids) {
    layout.rebuild(std::move(ids), shape_of());
    at.clear();
    for (std::uint32_t p = 0; p < layout.num_positions(); ++p)
      if (layout.node_at(p) != cluster_layout::none) at[layout.node_at(p)] = p;
    ++rebuilt;
  }
  void add(gang_cluster::node shape) {
    const auto id = static_cast<std::uint32_t>(shapes.size());
    REQUIRE(layout.fault(shape.cells).empty());
    shapes.push_back(std::move(shape));
    if (!layout.add(id, shape_of())) {
      layout.leave_more_unused();
      std::vector<std::uint32_t> ids = layout.nodes();
      ids.insert(ids.begin(), id);
      return rebuild(std::move(ids));
    }
    for (const cluster_layout::move& m : layout.moves()) {
      REQUIRE(m.from == (m.node == id ? cluster_layout::none : at[m.node]));
      REQUIRE(m.from != m.to);
      if (m.node != id && !layout.cells_moved()) REQUIRE(cell_of(1, m.from) == cell_of(1, m.to));
    }
    for (const cluster_layout::move& m : layout.moves()) at[m.node] = m.to;
  }
  void remove(std::uint32_t id) {
    layout.remove(at[id]);
    at.erase(id);
    if (layout.is_too_large()) rebuild(layout.nodes());
  }
  // Whether the layout has the nodes in order, and no others, and its cells have their names.
  void check() const {
    std::vector<std::uint32_t> expected;
    for (const auto& [id, p] : at) expected.push_back(id);
    std::sort(expected.begin(), expected.end(), [&](std::uint32_t a, std::uint32_t b) {
      return detail::is_node_before(shapes[a], shapes[b]);
    });
    REQUIRE(layout.nodes() == expected);
    REQUIRE(layout.num_positions() == layout.tree().cells(0).size());
    std::vector<std::map<std::uint32_t, std::string>> names(layout.num_levels());
    for (const auto& [id, p] : at) {
      REQUIRE(layout.node_at(p) == id);
      for (level_t l = 1; l < layout.num_levels(); ++l)
        names[l][cell_of(l, p)] = shapes[id].cells[l - 1];
    }
    for (level_t l = 0; l < layout.num_levels(); ++l) {
      for (std::uint32_t c = 0; c < layout.tree().cells(l).size(); ++c) {
        const auto name = names[l].find(c);
        REQUIRE(layout.is_unused(l, c) ==
                (l == 0 ? layout.node_at(c) == cluster_layout::none : name == names[l].end()));
        if (l > 0) REQUIRE(layout.cell_name(l, c) == (layout.is_unused(l, c) ? "" : name->second));
      }
    }
  }
};

TEST_CASE("cluster_layout: nodes stay in order while they join and leave") {
  std::uint32_t moved = 0;
  std::uint32_t cells_moved = 0;
  std::uint32_t rebuilt = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(60U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    scene s;
    const std::uint32_t racks = 1 + random.uniform(12);
    const std::uint32_t leaving = random.uniform(4);
    for (std::uint32_t step = 0; step < 200; ++step) {
      CAPTURE(step);
      const bool empties = step >= 150 && leaving == 0;  // now the layout becomes too large
      if (!s.at.empty() && (empties || random.uniform(4) < leaving)) {
        s.remove(std::next(s.at.begin(), random.uniform(static_cast<std::uint32_t>(s.at.size())))
                     ->first);
      } else {
        const std::uint32_t rack = random.uniform(racks);
        s.add({.name = "n" + std::to_string(random.uniform(1000) * 1000 + step),
               .cells = {"r" + std::to_string(rack), "w" + std::to_string(rack % 3)}});
        moved += s.layout.moves().size() > 1 ? 1U : 0U;
        cells_moved += s.layout.cells_moved() ? 1U : 0U;
      }
      s.check();
    }
    rebuilt += s.rebuilt;
  }
  CHECK(moved > 0);
  CHECK(cells_moved > 0);
  CHECK(rebuilt > 0);
}

TEST_CASE("cluster_layout: few moves and new trees while a thousand nodes join") {
  scene s;
  std::size_t moves = 0;
  for (std::uint32_t n = 0; n < 1024; ++n) {
    s.add({.name = "n" + std::to_string(n * 389 % 1024),
           .cells = {"r" + std::to_string(n % 32), "w"}});
    moves += s.layout.moves().size();
  }
  s.check();
  CHECK(s.rebuilt < 40);
  CHECK(moves < std::size_t{1024} * 20);
  CHECK(s.layout.num_positions() <= s.layout.most_positions(1024));
  CHECK(!s.layout.is_too_large());
}

TEST_CASE("cluster_layout: a cell cannot be in two cells") {
  scene s;
  CHECK(s.layout.num_levels() == 3);
  CHECK(s.layout.level_name(0) == "node");
  CHECK(s.layout.level_name(2) == "row");
  CHECK(s.layout.level_name(3) == "cluster");
  s.add({.name = "n", .cells = {"r", "w"}});
  const auto fault = [&](std::string rack, std::string row) {
    return s.layout.fault(std::vector<std::string>{std::move(rack), std::move(row)});
  };
  CHECK(fault("r", "w").empty());
  CHECK(fault("s", "x").empty());
  CHECK(fault("r", "x") == "rack \"r\" is in row \"w\", not in \"x\"");
  s.remove(0);
  CHECK(fault("r", "x").empty());
}

}  // namespace
}  // namespace cluster_layout_tests
