// apiary/tests/hived/plan_test.cpp - plans that are copied, moved, and written on.
// SPDX-License-Identifier: MIT
#include "support/hived_documents.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

static_assert(std::is_nothrow_move_constructible_v<gang_plan>);
static_assert(std::is_copy_constructible_v<gang_plan> && std::is_copy_assignable_v<gang_plan>);

hived scheduler_of_plans() { return hived::create(apiary_test::small_cluster()).value(); }

gang_plan plan_of(hived& h, std::uint32_t job) {
  gang_request r;
  r.job = job_id(job);
  r.tenant = h.layout().find_tenant("a").value();
  r.groups = {{1, 4}};
  return h.propose(r).value();
}

bool commits(const hived& h, const gang_plan& plan) {
  hived twin = h;
  const absl::Status status = twin.commit(plan);
  if (!status.ok()) CHECK(status.code() == absl::StatusCode::kAborted);
  return status.ok();
}

}  // namespace

TEST_CASE("hived_plan: a default plan cannot be committed, however it is copied") {
  const hived h = scheduler_of_plans();
  gang_plan none;
  CHECK(!commits(h, none));
  CHECK(hived(h).commit(none).message() == "the plan is not one of propose()");
  gang_plan other = none;
  CHECK(!commits(h, other));
  other = std::move(none);
  CHECK(!commits(h, other));
}

TEST_CASE("hived_plan: plans in a vector that grows, swapped, and assigned over others") {
  hived h = scheduler_of_plans();
  std::vector<gang_plan> plans;
  for (std::uint32_t job = 0; job < 9; ++job) plans.push_back(plan_of(h, job));
  for (std::uint32_t job = 0; job < 9; ++job) {
    REQUIRE(plans[job].result == plan_result::bind);
    CHECK(commits(h, plans[job]));
  }
  std::swap(plans[0], plans[1]);
  CHECK(commits(h, plans[0]));
  CHECK(commits(h, plans[1]));
  // Assigned over: what was there is gone, what was given is whole or empty.
  plans[2] = plans[3];
  CHECK(commits(h, plans[2]));
  CHECK(commits(h, plans[3]));
  plans[4] = std::move(plans[5]);
  CHECK(commits(h, plans[4]));
  CHECK(!commits(h, plans[5]));  // NOLINT(bugprone-use-after-move): what is tested
  plans[4] = gang_plan();
  CHECK(!commits(h, plans[4]));
  plans[5] = plans[6];
  CHECK(commits(h, plans[5]));

  REQUIRE(h.commit(plans[0]).ok());
  CHECK(h.find(job_id(1)) != nullptr);
  // And from then on none of them is for this state.
  for (const gang_plan& plan : plans) CHECK(!commits(h, plan));
}

TEST_CASE("hived_plan: what is written on a plan changes nothing of what is committed") {
  hived h = scheduler_of_plans();
  const gang_plan plan = plan_of(h, 1);
  gang_plan written = plan;
  written.tasks.clear();
  written.victims = {job_id(3)};
  written.downgraded = {job_id(4)};
  written.cancelled = {job_id(5)};
  written.result = plan_result::preempt;
  hived twin = h;
  REQUIRE(h.commit(plan).ok());
  REQUIRE(twin.commit(written).ok());
  CHECK(h.hash() == twin.hash());
}

TEST_CASE("hived_plan: propose_unexplained gives the plan of propose, without why the gang waits") {
  hived h = scheduler_of_plans();
  const auto both = [&](std::uint32_t job, std::uint32_t tasks) {
    gang_request r;
    r.job = job_id(job);
    r.tenant = h.layout().find_tenant("a").value();
    r.groups = {{tasks, 4}};
    const gang_plan plain = h.propose_unexplained(r).value();
    gang_plan explained = h.propose(r).value();
    CHECK(plain.result == explained.result);
    CHECK((plain.tasks == explained.tasks));
    CHECK(plain.wait.reason == wait_reason::busy);
    CHECK(plain.wait.proof.empty());
    hived twin = h;
    hived other = h;
    CHECK(twin.commit(plain).code() == other.commit(explained).code());
    CHECK(twin.hash() == other.hash());
    return explained;
  };
  CHECK(both(0, 3).wait.reason == wait_reason::never);  // the tenant has two nodes
  for (const std::uint32_t job : {1U, 2U}) {
    const gang_plan plan = both(job, 1);
    REQUIRE(plan.result == plan_result::bind);
    REQUIRE(h.commit(plan).ok());
  }
  const gang_plan waits = both(3, 1);
  CHECK(waits.result == plan_result::wait);
  CHECK(waits.wait.why() != nullptr);
}
