// apiary/tests/fgd/gang_sharing_test.cpp - gangs in a cluster of shared GPUs, all or nothing.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <support/naive_constraints.h>
#include <support/naive_sharing.h>
#include <support/naive_task_requests.h>
#include <support/proof_mutations.h>
#include <support/racks_in_use.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

const task_mix halves_and_wholes({{{.cpu_milli = 1, .gpus = 1, .gpu_milli = 500}, 6},
                                  {{.cpu_milli = 2, .gpus = 1, .gpu_milli = 1000}, 4}});

using gang_fgd = gang_sharing_scheduler<fragmentation_gradient>;

gang_fgd fgd_over(node_table nodes) {
  return gang_fgd::create(std::move(nodes),
                          fragmentation_gradient(fragmentation(halves_and_wholes)))
      .value();
}

// A task of part of a GPU, in so many copies.
constrained_task_group parts(std::uint32_t tasks, milli_gpu gpu_milli, resources host = {}) {
  return {.tasks = tasks, .gpus = 1, .host = host, .gpu_milli = gpu_milli};
}

// Nodes of two racks.
enum : level_t { of_nodes = 1, of_racks };
test_cluster rack_shape(std::uint32_t nodes) {
  const std::uint32_t first = (nodes + 1) / 2;
  std::vector<std::uint32_t> racks{first};
  if (nodes > first) racks.push_back(nodes - first);
  return {ragged_tree({{static_cast<std::uint32_t>(racks.size())},
                       racks,
                       std::vector<std::uint32_t>(nodes, 1)}),
          std::vector<std::uint32_t>(nodes, 1'000'000),
          {}};
}

// The gang without its level.
topology_constraints gang_of_tasks(topology_constraints gang) {
  gang.required = any_level;
  return gang;
}

std::int64_t no_cost(const node_state& /*before*/, const node_state& /*after*/) { return 0; }

}  // namespace

TEST_CASE("every gang of three parts on every pair of nodes of two devices") {
  constexpr milli_gpu lefts[] = {0, 300, 600, 1000};
  const constrained_task_group tasks[] = {parts(1, 300, {1, 1}), parts(1, 400, {3, 1}),
                                          parts(1, 600, {1, 1}), parts(1, 1000, {2, 1})};
  const test_cluster shape = rack_shape(2);
  const level_t top = shape.tree.num_levels();
  int fitting = 0;
  int not_greedily = 0;
  const int every = scale() >= 1 ? 1 : 7;
  for (int state = 0; state < 256; state += every) {
    node_table nodes;
    for (std::uint32_t n = 0; n < 2; ++n) {
      const node_id id = nodes.add({{3 + n, 3}, 2, 0});
      for (std::uint32_t d = 0; d < 2; ++d)
        nodes[id].gpu_left[d] = lefts[state >> (4 * n + 2 * d) & 3];
    }
    gang_fgd scheduler = fgd_over(nodes);
    for (std::uint32_t code = 0; code < 64; ++code) {
      CAPTURE(state);
      CAPTURE(code);
      topology_constraints gang;
      for (std::uint32_t i = 0; i < 3; ++i) gang.groups.push_back(tasks[code >> 2 * i & 3]);
      every_device naive(nodes, shape, gang, no_cost);
      const auto answer = scheduler.propose(gang);
      REQUIRE(answer.ok());
      const bool fits = naive(top).has_value();
      REQUIRE(answer->result == (fits ? plan_result::bind : plan_result::wait));
      REQUIRE(answer->reason != wait_reason::undecided);
      REQUIRE(scheduler.nodes() == nodes);
      if (fits) {
        ++fitting;
        not_greedily += answer->is_least_cost ? 1 : 0;
        REQUIRE(naive.cost_of(answer->placements, top).has_value());
      } else {
        const uniform_tree flat{2};
        REQUIRE(proof_check(flat, 0, nodes, gang)(answer->proof));
      }
    }
  }
  MESSAGE(fitting, " fit, ", not_greedily, " of them by the exact search alone");
  CHECK(not_greedily > 0);
}

