// apiary/tests/gandiva/gandiva_fgd_test.cpp - jobs over a placer are themselves, and have no rights.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace gandiva_by_placer {
namespace {

using namespace apiary;
using namespace apiary::detail;
using turns_over_servers = gandiva_with_placer<server_placer>;

fragmentation pairs() {
  return fragmentation(task_mix({{{.gpus = 2, .gpu_milli = whole_gpu}, 1}}));
}
measured_placer<server_placer> servers(const server_spec& spec) {
  return {server_placer::create(spec).value(), spec, pairs()};
}
job_request job_of(std::uint32_t job, std::uint32_t gpus, std::int32_t priority = 0) {
  return {.job = job_id(job), .tenant = tenant_id(job), .priority = priority, .gpus = gpus};
}
template <class Queue>
std::vector<job_action> decided(Queue& queue, time_ms now) {
  std::vector<job_action> actions;
  REQUIRE(queue.decide(now, actions).ok());
  return actions;
}

TEST_CASE("gandiva_with_placer: nothing may run there yet, and a quantum lasts") {
  CHECK(turns_over_servers::create(servers({.gpus = {4}}), {.quantum = 0}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  auto used = servers({.gpus = {4}});
  REQUIRE(used.commit(job_of(0, 1), {{node_id(0), 1}}).ok());
  CHECK(turns_over_servers::create(used, {}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("gandiva_with_placer: the largest job fits into the servers, and no job may be larger") {
  auto q = turns_over_servers::create(servers({.gpus = {4, 2}}), {}).value();
  CHECK(q.total_gpus() == 6);
  CHECK(q.submit(job_of(7, 6), 0).ok());
  CHECK(q.submit(job_of(8, 7), 0).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE(
    "gandiva_with_placer: neither a tenant nor a priority gives a quota, or a time slice before "
    "others") {
  auto q = turns_over_servers::create(servers({.gpus = {4}}), {.quantum = 60}).value();
  REQUIRE(q.submit(job_of(0, 4, -1), 0).ok());
  REQUIRE(q.submit(job_of(1, 4, 9), 0).ok());
  CHECK(decided(q, 0).size() == 1);
  CHECK(q.find(job_id(0)) == turns_over_servers::phase::sliced);
  CHECK(q.find(job_id(1)) == turns_over_servers::phase::wait);
  REQUIRE(q.submit(job_of(2, 4, 1000), 30).ok());
  CHECK(decided(q, 30).empty());
  CHECK(decided(q, 60).size() == 2);
  CHECK(q.find(job_id(1)) == turns_over_servers::phase::sliced);
  CHECK(decided(q, 119).empty());
  CHECK(decided(q, 120).size() == 2);
  CHECK(q.find(job_id(2)) == turns_over_servers::phase::sliced);
}

TEST_CASE("gandiva_with_placer: a job that waits says whether GPUs were missing, or together") {
  auto q = turns_over_servers::create(servers({.gpus = {2, 2}}), {.quantum = max_time}).value();
  REQUIRE(q.submit(job_of(0, 2), 0).ok());
  REQUIRE(q.submit(job_of(1, 1), 0).ok());
  CHECK(decided(q, 0).size() == 2);
  REQUIRE(q.submit(job_of(2, 2), 10).ok());
  CHECK(decided(q, 10).empty());  // one is idle
  REQUIRE(q.submit(job_of(3, 1), 15).ok());
  REQUIRE(q.finish(job_id(0), 15).ok());
  const auto started = decided(q, 15);
  REQUIRE(started.size() == 2);
  for (const job_action& a : started)
    CHECK(a.waited[delay_cause::capacity] == (a.job == job_id(2) ? 5 : 0));
}

TEST_CASE("gandiva_fgd: a job goes where FGD sends it, which best fit does not") {
  // Pairs alone are typical: a job of one GPU breaks none on the server that has three.
  const server_spec spec{.gpus = {2, 3}};
  const fragmentation metric = pairs();
  auto fgd =
      gpu_sharing_placer<fragmentation_gradient>::create(spec, fragmentation_gradient(metric));
  auto by_fgd = gandiva_fgd::create({*std::move(fgd), spec, metric}, {.quantum = 60}).value();
  auto by_fit = turns_over_servers::create(servers(spec), {.quantum = 60}).value();
  REQUIRE(by_fgd.submit(job_of(0, 1), 0).ok());
  REQUIRE(by_fit.submit(job_of(0, 1), 0).ok());
  CHECK(decided(by_fgd, 0).at(0).where.at(0).node == node_id(1));
  CHECK(decided(by_fit, 0).at(0).where.at(0).node == node_id(0));
}

}  // namespace
}  // namespace gandiva_by_placer
