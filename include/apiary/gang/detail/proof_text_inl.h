// apiary/gang/detail/proof_text_inl.h - the sentence for users of gang/infeasibility_proof.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
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
// Puts a proof into a sentence. Each function writes a phrase; k is the index of a group in the
// proof.
class proof_text {
 public:
  proof_text(const infeasibility_proof& why, const topology_constraints& gang,
             const cell_names& names)
      : why_(why), gang_(gang), names_(names), main_(why.main_reason()) {
    for (const std::uint32_t group : why.groups) needs_.push_back(needs_of(gang, group));
  }

  [[nodiscard]] std::string operator()(std::span<const blocking_resource> blocking) {
    if (main_.weighing == infeasibility_proof::listed) {
      of_list();
    } else {
      of_weighing(why_.weighings[main_.weighing]);
    }
    if (main_.cells != why_.cells.size())
      text_ << " (in " << main_.cells << " of " << names_.count(why_.cells.size(), why_.level)
            << "; the others lack something else)";
    without(blocking);
    return std::move(text_.text);
  }

 private:
  using weights = std::vector<std::uint32_t>;

  // "; without its anti-affinity it would fit"
  void without(std::span<const blocking_resource> blocking) {
    constexpr const char* names[] = {"its memory request", "its CPU request", "its GPU models",
                                     "its slices", "its anti-affinity"};
    const bool gpus = is_in(blocking, blocking_resource::gpus);
    word_list words(text_, "; without ");
    for (std::size_t i = 0; i < 5; ++i) {
      const auto resource = static_cast<blocking_resource>(i);
      if (gpus ? has(gang_, resource) : is_in(blocking, resource)) words.next() << names[i];
    }
    if (words.end() > 0) text_ << (gpus ? " it would not fit either" : " it would fit");
  }
  void of_weighing(const infeasibility_proof::weighing& w) {
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
    of_weights(w, most);
  }
  // Counts the tasks of one group: as nodes, slices or tasks.
  void of_tasks(std::size_t k, std::uint64_t needed, std::uint64_t most) {
    const task_needs& t = needs_[k];
    const constrained_task_group& group = gang_.groups[why_.groups[k]];
    if (why_.node_gpus > 0 && t.gpus > why_.node_gpus) {
      if (is_leader(k)) {
        leader_and_workers(k);
        text_ << " need ";
      } else {
        text_ << "each task needs ";
      }
      amount(t.gpus * 1000, "", "GPU");
      in_one(why_.node_level);
      text_ << "; a " << names_.level(why_.node_level) << " has at most " << why_.node_gpus;
      return;
    }
    const bool by_node = is_one_on_a_node(k);
    const level_count slice = largest_slice(k);
    text_ << "the gang needs ";
    if (slice.tasks > 1) {
      const std::uint64_t slices = needed / slice.tasks;
      const char* const name =
          group.leader_level < why_.level && slice == replica_of(group) ? "replica" : "slice";
      text_ << slices << " " << name << (slices == 1 ? " of " : "s of ");
      things(k, slice.tasks, by_node);
      in_one_cell();
      text_ << ", each " << name;
      in_one(slice.level);
      for (std::size_t i = group.slices.size(); i-- > 0;) {
        const level_count& s = group.slices[i];
        if (s.level >= slice.level || s.tasks < 2) continue;
        text_ << " and each " << s.tasks << (by_node ? " nodes" : " tasks") << " of it";
        in_one(s.level);
      }
    } else {
      text_ << (by_node ? "" : "capacity for ");
      things(k, needed, by_node);
      in_one_cell();
    }
    limits(group);
    have(most / (std::max)(slice.tasks, 1U));
    if (slice.tasks > 1) gaps(k, most > 0, by_node);
  }
  void of_gpus(std::uint64_t needed, std::uint64_t most) {
    text_ << "the gang needs ";
    amount(needed, "free ", "GPU");
    in_one_cell();
    tasks_of_gang();
    text_ << "; " << best();
    const bool one = why_.cells.size() == 1;
    text_ << (one ? " has " : " has the most that the tasks can use: ");
    thousandths(most);
    text_ << (one ? " that the tasks can use" : "");
  }
  void of_slots(std::uint64_t slot, const infeasibility_proof::weighing& w, std::uint64_t most) {
    bool by_node = 2 * slot > why_.node_gpus && why_.node_gpus > 0;
    for (const std::uint32_t weight : w.weights) by_node = by_node && weight <= 1;
    text_ << "the gang needs ";
    if (by_node) {
      text_ << names_.count(w.needed, why_.node_level) << " with at least ";
    } else {
      text_ << w.needed << (w.needed == 1 ? " slot of " : " slots of ");
    }
    amount(slot * 1000, "free ", "GPU");
    if (!by_node) text_ << " on a " << names_.level(why_.node_level);
    if (by_node && w.needed != 1) text_ << " each";
    in_one_cell();
    tasks_of_gang();
    have(most);
  }
  void of_weights(const infeasibility_proof::weighing& w, std::uint64_t most) {
    bool equal = true;
    for (const std::uint32_t weight : w.weights) equal = equal && weight <= 1;
    text_ << "the gang needs capacity for ";
    if (equal) text_ << w.needed << " tasks (";
    word_list each(text_);
    for (std::size_t k = 0; k < w.weights.size(); ++k) {
      if (w.weights[k] == 0) continue;
      each.next();
      tasks_of(k, why_.tasks[k]);
    }
    each.end();
    if (equal) text_ << ")";
    in_one_cell();
    if (equal) return have(most);
    text_ << "; " << best()
          << (why_.cells.size() == 1 ? " can hold " : " comes closest: it can hold ");
    held(w, most);
  }
  // What a cell holds at most that holds this weight: tasks of one group beside all others, or
  // tasks.
  void held(const infeasibility_proof::weighing& w, std::uint64_t most) {
    lean_vector<keyed_number> by_weight;  // of a task; the numbers are indices of groups
    std::uint64_t all = 0;
    for (std::uint32_t k = 0; k < w.weights.size(); ++k) {
      if (w.weights[k] == 0) continue;
      by_weight.push_back({w.weights[k], k});
      all += why_.tasks[k];
    }
    keyed_number::sort(by_weight);
    std::size_t heaviest = by_weight.size() - 1;  // the first of equals
    while (heaviest > 0 && by_weight[heaviest - 1].key == by_weight[heaviest].key) --heaviest;
    const auto [weight, k] = by_weight[heaviest];
    const std::uint64_t others = w.needed - weight * why_.tasks[k];
    text_ << "at most ";
    if (const std::uint64_t n = (most - (std::min)(most, others)) / weight; n > 0) {
      tasks_of(k, n);
      text_ << " beside all ";
      const std::uint32_t lightest = by_weight[0].number;
      if (by_weight.size() != 2) {
        text_ << "others";
      } else {
        tasks_of(lightest, why_.tasks[lightest]);
      }
      return;
    }
    std::uint64_t tasks = 0;
    for (const keyed_number& of : by_weight) {
      const std::uint64_t fit = (std::min<std::uint64_t>)(why_.tasks[of.number], most / of.key);
      tasks += fit;
      most -= fit * of.key;
      if (fit < why_.tasks[of.number]) break;
    }
    text_ << tasks << " of these " << all << " tasks";
  }
  // The combinations of tasks that the best cell can hold; of many, those that lack fewest GPUs.
  void of_list() {
    const auto [leader, level] = only_replicas(gang_, why_.groups);
    if (leader < needs_.size()) return of_replicas(leader, level);
    const bool sliced = all_have_slices();
    text_ << (sliced ? "the gang needs " : "the gang needs capacity for ");
    slices_of(why_.tasks);
    in_one_cell();
    if (sliced) {
      text_ << ", each slice";
      in_one(largest_slice(0).level);
    }
    text_ << "; " << best() << (why_.cells.size() == 1 ? " can hold " : " comes closest: ");
    const std::span<const std::uint32_t> counts = counts_of_best();
    const std::size_t width = needs_.size();
    lean_vector<keyed_number> held;  // what each combination lacks
    for (std::size_t i = 0; i + width <= counts.size(); i += width) {
      std::uint64_t missing = 0;
      for (std::size_t k = 0; k < width; ++k)
        missing += (why_.tasks[k] - (std::min)(counts[i + k], why_.tasks[k])) *
                   (1'000 * needs_[k].gpus + 1);
      held.push_back({missing, static_cast<std::uint32_t>(i / width)});
    }
    keyed_number::sort(held);
    constexpr std::size_t shown = 2;
    for (std::size_t i = 0; i < held.size() && i < shown; ++i) {
      if (i > 0) text_ << ", or ";
      slices_of(counts.subspan(held[i].number * width, width));
    }
    if (held.size() > shown) text_ << " (and " << held.size() - shown << " more combinations)";
  }
  // Counts replicas, if the gang has nothing else.
  void of_replicas(std::size_t leader, level_t level) {
    text_ << "the gang needs " << why_.tasks[leader]
          << (why_.tasks[leader] == 1 ? " replica of " : " replicas of ");
    word_list of_one(text_);
    for (std::size_t k = 0; k < needs_.size(); ++k) {
      of_one.next();
      tasks_of(k, why_.tasks[k] / why_.tasks[leader]);
    }
    of_one.end();
    in_one_cell();
    text_ << ", each replica";
    in_one(level);
    std::uint32_t most = 0;
    const std::span<const std::uint32_t> counts = counts_of_best();
    for (std::size_t i = leader; i < counts.size(); i += needs_.size())
      most = (std::max)(most, counts[i]);
    have(most);
  }
  // "; rack r7 has the most: 14", "; the cluster has 14".
  void have(std::uint64_t most) {
    const bool one = why_.cells.size() == 1;
    if (most == 0 && !one) {
      text_ << "; no " << names_.level(why_.level) << " has any";
      return;
    }
    text_ << "; " << best() << (one ? " has " : " has the most: ");
    if (most > 0) text_ << most;
    if (most == 0) text_ << "none";
  }
  // "; rack r7 comes closest to another: 14 of 16 nodes".
  void gaps(std::size_t k, bool any, bool by_node) {
    for (const infeasibility_proof::slice_gap& gap : why_.gaps) {
      const constrained_task_group& group = gang_.groups[why_.groups[k]];
      std::uint64_t size = group.leader_level == gap.level ? replica_of(group).tasks : 0;
      for (const level_count& s : group.slices)
        if (s.level == gap.level) size = s.tasks;
      if (size == 0) continue;
      text_ << "; " << names_.cell(gap.level, gap.cell) << " comes closest"
            << (any ? " to another: " : ": ") << gap.tasks % size << " of " << size
            << (by_node ? " nodes" : " tasks");
      any = true;
    }
  }
  // ", at most 2 in one rack": the anti-affinity above the nodes, or on nodes for several tasks.
  void limits(const constrained_task_group& group) {
    for (const level_count& s : group.spread) {
      if (s.level <= why_.node_level && s.tasks == 1) continue;
      text_ << ", at most " << s.tasks;
      in_one(s.level);
    }
  }
  // "1", "2.5".
  void thousandths(std::uint64_t milli) {
    text_ << milli / 1000;
    std::uint64_t rest = milli % 1000;
    if (rest > 0) text_ << ".";
    for (std::uint64_t digit = 100; rest > 0; digit /= 10) {
      text_ << rest / digit;
      rest %= digit;
    }
  }
  // "1 GPU", "2.5 GPUs"; `free` comes before the noun: "2 free GPUs".
  void amount(std::uint64_t milli, const char* free, const char* noun) {
    thousandths(milli);
    text_ << " " << free << noun << (milli == 1000 ? "" : "s");
  }
  void in_one(level_t l) {
    text_ << (l == why_.node_level ? " on one " : " in one ") << names_.level(l);
  }
  // " in one rack"; nothing for the whole cluster.
  void in_one_cell() {
    if (gang_.required != any_level) in_one(why_.level);
  }
  // "each leader of 1 GPU and its 2 workers of 4 GPUs"; a leader, or the workers, may need no GPU.
  void leader_and_workers(std::size_t k) {
    const auto gpus = [&](const constrained_task_group& m) {
      const std::uint64_t milli = m.shared() > 0 ? m.shared() : m.gpus * std::uint64_t{whole_gpu};
      if (milli == 0) return;
      text_ << " of ";
      amount(milli, "", "GPU");
    };
    const constrained_task_group& leader = gang_.groups[why_.groups[k]];
    word_list words(text_);
    words.next() << "each leader";
    gpus(leader);
    bool its = true;
    for (const constrained_task_group& m : gang_.groups) {
      if (m.leader != why_.groups[k] || !m.on_node_of_leader() || m.tasks == 0) continue;
      const std::uint32_t each = m.tasks / leader.tasks;
      words.next() << (its ? "its " : "") << each << (each == 1 ? " worker" : " workers");
      gpus(m);
      its = false;
    }
    words.end();
  }
  // "16 free nodes of 8 GPUs", "16 nodes with 5 free GPUs each" or "16 tasks of 2 GPUs".
  void things(std::size_t k, std::uint64_t n, bool by_node) {
    if (!by_node) return tasks_of(k, n);
    const task_needs& t = needs_[k];
    if (t.gpus == why_.node_gpus && t.cpu_milli == 0 && t.memory_mib == 0) {
      text_ << n << " free "
            << (n == 1 ? names_.level(why_.node_level) : names_.levels(why_.node_level)) << " of ";
      return amount(t.milli, "", "GPU");
    }
    text_ << names_.count(n, why_.node_level) << " with ";
    resources_of(k, "free ");
    if (n > 1) text_ << " each";
  }
  // "1 GPU with 2.5 CPUs and 4 GiB of memory"; "1 free GPU, 2.5 free CPUs and ...".
  void resources_of(std::size_t k, const char* free) {
    const task_needs& t = needs_[k];
    word_list words(text_);
    const bool of_task = *free == 0;  // then the first one is followed by "with"
    std::size_t n = 0;
    const auto next = [&] {
      if (of_task && n == 1) text_ << " with ";
      if (!of_task || n > 0) words.next();
      ++n;
    };
    if (t.milli > 0) {
      next();
      amount(t.milli, free, "GPU");
      if (t.gpus > 1 && t.milli != t.gpus * whole_gpu) text_ << " in fractions of " << t.gpus;
    }
    if (t.cpu_milli > 0) {
      next();
      amount(t.cpu_milli, free, "CPU");
    }
    if (t.memory_mib > 0) {
      next();
      const bool gib = t.memory_mib % 1024 == 0;
      text_ << (gib ? t.memory_mib / 1024 : t.memory_mib) << (gib ? " GiB of " : " MiB of ") << free
            << "memory";
    }
    words.end();
  }
  // "3 tasks of 4 GPUs"; a leader with the tasks that share its node is a set of tasks. Names the
  // task group if the tasks of another one need the same.
  void tasks_of(std::size_t k, std::uint64_t n) {
    const bool leader = is_leader(k);
    text_ << n << (leader ? " set" : " task") << (n == 1 ? "" : "s");
    if (leader) text_ << " of tasks that share a " << names_.level(why_.node_level);
    if (!(needs_[k] == task_needs{})) {
      text_ << (leader ? " (" : " of ");
      resources_of(k, "");
      text_ << (leader ? ")" : "");
    }
    bool alone = true;
    for (std::size_t i = 0; i < needs_.size(); ++i)
      alone = alone && (i == k || !(needs_[i] == needs_[k]) || is_leader(i) != leader);
    if (!alone) text_ << " (task group " << why_.groups[k] << ")";
  }
  // "2 slices of 16 free nodes of 8 GPUs"; without slices as tasks_of.
  void slices_of(std::size_t k, std::uint64_t n) {
    const std::uint64_t size = largest_slice(k).tasks;
    if (size < 2 || n % size != 0) return tasks_of(k, n);
    text_ << n / size << (n == size ? " slice of " : " slices of ");
    things(k, size, is_one_on_a_node(k));
  }
  // So many tasks of each group, and no more than the gang has.
  void slices_of(std::span<const std::uint32_t> tasks) {
    word_list words(text_);
    for (std::size_t k = 0; k < tasks.size(); ++k) {
      const std::uint32_t n = (std::min)(tasks[k], why_.tasks[k]);
      if (n == 0) continue;
      words.next();
      slices_of(k, n);
    }
    if (words.end() == 0) text_ << "none of them";
  }
  // " for its 2 tasks of 6 GPUs and 2 tasks of 4 GPUs", if there are few sizes.
  void tasks_of_gang() {
    lean_vector<std::uint64_t> sizes;  // GPUs of a task
    lean_vector<std::uint64_t> tasks;  // of each size
    for (std::size_t k = 0; k < needs_.size(); ++k) {
      if (needs_[k].milli == 0) continue;
      std::size_t i = 0;
      while (i < sizes.size() && sizes[i] != needs_[k].milli) ++i;
      if (i == sizes.size()) {
        sizes.push_back(needs_[k].milli);
        tasks.push_back(0);
      }
      tasks[i] += why_.tasks[k];
    }
    if (sizes.size() > 4) return;
    word_list words(text_, " for its ");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      words.next() << tasks[i] << (tasks[i] == 1 ? " task of " : " tasks of ");
      amount(sizes[i], "", "GPU");
    }
    words.end();
  }

