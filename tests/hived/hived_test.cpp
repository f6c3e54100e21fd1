// apiary/tests/hived/hived_test.cpp - what each call of a host answers, and that errors change
// nothing.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <support/hived_documents.h>
#include <type_traits>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

static_assert(std::is_move_constructible_v<hived> && std::is_copy_constructible_v<hived>);

namespace {

using absl::StatusCode;
using jobs = std::vector<job_id>;

// The small cluster with a third rack: nodes n0 to n5 of two pairs in racks of two, then b0 and b1
// of eight devices.
constexpr tenant_id b(0);  // a pair, and the node n1 pinned as "mine"
constexpr tenant_id a(1);  // a rack

hived_config cluster() {
  hived_config config = apiary_test::small_cluster();
  config.physical_cells.push_back(
      apiary_test::rack({apiary_test::named("n4"), apiary_test::named("n5")}));
  return config;
}
hived small() {
  auto h = hived::create(cluster());
  REQUIRE(h.ok());
  return *std::move(h);
}
gang_request gang(std::uint32_t job, tenant_id tenant, std::int32_t priority,
                  std::vector<task_group> groups) {
  return {.job = job_id(job), .tenant = tenant, .priority = priority, .groups = std::move(groups)};
}
gang_request lazy(gang_request r) {
  r.lazy = true;
  return r;
}
gang_request of_type(gang_request r, const hived& h, const char* type) {
  const auto found = h.find_leaf_type(type);
  REQUIRE(found);
  r.leaf_type = *found;
  return r;
}

// Checks that `call(h)` fails in this way and changes nothing.
template <std::invocable F>
void refuses(hived& h, StatusCode code, const std::string& words, F&& call) {
  const std::uint64_t before = h.hash();
  const absl::Status status = call();
  CHECK(status.code() == code);
  const std::string message(status.message());
  CAPTURE(message);
  CHECK(message.find(words) != std::string::npos);
  CHECK(h.hash() == before);
  CHECK(audit(h).empty());
}
void refuses(hived& h, StatusCode code, const std::string& words, const gang_request& r) {
  refuses(h, code, words, [&] { return h.propose(r).status(); });
}

gang_plan proposed(hived& h, const gang_request& r) {
  const std::uint64_t before = h.hash();
  const auto plan = h.propose(r);
  REQUIRE(plan.ok());
  CHECK(h.hash() == before);
  return *plan;
}
// Proposes and commits; the plan.
gang_plan done(hived& h, const gang_request& r) {
  gang_plan plan = proposed(h, r);
  if (plan.result != plan_result::wait) REQUIRE(h.commit(plan).ok());
  CHECK(audit(h).empty());
  return plan;
}
bool runs(const hived& h, std::uint32_t job) {
  const gang_record* gang = h.find(job_id(job));
  return gang != nullptr && gang->state == gang_state::allocated;
}
wait_reason reason(hived& h, const gang_request& r) {
  const gang_plan plan = proposed(h, r);
  REQUIRE(plan.result == plan_result::wait);
  CHECK(h.commit(plan).code() == StatusCode::kFailedPrecondition);
  return plan.wait.reason;
}

}  // namespace

TEST_CASE("requests that are wrong in themselves") {
  hived h = small();
  const gang_request good = gang(1, a, 0, {{1, 4}});
  const auto with = [&](auto&& change) {
    gang_request r = good;
    change(r);
    return r;
  };
  const auto invalid = StatusCode::kInvalidArgument;
  refuses(h, invalid, "job id", with([](gang_request& r) { r.job = job_id(); }));
  refuses(h, invalid, "gang 1: priority 1001", with([](gang_request& r) { r.priority = 1001; }));
  refuses(h, invalid, "priority -2", with([](gang_request& r) { r.priority = -2; }));
  refuses(h, invalid, "no tasks", with([](gang_request& r) { r.groups = {}; }));
  refuses(h, invalid, "0 tasks", with([](gang_request& r) { r.groups = {{1, 1}, {0, 1}}; }));
  refuses(h, invalid, "0 GPUs", with([](gang_request& r) { r.groups = {{1, 0}}; }));
  refuses(h, invalid, "1000001 tasks", with([](gang_request& r) { r.groups = {{1'000'001, 1}}; }));
  refuses(h, invalid, "a node has at most 64", with([](gang_request& r) { r.groups = {{1, 65}}; }));
  const summary_bitset three(3);
  refuses(h, invalid, "3 bits for 8 nodes", with([&](gang_request& r) { r.suggested = &three; }));
  refuses(h, invalid, "opportunistic",
          with([](gang_request& r) { r.priority = -1, r.pinned = 0, r.tenant = b; }));

  const auto unknown = StatusCode::kNotFound;
  refuses(h, unknown, "tenant 7", with([](gang_request& r) { r.tenant = tenant_id(7); }));
  refuses(h, unknown, "gang 1: no tenant", with([](gang_request& r) { r.tenant = tenant_id(); }));
  CHECK(h.finish(job_id()) == absl::NotFoundError("no job id"));
  CHECK(h.finish(job_id(9)) == absl::NotFoundError("there is no gang 9"));
  refuses(h, unknown, "leaf type 9", with([](gang_request& r) { r.leaf_type = leaf_type_id(9); }));
  refuses(h, unknown, "pinned cell 1", with([](gang_request& r) { r.pinned = 1; }));

  const auto lacks = StatusCode::kFailedPrecondition;
  refuses(h, lacks, "a has no cells of type NPU", of_type(good, h, "NPU"));
  refuses(h, lacks, "mine belongs to another tenant", with([](gang_request& r) { r.pinned = 0; }));

  CHECK(proposed(h, with([](gang_request& r) { r.priority = 1000; })).result == plan_result::bind);
  CHECK(proposed(h, of_type(gang(1, a, -1, {{2, 8}}), h, "NPU")).result == plan_result::bind);
}

