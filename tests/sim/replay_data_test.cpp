// apiary/tests/sim/replay_data_test.cpp - the program replay repeats a published experiment.
// SPDX-License-Identifier: MIT
#define main replay_main
#include "../../examples/programs/replay.cpp"
#undef main
#include "support/data.h"
#include "support/work_folder.h"
#include <apiary/fgd/detail/load_prices.h>
#include <apiary/fgd/detail/load_program.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace {

const std::string openb = apiary_test::data_folder("openb");

// The line of `text` that begins so, without that and a CR at its end.
std::string rest_of_line(const std::string& text, const std::string& begin) {
  const std::size_t at = ("\n" + text).find("\n" + begin);
  REQUIRE_MESSAGE(at != std::string::npos, begin);
  const std::size_t from = at + begin.size();
  return text.substr(from, text.find_first_of("\r\n", from) - from);
}

// The GPUs that replay allocates while the load that has arrived rounds to 100 %, in %.
double allocated(const std::string& trace, const std::string& seed, const std::string& policy) {
  const std::string arrivals = openb + "arrivals/" + trace + "_" + seed;
  const apiary_test::work_folder here(replay_main);
  const apiary_test::ended end =
      here.run({"--nodes", openb + "openb_node_list_gpu_node.csv", "--pods",
                openb + "openb_pod_list_" + trace + ".csv", "--node-order", arrivals + "_nodes.txt",
                "--arrivals", arrivals + "_pods.txt", "--policy", policy, "--curves", "curves"});
  REQUIRE_MESSAGE(end.status == 0, end.err);
  std::string values = rest_of_line(here.get("curves"), policy + ",allocation,");
  for (int load = 0; load < 100; ++load) values.erase(0, values.find(',') + 1);
  return std::stod(values);
}

// What no scheduler can exceed then: the linear program with all tasks that have arrived.
double bound(const std::string& trace, const std::string& seed) {
  gpu_model_names models;
  const auto lines = [](const std::string& name) {
    return line_reader::open(openb + name).value();
  };
  const trace_cluster cluster = read_nodes(lines("openb_node_list_gpu_node.csv"), models).value();
  const std::vector<named_task> tasks =
      read_tasks(lines("openb_pod_list_" + trace + ".csv"), models).value();
  const std::vector<std::uint32_t> arrivals =
      read_arrivals(lines("arrivals/" + trace + "_" + seed + "_pods.txt"), tasks).value();
  const std::uint64_t gpus = cluster.nodes.total_gpus();
  std::vector<named_task> arrived;
  std::uint64_t requested = 0;  // thousandths of a GPU
  for (const std::uint32_t t : arrivals) {
    requested += tasks[t].request.total_gpu_milli();
    if (requested > 1005 * gpus) break;  // 100.5 %
    arrived.push_back(tasks[t]);
  }
  const task_mix mix = task_mix::from_history(workload::kinds(arrived), 100);
  std::vector<apiary::detail::load_kind> kinds;
  for (const task_mix::weighted_kind& t : mix.tasks()) {
    if (t.kind.gpus == 0) continue;
    REQUIRE(t.kind.gpu_milli % 10 == 0);  // the program rounds other fractions up
    kinds.push_back({t.kind.cpu_milli, t.kind.gpus, t.kind.gpu_milli, t.kind.models,
                     static_cast<double>(t.weight), t.kind.gpus * t.kind.gpu_milli / 1000.0});
  }
  const apiary::detail::load_program program(
      apiary::detail::expected_load(cluster.nodes, mix).classes(), kinds);
  REQUIRE(program.optimal());
  return 100.0 * program.objective() / static_cast<double>(gpus);
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

TEST_CASE("exact scores decide otherwise than the published rounding in a known number of cases") {
  struct expectation {
    const char* order;
    std::size_t differ;  // lines of the decisions
  };
  for (const expectation& e : {expectation{"default_43", 583}, {"gpushare100_43", 2460}}) {
    const std::string order = e.order;
    CAPTURE(order);
    const std::string arrivals = openb + "arrivals/" + order;
    std::vector<std::vector<std::string>> decisions;
    for (const char* rounding : {"exact", "published"}) {
      const apiary_test::work_folder here(replay_main);
      const apiary_test::ended end =
          here.run({"--nodes", openb + "openb_node_list_gpu_node.csv", "--pods",
                    openb + "openb_pod_list_" + order.substr(0, order.find('_')) + ".csv",
                    "--node-order", arrivals + "_nodes.txt", "--arrivals", arrivals + "_pods.txt",
                    "--policy", "fgd", "--rounding", rounding, "--decisions", "decisions"});
      REQUIRE_MESSAGE(end.status == 0, end.err);
      std::vector<std::string>& lines = decisions.emplace_back();
      std::istringstream text(here.get("decisions"));
      for (std::string line; std::getline(text, line);) lines.push_back(line);
    }
    REQUIRE(decisions[0].size() == decisions[1].size());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < decisions[0].size(); ++i)
      differ += decisions[0][i] != decisions[1][i] ? 1U : 0U;
    CHECK(differ == e.differ);
  }
}

TEST_CASE("prices allocate more than FGD when the load that has arrived is 100 %") {
  struct expectation {
    const char* trace;
    int orders;    // of arrival
    double least;  // mean of the orders, % of the GPUs
  };
  for (const expectation& e : {expectation{"default", 5, 95.99},
                               {"gpushare100", 2, 88.0},
                               {"gpuspec33", 2, 95.0},
                               {"multigpu50", 2, 97.5}}) {
    const std::string trace = e.trace;
    CAPTURE(trace);
    double fgd_sum = 0.0;
    double prices_sum = 0.0;
    double bound_sum = 0.0;
    for (int order = 42; order < 42 + e.orders; ++order) {
      const std::string seed = std::to_string(order);
      CAPTURE(seed);
      const double by_fgd = allocated(trace, seed, "fgd");
      const double by_prices = allocated(trace, seed, "prices");
      const double most = bound(trace, seed);
      CHECK(by_prices > by_fgd);
      CHECK(by_prices <= most);
      fgd_sum += by_fgd;
      prices_sum += by_prices;
      bound_sum += most;
    }
    char means[100];
    std::snprintf(means, sizeof means, "%s, %d orders: fgd %.2f %%, prices %.2f %%, bound %.2f %%",
                  e.trace, e.orders, fgd_sum / e.orders, prices_sum / e.orders,
                  bound_sum / e.orders);
    MESSAGE(std::string(means));
    CHECK(prices_sum / e.orders >= e.least);
  }
}
