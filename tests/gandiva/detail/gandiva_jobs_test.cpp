// apiary/tests/gandiva/detail/gandiva_jobs_test.cpp - each change of a job, with its action and its GPUs.
// SPDX-License-Identifier: MIT
#include "support/gandiva_scene.h"
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <set>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using job_verb = job_action::verb;

constexpr node_id first_server(0);
constexpr node_id second_server(1);

TEST_CASE("gandiva_jobs: a job gets its time slice, and its pass is the time that it ran") {
  apiary_test::gandiva_scene s;
  s.settled(1, 2, first_server);
  CHECK(s.at(1).phase == gandiva_phase::suspended);
  CHECK(s.jobs.servers().load(first_server) == 2);
  s.decide(3, [&] { s.jobs.start(s.at(1), {s.jobs.pool().pick_idle(first_server, 2)}); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::start);
  CHECK(s.actions[0].where == s.at(1).where);
  CHECK(s.actions[0].waited[delay_cause::order] == 3);
  CHECK(s.at(1).runs());
  CHECK(s.owned_by(1) == 2);
  s.decide(8, [&] { s.jobs.suspend(s.at(1)); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::suspend);
  CHECK(s.at(1).pass == slice_pass(5, 1));
  CHECK(s.owned_by(1) == 0);
  CHECK(s.jobs.take_touched() == std::vector<node_id>{first_server});
  CHECK(s.jobs.take_touched().empty());
  // A job that comes later begins with the least pass there, not with all the time that it was away.
  s.settled(2, 1, first_server);
  CHECK(s.at(2).pass == s.at(1).pass);
}

TEST_CASE("gandiva_jobs: a job that shrinks and is stopped in one decision only stops") {
  apiary_test::gandiva_scene s;
  s.running(1, 2, first_server);
  s.decide(1, [&] { s.jobs.enlarge(s.at(1), 4); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::grow);
  CHECK(s.owned_by(1) == 4);
  s.decide(2, [&] { s.jobs.free_grown(first_server, 1); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::shrink);
  CHECK(s.actions[0].where == s.at(1).where);
  CHECK(s.owned_by(1) == 3);
  s.decide(3, [&] {
    s.jobs.free_grown(first_server, 2);
    CHECK(s.owned_by(1) == 2);
    CHECK(s.jobs.acted(s.at(1)));
    s.jobs.suspend(s.at(1));
  });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::suspend);
  CHECK(s.owned_by(1) == 0);
}

TEST_CASE("gandiva_jobs: a job begins beside those that ran least") {
  apiary_test::gandiva_scene s;
  s.running(1, 1, first_server);
  s.running(2, 1, first_server);
  s.decide(5, [&] { s.jobs.suspend(s.at(1)); });
  s.decide(9, [&] { s.jobs.suspend(s.at(2)); });
  s.settled(3, 1, first_server);
  CHECK(s.at(3).pass == slice_pass(5, 1));
}

TEST_CASE("gandiva_jobs: a job that shrinks keeps its lowest GPUs") {
  apiary_test::gandiva_scene s;
  s.running(1, 2, first_server);
  s.decide(1, [&] { s.jobs.enlarge(s.at(1), 4); });
  s.decide(2, [&] { s.jobs.free_grown(first_server, 1); });
  REQUIRE(s.at(1).where.size() == 1);
  CHECK(s.at(1).where[0].gpu_mask == 0b0111);
}

TEST_CASE("gandiva_jobs: a follower runs and stops with its leader, on its GPUs") {
  apiary_test::gandiva_scene s;
  s.settled(2, 2, first_server);
  s.running(1, 2, first_server);
  s.decide(1, [&] { s.jobs.pack(s.at(1), s.at(2)); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::pack);
  CHECK(s.at(2).where == s.at(1).where);
  CHECK(s.jobs.followers() == std::vector<job_id>{job_id(2)});
  CHECK(s.owned_by(1) == 2);
  CHECK(s.owned_by(2) == 0);
  CHECK(s.jobs.servers().load(first_server) == 4);
  s.jobs.keep(s.at(2));
  CHECK(s.jobs.servers().load(first_server) == 2);
  s.decide(2, [&] { s.jobs.suspend(s.at(1)); });
  CHECK(s.actions.size() == 2);
  CHECK(!s.at(2).runs());
  s.decide(3, [&] { s.jobs.start(s.at(1), {s.jobs.pool().pick_idle(first_server, 2)}); });
  CHECK(s.actions.size() == 2);
  CHECK(s.at(2).runs());
  SUBCASE("it gets a time slice of its own") {
    s.decide(4, [&] { s.jobs.unpack(s.at(2)); });
    REQUIRE(s.actions.size() == 1);
    CHECK(s.actions[0].what == job_verb::unpack);
    CHECK(!s.at(2).runs());
    CHECK(s.at(1).runs());
    CHECK(s.jobs.servers().load(first_server) == 4);
  }
  SUBCASE("its leader ends and leaves it the GPUs") {
    s.jobs.leave(s.at(1), 4);
    s.jobs.erase(job_id(1));
    CHECK(s.at(2).runs());
    CHECK(s.owned_by(2) == 2);
    CHECK(s.jobs.servers().load(first_server) == 2);
  }
  SUBCASE("it ends") {
    s.jobs.leave(s.at(2), 4);
    CHECK(s.at(1).runs());
    CHECK(s.owned_by(1) == 2);
  }
  CHECK(s.jobs.followers().empty());
  CHECK(!s.at(2).packed());
}

TEST_CASE("gandiva_jobs: what was measured in one pack does not count in the next") {
  apiary_test::gandiva_scene s;
  s.settled(2, 2, first_server);
  s.running(1, 2, first_server);
  s.decide(1, [&] { s.jobs.pack(s.at(1), s.at(2)); });
  s.at(1).packed_rate = 5;
  s.at(2).packed_rate = 7;
  s.decide(2, [&] { s.jobs.unpack(s.at(2)); });
  s.decide(3, [&] { s.jobs.pack(s.at(1), s.at(2)); });
  CHECK(s.at(1).packed_rate == 0);
  CHECK(s.at(2).packed_rate == 0);
}

TEST_CASE("gandiva_jobs: a job migrates, to one server or over several") {
  apiary_test::gandiva_scene s;
  s.running(1, 3, first_server);
  s.decide(1, [&] { s.jobs.migrate(s.at(1), {{second_server, 3}}); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::migrate);
  CHECK(s.at(1).home == second_server);
  CHECK(s.jobs.servers().load(first_server) == 0);
  CHECK(s.jobs.servers().load(second_server) == 3);
  CHECK(s.owned_by(1) == 3);
  s.decide(2, [&] { s.jobs.migrate(s.at(1), {{first_server, 1}, {second_server, 2}}); });
  CHECK(!s.at(1).home.valid());
  CHECK(s.jobs.dispersed() == std::vector<job_id>{job_id(1)});
  CHECK(s.jobs.servers().pinned(first_server) == 1);
  CHECK(s.jobs.servers().pinned(second_server) == 2);
  s.jobs.leave(s.at(1), 3);
  CHECK(s.at(1).phase == gandiva_phase::queued);
  CHECK(s.jobs.dispersed().empty());
  CHECK(s.jobs.servers().pinned(second_server) == 0);
  CHECK(s.owned_by(1) == 0);
}

TEST_CASE("gandiva_jobs: a job starts over several servers that have so many idle") {
  apiary_test::gandiva_scene s;
  gandiva_job& r = s.jobs.add({.job = job_id(1), .gpus = 6}, 0);
  s.decide(0, [&] { s.jobs.start_multi_server(r, {{first_server, 4}, {second_server, 2}}); });
  REQUIRE(s.actions.size() == 1);
  CHECK(s.actions[0].what == job_verb::start);
  CHECK(s.owned_by(1) == 6);
  CHECK(s.at(1).num_gpus() == 6);
  CHECK(s.jobs.servers().load(second_server) == 2);
  CHECK(s.jobs.dispersed().empty());  // no single server could hold it: it has nowhere to migrate
  s.jobs.leave(s.at(1), 1);
  CHECK(s.owned_by(1) == 0);
  CHECK(s.jobs.servers().pinned(first_server) == 0);
}

}  // namespace
