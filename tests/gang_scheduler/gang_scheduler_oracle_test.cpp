// apiary/tests/gang_scheduler/gang_scheduler_oracle_test.cpp - random and all short histories, recomputed.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <support/naive_gang_scheduler.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

const std::vector<blocking_resource> all_resources{
    blocking_resource::memory, blocking_resource::cpu, blocking_resource::slices,
    blocking_resource::spread};

std::uint64_t cost_of_request(const gang_scheduler::request& r) {
  return 1 + r.job.hash() % 7 + static_cast<std::uint64_t>(r.priority);
}

// A scheduler and the naive one, which go through the same events.
struct pair_of_schedulers {
  gang_scheduler fast;
  naive_gang_scheduler slow;
  std::uint32_t next_name = 0;
  std::uint64_t next_job = 0;
  std::map<std::string, std::uint64_t> seen{};
  std::uint64_t optimal = 0;

  explicit pair_of_schedulers(const gang_cluster& cluster)
      : fast(gang_scheduler::create(cluster).value()) {
    slow.levels = static_cast<std::uint32_t>(cluster.levels.size());
    for (const gang_cluster::node& n : cluster.nodes) slow.nodes[next_name++] = {.shape = n};
  }

  // Proposes, judges the answer, and commits it perhaps.
  plan_result ask(const gang_scheduler::request& r, bool commit) {
    const std::uint64_t hash = fast.hash();
    const auto plan = fast.propose(r, slow.now);
    CAPTURE(plan.status().ToString());
    REQUIRE(plan.ok());
    REQUIRE(fast.hash() == hash);
    const std::string fault = slow.fault(r, *plan, optimal);
    REQUIRE(fault == "");
    constexpr const char* results[] = {"bind", "preempt", "wait"};
    constexpr const char* reasons[] = {" never", " busy", " unhealthy", " not suggested",
                                       " undecided"};
    if (plan->result == plan_result::wait && r.job.hash() % 4 == 0) explain(r);
    ++seen[results[static_cast<int>(plan->result)] +
           std::string(plan->result == plan_result::wait ? reasons[static_cast<int>(plan->reason)]
                                                         : "")];
    if (!commit || plan->result == plan_result::wait) return plan->result;
    REQUIRE(fast.commit(*plan).ok());
    slow.commit(r, *plan);
    REQUIRE(fast.commit(*plan).code() == absl::StatusCode::kAborted);
    return plan->result;
  }
  // Explains why the gang waits, and does what the explanation says would help.
  void explain(const gang_scheduler::request& r) {
    const std::uint64_t hash = fast.hash();
    const auto e = fast.explain(r, slow.now);
    REQUIRE(e.ok());
    REQUIRE(fast.hash() == hash);
    CAPTURE(e->text);
    const bool never = e->plan.reason == wait_reason::never;
    if (e->plan.result != plan_result::wait) return;
    if (e->proof) {
      REQUIRE(is_proved(r, *e->proof, never));
      ++seen["proof"];
    }
    REQUIRE((e->text.find("it would fit if") != std::string::npos) == !e->nodes_to_free.empty());
    // Without what blocks it, the gang fits; without GPUs that are free, nothing else helps.
    if (!never && !e->blocking.empty()) {
      gang_scheduler::request less = r;
      const bool by_gpus = e->blocking[0] == blocking_resource::gpus;
      for (constrained_task_group& m : less.gang.groups)
        for (const blocking_resource b : by_gpus ? all_resources : e->blocking) {
          if (b == blocking_resource::cpu) m.host.cpu_milli = 0;
          if (b == blocking_resource::memory) m.host.memory_mib = 0;
          if (b == blocking_resource::slices) m.slices.clear();
          if (b == blocking_resource::spread) m.spread.clear();
        }
      const bool asks =
          std::all_of(less.gang.groups.begin(), less.gang.groups.end(),
                      [](const auto& m) { return m.gpus > 0 || m.host != resources{}; });
      if (asks) {
        const auto then = fast.propose(less, slow.now);
        REQUIRE(then.ok());
        REQUIRE((then->result == plan_result::bind) == !by_gpus);
        ++seen[by_gpus ? "blocked by GPUs" : "blocked by others"];
      }
    }
    if (e->nodes_to_free.empty()) {
      if (e->plan.reason == wait_reason::busy) ++seen["busy without remedy"];
      return;
    }
    std::uint64_t gpus = 0;
    for (const node_id n : e->nodes_to_free)
      gpus += slow.nodes.at(n.value).shape.gpus -
              static_cast<std::uint64_t>(
                  std::popcount(slow.healthy_gpus(n.value) & ~slow.used(n.value)));
    REQUIRE(e->gpus_to_free == gpus);
    fast.what_if([&](gang_scheduler& trial) {
      for (const node_id n : e->nodes_to_free) {
        for (const job_key& job : trial.jobs_on(n)) REQUIRE(trial.finish(job).ok());
        REQUIRE(trial.mark_healthy(n).ok());
        for (std::uint32_t g = 0; g < slow.nodes.at(n.value).shape.gpus; ++g)
          REQUIRE(trial.mark_healthy(n, g).ok());
      }
      REQUIRE(trial.propose(r, slow.now)->result == plan_result::bind);
    });
    ++seen["remedy"];
  }
  // Counts a proof again, on the nodes in the order of free_capacity().
  [[nodiscard]] bool is_proved(const gang_scheduler::request& r, const infeasibility_proof& proof,
                               bool never) const {
    std::vector<std::vector<std::uint32_t>> fans(slow.levels + 1);
    std::vector<std::string> before;
    std::vector<std::uint32_t> free;
    std::vector<resources> hosts;
    const auto capacities = fast.free_capacity(0);
    REQUIRE(capacities.ok());
    fans[0].push_back(0);
    for (const gang_scheduler::cell_capacity& c : *capacities) {
      const std::uint32_t id = fast.find_node(c.name)->value;
      const auto& n = slow.nodes.at(id);
      const std::vector<std::string> cells(n.shape.cells.rbegin(), n.shape.cells.rend());
      std::size_t same = 0;
      while (same < before.size() && cells[same] == before[same]) ++same;
      for (std::size_t d = before.empty() ? 0 : same; d < cells.size(); ++d) {
        ++fans[d].back();
        fans[d + 1].push_back(0);
      }
      ++fans[slow.levels].back();
      before = cells;
      const bool in = slow.accepts(r.filter, n);
      const std::uint32_t all = (std::uint32_t{1} << n.shape.gpus) - 1;
      const std::uint32_t now = slow.healthy_gpus(id) & ~slow.used(id);
      free.push_back(in ? static_cast<std::uint32_t>(std::popcount(never ? all : now)) : 0);
      hosts.push_back(!in || (n.bad && !never) ? resources{}
                      : never                  ? n.shape.host
                                               : slow.left(id));
    }
    if (free.empty()) return true;
    const ragged_tree tree(fans);
    return proof_check(tree, 0, free, hosts, r.gang)(proof);
  }
  void finish(const job_key& job) {
    REQUIRE(fast.finish(job).ok());
    slow.finish(job);
  }
  // A preempting gang asks again.
  void again(const job_key& job) {
    const naive_gang_scheduler::gang& g = slow.gangs.at(job);
    const auto plan = fast.propose(g.what, slow.now);
    REQUIRE(plan.ok());
    bool bad = false;
    for (const placement& p : g.tasks) {
      const auto& n = slow.nodes.at(p.node.value);
      bad = bad || n.bad || (p.gpu_mask & n.bad_gpus) != 0;
    }
    if (bad) {
      REQUIRE(plan->result == plan_result::wait);
      REQUIRE(plan->reason == wait_reason::unhealthy);
      return;
    }
    REQUIRE(plan->result == (g.victims.empty() ? plan_result::bind : plan_result::preempt));
    REQUIRE(plan->tasks == g.tasks);
    REQUIRE(fast.commit(*plan).ok());
    slow.commit(g.what, *plan);
    ++seen["again"];
  }
  // What both know must be equal.
  void compare() const {
    const std::vector<std::string> faults = fast.audit();
    CAPTURE(faults.size());
    REQUIRE((faults.empty() ? "" : faults[0]) == "");
    REQUIRE(fast.num_gangs() == slow.gangs.size());
    for (const auto& [job, g] : slow.gangs) {
      const auto* const found = fast.find(job);
      REQUIRE(found != nullptr);
      REQUIRE(found->tasks == g.tasks);
      REQUIRE(found->preempting == g.preempting);
      REQUIRE(found->started == g.started);
      REQUIRE(found->ends_for == g.ends_for);
      REQUIRE(found->victims == g.victims);
    }
    std::uint64_t free = 0;
    for (const auto& [id, n] : slow.nodes) {
      REQUIRE(fast.node(node_id(id)) != nullptr);
      REQUIRE(*fast.node(node_id(id)) == n.shape);
      REQUIRE(fast.jobs_on(node_id(id)) == slow.jobs_on(id));
      free += static_cast<std::uint64_t>(std::popcount(slow.healthy_gpus(id) & ~slow.used(id)));
    }
    REQUIRE(fast.free_gpus() == free);
    for (level_t l = 0; l <= slow.levels; ++l) {
      std::uint64_t sum = 0;
      std::uint32_t nodes = 0;
      const auto cells = fast.free_capacity(l);
      REQUIRE(cells.ok());
      for (const gang_scheduler::cell_capacity& c : *cells) {
        sum += c.free_gpus;
        nodes += c.nodes;
      }
      REQUIRE(sum == free);
      REQUIRE(nodes == slow.nodes.size());
    }
  }
};

