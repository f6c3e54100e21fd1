// apiary/examples/hosts/kubernetes/kubernetes_records.h - Kubernetes' nodes and pods as plain values, and what they mean to apiary.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// The resource that is scheduled. Pods that do not ask for it are not decided here.
inline constexpr const char* gpu_resource = "nvidia.com/gpu";
// What users write at a pod of a gang: the label names the gang, the annotations say how many pods it
// has, and in a cell of which level they must be.
inline constexpr const char* gang_label = "gang";
inline constexpr const char* size_annotation = "apiary/gang-size";
inline constexpr const char* level_annotation = "apiary/required-level";
// What `bind` writes at each pod: the nodes of all pods of its gang, separated by commas.
inline constexpr const char* plan_annotation = "apiary/plan";

using text_map = std::map<std::string, std::string>;

// A level of the cluster: its name, and the node label that has the cells: rack, example.com/rack.
struct level_label {
  std::string name{};
  std::string label{};
};

struct taint_record {
  std::string key{};
  std::string value{};
  std::string effect{};
  friend bool operator==(const taint_record&, const taint_record&) = default;

  [[nodiscard]] std::string text() const { return absl::StrCat(key, "=", value, ":", effect); }
};

struct toleration_record {
  std::string key{};  // empty: all keys
  std::string op{};   // "Exists", or "Equal" and empty
  std::string value{};
  std::string effect{};  // empty: all effects

  [[nodiscard]] bool tolerates(const taint_record& taint) const {
    if (!effect.empty() && effect != taint.effect) return false;
    if (!key.empty() && key != taint.key) return false;
    return op == "Exists" || (!key.empty() && value == taint.value);
  }
};

struct node_record {
  std::string name{};
  text_map labels{};
  std::vector<taint_record>
      taints{};            // without PreferNoSchedule, and without those of Kubernetes itself
  std::uint32_t gpus = 0;  // allocatable
  bool usable = true;      // it is ready, and not cordoned
};

// What the pods of a gang ask for; the same for each of them.
struct gang_shape {
  std::uint32_t pods = 1;
  std::uint32_t gpus = 0;  // of each pod
  std::int32_t priority = 0;
  std::string required_level{};
  friend bool operator==(const gang_shape&, const gang_shape&) = default;

  [[nodiscard]] std::string text() const {
    return absl::StrCat(pods, pods == 1 ? " pod of " : " pods of ", gpus, " GPUs with priority ",
                        priority, required_level.empty() ? "" : " in one ", required_level);
  }
};

struct pod_record {
  std::string uid{};
  std::string name_space{};
  std::string name{};
  std::string gang{};           // of its label; empty: the pod is a gang of its own
  std::uint32_t gang_size = 1;  // pods of its gang
  std::string required_level{};
  std::vector<std::string> plan{};  // nodes of its gang; empty: not bound by an extender
  std::int32_t priority = 0;
  std::uint32_t gpus = 0;
  text_map node_selector{};
  std::vector<toleration_record> tolerations{};
  std::string node{};           // empty: not bound
  apiary::time_ms started = 0;  // since 1970; 0: not known
  bool ending = false;          // it was deleted, and may run for its grace period
  bool ended = false;           // Succeeded or Failed
  std::string gang_fault{};     // why its gang cannot be read; it then counts as a gang of its own

  [[nodiscard]] std::string full_name() const { return absl::StrCat(name_space, "/", name); }
  [[nodiscard]] gang_shape shape() const { return {gang_size, gpus, priority, required_level}; }

  // The key of its gang: "default/gang=train", or "default/train-0" without a gang.
  [[nodiscard]] std::string gang_key() const {
    return gang.empty() ? full_name() : absl::StrCat(name_space, "/", gang_label, "=", gang);
  }
};

// A node of the cluster. Its cells have the names of those above them in front, so racks of different
// blocks may have the same label. A node without a label is a cell of its own.
// kInvalidArgument: the label of a level is empty.
[[nodiscard]] inline absl::StatusOr<apiary::gang_cluster::node> described(
    const node_record& node, const std::vector<level_label>& levels) {
  apiary::gang_cluster::node to{.name = node.name, .gpus = node.gpus};
  std::string above;
  for (std::size_t l = levels.size(); l-- > 0;) {
    const auto at = node.labels.find(levels[l].label);
    const std::string& cell = at == node.labels.end() ? node.name : at->second;
    if (cell.empty())
      return absl::InvalidArgumentError(absl::StrCat(
          "node ", node.name, " is left out: its label \"", levels[l].label, "\" is empty"));
    above = absl::StrCat(above, above.empty() ? "" : "/", cell);
    to.cells.insert(to.cells.begin(), above);
  }
  for (const auto& [key, value] : node.labels) to.labels.push_back(absl::StrCat(key, "=", value));
  for (const taint_record& taint : node.taints) to.taints.push_back(taint.text());
  return to;
}

// The cluster; the lowest level comes first. Nodes that cannot be described are left out.
[[nodiscard]] inline apiary::gang_cluster cluster_of(const std::vector<node_record>& nodes,
                                                     const std::vector<level_label>& levels) {
  apiary::gang_cluster cluster;
  for (const level_label& level : levels) cluster.levels.push_back(level.name);
  for (const node_record& node : nodes)
    if (auto one = described(node, levels); one.ok()) cluster.nodes.push_back(*std::move(one));
  return cluster;
}

// The gang of a pod: `pods` pods like this one. `taints` are all taints of the cluster.
// kNotFound: the cluster has no such level.
[[nodiscard]] inline absl::StatusOr<apiary::gang_scheduler::request> request_of(
    const pod_record& pod, std::uint32_t pods, const apiary::gang_scheduler& cluster,
    const std::vector<taint_record>& taints) {
  apiary::gang_scheduler::request asked{.job = pod.gang_key(), .priority = pod.priority};
  asked.gang.groups = {{.tasks = pods, .gpus = pod.gpus}};
  if (!pod.required_level.empty()) {
    const absl::StatusOr<apiary::level_t> level = cluster.find_level(pod.required_level);
    if (!level.ok())
      return absl::NotFoundError(absl::StrCat("pod ", pod.full_name(), ": ", level_annotation,
                                              " \"", pod.required_level,
                                              "\": the cluster has no such level"));
    asked.gang.required = *level;
  }
  for (const auto& [key, value] : pod.node_selector)
    asked.filter.labels.push_back(absl::StrCat(key, "=", value));
  for (const taint_record& taint : taints)
    for (const toleration_record& toleration : pod.tolerations)
      if (toleration.tolerates(taint)) {
        asked.filter.tolerations.push_back(taint.text());
        break;
      }
  return asked;
}

}  // namespace apiary_kubernetes
