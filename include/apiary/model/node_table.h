// apiary/model/node_table.h - the nodes of a cluster, what is free on them, and the tasks there.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/ids.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <array>
#include <bit>
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

  // Whether a node can have this shape.
  [[nodiscard]] constexpr bool valid() const noexcept {
    return gpus <= max_gpus_per_node && model < max_gpu_models;
  }
  // Whether such a node could run the task if idle and healthy. Requires: valid(), task.valid().
  [[nodiscard]] constexpr bool fits(const task_request& task) const noexcept {
    if (!task.host().fits_in(host)) return false;
    return !task.wants_gpu() || (task.gpus <= gpus && (task.models >> model & 1) != 0);
  }
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
  bool exists = true;     // false: the node was erased; it is not healthy, and has nothing
  // The sizes of the GPU tasks that run here: bit 0: a fraction of a GPU, bit k: k whole GPUs.
  std::uint32_t task_sizes = 0;

  // Free thousandths of each GPU.
  [[nodiscard]] std::span<const milli_gpu> each_gpu() const noexcept {
    return {gpu_left.data(), gpus};
  }
  // Whether the node has GPUs of one of the models.
  [[nodiscard]] bool accessible(model_set models) const noexcept {
    return gpus != 0 && (models >> model & 1) != 0;
  }
  // Whether the node can run the task now: it is healthy, with enough CPU, memory and GPUs of an
  // accepted model left. Requires: task.valid().
  [[nodiscard]] bool fits(const task_request& task) const noexcept {
    return healthy && fits_if_healthy(task);
  }
  // The same as if the node were healthy.
  [[nodiscard]] bool fits_if_healthy(const task_request& task) const noexcept {
    if (!task.host().fits_in(left)) return false;
    if (!task.wants_gpu()) return true;
    if (!accessible(task.models)) return false;
    std::uint32_t enough = 0;
    for (const milli_gpu left_here : gpu_left) enough += left_here >= task.gpu_milli ? 1 : 0;
    return enough >= task.gpus;
  }
  // The `count` lowest free GPUs as a mask (bit i: GPU i). Requires: so many are free.
  [[nodiscard]] std::uint32_t first_free_gpus(std::uint32_t count) const noexcept {
    std::uint32_t mask = 0;
    for (std::uint32_t i = 0; i < gpus && count > 0; ++i) {
      if (gpu_left[i] != whole_gpu) continue;
      mask |= std::uint32_t{1} << i;
      --count;
    }
    APIARY_ASSERT(count == 0);
    return mask;
  }
  // The mask of the (lowest) GPU with the least left of at least `milli`. Requires: there is one.
  [[nodiscard]] std::uint32_t tightest_gpu(milli_gpu milli) const noexcept {
    std::uint32_t best = max_gpus_per_node;
    for (std::uint32_t i = 0; i < gpus; ++i) {
      if (gpu_left[i] >= milli && (best == max_gpus_per_node || gpu_left[i] < gpu_left[best]))
        best = i;
    }
    APIARY_ASSERT(best < max_gpus_per_node);
    return std::uint32_t{1} << best;
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
  // The task gets its CPU and memory and these GPUs, or gives them back; not in `task_sizes`.
  // Requires: so much is left, or was taken.
  void change(const task_request& task, std::uint32_t gpu_mask, bool in) noexcept {
    if (in) {
      left -= task.host();
    } else {
      left += task.host();
    }
    for (; gpu_mask != 0; gpu_mask &= gpu_mask - 1) {
      milli_gpu& milli = gpu_left[static_cast<std::uint32_t>(std::countr_zero(gpu_mask))];
      milli = static_cast<milli_gpu>(in ? milli - task.gpu_milli : milli + task.gpu_milli);
      APIARY_VERIFY(milli <= whole_gpu);
    }
  }
  friend bool operator==(const node_state&, const node_state&) noexcept = default;
};
static_assert(sizeof(node_state) == 64);

// The nodes of a cluster and what the tasks on them leave free. Ids are given in the order of add.
// A node may be erased; then the table has no node with its id until insert() uses the id again.
//
// Cost: can_place, place, remove, resize O(GPUs of a node), the others amortized O(1). Memory: 148
//       bytes for each id.
class node_table {
 public:
  // Adds a node without tasks. Returns its id. A node whose shape is not valid() is bad and has no
  // free resources; schedulers refuse a table with such a node.
  node_id add(const node_shape& shape) {
    const node_state state = idle(shape);
    states_.push_back(state);
    tasks_by_size_.push_back({});
    total_gpus_ += state.gpus;
    return shapes_.push_back(shape);
  }

