// apiary/tests/examples/hived_session_test.cpp - lines of a session: each op, each fault, replay.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/hived_session.h"

#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

using example::hived_session;

namespace {

const std::string cells =
    R"("physicalCluster":{"cellTypes":{"PAIR":{"childCellType":"GPU","childCellNumber":2},)"
    R"("NODE":{"childCellType":"PAIR","childCellNumber":2,"isNodeLevel":true}},"physicalCells":[)"
    R"({"cellType":"NODE","cellAddress":"n0"},{"cellType":"NODE","cellAddress":"n1"},)"
    R"({"cellType":"NODE","cellAddress":"n2","pinnedCellId":"pin"}]},)"
    R"("virtualClusters":{"red":{"virtualCells":[{"cellType":"NODE","cellNumber":1}],)"
    R"("pinnedCells":[{"pinnedCellId":"pin"}]},)"
    R"("blue":{"virtualCells":[{"cellType":"NODE.PAIR","cellNumber":1}]}})";

// The answer without its number and its hash.
std::string ask(hived_session& session, const std::string& line) {
  const std::string answer = session.answer(line);
  const std::size_t from = answer.find(',') + 1;
  const std::size_t to = answer.rfind(",\"hash\":\"");
  REQUIRE(to != std::string::npos);
  CHECK(answer.size() - to == 27);
  return answer.substr(from, to - from);
}
// The line of an op and its fields, with ' for ".
std::string line_of(std::string op) {
  for (char& c : op) c = c == '\'' ? '"' : c;
  return "{\"op\":" + op + '}';
}
std::string ask_op(hived_session& session, const std::string& op) {
  std::string answer = ask(session, line_of(op));
  for (char& c : answer) c = c == '"' ? '\'' : c;
  return answer;
}
std::string hash_of(const std::string& answer) { return answer.substr(answer.size() - 18, 16); }

hived_session configured() {
  hived_session session;
  REQUIRE(ask(session, R"({"op":"config",)" + cells + '}') == R"("result":"ok")");
  return session;
}
std::string gang(const std::string& name, const std::string& vc, int priority,
                 const std::string& members, const std::string& more = "") {
  return "'schedule','group':'" + name + "','vc':'" + vc +
         "','priority':" + std::to_string(priority) + ",'members':" + members + more;
}
const std::string nothing_else = ",'lazyPreempted':[],'cancelled':[],'restored':[]";
const std::string nobody_restored = "'result':'ok','restored':[]";

// A line that is refused, for what reason, and changes nothing.
// `line` as it is, or as for ask_op.
void refuses(hived_session& session, std::string line, const std::string& code,
             const std::string& words) {
  if (line.starts_with('\'')) line = line_of(line);
  CAPTURE(line);
  const std::string hash = hash_of(session.answer(R"({"op":"note"})"));
  const std::string answer = session.answer(line);
  CAPTURE(answer);
  CHECK(answer.find(R"("result":"error","code":")" + code + '"') != std::string::npos);
  CHECK(answer.find(words) != std::string::npos);
  CHECK(hash_of(answer) == hash);
  CHECK(example::json_reader::read(answer).ok());
}

}  // namespace

TEST_CASE("gangs are bound, wait, end") {
  hived_session s = configured();
  CHECK(ask_op(s, gang("a", "blue", 0, "[{'pods':2,'leafs':1}]")) ==
        "'result':'bind','pods':[{'node':'n0','devices':[0],'wholeCell':1},"
        "{'node':'n0','devices':[1],'wholeCell':1}]" +
            nothing_else);
  CHECK(ask_op(s, gang("b", "blue", 0, "[{'pods':1,'leafs':1}]")) ==
        "'result':'wait','reason':'busy','why':'gangs that it may not preempt use "
        "the cells of blue; the gang needs capacity for 1 task of 1 GPU; "
        "the virtual cluster has none','proof':{'chain':'NODE','level':'virtual "
        "cluster','groups':[0],'weighings':[{'weights':[1],'needed':1}],'cells':[{'cell':0,'"
        "weighing':0,'most':0}],'others':[]}" +
            nothing_else);
  CHECK(ask_op(s, gang("b", "blue", 0, "[{'pods':1,'leafs':3}]")).find("'never'") !=
        std::string::npos);
  CHECK(ask_op(s, gang("b", "red", 0, "[{'pods':1,'leafs':4}]", ",'suggested':['n0','other']"))
            .find("'not_suggested'") != std::string::npos);
  CHECK(ask_op(s, gang("c", "red", 0, "[{'pods':1,'leafs':4}]", ",'pinned':'pin'")) ==
        "'result':'bind','pods':[{'node':'n2','devices':[0,1,2,3],'wholeCell':2}]" + nothing_else);
  CHECK(ask_op(s, "'delete_pod','group':'a','pod':0") == nobody_restored);
  CHECK(s.num_names() == 2);
  CHECK(ask_op(s, "'delete_pod','group':'a','pod':1") == nobody_restored);
  CHECK(ask_op(s, "'delete','group':'c'") == nobody_restored);
  CHECK(s.num_names() == 0);
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
  CHECK(hash_of(s.answer(R"({"op":"final"})")) == hash_of(configured().answer("{}")));
}

TEST_CASE("a gang that may use two chains is refused by both") {
  hived_session s;
  REQUIRE(ask_op(s,
                 "'config','physicalCluster':{'cellTypes':{"
                 "'OLD':{'childCellType':'GPU','childCellNumber':2,'isNodeLevel':true},"
                 "'NEW':{'childCellType':'GPU','childCellNumber':4,'isNodeLevel':true}},"
                 "'physicalCells':[{'cellType':'OLD','cellAddress':'n0'},"
                 "{'cellType':'NEW','cellAddress':'n1'}]},'virtualClusters':{'red':{"
                 "'virtualCells':[{'cellType':'OLD','cellNumber':1},"
                 "{'cellType':'NEW','cellNumber':1}]}}") == "'result':'ok'");
  const std::string answer = ask_op(s, gang("a", "red", -1, "[{'pods':2,'leafs':3}]"));
  const auto numbers = [](const char* chain, int most) {
    return std::string("{'chain':'") + chain +
           "','level':'cluster','groups':[0],'weighings':[{'weights':[1],'needed':2}],"
           "'cells':[{'cell':0,'weighing':0,'most':" +
           std::to_string(most) + "}]";
  };
  CAPTURE(answer);
  CHECK(answer.find("'reason':'never'") != std::string::npos);
  CHECK(answer.find("'proof':" + numbers("NEW", 1) + ",'others':[" + numbers("OLD", 0) + "}]}") !=
        std::string::npos);
}

TEST_CASE(
    "a gang under constraints is placed by them, or the answer names the constraint in the way") {
  hived_session session;
  const std::string racks =
      R"("physicalCluster":{"cellTypes":{"NODE":{"childCellType":"GPU","childCellNumber":2,)"
      R"("isNodeLevel":true},"RACK":{"childCellType":"NODE","childCellNumber":2}},)"
      R"("physicalCells":[{"cellType":"RACK","cellChildren":[{"cellAddress":"n0"},)"
      R"({"cellAddress":"n1"}]},{"cellType":"RACK","cellChildren":[{"cellAddress":"n2"},)"
      R"({"cellAddress":"n3"}]}]},"virtualClusters":{"red":{"virtualCells":[)"
      R"({"cellType":"RACK","cellNumber":2}]}})";
  REQUIRE(ask(session, R"({"op":"config",)" + racks + '}') == R"("result":"ok")");
  const auto nodes_of_answer = [](const std::string& answer) {
    std::string nodes;
    for (std::size_t at = answer.find("'n"); at != std::string::npos;
         at = answer.find("'n", at + 1))
      if (answer[at + 2] >= '0' && answer[at + 2] <= '3') nodes += answer[at + 2];
    return nodes;
  };
  CHECK(nodes_of_answer(
            ask_op(session, gang("a", "red", 0,
                                 "[{'pods':2,'leafs':1,'spread':[{'level':'NODE','pods':1}]},"
                                 "{'pods':2,'leafs':1,'leader':0}]",
                                 ",'required':'RACK'"))) == "0101");
  CHECK(nodes_of_answer(ask_op(session, gang("b", "red", 0, "[{'pods':1,'leafs':2}]"))) == "2");
  const std::string waits =
      ask_op(session, gang("c", "red", 0, "[{'pods':2,'leafs':2}]", ",'required':'RACK'"));
  CHECK(waits.find("'reason':'busy'") != std::string::npos);
  CHECK(waits.find("the gang needs 2 free NODEs of 2 GPUs in one RACK of the tenant's cells") !=
        std::string::npos);
  const std::string guest =
      ask_op(session, gang("c", "red", -1, "[{'pods':2,'leafs':2}]", ",'required':'RACK'"));
  CHECK(guest.find("in one RACK") != std::string::npos);
  CHECK(guest.find("of the tenant's") == std::string::npos);
  CHECK(ask_op(session, gang("d", "red", 0, "[{'pods':2,'leafs':2}]", ",'required':'ROW'"))
            .find("there is no cell type") != std::string::npos);
  CHECK(ask_op(session,
               gang("d", "red", 0, "[{'pods':3,'leafs':1,'slices':[{'level':'RACK','pods':2}]}]"))
            .find("do not divide its 3 tasks") != std::string::npos);
  CHECK(ask_op(session, gang("d", "red", 0, "[{'pods':3,'leafs':1,'slices':[{'level':2}]}]"))
            .find("members[0].slices[0].level: a text expected") != std::string::npos);
}

TEST_CASE("a level of rules says what leaves a gang wants, and cannot say two") {
  hived_session s;
  REQUIRE(ask_op(s,
                 "'config','physicalCluster':{'cellTypes':{"
                 "'OLD':{'childCellType':'K80','childCellNumber':2,'isNodeLevel':true},"
                 "'OLDS':{'childCellType':'OLD','childCellNumber':2},"
                 "'YOUNG':{'childCellType':'V100','childCellNumber':2,'isNodeLevel':true},"
                 "'YOUNGS':{'childCellType':'YOUNG','childCellNumber':2}},'physicalCells':["
                 "{'cellType':'OLDS','cellChildren':[{'cellAddress':'n0'},{'cellAddress':'n1'}]},"
                 "{'cellType':'YOUNGS','cellChildren':[{'cellAddress':'n2'},"
                 "{'cellAddress':'n3'}]}]},'virtualClusters':{'red':{'virtualCells':["
                 "{'cellType':'OLDS','cellNumber':1},{'cellType':'YOUNGS','cellNumber':1}]}}") ==
          "'result':'ok'");
  const std::string two = "[{'pods':2,'leafs':1}]";
  const std::string words = "is made of 'V100', not of 'K80'";
  for (const char* more :
       {",'leafType':'K80','required':'YOUNG'", ",'required':'OLD','preferred':'YOUNG'"}) {
    const std::string answer = ask_op(s, gang("a", "red", 0, two, more));
    CAPTURE(answer);
    CHECK(answer.find("INVALID_ARGUMENT") != std::string::npos);
    CHECK(answer.find("'YOUNG' " + words) != std::string::npos);
  }
  for (const char* level : {"OLD", "YOUNG"}) {
    const std::string answer =
        ask_op(s, gang(level, "red", 0, two, std::string(",'required':'") + level + "'"));
    CAPTURE(answer);
    CHECK((answer.find("'n0'") != std::string::npos) == (level == std::string("OLD")));
    CHECK((answer.find("'n2'") != std::string::npos) == (level == std::string("YOUNG")));
  }
}

TEST_CASE("a type of cells in rules is no other type in another chain") {
  hived_session s;
  REQUIRE(
      ask_op(s,
             "'config','physicalCluster':{'cellTypes':{"
             "'PAIR':{'childCellType':'GPU','childCellNumber':2},"
             "'BIG':{'childCellType':'PAIR','childCellNumber':2,'isNodeLevel':true},"
             "'BIGS':{'childCellType':'BIG','childCellNumber':2},"
             "'SMALL':{'childCellType':'GPU','childCellNumber':2,'isNodeLevel':true},"
             "'SMALLS':{'childCellType':'SMALL','childCellNumber':2},"
             "'ROW':{'childCellType':'SMALLS','childCellNumber':2}},'physicalCells':["
             "{'cellType':'BIGS','pinnedCellId':'pin','cellChildren':[{'cellAddress':'b0'},"
             "{'cellAddress':'b1'}]},{'cellType':'ROW','cellChildren':[{'cellChildren':["
             "{'cellAddress':'s0'},{'cellAddress':'s1'}]},{'cellChildren':["
             "{'cellAddress':'s2'},{'cellAddress':'s3'}]}]},"
             "{'cellType':'BIGS','cellChildren':[{'cellAddress':'b2'},{'cellAddress':'b3'}]},"
             "{'cellType':'BIG','cellAddress':'b4'}]},"
             "'virtualClusters':{'both':{'virtualCells':[{'cellType':'BIGS.BIG','cellNumber':1},"
             "{'cellType':'ROW.SMALLS','cellNumber':1}],'pinnedCells':[{'pinnedCellId':'pin'}]},"
             "'one':{'virtualCells':[{'cellType':'ROW.SMALLS','cellNumber':1}]},"
             "'large':{'virtualCells':[{'cellType':'BIGS.BIG','cellNumber':1},"
             "{'cellType':'BIG','cellNumber':1}]}}") == "'result':'ok'");
  const std::string two = "[{'pods':2,'leafs':2}]";
  const auto refused = [&](const std::string& vc, int priority, const std::string& members,
                           const std::string& more, const std::string& words) {
    std::string line = "{'op':" + gang("g", vc, priority, members, more) + '}';
    std::replace(line.begin(), line.end(), '\'', '"');
    refuses(s, line, "INVALID_ARGUMENT", words);
  };
  const std::string big =
      "cell type 'BIG' is of level 2, which is 'SMALLS' in chain 'ROW', and the gang may use that";
  const std::string bigs = "cell type 'BIGS' is of level 3, which is 'ROW' in chain 'ROW'";
  const std::string smalls = "cell type 'SMALLS' is of level 2, which is 'BIG' in chain 'BIG";
  refused("both", 0, two, ",'required':'BIG'", big);
  refused("both", 0, two, ",'preferred':'BIGS'", bigs);
  refused("one", 0, two, ",'required':'BIG'", big);
  refused("large", -1, two, ",'required':'BIG'", big);
  refused("both", 0, two, ",'required':'SMALLS'", smalls);
  refused("both", 0, "[{'pods':2,'leafs':2,'slices':[{'level':'BIG','pods':2}]}]", "", big);
  refused("both", 0, "[{'pods':2,'leafs':2,'spread':[{'level':'BIG','pods':1}]}]", "", big);
  refused("both", 0, two, ",'required':'BIGS','preferred':'BIG'", "in chain 'ROW'");

  // Where the gang may not use the other chain, or the other chain has no such level of nodes.
  const auto binds = [&](const std::string& name, const std::string& vc, const std::string& members,
                         const std::string& more, const std::string& node) {
    const std::string answer = ask_op(s, gang(name, vc, 0, members, more));
    CAPTURE(answer);
    CHECK(answer.starts_with("'result':'bind','pods':[{'node':'" + node));
  };
  binds("a", "both", two, ",'required':'BIG','pinned':'pin'", "b");
  binds("b", "large", "[{'pods':1,'leafs':4}]", ",'required':'BIGS'", "b");
  binds("c", "large", two, ",'required':'BIG'", "b");
  binds("d", "one", two, ",'required':'SMALLS'", "s");
  binds("e", "both", "[{'pods':1,'leafs':2}]", ",'required':'SMALL'", "s");
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("preemption: reserved, asked again, withdrawn; filtering changes nothing") {
  hived_session s = configured();
  ask_op(s, gang("low", "blue", 0, "[{'pods':1,'leafs':2}]"));
  const std::string before = hash_of(s.answer(R"({"op":"note"})"));
  const auto bound = [&](const std::string& answer) {
    return answer.starts_with("'result':'bind'");
  };
  std::string answer = ask_op(s, gang("high", "blue", 1, "[{'pods':1,'leafs':2}]",
                                      ",'suggested':['n0'],'phase':'Filtering'"));
  CHECK(answer ==
        "'result':'preempt','victims':['low'],'reserved':[{'node':'n0','devices':[0,1]}]" +
            nothing_else);
  CHECK(hash_of(s.answer(R"({"op":"note"})")) == before);
  answer = ask_op(s, gang("high", "blue", 1, "[{'pods':1,'leafs':2}]", ",'suggested':['n0']"));
  CHECK(answer.starts_with("'result':'preempt','victims':['low']"));
  CHECK(ask_op(s, "'schedule','group':'high'").starts_with("'result':'preempt'"));
  CHECK(ask_op(s, "'cancel','group':'high'") == nobody_restored);
  // Its victim keeps its leaves; a lazy one moves out of the tenant's cells.
  CHECK(ask_op(s, "'delete','group':'low'") == nobody_restored);
  ask_op(s, gang("low", "blue", 0, "[{'pods':1,'leafs':2}]", ",'lazy':true"));
  answer = ask_op(s, gang("high", "blue", 1, "[{'pods':1,'leafs':2}]", ",'suggested':['n0']"));
  CHECK(bound(answer));
  CHECK(answer.find("'lazyPreempted':['low']") != std::string::npos);
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("a gang that asks again by name alone stays on the nodes suggested last") {
  hived_session s = configured();
  const std::string again = "'schedule','group':'g'";
  const auto reserved = [](const std::string& answer) {
    const std::size_t from = answer.find("'node':'");
    return answer.starts_with("'result':'preempt'") ? answer.substr(from + 8, 2) : "none";
  };
  const auto bad = [&](const std::string& node) {
    CHECK(ask_op(s, "'node_bad','node':'" + node + "'") == "'result':'ok'");
  };
  const auto healthy = [&](const std::string& node) {
    CHECK(ask_op(s, "'node_healthy','node':'" + node + "'") == "'result':'ok'");
  };
  const auto first = [&](const std::string& more) {
    return reserved(ask_op(s, gang("g", "red", 0, "[{'pods':1,'leafs':4}]", more)));
  };
  for (const std::string node : {"n0", "n1"})
    ask_op(s, gang("on " + node, "red", -1, "[{'pods':1,'leafs':4}]",
                   ",'suggested':['" + node + "']"));

  // Its place goes bad: another is not suggested.
  CHECK(first(",'suggested':['n0']") == "n0");
  bad("n0");
  std::string answer = ask_op(s, again + ",'phase':'Filtering'");
  CHECK(answer.starts_with("'result':'wait','reason':'not_suggested'"));
  CHECK(s.num_names() == 3);
  answer = ask_op(s, again);
  CHECK(answer.starts_with("'result':'wait','reason':'not_suggested'"));
  CHECK(s.num_names() == 2);
  refuses(s, "'schedule','group':'g'", "INVALID_ARGUMENT", "vc: is missing");
  healthy("n0");

  // The last list counts: not one that was only asked about, nor one that an error came of.
  CHECK(first(",'suggested':['n0']") == "n0");
  CHECK(reserved(ask_op(s, again + ",'suggested':['n0','n1']")) == "n0");
  CHECK(reserved(ask_op(s, again + ",'suggested':['n0'],'phase':'Filtering'")) == "n0");
  refuses(s,
          "'schedule','group':'g','suggested':['n0'],'members':[{'pods':1,'leafs':1}],'vc':'red','"
          "priority':0",
          "INVALID_ARGUMENT", "another request");
  bad("n0");
  CHECK(reserved(ask_op(s, again)) == "n1");
  healthy("n0");
  bad("n1");
  CHECK(reserved(ask_op(s, again + ",'suggested':['n0']")) == "n0");
  bad("n0");
  healthy("n1");
  CHECK(reserved(ask_op(s, again + ",'suggested':['n0'],'ignoreSuggested':true")) == "n1");
  healthy("n0");
  bad("n1");
  CHECK(reserved(ask_op(s, again)) == "n0");

  // With all fields and no list it may go anywhere; and so may the next gang of its name.
  CHECK(reserved(ask_op(s, again + ",'suggested':['n0']")) == "n0");
  CHECK(first("") == "n0");
  bad("n0");
  healthy("n1");
  CHECK(reserved(ask_op(s, again)) == "n1");
  CHECK(reserved(ask_op(s, again + ",'suggested':['n1']")) == "n1");
  CHECK(ask_op(s, "'cancel','group':'g'") == nobody_restored);
  CHECK(first("") == "n1");
  healthy("n0");
  bad("n1");
  CHECK(reserved(ask_op(s, again)) == "n0");
  CHECK(ask_op(s, "'delete','group':'on n0'") == nobody_restored);
  CHECK(ask_op(s, again).starts_with("'result':'bind'"));
}

TEST_CASE("the hash tells sessions apart that remember other nodes suggested") {
  const auto hash = [](hived_session& s) { return hash_of(s.answer(R"({"op":"note"})")); };
  const auto preempting = [](const std::string& suggested) {
    hived_session s = configured();
    ask_op(s, gang("guest", "red", -1, "[{'pods':3,'leafs':4}]"));
    for (const char* name : {"g", "h"})
      CHECK(ask_op(s, gang(name, name == std::string("g") ? "red" : "blue", 0,
                           "[{'pods':1,'leafs':2}]", suggested))
                .starts_with("'result':'preempt'"));
    return s;
  };
  // They reserve the same, and one of them goes elsewhere when that is bad.
  hived_session all = preempting("");
  hived_session two = preempting(",'suggested':['n0','n1']");
  hived_session same = preempting(",'suggested':['n1','elsewhere','n0','n1']");
  hived_session three = preempting(",'suggested':['n0','n1','n2']");
  REQUIRE(all.scheduler()->hash() == two.scheduler()->hash());
  REQUIRE(all.scheduler()->hash() == three.scheduler()->hash());
  CHECK(hash(all) == example::hex(all.scheduler()->hash()));
  CHECK(hash(two) != hash(all));
  CHECK(hash(two) == hash(same));
  CHECK(hash(two) != hash(three));
  CHECK(hash(three) != hash(all));
  // Whose nodes they are counts, not when they were suggested; a question leaves no trace.
  const auto ask_again = [](hived_session& s, const std::string& name, const std::string& more) {
    CHECK(ask_op(s, "'schedule','group':'" + name + "'" + more).starts_with("'result':'preempt'"));
  };
  ask_again(two, "g", ",'suggested':['n0','n1','n2'],'phase':'Filtering'");
  CHECK(hash(two) == hash(same));
  ask_again(two, "g", ",'suggested':['n0','n1','n2']");
  CHECK(hash(two) != hash(same));
  ask_again(same, "h", ",'suggested':['n0','n1','n2']");
  CHECK(hash(two) != hash(same));
  ask_again(same, "g", ",'suggested':['n0','n1','n2']");
  ask_again(two, "h", ",'suggested':['n0','n1','n2']");
  CHECK(hash(two) == hash(same));
  CHECK(hash(two) == hash(three));
  // What ends is forgotten.
  for (hived_session* s : {&two, &three}) {
    ask_again(*s, "g", ",'ignoreSuggested':true");
    CHECK(ask_op(*s, "'cancel','group':'h'") == nobody_restored);
    CHECK(hash(*s) == example::hex(s->scheduler()->hash()));
  }
  CHECK(ask_op(same, "'delete','group':'guest'") == nobody_restored);
  CHECK(ask_op(same, "'schedule','group':'h'").starts_with("'result':'bind'"));
  CHECK(ask_op(same, "'cancel','group':'g'") == nobody_restored);
  CHECK(hash(same) == example::hex(same.scheduler()->hash()));
}

TEST_CASE("a gang that asks again says all of what it is or nothing") {
  hived_session s = configured();
  ask_op(s, gang("guest", "red", -1, "[{'pods':3,'leafs':4}]"));
  CHECK(ask_op(s, gang("g", "red", 0, "[{'pods':1,'leafs':4}]", ",'lazy':true"))
            .starts_with("'result':'preempt'"));
  const auto refused = [&](const std::string& more, const std::string& words) {
    refuses(s, R"({"op":"schedule","group":"g",)" + more + '}', "INVALID_ARGUMENT", words);
    refuses(s, R"({"op":"schedule_pod","pod":0,"group":"g",)" + more + '}', "INVALID_ARGUMENT",
            words);
  };
  refused(R"("vc":"nobody","priority":1001,"lazy":true,"leafType":"X","members":[])",
          "members: is missing");
  refused(R"("vc":"red")", "priority: is missing");
  for (const char* more :
       {R"("priority":0)", R"("members":[])", R"("leafType":"GPU")", R"("lazy":false)",
        R"("pinned":"pin")", R"("required":"NODE")", R"("preferred":"NODE")"})
    refused(more, "vc: is missing");
  const std::string nothing =
      R"(,"vc":"","priority":null,"members":null,"leafType":"","lazy":null,)"
      R"("pinned":null,"required":"","preferred":"","suggested":["n0"]})";
  CHECK(ask(s, R"({"op":"schedule","group":"g")" + nothing).starts_with(R"("result":"preempt")"));
}

TEST_CASE("one task at a time") {
  hived_session s = configured();
  const std::string first =
      "'schedule_pod'" + gang("g", "red", 0, "[{'pods':2,'leafs':2}]", ",'pod':1").substr(10);
  CHECK(ask_op(s, first) ==
        "'result':'bind','pods':[{'node':'n0','devices':[2,3],'wholeCell':2}]" + nothing_else);
  const std::string later = "'result':'bind','pods':[{'node':'n0','devices':[0,1],'wholeCell':2}]";
  CHECK(ask_op(s, "'schedule_pod','group':'g','pod':0") == later + nothing_else);
  CHECK(ask_op(s, "'delete_pod','group':'g','pod':0") == nobody_restored);
  refuses(s, "'schedule_pod','group':'g','pod':0", "NOT_FOUND", "has ended");
  refuses(s, "'schedule_pod','group':'g','pod':2", "NOT_FOUND", "has 2 tasks");
  refuses(s, "'schedule_pod','group':'h','pod':0", "NOT_FOUND", "no gang");
  refuses(s, "'schedule_pod','group':'g'", "INVALID_ARGUMENT", "pod: is missing");
  refuses(s, "'schedule_pod','group':'g','pod':1,'members':[{'pods':2,'leafs':1}]",
          "INVALID_ARGUMENT", "members: differ from those of");
}

TEST_CASE("a task that ended while its gang preempts is not scheduled") {
  hived_session s = configured();
  ask_op(s, gang("guest", "red", -1, "[{'pods':3,'leafs':4}]"));
  CHECK(ask_op(s, gang("g", "red", 0, "[{'pods':2,'leafs':2}]")).starts_with("'result':'preempt'"));
  CHECK(ask_op(s, "'delete_pod','group':'g','pod':0") == nobody_restored);
  const std::string ended = R"({"op":"schedule_pod","group":"g","pod":0})";
  refuses(s, ended, "NOT_FOUND", "has ended");
  CHECK(ask_op(s, "'schedule_pod','group':'g','pod':1").starts_with("'result':'preempt'"));
  CHECK(ask_op(s, "'delete','group':'guest'") == nobody_restored);
  refuses(s, ended, "NOT_FOUND", "has ended");
  refuses(s, "'schedule_pod','group':'g','pod':1,'members':[{'pods':3,'leafs':2}]",
          "INVALID_ARGUMENT", "members: differ from those of");
  CHECK(ask_op(s, "'schedule_pod','group':'g','pod':1") ==
        "'result':'bind','pods':[{'node':'n0','devices':[2,3],'wholeCell':2}]" + nothing_else);
  refuses(s, ended, "NOT_FOUND", "has ended");
}

TEST_CASE("a gang that has its tenant's cells back is named where that happens") {
  hived_session s = configured();
  const std::string pair = "[{'pods':1,'leafs':2}]";
  ask_op(s, gang("low", "blue", 0, pair, ",'lazy':true"));
  ask_op(s, gang("guest", "red", -1, "[{'pods':5,'leafs':2}]"));
  const auto preempt = [&](const std::string& name, const std::string& priority) {
    const std::string answer =
        ask_op(s, "'schedule','group':'" + name + "','vc':'blue','priority':" + priority +
                      ",'members':" + pair);
    CHECK(answer.starts_with("'result':'preempt'"));
    return answer.substr(answer.find("'lazyPreempted'"));
  };
  const std::string taken = "'lazyPreempted':['low'],'cancelled':[],'restored':[]";
  const std::string restored = "'result':'ok','restored':['low']";
  for (const std::string end : {"'cancel','group':'high'", "'delete','group':'high'",
                                "'delete_pod','group':'high','pod':0"}) {
    CHECK(preempt("high", "1") == taken);
    CHECK(ask_op(s, end) == restored);
  }
  CHECK(ask_op(s, "'usage','vc':'blue'").find("'downgraded':0") != std::string::npos);
  // The one that took them gives way to a higher one, and that one is withdrawn.
  CHECK(preempt("high", "1") == taken);
  CHECK(preempt("higher", "2") == "'lazyPreempted':[],'cancelled':['high'],'restored':[]");
  CHECK(ask_op(s, "'schedule','group':'higher'").find("'restored':[]") != std::string::npos);
  CHECK(ask_op(s, "'cancel','group':'higher'") == restored);
  // Or it has to ask anew, since all hardware is bad.
  CHECK(preempt("high", "1") == taken);
  for (const char* node : {"n0", "n1", "n2"})
    ask_op(s, std::string("'node_bad','node':'") + node + '\'');
  const std::string anew = "'schedule','group':'high'";
  std::string answer = ask_op(s, anew + ",'phase':'Filtering'");
  CHECK(answer.find(nothing_else) != std::string::npos);
  answer = ask_op(s, anew);
  CHECK(answer.starts_with("'result':'wait'"));
  CHECK(answer.find("'cancelled':['high'],'restored':['low']") != std::string::npos);

  // What a gang took that ran is not given back when it ends, but by a configuration.
  s = configured();
  ask_op(s, gang("low", "blue", 0, pair, ",'lazy':true"));
  CHECK(ask_op(s, gang("high", "blue", 1, pair)).find(taken) != std::string::npos);
  CHECK(ask_op(s, "'delete','group':'high'") == nobody_restored);
  CHECK(ask(s, R"({"op":"reconfigure",)" + cells + '}') ==
        R"("result":"ok","lazyPreempted":[],"cancelled":[],"restored":["low"],"shrunk":[],)"
        R"("gone":[])");
}

TEST_CASE("a gang is gone only if it could have been") {
  hived_session s = configured();
  const std::string head =
      R"({"op":"recover","group":"g","vc":"red","pods":[{}],"members":[{"pods":)";
  refuses(s, head + R"(1,"leafs":1}],"priority":5000})", "INVALID_ARGUMENT", "priority 5000");
  refuses(s, head + R"(1,"leafs":65}],"priority":0})", "INVALID_ARGUMENT", "65 GPUs");
  refuses(s, head + R"(0,"leafs":0}],"priority":0})", "INVALID_ARGUMENT", "0 tasks");
  refuses(s, head + R"(1,"leafs":1}],"priority":-1,"pinned":"pin"})", "INVALID_ARGUMENT",
          "pinned cell");
  CHECK(ask(s, head + R"(1,"leafs":1}],"priority":0})") ==
        R"("result":"ok","lazyPreempted":[],"gone":["g"])");
}

TEST_CASE("what a line asks for in memory has a limit") {
  hived_session s = configured();
  std::string lists = R"({"op":"note","x":[[])";
  for (int i = 0; i < 1'000'000; ++i) lists += ",[]";
  refuses(s, lists + "]}", "INVALID_ARGUMENT", "too many values");
  std::string pods = R"("pods":[{"node":"n0","devices":[0]})";
  for (int i = 1; i < 1025; ++i) pods += ",{}";
  const std::string gang = R"({"op":"recover","group":"g","vc":"red","priority":0,)" + pods;
  refuses(s, gang + R"(],"members":[{"pods":1025,"leafs":64}]})", "INVALID_ARGUMENT",
          "65600 leaf cells");
  CHECK(ask(s, gang + R"(],"members":[{"pods":1025,"leafs":63}]})") ==
        R"("result":"ok","lazyPreempted":[],"gone":[])");
}

TEST_CASE("health, restart, another configuration") {
  hived_session s = configured();
  CHECK(ask_op(s, "'node_bad','node':'n0'") == "'result':'ok'");
  CHECK(ask_op(s, "'device_bad','node':'n1','device':3") == "'result':'ok'");
  CHECK(ask_op(s, gang("a", "red", 0, "[{'pods':1,'leafs':4}]")).find("'unhealthy'") !=
        std::string::npos);
  CHECK(ask_op(s, "'device_healthy','node':'n1','device':3") == "'result':'ok'");
  CHECK(ask_op(s, "'node_healthy','node':'n0'") == "'result':'ok'");
  CHECK(hash_of(s.answer(R"({"op":"note"})")) == hash_of(configured().answer("{}")));

  const std::string two = ",'vc':'red','priority':5,'members':[{'pods':2,'leafs':2}],'pods':";
  CHECK(ask_op(s, "'recover','group':'r'" + two +
                      "[{'node':'n1','devices':[2,3,7]},{'node':'x','devices':[0,1]}]") ==
        "'result':'ok','lazyPreempted':[],'gone':[]");
  CHECK(ask_op(s, "'recover','group':'nowhere'" + two + "[{'node':'x','devices':[1]},{}]") ==
        "'result':'ok','lazyPreempted':[],'gone':['nowhere']");
  CHECK(ask_op(s,
               "'recover','group':'lost','vc':'sold','priority':5,'members':[{'pods':1,'leafs':"
               "1}],'pods':[{'node':'n0','devices':[2]}]") ==
        "'result':'ok','lazyPreempted':['lost'],'gone':[]");
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");

  std::string smaller = cells;
  const std::string n0 = R"({"cellType":"NODE","cellAddress":"n0"},)";
  smaller.replace(smaller.find(n0), n0.size(), "");
  smaller.replace(smaller.find(R"(,"blue")"), std::string::npos, "}");
  CHECK(ask(s, R"({"op":"reconfigure",)" + smaller + '}') ==
        R"("result":"ok","lazyPreempted":[],"cancelled":[],"restored":[],"shrunk":[],)"
        R"("gone":["lost"])");
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
  CHECK(s.num_names() == 1);
}

// Two tenants of whole cells of several levels, on racks of two nodes.
const std::string racks =
    R"("physicalCluster":{"cellTypes":{"PAIR":{"childCellType":"GPU","childCellNumber":2},)"
    R"("NODE":{"childCellType":"PAIR","childCellNumber":2,"isNodeLevel":true},)"
    R"("RACK":{"childCellType":"NODE","childCellNumber":2}},"physicalCells":[)"
    R"({"cellType":"RACK","cellChildren":[{"cellAddress":"n0"},{"cellAddress":"n1"}]},)"
    R"({"cellType":"RACK","cellChildren":[{"cellAddress":"n2"},{"cellAddress":"n3"}]},)"
    R"({"cellType":"RACK","cellChildren":[{"cellAddress":"n4"},{"cellAddress":"n5"}]}]},)"
    R"("virtualClusters":{"red":{"virtualCells":[{"cellType":"RACK","cellNumber":1},)"
    R"({"cellType":"RACK.NODE","cellNumber":1}]},)"
    R"("blue":{"virtualCells":[{"cellType":"RACK.NODE","cellNumber":1},)"
    R"({"cellType":"RACK.NODE.PAIR","cellNumber":2}]}})";

hived_session with_racks() {
  hived_session session;
  REQUIRE(ask(session, R"({"op":"config",)" + racks + '}') == R"("result":"ok")");
  return session;
}
// What stands between the brackets of the pods in an answer.
std::string pods_in(const std::string& answer, char quote) {
  const std::string head = std::string(1, quote) + "pods" + quote + ":[";
  const std::size_t from = answer.find(head);
  REQUIRE(from != std::string::npos);
  const std::size_t begin = from + head.size();
  const std::string tail = std::string("],") + quote + "lazyPreempted";
  return answer.substr(begin, answer.find(tail) - begin);
}
// Without the levels of whole cells.
std::string forgetful(std::string pods) {
  const std::string key = R"(,"wholeCell":)";
  for (std::size_t at = pods.find(key); at != std::string::npos; at = pods.find(key))
    pods.erase(at, key.size() + 1);
  return pods;
}

TEST_CASE("a gang that comes back keeps its rules, but for those that the configuration lacks") {
  hived_session s = with_racks();
  const auto recover = [&](const std::string& name, const std::string& members,
                           const std::string& more, const std::string& node) {
    const std::string fields = gang(name, "red", 5, members, more);
    return ask_op(s, "'recover'" + fields.substr(10) + ",'pods':[{'node':'" + node +
                         "','devices':[0,1,2,3]}]");
  };
  const std::string one = "[{'pods':1,'leafs':4}]";
  const std::string back = "'result':'ok','lazyPreempted':[],'gone':[]";
  CHECK(recover("train", one, ",'required':'RACK'", "n0") == back);
  CHECK(s.scheduler()->gangs()[apiary::gang_slot(0)].request.constraints->required == 3);
  CHECK(ask_op(s, "'delete','group':'train'") == nobody_restored);

  // What the configuration does not have is no rule, whatever it was; the others stand.
  CHECK(recover("train",
                "[{'pods':1,'leafs':4,'slices':[{'level':'POD','pods':1}],"
                "'spread':[{'level':'HALL','pods':1},{'level':'NODE','pods':1}]}]",
                ",'required':'POD','preferred':'RACK'", "n0") == back);
  const apiary::request_constraints& constraints =
      *s.scheduler()->gangs()[apiary::gang_slot(0)].request.constraints;
  CHECK(constraints.required == apiary::any_level);
  CHECK(constraints.preferred == 3);
  REQUIRE(constraints.groups.size() == 1);
  CHECK(constraints.groups[0].slices.empty());
  CHECK(constraints.groups[0].spread == std::vector<apiary::level_count>{{2, 1}});
  CHECK(recover("more", one, ",'leafType':'SOLD','required':'RACK'", "n1") == back);
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("a gang of many members comes back with its rules") {
  hived_session s = with_racks();
  std::string members = "{'pods':1,'leafs':4}";
  std::string pods = "{'node':'n0','devices':[0,1,2,3]}";
  for (int i = 0; i < 1024; ++i) {
    members += ",{'pods':1,'leafs':1}";
    pods += ",{}";
  }
  const std::string asked = gang("g", "red", 5, '[' + members + ']', ",'required':'RACK'");
  const std::string fields = asked + ",'pods':[" + pods + ']';
  CHECK(ask_op(s, asked).find("1025 task groups with topology constraints") != std::string::npos);
  CHECK(ask_op(s, "'recover'" + fields.substr(10)) == "'result':'ok','lazyPreempted':[],'gone':[]");
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("gangs come back with the levels of their whole cells") {
  hived_session s = with_racks();
  const std::string two = "[{'pods':2,'leafs':4}]";
  const std::string one = "[{'pods':1,'leafs':4}]";
  const std::string g2 = pods_in(ask_op(s, gang("g2", "red", 0, two)), '\'');
  const std::string g1 = pods_in(ask_op(s, gang("g1", "red", 0, one)), '\'');
  const std::string pair =
      pods_in(ask_op(s, gang("pair", "blue", 0, "[{'pods':1,'leafs':1},{'pods':1,'leafs':2}]",
                             ",'lazy':true")),
              '\'');
  const std::string guest =
      pods_in(ask_op(s, gang("guest", "blue", -1, "[{'pods':1,'leafs':1}]")), '\'');
  CHECK(g2 ==
        "{'node':'n0','devices':[0,1,2,3],'wholeCell':3},"
        "{'node':'n1','devices':[0,1,2,3],'wholeCell':3}");
  CHECK(g1 == "{'node':'n2','devices':[0,1,2,3],'wholeCell':2}");
  CHECK(pair ==
        "{'node':'n3','devices':[0],'wholeCell':1},{'node':'n3','devices':[2,3],'wholeCell':1}");
  CHECK(guest.find("wholeCell") == std::string::npos);
  CHECK(pods_in(ask_op(s, "'schedule_pod','group':'pair','pod':1"), '\'') ==
        "{'node':'n3','devices':[2,3],'wholeCell':1}");

  const auto back = [](const std::string& name, const std::string& members,
                       const std::string& pods) {
    return "'recover','group':'" + name + "','vc':'red','priority':0,'members':" + members +
           ",'pods':[" + pods + ']';
  };
  const std::string kept = "'result':'ok','lazyPreempted':[],'gone':[]";
  hived_session again = with_racks();
  CHECK(ask_op(again, back("g1", one, g1)) == kept);
  CHECK(ask_op(again, back("g2", two, g2)) == kept);
  CHECK(ask_op(again, "'schedule_pod','group':'g1','pod':0").find("'wholeCell':2") !=
        std::string::npos);
  // Without it the first takes the rack, and the second finds none.
  const std::string bare = "{'node':'n2','devices':[0,1,2,3]}";
  hived_session lost = with_racks();
  CHECK(ask_op(lost, back("g1", one, bare)) == kept);
  CHECK(ask_op(lost, back("g2", two, g2)) == "'result':'ok','lazyPreempted':['g2'],'gone':[]");
  CHECK(ask_op(lost, "'schedule_pod','group':'g2','pod':0").find("wholeCell") == std::string::npos);

  // A level that there is none of says nothing; a pod that has ended or is not there needs none.
  hived_session other = with_racks();
  const std::string high = "{'node':'n2','devices':[0,1,2,3],'wholeCell':4294967295}";
  CHECK(ask_op(other, back("g1", one, high)) == kept);
  CHECK(ask_op(other, back("g2", two, "{},{'node':'n4','devices':[0,1,2,3],'wholeCell':2}")) ==
        kept);
  const std::string head =
      R"({"op":"recover","group":"g","vc":"blue","priority":0,"members":[{"pods":2,"leafs":1}],)"
      R"("pods":[{"node":"n0","devices":[0],"wholeCell":)";
  refuses(other, head + R"(1},{"node":"n0","devices":[1]}]})", "INVALID_ARGUMENT",
          "pods[1].wholeCell: is missing");
  refuses(other, head + R"(-1},{"node":"n0","devices":[1]}]})", "INVALID_ARGUMENT",
          "pods[0].wholeCell: a whole number");
}

TEST_CASE("a pod in whole cells of several levels is answered, and comes back, with all of them") {
  const auto nodes_of = [](const std::string& owned) {
    return R"("physicalCluster":{"cellTypes":{"PAIR":{"childCellType":"GPU","childCellNumber":2},)"
           R"("NODE":{"childCellType":"PAIR","childCellNumber":2,"isNodeLevel":true}},)"
           R"("physicalCells":[{"cellType":"NODE","cellAddress":"n0"},)"
           R"({"cellType":"NODE","cellAddress":"n1"}]},)"
           R"("virtualClusters":{"red":{"virtualCells":[)" +
           owned + "]}}}";
  };
  const std::string divided = nodes_of(R"({"cellType":"NODE.PAIR","cellNumber":2},)"
                                       R"({"cellType":"NODE.PAIR.GPU","cellNumber":1})");
  hived_session s;
  ask(s, R"({"op":"config",)" + nodes_of(R"({"cellType":"NODE","cellNumber":1},)"
                                         R"({"cellType":"NODE.PAIR","cellNumber":1})"));
  const std::string pair = "[{'pods':1,'leafs':2}]";
  const std::string three = "[{'pods':1,'leafs':3}]";
  CHECK(ask_op(s, gang("pair", "red", 0, pair)).starts_with("'result':'bind'"));
  CHECK(ask_op(s, gang("three", "red", 0, three)).starts_with("'result':'bind'"));
  REQUIRE(ask(s, R"({"op":"reconfigure",)" + divided).starts_with(R"("result":"ok")"));
  const std::string pods = pods_in(ask_op(s, "'schedule_pod','group':'three','pod':0"), '\'');
  CHECK(pods.find("'devices':[0,1,2],'wholeCell':[1,1,0]}") != std::string::npos);
  const std::string pods_of_pair =
      pods_in(ask_op(s, "'schedule_pod','group':'pair','pod':0"), '\'');
  CHECK(pods_of_pair.find("'wholeCell':1}") != std::string::npos);

  const auto back = [](const std::string& name, const std::string& members,
                       const std::string& places) {
    return "'recover','group':'" + name + "','vc':'red','priority':0,'members':" + members +
           ",'pods':[" + places + ']';
  };
  std::string turned = pods;  // the levels go with the devices, in whatever order
  turned.replace(turned.find("[0,1,2]"), 7, "[2,0,1]");
  turned.replace(turned.find("[1,1,0]"), 7, "[0,1,1]");
  for (const std::string& places : {pods, turned}) {
    hived_session again;
    ask(again, R"({"op":"config",)" + divided);
    CHECK(ask_op(again, back("three", three, places)) ==
          "'result':'ok','lazyPreempted':[],'gone':[]");
    CHECK(ask_op(again, back("pair", pair, pods_of_pair)) ==
          "'result':'ok','lazyPreempted':[],'gone':[]");
    CHECK(pods_in(ask_op(again, "'schedule_pod','group':'three','pod':0"), '\'') == pods);
  }
  // Were they all as the first one, it would take a pair that is another gang's.
  std::string alike = pods;
  alike.replace(alike.find("[1,1,0]"), 7, "1");
  hived_session lost;
  ask(lost, R"({"op":"config",)" + divided);
  ask_op(lost, back("three", three, alike));
  CHECK(ask_op(lost, back("pair", pair, pods_of_pair)) ==
        "'result':'ok','lazyPreempted':['pair'],'gone':[]");

  hived_session other;
  ask(other, R"({"op":"config",)" + divided);
  const std::string head =
      R"({"op":"recover","group":"g","vc":"red","priority":0,"members":[{"pods":1,"leafs":3}],)"
      R"("pods":[{"node":"n0","devices":[0,1,2],"wholeCell":)";
  refuses(other, head + "[1,1]}]}", "INVALID_ARGUMENT",
          "pods[0].wholeCell: 2 levels for 3 devices");
  refuses(other, head + R"([1,1,"0"]}]})", "INVALID_ARGUMENT", "pods[0].wholeCell[2]: a whole");
  // Devices that are not there have no say.
  CHECK(
      ask_op(other, back("three", three, "{'node':'n0','devices':[7,0,1],'wholeCell':[0,1,1]}")) ==
      "'result':'ok','lazyPreempted':[],'gone':[]");
  CHECK(ask_op(other, "'schedule_pod','group':'three','pod':0").find("'wholeCell':1}") !=
        std::string::npos);
}

// The lines with which a host hands in the gangs that run, as the session tells their pods now;
// those that have their tenant's cells first, in any order otherwise.
std::vector<std::string> recovery(hived_session& session,
                                  const std::vector<std::string>& fields_of_gangs,
                                  apiary::rng& random) {
  std::vector<std::string> first;
  std::vector<std::string> others;
  for (const std::string& fields : fields_of_gangs) {
    const std::string answer = session.answer(R"({"op":"schedule_pod","pod":0,)" + fields + '}');
    std::string pods = pods_in(answer, '"');
    const bool two = fields.find(R"("pods":2)") != std::string::npos;
    if (two)
      pods += ',' + pods_in(session.answer(R"({"op":"schedule_pod","pod":1,)" + fields + '}'), '"');
    const bool whole = pods.find("wholeCell") != std::string::npos;
    (whole ? first : others)
        .push_back(R"({"op":"recover",)" + fields + R"(,"pods":[)" + pods + "]}");
  }
  for (std::vector<std::string>* lines : {&first, &others}) {
    for (std::size_t n = lines->size(); n > 1; --n)
      std::swap((*lines)[n - 1], (*lines)[random.uniform(static_cast<std::uint32_t>(n))]);
  }
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

TEST_CASE("what runs comes back in any order with all its tenant's cells") {
  std::size_t guaranteed = 0;
  std::size_t lost_without = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{2'000}); ++run) {
    CAPTURE(run);
    apiary::rng random(run);
    hived_session session = with_racks();
    std::vector<std::string> running;
    std::vector<std::string> preempting;
    for (int i = 0; i < 24; ++i) {
      const auto pick = [&](std::vector<std::string>& from) {
        std::swap(from[random.uniform(static_cast<std::uint32_t>(from.size()))], from.back());
        const std::string fields = from.back();
        from.pop_back();
        return fields.substr(0, fields.find(','));
      };
      if (!running.empty() && random.uniform(4) == 0) {
        ask(session, R"({"op":"delete",)" + pick(running) + '}');
      } else if (!preempting.empty() && random.uniform(2) == 0) {
        ask(session, R"({"op":"cancel",)" + pick(preempting) + '}');
      } else {
        const std::string fields = R"("group":"g)" + std::to_string(i) + R"(","vc":")" +
                                   (random.uniform(3) == 0 ? "blue" : "red") + R"(","priority":)" +
                                   std::to_string(static_cast<int>(random.uniform(4)) - 1) +
                                   R"(,"members":[{"pods":)" +
                                   std::to_string(1 + random.uniform(2)) + R"(,"leafs":)" +
                                   std::to_string(1U << random.uniform(3)) + "}]" +
                                   (random.uniform(2) == 0 ? R"(,"lazy":true)" : "");
        const std::string answer = ask(session, R"({"op":"schedule",)" + fields + '}');
        if (answer.starts_with(R"("result":"bind")")) running.push_back(fields);
        if (answer.starts_with(R"("result":"preempt")")) preempting.push_back(fields);
      }
    }
    const std::vector<std::string> lines = recovery(session, running, random);
    hived_session again = with_racks();
    hived_session without = with_racks();
    for (const std::string& line : lines) {
      const bool whole = line.find("wholeCell") != std::string::npos;
      const std::string answer = ask(again, line);
      REQUIRE(answer.find(R"("gone":[])") != std::string::npos);
      if (whole) REQUIRE(answer.find(R"("lazyPreempted":[])") != std::string::npos);
      guaranteed += whole ? 1U : 0U;
      const bool lost =
          ask(without, forgetful(line)).find(R"("lazyPreempted":[])") == std::string::npos;
      lost_without += whole && lost ? 1U : 0U;
    }
    REQUIRE(ask(again, R"({"op":"audit"})") == R"("result":"ok")");
    // The gangs run where they ran, as cells of the same levels.
    const std::vector<std::string> now = recovery(again, running, random);
    for (const std::string& line : lines)
      if (line.find("wholeCell") != std::string::npos)
        REQUIRE(std::count(now.begin(), now.end(), line) == 1);
  }
  MESSAGE(guaranteed << " gangs kept their cells, " << lost_without << " lose them without levels");
  CHECK(guaranteed > 0);
  if (apiary_test::scale() >= 0.1) CHECK(lost_without > 0);
}

TEST_CASE("a gang that comes back and takes the cells of lower gangs names them") {
  hived_session s = configured();
  const auto back = [](const std::string& name, int priority, const std::string& pods,
                       const std::string& leaves) {
    return "'recover','group':'" + name + "','vc':'blue','priority':" + std::to_string(priority) +
           ",'members':[{'pods':1,'leafs':" + leaves + "}],'pods':[" + pods + ']';
  };
  const auto lost = [](const std::string& names) {
    return "'result':'ok','lazyPreempted':[" + names + "],'gone':[]";
  };
  CHECK(ask_op(s, back("b", 1, "{'node':'n0','devices':[1]}", "1")) == lost(""));
  CHECK(ask_op(s, back("a", 0, "{'node':'n0','devices':[0]}", "1")) == lost(""));
  CHECK(ask_op(s, back("c", 1, "{'node':'n1','devices':[0,1]}", "2")) == lost("'c'"));
  CHECK(ask_op(s, back("d", 2, "{'node':'n1','devices':[2,3]}", "2")) == lost("'b','a'"));
  CHECK(ask_op(s, "'schedule_pod','group':'b','pod':0") ==
        "'result':'bind','pods':[{'node':'n0','devices':[1]}]" + nothing_else);
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("devices that the configuration lacks for a while") {
  hived_session s = configured();
  ask_op(s, gang("g", "red", -1, "[{'pods':2,'leafs':4}]", ",'suggested':['n0','n1']"));
  std::string smaller = cells;
  const std::string n0 = R"({"cellType":"NODE","cellAddress":"n0"},)";
  smaller.replace(smaller.find(n0), n0.size(), "");
  smaller.replace(smaller.find(R"(,"blue")"), std::string::npos, "}");
  const std::string change =
      R"("result":"ok","lazyPreempted":[],"cancelled":[],"restored":[],"shrunk":[)";
  CHECK(ask(s, R"({"op":"reconfigure",)" + smaller + '}') == change + R"("g"],"gone":[])");
  CHECK(ask_op(s, "'schedule_pod','group':'g','pod':1").find("not on the configuration's nodes") !=
        std::string::npos);
  CHECK(ask(s, R"({"op":"reconfigure",)" + cells + '}') == change + R"(],"gone":[])");
  CHECK(ask_op(s, "'schedule_pod','group':'g','pod':1") ==
        "'result':'bind','pods':[{'node':'n0','devices':[0,1,2,3]}]" + nothing_else);
}

TEST_CASE("lines that are refused change nothing") {
  hived_session none;
  refuses(none, "'audit'", "FAILED_PRECONDITION", "no configuration");
  refuses(none, "'config','physicalCluster':{'x':1}", "INVALID_ARGUMENT", "x (line 1)");
  hived_session s = configured();
  refuses(s, R"({"op":"config",)" + cells + '}', "FAILED_PRECONDITION", "reconfigure");
  refuses(s, R"({"op":"reconfigure","virtualClusters":[]})", "INVALID_ARGUMENT", "mapping");
  ask_op(s, gang("a", "blue", 0, "[{'pods':1,'leafs':2}]"));
  const std::string wrong = "INVALID_ARGUMENT";
  const std::string head = R"({"op":"schedule","group":"g","vc":"red","priority":0)";
  const std::string body = R"(,"members":[{"pods":1,"leafs":1}])";
  refuses(s, R"({"op":"schedule","group":"a","vc":"blue","priority":0)" + body + '}',
          "ALREADY_EXISTS", R"(gang \"a\" runs already)");
  refuses(s, head + '}', wrong, "members: is missing");
  refuses(s, R"({"op":"schedule","vc":"red","priority":0)" + body + '}', wrong,
          "group: is missing");
  refuses(s, R"({"op":"schedule","group":"g","priority":0)" + body + '}', wrong, "vc: is missing");
  refuses(s, R"({"op":"schedule","group":"g","vc":"red")" + body + '}', wrong,
          "priority: is missing");
  refuses(s, R"({"op":"schedule","group":"g","vc":"pink","priority":0)" + body + '}', "NOT_FOUND",
          "pink");
  refuses(s, head + body + R"(,"leafType":"TPU"})", "NOT_FOUND", "leaf type");
  refuses(s, head + body + R"(,"pinned":"pan"})", "NOT_FOUND", "pinned cell");
  refuses(s, head + body + R"(,"phase":"Binding"})", wrong, "phase");
  refuses(s, head + R"(,"members":[{"pods":-1,"leafs":1}]})", wrong, "members[0].pods: a whole");
  refuses(s, head + R"(,"members":[{"pods":1e3,"leafs":1}]})", wrong, "members[0].pods: a whole");
  refuses(s, head + R"(,"members":[{"pods":"1","leafs":1}]})", wrong, "members[0].pods: a whole");
  refuses(s, head + R"(,"members":{"pods":1}})", wrong, "members: an array");
  refuses(s, head + R"(,"members":[1]})", wrong, "members[0]: an object");
  refuses(s, head + R"(,"members":[{"pods":0,"leafs":1}]})", wrong, "0 tasks");
  refuses(s, head + body + R"(,"lazy":"true"})", wrong, "lazy: true or false");
  refuses(s, head + body + R"(,"suggested":[3]})", wrong, "suggested[0]: a text");
  refuses(s, head + body + R"(,"priority":1})", wrong, "priority: is given twice");
  refuses(s, "'delete'", wrong, "group: is missing");
  refuses(s, "'delete','group':'g'", "NOT_FOUND", R"(no gang \"g\")");
  refuses(s, "'cancel','group':'a'", "FAILED_PRECONDITION", "not preempting");
  refuses(s, "'delete_pod','group':'a'", wrong, "pod: is missing");
  refuses(s, "'delete_pod','group':'a','pod':1", "NOT_FOUND", "no task 1");
  refuses(s, "'node_bad','node':'n7'", "NOT_FOUND", "n7");
  refuses(s, "'node_bad'", wrong, "node: is missing");
  refuses(s, "'device_bad','node':'n0'", wrong, "device: is missing");
  refuses(s, "'device_bad','node':'n0','device':4", "NOT_FOUND", "device 4");
  refuses(s, "'dance'", "UNIMPLEMENTED", "dance");
  refuses(s, R"({})", wrong, "op: is missing");
  refuses(s, R"({"op":null})", wrong, "op: a text");
  const std::string back = R"({"op":"recover","group":"g","vc":"red","priority":0)" + body;
  refuses(s, back + '}', wrong, "1 tasks");
  refuses(s, R"({"op":"recover","group":"a","vc":"red","priority":0)" + body + R"(,"pods":[{}]})",
          "ALREADY_EXISTS", "exists");
  refuses(s, back + R"(,"pods":[{"node":"n1","devices":[0,0]}]})", wrong, "appears twice");
  refuses(s, back + R"(,"pods":[{"node":"n1","devices":[0,1]}]})", wrong, "more leaf cells");
  refuses(s, back + R"(,"pods":[{"node":"n0","devices":[0]}]})", "FAILED_PRECONDITION", "in use");
}

TEST_CASE("lines that are no JSON are refused") {
  hived_session s;
  const std::string deep(100'000, '[');
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"", "byte 1: a value expected"},
      {"{\"op\":\"note\"", "',' or '}'"},
      {"{\"op\":\"note\"} x", "nothing more"},
      {"{\"op\":\"note\",}", "a value expected"},
      {"{op:\"note\"}", "a name in"},
      {"{\"op\" \"note\"}", "':' expected"},
      {"{\"op\":&a \"note\"}", "a value"},
      {"{\"op\":!!binary \"note\"}", "a value"},
      {"{\"op\":'note'}", "a value"},
      {"{\"op\":01}", "',' or '}'"},
      {"{\"op\":1.}", "a value"},
      {"{\"op\":\"\\x41\"}", "not an escape"},
      {"{\"op\":\"\\u12g4\"}", "not an escape"},
      {"{\"op\":\"\\ud83d\"}", "half a surrogate"},
      {"{\"op\":\"\\ud83d\\u0041\"}", "half a surrogate"},
      {"{\"op\":\"\\ude00\"}", "half a surrogate"},
      {"{\"op\":\"\xff\"}", "not UTF-8"},
      {"{\"op\":\"\xed\xa0\x80\"}", "not UTF-8"},
      {"{\"op\":\"\xf4\x90\x80\x80\"}", "not UTF-8"},
      {"{\"op\":\"\xc3", "not UTF-8"},
      {std::string("{\"op\":\"a\0b\"}", 12), "a control character"},
      {std::string("{\"op\":\0}", 8), "a value"},
      {"{\"op\":\"a\tb\"}", "a control character"},
      {"{\"op\":\"note", "does not end"},
      {"{\"op\":\"note\\", "does not end"},
      {"{\"a\":" + deep, "nested too deeply"},
      {"{\"" + std::string(2000, 'k') + "\":1}", "too long"},
  };
  for (const auto& [line, words] : faults) refuses(s, line, "INVALID_ARGUMENT", words);
  refuses(s, "[]", "INVALID_ARGUMENT", "an object expected");
  for (const char* good : {R"({"op":"note"})", "\t { \"op\" : \"note\" , \"x\":[ ] }\r",
                           R"({"x":{"x":[1,-2.5e+3,true,null,{},"\/"]},"op":"\u006eote"})"})
    CHECK(ask(s, good) == R"("result":"ok")");
}

TEST_CASE("a field that the operation does not have is refused; recordings have three more") {
  hived_session s = configured();
  for (const auto& [line, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"op":"schedule","group":"a","vc":"blue","priorty":0})",
            "priorty: is not a field of schedule"},
           {R"({"op":"delete","group":"a","pod":0})", "pod: is not a field of delete"},
           {R"({"op":"node_bad","node":"n0","device":0})", "device: is not a field of node_bad"},
           {R"({"op":"schedule","group":"a","vc":"blue","priority":0,)"
            R"("members":[{"pods":1,"leaves":1}]})",
            "members[0].leaves: is not a field of a member"},
           {R"({"op":"schedule","members":[{"slices":[{"levels":"NODE"}]}]})",
            "members[0].slices[0].levels: is not a field of a level"},
           {R"({"op":"recover","pods":[{"nodes":"n0"}]})",
            "pods[0].nodes: is not a field of a pod"},
           {R"({"op":"delete","group":7})", "group: a text expected"},
           {R"({"op":"schedule","members":[{"pods":1,"cpuMilli":1}]})",
            "members[0].cpuMilli: is not a field of a member"},
           {R"({"op":"delete","group":"a","group":"b"})", "group: is given twice"}})
    refuses(s, line, "INVALID_ARGUMENT", words);
  refuses(s, "'remove','any':1", "UNIMPLEMENTED", "op: there is no \\\"remove\\\"");
  CHECK(ask_op(s, "'node_bad','node':'n0','i':3,'out':{'what':'ok'},'free':[1,2]") ==
        "'result':'ok'");
  CHECK(ask_op(s, "'note','any':[{}]") == "'result':'ok'");
  // An event of schedule_pod asks for all pods when its operation is changed.
  const std::string all =
      R"("group":"p","vc":"blue","priority":0,"members":[{"pods":1,"leafs":1}]})";
  CHECK(ask(s, R"({"op":"schedule","pod":0,)" + all).find(R"("result":"bind")") == 0);
}

TEST_CASE("a JSON value is written as it was read, and as YAML means the same") {
  const std::string text =
      R"({"a": [1, -2.50e+3, true, null, {}, []], "": "x\u0000\"\\\u0007 é", "a": "1"})";
  const auto value = example::json_reader::read(text);
  REQUIRE_MESSAGE(value.ok(), value.status().ToString());
  CHECK(value->str() == text);
  CHECK(value->find("a")->items[1].scalar == "-2.50e+3");
  CHECK(value->find("b") == nullptr);
  const YAML::Node yaml = YAML::Load(value->str());
  CHECK(yaml[""].Scalar() == std::string("x\0\"\\\a é", 8));
  CHECK(yaml["a"][0].as<int>() == 1);
}

