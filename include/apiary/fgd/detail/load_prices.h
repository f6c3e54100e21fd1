// apiary/fgd/detail/load_prices.h - prices from samples of an expected load.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/rng.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/load_program.h>
#include <apiary/fgd/detail/price_tables.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A cluster as classes of equal nodes, and what is expected to arrive at it.
class expected_load {
 public:
  // The most kinds that get prices: the most frequent ones of the mix.
  static constexpr std::size_t max_kinds = 500;
  // If there are more classes of nodes, nodes with similar CPU become one.
  static constexpr std::size_t max_classes = 64;

  // The classes and kinds of a cluster and a mix.
  expected_load(const node_table& nodes, const task_mix& mix) : gpus_(nodes.total_gpus()) {
    find_classes(nodes);
    std::vector<task_mix::weighted_kind> most(mix.tasks().begin(), mix.tasks().end());
    merge_sort(most, [](const auto& a, const auto& b) { return a.weight > b.weight; });
    if (most.size() > max_kinds) most.resize(max_kinds);
    for (const task_mix::weighted_kind& t : most) {
      const std::uint32_t cpu = (std::min)(t.kind.cpu_milli, price_tables::max_cpu_milli);
      const double gpus = t.kind.gpus * (t.kind.gpu_milli / 1000.0);
      const double reward = t.kind.gpus > 0 ? gpus : reward_of_core * cpu / 1000.0;
      kinds_.push_back({cpu, t.kind.gpus, t.kind.gpu_milli, t.kind.models, 0.0, reward});
      if (t.kind.gpus > 0) requested_ += t.weight * gpus;
      weights_.push_back(t.weight);
      total_weight_ += t.weight;
      last_.push_back(total_weight_);
    }
  }

  // OK, or kInvalidArgument if there is nothing to price.
  [[nodiscard]] absl::Status check() const {
    if (requested_ <= 0.0)
      return absl::InvalidArgumentError("prices need a mix with tasks that request a GPU");
    if (gpus_ == 0) return absl::InvalidArgumentError("prices need a cluster with a GPU");
    return absl::OkStatus();
  }
  // The kinds, without demands.
  [[nodiscard]] const std::vector<load_kind>& kinds() const noexcept { return kinds_; }
  // The classes of nodes.
  [[nodiscard]] const std::vector<node_class>& classes() const noexcept { return classes_; }

  // The prices if random tasks of the mix request `load_percent` of the cluster's GPUs.
  // kResourceExhausted: the linear program is not solved. Requires: check().ok().
  [[nodiscard]] absl::StatusOr<load_prices> sample(double load_percent, rng& random) const {
    return prices(program(load_percent, random), load_percent);
  }
  // The program of such a load.
  [[nodiscard]] load_program program(double load_percent, rng& random) const {
    std::vector<node_class> classes = classes_;
    for (node_class& c : classes)
      c.cpu_milli = (std::min)(c.cpu_milli, price_tables::max_cpu_milli);
    std::vector<load_kind> kinds = kinds_;
    const double tasks = (std::clamp)(expected_tasks(load_percent), 1.0, max_tasks);
    const auto draws = static_cast<std::uint32_t>((std::min)(tasks, 1'000'000.0));
    for (std::uint32_t i = 0; i < draws; ++i) {
      const std::uint32_t at = random.uniform(total_weight_);
      const auto kind = std::upper_bound(last_.begin(), last_.end(), at) - last_.begin();
      kinds[static_cast<std::size_t>(kind)].demand += tasks / draws;
    }
    return load_program(std::move(classes), std::move(kinds));
  }
  // The prices that the duals of a program of such a load give; errors as sample().
  [[nodiscard]] absl::StatusOr<load_prices> prices(const load_program& solved,
                                                   double load_percent) const {
    if (!solved.optimal()) return unsolved(solved, load_percent);
    load_prices result;
    double core = 0.0;
    for (std::size_t m = 0; m < kinds_.size(); ++m) {
      const double net = (std::clamp)(kinds_[m].reward - solved.task_price(m), 0.0, max_worth);
      result.net_worth.push_back(static_cast<std::int32_t>(std::llround(net * 1e6)));
      if (kinds_[m].gpus == 0 && kinds_[m].cpu_milli > 0)
        core = (std::max)(core, net * 1000.0 / kinds_[m].cpu_milli);
    }
    result.least_core_price = static_cast<std::int32_t>(std::llround(core * 1e6));
    return result;
  }

