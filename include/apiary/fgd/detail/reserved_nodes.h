// apiary/fgd/detail/reserved_nodes.h - nodes on which tasks have reserved what victims still use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <unordered_map>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Hides reserved resources in a node table: a node with reservations shows what would be left if the
// tasks with the reservations ran beside all running ones, and 0 where that is less than nothing. It
// keeps what is really left.
//
// Requires: tasks start and end on the node table first, and then here; the table's nodes with
//           reservations do not leave or change.
// Cost:     O(GPUs of a node) and a hash look-up for each call.
class reserved_nodes {
 public:
  // Whether a task has a reservation on the node.
  [[nodiscard]] bool contains(node_id n) const { return nodes_.contains(n.value); }

  // Reserves resources for a task.
  void reserve(node_table& table, const task_request& task, placement where) {
    auto [found, is_new] = nodes_.try_emplace(where.node.value);
    if (is_new) found->second.left = left_of(table[where.node]);
    change(found->second, task, where, true);
    hide(table, where.node);
  }
  // Takes reserve() back.
  void release(node_table& table, const task_request& task, placement where) {
    const auto found = nodes_.find(where.node.value);
    APIARY_ASSERT(found != nodes_.end());
    change(found->second, task, where, false);
    hide(table, where.node);
    if (found->second.tasks == 0) nodes_.erase(found);
  }
  // Shows what is really left on the node until hide().
  void show(node_table& table, node_id n) const {
    const auto found = nodes_.find(n.value);
    if (found == nodes_.end()) return;
    table[n].left = found->second.left.host;
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
      table[n].gpu_left[i] = static_cast<milli_gpu>(found->second.left.gpus[i]);
  }
  // Hides what is reserved on the node.
  void hide(node_table& table, node_id n) const {
    const auto found = nodes_.find(n.value);
    if (found == nodes_.end()) return;
    const amounts& left = found->second.left;
    const amounts& held = found->second.held;
    table[n].left = {above(left.host.cpu_milli, held.host.cpu_milli),
                     above(left.host.memory_mib, held.host.memory_mib)};
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
      table[n].gpu_left[i] = static_cast<milli_gpu>(above(left.gpus[i], held.gpus[i]));
  }
  // A task has started on what the table shows as left; or, after show(), on what is really left.
  void started(const task_request& task, placement where) {
    const auto found = nodes_.find(where.node.value);
    if (found == nodes_.end()) return;
    found->second.left.host -= task.host();
    add_gpus(found->second.left, task, where, false);
  }
  // A task has ended, and the table has got back what it used.
  void ended(node_table& table, const task_request& task, placement where) {
    const auto found = nodes_.find(where.node.value);
    if (found == nodes_.end()) return;
    found->second.left.host += task.host();
    add_gpus(found->second.left, task, where, true);
    hide(table, where.node);
  }

 private:
  struct amounts {
    resources host{};
    std::array<std::uint32_t, max_gpus_per_node> gpus{};  // thousandths
  };
  struct node {
    amounts left{};           // really
    amounts held{};           // by reservations
    std::uint32_t tasks = 0;  // with reservations
  };

  [[nodiscard]] static std::uint32_t above(std::uint32_t left, std::uint32_t held) noexcept {
    return left > held ? left - held : 0;
  }
  [[nodiscard]] static amounts left_of(const node_state& state) noexcept {
    amounts result{state.left, {}};
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) result.gpus[i] = state.gpu_left[i];
    return result;
  }
  static void add_gpus(amounts& to, const task_request& task, placement where, bool more) noexcept {
    for (std::uint32_t mask = where.gpu_mask; mask != 0; mask &= mask - 1) {
      std::uint32_t& gpu = to.gpus[static_cast<std::uint32_t>(std::countr_zero(mask))];
      gpu = more ? gpu + task.gpu_milli : gpu - task.gpu_milli;
    }
  }
  static void change(node& here, const task_request& task, placement where, bool more) noexcept {
    more ? here.held.host += task.host() : here.held.host -= task.host();
    add_gpus(here.held, task, where, more);
    here.tasks = more ? here.tasks + 1 : here.tasks - 1;
  }

  std::unordered_map<std::uint32_t, node> nodes_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
