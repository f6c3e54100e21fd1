// apiary/tests/sim/replay_data_test.cpp - the program replay repeats a published experiment.
// SPDX-License-Identifier: MIT
#define main replay_main
#include "../../examples/replay.cpp"
#undef main
#include "support/data.h"
#include "support/work_folder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace {

const std::string openb = apiary_test::data_folder("openb");

// The line of `text` that begins so, without that and a CR at its end.
std::string rest_of_line(const std::string& text, const std::string& begin) {
  const std::size_t at = ("\n" + text).find("\n" + begin);
  REQUIRE_MESSAGE(at != std::string::npos, begin);
  const std::size_t from = at + begin.size();
  return text.substr(from, text.find_first_of("\r\n", from) - from);
}

}  // namespace

TEST_CASE("replay --rounding published writes the published decisions and curves") {
  const apiary_test::work_folder here(replay_main);
  const apiary_test::ended end =
      here.run({"--nodes", openb + "openb_node_list_gpu_node.csv", "--pods",
                openb + "openb_pod_list_default.csv", "--node-order",
                openb + "arrivals/default_42_nodes.txt", "--arrivals",
                openb + "arrivals/default_42_pods.txt", "--policy", "fgd", "--rounding",
                "published", "--curves", "curves", "--decisions", "decisions"});
  REQUIRE_MESSAGE(end.status == 0, end.err);
  const std::string decisions = here.get("decisions");
  CHECK(std::count(decisions.begin(), decisions.end(), '\n') == 10'866);
  CHECK((decisions == here.get(openb + "expected/decisions_default_FGD_42.txt")));
  const std::string curves = here.get("curves");
  CHECK(std::count(curves.begin(), curves.end(), '\n') == 4);
  for (const std::string metric : {"allocation", "fragmentation_amount", "fragmentation_ratio"}) {
    CAPTURE(metric);
    const std::string published = here.get(openb + "expected/" + metric + ".csv");
    CHECK(rest_of_line(curves, "policy,metric,") == rest_of_line(published, "trace,policy,seed,"));
    CHECK(rest_of_line(curves, "fgd," + metric + ",") ==
          rest_of_line(published, "default,FGD,42,"));
  }
}

TEST_CASE("prices allocate more than FGD when the load that has arrived is 100 %") {
  struct expectation {
    const char* trace;
    const char* seed;
    double least;  // % of the GPUs
  };
  // FGD: 95.35, 86.44, 87.89 and 97.07.
  for (const expectation& e : {expectation{"default", "46", 96.0},
                               {"gpushare100", "43", 88.0},
                               {"gpuspec33", "43", 95.0},
                               {"multigpu50", "43", 97.5}}) {
    CAPTURE(e.trace);
    const std::string arrivals = openb + "arrivals/" + e.trace + "_" + e.seed;
    const apiary_test::work_folder here(replay_main);
    const apiary_test::ended end = here.run(
        {"--nodes", openb + "openb_node_list_gpu_node.csv", "--pods",
         openb + "openb_pod_list_" + e.trace + ".csv", "--node-order", arrivals + "_nodes.txt",
         "--arrivals", arrivals + "_pods.txt", "--policy", "prices", "--curves", "curves"});
    REQUIRE_MESSAGE(end.status == 0, end.err);
    std::string values = rest_of_line(here.get("curves"), "prices,allocation,");
    for (int load = 0; load < 100; ++load) values.erase(0, values.find(',') + 1);
    CHECK(std::stod(values) >= e.least);
  }
}
