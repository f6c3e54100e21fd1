// apiary/tests/examples/slurm_scheduler_test.cpp - the scheduler for Slurm, without Slurm.
// SPDX-License-Identifier: MIT
#include "../../examples/hosts/slurm/slurm_scheduler.h"

#include "../../examples/hosts/slurm/gang_decider.h"
#include "../../examples/hosts/slurm/slurm_records.h"
#include "support/fake_slurm.h"
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using apiary_slurm::action;
using apiary_slurm::job_phase;
using apiary_slurm::job_record;
using apiary_slurm::node_record;
using apiary_test::calls;
using apiary_test::fake_slurm;
using apiary_test::slurm_topology;
using slurm_scheduler = apiary_slurm::slurm_scheduler<apiary_slurm::gang_decider>;

slurm_scheduler new_scheduler(const fake_slurm& slurm) {
  auto cluster = apiary_slurm::cluster_of(slurm_topology, slurm.nodes);
  REQUIRE(cluster.ok());
  auto gangs = apiary::gang_scheduler::create(*cluster);
  REQUIRE(gangs.ok());
  return slurm_scheduler(apiary_slurm::gang_decider(*std::move(gangs)));
}
using text_list = std::vector<std::string>;

}  // namespace

TEST_CASE("slurm: GPUs, models and priorities are read from Slurm's texts") {
  using apiary_slurm::gpus_of;
  CHECK(gpus_of("") == 0);
  CHECK(gpus_of("gres:gpu:8") == 8);
  CHECK(gpus_of("gres/gpu:8") == 8);
  CHECK(gpus_of("gres/gpu:v100:4") == 4);
  CHECK(gpus_of("gres:gpu") == 1);
  CHECK(gpus_of("gres:gpu:v100") == 1);
  CHECK(gpus_of("nic:2,gpu:v100:2(IDX:0,3),gpu:a100:1(IDX:5)") == 3);
  CHECK(gpus_of("gpuless:3") == 0);
  CHECK_FALSE(gpus_of("gpu:").has_value());
  CHECK_FALSE(gpus_of("gpu:9999999").has_value());
  CHECK_FALSE(gpus_of("gpu:99999999999").has_value());
  CHECK(apiary_slurm::model_of("gpu:v100:8(S:0-1)") == "v100:");
  CHECK(apiary_slurm::model_of("gpu:8(S:0-1)").empty());
  CHECK(apiary_slurm::model_of("nic:1").empty());
  CHECK(apiary_slurm::priority_of("") == 0);
  CHECK(apiary_slurm::priority_of("priority=7") == 7);
  CHECK(apiary_slurm::priority_of("priority=-1; waits") == -1);
  CHECK(apiary_slurm::priority_of("priority=x") == 0);
  CHECK(apiary_slurm::priority_of(apiary_slurm::comment_with(-3, "released")) == -3);
}

TEST_CASE("slurm: nodes and switches become a cluster with racks") {
  const fake_slurm slurm;
  const auto cluster = apiary_slurm::cluster_of(slurm_topology, slurm.nodes);
  REQUIRE(cluster.ok());
  REQUIRE(cluster->nodes.size() == 4);
  CHECK(cluster->levels == text_list{"rack", "block"});
  CHECK(cluster->nodes[3].cells == text_list{"rack1", "spine"});
  CHECK(cluster->nodes[3].gpus == 8);
  CHECK(cluster->nodes[3].model == "v100");
  CHECK(cluster->nodes[3].labels == text_list{"fast"});
  const auto flat = apiary_slurm::cluster_of("No topology information available\n", slurm.nodes);
  REQUIRE(flat.ok());
  CHECK(flat->levels.empty());
  CHECK_FALSE(apiary_slurm::cluster_of("", {{.name = "n0", .gres = "gpu:x:"}}).ok());
}

TEST_CASE("slurm: the comment of a job that cannot be decided says why") {
  fake_slurm slurm;
  slurm.submit(1, 1, 8).several = true;
  slurm.submit(2, 1, 8).other_gpus = "gres:gpu:4";
  slurm.submit(3, 1, 8).exclusive = true;
  slurm.submit(4, 1, 8).dependency = "afterok:3";
  slurm.submit(5, 1, 0);
  slurm.submit(6, 1, 8).features = "a|b";
  slurm.submit(7, 1, 8).switches = 2;
  slurm.submit(8, 1, 8).features = "slow";
  slurm.submit(9, 3, 8).switches = 1;
  slurm_scheduler scheduler = new_scheduler(slurm);
  const auto refused = calls(scheduler, slurm);
  REQUIRE(refused.size() == 9);
  CHECK(refused[0].find("job arrays") != std::string::npos);
  CHECK(refused[1].find("use -N and --gpus-per-node") != std::string::npos);
  CHECK(refused[2].find("--exclusive") != std::string::npos);
  CHECK(refused[3].find("afterok:3") != std::string::npos);
  CHECK(refused[4].find("no number of GPUs") != std::string::npos);
  CHECK(refused[5].find("a|b") != std::string::npos);
  CHECK(refused[6].find("N = 1") != std::string::npos);
  CHECK(refused[7].find("slow") != std::string::npos);
  CHECK(refused[8].find("rack") != std::string::npos);
  CHECK(calls(scheduler, slurm).empty());  // said once
}

