// Which scheduler suits my jobs? Runs one job trace, or five generated ones, on a GPU cluster under
// sixteen schedulers of the library, and compares how long jobs wait, for which reasons, and how well
// the GPUs are used.
// SPDX-License-Identifier: MIT
#include "../text/decimal.h"
#include "replay_output.h"
#include "simulate_options.h"
#include "simulate_plot.h"
#include "simulate_policies.h"
#include "sweep.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/detail/job_division.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/model/job.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/job_readers.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace example;

namespace {

absl::StatusOr<job_list> load(const simulate_options& o) {
  APIARY_ASSIGN_OR_RETURN(line_reader lines, line_reader::open(o.jobs));
  if (o.format == "philly") return read_philly(std::move(lines));
  return read_swf(std::move(lines));
}

// Jobs of the file that do not run.
struct left_out_jobs {
  std::uint64_t empty = 0;      // without GPUs or without duration
  std::uint64_t too_large = 0;  // with more GPUs than the cluster has
  std::uint32_t largest = 0;    // the most GPUs of these
  std::uint64_t never = 0;      // others that do not fit even into the idle cluster
  std::string first{};          // what the first of these asks for

  [[nodiscard]] std::uint64_t all() const noexcept { return empty + too_large + never; }
};

// Why jobs are left out, each reason with its count.
std::vector<std::string> reasons_of(const left_out_jobs& jobs, const simulate_options& o) {
  std::vector<std::string> reasons;
  const auto add = [&](std::uint64_t n, const std::string& why) {
    if (n == 0) return;
    reasons.push_back(std::to_string(n) + (n == 1 ? " job is" : " jobs are") + " left out: " + why);
  };
  add(jobs.empty, "no GPUs or no duration");
  add(jobs.too_large, "more GPUs (up to " + std::to_string(jobs.largest) +
                          ") than the cluster has (" + std::to_string(o.cluster.gpus()) + ")");
  add(jobs.never, "more CPU, memory or GPUs of a model than the servers have; the first asks for " +
                      jobs.first);
  return reasons;
}

// Leaves out jobs that do not fit even into the idle cluster, by their CPU, memory or GPU models.
// Requires: no job has more GPUs than the cluster.
absl::Status leave_out_never(const simulate_options& o, job_list& list, left_out_jobs& left_out) {
  if (o.cluster.is_plain() && std::all_of(list.jobs.begin(), list.jobs.end(), needs_only_gpus))
    return absl::OkStatus();
  const gang_cluster cluster = gang_cluster_of(o.cluster);
  const std::vector<job_demand> demands = number_demands(list);
  APIARY_ASSIGN_OR_RETURN(apiary::gang_placer placer,
                          apiary::gang_placer::create(cluster, {.demands = demands}));
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> fit;  // by GPUs and demand
  std::erase_if(list.jobs, [&](const timed_job& j) {
    const auto [at, is_new] = fit.try_emplace({j.request.gpus, j.request.demand}, false);
    if (is_new) at->second = placer.check(j.request).ok();
    if (at->second) return false;
    const job_demand& d = demands[j.request.demand];
    if (left_out.never++ == 0)
      left_out.first = apiary::detail::text_of_demand(j.request.gpus, d.per_gpu, d.models);
    return true;
  });
  return absl::OkStatus();
}

// Removes jobs that the cluster cannot hold, and policies that do not know what the jobs need. An error
// if no job is left, if the times overflow, or if --policy has chosen such a policy.
absl::Status fit(simulate_options& o, job_list& list, left_out_jobs& left_out) {
  constexpr time_ms longest = time_ms{1} << 43;
  constexpr time_ms all = time_ms{1} << 52;
  const auto seconds = [](time_ms t) { return std::to_string(t / 1000) + " s"; };
  left_out = {.empty = list.left_out};
  std::erase_if(list.jobs, [&](const timed_job& j) {
    if (j.request.gpus <= o.cluster.gpus()) return false;
    ++left_out.too_large;
    left_out.largest = std::max(left_out.largest, j.request.gpus);
    return true;
  });
  if (!std::all_of(list.jobs.begin(), list.jobs.end(), needs_only_gpus))
    APIARY_RETURN_IF_ERROR(o.need_demands(o.jobs + ": a job needs CPU, memory or a GPU model"));
  APIARY_RETURN_IF_ERROR(leave_out_never(o, list, left_out));
  if (list.jobs.empty()) {
    std::string why = o.jobs + ": no job can run";
    for (const std::string& reason : reasons_of(left_out, o)) why += "; " + reason;
    return absl::InvalidArgumentError(why);
  }
  job_list::number_by_arrival(list.jobs);
  time_ms end = list.jobs.back().arrival;
  for (timed_job& j : list.jobs) {
    if (j.duration >= longest)
      return absl::InvalidArgumentError(o.jobs + ": a job takes " + seconds(j.duration) +
                                        ", not less than " + seconds(longest));
    if ((end += j.duration) >= all)
      return absl::InvalidArgumentError(o.jobs + ": the last arrival and the durations add up to " +
                                        seconds(end) + " or more; the limit is " + seconds(all));
    // `srtf` refuses a GPU-time of 2^62 and more; a start adds its cost.
    j.request.estimate = std::min(j.request.estimate, (time_ms{1} << 61) / j.request.gpus);
  }
  return absl::OkStatus();
}

// What is drawn on a terminal while policies run: a bar, per cent and the time left.
class progress_bar {
 public:
  progress_bar(std::string name, std::size_t jobs)
      : name_(std::move(name)), jobs_(jobs), shown_(::isatty(STDERR_FILENO) == 1) {}
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;
  ~progress_bar() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void operator()(std::size_t done) const {
    if (!shown_ || done == 0 || done % (jobs_ / 100 + 1) != 0) return;
    const std::chrono::duration<double> spent = clock::now() - begin_;
    const double left =
        spent.count() * static_cast<double>(jobs_ - done) / static_cast<double>(done);
    const std::string filled(done * 40 / jobs_, '#');
    std::fprintf(stderr, "\r%-14s [%-40s] %3zu %%, %.0f s left \033[K", name_.c_str(),
                 filled.c_str(), 100 * done / jobs_, left);
  }

