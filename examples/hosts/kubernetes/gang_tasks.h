// apiary/examples/hosts/kubernetes/gang_tasks.h - the nodes of a gang, and which of its pods has which.
// SPDX-License-Identifier: MIT
#pragma once

#include "../lowest_free_gpus.h"
#include "kubernetes_records.h"
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>

#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// One pod of a gang: its node, and the pod that has it.
struct task_record {
  std::string node{};
  std::uint32_t gpus = 0;
  std::string uid{};   // empty: no pod has come for it
  bool bound = false;  // the pod is bound to the node

  // No pod has it any more.
  void release() {
    uid.clear();
    bound = false;
  }
};

// The tasks of a gang that has nodes, or that has reserved them.
struct gang_tasks {
  std::vector<task_record> tasks{};
  gang_shape shape{};         // as its first pod said
  apiary::time_ms since = 0;  // when it was decided

  // The nodes, separated by commas.
  [[nodiscard]] std::string nodes() const {
    return absl::StrJoin(tasks, ",", [](std::string* to, const task_record& t) { *to += t.node; });
  }
  [[nodiscard]] bool any_bound() const {
    return std::any_of(tasks.begin(), tasks.end(), [](const task_record& t) { return t.bound; });
  }
  // The task of the pod; null if it has none.
  [[nodiscard]] const task_record* find(const std::string& uid) const {
    const auto at = std::find_if(tasks.begin(), tasks.end(),
                                 [&](const task_record& t) { return t.uid == uid; });
    return at == tasks.end() ? nullptr : &*at;
  }
  [[nodiscard]] task_record* find(const std::string& uid) {
    return const_cast<task_record*>(std::as_const(*this).find(uid));
  }
  // Gives the pod a task that `suits` accepts: its own, else the first that no pod has, else that of a
  // pod that is not bound, which gets another one for it. Null: there is none.
  template <class Suits>
  const task_record* take(const std::string& uid, const Suits& suits) {
    task_record* const own = find(uid);
    task_record* const first_free = find("");
    if (own != nullptr && suits(*own)) return own;
    task_record* there = nullptr;
    for (task_record& t : tasks) {
      const bool free = t.uid.empty();
      if (t.bound || !suits(t) || (!free && own == nullptr && first_free == nullptr)) continue;
      if (there == nullptr || (free && !there->uid.empty())) there = &t;
    }
    if (there == nullptr) return nullptr;
    if (own == nullptr && !there->uid.empty()) first_free->uid = there->uid;
    if (own != nullptr) {
      own->bound = false;
      std::swap(own->uid, there->uid);
    }
    there->uid = uid;
    return there;
  }
  // Binds the pod to the node. It may take the task of another pod that is not bound, and gives that
  // one its own. False: no task on the node is left.
  bool bind(const std::string& uid, const std::string& node) {
    task_record* const own = find(uid);
    task_record* there = nullptr;
    if (own != nullptr && own->node == node) {
      there = own;
    } else if (own == nullptr || !own->bound) {
      for (task_record& t : tasks)
        if (t.node == node && !t.bound && (there == nullptr || t.uid.empty())) there = &t;
    }
    if (there == nullptr) return false;
    if (own != nullptr)
      std::swap(own->uid, there->uid);
    else
      there->uid = uid;
    there->bound = true;
    return true;
  }
};

// Adds a gang that has these nodes to the scheduler; the task groups of the request are replaced. False:
// a node does not exist, or has no GPUs left for a task.
inline bool recover(apiary::gang_scheduler& cluster, apiary::gang_scheduler::request asked,
                    const gang_tasks& gang) {
  std::vector<apiary::constrained_task_group>& groups = asked.gang.groups;
  groups.clear();
  std::vector<apiary::placement> placements;
  for (const task_record& t : gang.tasks) {
    const auto node = cluster.find_node(t.node);
    if (!node.ok()) return false;
    const auto mask = lowest_free_gpus(cluster, *node, t.gpus, placements);
    if (!mask) return false;
    placements.push_back({*node, *mask});
    if (groups.empty() || groups.back().gpus != t.gpus)
      groups.push_back({.tasks = 0, .gpus = t.gpus});
    ++groups.back().tasks;
  }
  return cluster.recover(asked, placements, gang.since).ok();
}

}  // namespace apiary_kubernetes
