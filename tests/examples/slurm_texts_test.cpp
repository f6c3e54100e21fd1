// apiary/tests/examples/slurm_texts_test.cpp - texts in the formats of Slurm, right ones and wrong ones.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/import/slurm_texts.h"

#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using example::read_slurm;
using example::write_slurm;

TEST_CASE("a description in Slurm's format is read") {
  const auto cluster = read_slurm(R"(
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
  const auto flat = read_slurm("", "NodeName=a,b Gres=gpu:2");
  REQUIRE(flat.ok());
  CHECK(flat->levels.empty());
  CHECK(flat->nodes.size() == 2);
  CHECK(read_slurm("", "").ok());
}

TEST_CASE("a line of defaults sets what later lines leave out") {
  const auto cluster = read_slurm("", R"(
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
      {{"", "NodeName=n1 Gres=gpu:a:4,gpu:b:4"},
       "nodes, line 1: \"gres=gpu:a:4,gpu:b:4\" has GPUs of two models; the GPUs of a node must "
       "have "
       "one"},
      {{"", "NodeName=n1 Gres=gpu:a:4,mps:400"},
       "nodes, line 1: \"gres=gpu:a:4,mps:400\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT "
       "up "
       "to 32"},
      {{"", "NodeName=n1 Gres=gpu:a:20,gpu:a:20"},
       "nodes, line 1: \"gres=gpu:a:20,gpu:a:20\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT "
       "up "
       "to 32"},
      {{"", "NodeName=n1 Reason=\"no end"},
       "nodes, line 1: the value of \"Reason\" lacks its closing quote"},
      {{"", "NodeName=n1 CPUs=1.2345"},
       "nodes, line 1: \"cpus=1.2345\" is not a number up to 4000000"},
      {{"", "NodeName=n1 CPUs=4000000.1"},
       "nodes, line 1: \"cpus=4000000.1\" is not a number up to 4000000"},
      {{"", "NodeName=n1 Sockets=3000 CoresPerSocket=3000"},
       "nodes, line 1: the node has more than 4000000 CPUs"},
      {{"", "NodeName=n1 Boards=3000 SocketsPerBoard=3000"},
       "nodes, line 1: the node has more than 4000000 CPUs"},
      {{"", "NodeName=n1 Boards=x"}, "nodes, line 1: \"boards=x\" is not a number up to 4000000"},
      {{"", "NodeName=n1 CoresPerSocket=2 CoresPerSocket=4"},
       "nodes, line 1: \"corespersocket\" is given twice"},
      {{"", "NodeName=n1 Sockets=4 SocketsPerBoard=2"},
       "nodes, line 1: Sockets, which are those of all boards, beside SocketsPerBoard"},
      {{"", "ClusterName=c\nInclude = nodes.conf"},
       "nodes, line 2: \"Include nodes.conf\": pass the text of that file"},
      {{"", "SwitchName=r1 Nodes=n1"},
       "nodes, line 1: \"switchname\" belongs into the topology, the first text"},
      {{"", "NodNam=n1 Gres=gpu:8"}, "nodes, line 1: no NodeName"},
      {{"", "NodeName=n1 \\\n Gres=gpu:8 \\\n CPUs=x\nNodeName=n2 CPUs=y\n\nNodeName=n3"},
       "nodes, line 1: \"cpus=x\" is not a number up to 4000000\n"
       "nodes, line 4: \"cpus=y\" is not a number up to 4000000"},
      {{"BlockName=b1 Nodes=n1\nSwitchName=r2 Nodes=n2", good},
       "topology, line 2: a topology has either switches or blocks"},
      {{"SwitchName=r2 Nodes=n2\nBlockName=b1 Nodes=n1", good},
       "topology, line 2: a topology has either switches or blocks"},
      {{"BlockName=b1 Switches=n1", good},
       "topology, line 1: block \"b1\" needs Nodes, and no Switches"},
      {{"BlockName=b1 Nodes=n1\nBlockName=b1 Nodes=n2", good},
       "topology, line 2: block \"b1\" is described twice"},
      {{"BlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n1", good},
       "topology, line 2: node \"n1\" is in two blocks"},
      {{"BlockName=b1 Nodes=n1,n1", good},
       "topology, line 1: node \"n1\" is listed twice in the block"},
      {{"SwitchName=r1 Nodes=n[1-2],n2", good},
       "topology, line 1: node \"n2\" is listed twice in the switch"},
      {{"BlockName=b1 Nodes=n1\nBlockSizes=1,2,4,8,16,32,64,128,256,512", good},
       "topology, line 2: BlockSizes has more than 9 numbers"},
      {{"SwitchName=r1 Nodes=n1\nBlockSizes=1", good},
       "topology, line 2: BlockSizes without blocks"},
      {{"BlockName=b1 Nodes=n1\nBlockSizes=2,6", good},
       "topology, line 2: \"BlockSizes=2,6\" is not a list of numbers, each the first one times a "
       "larger power of two"},
      {{"BlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n[2-3]\nBlockSizes=2,4", good},
       "topology, line 1: block \"b1\" has 1 nodes; the first of BlockSizes is 2"},
      {{"BlockName=p Nodes=n1\nBlockName=q Nodes=n2\nBlockName=block2:p-q Nodes=n3\nBlockSizes=1,2",
        good},
       "topology, line 3: block \"block2:p-q\" has a name that is reserved"},
      {{"BlockName=x Nodes=n4\nBlockName=y Nodes=n5\nBlockName=a Nodes=n1\nBlockName=b-c Nodes=n2\n"
        "BlockName=a-b Nodes=n3\nBlockName=c Nodes=n6\nBlockSizes=1,2",
        good},
       "topology, line 7: the name \"block2:a-b-c\" would stand for blocks \"a\" to \"b-c\" and "
       "for "
       "blocks \"a-b\" to \"c\"; rename one of these blocks"},
      {{"SwitchName=r1 Level=rack Nodes=n1\nSwitchName=r2 Level=pod Nodes=n2", good},
       "topology, line 2: switch \"r2\" has level \"pod\", others of its height have \"rack\""},
      {{"", "NodeName=a,a"},
       "nodes, line 1: node \"a\" is described twice, first in nodes, line 1"},
      {{"", "NodeName=n[1-3]\n\nNodeName=n[2-4]\nNodeName=x\nNodeName=n2"},
       "nodes, line 3: node \"n2\" is described twice, first in nodes, line 1\n"
       "nodes, line 3: node \"n3\" is described twice, first in nodes, line 1\n"
       "nodes, line 5: node \"n2\" is described twice, first in nodes, line 1"},
      {{"SwitchName=r1 Nodes=n2", good},
       "nodes, line 1: node \"n1\" is in no switch of the topology\n"
       "topology, line 1: node \"n2\" of switch \"r1\" has no NodeName line"},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r2 Nodes=n2\nSwitchName=b Switches=r2", good},
       "nodes, line 1: node \"n1\" is below 1 switch; the topology has 2 levels of switches\n"
       "topology, line 2: node \"n2\" of switch \"r2\" has no NodeName line"},
      {{"SwitchName=r1 Nodes=n3,n1\nSwitchName=r2 Nodes=n2", good},
       "topology, line 2: node \"n2\" of switch \"r2\" has no NodeName line\n"
       "topology, line 1: node \"n3\" of switch \"r1\" has no NodeName line"},
      {{"SwitchName=r1 Nodes=n[1-\nSwitchName=r2 Ports=8", "NodeName=n1 CPUs=x\nNodeName=n1"},
       "topology, line 1: the list \"n[1-\" lacks a \"]\"\n"
       "topology, line 2: unknown key \"ports\"\n"
       "nodes, line 1: \"cpus=x\" is not a number up to 4000000"},
      {{good, "SwitchName=r1 Nodes=n1"},
       "topology, line 1: unknown key \"nodename\"; the topology is the first text, the nodes are "
       "the second\n"
       "nodes, line 1: \"switchname\" belongs into the topology, the first text"},
      {{"Nodes=n1", good}, "topology, line 1: no SwitchName"},
      {{"SwitchName=r1", good}, "topology, line 1: switch \"r1\" needs either Nodes or Switches"},
      {{"SwitchName=r1 Ports=n1", good}, "topology, line 1: unknown key \"ports\""},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r1 Nodes=n2", good},
       "topology, line 2: switch \"r1\" is described twice"},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r2 Nodes=n1", good},
       "topology, line 2: node \"n1\" is in two switches"},
      {{"SwitchName=b Switches=r9", good},
       "topology, line 1: switch \"b\" lists switch \"r9\", which is not described, is in another "
       "switch, or is the same"},
      {{"SwitchName=b Switches=b,r\nSwitchName=r Nodes=n1\nSwitchName=c Switches=r", good},
       "topology, line 1: switch \"b\" lists switch \"b\", which is not described, is in another "
       "switch, or is the same\n"
       "topology, line 3: switch \"c\" lists switch \"r\", which is not described, is in another "
       "switch, or is the same"},
      {{"SwitchName=a Switches=b\nSwitchName=b Switches=a", good},
       "topology, line 1: switch \"a\" is above itself"},
      {{"SwitchName=r1 Nodes=n1\nSwitchName=r2 Nodes=n2\nSwitchName=b Switches=r1\n"
        "SwitchName=t Switches=b,r2",
        good},
       "topology, line 4: switch \"t\" lists switches of different heights"},
  };
  for (const auto& [texts, message] : all) {
    const auto cluster = read_slurm(texts.first, texts.second);
    REQUIRE(!cluster.ok());
    CHECK(std::string(cluster.status().message()) == message);
  }
}