TEST_CASE("gangs and tasks come and go; nothing that fits is refused, every no is proved") {
  const int rounds = scaled(400);
  int fitting = 0;
  int waiting = 0;
  int least = 0;
  std::uint64_t mutations = 0;
  for (int round = 0; round < rounds; ++round) {
    rng random(static_cast<std::uint64_t>(round));
    node_table empty;
    const std::uint32_t count = 2 + random.uniform(3);
    for (std::uint32_t n = 0; n < count; ++n)
      empty.add({{4 + random.uniform(12), 4 + random.uniform(12)},
                 random.uniform(4),
                 static_cast<gpu_model>(random.uniform(2))});
    const test_cluster shape = rack_shape(count);
    const level_t top = shape.tree.num_levels();
    gang_fgd scheduler = fgd_over(empty);
    const fragmentation_gradient gradient{fragmentation(halves_and_wholes)};
    std::vector<job_id> running;
    for (std::uint32_t job = 0; job < 20; ++job) {
      CAPTURE(round);
      CAPTURE(job);
      if (!running.empty() && random.uniform(3) == 0) {
        const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(running.size()));
        REQUIRE(scheduler.finish(running[i]).ok());
        running.erase(running.begin() + i);
      }
      topology_constraints gang;
      for (std::uint32_t left = 1 + random.uniform(4); left > 0;) {
        constrained_task_group m{.tasks = 1 + random.uniform(left),
                                 .gpus = random.uniform(6) > 0 ? 1U : 0};
        left -= m.tasks;
        if (m.gpus > 0 && random.uniform(3) > 0)
          m.gpu_milli = static_cast<milli_gpu>(100 * (1 + random.uniform(9)));
        m.host = {random.uniform(3), random.uniform(3)};
        if (random.uniform(5) == 0) m.models = 1 + random.uniform(3);
        if (random.uniform(4) == 0) m.spread = {{of_nodes, 1}};
        gang.groups.push_back(m);
      }
      if (random.uniform(3) == 0) gang.required = of_racks;
      const bool flat = gang.required == any_level && random.uniform(2) == 0;
      if (flat)
        for (constrained_task_group& m : gang.groups) m.spread.clear();
      const node_table before = scheduler.nodes();
      const uniform_tree all_nodes{count};
      const auto answer =
          flat ? scheduler.propose(gang) : scheduler.propose(gang, shape.tree, of_nodes);
      REQUIRE(answer.ok());
      REQUIRE(scheduler.nodes() == before);
      const auto cost = [&](const node_state& a, const node_state& b) {
        return gradient.cost(a, b);
      };
      every_device naive(before, shape, gang, cost);
      const level_t within = std::min(gang.required, top);
      const std::optional<std::int64_t> best = naive(within);
      REQUIRE(answer->result == (best ? plan_result::bind : plan_result::wait));
      REQUIRE(answer->reason != wait_reason::undecided);
      if (!best) {
        ++waiting;
        const auto proved = [&](const infeasibility_proof& why) {
          return flat ? proof_check(all_nodes, 0, before, gang)(why)
                      : proof_check(shape.tree, of_nodes, before, gang)(why);
        };
        REQUIRE(proved(answer->proof));
        if (job % 5 == 0) {
          for_each_mutation(answer->proof, [&](const infeasibility_proof& other) {
            ++mutations;
            REQUIRE(!proved(other));
          });
        }
        continue;
      }
      ++fitting;
      const std::optional<std::int64_t> is = naive.cost_of(answer->placements, within);
      REQUIRE(is.has_value());
      if (answer->is_least_cost) {
        ++least;
        REQUIRE(*is == *best);
      }
      REQUIRE(scheduler.commit(job_id(job), gang, *answer).ok());
      running.emplace_back(job);
      REQUIRE(scheduler.num_running() == running.size());
      REQUIRE(scheduler.find_gang(job_id(job)).size() == answer->placements.size());
    }
    for (const job_id job : running) REQUIRE(scheduler.finish(job).ok());
    REQUIRE(scheduler.nodes() == empty);
  }
  MESSAGE(fitting, " fit, ", least, " of them at least cost, ", waiting, " wait, ", mutations,
          " mutations refused");
  if (scale() >= 1) {
    CHECK(least > 100);
    CHECK(fitting > 1000);
    CHECK(waiting > 1000);
    CHECK(mutations > 1000);
  }
}

TEST_CASE("tasks of one job and gangs share a cluster and names") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8, 8}, 2, 0});
  gang_fgd scheduler = fgd_over(nodes);
  topology_constraints gang;
  gang.groups = {parts(2, 500), {.tasks = 1, .gpus = 2}};
  const auto answer = scheduler.propose(gang).value();
  REQUIRE(scheduler.commit(job_id(1), gang, answer.placements).ok());
  CHECK(scheduler.num_running() == 1);
  CHECK(!scheduler.find(job_id(1)));
  CHECK(scheduler.find_gang(job_id(1)).size() == 3);
  CHECK(scheduler.find_gang(job_id(2)).empty());
  const task_request task{.job = job_id(1), .gpus = 1, .gpu_milli = 500};
  CHECK(scheduler.commit(task, scheduler.propose(task).value()).code() ==
        absl::StatusCode::kAlreadyExists);
  task_request other = task;
  other.job = job_id(2);
  REQUIRE(scheduler.commit(other, scheduler.propose(other).value()).ok());
  CHECK(scheduler.commit(job_id(2), gang, answer.placements).code() ==
        absl::StatusCode::kAlreadyExists);
  REQUIRE(scheduler.mark_bad(node_id(0)).ok());
  CHECK(scheduler.finish(job_id(1)).ok());
  CHECK(scheduler.finish(job_id(1)).code() == absl::StatusCode::kNotFound);
  CHECK(scheduler.finish(job_id(2)).ok());
  CHECK(scheduler.propose(gang).value().result == plan_result::wait);
  CHECK(scheduler.propose(gang).value().reason == wait_reason::busy);
  REQUIRE(scheduler.mark_healthy(node_id(0)).ok());
  CHECK(scheduler.nodes() == nodes);
}

