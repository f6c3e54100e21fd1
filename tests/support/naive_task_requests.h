// apiary/tests/support/naive_task_requests.h - gangs on shared GPUs by trying every device for every task.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <support/naive_constraints.h>
#include <vector>

namespace apiary_test {

// Tasks of a task group in the order of their nodes, each on every device that it can take.
class every_device {
 public:
  using cost_type =
      std::function<std::int64_t(const apiary::node_state&, const apiary::node_state&)>;

  // `rules`: a cluster of the same shape whose nodes can hold everything.
  every_device(const apiary::node_table& nodes, const test_cluster& rules,
               const apiary::topology_constraints& gang, cost_type cost)
      : before_(nodes), nodes_(nodes), rules_(rules), gang_(gang), cost_(std::move(cost)) {}

  // The least cost of all placements within one cell of the level; nullopt if there is none.
  std::optional<std::int64_t> operator()(apiary::level_t within) {
    within_ = within;
    best_.reset();
    begun_.assign(gang_.groups.size(), {});
    place(0);
    return best_;
  }
  // Of a placement; nullopt if it cannot be taken or breaks a rule.
  std::optional<std::int64_t> cost_of(std::span<const apiary::task_placement> places,
                                      apiary::level_t within) {
    nodes_ = before_;
    begun_.assign(gang_.groups.size(), {});
    for (const apiary::task_placement& p : places) {
      if (p.group >= gang_.groups.size()) return std::nullopt;
      const apiary::task_request task = gang_.groups[p.group].task();
      if (!nodes_.can_place(task, p.where)) return std::nullopt;
      nodes_.place(task, p.where);
      begun_[p.group].push_back(p.where.node.value);
    }
    const bool kept = meets_constraints(rules_, gang_, begun_, within);
    const std::int64_t cost = total();
    nodes_ = before_;
    return kept ? std::optional(cost) : std::nullopt;
  }

 private:
  [[nodiscard]] std::int64_t total() const {
    std::int64_t sum = 0;
    for (const apiary::node_id n : nodes_.ids())
      if (!(nodes_[n] == before_[n])) sum += cost_(before_[n], nodes_[n]);
    return sum;
  }
  void place(std::size_t m) {
    if (m == gang_.groups.size()) {
      if (!meets_constraints(rules_, gang_, begun_, within_)) return;
      const std::int64_t cost = total();
      if (!best_ || cost < *best_) best_ = cost;
      return;
    }
    if (begun_[m].size() == gang_.groups[m].tasks) return place(m + 1);
    const apiary::task_request task = gang_.groups[m].task();
    for (std::uint32_t n = begun_[m].empty() ? 0 : begun_[m].back(); n < nodes_.size(); ++n) {
      const apiary::node_state& node = nodes_[apiary::node_id(n)];
      if (!node.fits(task)) continue;
      begun_[m].push_back(n);
      if (!task.wants_part_of_gpu()) {
        const std::uint32_t devices = task.wants_gpu() ? node.first_free_gpus(task.gpus) : 0;
        put(m, task, {apiary::node_id(n), devices});
      } else {
        for (std::uint32_t d = 0; d < node.gpus; ++d)
          if (node.gpu_left[d] >= task.gpu_milli)
            put(m, task, {apiary::node_id(n), std::uint32_t{1} << d});
      }
      begun_[m].pop_back();
    }
  }
  void put(std::size_t m, const apiary::task_request& task, apiary::placement where) {
    nodes_.place(task, where);
    place(m);
    nodes_.remove(task, where);
  }

  apiary::node_table before_;
  apiary::node_table nodes_;
  const test_cluster& rules_;
  const apiary::topology_constraints& gang_;
  cost_type cost_;
  apiary::level_t within_ = 0;
  assignment begun_;
  std::optional<std::int64_t> best_;
};

}  // namespace apiary_test
