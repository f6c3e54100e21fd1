// apiary/sim/load_curves.h - allocation and fragmentation as curves over the load that arrived.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/sim/load_trace.h>
#include <apiary/trace/decimal.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {

// Pairwise summation: the rounding error grows with log n instead of n. Below 128 values it keeps
// eight running sums.
[[nodiscard]] inline double pairwise_sum(std::span<const double> x) noexcept {
  if (x.size() > 128) {
    const std::size_t half = x.size() / 2 / 8 * 8;
    return pairwise_sum(x.first(half)) + pairwise_sum(x.subspan(half));
  }
  std::array<double, 8> r{};
  const std::size_t whole = x.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; ++i) r[i % 8] += x[i];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (const double rest : x.subspan(whole)) sum += rest;
  return sum;
}

[[nodiscard]] inline double mean(std::span<const double> x) noexcept {
  return pairwise_sum(x) / static_cast<double>(x.size());
}

}  // namespace detail

// Curves over the load, one value for each load of k = 0, 1, ... %: the mean over the arrivals at which
// the load so far rounded to k %. Where there is none, the mean over k-1 and k+1; NaN if these have
// none either, and for a cluster without GPUs.
struct load_curves {
  std::vector<double> allocation;            // % of the cluster's GPUs, two decimals
  std::vector<double> fragmentation_amount;  // % of the cluster's GPUs, two decimals
  std::vector<double> fragmentation_ratio;   // % of the GPUs that are idle
};

// Computes the curves for loads from 0 to `last` % of `total_gpus`, from the samples of trace_load().
//
// Model:    the evaluation of "Beware of Fragmentation" (USENIX ATC 2023), with its roundings:
//           amounts to two decimals before the means, loads to a whole per cent, halves to even.
// Cost:     O(samples).
[[nodiscard]] inline load_curves curves_of(std::span<const load_sample> samples,
                                           std::uint64_t total_gpus, std::uint32_t last = 130) {
  if (total_gpus == 0) samples = {};  // there is no load
  struct bucket {
    std::vector<double> allocation, amount, ratio;
    void append(const bucket& b) {
      allocation.insert(allocation.end(), b.allocation.begin(), b.allocation.end());
      amount.insert(amount.end(), b.amount.begin(), b.amount.end());
      ratio.insert(ratio.end(), b.ratio.begin(), b.ratio.end());
    }
  };
  const auto gpus = static_cast<double>(total_gpus);
  std::vector<bucket> buckets(std::size_t{last} + 2);
  for (const load_sample& sample : samples) {
    const double load = std::nearbyint(static_cast<double>(sample.arrived) / gpus / 10);
    if (load >= static_cast<double>(buckets.size())) break;
    bucket& at = buckets[static_cast<std::size_t>(load)];
    const auto idle = static_cast<double>(total_gpus * 1000 - sample.used);
    at.allocation.push_back(round2(static_cast<double>(sample.used) / gpus / 10));
    at.amount.push_back(round2(sample.fragmentation));
    at.ratio.push_back(idle > 0.0 ? round2(100 * sample.fragmentation / idle) : 0.0);
  }
  load_curves curves;
  for (std::size_t k = 0; k <= last; ++k) {
    bucket here = buckets[k];
    if (here.allocation.empty()) {
      if (k > 0) here.append(buckets[k - 1]);
      here.append(buckets[k + 1]);
    }
    if (here.allocation.empty()) {
      constexpr double none = std::numeric_limits<double>::quiet_NaN();
      curves.allocation.push_back(none);
      curves.fragmentation_amount.push_back(none);
      curves.fragmentation_ratio.push_back(none);
      continue;
    }
    curves.allocation.push_back(round2(detail::mean(here.allocation)));
    curves.fragmentation_amount.push_back(round2(100 * detail::mean(here.amount) / 1000 / gpus));
    curves.fragmentation_ratio.push_back(detail::mean(here.ratio));
  }
  return curves;
}

APIARY_NAMESPACE_END
