// apiary/gang/topology_constraints.h - a gang and where its tasks may stand to one another.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where a gang goes: of the cells that can hold it to the one with least free leaves, and there to
// the fullest parts and nodes first, so that whole cells stay whole; or to the cell where it needs
// fewest nodes, and to few nodes there. These are least for one size of task whose rules are about
// nodes alone, and an estimate for several sizes, other rules, CPU and memory.
enum class gang_objective : std::uint8_t { whole_cells, fewest_nodes };

inline constexpr level_t any_level = ~level_t{0};
inline constexpr std::uint32_t no_task_group = ~std::uint32_t{0};

// So many tasks of a member in a cell of the level.
struct level_count {
  level_t level = 0;
  std::uint32_t tasks = 0;
  friend constexpr bool operator==(level_count, level_count) noexcept = default;
};

// A part of a gang: `tasks` equal tasks, each on one node with `leaves` whole GPUs and `host`.
//   slices  each slice of `tasks` consecutive tasks is in one cell of the level; a slice of a lower
//           level is a whole part of that of a higher one: {{rack, 16}, {block, 64}}
//   spread  at most so many tasks in any one cell of the level
//   leader  the member each task of which shares its node with tasks / leader's tasks of these
//   part    below whole_gpu: instead of `leaves` GPUs that share of one, in thousandths
//   models  the kinds of GPU that will do
// Shares and kinds of GPU are for nodes that share GPUs (gang/detail/shared_capacity.h); others ignore them.
struct constrained_task_group {
  std::uint32_t tasks = 0;
  std::uint32_t gpus = 0;
  resources host{};
  std::vector<level_count> slices{};
  std::vector<level_count> spread{};
  std::uint32_t leader = no_task_group;
  milli_gpu gpu_milli = whole_gpu;
  model_set models = any_model;

  // Thousandths of the GPU shared; 0 for whole GPUs or none.
  [[nodiscard]] milli_gpu shared() const noexcept {
    return gpus > 0 && gpu_milli < whole_gpu ? gpu_milli : milli_gpu{0};
  }
};

// Tasks of all members of a gang together: at most so many.
inline constexpr std::uint32_t max_tasks_of_gang = ~std::uint32_t{0};

// All tasks in one cell of level `required`; in the lowest level from `preferred` up that can be.
struct topology_constraints {
  std::vector<constrained_task_group> members{};
  level_t required = any_level;
  level_t preferred = any_level;
};

// Which rule cannot be understood, and where.
struct constraint_fault {
  enum class kind : std::uint8_t {
    none,
    required_level,   // no level of nodes or above
    preferred_level,  // likewise
    slice_level,      // likewise, of slice
    slice_tasks,      // slice does not divide the tasks
    slice_twice,      // slice and other are of one level
    slice_of_slices,  // slice does not divide other, which is of a higher level
    spread_level,     // as slice_level
    no_leader,        // the leader is not in the gang
    led_leader,       // the leader is the member itself, or has a leader
    leader_tasks,     // the leader's tasks do not divide those of the member
    too_many_tasks,   // more than max_tasks_of_gang in all, with those of the member
  };
  kind what = kind::none;
  std::uint32_t member = no_task_group;
  level_count slice{};  // or spread
  level_count other{};
};

// The first rule that cannot be understood, kind::none if all can: levels are those of nodes or
// above; slices of a member have each a level of their own, one divides that of the next higher
// level and all divide the tasks; a leader has no leader, and its tasks divide those it leads; all
// members together have at most max_tasks_of_gang tasks.
// Cost: O(members * levels^2).
[[nodiscard]] inline constraint_fault find_fault(const topology_constraints& gang,
                                                 level_t node_level, level_t num_levels) noexcept {
  using kind = constraint_fault::kind;
  const auto known = [&](level_t l) { return l >= node_level && l < num_levels; };
  if (gang.required != any_level && !known(gang.required)) return {kind::required_level};
  if (gang.preferred != any_level && !known(gang.preferred)) return {kind::preferred_level};
  std::uint64_t tasks = 0;
  for (std::uint32_t i = 0; i < gang.members.size(); ++i) {
    const constrained_task_group& m = gang.members[i];
    tasks += m.tasks;
    if (tasks > max_tasks_of_gang) return {kind::too_many_tasks, i};
    for (const level_count& s : m.slices) {
      if (!known(s.level)) return {kind::slice_level, i, s};
      if (s.tasks == 0 || m.tasks % s.tasks != 0) return {kind::slice_tasks, i, s};
      for (const level_count& other : m.slices) {
        if (&other != &s && other.level == s.level) return {kind::slice_twice, i, s, other};
        if (other.level > s.level && other.tasks % s.tasks != 0)
          return {kind::slice_of_slices, i, s, other};
      }
    }
    for (const level_count& s : m.spread)
      if (!known(s.level)) return {kind::spread_level, i, s};
    if (m.leader == no_task_group) continue;
    if (m.leader >= gang.members.size()) return {kind::no_leader, i};
    const constrained_task_group& leader = gang.members[m.leader];
    if (&leader == &m || leader.leader != no_task_group) return {kind::led_leader, i};
    if (leader.tasks == 0 ? m.tasks != 0 : m.tasks % leader.tasks != 0)
      return {kind::leader_tasks, i};
  }
  return {};
}