TEST_CASE("plans: bound, used up, stale; gangs: once, and until they end") {
  hived h = small();
  const std::uint64_t empty = h.hash();
  const gang_request r = gang(1, a, 0, {{1, 3}, {2, 1}});
  const gang_plan plan = proposed(h, r);
  REQUIRE(plan.result == plan_result::bind);
  CHECK(plan.victims.empty());
  REQUIRE(plan.tasks.size() == 3);
  CHECK(plan.tasks.at(0) == hived_placement{node_id(2), 0b0111});
  CHECK(plan.tasks[1] == hived_placement{node_id(2), 0b1000});
  CHECK(plan.tasks[2] == hived_placement{node_id(3), 0b0001});
  REQUIRE(h.commit(plan).ok());
  REQUIRE(h.find(job_id(1)) != nullptr);
  CHECK(h.tasks(*h.find(job_id(1))) == plan.tasks);

  refuses(h, StatusCode::kAborted, "stale", [&] { return h.commit(plan); });
  refuses(h, StatusCode::kAlreadyExists, "gang 1 runs", r);
  refuses(h, StatusCode::kFailedPrecondition, "runs", [&] { return h.cancel(job_id(1)); });
  const gang_plan other = proposed(h, gang(2, a, 0, {{1, 1}}));
  REQUIRE(h.finish(job_id(1)).ok());
  refuses(h, StatusCode::kAborted, "gang 2", [&] { return h.commit(other); });
  refuses(h, StatusCode::kNotFound, "no gang 1", [&] { return h.finish(job_id(1)); });
  refuses(h, StatusCode::kNotFound, "no gang 1", [&] { return h.cancel(job_id(1)); });
  refuses(h, StatusCode::kNotFound, "no gang 1", [&] { return h.finish_task(job_id(1), 0); });
  CHECK(h.hash() == empty);
  CHECK(h.find(job_id(1)) == nullptr);
}

TEST_CASE("a plan is for the scheduler that proposed it, and for its copies") {
  hived h = small();
  const gang_request r = gang(1, a, 0, {{2, 4}});
  const gang_plan plan = proposed(h, r);
  REQUIRE(plan.result == plan_result::bind);
  hived copy = h;
  REQUIRE(copy.commit(plan).ok());
  CHECK(copy.tasks(*copy.find(job_id(1))) == plan.tasks);

  // As many changes, none so far, of a cluster with other nodes, and of one with other tenants.
  hived_config config = cluster();
  config.physical_cells[2].children[0].address = "n9";
  hived other = *hived::create(config);
  refuses(other, StatusCode::kAborted, "gang 1", [&] { return other.commit(plan); });
  config = cluster();
  config.virtual_clusters[1].cells = {{"RACK.NODE", 2}};
  other = *hived::create(config);
  REQUIRE(proposed(other, r).result == plan_result::bind);
  refuses(other, StatusCode::kAborted, "another scheduler", [&] { return other.commit(plan); });

  // As many changes of the same cluster, but other ones.
  hived twin = small();
  REQUIRE(twin.hash() == h.hash());
  REQUIRE(h.mark_bad(node_id(0)).ok());
  REQUIRE(twin.mark_bad(node_id(2)).ok());
  const gang_plan later = proposed(h, r);
  refuses(twin, StatusCode::kAborted, "another scheduler", [&] { return twin.commit(later); });
  // The same state, after other changes.
  REQUIRE(twin.mark_healthy(node_id(2)).ok());
  REQUIRE(twin.mark_bad(node_id(0)).ok());
  REQUIRE(twin.hash() == h.hash());
  refuses(twin, StatusCode::kAborted, "stale", [&] { return twin.commit(later); });
  REQUIRE(h.commit(later).ok());

  gang_plan none;
  none.result = plan_result::bind;
  hived fresh = small();
  refuses(fresh, StatusCode::kAborted, "", [&] { return fresh.commit(none); });
}

