// apiary/policy/shared_fit.h - where a gang fits on nodes that share GPUs, exactly, or why not.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/model/tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/count_front.h>
#include <apiary/policy/explain_refusal.h>
#include <apiary/policy/gang_portions.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/gang_search.h>
#include <apiary/policy/least_cost_fit.h>
#include <apiary/policy/share_rooms.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A place for one task of a member of a gang.
struct member_placement {
  std::uint32_t member = 0;
  placement where{};
  friend bool operator==(const member_placement&, const member_placement&) = default;
};

// A task of a member of a gang, as for one node.
[[nodiscard]] inline share task_of(const ruled_member& m) noexcept {
  return {.cpu_milli = m.host.cpu_milli,
          .memory_mib = m.host.memory_mib,
          .devices = m.leaves,
          .gpu_milli = m.leaves > 0 ? m.part : milli_gpu{0},
          .models = m.models};
}

// Places all tasks of a gang on nodes that share GPUs, under the rules of the gang, at the least
// cost; or says that this cannot be done, and why. Tasks take whole GPUs, a share of one, or none,
// with CPU and memory as the node table has them.
//
// share_rooms says what a node holds, least_cost_fit chooses: exact, or not at all when the budget
// has ended. Then nothing is said of the gang.
//
// Requires: node i of the table is cell i of the node level; valid(gang) for the tree; task_of each
//           member is valid().
// Cost:     as share_rooms and least_cost_fit, which share the budget.
// Example:  examples/shared_gang.cpp
template <CellTree Tree>
class shared_fit {
 public:
  explicit shared_fit(std::uint64_t budget = 10'000'000) noexcept : budget_(budget) {}

  // cost(before, after) -> std::int64_t: of a change of a node; see share_rooms.
  template <class Cost>
  fit_verdict operator()(const node_table& nodes, const Tree& tree, level_t node_level,
                         const gang_rules& gang, const Cost& cost) {
    APIARY_ASSERT(nodes.size() == tree.cells(node_level).size());
    tree_ = &tree;
    node_level_ = node_level;
    places_.clear();
    units_.assign(gang, node_level, tree.num_levels());
    const bool known = rooms_.assign(nodes, units_, node_level, budget_, cost);
    if (!known) return fit_verdict::budget_ended;
    fit_ = least_cost_fit<Tree>(budget_ - rooms_.steps());
    const fit_verdict verdict = fit_(tree, node_level, gang, rooms_.classes(), rooms_);
    if (verdict == fit_verdict::fits) place(nodes, gang);
    return verdict;
  }

  // After `fits`: each task, members and their nodes ascending; so numbered, slices are consecutive
  // tasks.
  [[nodiscard]] std::span<const member_placement> places() const noexcept { return places_; }
  // Its level, its cost, and what is certain of them.
  [[nodiscard]] const least_cost_fit<Tree>& search() const noexcept { return fit_; }

