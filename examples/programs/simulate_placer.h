// apiary/examples/programs/simulate_placer.h - where jobs run under the queues of queue/, also jobs that need CPU,
// memory or GPU models.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace example {

// What a job needs beside each of its GPUs, and the GPU models that it accepts.
using job_demand = apiary::gang_job_demand;

// One of two placers: server_placer for jobs that need only GPUs, gang_placer for others. A queue is
// compiled once for both.
class cluster_placer : public apiary::job_placer_types {
 public:
  template <class Placer>
  explicit cluster_placer(Placer placer) : placer_(std::move(placer)) {}

  absl::Status check(const apiary::job_request& r) {
    return std::visit([&](auto& p) { return p.check(r); }, placer_);
  }
  absl::StatusOr<std::optional<apiary::job_placement>> propose(const apiary::job_request& r) {
    return std::visit([&](auto& p) { return p.propose(r); }, placer_);
  }
  absl::Status commit(const apiary::job_request& r, const apiary::job_placement& where) {
    return std::visit([&](auto& p) { return p.commit(r, where); }, placer_);
  }
  absl::Status finish(apiary::job_id job) {
    return std::visit([&](auto& p) { return p.finish(job); }, placer_);
  }
  absl::Status mark_bad(apiary::node_id n) {
    return std::visit([&](auto& p) { return p.mark_bad(n); }, placer_);
  }
  absl::Status mark_healthy(apiary::node_id n) {
    return std::visit([&](auto& p) { return p.mark_healthy(n); }, placer_);
  }
  std::vector<apiary::job_id> jobs_on(apiary::node_id n) const {
    return std::visit([&](const auto& p) { return p.jobs_on(n); }, placer_);
  }
  std::uint32_t idle_gpus() const {
    return std::visit([](const auto& p) { return p.idle_gpus(); }, placer_);
  }
  std::uint32_t total_gpus() const {
    return std::visit([](const auto& p) { return p.total_gpus(); }, placer_);
  }

 private:
  std::variant<apiary::server_placer, apiary::gang_placer> placer_;
};
static_assert(apiary::JobPlacer<cluster_placer>);

}  // namespace example
