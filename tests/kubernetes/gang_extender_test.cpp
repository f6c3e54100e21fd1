// apiary/tests/kubernetes/gang_extender_test.cpp - the decisions of the extender, without HTTP and JSON.
// SPDX-License-Identifier: MIT
#include "../../examples/hosts/kubernetes/gang_extender.h"

#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <support/fake_kubernetes.h>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace {

using apiary_test::fake_kubernetes;
using names_of_pods = std::vector<std::string>;

std::set<std::string> nodes_of(fake_kubernetes& kube, const std::string& gang, int size) {
  std::set<std::string> nodes;
  for (int i = 0; i < size; ++i) nodes.insert(kube.node_of(gang + "-" + std::to_string(i)));
  return nodes;
}
names_of_pods sorted(names_of_pods names) {
  std::sort(names.begin(), names.end());
  return names;
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
// The nodes of the gang's decision; none: it waits.
std::set<std::string> decided(fake_kubernetes& kube, const std::string& key) {
  std::set<std::string> nodes;
  const auto& cluster = kube.extender().cluster();
  if (const auto* gang = cluster.find(key))
    for (const auto& task : gang->tasks) nodes.insert(cluster.node(task.node)->name);
  return nodes;
}
// A pod like this one, as its controller creates it again.
apiary_kubernetes::pod_record created_again(apiary_kubernetes::pod_record pod) {
  pod.uid += "-again";
  pod.node.clear();
  pod.plan.clear();
  pod.ending = false;
  return pod;
}

}  // namespace

TEST_CASE("extender: the first pod of a gang decides for all, and each gets its node") {
  fake_kubernetes kube;
  kube.submit("small", 1, 2);
  CHECK(kube.schedule("small").empty());
  CHECK(kube.node_of("small") == "n0");
  kube.submit("train", 4, 8, 0, "block");
  CHECK(kube.schedule("train-2").empty());
  CHECK(kube.extender().cluster().num_gangs() == 2);
  // A later pod of another gang does not get a node of the plan.
  kube.submit("late", 2, 8);
  CHECK(kube.schedule("late-0").empty());
  kube.round();
  CHECK(nodes_of(kube, "train", 4) == std::set<std::string>{"n4", "n5", "n6", "n7"});
  for (const char* node : {"n4", "n5", "n6", "n7"})
    CHECK(nodes_of(kube, "late", 2).count(node) == 0);
}

TEST_CASE("extender: a gang that does not fit waits as a whole, and says why") {
  fake_kubernetes kube;
  kube.submit("a", 1, 8);
  kube.round();
  kube.submit("rack", 2, 8, 0, "rack");
  kube.round();
  CHECK(nodes_of(kube, "rack", 2) == std::set<std::string>{"n2", "n3"});
  kube.submit("wide", 4, 8, 0, "block");
  kube.submit("never", 5, 8, 0, "block");
  kube.submit("wrong", 2, 8, 0, "hall");
  CHECK(kube.schedule("wide-1").empty());
  CHECK(contains(kube.schedule("never-3"), "5 free nodes of 8 GPUs in one block"));
  CHECK(contains(kube.schedule("wrong-0"), "\"hall\": the cluster has no such level"));
  CHECK(kube.evicted.empty());
}

TEST_CASE(
    "extender: a recreated pod takes the node of the one that has ended; a gang ends with its last "
    "pod") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8);
  kube.round();
  CHECK(kube.node_of("train-1") == "n1");
  const auto again = created_again(*kube.find("train-1"));
  kube.end("train-1");
  kube.update();
  CHECK(kube.extender().cluster().num_gangs() == 1);
  kube.submit("other", 1, 8);
  kube.round();
  CHECK(kube.node_of("other") == "n2");  // n1 is kept for the gang
  kube.pods.push_back(again);
  kube.round();
  CHECK(kube.node_of("train-1") == "n1");
  for (const char* name : {"train-0", "train-1"}) kube.end(name);
  kube.update();
  CHECK(kube.extender().cluster().num_gangs() == 1);
}

