// apiary/tests/gang/proof_text_test.cpp - the sentence about a proof: tasks, nodes, slices and replicas.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
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

const cell_names level_names{"GPU", "node", "rack", "block"};

// A proof about these groups, for racks.
infeasibility_proof proof_about(std::vector<std::uint32_t> groups,
                                std::vector<std::uint32_t> tasks) {
  infeasibility_proof why{.level = rack, .node_level = node, .node_gpus = 8};
  why.groups = std::move(groups);
  why.tasks = std::move(tasks);
  return why;
}
// The sentence if n tasks of group k of the proof are needed, and the only cell holds `most`.
std::string counted(infeasibility_proof why, const topology_constraints& gang, std::size_t k,
                    std::uint64_t n, std::uint64_t most = 0) {
  std::vector<std::uint32_t> weights(why.groups.size(), 0);
  weights[k] = 1;
  why.weighings = {{weights, n}};
  why.cells = {{0, 0, most, {}}};
  return why.text(gang, level_names);
}
// The sentence if the only cell holds no more than these combinations of tasks.
std::string listed(infeasibility_proof why, const topology_constraints& gang,
                   std::vector<std::uint32_t> counts) {
  why.cells = {{0, infeasibility_proof::listed, 0, std::move(counts)}};
  return why.text(gang, level_names);
}
// The sentence if all GPUs together are too few.
std::string of_gpus(infeasibility_proof why, const topology_constraints& gang) {
  infeasibility_proof::weighing w;
  for (std::size_t k = 0; k < why.groups.size(); ++k) {
    w.weights.push_back(static_cast<std::uint32_t>(detail::needs_of(gang, why.groups[k]).milli));
    w.needed += std::uint64_t{w.weights[k]} * why.tasks[k];
  }
  why.weighings = {w};
  why.cells = {{0, 0, 0, {}}};
  return why.text(gang, level_names);
}

}  // namespace

TEST_CASE("text of a proof: tasks, nodes and slices") {
  topology_constraints gang{.groups = {{.tasks = 4, .gpus = 8, .slices = {{rack, 2}, {block, 4}}},
                                       {.tasks = 3, .gpus = 5},
                                       {.tasks = 6, .gpus = 2, .host = {2'500, 4'096}},
                                       {.tasks = 2, .gpus = 2, .host = {2'500, 4'096}},
                                       {.tasks = 1, .gpus = 1},
                                       {.tasks = 4, .gpus = 8}},
                            .required = rack};
  const infeasibility_proof why = proof_about({0, 1, 2, 3, 4, 5}, {4, 3, 6, 2, 1, 4});
  const std::string none = " in one rack; rack 0 has none";
  CHECK(counted(why, gang, 5, 1) == "the gang needs 1 free node of 8 GPUs" + none);
  CHECK(counted(why, gang, 5, 4) == "the gang needs 4 free nodes of 8 GPUs" + none);
  CHECK(counted(why, gang, 1, 3) == "the gang needs 3 nodes with 5 free GPUs each" + none);
  CHECK(counted(why, gang, 1, 1) == "the gang needs 1 node with 5 free GPUs" + none);
  const std::string asked = "6 tasks of 2 GPUs with 2.5 CPUs and 4 GiB of memory (task group 2)";
  CHECK(counted(why, gang, 2, 6) == "the gang needs capacity for " + asked + none);
  CHECK(counted(why, gang, 4, 2, 1) ==
        "the gang needs capacity for 2 tasks of 1 GPU in one rack; rack 0 has 1");
  // A slice is not above the level of the proof.
  const std::string each = " in one rack, each slice in one rack; rack 0 has ";
  CHECK(counted(why, gang, 0, 4, 2) ==
        "the gang needs 2 slices of 2 free nodes of 8 GPUs" + each + "1");
  CHECK(counted(why, gang, 0, 2) ==
        "the gang needs 1 slice of 2 free nodes of 8 GPUs" + each + "none");
  const std::string others =
      "2 tasks of 2 GPUs with 2.5 CPUs and 4 GiB of memory (task group 3), 1 task of 1 GPU";
  CHECK(listed(why, gang, {2, 3, 0, 2, 1, 0}) ==
        "the gang needs capacity for 2 slices of 2 free nodes of 8 GPUs, 3 tasks of 5 GPUs, " +
            asked + ", " + others +
            " and 4 tasks of 8 GPUs (task group 5) in one rack; rack 0 can " +
            "hold 1 slice of 2 free nodes of 8 GPUs, 3 tasks of 5 GPUs, " +
            others.substr(0, others.find(", 1 task")) + " and 1 task of 1 GPU");
  CHECK(of_gpus(why, gang) ==
        "the gang needs 96 free GPUs in one rack for its 8 tasks of 8 GPUs, 3 tasks of 5 GPUs, "
        "8 tasks of 2 GPUs and 1 task of 1 GPU; rack 0 has 0 that the tasks can use");
  gang.groups[2].spread = {{node, 1}};
  CHECK(counted(why, gang, 2, 6) ==
        "the gang needs 6 nodes with 2 free GPUs, 2.5 free CPUs and 4 GiB of free memory each" +
            none);
  gang.groups[1].slices = {{node, 3}};
  gang.required = any_level;
  CHECK(counted(why, gang, 1, 3) ==
        "the gang needs 1 slice of 3 tasks of 5 GPUs, each slice on one node; rack 0 has none");
}

