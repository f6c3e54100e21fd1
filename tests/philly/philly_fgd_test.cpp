// apiary/tests/philly/philly_fgd_test.cpp - Philly over any pool: over equal ones the same decisions;
// gangs beside tasks that share GPUs, with every GPU accounted for.
// SPDX-License-Identifier: MIT
#include "support/last_fit.h"
#include "support/naive_philly.h"
#include "support/naive_pool.h"
#include "support/naive_sharing.h"
#include "support/philly_loads.h"
#include "support/philly_pair.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/container/score_tree.h>
#include <apiary/core/digest.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/philly/philly.h>
#include <apiary/philly/philly_fgd.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

using fgd_pool = gpu_sharing_pool<fragmentation_gradient>;

// The same pool without an index: each search reads all servers, and the scheduler is asked for one
// server after the other.
template <class Score>
class scanning_pool : public gpu_sharing_pool<Score> {
 public:
  explicit scanning_pool(gpu_sharing_pool<Score> pool) : gpu_sharing_pool<Score>(std::move(pool)) {}

  [[nodiscard]] std::vector<node_id> most_idle(id_range<node_id> among, std::uint32_t most) const {
    std::vector<node_id> all;
    for (const node_id n : among) all.push_back(n);
    std::stable_sort(all.begin(), all.end(),
                     [&](node_id a, node_id b) { return this->idle(a) > this->idle(b); });
    all.resize(std::min<std::size_t>(all.size(), most));
    return all;
  }
  [[nodiscard]] job_placement fit(id_range<node_id> among, std::uint32_t gpus,
                                  std::uint32_t most) const {
    std::vector<std::uint32_t> parts;
    for (const node_id n : most_idle(among, most)) {
      if (gpus == 0 || this->idle(n) == 0) break;
      parts.push_back(std::min(gpus, this->idle(n)));
      gpus -= parts.back();
    }
    job_placement where;
    if (gpus > 0) return where;
    summary_bitset allowed(this->num_servers());
    for (const node_id n : among) allowed.set(n.value);
    gpu_sharing_scheduler<Score> tasks = this->scheduler();
    for (const std::uint32_t k : parts) {
      const task_plan plan = tasks.propose({.gpus = k, .gpu_milli = whole_gpu}, allowed).value();
      REQUIRE(plan.result == plan_result::bind);
      where.push_back(plan.where);
      allowed.reset(plan.where.node.value);
    }
    std::sort(where.begin(), where.end(), [](placement a, placement b) { return a.node < b.node; });
    return where;
  }
};
static_assert(ServerPool<scanning_pool<fragmentation_gradient>>);

