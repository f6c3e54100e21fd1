// apiary/gang/infeasibility_proof.h - a proof that a gang does not fit, which can be checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
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

// What keeps a gang from fitting: something that it needs besides GPUs, or the GPUs themselves.
enum class blocking_resource : std::uint8_t { memory, cpu, models, slices, spread, gpus };

// A proof that a gang fits no cell of the level that it requires: one reason for each of these
// cells. Numbers in the proof can be counted again; explain/proof_check.h does that.
//
// A cell is refused in one of two ways:
//
// * By a weighing. A weighing gives the tasks of each co-located group a weight. The gang weighs
//   `needed`; the cell can hold weight `most`, which is less. The capacity of a cell is counted
//   like this:
//     a node   the largest weight of tasks that its free GPUs hold, within the constraints at the
//     level of nodes; CPU and memory count too if only one group has a weight, or if nodes share
//     GPUs
//     a cell   the sum over its children, at most what the constraints at its level allow; if only
//     one group has a weight, only whole steps (slices) count
//   Weight 1 for one group counts its tasks. Weight floor(gpus / t) counts slots of t GPUs. The
//   thousandths that a task takes count GPUs where GPUs are shared.
// * By a list: `counts` holds the largest combinations of tasks that the cell can hold. None of
//   them covers the gang.
//
// `groups` are the co-located groups of the gang: see colocated_groups.
//
// Example:  examples/why_waiting.cpp
struct infeasibility_proof {
  // Weights of tasks, and the weight of the whole gang.
  struct weighing {
    std::vector<std::uint32_t> weights{};  // of a task of each group
    std::uint64_t needed = 0;              // weight of the whole gang
    friend bool operator==(const weighing&, const weighing&) = default;
  };
  // The value of refusal::weighing for a cell that is refused by a list.
  static constexpr std::uint32_t listed = ~std::uint32_t{0};
  // Why one cell does not hold the gang.
  struct refusal {
    std::uint32_t cell = 0;               // by its position in the level
    std::uint32_t weighing = listed;      // index of the weighing that refuses the cell
    std::uint64_t most = 0;               // weight that the cell can hold; 0 if listed
    std::vector<std::uint32_t> counts{};  // if listed: tasks of each group, vector after vector
    friend bool operator==(const refusal&, const refusal&) = default;
  };

  level_t level = 0;                    // of the cells; num_levels() is the cell of the whole tree
  std::vector<std::uint32_t> groups{};  // the first task group of each, ascending
  std::vector<weighing> weighings{};    // the weighings that refuse cells
  std::vector<refusal> cells{};         // every cell of the level, ascending
  friend bool operator==(const infeasibility_proof&, const infeasibility_proof&) = default;

  // The reason that most cells have, and the cell that comes closest to holding the gang.
  struct reason {
    std::uint32_t weighing = listed;  // its index, or listed
    std::uint32_t cells = 0;          // how many cells have this reason
    std::uint32_t best = 0;           // the one of them that lacks least, by its position
    std::uint64_t missing = 0;        // what that cell lacks; 0 if listed
  };
  // Finds the reason that most cells have. Cost: O(cells).
  [[nodiscard]] reason main_reason() const;

  // One sentence that tells a user of the cluster why the gang waits. level_name is the name of the
  // level, such as "rack", or "cluster" for the cell of everything. `blocking` names what blocks the
  // gang (explain/blocking_resource.h); it is empty if that is not known.
  [[nodiscard]] std::string text(const topology_constraints& gang, const std::string& level_name,
                                 std::span<const blocking_resource> blocking = {}) const;

