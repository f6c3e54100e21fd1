// apiary/fgd/price_score.h - a score by prices: a task goes where the cluster loses least value.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/fgd/detail/load_prices.h>
#include <apiary/fgd/node_score.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#ifdef APIARY_COMPILED
#include <apiary/fgd/gpu_sharing.h>
#endif

APIARY_NAMESPACE_BEGIN

// The parameters of price_score. The defaults are good on all traces that were tried.
struct price_options {
  // How many loads are sampled, 1 to 16.
  std::uint32_t samples = 6;
  // The least and the greatest sampled load: GPUs that all tasks of the whole run request, in % of
  // the cluster's GPUs. At least 1, at most 10,000.
  std::uint32_t least_load_percent = 90;
  std::uint32_t most_load_percent = 140;  // the same
  std::uint64_t seed = 1;                 // of the samples
  // Weights of the other terms of the gain, in thousandths of a GPU, each at most 1,000:
  std::uint32_t fragmentation_weight = 50;  // for a GPU that is useless to more tasks of one GPU
  std::uint32_t idle_weight = 5;            // for an idle node of 128 cores and 8 GPUs
  std::uint32_t order_weight = 100;    // times n / nodes for node n; once for nodes that join later
  std::uint32_t pressure_weight = 60;  // for a GPU of a model that tasks request twice over
};

// Places each task where the value of what is left in the cluster falls least.
//
// A linear program packs samples of the expected load into the cluster; its dual values say what a
// task of each kind earns above its price. V(node) is an upper bound of what tasks can still earn
// on the resources left on a node. The gain of a placement is the change of V, less a term for
// fragmentation for tasks of one GPU, one for idle resources, one for the id of the node, and one
// for GPUs of a model that tasks name often. A task with a fraction of a GPU gets the GPU with the
// greatest gain, among equals the fullest, then the first.
//
// Model:    Lagrangian bid prices, as in network revenue management; not in the FGD paper. The page
//           of fgd/ has the formulas and the results.
// Requires: nodes and tasks have at most 10,000 cores; more are not counted.
// Cost:     create: see the page; score, update: O(20 * samples * GPUs in use on the node). Memory:
//           16 bytes for each node, and the tables: about 0.5 MB for each group of alike models.
// Example:  examples/programs/replay.cpp
class price_score {
 public:
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;

  // Computes prices for this cluster and mix. The mix should cover all tasks of a history, also
  // those without GPU: task_mix::from_history(history, 100). kInvalidArgument: no kind requests a
  // GPU, no node has one, a node whose shape is not valid(), or an option is out of range.
  // kResourceExhausted: a linear program is not solved in 64,000 steps, or not exactly enough.
  [[nodiscard]] static absl::StatusOr<price_score> create(const node_table& nodes,
                                                          const task_mix& mix,
                                                          const price_options& options = {}) {
    APIARY_RETURN_IF_ERROR(detail::check_shapes(nodes));
    const detail::expected_load load(nodes, mix);
    APIARY_RETURN_IF_ERROR(load.check());
    APIARY_RETURN_IF_ERROR(check(options));
    rng random(options.seed);
    std::vector<detail::load_prices> samples;
    for (std::uint32_t s = 0; s < options.samples; ++s) {
      const double spread = options.most_load_percent - options.least_load_percent;
      const double at = options.samples == 1 ? 0.5 : static_cast<double>(s) / (options.samples - 1);
      APIARY_ASSIGN_OR_RETURN(detail::load_prices prices,
                              load.sample(options.least_load_percent + spread * at, random));
      samples.push_back(std::move(prices));
    }
    return price_score(load, samples, mix, nodes.size(), options);
  }

  // What is computed once for each kind of request.
  struct prepared {
    std::int64_t best_gain = 0;  // about the greatest gain that a placement can have
  };
  // The best gain on an idle and on a nearly full node of each shape.
  [[nodiscard]] prepared prepare(const node_table&, const task_request& task) const {
    prepared result;
    bool fits = false;
    for (const node_state& node : typical_nodes_) {
      node_state full = node;  // but for the task
      full.left.cpu_milli = (std::min)(node.left.cpu_milli, task.cpu_milli);
      for (std::uint32_t i = task.gpus; i < node.gpus; ++i) full.gpu_left[i] = 0;
      if (task.wants_part_of_gpu()) full.gpu_left[0] = task.gpu_milli;
      for (const node_state& state : {node, full}) {
        task_request without_memory = task;
        without_memory.memory_mib = 0;
        if (!state.fits(without_memory)) continue;
        const std::int64_t gain = best(state, now_of(state), task).gain;
        result.best_gain = fits ? (std::max)(result.best_gain, gain) : gain;
        fits = true;
      }
    }
    return result;
  }

