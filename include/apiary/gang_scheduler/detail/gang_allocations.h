// apiary/gang_scheduler/detail/gang_allocations.h - what each gang gives back when it ends, in one list for all searches.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The GPUs that each gang gives back on its nodes when it ends, as a search for victims reads them.
// refresh() lists them again for the gangs that have changed. The list also has unused entries, at
// most as many as used ones, and 64.
// Cost: mark O(1); refresh O(nodes of the changed gangs), amortized; the first call lists all gangs.
class gang_allocations {
 public:
  // The entries first, ..., last - 1 of all() are those of one gang.
  struct range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  // Whether begin() has been called.
  [[nodiscard]] bool active() const noexcept { return active_; }
  // All gangs have changed.
  void begin(std::uint32_t slots) {
    active_ = true;
    all_.clear();
    used_ = 0;
    of_.assign(slots, {});
    is_marked_.assign(slots, 1);
    marked_.clear();
    for (std::uint32_t s = 0; s < slots; ++s) marked_.push_back(s);
  }
  // The gang in this slot has changed, or a node that it is on.
  void mark(std::uint32_t slot) {
    if (!active_) return;
    if (slot >= of_.size()) {
      of_.resize(slot + std::size_t{1});
      is_marked_.resize(slot + std::size_t{1}, 0);
    }
    if (is_marked_[slot] != 0) return;
    is_marked_[slot] = 1;
    marked_.push_back(slot);
  }
  // list(slot, to) appends what a gang gives back; nothing if it cannot be a victim.
  template <class List>
  void refresh(const List& list) {
    for (const std::uint32_t slot : marked_) {
      is_marked_[slot] = 0;
      used_ -= of_[slot].last - of_[slot].first;
      now_.clear();
      list(slot, now_);
      used_ += now_.size();
      range& at = of_[slot];
      if (now_.size() > at.last - at.first) {
        at.first = static_cast<std::uint32_t>(all_.size());
        all_.insert(all_.end(), now_.begin(), now_.end());
      } else {
        std::copy(now_.begin(), now_.end(), all_.begin() + static_cast<std::ptrdiff_t>(at.first));
      }
      at.last = at.first + static_cast<std::uint32_t>(now_.size());
    }
    marked_.clear();
    if (all_.size() > 2 * used_ + few) drop_unused();
  }
  [[nodiscard]] std::span<const gpus_on_node> all() const noexcept { return all_; }
  // Requires: refresh() has been called since the last mark().
  [[nodiscard]] range of(std::uint32_t slot) const noexcept {
    return slot < of_.size() ? of_[slot] : range{};
  }
  [[nodiscard]] bool is_marked(std::uint32_t slot) const noexcept {
    return slot < is_marked_.size() && is_marked_[slot] != 0;
  }

 private:
  static constexpr std::size_t few = 64;
  void drop_unused() {
    now_.clear();
    for (range& at : of_) {
      const auto first = static_cast<std::uint32_t>(now_.size());
      now_.insert(now_.end(), all_.begin() + static_cast<std::ptrdiff_t>(at.first),
                  all_.begin() + static_cast<std::ptrdiff_t>(at.last));
      at = {first, static_cast<std::uint32_t>(now_.size())};
    }
    all_.swap(now_);
  }

  bool active_ = false;
  std::vector<gpus_on_node> all_;
  std::size_t used_ = 0;                  // entries of gangs
  std::vector<range> of_;                 // by slot
  std::vector<unsigned char> is_marked_;  // by slot
  std::vector<std::uint32_t> marked_;     // slots
  std::vector<gpus_on_node> now_;
};

}  // namespace detail
APIARY_NAMESPACE_END
