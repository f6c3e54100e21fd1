// apiary/tests/gandiva/detail/gandiva_time_sharing_test.cpp - jobs packed, moved, grown; steps replayed.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/metric/task_mix.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

using verb = job_action::verb;
using gandiva_state = gandiva::standing;

// A host that carries everything out on a map of its own, and does not trust the scheduler.
struct wary_host {
  gandiva scheduler;
  std::vector<job_action> actions{};
  std::map<job_id, job_request> jobs{};
  std::map<job_id, job_placement> placements{};  // of those that run
  std::map<verb, int> counts{};

  explicit wary_host(const gandiva_options& options)
      : scheduler(gandiva::create(options).value()) {}

  absl::Status submit(const job_request& r, time_ms now) {
    absl::Status status = scheduler.submit(r, now);
    if (status.ok()) jobs[r.job] = r;
    return status;
  }
  absl::Status finish(job_id job, time_ms now) {
    jobs.erase(job);
    placements.erase(job);
    return scheduler.finish(job, now);
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    auto stopped = scheduler.mark_bad(n, now);
    std::set<job_id> there;
    for (const auto& [job, where] : placements) {
      for (const placement& p : where) {
        if (p.node == n) there.insert(job);
      }
    }
    REQUIRE(std::set<job_id>(stopped->begin(), stopped->end()) == there);
    REQUIRE(std::is_sorted(stopped->begin(), stopped->end()));
    for (const job_id job : there) placements.erase(job);
    return stopped;
  }
  absl::Status mark_healthy(node_id n, time_ms now) { return scheduler.mark_healthy(n, now); }
  time_ms wake() const { return scheduler.wake(); }
  std::uint32_t total_gpus() const { return scheduler.total_gpus(); }

