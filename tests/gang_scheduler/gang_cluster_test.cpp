// apiary/tests/gang_scheduler/gang_cluster_test.cpp - descriptions of clusters, right ones and wrong ones.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

TEST_CASE("a description in Slurm's format is read") {
  const auto cluster = gang_cluster::parse(R"(
# leaf switches
SwitchName=r1 Nodes=n[01-02],x LinkSpeed=100
SwitchName=r2 Nodes=m[3,5-6]
switchname=b1 switches=r[1-2]   # both
)",
                                           R"(
NodeName=n[01-02] Gres=gpu:h100:8 CPUs=96 RealMemory=1000 Feature=fast,ib Sockets=2
NodeName=x CPUs=4 Taints=login Labels=zone=a
NodeName=m[3,5-6] Gres=gpu:4
)");
  REQUIRE(cluster.ok());
  CHECK(cluster->levels == std::vector<std::string>{"rack", "block"});
  REQUIRE(cluster->nodes.size() == 6);
  const gang_cluster::node first{.name = "n01",
                                 .cells = {"r1", "b1"},
                                 .gpus = 8,
                                 .host = {.cpu_milli = 96'000, .memory_mib = 1'000},
                                 .model = "h100",
                                 .labels = {"fast", "ib"}};
  CHECK(cluster->nodes[0] == first);
  CHECK(cluster->nodes[2].taints == std::vector<std::string>{"login"});
  CHECK(cluster->nodes[2].labels == std::vector<std::string>{"zone=a"});
  CHECK(cluster->nodes[4].name == "m5");
  CHECK(cluster->nodes[4].gpus == 4);
  CHECK(cluster->nodes[4].cells == std::vector<std::string>{"r2", "b1"});
  const auto flat = gang_cluster::parse("", "NodeName=a,b Gres=gpu:2");
  REQUIRE(flat.ok());
  CHECK(flat->levels.empty());
  CHECK(flat->nodes.size() == 2);
  CHECK(gang_cluster::parse("", "").ok());
}

TEST_CASE("a line of defaults sets what later lines leave out") {
  const auto cluster = gang_cluster::parse("", R"(
NodeName=early CPUs=1
NodeName=DEFAULT Gres=gpu:h100:8 CPUs=96 Feature=fast
NodeName=a,b
NodeName=c Gres=gpu:2 Feature=slow
NodeName=DEFAULT CPUs=48
NodeName=d
)");
  REQUIRE(cluster.ok());
  REQUIRE(cluster->nodes.size() == 5);
  const auto node = [](const char* name, std::uint32_t gpus, const char* model, std::uint32_t cpus,
                       std::vector<std::string> labels) {
    return gang_cluster::node{.name = name,
                              .gpus = gpus,
                              .host = {.cpu_milli = cpus * 1000},
                              .model = model,
                              .labels = std::move(labels)};
  };
  CHECK(cluster->nodes[0] == node("early", 0, "", 1, {}));
  CHECK(cluster->nodes[1] == node("a", 8, "h100", 96, {"fast"}));
  CHECK(cluster->nodes[2] == node("b", 8, "h100", 96, {"fast"}));
  CHECK(cluster->nodes[3] == node("c", 2, "", 96, {"slow"}));
  CHECK(cluster->nodes[4] == node("d", 8, "h100", 48, {"fast"}));
}

TEST_CASE("a wrong description is refused, with its line") {
  constexpr const char* good = "NodeName=n1 Gres=gpu:8";
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> all = {
      {{"", "NodeName"}, "nodes, line 1: \"NodeName\" is not key=value"},
      {{"", "\nGres=gpu:8"}, "nodes, line 2: no NodeName"},
      {{"", "NodeName=n1 Gpus=8"},
       "nodes, line 1: unknown key \"gpus\"; 8 GPUs are written Gres=gpu:8"},
      {{"", "NodeName=n1 Ports=8"}, "nodes, line 1: unknown key \"ports\""},
      {{"", "NodeName=n1 Gres=gpu:33"},
       "nodes, line 1: \"gres=gpu:33\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT up to 32"},
      {{"", "NodeName=n1 Gres=gpu:8(S:0-1)"},
       "nodes, line 1: \"gres=gpu:8(S:0-1)\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT up "
       "to 32"},
      {{"", "NodeName=n1 Gres=mps:3"},
       "nodes, line 1: \"gres=mps:3\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT up to 32"},
      {{"", "NodeName=DEFAULT Gres=gpu:x"},
       "nodes, line 1: \"gres=gpu:x\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT up to 32"},
      {{"", "NodeName=n1 CPUs=-1"}, "nodes, line 1: \"cpus=-1\" is not a number up to 4000000"},
      {{"", "NodeName=n[1-"}, "nodes, line 1: the list \"n[1-\" lacks a \"]\""},
      {{"", "NodeName=n[3-1]"},
       "nodes, line 1: the list \"n[3-1]\" has a range that is not a number or two in ascending "
       "order"},
      {{"", "NodeName=n[1-4000000000]"},
       "nodes, line 1: the list \"n[1-4000000000]\" has more than 1000000 names"},
      {{"", "NodeName=n[1]x"}, "nodes, line 1: the list \"n[1]x\" has text behind \"]\""},
      {{"", "NodeName=a,,b"}, "nodes, line 1: the list \"a,,b\" has an empty name"},
      {{"", "NodeName="}, "nodes, line 1: the list \"\" is empty"},
      {{"", "NodeName=a,a"}, "node name \"a\" is empty or used twice"},
      {{"SwitchName=r1 Nodes=n2", good},
       "nodes, line 1: node \"n1\" is in no switch of the topology"},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r2 Nodes=n2\nSwitchName=b Switches=r2", good},
       "nodes, line 1: node \"n1\" is below 1 switch; the topology has 2 levels of switches"},
      {{"SwitchName=r1 Nodes=n[1-3]", good},
       "topology: node \"n2\" of switch \"r1\" has no NodeName line"},
      {{good, "SwitchName=r1 Nodes=n1"},
       "topology, line 1: unknown key \"nodename\"; the topology is the first text, the nodes are "
       "the second"},
      {{"Nodes=n1", good}, "topology, line 1: no SwitchName"},
      {{"SwitchName=r1", good}, "topology, line 1: switch \"r1\" needs either Nodes or Switches"},
      {{"SwitchName=r1 Ports=n1", good}, "topology, line 1: unknown key \"ports\""},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r1 Nodes=n2", good},
       "topology, line 2: switch \"r1\" is described twice"},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r2 Nodes=n1", good},
       "topology, line 2: node \"n1\" is in two switches"},
      {{"SwitchName=b Switches=r9", good},
       "topology: switch \"b\" lists switch \"r9\", which is not described, is in another switch, "
       "or is the same"},
      {{"SwitchName=a Switches=b\nSwitchName=b Switches=a", good},
       "topology: switch \"a\" is above itself"},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r2 Nodes=n2\nSwitchName=b Switches=r1\n"
        "SwitchName=t Switches=b,r2",
        good},
       "topology: switch \"t\" lists switches of different heights"},
  };
  for (const auto& [texts, message] : all) {
    const auto cluster = gang_cluster::parse(texts.first, texts.second);
    REQUIRE(!cluster.ok());
    CHECK(std::string(cluster.status().message()) == message);
  }
}