// Whether all rules can be understood.
[[nodiscard]] inline bool valid(const topology_constraints& gang, level_t node_level,
                                level_t num_levels) noexcept {
  return find_fault(gang, node_level, num_levels).what == constraint_fault::kind::none;
}

// The gang in units: a task of a member without leader, with the tasks it leads. Units are of one
// kind if they are of one member, or need the same and have no rules. What slices and spread ask for
// is, for each kind and level, that every cell of the level has a multiple of `step` units and at
// most `most`. Units of a kind are equal, so that no more than the counts matters.
//
// Proof for slices: if all cells hold multiples, tasks numbered from cell to cell make slices that
// do not cross cells; and slices that do not cross cells make multiples.
// Requires: valid(gang).
// Cost:     O(members * (members + levels)).
class colocated_groups {
 public:
  // More than any node has; all units together need less than 2^64.
  static constexpr std::uint32_t max_gpus = ~std::uint32_t{0};
  static constexpr std::uint64_t max_host = std::uint64_t{1} << 32;

  struct group {
    std::uint32_t member = 0;     // the first one
    std::uint32_t tasks = 0;      // units, one a task of the members
    std::uint32_t gpus = 0;       // at most many_leaves
    std::uint64_t cpu_milli = 0;  // at most `much`, memory, too
    std::uint64_t memory_mib = 0;
    level_t constrained = any_level;     // the lowest level with a rule
    std::vector<milli_gpu> fractions{};  // of the gpus of which a share is taken, descending
    model_set models = any_model;        // that suit all its tasks
  };

  void assign(const topology_constraints& gang, level_t node_level, level_t top) {
    APIARY_ASSERT(valid(gang, node_level, top));
    node_level_ = node_level;
    heights_ = top - node_level + 1;
    groups_.clear();
    limits_.clear();
    hosted_ = false;
    lowest_constraint_ = any_level;
    group_of_.assign(gang.members.size(), no_task_group);
    for (std::uint32_t m = 0; m < gang.members.size(); ++m) {
      const constrained_task_group& member = gang.members[m];
      if (member.leader != no_task_group || member.tasks == 0) continue;
      group u{m, member.tasks, 0, 0, 0, any_level};
      limits_.resize(limits_.size() + heights_, limit{1, u.tasks});
      for (const constrained_task_group& other : gang.members) {
        if (&other != &member && other.leader != m) continue;
        add(u, other);
      }
      settle();
      group_of_[m] = static_cast<std::uint32_t>(join(u));
      if (group_of_[m] < groups_.size()) continue;
      hosted_ = hosted_ || u.cpu_milli > 0 || u.memory_mib > 0;
      lowest_constraint_ = std::min(lowest_constraint_, u.constrained);
      groups_.push_back(u);
    }
  }

