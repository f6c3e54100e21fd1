// apiary/tests/fgd/detail/unfit_requests_test.cpp - what is known to fit nowhere, against a scan of the nodes.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/unfit_requests.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using detail::unfit_requests;

std::vector<node_id> all_fits(const node_table& nodes, const task_request& task) {
  std::vector<node_id> result;
  for (const node_id n : nodes.ids())
    if (nodes[n].fits(task)) result.push_back(n);
  return result;
}
// CPU and memory up to the largest numbers, and any number of GPUs.
task_request extreme_task(rng& random) {
  task_request task = apiary_test::random_task(random, 0);
  constexpr std::uint32_t amounts[] = {0, 1, 8'388'607, 8'388'608, UINT32_MAX - 1, UINT32_MAX};
  if (random.uniform(6) == 0) task.cpu_milli = amounts[random.uniform(6)];
  if (random.uniform(6) == 0) task.memory_mib = amounts[random.uniform(6)];
  if (task.wants_whole_gpus() && random.uniform(6) == 0)
    task.gpus = random.uniform(2) == 0 ? 16 + random.uniform(3) : UINT32_MAX;
  return task;
}

TEST_CASE(
    "unfit_requests: what is known to fit nowhere fits nowhere, and tasks fit on candidates only") {
  const std::uint32_t runs = apiary_test::scaled(60U);
  std::uint32_t known = 0;
  std::uint32_t unknown = 0;
  for (std::uint32_t seed = 0; seed < runs; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    node_table nodes = apiary_test::random_nodes(random, 1 + seed % 20);
    if (seed % 5 == 0) nodes.add({{UINT32_MAX, UINT32_MAX}, random.uniform(17), 7});
    unfit_requests unfit(nodes);
    std::vector<std::pair<task_request, placement>> running;
    const auto change = [&](node_id n) { unfit.update(nodes, n); };
    for (std::uint32_t i = 0; i < 1'500; ++i) {
      CAPTURE(i);
      const task_request task = extreme_task(random);
      const std::vector<node_id> fits = all_fits(nodes, task);
      if (unfit.fits_nowhere(task)) {
        REQUIRE(fits.empty());
        ++known;
      } else if (fits.empty()) {
        unfit.learn(task);
        REQUIRE(unfit.fits_nowhere(task));
        ++unknown;
      }
      const auto set = unfit.candidates_for(task);
      const bool is_exact =
          task.models == any_model && (std::max)(task.cpu_milli, task.memory_mib) < 8'388'608;
      for (const node_id n : nodes.ids()) {
        if (nodes[n].fits(task)) REQUIRE(set.contain(n));
        if (is_exact && nodes[n].healthy) REQUIRE(set.contain(n) == nodes[n].fits(task));
      }
      if (!fits.empty() && random.uniform(3) > 0) {
        const node_id n = fits[random.uniform(static_cast<std::uint32_t>(fits.size()))];
        std::uint32_t gpus = 0;
        if (task.wants_whole_gpus()) gpus = nodes[n].first_free_gpus(task.gpus);
        if (task.wants_part_of_gpu()) gpus = nodes[n].tightest_gpu(task.gpu_milli);
        nodes.place(task, {n, gpus});
        change(n);
        running.push_back({task, {n, gpus}});
      }
      if (running.size() > 2 * nodes.size()) {
        std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))],
                  running.back());
        nodes.remove(running.back().first, running.back().second);
        change(running.back().second.node);
        running.pop_back();
      }
      if (random.uniform(30) > 0) continue;
      const node_id n(random.uniform(nodes.size()));
      nodes[n].healthy = !nodes[n].healthy && nodes.contains(n);
      change(n);
      if (random.uniform(4) == 0) change(nodes.add(apiary_test::random_shape(random)));
    }
  }
  CHECK(known > 20 * runs);
  CHECK(unknown > 0);
  CHECK(known > 4 * unknown);
}

