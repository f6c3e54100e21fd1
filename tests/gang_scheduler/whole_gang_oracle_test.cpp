// apiary/tests/gang_scheduler/whole_gang_oracle_test.cpp - short slices, replicas, replaced nodes: every node tried.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/plan.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <support/scale.h>
#include <support/scheduler_of_texts.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

constexpr std::uint32_t nowhere = ~std::uint32_t{0};

// Nodes in racks in blocks, and what each has free. Node i has id i.
struct plain_cluster {
  std::vector<std::uint32_t> rack;
  std::vector<std::uint32_t> block;  // of each node
  std::vector<std::uint32_t> gpus;
  std::vector<std::uint32_t> cpu;

  [[nodiscard]] std::uint32_t cell(std::uint32_t n, level_t l) const {
    return l == 0 ? n : l == 1 ? rack[n] : l == 2 ? block[n] : 0;
  }
  [[nodiscard]] gang_cluster described() const {
    gang_cluster all{.levels = {"rack", "block"}};
    for (std::uint32_t n = 0; n < rack.size(); ++n)
      all.nodes.push_back({.name = "n" + std::to_string(n),
                           .cells = {"r" + std::to_string(rack[n]), "b" + std::to_string(block[n])},
                           .gpus = gpus[n],
                           .host = {cpu[n], 0}});
    return all;
  }
};

plain_cluster random_plain_cluster(rng& random) {
  plain_cluster c;
  const std::uint32_t nodes = 3 + random.uniform(4);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    c.rack.push_back(random.uniform(3));
    c.block.push_back(c.rack.back() / 2);
    c.gpus.push_back(1 + random.uniform(3));
    c.cpu.push_back(1000 * (1 + random.uniform(3)));
  }
  return c;
}

// Whether the tasks that have a node keep all constraints; task i of a group is in slice i / size
// and, under a leader, in replica i / (tasks for each leader).
bool is_valid(const plain_cluster& c, const topology_constraints& gang,
              const std::vector<std::uint32_t>& where) {
  std::vector<std::uint32_t> gpus(c.gpus.size());
  std::vector<std::uint32_t> cpu(c.gpus.size());
  std::map<std::pair<std::size_t, std::size_t>, std::uint32_t> cells;  // by constraint and number
  std::size_t constraint = 0;
  const auto same = [&](std::size_t of, std::size_t number, std::uint32_t n, level_t l) {
    return cells.try_emplace({of, number}, c.cell(n, l)).first->second == c.cell(n, l);
  };
  std::vector<std::size_t> first;
  for (const constrained_task_group& m : gang.groups)
    first.push_back(first.empty() ? 0 : first.back() + (&m - 1)->tasks);
  for (std::size_t m = 0; m < gang.groups.size(); ++m) {
    const constrained_task_group& group = gang.groups[m];
    std::map<std::pair<level_t, std::uint32_t>, std::uint32_t> there;
    for (std::uint32_t i = 0; i < group.tasks; ++i) {
      const std::uint32_t n = where[first[m] + i];
      if (n == nowhere) continue;
      if ((gpus[n] += group.gpus) > c.gpus[n] || (cpu[n] += group.host.cpu_milli) > c.cpu[n])
        return false;
      if (!same(0, 0, n, std::min<level_t>(gang.required, 3))) return false;
      for (std::size_t s = 0; s < group.slices.size(); ++s)
        if (!same(1 + 10 * m + s, i / group.slices[s].tasks, n, group.slices[s].level))
          return false;
      for (const level_count& s : group.spread)
        if (++there[{s.level, c.cell(n, s.level)}] > s.tasks) return false;
    }
    if (group.leader == no_task_group) continue;
    constraint = 100 + m;
    const level_t l = group.on_node_of_leader() ? 0 : group.leader_level;
    const std::uint32_t leaders = gang.groups[group.leader].tasks;
    for (std::uint32_t i = 0; i < leaders; ++i)
      if (const std::uint32_t n = where[first[group.leader] + i];
          n != nowhere && !same(constraint, i, n, l))
        return false;
    for (std::uint32_t i = 0; i < group.tasks; ++i)
      if (const std::uint32_t n = where[first[m] + i];
          n != nowhere && !same(constraint, i / (group.tasks / leaders), n, l))
        return false;
  }
  return true;
}
// Tries every node of `nodes` for each task without one.
bool can_place(const plain_cluster& c, const topology_constraints& gang,
               std::vector<std::uint32_t>& where, std::size_t from = 0) {
  while (from < where.size() && where[from] != nowhere) ++from;
  if (from == where.size()) return true;
  bool fits = false;
  for (std::uint32_t n = 0; n < c.gpus.size() && !fits; ++n) {
    where[from] = n;
    fits = is_valid(c, gang, where) && can_place(c, gang, where, from + 1);
  }
  where[from] = nowhere;
  return fits;
}
std::uint32_t num_tasks(const topology_constraints& gang) {
  std::uint32_t n = 0;
  for (const constrained_task_group& m : gang.groups) n += m.tasks;
  return n;
}
std::vector<std::uint32_t> nodes_of(const std::vector<placement>& tasks) {
  std::vector<std::uint32_t> nodes;
  for (const placement& p : tasks) nodes.push_back(p.node.value);
  return nodes;
}

}  // namespace