// Three tenants, short times.
philly_options random_options(rng& random, std::uint32_t gpus) {
  philly_options options = apiary_test::random_philly_times(random);
  options.quotas = apiary_test::random_quotas(random, gpus);
  return options;
}
// Nodes of 2 to 8 GPUs with some CPU.
node_table random_nodes_for_gangs(rng& random) {
  node_table nodes;
  const std::uint32_t count = 3 + random.uniform(5);
  for (std::uint32_t n = 0; n < count; ++n)
    nodes.add({.host = {.cpu_milli = 64'000, .memory_mib = 1U << 20},
               .gpus = 2 + random.uniform(7),
               .model = static_cast<gpu_model>(random.uniform(2))});
  return nodes;
}
fragmentation_gradient typical_gradient() {
  return fragmentation_gradient(
      fragmentation(task_mix({{{.cpu_milli = 2000, .gpus = 1, .gpu_milli = 500}, 4},
                              {{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 1000}, 3},
                              {{.cpu_milli = 8000, .gpus = 4, .gpu_milli = 1000}, 2}})));
}

// A host of gangs and tasks over the nodes of one pool, with the naive scheduler beside, over a pool
// that scans; what must hold is checked at each of its steps.
struct shared_host
    : apiary_test::philly_pair<
          philly_fgd, apiary_test::naive_philly_over<scanning_pool<fragmentation_gradient>>> {
  philly_options options;
  node_table empty;  // as in the beginning
  std::map<std::uint32_t, job_request> jobs{};
  std::map<std::uint32_t, time_ms> since{};  // that wait
  std::map<std::uint32_t, std::pair<task_request, placement>> tasks{};
  digest log{};
  std::size_t shared_servers = 0;  // seen with a gang and a task at once
  std::size_t preemptions = 0;

  shared_host(const philly_options& o, const node_table& nodes, std::uint32_t per_rack)
      : philly_pair{philly_fgd::create(
                        o, fgd_pool::create(nodes, per_rack, typical_gradient()).value())
                        .value(),
                    {o, scanning_pool<fragmentation_gradient>(
                            fgd_pool::create(nodes, per_rack, typical_gradient()).value())}},
        options(o),
        empty(nodes) {}

  [[nodiscard]] bool runs(std::uint32_t job) const { return !since.contains(job); }

  void submit(const job_request& r, time_ms now) {
    philly_pair::submit(r, now);
    jobs.emplace(r.job.value, r);
    since.emplace(r.job.value, now);
  }
  void finish(std::uint32_t job, time_ms now) {
    philly_pair::finish(job_id(job), now);
    jobs.erase(job);
    since.erase(job);
  }
  void start(const task_request& task) {
    const auto run = [&](fgd_pool& pool) {
      const task_plan plan = pool.propose(task).value();
      if (plan.result == plan_result::bind) REQUIRE(pool.commit(task, plan).ok());
      return plan;
    };
    const task_plan plan = fast.use_pool(run);
    REQUIRE(plan == naive.use_pool(run));
    if (plan.result == plan_result::bind)
      tasks.emplace(task.job.value, std::pair(task, plan.where));
  }
  void end(std::uint32_t task) {
    const auto run = [&](fgd_pool& pool) { return pool.finish(job_id(task)); };
    REQUIRE(fast.use_pool(run).ok());
    REQUIRE(naive.use_pool(run).ok());
    tasks.erase(task);
  }
  void set_health(node_id n, bool good, time_ms now) {
    empty[n].healthy = good;
    for (const job_id job : philly_pair::set_health(n, good, now)) since.emplace(job.value, now);
  }

  void decide(time_ms now) {
    std::vector<std::uint32_t> running(options.quotas.size(), 0);
    for (const auto& [id, r] : jobs)
      if (runs(id)) running[r.tenant.value] += r.gpus;
    philly_fgd copy = fast;
    const std::vector<job_action> actions = philly_pair::decide(now);
    std::vector<job_action> again;
    REQUIRE(copy.decide(now, again).ok());
    REQUIRE(actions == again);
    carry_out(actions, std::move(running), now);
    check(now);
  }
  void go_on_until(time_ms end_of_pause) {
    philly_pair::go_on_until(end_of_pause, [&](time_ms now) { decide(now); });
  }

 private:
  // Each start has waited since it was submitted or stopped, for causes that sum to that, and is in
  // one rack where its locality wants that and a rack could hold it; a suspended job is of a tenant
  // beyond its quota, for a job within its quota.
  void carry_out(const std::vector<job_action>& actions, std::vector<std::uint32_t> running,
                 time_ms now) {
    std::vector<job_id> lost;
    for (const job_action& a : actions) {
      const job_request& r = jobs.at(a.job.value);
      log.add(static_cast<std::uint64_t>(a.what)).add(a.job.value);
      if (a.what == job_action::verb::suspend) {
        REQUIRE(since.emplace(a.job.value, now).second);
        lost.push_back(a.job);
        continue;
      }
      for (const placement& part : a.where) log.add(part.node.value).add(part.gpu_mask);
      REQUIRE(a.waited.total() == now - since.at(a.job.value));
      REQUIRE(a.waited[delay_cause::order] == 0);
      since.erase(a.job.value);
      REQUIRE(detail::gpus_of(a.where) == r.gpus);
      bool fits_a_rack = false;
      for (std::uint32_t i = 0; i < fast.pool().num_racks(); ++i)
        fits_a_rack = fits_a_rack || fast.pool().total(i) >= r.gpus;
      if (fits_a_rack && fast.find(a.job)->locality != job_locality::anywhere) {
        REQUIRE(fast.pool().rack_of(a.where.front().node) ==
                fast.pool().rack_of(a.where.back().node));
      }
      for (const job_id job : lost) {
        const job_request& victim = jobs.at(job.value);
        REQUIRE(running[victim.tenant.value] > options.quotas[victim.tenant.value]);
      }
      for (const job_id job : lost) {
        const job_request& victim = jobs.at(job.value);
        running[victim.tenant.value] -= victim.gpus;
      }
      running[r.tenant.value] += r.gpus;
      if (!lost.empty()) REQUIRE(running[r.tenant.value] <= options.quotas[r.tenant.value]);
      preemptions += lost.size();
      lost.clear();
    }
    REQUIRE(lost.empty());
  }
  // The nodes are those of the beginning with every task and every gang's part taken from them,
  // which each can be; books of GPUs, quotas and delays balance.
  void check(time_ms now) {
    const fgd_pool& pool = fast.pool();
    node_table nodes = empty;
    for (const node_id n : nodes.ids()) nodes[n].healthy = true;
    std::set<std::uint32_t> with_task;
    for (const auto& [id, task] : tasks) {
      REQUIRE(nodes.can_place(task.first, task.second));
      nodes.place(task.first, task.second);
      if (task.first.wants_gpu()) with_task.insert(task.second.node.value);
    }
    std::map<std::uint32_t, std::uint32_t> held;  // by job
    for (const node_id n : nodes.ids()) {
      std::map<std::uint32_t, std::uint32_t> masks;  // by job
      for (std::uint32_t d = 0; d < pool.gpus(n); ++d)
        if (pool.owner(n, d).valid()) masks[pool.owner(n, d).value] |= 1U << d;
      for (const auto& [job, mask] : masks) {
        const placement part{n, mask};
        const task_request gang{.gpus = part.num_gpus(), .gpu_milli = whole_gpu};
        REQUIRE(nodes.can_place(gang, part));
        nodes.place(gang, part);
        held[job] += part.num_gpus();
      }
      shared_servers += !masks.empty() && with_task.contains(n.value) ? 1U : 0U;
    }
    std::uint32_t idle = 0;
    std::uint32_t usable = 0;
    std::vector<std::uint32_t> by_rack(pool.num_racks(), 0);
    for (const node_id n : nodes.ids()) {
      nodes[n].healthy = empty[n].healthy;
      if (!nodes[n].healthy) continue;
      idle += nodes[n].free_gpus();
      usable += nodes[n].gpus;
      by_rack[pool.rack_of(n)] += nodes[n].free_gpus();
    }
    REQUIRE(nodes == pool.nodes());
    REQUIRE(pool.idle() == idle);
    REQUIRE(pool.usable() == usable);
    for (std::uint32_t r = 0; r < by_rack.size(); ++r) REQUIRE(pool.idle(r) == by_rack[r]);

    std::vector<std::uint32_t> used(options.quotas.size(), 0);
    std::vector<std::uint32_t> collectors(options.quotas.size(), 0);
    for (const auto& [id, r] : jobs) {
      const philly_fgd::standing s = fast.find(job_id(id)).value();
      const auto other = naive.find(job_id(id)).value();
      REQUIRE(static_cast<int>(s.phase) == static_cast<int>(other.phase));
      REQUIRE(s.locality == other.locality);
      REQUIRE(s.tries == other.tries);
      REQUIRE(s.held == other.held);
      REQUIRE(s.held == (held.contains(id) ? held[id] : 0));
      REQUIRE((s.phase == philly_fgd::phase::run) == runs(id));
      REQUIRE((s.held == r.gpus) == runs(id));
      if (s.phase == philly_fgd::phase::backoff) REQUIRE(s.held == 0);
      used[r.tenant.value] += s.held;
      collectors[r.tenant.value] += s.phase == philly_fgd::phase::acquire && s.held > 0 ? 1U : 0U;
      if (runs(id)) continue;
      const delays waited = fast.waited(job_id(id), now).value();
      REQUIRE(waited.total() == now - since.at(id));
    }
    REQUIRE(fast.num_jobs() == jobs.size());
    for (const auto& [id, gpus] : held) REQUIRE(jobs.contains(id));
    for (std::uint32_t t = 0; t < used.size(); ++t) {
      REQUIRE(fast.used(tenant_id(t)) == used[t]);
      REQUIRE(collectors[t] <= 1);
    }
  }
};

// Gangs, tasks that share GPUs, breakdowns and repairs; after each step every search is that of a scan.
template <class Score>
void check_searches(std::uint64_t seed, const Score& score) {
  CAPTURE(seed);
  rng random(seed);
  node_table nodes;
  const std::uint32_t count = 1 + random.uniform(random.uniform(3) == 0 ? 200 : 30);
  const bool ragged = random.uniform(2) == 0;
  for (std::uint32_t n = 0; n < count; ++n)
    nodes.add({.host = {.cpu_milli = 64'000},
               .gpus = ragged ? random.uniform(max_gpus_per_node + 1) : 8});
  nodes[node_id(random.uniform(count))].healthy = random.uniform(2) == 0;
  using pool_type = gpu_sharing_pool<Score>;
  pool_type pool = pool_type::create(nodes, 1 + random.uniform(count), score).value();
  std::vector<job_placement> gangs;
  std::vector<job_id> tasks;
  for (std::uint32_t step = 0; step < 60; ++step) {
    CAPTURE(step);
    const std::uint32_t rack = random.uniform(pool.num_racks());
    const id_range<node_id> among = random.uniform(2) == 0 ? pool.servers() : pool.servers_of(rack);
    const std::uint32_t most = random.uniform(1 + among.size() + random.uniform(3));
    const std::uint32_t gpus = 1 + random.uniform(random.uniform(2) == 0 ? 16 : 64);
    const scanning_pool<Score> scanned(pool);
    REQUIRE(pool.most_idle(among, most) == scanned.most_idle(among, most));
    REQUIRE(pool.most_idle(pool.servers(), count) == scanned.most_idle(pool.servers(), count));
    const job_placement where = pool.fit(among, gpus, most);
    REQUIRE(where == scanned.fit(among, gpus, most));
    REQUIRE(pool.fit(among, gpus, most) == where);
    const std::uint32_t event = random.uniform(10);
    if (event < 5 && !where.empty()) {
      pool.take(job_id(step), where);
      gangs.push_back(where);
    } else if (event < 7 && !gangs.empty()) {
      std::swap(gangs[random.uniform(static_cast<std::uint32_t>(gangs.size()))], gangs.back());
      pool.give(gangs.back());
      gangs.pop_back();
    } else if (event == 7) {
      const task_request task{.job = job_id(step),
                              .cpu_milli = 1000,
                              .gpus = 1,
                              .gpu_milli = static_cast<milli_gpu>(100 * (1 + random.uniform(9)))};
      const task_plan plan = pool.propose(task).value();
      if (plan.result == plan_result::bind) {
        REQUIRE(pool.commit(task, plan).ok());
        tasks.push_back(task.job);
      }
    } else if (event == 8 && !tasks.empty()) {
      REQUIRE(pool.finish(tasks.back()).ok());
      tasks.pop_back();
    } else if (event == 9) {
      pool.set_health(node_id(random.uniform(count)), random.uniform(3) > 0);
    }
  }
}

struct seen_sharing {
  std::uint64_t log = 0;
  std::size_t shared_servers = 0;
  std::size_t preemptions = 0;
};
seen_sharing random_sharing(std::uint64_t seed) {
  rng random(seed);
  const node_table nodes = random_nodes_for_gangs(random);
  const auto gpus = static_cast<std::uint32_t>(nodes.total_gpus());
  const philly_options options = random_options(random, gpus);
  shared_host host(options, nodes, 1 + random.uniform(4));
  const std::uint32_t pause = 1 + random.uniform(20);
  const std::uint32_t most = 5 + random.uniform(20);
  time_ms now = 0;
  std::uint32_t fresh = 0;  // ids of jobs and tasks, the same for both
  const auto any_of_them = [&](const auto& map) {
    auto at = map.begin();
    std::advance(at, random.uniform(static_cast<std::uint32_t>(map.size())));
    return at->first;
  };
  for (int step = 0; step < 200; ++step) {
    CAPTURE(step);
    now += random.uniform(pause);
    host.go_on_until(now);
    const std::uint32_t event = random.uniform(20);
    if (event < 7 && host.jobs.size() < most) {
      const std::uint32_t wanted =
          random.uniform(5) == 0 ? 1 + random.uniform(gpus) : 1U << random.uniform(4);
      host.submit({.job = job_id(fresh++),
                   .tenant = tenant_id(random.uniform(3)),
                   .gpus = std::min(wanted, gpus)},
                  now);
    } else if (event < 11 && !host.jobs.empty()) {
      host.finish(any_of_them(host.jobs), now);
    } else if (event < 15 && host.tasks.size() < most) {
      task_request task{.job = job_id(random.uniform(fresh + 1)),
                        .cpu_milli = 500 * random.uniform(9)};
      task.gpus = random.uniform(6) == 0 ? random.uniform(3) : 1;
      task.gpu_milli = static_cast<milli_gpu>(
          task.gpus == 1 && random.uniform(5) > 0 ? 100 * (1 + random.uniform(9)) : whole_gpu);
      if (!host.tasks.contains(task.job.value)) host.start(task);
    } else if (event < 18 && !host.tasks.empty()) {
      host.end(any_of_them(host.tasks));
    } else if (event >= 18) {
      host.set_health(node_id(random.uniform(nodes.size())), event == 18, now);
    }
    host.decide(now);
  }
  return {host.log.value(), host.shared_servers, host.preemptions};
}

}  // namespace

TEST_CASE("philly_fgd: beside tasks that come and go, every GPU has one owner, all books balance") {
  std::size_t shared_servers = 0;
  std::size_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    const seen_sharing seen = random_sharing(seed);
    shared_servers += seen.shared_servers;
    preemptions += seen.preemptions;
    if (seed < 5) REQUIRE(random_sharing(seed).log == seen.log);
  }
  CHECK(shared_servers > 0);
  CHECK(preemptions > 0);
}

