// apiary/gandiva/detail/migration.h - which jobs Gandiva migrates, and which grow.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/timer_queue.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/pack_trials.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Migrates suspended jobs to unsubscribed GPUs, or to servers where they get time slices (jobs that
// are packed with them stay).
// Cost: into_unsubscribed O(log servers + jobs of the server) for each migration; from_held O(jobs
//       of over-subscribed servers), once more after jobs of a priority migrated, and O(servers)
//       for each migration and for each number of GPUs and priority that has no better server.
class gandiva_relocation {
 public:
  // While a suspended job fits into unsubscribed GPUs: takes the most over-subscribed server with
  // such a job, and migrates the job on it that ran least.
  static void into_unsubscribed(gandiva_jobs& jobs, gandiva_packing& packing) {
    const gandiva_servers& servers = jobs.servers();
    while (!servers.over().none()) {
      const std::uint32_t most = servers.max_unsubscribed();
      const node_id from = servers.fullest(most);
      if (!from.valid()) return;
      gandiva_job* best = nullptr;
      for (const job_id job : servers.jobs(from)) {
        gandiva_job& r = jobs.at(job);
        if (!r.waits_for_slice() || r.request.gpus > most) continue;
        if (best == nullptr || r.pass < best->pass) best = &r;
      }
      move(jobs, *best, servers.tightest(best->request.gpus), packing);
    }
  }
  // Migrates suspended jobs that get no time slice because jobs of higher priority hold the GPUs,
  // in order of priority, arrival and id: to the least loaded server where they get time slices,
  // preferably of their affinity. Repeats this for jobs that then get no time slice; their priority
  // is lower each time.
  static void from_held(gandiva_jobs& jobs, gandiva_packing& packing) {
    for (bool moved = true; moved;) {
      moved = false;
      std::array<std::int64_t, max_gpus_per_node + 1> failed;  // the highest priority, by GPUs
      failed.fill(no_priority);
      for (gandiva_job* const r : without_slices(jobs)) {
        const std::uint32_t gpus = r->request.gpus;
        const std::int64_t priority = r->request.priority;
        if (gets_slices(jobs, r->home, *r)) continue;
        const node_id to = priority <= failed[gpus] ? node_id() : better(jobs, *r);
        if (to.valid()) {
          move(jobs, *r, to, packing);
          moved = true;
          continue;
        }
        failed[gpus] = (std::max)(failed[gpus], priority);
      }
    }
  }

 private:
  static constexpr std::int64_t no_priority = (std::numeric_limits<std::int64_t>::min)();
  static void move(gandiva_jobs& jobs, gandiva_job& r, node_id to, gandiva_packing& packing) {
    packing.forget(r);
    if (r.follower.valid()) jobs.unlink(r, jobs.at(r.follower));
    jobs.settle(r, to);
  }
  // Whether the jobs on several servers and of higher priority leave it enough GPUs of the server.
  [[nodiscard]] static bool gets_slices(const gandiva_jobs& jobs, node_id n, const gandiva_job& r) {
    return jobs.servers().held(n, r.request.priority) + r.request.gpus <= jobs.pool().gpus(n);
  }
  // The suspended jobs that get no time slices, in order.
  [[nodiscard]] static std::vector<gandiva_job*> without_slices(gandiva_jobs& jobs) {
    std::vector<gandiva_job*> found;
    const summary_bitset& over = jobs.servers().over();
    for (std::uint32_t n = over.find_first(); n != summary_bitset::npos;
         n = over.find_next(n + 1)) {
      for (const job_id job : jobs.servers().jobs(node_id(n))) {
        gandiva_job& r = jobs.at(job);
        if (r.home != node_id(n) || !r.waits_for_slice()) continue;
        if (!gets_slices(jobs, r.home, r)) found.push_back(&r);
      }
    }
    std::sort(found.begin(), found.end(), [](const gandiva_job* a, const gandiva_job* b) {
      if (a->request.priority != b->request.priority)
        return a->request.priority > b->request.priority;
      return a->key != b->key ? a->key < b->key : a->request.job < b->request.job;
    });
    return found;
  }
  // The server where the job would get time slices: the least loaded one of its affinity; else the
  // least loaded one of another affinity, the lowest among equals. Only servers where jobs of their
  // affinity get time slices count. Ties go to the lowest id; not valid: there is none.
  [[nodiscard]] static node_id better(const gandiva_jobs& jobs, const gandiva_job& r) {
    const gandiva_servers& servers = jobs.servers();
    const node_id same = servers.least_loaded(r.request.gpus);
    if (same.valid() && gets_slices(jobs, same, r)) return same;
    node_id best;
    const auto order = [&](node_id n) {
      const std::uint32_t affinity = servers.affinity(n);
      return std::tuple(affinity != r.request.gpus, servers.load(n), affinity);
    };
    for (const node_id n : jobs.pool().servers()) {
      if (!jobs.pool().healthy(n) || !servers.takes_affinity(n) || !gets_slices(jobs, n, r))
        continue;
      if (!best.valid() || order(n) < order(best)) best = n;
    }
    return best;
  }
};