TEST_CASE("what is written into a plan changes nothing that commit does") {
  // Leaves of a victim that still runs.
  hived h = small();
  done(h, lazy(gang(1, a, 0, {{2, 4}})));
  done(h, of_type(gang(7, b, -1, {{4, 4}}), h, "GPU"));
  const std::uint64_t before = h.hash();
  hived twin = h;
  gang_plan plan = proposed(h, gang(2, a, 5, {{2, 4}}));
  REQUIRE(plan.result == plan_result::preempt);
  REQUIRE(plan.downgraded == jobs{job_id(1)});
  REQUIRE(twin.commit(plan).ok());
  plan.result = plan_result::bind;
  plan.tasks.clear();
  plan.victims.clear();
  plan.downgraded.clear();
  plan.cancelled = {job_id(1), job_id(99)};
  REQUIRE(h.commit(plan).ok());
  CHECK(audit(h).empty());
  CHECK(h.hash() == twin.hash());
  CHECK(h.find(job_id(2))->state == gang_state::preempting);
  // Gang 1 has its cells back.
  REQUIRE(h.cancel(job_id(2)).ok());
  CHECK(h.hash() == before);

  // A plan for a gang that has its place: its victims still run.
  REQUIRE(h.commit(proposed(h, gang(2, a, 5, {{2, 4}}))).ok());
  plan = proposed(h, gang(2, a, 5, {{2, 4}}));
  REQUIRE(plan.result == plan_result::preempt);
  plan.result = plan_result::bind;
  REQUIRE(h.commit(plan).ok());
  CHECK(audit(h).empty());
  CHECK(h.find(job_id(2))->state == gang_state::preempting);

  // A plan to wait cancels no gang, whatever its public fields say.
  plan = proposed(h, gang(3, a, 5, {{1, 4}}));
  REQUIRE(plan.result == plan_result::wait);
  for (const std::uint32_t job : {2U, 1U, 99U}) {
    plan.cancelled = {job_id(job)};
    refuses(h, StatusCode::kFailedPrecondition, "a plan to wait", [&] { return h.commit(plan); });
  }
  plan.result = plan_result::bind;
  refuses(h, StatusCode::kFailedPrecondition, "a plan to wait", [&] { return h.commit(plan); });
  CHECK(h.commit(proposed(h, gang(2, a, 5, {{2, 4}}))).ok());
}

TEST_CASE("a moved-from plan cannot be committed; a moved or copied plan can") {
  hived h = small();
  const gang_request r = gang(1, a, 0, {{2, 4}});
  gang_plan first = proposed(h, r);
  const gang_plan copy = first;
  gang_plan second = std::move(first);
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what is tested
  refuses(h, StatusCode::kAborted, "gang 1", [&] { return h.commit(first); });
  gang_plan third;
  third = std::move(second);
  refuses(h, StatusCode::kAborted, "gang 1", [&] { return h.commit(second); });
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  hived twin = h;
  REQUIRE(twin.commit(copy).ok());
  REQUIRE(h.commit(third).ok());
  CHECK(h.hash() == twin.hash());
  CHECK(audit(h).empty());
  CHECK(h.tasks(*h.find(job_id(1))) == copy.tasks);
}

TEST_CASE("the hash differs for gangs whose tasks have swapped leaves") {
  const hived_placement left{node_id(2), 0b0011};
  const hived_placement right{node_id(2), 0b1100};
  for (const std::int32_t priority : {-1, 0}) {
    const auto hash_of = [&](const std::vector<hived_placement>& tasks) {
      hived h = small();
      REQUIRE(h.recover(gang(1, a, priority, {{2, 2}}), tasks).ok());
      return h.hash();
    };
    CHECK(hash_of({left, right}) == hash_of({left, right}));
    CHECK(hash_of({left, right}) != hash_of({right, left}));
    // And by which of them has ended.
    CHECK(hash_of({left, {}}) != hash_of({{}, left}));
  }
}

TEST_CASE("the hash differs for gangs that request other hardware") {
  const auto hash_of = [](const gang_request& r, hived_placement at) {
    hived h = small();
    const auto kept = h.recover(r, std::vector<hived_placement>{at});
    REQUIRE(kept.ok());
    CHECK(!*kept);
    return h.hash();
  };
  // In a rack that is not its tenant's.
  const hived_placement at{node_id(2), 0b1111};
  const hived h = small();
  gang_request r = gang(1, b, 0, {{1, 4}});
  const std::uint64_t of_any = hash_of(r, at);
  CHECK(hash_of(r, at) == of_any);
  CHECK(hash_of(of_type(r, h, "GPU"), at) != of_any);
  CHECK(hash_of(of_type(r, h, "NPU"), at) != hash_of(of_type(r, h, "GPU"), at));
  r.pinned = 0;
  CHECK(hash_of(r, at) != of_any);
}

TEST_CASE("tasks end one by one, the gang with the last") {
  hived h = small();
  const std::uint64_t empty = h.hash();
  done(h, gang(1, a, 0, {{1, 4}, {2, 1}}));
  REQUIRE(h.finish_task(job_id(1), 0).ok());
  CHECK(audit(h).empty());
  CHECK(h.tasks(*h.find(job_id(1))).at(0) == hived_placement());
  refuses(h, StatusCode::kNotFound, "task 0", [&] { return h.finish_task(job_id(1), 0); });
  refuses(h, StatusCode::kNotFound, "task 3", [&] { return h.finish_task(job_id(1), 3); });
  CHECK(done(h, gang(2, a, 0, {{1, 4}})).result == plan_result::bind);
  REQUIRE(h.finish_task(job_id(1), 2).ok());
  CHECK(runs(h, 1));
  REQUIRE(h.finish_task(job_id(1), 1).ok());
  CHECK(!runs(h, 1));
  REQUIRE(h.finish(job_id(2)).ok());
  CHECK(h.hash() == empty);
}

