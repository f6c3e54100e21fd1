// apiary/fgd/detail/load_prices.h - prices from samples of an expected load.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/rng.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/load_program.h>
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
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Prices from one sample of the load, in millionths of a GPU.
struct load_prices {
  std::vector<std::int32_t> net_worth{};  // by kind: what a task earns more than its price, >= 0
  std::int32_t least_core_price = 0;      // no task without GPU earns more than this for each core
};

// V(node), an upper bound of the sum of net worths of any tasks that fit together on what is left
// of a node, in millionths of a GPU, summed over samples of the load:
//
//   V(node) = min over core prices q of  (q * cores left + sum over GPUs of the most that tasks can
//             earn on what is left of the GPU if they pay q for each core)
//
// It is an upper bound because tasks that fit on the node pay at most q * cores left, and what they
// earn beyond that is in the sum. Each node finds the core price that fits its own cores.
//
// A lane is one core price of one sample. The sum for all lanes is a sum of rows, one for each GPU
// in use and one for the free GPUs.
//
// Model: Lagrangian relaxation of the packing problem of a node, with 20 multipliers.
// Cost:  value: O(lanes * GPUs in use). Construction: O(lanes * models that differ * (steps *
//        distinct fractions + kinds)), steps = 1000 / greatest common divisor of the fractions.
//        Memory: 4 bytes * lanes * (steps + 18) for each group of GPU models that serve the same
//        kinds.
class price_tables {
 public:
  // Core prices in a sample: 0, and 0.003 * 1.25^i GPUs, i = 0, ..., 18.
  static constexpr std::size_t num_core_prices = 20;
  // The most samples.
  static constexpr std::size_t max_samples = 16;
  // Cores of a node or a task beyond this are not counted, in thousandths.
  static constexpr std::uint32_t max_cpu_milli = 10'000'000;
  // An amount in one lane, in millionths of a GPU.
  using amount = std::int32_t;

  // Tables without samples.
  price_tables() = default;
  // Requires: samples.size() <= max_samples; each has a net worth below 1000 GPUs for each kind.
  price_tables(std::span<const load_kind> kinds, std::span<const load_prices> samples)
      : samples_(samples.size()), lanes_(samples.size() * num_core_prices) {
    APIARY_ASSERT(samples.size() <= max_samples);
    for (const load_kind& kind : kinds) {
      // The greatest common divisor; <numeric>, which has std::gcd, would add 550 lines.
      for (std::uint32_t rest = kind.gpus == 1 ? kind.gpu_milli : 0U; rest != 0;)
        step_ = std::exchange(rest, step_ % rest);
    }
    for (const load_prices& sample : samples) {
      std::uint64_t price = 0;  // billionths
      for (std::size_t i = 0; i < num_core_prices; ++i) {
        const std::uint64_t here =
            (std::max)(price / 1000, static_cast<std::uint64_t>(sample.least_core_price));
        core_prices_.push_back(static_cast<std::uint32_t>(((here << price_bits) + 999) / 1000));
        price = i == 0 ? 3'000'000 : price * 5 / 4;
      }
    }
    for (gpu_model model = 0; model < max_gpu_models; ++model) {
      gpu_model first = 0;
      while (first < model && !alike(kinds, first, model)) ++first;
      table_of_[model] =
          first < model ? table_of_[first] : static_cast<std::uint8_t>(tables_.size());
      if (first == model) tables_.push_back(make(kinds, samples, model));
    }
  }

  // The number of samples.
  [[nodiscard]] std::size_t samples() const noexcept { return samples_; }

  // The sums over the rows of a node, by lane.
  class sums {
   public:
    // Of what is left of `node`, as if `cpu_milli` thousandths of a core were left.
    sums(const price_tables& tables, const node_state& node, std::uint32_t cpu_milli) noexcept
        : tables_(tables), table_(tables.tables_[tables.table_of_[node.model]].data()) {
      const std::uint64_t cpu = (std::min)(cpu_milli, max_cpu_milli);
      const std::uint32_t* const prices = tables.core_prices_.data();
      for (std::size_t l = 0; l < tables.lanes_; ++l)
        lanes_[l] = static_cast<amount>(prices[l] * cpu >> price_bits) + 1;
      for (const milli_gpu left : node.each_gpu()) {
        if (left == whole_gpu) {
          ++free_;
        } else if (left != 0) {
          const amount* const row = of_gpu(left);
          for (std::size_t l = 0; l < tables.lanes_; ++l) lanes_[l] += row[l];
        }
      }
      const amount* const row = of_free(free_);
      for (std::size_t l = 0; l < tables.lanes_; ++l) lanes_[l] += row[l];
    }

    // V, the sum over the samples.
    [[nodiscard]] std::int64_t value() const noexcept { return value(of_free(0), of_free(0)); }
    // The same with `count` free GPUs less.
    [[nodiscard]] std::int64_t without_free(std::uint32_t count) const noexcept {
      APIARY_ASSERT(count <= free_);
      return value(of_free(free_), of_free(free_ - count));
    }
    // The same with `taken` thousandths less on a GPU with `left` thousandths left.
    [[nodiscard]] std::int64_t without_part(milli_gpu left, milli_gpu taken) const noexcept {
      APIARY_ASSERT(0 < taken && taken <= left);
      const amount* const after = of_gpu(static_cast<milli_gpu>(left - taken));
      if (left < whole_gpu) return value(of_gpu(left), after);
      return value(of_free(free_), of_free(free_ - 1), after);
    }

