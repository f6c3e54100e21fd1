// apiary/gang/detail/mixed_radix.h - vectors of counts as numbers, so that arrays can be by vector.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// All vectors of at most so many units of each kind, numbered in a mixed radix: the number of a sum
// is the sum of the numbers, 0 has number 0, and the whole gang the last one.
//
// Cost: assign O(vectors * kinds), the others O(1) and O(kinds). 4 bytes a vector and kind.
class mixed_radix {
 public:
  using counts = std::span<const std::uint32_t>;

  // False, and of no use, if there are more vectors than `most`.
  bool assign(const colocated_groups& groups, std::uint64_t most) {
    kinds_ = groups.size();
    strides_.clear();
    std::uint64_t size = 1;
    for (std::size_t u = 0; u < kinds_; ++u) {
      strides_.push_back(static_cast<std::uint32_t>(size));
      size *= std::uint64_t{groups[u].tasks} + 1;
      if (size > most || size >> 31 != 0) return false;
    }
    size_ = static_cast<std::uint32_t>(size);
    digits_.assign(size * kinds_, 0);
    for (std::uint32_t v = 1; v < size_; ++v)
      for (std::size_t u = 0; u < kinds_; ++u)
        digits_[v * kinds_ + u] = v / strides_[u] % (groups[u].tasks + 1);
    return true;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // The number of one unit of kind u.
  [[nodiscard]] std::uint32_t of_one(std::size_t u) const noexcept { return strides_[u]; }
  [[nodiscard]] counts operator[](std::uint32_t v) const noexcept {
    return {digits_.data() + std::size_t{v} * kinds_, kinds_};
  }
  // Whether v and w together are still a part of the gang; v + w is their number then.
  [[nodiscard]] bool have_sum(std::uint32_t v, std::uint32_t w) const noexcept {
    if (w >= size_ - v) return false;
    const counts sum = (*this)[v + w];
    const counts part = (*this)[v];
    for (std::size_t u = 0; u + 1 < kinds_; ++u)
      if (sum[u] < part[u]) return false;
    return true;
  }

 private:
  std::size_t kinds_ = 0;
  std::uint32_t size_ = 1;
  std::vector<std::uint32_t> strides_;  // of each kind
  std::vector<std::uint32_t> digits_;   // of each vector
};

}  // namespace detail
APIARY_NAMESPACE_END