  // By model: the expected tasks request so many GPUs more for each GPU of this model than of the
  // model with the fewest requests, if they request as many GPUs as the cluster has; in millionths.
  [[nodiscard]] std::array<std::int64_t, max_gpu_models> pressure() const {
    std::array<double, max_gpu_models> present{};
    for (const node_class& c : classes_) present[c.model] += c.nodes * c.gpus;
    std::array<double, max_gpu_models> requested{};
    for (std::size_t m = 0; m < kinds_.size(); ++m) {
      if (kinds_[m].gpus == 0) continue;
      double accepted = 0.0;
      for (gpu_model i = 0; i < max_gpu_models; ++i)
        if ((kinds_[m].models >> i & 1) != 0) accepted += present[i];
      for (gpu_model i = 0; accepted > 0.0 && i < max_gpu_models; ++i)
        if ((kinds_[m].models >> i & 1) != 0)
          requested[i] += weights_[m] * kinds_[m].reward * (1.0 / accepted);
    }
    std::array<std::int64_t, max_gpu_models> result{};
    std::int64_t least = INT64_MAX;
    for (gpu_model i = 0; i < max_gpu_models; ++i) {
      if (present[i] <= 0.0) continue;
      result[i] = std::llround(1e6 * requested[i] * static_cast<double>(gpus_) / requested_);
      least = (std::min)(least, result[i]);
    }
    for (gpu_model i = 0; i < max_gpu_models; ++i)
      result[i] = present[i] > 0.0 ? result[i] - least : 0;
    return result;
  }

 private:
  // What a task without GPU earns for each core, in GPUs.
  static constexpr double reward_of_core = 0.05;
  // A load has at most so many tasks, more than any cluster runs.
  static constexpr double max_tasks = 1e9;
  // In GPUs. A task that fits on a node earns less: 16 GPUs, or 0.05 for each of 10,000 cores.
  static constexpr double max_worth = 999.0;

  void find_classes(const node_table& nodes) {
    std::vector<node_shape> shapes;
    for (const node_id n : nodes.ids())
      if (nodes.contains(n)) shapes.push_back(nodes.shape(n));
    for (node_shape& s : shapes)
      if (s.gpus == 0) s.model = 0;
    const auto before = [](const node_shape& a, const node_shape& b) {
      if (a.model != b.model) return a.model < b.model;
      if (a.gpus != b.gpus) return a.gpus < b.gpus;
      return a.host.cpu_milli < b.host.cpu_milli;
    };
    merge_sort(shapes, before);
    for (std::uint64_t grain = 1; grain <= std::uint64_t{1} << 32; grain *= 2) {
      classes_.clear();
      const node_shape* first = nullptr;
      for (const node_shape& s : shapes) {
        if (first == nullptr || first->model != s.model || first->gpus != s.gpus ||
            first->host.cpu_milli / grain != s.host.cpu_milli / grain) {
          classes_.push_back({s.host.cpu_milli, s.gpus, s.model, 0.0});
          first = &s;
        }
        classes_.back().nodes += 1.0;
      }
      if (classes_.size() <= max_classes) return;
    }
  }
  [[nodiscard]] double expected_tasks(double load_percent) const noexcept {
    return load_percent / 100.0 * static_cast<double>(gpus_) / requested_ * total_weight_;
  }
  [[nodiscard]] absl::Status unsolved(const load_program& given_up, double load_percent) const {
    return absl::ResourceExhaustedError(absl::StrCat(
        "prices for a load of ", load_percent, " %: the linear program is not solved after ",
        given_up.steps(), " steps; the limit is ", load_program::max_steps,
        " (classes of nodes: ", classes_.size(), ", kinds of tasks: ", kinds_.size(), ")"));
  }

  std::uint64_t gpus_;
  std::vector<node_class> classes_{};
  std::vector<load_kind> kinds_{};
  std::vector<std::uint32_t> weights_{};  // by kind
  std::vector<std::uint32_t> last_{};     // by kind: the sum of the weights up to it
  std::uint32_t total_weight_ = 0;
  double requested_ = 0.0;  // GPUs, by all tasks of the mix once
};

}  // namespace detail
APIARY_NAMESPACE_END
