// apiary/tests/examples/slurm_tenants_test.cpp - the scheduler for Slurm with tenants, without Slurm.
// SPDX-License-Identifier: MIT
#include "../../examples/hosts/slurm/slurm_records.h"
#include "../../examples/hosts/slurm/slurm_scheduler.h"
#include "../../examples/hosts/slurm/tenant_decider.h"
#include "../../examples/hosts/slurm/tenants_file.h"
#include "support/fake_slurm.h"
#include "support/scale.h"
#include <apiary/core/rng.h>

#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using apiary_slurm::configuration_of;
using apiary_slurm::job_phase;
using apiary_slurm::job_record;
using apiary_slurm::read_tenants;
using apiary_slurm::tenant_decider;
using apiary_test::calls;
using apiary_test::fake_slurm;
using tenant_scheduler = apiary_slurm::slurm_scheduler<tenant_decider>;
using call_list = std::vector<std::string>;

constexpr const char* two_owners = "Account=red Racks=1\nAccount=blue Racks=1\nAccount=guest\n";

absl::StatusOr<tenant_decider> decider_for(
    const fake_slurm& slurm, const std::string& tenants,
    const std::string& topology = apiary_test::slurm_topology) {
  const auto cluster = apiary_slurm::cluster_of(topology, slurm.nodes);
  REQUIRE(cluster.ok());
  const auto read = read_tenants(tenants);
  if (!read.ok()) return read.status();
  return tenant_decider::create(*cluster, *read);
}
tenant_scheduler scheduler_for(const fake_slurm& slurm, const std::string& tenants = two_owners) {
  auto decider = decider_for(slurm, tenants);
  REQUIRE(decider.ok());
  return tenant_scheduler(*std::move(decider));
}
job_record& submit(fake_slurm& slurm, std::uint32_t id, const char* account, std::uint32_t nodes,
                   int gpus, int priority = 0) {
  job_record& job = slurm.submit(id, nodes, gpus, priority);
  job.account = account;
  return job;
}
// What a refused file or cluster says.
std::string fault_of(const std::string& tenants, const fake_slurm& slurm = {},
                     const std::string& topology = apiary_test::slurm_topology) {
  const auto decider = decider_for(slurm, tenants, topology);
  return decider.ok() ? "" : std::string(decider.status().message());
}

}  // namespace

TEST_CASE("slurm: a tenants file is read, and faults are reported with their line") {
  const auto read =
      read_tenants("# who owns what\n\nAccount=red\tRacks=1 Nodes=2\r\nAccount=guest # nothing\n");
  REQUIRE(read.ok());
  REQUIRE(read->size() == 2);
  CHECK((*read)[0] == apiary_slurm::tenant_quota{.account = "red", .racks = 1, .nodes = 2});
  CHECK((*read)[1].account == "guest");
  CHECK(fault_of("Account=red\nRacks=1\n") == "tenants, line 2: it names no account");
  CHECK(fault_of("Account=red Racks=x\n") == "tenants, line 1: \"Racks=x\" has no number");
  CHECK(fault_of("Account=red Racks=-1\n") == "tenants, line 1: \"Racks=-1\" has no number");
  CHECK(fault_of("\nAccount=red GPUs=8\n") ==
        "tenants, line 2: \"GPUs=8\" is not known; known are Account, Racks, Nodes and Model");
  CHECK(fault_of("Account=red Nodes=1\nAccount=red Nodes=1\n") ==
        "tenants, line 2: account red has a line for this model already");
  CHECK(fault_of("Account=red Racks=1 Model=h100\n") ==
        "account red: the cluster has no GPUs of model h100");
  CHECK(fault_of("Account=red Racks=3\n").find("3 cells of type \"v100-rack\" are requested") !=
        std::string::npos);
  CHECK(fault_of(two_owners).empty());
}

