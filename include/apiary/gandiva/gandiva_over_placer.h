// apiary/gandiva/gandiva_over_placer.h - Gandiva's turns and moves for jobs over any placer.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/gpu_sharing_placer.h>
#include <apiary/batch/job_placer.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/gandiva/detail/job_adapter.h>
#include <apiary/gandiva/detail/placer_backend.h>
#include <apiary/gandiva/detail/time_sharing_queue.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// A job is itself to a placer, and takes turns; nobody has a right to anything.
struct placer_job_adapter {
  template <JobPlacer Placer>
  [[nodiscard]] static absl::Status check(const detail::placer_backend<Placer>& g,
                                          const job_request& r) {
    return g.placer().check(r);
  }
  [[nodiscard]] static const job_request& own(const job_request& r) noexcept { return r; }
  [[nodiscard]] static const job_request& turn(const job_request& r) noexcept { return r; }
  [[nodiscard]] static const job_placement& place(const job_placement& w) noexcept { return w; }
  template <JobPlacer Placer>
  [[nodiscard]] static std::uint32_t owned(const detail::placer_backend<Placer>& /*g*/,
                                           tenant_id /*t*/) noexcept {
    return 0;
  }
  template <JobPlacer Placer>
  [[nodiscard]] static std::uint32_t gpus(const detail::placer_backend<Placer>& g,
                                          node_id n) noexcept {
    return g.nodes().shape(n).gpus;
  }
  template <JobPlacer Placer>
  [[nodiscard]] static std::uint32_t total_gpus(const detail::placer_backend<Placer>& g) noexcept {
    return g.placer().total_gpus();
  }
};

// Gandiva over a placer: where a job goes, and where to it moves, is the placer's answer; whose turn
// it is and who moves is decided above (gandiva/time_sharing.h, gandiva/detail/placer_backend.h).
//
//   const fragmentation metric(mix);
//   gandiva_over<server_placer>::create({server_placer::create(spec).value(), spec, metric}, {},
//                                       {.moves = {.moves = 4, .cost = 100}})
//
// Example: examples/simulate.cpp
template <JobPlacer Placer>
using gandiva_over = detail::time_sharing_queue<detail::placer_backend<Placer>, placer_job_adapter>;

// Over FGD, for jobs of whole GPUs. gandiva/gandiva_fgd.h is for tasks with shares of them.
using gandiva_over_fgd = gandiva_over<gpu_sharing_placer<fragmentation_gradient>>;

APIARY_NAMESPACE_END