gang_cluster::node random_node(rng& random, std::uint32_t levels, std::uint32_t name) {
  gang_cluster::node n{.name = "n" + std::to_string(name),
                       .gpus = random.uniform(5) == 0 ? 0 : 2 + random.uniform(3),
                       .host = {random.uniform(10) * 1000, random.uniform(10) * 100}};
  const std::uint32_t rack = random.uniform(3);
  if (levels > 0) n.cells.push_back("r" + std::to_string(rack));
  if (levels > 1) n.cells.push_back("b" + std::to_string(rack / 2));
  n.model = random.uniform(2) == 0 ? "a" : "b";
  if (random.uniform(2) == 0) n.labels.push_back("zone=" + std::to_string(random.uniform(2)));
  if (random.uniform(6) == 0) n.taints.emplace_back("old");
  return n;
}

gang_cluster random_cluster(rng& random) {
  gang_cluster cluster;
  const std::uint32_t levels = random.uniform(3);
  if (levels > 0) cluster.levels.emplace_back("rack");
  if (levels > 1) cluster.levels.emplace_back("block");
  for (std::uint32_t i = random.uniform(8) == 0 ? random.uniform(3) : 3 + random.uniform(4);
       i-- > 0;)
    cluster.nodes.push_back(
        random_node(random, levels, static_cast<std::uint32_t>(cluster.nodes.size())));
  return cluster;
}

