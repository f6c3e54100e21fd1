// apiary/tests/hived/chain_choice_test.cpp - gangs that name the chains they may use.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/hived.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Three chains of one node type each; tenant t owns all of A and B.
hived_config three_chains() {
  hived_config config;
  config.cell_types = {{"A", "GPU", 2, true}, {"B", "GPU", 2, true}, {"C", "GPU", 2, true}};
  config.physical_cells = {{.type = "A", .address = "a0"},
                           {.type = "B", .address = "b0"},
                           {.type = "C", .address = "c0"}};
  config.virtual_clusters = {{.name = "t", .cells = {{"A", 1}, {"B", 1}}}};
  return config;
}
// The node of a gang of two GPUs in these chains, or the code of the error, or "wait".
std::string node_in(hived& h, std::uint32_t job, std::int32_t priority,
                    const std::vector<std::string>& names) {
  gang_request r{
      .job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {{1, 2}}};
  for (std::uint32_t c = 0; c < h.layout().chains.size(); ++c)
    if (std::count(names.begin(), names.end(), h.layout().chains[c].name) > 0)
      r.chains.push_back(c);
  const auto plan = h.propose(r);
  if (!plan.ok()) return absl::StatusCodeToString(plan.status().code());
  if (plan->result == plan_result::wait) return "wait";
  CHECK(h.commit(*plan).ok());
  return h.layout().node_name(plan->tasks[0].node);
}

}  // namespace

TEST_CASE("a gang uses only the chains that it names") {
  for (const std::int32_t priority : {-1, 0}) {
    hived h = hived::create(three_chains()).value();
    CHECK(node_in(h, 0, priority, {"A"}) == "a0");
    CHECK(node_in(h, 1, priority, {"A"}) == "wait");
    CHECK(node_in(h, 2, priority, {"C"}) == (priority < 0 ? "c0" : "FAILED_PRECONDITION"));
    CHECK(node_in(h, 3, priority, {"C", "B", "A"}) == "b0");
  }
  hived h = hived::create(three_chains()).value();
  const gang_request unknown{
      .job = job_id(0), .tenant = tenant_id(0), .groups = {{1, 2}}, .chains = {0, 3}};
  const absl::Status status = h.propose(unknown).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(status.message() == "gang 0: there is no chain 3");
  const gang_request other{
      .job = job_id(0), .tenant = tenant_id(0), .groups = {{1, 2}}, .chains = {0}};
  CHECK(h.propose(other).status().message() ==
        "gang 0: tenant t has no cells in the chains that the gang names");
}

TEST_CASE("the chains of a gang are in the hash, in a snapshot, and in another configuration") {
  hived h = hived::create(three_chains()).value();
  hived any = h;
  CHECK(node_in(h, 0, 0, {"A"}) == "a0");
  CHECK(node_in(any, 0, 0, {"A", "B"}) == "b0");
  hived only_b = hived::create(three_chains()).value();
  CHECK(node_in(only_b, 0, 0, {"B"}) == "b0");
  CHECK(only_b.hash() != any.hash());
  hived copy = hived::create(three_chains()).value();
  REQUIRE(copy.restore(h.snapshot()).ok());
  CHECK(copy.hash() == h.hash());
  CHECK(copy.find(job_id(0))->request.chains == h.find(job_id(0))->request.chains);
  CHECK(copy.snapshot() == h.snapshot());

  hived_config smaller = three_chains();
  smaller.physical_cells.pop_back();  // chains have other numbers then
  REQUIRE(h.reconfigure(smaller).ok());
  const std::vector<std::uint32_t> now = h.find(job_id(0))->request.chains;
  REQUIRE(now.size() == 1);
  CHECK(h.layout().chains[now[0]].name == "A");
  smaller.physical_cells.erase(smaller.physical_cells.begin());
  smaller.virtual_clusters[0].cells.erase(smaller.virtual_clusters[0].cells.begin());
  REQUIRE(any.reconfigure(smaller).ok());
  CHECK(any.find(job_id(0))->request.chains.size() == 1);
}

TEST_CASE("a preempting gang proposes again with the same chains") {
  hived h = hived::create(three_chains()).value();
  CHECK(node_in(h, 0, 0, {"A"}) == "a0");
  gang_request r{.job = job_id(1), .tenant = tenant_id(0), .priority = 1, .groups = {{1, 2}}};
  r.chains = {2};  // A is the last: chains are in descending order of their names
  REQUIRE(h.layout().chains[2].name == "A");
  const auto plan = h.propose(r);
  REQUIRE(plan.ok());
  REQUIRE(plan->result == plan_result::preempt);
  REQUIRE(h.commit(*plan).ok());
  CHECK(h.propose(r).ok());
  r.chains.clear();
  CHECK(h.propose(r).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a gang that names chains waits if and only if it waits in each of them") {
  std::uint64_t bound = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived h = hived::create(apiary_test::random_cluster(random)).value();
    const auto chains = static_cast<std::uint32_t>(h.layout().chains.size());
    for (std::uint32_t j = 0; j < 20; ++j) {
      gang_request r{.job = job_id(j),
                     .tenant = tenant_id(0),
                     .priority = static_cast<std::int32_t>(random.uniform(3)) - 1,
                     .groups = {{1 + random.uniform(2), 1 + random.uniform(2)}}};
      for (std::uint32_t c = 0; c < chains; ++c)
        if (random.uniform(2) == 0) r.chains.push_back(c);
      const auto plan = h.propose(r);
      if (!plan.ok()) continue;
      // It waits if it waits in each of the chains alone.
      bool waits = true;
      for (std::uint32_t c = 0; c < chains; ++c) {
        if (!r.chains.empty() && std::count(r.chains.begin(), r.chains.end(), c) == 0) continue;
        gang_request one = r;
        one.chains = {c};
        const auto here = h.propose(one);
        waits = waits && !(here.ok() && here->result != plan_result::wait);
      }
      REQUIRE(waits == (plan->result == plan_result::wait));
      if (plan->result != plan_result::bind) continue;
      ++bound;
      for (const hived_placement& task : plan->tasks) {
        const std::uint32_t c = h.layout().chain_of(task.node).value;
        REQUIRE((r.chains.empty() || std::count(r.chains.begin(), r.chains.end(), c) == 1));
      }
      REQUIRE(h.commit(*plan).ok());
    }
    REQUIRE(apiary_test::faults_of(h).empty());
  }
  CHECK(bound > 0);
}
