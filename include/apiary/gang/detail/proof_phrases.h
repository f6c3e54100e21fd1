// apiary/gang/detail/proof_phrases.h - tasks, nodes and slices of a gang in words.
// SPDX-License-Identifier: MIT
#include <apiary/gang/infeasibility_proof.h>  // first: its bodies include this header again
#pragma once
#ifndef APIARY_GANG_PROOF_PHRASES_H
#define APIARY_GANG_PROOF_PHRASES_H

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/detail/proof_words.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
#include <apiary/topology/cell_names.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Phrases about the groups of a proof; k is the index of a group in it.
class proof_phrases {
 protected:
  proof_phrases(const infeasibility_proof& why, const topology_constraints& gang,
                const cell_names& names)
      : why_(why), gang_(gang), names_(names) {
    for (const std::uint32_t group : why.groups) needs_.push_back(needs_of(gang, group));
  }

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
  std::vector<task_needs> needs_;  // of a task of each group
};

}  // namespace detail
APIARY_NAMESPACE_END

#endif  // APIARY_GANG_PROOF_PHRASES_H
