// apiary/tests/examples/gang_session_test.cpp - lines of a session of the gang scheduler: each op, each fault.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/gang_session.h"

#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

using example::gang_session;

namespace {

std::string quoted(std::string line) {
  for (char& c : line) c = c == '\'' ? '"' : c;
  return line;
}
// The answer to a line with ' for ", without its number and its hash, and with ' for ".
std::string ask_gang(gang_session& session, const std::string& line) {
  std::string answer = session.answer(quoted(line));
  for (char& c : answer) c = c == '"' ? '\'' : c;
  const std::size_t from = answer.find(',') + 1;
  const std::size_t to = answer.rfind(",'hash':'");
  REQUIRE(to != std::string::npos);
  CHECK(answer.size() - to == 27);
  return answer.substr(from, to - from);
}
std::uint64_t state_of(const gang_session& session) {
  return session.scheduler() == nullptr ? 0 : session.scheduler()->hash();
}
const std::string all_gpus = "'devices':[0,1,2,3,4,5,6,7]";
const std::string done = "'result':'ok'";

gang_session two_racks() {
  gang_session session;
  REQUIRE(ask_gang(session,
                   "{'op':'config','topology':'SwitchName=r1 Nodes=n[1-2]\\nSwitchName=r2 "
                   "Nodes=n[3-4]','nodes':'NodeName=n[1-4] Gres=gpu:h100:8 CPUs=64'}") == done);
  return session;
}

// A new session that has played the lines of a snapshot.
gang_session restored(gang_session& from) {
  const auto document = example::json_reader::read(from.answer(R"({"op":"snapshot"})"));
  gang_session to;
  for (const example::json_value& line : document->find("lines")->items) {
    const std::string answer = to.answer(line.scalar);
    CHECK_MESSAGE(answer.find(R"("result":"ok")") != std::string::npos, answer);
  }
  return to;
}

}  // namespace

TEST_CASE("a session proposes, commits, preempts and explains") {
  gang_session s = two_racks();
  const std::string train = "'group':'train','members':[{'pods':2,'leafs':8}],'required':'rack'";
  CHECK(ask_gang(s, "{'op':'propose','group':7,'members':[{'pods':3,'leafs':8}]}") ==
        "'result':'bind','pods':[{'node':'n1'," + all_gpus + "},{'node':'n2'," + all_gpus +
            "},{'node':'n3'," + all_gpus + "}],'level':'cluster'");
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(
      ask_gang(s, "{'op':'commit'}") ==
      "'result':'error','code':'FAILED_PRECONDITION','message':'there is no plan: propose first'");
  CHECK(ask_gang(s, "{'op':'propose'," + train + "}") == "'result':'wait','reason':'busy'");
  CHECK(ask_gang(s, "{'op':'commit'}").find("FAILED_PRECONDITION") != std::string::npos);
  CHECK(
      ask_gang(s, "{'op':'why'," + train + "}") ==
      "'result':'wait','reason':'busy','text':'job train waits: the gang needs 2 free nodes of 8 "
      "GPUs in one rack; rack r2 has the most: 1; it would fit if node n3 were free (8 more GPUs)',"
      "'nodesToFree':['n3'],'gpusToFree':8");
  const std::string plan = ask_gang(s, "{'op':'propose','priority':1,'now':5," + train + "}");
  CHECK(plan.find("'result':'preempt'") == 0);
  CHECK(plan.find("'level':'rack','victims':[7],'cost':") != std::string::npos);
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(ask_gang(s, "{'op':'gang_state','group':7}").find("'endsFor':'train'") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'gang_state','group':'train'}").find("'state':'preempting'") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'delete','group':7}") == done);
  CHECK(ask_gang(s, "{'op':'propose','priority':1,'now':9," + train + "}").find("'bind'") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(ask_gang(s, "{'op':'gang_state','group':'train'}").find("'state':'allocated'") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'free','level':'rack'}") ==
        "'result':'ok','cells':[{'name':'r1','nodes':2,'freeNodes':0,'gpus':16,'freeGpus':0},"
        "{'name':'r2','nodes':2,'freeNodes':2,'gpus':16,'freeGpus':16}]");
  CHECK(ask_gang(s, "{'op':'audit'}") == done);
}

