// apiary/tests/gandiva/gandiva_gangs_test.cpp - time slices and migrations on HiveD: guarantees hold, no gang starves.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/naive_time_sharing.h"
#include "support/scale.h"
#include <apiary/core/digest.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/hived/queries.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gandiva_on_hived {
namespace {

using namespace apiary;
using namespace apiary::detail;
using gang_action = gandiva_gangs::action;
using verb = gang_action::verb;
using apiary_test::naive_gandiva_gangs;

// Two nodes of four GPUs, tenant a owns one of them.
hived two_nodes() {
  hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2, false}, {"NODE", "PAIR", 2, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}, {.name = "b"}};
  return hived::create(config).value();
}
gang_request opportunistic_gang(std::uint32_t job, std::uint32_t leaves, std::uint32_t tasks = 1) {
  return {.job = job_id(job),
          .tenant = tenant_id(1),
          .priority = gang_request::opportunistic_priority,
          .groups = {{tasks, leaves}}};
}
gang_request owner(std::uint32_t job, std::uint32_t leaves, std::int32_t priority = 0) {
  return {
      .job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {{1, leaves}}};
}

struct two_node_host {
  gandiva_gangs scheduler;
  std::vector<gang_action> actions{};

  explicit two_node_host(const time_sharing_options& options, const gang_migration& moves = {})
      : scheduler(gandiva_gangs::create(hived_gang_placer(two_nodes(), moves), options).value()) {}
  void submit(const gang_request& r, time_ms now, const gandiva_gangs::job_options& terms = {}) {
    actions.clear();
    REQUIRE(scheduler.submit(r, terms, now, actions).ok());
  }
  void tick(time_ms now) {
    actions.clear();
    REQUIRE(scheduler.decide(now, actions).ok());
    REQUIRE(apiary_test::faults_of(scheduler.placer().scheduler()) == "");
  }
  [[nodiscard]] bool runs(std::uint32_t job) const {
    const auto phase = scheduler.find(job_id(job));
    return phase && *phase != gandiva_gangs::phase::wait;
  }
  // What was done with which gang.
  [[nodiscard]] std::vector<std::pair<verb, std::uint32_t>> done() const {
    std::vector<std::pair<verb, std::uint32_t>> list;
    for (const gang_action& a : actions) list.emplace_back(a.what, a.job.value);
    return list;
  }
};
using done_list = std::vector<std::pair<verb, std::uint32_t>>;

TEST_CASE("gandiva on hived: what cannot be asked") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(gandiva_gangs::create(hived_gang_placer(two_nodes()), {.quantum = 0}).status().code() ==
        invalid);
  hived used = two_nodes();
  CHECK(used.commit(used.propose(opportunistic_gang(1, 1)).value()).ok());
  CHECK(gandiva_gangs::create(hived_gang_placer(used), {}).status().code() ==
        absl::StatusCode::kFailedPrecondition);

  gandiva_gangs g = gandiva_gangs::create(hived_gang_placer(two_nodes()), {}).value();
  std::vector<gang_action> actions;
  const std::uint64_t before = g.placer().scheduler().hash();
  gang_request r = opportunistic_gang(1, 1);
  CHECK(g.submit(r, {.weight = 0}, 0, actions).code() == invalid);
  CHECK(g.submit(r, {.weight = 1001}, 0, actions).code() == invalid);
  CHECK(g.submit(r, {}, -1, actions).code() == invalid);
  CHECK(g.submit(r, {}, gandiva_gangs::end_of_time, actions).code() == invalid);
  CHECK(g.submit({}, {}, 0, actions).code() != absl::StatusCode::kOk);
  r.tenant = tenant_id(2);
  CHECK(g.submit(r, {}, 0, actions).code() == absl::StatusCode::kNotFound);
  const summary_bitset nodes(2, true);
  r = opportunistic_gang(1, 1);
  r.suggested = &nodes;
  CHECK(g.submit(r, {}, 0, actions).code() == invalid);
  CHECK(g.finish(job_id(1), 0).code() == absl::StatusCode::kNotFound);
  CHECK(g.mark_bad(node_id(2)).code() == absl::StatusCode::kNotFound);
  CHECK(g.mark_healthy(node_id(2)).code() == absl::StatusCode::kNotFound);
  CHECK(actions.empty());
  CHECK(g.num_jobs() == 0);
  CHECK(g.placer().scheduler().hash() == before);
  CHECK(!g.find(job_id(1)));

  CHECK(g.submit(opportunistic_gang(1, 1), {}, 5, actions).ok());
  CHECK(g.submit(opportunistic_gang(1, 1), {}, 5, actions).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(g.decide(4, actions).code() == invalid);
  CHECK(g.finish(job_id(1), 4).code() == invalid);
  CHECK(g.decide(gandiva_gangs::end_of_time, actions).code() == invalid);
  CHECK(g.num_jobs() == 1);
}

