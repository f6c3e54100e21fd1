// apiary/tests/philly/philly_data_test.cpp - the public Philly list on 91 servers of 8 GPUs.
// SPDX-License-Identifier: MIT
#include "../../examples/text/decimal.h"
#include "support/data.h"
#include <apiary/philly/philly.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/job_readers.h>
#include <apiary/trace/line_reader.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

const std::string folder = apiary_test::data_folder("philly");

job_list public_list() {
  absl::StatusOr<line_reader> lines = line_reader::open(folder + "philly.csv");
  REQUIRE_MESSAGE(lines.ok(), lines.status().ToString());
  absl::StatusOr<job_list> list = read_philly(*std::move(lines));
  REQUIRE_MESSAGE(list.ok(), list.status().ToString());
  return *std::move(list);
}

}  // namespace

TEST_CASE("philly: the public list is read whole") {
  const job_list list = public_list();
  CHECK(list.jobs.size() == 82'247);
  CHECK(list.left_out == 0);
  CHECK(list.tenants.size() == 15);
  std::int64_t gpu_seconds = 0;
  for (const timed_job& j : list.jobs) gpu_seconds += j.duration / 1000 * j.request.gpus;
  CHECK(gpu_seconds == 3'521'082'502);
  CHECK(list.jobs.back().arrival == time_ms{9'408'690} * 1000);
}

namespace {

// 91 servers of 8 GPUs. The quotas of the cluster are not public: each tenant gets its part of all
// GPU-time.
philly_options proportional(const job_list& list) {
  constexpr std::uint32_t gpus = 91 * 8;
  std::vector<time_ms> part(list.tenants.size(), 0);
  time_ms all = 0;
  for (const timed_job& j : list.jobs) {
    const time_ms time = j.duration / 1000 * j.request.gpus;
    part[j.request.tenant.value] += time;
    all += time;
  }
  philly_options options{
      .servers = {.gpus = std::vector<std::uint32_t>(91, 8), .servers_per_rack = 24}};
  for (const time_ms time : part)
    options.quotas.push_back(static_cast<std::uint32_t>(time * gpus / all));
  return options;
}

}  // namespace

// The table of the module's page.
TEST_CASE("philly: the larger a job, the more of its delay is the cluster's, not its quota's") {
  const job_list list = public_list();
  philly scheduler = philly::create(proportional(list)).value();
  const absl::StatusOr<simulation_result> run = simulate(scheduler, list.jobs);
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  std::string rows;
  std::vector<double> by_cluster;
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes{
      {1, 1}, {2, 4}, {5, 8}, {9, 999}};
  for (const auto& [least, most] : sizes) {
    const job_metrics m = metrics_of(*run, list.jobs, least, most);
    const auto all = static_cast<double>(m.by_cause.total());
    const auto percent = [&](delay_cause c) {
      return 100 * static_cast<double>(m.by_cause[c]) / all;
    };
    const double capacity = percent(delay_cause::capacity);
    const double fragmentation = percent(delay_cause::fragmentation);
    rows += example::fixed_text(percent(delay_cause::quota), 1) + " | " +
            example::fixed_text(capacity, 1) + " | " + example::fixed_text(fragmentation, 1) +
            " | " + example::fixed_text(capacity + fragmentation, 1) + "\n";
    by_cluster.push_back(capacity + fragmentation);
  }
  CHECK(rows ==
        "100.0 | 0.0 | 0.0 | 0.0\n"
        "95.6 | 4.1 | 0.3 | 4.4\n"
        "73.0 | 25.4 | 1.6 | 27.0\n"
        "30.2 | 68.7 | 1.1 | 69.8\n");
  CHECK(by_cluster[1] < by_cluster[2]);
  CHECK(by_cluster[2] < by_cluster[3]);
}

TEST_CASE("philly: large jobs wait less the sooner their locality relaxes") {
  const job_list list = public_list();
  const philly_options options = proportional(list);
  std::vector<double> minutes;
  for (int variant = 0; variant < 3; ++variant) {
    CAPTURE(variant);
    philly_options here = options;  // after five retries
    if (variant == 0) here.max_tries = philly_options::no_limit;
    if (variant == 2) here.first_locality = job_locality::anywhere;
    philly scheduler = philly::create(here).value();
    const absl::StatusOr<simulation_result> run = simulate(scheduler, list.jobs);
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    std::size_t wrong = 0;
    for (std::size_t j = 0; j < list.jobs.size(); ++j) {
      const simulation_result::job_record& r = run->jobs[j];
      if (r.ended != list.jobs[j].arrival + r.waited.total() + list.jobs[j].duration) ++wrong;
    }
    CHECK(wrong == 0);
    minutes.push_back(metrics_of(*run, list.jobs, 9).delay.mean / 60'000);
  }
  CAPTURE(minutes[0]);
  CAPTURE(minutes[1]);
  CAPTURE(minutes[2]);
  CHECK(minutes[0] > minutes[1]);
  CHECK(minutes[1] > minutes[2]);
}
