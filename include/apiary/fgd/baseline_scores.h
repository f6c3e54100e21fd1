// apiary/fgd/baseline_scores.h - the placement policies that the FGD paper compares with.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/score_tree.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/node_score.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// How every baseline except random_fit chooses GPUs on a node: the free GPUs with the lowest
// indices, or, for a fraction of a GPU, the GPU with the least left that is enough.
struct tightest_gpus {
  // Nothing to keep.
  void update(const node_table&, node_id) const noexcept {}
  // The GPUs for a task on node n.
  [[nodiscard]] std::uint32_t gpu_mask(const node_table& nodes, node_id n,
                                       const task_request& task) const noexcept {
    if (!task.wants_gpu()) return 0;
    if (task.wants_part_of_gpu()) return nodes[n].tightest_gpu(task.gpu_milli);
    return nodes[n].first_free_gpus(task.gpus);
  }
};

// BestFit: the node with the least CPU and GPU left after the placement. Score:
// 100 * (1 - (cpu / 128000 + gpu / 8000) / 2), thousandths relative to the largest published node;
// 0 where more is left. The published scores are stretched to 0..100: the same choice.
struct best_fit : tightest_gpus {
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;
  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n,
                                    const task_request& task) const noexcept {
    const node_state& node = nodes[n];
    const std::uint64_t cpu = node.left.cpu_milli - task.cpu_milli;
    const std::uint64_t gpu = node.total_gpu_left() - task.total_gpu_milli();
    const std::uint64_t left = cpu + 16 * gpu;
    return left < 256000 ? static_cast<std::uint32_t>((256000 - left) / 2560) : 0;
  }
};

// DotProd: the node with the smallest inner product of what is left and what the task asks for,
// both relative to the largest node of the published cluster. Score:
// 100 * (1 - (cpu * asked_cpu / 128000^2 + gpu * asked_gpu / 8000^2) / 2).
struct dot_prod : tightest_gpus {
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;
  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n,
                                    const task_request& task) const noexcept {
    const node_state& node = nodes[n];
    const std::uint64_t cpu = std::uint64_t{node.left.cpu_milli} * task.cpu_milli;
    const std::uint64_t gpu = node.total_gpu_left() * task.total_gpu_milli();
    constexpr std::uint64_t unit = std::uint64_t{128000} * 128000 / 50;
    const std::uint64_t product = (std::min)(cpu, 100 * unit) + 256 * gpu;
    return product < 100 * unit ? static_cast<std::uint32_t>((100 * unit - product) / unit) : 0;
  }
};

// GpuPacking: shared GPUs first, then free GPUs on used nodes, then idle nodes: Gandiva's packing
// as the FGD paper describes it. The score is, in this order, 100 minus a tenth of the percentage
// left on the GPU, 50 minus the free GPUs that the task takes, or 33 minus the node's free GPUs.
struct gpu_packing : tightest_gpus {
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;
  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n,
                                    const task_request& task) const noexcept {
    if (!task.wants_gpu()) return 0;
    const node_state& node = nodes[n];
    const std::uint32_t free = node.free_gpus();
    if (free == node.gpus) return 33 - free;
    if (task.wants_whole_gpus()) return 50 - task.gpus;
    const auto gpu =
        static_cast<std::uint32_t>(std::countr_zero(node.tightest_gpu(task.gpu_milli)));
    const std::uint32_t left = node.gpu_left[gpu];
    return left == whole_gpu ? 49 : 100 - left * 100 / whole_gpu / 10;
  }
};

// GpuClustering: tasks of the same size on the same node.
struct gpu_clustering : tightest_gpus {
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;
  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n,
                                    const task_request& task) const noexcept {
    if (!task.wants_gpu()) return 0;
    const node_state& node = nodes[n];
    const std::uint32_t left = (std::min<std::uint32_t>)(node.total_gpu_left(), 8000);
    const std::uint32_t base = 25 * (8000 - left) / 8000;
    const std::uint32_t own = std::uint32_t{1} << (task.wants_whole_gpus() ? task.gpus : 0);
    if (node.task_sizes == 0) return base + 25;
    if (node.task_sizes == own) return base + 75;
    return (node.task_sizes & own) != 0 ? base + 50 : base;
  }
};

// Random: any node where the task fits, and for a fraction of a GPU any GPU where it fits.
class random_fit {
 public:
  // Equal seeds give equal decisions.
  explicit random_fit(std::uint64_t seed) noexcept : random_(seed) {}
  // Nothing to keep.
  void update(const node_table&, node_id) const noexcept {}
  // The same score for every node.
  [[nodiscard]] std::uint32_t score(const node_table&, node_id,
                                    const task_request&) const noexcept {
    return 0;
  }
  // Any candidate, one in `*allowed` if that is not null.
  [[nodiscard]] std::uint32_t choose(const score_tree& candidates, const summary_bitset* allowed) {
    return candidates.random_candidate(random_, allowed);
  }
  // The GPUs for a task on node n.
  [[nodiscard]] std::uint32_t gpu_mask(const node_table& nodes, node_id n,
                                       const task_request& task) noexcept {
    if (!task.wants_gpu()) return 0;
    const node_state& node = nodes[n];
    if (task.wants_whole_gpus()) return node.first_free_gpus(task.gpus);
    std::uint32_t fitting = 0;
    for (const milli_gpu left : node.each_gpu()) fitting += left >= task.gpu_milli ? 1 : 0;
    std::uint32_t skip = random_.uniform(fitting);
    std::uint32_t i = 0;
    while (node.gpu_left[i] < task.gpu_milli || skip-- > 0) ++i;
    return std::uint32_t{1} << i;
  }

 private:
  rng random_;
};

static_assert(NodeScore<best_fit> && NodeScore<dot_prod> && NodeScore<gpu_packing> &&
              NodeScore<gpu_clustering> && NodeScore<random_fit>);

APIARY_NAMESPACE_END
