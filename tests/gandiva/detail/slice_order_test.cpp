// apiary/tests/gandiva/detail/slice_order_test.cpp - time sharing tries one job of each kind, not all that wait.
// SPDX-License-Identifier: MIT
#include <apiary/batch/server_placer.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/slice_order.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace slice_order_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;

// Counts how often it is asked for a placement.
struct counting_placer : server_placer {
  counting_placer(server_placer p, std::shared_ptr<int> c)
      : server_placer(std::move(p)), count(std::move(c)) {}
  absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    ++*count;
    return server_placer::propose(r);
  }
  std::shared_ptr<int> count;
};

TEST_CASE("time_sharing: of waiting jobs of equally many GPUs, one is tried if none can start") {
  const server_spec spec{.gpus = {4}};
  const fragmentation metric(task_mix({{{.gpus = 1, .gpu_milli = whole_gpu}, 1}}));
  const auto count = std::make_shared<int>(0);
  using backend = placer_backend<counting_placer>;
  auto s = time_sharing<backend>::create(
               backend(counting_placer(server_placer::create(spec).value(), count), spec, metric),
               {.quantum = 60, .migrations = {.jobs = 0}, .max_wait = 2})
               .value();
  std::vector<time_sharing<backend>::action> actions;
  for (std::uint32_t job = 0; job < 104; ++job) {
    const std::uint32_t gpus = job < 4 || job % 2 == 0 ? 1 : 2;
    REQUIRE(s.submit({.job = job_id(job), .gpus = gpus}, {}, 0, actions).ok());
  }
  CHECK(s.num_waiting() == 100);
  const auto asked = [&](time_ms now) {
    *count = 0;
    actions.clear();
    REQUIRE(s.tick(now, actions).ok());
    return *count;
  };
  asked(0);
  REQUIRE(s.finish(job_id(0), 10).ok());
  CHECK(asked(10) == 3);  // a job of one GPU starts, another does not, nor does one of two GPUs
  CHECK(actions.size() == 1);
  // Jobs that never ran displace the four that ran. Each of them is tried before and after.
  CHECK(asked(60) <= 12);
  CHECK(actions.size() > 4);
  for (time_ms now = 120; now <= 600; now += 60) CHECK(asked(now) <= 24);  // with jobs that starve
}

TEST_CASE("failed_kinds: tenant, priority and GPUs make a kind; other requests have none") {
  failed_kinds failed;
  const job_request r{.job = job_id(1), .tenant = tenant_id(2), .priority = -1, .gpus = 4};
  failed.add(r);
  CHECK(failed.contains(r));
  CHECK(failed.contains(
      job_request{.job = job_id(7), .tenant = tenant_id(2), .priority = -1, .gpus = 4}));
  CHECK(!failed.contains(job_request{.tenant = tenant_id(3), .priority = -1, .gpus = 4}));
  CHECK(!failed.contains(job_request{.tenant = tenant_id(2), .priority = -2, .gpus = 4}));
  CHECK(!failed.contains(job_request{.tenant = tenant_id(2), .priority = -1, .gpus = 3}));
  failed.add(task_request{});
  CHECK(!failed.contains(task_request{}));
  CHECK(counted_gpus(r) == 4);
  CHECK(counted_gpus(task_request{}) == 0);
}

TEST_CASE(
    "gpu_time_weight: in proportion to the weight and to the inverse of the GPUs, at least 1") {
  const auto weight = [](std::uint32_t of_job, std::uint32_t gpus) {
    return gpu_time_weight(of_job, job_request{.gpus = gpus});
  };
  CHECK(weight(1, 1) == 1000);
  CHECK(weight(1, 8) == 125);
  CHECK(weight(3, 8) == 375);
  CHECK(weight(1000, 1) == 1'000'000);
  CHECK(weight(1, 1000) == 1);
  CHECK(weight(1, 5000) == 1);
  CHECK(gpu_time_weight(7, task_request{}) == 7);
}

}  // namespace
}  // namespace slice_order_tests
