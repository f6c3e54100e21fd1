// apiary/examples/programs/load_curves.h - allocation and fragmentation of a cluster over the load that arrived.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/decimal.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/workload.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

using namespace apiary;

// The state of a cluster after one arrival. Amounts are thousandths of a GPU.
struct load_sample {
  std::uint64_t arrived = 0;   // what all tasks so far asked for, placed or not
  std::uint64_t used = 0;      // what placed tasks have
  double fragmentation = 0.0;  // F of the cluster (metric/fragmentation.h)
  friend bool operator==(const load_sample&, const load_sample&) noexcept = default;
};

// Carries out the decisions of a replay on a copy of the cluster and measures the copy after each
// one, so that measuring does not disturb the scheduler or its timing.
// Errors:   kInvalidArgument: an arrival is not one of the tasks, or there are more answers than
//           arrivals. kFailedPrecondition: a decision does not fit on its node.
// Requires: the tasks are valid(); answers[i] belongs to arrival i.
// Cost:     O(1) per arrival, and O(GPUs of a node) per placed task.
// Example:  examples/programs/replay.cpp
[[nodiscard]] inline absl::StatusOr<std::vector<load_sample>> trace_load(node_table nodes,
                                                                         fragmentation metric,
                                                                         const workload& work,
                                                                         const decisions& answers) {
  APIARY_RETURN_IF_ERROR(check_arrivals(work));
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

// Rounds x to two decimals as the published FGD evaluation does: 100 x to the nearest integer,
// halves to even, so 94.745 becomes 94.74. Requires: |x| < 10^13, the default rounding mode.
[[nodiscard]] inline double round2(double x) noexcept {
  APIARY_ASSERT(std::abs(x) < 1e13);
  return std::nearbyint(x * 100.0) / 100.0;
}

// Pairwise summation, whose rounding error grows with log n; below 128 values, eight running sums.
[[nodiscard]] inline double pairwise_sum(std::span<const double> x) noexcept {
  if (x.size() > 128) {
    const std::size_t half = x.size() / 2 / 8 * 8;
    return pairwise_sum(x.first(half)) + pairwise_sum(x.subspan(half));
  }
  std::array<double, 8> r{};
  const std::size_t whole = x.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; ++i) r[i % 8] += x[i];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (const double rest : x.subspan(whole)) sum += rest;
  return sum;
}

[[nodiscard]] inline double mean(std::span<const double> x) noexcept {
  return pairwise_sum(x) / static_cast<double>(x.size());
}

// Curves over the load: value k is the mean over the arrivals at which the load rounded to k %, or
// if there are none, over k-1 and k+1. NaN: these have none either, or the cluster has no GPUs.
struct load_curves {
  std::vector<double> allocation;            // % of the cluster's GPUs, two decimals
  std::vector<double> fragmentation_amount;  // % of the cluster's GPUs, two decimals
  std::vector<double> fragmentation_ratio;   // % of the GPUs that are idle
  // "policy,metric,0,1,...,last": the header line of csv().
  [[nodiscard]] static std::string csv_header(std::uint32_t last = 130) {
    std::string line = "policy,metric";
    for (std::uint32_t k = 0; k <= last; ++k) line += "," + std::to_string(k);
    return line + "\n";
  }
  // Three lines of CSV, one for each metric, with the shortest texts of the numbers; NaN: empty.
  [[nodiscard]] std::string csv(std::string_view policy) const {
    std::string text;
    const auto add = [&](std::string_view metric, const std::vector<double>& values) {
      text += policy;
      text += ',';
      text += metric;
      for (const double value : values) text += "," + shortest_text(value);
      text += '\n';
    };
    add("allocation", allocation);
    add("fragmentation_amount", fragmentation_amount);
    add("fragmentation_ratio", fragmentation_ratio);
    return text;
  }
};

