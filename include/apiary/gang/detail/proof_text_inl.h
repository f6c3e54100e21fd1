// apiary/gang/detail/proof_text_inl.h - the sentence for users of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
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

// Formats thousandths: "1", "2.5".
[[nodiscard]] inline std::string thousandths(std::uint64_t milli) {
  std::string text = std::to_string(milli / 1000);
  if (milli % 1000 == 0) return text;
  std::string rest = std::to_string(1000 + milli % 1000);
  while (rest.back() == '0') rest.pop_back();
  return text + '.' + rest.substr(1);
}
// "1 GPU", "2.5 GPUs"; `free` comes before the noun: "2 free GPUs".
[[nodiscard]] inline std::string amount(std::uint64_t milli, const char* free, const char* noun) {
  return thousandths(milli) + ' ' + free + noun + (milli == 1000 ? "" : "s");
}
[[nodiscard]] inline bool is_in(std::span<const blocking_resource> all, blocking_resource d) {
  return std::find(all.begin(), all.end(), d) != all.end();
}
// Whether a gang makes this request, or has this constraint.
[[nodiscard]] inline bool has(const topology_constraints& gang, blocking_resource resource) {
  return std::any_of(gang.groups.begin(), gang.groups.end(), [&](const auto& m) {
    switch (resource) {
      case blocking_resource::memory:
        return m.host.memory_mib > 0;
      case blocking_resource::cpu:
        return m.host.cpu_milli > 0;
      case blocking_resource::models:
        return m.gpus > 0 && m.models != any_model;
      case blocking_resource::slices:
        return !m.slices.empty();
      case blocking_resource::spread:
        return !m.spread.empty();
      case blocking_resource::gpus:
        return false;
    }
    return false;
  });
}
// The index of the leader among these groups and the level of its replicas, if the gang has nothing
// but replicas of one kind; otherwise the number of groups.
[[nodiscard]] inline std::pair<std::size_t, level_t> only_replicas(
    const topology_constraints& gang, std::span<const std::uint32_t> groups) {
  std::pair<std::size_t, level_t> found{groups.size(), any_level};
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const constrained_task_group& group = gang.groups[groups[k]];
    const bool leads = group.leader == no_task_group;
    const bool other = leads ? found.first != groups.size()
                             : found.second != any_level && found.second != group.leader_level;
    if (other) return {groups.size(), any_level};
    if (leads) {
      found.first = k;
    } else {
      found.second = group.leader_level;
    }
  }
  return found.second == any_level ? std::pair{groups.size(), any_level} : found;
}
// "; without its anti-affinity it would fit"
[[nodiscard]] inline std::string without(const topology_constraints& gang,
                                         std::span<const blocking_resource> blocking) {
  if (blocking.empty()) return "";
  constexpr const char* names[] = {"its memory request", "its CPU request", "its GPU models",
                                   "its slices", "its anti-affinity"};
  const bool gpus = is_in(blocking, blocking_resource::gpus);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < 5; ++i) {
    const auto resource = static_cast<blocking_resource>(i);
    if (gpus ? has(gang, resource) : is_in(blocking, resource)) words.emplace_back(names[i]);
  }
  if (words.empty()) return "";
  return "; without " + listing(words) + (gpus ? " it would not fit either" : " it would fit");
}

// Puts a proof into a sentence.
class proof_text {
 public:
  proof_text(const infeasibility_proof& why, const topology_constraints& gang,
             const cell_names& names)
      : why_(why), gang_(gang), names_(names), main_(why.main_reason()) {
    for (const std::uint32_t group : why.groups) needs_.push_back(needs_of(gang, group));
  }

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

  // Phrases about the groups of the proof; k is the index of a group in it.