// The GPUs of a server; a broken one has no free GPUs.
struct server_capacity {
  node_id server{};
  std::uint32_t gpus = 0;
  std::uint32_t free = 0;  // GPUs to which a job may migrate
  std::uint32_t own = 0;   // other GPUs, of the job that migrates
};
// A running job on one server.
struct running_job {
  job_id job{};
  std::uint32_t server = 0;  // its position in a list of servers
  std::uint32_t gpus = 1;
  bool movable = true;  // it may migrate now
};
// A migration of a job to one server.
struct migration {
  job_id job{};
  node_id to{};
  friend constexpr bool operator==(migration, migration) noexcept = default;
};

// What a migration gains. Gains are compared by `typical`, and if that is equal by `sizes`.
struct move_gain {
  std::int64_t typical = 0;  // how much W * F (metric/fragmentation.h) falls; 0: no typical tasks
  std::int64_t sizes = 0;    // sum over k >= 1: how many more GPUs jobs of k GPUs can use
  friend constexpr auto operator<=>(const move_gain&, const move_gain&) noexcept = default;
};

// Computes the gain of a migration in O(1) from the free GPUs of both servers.
class migration_gains {
 public:
  // Gains without typical tasks.
  migration_gains() = default;
  // The tasks of the metric are typical, as whole GPUs of `model`; CPU does not count.
  explicit migration_gains(const fragmentation& metric, gpu_model model = 0) noexcept {
    node_state server;
    server.gpus = max_gpus_per_node;
    server.model = model;
    server.left.cpu_milli = ~std::uint32_t{0};
    for (std::uint32_t free = 1; free < usable_.size(); ++free) {
      if (free <= max_gpus_per_node) {
        server.gpu_left[free - 1] = whole_gpu;
        usable_[free] = static_cast<std::int64_t>(metric.usable(server));
      } else {  // no task wants more
        usable_[free] = usable_[max_gpus_per_node] / max_gpus_per_node * free;
      }
    }
  }
  // The gain if a job of `gpus` GPUs migrates from a server with `from` free GPUs to one with `to`.
  // Requires: gpus <= to, from + gpus at most 32.
  [[nodiscard]] move_gain operator()(std::uint32_t from, std::uint32_t to,
                                     std::uint32_t gpus) const noexcept {
    APIARY_ASSERT(gpus <= to && from + gpus < usable_.size());
    // On a server with f free GPUs, f are usable for each of the f sizes that fit.
    const auto sizes = [](std::uint32_t free) { return std::int64_t{free} * free; };
    return {usable_[from + gpus] + usable_[to - gpus] - usable_[from] - usable_[to],
            sizes(from + gpus) + sizes(to - gpus) - sizes(from) - sizes(to)};
  }

 private:
  // W times the usable GPUs among so many free ones.
  std::array<std::int64_t, placement::max_gpus + 1> usable_{};
};

