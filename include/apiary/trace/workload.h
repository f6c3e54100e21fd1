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
#include <apiary/model/resources.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Nodes and their names.
struct trace_cluster {
  node_table nodes{};                       // the nodes
  dense_map<node_id, std::string> names{};  // the name of each node
};

// A task and its name.
struct named_task {
  std::string name{};      // its name in the trace
  task_request request{};  // what it asks for
  std::uint32_t spec = 0;  // task_kind::spec: its GPU spec, numbered in order of the texts
};

// Tasks, and their arrivals in order. A task may arrive more than once (as another job) or never.
struct workload {
  std::vector<named_task> tasks{};        // each task once
  std::vector<std::uint32_t> arrivals{};  // indices of `tasks`
  // Every task arrives once, in the order of the list.
  [[nodiscard]] static std::vector<std::uint32_t> in_order(std::span<const named_task> tasks) {
    std::vector<std::uint32_t> arrivals(tasks.size());
    for (std::uint32_t i = 0; i < arrivals.size(); ++i) arrivals[i] = i;
    return arrivals;
  }
  // Every task arrives once, in a random order that depends on the seed alone.
  [[nodiscard]] static std::vector<std::uint32_t> in_random_order(std::span<const named_task> tasks,
                                                                  std::uint64_t seed) {
    std::vector<std::uint32_t> arrivals = in_order(tasks);
    rng random(seed);
    random.shuffle(arrivals);
    return arrivals;
  }
  // The kind of each task: a history for task_mix::from_history().
  [[nodiscard]] static std::vector<task_kind> kinds(std::span<const named_task> tasks) {
    std::vector<task_kind> kinds;
    kinds.reserve(tasks.size());
    for (const named_task& task : tasks) {
      kinds.push_back({.cpu_milli = task.request.cpu_milli,
                       .gpus = task.request.gpus,
                       .gpu_milli = task.request.gpu_milli,
                       .models = task.request.models,
                       .spec = task.spec});
    }
    return kinds;
  }
};

// A cluster and the tasks that arrive at it.
struct synthetic_trace {
  // The parameters of openb_like().
  struct options {
    std::uint64_t seed = 1;            // seed of the random numbers
    std::uint32_t nodes = 1213;        // the size of the original
    std::uint32_t load_percent = 130;  // GPUs that all tasks ask for, in % of the cluster's
  };
  trace_cluster nodes{};  // the cluster
  workload work{};        // the tasks
};

