// apiary/examples/programs/simulate_options.h - the command line of simulate.
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
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace example {

inline constexpr const char* simulate_usage =
    "usage: simulate [--jobs FILE --format philly|swf --nodes N --gpus-per-node G]\n"
    "                [--load day|busy|wide] [--seed N]\n"
    "                [--policy fifo|backfill|easy|easy_gpus|conservative|qssf|srtf|las|tiresias|\n"
    "                          bounded|bounded_srtf|philly|gandiva|gandiva_fgd|hived|\n"
    "                          gandiva_hived|all|gang|gang_backfill[,...]]\n"
    "                [--start-cost S] [--migration-cost S] [--quantum S] [--depth N]\n"
    "                [--mtbf S] [--repair S] [--checkpoint S] [--failures T,P,U] [--retries N]\n"
    "                [--gandiva RULE] [--speeds NVLINK,NODE,RACK,ACROSS] [--quotas A,B,...]\n"
    "                [--estimate-error N] [--cpus N] [--memory-gib N] [--models NAME:SERVERS,...]\n"
    "                [--report FILE.json] [--plot FILE.svg] [--csv FILE] [--events FILE] [--help]\n"
    "                [-j N] [--sweep FILE --results FILE.csv [--index N | -j N]]\n"
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
    "  --load NAME        without --jobs: 700 jobs of a day, 1000 (busy), or 500 wider ones "
    "(wide)\n"
    "  --seed N           without --jobs: only the trace with this seed, at most 4294967295; also\n"
    "                     the seed of the failures and of --estimate-error\n"
    "  --policy A,B,...   runs these schedulers instead of all, in this order\n"
    "  --start-cost S     seconds from a start until a job makes progress (default: 1)\n"
    "  --migration-cost S the same after a migration (default: 2)\n"
    "  --quantum S        seconds between two choices of las, tiresias, bounded and bounded_srtf\n"
    "                     (default: 600), and of a time slice of Gandiva (default: 60)\n"
    "  --depth N          conservative: at most so many jobs have reservations (default: all)\n"
    "  --mtbf S           mean seconds between two failures of a server (default: none fails)\n"
    "  --repair S         seconds until a failed server is repaired (default: 3600)\n"
    "  --checkpoint S     a job saves its progress after so many seconds of work, and loses the "
    "work\n"
    "                     since then if its server or the job fails (default: 0,\n"
    "                     it loses all)\n"
    "  --failures T,P,U   per cent of the runs of a job that fail, by the classes of Philly: "
    "transient\n"
    "                     (the job is retried), permanent (it is not), unknown (up to --retries "
    "times)\n"
    "  --retries N        how often a job is retried after unknown failures, at most 100 "
    "(default: 3)\n"
    "  --estimate-error N the estimate of each job is drawn between its duration and N times its\n"
    "                     duration, at most 100 (default: exact, or those of an SWF trace)\n"
    "  --gandiva RULE     published (default): jobs share time, in slices of a minute, and may "
    "wait\n"
    "                     without bound; bounded: the library's defaults, for gandiva_fgd and\n"
    "                     gandiva_hived\n"
    "  --speeds A,B,C,D   speed of a job of several GPUs, in per cent: A if all are of one group "
    "of\n"
    "                     four GPUs with NVLink, B on one server, C in one rack, D across racks\n"
    "  --quotas A,B,...   GPUs of each tenant under philly, hived and gandiva_hived, in\n"
    "                     order of the tenants' names, compared as text: tenant-0 to tenant-3, or\n"
    "                     with --jobs the clusters or users of the file\n"
    "  --cpus N           cores of each server (default: without limit)\n"
    "  --memory-gib N     memory of each server (default: without limit)\n"
    "  --models A:8,B:8   how many servers have GPUs of each model; the other servers have no "
    "model\n"
    "                     These three are for the columns cpus_per_gpu, memory_gib_per_gpu and\n"
    "                     gpu_model of a Philly trace. Without --policy, the schedulers run that\n"
    "                     know them: all but Philly, HiveD and Gandiva, and gang and "
    "gang_backfill\n"
    "  --report FILE      writes the figures of the table, and more, as JSON\n"
    "  --csv FILE         writes a row for each job of each run: times in ms, -1 for never\n"
    "  --events FILE      writes each event of the first trace with the place of the job, and "
    "whether\n"
    "                     a job that failed is retried (needs --policy with one name)\n"
    "  --plot FILE        draws GPU use, completion times, delays and the GPUs of each tenant, as "
    "SVG\n"
    "\n"
    "  -j N               runs so many schedulers and traces at once, at most 256 (default: one "
    "for "
    "each\n"
    "                     core); what is printed and written is the same\n"
    "\n"
    "Seconds are whole numbers up to 100000000.\n"
    "\n"
    "Many runs:\n"
    "%s"
    "\n"
    "fifo is first come first served; backfill starts every job that fits; easy and easy_gpus "
    "reserve\n"
    "for the first job, conservative for all. qssf orders jobs by GPU-time. srtf (shortest "
    "remaining),\n"
    "las (least attained service) and tiresias (the same with two thresholds) suspend jobs.\n"
    "bounded and bounded_srtf are las and srtf with places, migration and a bound on each wait.\n"
    "gang and gang_backfill (not among all) are the gang scheduler, without and with "
    "backfilling.\n"
    "gandiva_fgd and gandiva_hived are Gandiva's time sharing over FGD and HiveD. Tenants of\n"
    "Philly and HiveD get quotas in proportion to their GPU-time, if there is no --quotas. Jobs\n"
    "that do not fit even into the idle cluster, by GPUs, CPU, memory or GPU model, are left out, "
    "and\n"
    "so are jobs without GPUs or without duration; a message says how many of each.\n"
    "Without --jobs five traces are generated, for 16 servers of 8 GPUs, with lognormal durations: "
    "the\n"
    "table has means and standard deviations, the report and the plot show the first trace. A plot "
    "is\n"
    "then always drawn: without --plot it is simulate.svg, beside the program or, if the program "
    "was\n"
    "called without a path, in the current directory.\n"
    "Exit status: 0; 1 if output or a run of a sweep failed; 2 for wrong arguments or input.\n";

// "a, b and c".
inline std::string in_words(std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

struct simulate_options {
  std::string jobs, format;  // empty: not given
  std::string report, plot, csv, events;
  std::string load = "day";
  std::optional<std::uint64_t> seed{};
  run_settings settings{};
  // Names of job_policies and more_policies, each once.
  std::vector<std::string_view> policies{job_policies.begin(), job_policies.end()};
  bool chosen = false;  // whether --policy was given
  job_cluster cluster{};
  bool help = false;

  [[nodiscard]] bool embedded() const noexcept { return jobs.empty(); }
  // Limits the policies to those that know CPU, memory and GPU models, which are needed. If --policy has
  // chosen another one: kInvalidArgument, which says that `what` needs them.
  [[nodiscard]] absl::Status need_demands(const std::string& what) {
    std::vector<std::string_view> known(job_policies.begin(), job_policies.end());
    known.insert(known.end(), more_policies.begin(), more_policies.end());
    std::erase_if(known, [](std::string_view p) { return !knows_demands(p); });
    if (!chosen) policies = known;
    const auto not_known = std::find_if_not(policies.begin(), policies.end(), knows_demands);
    if (not_known == policies.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(what + ", but " + std::string(*not_known) +
                                      " knows only GPUs; " + in_words(known) +
                                      " know CPU, memory and GPU models");
  }
};

namespace detail {

inline absl::StatusOr<std::uint32_t> whole_number(const std::string& flag, std::string_view value,
                                                  std::uint32_t least, std::uint32_t most) {
  std::uint32_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error == std::errc() && end == value.data() + value.size() && n >= least && n <= most)
    return n;
  return absl::InvalidArgumentError(flag + " " + apiary::line_reader::quoted(value) +
                                    " is not a whole number from " + std::to_string(least) +
                                    " to " + std::to_string(most));
}
// Numbers with commas between them.
inline absl::StatusOr<std::vector<std::uint32_t>> whole_numbers(const std::string& flag,
                                                                std::string_view value,
                                                                std::uint32_t least,
                                                                std::uint32_t most) {
  std::vector<std::uint32_t> numbers;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    APIARY_ASSIGN_OR_RETURN(const std::uint32_t n,
                            whole_number(flag, value.substr(at, end - at), least, most));
    numbers.push_back(n);
    at = end + 1;
  }
  return numbers;
}

// Names with numbers, as a:8,b:8.
inline absl::StatusOr<std::vector<std::pair<std::string, std::uint32_t>>> named_numbers(
    const std::string& flag, std::string_view value) {
  std::vector<std::pair<std::string, std::uint32_t>> named;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    const std::string_view one = value.substr(at, end - at);
    const std::size_t colon = one.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return absl::InvalidArgumentError(flag + " " + apiary::line_reader::quoted(one) +
                                        " is not a name, a colon and a number");
    }
    APIARY_ASSIGN_OR_RETURN(const std::uint32_t n,
                            whole_number(flag, one.substr(colon + 1), 1, 100'000));
    named.emplace_back(one.substr(0, colon), n);
    at = end + 1;
  }
  return named;
}

// The policies that a list of names with commas between them chooses; `all` stands for job_policies.
inline absl::StatusOr<std::vector<std::string_view>> policies_of(std::string_view value) {
  std::vector<std::string_view> known(job_policies.begin(), job_policies.end());
  known.insert(known.end(), more_policies.begin(), more_policies.end());
  std::vector<std::string_view> chosen;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    const std::string_view name = value.substr(at, end - at);
    const auto found = std::find(known.begin(), known.end(), name);
    if (name == "all") {
      chosen.insert(chosen.end(), job_policies.begin(), job_policies.end());
    } else if (found != known.end()) {
      chosen.push_back(*found);
    } else {
      std::string names;
      for (const std::string_view one : known) names += std::string(one) + ", ";
      return absl::InvalidArgumentError("--policy " + apiary::line_reader::quoted(name) +
                                        " is none of " + names + "all");
    }
    at = end + 1;
  }
  for (auto at = chosen.begin(); at != chosen.end(); ++at) {
    if (std::find(chosen.begin(), at, *at) != at)
      return absl::InvalidArgumentError("--policy names " + std::string(*at) + " twice");
  }
  return chosen;
}

}  // namespace detail