TEST_CASE("slurm: only a job that the scheduler has released counts as released") {
  using apiary_slurm::pending_phase;
  CHECK(pending_phase(0, "", "") == job_phase::held);
  CHECK(pending_phase(0, "n3", "priority=5; released") == job_phase::held);
  CHECK(pending_phase(7, "n3", apiary_slurm::released_comment(5)) == job_phase::released);
  CHECK(pending_phase(7, "n[0-3]", "priority=-1; released") == job_phase::released);
  // -w without -H, also with --begin: the job is the user's
  CHECK(pending_phase(7, "n3", "") == job_phase::queued);
  CHECK(pending_phase(7, "n3", "priority=5") == job_phase::queued);
  CHECK(pending_phase(7, "n3", "priority=5; needs 1 rack") == job_phase::queued);
  CHECK(pending_phase(7, "n3", "my data is released") == job_phase::queued);
  CHECK(pending_phase(7, "", "priority=5; released") == job_phase::queued);
}

TEST_CASE("slurm: a release marks its job") {
  fake_slurm slurm;
  slurm.submit(1, 1, 8, 5);
  slurm_scheduler scheduler = new_scheduler(slurm);
  const auto todo = scheduler.round(slurm.nodes, slurm.jobs, 0);
  REQUIRE(todo.size() == 1);
  CHECK(todo[0].what == action::kind::release);
  CHECK(apiary_slurm::has_released_mark(todo[0].comment));
}

TEST_CASE("slurm: jobs that Slurm decides about are left alone") {
  fake_slurm slurm;
  slurm_scheduler scheduler = new_scheduler(slurm);
  // One waits for its node and for its begin; one runs on another node.
  job_record& waits = slurm.submit(1, 1, 8);
  waits.phase = apiary_slurm::pending_phase(7, "n3", waits.comment);
  waits.stuck = true;
  slurm.run_on("n2", 2, "8(IDX:0-7)").comment = "priority=-1";
  CHECK(calls(scheduler, slurm).empty());
  const apiary::time_ms later = 10 * slurm_scheduler::patience;
  CHECK(calls(scheduler, slurm, later).empty());
  // The GPUs of the running job count, and no priority preempts it.
  slurm.submit(3, 4, 8, 2'000'000'000);
  const auto refused = calls(scheduler, slurm, later);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].find("3 priority=2000000000; ") == 0);
  slurm.submit(4, 3, 8);
  CHECK(calls(scheduler, slurm, later) == text_list{"4 release n0 n1 n3"});
}

TEST_CASE("slurm: owners preempt guests, which come back") {
  fake_slurm slurm;
  slurm.submit(1, 4, 8, -1);
  slurm_scheduler scheduler = new_scheduler(slurm);
  CHECK(calls(scheduler, slurm) == text_list{"1 release n0 n1 n2 n3"});
  slurm.start(1);
  CHECK(calls(scheduler, slurm).empty());
  slurm.submit(2, 2, 8, 5).switches = 1;
  CHECK(calls(scheduler, slurm) ==
        text_list{"1 requeue", "2 priority=5; waits for the end of jobs 1"});
  slurm.job(1).phase = job_phase::ending;
  CHECK(calls(scheduler, slurm, 100).empty());
  slurm.job(1).phase = job_phase::held;
  const auto next = calls(scheduler, slurm, 200);
  REQUIRE(next.size() == 2);
  CHECK(next[0] == "2 release n0 n1");
  CHECK(next[1].find("1 priority=-1; ") == 0);
  slurm.start(2);
  CHECK(calls(scheduler, slurm, 300).empty());
  slurm.job(2).phase = job_phase::ended;
  CHECK(calls(scheduler, slurm, 400) == text_list{"1 release n0 n1 n2 n3"});
}

