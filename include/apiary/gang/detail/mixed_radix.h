// apiary/gang/detail/mixed_radix.h - numbers vectors of counts, so that they can index arrays.
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

// Numbers the vectors of tasks of each group, up to the tasks of the gang, in a mixed radix: the
// number of a sum is the sum of the numbers, vector 0 has number 0, and the whole gang has the last
// number.
//
// Cost:     assign O(vectors * groups), have_sum O(groups), the others O(1). 4 bytes for each
//           vector and group.
class mixed_radix {
 public:
  using counts = std::span<const std::uint32_t>;

  // Returns false if there are more vectors than `most`; the object is unusable then.
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
    digits_.assign(static_cast<std::size_t>(size) * kinds_, 0);
    for (std::uint32_t v = 1; v < size_; ++v)
      for (std::size_t u = 0; u < kinds_; ++u)
        digits_[v * kinds_ + u] = v / strides_[u] % (groups[u].tasks + 1);
    return true;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // The number of one task of group u.
  [[nodiscard]] std::uint32_t of_one(std::size_t u) const noexcept { return strides_[u]; }
  [[nodiscard]] counts operator[](std::uint32_t v) const noexcept {
    return {digits_.data() + std::size_t{v} * kinds_, kinds_};
  }
  // Whether the sum of v and w is within the gang; its number is v + w then.
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
  std::vector<std::uint32_t> strides_;  // of each group
  std::vector<std::uint32_t> digits_;   // of each vector
};

}  // namespace detail
APIARY_NAMESPACE_END
