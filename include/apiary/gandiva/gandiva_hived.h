// apiary/gandiva/gandiva_hived.h - Gandiva on HiveD: turns and moves inside tenants' guarantees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>
#include <apiary/topology/locality.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What moves of gangs lower.
enum class gang_measure : std::uint8_t {
  broken,  // broken_leaves(): what is idle lies in whole cells
  spread,  // the cells of each level from the nodes up that the gang lies in, one apart: it is close
           // together
};

struct gang_moves {
  gang_measure measure = gang_measure::broken;
  bool guaranteed = false;   // whether gangs on their tenant's cells move too, to such cells
  std::uint32_t trials = 4;  // gangs tried a tick, in turn
};

// Gangs on a HiveD cluster, for introspection: opportunistic gangs take turns, guaranteed ones are
// served at once, on their tenant's cells. For these every guest in the way is stopped, and gangs of
// lower priority of the tenant as hived chooses; a lazy one of these runs on as a guest, takes no
// turns and is not moved.
//
// A move is what hived answers a gang that asks again: the gang ends, and is admitted where that
// lowers the measure enough and nobody has to go, else where it was. For a guaranteed gang that is
// tried on a copy: going back, it might come to lie in another whole cell of its tenant.
//
// Model: "Gandiva" (OSDI 2018), §3.2; "HiveD" (OSDI 2020), §3: priorities across and inside tenants.
// Cost:  start, stop, restart a propose, commit, finish or recover of hived, with victims two of
//        each; a trial the same and O(leaves of the gang * levels), of a guaranteed gang a copy.
class hived_backend {
 public:
  using request = gang_request;
  using place = std::vector<task_place>;  // of the tasks, in the order of the members