namespace detail {

// The shapes of the nodes of the openb cluster (Alibaba, 2023), and how many nodes have them.
struct weighted_shape {
  std::uint32_t weight;
  node_shape shape;
};
inline constexpr weighted_shape openb_shapes[] = {
    {549, {{96000, 393216}, 8, 0}},   // G2
    {387, {{104000, 524288}, 2, 1}},  // T4
    {17, {{96000, 393216}, 4, 1}},    // T4
    {107, {{16000, 122880}, 2, 2}},   // P100
    {22, {{64000, 262144}, 2, 2}},    // P100
    {3, {{8000, 61440}, 1, 2}},       // P100
    {2, {{8000, 61440}, 2, 2}},       // P100
    {39, {{128000, 786432}, 8, 3}},   // G3
    {28, {{32000, 131072}, 4, 4}},    // V100M16
    {19, {{8000, 32768}, 1, 4}},      // V100M16
    {7, {{64000, 262144}, 8, 4}},     // V100M16
    {1, {{82000, 344064}, 8, 4}},     // V100M16
    {21, {{96000, 786432}, 8, 5}},    // V100M32
    {9, {{48000, 376832}, 4, 5}},     // V100M32
    {2, {{128000, 1048576}, 1, 6}},   // A10
};

// Its kinds of tasks and their counts: 31 tasks or more, or several GPUs each; 93 % of all tasks.
struct weighted_task {
  std::uint32_t weight;
  resources host;
  std::uint32_t gpus;
  milli_gpu gpu_milli;
};
inline constexpr weighted_task openb_tasks[] = {
    {1047, {3152, 5600}, 1, 810},   {857, {11300, 49152}, 1, 1000}, {534, {11400, 48128}, 1, 1000},
    {470, {3152, 5600}, 1, 1000},   {388, {11908, 47104}, 1, 470},  {364, {12500, 57344}, 0, 0},
    {360, {8000, 30517}, 1, 470},   {284, {32000, 49152}, 0, 0},    {255, {18708, 64512}, 1, 1000},
    {237, {11908, 47104}, 1, 650},  {195, {9810, 41560}, 1, 1000},  {163, {8000, 30517}, 0, 0},
    {158, {15700, 58368}, 1, 1000}, {158, {12000, 24576}, 1, 1000}, {153, {11908, 47104}, 1, 1000},
    {120, {15400, 51200}, 0, 0},    {111, {4000, 22888}, 1, 320},   {108, {16000, 32768}, 1, 1000},
    {104, {8000, 16384}, 1, 1000},  {104, {4000, 24576}, 1, 1000},  {99, {12000, 16384}, 1, 1000},
    {95, {16500, 51200}, 0, 0},     {93, {14200, 58368}, 1, 1000},  {84, {4000, 30517}, 1, 230},
    {84, {24200, 93184}, 1, 1000},  {78, {4000, 15258}, 1, 320},    {75, {3152, 5600}, 1, 590},
    {72, {8000, 30517}, 1, 320},    {72, {4152, 10600}, 1, 550},    {65, {11400, 77824}, 1, 1000},
    {55, {8000, 32768}, 1, 1000},   {53, {4000, 15258}, 1, 160},    {51, {6000, 6144}, 1, 460},
    {51, {11900, 77824}, 1, 1000},  {45, {4152, 10600}, 1, 370},    {44, {12000, 15360}, 1, 1000},
    {43, {4000, 30517}, 1, 320},    {41, {8200, 33792}, 1, 1000},   {40, {4000, 31250}, 1, 1000},
    {36, {15200, 80896}, 1, 1000},  {33, {16000, 65536}, 1, 1000},  {31, {4152, 10600}, 1, 810},
    {18, {88000, 327680}, 8, 1000}, {18, {64200, 263168}, 8, 1000}, {9, {32200, 132096}, 4, 1000},
    {7, {16200, 66560}, 2, 1000},   {3, {64000, 262144}, 8, 1000},  {3, {60200, 320512}, 4, 1000},
    {3, {6000, 65536}, 2, 1000},    {3, {32000, 131072}, 4, 1000},  {3, {30200, 160768}, 2, 1000},
    {3, {120000, 737280}, 8, 1000}, {2, {17400, 43008}, 2, 1000},   {2, {120200, 640000}, 8, 1000},
    {1, {14000, 60000}, 2, 1000},
};

// The element at position `at` when each is repeated `weight` times. Requires: at < the sum.
template <class T, std::size_t N>
[[nodiscard]] constexpr const T& at_weight(const T (&elements)[N], std::uint32_t at) noexcept {
  std::size_t i = 0;
  while (at >= elements[i].weight) at -= elements[i++].weight;
  return elements[i];
}

template <class T, std::size_t N>
[[nodiscard]] constexpr std::uint32_t total_weight(const T (&elements)[N]) noexcept {
  std::uint32_t sum = 0;
  for (const T& element : elements) sum += element.weight;
  return sum;
}

// The prefix followed by n with at least `digits` digits.
[[nodiscard]] inline std::string numbered(const char* prefix, std::uint32_t n, std::size_t digits) {
  const std::string number = std::to_string(n);
  return prefix + std::string(digits - (std::min)(digits, number.size()), '0') + number;
}

}  // namespace detail

// Draws a cluster with the node shapes of openb in their proportions and in random order, and tasks
// by the frequency of their kind until they ask for spec.load_percent of the GPUs. Each task
// arrives once. Equal specs give equal traces on every platform. Requires: spec.nodes > 0.
// Model: Alibaba cluster-trace-gpu-v2023, the marginal distributions of its node and task lists.
//        Unlike in the trace, tasks are independent of each other.
// Cost:  O(nodes + tasks).
[[nodiscard]] inline synthetic_trace openb_like(const synthetic_trace::options& spec) {
  APIARY_ASSERT(spec.nodes > 0);
  rng random(spec.seed);
  std::vector<node_shape> shapes;
  shapes.reserve(spec.nodes);
  constexpr std::uint64_t shape_weight = detail::total_weight(detail::openb_shapes);
  for (std::uint64_t i = 0; i < spec.nodes; ++i) {
    const std::uint64_t at = (2 * i + 1) * shape_weight / (2 * std::uint64_t{spec.nodes});
    shapes.push_back(detail::at_weight(detail::openb_shapes, static_cast<std::uint32_t>(at)).shape);
  }
  random.shuffle(shapes);
  synthetic_trace trace;
  for (std::uint32_t i = 0; i < spec.nodes; ++i) {
    trace.nodes.nodes.add(shapes[i]);
    trace.nodes.names.push_back(detail::numbered("node-", i, 4));
  }
  constexpr std::uint32_t task_weight = detail::total_weight(detail::openb_tasks);
  std::uint64_t asked = 0;
  while (asked < trace.nodes.nodes.total_gpus() * 10 * spec.load_percent) {
    const detail::weighted_task& kind =
        detail::at_weight(detail::openb_tasks, random.uniform(task_weight));
    named_task task;
    task.name = detail::numbered("task-", static_cast<std::uint32_t>(trace.work.tasks.size()), 5);
    task.request.cpu_milli = kind.host.cpu_milli;
    task.request.memory_mib = kind.host.memory_mib;
    task.request.gpus = kind.gpus;
    task.request.gpu_milli = kind.gpu_milli;
    asked += task.request.total_gpu_milli();
    trace.work.tasks.push_back(std::move(task));
  }
  trace.work.arrivals = workload::in_order(trace.work.tasks);
  return trace;
}

APIARY_NAMESPACE_END