TEST_CASE("gandiva on hived: may_start is what submit would do") {
  gandiva_gangs g = gandiva_gangs::create(hived_gang_placer(two_nodes()), {}).value();
  std::vector<gang_action> actions;
  gang_request r = opportunistic_gang(0, 4, 2);
  const summary_bitset nodes(2, true);
  r.suggested = &nodes;
  CHECK(!g.may_start(r));  // hived alone would place it
  CHECK(!g.submit(r, {}, 0, actions).ok());
  r.suggested = nullptr;
  CHECK(g.may_start(r));
  CHECK(!g.may_start(opportunistic_gang(0, 5)));
  CHECK(g.submit(r, {}, 0, actions).ok());
  CHECK(!g.may_start(opportunistic_gang(1, 1)));
  CHECK(g.may_start(owner(1, 4)));  // opportunistic gangs stop for it
  CHECK(g.find(job_id(0)) == gandiva_gangs::phase::sliced);
}

TEST_CASE("gandiva on hived: three opportunistic gangs of a whole node each share two nodes") {
  two_node_host host({.quantum = 60});
  for (std::uint32_t job = 0; job < 3; ++job) host.submit(opportunistic_gang(job, 4), 0);
  CHECK(host.actions.empty());  // job 2 waits
  host.tick(0);
  CHECK(host.scheduler.wake() == 60);
  host.tick(30);
  CHECK(host.actions.empty());
  host.tick(60);
  CHECK(host.done() == done_list{{verb::suspend, 1}, {verb::start, 2}});
  host.tick(120);
  CHECK(host.done() == done_list{{verb::suspend, 0}, {verb::resume, 1}});
  host.tick(180);
  CHECK(host.actions.empty());  // all three have run for two quanta
  host.tick(240);
  CHECK(host.done() == done_list{{verb::suspend, 2}, {verb::resume, 0}});
  CHECK(host.scheduler.pass(job_id(0)) == slice_pass(120, 1));
  CHECK(host.scheduler.wake() == 241);  // job 2 might fit elsewhere now
  host.tick(241);
  CHECK(host.scheduler.wake() == 300);
  CHECK(host.scheduler.finish(job_id(0), 250).ok());
  host.tick(250);
  CHECK(host.done() == done_list{{verb::resume, 2}});
  CHECK(host.scheduler.wake() == max_time);
}

TEST_CASE("gandiva on hived: an opportunistic gang of weight two runs twice as long") {
  two_node_host host({.quantum = 60});
  host.submit(opportunistic_gang(0, 4, 2), 0, {.weight = 2});
  host.submit(opportunistic_gang(1, 4, 2), 0);
  std::uint32_t first = 0;
  for (time_ms now = 0; now < 36'000; now += 60) {
    host.tick(now);
    CHECK(host.runs(0) != host.runs(1));
    first += host.runs(0) ? 1U : 0U;
  }
  CHECK(first == 400);
}