  explicit hived_backend(hived scheduler, const gang_moves& moves = {})
      : scheduler_(std::move(scheduler)), moves_(moves) {}

  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }

  [[nodiscard]] std::int32_t priority(const gang_request& r) const noexcept { return r.priority; }
  [[nodiscard]] bool may_start(const gang_request& r) {
    if (r.suggested != nullptr) return false;
    const absl::StatusOr<gang_plan> plan = scheduler_.propose(r);
    return plan.ok() && plan->result != plan_result::wait;
  }
  // kInvalidArgument: suggested nodes, which a gang that may wait cannot have. Else as
  // hived::propose.
  absl::StatusOr<bool> start(const gang_request& r, std::vector<job_id>& stopped) {
    if (r.suggested != nullptr) {
      return absl::InvalidArgumentError("job " + std::to_string(r.job.value) +
                                        ": a gang that may wait cannot name nodes");
    }
    APIARY_ASSIGN_OR_RETURN(const gang_plan plan, scheduler_.propose(r));
    if (plan.result == plan_result::wait) return false;
    APIARY_VERIFY(scheduler_.commit(plan).ok());
    if (plan.result == plan_result::bind) return true;
    for (const job_id victim : plan.victims) {
      stop(victim);
      stopped.push_back(victim);
    }
    const absl::StatusOr<gang_plan> bound = scheduler_.propose(r);
    APIARY_VERIFY(bound.ok() && bound->result == plan_result::bind &&
                  scheduler_.commit(*bound).ok());
    return true;
  }
  place stop(job_id job) {
    place was = place_of(job);
    APIARY_VERIFY(scheduler_.finish(job).ok());
    return was;
  }
  // Requires: an opportunistic gang.
  bool restart(const gang_request& r, const place& where) {
    APIARY_ASSERT(r.priority < 0);
    return scheduler_.recover(r, where).ok();
  }
  [[nodiscard]] place place_of(job_id job) const {
    const gang_record* gang = scheduler_.find(job);
    APIARY_VERIFY(gang != nullptr);
    return scheduler_.tasks(*gang);
  }
  void improve(std::span<const job_id> movable, const move_limits& limits,
               std::vector<job_id>& moved) {
    move_in_turn(movable, moves_.trials, limits.moves, next_, moved,
                 [&](job_id job) { return try_move(job, limits.cost); });
  }
  absl::Status mark(node_id n, bool healthy) {
    return healthy ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n);
  }
  [[nodiscard]] bool empty() const noexcept { return scheduler_.gangs().size() == 0; }

 private:
  bool try_move(job_id job, std::uint32_t cost) {
    const gang_record& gang = *scheduler_.find(job);
    if (gang.downgraded || (gang.guaranteed() && !moves_.guaranteed)) return false;
    const gang_request r = gang.request;
    const place from = place_of(job);
    if (r.priority >= 0) {
      hived trial = scheduler_;
      if (!leave(trial, r, from, cost)) return false;
    }
    if (const std::optional<gang_plan> plan = leave(scheduler_, r, from, cost)) {
      APIARY_VERIFY(scheduler_.commit(*plan).ok());
      return true;
    }
    APIARY_VERIFY(restart(r, from));
    return false;
  }
  // Ends the gang; where it should be instead, if that pays.
  [[nodiscard]] std::optional<gang_plan> leave(hived& from_here, const gang_request& r,
                                               const place& from, std::uint32_t cost) const {
    APIARY_VERIFY(from_here.finish(r.job).ok());
    absl::StatusOr<gang_plan> plan = from_here.propose(r);
    APIARY_VERIFY(plan.ok());
    if (plan->result != plan_result::bind || !plan->downgraded.empty()) return std::nullopt;
    const std::vector<chain_leaf> old_leaves = leaves_of(from);
    const std::vector<chain_leaf> new_leaves = leaves_of(plan->tasks);
    const std::int64_t gain = moves_.measure == gang_measure::broken
                                  ? broken_gain(from_here, old_leaves, new_leaves)
                                  : spread(old_leaves) - spread(new_leaves);
    const std::int64_t price = std::int64_t{cost} * static_cast<std::int64_t>(old_leaves.size());
    if (gain * 1000 <= price) return std::nullopt;
    return *std::move(plan);
  }

  // Ascending.
  [[nodiscard]] std::vector<chain_leaf> leaves_of(std::span<const task_place> tasks) const {
    std::vector<chain_leaf> all;
    for (const task_place& task : tasks) {
      const chain_id chain = scheduler_.layout().chain_of(task.node);
      const uniform_tree& tree = scheduler_.layout().chain(chain).tree;
      const id_range<cell_id> here = leaves(tree, scheduler_.layout().node_cell(task.node));
      for (std::uint64_t bits = task.leaves; bits != 0; bits &= bits - 1)
        all.push_back({chain.value, here[static_cast<std::uint32_t>(std::countr_zero(bits))]});
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  [[nodiscard]] std::int64_t spread(std::span<const chain_leaf> gang) const {
    const chain_layout& in = scheduler_.layout().chain(chain_id(gang.front().chain));
    std::vector<cell_id> cells;
    for (const chain_leaf& l : gang) cells.push_back(l.leaf);
    std::int64_t sum = 0;
    for (level_t l = in.node_level; l < in.tree.num_levels(); ++l)
      sum += spanned_cells(in.tree, cells, l);
    return sum;
  }
  // By how much broken_leaves() is less with the gang at the one place than at the other; `without`:
  // where it is at neither.
  [[nodiscard]] static std::int64_t broken_gain(const hived& without,
                                                std::span<const chain_leaf> old_leaves,
                                                std::span<const chain_leaf> new_leaves) {
    struct cell_above {
      std::uint32_t chain = 0;
      level_t level = 0;
      cell_id cell{};
      bool is_new = false;
      auto operator<=>(const cell_above&) const noexcept = default;
    };
    std::vector<cell_above> above;
    for (const bool is_new : {false, true}) {
      for (const chain_leaf& l : is_new ? new_leaves : old_leaves) {
        const uniform_tree& tree = without.cells().chain(l.chain).tree();
        cell_id c = l.leaf;
        for (level_t level = 1; level < tree.num_levels(); ++level) {
          c = tree.parent(c, level - 1);
          above.push_back({l.chain, level, c, is_new});
        }
      }
    }
    std::sort(above.begin(), above.end());
    std::int64_t gain = 0;
    for (std::size_t i = 0; i < above.size();) {
      const cell_above& at = above[i];
      std::array<std::uint32_t, 2> taken{};  // at the old place, at the new one
      for (; i < above.size() && above[i].cell == at.cell && above[i].chain == at.chain; ++i)
        ++taken[above[i].is_new ? 1 : 0];
      const std::uint32_t unused = unused_leaves(without, at.chain, at.cell, at.level);
      const std::uint32_t leaves = without.layout().chains[at.chain].tree.leaves_per_cell(at.level);
      if (unused - taken[0] < leaves) gain += unused - taken[0];
      if (unused - taken[1] < leaves) gain -= unused - taken[1];
    }
    return gain;
  }

  hived scheduler_;
  gang_moves moves_;
  job_id next_{0};  // to be tried
};

static_assert(TimeSharingBackend<hived_backend>);

// Gandiva on HiveD.
//
//   gandiva_hived::create(hived_backend(hived::create(config).value()), {.quantum = 60'000})
//
// A guaranteed gang starts as it comes wherever hived would start it: its guests are suspended and
// wait for a turn again. None is ever suspended for a turn, or for another tenant. The state is a
// hived's, and audit(ground().scheduler()) finds nothing wrong with it after every action.
//
// Example: examples/gandiva_hived.cpp
using gandiva_hived = time_sharing<hived_backend>;

APIARY_NAMESPACE_END
