// apiary/gandiva/detail/relocation.h - which suspended jobs Gandiva migrates.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/packing.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Migrates suspended jobs to unsubscribed GPUs, or to servers where they get time slices (jobs that
// are packed with them stay), and empties servers for jobs that starve.
// Cost: into_unsubscribed O(log servers + jobs of the server) for each migration; from_held O(jobs
//       of over-subscribed servers), their square where priorities differ, and O(servers in use and
//       their jobs) for each job that migrates, and for each number of GPUs and priority for which
//       there is no better server; emptied the same for a job that gets one server, and O(servers
//       and their jobs) for one that needs several, because any job may hold GPUs there.
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
        if (!waits_for_slice(r) || r.request.gpus > most) continue;
        if (best == nullptr || r.pass < best->pass) best = &r;
      }
      move(jobs, *best, servers.tightest(best->request.gpus), packing);
    }
  }
  // Migrates suspended jobs that get no time slice because jobs of higher priority or on several
  // servers hold the GPUs, in order of priority, arrival and id: to the least loaded server where
  // they get time slices, preferably of their affinity. Repeats this for jobs that then get no time
  // slice; their priority is lower each time. Returns the highest priority of the jobs that are left
  // without time slices by jobs on several servers; no_priority: none.
  static std::int64_t from_held(gandiva_jobs& jobs, gandiva_packing& packing) {
    std::int64_t left = no_priority;
    for (bool moved = true; moved;) {
      moved = false;
      left = no_priority;
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
        if (is_pinned_out(jobs, *r)) left = (std::max)(left, priority);
      }
    }
    return left;
  }
  static constexpr std::int64_t no_priority = (std::numeric_limits<std::int64_t>::min)();

  // The GPUs that a starving job gets: all of one server, the least loaded one where the job gets time
  // slices; else, if `several`, those of the fewest servers. Jobs of higher priority and jobs on
  // several servers keep their GPUs. If the job gets several servers, suspended jobs of its priority
  // that wait longer keep theirs, too. Ties go to the lowest id; empty: there are too few GPUs.
  [[nodiscard]] static gpus_by_server emptied(const gandiva_jobs& jobs, const gandiva_job& r,
                                              bool several) {
    const node_id one = r.request.gpus <= max_gpus_per_node ? better(jobs, r) : node_id();
    if (one.valid()) return {{one, r.request.gpus}};
    struct server_left {
      std::uint32_t gpus = 0;
      std::uint32_t load = 0;
      node_id server{};
    };
    std::vector<server_left> left;
    node_id least;
    std::uint32_t sum = 0;
    for (const node_id n : jobs.pool().servers()) {
      if (!jobs.pool().healthy(n)) continue;
      const std::uint32_t load = jobs.servers().load(n);
      if (gets_slices(jobs, n, r) && (!least.valid() || load < jobs.servers().load(least)))
        least = n;
      const std::uint32_t gpus = jobs.pool().gpus(n);
      const std::uint32_t held = held_gpus(jobs, n, r, true);
      if (!several || held >= gpus) continue;
      left.push_back({gpus - held, load, n});
      sum += gpus - held;
    }
    if (least.valid()) return {{least, r.request.gpus}};
    gpus_by_server on;
    if (sum < r.request.gpus) return on;
    std::sort(left.begin(), left.end(), [](const server_left& a, const server_left& b) {
      if (a.gpus != b.gpus) return a.gpus > b.gpus;
      return a.load != b.load ? a.load < b.load : a.server < b.server;
    });
    for (std::uint32_t wanted = r.request.gpus; wanted > 0; wanted -= on.back().second)
      on.emplace_back(left[on.size()].server, (std::min)(wanted, left[on.size()].gpus));
    return on;
  }

 private:
  [[nodiscard]] static bool waits_for_slice(const gandiva_job& r) noexcept {
    return r.phase == gandiva_phase::suspended && !r.leader.valid();
  }
  static void move(gandiva_jobs& jobs, gandiva_job& r, node_id to, gandiva_packing& packing) {
    packing.forget(r);
    if (r.follower.valid()) jobs.unlink(r, jobs.at(r.follower));
    jobs.settle(r, to);
  }
  // GPUs of the server that jobs on several servers and of higher priority hold; with `older` also
  // those of suspended jobs of the same priority that wait longer.
  [[nodiscard]] static std::uint32_t held_gpus(const gandiva_jobs& jobs, node_id n,
                                               const gandiva_job& r, bool older) {
    std::uint32_t held = jobs.servers().pinned(n);
    for (const job_id job : jobs.servers().jobs(n)) {
      const gandiva_job& other = jobs.at(job);
      if (other.home != n || other.leader.valid()) continue;
      const bool precedes =
          older && waits_for_slice(other) && other.request.priority == r.request.priority &&
          std::pair(other.waits_since(), job) < std::pair(r.waits_since(), r.request.job);
      if (other.request.priority > r.request.priority || precedes) held += other.request.gpus;
    }
    return held;
  }
  // Whether the jobs on several servers and of higher priority leave it enough GPUs of the server.
  [[nodiscard]] static bool gets_slices(const gandiva_jobs& jobs, node_id n, const gandiva_job& r) {
    return held_gpus(jobs, n, r, false) + r.request.gpus <= jobs.pool().gpus(n);
  }
  // Whether jobs on several servers alone leave it too few GPUs of its server.
  [[nodiscard]] static bool is_pinned_out(const gandiva_jobs& jobs, const gandiva_job& r) {
    return jobs.servers().pinned(r.home) + r.request.gpus > jobs.pool().gpus(r.home);
  }
  // The suspended jobs that get no time slices, in order.
  [[nodiscard]] static std::vector<gandiva_job*> without_slices(gandiva_jobs& jobs) {
    std::vector<gandiva_job*> found;
    const summary_bitset& over = jobs.servers().over();
    for (std::uint32_t n = over.find_first(); n != summary_bitset::npos;
         n = over.find_next(n + 1)) {
      const std::vector<job_id>& here = jobs.servers().jobs(node_id(n));
      std::int32_t highest = (std::numeric_limits<std::int32_t>::min)();
      for (const job_id job : here) highest = (std::max)(highest, jobs.at(job).request.priority);
      for (const job_id job : here) {
        gandiva_job& r = jobs.at(job);
        if (r.home != node_id(n) || !waits_for_slice(r)) continue;
        const bool lower = r.request.priority < highest;
        if (lower ? !gets_slices(jobs, r.home, r) : is_pinned_out(jobs, r)) found.push_back(&r);
      }
    }
    std::sort(found.begin(), found.end(), [](const gandiva_job* a, const gandiva_job* b) {
      if (a->request.priority != b->request.priority)
        return a->request.priority > b->request.priority;
      return a->key != b->key ? a->key < b->key : a->request.job < b->request.job;
    });
    return found;
  }
  // The server where the job would get time slices; not valid: none.
  [[nodiscard]] static node_id better(const gandiva_jobs& jobs, const gandiva_job& r) {
    for (const auto& [key, n] : jobs.servers().with_affinity(r.request.gpus)) {
      if (gets_slices(jobs, n, r)) return n;
    }
    node_id best;
    std::uint32_t least = (std::numeric_limits<std::uint32_t>::max)();
    for (std::uint32_t gpus = 1; gpus <= max_gpus_per_node; ++gpus) {
      for (const auto& [key, n] : jobs.servers().with_affinity(gpus)) {
        if (key.first >= least) break;
        if (!gets_slices(jobs, n, r)) continue;
        least = key.first;
        best = n;
        break;
      }
    }
    return best;
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
