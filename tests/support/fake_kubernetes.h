// apiary/tests/support/fake_kubernetes.h - a Kubernetes as far as an extender sees it: API server and kube-scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../examples/hosts/kubernetes/gang_extender.h"
#include "../../examples/hosts/kubernetes/kubernetes_records.h"

#include <absl/strings/str_split.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

// Eight nodes of eight GPUs in racks of two and blocks of four, as in the recordings.
[[nodiscard]] inline std::vector<apiary_kubernetes::node_record> kubernetes_nodes() {
  std::vector<apiary_kubernetes::node_record> nodes;
  for (int n = 0; n < 8; ++n)
    nodes.push_back({.name = "n" + std::to_string(n),
                     .labels = {{"rack", "rack" + std::to_string(n / 2)},
                                {"block", "block" + std::to_string(n / 4)}},
                     .gpus = 8});
  return nodes;
}
[[nodiscard]] inline std::vector<apiary_kubernetes::level_label> kubernetes_levels() {
  return {{"rack", "rack"}, {"block", "block"}};
}

// Plays the API server and kube-scheduler: it counts GPUs itself, offers the nodes that have enough,
// and binds and evicts as the extender answers. Each eviction takes effect at once.
class fake_kubernetes {
 public:
  std::vector<apiary_kubernetes::node_record> nodes = kubernetes_nodes();
  std::vector<apiary_kubernetes::pod_record> pods{};
  std::vector<std::string> evicted{};  // by name, in their order
  apiary::time_ms now = 0;

  fake_kubernetes() { restart(); }
  // Kills the extender; the next one knows what the API server lists.
  void restart() {
    auto made = apiary_kubernetes::gang_extender::create(nodes, kubernetes_levels());
    REQUIRE(made.ok());
    extender_.emplace(*std::move(made));
    update();
  }
  [[nodiscard]] apiary_kubernetes::gang_extender& extender() { return *extender_; }

  // Pods of a gang: train-0, train-1, ...; a pod alone has the name of the gang.
  void submit(const std::string& gang, std::uint32_t size, std::uint32_t gpus,
              std::int32_t priority = 0, const std::string& level = "") {
    for (std::uint32_t i = 0; i < size; ++i)
      pods.push_back({.uid = "uid" + std::to_string(++uids_),
                      .name_space = "default",
                      .name = size == 1 ? gang : gang + "-" + std::to_string(i),
                      .gang = size == 1 ? "" : gang,
                      .gang_size = size,
                      .required_level = level,
                      .priority = priority,
                      .gpus = gpus});
  }
  [[nodiscard]] apiary_kubernetes::pod_record* find(const std::string& name) {
    for (apiary_kubernetes::pod_record& pod : pods)
      if (pod.name == name) return &pod;
    return nullptr;
  }
  // The node of the pod; "" if it waits, "none" if there is no such pod.
  [[nodiscard]] std::string node_of(const std::string& name) {
    const auto* const pod = find(name);
    return pod == nullptr ? "none" : pod->node;
  }
  void end(const std::string& name) {
    std::erase_if(pods, [&](const auto& pod) { return pod.name == name; });
  }

  // What kube-scheduler does with a waiting pod: filter, then bind or preempt. Returns why it waits.
  std::string schedule(const std::string& name) {
    ++now;
    const apiary_kubernetes::pod_record pod = *find(name);
    std::string why = "no node has so many free GPUs";
    if (const auto offered = nodes_for(pod, false); !offered.empty()) {
      const auto answer = extender_->filter(pod, offered, now);
      check();
      if (!answer.ok()) return std::string(answer.status().message());
      CHECK(answer->nodes.size() + answer->failed.size() == offered.size());
      CHECK(answer->nodes.size() <= 1);
      for (const std::string& node : answer->nodes) {
        CHECK(std::find(offered.begin(), offered.end(), node) != offered.end());
        const auto bound = extender_->bind(pod.uid, node);
        REQUIRE(bound.ok());
        find(name)->node = node;
        find(name)->plan = absl::StrSplit(bound->plan, ',');
        find(name)->started = now;
        check();
        return "";
      }
      why = answer->failed.begin()->second;
    }
    if (const auto offered = nodes_for(pod, true); !offered.empty()) {
      update();  // as the service does
      const auto answer = extender_->preempt(pod, offered, now);
      check();
      if (!answer.ok()) return std::string(answer.status().message());
      CHECK(answer->size() <= 1);
      for (const auto& [node, uids] : *answer) {
        CHECK(std::find(offered.begin(), offered.end(), node) != offered.end());
        for (const std::string& uid : uids) evict(uid, node);
      }
    }
    return why;
  }
  // One attempt for each waiting pod, the highest priority first; then the extender's next update.
  void round() {
    std::vector<std::pair<std::int32_t, std::string>> waiting;
    for (const auto& pod : pods)
      if (pod.node.empty()) waiting.emplace_back(-pod.priority, pod.name);
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [priority, name] : waiting)
      if (find(name) != nullptr) schedule(name);
    update();
  }
  void update() {
    ++now;
    for (const auto& pod : extender_->update(nodes, pods, now)) evict(pod.uid, pod.node);
    check();
  }
  // No GPU is used twice, and the extender's own state is in order.
  void check() {
    CHECK(extender_->cluster().audit() == std::vector<std::string>{});
    std::map<std::string, std::uint32_t> used;
    for (const auto& pod : pods) used[pod.node] += pod.gpus;
    for (const auto& node : nodes) CHECK(used[node.name] <= node.gpus);
  }

 private:
  [[nodiscard]] std::vector<std::string> nodes_for(const apiary_kubernetes::pod_record& pod,
                                                   bool with_victims) const {
    std::vector<std::string> names;
    for (const auto& node : nodes) {
      std::uint32_t used = 0;
      bool victims = false;
      for (const auto& other : pods)
        if (other.node == node.name) {
          if (with_victims && other.priority < pod.priority)
            victims = true;
          else
            used += other.gpus;
        }
      if (node.usable && node.gpus >= used + pod.gpus && victims == with_victims)
        names.push_back(node.name);
    }
    return names;
  }
  void evict(const std::string& uid, const std::string& node) {
    const auto at =
        std::find_if(pods.begin(), pods.end(), [&](const auto& p) { return p.uid == uid; });
    if (at == pods.end()) return;  // it has ended before
    CHECK(at->node == node);
    CHECK(std::any_of(pods.begin(), pods.end(), [&](const auto& pod) {
      return pod.node.empty() && pod.priority > at->priority;
    }));
    evicted.push_back(at->name);
    pods.erase(at);
  }

  std::optional<apiary_kubernetes::gang_extender> extender_;
  int uids_ = 0;
};

}  // namespace apiary_test
