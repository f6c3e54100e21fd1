// apiary/fgd/detail/fragmentation_migrations.h - the migration that lowers fragmentation most.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A task and where it runs.
struct placed_request {
  task_request task{};
  placement where{};
};
// A migration of one task.
struct fragmentation_migration {
  std::size_t task = 0;    // its index
  placement to{};          // another node, or other devices of its own
  std::uint64_t gain = 0;  // W * (F of the cluster before - after), above 0
  friend bool operator==(const fragmentation_migration&, const fragmentation_migration&) = default;
};

// Finds the migration of one task that lowers the cluster's fragmentation F most for each GPU of
// the task. For each kind of task it keeps the gain on every node, and updates the nodes that
// changed.
// Model:    migration as in "Gandiva" (OSDI 2018), §3.2, with the measure of "Beware of
//           Fragmentation" (USENIX ATC 2023), §3, instead of free GPUs by server.
// Requires: the same nodes at each call; update() after each change of one. W < 2^32.
// Cost:     best O((tasks + kinds * changed nodes) * GPUs of a node + kinds * nodes).
class fragmentation_migrations {
 public:
  explicit fragmentation_migrations(fragmentation metric) : metric_(std::move(metric)) {}
  [[nodiscard]] const fragmentation& metric() const noexcept { return metric_; }
  // Node n has changed.
  void update(node_id n) {
    if (!kinds_.empty()) changes_.push_back(n);
  }
  // The migration that gains most for each GPU of its task (a task without GPUs counts as one), if
  // that is more than `cost` thousandths. Ties go to the first task, then node, then device.
  [[nodiscard]] std::optional<fragmentation_migration> best(const node_table& nodes,
                                                            std::span<const placed_request> tasks,
                                                            std::uint32_t cost) {
    if (changes_.size() > nodes.size()) {  // a fresh start costs no more
      kinds_.clear();
      changes_.clear();
    }
    ++round_;
    std::optional<fragmentation_migration> found;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const task_request& task = tasks[i].task;
      const placement at = tasks[i].where;
      const node_state left = with(nodes[at.node], task, at.gpu_mask, false);
      const auto leaving = static_cast<std::int64_t>(metric_.weighted(nodes[at.node])) -
                           static_cast<std::int64_t>(metric_.weighted(left));
      entry to = enter(left, at.node, task);  // its own node without it
      const kind& k = refresh(nodes, task);
      const entry& other = k.best[0].where.node == at.node ? k.best[1] : k.best[0];
      if (other.gain > to.gain || (other.gain == to.gain && other.where.node < to.where.node))
        to = other;
      if (to.gain == no_fit || leaving + to.gain <= 0) continue;
      const fragmentation_migration move{i, to.where,
                                         static_cast<std::uint64_t>(leaving + to.gain)};
      if (pays(move.gain, task, cost) &&
          (!found || move.gain * gpus(tasks[found->task].task) > found->gain * gpus(task)))
        found = move;
    }
    return found;
  }

 private:
  static constexpr std::int64_t no_fit = INT64_MIN;
  struct entry {
    std::int64_t gain = no_fit;  // W * (F before - F with the task)
    placement where{};
  };
  struct kind {
    dense_map<node_id, entry> entries{};  // 24 bytes a node
    std::size_t seen = 0;                 // changes
    std::uint64_t round = 0;              // in which `best` was found
    entry best[2]{};                      // on two nodes
  };
  using kind_key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, milli_gpu, model_set>;
  // Thousandths of GPUs that count as migrated.
  [[nodiscard]] static std::uint64_t gpus(const task_request& task) noexcept {
    return task.wants_gpu() ? task.total_gpu_milli() : whole_gpu;
  }
  [[nodiscard]] bool pays(std::uint64_t gain, const task_request& task, std::uint32_t cost) const {
    const std::uint64_t unit = metric_.total_weight() * gpus(task);
    const std::uint64_t whole = gain * 1000 / unit;
    return whole > cost || (whole == cost && gain * 1000 % unit > 0);
  }
  // The node after the task has been placed there, or removed.
  [[nodiscard]] static node_state with(const node_state& before, const task_request& task,
                                       std::uint32_t mask, bool taken) noexcept {
    node_state node = before;
    node.change(task, mask, taken);
    return node;
  }
  // The devices of this node where the task gains most.
  [[nodiscard]] entry enter(const node_state& node, node_id n, const task_request& task) const {
    entry best;
    if (!node.fits(task)) return best;
    const auto before = static_cast<std::int64_t>(metric_.weighted(node));
    const auto consider = [&](std::uint32_t mask) {
      const std::int64_t gain =
          before - static_cast<std::int64_t>(metric_.weighted(with(node, task, mask, true)));
      if (gain > best.gain) best = {gain, {n, mask}};
    };
    if (!task.wants_part_of_gpu()) {
      consider(task.wants_gpu() ? node.first_free_gpus(task.gpus) : 0);
      return best;
    }
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      bool seen = false;  // devices with the same amount left gain the same
      for (std::uint32_t j = 0; j < i; ++j) seen = seen || node.gpu_left[j] == node.gpu_left[i];
      if (!seen && node.gpu_left[i] >= task.gpu_milli) consider(std::uint32_t{1} << i);
    }
    return best;
  }
  const kind& refresh(const node_table& nodes, const task_request& task) {
    kind_key key{task.cpu_milli, task.memory_mib, 0, 0, any_model};
    if (task.wants_gpu())
      key = {task.cpu_milli, task.memory_mib, task.gpus, task.gpu_milli, task.models};
    kind& k = kinds_[key];
    if (k.round == round_) return k;
    k.round = round_;
    if (k.entries.empty()) {
      k.entries.resize(nodes.size());
      for (const node_id n : nodes.ids()) k.entries[n] = enter(nodes[n], n, task);
    } else {
      for (; k.seen < changes_.size(); ++k.seen) {
        const node_id n = changes_[k.seen];
        k.entries[n] = enter(nodes[n], n, task);
      }
    }
    k.seen = changes_.size();
    k.best[0] = k.best[1] = entry();
    for (const entry& e : k.entries) {
      if (e.gain > k.best[0].gain) {
        k.best[1] = k.best[0];
        k.best[0] = e;
      } else if (e.gain > k.best[1].gain) {
        k.best[1] = e;
      }
    }
    return k;
  }

  fragmentation metric_;
  std::map<kind_key, kind> kinds_;
  std::vector<node_id> changes_;  // in order
  std::uint64_t round_ = 0;       // calls of best
};

}  // namespace detail
APIARY_NAMESPACE_END
