// apiary/tests/gang_scheduler/detail/job_demand_test.cpp - what a job needs, in words.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/detail/job_demand.h>

#include <doctest/doctest.h>

#include <string>
#include <vector>

TEST_CASE("text_of_demand: GPUs, cores, memory and models, each if the job names it") {
  const auto text = [](std::uint32_t gpus, apiary::resources per_gpu,
                       const std::vector<std::string>& models = {}) {
    return apiary::detail::text_of_demand(gpus, per_gpu, models);
  };
  CHECK(text(1, {}) == "1 GPU");
  CHECK(text(8, {}) == "8 GPUs");
  CHECK(text(1, {1000, 0}) == "1 GPU with 1 core");
  CHECK(text(8, {2500, 65536}) == "8 GPUs with 2.5 cores and 64 GiB each");
  CHECK(text(2, {0, 1000}) == "2 GPUs with 1000 MiB each");
  CHECK(text(2, {}, {"a", "b"}) == "2 GPUs of model \"a\" or \"b\"");
  CHECK(text(1, {250, 0}, {"a"}) == "1 GPU with 0.25 cores, of model \"a\"");
}