TEST_CASE(
    "gandiva on hived: a guaranteed gang starts as it comes, and opportunistic gangs wait for it") {
  two_node_host host({.quantum = 60});
  host.submit(opportunistic_gang(0, 4, 2), 0);
  host.submit(owner(1, 4), 10);
  CHECK(host.done() == done_list{{verb::suspend, 0}, {verb::start, 1}});
  CHECK(host.scheduler.pass(job_id(0)) == slice_pass(10, 1));
  for (time_ms now = 60; now < 600; now += 60) {
    host.tick(now);
    CHECK(host.actions.empty());  // the opportunistic gang never has a time slice
  }
  CHECK(host.scheduler.finish(job_id(1), 600).ok());
  host.tick(600);
  CHECK(host.done() == done_list{{verb::resume, 0}});
}

TEST_CASE("gandiva on hived: inside a tenant the higher priority stops the lower one") {
  two_node_host host({.quantum = 60});
  host.submit(owner(0, 4, 1), 0);
  host.submit(owner(1, 4, 2), 1);
  CHECK(host.done() == done_list{{verb::suspend, 0}, {verb::start, 1}});
  host.submit(owner(2, 4, 3), 2);
  host.submit(opportunistic_gang(3, 4), 3);
  CHECK(host.scheduler.num_waiting() == 2);
  CHECK(host.scheduler.finish(job_id(2), 4).ok());
  host.tick(4);  // job 1 first, of its higher priority
  CHECK(host.done() == done_list{{verb::resume, 1}});
  CHECK(!host.runs(0));
  CHECK(host.runs(3));
}

TEST_CASE("gandiva on hived: an opportunistic gang migrates, so that a node becomes whole") {
  for (const bool movable : {true, false}) {
    for (const std::uint32_t cost : {0U, 1999U, 2000U}) {
      two_node_host host({.quantum = 60, .migrations = {1, cost}});
      host.submit(opportunistic_gang(0, 2), 0, {.movable = movable});
      host.submit(opportunistic_gang(1, 2), 0, {.movable = movable});
      host.submit(opportunistic_gang(2, 2), 0, {.movable = movable});
      host.tick(0);
      CHECK(host.scheduler.finish(job_id(0), 1).ok());
      const std::uint64_t before =
          hived_queries::broken_leaves(host.scheduler.placer().scheduler());
      host.tick(1);
      const std::uint64_t after = hived_queries::broken_leaves(host.scheduler.placer().scheduler());
      if (!movable || cost == 2000) {
        CHECK(host.actions.empty());
        continue;
      }
      REQUIRE(host.actions.size() == 1);
      CHECK(host.actions[0].what == verb::migrate);
      CHECK(before == 4);  // two unused on each node
      CHECK(after == 0);
      host.tick(2);
      CHECK(host.actions.empty());
    }
  }
}

// Audits after whatever changes something.
struct audited_placer : hived_gang_placer {
  using hived_gang_placer::hived_gang_placer;

  void audit_now() const { REQUIRE(apiary_test::faults_of(scheduler()) == ""); }
  template <class F>
  auto changes_nothing(F&& ask) {
    const std::uint64_t before = scheduler().hash();
    auto answer = ask();
    REQUIRE(scheduler().hash() == before);
    return answer;
  }
  absl::Status changes(absl::Status status) const {
    audit_now();
    return status;
  }
  absl::Status check(const request& r) {
    return changes_nothing([&] { return hived_gang_placer::check(r); });
  }
  absl::StatusOr<std::optional<placement_type>> propose(const request& r) {
    return changes_nothing([&] { return hived_gang_placer::propose(r); });
  }
  absl::StatusOr<placer_answer<placement_type>> propose_preempting(const request& r) {
    return changes_nothing([&] { return hived_gang_placer::propose_preempting(r); });
  }
  absl::Status reserve(job_id job) { return changes(hived_gang_placer::reserve(job)); }
  absl::Status commit(const request& r, const placement_type& where) {
    return changes(hived_gang_placer::commit(r, where));
  }
  absl::Status finish(job_id job) { return changes(hived_gang_placer::finish(job)); }
  absl::Status mark_bad(node_id n) { return changes(hived_gang_placer::mark_bad(n)); }
  absl::Status mark_healthy(node_id n) { return changes(hived_gang_placer::mark_healthy(n)); }
};