TEST_CASE("names and ranges together are limited") {
  std::string list;
  for (int i = 0; i < 1'000'000; ++i) list += "a,";
  CHECK(!read_slurm("", "NodeName=" + list + "x[0-4294967295]").ok());
  CHECK(!read_slurm("", "NodeName=" + list + "a,x[0-4294967295]").ok());
}

TEST_CASE("the names of all lists of a text are limited, and the reader stops there") {
  const auto fault = [](const std::string& topology, const std::string& nodes,
                        const std::string& gres) {
    return std::string(read_slurm(topology, nodes, gres).status().message());
  };
  const std::string many = " and those before it have more than 1000000 names";
  CHECK(fault("", "NodeName=a\nNodeName=n[0-999999]\nNodeName=b CPUs=x", "") ==
        "nodes, line 2: the list \"n[0-999999]\"" + many);
  // Lists with another fault count, too.
  CHECK(fault("", "NodeName=n[0-999],m[2-1]\nNodeName=n[0-999000]\nNo", "") ==
        "nodes, line 1: the list \"n[0-999],m[2-1]\" has a range that is not a number or two in "
        "ascending order\nnodes, line 2: the list \"n[0-999000]\"" +
            many);
  CHECK(fault("SwitchName=r Nodes=a\nSwitchName=s Nodes=n[0-999999]\nNo", "", "") ==
        "topology, line 2: the list \"n[0-999999]\"" + many);
  CHECK(fault("SwitchName=r Nodes=a\nSwitchName=s Switches=n[0-999999]\nNo", "", "") ==
        "topology, line 2: the list \"n[0-999999]\"" + many);
  CHECK(fault("", "NodeName=a Gres=gpu:1",
              "NodeName=a Name=gpu\nNodeName=n[0-7999999] Name=gpu\nNo") ==
        "gres, line 2: the list \"n[0-7999999]\" and those before it have more than 8000000 names");
  CHECK(fault("", "NodeName=a Gres=gpu:1", "Name=gpu File=/dev/g[0-4096]") ==
        "gres, line 1: the list \"/dev/g[0-4096]\" has more than 4096 names");
  // Each of these lines is compared with all nodes.
  std::string lines;
  for (int i = 0; i < 32; ++i) lines += "Name=gpu Count=0\n";
  CHECK(fault("", "NodeName=a", lines).empty());
  CHECK(fault("", "NodeName=a", lines + "Name=gpu Count=0") ==
        "gres, line 33: the lines without NodeName have more than 32 GPUs");
}