TEST_CASE("slurm: racks of a model must be equal for tenants") {
  fake_slurm slurm;
  slurm.nodes[3].gres = "gpu:v100:4";
  CHECK(fault_of(two_owners, slurm) ==
        "node n3 has 4 GPUs of model v100, node n2 has 8: tenants need equal nodes");
  slurm.nodes[2].gres = "gpu:v100:4";
  CHECK(fault_of(two_owners, slurm) ==
        "rack rack0 has 2 nodes with 8 GPUs of model v100, rack rack1 has 2 with 4: tenants need "
        "equal "
        "racks");
  for (const int n : {2, 3}) slurm.nodes[static_cast<std::size_t>(n)].gres = "gpu:a100:4";
  CHECK(fault_of(two_owners, slurm) == "account red names no model; the cluster has 2");
  CHECK(
      fault_of("Account=red Racks=1 Model=v100\nAccount=red Nodes=1 Model=a100\n", slurm).empty());
  slurm.nodes[3].gres = "";  // not a GPU node
  CHECK(
      fault_of("Account=red Racks=1 Model=v100\nAccount=red Nodes=1 Model=a100\n", slurm).empty());
  slurm.nodes[2].gres = "gpu:a100_1g.5gb:4";
  CHECK(fault_of("Account=red Nodes=1 Model=a100_1g.5gb\n", slurm) ==
        "node n2 has GPUs of model a100_1g.5gb: tenants need models without a dot, which separates "
        "types of cells");
  for (apiary_test::node_record& node : slurm.nodes) node.gres = "";
  CHECK(fault_of(two_owners, slurm) == "the cluster has no node with GPUs");
  // without switches
  CHECK(fault_of(two_owners, {}, "") == "account red owns racks; the cluster has no switches");
  CHECK(fault_of("Account=red Nodes=3\n", {}, "").empty());
}

TEST_CASE("slurm: accounts run on their own racks, guests on what is idle") {
  fake_slurm slurm;
  submit(slurm, 1, "guest", 4, 8, -1);
  tenant_scheduler scheduler = scheduler_for(slurm);
  CHECK(calls(scheduler, slurm) == call_list{"1 release n0 n1 n2 n3"});
  CHECK(slurm.job(1).comment == "priority=-1; released; cells=4xff");
  slurm.start(1);
  submit(slurm, 2, "red", 2, 8).switches = 1;
  CHECK(calls(scheduler, slurm) ==
        call_list{"1 requeue", "2 priority=0; waits for the end of jobs 1"});
  slurm.job(1).phase = job_phase::ending;
  CHECK(calls(scheduler, slurm, 100).empty());
  slurm.job(1).phase = job_phase::held;
  const auto next = calls(scheduler, slurm, 200);
  REQUIRE(next.size() == 2);
  CHECK(next[0] == "2 release n0 n1");
  CHECK(next[1].find("1 priority=-1; waits for idle GPUs: ") == 0);
  CHECK(slurm.job(2).comment == "priority=0; released; cells=2xff.2");
  // The rack of the other account is not red's, even while it is idle.
  submit(slurm, 3, "red", 1, 1);
  slurm.start(2);
  const auto waits = calls(scheduler, slurm, 300);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].find("3 priority=0; waits for the GPUs of account red: ") == 0);
  submit(slurm, 4, "blue", 2, 8);
  CHECK(calls(scheduler, slurm, 400)[0] == "4 release n2 n3");
}

TEST_CASE("slurm: the comment of a job that its tenant cannot run says why") {
  fake_slurm slurm;
  submit(slurm, 1, "red", 3, 8);
  submit(slurm, 2, "stranger", 1, 8);
  submit(slurm, 3, "red", 1, 8, 1001);
  submit(slurm, 4, "red", 1, 8, -2);
  submit(slurm, 5, "guest", 1, 8);
  submit(slurm, 6, "red", 1, 8).features = "slow";
  submit(slurm, 7, "guest", 5, 8, -1).switches = 1;
  submit(slurm, 8, "", 1, 8);
  tenant_scheduler scheduler = scheduler_for(slurm);
  call_list said;
  for (int i = 0; i < 8; ++i)
    for (const std::string& call : calls(scheduler, slurm, i)) said.push_back(call);
  const auto about = [&](const char* job) {
    for (const std::string& call : said)
      if (call.find(job) == 0) return call;
    return std::string();
  };
  CHECK(about("1 ") ==
        "1 priority=0; waits for the GPUs of account red: it would not fit even if all that it may "
        "use "
        "were idle and healthy; the gang needs 3 free nodes of 8 GPUs; the quota of account red "
        "has 2");
  CHECK(about("2 ") == "2 priority=0; account \"stranger\" is not in the tenants file");
  CHECK(about("3 ") == "3 priority=1001; priority 1001 is not from -1 to 1000");
  CHECK(about("4 ") == "4 priority=-2; priority -2 is not from -1 to 1000");
  CHECK(about("5 ").find("has no cells") != std::string::npos);
  CHECK(about("6 ").find("not on the suggested nodes") != std::string::npos);
  CHECK(about("7 ").find("rack0") != std::string::npos);
  CHECK(about("8 ") == "8 priority=0; account \"\" is not in the tenants file");
}