gang_scheduler::request random_request(rng& random, pair_of_schedulers& both) {
  gang_scheduler::request r;
  ++both.next_job;
  r.job = both.next_job % 3 == 0 ? job_key("j" + std::to_string(both.next_job))
                                 : job_key(both.next_job);
  r.tenant = tenant_id(random.uniform(3));
  r.priority = static_cast<std::int32_t>(random.uniform(4)) - 1;
  const std::uint32_t groups = 1 + random.uniform(2);
  const level_t levels = both.slow.levels + 1;
  const bool hosted = random.uniform(3) == 0;
  for (std::uint32_t m = 0; m < groups; ++m) {
    constrained_task_group g{.tasks = 1 + random.uniform(3),
                             .gpus = random.uniform(8) == 0 ? 0 : 1 + random.uniform(3)};
    if (hosted || g.gpus == 0) g.host = {1000 * (1 + random.uniform(2)), random.uniform(2) * 100};
    if (random.uniform(6) == 0) g.spread = {{random.uniform(levels), 1 + random.uniform(2)}};
    if (random.uniform(6) == 0)
      g.slices = {{random.uniform(levels), g.tasks % 2 == 0 ? 2U : g.tasks}};
    r.gang.groups.push_back(g);
  }
  if (random.uniform(3) == 0) r.gang.required = random.uniform(levels);
  if (random.uniform(4) == 0) r.gang.preferred = random.uniform(levels);
  if (groups == 2 && random.uniform(4) == 0) {
    r.gang.groups[1].leader = 0;
    r.gang.groups[1].tasks = r.gang.groups[0].tasks * (1 + random.uniform(2));
    r.gang.groups[1].slices.clear();
    if (levels > 1 && random.uniform(2) == 0)
      r.gang.groups[1].leader_level = 1 + random.uniform(levels - 1);
  }
  switch (random.uniform(12)) {
    case 0:
      r.filter.labels = {random.uniform(2) == 0 ? "zone" : "zone=1"};
      break;
    case 1:
      r.filter.models = {"a"};
      break;
    case 2:
      r.filter.tolerations = {"old"};
      break;
    case 3: {
      std::vector<std::string> names;
      for (const auto& [id, n] : both.slow.nodes)
        if (random.uniform(2) == 0) names.push_back(n.shape.name);
      r.filter.nodes = names;
      break;
    }
    default:
      break;
  }
  return r;
}

