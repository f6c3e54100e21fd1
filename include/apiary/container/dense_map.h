// apiary/container/dense_map.h - a vector indexed by a strong id.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A vector that is indexed by one type of id. Cost: as std::vector.
template <class Id, class T>
class dense_map {
 public:
  // No values.
  dense_map() noexcept = default;
  // `size` copies of `value`.
  explicit dense_map(std::uint32_t size, const T& value = T()) : values_(size, value) {}

  // The number of values. Ids are 0, ..., size() - 1.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(values_.size());
  }
  // Whether there is no value.
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  // Whether there is a value for id i.
  [[nodiscard]] bool contains(Id i) const noexcept { return i.value < values_.size(); }
  // The ids 0, ..., size()-1.
  [[nodiscard]] id_range<Id> ids() const noexcept { return {Id(0), Id(size())}; }

  // The value of id i. Requires: contains(i).
  [[nodiscard]] T& operator[](Id i) noexcept {
    APIARY_ASSERT(contains(i));
    return values_[i.value];
  }
  // The value of id i, to read. Requires: contains(i).
  [[nodiscard]] const T& operator[](Id i) const noexcept {
    APIARY_ASSERT(contains(i));
    return values_[i.value];
  }

  // Appends a value. Returns its id.
  Id push_back(const T& value) {
    values_.push_back(value);
    return Id(size() - 1);
  }
  // Appends a value by moving it and returns its id.
  Id push_back(T&& value) {
    values_.push_back(std::move(value));
    return Id(size() - 1);
  }
  // Changes the size; new values are copies of `value`.
  void resize(std::uint32_t size, const T& value = T()) { values_.resize(size, value); }
  // The values in the order of their ids.
  [[nodiscard]] auto begin() noexcept { return values_.begin(); }
  // The end of the values.
  [[nodiscard]] auto end() noexcept { return values_.end(); }
  // The values in the order of their ids, to read.
  [[nodiscard]] auto begin() const noexcept { return values_.begin(); }
  // The end of the values, to read.
  [[nodiscard]] auto end() const noexcept { return values_.end(); }
  friend bool operator==(const dense_map&, const dense_map&) = default;

 private:
  std::vector<T> values_;
};

APIARY_NAMESPACE_END
