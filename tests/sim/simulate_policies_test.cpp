// apiary/tests/sim/simulate_policies_test.cpp - the policies of the example simulate, and its picture.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/simulate_policies.h"

#include "../../examples/programs/simulate_picture.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// The log of all events of the embedded list, places included: of every compiler, standard library
// and machine the same. A change of a policy's decisions, or of what the log holds, turns this red on
// purpose: look at the table of examples/programs/simulate.expected, then write the new value here.
const std::map<std::string, std::uint64_t> golden_logs{
    {"fifo", 0xe195db5e2574b860U},         {"backfill", 0x2b761d32547f1442U},
    {"easy", 0x85b6ca44029882e0U},         {"easy_gpus", 0x72be7ed6770cc3fdU},
    {"conservative", 0xc8d5ab656512570dU}, {"qssf", 0xdc8741f5e0659715U},
    {"srtf", 0x2f902c437f03d62cU},         {"las", 0x45cc55d6e9dce21bU},
    {"tiresias", 0xfe3c72bc36f1a8abU},     {"bounded", 0x33ea2a9d1fca36adU},
    {"bounded_srtf", 0x50887757232afc7eU}, {"philly", 0x4fa4ce08a3e80c43U},
    {"gandiva", 0x622da6ef085a0c10U},      {"gandiva_fgd", 0x8df80e55357afe6eU},
    {"hived", 0x41f5bcccc95b4240U},        {"gandiva_hived", 0xe3395793d6043713U}};

}  // namespace

TEST_CASE("simulate: every policy's log is the one written down") {
  const job_list list = example::embedded_jobs();
  for (const std::string_view policy : example::job_policies) {
    CAPTURE(policy);
    std::size_t ended = 0;
    const auto run = example::run_policy(policy, {}, list, [&](std::size_t n) { ended = n; });
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    CHECK(run->log == golden_logs.at(std::string(policy)));
    CHECK(run->metrics.ended == list.jobs.size());
    CHECK(ended == list.jobs.size());
    CHECK(std::is_sorted(run->completion.begin(), run->completion.end()));
    // The picture has the GPU-time that the jobs had: their durations, nothing being lost here, and
    // what each start costs; a suspension one more, or less where it interrupts another.
    double had = 0.0;
    for (std::uint32_t c = 0; c < run->picture.used_columns(); ++c)
      had += run->picture.use(c) * static_cast<double>(run->picture.width()) * 128;
    double least = 0.0;
    for (const timed_job& j : list.jobs)
      least += static_cast<double>(j.duration + example::start_cost) * j.request.gpus;
    const job_metrics& m = run->metrics;
    const double most = least + 32.0 * static_cast<double>(m.suspensions) * example::start_cost +
                        32.0 * static_cast<double>(m.migrations) * example::migration_cost;
    CHECK(had >= least * (1 - 1e-9));
    CHECK(had <= most * (1 + 1e-9));
    CHECK((m.migrations > 0) == (policy.starts_with("gandiva") || policy.starts_with("bounded")));
    CHECK((m.fragmentation > 0 && m.fragmentation < 1));
  }
}

TEST_CASE("simulate: quotas are the GPUs divided by GPU-time, none left") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    job_list list;
    const std::uint32_t tenants = 1 + random.uniform(9);
    list.tenants.resize(tenants, "t");
    for (std::uint32_t i = 0; i < 1 + random.uniform(20); ++i) {
      timed_job j;
      j.request.tenant = tenant_id(random.uniform(tenants));
      j.request.gpus = 1 + random.uniform(8);
      j.duration = 1 + random.uniform(100);
      list.jobs.push_back(j);
    }
    job_list::number_by_arrival(list.jobs);
    const std::uint32_t gpus = 1 + random.uniform(200);
    const std::vector<std::uint32_t> quotas = example::quotas_of(list, gpus);
    REQUIRE(std::accumulate(quotas.begin(), quotas.end(), 0U) == gpus);
    std::vector<std::uint64_t> time(tenants);
    std::uint64_t all = 0;
    for (const timed_job& j : list.jobs) {
      const auto had = static_cast<std::uint64_t>(j.duration) * j.request.gpus;
      time[j.request.tenant.value] += had;
      all += had;
    }
    for (std::uint32_t t = 0; t < tenants; ++t) {
      // Less than a GPU away from the exact part.
      REQUIRE(quotas[t] * all < time[t] * gpus + all + 1);
      REQUIRE((quotas[t] + 1) * all + 1 > time[t] * gpus);
    }
    // And the cells that HiveD's tenants get for them can be promised.
    const example::job_cluster cluster{.nodes = 1 + random.uniform(40),
                                       .gpus_per_node = 1 + random.uniform(8)};
    const auto owners =
        hived_queue::create(example::cells_of(cluster, example::quotas_of(list, cluster.gpus())));
    REQUIRE_MESSAGE(owners.ok(), owners.status().ToString());
    REQUIRE(owners->total_gpus() == cluster.gpus());
    REQUIRE(cluster.nodes % cluster.nodes_per_rack() == 0);
  }
}