template <class Map>
auto random_key(rng& random, const Map& map) {
  return std::next(map.begin(), random.uniform(static_cast<std::uint32_t>(map.size())))->first;
}

void random_event(rng& random, pair_of_schedulers& both) {
  auto& [fast, slow, next_name, next_job, seen, optimal] = both;
  slow.now += random.uniform(4);
  const std::uint32_t kind = random.uniform(20);
  if (kind < 9) {
    both.ask(random_request(random, both), random.uniform(4) != 0);
  } else if (kind < 14 && !slow.gangs.empty()) {
    const job_key job = random_key(random, slow.gangs);
    const auto& g = slow.gangs.at(job);
    g.preempting&& random.uniform(3) != 0 ? both.again(job) : both.finish(job);
  } else if (kind < 16 && !slow.nodes.empty()) {
    const std::uint32_t id = random_key(random, slow.nodes);
    auto& n = slow.nodes.at(id);
    const bool bad = random.uniform(5) < 2;
    if (n.shape.gpus > 0 && random.uniform(2) == 0) {
      const std::uint32_t gpu = random.uniform(n.shape.gpus);
      REQUIRE((bad ? fast.mark_bad(node_id(id), gpu) : fast.mark_healthy(node_id(id), gpu)).ok());
      n.bad_gpus = bad ? n.bad_gpus | 1U << gpu : n.bad_gpus & ~(1U << gpu);
    } else {
      REQUIRE((bad ? fast.mark_bad(node_id(id)) : fast.mark_healthy(node_id(id))).ok());
      n.bad = bad;
    }
  } else if (kind < 18 && slow.nodes.size() < 8) {
    const gang_cluster::node n = random_node(random, slow.levels, next_name++);
    const auto id = fast.add_node(n);
    REQUIRE(id.ok());
    REQUIRE(!slow.nodes.contains(id->value));
    for (std::uint32_t lower = 0; lower < id->value; ++lower) REQUIRE(slow.nodes.contains(lower));
    slow.nodes[id->value] = {.shape = n};
    ++seen["add_node"];
  } else if (kind == 18 && !slow.nodes.empty()) {
    const std::uint32_t id = random_key(random, slow.nodes);
    const bool idle = slow.jobs_on(id).empty();
    const absl::Status removed = fast.remove_node(node_id(id));
    REQUIRE(removed.code() ==
            (idle ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition));
    if (idle) slow.nodes.erase(id);
    seen["remove_node"] += idle ? 1 : 0;
  } else if (!slow.nodes.empty()) {
    const std::uint32_t id = random_key(random, slow.nodes);
    auto& n = slow.nodes.at(id);
    const std::uint32_t gpus = 1 + random.uniform(5);
    const resources host{random.uniform(12) * 1000, random.uniform(12) * 100};
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    for (const auto& [job, g] : slow.gangs) {
      std::size_t t = 0;
      for (const constrained_task_group& m : g.what.gang.groups)
        for (std::uint32_t i = 0; i < m.tasks; ++i, ++t)
          if (g.tasks[t].node.value == id) cpu += m.host.cpu_milli, memory += m.host.memory_mib;
    }
    const bool can =
        (slow.used(id) >> gpus) == 0 && cpu <= host.cpu_milli && memory <= host.memory_mib;
    const absl::Status resized = fast.resize_node(node_id(id), gpus, host);
    REQUIRE(resized.code() ==
            (can ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition));
    if (!can) return;
    n.shape.gpus = gpus;
    n.shape.host = host;
    n.bad_gpus &= (1U << gpus) - 1;
    ++seen["resize_node"];
  }
}

}  // namespace

