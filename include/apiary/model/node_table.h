// apiary/model/node_table.h - the nodes of a cluster: their resources and what is free.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN

// The most GPUs that a node of a node table can have.
inline constexpr std::uint32_t max_gpus_per_node = 16;

// The resources of a node when nothing runs on it.
struct node_shape {
  resources host{};        // CPU and memory
  std::uint32_t gpus = 0;  // at most max_gpus_per_node
  gpu_model model = 0;     // below max_gpu_models; ignored if gpus == 0

  friend constexpr bool operator==(const node_shape&, const node_shape&) noexcept = default;
};

// The free resources of a node: everything that a score reads, in one cache line.
struct alignas(64) node_state {
  resources left{};  // free CPU and memory
  // Free thousandths of GPU 0, 1, ...; 0 after the last GPU.
  std::array<milli_gpu, max_gpus_per_node> gpu_left{};
  std::uint8_t gpus = 0;  // number of GPUs
  gpu_model model = 0;    // model of all its GPUs
  bool healthy = true;    // false: nothing may start here
  // The sizes of the GPU tasks that run here: bit 0 is set if there are tasks with a fraction of a
  // GPU, bit k if there are tasks with k whole GPUs.
  std::uint32_t task_sizes = 0;

  // Free thousandths of each GPU.
  [[nodiscard]] std::span<const milli_gpu> devices() const noexcept {
    return {gpu_left.data(), gpus};
  }
  // Whether the node has GPUs of one of the models.
  [[nodiscard]] bool accessible(model_set models) const noexcept {
    return gpus != 0 && contains_model(models, model);
  }

  // Free thousandths of all GPUs together.
  [[nodiscard]] std::uint32_t total_gpu_left() const noexcept {
    std::uint32_t sum = 0;
    for (const milli_gpu left_here : gpu_left) sum += left_here;
    return sum;
  }
  // GPUs that no task uses.
  [[nodiscard]] std::uint32_t free_gpus() const noexcept {
    std::uint32_t n = 0;
    for (const milli_gpu left_here : gpu_left) n += left_here == whole_gpu ? 1 : 0;
    return n;
  }
  friend bool operator==(const node_state&, const node_state&) noexcept = default;
};
static_assert(sizeof(node_state) == 64);

// The nodes of a cluster. Ids are given in the order of add. It is plain data: place_task and
// remove_task of alloc/fraction_pool.h change it.
//
// Cost: every call O(1). Memory: 148 bytes for each node.
class node_table {
 public:
  // Adds a node without tasks. Returns its id.
  // Requires: shape.gpus <= max_gpus_per_node, shape.model < max_gpu_models.
  node_id add(const node_shape& shape) {
    APIARY_VERIFY(shape.gpus <= max_gpus_per_node && shape.model < max_gpu_models);
    node_state state;
    state.left = shape.host;
    state.gpus = static_cast<std::uint8_t>(shape.gpus);
    state.model = shape.model;
    for (std::uint32_t i = 0; i < shape.gpus; ++i) state.gpu_left[i] = whole_gpu;
    states_.push_back(state);
    tasks_by_size_.push_back({});
    total_gpus_ += shape.gpus;
    return shapes_.push_back(shape);
  }

  // The number of nodes.
  [[nodiscard]] std::uint32_t size() const noexcept { return shapes_.size(); }
  // The ids of all nodes.
  [[nodiscard]] id_range<node_id> ids() const noexcept { return shapes_.ids(); }
  // Whether the table has node n.
  [[nodiscard]] bool contains(node_id n) const noexcept { return shapes_.contains(n); }
  // GPUs of all nodes, free or not.
  [[nodiscard]] std::uint64_t total_gpus() const noexcept { return total_gpus_; }

  // The resources of node n when nothing runs on it.
  [[nodiscard]] const node_shape& shape(node_id n) const noexcept { return shapes_[n]; }
  // The free resources of node n.
  [[nodiscard]] const node_state& operator[](node_id n) const noexcept { return states_[n]; }
  // The free resources of node n, to change.
  [[nodiscard]] node_state& operator[](node_id n) noexcept { return states_[n]; }

  // Adds a task of the given size (0: a fraction of a GPU, k: k whole GPUs) to node n's task_sizes,
  // or removes it if `in` is false.
  void count_task(node_id n, std::uint32_t size, bool in) noexcept {
    APIARY_ASSERT(size <= max_gpus_per_node);
    std::uint32_t& count = tasks_by_size_[n][size];
    APIARY_ASSERT(in || count > 0);
    count = in ? count + 1 : count - 1;
    const std::uint32_t bit = std::uint32_t{1} << size;
    states_[n].task_sizes = count != 0 ? states_[n].task_sizes | bit : states_[n].task_sizes & ~bit;
  }

  // Bytes on the heap.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return shapes_.memory_bytes() + states_.memory_bytes() + tasks_by_size_.memory_bytes();
  }

  friend bool operator==(const node_table&, const node_table&) = default;

 private:
  dense_map<node_id, node_shape> shapes_;
  dense_map<node_id, node_state> states_;
  dense_map<node_id, std::array<std::uint32_t, max_gpus_per_node + 1>> tasks_by_size_;
  std::uint64_t total_gpus_ = 0;
};

APIARY_NAMESPACE_END
