// apiary/explain/detail/checked_nodes.h - what a node has room for, as certificate_check counts it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What a task needs together with those it leads. Requires: fewer than 2^32 tasks.
struct checked_task {
  std::uint64_t leaves = 0;
  std::uint64_t cpu = 0;
  std::uint64_t memory = 0;
  std::vector<milli_gpu> shares{};  // of the leaves of which a part is needed, ascending
  model_set models = any_model;
  friend bool operator==(const checked_task&, const checked_task&) = default;

  // More tasks of that member.
  void add(const constrained_task_group& m, std::uint64_t tasks) {
    // What no node has is not told apart.
    constexpr std::uint64_t most = std::uint64_t{1} << 32;
    leaves = std::min(leaves + std::min(tasks * m.gpus, most - 1), most - 1);
    cpu = std::min(cpu + std::min(tasks * m.host.cpu_milli, most), most);
    memory = std::min(memory + std::min(tasks * m.host.memory_mib, most), most);
    if (tasks == 0 || m.gpus == 0) return;
    models &= m.models;
    if (m.gpu_milli == 0 || m.gpu_milli >= whole_gpu) return;  // whole GPUs
    constexpr std::uint64_t more_than_any_node = 1 + std::uint64_t{max_gpus_per_node} * whole_gpu;
    shares.insert(shares.end(), std::min(tasks, more_than_any_node), m.gpu_milli);
    std::sort(shares.begin(), shares.end());
  }
};

// Nodes of whole GPUs: free leaves of each, and what is left of the hosts, or nothing if CPU and
// memory do not count.
struct checked_leaves {
  std::span<const std::uint32_t> free;
  std::span<const resources> hosts;

  struct room {
    std::uint64_t leaves = 0;
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    friend auto operator<=>(const room&, const room&) = default;
  };
  [[nodiscard]] std::size_t size() const noexcept { return free.size(); }
  [[nodiscard]] room of(std::uint32_t node) const {
    if (hosts.empty()) return {free[node], 0, 0};
    return {free[node], hosts[node].cpu_milli, hosts[node].memory_mib};
  }
  // Where several kinds of task have weight, CPU and memory do not count.
  static void weigh_together(room& r) { r.cpu = r.memory = ~std::uint64_t{0} >> 1; }
  // Calls sink with what is left beside the task, for each way to put it there.
  template <class Sink>
  void put(const checked_task& t, const room& r, const Sink& sink) const {
    if (t.leaves > r.leaves) return;
    if (hosts.empty()) return sink(room{r.leaves - t.leaves, r.cpu, r.memory});
    if (t.cpu > r.cpu || t.memory > r.memory) return;
    sink(room{r.leaves - t.leaves, r.cpu - t.cpu, r.memory - t.memory});
  }
};

// Nodes that share GPUs.
struct checked_shares {
  const node_table* nodes = nullptr;

  struct room {
    std::array<milli_gpu, max_gpus_per_node> left{};  // of the devices, ascending
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    std::uint32_t model = max_gpu_models;  // none
    bool healthy = false;
    friend auto operator<=>(const room&, const room&) = default;
  };
  [[nodiscard]] std::size_t size() const noexcept { return nodes->size(); }
  [[nodiscard]] room of(std::uint32_t n) const {
    const node_state& node = (*nodes)[node_id(n)];
    if (!node.healthy) return {};
    room r{node.gpu_left, node.left.cpu_milli, node.left.memory_mib,
           node.gpus == 0 ? std::uint32_t{max_gpu_models} : node.model, true};
    std::sort(r.left.begin(), r.left.end());
    return r;
  }
  static void weigh_together(room& /*r*/) {}
  template <class Sink>
  void put(const checked_task& t, room r, const Sink& sink) const {
    if (!r.healthy || t.cpu > r.cpu || t.memory > r.memory) return;
    if (t.leaves > 0 && (r.model == max_gpu_models || (t.models >> r.model & 1) == 0)) return;
    r.cpu -= t.cpu;
    r.memory -= t.memory;
    std::uint64_t needed = 0;
    for (const milli_gpu part : t.shares) needed += part;
    std::uint64_t there = 0;
    for (const milli_gpu left : r.left) there += left;
    if (needed > there) return;
    // Whole devices stand last.
    for (std::uint64_t whole = t.leaves - t.shares.size(); whole > 0; --whole) {
      if (r.left.back() != whole_gpu) return;
      std::copy_backward(r.left.begin(), r.left.end() - 1, r.left.end());
      r.left.front() = 0;
    }
    std::set<std::array<milli_gpu, max_gpus_per_node>> ways{r.left};
    for (const milli_gpu part : t.shares) {
      std::set<std::array<milli_gpu, max_gpus_per_node>> next;
      for (const auto& way : ways) {
        for (std::size_t i = 0; i < way.size(); ++i) {
          if (way[i] < part) continue;
          auto left = way;
          left[i] = static_cast<milli_gpu>(left[i] - part);
          std::sort(left.begin(), left.end());
          next.insert(left);
        }
      }
      ways = std::move(next);
    }
    for (const auto& way : ways) {
      r.left = way;
      sink(r);
    }
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
