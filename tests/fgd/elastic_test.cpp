// apiary/tests/fgd/elastic_test.cpp - nodes join, leave, change and fail while tasks run.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/price_score.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// What a host knows of its cluster, by node id and by job; everything else is made from it.
struct known_cluster {
  struct known_node {
    node_shape shape{};
    bool healthy = true;
    bool exists = true;
  };
  std::vector<known_node> nodes{};
  std::map<job_id, std::pair<task_request, placement>> running{};

  // The inventory, with nothing running; ids that no node has are erased ones.
  [[nodiscard]] node_table inventory() const {
    node_table table;
    for (const known_node& node : nodes) table.add(node.exists ? node.shape : node_shape{});
    for (const node_id n : table.ids())
      if (!nodes[n.value].exists) table.erase(n);
    return table;
  }
  // The nodes as they must be now.
  [[nodiscard]] node_table now() const {
    node_table table = inventory();
    for (const auto& [job, task] : running) table.place(task.first, task.second);
    for (const node_id n : table.ids())
      if (table.contains(n)) table[n].healthy = nodes[n.value].healthy;
    return table;
  }
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    for (const auto& [job, task] : running)
      if (task.second.node == n) jobs.push_back(job);
    return jobs;
  }
  // The lowest id that no node has.
  [[nodiscard]] node_id next_id() const {
    std::uint32_t n = 0;
    while (n < nodes.size() && nodes[n].exists) ++n;
    return node_id(n);
  }
  // Why a task waits that fits on no healthy node.
  [[nodiscard]] wait_reason reason(const task_request& task) const {
    wait_reason reason = wait_reason::never;
    node_table table = now();
    for (const node_id n : table.ids()) {
      if (!table.contains(n) || !table.shape(n).fits(task)) continue;
      table[n].healthy = true;
      if (table[n].fits(task)) return wait_reason::unhealthy;
      reason = wait_reason::busy;
    }
    return reason;
  }
};

// The first of the nodes with the highest rate(node) where the task fits.
template <class Rate>
std::optional<node_id> best_rated(const node_table& nodes, const task_request& task,
                                  const Rate& rate) {
  std::optional<node_id> best;
  std::uint32_t most = 0;
  for (const node_id n : nodes.ids()) {
    if (!nodes[n].fits(task)) continue;
    const std::uint32_t here = rate(n);
    if (best && here <= most) continue;
    best = n;
    most = here;
  }
  return best;
}
// Where a scan of all nodes places the task, with a score that has seen nothing before.
template <class Score>
std::optional<placement> place_afresh(const node_table& nodes, Score score,
                                      const task_request& task) {
  for (const node_id n : nodes.ids()) score.update(nodes, n);
  std::optional<node_id> best;
  if constexpr (requires { score.prepare(nodes, task); }) {
    const auto kind = score.prepare(nodes, task);
    best = best_rated(nodes, task, [&](node_id n) { return score.score(nodes, n, task, kind); });
  } else {
    best = best_rated(nodes, task, [&](node_id n) { return score.score(nodes, n, task); });
  }
  if (!best) return std::nullopt;
  return placement{*best, score.gpu_mask(nodes, *best, task)};
}

// A scheduler built from the inventory, to which every task is recovered in a random order.
template <class Score>
gpu_sharing_scheduler<Score> restarted(const known_cluster& known, const Score& score,
                                       rng& random) {
  auto fresh = gpu_sharing_scheduler<Score>::create(known.inventory(), score).value();
  const auto mark = [&] {
    for (std::uint32_t n = 0; n < known.nodes.size(); ++n)
      if (known.nodes[n].exists && !known.nodes[n].healthy)
        REQUIRE(fresh.mark_bad(node_id(n)).ok());
  };
  const bool mark_first = random.uniform(2) == 0;
  if (mark_first) mark();
  std::vector<std::pair<task_request, placement>> tasks;
  for (const auto& [job, task] : known.running) tasks.push_back(task);
  while (!tasks.empty()) {
    std::swap(tasks[random.uniform(static_cast<std::uint32_t>(tasks.size()))], tasks.back());
    REQUIRE(fresh.recover(tasks.back().first, tasks.back().second).ok());
    tasks.pop_back();
  }
  if (!mark_first) mark();
  return fresh;
}

