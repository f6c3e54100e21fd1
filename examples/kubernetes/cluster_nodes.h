// apiary/examples/kubernetes/cluster_nodes.h - keeps the nodes of a gang scheduler as Kubernetes lists them.
// SPDX-License-Identifier: MIT
#pragma once

#include "kubernetes_records.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

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
    std::set<std::string> listed;
    for (const node_record& node : nodes) {
      for (const taint_record& taint : node.taints)
        if (std::find(taints_.begin(), taints_.end(), taint) == taints_.end())
          taints_.push_back(taint);
      listed.insert(node.name);
      if (!change(cluster, described(node, levels_), log)) continue;
      names_.insert(node.name);
      set_health(cluster, node.name, node.usable, log);
    }
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
  // The taints of all nodes, each once.
  [[nodiscard]] const std::vector<taint_record>& taints() const noexcept { return taints_; }

 private:
  // Whether the cluster has the node now, perhaps still as it was.
  bool change(apiary::gang_scheduler& cluster, const apiary::gang_cluster::node& wanted,
              std::vector<std::string>& log) {
    if (const auto id = cluster.find_node(wanted.name); id.ok()) {
      apiary::gang_cluster::node now = *cluster.node(*id);
      if (now == wanted) return true;
      now.gpus = wanted.gpus;
      if (now == wanted) {
        cluster.resize_node(*id, wanted.gpus, wanted.host).IgnoreError();
        return true;
      }
      if (!cluster.remove_node(*id).ok()) return true;  // gangs run on it
      names_.erase(wanted.name);
      bad_.erase(wanted.name);
    }
    const auto added = cluster.add_node(wanted);
    log.push_back(added.ok() ? absl::StrCat("node ", wanted.name, " joins")
                             : absl::StrCat("error ", std::string(added.status().message())));
    return added.ok();
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
  std::set<std::string> names_;  // the nodes of the cluster
  std::set<std::string> bad_;    // those that are not usable
};

}  // namespace apiary_kubernetes