TEST_CASE("nodes break, change, join and leave; tasks are replaced") {
  gang_session s = two_racks();
  ask_gang(s, "{'op':'propose','group':'a','members':[{'pods':1,'leafs':8}]}");
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(ask_gang(s, "{'op':'replace','group':'a'}").find("FAILED_PRECONDITION") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'node_bad','node':'n1'}") == done);
  CHECK(ask_gang(s, "{'op':'replace','group':'a'}").find("'replaced':[0]") != std::string::npos);
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(ask_gang(s, "{'op':'gang_state','group':'a'}").find("'node':'n2'") != std::string::npos);
  CHECK(ask_gang(s, "{'op':'device_bad','node':'n3','device':7}") == done);
  CHECK(ask_gang(s, "{'op':'resize_node','node':'n3','gpus':4,'cpuMilli':1000}") == done);
  CHECK(ask_gang(s, "{'op':'remove_node','node':'n4'}") == done);
  CHECK(ask_gang(s,
                 "{'op':'add_node','node':{'name':'n9','cells':['r9'],'gpus':2,'memoryMib':5,"
                 "'model':'t4','labels':['x=y'],'taints':['w']}}") == done);
  gang_session again = restored(s);
  CHECK(state_of(again) == state_of(s));
  CHECK(ask_gang(s, "{'op':'node_healthy','node':'n1'}") == done);
  CHECK(state_of(again) != state_of(s));
  const std::string picky =
      "{'op':'propose','group':'p','members':[{'pods':1,'leafs':1,'memoryMib':5}],'filter':{'"
      "labels':"
      "['x=y'],'models':['t4'],'nodes':['n9','n1'],'tolerations':['w']}}";
  CHECK(ask_gang(s, picky).find("'node':'n9'") != std::string::npos);
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(ask_gang(s, "{'op':'remove_node','node':'n9'}").find("FAILED_PRECONDITION") !=
        std::string::npos);
  CHECK(state_of(restored(s)) == state_of(s));
}

TEST_CASE("schedule proposes and commits") {
  gang_session s = two_racks();
  gang_session twin = two_racks();
  const auto both = [&](const std::string& line, bool commits) {
    const std::string answer = ask_gang(s, "{'op':'schedule'," + line);
    CHECK(answer == ask_gang(twin, "{'op':'propose'," + line));
    if (commits) CHECK(ask_gang(twin, "{'op':'commit'}") == done);
    CHECK(state_of(s) == state_of(twin));
    return answer;
  };
  CHECK(both("'group':1,'members':[{'pods':3,'leafs':8}]}", true).find("'bind'") !=
        std::string::npos);
  CHECK(both("'group':2,'members':[{'pods':2,'leafs':8}]}", false) ==
        "'result':'wait','reason':'busy'");
  CHECK(both("'group':2,'priority':1,'members':[{'pods':2,'leafs':8}]}", true).find("'preempt'") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'gang_state','group':1}").find("'state':'being_preempted'") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'commit'}").find("there is no plan") != std::string::npos);
}

TEST_CASE("a resized node keeps what the line does not give") {
  gang_session s;
  REQUIRE(ask_gang(s,
                   "{'op':'config','nodes':[{'name':'n','gpus':8,'cpuMilli':32000,"
                   "'memoryMib':900}]}") == done);
  const auto after = [&](const std::string& fields) {
    CHECK(ask_gang(s, "{'op':'resize_node','node':'n'" + fields + '}') == done);
    const auto& node = *s.scheduler()->node(*s.scheduler()->find_node("n"));
    return std::to_string(node.gpus) + ' ' + std::to_string(node.host.cpu_milli) + ' ' +
           std::to_string(node.host.memory_mib);
  };
  CHECK(after(",'cpuMilli':64000") == "8 64000 900");
  CHECK(after(",'gpus':4") == "4 64000 900");
  CHECK(after(",'memoryMib':0,'gpus':null") == "4 64000 0");
  CHECK(after("") == "4 64000 0");
  CHECK(after(",'gpus':0,'cpuMilli':1,'memoryMib':2") == "0 1 2");
  CHECK(ask_gang(s, "{'op':'resize_node','node':'m','cpuMilli':1}").find("NOT_FOUND") !=
        std::string::npos);
  CHECK(ask_gang(s, "{'op':'resize_node','node':'m','cpuMilli':-1}").find("cpuMilli: a whole") !=
        std::string::npos);
  CHECK(state_of(restored(s)) == state_of(s));
}

