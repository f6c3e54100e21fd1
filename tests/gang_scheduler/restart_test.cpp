// apiary/tests/gang_scheduler/restart_test.cpp - a scheduler that is built anew decides as the one before.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

template <class T>
void shuffle(rng& random, std::vector<T>& all) {
  for (std::size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[random.uniform(static_cast<std::uint32_t>(i))]);
}

// A cluster whose nodes join and leave, with what its host knows of it.
struct changing_cluster {
  gang_cluster description{};
  std::map<std::string, gang_cluster::node> nodes{};
  std::set<std::string> bad{};
  std::map<std::string, std::set<std::uint32_t>> bad_gpus{};  // of nodes
  std::set<job_key> jobs{};
  std::vector<std::string> left{};  // names of nodes that have been removed
  std::uint32_t next_job = 0;
  time_ms now = 0;
  std::uint64_t victims = 0;
  std::uint64_t moved = 0;  // tasks to which a replacement has given other nodes

  gang_cluster::node random_node(rng& random) {
    static const char* const names[] = {"n", "x-0", "gpu0", "a9b"};
    gang_cluster::node n;
    // Half of the nodes that join have the name of a node that has left.
    do
      n.name = !left.empty() && random.uniform(2) == 0
                   ? left[random.uniform(static_cast<std::uint32_t>(left.size()))]
                   : names[random.uniform(4)] + std::to_string(random.uniform(200));
    while (nodes.contains(n.name));
    n.gpus = random.uniform(6) == 0 ? 8 : 1 + random.uniform(4);
    n.host = {1000 * (2 + random.uniform(8)), 100};
    const std::uint32_t rack = random.uniform(3) == 0 ? random.uniform(30) : random.uniform(6);
    if (!description.levels.empty()) n.cells.push_back("r" + std::to_string(rack));
    if (description.levels.size() > 1) n.cells.push_back("b" + std::to_string(rack % 4));
    if (random.uniform(2) == 0) n.labels.emplace_back("zone=a");
    return n;
  }
  gang_scheduler::request random_request(rng& random) {
    gang_scheduler::request r{.job = ++next_job,
                              .tenant = tenant_id(random.uniform(2)),
                              .priority = static_cast<std::int32_t>(random.uniform(3))};
    const auto levels = static_cast<level_t>(description.levels.size() + 1);
    for (std::uint32_t g = 1 + random.uniform(2); g > 0; --g) {
      constrained_task_group group{.tasks = 1 + random.uniform(4), .gpus = 1 + random.uniform(4)};
      if (random.uniform(4) == 0) group.host = {1000 * (1 + random.uniform(3)), 10};
      if (random.uniform(5) == 0) group.spread = {{random.uniform(levels), 1 + random.uniform(2)}};
      if (random.uniform(5) == 0 && group.tasks % 2 == 0)
        group.slices = {{random.uniform(levels), 2}};
      r.gang.groups.push_back(group);
    }
    if (random.uniform(3) == 0) r.gang.required = random.uniform(levels);
    if (random.uniform(3) == 0) r.gang.preferred = random.uniform(levels);
    if (random.uniform(6) == 0) r.filter.labels = {"zone"};
    if (random.uniform(3) == 0) {
      std::vector<std::string> named;
      for (const auto& [name, n] : nodes)
        if (random.uniform(3) > 0) named.push_back(name);
      r.filter.nodes = named;
    }
    return r;
  }
};

// What a host reads of a plan, without the ids of nodes.
std::string plan_by_names(const gang_scheduler& s, const gang_scheduler::plan& plan) {
  std::string text = std::to_string(static_cast<int>(plan.result)) + " " +
                     std::to_string(static_cast<int>(plan.reason)) + " " +
                     std::to_string(plan.level) + " " + std::to_string(plan.cost) + " " +
                     std::to_string(plan.lower_bound);
  for (const placement& p : plan.tasks)
    text += " " + s.node(p.node)->name + ":" + std::to_string(p.gpu_mask);
  for (const job_key& v : plan.victims) text += " " + v.text();
  return text;
}