TEST_CASE("the tasks of a gang end one by one") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8, 8}, 2, 0});
  gang_fgd scheduler = fgd_over(nodes);
  topology_constraints gang;
  gang.groups = {parts(2, 500), {.tasks = 1, .gpus = 2}};
  const std::vector<task_placement> first = scheduler.propose(gang).value().placements;
  REQUIRE(scheduler.commit(job_id(1), gang, first).ok());
  REQUIRE(scheduler.commit({.job = job_id(2)}, placement{node_id(0), 0}).ok());
  CHECK(scheduler.jobs() == std::vector{job_id(1), job_id(2)});
  CHECK(scheduler.tasks_of(job_id(1)).size() == 3);
  CHECK(scheduler.tasks_of(job_id(1))[2].group == 1);
  CHECK(scheduler.tasks_of(job_id(1))[2].request.gpus == 2);
  for (const task_placement& p : first) {
    const std::vector<job_id> jobs = scheduler.jobs_on(p.where.node);
    CHECK(std::count(jobs.begin(), jobs.end(), job_id(1)) == 1);
  }

  using enum absl::StatusCode;
  const node_table full = scheduler.nodes();
  CHECK(scheduler.finish(job_id(3), first[0]).code() == kNotFound);
  CHECK(scheduler.finish(job_id(2), {0, {node_id(0), 0}}).code() == kNotFound);
  CHECK(scheduler.finish(job_id(1), {1, first[0].where}).code() == kNotFound);
  CHECK(scheduler.finish(job_id(1), {0, {node_id(9), 1}}) ==
        absl::NotFoundError("job 1 has no task of task group 0 on these GPUs of node 9"));
  CHECK(scheduler.nodes() == full);

  REQUIRE(scheduler.finish(job_id(1), first[1]).ok());
  CHECK(scheduler.find_gang(job_id(1)) == std::vector{first[0], first[2]});
  CHECK(scheduler.propose({.gpus = 1, .gpu_milli = 500})->result == plan_result::bind);
  REQUIRE(scheduler.finish(job_id(1), first[2]).ok());
  CHECK(scheduler.num_running() == 2);
  REQUIRE(scheduler.finish(job_id(1), first[0]).ok());
  CHECK(scheduler.jobs() == std::vector{job_id(2)});
  CHECK(scheduler.finish(job_id(1), first[0]).code() == kNotFound);
  CHECK(scheduler.finish(job_id(1)).code() == kNotFound);
  CHECK(scheduler.nodes() == nodes);
}

TEST_CASE("a task joins a running gang, and ends with it") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({.host = {.cpu_milli = 4000}, .gpus = 1});
  auto scheduler = gang_sharing_scheduler<best_fit>::create(nodes, best_fit{}).value();
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1}};
  const task_request more{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 500};
  REQUIRE(scheduler.commit(job_id(1), gang, *scheduler.propose(gang)).ok());
  const placement where = scheduler.propose(more)->where;
  REQUIRE(scheduler.commit({.job = job_id(2), .cpu_milli = 1}, {node_id(0), 0}).ok());
  const node_table before = scheduler.nodes();
  CHECK(scheduler.commit(job_id(2), more, task_placement{1, where}).message() ==
        "job 2 is no gang");
  CHECK(scheduler.commit(job_id(3), more, task_placement{1, where}).message() ==
        "job 3 does not run");
  CHECK(scheduler.commit(job_id(1), more, task_placement{1, {node_id(7), 1}}).message() ==
        "job 1: there is no node 7");
  CHECK(scheduler.commit(job_id(1), more, task_placement{1, {node_id(0), 1}}).code() ==
        absl::StatusCode::kAborted);
  CHECK(
      scheduler.commit(job_id(1), {.gpus = 2, .gpu_milli = 500}, task_placement{1, where}).code() ==
      absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.nodes() == before);
  REQUIRE(scheduler.mark_bad(where.node).ok());
  CHECK(scheduler.commit(job_id(1), more, task_placement{1, where}).message() ==
        "job 1: node 1 is bad");
  REQUIRE(scheduler.mark_healthy(where.node).ok());
  REQUIRE(scheduler.commit(job_id(1), more, task_placement{1, where}).ok());
  CHECK(scheduler.find_gang(job_id(1)) ==
        std::vector<task_placement>{{0, {node_id(0), 1}}, {1, where}});
  CHECK(scheduler.nodes()[where.node].gpu_left[0] == 500);
  // One by one, or all together.
  REQUIRE(scheduler.finish(job_id(1), task_placement{0, {node_id(0), 1}}).ok());
  CHECK(scheduler.num_running() == 2);
  REQUIRE(scheduler.finish(job_id(1)).ok());
  CHECK(scheduler.nodes()[where.node].gpu_left[0] == 1000);
}

