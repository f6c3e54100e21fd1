// apiary/tests/gang_scheduler/detail/scheduled_gangs_test.cpp - gangs that start, end and are undone, against a plain list.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/gang_audit.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace scheduled_gangs_tests {
namespace {

using namespace apiary;
using detail::scheduled_gangs;
using running_gang = gang_scheduler_types::running_gang;

constexpr std::uint32_t num_nodes = 6;

gang_cluster cluster() {
  gang_cluster all{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < num_nodes; ++n)
    all.nodes.push_back({.name = "n" + std::to_string(n),
                         .cells = {n < 3 ? "r0" : "r1"},
                         .gpus = 8,
                         .host = {8'000, 64}});
  return all;
}

// What runs, as a list, and the state beside it.
class history {
 public:
  history() : state_(cluster()) {}

  // Starts a gang on free GPUs, if there are any.
  void start(rng& random) {
    running_gang g;
    const std::uint32_t number = random.uniform(40);
    g.what.job = number % 2 == 0 ? job_key(number) : job_key("j" + std::to_string(number));
    if (gangs_.contains(g.what.job)) return;
    std::vector<std::uint32_t> taken(num_nodes, 0);
    for (std::uint32_t t = 1 + random.uniform(4); t-- > 0;) {
      const std::uint32_t n = random.uniform(num_nodes);
      const std::uint32_t mask =
          random.uniform(256) & random.uniform(256) & state_.node(n).free_gpus() & ~taken[n];
      if (mask == 0) continue;
      taken[n] |= mask;
      const placement at{node_id(n), mask};
      g.what.gang.groups.push_back(
          {.tasks = 1, .gpus = at.num_gpus(), .host = {random.uniform(3), random.uniform(3)}});
      g.tasks.push_back(at);
      g.gpus += at.num_gpus();
    }
    if (g.tasks.empty()) return;
    g.what.priority = static_cast<std::int32_t>(random.uniform(3));
    g.started = random.uniform(50);
    state_.insert(g);
    gangs_.emplace(g.what.job, g);
  }
  // Starts a gang on the GPUs of up to four that run and end for it.
  void preempt(rng& random) {
    if (gangs_.contains(100)) return;
    running_gang g;
    g.what.job = 100;
    g.preempting = true;
    for (std::uint32_t i = 1 + random.uniform(4); i > 0; --i) {
      running_gang* const victim = any(random);
      if (victim == nullptr || victim->preempting || victim->ends_for) continue;
      g.victims.insert(victim->what.job);
      victim->ends_for = 100;
      const auto& groups = victim->what.gang.groups;
      g.what.gang.groups.insert(g.what.gang.groups.end(), groups.begin(), groups.end());
      g.tasks.insert(g.tasks.end(), victim->tasks.begin(), victim->tasks.end());
      g.gpus += victim->gpus;
    }
    if (g.victims.empty()) return;
    state_.insert(g);
    gangs_.emplace(100, g);
  }
  void end(rng& random) {
    const running_gang* const g = any(random);
    if (g == nullptr) return;
    const job_key job = g->what.job;
    if (g->ends_for) gangs_.at(*g->ends_for).victims.erase(job);
    for (const job_key& v : g->victims) gangs_.at(v).ends_for.reset();
    gangs_.erase(job);
    state_.erase(state_.slot_of(job));
  }
  // A preempting gang without victims starts to run.
  void run(rng& random) {
    const auto at = gangs_.find(100);
    if (at == gangs_.end() || !at->second.preempting || !at->second.victims.empty()) return;
    at->second.preempting = false;
    at->second.started = random.uniform(50);
    state_.set_preempting(state_.slot_of(100), false, at->second.started);
  }
  void any_event(rng& random) {
    const std::uint32_t what = random.uniform(8);
    if (what < 3) start(random);
    if (what == 3) preempt(random);
    if (what == 4 || what == 5) end(random);
    if (what == 6) run(random);
    if (what == 7) listed_ = !state_.allocations().all().empty() || listed_;
  }
  // Events that are undone, in a trial that may have trials in it.
  void try_events(rng& random, int depth) {
    const std::map<job_key, running_gang> before = gangs_;
    const std::uint64_t hash = state_.hash();
    const std::uint64_t epoch = state_.epoch();
    state_.try_out([&] {
      for (std::uint32_t i = random.uniform(6); i > 0; --i) {
        any_event(random);
        state_.next_epoch();
        if (depth > 0 && random.uniform(4) == 0) try_events(random, depth - 1);
      }
    });
    gangs_ = before;
    REQUIRE(state_.hash() == hash);
    REQUIRE(state_.epoch() == epoch);
  }
  void check() {
    REQUIRE(state_.num_gangs() == gangs_.size());
    std::vector<std::uint32_t> used(num_nodes, 0), reserved(num_nodes, 0);
    auto expected = gangs_.begin();
    for (const scheduled_gangs::ordered_gang& o : state_.in_order()) {
      const auto& [job, g] = *expected++;
      const scheduled_gangs::entry& e = state_.at(o.slot);
      REQUIRE(e.record.what.job == job);
      REQUIRE(state_.slot_of(job) == o.slot);
      REQUIRE(e.record.tasks == g.tasks);
      REQUIRE(e.record.started == g.started);
      REQUIRE(e.record.preempting == g.preempting);
      REQUIRE(e.record.victims == g.victims);
      REQUIRE(e.record.ends_for == g.ends_for);
      REQUIRE(e.is_candidate() == (!g.preempting && !g.ends_for));
      for (const placement& p : g.tasks)
        (g.preempting ? reserved : used)[p.node.value] |= p.gpu_mask;
    }
    REQUIRE(state_.slot_of(1'000) == scheduled_gangs::none);
    for (std::uint32_t n = 0; n < num_nodes; ++n) {
      REQUIRE(state_.node(n).used == used[n]);
      REQUIRE(state_.node(n).reserved == reserved[n]);
    }
    REQUIRE(detail::gang_audit(state_)() == std::vector<std::string>{});
    REQUIRE(state_.hash() == hash_of_new_state());
  }
  [[nodiscard]] bool has_listed() const { return listed_; }

 private:
  [[nodiscard]] running_gang* any(rng& random) {
    if (gangs_.empty()) return nullptr;
    auto at = gangs_.begin();
    for (std::uint32_t i = random.uniform(static_cast<std::uint32_t>(gangs_.size())); i > 0; --i)
      ++at;
    return &at->second;
  }
  // The hash of a state that gets the gangs in the reverse order of their jobs, preempting ones last.
  [[nodiscard]] std::uint64_t hash_of_new_state() const {
    scheduled_gangs fresh(cluster());
    for (const bool preempting : {false, true})
      for (auto g = gangs_.rbegin(); g != gangs_.rend(); ++g) {
        if (g->second.preempting != preempting) continue;
        running_gang added = g->second;
        added.ends_for.reset();  // its preempting gang sets it
        fresh.insert(std::move(added));
      }
    return fresh.hash();
  }

  scheduled_gangs state_;
  std::map<job_key, running_gang> gangs_;
  bool listed_ = false;
};

TEST_CASE("scheduled_gangs: random histories and trials, against a list of what runs") {
  bool listed = false;
  for (std::uint64_t seed = 0; seed < std::max(10U, apiary_test::scaled(200U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    history h;
    for (int i = 0; i < 100; ++i) {
      CAPTURE(i);
      if (random.uniform(4) == 0) {
        h.try_events(random, 2);
      } else {
        h.any_event(random);
      }
      h.check();
    }
    listed = listed || h.has_listed();
  }
  CHECK(listed);
}

TEST_CASE("scheduled_gangs: what a gang has on each node is the sum over its tasks there") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    topology_constraints gang;
    std::vector<placement> tasks;
    std::map<std::uint32_t, scheduled_gangs::on_node> sums;
    for (std::uint32_t m = 1 + random.uniform(3); m > 0; --m) {
      gang.groups.push_back({.tasks = random.uniform(4), .gpus = 1});
      gang.groups.back().host = {random.uniform(9), random.uniform(9)};
      for (std::uint32_t t = 0; t < gang.groups.back().tasks; ++t) {
        const std::uint32_t n = random.uniform(4);
        const auto mask = std::uint32_t{1} << tasks.size();
        tasks.push_back({node_id(n), mask});
        scheduled_gangs::on_node& sum = sums[n];
        sum.node = n;
        sum.mask |= mask;
        sum.cpu_milli += gang.groups.back().host.cpu_milli;
        sum.memory_mib += gang.groups.back().host.memory_mib;
      }
    }
    std::vector<scheduled_gangs::on_node> expected;
    for (const auto& [n, sum] : sums) expected.push_back(sum);
    REQUIRE(scheduled_gangs::nodes_of(gang, tasks) == expected);
  }
}

TEST_CASE("scheduled_gangs: slots of gangs that have ended are used again") {
  scheduled_gangs state(cluster());
  running_gang g;
  g.what.gang.groups = {{.tasks = 1, .gpus = 1}};
  g.tasks = {{node_id(0), 1}};
  g.gpus = 1;
  for (std::uint32_t job = 0; job < 10'000; ++job) {
    g.what.job = job;
    state.insert(g);
    state.erase(state.slot_of(job));
  }
  CHECK(state.num_slots() <= 128);
  CHECK(state.in_order().empty());
}

}  // namespace
}  // namespace scheduled_gangs_tests
