// apiary/tests/gang_scheduler/complaints_test.cpp - what users of other schedulers asked, as a host asks it.
// SPDX-License-Identifier: MIT
//
// Each case is a question from the issue tracker or the documentation of another scheduler, on a
// small cluster. The whole sentence that a user gets is compared word by word.
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// Racks of so many nodes of 8 GPUs and 64 CPUs, named r1, r2, ...; their nodes are n1, n2, ...
// `in_block`: so many racks are in each block b1, b2, ...
struct asked_cluster {
  explicit asked_cluster(const std::vector<std::uint32_t>& racks, const char* level = "rack",
                         std::size_t in_block = 0)
      : s(gang_scheduler::create(described(racks, level, in_block)).value()) {}
  static gang_cluster described(const std::vector<std::uint32_t>& racks, const char* level,
                                std::size_t in_block) {
    gang_cluster all{.levels = {level}};
    if (in_block > 0) all.levels.emplace_back("block");
    for (std::size_t r = 0; r < racks.size(); ++r)
      for (std::uint32_t i = 0; i < racks[r]; ++i) {
        gang_cluster::node& n = all.nodes.emplace_back();
        n = {.name = "n" + std::to_string(all.nodes.size()), .gpus = 8, .host = {64'000, 524'288}};
        n.cells = {"r" + std::to_string(r + 1)};
        if (in_block > 0) n.cells.push_back("b" + std::to_string(r / in_block + 1));
      }
    return all;
  }
  // A gang that runs on nodes first, ..., last, with so many GPUs on each.
  void run(const job_key& job, std::uint32_t first, std::uint32_t last, std::uint32_t gpus,
           std::int32_t priority = 0, resources host = {}) {
    gang_scheduler::request r{.job = job, .priority = priority};
    r.gang.groups = {{.tasks = last - first + 1, .gpus = gpus, .host = host}};
    std::vector<std::string> names;
    for (std::uint32_t n = first; n <= last; ++n) names.push_back("n" + std::to_string(n));
    r.filter.nodes = names;
    if (first != last || gpus == 0 || gpus == 8) r.gang.groups[0].spread = {{0, 1}};
    const auto plan = s.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(plan->result == plan_result::bind);
    REQUIRE(s.commit(*plan).ok());
  }
  std::string ask(const gang_scheduler::request& r) { return s.explain(r).value().text; }

  gang_scheduler s;
};

constexpr level_t rack_level = 1;
constexpr level_t block = 2;

}  // namespace

// Volcano 5984: a task needs the GPUs of one victim; ten victims are evicted.
TEST_CASE("Volcano 5984: one victim is enough, ten are evicted") {
  asked_cluster c({1});
  for (std::uint32_t j = 1; j <= 8; ++j) c.run("small-" + std::to_string(j), 1, 1, 1);
  gang_scheduler::request urgent{.job = "urgent", .priority = 100};
  urgent.gang.groups = {{.tasks = 1, .gpus = 1}};
  CHECK(c.ask(urgent) ==
        "job urgent can start on node n1 when job small-1 has been preempted; no other choice "
        "costs less");
}

// Kueue 5243: on each of four nodes six important jobs of one GPU and two others run. All the
// others are evicted for a task of 8 GPUs, which then waits: no node is free.
TEST_CASE("Kueue 5243: preemption frees 8 GPUs, but not on one node") {
  asked_cluster c({4});
  for (std::uint32_t n = 1; n <= 4; ++n) {
    c.run("important-" + std::to_string(n), n, n, 6, 10);
    c.run("batch-" + std::to_string(n), n, n, 2);
  }
  gang_scheduler::request whole{.job = "whole-node", .priority = 10};
  whole.gang.groups = {{.tasks = 1, .gpus = 8}};
  CHECK(c.ask(whole) ==
        "job whole-node waits: the gang needs 1 free node of 8 GPUs; the cluster has none; it "
        "would fit if node n1 were free (8 more GPUs)");
}

