// apiary/tests/fgd/detail/shape_counts_test.cpp - what idle nodes could run, without a scan of them.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace apiary;

TEST_CASE("shape_counts: the most memory is that of a scan") {
  rng random(3);
  node_table nodes;
  for (int n = 0; n < 5; ++n) nodes.add(apiary_test::random_shape(random));
  nodes.erase(node_id(2));
  std::vector<node_shape> shapes;
  for (const node_id n : nodes.ids())
    if (nodes.contains(n)) shapes.push_back(nodes.shape(n));
  detail::shape_counts counts(nodes);
  const int steps = apiary_test::scaled(20'000);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    if (shapes.empty() || (shapes.size() < 40 && random.uniform(2) == 0)) {
      const std::uint32_t memory = random.uniform(2) == 0 ? 512 * random.uniform(4)  //
                                                          : random.uniform(100'000);
      const node_shape shape{{1000 * random.uniform(3), memory}, random.uniform(3), 0};
      counts.add(shape);
      shapes.push_back(shape);
    } else {
      std::swap(shapes[random.uniform(static_cast<std::uint32_t>(shapes.size()))], shapes.back());
      const node_shape gone = shapes.back();
      shapes.pop_back();
      counts.remove(gone);
    }
    task_request task = apiary_test::random_task(random, 0);
    task.cpu_milli /= 4;
    std::int64_t most = -1;
    for (const node_shape& shape : shapes) {
      task_request without = task;
      without.memory_mib = 0;
      if (shape.fits(without)) most = std::max(most, std::int64_t{shape.host.memory_mib});
    }
    REQUIRE(counts.most_memory_for(task) == most);
    const auto differ = [](const node_shape& a, const node_shape& b) {
      return a.host.cpu_milli != b.host.cpu_milli || a.gpus != b.gpus || a.model != b.model;
    };
    std::size_t distinct = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      distinct += std::all_of(shapes.begin(), shapes.begin() + static_cast<std::ptrdiff_t>(i),
                              [&](const node_shape& s) { return differ(s, shapes[i]); })
                      ? 1U
                      : 0U;
    REQUIRE(counts.size() == distinct);
  }
}

TEST_CASE("shape_counts: where the memory of all nodes differs, a question looks at one shape") {
  node_table nodes;
  for (std::uint32_t n = 0; n < 5'000; ++n) nodes.add({{8000, 1000 + n}, 4, 0});
  detail::shape_counts counts(nodes);
  CHECK(counts.size() == 1);
  const task_request task{.cpu_milli = 8000, .gpus = 4, .gpu_milli = 1000};
  for (std::uint32_t n = 5'000; n-- > 0;) {
    REQUIRE(counts.most_memory_for(task) == 1000 + n);
    counts.remove(nodes.shape(node_id(n)));
  }
  CHECK(counts.most_memory_for(task) == -1);
  CHECK(counts.size() == 0);
}

}  // namespace
