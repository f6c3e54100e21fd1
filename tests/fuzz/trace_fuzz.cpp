// apiary/tests/fuzz/trace_fuzz.cpp - whatever the readers accept can be replayed.
// SPDX-License-Identifier: MIT
//
// The input is a node list, a task list, a node order and an arrival list, in this order, each
// behind the first with "====\n" between. A node order that is empty is not read. A task that names
// GPU models must name some that nodes have. What is read is replayed through every policy; the
// decisions must be possible, and each policy must leave what it says it used.
#include "../../examples/programs/load_curves.h"
#include "../../examples/programs/published_fragmentation.h"
#include <apiary/core/config.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

using namespace apiary;
using namespace example;

namespace {

constexpr std::string_view separator = "====\n";

// A status that a user could act on: it says where.
void check_fault(const absl::Status& status, const std::string& name) {
  const std::string message(status.message());
  APIARY_VERIFY(message.starts_with(name + ":"));
  APIARY_VERIFY(status.code() == absl::StatusCode::kInvalidArgument ||
                status.code() == absl::StatusCode::kOutOfRange);
}

template <class Score>
void replay_with(const trace_cluster& nodes, const workload& work, const task_mix& mix,
                 Score score) {
  auto scheduler = gpu_sharing_scheduler<Score>::create(nodes.nodes, std::move(score));
  APIARY_VERIFY(scheduler.ok());
  const auto answers = replay(*scheduler, work);
  APIARY_VERIFY(answers.ok());
  const auto samples = trace_load(nodes.nodes, fragmentation(mix), work, *answers);
  APIARY_VERIFY(samples.ok());
  std::uint64_t left = 0;
  for (const node_id n : nodes.nodes.ids()) left += scheduler->nodes()[n].total_gpu_left();
  APIARY_VERIFY(left + samples->back().used == nodes.nodes.total_gpus() * 1000);
  if (nodes.nodes.total_gpus() == 0) return;
  const load_curves curves = curves_of(*samples, nodes.nodes.total_gpus());
  const std::string lines = curves.csv("p");
  APIARY_VERIFY(std::count(lines.begin(), lines.end(), ',') == 3 * 132);
  for (std::size_t i = 0; i < answers->size(); ++i) {
    APIARY_VERIFY(!decision_line(nodes, work, i, (*answers)[i]).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::array<std::string_view, 4> texts;
  for (std::string_view& text : texts) {
    const std::size_t end = rest.find(separator);
    text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + separator.size());
  }
  gpu_model_names models;
  absl::StatusOr<trace_cluster> nodes = read_nodes(line_reader("nodes", texts[0]), models);
  if (!nodes.ok()) check_fault(nodes.status(), "nodes");
  workload work;
  auto tasks = read_tasks(line_reader("tasks", texts[1]), models);
  if (!tasks.ok()) check_fault(tasks.status(), "tasks");
  if (!nodes.ok() || !tasks.ok()) return 0;
  work.tasks = *std::move(tasks);
  model_set present = 0;
  for (const node_id n : nodes->nodes.ids()) {
    const node_shape& shape = nodes->nodes.shape(n);
    if (shape.gpus > 0) present |= model_set{1} << shape.model;
  }
  for (const named_task& task : work.tasks) {
    APIARY_VERIFY(task.request.models == any_model || (task.request.models & ~present) == 0);
    APIARY_VERIFY(task.request.models != 0);
  }
  if (!texts[2].empty()) {
    auto ordered = read_node_order(line_reader("order", texts[2]), *nodes);
    if (!ordered.ok()) {
      check_fault(ordered.status(), "order");
      return 0;
    }
    APIARY_VERIFY(ordered->nodes.total_gpus() == nodes->nodes.total_gpus());
    nodes = std::move(ordered);
  }
  auto arrivals = read_arrivals(line_reader("arrivals", texts[3]), work.tasks);
  if (!arrivals.ok()) check_fault(arrivals.status(), "arrivals");
  work.arrivals = arrivals.ok() ? *std::move(arrivals) : workload::in_order(work.tasks);

  const task_mix mix = task_mix::from_history(workload::kinds(work.tasks));
  replay_with(*nodes, work, mix, fragmentation_gradient(fragmentation(mix)));
  replay_with(*nodes, work, mix, published_fragmentation_gradient(mix));
  replay_with(*nodes, work, mix, best_fit());
  replay_with(*nodes, work, mix, dot_prod());
  replay_with(*nodes, work, mix, gpu_packing());
  replay_with(*nodes, work, mix, gpu_clustering());
  replay_with(*nodes, work, mix, random_fit(size));
  return 0;
}