  static std::uint32_t gpus_of(const job_placement& where) {
    std::uint32_t sum = 0;
    for (const placement& p : where) sum += p.num_gpus();
    return sum;
  }
  absl::Status decide(time_ms now, std::vector<job_action>& out) {
    const std::size_t first = out.size();
    absl::Status status = scheduler.decide(now, out);
    actions.assign(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
    REQUIRE(scheduler.wake() > now);
    std::set<job_id> seen;
    int last = 0;  // of what has an order by its kind: unpacking first, growth last
    for (const job_action& a : actions) {
      REQUIRE(seen.insert(a.job).second);  // one action a job
      const int step = a.what == verb::unpack ? 0 : a.what == verb::grow ? 2 : 1;
      REQUIRE(step >= last);
      last = step;
      carry_out(a);
      ++counts[a.what];
    }
    check(seen);
    return status;
  }
  void carry_out(const job_action& a) {
    const bool ran = placements.contains(a.job);
    const job_placement before = ran ? placements.at(a.job) : job_placement{};
    const job_request& r = jobs.at(a.job);
    REQUIRE(ran == (a.what != verb::start && a.what != verb::pack));
    if (a.what == verb::suspend || a.what == verb::unpack) {
      placements.erase(a.job);
      return;
    }
    const std::uint32_t gpus = gpus_of(a.where);
    if (a.what == verb::grow || a.what == verb::shrink) {
      REQUIRE(a.where.size() == 1);
      REQUIRE(before.size() == 1);
      REQUIRE(a.where[0].node == before[0].node);
      const std::uint32_t both = a.where[0].gpu_mask & before[0].gpu_mask;
      REQUIRE(both == (a.what == verb::grow ? before[0] : a.where[0]).gpu_mask);
      REQUIRE(a.where[0].gpu_mask != before[0].gpu_mask);
      REQUIRE(gpus >= r.gpus);
      REQUIRE(gpus <= r.max_gpus);
    } else {
      REQUIRE(gpus == r.gpus);
      REQUIRE(a.where != before);
    }
    placements[a.job] = a.where;
  }
  // No GPU has two jobs but packed pairs; what the scheduler says is what has been carried out.
  void check(const std::set<job_id>& seen) {
    std::map<std::pair<node_id, std::uint32_t>, std::vector<job_id>> on;
    for (const auto& [job, where] : placements) {
      for (const placement& p : where) {
        REQUIRE(scheduler.pool().healthy(p.node));
        for (std::uint32_t d = 0; d < scheduler.pool().gpus(p.node); ++d) {
          if ((p.gpu_mask >> d & 1) != 0) on[{p.node, d}].push_back(job);
        }
      }
    }
    for (const auto& [device, here] : on) {
      REQUIRE(here.size() <= 2);
      const job_id owner = scheduler.pool().owner(device.first, device.second);
      REQUIRE(std::find(here.begin(), here.end(), owner) != here.end());
      if (here.size() == 1) continue;
      REQUIRE(scheduler.find(here[0])->beside == here[1]);
      REQUIRE(scheduler.find(here[1])->beside == here[0]);
      REQUIRE(placements.at(here[0]) == placements.at(here[1]));
    }
    std::map<node_id, std::uint32_t> load;
    for (const auto& [job, r] : jobs) {
      const gandiva_state s = scheduler.find(job).value();
      REQUIRE(placements.contains(job) == (s.phase == gandiva::phase::run));
      if (s.server.valid()) load[s.server] += r.gpus;
      if (s.phase == gandiva::phase::run && !s.server.valid()) {
        REQUIRE(placements.at(job).size() > 1);
        for (const placement& p : placements.at(job)) load[p.node] += p.num_gpus();
      }
      if (s.phase == gandiva::phase::run && s.server.valid()) {
        REQUIRE(placements.at(job).size() == 1);
        REQUIRE(placements.at(job)[0].node == s.server);
      }
      if (s.phase != gandiva::phase::suspended || seen.contains(job) || s.beside.valid()) continue;
      REQUIRE(r.gpus > scheduler.pool().idle(s.server));  // it would run
    }
    for (const node_id n : scheduler.pool().servers()) {
      REQUIRE(scheduler.load(n) <= load[n]);  // kept pairs count once
      REQUIRE(2 * scheduler.load(n) >= load[n]);
    }
  }

  void tick(time_ms now) {
    std::vector<job_action> out;
    REQUIRE(decide(now, out).ok());
  }
  void come(std::uint32_t job, std::uint32_t gpus, time_ms now, std::uint32_t most = 0) {
    REQUIRE(submit({.job = job_id(job), .gpus = gpus, .max_gpus = most}, now).ok());
    tick(now);
  }
  void go(std::uint32_t job, time_ms now) {
    REQUIRE(finish(job_id(job), now).ok());
    tick(now);
  }
  [[nodiscard]] gandiva_state at(std::uint32_t job) const {
    return scheduler.find(job_id(job)).value();
  }
  [[nodiscard]] std::uint32_t gpus(std::uint32_t job) const {
    return placements.contains(job_id(job)) ? gpus_of(placements.at(job_id(job))) : 0;
  }
};
static_assert(JobScheduler<wary_host>);

}  // namespace

TEST_CASE("gandiva: what is not measured, and what cannot be") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  const auto code = [](gandiva_options options) {
    options.servers.gpus = {1};
    return gandiva::create(options).status().code();
  };
  CHECK(code({}) == absl::StatusCode::kOk);
  CHECK(code({.migration_cost = -1}) == invalid);
  CHECK(code({.migration_cost = max_time}) == invalid);
  CHECK(code({.max_loss = 0}) == invalid);
  CHECK(code({.max_loss = 1001}) == invalid);
  CHECK(code({.threshold = 0}) == invalid);
  CHECK(code({.idle_period = 0}) == invalid);
  wary_host host({.servers = {.gpus = {1}}, .quantum = 60});
  host.come(0, 1, 0);
  host.come(1, 1, 0);
  CHECK(host.scheduler.report(job_id(0), {500, 1, 10}, 1).ok());
  CHECK(host.scheduler.report(job_id(0), {500, 1, 0}, 1).code() == invalid);
  CHECK(host.scheduler.report(job_id(0), {500, 1, std::uint64_t{1} << 53}, 1).code() == invalid);
  CHECK(host.scheduler.report(job_id(1), {500, 1, 10}, 1).code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(host.scheduler.report(job_id(2), {500, 1, 10}, 1).code() == absl::StatusCode::kNotFound);
}