TEST_CASE("text of a proof: leaders, and more sizes than a sentence lists") {
  const topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1},
                                             {.tasks = 8, .gpus = 1, .leader = 0},
                                             {.tasks = 1, .gpus = 2},
                                             {.tasks = 1, .gpus = 3},
                                             {.tasks = 1, .gpus = 4},
                                             {.tasks = 1, .gpus = 7}}};
  infeasibility_proof why = proof_about({0, 2, 3, 4, 5}, {2, 1, 1, 1, 1});
  why.node_gpus = 16;
  CHECK(counted(why, gang, 0, 2) ==
        "the gang needs capacity for 2 sets of tasks that share a node (5 GPUs); rack 0 has none");
  CHECK(of_gpus(why, gang) == "the gang needs 26 free GPUs; rack 0 has 0 that the tasks can use");
  why.node_gpus = 4;
  CHECK(counted(why, gang, 0, 2) ==
        "each leader of 1 GPU and its 4 workers of 1 GPU need 5 GPUs on one node; a node has at "
        "most 4");
}

TEST_CASE("text of a proof: nodes only if no way to place two tasks on a node exists") {
  const infeasibility_proof why = proof_about({0}, {4});
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
    const std::string text = counted(why, gang, 0, 4);
    CAPTURE(text);
    REQUIRE((text.find("task") == std::string::npos) == (most == 1 && !sliced));
    alone += most == 1 && !sliced ? 1U : 0U;
  }
  CHECK(alone > 0);
}

TEST_CASE("text of a proof: replicas, fractions of GPUs and a level without a cell") {
  topology_constraints gang{
      .groups = {{.tasks = 2, .gpus = 1, .gpu_milli = 250},
                 {.tasks = 6, .gpus = 0, .host = {500, 1'000}, .leader = 0, .leader_level = node},
                 {.tasks = 4, .gpus = 2, .leader = 0, .leader_level = block}},
      .required = node};
  infeasibility_proof why = proof_about({0, 1, 2}, {2, 6, 4});
  const std::string none = " in one rack; rack 0 has none";
  CHECK(counted(why, gang, 0, 1) == "the gang needs capacity for 1 task of 0.25 GPUs" + none);
  // A replica below the rack of the proof; one above it is no slice, nor is one as large as it.
  CHECK(counted(why, gang, 1, 6) ==
        "the gang needs 2 replicas of 3 tasks of 0.5 CPUs with 1000 MiB of memory in one rack, "
        "each replica on one node; rack 0 has none");
  const std::string four = "the gang needs capacity for 4 tasks of 2 GPUs";
  CHECK(counted(why, gang, 2, 4) == four + none);
  gang.groups[2].leader_level = rack;
  CHECK(counted(why, gang, 2, 4) == four + none);
  why.level = node;
  CHECK(counted(why, gang, 2, 4) == four + " on one node; node 0 has none");
  why.level = rack;
  CHECK(of_gpus(why, gang) ==
        "the gang needs 8.5 free GPUs in one rack for its 2 tasks of 0.25 GPUs and 4 tasks of 2 "
        "GPUs; rack 0 has 0 that the tasks can use");
}

TEST_CASE("text of a proof: a gang of nothing but replicas of one kind is counted in replicas") {
  topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1},
                                       {.tasks = 4, .gpus = 2, .leader = 0, .leader_level = node},
                                       {.tasks = 2, .gpus = 8, .leader = 0, .leader_level = node}},
                            .required = rack};
  const infeasibility_proof why = proof_about({0, 1, 2}, {2, 4, 2});
  CHECK(listed(why, gang, {1, 2, 1}) ==
        "the gang needs 2 replicas of 1 task of 1 GPU, 2 tasks of 2 GPUs and 1 task of 8 GPUs in "
        "one rack, each replica on one node; rack 0 has 1");
  const std::string mixed =
      "the gang needs capacity for 2 tasks of 1 GPU, 2 slices of 2 tasks of 2 GPUs and 2 tasks of "
      "8 GPUs in one rack; rack 0 can hold 1 task of 1 GPU, 1 slice of 2 tasks of 2 GPUs and 1 "
      "task of 8 GPUs";
  gang.groups[2].leader_level = rack;  // another kind
  CHECK(listed(why, gang, {1, 2, 1}) == mixed);
  gang.groups[2] = {.tasks = 2, .gpus = 8};  // in no replica
  CHECK(listed(why, gang, {1, 2, 1}) == mixed);
  CHECK(
      listed(proof_about({0}, {2}), gang, {1}) ==
      "the gang needs capacity for 2 tasks of 1 GPU in one rack; rack 0 can hold 1 task of 1 GPU");
}

TEST_CASE("text of a proof: what the gang would fit without") {
  using enum blocking_resource;
  topology_constraints gang{
      .groups = {{.tasks = 1, .gpus = 0, .models = 1}, {.tasks = 2, .gpus = 1}}};
  infeasibility_proof why = proof_about({0, 1}, {1, 2});
  why.weighings = {{{0, 1}, 2}};
  why.cells = {{0, 0, 1, {}}};
  const std::string text = why.text(gang, level_names);
  const std::vector<blocking_resource> itself{gpus};
  CHECK(why.text(gang, level_names, itself) == text);  // a task without GPUs runs on any model
  const std::vector<blocking_resource> some{spread, cpu};
  CHECK(why.text(gang, level_names, some) ==
        text + "; without its CPU request and its anti-affinity it would fit");
  gang.groups[1].models = 1;
  CHECK(why.text(gang, level_names, itself) ==
        text + "; without its GPU models it would not fit either");
  gang.groups[0] = {.tasks = 1, .host = {5, 6}, .slices = {{rack, 1}}, .spread = {{node, 1}}};
  CHECK(why.text(gang, level_names, itself) ==
        text +
            "; without its memory request, its CPU request, its GPU models, its slices and its "
            "anti-affinity it would not fit either");
}