  // Computes the value of node n again, after a change of the node.
  void update(const node_table& nodes, node_id n) {
    if (!now_.contains(n)) now_.resize(n.value + 1);
    now_[n] = now_of(nodes[n]);
  }
  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n, const task_request& task,
                                    const prepared& kind) const noexcept {
    const std::int64_t order =
        order_cost_ * (std::min)(std::int64_t{n.value}, num_nodes_) / num_nodes_;
    return to_score(kind.best_gain - best(nodes[n], now_[n], task).gain + order);
  }
  // The GPUs of node n that give this score.
  [[nodiscard]] std::uint32_t gpu_mask(const node_table& nodes, node_id n,
                                       const task_request& task) const noexcept {
    return best(nodes[n], now_[n], task).gpus;
  }
  // What a change of a node costs in value and fragmentation, in millionths of a GPU times samples.
  [[nodiscard]] std::int64_t cost(const node_state& before,
                                  const node_state& after) const noexcept {
    const now was = now_of(before);
    const now is = now_of(after);
    const auto taken = static_cast<std::int64_t>(before.total_gpu_left()) -
                       static_cast<std::int64_t>(after.total_gpu_left());
    return was.value - is.value + fragmented(was.usable, is.usable, taken);
  }

 private:
  struct now {
    std::int64_t value = 0;    // V
    std::uint64_t usable = 0;  // by tasks of one GPU
  };
  struct choice {
    std::int64_t gain = INT64_MIN;
    std::uint32_t gpus = 0;
  };

  [[nodiscard]] static absl::Status check(const price_options& o) {
    const auto in = [](std::uint32_t value, std::uint32_t least, std::uint32_t most) {
      return least <= value && value <= most;
    };
    if (!in(o.samples, 1, detail::price_tables::max_samples))
      return absl::InvalidArgumentError(absl::StrCat("prices from ", o.samples,
                                                     " samples; there can be 1 to ",
                                                     detail::price_tables::max_samples));
    if (!in(o.least_load_percent, 1, 10'000) ||
        !in(o.most_load_percent, o.least_load_percent, 10'000))
      return absl::InvalidArgumentError(absl::StrCat("prices for loads of ", o.least_load_percent,
                                                     " to ", o.most_load_percent,
                                                     " %; loads can be 1 to 10,000 %"));
    for (const std::uint32_t weight :
         {o.fragmentation_weight, o.idle_weight, o.order_weight, o.pressure_weight})
      if (weight > 1000)
        return absl::InvalidArgumentError(
            absl::StrCat("a weight of ", weight, " thousandths of a GPU; the limit is 1,000"));
    return absl::OkStatus();
  }

  price_score(const detail::expected_load& load, const std::vector<detail::load_prices>& samples,
              const task_mix& mix, std::uint32_t nodes, const price_options& o)
      : tables_(load.kinds(), samples),
        metric_(mix),
        samples_(o.samples),
        num_nodes_(nodes),
        fragmentation_cost_(std::int64_t{o.fragmentation_weight} * samples_),
        idle_cost_(std::int64_t{o.idle_weight} * samples_),
        order_cost_(std::int64_t{o.order_weight} * 1000 * samples_),
        pressure_cost_(load.pressure()) {
    for (std::int64_t& cost : pressure_cost_) cost = cost * o.pressure_weight * samples_ / 1000;
    for (const detail::node_class& c : load.classes()) {
      node_state idle;
      idle.left.cpu_milli = c.cpu_milli;
      idle.gpus = static_cast<std::uint8_t>(c.gpus);
      idle.model = c.model;
      std::fill_n(idle.gpu_left.begin(), c.gpus, whole_gpu);
      typical_nodes_.push_back(idle);
    }
  }

  [[nodiscard]] now now_of(const node_state& node) const noexcept {
    return {tables_.value(node), usable(metric_.row_of(node.model, node.left.cpu_milli), node)};
  }
  // What tasks of one GPU can use of the GPUs of a node, times the weight of the mix. Those of
  // several GPUs do not count, because V adds up what they can earn on the free GPUs of the node.
  [[nodiscard]] static std::uint64_t usable(const fragmentation::row& row,
                                            const node_state& node) noexcept {
    std::uint64_t sum = 0;
    for (const milli_gpu left : node.each_gpu()) sum += row.of_gpu(left);
    return sum;
  }
  // What a placement costs that takes `taken` thousandths of GPUs and changes the usable ones.
  [[nodiscard]] std::int64_t fragmented(std::uint64_t before, std::uint64_t after,
                                        std::int64_t taken) const noexcept {
    const auto weight = static_cast<std::int64_t>(metric_.total_weight());
    return fragmentation_cost_ * (static_cast<std::int64_t>(before - after) - taken * weight) /
           weight;
  }

  // The GPUs of the node for the task, and the gain without the term for the order.
  // Requires: the task fits.
  [[nodiscard]] choice best(const node_state& node, const now& before,
                            const task_request& task) const noexcept {
    const std::uint32_t cpu = node.left.cpu_milli - task.cpu_milli;
    const detail::price_tables::sums sums(tables_, node, cpu);
    const fragmentation::row row = metric_.row_of(node.model, cpu);
    const std::uint64_t usable_now = usable(row, node);
    const auto taken = static_cast<std::int64_t>(task.total_gpu_milli());
    const std::int64_t left = node.total_gpu_left() - taken;
    std::int64_t fixed = -before.value - idle_cost_ * cpu / 128 - idle_cost_ * left / 8;
    if (taken > 0) fixed -= pressure_cost_[node.model] * taken / 1000;
    const auto gain = [&](std::int64_t value, std::uint64_t usable_after) {
      return fixed + value - fragmented(before.usable, usable_after, taken);
    };
    if (!task.wants_part_of_gpu()) {
      if (!task.wants_gpu()) return {gain(sums.value(), usable_now), 0};
      const std::uint64_t fewer = usable_now - task.gpus * row.of_gpu(whole_gpu);
      return {gain(sums.without_free(task.gpus), fewer), node.first_free_gpus(task.gpus)};
    }
    choice found;
    std::uint32_t fullest = 0;  // GPU of `found`
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      const milli_gpu here = node.gpu_left[i];
      bool seen = here < task.gpu_milli;
      for (std::uint32_t j = 0; j < i && !seen; ++j) seen = node.gpu_left[j] == here;
      if (seen) continue;
      const auto rest = static_cast<milli_gpu>(here - task.gpu_milli);
      const std::uint64_t after = usable_now + row.of_gpu(rest) - row.of_gpu(here);
      const std::int64_t g = gain(sums.without_part(here, task.gpu_milli), after);
      if (g < found.gain || (g == found.gain && here >= node.gpu_left[fullest])) continue;
      found = {g, std::uint32_t{1} << i};
      fullest = i;
    }
    return found;
  }

  // What a placement loses that has half of max_score: 0.1 GPUs.
  [[nodiscard]] std::int64_t half_score() const noexcept { return 100'000 * samples_; }
  // max_score if nothing is lost against the best gain.
  [[nodiscard]] std::uint32_t to_score(std::int64_t lost) const noexcept {
    return static_cast<std::uint32_t>(max_score * half_score() /
                                      (half_score() + (std::max)(lost, std::int64_t{0})));
  }

  detail::price_tables tables_;
  fragmentation metric_;
  std::int64_t samples_;
  std::int64_t num_nodes_;  // when the prices were made
  // Costs in millionths of a GPU, times samples_.
  std::int64_t fragmentation_cost_;  // of a thousandth of a GPU of fragmentation
  std::int64_t idle_cost_;           // of 128/1000 cores, and of 8/1000 GPUs
  std::int64_t order_cost_;          // times n / num_nodes_ for node n
  std::array<std::int64_t, max_gpu_models> pressure_cost_;  // of a GPU
  std::vector<node_state> typical_nodes_{};                 // idle, one of each class
  dense_map<node_id, now> now_{};
};

static_assert(NodeScore<price_score>);

// Makes prices from the tasks that arrive, for hosts without a history of tasks.
//
// Cost:    arrive: as recent_mix::add; and as price_score::create after 32, 64, ..., 1,024
//          arrivals, then after each 1,024, and from 16,384 arrivals on each time their number has
//          grown by a sixteenth.
// Example: examples/learned_prices.cpp
class price_learner {
 public:
  // A task counts half as much after 0.69 * window later ones. Requires: as recent_mix.
  explicit price_learner(std::uint32_t window = 4096, const price_options& options = {})
      : options_(options), recent_(window) {}

  // The prices to begin with: they expect tasks of one GPU. Errors as price_score::create.
  [[nodiscard]] absl::StatusOr<price_score> first(const node_table& nodes) const {
    const task_mix one_gpu({{{.cpu_milli = 8000, .gpus = 1, .gpu_milli = whole_gpu}, 1}});
    return price_score::create(nodes, one_gpu, options_);
  }
  // A task arrives. Returns new prices for set_score() if it is time for them, otherwise nullopt;
  // also nullopt if they cannot be made, for example because no task has requested a GPU yet. A
  // task that is not valid() counts for nothing.
  [[nodiscard]] std::optional<price_score> arrive(const node_table& nodes,
                                                  const task_request& task) {
    if (!task.valid()) return std::nullopt;
    recent_.add({task.cpu_milli, task.gpus, task.gpu_milli, task.models});
    if (recent_.arrivals() < next_) return std::nullopt;
    next_ += next_ < 1024 ? next_ : (std::max)(std::uint64_t{1024}, next_ / 16);
    absl::StatusOr<price_score> prices = price_score::create(nodes, recent_.mix(), options_);
    if (!prices.ok()) return std::nullopt;
    return *std::move(prices);
  }

 private:
  price_options options_;
  recent_mix recent_;
  std::uint64_t next_ = 32;  // when so many have arrived
};

#ifdef APIARY_COMPILED
extern template class gpu_sharing_scheduler<price_score>;
#endif

APIARY_NAMESPACE_END