  // Kinds.
  [[nodiscard]] std::size_t size() const noexcept { return groups_.size(); }
  // Of a member; no_task_group if it has a leader or no tasks.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t member) const noexcept {
    return group_of_[member];
  }
  [[nodiscard]] const group& operator[](std::size_t u) const noexcept { return groups_[u]; }
  // Whether any unit takes CPU or memory.
  [[nodiscard]] bool hosted() const noexcept { return hosted_; }
  // The lowest level with a rule, any_level without rules.
  [[nodiscard]] level_t lowest_constraint() const noexcept { return lowest_constraint_; }

  struct limit {
    std::uint32_t step = 1;
    std::uint32_t most = 0;  // a multiple of step, at most the units there are
  };
  [[nodiscard]] limit at(std::size_t u, level_t l) const noexcept {
    return limits_[u * heights_ + (l - node_level_)];
  }
  // The greatest number of units that n leave room for.
  [[nodiscard]] std::uint32_t bound(std::size_t u, level_t l, std::uint64_t n) const noexcept {
    const limit is = at(u, l);
    const auto fewer = static_cast<std::uint32_t>(n < is.most ? n : is.most);
    return is.step == 1 ? fewer : fewer - fewer % is.step;
  }

 private:
  static constexpr std::uint32_t max_fractions = 16'001;  // more than any node has

  // sum + each * tasks, at most `most`.
  [[nodiscard]] static std::uint64_t add_up(std::uint64_t sum, std::uint32_t each,
                                            std::uint32_t tasks, std::uint64_t most) noexcept {
    return std::min(sum + std::min(std::uint64_t{each} * tasks, most), most);
  }
  void add(group& u, const constrained_task_group& m) {
    const std::uint32_t each = m.tasks / u.tasks;
    u.gpus = static_cast<std::uint32_t>(add_up(u.gpus, m.gpus, each, max_gpus));
    u.cpu_milli = add_up(u.cpu_milli, m.host.cpu_milli, each, max_host);
    u.memory_mib = add_up(u.memory_mib, m.host.memory_mib, each, max_host);
    if (each == 0) return;
    if (m.gpus > 0) u.models &= m.models;
    if (m.shared() > 0) {
      u.fractions.insert(u.fractions.end(), std::min(each, max_fractions), m.shared());
      std::sort(u.fractions.begin(), u.fractions.end(),
                [](milli_gpu a, milli_gpu b) { return a > b; });
    }
    limit* const limits = &limits_[limits_.size() - heights_];
    for (const level_count& s : m.slices) {
      limit& is = limits[s.level - node_level_];
      is.step = common_multiple(is.step, s.tasks / common_divisor(s.tasks, each));
      u.constrained = std::min(u.constrained, s.level);
    }
    for (const level_count& s : m.spread) {
      limit& is = limits[s.level - node_level_];
      is.most = std::min(is.most, s.tasks / each);
      u.constrained = std::min(u.constrained, s.level);
    }
  }
  // The greatest common divisor and the least common multiple. (<numeric> is 600 lines of others.)
  static std::uint32_t common_divisor(std::uint32_t a, std::uint32_t b) noexcept {
    while (b != 0) a = std::exchange(b, a % b);
    return a;
  }
  static std::uint32_t common_multiple(std::uint32_t a, std::uint32_t b) noexcept {
    return a / common_divisor(a, b) * b;
  }
  // Adds the unit just made to one of the same kind; which one it is, size() for a new one.
  std::size_t join(const group& u) {
    if (u.constrained != any_level) return groups_.size();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      group& other = groups_[i];
      if (other.constrained != any_level || other.gpus != u.gpus ||
          other.cpu_milli != u.cpu_milli || other.memory_mib != u.memory_mib ||
          other.fractions != u.fractions || other.models != u.models)
        continue;
      other.tasks += u.tasks;
      for (std::size_t h = 0; h < heights_; ++h) limits_[i * heights_ + h].most = other.tasks;
      limits_.resize(groups_.size() * heights_);
      return i;
    }
    return groups_.size();
  }
  // A cell holds multiples of what its parts do, and not more than the cell above may.
  void settle() {
    limit* const limits = &limits_[limits_.size() - heights_];
    for (std::size_t h = 1; h < heights_; ++h)
      limits[h].step = common_multiple(limits[h].step, limits[h - 1].step);
    for (std::size_t h = heights_; h-- > 0;) {
      if (h + 1 < heights_) limits[h].most = std::min(limits[h].most, limits[h + 1].most);
      limits[h].most -= limits[h].most % limits[h].step;
    }
  }

  level_t node_level_ = 0;
  std::size_t heights_ = 0;
  std::vector<group> groups_;
  std::vector<std::uint32_t> group_of_;  // of each member
  std::vector<limit> limits_;            // by unit and level from the nodes up
  bool hosted_ = false;
  level_t lowest_constraint_ = any_level;
};

APIARY_NAMESPACE_END