TEST_CASE("slurm: with tenants, jobs that Slurm decides about keep their GPUs") {
  fake_slurm slurm;
  job_record& running = slurm.run_on("n0", 1, "8(IDX:0-7)");
  running.account = "red";
  running.comment = "priority=-1";
  tenant_scheduler scheduler = scheduler_for(slurm);
  CHECK(calls(scheduler, slurm).empty());
  // Both accounts still get a whole rack only where no such job runs.
  submit(slurm, 2, "red", 2, 8, 1000);
  CHECK(calls(scheduler, slurm) == call_list{"2 release n2 n3"});
  slurm.start(2);
  submit(slurm, 3, "blue", 2, 8, 1000);
  const auto waits = calls(scheduler, slurm, 1);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].find("if all nodes and GPUs were healthy") != std::string::npos);
  // Its node is down for a moment: the GPUs stay in use.
  slurm.nodes[0].usable = false;
  CHECK(calls(scheduler, slurm, 2).empty());
  slurm.nodes[0].usable = true;
  CHECK(calls(scheduler, slurm, 3).empty());
  slurm.job(1).phase = job_phase::ended;
  CHECK(calls(scheduler, slurm, 4) == call_list{"3 release n0 n1"});
}

TEST_CASE("slurm: with tenants, a release that Slurm cannot honour is taken back") {
  fake_slurm slurm;
  submit(slurm, 1, "red", 1, 8);
  tenant_scheduler scheduler = scheduler_for(slurm);
  CHECK(calls(scheduler, slurm) == call_list{"1 release n0"});
  SUBCASE("its node drains") {
    slurm.nodes[0].usable = false;
    CHECK(calls(scheduler, slurm) == call_list{"1 take back"});
    CHECK(calls(scheduler, slurm, 1) ==
          call_list{"1 release n2"});  // of the rack without bad nodes
  }
  SUBCASE("it is cancelled before the release arrives") {
    submit(slurm, 2, "red", 2, 8);
    CHECK(calls(scheduler, slurm).size() == 1);  // a comment
    slurm.job(1).phase = job_phase::ended;
    scheduler.release_failed(1);
    CHECK(calls(scheduler, slurm) == call_list{"2 release n0 n1"});
  }
  SUBCASE("a job that Slurm started is in the way") {
    slurm.run_on("n0", 2, "1(IDX:0)");
    CHECK(calls(scheduler, slurm) == call_list{"1 take back"});
    const auto next = calls(scheduler, slurm, 1);
    REQUIRE(next.size() == 1);
    CHECK(next[0].find("1 release ") == 0);
    CHECK(next[0] != "1 release n0");
  }
}

TEST_CASE("slurm: a preempting job whose reserved node fails is decided anew") {
  fake_slurm slurm;
  submit(slurm, 1, "guest", 4, 8, -1);
  tenant_scheduler scheduler = scheduler_for(slurm);
  (void)calls(scheduler, slurm);
  slurm.start(1);
  submit(slurm, 2, "red", 1, 8);
  CHECK(calls(scheduler, slurm, 1).size() == 2);
  slurm.job(1).phase = job_phase::ending;
  slurm.nodes[0].usable = false;
  (void)calls(scheduler, slurm, 2);
  slurm.job(1).phase = job_phase::held;
  bool released = false;
  for (int round = 3; round < 6; ++round)
    for (const std::string& call : calls(scheduler, slurm, round))
      released = released || (call.find("2 release n") == 0 && call != "2 release n0");
  CHECK(released);
}