TEST_CASE("a gang is recovered on bad nodes, with the tasks that still run") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8, 8}, 2, 0});
  gang_fgd scheduler = fgd_over(nodes);
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  topology_constraints gang;
  gang.groups = {parts(3, 500), {.tasks = 1, .gpus = 1}};
  const std::vector<task_placement> placements{
      {1, {node_id(1), 2}}, {0, {node_id(0), 1}}, {0, {node_id(1), 1}}};
  const node_table before = scheduler.nodes();
  using enum absl::StatusCode;
  CHECK(scheduler.commit(job_id(1), gang, placements).code() == kInvalidArgument);
  const std::vector<task_placement> twice{placements[0], placements[0]};
  CHECK(scheduler.recover(job_id(1), gang, twice).code() == kInvalidArgument);
  CHECK(scheduler.recover(job_id(1), gang, std::vector<task_placement>()).code() ==
        kInvalidArgument);
  CHECK(scheduler.recover(job_id(), gang, placements).code() == kInvalidArgument);
  const std::vector<task_placement> taken{placements[0], {0, {node_id(1), 2}}};
  CHECK(scheduler.recover(job_id(1), gang, taken).code() == kAborted);
  CHECK(scheduler.nodes() == before);
  REQUIRE(scheduler.recover(job_id(1), gang, placements).ok());
  CHECK(scheduler.recover(job_id(1), gang, placements).code() == kAlreadyExists);
  CHECK(scheduler.recover({.job = job_id(1)}, placement{node_id(0), 0}).code() == kAlreadyExists);
  CHECK(scheduler.find_gang(job_id(1)) == placements);
  CHECK(scheduler.nodes()[node_id(1)].free_gpus() == 0);
  CHECK_FALSE(scheduler.nodes()[node_id(1)].healthy);
  gang.groups[0].tasks = 2;  // as it runs now
  CHECK(scheduler.commit(job_id(2), gang, placements) ==
        absl::AbortedError("job 2: node 1 has 0/1000 of GPU 1 left; the task requests 1000"));
  REQUIRE(scheduler.finish(job_id(1)).ok());
  CHECK(scheduler.commit(job_id(2), gang, placements) ==
        absl::AbortedError("job 2: node 1 is bad"));
  CHECK(scheduler.nodes() == before);
}