// Random events, with so many kinds of task. Each decision is that of a scan with a score computed
// afresh. Now and then the nodes are compared with a table made afresh, and all decisions with those
// of a scheduler built afresh, which sometimes takes over.
template <class Score>
void random_events(std::uint32_t seed, std::uint32_t events, std::uint32_t num_kinds,
                   const std::function<Score(rng&)>& new_score) {
  CAPTURE(seed);
  rng random(seed);
  known_cluster known;
  for (int n = 0; n < 6; ++n) known.nodes.push_back({apiary_test::random_shape(random)});
  Score score = new_score(random);
  auto scheduler = gpu_sharing_scheduler<Score>::create(known.inventory(), score).value();
  std::vector<task_request> kinds;
  for (std::uint32_t i = 0; i < num_kinds; ++i) {
    kinds.push_back(apiary_test::random_task(random, 0));
    if (i >= 40) kinds.back().cpu_milli = random.uniform(12'000);  // nearly all differ
  }
  std::map<std::string, int> seen;
  std::uint32_t last_job = 0;
  for (std::uint32_t event = 0; event < events; ++event) {
    CAPTURE(event);
    const node_id n(random.uniform(static_cast<std::uint32_t>(known.nodes.size())));
    known_cluster::known_node& node = known.nodes[n.value];
    const std::uint32_t what = random.uniform(32);
    const node_id next = known.next_id();
    if (what == 0 && next.value < 150) {
      const node_shape shape = apiary_test::random_shape(random);
      REQUIRE(scheduler.add_node(shape).value() == next);
      if (next.value == known.nodes.size()) known.nodes.emplace_back();
      known.nodes[next.value] = {shape};
      ++seen["joins"];
    } else if (what == 1) {
      const std::vector<job_id> jobs = known.jobs_on(n);
      REQUIRE(scheduler.jobs_on(n) == jobs);
      if (node.exists && !jobs.empty() && random.uniform(2) == 0) {
        REQUIRE(scheduler.remove_node(n).code() == absl::StatusCode::kFailedPrecondition);
        ++seen["must stay"];
        continue;
      }
      for (const job_id job : jobs) {
        REQUIRE(scheduler.finish(job).ok());
        known.running.erase(job);
      }
      REQUIRE(scheduler.remove_node(n).code() ==
              (node.exists ? absl::StatusCode::kOk : absl::StatusCode::kNotFound));
      node.exists = false;
      ++seen["leaves"];
    } else if (what == 2) {
      node_shape shape = apiary_test::random_shape(random);
      shape.model = node.shape.model;
      const absl::Status status = scheduler.resize_node(n, shape.gpus, shape.host);
      const bool can = node.exists && known.now().can_resize(n, shape);
      REQUIRE(status.ok() == can);
      if (can) node.shape = shape;
      ++seen[can ? "resized" : "not resized"];
    } else if (what <= 4) {
      const bool healthy = what == 3;
      REQUIRE((healthy ? scheduler.mark_healthy(n) : scheduler.mark_bad(n)).ok() == node.exists);
      node.healthy = healthy;
      ++seen["health"];
    } else if (what <= 14 && !known.running.empty()) {
      auto ended = known.running.lower_bound(job_id(random.uniform(last_job + 1)));
      if (ended == known.running.end()) ended = known.running.begin();
      REQUIRE(scheduler.finish(ended->first).ok());
      known.running.erase(ended);
    } else if (what == 15 && random.uniform(20) == 0) {
      score = new_score(random);
      REQUIRE(scheduler.set_score(score).ok());
      ++seen["scores"];
    } else {
      task_request task = kinds[random.uniform(num_kinds)];
      task.job = job_id(++last_job);
      if (random.uniform(3) == 0) task.memory_mib = 4096 * random.uniform(20);
      const task_plan plan = scheduler.propose(task).value();
      const std::optional<placement> expected = place_afresh(scheduler.nodes(), score, task);
      REQUIRE((plan.result == plan_result::bind) == expected.has_value());
      if (expected) {
        REQUIRE(plan.where == *expected);
        REQUIRE(scheduler.commit(task, plan).ok());
        known.running[task.job] = {task, plan.where};
      } else {
        REQUIRE(plan.reason == known.reason(task));
        ++seen[wait_reason_text(plan.reason)];
      }
    }
    if (event % 16 == 0) REQUIRE(scheduler.nodes() == known.now());
    if (event % 512 != 0) continue;
    gpu_sharing_scheduler<Score> fresh = restarted(known, score, random);
    REQUIRE(fresh.nodes() == scheduler.nodes());
    REQUIRE(fresh.num_running() == scheduler.num_running());
    for (const task_request& task : kinds)
      REQUIRE(fresh.propose(task).value() == scheduler.propose(task).value());
    if (random.uniform(3) == 0) scheduler = std::move(fresh);
  }
  if (apiary_test::scale() < 1 || events < 100'000) return;
  CHECK(seen.size() == 10);
  for (const auto& [name, times] : seen) {
    const std::string event = name;
    CAPTURE(event);
    CHECK(times > 20);
  }
}

TEST_CASE("FGD in a cluster that grows and shrinks decides as a scheduler built afresh") {
  const std::uint32_t events = apiary_test::scaled(200'000U);
  for (std::uint32_t seed = 0; seed < 5; ++seed)
    random_events<fragmentation_gradient>(
        seed, events, seed % 2 == 0 ? 40U : 1'500U, [](rng& random) {
          return fragmentation_gradient(fragmentation(apiary_test::random_mix(random)));
        });
}

TEST_CASE("prices in a cluster that grows and shrinks decide as a scheduler built afresh") {
  const std::uint32_t events = apiary_test::scaled(40'000U);
  for (std::uint32_t seed = 0; seed < 2; ++seed)
    random_events<price_score>(seed, events, seed == 0 ? 40U : 1'500U, [](rng& random) {
      const node_table nodes = apiary_test::random_nodes(random, 20);
      const task_mix mix(
          {{{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 500}, 2 + random.uniform(9)},
           {{.cpu_milli = 4000, .gpus = 2, .gpu_milli = 1000}, 1 + random.uniform(9)},
           {{.cpu_milli = 8000, .gpus = 0}, 1 + random.uniform(9)}});
      return price_score::create(nodes, mix, {.samples = 2}).value();
    });
}

TEST_CASE("where the memory of all nodes differs, a task never runs if the largest node has left") {
  node_table nodes;
  for (std::uint32_t n = 0; n < 2'000; ++n) nodes.add({{8000, 1000 + n}, 4, 0});
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  const auto reason = [&](std::uint32_t memory) {
    return scheduler
        .propose({.cpu_milli = 8000, .memory_mib = memory, .gpus = 4, .gpu_milli = 1000})
        .value()
        .reason;
  };
  for (std::uint32_t n = 2'000; n-- > 0;) {
    REQUIRE(scheduler.mark_bad(node_id(n)).ok());
    CHECK(reason(1000 + n) == wait_reason::unhealthy);
    CHECK(reason(1001 + n) == wait_reason::never);
    REQUIRE(scheduler.remove_node(node_id(n)).ok());
    if (n % 100 == 0) CHECK(reason(1000 + n) == wait_reason::never);
  }
  // Nodes of one shape count one by one.
  for (int i = 0; i < 2; ++i) REQUIRE(scheduler.add_node({{8000, 500}, 4, 0}).ok());
  REQUIRE(scheduler.remove_node(node_id(0)).ok());
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  CHECK(reason(500) == wait_reason::unhealthy);
  REQUIRE(scheduler.resize_node(node_id(1), 3, {8000, 500}).ok());
  CHECK(reason(500) == wait_reason::never);
}

}  // namespace