// Two schedulers see the same jobs; one is killed now and then, and another one begins with its snapshot.
// They must make the same calls.
TEST_CASE("slurm: with tenants, a scheduler that begins again decides as before") {
  int restarts = 0, while_preempting = 0, releases = 0, requeues = 0;
  const int walks = apiary_test::scaled(200);
  for (int walk = 0; walk < walks; ++walk) {
    apiary::rng random(static_cast<std::uint64_t>(walk) + 1);
    fake_slurm slurm;
    tenant_scheduler lasting = scheduler_for(slurm);
    tenant_scheduler killed = scheduler_for(slurm);
    std::uint32_t next = 1;
    for (apiary::time_ms now = 0; now < 60; ++now) {
      const bool guest = random.uniform(3) == 0;
      if (random.uniform(2) == 0)
        submit(slurm, next++,
               guest                    ? "guest"
               : random.uniform(2) == 0 ? "red"
                                        : "blue",
               1 + random.uniform(2), static_cast<int>(1U << random.uniform(4)),
               guest ? -1 : static_cast<int>(random.uniform(3)));
      for (job_record& job : slurm.jobs) {
        if (job.phase == job_phase::released && random.uniform(2) == 0) {
          slurm.start(job.id);
        } else if (job.phase == job_phase::running && random.uniform(5) == 0) {
          job.phase = job_phase::ended;
        }
      }
      if (random.uniform(8) == 0) {
        apiary_slurm::node_record& node = slurm.nodes[random.uniform(4)];
        node.usable = !node.usable;
      }
      if (random.uniform(4) == 0) {
        auto decider = decider_for(slurm, two_owners);
        REQUIRE(decider.ok());
        REQUIRE(decider->restore(killed.decider().snapshot()).ok());
        killed = tenant_scheduler(*std::move(decider));
        ++restarts;
        for (const job_record& job : slurm.jobs)
          while_preempting +=
              lasting.decider().state(job.id) == apiary_slurm::gang_state::preempting ? 1 : 0;
      }
      fake_slurm same = slurm;
      const call_list expected = calls(lasting, slurm, now * 100);
      const call_list made = calls(killed, same, now * 100);
      // A scheduler that begins again says once more why jobs wait.
      const auto decisions = [](const call_list& all) {
        std::string some;
        for (const std::string& call : all)
          if (call.find(" priority=") == std::string::npos) some += call + "; ";
        return some;
      };
      CAPTURE(walk);
      CAPTURE(now);
      REQUIRE(decisions(made) == decisions(expected));
      REQUIRE(killed.decider().hash() == lasting.decider().hash());
      for (const std::string& call : expected) {
        releases += call.find("release") != std::string::npos ? 1 : 0;
        requeues += call.find("requeue") != std::string::npos ? 1 : 0;
      }
    }
  }
  CHECK(restarts > walks);
  CHECK(while_preempting > walks / 4);
  CHECK(releases > walks);
  CHECK(requeues > walks / 4);
}

TEST_CASE("slurm: without a snapshot, each job gets back the cells of its comment") {
  fake_slurm slurm;
  submit(slurm, 1, "red", 1, 8);
  submit(slurm, 2, "red", 1, 2);
  submit(slurm, 3, "blue", 2, 4);
  submit(slurm, 4, "guest", 1, 1, -1);
  tenant_scheduler first = scheduler_for(slurm);
  CHECK(calls(first, slurm).size() == 4);
  for (const std::uint32_t id : {1U, 2U, 4U}) slurm.start(id);
  (void)calls(first, slurm, 1);

  tenant_scheduler second = scheduler_for(slurm);
  CHECK(calls(second, slurm, 2).empty());
  for (const std::uint32_t id : {1U, 2U, 3U, 4U}) {
    CHECK_FALSE(first.decider().cells_of(id).empty());
    CHECK(second.decider().cells_of(id) == first.decider().cells_of(id));
  }
  // A comment that someone has changed: the job keeps its nodes.
  slurm.job(1).comment = "priority=0; released; cells=1xzz.9";
  slurm.job(2).comment = "priority=0; released; cells=9xff.2";
  tenant_scheduler third = scheduler_for(slurm);
  CHECK(calls(third, slurm, 3).empty());
  CHECK(third.decider().jobs() == first.decider().jobs());
  CHECK(third.decider().state(1) == apiary_slurm::gang_state::runs);
}

TEST_CASE("slurm: what a snapshot has and Slurm has not is dropped") {
  fake_slurm slurm;
  submit(slurm, 1, "red", 2, 8);
  submit(slurm, 2, "blue", 2, 8);
  tenant_scheduler first = scheduler_for(slurm);
  const auto todo = first.round(slurm.nodes, slurm.jobs, 0);  // killed before it has made the calls
  CHECK(todo.size() == 2);
  auto decider = decider_for(slurm, two_owners);
  REQUIRE(decider.ok());
  REQUIRE(decider->restore(first.decider().snapshot()).ok());
  tenant_scheduler second(*std::move(decider));
  CHECK(calls(second, slurm, 1) == call_list{"1 release n0 n1", "2 release n2 n3"});
  // A snapshot of other tenants.
  auto other = decider_for(slurm, "Account=red Racks=1\n");
  REQUIRE(other.ok());
  CHECK_FALSE(other->restore(first.decider().snapshot()).ok());
  CHECK(other->jobs().empty());
}