TEST_CASE("gangs and tasks come, go and end in part; a restart knows the same") {
  rng random(7);
  gang_fgd scheduler = fgd_over(random_nodes(random, 6));
  std::uint32_t job = 0;
  int ended_in_part = 0;
  const int steps = scaled(4'000);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const std::vector<job_id> jobs = scheduler.jobs();
    const auto pick = [&](const auto& among) {
      return among[random.uniform(static_cast<std::uint32_t>(among.size()))];
    };
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m) {
      const task_request like = random_task(random, 0);
      constrained_task_group& group = gang.groups.emplace_back();
      group = {.tasks = 1 + random.uniform(3), .gpus = like.gpus, .host = like.host()};
      if (like.wants_part_of_gpu()) group.gpu_milli = like.gpu_milli;
    }
    const std::uint32_t what = random.uniform(8);
    if (what == 0) {
      const node_id n(random.uniform(scheduler.nodes().size()));
      const bool healthy = scheduler.nodes()[n].healthy;
      (void)(healthy ? scheduler.mark_bad(n) : scheduler.mark_healthy(n));
    } else if (what == 1) {
      (void)scheduler.remove_node(node_id(random.uniform(scheduler.nodes().size())));
      (void)scheduler.add_node(random_shape(random));
    } else if (what == 2) {
      const task_request task = random_task(random, ++job);
      const task_plan plan = scheduler.propose(task).value();
      if (plan.result == plan_result::bind) REQUIRE(scheduler.commit(task, plan).ok());
    } else if (what <= 4) {
      const shared_gang_plan plan = scheduler.propose(gang, 200).value();
      if (plan.result == plan_result::bind)
        REQUIRE(scheduler.commit(job_id(++job), gang, plan).ok());
    } else if (what == 5 && !jobs.empty()) {
      REQUIRE(scheduler.finish(pick(jobs)).ok());
    } else if (!jobs.empty()) {
      const job_id one = pick(jobs);
      const std::vector<task_placement> tasks = scheduler.find_gang(one);
      if (tasks.empty()) continue;
      REQUIRE(scheduler.finish(one, pick(tasks)).ok());
      REQUIRE(scheduler.find_gang(one).size() + 1 == tasks.size());
      ended_in_part += tasks.size() > 1 ? 1 : 0;
    }
    if (step % 32 != 0) continue;
    // The same nodes, idle; what runs is known from questions alone.
    node_table idle;
    for (const node_id n : scheduler.nodes().ids()) {
      idle.add(scheduler.nodes().shape(n));
      if (!scheduler.nodes().contains(n)) idle.erase(n);
    }
    gang_fgd fresh = fgd_over(idle);
    for (const job_id j : scheduler.jobs()) {
      const auto tasks = scheduler.tasks_of(j);
      if (scheduler.find(j)) {
        REQUIRE(fresh.recover(tasks[0].request, tasks[0].where).ok());
        continue;
      }
      topology_constraints known;
      for (const auto& task : tasks) {
        known.groups.resize((std::max)(known.groups.size(), std::size_t{task.group} + 1));
        constrained_task_group& group = known.groups[task.group];
        group = {.tasks = group.tasks + 1,
                 .gpus = task.request.gpus,
                 .host = task.request.host(),
                 .models = task.request.models};
        if (task.request.wants_part_of_gpu()) group.gpu_milli = task.request.gpu_milli;
      }
      REQUIRE(fresh.recover(j, known, scheduler.find_gang(j)).ok());
    }
    for (const node_id n : scheduler.nodes().ids()) {
      if (!scheduler.nodes()[n].healthy) (void)fresh.mark_bad(n);
      REQUIRE(fresh.jobs_on(n) == scheduler.jobs_on(n));
    }
    REQUIRE(fresh.nodes() == scheduler.nodes());
    REQUIRE(fresh.jobs() == scheduler.jobs());
    if (random.uniform(2) == 0) scheduler = std::move(fresh);
  }
  MESSAGE(ended_in_part, " gangs went on without a task");
  if (scale() >= 1) CHECK(ended_in_part > 100);
}

TEST_CASE("among suggested nodes a gang goes where it would if there were no others") {
  int fitting = 0;
  int elsewhere = 0;
  int waiting = 0;
  for (int round = 0; round < scaled(1'000); ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    node_table nodes;
    const std::uint32_t count = 2 + random.uniform(4);
    for (std::uint32_t n = 0; n < count; ++n) {
      const node_id id = nodes.add({{8, 8}, 1 + random.uniform(3), 0});
      for (std::uint32_t d = 0; d < nodes[id].gpus; ++d)
        nodes[id].gpu_left[d] = static_cast<milli_gpu>(100 * random.uniform(11));
    }
    const test_cluster shape = rack_shape(count);
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m)
      gang.groups.push_back(parts(1 + random.uniform(2),
                                  static_cast<milli_gpu>(100 * (1 + random.uniform(9))), {1, 1}));
    if (random.uniform(2) == 0) gang.required = of_racks;
    summary_bitset suggested(count);
    for (std::uint32_t n = 0; n < count; ++n)
      if (random.uniform(3) > 0) suggested.set(n);
    gang_fgd scheduler = fgd_over(nodes);
    gang_fgd alone = fgd_over(scheduler.suggested_nodes(suggested));
    const bool flat = gang.required == any_level;
    const auto answer = flat ? scheduler.propose(gang, suggested)
                             : scheduler.propose(gang, shape.tree, of_nodes, suggested);
    const auto expected = flat ? alone.propose(gang) : alone.propose(gang, shape.tree, of_nodes);
    REQUIRE(answer.ok());
    REQUIRE(answer->result == expected->result);
    REQUIRE(answer->reason == expected->reason);
    REQUIRE(answer->placements == expected->placements);
    REQUIRE(answer->proof == expected->proof);
    REQUIRE(scheduler.nodes() == nodes);
    const auto anywhere =
        flat ? scheduler.propose(gang) : scheduler.propose(gang, shape.tree, of_nodes);
    if (answer->result == plan_result::bind) {
      ++fitting;
      for (const task_placement& p : answer->placements)
        REQUIRE(suggested.test(p.where.node.value));
      elsewhere += answer->placements == anywhere->placements ? 0 : 1;
    } else {
      waiting += anywhere->result == plan_result::bind ? 1 : 0;
    }
  }
  CHECK(fitting > 0);
  CHECK(elsewhere > 0);
  CHECK(waiting > 0);
}

