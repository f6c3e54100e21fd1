// apiary/fgd/detail/shape_counts.h - how many nodes of a cluster have which shape.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The distinct shapes of nodes, with the number of nodes of each. Where a cluster has few
// of them, what it could run if it were idle is known without a scan of its nodes.
//
// Cost: add, remove: a hash look-up. most_memory_for: O(distinct shapes).
class shape_counts {
 public:
  // The shapes of all nodes.
  explicit shape_counts(const node_table& nodes) {
    for (const node_id n : nodes.ids())
      if (nodes.contains(n)) add(nodes.shape(n));
  }

  // One more node has the shape.
  void add(const node_shape& shape) {
    const auto [at, is_new] = index_of_.try_emplace(shape, shapes_.size());
    if (is_new) shapes_.push_back({shape, 0});
    ++shapes_[at->second].nodes;
  }
  // One node less has it. Requires: a node has it.
  void remove(const node_shape& shape) {
    const auto found = index_of_.find(shape);
    APIARY_ASSERT(found != index_of_.end());
    counted& gone = shapes_[found->second];
    if (--gone.nodes > 0) return;
    index_of_[shapes_.back().shape] = found->second;
    gone = shapes_.back();
    shapes_.pop_back();
    index_of_.erase(found);
  }

  // The most memory of the nodes that could run the task, but for its memory, if they were idle and
  // healthy; -1: there is none.
  [[nodiscard]] std::int64_t most_memory_for(task_request task) const noexcept {
    task.memory_mib = 0;
    std::int64_t most = -1;
    for (const counted& c : shapes_) {
      if (c.shape.fits(task)) most = (std::max)(most, std::int64_t{c.shape.host.memory_mib});
    }
    return most;
  }

 private:
  struct counted {
    node_shape shape{};
    std::uint32_t nodes = 0;
  };
  struct hash {
    std::size_t operator()(const node_shape& s) const noexcept {
      return static_cast<std::size_t>(
          digest()
              .add(std::uint64_t{s.host.cpu_milli} << 32 | s.host.memory_mib)
              .add(std::uint64_t{s.gpus} << 8 | s.model)
              .value());
    }
  };

  std::vector<counted> shapes_;
  std::unordered_map<node_shape, std::size_t, hash> index_of_;
};

}  // namespace detail
APIARY_NAMESPACE_END
