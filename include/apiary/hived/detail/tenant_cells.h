// apiary/hived/detail/tenant_cells.h - the free leaves of a tenant's cells, counted by node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cells of one tenant with the guaranteed gangs that run there, for placer_forecast: it says
// whether a gang fits, but not where. A gang fits if one chain has enough nodes with enough leaves
// that no gang of at least its priority uses.
// Requires: nodes of at most 32 leaves, gangs as hived_jobs makes them, no topology constraints.
// Cost:     propose O(32 * chains), the first time for a priority O(nodes + gangs). commit and
//           finish O(nodes of the gang * priorities). measure O(nodes).
class tenant_cells {
 public:
  // A gang: equal tasks, and one smaller task.
  struct request {
    job_id job{};
    std::int32_t priority = 0;  // it suspends running gangs below its priority
    std::uint32_t tasks = 0;
    std::uint32_t gpus = 0;
    std::uint32_t rest = 0;  // GPUs of the smaller task; 0: none
  };
  // Leaves of one node that a gang uses. Nodes of all chains of the tenant are numbered.
  struct use {
    std::uint32_t node = 0;
    std::uint32_t leaves = 0;
    friend bool operator==(const use&, const use&) = default;
  };
  using placement_type = std::vector<use>;  // ascending by node

  tenant_cells(const hived_cells& cells, tenant_id tenant) {
    for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
      const vc_chain_id id = cells.cluster_of(tenant, c);
      if (!id.valid()) continue;
      chains_.push_back({id, static_cast<std::uint32_t>(leaves_.size())});
      leaves_.resize(leaves_.size() + cells.cluster(id).num_nodes());
    }
    taken_.resize(leaves_.size());
    measure(cells);
  }
  // The gang of a job of so many GPUs in tasks of at most `task_gpus`.
  [[nodiscard]] static request request_of(job_id job, std::int32_t priority, std::uint32_t gpus,
                                          std::uint32_t task_gpus) noexcept {
    if (gpus <= task_gpus) return {job, priority, 1, gpus, 0};
    return {job, priority, gpus / task_gpus, task_gpus, gpus % task_gpus};
  }
  // The leaves of a guaranteed gang that runs or has reserved them. Cost: O(leaves) if they are in
  // the order of their nodes; otherwise O(leaves log leaves).
  [[nodiscard]] placement_type nodes_of(const hived_cells& cells, const gang_record& record) const {
    const virtual_cluster& cluster = cells.cluster(record.cluster);
    const auto chain = std::find_if(chains_.begin(), chains_.end(),
                                    [&](const chain_nodes& c) { return c.id == record.cluster; });
    std::vector<std::uint32_t> nodes;  // of each leaf
    for (const chain_leaf& l : record.leaves)
      nodes.push_back(chain->first + cluster.node_of(cells.chain(l.chain).owner(l.leaf).cell));
    if (!std::is_sorted(nodes.begin(), nodes.end())) std::sort(nodes.begin(), nodes.end());
    placement_type all;
    for (const std::uint32_t node : nodes) {
      if (all.empty() || all.back().node != node) all.push_back({node, 0});
      ++all.back().leaves;
    }
    return all;
  }
  // A gang uses these leaves from now on, or does not any more: measure() counts them.
  void take(const placement_type& where) {
    for (const use& u : where) taken_[u.node] += u.leaves;
  }
  void give(const placement_type& where) {
    for (const use& u : where) taken_[u.node] -= u.leaves;
  }
  // Hardware broke or was repaired, or cells were bound around bad hardware. Returns whether the
  // leaves of a node have changed. Requires: no gang was committed.
  bool measure(const hived_cells& cells) {
    std::vector<std::uint32_t> leaves = taken_;
    for (const chain_nodes& c : chains_) {
      const virtual_cluster& cluster = cells.cluster(c.id);
      for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n)
        leaves[c.first + n] += static_cast<std::uint32_t>(std::popcount(cluster.free(n)));
    }
    std::swap(leaves, leaves_);
    return leaves != leaves_;
  }

  // Whether the gang fits: a placement without nodes, or nullopt.
  [[nodiscard]] absl::StatusOr<std::optional<placement_type>> propose(const request& r) {
    const level& at = level_of(r.priority);
    const auto fits_into = [&](const counts& nodes) {
      std::uint32_t tasks = 0;
      std::uint32_t with_rest = 0;  // if one node has the smaller task
      for (std::uint32_t free = 1; free < nodes.size(); ++free) {
        tasks += nodes[free] * (free / r.gpus);
        if (free >= r.rest) with_rest += nodes[free] * ((free - r.rest) / r.gpus + 1);
      }
      return tasks >= r.tasks && (r.rest == 0 || with_rest > r.tasks);
    };
    if (std::none_of(at.nodes.begin(), at.nodes.end(), fits_into)) return std::nullopt;
    return placement_type();
  }
  // The gang runs there from now on. Requires: it does not run.
  absl::Status commit(const request& r, const placement_type& where) {
    const gang& added = running_[r.job.value] = {r.priority, where};
    for (level& l : levels_) change(l, added, 1);
    return absl::OkStatus();
  }
  // It does not run any more. Requires: it runs.
  absl::Status finish(job_id job) {
    const auto found = running_.find(job.value);
    for (level& l : levels_) change(l, found->second, 0U - 1);
    running_.erase(found);
    return absl::OkStatus();
  }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept {
    return static_cast<std::uint32_t>(32 * leaves_.size());
  }

 private:
  static constexpr std::size_t max_levels = 32;
  struct chain_nodes {
    vc_chain_id id{};
    std::uint32_t first = 0;  // node
  };
  struct gang {
    std::int32_t priority = 0;
    placement_type where{};
  };
  using counts = std::array<std::uint32_t, 33>;
  // What is free for gangs of one priority.
  struct level {
    std::int32_t priority = 0;
    std::vector<std::uint32_t> used{};  // leaves of each node; more than it has if some are bad
    std::vector<counts> nodes{};        // of each chain, by their free leaves
  };

  [[nodiscard]] std::uint32_t free(const level& l, std::uint32_t node) const noexcept {
    return leaves_[node] - (std::min)(leaves_[node], l.used[node]);
  }
  [[nodiscard]] counts& counts_of(level& l, std::uint32_t node) const noexcept {
    std::size_t chain = chains_.size() - 1;
    while (chains_[chain].first > node) --chain;
    return l.nodes[chain];
  }
  // Adds the leaves of a gang to those in use, so many times.
  void change(level& l, const gang& g, std::uint32_t times) const {
    if (g.priority < l.priority) return;
    for (const use& u : g.where) {
      counts& nodes = counts_of(l, u.node);
      --nodes[free(l, u.node)];
      l.used[u.node] += times * u.leaves;
      ++nodes[free(l, u.node)];
    }
  }
  [[nodiscard]] const level& level_of(std::int32_t priority) {
    for (const level& l : levels_) {
      if (l.priority == priority) return l;
    }
    if (levels_.size() == max_levels) levels_.erase(levels_.begin());
    level made{priority, std::vector<std::uint32_t>(leaves_.size()),
               std::vector<counts>(chains_.size())};
    for (std::uint32_t n = 0; n < leaves_.size(); ++n) ++counts_of(made, n)[leaves_[n]];
    for (const auto& [job, g] : running_) change(made, g, 1);
    return levels_.emplace_back(std::move(made));
  }

  std::vector<chain_nodes> chains_;
  std::vector<std::uint32_t> leaves_;  // of each node, that can be used if no gang runs
  std::vector<std::uint32_t> taken_;   // leaves of each node, by take()
  std::unordered_map<std::uint32_t, gang> running_;
  std::vector<level> levels_;  // of the priorities that were asked for
};

}  // namespace detail
APIARY_NAMESPACE_END