TEST_CASE("a preemption: leaves are claimed, the victim ends, the gang runs there") {
  hived h = small();
  done(h, gang(1, a, 0, {{2, 4}}));
  const gang_request r = gang(2, a, 5, {{1, 2}});
  const gang_plan plan = done(h, r);
  REQUIRE(plan.result == plan_result::preempt);
  CHECK(plan.victims == jobs{job_id(1)});
  CHECK(plan.downgraded.empty());
  CHECK(h.being_preempted(*h.find(job_id(1))));
  CHECK(h.find(job_id(2))->state == gang_state::preempting);
  CHECK(!h.being_preempted(*h.find(job_id(2))));

  // It asks while the victim ends; in other words only after a withdrawal.
  const gang_plan again = done(h, r);
  CHECK(again.result == plan_result::preempt);
  CHECK(again.tasks == plan.tasks);
  CHECK(again.victims == plan.victims);
  const auto in_other_words = [&](const gang_request& other) {
    refuses(h, StatusCode::kInvalidArgument, "another request", other);
  };
  in_other_words(gang(2, a, 6, {{1, 2}}));
  in_other_words(lazy(r));
  in_other_words(of_type(r, h, "GPU"));

  REQUIRE(h.finish(job_id(1)).ok());
  const gang_plan bound = done(h, r);
  CHECK(bound.result == plan_result::bind);
  CHECK(bound.tasks == plan.tasks);
  CHECK(runs(h, 2));
}

TEST_CASE("a preemption is cancelled by its host, or when its tasks end") {
  hived h = small();
  done(h, gang(1, a, 0, {{2, 4}}));
  const std::uint64_t before = h.hash();
  done(h, gang(2, a, 5, {{1, 2}}));
  CHECK(h.hash() != before);
  REQUIRE(h.cancel(job_id(2)).ok());
  CHECK(h.hash() == before);
  done(h, gang(2, a, 5, {{2, 1}}));
  REQUIRE(h.finish_task(job_id(2), 0).ok());
  CHECK(audit(h).empty());
  REQUIRE(h.finish_task(job_id(2), 1).ok());
  CHECK(h.hash() == before);
  CHECK(runs(h, 1));
}

TEST_CASE("equal and higher priorities are not preempted; opportunistic gangs preempt no gang") {
  hived h = small();
  done(h, gang(1, a, 5, {{2, 4}}));
  CHECK(reason(h, gang(2, a, 5, {{1, 1}})) == wait_reason::busy);
  CHECK(reason(h, gang(2, a, 4, {{1, 1}})) == wait_reason::busy);
  done(h, gang(3, b, -1, {{2, 8}}));
  done(h, of_type(gang(4, b, -1, {{4, 4}}), h, "GPU"));
  CHECK(reason(h, gang(5, a, -1, {{1, 1}})) == wait_reason::busy);
  // A guaranteed gang preempts the opportunistic gangs on its cell, and no others.
  const gang_plan plan = done(h, gang(6, b, 0, {{1, 2}}));
  CHECK(plan.result == plan_result::preempt);
  CHECK(plan.victims == jobs{job_id(4)});
}

TEST_CASE("two preemptors have different victims; a higher priority cancels both") {
  hived h = small();
  done(h, gang(1, a, 0, {{1, 4}}));
  done(h, gang(2, a, 0, {{1, 4}}));
  const gang_plan third = done(h, gang(3, a, 5, {{1, 4}}));
  const gang_plan fourth = done(h, gang(4, a, 5, {{1, 4}}));
  REQUIRE(third.victims.size() == 1);
  REQUIRE(fourth.victims.size() == 1);
  CHECK(third.victims != fourth.victims);
  CHECK(reason(h, gang(5, a, 5, {{1, 1}})) == wait_reason::busy);

  const gang_plan all = done(h, gang(6, a, 9, {{2, 4}}));
  CHECK(all.result == plan_result::preempt);
  CHECK(all.victims == jobs{job_id(1), job_id(2)});
  CHECK(all.cancelled == jobs{job_id(3), job_id(4)});
  CHECK(h.find(job_id(3)) == nullptr);
  REQUIRE(h.finish(job_id(1)).ok());
  REQUIRE(h.finish(job_id(2)).ok());
  CHECK(done(h, gang(6, a, 9, {{2, 4}})).result == plan_result::bind);
}

TEST_CASE("lazy gangs lose their cells and run on; they get them back if it is cancelled in time") {
  hived h = small();
  done(h, lazy(gang(1, a, 0, {{2, 4}})));
  const std::uint64_t before = h.hash();
  // The other rack is idle: no gang must end.
  const gang_plan plan = done(h, gang(2, a, 5, {{2, 4}}));
  CHECK(plan.result == plan_result::bind);
  CHECK(plan.downgraded == jobs{job_id(1)});
  CHECK(plan.victims.empty());
  CHECK(runs(h, 1));
  CHECK(h.find(job_id(1))->downgraded);
  CHECK(!h.find(job_id(1))->guaranteed());
  CHECK(h.find(job_id(1))->effective_priority() == gang_request::opportunistic_priority);
  CHECK(runs(h, 2));

  hived full = small();
  done(full, lazy(gang(1, a, 0, {{2, 4}})));
  REQUIRE(full.hash() == before);
  done(full, of_type(gang(7, b, -1, {{4, 4}}), full, "GPU"));
  const std::uint64_t with_guest = full.hash();
  const gang_plan claims = done(full, gang(2, a, 5, {{2, 4}}));
  CHECK(claims.result == plan_result::preempt);
  CHECK(claims.downgraded == jobs{job_id(1)});
  CHECK(full.find(job_id(1))->downgraded);
  REQUIRE(full.cancel(job_id(2)).ok());
  CHECK(!full.find(job_id(1))->downgraded);
  CHECK(full.hash() == with_guest);
}

