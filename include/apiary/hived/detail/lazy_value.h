// apiary/hived/detail/lazy_value.h - a value that is made when it is first used.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A T that does not exist until it is used: an owner that seldom needs a large one is small without.
// A copy has its own T if the original has one; what was moved from has none.
//
// Cost: three pointers; one allocation at the first use.
template <class T>
class lazy_value {
 public:
  [[nodiscard]] bool made() const noexcept { return !value_.empty(); }
  T& operator*() {
    if (value_.empty()) value_.emplace_back();
    return value_.front();
  }
  T* operator->() { return &**this; }

 private:
  std::vector<T> value_;  // at most one
};

}  // namespace detail
APIARY_NAMESPACE_END