// The calls of any scheduler of gangs, so that the host below is compiled once.
struct any_scheduler {
  any_scheduler() = default;
  any_scheduler(const any_scheduler&) = delete;
  any_scheduler& operator=(const any_scheduler&) = delete;
  virtual ~any_scheduler() = default;
  virtual absl::Status submit(const gang_request& r, const gandiva_gangs::job_options& options,
                              time_ms now, std::vector<gang_action>& actions) = 0;
  virtual absl::Status finish(job_id job, time_ms now) = 0;
  virtual absl::Status mark(node_id n, bool healthy) = 0;
  virtual absl::Status tick(time_ms now, std::vector<gang_action>& actions) = 0;
  [[nodiscard]] virtual time_ms wake() const = 0;
  [[nodiscard]] virtual std::size_t num_jobs() const = 0;
  [[nodiscard]] virtual std::size_t num_waiting() const = 0;
  [[nodiscard]] virtual const hived& cluster() const = 0;
};
template <class Scheduler>
struct scheduler_of final : any_scheduler {
  explicit scheduler_of(Scheduler s) : inner(std::move(s)) {}
  Scheduler inner;
  absl::Status submit(const gang_request& r, const gandiva_gangs::job_options& options, time_ms now,
                      std::vector<gang_action>& actions) override {
    return inner.submit(r, options, now, actions);
  }
  absl::Status finish(job_id job, time_ms now) override { return inner.finish(job, now); }
  absl::Status mark(node_id n, bool healthy) override {
    return healthy ? inner.mark_healthy(n) : inner.mark_bad(n);
  }
  absl::Status tick(time_ms now, std::vector<gang_action>& actions) override {
    return inner.decide(now, actions);
  }
  [[nodiscard]] time_ms wake() const override { return inner.wake(); }
  [[nodiscard]] std::size_t num_jobs() const override { return inner.num_jobs(); }
  [[nodiscard]] std::size_t num_waiting() const override { return inner.num_waiting(); }
  [[nodiscard]] const hived& cluster() const override { return inner.placer().scheduler(); }
};

// What hosts send, at random; the answers are applied to a list of the gangs that run.
class random_host {
 public:
  struct counts {
    std::uint64_t ticks = 0, starts = 0, suspends = 0, resumes = 0, migrations = 0, late = 0;
  };

  random_host(std::unique_ptr<any_scheduler> s, std::uint64_t seed, std::uint32_t marks)
      : scheduler(std::move(s)), random(seed), marks_(marks) {}
  template <class Scheduler>
  static random_host of(Scheduler s, std::uint64_t seed, std::uint32_t marks) {
    return {std::make_unique<scheduler_of<Scheduler>>(std::move(s)), seed, marks};
  }

  std::unique_ptr<any_scheduler> scheduler;
  rng random;
  time_ms now = 0;
  counts seen{};
  digest log{};
  std::map<job_id, gang_request> jobs{};
  std::map<job_id, std::vector<hived_placement>> running{};

  [[nodiscard]] const hived& cluster() const { return scheduler->cluster(); }