  // After `does_not_fit`: why. Cost: O(nodes * kinds) and what nodes hold.
  [[nodiscard]] certificate explain(const gang_rules& gang) const {
    const level_t l = std::min(gang.required, tree_->num_levels());
    std::vector<detail::weighed_cells> tried;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      std::vector<std::uint32_t> weights(units_.size(), 0);
      weights[u] = 1;
      const std::vector<std::uint32_t> rooms = fit_.rooms(u, l);
      tried.push_back({{std::move(weights), units_[u].tasks}, {rooms.begin(), rooms.end()}});
    }
    if (units_.size() > 1) weigh_gpus(gang, l, tried);
    const std::uint32_t cells = l == tree_->num_levels() ? 1 : tree_->cells(l).size();
    return detail::fewest_reasons(l, cells, units_, tried, fit_.listed());
  }

 private:
  void place(const node_table& nodes, const gang_rules& gang) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> counts;  // units of each kind, by node
    for (const gang_portion& p : fit_.portions()) {
      if (gang.members[p.member].leader != no_member) continue;
      std::vector<std::uint32_t>& there = counts[p.node];
      there.resize(units_.size(), 0);
      there[units_.kind_of(p.member)] += p.tasks;
    }
    std::map<std::uint32_t, std::vector<share_rooms::taken>> devices;
    for (const auto& [node, there] : counts)
      devices.emplace(node, rooms_.devices(nodes, node_id(node), there));
    for (const gang_portion& p : fit_.portions()) {
      const share task = task_of(gang.members[p.member]);
      std::vector<share_rooms::taken>& here = devices.at(p.node);
      for (std::uint32_t t = 0; t < p.tasks; ++t) {
        member_placement& is = places_.emplace_back();
        is = {p.member, {node_id(p.node), 0}};
        for (std::uint32_t d = 0; d < task.devices; ++d) {
          // Equal parts are worth the same to all.
          const auto at = std::find_if(here.begin(), here.end(),
                                       [&](const auto& x) { return x.part == task.gpu_milli; });
          APIARY_VERIFY(at != here.end());
          is.where.device_mask |= std::uint32_t{1} << at->device;
          here.erase(at);
        }
      }
    }
  }

  // The thousandths of GPUs that the gang takes and cells can give to it.
  void weigh_gpus(const gang_rules& gang, level_t l,
                  std::vector<detail::weighed_cells>& tried) const {
    detail::weighed_cells gpus;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const std::uint64_t weight = detail::needs_of(gang, units_[u].member).milli;
      if (weight > std::numeric_limits<std::uint32_t>::max()) return;
      gpus.what.weights.push_back(static_cast<std::uint32_t>(weight));
      gpus.what.needed += weight * units_[u].tasks;
    }
    if (std::count(gpus.what.weights.begin(), gpus.what.weights.end(), 0U) + 1 >=
        static_cast<std::ptrdiff_t>(units_.size()))
      return;  // one kind alone is weighed by its tasks
    const auto weigh = [&](count_front::counts counts) {
      std::uint64_t sum = 0;
      for (std::size_t u = 0; u < counts.size(); ++u)
        sum += std::uint64_t{counts[u]} * gpus.what.weights[u];
      return sum;
    };
    std::vector<std::uint64_t> of_class;
    for (const std::uint32_t c : rooms_.classes()) {
      while (of_class.size() <= c) {
        const count_front most = fit_.greatest_of(static_cast<std::uint32_t>(of_class.size()));
        of_class.push_back(0);
        for (std::size_t i = 0; i < most.size(); ++i)
          of_class.back() = std::max(of_class.back(), weigh(most[i]));
      }
      gpus.most.push_back(of_class[c]);
    }
    for (level_t k = node_level_ + 1; k <= l; ++k) {
      std::uint64_t rules = 0;
      for (std::size_t u = 0; u < units_.size(); ++u)
        rules += std::uint64_t{gpus.what.weights[u]} * units_.at(u, k).most;
      std::vector<std::uint64_t> above(k == tree_->num_levels() ? 1 : tree_->cells(k).size(), 0);
      for (std::uint32_t i = 0; i < gpus.most.size(); ++i) above[parent(k - 1, i)] += gpus.most[i];
      for (std::uint64_t& most : above) most = std::min(most, rules);
      gpus.most = std::move(above);
    }
    tried.push_back(std::move(gpus));
  }
  // Of cell i of level l, by its place.
  [[nodiscard]] std::uint32_t parent(level_t l, std::uint32_t i) const {
    if (l + 1 == tree_->num_levels()) return 0;
    return tree_->parent(tree_->cells(l)[i], l).value - tree_->cells(l + 1).first.value;
  }

  std::uint64_t budget_;
  const Tree* tree_ = nullptr;
  level_t node_level_ = 0;
  gang_units units_;
  share_rooms rooms_;
  least_cost_fit<Tree> fit_;
  std::vector<member_placement> places_;
};

APIARY_NAMESPACE_END