 private:
  using clock = std::chrono::steady_clock;
  std::string name_;
  std::size_t jobs_;
  bool shown_;
  clock::time_point begin_ = clock::now();
};

double minutes(double ticks) { return ticks / 60'000; }

// A policy on one list, or on several.
using list_runs = std::vector<policy_run>;

template <class Figure>
figure_spread spread_of(const list_runs& runs, const Figure& figure) {
  const auto n = static_cast<double>(runs.size());
  figure_spread s;
  for (const policy_run& r : runs) s.mean += static_cast<double>(figure(r.metrics)) / n;
  double squares = 0.0;
  for (const policy_run& r : runs) {
    const double away = static_cast<double>(figure(r.metrics)) - s.mean;
    squares += away * away;
  }
  if (runs.size() > 1) s.deviation = std::sqrt(squares / (n - 1));
  return s;
}

// What the picture shows of several lists.
std::vector<spread_row> spreads_of(const std::vector<list_runs>& runs) {
  std::vector<spread_row> rows;
  if (runs.front().size() == 1) return rows;
  for (const list_runs& lists : runs) {
    rows.push_back({spread_of(lists, [](const job_metrics& m) { return m.completion.mean; }),
                    spread_of(lists, [](const job_metrics& m) { return m.delay.p99; }),
                    spread_of(lists, [](const job_metrics& m) { return m.utilization; })});
  }
  return rows;
}

// One row for each policy. With several lists the figures are means, followed by deviations.
std::string table_of(const std::vector<list_runs>& runs) {
  const bool several = runs.front().size() > 1;
  std::string text =
      "policy              jobs done   mean delay    p99 delay  mean completion   "
      "makespan  GPUs in use      scattered  suspensions  migrations";
  text += several ? "   +- mean delay  +- completion  +- in use\n" : "\n";
  const auto count = [](double x) { return static_cast<std::uint64_t>(std::llround(x)); };
  for (const list_runs& lists : runs) {
    const auto mean = [&](const auto& figure) { return spread_of(lists, figure).mean; };
    const auto deviation = [&](const auto& figure) { return spread_of(lists, figure).deviation; };
    const auto delay = [](const job_metrics& m) { return m.delay.mean; };
    const auto completion = [](const job_metrics& m) { return m.completion.mean; };
    const auto use = [](const job_metrics& m) { return m.utilization; };
    std::array<char, 300> line{};
    std::snprintf(
        line.data(), line.size(),
        "%-19s %9" PRIu64 " %8.1f min %8.1f min %12.1f min %8.1f h %10.2f %% %12.2f %% %12" PRIu64
        " %11" PRIu64,
        lists.front().policy.c_str(), count(mean([](const job_metrics& m) { return m.ended; })),
        minutes(mean(delay)), minutes(mean([](const job_metrics& m) { return m.delay.p99; })),
        minutes(mean(completion)),
        minutes(mean([](const job_metrics& m) { return m.makespan; })) / 60, 100 * mean(use),
        100 * mean([](const job_metrics& m) { return m.fragmentation; }),
        count(mean([](const job_metrics& m) { return m.suspensions; })),
        count(mean([](const job_metrics& m) { return m.migrations; })));
    text += line.data();
    if (several) {
      std::snprintf(line.data(), line.size(), " %11.1f min %9.1f min %8.2f %%",
                    minutes(deviation(delay)), minutes(deviation(completion)),
                    100 * deviation(use));
      text += line.data();
    }
    text += '\n';
  }
  return text;
}

// A row for each job, times in ms.
constexpr const char* csv_header =
    "policy,trace,job,tenant,gpus,arrival,duration,started,ended,quota,capacity,fragmentation,"
    "order,"
    "suspensions,migrations,breakdowns,lost,failures,given_up\n";
std::string csv_of(const policy_run& r, std::size_t trace, const job_list& list) {
  std::string text;
  const auto add = [&](std::int64_t n) { text += "," + std::to_string(n == max_time ? -1 : n); };
  for (std::size_t j = 0; j < r.jobs.size(); ++j) {
    const timed_job& job = list.jobs[j];
    const simulation_result::job_record& had = r.jobs[j];
    text += r.policy + "," + std::to_string(trace) + "," + std::to_string(j) + "," +
            csv_field(list.tenants[job.request.tenant.value]);
    for (const std::int64_t n :
         {std::int64_t{job.request.gpus}, job.arrival, job.duration, had.started, had.ended})
      add(n);
    for (const time_ms waited : had.waited.by_cause) add(waited);
    for (const std::int64_t n :
         {std::int64_t{had.suspended}, std::int64_t{had.migrated}, std::int64_t{had.broken},
          had.lost, std::int64_t{had.failed}, std::int64_t{had.given_up}})
      add(n);
    text += "\n";
  }
  return text;
}

// The row of a sweep.
constexpr const char* row_header =
    "policy,jobs,ended,mean_completion_ms,p50_completion_ms,p99_completion_ms,mean_delay_ms,"
    "p99_delay_ms,max_delay_ms,makespan_ms,gpus_in_use,scattered,suspensions,migrations,breakdowns,"
    "lost_ms,failures,given_up,log";
std::string row_of(const policy_run& r, const job_list& list) {
  const job_metrics& m = r.metrics;
  std::array<char, 500> row{};
  std::snprintf(row.data(), row.size(),
                ",%zu,%" PRIu64 ",%.0f,%" PRId64 ",%" PRId64 ",%.0f,%" PRId64 ",%" PRId64
                ",%" PRId64 ",%.6f,%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64
                ",%" PRIu64 ",%016" PRIx64,
                list.jobs.size(), m.ended, m.completion.mean, m.completion.p50, m.completion.p99,
                m.delay.mean, m.delay.p99, m.delay.max, m.makespan, m.utilization, m.fragmentation,
                m.suspensions, m.migrations, m.breakdowns, m.lost, m.failures, m.given_up, r.log);
  return r.policy + row.data();
}

std::string times_of(const job_metrics::time_summary& t) {
  return "{\"mean\": " + shortest_text(t.mean) + ", \"p50\": " + std::to_string(t.p50) +
         ", \"p95\": " + std::to_string(t.p95) + ", \"p99\": " + std::to_string(t.p99) +
         ", \"most\": " + std::to_string(t.max) + "}";
}

// Times in milliseconds.
std::string report_of(const simulate_options& o, const job_list& list,
                      const left_out_jobs& left_out, const std::vector<policy_run>& runs) {
  std::string text = "{\n  \"nodes\": " + std::to_string(o.cluster.nodes) +
                     ",\n  \"gpus_per_node\": " + std::to_string(o.cluster.gpus_per_node) +
                     ",\n  \"jobs\": " + std::to_string(list.jobs.size()) +
                     ",\n  \"left_out\": " + std::to_string(left_out.all()) +
                     ",\n  \"left_out_too_large\": " + std::to_string(left_out.too_large) +
                     ",\n  \"left_out_never_fits\": " + std::to_string(left_out.never) +
                     ",\n  \"tenants\": " + std::to_string(list.tenants.size()) +
                     ",\n  \"policies\": [";
  for (const policy_run& r : runs) {
    const job_metrics& m = r.metrics;
    std::array<char, 17> log{};
    std::snprintf(log.data(), log.size(), "%016" PRIx64, r.log);
    const delays& d = m.by_cause;
    text += std::string(&r == runs.data() ? "" : ",") + "\n    {\"policy\": \"" + r.policy +
            "\",\n     \"jobs_done\": " + std::to_string(m.ended) +
            ",\n     \"delay\": " + times_of(m.delay) +
            ",\n     \"delay_by_cause\": {\"quota\": " + std::to_string(d[delay_cause::quota]) +
            ", \"capacity\": " + std::to_string(d[delay_cause::capacity]) +
            ", \"fragmentation\": " + std::to_string(d[delay_cause::fragmentation]) +
            ", \"order\": " + std::to_string(d[delay_cause::order]) +
            "},\n     \"completion\": " + times_of(m.completion) +
            ",\n     \"makespan\": " + std::to_string(m.makespan) +
            ",\n     \"utilization\": " + shortest_text(m.utilization) +
            ",\n     \"fragmentation\": " + shortest_text(m.fragmentation) +
            ",\n     \"suspensions\": " + std::to_string(m.suspensions) +
            ",\n     \"migrations\": " + std::to_string(m.migrations) +
            ",\n     \"resizes\": " + std::to_string(m.resizes) +
            ",\n     \"breakdowns\": " + std::to_string(m.breakdowns) +
            ",\n     \"lost\": " + std::to_string(m.lost) +
            ",\n     \"failures\": " + std::to_string(m.failures) +
            ",\n     \"given_up\": " + std::to_string(m.given_up) + ",\n     \"log\": \"" +
            log.data() + "\"}";
  }
  return text + "\n  ]\n}\n";
}

// All that can be wrong with the arguments and files is found out here, before the work.
struct simulate_task {
  simulate_options chosen;
  std::vector<job_list> lists{};
  left_out_jobs left_out{};
  std::vector<std::optional<output_file>> files{};  // the report, the plot, the jobs, the events
};

// Brings the quotas from the order of the tenants' names into the order of their ids. All lists have the
// same tenants. kInvalidArgument: not one quota for each tenant, or more GPUs than there are.
absl::Status assign_quotas(simulate_options& o, const job_list& list) {
  std::vector<std::uint32_t>& quotas = o.settings.quotas;
  if (quotas.empty()) return absl::OkStatus();
  std::vector<std::size_t> by_name;
  for (std::size_t t = 0; t < list.tenants.size(); ++t) by_name.push_back(t);
  std::sort(by_name.begin(), by_name.end(),
            [&](std::size_t a, std::size_t b) { return list.tenants[a] < list.tenants[b]; });
  if (quotas.size() != by_name.size()) {
    std::vector<std::string> names;  // the first ones
    for (const std::size_t t : by_name) {
      if (names.size() < 10) names.push_back(line_reader::quoted(list.tenants[t]));
    }
    const bool more = names.size() < by_name.size();
    const std::vector<std::string_view> some(names.begin(), names.end());
    return absl::InvalidArgumentError("--quotas has " + std::to_string(quotas.size()) +
                                      (quotas.size() == 1 ? " number" : " numbers") +
                                      "; the tenants are " + std::to_string(by_name.size()) + ": " +
                                      in_words(some) + (more ? ", ..." : ""));
  }
  std::uint64_t sum = 0;
  for (const std::uint32_t q : quotas) sum += q;
  if (sum > o.cluster.gpus()) {
    return absl::InvalidArgumentError("--quotas adds up to " + std::to_string(sum) +
                                      " GPUs; the cluster has " + std::to_string(o.cluster.gpus()));
  }
  const std::vector<std::uint32_t> given = quotas;
  for (std::size_t i = 0; i < given.size(); ++i) quotas[by_name[i]] = given[i];
  return absl::OkStatus();
}

// Draws each estimate between the duration of the job and so many times the duration, uniformly, as the
// f-model of Mu'alem and Feitelson (IEEE TPDS 2001).
void make_inexact(job_list& list, std::uint32_t most, std::uint64_t seed) {
  rng random(seed ^ 0x5555555555555555U);  // other numbers than those of the jobs and the failures
  for (timed_job& j : list.jobs) {
    const time_ms more = j.duration * random.uniform(1000 * (most - 1) + 1) / 1000;
    j.request.estimate = std::min(j.duration + more, (time_ms{1} << 61) / j.request.gpus);
  }
}

absl::StatusOr<simulate_task> prepare(const simulate_options& chosen) {
  simulate_task t{.chosen = chosen};
  if (chosen.embedded()) {
    if (chosen.seed) t.lists.push_back(embedded_jobs(*chosen.seed, chosen.load));
    for (std::uint64_t seed = 1; !chosen.seed && seed <= embedded_lists; ++seed)
      t.lists.push_back(embedded_jobs(seed, chosen.load));
  } else {
    APIARY_ASSIGN_OR_RETURN(job_list list, load(chosen));
    APIARY_RETURN_IF_ERROR(fit(t.chosen, list, t.left_out));
    t.lists.push_back(std::move(list));
  }
  if (chosen.settings.estimate_error > 0) {
    std::uint64_t seed = chosen.settings.seed;
    for (job_list& list : t.lists) make_inexact(list, chosen.settings.estimate_error, seed++);
  }
  APIARY_RETURN_IF_ERROR(assign_quotas(t.chosen, t.lists.front()));
  APIARY_ASSIGN_OR_RETURN(t.files, open_outputs({chosen.jobs}, {chosen.report, chosen.plot,
                                                                chosen.csv, chosen.events}));
  t.chosen.settings.keeps_jobs = t.files[2].has_value();
  t.chosen.settings.keeps_events = t.files[3].has_value();
  return t;
}

// Says which jobs and policies do not run, and why.
void print_left_out(const simulate_options& o, const left_out_jobs& jobs) {
  std::vector<std::string_view> not_run(job_policies.begin(), job_policies.end());
  std::erase_if(not_run, [&](std::string_view p) {
    return o.chosen || std::find(o.policies.begin(), o.policies.end(), p) != o.policies.end();
  });
  if (!not_run.empty())
    std::fprintf(stderr, "%s know only GPUs and do not run\n", in_words(not_run).c_str());
  for (const std::string& reason : reasons_of(jobs, o))
    std::fprintf(stderr, "%s\n", reason.c_str());
}

// Runs each policy on each list, so many at a time, those that take longest first. Returns for each policy
// its runs, in the order of the lists, and appends the rows of their jobs in this order to `rows`. The
// first error in this order.
absl::StatusOr<std::vector<list_runs>> run_all(const simulate_task& t, std::size_t at_once,
                                               std::string& rows) {
  const std::vector<std::string_view>& policies = t.chosen.policies;
  const std::size_t lists = t.lists.size();
  const std::size_t count = policies.size() * lists;
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return policy_cost(policies[a / lists]) > policy_cost(policies[b / lists]);
  });
  std::vector<absl::StatusOr<policy_run>> done(count, absl::UnknownError("it has not run"));
  std::vector<std::string> texts(count);
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> failed = count;  // the first run that failed
  std::atomic<std::size_t> ended = 0;       // jobs
  {
    std::size_t jobs = 0;
    for (const job_list& list : t.lists) jobs += policies.size() * list.jobs.size();
    const progress_bar bar(policies.size() == 1 ? std::string(policies[0])
                                                : std::to_string(policies.size()) + " schedulers",
                           jobs);
    const auto work = [&] {
      for (std::size_t at = next++; at < count; at = next++) {
        const std::size_t i = order[at];
        if (i > failed) continue;
        const job_list& list = t.lists[i % lists];
        run_settings settings = t.chosen.settings;
        settings.keeps_events = settings.keeps_events && i % lists == 0;
        done[i] = run_policy(
            policies[i / lists], t.chosen.cluster, list, [&](std::size_t) { bar(++ended); },
            settings);
        if (!done[i].ok()) {
          for (std::size_t first = failed; i < first;)
            if (failed.compare_exchange_weak(first, i)) break;
          continue;
        }
        texts[i] = csv_of(*done[i], i % lists, list);
        done[i]->jobs.clear();
      }
    };
    std::vector<std::thread> others;
    others.reserve(std::min(at_once, count));
    try {
      while (others.size() + 1 < std::min(at_once, count)) others.emplace_back(work);
    } catch (const std::system_error&) {
      // The system starts no more threads; fewer do the same work.
    }
    work();
    for (std::thread& other : others) other.join();
  }
  if (failed < count) return done[failed].status();
  std::vector<list_runs> runs(policies.size());
  for (std::size_t i = 0; i < count; ++i) {
    rows += texts[i];
    runs[i / lists].push_back(*std::move(done[i]));
  }
  return runs;
}