// KAI-Scheduler 1591: a gang must be in one clique; every clique is full of gangs that it may
// preempt, and it waits for ever. It could have the clique whose gangs cost least.
TEST_CASE("KAI 1591: a gang that must be in one clique preempts in a full one") {
  asked_cluster c({4, 4}, "clique");
  c.run("a", 1, 4, 8, 5);
  c.run("b", 5, 6, 8, 1);
  c.run("c", 7, 8, 8, 1);
  gang_scheduler::request gang{.job = "train", .priority = 9};
  gang.gang.groups = {{.tasks = 4, .gpus = 8}};
  gang.gang.required = rack_level;
  CHECK(c.ask(gang) ==
        "job train can start on nodes n5, n6, n7 and n8 in clique r2 when jobs b and c have been "
        "preempted; no other choice costs less");
  gang.priority = 0;
  CHECK(c.ask(gang) ==
        "job train waits: the gang needs 4 free nodes of 8 GPUs in one clique; no clique has any; "
        "it would fit if nodes n1, n2, n3 and n4 were free (32 more GPUs)");
}
// The same with a clique that is only preferred: of victims that cost the same, those in one
// clique; and nothing is preempted only to be in one clique.
TEST_CASE("KAI 1591: victims respect the preferred clique") {
  asked_cluster c({2, 2}, "clique");
  for (const std::uint32_t n : {1U, 2U, 3U, 4U}) c.run("old-" + std::to_string(n), n, n, 8);
  REQUIRE(c.s.finish("old-1").ok());
  c.run("fixed", 1, 1, 8, 9);
  gang_scheduler::request gang{.job = "train", .priority = 5};
  gang.gang.groups = {{.tasks = 2, .gpus = 8}};
  gang.gang.preferred = rack_level;
  CHECK(c.ask(gang) ==
        "job train can start on nodes n3 and n4 in clique r2 when jobs old-3 and old-4 have been "
        "preempted; no other choice costs less");
  REQUIRE(c.s.finish("old-2").ok());
  REQUIRE(c.s.finish("old-3").ok());
  CHECK(c.ask(gang) == "job train can start now on nodes n2 and n3");
  gang.gang.required = rack_level;
  CHECK(c.ask(gang) ==
        "job train can start on nodes n3 and n4 in clique r2 when job old-4 has been preempted; no "
        "other choice costs less");
}

// Kueue 9046: 96 tasks in slices of 48 in a block, each in slices of 16 in a rack. The user wants
// to know at which level slices are missing.
TEST_CASE("Kueue 9046: slices in blocks and in racks") {
  asked_cluster c({18, 18, 18, 18, 18, 18}, "rack", 3);
  gang_scheduler::request gang{.job = "moe"};
  gang.gang.groups = {{.tasks = 96, .gpus = 8, .slices = {{rack_level, 16}, {block, 48}}}};
  CHECK(c.s.propose(gang)->result == plan_result::bind);
  c.run("other", 91, 94, 8);  // four nodes of rack r6
  CHECK(c.ask(gang) ==
        "job moe waits: the gang needs 2 slices of 48 free nodes of 8 GPUs, each slice in one "
        "block and each 16 nodes of it in one rack; the cluster has 1; block b2 comes closest to "
        "another: 32 of 48 nodes; rack r6 comes closest to another: 14 of 16 nodes; without its "
        "slices it would fit; it would fit if nodes n91 and n92 were free (16 more GPUs)");
}