TEST_CASE("only a gang that names a pinned cell uses it") {
  hived h = small();
  gang_request r = gang(1, b, 0, {{1, 4}});
  r.pinned = 0;
  const gang_plan plan = done(h, r);
  CHECK(plan.result == plan_result::bind);
  CHECK(plan.tasks.at(0) == hived_placement{node_id(1), 0b1111});
  CHECK(reason(h, gang(2, b, 0, {{1, 4}})) == wait_reason::never);
  CHECK(done(h, gang(2, b, 0, {{1, 2}})).result == plan_result::bind);
}

TEST_CASE("bad hardware: running gangs go on; new gangs avoid it, and why they wait") {
  hived h = small();
  done(h, gang(1, a, 0, {{1, 4}}));
  const node_id where = h.tasks(*h.find(job_id(1))).at(0).node;
  REQUIRE(h.mark_bad(where, 2).ok());
  CHECK(runs(h, 1));
  const std::uint64_t marked = h.hash();
  REQUIRE(h.mark_bad(where, 2).ok());
  CHECK(h.hash() == marked);
  refuses(h, StatusCode::kNotFound, "node 8", [&] { return h.mark_bad(node_id(8)); });
  refuses(h, StatusCode::kNotFound, "n0 has no leaf cell 4",
          [&] { return h.mark_bad(node_id(0), 4); });
  REQUIRE(h.finish(job_id(1)).ok());
  // One healthy rack is left, and one is reserved.
  CHECK(*h.doomed(a, chain_id(0), 3) == 0);
  REQUIRE(h.mark_bad(node_id(4)).ok());
  CHECK(*h.doomed(a, chain_id(0), 3) == 1);
  const auto nothing = [&](const char* words, tenant_id tenant, chain_id chain, level_t level) {
    refuses(h, StatusCode::kNotFound, words,
            [&] { return h.doomed(tenant, chain, level).status(); });
  };
  nothing("tenant 2", tenant_id(2), chain_id(0), 3);
  nothing("no tenant", tenant_id(), chain_id(0), 3);
  nothing("chain 9", a, chain_id(9), 3);
  nothing("chain 0 has no level 4", a, chain_id(0), 4);
  REQUIRE(h.mark_bad(node_id(5)).ok());
  CHECK(done(h, gang(2, a, 0, {{1, 4}})).tasks.at(0).node == node_id(3));
  CHECK(reason(h, gang(3, a, 0, {{1, 4}})) == wait_reason::unhealthy);
  CHECK(reason(h, gang(3, a, 0, {{2, 4}})) == wait_reason::busy);
  CHECK(reason(h, gang(3, a, 0, {{3, 4}})) == wait_reason::never);
  CHECK(reason(h, gang(3, a, 0, {{1, 5}})) == wait_reason::never);
  CHECK(reason(h, gang(3, a, -1, {{1, 9}})) == wait_reason::never);
  CHECK(done(h, gang(3, a, 0, {{1, 3}})).tasks.at(0) == hived_placement{node_id(2), 0b1011});
  REQUIRE(h.mark_healthy(where, 2).ok());
  CHECK(done(h, gang(4, a, 0, {{1, 1}})).tasks.at(0) == hived_placement{node_id(2), 0b0100});
}

TEST_CASE("suggested nodes, and a preemption whose nodes are no longer suggested") {
  hived h = small();
  summary_bitset nodes(8);
  nodes.set(3);
  gang_request r = gang(1, a, 0, {{1, 4}});
  r.suggested = &nodes;
  const gang_plan plan = done(h, r);
  REQUIRE(plan.result == plan_result::bind);
  CHECK(plan.tasks.at(0).node == node_id(3));
  gang_request second = r;
  second.job = job_id(2);
  second.priority = 5;
  CHECK(done(h, second).result == plan_result::preempt);
  nodes.reset(3);
  const gang_plan withdrawn = proposed(h, second);
  CHECK(withdrawn.cancelled == jobs{job_id(2)});
  REQUIRE(withdrawn.result == plan_result::wait);
  CHECK(withdrawn.wait.reason == wait_reason::not_suggested);
  REQUIRE(h.commit(withdrawn).ok());
  CHECK(h.find(job_id(2)) == nullptr);
  CHECK(reason(h, second) == wait_reason::not_suggested);
}

