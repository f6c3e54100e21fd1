// apiary/metric/fragmentation.h - how much of the idle GPU shares a typical workload cannot use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/dense_map.h>
#include <apiary/core/ids.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Fragmentation of a node for a task mix, in exact integers.
//
//   F(n) = sum over kinds m of p_m * (thousandths of GPUs left on n that m cannot use)
//
// A kind that asks for no GPU, may not run on the node's model, lacks CPU or lacks devices can use
// nothing of it; any other kind can use the devices that have its share left. With integer weights
// c_m = W * p_m, where W is their sum, W * F is an integer; what the kinds can use, W * (left - F),
// comes out of two small tables: a kind for one device is served by exactly the devices with its
// share left, so each device adds left * H[left], and kinds for several whole devices add 1000 *
// free * M[free].
//
// Model: "Beware of Fragmentation" (USENIX ATC 2023), section 3; the exact form in place of
// doubles. Cost:  O(GPUs of a node) look-ups; the tables take 4 bytes for each (class of models
// with the same accessible
//        kinds) x (distinct CPU demand) x (distinct share), a few KiB, and 1 KiB for ranks.
class fragmentation {
 public:
  explicit fragmentation(const task_mix& mix) : total_weight_(mix.total_weight()) {
    std::vector<std::uint32_t> shares;
    for (const typical_task& t : mix.tasks()) {
      if (t.kind.devices == 0) continue;
      cpus_.push_back(t.kind.cpu_milli);
      if (t.kind.devices == 1) shares.push_back(t.kind.gpu_milli);
    }
    const auto sort_unique = [](std::vector<std::uint32_t>& values) {
      std::sort(values.begin(), values.end());
      values.erase(std::unique(values.begin(), values.end()), values.end());
    };
    sort_unique(cpus_);
    sort_unique(shares);
    for (std::uint32_t left = 0; left <= whole_gpu; ++left) {
      const auto above = std::upper_bound(shares.begin(), shares.end(), left);
      share_rank_[left] = static_cast<std::uint16_t>(above - shares.begin());
    }
    row_size_ = static_cast<std::uint32_t>(shares.size()) + 1 + max_gpus_per_node + 1;
    const auto num_rows = static_cast<std::uint32_t>(cpus_.size()) + 1;

    std::vector<std::vector<bool>> classes;  // which kinds each class of models may serve
    for (gpu_model model = 0; model < max_gpu_models; ++model) {
      std::vector<bool> accessible;
      for (const typical_task& t : mix.tasks())
        accessible.push_back(contains(t.kind.models, model));
      const auto same = std::find(classes.begin(), classes.end(), accessible);
      class_offset_[model] =
          static_cast<std::uint32_t>(same - classes.begin()) * num_rows * row_size_;
      if (same == classes.end()) classes.push_back(std::move(accessible));
    }
    table_.assign(classes.size() * num_rows * row_size_, 0);
    std::uint32_t* entries = table_.data();
    for (const std::vector<bool>& accessible : classes) {
      for (std::uint32_t r = 0; r < num_rows; ++r, entries += row_size_) {
        for (std::size_t m = 0; m < mix.tasks().size(); ++m) {
          const typical_task& t = mix.tasks()[m];
          if (accessible[m] && t.kind.devices != 0 && r > 0 && t.kind.cpu_milli <= cpus_[r - 1]) {
            count(entries, t, static_cast<std::uint32_t>(shares.size()));
          }
        }
      }
    }
  }

  // W, the sum of the weights.
  [[nodiscard]] std::uint64_t total_weight() const noexcept { return total_weight_; }

  // What applies to nodes of one model with so much CPU left.
  class row {
   public:
    // Adds up what kinds for one device can use of a device with `left`, times W.
    [[nodiscard]] std::uint64_t of_device(milli_gpu left) const noexcept {
      return std::uint64_t{left} * single_[ranks_[left]];
    }
    // What kinds for several devices can use of `free` free devices, times W.
    [[nodiscard]] std::uint64_t of_free(std::uint32_t free) const noexcept {
      return std::uint64_t{whole_gpu} * free * several_[free];
    }
    // What the mix can use of the devices, times W.
    [[nodiscard]] std::uint64_t usable(std::span<const milli_gpu> devices) const noexcept {
      std::uint64_t sum = 0;
      std::uint32_t free = 0;
      for (const milli_gpu left : devices) {
        sum += of_device(left);
        free += left == whole_gpu ? 1 : 0;
      }
      return sum + of_free(free);
    }

   private:
    friend class fragmentation;
    const std::uint32_t* single_ = nullptr;
    const std::uint32_t* several_ = nullptr;
    const std::uint16_t* ranks_ = nullptr;
  };

  [[nodiscard]] row row_of(gpu_model model, std::uint32_t cpu_left) const noexcept {
    std::uint32_t r = 0;
    for (const std::uint32_t cpu : cpus_) r += cpu <= cpu_left ? 1 : 0;
    row result;
    result.single_ = table_.data() + class_offset_[model] + std::size_t{r} * row_size_;
    result.several_ = result.single_ + (row_size_ - max_gpus_per_node - 1);
    result.ranks_ = share_rank_.data();
    return result;
  }

  // W * (thousandths left on the node - F).
  [[nodiscard]] std::uint64_t usable(const node_state& node) const noexcept {
    return row_of(node.model, node.left.cpu_milli).usable(node.devices());
  }
  // W * F.
  [[nodiscard]] std::uint64_t weighted(const node_state& node) const noexcept {
    return total_weight_ * node.total_gpu_left() - usable(node);
  }
  // F in thousandths of GPUs; 0 for an empty mix.
  [[nodiscard]] double operator()(const node_state& node) const noexcept {
    return total_weight_ == 0
               ? 0.0
               : static_cast<double>(weighted(node)) / static_cast<double>(total_weight_);
  }

 private:
  // Counts a kind into every entry of a row that serves it.
  void count(std::uint32_t* entries, const typical_task& t,
             std::uint32_t num_shares) const noexcept {
    if (t.kind.devices == 1) {
      for (std::uint32_t rank = share_rank_[t.kind.gpu_milli]; rank <= num_shares; ++rank)
        entries[rank] += t.weight;
    } else {
      std::uint32_t* const several = entries + num_shares + 1;
      for (std::uint32_t free = t.kind.devices; free <= max_gpus_per_node; ++free)
        several[free] += t.weight;
    }
  }

  std::vector<std::uint32_t> cpus_;   // distinct CPU demands of kinds with GPUs, ascending
  std::vector<std::uint32_t> table_;  // by class of models, rank of CPU left: H, then M
  std::array<std::uint16_t, whole_gpu + 1> share_rank_{};
  std::array<std::uint32_t, max_gpu_models> class_offset_{};
  std::uint32_t row_size_ = 0;
  std::uint64_t total_weight_ = 0;
};

APIARY_NAMESPACE_END
