// apiary/gandiva/packing.h - packing two jobs on one GPU: which pair to try, and whether it pays.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Chooses which two jobs to pack on a GPU, one pair at a time, and remembers the pairs that did not
// pay. It tries the job of least utilization on the GPU of least utilization where its memory fits,
// then on the next GPUs, then the next job. Ties go to the lower id.
// Model:   "Gandiva" (OSDI 2018), §3.2, packing; the greedy order by profiled utilisation.
// Cost:    next O(jobs log jobs + GPUs log GPUs), O(log failures) for each pair rejected.
// Example: examples/gandiva.cpp
class pair_packing {
 public:
  // What the host measured of a job that ran alone.
  struct job_profile {
    job_id job{};                   // id of the job
    std::uint32_t utilization = 0;  // of its GPU, in thousandths
    std::uint64_t memory = 0;       // bytes
  };
  // What the host measured of a GPU and the jobs on it.
  struct gpu_profile {
    std::uint32_t gpu = 0;          // the number that the host gives it
    std::uint32_t utilization = 0;  // in thousandths
    std::uint64_t memory_left = 0;  // bytes
  };
  // What the host measured of a job, alone or packed.
  struct sample {
    std::uint32_t utilization = 0;  // of its GPU, in thousandths
    std::uint64_t memory = 0;       // bytes
    std::uint64_t rate = 0;         // mini-batches in a unit of time that all samples share
  };
  // A job to try on a GPU.
  struct candidate {
    job_id job{};           // the job
    std::uint32_t gpu = 0;  // the number of the GPU
    friend constexpr auto operator<=>(candidate, candidate) noexcept = default;
  };
  // Whether packing pays: the jobs together do more than in time slices. Both rates have one unit.
  [[nodiscard]] static constexpr bool pays(std::uint64_t packed_rate,
                                           std::uint64_t sliced_rate) noexcept {
    return packed_rate > sliced_rate;
  }
  // The same for two jobs with different mini-batches: the packed rates, divided by the rates
  // alone, must add up to more than 1. Requires: rates alone above 0, all rates below 2^53.
  [[nodiscard]] static constexpr bool pays(const sample& alone_a, const sample& alone_b,
                                           std::uint64_t packed_a,
                                           std::uint64_t packed_b) noexcept {
    constexpr std::uint64_t whole = 1000;
    APIARY_ASSERT(alone_a.rate > 0 && alone_b.rate > 0);
    return pays(packed_a * whole / alone_a.rate + packed_b * whole / alone_b.rate, whole);
  }
  // The next pair of a job profiled alone and a GPU that runs a job; nullopt: no pair is left.
  [[nodiscard]] std::optional<candidate> next(std::span<const job_profile> jobs,
                                              std::span<const gpu_profile> gpus) const {
    return next(jobs, gpus, [](const job_profile&, const gpu_profile&) { return true; });
  }
  // The same, only among pairs for which may(job, gpu) is true.
  template <class May>
  [[nodiscard]] std::optional<candidate> next(std::span<const job_profile> jobs,
                                              std::span<const gpu_profile> gpus, May&& may) const {
    std::vector<job_profile> by_use(jobs.begin(), jobs.end());
    std::sort(by_use.begin(), by_use.end(), [](const job_profile& a, const job_profile& b) {
      return a.utilization != b.utilization ? a.utilization < b.utilization : a.job < b.job;
    });
    std::vector<gpu_profile> gpus_by_use(gpus.begin(), gpus.end());
    std::sort(
        gpus_by_use.begin(), gpus_by_use.end(), [](const gpu_profile& a, const gpu_profile& b) {
          return a.utilization != b.utilization ? a.utilization < b.utilization : a.gpu < b.gpu;
        });
    for (const job_profile& job : by_use) {
      for (const gpu_profile& gpu : gpus_by_use) {
        const candidate pair{job.job, gpu.gpu};
        if (job.memory <= gpu.memory_left && may(job, gpu) && !failed(pair)) return pair;
      }
    }
    return std::nullopt;
  }
  // The pair did not pay and was undone. next() does not return it again until forget().
  void fail(candidate pair) {
    const auto at = std::lower_bound(failures_.begin(), failures_.end(), pair);
    if (at == failures_.end() || *at != pair) failures_.insert(at, pair);
  }
  // Whether fail() was called for the pair.
  [[nodiscard]] bool failed(candidate pair) const {
    return std::binary_search(failures_.begin(), failures_.end(), pair);
  }
  // Forgets the failed pairs of a job: it ended, or its work changed.
  void forget(job_id job) {
    std::erase_if(failures_, [&](candidate t) { return t.job == job; });
  }
  // Forgets the failed pairs on a GPU: its jobs changed.
  void forget_gpu(std::uint32_t gpu) {
    std::erase_if(failures_, [&](candidate t) { return t.gpu == gpu; });
  }

 private:
  std::vector<candidate> failures_;  // ascending, 8 bytes each
};

APIARY_NAMESPACE_END
