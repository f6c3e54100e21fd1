// apiary/explain/blocking_resource.h - what but GPUs keeps a gang waiting, and what would help.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Takes a demand from the gang; whether it had it. GPUs are never taken.
inline bool waive(topology_constraints& gang, blocking_resource d) {
  bool had = false;
  for (constrained_task_group& m : gang.members) {
    switch (d) {
      case blocking_resource::memory:
        had = had || m.host.memory_mib > 0;
        m.host.memory_mib = 0;
        break;
      case blocking_resource::cpu:
        had = had || m.host.cpu_milli > 0;
        m.host.cpu_milli = 0;
        break;
      case blocking_resource::models:
        had = had || (m.gpus > 0 && m.models != any_model);
        m.models = any_model;
        break;
      case blocking_resource::slices:
        had = had || !m.slices.empty();
        m.slices.clear();
        break;
      case blocking_resource::spread:
        had = had || !m.spread.empty();
        m.spread.clear();
        break;
      case blocking_resource::gpus:
        break;
    }
  }
  return had;
}

// Which demands of a gang that does not fit are to blame: without these it would fit, and each of
// them is needed for that. Of several such sets one is named, rules rather than CPU and memory.
// {gpus}: it would not fit without all of them either. Nothing: it has none, or nobody knows.
//
// verdict: topology_constraints -> fit_verdict, of the same cluster; what is undecided counts as a no for one
// demand, so that one too many may be named.
// Cost:    at most 6 verdicts.
// Example: examples/why_waiting.cpp
template <class Verdict>
[[nodiscard]] std::vector<blocking_resource> blocking_resources(const topology_constraints& gang,
                                                                Verdict&& verdict) {
  topology_constraints less = gang;
  std::vector<blocking_resource> waived;
  for (const blocking_resource d :
       {blocking_resource::memory, blocking_resource::cpu, blocking_resource::models,
        blocking_resource::slices, blocking_resource::spread})
    if (waive(less, d)) waived.push_back(d);
  if (waived.empty()) return {};
  const fit_verdict without = verdict(less);
  if (without == fit_verdict::budget_ended) return {};
  if (without == fit_verdict::does_not_fit) return {blocking_resource::gpus};
  std::vector<blocking_resource> blocking;
  for (std::size_t i = 0; i < waived.size(); ++i) {
    topology_constraints again = gang;  // with this one, and those before that did no harm
    for (const blocking_resource d : blocking) waive(again, d);
    for (std::size_t k = i + 1; k < waived.size(); ++k) waive(again, waived[k]);
    if (verdict(again) != fit_verdict::fits) blocking.push_back(waived[i]);
  }
  return blocking;
}

// What would help, after unblock_search: "it would fit if nodes 3 and 9 were free: 12 GPUs more".
[[nodiscard]] inline std::string remedy_words(std::span<const std::uint32_t> nodes,
                                              std::uint64_t leaves) {
  std::vector<std::string> names;
  for (const std::uint32_t n : nodes) names.push_back(std::to_string(n));
  return std::string("it would fit if ") + (nodes.size() == 1 ? "node " : "nodes ") +
         detail::listing(names) + (nodes.size() == 1 ? " was free: " : " were free: ") +
         detail::gpus(leaves) + " more";
}

APIARY_NAMESPACE_END
