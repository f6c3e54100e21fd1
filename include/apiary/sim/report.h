// apiary/sim/report.h - the outcome of a replay as text: curves, decisions, a table.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/placement.h>
#include <apiary/sim/load_curves.h>
#include <apiary/trace/decimal.h>
#include <apiary/trace/workload.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN

// "policy,metric,0,1,...,last": the header line of curve_lines().
[[nodiscard]] inline std::string curve_header(std::uint32_t last = 130) {
  std::string line = "policy,metric";
  for (std::uint32_t k = 0; k <= last; ++k) line += "," + std::to_string(k);
  return line + "\n";
}

// Three lines of CSV, one for each metric. Numbers have their shortest text; NaN is an empty field.
[[nodiscard]] inline std::string curve_lines(std::string_view policy, const load_curves& curves) {
  std::string text;
  const auto line = [&](std::string_view metric, const std::vector<double>& values) {
    text += policy;
    text += ',';
    text += metric;
    for (const double value : values) text += "," + shortest_text(value);
    text += '\n';
  };
  line("allocation", curves.allocation);
  line("fragmentation_amount", curves.fragmentation_amount);
  line("fragmentation_ratio", curves.fragmentation_ratio);
  return text;
}

// The decision for arrival i as "task node devices": the devices are joined by '-', and left out for a
// task without GPUs; "task -" for a task that did not fit.
// Requires: i < work.arrivals.size(), the arrival is one of the tasks, the node is one of `nodes`.
[[nodiscard]] inline std::string decision_line(const trace_cluster& nodes, const workload& work,
                                               std::size_t i,
                                               const std::optional<placement>& answer) {
  APIARY_ASSERT(i < work.arrivals.size() && work.arrivals[i] < work.tasks.size());
  APIARY_ASSERT(!answer || answer->node.value < nodes.names.size());
  std::string line = work.tasks[work.arrivals[i]].name;
  if (!answer) return line + " -";
  line += ' ';
  line += nodes.names[answer->node];
  char before = ' ';
  for (std::uint32_t mask = answer->gpu_mask; mask != 0; mask &= mask - 1) {
    line += before;
    line += std::to_string(std::countr_zero(mask));
    before = '-';
  }
  return line;
}

// The figures of one scheduler, a row of summary_table().
struct replay_summary {
  std::string policy{};               // name of the scheduler
  std::uint64_t placed = 0;           // tasks that were placed
  std::uint64_t failed = 0;           // tasks that were not placed
  double allocation = 0.0;            // % of the GPUs, at the end
  double fragmentation = 0.0;         // % of the GPUs, at the end
  double decisions_per_second = 0.0;  // as measured by the caller
};

// A text table with a title row, a row for each scheduler and aligned columns.
[[nodiscard]] inline std::string summary_table(std::span<const replay_summary> rows) {
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

APIARY_NAMESPACE_END
