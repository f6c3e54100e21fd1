// apiary/gandiva/detail/placer_backend.h - jobs over any placer, for introspection.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/job_placer.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Jobs of whole GPUs, all of which take turns, wherever a placer sends them: when they come, and
// when they move. Their priorities do not count.
//
// A move is what the placer answers a job that asks again: the job goes there if it is then on fewer
// servers (locality: spanned_cells() at their level), or on as many and the cluster's fragmentation
// falls by more than the move costs; else it runs on where it was. Some jobs a tick are tried, in turn.
//
// Model: "Gandiva" (OSDI 2018), §3.2, over the measure of "Beware of Fragmentation" (ATC 2023), §3.
// Cost:  start, stop, restart a propose, commit or finish of the placer; a trial all of these and
//        fragmentation::weighted() of each server of the job, there and here.
template <JobPlacer Placer>
class placer_backend {
 public:
  using request = job_request;
  using place = job_placement;

  // servers: the placer's. metric: what the moves lower, of tasks of whole GPUs without CPU.
  // Requires: nothing runs there, and nothing is marked bad.
  placer_backend(Placer placer, const server_spec& servers, fragmentation metric,
                 std::uint32_t trials = 4)
      : placer_(std::move(placer)), metric_(std::move(metric)), trials_(trials) {
    for (const std::uint32_t gpus : servers.gpus) nodes_.add({.gpus = gpus});
  }

  [[nodiscard]] const Placer& placer() const noexcept { return placer_; }
  // What is idle of each server, bad ones included.
  [[nodiscard]] const node_table& nodes() const noexcept { return nodes_; }

  [[nodiscard]] std::int32_t priority(const job_request& /*r*/) const noexcept { return -1; }
  [[nodiscard]] bool may_start(const job_request& r) {
    return r.job.valid() && placer_.propose(r).ok();
  }
  // kInvalidArgument: no job id. Else as the placer's propose().
  absl::StatusOr<bool> start(const job_request& r, std::vector<job_id>& /*stopped*/) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    const absl::StatusOr<job_placement> where = placer_.propose(r);
    if (absl::IsResourceExhausted(where.status())) return false;
    APIARY_RETURN_IF_ERROR(where.status());
    APIARY_VERIFY(restart(r, *where));
    return true;
  }
  job_placement stop(job_id job) {
    const auto found = running_.find(job.value);
    APIARY_VERIFY(found != running_.end() && placer_.finish(job).ok());
    job_placement was = std::move(found->second.where);
    running_.erase(found);
    for (const placement& p : was) nodes_[p.node] = with(p, false);
    return was;
  }
  bool restart(const job_request& r, const job_placement& where) {
    // A job that ran on a server gone bad since may run on there.
    const auto mark_bad_ones = [&](bool healthy) {
      for (const placement& p : where) {
        if (!nodes_[p.node].healthy) APIARY_VERIFY(mark_placer(p.node, healthy).ok());
      }
    };
    mark_bad_ones(true);
    const bool runs = placer_.commit(r, where).ok();
    mark_bad_ones(false);
    if (!runs) return false;
    for (const placement& p : where) nodes_[p.node] = with(p, true);
    running_.try_emplace(r.job.value, running{r, where});
    return true;
  }
  [[nodiscard]] job_placement place_of(job_id job) const { return running_.at(job.value).where; }
  void improve(std::span<const job_id> movable, const move_limits& limits,
               std::vector<job_id>& moved) {
    move_in_turn(movable, trials_, limits.moves, next_, moved,
                 [&](job_id job) { return try_move(job, limits.cost); });
  }
  absl::Status mark(node_id n, bool healthy) {
    APIARY_RETURN_IF_ERROR(mark_placer(n, healthy));
    nodes_[n].healthy = healthy;
    return absl::OkStatus();
  }
  [[nodiscard]] bool empty() const noexcept { return placer_.idle_gpus() == placer_.total_gpus(); }

 private:
  struct running {
    job_request asked;
    job_placement where;
  };

  [[nodiscard]] absl::Status mark_placer(node_id n, bool healthy) {
    return healthy ? placer_.mark_healthy(n) : placer_.mark_bad(n);
  }
  // The server when these devices have been taken, or given back.
  [[nodiscard]] node_state with(const placement& p, bool taken) const noexcept {
    node_state node = nodes_[p.node];
    for (std::uint32_t mask = p.device_mask; mask != 0; mask &= mask - 1)
      node.gpu_left[static_cast<std::size_t>(std::countr_zero(mask))] = taken ? 0 : whole_gpu;
    return node;
  }
  // What a job at the place, where it is not yet, adds to W * F of the cluster.
  [[nodiscard]] std::int64_t added(const job_placement& where) const noexcept {
    std::int64_t sum = 0;
    for (const placement& p : where) {
      sum += static_cast<std::int64_t>(metric_.weighted(with(p, true)));
      sum -= static_cast<std::int64_t>(metric_.weighted(nodes_[p.node]));
    }
    return sum;
  }
  bool try_move(job_id job, std::uint32_t cost) {
    const job_request r = running_.at(job.value).asked;
    const job_placement from = stop(job);
    const absl::StatusOr<job_placement> to = placer_.propose(r);
    const bool moves = to.ok() && pays(from, *to, r.gpus, cost);
    APIARY_VERIFY(restart(r, moves ? *to : from));
    return moves;
  }
  [[nodiscard]] bool pays(const job_placement& from, const job_placement& to, std::uint32_t gpus,
                          std::uint32_t cost) const noexcept {
    if (to.size() != from.size()) return to.size() < from.size();
    const std::int64_t gain = added(from) - added(to);
    if (gain <= 0) return false;
    const std::uint64_t unit = metric_.total_weight() * gpus;  // above 0 where anything is gained
    const std::uint64_t paid = static_cast<std::uint64_t>(gain) / unit;
    return paid > cost || (paid == cost && static_cast<std::uint64_t>(gain) % unit > 0);
  }

  Placer placer_;
  node_table nodes_;
  fragmentation metric_;
  std::uint32_t trials_;
  absl::flat_hash_map<std::uint32_t, running> running_;
  job_id next_{0};  // to be tried
};

static_assert(TimeSharingBackend<placer_backend<server_placer>>);

}  // namespace detail
APIARY_NAMESPACE_END
