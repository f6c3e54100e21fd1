// apiary/tests/gang/detail/proof_words_test.cpp - words of the sentences about a proof.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/detail/proof_words.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

TEST_CASE("proof_words: numbers and lists") {
  CHECK(detail::thousandths(0) == "0");
  CHECK(detail::thousandths(2'500) == "2.5");
  CHECK(detail::thousandths(1'007) == "1.007");
  CHECK(detail::thousandths(30'120) == "30.12");
  CHECK(detail::amount(1'000, "free ", "GPU") == "1 free GPU");
  CHECK(detail::amount(500, "", "CPU") == "0.5 CPUs");
  CHECK(detail::listing({"a"}) == "a");
  CHECK(detail::listing({"a", "b"}) == "a and b");
  CHECK(detail::listing({"a", "b", "c"}) == "a, b and c");
}

TEST_CASE("proof_words: what a gang requests, and what it would fit without") {
  using enum blocking_resource;
  topology_constraints gang{
      .groups = {{.tasks = 1, .gpus = 0, .models = 1}, {.tasks = 2, .gpus = 1}}};
  for (const blocking_resource r : {memory, cpu, models, slices, spread, gpus})
    CHECK(!detail::has(gang, r));  // a task without GPUs runs on any model
  gang.groups[1] = {.tasks = 2,
                    .gpus = 1,
                    .host = {5, 6},
                    .slices = {{rack, 2}},
                    .spread = {{node, 1}},
                    .models = 1};
  for (const blocking_resource r : {memory, cpu, models, slices, spread})
    CHECK(detail::has(gang, r));
  CHECK(!detail::has(gang, gpus));
  CHECK(detail::without(gang, {}).empty());
  const std::vector<blocking_resource> some{spread, cpu};
  CHECK(detail::without(gang, some) ==
        "; without its CPU request and its anti-affinity it would fit");
  const std::vector<blocking_resource> itself{gpus};
  CHECK(detail::without(gang, itself) ==
        "; without its memory request, its CPU request, its GPU models, its slices and its "
        "anti-affinity it would not fit either");
  CHECK(detail::without({.groups = {{.tasks = 1, .gpus = 1}}}, itself).empty());
}

TEST_CASE("proof_words: a gang of nothing but replicas of one kind") {
  topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1},
                                       {.tasks = 4, .gpus = 1, .leader = 0, .leader_level = rack},
                                       {.tasks = 2, .gpus = 8, .leader = 0, .leader_level = rack}}};
  const std::vector<std::uint32_t> all{0, 1, 2};
  CHECK(detail::only_replicas(gang, all) == std::pair<std::size_t, level_t>{0, rack});
  gang.groups[2].leader_level = block;  // another kind
  CHECK(detail::only_replicas(gang, all).first == 3);
  gang.groups[2] = {.tasks = 2, .gpus = 8};  // in no replica
  CHECK(detail::only_replicas(gang, all).first == 3);
  const std::vector<std::uint32_t> one{0};
  CHECK(detail::only_replicas(gang, one).first == 1);
}