// Runs the policies, prints the table and leaves the files.
absl::Status perform(simulate_task t, std::size_t at_once) {
  print_left_out(t.chosen, t.left_out);
  std::string rows = csv_header;
  APIARY_ASSIGN_OR_RETURN(const std::vector<list_runs> runs, run_all(t, at_once, rows));
  std::vector<policy_run> first;  // on the first list
  for (const list_runs& lists : runs) first.push_back(lists.front());
  APIARY_RETURN_IF_ERROR(print(table_of(runs)));
  if (t.files[0]) {
    APIARY_RETURN_IF_ERROR(
        t.files[0]->write(report_of(t.chosen, t.lists.front(), t.left_out, first)));
  }
  if (t.files[1]) {
    APIARY_RETURN_IF_ERROR(t.files[1]->write(
        simulate_plot(first, t.chosen.cluster, t.lists.front(), spreads_of(runs)).draw()));
  }
  if (t.files[2]) APIARY_RETURN_IF_ERROR(t.files[2]->write(rows));
  if (t.files[3]) APIARY_RETURN_IF_ERROR(t.files[3]->write(event_header + first.front().events));
  for (std::optional<output_file>& file : t.files) {
    if (!file) continue;
    APIARY_RETURN_IF_ERROR(file->commit());
    std::fprintf(stderr, "wrote %s\n", file->path().c_str());
  }
  return absl::OkStatus();
}

