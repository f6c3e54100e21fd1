// apiary/benchmarks/openb_experiment.h - the load that schedulers of shared GPUs are measured on.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/metric/task_mix.h>
#include <apiary/model/request.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <filesystem>
#include <string>
#include <utility>

namespace apiary_bench {

struct experiment {
  apiary::trace_cluster machines;
  apiary::workload work;
  apiary::task_mix mix;
};

// The default experiment of the openb trace, or where there is no data a synthetic one like it.
inline experiment load_openb() {
  using namespace apiary;
  const std::string data = std::string(APIARY_DATA_DIR) + "/openb/";
  experiment e;
  if (std::filesystem::exists(data)) {
    gpu_model_names models;
    const auto lines = [&](const char* name) { return line_reader::open(data + name).value(); };
    const trace_cluster listed = read_nodes(lines("openb_node_list_gpu_node.csv"), models).value();
    e.machines = read_node_order(lines("arrivals/default_42_nodes.txt"), listed).value();
    e.work.tasks = read_tasks(lines("openb_pod_list_default.csv"), models).value();
    e.work.arrivals = read_arrivals(lines("arrivals/default_42_pods.txt"), e.work.tasks).value();
  } else {
    synthetic_trace made = openb_like({});
    e.machines = std::move(made.nodes);
    e.work = std::move(made.work);
  }
  e.mix = task_mix::from_history(workload::kinds(e.work.tasks));
  return e;
}

}  // namespace apiary_bench
