// apiary/core/status.h - returning Abseil's Status early, and strings for every build of Abseil.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string_view>
#include <utility>

// Leaves the function with the status of `expression` unless it is OK.
#define APIARY_RETURN_IF_ERROR(expression)                                            \
  do {                                                                                \
    if (auto apiary_status = (expression); !apiary_status.ok()) return apiary_status; \
  } while (false)

// APIARY_ASSIGN_OR_RETURN(declaration, expression): leaves the function with the status of the
// StatusOr `expression` unless it has a value; otherwise `declaration` is initialised or assigned
// with that value.
#define APIARY_ASSIGN_OR_RETURN(declaration, expression) \
  APIARY_DETAIL_ASSIGN_1(declaration, expression, __LINE__)
#define APIARY_DETAIL_ASSIGN_1(declaration, expression, line) \
  APIARY_DETAIL_ASSIGN_2(declaration, expression, line)
#define APIARY_DETAIL_ASSIGN_2(declaration, expression, line)                            \
  auto apiary_status_or_##line = (expression);                                           \
  if (!apiary_status_or_##line.ok()) return std::move(apiary_status_or_##line).status(); \
  declaration = *std::move(apiary_status_or_##line)

APIARY_NAMESPACE_BEGIN

// Abseil may be built with a string_view of its own, which does not convert from std's.
[[nodiscard]] inline absl::string_view to_absl(std::string_view s) noexcept {
  return {s.data(), s.size()};
}

APIARY_NAMESPACE_END