TEST_CASE("names of any text are answered as they came") {
  hived_session s = configured();
  for (const char* name : {R"(\ud83d\ude00)", "\xf0\x9f\x98\x80", R"(\u0000\u001f\"\\\/\b\t)",
                           "# & * !x {} [] %", "true", "12", "~", " a ", R"(\u2028\ufeff\u0085)"}) {
    CAPTURE(name);
    const std::string group = R"("group":")" + std::string(name) + '"';
    ask(s, R"({"op":"schedule","vc":"blue","priority":0,"members":[{"pods":1,"leafs":2}],)" +
               group + '}');
    CHECK(s.num_names() == 1);
    const std::string preempts =
        ask(s, R"({"op":"schedule","vc":"blue","priority":9,"members":[{"pods":1,"leafs":2}],)"
               R"("group":"other"})");
    const std::size_t at = preempts.find("\"victims\":[") + 11;
    const std::string victim = preempts.substr(at, preempts.find("],\"reserved\"") - at);
    const auto came = example::json_reader::read('[' + group.substr(8) + ',' + victim + ']');
    REQUIRE(came.ok());
    CHECK(came->items[0].scalar == came->items[1].scalar);
    ask_op(s, "'cancel','group':'other'");
    CHECK(ask(s, R"({"op":"delete",)" + group + '}') == R"("result":"ok","restored":[])");
  }
  CHECK(example::json_text("a\xff\xc3") == R"("a\ufffd\ufffd")");
}

