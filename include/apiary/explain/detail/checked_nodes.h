// apiary/explain/detail/checked_nodes.h - what tasks leave free on a node, as proof_check counts it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The needs of a task together with the tasks it leads. Requires: fewer than 2^32 tasks.
struct checked_task {
  std::uint64_t gpus = 0;
  std::uint64_t cpu = 0;
  std::uint64_t memory = 0;
  std::vector<milli_gpu> fractions{};  // of the GPUs that are needed in part, ascending
  model_set models = any_model;
  friend bool operator==(const checked_task&, const checked_task&) = default;

  void add(const constrained_task_group& m, std::uint64_t tasks) {
    // All needs that no node can meet count as the same.
    constexpr std::uint64_t limit = std::uint64_t{1} << 32;
    gpus = (std::min)(gpus + (std::min)(tasks * m.gpus, limit - 1), limit - 1);
    cpu = (std::min)(cpu + (std::min)(tasks * m.host.cpu_milli, limit), limit);
    memory = (std::min)(memory + (std::min)(tasks * m.host.memory_mib, limit), limit);
    if (tasks == 0 || m.gpus == 0) return;
    models &= m.models;
    if (m.gpu_milli == 0 || m.gpu_milli >= whole_gpu) return;  // whole GPUs
    constexpr std::uint64_t more_than_any_node = 1 + std::uint64_t{max_gpus_per_node} * whole_gpu;
    fractions.insert(fractions.end(),
                     static_cast<std::size_t>((std::min)(tasks, more_than_any_node)), m.gpu_milli);
    std::sort(fractions.begin(), fractions.end());
  }
};

// Nodes with whole GPUs: free GPUs of each, and free CPU and memory, or empty if they do not count.
struct checked_whole_gpus {
  std::span<const std::uint32_t> free;
  std::span<const resources> hosts;
  struct node_free {
    std::uint64_t gpus = 0;
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    friend auto operator<=>(const node_free&, const node_free&) = default;
  };
  [[nodiscard]] std::size_t size() const noexcept { return free.size(); }
  [[nodiscard]] node_free of(std::uint32_t node) const {
    if (hosts.empty()) return {free[node], 0, 0};
    return {free[node], hosts[node].cpu_milli, hosts[node].memory_mib};
  }
  static std::uint64_t free_gpus(const node_free& r) { return r.gpus; }
  // If several task groups have weight, CPU and memory do not count.
  static void ignore_host(node_free& r) { r.cpu = r.memory = ~std::uint64_t{0} >> 1; }
  // Calls sink with what is free besides the task, once for each way to place it on the node.
  template <class Sink>
  void place(const checked_task& t, const node_free& r, const Sink& sink) const {
    if (t.gpus > r.gpus) return;
    if (hosts.empty()) return sink(node_free{r.gpus - t.gpus, r.cpu, r.memory});
    if (t.cpu > r.cpu || t.memory > r.memory) return;
    sink(node_free{r.gpus - t.gpus, r.cpu - t.cpu, r.memory - t.memory});
  }
};

// Nodes with GPUs that tasks share.
struct checked_shared_gpus {
  const node_table* nodes = nullptr;
  struct node_free {
    std::array<milli_gpu, max_gpus_per_node> left{};  // of each GPU, ascending
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    std::uint32_t model = max_gpu_models;  // none
    bool healthy = false;
    friend auto operator<=>(const node_free&, const node_free&) = default;
  };
  [[nodiscard]] std::size_t size() const noexcept { return nodes->size(); }
  [[nodiscard]] node_free of(std::uint32_t n) const {
    const node_state& node = (*nodes)[node_id(n)];
    if (!node.healthy) return {};
    node_free r{node.gpu_left, node.left.cpu_milli, node.left.memory_mib,
                node.gpus == 0 ? std::uint32_t{max_gpu_models} : node.model, true};
    std::sort(r.left.begin(), r.left.end());
    return r;
  }
  static std::uint64_t free_gpus(const node_free& r) {
    return static_cast<std::uint64_t>(
        std::count_if(r.left.begin(), r.left.end(), [](milli_gpu left) { return left > 0; }));
  }
  static void ignore_host(node_free& /*r*/) {}
  template <class Sink>
  void place(const checked_task& t, node_free r, const Sink& sink) const {
    if (!r.healthy || t.cpu > r.cpu || t.memory > r.memory) return;
    if (t.gpus > 0 && (r.model == max_gpu_models || (t.models >> r.model & 1) == 0)) return;
    r.cpu -= t.cpu;
    r.memory -= t.memory;
    std::uint64_t needed = 0;
    for (const milli_gpu fraction : t.fractions) needed += fraction;
    std::uint64_t there = 0;
    for (const milli_gpu left : r.left) there += left;
    if (needed > there) return;
    // GPUs that are wholly free are last.
    for (std::uint64_t whole = t.gpus - t.fractions.size(); whole > 0; --whole) {
      if (r.left.back() != whole_gpu) return;
      std::copy_backward(r.left.begin(), r.left.end() - 1, r.left.end());
      r.left.front() = 0;
    }
    std::vector<std::array<milli_gpu, max_gpus_per_node>> ways{r.left};
    for (const milli_gpu fraction : t.fractions) {
      std::vector<std::array<milli_gpu, max_gpus_per_node>> next;
      for (const auto& way : ways) {
        for (std::size_t i = 0; i < way.size(); ++i) {
          if (way[i] < fraction) continue;
          auto left = way;
          left[i] = static_cast<milli_gpu>(left[i] - fraction);
          std::sort(left.begin(), left.end());
          next.push_back(left);
        }
      }
      sort_unique(next);
      ways.swap(next);
    }
    for (const auto& way : ways) {
      r.left = way;
      sink(r);
    }
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
