// apiary/tests/topology/named_tree_test.cpp - named trees, and every fault a user can make.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

namespace {

using named_uniform = named_tree<uniform_tree>;
using named_ragged = named_tree<ragged_tree>;

chain_spec v100() {
  return {"v100", {{"rack", {2}}, {"node", {2}, {"n0", "n1", "n2", "n3"}}, {"gpu", {4}}}};
}

// create refuses the chain with a message that has all these parts, in order, and no more faults.
template <class Named>
void check_refused(const chain_spec& spec, const std::vector<std::string>& faults) {
  const auto made = Named::create(spec);
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(made.status().message());
  CAPTURE(message);
  std::size_t at = 0;
  for (const std::string& fault : faults) {
    CAPTURE(fault);
    at = message.find(fault, at);
    REQUIRE(at != std::string::npos);
    at += fault.size();
  }
  std::size_t found = 1;
  for (std::size_t i = message.find("; "); i != std::string::npos; i = message.find("; ", i + 1))
    ++found;
  CHECK(found == faults.size());
}

}  // namespace

TEST_CASE("a uniform chain has its levels, its names and its tree") {
  const auto made = named_uniform::create(v100());
  REQUIRE(made.ok());
  const named_uniform& chain = *made;
  CHECK(chain.chain_name() == "v100");
  apiary_test::check_tree(chain.tree(), apiary_test::written_out({2, 2, 4}));
  CHECK(chain.find_level("gpu") == 0);
  CHECK(chain.find_level("rack") == 2);
  CHECK_FALSE(chain.find_level("pod").has_value());
  CHECK(chain.level_name(1) == "node");
  CHECK(chain.find_cell("n2") == chain.tree().at(1, 2));
  CHECK(chain.find_cell("gpu-15") == chain.tree().at(0, 15));
  for (const char* none : {"gpu-16", "gpu-015", "gpu-", "gpu", "node-2", "n4", "", "-", "-1",
                           "gpu-4294967296", "gpu-99999999999", "gpu-1x", "rack-2"}) {
    CAPTURE(none);
    CHECK_FALSE(chain.find_cell(none).has_value());
  }
  for (const cell_id c : id_range<cell_id>{cell_id(0), cell_id(chain.tree().num_cells())})
    CHECK(chain.find_cell(chain.cell_name(c)) == c);
}

TEST_CASE("a ragged chain takes one fan-out for all cells or one for each") {
  const auto made = named_ragged::create(
      {"mixed", {{"rack", {2}}, {"node", {1, 3}, {"a", "b", "c", "d"}}, {"gpu", {4, 2, 2, 8}}}});
  REQUIRE(made.ok());
  apiary_test::check_tree(made->tree(), {{2}, {1, 3}, {4, 2, 2, 8}});
  CHECK(made->find_cell("d") == made->tree().at(1, 3));
  CHECK(made->cell_name(made->tree().at(0, 9)) == "gpu-9");
  const auto even = named_ragged::create(v100());
  REQUIRE(even.ok());
  apiary_test::check_tree(even->tree(), apiary_test::written_out({2, 2, 4}));
}

TEST_CASE("each fault of a shape is reported with its place") {
  check_refused<named_uniform>({"c", {}}, {"chain 'c': no levels"});
  check_refused<named_uniform>({"c", {{"gpu", {0}}}}, {"chain 'c', level 'gpu': fan-out 0 is 0"});
  check_refused<named_uniform>({"c", {{"gpu", {}}}}, {"level 'gpu': no fan-out"});
  check_refused<named_uniform>({"c", {{"node", {2}}, {"gpu", {2, 3}}}},
                               {"level 'gpu': fan-outs differ in a uniform tree"});
  check_refused<named_ragged>({"c", {{"node", {2}}, {"gpu", {2, 3, 4}}}},
                              {"level 'gpu': 3 fan-outs, but the level above has 2 cells"});
  check_refused<named_ragged>({"c", {{"node", {2}}, {"gpu", {2, 0}}}},
                              {"level 'gpu': fan-out 1 is 0"});
  chain_spec deep{"deep", {}};
  for (int i = 0; i < 11; ++i) deep.levels.push_back({"level" + std::to_string(i), {1}});
  check_refused<named_uniform>(deep, {"chain 'deep': 11 levels (the limit is 10)"});
  check_refused<named_ragged>(deep, {"11 levels"});
  deep.levels.pop_back();
  CHECK(named_uniform::create(deep).ok());
  CHECK(named_ragged::create(deep).ok());
}