TEST_CASE("unfit_requests: one failed task answers for all that ask for more") {
  node_table nodes;
  for (int i = 0; i < 4; ++i) nodes.add({{8'000, 1'000}, 1, 0});
  nodes.add({{32'000, 1'000}, 0, 0});
  nodes.add({{4'000, 1'000}, 2, 1});
  unfit_requests unfit(nodes);
  const auto whole = [](std::uint32_t cpu, std::uint32_t gpus, model_set models = any_model) {
    return task_request{.cpu_milli = cpu, .gpus = gpus, .gpu_milli = whole_gpu, .models = models};
  };
  // What no node has is known from the beginning.
  CHECK(unfit.fits_nowhere(whole(8'001, 1)));
  CHECK(unfit.fits_nowhere(whole(0, 3)));
  CHECK(unfit.fits_nowhere(whole(4'001, 2)));
  CHECK(unfit.fits_nowhere(whole(1, 2, 0b01)));
  CHECK(unfit.fits_nowhere(whole(0, 1, 0b100)));  // no node has this model
  CHECK(unfit.fits_nowhere({.cpu_milli = 32'001}));
  CHECK(unfit.fits_nowhere({.memory_mib = 1'001}));
  CHECK(!unfit.fits_nowhere(whole(8'000, 1)));
  CHECK(!unfit.fits_nowhere({.cpu_milli = 32'000, .memory_mib = 1'000}));
  // Tasks use 5 of 8 cores beside each GPU of model 0.
  for (std::uint32_t n = 0; n < 4; ++n) {
    nodes.place({.cpu_milli = 5'000}, {node_id(n), 0});
    unfit.update(nodes, node_id(n));
  }
  CHECK(!unfit.fits_nowhere(whole(6'000, 1, 0b01)));
  unfit.learn(whole(6'000, 1, 0b01));
  CHECK(unfit.fits_nowhere(whole(3'001, 1, 0b01)));  // the least amount of CPU that no node has
  CHECK(!unfit.fits_nowhere(whole(3'000, 1, 0b01)));
  CHECK(!unfit.fits_nowhere(whole(3'001, 1, 0b11)));  // two nodes are of model 1
  CHECK(!unfit.fits_nowhere({.cpu_milli = 3'001}));
  // A task ends: what fits beside its GPU is no longer known to fit nowhere, but what needs more is.
  nodes.remove({.cpu_milli = 5'000}, {node_id(2), 0});
  unfit.update(nodes, node_id(2));
  CHECK(!unfit.fits_nowhere(whole(8'000, 1, 0b01)));
  CHECK(unfit.fits_nowhere(whole(8'001, 1, 0b01)));
  for (std::uint32_t n = 0; n < 4; ++n)
    CHECK(unfit.candidates_for(whole(6'000, 1, 0b01)).contain(node_id(n)) == (n == 2));
}

TEST_CASE("unfit_requests: nothing fits on a bad node, or on one that was removed") {
  node_table nodes;
  nodes.add({{8'000, 1'000}, 1, 3});
  unfit_requests unfit(nodes);
  const task_request task{.cpu_milli = 1'000, .gpus = 1, .gpu_milli = 500};
  CHECK(!unfit.fits_nowhere(task));
  nodes[node_id(0)].healthy = false;
  unfit.update(nodes, node_id(0));
  unfit.learn(task);
  CHECK(unfit.fits_nowhere(task));
  nodes[node_id(0)].healthy = true;
  unfit.update(nodes, node_id(0));
  CHECK(!unfit.fits_nowhere(task));
  nodes.erase(node_id(0));
  unfit.update(nodes, node_id(0));
  unfit.learn({});
  CHECK(unfit.fits_nowhere({}));
  nodes.insert(node_id(0), {{4'000, 1'000}, 0, 0});
  unfit.update(nodes, node_id(0));
  CHECK(!unfit.fits_nowhere({.cpu_milli = 4'000}));
  CHECK(unfit.fits_nowhere({.cpu_milli = 4'001}));
  CHECK(unfit.fits_nowhere(task));
}

}  // namespace
