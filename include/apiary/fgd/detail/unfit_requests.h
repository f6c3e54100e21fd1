// apiary/fgd/detail/unfit_requests.h - requests of which it is known that they fit on no node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Knows that a request fits on no node if another one that asks for no more fits on none. All kinds
// of request share this knowledge. For each GPU model it keeps the least amounts of CPU, memory and
// GPU that no node of this model has together. If a request asks for at least such amounts of each
// model that it accepts, it fits nowhere. When a node gets more, only the amounts that it has now
// are replaced.
//
// Requires: every call gets the same table; update() is called after each change of a node, and
//           when the table gets a new id.
// Cost:     update, fits_nowhere: a few times max_least comparisons for each model. learn: twice a
//           comparison for each 16 nodes, and for each node of those where it can succeed.
//           Construction: an update for each node. Memory: 25 bytes for each node.
class unfit_requests {
 public:
  // So many amounts are kept for a model.
  static constexpr std::size_t max_least = 64;

  // Knows what the nodes have.
  explicit unfit_requests(const node_table& nodes) {
    least_.fill({amounts{}});  // without nodes, nothing fits
    for (const node_id n : nodes.ids()) update(nodes, n);
  }

  // Must be called after each change of node n, and for a new one.
  void update(const node_table& nodes, node_id n) {
    if (!has_.contains(n)) {
      has_.resize(n.value + 1);
      words_.resize(n.value + 1);
      most_.resize(n.value / block + 1);
    }
    const node_state& node = nodes[n];
    has_[n] = {{node.left.cpu_milli, node.left.memory_mib, most_gpu_milli(node)}, group_of(node)};
    words_[n] = word_of(has_[n].left);
    set_most(n.value / block);
    if (has_[n].group == no_group) return;
    if (has_[n].group < max_gpu_models) models_ |= model_set{1} << has_[n].group;
    fits_now(least_[has_[n].group], has_[n].left);
  }
  // Whether it is known that the task fits on no node. Requires: task.valid().
  [[nodiscard]] bool fits_nowhere(const task_request& task) {
    const amounts wanted = amounts_of(task);
    return all_groups(task, [&](std::uint32_t g) { return is_known(least_[g], wanted); });
  }
  // The task fits on no node now: from now on amounts are known that it asks for, and the least such
  // ones. Requires: that is so; task.valid().
  void learn(const task_request& task) {
    const amounts wanted = amounts_of(task);
    std::array<amounts, no_group> least;
    least.fill(wanted);
    for (const auto amount : {&amounts::cpu_milli, &amounts::memory_mib}) {
      amounts all = wanted;  // the least of all groups
      (void)all_groups(task, [&](std::uint32_t g) {
        least[g].*amount = 0;
        all = {(std::min)(all.cpu_milli, least[g].cpu_milli),
               (std::min)(all.memory_mib, least[g].memory_mib),
               (std::min)(all.gpu_milli, least[g].gpu_milli)};
        return true;
      });
      // CPU, and then memory, are lowered as long as no node of the group has all of the amounts.
      std::array<std::uint32_t, no_group> more_than_any{};
      each_that_may_fit(word_of(all), [&](node_id n) {
        const node_amounts& node = has_[n];
        if (!accepts(task, node.group) || !least[node.group].fit_in(node.left)) return;
        std::uint32_t& more = more_than_any[node.group];
        more = (std::max)(more, node.left.*amount + 1);
      });
      for (std::uint32_t g = 0; g < no_group; ++g) least[g].*amount = more_than_any[g];
    }
    (void)all_groups(task, [&](std::uint32_t g) {
      insert(least_[g], least[g]);
      return true;
    });
  }
  // The nodes where a task may fit: it does not fit on the others.
  class candidates {
   public:
    // Requires: the node exists, or has existed.
    [[nodiscard]] bool contain(node_id n) const noexcept { return may_fit(wanted_, words_[n]); }

   private:
    friend unfit_requests;
    candidates(std::uint64_t wanted, const dense_map<node_id, std::uint64_t>& words) noexcept
        : wanted_(wanted), words_(words) {}
    std::uint64_t wanted_;
    const dense_map<node_id, std::uint64_t>& words_;
  };
  // Those for this task, until the next update(). Cost: contain() is one comparison.
  [[nodiscard]] candidates candidates_for(const task_request& task) const noexcept {
    return {word_of(amounts_of(task)), words_};
  }

 private:
  // CPU, memory, and thousandths of GPUs: a request for whole GPUs asks for 1000 times as many.
  struct amounts {
    std::uint32_t cpu_milli = 0;
    std::uint32_t memory_mib = 0;
    std::uint32_t gpu_milli = 0;
    [[nodiscard]] bool fit_in(const amounts& has) const noexcept {
      return cpu_milli <= has.cpu_milli && memory_mib <= has.memory_mib &&
             gpu_milli <= has.gpu_milli;
    }
  };
  // The group of a node is its GPU model, or one of these two.
  static constexpr std::uint32_t without_gpu = max_gpu_models;
  static constexpr std::uint32_t no_group = max_gpu_models + 1;  // it is bad, or was erased
  struct node_amounts {
    amounts left;
    std::uint32_t group = no_group;
  };
  using amount_list = std::vector<amounts>;
  // Three amounts in one word, each up to a limit: memory in the lowest 23 bits, CPU from bit 24
  // on, GPUs from bit 48 on. The bit above each is 0.
  static constexpr std::uint64_t above =
      std::uint64_t{1} << 23 | std::uint64_t{1} << 47 | std::uint64_t{1} << 63;
  static constexpr std::uint64_t masks[3] = {(std::uint64_t{1} << 23) - 1,
                                             ((std::uint64_t{1} << 23) - 1) << 24,
                                             ((std::uint64_t{1} << 15) - 1) << 48};
  static constexpr std::uint32_t block = 16;  // nodes