// A cost that depends on no id of a node.
std::uint64_t own_cost(const gang_scheduler::running_gang& gang, time_ms now) {
  return 1 + gang.what.job.number() % 3 + gang.gpus + static_cast<std::uint64_t>(now % 2);
}
// One event, the same in all schedulers; `kind` and what it needs are random.
void random_event(rng& random, changing_cluster& host, std::vector<gang_scheduler*> all) {
  host.now += random.uniform(1000);
  const std::uint32_t kind = random.uniform(21);
  const auto each = [&](const auto& f) {
    for (gang_scheduler* s : all) REQUIRE(f(*s).ok());
  };
  const auto some_node = [&] {
    return std::next(host.nodes.begin(),
                     random.uniform(static_cast<std::uint32_t>(host.nodes.size())));
  };
  if (kind < 7) {
    const gang_scheduler::request r = host.random_request(random);
    const bool explains = random.uniform(8) == 0;
    for (bool again = true; again;) {
      std::vector<std::string> answers;
      std::vector<job_key> victims;
      for (gang_scheduler* s : all) {
        const auto plan = s->propose(r, host.now);
        CAPTURE(plan.status().ToString());
        REQUIRE(plan.ok());
        answers.push_back(plan_by_names(*s, *plan));
        if (explains) answers.back() += s->explain(r, host.now).value().text;
        again = plan->result == plan_result::preempt;
        victims = plan->victims;
        if (plan->result != plan_result::wait) REQUIRE(s->commit(*plan).ok());
        if (plan->result == plan_result::bind) host.jobs.insert(r.job);
      }
      for (const std::string& a : answers) REQUIRE(a == answers[0]);
      host.victims += victims.size();
      for (const job_key& v : victims) {
        each([&](gang_scheduler& s) { return s.finish(v); });
        host.jobs.erase(v);
      }
    }
  } else if (kind < 10 && !host.jobs.empty()) {
    const job_key job =
        *std::next(host.jobs.begin(), random.uniform(static_cast<std::uint32_t>(host.jobs.size())));
    each([&](gang_scheduler& s) { return s.finish(job); });
    host.jobs.erase(job);
  } else if (kind < 13 && host.nodes.size() < 60) {
    gang_cluster::node n = host.random_node(random);
    if (!all[0]->add_node(n).ok()) return;  // its rack is in another block
    for (std::size_t i = 1; i < all.size(); ++i) REQUIRE(all[i]->add_node(n).ok());
    host.nodes.emplace(n.name, n);
  } else if (kind < 15 && host.nodes.size() > 3) {
    const auto at = some_node();
    if (!all[0]->remove_node(all[0]->find_node(at->first).value()).ok()) return;
    for (std::size_t i = 1; i < all.size(); ++i)
      REQUIRE(all[i]->remove_node(all[i]->find_node(at->first).value()).ok());
    host.bad.erase(at->first);
    host.bad_gpus.erase(at->first);
    host.left.push_back(at->first);
    host.nodes.erase(at);
  } else if (kind < 17 && !host.nodes.empty()) {
    const auto at = some_node();
    const std::uint32_t gpus = random.uniform(9);
    const resources shape{1000 * (1 + random.uniform(10)), 100};
    if (!all[0]->resize_node(all[0]->find_node(at->first).value(), gpus, shape).ok()) return;
    for (std::size_t i = 1; i < all.size(); ++i)
      REQUIRE(all[i]->resize_node(all[i]->find_node(at->first).value(), gpus, shape).ok());
    at->second.gpus = gpus;
    at->second.host = shape;
    std::erase_if(host.bad_gpus[at->first], [&](std::uint32_t gpu) { return gpu >= gpus; });
  } else if (kind < 19 && !host.nodes.empty()) {
    const auto& [name, shape] = *some_node();
    if (shape.gpus == 0) return;
    const std::uint32_t gpu = random.uniform(shape.gpus);
    const bool is_bad = host.bad_gpus[name].contains(gpu);
    for (gang_scheduler* s : all) {
      const node_id n = s->find_node(name).value();
      REQUIRE((is_bad ? s->mark_healthy(n, gpu) : s->mark_bad(n, gpu)).ok());
    }
    is_bad ? void(host.bad_gpus[name].erase(gpu)) : void(host.bad_gpus[name].insert(gpu));
  } else if (kind == 19 && !host.jobs.empty()) {
    const job_key job =
        *std::next(host.jobs.begin(), random.uniform(static_cast<std::uint32_t>(host.jobs.size())));
    std::vector<std::string> answers;
    for (gang_scheduler* s : all) {
      const auto plan = s->propose_replacement(job);
      answers.push_back(plan.ok() ? plan_by_names(*s, *plan) : plan.status().ToString());
      if (!plan.ok() || plan->result != plan_result::bind) continue;
      REQUIRE(s->commit(*plan).ok());
      host.moved += plan->tasks.size();
    }
    for (const std::string& a : answers) REQUIRE(a == answers[0]);
  } else if (!host.nodes.empty()) {
    const auto& name = some_node()->first;
    const bool is_bad = host.bad.contains(name);
    each([&](gang_scheduler& s) {
      const node_id n = s.find_node(name).value();
      return is_bad ? s.mark_healthy(n) : s.mark_bad(n);
    });
    is_bad ? void(host.bad.erase(name)) : void(host.bad.insert(name));
  }
}