// Options of a run of a sweep: one scheduler, one trace, and no other output than the row.
absl::StatusOr<simulate_options> parse_run(const sweep_run& run) {
  std::vector<const char*> arguments;
  for (const std::string& argument : run.arguments) arguments.push_back(argument.c_str());
  APIARY_ASSIGN_OR_RETURN(simulate_options o, parse_simulate_options(arguments));
  if (o.help) return absl::InvalidArgumentError("--help is not an option of a run");
  if (o.policies.size() != 1)
    return absl::InvalidArgumentError("a run needs --policy with the name of one policy");
  if (!o.report.empty() || !o.plot.empty() || !o.csv.empty() || !o.events.empty())
    return absl::InvalidArgumentError("a run has no --report, --plot, --csv and --events");
  if (!o.seed) o.seed = 1;
  return o;
}

// About how long a run takes: more jobs and slower policies take longer.
double cost_of(const simulate_options& o) {
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(o.jobs, unknown);  // about 40 a job
  const double jobs = o.embedded() ? static_cast<double>(embedded_size(o.load))
                      : unknown    ? 0.0
                                   : static_cast<double>(bytes) / 40;
  return jobs * policy_cost(o.policies.front());
}

int fail(const absl::Status& why, int exit_status) {
  std::fprintf(stderr, "simulate: %s\n", std::string(why.message()).c_str());
  return exit_status;
}

