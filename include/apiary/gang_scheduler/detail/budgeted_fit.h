// apiary/gang_scheduler/detail/budgeted_fit.h - topology_fit on steps that a decision shares.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// How many steps of a budget the work of a decision counts as that is not a step of a search. A
// step takes at most a microsecond, whatever the gang and the cluster are. Prices are rounded down,
// so that work on a small gang in a small cluster is free.
struct step_prices {
  // To check and copy a gang.
  [[nodiscard]] static std::uint64_t of_gang(const topology_constraints& gang) noexcept {
    return gang.groups.size() / 32;
  }
  // To write the placements of its tasks. Cost: O(groups).
  [[nodiscard]] static std::uint64_t of_placements(const topology_constraints& gang,
                                                   std::uint64_t nodes) noexcept {
    std::uint64_t looks = 0;
    for (const constrained_task_group& m : gang.groups)
      looks +=
          std::uint64_t{m.tasks} * (1 + m.gpus / 8) + 4 * (std::min)(std::uint64_t{m.tasks}, nodes);
    return looks / 32;
  }
  // What topology_fit reads besides its own steps: the task groups, and at each level that it tries
  // the cells, or the nodes if more than the number of GPUs decides what fits. Cost: O(groups).
  [[nodiscard]] static std::uint64_t of_fit(const capacity_index<ragged_tree>& capacities,
                                            const topology_constraints& gang,
                                            bool with_hosts) noexcept {
    const auto by_node = [](const constrained_task_group& m) {
      return m.gpus == 0 || m.leader != no_task_group;
    };
    const bool nodes = with_hosts || std::any_of(gang.groups.begin(), gang.groups.end(), by_node);
    const bool below = !only_gpus(gang);
    const level_t last = (std::min)(gang.required, capacities.top());
    std::uint64_t looks = 0;
    for (level_t l = (std::min)(gang.preferred, last); l <= last; ++l) {
      if (nodes) {
        looks += std::uint64_t{capacities.num_nodes()} * (l == 0 ? 8 : 2);
      } else if (l > 0) {
        looks += std::uint64_t{capacities.num_cells(below ? 1 : l)} * capacities.max_free();
      }
    }
    return gang.groups.size() / 12 + looks / 1'024;
  }
  // Whether all tasks need GPUs, and have no constraints of their own.
  [[nodiscard]] static bool only_gpus(const topology_constraints& gang) noexcept {
    return std::all_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
      return m.gpus > 0 && m.slices.empty() && m.spread.empty() && m.leader == no_task_group;
    });
  }
  // Whether CPU and memory count for the gang.
  [[nodiscard]] static bool hosted(const topology_constraints& gang) noexcept {
    return std::any_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
      return m.tasks > 0 && !(m.host == resources{});
    });
  }
  // To copy so many nodes into a cluster of their own.
  [[nodiscard]] static std::uint64_t of_excerpt(std::uint64_t nodes) noexcept { return nodes / 8; }
  // To evict gangs from so many nodes, and to take that back; or to change nodes twice.
  [[nodiscard]] static std::uint64_t of_changes(std::uint64_t nodes) noexcept { return nodes / 4; }
};

// Searches whether a gang fits, and where. All that it does counts as steps of a budget that it
// shares with others, to write the placements of a gang that fits included. CPU and memory are
// looked at only where the gang would run; if they do not suffice there, on all nodes.
class budgeted_fit {
 public:
  using found = topology_fit<ragged_tree>::result;

  // hosts: what each node has free. most: the steps that it may take of the budget; besides them,
  // if the gang fits, those to write its placements.
  found operator()(const capacity_index<ragged_tree>& capacities, const topology_constraints& gang,
                   std::span<const resources> hosts, std::uint64_t most, step_budget& steps) {
    const bool by_host = step_prices::hosted(gang);
    const std::uint64_t before = steps.steps();
    const found without = search(capacities, gang, {}, by_host ? most - most / 2 : most, steps);
    if (!by_host || without.verdict == fit_verdict::does_not_fit) return without;
    if (without.verdict == fit_verdict::fits && suffice(gang, without.portions, hosts))
      return without;
    return search(capacities, gang, hosts, most - (std::min)(most, steps.steps() - before), steps);
  }
  // The proof that the gang does not fit; without cells if so many steps do not find one. hosts:
  // empty if CPU and memory do not count.
  [[nodiscard]] infeasibility_proof prove(const capacity_index<ragged_tree>& capacities,
                                          const topology_constraints& gang,
                                          std::span<const resources> hosts, std::uint64_t most) {
    fit_.set_budget(most);
    return fit_(capacities, gang, hosts).verdict == fit_verdict::does_not_fit
               ? fit_.explain(capacities, gang, hosts)
               : infeasibility_proof{};
  }

 private:
  found search(const capacity_index<ragged_tree>& capacities, const topology_constraints& gang,
               std::span<const resources> hosts, std::uint64_t most, step_budget& steps) {
    const std::uint64_t price = step_prices::of_fit(capacities, gang, !hosts.empty());
    const std::uint64_t if_fits = step_prices::of_placements(gang, capacities.num_nodes());
    most = (std::min)(most, steps.left());
    if (price > most || if_fits > steps.left() - price) {
      found unknown;
      unknown.verdict = fit_verdict::budget_ended;
      return unknown;
    }
    fit_.set_budget((std::min)(most, steps.left() - if_fits) - price);
    const found answer = fit_(capacities, gang, hosts);
    steps.pay(price + answer.steps + (answer.verdict == fit_verdict::fits ? if_fits : 0));
    return answer;
  }
  [[nodiscard]] bool suffice(const topology_constraints& gang,
                             std::span<const tasks_on_node> portions,
                             std::span<const resources> hosts) {
    struct sums {
      std::uint64_t cpu_milli = 0;
      std::uint64_t memory_mib = 0;
    };
    needs_.clear();
    needs_.reserve(portions.size());
    for (const tasks_on_node& p : portions) {
      const resources& each = gang.groups[p.group].host;
      needs_.push_back({p.node, std::uint64_t{p.tasks} * each.cpu_milli,
                        std::uint64_t{p.tasks} * each.memory_mib});
    }
    const auto before = [](const need& a, const need& b) { return a.node < b.node; };
    std::sort(needs_.begin(), needs_.end(), before);
    sums all;
    for (std::size_t i = 0; i < needs_.size(); ++i) {
      if (i == 0 || needs_[i].node != needs_[i - 1].node) all = {};
      all.cpu_milli += needs_[i].cpu_milli;
      all.memory_mib += needs_[i].memory_mib;
      const resources& has = hosts[needs_[i].node];
      if (all.cpu_milli > has.cpu_milli || all.memory_mib > has.memory_mib) return false;
    }
    return true;
  }

  struct need {
    std::uint32_t node = 0;
    std::uint64_t cpu_milli = 0;
    std::uint64_t memory_mib = 0;
  };
  topology_fit<ragged_tree> fit_;
  lean_vector<need> needs_;
};

}  // namespace detail
APIARY_NAMESPACE_END