// A new scheduler from the inventory and the running gangs, both in a random order.
gang_scheduler built_anew(rng& random, const changing_cluster& host, const gang_scheduler& before) {
  gang_cluster inventory{.levels = host.description.levels};
  for (const auto& [name, n] : host.nodes) inventory.nodes.push_back(n);
  shuffle(random, inventory.nodes);
  auto made = gang_scheduler::create(inventory);
  REQUIRE(made.ok());
  for (const std::string& name : host.bad)
    REQUIRE(made->mark_bad(made->find_node(name).value()).ok());
  for (const auto& [name, gpus] : host.bad_gpus)
    for (const std::uint32_t gpu : gpus)
      REQUIRE(made->mark_bad(made->find_node(name).value(), gpu).ok());
  std::vector<job_key> jobs(host.jobs.begin(), host.jobs.end());
  shuffle(random, jobs);
  for (const job_key& job : jobs) {
    const gang_scheduler::running_gang& gang = *before.find(job);
    std::vector<placement> tasks = gang.tasks;
    for (placement& p : tasks) p.node = made->find_node(before.node(p.node)->name).value();
    const absl::Status recovered = made->recover(gang.what, tasks, gang.started);
    CAPTURE(recovered.ToString());
    REQUIRE(recovered.ok());
  }
  return std::move(*made);
}

}  // namespace

TEST_CASE("a scheduler built anew from inventory decides as the one before") {
  const std::uint64_t histories = scaled(std::uint64_t{60});
  std::uint64_t victims = 0;
  std::uint64_t moved = 0;
  std::uint64_t absent = 0;  // gangs that ran when their filter named a node that had left
  for (std::uint64_t h = 0; h < histories; ++h) {
    CAPTURE(h);
    rng random(h);
    changing_cluster host;
    for (std::uint64_t l = h % 3; l > 0; --l)
      host.description.levels.insert(host.description.levels.begin(), l == 1 ? "rack" : "block");
    for (std::uint32_t n = random.uniform(30); n > 0; --n) {
      const gang_cluster::node node = host.random_node(random);
      host.description.nodes.push_back(node);
      host.nodes.emplace(node.name, node);
    }
    const auto configure = [h](gang_scheduler& s) {
      if (h % 4 == 1) s.set_disruption_budget(tenant_id(1), {.gangs = 1});
      if (h % 4 == 2) s.set_disruption_budget(tenant_id(0), {.gpus = 5});
      if (h % 5 == 2) s.set_victim_cost(own_cost);
    };
    gang_scheduler before = gang_scheduler::create(host.description).value();
    configure(before);
    for (std::uint32_t e = 0; e < 300; ++e) random_event(random, host, {&before});
    for (const job_key& job : host.jobs) {
      const auto names = before.find(job)->what.filter.nodes.names();
      absent += std::ranges::all_of(
                    names, [&](const std::string& name) { return host.nodes.contains(name); })
                    ? 0U
                    : 1U;
    }
    gang_scheduler after = built_anew(random, host, before);
    configure(after);
    REQUIRE(after.hash() == before.hash());
    host.victims = host.moved = 0;
    for (std::uint32_t e = 0; e < 300; ++e) {
      CAPTURE(e);
      random_event(random, host, {&before, &after});
      REQUIRE(after.hash() == before.hash());
      if (e % 50 == 0) {
        REQUIRE(before.audit().empty());
        REQUIRE(after.audit().empty());
      }
    }
    victims += host.victims;
    moved += host.moved;
  }
  CHECK(victims >= histories);
  CHECK(moved >= histories / 2);
  CHECK(absent >= histories / 4);
}

TEST_CASE(
    "a gang is recovered though its filter names a node that has left, which may join again") {
  const auto node = [](const char* name) { return gang_cluster::node{.name = name, .gpus = 8}; };
  gang_scheduler::request gang{.job = "a"};
  gang.gang.groups = {{.tasks = 1, .gpus = 8}};
  gang.filter.nodes = {"n0", "n3"};
  gang_scheduler before =
      gang_scheduler::create({.nodes = {node("n0"), node("n1"), node("n3")}}).value();
  const auto plan = before.propose(gang);
  REQUIRE(plan.ok());
  REQUIRE(before.commit(*plan).ok());
  REQUIRE(before.remove_node(before.find_node("n3").value()).ok());

  gang_scheduler after = gang_scheduler::create({.nodes = {node("n1"), node("n0")}}).value();
  const placement on_n0{.node = after.find_node("n0").value(), .gpu_mask = 0xff};
  REQUIRE(after.recover(gang, {{on_n0}}).ok());
  CHECK(after.hash() == before.hash());
  CHECK(after.audit().empty());
  gang_scheduler::request other = gang;
  other.job = "b";
  for (gang_scheduler* s : {&before, &after}) {
    CHECK(s->propose(other).status().code() == absl::StatusCode::kNotFound);
    // Only n1 is left, which the filter does not have; then n3 is a node of the filter again.
    REQUIRE(s->mark_bad(s->find_node("n0").value()).ok());
    CHECK(s->propose_replacement("a")->result == plan_result::wait);
    REQUIRE(s->add_node(node("n3")).ok());
    const auto moved = s->propose_replacement("a");
    REQUIRE(moved.ok());
    REQUIRE(moved->result == plan_result::bind);
    CHECK(s->node(moved->tasks[0].node)->name == "n3");
    CHECK(s->propose(other)->result == plan_result::bind);
  }
  CHECK(after.hash() == before.hash());
}