TEST_CASE("philly_over: equal pools, equal decisions, places and delays") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const philly_options options = apiary_test::random_philly(random);
    const server_spec& spec = options.servers;
    node_table nodes;
    for (const std::uint32_t gpus : spec.gpus) nodes.add({.gpus = gpus});
    const std::vector<timed_job> jobs =
        apiary_test::philly_jobs(seed, 120, apiary_test::gpus_of(spec));
    const auto run = [&](auto scheduler) {
      return simulate(
                 scheduler, jobs, apiary_test::two_outages(), {},
                 [](const timed_job&, const job_placement&) { return full_speed; },
                 [](const simulation_event&) {})
          .value();
    };
    const server_pool own(spec.gpus, spec.servers_per_rack);
    const apiary_test::naive_pool naive(spec.gpus, spec.servers_per_rack);
    auto by_score = gpu_sharing_pool<best_fit>::create(nodes, spec.servers_per_rack, {}).value();
    const simulation_result a = run(philly_scheduler<server_pool>::create(options, own).value());
    const simulation_result b =
        run(philly_scheduler<apiary_test::naive_pool>::create(options, naive).value());
    const simulation_result c =
        run(philly_scheduler<gpu_sharing_pool<best_fit>>::create(options, by_score).value());
    REQUIRE(a.log.value() == b.log.value());
    REQUIRE(a.log.value() == c.log.value());
    REQUIRE(a.decisions == c.decisions);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      REQUIRE(a.jobs[j].waited == b.jobs[j].waited);
      REQUIRE(a.jobs[j].waited == c.jobs[j].waited);
    }
  }
}

