// apiary/tests/gang/detail/proof_phrases_test.cpp - phrases of the sentences about a proof.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/detail/proof_phrases.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/cell_names.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <support/levels.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

struct phrases : detail::proof_phrases {
  phrases(const infeasibility_proof& why, const topology_constraints& gang, const cell_names& names)
      : proof_phrases(why, gang, names) {}
  using proof_phrases::in_one_cell, proof_phrases::is_leader, proof_phrases::is_one_on_a_node,
      proof_phrases::largest_slice, proof_phrases::leader_and_workers, proof_phrases::slices_of,
      proof_phrases::tasks_of, proof_phrases::tasks_of_gang, proof_phrases::things;
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
  CHECK(of.tasks_of(4, 1) == "1 task of 1 GPU");
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
  CHECK(of.leader_and_workers(0) == "each leader of 1 GPU and its 2 workers of 3 GPUs");
  CHECK(of.tasks_of_gang().empty());
}

TEST_CASE("proof_phrases: one on a node only if no way to place two of them on a node exists") {
  const infeasibility_proof why = proof_about({0}, {1});
  std::uint64_t alone = 0;
  for (std::uint64_t seed = 0; seed < scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    topology_constraints gang{.groups = {{.tasks = 4, .gpus = 1 + random.uniform(8)}}};
    constrained_task_group& group = gang.groups[0];
    if (group.gpus == 1 && random.uniform(2) == 0)
      group.gpu_milli = static_cast<milli_gpu>(100 * (1 + random.uniform(9)));
    if (random.uniform(3) == 0) group.spread = {{node + random.uniform(2), 1 + random.uniform(3)}};
    if (random.uniform(4) == 0) group.slices = {{node + random.uniform(2), 1 + random.uniform(3)}};
    // Tasks that an idle node of 8 GPUs holds. A slice on one node is not split.
    std::uint32_t most =
        group.gpu_milli < whole_gpu ? 8 * (whole_gpu / group.gpu_milli) : 8 / group.gpus;
    for (const level_count& s : group.spread)
      if (s.level == node) most = std::min(most, s.tasks);
    bool sliced = false;
    for (const level_count& s : group.slices) sliced = sliced || (s.level == node && s.tasks > 1);
    const phrases of(why, gang, level_names);
    REQUIRE(of.is_one_on_a_node(0) == (most == 1 && !sliced));
    alone += most == 1 && !sliced ? 1U : 0U;
  }
  CHECK(alone > 0);
}

TEST_CASE("proof_phrases: replicas, fractions of GPUs and a level without a cell") {
  topology_constraints gang{
      .groups = {{.tasks = 2, .gpus = 1, .gpu_milli = 250},
                 {.tasks = 6, .gpus = 0, .host = {500, 1'000}, .leader = 0, .leader_level = node},
                 {.tasks = 2, .gpus = 2, .leader = 0, .leader_level = block}},
      .required = node};
  infeasibility_proof why = proof_about({0, 1, 2}, {2, 6, 2});
  const phrases of(why, gang, level_names);
  CHECK(of.largest_slice(1) == level_count{node, 3});  // a replica is below the rack of the proof
  CHECK(of.largest_slice(2) == level_count{});         // this one is above it
  CHECK(of.slices_of(1, 6) == "2 slices of 3 tasks of 0.5 CPUs with 1000 MiB of memory");
  CHECK(of.tasks_of(0, 1) == "1 task of 0.25 GPUs");
  CHECK(of.tasks_of_gang() == " for its 2 tasks of 0.25 GPUs and 2 tasks of 2 GPUs");
  gang.groups[2].leader_level = rack;
  CHECK(of.largest_slice(2) == level_count{});  // as large as the cell of the proof
  why.level = node;
  CHECK(of.in_one_cell() == " on one node");
}
