// apiary/tests/model/request_test.cpp - which tasks make sense.
// SPDX-License-Identifier: MIT
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <type_traits>

namespace {

using namespace apiary;

static_assert(std::is_trivially_copyable_v<task_request>);

TEST_CASE("a task takes no GPU, a share of one, or whole ones") {
  constexpr task_request none{.cpu_milli = 4000};
  CHECK(none.valid());
  CHECK_FALSE(none.wants_gpu());
  CHECK_FALSE(none.wants_part_of_gpu());
  CHECK(none.total_gpu_milli() == 0);

  constexpr task_request part{.gpus = 1, .gpu_milli = 250};
  CHECK(part.valid());
  CHECK(part.wants_part_of_gpu());
  CHECK_FALSE(part.wants_whole_gpus());
  CHECK(part.total_gpu_milli() == 250);

  constexpr task_request whole{.gpus = 8, .gpu_milli = 1000};
  CHECK(whole.valid());
  CHECK(whole.wants_whole_gpus());
  CHECK_FALSE(whole.wants_part_of_gpu());
  CHECK(whole.total_gpu_milli() == 8000);
}

TEST_CASE("other combinations are not valid") {
  CHECK_FALSE(task_request{.gpus = 1, .gpu_milli = 0}.valid());
  CHECK_FALSE(task_request{.gpus = 1, .gpu_milli = 1001}.valid());
  CHECK_FALSE(task_request{.gpus = 2, .gpu_milli = 500}.valid());
  // Without GPUs the share means nothing.
  CHECK(task_request{.gpus = 0, .gpu_milli = 500}.valid());
  CHECK(task_request{.gpus = 0, .gpu_milli = 500}.total_gpu_milli() == 0);
}

}  // namespace
