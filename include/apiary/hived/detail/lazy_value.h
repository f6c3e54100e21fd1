// apiary/hived/detail/lazy_value.h - a value that is constructed at its first use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A T that is constructed at its first use, so that an object that rarely needs a large T stays small.
// A copy holds a copy of the T if the T exists; a moved-from object has no T.
//
// Cost: three pointers; one allocation at the first use.
template <class T>
class lazy_value {
 public:
  // Whether the T exists.
  [[nodiscard]] bool made() const noexcept { return !value_.empty(); }
  // The T; constructs it if it does not exist yet.
  T& operator*() {
    if (value_.empty()) value_.emplace_back();
    return value_.front();
  }
  T* operator->() { return &**this; }

 private:
  std::vector<T> value_;  // zero or one element
};

}  // namespace detail
APIARY_NAMESPACE_END