  void step() {
    acted_.clear();
    for (std::uint32_t events = random.uniform(3); events > 0; --events) event();
    now += random.uniform(3) == 0 ? 0 : random.uniform(25);
    std::set<job_id> here;
    std::vector<gang_action> actions;
    const std::uint64_t before = cluster().hash();
    REQUIRE(scheduler->tick(now, actions).ok());
    if (actions.empty()) REQUIRE(cluster().hash() == before);
    for (const gang_action& a : actions) REQUIRE(here.insert(a.job).second);
    apply(actions);
    ++seen.ticks;
    REQUIRE(scheduler->wake() > now);
    REQUIRE(scheduler->num_jobs() == jobs.size());
    REQUIRE(scheduler->num_waiting() == jobs.size() - running.size());
    // Where a guaranteed gang migrated, another may fit now: at wake().
    for (const gang_action& a : actions)
      if (a.what == verb::migrate && jobs.at(a.job).priority >= 0) return;
    owners_are_not_late();
  }

 private:
  void event() {
    if (random.uniform(100) < marks_) {
      const node_id n(random.uniform(cluster().layout().num_nodes()));
      const bool good = random.uniform(3) > 0;
      REQUIRE(scheduler->mark(n, good).ok());
    } else if (random.uniform(100) < 51) {
      gang_request r = apiary_test::random_gang(cluster().layout(), job_id(next_++), random);
      if (random.uniform(2) == 0) {
        r.priority = gang_request::opportunistic_priority;
        r.pinned.reset();
      }
      // On bad hardware hived looks at some ways to downgrade lazy gangs only, those that it meets
      // first: what opportunistic gangs hold may then decide.
      std::vector<gang_action> actions;
      const gandiva_gangs::job_options terms{1 + random.uniform(3), random.uniform(4) != 0};
      if (!scheduler->submit(r, terms, now, actions).ok()) return;
      jobs[r.job] = r;
      apply(actions);
    } else if (!jobs.empty()) {
      const job_id job =
          std::next(jobs.begin(), random.uniform(static_cast<std::uint32_t>(jobs.size())))->first;
      REQUIRE(scheduler->finish(job, now).ok());
      jobs.erase(job);
      running.erase(job);
    }
  }
  // No gang runs twice; none migrates or stops that does not run.
  void apply(const std::vector<gang_action>& actions) {
    for (const gang_action& a : actions) {
      acted_.insert(a.job);
      log.add(static_cast<std::uint64_t>(now)).add(static_cast<std::uint64_t>(a.what));
      log.add(a.job.value);
      for (const hived_placement& t : a.where) log.add(t.node.value).add(t.leaves);
      switch (a.what) {
        case verb::start:
          ++seen.starts;
          REQUIRE(running.emplace(a.job, a.where).second);
          break;
        case verb::resume:
          ++seen.resumes;
          REQUIRE(running.emplace(a.job, a.where).second);
          break;
        case verb::suspend:
          ++seen.suspends;
          REQUIRE(running.erase(a.job) == 1);
          break;
        case verb::migrate:
          ++seen.migrations;
          REQUIRE(running.contains(a.job));
          REQUIRE(running[a.job] != a.where);
          running[a.job] = a.where;
      }
    }
    REQUIRE(cluster().gangs().size() == running.size());
    for (const gang_action& a : actions) {
      if (a.what == verb::suspend) continue;
      REQUIRE(cluster().tasks(*cluster().find(a.job)) == running[a.job]);
    }
  }
  // A guaranteed gang that waits would wait without anybody on cells not his tenant's own.
  void owners_are_not_late() {
    std::vector<job_id> late;
    for (const auto& [job, r] : jobs) {
      if (r.priority >= 0 && !running.contains(job) && !acted_.contains(job)) late.push_back(job);
    }
    if (late.empty()) return;
    hived alone = cluster();
    for (const auto& [job, where] : running)
      if (!alone.find(job)->guaranteed()) REQUIRE(alone.finish(job).ok());
    for (const job_id job : late) {
      const auto plan = alone.propose(jobs[job]);
      REQUIRE((plan.ok() && plan->result == plan_result::wait));
      ++seen.late;
    }
  }

  std::uint32_t marks_;
  std::uint32_t next_ = 0;
  std::set<job_id> acted_{};
};

