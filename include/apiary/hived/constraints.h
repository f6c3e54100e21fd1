// apiary/hived/constraints.h - topology constraints of gangs in HiveD.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/hived/gang_request.h>

#include <memory>

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/hived_topology_fit.h>
#endif

APIARY_NAMESPACE_BEGIN
namespace detail {

// A program that sets gang_request::constraints includes this header, which compiles the search
// under constraints. Programs that link apiary::compiled need not include it.
// Example: examples/hived_gang.cpp
struct constraint_engine {
  // A new search.
  [[nodiscard]] static std::unique_ptr<constrained_search> make();
};

#ifndef APIARY_COMPILED
inline std::unique_ptr<constrained_search> constraint_engine::make() {
  return std::make_unique<hived_topology_fit>();
}
#endif

}  // namespace detail
APIARY_NAMESPACE_END
