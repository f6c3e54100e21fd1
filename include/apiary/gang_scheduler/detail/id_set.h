// apiary/gang_scheduler/detail/id_set.h - a set of ids that grows.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A set of ids below 2^30, in ascending order.
// Cost: O(log64 greatest id) for each id that is added, removed or read; memory 1 bit for each id.
class id_set {
 public:
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::uint32_t;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = std::uint32_t;

    iterator() = default;
    iterator(const summary_bitset& bits, std::uint32_t id) noexcept : bits_(&bits), id_(id) {}
    std::uint32_t operator*() const noexcept { return id_; }
    iterator& operator++() noexcept {
      id_ = bits_->find_next(id_ + 1);
      return *this;
    }
    iterator operator++(int) noexcept {
      const iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.id_ == b.id_; }

   private:
    const summary_bitset* bits_ = nullptr;
    std::uint32_t id_ = summary_bitset::npos;
  };

  id_set() = default;
  id_set(std::initializer_list<std::uint32_t> ids) {
    for (const std::uint32_t id : ids) insert(id);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool contains(std::uint32_t id) const noexcept {
    return id < bits_.size() && bits_.test(id);
  }
  // The least id. Requires: the set is not empty.
  [[nodiscard]] std::uint32_t front() const noexcept { return bits_.find_first(); }
  [[nodiscard]] iterator begin() const noexcept { return {bits_, bits_.find_first()}; }
  [[nodiscard]] iterator end() const noexcept { return {bits_, summary_bitset::npos}; }

  void insert(std::uint32_t id) {
    if (contains(id)) return;
    if (id >= bits_.size()) bits_.grow(2 * id + 64);
    bits_.set(id);
    ++size_;
  }
  void erase(std::uint32_t id) noexcept {
    if (!contains(id)) return;
    bits_.reset(id);
    --size_;
  }

 private:
  summary_bitset bits_{};
  std::size_t size_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
