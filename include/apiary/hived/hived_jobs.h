// apiary/hived/hived_jobs.h - makes gangs of a HiveD cluster from jobs of whole GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Makes a gang from a job of whole GPUs: tasks that each fill a node (of the chain with the
// smallest nodes), and one task with the remaining GPUs. A job of priority 0 to 1000 is guaranteed
// and runs on its tenant's cells; a job of priority -1 is opportunistic. With over_quota, a
// guaranteed job may also run as opportunistic, on idle GPUs.
// Cost: fits_cells: a look-up; for the first job of a tenant with this class (guaranteed or not)
//       and number of GPUs one or two hived::propose on empty cells.
class hived_jobs {
 public:
  // Requires: an idle cluster.
  // kInvalidArgument: a node with over 32 leaves, the limit of placements; a host in two chains.
  [[nodiscard]] static absl::StatusOr<hived_jobs> create(hived empty, bool over_quota = true) {
    for (std::uint32_t n = 0; n < empty.layout().num_nodes(); ++n) {
      if (empty.layout().next_of_host(node_id(n)) == node_id(n)) continue;
      return absl::InvalidArgumentError("node " + empty.layout().node_name(node_id(n)) +
                                        " is in several chains; jobs over time need one");
    }
    for (const chain_layout& chain : empty.layout().chains) {
      const std::uint32_t leaves = chain.tree.leaves_per_cell(chain.node_level);
      if (leaves <= std::numeric_limits<decltype(placement::gpu_mask)>::digits) continue;
      return absl::InvalidArgumentError("nodes of " + chain.name + " have " +
                                        std::to_string(leaves) + " leaf cells, more than 32");
    }
    return hived_jobs(std::move(empty), over_quota);
  }
  // Whether guaranteed jobs may also run as opportunistic.
  [[nodiscard]] bool over_quota() const noexcept { return over_quota_; }
  // GPUs of the cluster.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return total_; }
  // GPUs of a node. Requires: there is such a node.
  [[nodiscard]] std::uint32_t gpus(node_id n) const {
    const chain_layout& chain = empty_.layout().chain(empty_.layout().chain_of(n));
    return chain.tree.leaves_per_cell(chain.node_level);
  }
  // GPUs of a tenant's cells, pinned cells excluded. Requires: there is such a tenant.
  [[nodiscard]] std::uint32_t owned(tenant_id t) const { return owned_[t.value]; }
  // The GPUs of the largest tasks.
  [[nodiscard]] std::uint32_t task_gpus() const noexcept { return task_gpus_; }
  // Tenants of the cluster.
  [[nodiscard]] std::uint32_t num_tenants() const noexcept {
    return static_cast<std::uint32_t>(owned_.size());
  }
  // Whether the job fits into its tenant's cells when these are empty and healthy; false if it fits
  // only as opportunistic. kInvalidArgument: 0 GPUs, a priority that is not in -1, ..., 1000, or a
  // job that does not fit at all. kNotFound: no such tenant. kFailedPrecondition: the tenant has no
  // cells, and over_quota is off.
  [[nodiscard]] absl::StatusOr<bool> fits_cells(const job_request& r) {
    const std::string name = detail::name_of(r.job);
    if (r.gpus == 0) return absl::InvalidArgumentError(name + " requests 0 GPUs; the minimum is 1");
    if (r.priority < gang_request::opportunistic_priority ||
        r.priority > gang_request::max_priority) {
      return absl::InvalidArgumentError(name + " has priority " + std::to_string(r.priority) +
                                        "; a priority is -1 to 1000");
    }
    const bool guaranteed = r.priority >= 0;
    const std::tuple key(r.tenant.value, guaranteed, r.gpus);
    if (const auto known = fits_cells_.find(key); known != fits_cells_.end()) return known->second;
    bool own = false;
    if (guaranteed) {
      const absl::StatusOr<gang_plan> plan = empty_.propose(gang_of(r));
      if (!plan.ok() && !(over_quota_ && absl::IsFailedPrecondition(plan.status())))
        return plan.status();
      own = plan.ok() && plan->result == plan_result::bind;
    }
    bool fits = own;
    if (!fits && (!guaranteed || over_quota_)) {
      APIARY_ASSIGN_OR_RETURN(const gang_plan opportunistic, empty_.propose(opportunistic_gang(r)));
      fits = opportunistic.result == plan_result::bind;
    }
    if (!fits) {
      const bool lends = !guaranteed || over_quota_;
      const std::string where = lends ? std::to_string(total_) + " GPUs of the cluster"
                                      : std::to_string(owned_[r.tenant.value]) +
                                            " GPUs of the cells of tenant \"" +
                                            empty_.layout().tenants[r.tenant.value].name + "\"";
      return absl::InvalidArgumentError(name + " requests " + std::to_string(r.gpus) +
                                        " GPUs; they do not fit into the " + where +
                                        " even when all are free");
    }
    fits_cells_.emplace(key, own);
    return own;
  }
  // The last answer of fits_cells for such a job. Requires: it was no error.
  [[nodiscard]] bool known_to_fit_cells(const job_request& r) const {
    return fits_cells_.at({r.tenant.value, r.priority >= 0, r.gpus});
  }
  // Whether the job would fit as opportunistic if no other job ran and these nodes were bad.
  // O(nodes).
  [[nodiscard]] bool fits_without(const job_request& r, const std::vector<bool>& bad) const {
    hived healthy = empty_;
    for (std::uint32_t n = 0; n < bad.size(); ++n) {
      if (bad[n] && !healthy.mark_bad(node_id(n)).ok()) return false;
    }
    const absl::StatusOr<gang_plan> plan = healthy.propose_unexplained(opportunistic_gang(r));
    return plan.ok() && plan->result == plan_result::bind;
  }
  // The gang of the job, with the job's priority.
  [[nodiscard]] gang_request gang_of(const job_request& r) const { return gang(r, r.priority); }
  // The gang of the job as an opportunistic one.
  [[nodiscard]] gang_request opportunistic_gang(const job_request& r) const {
    return gang(r, gang_request::opportunistic_priority);
  }
  // The nodes and GPUs of these tasks, as a job_placement. Several tasks may be on one node.
  [[nodiscard]] static job_placement placement_of(std::span<const hived_placement> tasks) {
    job_placement all;
    for (const hived_placement& t : tasks)
      all.push_back({t.node, static_cast<std::uint32_t>(t.leaves)});
    const auto before = [](const placement& a, const placement& b) { return a.node < b.node; };
    if (!std::is_sorted(all.begin(), all.end(), before)) std::sort(all.begin(), all.end(), before);
    std::size_t nodes = 0;
    for (const placement p : all) {
      if (nodes == 0 || all[nodes - 1].node != p.node) all[nodes++] = {p.node, 0};
      all[nodes - 1].gpu_mask |= p.gpu_mask;
    }
    all.resize(nodes);
    return all;
  }

