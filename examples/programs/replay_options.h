// apiary/examples/programs/replay_options.h - the command line of replay.
// SPDX-License-Identifier: MIT
#pragma once

#include "command_line.h"
#include <apiary/core/status.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace example {

inline constexpr const char* replay_usage =
    "usage: replay [--nodes FILE --pods FILE [--node-order FILE] [--arrivals FILE]]\n"
    "              [--policy prices|learnt_prices|fgd|best_fit|dot_prod|gpu_packing|\n"
    "                        gpu_clustering|random|all]\n"
    "              [--rounding exact|published] [--seed N]\n"
    "              [--curves FILE] [--decisions FILE] [--plot FILE.svg] [--help]\n"
    "              [--sweep FILE --results FILE.csv [--index N | -j N]]\n"
    "\n"
    "Places the tasks of a trace on a GPU cluster in order of arrival, once for each policy, and\n"
    "compares how many GPUs are allocated at the end and how fragmented the others are.\n"
    "\n"
    "  --nodes FILE       node list: columns sn, cpu_milli, memory_mib, gpu, model\n"
    "  --pods FILE        task list: columns name, cpu_milli, memory_mib, num_gpu, gpu_milli\n"
    "                     and optionally gpu_spec\n"
    "  --node-order FILE  node names, one on each line; among equally good nodes the first wins\n"
    "  --arrivals FILE    task names in order of arrival, one on each line; names may repeat\n"
    "  --policy NAME      runs one policy instead of all. learnt_prices is not one of all: it "
    "makes\n"
    "                     prices many times, from the tasks that have arrived\n"
    "  --rounding WHICH   published: fgd rounds as in the published simulator (default: exact)\n"
    "  --seed N           seed of the synthetic trace, of the order of arrival without "
    "--arrivals,\n"
    "                     and of the policy random\n"
    "  --curves FILE      writes the curves as CSV\n"
    "  --decisions FILE   writes a line for each arrival: task, node, GPUs (needs --policy NAME)\n"
    "  --plot FILE.svg    draws the curves with gnuplot; if gnuplot is not installed, writes\n"
    "                     FILE.gnuplot, which draws them, and without --curves FILE.csv\n"
    "\n"
    "Many runs:\n"
    "%s"
    "\n"
    "Without --nodes and --pods the trace is synthetic, and a plot is always drawn: without "
    "--plot\n"
    "it is replay.svg, beside the program or, if the program was called without a path, in the\n"
    "current directory.\n"
    "Exit status: 0, 1 when output failed, 2 for bad arguments or input.\n";

inline constexpr std::array<std::string_view, 8> policies{
    "prices",      "learnt_prices",  "fgd",   "best_fit", "dot_prod",
    "gpu_packing", "gpu_clustering", "random"};

struct options {
  std::string nodes, pods, node_order, arrivals;  // inputs; empty: not given
  std::string curves, decisions, plot;            // outputs; empty: not given
  std::string policy = "all";
  bool published = false;
  std::optional<std::uint64_t> seed{};
  bool help = false;

  [[nodiscard]] bool synthetic() const noexcept { return nodes.empty(); }
  [[nodiscard]] bool runs(std::string_view name) const noexcept {
    return policy == "all" || policy == name;
  }
};

namespace detail {

inline absl::Status fault(const std::string& what) { return absl::InvalidArgumentError(what); }

// What does not suit each other.
inline absl::Status check(const options& o) {
  if (o.nodes.empty() != o.pods.empty()) return fault("--nodes and --pods need each other");
  if (o.synthetic() && !(o.node_order.empty() && o.arrivals.empty())) {
    return fault("--node-order and --arrivals need --nodes and --pods");
  }
  if (!o.decisions.empty() && o.policy == "all") {
    return fault("--decisions needs --policy with the name of one policy");
  }
  const std::string extension = std::filesystem::path(o.plot).extension().string();
  if (!extension.empty() && extension != ".svg") {
    return fault("--plot " + apiary::line_reader::quoted(o.plot) +
                 ": plots are SVG, so the name must end with .svg");
  }
  return absl::OkStatus();
}

inline absl::Status set_choice(options& o, std::string_view flag, const std::string& value) {
  if (flag == "--policy") {
    o.policy = value;
    if (value == "all" || std::find(policies.begin(), policies.end(), value) != policies.end()) {
      return absl::OkStatus();
    }
    return fault("--policy " + apiary::line_reader::quoted(value) +
                 " is none of prices, learnt_prices, fgd, best_fit, " +
                 "dot_prod, gpu_packing, gpu_clustering, random, all");
  }
  if (flag == "--rounding") {
    o.published = value == "published";
    if (o.published || value == "exact") return absl::OkStatus();
    return fault("--rounding " + apiary::line_reader::quoted(value) +
                 " is neither exact nor published");
  }
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seed);
  if (error != std::errc() || end != value.data() + value.size()) {
    return fault("--seed " + apiary::line_reader::quoted(value) +
                 " is not a whole number below 2^64");
  }
  o.seed = seed;
  return absl::OkStatus();
}

}  // namespace detail

// kInvalidArgument that names the flag.
inline absl::StatusOr<options> parse_options(std::span<const char* const> arguments) {
  options o;
  const std::array<std::pair<std::string_view, std::string*>, 7> files{
      {{"--nodes", &o.nodes},
       {"--pods", &o.pods},
       {"--node-order", &o.node_order},
       {"--arrivals", &o.arrivals},
       {"--curves", &o.curves},
       {"--decisions", &o.decisions},
       {"--plot", &o.plot}}};
  std::vector<std::string_view> known{"--policy", "--rounding", "--seed"};
  for (const auto& [flag, to] : files) known.push_back(flag);
  APIARY_ASSIGN_OR_RETURN(const flag_values given, read_flags(arguments, known));
  for (const auto& one : given) {
    const auto* const file = std::find_if(files.begin(), files.end(),
                                          [&](const auto& f) { return f.first == one.first; });
    if (one.first == "--help") {
      o.help = true;
    } else if (file != files.end()) {
      *file->second = one.second;
    } else {
      APIARY_RETURN_IF_ERROR(detail::set_choice(o, one.first, one.second));
    }
  }
  if (!o.help) APIARY_RETURN_IF_ERROR(detail::check(o));
  return o;
}

}  // namespace example