// Utilisation in thousandths, and mini-batches a second times ten of two of each model on a P40,
// in time slices and packed.
TEST_CASE("gandiva: the eight published packings, five kept and three undone") {
  const std::vector<std::tuple<std::string, std::uint32_t, std::uint64_t, std::uint64_t, bool>>
      published{{"VAE", 87, 818, 4193, true},       {"SuperResolution", 141, 403, 1452, true},
                {"RHN", 616, 101, 148, true},       {"SCRNN", 668, 167, 233, true},
                {"MI-LSTM", 762, 222, 259, true},   {"LSTM", 872, 638, 530, false},
                {"ResNet-50", 940, 103, 90, false}, {"ResNext-50", 989, 836, 744, false}};
  for (const auto& [model, utilization, sliced, packed, kept] : published) {
    const std::string name = model;
    const std::uint32_t busy = utilization;
    CAPTURE(name);
    wary_host host({.servers = {.gpus = {1}}, .quantum = 60, .packs = true});
    const auto report = [&](std::uint32_t job, std::uint64_t rate, time_ms now) {
      REQUIRE(host.scheduler.report(job_id(job), {busy, 1, rate}, now).ok());
    };
    host.come(0, 1, 0);
    host.come(1, 1, 0);
    report(0, sliced, 50);
    host.tick(60);  // job 1 is not known yet: time slices
    CHECK(host.placements.size() == 1);
    CHECK(host.gpus(1) == 1);
    report(1, sliced, 110);
    host.tick(120);
    CHECK(host.placements.size() == 2);
    CHECK(host.counts[verb::pack] == 1);
    report(0, packed / 2, 170);
    report(1, packed - packed / 2, 170);
    host.tick(180);
    CHECK(host.placements.size() == (kept ? 2 : 1));
    CHECK(host.counts[verb::unpack] == (kept ? 0 : 1));
    CHECK(host.scheduler.load(node_id(0)) == (kept ? 1 : 2));
    for (time_ms now = 240; now <= 1200; now += 60) host.tick(now);  // not tried again
    CHECK(host.counts[verb::pack] == 1);
    CHECK(host.placements.size() == (kept ? 2 : 1));
    host.go(0, 1201);
    CHECK(host.gpus(1) == 1);
    CHECK(!host.at(1).beside.valid());
    CHECK(host.scheduler.load(node_id(0)) == 1);
  }
}

TEST_CASE("gandiva: packing wants more jobs than GPUs, memory, and measurements") {
  const auto packs = [](std::uint32_t gpus, std::uint64_t memory, bool measured) {
    wary_host host({.servers = {.gpus = {gpus}}, .quantum = 60, .packs = true, .gpu_memory = 16});
    for (std::uint32_t j = 0; j < 3; ++j) host.come(j, 1, 0);
    for (time_ms now = 60; now < 1200; now += 60) {
      for (const auto& [job, where] : host.placements) {
        if (measured) REQUIRE(host.scheduler.report(job, {100, memory, 10}, now).ok());
      }
      host.tick(now);
    }
    std::uint32_t packed = 0;
    for (std::uint32_t j = 0; j < 3; ++j) packed += host.at(j).beside.valid() ? 1U : 0U;
    return packed;
  };
  CHECK(packs(2, 8, true) == 2);
  CHECK(packs(1, 8, true) == 2);  // and the third shares time slices with the two
  CHECK(packs(3, 8, true) == 0);
  CHECK(packs(2, 9, true) == 0);
  CHECK(packs(2, 8, false) == 0);
}

TEST_CASE("gandiva: a packed job gets a GPU of its own when there is one") {
  wary_host host({.servers = {.gpus = {2}}, .quantum = 60, .packs = true});
  for (std::uint32_t j = 0; j < 3; ++j) host.come(j, 1, 0);
  time_ms now = 0;
  while (host.scheduler.load(node_id(0)) == 3) {
    REQUIRE(now < 1200);
    for (const auto& [job, where] : host.placements) {
      REQUIRE(host.scheduler.report(job, {100, 1, 10}, now).ok());
    }
    host.tick(now += 60);
  }
  CHECK(host.placements.size() == 3);
  std::uint32_t alone = 0;
  while (host.at(alone).beside.valid()) ++alone;
  host.go(alone, now + 1);
  CHECK(host.actions.size() == 1);
  CHECK(host.actions[0].what == verb::migrate);
  CHECK(host.placements.size() == 2);
  for (const auto& [job, where] : host.placements) CHECK(!host.scheduler.find(job)->beside.valid());
}

