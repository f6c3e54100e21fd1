// apiary/tests/topology/detail/shared_array_test.cpp - one array, many owners.
// SPDX-License-Identifier: MIT
#include <apiary/topology/detail/shared_array.h>

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

static_assert(std::is_nothrow_copy_constructible_v<shared_array<int>>);
static_assert(std::is_nothrow_move_constructible_v<shared_array<int>>);

int alive = 0;

struct counted {
  counted() { ++alive; }
  counted(const counted&) { ++alive; }
  counted& operator=(const counted&) = default;
  ~counted() { --alive; }
};

}  // namespace

TEST_CASE("copies share one array, which lives as long as the last of them") {
  {
    shared_array<counted> last;
    CHECK(last.data() == nullptr);
    CHECK(last.size() == 0);
    {
      const shared_array<counted> first(std::vector<counted>(3));
      CHECK(alive == 3);
      shared_array<counted> second = first;
      CHECK(second.data() == first.data());
      last = second;
      second = shared_array<counted>(std::vector<counted>(2));
      CHECK(alive == 5);
      const shared_array<counted> moved = std::move(second);
      CHECK(moved.size() == 2);
      CHECK(second.data() == moved.data());  // NOLINT(bugprone-use-after-move)
      const shared_array<counted>& same = last;
      last = same;
    }
    CHECK(alive == 3);
    CHECK(last.size() == 3);
  }
  CHECK(alive == 0);
}