  // Proves that a gang without constraints does not fit the whole cluster, from the number of nodes
  // with 0, 1, ... free GPUs. It uses the first weighing that refuses: tasks of one group before
  // slots, large slots before small ones. The proof has no cells if no weighing refuses; then it
  // would need a list of what the cluster can hold.
  //
  // Requires: groups without constraints, CPU and memory; `top` is the level above the roots.
  // Cost:     O(GPUs of a task * groups * GPUs of a node * tasks on a node).
  [[nodiscard]] static infeasibility_proof of_nodes(std::span<const std::uint32_t> nodes,
                                                    const colocated_groups& groups, level_t top);
};

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
// "a", "a and b", "a, b and c".
[[nodiscard]] inline std::string listing(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// The needs of one task of a task group together with the tasks that it leads.
struct task_needs {
  std::uint64_t gpus = 0;
  std::uint64_t milli = 0;  // of GPUs
  std::uint64_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
};
[[nodiscard]] inline task_needs needs_of(const topology_constraints& gang, std::uint32_t group) {
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
// "tasks of 4 GPUs". CPU and memory are named if they block the gang, or if the task takes nothing
// else.
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

// What a weighing counts, in words: "tasks of 4 GPUs", "slots of 5 GPUs", "GPUs", "thousandths of
// GPUs".
[[nodiscard]] inline std::string weighed_things(const infeasibility_proof& why,
                                                const topology_constraints& gang,
                                                const std::vector<std::uint32_t>& weights,
                                                std::span<const blocking_resource> blocking) {
  std::vector<task_needs> needs;
  for (const std::uint32_t group : why.groups) needs.push_back(needs_of(gang, group));
  std::size_t kinds = 0;
  std::size_t kind = 0;
  std::uint64_t largest = 0;
  bool thousandths = true;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    largest = (std::max)(largest, needs[k].gpus);
    thousandths = thousandths && weights[k] == needs[k].milli;
    if (weights[k] == 0) continue;
    ++kinds;
    kind = k;
  }
  if (kinds == 1 && weights[kind] == 1) return tasks_of(needs[kind], blocking);
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
[[nodiscard]] inline std::string blame(std::span<const blocking_resource> blocking) {
  if (blocking.empty()) return "";
  if (is_in(blocking, blocking_resource::gpus))
    return "; counting only GPUs it would not fit either";
  constexpr const char* names[] = {"its memory request", "its CPU request", "its GPU models",
                                   "its slices", "its anti-affinity"};
  std::vector<std::string> words;
  for (const blocking_resource d : blocking) words.emplace_back(names[static_cast<std::size_t>(d)]);
  return "; without " + listing(words) + " it would fit";
}

}  // namespace detail

inline infeasibility_proof::reason infeasibility_proof::main_reason() const {
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

inline infeasibility_proof infeasibility_proof::of_nodes(std::span<const std::uint32_t> nodes,
                                                         const colocated_groups& groups,
                                                         level_t top) {
  infeasibility_proof why;
  why.level = top;
  for (std::size_t u = 0; u < groups.size(); ++u) why.groups.push_back(groups[u].first_group);
  const std::size_t kinds = groups.size();
  std::uint32_t largest = 0;
  for (std::size_t u = 0; u < kinds; ++u) largest = (std::max)(largest, groups[u].gpus);
  std::vector<std::uint64_t> best;  // on a node with 0, 1, ... free GPUs
  weighing what;
  for (std::size_t i = 0; i < kinds + (kinds > 1 ? largest : 0); ++i) {
    what = {std::vector<std::uint32_t>(kinds, 0), 0};
    best.assign(nodes.size(), 0);
    for (std::size_t u = 0; u < kinds; ++u) {
      const auto piece = static_cast<std::uint32_t>(largest + kinds - i);
      const std::uint32_t weight = i >= kinds ? groups[u].gpus / piece : u == i ? 1 : 0;
      what.weights[u] = weight;
      what.needed += std::uint64_t{weight} * groups[u].tasks;
      if (weight == 0) continue;
      const std::size_t leaves = groups[u].gpus;
      for (std::size_t f = best.size(); f-- > leaves;) {
        for (std::size_t n = 1; n <= groups[u].tasks && n * leaves <= f; ++n)
          best[f] = (std::max)(best[f], best[f - n * leaves] + n * weight);
      }
    }
    std::uint64_t most = 0;
    for (std::size_t f = 0; f < nodes.size(); ++f) most += nodes[f] * best[f];
    if (most >= what.needed) continue;
    why.weighings.push_back(std::move(what));
    why.cells.push_back({0, 0, most, {}});
    break;
  }
  return why;
}

inline std::string infeasibility_proof::text(const topology_constraints& gang,
                                             const std::string& level_name,
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
           std::to_string(w.needed - first.missing) + others + detail::blame(blocking);
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
  return all + others + detail::blame(blocking);
}

APIARY_NAMESPACE_END