TEST_CASE("constraints survive a snapshot") {
  gang_session s = two_racks();
  const std::string line =
      "{'op':'propose','group':'c','tenant':3,'priority':-2,'members':[{'pods':2,'leafs':1},{'pods'"
      ":"
      "4,'leafs':2,'cpuMilli':500,'leader':0,'leaderLevel':'rack'},{'pods':2,'leafs':1,'slices':[{"
      "'level':'rack','pods':2}],'spread':[{'level':'node','pods':1}]}],'preferred':'rack'}";
  CHECK(ask_gang(s, line).find("'bind'") != std::string::npos);
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  gang_session again = restored(s);
  CHECK(state_of(again) == state_of(s));
  CHECK(ask_gang(again, "{'op':'gang_state','group':'c'}") ==
        ask_gang(s, "{'op':'gang_state','group':'c'}"));
}

TEST_CASE("a copy does not change its original") {
  gang_session s = two_racks();
  const std::uint64_t before = state_of(s);
  ask_gang(s, "{'op':'propose','group':'a','members':[{'pods':1,'leafs':8}]}");
  gang_session copy = s;
  CHECK(ask_gang(copy, "{'op':'commit'}") == done);
  CHECK(state_of(s) == before);
  CHECK(ask_gang(s, "{'op':'commit'}") == done);
  CHECK(state_of(s) == state_of(copy));
}

TEST_CASE("each fault of a line has a code and a text, and changes nothing") {
  gang_session empty;
  CHECK(ask_gang(empty, "{'op':'audit'}") ==
        "'result':'error','code':'FAILED_PRECONDITION','message':'there is no configuration'");
  CHECK(ask_gang(empty, "{'op':'config','levels':['rack'],'nodes':[{'name':'a'}]}") ==
        "'result':'error','code':'INVALID_ARGUMENT','message':'node \\'a\\' names 0 cells; the "
        "cluster has 1 levels above the nodes'");
  gang_session s = two_racks();
  const std::uint64_t before = state_of(s);
  const std::string gang = "'group':'a','members':[{'pods':1,'leafs':8}]";
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"", "no JSON, byte"},
      {"{'op'", "no JSON, byte"},
      {"[]", "line: an object expected"},
      {"{}", "op: is missing"},
      {"{'op':7}", "op: a text expected"},
      {"{'op':'x'}", "op: there is no \\'x\\'"},
      {"{'op':'config','nodes':''}", "there is a configuration"},
      {"{'op':'audit','x':1}", "x: is not a field of audit"},
      {"{'op':'audit','i':1,'i':2}", "i: is given twice"},
      {"{'op':'propose','group':'','members':[]}", "group: is missing"},
      {"{'op':'propose','group':-1,'members':[]}",
       "group: a text or a whole number from 0 expected"},
      {"{'op':'propose','group':1,'members':[{'pods':1,'names':['a']}]}",
       "members[0].names: is not a field of a member"},
      {"{'op':'propose','group':1}", "members: is missing"},
      {"{'op':'propose','group':1,'members':{}}", "members: an array expected"},
      {"{'op':'propose','group':1,'members':[{'pods':1,'gpu':8}]}",
       "members[0].gpu: is not a field of a member"},
      {"{'op':'propose','group':1,'members':[{'pods':-1}]}",
       "members[0].pods: a whole number from 0 to 4294967295 expected"},
      {"{'op':'propose','group':1,'members':[{'pods':1.5}]}",
       "members[0].pods: a whole number from 0 to 4294967295 expected"},
      {"{'op':'propose'," + gang + ",'priority':2147483648}",
       "priority: a whole number from -2147483648 to 2147483647 expected"},
      {"{'op':'propose'," + gang + ",'required':'row'}", "required: there is no level \\'row\\'"},
      {"{'op':'propose','group':1,'members':[{'pods':1,'slices':[{'level':'row'}]}]}",
       "members[0].slices[0].level: there is no level \\'row\\'"},
      {"{'op':'propose'," + gang + ",'filter':{'models':[1]}}",
       "filter.models[0]: a text expected"},
      {"{'op':'propose'," + gang + ",'filter':{'nodes':['x']}}", "\\'x\\'"},
      {"{'op':'recover'," + gang + ",'pods':[{'node':'x','devices':[0]}]}",
       "pods[0].node: there is no node \\'x\\'"},
      {"{'op':'recover'," + gang + ",'pods':[{'node':'n1','devices':[0,0]}]}",
       "pods[0].devices: GPU 0 is given twice, or does not exist"},
      {"{'op':'recover'," + gang + ",'pods':[{'node':'n1','devices':[32]}]}",
       "pods[0].devices: GPU 32 is given twice, or does not exist"},
      {"{'op':'delete','group':'b'}", "b"},
      {"{'op':'gang_state','group':'b'}", "job b does not run"},
      {"{'op':'device_bad','node':'n1','device':8}", "node \\'n1\\' has 8 GPUs, so no GPU 8"},
      {"{'op':'node_bad'}", "node: is missing"},
      {"{'op':'device_bad','node':'n1'}", "device: is missing"},
      {"{'op':'add_node'}", "node.name: is missing"},
      {"{'op':'add_node','node':{'name':'n1','cells':['r1']}}", "exists already"},
      {"{'op':'free','level':'row'}", "there is no level \\'row\\'"}};
  for (const auto& one : faults) {
    const std::string& line = one.first;
    const std::string& text = one.second;
    CAPTURE(line);
    const std::string answer = ask_gang(s, line);
    CHECK(answer.find("'result':'error','code':'") == 0);
    CHECK_MESSAGE(answer.find(text) != std::string::npos, answer);
    CHECK(state_of(s) == before);
  }
  CHECK(s.answer(std::string(gang_session::max_line + 1, ' ')).find("16 MiB") != std::string::npos);
  const std::string deep(100, '[');
  CHECK(s.answer(deep).find("nested too deeply") != std::string::npos);
  CHECK(ask_gang(s, "{'op':'note'}") == done);
}

