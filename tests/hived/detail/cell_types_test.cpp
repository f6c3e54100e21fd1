// apiary/tests/hived/detail/cell_types_test.cpp - what cells are made of, and every fault in it.
// SPDX-License-Identifier: MIT
#include <apiary/hived/detail/cell_types.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

struct shape_read {
  std::optional<cell_shape> shape;
  std::string faults;
};

shape_read shape_of(const std::vector<cell_type_config>& types, const std::string& top) {
  detail::document_faults faults;
  const hived_cell_types read(types, faults);
  std::optional<cell_shape> shape = read.shape_of(top, "here", faults);
  return {shape, std::string(faults.status().message())};
}

// Types t0 of t1 of ... of t<n>, a leaf; t<node> is the node.
std::vector<cell_type_config> tower(std::uint32_t n, std::uint32_t node) {
  std::vector<cell_type_config> types;
  for (std::uint32_t i = 0; i < n; ++i) {
    types.push_back({"t" + std::to_string(i), "t" + std::to_string(i + 1), 2, i == node});
  }
  return types;
}

const std::vector<cell_type_config> plain{
    {"NODE", "PAIR", 4, true}, {"PAIR", "GPU", 2, false}, {"RACK", "NODE", 3, false}};

}  // namespace

TEST_CASE("a shape lists types from the leaf up and fan-outs from the top down") {
  const shape_read rack = shape_of(plain, "RACK");
  REQUIRE(rack.shape.has_value());
  CHECK(rack.faults.empty());
  CHECK(rack.shape->types == std::vector<std::string>{"GPU", "PAIR", "NODE", "RACK"});
  CHECK(rack.shape->fan_outs == std::vector<std::uint32_t>{3, 4, 2});
  CHECK(rack.shape->node_level == 2);
  const shape_read node = shape_of(plain, "NODE");
  REQUIRE(node.shape.has_value());
  CHECK(node.shape->node_level == 2);
  CHECK(node.shape->fan_outs == std::vector<std::uint32_t>{4, 2});
}

TEST_CASE("the top of a shape is a type that is defined") {
  CHECK(shape_of(plain, "GPU").faults == "here: \"GPU\" is not one of the cellTypes");
  CHECK(shape_of(plain, "rack").faults == "here: \"rack\" is not one of the cellTypes");
  CHECK(shape_of(plain, "").faults == "here: is missing");
  CHECK(shape_of({}, "NODE").faults == "here: \"NODE\" is not one of the cellTypes");
}

TEST_CASE("each fault of a type is reported when types are read, and only there") {
  const auto check = [](const std::vector<cell_type_config>& types, const std::string& faults) {
    const shape_read made = shape_of(types, types.front().name);
    CHECK(made.faults == faults);
    CHECK_FALSE(made.shape.has_value());
  };
  check({{"A", "GPU", 0, true}}, "physicalCluster.cellTypes.A.childCellNumber: is 0 or missing");
  check({{"A", "", 1, true}}, "physicalCluster.cellTypes.A.childCellType: is missing");
  check({{"A", "A", 1, true}}, "physicalCluster.cellTypes.A: contains itself");
  check({{"A", "B", 1, true}, {"B", "C", 1, false}, {"C", "B", 1, false}},
        "physicalCluster.cellTypes.B: contains itself");
  // Faults of types that no cell uses, and of several at once.
  CHECK(shape_of({{"N", "GPU", 1, true},
                  {"", "GPU", 1, false},
                  {"N", "GPU", 2, false},
                  {"a.b", "c.d", 0, false},
                  {"line\nfeed", "line\nfeed", 1, false}},
                 "N")
            .faults ==
        "physicalCluster.cellTypes.: a cell type without name\n"
        "physicalCluster.cellTypes.N: is defined twice\n"
        "physicalCluster.cellTypes.a.b: has a dot in its name; dots separate types\n"
        "physicalCluster.cellTypes.a.b.childCellType: has a dot in its name; dots separate types\n"
        "physicalCluster.cellTypes.a.b.childCellNumber: is 0 or missing\n"
        "physicalCluster.cellTypes.line\\nfeed: contains itself");
}

TEST_CASE("there is one node level, of at most 64 leaves") {
  CHECK(shape_of({{"A", "GPU", 1, false}}, "A").faults ==
        "here: \"A\" has 0 node levels instead of one; it ends at \"GPU\", which is not one of the "
        "cellTypes");
  CHECK(
      shape_of({{"A", "NODX", 1, false}, {"NODE", "GPU", 1, true}}, "A").faults ==
      "here: \"A\" has 0 node levels instead of one; it ends at \"NODX\", which is not one of the "
      "cellTypes");
  CHECK(shape_of({{"A", "B", 1, true}, {"B", "GPU", 1, true}}, "A").faults ==
        "here: \"A\" has 2 node levels instead of one");
  CHECK(shape_of({{"A", "B", 8, true}, {"B", "GPU", 8, false}}, "A").shape.has_value());
  const std::string too_many = "here: the nodes in \"A\" have more than 64 leaf cells";
  CHECK(shape_of({{"A", "B", 5, true}, {"B", "GPU", 13, false}}, "A").faults == too_many);
  const std::uint32_t huge = 1U << 31;
  CHECK(shape_of({{"A", "B", huge, true}, {"B", "C", huge, false}, {"C", "GPU", huge, false}}, "A")
            .faults == too_many);
  CHECK(shape_of({{"A", "B", huge, false}, {"B", "GPU", 1, true}}, "A").shape.has_value());
}

TEST_CASE("ten levels are possible, more are not, and length alone is no danger") {
  CHECK(shape_of(tower(9, 5), "t0").shape.has_value());
  CHECK(shape_of(tower(10, 5), "t0").faults == "here: \"t0\" has more than 10 levels");
  CHECK(shape_of(tower(10, 5), "t1").shape.has_value());
  std::vector<cell_type_config> types = tower(200'000, 5);
  CHECK(shape_of(types, "t0").faults == "here: \"t0\" has more than 10 levels");
  types.back().child_type = "t0";
  CHECK(shape_of(types, "t7").faults == "physicalCluster.cellTypes.t0: contains itself");
}