TEST_CASE("gandiva: servers with three of four unsubscribed GPUs are emptied, and it ends there") {
  wary_host host({.servers = {.gpus = {4, 4, 4, 4}},
                  .quantum = 60,
                  .migrates = true,
                  .migration_cost = 2,
                  .max_loss = 50});
  for (std::uint32_t j = 0; j < 16; ++j) host.come(j, 1, 1);
  for (const std::uint32_t j : {1U, 2U, 3U, 5U, 6U, 9U, 10U, 11U}) host.go(j, 2);
  CHECK(host.actions.empty());
  host.tick(60);  // 3, 2, 3, 0 to unsubscribed: job 0 goes to server 1; then job 8 as well
  CHECK(host.at(0) == gandiva_state{gandiva::phase::run, node_id(1)});
  CHECK(host.at(8) == gandiva_state{gandiva::phase::run, node_id(1)});
  CHECK(host.counts[verb::migrate] == 2);
  CHECK(host.scheduler.load(node_id(0)) == 0);
  CHECK(host.scheduler.load(node_id(2)) == 0);
  CHECK(host.scheduler.wake() == 120);
  host.tick(120);
  CHECK(host.actions.empty());
  CHECK(host.scheduler.wake() == max_time);
  // A job that migrated at 60 loses too much if it migrates before 100.
  for (const std::uint32_t j : {4U, 7U, 8U}) host.go(j, 130);
  host.come(20, 2, 131);
  host.come(21, 4, 132);
  CHECK(host.scheduler.load(node_id(1)) == 1);
  host.tick(180);
  CHECK(host.at(0) == gandiva_state{gandiva::phase::run, node_id(0)});
}

