// apiary/gandiva/detail/relocation.h - which suspended jobs Gandiva migrates.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/packing.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/node_table.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Migrates suspended jobs to unsubscribed GPUs, or to servers where they get time slices. Jobs that
// are packed with them stay.
// Cost: into_unsubscribed O(log servers + jobs of the server) for each migration; from_higher O(jobs
//       of over-subscribed servers), their square where priorities differ, and O(servers in use and
//       their jobs) for each job that migrates, and for each number of GPUs and priority for which
//       there is no better server.
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
  // Migrates suspended jobs that get no time slice because of jobs of higher priority, in order of
  // priority, arrival and id: to the least loaded server where they get time slices, preferably of
  // their affinity. Repeats this for jobs that then get no time slice; their priority is lower each
  // time.
  static void from_higher(gandiva_jobs& jobs, gandiva_packing& packing) {
    for (bool moved = true; moved;) {
      moved = false;
      std::array<std::int64_t, max_gpus_per_node + 1> failed;  // the highest priority, by GPUs
      failed.fill((std::numeric_limits<std::int64_t>::min)());
      for (gandiva_job* const r : starving(jobs)) {
        const std::uint32_t gpus = r->request.gpus;
        if (r->request.priority <= failed[gpus] || gets_slices(jobs, r->home, *r)) continue;
        const node_id to = better(jobs, *r);
        if (to.valid()) {
          move(jobs, *r, to, packing);
          moved = true;
        } else {
          failed[gpus] = r->request.priority;
        }
      }
    }
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
  // Whether the jobs of higher priority on the server leave enough GPUs for this job.
  [[nodiscard]] static bool gets_slices(const gandiva_jobs& jobs, node_id n, const gandiva_job& r) {
    std::uint32_t wanted = jobs.servers().pinned(n) + r.request.gpus;
    for (const job_id job : jobs.servers().jobs(n)) {
      const gandiva_job& other = jobs.at(job);
      if (other.home != n || other.leader.valid()) continue;
      if (other.request.priority > r.request.priority) wanted += other.request.gpus;
    }
    return wanted <= jobs.pool().gpus(n);
  }
  // The suspended jobs that get no time slices, in order.
  [[nodiscard]] static std::vector<gandiva_job*> starving(gandiva_jobs& jobs) {
    std::vector<gandiva_job*> found;
    const summary_bitset& over = jobs.servers().over();
    for (std::uint32_t n = over.find_first(); n != summary_bitset::npos;
         n = over.find_next(n + 1)) {
      const std::vector<job_id>& here = jobs.servers().jobs(node_id(n));
      std::int32_t highest = (std::numeric_limits<std::int32_t>::min)();
      for (const job_id job : here) highest = (std::max)(highest, jobs.at(job).request.priority);
      for (const job_id job : here) {
        gandiva_job& r = jobs.at(job);
        if (r.home != node_id(n) || !waits_for_slice(r) || r.request.priority == highest) continue;
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