// Chooses migrations that bring free GPUs together on few servers; returns them in order. It tries
// to empty each server with jobs that has at least `threshold` free GPUs, once: first the one with
// the most free GPUs (ties: the first). The jobs of such a server migrate, the largest first (ties:
// by id), each at most once. A job goes to the server in use that fits it, has no more free GPUs
// than its own server, and gains most (ties: the fewest free GPUs, then the first). A job that
// gains nowhere stays.
// Requires: on each healthy server, the GPUs of its jobs and its free ones are different GPUs; at
//           most 32 GPUs for each server; threshold > 0. Jobs of broken servers stay.
// Cost:     O(servers + jobs log jobs), and for each migration O(log64 servers) a number of GPUs.
[[nodiscard]] inline std::vector<migration> defragment(std::span<const server_capacity> servers,
                                                       std::span<const running_job> jobs,
                                                       std::uint32_t threshold,
                                                       const migration_gains& gains = {}) {
  constexpr std::uint32_t most = placement::max_gpus;
  const auto n = static_cast<std::uint32_t>(servers.size());
  APIARY_ASSERT(threshold > 0);
  std::vector<std::uint32_t> free(n);
  std::array<summary_bitset, most + 1> by_free;  // servers that are not idle
  for (summary_bitset& groups : by_free) groups = summary_bitset(n);
  for (std::uint32_t s = 0; s < n; ++s) {
    APIARY_ASSERT(servers[s].gpus <= most && servers[s].free <= servers[s].gpus);
    free[s] = servers[s].free;
    if (free[s] < servers[s].gpus) by_free[free[s]].set(s);
  }
  std::vector<running_job> order(jobs.begin(), jobs.end());
  std::sort(order.begin(), order.end(), [](const running_job& a, const running_job& b) {
    if (a.server != b.server) return a.server < b.server;
    return a.gpus != b.gpus ? a.gpus > b.gpus : a.job < b.job;
  });
  std::array<summary_bitset, most + 1> sources = by_free;
  const auto set_free = [&](std::uint32_t s, std::uint32_t f, bool may_be_source) {
    by_free[free[s]].reset(s);
    sources[free[s]].reset(s);
    free[s] = f;
    if (f == servers[s].gpus) return;
    by_free[f].set(s);
    if (may_be_source) sources[f].set(s);
  };
  std::vector<migration> moves;
  for (std::uint32_t f = most; f >= threshold; --f) {  // free GPUs of other sources only fall
    for (std::uint32_t from = sources[f].find_first(); from < n; from = sources[f].find_first()) {
      sources[f].reset(from);
      auto at =
          std::lower_bound(order.begin(), order.end(), from,
                           [](const running_job& r, std::uint32_t s) { return r.server < s; });
      for (; at != order.end() && at->server == from; ++at) {
        if (!at->movable) continue;
        move_gain most_gain;
        std::uint32_t best = n;
        for (std::uint32_t k = at->gpus; k <= free[from]; ++k) {
          std::uint32_t to = by_free[k].find_first();
          if (to == from) to = by_free[k].find_next(to + 1);
          const move_gain gain = gains(free[from], k, at->gpus);
          if (to >= n || gain <= most_gain) continue;
          most_gain = gain;
          best = to;
        }
        if (best == n) continue;
        const std::uint32_t k = free[best];
        set_free(best, k - at->gpus, sources[k].test(best));
        set_free(from, free[from] + at->gpus, false);
        moves.push_back({at->job, servers[best].server});
      }
    }
  }
  return moves;
}

// Places a job that has `own` GPUs of some of these servers on the fewest of them; returns nothing
// if these are not fewer. Takes the servers with the most free GPUs, its own included (ties: those
// where it runs, then the lowest id); the last server is the one with the fewest that are enough.
// Model: "Gandiva" (OSDI 2018), §3.2: on departures, jobs on several servers migrate to fewer.
// Cost:  O(servers log servers); `servers` may be only those with free GPUs and the job's own.
[[nodiscard]] inline gpus_by_server consolidate(std::vector<server_capacity> servers) {
  std::uint32_t gpus = 0;
  std::size_t now = 0;  // servers
  for (server_capacity& s : servers) {
    s.free += s.own;
    gpus += s.own;
    now += s.own > 0 ? 1U : 0U;
  }
  std::erase_if(servers, [](const server_capacity& s) { return s.free == 0; });
  std::sort(servers.begin(), servers.end(), [](const server_capacity& a, const server_capacity& b) {
    if (a.free != b.free) return a.free > b.free;
    if ((a.own > 0) != (b.own > 0)) return a.own > 0;
    return a.server < b.server;
  });
  gpus_by_server to;
  for (std::size_t i = 0; gpus > 0 && i < servers.size(); ++i) {
    if (to.size() + 1 == now) return {};
    std::size_t best = i;
    if (servers[i].free >= gpus) {  // the last: the tightest
      for (std::size_t j = i; j < servers.size() && servers[j].free >= gpus; ++j) {
        if (servers[j].free < servers[best].free) best = j;
      }
    }
    const std::uint32_t here = (std::min)(gpus, servers[best].free);
    to.emplace_back(servers[best].server, here);
    gpus -= here;
  }
  std::sort(to.begin(), to.end());
  return to;
}

