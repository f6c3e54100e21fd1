// apiary/container/keyed_number.h - numbers with a key: sorted by it, or the least one first.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// A number, for example an index, with the key by which it is ordered. Use it instead of a sort or
// a heap with a comparison function: a program compiles it once.
// Cost: sort O(n log n), make_heap O(n), push and pop O(log n).
struct keyed_number {
  std::uint64_t key = 0;     // what it is ordered by
  std::uint32_t number = 0;  // the number itself
  friend constexpr bool operator==(const keyed_number&, const keyed_number&) noexcept = default;
  // The order: by key, then by number.
  friend constexpr bool operator<(const keyed_number& a, const keyed_number& b) noexcept {
    return a.key != b.key ? a.key < b.key : a.number < b.number;
  }

  // Sorts in ascending order.
  template <class Values>
  static void sort(Values& all) {
    std::sort(all.data(), all.data() + all.size());
  }
  // Makes a heap of a vector: its front is the least.
  template <class Values>
  static void make_heap(Values& heap) {
    std::make_heap(heap.data(), heap.data() + heap.size(), after);
  }
  // Adds one to a heap.
  template <class Values>
  static void push(Values& heap, const keyed_number& one) {
    heap.push_back(one);
    std::push_heap(heap.data(), heap.data() + heap.size(), after);
  }
  // Removes the least from a heap and returns it. Requires: the heap is not empty.
  template <class Values>
  static keyed_number pop(Values& heap) {
    std::pop_heap(heap.data(), heap.data() + heap.size(), after);
    const keyed_number least = heap.back();
    heap.pop_back();
    return least;
  }

 private:
  static constexpr bool after(const keyed_number& a, const keyed_number& b) noexcept {
    return b < a;
  }
};

APIARY_NAMESPACE_END