TEST_CASE("a restart: gangs are taken where they run") {
  hived h = small();
  const gang_request r = gang(1, a, 0, {{2, 4}, {1, 2}});
  using places = std::vector<hived_placement>;
  const places there{{node_id(2), 0b1111}, {node_id(4), 0b1111}, {}};
  const auto fails = [&](StatusCode code, const char* words, const gang_request& gang,
                         const places& tasks) {
    refuses(h, code, words, [&] { return h.recover(gang, tasks).status(); });
  };
  fails(StatusCode::kInvalidArgument, "3 tasks", r, {there[0], there[1]});
  fails(StatusCode::kInvalidArgument, "more leaf cells", r, {{}, {}, {node_id(0), 0b111}});
  fails(StatusCode::kInvalidArgument, "only 4", r, {{}, {}, {node_id(0), 0b10001}});
  fails(StatusCode::kInvalidArgument, "no leaf cells", r, {{}, {}, {}});
  fails(StatusCode::kNotFound, "node 9", r, {{}, {}, {node_id(9), 1}});
  fails(StatusCode::kNotFound, "tenant 4", gang(1, tenant_id(4), 0, {{1, 1}}), {{node_id(0), 1}});
  done(h, gang(9, b, -1, {{1, 8}}));
  done(h, of_type(gang(8, b, -1, {{1, 1}}), h, "GPU"));
  const hived_placement taken = h.tasks(*h.find(job_id(8))).at(0);
  fails(StatusCode::kFailedPrecondition, "in use", gang(1, a, 0, {{1, 1}}), {taken});
  REQUIRE(h.finish(job_id(8)).ok());

  // Two nodes in different racks are no rack: it runs, but not as its tenant's.
  auto kept = h.recover(r, there);
  REQUIRE(kept.ok());
  CHECK(!*kept);
  CHECK(h.find(job_id(1))->downgraded);
  CHECK(audit(h).empty());
  fails(StatusCode::kAlreadyExists, "gang 1", r, there);
  kept = h.recover(gang(2, a, 0, {{1, 2}}), places{{node_id(3), 0b0110}});
  REQUIRE(kept.ok());
  CHECK(*kept);
  kept = h.recover(gang(3, b, -1, {{1, 2}}), places{{node_id(1), 0b0110}});
  REQUIRE(kept.ok());
  CHECK(*kept);
  kept = h.recover(gang(4, tenant_id(), 5, {{1, 1}}), places{{node_id(1), 0b1000}});
  REQUIRE(kept.ok());
  CHECK(!*kept);
  CHECK(h.find(job_id(4))->downgraded);
  CHECK(audit(h).empty());
  // That it runs is what is said of it first.
  refuses(h, StatusCode::kAlreadyExists, "gang 4 runs", h.find(job_id(4))->request);
}

TEST_CASE("another configuration: what gangs keep; a faulty one changes nothing") {
  hived h = small();
  done(h, gang(1, a, 0, {{1, 4}}));
  done(h, gang(2, a, 3, {{1, 4}}));
  done(h, gang(3, b, 0, {{1, 2}}));
  done(h, gang(4, b, -1, {{1, 8}}));
  const node_id first = h.tasks(*h.find(job_id(1))).at(0).node;
  done(h, gang(5, a, 9, {{1, 1}}));
  hived_config config = cluster();
  config.physical_cells[0].children[0].address = "n1";
  refuses(h, StatusCode::kInvalidArgument, "named twice",
          [&] { return h.reconfigure(config).status(); });

  // The boxes go, and what was a's rack is two nodes of which one is its own.
  config = cluster();
  std::erase_if(config.physical_cells, [](const auto& c) { return c.type == "BOX"; });
  std::erase_if(config.cell_types, [](const auto& c) { return c.name == "BOX"; });
  config.virtual_clusters[1].cells = {{"RACK.NODE", 1}};
  const auto report = h.reconfigure(config);
  REQUIRE(report.ok());
  CHECK(audit(h).empty());
  CHECK(report->gone == jobs{job_id(4)});
  CHECK(report->cancelled == jobs{job_id(5)});
  CHECK(report->downgraded == jobs{job_id(1)});
  CHECK(h.tasks(*h.find(job_id(1))).at(0).node == first);
  CHECK(h.find(job_id(2))->guaranteed());
  CHECK(h.find(job_id(3))->guaranteed());
}

TEST_CASE("another configuration: the downgraded gang of higher priority gets cells first") {
  // a has a rack, and one of its two gangs of a rack each runs beside its cells; then neither does,
  // and then there are cells for one of them.
  for (const bool swapped : {false, true}) {
    hived h = small();
    const gang_request low = gang(swapped ? 2 : 1, a, 1, {{2, 4}});
    const gang_request high = gang(swapped ? 1 : 2, a, 7, {{2, 4}});
    hived_config none = cluster();
    none.virtual_clusters[1].cells.clear();
    REQUIRE(h.reconfigure(none).ok());
    using places = std::vector<hived_placement>;
    auto kept = h.recover(low, places{{node_id(2), 0b1111}, {node_id(3), 0b1111}});
    REQUIRE(kept.ok());
    REQUIRE(!*kept);
    kept = h.recover(high, places{{node_id(4), 0b1111}, {node_id(5), 0b1111}});
    REQUIRE(kept.ok());
    REQUIRE(!*kept);
    const auto report = h.reconfigure(cluster());
    REQUIRE(report.ok());
    CHECK(report->downgraded.empty());
    CHECK(h.find(high.job)->guaranteed());
    CHECK(h.find(low.job)->downgraded);
    CHECK(audit(h).empty());
  }
}

