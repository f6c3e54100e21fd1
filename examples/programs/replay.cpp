// Which placement score wastes the fewest GPUs? Runs one task trace on a cluster with shared GPUs
// under seven scores, and compares how many GPUs are allocated and how many of the others typical
// tasks cannot use.
// SPDX-License-Identifier: MIT
#include "../text/decimal.h"
#include "load_curves.h"
#include "published_fragmentation.h"
#include "replay_options.h"
#include "replay_output.h"
#include "replay_plot.h"
#include "sweep.h"
#include <apiary/core/status.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/price_score.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace example;

namespace {

absl::StatusOr<synthetic_trace> load(const options& o) {
  if (o.synthetic()) return openb_like({.seed = o.seed.value_or(1)});
  synthetic_trace trace{};
  gpu_model_names models;
  APIARY_ASSIGN_OR_RETURN(line_reader nodes, line_reader::open(o.nodes));
  APIARY_ASSIGN_OR_RETURN(trace.nodes, read_nodes(std::move(nodes), models));
  if (trace.nodes.nodes.total_gpus() == 0) {
    return absl::InvalidArgumentError(o.nodes + ": no node has a GPU");
  }
  if (!o.node_order.empty()) {
    APIARY_ASSIGN_OR_RETURN(line_reader order, line_reader::open(o.node_order));
    APIARY_ASSIGN_OR_RETURN(trace.nodes, read_node_order(std::move(order), trace.nodes));
  }
  APIARY_ASSIGN_OR_RETURN(line_reader pods, line_reader::open(o.pods));
  APIARY_ASSIGN_OR_RETURN(trace.work.tasks, read_tasks(std::move(pods), models));
  if (!o.arrivals.empty()) {
    APIARY_ASSIGN_OR_RETURN(line_reader arrivals, line_reader::open(o.arrivals));
    APIARY_ASSIGN_OR_RETURN(trace.work.arrivals,
                            read_arrivals(std::move(arrivals), trace.work.tasks));
  } else if (o.seed) {
    trace.work.arrivals = workload::in_random_order(trace.work.tasks, *o.seed);
  } else {
    trace.work.arrivals = workload::in_order(trace.work.tasks);
  }
  return trace;
}

// What one policy came to.
struct result {
  replay_summary summary;
  decisions answers;
  load_curves curves;
};

class study {
 public:
  study(const synthetic_trace& trace, const task_mix& mix) : trace_(trace), metric_(mix) {}

  [[nodiscard]] const fragmentation& metric() const noexcept { return metric_; }

  // Sends the trace to the scheduler that make() returns.
  template <class Make>
  absl::StatusOr<result> run(const std::string& policy, const Make& make) const {
    using clock = std::chrono::steady_clock;
    const bool bar = ::isatty(STDERR_FILENO) == 1;
    const std::size_t step = trace_.work.arrivals.size() / 40 + 1;
    const auto progress = [&](std::size_t done, const std::optional<placement>&) {
      if (!bar || done % step != 0) return;
      const std::string filled(done / step, '#');
      std::fprintf(stderr, "\r%-16s [%-40s]", policy.c_str(), filled.c_str());
    };
    result r;
    const clock::time_point begin = clock::now();
    APIARY_ASSIGN_OR_RETURN(auto scheduler, make());
    APIARY_ASSIGN_OR_RETURN(r.answers, replay(scheduler, trace_.work, progress));
    const std::chrono::duration<double> seconds = clock::now() - begin;
    if (bar) std::fputs("\r\033[K", stderr);

    APIARY_ASSIGN_OR_RETURN(const std::vector<load_sample> samples,
                            trace_load(trace_.nodes.nodes, metric_, trace_.work, r.answers));
    const std::uint64_t gpus = trace_.nodes.nodes.total_gpus();
    r.curves = curves_of(samples, gpus);
    const auto placed =
        std::count_if(r.answers.begin(), r.answers.end(),
                      [](const std::optional<placement>& answer) { return answer.has_value(); });
    const double percent = 0.1 / static_cast<double>(gpus);
    r.summary = {.policy = policy,
                 .placed = static_cast<std::size_t>(placed),
                 .failed = r.answers.size() - static_cast<std::size_t>(placed),
                 .allocation = static_cast<double>(samples.back().used) * percent,
                 .fragmentation = samples.back().fragmentation * percent,
                 .decisions_per_second =
                     static_cast<double>(r.answers.size()) / std::max(seconds.count(), 1e-9)};
    return r;
  }

 private:
  const synthetic_trace& trace_;
  fragmentation metric_;
};

// A scheduler by prices that it learns from the tasks that arrive.
class learning_scheduler {
 public:
  static absl::StatusOr<learning_scheduler> create(const node_table& nodes) {
    price_learner learner;
    APIARY_ASSIGN_OR_RETURN(price_score prices, learner.first(nodes));
    APIARY_ASSIGN_OR_RETURN(auto scheduler, by_prices::create(nodes, std::move(prices)));
    return learning_scheduler(std::move(scheduler), std::move(learner));
  }
  absl::StatusOr<task_plan> propose(const task_request& task) {
    if (std::optional<price_score> prices = learner_.arrive(scheduler_.nodes(), task)) {
      APIARY_RETURN_IF_ERROR(scheduler_.set_score(*std::move(prices)));
    }
    return scheduler_.propose(task);
  }
  absl::Status commit(const task_request& task, const task_plan& plan) {
    return scheduler_.commit(task, plan);
  }

