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
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The shapes of the nodes of a cluster. Nodes that differ only in memory have one shape here, with
// the number of nodes for each amount of memory. A cluster has few such shapes, so what it could
// run if it were idle is known without a scan of its nodes.
//
// Cost: add, remove: a hash look-up and O(log distinct amounts of memory). most_memory_for:
//       O(size()).
class shape_counts {
 public:
  // The shapes of all nodes.
  explicit shape_counts(const node_table& nodes) {
    for (const node_id n : nodes.ids())
      if (nodes.contains(n)) add(nodes.shape(n));
  }

  // One more node has the shape.
  void add(const node_shape& shape) {
    const node_shape without = without_memory(shape);
    const auto [at, is_new] = index_of_.try_emplace(without, shapes_.size());
    if (is_new) shapes_.push_back({without, {}});
    ++shapes_[at->second].nodes_with[shape.host.memory_mib];
  }
  // One node less has it. Requires: a node has it.
  void remove(const node_shape& shape) {
    const auto found = index_of_.find(without_memory(shape));
    APIARY_ASSERT(found != index_of_.end());
    counted& of_shape = shapes_[found->second];
    const auto nodes = of_shape.nodes_with.find(shape.host.memory_mib);
    APIARY_ASSERT(nodes != of_shape.nodes_with.end());
    if (--nodes->second > 0) return;
    of_shape.nodes_with.erase(nodes);
    if (!of_shape.nodes_with.empty()) return;
    index_of_[shapes_.back().shape] = found->second;
    std::swap(of_shape, shapes_.back());
    shapes_.pop_back();
    index_of_.erase(found);
  }
  // The number of shapes that differ in more than memory.
  [[nodiscard]] std::size_t size() const noexcept { return shapes_.size(); }

  // The most memory of the nodes that could run the task, but for its memory, if they were idle and
  // healthy; -1: there is none.
  [[nodiscard]] std::int64_t most_memory_for(task_request task) const noexcept {
    task.memory_mib = 0;
    std::int64_t most = -1;
    for (const counted& c : shapes_) {
      if (c.shape.fits(task)) most = (std::max)(most, std::int64_t{c.nodes_with.rbegin()->first});
    }
    return most;
  }

 private:
  struct counted {
    node_shape shape{};                                   // without memory
    std::map<std::uint32_t, std::uint32_t> nodes_with{};  // by their memory
  };
  struct hash {
    std::size_t operator()(const node_shape& s) const noexcept {
      return static_cast<std::size_t>(
          digest().add(s.host.cpu_milli).add(std::uint64_t{s.gpus} << 8 | s.model).value());
    }
  };

  [[nodiscard]] static node_shape without_memory(node_shape shape) noexcept {
    shape.host.memory_mib = 0;
    return shape;
  }

  std::vector<counted> shapes_;
  std::unordered_map<node_shape, std::size_t, hash> index_of_;
};

}  // namespace detail
APIARY_NAMESPACE_END
