// apiary/tests/gandiva/detail/moves_test.cpp - which jobs migrate or grow under Gandiva, and when.
// SPDX-License-Identifier: MIT
#include "support/gandiva_scene.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace moves_of_gandiva {
namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::gandiva_scene;
using verb = job_action::verb;

constexpr node_id one(0);
constexpr node_id two(1);
constexpr node_id three(2);

TEST_CASE("gandiva_migration: a job over two servers comes together once it has rested") {
  const gandiva_migration moves(3, 10, {});
  gandiva_scene s({4, 4, 2});
  s.running(1, 2, one);
  s.jobs.add({.job = job_id(2), .gpus = 4}, 0);
  s.decide(0, [&] { s.jobs.start_multi_server(s.at(2), {{one, 2}, {two, 2}}); });
  s.decide(9, [&] { moves.consolidate(s.jobs, 9); });
  CHECK(s.actions.empty());
  s.decide(10, [&] { moves.consolidate(s.jobs, 10); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == verb::migrate);
  CHECK(s.actions[0].job == job_id(2));
  CHECK(s.at(2).home == two);
  CHECK(s.at(2).moved == 10);
  CHECK(s.owned_by(2) == 4);
  s.decide(99, [&] { moves.consolidate(s.jobs, 99); });
  CHECK(s.actions.empty());
}

TEST_CASE("gandiva_migration: what others have is not gathered on") {
  const gandiva_migration moves(3, 0, {});
  gandiva_scene s;
  s.running(1, 1, one);
  s.running(3, 1, two);
  s.jobs.add({.job = job_id(2), .gpus = 4}, 0);
  s.decide(0, [&] { s.jobs.start_multi_server(s.at(2), {{one, 2}, {two, 2}}); });
  s.decide(5, [&] { moves.consolidate(s.jobs, 5); });
  CHECK(s.actions.empty());
  CHECK(s.jobs.dispersed() == std::vector<job_id>{job_id(2)});
}

TEST_CASE("gandiva_migration: the GPUs that one job leaves are for the next one") {
  const gandiva_migration moves(3, 0, {});
  gandiva_scene s({8, 8, 8});
  s.running(1, 4, three);
  // Each of the first two servers has two unsubscribed GPUs.
  s.jobs.add({.job = job_id(2), .gpus = 8}, 0);
  s.jobs.add({.job = job_id(3), .gpus = 8}, 0);
  s.decide(0, [&] {
    s.jobs.start_multi_server(s.at(2), {{one, 6}, {two, 2}});
    s.jobs.start_multi_server(s.at(3), {{two, 4}, {three, 4}});
  });
  s.decide(5, [&] { moves.consolidate(s.jobs, 5); });
  CHECK(s.actions.size() == 2);
  CHECK(s.at(2).home == one);
  CHECK(s.at(3).home == two);
}

// The migration looks only at some servers, and only if the job can run on fewer.
TEST_CASE("gandiva_migration: a job over several servers goes where consolidate() puts it") {
  std::uint64_t moved = 0;
  std::uint64_t stayed = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(4'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> sizes(3 + random.uniform(6));
    for (std::uint32_t& gpus : sizes) gpus = 2 + random.uniform(7);
    gandiva_scene s(sizes);
    gpus_by_server split;
    std::vector<std::uint32_t> own(sizes.size());
    std::uint32_t gpus = 0;
    for (std::uint32_t n = 0; n < sizes.size(); ++n) {
      const std::uint32_t used = random.uniform(sizes[n] + 1);
      if (used > 0) s.running(10 + n, used, node_id(n));
      const std::uint32_t held = random.uniform(sizes[n] - used + 1);
      if (held == 0 || random.uniform(2) == 0) continue;
      split.emplace_back(node_id(n), held);
      own[n] = held;
      gpus += held;
    }
    if (split.size() < 2) continue;
    s.jobs.add({.job = job_id(2), .gpus = gpus}, 0);
    s.decide(0, [&] { s.jobs.start_multi_server(s.at(2), split); });
    std::vector<server_capacity> servers;
    for (std::uint32_t n = 0; n < sizes.size(); ++n)
      servers.push_back({node_id(n), sizes[n], s.jobs.servers().unsubscribed(node_id(n)), own[n]});
    const gpus_by_server to = consolidate(servers);
    s.decide(5, [&] { gandiva_migration(3, 0, {}).consolidate(s.jobs, 5); });
    REQUIRE(s.actions.size() == (to.empty() ? 0 : 1));
    ++(to.empty() ? stayed : moved);
    if (to.empty()) continue;
    gpus_by_server went;
    for (const placement& p : s.actions[0].where) went.emplace_back(p.node, p.num_gpus());
    REQUIRE(went == to);
  }
  CHECK(moved > 0);
  CHECK(stayed > 0);
}

TEST_CASE(
    "gandiva_migration: servers with the threshold to unsubscribed are emptied, the rested jobs of "
    "them") {
  gandiva_scene s({4, 4, 4});
  s.running(1, 1, one);
  s.running(2, 2, two);
  s.running(3, 2, three);
  bool more = false;
  const auto defragment = [&](std::uint32_t threshold, time_ms rest, time_ms now) {
    const gandiva_migration moves(threshold, rest, {});
    s.decide(now, [&] { more = moves.defragment(s.jobs, now); });
  };
  defragment(4, 0, 1);  // no server in use has so many
  CHECK(s.actions.empty());
  CHECK(!more);
  defragment(3, 10, 9);  // it may once it has rested
  CHECK(s.actions.empty());
  CHECK(more);
  defragment(3, 10, 10);
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == verb::migrate);
  CHECK(s.actions[0].job == job_id(1));
  CHECK(more);
  CHECK(s.at(1).home == two);
  CHECK(s.jobs.servers().load(one) == 0);
  defragment(2, 0, 11);  // job 3 fits nowhere but on the idle server
  CHECK(s.actions.empty());
  CHECK(!more);
}

