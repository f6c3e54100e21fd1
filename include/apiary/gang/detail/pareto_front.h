// apiary/gang/detail/pareto_front.h - the largest of a set of vectors of counts.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A Pareto front: vectors of counts, none of which is at least another one in every component: the
// largest combinations of tasks that a cell can hold. Cost: covers and add O(size * counts).
class pareto_front {
 public:
  using counts = std::span<const std::uint32_t>;
  explicit pareto_front(std::size_t width) noexcept : width_(width) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] counts operator[](std::size_t i) const noexcept {
    return {values_.data() + i * width_, width_};
  }
  [[nodiscard]] const std::vector<std::uint32_t>& values() const noexcept { return values_; }
  [[nodiscard]] static bool at_least(counts a, counts b) noexcept {
    for (std::size_t k = 0; k < a.size(); ++k)
      if (a[k] < b[k]) return false;
    return true;
  }
  [[nodiscard]] bool covers(counts v) const noexcept {
    for (std::size_t i = 0; i < size_; ++i)
      if (at_least((*this)[i], v)) return true;
    return false;
  }
  [[nodiscard]] bool covers(const pareto_front& other) const noexcept {
    for (std::size_t i = 0; i < other.size(); ++i)
      if (!covers(other[i])) return false;
    return true;
  }
  // Adds v and removes the vectors that are less. Requires: v does not point into this front.
  void add(counts v) {
    if (covers(v)) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (at_least(v, (*this)[i])) continue;
      if (kept != i) std::copy_n(values_.begin() + at(i), width_, values_.begin() + at(kept));
      ++kept;
    }
    values_.resize(kept * width_);
    values_.insert(values_.end(), v.begin(), v.end());
    size_ = kept + 1;
  }
  // Sorts the vectors, so that equal fronts compare equal.
  void sort() {
    std::vector<std::size_t> order(size_);
    for (std::size_t i = 0; i < size_; ++i) order[i] = i;
    merge_sort(order, [&](std::size_t a, std::size_t b) {
      return std::lexicographical_compare((*this)[a].begin(), (*this)[a].end(), (*this)[b].begin(),
                                          (*this)[b].end());
    });
    std::vector<std::uint32_t> sorted;
    for (const std::size_t i : order) {
      const counts v = (*this)[i];
      sorted.insert(sorted.end(), v.begin(), v.end());
    }
    values_ = std::move(sorted);
  }

  friend bool operator==(const pareto_front& a, const pareto_front& b) noexcept {
    return a.values_ == b.values_;
  }

 private:
  [[nodiscard]] std::ptrdiff_t at(std::size_t i) const noexcept {
    return static_cast<std::ptrdiff_t>(i * width_);
  }

  std::size_t width_;
  std::size_t size_ = 0;
  std::vector<std::uint32_t> values_;
};

}  // namespace detail
APIARY_NAMESPACE_END