  [[nodiscard]] static std::uint64_t word_of(const amounts& a) noexcept {
    constexpr std::uint32_t most = (1U << 23) - 1;
    return std::uint64_t{a.gpu_milli} << 48 | std::uint64_t{(std::min)(a.cpu_milli, most)} << 24 |
           (std::min)(a.memory_mib, most);
  }
  // The greatest amounts of a block of nodes.
  void set_most(std::uint32_t b) noexcept {
    std::uint64_t most[3] = {};
    const std::uint32_t end = (std::min)((b + 1) * block, words_.size());
    for (std::uint32_t n = b * block; n < end; ++n) {
      for (std::uint32_t i = 0; i < 3; ++i)
        most[i] = (std::max)(most[i], words_[node_id(n)] & masks[i]);
    }
    most_[b] = most[0] | most[1] | most[2];
  }
  // Calls visit(node) for the nodes where `wanted` may fit.
  template <class Visit>
  void each_that_may_fit(std::uint64_t wanted, const Visit& visit) const {
    for (std::uint32_t b = 0; b < most_.size(); ++b) {
      if (!may_fit(wanted, most_[b])) continue;
      const std::uint32_t end = (std::min)((b + 1) * block, words_.size());
      for (std::uint32_t n = b * block; n < end; ++n)
        if (may_fit(wanted, words_[node_id(n)])) visit(node_id(n));
    }
  }
  // If it is false, the amounts of `wanted` do not fit in those of `has`. One subtraction compares
  // all of them.
  [[nodiscard]] static bool may_fit(std::uint64_t wanted, std::uint64_t has) noexcept {
    return (((has | above) - wanted) & above) == above;
  }

  [[nodiscard]] static std::uint32_t group_of(const node_state& node) noexcept {
    if (!node.healthy) return no_group;
    return node.gpus == 0 ? without_gpu : node.model;
  }
  // The most that one request can get: whole GPUs, or the freest one.
  [[nodiscard]] static std::uint32_t most_gpu_milli(const node_state& node) noexcept {
    const std::uint32_t free = node.free_gpus();
    if (free > 0) return free * whole_gpu;
    return *std::max_element(node.gpu_left.begin(), node.gpu_left.end());
  }
  [[nodiscard]] static amounts amounts_of(const task_request& task) noexcept {
    constexpr std::uint64_t too_many = std::uint64_t{max_gpus_per_node + 1} * whole_gpu;
    return {task.cpu_milli, task.memory_mib,
            static_cast<std::uint32_t>((std::min)(task.total_gpu_milli(), too_many))};
  }
  [[nodiscard]] static bool accepts(const task_request& task, std::uint32_t group) noexcept {
    if (!task.wants_gpu()) return group != no_group;
    return group < max_gpu_models && (task.models >> group & 1) != 0;
  }
  // Whether visit(group) is true for each group of nodes that the task accepts. Ends at the first
  // false.
  template <class Visit>
  bool all_groups(const task_request& task, const Visit& visit) {
    if (!task.wants_gpu() && !visit(without_gpu)) return false;
    model_set models = task.wants_gpu() ? models_ & task.models : models_;
    for (; models != 0; models &= models - 1)
      if (!visit(static_cast<std::uint32_t>(std::countr_zero(models)))) return false;
    return true;
  }

  // Whether amounts of the list fit in `wanted`. They move forward, because they may answer again.
  [[nodiscard]] static bool is_known(amount_list& list, const amounts& wanted) noexcept {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].fit_in(wanted)) continue;
      std::swap(list[i], list[i / 2]);
      return true;
    }
    return false;
  }
  // Adds amounts that no node has.
  static void insert(amount_list& list, const amounts& least) {
    if (is_known(list, least)) return;
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const amounts& known) { return least.fit_in(known); }),
               list.end());
    if (list.size() == max_least) list.pop_back();
    list.push_back(least);
  }
  // A node has `has` now. Amounts that it has are replaced by those that are just above.
  static void fits_now(amount_list& list, const amounts& has) {
    const auto first = std::partition(list.begin(), list.end(),
                                      [&](const amounts& least) { return !least.fit_in(has); });
    if (first == list.end()) return;
    const amount_list fit(first, list.end());
    list.erase(first, list.end());
    for (const amounts& a : fit) {
      if (has.cpu_milli < UINT32_MAX) insert(list, {has.cpu_milli + 1, a.memory_mib, a.gpu_milli});
      if (has.memory_mib < UINT32_MAX) insert(list, {a.cpu_milli, has.memory_mib + 1, a.gpu_milli});
      insert(list, {a.cpu_milli, a.memory_mib, has.gpu_milli + 1});
    }
  }

  dense_map<node_id, node_amounts> has_;       // what is left of each node
  dense_map<node_id, std::uint64_t> words_;    // the same as a word
  std::vector<std::uint64_t> most_;            // of the words of a block, each amount
  std::array<amount_list, no_group> least_{};  // by group
  model_set models_ = 0;                       // of the nodes that there are, or were
};

}  // namespace detail
APIARY_NAMESPACE_END