TEST_CASE("what a tenant uses and what the devices of a node are used for") {
  hived_session s = configured();
  const auto usage = [&](const char* vc) {
    return ask_op(s, std::string("'usage','vc':'") + vc + '\'');
  };
  const auto node = [&](const char* name) {
    return ask_op(s, std::string("'node_state','node':'") + name + '\'');
  };
  CHECK(usage("red") ==
        "'result':'ok','owned':8,'guaranteed':0,'opportunistic':0,'claimed':0,'running':0,"
        "'preempting':0,'downgraded':0");
  CHECK(node("n0") ==
        "'result':'ok','vc':'','leaves':4,'idle':4,'guaranteed':0,'opportunistic':0,'claimed':0,"
        "'bad':0");
  ask_op(s, gang("guest", "blue", -1, "[{'pods':2,'leafs':2}]", ",'suggested':['n0']"));
  ask_op(s, gang("low", "red", 0, "[{'pods':1,'leafs':3}]", ",'pinned':'pin'"));
  ask_op(s, gang("high", "red", 1, "[{'pods':1,'leafs':4}]", ",'pinned':'pin'"));
  ask_op(s, "'device_bad','node':'n2','device':3");
  const std::string before = hash_of(s.answer(R"({"op":"note"})"));
  CHECK(usage("red") ==
        "'result':'ok','owned':8,'guaranteed':3,'opportunistic':0,'claimed':4,'running':1,"
        "'preempting':1,'downgraded':0");
  CHECK(usage("blue") ==
        "'result':'ok','owned':2,'guaranteed':0,'opportunistic':4,'claimed':0,'running':1,"
        "'preempting':0,'downgraded':0");
  CHECK(node("n2") ==
        "'result':'ok','vc':'red','leaves':4,'idle':0,'guaranteed':3,'opportunistic':0,"
        "'claimed':4,'bad':1");
  CHECK(node("n0") ==
        "'result':'ok','vc':'','leaves':4,'idle':0,'guaranteed':0,'opportunistic':4,'claimed':0,"
        "'bad':0");
  CHECK(hash_of(s.answer(R"({"op":"note"})")) == before);
  refuses(s, "'usage'", "INVALID_ARGUMENT", "vc: is missing");
  refuses(s, "'usage','vc':'pink'", "NOT_FOUND", "pink");
  refuses(s, "'node_state'", "INVALID_ARGUMENT", "node: is missing");
  refuses(s, "'node_state','node':'n9'", "NOT_FOUND", "n9");
}

