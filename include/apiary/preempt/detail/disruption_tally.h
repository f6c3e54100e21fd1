// apiary/preempt/detail/disruption_tally.h - what each tenant loses to a set of victims.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Counts what each group loses while candidates become victims and are reprieved.
// Requires: the memory of the budgets stays as it is until begin() is called again.
// Invalid:  groups or GPUs that are not one for each candidate abort (APIARY_VERIFY).
// Cost:     begin O(candidates + allocations + groups), clear O(1) amortized, max_sum O(candidates
//           * log), subset O(its size), all else O(1); O(1) without budgets.
class disruption_tally {
 public:
  // Begins without victims.
  void begin(const disruption_budgets& budgets, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations) {
    budgets_ = budgets;
    lost_.assign(budgets_.max.size(), {0, 0});
    is_changed_.assign(budgets_.max.size(), 0);
    changed_.clear();
    over_ = 0;
    if (unlimited()) return;
    APIARY_VERIFY(budgets.groups.size() == candidates.size());
    APIARY_VERIFY(budgets.gpus.empty() || budgets.gpus.size() == candidates.size());
    gpus_.assign(budgets.gpus);
    if (gpus_.empty())
      for (const eviction_candidate& c : candidates) {
        gpus_.push_back(0);
        for (std::uint32_t a = c.first; a < c.last; ++a) gpus_.back() += allocations[a].gpus;
      }
  }
  // No candidate is a victim.
  void clear() {
    for (const std::uint32_t g : changed_) {
      lost_[g] = {0, 0};
      is_changed_[g] = 0;
    }
    changed_.clear();
    over_ = 0;
  }
  [[nodiscard]] bool unlimited() const noexcept { return budgets_.max.empty(); }
  // Candidate j becomes a victim. Returns within_budgets().
  bool add_victim(std::uint32_t j) noexcept {
    change(j, [&](disruption_budget& lost) {
      ++lost.gangs;
      lost.gpus += gpus_[j];
    });
    return within_budgets();
  }
  void remove_victim(std::uint32_t j) noexcept {
    change(j, [&](disruption_budget& lost) {
      --lost.gangs;
      lost.gpus -= gpus_[j];
    });
  }
  // Candidate j becomes a victim if all groups are within their budgets then; whether it did.
  bool try_add_victim(std::uint32_t j) noexcept {
    if (add_victim(j)) return true;
    remove_victim(j);
    return false;
  }
  [[nodiscard]] bool within_budgets() const noexcept { return over_ == 0; }
  // Whether the group of candidate j has lost more than its budget.
  [[nodiscard]] bool over_budget(std::uint32_t j) const noexcept {
    return is_limited(j) && is_over(budgets_.groups[j]);
  }
  // An upper bound on the sum of these values, one for each candidate, over the victims of any set
  // within the budgets: the greatest values of as many gangs as a group may lose, and of no more
  // than its GPUs allow if fractions of gangs could be lost.
  [[nodiscard]] std::uint64_t max_sum(std::span<const std::uint64_t> values) const {
    std::uint64_t sum = 0;
    std::vector<lean_vector<std::uint32_t>> in(budgets_.max.size());
    for (std::uint32_t j = 0; j < values.size(); ++j) {
      if (!is_limited(j)) {
        sum += values[j];
      } else if (values[j] > 0 && gpus_[j] <= budgets_.max[budgets_.groups[j]].gpus) {
        in[budgets_.groups[j]].push_back(j);
      }
    }
    for (std::size_t g = 0; g < in.size(); ++g) sum += max_sum(in[g], values, budgets_.max[g]);
    return sum;
  }
  // The same budgets for some of the candidates alone. Valid until the next call.
  [[nodiscard]] disruption_budgets subset(std::span<const std::uint32_t> some) {
    if (unlimited()) return {};
    some_groups_.clear();
    some_gpus_.clear();
    for (const std::uint32_t j : some) {
      some_groups_.push_back(budgets_.groups[j]);
      some_gpus_.push_back(gpus_[j]);
    }
    return {some_groups_, budgets_.max, some_gpus_};
  }

 private:
  [[nodiscard]] bool is_limited(std::uint32_t j) const noexcept {
    return !unlimited() && budgets_.groups[j] < budgets_.max.size();
  }
  [[nodiscard]] bool is_over(std::uint32_t group) const noexcept {
    const disruption_budget& max = budgets_.max[group];
    return lost_[group].gangs > max.gangs || lost_[group].gpus > max.gpus;
  }
  [[nodiscard]] std::uint64_t max_sum(lean_vector<std::uint32_t>& group,
                                      std::span<const std::uint64_t> values,
                                      const disruption_budget& max) const {
    std::uint64_t by_gangs = 0;
    std::sort(group.begin(), group.end(), [&](auto a, auto b) { return values[a] > values[b]; });
    for (std::size_t i = 0; i < group.size() && i < max.gangs; ++i) by_gangs += values[group[i]];
    // The greatest value for each GPU first.
    std::sort(group.begin(), group.end(),
              [&](auto a, auto b) { return values[a] * gpus_[b] > values[b] * gpus_[a]; });
    std::uint64_t by_gpus = 0;
    std::uint64_t left = max.gpus;
    for (const std::uint32_t j : group) {
      if (gpus_[j] > left) {
        by_gpus += values[j] * left / gpus_[j];
        break;
      }
      by_gpus += values[j];
      left -= gpus_[j];
    }
    return (std::min)(by_gangs, by_gpus);
  }
  template <class Change>
  void change(std::uint32_t j, const Change& by) noexcept {
    if (!is_limited(j)) return;
    const std::uint32_t group = budgets_.groups[j];
    const bool before = is_over(group);
    if (is_changed_[group] == 0) changed_.push_back(group);
    is_changed_[group] = 1;
    by(lost_[group]);
    if (before == is_over(group)) return;
    if (before) {
      --over_;
    } else {
      ++over_;
    }
  }

  disruption_budgets budgets_;
  lean_vector<std::uint32_t> gpus_;        // of each candidate
  lean_vector<disruption_budget> lost_;    // of each group
  lean_vector<std::uint32_t> changed_;     // groups that have lost gangs since clear()
  lean_vector<unsigned char> is_changed_;  // of each group
  std::size_t over_ = 0;                   // groups beyond their budgets
  lean_vector<std::uint32_t> some_groups_;
  lean_vector<std::uint32_t> some_gpus_;
};

}  // namespace detail
APIARY_NAMESPACE_END
