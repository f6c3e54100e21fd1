// apiary/metric/detail/task_mix_inl.h - bodies of metric/task_mix.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>
#include <apiary/metric/task_mix.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE task_mix::task_mix(const std::vector<std::pair<task_kind, std::uint32_t>>& kinds) {
  for (const auto& [kind, weight] : kinds) total_weight_ += weight;
  APIARY_VERIFY(total_weight_ >> 32 == 0);
  for (const auto& [kind, weight] : kinds) {
    APIARY_VERIFY(kind.valid());
    if (weight == 0) continue;
    tasks_.push_back(
        {kind, weight, static_cast<double>(weight) / static_cast<double>(total_weight_)});
  }
}

APIARY_INLINE task_mix task_mix::from_history(std::span<const task_kind> seen,
                                              std::uint32_t coverage_percent) {
  const auto before = [](const weighted_kind& a, const weighted_kind& b) {
    const task_kind& x = a.kind;
    const task_kind& y = b.kind;
    return std::tie(a.weight, x.cpu_milli, x.gpu_milli, x.gpus, x.spec, x.models) >
           std::tie(b.weight, y.cpu_milli, y.gpu_milli, y.gpus, y.spec, y.models);
  };
  std::vector<weighted_kind> sorted;
  for (const task_kind& kind : seen) {
    APIARY_VERIFY(kind.valid());
    sorted.push_back({kind, 1, 0.0});
  }
  detail::merge_sort(sorted, before);
  task_mix mix;
  for (const weighted_kind& task : sorted) {
    if (mix.tasks_.empty() || mix.tasks_.back().kind != task.kind) {
      mix.tasks_.push_back(task);
    } else {
      ++mix.tasks_.back().weight;
    }
  }
  detail::merge_sort(mix.tasks_, before);
  const auto n = static_cast<double>(seen.size());
  const double wanted = coverage_percent * n / 100.0;
  std::size_t taken = 0;
  while (taken < mix.tasks_.size() && static_cast<double>(mix.total_weight_) < wanted) {
    mix.total_weight_ += mix.tasks_[taken++].weight;
  }
  mix.tasks_.resize(taken);
  for (weighted_kind& task : mix.tasks_) {
    task.probability = task.weight / n / (static_cast<double>(mix.total_weight_) / n);
  }
  return mix;
}

APIARY_INLINE void recent_mix::add(const task_kind& kind) {
  APIARY_ASSERT(kind.valid());
  ++arrivals_;
  auto found = position_of(kind);
  if (found == kinds_.end() || found->kind != kind) {
    if (kinds_.size() == max_kinds) {
      kinds_.erase(std::min_element(kinds_.begin(), kinds_.end(), [](const auto& a, const auto& b) {
        return a.weight < b.weight;
      }));
      found = position_of(kind);
    }
    found = kinds_.insert(found, {kind, 0});
  }
  found->weight += unit_;
  unit_ += unit_ / window_ + 1;
  if (unit_ < std::uint64_t{1} << 40) return;
  unit_ >>= 16;
  for (counted& c : kinds_) c.weight >>= 16;
  std::erase_if(kinds_, [](const counted& c) { return c.weight == 0; });
}

APIARY_INLINE task_mix recent_mix::mix() const {
  std::vector<counted> sorted = kinds_;
  detail::merge_sort(sorted, [](const counted& a, const counted& b) {
    return a.weight != b.weight ? a.weight > b.weight : key(a.kind) > key(b.kind);
  });
  std::uint64_t total = 0;
  for (const counted& c : sorted) total += c.weight;
  std::uint32_t shift = 0;
  while (total >> shift >> 20 != 0) ++shift;
  std::vector<std::pair<task_kind, std::uint32_t>> kinds;
  for (const counted& c : sorted)
    kinds.emplace_back(c.kind, static_cast<std::uint32_t>(c.weight >> shift));
  return task_mix(kinds);
}

APIARY_INLINE auto recent_mix::position_of(const task_kind& kind)
    -> std::vector<counted>::iterator {
  return std::lower_bound(
      kinds_.begin(), kinds_.end(), kind,
      [](const counted& a, const task_kind& b) { return key(a.kind) < key(b); });
}

APIARY_NAMESPACE_END
