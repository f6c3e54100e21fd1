// apiary/tests/examples/session_program_test.cpp - the program session, and its YAML file.
// SPDX-License-Identifier: MIT
#define main session_main
#include "../../examples/programs/session.cpp"
#undef main
#include "support/work_folder.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using apiary_test::ended;

const std::string yaml_cluster = R"(# racks of two nodes
kubeApiServerAddress: http://10.10.10.10:8080
physicalCluster:
  cellTypes:
    NODE: { childCellType: GPU, childCellNumber: 2, isNodeLevel: true }
    RACK: { childCellType: NODE, childCellNumber: 2 }
  physicalCells:
  - cellType: RACK
    cellChildren:
    - cellAddress: n0
    - cellAddress: n1
      pinnedCellId: ours
virtualClusters:
  red:
    virtualCells:
    - { cellType: RACK.NODE, cellNumber: 1 }
    pinnedCells:
    - pinnedCellId: ours
)";
const std::string line_of_cluster =
    R"({"op":"config","physicalCluster":{"cellTypes":{"NODE":{"childCellType":"GPU",)"
    R"("childCellNumber":2,"isNodeLevel":true},"RACK":{"childCellType":"NODE","childCellNumber":2}},)"
    R"("physicalCells":[{"cellType":"RACK","cellChildren":[{"cellAddress":"n0"},)"
    R"({"cellAddress":"n1","pinnedCellId":"ours"}]}]},"virtualClusters":{"red":{"virtualCells":)"
    R"([{"cellType":"RACK.NODE","cellNumber":1}],"pinnedCells":[{"pinnedCellId":"ours"}]}}})"
    "\n";
const std::string events =
    R"({"op":"schedule","group":"g","vc":"red","priority":1,"members":[{"pods":1,"leafs":2}]})"
    "\n"
    R"({"op":"schedule","group":"h","vc":"red","priority":0,"members":[{"pods":2,"leafs":1}],)"
    R"("pinned":"ours"})"
    "\n"
    R"({"op":"audit"})"
    "\n";

// A folder to run the program in, whose input is the file "lines".
class session_folder : public apiary_test::work_folder {
 public:
  session_folder() : work_folder(session_main) {}

  [[nodiscard]] ended play(const std::vector<std::string>& arguments,
                           const std::string& lines) const {
    put("lines", lines);
    const auto read_lines = [] {
      const int file = ::open("lines", O_RDONLY);
      if (file < 0 || ::dup2(file, 0) != 0) ::_exit(97);
    };
    return run(arguments, read_lines, "session");
  }
};

// A refused file: one answer with these faults, whatever the lines are.
void refuses_file(const session_folder& here, const std::string& file, const std::string& code,
                  const std::string& faults) {
  CAPTURE(file);
  const ended end = here.play({file}, events);
  CHECK(end.status == 2);
  CHECK(end.out == R"({"i":0,"result":"error","code":")" + code + R"(","message":)" +
                       example::json_text(faults) + R"(,"hash":"0000000000000000"})" + "\n");
  CHECK(end.err.empty());
}

}  // namespace

