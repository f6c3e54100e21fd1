// apiary/hived/detail/name_index.h - a hash table from names to numbers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/lean_vector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A hash table from names to numbers; no template, so that it is compiled only once. Cost: find and
// add O(length of the name), expected; 16 bytes and one string for each name.
class name_index {
 public:
  // Adds a name unless the table has it already. Returns whether it was added.
  bool add(std::string_view name, std::uint32_t value) {
    if (2 * (entries_.size() + 1) > buckets_.size()) grow();
    std::uint32_t& bucket = buckets_[bucket_of(name)];
    if (bucket != none) return false;
    bucket = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({std::string(name), value});
    return true;
  }
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const noexcept {
    if (buckets_.empty()) return std::nullopt;
    const std::uint32_t bucket = buckets_[bucket_of(name)];
    return bucket == none ? std::nullopt : std::optional(entries_[bucket].value);
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct entry {
    std::string name{};
    std::uint32_t value = 0;
  };
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // The bucket of the name, or the empty bucket where it belongs. Requires: some bucket is empty.
  [[nodiscard]] std::size_t bucket_of(std::string_view name) const noexcept {
    const std::size_t mask = buckets_.size() - 1;
    std::size_t at = static_cast<std::size_t>(digest().add(name).value()) & mask;
    while (buckets_[at] != none && entries_[buckets_[at]].name != name) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    buckets_.assign(buckets_.empty() ? 8 : 2 * buckets_.size(), none);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) buckets_[bucket_of(entries_[i].name)] = i;
  }

  std::vector<entry> entries_;          // in the order of the calls of add
  lean_vector<std::uint32_t> buckets_;  // indices of entries_; a power of two, at least half empty
};

}  // namespace detail
APIARY_NAMESPACE_END