TEST_CASE("gandiva: a job moves where most is left of use to typical jobs") {
  for (const bool pairs : {false, true}) {
    gandiva_options options{
        .servers = {.gpus = {8, 8, 8}}, .quantum = 60, .migrates = true, .threshold = 7};
    if (pairs) options.typical = task_mix({{{.gpus = 2, .gpu_milli = whole_gpu}, 1}});
    wary_host host(options);
    for (std::uint32_t j = 0; j < 24; ++j) host.come(j, 1, 1);
    std::map<node_id, std::uint32_t> left;  // 1, 6 and 5 jobs stay
    for (std::uint32_t j = 0; j < 24; ++j) {
      const node_id n = host.at(j).server;
      if (++left[n] > (n.value == 0 ? 1U : 7 - n.value)) host.go(j, 2);
    }
    REQUIRE(host.jobs.size() == 12);
    host.tick(60'000);
    CHECK(host.counts[verb::migrate] == 1);
    // It fills up two GPUs, or leaves a pair of three.
    CHECK(host.scheduler.load(node_id(1)) == (pairs ? 6 : 7));
    CHECK(host.scheduler.load(node_id(2)) == (pairs ? 6 : 5));
    CHECK(host.scheduler.load(node_id(0)) == 0);
  }
}

TEST_CASE("gandiva: a job over three servers comes together on departures") {
  wary_host host({.servers = {.gpus = {4, 4, 4}}, .quantum = 60, .migrates = true, .threshold = 4});
  for (std::uint32_t j = 0; j < 9; ++j) host.come(j, 1, 0);
  for (const std::uint32_t j : {0U, 4U, 5U}) host.go(j, 1);
  const auto spans = [&] { return host.placements.at(job_id(9)).size(); };
  host.come(9, 6, 2);
  CHECK(spans() == 3);
  host.go(1, 3);  // moved too lately
  CHECK(spans() == 3);
  host.go(2, 50'000);
  CHECK(spans() == 2);
  CHECK(host.at(9) == gandiva_state{gandiva::phase::run, node_id()});
  const int before = host.counts[verb::migrate];
  host.go(3, 200'000);  // two servers it needs
  CHECK(host.counts[verb::migrate] == before);
}

TEST_CASE("gandiva: a job grows when nothing has changed for a while, and gives way at once") {
  wary_host host({.servers = {.gpus = {4}}, .quantum = 60, .grows = true, .idle_period = 30});
  host.come(0, 1, 5, 4);
  CHECK(host.gpus(0) == 1);
  CHECK(host.scheduler.wake() == 35);
  host.tick(35);
  CHECK(host.gpus(0) == 4);
  CHECK(host.scheduler.wake() == max_time);
  host.come(1, 2, 50);  // does not grow itself
  CHECK(host.gpus(0) == 2);
  CHECK(host.gpus(1) == 2);
  host.come(2, 1, 60, 2);
  CHECK(host.gpus(0) == 1);
  host.go(1, 70);
  CHECK(host.scheduler.wake() == 100);
  host.tick(90);  // nothing happened
  CHECK(host.gpus(0) == 1);
  host.tick(100);
  CHECK(host.gpus(0) == 2);
  CHECK(host.gpus(2) == 2);
  host.go(2, 110);
  host.tick(140);
  CHECK(host.gpus(0) == 4);
  for (std::uint32_t j = 3; j < 7; ++j)
    host.come(j, 1, 150);  // one more than there are GPUs: time slices
  CHECK(host.gpus(0) == 1);
  CHECK(host.gpus(6) == 0);
  host.tick(180);
  CHECK(host.gpus(0) == 0);
  CHECK(host.gpus(6) == 1);
}

// Job 0 shrinks for a job that comes, and was to leave that server next.
TEST_CASE("gandiva: a job that shrank for a new job does not migrate in the same decision") {
  for (const bool at_once : {false, true}) {
    CAPTURE(at_once);
    wary_host host({.servers = {.gpus = {8, 8, 8}}, .migrates = true, .grows = true});
    const auto ask = [&](std::uint32_t first, std::uint32_t last, std::uint32_t gpus) {
      for (std::uint32_t job = first; job <= last; ++job) {
        const std::uint32_t most = job == 0 ? 8 : 0;
        REQUIRE(host.submit({.job = job_id(job), .gpus = gpus, .max_gpus = most}, 1).ok());
      }
    };
    const auto end = [&](const std::vector<std::uint32_t>& jobs, time_ms now) {
      for (const std::uint32_t job : jobs) REQUIRE(host.finish(job_id(job), now).ok());
    };
    ask(0, 7, 1);
    ask(8, 11, 2);
    ask(12, 12, 7);
    ask(13, 13, 1);
    host.tick(1);
    host.tick(60'000);
    end({3, 4, 5, 6, 7}, 100'000);
    for (const time_ms now : {100'000, 120'000, 160'000}) host.tick(now);
    CHECK(host.gpus(0) == 6);
    end({9, 10, 11, 13}, 170'000);
    if (at_once) host.tick(170'000);
    for (time_ms now = 180'000; now < 1'000'000; now += 60'000) host.tick(now);
    CHECK(host.counts[verb::shrink] > 0);
    CHECK(host.counts[verb::migrate] > 0);
  }
}

TEST_CASE("gandiva: random loads with everything on: every step legal, all work done") {
  std::map<verb, int> all;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gandiva_options options{.quantum = 20,
                            .packs = random.uniform(4) > 0,
                            .gpu_memory = 100,
                            .migrates = random.uniform(4) > 0,
                            .migration_cost = random.uniform(3),
                            .max_loss = 50 + random.uniform(200),
                            .threshold = 1 + random.uniform(4),
                            .grows = random.uniform(4) > 0,
                            .idle_period = 1 + random.uniform(20)};
    if (seed % 2 == 1)
      options.typical = task_mix(
          {{{.gpus = 2, .gpu_milli = whole_gpu}, 3}, {{.gpus = 4, .gpu_milli = whole_gpu}, 2}});
    options.servers.gpus.resize(2 + random.uniform(5));
    for (std::uint32_t& g : options.servers.gpus) g = 2 + random.uniform(6);
    job_list list = generate_jobs({.seed = seed,
                                   .jobs = 80,
                                   .window = 200 + random.uniform(600),
                                   .shortest = 10,
                                   .longest = 200,
                                   .sizes = {{1, 5}, {2, 3}, {4, 2}, {7, 1}}})
                        .value();
    std::erase_if(list.jobs, [&](const timed_job& j) {
      std::uint32_t total = 0;
      for (const std::uint32_t g : options.servers.gpus) total += g;
      return j.request.gpus > total;
    });
    job_list::number_by_arrival(list.jobs);
    std::vector<std::uint32_t> utilization;
    std::vector<std::uint32_t> memory;
    for (timed_job& j : list.jobs) {
      if (random.uniform(2) == 0) j.request.max_gpus = j.request.gpus + random.uniform(4);
      if (random.uniform(8) == 0) j.request.priority = 1;
      utilization.push_back(100 + random.uniform(900));
      memory.push_back(10 + random.uniform(60));
    }
    std::vector<outage> outages;
    for (time_ms at = 20; at < 400 && random.uniform(2) == 0; at += 40) {
      outages.push_back({node_id(random.uniform(2)), at, at + 30});
    }
    const auto speed = [&](const timed_job& job, const job_placement& where,
                           std::span<const job_id> others) -> std::uint32_t {
      const std::uint32_t gpus = wary_host::gpus_of(where);
      if (others.empty()) return 1000 * (gpus + 1) / (job.request.gpus + 1);
      REQUIRE(others.size() == 1);
      const std::uint32_t wanted =
          utilization[job.request.job.value] + utilization[others[0].value];
      return 800'000 / std::max(1000U, wanted);  // pays below 1.6
    };
    struct measuring_host : wary_host {
      const std::vector<timed_job>* list = nullptr;
      const std::vector<std::uint32_t>* utilization = nullptr;
      const std::vector<std::uint32_t>* memory = nullptr;
      std::map<job_id, std::uint32_t> speeds{};
      using wary_host::wary_host;
      absl::Status decide(time_ms now, std::vector<job_action>& out) {
        for (const auto& [job, where] : placements) {
          const std::uint64_t rate = std::uint64_t{speeds.at(job)} * 7;
          REQUIRE(
              scheduler.report(job, {(*utilization)[job.value], (*memory)[job.value], rate}, now)
                  .ok());
        }
        return wary_host::decide(now, out);
      }
    };
    measuring_host host(options);
    host.list = &list.jobs;
    host.utilization = &utilization;
    host.memory = &memory;
    std::map<job_id, std::pair<std::uint32_t, time_ms>> at;  // speed, and since when
    std::map<job_id, std::int64_t> work;
    const auto run = simulate(host, list.jobs, outages,
                              {.start_cost = 1, .checkpoint_interval = 1, .migration_cost = 2},
                              speed, [&](const simulation_event& e) {
                                if (!e.job.valid()) return;
                                const auto [was, from] = at[e.job];
                                work[e.job] += std::max<time_ms>(0, e.at - from) * was;
                                at[e.job] = {e.speed, e.from};
                                host.speeds[e.job] = e.speed;
                              });
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    for (const timed_job& j : list.jobs) {
      const simulation_result::job_record& r = run->jobs[j.request.job.value];
      REQUIRE(r.ended != max_time);
      const std::int64_t done = work[j.request.job];
      REQUIRE(done >= (j.duration + r.lost) * full_speed);
      // The last tick, and what less than a tick each breakdown lost.
      REQUIRE(done < (j.duration + r.lost + r.broken) * full_speed + 3000);
    }
    REQUIRE(host.scheduler.num_jobs() == 0);
    for (const auto& [what, count] : host.counts) all[what] += count;
  }
  for (const verb what : {verb::start, verb::suspend, verb::pack, verb::unpack, verb::migrate,
                          verb::grow, verb::shrink}) {
    const int number = static_cast<int>(what);
    CAPTURE(number);
    CHECK(all[what] > 0);
  }
}