TEST_CASE("names and ranges together are limited") {
  std::string list;
  for (int i = 0; i < 1'000'000; ++i) list += "a,";
  CHECK(!gang_cluster::parse("", "NodeName=" + list + "x[0-4294967295]").ok());
  CHECK(!gang_cluster::parse("", "NodeName=" + list + "a,x[0-4294967295]").ok());
}

TEST_CASE("faults of a description") {
  const gang_cluster good{.levels = {"rack"}, .nodes = {{.name = "a", .cells = {"r"}, .gpus = 8}}};
  CHECK(good.check().ok());
  const auto fault = [&](auto change) {
    gang_cluster wrong = good;
    change(wrong);
    return std::string(wrong.check().message());
  };
  CHECK(fault([](gang_cluster& c) { c.levels = std::vector<std::string>(10, "l"); }) ==
        "10 levels above the nodes; the limit is 9");
  CHECK(fault([](gang_cluster& c) { c.levels = {"node"}; }) ==
        "level name \"node\" is empty, used twice or reserved");
  CHECK(fault([](gang_cluster& c) { c.nodes[0].name.clear(); }) ==
        "node name \"\" is empty or used twice");
  CHECK(fault([](gang_cluster& c) { c.nodes[0].gpus = 33; }) ==
        "node \"a\" has 33 GPUs; the limit is 32");
  CHECK(fault([](gang_cluster& c) { c.nodes[0].cells.clear(); }) ==
        "node \"a\" names 0 cells; the cluster has 1 levels above the nodes");
  CHECK(fault([](gang_cluster& c) { c.nodes[0].cells = {""}; }) ==
        "node \"a\" has no name for its rack");
  CHECK(fault([](gang_cluster& c) {
          c.levels = {"rack", "block"};
          c.nodes = {{.name = "a", .cells = {"r", "x"}}, {.name = "b", .cells = {"r", "y"}}};
        }) == "node \"b\": rack \"r\" is in block \"x\", not in \"y\"");
}

TEST_CASE("a tree with names and a table of nodes make a description") {
  const auto tree =
      named_tree<uniform_tree>::create({"v100", {{"rack", {2}}, {"node", {2}}, {"gpu", {4}}}});
  REQUIRE(tree.ok());
  node_table table;
  for (std::uint32_t n = 0; n < 4; ++n)
    table.add({.host = {.cpu_milli = 1000 * n}, .gpus = n, .model = static_cast<gpu_model>(n % 2)});
  const auto cluster = gang_cluster::of(*tree, 1, table);
  REQUIRE(cluster.ok());
  CHECK(cluster->levels == std::vector<std::string>{"rack"});
  const gang_cluster::node last{
      .name = "node-3", .cells = {"rack-1"}, .gpus = 3, .host = {.cpu_milli = 3000}, .model = "1"};
  CHECK(cluster->nodes[3] == last);
  CHECK(!gang_cluster::of(*tree, 2, table).ok());
  CHECK(!gang_cluster::of(*tree, 3, table).ok());
}

TEST_CASE("a filter in words") {
  CHECK(node_filter{}.text() == "nodes");
  const node_filter f{
      .labels = {"zone=a", "ib"}, .models = {"h100", "a100"}, .tolerations = {"old"}};
  CHECK(f.text() ==
        "nodes with label \"zone=a\" and \"ib\" and GPU model \"h100\" or \"a100\" "
        "(taint \"old\" is tolerated)");
  CHECK(node_filter{.nodes = {"a", "b"}}.text() == "nodes \"a\" or \"b\"");
  CHECK(node_filter{.nodes = {"a", "b", "c", "d"}}.text() == "a list of 4 nodes");
}
