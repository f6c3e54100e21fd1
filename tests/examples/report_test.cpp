// apiary/tests/examples/report_test.cpp - texts of curves, decisions and tables.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/load_curves.h"
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/placement.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

using namespace apiary;
using example::curves_of;
using example::load_curves;
using example::load_sample;
using example::replay_summary;
using example::trace_load;

TEST_CASE("curves as CSV") {
  CHECK(load_curves::csv_header(3) == "policy,metric,0,1,2,3\n");
  const std::string header = load_curves::csv_header();
  CHECK(header.substr(header.size() - 5) == ",130\n");
  const double none = std::numeric_limits<double>::quiet_NaN();
  const load_curves curves{{0.0, 12.0}, {0.25, none}, {1.0 / 3, 100.0}};
  CHECK(curves.csv("fgd") ==
        "fgd,allocation,0.0,12.0\n"
        "fgd,fragmentation_amount,0.25,\n"
        "fgd,fragmentation_ratio,0.3333333333333333,100.0\n");
}

TEST_CASE("a table aligns its columns") {
  const std::vector<replay_summary> rows{
      {.policy = "fgd",
       .placed = 8334,
       .failed = 2532,
       .allocation = 95.291,
       .fragmentation = 4.69,
       .decisions_per_second = 1234567.8},
      {.policy = "gpu_clustering", .placed = 7, .failed = 10866, .allocation = 100.0}};
  CHECK(replay_summary::table(rows) ==
        "policy          placed  failed  GPUs allocated  fragmentation  decisions/s\n"
        "fgd               8334    2532         95.29 %         4.69 %      1234568\n"
        "gpu_clustering       7   10866        100.00 %         0.00 %            0\n");
  CHECK(replay_summary::table({}) ==
        "policy  placed  failed  GPUs allocated  fragmentation  decisions/s\n");
}

// Two nodes of one and two GPUs; five tasks. Best fit, by hand:
//   a takes 600 of y's device 0 (it is smaller in CPU and GPU, so less is left over there)
//   b takes both of x's devices, c takes the 400 left on y, d finds no GPU, e needs none.
TEST_CASE("a small trace from files to lines") {
  gpu_model_names models;
  const auto nodes = read_nodes(line_reader("n",
                                            "sn,cpu_milli,memory_mib,gpu,model\n"
                                            "x,64000,1000,2,T4\n"
                                            "y,8000,1000,1,T4\n"),
                                models);
  REQUIRE(nodes.ok());
  workload work;
  const auto tasks = read_tasks(line_reader("p",
                                            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
                                            "a,1000,10,1,600\n"
                                            "b,1000,10,2,1000\n"
                                            "c,1000,10,1,400\n"
                                            "d,1000,10,1,100\n"
                                            "e,1000,10,0,0\n"),
                                models);
  REQUIRE(tasks.ok());
  work.tasks = *tasks;
  work.arrivals = workload::in_order(work.tasks);
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(nodes->nodes, best_fit());
  REQUIRE(scheduler.ok());
  const auto answers = replay(*scheduler, work);
  REQUIRE(answers.ok());
  std::string lines;
  for (std::size_t i = 0; i < answers->size(); ++i) {
    lines += decision_line(*nodes, work, i, (*answers)[i]) + "\n";
  }
  CHECK(lines == "a y 0\nb x 0-1\nc y 0\nd -\ne y\n");

  const task_mix whole({{{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 1000}, 1}});
  const auto samples = trace_load(nodes->nodes, fragmentation(whole), work, *answers);
  REQUIRE(samples.ok());
  const std::vector<load_sample> expected{{600, 600, 400.0},
                                          {2600, 2600, 400.0},
                                          {3000, 3000, 0.0},
                                          {3100, 3000, 0.0},
                                          {3100, 3000, 0.0}};
  CHECK(*samples == expected);
  const load_curves curves = curves_of(*samples, nodes->nodes.total_gpus());
  CHECK(curves.allocation[20] == 20.0);
  CHECK(curves.fragmentation_amount[20] == 13.33);
  CHECK(curves.fragmentation_ratio[20] == 16.67);
  CHECK(curves.allocation[87] == 86.67);
  CHECK(curves.fragmentation_ratio[87] == 100.0);
  CHECK(curves.allocation[103] == 100.0);
}