TEST_CASE("what a gang does, what a tenant is promised, the cluster as text") {
  hived_session s;
  for (const char* op : {"vc_state", "gang_state", "draw"})
    refuses(s, std::string(R"({"op":")") + op + "\"}", "FAILED_PRECONDITION", "no configuration");
  s = configured();
  ask_op(s, gang("guest", "blue", -1, "[{'pods':1,'leafs':4},{'pods':1,'leafs':1}]",
                 ",'suggested':['n0','n1']"));
  ask_op(s, gang("own", "red", 5, "[{'pods':2,'leafs':2}]", ",'pinned':'pin','lazy':true"));
  ask_op(s, "'delete_pod','group':'own','pod':0");
  ask_op(s, "'device_bad','node':'n2','device':0");
  const std::string hash = hash_of(s.answer(R"({"op":"note"})"));
  const auto told = [&](const std::string& line) {
    std::string first = ask_op(s, line);
    CHECK(ask_op(s, line) == first);
    return first;
  };
  const auto guest = [](const std::string& state) {
    return "'result':'ok','vc':'blue','priority':-1,'state':'" + state +
           "','as':'opportunistic','pods':[{'node':'n1','devices':[0,1,2,3]},"
           "{'node':'n0','devices':[0]}],'victims':[],'preemptors':[" +
           (state == "allocated" ? "]" : "'new']");
  };
  CHECK(told("'gang_state','group':'guest'") == guest("allocated"));
  CHECK(told("'gang_state','group':'own'") ==
        "'result':'ok','vc':'red','priority':5,'state':'allocated','as':'guaranteed','pods':["
        "{'node':'','devices':[]},{'node':'n2','devices':[2,3],'wholeCell':2}],'victims':[],'"
        "preemptors':[]");
  CHECK(told("'vc_state','vc':'red'") ==
        "'result':'ok','cells':[{'cellType':'NODE','cellNumber':1,'bound':0,'doomed':0}],"
        "'pinnedCells':['pin']");
  CHECK(told("'vc_state','vc':'blue'") ==
        "'result':'ok','cells':[{'cellType':'NODE.PAIR','cellNumber':1,'bound':0,'doomed':0}],"
        "'pinnedCells':[]");
  CHECK(hash_of(s.answer(R"({"op":"note"})")) == hash);

  // The opportunistic gang is to end for a gang; where nodes are bad, the reserved pair must be, too.
  CHECK(ask_op(s, gang("new", "red", 0, "[{'pods':1,'leafs':4}]", ",'suggested':['n0']"))
            .starts_with("'result':'preempt'"));
  CHECK(told("'gang_state','group':'new'") ==
        "'result':'ok','vc':'red','priority':0,'state':'preempting','as':'guaranteed','pods':["
        "{'node':'n0','devices':[0,1,2,3],'wholeCell':2}],'victims':['guest'],'preemptors':[]");
  CHECK(told("'gang_state','group':'guest'") == guest("being_preempted"));
  ask_op(s, "'node_bad','node':'n1'");
  CHECK(told("'vc_state','vc':'blue'").find("'bound':0,'doomed':1") != std::string::npos);
  std::string lines = example::draw(*s.scheduler());
  REQUIRE(lines.find("  R2  job 2, priority 0, claims 4 GPU\n") != std::string::npos);
  for (std::size_t at = lines.find('\n'); at + 1 < lines.size(); at = lines.find('\n', at))
    lines.replace(at, 1, "','");
  CHECK(told("'draw'") == "'result':'ok','lines':['" + lines.substr(0, lines.size() - 1) +
                              "'],'jobs':[{'job':0,'group':'guest'},{'job':1,'group':'own'},"
                              "{'job':2,'group':'new'}]");
  ask_op(s, "'cancel','group':'new'");

  // Whoever lost its cells, and whose tenant is no more.
  hived_session lazy = configured();
  ask_op(lazy, gang("low", "blue", 0, "[{'pods':1,'leafs':2}]", ",'lazy':true"));
  ask_op(lazy, gang("high", "blue", 1, "[{'pods':1,'leafs':2}]"));
  CHECK(ask_op(lazy, "'gang_state','group':'low'").find("'state':'allocated','as':'downgraded'") !=
        std::string::npos);
  std::string sold = cells;
  sold.replace(sold.find(R"(,"blue")"), std::string::npos, "}");
  ask(lazy, R"({"op":"reconfigure",)" + sold + '}');
  CHECK(ask_op(lazy, "'gang_state','group':'high'")
            .starts_with("'result':'ok','vc':'','priority':1,'state':'allocated','as':"
                         "'downgraded','pods':[{'node':'n0','devices':["));

  refuses(s, "'gang_state','group':'new'", "NOT_FOUND", R"(there is no gang \"new\")");
  refuses(s, "'gang_state'", "INVALID_ARGUMENT", "group: is missing");
  refuses(s, "'vc_state','vc':'green'", "NOT_FOUND", R"(virtual cluster \"green\")");
  refuses(s, "'vc_state'", "INVALID_ARGUMENT", "vc: is missing");
}

