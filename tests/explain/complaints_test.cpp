// apiary/tests/explain/complaints_test.cpp - questions that users of other schedulers asked, answered in words.
// SPDX-License-Identifier: MIT
//
// Each case is a question from the issue tracker of another scheduler, on a small cluster. The
// answer is compared word by word: why the gang waits, then what would help. Questions that a host
// asks as a whole are in gang_scheduler/complaints_test.cpp.
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/proof_check.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/cell_names.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <support/levels.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// A cluster with names. Nodes are named n0, n1, ...
struct named_cluster {
  // racks: the nodes of each rack; blocks: the racks of each block, or none.
  named_cluster(std::uint32_t gpus, std::vector<std::uint32_t> racks,
                std::vector<std::uint32_t> blocks = {}, const char* rack_name = "rack",
                const char* block_name = "block")
      : cluster(named(gpus, std::move(racks), std::move(blocks), rack_name, block_name)),
        names(cluster),
        capacities(cluster.tree(), node, gpus),
        capacity(capacities.num_nodes(), gpus) {
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, gpus);
  }
  static named_tree<ragged_tree> named(std::uint32_t gpus, std::vector<std::uint32_t> racks,
                                       std::vector<std::uint32_t> blocks, const char* rack_name,
                                       const char* block_name) {
    chain_spec spec{"gpus", {}};
    std::uint32_t nodes = 0;
    for (const std::uint32_t r : racks) nodes += r;
    const auto numbered = [](const char* letter, std::uint32_t n) {
      std::vector<std::string> all;
      for (std::uint32_t i = 0; i < n; ++i) all.push_back(letter + std::to_string(i));
      return all;
    };
    const auto num_racks = static_cast<std::uint32_t>(racks.size());
    const auto num_blocks = static_cast<std::uint32_t>(blocks.size());
    if (num_blocks > 0)
      spec.levels.push_back({block_name, {num_blocks}, numbered("b", num_blocks)});
    spec.levels.push_back({rack_name, num_blocks > 0 ? std::move(blocks) : std::vector{num_racks},
                           numbered("r", num_racks)});
    spec.levels.push_back({"node", std::move(racks), numbered("n", nodes)});
    spec.levels.push_back({"gpu", {gpus}, {}});
    return named_tree<ragged_tree>::create(spec).value();
  }

  // Nothing is free on these nodes.
  void fill(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t n = first; n < last; ++n) capacities.set(n, 0);
  }
  // Why the gang waits, and what would help.
  std::string ask(const topology_constraints& gang) {
    REQUIRE(gang.fault(node, capacities.top()).empty());
    topology_fit<ragged_tree> fit;
    const auto found = fit(capacities, gang, hosts);
    if (found.verdict == fit_verdict::fits)
      return "the gang fits in " + names.cell(found.level, found.cell);
    REQUIRE(found.verdict == fit_verdict::does_not_fit);
    const infeasibility_proof why = fit.explain(capacities, gang, hosts);
    REQUIRE(proof_check(capacities.tree(), node, capacities.free(), hosts, gang)(why));
    const auto verdict = [&](const topology_constraints& other) {
      return fit(capacities, other, hosts).verdict;
    };
    const std::string text = why.text(gang, names, blocking_resources(gang, verdict));
    unblock_search<ragged_tree> search;
    return text + "; " + search(capacities, gang, capacity, hosts, host_capacity).text(names);
  }

  named_tree<ragged_tree> cluster;
  cell_names names;
  capacity_index<ragged_tree> capacities;
  std::vector<std::uint32_t> capacity;
  std::vector<resources> hosts;
  std::vector<resources> host_capacity;
};

}  // namespace