TEST_CASE("gandiva_migration: packed jobs and those of a broken server stay") {
  for (const bool packed : {true, false}) {
    CAPTURE(packed);
    gandiva_scene s;
    s.running(1, 1, one);
    s.running(3, 2, two);
    if (packed) {
      s.settled(2, 1, one);
      s.decide(1, [&] { s.jobs.pack(s.at(1), s.at(2)); });
      s.jobs.keep(s.at(2));
    } else {
      s.jobs.set_health(one, false);
    }
    bool more = true;
    s.decide(2, [&] { more = gandiva_migration(3, 0, {}).defragment(s.jobs, 2); });
    CHECK(s.actions.empty());
    CHECK(!more);
  }
}

TEST_CASE(
    "gandiva_growth: idle GPUs go to jobs of their server that may grow, a period after a change") {
  gandiva_scene s;
  gandiva_growth growth(10);
  CHECK(growth.next() == max_time);
  s.running(1, 1, one);
  growth.watch(s.jobs, one, 3);
  growth.watch(s.jobs, two, 3);  // no job is there
  CHECK(growth.next() == 13);
  s.decide(12, [&] { growth.grow(s.jobs, 12); });
  CHECK(s.actions.empty());
  s.running(2, 1, one);
  growth.watch(s.jobs, one, 12);  // the time begins anew
  CHECK(growth.next() == 22);
  s.decide(22, [&] { growth.grow(s.jobs, 22); });
  CHECK(s.actions.size() == 2);
  CHECK(s.owned_by(1) == 2);
  CHECK(s.owned_by(2) == 2);
  CHECK(growth.next() == max_time);
  growth.watch(s.jobs, one, 23);  // nothing is idle there
  CHECK(growth.next() == max_time);
  s.jobs.leave(s.at(2), 24);
  growth.watch(s.jobs, one, 24);
  CHECK(growth.next() == 34);
  s.settled(3, 4, one);
  growth.watch(s.jobs, one, 25);  // a job that waits there is to have them
  CHECK(growth.next() == max_time);
}

}  // namespace
}  // namespace moves_of_gandiva