  // Gives the id of an erased node to a node without tasks. Requires: n was erased.
  void insert(node_id n, const node_shape& shape) {
    APIARY_ASSERT(n.value < size() && !contains(n));
    states_[n] = idle(shape);
    shapes_[n] = shape;
    total_gpus_ += states_[n].gpus;
  }
  // Erases a node and what its tasks use. Requires: contains(n); its tasks are not removed later.
  void erase(node_id n) {
    APIARY_ASSERT(contains(n));
    total_gpus_ -= states_[n].gpus;
    states_[n] = {.healthy = false, .exists = false};
    shapes_[n] = {};
    tasks_by_size_[n] = {};
  }
  // Whether the node can have this shape and keep its tasks: they use no more CPU and memory, and
  // none of the GPUs that it would not have. Requires: contains(n), shape.valid().
  [[nodiscard]] bool can_resize(node_id n, const node_shape& shape) const noexcept {
    return used(n).fits_in(shape.host) && used_gpus(n) <= shape.gpus;
  }
  // Changes the shape of a node; its tasks stay. Requires: can_resize(n, shape); the model is that
  // of the node.
  void resize(node_id n, const node_shape& shape) {
    APIARY_ASSERT(can_resize(n, shape) && shape.model == shapes_[n].model);
    node_state& node = states_[n];
    const resources in_use = used(n);
    node.left = shape.host;
    node.left -= in_use;
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) {
      if (i >= node.gpus || i >= shape.gpus) node.gpu_left[i] = i < shape.gpus ? whole_gpu : 0;
    }
    total_gpus_ = total_gpus_ - node.gpus + shape.gpus;
    node.gpus = static_cast<std::uint8_t>(shape.gpus);
    shapes_[n] = shape;
  }

  // The number of ids: all ids are below it.
  [[nodiscard]] std::uint32_t size() const noexcept { return shapes_.size(); }
  // The ids 0, ..., size() - 1, those of erased nodes included.
  [[nodiscard]] id_range<node_id> ids() const noexcept { return shapes_.ids(); }
  // Whether the table has node n.
  [[nodiscard]] bool contains(node_id n) const noexcept {
    return shapes_.contains(n) && states_[n].exists;
  }
  // GPUs of all nodes, free or not.
  [[nodiscard]] std::uint64_t total_gpus() const noexcept { return total_gpus_; }
  // The resources of node n when nothing runs on it; none if it was erased.
  [[nodiscard]] const node_shape& shape(node_id n) const noexcept { return shapes_[n]; }
  // The free resources of node n.
  [[nodiscard]] const node_state& operator[](node_id n) const noexcept { return states_[n]; }
  // The free resources of node n, to change.
  [[nodiscard]] node_state& operator[](node_id n) noexcept { return states_[n]; }

  // The CPU and memory of node n that tasks use. Requires: contains(n).
  [[nodiscard]] resources used(node_id n) const noexcept {
    resources in_use = shapes_[n].host;
    in_use -= states_[n].left;
    return in_use;
  }
  // One more than the last GPU of node n that a task uses; 0 if none is in use.
  [[nodiscard]] std::uint32_t used_gpus(node_id n) const noexcept {
    std::uint32_t last = states_[n].gpus;
    while (last > 0 && states_[n].gpu_left[last - 1] == whole_gpu) --last;
    return last;
  }
  // Whether the task can run at exactly this placement now; false also if there is no such node or
  // the mask does not match the task. Requires: task.valid().
  [[nodiscard]] bool can_place(const task_request& task, placement where) const noexcept {
    return is_free(task, where) && states_[where.node].healthy;
  }
  // The same as if the node were healthy.
  [[nodiscard]] bool is_free(const task_request& task, placement where) const noexcept {
    if (!contains(where.node) || where.num_gpus() != task.gpus) return false;
    const node_state& node = states_[where.node];
    if (!node.fits_if_healthy(task) || where.gpu_mask >> node.gpus != 0) return false;
    for (std::uint32_t mask = where.gpu_mask; mask != 0; mask &= mask - 1) {
      if (node.gpu_left[static_cast<std::uint32_t>(std::countr_zero(mask))] < task.gpu_milli)
        return false;
    }
    return true;
  }
  // Subtracts the resources of the task. Requires: is_free(task, where).
  void place(const task_request& task, placement where) noexcept {
    APIARY_ASSERT(is_free(task, where));
    change(task, where, true);
  }
  // Undoes place with equal arguments. Requires: the task is placed there.
  void remove(const task_request& task, placement where) noexcept {
    APIARY_ASSERT(where.num_gpus() == task.gpus);
    APIARY_ASSERT(where.gpu_mask >> states_[where.node].gpus == 0);
    change(task, where, false);
    APIARY_ASSERT(states_[where.node].left.fits_in(shapes_[where.node].host));
  }
  friend bool operator==(const node_table&, const node_table&) = default;

 private:
  // The state of a node without tasks.
  [[nodiscard]] static node_state idle(const node_shape& shape) noexcept {
    node_state state;
    state.healthy = shape.valid();
    if (!state.healthy) return state;
    state.left = shape.host;
    state.gpus = static_cast<std::uint8_t>(shape.gpus);
    state.model = shape.model;
    for (std::uint32_t i = 0; i < shape.gpus; ++i) state.gpu_left[i] = whole_gpu;
    return state;
  }
  // Adds the task, or removes it, also in task_sizes.
  void change(const task_request& task, placement where, bool in) noexcept {
    node_state& node = states_[where.node];
    node.change(task, where.gpu_mask, in);
    if (!task.wants_gpu()) return;
    const std::uint32_t size = task.wants_whole_gpus() ? task.gpus : 0;
    std::uint32_t& count = tasks_by_size_[where.node][size];
    APIARY_ASSERT(in || count > 0);
    count = in ? count + 1 : count - 1;
    const std::uint32_t bit = std::uint32_t{1} << size;
    node.task_sizes = count != 0 ? node.task_sizes | bit : node.task_sizes & ~bit;
  }

  dense_map<node_id, node_shape> shapes_;
  dense_map<node_id, node_state> states_;
  dense_map<node_id, std::array<std::uint32_t, max_gpus_per_node + 1>> tasks_by_size_;
  std::uint64_t total_gpus_ = 0;
};

APIARY_NAMESPACE_END