// Kueue 7446 and 11953: each leader, which needs no GPU, and its workers must be in one rack;
// different replicas may be in different racks, and there may be more than one leader.
TEST_CASE("Kueue 7446 and 11953: a leader and its workers in one rack for each replica") {
  asked_cluster c({4, 4});
  gang_scheduler::request gang{.job = "lws"};
  gang.gang.groups = {{.tasks = 2, .gpus = 0, .host = {.cpu_milli = 16'000}},
                      {.tasks = 8,
                       .gpus = 8,
                       .host = {.cpu_milli = 32'000},
                       .leader = 0,
                       .leader_level = rack_level}};
  const auto plan = c.s.propose(gang);
  REQUIRE(plan.ok());
  REQUIRE(plan->result == plan_result::bind);
  for (std::size_t replica = 0; replica < 2; ++replica)
    for (std::size_t worker = 0; worker < 4; ++worker)
      CHECK(plan->tasks[replica].node.value / 4 ==
            plan->tasks[2 + 4 * replica + worker].node.value / 4);
  // Rack r2 has the GPUs for four workers, but not the CPU for their leader.
  c.run("cpu-1", 5, 8, 0, 0, {.cpu_milli = 20'000});
  CHECK(c.ask(gang) ==
        "job lws waits: the gang needs 2 replicas of 1 task of 16 CPUs and 4 tasks of 8 GPUs with "
        "32 CPUs, each replica in one rack; the cluster has 1; without its CPU request it would "
        "fit; it would fit if node n5 were free (the GPUs are free, but CPU or memory is not)");
  c.run("gpu-1", 5, 5, 8);
  CHECK(c.ask(gang) ==
        "job lws waits: the gang needs 2 replicas of 4 nodes with 8 free GPUs and 32 free CPUs "
        "each, each replica in one rack; the cluster has 1; rack r2 comes closest to another: 3 of "
        "4 nodes; without its CPU request it would not fit either; it would fit if node n5 were "
        "free (8 more GPUs)");
}

// Slurm, --segment: 40 nodes in segments of 16 are 16 + 16 + 8 nodes, each in one block.
TEST_CASE("Slurm: segments that do not divide the job") {
  asked_cluster c({18, 18, 18}, "block");
  gang_scheduler::request gang{.job = "mpi"};
  gang.gang.groups = {{.tasks = 40, .gpus = 8, .slices = {{rack_level, 16}}}};
  const auto plan = c.s.propose(gang);
  REQUIRE(plan.ok());
  REQUIRE(plan->result == plan_result::bind);
  for (std::size_t t = 0; t < 40; ++t)
    CHECK(plan->tasks[t].node.value / 18 == plan->tasks[t / 16 * 16].node.value / 18);
  c.run("other", 19, 29, 8);  // 7 nodes of block r2 are free
  CHECK(c.ask(gang) ==
        "job mpi waits: the gang needs 2 slices of 16 free nodes of 8 GPUs and 1 slice of 8 free "
        "nodes of 8 GPUs, each slice in one block; the cluster can hold 2 slices of 16 free nodes "
        "of 8 GPUs, or 1 slice of 16 free nodes of 8 GPUs and 1 slice of 8 free nodes of 8 GPUs; "
        "without its slices it would fit; it would fit if node n19 were free (8 more GPUs)");
}

// Kueue 14244: a node of a running gang fails. It must be replaced in the rack of the gang, and the
// tasks that run on count.
TEST_CASE("Kueue 14244: a failed node is replaced inside the rack of the gang") {
  asked_cluster c({4, 4});
  c.run("small", 4, 4, 1);
  gang_scheduler::request gang{.job = "train"};
  gang.gang.groups = {{.tasks = 3, .gpus = 8}};
  gang.gang.required = rack_level;
  gang.filter.nodes = {"n1", "n2", "n3", "n4"};
  REQUIRE(c.s.commit(c.s.propose(gang).value()).ok());
  REQUIRE(c.s.mark_bad(c.s.find_node("n3").value()).ok());
  CHECK(c.s.explain_replacement("train")->text ==
        "job train cannot move 1 task from node n3 now: its other tasks are in rack r1, and it "
        "must stay in one rack; it could if node n4 were free (1 more GPU)");
  REQUIRE(c.s.finish("small").ok());
  const auto e = c.s.explain_replacement("train");
  CHECK(e->text == "job train can move 1 task from node n3 to node n4 now");
  CHECK(e->plan.replaced == std::vector<std::uint32_t>{2});
  REQUIRE(c.s.commit(e->plan).ok());
  CHECK(c.s.find("train")->tasks[2] == placement{c.s.find_node("n4").value(), 255});
  REQUIRE(c.s.mark_bad(c.s.find_node("n4").value()).ok());
  CHECK(c.s.explain_replacement("train")->text ==
        "job train cannot move 1 task from node n4 now: its other tasks are in rack r1, and it "
        "must stay in one rack; it could if node n4 were healthy again");
}

// Volcano 1297: the job waits, and the message does not say of what there is not enough.
TEST_CASE("Volcano 1297: what is short is named, with numbers") {
  asked_cluster c({4});
  c.run("cpu", 1, 2, 0, 0, {.cpu_milli = 48'000});
  gang_scheduler::request gang{.job = "ps"};
  gang.gang.groups = {{.tasks = 3, .gpus = 8, .host = {.cpu_milli = 32'000}}};
  CHECK(c.ask(gang) ==
        "job ps waits: the gang needs 3 nodes with 8 free GPUs and 32 free CPUs each; the cluster "
        "has 2; without its CPU request it would fit; it would fit if node n1 were free (the GPUs "
        "are free, but CPU or memory is not)");
  gang.gang.groups[0].host.cpu_milli = 73'000;
  CHECK(c.ask(gang) ==
        "job ps can never start in this cluster, even if it is idle: the gang needs 3 nodes with 8 "
        "free GPUs and 73 free CPUs each; the cluster has none; without its CPU request it would "
        "fit");
}

// KAI-Scheduler 2058: a job of 16 GPUs waits although 16 GPUs are free; the user wants the one
// reason that counts, in plain words, and the next step.
TEST_CASE("KAI 2058: 16 GPUs are free and a job of 16 GPUs waits") {
  asked_cluster c({4});
  for (std::uint32_t n = 1; n <= 4; ++n) c.run("half-" + std::to_string(n), n, n, 4);
  gang_scheduler::request gang{.job = "train"};
  gang.gang.groups = {{.tasks = 2, .gpus = 8}};
  CHECK(c.ask(gang) ==
        "job train waits: the gang needs 2 free nodes of 8 GPUs; the cluster has none; it would "
        "fit if nodes n1 and n2 were free (8 more GPUs)");
}

// Nodes that a gang may not run on because of their taints are none of those that the counts are about.
TEST_CASE("taints: a sentence says which nodes do not count, and that a toleration would help") {
  gang_cluster all{.levels = {"rack"}};
  for (int i = 0; i < 4; ++i)
    all.nodes.push_back({.name = "n" + std::to_string(i),
                         .cells = {"r0"},
                         .gpus = 8,
                         .model = "h100",
                         .taints = {"maint"}});
  all.nodes.push_back({.name = "n4", .cells = {"r1"}, .gpus = 2, .model = "h100"});
  gang_scheduler s = gang_scheduler::create(all).value();
  const auto ask = [&](const gang_scheduler::request& r) { return s.explain(r).value().text; };
  gang_scheduler::request train{.job = "train"};
  train.gang.groups = {{.tasks = 1, .gpus = 8}};
  const std::string never =
      "job train can never start in this cluster, even if it is idle: the gang needs ";
  CHECK(
      ask(train) ==
      never +
          "1 free node of 8 GPUs; the cluster has none; it may run only on nodes without taints: 4 "
          "idle nodes of 8 GPUs have the taint \"maint\", which it does not tolerate; if it "
          "tolerated this taint, it would start now");
  train.filter.models = {"h100"};
  train.filter.tolerations = {"gpu"};
  CHECK(
      ask(train) ==
      never +
          "1 free node of 8 GPUs; the cluster has none; it may run only on nodes with GPU model "
          "\"h100\" (taint \"gpu\" is tolerated) without other taints: 4 idle nodes of 8 GPUs have "
          "the taint \"maint\", which it does not tolerate; if it tolerated this taint, it would "
          "start now");
  // No node for which only the taint is wrong: no word about it.
  train.filter = {.nodes = std::vector<std::string>{"n4"}};
  CHECK(ask(train) == never +
                          "1 free node of 8 GPUs; the cluster has none; it may run only on nodes "
                          "\"n4\"");
  train.filter = {};
  train.gang.groups = {{.tasks = 5, .gpus = 2}};
  train.gang.required = rack_level;
  CHECK(
      ask(train) ==
      never +
          "capacity for 5 tasks of 2 GPUs in one rack; rack r1 has the most: 1; it may run only on "
          "nodes without taints: 4 idle nodes of 8 GPUs have the taint \"maint\", which it does "
          "not tolerate; if it tolerated this taint, it would start now");
  // Two taints, one node of them in use; a toleration alone is not enough.
  gang_cluster::node other{
      .name = "n5", .cells = {"r0"}, .gpus = 4, .model = "h100", .taints = {"new", "maint"}};
  REQUIRE(s.add_node(other).ok());
  gang_scheduler::request small{.job = "small"};
  small.gang.groups = {{.tasks = 1, .gpus = 1}};
  small.filter = {.nodes = std::vector<std::string>{"n5"}, .tolerations = {"new", "maint"}};
  REQUIRE(s.commit(s.propose(small).value()).ok());
  train.gang.groups = {{.tasks = 5, .gpus = 8}};
  CHECK(ask(train) ==
        never +
            "5 free nodes of 8 GPUs in one rack; no rack has any; it may run only on nodes without "
            "taints: 4 idle nodes of 8 GPUs have the taint \"maint\", which it does not tolerate");
  train.gang.groups = {{.tasks = 20, .gpus = 2}};
  train.gang.required = any_level;
  CHECK(ask(train) ==
        never +
            "capacity for 20 tasks of 2 GPUs; the cluster has 1; it may run only on nodes without "
            "taints: 5 nodes (4 idle) with 36 GPUs have the taints \"maint\" and \"new\", which it "
            "does not tolerate");
}
TEST_CASE("taints: all nodes have taints; more than eight taints are counted") {
  gang_cluster all;
  for (int i = 0; i < 10; ++i) {
    const std::string number = std::to_string(i);
    all.nodes.push_back({.name = "n" + number, .gpus = 8, .taints = {"t" + number}});
  }
  gang_scheduler s = gang_scheduler::create(all).value();
  gang_scheduler::request train{.job = "train"};
  train.gang.groups = {{.tasks = 10, .gpus = 8}};
  const auto ask = [&] { return s.explain(train).value().text; };
  const std::string never = "job train can never start in this cluster, even if it is idle: ";
  const std::string ten =
      ": 10 idle nodes of 8 GPUs have the taints \"t0\", \"t1\", \"t2\", \"t3\", \"t4\", \"t5\", "
      "\"t6\" "
      "and 3 more, which it does not tolerate";
  const std::string none = "it may run only on nodes without taints; there are none";
  CHECK(ask() == never + none + ten + "; if it tolerated these taints, it would start now");
  train.gang.groups[0].tasks = 11;
  CHECK(ask() == never + none + ten);
  // No task fits on these nodes: their taints do not matter.
  train.gang.groups[0].gpus = 9;
  CHECK(ask() == never + none);
  train.gang.groups[0] = {.tasks = 1, .gpus = 8};
  train.filter = {.nodes = std::vector<std::string>{"n7", "n3"}, .tolerations = {"t7x"}};
  CHECK(
      ask() ==
      never +
          "it may run only on nodes \"n7\" or \"n3\" (taint \"t7x\" is tolerated) without other "
          "taints; there are none: 2 idle nodes of 8 GPUs have the taints \"t3\" and \"t7\", which "
          "it does not tolerate; if it tolerated these taints, it would start now");
}

TEST_CASE("a text of digits is in quotes, for the number is another job") {
  asked_cluster c({1});
  c.run(7, 1, 1, 8);
  gang_scheduler::request r{.job = "7", .priority = 1};
  r.gang.groups = {{.tasks = 1, .gpus = 8}};
  CHECK(c.ask(r) ==
        "job \"7\" can start on node n1 when job 7 has been preempted; no other choice costs less");
  r.gang.groups[0].gpus = 33;
  CHECK(c.s.propose(r).status().message() ==
        "job \"7\": a task of task group 0 asks for 33 GPUs; a node has at most 32");
  CHECK(c.s.finish("7").message() == "job \"7\" does not run");
}

TEST_CASE("bad nodes under a required rack: the rack that can be repaired, and what is bad there") {
  asked_cluster c({4, 4});
  const auto node = [&](const char* name) { return c.s.find_node(name).value(); };
  for (const char* name : {"n1", "n2", "n6", "n8"}) REQUIRE(c.s.mark_bad(node(name)).ok());
  REQUIRE(c.s.mark_bad(node("n4"), 0).ok());
  gang_scheduler::request r{.job = "train"};
  r.gang.groups = {{.tasks = 3, .gpus = 8}};
  r.gang.required = rack_level;
  CHECK(
      c.ask(r) ==
      "job train waits: too many nodes or GPUs are bad: in rack r2, 2 of 4 nodes are bad; it would "
      "fit if node n6 were healthy and free (8 more GPUs)");
  r.gang.required = any_level;
  r.gang.groups[0].tasks = 4;
  CHECK(c.ask(r) ==
        "job train waits: too many nodes or GPUs are bad: 4 of 8 nodes are bad, and 1 GPU of the "
        "others; it would fit if node n4 were healthy and free (1 more GPU)");
  r.filter.nodes = std::vector<std::string>{"n8", "n7", "n3", "n6", "n5"};
  CHECK(c.ask(r) ==
        "job train waits: too many nodes or GPUs are bad: 2 of 5 nodes are bad; it would fit if "
        "node n6 were healthy and free (8 more GPUs)");
}

TEST_CASE("a leader and its workers that exceed a node are named") {
  asked_cluster c({2});
  gang_scheduler::request r{.job = "lws"};
  r.gang.groups = {{.tasks = 2, .gpus = 1}, {.tasks = 4, .gpus = 4, .leader = 0}};
  CHECK(
      c.ask(r) ==
      "job lws can never start in this cluster, even if it is idle: each leader of 1 GPU and its 2 "
      "workers of 4 GPUs need 9 GPUs on one node; a node has at most 8");
}

// 1,024 nodes each have 4, 6 and 8 free GPUs.
TEST_CASE("tasks of 4 and 5 GPUs: how many of the one fit beside all of the other") {
  gang_cluster all;
  for (std::uint32_t n = 0; n < 3'072; ++n)
    all.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 4 + n % 3 * 2});
  gang_scheduler s = gang_scheduler::create(all).value();
  gang_scheduler::request r{.job = "train"};
  r.gang.groups = {{.tasks = 2'049, .gpus = 4}, {.tasks = 1'536, .gpus = 5}};
  CHECK(
      s.explain(r)->text ==
      "job train can never start in this cluster, even if it is idle: the gang needs capacity for "
      "2049 tasks of 4 GPUs and 1536 tasks of 5 GPUs; the cluster can hold at most 1535 tasks of 5 "
      "GPUs beside all 2049 tasks of 4 GPUs");
}
