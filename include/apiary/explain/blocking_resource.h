// apiary/explain/blocking_resource.h - which resource or constraint keeps a gang waiting.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Removes one requirement, never GPUs, from a gang. Returns whether the gang had it.
inline bool drop_requirement(topology_constraints& gang, blocking_resource d) {
  bool had = false;
  for (constrained_task_group& m : gang.groups) {
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

}  // namespace detail

// Finds the requirements that keep a gang waiting. It returns a minimal set: the gang would fit
// without these requirements, but not if it kept one of them. Of several such sets it prefers one
// with topology constraints to one with CPU and memory. `required` and `leader` are never removed.
//   {gpus}  the gang would not fit even without all other requirements
//   {}      the gang has no such requirements, or no verdict is known
//
// verdict: a function topology_constraints -> fit_verdict for the same cluster. If it answers
//          budget_ended for one requirement, this counts as "does not fit"; the set may then have
//          one requirement too many.
// Cost:    at most 6 verdicts.
// Example: examples/why_waiting.cpp
template <class Verdict>
[[nodiscard]] std::vector<blocking_resource> blocking_resources(const topology_constraints& gang,
                                                                Verdict&& verdict) {
  topology_constraints less = gang;
  std::vector<blocking_resource> dropped;
  for (const blocking_resource d :
       {blocking_resource::memory, blocking_resource::cpu, blocking_resource::models,
        blocking_resource::slices, blocking_resource::spread})
    if (detail::drop_requirement(less, d)) dropped.push_back(d);
  if (dropped.empty()) return {};
  const fit_verdict without = verdict(less);
  if (without == fit_verdict::budget_ended) return {};
  if (without == fit_verdict::does_not_fit) return {blocking_resource::gpus};
  std::vector<blocking_resource> blocking;
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    topology_constraints again = gang;  // with requirement i; those before it only if they block
    for (const blocking_resource d : blocking) detail::drop_requirement(again, d);
    for (std::size_t k = i + 1; k < dropped.size(); ++k)
      detail::drop_requirement(again, dropped[k]);
    if (verdict(again) != fit_verdict::fits) blocking.push_back(dropped[i]);
  }
  return blocking;
}

APIARY_NAMESPACE_END