TEST_CASE("a random session can be played again and restored") {
  apiary::rng random(9);
  for (int round = 0; round < apiary_test::scaled(60); ++round) {
    gang_session s = two_racks();
    gang_session twin = two_racks();
    std::vector<std::string> jobs;
    bool preempts = false;
    for (int step = 0; step < 60; ++step) {
      const std::string job = std::to_string(random.uniform(12));
      const std::string node = "n" + std::to_string(1 + random.uniform(4));
      std::string line;
      switch (random.uniform(6)) {
        case 0:
          line = "{'op':'delete','group':" + job + "}";
          break;
        case 1:
          line = "_" + std::string(random() % 3 == 0 ? "bad" : "healthy") + "','node':'" + node;
          line = random() % 2 == 0 ? "{'op':'node" + line + "'}"
                                   : "{'op':'device" + line + "','device':2}";
          break;
        case 2:
          line = "{'op':'commit'}";
          break;
        default:
          line = "{'op':'propose','group':" + job +
                 ",'priority':" + std::to_string(random.uniform(3)) +
                 ",'members':[{'pods':" + std::to_string(1 + random.uniform(3)) +
                 ",'leafs':" + std::to_string(1 + random.uniform(8)) + "}]" +
                 (random() % 2 == 0 ? ",'required':'rack'}" : "}");
      }
      const std::string answer = s.answer(quoted(line));
      CHECK(answer == twin.answer(quoted(line)));
      CHECK(example::json_reader::read(answer).ok());
      CHECK(answer.find("INTERNAL") == std::string::npos);
    }
    CHECK(ask_gang(s, "{'op':'audit'}") == done);
    preempts = s.answer(R"({"op":"snapshot"})").find(R"("preempting":[])") == std::string::npos;
    gang_session again = restored(s);
    CHECK((preempts || state_of(again) == state_of(s)));
    CHECK(ask_gang(again, "{'op':'audit'}") == done);
  }
}