TEST_CASE("extender: a pod more than the gang has, or with other GPUs, gets no node") {
  fake_kubernetes kube;
  kube.submit("train", 2, 4);
  kube.round();
  kube.submit("train", 3, 4);
  CHECK(kube.schedule("train-2") ==
        "pod default/train-2 belongs to a gang of 3 pods of 4 GPUs with priority 0; gang "
        "default/gang=train has 2 pods of 4 GPUs with priority 0");
  kube.find("train-2")->gang_size = 2;
  CHECK(contains(kube.schedule("train-2"), "no node of gang default/gang=train is left"));
  kube.find("train-2")->gpus = 3;
  CHECK(contains(kube.schedule("train-2"), "belongs to a gang of 2 pods of 3 GPUs"));
}

TEST_CASE("extender: a gang that was deleted and created again is decided anew") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8);
  kube.round();
  CHECK(nodes_of(kube, "train", 2) == std::set<std::string>{"n0", "n1"});
  for (int i = 0; i < 2; ++i) {
    kube.pods[static_cast<std::size_t>(i)].ending = true;
    kube.pods[static_cast<std::size_t>(i)].name = "old-" + std::to_string(i);
  }
  kube.update();
  kube.submit("train", 3, 8);
  CHECK(contains(kube.schedule("train-0"), "can start again when its pods have ended"));
  kube.end("old-0");
  kube.update();
  CHECK(contains(kube.schedule("train-0"), "can start again when its pods have ended"));
  kube.end("old-1");
  kube.round();
  kube.round();
  CHECK(nodes_of(kube, "train", 3) == std::set<std::string>{"n0", "n1", "n2"});
  // All old pods vanish between two lists.
  kube.pods.clear();
  kube.submit("train", 4, 8, 0, "block");
  kube.round();
  kube.round();
  CHECK(nodes_of(kube, "train", 4) == std::set<std::string>{"n0", "n1", "n2", "n3"});
  kube.pods.clear();
  kube.submit("train", 4, 8, 0, "block");
  for (auto& pod : kube.pods) pod.node_selector = {{"block", "block1"}};
  kube.round();
  kube.round();
  CHECK(nodes_of(kube, "train", 4) == std::set<std::string>{"n4", "n5", "n6", "n7"});
}

TEST_CASE("extender: a decision that no pod uses is not for other pods of the same name") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8);
  REQUIRE(kube.extender().filter(*kube.find("train-0"), {"n0", "n1"}, ++kube.now).ok());
  kube.pods.clear();
  kube.submit("train", 3, 8, 4);
  kube.update();
  CHECK(kube.schedule("train-1").empty());
  const auto* gang = kube.extender().cluster().find("default/gang=train");
  REQUIRE(gang != nullptr);
  CHECK(gang->what.priority == 4);
  CHECK(gang->tasks.size() == 3);
}

TEST_CASE("extender: the explanation of a gang is that of the last request") {
  fake_kubernetes kube;
  for (const char* node : {"n0", "n2", "n4", "n6"}) {
    kube.submit(std::string("on-") + node, 1, 8);
    kube.pods.back().node = node;
  }
  kube.update();
  kube.submit("train", 2, 8, 0, "rack");
  CHECK(
      contains(kube.schedule("train-0"),
               "job default/gang=train waits: the gang needs 2 free nodes of 8 GPUs in one rack"));
  kube.pods.resize(4);
  kube.submit("train", 3, 8, 0, "rack");
  CHECK(contains(kube.schedule("train-0"), "needs 3 free nodes of 8 GPUs in one rack"));
  kube.find("train-0")->node_selector = {{"block", "block1"}};
  CHECK(contains(kube.schedule("train-0"), "nodes with label \"block=block1\""));
  // Only on the offered nodes it does not fit.
  kube.submit("wide", 2, 8, 0, "block");
  const auto answer = kube.extender().filter(*kube.find("wide-0"), {"n1", "n5"}, ++kube.now);
  REQUIRE(answer.ok());
  CHECK(answer->failed.at("n5") ==
        "kube-scheduler offers too few nodes; on all nodes, job default/gang=wide can start now on "
        "nodes n1 and n3 in block block0");
}

