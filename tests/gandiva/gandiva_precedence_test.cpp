// apiary/tests/gandiva/gandiva_precedence_test.cpp - of what a decision could do, what comes first.
// SPDX-License-Identifier: MIT
#include <apiary/gandiva/gandiva.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gandiva_precedence_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;
using verb = job_action::verb;
using done_list = std::vector<std::pair<verb, std::uint32_t>>;

struct host {
  gandiva scheduler;
  std::vector<job_action> actions{};

  explicit host(const gandiva_options& options) : scheduler(gandiva::create(options).value()) {}
  void come(std::uint32_t job, std::uint32_t gpus, time_ms now, std::uint32_t most = 0) {
    REQUIRE(scheduler.submit({.job = job_id(job), .gpus = gpus, .max_gpus = most}, now).ok());
    tick(now);
  }
  void go(const std::vector<std::uint32_t>& jobs, time_ms now) {
    for (const std::uint32_t job : jobs) REQUIRE(scheduler.finish(job_id(job), now).ok());
    tick(now);
  }
  void tick(time_ms now) {
    actions.clear();
    REQUIRE(scheduler.decide(now, actions).ok());
  }
  void report(std::uint32_t job, std::uint64_t rate, time_ms now) {
    REQUIRE(scheduler.report(job_id(job), {100, 1, rate}, now).ok());
  }
  // Two jobs of a server of one GPU that share time slices from `now` on, a multiple of 60, end up packed.
  void pack(std::uint32_t first, std::uint32_t second, time_ms now, std::uint64_t together) {
    report(first, 100, now);
    tick(now + 60);
    report(second, 100, now + 60);
    tick(now + 120);
    REQUIRE(at(second).beside == job_id(first));
    report(first, together, now + 120);
    report(second, together, now + 120);
  }
  [[nodiscard]] gandiva::standing at(std::uint32_t job) const {
    return scheduler.find(job_id(job)).value();
  }
  [[nodiscard]] bool runs(std::uint32_t job) const { return at(job).phase == gandiva::phase::run; }
  [[nodiscard]] done_list done() const {
    done_list list;
    for (const job_action& a : actions) list.emplace_back(a.what, a.job.value);
    return list;
  }
};

}  // namespace

TEST_CASE("gandiva: 1 before 3: what was unpacked waits, and another job has the time slices") {
  host h({.servers = {.gpus = {1}}, .quantum = 60, .packs = true});
  h.come(0, 1, 0);
  h.come(1, 1, 0);
  h.pack(0, 1, 0, 40);
  h.tick(180);
  REQUIRE(h.actions.size() == 1);
  const std::uint32_t waits = h.runs(0) ? 1 : 0;
  CHECK(h.done() == done_list{{verb::unpack, waits}});
  CHECK(h.runs(1 - waits));
  h.tick(240);
  CHECK(h.done() == done_list{{verb::suspend, 1 - waits}, {verb::start, waits}});
}

TEST_CASE("gandiva: 2 before 4: GPUs are for a job that waits, then for one that is packed") {
  host h({.servers = {.gpus = {1, 1}}, .quantum = 60, .packs = true});
  for (std::uint32_t job = 0; job < 4; ++job) h.come(job, 1, 0);
  REQUIRE(h.at(2).server == node_id(0));
  h.pack(0, 2, 0, 80);
  h.tick(180);
  REQUIRE(h.scheduler.load(node_id(0)) == 1);
  h.come(4, 1, 190);
  REQUIRE(h.at(4).server == node_id(0));
  h.go({1, 3}, 200);
  CHECK(h.done() == done_list{{verb::start, 4}});
  CHECK(h.at(4).server == node_id(1));
  CHECK(h.at(2).beside == job_id(0));
  h.go({4}, 210);
  REQUIRE(h.actions.size() == 1);
  CHECK(h.actions[0].what == verb::migrate);
  CHECK(!h.at(2).beside.valid());
}

TEST_CASE("gandiva: 4 before 5: GPUs are for a job that is packed, then for one on two servers") {
  host h({.servers = {.gpus = {1, 2, 2}},
          .quantum = 60,
          .packs = true,
          .migrates = true,
          .migration_cost = 0});
  h.come(0, 1, 0);
  h.come(1, 1, 0);
  h.come(2, 1, 0);
  h.come(3, 2, 0);
  REQUIRE((h.runs(3) && !h.at(3).server.valid()));
  h.come(4, 1, 0);
  REQUIRE(h.at(4).server == node_id(0));
  h.pack(0, 4, 0, 80);
  h.tick(180);
  REQUIRE(h.scheduler.load(node_id(0)) == 1);
  h.go({1}, 200);
  REQUIRE(h.actions.size() == 1);
  CHECK(h.actions[0].what == verb::migrate);
  CHECK(!h.at(4).beside.valid());
  CHECK(!h.at(3).server.valid());
  h.go({2}, 210);
  CHECK(h.done() == done_list{{verb::migrate, 3}});
  CHECK(h.at(3).server == node_id(2));
}

TEST_CASE("gandiva: 5 before 6: first jobs come together, then servers are emptied") {
  host h({.servers = {.gpus = {4, 4, 4}},
          .quantum = 60,
          .migrates = true,
          .migration_cost = 5,
          .max_loss = 50});
  for (std::uint32_t job = 0; job < 12; ++job) h.come(job, 1, 0);
  h.go({7, 11}, 1);
  h.come(12, 2, 2);
  REQUIRE((h.runs(12) && !h.at(12).server.valid()));
  h.go({1, 2, 3}, 3);
  CHECK(h.actions.empty());  // they started too lately
  h.go({6}, 180);
  REQUIRE(!h.actions.empty());
  CHECK(h.done()[0] == std::pair(verb::migrate, 12U));
  CHECK(h.at(12).server.valid());
}

TEST_CASE("gandiva: 6 before 7: first servers are emptied, then jobs grow") {
  host h({.servers = {.gpus = {4, 4}},
          .quantum = 60,
          .migrates = true,
          .migration_cost = 0,
          .grows = true,
          .idle_period = 30});
  for (std::uint32_t job = 0; job < 8; ++job) h.come(job, 1, 0, job == 0 ? 4 : 0);
  h.go({1, 2, 3, 5}, 30);
  REQUIRE(h.scheduler.wake() == 60);
  h.tick(60);
  CHECK(h.done() == done_list{{verb::migrate, 0}});
  CHECK(h.at(0).server == node_id(1));
  host no_moves({.servers = {.gpus = {4, 4}}, .quantum = 60, .grows = true, .idle_period = 30});
  for (std::uint32_t job = 0; job < 8; ++job) no_moves.come(job, 1, 0, job == 0 ? 4 : 0);
  no_moves.go({1, 2, 3, 5}, 30);
  no_moves.tick(60);
  CHECK(no_moves.done() == done_list{{verb::grow, 0}});
}

}  // namespace gandiva_precedence_tests