TEST_CASE(
    "after a cancelled preemption the downgraded gang of higher priority gets its cell back") {
  for (const bool swapped : {false, true}) {
    hived_config config = cluster();
    config.virtual_clusters[1].cells = {{"RACK.NODE", 2}};
    hived h = *hived::create(config);
    const gang_request low = lazy(gang(swapped ? 2 : 1, a, 1, {{1, 4}}));
    const gang_request high = lazy(gang(swapped ? 1 : 2, a, 3, {{1, 4}}));
    REQUIRE(done(h, low).result == plan_result::bind);
    REQUIRE(done(h, high).result == plan_result::bind);
    done(h, of_type(gang(7, b, -1, {{4, 4}}), h, "GPU"));
    const gang_plan plan = done(h, gang(3, a, 5, {{2, 4}}));
    REQUIRE(plan.result == plan_result::preempt);
    REQUIRE(plan.downgraded == jobs{job_id(1), job_id(2)});
    // One of the two cells goes to another gang before, and to another node than theirs.
    REQUIRE(h.finish_task(job_id(3), 0).ok());
    summary_bitset nodes(8, true);
    for (const std::uint32_t job : {1U, 2U}) {
      const node_id theirs = h.tasks(*h.find(job_id(job))).at(0).node;
      nodes.reset(theirs.value);
    }
    gang_request other = gang(4, a, 5, {{1, 4}});
    other.suggested = &nodes;
    REQUIRE(done(h, other).result == plan_result::preempt);
    REQUIRE(h.finish(job_id(3)).ok());
    CHECK(!h.find(high.job)->downgraded);
    CHECK(h.find(low.job)->downgraded);
    CHECK(audit(h).empty());
  }
}

TEST_CASE(
    "finish_task releases the claims of a task of a preempting gang; a move places all tasks") {
  hived h = small();
  done(h, gang(1, a, 0, {{2, 4}}));
  const gang_request r = gang(2, a, 5, {{2, 4}});
  REQUIRE(done(h, r).result == plan_result::preempt);
  REQUIRE(h.finish_task(job_id(2), 0).ok());
  gang_plan plan = proposed(h, r);
  REQUIRE(plan.result == plan_result::preempt);
  REQUIRE(plan.tasks.size() == 2);
  CHECK(plan.tasks.at(0) == hived_placement());
  const hived_placement second = plan.tasks.at(1);
  CHECK(second.leaves == 0b1111);
  // Its place goes bad: it goes to another rack, with both its tasks.
  REQUIRE(h.finish(job_id(1)).ok());
  REQUIRE(h.mark_bad(second.node).ok());
  plan = done(h, r);
  REQUIRE(plan.result == plan_result::bind);
  CHECK(plan.tasks.at(0).leaves == 0b1111);
  CHECK(plan.tasks.at(1).leaves == 0b1111);
  CHECK(runs(h, 2));
}

TEST_CASE("a gang downgraded for a preemption that moved is restored when it is cancelled") {
  hived_config config = cluster();
  config.virtual_clusters[1].cells = {{"RACK.NODE", 1}};
  hived h = *hived::create(config);
  REQUIRE(done(h, lazy(gang(1, a, 0, {{1, 4}}))).result == plan_result::bind);
  const hived_placement home = h.tasks(*h.find(job_id(1))).at(0);
  // Opportunistic gangs use every cell that could be bound: the higher gang has to preempt.
  for (std::uint32_t job = 10; job < 20; ++job)
    done(h, of_type(gang(job, b, -1, {{1, 4}}), h, "GPU"));
  const gang_request high = gang(2, a, 5, {{1, 4}});
  gang_plan plan = done(h, high);
  REQUIRE(plan.result == plan_result::preempt);
  REQUIRE(plan.downgraded == jobs{job_id(1)});
  // Its leaves go bad: it claims others, for which no gang is downgraded.
  const node_id claimed = plan.tasks.at(0).node;
  REQUIRE(h.mark_bad(claimed).ok());
  plan = done(h, high);
  REQUIRE(plan.result == plan_result::preempt);
  REQUIRE(plan.tasks.at(0).node != claimed);
  REQUIRE(plan.downgraded.empty());
  REQUIRE(h.mark_healthy(claimed).ok());
  SUBCASE("by its host") { REQUIRE(h.cancel(job_id(2)).ok()); }
  SUBCASE("by a gang of higher priority, which is then cancelled") {
    const gang_plan third = done(h, gang(3, a, 7, {{1, 4}}));
    REQUIRE(third.cancelled == jobs{job_id(2)});
    REQUIRE(third.result == plan_result::preempt);
    REQUIRE(h.cancel(job_id(3)).ok());
  }
  CHECK(h.restored() == jobs{job_id(1)});
  CHECK(runs(h, 1));
  CHECK(h.tasks(*h.find(job_id(1))).at(0) == home);
  CHECK(h.find(job_id(1))->guaranteed());
  CHECK(audit(h).empty());
}