TEST_CASE("victims do not depend on how many gangs ran before") {
  std::uint64_t preempted = 0;
  for (std::uint64_t seed = 0; seed < 14; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_cluster cluster{.levels = {"rack"}};
    for (std::uint32_t n = 0; n < 40; ++n)
      cluster.nodes.push_back(
          {.name = "n" + std::to_string(n), .cells = {"r" + std::to_string(n / 8)}, .gpus = 8});
    gang_scheduler fresh = gang_scheduler::create(cluster).value();
    gang_scheduler old = fresh;
    const auto start = [](gang_scheduler& s, const gang_scheduler::request& r, time_ms now) {
      const auto plan = s.propose(r, now);
      REQUIRE(plan.ok());
      if (plan->result == plan_result::bind) REQUIRE(s.commit(*plan).ok());
    };
    for (std::uint64_t j = 10'000; j < 10'320; ++j)
      start(old, {.job = j, .gang = {.groups = {{.tasks = 1, .gpus = 1}}}}, 0);
    for (std::uint64_t j = 10'000; j < 10'320; ++j) REQUIRE(old.finish(j).ok());
    time_ms now = 0;
    for (std::uint64_t j = 1; j < 200; ++j) {
      gang_scheduler::request r{.job = j * 7'919 % 1'009};
      r.gang.groups = {{.tasks = 1 + random.uniform(3), .gpus = 1 + random.uniform(8)}};
      now += random.uniform(2);
      start(fresh, r, now);
      start(old, r, now);
    }
    REQUIRE(fresh.hash() == old.hash());
    // An eighth of these budgets pays for exactly one gang that is tried alone, or for two.
    for (const std::uint64_t steps : {1'176U, 2'344U}) {
      fresh.set_step_budget(steps);
      old.set_step_budget(steps);
      for (const std::uint32_t gpus : {6U, 8U}) {
        gang_scheduler::request r{.job = 5'000, .priority = 1};
        r.gang.groups = {{.tasks = gpus == 6 ? 2U : 1U, .gpus = gpus}};
        const auto a = fresh.propose(r, now);
        const auto b = old.propose(r, now);
        REQUIRE(plan_by_names(fresh, a.value()) == plan_by_names(old, b.value()));
        preempted += a->victims.size();
      }
    }
  }
  CHECK(preempted > 20);
}

TEST_CASE("ties go by names, with numbers by their values") {
  gang_cluster cluster{.levels = {"rack"}};
  for (const char* const name : {"n10", "n9", "n1", "n02", "n2", "m30"})
    cluster.nodes.push_back(
        {.name = name, .cells = {std::string(name) == "m30" ? "r10" : "r9"}, .gpus = 1});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  const auto plan = s.propose({.job = 1, .gang = {.groups = {{.tasks = 6, .gpus = 1}}}});
  REQUIRE(plan.ok());
  std::string names;
  for (const placement& p : plan->tasks) names += s.node(p.node)->name + " ";
  CHECK(names == "n1 n02 n2 n9 n10 m30 ");
}

TEST_CASE("many joins and leaves leave no positions behind") {
  gang_scheduler s = gang_scheduler::create({.levels = {"rack", "block"}}).value();
  rng random(1);
  std::vector<node_id> present;
  const std::uint32_t steps = scaled(100'000U);
  for (std::uint32_t i = 0; i < steps; ++i) {
    // It grows to some thousand nodes, and shrinks to some.
    const bool grows = random.uniform(100) < (i / 5'000 % 2 == 0 ? 90U : 10U);
    if (grows || present.empty()) {
      const std::uint32_t rack = random.uniform(4) == 0 ? random.uniform(1'000) : 0;
      const auto id =
          s.add_node({.name = "n" + std::to_string(i),
                      .cells = {"r" + std::to_string(rack), "b" + std::to_string(rack % 7)},
                      .gpus = 4});
      REQUIRE(id.ok());
      present.push_back(*id);
    } else {
      std::swap(present[random.uniform(static_cast<std::uint32_t>(present.size()))],
                present.back());
      REQUIRE(s.remove_node(present.back()).ok());
      present.pop_back();
    }
    if (i % 5'000 == 4'999 || i + 1 == steps) {  // audits check the order and the bound
      const std::vector<std::string> faults = s.audit();
      REQUIRE((faults.empty() ? "" : faults[0]) == "");
    }
  }
}
