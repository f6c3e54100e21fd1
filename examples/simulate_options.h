// apiary/examples/simulate_options.h - the command line of simulate.
// SPDX-License-Identifier: MIT
#pragma once

#include "command_line.h"
#include "simulate_policies.h"
#include <apiary/core/status.h>
#include <apiary/model/node_table.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace example {

inline constexpr const char* simulate_usage =
    "usage: simulate [--jobs FILE --format philly|swf --nodes N --gpus-per-node G]\n"
    "                [--policy fifo|backfill|easy|easy_gpus|conservative|qssf|srtf|las|tiresias|\n"
    "                          philly|gandiva|gandiva_fgd|hived|gandiva_hived|all]\n"
    "                [--report FILE.json] [--plot FILE.svg] [--help]\n"
    "\n"
    "Runs a job trace on a GPU cluster, once under each scheduler, and compares how long jobs "
    "wait,\n"
    "for which reasons, and how well the GPUs are used.\n"
    "\n"
    "  --jobs FILE        the job trace\n"
    "  --format WHICH     philly: CSV with columns timestamp, duration, num_gpus, cluster\n"
    "                     swf: the Standard Workload Format; a processor counts as a GPU\n"
    "  --nodes N          number of servers, at most 100000\n"
    "  --gpus-per-node G  GPUs of each server, at most 16\n"
    "  --policy NAME      runs one scheduler instead of all\n"
    "  --report FILE      writes the figures of the table, and more, as JSON\n"
    "  --plot FILE        draws GPU use, completion times, delays and the GPUs of each tenant, as "
    "SVG\n"
    "\n"
    "fifo is first come first served; backfill starts every job that fits; easy and easy_gpus "
    "reserve\n"
    "for the first job, conservative for all. qssf orders jobs by GPU-time. srtf (shortest "
    "remaining),\n"
    "las (least attained service) and tiresias (the same with two thresholds) suspend jobs.\n"
    "gandiva_fgd and gandiva_hived are Gandiva's time sharing over FGD and HiveD. A start costs a "
    "job\n"
    "1 s, a migration 2 s. Tenants of Philly and HiveD get quotas in proportion to their GPU-time. "
    "Jobs\n"
    "that request more GPUs than the cluster has are left out.\n"
    "Without --jobs five traces are generated, for 16 servers of 8 GPUs, with lognormal durations: "
    "the\n"
    "table has means and standard deviations, the report and the plot show the first trace. A plot "
    "is\n"
    "then always drawn: without --plot it is simulate.svg, beside the program or, if the program "
    "was\n"
    "called without a path, in the current directory.\n"
    "Exit status: 0; 1 if output failed; 2 for wrong arguments or input.\n";

struct simulate_options {
  std::string jobs, format;  // empty: not given
  std::string report, plot;
  std::string policy = "all";
  job_cluster cluster{};
  bool help = false;

  [[nodiscard]] bool embedded() const noexcept { return jobs.empty(); }
  [[nodiscard]] bool runs(std::string_view name) const noexcept {
    return policy == "all" || policy == name;
  }
};

// kInvalidArgument that names the flag.
inline absl::StatusOr<simulate_options> parse_simulate_options(
    std::span<const char* const> arguments) {
  constexpr std::array<std::string_view, 7> known{
      "--jobs", "--format", "--nodes", "--gpus-per-node", "--policy", "--report", "--plot"};
  APIARY_ASSIGN_OR_RETURN(const flag_values given, read_flags(arguments, known));
  const auto fault = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  const auto has = [&](std::string_view flag) {
    return std::any_of(given.begin(), given.end(), [&](const auto& g) { return g.first == flag; });
  };
  simulate_options o;
  for (const auto& [flag, value] : given) {
    if (flag == "--help") o.help = true;
    if (flag == "--jobs") o.jobs = value;
    if (flag == "--report") o.report = value;
    if (flag == "--plot") o.plot = value;
    if (flag == "--format") {
      o.format = value;
      if (value != "philly" && value != "swf")
        return fault("--format " + apiary::line_reader::quoted(value) +
                     " is neither philly nor swf");
    }
    if (flag == "--policy") {
      o.policy = value;
      if (value != "all" &&
          std::find(job_policies.begin(), job_policies.end(), value) == job_policies.end()) {
        std::string names;
        for (const std::string_view name : job_policies) names += std::string(name) + ", ";
        return fault("--policy " + apiary::line_reader::quoted(value) + " is none of " + names +
                     "all");
      }
    }
    if (flag == "--nodes" || flag == "--gpus-per-node") {
      const std::uint32_t most = flag == "--nodes" ? 100'000 : apiary::max_gpus_per_node;
      std::uint32_t& to = flag == "--nodes" ? o.cluster.nodes : o.cluster.gpus_per_node;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), to);
      if (error != std::errc() || end != value.data() + value.size() || to == 0 || to > most) {
        return fault(flag + " " + apiary::line_reader::quoted(value) +
                     " is not a whole number from 1 to " + std::to_string(most));
      }
    }
  }
  if (o.help) return o;
  for (const char* flag : {"--format", "--nodes", "--gpus-per-node"}) {
    if (has(flag) != has("--jobs"))
      return fault("--jobs, --format, --nodes and --gpus-per-node need each other");
  }
  return o;
}

}  // namespace example
