// apiary/gang_scheduler/detail/candidate_costs.h - what it costs to end each gang that may be preempted.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/job.h>
#include <apiary/preempt/victim_cost.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The candidates for a new gang: running gangs of lower priority, what the end of each one costs, and
// the disruption budgets that it counts against.
// Cost: begin O(priorities + tenants with a budget), and O(slots) if a gang starts after `now`; price
//       has its steps. of() O(log), or a call of the cost function.
class candidate_costs {
 public:
  // The most that a candidate of the caller's cost function costs.
  static constexpr std::uint64_t max_cost = std::uint64_t{1} << 40;

  // The steps that begin() counts as.
  template <class Budgets>
  [[nodiscard]] static std::uint64_t price(const scheduled_gangs& state, time_ms now,
                                           const Budgets& budgets) {
    return state.classes().size() / 12 + budgets.size() / 16 +
           (state.may_add_gpu_times(now) ? state.num_slots() / 256 : 0);
  }
  // function: the cost of a gang; null: priority class, then gangs, then GPU-time. budgets: by tenant.
  // The arguments must not change while the costs are used.
  void begin(const scheduled_gangs& state, std::int32_t below, time_ms now,
             const gang_scheduler_types::cost_function& function,
             const std::map<std::uint32_t, disruption_budget>& budgets) {
    state_ = &state;
    below_ = below;
    now_ = now;
    function_ = &function;
    tenants_.clear();
    most_.clear();
    for (const auto& [tenant, most] : budgets) {
      tenants_.push_back(tenant);
      most_.push_back(most);
    }
    costs_.reset();
    classes_.clear();
    if (function) return;
    for (const auto& [priority, c] : state.classes())
      if (priority < below) classes_.push_back({class_of(priority), c.gangs});
    costs_.emplace(classes_, state.gpu_time(below, now));
  }
  [[nodiscard]] bool is_candidate(std::uint32_t slot) const noexcept {
    const scheduled_gangs::brief& b = state_->brief_of(slot);
    return b.is_candidate && b.priority < below_;
  }
  [[nodiscard]] std::uint64_t of(std::uint32_t slot) const {
    if (!costs_) return (std::min)((*function_)(state_->at(slot).record, now_), max_cost);
    const scheduled_gangs::brief& b = state_->brief_of(slot);
    return (*costs_)({class_of(b.priority), scheduled_gangs::gpu_time_of(b, now_)});
  }
  // Whether the caller's function decides.
  [[nodiscard]] bool by_function() const noexcept { return !costs_; }
  // No candidate costs less; 0 if that is not known.
  [[nodiscard]] std::uint64_t least() const {
    return costs_ && !classes_.empty() ? (*costs_)({classes_[0].priority, 0}) : 0;
  }
  // How much longer it takes to read a candidate than its nodes alone: 0, 1 or 2 times as long.
  [[nodiscard]] std::uint64_t more_reading() const noexcept {
    return (by_function() ? 1U : 0U) + (tenants_.empty() ? 0U : 1U);
  }

  // Whether the budget of its tenant allows the end of this gang alone.
  [[nodiscard]] bool is_within_budget(std::uint32_t slot) const {
    if (tenants_.empty()) return true;
    const std::uint32_t group = group_of(slot);
    return group == no_group ||
           (most_[group].gangs > 0 && most_[group].gpus >= state_->at(slot).record.gpus);
  }
  // The disruption budgets of these candidates. The spans are valid until the next call.
  [[nodiscard]] disruption_budgets limits(std::span<const std::uint32_t> slots) {
    if (tenants_.empty()) return {};
    groups_.clear();
    gpus_.clear();
    for (const std::uint32_t slot : slots) {
      groups_.push_back(group_of(slot));
      gpus_.push_back(static_cast<std::uint32_t>(state_->at(slot).record.gpus));
    }
    return {groups_, most_, gpus_};
  }

 private:
  static constexpr std::uint32_t no_group = ~std::uint32_t{0};
  [[nodiscard]] static std::uint32_t class_of(std::int32_t priority) noexcept {
    return static_cast<std::uint32_t>(priority) ^ (1U << 31);
  }
  // The index of its tenant among those with a budget.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t slot) const {
    const std::uint32_t tenant = state_->at(slot).record.what.tenant.value;
    const auto at = std::lower_bound(tenants_.begin(), tenants_.end(), tenant);
    if (at == tenants_.end() || *at != tenant) return no_group;
    return static_cast<std::uint32_t>(at - tenants_.begin());
  }

  const scheduled_gangs* state_ = nullptr;
  std::int32_t below_ = 0;
  time_ms now_ = 0;
  const gang_scheduler_types::cost_function* function_ = nullptr;
  std::vector<victim_cost::class_size> classes_;  // of candidates
  std::optional<victim_cost> costs_;              // without a cost function
  std::vector<std::uint32_t> tenants_;            // with a budget, ascending
  std::vector<disruption_budget> most_;           // of each of them
  std::vector<std::uint32_t> groups_;             // of each candidate
  std::vector<std::uint32_t> gpus_;               // of each candidate
};

}  // namespace detail
APIARY_NAMESPACE_END
