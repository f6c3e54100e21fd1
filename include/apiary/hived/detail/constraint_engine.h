// apiary/hived/detail/constraint_engine.h - where HiveD gets its search under topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <memory>

APIARY_NAMESPACE_BEGIN
namespace detail {

class constrained_search;  // hived/detail/constrained_search.h

// Where this is complete, a program can set topology constraints (optional_constraints).
struct constraint_engine {
  // A new search.
  [[nodiscard]] static std::unique_ptr<constrained_search> make();
};

}  // namespace detail
APIARY_NAMESPACE_END
