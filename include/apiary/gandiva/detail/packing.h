// apiary/gandiva/detail/packing.h - which jobs Gandiva packs on one GPU, and which packings it keeps.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/jobs.h>
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

// Tries packing on over-subscribed servers, one trial a server and quantum (gandiva/packing.h). A job
// outside the time slice is packed with a job of the slice; both have been profiled alone, and have the
// same number of GPUs and the same priority. One quantum later the packing is kept if both jobs
// together do more than in time slices; otherwise it is undone and that pair is not tried again. A
// packing that is kept is judged again at each quantum.
//
// Cost: judge, separate O(packed jobs); choose as pair_packing::next.
class gandiva_packing {
 public:
  // servers: 0 if nothing is packed. gpu_memory: of each GPU, in the unit of the samples.
  gandiva_packing(std::size_t servers, std::uint64_t gpu_memory)
      : gpu_memory_(gpu_memory), trials_(servers) {}

  // At a quantum: keeps or undoes each packing. Jobs that separate() can give their own GPUs on their
  // server are left alone.
  void judge(gandiva_jobs& jobs) {
    for (const job_id job : std::vector<job_id>(jobs.guests().begin(), jobs.guests().end())) {
      gandiva_job& guest = jobs.at(job);
      gandiva_job& leader = jobs.at(guest.leader);
      if (!guest.runs() || has_spare(jobs, guest)) continue;
      const bool measured = guest.packed_rate > 0 && leader.packed_rate > 0;
      if (guest.kept && !measured) continue;
      if (measured &&
          pair_packing::pays(guest.alone, leader.alone, guest.packed_rate, leader.packed_rate)) {
        if (!guest.kept) jobs.keep(guest);
        continue;
      }
      pair_packing& trials = trials_[guest.home.value];
      trials.fail({job, leader.request.job.value});
      trials.fail({leader.request.job, job.value});
      jobs.unpack(guest);
    }
  }

  // Gives packed jobs their own GPUs if some are spare: on their server, else on the server with the
  // fewest spare GPUs that are enough.
  void separate(gandiva_jobs& jobs) {
    if (jobs.servers().most_spare() == 0) {
      // Only trials may fit then: on a server that is just full.
      if (std::none_of(jobs.guests().begin(), jobs.guests().end(),
                       [&](job_id j) { return !jobs.at(j).kept; }))
        return;
    }
    for (const job_id job : std::vector<job_id>(jobs.guests().begin(), jobs.guests().end())) {
      gandiva_job& guest = jobs.at(job);
      if (!guest.runs() || jobs.acted(guest)) continue;
      const std::uint32_t gpus = guest.request.gpus;
      const node_id to = has_spare(jobs, guest) ? guest.home : jobs.servers().tightest(gpus);
      if (to.valid()) jobs.migrate(guest, {{to, gpus}});
    }
  }

  // The next pair to pack: indices into `waiting`, jobs of the server outside the time slice, and into
  // `running`, jobs of the slice.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> choose(
      const gandiva_jobs& jobs, node_id n, std::span<gandiva_job* const> waiting,
      std::span<gandiva_job* const> running) const {
    std::vector<pair_packing::job_profile> guests;
    std::vector<pair_packing::gpu_profile> gpus;
    for (const gandiva_job* const r : waiting) {
      if (may(jobs, *r)) guests.push_back({r->request.job, r->alone.utilization, r->alone.memory});
    }
    for (const gandiva_job* const r : running) {
      if (!may(jobs, *r) || r->alone.memory > gpu_memory_) continue;
      gpus.push_back({r->request.job.value, r->alone.utilization, gpu_memory_ - r->alone.memory});
    }
    const auto alike = [&](const pair_packing::job_profile& a, const pair_packing::gpu_profile& b) {
      const job_request& guest = jobs.at(a.job).request;
      const job_request& leader = jobs.at(job_id(b.gpu)).request;
      return guest.gpus == leader.gpus && guest.priority == leader.priority;
    };
    const auto trial = trials_[n.value].next(guests, gpus, alike);
    if (!trial) return std::nullopt;
    const auto index = [](std::span<gandiva_job* const> among, job_id job) {
      const auto is_it = [&](const gandiva_job* r) { return r->request.job == job; };
      return static_cast<std::size_t>(std::find_if(among.begin(), among.end(), is_it) -
                                      among.begin());
    };
    return std::pair(index(waiting, trial->job), index(running, job_id(trial->gpu)));
  }
  // The job leaves its server. Nothing if there is no packing.
  void forget(const gandiva_job& r) {
    if (trials_.empty() || !r.home.valid()) return;
    trials_[r.home.value].forget(r.request.job);
    trials_[r.home.value].forget_gpu(r.request.job.value);
  }

 private:
  [[nodiscard]] static bool has_spare(const gandiva_jobs& jobs, const gandiva_job& guest) {
    return guest.kept ? jobs.servers().spare(guest.home) >= guest.request.gpus
                      : !jobs.servers().over_subscribed(guest.home);
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
