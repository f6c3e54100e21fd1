// apiary/tests/gang/detail/proof_words_test.cpp - words and phrases of the sentences about a proof.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/detail/proof_phrases.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/cell_names.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <support/levels.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

struct phrases : detail::proof_phrases {
  phrases(const infeasibility_proof& why, const topology_constraints& gang, const cell_names& names)
      : proof_phrases(why, gang, names) {}
  using proof_phrases::in_one_cell, proof_phrases::is_leader, proof_phrases::is_one_on_a_node,
      proof_phrases::largest_slice, proof_phrases::on_one_node, proof_phrases::slices_of,
      proof_phrases::task, proof_phrases::tasks_of, proof_phrases::tasks_of_gang,
      proof_phrases::things;
};

infeasibility_proof proof_about(std::vector<std::uint32_t> groups,
                                std::vector<std::uint32_t> tasks) {
  infeasibility_proof why{.level = rack, .node_level = node, .node_gpus = 8};
  why.groups = std::move(groups);
  why.tasks = std::move(tasks);
  return why;
}
const cell_names level_names{"GPU", "node", "rack", "block"};

}  // namespace

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

TEST_CASE("proof_phrases: tasks, nodes and slices") {
  topology_constraints gang{.groups = {{.tasks = 4, .gpus = 8, .slices = {{rack, 2}, {block, 4}}},
                                       {.tasks = 3, .gpus = 5},
                                       {.tasks = 6, .gpus = 2, .host = {2'500, 4'096}},
                                       {.tasks = 2, .gpus = 2, .host = {2'500, 4'096}},
                                       {.tasks = 1, .gpus = 1}},
                            .required = rack};
  const infeasibility_proof why = proof_about({0, 1, 2, 3, 4}, {4, 3, 6, 2, 1});
  const phrases of(why, gang, level_names);
  CHECK(of.in_one_cell() == " in one rack");
  CHECK(of.things(0, 1, true) == "1 free node of 8 GPUs");
  CHECK(of.things(0, 4, true) == "4 free nodes of 8 GPUs");
  CHECK(of.things(1, 3, true) == "3 nodes with 5 free GPUs each");
  CHECK(of.things(1, 1, true) == "1 node with 5 free GPUs");
  CHECK(of.things(1, 3, false) == "3 tasks of 5 GPUs");
  CHECK(of.tasks_of(2, 6) == "6 tasks of 2 GPUs with 2.5 CPUs and 4 GiB of memory (task group 2)");
  CHECK(of.task(4) == "a task of 1 GPU");
  CHECK(of.largest_slice(0) == level_count{rack, 2});  // not above the level of the proof
  CHECK(of.largest_slice(1) == level_count{});
  CHECK(of.slices_of(0, 4) == "2 slices of 2 free nodes of 8 GPUs");
  CHECK(of.slices_of(0, 2) == "1 slice of 2 free nodes of 8 GPUs");
  CHECK(of.slices_of(1, 3) == "3 tasks of 5 GPUs");
  CHECK(of.tasks_of_gang() ==
        " for its 4 tasks of 8 GPUs, 3 tasks of 5 GPUs, 8 tasks of 2 GPUs and 1 task of 1 GPU");
  CHECK(of.is_one_on_a_node(1));
  CHECK(!of.is_one_on_a_node(2));
  gang.groups[2].spread = {{node, 1}};
  CHECK(of.is_one_on_a_node(2));
  gang.groups[1].slices = {{node, 3}};
  CHECK(!of.is_one_on_a_node(1));
  gang.required = any_level;
  CHECK(of.in_one_cell().empty());
}

TEST_CASE("proof_phrases: leaders, and more sizes than a sentence lists") {
  const topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1},
                                             {.tasks = 4, .gpus = 3, .leader = 0},
                                             {.tasks = 1, .gpus = 2},
                                             {.tasks = 1, .gpus = 3},
                                             {.tasks = 1, .gpus = 4},
                                             {.tasks = 1, .gpus = 5}}};
  const infeasibility_proof why = proof_about({0, 2, 3, 4, 5}, {2, 1, 1, 1, 1});
  const phrases of(why, gang, level_names);
  CHECK(of.is_leader(0));
  CHECK(!of.is_leader(1));
  CHECK(of.tasks_of(0, 2) == "2 sets of tasks that share a node (7 GPUs)");
  CHECK(of.on_one_node(0) == " on one node with the tasks that share the node");
  CHECK(of.on_one_node(1) == " on one node");
  CHECK(of.tasks_of_gang().empty());
}
