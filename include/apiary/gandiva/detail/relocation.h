// apiary/gandiva/detail/relocation.h - which suspended jobs Gandiva migrates.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/pack_trials.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
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

}  // namespace detail
APIARY_NAMESPACE_END
