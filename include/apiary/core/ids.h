// apiary/core/ids.h - strong 32-bit identifiers and ranges of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <compare>
#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// A 32-bit index. Ids with different tags are different types.
template <class Tag>
struct id {
  std::uint32_t value = ~std::uint32_t{0};  // the index; all bits set: not valid

  // An id that is not valid.
  constexpr id() noexcept = default;
  // The id with this index.
  constexpr explicit id(std::uint32_t v) noexcept : value(v) {}
  // Whether the id names something.
  [[nodiscard]] constexpr bool valid() const noexcept { return value != ~std::uint32_t{0}; }
  friend constexpr auto operator<=>(id, id) noexcept = default;
};

using cell_id = id<struct cell_tag>;      // a cell of a tree: GPU, pair, socket, node, rack, ...
using node_id = id<struct node_tag>;      // a machine
using job_id = id<struct job_tag>;        // a job, running or requested; the host chooses the id
using tenant_id = id<struct tenant_tag>;  // a tenant, which owns quota

// The level of a cell in its tree: 0 is a leaf (one GPU).
using level_t = std::uint32_t;

// The ids first, first+1, ..., last-1, as a range.
template <class Id>
struct id_range {
  Id first{0};  // the first id
  Id last{0};   // the id after the last one

  // A forward iterator over the ids.
  struct iterator {
    // The standard library derives the other traits; <iterator> is not needed here.
    using value_type = Id;
    using difference_type = std::ptrdiff_t;  // type of the distance of two iterators

    std::uint32_t at = 0;  // index of the current id

    // The current id.
    constexpr Id operator*() const noexcept { return Id(at); }
    // Goes to the next id.
    constexpr iterator& operator++() noexcept {
      ++at;
      return *this;
    }
    // Goes to the next id and returns the iterator as it was.
    constexpr iterator operator++(int) noexcept { return iterator{at++}; }
    friend constexpr bool operator==(iterator, iterator) noexcept = default;
  };

  // An iterator to the first id.
  [[nodiscard]] constexpr iterator begin() const noexcept { return {first.value}; }
  // An iterator behind the last id.
  [[nodiscard]] constexpr iterator end() const noexcept { return {last.value}; }
  // The number of ids.
  [[nodiscard]] constexpr std::uint32_t size() const noexcept { return last.value - first.value; }
  // Whether there is no id.
  [[nodiscard]] constexpr bool empty() const noexcept { return first == last; }
  // Whether i is one of the ids.
  [[nodiscard]] constexpr bool contains(Id i) const noexcept {
    return i.value - first.value < last.value - first.value;
  }
  // The i-th id. Requires: i < size().
  [[nodiscard]] constexpr Id operator[](std::uint32_t i) const noexcept {
    APIARY_ASSERT(i < size());
    return Id(first.value + i);
  }
  friend constexpr bool operator==(id_range, id_range) noexcept = default;
};

static_assert(sizeof(cell_id) == 4);

APIARY_NAMESPACE_END
