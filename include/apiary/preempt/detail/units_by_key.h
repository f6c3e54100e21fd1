// apiary/preempt/detail/units_by_key.h - the units of a victim search in ascending order of their bounds.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/preempt/detail/split_cost_bound.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The units of a root cell in ascending order of their keys, for many sets that are made one after
// the other. Most units have the same keys in all of them; they are sorted once, and only as far as
// they are asked for.
// Cost: begin_units_by_key O(units with other keys); at times O(units). The first k units of all:
//       O(units * log k).
class units_by_key : protected split_cost_bound {
 protected:
  // Begins a set. Units in changed_ have the keys in now_.
  void begin_units_by_key() {
    list_units();
    next_sorted_ = 0;
    by_key_.clear();
    for (const std::uint32_t u : changed_) push(u);
    for (const std::uint32_t u : refined_)
      if (!units_[u].changed) push(u);
    keyed_number::make_heap(by_key_);
  }
  // Before the units change.
  void forget_units() {
    sorted_root_ = none;
    refined_.clear();
  }
  // Takes the unit with the least key: of those in by_key_, and of the others, which are in sorted_.
  [[nodiscard]] bool next_unit(keyed_number& to) {
    const auto is_elsewhere = [&](std::uint32_t u) {
      return units_[u].changed || units_[u].refined || u == without_;
    };
    while (has_sorted() && is_elsewhere(sorted_[several_][next_sorted_].number)) ++next_sorted_;
    if (has_sorted() && (by_key_.empty() || sorted_[several_][next_sorted_] < by_key_.front())) {
      to = sorted_[several_][next_sorted_++];
      return true;
    }
    if (by_key_.empty()) return false;
    to = keyed_number::pop(by_key_);
    return true;
  }
  // The keys of a unit are about to change.
  void mark_refined(std::uint32_t u) {
    if (units_[u].changed || units_[u].refined) return;
    units_[u].refined = true;
    refined_.push_back(u);
  }
  // While nothing is evicted, a unit keeps its keys in units_; afterwards in now_.
  [[nodiscard]] const full_key& key_of(std::uint32_t u) const noexcept {
    return units_[u].changed ? now_[u][several_] : units_[u].key[several_];
  }
  void push(std::uint32_t u) {
    if (u >= first_unit_ && u < last_unit_ && u != without_ && key_of(u).key != never)
      by_key_.push_back({key_of(u).key, u});
  }
  void mark_changed(std::uint32_t j) {
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      mark_unit_changed(unit_of_[allocations_[a].node]);
  }
  void mark_unit_changed(std::uint32_t u) {
    if (!units_[u].changed) {
      changed_.push_back(u);
    } else if (now_[u][several_] == full_key{}) {
      return;
    }
    units_[u].changed = true;
    now_[u].fill({});
    if (u >= first_unit_ && u < last_unit_ && u != without_) keyed_number::push(by_key_, {0, u});
  }
  [[nodiscard]] full_keys& keys_of(std::uint32_t u) noexcept {
    return units_[u].changed ? now_[u] : units_[u].key;
  }

  lean_vector<full_keys> now_;  // of changed units
  lean_vector<std::uint32_t> changed_;
  std::uint32_t without_ = none;      // a unit that is left out
  std::size_t several_ = 0;           // which key counts
  lean_vector<keyed_number> by_key_;  // a heap of the units that are not in sorted_

 private:
  // Whether sorted_ has a unit at next_sorted_; sorts it up to there.
  [[nodiscard]] bool has_sorted() {
    lean_vector<keyed_number>& all = sorted_[several_];
    std::size_t& first = num_sorted_[several_];
    while (next_sorted_ >= first && first < all.size()) {
      const std::size_t last =
          (std::min)(all.size(), first + (std::max<std::size_t>)(64, 3 * first));
      const auto at = [&](std::size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i); };
      if (last < all.size()) std::nth_element(at(first), at(last), all.end());
      std::sort(at(first), at(last));
      first = last;
    }
    return next_sorted_ < all.size();
  }
  // Lists the units with the keys that they have while nothing is evicted.
  void list_units() {
    if (sorted_root_ == root_ && refined_.size() * 8 <= last_unit_ - first_unit_) return;
    for (const std::uint32_t u : refined_) units_[u].refined = false;
    refined_.clear();
    sorted_root_ = root_;
    work_ += (last_unit_ - first_unit_) / 16;
    for (std::size_t k = 0; k < sorted_.size(); ++k) {
      sorted_[k].clear();
      for (std::uint32_t u = first_unit_; u < last_unit_; ++u)
        if (units_[u].key[k].key != never) sorted_[k].push_back({units_[u].key[k].key, u});
    }
    num_sorted_.fill(0);
  }

  std::array<lean_vector<keyed_number>, 2> sorted_;  // units, by each of the keys
  std::array<std::size_t, 2> num_sorted_{};          // so many of them are in order, and the first
  std::uint32_t sorted_root_ = none;                 // their root; none: they are not listed
  std::size_t next_sorted_ = 0;
  lean_vector<std::uint32_t> refined_;  // units with other keys than in sorted_
};

}  // namespace detail
APIARY_NAMESPACE_END