  [[nodiscard]] std::string in_one(level_t l) const {
    return (l == why_.node_level ? " on one " : " in one ") + names_.level(l);
  }
  // " in one rack"; nothing for the whole cluster.
  [[nodiscard]] std::string in_one_cell() const {
    return gang_.required == any_level ? "" : in_one(why_.level);
  }
  // "each leader of 1 GPU and its 2 workers of 4 GPUs"; a leader, or the workers, may need no GPU.
  [[nodiscard]] std::string leader_and_workers(std::size_t k) const {
    const auto gpus = [](const constrained_task_group& m) {
      const std::uint64_t milli = m.shared() > 0 ? m.shared() : m.gpus * std::uint64_t{whole_gpu};
      return milli == 0 ? "" : " of " + amount(milli, "", "GPU");
    };
    const constrained_task_group& leader = gang_.groups[why_.groups[k]];
    std::vector<std::string> words{"each leader" + gpus(leader)};
    for (const constrained_task_group& m : gang_.groups) {
      if (m.leader != why_.groups[k] || !m.on_node_of_leader() || m.tasks == 0) continue;
      const std::uint32_t each = m.tasks / leader.tasks;
      words.push_back((words.size() == 1 ? "its " : "") + std::to_string(each) +
                      (each == 1 ? " worker" : " workers") + gpus(m));
    }
    return listing(words);
  }
  [[nodiscard]] bool is_leader(std::size_t k) const {
    for (const constrained_task_group& m : gang_.groups)
      if (m.leader == why_.groups[k] && m.on_node_of_leader() && m.tasks > 0) return true;
    return false;
  }
  // Whether a node holds at most one of these tasks, however free it is.
  [[nodiscard]] bool is_one_on_a_node(std::size_t k) const {
    const task_needs& t = needs_[k];
    for (const level_count& s : gang_.groups[why_.groups[k]].slices)
      if (s.level == why_.node_level && s.tasks > 1) return false;
    for (const level_count& s : gang_.groups[why_.groups[k]].spread)
      if (s.level == why_.node_level && s.tasks == 1) return true;
    return t.milli == t.gpus * whole_gpu && why_.node_gpus > 0 && 2 * t.gpus > why_.node_gpus;
  }
  // The tasks of the group in one replica. Requires: the group has a leader.
  [[nodiscard]] level_count replica_of(const constrained_task_group& group) const {
    return {group.leader_level, group.tasks / gang_.groups[group.leader].tasks};
  }
  // The slices of the highest level, or replicas; no tasks if there are none, or if tasks that
  // share the node have slices, too.
  [[nodiscard]] level_count largest_slice(std::size_t k) const {
    level_count largest;
    for (const constrained_task_group& m : gang_.groups)
      if (m.leader == why_.groups[k] && m.on_node_of_leader() && !m.slices.empty()) return {};
    const constrained_task_group& group = gang_.groups[why_.groups[k]];
    if (group.leader_level < why_.level) largest = replica_of(group);
    for (const level_count& s : group.slices)
      if (s.tasks > 1 && s.level >= largest.level && s.level <= why_.level) largest = s;
    return largest;
  }
  // "16 free nodes of 8 GPUs", "16 nodes with 5 free GPUs each" or "16 tasks of 2 GPUs".
  [[nodiscard]] std::string things(std::size_t k, std::uint64_t n, bool by_node) const {
    if (!by_node) return tasks_of(k, n);
    const task_needs& t = needs_[k];
    if (t.gpus == why_.node_gpus && t.cpu_milli == 0 && t.memory_mib == 0)
      return std::to_string(n) + " free " +
             (n == 1 ? names_.level(why_.node_level) : names_.levels(why_.node_level)) + " of " +
             amount(t.milli, "", "GPU");
    return names_.count(n, why_.node_level) + " with " + resources_of(k, "free ") +
           (n == 1 ? "" : " each");
  }
  // "1 GPU with 2.5 CPUs and 4 GiB of memory"; "1 free GPU, 2.5 free CPUs and ...".
  [[nodiscard]] std::string resources_of(std::size_t k, const char* free) const {
    const task_needs& t = needs_[k];
    std::vector<std::string> words;
    if (t.milli > 0) words.push_back(amount(t.milli, free, "GPU"));
    if (t.gpus > 1 && t.milli != t.gpus * whole_gpu)
      words.back() += " in fractions of " + std::to_string(t.gpus);
    if (t.cpu_milli > 0) words.push_back(amount(t.cpu_milli, free, "CPU"));
    const bool gib = t.memory_mib % 1024 == 0;
    if (t.memory_mib > 0)
      words.push_back(std::to_string(gib ? t.memory_mib / 1024 : t.memory_mib) +
                      (gib ? " GiB of " : " MiB of ") + free + "memory");
    if (*free != 0 || words.size() < 2) return listing(words);
    return words[0] + " with " + listing({words.begin() + 1, words.end()});
  }
  // "3 tasks of 4 GPUs"; a leader with the tasks that share its node is a set of tasks.
  [[nodiscard]] std::string tasks_of(std::size_t k, std::uint64_t n) const {
    const std::string one = is_leader(k) ? "set" : "task";
    const std::string needs = resources_of(k, "");
    return std::to_string(n) + ' ' + one + (n == 1 ? "" : "s") +
           (is_leader(k) ? " of tasks that share a " + names_.level(why_.node_level) : "") +
           (needs.empty()  ? ""
            : is_leader(k) ? " (" + needs + ")"
                           : " of " + needs) +
           which(k);
  }
  // Names a task group whose tasks need the same as those of another one.
  [[nodiscard]] std::string which(std::size_t k) const {
    for (std::size_t i = 0; i < needs_.size(); ++i)
      if (i != k && resources_of(i, "") == resources_of(k, "") && is_leader(i) == is_leader(k))
        return " (task group " + std::to_string(why_.groups[k]) + ")";
    return "";
  }
  // "2 slices of 16 free nodes of 8 GPUs"; without slices as tasks_of.
  [[nodiscard]] std::string slices_of(std::size_t k, std::uint64_t n) const {
    const std::uint64_t size = largest_slice(k).tasks;
    if (size < 2 || n % size != 0) return tasks_of(k, n);
    return std::to_string(n / size) + (n == size ? " slice of " : " slices of ") +
           things(k, size, is_one_on_a_node(k));
  }
  // " for its 2 tasks of 6 GPUs and 2 tasks of 4 GPUs", if there are few sizes.
  [[nodiscard]] std::string tasks_of_gang() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;  // GPUs of a task, and how many
    for (std::size_t k = 0; k < needs_.size(); ++k) {
      if (needs_[k].milli == 0) continue;
      std::size_t i = 0;
      while (i < sizes.size() && sizes[i].first != needs_[k].milli) ++i;
      if (i == sizes.size()) sizes.emplace_back(needs_[k].milli, 0);
      sizes[i].second += why_.tasks[k];
    }
    if (sizes.size() > 4) return "";
    std::vector<std::string> words;
    for (const auto& [milli, n] : sizes)
      words.push_back(std::to_string(n) + (n == 1 ? " task of " : " tasks of ") +
                      amount(milli, "", "GPU"));
    return " for its " + listing(words);
  }

  const infeasibility_proof& why_;
  const topology_constraints& gang_;
  const cell_names& names_;
  infeasibility_proof::reason main_;
  std::vector<task_needs> needs_;  // of a task of each group
};

}  // namespace detail

APIARY_INLINE std::string infeasibility_proof::text(
    const topology_constraints& gang, const cell_names& names,
    std::span<const blocking_resource> blocking) const {
  return detail::proof_text(*this, gang, names)(blocking);
}

APIARY_NAMESPACE_END