TEST_CASE("sharing_pool: the index finds the servers that a scan finds") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    check_searches(seed, typical_gradient());
    check_searches(seed, best_fit());
    check_searches(seed, apiary_test::last_fit());
  }
}

TEST_CASE("sharing_pool: the fewest servers, each the best by the score of those that would do") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const node_table nodes = random_nodes_for_gangs(random);
    fgd_pool pool = fgd_pool::create(nodes, 2, typical_gradient()).value();
    for (std::uint32_t i = 0; i < 20; ++i) {
      const bool part = random.uniform(3) > 0;
      const task_request task{
          .job = job_id(i),
          .gpus = part ? 1 : 1 + random.uniform(2),
          .gpu_milli = static_cast<milli_gpu>(part ? 100 * (1 + random.uniform(9)) : whole_gpu)};
      const task_plan plan = pool.propose(task).value();
      if (plan.result == plan_result::bind && random.uniform(2) == 0)
        REQUIRE(pool.commit(task, plan).ok());
    }
    fragmentation_gradient score = typical_gradient();
    for (const node_id n : nodes.ids()) score.update(pool.nodes(), n);
    for (const id_range<node_id> among : {pool.servers(), pool.servers_of(1)}) {
      std::vector<std::uint32_t> idle;
      for (const node_id n : among) idle.push_back(pool.idle(n));
      std::sort(idle.rbegin(), idle.rend());
      const std::uint32_t all = std::accumulate(idle.begin(), idle.end(), 0U);
      for (std::uint32_t gpus = 1; gpus <= all + 1; ++gpus) {
        const job_placement where = pool.fit(among, gpus, among.size());
        if (gpus > all) {
          REQUIRE(where.empty());
          continue;
        }
        REQUIRE(detail::gpus_of(where) == gpus);
        std::uint32_t left = gpus;
        std::size_t fewest = 0;
        for (; left > idle[fewest]; ++fewest) left -= idle[fewest];
        REQUIRE(where.size() == fewest + 1);
        REQUIRE(pool.fit(among, gpus, static_cast<std::uint32_t>(fewest)).empty());
        if (fewest > 0) continue;
        const task_request whole{.gpus = gpus, .gpu_milli = whole_gpu};
        std::optional<node_id> best;
        for (const node_id n : among) {
          if (pool.idle(n) < gpus) continue;
          if (!best ||
              score.score(pool.nodes(), n, whole) > score.score(pool.nodes(), *best, whole))
            best = n;
        }
        REQUIRE(where.front().node == *best);
      }
    }
  }
}