 private:
  hived_jobs(hived empty, bool over_quota) : over_quota_(over_quota), empty_(std::move(empty)) {
    const hived_layout& layout = empty_.layout();
    owned_.resize(layout.tenants.size());
    for (std::uint32_t c = 0; c < layout.chains.size(); ++c) {
      const uniform_tree& tree = layout.chains[c].tree;
      total_ += tree.num_leaves();
      task_gpus_ = (std::min)(task_gpus_, tree.leaves_per_cell(layout.chains[c].node_level));
      for (std::uint32_t t = 0; t < owned_.size(); ++t) {
        const vc_chain_id own = empty_.cells().cluster_of(tenant_id(t), c);
        if (own.valid()) owned_[t] += empty_.cells().cluster(own).tree().num_leaves();
      }
    }
  }

  [[nodiscard]] gang_request gang(const job_request& r, std::int32_t priority) const {
    gang_request made{.job = r.job, .tenant = r.tenant, .priority = priority};
    if (r.gpus >= task_gpus_) made.groups.push_back({r.gpus / task_gpus_, task_gpus_});
    if (r.gpus % task_gpus_ != 0) made.groups.push_back({1, r.gpus % task_gpus_});
    return made;
  }

  bool over_quota_;
  hived empty_;  // the cluster with nothing in it
  std::uint32_t task_gpus_ = (std::numeric_limits<std::uint32_t>::max)();  // of the largest task
  std::uint32_t total_ = 0;                                                // GPUs
  std::vector<std::uint32_t> owned_;                                       // by tenant
  std::map<std::tuple<std::uint32_t, bool, std::uint32_t>, bool>
      fits_cells_;  // tenant, guaranteed, GPUs
};

APIARY_NAMESPACE_END
