// apiary/container/timer_queue.h - a priority queue of times, at most one time for each id.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps at most one time for each of the ids 0, 1, ..., and finds the earliest (ties: lowest id).
//
// Model: a binary heap and the position of each id in it.
// Cost:  set, cancel, pop O(log timers); the others O(1). Memory: 4 bytes for each id up to the
//        highest that ever had a time, 16 bytes for each timer.
class timer_queue {
 public:
  // An id and its time, in any unit.
  struct timer {
    std::int64_t at = 0;   // the time
    std::uint32_t id = 0;  // the id
    friend constexpr bool operator==(const timer&, const timer&) noexcept = default;
  };

  // Whether no id has a time.
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  // The number of ids that have a time.
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  // Whether the id has a time.
  [[nodiscard]] bool contains(std::uint32_t id) const noexcept {
    return id < place_.size() && place_[id] != none;
  }
  // The earliest timer. Requires: not empty().
  [[nodiscard]] const timer& first() const noexcept {
    APIARY_ASSERT(!empty());
    return heap_.front();
  }

  // Sets the time of an id and replaces its previous one.
  void set(std::uint32_t id, std::int64_t at) {
    if (id >= place_.size()) place_.resize(std::size_t{id} + 1, none);
    std::size_t i = place_[id];
    if (i == none) {
      i = heap_.size();
      heap_.push_back({at, id});
    }
    settle(i, {at, id});
  }
  // Removes the time of an id, if it has one.
  void cancel(std::uint32_t id) {
    if (!contains(id)) return;
    const std::size_t i = place_[id];
    place_[id] = none;
    const timer last = heap_.back();
    heap_.pop_back();
    if (i < heap_.size()) settle(i, last);
  }
  // Removes and returns the earliest timer. Requires: not empty().
  timer pop() {
    const timer next = first();
    cancel(next.id);
    return next;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  [[nodiscard]] static bool before(const timer& a, const timer& b) noexcept {
    return a.at != b.at ? a.at < b.at : a.id < b.id;
  }
  void put(std::size_t i, const timer& t) noexcept {
    heap_[i] = t;
    place_[t.id] = static_cast<std::uint32_t>(i);
  }
  // Moves t from the gap at i to its position.
  void settle(std::size_t i, const timer& t) noexcept {
    while (i > 0 && before(t, heap_[(i - 1) / 2])) {
      put(i, heap_[(i - 1) / 2]);
      i = (i - 1) / 2;
    }
    while (2 * i + 1 < heap_.size()) {
      std::size_t child = 2 * i + 1;
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], t)) break;
      put(i, heap_[child]);
      i = child;
    }
    put(i, t);
  }

  std::vector<timer> heap_;
  std::vector<std::uint32_t> place_;  // position of each id in heap_
};

APIARY_NAMESPACE_END