TEST_CASE("short texts cannot use up the memory with copies") {
  const auto fault = [](const std::string& topology, const std::string& nodes,
                        const std::string& gres) {
    return std::string(read_slurm(topology, nodes, gres).status().message());
  };
  const std::string text(1 << 14, 'v');  // 65,536 times, it is 1 GiB
  const std::string of_nodes =
      ": the nodes up to here need more than 268435456 bytes for their names, labels, taints and "
      "models";
  for (const char* key : {"Feature=", "Labels=", "Taints="}) {
    CAPTURE(key);
    CHECK(fault("", "NodeName=a\nNodeName=n[1-65536] " + (key + text) + "\nNo", "") ==
          "nodes, line 2" + of_nodes);
  }
  CHECK(fault("", "NodeName=n[1-65536] Gres=gpu:" + text + ":8", "") == "nodes, line 1" + of_nodes);
  // Short words need more than their bytes.
  std::string words = "a";
  for (int i = 0; i < 256; ++i) words += ",a";
  CHECK(fault("", "NodeName=n[1-65536] Feature=" + words, "") == "nodes, line 1" + of_nodes);
  // Values that many lines inherit, also those that mean nothing here.
  for (const auto& [key, last] : {std::pair("Feature", 8184), std::pair("Reason", 16380)}) {
    std::string lines = "NodeName=DEFAULT " + std::string(key) + '=' + text + '\n';
    for (int i = 0; i < 20'000; ++i) lines += "NodeName=n" + std::to_string(i) + '\n';
    CHECK(fault("", lines, "") == "nodes, line " + std::to_string(last) + of_nodes);
  }
  // Lines with a fault, and further DEFAULT lines, do too; but not those with a fault of their own.
  const std::string long_default =
      "NodeName=DEFAULT SocketsPerBoard=2 Reason=" + text + text + text + text + '\n';
  const auto many_lines = [&](const std::string& line) {
    std::string lines = long_default;
    for (int i = 0; i < 5'000; ++i) lines += line + '\n';
    return fault("", lines, "");
  };
  const std::string both =
      ": Sockets, which are those of all boards, beside SocketsPerBoard\nnodes, line ";
  CHECK(many_lines("NodeName=n Sockets=2").starts_with("nodes, line 2" + both + "3" + both));
  CHECK(many_lines("NodeName=n Sockets=2").ends_with("\n4075 more faults"));
  CHECK(many_lines("NodeName=DEFAULT CPUs=4") == "nodes, line 4096" + of_nodes);
  CHECK(many_lines("NodeName=n CPUs=x").ends_with("\n4980 more faults"));
  const std::string list = text + "[1-65536]";
  CHECK(fault("", "NodeName=" + list, "") ==
        "nodes, line 1: the list \"" + list + "\" has more than 268435456 bytes of names");
  CHECK(fault("SwitchName=s Nodes=a\nSwitchName=r Switches=" + list, "NodeName=a", "") ==
        "topology, line 2: the list \"" + list +
            "\" and those before it have more than 268435456 bytes of names");
  CHECK(fault("", "", "NodeName=" + list + " Name=gpu") ==
        "gres, line 1: the list \"" + list + "\" has more than 268435456 bytes of names");
  const std::string files = text + text + text + text + text + "[1-4096]";
  CHECK(fault("", "NodeName=a Gres=gpu:1", "Name=gpu File=" + files) ==
        "gres, line 1: the list \"" + files + "\" has more than 268435456 bytes of names");
  CHECK(fault("SwitchName=" + text + " Nodes=n[1-65536]", "NodeName=n[1-65536]", "") ==
        "nodes, line 1: the nodes up to here need more than 268435456 bytes for the names of their "
        "switches");
  const std::string said = fault("", "NodeName=n[1-65536] Gres=gpu:1", "Name=gpu Type=" + text);
  CHECK(
      said.starts_with("gres, line 1: node \"n16385\" and those before it need more than "
                       "268435456 bytes for their models\ngres, line 1: node \"n16386\" and"));
  // A text that is long itself is read: each line has one node, and all labels.
  if (apiary_test::scale() < 1) return;
  std::string lines;
  for (int i = 0; i < 5; ++i) {
    lines += "NodeName=n" + std::to_string(i) + " Feature=a";
    for (int w = 0; w < 1'800'000; ++w) lines += ",a";
    lines += '\n';
  }
  CHECK(read_slurm("", lines).ok());
}

TEST_CASE("a chain of switches has as many levels as a cluster") {
  // Each switch lists the next one; the top is the first line or the last one.
  const auto chain = [](int switches, bool top_first) {
    std::string text;
    for (int s = 1; s <= switches; ++s) {
      const std::string line = "SwitchName=s" + std::to_string(s) +
                               (s == 1 ? " Nodes=n" : " Switches=s" + std::to_string(s - 1)) + "\n";
      text = top_first ? line + text : text + line;
    }
    return read_slurm(text, "NodeName=n");
  };
  for (const bool top_first : {false, true}) {
    REQUIRE(chain(9, top_first).ok());
    CHECK(chain(9, top_first)->levels.size() == 9);
    for (const int switches : {10, 5000})
      CHECK(std::string(chain(switches, top_first).status().message()) ==
            "topology, line " + std::to_string(top_first ? switches - 9 : 10) +
                ": switch \"s10\" is at level 10 above the nodes; the limit is 9");
  }
}

TEST_CASE("boards, sockets, cores and threads make the CPUs of a node") {
  const auto cpus = [](const std::string& factors) {
    const auto cluster = read_slurm("", "NodeName=a " + factors);
    REQUIRE_MESSAGE(cluster.ok(), std::string(cluster.status().message()));
    return cluster->nodes[0].host.cpu_milli / 1000;
  };
  CHECK(cpus("Boards=2 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2") == 128);
  CHECK(cpus("CoresPerSocket=16 SocketsPerBoard=2 Boards=2") == 64);
  CHECK(cpus("Boards=2 Sockets=2 CoresPerSocket=16") == 32);  // Sockets are those of all boards
  CHECK(cpus("CPUs=96 Boards=2 SocketsPerBoard=2") == 96);
  CHECK(cpus("Boards=1") == 0);  // it says nothing about CPUs
}

namespace {

// The description, written and read again.
gang_cluster read_again(const gang_cluster& cluster) {
  const auto texts = write_slurm(cluster);
  REQUIRE_MESSAGE(texts.ok(), std::string(texts.status().message()));
  CAPTURE(texts->topology);
  CAPTURE(texts->nodes);
  const auto again = read_slurm(texts->topology, texts->nodes);
  REQUIRE_MESSAGE(again.ok(), std::string(again.status().message()));
  return *again;
}
bool same(const gang_cluster& a, const gang_cluster& b) {
  return a.levels == b.levels && a.nodes == b.nodes;
}

}  // namespace

TEST_CASE("a slurm.conf and a gres.conf as users have them are read") {
  const auto cluster = read_slurm("SwitchName=rack0 Nodes=n[0-3]",
                                  R"(
ClusterName=apiary
SlurmctldHost = vm(127.0.0.1)
GresTypes=gpu,nic
NodeSet=fast Feature=ib
NodeName=n[0-1] Sockets=2 CoresPerSocket=24 \
  ThreadsPerCore=2 RealMemory=1000 Gres=gpu:8,nic:4 Reason="bad fan, since May" State=DOWN
NodeName = n2 CPUs=7.91 Gres=gpu:v100:4,gpu:v100:2
NodeName=n3 CPUs=4 Sockets=2
PartitionName=main Nodes=n[0-3] Default=YES State=UP
)",
                                  R"(
AutoDetect=off
Name=gpu Type=v100 File=/dev/nvidia[0-7] Cores=0-3
Name=nic Count=many File=/dev/ib0
)");
  REQUIRE_MESSAGE(cluster.ok(), std::string(cluster.status().message()));
  CHECK(cluster->nodes[0] == gang_cluster::node{.name = "n0",
                                                .cells = {"rack0"},
                                                .gpus = 8,
                                                .host = {.cpu_milli = 96'000, .memory_mib = 1000},
                                                .model = "v100"});
  CHECK(cluster->nodes[2].host.cpu_milli == 7910);
  CHECK(cluster->nodes[2].gpus == 6);
  CHECK(cluster->nodes[3].gpus == 0);
  CHECK(cluster->nodes[3].host.cpu_milli == 4000);
  CHECK(same(*cluster, read_again(*cluster)));

  const auto alone = read_slurm("SwitchName=a Nodes=n[0-2]", "",
                                "NodeName=n[0-2] Name=gpu Type=t4 File=/dev/nvidia0\n"
                                "NodeName=n1 Name=gpu Type=t4 Count=3\n");
  REQUIRE_MESSAGE(alone.ok(), std::string(alone.status().message()));
  CHECK(alone->nodes[0].gpus == 1);
  CHECK(alone->nodes[1].gpus == 4);
  CHECK(alone->nodes[1].model == "t4");
}

TEST_CASE("a gres.conf that contradicts the nodes is refused, with its line") {
  const std::string nodes = "NodeName=n[1-2] Gres=gpu:a:4\nNodeName=n3";
  const std::vector<std::pair<std::string, std::string>> all = {
      {"Name=gpu Count=33", "gres, line 1: \"count=33\" is not a number up to 32"},
      {"\nName=gpu File=/dev/g[0-40]", "gres, line 2: a node has 41 GPUs; the limit is 32"},
      {"Name=gpu Kind=x", "gres, line 1: unknown key \"kind\""},
      {"Name=shard Count=8",
       "gres, line 1: \"name=shard\" shares GPUs; here nodes have whole GPUs"},
      {"NodeName=n1 Name=gpu Type=b Count=4",
       "gres, line 1: node \"n1\" has GPUs of model \"b\"; before, of \"a\""},
      {"NodeName=n1 Name=gpu Count=2\nNodeName=n1 Name=gpu Count=1",
       "gres: node \"n1\" has 3 GPUs; its NodeName line says 4"},
      {"NodeName=n3 Name=gpu Count=2",
       "gres, line 1: node \"n3\" has 2 GPUs; its NodeName line has no Gres=gpu"},
      {"NodeName=n[3-4] Name=gpu Count=0\nNodeName=n5 Name=gpu",
       "gres, line 1: node \"n4\" has no NodeName line\n"
       "gres, line 2: node \"n5\" has no NodeName line"},
  };
  for (const auto& [gres, message] : all) {
    const auto cluster = read_slurm("", nodes, gres);
    REQUIRE(!cluster.ok());
    CHECK(std::string(cluster.status().message()) == message);
  }
  const auto two = read_slurm("", "", "NodeName=a Name=gpu Type=x\nNodeName=a Name=gpu");
  CHECK(std::string(two.status().message()) ==
        "gres, line 2: node \"a\" has GPUs with and without a model");
  const auto many =
      read_slurm("", "", "NodeName=a Name=gpu Count=20\nNodeName=a Name=gpu Count=20");
  CHECK(std::string(many.status().message()) ==
        "gres, line 2: node \"a\" has 40 GPUs; the limit is 32");
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "x\n";
  const auto listed = read_slurm("", lines);
  CHECK(std::string(listed.status().message()).ends_with("\n10 more faults"));
}

TEST_CASE("blocks and their sizes are levels") {
  const auto cluster = read_slurm(
      "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-5]\nBlockName=b3 Nodes=n[6-7]\n"
      "BlockName=b4 Nodes=n[8-9]\nBlockName=b5 Nodes=n[10-11]\nBlockSizes=2,4,16",
      "NodeName=n[1-11] Gres=gpu:4");
  REQUIRE_MESSAGE(cluster.ok(), std::string(cluster.status().message()));
  CHECK(cluster->levels == std::vector<std::string>{"block", "block4", "block16"});
  using cells = std::vector<std::string>;
  CHECK(cluster->nodes[4].cells == cells{"b2", "block4:b1-b2", "block16:b1-b5"});
  CHECK(cluster->nodes[5].cells == cells{"b3", "block4:b3-b4", "block16:b1-b5"});
  CHECK(cluster->nodes[10].cells == cells{"b5", "block4:b5-b5", "block16:b1-b5"});
  CHECK(same(*cluster, read_again(*cluster)));
  const auto flat = read_slurm("BlockName=b1 Nodes=n1", "NodeName=n1");
  REQUIRE(flat.ok());
  CHECK(flat->levels == std::vector<std::string>{"block"});
  CHECK(same(*flat, read_again(*flat)));
}

TEST_CASE("a written description is short and reads back the same") {
  const gang_cluster cluster{
      .levels = {"leaf", "block"},
      .nodes = {
          {.name = "n08", .cells = {"r1", "b"}, .gpus = 8, .model = "a:b"},
          {.name = "n09", .cells = {"r1", "b"}, .gpus = 8, .model = "a:b"},
          {.name = "n10", .cells = {"r2", "b"}, .gpus = 8, .model = "a:b"},
          {.name = "n12", .cells = {"r2", "b"}, .gpus = 8, .model = "a:b"},
          {.name = "x7", .cells = {"r1", "b"}, .gpus = 8, .model = "a:b"},
          {.name = "login", .cells = {"r2", "b"}, .host = {.cpu_milli = 1050}, .labels = {"k="}},
          {.name = "9", .cells = {"r2", "b"}, .model = "t4", .taints = {"k=v:e", "w"}}}};
  const auto texts = write_slurm(cluster);
  REQUIRE(texts.ok());
  CHECK(texts->topology ==
        "SwitchName=r1 Level=leaf Nodes=n[08-09],x7\n"
        "SwitchName=r2 Level=leaf Nodes=n[10,12],login,9\n"
        "SwitchName=b Switches=r[1-2]\n");
  CHECK(texts->nodes ==
        "NodeName=n[08-10,12],x7 Gres=gpu:a:b:8\n"
        "NodeName=login CPUs=1.05 Labels=k=\n"
        "NodeName=9 Gres=gpu:t4:0 Taints=k=v:e,w\n");
  CHECK(same(cluster, read_again(cluster)));
}

TEST_CASE("what the text cannot say is refused") {
  const gang_cluster good{.levels = {"rack"}, .nodes = {{.name = "a", .cells = {"r"}}}};
  const auto fault = [&](auto change) {
    gang_cluster wrong = good;
    change(wrong);
    return std::string(write_slurm(wrong).status().message());
  };
  CHECK(fault([](gang_cluster&) {}).empty());
  CHECK(fault([](gang_cluster& c) { c.nodes[0].gpus = 33; }) ==
        "node \"a\" has 33 GPUs; the limit is 32");
  CHECK(fault([](gang_cluster& c) { c.nodes.clear(); }) ==
        "the cluster has no nodes, so its racks cannot be written");
  for (const char* name : {"a b", "a,b", "a[1]", "a\"", "#a", "a\\", "a\n"}) {
    CHECK(!fault([&](gang_cluster& c) { c.nodes[0].name = name; }).empty());
    CHECK(!fault([&](gang_cluster& c) { c.nodes[0].cells[0] = name; }).empty());
    CHECK(!fault([&](gang_cluster& c) { c.levels[0] = name; }).empty());
    const bool brackets = std::string(name) == "a[1]";
    CHECK(fault([&](gang_cluster& c) { c.nodes[0].labels = {name}; }).empty() == brackets);
    CHECK(fault([&](gang_cluster& c) { c.nodes[0].taints = {name}; }).empty() == brackets);
    CHECK(fault([&](gang_cluster& c) { c.nodes[0].model = name; }).empty() == brackets);
  }
  CHECK(!fault([](gang_cluster& c) { c.nodes[0].name = "DEFAULT"; }).empty());
  CHECK(!fault([](gang_cluster& c) { c.nodes[0].labels = {""}; }).empty());
  CHECK(fault([](gang_cluster& c) { c.nodes[0].host.cpu_milli = 4'000'000'001; }) ==
        "node \"a\" has more than 4000000 CPUs");
  CHECK(fault([](gang_cluster& c) {
          c.levels = {"rack", "block"};
          c.nodes[0].cells = {"r", "r"};
        }) == "a rack and a block have the name \"r\"");
}

TEST_CASE("random descriptions read back the same, and corrupted ones do no harm") {
  rng random(21);
  const auto below = [&random](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < apiary_test::scaled(2000); ++round) {
    gang_cluster cluster;
    const auto levels = below(3);
    for (std::uint64_t l = 0; l < levels; ++l)
      cluster.levels.push_back(below(2) == 0 ? "rack" + std::to_string(l)
                               : l == 0      ? "rack"
                                             : "block");
    const auto nodes = 1 + below(12);
    for (std::uint64_t n = 0; n < nodes; ++n) {
      gang_cluster::node one;
      constexpr const char* prefixes[] = {"n", "n0", "n1-", "", "gpu-a", "999999999", "0"};
      one.name = prefixes[below(7)] + std::to_string(below(30)) + (below(9) == 0 ? "x" : "");
      std::uint64_t cell = below(4);
      for (std::uint64_t l = 0; l < levels; ++l, cell /= 2)
        one.cells.push_back("c" + std::to_string(l) + "-" + std::to_string(cell));
      one.gpus = static_cast<std::uint32_t>(below(3) * 4);
      one.host.cpu_milli = static_cast<std::uint32_t>(below(2) * below(4'000'000'000));
      one.host.memory_mib = static_cast<std::uint32_t>(below(2) * below(4'294'967'295));
      if (below(2) == 0) one.model = "m" + std::to_string(below(2));
      for (std::uint64_t i = below(3); i > 0; --i) one.labels.push_back("k=[v");
      if (below(4) == 0) one.taints = {"a=b:c"};
      cluster.nodes.push_back(std::move(one));
    }
    if (!cluster.check().ok()) continue;  // a name twice
    CHECK(same(cluster, read_again(cluster)));
    auto texts = *write_slurm(cluster);
    for (int times = 0; times < 5; ++times) {
      std::string& text = below(2) == 0 ? texts.topology : texts.nodes;
      if (text.empty()) continue;
      constexpr std::string_view bytes = "=,[]-0199\"\\#\n\t NSG:";
      const auto at = static_cast<std::size_t>(below(text.size()));
      if (below(2) == 0)
        text[at] = bytes[below(bytes.size())];
      else
        text.erase(at, below(20));
      const auto read = read_slurm(texts.topology, texts.nodes, texts.nodes);
      const auto other = read_slurm(texts.topology, texts.nodes);
      CHECK((read.ok() || !read.status().message().empty()));
      if (other.ok()) CHECK(other->check().ok());
    }
  }
}
