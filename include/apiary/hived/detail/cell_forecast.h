// apiary/hived/detail/cell_forecast.h - whether a gang will fit once other gangs of its tenant end.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/ids.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The leaves that a guaranteed gang uses on each node of its virtual cluster.
struct gang_nodes {
  // Leaves of one node.
  struct use {
    std::uint32_t node = 0;
    std::uint32_t leaves = 0;
    friend bool operator==(const use&, const use&) = default;
  };
  vc_chain_id cluster{};
  std::vector<use> uses{};

  // Those of a gang that runs or has reserved its leaves. Cost: O(leaves).
  [[nodiscard]] static gang_nodes of(const hived_cells& cells, const gang_record& gang) {
    gang_nodes all{gang.cluster, {}};
    const virtual_cluster& cluster = cells.cluster(gang.cluster);
    for (const chain_leaf& l : gang.leaves) {
      const std::uint32_t node = cluster.node_of(cells.chain(l.chain).owner(l.leaf).cell);
      if (all.uses.empty() || all.uses.back().node != node) all.uses.push_back({node, 0});
      ++all.uses.back().leaves;
    }
    return all;
  }
};

// The free leaves of a tenant's nodes at a time to come, and whether a gang fits into them: equal
// tasks, and one smaller task.
// Requires: task groups as hived_jobs makes them, and no topology constraints.
// Cost:     the constructor O(nodes of the tenant), add and remove O(nodes of the gang), fits
//           O(chains).
class cell_forecast {
 public:
  // The leaves that are free now, for a gang of these task groups.
  cell_forecast(const hived_cells& cells, tenant_id tenant, std::span<const task_group> groups)
      : tasks_(groups.front().tasks),
        gpus_(groups.front().gpus),
        rest_(groups.size() > 1 ? groups.back().gpus : 0) {
    APIARY_ASSERT(groups.size() <= 2 && (rest_ == 0 || groups.back().tasks == 1) && rest_ < gpus_);
    for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
      const vc_chain_id id = cells.cluster_of(tenant, c);
      if (!id.valid()) continue;
      const virtual_cluster& from = cells.cluster(id);
      cluster& to = clusters_.emplace_back();
      to.id = id;
      to.free.resize(from.num_nodes(), 0);
      for (std::uint32_t n = 0; n < from.num_nodes(); ++n)
        set(to, n, static_cast<std::uint32_t>(std::popcount(from.free(n))));
    }
  }
  // The gang's leaves are free then.
  void add(const gang_nodes& gang) {
    cluster& c = cluster_of(gang);
    for (const gang_nodes::use& u : gang.uses) set(c, u.node, c.free[u.node] + u.leaves);
  }
  // The gang uses its leaves then. A leaf that was not free stays so.
  void remove(const gang_nodes& gang) {
    cluster& c = cluster_of(gang);
    for (const gang_nodes::use& u : gang.uses) set(c, u.node, c.free[u.node] - u.leaves);
  }
  // Whether the gang of the constructor fits into one chain.
  [[nodiscard]] bool fits() const noexcept {
    return std::any_of(clusters_.begin(), clusters_.end(), [this](const cluster& c) {
      if (rest_ == 0) return c.tasks >= tasks_;
      return c.tasks > tasks_ || (c.tasks == tasks_ && c.rests > 0);
    });
  }

 private:
  // The cells of the tenant in one chain.
  struct cluster {
    vc_chain_id id{};
    std::vector<std::uint32_t> free{};  // leaves by node
    std::uint64_t tasks = 0;            // how many tasks fit
    std::uint32_t rests = 0;            // nodes that can hold the smaller task besides
  };
  [[nodiscard]] cluster& cluster_of(const gang_nodes& gang) {
    return *std::find_if(clusters_.begin(), clusters_.end(),
                         [&](const cluster& c) { return c.id == gang.cluster; });
  }
  void set(cluster& c, std::uint32_t node, std::uint32_t leaves) {
    const auto counts = [&](std::uint32_t n) { return n % gpus_ >= rest_ ? 1U : 0U; };
    c.tasks = c.tasks - c.free[node] / gpus_ + leaves / gpus_;
    c.rests = c.rests - counts(c.free[node]) + counts(leaves);
    c.free[node] = leaves;
  }

  std::uint32_t tasks_;
  std::uint32_t gpus_;
  std::uint32_t rest_;  // GPUs of the smaller task; 0: none
  std::vector<cluster> clusters_;
};

}  // namespace detail
APIARY_NAMESPACE_END