TEST_CASE("extender: a pod that replaces one of a failed node gets another node") {
  fake_kubernetes kube;
  kube.submit("small", 1, 8);
  kube.submit("train", 3, 8, 0, "block");
  kube.round();
  REQUIRE(nodes_of(kube, "train", 3) == std::set<std::string>{"n1", "n2", "n3"});
  const auto again = created_again(*kube.find("train-1"));
  kube.nodes[static_cast<std::size_t>(kube.node_of("train-1")[1] - '0')].usable = false;
  kube.end("train-1");
  kube.end("small");
  kube.update();
  kube.pods.push_back(again);
  CHECK(kube.schedule("train-1").empty());
  CHECK(kube.node_of("train-1") == "n0");  // in the block; it was not free when the gang started
  // The next extender has the new node for the gang, too, and the one of a pod that comes later.
  const auto third = created_again(*kube.find("train-2"));
  const std::string node = kube.node_of("train-2");
  kube.end("train-2");
  kube.restart();
  CHECK(kube.extender().cluster().num_gangs() == 1);
  kube.pods.push_back(third);
  CHECK(kube.schedule("train-2").empty());
  CHECK(kube.node_of("train-2") == node);
}

TEST_CASE("extender: a pod that was deleted on a failed node is replaced before it is gone") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8, 0, "block");
  kube.round();
  REQUIRE(kube.node_of("train-1") == "n1");
  kube.nodes[1].usable = false;
  kube.find("train-1")->ending = true;
  kube.update();
  kube.pods.push_back(created_again(*kube.find("train-1")));
  kube.pods.back().name = "train-2";
  CHECK(kube.schedule("train-2").empty());
  CHECK(kube.node_of("train-2") == "n2");
  kube.restart();
  kube.nodes[1].usable = true;  // the node returns, the deleted pod ends there
  kube.update();
  CHECK(decided(kube, "default/gang=train") == std::set<std::string>{"n0", "n2"});
}

TEST_CASE("extender: a failed node is not replaced while another pod runs on a bad node") {
  fake_kubernetes kube;
  kube.submit("train", 3, 8);
  kube.round();
  REQUIRE(nodes_of(kube, "train", 3) == std::set<std::string>{"n0", "n1", "n2"});
  const auto again = created_again(*kube.find("train-1"));
  kube.nodes[0].usable = false;  // cordoned: its pod runs on
  kube.nodes[1].usable = false;
  kube.end("train-1");
  kube.update();
  kube.pods.push_back(again);
  CHECK(kube.schedule("train-1") ==
        "gang default/gang=train gets no other nodes while its pod default/train-0 runs on the bad "
        "node n0");
  kube.nodes[0].usable = true;
  kube.update();
  CHECK(kube.schedule("train-1").empty());
  CHECK(kube.node_of("train-1") == "n3");
}

TEST_CASE("extender: a pod waits if its failed node cannot be replaced, and says why") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8, 0, "rack");
  kube.round();
  REQUIRE(kube.node_of("train-1") == "n1");
  kube.nodes[1].usable = false;
  const auto again = created_again(*kube.find("train-1"));
  kube.end("train-1");
  kube.update();
  kube.pods.push_back(again);
  CHECK(contains(kube.schedule("train-1"), "cannot move 1 task from node n1 now"));
  kube.nodes[1].usable = true;
  kube.update();
  CHECK(kube.schedule("train-1").empty());
  CHECK(kube.node_of("train-1") == "n1");
}

TEST_CASE("extender: a running pod whose gang cannot be read any more keeps its GPUs") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8);
  kube.round();
  const auto before = kube.extender().cluster().free_capacity(0).value();
  for (auto& pod : kube.pods) {
    pod.gang.clear();
    pod.gang_size = 1;
    pod.plan.clear();
    pod.gang_fault = "there is no such annotation";
  }
  kube.update();
  CHECK(kube.extender().cluster().free_capacity(0).value() == before);
  CHECK(decided(kube, "default/gang=train") == std::set<std::string>{"n0", "n1"});
  kube.restart();  // the next extender cannot know that the pods are a gang
  CHECK(kube.extender().cluster().free_capacity(0).value() == before);
  CHECK(kube.extender().cluster().num_gangs() == 2);
  kube.end("train-1");
  kube.update();
  CHECK(decided(kube, "default/train-0") == std::set<std::string>{"n0"});
  CHECK(kube.extender().cluster().num_gangs() == 1);
}

