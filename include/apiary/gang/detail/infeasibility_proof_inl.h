// apiary/gang/detail/infeasibility_proof_inl.h - bodies of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/node_knapsack.h>
#include <apiary/gang/detail/step_budget.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {

[[nodiscard]] inline std::string gpus(std::uint64_t n) {
  return std::to_string(n) + (n == 1 ? " GPU" : " GPUs");
}
// Formats thousandths of a CPU: "1 CPU", "2.5 CPUs".
[[nodiscard]] inline std::string cpus(std::uint64_t milli) {
  std::string text = std::to_string(milli / 1000);
  if (milli % 1000 > 0) {
    std::string rest = std::to_string(1000 + milli % 1000);
    while (rest.back() == '0') rest.pop_back();
    text += '.' + rest.substr(1);
  }
  return text + (milli == 1000 ? " CPU" : " CPUs");
}
APIARY_INLINE std::string listing(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}
APIARY_INLINE task_needs needs_of(const topology_constraints& gang, std::uint32_t group) {
  task_needs all;
  for (const constrained_task_group& m : gang.groups) {
    if (&m != &gang.groups[group] && m.leader != group) continue;
    const std::uint64_t each = m.tasks / gang.groups[group].tasks;
    all.gpus += m.gpus * each;
    all.milli += m.gpus * each * (m.shared() > 0 ? m.shared() : whole_gpu);
    all.cpu_milli += m.host.cpu_milli * each;
    all.memory_mib += m.host.memory_mib * each;
  }
  return all;
}
[[nodiscard]] inline bool is_in(std::span<const blocking_resource> all, blocking_resource d) {
  return std::find(all.begin(), all.end(), d) != all.end();
}
// "tasks of 4 GPUs". CPU and memory are named if they block, or if the task takes nothing else.
[[nodiscard]] inline std::string tasks_of(const task_needs& task,
                                          std::span<const blocking_resource> blocking) {
  std::vector<std::string> words;
  if (task.milli != task.gpus * whole_gpu) {
    words.push_back(std::to_string(task.milli) + "/1000 of a GPU");
  } else if (task.gpus > 0) {
    words.push_back(gpus(task.gpus));
  }
  if (task.cpu_milli > 0 && (task.gpus == 0 || is_in(blocking, blocking_resource::cpu)))
    words.push_back(cpus(task.cpu_milli));
  if (task.memory_mib > 0 && (task.gpus == 0 || is_in(blocking, blocking_resource::memory)))
    words.push_back(std::to_string(task.memory_mib) + " MiB");
  return words.empty() ? "tasks" : "tasks of " + listing(words);
}

// What a weighing counts: "tasks of 4 GPUs", "slots of 5 GPUs", "GPUs", "thousandths of GPUs".
[[nodiscard]] inline std::string weighed_things(const infeasibility_proof& why,
                                                const topology_constraints& gang,
                                                const std::vector<std::uint32_t>& weights,
                                                std::span<const blocking_resource> blocking) {
  std::vector<task_needs> needs;
  for (const std::uint32_t group : why.groups) needs.push_back(needs_of(gang, group));
  std::size_t weighted = 0;
  std::size_t group = 0;
  std::uint64_t largest = 0;
  bool thousandths = true;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    largest = (std::max)(largest, needs[k].gpus);
    thousandths = thousandths && weights[k] == needs[k].milli;
    if (weights[k] == 0) continue;
    ++weighted;
    group = k;
  }
  if (weighted == 1 && weights[group] == 1) return tasks_of(needs[group], blocking);
  if (thousandths) return "thousandths of GPUs";
  for (std::uint64_t t = 1; t <= largest; ++t) {
    bool slots = true;
    for (std::size_t k = 0; k < weights.size(); ++k)
      slots = slots && weights[k] == needs[k].gpus / t;
    if (slots) return t == 1 ? "GPUs" : "slots of " + gpus(t);
  }
  return "units of weight";
}

// "; without its anti-affinity it would fit"
[[nodiscard]] inline std::string blame(std::span<const blocking_resource> blocking,
                                       const topology_constraints& gang,
                                       const std::string& level_name) {
  if (blocking.empty()) return "";
  if (is_in(blocking, blocking_resource::gpus)) {
    const bool leaders = std::any_of(gang.groups.begin(), gang.groups.end(),
                                     [](const auto& g) { return g.leader != no_task_group; });
    std::string kept = gang.required == any_level ? "" : " still in one " + level_name;
    if (leaders) kept += kept.empty() ? " with its leaders" : " and with its leaders";
    return "; counting only GPUs" + (kept.empty() ? kept : "," + kept + ",") +
           " it would not fit either";
  }
  constexpr const char* names[] = {"its memory request", "its CPU request", "its GPU models",
                                   "its slices", "its anti-affinity"};
  std::vector<std::string> words;
  for (const blocking_resource d : blocking) words.emplace_back(names[static_cast<std::size_t>(d)]);
  return "; without " + listing(words) + " it would fit";
}

}  // namespace detail