// Every session that ended after some of these lines, perhaps while it wrote down the next, is the
// same once the lines that are there are played again.
void check_replay(const std::vector<std::string>& lines) {
  hived_session whole;
  std::vector<std::string> answers;
  for (std::size_t end = 0; end < lines.size(); ++end) {
    CAPTURE(end);
    hived_session again;
    for (std::size_t i = 0; i < end; ++i) REQUIRE(again.answer(lines[i]) == answers[i]);
    // The beginning of a line is none, and changes nothing.
    hived_session torn = again;
    const std::string half = torn.answer(lines[end].substr(0, lines[end].size() / 2));
    REQUIRE(half.find("\"result\":\"error\"") != std::string::npos);
    if (end > 0) REQUIRE(hash_of(half) == hash_of(answers.back()));
    // The same line is answered in the same way by all three.
    answers.push_back(whole.answer(lines[end]));
    REQUIRE(answers.back().find("no JSON") == std::string::npos);
    REQUIRE(again.answer(lines[end]) == answers.back());
    const std::string after = torn.answer(lines[end]);
    REQUIRE(after.substr(after.find(',')) == answers.back().substr(answers.back().find(',')));
  }
}

TEST_CASE("a list of all gangs, and of those of a tenant") {
  hived_session s = configured();
  CHECK(ask_op(s, "'gangs'") == "'result':'ok','gangs':[]");
  ask_op(s, gang("low", "blue", 0, "[{'pods':1,'leafs':2}]"));
  ask_op(s, gang("guest", "red", -1, "[{'pods':1,'leafs':1}]"));
  ask_op(s, gang("high", "blue", 1, "[{'pods':1,'leafs':2}]"));
  const std::string low =
      "{'group':'low','vc':'blue','priority':0,'state':'being_preempted','as':'guaranteed'}";
  const std::string guest =
      "{'group':'guest','vc':'red','priority':-1,'state':'allocated','as':'opportunistic'}";
  const std::string high =
      "{'group':'high','vc':'blue','priority':1,'state':'preempting','as':'guaranteed'}";
  CHECK(ask_op(s, "'gangs'") == "'result':'ok','gangs':[" + low + ',' + guest + ',' + high + ']');
  CHECK(ask_op(s, "'gangs','vc':'blue'") == "'result':'ok','gangs':[" + low + ',' + high + ']');
  CHECK(ask_op(s, "'gangs','vc':'red'") == "'result':'ok','gangs':[" + guest + ']');
  refuses(s, "'gangs','vc':'pink'", "NOT_FOUND", "pink");
}