TEST_CASE("a YAML file is the first line") {
  const session_folder here;
  here.put("cluster.yaml", yaml_cluster);
  const ended end = here.play({"cluster.yaml"}, events);
  CHECK(end.status == 0);
  CHECK(end.err.empty());
  CHECK(end.out.find(R"({"i":0,"result":"ok","hash":")") == 0);
  CHECK(end.out.find(R"({"i":2,"result":"bind","pods":[{"node":"n1","devices":[0],)") !=
        std::string::npos);
  CHECK(end.out.find(R"({"i":3,"result":"ok",)") != std::string::npos);
  const ended lines = here.play({}, line_of_cluster + events);
  CHECK(lines.status == 0);
  CHECK(lines.out == end.out);
  // A second configuration is refused, and the session goes on.
  const ended twice = here.play({"cluster.yaml"}, line_of_cluster + events);
  CHECK(twice.status == 0);
  CHECK(twice.out.find(R"({"i":1,"result":"error","code":"FAILED_PRECONDITION",)") !=
        std::string::npos);
  CHECK(twice.out.find(R"({"i":4,"result":"ok",)") != std::string::npos);
}

TEST_CASE("a YAML file with faults is refused with all of them") {
  const session_folder here;
  here.put("meaning.yaml", R"(physicalCluster:
  cellTypes:
    NODE: { childCellType: GPU, childCellNumber: 4, isNodeLevel: true }
    LOOP: { childCellType: LOOP, childCellNumber: 1 }
  physicalCells:
  - { cellType: NODE, cellAddress: n0 }
  - { cellType: NODE, cellAddress: n0 }
virtualClusters:
  red: { virtualCells: [{ cellType: NODE.PAIR, cellNumber: 1 }] }
  blue: { pinnedCells: [{ pinnedCellId: ours }] }
)");
  refuses_file(here, "meaning.yaml", "INVALID_ARGUMENT",
               "physicalCluster.cellTypes.LOOP: contains itself\n"
               "physicalCluster.physicalCells[1].cellAddress: node \"n0\" is named twice\n"
               "virtualClusters.red.virtualCells[0].cellType: \"NODE\" is not made of \"PAIR\"\n"
               "virtualClusters.blue.pinnedCells[0].pinnedCellId: no physical cell is pinned as "
               "\"ours\"");
  here.put("shape.yaml", R"(physicalCluster:
  cellTypes:
    NODE: { childCellType: GPU, childCellNumber: four, isNodeLevel: true }
  physicalCells:
  - { cellType: NODE, celAddress: n0 }
virtualClusters:
  red: { virtualCells: { cellType: NODE } }
  red: {}
)");
  refuses_file(here, "shape.yaml", "INVALID_ARGUMENT",
               "physicalCluster.cellTypes.NODE.childCellNumber (line 3): a whole number from 0 to "
               "4294967295 expected\n"
               "physicalCluster.physicalCells[0].celAddress (line 5): is not a field here\n"
               "virtualClusters.red.virtualCells (line 7): a list expected\n"
               "virtualClusters.red (line 8): is given twice");
  here.put("none.yaml", "");
  refuses_file(here, "none.yaml", "INVALID_ARGUMENT", "physicalCluster.physicalCells: no cells");
  here.put("open.yaml", "physicalCluster: [\n");
  const ended end = here.play({"open.yaml"}, events);
  CHECK(end.status == 2);
  CHECK(end.out.find(R"("message":"open.yaml: yaml-cpp: error at line 2)") != std::string::npos);
}

TEST_CASE("a YAML file that cannot be read, or two of them") {
  const session_folder here;
  refuses_file(here, "cluster.yaml", "NOT_FOUND", "cluster.yaml: No such file or directory");
  refuses_file(here, ".", "FAILED_PRECONDITION", ".: Is a directory");
  refuses_file(here, "", "NOT_FOUND", ": No such file or directory");
  const ended two = here.play({"a.yaml", "b.yaml"}, events);
  CHECK(two.status == 2);
  CHECK(two.out.empty());
  CHECK(two.err == "session: one argument at most, a YAML file\n");
}

TEST_CASE("the first configuration that is accepted chooses the scheduler") {
  const std::string cluster = line_of_cluster.substr(0, line_of_cluster.size() - 1);
  const std::string nodes = R"({"op":"config","nodes":[{"name":"a","gpus":8}]})";
  const std::string wrong = R"({"op":"config","nodes":[{"name":"a","gpus":99}]})";
  const auto codes = [](example::any_session& session, const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& line : lines) {
      const std::string answer = session.answer(line);
      const bool ok = answer.find(R"("result":"ok")") != std::string::npos;
      const std::size_t code = answer.find(R"("code":")");
      all += answer.substr(5, answer.find(',') - 5) +
             (ok ? " ok;" : ' ' + answer.substr(code + 8, 7) + ';');
    }
    return all;
  };
  example::any_session any;
  CHECK(codes(any, {R"({"op":"note"})", R"({"op":"usage","vc":"red"})", wrong, cluster}) ==
        "0 ok;1 UNIMPLE;2 INVALID;3 ok;");
  CHECK(codes(any, {R"({"op":"usage","vc":"red"})", nodes, R"({"op":"free","level":"node"})"}) ==
        "4 ok;5 FAILED_;6 UNIMPLE;");
  example::any_session gang;
  CHECK(codes(gang, {R"({"op":"config","virtualClusters":[]})", nodes, cluster,
                     R"({"op":"schedule","group":1,"members":[{"pods":1,"leafs":9}]})",
                     R"({"op":"free","level":"node"})"})
            .starts_with("0 INVALID;1 ok;2 INVALID;3 "));
  CHECK(codes(gang, {R"({"op":"free","level":"node"})"}) == "5 ok;");
  // A scheduler that is given stays.
  example::any_session fixed(example::session_kind::gang);
  CHECK(codes(fixed, {cluster, nodes}) == "0 INVALID;1 ok;");
}

TEST_CASE("the program of either scheduler, and its help") {
  const session_folder here;
  const ended gang = here.play({}, R"({"op":"config","nodes":[{"name":"a","gpus":8}]})"
                                   "\n"
                                   R"({"op":"schedule","group":1,"members":[{"pods":1,"leafs":8}]})"
                                   "\n");
  CHECK(gang.status == 0);
  CHECK(gang.out.find(R"({"i":1,"result":"bind","pods":[{"node":"a","devices":[0,1,2,3,)") !=
        std::string::npos);
  const ended help = here.play({"--help"}, "");
  CHECK(help.status == 0);
  for (const char* verb : {"propose", "reconfigure", "device_bad"})
    CHECK(help.out.find(verb) != std::string::npos);
}