TEST_CASE("extender: a gang without a bound pod loses its nodes after a while") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8);
  const auto pod = *kube.find("train-0");
  REQUIRE(kube.extender().filter(pod, {"n0", "n1", "n2"}, kube.now).ok());
  kube.update();
  CHECK(kube.extender().cluster().num_gangs() == 1);
  kube.now += apiary_kubernetes::known_cluster::patience;
  kube.update();
  CHECK(kube.extender().cluster().num_gangs() == 0);
  kube.round();
  CHECK(nodes_of(kube, "train", 2) == std::set<std::string>{"n0", "n1"});
}

TEST_CASE("extender: an owner's gang evicts exactly the victims of its plan") {
  fake_kubernetes kube;
  for (int i = 0; i < 7; ++i) kube.submit("guest" + std::to_string(i), 1, 8, -1);
  kube.round();
  CHECK(kube.node_of("guest6") == "n6");
  kube.submit("owner", 4, 8, 5, "block");
  kube.round();
  CHECK(sorted(kube.evicted) == names_of_pods{"guest4", "guest5", "guest6"});
  kube.round();
  CHECK(nodes_of(kube, "owner", 4) == std::set<std::string>{"n4", "n5", "n6", "n7"});
  CHECK(kube.evicted.size() == 3);
}

TEST_CASE("extender: all pods of a victim gang are evicted, also those on other nodes") {
  fake_kubernetes kube;
  kube.submit("train", 8, 8, 10);
  kube.round();
  kube.submit("urgent", 1, 8, 1000);
  const auto urgent = *kube.find("urgent");
  const auto answer = kube.extender().preempt(urgent, {"n3", "n5"}, ++kube.now);
  REQUIRE(answer.ok());
  REQUIRE(answer->size() == 1);
  CHECK(answer->begin()->first == "n3");
  CHECK(answer->begin()->second.size() == 1);
  CHECK(kube.schedule("urgent") == "no node has so many free GPUs");
  CHECK(kube.evicted.size() == 8);
  kube.update();
  kube.round();
  CHECK(kube.node_of("urgent") == "n3");
  CHECK(kube.evicted.size() == 8);
}

TEST_CASE("extender: victims are only on nodes that kube-scheduler has offered") {
  fake_kubernetes kube;
  for (int i = 0; i < 7; ++i) kube.submit("guest" + std::to_string(i), 1, 8, -1);
  kube.round();
  kube.submit("owner", 2, 8, 5);
  const auto owner = *kube.find("owner-0");
  auto answer = kube.extender().preempt(owner, {"n4"}, ++kube.now);
  REQUIRE(answer.ok());
  CHECK(answer->empty());  // two nodes are needed
  CHECK(decided(kube, "default/gang=owner").empty());
  CHECK(kube.extender().filter(owner, {"n7"}, ++kube.now)->nodes.empty());
  answer = kube.extender().preempt(owner, {"n4"}, ++kube.now);
  REQUIRE(answer.ok());
  REQUIRE(answer->size() == 1);
  CHECK(answer->begin()->first == "n4");
  CHECK(decided(kube, "default/gang=owner") == std::set<std::string>{"n4", "n7"});
}

TEST_CASE("extender: the gang that has run for less time is the victim, also after a restart") {
  fake_kubernetes kube;
  kube.submit("older", 1, 8);
  kube.round();
  kube.now += 5000;
  kube.submit("younger", 1, 8);
  kube.submit("other", 6, 8, 7);
  kube.round();
  CHECK(kube.node_of("older") == "n0");
  kube.now += 5000;
  kube.restart();
  kube.submit("owner", 1, 8, 5);
  kube.round();
  CHECK(kube.evicted == names_of_pods{"younger"});
}

