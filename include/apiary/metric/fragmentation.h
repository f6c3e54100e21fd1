// apiary/metric/fragmentation.h - how much free GPU capacity a typical workload cannot use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The fragmentation F of a node for a task mix, in exact integers: the GPU capacity left on the
// node that the typical task cannot use.
//
//   F(n) = sum over task kinds m of p_m * (thousandths of GPUs left on n that m cannot use)
//
// A kind can use nothing of the node if it requests no GPU, does not accept the node's GPU model,
// or finds too little CPU or too few GPUs there. Any other kind can use the GPUs that have at least
// its fraction left. With integer weights W * p_m, where W is their sum, W * F is an integer.
// Tables give W * (left - F): kinds for one GPU add left * H[left] for each GPU, kinds for several
// whole GPUs add 1000 * free * M[free].
//
// Model: "Beware of Fragmentation" (USENIX ATC 2023), section 3. Differs: integers, no doubles.
// Cost:  O(GPUs of a node) look-ups and O(log distinct CPU demands). Construction O(kinds of the
//        mix + table). Memory: (distinct CPU demands + 1) * (distinct fractions + 18) * 4 bytes and
//        2 KiB for each group of GPU models that serve the same kinds; 5 KiB for the openb trace.
// Example: examples/fragmentation.cpp
class fragmentation {
 public:
  // Builds the tables for a mix.
  explicit fragmentation(const task_mix& mix);

  // The size of the tables for a mix, in bytes, without ranks. Check it first for a user's mix.
  [[nodiscard]] static std::uint64_t table_bytes(const task_mix& mix);
  // The size of the tables, in bytes, without their ranks.
  [[nodiscard]] std::uint64_t table_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const table& t : tables_) bytes += t.counts.size() * sizeof(std::uint32_t);
    return bytes;
  }
  // W, the sum of the weights.
  [[nodiscard]] std::uint64_t total_weight() const noexcept { return total_weight_; }

  // The table row for nodes of one GPU model with a given amount of CPU left.
  class row {
   public:
    // What the kinds for one GPU can use of a GPU with `left` thousandths left, times W.
    [[nodiscard]] std::uint64_t of_gpu(milli_gpu left) const noexcept {
      return std::uint64_t{left} * single_[ranks_[left]];
    }
    // What the kinds for several GPUs can use of `free` free GPUs, times W.
    [[nodiscard]] std::uint64_t of_free(std::uint32_t free) const noexcept {
      return std::uint64_t{whole_gpu} * free * several_[free];
    }
    // What the mix can use of the GPUs of a node, times W.
    [[nodiscard]] std::uint64_t usable(std::span<const milli_gpu> gpus) const noexcept {
      std::uint64_t sum = 0;
      std::uint32_t free = 0;
      for (const milli_gpu left : gpus) {
        sum += of_gpu(left);
        free += left == whole_gpu ? 1 : 0;
      }
      return sum + of_free(free);
    }

   private:
    friend class fragmentation;
    const std::uint32_t* single_ = nullptr;   // H by rank of the fraction left
    const std::uint32_t* several_ = nullptr;  // M by number of free GPUs
    const std::uint16_t* ranks_ = nullptr;    // of fractions left
  };
  // The row for nodes of this GPU model with `cpu_left` thousandths of a core left.
  [[nodiscard]] row row_of(gpu_model model, std::uint32_t cpu_left) const noexcept {
    APIARY_ASSERT(model < max_gpu_models);
    const table& t = tables_[table_of_[model]];
    row result;
    result.single_ = t.counts.data() + rank(t.cpus, cpu_left) * t.row_size;
    result.several_ = result.single_ + (t.row_size - max_gpus_per_node - 1);
    result.ranks_ = t.fraction_rank.data();
    return result;
  }

  // W * (thousandths of GPUs left on the node - F).
  [[nodiscard]] std::uint64_t usable(const node_state& node) const noexcept {
    return row_of(node.model, node.left.cpu_milli).usable(node.each_gpu());
  }
  // W * F.
  [[nodiscard]] std::uint64_t weighted(const node_state& node) const noexcept {
    return total_weight_ * node.total_gpu_left() - usable(node);
  }
  // F in thousandths of GPUs; 0 if the mix is empty.
  [[nodiscard]] double operator()(const node_state& node) const noexcept {
    if (total_weight_ == 0) return 0.0;
    return static_cast<double>(weighted(node)) / static_cast<double>(total_weight_);
  }

 private:
  // The distinct demands for CPU and for a fraction of a GPU of the kinds that a model serves.
  struct demands {
    std::vector<std::uint32_t> cpus, fractions;

    demands(const task_mix& mix, gpu_model model);
    // One row for each rank of CPU.
    [[nodiscard]] std::size_t rows() const noexcept { return cpus.size() + 1; }
    // Where M begins in a row of the table, the length of a row.
    [[nodiscard]] std::size_t several() const noexcept { return fractions.size() + 1; }
    [[nodiscard]] std::size_t row_size() const noexcept {
      return several() + max_gpus_per_node + 1;
    }
    [[nodiscard]] std::size_t table_bytes() const noexcept {
      return rows() * row_size() * sizeof(std::uint32_t);
    }
  };

  // H and M for each rank of the CPU left, for the kinds that a GPU model serves.
  struct table {
    std::vector<std::uint32_t> cpus;    // distinct demands, ascending
    std::vector<std::uint32_t> counts;  // row i is for rank i of CPU: H by rank of fraction, then M
    std::array<std::uint16_t, whole_gpu + 1> fraction_rank{};
    std::size_t row_size = 0;

    table(const task_mix& mix, gpu_model model);
  };

  [[nodiscard]] static bool serves(gpu_model model, const task_kind& kind) noexcept {
    return kind.gpus != 0 && (kind.models >> model & 1) != 0;
  }
  // The lowest GPU model that serves the same kinds as `model`.
  [[nodiscard]] static gpu_model first_alike(const task_mix& mix, gpu_model model) noexcept {
    for (gpu_model other = 0; other < model; ++other) {
      bool alike = true;
      for (const task_mix::weighted_kind& t : mix.tasks())
        alike = alike && serves(model, t.kind) == serves(other, t.kind);
      if (alike) return other;
    }
    return model;
  }
  // How many of the ascending values are <= x. No branch depends on x.
  [[nodiscard]] static std::size_t rank(std::span<const std::uint32_t> values,
                                        std::uint32_t x) noexcept {
    const std::uint32_t* at = values.data();
    for (std::size_t n = values.size(); n > 0;) {
      const std::size_t half = (n + 1) / 2;
      at += at[half - 1] <= x ? half : 0;
      n -= half;
    }
    return static_cast<std::size_t>(at - values.data());
  }

  std::vector<table> tables_;
  std::array<std::uint8_t, max_gpu_models> table_of_{};
  std::uint64_t total_weight_ = 0;
};

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

#ifndef APIARY_COMPILED
#include <apiary/metric/detail/fragmentation_inl.h>
#endif
