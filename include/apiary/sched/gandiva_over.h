// apiary/sched/gandiva_over.h - Gandiva's turns and moves for jobs over any placer.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job_request.h>
#include <apiary/policy/fragmentation_gradient.h>
#include <apiary/sched/introspection_queue.h>
#include <apiary/sched/job_forms.h>
#include <apiary/sched/job_placer.h>
#include <apiary/sched/placer_ground.h>
#include <apiary/sched/server_placer.h>
#include <apiary/sched/sharing_placer.h>

#include <absl/status/status.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// A job is itself to a placer, and takes turns; nobody has a right to anything.
struct placer_forms {
  template <JobPlacer Placer>
  [[nodiscard]] static absl::Status check(const placer_ground<Placer>& g, const job_request& r) {
    return g.placer().check(r);
  }
  [[nodiscard]] static const job_request& own(const job_request& r) noexcept { return r; }
  [[nodiscard]] static const job_request& turn(const job_request& r) noexcept { return r; }
  [[nodiscard]] static const job_place& place(const job_place& w) noexcept { return w; }
  template <JobPlacer Placer>
  [[nodiscard]] static std::uint32_t owned(const placer_ground<Placer>& /*g*/,
                                           tenant_id /*t*/) noexcept {
    return 0;
  }
  template <JobPlacer Placer>
  [[nodiscard]] static std::uint32_t gpus(const placer_ground<Placer>& g, node_id n) noexcept {
    return g.nodes().shape(n).gpus;
  }
  template <JobPlacer Placer>
  [[nodiscard]] static std::uint32_t total_gpus(const placer_ground<Placer>& g) noexcept {
    return g.placer().total_gpus();
  }
};

// Gandiva over a placer: where a job goes, and where to it moves, is the placer's answer; whose turn
// it is and who moves is decided above (sched/introspection.h, placer_ground.h).
//
//   const fragmentation metric(mix);
//   gandiva_over<server_placer>::create({server_placer::create(spec).value(), spec, metric}, {},
//                                       {.moves = {.moves = 4, .cost = 100}})
//
// Example: examples/simulate.cpp
template <JobPlacer Placer>
using gandiva_over = introspection_queue<placer_ground<Placer>, placer_forms>;

// Over FGD, for jobs of whole GPUs. gandiva_fgd.h is for tasks with shares of them.
using gandiva_over_fgd = gandiva_over<sharing_placer<fragmentation_gradient>>;

APIARY_NAMESPACE_END
