// apiary/tests/gandiva/detail/packing_test.cpp - which job is tried on the GPUs of which, and which stays there.
// SPDX-License-Identifier: MIT
#include "support/gandiva_scene.h"
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/pack_trials.h>
#include <apiary/gandiva/packing.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace packing_of_gandiva {
namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::gandiva_scene;
using verb = job_action::verb;
using indices = std::optional<std::pair<std::size_t, std::size_t>>;

constexpr node_id one(0);
constexpr node_id two(1);
constexpr std::uint64_t memory = 100;  // of a GPU

// Two jobs of two GPUs that run on the first server, and two that wait there; all were profiled.
struct crowded {
  gandiva_scene s{};
  gandiva_packing packing{2, memory};

  crowded() {
    for (const std::uint32_t job : {1U, 2U}) s.running(job, 2, one);
    for (const std::uint32_t job : {3U, 4U}) s.settled(job, 2, one);
    for (const std::uint32_t job : {1U, 2U, 3U, 4U})
      s.at(job).alone = {.utilization = 100 * job, .memory = 40, .rate = 1000};
    s.decide(1, [] {});
  }
  indices choose() {
    const std::vector<gandiva_job*> waiting{&s.at(3), &s.at(4)};
    const std::vector<gandiva_job*> running{&s.at(1), &s.at(2)};
    const auto pair = packing.choose(s.jobs, one, waiting, running);
    if (!pair) return std::nullopt;
    return std::pair(std::size_t{pair->first->request.job.value - 3},
                     std::size_t{pair->second->request.job.value - 1});
  }
  // Job 3 runs beside job 1, each at so much of what it does alone.
  void pack(std::uint64_t leader_rate, std::uint64_t guest_rate) {
    s.decide(2, [&] { s.jobs.pack(s.at(1), s.at(3)); });
    s.at(1).packed_rate = leader_rate;
    s.at(3).packed_rate = guest_rate;
  }
  void judge(time_ms now) {
    s.decide(now, [&] { packing.judge(s.jobs); });
  }
  void separate(time_ms now) {
    s.decide(now, [&] { packing.separate(s.jobs); });
  }
};

TEST_CASE("gandiva_packing: the least used job that waits beside the least used that runs") {
  crowded c;
  CHECK(c.choose() == indices({0, 0}));
  SUBCASE("if its memory fits beside") {
    c.s.at(1).alone.memory = 61;
    CHECK(c.choose() == indices({0, 1}));
    c.s.at(1).alone.memory = 60;
    CHECK(c.choose() == indices({0, 0}));
    c.s.at(1).alone.memory = memory + 1;  // nothing is left there, not very much
    CHECK(c.choose() == indices({0, 1}));
  }
  SUBCASE("if both were profiled alone") {
    c.s.at(3).alone.rate = 0;
    CHECK(c.choose() == indices({1, 0}));
    c.s.at(1).alone.rate = 0;
    CHECK(c.choose() == indices({1, 1}));
    c.s.at(2).alone.rate = 0;
    CHECK(!c.choose());
  }
  SUBCASE("if they asked for as many GPUs, are of one priority, and it has not grown") {
    c.s.at(3).request.gpus = 1;
    CHECK(c.choose() == indices({1, 0}));
    c.s.at(1).request.priority = 1;
    CHECK(c.choose() == indices({1, 1}));
    c.s.at(4).request.priority = 1;
    CHECK(c.choose() == indices({1, 0}));
    c.s.at(1).where[0].gpu_mask = 7;
    CHECK(!c.choose());
    c.s.at(1).where[0].gpu_mask = 3;
  }
  SUBCASE("not one that is packed, or that this decision has acted on") {
    c.pack(0, 0);
    CHECK(c.choose() == indices({1, 1}));
    c.s.decide(4, [&] { c.s.jobs.suspend(c.s.at(2)); });
    CHECK(!c.choose());
  }
}

TEST_CASE("gandiva_packing: two that do more together stay, others part and are not tried again") {
  crowded c;
  SUBCASE("more than in time slices") {
    c.pack(600, 401);
    c.judge(60);
    CHECK(c.s.actions.empty());
    CHECK(c.s.at(3).kept);
    c.judge(120);
    CHECK(c.s.at(3).kept);
    c.s.at(1).packed_rate = 599;  // it is asked again at each quantum
    c.judge(180);
    CHECK(!c.s.at(3).packed());
  }
  SUBCASE("as much as in time slices") {
    c.pack(600, 400);
    c.judge(60);
  }
  SUBCASE("not measured") {
    c.pack(2000, 0);
    c.judge(60);
  }
  REQUIRE(c.s.actions.size() == 1);
  CHECK(c.s.actions[0].what == verb::unpack);
  CHECK(c.s.actions[0].job == job_id(3));
  CHECK(c.s.jobs.followers().empty());
  c.s.decide(181, [] {});
  CHECK(c.choose() == indices({0, 1}));  // job 3 beside job 2 now
  gandiva_job gone;
  gone.request.job = job_id(1);
  gone.home = one;
  c.packing.forget(gone);  // it went, and another one of its name came
  CHECK(c.choose() == indices({0, 0}));
}

TEST_CASE("gandiva_packing: a job that was kept and is not measured any more stays") {
  crowded c;
  c.pack(600, 600);
  c.judge(60);
  c.s.at(1).packed_rate = 0;
  c.judge(120);
  CHECK(c.s.actions.empty());
  CHECK(c.s.at(3).kept);
}

TEST_CASE("gandiva_packing: a follower has GPUs of its own where there are enough") {
  crowded c;
  c.pack(600, 600);
  SUBCASE("on another server, while its own is over-subscribed") {
    c.separate(3);
    CHECK(c.s.at(3).home == two);
  }
  SUBCASE("on its own, a trial as soon as no job there runs in time slices") {
    c.s.running(5, 4, two);
    c.separate(3);
    CHECK(c.s.actions.empty());
    c.s.jobs.leave(c.s.at(2), 4);
    c.separate(4);
    CHECK(c.s.actions.empty());  // jobs 1, 3 and 4 want more than the server has
    c.s.jobs.leave(c.s.at(4), 5);
    c.judge(60);
    CHECK(!c.s.at(3).kept);  // it has GPUs, and need not be judged
    c.separate(60);
    CHECK(c.s.at(3).home == one);
  }
  SUBCASE("on its own, one that was kept once others have left it so many") {
    c.s.running(5, 4, two);
    c.judge(60);
    REQUIRE(c.s.at(3).kept);
    c.s.jobs.leave(c.s.at(2), 61);
    c.separate(61);
    CHECK(c.s.actions.empty());  // job 4 is to have these
    c.s.jobs.leave(c.s.at(4), 62);
    c.separate(62);
    CHECK(c.s.at(3).home == one);
  }
  REQUIRE(c.s.actions.size() == 1);
  CHECK(c.s.actions[0].what == verb::migrate);
  CHECK(c.s.actions[0].job == job_id(3));
  CHECK(!c.s.at(1).packed());
  CHECK(c.s.owned_by(1) == 2);
  CHECK(c.s.owned_by(3) == 2);
}

}  // namespace
}  // namespace packing_of_gandiva