struct random_test_cluster {
  hived cluster;
  gang_migration gangs{};
  time_sharing_options options{};

  explicit random_test_cluster(rng& random)
      : cluster(hived::create(apiary_test::random_cluster(random)).value()) {
    gangs.measure =
        random.uniform(2) == 0 ? gang_migration::metric::broken : gang_migration::metric::spread;
    gangs.guaranteed = random.uniform(4) == 0;
    options.migrations.trials = 1 + random.uniform(4);
    options.quantum = random.uniform(8) == 0 ? max_time : 1 + random.uniform(60);
    options.migrations.jobs = random.uniform(4);
    options.migrations.cost = random.uniform(2) * random.uniform(1500);
    options.max_wait = static_cast<std::uint32_t>(options.quantum % 4);
  }
};

TEST_CASE("gandiva on hived: a million ticks, audited after every action, no owner late") {
  std::uint64_t ticks = 0, starts = 0, suspends = 0, resumes = 0, migrations = 0, late = 0;
  // Audits take long without optimisation.
  const std::uint64_t runs = apiary_test::is_quick() ? 20 : 2000;
  const auto steps = std::max<std::uint64_t>(50, apiary_test::scaled(500U));
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(run);
    const random_test_cluster setup(random);
    using audited = time_sharing<audited_placer>;
    random_host host = random_host::of(
        audited::create(audited_placer(setup.cluster, setup.gangs), setup.options).value(),
        random(), run % 2 == 0 ? 0 : 8);
    for (std::uint64_t i = 0; i < steps; ++i) host.step();
    ticks += host.seen.ticks, starts += host.seen.starts, suspends += host.seen.suspends;
    resumes += host.seen.resumes, migrations += host.seen.migrations, late += host.seen.late;
  }
  CHECK(ticks == steps * runs);  // at full scale a million
  CHECK(starts > 0);
  CHECK(suspends > 0);
  CHECK(resumes > 0);
  CHECK(migrations > 0);
  CHECK(late > 0);  // owners were seen waiting
}

// Calls at one moment, before a tick.
struct calls {
  time_ms at = 0;
  std::vector<std::pair<gang_request, gandiva_gangs::job_options>> come{};
  std::vector<job_id> end{};
};
struct answer {
  time_ms at = 0;
  verb what = verb::start;
  job_id job{};
  friend bool operator==(const answer&, const answer&) = default;
};
// What a scheduler tells the owners, or all, as long as their calls are made.
std::vector<answer> answers_to_owners(gandiva_gangs g, const std::vector<calls>& list,
                                      bool with_guests) {
  std::vector<answer> log;
  std::set<job_id> owners;
  std::set<job_id> here;
  const auto write = [&](time_ms at, const std::vector<gang_action>& actions) {
    for (const gang_action& a : actions)
      if (owners.contains(a.job)) log.push_back({at, a.what, a.job});
  };
  for (const calls& now : list) {
    std::vector<gang_action> actions;
    for (const auto& [r, terms] : now.come) {
      if (r.priority < 0 && !with_guests) continue;
      if (!g.submit(r, terms, now.at, actions).ok()) continue;
      here.insert(r.job);
      if (r.priority >= 0) owners.insert(r.job);
    }
    for (const job_id job : now.end)
      if (here.contains(job)) REQUIRE(g.finish(job, now.at).ok());
    REQUIRE(g.decide(now.at, actions).ok());
    write(now.at, actions);
  }
  return log;
}

