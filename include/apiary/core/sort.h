// apiary/core/sort.h - a stable sort that is cheap to compile; sorted vectors as sets.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The order of operator<. (Including <functional> for std::less would cost 8,000 lines.)
struct ascending {
  template <class T>
  bool operator()(const T& a, const T& b) const {
    return a < b;
  }
};

// Sorts in ascending order; equal values keep their order. It compiles to one function for each
// type and order, where std::sort needs ten and std::stable_sort fifteen.
// Requires: a vector whose values have a default. Cost: O(n log n) and a buffer of n values, if n >
//           8.
template <class Values, class Less = ascending>
void merge_sort(Values& values, const Less& less = {}) {
  constexpr std::size_t run = 8;  // so many values are sorted by insertion
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) {
    typename Values::value_type value = std::move(values[i]);
    std::size_t to = i;
    for (; to % run != 0 && less(value, values[to - 1]); --to)
      values[to] = std::move(values[to - 1]);
    values[to] = std::move(value);
  }
  if (n <= run) return;
  Values merged(n);
  for (std::size_t width = run; width < n; width *= 2) {
    for (std::size_t at = 0; at < n;) {
      std::size_t left = at;
      const std::size_t middle = (std::min)(at + width, n);
      std::size_t right = middle;
      const std::size_t end = (std::min)(middle + width, n);
      while (at < end) {
        const bool from_right =
            left == middle || (right < end && less(values[right], values[left]));
        merged[at++] = std::move(values[from_right ? right++ : left++]);
      }
    }
    values.swap(merged);
  }
}

// Sorts in ascending order and removes equal values. Requires: as merge_sort.
template <class Values>
void sort_unique(Values& values) {
  merge_sort(values);
  values.resize(
      static_cast<std::size_t>(std::unique(values.begin(), values.end()) - values.begin()));
}
// Inserts a value into an ascending vector. Cost, here and below: O(size), one move of memory.
template <class T>
void insert_sorted(std::vector<T>& values, const T& value) {
  values.insert(std::lower_bound(values.begin(), values.end(), value), value);
}
// Removes a value from an ascending vector. Returns whether it was there.
template <class T>
bool erase_sorted(std::vector<T>& values, const T& value) {
  const auto at = std::lower_bound(values.begin(), values.end(), value);
  if (at == values.end() || *at != value) return false;
  values.erase(at);
  return true;
}

}  // namespace detail
APIARY_NAMESPACE_END