TEST_CASE("a score without a cost places gangs, too") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8, 8}, 2, 0});
  auto scheduler = gang_sharing_scheduler<best_fit>::create(nodes, best_fit{}).value();
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .spread = {{0, 1}}}};
  const auto answer = scheduler.propose(gang, uniform_tree{2}).value();
  REQUIRE(answer.result == plan_result::bind);
  CHECK(!answer.is_least_cost);
  CHECK(answer.placements[0].where.node != answer.placements[1].where.node);
  CHECK(scheduler.commit(job_id(1), gang, answer.placements).ok());
}

TEST_CASE("tasks of a gang without constraints are placed one by one, the largest first") {
  // The small task alone would go to node 0, which is fuller then.
  node_table nodes;
  nodes.add({{1, 1}, 2, 0});
  nodes.add({{100'000, 1}, 1, 0});
  auto scheduler = gang_sharing_scheduler<best_fit>::create(nodes, best_fit{}).value();
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1}, {.tasks = 1, .gpus = 2}};
  const auto answer = scheduler.propose(gang, 0).value();  // no step of the exact search
  REQUIRE(answer.result == plan_result::bind);
  CHECK(answer.placements[0].where.node == node_id(1));
  CHECK(answer.placements[1].where.node == node_id(0));
  CHECK(scheduler.propose(gang, ~std::uint64_t{0})->placements == answer.placements);
}

TEST_CASE("a gang that is only proposed changes no later answer") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8, 8}, 1, 0});
  auto scheduler = gang_sharing_scheduler<best_fit>::create(nodes, best_fit{}).value();
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1}};
  REQUIRE(scheduler.propose(gang).value().result == plan_result::bind);
  const task_request task{.job = job_id(1), .gpus = 1, .gpu_milli = 1000};
  CHECK(scheduler.propose(task).value().where.node == node_id(0));
}

TEST_CASE("a gang in one rack goes to the rack where least is free") {
  node_table nodes;
  for (int n = 0; n < 4; ++n) nodes.add({{8, 8}, 2, 0});
  auto scheduler = gang_sharing_scheduler<best_fit>::create(nodes, best_fit{}).value();
  const task_request task{.job = job_id(1), .gpus = 2, .gpu_milli = 1000};
  REQUIRE(scheduler.commit(task, placement{node_id(3), 3}).ok());
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1}};
  gang.required = of_racks;
  const auto answer = scheduler.propose(gang, rack_shape(4).tree, of_nodes).value();
  REQUIRE(answer.result == plan_result::bind);
  for (const task_placement& p : answer.placements) CHECK(p.where.node == node_id(2));
}

TEST_CASE("a gang waits for ever if one of its tasks fits no idle node") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8, 8}, 2, 0});
  gang_fgd scheduler = fgd_over(nodes);
  const auto reason = [&](const topology_constraints& gang) {
    const shared_gang_plan plan = scheduler.propose(gang).value();
    CHECK(plan.result == plan_result::wait);
    CHECK(!plan.proof.cells.empty());
    return plan.reason;
  };
  topology_constraints gang;
  gang.groups = {parts(2, 500), {.tasks = 1, .gpus = 3}};
  CHECK(reason(gang) == wait_reason::never);
  gang.groups[1] = {.tasks = 1, .gpus = 1, .host = {9, 0}};
  CHECK(reason(gang) == wait_reason::never);
  gang.groups[1].tasks = 0;
  gang.groups[0].tasks = 9;
  CHECK(reason(gang) == wait_reason::busy);
}

