// apiary/topology/detail/shared_array.h - an immutable array that its copies share.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A constant vector with a count of its owners: a copy costs one atomic addition. Copies may be
// made and destroyed in different threads.
//
// Model: std::shared_ptr<const std::vector<T>>, without the 35,000 lines of <memory>.
template <class T>
class shared_array {
 public:
  shared_array() noexcept = default;
  explicit shared_array(std::vector<T> values) : block_(new block{std::move(values)}) {}
  shared_array(const shared_array& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) block_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  // What is moved from keeps its values: others may have kept its size or a pointer into it.
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
