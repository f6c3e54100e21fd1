// apiary/queue/server_placer.h - places jobs of whole GPUs on the fewest servers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/model/server_spec.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A placer that uses best fit: a job goes to the server with the fewest idle GPUs that are enough,
// a larger one to the fewest servers (alloc/server_pool.h).
// Cost: propose as server_pool::fit; commit and finish O(GPUs of the servers) and a hash look-up.
class server_placer : public job_placer_types {
 public:
  // A placer for an idle cluster. kInvalidArgument: as spec.check().
  [[nodiscard]] static absl::StatusOr<server_placer> create(const server_spec& spec) {
    APIARY_RETURN_IF_ERROR(spec.check());
    return server_placer(spec);
  }

  // kInvalidArgument: no GPUs, or more than the cluster has.
  [[nodiscard]] absl::Status check(const job_request& r) const {
    if (r.gpus > 0 && r.gpus <= pool_.total()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(detail::name_of(r.job), " requests ", r.gpus,
                                                   " GPUs; the cluster has ", pool_.total()));
  }
  // Where the job would run now; nullopt if it does not fit now. kInvalidArgument: as check(r).
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) const {
    APIARY_RETURN_IF_ERROR(check(r));
    job_placement where = pool_.fit(pool_.servers(), r.gpus, max_servers(r.gpus));
    if (where.empty()) return std::nullopt;
    return where;
  }
  // The job runs at `where`. kAlreadyExists: the job runs. kInvalidArgument: no job id, or another
  // number of GPUs than the job wants. kAborted: the GPUs are not idle (any more).
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job to commit needs an id");
    if (running_.contains(r.job.value))
      return absl::AlreadyExistsError(detail::name_of(r.job) + " runs already");
    std::uint32_t gpus = 0;
    for (const placement& p : where) gpus += p.num_gpus();
    if (gpus != r.gpus) {
      return absl::InvalidArgumentError(absl::StrCat(detail::name_of(r.job), " requests ", r.gpus,
                                                     " GPUs; the placement has ", gpus));
    }
    if (!pool_.can_take(where))
      return absl::AbortedError(detail::name_of(r.job) + ": its GPUs are not idle");
    pool_.take(r.job, where);
    running_.try_emplace(r.job.value, where);
    return absl::OkStatus();
  }
  // The job has ended. kNotFound: it does not run.
  [[nodiscard]] absl::Status finish(job_id job) {
    const auto found = running_.find(job.value);
    if (found == running_.end()) {
      return absl::NotFoundError(job.valid() ? detail::name_of(job) + " does not run"
                                             : detail::missing(job));
    }
    pool_.give(found->second);
    running_.erase(found);
    return absl::OkStatus();
  }

  // The server gets no new job; its jobs continue. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_bad(node_id n) { return set_health(n, false); }
  // The server gets new jobs again. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return set_health(n, true); }
  // The jobs on the server, ascending.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    if (n.value >= pool_.num_servers()) return jobs;
    for (std::uint32_t d = 0; d < pool_.gpus(n); ++d) {
      if (pool_.owner(n, d).valid()) jobs.push_back(pool_.owner(n, d));
    }
    detail::sort_unique(jobs);
    return jobs;
  }
  // Idle GPUs on healthy servers.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return pool_.idle(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool_.total(); }
  // The servers and their GPUs.
  [[nodiscard]] const server_pool& pool() const noexcept { return pool_; }

 private:
  explicit server_placer(const server_spec& spec)
      : pool_(spec.gpus, spec.servers_per_rack), anywhere_(spec.anywhere) {}
  // How many servers a job of so many GPUs may span.
  [[nodiscard]] std::uint32_t max_servers(std::uint32_t gpus) const noexcept {
    return anywhere_ ? pool_.num_servers() : pool_.fewest_servers(gpus);
  }
  [[nodiscard]] absl::Status set_health(node_id n, bool healthy) {
    if (n.value >= pool_.num_servers()) {
      return absl::NotFoundError(absl::StrCat("there is no server ", n.value));
    }
    pool_.set_health(n, healthy);
    return absl::OkStatus();
  }

  server_pool pool_;
  bool anywhere_;
  std::unordered_map<std::uint32_t, job_placement> running_;
};

static_assert(JobPlacer<server_placer>);

APIARY_NAMESPACE_END