TEST_CASE(
    "simulate: servers fail in order, as often as they should, and not while they are broken") {
  job_list list;
  list.jobs.resize(1);
  const example::job_cluster cluster{.nodes = 20, .gpus_per_node = 8};
  CHECK(example::outages_of({}, cluster, list).empty());
  const example::run_settings set{.mtbf = 100'000'000, .repair = 5000, .seed = 3};
  const std::vector<outage> outages = example::outages_of(set, cluster, list);
  // 20 servers for 2,592,000 s, and 100,000 s between two failures: about 518.
  CHECK(outages.size() > 430);
  CHECK(outages.size() < 620);
  std::map<std::uint32_t, time_ms> until;
  for (std::size_t i = 0; i < outages.size(); ++i) {
    CHECK((i == 0 || outages[i - 1].from <= outages[i].from));
    CHECK(outages[i].until == outages[i].from + 5000);
    CHECK(until[outages[i].node.value] < outages[i].from);
    until[outages[i].node.value] = outages[i].until;
  }
}

TEST_CASE("simulate: a run of a job fails in the work that it has left, at times of its own") {
  job_list list;
  list.jobs.resize(100);
  for (timed_job& j : list.jobs) j.duration = 1'000'000;
  job_list::number_by_arrival(list.jobs);
  const example::run_settings often{.checkpoint = 60'000, .failures = {80, 0, 0}};
  const auto failures = example::job_failures_of(often, list);
  std::uint64_t with_kept = 0;
  for (std::size_t i = 1; i < failures.size(); ++i) {
    if (failures[i].job != failures[i - 1].job) continue;
    const time_ms kept = failures[i - 1].at / 60'000 * 60'000;
    REQUIRE(failures[i].at >= kept);
    REQUIRE(failures[i].at < 1'000'000);
    with_kept += kept > 0 ? 1U : 0U;
  }
  CHECK(with_kept > 100);
  // A failure of a job uses the second of its two draws from 1,000 values, one of a server each draw.
  const example::run_settings once{.mtbf = 500'000, .repair = 0, .failures = {0, 100, 0}};
  const auto of_jobs = example::job_failures_of(once, list);
  const auto of_server = example::outages_of(once, {.nodes = 1}, list);
  REQUIRE(of_jobs.size() == 100);
  REQUIRE(of_server.size() > 200);
  std::uint64_t alike = 0;
  for (std::size_t j = 0; j < 100; ++j)
    alike += of_server[2 * j + 1].from - of_server[2 * j].from - 1 == of_jobs[j].at ? 1U : 0U;
  CHECK(alike < 10);
}

TEST_CASE("simulate: under every policy jobs that fail end or are given up, by their classes") {
  const job_list list = example::embedded_jobs();
  const example::run_settings set{
      .checkpoint = 600'000, .failures = {10, 5, 20}, .retries = 1, .keeps_jobs = true};
  const auto failures = example::job_failures_of(set, list);
  std::vector<std::string_view> policies(example::job_policies.begin(),
                                         example::job_policies.end());
  policies.insert(policies.end(), example::more_policies.begin(), example::more_policies.end());
  for (const std::string_view policy : policies) {
    CAPTURE(policy);
    std::size_t ended = 0;
    const auto run = example::run_policy(
        policy, {}, list, [&](std::size_t n) { ended = n; }, set);
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    CHECK(ended == list.jobs.size());
    CHECK(run->metrics.given_up > 0);
    std::size_t next = 0;
    for (std::uint32_t j = 0; j < list.jobs.size(); ++j) {
      CAPTURE(j);
      std::uint32_t failed = 0;
      std::uint32_t unknown = 0;
      bool given_up = false;
      for (; next < failures.size() && failures[next].job.value == j; ++next) {
        if (given_up) continue;
        using kind = simulation_options::job_failure::kind;
        ++failed;
        unknown += failures[next].why == kind::unknown ? 1U : 0U;
        given_up = failures[next].why == kind::permanent || unknown > 1;
      }
      REQUIRE(run->jobs[j].ended != max_time);
      REQUIRE(run->jobs[j].failed == failed);
      REQUIRE(run->jobs[j].given_up == given_up);
    }
  }
}

namespace {

// Two servers of t4, three of v100 and one without a model, four GPUs each.
const example::job_cluster three_models{
    .nodes = 6, .gpus_per_node = 4, .host = {16'000, 65'536}, .models = {{"t4", 2}, {"v100", 3}}};
// The model of a server there, as timed_job::model.
std::uint32_t model_of(std::uint32_t node) { return node < 2 ? 1 : node < 5 ? 2 : 0; }

// Whether the job fits into the idle cluster, as tasks of one GPU if need be.
bool fits_three_models(const timed_job& j) {
  std::uint32_t gpus = 0;
  for (std::uint32_t n = 0; n < 6; ++n) {
    if (j.model != 0 && j.model != model_of(n)) continue;
    std::uint32_t here = 0;
    while (here < 4 && (here + 1) * j.per_gpu.cpu_milli <= 16'000 &&
           (here + 1) * j.per_gpu.memory_mib <= 65'536)
      ++here;
    gpus += here;
  }
  return j.request.gpus <= gpus;
}
// Jobs of one to eleven GPUs with random demands, as many as fit into the idle cluster.
job_list jobs_with_demands(rng& random) {
  job_list list{.tenants = {"a", "b"}, .models = {"t4", "v100"}};
  const auto placer = example::placer_for(three_models, list).value();  // without demands
  REQUIRE(placer.total_gpus() == 24);
  while (list.jobs.size() < 60) {
    timed_job j{.request = {.tenant = tenant_id(random.uniform(2)), .gpus = 1 + random.uniform(11)},
                .arrival = random.uniform(3'600) * 1000,
                .duration = 60'000 + random.uniform(3'600) * 1000,
                .per_gpu = {4000 * random.uniform(4), 16'384 * random.uniform(4)},
                .model = random.uniform(3)};
    j.request.estimate = j.duration;
    job_list one{.jobs = {j}, .tenants = list.tenants, .models = list.models};
    const auto fits = example::placer_for(three_models, one).value().check(one.jobs[0].request);
    REQUIRE(fits.ok() == fits_three_models(j));
    if (fits.ok()) list.jobs.push_back(j);
  }
  job_list::number_by_arrival(list.jobs);
  return list;
}

// Checks after each moment of a log of events that each GPU has one job, that the jobs of each server
// have their CPU, memory and model there, and that no job starts on a broken server.
void check_events(const std::string& events, const job_list& list) {
  std::map<std::uint32_t, std::map<std::uint32_t, std::uint32_t>> jobs;  // masks, by node and job
  std::set<std::uint32_t> broken;
  const auto check_all = [&] {
    for (const auto& [node, here] : jobs) {
      std::uint32_t used = 0;
      resources host{};
      for (const auto& [job, mask] : here) {
        REQUIRE((used & mask) == 0);
        used |= mask;
        const timed_job& j = list.jobs[job];
        const auto gpus = static_cast<std::uint32_t>(std::popcount(mask));
        host += {gpus * j.per_gpu.cpu_milli, gpus * j.per_gpu.memory_mib};
        REQUIRE((j.model == 0 || j.model == model_of(node)));
      }
      REQUIRE(host.fits_in(three_models.host));
      REQUIRE(used < 16);
    }
  };
  std::istringstream lines(events);
  std::string before = "0";
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == ',') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    if (fields[0] != before) check_all();
    before = fields[0];
    const auto number = [](const std::string& text) {
      return static_cast<std::uint32_t>(std::stoul(text));
    };
    if (fields[1] == "failure") broken.insert(number(fields[3]));
    if (fields[1] == "repair") broken.erase(number(fields[3]));
    if (fields[2].empty() || fields[1] == "arrival") continue;
    const std::uint32_t job = number(fields[2]);
    for (auto& [node, here] : jobs) here.erase(job);
    if (fields[1] != "start" && fields[1] != "migration") continue;
    std::istringstream places(fields[6]);
    std::uint32_t gpus = 0;
    for (std::string place; std::getline(places, place, ';');) {
      const std::size_t colon = place.find(':');
      const std::uint32_t node = number(place.substr(0, colon));
      REQUIRE_FALSE(broken.contains(node));
      for (std::size_t at = colon + 1; at < place.size(); at += 2, ++gpus)
        jobs[node][job] |= 1U << (place[at] - '0');
    }
    REQUIRE(gpus == list.jobs[job].request.gpus);
  }
  check_all();
}

std::vector<std::string_view> policies_with_demands() {
  std::vector<std::string_view> policies(example::job_policies.begin(),
                                         example::job_policies.end());
  std::erase_if(policies, [](std::string_view p) { return !example::knows_demands(p); });
  return policies;
}

example::policy_run run_on(std::string_view policy, const example::job_cluster& cluster,
                           const job_list& list, const example::run_settings& set = {}) {
  auto run = example::run_policy(
      policy, cluster, list, [](std::size_t) {}, set);
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  CHECK(run->metrics.ended == list.jobs.size());
  return *std::move(run);
}

}  // namespace

TEST_CASE("simulate: no server has jobs with more CPU or memory than it has, or of another model") {
  std::uint64_t migrations = 0;
  std::uint64_t suspensions = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(12U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const job_list list = jobs_with_demands(random);
    const example::run_settings set{
        .quantum = 300'000, .mtbf = 20'000'000, .seed = seed, .keeps_events = true};
    for (const std::string_view policy : policies_with_demands()) {
      CAPTURE(policy);
      const example::policy_run run = run_on(policy, three_models, list, set);
      check_events(run.events, list);
      migrations += run.metrics.migrations;
      suspensions += run.metrics.suspensions;
    }
  }
  CHECK(migrations > 0);
  CHECK(suspensions > migrations);
}

TEST_CASE("simulate: first come first served over the gang scheduler is gang_queue") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(20U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const job_list list = jobs_with_demands(random);
    const example::run_settings set{.mtbf = 20'000'000, .seed = seed};
    REQUIRE(run_on("fifo", three_models, list, set).log ==
            run_on("gang", three_models, list, set).log);
  }
}

// On one server only numbers of GPUs matter. Each model is then a cluster of its own for a policy that
// starts each job that fits.
TEST_CASE("simulate: jobs start at the same times under both placers, for each model by itself") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(20U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::array<job_list, 2> of_model{};
    job_list both{.tenants = {"a"}, .models = {"t4", "v100"}};
    std::vector<std::pair<std::uint32_t, std::size_t>> origin;  // of each job
    for (std::uint32_t j = 0; j < 80; ++j) {
      const std::uint32_t model = random.uniform(2);
      timed_job job{.request = {.tenant = tenant_id(0), .gpus = 1 + random.uniform(8)},
                    .arrival = j * 60'000,
                    .duration = 60'000 + random.uniform(600) * 1000};
      job.request.estimate = job.duration + random.uniform(2) * 60'000;
      origin.emplace_back(model, of_model[model].jobs.size());
      of_model[model].jobs.push_back(job);
      job.model = model + 1;
      both.jobs.push_back(job);
    }
    job_list::number_by_arrival(both.jobs);
    for (job_list& list : of_model) {
      list.tenants = {"a"};
      job_list::number_by_arrival(list.jobs);
    }
    const example::run_settings set{.quantum = 300'000, .keeps_jobs = true};
    for (const std::string_view policy : policies_with_demands()) {
      CAPTURE(policy);
      std::array<std::vector<simulation_result::job_record>, 2> alone{};
      for (std::size_t m = 0; m < 2; ++m) {
        alone[m] = run_on(policy, {.nodes = 1}, of_model[m], set).jobs;
        const auto again =
            run_on(policy, {.nodes = 1, .host = {~0U, 1'000'000}}, of_model[m], set).jobs;
        for (std::size_t j = 0; j < again.size(); ++j) {
          REQUIRE(again[j].started == alone[m][j].started);
          REQUIRE(again[j].ended == alone[m][j].ended);
          REQUIRE(again[j].waited == alone[m][j].waited);
        }
      }
      if (policy != "backfill" && policy != "qssf") continue;
      const auto together =
          run_on(policy, {.nodes = 2, .models = {{"t4", 1}, {"v100", 1}}}, both, set).jobs;
      for (std::size_t j = 0; j < together.size(); ++j)
        REQUIRE(together[j].ended == alone[origin[j].first][origin[j].second].ended);
    }
  }
}

TEST_CASE("simulate: the speed of a job by where its GPUs are") {
  const example::place_speeds speeds{.nvlink = 900, .node = 700, .rack = 500, .across = 300};
  const example::job_cluster cluster{.nodes = 8, .gpus_per_node = 8};  // a rack has eight
  REQUIRE(cluster.nodes_per_rack() == 8);
  const auto speed = [&](const job_placement& where) {
    return example::speed_of(speeds, cluster, where);
  };
  CHECK(speed({{node_id(0), 1}}) == full_speed);
  CHECK(speed({{node_id(0), 0x80}}) == full_speed);
  CHECK(speed({{node_id(0), 0x0f}}) == 900);
  CHECK(speed({{node_id(0), 0xc0}}) == 900);
  CHECK(speed({{node_id(0), 0x18}}) == 700);
  CHECK(speed({{node_id(0), 0xff}}) == 700);
  CHECK(speed({{node_id(0), 1}, {node_id(7), 1}}) == 500);
  const example::job_cluster two{.nodes = 32, .gpus_per_node = 8};  // racks of sixteen
  REQUIRE(two.nodes_per_rack() == 16);
  CHECK(example::speed_of(speeds, two, {{node_id(15), 1}, {node_id(16), 1}}) == 300);
}

TEST_CASE("simulate: the picture is the sum of what was put into it") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t nodes = 1 + random.uniform(40);
    const std::uint32_t gpus = nodes * 8;
    example::gpu_picture picture(nodes, 8, {0, 1, 2});
    std::vector<std::tuple<std::uint32_t, std::uint32_t, time_ms, time_ms>> stays;
    for (int i = 0; i < 60; ++i) {
      const std::uint32_t tenant = random.uniform(3);
      const std::uint32_t node = random.uniform(nodes);
      const std::uint32_t mask = 1 + random.uniform(255);
      const time_ms from = random.uniform(1U << random.uniform(22));
      const time_ms until = from + random.uniform(1U << random.uniform(22));
      picture.add(tenant_id(tenant), {{node_id(node), mask}}, from, until);
      for (std::uint32_t d = 0; d < 8; ++d) {
        if ((mask >> d & 1) != 0) stays.emplace_back(tenant, node * 8 + d, from, until);
      }
    }
    const time_ms width = picture.width();
    time_ms last = 0;
    for (const auto& [tenant, gpu, from, until] : stays) {
      if (from < until) last = std::max(last, until);
    }
    REQUIRE(width * example::gpu_picture::columns >= last);
    REQUIRE((last <= 400'000 || width / 2 * example::gpu_picture::columns < last));
    REQUIRE(picture.used_columns() == (last + width - 1) / width);
    for (std::uint32_t c = 0; c < picture.used_columns(); ++c) {
      time_ms sum = 0;
      std::map<std::uint32_t, std::array<time_ms, 3>> by_row;
      for (const auto& [tenant, gpu, from, until] : stays) {
        const time_ms had = std::min(until, (c + 1) * width) - std::max(from, c * width);
        if (had <= 0) continue;
        sum += had;
        by_row[gpu * picture.rows() / gpus][tenant] += had;
      }
      REQUIRE(picture.use(c) ==
              doctest::Approx(static_cast<double>(sum) / static_cast<double>(width) / gpus));
      for (std::uint32_t row = 0; row < picture.rows(); ++row) {
        time_ms in_row = 0;
        for (std::uint32_t gpu = 0; gpu < gpus; ++gpu)
          in_row += gpu * picture.rows() / gpus == row ? width : 0;
        const std::array<time_ms, 3> had = by_row[row];
        const std::uint32_t color = picture.color(row, c);
        if (2 * (had[0] + had[1] + had[2]) < in_row) {
          REQUIRE(color == example::num_colors);
        } else {
          REQUIRE(color < 3);
          REQUIRE(had[color] == *std::max_element(had.begin(), had.end()));
        }
      }
    }
  }
}

TEST_CASE("simulate: tenants with most GPU-time have colours of their own") {
  job_list list;
  for (std::uint32_t t = 0; t < 9; ++t) {
    list.tenants.push_back("t");
    timed_job j;
    j.request.tenant = tenant_id(t);
    j.duration = t == 4 ? 1 : 10 + t;
    list.jobs.push_back(j);
  }
  // 4, 0 and 1 have least and share the last.
  CHECK(example::colors_of(list) == std::vector<std::uint32_t>{6, 6, 0, 1, 6, 2, 3, 4, 5});
}
