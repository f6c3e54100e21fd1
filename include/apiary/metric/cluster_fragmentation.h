// apiary/metric/cluster_fragmentation.h - fragmentation of a whole cluster, kept up to date.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>

#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

// Keeps the fragmentation of a whole cluster: the sum of F over all nodes, times the total weight W
// of the task mix. The sum is an exact integer, so it does not drift.
//
// Requires: W * 1000 * (GPUs of the cluster) < 2^64; a history of 10^6 tasks allows 10^10 GPUs.
// Cost:     update as fragmentation::weighted; total O(1). Memory: 8 bytes for each node.
// Example:  examples/fragmentation.cpp
class cluster_fragmentation {
 public:
  // Measures all nodes. Cost: O(nodes).
  cluster_fragmentation(fragmentation metric, const node_table& nodes)
      : metric_(std::move(metric)), weighted_(nodes.size()) {
    for (const node_id n : nodes.ids()) update(nodes, n);
  }

  // Measures node n again. Call it after each change of node n.
  void update(const node_table& nodes, node_id n) noexcept {
    const std::uint64_t now = metric_.weighted(nodes[n]);
    total_ = total_ - weighted_[n] + now;
    weighted_[n] = now;
  }

  // The metric of a node.
  [[nodiscard]] const fragmentation& metric() const noexcept { return metric_; }
  // W * F of the cluster.
  [[nodiscard]] std::uint64_t weighted_total() const noexcept { return total_; }
  // F of the cluster in thousandths of GPUs; 0 if the mix is empty.
  [[nodiscard]] double total() const noexcept {
    const auto weight = static_cast<double>(metric_.total_weight());
    return weight == 0.0 ? 0.0 : static_cast<double>(total_) / weight;
  }

 private:
  fragmentation metric_;
  dense_map<node_id, std::uint64_t> weighted_;
  std::uint64_t total_ = 0;
};

APIARY_NAMESPACE_END