// Migrates running jobs: consolidate() migrates jobs on several servers to fewer servers,
// defragment() empties servers. A job that started or migrated less than `min_run_time` ago does
// not migrate, because it would lose too much of its time.
// Cost: consolidate O(1) if no server has unsubscribed GPUs; else O(16 + s) for each job on s
//       servers that could run on fewer if they were idle, and O(16 s log s) for each that
//       migrates; defragment O(servers in use with unsubscribed GPUs + jobs of those to be
//       emptied), or nothing if there is none to empty.
class gandiva_migration {
 public:
  gandiva_migration(std::uint32_t threshold, time_ms min_run_time, const migration_gains& gains)
      : threshold_(threshold), min_run_time_(min_run_time), gains_(gains) {}

  void consolidate(gandiva_jobs& jobs, time_ms now) const {
    if (jobs.servers().max_unsubscribed() == 0) return;
    for (const job_id job : std::vector<job_id>(jobs.dispersed())) {
      gandiva_job& r = jobs.at(job);
      if (!may_move(jobs, r, now) || !fits_on_fewer(jobs, r)) continue;
      std::vector<server_capacity> some;
      for (const placement& p : r.where) {
        some.push_back(
            {p.node, jobs.pool().gpus(p.node), jobs.servers().unsubscribed(p.node), p.num_gpus()});
      }
      for (std::uint32_t k = 1; k <= max_gpus_per_node; ++k) {
        const summary_bitset& candidates = jobs.servers().with_unsubscribed(k);
        std::size_t left = r.where.size();
        for (std::uint32_t n = candidates.find_first(); n != summary_bitset::npos && left > 0;
             n = candidates.find_next(n + 1)) {
          if (runs_on(r, node_id(n))) continue;
          some.push_back({node_id(n), jobs.pool().gpus(node_id(n)), k});
          --left;
        }
      }
      const gpus_by_server to = detail::consolidate(std::move(some));
      if (!to.empty()) jobs.migrate(r, to);
    }
  }
  // Returns whether a job migrated, or may migrate later.
  bool defragment(gandiva_jobs& jobs, time_ms now) const {
    bool any = false;
    std::vector<server_capacity> some;
    for (std::uint32_t k = max_gpus_per_node; k > 0 && (any || k >= threshold_); --k) {
      const summary_bitset& candidates = jobs.servers().with_unsubscribed(k);
      for (std::uint32_t n = candidates.find_first(); n != summary_bitset::npos;
           n = candidates.find_next(n + 1)) {
        if (jobs.servers().load(node_id(n)) == 0) continue;
        any = true;
        some.push_back({node_id(n), jobs.pool().gpus(node_id(n)), k});
      }
    }
    std::sort(some.begin(), some.end(), [](const server_capacity& a, const server_capacity& b) {
      return a.server < b.server;
    });
    std::vector<running_job> running;
    bool more = false;
    for (std::uint32_t at = 0; at < some.size(); ++at) {
      if (some[at].free < threshold_) continue;
      for (const job_id job : jobs.servers().jobs(some[at].server)) {
        const gandiva_job& r = jobs.at(job);
        if (r.home != some[at].server || !r.runs() || r.packed()) continue;
        const bool may = may_move(jobs, r, now);
        more |= !may;
        running.push_back({job, at, r.request.gpus, may});
      }
    }
    for (const migration& m : detail::defragment(some, running, threshold_, gains_)) {
      more = true;
      gandiva_job& r = jobs.at(m.job);
      if (jobs.acted(r)) break;  // it shrank for a new job: the other migrations wait
      jobs.migrate(r, {{m.to, r.request.gpus}});
    }
    return more;
  }

