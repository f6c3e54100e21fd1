// apiary/batch/server_placer.h - jobs of whole GPUs on the fewest servers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/batch/job_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

struct server_spec {
  std::vector<std::uint32_t> gpus{};  // of each server
  std::uint32_t servers_per_rack = 1;
  bool anywhere = false;  // a job may span more servers than it would in an empty cluster
};

// kInvalidArgument: no server, a server with more than max_gpus_per_node GPUs, racks without
// servers.
[[nodiscard]] inline absl::Status check_servers(const server_spec& spec) {
  if (spec.gpus.empty()) return absl::InvalidArgumentError("a cluster needs at least one server");
  if (spec.servers_per_rack == 0) return absl::InvalidArgumentError("a rack has 0 servers");
  for (std::size_t i = 0; i < spec.gpus.size(); ++i) {
    if (spec.gpus[i] <= max_gpus_per_node) continue;
    return absl::InvalidArgumentError("server " + std::to_string(i) + ": " +
                                      std::to_string(spec.gpus[i]) + " GPUs are more than " +
                                      std::to_string(max_gpus_per_node));
  }
  return absl::OkStatus();
}

// Best fit: a job goes to the server that it leaves least idle on, or, when it is larger than any,
// to the fewest servers (alloc/server_pool.h).
//
// Cost: propose, commit, finish as server_pool::fit, take, give and a hash look-up.
class server_placer {
 public:
  // kInvalidArgument as check_servers(spec).
  [[nodiscard]] static absl::StatusOr<server_placer> create(const server_spec& spec) {
    APIARY_RETURN_IF_ERROR(check_servers(spec));
    return server_placer(spec);
  }

  [[nodiscard]] absl::Status check(const job_request& r) const {
    if (r.gpus > 0 && r.gpus <= pool_.total()) return absl::OkStatus();
    return absl::InvalidArgumentError("job " + std::to_string(r.job.value) + " wants " +
                                      std::to_string(r.gpus) + " GPUs of " +
                                      std::to_string(pool_.total()));
  }
  [[nodiscard]] absl::StatusOr<job_placement> propose(const job_request& r) const {
    APIARY_RETURN_IF_ERROR(check(r));
    job_placement place = pool_.fit(pool_.servers(), r.gpus, max_servers(r.gpus));
    if (place.empty()) return absl::Status(absl::StatusCode::kResourceExhausted, "");
    return place;
  }
  // kAlreadyExists: the job runs. kInvalidArgument: no job id, or not as many devices as it wants.
  // kAborted: they are not idle (any more).
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& place) {
    const std::string job = "job " + std::to_string(r.job.value);
    if (!r.job.valid()) return absl::InvalidArgumentError("a job to commit needs an id");
    if (running_.contains(r.job.value)) return absl::AlreadyExistsError(job + " runs already");
    std::uint32_t gpus = 0;
    for (const placement& p : place) gpus += p.num_devices();
    if (gpus != r.gpus) {
      return absl::InvalidArgumentError(job + " wants " + std::to_string(r.gpus) +
                                        " GPUs, the place has " + std::to_string(gpus));
    }
    if (!pool_.can_take(place)) return absl::AbortedError(job + ": its place is not idle");
    pool_.take(r.job, place);
    running_.try_emplace(r.job.value, place);
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status finish(job_id job) {
    const auto found = running_.find(job.value);
    if (found == running_.end()) {
      return absl::NotFoundError("job " + std::to_string(job.value) + " does not run");
    }
    pool_.give(found->second);
    running_.erase(found);
    return absl::OkStatus();
  }

  [[nodiscard]] absl::Status mark_bad(node_id n) { return set_health(n, false); }
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return set_health(n, true); }
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    if (n.value >= pool_.num_servers()) return jobs;
    for (std::uint32_t d = 0; d < pool_.gpus(n); ++d) {
      if (pool_.owner(n, d).valid()) jobs.push_back(pool_.owner(n, d));
    }
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    return jobs;
  }
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return pool_.idle(); }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool_.total(); }
  [[nodiscard]] const server_pool& pool() const noexcept { return pool_; }

 private:
  explicit server_placer(const server_spec& spec)
      : pool_(spec.gpus, spec.servers_per_rack), anywhere_(spec.anywhere) {
    std::vector<std::uint32_t> sizes = spec.gpus;
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    for (const std::uint32_t size : sizes) {
      largest_.push_back(size + (largest_.empty() ? 0 : largest_.back()));
    }
  }

  // How many servers a job of so many GPUs may span.
  [[nodiscard]] std::uint32_t max_servers(std::uint32_t gpus) const noexcept {
    if (anywhere_) return pool_.num_servers();
    const auto enough = std::lower_bound(largest_.begin(), largest_.end(), gpus);
    return static_cast<std::uint32_t>(enough - largest_.begin()) + 1;
  }
  [[nodiscard]] absl::Status set_health(node_id n, bool healthy) {
    if (n.value >= pool_.num_servers()) {
      return absl::NotFoundError("there is no server " + std::to_string(n.value));
    }
    pool_.set_health(n, healthy);
    return absl::OkStatus();
  }

  server_pool pool_;
  bool anywhere_;
  std::vector<std::uint32_t> largest_;  // GPUs of the 1, 2, ... largest servers
  absl::flat_hash_map<std::uint32_t, job_placement> running_;
};

static_assert(JobPlacer<server_placer>);

APIARY_NAMESPACE_END
