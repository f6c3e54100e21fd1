// apiary/gang_scheduler/detail/lazy_host_fit.h - topology_fit on shared steps, with CPU and memory only if they are scarce.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/step_prices.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Searches whether a gang fits, and where. All that it does counts as steps of a budget that it shares
// with others, to write the placements of a gang that fits included. CPU and memory are looked at only
// where the gang would run; if they do not suffice there, on all nodes.
class lazy_host_fit {
 public:
  using found = topology_fit<ragged_tree>::result;

  // hosts: what each node has free. most: the steps that it may take of the budget; besides them, if
  // the gang fits, those to write its placements.
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
  // The proof that the gang does not fit; without cells if so many steps do not find one. hosts: empty
  // if CPU and memory do not count. `absent`: as in topology_fit::explain.
  [[nodiscard]] infeasibility_proof prove(const capacity_index<ragged_tree>& capacities,
                                          const topology_constraints& gang,
                                          std::span<const resources> hosts,
                                          std::span<const std::uint32_t> absent,
                                          std::uint64_t most) {
    fit_.set_budget(most);
    return fit_(capacities, gang, hosts).verdict == fit_verdict::does_not_fit
               ? fit_.explain(capacities, gang, hosts, absent)
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
    for (const tasks_on_node& p : portions) {
      const resources& each = gang.groups[p.group].host;
      needs_.push_back({p.node, std::uint64_t{p.tasks} * each.cpu_milli,
                        std::uint64_t{p.tasks} * each.memory_mib});
    }
    const auto before = [](const need& a, const need& b) { return a.node < b.node; };
    if (!std::is_sorted(needs_.begin(), needs_.end(), before))
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
  std::vector<need> needs_;
};

}  // namespace detail
APIARY_NAMESPACE_END
