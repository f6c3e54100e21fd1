// apiary/sim/load_trace.h - GPUs in use and fragmentation of a cluster after each arrival.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/metric/cluster_fragmentation.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/workload.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The state of a cluster after one arrival. Amounts are thousandths of a GPU.
struct load_sample {
  std::uint64_t arrived = 0;   // what all tasks so far asked for, placed or not
  std::uint64_t used = 0;      // what placed tasks have
  double fragmentation = 0.0;  // F of the cluster (metric/fragmentation.h)

  friend bool operator==(const load_sample&, const load_sample&) noexcept = default;
};

// Carries out the decisions of a replay on a copy of the cluster and measures the copy after each one,
// so that measuring does not disturb the scheduler or its timing.
//
// Errors:   kInvalidArgument: an arrival is not one of the tasks, or there are more answers than
//           arrivals. kFailedPrecondition: a decision cannot be carried out, since the node does not
//           exist or a device has not enough left.
// Requires: the tasks are valid(); answers[i] belongs to arrival i.
// Cost:     O(1) per arrival, and O(GPUs of a node) per placed task.
// Example:  examples/replay.cpp
[[nodiscard]] inline absl::StatusOr<std::vector<load_sample>> trace_load(node_table nodes,
                                                                         fragmentation metric,
                                                                         const workload& work,
                                                                         const decisions& answers) {
  APIARY_RETURN_IF_ERROR(detail::check_arrivals(work));
  if (answers.size() > work.arrivals.size()) {
    return absl::InvalidArgumentError(std::to_string(answers.size()) + " answers for " +
                                      std::to_string(work.arrivals.size()) + " arrivals");
  }
  cluster_fragmentation fragmented(std::move(metric), nodes);
  std::vector<load_sample> samples;
  samples.reserve(answers.size());
  load_sample now;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const named_task& task = work.tasks[work.arrivals[i]];
    now.arrived += task.request.total_gpu_milli();
    if (const std::optional<placement>& where = answers[i]) {
      if (!nodes.can_place(task.request, *where)) {
        return absl::FailedPreconditionError(
            "arrival " + std::to_string(i + 1) + ", task " + task.name + ": node " +
            std::to_string(where->node.value) + " lacks the resources of the decision");
      }
      nodes.place(task.request, *where);
      fragmented.update(nodes, where->node);
      now.used += task.request.total_gpu_milli();
    }
    now.fragmentation = fragmented.total();
    samples.push_back(now);
  }
  return samples;
}

APIARY_NAMESPACE_END