TEST_CASE("random histories give the answers of a scheduler that recomputes everything") {
  std::map<std::string, std::uint64_t> seen;
  std::uint64_t optimal = 0;
  std::uint64_t preempting = 0;
  std::uint64_t lowest = 0;      // victims that allow the lowest of the preferred levels
  std::uint64_t not_lowest = 0;  // others of the same cost would allow a lower one
  std::uint64_t events = 0;
  const std::uint64_t histories = scaled(std::uint64_t{2'500});
  for (std::uint64_t h = 0; h < histories; ++h) {
    CAPTURE(h);
    rng random(h);
    pair_of_schedulers both(random_cluster(random));
    if (h % 3 == 0) {
      both.slow.cost = &cost_of_request;
      both.fast.set_victim_cost(
          [](const gang_scheduler::running_gang& g, time_ms) { return cost_of_request(g.what); });
    }
    if (h % 4 == 0) {
      both.slow.budgets = {{0, {.gangs = 1}}, {2, {.gpus = 3}}};
      for (const auto& [tenant, most] : both.slow.budgets)
        both.fast.set_disruption_budget(tenant_id(tenant), most);
    }
    for (std::uint32_t e = 0; e < 40; ++e) {
      CAPTURE(e);
      if (random.uniform(8) == 0) {  // a trial leaves no trace
        const pair_of_schedulers before = both;
        const std::uint64_t hash = both.fast.hash();
        both.fast.what_if([&](gang_scheduler&) {
          for (std::uint32_t i = random.uniform(6); i-- > 0;) random_event(random, both);
          both.compare();
        });
        both.slow = before.slow;
        both.next_name = before.next_name;
        REQUIRE(both.fast.hash() == hash);
      } else {
        random_event(random, both);
        ++events;
      }
      both.compare();
    }
    for (const auto& [what, n] : both.seen) seen[what] += n;
    optimal += both.optimal;
    lowest += both.slow.lowest;
    not_lowest += both.slow.not_lowest;
    preempting += both.seen["preempt"];
  }
  for (const auto& [what, n] : seen) MESSAGE(what << ": " << n);
  MESSAGE("events: " << events << ", victims proved cheapest: " << optimal << " of " << preempting);
  MESSAGE("victims for a preferred level: " << lowest << ", not the lowest: " << not_lowest);
  CHECK(seen["wait undecided"] * 1000 <= events);
  CHECK(seen["busy without remedy"] == 0);
  CHECK(not_lowest * 100 <= lowest);
  if (is_quick()) return;
  for (const char* const what :
       {"bind", "preempt", "wait never", "wait busy", "wait unhealthy", "wait not suggested",
        "again", "add_node", "remove_node", "resize_node", "proof", "remedy"})
    CHECK(seen[what] > 100);
  for (const char* const what : {"blocked by GPUs", "blocked by others"}) CHECK(seen[what] > 20);
  CHECK(optimal * 10 > preempting * 5);
}

namespace {

// Every history of so many events goes on from this one.
void all_histories(const pair_of_schedulers& from, std::uint32_t events, std::uint64_t& seen) {
  for (std::uint32_t kind = 0; kind < 9; ++kind) {
    pair_of_schedulers both = from;
    gang_scheduler::request r{.job = ++both.next_job,
                              .gang = {.groups = {{.tasks = 2, .gpus = 2}}}};
    const auto& gangs = both.slow.gangs;
    switch (kind) {
      case 0:
        r.gang.required = 1;
        both.ask(r, true);
        break;
      case 1:
        r.priority = 1;
        r.gang.groups = {{.tasks = 3, .gpus = 1}};
        r.gang.preferred = 0;
        both.ask(r, true);
        break;
      case 2:
        r.priority = 2;
        r.gang.groups = {{.tasks = 1, .gpus = 2, .host = {2000, 0}}};
        both.ask(r, true);
        break;
      case 3:
        r.priority = 2;
        r.gang.groups[0].slices = {{1, 2}};
        r.gang.groups[0].spread = {{0, 1}};
        r.filter.labels = {"zone"};
        both.ask(r, true);
        break;
      case 4:
        if (gangs.empty()) continue;
        both.finish(gangs.begin()->first);
        break;
      case 5:
        if (gangs.empty()) continue;
        if (gangs.rbegin()->second.preempting)
          both.again(gangs.rbegin()->first);
        else
          both.finish(gangs.rbegin()->first);
        break;
      case 6: {
        auto& n = both.slow.nodes.begin()->second;
        const node_id id(both.slow.nodes.begin()->first);
        REQUIRE((n.bad ? both.fast.mark_healthy(id) : both.fast.mark_bad(id)).ok());
        n.bad = !n.bad;
        break;
      }
      case 7: {
        const std::uint32_t id = both.slow.nodes.rbegin()->first;
        if (!both.slow.jobs_on(id).empty() || both.slow.nodes.size() == 1) continue;
        REQUIRE(both.fast.remove_node(node_id(id)).ok());
        both.slow.nodes.erase(id);
        break;
      }
      default: {
        const gang_cluster::node n{.name = "m" + std::to_string(both.next_name++),
                                   .cells = {"r3"},
                                   .gpus = 2,
                                   .host = {2000, 0},
                                   .labels = {"zone=1"}};
        const auto id = both.fast.add_node(n);
        REQUIRE(id.ok());
        both.slow.nodes[id->value] = {.shape = n};
        break;
      }
    }
    both.compare();
    ++seen;
    if (events > 1) all_histories(both, events - 1, seen);
  }
}

}  // namespace

TEST_CASE("all short histories give the answers of a scheduler that recomputes everything") {
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 4; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n),
                             .cells = {"r" + std::to_string(n / 2)},
                             .gpus = 2,
                             .host = {2000, 0},
                             .labels = {n % 2 == 0 ? "zone=1" : "zone=2"}});
  std::uint64_t seen = 0;
  all_histories(pair_of_schedulers(cluster), is_quick() ? 3 : 5, seen);
  MESSAGE("histories: " << seen);
  CHECK(seen > 500);
}