TEST_CASE("what a gang runs on is its own again when the configuration has it again") {
  hived h = small();
  const std::vector<hived_placement> places = {{node_id(2), 0b1111}, {node_id(4), 0b1111}};
  REQUIRE(h.recover(gang(1, b, -1, {{2, 4}}), places).ok());
  hived_config less = cluster();
  less.physical_cells.pop_back();  // with n4
  less.virtual_clusters[1].cells.clear();
  auto report = h.reconfigure(less);
  REQUIRE(report.ok());
  CHECK(report->shrunk == jobs{job_id(1)});
  CHECK(h.tasks(*h.find(job_id(1))).at(1) == hived_placement());
  report = h.reconfigure(less);  // once more the same: nothing new is lost
  REQUIRE(report.ok());
  CHECK(report->shrunk.empty());
  const hived shrunk = h;
  REQUIRE(h.reconfigure(cluster()).ok());
  CHECK(audit(h).empty());
  CHECK(h.tasks(*h.find(job_id(1))) == places);

  // A task that ended meanwhile does not come back.
  h = shrunk;
  refuses(h, StatusCode::kNotFound, "task 2", [&] { return h.finish_task(job_id(1), 2); });
  REQUIRE(h.finish_task(job_id(1), 1).ok());
  REQUIRE(h.reconfigure(cluster()).ok());
  CHECK(h.tasks(*h.find(job_id(1))).at(0) == places[0]);
  CHECK(h.tasks(*h.find(job_id(1))).at(1) == hived_placement());

  // Nor is one idle that runs on, after all that are in the configuration have ended.
  h = shrunk;
  REQUIRE(h.finish_task(job_id(1), 0).ok());
  CHECK(audit(h).empty());
  REQUIRE(runs(h, 1));
  refuses(h, StatusCode::kNotFound, "task 0", [&] { return h.finish_task(job_id(1), 0); });
  const hived outside = h;
  REQUIRE(h.reconfigure(cluster()).ok());
  CHECK(audit(h).empty());
  REQUIRE(runs(h, 1));
  CHECK(h.tasks(*h.find(job_id(1))) == std::vector<hived_placement>{hived_placement(), places[1]});
  REQUIRE(h.finish_task(job_id(1), 1).ok());
  CHECK(h.hash() == hived::create(cluster())->hash());
  h = outside;
  REQUIRE(h.finish_task(job_id(1), 1).ok());
  CHECK(!runs(h, 1));
  CHECK(h.hash() == hived::create(less)->hash());
}

TEST_CASE("of gangs recovered without levels, a higher priority gets the cell of a lower one") {
  hived_config config = cluster();
  config.virtual_clusters[1].cells = {{"RACK.NODE", 1}};
  const gang_request low = gang(1, a, 0, {{1, 4}});
  const gang_request high = gang(2, a, 9, {{1, 4}});
  const std::vector<hived_placement> first = {{node_id(2), 0b1111}};
  const std::vector<hived_placement> second = {{node_id(4), 0b1111}};
  const std::vector<level_t> known(4, 2);
  const std::vector<level_t> unknown;
  for (const bool low_known : {false, true}) {
    for (const bool high_known : {false, true}) {
      hived h = *hived::create(config);
      auto kept = h.recover(low, first, low_known ? known : unknown);
      REQUIRE((kept.ok() && *kept));
      kept = h.recover(high, second, high_known ? known : unknown);
      REQUIRE(kept.ok());
      CHECK(*kept == (high_known || !low_known));
      CHECK(h.find(job_id(1))->downgraded == *kept);
      CHECK(audit(h).empty());
      CHECK(h.tasks(*h.find(job_id(1))) == first);
    }
  }
}

TEST_CASE(
    "a gang without any device in the configuration loses nothing to a gang that comes back") {
  hived_config config = cluster();
  config.virtual_clusters[1].cells = {{"RACK.NODE", 2}};
  hived h = *hived::create(config);
  REQUIRE(*h.recover(gang(1, a, 0, {{2, 4}}),
                     std::vector<hived_placement>{{node_id(2), 0b1111}, {node_id(4), 0b1111}}));
  config.physical_cells.pop_back();  // with n4
  REQUIRE(h.reconfigure(config).ok());
  REQUIRE(h.finish_task(job_id(1), 0).ok());
  REQUIRE(h.find(job_id(1))->guaranteed());
  REQUIRE(*h.recover(gang(2, a, 1, {{1, 4}}), std::vector<hived_placement>{{node_id(2), 0b1111}}));
  REQUIRE(*h.recover(gang(3, a, 2, {{1, 4}}), std::vector<hived_placement>{{node_id(3), 0b1111}}));
  const std::vector<level_t> levels(4, 2);
  CHECK(*h.recover(gang(4, a, 9, {{1, 4}}), std::vector<hived_placement>{{node_id(0), 0b1111}},
                   levels));
  CHECK(h.find(job_id(1))->guaranteed());
  CHECK(h.find(job_id(2))->downgraded);
  CHECK(h.find(job_id(3))->guaranteed());
  CHECK(audit(h).empty());
}

TEST_CASE("the hash covers whether a gang was recovered with levels") {
  hived_config config = cluster();
  config.virtual_clusters[1].cells = {{"RACK.NODE", 1}};
  const std::vector<level_t> known(2, 2);
  const std::vector<level_t> unknown;
  const auto come = [&](const std::vector<level_t>& levels) {
    hived h = *hived::create(config);
    REQUIRE(*h.recover(gang(1, a, 0, {{1, 2}}), std::vector<hived_placement>{{node_id(2), 0b0011}},
                       levels));
    return h;
  };
  CHECK(come(known).hash() != come(unknown).hash());
  CHECK(come(known).hash() == come(known).hash());
}