   private:
    [[nodiscard]] const amount* of_gpu(std::uint32_t left) const noexcept {
      return table_ + left / tables_.step_ * tables_.lanes_;
    }
    [[nodiscard]] const amount* of_free(std::uint32_t free) const noexcept {
      return table_ + (whole_gpu / tables_.step_ + 1 + free) * tables_.lanes_;
    }
    // V with the row `before` replaced by one or two rows.
    [[nodiscard]] std::int64_t value(const amount* before, const amount* after) const noexcept {
      std::int64_t sum = 0;
      for (std::size_t s = 0; s < tables_.lanes_; s += num_core_prices) {
        amount least = lanes_[s] - before[s] + after[s];
        for (std::size_t l = s + 1; l < s + num_core_prices; ++l)
          least = (std::min)(least, lanes_[l] - before[l] + after[l]);
        sum += least;
      }
      return sum;
    }
    [[nodiscard]] std::int64_t value(const amount* before, const amount* after,
                                     const amount* more) const noexcept {
      std::int64_t sum = 0;
      for (std::size_t s = 0; s < tables_.lanes_; s += num_core_prices) {
        amount least = lanes_[s] - before[s] + after[s] + more[s];
        for (std::size_t l = s + 1; l < s + num_core_prices; ++l)
          least = (std::min)(least, lanes_[l] - before[l] + after[l] + more[l]);
        sum += least;
      }
      return sum;
    }

    const price_tables& tables_;
    const amount* table_;
    std::uint32_t free_ = 0;
    std::array<amount, max_samples * num_core_prices> lanes_;  // the first tables_.lanes_ are set
  };

  // V of a node, the sum over the samples.
  [[nodiscard]] std::int64_t value(const node_state& node) const noexcept {
    return sums(*this, node, node.left.cpu_milli).value();
  }

 private:
  static constexpr std::uint32_t price_bits = 20;
  using table = std::vector<amount>;  // a row for each step of a GPU, then one for each free GPU

  [[nodiscard]] static bool alike(std::span<const load_kind> kinds, gpu_model a, gpu_model b) {
    return std::all_of(kinds.begin(), kinds.end(), [&](const load_kind& kind) {
      return kind.gpus == 0 || (kind.models >> a & 1) == (kind.models >> b & 1);
    });
  }
  [[nodiscard]] table make(std::span<const load_kind> kinds, std::span<const load_prices> samples,
                           gpu_model model) const {
    const std::size_t full = whole_gpu / step_;
    table rows((full + 1 + max_gpus_per_node + 1) * lanes_);
    std::vector<amount> best(full + 1);  // of a kind, by its steps
    std::vector<amount> earned(full + 1);
    for (std::size_t l = 0; l < lanes_; ++l) {
      std::fill(best.begin(), best.end(), 0);
      std::array<amount, max_gpus_per_node + 1> best_of_free{};  // of a kind, by its GPUs
      for (std::size_t m = 0; m < kinds.size(); ++m) {
        const load_kind& kind = kinds[m];
        if (kind.gpus == 0 || kind.gpus > max_gpus_per_node || (kind.models >> model & 1) == 0)
          continue;
        const std::uint64_t cpu = (std::min)(kind.cpu_milli, max_cpu_milli);
        const auto cores = static_cast<amount>(core_prices_[l] * cpu >> price_bits);
        amount& known = kind.gpus == 1 ? best[kind.gpu_milli / step_] : best_of_free[kind.gpus];
        known = (std::max)(known, samples[l / num_core_prices].net_worth[m] - cores);
      }
      for (std::size_t left = 1; left <= full; ++left) {
        earned[left] = earned[left - 1];
        for (std::size_t s = 1; s <= left; ++s)
          if (best[s] > 0) earned[left] = (std::max)(earned[left], earned[left - s] + best[s]);
        rows[left * lanes_ + l] = earned[left];
      }
      best_of_free[1] = earned[full];
      std::array<amount, max_gpus_per_node + 1> earned_of_free{};
      for (std::size_t free = 1; free <= max_gpus_per_node; ++free) {
        for (std::size_t n = 1; n <= free; ++n)
          earned_of_free[free] =
              (std::max)(earned_of_free[free], earned_of_free[free - n] + best_of_free[n]);
        rows[(full + 1 + free) * lanes_ + l] = earned_of_free[free];
      }
    }
    return rows;
  }

  std::size_t samples_ = 0;
  std::size_t lanes_ = 0;
  std::uint32_t step_ = whole_gpu;            // divides every fraction of the kinds
  std::vector<std::uint32_t> core_prices_{};  // by lane; of 1/1000 core, 2^20ths of a millionth
  std::vector<table> tables_{};
  std::array<std::uint8_t, max_gpu_models> table_of_{};
};

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