TEST_CASE("slurm: a job that is changed while its victims end is decided anew") {
  fake_slurm slurm;
  slurm.submit(1, 4, 8, -1);
  slurm_scheduler scheduler = new_scheduler(slurm);
  (void)calls(scheduler, slurm);
  slurm.start(1);
  slurm.submit(2, 2, 8, 5);
  (void)calls(scheduler, slurm);
  REQUIRE(scheduler.decider().state(2) == apiary_slurm::gang_state::preempting);
  slurm.job(1).phase = job_phase::ending;
  slurm.job(2).num_nodes = slurm.job(2).cpus = 1;
  CHECK(calls(scheduler, slurm, 100).empty());
  CHECK(scheduler.decider().state(2) == apiary_slurm::gang_state::none);
  (void)calls(scheduler, slurm, 200);
  CHECK(scheduler.decider().state(2) == apiary_slurm::gang_state::preempting);
  slurm.job(1).phase = job_phase::held;
  const auto next = calls(scheduler, slurm, 300);
  REQUIRE(!next.empty());
  CHECK(next[0] == "2 release n0");
}

TEST_CASE("slurm: a victim that was not requeued is requeued again") {
  fake_slurm slurm;
  slurm.submit(1, 4, 8, -1);
  slurm_scheduler scheduler = new_scheduler(slurm);
  (void)calls(scheduler, slurm);
  slurm.start(1);
  slurm.submit(2, 1, 8, 5);
  (void)scheduler.round(slurm.nodes, slurm.jobs, 0);  // the calls are lost
  CHECK(scheduler.round(slurm.nodes, slurm.jobs, slurm_scheduler::repeat - 1).empty());
  CHECK(calls(scheduler, slurm, slurm_scheduler::repeat) == text_list{"1 requeue"});
}

TEST_CASE("slurm: a requeued job does not start again in the same second") {
  fake_slurm slurm;
  slurm.submit(1, 1, 8).restarts = 1;
  slurm_scheduler scheduler = new_scheduler(slurm);
  CHECK(calls(scheduler, slurm, 5).empty());
  CHECK(calls(scheduler, slurm, 4 + slurm_scheduler::settle).empty());
  CHECK(calls(scheduler, slurm, 5 + slurm_scheduler::settle) == text_list{"1 release n0"});
}

TEST_CASE("slurm: a release that Slurm cannot honour is taken back") {
  fake_slurm slurm;
  slurm.submit(1, 1, 8);
  slurm_scheduler scheduler = new_scheduler(slurm);
  CHECK(calls(scheduler, slurm) == text_list{"1 release n0"});
  SUBCASE("its node drains") {
    slurm.nodes[0].usable = false;
    CHECK(calls(scheduler, slurm) == text_list{"1 take back"});
    CHECK(calls(scheduler, slurm) == text_list{"1 release n1"});
  }
  SUBCASE("Slurm says that it cannot start") {
    slurm.job(1).stuck = true;
    CHECK(calls(scheduler, slurm) == text_list{"1 take back"});
  }
  SUBCASE("it does not start") {
    CHECK(calls(scheduler, slurm, slurm_scheduler::patience).empty());
    CHECK(calls(scheduler, slurm, slurm_scheduler::patience + 1) == text_list{"1 take back"});
  }
  SUBCASE("it is cancelled before the release arrives") {
    slurm.submit(2, 4, 8);
    CHECK(calls(scheduler, slurm).size() == 1);  // a comment
    slurm.job(1).phase = job_phase::ended;
    scheduler.release_failed(1);
    CHECK(calls(scheduler, slurm) == text_list{"2 release n0 n1 n2 n3"});
  }
  SUBCASE("a job that Slurm started is in the way") {
    slurm.run_on("n0", 2, "1(IDX:0)");
    CHECK(calls(scheduler, slurm) == text_list{"1 take back"});
    CHECK(calls(scheduler, slurm) == text_list{"1 release n1"});
  }
}

TEST_CASE("slurm: after a restart it goes on where it was") {
  fake_slurm slurm;
  slurm.submit(1, 2, 8, -1);
  slurm.submit(2, 1, 4);
  slurm.submit(3, 1, 2);
  slurm_scheduler first = new_scheduler(slurm);
  (void)calls(first, slurm);
  slurm.start(1);
  slurm.start(2);  // job 3 is released, and has not started
  slurm.nodes[3].usable = false;
  (void)calls(first, slurm);

  slurm_scheduler second = new_scheduler(slurm);
  CHECK(calls(second, slurm).empty());
  CHECK(second.decider().cluster().num_gangs() == 3);
  for (apiary::level_t level = 0; level < 3; ++level)
    CHECK(*second.decider().cluster().free_capacity(level) ==
          *first.decider().cluster().free_capacity(level));
  slurm.submit(4, 1, 8, 5);
  fake_slurm same = slurm;
  CHECK(calls(second, slurm) == calls(first, same));
}
