// apiary/gang/detail/put_combinations.h - combinations of tasks of some sizes go to equal nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Puts the same tasks on each of `nodes` nodes of set p: tasks[i] tasks of size sizes[i], or fewer
// if fewer are left. It takes the tasks of a size from one group of this size after another.
// groups: a vector in any order, with `gpus` and `tasks`; the tasks that it puts are subtracted
// from `tasks`. give(p, nodes, group, each): puts `each` tasks on each of `nodes` nodes of set p.
// Returns the set of these nodes.
// Cost: O(groups * (sizes + groups of a size)).
template <class Groups, class Size, class Give>
void put_combinations(std::size_t p, std::uint32_t nodes, std::span<const Size> sizes,
                      std::span<const std::int64_t> tasks, Groups& groups, const Give& give) {
  lean_vector<std::pair<std::size_t, std::uint32_t>> sets;
  sets.push_back({p, nodes});
  lean_vector<std::pair<std::size_t, std::uint32_t>> next;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto each = static_cast<std::uint32_t>(tasks[i]);
    if (each == 0) continue;
    auto group = groups.begin();
    const auto find_group = [&] {
      while (group != groups.end() && (group->gpus != sizes[i].gpus || group->tasks == 0)) ++group;
      return group != groups.end();
    };
    next.clear();
    for (const auto& [set, count] : sets) {
      std::uint32_t left = count;
      while (left > 0 && find_group()) {
        const std::uint32_t whole = (std::min)(left, group->tasks / each);
        if (whole > 0) {
          next.push_back({give(set, whole, *group, each), whole});
          group->tasks -= whole * each;
          left -= whole;
          continue;
        }
        std::size_t one = set;  // a node that takes tasks of several groups
        for (std::uint32_t missing = each; missing > 0 && find_group();) {
          const std::uint32_t some = (std::min)(missing, group->tasks);
          one = give(one, 1, *group, some);
          group->tasks -= some;
          missing -= some;
        }
        next.push_back({one, 1});
        --left;
      }
      if (left > 0) next.push_back({set, left});
    }
    sets.swap(next);
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