TEST_CASE(
    "philly_fgd: what a task leaves is a gang's at once; tasks run on where a server breaks") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({.host = {.cpu_milli = 8000}, .gpus = 2});
  philly_fgd p = philly_fgd::create({.quotas = {4}, .acquire_time = 10, .backoff_time = 1000},
                                    fgd_pool::create(nodes, 2, typical_gradient()).value())
                     .value();
  const task_request half{.job = job_id(0), .gpus = 1, .gpu_milli = 500};
  const auto commit = [&](task_request task, node_id n) {
    return p.use_pool([&](fgd_pool& pool) { return pool.commit(task, {n, 1}); });
  };
  REQUIRE(commit(half, node_id(0)).ok());
  CHECK(commit(half, node_id(1)).code() == absl::StatusCode::kAlreadyExists);
  std::vector<job_action> actions;
  REQUIRE(p.submit({.job = job_id(0), .tenant = tenant_id(0), .gpus = 4}, 0).ok());
  REQUIRE(p.decide(0, actions).ok());
  CHECK(actions.empty());
  CHECK(p.find(job_id(0))->held == 3);  // it collects all but the GPU of the task
  CHECK(commit({.job = job_id(1), .gpus = 1, .gpu_milli = 600}, node_id(0)).code() ==
        absl::StatusCode::kAborted);
  REQUIRE(p.use_pool([](fgd_pool& pool) { return pool.finish(job_id(0)); }).ok());
  REQUIRE(p.decide(7, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].where == job_placement{{node_id(0), 3}, {node_id(1), 3}});
  CHECK(actions[0].waited.total() == 7);
  REQUIRE(p.finish(job_id(0), 8).ok());
  REQUIRE(commit(half, node_id(0)).ok());
  REQUIRE(p.submit({.job = job_id(2), .tenant = tenant_id(0), .gpus = 1}, 8).ok());
  REQUIRE(p.decide(8, actions).ok());
  CHECK(p.mark_bad(node_id(0), 9)->size() + p.mark_bad(node_id(1), 9)->size() == 1);
  CHECK(p.pool().scheduler().find(job_id(0)) == placement{node_id(0), 1});
  CHECK(p.pool().usable() == 0);
}