TEST_CASE("gandiva on hived: guaranteed gangs start, stop and go on as if there were no others") {
  std::uint64_t compared = 0;
  std::uint64_t stopped = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{400}); ++run) {
    CAPTURE(run);
    rng random(3'000'000 + run);
    const random_test_cluster setup(random);
    const gandiva_gangs fresh =
        gandiva_gangs::create(hived_gang_placer(setup.cluster, {.measure = setup.gangs.measure}),
                              setup.options)
            .value();
    std::vector<calls> list;
    std::vector<job_id> jobs;
    for (time_ms now = 0; now < 400; now += 1 + random.uniform(8)) {
      calls& c = list.emplace_back(calls{now});
      for (std::uint32_t n = random.uniform(3); n > 0; --n) {
        const job_id job(static_cast<std::uint32_t>(jobs.size()));
        gang_request r = apiary_test::random_gang(setup.cluster.layout(), job, random);
        r.lazy = false;
        if (random.uniform(2) == 0) {
          r.priority = gang_request::opportunistic_priority;
          r.pinned.reset();
        }
        c.come.emplace_back(r, gandiva_gangs::job_options{1 + random.uniform(3), true});
        jobs.push_back(job);
      }
    }
    for (const job_id job : jobs) {
      const auto at = random.uniform(static_cast<std::uint32_t>(list.size()));
      const auto came = std::find_if(list.begin(), list.end(), [&](const calls& c) {
        return std::any_of(c.come.begin(), c.come.end(),
                           [&](const auto& asked) { return asked.first.job == job; });
      });
      if (list.begin() + at > came) list[at].end.push_back(job);
    }
    const std::vector<answer> with = answers_to_owners(fresh, list, true);
    const std::vector<answer> without = answers_to_owners(fresh, list, false);
    REQUIRE(with.size() == without.size());
    for (std::size_t i = 0; i < with.size(); ++i) {
      CAPTURE(i);
      REQUIRE(with[i] == without[i]);
      stopped += with[i].what == verb::suspend ? 1U : 0U;
    }
    compared += with.size();
  }
  CHECK(compared > 0);
  CHECK(stopped > 0);
}

// By the published rule. Set anew on purpose when actions change; the same for every compiler.
TEST_CASE("gandiva on hived: the actions written down") {
  digest all;
  for (std::uint64_t run = 0; run < 10; ++run) {
    rng random(4'000'000 + run);
    random_test_cluster setup(random);
    setup.options.max_wait = 0;
    random_host host = random_host::of(
        gandiva_gangs::create(hived_gang_placer(setup.cluster, setup.gangs), setup.options).value(),
        random(), 8);
    for (int i = 0; i < 300; ++i) host.step();
    all.add(host.log.value());
  }
  CHECK(all.value() == 9498904068673646970U);
}

// A scheduler and the one by its words, as one to the host.
struct with_naive final : any_scheduler {
  with_naive(gandiva_gangs f, naive_gandiva_gangs n) : fast(std::move(f)), naive(std::move(n)) {}
  gandiva_gangs fast;
  naive_gandiva_gangs naive;

  void compare(const std::vector<gang_action>& actions) const {
    REQUIRE(actions == naive.actions);
    REQUIRE(fast.placer().scheduler().hash() == naive.scheduler.hash());
    REQUIRE(hived_queries::broken_leaves(naive.scheduler) ==
            apiary_test::naive_broken_leaves(naive.scheduler));
  }
  absl::Status submit(const gang_request& r, const gandiva_gangs::job_options& options, time_ms now,
                      std::vector<gang_action>& actions) override {
    absl::Status status = fast.submit(r, options, now, actions);
    REQUIRE(naive.submit(r, options, now) == status.ok());
    compare(actions);
    return status;
  }
  absl::Status finish(job_id job, time_ms now) override {
    naive.finish(job);
    return fast.finish(job, now);
  }
  absl::Status mark(node_id n, bool healthy) override {
    naive.mark(n, healthy);
    return healthy ? fast.mark_healthy(n) : fast.mark_bad(n);
  }
  absl::Status tick(time_ms now, std::vector<gang_action>& actions) override {
    absl::Status status = fast.decide(now, actions);
    naive.tick(now);
    compare(actions);
    return status;
  }
  [[nodiscard]] time_ms wake() const override { return fast.wake(); }
  [[nodiscard]] std::size_t num_jobs() const override { return fast.num_jobs(); }
  [[nodiscard]] std::size_t num_waiting() const override { return fast.num_waiting(); }
  [[nodiscard]] const hived& cluster() const override { return fast.placer().scheduler(); }
};