TEST_CASE("extender: a preemption is given up when its gang is deleted; the victims go on") {
  fake_kubernetes kube;
  kube.submit("guest", 2, 8, -1, "rack");
  kube.submit("other", 6, 8, 7);
  kube.round();
  kube.submit("owner", 1, 8, 5);
  const auto owner = *kube.find("owner");
  const auto answer = kube.extender().preempt(owner, {"n6", "n7"}, ++kube.now);
  REQUIRE(answer.ok());
  CHECK(answer->size() == 1);
  const auto* guest = kube.extender().cluster().find("default/gang=guest");
  REQUIRE(guest != nullptr);
  CHECK(guest->ends_for);
  kube.end("owner");
  kube.update();
  guest = kube.extender().cluster().find("default/gang=guest");
  REQUIRE(guest != nullptr);
  CHECK_FALSE(guest->ends_for);
  CHECK(kube.evicted.empty());
}

TEST_CASE("extender: nodes join, leave, break and return") {
  fake_kubernetes kube;
  kube.nodes[0].usable = false;
  kube.nodes.push_back({.name = "n8", .labels = {{"rack", "rack4"}}, .gpus = 4});
  kube.update();
  kube.submit("a", 1, 4);
  kube.submit("b", 1, 8);
  kube.round();
  CHECK(kube.node_of("a") == "n8");
  CHECK(kube.node_of("b") == "n1");
  kube.nodes[0].usable = true;
  kube.nodes.erase(kube.nodes.begin() + 2);  // n2 is idle
  kube.nodes[1].labels["zone"] = "z";        // n1 is in use: it changes later
  kube.update();
  CHECK_FALSE(kube.extender().cluster().find_node("n2").ok());
  CHECK(kube.extender().cluster().node(*kube.extender().cluster().find_node("n1"))->labels.size() ==
        2);
  kube.end("b");
  kube.update();
  kube.update();
  CHECK(kube.extender().cluster().node(*kube.extender().cluster().find_node("n1"))->labels.size() ==
        3);
  kube.submit("c", 1, 8);
  kube.round();
  CHECK(kube.node_of("c") == "n0");
  kube.nodes[0].gpus = 16;
  kube.update();
  CHECK(kube.extender().cluster().node(*kube.extender().cluster().find_node("n0"))->gpus == 16);
}

TEST_CASE("extender: a node whose label of a level is empty is left out") {
  fake_kubernetes kube;
  kube.nodes[3].labels["block"] = "";
  kube.restart();
  kube.update();
  const std::string fault = "error node n3 is left out: its label \"block\" is empty";
  auto log = kube.extender().take_log();
  CHECK(std::count(log.begin(), log.end(), fault) == 1);
  CHECK_FALSE(kube.extender().cluster().find_node("n3").ok());
  kube.submit("train", 7, 8);
  kube.round();
  CHECK(nodes_of(kube, "train", 7).count("n3") == 0);
  CHECK(nodes_of(kube, "train", 7).count("") == 0);
  kube.nodes[3].labels["block"] = "block0";
  kube.nodes[4].labels["block"] = "";  // a gang runs on it: it stays until the gang ends
  kube.update();
  CHECK(kube.extender().cluster().find_node("n3").ok());
  CHECK(kube.extender().cluster().find_node("n4").ok());
  kube.pods.clear();
  kube.update();
  kube.update();
  CHECK_FALSE(kube.extender().cluster().find_node("n4").ok());
}

TEST_CASE("extender: selectors and tolerations of a pod hold for its victims, too") {
  fake_kubernetes kube;
  for (int n = 0; n < 4; ++n)
    kube.nodes[static_cast<std::size_t>(n)].taints = {{"team", "red", "NoSchedule"}};
  kube.nodes[5].labels["fast"] = "yes";
  kube.restart();
  for (int i = 0; i < 4; ++i) kube.submit("guest" + std::to_string(i), 1, 8, -1);
  kube.round();
  CHECK(kube.node_of("guest0") == "n4");
  kube.submit("a", 1, 8, 5);
  kube.find("a")->node_selector = {{"fast", "yes"}};
  const auto answer =
      kube.extender().preempt(*kube.find("a"), {"n4", "n5", "n6", "n7"}, ++kube.now);
  REQUIRE(answer.ok());
  REQUIRE(answer->size() == 1);
  CHECK(answer->begin()->first == "n5");
  kube.submit("red", 1, 8, 5);
  kube.find("red")->tolerations = {{.key = "team", .op = "Exists"}};
  CHECK(kube.schedule("red").empty());
  CHECK(kube.node_of("red") == "n0");
}

