// apiary/gandiva/detail/pack_trials.h - which jobs Gandiva packs, and which packings it keeps.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/packing.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Tries packing on over-subscribed servers, one pair a server and quantum: a job outside the time
// slice with a job of the slice, of the same number of GPUs and priority, both profiled alone. At
// each quantum a packing is kept if both jobs together do more than in time slices; otherwise it is
// undone and the pair is not tried again.
// Cost: judge, separate O(packed jobs); choose as pair_packing::next.
class gandiva_packing {
 public:
  // servers: 0 without packing. gpu_memory: of each GPU, in the unit of the samples.
  gandiva_packing(std::size_t servers, std::uint64_t gpu_memory)
      : gpu_memory_(gpu_memory), trials_(servers) {}
  // Keeps or undoes packings at a quantum, but not of jobs that separate() gives their own GPUs.
  void judge(gandiva_jobs& jobs) {
    for (const job_id job : std::vector<job_id>(jobs.followers())) {
      gandiva_job& follower = jobs.at(job);
      gandiva_job& leader = jobs.at(follower.leader);
      if (!follower.runs() || has_unsubscribed(jobs, follower)) continue;
      const bool measured = follower.packed_rate > 0 && leader.packed_rate > 0;
      if (follower.kept && !measured) continue;
      if (measured && pair_packing::pays(follower.alone, leader.alone, follower.packed_rate,
                                         leader.packed_rate)) {
        if (!follower.kept) jobs.keep(follower);
        continue;
      }
      pair_packing& trials = trials_[follower.home.value];
      trials.fail({job, leader.request.job.value});
      trials.fail({leader.request.job, job.value});
      jobs.unpack(follower);
    }
  }
  // Migrates followers to unsubscribed GPUs of their server, else of the tightest server that fits.
  void separate(gandiva_jobs& jobs) {
    if (jobs.servers().max_unsubscribed() == 0) {
      // Then only jobs that are packed on trial may fit, on a server that is exactly full.
      if (std::none_of(jobs.followers().begin(), jobs.followers().end(),
                       [&](job_id j) { return !jobs.at(j).kept; }))
        return;
    }
    for (const job_id job : std::vector<job_id>(jobs.followers())) {
      gandiva_job& follower = jobs.at(job);
      if (!follower.runs() || jobs.acted(follower)) continue;
      const std::uint32_t gpus = follower.request.gpus;
      const node_id to =
          has_unsubscribed(jobs, follower) ? follower.home : jobs.servers().tightest(gpus);
      if (to.valid()) jobs.migrate(follower, {{to, gpus}});
    }
  }
  // The next pair to pack: a follower of `waiting`, jobs outside the time slice, and its leader.
  [[nodiscard]] std::optional<std::pair<gandiva_job*, gandiva_job*>> choose(
      gandiva_jobs& jobs, node_id n, std::span<gandiva_job* const> waiting,
      std::span<gandiva_job* const> running) const {
    std::vector<pair_packing::job_profile> followers;
    std::vector<pair_packing::gpu_profile> gpus;
    for (const gandiva_job* const r : waiting) {
      if (may(jobs, *r))
        followers.push_back({r->request.job, r->alone.utilization, r->alone.memory});
    }
    for (const gandiva_job* const r : running) {
      if (!may(jobs, *r) || r->alone.memory > gpu_memory_) continue;
      gpus.push_back({r->request.job.value, r->alone.utilization, gpu_memory_ - r->alone.memory});
    }
    const auto alike = [&](const pair_packing::job_profile& a, const pair_packing::gpu_profile& b) {
      const job_request& follower = jobs.at(a.job).request;
      const job_request& leader = jobs.at(job_id(b.gpu)).request;
      return follower.gpus == leader.gpus && follower.priority == leader.priority;
    };
    const auto trial = trials_[n.value].next(followers, gpus, alike);
    if (!trial) return std::nullopt;
    return std::pair(&jobs.at(trial->job), &jobs.at(job_id(trial->gpu)));
  }
  // The job leaves its server. Nothing if there is no packing.
  void forget(const gandiva_job& r) {
    if (trials_.empty() || !r.home.valid()) return;
    trials_[r.home.value].forget(r.request.job);
    trials_[r.home.value].forget_gpu(r.request.job.value);
  }

 private:
  [[nodiscard]] static bool has_unsubscribed(const gandiva_jobs& jobs,
                                             const gandiva_job& follower) {
    return follower.kept ? jobs.servers().unsubscribed(follower.home) >= follower.request.gpus
                         : !jobs.servers().over_subscribed(follower.home);
  }
  [[nodiscard]] static bool may(const gandiva_jobs& jobs, const gandiva_job& r) {
    return r.profiled() && !r.packed() && !jobs.acted(r) &&
           (!r.runs() || r.num_gpus() == r.request.gpus);
  }

  std::uint64_t gpu_memory_;
  std::vector<pair_packing> trials_;  // by server
};

}  // namespace detail
APIARY_NAMESPACE_END
