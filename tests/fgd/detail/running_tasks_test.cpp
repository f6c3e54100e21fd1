// apiary/tests/fgd/detail/running_tasks_test.cpp - lists of running tasks against a plain vector.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/running_tasks.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace {

using namespace apiary;
using detail::running_task;
using detail::running_tasks;

bool same(const running_task& a, const running_task& b) {
  return a.request.job == b.request.job && a.request.cpu_milli == b.request.cpu_milli &&
         a.where == b.where && a.group == b.group;
}

// All running tasks in the order of their start; every question is answered by a scan.
struct naive_tasks {
  std::vector<running_task> all{};
  std::set<job_id> gangs{};

  [[nodiscard]] std::vector<running_task> of(job_id job) const {
    std::vector<running_task> result;
    for (const running_task& t : all)
      if (t.request.job == job) result.push_back(t);
    return result;
  }
  [[nodiscard]] std::vector<job_id> jobs_on(std::uint32_t nodes, node_id n) const {
    std::set<job_id> jobs;
    for (const running_task& t : all)
      if (t.where.node == n || nodes == 0) jobs.insert(t.request.job);
    return {jobs.begin(), jobs.end()};
  }
};

TEST_CASE("running_tasks: tasks start and end, one by one or as a gang") {
  constexpr std::uint32_t num_jobs = 30;
  rng random(5);
  std::uint32_t nodes = 1;
  running_tasks tasks(nodes);
  naive_tasks naive;
  std::uint32_t number = 0;
  const int steps = apiary_test::scaled(100'000);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const job_id job(random.uniform(num_jobs));
    const std::vector<running_task> its = naive.of(job);
    if (nodes < 8 && random.uniform(100) == 0) {
      tasks.add_node();
      ++nodes;
    }
    std::vector<running_task> ended;
    const auto end = [&](const running_task& t) { ended.push_back(t); };
    if (its.empty()) {
      const bool gang = random.uniform(2) == 0;
      if (gang) naive.gangs.insert(job);
      for (std::uint32_t i = gang ? 1 + random.uniform(5) : 1; i > 0; --i) {
        const running_task task{{.job = job, .cpu_milli = ++number},
                                {node_id(random.uniform(nodes)), random.uniform(4)},
                                random.uniform(2)};
        tasks.start(task, gang);
        naive.all.push_back(task);
      }
    } else if (random.uniform(3) == 0) {
      REQUIRE(tasks.finish(job, end));
      REQUIRE(std::equal(ended.begin(), ended.end(), its.begin(), its.end(), same));
      std::erase_if(naive.all, [&](const running_task& t) { return t.request.job == job; });
      naive.gangs.erase(job);
    } else {
      const placement where{node_id(random.uniform(nodes + 1)), random.uniform(4)};
      const std::uint32_t group = random.uniform(2);
      const auto at = std::find_if(naive.all.begin(), naive.all.end(), [&](const auto& t) {
        return t.request.job == job && t.where == where && t.group == group;
      });
      const bool ends = naive.gangs.contains(job) && at != naive.all.end();
      if (where.node.value < nodes) {
        const auto on_node = [&](const running_task& t) { return t.where.node == where.node; };
        REQUIRE(tasks.count_on(job, where.node) == std::count_if(its.begin(), its.end(), on_node));
      }
      const running_task* one = tasks.find_one(job, group, where);
      REQUIRE((one != nullptr) == ends);
      if (ends) REQUIRE(same(*one, *at));
      REQUIRE(tasks.finish_one(job, group, where, end) == ends);
      REQUIRE(ended.size() == (ends ? 1 : 0));
      if (ends) {
        REQUIRE(same(ended[0], *at));
        naive.all.erase(at);
        if (its.size() == 1) naive.gangs.erase(job);
      }
    }
    const job_id asked(random.uniform(num_jobs + 1));
    const std::vector<running_task> expected = naive.of(asked);
    const std::vector<running_task> is = tasks.tasks_of(asked);
    REQUIRE(std::equal(is.begin(), is.end(), expected.begin(), expected.end(), same));
    REQUIRE(tasks.contains(asked) == !expected.empty());
    REQUIRE(tasks.is_gang(asked) == naive.gangs.contains(asked));
    REQUIRE(tasks.find(asked).has_value() == (!expected.empty() && !tasks.is_gang(asked)));
    if (tasks.find(asked)) REQUIRE(*tasks.find(asked) == expected[0].where);
    const node_id n(random.uniform(nodes));
    REQUIRE(tasks.jobs_on(n) == naive.jobs_on(nodes, n));
    REQUIRE(tasks.idle(n) == tasks.jobs_on(n).empty());
    REQUIRE(tasks.jobs() == naive.jobs_on(0, n));
    REQUIRE(tasks.num_jobs() == tasks.jobs().size());
  }
}

TEST_CASE("running_tasks: a copy is independent") {
  running_tasks tasks(2);
  tasks.start({{.job = job_id(1)}, {node_id(1), 1}}, false);
  running_tasks copy = tasks;
  CHECK(copy.finish(job_id(1), [](const running_task&) {}));
  CHECK(copy.idle(node_id(1)));
  CHECK_FALSE(tasks.idle(node_id(1)));
  CHECK_FALSE(copy.finish(job_id(1), [](const running_task&) {}));
}

}  // namespace