// Computes the curves for loads from 0 to `last` % of `total_gpus` from trace_load(). O(samples).
// Model: the evaluation of "Beware of Fragmentation" (USENIX ATC 2023), with its roundings: amounts
//        to two decimals before the means, loads to a whole per cent, halves to even.
[[nodiscard]] inline load_curves curves_of(std::span<const load_sample> samples,
                                           std::uint64_t total_gpus, std::uint32_t last = 130) {
  if (total_gpus == 0) samples = {};  // there is no load
  struct bucket {
    std::vector<double> allocation, amount, ratio;
    void append(const bucket& b) {
      allocation.insert(allocation.end(), b.allocation.begin(), b.allocation.end());
      amount.insert(amount.end(), b.amount.begin(), b.amount.end());
      ratio.insert(ratio.end(), b.ratio.begin(), b.ratio.end());
    }
  };
  const auto gpus = static_cast<double>(total_gpus);
  std::vector<bucket> buckets(std::size_t{last} + 2);
  for (const load_sample& sample : samples) {
    const double load = std::nearbyint(static_cast<double>(sample.arrived) / gpus / 10);
    if (load >= static_cast<double>(buckets.size())) break;
    bucket& at = buckets[static_cast<std::size_t>(load)];
    const auto idle = static_cast<double>(total_gpus * 1000 - sample.used);
    at.allocation.push_back(round2(static_cast<double>(sample.used) / gpus / 10));
    at.amount.push_back(round2(sample.fragmentation));
    at.ratio.push_back(idle > 0.0 ? round2(100 * sample.fragmentation / idle) : 0.0);
  }
  load_curves curves;
  for (std::size_t k = 0; k <= last; ++k) {
    bucket here = buckets[k];
    if (here.allocation.empty()) {
      if (k > 0) here.append(buckets[k - 1]);
      here.append(buckets[k + 1]);
    }
    if (here.allocation.empty()) {
      constexpr double none = std::numeric_limits<double>::quiet_NaN();
      curves.allocation.push_back(none);
      curves.fragmentation_amount.push_back(none);
      curves.fragmentation_ratio.push_back(none);
      continue;
    }
    curves.allocation.push_back(round2(mean(here.allocation)));
    curves.fragmentation_amount.push_back(round2(100 * mean(here.amount) / 1000 / gpus));
    curves.fragmentation_ratio.push_back(mean(here.ratio));
  }
  return curves;
}

// The figures of one scheduler, a row of table().
struct replay_summary {
  std::string policy{};               // name of the scheduler
  std::uint64_t placed = 0;           // tasks that were placed
  std::uint64_t failed = 0;           // tasks that were not placed
  double allocation = 0.0;            // % of the GPUs, at the end
  double fragmentation = 0.0;         // % of the GPUs, at the end
  double decisions_per_second = 0.0;  // as measured by the caller
  // A text table with a title row and aligned columns.
  [[nodiscard]] static std::string table(std::span<const replay_summary> rows) {
    using line = std::array<std::string, 6>;
    std::vector<line> lines{
        {"policy", "placed", "failed", "GPUs allocated", "fragmentation", "decisions/s"}};
    for (const replay_summary& r : rows) {
      lines.push_back({r.policy, std::to_string(r.placed), std::to_string(r.failed),
                       fixed_text(r.allocation, 2) + " %", fixed_text(r.fragmentation, 2) + " %",
                       fixed_text(r.decisions_per_second, 0)});
    }
    std::array<std::size_t, 6> width{};
    for (const line& l : lines) {
      for (std::size_t c = 0; c < l.size(); ++c) width[c] = (std::max)(width[c], l[c].size());
    }
    std::string text;
    for (const line& l : lines) {
      text += l[0] + std::string(width[0] - l[0].size(), ' ');
      for (std::size_t c = 1; c < l.size(); ++c) {
        text += "  " + std::string(width[c] - l[c].size(), ' ') + l[c];
      }
      text += '\n';
    }
    return text;
  }
};

}  // namespace example