TEST_CASE(
    "a preempting gang has the levels of its whole cells; a proposal that is dropped has none") {
  hived_session s = configured();
  ask_op(s, gang("low", "blue", 0, "[{'pods':1,'leafs':2}]"));
  const std::string high = gang("high", "blue", 1, "[{'pods':2,'leafs':1}]");
  CHECK(ask_op(s, high + ",'phase':'Filtering'").find("wholeCell") == std::string::npos);
  const std::string reserved =
      "[{'node':'n0','devices':[0],'wholeCell':1},{'node':'n0','devices':[1],'wholeCell':1}]";
  CHECK(ask_op(s, high).starts_with("'result':'preempt','victims':['low'],'reserved':" + reserved));
  CHECK(ask_op(s, "'gang_state','group':'high'").find("'pods':" + reserved) != std::string::npos);
}

TEST_CASE("pods go by the names that their gang gives them") {
  hived_session s = configured();
  const std::string two = "[{'pods':2,'leafs':1,'names':['w-0','w-1']}]";
  const std::string first = "{'name':'w-0','node':'n0','devices':[0],'wholeCell':1}";
  const std::string second = "{'name':'w-1','node':'n0','devices':[1],'wholeCell':1}";
  CHECK(ask_op(s, "'schedule_pod','pod':'w-1'," + gang("a", "blue", 0, two).substr(11)) ==
        "'result':'bind','pods':[" + second + ']' + nothing_else);
  CHECK(ask_op(s, "'schedule_pod','group':'a','pod':'w-0'") ==
        "'result':'bind','pods':[" + first + ']' + nothing_else);
  CHECK(ask_op(s, "'gang_state','group':'a'").find("'pods':[" + first + ',' + second + ']') !=
        std::string::npos);
  refuses(s, "'delete_pod','group':'a','pod':'w-2'", "NOT_FOUND",
          R"(gang \"a\" has no pod \"w-2\")");
  CHECK(ask_op(s, "'delete_pod','group':'a','pod':'w-0'") == nobody_restored);
  CHECK(ask_op(s, gang("b", "blue", 0, "[{'pods':1,'leafs':1,'names':['x']}]"))
            .starts_with("'result':'bind','pods':[{'name':'x'"));
  CHECK(ask_op(s, "'delete_pod','group':'b','pod':'x'") == nobody_restored);
  CHECK(ask_op(s, "'delete_pod','group':'a','pod':'w-1'") == nobody_restored);
  CHECK(s.num_names() == 0);
  refuses(s, "'schedule','group':'c','members':[{'pods':2,'leafs':1,'names':['x']}]",
          "INVALID_ARGUMENT", "members: 1 names for 2 pods");
  refuses(s, "'schedule','group':'c','members':[{'pods':2,'leafs':1,'names':['x','x']}]",
          "INVALID_ARGUMENT", R"(members: two pods are \"x\")");
}

