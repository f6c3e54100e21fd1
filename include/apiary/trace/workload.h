// apiary/trace/workload.h - a cluster and the tasks that arrive at it, with their names.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Nodes and their names.
struct trace_cluster {
  node_table nodes{};                       // the nodes
  dense_map<node_id, std::string> names{};  // the name of each node
};

// A task and its name. `spec` numbers the GPU specs of all tasks in ascending order of their text; it
// becomes task_kind::spec.
struct named_task {
  std::string name{};      // its name in the trace
  task_request request{};  // what it asks for
  std::uint32_t spec = 0;  // number of its GPU spec
};

// Tasks, and their arrivals in order, as indices of `tasks`. A task may arrive more than once (each time
// as another job) or never.
struct workload {
  std::vector<named_task> tasks{};        // each task once
  std::vector<std::uint32_t> arrivals{};  // indices of `tasks`
};

// Every task arrives once, in the order of the list.
[[nodiscard]] inline std::vector<std::uint32_t> in_order(std::span<const named_task> tasks) {
  std::vector<std::uint32_t> arrivals(tasks.size());
  std::iota(arrivals.begin(), arrivals.end(), 0U);
  return arrivals;
}

// Every task arrives once, in a random order that depends on the seed alone.
[[nodiscard]] inline std::vector<std::uint32_t> in_random_order(std::span<const named_task> tasks,
                                                                std::uint64_t seed) {
  std::vector<std::uint32_t> arrivals = in_order(tasks);
  rng random(seed);
  random.shuffle(arrivals);
  return arrivals;
}

// The kind of each task: a history for task_mix::from_history().
[[nodiscard]] inline std::vector<task_kind> task_kinds(std::span<const named_task> tasks) {
  std::vector<task_kind> kinds;
  kinds.reserve(tasks.size());
  for (const named_task& task : tasks) {
    kinds.push_back({.cpu_milli = task.request.cpu_milli,
                     .gpu_milli = task.request.gpu_milli,
                     .gpus = task.request.gpus,
                     .models = task.request.models,
                     .spec = task.spec});
  }
  return kinds;
}

APIARY_NAMESPACE_END