// Kueue 11953: three roles of a training job, each with several tasks, must share a rack.
TEST_CASE("several roles in one rack") {
  named_cluster c(8, {4, 4});
  c.capacities.set(0, 3);
  c.capacities.set(5, 2);
  c.capacities.set(6, 5);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 8}, {.tasks = 3, .gpus = 4}, {.tasks = 2, .gpus = 1}};
  gang.required = rack;
  CHECK(c.ask(gang) ==
        "the gang needs 30 free GPUs in one rack for its 2 tasks of 8 GPUs, 3 tasks of 4 GPUs and "
        "2 tasks of 1 GPU; rack r0 has the most that the tasks can use: 26; the gang would fit if "
        "node n0 in rack r0 were free (5 more GPUs)");
}

// Slurm, segments: 36 nodes in segments of 12, on three blocks of 17 nodes.
TEST_CASE("segments of a job in blocks of nodes") {
  named_cluster c(8, {17, 17, 17}, {}, "block");
  topology_constraints gang;
  gang.groups = {{.tasks = 36, .gpus = 8, .slices = {{rack, 12}}}};
  CHECK(c.ask(gang) == "the gang fits in the cluster");
  c.fill(17, 24);
  CHECK(c.ask(gang) ==
        "the gang needs 3 slices of 12 free nodes of 8 GPUs, each slice in one block; the cluster "
        "has 2; block r1 comes closest to another: 10 of 12 nodes; without its slices it would "
        "fit; the gang would fit if nodes n17 and n18 were free (16 more GPUs)");
  // A job that is no multiple of its segments.
  gang.groups[0].tasks = 40;
  CHECK(gang.fault(node, c.capacities.top()) ==
        "task group 0: slices of 12 tasks (level 2) do not divide its 40 tasks");
}

// Volcano 1295: a task asks for 73 CPUs, and no node has more than 72. It waits for ever.
TEST_CASE("a task asks for more CPUs than any node has") {
  named_cluster c(8, {2});
  c.hosts.assign(2, {.cpu_milli = 72'000, .memory_mib = 1'024 * 1'024});
  c.host_capacity = c.hosts;
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1, .host = {.cpu_milli = 73'000}}};
  CHECK(c.ask(gang) ==
        "the gang needs capacity for 1 task of 1 GPU with 73 CPUs; the cluster has none; without "
        "its CPU request it would fit; the gang does not fit even if all nodes are free");
  gang.groups = {{.tasks = 1, .gpus = 9}};
  CHECK(c.ask(gang) ==
        "each task needs 9 GPUs on one node; a node has at most 8; the gang does not fit even if "
        "all nodes are free");
}

// Volcano 2100: the scheduler says that a resource does not fit, but not which one.
TEST_CASE("the resource that does not fit is named") {
  named_cluster c(8, {4});
  c.host_capacity.assign(4, {.cpu_milli = 64'000, .memory_mib = 512 * 1'024});
  c.hosts = c.host_capacity;
  c.hosts[1].memory_mib = 100 * 1'024;
  c.hosts[3].memory_mib = 200 * 1'024;
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 8, .host = {.cpu_milli = 32'000, .memory_mib = 256 * 1'024}}};
  CHECK(c.ask(gang) ==
        "the gang needs 3 nodes with 8 free GPUs, 32 free CPUs and 256 GiB of free memory each; "
        "the cluster has 2; without its memory request it would fit; the gang would fit if node n1 "
        "were free (the GPUs are free, but CPU or memory is not)");
}

// Volcano 4116: each task of a job could be placed alone, but not all of them together.
TEST_CASE("each task fits alone, but not all together") {
  named_cluster c(8, {3});
  c.capacities.set(0, 6);
  c.capacities.set(1, 5);
  c.capacities.set(2, 3);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 4}, {.tasks = 2, .gpus = 3}};
  CHECK(c.ask(gang) ==
        "the gang needs 14 free GPUs for its 2 tasks of 4 GPUs and 2 tasks of 3 GPUs; the cluster "
        "has 13 that the tasks can use; the gang would fit if node n0 were free (2 more GPUs)");
}
