// apiary/tests/fgd/node_score_test.cpp - what is a score and what is not.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/detail/kind_scores.h>
#include <apiary/fgd/node_score.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

namespace {

using namespace apiary;

// Exactly what the concept grants: movable, not copyable, not default-constructible.
class least_score {
 public:
  explicit least_score(int) {}
  least_score(least_score&&) = default;
  least_score& operator=(least_score&&) = default;
  void update(const node_table&, node_id) {}
  std::uint32_t score(const node_table&, node_id n, const task_request&) const { return n.value; }
  std::uint32_t gpu_mask(const node_table&, node_id, const task_request&) { return 0; }
};
static_assert(NodeScore<least_score>);

struct without_update {
  std::uint32_t score(const node_table&, node_id, const task_request&) const { return 0; }
  std::uint32_t gpu_mask(const node_table&, node_id, const task_request&) const { return 0; }
};
struct scores_in_double : without_update {
  void update(const node_table&, node_id) {}
  double score(const node_table&, node_id, const task_request&) const { return 0; }
};
struct score_changes_itself : without_update {
  void update(const node_table&, node_id) {}
  std::uint32_t score(const node_table&, node_id, const task_request&) { return 0; }
};
static_assert(!NodeScore<int>);
static_assert(!NodeScore<without_update>);
static_assert(!NodeScore<scores_in_double>);
static_assert(!NodeScore<score_changes_itself>);

TEST_CASE("the placer needs no more than the concept says") {
  node_table nodes;
  for (int i = 0; i < 3; ++i) nodes.add({{1000, 1000}, 0, 0});
  detail::kind_scores<least_score> placer(nodes, least_score(1));
  CHECK(placer.place(nodes, {.cpu_milli = 500}, nullptr) == placement{node_id(2), 0});
}

}  // namespace