TEST_CASE("a chain that is named, or excluded") {
  hived_session s;
  REQUIRE(ask_op(s,
                 "'config','physicalCluster':{'cellTypes':{"
                 "'A':{'childCellType':'GPU','childCellNumber':2,'isNodeLevel':true},"
                 "'AS':{'childCellType':'A','childCellNumber':2},"
                 "'B':{'childCellType':'GPU','childCellNumber':2,'isNodeLevel':true},"
                 "'BS':{'childCellType':'B','childCellNumber':2}},"
                 "'physicalCells':[{'cellType':'AS','cellChildren':[{'cellAddress':'a0'},"
                 "{'cellAddress':'a1'}]},{'cellType':'BS','cellChildren':[{'cellAddress':'b0'},"
                 "{'cellAddress':'b1'}]}]},'virtualClusters':{'red':{'virtualCells':["
                 "{'cellType':'AS','cellNumber':1},{'cellType':'BS','cellNumber':1}]}}") ==
          "'result':'ok'");
  const std::string one = "[{'pods':1,'leafs':2}]";
  const auto node = [&](const std::string& name, const std::string& more) {
    const std::string answer = ask_op(s, gang(name, "red", 0, one, more));
    CAPTURE(answer);
    const std::size_t at = answer.find("'node':'");
    return answer.starts_with("'result':'bind'") ? answer.substr(at + 8, 1) : "wait";
  };
  CHECK(node("1", ",'chains':['AS']") == "a");
  CHECK(node("2", ",'excludedChains':['AS']") == "b");
  // A cell type that only one of the chains has: not without the name of the chain.
  refuses(s,
          "'schedule','group':'3','vc':'red','priority':0,'required':'A','members':[{'pods':1,'"
          "leafs':2}]",
          "INVALID_ARGUMENT", "cell type 'A' is of level 1, which is 'B' in chain 'BS'");
  CHECK(node("3", ",'required':'A','chains':['AS']") == "a");
  CHECK(node("4", ",'chains':['AS']") == "wait");
  CHECK(node("4", ",'chains':['AS','BS']") == "b");
  const std::string head =
      R"({"op":"schedule","group":"5","vc":"red","priority":0,"members":[{"pods":1,"leafs":2}],)";
  refuses(s, head + R"("chains":["A"]})", "NOT_FOUND", R"(there is no chain \"A\")");
  refuses(s, head + R"("excludedChains":["AS","BS"]})", "INVALID_ARGUMENT", "no chain is left");
  refuses(s, head + R"("excludedChains":["AS"],"chains":["BS"]})", "INVALID_ARGUMENT",
          "chains is given, too");
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("devices with their path") {
  hived_session s;
  REQUIRE(ask_op(s,
                 "'config','physicalCluster':{'cellTypes':{"
                 "'PAIR':{'childCellType':'GPU','childCellNumber':2},"
                 "'NODE':{'childCellType':'PAIR','childCellNumber':2,'isNodeLevel':true},"
                 "'RACK':{'childCellType':'NODE','childCellNumber':2},"
                 "'ROW':{'childCellType':'RACK','childCellNumber':2}},'physicalCells':["
                 "{'cellType':'NODE','cellAddress':'s'},{'cellType':'ROW','cellAddress':'east',"
                 "'cellChildren':[{'cellChildren':[{'cellAddress':'n0'},{'cellAddress':'n1'}]},"
                 "{'cellAddress':'7','cellChildren':[{'cellAddress':'n2','cellChildren':["
                 "{'cellAddress':'1','cellChildren':[{'cellAddress':'3'},{'cellAddress':'0'}]},"
                 "{'cellAddress':'0','cellChildren':[{'cellAddress':'2'},{'cellAddress':'1'}]}]},"
                 "{'cellAddress':'n3'}]}]}]}") == "'result':'ok'");
  // There is no tenant: gangs of this test come back after a restart.
  const auto paths = [&](const std::string& node, const std::string& devices) {
    ask_op(s,
           "'recover','group':'g','vc':'gone','priority':-1,'members':[{'pods':1,'leafs':4}],"
           "'pods':[{'node':'" +
               node + "','devices':" + devices + "}]");
    const std::string answer = ask_op(s, "'gang_state','group':'g','addresses':true");
    CHECK(ask_op(s, "'gang_state','group':'g'").find("addresses") == std::string::npos);
    ask_op(s, "'delete','group':'g'");
    const std::size_t from = answer.find("'addresses':");
    REQUIRE(from != std::string::npos);
    return answer.substr(from + 12, answer.find(']', from) - from - 11);
  };
  CHECK(paths("s", "[0,1,2,3]") == "['s/0/0','s/0/1','s/1/2','s/1/3']");
  CHECK(paths("n1", "[3,1]") == "['east/0/n1/0/1','east/0/n1/1/3']");
  CHECK(paths("n2", "[0,1]") == "['east/7/n2/1/0','east/7/n2/0/1']");
  CHECK(paths("n3", "[0]") == "['east/7/n3/0/0']");
}

TEST_CASE("a gang comes back from the annotations of the open-source scheduler") {
  const std::string spec =
      "virtualCluster: red\\npriority: 5\\nleafCellType: GPU\\nleafCellNumber: 2\\n"
      "gangReleaseEnable: false\\nlazyPreemptionEnable: true\\nignoreK8sSuggestedNodes: true\\n"
      "affinityGroup:\\n  name: train\\n  members:\\n  - podNumber: 1\\n    leafCellNumber: 4\\n"
      "  - podNumber: 2\\n    leafCellNumber: 2\\n";
  const auto placed = [](const std::string& node, const std::string& devices,
                         const std::string& types) {
    return "  - physicalNode: " + node + "\\n    physicalLeafCellIndices: " + devices +
           "\\n    preassignedCellTypes: " + types + "\\n";
  };
  const std::string two = "[NODE, NODE]";
  const std::string four = "[NODE, NODE, NODE, NODE]";
  const auto line = [&](const std::string& node) {
    return R"({"op":"recover","spec":")" + spec + R"(","bindInfo":"node: n0\nleafCellIsolation: )" +
           R"([0, 1]\ncellChain: NODE\naffinityGroupBindInfo:\n- podPlacements:\n)" +
           placed("n0", "[0, 1]", two) + placed(node, "[2, 3]", two) + R"(- podPlacements:\n)" +
           placed("n1", "[0, 1, 2, 3]", four) + "\"}";
  };
  hived_session s;
  std::string config = cells;
  config.replace(config.find(R"("cellNumber":1}],"pinned)"), 14, R"("cellNumber":2)");
  config.replace(config.find(R"(,"pinnedCellId":"pin"})"), 22, "}");
  config.replace(config.find(R"(,"pinnedCells":[{"pinnedCellId":"pin"}])"), 39, "");
  config.replace(config.find(R"(,"blue")"), std::string::npos, "}");
  REQUIRE(ask(s, R"({"op":"config",)" + config + '}') == R"("result":"ok")");
  CHECK(ask(s, line("n0")) == R"("result":"ok","lazyPreempted":[],"gone":[])");
  CHECK(ask_op(s, "'gang_state','group':'train'") ==
        "'result':'ok','vc':'red','priority':5,'state':'allocated','as':'guaranteed','pods':["
        "{'node':'n1','devices':[0,1,2,3],'wholeCell':2},{'node':'n0','devices':[0,1],"
        "'wholeCell':2},{'node':'n0','devices':[2,3],'wholeCell':2}],'victims':[],"
        "'preemptors':[]");
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
  CHECK(ask_op(s, "'delete','group':'train'") == nobody_restored);

  // The node of the last pod has left: the pod is lost, and the gang ends with the last one.
  CHECK(ask(s, line("n9")) == R"("result":"ok","lazyPreempted":[],"gone":[])");
  CHECK(ask_op(s, "'gang_state','group':'train'").find("{'node':'','devices':[]}") !=
        std::string::npos);
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
  refuses(s, "'schedule_pod','group':'train','pod':2", "NOT_FOUND",
          "is not on the configuration's nodes");
  for (const char* pod : {"0", "1"})
    CHECK(ask_op(s, std::string("'delete_pod','group':'train','pod':") + pod) == nobody_restored);
  CHECK(s.num_names() == 1);
  refuses(s, "'delete_pod','group':'train','pod':1", "NOT_FOUND", "");
  CHECK(ask_op(s, "'delete_pod','group':'train','pod':2") == nobody_restored);
  CHECK(s.num_names() == 0);

  // A gang of one pod has no group in its annotation.
  CHECK(ask(s, R"({"op":"recover","group":"one","spec":"virtualCluster: red\npriority: -1\n)"
               R"(leafCellNumber: 1\n","bindInfo":"node: n2\nleafCellIsolation: [3]\n"})") ==
        R"("result":"ok","lazyPreempted":[],"gone":[])");
  CHECK(ask_op(s, "'gang_state','group':'one'").find("{'node':'n2','devices':[3]}") !=
        std::string::npos);
  refuses(s, "'recover','group':'b','spec':'[','bindInfo':'node: n2'", "INVALID_ARGUMENT",
          "annotation: ");
  refuses(s, "'recover','group':'b','spec':'priority: high','bindInfo':'node: n2'",
          "INVALID_ARGUMENT", "annotation: ");
  refuses(s, "'recover','group':'b','spec':'- a','bindInfo':'node: n2'", "INVALID_ARGUMENT",
          "spec: a mapping expected");
  refuses(s, "'recover','group':'b','spec':'a: b','bindInfo':'3'", "INVALID_ARGUMENT",
          "bindInfo: a mapping expected");
  refuses(s,
          R"({"op":"recover","group":"b","spec":"leafCellNumber: 2","bindInfo":"node: n2\nleaf)"
          R"(CellIsolation: [0]"})",
          "INVALID_ARGUMENT",
          R"(bindInfo: the pod on node \"n2\" has 1 devices; spec has no more pods)");
  refuses(
      s,
      R"({"op":"recover","group":"b","spec":"affinityGroup:\n  members: [{podNumber: 3000000000,)"
      R"( leafCellNumber: 1}]","bindInfo":"node: n2"})",
      "INVALID_ARGUMENT", "spec: too many pods");
}