 private:
  using by_prices = gpu_sharing_scheduler<price_score>;

  learning_scheduler(by_prices scheduler, price_learner learner)
      : scheduler_(std::move(scheduler)), learner_(std::move(learner)) {}

  by_prices scheduler_;
  price_learner learner_;
};

absl::StatusOr<std::vector<result>> run_policies(const synthetic_trace& trace, const task_mix& mix,
                                                 const options& o) {
  const study s(trace, mix);
  const node_table& nodes = trace.nodes.nodes;
  std::vector<result> results;
  const auto run = [&](const char* name, const auto& make) {
    APIARY_ASSIGN_OR_RETURN(result r, s.run(name, make));
    results.push_back(std::move(r));
    return absl::OkStatus();
  };
  const auto add = [&](const char* name, auto score) {
    if (!o.runs(name)) return absl::OkStatus();
    return run(name, [&] {
      return gpu_sharing_scheduler<decltype(score)>::create(nodes, std::move(score));
    });
  };
  if (o.runs("prices")) {
    const task_mix all_tasks = task_mix::from_history(workload::kinds(trace.work.tasks), 100);
    absl::StatusOr<price_score> prices = price_score::create(nodes, all_tasks);
    if (prices.ok()) {
      APIARY_RETURN_IF_ERROR(add("prices", *std::move(prices)));
    } else if (o.policy == "all") {
      std::fprintf(stderr, "prices is left out: %s\n",
                   std::string(prices.status().message()).c_str());
    } else {
      return prices.status();
    }
  }
  if (o.policy == "learnt_prices") {
    APIARY_RETURN_IF_ERROR(run("learnt_prices", [&] { return learning_scheduler::create(nodes); }));
  }
  if (o.published) {
    APIARY_RETURN_IF_ERROR(add("fgd", published_fragmentation_gradient(mix)));
  } else {
    APIARY_RETURN_IF_ERROR(add("fgd", fragmentation_gradient(s.metric())));
  }
  APIARY_RETURN_IF_ERROR(add("best_fit", best_fit()));
  APIARY_RETURN_IF_ERROR(add("dot_prod", dot_prod()));
  APIARY_RETURN_IF_ERROR(add("gpu_packing", gpu_packing()));
  APIARY_RETURN_IF_ERROR(add("gpu_clustering", gpu_clustering()));
  APIARY_RETURN_IF_ERROR(add("random", random_fit(o.seed.value_or(1))));
  return results;
}

// The curves of all policies as CSV.
std::string csv_of(const std::vector<result>& results) {
  std::string text = load_curves::csv_header();
  for (const result& r : results) text += r.curves.csv(r.summary.policy);
  return text;
}

std::string decision_lines(const synthetic_trace& trace, const decisions& answers) {
  std::string text;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    text += decision_line(trace.nodes, trace.work, i, answers[i]) + "\n";
  }
  return text;
}

absl::Status print_table(const std::vector<result>& results) {
  std::vector<replay_summary> rows;
  for (const result& r : results) rows.push_back(r.summary);
  return print(replay_summary::table(rows));
}

std::string with_extension(const std::string& path, const char* extension) {
  return std::filesystem::path(path).replace_extension(extension).string();
}

constexpr std::uint64_t most_table_bytes = std::uint64_t{256} << 20;  // up to three are alive

// All that can be wrong with the arguments and files is found out here, before the work.
struct task {
  options chosen;
  synthetic_trace trace{};
  task_mix mix{};
  std::vector<std::optional<output_file>> files{};  // by output
  bool draws = false;
};
enum output : std::size_t { curves_file, decisions_file, script_file, plot_file };

absl::StatusOr<task> prepare(const options& chosen) {
  task t{.chosen = chosen};
  options& o = t.chosen;
  APIARY_ASSIGN_OR_RETURN(t.trace, load(o));
  t.mix = task_mix::from_history(workload::kinds(t.trace.work.tasks));
  if (fragmentation::table_bytes(t.mix) > most_table_bytes) {
    return absl::InvalidArgumentError(o.pods + ": too many different tasks, the tables of their " +
                                      "fragmentation would take more than " +
                                      std::to_string(most_table_bytes >> 20) + " MiB");
  }
  t.draws = !o.plot.empty() && is_installed("gnuplot");
  std::string script;
  if (!o.plot.empty() && !t.draws) {
    script = with_extension(o.plot, ".gnuplot");
    if (o.curves.empty()) o.curves = with_extension(o.plot, ".csv");
  }
  APIARY_ASSIGN_OR_RETURN(t.files, open_outputs({o.nodes, o.pods, o.node_order, o.arrivals},
                                                {o.curves, o.decisions, script, o.plot}));
  return t;
}

