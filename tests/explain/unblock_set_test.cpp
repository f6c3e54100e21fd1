// apiary/tests/explain/unblock_set_test.cpp - the sentences about nodes to free.
// SPDX-License-Identifier: MIT
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/topology/cell_names.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace apiary;

TEST_CASE("unblock_set: a sentence for every answer") {
  const cell_names names{"gpu", "node", "rack"};
  const std::vector<std::uint32_t> one{3};
  const std::vector<std::uint32_t> two{3, 9};
  unblock_set set{.verdict = fit_verdict::fits, .nodes = two, .gpus = 12, .node_level = 1};
  set.level = 2;
  set.cell = 7;
  CHECK(set.text(names) ==
        "the gang would fit if nodes 3 and 9 in rack 7 were free (12 more GPUs)");
  set.level = 3;
  CHECK(set.text(names) == "the gang would fit if nodes 3 and 9 were free (12 more GPUs)");
  set.level = 1;
  set.cell = 3;
  set.nodes = one;
  set.gpus = 1;
  CHECK(set.text(names) == "the gang would fit if node 3 were free (1 more GPU)");
  set.gpus = 0;
  CHECK(set.text(names) ==
        "the gang would fit if node 3 were free (the GPUs are free, but CPU or memory is not)");
  set.nodes = {};
  CHECK(set.text(names) == "the gang fits now");
  set.verdict = fit_verdict::does_not_fit;
  CHECK(set.text(names) == "the gang does not fit even if all nodes are free");
  set.verdict = fit_verdict::budget_ended;
  CHECK(set.text(names) == "it is not known which nodes to free");
}
