// apiary/tests/gang_scheduler/gang_cluster_test.cpp - descriptions of clusters, right ones and wrong ones.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;

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
  CHECK(fault([](gang_cluster& c) { c.nodes[0].name.clear(); }) == "a node has no name");
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