TEST_CASE("sharing_pool: what is no pool, no task and no quota") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  node_table nodes;
  nodes.add({.gpus = 4});
  CHECK(fgd_pool::create(node_table(), 1, typical_gradient()).status().code() == invalid);
  CHECK(fgd_pool::create(nodes, 0, typical_gradient()).status().code() == invalid);
  const fgd_pool whole = fgd_pool::create(nodes, 1, typical_gradient()).value();
  CHECK(philly_fgd::create({.quotas = {5}}, whole).status().code() == invalid);
  CHECK(philly_fgd::create({}, whole).status().code() == invalid);
  CHECK(philly_fgd::create({.quotas = {4}}, whole).ok());
  CHECK(philly::create({.quotas = {0}}, server_pool({}, 1)).status().code() == invalid);

  fgd_pool pool = whole;
  const task_request task{.job = job_id(7), .gpus = 1, .gpu_milli = 500};
  const auto with_id = [&](job_id id) {
    task_request other = task;
    other.job = id;
    return other;
  };
  CHECK(pool.commit(with_id(pool.first_reserved()), {node_id(0), 1}).code() == invalid);
  CHECK(pool.commit(with_id(job_id()), {node_id(0), 1}).code() == invalid);
  CHECK(pool.commit(task, {node_id(1), 1}).code() == absl::StatusCode::kNotFound);
  CHECK(pool.commit(with_id(job_id(pool.first_reserved().value - 1)), {node_id(0), 1}).ok());
  const std::vector<placement> gang{{node_id(0), 6}};
  pool.take(job_id(7), gang);
  CHECK(pool.idle() == 1);
  CHECK(pool.commit(task, {node_id(0), 2}).code() == absl::StatusCode::kAborted);
  CHECK(pool.commit(task, {node_id(0), 1}).ok());  // the gang's id is another's
  for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) {
    CHECK(pool.finish(job_id(pool.first_reserved().value + i)).code() ==
          absl::StatusCode::kNotFound);
  }
  CHECK(pool.finish(job_id()).code() == absl::StatusCode::kNotFound);
  CHECK(pool.finish(job_id(7)).ok());
  CHECK(pool.owner(node_id(0), 1) == job_id(7));
  pool.give(gang);
  CHECK(pool.finish(job_id(pool.first_reserved().value - 1)).ok());
  CHECK(pool.nodes() == nodes);
  CHECK(pool.idle() == 4);
}