// Carries out a sweep; the exit status.
int sweep(const sweep_options& o) {
  const absl::StatusOr<std::vector<sweep_run>> runs = read_sweep(o);
  if (!runs.ok()) return fail(runs.status(), 2);
  std::vector<double> costs;
  for (const sweep_run& run : *runs) {
    const absl::StatusOr<simulate_options> parsed = parse_run(run);
    if (!parsed.ok()) return fail(at_line(o, run, parsed.status()), 2);
    costs.push_back(cost_of(*parsed));
  }
  const absl::Status rows = check_results(o, row_header);
  if (!rows.ok()) return fail(rows, absl::IsInvalidArgument(rows) ? 2 : 1);
  const absl::Status done = run_sweep(
      o, *runs, row_header,
      [](const sweep_run& run) -> absl::StatusOr<std::string> {
        APIARY_ASSIGN_OR_RETURN(const simulate_options given, parse_run(run));
        APIARY_ASSIGN_OR_RETURN(const simulate_task t, prepare(given));
        APIARY_ASSIGN_OR_RETURN(const policy_run r,
                                run_policy(
                                    t.chosen.policies.front(), t.chosen.cluster, t.lists.front(),
                                    [](std::size_t) {}, t.chosen.settings));
        return row_of(r, t.lists.front());
      },
      costs);
  return done.ok() ? 0 : fail(done, 1);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_signals();
  const absl::Status streams = check_standard_streams();
  if (!streams.ok()) return fail(streams, 1);
  const absl::StatusOr<sweep_options> many = read_sweep_options({argv + 1, argv + argc}, true);
  if (!many.ok()) return fail(many.status(), 2);
  if (!many->file.empty()) return sweep(*many);
  std::vector<const char*> arguments;
  for (const std::string& argument : many->rest) arguments.push_back(argument.c_str());
  absl::StatusOr<simulate_options> o = parse_simulate_options(arguments);
  if (!o.ok()) return fail(o.status(), 2);
  if (o->help) {
    std::string text = simulate_usage;
    const absl::Status printed = print(text.replace(text.find("%s"), 2, sweep_usage));
    return printed.ok() ? 0 : fail(printed, 1);
  }
  // Beside a program that was called by a path, otherwise in the present folder.
  if (o->embedded() && o->plot.empty())
    o->plot = std::filesystem::path(argv[0]).replace_filename("simulate.svg").string();
  absl::StatusOr<simulate_task> t = prepare(*o);
  if (!t.ok()) return fail(t.status(), 2);
  const std::size_t at_once =
      many->at_once.value_or(std::max(1U, std::thread::hardware_concurrency()));
  const absl::Status done = perform(*std::move(t), at_once);
  // A job that a scheduler refuses is wrong input.
  return done.ok() ? 0 : fail(done, absl::IsInvalidArgument(done) ? 2 : 1);
}
