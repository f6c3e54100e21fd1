// apiary/topology/detail/shared_array.h - an immutable array with shared ownership.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// As std::shared_ptr<const std::vector<T>>, without the 35,000 lines of <memory>. A copy costs one
// atomic addition; different threads may make and destroy copies.
template <class T>
class shared_array {
 public:
  shared_array() noexcept = default;
  explicit shared_array(std::vector<T> values) : block_(new block{std::move(values)}) {}
  shared_array(const shared_array& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) block_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  // A move copies: the source keeps its values, because callers may have kept pointers into it.
  shared_array(shared_array&& other) noexcept { *this = other; }
  shared_array& operator=(shared_array other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~shared_array() {
    if (block_ != nullptr && block_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete block_;
  }

  [[nodiscard]] const T* data() const noexcept {
    return block_ == nullptr ? nullptr : block_->values.data();
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return block_ == nullptr ? 0 : block_->values.size();
  }

 private:
  struct block {
    const std::vector<T> values;
    std::atomic<std::size_t> owners{1};
  };

  block* block_ = nullptr;
};

}  // namespace detail
APIARY_NAMESPACE_END
