// apiary/preempt/disruption_budget.h - how many gangs of a tenant, and leaves of them, may be evicted.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/preempt/eviction_candidate.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What one group of gangs, a tenant or whoever, may lose at most.
struct disruption_budget {
  std::uint64_t gangs = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t leaves = std::numeric_limits<std::uint64_t>::max();
};

// Candidates by group, and what each group may lose. Whose group is not among `most` may lose all;
// empty: nobody is limited.
struct disruption_budgets {
  std::span<const std::uint32_t> groups{};    // of each candidate
  std::span<const disruption_budget> most{};  // of each group
  // Of each candidate, as they count; nothing: what its shares have in sum.
  std::span<const std::uint32_t> leaves{};
};

// Counts what groups lose while gangs are taken and given back. Without limits it does nothing.
//
// Invalid: not one group, or not one number of leaves, for each candidate aborts (APIARY_VERIFY).
// Cost:    begin O(candidates + shares + groups), clear O(groups), all else O(1) but most_of and of;
//          O(1) without limits.
class disruption_tally {
 public:
  // Nothing is taken. The limits stay as they are until it begins anew.
  void begin(const disruption_budgets& limits, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> shares) {
    limits_ = limits;
    clear();
    if (empty()) return;
    APIARY_VERIFY(limits.groups.size() == candidates.size());
    APIARY_VERIFY(limits.leaves.empty() || limits.leaves.size() == candidates.size());
    leaves_.assign(limits.leaves.begin(), limits.leaves.end());
    if (leaves_.empty())
      for (const eviction_candidate& c : candidates) {
        leaves_.push_back(0);
        for (std::uint32_t s = c.first; s < c.last; ++s) leaves_.back() += shares[s].leaves;
      }
  }
  void clear() {
    lost_.assign(limits_.most.size(), {0, 0});
    over_ = 0;
  }
  // Whether nobody is limited.
  [[nodiscard]] bool empty() const noexcept { return limits_.most.empty(); }

  // Counts gang j; whether all groups are within their limits then.
  bool take(std::uint32_t j) noexcept {
    change(j, [&](disruption_budget& lost) {
      ++lost.gangs;
      lost.leaves += leaves_[j];
    });
    return within();
  }
  void give_back(std::uint32_t j) noexcept {
    change(j, [&](disruption_budget& lost) {
      --lost.gangs;
      lost.leaves -= leaves_[j];
    });
  }
  // Counts gang j if all groups are within their limits then, and says so.
  bool admit(std::uint32_t j) noexcept {
    if (take(j)) return true;
    give_back(j);
    return false;
  }
  [[nodiscard]] bool within() const noexcept { return over_ == 0; }
  // Whether the group of gang j has lost more than it may.
  [[nodiscard]] bool over(std::uint32_t j) const noexcept {
    return is_limited(j) && is_over(limits_.groups[j]);
  }

  // What the candidates of a set within the limits have in sum at most, or more than that: of each
  // group as many of the most as it may lose, and no more than its leaves allow when parts of a gang
  // could be lost. Cost: O(candidates * log).
  [[nodiscard]] std::uint64_t most_of(std::span<const std::uint64_t> values) const {
    std::uint64_t sum = 0;
    std::vector<std::vector<std::uint32_t>> in(limits_.most.size());
    for (std::uint32_t j = 0; j < values.size(); ++j) {
      if (!is_limited(j)) {
        sum += values[j];
      } else if (values[j] > 0 && leaves_[j] <= limits_.most[limits_.groups[j]].leaves) {
        in[limits_.groups[j]].push_back(j);
      }
    }
    for (std::size_t g = 0; g < in.size(); ++g) sum += most_of(in[g], values, limits_.most[g]);
    return sum;
  }

  // The same limits for some candidates alone, until the next call.
  [[nodiscard]] disruption_budgets of(std::span<const std::uint32_t> some) {
    if (empty()) return {};
    some_groups_.clear();
    some_leaves_.clear();
    for (const std::uint32_t j : some) {
      some_groups_.push_back(limits_.groups[j]);
      some_leaves_.push_back(leaves_[j]);
    }
    return {some_groups_, limits_.most, some_leaves_};
  }

 private:
  [[nodiscard]] bool is_limited(std::uint32_t j) const noexcept {
    return !empty() && limits_.groups[j] < limits_.most.size();
  }
  [[nodiscard]] bool is_over(std::uint32_t group) const noexcept {
    const disruption_budget& most = limits_.most[group];
    return lost_[group].gangs > most.gangs || lost_[group].leaves > most.leaves;
  }
  [[nodiscard]] std::uint64_t most_of(std::vector<std::uint32_t>& group,
                                      std::span<const std::uint64_t> values,
                                      const disruption_budget& most) const {
    std::uint64_t by_gangs = 0;
    std::sort(group.begin(), group.end(), [&](auto a, auto b) { return values[a] > values[b]; });
    for (std::size_t i = 0; i < group.size() && i < most.gangs; ++i) by_gangs += values[group[i]];
    // The most for each leaf first.
    std::sort(group.begin(), group.end(),
              [&](auto a, auto b) { return values[a] * leaves_[b] > values[b] * leaves_[a]; });
    std::uint64_t by_leaves = 0;
    std::uint64_t left = most.leaves;
    for (const std::uint32_t j : group) {
      if (leaves_[j] > left) {
        by_leaves += values[j] * left / leaves_[j];
        break;
      }
      by_leaves += values[j];
      left -= leaves_[j];
    }
    return std::min(by_gangs, by_leaves);
  }
  template <class Change>
  void change(std::uint32_t j, const Change& by) noexcept {
    if (!is_limited(j)) return;
    const std::uint32_t group = limits_.groups[j];
    const bool before = is_over(group);
    by(lost_[group]);
    if (before == is_over(group)) return;
    if (before) {
      --over_;
    } else {
      ++over_;
    }
  }

  disruption_budgets limits_;
  std::vector<std::uint32_t> leaves_;    // of each candidate
  std::vector<disruption_budget> lost_;  // of each group
  std::size_t over_ = 0;                 // groups beyond their limits
  std::vector<std::uint32_t> some_groups_;
  std::vector<std::uint32_t> some_leaves_;
};

APIARY_NAMESPACE_END