TEST_CASE("every bad call about a gang names what is wrong and changes nothing") {
  node_table nodes;
  for (int n = 0; n < 4; ++n) nodes.add({{8, 8}, 2, 0});
  gang_fgd scheduler = fgd_over(nodes);
  topology_constraints gang;
  gang.groups = {parts(2, 600), {.tasks = 1, .gpus = 2}};
  const std::vector<task_placement> places = scheduler.propose(gang).value().placements;
  REQUIRE(scheduler.commit(job_id(7), gang, places).ok());
  const node_table before = scheduler.nodes();
  const auto refused = [&](const absl::Status& status, absl::StatusCode code,
                           const std::string& names) {
    CAPTURE(status.ToString());
    CHECK(status.code() == code);
    CHECK(std::string(status.message()).find(names) != std::string::npos);
    CHECK(scheduler.nodes() == before);
    CHECK(scheduler.num_running() == 1);
  };
  using enum absl::StatusCode;
  const uniform_tree tree{2, 2};
  refused(scheduler.commit(job_id(8), gang, shared_gang_plan{}), kInvalidArgument, "gang 8");
  const auto asked = [&](const topology_constraints& g) {
    return scheduler.propose(g, tree).status();
  };
  refused(scheduler.propose(gang, uniform_tree{3}).status(), kInvalidArgument,
          "3 cells for 4 nodes");
  refused(scheduler.propose(gang, tree, 2).status(), kInvalidArgument, "node level 2");
  refused(scheduler.propose(gang, summary_bitset(3)).status(), kInvalidArgument,
          "3 bits for 4 nodes");
  refused(scheduler.propose(gang, tree, 0, summary_bitset(5)).status(), kInvalidArgument,
          "5 bits for 4 nodes");
  topology_constraints other = gang;
  other.groups[1].gpu_milli = 500;
  refused(asked(other), kInvalidArgument, "task group 1: 2 GPUs with 500");
  refused(scheduler.commit(job_id(8), other, places), kInvalidArgument,
          "task group 1: 2 GPUs with 500");
  other = gang;
  other.groups[0].tasks = 1'000'000;
  refused(asked(other), kInvalidArgument, "1000001 tasks");
  other = gang;
  other.required = 2;
  refused(asked(other), kInvalidArgument, "requires level 2");

  refused(scheduler.commit(job_id(), gang, places), kInvalidArgument, "job id");
  refused(scheduler.commit(job_id(7), gang, places), kAlreadyExists, "job 7");
  refused(scheduler.commit(job_id(8), gang, places), kAborted, "job 8");
  std::vector<task_placement> changed(places.begin() + 1, places.end());
  refused(scheduler.commit(job_id(8), gang, changed), kInvalidArgument,
          "1 tasks of task group 0 have no placement");
  changed = places;
  changed[0].group = 2;
  refused(scheduler.commit(job_id(8), gang, changed), kInvalidArgument, "task group 2");
  changed[0].group = 1;
  refused(scheduler.commit(job_id(8), gang, changed), kInvalidArgument,
          "task group 1 has more placements");
  changed = places;
  changed[2].where.node = node_id(4);
  refused(scheduler.commit(job_id(8), gang, changed), kNotFound, "node 4");
  // The last of three places is not free: the first two are given back.
  changed = scheduler.propose(gang).value().placements;
  changed[2].where = places[2].where;
  refused(scheduler.commit(job_id(8), gang, changed), kAborted, "has 0/1000 of GPU 0 left");
  changed = scheduler.propose(gang).value().placements;
  std::swap(changed[2].where, changed[0].where);
  refused(scheduler.commit(job_id(8), gang, changed), kAborted,
          "the placement has 2 GPUs; the task requests 1");
}

namespace {

topology_constraints random_rules(rng& random) {
  topology_constraints gang;
  const auto some_level = [&] { return random.uniform(12) == 0 ? 7 : 1 + random.uniform(2); };
  for (std::uint32_t m = random.uniform(3) + 1; m > 0; --m) {
    constrained_task_group group{.tasks = random.uniform(5), .gpus = 1};
    if (random.uniform(30) == 0) group.tasks = ~std::uint32_t{0} - random.uniform(4);
    for (std::uint32_t s = random.uniform(3); s > 0; --s)
      group.slices.push_back({some_level(), random.uniform(4)});
    if (random.uniform(4) == 0) group.spread = {{some_level(), 1}};
    if (random.uniform(3) == 0) group.leader = random.uniform(4);
    gang.groups.push_back(group);
  }
  if (random.uniform(3) == 0) gang.required = some_level();
  if (random.uniform(3) == 0) gang.preferred = some_level();
  return gang;
}

// As gang/topology_constraints.h states which rules can be understood, rule by rule.
bool naive_valid(const topology_constraints& gang, level_t node_level, level_t num_levels) {
  std::vector<level_t> levels;
  if (gang.required != any_level) levels.push_back(gang.required);
  if (gang.preferred != any_level) levels.push_back(gang.preferred);
  bool fine = true;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < gang.groups.size(); ++i) {
    const constrained_task_group& m = gang.groups[i];
    all += m.tasks;
    fine = fine && all >> 32 == 0;
    std::map<level_t, std::uint32_t> slices;
    for (const level_count& s : m.slices) {
      levels.push_back(s.level);
      fine = fine && slices.emplace(s.level, s.tasks).second;
    }
    for (const level_count& s : m.spread) levels.push_back(s.level);
    // From the lowest slice to the whole task group each divides the next.
    std::uint32_t smaller = 1;
    slices[any_level] = m.tasks;
    for (const auto& [level, tasks] : slices) {
      fine = fine && smaller > 0 && tasks % smaller == 0;
      smaller = tasks;
    }
    if (m.leader == no_task_group) continue;
    const bool leads = m.leader < gang.groups.size() && m.leader != i &&
                       gang.groups[m.leader].leader == no_task_group;
    const std::uint32_t teams = leads ? gang.groups[m.leader].tasks : 0;
    fine = fine && leads && (teams == 0 ? m.tasks == 0 : m.tasks % teams == 0);
  }
  return fine && std::all_of(levels.begin(), levels.end(),
                             [&](level_t l) { return l >= node_level && l < num_levels; });
}

}  // namespace

