// apiary/gang/detail/class_vectors.h - what nodes of each class hold of a gang, at what cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The vectors (tasks of each group) that a node of each class can hold within the constraints of
// the node level, and what they cost: the function `cost` of min_cost_fit says both. A node that
// holds a vector must hold every smaller one. ask_alone calls it O(classes * groups * log tasks)
// times, ask_all once for each vector that a node can hold or that is just too large. A call reads
// all groups and costs price() steps. If `cost` has a function `most`, ask_alone calls it instead,
// and once is enough for a class and a group:
//   cost.most(class, counts, u, limit): how many tasks of group u, at most `limit`, such a node holds
//   beside the tasks of the other groups in `counts` (no groups: none).
class class_vectors {
 public:
  using counts = std::span<const std::uint32_t>;
  // Whether a cost says how many tasks of a group a node holds.
  template <class Cost>
  static constexpr bool counts_tasks = requires(const Cost& cost) {
    cost.most(std::uint32_t{}, counts(), std::size_t{}, std::uint32_t{});
  };
  // Asks how many tasks of each group alone a node holds. Returns false if the budget ended.
  template <class Cost>
  bool ask_alone(const colocated_groups& groups, level_t node_level, std::uint32_t classes,
                 const Cost& cost, step_budget& steps) {
    groups_ = groups;
    node_level_ = node_level;
    if (!steps.pay(std::uint64_t{classes} * width() / alone_of_a_step)) return false;
    alone_.assign(std::size_t{classes} * width(), 0);
    held_.resize(classes);
    asked_.assign(width(), 0);
    for (std::uint32_t c = 0; c < classes; ++c) {
      for (std::size_t u = 0; u < width(); ++u) {
        std::uint32_t& capacity = alone_[c * width() + u];
        std::uint32_t more = groups.at(u, node_level).most;
        if constexpr (counts_tasks<Cost>) {
          capacity = cost.most(c, counts(), u, more);
          continue;
        }
        while (capacity < more) {
          if (!steps.pay(price())) return false;
          asked_[u] = capacity + (more - capacity + 1) / 2;
          if (cost(c, counts(asked_))) {
            capacity = asked_[u];
          } else {
            more = asked_[u] - 1;
          }
        }
        asked_[u] = 0;
      }
    }
    return true;
  }
  // After ask_alone: asks for all other vectors. Returns false if the budget ended.
  template <class Cost>
  bool ask_all(const Cost& cost, step_budget& steps) {
    for (std::uint32_t c = 0; c < held_.size() && !steps.ended(); ++c) {
      held_[c] = {};
      ask(c, 0, cost, steps);
    }
    return !steps.ended();
  }
  // The steps of a call of `cost` for so many groups.
  [[nodiscard]] static std::uint64_t price(std::uint64_t groups) noexcept {
    return 1 + groups / groups_of_a_step;
  }
  [[nodiscard]] std::uint64_t price() const noexcept { return price(width()); }
  [[nodiscard]] std::uint32_t alone(std::uint32_t node_class, std::size_t u) const noexcept {
    return alone_[node_class * width() + u];
  }
  // The vectors of a class other than 0, and their costs.
  [[nodiscard]] std::size_t size(std::uint32_t node_class) const noexcept {
    return held_[node_class].costs.size();
  }
  [[nodiscard]] counts vector(std::uint32_t node_class, std::size_t i) const noexcept {
    return {held_[node_class].counts.data() + i * width(), width()};
  }
  [[nodiscard]] std::int64_t cost(std::uint32_t node_class, std::size_t i) const noexcept {
    return held_[node_class].costs[i];
  }
  // The largest weight of a vector of the class.
  [[nodiscard]] std::uint64_t max_weight(std::uint32_t node_class, counts weights) const noexcept {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < size(node_class); ++i) {
      std::uint64_t sum = 0;
      for (std::size_t u = 0; u < width(); ++u)
        sum += std::uint64_t{vector(node_class, i)[u]} * weights[u];
      most = (std::max)(most, sum);
    }
    return most;
  }

 private:
  struct held {
    std::vector<std::uint32_t> counts{};  // vector after vector
    std::vector<std::int64_t> costs{};
  };
  static constexpr std::size_t alone_of_a_step = 4;
  static constexpr std::size_t groups_of_a_step = 8;  // that a call of `cost` reads

  [[nodiscard]] std::size_t width() const noexcept { return groups_.size(); }
  // Asks for all vectors that differ from asked_ only from group u on, smaller ones first.
  template <class Cost>
  void ask(std::uint32_t c, std::size_t u, const Cost& cost, step_budget& steps) {
    if (u == width()) return;
    ask(c, u + 1, cost, steps);
    while (asked_[u] < alone(c, u) && steps.pay(price())) {
      ++asked_[u];
      const std::optional<std::int64_t> is = cost(c, counts(asked_));
      if (!is) break;
      if (allowed()) {
        held_[c].counts.insert(held_[c].counts.end(), asked_.begin(), asked_.end());
        held_[c].costs.push_back(*is);
      }
      ask(c, u + 1, cost, steps);
    }
    asked_[u] = 0;
  }
  [[nodiscard]] bool allowed() const noexcept {
    for (std::size_t u = 0; u < width(); ++u)
      if (groups_.bound(u, node_level_, asked_[u]) != asked_[u]) return false;
    return true;
  }

  colocated_groups groups_;
  level_t node_level_ = 0;
  std::vector<std::uint32_t> alone_;  // by class and group
  std::vector<held> held_;            // by class
  std::vector<std::uint32_t> asked_;
};

}  // namespace detail
APIARY_NAMESPACE_END