TEST_CASE("annotations describe the gang alone, with devices and pods that exist") {
  hived_session s = configured();
  const auto line = [](const std::string& more, const std::string& places) {
    return R"({"op":"recover",)" + more +
           R"("spec":"virtualCluster: red\naffinityGroup: {name: g, members: [{podNumber: 2, )"
           R"(leafCellNumber: 1}]}","bindInfo":"affinityGroupBindInfo: [{podPlacements: [)" +
           places + R"(]}]"})";
  };
  const auto at = [](const std::string& device) {
    return "{physicalNode: n0, physicalLeafCellIndices: [" + device + "]}";
  };
  const std::string two = at("0") + ", " + at("1");
  const std::string fields[] = {R"("members":[{"pods":1,"leafs":1,"names":["a"]}])",
                                R"("members":[])",
                                R"("vc":"red")",
                                R"("priority":0)",
                                R"("lazy":false)",
                                R"("pinned":"pin")",
                                R"("leafType":"GPU")",
                                R"("required":"NODE")",
                                R"("preferred":"NODE")",
                                R"("chains":["NODE"])",
                                R"("excludedChains":[])",
                                R"("pods":[{"node":"n0","devices":[0]}])"};
  for (const std::string& field : fields) {
    refuses(s, line(field + ',', two), "INVALID_ARGUMENT",
            '"' + field.substr(1, field.find('"', 1) - 1) + ": ");
    refuses(s, line(field + ',', two), "INVALID_ARGUMENT", "spec and bindInfo");
  }
  for (const char* device : {"4294967295", "4294967296", "4294967297"})
    refuses(s, line("", at("0") + ", " + at(device)), "INVALID_ARGUMENT",
            std::string("physicalLeafCellIndices: ") + device);
  refuses(s, line("", two + ", " + at("2")), "INVALID_ARGUMENT",
          "bindInfo: 3 pods, but spec has 2");
  // A pod that no member has is an error, not a pod that is lost: with another number of devices, without
  // devices, and beside a pod that a member has.
  for (const std::string& device : {std::string("0, 1"), std::string()})
    for (const std::string& places : {at(device), at("0") + ", " + at(device)})
      refuses(s, line("", places), "INVALID_ARGUMENT",
              "bindInfo: the pod on node \\\"n0\\\" has " +
                  std::string(device.empty() ? "0" : "2") + " devices; spec has no more pods");
  refuses(s, "'gang_state','group':'g'", "NOT_FOUND", "");

  // Null and "" are as good as missing; what a recording adds does no harm, nor do suggested nodes.
  CHECK(ask(s, line(R"("i":1,"vc":"","members":null,"pods":null,"suggested":["n0"],)", two)) ==
        R"("result":"ok","lazyPreempted":[],"gone":[])");
  const std::string state = ask_op(s, "'gang_state','group':'g'");
  CHECK(state.find("{'node':'n0','devices':[0]") != std::string::npos);
  CHECK(state.find("{'node':'n0','devices':[1]") != std::string::npos);
}

TEST_CASE(
    "pods whose nodes left the configuration are lost until they end, or the node comes back") {
  const auto with_nodes = [](std::uint32_t nodes) {
    std::string text =
        R"("physicalCluster":{"cellTypes":{"NODE":{"childCellType":"GPU","childCellNumber":2,)"
        R"("isNodeLevel":true}},"physicalCells":[)";
    for (std::uint32_t n = 0; n < nodes; ++n)
      text += std::string(n == 0 ? "" : ",") + R"({"cellType":"NODE","cellAddress":"n)" +
              std::to_string(n) + "\"}";
    return text + R"(]},"virtualClusters":{"red":{"virtualCells":[{"cellType":"NODE",)" +
           R"("cellNumber":)" + std::to_string(nodes) + "}]}}";
  };
  const auto started = [&] {
    hived_session s;
    ask(s, R"({"op":"config",)" + with_nodes(3) + '}');
    CHECK(ask_op(s, gang("g", "red", 0, "[{'pods':3,'leafs':2}]"))
              .starts_with("'result':'bind','pods':[{'node':'n0'"));
    CHECK(ask(s, R"({"op":"reconfigure",)" + with_nodes(2) + '}').find(R"("shrunk":["g"])") !=
          std::string::npos);
    return s;
  };
  const auto ends = [](hived_session& s, int pod) {
    CHECK(ask_op(s, "'delete_pod','group':'g','pod':" + std::to_string(pod)) == nobody_restored);
    CHECK(ask_op(s, "'audit'") == "'result':'ok'");
    return s.num_names() == 0;
  };
  hived_session placed_first = started();
  CHECK_FALSE(ends(placed_first, 0));
  CHECK_FALSE(ends(placed_first, 1));
  CHECK(ends(placed_first, 2));
  hived_session lost_first = started();
  CHECK_FALSE(ends(lost_first, 2));
  CHECK_FALSE(ends(lost_first, 0));
  CHECK(ends(lost_first, 1));
  hived_session back = started();
  ask(back, R"({"op":"reconfigure",)" + with_nodes(3) + '}');
  CHECK(ask_op(back, "'schedule_pod','group':'g','pod':2").starts_with("'result':'bind'"));

  // The same after a restart with the smaller configuration.
  hived_session again;
  ask(again, R"({"op":"config",)" + with_nodes(2) + '}');
  CHECK(ask_op(again, "'recover'," + gang("g", "red", 0, "[{'pods':3,'leafs':2}]").substr(11) +
                          ",'pods':[{'node':'n0','devices':[0,1]},{'node':'n1','devices':[0,1]},"
                          "{'node':'n2','devices':[0,1]}]") ==
        "'result':'ok','lazyPreempted':[],'gone':[]");
  CHECK_FALSE(ends(again, 0));
  CHECK_FALSE(ends(again, 1));
  ask(again, R"({"op":"reconfigure",)" + with_nodes(3) + '}');
  CHECK(ask_op(again, "'schedule_pod','group':'g','pod':2")
            .starts_with("'result':'bind','pods':[{'node':'n2','devices':[0,1]"));
  CHECK(ends(again, 2));
}

TEST_CASE("a host in two chains: its health, its devices, and a suggestion of it") {
  hived_session s;
  REQUIRE(ask_op(s,
                 "'config','physicalCluster':{'cellTypes':{"
                 "'NEW':{'childCellType':'V100','childCellNumber':2,'isNodeLevel':true},"
                 "'OLD':{'childCellType':'K80','childCellNumber':2,'isNodeLevel':true}},"
                 "'physicalCells':[{'cellType':'NEW','cellAddress':'h'},{'cellType':'OLD',"
                 "'cellAddress':'h','cellChildren':[{'cellAddress':8},{'cellAddress':9}]},"
                 "{'cellType':'OLD','cellAddress':'o'}]},'virtualClusters':{'t':{'virtualCells':["
                 "{'cellType':'NEW','cellNumber':1},{'cellType':'OLD','cellNumber':2}]}}") ==
          "'result':'ok'");
  for (const char* type : {"V100", "K80"})
    CHECK(ask_op(s, gang(type, "t", 0, "[{'pods':1,'leafs':1}]",
                         ",'suggested':['h'],'leafType':'" + std::string(type) + "'"))
              .starts_with("'result':'bind','pods':[{'node':'h'"));
  CHECK(ask_op(s, "'node_state','node':'h'") ==
        "'result':'ok','vc':'t','leaves':4,'idle':2,'guaranteed':2,'opportunistic':0,'claimed':0,"
        "'bad':0");
  CHECK(ask_op(s, "'device_bad','node':'h','device':9") == "'result':'ok'");
  CHECK(ask_op(s, "'node_state','node':'h'").find("'bad':1") != std::string::npos);
  CHECK(ask_op(s, "'node_bad','node':'h'") == "'result':'ok'");
  CHECK(ask_op(s, "'node_state','node':'h'").find("'bad':4") != std::string::npos);
  CHECK(ask_op(s, "'delete','group':'K80'") == nobody_restored);
  CHECK(ask_op(s,
               "'recover','group':'again','vc':'t','priority':0,'members':[{'pods':1,'leafs':2}],"
               "'pods':[{'node':'h','devices':[9,8]}]") ==
        "'result':'ok','lazyPreempted':[],'gone':[]");
  CHECK(ask_op(s, "'gang_state','group':'again'").find("{'node':'h','devices':[8,9],") !=
        std::string::npos);
  CHECK(ask_op(s, "'audit'") == "'result':'ok'");
}

TEST_CASE("a session ended after any line is the same once its lines are played again") {
  std::ifstream in(std::string(APIARY_SOURCE_DIR) + "/examples/programs/hived_session.input");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  REQUIRE(lines.size() > 10);
  check_replay(lines);
}

// A line of any op about a few gangs, on the cluster above.
std::string random_line(apiary::rng& random) {
  const auto number = [&](std::uint32_t n) { return std::to_string(random.uniform(n)); };
  const std::string group = R"(,"group":"g)" + number(6) + '"';
  const std::string node = R"(,"node":"n)" + number(3) + '"';
  const std::string device = R"(,"device":)" + number(5);
  const std::string asked = group + R"(,"vc":")" + (random.uniform(2) == 0 ? "red" : "blue") +
                            R"(","priority":)" +
                            std::to_string(static_cast<int>(random.uniform(4)) - 1) +
                            R"(,"members":[{"pods":)" + std::to_string(1 + random.uniform(2)) +
                            R"(,"leafs":)" + std::to_string(1 + random.uniform(4)) + "}]" +
                            (random.uniform(2) == 0 ? R"(,"lazy":true)" : "") +
                            (random.uniform(8) == 0 ? R"(,"pinned":"pin")" : "");
  const auto line = [](const std::string& op, const std::string& fields) {
    return R"({"op":")" + op + '"' + fields + '}';
  };
  switch (random.uniform(17)) {
    case 0:
      return line("delete", group);
    case 1:
      return line("cancel", group);
    case 2:
      return line("delete_pod", group + R"(,"pod":)" + number(2));
    case 3:
      return line(random.uniform(3) == 0 ? "node_bad" : "node_healthy", node);
    case 4:
      return line(random.uniform(3) == 0 ? "device_bad" : "device_healthy", node + device);
    case 5:
      return line("recover", asked + R"(,"pods":[{)" + node.substr(1) + R"(,"devices":[)" +
                                 number(4) + "]},{}]");
    case 6: {
      std::string other = cells;
      if (random.uniform(2) == 0) other.replace(other.find("\"blue\""), 6, "\"green\"");
      return line("reconfigure", ',' + other);
    }
    case 7:
      return line("schedule", group);
    case 8:
      return line("schedule_pod", asked + R"(,"pod":)" + number(2));
    case 9:
      return line("node_state", node);
    case 10:
      return line("schedule", asked + R"(,"suggested":["n0","n1"])" +
                                  (random.uniform(2) == 0 ? R"(,"phase":"Filtering")" : ""));
    case 11:
      return random.uniform(2) == 0 ? line("draw", "") : line("vc_state", R"(,"vc":"red")");
    case 12:
      return line("gang_state", group);
    default:
      return line("schedule", asked);
  }
}

TEST_CASE("random sessions are the same once played again, wherever they ended") {
  std::size_t bound = 0;
  std::size_t preempting = 0;
  std::size_t refused = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{30}); ++run) {
    CAPTURE(run);
    apiary::rng random(run);
    std::vector<std::string> lines = {R"({"op":"config",)" + cells + '}'};
    while (lines.size() < 50) lines.push_back(random_line(random));
    check_replay(lines);
    hived_session session;
    for (const std::string& line : lines) {
      const std::string answer = session.answer(line);
      bound += answer.find("\"result\":\"bind\"") != std::string::npos ? 1U : 0U;
      preempting += answer.find("\"result\":\"preempt\"") != std::string::npos ? 1U : 0U;
      refused += answer.find("\"result\":\"error\"") != std::string::npos ? 1U : 0U;
    }
  }
  MESSAGE(bound << " bound, " << preempting << " preempting, " << refused << " refused");
  CHECK(bound > 0);
  if (apiary_test::scale() >= 1) CHECK(preempting > 0);
}