APIARY_INLINE infeasibility_proof::reason infeasibility_proof::main_reason() const {
  std::vector<reason> reasons(weighings.size() + 1);
  for (const refusal& r : cells) {
    const bool by_list = r.weighing == listed;
    reason& at = reasons[by_list ? weighings.size() : r.weighing];
    const std::uint64_t missing = by_list ? 0 : weighings[r.weighing].needed - r.most;
    if (at.cells++ > 0 && missing >= at.missing) continue;
    at.weighing = r.weighing;
    at.best = r.cell;
    at.missing = missing;
  }
  reason first = reasons[0];
  for (const reason& s : reasons)
    if (s.cells > first.cells) first = s;
  return first;
}

APIARY_INLINE infeasibility_proof infeasibility_proof::of_nodes(
    std::span<const std::uint32_t> nodes, const colocated_groups& groups, level_t top) {
  infeasibility_proof why;
  why.level = top;
  for (std::size_t u = 0; u < groups.size(); ++u) why.groups.push_back(groups[u].first_group);
  const std::size_t width = groups.size();
  std::uint32_t largest = 0;
  for (std::size_t u = 0; u < width; ++u) largest = (std::max)(largest, groups[u].gpus);
  std::vector<std::uint64_t> best;  // on a node with 0, 1, ... free GPUs
  weighing what;
  for (std::size_t i = 0; i < width + (width > 1 ? largest : 0); ++i) {
    what = {std::vector<std::uint32_t>(width, 0), 0};
    best.assign(nodes.size(), 0);
    for (std::size_t u = 0; u < width; ++u) {
      const auto slot = static_cast<std::uint32_t>(largest + width - i);
      const std::uint32_t weight = i >= width ? groups[u].gpus / slot : u == i ? 1 : 0;
      what.weights[u] = weight;
      what.needed += std::uint64_t{weight} * groups[u].tasks;
      if (weight == 0) continue;
      const std::size_t gpus = groups[u].gpus;
      for (std::size_t f = best.size(); f-- > gpus;) {
        for (std::size_t n = 1; n <= groups[u].tasks && n * gpus <= f; ++n)
          best[f] = (std::max)(best[f], best[f - n * gpus] + n * weight);
      }
    }
    std::uint64_t most = 0;
    for (std::size_t f = 0; f < nodes.size(); ++f) most += nodes[f] * best[f];
    if (most >= what.needed) continue;
    why.weighings.push_back(std::move(what));
    why.cells.push_back({0, 0, most, {}});
    return why;
  }
  std::vector<detail::node_knapsack::task_size> sizes;
  for (std::size_t u = 0; u < width; ++u)
    sizes.push_back({.gpus = groups[u].gpus, .tasks = groups[u].tasks});
  detail::weight_search search;
  detail::step_budget steps(100'000);
  if (search(sizes, nodes, steps) != fit_verdict::does_not_fit) return why;
  what = {{search.weights().begin(), search.weights().end()}, 0};
  const std::vector<std::int64_t> weights(search.weights().begin(), search.weights().end());
  for (std::size_t u = 0; u < width; ++u)
    what.needed += std::uint64_t{what.weights[u]} * sizes[u].tasks;
  detail::node_knapsack knapsack;
  knapsack.assign(sizes, weights, nodes.size() - 1);
  std::uint64_t most = 0;
  for (std::size_t f = 0; f < nodes.size(); ++f)
    most += nodes[f] * static_cast<std::uint64_t>(knapsack.best()[f]);
  why.weighings.push_back(std::move(what));
  why.cells.push_back({0, 0, most, {}});
  return why;
}

APIARY_INLINE std::string infeasibility_proof::text(
    const topology_constraints& gang, const std::string& level_name,
    std::span<const blocking_resource> blocking) const {
  const reason first = main_reason();
  const std::string cell =
      cells.size() == 1 ? "the " + level_name : level_name + " " + std::to_string(first.best);
  const std::string others = first.cells == cells.size() || cells.size() == 1
                                 ? ""
                                 : " (this is the reason in " + std::to_string(first.cells) +
                                       " of " + std::to_string(cells.size()) + " cells)";
  if (first.weighing != listed) {
    const weighing& w = weighings[first.weighing];
    std::string things = detail::weighed_things(*this, gang, w.weights, blocking);
    if (w.needed == 1)  // the singular of the first word
      things.erase((std::min)(things.find(' '), things.size()) - 1, 1);
    return "the gang needs capacity for " + std::to_string(w.needed) + " " + things + " in one " +
           level_name + "; " + cell + (cells.size() == 1 ? " has " : " has the most: ") +
           std::to_string(w.needed - first.missing) + others +
           detail::blame(blocking, gang, level_name);
  }
  std::string all = "no " + level_name + " holds all tasks at once; " + cell + " holds at most";
  for (const refusal& r : cells) {
    if (r.cell != first.best) continue;
    const std::size_t width = groups.size();
    for (std::size_t i = 0; i + width <= r.counts.size(); i += width) {
      all += i == 0 ? " " : ", or ";
      for (std::size_t k = 0; k < width; ++k)
        all += (k == 0 ? "" : " + ") + std::to_string(r.counts[i + k]);
    }
  }
  all += " tasks of task groups";
  for (std::size_t k = 0; k < groups.size(); ++k)
    all += (k == 0 ? " " : " + ") + std::to_string(groups[k]);
  return all + others + detail::blame(blocking, gang, level_name);
}

APIARY_NAMESPACE_END