TEST_CASE("rules are refused in words exactly where they are not valid") {
  const int rounds = scaled(20'000);
  int bad = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const topology_constraints gang = random_rules(random);
    const std::string status = gang.fault(1, 3);
    REQUIRE(status.empty() == naive_valid(gang, 1, 3));
    REQUIRE(gang.valid(1, 3) == naive_valid(gang, 1, 3));
    bad += status.empty() ? 0 : 1;
  }
  if (scale() >= 1) {
    CHECK(bad > rounds / 10);
    CHECK(bad < rounds - rounds / 10);
  }
  const auto said = [](const topology_constraints& gang) { return gang.fault(1, 3); };
  topology_constraints gang;
  gang.groups = {{.tasks = 4, .gpus = 1}, {.tasks = 6, .gpus = 1, .leader = 0}};
  CHECK(said(gang) ==
        "task group 1: 6 tasks are not a multiple of the 4 tasks of its leader, task group 0");
  gang.groups[1] = {.tasks = 8, .gpus = 1, .leader = 0, .leader_level = 1};
  CHECK(said(gang) == "task group 1: leader level 1 is not a level above the nodes");
  gang.groups[1].leader_level = 3;
  CHECK(said(gang) == "task group 1: leader level 3 is not a level above the nodes");
  gang.groups[1].leader_level = 2;
  CHECK(said(gang).empty());
  CHECK(detail::check_gang(gang, uniform_tree{2, 4, 8}, 1, 8).message() ==
        "task group 1 has a leader level; FGD places workers only on the node of their leader");
  gang.groups[1].leader = no_task_group;
  CHECK(said(gang) == "task group 1 has a leader level and no leader");
  gang.groups[1].leader_level = any_level;
  gang.groups[1].leader = 5;
  CHECK(said(gang) == "task group 1: its leader, task group 5, is not in the gang");
  gang.groups[1].leader = 1;
  CHECK(said(gang) == "task group 1: its leader, task group 1, has a leader");
  gang.required = 3;
  CHECK(said(gang).starts_with("the gang requires level 3"));
  gang.required = any_level;
  gang.groups[0].slices = {{1, 3}};
  CHECK(said(gang) == "task group 0: slices of 3 tasks (level 1) do not divide its 4 tasks");
  gang.groups[0].slices = {{1, 2}, {1, 2}};
  CHECK(said(gang) == "task group 0 has two sizes of slices at level 1");
  gang.groups[0].slices = {{1, 4}, {2, 2}};
  CHECK(said(gang) ==
        "task group 0: slices of 4 tasks (level 1) do not divide slices of 2 tasks (level 2)");
  gang.groups[0].slices = {{5, 2}};
  CHECK(said(gang) == "task group 0 has slices at level 5; the levels are 1 to 2");
  gang.groups[0].slices.clear();
  gang.groups[0].spread = {{0, 2}};
  CHECK(said(gang) == "task group 0 has anti-affinity at level 0; the levels are 1 to 2");
  gang.preferred = 3;
  CHECK(said(gang) == "the gang prefers level 3; the levels are 1 to 2");
  gang.groups = {{.tasks = 5, .gpus = 1}, {.tasks = 4'294'967'291, .gpus = 1}};
  gang.preferred = any_level;
  CHECK(said(gang) ==
        "task group 1: with its 4294967291 tasks the gang has more than 4294967295 tasks");
}

TEST_CASE(
    "a gang on shared GPUs that must be in one rack is placed where its tasks fit one by one") {
  racks_in_use cluster;
  gang_fgd& scheduler = cluster.scheduler;
  constexpr std::uint32_t in_rack = racks_in_use::nodes_in_rack;
  std::uint32_t bound = 0;
  for (std::uint32_t job = 0; job < cluster.gangs.size(); ++job) {
    const topology_constraints& gang = cluster.gangs[job];
    // The same as a gang without constraints, rack by rack.
    bool fits = false;
    for (std::uint32_t rack = 0; rack < racks_in_use::num_racks && !fits; ++rack) {
      summary_bitset suggested(racks_in_use::num_racks * in_rack);
      suggested.set_range(in_rack * rack, in_rack * (rack + 1));
      fits = scheduler.propose(gang_of_tasks(gang), suggested, 1)->result == plan_result::bind;
    }
    const auto plan = scheduler.propose(gang, cluster.racks, 0);
    REQUIRE(plan.ok());
    if (fits) REQUIRE(plan->result == plan_result::bind);
    if (plan->result != plan_result::bind) continue;
    ++bound;
    for (const task_placement& p : plan->placements)
      REQUIRE(p.where.node.value / in_rack == plan->placements[0].where.node.value / in_rack);
    REQUIRE(scheduler.commit(job_id(10'000 + job), gang, *plan).ok());
  }
  CHECK(bound == 40);
}