TEST_CASE("a shorter last slice against trying every node for every task") {
  std::uint64_t asked = 0;
  std::uint64_t fits = 0;
  for (std::uint64_t round = 0; round < scaled(std::uint64_t{3'000}); ++round) {
    CAPTURE(round);
    rng random(round);
    const plain_cluster c = random_plain_cluster(random);
    gang_scheduler s = gang_scheduler::create(c.described()).value();
    gang_scheduler::request r{.job = 1};
    constrained_task_group group{.tasks = 3 + random.uniform(5), .gpus = 1 + random.uniform(2)};
    const std::uint32_t size = 2 + random.uniform(3);
    const level_t l = random.uniform(3);
    group.slices = {{l, size}};
    if (l < 2 && random.uniform(4) == 0)
      group.slices.push_back({l + 1, (1 + random.uniform(2)) * size});
    if (random.uniform(3) == 0) group.host.cpu_milli = 1000;
    if (random.uniform(3) == 0)
      r.gang.groups.push_back({.tasks = 1 + random.uniform(2), .gpus = 1 + random.uniform(2)});
    r.gang.groups.push_back(group);
    if (random.uniform(3) == 0) r.gang.required = 1 + random.uniform(2);
    const auto plan = s.propose(r);
    // The rest of a larger slice has a short slice of its own: that cannot be asked.
    if (group.slices.size() == 2 && group.slices[1].tasks > size && group.tasks % size != 0) {
      CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
      continue;
    }
    REQUIRE(plan.ok());
    std::vector<std::uint32_t> where(num_tasks(r.gang), nowhere);
    ++asked;
    REQUIRE((plan->result == plan_result::bind) == can_place(c, r.gang, where));
    if (plan->result != plan_result::bind) continue;
    ++fits;
    REQUIRE(plan->tasks.size() == where.size());
    REQUIRE(is_valid(c, r.gang, nodes_of(plan->tasks)));
    REQUIRE(s.commit(*plan).ok());
  }
  MESSAGE(asked << " asked, " << fits << " fit");
  CHECK(fits * 10 > asked);
  CHECK(fits * 10 < asked * 9);
}

TEST_CASE("a short slice under anti-affinity or a leader is refused") {
  gang_scheduler s = apiary_test::scheduler_of("", "NodeName=a,b Gres=gpu:4");
  gang_scheduler::request r{.job = 1};
  r.gang.groups = {{.tasks = 5, .gpus = 1, .slices = {{0, 2}}}};
  CHECK(s.propose(r)->result == plan_result::bind);
  r.gang.groups[0].spread = {{0, 3}};
  CHECK(s.propose(r).status().message() ==
        "job 1: task group 0: slices of 2 tasks (level 0) do not divide its 5 tasks");
  r.gang.groups[0].spread.clear();
  r.gang.groups.push_back({.tasks = 5, .gpus = 1, .leader = 0});
  CHECK(s.propose(r).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("tasks of failed nodes move, the others stay: against trying every node") {
  std::map<std::string, std::uint64_t> seen;
  for (std::uint64_t round = 0; round < scaled(std::uint64_t{6'000}); ++round) {
    CAPTURE(round);
    rng random(round);
    const plain_cluster c = random_plain_cluster(random);
    gang_scheduler s = gang_scheduler::create(c.described()).value();
    const auto start = [&](const gang_scheduler::request& r) {
      const auto plan = s.propose(r);
      REQUIRE(plan.ok());
      return plan->result == plan_result::bind && s.commit(*plan).ok();
    };
    for (std::uint32_t j = random.uniform(4); j > 0; --j) {
      gang_scheduler::request other{.job = j + 1};
      other.gang.groups = {{.tasks = 1, .gpus = 1, .host = {random.uniform(2) * 1000, 0}}};
      other.filter.nodes = {
          "n" + std::to_string(random.uniform(static_cast<std::uint32_t>(c.gpus.size())))};
      start(other);
    }
    gang_scheduler::request r{.job = 1};
    topology_constraints& gang = r.gang;
    gang.groups = {{.tasks = 1 + random.uniform(4), .gpus = 1 + random.uniform(2)}};
    constrained_task_group& group = gang.groups[0];
    const auto level = [&] { return static_cast<level_t>(random.uniform(3)); };
    if (random.uniform(3) == 0) group.slices = {{level(), 1 + random.uniform(3)}};
    if (random.uniform(3) == 0 && group.tasks % 2 == 0)
      group.spread = {{level(), 1 + random.uniform(3)}};
    if (random.uniform(3) == 0) group.host.cpu_milli = 1000;
    if (random.uniform(3) == 0) gang.required = 1 + random.uniform(2);
    if (random.uniform(4) == 0) gang.preferred = level();
    if (random.uniform(3) == 0 && group.tasks < 3) {
      group.slices.clear();
      gang.groups.push_back(
          {.tasks = group.tasks * (1 + random.uniform(2)), .gpus = 1, .leader = 0});
      if (random.uniform(3) > 0) gang.groups[1].leader_level = 1 + random.uniform(2);
    }
    if (!s.propose(r).ok() || !start(r)) continue;
    const std::vector<placement> before = s.find(1)->tasks;
    REQUIRE(is_valid(c, gang, nodes_of(before)));
    CHECK(s.propose_replacement(1).status().code() == absl::StatusCode::kFailedPrecondition);
    std::vector<bool> bad(c.gpus.size());
    std::vector<std::uint32_t> bad_gpus(c.gpus.size());
    for (std::uint32_t i = 1 + random.uniform(2); i > 0; --i) {
      const placement& p = before[random.uniform(static_cast<std::uint32_t>(before.size()))];
      if (random.uniform(2) == 0) {
        bad[p.node.value] = true;
        REQUIRE(s.mark_bad(p.node).ok());
      } else {
        const auto gpu = static_cast<std::uint32_t>(std::countr_zero(p.gpu_mask));
        bad_gpus[p.node.value] |= 1U << gpu;
        REQUIRE(s.mark_bad(p.node, gpu).ok());
      }
    }
    std::vector<std::uint32_t> where = nodes_of(before);
    std::vector<std::uint32_t> failed;
    for (std::uint32_t t = 0; t < before.size(); ++t) {
      const std::uint32_t n = before[t].node.value;
      if (!bad[n] && (before[t].gpu_mask & bad_gpus[n]) == 0) continue;
      where[t] = nowhere;
      failed.push_back(t);
    }
    const auto fits_if_idle_under = [&](const topology_constraints& under, std::uint32_t idle) {
      plain_cluster left = c;
      for (std::uint32_t n = 0; n < c.gpus.size(); ++n) {
        left.gpus[n] -= static_cast<std::uint32_t>(std::popcount(bad_gpus[n]));
        for (const job_key& j : s.jobs_on(node_id(n))) {
          if (j == job_key(1) || (idle >> n & 1) != 0) continue;
          const auto* const other = s.find(j);
          left.gpus[n] -=
              static_cast<std::uint32_t>(std::popcount(other->tasks[0].gpu_mask & ~bad_gpus[n]));
          left.cpu[n] -= other->what.gang.groups[0].host.cpu_milli;
        }
        if (bad[n]) left.gpus[n] = left.cpu[n] = 0;
      }
      return can_place(left, under, where);
    };
    const auto fits_if_idle = [&](std::uint32_t idle) {  // a mask of nodes
      return fits_if_idle_under(gang, idle);
    };
    const auto e = s.explain_replacement(1);
    REQUIRE(e.ok());
    const gang_scheduler::plan& plan = e->plan;
    CHECK(plan.replaced == failed);
    CHECK(e->text.find("job 1 can") == 0);
    REQUIRE((plan.result == plan_result::bind) == fits_if_idle(0));
    if (plan.result == plan_result::bind) {
      // The gang is in one cell of the lowest level from the preferred one on that is possible.
      topology_constraints lower = gang;
      const level_t last = std::min<level_t>(gang.required, 3);
      for (lower.required = std::min(gang.preferred, last); lower.required < last; ++lower.required)
        if (fits_if_idle_under(lower, 0)) break;
      REQUIRE(plan.level == lower.required);
    }
    const std::uint32_t all = (1U << c.gpus.size()) - 1;
    if (plan.result == plan_result::wait) {
      REQUIRE(plan.reason == (fits_if_idle(all) ? wait_reason::busy : wait_reason::unhealthy));
      ++seen[plan.reason == wait_reason::busy ? "busy" : "unhealthy"];
      CHECK(s.commit(plan).code() == absl::StatusCode::kFailedPrecondition);
      if (plan.reason == wait_reason::unhealthy) continue;
      std::uint32_t freed = 0;
      std::uint64_t gpus = 0;  // that other gangs have on these nodes
      for (const node_id n : e->nodes_to_free) {
        freed |= 1U << n.value;
        for (const job_key& j : s.jobs_on(n))
          if (j != job_key(1))
            gpus += static_cast<std::uint64_t>(
                std::popcount(s.find(j)->tasks[0].gpu_mask & ~bad_gpus[n.value]));
      }
      REQUIRE(e->gpus_to_free == gpus);
      REQUIRE(fits_if_idle(freed));
      for (std::uint32_t idle = 0; idle <= all; ++idle)
        if (std::popcount(idle) < std::popcount(freed)) REQUIRE(!fits_if_idle(idle));
      continue;
    }
    ++seen[failed.size() < before.size() ? "moved" : "moved all"];
    gang_scheduler::plan wrong = plan;
    wrong.tasks[0] = before[failed[0]];
    CHECK(s.commit(wrong).code() == absl::StatusCode::kInvalidArgument);
    const std::uint64_t hash = s.hash();
    s.what_if([&](gang_scheduler& trial) { REQUIRE(trial.commit(plan).ok()); });
    REQUIRE(s.hash() == hash);
    REQUIRE(s.commit(plan).ok());
    CHECK(s.commit(plan).code() == absl::StatusCode::kAborted);
    REQUIRE(s.audit().empty());
    std::vector<placement> after = s.find(1)->tasks;
    REQUIRE(is_valid(c, gang, nodes_of(after)));
    for (const placement& p : after) {
      REQUIRE(!bad[p.node.value]);
      REQUIRE((p.gpu_mask & bad_gpus[p.node.value]) == 0);
    }
    for (const std::uint32_t t : failed) after[t] = before[t];
    REQUIRE(after == before);
  }
  for (const auto& [what, n] : seen) MESSAGE(what << ": " << n);
  if (is_quick()) return;
  for (const char* const what : {"moved", "moved all", "busy", "unhealthy"}) CHECK(seen[what] > 20);
}

TEST_CASE("a task that moves on an overcommitted node leaves no more CPU than there is") {
  gang_scheduler s = apiary_test::scheduler_of("", "NodeName=a Gres=gpu:4 CPUs=10");
  gang_scheduler::request r{.job = "x"};
  r.gang.groups = {{.tasks = 2, .gpus = 1, .host = {.cpu_milli = 6'000}}};
  const std::vector<placement> here{{node_id(0), 1}, {node_id(0), 2}};
  REQUIRE(s.recover(r, here).ok());
  REQUIRE(s.mark_bad(node_id(0), 0).ok());
  CHECK(s.explain_replacement("x")->text ==
        "job x cannot move 1 task from node a now; it could if node a were healthy again");
  REQUIRE(s.resize_node(node_id(0), 4, {.cpu_milli = 12'000}).ok());
  CHECK(s.explain_replacement("x")->text == "job x can move 1 task from node a to node a now");
}

TEST_CASE("a task moves to the fullest node on which it fits") {
  gang_scheduler s = apiary_test::scheduler_of("", "NodeName=a,b,c Gres=gpu:4");
  const auto start = [&](const job_key& job, const char* node, std::uint32_t gpus) {
    gang_scheduler::request r{.job = job};
    r.gang.groups = {{.tasks = 1, .gpus = gpus}};
    r.filter.nodes = std::vector<std::string>{node};
    REQUIRE(s.commit(s.propose(r).value()).ok());
  };
  gang_scheduler::request r{.job = "x"};
  r.gang.groups = {{.tasks = 1, .gpus = 2}};
  REQUIRE(s.commit(s.propose(r).value()).ok());
  REQUIRE(s.find("x")->tasks[0].node == node_id(0));
  start("y", "c", 2);
  REQUIRE(s.mark_bad(node_id(0)).ok());
  CHECK(s.explain_replacement("x")->text == "job x can move 1 task from node a to node c now");
}

TEST_CASE("one large node is to be freed, not two small ones that have more free GPUs") {
  gang_scheduler s =
      apiary_test::scheduler_of("", "NodeName=a,b Gres=gpu:4\nNodeName=c,d Gres=gpu:2");
  const auto start = [&](const job_key& job, const char* node, std::uint32_t tasks,
                         std::uint32_t gpus) {
    gang_scheduler::request r{.job = job};
    r.gang.groups = {{.tasks = tasks, .gpus = gpus}};
    r.filter.nodes = std::vector<std::string>{node};
    REQUIRE(s.commit(s.propose(r).value()).ok());
  };
  const auto anywhere = [&] {
    gang_scheduler::request r{.job = "x"};
    r.gang.groups = {{.tasks = 2, .gpus = 2}};
    return r;
  };
  REQUIRE(s.recover(anywhere(), std::vector<placement>{{node_id(0), 3}, {node_id(0), 12}}).ok());
  start("on-b", "b", 1, 4);
  start("on-c", "c", 1, 1);
  start("on-d", "d", 1, 1);
  REQUIRE(s.mark_bad(node_id(0)).ok());
  const auto e = s.explain_replacement("x");
  REQUIRE(e.ok());
  CHECK(e->plan.result == plan_result::wait);
  CHECK(e->nodes_to_free == std::vector<node_id>{node_id(1)});
  CHECK(e->gpus_to_free == 4);
}

TEST_CASE("many failed tasks") {
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 4'000; ++n)
    cluster.nodes.push_back(
        {.name = "n" + std::to_string(n), .cells = {"r" + std::to_string(n / 16)}, .gpus = 8});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  gang_scheduler::request r{.job = "x"};
  r.gang.groups = {{.tasks = 1'500, .gpus = 8}};
  REQUIRE(s.commit(s.propose(r).value()).ok());
  const std::vector<placement> tasks = s.find("x")->tasks;
  for (std::uint32_t t = 0; t < 1'000; ++t) REQUIRE(s.mark_bad(tasks[t].node).ok());
  const auto plan = s.propose_replacement("x");
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::bind);
  CHECK(plan->tasks.size() == 1'000);
  REQUIRE(s.mark_bad(tasks[1'000].node).ok());
  CHECK(s.propose_replacement("x")->reason == wait_reason::undecided);
  // Not enough healthy nodes: equal nodes are tried once, not in all orders.
  REQUIRE(s.mark_healthy(tasks[1'000].node).ok());
  r.job = "y";
  r.gang.groups[0].tasks = 1'501;
  REQUIRE(s.commit(s.propose(r).value()).ok());
  CHECK(s.propose_replacement("x")->reason == wait_reason::busy);
}

TEST_CASE("the tasks of 100,000 groups on failed nodes are read once") {
  gang_cluster cluster;
  for (std::uint32_t n = 0; n < 12'500; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 8});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  gang_scheduler::request r{.job = "x"};
  r.gang.groups.assign(100'000, {.tasks = 1, .gpus = 1});
  std::vector<placement> tasks;
  for (std::uint32_t t = 0; t < 100'000; ++t) tasks.push_back({node_id(t / 8), 1U << t % 8});
  REQUIRE(s.recover(r, tasks).ok());
  for (std::uint32_t n = 0; n < 12'500; ++n) REQUIRE(s.mark_bad(node_id(n)).ok());
  const auto all = s.propose_replacement("x");
  REQUIRE(all.ok());
  CHECK(all->reason == wait_reason::undecided);
  CHECK(all->replaced.size() == 100'000);
  CHECK(all->steps == (100'000 + 100'000) / 32);
  // Few enough tasks, of which each is in a group of its own.
  for (std::uint32_t n = 10; n < 12'500; ++n) REQUIRE(s.mark_healthy(node_id(n)).ok());
  const auto some = s.propose_replacement("x");
  REQUIRE(some.ok());
  CHECK(some->reason == wait_reason::unhealthy);
  CHECK(some->replaced.size() == 80);
  CHECK(some->steps > all->steps);
  CHECK(some->steps < 4 * all->steps);
}

TEST_CASE("the fewest nodes to free for a replacement are searched on the budget of the proposal") {
  // Racks 1 to 200 have a small node each, rack 0 has large ones. Two of six tasks may be in rack 0.
  gang_cluster cluster{.levels = {"rack"}};
  cluster.nodes.push_back({.name = "x", .cells = {"rx"}, .gpus = 24});
  for (std::uint32_t n = 0; n < 220; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n),
                             .cells = {"r" + std::to_string(n < 20 ? 0 : n)},
                             .gpus = n < 20 ? 12U : 4U,
                             .host = {.cpu_milli = 10'000 + n}});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  gang_scheduler::request r{.job = "x"};
  r.gang.groups = {{.tasks = 6, .gpus = 4, .spread = {{1, 2}}}};
  std::vector<placement> tasks;
  for (std::uint32_t t = 0; t < 6; ++t) tasks.push_back({node_id(0), 15U << 4 * t});
  REQUIRE(s.recover(r, tasks).ok());
  for (std::uint32_t n = 1; n <= 220; ++n) {
    gang_scheduler::request other{.job = n};
    other.gang.groups = {{.tasks = 1, .gpus = n <= 20 ? 12U : 1U}};
    REQUIRE(s.recover(other, std::vector<placement>{{node_id(n), n <= 20 ? 4'095U : 1U}}).ok());
  }
  REQUIRE(s.mark_bad(node_id(0)).ok());
  s.set_step_budget(20'000);
  const auto e = s.explain_replacement("x");
  REQUIRE(e.ok());
  CHECK(e->plan.reason == wait_reason::busy);
  CHECK(e->nodes_to_free.size() == 5);  // one of rack 0, and four small ones
  CHECK(e->gpus_to_free == 16);
  CHECK(e->plan.steps == s.propose_replacement("x")->steps);
  // With hardly any steps nothing is known; it ends.
  for (const std::uint64_t steps : {1U, 7U, 20U, 100U}) {
    s.set_step_budget(steps);
    const auto few = s.explain_replacement("x");
    REQUIRE(few.ok());
    CHECK(few->plan.steps <= steps);
  }
}

TEST_CASE("only a running gang with a failed task has a replacement") {
  gang_scheduler s = apiary_test::scheduler_of("", "NodeName=a,b Gres=gpu:4");
  gang_scheduler::request r{.job = "x"};
  r.gang.groups = {{.tasks = 1, .gpus = 4}};
  CHECK(s.propose_replacement("x").status().code() == absl::StatusCode::kNotFound);
  for (const char* const job : {"x", "y"}) {
    r.job = job;
    REQUIRE(s.commit(s.propose(r).value()).ok());
  }
  CHECK(s.propose_replacement("x").status().message() ==
        "job x has no task on a bad node or a bad GPU");
  r = {.job = "z", .priority = 1, .gang = r.gang};
  REQUIRE(s.commit(s.propose(r).value()).ok());
  REQUIRE(s.mark_bad(node_id(0)).ok());
  REQUIRE(s.mark_bad(node_id(1)).ok());
  const char* const victim = s.find("x")->ends_for ? "x" : "y";
  CHECK(s.propose_replacement(victim).status().message() ==
        "job " + std::string(victim) + " ends for another gang");
  CHECK(s.propose_replacement("z").status().message() == "job z does not run yet");
}
