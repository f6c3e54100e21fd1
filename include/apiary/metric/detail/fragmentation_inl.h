// apiary/metric/detail/fragmentation_inl.h - bodies of metric/fragmentation.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE fragmentation::fragmentation(const task_mix& mix)
    : total_weight_(mix.total_weight()) {
  for (gpu_model model = 0; model < max_gpu_models; ++model) {
    const gpu_model alike = first_alike(mix, model);
    if (alike == model) tables_.emplace_back(mix, model);
    table_of_[model] =
        alike < model ? table_of_[alike] : static_cast<std::uint8_t>(tables_.size() - 1);
  }
}

APIARY_INLINE fragmentation::demands::demands(const task_mix& mix, gpu_model model) {
  for (const task_mix::weighted_kind& t : mix.tasks()) {
    if (!serves(model, t.kind)) continue;
    cpus.push_back(t.kind.cpu_milli);
    if (t.kind.gpus == 1) fractions.push_back(t.kind.gpu_milli);
  }
  detail::sort_unique(cpus);
  detail::sort_unique(fractions);
}

APIARY_INLINE fragmentation::table::table(const task_mix& mix, gpu_model model) {
  demands asked(mix, model);
  cpus = std::move(asked.cpus);
  for (std::uint32_t left = 0; left <= whole_gpu; ++left)
    fraction_rank[left] = static_cast<std::uint16_t>(rank(asked.fractions, left));
  const std::size_t several = asked.several();
  row_size = asked.row_size();
  counts.assign((cpus.size() + 1) * row_size, 0);
  // Counts each kind at the first entry where it fits; then sums along CPU, fractions, GPUs.
  for (const task_mix::weighted_kind& t : mix.tasks()) {
    if (!serves(model, t.kind) || t.kind.gpus > max_gpus_per_node) continue;
    const std::size_t at =
        t.kind.gpus == 1 ? fraction_rank[t.kind.gpu_milli] : several + t.kind.gpus;
    counts[rank(cpus, t.kind.cpu_milli) * row_size + at] += t.weight;
  }
  for (std::size_t i = row_size; i < counts.size(); ++i) counts[i] += counts[i - row_size];
  for (std::size_t begin = 0; begin < counts.size(); begin += row_size) {
    for (std::size_t i = 1; i < row_size; ++i) {
      if (i != several) counts[begin + i] += counts[begin + i - 1];
    }
  }
}

APIARY_INLINE std::uint64_t fragmentation::table_bytes(const task_mix& mix) {
  std::uint64_t bytes = 0;
  for (gpu_model model = 0; model < max_gpu_models; ++model) {
    if (first_alike(mix, model) == model) bytes += demands(mix, model).table_bytes();
  }
  return bytes;
}

APIARY_NAMESPACE_END