TEST_CASE("a fault of a level is not reported again at the level below") {
  // Level "node" has two fan-outs below one rack: how many nodes there are is not known.
  check_refused<named_ragged>({"c", {{"rack", {1}}, {"node", {2, 3}}, {"gpu", {4, 4, 4}}}},
                              {"level 'node': 2 fan-outs, but the level above has 1 cells"});
}

TEST_CASE("a generated name has no leading zero, except in 0 itself") {
  const named_uniform chain = named_uniform::create({"c", {{"node", {20}}}}).value();
  CHECK(chain.find_cell("node-0") == cell_id(0));
  CHECK(chain.find_cell("node-7") == cell_id(7));
  CHECK(chain.find_cell("node-10") == cell_id(10));
  for (const char* name : {"node-00", "node-07", "node-007", "node-"})
    CHECK_FALSE(chain.find_cell(name).has_value());
}

TEST_CASE("numbers that overflow are faults, not small trees") {
  const std::uint32_t huge = 4'294'967'295;
  check_refused<named_uniform>({"c", {{"gpu", {huge}}}}, {"level 'gpu': more than 2^31 - 1 cells"});
  check_refused<named_uniform>({"c", {{"node", {65'536}}, {"gpu", {65'536}}}},
                               {"level 'gpu': more than 2^31 - 1 cells"});
  check_refused<named_uniform>(
      {"c", {{"a", {2'000'000'000}}, {"b", {huge}}, {"d", {huge}}, {"e", {huge}}}},
      {"level 'b': more than 2^31 - 1 cells"});
  check_refused<named_ragged>({"c", {{"node", {2}}, {"gpu", {huge, huge}}}},
                              {"level 'gpu': more than 2^31 - 1 cells"});
  CHECK(named_uniform::create({"c", {{"node", {1'073'741'823}}, {"gpu", {1}}}}).ok());
}

TEST_CASE("each fault of a name is reported with its place") {
  check_refused<named_uniform>({"", {{"gpu", {1}}}}, {"chain '': no name"});
  check_refused<named_uniform>({"c", {{"", {1}}}}, {"chain 'c', level '': no name"});
  check_refused<named_uniform>({"c", {{"x", {1}}, {"x", {1}}}}, {"level 'x': name used twice"});
  check_refused<named_uniform>({"c", {{"node", {2}, {"a", "a"}}}},
                               {"level 'node': cell name 'a' used twice"});
  check_refused<named_uniform>({"c", {{"node", {2}, {"a", ""}}}}, {"a cell without name"});
  check_refused<named_uniform>({"c", {{"node", {2}, {"a"}}}}, {"1 cell names for 2 cells"});
  check_refused<named_uniform>({"c", {{"node", {1}, {"a"}}, {"gpu", {1}, {"a"}}}},
                               {"level 'gpu': cell name 'a' used twice"});
  check_refused<named_uniform>({"c", {{"node", {1}, {"gpu-7"}}, {"gpu", {4}}}},
                               {"level 'node': cell name 'gpu-7' is reserved for level 'gpu'"});
  CHECK(named_uniform::create({"c", {{"node", {1}, {"node-7"}}, {"gpu", {4}}}}).ok());
}

TEST_CASE("all faults are reported at once") {
  check_refused<named_uniform>(
      {"c", {{"rack", {0}, {"x"}}, {"node", {2}, {"a", "a"}}, {"node", {}}}},
      {"level 'rack': fan-out 0 is 0", "level 'node': no fan-out", "level 'node': name used twice",
       "cell name 'a' used twice"});
}