TEST_CASE(
    "extender: after a restart the gangs are where they were, and their other pods get their "
    "nodes") {
  fake_kubernetes kube;
  kube.submit("a", 1, 4);
  kube.submit("train", 3, 8, 3, "block");
  kube.round();
  kube.submit("half", 2, 8, 3);
  CHECK(kube.schedule("half-1").empty());
  const auto before = kube.extender().cluster().free_capacity(0).value();
  const std::string other = kube.extender().node_of(*kube.find("half-1"));
  kube.restart();
  CHECK(kube.extender().cluster().free_capacity(0).value() == before);
  kube.submit("more", 1, 8);
  kube.round();
  CHECK(nodes_of(kube, "half", 2).size() == 2);
  CHECK(kube.node_of("half-1") == other);
  CHECK(kube.extender().cluster().num_gangs() == 4);
}

TEST_CASE("extender: pods on nodes that are not in their plan are recovered where they run") {
  fake_kubernetes kube;
  kube.submit("train", 2, 8);
  const auto pod = *kube.find("train-0");
  REQUIRE(kube.extender().filter(pod, {"n0", "n1"}, ++kube.now).ok());
  kube.find("train-0")->node = "n6";  // by another scheduler
  kube.submit("b", 1, 8);
  kube.find("b")->node = "n7";
  kube.update();
  CHECK(kube.extender().cluster().num_gangs() == 2);
  CHECK(kube.extender().node_of(pod) == "n6");
  CHECK(kube.extender().cluster().jobs_on(*kube.extender().cluster().find_node("n0")).empty());
  CHECK_FALSE(kube.extender().bind("unknown", "n0").ok());
  CHECK_FALSE(kube.extender().bind(pod.uid, "n5").ok());
}

TEST_CASE(
    "extender: random pods, ends, failures and restarts: whole gangs run, and only lower ones are "
    "evicted") {
  apiary::rng random(7);
  for (std::uint32_t run = 0; run < apiary_test::scaled(40U); ++run) {
    fake_kubernetes kube;
    std::map<std::string, std::int32_t> priority;
    for (int step = 0; step < 60; ++step) {
      const auto what = random.uniform(10);
      if (what < 5) {
        const std::string name = "g" + std::to_string(step);
        const std::uint32_t size = 1 + random.uniform(4);
        priority[name] = static_cast<std::int32_t>(random.uniform(3));
        kube.submit(name, size, std::vector<std::uint32_t>{1, 2, 4, 8}[random.uniform(4)],
                    priority[name],
                    std::vector<std::string>{"", "rack", "block"}[random.uniform(3)]);
      } else if (what < 7 && !kube.pods.empty()) {
        const std::string gang =
            kube.pods[random.uniform(static_cast<std::uint32_t>(kube.pods.size()))].gang_key();
        std::erase_if(kube.pods, [&](const auto& pod) { return pod.gang_key() == gang; });
        kube.update();
      } else if (what == 7) {
        auto& node = kube.nodes[random.uniform(8)];
        node.usable = !node.usable;
      } else if (what == 8) {
        kube.restart();
      }
      kube.round();
    }
    // Without more events, each gang runs as a whole or not at all.
    for (auto& node : kube.nodes) node.usable = true;
    for (int i = 0; i < 6; ++i) kube.round();
    std::map<std::string, std::pair<std::uint32_t, std::uint32_t>>
        bound;  // pods, those with a node
    for (const auto& pod : kube.pods) {
      ++bound[pod.gang_key()].first;
      if (!pod.node.empty()) ++bound[pod.gang_key()].second;
    }
    for (const auto& one : bound) {
      CAPTURE(one.first);
      CHECK((one.second.second == 0 || one.second.second == one.second.first));
    }
  }
}