TEST_CASE("gandiva on hived: the same actions as by its words, and twice the same") {
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{150}); ++run) {
    CAPTURE(run);
    rng random(1'000'000 + run);
    const random_test_cluster setup(random);
    const gandiva_gangs fresh =
        gandiva_gangs::create(hived_gang_placer(setup.cluster, setup.gangs), setup.options).value();
    const std::uint64_t seed = random();
    random_host both(std::make_unique<with_naive>(
                         fresh, naive_gandiva_gangs(setup.cluster, setup.gangs, setup.options)),
                     seed, 5);
    random_host again = random_host::of(fresh, seed, 5);
    for (int i = 0; i < 200; ++i) {
      both.step();
      again.step();
    }
    REQUIRE(both.log.value() == again.log.value());
  }
}

TEST_CASE(
    "gandiva on hived: every opportunistic gang that fits beside the guaranteed ones runs in "
    "time") {
  std::uint64_t waits = 0;
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{400}); ++run) {
    CAPTURE(run);
    rng random(2'000'000 + run);
    const random_test_cluster setup(random);
    constexpr time_ms quantum = 10;
    gandiva_gangs g =
        gandiva_gangs::create(
            hived_gang_placer(setup.cluster, {.measure = setup.gangs.measure}),
            {.quantum = quantum, .migrations = setup.options.migrations, .max_wait = 0})
            .value();
    std::map<job_id, gandiva_gangs::job_options> opportunistic_gangs;
    std::map<job_id, gang_request> asked;
    std::vector<gang_action> actions;
    for (std::uint32_t job = 0; job < 12; ++job) {
      gang_request r = apiary_test::random_gang(setup.cluster.layout(), job_id(job), random);
      if (job >= 3) r.priority = gang_request::opportunistic_priority;
      if (job >= 3) r.pinned.reset();
      const gandiva_gangs::job_options terms{1 + random.uniform(3), random.uniform(2) == 0};
      if (g.submit(r, terms, 0, actions).ok() && r.priority < 0) {
        opportunistic_gangs[r.job] = terms;
        asked[r.job] = r;
      }
    }
    REQUIRE(g.decide(0, actions).ok());
    hived owners = g.placer().scheduler();
    for (const auto& [job, terms] : opportunistic_gangs)
      if (owners.find(job) != nullptr) REQUIRE(owners.finish(job).ok());
    std::map<job_id, std::uint64_t> left;  // time slices until it must run
    const auto set_clock = [&](job_id job) {
      const std::int64_t mine = g.pass(job);
      left[job] = 1;
      for (const auto& [other, terms] : opportunistic_gangs) {
        if (other == job || g.pass(other) > mine) continue;
        left[job] +=
            static_cast<std::uint64_t>((mine - g.pass(other)) / slice_pass(quantum, terms.weight)) +
            1;
      }
    };
    const time_ms end = (apiary_test::is_quick() ? 60 : 200) * quantum;
    for (time_ms now = quantum; now < end; now += quantum) {
      actions.clear();
      REQUIRE(g.decide(now, actions).ok());
      for (const auto& [job, terms] : opportunistic_gangs) {
        if (g.find(job) == gandiva_gangs::phase::sliced) {
          left.erase(job);
          continue;
        }
        if (owners.propose(asked[job])->result != plan_result::bind) continue;
        ++waits;
        if (!left.contains(job)) {
          set_clock(job);
        } else {
          REQUIRE(left[job]-- > 0);
        }
      }
    }
  }
  CHECK(waits > 0);
}

}  // namespace
}  // namespace gandiva_on_hived