// kInvalidArgument that names the flag.
inline absl::StatusOr<simulate_options> parse_simulate_options(
    std::span<const char* const> arguments) {
  constexpr std::array<std::string_view, 27> known{
      "--jobs",           "--format",        "--nodes",      "--gpus-per-node", "--policy",
      "--report",         "--plot",          "--csv",        "--load",          "--seed",
      "--quantum",        "--mtbf",          "--start-cost", "--repair",        "--checkpoint",
      "--migration-cost", "--speeds",        "--quotas",     "--events",        "--failures",
      "--retries",        "--gandiva",       "--cpus",       "--memory-gib",    "--models",
      "--depth",          "--estimate-error"};
  APIARY_ASSIGN_OR_RETURN(const flag_values given, read_flags(arguments, known));
  const auto fault = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  const auto has = [&](std::string_view flag) {
    return std::any_of(given.begin(), given.end(), [&](const auto& g) { return g.first == flag; });
  };
  simulate_options o;
  run_settings& set = o.settings;
  const std::array<std::pair<std::string_view, apiary::time_ms*>, 6> times{
      {{"--start-cost", &set.start_cost},
       {"--migration-cost", &set.migration_cost},
       {"--quantum", &set.quantum},
       {"--mtbf", &set.mtbf},
       {"--repair", &set.repair},
       {"--checkpoint", &set.checkpoint}}};
  for (const auto& [flag, value] : given) {
    for (const auto& [name, to] : times) {
      if (flag != name) continue;
      const std::uint32_t least =
          flag == "--quantum" || flag == "--mtbf" || flag == "--repair" ? 1 : 0;
      APIARY_ASSIGN_OR_RETURN(const std::uint32_t seconds,
                              detail::whole_number(flag, value, least, 100'000'000));
      *to = apiary::time_ms{seconds} * 1000;
    }
    if (flag == "--seed") {
      APIARY_ASSIGN_OR_RETURN(o.seed, detail::whole_number(flag, value, 0, 0xffffffff));
      set.seed = *o.seed;
    }
    if (flag == "--load") {
      o.load = value;
      if (std::find(job_loads.begin(), job_loads.end(), value) == job_loads.end())
        return fault("--load " + apiary::line_reader::quoted(value) +
                     " is none of day, busy, wide");
    }
    if (flag == "--csv") o.csv = value;
    if (flag == "--events") o.events = value;
    if (flag == "--speeds") {
      APIARY_ASSIGN_OR_RETURN(const auto speeds, detail::whole_numbers(flag, value, 1, 100));
      if (speeds.size() != 4)
        return fault("--speeds has " + std::to_string(speeds.size()) + " numbers, not 4");
      set.speeds = {10 * speeds[0], 10 * speeds[1], 10 * speeds[2], 10 * speeds[3]};
    }
    if (flag == "--quotas") {
      APIARY_ASSIGN_OR_RETURN(set.quotas, detail::whole_numbers(flag, value, 0, 1'600'000));
    }
    if (flag == "--failures") {
      APIARY_ASSIGN_OR_RETURN(set.failures, detail::whole_numbers(flag, value, 0, 100));
      if (set.failures.size() != 3)
        return fault("--failures has " + std::to_string(set.failures.size()) + " numbers, not 3");
      const std::uint32_t sum = set.failures[0] + set.failures[1] + set.failures[2];
      if (sum > 100)
        return fault("--failures adds up to " + std::to_string(sum) + " %, which is above 100 %");
    }
    if (flag == "--depth") {
      APIARY_ASSIGN_OR_RETURN(set.depth, detail::whole_number(flag, value, 1, 1'000'000));
    }
    if (flag == "--estimate-error") {
      APIARY_ASSIGN_OR_RETURN(set.estimate_error, detail::whole_number(flag, value, 1, 100));
    }
    if (flag == "--retries") {
      APIARY_ASSIGN_OR_RETURN(set.retries, detail::whole_number(flag, value, 0, 100));
    }
    if (flag == "--cpus" || flag == "--memory-gib") {
      APIARY_ASSIGN_OR_RETURN(const std::uint32_t n,
                              detail::whole_number(flag, value, 0, 1'000'000));
      (flag == "--cpus" ? o.cluster.host.cpu_milli : o.cluster.host.memory_mib) =
          n * (flag == "--cpus" ? 1000U : 1024U);
    }
    if (flag == "--models") {
      APIARY_ASSIGN_OR_RETURN(o.cluster.models, detail::named_numbers(flag, value));
    }
    if (flag == "--gandiva") {
      set.bounded_gandiva = value == "bounded";
      if (!set.bounded_gandiva && value != "published")
        return fault("--gandiva " + apiary::line_reader::quoted(value) +
                     " is neither published nor bounded");
    }
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
      APIARY_ASSIGN_OR_RETURN(o.policies, detail::policies_of(value));
      o.chosen = true;
    }
    if (flag == "--nodes" || flag == "--gpus-per-node") {
      const std::uint32_t most = flag == "--nodes" ? 100'000 : apiary::max_gpus_per_node;
      std::uint32_t& to = flag == "--nodes" ? o.cluster.nodes : o.cluster.gpus_per_node;
      APIARY_ASSIGN_OR_RETURN(to, detail::whole_number(flag, value, 1, most));
    }
  }
  if (o.help) return o;
  for (const char* flag : {"--format", "--nodes", "--gpus-per-node"}) {
    if (has(flag) != has("--jobs"))
      return fault("--jobs, --format, --nodes and --gpus-per-node need each other");
  }
  if (has("--events") && o.policies.size() != 1)
    return fault("--events needs --policy with the name of one policy");
  for (const char* flag : {"--cpus", "--memory-gib", "--models"}) {
    if (has(flag)) APIARY_RETURN_IF_ERROR(o.need_demands(std::string(flag) + " is given"));
  }
  std::uint64_t of_models = 0;
  for (const auto& model : o.cluster.models) of_models += model.second;
  if (of_models > o.cluster.nodes)
    return fault("--models adds up to " + std::to_string(of_models) + " servers; there are " +
                 std::to_string(o.cluster.nodes));
  if (has("--load") && has("--jobs"))
    return fault("--load is for generated traces, without --jobs");
  return o;
}

}  // namespace example
