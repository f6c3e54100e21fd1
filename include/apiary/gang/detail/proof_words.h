// apiary/gang/detail/proof_words.h - words of the sentences that explain a proof.
// SPDX-License-Identifier: MIT
#include <apiary/gang/infeasibility_proof.h>  // first: its bodies include this header again
#pragma once
#ifndef APIARY_GANG_PROOF_WORDS_H
#define APIARY_GANG_PROOF_WORDS_H

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

}  // namespace detail
APIARY_NAMESPACE_END

#endif  // APIARY_GANG_PROOF_WORDS_H