  [[nodiscard]] std::string best() const { return names_.cell(why_.level, main_.best); }
  // The combinations that are listed for the best cell.
  [[nodiscard]] std::span<const std::uint32_t> counts_of_best() const {
    for (const infeasibility_proof::refusal& r : why_.cells)
      if (r.cell == main_.best) return r.counts;
    return {};
  }
  template <class Weight>
  [[nodiscard]] bool weighs(const Weight& weight, const weights& is) const {
    for (std::size_t k = 0; k < is.size(); ++k)
      if (is[k] != weight(needs_[k])) return false;
    return true;
  }
  // Whether all groups have slices in cells of one level.
  [[nodiscard]] bool all_have_slices() const {
    for (std::size_t k = 0; k < needs_.size(); ++k) {
      const level_count slice = largest_slice(k);
      if (slice.tasks < 2 || slice.level != largest_slice(0).level) return false;
    }
    return true;
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

  const infeasibility_proof& why_;
  const topology_constraints& gang_;
  const cell_names& names_;
  infeasibility_proof::reason main_;
  lean_vector<task_needs> needs_;  // of a task of each group
  growing_text text_;
};

}  // namespace detail

APIARY_INLINE std::string infeasibility_proof::text(
    const topology_constraints& gang, const cell_names& names,
    std::span<const blocking_resource> blocking) const {
  return detail::proof_text(*this, gang, names)(blocking);
}

APIARY_NAMESPACE_END
