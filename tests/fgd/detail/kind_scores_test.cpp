// apiary/tests/fgd/detail/kind_scores_test.cpp - the indexed search against a scan of all nodes.
// SPDX-License-Identifier: MIT
#include "support/last_fit.h"
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/container/score_tree.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/detail/kind_scores.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using detail::kind_scores;

// The first of the best nodes by a scan.
template <class Score>
std::optional<placement> scan(const node_table& nodes, Score& score, const task_request& task,
                              const summary_bitset* allowed) {
  std::optional<node_id> best;
  for (const node_id n : nodes.ids()) {
    if (!nodes[n].fits(task) || (allowed != nullptr && !allowed->test(n.value))) continue;
    if (!best || score.score(nodes, n, task) > score.score(nodes, *best, task)) best = n;
  }
  if (!best) return std::nullopt;
  return placement{*best, score.gpu_mask(nodes, *best, task)};
}

// Random commits, departures, failures, repairs and new kinds; every answer, with and without a
// filter, is that of the scan.
template <class Score>
void check_against_scan(std::uint64_t seed, std::uint32_t num_nodes, std::uint32_t steps,
                        Score score) {
  CAPTURE(seed);
  rng random(seed);
  node_table nodes = apiary_test::random_nodes(random, num_nodes);
  Score plain = score;
  for (const node_id n : nodes.ids()) plain.update(nodes, n);
  kind_scores<Score> placer(nodes, std::move(score));
  std::vector<task_request> kinds;
  std::vector<std::pair<task_request, placement>> running;
  const auto changed = [&](node_id n) {
    placer.update(nodes, n);
    plain.update(nodes, n);
  };
  for (std::uint32_t step = 0; step < steps; ++step) {
    CAPTURE(step);
    const std::uint32_t what = random.uniform(10);
    if (what == 0 || kinds.empty()) {
      const task_request task = apiary_test::random_task(random, 0);
      if (kinds.size() < 12) {
        kinds.push_back(task);
      } else {
        kinds[random.uniform(12)] = task;
      }
    }
    if (what == 1) {
      const node_id n(random.uniform(num_nodes));
      nodes[n].healthy = !nodes[n].healthy;
      changed(n);
    }
    if (what <= 4 && !running.empty()) {
      const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(running.size()));
      nodes.remove(running[i].first, running[i].second);
      changed(running[i].second.node);
      running[i] = running.back();
      running.pop_back();
    }
    const task_request task = kinds[random.uniform(static_cast<std::uint32_t>(kinds.size()))];
    summary_bitset allowed(num_nodes);
    for (std::uint32_t n = 0; n < num_nodes; ++n)
      allowed.assign(n, random.uniform(1 + step % 4) == 0);
    REQUIRE(placer.place(nodes, task, &allowed) == scan(nodes, plain, task, &allowed));
    const std::optional<placement> where = placer.place(nodes, task, nullptr);
    REQUIRE(placer.fits_somewhere(nodes, task) == where.has_value());
    REQUIRE(where == scan(nodes, plain, task, nullptr));
    if (where) {
      nodes.place(task, *where);
      changed(where->node);
      running.push_back({task, *where});
    }
  }
}

TEST_CASE("the placer decides as a scan of all nodes does") {
  const std::uint32_t rounds = apiary_test::scaled(60U);
  for (std::uint32_t seed = 0; seed < rounds; ++seed) {
    rng random(seed);
    const std::uint32_t nodes = 1 + random.uniform(150);
    check_against_scan(seed, nodes, 600, best_fit{});
    check_against_scan(seed, nodes, 600, dot_prod{});
    check_against_scan(seed, nodes, 600, gpu_packing{});
    check_against_scan(seed, nodes, 600, gpu_clustering{});
    check_against_scan(seed, nodes, 600,
                       fragmentation_gradient(fragmentation(apiary_test::random_mix(random))));
  }
}

TEST_CASE("a cluster of one node, and a task that fits nowhere") {
  node_table nodes;
  nodes.add({{1000, 1000}, 1, 0});
  kind_scores<best_fit> placer(nodes, best_fit{});
  const task_request one{.gpus = 1, .gpu_milli = 1000};
  CHECK(placer.place(nodes, one, nullptr) == placement{node_id(0), 1});
  CHECK_FALSE(placer.place(nodes, {.gpus = 2, .gpu_milli = 1000}, nullptr));
  const summary_bitset none(1);
  CHECK_FALSE(placer.place(nodes, one, &none));
}

// Counts how many scores it gives.
struct counting : best_fit {
  static inline int scored = 0;
  std::uint32_t score(const node_table& nodes, node_id n, const task_request& task) const noexcept {
    ++scored;
    return best_fit::score(nodes, n, task);
  }
};

TEST_CASE("a decision scores again only what changed since, each node once") {
  node_table nodes;
  for (int i = 0; i < 1000; ++i) nodes.add({{8000, 8000}, 8, 0});
  kind_scores<counting> placer(nodes, counting{});
  counting::scored = 0;
  const task_request k{.gpus = 1, .gpu_milli = 10};
  for (int i = 0; i < 3; ++i) CHECK(placer.place(nodes, k, nullptr));
  CHECK(counting::scored == 1000);
  for (int i = 0; i < 5; ++i) {
    placer.update(nodes, node_id(7));
    placer.update(nodes, node_id(8));
  }
  CHECK(placer.place(nodes, k, nullptr));
  CHECK(counting::scored == 1002);
}

TEST_CASE("a second decision after a change scores nothing again") {
  node_table nodes;
  for (int i = 0; i < 10; ++i) nodes.add({{8000, 8000}, 8, 0});
  kind_scores<counting> placer(nodes, counting{});
  const task_request k{.gpus = 1, .gpu_milli = 10};
  CHECK(placer.place(nodes, k, nullptr));
  placer.update(nodes, node_id(3));
  counting::scored = 0;
  for (int i = 0; i < 3; ++i) CHECK(placer.place(nodes, k, nullptr));
  CHECK(counting::scored == 1);
}

TEST_CASE("random_fit chooses among all nodes that fit, with equal chance") {
  node_table nodes;
  for (std::uint32_t i = 0; i < 30; ++i) nodes.add({{1000 * i, 1000}, 0, 0});
  kind_scores<random_fit> placer(nodes, random_fit(3));
  const task_request k{.cpu_milli = 20000};
  std::vector<int> drawn(30);
  for (int i = 0; i < 5000; ++i) ++drawn[placer.place(nodes, k, nullptr)->node.value];
  for (std::uint32_t i = 0; i < 30; ++i) {
    CAPTURE(i);
    CHECK((i < 20) == (drawn[i] == 0));
    if (i >= 20) CHECK(drawn[i] > 400);
    if (i >= 20) CHECK(drawn[i] < 600);
  }
  summary_bitset allowed(30);
  CHECK_FALSE(placer.place(nodes, k, &allowed));
  for (const std::uint32_t i : {3U, 22U, 29U}) allowed.set(i);
  std::vector<int> among(30);
  for (int i = 0; i < 2000; ++i) ++among[placer.place(nodes, k, &allowed)->node.value];
  CHECK(among[22] + among[29] == 2000);
  CHECK(among[22] > 850);
  CHECK(among[22] < 1150);
}

}  // namespace