// Runs the policies, prints the table and leaves the files.
absl::Status perform(task t) {
  APIARY_ASSIGN_OR_RETURN(const std::vector<result> results,
                          run_policies(t.trace, t.mix, t.chosen));
  APIARY_RETURN_IF_ERROR(print_table(results));
  const auto write = [&](output which, const std::string& text) {
    return t.files[which] ? t.files[which]->write(text) : absl::OkStatus();
  };
  APIARY_RETURN_IF_ERROR(write(curves_file, csv_of(results)));
  APIARY_RETURN_IF_ERROR(write(decisions_file, decision_lines(t.trace, results.front().answers)));
  if (!t.chosen.plot.empty()) {
    std::vector<named_curves> curves;
    for (const result& r : results) curves.push_back({r.summary.policy, r.curves});
    if (t.draws) {
      APIARY_ASSIGN_OR_RETURN(const std::string plot, draw(plot_script(curves, "")));
      APIARY_RETURN_IF_ERROR(write(plot_file, plot));
    } else {
      t.files[plot_file].reset();
      APIARY_RETURN_IF_ERROR(write(script_file, plot_script(curves, t.chosen.plot)));
      std::fputs("gnuplot is not installed; the plot's script is kept\n", stderr);
    }
  }
  for (std::optional<output_file>& file : t.files) {
    if (!file) continue;
    APIARY_RETURN_IF_ERROR(file->commit());
    std::fprintf(stderr, "wrote %s\n", file->path().c_str());
  }
  return absl::OkStatus();
}

// In the folder of a program that was called by a path, otherwise in the present one.
std::string beside(const char* program, const char* name) {
  return std::filesystem::path(program).replace_filename(name).string();
}

int fail(const absl::Status& why, int exit_status) {
  std::fprintf(stderr, "replay: %s\n", std::string(why.message()).c_str());
  return exit_status;
}

// Options of a run of a sweep: one policy, and no other output than the row.
absl::StatusOr<options> parse_run(const sweep_run& run) {
  std::vector<const char*> arguments;
  for (const std::string& argument : run.arguments) arguments.push_back(argument.c_str());
  APIARY_ASSIGN_OR_RETURN(options o, parse_options(arguments));
  if (o.help) return absl::InvalidArgumentError("--help is not an option of a run");
  if (o.policy == "all")
    return absl::InvalidArgumentError("a run needs --policy with the name of one policy");
  if (!o.curves.empty() || !o.decisions.empty() || !o.plot.empty())
    return absl::InvalidArgumentError("a run has no --curves, --decisions and --plot");
  return o;
}

// Carries out a sweep; the exit status.
int sweep(const sweep_options& o) {
  const absl::StatusOr<std::vector<sweep_run>> runs = read_sweep(o);
  if (!runs.ok()) return fail(runs.status(), 2);
  for (const sweep_run& run : *runs) {
    const absl::StatusOr<options> parsed = parse_run(run);
    if (!parsed.ok()) return fail(at_line(o, run, parsed.status()), 2);
  }
  const std::string row_header = "policy,placed,failed,allocated_percent,fragmentation_percent";
  const absl::Status rows = check_results(o, row_header);
  if (!rows.ok()) return fail(rows, absl::IsInvalidArgument(rows) ? 2 : 1);
  const absl::Status done =
      run_sweep(o, *runs, row_header, [](const sweep_run& run) -> absl::StatusOr<std::string> {
        APIARY_ASSIGN_OR_RETURN(const options chosen, parse_run(run));
        APIARY_ASSIGN_OR_RETURN(const task t, prepare(chosen));
        APIARY_ASSIGN_OR_RETURN(const std::vector<result> results,
                                run_policies(t.trace, t.mix, t.chosen));
        const replay_summary& s = results.front().summary;
        return s.policy + "," + std::to_string(s.placed) + "," + std::to_string(s.failed) + "," +
               fixed_text(s.allocation, 4) + "," + fixed_text(s.fragmentation, 4);
      });
  return done.ok() ? 0 : fail(done, 1);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_signals();
  const absl::Status streams = check_standard_streams();
  if (!streams.ok()) return fail(streams, 1);
  const absl::StatusOr<sweep_options> many = read_sweep_options({argv + 1, argv + argc});
  if (!many.ok()) return fail(many.status(), 2);
  if (!many->file.empty()) return sweep(*many);
  absl::StatusOr<options> o = parse_options({argv + 1, argv + argc});
  if (!o.ok()) return fail(o.status(), 2);
  if (o->synthetic() && o->plot.empty()) o->plot = beside(argv[0], "replay.svg");
  if (o->help) {
    std::string text = replay_usage;
    const absl::Status printed = print(text.replace(text.find("%s"), 2, sweep_usage));
    return printed.ok() ? 0 : fail(printed, 1);
  }
  absl::StatusOr<task> t = prepare(*o);
  if (!t.ok()) return fail(t.status(), 2);
  const absl::Status done = perform(*std::move(t));
  return done.ok() ? 0 : fail(done, 1);
}
