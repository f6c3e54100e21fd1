// apiary/examples/hosts/kubernetes/cluster_nodes.h - keeps the nodes of a gang scheduler as Kubernetes lists them.
// SPDX-License-Identifier: MIT
#pragma once

#include "kubernetes_records.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// Nodes join, leave, change, break and return. A node on which gangs run leaves or changes its labels
// when they have ended.
class cluster_nodes {
 public:
  explicit cluster_nodes(std::vector<level_label> levels) : levels_(std::move(levels)) {}

  // Changes the cluster to what is listed; appends a line to the log for each change.
  void update(apiary::gang_scheduler& cluster, const std::vector<node_record>& nodes,
              std::vector<std::string>& log) {
    taints_.clear();
    std::set<std::string> listed, faults;
    for (const node_record& node : nodes) {
      for (const taint_record& taint : node.taints)
        if (std::find(taints_.begin(), taints_.end(), taint) == taints_.end())
          taints_.push_back(taint);
      const auto wanted = described(node, levels_);
      const absl::Status done = wanted.ok() ? change(cluster, *wanted, log) : wanted.status();
      if (!done.ok()) {
        const std::string fault = absl::StrCat("error ", std::string(done.message()));
        if (faults.insert(fault).second && !faults_.contains(fault)) log.push_back(fault);
        continue;
      }
      listed.insert(node.name);
      names_.insert(node.name);
      set_health(cluster, node.name, node.usable, log);
    }
    faults_ = std::move(faults);
    std::erase_if(names_, [&](const std::string& name) {
      if (listed.contains(name)) return false;
      if (!cluster.remove_node(*cluster.find_node(name)).ok()) {
        set_health(cluster, name, false, log);
        return false;
      }
      bad_.erase(name);
      log.push_back(absl::StrCat("node ", name, " leaves"));
      return true;
    });
  }
  [[nodiscard]] bool contains(const std::string& name) const { return names_.contains(name); }
  // Whether the node is not ready, cordoned, or about to leave.
  [[nodiscard]] bool is_bad(const std::string& name) const { return bad_.contains(name); }
  // The taints of all nodes, each once.
  [[nodiscard]] const std::vector<taint_record>& taints() const noexcept { return taints_; }

 private:
  // OK: the cluster has the node now, perhaps still as it was.
  absl::Status change(apiary::gang_scheduler& cluster, const apiary::gang_cluster::node& wanted,
                      std::vector<std::string>& log) {
    if (const auto id = cluster.find_node(wanted.name); id.ok()) {
      apiary::gang_cluster::node now = *cluster.node(*id);
      if (now == wanted) return absl::OkStatus();
      now.gpus = wanted.gpus;
      if (now == wanted) {
        cluster.resize_node(*id, wanted.gpus, wanted.host).IgnoreError();
        return absl::OkStatus();
      }
      if (!cluster.remove_node(*id).ok()) return absl::OkStatus();  // gangs run on it
      names_.erase(wanted.name);
      bad_.erase(wanted.name);
    }
    const absl::Status added = cluster.add_node(wanted).status();
    if (added.ok()) log.push_back(absl::StrCat("node ", wanted.name, " joins"));
    return added;
  }
  void set_health(apiary::gang_scheduler& cluster, const std::string& name, bool usable,
                  std::vector<std::string>& log) {
    if (usable ? bad_.erase(name) == 0 : !bad_.insert(name).second) return;
    const apiary::node_id id = *cluster.find_node(name);
    (usable ? cluster.mark_healthy(id) : cluster.mark_bad(id)).IgnoreError();
    log.push_back(absl::StrCat("node ", name, usable ? " returns" : " is bad"));
  }

  std::vector<level_label> levels_;
  std::vector<taint_record> taints_;
  std::set<std::string> names_;   // the nodes of the cluster
  std::set<std::string> bad_;     // those that are not usable
  std::set<std::string> faults_;  // of the last list; each is logged once
};

}  // namespace apiary_kubernetes