 private:
  [[nodiscard]] static bool runs_on(const gandiva_job& r, node_id n) {
    const auto at = std::lower_bound(r.where.begin(), r.where.end(), n,
                                     [](const placement& p, node_id o) { return p.node < o; });
    return at != r.where.end() && at->node == n;
  }
  // Whether a job on s servers fits on s - 1: those with the most unsubscribed GPUs, if its own
  // count.
  [[nodiscard]] static bool fits_on_fewer(const gandiva_jobs& jobs, const gandiva_job& r) {
    const gandiva_servers& all = jobs.servers();
    const std::size_t fewer = r.where.size() - 1;
    std::uint32_t least = max_gpus_per_node;  // that it has on one server
    for (const placement& p : r.where) least = (std::min)(least, p.num_gpus());
    // It would leave a server at least, for unsubscribed GPUs of s - 1 servers.
    if (fewer * all.max_unsubscribed() < least) return false;
    std::array<std::uint32_t, placement::max_gpus + 1> servers{};  // by the GPUs that they can give
    for (std::uint32_t k = 1; k <= max_gpus_per_node; ++k)
      servers[k] = all.num_with_unsubscribed(k);
    std::uint32_t missing = 0;
    for (const placement& p : r.where) {
      const std::uint32_t unsubscribed = all.unsubscribed(p.node);
      if (unsubscribed > 0) --servers[unsubscribed];
      ++servers[unsubscribed + p.num_gpus()];
      missing += p.num_gpus();
    }
    std::size_t left = fewer;
    for (std::uint32_t k = placement::max_gpus; k > 0 && left > 0; --k) {
      const auto used = static_cast<std::uint32_t>((std::min<std::size_t>)(left, servers[k]));
      if (missing <= used * k) return true;
      missing -= used * k;
      left -= used;
    }
    return false;
  }
  [[nodiscard]] bool may_move(const gandiva_jobs& jobs, const gandiva_job& r, time_ms now) const {
    return !jobs.acted(r) && add_time(r.moved, min_run_time_) <= now;
  }

  std::uint32_t threshold_;
  time_ms min_run_time_;
  migration_gains gains_;
};

// Gives jobs idle GPUs of their server after nothing has changed there for the idle period.
// Cost: watch, and grow for each server whose period is over, O(jobs of the server + log servers).
class gandiva_growth {
 public:
  explicit gandiva_growth(time_ms idle_period) : period_(idle_period) {}
  // When jobs of some server may grow next; max_time: never.
  [[nodiscard]] time_ms next() const noexcept {
    return timers_.empty() ? max_time : timers_.first().at;
  }
  // Something changed on the server: starts its idle period anew.
  void watch(const gandiva_jobs& jobs, node_id n, time_ms now) {
    const std::vector<elastic_job> elastic = jobs.elastic(n);
    const bool may = jobs.servers().unsubscribed(n) > 0 && jobs.pool().idle(n) > 0 &&
                     std::any_of(elastic.begin(), elastic.end(),
                                 [](const elastic_job& j) { return j.has < j.most; });
    if (may) {
      timers_.set(n.value, add_time(now, period_));
    } else {
      timers_.cancel(n.value);
    }
  }
  // Grows the jobs of the servers whose idle period is over.
  void grow(gandiva_jobs& jobs, time_ms now) {
    while (!timers_.empty() && timers_.first().at <= now) {
      const node_id n(timers_.pop().id);
      for (const resize& r : resized(jobs.elastic(n), jobs.pool().idle(n), true))
        jobs.enlarge(jobs.at(r.job), r.gpus);
    }
  }

 private:
  time_ms period_;
  timer_queue timers_;  // by server
};

}  // namespace detail
APIARY_NAMESPACE_END
