// apiary/gang/detail/proof_text_inl.h - the sentence for users of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/detail/proof_phrases.h>
#include <apiary/gang/detail/proof_words.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
#include <apiary/topology/cell_names.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

APIARY_INLINE std::string listing(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// Puts a proof into a sentence.
class proof_text : proof_phrases {
 public:
  proof_text(const infeasibility_proof& why, const topology_constraints& gang,
             const cell_names& names)
      : proof_phrases(why, gang, names), main_(why.main_reason()) {}

  [[nodiscard]] std::string operator()(std::span<const blocking_resource> blocking) const {
    return reason() + others() + without(gang_, blocking);
  }

 private:
  using weights = std::vector<std::uint32_t>;

  [[nodiscard]] std::string reason() const {
    if (main_.weighing == infeasibility_proof::listed) return of_list();
    const infeasibility_proof::weighing& w = why_.weighings[main_.weighing];
    const std::uint64_t most = w.needed - main_.missing;
    std::size_t groups = 0;
    std::size_t group = 0;
    for (std::size_t k = 0; k < w.weights.size(); ++k) {
      if (w.weights[k] == 0) continue;
      ++groups;
      group = k;
    }
    if (groups == 1) return of_tasks(group, w.needed / w.weights[group], most / w.weights[group]);
    if (weighs([](const task_needs& t) { return t.milli; }, w.weights))
      return of_gpus(w.needed, most);
    std::uint64_t largest = 0;
    for (const task_needs& t : needs_)
      largest = (std::max)(largest, (std::min<std::uint64_t>)(t.gpus, 64));
    for (std::uint64_t slot = largest; slot > 0; --slot) {
      if (weighs([&](const task_needs& t) { return t.gpus / slot; }, w.weights))
        return slot == 1 ? of_gpus(w.needed * 1000, most * 1000) : of_slots(slot, w, most);
    }
    return of_weights(w, most);
  }
  // Counts the tasks of one group: as nodes, slices or tasks.
  [[nodiscard]] std::string of_tasks(std::size_t k, std::uint64_t needed,
                                     std::uint64_t most) const {
    const task_needs& t = needs_[k];
    const constrained_task_group& group = gang_.groups[why_.groups[k]];
    if (why_.node_gpus > 0 && t.gpus > why_.node_gpus)
      return (is_leader(k) ? leader_and_workers(k) + " need " : "each task needs ") +
             amount(t.gpus * 1000, "", "GPU") + in_one(why_.node_level) + "; a " +
             names_.level(why_.node_level) + " has at most " + std::to_string(why_.node_gpus);
    const bool by_node = is_one_on_a_node(k);
    const level_count slice = largest_slice(k);
    std::string text = "the gang needs ";
    if (slice.tasks > 1) {
      const std::uint64_t slices = needed / slice.tasks;
      const std::string name =
          group.leader_level < why_.level && slice == replica_of(group) ? "replica" : "slice";
      text += std::to_string(slices) + " " + name + (slices == 1 ? " of " : "s of ") +
              things(k, slice.tasks, by_node) + in_one_cell() + ", each " + name +
              in_one(slice.level);
      for (std::size_t i = group.slices.size(); i-- > 0;) {
        const level_count& s = group.slices[i];
        if (s.level < slice.level && s.tasks > 1)
          text += " and each " + std::to_string(s.tasks) + (by_node ? " nodes" : " tasks") +
                  " of it" + in_one(s.level);
      }
      text += limits(group) + have(most / slice.tasks);
      return text + gaps(k, most > 0, by_node);
    }
    text += (by_node ? "" : "capacity for ") + things(k, needed, by_node) + in_one_cell();
    return text + limits(group) + have(most);
  }
  [[nodiscard]] std::string of_gpus(std::uint64_t needed, std::uint64_t most) const {
    const std::string text =
        "the gang needs " + amount(needed, "free ", "GPU") + in_one_cell() + tasks_of_gang();
    if (why_.cells.size() == 1)
      return text + "; " + best() + " has " + thousandths(most) + " that the tasks can use";
    return text + "; " + best() + " has the most that the tasks can use: " + thousandths(most);
  }
  [[nodiscard]] std::string of_slots(std::uint64_t slot, const infeasibility_proof::weighing& w,
                                     std::uint64_t most) const {
    bool by_node = 2 * slot > why_.node_gpus && why_.node_gpus > 0;
    for (const std::uint32_t weight : w.weights) by_node = by_node && weight <= 1;
    const std::string gpus = amount(slot * 1000, "free ", "GPU");
    const std::string node = names_.level(why_.node_level);
    return "the gang needs " +
           (by_node ? names_.count(w.needed, why_.node_level) + " with at least " + gpus +
                          (w.needed == 1 ? "" : " each")
                    : std::to_string(w.needed) + (w.needed == 1 ? " slot of " : " slots of ") +
                          gpus + " on a " + node) +
           in_one_cell() + tasks_of_gang() + have(most);
  }
  [[nodiscard]] std::string of_weights(const infeasibility_proof::weighing& w,
                                       std::uint64_t most) const {
    std::vector<std::string> each;
    bool equal = true;
    for (std::size_t k = 0; k < w.weights.size(); ++k) {
      equal = equal && w.weights[k] <= 1;
      if (w.weights[k] > 0) each.push_back(tasks_of(k, why_.tasks[k]));
    }
    if (equal)
      return "the gang needs capacity for " + std::to_string(w.needed) + " tasks (" +
             listing(each) + ")" + in_one_cell() + have(most);
    const std::string can_hold = why_.cells.size() == 1
                                     ? "; " + best() + " can hold "
                                     : "; " + best() + " comes closest: it can hold ";
    return "the gang needs capacity for " + listing(each) + in_one_cell() + can_hold +
           held(w, most);
  }
  // What a cell holds at most that holds this weight: tasks of one group beside all others, or
  // tasks.
  [[nodiscard]] std::string held(const infeasibility_proof::weighing& w, std::uint64_t most) const {
    std::size_t heaviest = w.weights.size();
    std::size_t lightest = w.weights.size();
    std::vector<std::pair<std::uint64_t, std::uint64_t>>
        by_weight;  // weight of a task, and how many
    std::uint64_t all = 0;
    for (std::size_t k = 0; k < w.weights.size(); ++k) {
      if (w.weights[k] == 0) continue;
      if (lightest == w.weights.size() || w.weights[k] < w.weights[lightest]) lightest = k;
      if (heaviest == w.weights.size() || w.weights[k] > w.weights[heaviest]) heaviest = k;
      by_weight.emplace_back(w.weights[k], why_.tasks[k]);
      all += why_.tasks[k];
    }
    const std::uint64_t others =
        w.needed - std::uint64_t{w.weights[heaviest]} * why_.tasks[heaviest];
    if (const std::uint64_t n = (most - (std::min)(most, others)) / w.weights[heaviest]; n > 0)
      return "at most " + tasks_of(heaviest, n) + " beside all " +
             (by_weight.size() == 2 ? tasks_of(lightest, why_.tasks[lightest]) : "others");
    std::sort(by_weight.begin(), by_weight.end());
    std::uint64_t tasks = 0;
    for (const auto& [weight, number] : by_weight) {
      const std::uint64_t fit = (std::min)(number, most / weight);
      tasks += fit;
      most -= fit * weight;
      if (fit < number) break;
    }
    return "at most " + std::to_string(tasks) + " of these " + std::to_string(all) + " tasks";
  }
  // The combinations of tasks that the best cell can hold; of many, those that lack fewest GPUs.
  [[nodiscard]] std::string of_list() const {
    if (const std::string replicas = of_replicas(); !replicas.empty()) return replicas;
    std::vector<std::string> needed;
    const std::size_t width = needs_.size();
    for (std::size_t k = 0; k < width; ++k) needed.push_back(slices_of(k, why_.tasks[k]));
    std::vector<std::pair<std::uint64_t, std::string>> held;
    for (const infeasibility_proof::refusal& r : why_.cells) {
      if (r.cell != main_.best) continue;
      for (std::size_t i = 0; i + width <= r.counts.size(); i += width) {
        std::vector<std::string> words;
        std::uint64_t missing = 0;
        for (std::size_t k = 0; k < width; ++k) {
          const std::uint32_t n = (std::min)(r.counts[i + k], why_.tasks[k]);
          missing += (why_.tasks[k] - n) * (1'000 * needs_[k].gpus + 1);
          if (n > 0) words.push_back(slices_of(k, n));
        }
        held.emplace_back(missing, words.empty() ? "none of them" : listing(words));
      }
    }
    std::string text = (each_slice().empty() ? "the gang needs capacity for " : "the gang needs ") +
                       listing(needed) + in_one_cell() + each_slice() + "; " + best() +
                       (why_.cells.size() == 1 ? " can hold " : " comes closest: ");
    constexpr std::size_t shown = 2;
    for (std::size_t i = 0; i < held.size() && i < shown; ++i) {
      const auto least =
          std::min_element(held.begin() + static_cast<std::ptrdiff_t>(i), held.end(),
                           [](const auto& a, const auto& b) { return a.first < b.first; });
      std::swap(held[i], *least);
      text += (i == 0 ? "" : ", or ") + held[i].second;
    }
    if (held.size() > shown)
      text += " (and " + std::to_string(held.size() - shown) + " more combinations)";
    return text;
  }

  // ", each slice in one rack", if all groups have slices in cells of one level.
  [[nodiscard]] std::string each_slice() const {
    level_t level = largest_slice(0).level;
    for (std::size_t k = 0; k < needs_.size(); ++k) {
      const level_count slice = largest_slice(k);
      if (slice.tasks < 2 || slice.level != level) return "";
    }
    return ", each slice" + in_one(level);
  }
  // Counts replicas, if the gang has nothing else; otherwise empty.
  [[nodiscard]] std::string of_replicas() const {
    const auto [leader, level] = only_replicas(gang_, why_.groups);
    if (leader == needs_.size()) return "";
    std::vector<std::string> of_one;
    for (std::size_t k = 0; k < needs_.size(); ++k)
      of_one.push_back(tasks_of(k, why_.tasks[k] / why_.tasks[leader]));
    std::uint64_t most = 0;
    for (const infeasibility_proof::refusal& r : why_.cells)
      for (std::size_t i = leader; r.cell == main_.best && i < r.counts.size(); i += needs_.size())
        most = (std::max<std::uint64_t>)(most, r.counts[i]);
    return "the gang needs " + std::to_string(why_.tasks[leader]) +
           (why_.tasks[leader] == 1 ? " replica of " : " replicas of ") + listing(of_one) +
           in_one_cell() + ", each replica" + in_one(level) + have(most);
  }

  // "; rack r7 has the most: 14", "; the cluster has 14".
  [[nodiscard]] std::string have(std::uint64_t most) const {
    if (why_.cells.size() == 1)
      return "; " + best() + " has " + (most == 0 ? "none" : std::to_string(most));
    if (most == 0) return "; no " + names_.level(why_.level) + " has any";
    return "; " + best() + " has the most: " + std::to_string(most);
  }
  // "; rack r7 comes closest to another: 14 of 16 nodes".
  [[nodiscard]] std::string gaps(std::size_t k, bool any, bool by_node) const {
    std::string text;
    for (const infeasibility_proof::slice_gap& gap : why_.gaps) {
      const constrained_task_group& group = gang_.groups[why_.groups[k]];
      std::uint64_t size = group.leader_level == gap.level ? replica_of(group).tasks : 0;
      for (const level_count& s : group.slices)
        if (s.level == gap.level) size = s.tasks;
      if (size == 0) continue;
      text += "; " + names_.cell(gap.level, gap.cell) + " comes closest" +
              (any || !text.empty() ? " to another: " : ": ") + std::to_string(gap.tasks % size) +
              " of " + std::to_string(size) + (by_node ? " nodes" : " tasks");
    }
    return text;
  }
  // ", at most 2 in one rack": the anti-affinity above the nodes, or on nodes for several tasks.
  [[nodiscard]] std::string limits(const constrained_task_group& group) const {
    std::string text;
    for (const level_count& s : group.spread)
      if (s.level > why_.node_level || s.tasks > 1)
        text += ", at most " + std::to_string(s.tasks) + in_one(s.level);
    return text;
  }
  [[nodiscard]] std::string others() const {
    if (main_.cells == why_.cells.size()) return "";
    return " (in " + std::to_string(main_.cells) + " of " +
           names_.count(why_.cells.size(), why_.level) + "; the others lack something else)";
  }
  [[nodiscard]] std::string best() const { return names_.cell(why_.level, main_.best); }
  template <class Weight>
  [[nodiscard]] bool weighs(const Weight& weight, const weights& is) const {
    for (std::size_t k = 0; k < is.size(); ++k)
      if (is[k] != weight(needs_[k])) return false;
    return true;
  }

  infeasibility_proof::reason main_;
};

}  // namespace detail

APIARY_INLINE std::string infeasibility_proof::text(
    const topology_constraints& gang, const cell_names& names,
    std::span<const blocking_resource> blocking) const {
  return detail::proof_text(*this, gang, names)(blocking);
}

APIARY_NAMESPACE_END
