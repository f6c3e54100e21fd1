// apiary/gang/infeasibility_proof.h - a proof that a gang does not fit, which can be checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
#include <apiary/topology/cell_names.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What keeps a gang from fitting: something that it needs besides GPUs, or the GPUs themselves.
enum class blocking_resource : std::uint8_t { memory, cpu, models, slices, spread, gpus };

// A proof that a gang fits no cell of the level that it requires: a reason for each of these cells.
// explain/proof_check.h verifies it. There are two kinds of reasons:
//
// * A weighing gives the tasks of each co-located group a weight. The gang weighs `needed`, the
//   cell can hold weight `most`, which is less. The capacity is counted like this:
//     a node   the largest weight of tasks that its free GPUs hold, within the constraints at the
//     level of nodes; CPU and memory count too if only one group has a weight, or GPUs are shared
//     a cell   the sum over its children, at most what the constraints at its level allow; if only
//     one group has a weight, only whole steps (slices) count
//   Weight 1 for one group counts its tasks; weight floor(gpus / t) counts slots of t GPUs; the
//   thousandths of GPUs that a task takes count shared GPUs.
// * A list: `counts` holds the largest combinations of tasks that the cell can hold. None of them
//   covers the gang.
//
// Example:  examples/shared_gang.cpp
struct infeasibility_proof {
  // Weights of tasks, and the weight of the whole gang.
  struct weighing {
    std::vector<std::uint32_t> weights{};  // of a task of each group
    std::uint64_t needed = 0;              // weight of the whole gang
    friend bool operator==(const weighing&, const weighing&) = default;
  };
  static constexpr std::uint32_t listed = ~std::uint32_t{0};  // refusal::weighing if by a list
  // Why one cell does not hold the gang.
  struct refusal {
    std::uint32_t cell = 0;               // by its position in the level
    std::uint32_t weighing = listed;      // index of the weighing that refuses the cell
    std::uint64_t most = 0;               // weight that the cell can hold; 0 if listed
    std::vector<std::uint32_t> counts{};  // if listed: tasks of each group, vector after vector
    friend bool operator==(const refusal&, const refusal&) = default;
  };

  // A cell of a level with slices that comes closest to holding one more slice.
  struct slice_gap {
    level_t level = 0;        // of the slices
    std::uint32_t cell = 0;   // by its position in the level
    std::uint64_t tasks = 0;  // how many it could hold if slices at its level did not count
    friend bool operator==(const slice_gap&, const slice_gap&) = default;
  };

  level_t level = 0;                    // of the cells; num_levels() is the cell of the whole tree
  level_t node_level = 0;               // of the nodes
  std::uint32_t node_gpus = 0;          // no node has more GPUs free; 0 if that is not known
  std::vector<std::uint32_t> groups{};  // first task group of each co-located group, ascending
  std::vector<std::uint32_t> tasks{};   // of each co-located group, without those that it leads
  std::vector<weighing> weighings{};    // the weighings that refuse cells
  std::vector<refusal> cells{};         // every cell of the level that has nodes, ascending
  // If the main reason counts the tasks of one group, and slices leave capacity unused: for each
  // level with slices, from the highest down, the closest cell inside the one before it (first:
  // inside the best cell of the main reason), of equals the first. Empty if it was not computed.
  std::vector<slice_gap> gaps{};
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

  // A sentence that tells a user why the gang waits: "the gang needs 4 nodes with 5 free GPUs each
  // in one rack; rack r7 has the most: 3". `blocking` names what blocks the gang
  // (explain/blocking_resource.h); it is empty if that is not known. Requires: a gang with the task
  // groups of the proof, and names of the cells of its tree.
  [[nodiscard]] std::string text(const topology_constraints& gang, const cell_names& names,
                                 std::span<const blocking_resource> blocking = {}) const;

  // Proves that a gang without constraints does not fit the whole cluster. `nodes` has the number
  // of nodes with 0, 1, ... free GPUs. It tries weighings in this order: the tasks of each group,
  // GPUs, slots (large ones first), the weights of a linear program. If none proves it, it makes a
  // list. The proof has no cells if the gang fits, or if the budget of the list ended.
  // Requires: at least one GPU a task; `top` is the level above the roots.
  // Cost:     O(GPUs of a task * groups * GPUs of a node * tasks on a node), and the linear program
  //           takes up to 5 ms with many groups; the list takes up to 1,000,000 comparisons.
  [[nodiscard]] static infeasibility_proof of_nodes(std::span<const std::uint32_t> nodes,
                                                    std::span<const task_group> groups,
                                                    level_t node_level, level_t top);
};

inline infeasibility_proof::reason infeasibility_proof::main_reason() const {
  detail::lean_vector<reason> reasons(weighings.size() + 1);
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

namespace detail {

// A sentence that grows. It compiles to less than a sum of strings.
struct growing_text {
  std::string text{};
  growing_text& operator<<(std::string_view words) {
    text.append(words);
    return *this;
  }
  growing_text& operator<<(std::uint64_t number) {
    text.append(std::to_string(number));
    return *this;
  }
};
// Writes a list behind a sentence: "a", "a and b", "a, b and c".
class word_list {
 public:
  // `before`: what comes before the first word, if there is one.
  explicit word_list(growing_text& to, const char* before = "") : to_(to), before_(before) {}
  // The next word can be written.
  growing_text& next() {
    last_ = to_.text.size();
    return to_ << (words_++ == 0 ? before_ : ", ");
  }
  // The last word has been written. Returns how many there are.
  std::size_t end() {
    if (words_ > 1) to_.text.replace(last_, 2, " and ");
    return words_;
  }

 private:
  growing_text& to_;
  const char* before_;
  std::size_t words_ = 0;
  std::size_t last_ = 0;  // where the comma before the last word is
};

// The needs of one task of a task group together with the tasks that it leads.
struct task_needs {
  std::uint64_t gpus = 0;
  std::uint64_t milli = 0;  // of GPUs
  std::uint64_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  friend bool operator==(const task_needs&, const task_needs&) = default;
};
[[nodiscard]] inline task_needs needs_of(const topology_constraints& gang, std::uint32_t group) {
  task_needs all;
  for (const constrained_task_group& m : gang.groups) {
    if (&m != &gang.groups[group] && !(m.on_node_of_leader() && m.leader == group)) continue;
    const std::uint64_t each = m.tasks / gang.groups[group].tasks;
    all.gpus += m.gpus * each;
    all.milli += m.gpus * each * (m.shared() > 0 ? m.shared() : whole_gpu);
    all.cpu_milli += m.host.cpu_milli * each;
    all.memory_mib += m.host.memory_mib * each;
  }
  return all;
}

}  // namespace detail

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/gang/detail/infeasibility_proof_inl.h>
#include <apiary/gang/detail/proof_text_inl.h>
#endif
