// apiary/hived/detail/lazy_value.h - a value that is constructed at its first use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <memory>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A T that is constructed at its first use: objects that rarely need a large T stay small. A copy
// copies the T, if any; a moved-from object has none. Cost: a pointer; one allocation.
template <class T>
class lazy_value {
 public:
  lazy_value() = default;
  lazy_value(const lazy_value& other) { *this = other; }
  lazy_value(lazy_value&&) noexcept = default;
  lazy_value& operator=(const lazy_value& other) {
    value_ = other.value_ != nullptr ? std::make_unique<T>(*other.value_) : nullptr;
    return *this;
  }
  lazy_value& operator=(lazy_value&&) noexcept = default;
  ~lazy_value() = default;
  // The T; constructs it if it does not exist yet.
  T& operator*() {
    if (value_ == nullptr) value_ = std::make_unique<T>();
    return *value_;
  }
  T* operator->() { return &**this; }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace detail
APIARY_NAMESPACE_END
