// apiary/tests/gandiva/detail/slice_waits_test.cpp - the waiting jobs of time_sharing_queue.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/slice_waits.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace time_sharing_wait_queues_tests {
namespace {

using namespace apiary;
using detail::queued_job;
using detail::time_sharing_wait_queues;

queued_job guaranteed(std::uint32_t job, std::uint32_t tenant, std::uint32_t gpus,
                      std::int32_t priority, time_ms arrival) {
  job_request r{.job = job_id(job), .tenant = tenant_id(tenant), .gpus = gpus};
  r.priority = priority;
  return {r, arrival, true};
}

TEST_CASE("time_sharing_wait_queues: the first guaranteed job of the queues that have not failed") {
  time_sharing_wait_queues queues;
  CHECK(!queues.first_guaranteed());
  queues.enter({{.job = job_id(0), .gpus = 1}, 0, false});
  CHECK(!queues.first_guaranteed());
  const queued_job late = guaranteed(1, 0, 1, 0, 9);
  const queued_job early = guaranteed(2, 0, 2, 0, 5);
  const queued_job urgent = guaranteed(3, 1, 2, 1, 9);
  const queued_job same_time = guaranteed(4, 1, 1, 0, 5);
  for (const queued_job& r : {late, early, urgent, same_time}) queues.enter(r);
  CHECK(queues.first_guaranteed() == job_id(3));
  queues.fail(urgent);
  CHECK(queues.first_guaranteed() == job_id(2));
  queues.fail(early);
  CHECK(queues.first_guaranteed() == job_id(4));
  SUBCASE("until GPUs of the tenant are free") {
    queues.retry(tenant_id(0));
    CHECK(queues.first_guaranteed() == job_id(2));
    queues.fail(early);
    queues.retry(std::nullopt);
    CHECK(queues.first_guaranteed() == job_id(3));
  }
  SUBCASE("until the first job leaves, or another one comes first") {
    queues.enter(guaranteed(5, 1, 2, 0, 1));  // behind the urgent one
    CHECK(queues.first_guaranteed() == job_id(4));
    queues.leave(urgent);
    CHECK(queues.first_guaranteed() == job_id(5));
    queues.fail(urgent);
    queues.enter(guaranteed(6, 1, 2, 2, 9));
    CHECK(queues.first_guaranteed() == job_id(6));
  }
}

TEST_CASE("time_sharing_wait_queues: each queue counts delays by its cause") {
  time_sharing_wait_queues queues;
  const queued_job one = guaranteed(1, 0, 1, 0, 0);
  const queued_job two = guaranteed(2, 0, 2, 0, 0);
  queues.enter(one);
  queues.enter(two);
  const delays before_one = queues.clock(one, 0);
  const delays before_two = queues.clock(two, 0);
  queues.set_causes(
      [](const auto& queue) {
        return std::get<2>(queue) > 1 ? delay_cause::capacity : delay_cause::quota;
      },
      0);
  delays waited = queues.clock(one, 10);
  CHECK((waited -= before_one)[delay_cause::quota] == 10);
  waited = queues.clock(two, 10);
  CHECK((waited -= before_two)[delay_cause::capacity] == 10);
}

}  // namespace
}  // namespace time_sharing_wait_queues_tests
